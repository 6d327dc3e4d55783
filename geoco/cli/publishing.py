"""`geoco publish`, `verify` and `push`: trained models for others."""

from pathlib import Path
from typing import Annotated

import typer

from geoco.cli.common import console, make_progress_bars, report_by_name
from geoco.errors import GeocoError


def publish(
    source: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run, a checkpoint or a file of weights.")
    ],
    name: Annotated[str, typer.Argument(help="What the model is to be called.")],
    places: Annotated[
        list[str] | None,
        typer.Argument(help="Where files are here, as in data.path=stores/mine."),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="What geoco eval wrote: a folder, or one JSON of it.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of models.")] = Path("weights"),
    windows: Annotated[int, typer.Option(min=1, help="Validation windows to store.")] = 20,
    note: Annotated[str, typer.Option(help="A paragraph of yours for the card.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a model of this name.")] = False,
) -> None:
    """Write a model's folder: weights, card, configuration, pictures and what can be checked.

    Example: `geoco publish runs/geoco geoco-solids --results runs/geoco/evaluation`
    """
    from geoco import publishing

    with make_progress_bars() as bars:
        folder = publishing.publish(
            source, name, out, results, windows, note, places or (), force, report_by_name(bars)
        )
    console.print(f"wrote {folder}", soft_wrap=True)


def verify(
    name: Annotated[str, typer.Argument(help="A shipped name, a published folder or a Hub id.")],
) -> None:
    """Compute a published model's first windows again, on the CPU, and compare.

    Example: `geoco verify geoco-solids`
    """
    from geoco import publishing

    verification = publishing.verify(name)
    if not verification.reproduced:
        raise GeocoError(
            f"{name}: not reproduced: {verification}; at most {publishing.PSNR_TOLERANCE} dB and "
            f"{publishing.PIXEL_TOLERANCE:.1%} are rounding"
        )
    console.print(f"{name}: reproduced: {verification}", highlight=False, soft_wrap=True)


def push(
    folder: Annotated[Path, typer.Argument(help="A folder that geoco publish wrote.")],
    repository: Annotated[str, typer.Argument(help="Where to on the Hub: user/name.")],
    private: Annotated[bool, typer.Option("--private", help="For you alone, if new.")] = False,
) -> None:
    """Put a published model on the Hugging Face Hub.

    Example: `geoco push weights/geoco-solids user/geoco-solids`
    """
    from geoco import publishing

    address = publishing.push_to_hub(folder, repository, private)
    console.print(f"pushed to {address}", soft_wrap=True)
