"""One call for a whole evaluation: factual pass, tables, files; finished tables are kept.

A killed evaluation goes on with the tables that it had not finished. Results of another model or
population are never mixed in: the folder refuses them.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from geoco import edit_maps
from geoco.errors import GeocoError
from geoco.evaluation import commands, stability
from geoco.evaluation.editing import EditRecords
from geoco.evaluation.extended_canvas import full_precision
from geoco.evaluation.factual import CenterRecords
from geoco.evaluation.figures import write_figures
from geoco.evaluation.interfaces import KnownModel, SlotModel, VideoModel
from geoco.evaluation.matched import MatchedRecords
from geoco.evaluation.tables import TABLES, Evaluation, TableProgress, build_text_tables
from geoco.evaluation.video import TubeRecords
from geoco.evaluation.video_rows import choose_seed, require_video_model
from geoco.evaluation.windows import GROUP, INITIALIZATIONS, SEED, Windows, choose_windows
from geoco.files import write_whole
from geoco.reporting.formats import format_latex, format_markdown
from geoco.reporting.paper_rows import ALL_FRAMES
from geoco.reporting.records import load_records
from geoco.reporting.results import as_values, read_table, write_table

MARKDOWN, LATEX = "tables.md", "tables.tex"

FrameChoice = Literal["all", "first"]


@dataclass(frozen=True)
class Results:
    """All finished tables of a folder as JSON holds them, and whom they are about."""

    name: str
    population: dict[str, Any]
    tables: dict[str, dict[str, Any]]
    folder: Path
    figures: tuple[Path, ...]


@full_precision()
def evaluate(
    model: SlotModel,
    dataset: Windows,
    out: Path,
    name: str,
    tables: Sequence[str] | None = None,
    batch: int = 64,
    windows: int | None = None,
    extended_windows: int | None = None,
    figures: bool = False,
    progress: TableProgress = lambda table, done, total: None,
    tile: int | None = None,
    frames: FrameChoice | None = None,
    spread: bool = False,
) -> Results:
    """Compute those of `tables` that `out` does not have yet; write all as Markdown and LaTeX.

    Without `tables`, all that fit this model and dataset. `name` says which model this is, in the
    tables and to tell its results from another's. `batch` is how many scenes are decoded at once,
    and changes nothing else. `windows` limits how many there are: the first of each video first, or
    with `spread` some at equal steps from all. The finite-grid table can be limited to fewer by
    itself, for it draws on a canvas nine times as large, `tile` slots at once (by the batch if not
    given). A model that tracks slots is scored on all frames of windows of several, unless `frames`
    says "first"; any other on the first. `figures` draws pictures of the editing table. All of it
    without TF32 and autocast, so that devices differ by rounding alone.
    """
    unknown = [table for table in tables or () if table not in TABLES]
    if unknown:
        raise GeocoError(f"there is no table '{unknown[0]}': choose from {', '.join(TABLES)}")
    whole_videos = choose_protocol(model, dataset, frames)
    shared = describe_population(model, dataset, name, windows, whole_videos, spread)
    evaluation = Evaluation(
        model, dataset, out, batch, windows, extended_windows, progress, tile, whole_videos, spread
    )
    about = {key: {**shared, **table.about(evaluation)} for key, table in TABLES.items()}
    # All are looked at first: what does not belong here should not show up after an hour.
    results = {key: read_table(out, key, about[key]) for key in TABLES}
    for key in TABLES if tables is None else tables:
        table = TABLES[key]
        if results[key] is None and (tables is not None or table.fits(evaluation)):
            values = as_values(table.compute(evaluation, evaluation.report_on(key)))
            write_table(out, key, about[key], values)
            results[key] = values
    finished = {key: values for key, values in results.items() if values is not None}
    title, texts = f"Evaluation of {name}", build_text_tables(name, finished, whole_videos)
    write_whole(out / MARKDOWN, format_markdown(title, shared, texts).encode())
    write_whole(out / LATEX, format_latex(title, shared, texts).encode())
    paths: list[Path] = []
    if figures and "editing" in finished:
        progress("figures", 0, 1)
        paths = write_figures(model, evaluation.factual, read_records(out), out, batch)
        progress("figures", 1, 1)
    return Results(name, shared, finished, out, tuple(paths))


def choose_protocol(model: SlotModel, dataset: Windows, frames: FrameChoice | None) -> bool:
    """Whether all frames of every window are scored, or the first: of single frames it is both."""
    if frames == "all":
        require_video_model(model)
    if frames == "first" or not isinstance(model, VideoModel):
        return False
    first = choose_windows(dataset, 1)
    return dataset.batch(first.tolist()).video.shape[1] > 1


def read_records(folder: Path) -> EditRecords:
    """The per-edit records that an evaluation left in its folder."""
    return load_records(folder, "editing", EditRecords)


def read_centers(folder: Path) -> CenterRecords:
    """Those of reference objects in the factual table."""
    return load_records(folder, "factual", CenterRecords)


def read_matched(folder: Path) -> MatchedRecords:
    """Those of the object-matched tables."""
    return load_records(folder, "matched", MatchedRecords)


def read_tubes(folder: Path) -> TubeRecords:
    """Those of whole videos."""
    return load_records(folder, "tubes", TubeRecords)


def describe_population(
    model: SlotModel,
    dataset: Windows,
    name: str,
    limit: int | None = None,
    whole_videos: bool = False,
    spread: bool = False,
) -> dict[str, Any]:
    """The population in full: what two results must share to be compared."""
    chosen = choose_windows(dataset, limit, spread)
    sources = dataset.sources
    names = [sources[window] for window in chosen]
    # Names alone do not tell two datasets apart; two windows do, and cost nothing.
    ends = dataset.batch([int(chosen[0]), int(chosen[-1])])
    about = {
        "model": name,
        "checksum of the model": model.fingerprint if isinstance(model, KnownModel) else None,
        "data": getattr(dataset, "description", None),
        "checksum of sources": _compute_checksum(json.dumps(names).encode()),
        "checksum of two windows": _compute_checksum(
            *(
                part.cpu().contiguous().numpy()
                for part in (ends.video, ends.masks)
                if part is not None
            )
        ),
        "frames of a window": ends.video.shape[1],
        "windows": len(chosen),
        "windows of the dataset": len(dataset),
        "videos": len(set(names)),
        "frame": "the first of each window",
        "size": model.size,
        "slots": model.slots,
        "initialization seed": f"{SEED} + window // {GROUP}",
        "initializations of PSNR": INITIALIZATIONS,
        "fewest pixels": edit_maps.FEWEST_PIXELS,
        "background": "largest factual mean alpha",
        "moves in pixels": [list(move) for move in commands.MOVES],
        "scale factors": list(commands.FACTORS),
        "donor": "next window of another source, cyclic window-major order, same rank",
        "fixed scales": list(stability.SCALES),
        "shared-background seed": stability.SEED,
    }
    if ends.masks is not None and ends.masks.shape[-2:] != ends.video.shape[-2:]:
        height, width = ends.masks.shape[-2:]
        about["size of masks"] = f"{height} x {width}, alpha enlarged bilinearly before its argmax"
    if spread and limit is not None:
        about["choice of windows"] = "at equal steps from all"
    if whole_videos:
        about |= {
            "frame": ALL_FRAMES,
            "initialization seed": f"{choose_seed(model)} + window // {GROUP}",
            "initializations of PSNR": 1,
            "donor": "the same frame of the next window of another source, cyclic, same rank",
        }
    return {key: value for key, value in about.items() if value is not None}


def _compute_checksum(*parts: Any) -> str:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return f"{checksum:08x}"
