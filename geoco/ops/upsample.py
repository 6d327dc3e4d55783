"""Bilinear upsampling, endpoint to endpoint, in the field's own precision.

The same as `F.interpolate(..., align_corners=True)`, whose backward pass on CUDA takes several
times as long as its memory traffic would; there one Triton kernel for each direction takes its
place.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from geoco.errors import GeocoError


def upsample_bilinear(
    field: Float[Tensor, "batch dim height width"], height: int, width: int
) -> Float[Tensor, "batch dim rows columns"]:
    """A field on a finer grid whose corners lie on its own."""
    rows, columns = field.shape[-2:]
    if (rows, columns) == (height, width):
        return field
    if min(rows, columns) < 2 or height < rows or width < columns:
        raise GeocoError(
            f"a field of {rows} x {columns} cannot be upsampled to {height} x {width}: it needs at "
            "least 2 x 2 samples and must not shrink"
        )
    result: Tensor = torch.ops.geoco.upsample_bilinear(field, height, width)
    return result


_library = torch.library.Library("geoco", "FRAGMENT")
_library.define("upsample_bilinear(Tensor field, int height, int width) -> Tensor")
_library.define("upsample_bilinear_backward(Tensor grad, int height, int width) -> Tensor")


@torch.library.impl(_library, "upsample_bilinear", "MPS")
@torch.library.impl(_library, "upsample_bilinear", "CPU")
def _cpu_forward(field: Tensor, height: int, width: int) -> Tensor:
    field = field.contiguous(memory_format=torch.channels_last)
    return F.interpolate(field, (height, width), mode="bilinear", align_corners=True)


@torch.library.impl(_library, "upsample_bilinear_backward", "MPS")
@torch.library.impl(_library, "upsample_bilinear_backward", "CPU")
def _cpu_backward(grad: Tensor, height: int, width: int) -> Tensor:
    size = [*grad.shape[:2], height, width]
    return torch.ops.aten.upsample_bilinear2d_backward(
        grad.contiguous(memory_format=torch.channels_last), [*grad.shape[-2:]], size, True
    )


@torch.library.impl(_library, "upsample_bilinear", "CUDA")
def _cuda_forward(field: Tensor, height: int, width: int) -> Tensor:
    from geoco.ops import cuda

    return cuda.upsample_bilinear(field, height, width)


@torch.library.impl(_library, "upsample_bilinear_backward", "CUDA")
def _cuda_backward(grad: Tensor, height: int, width: int) -> Tensor:
    from geoco.ops import cuda

    return cuda.upsample_bilinear_backward(grad, height, width)


def _fake(field: Tensor, height: int, width: int) -> Tensor:
    shape, layout = (*field.shape[:2], height, width), torch.channels_last
    return torch.empty(shape, dtype=field.dtype, device=field.device, memory_format=layout)


torch.library.register_fake("geoco::upsample_bilinear")(_fake)
torch.library.register_fake("geoco::upsample_bilinear_backward")(_fake)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.size = inputs[0].shape[-2:]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return torch.ops.geoco.upsample_bilinear_backward(grad, *ctx.size), None, None


torch.library.register_autograd("geoco::upsample_bilinear", _backward, setup_context=_setup_context)
