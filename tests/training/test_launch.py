"""How a training begins: checked before anything is written, alone in its folder, or not at all."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import ROOT, SMALL_OVERRIDES
from rich.console import Console

from geoco import config
from geoco.cli import main
from geoco.config import Config
from geoco.data import open_dataset
from geoco.editing.editor import Editor
from geoco.errors import GeocoError
from geoco.models import checkpoints, pretrained
from geoco.training import metrics_log
from geoco.training.launch import Machine, start_training
from geoco.training.metrics_log import MetricsLog
from geoco.training.run_folder import Run
from geoco.training.trainer import Trainer

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def load_small(*overrides: str) -> Config:
    options = ["train.budget=0.0001", "train.batch=2", "train.precision=32-true"]
    options += ["train.validation=2", "train.log_every=1", "train.picture_every=1000"]
    return config.load(ROOT / "configs/geoco.yaml", [*SMALL_OVERRIDES, *options, *overrides])


def go(settings: Config | None, folder: Path, minutes: float | None = None) -> None:
    start_training(settings, folder, Machine("cpu"), minutes, Console(quiet=True))


# -- before anything is written --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            ("data.width=24",),
            r"^data.height=16 data.width=24: this model reads and draws 16 x 16 pixels: set both to"
            r" 16, or let model.decoder.layers end with",
        ),
        (("data.height=32", "data.width=32"), r"^data.height=32 data.width=32: .* both to 16"),
        (("data.kind=store", "data.path=none"), "there is no store here: run geoco data import"),
        # A phase that begins late takes clips longer than a video.
        (
            ("train.phases=[{name: a, terms: [rec]}, {name: b, start: 60000, frames: 5}]",),
            "a phase takes clips of 5 frames, but no video is that long",
        ),
    ],
)
def test_what_does_not_fit_is_said_first(
    tmp_path: Path, changes: tuple[str, ...], said: str
) -> None:
    if "data.path=none" in changes:
        changes = (changes[0], f"data.path={tmp_path / 'none'}")
        settings = config.load(
            None, [*changes, "data.height=16", "data.width=16", "model.decoder.layers=[[16,3]]"]
        )
    else:
        settings = load_small(*changes)
    with pytest.raises(GeocoError, match=said):
        go(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("part", ["__init__", "prepare"])
def test_a_failed_start_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    real: Callable[..., None] = getattr(Trainer, part)
    with monkeypatch.context() as broken:

        def fail(trainer: Trainer, *arguments: object) -> None:
            real(trainer, *arguments)
            trainer.close()
            raise GeocoError("no more memory")

        broken.setattr(Trainer, part, fail)
        with pytest.raises(GeocoError, match="no more memory"):
            go(load_small(), tmp_path / "run")
        assert not (tmp_path / "run").exists()
    go(load_small(), tmp_path / "run", minutes=0)
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    monkeypatch.setattr(Trainer, part, fail)
    with pytest.raises(GeocoError, match="no more memory"):  # a run that is there stays
        go(None, tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


def test_too_little_time_to_prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames come in pieces of four videos; a pace is believed at once here."""
    monkeypatch.setattr("geoco.training.report.MEASURED", 0.0)
    settings = load_small("data.episodes={train: 12, val: 1, test: 1}", "train.feed=resident")
    with pytest.raises(GeocoError, match=r"preparing 48 frames takes .* --minutes allows.*=stream"):
        go(settings, tmp_path / "run", minutes=0)
    assert not (tmp_path / "run").exists()
    go(load_small("train.feed=stream"), tmp_path / "run", minutes=0)
    assert checkpoints.read_weights(tmp_path / "run").step == 1


