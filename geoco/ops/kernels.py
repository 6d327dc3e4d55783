"""Triton kernels of the scale-steered convolution, for channels-last fields.

A program owns pixels of one sample, whose dilation is one number: a tap's offset is a scalar, and
bilinear sampling is a blend of up to four whole-pixel shifts. No kernel stores sampled taps.

- `fold`: for dilations below one, all shifts lie within the kernel's own footprint. The blends go
  into one kernel per sample.
- `convolve_folded`: those samples then are an ordinary convolution, each with its own kernel.
- `convolve_blended`: from one on, taps are blended in registers on their way to the tensor cores.

The gradient of the input is a convolution again: the adjoint of sampling at +d is sampling at -d.
"""

import triton
import triton.language as tl


@triton.jit
def axis(step, tap):
    """A tap's whole offset, the next one outward, and how much of the latter is blended in."""
    distance = step * tl.abs(tap)
    whole = tl.floor(distance)
    sign = tl.where(tap < 0, -1, 1)
    near = sign * whole.to(tl.int32)
    return near, near + sign, distance - whole


@triton.jit
def shifted(
    field,
    spot,
    row,
    column,
    down,
    right,
    inside,
    known,
    height,
    width,
    channels,
    EVEN: tl.constexpr,
):
    """A field at places `spot` [pixel, channel], shifted; zeros outside.

    `spot` is from where `field` points. EVEN: all channels are known.
    """
    y = (row + down).to(tl.uint32)  # less than zero is more than any height
    x = (column + right).to(tl.uint32)
    there = inside & (y < height) & (x < width)
    mask = there[:, None] if EVEN else there[:, None] & known[None, :]
    return tl.load(field + (down * width + right) * channels + spot, mask=mask, other=0.0)


@triton.jit
def _taps(place, channel, out, channels, outputs, EVEN: tl.constexpr):
    """A kernel's matrix [channel, out] of one tap."""
    spot = place + channel[:, None] * outputs + out[None, :]
    if EVEN:
        return tl.load(spot)
    return tl.load(spot, mask=(channel < channels)[:, None] & (out < outputs)[None, :], other=0.0)


@triton.jit
def _finish(
    total,
    bias_ptr,
    gate_ptr,
    y_ptr,
    sample,
    pixel,
    out,
    inside,
    pixels,
    outputs,
    BIAS: tl.constexpr,
    RELU: tl.constexpr,
    GATE: tl.constexpr,
):
    """Add the bias and store a tile; RELU rectifies it, GATE keeps it where another is positive."""
    known = out < outputs
    if BIAS:
        total += tl.load(bias_ptr + out, mask=known, other=0.0).to(tl.float32)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    place = (sample.to(tl.int64) * pixels + pixel)[:, None] * outputs + out[None, :]
    there = inside[:, None] & known[None, :]
    if GATE:
        gate = tl.load(gate_ptr + place, mask=there, other=0.0).to(tl.float32)
        total = tl.where(gate > 0, total, 0.0)
    tl.store(y_ptr + place, total.to(y_ptr.dtype.element_ty), mask=there)


