"""The command line. Thin: every command is a few calls into the package."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from geoco import config as configuration
from geoco.cli import data, editing, evaluation, publishing
from geoco.cli.common import ConfigPath, Overrides, console, require_extra
from geoco.errors import GeocoError

app = typer.Typer(
    help="Slots with explicit appearance, position and scale that obey commands.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Read configurations.", no_args_is_help=True)
model_app = typer.Typer(help="Look at models.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(data.app, name="data")
app.add_typer(model_app, name="model")
app.command("slots")(editing.slots)
app.command("edit")(editing.edit)
app.command("replay")(editing.replay)
app.command("serve")(editing.serve)
app.command("eval")(evaluation.evaluate)
app.command("compare")(evaluation.compare)
app.command("calibrate")(evaluation.calibrate)
app.command("refit")(evaluation.refit)
app.command("publish")(publishing.publish)
app.command("verify")(publishing.verify)
app.command("push")(publishing.push)


def main() -> None:
    """Run the command line; bad input becomes one sentence and exit status 2."""
    try:
        app()
    except GeocoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("demo"),
    model: Annotated[
        str | None,
        typer.Option(help="As for geoco edit; a shipped one if not given.", show_default=False),
    ] = None,
) -> None:
    """Take scenes of the embedded generator apart, edit them, and measure the edits.

    Example: `geoco demo --out demo`
    """
    from geoco.demo import run as job

    job.run_demo(out, console, model)


@app.command()
def train(
    path: Annotated[
        Path | None, typer.Argument(help="A YAML file, for example configs/geoco.yaml.")
    ] = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the run.")] = None,
    resume: Annotated[Path | None, typer.Option(help="A run's folder, to go on with it.")] = None,
    origin: Annotated[
        Path | None, typer.Option("--from", help="A checkpoint of another run, to begin there.")
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
    if resume is not None and (overrides or out or origin):
        raise GeocoError(
            "--resume goes on with a run as it was started, without overrides, --out or --from"
        )
    config = None if path is None else configuration.load(path, overrides or ())
    folder = resume or out or Path("runs") / (path.stem if path else "run")
    machine = launch.Machine(accelerator, devices, nodes)
    launch.start_training(config, folder, machine, minutes, console, origin)


@app.command()
def curriculum(
    path: ConfigPath,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="A .png file.")] = Path("curriculum.png"),
) -> None:
    """Draw every weight, learning rate and the reference scale over the steps of a training.

    Example: `geoco curriculum configs/geoco.yaml --out curriculum.png`
    """
    from geoco.models.build import find_class
    from geoco.training.curriculum import Curriculum
    from geoco.training.curriculum_plot import draw_curriculum

    with require_extra("train"):
        import matplotlib  # noqa: F401

    config = configuration.load(path, overrides or ())
    plans = Curriculum(config, find_class(config.model).compute_cold_scale(config.model))
    draw_curriculum(plans, out)
    for step, what in plans.milestones():
        console.print(f"{step:>8,}  {what}", highlight=False)
    console.print(f"wrote {out}", soft_wrap=True)


@config_app.command("show")
def config_show(path: ConfigPath, overrides: Overrides = None) -> None:
    """Print the resolved configuration: defaults, bases, file and overrides together.

    Example: `geoco config show configs/solids.yaml data.height=96 data.width=96`
    """
    print(configuration.load(path, overrides or ()).to_yaml(), end="")


@model_app.command("summary")
def model_summary(path: ConfigPath, overrides: Overrides = None) -> None:
    """Print a model's parts with their parameters.

    Example: `geoco model summary configs/geoco.yaml`
    """
    from geoco.models.build import build
    from geoco.models.interface import parameter_table

    rows = parameter_table(build(configuration.load(path, overrides or ()).model))
    frozen = any(row[2] for row in rows)
    table = Table("part", "parameters", *(["frozen"] if frozen else []))
    for name, *counts in rows:
        table.add_row(name, *(f"{count:,}" for count in counts[: 1 + frozen]))
    console.print(table)
