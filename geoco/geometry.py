"""Grids and moments: the coordinates that everything is measured in (paper, Secs. 3.1 and 3.6).

Positions are (x, y) in [-1, 1] with x to the right and y down. Grids are endpoint-aligned: first
and last sample lie on -1 and 1, so that on n samples one pixel is 2 / (n - 1).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

EPSILON = 1e-8


def count_samples(size: int, extent: int) -> int:
    """How many samples of the same spacing an axis of `size` has on [-extent, extent]."""
    return extent * (size - 1) + 1


def build_grid(
    height: int,
    width: int,
    extent: int = 1,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Float[Tensor, "rows columns 2"]:
    """Coordinates (x, y) of the samples of a canvas that is `extent` times the usual one."""

    def axis(size: int) -> Tensor:
        # Rounded once: the same sample has the same coordinate on canvases of every extent.
        count = count_samples(size, extent)
        place = torch.linspace(-extent, extent, count, dtype=torch.float64, device=device)
        return place.to(dtype)

    rows, columns = torch.meshgrid(axis(height), axis(width), indexing="ij")
    return torch.stack((columns, rows), -1)


def compute_uniform_scale(size: int) -> float:
    """The RMS scale of uniform attention on a square grid: where the reference scale starts."""
    return math.sqrt(2 * (size + 1) / (3 * (size - 1)))


def to_slot_frame(
    points: Float[Tensor, "*points 2"],
    position: Float[Tensor, "*slots 2"],
    scale: Float[Tensor, "*slots"],
    factor: float = 5.0,
) -> Float[Tensor, "..."]:
    """Coordinates of all points in each slot's own frame, (u - p) / (factor s + eps): Eq. 3."""
    dims = (1,) * (points.dim() - 1)
    center = position.reshape(*position.shape[:-1], *dims, 2)
    size = scale.reshape(*scale.shape, *dims, 1)
    return (points - center) / (factor * size + EPSILON)


@dataclass(frozen=True)
class Moments:
    """Centroid, RMS radius, coverage and compactness of supports: Eq. (support-moments)."""

    center: Float[Tensor, "*supports 2"]
    radius: Float[Tensor, "*supports"]
    coverage: Float[Tensor, "*supports"]
    compactness: Float[Tensor, "*supports"]


def compute_moments(support: Float[Tensor, "*supports height width"]) -> Moments:
    """Differentiable moments of non-negative supports on the usual canvas, in float32 or more.

    Under uniform scaling by k the radius grows by k, the coverage by k^2, the compactness stays.
    """
    with torch.autocast(support.device.type, enabled=False):
        support = support if support.dtype == torch.float64 else support.float()
        height, width = support.shape[-2:]
        points = build_grid(height, width, dtype=support.dtype, device=support.device)
        mass = support.sum((-2, -1))
        share = support / (mass + EPSILON)[..., None, None]
        x = (share * points[..., 0]).sum((-2, -1))
        y = (share * points[..., 1]).sum((-2, -1))
        away_x = points[..., 0] - x[..., None, None]
        away_y = points[..., 1] - y[..., None, None]
        square = (share * (away_x.square() + away_y.square())).sum((-2, -1)) + EPSILON
        coverage = mass / (height * width)
        return Moments(
            center=torch.stack((x, y), -1),
            radius=square.sqrt(),
            coverage=coverage,
            compactness=coverage / (square + EPSILON),
        )
