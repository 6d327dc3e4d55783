"""One call for a whole evaluation: factual pass, tables, files; finished tables are kept.

A killed evaluation goes on with the tables that it had not finished. Results of another model or
population are never mixed in: the folder refuses them.
"""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from geoco import edit_maps
from geoco.errors import GeocoError
from geoco.evaluation import commands, covariance_bounds, matched, stability
from geoco.evaluation import windows as population
from geoco.evaluation.editing import REPLICATES, EditRecords, edit_records, editing_scores
from geoco.evaluation.extended_canvas import full_precision
from geoco.evaluation.factual import CenterRecords, center_records, factual_scores
from geoco.evaluation.figures import write_figures
from geoco.evaluation.finite_grid import covariance_scores
from geoco.evaluation.interfaces import ExtendedModel, KnownModel, SlotModel, VideoModel
from geoco.evaluation.matched import MatchedRecords
from geoco.evaluation.video import TubeRecords, tube_records, tube_scores
from geoco.evaluation.windows import Factual, Progress, Windows
from geoco.files import write_whole
from geoco.metrics import rgb
from geoco.reporting import records as archive
from geoco.reporting.formats import latex, markdown
from geoco.reporting.results import as_values, read_table, write_table
from geoco.reporting.tables import grids

TABLES = (
    "factual",
    "editing",
    "stability",
    "shared-background",
    "matched",
    "finite-grid",
    "tubes",
)
MARKDOWN, LATEX = "tables.md", "tables.tex"

TableProgress = Callable[[str, int, int], None]  # what is under way, done, in total


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
) -> Results:
    """Compute those of `tables` that `out` does not have yet; write all as Markdown and LaTeX.

    Without `tables`, all that fit this model and dataset. `name` says which model this is, in the
    tables and to tell its results from another's. `batch` is how many scenes are decoded at once,
    and changes nothing else. The finite-grid table can be limited to fewer windows by itself, for
    it draws on a canvas nine times as large, `tile` slots at once (by the batch if not given).
    `figures` draws pictures of the editing table. All of it without TF32 and autocast, so that
    devices differ by rounding alone.
    """
    unknown = [table for table in tables or () if table not in TABLES]
    if unknown:
        raise GeocoError(f"there is no table '{unknown[0]}': choose from {', '.join(TABLES)}")
    about = describe(model, dataset, name, windows)
    work = _Work(model, dataset, out, batch, windows, extended_windows, progress, tile)
    abouts = {table: about | _OWN.get(table, {}) for table in TABLES}
    if extended_windows is not None:
        abouts["finite-grid"] |= {"windows of this table": extended_windows}
    # All are looked at first: what does not belong here should not show up after an hour.
    found = {table: read_table(out, table, abouts[table]) for table in TABLES}
    for table in TABLES if tables is None else tables:
        if found[table] is None and (tables is not None or work.fits(table)):
            values = work.compute(table)
            write_table(out, table, abouts[table], values)
            found[table] = values
    finished = {table: values for table, values in found.items() if values is not None}
    drawn = grids(name, finished)
    write_whole(out / MARKDOWN, markdown(f"Evaluation of {name}", about, drawn).encode())
    write_whole(out / LATEX, latex(f"Evaluation of {name}", about, drawn).encode())
    paths: list[Path] = []
    if figures and "editing" in finished:
        progress("figures", 0, 1)
        paths = write_figures(model, work.factual, read_records(out), out, batch)
        progress("figures", 1, 1)
    return Results(name, about, finished, out, tuple(paths))


def read_records(folder: Path) -> EditRecords:
    """The per-edit records that an evaluation left in its folder."""
    return archive.read(folder, "editing", EditRecords)


def read_centers(folder: Path) -> CenterRecords:
    """Those of reference objects in the factual table."""
    return archive.read(folder, "factual", CenterRecords)


def read_matched(folder: Path) -> MatchedRecords:
    """Those of the object-matched tables."""
    return archive.read(folder, "matched", MatchedRecords)


def read_tubes(folder: Path) -> TubeRecords:
    """Those of whole videos."""
    return archive.read(folder, "tubes", TubeRecords)


