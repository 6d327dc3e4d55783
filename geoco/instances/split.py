"""Regions become objects: fragments are joined and touching objects split, over time.

A frame gives its neighbours evidence, as log-odds, for which pixels are one object and which are
several. Objects in different regions of a frame are strong evidence for several, which fades
slowly; one object where there may be two is weak evidence: two objects in line look like that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from geoco.instances.cuts import Cuts, Points, Sizes, find_cuts, find_floor_in_hull, is_plainly_one
from geoco.instances.regions import compute_unit

APART, WHOLE = 6.0, -2.5  # the most evidence of a neighbouring frame for two objects, and for one
FADE = 0.97  # of the evidence for two, per frame
OVERLAP = 0.5  # of an object's pixels that lie in a region a frame later if it is that object
GAP_FLOOR = 0.02  # floor in the hull of two fragments, by their area
FARTHEST = 3.0  # distance of fragments by the root of their area
GAP_EXCESS = 0.35  # logarithm of how much larger than an object they may seem, hidden part included


@dataclass(frozen=True)
class FrameObject:
    """Pixels that are one object in a frame, and the evidence they are for its neighbours."""

    points: Points
    hue: int
    region: int
    whole: float  # log-odds, negative: these pixels are one object
    apart: float  # log-odds, positive: they are another object than the rest of their region


@dataclass(frozen=True)
class SplitFrame:
    """A frame's objects; `labels` counts them from 1."""

    objects: tuple[FrameObject, ...]
    labels: Int[np.ndarray, "height width"]


Overlap = tuple[
    FrameObject, Bool[np.ndarray, " point"]
]  # an object, and which points of a region it holds


class FrameRegions:
    """One frame's regions, and the cuts through them that its own pixels suggest."""

    def __init__(
        self,
        frame: Float32[np.ndarray, "height width 3"],
        labels: Int[np.ndarray, "height width"],
        hues: Int[np.ndarray, " region"],
        sizes: Sizes | None,
    ) -> None:
        self._frame, self._floor, self._sizes = frame, labels == 0, sizes
        self._parts = _join_fragments(labels, hues, sizes)
        self._cuts: dict[bytes, Cuts | None] = {}

    def split(self, neighbours: Sequence[SplitFrame]) -> SplitFrame:
        """Split all regions, given neighbouring frames that are split already."""
        objects: list[FrameObject] = []
        for region, (hue, points, fragments) in enumerate(self._parts):
            part = FrameObject(points, hue, region, WHOLE, APART)
            # Nothing but a gap is between fragments, and a gap would always be cut.
            objects += [part] if fragments > 1 else self._split_part(part, neighbours)
        labels = np.zeros(self._floor.shape, int)
        for number, item in enumerate(objects, start=1):
            labels[tuple(item.points.T)] = number
        return SplitFrame(tuple(objects), labels)

    def _split_part(self, part: FrameObject, neighbours: Sequence[SplitFrame]) -> list[FrameObject]:
        overlaps = [_find_overlaps(part, neighbour) for neighbour in neighbours]
        if all(len(objects) < 2 for objects in overlaps) and is_plainly_one(
            part.points, self._floor, self._sizes
        ):
            return [part]
        cuts = self._get_cuts(part.points)
        if cuts is None:
            return [part]
        evidence = sum(
            (_weigh_neighbour(cuts, objects) for objects in overlaps), np.zeros(len(cuts.odds))
        )
        best = int((cuts.odds + evidence).argmax())
        own, others = float(cuts.odds[best]), float(evidence[best])
        if own + others <= 0:
            whole = np.clip(0.9 * others + 0.1 * own, WHOLE, 0)
            return [replace(part, whole=float(whole))]
        apart = min(max(FADE * others, own), part.apart)
        low = cuts.low[best]
        return [
            piece
            for points in (part.points[low], part.points[~low])
            for piece in self._split_part(replace(part, points=points, apart=apart), neighbours)
        ]

    def _get_cuts(self, points: Points) -> Cuts | None:
        key = points.tobytes()
        if key not in self._cuts:
            self._cuts[key] = find_cuts(points, self._floor, self._frame, self._sizes)
        return self._cuts[key]


def split_frames(frames: Iterable[FrameRegions]) -> list[SplitFrame]:
    """Split frame after frame, each with evidence from the one before it."""
    done: list[SplitFrame] = []
    for frame in frames:
        done.append(frame.split(done[-1:]))
    return done


def _find_overlaps(part: FrameObject, neighbour: SplitFrame) -> list[Overlap]:
    """The neighbouring frame's objects that lie in a part."""
    under = neighbour.labels[tuple(part.points.T)]
    counts = np.bincount(under, minlength=len(neighbour.objects) + 1)
    return [
        (item, under == number)
        for number, item in enumerate(neighbour.objects, start=1)
        if item.hue == part.hue and counts[number] >= OVERLAP * len(item.points)
    ]


def _weigh_neighbour(cuts: Cuts, overlaps: list[Overlap]) -> Float[np.ndarray, " cut"]:
    """The evidence of a neighbouring frame: what it adds to the log-odds of each cut."""
    if not overlaps:
        return np.zeros(len(cuts.odds))
    held = np.stack([where for _, where in overlaps]).astype(np.float64)
    if len(overlaps) == 1:
        covers = held.mean() >= OVERLAP
        return np.full(len(cuts.odds), overlaps[0][0].whole if covers else 0.0)
    low, total = cuts.low @ held.T, held.sum(1)
    torn = np.minimum(low, total - low).sum(1) / total.sum()
    mostly_low = low > total / 2
    between = mostly_low.any(1) & ~mostly_low.all(1)
    regions = {item.region for item, _ in overlaps}
    apart = APART if len(regions) > 1 else min(item.apart for item, _ in overlaps)
    return np.where(between, apart * (1 - 4 * torn), 0.0)


def _join_fragments(
    labels: Int[np.ndarray, "height width"],
    hues: Int[np.ndarray, " region"],
    sizes: Sizes | None,
) -> list[tuple[int, Points, int]]:
    """Hue, points and number of fragments of each object or group of touching ones."""
    points = {label: np.argwhere(labels == label) for label in range(1, len(hues))}
    parts = []
    while points:
        one = min(points)
        mine = points.pop(one)
        fragments = 1
        for other in list(points):
            if hues[other] != hues[one] or _are_far_apart(mine, points[other]):
                continue
            joined = np.concatenate([mine, points[other]])
            if _is_one_object(joined, labels, sizes):
                mine, fragments = joined, fragments + 1
                del points[other]
        parts.append((int(hues[one]), mine, fragments))
    return parts


def _are_far_apart(one: Points, other: Points) -> bool:
    """Whether fragments are too far apart to be worth a closer look."""
    area = len(one) + len(other)
    return bool(((one.mean(0) - other.mean(0)) ** 2).sum() > FARTHEST**2 * area)


def _is_one_object(
    fragments: Points, labels: Int[np.ndarray, "height width"], sizes: Sizes | None
) -> bool:
    """Whether only other objects lie between fragments, and with these they make one object."""
    height, width = labels.shape
    _, floor = find_floor_in_hull(fragments, labels == 0)
    if floor.sum() > GAP_FLOOR * len(fragments) * compute_unit(height, width):
        return False
    covered, _ = find_floor_in_hull(fragments, labels > 0)
    if sizes is None:
        return len(covered) < 2 * len(fragments)
    return sizes.compute_excess(len(covered), int(fragments[:, 0].max()), height) < GAP_EXCESS
