"""Colour metrics: values by hand, and loops over pixels as the reference."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from geoco.metrics import rgb


def random_mask(seed: int, *shape: int, share: float = 0.4) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def test_psnr_by_hand() -> None:
    target = torch.zeros(2, 3, 4, 5)
    image = target.clone()
    image[0] += 0.1
    image[1] += 0.01
    assert rgb.psnr(image, target).tolist() == pytest.approx([20, 40], rel=1e-5)
    assert rgb.psnr(target, target).isinf().all()


def test_colour_metrics_against_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    image, target = torch.rand(2, 3, 3, 6, 7, generator=generator)
    edited = torch.where(random_mask(2, 3, 1, 6, 7), image + 0.02 * torch.randn(3, 3, 6, 7), image)
    region = random_mask(1, 3, 6, 7)
    whole, part = rgb.psnr(image, target), rgb.region_psnr(image, target, region)
    kept = rgb.measure_preservation(image, edited, region)
    for frame in range(3):
        squares, inside, changes = [], [], []
        for row, column in np.ndindex(6, 7):
            a, b, c = (x[frame, :, row, column].tolist() for x in (image, target, edited))
            errors = [(u - v) ** 2 for u, v in zip(a, b, strict=True)]
            squares += errors
            if region[frame, row, column]:
                inside += errors
            else:
                changes.append(sum(abs(u - v) for u, v in zip(a, c, strict=True)) / 3)
        assert whole[frame].item() == pytest.approx(-10 * math.log10(np.mean(squares)))
        assert part[frame].item() == pytest.approx(-10 * math.log10(np.mean(inside)))
        assert kept.change[frame].item() == pytest.approx(np.mean(changes))
        share = np.mean([change > 2 / 255 for change in changes])
        assert 0 < share < 1
        assert kept.changed[frame].item() == pytest.approx(share)


def test_preservation_by_hand() -> None:
    factual = torch.zeros(3, 2, 2)
    edited = factual.clone()
    edited[:, 0, 0] = 1.0  # in the region
    edited[0, 0, 1] = 9 / 255  # a mean of 3/255
    edited[0, 1, 0] = 5 / 255  # a mean below 2/255, though one channel changed by more
    region = torch.tensor([[True, False], [False, False]])
    preservation = rgb.measure_preservation(factual, edited, region)
    assert preservation.change.item() == pytest.approx((3 + 5 / 3) / 255 / 3)
    assert preservation.changed.item() == pytest.approx(1 / 3)
    nothing = rgb.measure_preservation(factual, edited, torch.ones_like(region))
    assert nothing.change.isnan()
    assert nothing.changed.isnan()


def test_editing_regions_grow_by_two_steps() -> None:
    single = torch.zeros(7, 9, dtype=torch.bool)
    single[3, 4] = True
    assert rgb.grow_editing_region(single).sum() == 13
    support = random_mask(3, 4, 9, 11, share=0.05)
    region = rgb.grow_editing_region(support)
    for index in np.ndindex(4, 9, 11):
        item, row, column = index
        near = any(abs(row - i) + abs(column - j) <= 2 for i, j in support[item].nonzero().tolist())
        assert bool(region[index]) == near
