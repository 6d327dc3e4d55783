"""Commands of training: train a model, look at a curriculum."""

from pathlib import Path
from typing import Annotated

import typer

from geoco import config as configuration
from geoco.cli.clock import BEGAN
from geoco.cli.common import ConfigPath, Overrides, console, require_extra
from geoco.errors import GeocoError


def train(
    path: Annotated[
        Path | None, typer.Argument(help="A YAML file, or a shipped name (geoco config list).")
    ] = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the run.")] = None,
    resume: Annotated[Path | None, typer.Option(help="A run's folder, to go on with it.")] = None,
    origin: Annotated[
        Path | None, typer.Option("--from", help="A checkpoint of another run, to begin there.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Of a model, by name, run or file, to begin with at step 0.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after so long, ready to be resumed.")
    ] = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    devices: Annotated[int, typer.Option(min=1, help="Processes on this machine.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
) -> None:
    """Train a model, in one go or in pieces: a run can be interrupted and resumed at any step.

    Example: `geoco train configs/geoco.yaml train.budget=0.1 --out runs/quick`
    """
    with require_extra("train"):
        from geoco.training import launch
    if (path is None) == (resume is None):
        raise GeocoError("give either a configuration to start a run or --resume RUN, not both")
    if resume is not None and (overrides or out or origin or weights):
        raise GeocoError(
            "--resume goes on with a run as it was started, without overrides, --out, --from or "
            "--weights"
        )
    if origin is not None and weights is not None:
        raise GeocoError(
            "give either --from, which goes on at a checkpoint's step, or --weights, which begins "
            "at step 0, not both"
        )
    config = None if path is None else configuration.load(path, overrides or ())
    folder = resume or out or Path("runs") / (path.stem if path else "run")
    machine = launch.Machine(accelerator, devices, nodes)
    launch.start_training(config, folder, machine, minutes, console, origin, BEGAN, weights)


def draw_curriculum(
    path: ConfigPath,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="A .png file.")] = Path("curriculum.png"),
) -> None:
    """Draw every weight, learning rate and the reference scale over the steps of a training.

    Example: `geoco curriculum configs/geoco.yaml --out curriculum.png`
    """
    from geoco.models.build import find_class
    from geoco.training import curriculum_plot
    from geoco.training.curriculum import Curriculum

    with require_extra("figures"):
        import matplotlib  # noqa: F401

    config = configuration.load(path, overrides or ())
    plans = Curriculum(config, find_class(config.model).compute_cold_scale(config.model))
    curriculum_plot.draw_curriculum(plans, out)
    for step, what in plans.milestones():
        console.print(f"{step:>8,}  {what}", highlight=False)
    console.print(f"wrote {out}", soft_wrap=True)
