"""Several models side by side: the same tables with a row for each, and paired differences.

Models are compared only on one population. Object-matched scores are then over the edits that are
valid for all of them, position errors over the reference objects that all of them have a slot for,
whole videos over the pairs that all of them have. A kind of edit that a model cannot be asked for
is undefined for it, and does not count against the others.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from geoco import drawing, metrics
from geoco.errors import GeocoError
from geoco.evaluation.commands import KINDS
from geoco.evaluation.editing import REPLICATES as TUBE_REPLICATES
from geoco.evaluation.editing import EditRecords
from geoco.evaluation.factual import CenterRecords, ReferenceErrors, average_reference_errors
from geoco.evaluation.figures import FOLDER, draw_drift, draw_errors, draw_response
from geoco.evaluation.matched import REPLICATES, SAME_FOR_ALL, MatchedRecords, score_matched
from geoco.evaluation.run import read_centers, read_matched, read_records, read_tubes
from geoco.evaluation.tables import TABLES, build_text_tables
from geoco.evaluation.video import Pair, TubeRecords, compare_tubes, find_common_pairs, score_tubes
from geoco.files import write_whole
from geoco.metrics import Interval
from geoco.reporting.cells import TextTable, format_number, look_up
from geoco.reporting.formats import format_latex, format_markdown
from geoco.reporting.paper import Cells
from geoco.reporting.paper_rows import covers_videos
from geoco.reporting.results import OWN, as_values, read_results, write_table

NAME = "comparison"

# What is compared edit by edit: the column, the record, and what it is multiplied by.
_MEASURES = (
    ("F1 (%)", "f1", 100.0),
    ("Oracle PSNR: full image", "oracle", 1.0),
    ("Oracle PSNR: region", "oracle_region", 1.0),
    ("Exact PSNR: full image", "exact", 1.0),
    ("Exact PSNR: region", "exact_region", 1.0),
    ("Exact F1 (%)", "exact_f1", 100.0),
    ("RGB MAE ×10³", "change", 1000.0),
    ("Changed pixels (%)", "changed", 100.0),
)


@dataclass(frozen=True)
class Difference:
    """A model less the first one, on the same edits: mean over videos and its paired interval."""

    model: str
    kind: str
    measure: str
    edits: int
    value: Interval


@dataclass(frozen=True)
class Comparison:
    """Models in the order in which they were given; tables are those that all of them have."""

    models: tuple[str, ...]
    population: dict[str, Any]
    tables: dict[str, dict[str, dict[str, Any]]]  # by model, then by table
    differences: tuple[Difference, ...]
    folder: Path


def compare(folders: Sequence[Path], out: Path, figures: bool = False) -> Comparison:
    """Put finished evaluations side by side, and write what comes of it to a folder."""
    if len(folders) < 2:
        raise GeocoError("a comparison needs the results of at least two models")
    evaluations = [read_results(folder, tuple(TABLES)) for folder in folders]
    names = _tell_apart([str(population["model"]) for population, _ in evaluations])
    shared = [table for table in TABLES if all(table in tables for _, tables in evaluations)]
    if not shared:
        raise GeocoError("these evaluations have no table in common: evaluate the same tables")
    population = _check_population(folders, shared)
    results = [{table: tables[table] for table in shared} for _, tables in evaluations]
    if all(look_up(values, "factual", "reference_errors") for values in results):
        centers = [read_centers(folder) for folder in folders]
        for values, errors in zip(results, average_common_errors(centers), strict=True):
            values["factual"] = values["factual"] | {"reference_errors": as_values(errors)}
    differences: tuple[Difference, ...] = ()
    if "matched" in shared:
        matched = [read_matched(folder) for folder in folders]
        pool = find_common_pool(matched)
        matched = keep_carried_by_all(matched)
        for values, records in zip(results, matched, strict=True):
            values["matched"] = as_values(score_matched(records, pool))
        differences = compute_differences(names, matched, pool)
    if "tubes" in shared:
        tubes = [read_tubes(folder) for folder in folders]
        pairs = find_common_pairs(tubes)
        for values, of_videos in zip(results, tubes, strict=True):
            values["tubes"] = as_values(score_tubes(of_videos, pairs))
        differences += compute_tube_differences(names, tubes, pairs)
    comparison = Comparison(
        tuple(names),
        {"models": ", ".join(names)} | population,
        dict(zip(names, results, strict=True)),
        differences,
        out,
    )
    _write(comparison)
    if figures and "editing" in shared:
        edits = [read_records(folder) for folder in folders]
        _draw(dict(zip(names, edits, strict=True)), int(population["size"]), out)
    return comparison


def find_common_pool(models: Sequence[MatchedRecords]) -> np.ndarray:
    """The edits of reference objects that are valid for the reference and for all models."""
    first = models[0]
    for other in models[1:]:
        for name in SAME_FOR_ALL:
            if not np.array_equal(getattr(first, name), getattr(other, name)):
                raise GeocoError(f"the object-matched records are of other edits: {name} differs")
    valid = np.all([model.valid | ~model.taken for model in models], axis=0)
    return np.asarray(first.reference_valid & valid)


def average_common_errors(models: Sequence[CenterRecords]) -> list[ReferenceErrors]:
    """Position errors over the reference objects for which they are defined for all models."""
    first = models[0]
    for other in models[1:]:
        if not np.array_equal((first.window, first.label), (other.window, other.label)):
            raise GeocoError("the factual records are of other reference objects")
    common = np.all([model.defined for model in models], axis=0)
    return [average_reference_errors(model, common) for model in models]


def keep_carried_by_all(models: Sequence[MatchedRecords]) -> list[MatchedRecords]:
    """Preservation is over edits that every model could carry out: associations are common."""
    carried = np.all(
        [(model.edited & ~np.isnan(model.change)) | ~model.taken for model in models], axis=0
    )
    return [
        replace(
            model,
            change=np.where(carried, model.change, np.nan),
            changed=np.where(carried, model.changed, np.nan),
        )
        for model in models
    ]


def compute_differences(
    names: Sequence[str], models: Sequence[MatchedRecords], pool: np.ndarray
) -> tuple[Difference, ...]:
    """Each model less the first: differences of edits, their means by video, intervals of those."""
    first, differences = models[0], []
    for name, model in zip(names[1:], models[1:], strict=True):
        for index, kind in enumerate(KINDS):
            for title, part, factor in _MEASURES:
                mine = first.kind == index
                gap = factor * (getattr(model, part) - getattr(first, part))
                kept = mine & np.isfinite(gap) & (pool if part == "f1" else True)
                if not kept.any() or (part == "f1" and kind == "transplant"):
                    continue
                means = metrics.video_means(gap[kept], first.video[kept])
                interval = metrics.paired_interval(means, REPLICATES)
                differences.append(Difference(name, kind, title, int(kept.sum()), interval))
    return tuple(differences)


def compute_tube_differences(
    names: Sequence[str], models: Sequence[TubeRecords], pairs: Sequence[Pair]
) -> tuple[Difference, ...]:
    """Each model less the first in whole-video editing, on the pairs that all have."""
    return tuple(
        Difference(name, kind, "Tube F1 (%)", len(pairs), gap)
        for name, model in zip(names[1:], models[1:], strict=True)
        for kind, gap in compare_tubes(models[0], model, pairs).items()
    )


def merge_tables(
    results: Mapping[str, Mapping[str, Any]], whole_videos: bool = False
) -> list[TextTable]:
    """The tables of all models, one row after another below the paper's."""
    every: dict[str, dict[str, TextTable]] = {}  # by title, then by model
    for name, tables in results.items():
        for table in build_text_tables(name, tables, whole_videos):
            every.setdefault(table.title, {})[name] = table
    merged = []
    for same in every.values():
        rows = drop_repeated_rows([row for table in same.values() for row in table.rows])
        caption = merge_captions({name: table.caption for name, table in same.items()})
        merged.append(replace(next(iter(same.values())), rows=rows, caption=caption))
    return merged


