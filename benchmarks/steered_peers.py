"""A peer of the scale-steered convolution that stores all sampled taps, then multiplies.

Two Triton kernels: one samples every tap into a matrix [batch, pixels, taps, channels], one gathers
its gradient back. The products are the library's. This is the plain way to do it on a GPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _sample(
    x_ptr, step_ptr, out_ptr, height, width, K: tl.constexpr, C: tl.constexpr, PIXELS: tl.constexpr
):
    tap = tl.program_id(1)
    sample = tl.program_id(2)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    channel = tl.arange(0, C)
    step = tl.load(step_ptr + sample)
    y = pixel // width + step * (tap // K - K // 2)
    x = pixel % width + step * (tap % K - K // 2)
    top = tl.floor(y)
    left = tl.floor(x)
    total = tl.zeros((PIXELS, C), tl.float32)
    for corner in tl.static_range(4):
        row = (top + corner // 2).to(tl.int32)
        column = (left + corner % 2).to(tl.int32)
        part = (1 - tl.abs(y - row)) * (1 - tl.abs(x - column))
        there = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        there &= pixel < height * width
        place = ((sample * height + row) * width + column) * C
        value = tl.load(x_ptr + place[:, None] + channel[None, :], mask=there[:, None], other=0.0)
        total += value.to(tl.float32) * part[:, None]
    place = ((sample * height * width + pixel) * (K * K) + tap) * C
    tl.store(
        out_ptr + place[:, None] + channel[None, :],
        total.to(out_ptr.dtype.element_ty),
        mask=(pixel < height * width)[:, None],
    )


@triton.jit
def _gather(
    grad_ptr,
    x_ptr,
    step_ptr,
    out_ptr,
    share_ptr,
    height,
    width,
    K: tl.constexpr,
    C: tl.constexpr,
    PIXELS: tl.constexpr,
):
    sample = tl.program_id(1)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    channel = tl.arange(0, C)
    step = tl.load(step_ptr + sample)
    total = tl.zeros((PIXELS, C), tl.float32)
    change = tl.zeros((PIXELS, C), tl.float32)
    for tap in range(K * K):
        i = tap // K - K // 2
        j = tap % K - K // 2
        y = pixel // width - step * i
        x = pixel % width - step * j
        top = tl.floor(y)
        left = tl.floor(x)
        for corner in tl.static_range(4):
            row = (top + corner // 2).to(tl.int32)
            column = (left + corner % 2).to(tl.int32)
            down = 1 - tl.abs(y - row)
            across = 1 - tl.abs(x - column)
            # The weight's derivative by the dilation, through both coordinates.
            slope = (
                tl.where(row > y, -1.0, 1.0) * i * across
                + tl.where(column > x, -1.0, 1.0) * j * down
            )
            there = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            there &= pixel < height * width
            place = (((sample * height + row) * width + column) * (K * K) + tap) * C
            value = tl.load(
                grad_ptr + place[:, None] + channel[None, :], mask=there[:, None], other=0.0
            )
            value = value.to(tl.float32)
            total += value * (down * across)[:, None]
            change += value * slope[:, None]
    place = (sample * height * width + pixel)[:, None] * C + channel[None, :]
    mask = (pixel < height * width)[:, None]
    tl.store(out_ptr + place, total.to(out_ptr.dtype.element_ty), mask=mask)
    field = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
    share = tl.sum(tl.sum(field * change, 1), 0)
    tl.store(share_ptr + sample * tl.num_programs(0) + tl.program_id(0), share)


class _Materialized(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, dilation: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        size = weight.shape[-1]
        pixels = height * width
        samples = x.new_empty(batch * pixels, size * size * channels)
        grid = (triton.cdiv(pixels, 32), size * size, batch)
        _sample[grid](x, dilation, samples, height, width, size, channels, 32)
        matrix = weight.permute(2, 3, 1, 0).reshape(-1, weight.shape[0]).contiguous()
        ctx.save_for_backward(x, dilation, samples, matrix)
        y = torch.addmm(bias, samples, matrix)
        return y.view(batch, height, width, -1).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, dilation, samples, matrix = ctx.saved_tensors
        batch, channels, height, width = x.shape
        taps = samples.shape[1] // channels
        size = int(taps**0.5)
        flat = grad.permute(0, 2, 3, 1).reshape(-1, matrix.shape[1])
        grad_samples = flat @ matrix.T
        grad_weight = (samples.T @ flat).view(size, size, channels, -1).permute(3, 2, 0, 1)
        grad_x = torch.empty_like(x)
        blocks = triton.cdiv(height * width, 32)
        share = torch.empty(batch, blocks, device=x.device)
        _gather[(blocks, batch)](
            grad_samples, x, dilation, grad_x, share, height, width, size, channels, 32
        )
        return grad_x, grad_weight, flat.sum(0), share.sum(1)


def materialized_conv2d(x: Tensor, weight: Tensor, bias: Tensor, dilation: Tensor) -> Tensor:
    result: Tensor = _Materialized.apply(x, weight, bias, dilation)  # type: ignore[no-untyped-call]
    return result
