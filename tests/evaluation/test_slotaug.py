"""SlotAug among the evaluated: told what to do, asked for every table but the finite grid."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from helpers import make_small_solids
from torch import Tensor
from typer.testing import CliRunner

from geoco import config
from geoco.cli.main import app
from geoco.editing.editor import Editor
from geoco.errors import GeocoError
from geoco.evaluation import CommandModel, ExtendedModel, adapter, evaluate
from geoco.evaluation.adapters import SlotAugModel
from geoco.evaluation.commands import build_moves, build_resizes
from geoco.evaluation.decode_edits import decode_edits
from geoco.evaluation.windows import compute_factual
from geoco.models import checkpoints
from geoco.models.pretrained import LoadedModel
from geoco.models.slotaug import Command, SlotAug
from geoco.models.slots import Slots

TINY = config.SlotAugConfig(
    encoder=config.ConvEncoderConfig(width=8),
    slots=config.SlotsConfig(count=4, dim=8, update_dim=8, grid_dim=8, readout=False),
    decoder=config.DecoderConfig(design="conventional", broadcast=4, layers=((8, 3), (16, 3))),
)


@pytest.fixture(scope="module")
def network() -> SlotAug:
    """Without training, but loud enough that slots differ and every window has objects."""
    torch.manual_seed(1)
    model = SlotAug(TINY).double()
    with torch.no_grad():
        for weight in (model.isa.decoder.place.weight, model.isa.decoder.alpha.weight):
            weight.mul_(6)
        model.isa.attention.query.weight.mul_(8)
        for mlp in (model.translate, model.resize):
            mlp[-1].weight.mul_(4)
    return model.eval()


def place(network: SlotAug, *values: float) -> Tensor:
    return torch.tensor(values, dtype=next(network.parameters()).dtype)


def test_which_interfaces_it_has(network: SlotAug) -> None:
    model = adapter(network)
    assert isinstance(model, SlotAugModel)
    assert isinstance(model, CommandModel)
    assert not isinstance(model, ExtendedModel)


def test_edits_are_commands(network: SlotAug) -> None:
    """A pixel is 1 / 15 of the canvas; position and scale, by which a slot is drawn, stay."""
    model = adapter(network)
    factual = compute_factual(model, make_small_solids(), 4, 2)
    slots, drawn = factual.slots, 0
    told = {"position": 0, "scale": 0}
    for commands in (build_moves(factual), build_resizes(factual)):
        for chunk, slot, (rgb, logits) in decode_edits(model, factual, commands, 3):
            for row, edit in enumerate(chunk.tolist()):
                window, number = int(commands.window[edit]), int(commands.command[edit])
                own = slots[window : window + 1]
                pixels = ((6, 0), (-6, 0), (0, 6), (0, -6))[number % 4]
                factor = (0.5, 0.75, 1.0, 1.25, 1.5)[number]
                moves = commands.kind == "position"
                command = Command(
                    place(network, *(pixels if moves else (0, 0)))[None, None] / 15,
                    place(network, 1.0 if moves else factor)[None],
                    place(network, 0, 1, 1)[None, None],
                )
                one = network.obey(own[:, slot : slot + 1], command)
                assert torch.equal(one.position, own.position[:, slot : slot + 1])
                expected = network.decode_slots(own.with_slot(slot, one))
                torch.testing.assert_close(logits[row], expected.logits[0], atol=1e-6, rtol=1e-6)
                torch.testing.assert_close(rgb[row], expected.rgb[0], atol=1e-6, rtol=1e-6)
                told[commands.kind] += 1
                drawn += not torch.allclose(expected.logits, network.decode_slots(own).logits)
    assert told["scale"] * 4 == told["position"] * 5 > 0
    assert drawn == sum(told.values())


def test_every_table_that_fits(network: SlotAug, tmp_path: Path) -> None:
    results = evaluate(adapter(network), make_small_solids(), tmp_path, "slotaug", windows=4)
    assert set(results.tables) == {
        "factual",
        "editing",
        "stability",
        "shared-background",
        "matched",
    }
    assert results.tables["factual"]["position_error"]["defined"] > 0
    editing = results.tables["editing"]["all"]
    assert editing["position"]["edits"] > 0
    assert editing["transplant"]["edits"] > 0
    assert results.tables["matched"]["position"]["oracle"]["full"]["estimate"] > 0
    text = (tmp_path / "tables.md").read_text()
    for line in (
        "| SlotAug (paper, Obj3D) | 43.216 | 0.0476 | 0.0579 | 0.0358 | 0.0124 | 0.0520 | 0.0226 |",
        "| SlotAug (paper, Obj3D) | 90.78 | 82.19 | 78.20 | 0.0060 | 0.5412 | 1.0575 | 0.0321 |",
    ):
        assert line in text


def test_a_transplant_is_of_the_representation(network: SlotAug) -> None:
    """The donor's appearance is drawn in the recipient's frame, and nothing is told."""
    model = adapter(network)
    encoded = compute_factual(model, make_small_solids(), 4, 2).encoded(torch.tensor([0, 1]))
    own, donor = encoded.slots[:, 1:2], encoded.slots[:, 2:3]
    given = Slots(donor.appearance, own.position, own.scale)
    _, logits = model.decode(encoded, encoded.slots.with_slot(1, given))
    torch.testing.assert_close(logits[:, 1:2], network.decode_slots(given).logits)
    torch.testing.assert_close(logits[:, 2:3], network.decode_slots(donor).logits)
    assert not torch.allclose(logits[:, 1:2], network.decode_slots(own).logits)


# -- by the command line, and in the editor --------------------------------------------------------


def test_a_file_of_weights_is_evaluated_by_the_command_line(
    network: SlotAug, tmp_path: Path
) -> None:
    settings = config.load(
        None,
        [
            "data={episodes: {train: 1, val: 2, test: 1}, frames: 9, height: 16, width: 16}",
            "data.supersample=1",
        ],
    ).model_copy(update={"model": TINY})
    tensors = {name: value.float() for name, value in network.state_dict().items()}
    checkpoints.write_weights(tmp_path / "weights.safetensors", 7, settings, tensors)
    weights = str(tmp_path / "weights.safetensors")
    arguments = ["eval", weights, "--windows", "4", "--no-figures", "--out", str(tmp_path / "out")]
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    stored = json.loads((tmp_path / "out" / "matched.json").read_text())
    assert stored["values"]["scale"]["edits"] > 0
    assert not (tmp_path / "out" / "finite-grid.json").exists()
    for command in ("calibrate", "refit"):
        with pytest.raises(GeocoError, match=r"weights\.safetensors: .*has no selector"):
            CliRunner().invoke(app, [command, weights], catch_exceptions=False)


def test_the_editor_tells_it(network: SlotAug) -> None:
    """Moves and sizes add up, from wherever the slot was bound; donors bring where they were."""
    network = deepcopy(network).float()
    editor = Editor(LoadedModel("tiny", network, config.Config(model=TINY), 0, (0.0, 10.0)))
    frames = make_small_solids().batch([0, 1]).video[:, 0].permute(0, 2, 3, 1).numpy()
    scene, other = (editor.encode(frame) for frame in frames)
    bound = scene.decoded.slots[:, 1:2]
    step, one, zero = 2 / 15, place(network, 1.0)[None], place(network, 0, 1, 1)[None, None]
    told = Command(place(network, 3, 1)[None, None] * step / 2, 1.25 * one, zero)
    edited = scene.move(1, dx=3, dy=-1).resize(1, 1.25).move(1, dx=0, dy=2)
    expected = network.decode_slots(network.obey(bound, told))
    torch.testing.assert_close(
        edited.decoded.fields.logits[:, 1:2], expected.logits, atol=1e-6, rtol=1e-6
    )
    assert edited.slots[1].position[0] == pytest.approx(scene.slots[1].position[0] + 3 * step)
    rest = [0, 2, 3]
    assert torch.equal(edited.decoded.fields.logits[:, rest], scene.decoded.fields.logits[:, rest])

    back = edited.move(1, dx=-3, dy=-1).resize(1, 0.8)
    torch.testing.assert_close(
        back.decoded.fields.logits, scene.decoded.fields.logits, atol=1e-4, rtol=1e-4
    )
    copied = scene.duplicate(1, into=2, dx=3, dy=1)
    told = Command(place(network, 3, 1)[None, None] * step / 2, one, zero)
    expected = network.decode_slots(network.obey(bound, told))
    torch.testing.assert_close(
        copied.decoded.fields.logits[:, 2:3], expected.logits, atol=1e-6, rtol=1e-6
    )
    swapped = scene.set_background(other).decoded
    own, given = scene.decoded.background, other.decoded.background
    torch.testing.assert_close(swapped.fields.logits[:, own], other.decoded.fields.logits[:, given])
    assert torch.equal(swapped.bound.position[:, own], other.decoded.bound.position[:, given])
