"""Triton kernels of the scale-steered convolution, for channels-last fields.

A program owns pixels of one sample, whose dilation is one number: a tap's offset is a scalar, and
bilinear sampling is a blend of up to four whole-pixel shifts. No kernel stores sampled taps.

- `fold`: for dilations below one, all shifts lie within the kernel's own footprint. The blends go
  into one kernel per sample.
- `convolve_folded`: those samples then are an ordinary convolution, each with its own kernel.
- `convolve_blended`: from one on, taps are blended in registers on their way to the tensor cores.
- `correlate`, `collect`: output gradients times inputs at whole-pixel shifts, and from these the
  gradients of weight and dilation, to which the blends are only coefficients.

The gradient of the input is a convolution again: the adjoint of sampling at +d is sampling at -d.
Nothing is added atomically, so the same input always gives the same bits.
"""

import triton
import triton.language as tl


@triton.jit
def _axis(step, tap):
    """A tap's whole offset, the next one outward, and how much of the latter is blended in."""
    distance = step * tl.abs(tap)
    whole = tl.floor(distance)
    sign = tl.where(tap < 0, -1, 1)
    near = sign * whole.to(tl.int32)
    return near, near + sign, distance - whole


@triton.jit
def _shifted(
    base, row, column, down, right, inside, channel, height, width, channels, EVEN: tl.constexpr
):
    """Pixels of one sample, shifted; zeros outside. EVEN: no channel is beyond the last."""
    y = row + down
    x = column + right
    there = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    place = base + ((y * width + x) * channels)[:, None] + channel[None, :]
    mask = there[:, None] if EVEN else there[:, None] & (channel < channels)[None, :]
    return tl.load(place, mask=mask, other=0.0)


@triton.jit
def _taps(place, channel, out, channels, outputs, EVEN: tl.constexpr):
    """A kernel's matrix [channel, out] of one tap."""
    spot = place + channel[:, None] * outputs + out[None, :]
    if EVEN:
        return tl.load(spot)
    return tl.load(spot, mask=(channel < channels)[:, None] & (out < outputs)[None, :], other=0.0)


@triton.jit
def _finish(
    total, bias_ptr, y_ptr, sample, pixel, out, inside, pixels, outputs, BIAS: tl.constexpr
):
    """Add the bias and store a tile."""
    known = out < outputs
    if BIAS:
        total += tl.load(bias_ptr + out, mask=known, other=0.0).to(tl.float32)[None, :]
    place = (sample.to(tl.int64) * pixels + pixel)[:, None] * outputs + out[None, :]
    tl.store(y_ptr + place, total.to(y_ptr.dtype.element_ty), mask=inside[:, None] & known[None, :])


