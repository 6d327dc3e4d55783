"""Training on features that were computed before: the numbers of training without them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import ROOT, run_geoco, write_dino
from helpers_elsewhere import device_elsewhere
from rich.console import Console

from geoco import config
from geoco.config import Config
from geoco.data import open_training
from geoco.data.features import FeatureStore
from geoco.data.source import RawVideo
from geoco.data.store_writer import StoreWriter
from geoco.errors import GeocoError
from geoco.models import checkpoints
from geoco.models.build import build
from geoco.training import features
from geoco.training.launch import Machine, start_training
from geoco.training.metrics_log import read_metrics
from geoco.training.trainer import Trainer

SIZE = 16
TINY = [
    f"data.height={SIZE}",
    f"data.width={SIZE}",
    "data.window={length: 4, stride: 4}",
    "model.slots={count: 3, dim: 8, update_dim: 8}",
    f"model.decoder={{broadcast: 4, layers: [[{SIZE},1]]}}",
    "train.batch=2",
    "train.precision=32-true",
    "train.learning_rate=0.01",
    "train.warmup=0",
    "train.validation=2",
    "train.log_every=1",
    "train.picture_every=100",
    "train.checkpoint_every=2",
    "train.feed=resident",
]
STEPS = "train.budget=0.00003"  # three, the last of four frames


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two videos and a tiny DINOv2."""
    folder = tmp_path_factory.mktemp("place")
    generator = np.random.default_rng(0)
    for split in ("train", "val"):
        with StoreWriter(folder / "store" / split, SIZE, SIZE, {}) as writer:
            for number, length in enumerate((5, 4)):
                frames = generator.integers(0, 256, (length, SIZE, SIZE, 3), dtype=np.uint8)
                writer.append(RawVideo(f"video {number}", frames, None))
            writer.finish()
    write_dino(folder / "dino")
    write_dino(folder / "other", registers=0, depth=1)
    return folder


def load(place: Path, *changes: str, name: str = "statm-movi-like") -> Config:
    own = [f"data.path={place / 'store'}", describe_encoder(place / "dino", 2), *TINY]
    return config.load(ROOT / "configs" / f"{name}.yaml", [*own, *changes])


def describe_encoder(folder: Path, depth: int) -> str:
    size = f"backbone: {{width: 24, depth: {depth}, heads: 2}}"
    return f"model.encoder={{kind: dino, weights: {folder}, dim: 8, {size}}}"


def write(place: Path, folder: Path, *changes: str) -> FeatureStore:
    settings = load(place, f"train.feature_store={folder}", *changes)
    return features.write_features(settings, build(settings.model))


def train(settings: Config, folder: Path, minutes: float | None = None) -> Path:
    start_training(settings, folder, Machine("cpu"), minutes, Console(quiet=True))
    return folder


def test_features_are_those_of_the_encoder_mirrored_and_not(place: Path, tmp_path: Path) -> None:
    settings = load(place)
    model = build(settings.model)
    store = write(place, tmp_path / "features")
    frames = torch.cat(list(open_training(settings).iterate_frames(torch.device("cpu"))))
    assert store.recipe.shape == (9, 2, 576, 24)
    images = frames.float() / 255
    for view, seen in enumerate((images, images.flip(-1))):
        expected = model.compute_features(seen)
        kept = store.read(np.arange(9))[:, view]
        assert torch.equal(kept, expected.to(torch.bfloat16))
    resident = features.compute_resident(
        model, open_training(settings), settings.train, torch.device("cpu")
    )
    assert torch.equal(resident, store.read(np.arange(9)))
    loaded = features.load_resident(store, open_training(settings), torch.device("cpu"))
    assert torch.equal(loaded, resident)
    unflipped = features.compute_features(model, frames[:2], load(place, "train.flip=false").train)
    assert torch.equal(unflipped, resident[:2, :1])


@pytest.mark.parametrize("name", ["geoco", "statm", "staitus"])
def test_training_gives_the_same_numbers(place: Path, tmp_path: Path, name: str) -> None:
    """To the precision of bfloat16; by whichever way features come, to the bit."""
    store = write(place, tmp_path / "features")
    kept = [f"train.feature_store={store.path}", "train.features=store"]
    extra = [] if name != "geoco" else ["model.temporal={width: 8, heads: 2, hidden: 8}"]
    runs = {"step": ["train.features=step"], "resident": ["train.features=resident"]}
    if name == "geoco":
        runs |= {"store": kept, "stream": [*kept, "train.feed=stream"]}
    curves = {}
    for way, changes in runs.items():
        settings = load(place, STEPS, *extra, *changes, name=f"{name}-movi-like")
        curves[way] = read_metrics(train(settings, tmp_path / way) / "metrics.csv")
    assert curves["step"]["rec"] == pytest.approx(curves["resident"]["rec"], rel=2e-3)
    assert curves["step"]["rec"] != curves["resident"]["rec"]  # it did not compute them again
    assert all(curves[way] == curves["resident"] for way in runs if way != "step")


def test_the_feature_head_reads_what_is_kept(place: Path, tmp_path: Path) -> None:
    small = [STEPS, "model.temporal={width: 8, heads: 2, hidden: 8}", "model.feature_head.hidden=8"]
    curves = [
        read_metrics(
            train(
                load(place, *small, f"train.features={way}", name="geoco-movi-like-features"),
                tmp_path / way,
            )
            / "metrics.csv"
        )
        for way in ("step", "resident")
    ]
    assert curves[0]["feat"] == pytest.approx(curves[1]["feat"], rel=2e-3)
    assert curves[0]["feat"][-1] < curves[0]["feat"][0]


