"""GeoCo-SAVi as a whole: video in, scenes out."""

from pathlib import Path

import pytest
import torch
from helpers import write_dino

from geoco import config
from geoco.errors import GeocoError
from geoco.models import compositing
from geoco.models.build import build
from geoco.models.decoders import DECODERS
from geoco.models.geoco import GeoCo
from geoco.models.interface import parameter_table

ROOT = Path(__file__).parents[2]
TINY_MODEL = config.ModelConfig(
    encoder=config.ConvEncoderConfig(width=8),
    slots=config.SlotsConfig(count=3, dim=8, update_dim=8, grid_dim=8),
    decoder=config.DecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
)


def make_tiny_model(seed: int = 0) -> GeoCo:
    torch.manual_seed(seed)
    return GeoCo(TINY_MODEL).double()


def video(batch: int = 2, time: int = 3) -> torch.Tensor:
    return torch.rand(batch, time, 3, 16, 16, generator=torch.Generator().manual_seed(5)).double()


def test_a_scene_has_batch_and_time_in_front() -> None:
    scene = make_tiny_model()(video(), torch.Generator().manual_seed(0))
    assert scene.image.shape == (2, 3, 3, 16, 16)
    assert scene.alpha.shape == (2, 3, 3, 16, 16)
    assert scene.binding.attention.shape == (2, 3, 3, 16)
    torch.testing.assert_close(scene.alpha.sum(2), torch.ones(2, 3, 16, 16).double())
    expected = sum(scene.fields.rgb[:, :, k] * scene.alpha[:, :, k, None] for k in range(3))  # type: ignore[index]
    torch.testing.assert_close(scene.image, expected)


def test_later_frames_start_where_the_one_before_ended() -> None:
    model, clip = make_tiny_model(), video()
    positions = torch.rand(2, 3, 2).double() * 2 - 1
    binding = model.bind(clip, positions)
    tokens = [model.encoder(clip[:, time]) for time in range(3)]
    first = model.attention(tokens[0], model.attention.start_slots(positions), 3)
    second = model.attention(tokens[1], first.slots, 2)
    third = model.attention(tokens[2], second.slots, 2)
    for time, expected in enumerate((first, second, third)):
        torch.testing.assert_close(binding.slots.appearance[:, time], expected.slots.appearance)
        torch.testing.assert_close(binding.slots.position[:, time], expected.slots.position)
        torch.testing.assert_close(binding.attention[:, time], expected.attention)


def test_a_frame_is_a_clip_of_one() -> None:
    model, clip = make_tiny_model(), video()
    whole = model(clip, torch.Generator().manual_seed(3))
    single = model(clip[:, :1], torch.Generator().manual_seed(3))
    torch.testing.assert_close(single.image[:, 0], whole.image[:, 0])


def test_the_same_generator_gives_the_same_scene() -> None:
    model, clip = make_tiny_model(), video()
    one, two = (model(clip, torch.Generator().manual_seed(7)).image for _ in range(2))
    assert torch.equal(one, two)
    other = model(clip, torch.Generator().manual_seed(8)).image
    assert not torch.equal(one, other)


def test_pictures_do_not_depend_on_the_order_of_slots() -> None:
    model = make_tiny_model()
    scene = model(video(), torch.Generator().manual_seed(0))
    order = torch.tensor([2, 0, 1])
    slots = scene.binding.slots
    shuffled = model.decoder(slots[:, :, order])
    picture = compositing.composite(shuffled.rgb, compositing.compute_alpha(shuffled.logits))
    torch.testing.assert_close(picture, scene.image)


def test_every_parameter_learns_from_reconstruction() -> None:
    """All but the parts that start at zero slopes: gates and gains still must be reached."""
    model, clip = make_tiny_model(), video()
    torch.nn.init.normal_(model.attention.readout.gate.weight, std=0.1)  # type: ignore[union-attr]
    torch.nn.init.normal_(model.decoder.micro.weight, std=0.1)  # type: ignore[union-attr]
    scene = model(clip, torch.Generator().manual_seed(0))
    (scene.image - clip).square().mean().backward()
    silent = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not parameter.grad.abs().max() > 0
    ]
    # The selector has an objective of its own, and gets nothing from this one.
    assert silent == [name for name, _ in model.named_parameters() if name.startswith("selector")]


def test_other_sizes_are_refused() -> None:
    with pytest.raises(GeocoError, match="the model works on 16 x 16 pixels, got 32 x 16"):
        make_tiny_model()(torch.rand(1, 1, 3, 32, 16).double(), torch.Generator())


def test_the_obj3d_model_has_the_releases_parameters() -> None:
    """660,285 in the release, one of them the gain of the pointwise alpha head: taps of a 1 x 1
    kernel cannot spread, so ours has six gains and not seven."""
    model = GeoCo(config.load(ROOT / "configs" / "geoco.yaml").model)
    rows = {name: trainable for name, trainable, _ in parameter_table(model)}
    assert rows["encoder"] == 312_256
    assert rows["attention"] == 79_750
    assert rows["selector"] == 1_961
    assert rows["total"] == 660_285 - 1


@pytest.mark.parametrize("name", ["geoco", "isa", "conventional", "canonical"])
def test_shipped_models_draw(name: str) -> None:
    settings = config.load(ROOT / "configs" / f"{name}.yaml").model
    model = GeoCo(settings)
    scene = model(torch.rand(1, 1, 3, 64, 64), torch.Generator().manual_seed(0))
    assert torch.isfinite(scene.image).all()
    assert (model.attention.readout is None) == (name == "isa")
    design = {"geoco": "steered", "isa": "conventional"}.get(name, name)
    assert type(model.decoder) is DECODERS[design]


def test_the_movi_model_draws(tmp_path: Path) -> None:
    write_dino(tmp_path, width=384, depth=1, heads=6)
    path = ROOT / "configs" / "geoco-movi-c.yaml"
    changes = [f"model.encoder.weights={tmp_path}", "model.encoder.backbone.depth=1"]
    model = build(config.load(path, changes).model)
    assert isinstance(model, GeoCo)
    scene = model(torch.rand(1, 2, 3, 64, 64), torch.Generator().manual_seed(0))
    assert scene.alpha.shape == (1, 2, 11, 64, 64)
    assert scene.binding.attention.shape == (1, 2, 11, 576)
    assert model.decoder.micro is None
    assert torch.isfinite(scene.image).all()
