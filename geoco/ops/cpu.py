"""The scale-steered convolution on the CPU: sample by sample, in one of two ways.

The offset of a tap is the same at all pixels, so bilinear sampling is an integer shift and a blend
with constant weights. For dilations below one, all shifts lie within the kernel's own footprint:
the blends are folded into the kernel, and the rest is an ordinary convolution. From one on, the
field is blended instead (rows first, then columns: K^2 - 1 blends for a K x K kernel) and
multiplied by the kernel as a matrix, a few rows of pixels at a time, so that samples are read while
they are still in the cache.

Channels come last here: shifted views are then long runs of memory, and oneDNN's convolutions need
no other layout. Matrix products are such convolutions, too: on the AMD processor where this was
measured (docs/benchmarks.md), `torch.mm` reaches 0.4 of their speed.
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

BAND_PIXELS = 2048  # that are blended and multiplied at a time,
BAND_ROWS = 16  # but so many rows at least: with fewer, PyTorch may not ask oneDNN


def forward(
    x: Float[Tensor, "batch in height width"],
    weight: Float[Tensor, "out in kernel kernel"],
    bias: Float[Tensor, " out"] | None,
    dilation: Float[Tensor, " batch"],
    relu: bool = False,
) -> Float[Tensor, "batch out height width"]:
    """Channels of the result come last in memory."""
    weight, bias = weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
    fields = _move_channels_last(x)
    y = x.new_empty(*fields.shape[:3], weight.shape[0])
    sampler = _Sampler(fields, weight.shape[-1])
    by_tap, matrix = _order_by_tap(weight), _to_matrix(weight)
    for field, result, step in zip(fields, y, dilation.tolist(), strict=True):
        if step < 1:
            kernel = _fold(by_tap, weight, step)[0]
            planes = F.conv2d(_to_planes(field), kernel, bias, padding=weight.shape[-1] // 2)
            _store(planes[0].permute(1, 2, 0), result, relu)
            continue
        for rows, samples in sampler.sample(field, step):
            product = F.conv2d(_to_pixels(samples), matrix, bias)
            _store(product[:, :, 0].transpose(1, 2), result[rows], relu)
    return y.permute(0, 3, 1, 2)


def backward(
    grad: Float[Tensor, "batch out height width"],
    x: Float[Tensor, "batch in height width"],
    weight: Float[Tensor, "out in kernel kernel"],
    dilation: Float[Tensor, " batch"],
    rectified: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight, bias and dilation; of a rectified x, that of what was rectified."""
    kind, weight = weight.dtype, weight.to(x.dtype)
    fields, grads = _move_channels_last(x), _move_channels_last(grad)
    grad_x = torch.empty_like(fields)
    grad_dilation = torch.zeros_like(dilation)
    sampler = _Sampler(fields, weight.shape[-1])
    by_tap, matrix = _order_by_tap(weight), _to_matrix(weight)
    grad_taps, grad_matrix = torch.zeros_like(by_tap), torch.zeros_like(matrix)
    for row, step in enumerate(dilation.tolist()):
        if step < 1:
            kernel, spread, slope = _fold(by_tap, weight, step)
            planes, correlation = _conv_backward(
                _to_planes(grads[row]), _to_planes(fields[row]), kernel
            )
            grad_x[row] = planes[0].permute(1, 2, 0)
            # What the fold spread the gradient gathers; the fold's slope gives the dilation's.
            correlation = _order_by_tap(correlation)
            grad_taps.addmm_(spread, correlation)
            grad_dilation[row] = (by_tap * (slope @ correlation)).sum()
            continue
        for rows, samples in sampler.sample(fields[row], step):
            product, correlation = _conv_backward(
                _to_pixels(grads[row, rows]), _to_pixels(samples), matrix
            )
            grad_matrix += correlation
            grad_samples = product[:, :, 0].transpose(1, 2).unflatten(2, samples.shape[2:])
            grad_dilation[row] += sampler.spread(grad_samples)
        grad_x[row] = sampler.grad_field
    size = weight.shape[-1]
    grad_weight = grad_matrix.view(-1, size, size, weight.shape[1]).permute(0, 3, 1, 2)
    grad_weight = grad_weight + grad_taps.view(size, size, *weight.shape[:2]).permute(2, 3, 0, 1)
    if rectified:
        grad_x.masked_fill_(fields <= 0, 0)
    grad_bias = grads.sum((0, 1, 2))
    return (
        grad_x.permute(0, 3, 1, 2),
        grad_weight.to(kind, memory_format=torch.contiguous_format),
        grad_bias.to(kind),
        grad_dilation,
    )