def test_mirrored_clips_have_mirrored_features(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One decision per clip: what the objective gets fits, frame by frame."""
    settings = load(place, STEPS, "train.features=resident")
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    from geoco.training.statm_objective import StatmObjective

    compute = StatmObjective.compute

    def listen(self: StatmObjective, video: torch.Tensor, *rest: object, **more: object) -> object:
        assert isinstance(more["features"], torch.Tensor)
        seen.append((video, more["features"]))
        return compute(self, video, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(StatmObjective, "compute", listen)
    train(settings, tmp_path / "run")
    model = build(settings.model)
    frames = torch.cat(list(open_training(settings).iterate_frames(torch.device("cpu"))))
    known = {frame.numpy().tobytes() for frame in frames}
    mirrored = 0
    for video, given in seen:
        expected = model.compute_features(video.flatten(0, 1)).to(torch.bfloat16)
        assert torch.equal(given.flatten(0, 1), expected)
        pixels = (255 * video).round().to(torch.uint8)
        flipped = [[f.numpy().tobytes() not in known for f in clip] for clip in pixels]
        assert all(len(set(clip)) == 1 for clip in flipped)
        mirrored += sum(clip[0] for clip in flipped)
    assert 0 < mirrored < 2 * len(seen)


def test_resuming_is_exact(place: Path, tmp_path: Path) -> None:
    settings = load(place, STEPS, "train.features=resident")
    train(settings, tmp_path / "whole")
    train(settings, tmp_path / "pieces", minutes=0)
    assert checkpoints.read_weights(tmp_path / "pieces").step == 1
    start_training(None, tmp_path / "pieces", Machine("cpu"), None, Console(quiet=True))
    one, other = (checkpoints.read_weights(tmp_path / name).tensors for name in ("whole", "pieces"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_features_of_something_else_are_refused(place: Path, tmp_path: Path) -> None:
    store = write(place, tmp_path / "features", "train.flip=false")
    use = [STEPS, "train.features=store", f"train.feature_store={store.path}"]
    with pytest.raises(GeocoError, match="these features were made with no mirror images: run"):
        train(load(place, *use), tmp_path / "a")
    other = describe_encoder(place / "other", 1)
    with pytest.raises(GeocoError, match="these features were made with another encoder: run"):
        train(load(place, *use, "train.flip=false", other), tmp_path / "b")
    with pytest.raises(GeocoError, match="these features were made with precision 32-true: run"):
        train(load(place, *use, "train.flip=false", "train.precision=bf16-mixed"), tmp_path / "c")
    with StoreWriter(tmp_path / "store" / "train", SIZE, SIZE, {}) as writer:
        writer.append(RawVideo("v", np.zeros((9, SIZE, SIZE, 3), np.uint8), None))
        writer.finish()
    changed = load(place, *use, "train.flip=false", f"data.path={tmp_path / 'store'}")
    model = build(changed.model)
    with pytest.raises(GeocoError, match="these features were made with another store: run"):
        features.open_store(changed, model)
    with pytest.raises(GeocoError, match="there are no features here"):
        train(load(place, *use, "train.feature_store=nowhere"), tmp_path / "d")
    assert not (tmp_path / "d").exists()
    # Mirror images that are not needed do no harm.
    both = write(place, tmp_path / "both")
    features.open_store(
        load(place, *use, "train.flip=false", f"train.feature_store={both.path}"),
        build(load(place).model),
    )


def test_what_cannot_be_kept_is_refused(place: Path, tmp_path: Path) -> None:
    message = "this model has no frozen encoder whose features could be kept"
    conv = "model.encoder={kind: conv, width: 8}"
    with pytest.raises(GeocoError, match=message):
        train(load(place, conv, STEPS, "train.features=resident"), tmp_path / "run")
    with pytest.raises(GeocoError, match="features can be 'resident' only where feed is"):
        load(place, "train.features=resident", "train.feed=stream")
    with pytest.raises(GeocoError, match="set feature_store to it"):
        load(place, "train.features=store")
    settings = load(place)
    with pytest.raises(GeocoError, match=r"train\.feature_store: required to keep features"):
        features.write_features(settings, build(settings.model))
    solids = config.load(None, ["data.frames=4", f"train.feature_store={tmp_path}/x"])
    with pytest.raises(GeocoError, match="features are kept on disk of one store"):
        features.write_features(solids, build(settings.model))


def test_features_are_refused_where_they_and_their_frames_do_not_fit(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(place)
    store, dataset = write(place, tmp_path / "features"), open_training(settings)
    height, width = dataset.frame_size
    needed = 2 * 9 * 2 * 576 * 24 + 9 * 3 * height * width
    with device_elsewhere() as device:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (needed, needed))
        assert features.load_resident(store, dataset, device).device == device
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (needed - 1, needed))
        with pytest.raises(GeocoError, match="of frames do not fit on this device"):
            features.load_resident(store, dataset, device)


def test_of_two_lengths_of_clips_the_frames_are_kept_once(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[int] = []
    make_feed = Trainer._make_feed

    def count_feeds(self: Trainer, *arguments: Any) -> Any:
        before.append(len(self._feeds))
        return make_feed(self, *arguments)

    monkeypatch.setattr(Trainer, "_make_feed", count_feeds)
    train(load(place, STEPS, "train.feed=resident"), tmp_path / "run")
    assert before == [0, 0]


def test_the_command(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    command = [
        "data", "features", "configs/statm-movi-like.yaml", f"data.path={place / 'store'}",
        describe_encoder(place / "dino", 2), *TINY, f"train.feature_store={out}",
    ]  # fmt: skip
    done = run_geoco(*command, "--accelerator", "cpu")
    assert done.returncode == 0, done.stderr
    assert f"{out}: 9 frames, 2 x 576 x 24 each" in done.stdout.replace("\n", "")
    assert "all checksums are right" in run_geoco(*command, "--verify").stdout
