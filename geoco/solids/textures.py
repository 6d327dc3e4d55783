"""Procedural patterns for the textured variant: on objects, and on a floor of varied colour.

A pattern is a number between 0 and 1 at each point, which mixes an object's colour with a second
one. Integer hashes and polynomials only, so that patterns too are the same on every device.
"""

import torch
from jaxtyping import Int64
from torch import Tensor

from geoco.solids.geometry import Vector, smoothstep

OBJECT_DETAIL = 2.5  # pattern cells per radius
FLOOR_DETAIL = 0.8  # pattern cells per unit
FLOOR_FADE = 14.0  # distance from the camera at which the floor's pattern is half gone


def hash_numbers(seed: Tensor, *numbers: Tensor | int) -> Tensor:
    """Pseudo-random float32 in [0, 1) for whole numbers."""
    state = seed * 0x9E3779B1
    for number in numbers:
        state = (state ^ number) * 0x85EBCA6B
        state = (state ^ (state >> 13)) & 0x7FFFFFFF
    state = (state * 0x5BD1E995) & 0x7FFFFFFF
    return ((state ^ (state >> 15)) & 0xFFFFFF).float() * (1.0 / 0x1000000)


def compute_pattern(seed: Int64[Tensor, "*at"], point: Vector) -> Tensor:
    """Checks, stripes, dots or clouds of seeded size and place; about one cell per unit."""
    detail = 0.7 + 0.8 * hash_numbers(seed, 3)
    point = (
        point[0] * detail + hash_numbers(seed, 4),
        point[1] * detail + hash_numbers(seed, 5),
        point[2] * detail + hash_numbers(seed, 6),
    )
    cell = [torch.floor(component).long() for component in point]
    inside = [component - torch.floor(component) for component in point]
    checks = ((cell[0] + cell[1] + cell[2]) & 1).float()
    wave = (inside[0] - 0.5).abs() * 4.0 - 0.5
    from_center = [component - 0.5 for component in inside]
    distance = (
        from_center[0] * from_center[0]
        + from_center[1] * from_center[1]
        + from_center[2] * from_center[2]
    )
    options = (
        checks,
        smoothstep(wave),
        smoothstep((0.14 - distance) * 12.0),
        _compute_clouds(seed, cell, inside),
    )
    kind = (hash_numbers(seed, 1) * 4.0).long()
    result = options[0]
    for number in range(1, 4):
        result = torch.where(kind == number, options[number], result)
    return result


def pick_second_color(seed: Int64[Tensor, "*at"], channel: int) -> Tensor:
    """The colour that a pattern mixes in."""
    return 0.1 + 0.8 * hash_numbers(seed, 2, channel)


def _compute_clouds(seed: Tensor, cell: list[Tensor], inside: list[Tensor]) -> Tensor:
    """Smooth noise: random values at the corners of each cell, blended."""
    x, y, z = (smoothstep(component) for component in inside)
    total = torch.zeros_like(x)
    for corner in range(8):
        i, j, k = corner & 1, corner >> 1 & 1, corner >> 2
        weight = (x if i else 1.0 - x) * (y if j else 1.0 - y) * (z if k else 1.0 - z)
        total = total + weight * hash_numbers(seed, cell[0] + i, cell[1] + j, cell[2] + k)
    return smoothstep(total * 2.0 - 0.5)
