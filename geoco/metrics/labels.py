"""How well labels of pixels agree: FG-ARI, ARI, mIoU and mBO of a frame or of a whole video.

All four follow from how many pixels two labels share, so that a video's pixels are counted once if
all are wanted. Time is one more dimension of pixels. Undefined values are nan.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64, Integer
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
from torch import Tensor

BACKGROUND = 0  # the reference label that is no instance


@dataclass(frozen=True)
class Agreement:
    """All scores of one frame or video."""

    foreground_ari: float
    ari: float
    mean_iou: float
    mean_best_overlap: float


def measure_agreement(
    reference: Integer[Tensor, "*pixels"], predicted: Integer[Tensor, "*pixels"]
) -> Agreement:
    """The four functions below at once."""
    counts = _count_pixels(reference, predicted)
    iou = _compute_iou(counts)
    return Agreement(
        _compute_rand(counts.drop_background().shared),
        _compute_rand(counts.shared),
        _average_matched(iou),
        _average_best(iou),
    )


def adjusted_rand(
    reference: Integer[Tensor, "*pixels"],
    predicted: Integer[Tensor, "*pixels"],
    foreground_only: bool = False,
) -> float:
    """ARI of one frame's or video's labels: [-0.5, 1], chance is 0, higher is better.

    With `foreground_only` (FG-ARI) pixels of the reference background do not count; nan where
    nothing is left. Two partitions that are both trivial in the same way agree perfectly, 1.
    """
    counts = _count_pixels(reference, predicted)
    return _compute_rand((counts.drop_background() if foreground_only else counts).shared)


def mean_iou(reference: Integer[Tensor, "*pixels"], predicted: Integer[Tensor, "*pixels"]) -> float:
    """Hungarian mIoU of one frame or video: [0, 1], higher is better.

    Reference instances (background is none) and predicted segments are matched one to one for the
    largest sum of IoU. Instances beyond the number of segments count zero; nan without instances.
    """
    return _average_matched(_compute_iou(_count_pixels(reference, predicted)))


def mean_best_overlap(
    reference: Integer[Tensor, "*pixels"], predicted: Integer[Tensor, "*pixels"]
) -> float:
    """mBO of one frame or video: each instance's largest IoU with any segment, averaged.

    [0, 1], higher is better, at least mIoU: a segment may serve several instances. Without any
    instance nan.
    """
    return _average_best(_compute_iou(_count_pixels(reference, predicted)))


@dataclass(frozen=True)
class _Counts:
    """How many pixels each reference label shares with each predicted one."""

    names: Integer[Tensor, " label"]  # of the reference
    shared: Int64[Tensor, "label predicted"]

    def drop_background(self) -> "_Counts":
        kept = self.names != BACKGROUND
        return _Counts(self.names[kept], self.shared[kept])


def _count_pixels(reference: Tensor, predicted: Tensor) -> _Counts:
    names, row = _number_labels(reference.flatten())
    others, column = _number_labels(predicted.flatten())
    size = len(names) * len(others)
    counts = torch.bincount(row * len(others) + column, minlength=size)
    return _Counts(names, counts.view(len(names), len(others)))


def _number_labels(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The labels that there are, in order, and which of them each pixel has."""
    if labels.dtype != torch.uint8:
        return labels.unique(return_inverse=True)
    # A whole video's pixels need no sorting, so few labels are there.
    there = torch.bincount(labels, minlength=256) > 0
    return there.nonzero()[:, 0], (there.long().cumsum(0) - 1)[labels.long()]


def _compute_rand(shared: Int64[Tensor, "label predicted"]) -> float:
    pixels = int(shared.sum())
    if pixels == 0:
        return math.nan

    def pairs(counts: Tensor) -> int:
        return int((counts * (counts - 1) // 2).sum())

    # Products of pair counts exceed 64 bits on video-sized inputs; Python's integers do not.
    both, rows, columns = pairs(shared), pairs(shared.sum(1)), pairs(shared.sum(0))
    total = math.comb(pixels, 2)
    chance = rows * columns
    most = (rows + columns) * total - 2 * chance
    return 2 * (both * total - chance) / most if most else 1.0


def _compute_iou(counts: _Counts) -> np.ndarray:
    """IoU of every reference instance with every predicted segment, over all pixels."""
    shared = counts.shared
    union = shared.sum(1, keepdim=True) + shared.sum(0, keepdim=True) - shared
    return np.asarray((shared.double() / union)[counts.names != BACKGROUND].cpu().numpy())


def _average_matched(iou: np.ndarray) -> float:
    if len(iou) == 0:
        return math.nan
    rows, columns = linear_sum_assignment(iou, maximize=True)
    return float(iou[rows, columns].sum() / len(iou))


def _average_best(iou: np.ndarray) -> float:
    return float(iou.max(1).mean()) if len(iou) else math.nan
