"""The training loop: one explicit loop, interrupted and resumed anywhere.

A run is a function of its configuration: initial weights, the order of clips and every random
number follow from the seed and the step, so that all a checkpoint must hold is weights, moments and
the number of the step.
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from lightning.fabric import Fabric
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from torch import Tensor

from geoco import drawing
from geoco.config import Config, WindowConfig
from geoco.data import open_dataset, open_training, to_device
from geoco.data.loader import Feed, Order, ResidentFeed, StreamFeed
from geoco.errors import GeocoError
from geoco.models import checkpoints
from geoco.models.build import build
from geoco.models.interface import Model
from geoco.ops.steered import choose_backend
from geoco.training import diagnostics
from geoco.training.curriculum import TERMS, Curriculum
from geoco.training.objective import Draws
from geoco.training.run_folder import MetricsLog, Run, curves
from geoco.training.step import COLUMNS, Stepper

SCHEDULE = ("learning_rate", "reference_scale", "selector_cap")
_SHOWN = 8  # scenes of a picture
_DRAWS, _PANEL = 1, 2  # what a random stream is for


@dataclass(frozen=True)
class Machine:
    """What to train on; under torchrun or `fabric run` the launcher's own numbers count."""

    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1


def start(
    config: Config | None,
    folder: Path,
    machine: Machine,
    minutes: float | None,
    console: Console,
    origin: Path | None = None,
) -> None:
    """Go on with the run that is there, or start one by a config, maybe at a checkpoint's step."""
    if config is not None and origin is not None:
        _check_origin(origin, config)
    settings = (Run.open(folder).config if config is None else config).train
    fabric = _fabric(machine, settings.precision)
    if config is not None and fabric.is_global_zero:
        Run.create(folder, config, origin)
    fabric.barrier()
    trainer = Trainer(Run.open(folder), fabric, console)
    said = console.print if fabric.is_global_zero else lambda *_, **__: None
    said(f"{folder}: {trainer.curriculum.steps:,} steps on {backends(trainer)}", soft_wrap=True)
    if trainer.step:
        said(f"goes on at step {trainer.step:,}")
    if trainer.train(minutes):
        said(f"finished: {folder}", soft_wrap=True)
    else:
        said(
            f"stopped at step {trainer.step:,}: geoco train --resume {folder} goes on",
            soft_wrap=True,
        )


def _check_origin(origin: Path, config: Config) -> None:
    """Whether a run of this configuration can begin there; before anything is written."""
    weights = checkpoints.read_weights(origin)
    checkpoints.read_state(origin)
    model = build(config.model)
    checkpoints.load_into(model, weights.tensors, str(origin))
    if config.train.ema != weights.config.train.ema:
        raise GeocoError(
            f"{origin}: its train.ema is {weights.config.train.ema}, here it is "
            f"{config.train.ema}: averages of weights cannot begin on the way"
        )
    steps = Curriculum(config, model.cold_scale).steps
    if weights.step >= steps:
        raise GeocoError(
            f"{origin}: it is at step {weights.step:,}, and this schedule ends at {steps:,}: begin "
            "with an earlier checkpoint"
        )


def _fabric(machine: Machine, precision: Literal["bf16-mixed", "32-true"]) -> Fabric:
    kinds = ("auto", "cpu", "cuda")
    if machine.accelerator not in kinds:
        raise GeocoError(f"--accelerator {machine.accelerator}: expected one of {', '.join(kinds)}")
    if machine.accelerator == "cuda" and not torch.cuda.is_available():
        raise GeocoError("--accelerator cuda: PyTorch finds no CUDA device here; use cpu")
    accelerator = machine.accelerator
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    launched = "LOCAL_RANK" in os.environ
    many = launched or machine.devices * machine.nodes > 1
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", machine.devices))
    fabric = Fabric(
        accelerator=accelerator,
        strategy="ddp" if many else "auto",
        devices=devices,
        num_nodes=machine.nodes,
        precision=precision,
    )
    fabric.launch()
    return fabric


@dataclass(frozen=True)
class Panel:
    """Validation clips with fixed starting positions: what pictures show and best is chosen by."""

    video: Tensor
    positions: Tensor


@dataclass(frozen=True)
class Logs:
    """What is written down of a run, by step."""

    metrics: MetricsLog
    pace: MetricsLog
    validation: MetricsLog
    gradients: MetricsLog

    @staticmethod
    def open(run: Run, model: Model, step: int) -> "Logs":
        """Logs as they were after `step`, whatever a run that was killed had written after it."""
        modules = [name for name, _ in model.named_children()]
        columns = {
            "metrics": (*COLUMNS, *SCHEDULE),
            "pace": ("milliseconds_per_step", "images_per_second"),
            "validation": ("psnr",),
            "gradients": tuple(f"{term}/{module}" for term in TERMS for module in modules),
        }
        logs = []
        for name, names in columns.items():
            log = MetricsLog(run.folder / f"{name}.csv", run.tensorboard / name, names)
            # Gradients are taken before a step, the others after it.
            log.rewind(step if name == "gradients" else step + 1)
            logs.append(log)
        return Logs(*logs)


