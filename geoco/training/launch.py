"""A training from its beginning: on which machine, as a new run or one to go on with."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from lightning.fabric import Fabric
from rich.console import Console

from geoco.config import Config
from geoco.data.features import read_feature_index
from geoco.errors import GeocoError
from geoco.models import checkpoints
from geoco.models.build import build
from geoco.ops.steered import choose_backend
from geoco.training.curriculum import Curriculum
from geoco.training.run_folder import Run
from geoco.training.step import find_objective
from geoco.training.trainer import Trainer


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
) -> None:
    """Go on with the run that is there, or start one by a config, maybe at a checkpoint's step."""
    if config is not None and origin is not None:
        _check_origin(origin, config)
    settings = (Run.open(folder).config if config is None else config).train
    if config is not None:
        find_objective(config)
        if settings.features == "store" and settings.feature_store is not None:
            read_feature_index(settings.feature_store)
    fabric = _launch_fabric(machine, settings.precision)
    if config is not None and fabric.is_global_zero:
        Run.create(folder, config, origin)
    fabric.barrier()
    trainer = Trainer(Run.open(folder), fabric, console)
    tell = console.print if fabric.is_global_zero else lambda *_, **__: None
    tell(
        f"{folder}: {trainer.curriculum.steps:,} steps on {describe_backends(trainer)}",
        soft_wrap=True,
    )
    if trainer.step:
        tell(f"goes on at step {trainer.step:,}")
    if trainer.train(minutes):
        tell(f"finished: {folder}", soft_wrap=True)
    else:
        tell(
            f"stopped at step {trainer.step:,}: geoco train --resume {folder} goes on",
            soft_wrap=True,
        )


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
