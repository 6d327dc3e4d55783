"""The command line. Thin: every command is a few calls into the package."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import geoco
from geoco import config as configuration
from geoco.cli import data, editing, encoders, evaluation, publishing, training
from geoco.cli.common import ConfigPath, Overrides, console
from geoco.config.shipped import describe_config, list_configs
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
app.add_typer(encoders.app, name="encoder")
app.command("train")(training.train)
app.command("curriculum")(training.draw_curriculum)
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


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(geoco.__version__)
        raise typer.Exit
    return wanted


@app.callback()
def _take_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Slots with explicit appearance, position and scale that obey commands."""


@config_app.command("list")
def config_list() -> None:
    """Print the configurations that come with the package; their names serve as paths.

    Example: `geoco config list`
    """
    table = Table("name", "what it is")
    for name, file in list_configs().items():
        table.add_row(name, describe_config(file))
    console.print(table, highlight=False)


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

    settings = configuration.load(path, overrides or ()).model
    rows = parameter_table(build(settings, pretrained=False))
    frozen = any(row[2] for row in rows)
    table = Table("part", "parameters", *(["frozen"] if frozen else []))
    for name, *counts in rows:
        table.add_row(name, *(f"{count:,}" for count in counts[: 1 + frozen]))
    console.print(table)
