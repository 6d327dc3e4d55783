"""Rectified scale-steered layers, one after the other on one grid, as one step of autograd.

In the backward pass, the layer before another needs the gradient of that one's input only where its
own output is positive. Here the kernel that computes the gradient leaves out the rest, so that no
other kernel has to go over the whole field again.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from geoco.ops.steered import ScaleSteeredConv2d, choose_backend

_EACH = 3  # weight, bias and dilation of a layer


def apply_steered_layers(
    x: Float[Tensor, "batch in height width"],
    layers: Sequence[ScaleSteeredConv2d],
    scale: Float[Tensor, " batch"],
) -> Float[Tensor, "batch out height width"]:
    """What `layers` give one after the other, each rectified."""
    if choose_backend(x) == "reference":
        for layer in layers:
            x = layer(x, scale, relu=True)
        return x
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    parts = [(layer.weight, layer.bias, layer.dilation(scale)) for layer in layers]
    result: Tensor = _Layers.apply(x, *(part for layer in parts for part in layer))
    return result


class _Layers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *parts: Tensor) -> Tensor:
        fields = [x]
        for first in range(0, len(parts), _EACH):
            layer = parts[first : first + _EACH]
            fields.append(torch.ops.geoco.scale_steered_conv2d(fields[-1], *layer, True))
        ctx.save_for_backward(*fields, *parts)
        return fields[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        count = (len(ctx.saved_tensors) - 1) // (_EACH + 1)
        fields, parts = ctx.saved_tensors[: count + 1], ctx.saved_tensors[count + 1 :]
        grad = torch.ops.aten.threshold_backward(grad, fields[-1], 0)
        gradients: list[Tensor] = []
        for number in reversed(range(count)):
            weight, bias, dilation = parts[_EACH * number : _EACH * (number + 1)]
            grad, *own = torch.ops.geoco.scale_steered_conv2d_backward(
                grad, fields[number], weight, dilation, number > 0
            )
            gradients = [own[0], own[1].to(bias.dtype), own[2], *gradients]
        return grad, *gradients
