"""MOVi-C from the files that TFDS publishes to an edited video: import, train, measure, edit.

So short a training gives a model that finds little; what it scores is asserted nowhere.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, run_geoco
from helpers_movi import FRAMES, draw_clip, write_movi
from PIL import Image
from rich.console import Console

from geoco import config
from geoco.data import StoreDataset
from geoco.data.importing import import_data
from geoco.data.source import RawVideo
from geoco.data.store_writer import StoreWriter
from geoco.editing.editor import Editor, Film
from geoco.evaluation import TABLES
from geoco.models import checkpoints
from geoco.training.launch import Machine, start_training
from geoco.training.metrics_log import read_metrics

RECIPE = "configs/geoco-movi-c.yaml"
SPLITS = {"train": 2, "validation": 2}  # videos
SIZES = (128, 256)
TINY = [  # loose filters and a small model, so that every term has work to do in a few steps
    "train.quality.fewest_pixels=1",
    "train.quality.least_peak=0.0",
    "train.quality.deviations=0.0",
    "train.quality.most_tokens=1.0",
    "train.quality.most_overlap=1.0",
    "train.quality.scale_ratio=[0.01,100.0]",
    "train.quality.least_compactness=0.0",
    "train.quality.fewest_coherent_tokens=0.0",
    "train.quality.least_agreement=0.0",
    "train.quality.position_coverage=1.0",
    "train.learning_rate=5e-2",
    "train.batch=2",
    "train.precision=32-true",
    "train.validation=2",
    "train.log_every=1",
    "train.picture_every=10",
    "model.encoder={kind: conv, width: 16}",
    "model.slots={count: 5, dim: 8, update_dim: 8, grid_dim: 8}",
    "model.decoder.broadcast=8",
    "model.decoder.layers=[[64,3]]",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset at both of its published sizes, laid out as they are."""
    folder = tmp_path_factory.mktemp("movi_c")
    for size in SIZES:
        write_movi(folder / f"{size}x{size}" / "1.0.0", size, SPLITS)
    return folder


@pytest.fixture(scope="module")
def store(files: Path) -> Path:
    """The smaller one, imported as a user does it."""
    out = files / "store"
    source = files / "128x128" / "1.0.0"
    done = run_geoco("data", "import", RECIPE, f"data.source.path={source}", f"data.path={out}")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def run(store: Path) -> Path:
    """A training through all phases."""
    out = store.parent / "run"
    settings = config.load(
        ROOT / RECIPE,
        [f"data.path={store}", "data.source=null", "train.budget=0.00006", *TINY],
    )
    start_training(settings, out, Machine("cpu"), None, Console(quiet=True))
    return out


@pytest.mark.parametrize("size", SIZES)
def test_frames_shrink_and_masks_stay(files: Path, tmp_path: Path, size: int) -> None:
    source = f"data.source.path={files / f'{size}x{size}'}"
    settings = config.load(ROOT / RECIPE, [source, f"data.path={tmp_path}"]).data
    assert isinstance(settings, config.StoreConfig)
    assert list(import_data(settings, lambda progress: None)) == ["train", "val"]
    for split, first in (("train", 0), ("val", 2)):
        clips = StoreDataset(settings, split)
        assert clips.sources == tuple(f"movi_c/{split}/{first + number}" for number in range(2))
        for number, clip in enumerate(clips, first):
            frames, masks = draw_clip(number, size)
            np.testing.assert_array_equal(clip.masks, masks)
            # An object's colour is as it was wherever the eight pixels around are of it, too.
            step = size // 64
            padded = np.pad(masks, ((0, 0), (step, step), (step, step)), "edge")
            around = np.lib.stride_tricks.sliding_window_view(padded, (3 * step, 3 * step), (1, 2))
            around = around[:, ::step, ::step]
            pure = (around.min((3, 4)) > 0) & (around.min((3, 4)) == around.max((3, 4)))
            small = clip.video.permute(0, 2, 3, 1).numpy()
            assert pure.sum() > 1000
            np.testing.assert_array_equal(small[pure], frames[:, ::step, ::step][pure])


