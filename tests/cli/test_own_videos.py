"""From a folder of clips to an edited one, by the commands of docs/own-videos.md at toy size."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from helpers import ROOT, run_geoco
from helpers_web import HOME
from PIL import Image

from geoco import config, media
from geoco.data import StoreDataset
from geoco.editing.editor import Editor
from geoco.models import pretrained
from geoco.publishing.model_card import Card, MeasuredResults
from geoco.reporting.results import read_results
from geoco.training.metrics_log import read_metrics
from geoco.web.samples import explain_missing_store, make_samples
from geoco.web.server import create_app

pytest.importorskip("av", reason="PyAV reads the clips")

CONFIG = ROOT / "configs/own-videos.yaml"
TOY = [
    "data.height=16",
    "data.width=16",
    "model.encoder.width=8",
    "model.decoder.broadcast=16",
    "model.decoder.layers=[[16,1],[16,1]]",
]


def write_clip(path: Path, color: tuple[int, int, int], size: tuple[int, int] = (24, 16)) -> None:
    """A square that crosses a grey floor."""
    frames = []
    for number in range(6):
        frame = Image.new("RGB", size, (120, 120, 120))
        frame.paste(color, (2 * number + 2, 5, 2 * number + 7, 10))
        frames.append(np.asarray(frame))
    media.save_frames(path, frames)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a user works: clips of two sizes, imported, and a run of a few steps."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "clips").mkdir()
    for number, color in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)]):
        size = (24, 16) if number else (20, 32)
        write_clip(folder / "clips" / f"clip-{number}.gif", color, size)
    imported = run_geoco("data", "import", CONFIG, *TOY[:2], cwd=folder)
    assert imported.returncode == 0, imported.stderr
    assert "1 of 4 videos validate, the others train" in imported.stdout
    assert "train: stores/mine/train (3 videos, 18 frames)" in imported.stdout
    assert f"next: geoco train {CONFIG} {' '.join(TOY[:2])} --out runs/mine" in imported.stdout
    steps = ("train.budget=0.0001", "train.batch=2", "train.picture_every=100")
    trained = run_geoco("train", CONFIG, *TOY, *steps, "--out", "runs/mine", cwd=folder)
    assert trained.returncode == 0, trained.stderr
    assert "finished: runs/mine, PSNR of validation clips" in trained.stdout
    assert "next: geoco serve runs/mine" in trained.stdout
    return folder


def test_a_clip_is_edited(folder: Path) -> None:
    assert read_metrics(folder / "runs/mine/validation.csv")["step"] == [7]
    arguments = ("--move", "0:3,0", "-o", "edited", "--model", "runs/mine")
    done = run_geoco("edit", "clips/clip-1.gif", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    edited = sorted((folder / "edited").iterdir())
    assert len(edited) == 6
    assert media.read_image(edited[0]).shape == (16, 16, 3)


def test_the_page_opens_on_the_users_clips(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    loaded = pretrained.load("runs/mine")
    data = loaded.config.data
    assert isinstance(data, config.StoreConfig)
    samples = make_samples(data, 16)
    val, train = (StoreDataset(data, split) for split in ("val", "train"))
    first = val.index.videos[0].source
    assert [sample.title for sample in samples if len(sample.frames) > 1] == [
        first,
        train.index.videos[0].source,
    ]
    assert samples[0].title.startswith(f"{first}, frame ")
    stored = {frame.tobytes() for split in (val, train) for frame in read_frames(split)}
    assert len({sample.frames.tobytes() for sample in samples}) == len(samples)
    for sample in samples:
        assert all(frame.tobytes() in stored for frame in sample.frames)
    with TestClient(create_app(Editor(loaded), lambda: samples), base_url=HOME) as client:
        assert client.get("/api/samples").json()[0]["title"] == samples[0].title
    # Elsewhere the videos are not there, and the page says so.
    assert explain_missing_store(data) is None
    monkeypatch.chdir("/")
    missing = explain_missing_store(data)
    assert missing is not None
    assert "there is no store here" in missing


def read_frames(split: StoreDataset) -> list[np.ndarray]:
    size = (split.frame_count, 3, *split.frame_size)
    frames = np.fromfile(split.path / "frames.u8", np.uint8).reshape(size)
    return [np.ascontiguousarray(frame.transpose(1, 2, 0)) for frame in frames]


def test_a_card_has_no_rows_of_the_paper(folder: Path) -> None:
    evaluated = run_geoco(
        "eval", "runs/mine", "--windows", 2, "--tables", "factual,editing", "--no-figures",
        cwd=folder,
    )  # fmt: skip
    assert evaluated.returncode == 0, evaluated.stderr
    assert "reconstruction: PSNR " in evaluated.stdout
    assert "edits, F1 in percent: moved" in evaluated.stdout
    assert "all tables: runs/mine/evaluation/tables.md" in evaluated.stdout
    assert "(paper, " in (folder / "runs/mine/evaluation/tables.md").read_text()
    loaded = pretrained.load(folder / "runs/mine")
    about, tables = read_results(folder / "runs/mine/evaluation", ("factual", "editing"))
    results = MeasuredResults("val", about, tables, {})
    card = Card("mine", loaded.config, loaded.model, 7, (0.1, 0.5), (20.0, 2), results=results)
    text = card.to_markdown()
    assert "a folder of videos, 16 x 16 pixels" in text
    assert "mine (measured here)" in text
    assert "paper" not in text
    known = loaded.config.model_copy(update={"data": config.SolidsConfig()})
    assert "(paper, " in replace(card, config=known).to_markdown()


def test_what_a_size_error_says(folder: Path) -> None:
    done = run_geoco("train", CONFIG, "--out", "runs/large", cwd=folder)
    assert done.returncode == 2
    assert "its frames are 16 x 16, but the configuration asks for 32 x 32" in done.stderr
    done = run_geoco("train", CONFIG, *TOY[:2], "--out", "runs/large", cwd=folder)
    assert "error: data.height=16 data.width=16: this model reads and draws 32 x 32" in done.stderr
    assert not (folder / "runs/large").exists()


@pytest.mark.parametrize(
    "asked",
    ["data.window.length=7", "train.phases=[{name: a, terms: [rec]}, {name: b, frames: 7}]"],
)
def test_clips_shorter_than_the_window(folder: Path, asked: str) -> None:
    """Imported all the same, since other windows may fit; a training says it before it begins."""
    if asked.startswith("data"):
        arguments = (*TOY[:2], "data.path=stores/short", asked)
        assert run_geoco("data", "import", CONFIG, *arguments, cwd=folder).returncode == 0
    done = run_geoco("train", CONFIG, *TOY, asked, "--out", "runs/short", cwd=folder)
    assert done.returncode == 2
    assert done.stderr == (
        "error: stores/mine/train: no clip of 7 frames fits, the longest video has 6: lower "
        "data.window.length, or frames in train.phases where they say so\n"
    )
    assert not (folder / "runs/short").exists()
