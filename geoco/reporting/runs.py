"""Runs as rows of the paper's tables: which row a configuration is, and several seeds as one row.

A run is a folder with its resolved `config.yaml` and the JSON of its evaluation, beside it or in
`evaluation`. Nothing here needs torch.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoco import config as configuration
from geoco.config import Config
from geoco.errors import GeocoError
from geoco.reporting.measures import read_measure
from geoco.reporting.results import OWN, Values, read_results

CONTROL = "GeoCo-SAVi"
FAILED = "failed"  # what a training leaves whose losses were not finite: a folder, or a file
_TABLES = ("factual", "editing", "stability", "matched")

# What a row changes of the whole method. A weight of zero leaves a term out.
_OFF = {f"train.weights.{term}": False for term in ("ov", "pos", "geo", "gate", "tail")}
_WHOLE: dict[str, Any] = {
    "model.kind": "geoco",
    "model.decoder.design": "steered",
    "model.slots.readout": True,
    "model.selector.enabled": True,
    **dict.fromkeys(_OFF, True),
}
_BARE = {"model.decoder.design": "conventional", "model.slots.readout": False, **_OFF}
ROWS: dict[str, dict[str, Any]] = {
    CONTROL: {},
    "Conventional decoder": {"model.decoder.design": "conventional"},
    "Without L_ov": {"train.weights.ov": False},
    "Without L_pos": {"train.weights.pos": False},
    "Without L_geo": {"train.weights.geo": False},
    "Without terminal readout": {"model.slots.readout": False, "train.weights.gate": False},
    "Without selector": {"model.selector.enabled": False},
    "Without L_tail": {"train.weights.tail": False},
    "Canonical-canvas": {"model.decoder.design": "canonical"},
    "ISA": {**_BARE, "model.selector.enabled": False},
    "SlotAug": {**_BARE, "model.kind": "slotaug", "model.selector.enabled": None},
}
# What two runs of one row may differ in: chance, places, and what is only written down.
_FREE = (
    "train.seed", "train.feed", "train.compile", "train.graph", "train.log_every", "train.keep",
    "train.checkpoint_every", "train.validate_every", "train.picture_every", "train.validation",
    "data.path", "data.source",
)  # fmt: skip


@dataclass(frozen=True)
class TrainedRun:
    """A training by its configuration and its results, of which a failed one has none."""

    folder: Path
    row: str
    config: Config
    population: dict[str, Any]
    results: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Summary:
    """A measure over the runs of a row: their mean, and their sample standard deviation."""

    mean: float | None
    deviation: float | None  # of two runs or more
    defined: int
    runs: int

    @property
    def failed(self) -> int:
        return self.runs - self.defined


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed alone; a row that nobody has trained has none."""

    label: str
    runs: tuple[TrainedRun, ...]

    def summarize(self, column: str) -> Summary:
        """A column of the paper's tables, by `read_measure`."""
        values = [read_measure(run.results, column) for run in self.runs]
        defined = [value for value in values if value is not None and math.isfinite(value)]
        return Summary(
            statistics.fmean(defined) if defined else None,
            statistics.stdev(defined) if len(defined) > 1 else None,
            len(defined),
            len(values),
        )


def read_run(folder: Path) -> TrainedRun:
    """A run's folder, or one to which its configuration and results were copied."""
    file = folder / "config.yaml"
    try:
        config = configuration.loads(file.read_text(encoding="utf-8"), str(file))
    except OSError:
        raise GeocoError(
            f"{folder}: there is no config.yaml here: give the folder of a run"
        ) from None
    row = name_row(config)
    if row is None:
        raise GeocoError(
            f"{folder}: its configuration is none of the paper's rows ({', '.join(ROWS)})"
        )
    inner = folder / "evaluation"
    if (folder / FAILED).exists():
        return TrainedRun(folder, row, config, {}, {})
    population, results = read_results(inner if inner.is_dir() else folder, _TABLES)
    if "factual" not in results:
        raise GeocoError(f"{folder}: has no factual.json: evaluate all tables of a run")
    return TrainedRun(folder, row, config, population, results)


