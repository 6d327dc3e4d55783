"""The definition of the scale-steered convolution: one `grid_sample` per tap, in float64.

Slow and plain. Every other backend is tested against it. At integer products of dilation and tap
the sampling has a kink; the nudge below picks the side of larger dilation there, which is the
derivative that all backends give.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

_NUDGE = 1e-12  # pixels


def steered_conv2d(
    x: Float[Tensor, "batch in height width"],
    weight: Float[Tensor, "out in kernel kernel"],
    bias: Float[Tensor, " out"] | None,
    dilation: Float[Tensor, " batch"],
) -> Float[Tensor, "batch out height width"]:
    """Cross-correlation whose taps lie `dilation` pixels apart, bilinearly sampled, zero padded."""
    batch, _, height, width = x.shape
    reach = weight.shape[-1] // 2
    field, kernel, step = x.double(), weight.double(), dilation.double() + _NUDGE
    result = field.new_zeros(batch, weight.shape[0], height, width)
    for i in range(-reach, reach + 1):
        for j in range(-reach, reach + 1):
            sampled = _sample(field, i * step, j * step)
            tap = kernel[:, :, i + reach, j + reach]
            result = result + torch.einsum("oc,bchw->bohw", tap, sampled)
    if bias is not None:
        result = result + bias.double()[:, None, None]
    return result.to(x.dtype)


def _sample(field: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """The field at every pixel plus an offset [batch]; aligned corners, zeros outside."""
    batch, _, height, width = field.shape
    rows = torch.arange(height, dtype=field.dtype, device=field.device) + down[:, None]
    columns = torch.arange(width, dtype=field.dtype, device=field.device) + right[:, None]
    y = _normalize(rows, height)[:, :, None].expand(batch, height, width)
    x = _normalize(columns, width)[:, None, :].expand(batch, height, width)
    # A border of zeros, because a canvas one pixel wide has no extent to normalise by.
    padded = F.pad(field, (1, 1, 1, 1))
    return F.grid_sample(padded, torch.stack((x, y), -1), align_corners=True)


def _normalize(position: Tensor, size: int) -> Tensor:
    """Pixel positions as coordinates in [-1, 1] between the centres of the border's corners."""
    return (position + 1) * (2 / (size + 1)) - 1