@triton.jit
def _store_sum(value, sum_ptr, sample, channel, channels):
    """The sum over a tile's pixels of the convolved field, once per tile: the bias's gradient."""
    if tl.program_id(2) == 0:
        place = sum_ptr + (sample.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * channels
        tl.store(place + channel, tl.sum(value.to(tl.float32), 0), mask=channel < channels)


@triton.jit
def _coefficient(step, tap, offset):
    """The weight with which a tap takes a whole offset."""
    near, far, part = _axis(step, tap)
    return tl.where(offset == near, 1 - part, tl.where(offset == far, part, 0.0))


@triton.jit
def fold(weight_ptr, step_ptr, folded_ptr, size, K: tl.constexpr, BLOCK: tl.constexpr):
    """For dilations below one: each sample's kernel [K * K, size] with the blends in it."""
    sample = tl.program_id(0)
    slot = tl.program_id(1)
    R: tl.constexpr = K // 2
    place = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    step = tl.load(step_ptr + sample)
    if step < 1:
        u = slot // K - R
        v = slot % K - R
        total = tl.zeros((BLOCK,), tl.float32)
        for i in range(-R, R + 1):
            vertical = _coefficient(step, i, u)
            if vertical > 0:
                for j in range(-R, R + 1):
                    horizontal = _coefficient(step, j, v)
                    if horizontal > 0:
                        tap = weight_ptr + ((i + R) * K + j + R) * size + place
                        kernel = tl.load(tap, mask=place < size, other=0.0).to(tl.float32)
                        total += kernel * (vertical * horizontal)
        spot = folded_ptr + (sample.to(tl.int64) * (K * K) + slot) * size + place
        tl.store(spot, total.to(folded_ptr.dtype.element_ty), mask=place < size)


@triton.jit
def convolve_folded(
    x_ptr,
    folded_ptr,
    bias_ptr,
    step_ptr,
    y_ptr,
    sum_ptr,
    height,
    width,
    channels,
    outputs,
    K: tl.constexpr,
    PIXELS: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    EVEN: tl.constexpr,
    BIAS: tl.constexpr,
    SUMS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Samples with dilations below one: a tile of pixels by a block of outputs."""
    sample = tl.program_id(1)
    step = tl.load(step_ptr + sample)
    if step < 1:
        R: tl.constexpr = K // 2
        pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
        row = pixel // width
        column = pixel - row * width
        inside = pixel < height * width
        out = tl.program_id(2) * OUT + tl.arange(0, OUT)
        base = x_ptr + sample.to(tl.int64) * height * width * channels
        kernels = folded_ptr + sample.to(tl.int64) * (K * K) * channels * outputs
        total = tl.zeros((PIXELS, OUT), tl.float32)
        for number in tl.range(0, K * K * tl.cdiv(channels, IN)):
            tap = number % (K * K)
            channel = (number // (K * K)) * IN + tl.arange(0, IN)
            down = tap // K - R
            right = tap % K - R
            value = _shifted(
                base, row, column, down, right, inside, channel, height, width, channels, EVEN
            )
            place = kernels + tap * channels * outputs
            kernel = _taps(place, channel, out, channels, outputs, EVEN)
            total = tl.dot(value, kernel, total, input_precision=PRECISION)
        _finish(total, bias_ptr, y_ptr, sample, pixel, out, inside, height * width, outputs, BIAS)
        if SUMS:
            for start in range(0, channels, IN):
                channel = start + tl.arange(0, IN)
                value = _shifted(
                    base, row, column, 0, 0, inside, channel, height, width, channels, EVEN
                )
                _store_sum(value, sum_ptr, sample, channel, channels)


@triton.jit
def convolve_blended(
    x_ptr,
    weight_ptr,
    bias_ptr,
    step_ptr,
    y_ptr,
    sum_ptr,
    height,
    width,
    channels,
    outputs,
    K: tl.constexpr,
    PIXELS: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    BLOCKS: tl.constexpr,
    EVEN: tl.constexpr,
    BIAS: tl.constexpr,
    SUMS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Samples with dilations from one on: a tile of pixels by a block of outputs."""
    sample = tl.program_id(1)
    step = tl.load(step_ptr + sample)
    if step >= 1:
        R: tl.constexpr = K // 2
        pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
        row = pixel // width
        column = pixel - row * width
        inside = pixel < height * width
        out = tl.program_id(2) * OUT + tl.arange(0, OUT)
        base = x_ptr + sample.to(tl.int64) * height * width * channels
        kind = weight_ptr.dtype.element_ty
        total = tl.zeros((PIXELS, OUT), tl.float32)
        for i in tl.static_range(-R, R + 1):
            down, lower, fy = _axis(step, tl.full((), i, tl.int32))
            for j in tl.static_range(-R, R + 1):
                right, aside, fx = _axis(step, tl.full((), j, tl.int32))
                for block in tl.static_range(BLOCKS):
                    channel = block * IN + tl.arange(0, IN)
                    value = _shifted(
                        base,
                        row,
                        column,
                        down,
                        right,
                        inside,
                        channel,
                        height,
                        width,
                        channels,
                        EVEN,
                    )
                    if i == 0 and j == 0:
                        if SUMS:
                            _store_sum(value, sum_ptr, sample, channel, channels)
                    else:
                        value = value.to(tl.float32) * ((1 - fy) * (1 - fx))
                    if j != 0:
                        more = _shifted(
                            base,
                            row,
                            column,
                            down,
                            aside,
                            inside,
                            channel,
                            height,
                            width,
                            channels,
                            EVEN,
                        )
                        value += more.to(tl.float32) * ((1 - fy) * fx)
                    if i != 0:
                        more = _shifted(
                            base,
                            row,
                            column,
                            lower,
                            right,
                            inside,
                            channel,
                            height,
                            width,
                            channels,
                            EVEN,
                        )
                        value += more.to(tl.float32) * (fy * (1 - fx))
                    if i != 0 and j != 0:
                        more = _shifted(
                            base,
                            row,
                            column,
                            lower,
                            aside,
                            inside,
                            channel,
                            height,
                            width,
                            channels,
                            EVEN,
                        )
                        value += more.to(tl.float32) * (fy * fx)
                    place = weight_ptr + ((i + R) * K + j + R) * channels * outputs
                    kernel = _taps(place, channel, out, channels, outputs, EVEN)
                    total = tl.dot(value.to(kind), kernel, total, input_precision=PRECISION)
        _finish(total, bias_ptr, y_ptr, sample, pixel, out, inside, height * width, outputs, BIAS)


@triton.jit
def _slot(step, slot, K: tl.constexpr):
    """The whole offset that a slot of an axis stands for.

    Below dilation one there are K slots, the offsets from -R to R. From one on there are 2 K - 1, an
    inner and an outer one for each tap but the centre, in order.
    """
    R: tl.constexpr = K // 2
    half = slot - 2 * R
    distance = (tl.abs(half) + 1) // 2
    near, far, _ = _axis(step, tl.where(half < 0, -distance, distance))
    wide = tl.where(tl.abs(half) == 2 * distance, far, near)
    return tl.where(step < 1, slot - R, tl.where(half == 0, 0, wide))


@triton.jit
def _slots_of(step, tap, K: tl.constexpr):
    """The slots of a tap's inner and outer offset, and how much of the latter is blended in."""
    R: tl.constexpr = K // 2
    near, far, part = _axis(step, tap)
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
    PRECISION: tl.constexpr,
):
    """Sums over a sample's pixels of grad [out] times x [channel], at three whole offsets."""
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
        for start in tl.range(0, height * width, PIXELS):
            pixel = start + tl.arange(0, PIXELS)
            row = pixel // width
            column = pixel - row * width
            inside = pixel < height * width
            grad = _shifted(top, row, column, 0, 0, inside, out, height, width, outputs, EVEN)
            grad = tl.trans(grad)
            value = _shifted(
                base, row, column, down, right, inside, channel, height, width, channels, EVEN
            )
            total = tl.dot(grad, value, total, input_precision=PRECISION)
            value = _shifted(
                base, row, column, down2, right2, inside, channel, height, width, channels, EVEN
            )
            total2 = tl.dot(grad, value, total2, input_precision=PRECISION)
            value = _shifted(
                base, row, column, down3, right3, inside, channel, height, width, channels, EVEN
            )
            total3 = tl.dot(grad, value, total3, input_precision=PRECISION)
        size = channels * outputs
        kind = raw_ptr.dtype.element_ty
        known = (out < outputs)[:, None] & (channel < channels)[None, :]
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
