"""The scale-steered convolution: the reference by hand, every backend against the reference."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers_ops import DEVICES, NAMES, ON_GPU, SHAPES, exact, make, relative, results
from torch import Tensor

from geoco.errors import GeocoError
from geoco.ops import ScaleSteeredConv2d, choose_backend, cpu, scale_steered_conv2d

pytestmark = pytest.mark.usefixtures("no_tf32")

ROOT = Path(__file__).parents[2]


# -- the definition --------------------------------------------------------------------------------


def test_samples_by_hand() -> None:
    """One channel, a kernel that is zero but for its right tap: a shift by 1.5, half and half."""
    x = torch.tensor([[[[1.0, 2.0, 4.0, 8.0]]]])
    weight = torch.zeros(1, 1, 3, 3)
    weight[0, 0, 1, 2] = 1
    for backend in ("reference", "auto"):
        y = scale_steered_conv2d(x, weight, None, torch.tensor([1.5]), backend=backend)  # type: ignore[arg-type]
        torch.testing.assert_close(y, torch.tensor([[[[3.0, 6.0, 4.0, 0.0]]]]))
        # The corner tap of a small dilation: 0.25 down and right of each pixel.
        corner = torch.zeros(1, 1, 3, 3)
        corner[0, 0, 2, 2] = 1
        y = scale_steered_conv2d(x, corner, None, torch.tensor([0.25]), backend=backend)  # type: ignore[arg-type]
        row = torch.tensor([1.25, 2.5, 5.0, 6.0]) * 0.75
        torch.testing.assert_close(y, row.view(1, 1, 1, 4))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_dilation_one_is_the_ordinary_convolution(device: str, size: int) -> None:
    x = torch.randn(3, 4, 9, 8, device=device)
    weight, bias = torch.randn(5, 4, size, size, device=device), torch.randn(5, device=device)
    ordinary = F.conv2d(x, weight, bias, padding=size // 2)
    for backend in ("reference", "auto"):
        y = scale_steered_conv2d(x, weight, bias, torch.ones(3, device=device), backend=backend)  # type: ignore[arg-type]
        torch.testing.assert_close(y, ordinary, rtol=1e-5, atol=1e-5)


def test_whole_dilations_are_dilated_convolutions() -> None:
    x, weight = torch.randn(2, 3, 12, 12), torch.randn(4, 3, 3, 3)
    for step in (2, 3, 5):
        y = scale_steered_conv2d(x, weight, None, torch.full((2,), float(step)))
        torch.testing.assert_close(y, F.conv2d(x, weight, padding=step, dilation=step))


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_gradients_by_differences(backend: str, size: int) -> None:
    torch.manual_seed(0)
    inputs = [
        torch.randn(3, 2, 5, 6, dtype=torch.float64, requires_grad=True),
        torch.randn(3, 2, size, size, dtype=torch.float64, requires_grad=True),
        torch.randn(3, dtype=torch.float64, requires_grad=True),
        torch.tensor([0.37, 1.42, 2.83], dtype=torch.float64, requires_grad=True),
    ]
    assert torch.autograd.gradcheck(
        lambda *parts: scale_steered_conv2d(*parts, backend=backend),  # type: ignore[arg-type]
        inputs,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("step", [1.0, 2.0, 3.0])
def test_the_slope_at_a_kink_is_toward_larger_dilations(device: str, step: float) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(1, 3, 9, 9).double(), torch.randn(2, 3, 3, 3).double()
    head = torch.randn(1, 2, 9, 9).double()

    def value(at: float) -> float:
        dilation = torch.tensor([at], dtype=torch.float64)
        y = scale_steered_conv2d(x, weight, None, dilation, backend="reference")
        return float((y * head).sum())

    right, left = (
        (value(step + 1e-6) - value(step)) / 1e-6,
        (value(step) - value(step - 1e-6)) / 1e-6,
    )
    assert abs(right - left) > 0.1  # there is a kink
    for backend in ("reference", "auto"):
        kind = torch.float64 if device == "cpu" else torch.float32
        dilation = torch.tensor([step], dtype=kind, device=device, requires_grad=True)
        parts = [part.to(device, kind) for part in (x, weight, head)]
        y = scale_steered_conv2d(parts[0], parts[1], None, dilation, backend=backend)  # type: ignore[arg-type]
        (y * parts[2]).sum().backward()
        assert dilation.grad is not None
        assert float(dilation.grad) == pytest.approx(right, rel=1e-3)


# -- backends against the reference ----------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_cpu_agrees_with_the_reference(name: str) -> None:
    inputs = make(name, torch.float64, "cpu")
    actual, truth = results(inputs, "cpu"), exact(inputs)
    for part in truth:
        torch.testing.assert_close(actual[part], truth[part], rtol=1e-9, atol=1e-9, msg=part)


@pytest.mark.parametrize("name", ["plain", "not square", "odd channels", "extremes"])
def test_bands_of_rows_agree_with_the_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields here are lower than a band: with bands of four rows they have several, one shorter."""
    monkeypatch.setattr(cpu, "BAND_PIXELS", 1)
    monkeypatch.setattr(cpu, "BAND_ROWS", 4)
    inputs = make(name, torch.float64, "cpu")
    actual, truth = results(inputs, "cpu"), exact(inputs)
    for part in truth:
        torch.testing.assert_close(actual[part], truth[part], rtol=1e-9, atol=1e-9, msg=part)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", SHAPES | ON_GPU)
