"""Muon: matrices move by their momentum with all singular values made one.

`torch.optim.Muon` does the same and is what the tests compare with. It takes one matrix after the
other, hundreds of tiny kernels a step, wants a rate that is a number, and knows no kernels of
convolutions. Here matrices of one shape are orthogonalized together, kernels are matrices with a
row per output, and rates lie on the device, so that a step can be recorded once and replayed.
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration; those of the library
ITERATIONS = 5
EPSILON = 1e-7
RMS = 0.2  # of an update's entries at rate one: about that of AdamW, so that rates are alike
SMALLEST_SIDE = 8  # thinner matrices have few directions to even out


def is_matrix(parameter: Tensor) -> bool:
    """Whether Muon is made for a parameter: matrices and kernels that are not thin."""
    if parameter.ndim < 2:
        return False
    return min(parameter.shape[0], parameter[0].numel()) >= SMALLEST_SIDE


def orthogonalize(
    matrices: Float[Tensor, "matrix row column"],
) -> Float[Tensor, "matrix row column"]:
    """The nearest half-orthogonal matrices, roughly: singular values of 0.7 to 1.2, in bf16."""
    wide = matrices.shape[1] <= matrices.shape[2]
    x = (matrices if wide else matrices.mT).bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalized. `found_inf` of one means "do nothing", as with AdamW.

    Rates may be tensors, which a recorded step reads anew each time.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], rate: float | Tensor) -> None:
        super().__init__(parameters, {"lr": rate})
        self.found_inf: Tensor | None = None
        for group in self.param_groups:
            for parameter in group["params"]:
                if not is_matrix(parameter):
                    raise ValueError(f"Muon is for matrices, not for shape {list(parameter.shape)}")
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            moving = [p for p in group["params"] if p.grad is not None]
            for alike in _by_shape(moving):
                self._step(alike, group["lr"])

    def _step(self, parameters: Sequence[nn.Parameter], rate: float | Tensor) -> None:
        """Parameters whose matrices have one shape."""
        gradient = torch.stack([_matrix(_gradient(p)) for p in parameters])
        before = torch.stack([_matrix(self.state[p]["momentum"]) for p in parameters])
        momentum = before.lerp(gradient, 1 - MOMENTUM)
        update = orthogonalize(gradient.lerp(momentum, MOMENTUM)).to(gradient.dtype)
        update = update * (RMS * max(update.shape[1:]) ** 0.5 * rate)
        if self.found_inf is not None:
            stopped = self.found_inf > 0
            momentum = torch.where(stopped, before, momentum)
            update = torch.where(stopped, torch.zeros_like(update), update)
        for parameter, kept, moved in zip(parameters, momentum, update, strict=True):
            self.state[parameter]["momentum"].copy_(kept.view_as(parameter))
            parameter.sub_(moved.view_as(parameter))


def _by_shape(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Lists of parameters whose matrices have one shape, in order of their first."""
    alike: dict[torch.Size, list[nn.Parameter]] = {}
    for parameter in parameters:
        alike.setdefault(_matrix(parameter).shape, []).append(parameter)
    return list(alike.values())


def _matrix(value: Tensor) -> Tensor:
    return value.reshape(value.shape[0], -1)


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
