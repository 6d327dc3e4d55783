"""The scale-steered convolution against its peers, forward and backward, all in one run.

    python benchmarks/scale_steered_conv.py [--device cuda] [--batch 384]

Every sample has its own dilation, uniform in [0.3, 1.8]. Backward means the gradients of input,
weight, bias and dilation (cuDNN's ordinary convolution has no dilation to differentiate). Times are
medians. The floor is the larger of two times: the ordinary convolution's multiplications (three
products, forward and two gradients) at the rate of a large matrix product measured here, and every
tensor read and written once at the bandwidth of a large copy measured here.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from geoco.ops import choose_backend, scale_steered_conv2d

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
Convolution = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def grid_sample_conv2d(x: Tensor, weight: Tensor, bias: Tensor, dilation: Tensor) -> Tensor:
    """All taps sampled by one call of `grid_sample`, then multiplied: the vectorised peer."""
    batch, channels, height, width = x.shape
    size = weight.shape[-1]
    tap = torch.arange(size, device=x.device) - size // 2
    offset = dilation[:, None] * tap
    rows = offset[:, :, None] + torch.arange(height, device=x.device)
    columns = offset[:, :, None] + torch.arange(width, device=x.device)
    shape = (batch, size, size, height, width)
    y = (rows * (2 / (height - 1)) - 1)[:, :, None, :, None].expand(shape)
    across = (columns * (2 / (width - 1)) - 1)[:, None, :, None, :].expand(shape)
    grid = torch.stack((across, y), -1).view(batch, size * size * height, width, 2).to(x.dtype)
    samples = F.grid_sample(x, grid, align_corners=True).view(batch, channels, size**2, -1)
    result = torch.einsum("ock,bckp->bop", weight.flatten(2), samples)
    return result.view(batch, -1, height, width) + bias[:, None, None]


def deformable_conv2d(x: Tensor, weight: Tensor, bias: Tensor, dilation: Tensor) -> Tensor:
    """torchvision's deformable convolution, its offsets set to what the dilation asks for."""
    from torchvision.ops import deform_conv2d  # type: ignore[import-not-found,unused-ignore]

    batch, _, height, width = x.shape
    size = weight.shape[-1]
    tap = torch.arange(size, device=x.device) - size // 2
    away = (dilation - 1)[:, None, None] * torch.stack(
        torch.meshgrid(tap, tap, indexing="ij"), -1
    ).view(1, -1, 2)
    offset = away.view(batch, -1, 1, 1).expand(-1, -1, height, width)
    # It has no bfloat16; float16 moves as many bytes.
    half = (part.half() for part in (x, offset, weight, bias))
    result: Tensor = deform_conv2d(*half, padding=size // 2)
    return result


def ordinary_conv2d(x: Tensor, weight: Tensor, bias: Tensor, dilation: Tensor) -> Tensor:
    """The library's convolution with taps one pixel apart."""
    return F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    batch = arguments.batch or (384 if device.type == "cuda" else 6)
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    threads = "" if device.type == "cuda" else f", {torch.get_num_threads()} threads"
    print(f"PyTorch {torch.__version__}, {name}{threads}, batch {batch}, 64 -> 64 channels, {kind}")
    ceilings = _ceilings(device)
    for size, side in ((3, 64), (5, 32)):
        _table(device, batch, kind, size, side, ceilings)


def _table(
    device: torch.device,
    batch: int,
    kind: torch.dtype,
    size: int,
    side: int,
    ceilings: tuple[float, float],
) -> None:
    inputs = _inputs(device, batch, kind, size, side)
    backend = choose_backend(inputs[0])
    peers: dict[str, Convolution] = {"ordinary convolution": ordinary_conv2d}
    if device.type == "cuda":
        from steered_peers import materialized_conv2d

        peers["grid_sample, compiled"] = torch.compile(grid_sample_conv2d)
        peers["materialised by Triton"] = materialized_conv2d
        peers["deform_conv2d"] = deformable_conv2d
    else:
        peers["grid_sample, vectorised"] = grid_sample_conv2d
    ours = _measure(scale_steered_conv2d, inputs)
    products = 3 * 2 * batch * side**4 // side**2 * 64 * 64 * size**2
    moved = 6 * batch * 64 * side**2 * inputs[0].element_size()
    floor = max(products / ceilings[0], moved / ceilings[1]) * 1e3
    print(f"\n{size} x {size} at {side} x {side}, backend '{backend}'")
    print(f"{'':26}{'forward':>10}{'both':>10}{'memory':>10}{'TFLOP/s':>9}{'TB/s':>7}{'ours':>8}")
    rows = {"scale-steered (ours)": ours}
    for peer, function in peers.items():
        rows[peer] = _measure(function, inputs)
    for row, (forward, both, memory) in rows.items():
        rate, bandwidth = products / both / 1e9, moved / both / 1e9
        ratio = f"{both / ours[1]:.2f}x"
        print(
            f"{row:26}{forward:8.3f}ms{both:8.3f}ms{memory:7.0f}MiB{rate:9.2f}{bandwidth:7.3f}"
            f"{ratio:>8}"
        )
    print(f"floor {floor:.3f} ms: ours is {ours[1] / floor:.1f} times that")
    _agree(inputs)


def _inputs(device: torch.device, batch: int, kind: torch.dtype, size: int, side: int) -> Inputs:
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, generator=generator)

    x = normal(batch, 64, side, side).to(kind)
    if device.type == "cuda":
        x = x.contiguous(memory_format=torch.channels_last)
    weight = normal(64, 64, size, size) / (64 * size * size) ** 0.5
    dilation = torch.rand(batch, device=device, generator=generator) * 1.5 + 0.3
    parts = (x, weight.to(kind), normal(64).to(kind), dilation)
    return tuple(part.requires_grad_() for part in parts)  # type: ignore[return-value]