def drop_repeated_rows(rows: Sequence[Cells]) -> tuple[Cells, ...]:
    """Rows with those that continue them, such as intervals; what models share stands once."""
    blocks: list[list[Cells]] = []
    for row in rows:
        if row[0]:
            blocks.append([row])
        else:
            blocks[-1].append(row)
    return tuple(row for block in dict.fromkeys(map(tuple, blocks)) for row in block)


def merge_captions(captions: Mapping[str, str]) -> str:
    """What all models' captions have in common once; sentences that differ for each model."""
    sentences = [re.split(r"(?<=\.) ", caption) for caption in captions.values()]
    merged: list[str] = []
    for alike in itertools.zip_longest(*sentences, fillvalue=""):
        if len(set(alike)) == 1:
            merged.append(alike[0])
        else:
            merged += [f"{name}: {one}" for name, one in zip(captions, alike, strict=True) if one]
    return " ".join(merged)


def build_difference_table(differences: Sequence[Difference], first: str) -> TextTable:
    rows = tuple(
        (
            f"{one.model} − {first}",
            one.kind,
            one.measure,
            format_number(one.value.estimate, 4),
            f"[{format_number(one.value.low, 4)}, {format_number(one.value.high, 4)}]",
            "yes" if one.value.low > 0 or one.value.high < 0 else "no",
            str(one.edits),
        )
        for one in differences
    )
    columns = ("Models", "Edit", "Measure", "Difference", "95% interval", "excludes 0", "N")
    caption = (
        "The same edits of the same reference objects; means within videos, then over videos, with "
        f"paired intervals from {REPLICATES:,} source-video replicates. Tube F1 is of the pairs of "
        f"videos that all have, drawn alike for both in each of {TUBE_REPLICATES:,} replicates."
    )
    return TextTable("Paired differences", columns, rows, caption)


