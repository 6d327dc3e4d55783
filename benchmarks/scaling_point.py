"""One point of benchmarks/scaling.py: a training step and an edit at given sizes.

    python benchmarks/scaling_point.py --sizes '{"slots": 6, "frames": 1, "side": 64, "batch": 1}'

The last line printed is the result as JSON. It is a program of its own, so that no point has the
memory of another one. Time on a CPU is the processor's for this process, whoever else is there.

Memory is what the work has at its largest beyond what was there before it. On a CPU that is the
resident size as Linux knows it: its peak is reset before the work, and what the allocator keeps for
later is given back first. Weights, moments of the optimiser and libraries are there before. On a
GPU it is what PyTorch has allocated.

Slots decide how long a layer takes: they are those of a trained model. Of another number of slots
the learned ones are used once more, or some are left out; layers work on fields of any size. The
model redraws such pictures less well, which changes nothing about what it computes.
"""

import argparse
import ctypes
import json
import re
import resource
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from training_parts import measure_median

from geoco import config
from geoco.config import Config
from geoco.data import ClipBatch, open_dataset
from geoco.editing.editor import Editor, Film, Scene
from geoco.models import checkpoints, pretrained
from geoco.models.build import build
from geoco.models.interface import Model
from geoco.training.curriculum import Curriculum, Plan
from geoco.training.objective import Draws
from geoco.training.step import Stepper

TRAINED = ("attention.appearance", "attention.scale")  # a row for each slot
ENOUGH = 10.0  # seconds after which two repeats will do


@dataclass(frozen=True)
class Sizes:
    """What cost may depend on."""

    slots: int = 6
    frames: int = 1
    side: int = 64
    batch: int = 1


@dataclass(frozen=True)
class Cost:
    """Of one kind of work: median seconds, bytes beyond what was there, products times two.

    On a CPU the kernel's seconds are those of the median in which memory was had from the system.
    """

    seconds: float
    kernel: float
    memory: int
    operations: int


@dataclass(frozen=True)
class Inputs:
    """What a training step takes."""

    batch: ClipBatch
    draws: Draws
    plan: Plan


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=Path("configs/geoco.yaml"))
    parser.add_argument("--weights", default="geoco-solids", help="a shipped name, a run, or none")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", type=json.loads, default={})
    parser.add_argument("--video", action="store_true", help="with the temporal initializer")
    parser.add_argument("--training-only", action="store_true")
    parser.add_argument("overrides", nargs="*")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    sizes = Sizes(**given.sizes)
    settings = make_config(given.config, sizes, given.device, given.video, given.overrides)
    costs = {"training": measure_training(settings, given.device, given.weights, given.repeats)}
    if not given.training_only:
        costs |= measure_editing(settings, given.device, given.weights, given.repeats)
    print(json.dumps({name: asdict(cost) for name, cost in costs.items()}))


