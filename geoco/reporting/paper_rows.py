"""Which of the paper's rows may stand beside results, and what must be said where data differ.

The paper prints Obj3D (`paper`) and MOVi-C (`paper_video`). Results are nearly always of other
data: of `solids`, of clips like MOVi-C's, of somebody's own. Every table passes `fit_to_data` on
its way into Markdown and LaTeX, so that none stands beside rows of other data without saying so.
A builder of a table takes its columns from either dataset's table and need not know the data. One
that prints something only for one dataset asks `choose_rows` for the dataset and `find_table`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from geoco.reporting import paper, paper_video
from geoco.reporting.cells import DASH, TextTable
from geoco.reporting.paper import PaperDataset, PaperTable

TABLES: dict[tuple[PaperDataset, str], PaperTable] = {
    (table.dataset, table.name): table for table in (*paper.TABLES, *paper_video.TABLES)
}
ALL_FRAMES = "all of each window"  # a population's `frame`, if its results are of whole videos
# The published names, as words: neither 'obj3d-cycles' nor 'movi-like' is the paper's data.
_NAMES: dict[PaperDataset, re.Pattern[str]] = {
    "Obj3D": re.compile(r"(?<![\w-])obj3d(?![\w-])", re.IGNORECASE),
    "MOVi-C": re.compile(r"(?<![\w-])movi[-_]c(?![\w-])", re.IGNORECASE),
}


@dataclass(frozen=True)
class PaperRows:
    """The dataset whose rows stand beside results, and the sentence that must stand with them.

    The sentence is empty where results are of that dataset.
    """

    dataset: PaperDataset
    note: str


def covers_videos(population: Mapping[str, Any]) -> bool:
    """Whether results of this population are over all frames."""
    return population.get("frame") == ALL_FRAMES


def choose_rows(population: Mapping[str, Any]) -> PaperRows:
    """The rows for results of this population, by the line of text under its key `data`.

    That is a dataset's `description`; it names Obj3D or MOVi-C where it is one of the two. For
    other data it is the dataset measured alike: Obj3D by frames, MOVi-C by videos.
    """
    data = str(population.get("data", ""))
    for dataset, name in _NAMES.items():
        if name.search(data):
            return PaperRows(dataset, "")
    nearest: PaperDataset = "MOVi-C" if covers_videos(population) else "Obj3D"
    measured = data.split(":")[0] or "data without a name"
    return PaperRows(nearest, f"Measured here: {measured}. The paper's rows are of {nearest}.")


def fit_to_data(table: TextTable, population: Mapping[str, Any]) -> TextTable:
    """A table with the paper's rows that fit this population, and with the note they need."""
    if table.paper is None:
        return table
    rows = choose_rows(population)
    printed = find_table(rows.dataset, table.paper.name) or table.paper
    note = rows.note
    if printed.dataset != rows.dataset:
        note = f"The paper prints this table of {printed.dataset} alone. {note}"
    elif printed.columns != table.columns:
        printed = _take_columns(printed, table.columns)
    return replace(table, paper=printed, caption=f"{table.caption} {note}".strip())


def find_table(dataset: PaperDataset, name: str) -> PaperTable | None:
    """The paper's table of a dataset by its name, as in `PaperTable.name`; None if it has none."""
    return TABLES.get((dataset, name))


def find_values(dataset: PaperDataset, name: str, method: str) -> tuple[dict[str, str], ...]:
    """The rows of a method as cells by column, in the paper's order; empty if it has none.

    `method` is a whole label ('GeoCo-SAVi, interior') or what stands before its comma. Intervals
    have a row of their own, below the one they belong to, with an empty label.
    """
    table = find_table(dataset, name)
    if table is None:
        return ()
    label, chosen = "", []
    for row in table.rows:
        label = row[0] or label
        if label == method or label.startswith(f"{method}, "):
            chosen.append(dict(zip(table.columns, row, strict=True)))
    return tuple(chosen)


def _take_columns(table: PaperTable, columns: tuple[str, ...]) -> PaperTable:
    """A table with these columns alone; one that it does not have is a dash."""
    places = [
        table.columns.index(column) if column in table.columns else None for column in columns
    ]
    rows = tuple(
        (row[0], *(DASH if place is None else row[place] for place in places[1:]))
        for row in table.rows
    )
    return replace(table, columns=columns, rows=rows)