def test_training_went_through_all_phases(run: Path) -> None:
    metrics = read_metrics(run / "metrics.csv")
    assert len(metrics["step"]) == 6
    # The others are of pairs and of objects that so short a training may not have.
    assert all(any(metrics[term]) for term in ("rec", "ov"))
    assert not any(metrics["tail"])
    moved = checkpoints.read_weights(run).tensors["temporal.residual.weight"]
    assert moved.abs().max() > 0  # the last phase, of four frames


@pytest.mark.parametrize(
    ("size", "masks"),
    [(128, "frames"), (128, "native"), (256, "native")],
)
def test_every_table_that_fits_is_made(
    files: Path, run: Path, tmp_path: Path, size: int, masks: str
) -> None:
    source = [f"data.source.path={files / f'{size}x{size}'}", f"data.masks={masks}"]
    data = config.load(ROOT / RECIPE, [*source, f"data.path={tmp_path / 'store'}"]).data
    assert isinstance(data, config.StoreConfig)
    import_data(data, lambda progress: None)
    out = tmp_path / "evaluation"
    done = run_geoco(
        "eval", run, f"data.path={data.path}", "--no-figures", "--out", out,
        "--extended-windows", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}
    assert {"factual", "editing", "matched", "finite-grid", "tubes"} <= set(results) <= set(TABLES)
    for table, result in results.items():
        assert result["values"], table
        assert result["population"]["videos"] == 2, table
    assert (out / "tables.md").exists()


def test_a_video_is_edited(run: Path, tmp_path: Path) -> None:
    frames = [Image.fromarray(frame) for frame in draw_clip(7, 128)[0]]
    frames[0].save(tmp_path / "film.gif", save_all=True, append_images=frames[1:], duration=80)
    done = run_geoco(
        "edit", tmp_path / "film.gif", "--move", "1:6,0", "--resize", "2:1.5",
        "-o", tmp_path / "edited", "--model", run, "--size", "model",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    film = Editor.load(run).encode_video(tmp_path / "film.gif")
    expected = film.move(1, 6, 0).resize(2, 1.5)
    assert isinstance(expected, Film)
    assert len(expected) == FRAMES
    for number, image in enumerate(expected.images):
        drawn = np.asarray(Image.open(tmp_path / "edited" / f"{number:05d}.png"))
        np.testing.assert_array_equal(drawn, image)
    assert not np.array_equal(np.stack(film.images), np.stack(expected.images))


@pytest.mark.parametrize("name", ["geoco-movi-like", "geoco-movi-like-ahead"])
def test_the_recipe_trains_on_clips_like_movi(tmp_path: Path, name: str) -> None:
    """Three steps, the last with its temporal part; larger masks of validation are not read."""
    for split, masked in (("train", False), ("val", True)):
        with StoreWriter(tmp_path / "store" / split, 32, 32, {}) as writer:
            for number in range(2):
                frames, masks = draw_clip(number, 32)[0], draw_clip(number, 64)[1]
                writer.append(RawVideo(f"clip {number}", frames, masks if masked else None))
            writer.finish()
    changes = [f"data.path={tmp_path / 'store'}", "data.height=32", "data.width=32", *TINY]
    changes += ["model.decoder.layers=[[32,3]]", "train.budget=0.00003"]
    settings = config.load(ROOT / "configs" / f"{name}.yaml", changes)
    start_training(settings, tmp_path / "run", Machine("cpu"), None, Console(quiet=True))
    assert len(read_metrics(tmp_path / "run" / "metrics.csv")["rec"]) == 3
    tensors = checkpoints.read_weights(tmp_path / "run").tensors
    assert any(tensor.startswith("temporal.ahead.") for tensor in tensors) == ("ahead" in name)
