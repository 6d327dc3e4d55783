"""Triton kernels of bilinear upsampling. Fields lie channels last."""

import triton
import triton.language as tl


@triton.jit
def upsample(
    field, out, rows, columns, height, width, channels, PIXELS: tl.constexpr, BLOCK: tl.constexpr
):
    """Every pixel of the finer grid from the four around it; one row's tile per program."""
    row = tl.program_id(1)
    sample = tl.program_id(2).to(tl.int64)
    column = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    # Whole numbers first: the last pixel must fall on the last, whatever rounding does.
    top = row * (rows - 1) // (height - 1)
    down = (row * (rows - 1) - top * (height - 1)).to(tl.float32) / (height - 1)
    left = column * (columns - 1) // (width - 1)
    across = (column * (columns - 1) - left * (width - 1)).to(tl.float32) / (width - 1)
    bottom = tl.minimum(top + 1, rows - 1)
    right = tl.minimum(left + 1, columns - 1)
    field += sample * rows * columns * channels
    out += (sample * height + row) * width * channels
    for first in range(0, channels, BLOCK):
        channel = first + tl.arange(0, BLOCK)
        inside = (column < width)[:, None] & (channel < channels)[None]
        west = left[:, None] * channels + channel[None]
        east = right[:, None] * channels + channel[None]
        above, below = field + top * columns * channels, field + bottom * columns * channels
        a = tl.load(above + west, inside, 0.0).to(tl.float32)
        b = tl.load(above + east, inside, 0.0).to(tl.float32)
        c = tl.load(below + west, inside, 0.0).to(tl.float32)
        d = tl.load(below + east, inside, 0.0).to(tl.float32)
        upper = a + (b - a) * across[:, None]
        lower = c + (d - c) * across[:, None]
        value = upper + (lower - upper) * down
        place = column[:, None] * channels + channel[None]
        tl.store(out + place, value.to(out.dtype.element_ty), inside)


@triton.jit
def gather_gradient(
    grad, out, rows, columns, height, width, channels, PIXELS: tl.constexpr, BLOCK: tl.constexpr,
    REACH: tl.constexpr,
):  # fmt: skip
    """Every pixel of the coarser grid from all it gave to, those less than its pixel away."""
    row = tl.program_id(1)
    sample = tl.program_id(2).to(tl.int64)
    column = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    # The first pixel of the finer grid within reach; weights are zero from the first beyond it on.
    top = tl.where(row > 0, (row - 1) * (height - 1) // (rows - 1) + 1, 0)
    left = tl.where(column > 0, (column - 1) * (width - 1) // (columns - 1) + 1, 0)
    grad += sample * height * width * channels
    out += (sample * rows + row) * columns * channels
    for first in range(0, channels, BLOCK):
        channel = first + tl.arange(0, BLOCK)
        known = channel < channels
        total = tl.zeros((PIXELS, BLOCK), tl.float32)
        for i in range(REACH):
            there = top + i
            gap = tl.abs(there * (rows - 1) - row * (height - 1)).to(tl.float32) / (height - 1)
            down = tl.maximum(1 - gap, 0)
            line = tl.zeros((PIXELS, BLOCK), tl.float32)
            for j in range(REACH):
                place = left + j
                away = tl.abs(place * (columns - 1) - column * (width - 1)).to(tl.float32)
                part = tl.maximum(1 - away / (width - 1), 0)
                seen = (place < width) & (column < columns) & (there + 0 * column < height)
                value = tl.load(
                    grad + (there * width + place)[:, None] * channels + channel[None],
                    seen[:, None] & known[None],
                    0.0,
                )
                line += value.to(tl.float32) * part[:, None]
            total += line * down
        place = column[:, None] * channels + channel[None]
        inside = (column < columns)[:, None] & known[None]
        tl.store(out + place, total.to(out.dtype.element_ty), inside)
