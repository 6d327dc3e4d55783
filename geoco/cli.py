"""The command line. Thin: every command is a few calls into the package."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from geoco import config as configuration
from geoco.config import Config, Split, Store
from geoco.errors import GeocoError

app = typer.Typer(
    help="Slots with explicit appearance, position and scale that obey commands.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Read configurations.", no_args_is_help=True)
data_app = typer.Typer(help="Make, import and look at data.", no_args_is_help=True)
model_app = typer.Typer(help="Look at models.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(data_app, name="data")
app.add_typer(model_app, name="model")

console = Console()

ConfigPath = Annotated[
    Path, typer.Argument(help="A YAML file, for example configs/solids.yaml.", show_default=False)
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Differences, as in data.height=96.", show_default=False),
]
SplitName = Annotated[str, typer.Option("--split", help="train, val or test.")]


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
) -> None:
    """Generate scenes, draw them with their masks and edit them exactly.

    Example: `geoco demo --out demo`
    """
    from geoco import demo as job

    job.run(out, console)


@app.command()
def train(
    path: Annotated[
        Path | None, typer.Argument(help="A YAML file, for example configs/geoco.yaml.")
    ] = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the run.")] = None,
    resume: Annotated[Path | None, typer.Option(help="A run's folder, to go on with it.")] = None,
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
    with _extra("train"):
        from geoco import train as training
    if (path is None) == (resume is None):
        raise GeocoError("give either a configuration to start a run or --resume RUN, not both")
    if resume is not None and (overrides or out):
        raise GeocoError(
            "--resume goes on with a run as it was started, without overrides or --out"
        )
    config = None if path is None else configuration.load(path, overrides or ())
    folder = resume or out or Path("runs") / (path.stem if path else "run")
    training.start(config, folder, training.Machine(accelerator, devices, nodes), minutes, console)


@app.command()
def curriculum(
    path: ConfigPath,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="A .png file.")] = Path("curriculum.png"),
) -> None:
    """Draw every weight, learning rate and the reference scale over the steps of a training.

    Example: `geoco curriculum configs/geoco.yaml --out curriculum.png`
    """
    from geoco.curriculum import Curriculum, picture
    from geoco.geometry import uniform_scale

    with _extra("train"):
        import matplotlib  # noqa: F401

    config = configuration.load(path, overrides or ())
    # Tokens lie four pixels apart; DINOv2 gives 24 x 24 of them for any image.
    tokens = 24 if config.model.encoder.kind == "dino" else config.model.decoder.layers[-1][0] // 4
    plans = Curriculum(config, uniform_scale(tokens))
    picture(plans, out)
    for step, what in plans.milestones():
        console.print(f"{step:>8,}  {what}", highlight=False)
    console.print(f"wrote {out}", soft_wrap=True)


@app.command("eval")
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run's folder or a file of weights.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Differences of the data, as in data.path=stores/mine."),
    ] = None,
    split: SplitName = "val",
    tables: Annotated[str, typer.Option(help="all, or names with commas between.")] = "all",
    windows: Annotated[int | None, typer.Option(min=2, help="The first so many only.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Scenes at once; changes no result.")] = 64,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="A folder; RUN/evaluation if not given.")] = None,
) -> None:
    """Measure whether a model's slots obey commands: tables as JSON and Markdown.

    Example: `geoco eval runs/geoco --windows 100 --tables factual,editing`
    """
    import torch

    from geoco import checkpoints, evaluation
    from geoco.data import open_dataset
    from geoco.model import GeoCo

    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise GeocoError(f"--device {device}: expected cpu, or cuda where PyTorch finds one")
    weights = checkpoints.read_weights(run)
    config = weights.config
    if overrides:
        config = configuration.override(config, overrides)
    model = GeoCo(config.model)
    checkpoints.load_into(model, weights.tensors, str(run))
    folder = out or (run if run.is_dir() else run.parent) / "evaluation"
    names = evaluation.TABLES if tables == "all" else tuple(tables.split(","))
    console.print(f"on {device}", highlight=False)
    with _progress() as bars:
        tasks: dict[str, TaskID] = {}

        def report(table: str, done: int, total: int) -> None:
            if table not in tasks:
                tasks[table] = bars.add_task(table, total=total)
            bars.update(tasks[table], completed=done, total=total)

        evaluation.evaluate(
            evaluation.GeoCoModel(model.to(device).eval()),
            open_dataset(config.data, _split(split)),
            folder,
            f"{config.model.decoder.design}, step {weights.step:,}",
            names,
            batch,
            windows,
            report,
        )
    console.print(f"wrote {folder / 'tables.md'}", soft_wrap=True)


@app.command()
def calibrate(
    run: Annotated[Path, typer.Argument(help="A run's folder or a file of weights.")],
    clips: Annotated[int, typer.Option(min=1, help="Training clips to look at.")] = 256,
    precision: Annotated[
        float, typer.Option(min=0, max=1, help="How often the selector must be right.")
    ] = 0.95,
) -> None:
    """Find the selector's threshold on a panel of the training split.

    Example: `geoco calibrate runs/geoco --clips 256`
    """
    import torch

    from geoco import calibration, checkpoints
    from geoco.data import open_dataset
    from geoco.model import GeoCo

    weights = checkpoints.read_weights(run)
    model = GeoCo(weights.config.model)
    checkpoints.load_into(model, weights.tensors, str(run))
    settings = weights.config.train
    generator = torch.Generator().manual_seed(settings.seed)
    found = calibration.operating_points(
        model,
        open_dataset(weights.config.data, "train"),
        clips,
        settings.selector.teacher,
        generator,
    )
    best = calibration.choose(found, precision)
    table = Table("threshold", "precision", "recall")
    now = weights.config.model.selector.threshold
    for point in found:
        if (
            point is best
            or abs(point.threshold - now) < 1e-9
            or round(100 * point.threshold) % 10 == 0
        ):
            name = f"{point.threshold:.2f}{' chosen' if point is best else ''}"
            table.add_row(name, f"{point.precision:.4f}", f"{point.recall:.4f}")
    console.print(table)
    console.print(f"use model.selector.threshold={best.threshold:.2f} (now {now:.2f})")


@config_app.command("show")
def config_show(path: ConfigPath, overrides: Overrides = None) -> None:
    """Print the resolved configuration: defaults, bases, file and overrides together.

    Example: `geoco config show configs/solids.yaml data.height=96 data.width=96`
    """
    print(configuration.load(path, overrides or ()).to_yaml(), end="")


@data_app.command("import")
def data_import(path: ConfigPath, overrides: Overrides = None) -> None:
    """Import real videos into a store, once. Run it again to go on after an interruption.

    Example: `geoco data import configs/obj3d.yaml data.source.path=~/OBJ3D data.path=stores/obj3d`
    """
    from geoco.data.importing import ImportProgress, import_data

    store = _store(configuration.load(path, overrides or ()))
    with _progress() as bars:
        tasks = {}

        def report(progress: ImportProgress) -> None:
            if progress.split not in tasks:
                tasks[progress.split] = bars.add_task(progress.split, total=progress.total)
            bars.update(tasks[progress.split], completed=progress.done)

        written = import_data(store, report)
    for split, folder in written.items():
        console.print(f"{split}: {folder}", soft_wrap=True)


@data_app.command("inspect")
def data_inspect(
    path: Annotated[Path, typer.Argument(help="A YAML file or a store's folder.")],
    overrides: Overrides = None,
    verify: Annotated[bool, typer.Option(help="Recompute the checksums of stores.")] = False,
) -> None:
    """Print what a dataset holds.

    Example: `geoco data inspect stores/obj3d --verify`
    """
    from geoco.data.inspecting import describe, stores_below
    from geoco.data.store import verify as verify_store

    if path.is_dir():
        stores = stores_below(path)
        rows = describe(stores)
    else:
        data = configuration.load(path, overrides or ()).data
        stores = stores_below(data.path) if isinstance(data, Store) else []
        rows = describe(data)
    table = Table(*rows[0])
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)
    if verify:
        with _progress() as bars:
            for store in stores:
                task = bars.add_task(f"checking {store.name}", total=None)
                verify_store(store, partial(_advance, bars, task))
        console.print("all checksums are right")


@data_app.command("preview")
def data_preview(
    path: ConfigPath,
    overrides: Overrides = None,
    split: SplitName = "train",
    count: Annotated[int, typer.Option(min=1, max=200, help="Clips to show.")] = 8,
    zoom: Annotated[int, typer.Option(min=1, max=16)] = 2,
    out: Annotated[Path, typer.Option(help="A .png sheet or an animated .gif.")] = Path(
        "preview.png"
    ),
) -> None:
    """Draw clips with their masks: a contact sheet (.png) or an animation (.gif).

    Example: `geoco data preview configs/solids-video.yaml --count 4 --out preview.gif`
    """
    from geoco.data import open_dataset
    from geoco.data.inspecting import preview

    dataset = open_dataset(configuration.load(path, overrides or ()).data, _split(split))
    preview(dataset, out, count, zoom)
    console.print(f"wrote {out}", soft_wrap=True)


@model_app.command("summary")
def model_summary(path: ConfigPath, overrides: Overrides = None) -> None:
    """Print a model's parts with their parameters.

    Example: `geoco model summary configs/geoco.yaml`
    """
    from geoco.model import GeoCo, parameter_table

    rows = parameter_table(GeoCo(configuration.load(path, overrides or ()).model))
    frozen = any(row[2] for row in rows)
    table = Table("part", "parameters", *(["frozen"] if frozen else []))
    for name, *counts in rows:
        table.add_row(name, *(f"{count:,}" for count in counts[: 1 + frozen]))
    console.print(table)


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Imports that need an optional extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise GeocoError(
            f"this command needs {error.name}: pip install 'geoco-savi[{name}]'"
        ) from None


def _split(name: str) -> Split:
    for split in get_args(Split):
        if split == name:
            return split
    raise GeocoError(f"--split {name}: expected one of {', '.join(get_args(Split))}")


def _store(config: Config) -> Store:
    if not isinstance(config.data, Store):
        raise GeocoError(
            f"data.kind is '{config.data.kind}': only data of kind 'store' is imported, the "
            "embedded generator needs no import"
        )
    return config.data


def _advance(bars: Progress, task: TaskID, done: int, total: int) -> None:
    bars.update(task, completed=done, total=total)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )


if __name__ == "__main__":
    main()
