"""What many processes send each other, what they gain here, and what they would gain, on paper.

    python benchmarks/processes.py                          # two processes on this CPU, with gloo
    python benchmarks/processes.py --device cuda --processes 8         # eight GPUs, with NCCL

A step is one of the last phase of configs/geoco.yaml. One process with the whole batch, many with a
share each, and one with such a share take turns, so that other work on the machine hits all of them
alike. The gradient is sent as `Stepper.sum_gradients` sends it: as one vector, after the backward
pass. Times are those of the slowest process, by the clock and of the processor: others who want the
processor make many processes look better by the clock, since each of them gets its turn.

benchmarks/processes_paper.py says how the estimate for more GPUs is made.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments.lightning import find_free_network_port
from processes_paper import Traffic, print_estimates
from scaling_point import Inputs, Sizes, build_model, make_config, make_inputs
from torch import Tensor

from geoco import config
from geoco.config import Config
from geoco.training.objective import Draws
from geoco.training.step import Stepper

Times = tuple[float, float]  # by the clock and of the processor, in seconds


@dataclass(frozen=True)
class StepReport:
    """A step's times and what was measured in it, in the order of `Stepper.columns`."""

    times: Times
    losses: tuple[float, ...]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=Path("configs/geoco.yaml"))
    parser.add_argument("--weights", default="geoco-solids", help="a shipped name, a run, or none")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4, help="of all processes together")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step", type=float, default=21.85, help="ms of one GPU, 64 clips")
    parser.add_argument("--fixed", type=float, default=0.13, help="ms of these for any batch")
    parser.add_argument("--kernels", type=int, default=1544, help="of a step")
    parser.add_argument("--launch", type=float, default=5.0, help="microseconds, assumed")
    parser.add_argument("overrides", nargs="*")
    given = parser.parse_args(arguments)
    settings = make_config(
        given.config, Sizes(batch=given.batch), given.device, False, given.overrides
    )
    traffic = measure_processes(settings, given)
    print_estimates(
        traffic, given.step / 1e3, given.fixed / 1e3, given.kernels * given.launch / 1e6
    )


# -- here ------------------------------------------------------------------------------------------


def measure_processes(settings: Config, given: argparse.Namespace) -> Traffic:
    """Print what steps and sums take, and return what is sent."""
    torch.set_num_threads(given.threads)
    count = given.processes
    fabric = Fabric(accelerator=given.device, devices=1, precision=settings.train.precision)
    inputs = make_inputs(settings, fabric.device)
    whole = Worker(settings, given.weights, fabric, inputs)
    part = Worker(settings, given.weights, fabric, share_inputs(inputs, 0, count))
    rounds: list[tuple[Times, Times, Times]] = []
    with start_workers(settings, given.weights, given.device, count, given.threads) as ask:
        for _ in range(1 + given.rounds):
            one, many, share = whole.step(), ask("step"), part.step()
            rounds.append((one.times, find_slowest([each.times for each in many]), share.times))
        apart = compare(one.losses, many[0].losses)
        traffic: Traffic = ask("count_traffic")[0]
        summing, sending = (
            find_median([find_slowest(times) for times in zip(*ask(work), strict=True)])
            for work in ("sum_gradients", "all_reduce")
        )
    alone, together, one_share = map(find_median, zip(*rounds[1:], strict=True))
    load, clips = os.getloadavg()[0], given.batch // count
    print(
        f"{given.device}, {given.threads} threads a process, batch {given.batch}, load {load:.1f}"
        f"\n{'':<52}{'clock':>11}{'processor':>14}"
    )
    print_row("one process, the whole batch", alone)
    print_row(f"{count} processes, {clips} clips each", together)
    print_row(f"one process, {clips} clips", one_share)
    gains = [a / b for a, b in zip(alone, together, strict=True)]
    print(f"{'  times as fast as one':<52}{gains[0]:>8.2f}{gains[1]:>14.2f}")
    fixed = [(count * b - a) / (count - 1) for a, b in zip(alone, one_share, strict=True)]
    print_row("  what of a step does not shrink with the batch", fixed)
    print_row(f"summing gradients, {traffic.gradient:,} bytes", summing)
    print_row("  of these the all-reduce itself", sending)
    print(f"a process sends {traffic.size:,} bytes in {traffic.calls} sums and gathers a step")
    print(f"losses and norm of one and of {count} differ by {apart:.1e} of themselves at most")
    return traffic


def print_row(name: str, times: Sequence[float]) -> None:
    clock, processor = times
    print(f"{name:<52}{1000 * clock:>8.2f} ms{1000 * processor:>11.2f} ms", flush=True)


def find_slowest(times: Sequence[Times]) -> Times:
    """By each of the two measures."""
    return max(clock for clock, _ in times), max(processor for _, processor in times)