def _measure(function: Convolution, inputs: Inputs) -> tuple[float, float, float]:
    """Milliseconds forward and forward with backward, and the peak of memory beyond the inputs."""
    with torch.no_grad():
        output = function(*inputs)
    grad = torch.randn_like(output)

    def both() -> None:
        y = function(*inputs)
        wanted = [
            part for part in inputs if part is not inputs[3] or function is not ordinary_conv2d
        ]
        torch.autograd.grad(y, wanted, grad)

    def forward() -> None:
        with torch.no_grad():
            function(*inputs)

    first, second = _median(forward, inputs[0].device), _median(both, inputs[0].device)
    memory = 0.0
    if inputs[0].is_cuda:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        both()
        memory = (torch.cuda.max_memory_allocated() - before) / 2**20
    return first, second, memory


def _median(function: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        import triton.testing

        result: float = triton.testing.do_bench(function, warmup=50, rep=300, return_mode="median")
        return result
    function()
    seconds = []
    for _ in range(11):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) * 1e3


def _ceilings(device: torch.device) -> tuple[float, float]:
    """Multiplications and bytes per second of a large matrix product and a large copy."""
    on_gpu = device.type == "cuda"
    side = 8192 if on_gpu else 1024
    a = torch.randn(side, side, device=device).to(torch.bfloat16 if on_gpu else torch.float32)
    rate = 2 * side**3 / _median(lambda: a @ a, device) * 1e3
    source = torch.randn(2**30 // 4 if on_gpu else 2**26 // 4, device=device)
    target = torch.empty_like(source)
    bandwidth = 8 * source.numel() / _median(lambda: target.copy_(source), device) * 1e3
    print(f"ceilings: {rate / 1e12:.2f} TFLOP/s, {bandwidth / 1e12:.3f} TB/s")
    return rate, bandwidth


def _agree(inputs: Inputs) -> None:
    """Largest error against the float64 reference on the first samples, relative to its range."""
    some = tuple(part[:4] if place in (0, 3) else part for place, part in enumerate(inputs))
    exact = scale_steered_conv2d(*(part.detach().double() for part in some), backend="reference")
    error = (scale_steered_conv2d(*some) - exact).abs().max() / exact.abs().max()
    print(f"largest error against the reference: {error.item():.1e} of its range")


if __name__ == "__main__":
    main()
