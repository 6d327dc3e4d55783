"""A training from its beginning: on which machine, as a new run or one to go on with."""

import os
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from lightning.fabric import Fabric
from rich.console import Console

from geoco.config import Config, WindowConfig
from geoco.data import open_dataset, open_training
from geoco.data.features import read_feature_index
from geoco.errors import GeocoError
from geoco.models import checkpoints, pretrained
from geoco.models.build import build
from geoco.ops.steered import choose_backend
from geoco.training.curriculum import Curriculum
from geoco.training.metrics_log import read_metrics
from geoco.training.quality import write_run_quality
from geoco.training.run_folder import Run, StartWeights
from geoco.training.step import find_objective
from geoco.training.trainer import Trainer
from geoco.training.wandb_log import import_wandb


@dataclass(frozen=True)
class Machine:
    """What to train on; torchrun or `fabric run` say so themselves."""

    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1


def start_training(
    config: Config | None,
    folder: Path,
    machine: Machine,
    minutes: float | None,
    console: Console,
    origin: Path | None = None,
    began: float | None = None,
    weights: str | None = None,
) -> None:
    """Go on with the run that is there, or start one by a config.

    That begins anew, at the step of a checkpoint (`origin`), or anew with a model's weights.

    What cannot begin leaves no folder behind. The minutes are from `began` on, a time of the
    monotonic clock, or from now.
    """
    began = time.monotonic() if began is None else began
    until = None if minutes is None else began + 60 * minutes
    start = None
    if config is not None:
        check_start(config)
        if origin is not None:
            _check_origin(origin, config)
        if weights is not None:
            start = _read_start(weights, config)
    settings = (Run.open(folder).config if config is None else config).train
    if settings.wandb is not None:
        import_wandb()
    fabric = _launch_fabric(machine, settings.precision)
    if config is not None and fabric.is_global_zero:
        Run.create(folder, config, origin, start)
    fabric.barrier()
    run = Run.open(folder)
    try:
        with run.lock() if fabric.is_global_zero else nullcontext():
            trainer = _prepare(run, fabric, console, until, config is not None)
            finished = trainer.train(until)
    except OSError as error:
        raise GeocoError(
            f"{folder}: cannot write this run: {error.strerror}: once that is solved, "
            f"geoco train --resume {folder} goes on"
        ) from None
    if finished and fabric.is_global_zero:
        write_run_quality(folder)
    if finished:
        trainer.report.say(f"finished: {folder}{_describe_scores(run)}")
        trainer.report.say(f"next: geoco serve {folder}, or geoco eval {folder} --windows 100")
    else:
        trainer.report.say(
            f"stopped at step {trainer.step:,}: geoco train --resume {folder} goes on"
        )


def check_start(config: Config) -> None:
    """Whether a run of this configuration can begin; before anything is written."""
    find_objective(config)
    model, data = build(config.model, pretrained=False), config.data
    if (data.height, data.width) != (model.size, model.size):
        raise GeocoError(
            f"data.height={data.height} data.width={data.width}: this model reads and draws "
            f"{model.size} x {model.size} pixels: set both to {model.size}, or let "
            f"model.decoder.layers end with the side of your frames, which must be squares"
        )
    # Clips of every phase, also of those that begin after hours.
    curriculum = Curriculum(config, model.cold_scale)
    for frames in sorted({curriculum.plan(step).mode.frames for step in curriculum.mode_starts()}):
        window = WindowConfig(length=frames, stride=config.train.stride)
        if len(open_training(config, window)) == 0:
            raise GeocoError(
                f"train.phases: a phase takes clips of {frames} frames, but no video is that long"
            )
    open_dataset(data, "val")
    if config.train.features == "store" and config.train.feature_store is not None:
        read_feature_index(config.train.feature_store)


def _prepare(
    run: Run, fabric: Fabric, console: Console, until: float | None, is_new: bool
) -> Trainer:
    """A trainer that is ready for its next step; a new run that cannot begin is removed."""
    try:
        trainer = Trainer(run, fabric, console)
        trainer.report.say(
            f"{run.folder}: {trainer.curriculum.steps:,} steps on {describe_backends(trainer)}"
        )
        if trainer.step:
            trainer.report.say(f"goes on at step {trainer.step:,}")
        trainer.prepare(until)
    except Exception:
        if is_new and fabric.is_global_zero:
            run.discard()
        raise
    return trainer


def _describe_scores(run: Run) -> str:
    """The last validation, and the best."""
    scores = read_metrics(run.validation)
    if not scores["step"]:
        return ""
    best = max(range(len(scores["step"])), key=lambda row: scores["psnr"][row])
    text = f", PSNR of validation clips {scores['psnr'][-1]:.2f} dB"
    if best == len(scores["step"]) - 1:
        return f"{text}, the best so far"
    return f"{text} (best {scores['psnr'][best]:.2f} dB at step {scores['step'][best]:,.0f})"


def _check_origin(origin: Path, config: Config) -> None:
    """Whether a run of this configuration can begin there; before anything is written."""
    weights = checkpoints.read_weights(origin)
    checkpoints.read_state(origin)
    model = build(config.model, pretrained=False)
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


def _read_start(name: str, config: Config) -> StartWeights:
    """A model's weights, if the configuration's model can have them; before anything is written."""
    weights = checkpoints.read_weights(pretrained.find_weights(name))
    model = build(config.model, pretrained=False)
    checkpoints.load_into(model, weights.tensors, name)
    return StartWeights(Path(name).name, weights.config, weights.step, model.state_dict())


def _launch_fabric(machine: Machine, precision: Literal["bf16-mixed", "32-true"]) -> Fabric:
    accelerator = choose_device(machine.accelerator).type
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


def choose_device(accelerator: str) -> torch.device:
    """By its name on the command line; of `auto` what there is."""
    kinds = ("auto", "cpu", "cuda")
    if accelerator not in kinds:
        raise GeocoError(f"--accelerator {accelerator}: expected one of {', '.join(kinds)}")
    if accelerator == "cuda" and not torch.cuda.is_available():
        raise GeocoError("--accelerator cuda: PyTorch finds no CUDA device here; use cpu")
    if accelerator == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(accelerator)


def describe_backends(trainer: Trainer) -> str:
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
