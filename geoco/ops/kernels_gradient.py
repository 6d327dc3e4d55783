"""Triton kernels for the gradients of weight and dilation.

With the output's gradient g and the input x, `correlate` sums g[q] x[q + offset] over a sample's
pixels, at the whole offsets that its taps blend. The blends are only coefficients to these sums:
from them `collect` makes the weight's gradient and, with the coefficients' slopes, the dilation's.

Nothing is added atomically, so the same input always gives the same bits.
"""

import triton
import triton.language as tl

from geoco.ops.kernels import axis, shifted


@triton.jit
def _slot(step, slot, K: tl.constexpr):
    """The whole offset that a slot of an axis stands for.

    Below dilation one there are K slots, the offsets from -R to R. From one on there are 2 K - 1,
    an inner and an outer one for each tap but the centre, in order.
    """
    R: tl.constexpr = K // 2
    half = slot - 2 * R
    distance = (tl.abs(half) + 1) // 2
    near, far, _ = axis(step, tl.where(half < 0, -distance, distance))
    wide = tl.where(tl.abs(half) == 2 * distance, far, near)
    return tl.where(step < 1, slot - R, tl.where(half == 0, 0, wide))


@triton.jit
def _slots_of(step, tap, K: tl.constexpr):
    """The slots of a tap's inner and outer offset, and how much of the latter is blended in."""
    R: tl.constexpr = K // 2
    near, far, part = axis(step, tap)
    sign = tl.where(tap < 0, -1, 1)
    inner = 2 * R + sign * tl.maximum(2 * tl.abs(tap) - 1, 0)
    outer = 2 * R + 2 * tap
    return tl.where(step < 1, near + R, inner), tl.where(step < 1, far + R, outer), part


@triton.jit
def correlate(
    grad_ptr,
    x_ptr,
    step_ptr,
    raw_ptr,
    height,
    width,
    channels,
    outputs,
    K: tl.constexpr,
    PIXELS: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    EVEN: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Sums over a sample's pixels of grad [out] times x [channel], at three whole offsets.

    WIDTH is the width if a tile is one or more whole rows, so that columns are the same in every
    tile, or else zero.
    """
    sample = tl.program_id(1)
    slot = tl.program_id(0) * 3
    step = tl.load(step_ptr + sample)
    slots = tl.where(step < 1, K, 2 * K - 1)
    if slot < slots * slots:
        down = _slot(step, slot // slots, K)
        right = _slot(step, slot % slots, K)
        down2 = _slot(step, (slot + 1) // slots, K)
        right2 = _slot(step, (slot + 1) % slots, K)
        down3 = _slot(step, (slot + 2) // slots, K)
        right3 = _slot(step, (slot + 2) % slots, K)
        blocks = tl.cdiv(channels, IN)
        out = (tl.program_id(2) // blocks) * OUT + tl.arange(0, OUT)
        channel = (tl.program_id(2) % blocks) * IN + tl.arange(0, IN)
        base = x_ptr + sample.to(tl.int64) * height * width * channels
        top = grad_ptr + sample.to(tl.int64) * height * width * outputs
        total = tl.zeros((OUT, IN), tl.float32)
        total2 = tl.zeros((OUT, IN), tl.float32)
        total3 = tl.zeros((OUT, IN), tl.float32)
        within = tl.arange(0, PIXELS)
        some = channel < channels
        spot = within[:, None] * channels + channel[None, :]
        every = out < outputs
        place = within[:, None] * outputs + out[None, :]
        for start in tl.range(0, height * width, PIXELS):
            if WIDTH > 0:
                row = start // WIDTH + within // WIDTH
                column = within % WIDTH
            else:
                row = (start + within) // width
                column = start + within - row * width
            inside = row < height
            grad = shifted(
                top + start * outputs, place, row, column, 0, 0, inside, every,
                height, width, outputs, EVEN,
            )  # fmt: skip
            grad = tl.trans(grad)
            field = base + start * channels
            value = shifted(
                field, spot, row, column, down, right, inside, some, height, width, channels, EVEN
            )
            total = tl.dot(grad, value, total, input_precision=PRECISION)
            value = shifted(
                field, spot, row, column, down2, right2, inside, some, height, width, channels, EVEN
            )
            total2 = tl.dot(grad, value, total2, input_precision=PRECISION)
            value = shifted(
                field, spot, row, column, down3, right3, inside, some, height, width, channels, EVEN
            )
            total3 = tl.dot(grad, value, total3, input_precision=PRECISION)
        size = channels * outputs
        kind = raw_ptr.dtype.element_ty
        known = every[:, None] & some[None, :]
        place = raw_ptr + (sample.to(tl.int64) * ((2 * K - 1) * (2 * K - 1)) + slot) * size
        place += out[:, None] * channels + channel[None, :]
        tl.store(place, total.to(kind), mask=known)
        if slot + 1 < slots * slots:
            tl.store(place + size, total2.to(kind), mask=known)
        if slot + 2 < slots * slots:
            tl.store(place + 2 * size, total3.to(kind), mask=known)


@triton.jit
def collect(
    raw_ptr,
    weight_ptr,
    step_ptr,
    grad_ptr,
    share_ptr,
    batch,
    size,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One tap's gradients from raw correlations [batch, slots, size] at its four offsets.

    Gives weight gradients [split, K * K, size] over every SPLITS-th sample, and of the dilations
    each sample's shares [batch, K * K, blocks].
    """
    block = tl.program_id(0)
    tap = tl.program_id(1)
    split = tl.program_id(2)
    R: tl.constexpr = K // 2
    i = tap // K - R
    j = tap % K - R
    place = block * BLOCK + tl.arange(0, BLOCK)
    lower = place < tl.where(i != 0, size, 0)
    aside = place < tl.where(j != 0, size, 0)
    kernel = tl.load(weight_ptr + tap * size + place, mask=place < size, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    y = tl.abs(i).to(tl.float32)
    x = tl.abs(j).to(tl.float32)
    for sample in range(split, batch, tl.num_programs(2)):
        step = tl.load(step_ptr + sample)
        slots = tl.where(step < 1, K, 2 * K - 1)
        near_y, far_y, fy = _slots_of(step, i, K)
        near_x, far_x, fx = _slots_of(step, j, K)
        first = tl.full((), 0, tl.int64) + sample
        raw = raw_ptr + first * ((2 * K - 1) * (2 * K - 1)) * size + place
        a = tl.load(raw + (near_y * slots + near_x) * size, mask=place < size, other=0.0)
        b = tl.load(raw + (near_y * slots + far_x) * size, mask=aside, other=0.0)
        c = tl.load(raw + (far_y * slots + near_x) * size, mask=lower, other=0.0)
        d = tl.load(raw + (far_y * slots + far_x) * size, mask=lower & aside, other=0.0)
        near = a.to(tl.float32) * (1 - fx) + b.to(tl.float32) * fx
        far = c.to(tl.float32) * (1 - fx) + d.to(tl.float32) * fx
        total += near * (1 - fy) + far * fy
        across = (b.to(tl.float32) - a.to(tl.float32)) * (1 - fy)
        across += (d.to(tl.float32) - c.to(tl.float32)) * fy
        slope = tl.where(lower, far - near, 0.0) * y + tl.where(aside, across, 0.0) * x
        share = share_ptr + (sample * (K * K) + tap) * tl.num_programs(0) + block
        tl.store(share, tl.sum(kernel * slope, 0))
    spot = grad_ptr + (split.to(tl.int64) * (K * K) + tap) * size + place
    tl.store(spot, total, mask=place < size)
