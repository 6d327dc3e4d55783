"""The scale-steered convolution as an operator: checks, choice of backend, autograd, module.

One positive dilation per sample spreads or draws together the taps of an ordinary convolution:

    y[q] = bias + sum over taps t of weight[t] * bilinear(x, q + dilation * t)

zero padded, with aligned corners. At dilation one it is the ordinary convolution. Where dilation
times tap is whole, the output has a kink; its derivative there is that toward larger dilations.
"""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geoco.errors import GeocoError
from geoco.ops import cpu, reference

Backend = Literal["auto", "cpu", "triton", "reference"]


def scale_steered_conv2d(
    x: Float[Tensor, "batch in height width"],
    weight: Float[Tensor, "out in kernel kernel"],
    bias: Float[Tensor, " out"] | None,
    dilation: Float[Tensor, " batch"],
    *,
    relu: bool = False,
    backend: Backend = "auto",
) -> Float[Tensor, "batch out height width"]:
    """Convolve each sample with taps `dilation` pixels apart; differentiable in all four inputs.

    `relu` rectifies the result in the same kernel.
    The result has the type of x (under autocast, the autocast type); weight and bias may have a
    wider one, and the dilation stays as it is. `auto` is `cpu` or `triton`, by the device.
    """
    _check(x, weight, bias, dilation)
    if backend not in ("auto", "reference") and backend != choose_backend(x):
        raise GeocoError(
            f"backend '{backend}' does not run on {x.device.type} tensors; use "
            f"'{choose_backend(x)}'"
        )
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    if backend == "reference" or choose_backend(x) == "reference":
        with torch.autocast(x.device.type, enabled=False):
            plain = reference.steered_conv2d(x, weight, bias, dilation)
            return torch.relu(plain) if relu else plain
    result: Tensor = torch.ops.geoco.scale_steered_conv2d(x, weight, bias, dilation, relu)
    return result


def choose_backend(x: Tensor) -> Backend:
    """Which backend `auto` takes for a tensor."""
    names: dict[str, Backend] = {"cpu": "cpu", "mps": "cpu", "cuda": "triton"}
    return names.get(x.device.type, "reference")


class ScaleSteeredConv2d(nn.Module):
    """A convolution whose taps spread with a commanded scale: dilation = scale / reference * gain.

    The gain, exp(log(most) * tanh(parameter)), starts at one and stays within [1 / most, most]. The
    reference scale is a buffer: a schedule moves it in place, which no compiled graph notices.
    """

    gain: Tensor
    reference_scale: Tensor

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        reference_scale: float = 0.2,
        most_gain: float = 2.0,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.gain = nn.Parameter(torch.zeros(()))
        self.most_gain = most_gain
        self.register_buffer("reference_scale", torch.tensor(reference_scale))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = 1 / math.sqrt(inputs * kernel_size**2)
        nn.init.uniform_(self.bias, -bound, bound)

    def dilation(self, scale: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """The distance of taps in pixels that a scale commands; never in less than float32."""
        with torch.autocast(scale.device.type, enabled=False):
            gain = torch.exp(math.log(self.most_gain) * torch.tanh(self.gain))
            scale = scale if scale.dtype == torch.float64 else scale.float()
            return scale / self.reference_scale * gain

    def forward(
        self,
        x: Float[Tensor, "batch in height width"],
        scale: Float[Tensor, " batch"],
        relu: bool = False,
    ) -> Float[Tensor, "batch out height width"]:
        return scale_steered_conv2d(x, self.weight, self.bias, self.dilation(scale), relu=relu)

    def extra_repr(self) -> str:
        outputs, inputs, size, _ = self.weight.shape
        return f"{inputs}, {outputs}, kernel_size={size}, most_gain={self.most_gain}"


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: Tensor) -> None:
    outputs, inputs, size, other = weight.shape
    if size != other or size % 2 == 0:
        raise GeocoError(f"the kernel must be square and of odd size, got {size} x {other}")
    if x.shape[1] != inputs:
        raise GeocoError(f"x has {x.shape[1]} channels, but the weight expects {inputs}")
    if bias is not None and bias.shape != (outputs,):
        raise GeocoError(f"the bias must have shape [{outputs}], got {list(bias.shape)}")
    if dilation.shape != x.shape[:1]:
        raise GeocoError(
            f"one dilation per sample is needed, [{x.shape[0]}], got {list(dilation.shape)}"
        )


