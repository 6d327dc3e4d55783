"""Milliseconds of the frozen encoder: DINOv2-S/14 on frames enlarged to 336 x 336.

    python benchmarks/encoder.py [--device cuda] [--frames 64] [--depth 12]

Weights are random, which costs the same. Parts by themselves and together: eager, compiled, and
compiled in a recorded graph, as a training step runs it. `least` is the time that the products
alone take where the device is as fast as on one large product of the same type, measured here.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from geoco.config import BackboneConfig, DinoEncoderConfig
from geoco.models.encoders import DinoEncoder

SIZE = 64  # of a frame's side before it is enlarged


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    size = BackboneConfig(width=options.width, depth=options.depth, heads=options.heads)
    encoder = build_encoder(size).to(device)
    frames = torch.rand(options.frames, 3, SIZE, SIZE, device=device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"PyTorch {torch.__version__}, {name}, {options.frames} frames, bf16 autocast")
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        patches = encoder.cut_patches(frames)
        tokens = encoder.backbone(patches)
        parts: dict[str, Callable[[], Tensor]] = {
            "enlarge, normalise, cut": lambda: encoder.cut_patches(frames),
            "backbone": lambda: encoder.backbone(patches),
            "projection": lambda: encoder.project(tokens),
            "together": lambda: encoder(frames),
        }
        for label, part in parts.items():
            print_time(f"eager: {label}", measure(part, device, options.repeats))
        print_time("least, products alone", measure_least(encoder, frames, options.repeats))
        if device.type == "cuda":
            encoder.compile(dynamic=False)
            compiled = measure(parts["together"], device, options.repeats)
            print_time("compiled: together", compiled)
            replay = record(parts["together"])
            print_time("compiled and recorded", measure(replay, device, options.repeats))
            print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


def build_encoder(size: BackboneConfig) -> DinoEncoder:
    """One of random weights: nothing is read."""
    torch.manual_seed(0)
    encoder = DinoEncoder(DinoEncoderConfig(backbone=size), SIZE)
    for parameter in encoder.backbone.parameters():
        nn.init.normal_(parameter, std=0.02)
    return encoder


def measure(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The median in milliseconds, after runs that compile and choose kernels."""
    times = []
    for number in range(repeats + 3):
        synchronize(device)
        start = time.perf_counter()
        run()
        synchronize(device)
        if number >= 3:
            times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def measure_least(encoder: DinoEncoder, frames: Tensor, repeats: int) -> float:
    """Products of the whole encoder at the pace of one large product on the same device."""
    with FlopCounterMode(display=False) as counter:
        encoder(frames)
    side = 8192 if frames.is_cuda else 256
    square = torch.randn(side, side, device=frames.device, dtype=torch.bfloat16)
    one = measure(lambda: square @ square, frames.device, repeats)
    return one * counter.get_total_flops() / (2 * side**3)


def record(run: Callable[[], Tensor]) -> Callable[[], object]:
    """A CUDA graph of it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def print_time(label: str, milliseconds: float) -> None:
    print(f"{label:32}{milliseconds:10.3f} ms")


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
