"""What a run shows of itself: every panel of the picture is what its column says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from geoco import config, drawing
from geoco.metrics import rgb
from geoco.models import compositing
from geoco.models.geoco import GeoCo
from geoco.training import diagnostics

SIZE, GAP = 16, drawing.MARGIN
SMALL_OVERRIDES = [
    "model.slots={count: 4, dim: 8}",
    "model.decoder.broadcast=4",
    "model.decoder.layers=[[8,3],[16,3]]",
]


@pytest.fixture
def model() -> GeoCo:
    torch.manual_seed(0)
    model = GeoCo(config.load(None, SMALL_OVERRIDES).model)
    with torch.no_grad():
        model.decoder.alpha.weight.mul_(30)  # so that slots own different pixels
    return model


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    positions = 2 * torch.rand(3, 4, 2, generator=generator) - 1
    return torch.rand(3, 1, 3, SIZE, SIZE, generator=generator), positions


def panel(sheet: np.ndarray, row: int, column: int) -> np.ndarray:
    top, left = GAP + row * (SIZE + GAP), GAP + column * (SIZE + GAP)
    return sheet[top : top + SIZE, left : left + SIZE]


def convert_image(image: Tensor) -> np.ndarray:
    return (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()


@torch.no_grad()
def test_the_picture_shows_what_it_says(model: GeoCo) -> None:
    video, positions = inputs()
    sheet = diagnostics.draw_scenes(model, video, positions, zoom=1)
    binding = model.bind(video, positions)
    scene, slots = model.decode(binding), binding.slots
    owned = compositing.compute_masks(scene.fields.logits)[:, 0].sum((-2, -1))
    background = scene.alpha[:, 0].mean((-2, -1)).argmax(-1)
    for row in range(3):
        order = owned[row].argsort(descending=True).tolist()
        chosen = next(slot for slot in order if slot != background[row])
        donor_order = owned[(row + 1) % 3].argsort(descending=True).tolist()
        donor = next(slot for slot in donor_order if slot != background[(row + 1) % 3])
        position, scale = slots.position.clone(), slots.scale.clone()
        appearance = slots.appearance.clone()
        position[row, 0, chosen, 0] += 6 * 2 / (SIZE - 1)
        scale[row, 0, chosen] *= 1.5
        appearance[row, 0, chosen] = slots.appearance[(row + 1) % 3, 0, donor]
        expected = [
            video,
            scene.image,
            *(
                model.decode(replace(binding, slots=edited)).image
                for edited in (
                    replace(slots, position=position),
                    replace(slots, scale=scale),
                    replace(slots, appearance=appearance),
                )
            ),
        ]
        for column, image in zip((0, 1, 3, 4, 5), expected, strict=True):
            off = np.abs(
                panel(sheet, row, column).astype(int) - convert_image(image[row, 0]).astype(int)
            )
            assert off.max() <= 1, (row, column)
        assert not np.array_equal(panel(sheet, row, 5), panel(sheet, row, 1))


def test_psnr_is_the_mean_over_frames(model: GeoCo) -> None:
    video, positions = inputs()
    with torch.no_grad():
        image = model.decode(model.bind(video, positions)).image
    psnr = diagnostics.measure_psnr(model, video, positions)
    assert psnr == pytest.approx(float(rgb.psnr(image, video).mean()), abs=1e-4)
