"""A table as text, and the ways in which a number becomes a cell of it.

What is undefined is a dash. Nothing needs torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geoco.reporting.paper import Cells, PaperTable
from geoco.reporting.results import Values

DASH = "–"
KINDS = ("position", "scale", "transplant")


@dataclass(frozen=True)
class TextTable:
    """A table as plain text: `rows` are measured here, `paper` has what the paper prints."""

    title: str
    columns: Cells
    rows: tuple[Cells, ...]
    caption: str
    paper: PaperTable | None = None
    best: frozenset[tuple[int, int]] = frozenset()  # row and column of cells that are marked

    @property
    def printed(self) -> tuple[Cells, ...]:
        """The paper's rows, which say that they are the paper's, and of which data."""
        if self.paper is None:
            return ()
        return tuple(
            (f"{label} (paper, {self.paper.dataset})" if label else "", *cells)
            for label, *cells in self.paper.rows
        )


def add_rows(printed: PaperTable, title: str, rows: Sequence[Cells], caption: str) -> TextTable:
    """Our rows under the paper's, in the paper's columns."""
    return TextTable(title, printed.columns, tuple(rows), caption, printed)


def label_measured(label: str) -> str:
    return f"{label} (measured here)"


def format_intervals(label: str, estimates: Sequence[Values | None], digits: int) -> list[Cells]:
    """A row of estimates, and one below it of their intervals."""
    intervals = []
    for values in estimates:
        low, high = (format_number(look_up(values, end), digits) for end in ("low", "high"))
        intervals.append(DASH if low == high == DASH else f"[{low}, {high}]")
    centers = (format_number(look_up(values, "estimate"), digits) for values in estimates)
    return [(label, *centers), ("", *intervals)]


def format_number(value: float | None, digits: int) -> str:
    return DASH if value is None or math.isnan(value) else f"{value:.{digits}f}"


def multiply(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def format_defined(mean: Values | None) -> str:
    return DASH if mean is None else f"{mean['defined']}/{mean['total']}"


def format_share(part: int, whole: int) -> str:
    return f"{part}/{whole} ({format_number(100 * part / whole if whole else None, 2)})"


def look_up(values: Any, *path: str) -> Any:
    """What lies at the end of a path, None if it breaks off."""
    for name in path:
        values = values.get(name) if isinstance(values, Mapping) else None
    return values
