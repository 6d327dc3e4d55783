"""SlotAug's training: pictures under commands, three losses, and random numbers that can resume."""

import colorsys
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import ndimage
from torch import Tensor

from geoco import config
from geoco.models import checkpoints
from geoco.models.build import build
from geoco.models.slotaug import Command, SlotAug
from geoco.training.augmentations import augment, hsl_to_rgb, rgb_to_hsl
from geoco.training.curriculum import TERMS, Curriculum
from geoco.training.launch import Machine, start_training
from geoco.training.metrics_log import read_metrics
from geoco.training.objective import Draws, Losses
from geoco.training.slotaug_objective import SlotAugObjective, choose_command

CONFIG = Path(__file__).parents[2] / "configs" / "slotaug.yaml"
TINY = [
    "data.episodes={train: 3, val: 1, test: 1}",
    "data.frames=4",
    "data.supersample=1",
    "data.height=16",
    "data.width=16",
    "model.encoder.width=8",
    "model.slots={count: 3, dim: 8, update_dim: 8, grid_dim: 8}",
    "model.decoder.broadcast=4",
    "model.decoder.layers=[[8,3],[16,3]]",
    "train.budget=0.0001",  # 7 steps
    "train.batch=4",
    "train.precision=32-true",
    "train.log_every=1",
    "train.validation=2",
    "train.picture_every=7",
    "train.checkpoint_every=2",
]


def draw_images(count: int, height: int = 9, width: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, 3, height, width, generator=generator, dtype=torch.float64)


def make_commands(count: int = 1) -> Command:
    return Command.identity(torch.ones(count, dtype=torch.float64))


# -- pictures --------------------------------------------------------------------------------------


def test_nothing_changes_by_the_command_that_changes_nothing() -> None:
    images = draw_images(3)
    torch.testing.assert_close(augment(images, make_commands(3)), images)


def test_pictures_move_by_whole_pixels() -> None:
    """Three to the right and two up; a translation of one is from edge to edge."""
    images = draw_images(1)
    move = torch.tensor([[3 / 11, -2 / 8]], dtype=torch.float64)
    moved = augment(images, replace(make_commands(), translation=move))
    expected = ndimage.shift(images[0].numpy(), (0, -2, 3), order=1, mode="nearest")
    np.testing.assert_allclose(moved[0].numpy(), expected, atol=1e-12)
    torch.testing.assert_close(moved[:, :, 0, 3:], images[:, :, 2, :-3])


@pytest.mark.parametrize("scale", [0.8, 1.25])
def test_pictures_are_scaled_about_their_middle(scale: float) -> None:
    images = draw_images(1)
    command = replace(make_commands(), scale=torch.tensor([scale], dtype=torch.float64))
    middle = np.array([1, 4, 5.5])
    matrix = np.array([1, 1 / scale, 1 / scale])
    offset = middle - matrix * middle
    expected = ndimage.affine_transform(images[0].numpy(), matrix, offset, order=1, mode="nearest")
    np.testing.assert_allclose(augment(images, command)[0].numpy(), expected, atol=1e-12)


def test_a_scale_comes_before_a_translation() -> None:
    images = draw_images(1)
    command = replace(
        make_commands(),
        translation=torch.tensor([[2 / 11, 1 / 8]], dtype=torch.float64),
        scale=torch.tensor([2.0], dtype=torch.float64),
    )
    middle, moved = np.array([1, 4, 5.5]), np.array([1, 5, 7.5])
    matrix = np.array([1, 0.5, 0.5])
    expected = ndimage.affine_transform(
        images[0].numpy(), matrix, middle - matrix * moved, order=1, mode="nearest"
    )
    np.testing.assert_allclose(augment(images, command)[0].numpy(), expected, atol=1e-12)


