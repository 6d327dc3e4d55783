"""What the commands share: the console, common arguments, progress bars."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

from geoco.config import Config, Split, StoreConfig
from geoco.errors import GeocoError

console = Console()

ConfigPath = Annotated[
    Path,
    typer.Argument(help="A YAML file, or a shipped name (geoco config list).", show_default=False),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Differences, as in data.height=96.", show_default=False),
]
SplitName = Annotated[str, typer.Option("--split", help="train, val or test.")]


@contextmanager
def require_extra(name: str) -> Iterator[None]:
    """Imports that need an optional extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise GeocoError(
            f"this command needs {error.name}: pip install 'geoco-savi[{name}]'"
        ) from None


def parse_split(name: str) -> Split:
    for split in get_args(Split):
        if split == name:
            return split
    raise GeocoError(f"--split {name}: expected one of {', '.join(get_args(Split))}")


def get_store(config: Config) -> StoreConfig:
    if not isinstance(config.data, StoreConfig):
        raise GeocoError(
            f"data.kind is '{config.data.kind}': only data of kind 'store' is imported, the "
            "embedded generator needs no import"
        )
    return config.data


def update_bar(bars: Progress, task: TaskID, done: int, total: int) -> None:
    bars.update(task, completed=done, total=total)


def report_by_name(bars: Progress) -> Callable[[str, int, int], None]:
    """A report of progress by name: each name gets a bar with its first report."""
    tasks: dict[str, TaskID] = {}

    def report(name: str, done: int, total: int) -> None:
        if name not in tasks:
            tasks[name] = bars.add_task(name, total=total)
        update_bar(bars, tasks[name], done, total)

    return report


def make_progress_bars() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
