"""Tables whose rows are trainings: the main table, the ablations, the decoders, several seeds each.

`geoco compare --table` makes them of run folders. Nothing needs torch.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from geoco.errors import GeocoError
from geoco.files import write_whole
from geoco.reporting import paper
from geoco.reporting.cells import DASH, TextTable, format_number, label_measured
from geoco.reporting.formats import format_latex, format_markdown
from geoco.reporting.measures import count_digits
from geoco.reporting.paper import Cells, PaperTable
from geoco.reporting.results import OWN, write_table
from geoco.reporting.runs import (
    CONTROL,
    Row,
    Summary,
    check_alike,
    count_steps,
    group_runs,
    read_run,
)

NOT_RUN = "not run"
_CONTROLS = tuple(dict.fromkeys(label.rsplit(", ", 1)[0] for label, *_ in paper.ABLATION.rows))
# The rows of each table, in the paper's order.
TABLES: dict[str, tuple[str, ...]] = {
    "main": ("ISA", "SlotAug", CONTROL),
    "ablation": (CONTROL, *_CONTROLS),
    "decoders": (CONTROL, "Canonical-canvas"),
}
_TITLES = {
    "main-factual": "Factual reconstruction and geometry",
    "main-editing": "Counterfactual editing capability",
    "decoder-pictures": "Decoder implementations: reconstruction and editing",
    "decoder-geometry": "Decoder implementations: geometry",
}


def compare_runs(folders: Sequence[Path], table: str, out: Path) -> Path:
    """Write a table of runs as Markdown, LaTeX and JSON; returns the first."""
    if table not in TABLES:
        raise GeocoError(f"--table {table}: expected one of {', '.join(TABLES)}")
    rows = group_runs([read_run(folder) for folder in folders], TABLES[table])
    if table != "main":
        _check_single_recipes(rows)
        check_alike(rows)
    texts = build_tables(table, rows)
    about = describe_runs(rows)
    title = f"Trainings side by side: {table}"
    write_whole(out / f"{table}.md", format_markdown(title, about, texts).encode())
    write_whole(out / f"{table}.tex", format_latex(title, about, texts).encode())
    values = [
        {
            "row": row.label,
            "runs": [run.folder.name for run in row.runs],
            "seeds": [run.config.train.seed for run in row.runs],
            "measures": {
                column: {**vars(row.summarize(column)), "failed": row.summarize(column).failed}
                for column in _list_columns(table)
            },
        }
        for row in rows
    ]
    write_table(out, table, about, {"rows": values})
    return out / f"{table}.md"


def build_tables(table: str, rows: Sequence[Row]) -> list[TextTable]:
    """The text tables of one of `TABLES`, from its rows."""
    if table == "ablation":
        return [_build_ablation(rows)]
    if table == "decoders":
        steered = [replace(row, label="Scale-steered") for row in rows[:1]]
        named = [*steered, *rows[1:]]
        return [_build_rows(p, named) for p in (paper.DECODER_PICTURES, paper.DECODER_GEOMETRY)]
    return [_build_rows(p, rows) for p in (paper.MAIN_FACTUAL, paper.MAIN_EDITING)]


def describe_runs(rows: Sequence[Row]) -> dict[str, Any]:
    """What all runs have in common, and how they were trained."""
    runs = [run for row in rows for run in row.runs]
    first = next(run.population for run in runs if run.results)
    return {
        "training": _describe_budget(rows),
        **{name: value for name, value in first.items() if name not in OWN},
    }


def find_best(column: str, summaries: Sequence[Summary]) -> int | None:
    """The one that is ahead of every other by more than the larger of the two deviations.

    Of two rows of a single run each no deviation is known, and neither is called better.
    """

    def distance(summary: Summary) -> float:
        assert summary.mean is not None
        if column.endswith("↑"):
            return -summary.mean
        return summary.mean if column.endswith("↓") else abs(summary.mean - float(column[-1]))

    known = [number for number, summary in enumerate(summaries) if summary.mean is not None]
    if len(known) < 2:
        return None
    best = min(known, key=lambda number: distance(summaries[number]))
    for other in known:
        pair = (summaries[best], summaries[other])
        spreads = [summary.deviation for summary in pair if summary.deviation is not None]
        gap = distance(summaries[other]) - distance(summaries[best])
        if other != best and not (spreads and gap > max(spreads)):
            return None
    return best


def format_summary(summary: Summary, digits: int) -> str:
    """A mean, of several runs with their deviation and how many of them have a value."""
    if summary.runs == 0:
        return NOT_RUN
    if summary.runs == 1 and summary.defined == 1:
        return format_number(summary.mean, digits)
    center = format_number(summary.mean, digits)
    spread = "" if summary.deviation is None else f" ± {format_number(summary.deviation, digits)}"
    return f"{center}{spread} ({summary.defined}/{summary.runs})"


def _build_rows(printed: PaperTable, rows: Sequence[Row]) -> TextTable:
    """Rows of runs below the paper's, in its columns."""
    columns = printed.columns[1:]
    cells: list[Cells] = []
    for row in rows:
        values = (format_summary(row.summarize(c), count_digits(c)) for c in columns)
        cells.append((label_measured(row.label), *values))
    best = set()
    for place, column in enumerate(columns, 1):
        number = find_best(column, [row.summarize(column) for row in rows])
        best |= {(number, place)} if number is not None else set()
    title = _TITLES[printed.name]
    caption = _write_caption(rows)
    return TextTable(title, printed.columns, tuple(cells), caption, printed, frozenset(best))


