"""The scale-steered convolution on the CPU: sample by sample, in one of two ways.

The offset of a tap is the same at all pixels, so bilinear sampling is an integer shift and a blend
with constant weights. For dilations below one, all shifts lie within the kernel's own footprint:
the blends are folded into the kernel, and the rest is an ordinary convolution. From one on, the
field is blended instead (rows first, then columns: K^2 - 1 blends for a K x K kernel) and
multiplied by the kernel as a matrix. Measured on two cores (benchmarks/scale_steered_conv.py),
folding is the faster way below one, and blending is faster beyond it than folding into a larger
kernel.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def forward(
    x: Float[Tensor, "batch in height width"],
    weight: Float[Tensor, "out in kernel kernel"],
    bias: Float[Tensor, " out"] | None,
    dilation: Float[Tensor, " batch"],
    relu: bool = False,
) -> Float[Tensor, "batch out height width"]:
    y = x.new_empty(x.shape[0], weight.shape[0], *x.shape[2:])
    weight, bias = weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
    blender = _Blender(x, weight.shape[-1])
    matrix = weight.permute(0, 2, 3, 1).flatten(1)
    for row, step in enumerate(dilation.tolist()):
        if step < 1:
            kernel = _fold(weight, step)[0]
            y[row] = F.conv2d(x[row : row + 1], kernel, bias, padding=weight.shape[-1] // 2)[0]
        else:
            flat = y[row].view(weight.shape[0], -1)
            torch.mm(matrix, blender.columns(x[row], step), out=flat)
            if bias is not None:
                flat += bias[:, None]
    return y.relu_() if relu else y


def backward(
    grad: Float[Tensor, "batch out height width"],
    x: Float[Tensor, "batch in height width"],
    weight: Float[Tensor, "out in kernel kernel"],
    dilation: Float[Tensor, " batch"],
    rectified: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight, bias and dilation; of a rectified x, that of what was rectified."""
    kind, weight = weight.dtype, weight.to(x.dtype)
    grad_x = x.new_empty(x.shape)
    grad_weight = torch.zeros_like(weight)
    grad_matrix = torch.zeros_like(weight.permute(0, 2, 3, 1).flatten(1))
    grad_dilation = torch.empty_like(dilation)
    blender = _Blender(x, weight.shape[-1])
    matrix = weight.permute(0, 2, 3, 1).flatten(1)
    grad_columns = x.new_empty(matrix.shape[1], x.shape[2] * x.shape[3])
    for row, step in enumerate(dilation.tolist()):
        if step < 1:
            kernel, spread, slope = _fold(weight, step)
            grad_x[row], correlation = _conv_backward(grad[row], x[row], kernel)
            # What the fold spread the gradient gathers; the fold's slope gives the dilation's.
            correlation = correlation.flatten(2)
            grad_weight += (correlation @ spread.T).view_as(weight)
            grad_dilation[row] = (weight.flatten(2) * (correlation @ slope.T)).sum()
        else:
            flat = grad[row].flatten(1)
            grad_matrix.addmm_(flat, blender.columns(x[row], step).T)
            torch.mm(matrix.T, flat, out=grad_columns)
            grad_x[row], grad_dilation[row] = blender.backward(grad_columns)
    size = weight.shape[-1]
    grad_weight += grad_matrix.view(-1, size, size, weight.shape[1]).permute(0, 3, 1, 2)
    if rectified:
        grad_x.masked_fill_(x <= 0, 0)
    return grad_x, grad_weight.to(kind), grad.sum((0, 2, 3)).to(kind), grad_dilation


def compute_interpolation(step: float, reach: int) -> tuple[Tensor, Tensor]:
    """For a dilation below one: how taps [-reach, reach] spread over whole offsets, and the slope.

    Row t has 1 - f at offset k and f at k + 1, where t * step = k + f, outward from the centre; the
    slope is the one toward larger dilations.
    """
    blend = torch.zeros(2 * reach + 1, 2 * reach + 1, dtype=torch.float64)
    slope = torch.zeros_like(blend)
    blend[reach, reach] = 1
    for tap in range(1, reach + 1):
        whole = math.floor(tap * step)
        for sign in (-1, 1):
            row, near, far = (reach + sign * offset for offset in (tap, whole, whole + 1))
            blend[row, near], blend[row, far] = 1 - (tap * step - whole), tap * step - whole
            slope[row, near], slope[row, far] = -tap, tap
    return blend, slope


