"""Measurement supports at the size at which they are compared with something from outside.

Instance metrics, whole videos and common objects are measured at the reference masks' own size
(paper, Sec. D): alpha is enlarged bilinearly before the largest is taken. A pixel is a cell, as
usual where pictures are resized (`align_corners` off): one of 64 x 64 lies under four of 128 x 128,
just as frames and masks of a video lie over each other.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from geoco.models import compositing

_CHUNK = 64  # frames that are enlarged at a time


def find_owners(
    logits: Float[Tensor, "row slot height width"], size: Sequence[int]
) -> UInt8[Tensor, "row rows columns"]:
    """The slot of largest enlarged alpha, the first of equals."""
    return torch.cat([_enlarge_alpha(some, size).argmax(1) for some in logits.split(_CHUNK)]).to(
        torch.uint8
    )


def find_support(
    logits: Float[Tensor, "row slot height width"], slot: int, size: Sequence[int]
) -> Bool[Tensor, "row rows columns"]:
    """What one slot owns at a size: on the model's own canvas by its logits."""
    if tuple(size) == tuple(logits.shape[-2:]):
        return compositing.compute_masks(logits)[:, slot]
    return find_owners(logits, size) == slot


def _enlarge_alpha(logits: Tensor, size: Sequence[int]) -> Tensor:
    alpha = compositing.compute_alpha(logits)
    return F.interpolate(alpha, size=tuple(size), mode="bilinear", align_corners=False)
