"""One call for a whole evaluation: factual pass, tables, files; finished tables are kept.

A killed evaluation goes on with the tables that it had not finished. Results of another model or
population are never mixed in: the folder refuses them.
"""

import io
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from geoco import ideal
from geoco.errors import GeocoError
from geoco.evaluation import commands, population, stability
from geoco.evaluation.editing import (
    REPLICATES,
    EditRecords,
    Records,
    edit_records,
    editing_scores,
)
from geoco.evaluation.factual import factual_scores
from geoco.evaluation.population import Factual, Progress, Windows
from geoco.evaluation.protocol import SlotModel
from geoco.evaluation.rendering import latex, markdown
from geoco.evaluation.results import as_values, read_table, write_table
from geoco.files import write_whole

TABLES = ("factual", "editing", "stability", "shared-background")
RECORDS, MARKDOWN, LATEX = "editing-records.npz", "tables.md", "tables.tex"

TableProgress = Callable[[str, int, int], None]  # what is under way, done, in total


@dataclass(frozen=True)
class Results:
    """All finished tables of a folder as JSON holds them, and whom they are about."""

    name: str
    population: dict[str, Any]
    tables: dict[str, dict[str, Any]]
    folder: Path


def evaluate(
    model: SlotModel,
    dataset: Windows,
    out: Path,
    name: str,
    tables: Sequence[str] = TABLES,
    batch: int = 64,
    windows: int | None = None,
    progress: TableProgress = lambda table, done, total: None,
) -> Results:
    """Compute those of `tables` that `out` does not have yet; write all as Markdown and LaTeX.

    `name` says which model this is, in the tables and to tell its results from another's; `batch`
    is how many scenes are decoded at once, and changes nothing else.
    """
    unknown = [table for table in tables if table not in TABLES]
    if unknown:
        raise GeocoError(f"there is no table '{unknown[0]}': choose from {', '.join(TABLES)}")
    about = describe(model, dataset, name, windows)
    work = _Work(model, dataset, out, batch, windows, progress)
    # All are looked at first: what does not belong here should not show up after an hour.
    found = {table: read_table(out, table, about) for table in TABLES}
    for table in tables:
        if found[table] is None:
            values = work.compute(table)
            write_table(out, table, about, values)
            found[table] = values
    finished = {table: values for table, values in found.items() if values is not None}
    write_whole(out / MARKDOWN, markdown(name, about, finished).encode())
    write_whole(out / LATEX, latex(name, about, finished).encode())
    return Results(name, about, finished, out)


def describe(
    model: SlotModel, dataset: Windows, name: str, limit: int | None = None
) -> dict[str, Any]:
    """The population in full: what two results must share to be compared."""
    chosen = population.chosen_windows(dataset, limit)
    sources = dataset.sources
    names = [sources[window] for window in chosen]
    # Names alone do not tell two datasets apart; two pictures do, and cost nothing.
    pictures = dataset.batch([int(chosen[0]), int(chosen[-1])]).video[:, 0]
    return {
        "model": name,
        "checksum of sources": f"{zlib.crc32(json.dumps(names).encode()):08x}",
        "checksum of two frames": f"{zlib.crc32(pictures.contiguous().numpy().data):08x}",
        "windows": len(chosen),
        "windows of the dataset": len(dataset),
        "videos": len(set(names)),
        "frame": "the first of each window",
        "size": model.size,
        "slots": model.slots,
        "initialization seed": f"{population.SEED} + window // {population.GROUP}",
        "initializations of PSNR": population.INITIALIZATIONS,
        "fewest pixels": ideal.FEWEST_PIXELS,
        "background": "largest factual mean alpha",
        "moves in pixels": [list(move) for move in commands.MOVES],
        "scale factors": list(commands.FACTORS),
        "donor": "next window of another source, cyclic window-major order, same rank",
        "interval replicates": REPLICATES,
        "fixed scales": list(stability.SCALES),
        "shared-background seed": stability.SEED,
    }


def read_records(folder: Path) -> EditRecords:
    """The per-edit records that an evaluation left in its folder."""
    path = folder / RECORDS
    try:
        with np.load(path, allow_pickle=False) as file:
            return EditRecords(
                *(
                    Records(*(file[f"{kind.name}.{part.name}"] for part in fields(Records)))
                    for kind in fields(EditRecords)
                )
            )
    except FileNotFoundError:
        raise GeocoError(f"{path}: there are no records here: evaluate 'editing' first") from None


def write_records(folder: Path, records: EditRecords) -> None:
    """Every edit as arrays, so that intervals can be made of them later."""
    arrays = {
        f"{kind.name}.{part.name}": getattr(getattr(records, kind.name), part.name)
        for kind in fields(records)
        for part in fields(Records)
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_whole(folder / RECORDS, buffer.getvalue())


@dataclass(frozen=True)
class _Work:
    """What tables are computed from; the factual pass runs once, when a table needs it."""

    model: SlotModel
    dataset: Windows
    out: Path
    batch: int
    windows: int | None
    progress: TableProgress

    @cached_property
    def factual(self) -> Factual:
        report = self._report("factual slots")
        return population.factual(self.model, self.dataset, self.batch, self.windows, report)

    def compute(self, table: str) -> dict[str, Any]:
        model, factual, batch = self.model, self.factual, self.batch
        report = self._report(table)
        if table == "factual":
            return as_values(factual_scores(model, self.dataset, factual, batch, report))
        if table == "editing":
            records = edit_records(model, factual, batch, report)
            write_records(self.out, records)
            return as_values(editing_scores(records))
        if table == "stability":
            return as_values(stability.stability_scores(model, factual, batch, report))
        return as_values(stability.shared_background_scores(model, factual, batch, report))

    def _report(self, table: str) -> Progress:
        return lambda done, total: self.progress(table, done, total)
