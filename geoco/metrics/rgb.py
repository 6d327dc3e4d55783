"""Metrics of colours: reconstruction, agreement with target images, preservation of the rest.

RGB is in [0, 1]. The editing region of a reference object and a command is the same for all models
(paper, Sec. "Object-Matched Editing and RGB Preservation").
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64
from torch import Tensor

EXPANSION = 2  # four-connected pixel steps around source and target
CHANGED = 2 / 255


def psnr(
    image: Float[Tensor, "*frames 3 height width"], target: Float[Tensor, "*frames 3 height width"]
) -> Float64[Tensor, "*frames"]:
    """Each frame's 10 log10(1 / MSE) in dB: from 0, higher is better, equal pictures are infinite.

    The Obj3D column, and that of full-image agreement with target images, average these dB.
    """
    return _to_decibel(_square_error(image, target).mean((-3, -2, -1)))


def video_psnr(psnr: Float64[Tensor, "*videos time"]) -> Float64[Tensor, "*videos"]:
    """A video's 10 log10(1 / MSE), the MSE over all its frames, from the dB of each frame.

    The MOVi-C column; lower than the mean of the dB unless frames are equally good.
    """
    if psnr.shape[-1] == 1:
        return psnr[..., 0]  # no rounding where there is nothing to average
    return _to_decibel((10 ** (-psnr / 10)).mean(-1))


def region_psnr(
    image: Float[Tensor, "*frames 3 height width"],
    target: Float[Tensor, "*frames 3 height width"],
    region: Bool[Tensor, "*frames height width"],
) -> Float64[Tensor, "*frames"]:
    """The same with the MSE over the pixels of a region alone; nan where it is empty."""
    return _to_decibel(_average_within(_square_error(image, target).mean(-3), region))


def grow_editing_region(
    support: Bool[Tensor, "*edits height width"],
) -> Bool[Tensor, "*edits height width"]:
    """The union of source and target supports (and alpha footprints), expanded by two steps.

    Steps are four-connected: a single pixel becomes a diamond of 13.
    """
    for _ in range(EXPANSION):
        support = grow_mask(support)
    return support


def grow_square(mask: Bool[Tensor, "*masks height width"]) -> Bool[Tensor, "*masks height width"]:
    """A mask dilated by the square that reaches as far as those steps, 5 x 5 pixels."""
    size = 2 * EXPANSION + 1
    planes = mask.reshape(-1, 1, *mask.shape[-2:]).float()
    return F.max_pool2d(planes, size, 1, EXPANSION).reshape(mask.shape) > 0


def grow_mask(mask: Bool[Tensor, "*masks height width"]) -> Bool[Tensor, "*masks height width"]:
    """A mask and its four-connected neighbours."""
    larger = mask.clone()
    larger[..., 1:, :] |= mask[..., :-1, :]
    larger[..., :-1, :] |= mask[..., 1:, :]
    larger[..., :, 1:] |= mask[..., :, :-1]
    larger[..., :, :-1] |= mask[..., :, 1:]
    return larger


@dataclass(frozen=True)
class Preservation:
    """What an edit changed where it should not: both [0, 1], lower is better.

    nan where the region leaves no pixel.
    """

    change: Float64[Tensor, "*edits"]  # mean absolute change of a colour value
    changed: Float64[Tensor, "*edits"]  # share of pixels that changed by more than 2/255


def measure_preservation(
    factual: Float[Tensor, "*edits 3 height width"],
    edited: Float[Tensor, "*edits 3 height width"],
    region: Bool[Tensor, "*edits height width"],
) -> Preservation:
    """Change from the factual reconstruction outside of where an edit may change pixels.

    A pixel's change is the mean of its three channels' absolute changes.
    """
    change = (edited.double() - factual.double()).abs().mean(-3)
    return Preservation(
        change=_average_within(change, ~region),
        changed=_average_within((change > CHANGED).double(), ~region),
    )


def _square_error(image: Tensor, target: Tensor) -> Tensor:
    return (image.double() - target.double()).square()


def _to_decibel(error: Tensor) -> Tensor:
    return -10 * torch.log10(error)


def _average_within(values: Tensor, region: Tensor) -> Tensor:
    inside = torch.where(region, values, 0)
    return inside.sum((-2, -1)) / region.sum((-2, -1))
