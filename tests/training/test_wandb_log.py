"""Weights & Biases: a copy of what a run logs, under one name there, that changes nothing of it.

The package is played by a stub with the few names that are called.
"""

import importlib.machinery
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import ROOT, SMALL_OVERRIDES
from rich.console import Console

from geoco import config
from geoco.config import Config
from geoco.errors import GeocoError
from geoco.models import checkpoints
from geoco.training.launch import Machine, start_training
from geoco.training.metrics_log import read_metrics

GROUPS = ("metrics", "pace", "validation", "gradients")


@dataclass
class StubRun:
    """What the package makes of `init`."""

    options: dict[str, Any]
    rows: list[dict[str, float]] = field(default_factory=list)
    axis: tuple[str, str] | None = None
    is_finished: bool = False

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axis = (name, step_metric)

    def log(self, row: dict[str, float]) -> None:
        assert not self.is_finished
        self.rows.append(row)

    def finish(self) -> None:
        self.is_finished = True


class StubError(Exception):
    pass


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StubRun]]:
    """All runs that were begun, the first one first."""
    begun: list[StubRun] = []

    def init(**options: Any) -> StubRun:
        torch.rand(3)  # a package may draw random numbers as it likes
        begun.append(StubRun(options))
        return begun[-1]

    module = ModuleType("wandb")
    vars(module).update(init=init, Settings=SimpleNamespace, Error=StubError)
    monkeypatch.setitem(sys.modules, "wandb", module)
    yield begun
    assert all(run.is_finished for run in begun)


def load_small(*overrides: str) -> Config:
    options = ["train.budget=0.0001", "train.batch=2", "train.precision=32-true"]
    options += ["train.validation=2", "train.log_every=1", "train.picture_every=4"]
    return config.load(ROOT / "configs/geoco.yaml", [*SMALL_OVERRIDES, *options, *overrides])


def go(settings: Config | None, folder: Path, minutes: float | None = None) -> None:
    start_training(settings, folder, Machine("cpu"), minutes, Console(quiet=True))


def read_rows(folder: Path) -> list[dict[str, float]]:
    """The rows of all files, without what was not measured."""
    rows = []
    for group in GROUPS:
        columns = read_metrics(folder / f"{group}.csv")
        for number, step in enumerate(columns.pop("step")):
            row = {f"{group}/{name}": values[number] for name, values in columns.items()}
            rows.append({"step": step} | {k: v for k, v in row.items() if not math.isnan(v)})
    return rows


def sort_rows(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    return sorted(rows, key=lambda row: (find_group(row), row["step"]))


def find_group(row: dict[str, float]) -> str:
    return next(name for name in row if name != "step").partition("/")[0]


def test_it_gets_what_the_files_get(tmp_path: Path, runs: list[StubRun]) -> None:
    go(load_small("train.wandb=slots"), tmp_path / "run")
    (run,) = runs
    assert run.options["project"] == "slots"
    assert run.options["name"] == "run"
    assert run.options["config"]["train"]["batch"] == 2
    assert run.axis == ("*", "step")
    assert set(map(find_group, run.rows)) == set(GROUPS)
    assert sort_rows(run.rows) == sort_rows(read_rows(tmp_path / "run"))


def test_a_resumed_run_is_the_same_one_and_as_exact(tmp_path: Path, runs: list[StubRun]) -> None:
    go(load_small(), tmp_path / "without")
    assert not runs
    go(load_small("train.wandb=slots"), tmp_path / "run", minutes=0)
    go(None, tmp_path / "run")
    assert len(runs) == 2
    assert runs[0].options["id"] == runs[1].options["id"]
    assert runs[1].options["resume"] == "allow"
    rows = [row for run in runs for row in run.rows]
    assert sort_rows(rows) == sort_rows(read_rows(tmp_path / "run"))
    for name in ("metrics.csv", "validation.csv", "gradients.csv"):
        assert (tmp_path / "run" / name).read_text() == (tmp_path / "without" / name).read_text()
    trained, expected = (
        checkpoints.read_weights(tmp_path / name).tensors for name in ("run", "without")
    )
    assert all(torch.equal(trained[name], value) for name, value in expected.items())
    go(load_small("train.wandb=slots"), tmp_path / "other", minutes=0)
    assert runs[2].options["id"] != runs[0].options["id"]


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_missing_package_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_folder: bool
) -> None:
    """Also where a folder of earlier runs has the package's name."""
    folder = ModuleType("wandb")
    folder.__spec__ = importlib.machinery.ModuleSpec("wandb", None, is_package=True)
    monkeypatch.setitem(sys.modules, "wandb", folder if is_folder else None)  # type: ignore[arg-type]
    with pytest.raises(GeocoError, match=r"^train.wandb needs the package wandb: pip install"):
        go(load_small("train.wandb=slots"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_beginning_that_is_refused_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: list[StubRun]
) -> None:
    def refuse(**_: Any) -> None:
        raise StubError("api_key not\n configured")

    monkeypatch.setattr(sys.modules["wandb"], "init", refuse)
    said = r"^train.wandb=slots: .* cannot begin: api_key not configured; log in .*MODE=offline$"
    with pytest.raises(GeocoError, match=said):
        go(load_small("train.wandb=slots"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