def test_minutes_are_from_the_beginning_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that was an hour in coming here has nothing left of 59 minutes."""
    (tmp_path / "small.yaml").write_text(load_small().to_yaml())
    arguments = ["geoco", "train", str(tmp_path / "small.yaml"), "--accelerator", "cpu"]
    for hours, out, steps in ((1, "late", 1), (0, "early", 7)):
        monkeypatch.setattr("geoco.cli.training.BEGAN", time.monotonic() - 3600 * hours)
        out = str(tmp_path / out)
        monkeypatch.setattr(sys, "argv", [*arguments, "--minutes", "59", "--out", out])
        with pytest.raises(SystemExit, match=r"^0$"):
            main()
        assert checkpoints.read_weights(Path(out)).step == steps


def test_the_clock_is_read_before_all_that_takes_a_while() -> None:
    code = "import sys, geoco.cli; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    for name in ("typer", "pydantic", "geoco.config", "geoco.cli.main"):
        assert loaded.index("geoco.cli.clock") < loaded.index(name)


# -- one at a time ---------------------------------------------------------------------------------


def test_a_second_training_of_a_run_is_refused(tmp_path: Path) -> None:
    """By a real process; once that is killed, the run is taken over."""
    folder = tmp_path / "run"
    settings = tmp_path / "small.yaml"
    settings.write_text(load_small("train.budget=1", "train.checkpoint_every=1").to_yaml())
    command = [sys.executable, "-m", "geoco.cli", "train", str(settings), "--out", str(folder)]
    process = subprocess.Popen(
        [*command, "--accelerator", "cpu"],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        waited = time.monotonic()
        while checkpoints.find_latest(folder / "checkpoints") is None:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() - waited < 100
            time.sleep(0.02)
        with pytest.raises(GeocoError, match=r"run: a training of this run is at work already"):
            go(None, folder, minutes=0)
        at = checkpoints.read_weights(folder).step
        while checkpoints.read_weights(folder).step == at:  # the first one goes on unharmed
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    before = checkpoints.read_weights(folder).step
    go(None, folder, minutes=0)
    assert checkpoints.read_weights(folder).step == before + 1


def test_a_lock_ends_with_its_block(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", load_small())
    with run.lock(), pytest.raises(GeocoError, match="is at work already"), run.lock():
        raise AssertionError("two at a time")
    with run.lock():
        pass


# -- disks -----------------------------------------------------------------------------------------


def test_a_disk_that_fills_while_logging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, and the run goes on from its last checkpoint once there is space."""
    real = MetricsLog.append

    def append(log: MetricsLog, step: int, values: dict[str, float]) -> None:
        if step == 4:
            log._file.write("4,0.1")  # what a full disk takes of a row
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(log, step, values)

    settings = load_small("train.checkpoint_every=2")
    with monkeypatch.context() as broken:
        broken.setattr(metrics_log.MetricsLog, "append", append)
        with pytest.raises(GeocoError, match=r"cannot write this run: No space left .* goes on"):
            go(settings, tmp_path / "run")
    go(None, tmp_path / "run")
    go(settings, tmp_path / "whole")
    for name in ("metrics.csv", "validation.csv"):
        assert (tmp_path / "run" / name).read_text() == (tmp_path / "whole" / name).read_text()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(load_small(), tmp_path / "run", minutes=0)
    real = Path.open

    def open_file(path: Path, mode: str = "r", *arguments: object, **options: object) -> object:
        if set(mode) & set("wax+"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, mode, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", open_file)
    for settings, name in ((None, "run"), (load_small(), "new")):
        with pytest.raises(GeocoError, match="Read-only file system"):
            go(settings, tmp_path / name)


def test_a_finished_run_knows_how_well_it_redraws(tmp_path: Path) -> None:
    settings = load_small("train.budget=0.00003")
    go(settings, tmp_path / "run", minutes=0)
    assert list(tmp_path.glob("run/checkpoints/*/quality.json")) == []
    go(None, tmp_path / "run")
    loaded = pretrained.load(tmp_path / "run")
    assert loaded.quality is not None
    clips = open_dataset(settings.data, "val").batch([0]).video
    picture = clips[0, 0].permute(1, 2, 0).numpy()
    # The first frame is one of those that the reference is of.
    psnr = Editor.load(tmp_path / "run").encode(picture).quality.psnr
    assert loaded.quality.psnr[0] - 1e-3 <= psnr <= loaded.quality.psnr[-1] + 1e-3
    assert 0 < loaded.quality.frames <= 100
