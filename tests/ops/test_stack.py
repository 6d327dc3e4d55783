"""Rectified scale-steered layers: alone, and several as one step of autograd."""

import pytest
import torch
from helpers_ops import DEVICES, make

from geoco.ops import ScaleSteeredConv2d, apply_steered_layers, scale_steered_conv2d

pytestmark = pytest.mark.usefixtures("no_tf32")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["plain", "not square", "odd channels"])
def test_rectified_results_and_their_gradients(device: str, name: str) -> None:
    kind = torch.float64 if device == "cpu" else torch.float32
    inputs = make(name, kind, device)
    plain = scale_steered_conv2d(*inputs).relu()
    head = torch.randn(plain.shape, generator=torch.Generator().manual_seed(1)).to(plain)
    wanted = torch.autograd.grad((plain * head).sum(), inputs)
    for backend in ("auto", "reference"):
        actual = scale_steered_conv2d(*inputs, relu=True, backend=backend)  # type: ignore[call-overload]
        torch.testing.assert_close(actual, plain, rtol=1e-4, atol=1e-5)
        gradients = torch.autograd.grad((actual * head).sum(), inputs)
        for gradient, other in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(gradient, other, rtol=1e-3, atol=1e-4)


def layers(device: str, kind: torch.dtype) -> list[ScaleSteeredConv2d]:
    torch.manual_seed(0)
    stack = [ScaleSteeredConv2d(4, 6, 3), ScaleSteeredConv2d(6, 5, 5), ScaleSteeredConv2d(5, 3, 3)]
    for number, layer in enumerate(stack):
        torch.nn.init.constant_(layer.gain, 0.2 * number - 0.1)
    return [layer.to(device, kind) for layer in stack]


@pytest.mark.parametrize("device", DEVICES)
def test_layers_in_one_step_are_the_layers_one_by_one(device: str) -> None:
    kind = torch.float64 if device == "cpu" else torch.float32
    stack = layers(device, kind)
    x = torch.randn(5, 4, 7, 6, device=device, dtype=kind, requires_grad=True)
    scale = torch.tensor([0.1, 0.17, 0.2, 0.31, 0.9], device=device, dtype=kind, requires_grad=True)
    inputs = [x, scale, *(p for layer in stack for p in layer.parameters())]
    single = x
    for layer in stack:
        single = torch.relu(layer(single, scale))
    together = apply_steered_layers(x, stack, scale)
    assert (together == 0).any()
    assert (together > 0).any()
    torch.testing.assert_close(together, single)
    head = torch.randn_like(single)
    wanted = torch.autograd.grad((single * head).sum(), inputs)
    # Twice: training has two backward passes, for two sums of terms.
    for kept in (True, False):
        actual = torch.autograd.grad((together * head).sum(), inputs, retain_graph=kept)
        for gradient, other in zip(actual, wanted, strict=True):
            torch.testing.assert_close(gradient, other)


def test_gradients_of_layers_against_differences() -> None:
    stack = layers("cpu", torch.float64)
    x = torch.rand(2, 4, 4, 5, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([0.13, 0.37], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: apply_steered_layers(a, stack, b), (x, scale))


@pytest.mark.parametrize("device", DEVICES)
def test_layers_under_autocast(device: str) -> None:
    stack = layers(device, torch.float32)
    x = torch.randn(2, 4, 6, 6, device=device)
    scale = torch.tensor([0.15, 0.5], device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        together = apply_steered_layers(x, stack, scale)
        single = x
        for layer in stack:
            single = torch.relu(layer(single, scale))
    assert together.dtype == torch.bfloat16
    torch.testing.assert_close(together, single, rtol=0.02, atol=0.02)
    together.float().sum().backward()
    assert stack[0].weight.grad is not None
    assert stack[0].weight.grad.dtype == torch.float32