def describe(
    model: SlotModel, dataset: Windows, name: str, limit: int | None = None
) -> dict[str, Any]:
    """The population in full: what two results must share to be compared."""
    chosen = population.chosen_windows(dataset, limit)
    sources = dataset.sources
    names = [sources[window] for window in chosen]
    # Names alone do not tell two datasets apart; two windows do, and cost nothing.
    ends = dataset.batch([int(chosen[0]), int(chosen[-1])])
    seen = (ends.video, ends.masks)
    about = {
        "model": name,
        "checksum of the model": model.fingerprint if isinstance(model, KnownModel) else None,
        "data": getattr(dataset, "description", None),
        "checksum of sources": _checksum(json.dumps(names).encode()),
        "checksum of two windows": _checksum(
            *(part.cpu().contiguous().numpy() for part in seen if part is not None)
        ),
        "frames of a window": ends.video.shape[1],
        "windows": len(chosen),
        "windows of the dataset": len(dataset),
        "videos": len(set(names)),
        "frame": "the first of each window",
        "size": model.size,
        "slots": model.slots,
        "initialization seed": f"{population.SEED} + window // {population.GROUP}",
        "initializations of PSNR": population.INITIALIZATIONS,
        "fewest pixels": edit_maps.FEWEST_PIXELS,
        "background": "largest factual mean alpha",
        "moves in pixels": [list(move) for move in commands.MOVES],
        "scale factors": list(commands.FACTORS),
        "donor": "next window of another source, cyclic window-major order, same rank",
        "fixed scales": list(stability.SCALES),
        "shared-background seed": stability.SEED,
    }
    return {key: value for key, value in about.items() if value is not None}


# What the tables' own definitions depend on, besides what all share.
_OWN: dict[str, dict[str, Any]] = {
    "factual": {"fewest pixels of a reference object": edit_maps.FEWEST_PIXELS},
    "editing": {
        "interval replicates": REPLICATES,
        "interior": "object and ideal image avoid the outermost band of pixels",
    },
    "matched": {
        "interval replicates": matched.REPLICATES,
        "fewest pixels of a reference object": edit_maps.FEWEST_PIXELS,
        "editing region": f"supports expanded by {rgb.EXPANSION} pixels",
        "changed pixels": f"by more than {255 * rgb.CHANGED:.0f}/255",
    },
    "finite-grid": {
        "fewest pixels of a measurement": covariance_bounds.FEWEST_PIXELS,
        "precision": "float32, no TF32",
    },
    "tubes": {"interval replicates": REPLICATES},
}


def _checksum(*parts: Any) -> str:
    found = 0
    for part in parts:
        found = zlib.crc32(part, found)
    return f"{found:08x}"


@dataclass(frozen=True)
class _Work:
    """What tables are computed from; the factual pass runs once, when a table needs it."""

    model: SlotModel
    dataset: Windows
    out: Path
    batch: int
    windows: int | None
    extended_windows: int | None
    progress: TableProgress
    tile: int | None

    @cached_property
    def factual(self) -> Factual:
        report = self._report("factual slots")
        return population.factual(self.model, self.dataset, self.batch, self.windows, report)

    def fits(self, table: str) -> bool:
        """Whether this model and this dataset can have a table."""
        match table:
            case "stability" | "shared-background":
                return self.factual.explicit
            case "matched":
                return self.dataset.batch([0]).masks is not None
            case "finite-grid":
                return isinstance(self.model, ExtendedModel)
            case "tubes":
                first = self.dataset.batch([0])
                known = first.masks is not None and first.video.shape[1] > 1
                return known and isinstance(self.model, VideoModel)
            case _:
                return True

    def compute(self, table: str) -> dict[str, Any]:
        model, dataset, batch = self.model, self.dataset, self.batch
        report = self._report(table)
        match table:
            case "factual":
                if self.factual.reference is not None:
                    archive.write(self.out, table, center_records(self.factual))
                return as_values(factual_scores(model, self.factual, batch, report))
            case "editing":
                edits = edit_records(model, self.factual, batch, report)
                archive.write(self.out, table, edits)
                return as_values(editing_scores(edits))
            case "stability":
                return as_values(stability.stability_scores(model, self.factual, batch, report))
            case "shared-background":
                return as_values(
                    stability.shared_background_scores(model, self.factual, batch, report)
                )
            case "matched":
                records = matched.matched_records(model, dataset, self.factual, batch, report)
                archive.write(self.out, table, records)
                return as_values(matched.matched_scores(records))
            case "finite-grid":
                return as_values(
                    covariance_scores(
                        model, self.factual, batch, self.extended_windows, report, self.tile
                    )
                )
            case _:
                tubes = tube_records(model, dataset, batch, self.windows, report)
                archive.write(self.out, table, tubes)
                return as_values(tube_scores(tubes))

    def _report(self, table: str) -> Progress:
        return lambda done, total: self.progress(table, done, total)
