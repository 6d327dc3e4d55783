"""Operators on CUDA: lays out memory and launches the Triton kernels."""

from functools import cache

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from geoco.ops import kernels, kernels_gradient, kernels_upsample

_SPLITS = 16  # programs over which the sum of weight gradients over samples is spread


def forward(
    x: Float[Tensor, "batch in height width"],
    weight: Float[Tensor, "out in kernel kernel"],
    bias: Float[Tensor, " out"] | None,
    dilation: Float[Tensor, " batch"],
    relu: bool = False,
) -> Float[Tensor, "batch out height width"]:
    matrices = _lay_out(weight.permute(2, 3, 1, 0), x.dtype)
    return _convolve(x, matrices, bias, dilation.float(), relu=relu)[0]


def backward(
    grad: Float[Tensor, "batch out height width"],
    x: Float[Tensor, "batch in height width"],
    weight: Float[Tensor, "out in kernel kernel"],
    dilation: Float[Tensor, " batch"],
    rectified: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight, bias and dilation; of a rectified x, that of what was rectified."""
    step = dilation.float()
    grad = grad.to(x.dtype)
    flipped = _lay_out(weight.flip(2, 3).permute(2, 3, 0, 1), x.dtype)
    gate = x.contiguous(memory_format=torch.channels_last) if rectified else None
    grad_x, sums = _convolve(grad, flipped, None, step, gate=gate, sums=True)
    grad_weight, grad_step = _correlate(grad, x, weight, step)
    grad_bias = sums.sum((0, 1))
    return (
        grad_x,
        grad_weight.to(weight.dtype),
        grad_bias.to(weight.dtype),
        grad_step.to(dilation.dtype),
    )


def upsample_bilinear(
    field: Float[Tensor, "batch dim rows columns"], height: int, width: int
) -> Float[Tensor, "batch dim height width"]:
    """Bilinear, endpoint to endpoint, to a finer grid."""
    field = field.contiguous(memory_format=torch.channels_last)
    batch, channels, rows, columns = field.shape
    out = _allocate(field, batch, channels, height, width)
    if out.numel() > 0:
        grid = (triton.cdiv(width, 32), height, batch)
        kernels_upsample.upsample[grid](
            field,
            out,
            rows,
            columns,
            height,
            width,
            channels,
            PIXELS=32,
            BLOCK=_choose_block(channels),
        )
    return out


def upsample_bilinear_backward(
    grad: Float[Tensor, "batch dim height width"], rows: int, columns: int
) -> Float[Tensor, "batch dim rows columns"]:
    """The gradient of the coarser field."""
    grad = grad.contiguous(memory_format=torch.channels_last)
    batch, channels, height, width = grad.shape
    out = _allocate(grad, batch, channels, rows, columns)
    if out.numel() > 0:
        reach = max(_compute_reach(rows, height), _compute_reach(columns, width))
        grid = (triton.cdiv(columns, 16), rows, batch)
        kernels_upsample.gather_gradient[grid](
            grad, out, rows, columns, height, width, channels,
            PIXELS=16, BLOCK=_choose_block(channels), REACH=reach,
        )  # fmt: skip
    return out


@cache
def _compute_reach(coarse: int, fine: int) -> int:
    """The most pixels of a finer grid that are less than a pixel of the coarser away from one."""
    first = [max((pixel - 1) * (fine - 1) // (coarse - 1), -1) for pixel in range(coarse)]
    last = [min(triton.cdiv((pixel + 1) * (fine - 1), coarse - 1), fine) for pixel in range(coarse)]
    return max(after - before - 1 for before, after in zip(first, last, strict=True))


def _allocate(like: Tensor, *shape: int) -> Tensor:
    """Channels last."""
    return torch.empty(
        shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last
    )


def _lay_out(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Contiguous and of a type, in one pass."""
    return torch.empty(matrices.shape, dtype=dtype, device=matrices.device).copy_(matrices)


def _choose_precision(dtype: torch.dtype) -> str:
    """Of products on the tensor cores: three of TF32 make one of float32, to its own rounding."""
    return "tf32" if dtype != torch.float32 or torch.backends.cudnn.allow_tf32 else "tf32x3"


def _is_packable(x: Tensor) -> bool:
    """Whether the device has instructions for pairs of bf16 numbers; no interpreter has them."""
    return x.is_cuda and x.dtype == torch.bfloat16 and torch.version.hip is None


def _choose_block(count: int) -> int:
    """The channels of a block: all of them up to 64, and at least the 16 of a tensor core."""
    return max(16, min(64, triton.next_power_of_2(count)))


def _convolve(
    x: Tensor,
    matrices: Tensor,
    bias: Tensor | None,
    step: Tensor,
    *,
    relu: bool = False,
    gate: Tensor | None = None,
    sums: bool = False,
) -> tuple[Tensor, Tensor]:
    """x with matrices [kernel, kernel, in, out]; with `sums`, also x summed by tile of pixels.

    The result is rectified, or zero wherever `gate`, channels last, is not positive.
    """
    batch, channels, height, width = x.shape
    size, outputs = matrices.shape[0], matrices.shape[-1]
    x = x.contiguous(memory_format=torch.channels_last)
    y = _allocate(x, batch, outputs, height, width)
    half = x.element_size() == 2
    pixels = 128 if half else 64
    tiles = triton.cdiv(height * width, pixels)
    partial = torch.empty((batch, tiles, channels), dtype=torch.float32, device=x.device)
    if y.numel() == 0:
        return y, partial.zero_()
    folded = torch.empty((batch, size * size, channels, outputs), dtype=x.dtype, device=x.device)
    area = channels * outputs
    kernels.fold[(batch, size * size, triton.cdiv(area, 1024))](
        matrices, step, folded, area, K=size, BLOCK=1024
    )
    common = {
        "K": size,
        "PIXELS": pixels,
        "IN": _choose_block(channels),
        "OUT": _choose_block(outputs),
        "EVEN": channels % _choose_block(channels) == 0 and outputs % _choose_block(outputs) == 0,
        "BIAS": bias is not None,
        "RELU": relu,
        "GATE": gate is not None,
        "SUMS": sums,
        "PRECISION": _choose_precision(x.dtype),
    }
    # Half blocks of channels keep the larger kernels' blends in registers; in float32, whole ones
    # make half as much code, which is slow to compile.
    blend = min(32, _choose_block(channels)) if size > 3 and half else _choose_block(channels)
    grid = (tiles, batch, triton.cdiv(outputs, _choose_block(outputs)))
    shape = (height, width, channels, outputs)
    some_bias = step if bias is None else bias
    some_gate = x if gate is None else gate
    kernels.convolve_folded[grid](
        x, folded, some_bias, some_gate, step, y, partial, *shape, **common,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    kernels.convolve_blended[grid](
        x,
        matrices,
        some_bias,
        some_gate,
        step,
        y,
        partial,
        *shape,
        **{**common, "IN": blend},
        BLOCKS=triton.cdiv(channels, blend),
        PACKED=_is_packable(x),
        num_warps=8 if half else 4,
        num_stages=1,
        maxnreg=128 if half else None,
    )
    return y, partial


def _correlate(grad: Tensor, x: Tensor, weight: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of weight and dilation."""
    batch, channels, height, width = x.shape
    outputs, _, size, _ = weight.shape
    x = x.contiguous(memory_format=torch.channels_last)
    grad = grad.contiguous(memory_format=torch.channels_last)
    area = channels * outputs
    slots = 2 * size - 1
    raw = torch.empty((batch, slots * slots, area), dtype=x.dtype, device=x.device)
    if grad.numel() == 0:
        return torch.zeros_like(weight, dtype=torch.float32), torch.zeros_like(step)
    pixels = 64 if x.element_size() == 2 else 32
    common = {
        "K": size,
        "PIXELS": pixels,
        "WIDTH": width if pixels % width == 0 else 0,
        "IN": _choose_block(channels),
        "OUT": _choose_block(outputs),
        "EVEN": channels % _choose_block(channels) == 0 and outputs % _choose_block(outputs) == 0,
        "PRECISION": _choose_precision(x.dtype),
    }
    blocks = triton.cdiv(outputs, _choose_block(outputs)) * triton.cdiv(
        channels, _choose_block(channels)
    )
    kernels_gradient.correlate[(triton.cdiv(slots * slots, 3), batch, blocks)](
        grad, x, step, raw, height, width, channels, outputs, **common, num_warps=4, num_stages=3
    )
    splits, block = min(_SPLITS, batch), 1024
    parts = triton.cdiv(area, block)
    grad_weight = torch.empty((splits, size, size, outputs, channels), device=x.device)
    share = torch.empty((batch, size * size * parts), device=x.device)
    matrices = weight.permute(2, 3, 0, 1).contiguous()
    kernels_gradient.collect[(parts, size * size, splits)](
        raw, matrices, step, grad_weight, share, batch, area, K=size, BLOCK=block, num_warps=4
    )
    total = torch.empty(weight.shape, device=x.device)
    torch.sum(grad_weight.permute(0, 3, 4, 1, 2), 0, out=total)
    return total, share.sum(1)