class Trainer:
    """A run in progress."""

    def __init__(self, run: Run, fabric: Fabric, console: Console) -> None:
        self.run, self.fabric, self.console = run, fabric, console
        self.config: Config = run.config
        self.settings = self.config.train
        if self.settings.batch % fabric.world_size:
            raise GeocoError(
                f"train.batch {self.settings.batch} cannot be divided among {fabric.world_size} "
                "processes: choose a multiple"
            )
        torch.manual_seed(self.settings.seed)
        self.model = build(self.config.model).to(fabric.device)
        self.curriculum = Curriculum(self.config, self.model.cold_scale)
        self.stepper = Stepper(self.model, self.config, fabric)
        self.step = 0
        self._feeds: dict[int, Feed] = {}
        self._restore()
        self.logs = Logs.open(run, self.model, self.step) if fabric.is_global_zero else None

    def train(self, minutes: float | None = None) -> bool:
        """Go on to the end, or for so many minutes; True at the end. Leaves a checkpoint always."""
        try:
            try:
                self._loop(None if minutes is None else time.monotonic() + 60 * minutes)
            finally:
                # Also after an interruption, and by `_check` not after a loss gone wrong.
                if sys.exc_info()[0] in (None, KeyboardInterrupt):
                    self._save()
        finally:
            self.close()
        if self.fabric.is_global_zero:
            curves(self.run.metrics, self.run.folder / "curves.png")
        return self._last()

    def close(self) -> None:
        if self.logs is not None:
            for log in vars(self.logs).values():
                log.close()

    def _loop(self, until: float | None) -> None:
        panel = self._panel()
        with _bar(self.console, self.fabric.is_global_zero) as bar:
            total = self.curriculum.steps
            task = bar.add_task("training", total=total, completed=self.step, pace="")
            while not self._last():
                before, at = self.step, time.monotonic()
                said = self._interval(panel, until)
                rate = (self.step - before) / (time.monotonic() - at)
                images = rate * self.settings.batch
                if self.logs is not None:
                    values = {"milliseconds_per_step": 1000 / rate, "images_per_second": images}
                    self.logs.pace.append(self.step, values)
                pace = f"{1000 / rate:.1f} ms/step {images:.0f} images/s"
                bar.update(task, completed=self.step, description=said, pace=pace)
                if until is not None and time.monotonic() > until:
                    break

    # -- the loop's parts --------------------------------------------------------------------------

    def _interval(self, panel: Panel, until: float | None) -> str:
        """Steps to the next look at the metrics, or until a time; what to say of them."""
        settings = self.settings
        while True:
            self._advance()
            looked = self.step % settings.log_every == 0 or self._last()
            said = self._look() if looked else ""
            if self.step % settings.picture_every == 0 or self._last():
                self._draw(panel)
            if self.step % settings.checkpoint_every == 0:
                self._save()
            if self.step % settings.validate_every == 0 or self._last():
                self._validate(panel)
            if looked or (until is not None and time.monotonic() > until):
                return said

    def _advance(self) -> None:
        plan = self.curriculum.plan(self.step)
        batch = self._feed(plan.mode.frames)(self.step)
        draws = self._draws(self.step, plan.mode.frames)
        if self.step % self.settings.picture_every == 0:
            norms = diagnostics.gradient_norms(self.stepper, batch, draws, plan)
            if self.logs is not None:
                self.logs.gradients.append(self.step, norms)
        self.stepper(batch, draws, plan)
        self.step += 1

    def _look(self) -> str:
        """Read the metrics off the device, write them down, say how it goes."""
        self._check()
        stepper, plan = self.stepper, self.curriculum.plan(self.step - 1)
        means = dict(zip(COLUMNS, (stepper.sums / stepper.count).tolist(), strict=True))
        stepper.sums.zero_()
        stepper.count.zero_()
        if self.logs is not None:
            self.logs.metrics.append(self.step, means | {k: getattr(plan, k) for k in SCHEDULE})
        shown = [f"{t} {means[t]:.2e}" for t in COLUMNS[:6] if t in plan.mode.terms]
        return f"{plan.phase}: {' '.join(shown)}"

    def _check(self) -> None:
        """Stop at a loss that is not finite; the weights are still those before it."""
        if float(self.stepper.stopped) == 0:
            return
        values = dict(zip(COLUMNS, self.stepper.last.tolist(), strict=True))
        broken = [name for name, value in values.items() if not np.isfinite(value)]
        self.step = self._good_steps()
        path = self._write(self.run.folder / "failed")
        raise GeocoError(
            f"step {self.step}: {', '.join(broken)} not finite; the state before this step is in "
            f"{path.relative_to(self.run.folder.parent)}: lower train.learning_rate, or look at "
            "the clips of this step"
        )

    def _good_steps(self) -> int:
        """Steps that changed the weights: the count that AdamW keeps of them."""
        counts = [int(entry["step"]) for entry in self.stepper.optimizer.state.values()]
        return max(counts, default=0)

    def _validate(self, panel: Panel) -> None:
        self._check()
        if not self.fabric.is_global_zero:
            return
        with self.fabric.autocast():
            value = diagnostics.psnr(self.model, panel.video, panel.positions)
        assert self.logs is not None
        self.logs.validation.append(self.step, {"psnr": value})
        so_far = checkpoints.find_best(self.run.checkpoints)
        if so_far is None or value > so_far.value or so_far.step > self.step:
            self._keep()
            checkpoints.mark_best(self.run.checkpoints, self.step, value)

    def _draw(self, panel: Panel) -> None:
        if not self.fabric.is_global_zero:
            return
        with self.fabric.autocast():
            shown = diagnostics.picture(
                self.model, panel.video[:_SHOWN, :1], panel.positions[:_SHOWN]
            )
        drawing.save_pictures(self.run.pictures / f"step-{self.step:08d}.png", [shown])

    def _save(self) -> None:
        self._check()
        if self.fabric.is_global_zero:
            self._keep()
        self.fabric.barrier()

    def _keep(self) -> None:
        self._write(self.run.checkpoints)
        checkpoints.prune(self.run.checkpoints, self.settings.keep)

    def _write(self, folder: Path) -> Path:
        weights, state = self.model.state_dict(), self.stepper.state()
        return checkpoints.save(folder, self.step, self.config, weights, state)

    def _restore(self) -> None:
        """Go on from the last checkpoint, if there is one."""
        checkpoints.sweep(self.run.checkpoints)
        last = checkpoints.find_latest(self.run.checkpoints)
        if last is None:
            return
        weights, state = checkpoints.read_weights(last), checkpoints.read_state(last)
        checkpoints.load_into(self.model, weights.tensors, str(last))
        self.stepper.load_state(state.tensors)
        self.step = weights.step

    def _last(self) -> bool:
        return self.step == self.curriculum.steps

    # -- inputs ------------------------------------------------------------------------------------

    def _feed(self, frames: int) -> Feed:
        """Training clips of a length; a phase with another length gets another feed."""
        if frames not in self._feeds:
            cut = WindowConfig(length=frames, stride=self.settings.stride)
            dataset = open_training(self.config, cut)
            order = Order(len(dataset), self.settings.batch, self.settings.seed)
            rank, share = self.fabric.global_rank, self.settings.batch // self.fabric.world_size

            def rows(step: int) -> np.ndarray:
                return order(step)[rank * share : (rank + 1) * share]

            kind = ResidentFeed if self.settings.feed == "resident" else StreamFeed
            self._feeds = {frames: kind(dataset, rows, self.fabric.device)}
        return self._feeds[frames]

    def _draws(self, step: int, frames: int) -> Draws:
        """This process's rows of the step's random numbers."""
        generator = self._generator(_DRAWS, step)
        whole = Draws.of(generator, self.settings.batch, frames, self.model.slot_count)
        share = self.settings.batch // self.fabric.world_size
        rows = slice(self.fabric.global_rank * share, (self.fabric.global_rank + 1) * share)
        return Draws(*(self._moved(value[rows]) for value in vars(whole).values()))

    def _panel(self) -> Panel:
        dataset = open_dataset(self.config.data, "val")
        count = min(self.settings.validation, len(dataset))
        rows = np.linspace(0, len(dataset) - 1, count).round().astype(int).tolist()
        video = self._moved(dataset.batch_frames(rows).images())
        generator = self._generator(_PANEL, 0)
        return Panel(video, self.model.draw_positions(count, generator))

    def _generator(self, purpose: int, step: int) -> torch.Generator:
        """Numbers for one purpose and step, on the CPU: the same on every machine."""
        key = np.random.SeedSequence((self.settings.seed, purpose, step))
        return torch.Generator().manual_seed(int(key.generate_state(1, np.uint64)[0] >> 1))

    def _moved(self, value: Tensor) -> Tensor:
        return to_device(value, self.fabric.device)


def backends(trainer: Trainer) -> str:
    """Where and how a run computes, in a few words."""
    device = trainer.fabric.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    convolution = choose_backend(torch.empty(0, device=device))
    how = [
        f"{trainer.fabric.world_size} x {name}",
        trainer.settings.precision,
        f"scale-steered convolution by {convolution}",
        "compiled" if trainer.stepper.compiled else "not compiled",
        "recorded steps" if trainer.stepper.graphed else "every step launched",
    ]
    return ", ".join(how)


def _bar(console: Console, shown: bool) -> Progress:
    return Progress(
        BarColumn(20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[pace]}"),
        TextColumn("{task.description}"),
        console=console,
        disable=not shown,
    )