# -- registration: what torch.compile, autocast and autograd need to know --------------------------

_library = torch.library.Library("geoco", "DEF")
_library.define(
    "scale_steered_conv2d(Tensor x, Tensor weight, Tensor? bias, Tensor dilation,"
    " bool relu=False) -> Tensor"
)
_library.define(
    "scale_steered_conv2d_backward(Tensor grad, Tensor x, Tensor weight, Tensor dilation,"
    " bool rectified=False) -> (Tensor, Tensor, Tensor, Tensor)"
)


@torch.library.impl(_library, "scale_steered_conv2d", "MPS")
@torch.library.impl(_library, "scale_steered_conv2d", "CPU")
def _cpu_forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, dilation: Tensor, relu: bool = False
) -> Tensor:
    return cpu.forward(x, weight, bias, dilation, relu)


@torch.library.impl(_library, "scale_steered_conv2d_backward", "MPS")
@torch.library.impl(_library, "scale_steered_conv2d_backward", "CPU")
def _cpu_backward(
    grad: Tensor, x: Tensor, weight: Tensor, dilation: Tensor, rectified: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return cpu.backward(grad, x, weight, dilation, rectified)


@torch.library.impl(_library, "scale_steered_conv2d", "CUDA")
def _cuda_forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, dilation: Tensor, relu: bool = False
) -> Tensor:
    return _import_triton(x).forward(x, weight, bias, dilation, relu)


@torch.library.impl(_library, "scale_steered_conv2d_backward", "CUDA")
def _cuda_backward(
    grad: Tensor, x: Tensor, weight: Tensor, dilation: Tensor, rectified: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _import_triton(x).backward(grad, x, weight, dilation, rectified)


def _import_triton(x: Tensor) -> Any:
    if x.dtype == torch.float64:
        raise GeocoError("the kernels on CUDA are for float32 and less: use backend='reference'")
    try:
        from geoco.ops import cuda
    except ImportError:
        raise GeocoError(
            "the scale-steered convolution needs Triton on CUDA: pip install triton, or use "
            "backend='reference'"
        ) from None
    return cuda


@torch.library.register_fake("geoco::scale_steered_conv2d")
def _fake_forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, dilation: Tensor, relu: bool = False
) -> Tensor:
    shape = (x.shape[0], weight.shape[0], *x.shape[2:])
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


@torch.library.register_fake("geoco::scale_steered_conv2d_backward")
def _fake_backward(
    grad: Tensor, x: Tensor, weight: Tensor, dilation: Tensor, rectified: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    layout = torch.channels_last
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=layout)
    bias = weight.new_empty(weight.shape[0])
    return grad_x, torch.empty_like(weight), bias, torch.empty_like(dilation)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, dilation, relu = inputs
    ctx.save_for_backward(x, weight, dilation, output if relu else None)
    ctx.bias_dtype = None if bias is None else bias.dtype


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, dilation, rectified = ctx.saved_tensors
    if rectified is not None:
        grad = torch.ops.aten.threshold_backward(grad, rectified, 0)
    grad_x, grad_weight, grad_bias, grad_dilation = torch.ops.geoco.scale_steered_conv2d_backward(
        grad, x, weight, dilation
    )
    grad_bias = None if ctx.bias_dtype is None else grad_bias.to(ctx.bias_dtype)
    return grad_x, grad_weight, grad_bias, grad_dilation, None


torch.library.register_autograd(
    "geoco::scale_steered_conv2d", _backward, setup_context=_setup_context
)


def _refuse_second(ctx: Any, *_: Tensor) -> None:
    raise GeocoError("second derivatives of the convolution exist with backend='reference' only")


torch.library.register_autograd("geoco::scale_steered_conv2d_backward", _refuse_second)
