"""Rays against upright cubes, cylinders and spheres, and how much of a light they hide.

Vectors are triples of tensors, (x, y, z), so that every formula is elementwise. Only additions,
multiplications, divisions and square roots are used, which IEEE arithmetic defines to the last
bit: a picture does not depend on batch size, number of threads, or device.
"""

import torch
from torch import Tensor

from geoco.solids.physics import CUBE, CYLINDER, SPHERE

Vector = tuple[Tensor, Tensor, Tensor]
_TINY = 1e-9


def dot(a: Vector, b: Vector) -> Tensor:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def subtract(a: Vector, b: Vector) -> Vector:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def advance(origin: Vector, distance: Tensor, direction: Vector) -> Vector:
    return (
        origin[0] + distance * direction[0],
        origin[1] + distance * direction[1],
        origin[2] + distance * direction[2],
    )


def scale(a: Vector, factor: Tensor) -> Vector:
    return a[0] * factor, a[1] * factor, a[2] * factor


def normalize(a: Vector) -> Vector:
    length = torch.sqrt(dot(a, a))
    return a[0] / length, a[1] / length, a[2] / length


def select(a: tuple[Tensor, ...], index: Tensor) -> Vector:
    """The entries of a list of vectors."""
    return a[0][index], a[1][index], a[2][index]


def rotate(a: Vector, cosine: Tensor, sine: Tensor) -> Vector:
    """Rotate about the vertical; with -sine, back."""
    return a[0] * cosine - a[1] * sine, a[0] * sine + a[1] * cosine, a[2]


def smoothstep(x: Tensor) -> Tensor:
    x = x.clamp(0.0, 1.0)
    return x * x * (3.0 - 2.0 * x)


def intersect_solid(
    shape: int, origin: Vector, direction: Vector, size: Tensor
) -> tuple[Tensor, Tensor, Vector]:
    """Where a ray enters a solid about the coordinate origin: hit or not, distance, normal.

    Origin and direction are in the solid's own frame; the direction need not have unit length.
    """
    if shape == SPHERE:
        a, b = dot(direction, direction), dot(origin, direction)
        inside = b * b - a * (dot(origin, origin) - size * size)
        distance = (-b - torch.sqrt(inside.clamp(min=0.0))) / a
        point = advance(origin, distance, direction)
        return (inside > 0) & (distance > 0), distance, scale(point, 1.0 / size)

    if shape == CUBE:
        x_in, x_out = _intersect_slab(origin[0], direction[0], size)
        y_in, y_out = _intersect_slab(origin[1], direction[1], size)
        z_in, z_out = _intersect_slab(origin[2], direction[2], size)
        distance = torch.maximum(torch.maximum(x_in, y_in), z_in)
        leave = torch.minimum(torch.minimum(x_out, y_out), z_out)
        on_x, on_y = distance == x_in, distance == y_in
        on_y = on_y & ~on_x
        on_z = ~(on_x | on_y)
        normal = (
            torch.where(on_x, -direction[0].sign(), 0.0),
            torch.where(on_y, -direction[1].sign(), 0.0),
            torch.where(on_z, -direction[2].sign(), 0.0),
        )
        return (distance < leave) & (distance > 0), distance, normal

    side_in, side_out, inside, _ = _intersect_tube(origin, direction, size)
    z_in, z_out = _intersect_slab(origin[2], direction[2], size)
    distance = torch.maximum(side_in, z_in)
    leave = torch.minimum(side_out, z_out)
    on_side = side_in > z_in
    point = advance(origin, distance, direction)
    normal = (
        torch.where(on_side, point[0] / size, 0.0),
        torch.where(on_side, point[1] / size, 0.0),
        torch.where(on_side, 0.0, -direction[2].sign()),
    )
    return (inside > 0) & (distance < leave) & (distance > 0), distance, normal