def _build_ablation(rows: Sequence[Row]) -> TextTable:
    """Every control beside the whole method, in what the paper says of it."""
    printed, by_name = paper.ABLATION, {row.label: row for row in rows}
    cells: list[Cells] = []
    best = set()
    for number, (label, *_) in enumerate(printed.rows):
        name, column = label.rsplit(", ", 1)
        pair = [by_name[row].summarize(column) for row in (name, CONTROL)]
        cells.append((label_measured(label), *(format_summary(each, 4) for each in pair)))
        place = find_best(column, pair)
        best |= {(number, place + 1)} if place is not None else set()
    caption = f"Full is {CONTROL}. {_write_caption(rows)}"
    title = "Component comparisons"
    return TextTable(title, printed.columns, tuple(cells), caption, printed, frozenset(best))


def _write_caption(rows: Sequence[Row]) -> str:
    sentences = [
        f"Trained here: {_describe_budget(rows)}.",
        "Each run is scored by itself: reference errors are of objects that it has a slot for.",
    ]
    several = any(len(row.runs) > 1 for row in rows)
    if several:
        sentences.append(
            "Of several runs the mean ± the sample standard deviation, and in brackets how many of "
            "them have a value here; the others failed, or leave it undefined."
        )
    sentences.append(
        "In bold what is ahead of all others by more than the larger of the two deviations."
        if several
        else f"Each row is one run ({DASH}: undefined), so no difference is called one."
    )
    missing = [row.label for row in rows if not row.runs]
    if missing:
        sentences.append(f"Nobody has trained {', '.join(missing)} at this budget.")
    return " ".join(sentences)


def _describe_budget(rows: Sequence[Row]) -> str:
    runs = [run for row in rows for run in row.runs]
    train = runs[0].config.train
    seeds = sorted({run.config.train.seed for run in runs})
    whole = (
        "the whole schedule"
        if train.budget == 1
        else f"train.budget={train.budget:g} of {train.steps:,}"
    )
    named = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    return f"{count_steps(runs[0].config):,} steps ({whole}), batches of {train.batch}, {named}"


def _list_columns(table: str) -> list[str]:
    if table == "ablation":
        return list(dict.fromkeys(label.rsplit(", ", 1)[1] for label, *_ in paper.ABLATION.rows))
    halves = {
        "main": (paper.MAIN_FACTUAL, paper.MAIN_EDITING),
        "decoders": (paper.DECODER_PICTURES, paper.DECODER_GEOMETRY),
    }[table]
    return [column for half in halves for column in half.columns[1:]]


def _check_single_recipes(rows: Sequence[Row]) -> None:
    for row in rows:
        if row.runs and row.label != row.runs[0].row:
            raise GeocoError(
                f"{row.runs[0].folder}: another '{row.runs[0].row}' among these runs was trained "
                "otherwise: give those of one recipe"
            )
