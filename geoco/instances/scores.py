"""How good found masks are, against true ones."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

from geoco.instances.find import grow_masks

LEAST_PIXELS = 10  # of a true object that counts, as everywhere in the evaluation
MATCHED = 0.5  # of overlap after the allowance


@dataclass(frozen=True)
class Scores:
    """True objects of ten visible pixels or more, frame by frame, and instances that are none.

    `iou` is each object's overlap with its instance, matched one to one per frame for the largest
    sum, and 0 without one. `allowed` is the same with the boundary allowance: pixels of either mask
    within one four-connected pixel of the other count as common,

        |(true & found+) | (found & true+)| / |true | found|,  m+ the mask m grown by one pixel.

    An object is missed if `allowed` is below 0.5. An instance is false if it is matched to no
    object with 0.5 or more, unless half of it lies on true objects of fewer than ten pixels, grown.
    """

    iou: Float[np.ndarray, " object"]
    allowed: Float[np.ndarray, " object"]
    same_number: int  # objects that bear the number they bear most often in their video
    false: int
    frames: int

    @property
    def missed(self) -> float:
        return float((self.allowed < MATCHED).mean())

    @property
    def false_per_frame(self) -> float:
        return self.false / self.frames

    @classmethod
    def cat(cls, scores: Iterable["Scores"]) -> "Scores":
        """The scores of several videos as one."""
        several = list(scores)
        return cls(
            np.concatenate([one.iou for one in several]),
            np.concatenate([one.allowed for one in several]),
            sum(one.same_number for one in several),
            sum(one.false for one in several),
            sum(one.frames for one in several),
        )


def score_masks(
    true: UInt8[np.ndarray, "time height width"], found: UInt8[np.ndarray, "time height width"]
) -> Scores:
    """Compare the masks of one video."""
    iou: list[float] = []
    allowed: list[float] = []
    numbers: dict[int, Counter[int]] = {}
    false = 0
    for truth, instances in zip(true, found, strict=True):
        ids, found_ids = _list_ids(truth), _list_ids(instances)
        counted = [i for i in ids if (truth == i).sum() >= LEAST_PIXELS]
        tiny = np.asarray(np.isin(truth, [i for i in ids if i not in counted]), np.uint8)
        near_tiny = np.any(grow_masks(tiny[None]), axis=(0, 1))
        plain, lenient = _compute_overlaps(truth, instances, counted, found_ids)
        iou += _match_one_to_one(plain).max(1, initial=0).tolist()
        best = _match_one_to_one(lenient)
        allowed += best.max(1, initial=0).tolist()
        for row, column in np.argwhere(best >= MATCHED):
            numbers.setdefault(counted[row], Counter())[found_ids[column]] += 1
        for column in np.nonzero(best.max(0, initial=0) < MATCHED)[0]:
            instance = instances == found_ids[column]
            false += int(2 * (instance & near_tiny).sum() < instance.sum())
    same = sum(max(counts.values()) for counts in numbers.values())
    return Scores(np.array(iou, float), np.array(allowed, float), same, false, len(true))


def _list_ids(labels: UInt8[np.ndarray, "height width"]) -> list[int]:
    return [int(i) for i in np.unique(labels) if i]


def _compute_overlaps(
    truth: UInt8[np.ndarray, "height width"],
    instances: UInt8[np.ndarray, "height width"],
    ids: list[int],
    found_ids: list[int],
) -> tuple[Float[np.ndarray, "object instance"], Float[np.ndarray, "object instance"]]:
    """Overlap of each object with each instance, without and with the allowance."""
    true, true_grown = _flatten_masks(truth, ids)
    found, found_grown = _flatten_masks(instances, found_ids)

    def common(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return one.astype(float) @ other.astype(float).T

    both = common(true, found)
    union = true.sum(1)[:, None] + found.sum(1) - both
    near = common(true, found_grown) + common(true_grown, found) - both
    return both / union, near / union


def _flatten_masks(
    labels: UInt8[np.ndarray, "height width"], ids: list[int]
) -> tuple[Bool[np.ndarray, "object pixel"], Bool[np.ndarray, "object pixel"]]:
    plain = labels.reshape(-1) == np.array(ids, int)[:, None]
    grown = grow_masks(labels[None])[0, np.array(ids, int) - 1]
    return plain, grown.reshape(len(ids), labels.size)


def _match_one_to_one(
    overlap: Float[np.ndarray, "object instance"],
) -> Float[np.ndarray, "object instance"]:
    """The overlaps of the pairs of the best matching, 0 elsewhere."""
    kept = np.zeros_like(overlap)
    pairs = linear_sum_assignment(-overlap)
    kept[pairs] = overlap[pairs]
    return kept