def test_triton_in_float32(name: str) -> None:
    inputs = make(name, torch.float32, "cuda")
    actual, truth = results(inputs, "triton"), exact(inputs)
    for part in truth:
        assert relative(actual[part], truth[part]) < 3e-5, part


def plain_in_half(inputs: list[Tensor]) -> dict[str, Tensor]:
    """What PyTorch's own operations give in the same half precision: sample, then multiply."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from scale_steered_conv import grid_sample_conv2d
    finally:
        sys.path.pop(0)
    y = grid_sample_conv2d(*inputs)
    generator = torch.Generator().manual_seed(1)
    grad = torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype)
    grads = torch.autograd.grad(y, inputs, grad.to(y.device))
    return {"y": y.detach(), **dict(zip(NAMES, grads, strict=True))}


def check_half(name: str, device: str) -> None:
    inputs = make(name, torch.bfloat16, device)
    actual, truth, plain = results(inputs, "auto"), exact(inputs), plain_in_half(inputs)
    for part in truth:
        mine, theirs = relative(actual[part], truth[part]), relative(plain[part], truth[part])
        assert mine <= 2 * theirs + 1e-3, f"{part}: {mine:.2e} against {theirs:.2e}"


@pytest.mark.parametrize("name", ["plain", "not square", "seven", "many channels"])
def test_half_precision_on_the_cpu(name: str) -> None:
    check_half(name, "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["plain", "not square", "many channels", *ON_GPU])
def test_half_precision_on_cuda(name: str) -> None:
    check_half(name, "cuda")


def test_triton_kernels_in_the_interpreter() -> None:
    """Without a GPU, Triton's interpreter runs the very same kernels on the CPU."""
    pytest.importorskip("triton", reason="the interpreter needs Triton")
    script = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import torch
from helpers_ops import SHAPES, exact, make, relative
from geoco.ops import cuda
torch.backends.cudnn.allow_tf32 = False
for name in SHAPES:
    inputs = make(name, torch.float32, "cpu")
    truth = exact(inputs)
    parts = [part.detach() for part in inputs]
    generator = torch.Generator().manual_seed(1)
    y = cuda.forward(*parts)
    grad = torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype)
    actual = (y, *cuda.backward(grad, parts[0], parts[1], parts[3]))
    for part, value in zip(truth, actual, strict=True):
        error = relative(value, truth[part])
        assert error < 1e-5, (name, part, error)
        assert value.shape == truth[part].shape, (name, part)
    rectified = cuda.forward(*parts, relu=True)
    assert relative(rectified, truth["y"].relu()) < 1e-5, name
    x = parts[0].relu()
    plain = cuda.backward(grad, x, parts[1], parts[3])
    gated = cuda.backward(grad, x, parts[1], parts[3], rectified=True)
    assert torch.equal(gated[0], plain[0] * (x > 0)), name
    assert all(map(torch.equal, gated[1:], plain[1:])), name
print("done")
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=600
    )
    assert run.stdout.strip() == "done", run.stderr


# -- as an operator --------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bias", [True, False])
def test_the_registration_is_complete(device: str, bias: bool) -> None:
    x, weight, shift, dilation = make("plain", torch.float32, device)
    operator = torch.ops.geoco.scale_steered_conv2d.default
    actual = torch.library.opcheck(operator, (x, weight, shift if bias else None, dilation))
    assert set(actual.values()) == {"SUCCESS"}


@pytest.mark.parametrize("device", DEVICES)
def test_equal_inputs_give_equal_bits(device: str) -> None:
    inputs = make("plain" if device == "cpu" else "as decoded, 64", torch.float32, device)
    first, second = results(inputs, "auto"), results(inputs, "auto")
    for part in first:
        assert torch.equal(first[part], second[part]), part


@pytest.mark.parametrize("device", DEVICES)
def test_an_empty_batch(device: str) -> None:
    x = torch.zeros(0, 4, 6, 5, device=device, requires_grad=True)
    layer = ScaleSteeredConv2d(4, 3, 3).to(device)
    y = layer(x, torch.zeros(0, device=device))
    assert y.shape == (0, 3, 6, 5)
    y.sum().backward()
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()