def _fold(weight: Tensor, step: float) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel with its blends folded in, the matrix that did it, and that matrix's slope."""
    blend, slope = compute_interpolation(step, weight.shape[-1] // 2)
    spread = torch.kron(blend, blend).to(weight)
    steeper = (torch.kron(slope, blend) + torch.kron(blend, slope)).to(weight)
    return (weight.flatten(2) @ spread).view_as(weight), spread, steeper


def _conv_backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    pad, one = [kernel.shape[-1] // 2] * 2, [1, 1]
    grad_x, grad_kernel, _ = torch.ops.aten.convolution_backward(
        grad[None], x[None], kernel, None, one, pad, one, False, [0, 0], 1, [True, True, False]
    )
    return grad_x[0], grad_kernel


class _Blender:
    """Blends fields [in, height, width] for every tap of a kernel, always in the same memory."""

    def __init__(self, x: Tensor, size: int) -> None:
        channels, height, width = x.shape[1:]
        self.reach = size // 2
        self.samples = x.new_empty(size, size, channels, height, width)

    def columns(
        self, field: Float[Tensor, "in height width"], step: float
    ) -> Float[Tensor, "samples pixels"]:
        """The samples of all taps, one above the other; overwritten by the next call."""
        self.step = step
        self.pad = math.floor(step * self.reach) + 1
        self.padded = F.pad(field, [self.pad] * 4)
        taps = range(-self.reach, self.reach + 1)
        self.rows = [self._blend(self.padded, 1, tap, None) for tap in taps]
        for row, samples in zip(self.rows, self.samples, strict=True):
            for tap, sample in zip(taps, samples, strict=True):
                self._blend(row, 2, tap, sample)
        return self.samples.flatten(0, 2).flatten(1)

    def backward(self, grad: Float[Tensor, "samples pixels"]) -> tuple[Tensor, Tensor]:
        """From the gradient of the last columns: those of their field and of the dilation."""
        grad_padded = torch.zeros_like(self.padded)
        grad_step = grad.new_zeros(())
        for i, (row, parts) in enumerate(zip(self.rows, grad.view_as(self.samples), strict=True)):
            grad_row = torch.zeros_like(row)
            for j, part in enumerate(parts):
                grad_step += self._spread(part, row, grad_row, 2, j - self.reach)
            grad_step += self._spread(grad_row, self.padded, grad_padded, 1, i - self.reach)
        inner = slice(self.pad, -self.pad)
        return grad_padded[:, inner, inner], grad_step

    def _views(self, field: Tensor, dim: int, tap: int) -> tuple[Tensor, Tensor, float]:
        """The two shifted views that a tap blends, and the weight of the second."""
        length = self.samples.shape[dim + 2]
        whole = math.floor(abs(tap) * self.step)
        near, far = (self.pad + int(math.copysign(k, tap)) for k in (whole, whole + 1))
        views = (field.narrow(dim, start, length) for start in (near, far))
        return *views, abs(tap) * self.step - whole  # type: ignore[return-value]

    def _blend(self, field: Tensor, dim: int, tap: int, out: Tensor | None) -> Tensor:
        near, far, part = self._views(field, dim, tap)
        if part > 0:
            return torch.lerp(near, far, part, out=out)
        return near if out is None else out.copy_(near)

    def _spread(self, grad: Tensor, field: Tensor, out: Tensor, dim: int, tap: int) -> Tensor:
        """Give a gradient back to the views it came from; returns the dilation's share."""
        near, far, part = self._views(out, dim, tap)
        near.add_(grad, alpha=1 - part)
        if tap == 0:
            return grad.new_zeros(())
        if part > 0:
            far.add_(grad, alpha=part)
        near, far, _ = self._views(field, dim, tap)
        return abs(tap) * (grad * (far - near)).sum()