@triton.jit
def _store_sum(value, sum_ptr, sample, channel, channels):
    """The sum over a tile's pixels of the convolved field, once per tile: the bias's gradient."""
    if tl.program_id(2) == 0:
        place = sum_ptr + (sample.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * channels
        tl.store(place + channel, tl.sum(value.to(tl.float32), 0), mask=channel < channels)


@triton.jit
def _coefficient(step, tap, offset):
    """The weight with which a tap takes a whole offset."""
    near, far, part = axis(step, tap)
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
    gate_ptr,
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
    RELU: tl.constexpr,
    GATE: tl.constexpr,
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
            spot = pixel[:, None] * channels + channel[None, :]
            known = channel < channels
            value = shifted(
                base, spot, row, column, down, right, inside, known, height, width, channels, EVEN
            )
            place = kernels + tap * channels * outputs
            kernel = _taps(place, channel, out, channels, outputs, EVEN)
            total = tl.dot(value, kernel, total, input_precision=PRECISION)
        _finish(
            total,
            bias_ptr,
            gate_ptr,
            y_ptr,
            sample,
            pixel,
            out,
            inside,
            height * width,
            outputs,
            BIAS,
            RELU,
            GATE,
        )
        if SUMS:
            for start in range(0, channels, IN):
                channel = start + tl.arange(0, IN)
                spot = pixel[:, None] * channels + channel[None, :]
                known = channel < channels
                value = shifted(
                    base, spot, row, column, 0, 0, inside, known, height, width, channels, EVEN
                )
                _store_sum(value, sum_ptr, sample, channel, channels)


@triton.jit
def _fused(a, b, c):
    """a * b + c of bf16 numbers, two per instruction."""
    return tl.inline_asm_elementwise(
        "fma.rn.bf16x2 $0, $1, $2, $3;",
        "=r,r,r,r",
        [a, b, c],
        dtype=tl.bfloat16,
        is_pure=True,
        pack=2,
    )


@triton.jit
def _share(field, weight, PACKED: tl.constexpr):
    """A weighted field, the first of a blend; PACKED keeps blends in bf16."""
    if PACKED:
        nothing = tl.zeros_like(field)
        result = _fused(field, nothing + weight.to(tl.bfloat16), nothing)
    else:
        result = field.to(tl.float32) * weight
    return result


@triton.jit
def _blend(blend, field, weight, PACKED: tl.constexpr):
    """A blend with one more weighted field in it."""
    if PACKED:
        result = _fused(field, tl.zeros_like(field) + weight.to(tl.bfloat16), blend)
    else:
        result = blend + field.to(tl.float32) * weight
    return result


@triton.jit
def convolve_blended(
    x_ptr,
    weight_ptr,
    bias_ptr,
    gate_ptr,
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
    RELU: tl.constexpr,
    GATE: tl.constexpr,
    SUMS: tl.constexpr,
    PACKED: tl.constexpr,
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
            down, lower, fy = axis(step, tl.full((), i, tl.int32))
            for j in tl.static_range(-R, R + 1):
                right, aside, fx = axis(step, tl.full((), j, tl.int32))
                for block in tl.static_range(BLOCKS):
                    channel = block * IN + tl.arange(0, IN)
                    spot = pixel[:, None] * channels + channel[None, :]
                    known = channel < channels
                    value = shifted(
                        base,
                        spot,
                        row,
                        column,
                        down,
                        right,
                        inside,
                        known,
                        height,
                        width,
                        channels,
                        EVEN,
                    )
                    if i == 0 and j == 0:
                        if SUMS:
                            _store_sum(value, sum_ptr, sample, channel, channels)
                    else:
                        value = _share(value, (1 - fy) * (1 - fx), PACKED)
                    if j != 0:
                        more = shifted(
                            base,
                            spot,
                            row,
                            column,
                            down,
                            aside,
                            inside,
                            known,
                            height,
                            width,
                            channels,
                            EVEN,
                        )
                        value = _blend(value, more, (1 - fy) * fx, PACKED)
                    if i != 0:
                        more = shifted(
                            base,
                            spot,
                            row,
                            column,
                            lower,
                            right,
                            inside,
                            known,
                            height,
                            width,
                            channels,
                            EVEN,
                        )
                        value = _blend(value, more, fy * (1 - fx), PACKED)
                    if i != 0 and j != 0:
                        more = shifted(
                            base,
                            spot,
                            row,
                            column,
                            lower,
                            aside,
                            inside,
                            known,
                            height,
                            width,
                            channels,
                            EVEN,
                        )
                        value = _blend(value, more, fy * fx, PACKED)
                    place = weight_ptr + ((i + R) * K + j + R) * channels * outputs
                    kernel = _taps(place, channel, out, channels, outputs, EVEN)
                    total = tl.dot(value.to(kind), kernel, total, input_precision=PRECISION)
        _finish(
            total,
            bias_ptr,
            gate_ptr,
            y_ptr,
            sample,
            pixel,
            out,
            inside,
            height * width,
            outputs,
            BIAS,
            RELU,
            GATE,
        )