@pytest.mark.parametrize("device", DEVICES)
def test_memory_order_does_not_matter(device: str) -> None:
    x, weight, bias, dilation = make("not square", torch.float32, device)
    plain = scale_steered_conv2d(x.contiguous(), weight, bias, dilation)
    last = x.detach().contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(scale_steered_conv2d(last, weight, bias, dilation), plain)
    sliced = torch.cat((x, x), 2)[:, :, : x.shape[2]]
    torch.testing.assert_close(scale_steered_conv2d(sliced, weight, bias, dilation), plain)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_keeps_weights_and_dilations_wide(device: str) -> None:
    layer = ScaleSteeredConv2d(4, 3, 3).to(device)
    x = torch.randn(2, 4, 6, 6, device=device)
    scale = torch.tensor([0.2001, 0.31], device=device, requires_grad=True)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert layer.dilation(scale).dtype == torch.float32
        y = layer(x, scale)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32
    assert scale.grad is not None
    assert scale.grad.dtype == torch.float32


# -- the module ------------------------------------------------------------------------------------


def test_the_module_starts_as_a_convolution_at_its_reference_scale() -> None:
    layer = ScaleSteeredConv2d(3, 4, 5)
    x = torch.randn(2, 3, 9, 9)
    ordinary = F.conv2d(x, layer.weight, layer.bias, padding=2)
    torch.testing.assert_close(layer(x, torch.tensor([0.2, 0.2])), ordinary)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * 3 * 25 + 4 + 1


@pytest.mark.parametrize(("parameter", "gain"), [(0.0, 1.0), (1e9, 2.0), (-1e9, 0.5)])
def test_the_gain_is_bounded(parameter: float, gain: float) -> None:
    layer = ScaleSteeredConv2d(1, 1, 3)
    torch.nn.init.constant_(layer.gain, parameter)
    torch.testing.assert_close(
        layer.dilation(torch.tensor([0.2, 0.4])), gain * torch.tensor([1.0, 2])
    )


def test_the_reference_scale_moves_without_recompiling() -> None:
    """In a process of its own, where no checker of annotations stands between compiler and code."""
    script = """
import torch
from torch._dynamo.testing import CompileCounter
from geoco.ops import ScaleSteeredConv2d
layer = ScaleSteeredConv2d(3, 4, 3)
counter = CompileCounter()
compiled = torch.compile(layer, backend=counter, fullgraph=True)
x, scale = torch.randn(2, 3, 6, 6), torch.tensor([0.15, 0.5])
for reference in (0.87, 0.5, 0.2):
    layer.reference_scale.fill_(reference)
    torch.testing.assert_close(compiled(x, scale), layer(x, scale))
    moved = layer(x, scale)
assert counter.frame_count == 1, counter.frame_count
native = torch.compile(layer, fullgraph=True)
x = x.requires_grad_()
first, second = native(x, scale), layer(x, scale)
torch.testing.assert_close(first, second)
inputs = [x, *layer.parameters()]
one, two = (torch.autograd.grad(y.square().sum(), inputs) for y in (first, second))
for a, b in zip(one, two, strict=True):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
print("done")
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=600,
    )
    assert run.stdout.strip() == "done", run.stderr


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3, 4, 4), (5, 3, 2, 2), (5,), (2,)), "odd size, got 2 x 2"),
        (((2, 3, 4, 4), (5, 4, 3, 3), (5,), (2,)), "x has 3 channels, but the weight expects 4"),
        (((2, 3, 4, 4), (5, 3, 3, 3), (4,), (2,)), r"bias must have shape \[5\], got \[4\]"),
        (
            ((2, 3, 4, 4), (5, 3, 3, 3), (5,), (3,)),
            r"one dilation per sample is needed, \[2\], got",
        ),
    ],
)
def test_shapes_that_do_not_fit(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(GeocoError, match=message):
            scale_steered_conv2d(*(torch.ones(shape) for shape in shapes))
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_a_backend_of_another_device_is_refused() -> None:
    x, weight, bias, dilation = make("plain", torch.float32, "cpu")
    assert choose_backend(x) == "cpu"
    with pytest.raises(GeocoError, match="backend 'triton' does not run on cpu tensors; use 'cpu'"):
        scale_steered_conv2d(x, weight, bias, dilation, backend="triton")


def test_second_derivatives_are_refused_where_they_would_be_wrong() -> None:
    x = torch.rand(1, 2, 5, 5, requires_grad=True)
    weight = torch.rand(2, 2, 3, 3, requires_grad=True)
    y = scale_steered_conv2d(x, weight, None, torch.tensor([0.7]))
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(GeocoError, match="backend='reference' only"):
        first.sum().backward()


def test_dilation_is_never_coarse() -> None:
    layer = ScaleSteeredConv2d(2, 2, 3)
    assert layer.dilation(torch.tensor([0.3], dtype=torch.bfloat16)).dtype == torch.float32
