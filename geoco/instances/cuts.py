"""Where a coloured region falls into two objects: the log-odds of every straight cut through it.

Solids look convex, so floor inside a region's convex hull speaks for two of them, and a cut that
leaves no floor inside either half's hull speaks for itself. So does a short cut, one along a change
of colour, and a region too large for an object that stands where it stands: how size grows towards
the camera is learnt from the objects of the video that stand alone.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Real
from scipy import ndimage  # type: ignore[import-untyped]

from geoco.instances.regions import compute_unit

DIRECTIONS = 16  # of a hull's sides
ANGLES = 16  # of cuts
LEAST_PIECE = 12  # pixels at 64 x 64
ALONE = 20  # least pixels at 64 x 64 of an object that sizes are learnt from
FLAT = 0.01  # of floor in the hull, below which a region is convex
PLAIN_EXCESS, PLAIN_FLOOR = 0.0, 0.004  # below both, a region is one object
# Logistic regression on the cuts of regions from training videos. In order: floor that the cut
# frees from the hulls, floor it leaves, its length, the change of colour; how much too large the
# whole is, how far the front piece is off its expected size, how much too large the one behind is;
# the smaller piece's share. Without an object that stands alone, sizes are unknown. Both biases lie
# 1.5 above the fitted ones: a missing cut loses an object, a false one often only adds an instance.
WEIGHTS = np.array([13.48, -20.62, -3.56, 1.25, 3.04, -1.45, 0.23, -3.54])
BIAS = 1.9
WEIGHTS_NO_SIZE = np.array([20.36, -21.99, -2.64, 0.79, 0.0, 0.0, 0.0, -1.56])
BIAS_NO_SIZE = 0.2

_hull_angles = np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS
_SIDES = np.stack([np.cos(_hull_angles), np.sin(_hull_angles)])
_cut_angles = np.arange(ANGLES) * np.pi / ANGLES
_NORMALS = np.stack([np.cos(_cut_angles), np.sin(_cut_angles)], axis=1)

Points = Int[np.ndarray, "_point 2"]  # row, column


@dataclass(frozen=True)
class Sizes:
    """Side of an object (root of its area, in frame heights) by the row its bottom is in."""

    intercept: float
    slope: float

    def compute_excesses(
        self, area: Real[np.ndarray, " n"], bottom: Real[np.ndarray, " n"], height: int
    ) -> Float[np.ndarray, " n"]:
        """Logarithm of how much larger an area is than expected, within -1 and 1."""
        side = np.maximum(self.intercept + self.slope * (bottom + 1) / height, 0.05) * height
        return np.log(np.maximum(area, 1) / side**2).clip(-1, 1)

    def compute_excess(self, area: int, bottom: int, height: int) -> float:
        """The same for one area."""
        return float(self.compute_excesses(np.array([area]), np.array([bottom]), height)[0])


@dataclass(frozen=True)
class Cuts:
    """Candidate cuts of a region: the pixels on the low side of each, and its log-odds."""

    low: Bool[np.ndarray, "cut point"]
    odds: Float[np.ndarray, " cut"]


def learn_sizes(labels: Int[np.ndarray, "time height width"]) -> Sizes | None:
    """A robust line through the convex regions that touch nothing; None where there is none.

    The horizon pulls weakly at it, so that one object suffices to expect others in its row.
    """
    _, height, _ = labels.shape
    lone = [sample for frame in labels for sample in _measure_lone_regions(frame)]
    if not lone:
        return None
    bottom, side = np.array(lone).T / height
    basis = np.stack([np.ones_like(bottom), bottom], axis=1)
    horizon = np.array([1.0, -0.227])  # where side is zero, in frame heights: above the frame
    weight = np.ones_like(side)
    line = np.zeros(2)
    for _ in range(4):
        normal = (basis * weight[:, None]).T @ basis + 0.5 * np.outer(horizon, horizon)
        line = np.linalg.solve(normal, (basis * weight[:, None]).T @ side)
        weight = 1 / np.maximum(1, np.abs(side - basis @ line) / 0.015)
    return Sizes(float(line[0]), float(line[1]))


def _measure_lone_regions(frame: Int[np.ndarray, "height width"]) -> list[tuple[float, float]]:
    """Bottom row and side of the regions that are whole, convex and touch no other."""
    height, width = frame.shape
    lone = []
    for label, box in enumerate(ndimage.find_objects(frame), start=1):
        if box is None or not _is_inside(box, height, width):
            continue
        rows, columns = box
        around = frame[rows.start - 1 : rows.stop + 1, columns.start - 1 : columns.stop + 1]
        inside = around == label
        if (ndimage.binary_dilation(inside) & (around > 0) & ~inside).any():
            continue
        points = np.argwhere(inside)
        if len(points) >= ALONE * compute_unit(height, width) ** 2:
            _, depth = find_floor_in_hull(points, around == 0)
            if depth.sum() <= FLAT * len(points) * compute_unit(height, width):
                lone.append((float(rows.stop), float(np.sqrt(len(points)))))
    return lone


def _is_inside(box: tuple[slice, ...], height: int, width: int) -> bool:
    rows, columns = box
    return bool(rows.start and columns.start and rows.stop < height and columns.stop < width)


def find_floor_in_hull(
    points: Points, floor: Bool[np.ndarray, "height width"]
) -> tuple[Points, Float[np.ndarray, " floor"]]:
    """Floor pixels in the convex hull of some points, and how deep inside it they lie."""
    support = (points @ _SIDES).max(0)
    (top, left), (bottom, right) = points.min(0), points.max(0)
    inside = np.argwhere(floor[top : bottom + 1, left : right + 1]) + np.array([top, left])
    depth = (support - inside @ _SIDES).min(1)
    return inside[depth > 0.25], depth[depth > 0.25]


def is_plainly_one(
    points: Points, floor: Bool[np.ndarray, "height width"], sizes: Sizes | None
) -> bool:
    """Whether a region is convex and no larger than an object, so that no cut need be tried."""
    count, scale = len(points), compute_unit(*floor.shape)
    if count < 2 * LEAST_PIECE * scale**2:
        return True
    if sizes is None:
        return False
    if sizes.compute_excess(count, int(points[:, 0].max()), floor.shape[0]) > PLAIN_EXCESS:
        return False
    return bool(find_floor_in_hull(points, floor)[1].sum() <= PLAIN_FLOOR * count * scale)


def find_cuts(
    points: Points,
    floor: Bool[np.ndarray, "height width"],
    frame: Float[np.ndarray, "height width 3"],
    sizes: Sizes | None,
) -> Cuts | None:
    """All straight cuts that leave two pieces of some size; None where there are none."""
    scale = compute_unit(*floor.shape)
    least, count = LEAST_PIECE * scale**2, len(points)
    inside, depth = find_floor_in_hull(points, floor)
    colors = frame[points[:, 0], points[:, 1]].astype(np.float64)
    projected, floor_projected = points @ _SIDES, inside @ _SIDES
    features, lows = [], []
    for normal in _NORMALS:
        along = points @ normal
        order = np.argsort(along, kind="stable")
        ranked = along[order]
        places = np.arange(ranked[0] + scale, ranked[-1], scale)
        low = np.searchsorted(ranked, places)
        allowed = (low >= least) & (count - low >= least)
        low, places = low[allowed], places[allowed]
        if len(low) == 0:
            continue
        left = _sum_floor_left(projected[order], low, floor_projected)
        length = np.searchsorted(ranked, places + 0.5) - np.searchsorted(ranked, places - 0.5)
        smaller = np.minimum(low, count - low)
        features.append(
            np.stack(
                [
                    np.sqrt((depth.sum() - left).clip(0) / (count * scale)),
                    np.sqrt(left / (count * scale)),
                    length / np.sqrt(smaller),
                    _measure_color_change(colors[order], ranked, places, low, 2 * scale).clip(0, 30)
                    / 10,
                    *_compute_excesses(points[order, 0], low, sizes, floor.shape[0]),
                    smaller / count,
                ],
                axis=1,
            )
        )
        lows.append(along < places[:, None])
    if not features:
        return None
    weights, bias = (WEIGHTS, BIAS) if sizes else (WEIGHTS_NO_SIZE, BIAS_NO_SIZE)
    return Cuts(np.concatenate(lows), np.concatenate(features) @ weights + bias)


def _sum_floor_left(
    projected: Float[np.ndarray, "point side"],
    low: Int[np.ndarray, " cut"],
    floor: Float[np.ndarray, "floor side"],
) -> Float[np.ndarray, " cut"]:
    """Depth of floor in the hulls of both pieces, for the first `low` points and the others."""
    before = np.maximum.accumulate(projected, axis=0)[low - 1]
    after = np.maximum.accumulate(projected[::-1], axis=0)[::-1][low]
    left = np.zeros(len(low))
    for support in (before, after):
        left += (support[:, None] - floor).min(-1).clip(0).sum(1)
    return left


def _measure_color_change(
    colors: Float[np.ndarray, "point 3"],
    ranked: Float[np.ndarray, " point"],
    places: Float[np.ndarray, " cut"],
    low: Int[np.ndarray, " cut"],
    reach: float,
) -> Float[np.ndarray, " cut"]:
    """Difference of the mean colours of the strips along both sides of a cut."""
    total = np.concatenate([np.zeros((1, 3)), colors.cumsum(0)])
    first, last = np.searchsorted(ranked, places - reach), np.searchsorted(ranked, places + reach)
    before = (total[low] - total[first]) / np.maximum(low - first, 1)[:, None]
    after = (total[last] - total[low]) / np.maximum(last - low, 1)[:, None]
    return np.abs(before - after).mean(1)


def _compute_excesses(
    rows: Int[np.ndarray, " point"],
    low: Int[np.ndarray, " cut"],
    sizes: Sizes | None,
    height: int,
) -> tuple[Float[np.ndarray, " cut"], ...]:
    """How much too large the whole is; how far off the piece in front; how much the one behind."""
    if sizes is None:
        return (np.zeros(len(low)),) * 3
    count = len(rows)
    whole = np.full(len(low), sizes.compute_excess(count, int(rows.max()), height))
    bottoms = np.maximum.accumulate(rows)[low - 1], np.maximum.accumulate(rows[::-1])[::-1][low]
    pieces = [
        sizes.compute_excesses(area, bottom, height)
        for area, bottom in zip((low, count - low), bottoms, strict=True)
    ]
    first_in_front = bottoms[0] > bottoms[1]
    front = np.where(first_in_front, pieces[0], pieces[1])
    behind = np.where(first_in_front, pieces[1], pieces[0])
    return whole, np.abs(front), behind
