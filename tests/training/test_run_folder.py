"""Run folders: they explain themselves, give nobody away, and forget what is done again."""

import json
import math
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

import geoco
from geoco.config import Config, ModelConfig, SlotsConfig, StoreConfig, override
from geoco.errors import GeocoError
from geoco.models import checkpoints
from geoco.training import run_folder
from geoco.training.metrics_log import MetricsLog, draw_curves, read_metrics
from geoco.training.run_folder import Run, describe_environment

CONFIG = Config(model=ModelConfig(slots=SlotsConfig(count=4)))
COLUMNS = ("loss", "rec", "learning_rate")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- the folder ------------------------------------------------------------------------------------


def test_create_and_open(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    created = Run.create(folder, CONFIG)
    opened = Run.open(folder)
    assert opened == created
    assert opened.config == CONFIG
    assert (folder / "config.yaml").read_text() == CONFIG.to_yaml()
    written = ["README.md", "checkpoints", "config.yaml", "environment.json", "pictures"]
    assert names(folder) == written
    assert (opened.checkpoints, opened.pictures) == (folder / "checkpoints", folder / "pictures")
    assert (opened.metrics, opened.tensorboard) == (folder / "metrics.csv", folder / "tensorboard")
    checkpoints.save(opened.checkpoints, 10, opened.config, {"a": torch.zeros(2)}, {})
    assert checkpoints.read_weights(folder).config == CONFIG


def test_readme_names_all_there_is(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", CONFIG)
    with MetricsLog(run.metrics, run.tensorboard, COLUMNS) as log:
        log.append(0, dict.fromkeys(COLUMNS, 1.0))
    text = (run.folder / "README.md").read_text()
    assert "geoco train --resume" in text
    for name in names(run.folder):
        assert name in text or name == "README.md"


def test_paths_survive_in_the_configuration(tmp_path: Path) -> None:
    config = Config(data=StoreConfig(path=tmp_path / "data", source=None))
    Run.create(tmp_path / "run", config)
    assert Run.open(tmp_path / "run").config == config


def test_create_refuses_a_run(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", CONFIG)
    message = r"run: there is a run here already: go on with it by geoco train --resume .*run, or "
    with pytest.raises(GeocoError, match=message):
        Run.create(tmp_path / "run", Config())
    assert Run.open(tmp_path / "run").config == CONFIG


def test_create_refuses_other_peoples_folders(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(GeocoError, match=r"this folder is not empty: choose a new one for a run"):
        Run.create(tmp_path, CONFIG)
    assert (tmp_path / "README.md").read_text() == "mine"
    with pytest.raises(GeocoError, match=r"README.md: cannot start a run here: File exists"):
        Run.create(tmp_path / "README.md", CONFIG)


def test_create_after_a_kill_in_create(tmp_path: Path) -> None:
    (tmp_path / "config.yaml.partial").write_text("data: {kin")
    Run.create(tmp_path, CONFIG)
    assert Run.open(tmp_path).config == CONFIG
    assert "config.yaml.partial" not in names(tmp_path)


def test_open_refuses(tmp_path: Path) -> None:
    message = r"there is no run here, it has no config.yaml: give a folder that geoco train has"
    (tmp_path / "file").touch()
    for folder in (tmp_path, tmp_path / "nothing", tmp_path / "file"):
        with pytest.raises(GeocoError, match=message):
            Run.open(folder)
    (tmp_path / "config.yaml").write_text("model: {slots: {cuont: 4}}")
    with pytest.raises(GeocoError, match=r"config.yaml: .*did you mean model.slots.count"):
        Run.open(tmp_path)


# -- the environment -------------------------------------------------------------------------------


def test_environment_gives_nobody_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["geoco", "train", str(tmp_path / "a b.yaml"), "data.path=/home/somebody", "batch=8"]
    monkeypatch.setattr(sys, "argv", given)
    run = Run.create(tmp_path / "run", CONFIG)
    text = (run.folder / "environment.json").read_text()
    environment = json.loads(text)
    assert environment.pop("arguments") == ["train", ".../a b.yaml", "data.path=...", "batch=8"]
    assert environment.pop("python") == platform.python_version()
    assert environment.pop("torch") == torch.__version__
    assert environment.pop("cpus") >= 1
    assert environment.pop("began") == []
    assert environment.keys() == {"geoco", "commit", "dirty", "device"}
    assert not [value for value in environment.values() if "/" in str(value) or "\\" in str(value)]
    for word in ("somebody", str(tmp_path), sys.prefix):
        assert word not in text


def test_a_run_knows_where_it_took_over(tmp_path: Path) -> None:
    """From others one after another, of which one may be too old to know."""
    other = override(CONFIG, ["train.stride=3", "train.weights.ov=0.5"])
    began: list[list[dict[str, object]]] = []
    origin = None
    for step, config in ((5, CONFIG), (7, other), (9, CONFIG)):
        run = Run.create(tmp_path / str(step), config, origin)
        began.append(json.loads((run.folder / "environment.json").read_text())["began"])
        origin = checkpoints.save(run.checkpoints, step, config, {"a": torch.zeros(2)}, {})
    both = ["train.stride", "train.weights.ov"]
    first, second = {"step": 5, "differs": both}, {"step": 7, "differs": both}
    assert began == [[], [first], [first, second]]
    (tmp_path / "7" / "environment.json").unlink()
    run = Run.create(
        tmp_path / "last", CONFIG, checkpoints.find_latest(tmp_path / "7" / "checkpoints")
    )
    assert json.loads((run.folder / "environment.json").read_text())["began"] == [second]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("/home/me/configs/x.yaml", ".../x.yaml"),
        ("data.path=/home/me", "data.path=..."),
        ("data.path='/data/my videos'", "data.path='..."),
        ("paths=[/a/b, /c/d]", "paths=[..."),
        ("~/runs/a", "..."),
        ("-o/home/me", "-o..."),
        ("C:\\Users\\me\\x.yml", "...\\x.yml"),
        ("file:///home/me/x", "file:..."),
        ("--out=runs/a", "--out=runs/a"),
        ("../x/y.yaml", "../x/y.yaml"),
        ("train.learning_rate=4e-4", "train.learning_rate=4e-4"),
    ],
)
def test_places_in_arguments(argument: str, expected: str) -> None:
    assert run_folder._hide_places(argument) == expected


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_commit_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(geoco.__file__).parent == run_folder._SOURCE
    package = tmp_path / "checkout" / "geoco"
    package.mkdir(parents=True)
    monkeypatch.setattr(run_folder, "_SOURCE", package)
    (package / "__init__.py").touch()
    assert (describe_environment()["commit"], describe_environment()["dirty"]) == (None, None)
    git(tmp_path / "checkout", "init")
    assert (describe_environment()["commit"], describe_environment()["dirty"]) == (
        None,
        None,
    )  # another's checkout
    git(package, "add", ".")
    git(package, "commit", "-m", "first")
    (tmp_path / "checkout" / "notes.txt").touch()  # not the package's
    assert describe_environment()["commit"] == git(package, "rev-parse", "HEAD")
    assert describe_environment()["dirty"] is False
    (package / "new.py").touch()
    assert describe_environment()["dirty"] is True
    monkeypatch.setenv("PATH", "")  # no git at all
    assert (describe_environment()["commit"], describe_environment()["dirty"]) == (None, None)


# -- metrics ---------------------------------------------------------------------------------------


def row(step: int) -> dict[str, float]:
    return {
        "loss": 1 / (step + 3),
        "rec": math.nan if step % 2 else 0.1 * step,
        "learning_rate": 4e-4,
    }


def open_log(folder: Path) -> MetricsLog:
    folder.mkdir(exist_ok=True)
    return MetricsLog(folder / "metrics.csv", folder / "tensorboard", COLUMNS)


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_metrics_come_back(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for step in range(0, 30, 10):
            log.append(step, row(step))
        log.append(31, {**row(31), "loss": math.inf})
        assert (tmp_path / "metrics.csv").read_text().count("\n") == 5  # before it is closed
    metrics = read_metrics(tmp_path / "metrics.csv")
    assert list(metrics) == ["step", "loss", "rec", "learning_rate"]
    assert metrics["step"] == [0, 10, 20, 31]
    assert metrics["loss"] == [1 / 3, 1 / 13, 1 / 23, math.inf]  # exactly
    np.testing.assert_array_equal(metrics["rec"], [0, 1, 2, math.nan])
    assert (tmp_path / "metrics.csv").read_text().startswith("step,loss,rec,learning_rate\n0,0.333")
    expected = [(step, pytest.approx(1 / (step + 3))) for step in (0, 10, 20)]
    assert scalars(tmp_path, "loss") == [*expected, (31, math.inf)]
    assert [step for step, _ in scalars(tmp_path, "rec")] == [0, 10, 20]


@pytest.fixture
def _first_event_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has written none yet.

    TensorBoard reads files in the order of their names, which end in a count of the process that
    wrote them: within a second the tenth would come before the ninth.
    """
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))


@pytest.mark.usefixtures("_first_event_files")
def test_resumed_metrics_equal_uninterrupted_ones(tmp_path: Path) -> None:
    with open_log(tmp_path / "whole") as log:
        for step in range(0, 60, 5):
            log.append(step, row(step))
    with open_log(tmp_path / "resumed") as log:
        for step in range(0, 45, 5):
            log.append(step, {**row(step), "loss": 9.0} if step >= 30 else row(step))
    with (tmp_path / "resumed" / "metrics.csv").open("a") as file:
        file.write("45,0.12")  # and killed
    with open_log(tmp_path / "resumed") as log:
        log.rewind(30)
        for step in range(30, 60, 5):
            log.append(step, row(step))
    files = [tmp_path / name / "metrics.csv" for name in ("whole", "resumed")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert names(tmp_path / "resumed") == ["metrics.csv", "tensorboard"]
    for name in ("loss", "learning_rate"):
        assert scalars(tmp_path / "resumed", name) == scalars(tmp_path / "whole", name)


@pytest.mark.usefixtures("_first_event_files")
def test_rewind_in_the_middle_of_logging(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for step in range(5):
            log.append(step, row(step))
        log.rewind(2)
        assert read_metrics(tmp_path / "metrics.csv")["step"] == [0, 1]
        log.append(2, row(2))
        log.rewind(0)
        assert (tmp_path / "metrics.csv").read_text() == "step,loss,rec,learning_rate\n"
        log.append(7, row(7))
    assert read_metrics(tmp_path / "metrics.csv")["step"] == [7]
    assert [step for step, _ in scalars(tmp_path, "loss")] == [7]


def test_a_file_cut_at_any_byte_is_read_and_continued(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append(0, row(0))
        log.append(1, row(1))
    file = tmp_path / "metrics.csv"
    data = file.read_bytes()
    for length in range(len(data) + 1):
        file.write_bytes(data[:length])
        lines = max(data[:length].count(b"\n") - 1, 0)
        assert read_metrics(file)["step"] == list(range(lines))
        open_log(tmp_path).close()
        assert file.read_bytes() == b"".join(data.splitlines(keepends=True)[: lines + 1])


def test_bad_metrics_are_refused(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append(0, row(0))
        log.append(1, row(1))
        with pytest.raises(AssertionError, match=r"expected \('loss', 'rec', 'learning_rate'\)"):
            log.append(2, {"loss": 1.0})
    file = tmp_path / "metrics.csv"
    with pytest.raises(GeocoError, match=r"its columns are step,loss,.* would write step,rec: "):
        MetricsLog(file, tmp_path / "tensorboard", ["rec"])
    lines = file.read_text().splitlines()
    for line in ("1,2,three,4", "1,2,3", ""):
        file.write_text("\n".join([lines[0], line, lines[2], ""]))
        message = f"metrics.csv: line 2 is damaged: expected 4 numbers, got '{line}'"
        with pytest.raises(GeocoError, match=message):
            read_metrics(file)
        with open_log(tmp_path) as log, pytest.raises(GeocoError, match=message):
            log.rewind(1)
    with pytest.raises(GeocoError, match=r"nothing: cannot read these metrics: No such file"):
        read_metrics(tmp_path / "nothing")


# -- curves ----------------------------------------------------------------------------------------


def colours(path: Path) -> int:
    with Image.open(path) as image:
        return len(image.convert("RGB").getcolors(1_000_000))


def test_curves(tmp_path: Path) -> None:
    file, picture = tmp_path / "metrics.csv", tmp_path / "curves.png"
    empty = []
    for text in ("", "step,total,learning_rate\n", "step,total,geo\n0,nan,0.0\n5,inf,-1.0\n"):
        file.write_text(text)
        draw_curves(file, picture, ("total", "geo"))
        empty.append(colours(picture))
    for length in (1, 10, 50):
        rows = (f"{step},{2**-step},{step / 2},{step / 9},7" for step in range(1, length + 1))
        file.write_text("\n".join(["step,total,geo,learning_rate,seconds", *rows, ""]))
        draw_curves(file, picture, ("total", "geo"))
        assert colours(picture) > max(empty) + 20  # three coloured lines
    with Image.open(picture) as image:
        assert image.size == (900, 600)
    assert names(tmp_path) == ["curves.png", "metrics.csv"]


def test_a_term_that_pauses_leaves_a_gap(tmp_path: Path) -> None:
    """Between its phases no line is drawn, whatever is on its two sides."""
    shown = []
    for between in (0.0, 2.0):
        file, picture = tmp_path / "metrics.csv", tmp_path / "curves.png"
        values = [2.0] * 100 + [between] * 100 + [2.0] * 100
        rows = (f"{step},{value}" for step, value in enumerate(values))
        file.write_text("\n".join(["step,geo", *rows, ""]))
        draw_curves(file, picture, ("total", "geo"))
        with Image.open(picture) as image:
            colourful = np.ptp(np.asarray(image.convert("RGB")).astype(int), axis=2) > 100
        row = colourful[:, :700].sum(1).argmax()  # that of the line, left of the legend
        shown.append(int(colourful[row, :700].sum()))
    assert 0.6 < shown[0] / shown[1] < 0.72
