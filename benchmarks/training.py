"""The pace of training: every mode of the schedule, its average, and where the time goes.

    python benchmarks/training.py                      # with the slots of the shipped model
    python benchmarks/training.py --peer               # also with grid_sample convolutions
    python benchmarks/training.py --weights RUN        # with those of another one
    python benchmarks/training.py --breakdown          # only where the time of the last phase goes

Slots decide the pace: the convolution is faster below dilation one than beyond. So weights are
those of a trained model, whose slots hold objects, the background, or nothing.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from lightning.fabric import Fabric
from scale_steered_conv import grid_sample_conv2d
from torch import Tensor
from training_parts import measure_median, print_breakdown

from geoco import config
from geoco.config import Config
from geoco.data import ClipBatch, open_dataset
from geoco.data.loader import Order, ResidentFeed
from geoco.models import checkpoints, decoders, pretrained
from geoco.models.build import build
from geoco.ops import ScaleSteeredConv2d, steered
from geoco.training.curriculum import Curriculum, Plan
from geoco.training.objective import Draws
from geoco.training.step import Stepper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=Path("configs/geoco.yaml"))
    parser.add_argument("--weights", default="geoco-solids", help="a shipped name, a run, or none")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--peer", action="store_true", help="also with grid_sample convolutions")
    parser.add_argument(
        "--breakdown", action="store_true", help="only the parts of a step of the last phase"
    )
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    settings = config.load(arguments.config, arguments.overrides)
    fabric = Fabric(accelerator=arguments.device, devices=1, precision=settings.train.precision)
    fabric.launch()
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    print(f"{name}, PyTorch {torch.__version__}, batch {settings.train.batch}", flush=True)

    dataset = open_dataset(settings.data, "train")
    began = time.perf_counter()
    order = Order(len(dataset), settings.train.batch, settings.train.seed)
    feed = ResidentFeed(dataset, order, fabric.device)
    _wait(fabric.device)
    making = time.perf_counter() - began
    print(f"{dataset.frame_count:,} frames resident after {making:.1f} s", flush=True)

    if arguments.breakdown:
        stepper, curriculum = _make_stepper(settings, fabric, arguments.weights)
        plan = curriculum.plan(curriculum.steps - 1)
        _make_step(stepper, feed, plan, settings)(0)
        print_breakdown(stepper, *_make_inputs(feed, 0, settings), plan, settings)
        return
    ours = _measure_schedule(
        "ours", settings, fabric, feed, arguments.weights, arguments.steps, making
    )
    if arguments.peer:
        steered.scale_steered_conv2d = _peer  # type: ignore[assignment]
        decoders.apply_steered_layers = _peer_layers  # type: ignore[attr-defined]
        theirs = _measure_schedule(
            "grid_sample", settings, fabric, feed, arguments.weights, arguments.steps, making
        )
        print(f"grid_sample takes {theirs / ours:.2f} times as long")


def _peer(
    x: Tensor, weight: Tensor, bias: Tensor, dilation: Tensor, relu: bool = False, **_: object
) -> Tensor:
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    y = grid_sample_conv2d(x, weight.to(x.dtype), bias.to(x.dtype), dilation)
    return torch.relu(y) if relu else y


def _peer_layers(x: Tensor, layers: Sequence[ScaleSteeredConv2d], scale: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x, scale, relu=True)
    return x


def _measure_schedule(
    name: str,
    settings: Config,
    fabric: Fabric,
    feed: ResidentFeed,
    weights: str,
    steps: int,
    making: float,
) -> float:
    """Every mode's step time and the schedule's average in milliseconds."""
    stepper, curriculum = _make_stepper(settings, fabric, weights)
    changes = [*curriculum.mode_starts(), curriculum.steps]
    spent = 0.0
    print(f"\n{name}\n{'from step':>10} {'ms/step':>9} {'busy':>6} {'GiB':>6}")
    for first, last in itertools.pairwise(changes):
        plan = curriculum.plan(last - 1)
        run = _make_step(stepper, feed, plan, settings)
        for index in range(6):
            run(index)
        if fabric.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        milliseconds = measure_median(run, fabric.device, steps)
        busy = _measure_busy(run, fabric.device, milliseconds)
        memory = torch.cuda.max_memory_reserved() / 2**30 if fabric.device.type == "cuda" else 0.0
        spent += milliseconds * (last - first)
        print(f"{first:>10,} {milliseconds:>9.2f} {busy:>6.1%} {memory:>6.2f}", flush=True)
    average = spent / curriculum.steps
    minutes = (spent / 1000 + making) / 60
    print(f"average {average:.2f} ms; {curriculum.steps:,} steps and data in {minutes:.1f} minutes")
    if name == "ours":
        print_breakdown(stepper, *_make_inputs(feed, 0, settings), plan, settings)
    return average


def _make_stepper(settings: Config, fabric: Fabric, weights: str) -> tuple[Stepper, Curriculum]:
    torch.manual_seed(0)
    model = build(settings.model, pretrained=weights == "none").to(fabric.device)
    if weights != "none":
        file = pretrained.find_weights(weights)
        checkpoints.load_into(model, checkpoints.read_weights(file).tensors, weights)
    return Stepper(model, settings, fabric), Curriculum(settings, model.cold_scale)


def _make_step(
    stepper: Stepper, feed: ResidentFeed, plan: Plan, settings: Config
) -> Callable[[int], None]:
    def run(index: int) -> None:
        stepper(*_make_inputs(feed, index, settings), plan)

    return run


def _make_inputs(feed: ResidentFeed, index: int, settings: Config) -> tuple[ClipBatch, Draws]:
    train, slots = settings.train, settings.model.slots.count
    generator = torch.Generator().manual_seed(index)
    frames = settings.data.window.length
    numbers = vars(Draws.sample(generator, train.batch, frames, slots)).values()
    device = feed.frames.device
    if device.type == "cuda":
        numbers = [value.pin_memory().to(device, non_blocking=True) for value in numbers]  # type: ignore[assignment]
    return feed(index), Draws(*numbers)


def _measure_busy(run: Callable[[int], object], device: torch.device, milliseconds: float) -> float:
    """The share of a step's time in which some kernel runs."""
    if device.type != "cuda":
        return 1.0
    count = 5
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for index in range(count):
            run(index)
        torch.cuda.synchronize()
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profile.events() or ()
        if str(event.device_type).endswith("CUDA")
    )
    covered, reached = 0.0, 0.0
    for start, end in spans:
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered / 1000 / count / milliseconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