def find_median(times: Sequence[Times]) -> Times:
    clock, processor = zip(*times, strict=True)
    return statistics.median(clock), statistics.median(processor)


def compare(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference as a share of the value."""
    return max(abs(a - b) / max(abs(a), 1e-12) for a, b in zip(one, other, strict=True))


def share_inputs(inputs: Inputs, rank: int, count: int) -> Inputs:
    """The rows of one of several processes."""
    size = len(inputs.batch.video) // count
    rows = slice(rank * size, (rank + 1) * size)
    draws = Draws(*(value[rows] for value in vars(inputs.draws).values()))
    return Inputs(inputs.batch.map(lambda value: value[rows]), draws, inputs.plan)


class Worker:
    """A model in training and its rows of the batch."""

    def __init__(self, settings: Config, weights: str, fabric: Fabric, inputs: Inputs) -> None:
        self.device, self.inputs = fabric.device, inputs
        self.stepper = Stepper(build_model(settings, weights).to(self.device), settings, fabric)

    def step(self) -> StepReport:
        inputs = self.inputs
        times = self._time(lambda: self.stepper(inputs.batch, inputs.draws, inputs.plan))
        return StepReport(times, tuple(self.stepper.last.tolist()))

    def sum_gradients(self, count: int = 20) -> list[Times]:
        """Summing the last step's gradients once more, many times."""
        return [self._time(self.stepper.sum_gradients) for _ in range(count)]

    def all_reduce(self, count: int = 20) -> list[Times]:
        """The sum alone, over a vector of the gradients' size."""
        gradients = [p.grad for p in self.stepper.model.parameters() if p.grad is not None]
        flat = torch.zeros(sum(gradient.numel() for gradient in gradients), device=self.device)
        return [self._time(lambda: dist.all_reduce(flat)) for _ in range(count)]

    def count_traffic(self) -> Traffic:
        with record_sizes() as sizes:
            self.stepper(self.inputs.batch, self.inputs.draws, self.inputs.plan)
        return Traffic(len(sizes), sum(sizes), max(sizes))

    def _time(self, work: Callable[[], object]) -> Times:
        if self.stepper.fabric.world_size > 1:
            dist.barrier()
        self._wait()
        clock, processor = time.perf_counter(), time.process_time()
        work()
        self._wait()
        return time.perf_counter() - clock, time.process_time() - processor

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@contextmanager
def record_sizes() -> Iterator[list[int]]:
    """The bytes that each sum and gather over processes takes from this one."""
    sizes: list[int] = []
    reduce, gather = dist.all_reduce, dist.all_gather

    def all_reduce(value: Tensor, *rest: Any, **more: Any) -> Any:
        sizes.append(value.numel() * value.element_size())
        return reduce(value, *rest, **more)

    def all_gather(parts: list[Tensor], value: Tensor, *rest: Any, **more: Any) -> Any:
        sizes.append(value.numel() * value.element_size())
        return gather(parts, value, *rest, **more)

    dist.all_reduce, dist.all_gather = all_reduce, all_gather  # type: ignore[assignment]
    try:
        yield sizes
    finally:
        dist.all_reduce, dist.all_gather = reduce, gather


@contextmanager
def start_workers(
    settings: Config, weights: str, device: str, count: int, threads: int
) -> Iterator[Callable[[str], list[Any]]]:
    """Processes that do by name what a `Worker` can, all at once; answers are by rank."""
    context = multiprocessing.get_context("spawn")
    port = find_free_network_port()
    pipes = [context.Pipe() for _ in range(count)]
    processes = [
        context.Process(
            target=serve,
            args=(pipe, settings.to_yaml(), weights, device, (rank, count), port, threads),
            daemon=True,
        )
        for rank, (_, pipe) in enumerate(pipes)
    ]
    for process in processes:
        process.start()

    def ask(work: str) -> list[Any]:
        for pipe, _ in pipes:
            pipe.send(work)
        return [pipe.recv() for pipe, _ in pipes]

    try:
        yield ask
    finally:
        for pipe, _ in pipes:
            pipe.send("")
        for process in processes:
            process.join()


def serve(
    pipe: Connection,
    text: str,
    weights: str,
    device: str,
    place: tuple[int, int],
    port: int,
    threads: int,
) -> None:
    """One of the processes: it does what it is told until it is told nothing."""
    rank, count = place
    os.environ |= {"LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(threads)
    settings = config.loads(text)
    fabric = Fabric(
        accelerator=device, strategy="ddp", devices=count, precision=settings.train.precision
    )
    fabric.launch()
    inputs = share_inputs(make_inputs(settings, fabric.device), rank, count)
    worker = Worker(settings, weights, fabric, inputs)
    while work := pipe.recv():
        pipe.send(getattr(worker, work)())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
