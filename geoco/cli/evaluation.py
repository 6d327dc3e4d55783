"""`geoco eval`, `compare`, `calibrate` and `refit`: measure models, and fit what was measured."""

from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.table import Table

from geoco import config as configuration
from geoco.cli.common import (
    SplitName,
    console,
    make_progress_bars,
    parse_split,
    report_by_name,
    require_extra,
)
from geoco.errors import GeocoError


def evaluate(
    run: Annotated[str, typer.Argument(help="A run, a file of weights or a shipped name.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Differences of the data, as in data.path=stores/mine."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A configuration whose data to use, not the model's own.")
    ] = None,
    split: SplitName = "val",
    tables: Annotated[
        str, typer.Option(help="all that fit, or names with commas between.")
    ] = "all",
    frames: Annotated[
        str, typer.Option(help="Of windows of several: all, or the first of each.")
    ] = "all",
    windows: Annotated[int | None, typer.Option(min=2, help="The first so many only.")] = None,
    spread: Annotated[
        bool,
        typer.Option("--spread", help="So many at equal steps from all, and not the first."),
    ] = False,
    extended_windows: Annotated[
        int | None, typer.Option(min=1, help="The same for the finite-grid table alone.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Scenes at once, 64 or, on a GPU, 256; changes no result."),
    ] = None,
    tile: Annotated[
        int | None,
        typer.Option(min=1, help="Slots at once on the finite-grid table's larger canvas."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")] = "cpu",
    figures: Annotated[bool, typer.Option(help="Draw pictures of the edits.")] = True,
    name: Annotated[
        str | None, typer.Option(help="Of the model in tables; its run and step if not given.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder; RUN/evaluation if not given.")] = None,
) -> None:
    """Measure whether a model's slots obey commands: JSON, Markdown, LaTeX and figures.

    Example: `geoco eval runs/geoco --windows 100 --extended-windows 25`
    """
    from geoco import evaluation
    from geoco.data import SolidsDataset, open_dataset
    from geoco.models import pretrained
    from geoco.reporting.headline import describe_headline

    if figures and "editing" in (tables.split(",") if tables != "all" else ("editing",)):
        with require_extra("figures"):  # before hours of measuring, not after
            import matplotlib  # noqa: F401
    loaded = pretrained.load(run, device)
    config = loaded.config
    if data is not None:
        config = config.model_copy(update={"data": configuration.load(data).data})
    for text in overrides or ():
        if not text.startswith("data."):
            raise GeocoError(f"{text}: only the data can differ here, as in data.path=stores/mine")
    if overrides:
        config = configuration.override(config, overrides)
    where = Path(run)
    beside = where if where.is_dir() else where.parent if where.exists() else Path("runs") / run
    folder = out or beside / "evaluation"
    names = None if tables == "all" else tuple(tables.split(","))
    if frames not in get_args(evaluation.FrameChoice):
        raise GeocoError(f"--frames {frames}: expected all or first")
    if spread and windows is None:
        raise GeocoError("--spread says which windows --windows takes: give their number with it")
    dataset = open_dataset(config.data, parse_split(split))
    if isinstance(dataset, SolidsDataset):
        dataset.device = device
    console.print(f"on {device}", highlight=False)
    with make_progress_bars() as bars:
        results = evaluation.evaluate(
            evaluation.adapter(loaded.model, loaded.config),
            dataset,
            folder,
            name or f"{_title(where)}, step {loaded.step:,}",
            names,
            batch or (64 if device == "cpu" else 256),
            windows,
            extended_windows,
            figures,
            report_by_name(bars),
            tile,
            "first" if frames == "first" else None,
            spread,
        )
    for line in describe_headline(results.tables):
        console.print(line, highlight=False, soft_wrap=True)
    drawn = f", {len(results.figures)} figures beside it" if results.figures else ""
    console.print(
        f"all tables: {folder / 'tables.md'}{drawn}; geoco compare puts models side by side",
        highlight=False,
        soft_wrap=True,
    )


def _title(source: Path) -> str:
    """What to call a model in tables: the run, or the shipped name, that it comes from."""
    from geoco.models import checkpoints

    given = source.resolve() if source.exists() else source
    inner = (checkpoints.FOLDER, checkpoints.WEIGHTS)
    parts = [part for part in given.parts if part not in inner and not part.startswith("step-")]
    refitted = parts[-1] == checkpoints.REFITTED
    return f"{parts[-2]} refitted" if refitted and len(parts) > 1 else parts[-1]


def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Runs that were evaluated, or folders of evaluations.")
    ],
    table: Annotated[
        str | None,
        typer.Option(help="One of the paper's, of runs as its rows: main, ablation or decoders."),
    ] = None,
    figures: Annotated[bool, typer.Option(help="Draw response curves over each other.")] = True,
    out: Annotated[Path, typer.Option(help="A folder.")] = Path("comparison"),
) -> None:
    """Put evaluated models side by side, with paired differences and their intervals.

    With `--table`, one table of the paper instead: runs become its rows by their configurations,
    and those that differ in their seed alone become one row.

    Example: `geoco compare runs/geoco runs/isa --out comparison`
    """
    if table is not None:
        from geoco.reporting.tables_runs import compare_runs

        console.print(f"wrote {compare_runs(folders, table, out)}", soft_wrap=True)
        return
    from geoco import evaluation

    if figures:
        with require_extra("figures"):
            import matplotlib  # noqa: F401
    inner = [folder / "evaluation" for folder in folders]
    chosen = [
        below if below.is_dir() else folder for below, folder in zip(inner, folders, strict=True)
    ]
    comparison = evaluation.compare(chosen, out, figures)
    console.print(f"{', '.join(comparison.models)}: wrote {out / 'comparison.md'}", soft_wrap=True)


def refit(
    run: Annotated[Path, typer.Argument(help="A run's folder or a file of weights.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Of the selector alone, as in model.selector.attention=false."),
    ] = None,
    clips: Annotated[int, typer.Option(min=1, help="Training clips to fit it to.")] = 256,
    steps: Annotated[int, typer.Option(min=1)] = 1500,
) -> None:
    """Fit the selector of a trained model anew; nothing else of the model changes.

    Example: `geoco refit runs/geoco model.selector.threshold=0.85`
    """
    from geoco.training import selector_fit

    with make_progress_bars() as bars:
        path = selector_fit.refit_selector(run, overrides or (), clips, steps, report_by_name(bars))
    console.print(f"wrote {path}", soft_wrap=True)


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

    from geoco.data import open_training
    from geoco.models import checkpoints
    from geoco.models.stored import build_stored
    from geoco.training import selector_threshold

    weights = checkpoints.read_weights(run)
    model = build_stored(weights, str(run))
    if model.selector is None:
        raise GeocoError(f"{run}: has no selector, whose threshold could be found")
    settings = weights.config.train
    generator = torch.Generator().manual_seed(settings.seed)
    points = selector_threshold.measure_operating_points(
        model,
        open_training(weights.config),
        clips,
        settings.selector.teacher,
        generator,
    )
    best = selector_threshold.choose_operating_point(points, precision)
    table = Table("threshold", "precision", "recall")
    now = weights.config.model.selector.threshold
    for point in points:
        if (
            point is best
            or abs(point.threshold - now) < 1e-9
            or round(100 * point.threshold) % 10 == 0
        ):
            name = f"{point.threshold:.2f}{' chosen' if point is best else ''}"
            table.add_row(name, f"{point.precision:.4f}", f"{point.recall:.4f}")
    console.print(table)
    console.print(f"use model.selector.threshold={best.threshold:.2f} (now {now:.2f})")