def test_the_opposite_command_brings_a_picture_back() -> None:
    """Where nothing left it, on pictures that bilinear interpolation does not blur."""
    rows, columns = torch.meshgrid(
        torch.arange(13, dtype=torch.float64), torch.arange(13, dtype=torch.float64), indexing="ij"
    )
    image = torch.stack((rows / 12, columns / 12, (rows + columns) / 24))[None]
    commands = [
        replace(make_commands(), translation=torch.tensor([[0.125, -0.1]], dtype=torch.float64)),
        replace(make_commands(), scale=torch.tensor([0.8], dtype=torch.float64)),
        replace(make_commands(), color=torch.tensor([[0.7, 0.5, 1]], dtype=torch.float64)),
    ]
    for command in commands:
        edited = augment(image, command)
        assert not torch.allclose(edited, image, atol=0.02)
        back = augment(edited, command.inverse)
        torch.testing.assert_close(back[..., 2:-2, 2:-2], image[..., 2:-2, 2:-2])


def test_hue_and_saturation_are_those_of_colorsys() -> None:
    images = draw_images(2, 4, 5)
    images[0, :, 0, 0] = 0.3  # a grey, black, white, and all corners of the cube
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
    images[0, :, 1:3, :4] = corners.T.reshape(3, 2, 4)
    color = torch.tensor([[0.6, 1.7, 1], [-0.9, 0.4, 0.8]], dtype=torch.float64)
    edited = augment(images, replace(make_commands(2), color=color))
    for number, (shift, more, lighter) in enumerate(color.tolist()):
        for row in range(4):
            for column in range(5):
                hue, light, saturation = colorsys.rgb_to_hls(
                    *images[number, :, row, column].tolist()
                )
                expected = colorsys.hls_to_rgb(
                    (hue + shift) % 1, min(light * lighter, 1), min(saturation * more, 1)
                )
                assert edited[number, :, row, column].tolist() == pytest.approx(expected, abs=1e-9)
    torch.testing.assert_close(hsl_to_rgb(rgb_to_hsl(images)), images)


# -- commands of a step ----------------------------------------------------------------------------


def test_a_sample_has_one_kind_of_command() -> None:
    command = choose_command(
        torch.tensor([[0.1, 0.75, 0.0], [0.5, 0.0, 0.3], [0.6, 1.0, 0.3], [0.9, 0.75, 1.0]])
    )
    assert command.translation.tolist() == [[0.0625, -0.125], [0, 0], [0, 0], [0, 0]]
    assert command.scale.tolist() == pytest.approx([1, 0.8, 1.25, 1])
    assert command.color[:3].tolist() == [[0, 1, 1]] * 3
    assert command.color[3].tolist() == pytest.approx([0.5, math.e, 1])


def test_all_kinds_are_as_likely() -> None:
    generator = torch.Generator().manual_seed(0)
    command = choose_command(Draws.sample(generator, 3000, 1, 2).command)
    kinds = (
        (command.translation != 0).any(-1),
        command.scale != 1,
        (command.color != torch.tensor([0.0, 1, 1])).any(-1),
    )
    assert torch.stack(kinds).sum(0).eq(1).all()
    assert all(900 < int(kind.sum()) < 1100 for kind in kinds)


def test_numbers_of_a_step_are_drawn_in_the_order_of_their_fields() -> None:
    """So that models train as they did before there were commands, or earlier frames to choose."""
    draws = Draws.sample(torch.Generator().manual_seed(5), 4, 2, 3)
    generator = torch.Generator().manual_seed(5)
    shapes = ((4, 3, 2), (4, 2, 3), (4, 2), (4,), (4, 3), (4, 2))
    for value, shape in zip(vars(draws).values(), shapes, strict=True):
        drawn = torch.rand(shape, generator=generator)
        torch.testing.assert_close(value, 2 * drawn - 1 if shape == (4, 3, 2) else drawn)


# -- losses ----------------------------------------------------------------------------------------


