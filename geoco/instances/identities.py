"""Identities: objects are matched from frame to frame by hue, place and size."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

from geoco.errors import GeocoError
from geoco.instances.regions import compute_unit
from geoco.instances.split import FrameObject, SplitFrame

MOST = 255  # numbers that a mask holds
FARTHEST = 1 / 3  # of the frame that an object may have gone since it was last seen
AHEAD = 3  # frames for which a hidden object is expected to go on as it went
AREA_WEIGHT = 4  # pixels of distance at 64 x 64 that an area e times as large counts for
IMPOSSIBLE = 1e6


def number_objects(frames: Sequence[SplitFrame]) -> UInt8[np.ndarray, "time height width"]:
    """Number all objects; one that was hidden takes its number up again where it reappears."""
    masks = np.stack([np.zeros(frame.labels.shape, np.uint8) for frame in frames])
    identities: list[_Identity] = []
    for time, frame in enumerate(frames):
        matched = _match_identities(
            identities, frame, time, compute_unit(*frame.labels.shape), max(frame.labels.shape)
        )
        for place, item in enumerate(frame.objects):
            which = matched.get(place, len(identities))
            if which == len(identities):
                identities.append(_Identity())
            if which >= MOST:
                raise GeocoError(
                    f"more than {MOST} objects in {len(frames)} frames: instances are found where "
                    "a few coloured solids stand on a grey floor"
                )
            identities[which].update(item, time)
            masks[time][tuple(item.points.T)] = which + 1
    return masks


class _Identity:
    """Where an object was last seen, how it moved, its size and its hue."""

    def __init__(self) -> None:
        self.time, self.hue, self.area = -1, -1, 0
        self.center, self.velocity = np.zeros(2), np.zeros(2)

    def update(self, item: FrameObject, time: int) -> None:
        center = item.points.mean(0)
        if self.area:
            self.velocity = (center - self.center) / (time - self.time)
        self.time, self.hue, self.area = time, item.hue, len(item.points)
        self.center = center

    def measure_distance(self, item: FrameObject, time: int) -> float:
        """Pixels from where it is expected, or from where it was if it stopped there."""
        center = item.points.mean(0)
        expected = self.center + self.velocity * min(time - self.time, AHEAD)
        return float(min(np.linalg.norm(center - expected), np.linalg.norm(center - self.center)))


def _match_identities(
    identities: Sequence[_Identity], frame: SplitFrame, time: int, scale: float, side: int
) -> dict[int, int]:
    """Which identity each of a frame's objects goes on with; those that are new are left out."""
    costs = np.full((len(identities), len(frame.objects)), IMPOSSIBLE)
    for row, identity in enumerate(identities):
        for column, item in enumerate(frame.objects):
            distance = identity.measure_distance(item, time)
            if item.hue == identity.hue and distance <= FARTHEST * side:
                growth = abs(np.log(len(item.points) / identity.area))
                costs[row, column] = distance / scale + AREA_WEIGHT * growth
    pairs = zip(*linear_sum_assignment(costs), strict=True)
    return {int(column): int(row) for row, column in pairs if costs[row, column] < IMPOSSIBLE}