def _write(comparison: Comparison) -> None:
    tables = merge_tables(comparison.tables, covers_videos(comparison.population))
    if comparison.differences:
        tables.append(build_difference_table(comparison.differences, comparison.models[0]))
    title = f"Comparison of {', '.join(comparison.models)}"
    write_whole(
        comparison.folder / f"{NAME}.md",
        format_markdown(title, comparison.population, tables).encode(),
    )
    write_whole(
        comparison.folder / f"{NAME}.tex",
        format_latex(title, comparison.population, tables).encode(),
    )
    values = {
        "tables": comparison.tables,
        "differences": [as_values(one) for one in comparison.differences],
    }
    write_table(comparison.folder, NAME, comparison.population, values)


def _draw(models: Mapping[str, EditRecords], size: int, out: Path) -> None:
    pictures = {
        "response": draw_response(models, interior=True),
        "errors": draw_errors(models, size, interior=True),
        "drift": draw_drift(models, size),
    }
    for name, picture in pictures.items():
        drawing.save_pictures(out / FOLDER / f"{NAME}-{name}.png", [picture])


def _check_population(folders: Sequence[Path], tables: Sequence[str]) -> dict[str, Any]:
    """What all tables are about; each may say more of its own, on which models must agree, too."""
    every = []
    for table in tables:
        first, *others = (_read_population(folder, table) for folder in folders)
        for folder, other in zip(folders[1:], others, strict=True):
            changed = [key for key in {**first, **other} if first.get(key) != other.get(key)]
            if changed:
                raise GeocoError(
                    f"{table}: {folder} has results of another population than {folders[0]} "
                    f"({', '.join(changed)} differ): evaluate all models on the same windows"
                )
        every.append(first)
    return {
        key: value
        for key, value in every[0].items()
        if all(key in other and other[key] == value for other in every)
    }


def _read_population(folder: Path, table: str) -> dict[str, Any]:
    about, _ = read_results(folder, [table])
    return {key: value for key, value in about.items() if key not in OWN}


def _tell_apart(names: Sequence[str]) -> list[str]:
    """Names that tell models apart, also where two are called the same."""
    return [
        name if names.count(name) == 1 else f"{name} ({names[: place + 1].count(name)})"
        for place, name in enumerate(names)
    ]