def make_config(
    path: Path, sizes: Sizes, device: str, video: bool, overrides: Sequence[str] = ()
) -> Config:
    """A configuration at these sizes: the decoder's layers grow with the picture."""
    plain = config.load(path)
    decoder = plain.model.decoder
    own = decoder.layers[-1][0]
    layers = [[size * sizes.side // own, kernel] for size, kernel in decoder.layers]
    changes = [
        f"data.height={sizes.side}",
        f"data.width={sizes.side}",
        f"data.window.length={sizes.frames}",
        f"model.slots.count={sizes.slots}",
        f"model.decoder.broadcast={decoder.broadcast * sizes.side // own}",
        f"model.decoder.layers={layers}",
        f"train.batch={sizes.batch}",
    ]
    if plain.data.kind == "solids":  # clips of different videos, as few as will do
        episodes = max(sizes.batch, 2)
        changes.append(f"data.episodes={{train: {episodes}, val: 1, test: 1}}")
        changes += [f"data.frames={max(8, sizes.frames)}", "data.supersample=1"]
    if video:
        changes.append("model.temporal.enabled=true")
    if device == "cpu":
        changes.append("train.precision=32-true")
    return config.load(path, [*changes, *overrides])


# -- training --------------------------------------------------------------------------------------


def measure_training(settings: Config, device: str, weights: str, repeats: int) -> Cost:
    """One step with all terms of the objective."""
    fabric = Fabric(accelerator=device, devices=1, precision=settings.train.precision)
    fabric.launch()
    stepper = Stepper(build_model(settings, weights).to(fabric.device), settings, fabric)
    inputs = make_inputs(settings, fabric.device)

    def run(_: int = 0) -> None:
        stepper(inputs.batch, inputs.draws, inputs.plan)

    def begin() -> None:
        for _ in range(7):  # the recording included
            run()

    if device == "cuda":
        memory = measure_peak(begin, fabric.device)
    else:
        run()
        memory = measure_peak(run, fabric.device)
    seconds, kernel = measure_seconds(run, fabric.device, repeats)
    if not bool(torch.isfinite(stepper.last).all()):
        raise SystemExit("the losses are not finite: what was measured says nothing")
    return Cost(seconds, kernel, memory, count_operations(settings))


def build_model(settings: Config, weights: str) -> Model:
    """A model whose slots hold objects, the background, or nothing; `none` leaves it untrained."""
    torch.manual_seed(0)
    model = build(settings.model, pretrained=weights == "none")
    if weights == "none":
        return model
    tensors = dict(checkpoints.read_weights(pretrained.find_weights(weights)).tensors)
    rows = torch.arange(model.slot_count)
    for name in TRAINED:
        tensors[name] = tensors[name][rows % len(tensors[name])]
    model.load_state_dict({**model.state_dict(), **tensors})
    return model


def make_inputs(settings: Config, device: torch.device) -> Inputs:
    """One batch, and the plan of the schedule's last step: with all terms, and nothing moves."""
    batch, frames = settings.train.batch, settings.data.window.length
    slots = settings.model.slots.count
    clips = open_dataset(settings.data, "train").batch_frames(list(range(batch)))
    draws = Draws.sample(torch.Generator().manual_seed(0), batch, frames, slots)
    there = Draws(*(value.to(device) for value in vars(draws).values()))
    return Inputs(clips.to(device), there, plan_last(settings))


def plan_last(settings: Config) -> Plan:
    """The last step's; where there is a temporal initializer, it is on."""
    curriculum = Curriculum(settings, 1.0)
    plan = curriculum.plan(curriculum.steps - 1)
    frames, temporal = settings.data.window.length, settings.model.temporal.enabled
    return replace(plan, mode=replace(plan.mode, frames=frames, temporal=temporal))


def count_operations(settings: Config) -> int:
    """Products of a step times two, of its matrices and convolutions: counted, not computed.

    A scale-steered convolution counts as the ordinary one of its size.
    """
    fabric = Fabric(accelerator="cpu", devices=1, precision="32-true")
    batch, frames = settings.train.batch, settings.data.window.length
    side, slots = settings.data.height, settings.model.slots.count
    with FakeTensorMode(), FlopCounterMode(display=False) as counter:
        stepper = Stepper(build(settings.model, pretrained=False), settings, fabric)
        clips = ClipBatch(
            video=torch.empty(batch, frames, 3, side, side, dtype=torch.uint8),
            sources=tuple(map(str, range(batch))),
            frames=torch.empty(batch, frames, dtype=torch.int64),
            source_numbers=torch.empty(batch, dtype=torch.int64),
        )
        draws = Draws(
            torch.empty(batch, slots, 2),
            torch.empty(batch, frames, slots),
            torch.empty(batch, frames),
            torch.empty(batch),
            torch.empty(batch, 3),
            torch.empty(batch, frames),
        )
        stepper(clips, draws, plan_last(settings))
    return counter.get_total_flops()


# -- editing ---------------------------------------------------------------------------------------


def measure_editing(settings: Config, device: str, weights: str, repeats: int) -> dict[str, Cost]:
    """Reading a picture or film and drawing it; moving one slot and drawing it again."""
    place = torch.device(device)
    model = build_model(settings, weights).to(place).eval().requires_grad_(False)
    editor = Editor(pretrained.LoadedModel("scaling", model, settings, 0, (0.05, 1.0)))
    video = open_dataset(settings.data, "train").batch_frames([0]).video[0]
    frames = video.permute(0, 2, 3, 1).contiguous().numpy()

    def encode() -> Scene | Film:
        read = editor.encode(frames[0]) if len(frames) == 1 else editor.encode_video(frames)
        draw(read)
        return read

    scene = encode()
    shifts = iter(range(1000))

    def edit() -> None:
        draw(scene.move(1, dx=next(shifts) % 5 - 2.0))

    edit()
    costs = {}
    for name, work in (("encoding", encode), ("edit", edit)):
        memory = measure_peak(work, place)
        seconds, kernel = measure_seconds(lambda _, work=work: work(), place, repeats)  # type: ignore[misc]
        with FlopCounterMode(display=False) as counter:
            work()
        costs[name] = Cost(seconds, kernel, memory, counter.get_total_flops())
    return costs


def draw(frames: Scene | Film) -> None:
    """The picture or pictures, in bytes."""
    assert (frames.images if isinstance(frames, Film) else frames.image).any()


# -- measures --------------------------------------------------------------------------------------


def measure_seconds(
    run: Callable[[int], object], device: torch.device, repeats: int, enough: float = ENOUGH
) -> tuple[float, float]:
    """The median of repeats, of slow work the less of two; the kernel's part. It ran before."""
    if device.type == "cuda":
        return measure_median(run, device, max(repeats, 10)) / 1000, 0.0
    times: list[tuple[float, float]] = []
    while len(times) < repeats and (len(times) < 2 or sum(time for time, _ in times) < enough):
        before = resource.getrusage(resource.RUSAGE_SELF)
        run(len(times))
        after = resource.getrusage(resource.RUSAGE_SELF)
        kernel = after.ru_stime - before.ru_stime
        times.append((after.ru_utime - before.ru_utime + kernel, kernel))
    return statistics.median_low(times)


def measure_peak(run: Callable[[], object], device: torch.device) -> int:
    """Bytes that are in use at the most while it runs, beyond those before."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from here on
    before = _read_status("VmRSS")
    run()
    return _read_status("VmHWM") - before


def _read_status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    main()