def name_row(config: Config) -> str | None:
    """The row of the paper's tables that a configuration trains, if it is one of them."""
    flat = _flatten(config)
    signature = {name: flat.get(name) for name in _WHOLE}
    signature |= {name: bool(flat[name]) for name in _OFF}
    for row, changes in ROWS.items():
        if signature == {**_WHOLE, **changes}:
            return row
    return None


def group_runs(runs: Sequence[TrainedRun], rows: Sequence[str]) -> list[Row]:
    """Rows in the given order, those that nobody has trained too; several recipes are several.

    All must be of the same data and windows, and trained for the same number of steps.
    """
    for run in runs:
        if run.row not in rows:
            raise GeocoError(
                f"{run.folder}: '{run.row}' is no row of this table, which has {', '.join(rows)}"
            )
    _check_population(runs)
    _check_budget(runs)
    grouped: list[Row] = []
    for name in rows:
        recipes = _split_by_recipe([run for run in runs if run.row == name])
        for same in recipes:
            label = name if len(recipes) == 1 else f"{name} ({same[0].folder.name})"
            grouped.append(Row(label, tuple(same)))
        if not recipes:
            grouped.append(Row(name, ()))
    return grouped


def check_alike(rows: Sequence[Row]) -> None:
    """Refuse rows that differ in more than what makes them these rows."""
    runs = [row.runs[0] for row in rows if row.runs]
    for run in runs[1:]:
        free = (*_FREE, *ROWS[run.row], *ROWS[runs[0].row])
        changed = _list_changes(runs[0].config, run.config, free)
        if changed:
            raise GeocoError(
                f"{run.folder}: trained otherwise than {runs[0].folder} ({', '.join(changed)}): "
                "rows of this table differ in nothing but what they leave out"
            )


def count_steps(config: Config) -> int:
    return max(1, round(config.train.steps * config.train.budget))


def _split_by_recipe(runs: Sequence[TrainedRun]) -> list[list[TrainedRun]]:
    """Runs of one row: those that differ in their seed alone together."""
    groups: list[list[TrainedRun]] = []
    for run in runs:
        for group in groups:
            if not _list_changes(group[0].config, run.config, _FREE):
                if run.config.train.seed in [other.config.train.seed for other in group]:
                    raise GeocoError(
                        f"{run.folder}: there is another '{run.row}' of seed "
                        f"{run.config.train.seed}: give each seed once"
                    )
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def _list_changes(one: Config, other: Config, free: Sequence[str]) -> list[str]:
    return [
        name
        for name in configuration.differences(one, other)
        if not any(name == each or name.startswith(f"{each}.") for each in free)
    ]


def _check_budget(runs: Sequence[TrainedRun]) -> None:
    for run in runs[1:]:
        steps, first = count_steps(run.config), count_steps(runs[0].config)
        if steps != first:
            raise GeocoError(
                f"{run.folder}: trained for {steps:,} steps, {runs[0].folder} for {first:,}: a "
                "table has one budget"
            )


def _check_population(runs: Sequence[TrainedRun]) -> None:
    evaluated = [run for run in runs if run.results]
    if not evaluated:
        raise GeocoError("all of these runs failed: there is nothing to show")
    first = evaluated[0].population
    for run in evaluated[1:]:
        names = {**first, **run.population}
        changed = [n for n in names if n not in OWN and first.get(n) != run.population.get(n)]
        if changed:
            raise GeocoError(
                f"{run.folder}: has results of another population than {evaluated[0].folder} "
                f"({', '.join(changed)} differ): evaluate all runs on the same windows"
            )


def _flatten(config: Config) -> Values:
    def walk(section: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for name, value in section.items():
            inner = isinstance(value, Mapping)
            flat |= walk(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
        return flat

    return walk(config.model_dump(mode="json"), "")