# -- dilations below one: into the kernel ----------------------------------------------------------


def compute_interpolation(step: float, reach: int) -> tuple[Tensor, Tensor]:
    """For a dilation below one: how taps [-reach, reach] spread over whole offsets, and the slope.

    Row t has 1 - f at offset k and f at k + 1, where t * step = k + f, outward from the centre; the
    slope is the one toward larger dilations.
    """
    size = 2 * reach + 1
    blend, slope = ([[0.0] * size for _ in range(size)] for _ in range(2))
    blend[reach][reach] = 1.0
    for tap in range(1, reach + 1):
        whole, part = _split(tap * step)
        for sign in (-1, 1):
            row, near, far = (reach + sign * offset for offset in (tap, whole, whole + 1))
            blend[row][near], blend[row][far] = 1 - part, part
            slope[row][near], slope[row][far] = -tap, tap
    return torch.tensor(blend, dtype=torch.float64), torch.tensor(slope, dtype=torch.float64)


def _fold(
    by_tap: Float[Tensor, "tap weight"], weight: Tensor, step: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel with its blends folded in, the matrix that did it, and that matrix's slope."""
    outputs, inputs, size, _ = weight.shape
    blend, slope = compute_interpolation(step, size // 2)
    spread = torch.kron(blend, blend).to(weight)
    steeper = (torch.kron(slope, blend) + torch.kron(blend, slope)).to(weight)
    folded = (spread.T @ by_tap).view(size, size, outputs, inputs).permute(2, 3, 0, 1)
    return folded.contiguous(memory_format=torch.channels_last), spread, steeper


# -- dilations from one on: blended samples --------------------------------------------------------


class _Sampler:
    """Blends a field for every tap of a kernel, some rows at a time, always in the same memory."""

    grad_field: Float[Tensor, "height width in"]  # of the field that was sampled last

    def __init__(self, fields: Float[Tensor, "batch height width in"], size: int) -> None:
        _, self.height, self.width, channels = fields.shape
        self.reach = size // 2
        band = min(self.height, max(BAND_ROWS, BAND_PIXELS // max(self.width, 1)))
        self.samples = fields.new_empty(band, self.width, size, size, channels)

    def sample(
        self, field: Float[Tensor, "height width in"], step: float
    ) -> Iterator[tuple[slice, Float[Tensor, "rows width kernel kernel in"]]]:
        """Samples of all taps band by band; overwritten by the next."""
        self.step = step
        self.pad = _split(step * self.reach)[0] + 1
        self.padded = F.pad(field, (0, 0, *[self.pad] * 4))
        self.grad_padded: Tensor | None = None
        for top in range(0, self.height, len(self.samples)):
            samples = self.samples[: self.height - top]
            self.top, self.count = top, len(samples)
            self.rows = [self._blend(self.padded, 0, tap, None) for tap in self._taps]
            for i, row in enumerate(self.rows):
                for j, tap in enumerate(self._taps):
                    self._blend(row, 1, tap, samples[:, :, i, j])
            yield slice(top, top + self.count), samples

    def spread(self, grad: Float[Tensor, "rows width kernel kernel in"]) -> Tensor:
        """Give the gradient of the last band back to the field; returns that of the dilation."""
        if self.grad_padded is None:
            self.grad_padded = torch.zeros_like(self.padded)
            inner = slice(self.pad, -self.pad)
            self.grad_field = self.grad_padded[inner, inner]
        grad_step = grad.new_zeros(())
        for i, row in enumerate(self.rows):
            grad_row = torch.zeros_like(row)
            for j, tap in enumerate(self._taps):
                grad_step += self._spread(grad[:, :, i, j], row, grad_row, 1, tap)
            tap = self._taps[i]
            grad_step += self._spread(grad_row, self.padded, self.grad_padded, 0, tap)
        return grad_step

    @property
    def _taps(self) -> range:
        return range(-self.reach, self.reach + 1)

    def _shift(self, field: Tensor, dim: int, tap: int) -> tuple[Tensor, Tensor, float]:
        """The two shifted views that a tap blends, and the weight of the second."""
        whole, part = _split(abs(tap) * self.step)
        first, length = (self.top, self.count) if dim == 0 else (0, self.width)
        near, far = (
            field.narrow(dim, first + self.pad + int(math.copysign(k, tap)), length)
            for k in (whole, whole + 1)
        )
        return near, far, part

    def _blend(self, field: Tensor, dim: int, tap: int, out: Tensor | None) -> Tensor:
        near, far, part = self._shift(field, dim, tap)
        if part > 0:
            return torch.lerp(near, far, part, out=out)
        return near if out is None else out.copy_(near)

    def _spread(self, grad: Tensor, field: Tensor, out: Tensor, dim: int, tap: int) -> Tensor:
        """Give a gradient back to the views it came from; returns the dilation's share."""
        near, far, part = self._shift(out, dim, tap)
        near.add_(grad, alpha=1 - part)
        if tap == 0:
            return grad.new_zeros(())
        if part > 0:
            far.add_(grad, alpha=part)
        near, far, _ = self._shift(field, dim, tap)
        return abs(tap) * (far - near).mul_(grad).sum()


# -- layouts ---------------------------------------------------------------------------------------


def _split(offset: float) -> tuple[int, float]:
    """An offset's whole pixels, and what is left."""
    whole = math.floor(offset)
    return whole, offset - whole


def _move_channels_last(x: Float[Tensor, "batch dim height width"]) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def _to_planes(field: Float[Tensor, "height width dim"]) -> Float[Tensor, "1 dim height width"]:
    """A field as convolutions take it; no copy."""
    return field.permute(2, 0, 1)[None]


def _to_pixels(values: Float[Tensor, "rows width *value"]) -> Float[Tensor, "rows dim 1 width"]:
    """All values of a pixel as its channels, rows as a batch; no copy.

    A convolution by a kernel of one tap is then a matrix product. A single thread is given oneDNN
    for it only if there are many rows: in one picture PyTorch would call `torch.mm`.
    """
    return values.flatten(2).transpose(1, 2)[:, :, None]


def _order_by_tap(weight: Float[Tensor, "out in kernel kernel"]) -> Float[Tensor, "tap weight"]:
    return weight.permute(2, 3, 0, 1).flatten(2).flatten(0, 1)


def _to_matrix(weight: Float[Tensor, "out in kernel kernel"]) -> Float[Tensor, "out values 1 1"]:
    return weight.permute(0, 2, 3, 1).flatten(1)[:, :, None, None]


def _store(values: Tensor, out: Tensor, relu: bool) -> None:
    if relu:
        torch.clamp(values, min=0, out=out)
    else:
        out.copy_(values)


def _conv_backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the input and the kernel of a convolution that keeps the size."""
    pad, one = [kernel.shape[-1] // 2] * 2, [1, 1]
    grad_x, grad_kernel, _ = torch.ops.aten.convolution_backward(
        grad, x, kernel, None, one, pad, one, False, [0, 0], 1, [True, True, False]
    )
    return grad_x, grad_kernel