class Setting:
    def __init__(self) -> None:
        torch.manual_seed(0)
        settings = config.load(CONFIG, TINY)
        model = build(settings.model).double()
        assert isinstance(model, SlotAug)
        with torch.no_grad():  # so that slots attend elsewhere and commands tell
            model.isa.attention.query.weight.mul_(20)
            model.isa.attention.grid.weight.mul_(20)
            model.translate[-1].weight.mul_(20)
        self.model = model
        self.objective = SlotAugObjective(model, settings.train)
        self.mode = Curriculum(settings, 1.0).plan(0).mode
        self.video = draw_images(6, 16, 16).unflatten(0, (3, 2))
        draws = Draws.sample(torch.Generator().manual_seed(2), 3, 2, 3)
        self.draws = Draws(*(value.double() for value in vars(draws).values()))
        self.draws.command[:, 0] = torch.tensor([0.1, 0.5, 0.9])

    def compute(self) -> Losses:
        weights = torch.tensor([float(term == "rec") for term in TERMS])
        source = torch.arange(3)
        return self.objective.compute(self.video, source, self.draws, weights, self.mode)

    def tell(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Slots as bound and restored, and both pictures: each sample and frame by itself."""
        model, binding = self.model, self.model.bind(self.video, self.draws.positions)
        parts: list[list[Tensor]] = [[], [], [], []]
        for row in range(3):
            command = choose_command(self.draws.command[row : row + 1])
            for time in range(2):
                one = binding[row : row + 1, time : time + 1]
                every = Command(
                    command.translation.expand(1, 1, 3, 2),
                    command.scale.expand(1, 1, 3),
                    command.color.expand(1, 1, 3, 3),
                ).for_slots(one.slots.position)
                edited = model.obey(one.slots, every)
                back = model.obey(edited, every.inverse)
                picture = model.decode(replace(one, slots=edited)).image
                target = augment(self.video[row, time][None], command)
                parts[0].append(one.slots.appearance.flatten(0, 2))
                parts[1].append(back.appearance.flatten(0, 2))
                parts[2].append(picture[0])
                parts[3].append(target)
        slots, restored, pictures, targets = (torch.cat(part) for part in parts)
        return slots, restored, pictures, targets


def test_three_losses_and_their_weights() -> None:
    setting = Setting()
    losses = setting.compute()
    slots, restored, pictures, targets = setting.tell()
    binding = setting.model.bind(setting.video, setting.draws.positions)
    expected = {
        "rec": (setting.model.decode(binding).image - setting.video).square().mean(),
        "augmented": (pictures - targets).square().mean(),
        "inverse": (restored - slots).square().mean(),
    }
    assert list(losses.by_name) == list(setting.objective.terms) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(losses.by_name[name], value)
    total = expected["rec"] + expected["augmented"] + 0.01 * expected["inverse"]
    torch.testing.assert_close(losses.total, total)
    assert not torch.allclose(expected["rec"], expected["augmented"], rtol=1e-3)


def test_the_way_back_does_not_move_its_goal() -> None:
    setting = Setting()
    parameter = setting.model.isa.attention.appearance
    (given,) = torch.autograd.grad(setting.compute().by_name["inverse"], parameter)
    slots, restored, _, _ = setting.tell()
    (fixed,) = torch.autograd.grad(
        (restored - slots.detach()).square().mean(), parameter, retain_graph=True
    )
    (moving,) = torch.autograd.grad((restored - slots).square().mean(), parameter)
    torch.testing.assert_close(given, fixed)
    assert not torch.allclose(fixed, moving)


def test_the_augmented_picture_is_never_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    setting, seen = Setting(), []
    encoder = setting.model.isa.encoder
    forward = encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda frames: seen.append(frames) or forward(frames))
    setting.compute()
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], setting.video.flatten(0, 1))


# -- a run -----------------------------------------------------------------------------------------


def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path: Path) -> None:
    settings, quiet = config.load(CONFIG, TINY), Console(quiet=True)
    start_training(settings, tmp_path / "whole", Machine("cpu"), None, quiet)
    start_training(settings, tmp_path / "parts", Machine("cpu"), 0, quiet)
    first = checkpoints.read_weights(tmp_path / "parts")
    assert 0 < first.step < 7
    start_training(None, tmp_path / "parts", Machine("cpu"), None, quiet)
    whole, parts = (checkpoints.read_weights(tmp_path / name) for name in ("whole", "parts"))
    assert whole.step == parts.step == 7
    for name, value in whole.tensors.items():
        assert torch.equal(value, parts.tensors[name]), name
    metrics = read_metrics(tmp_path / "whole" / "metrics.csv")
    assert list(metrics)[1:5] == ["rec", "augmented", "inverse", "total"]
    assert any(metrics["augmented"])
