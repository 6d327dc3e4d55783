"""Which part of a larger canvas its middle depends on, so that the rest need not be drawn.

On a canvas three times as wide most pixels reach the middle through no layer: how far a layer reads
follows from its kernel and a slot's dilation. Between sizes of layers a field lies on its whole
canvas again, since windows of one grid have no corners on another.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from geoco import geometry
from geoco.ops import ScaleSteeredConv2d

STEP = 8  # margins are multiples of it: few different windows, and kernels like multiples of 16


def read_taps(layer: nn.Module, scale: Float[Tensor, " slot"]) -> tuple[Tensor, int]:
    """How far apart a layer's taps are for each slot, and how many there are along an axis."""
    if isinstance(layer, ScaleSteeredConv2d):
        return layer.dilation(scale), layer.weight.shape[-1]
    assert isinstance(layer, nn.Conv2d)
    return torch.ones_like(scale), layer.kernel_size[0]


def measure_reach(layer: nn.Module, scale: Float[Tensor, " slot"]) -> Int64[Tensor, " slot"]:
    """From how many pixels away a layer reads at most; of a place between pixels it reads both."""
    dilation, kernel = read_taps(layer, scale)
    return (kernel // 2 * dilation).floor().long() + 1


def plan_margins(
    layers: Sequence[tuple[int, Sequence[nn.Module]]],
    scale: Float[Tensor, " slot"],
    seen: Int64[Tensor, " slot"],
    extent: int,
) -> Int64[Tensor, "slot group"]:
    """How many pixels about the middle each size of layers needs, up to the whole canvas.

    `seen` is how far about the middle the field is looked at after the last layer.
    """
    margins: list[Tensor] = []
    needed, finer = seen, None
    for size, alike in reversed(layers):
        if finer is not None:
            # One more than upsampling reads: places are rounded, and may fall short of a sample.
            needed = -(-needed * (size - 1) // (finer - 1)) + 1
        for layer in alike:
            needed = needed + measure_reach(layer, scale)
        needed = (-(-needed // STEP) * STEP).clamp_max(_count_beyond(size, extent))
        margins.insert(0, needed)
        finer = size
    return torch.stack(margins, 1)


def cut_window(
    field: Float[Tensor, "*fields rows columns"], size: int, margin: int
) -> Float[Tensor, "*fields window window"]:
    """The middle of a square field, `size` pixels wide, with a margin about it."""
    first = (field.shape[-1] - size) // 2 - margin
    inner = slice(first, first + size + 2 * margin)
    return field[..., inner, inner]


def put_back(
    window: Float[Tensor, "*fields window window"], side: int
) -> Float[Tensor, "*fields rows columns"]:
    """A window in the middle of its canvas again, zeros about it."""
    beyond = (side - window.shape[-1]) // 2
    return F.pad(window, [beyond] * 4) if beyond else window


def _count_beyond(size: int, extent: int) -> int:
    """How many pixels a canvas has on either side of its middle."""
    return (geometry.count_samples(size, extent) - size) // 2