def compute_occlusion(
    shape: int, origin: Vector, direction: Vector, size: Tensor, spread: Tensor | float
) -> Tensor:
    """Fraction of a round light that a solid hides from a point, between 0 and 1.

    `direction` has unit length and points from `origin` to the light's centre, both in the solid's
    frame; `spread` is the light's radius divided by its distance. What decides is how far inside
    the solid's outline, seen from the point, the ray to the centre passes, against the width of the
    cone of light there.
    """
    reach = -dot(origin, direction)
    if shape == SPHERE:
        miss = dot(origin, origin) - reach * reach
        margin = size - torch.sqrt(miss.clamp(min=0.0))
    elif shape == CUBE:
        spans = [_intersect_slab(origin[k], direction[k], size) for k in range(3)]
        steep = [direction[k] * direction[k] + _TINY for k in range(3)]
        enter, enter_steep = _select_latest(spans[0][0], steep[0], spans[1][0], steep[1])
        enter, enter_steep = _select_latest(enter, enter_steep, spans[2][0], steep[2])
        leave, leave_steep = _select_latest(-spans[0][1], steep[0], -spans[1][1], steep[1])
        leave, leave_steep = _select_latest(leave, leave_steep, -spans[2][1], steep[2])
        margin = _measure_edge_distance(-leave - enter, enter_steep, leave_steep)
    elif shape == CYLINDER:
        side_in, side_out, inside, slope = _intersect_tube(origin, direction, size)
        z_in, z_out = _intersect_slab(origin[2], direction[2], size)
        side_steep = inside.clamp(min=0.0) / (size * size) + _TINY
        z_steep = direction[2] * direction[2] + _TINY
        enter, enter_steep = _select_latest(side_in, side_steep, z_in, z_steep)
        leave, leave_steep = _select_latest(-side_out, side_steep, -z_out, z_steep)
        # Outside, next to the side's outline, the side is no help: the top edge ends there.
        least = torch.where(-leave > enter, _TINY, z_steep)
        edge = _measure_edge_distance(
            -leave - enter, torch.maximum(enter_steep, least), torch.maximum(leave_steep, least)
        )
        # Past the side there is no path: what counts is the miss in the floor plan, or above.
        cross = origin[0] * direction[1] - origin[1] * direction[0]
        aside = size - cross.abs() / torch.sqrt(slope)
        above = size - (origin[2] + 0.5 * (side_in + side_out) * direction[2]).abs()
        margin = torch.minimum(aside, torch.where(inside > 0, edge, above))
    else:
        raise AssertionError(f"no such shape: {shape}")
    width = spread * reach.clamp(min=0.0) + 0.01
    return smoothstep(0.5 + 0.5 * margin / width) * smoothstep(reach / (0.2 * size))


def _measure_edge_distance(chord: Tensor, enter_steep: Tensor, leave_steep: Tensor) -> Tensor:
    """How far inside a solid's outline a ray passes, from its path between two faces.

    A step sideways changes both ends of the path by their slopes, which gives the exact distance to
    the edge that the faces share; outside, where the path has negative length, it is negative.
    """
    return chord / torch.sqrt(1.0 / enter_steep + 1.0 / leave_steep)


def _intersect_slab(origin: Tensor, direction: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Distances at which a ray enters and leaves |coordinate| <= size."""
    inverse = 1.0 / torch.where(direction.abs() < _TINY, _TINY, direction)
    middle, half = -origin * inverse, size * inverse.abs()
    return middle - half, middle + half


def _intersect_tube(
    origin: Vector, direction: Vector, size: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Distances into and out of an upright tube, the discriminant, and the squared slope."""
    slope = direction[0] * direction[0] + direction[1] * direction[1] + _TINY
    b = origin[0] * direction[0] + origin[1] * direction[1]
    inside = b * b - slope * (origin[0] * origin[0] + origin[1] * origin[1] - size * size)
    root = torch.sqrt(inside.clamp(min=0.0))
    return (-b - root) / slope, (-b + root) / slope, inside, slope


def _select_latest(a: Tensor, a_tag: Tensor, b: Tensor, b_tag: Tensor) -> tuple[Tensor, Tensor]:
    later = b > a
    return torch.where(later, b, a), torch.where(later, b_tag, a_tag)
