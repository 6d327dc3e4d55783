"""Shapes and references for the steered convolution, on every device that is here."""

import torch
from torch import Tensor

from geoco.ops import scale_steered_conv2d

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
NAMES = ("x", "weight", "bias", "dilation")
# batch, in, out, height, width, kernel, dilations (repeated over the batch)
SHAPES = {
    "plain": (3, 8, 8, 8, 8, 3, (0.4, 1.3, 2.7)),
    "one below one": (2, 4, 4, 6, 6, 3, (0.999999, 0.5)),
    "not square": (3, 4, 6, 5, 11, 3, (0.3, 1.7, 0.9)),
    "odd channels": (4, 5, 7, 6, 9, 5, (0.4, 1.3, 2.7, 0.55)),
    "pointwise": (2, 17, 3, 5, 4, 1, (0.4, 1.3)),
    "seven": (2, 4, 20, 6, 5, 7, (0.9, 1.1)),
    "extremes": (4, 3, 70, 7, 5, 3, (0.0005, 20.0, 4.5, 0.02)),
    "one pixel": (2, 3, 3, 1, 1, 3, (0.4, 1.5)),
    "one row": (2, 3, 3, 1, 9, 5, (0.4, 1.5)),
    "many channels": (2, 96, 130, 4, 6, 3, (0.7, 1.9)),
    "one sample": (1, 4, 4, 6, 6, 3, (1.25,)),
}
ON_GPU = {
    "as decoded, 64": (12, 64, 64, 64, 64, 3, (0.3, 0.7, 0.99, 1.01, 1.5, 4.3)),
    "as decoded, 32": (12, 64, 64, 32, 32, 5, (0.3, 0.7, 0.99, 1.01, 1.5, 4.3)),
    "colour head": (12, 64, 3, 64, 64, 3, (0.3, 0.7, 0.99, 1.01, 1.5, 4.3)),
    "extended canvas": (4, 64, 64, 190, 190, 3, (0.5, 1.5)),
}


def make(name: str, dtype: torch.dtype, device: str) -> list[Tensor]:
    batch, inputs, outputs, height, width, size, dilation = (SHAPES | ON_GPU)[name]
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    step = torch.tensor(dilation, dtype=torch.float64).repeat(batch)[:batch]
    scale = (inputs * size * size) ** -0.5
    parts = [normal(batch, inputs, height, width), normal(outputs, inputs, size, size) * scale]
    parts += [normal(outputs), step]
    kinds = [dtype, dtype, dtype, torch.float64 if dtype == torch.float64 else torch.float32]
    # Rounded to the type under test first, so that all sides see the same numbers.
    parts_of_kinds = [part.to(kind) for part, kind in zip(parts, kinds, strict=True)]
    return [part.to(device).requires_grad_() for part in parts_of_kinds]


def results(inputs: list[Tensor], backend: str) -> dict[str, Tensor]:
    """The output and all gradients, for one fixed gradient of the output."""
    y = scale_steered_conv2d(*inputs, backend=backend)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(1)
    grad = torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype)
    grads = torch.autograd.grad(y, inputs, grad.to(y.device))
    return {"y": y.detach(), **dict(zip(NAMES, grads, strict=True))}


def exact(inputs: list[Tensor]) -> dict[str, Tensor]:
    """The reference in float64, from the very same numbers."""
    return results([part.detach().double().requires_grad_() for part in inputs], "reference")


def relative(actual: Tensor, truth: Tensor) -> float:
    scale = truth.norm().clamp(min=1e-30)
    return float((actual.double() - truth).norm() / scale)
