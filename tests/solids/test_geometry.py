"""Rays against solids: values by hand, and independent brute force."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from geoco.solids import textures
from geoco.solids.geometry import Vector, compute_occlusion, intersect_solid, normalize, rotate
from geoco.solids.physics import CUBE, CYLINDER, SPHERE

SHAPES = (CUBE, CYLINDER, SPHERE)


def vector(*rows: tuple[float, float, float]) -> Vector:
    x, y, z = torch.tensor(rows, dtype=torch.float64).unbind(-1)
    return x, y, z


def inside(shape: int, point: Tensor, size: float) -> Tensor:
    """Whether points [..., 3] lie in a solid; written without the ray formulas."""
    flat = point[..., :2].square().sum(-1).sqrt()
    if shape == SPHERE:
        return point.square().sum(-1).sqrt() < size
    if shape == CUBE:
        return point.abs().amax(-1) < size
    return (flat < size) & (point[..., 2].abs() < size)


@pytest.mark.parametrize(
    ("shape", "origin", "direction", "distance", "normal"),
    [
        (SPHERE, (-3, 0, 0), (1, 0, 0), 2.5, (-1, 0, 0)),
        (SPHERE, (0, 0.3, 4), (0, 0, -2), 1.8, (0, 0.6, 0.8)),  # 0.4 up on a sphere of radius 0.5
        (CUBE, (-3, 0.2, 0.1), (2, 0, 0), 1.25, (-1, 0, 0)),
        (CUBE, (0.1, -0.2, 5), (0, 0, -1), 4.5, (0, 0, 1)),
        (CYLINDER, (0.3, -2, 0), (0, 1, 0), 1.6, (0.6, -0.8, 0)),
        (CYLINDER, (0.1, 0.1, 2), (0, 0, -1), 1.5, (0, 0, 1)),
    ],
)
def test_hits_by_hand(
    shape: int,
    origin: tuple[float, float, float],
    direction: tuple[float, float, float],
    distance: float,
    normal: tuple[float, float, float],
) -> None:
    size = torch.tensor([0.5], dtype=torch.float64)
    hit, depth, around = intersect_solid(shape, vector(origin), vector(direction), size)
    assert hit.tolist() == [True]
    assert depth.item() == pytest.approx(distance)
    np.testing.assert_allclose([part.item() for part in around], normal, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_misses_and_solids_behind(shape: int) -> None:
    size = torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64)
    origin = vector((-3, 0.6, 0), (-3, 0, 0), (3, 0, 0))
    direction = vector((1, 0, 0), (-1, 0, 0), (1, 0, 0))
    hit, _, _ = intersect_solid(shape, origin, direction, size)
    assert hit.tolist() == [False, False, False]


@pytest.mark.parametrize("shape", SHAPES)
def test_hits_agree_with_marching(shape: int) -> None:
    generator = torch.Generator().manual_seed(3)
    origin = torch.randn(400, 3, generator=generator, dtype=torch.float64)
    origin = origin / origin.norm(dim=-1, keepdim=True) * 2.5
    aim = torch.rand(400, 3, generator=generator, dtype=torch.float64) * 2 - 1
    direction = torch.nn.functional.normalize(aim * 0.8 - origin, dim=-1)
    size = torch.full((400,), 0.7, dtype=torch.float64)
    hit, distance, normal = intersect_solid(shape, origin.unbind(-1), direction.unbind(-1), size)
    step = torch.arange(0, 5, 1e-3, dtype=torch.float64)
    points = origin[:, None] + step[:, None] * direction[:, None]
    within = inside(shape, points, 0.7)
    marched = within.any(1)
    agree = marched == hit
    assert agree.float().mean() > 0.99  # rays that graze an edge for less than a step may differ
    both = hit & marched
    first = step[within[both].to(torch.int8).argmax(1)]
    assert (first - distance[both]).abs().max() < 1.1e-3
    facing = sum((n * d) for n, d in zip(normal, direction.unbind(-1), strict=True))
    assert (facing[both] < 0).all()
    length = sum(n * n for n in normal)
    torch.testing.assert_close(length[both], torch.ones(int(both.sum()), dtype=torch.float64))


@pytest.mark.parametrize("shape", SHAPES)
def test_occlusion_agrees_with_a_sampled_light(shape: int) -> None:
    """A round light of radius 0.25, 500 points on it, seen from points on the floor."""
    generator = torch.Generator().manual_seed(shape)
    floor = torch.rand(1500, 3, generator=generator) * 8 - 4
    floor[:, 2] = -0.75
    floor = floor[floor[:, :2].abs().amax(1) > 0.8]
    center = torch.tensor([5.5, -2.5, 3.5])
    away = center - floor
    distance = away.norm(dim=-1)
    toward = normalize(away.unbind(-1))
    size = torch.full_like(distance, 0.75)
    hidden = compute_occlusion(shape, floor.unbind(-1), toward, size, 0.25 / distance)

    angle = torch.rand(500, generator=generator) * 2 * math.pi
    reach = torch.rand(500, generator=generator).sqrt() * 0.25
    forward = torch.stack(toward, -1)
    side = torch.linalg.cross(forward, torch.tensor([0.0, 0, 1]).expand_as(forward))
    side = torch.nn.functional.normalize(side, dim=-1)
    up = torch.linalg.cross(side, forward)
    spots = center + side[:, None] * (reach * angle.cos())[:, None]
    spots = spots + up[:, None] * (reach * angle.sin())[:, None]
    rays = spots - floor[:, None]
    start = floor[:, None].expand_as(rays)
    hit, along, _ = intersect_solid(
        shape, start.unbind(-1), rays.unbind(-1), size[:, None].expand(-1, 500)
    )
    sampled = (hit & (along < 1)).float().mean(1)
    error = (hidden - sampled).abs()
    assert ((sampled > 0.05) & (sampled < 0.95)).sum() > 15  # the half shadow is really there
    assert error.mean() < 2e-3
    assert error.max() < 0.3
    assert (hidden - sampled).mean().abs() < 1e-3


def test_turning_there_and_back() -> None:
    point = vector((1, 2, 3))
    cosine, sine = torch.tensor([0.6]), torch.tensor([0.8])
    there = rotate(point, cosine, sine)
    np.testing.assert_allclose([part.item() for part in there], (-1, 2, 3), atol=1e-6)
    back = rotate(there, cosine, -sine)
    np.testing.assert_allclose([part.item() for part in back], (1, 2, 3), atol=1e-6)


def test_patterns_fill_their_range_and_vary_with_the_seed() -> None:
    generator = torch.Generator().manual_seed(0)
    point = (torch.rand(3, 4000, generator=generator) * 20 - 10).unbind(0)
    seen = []
    for number in range(40):
        seed = torch.full((4000,), number * 7919)
        values = textures.compute_pattern(seed, point)
        assert values.min() >= 0
        assert values.max() <= 1
        assert values.std() > 0.05
        seen.append(values)
    assert len({tuple(values[:50].tolist()) for values in seen}) > 20
    hashed = textures.hash_numbers(torch.arange(100_000), 1)
    counts = torch.histc(hashed, 10, 0, 1)
    assert (counts / 10_000 - 1).abs().max() < 0.05
