"""Training batches: which clips a step takes, and that both feeds give the same ones."""

from pathlib import Path

import numpy as np
import pytest
import torch

from geoco import config
from geoco.config import Config, SolidsConfig, StoreConfig, WindowConfig
from geoco.config.training import ExtraStoreConfig, TrainConfig
from geoco.data import MixedDataset, SolidsDataset, StoreDataset, open_training
from geoco.data.loader import Order, ResidentFeed, StreamFeed
from geoco.data.source import RawVideo
from geoco.data.store_writer import StoreWriter
from geoco.errors import GeocoError

SETTINGS = SolidsConfig(
    episodes={"train": 3, "val": 1, "test": 1},  # type: ignore[arg-type]
    frames=6,
    height=16,
    width=16,
    supersample=1,
    window=WindowConfig(length=2, stride=1),
)

NUMBERS = "source_numbers"


def test_every_epoch_sees_every_clip_once_in_another_order() -> None:
    order = Order(count=10, batch=4, seed=7)
    seen = np.concatenate([order(step) for step in range(10)])
    first, second = seen[:10], seen[10:20]
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)
    assert sorted(seen) == sorted(list(range(10)) * 4)


def test_a_step_does_not_depend_on_the_steps_before() -> None:
    order = Order(count=10, batch=4, seed=7)
    straight = [order(step).tolist() for step in range(8)]
    assert [Order(10, 4, 7)(step).tolist() for step in (5, 2, 7)] == [
        straight[step] for step in (5, 2, 7)
    ]
    assert Order(10, 4, 8)(0).tolist() != straight[0]


def test_batches_larger_than_the_dataset() -> None:
    assert sorted(Order(count=3, batch=7, seed=0)(0)[:3]) == [0, 1, 2]


def test_both_feeds_give_the_clips_of_the_dataset() -> None:
    dataset = SolidsDataset(SETTINGS, "train")
    order = Order(len(dataset), 5, 1)
    device = torch.device("cpu")
    told = []
    resident = ResidentFeed(dataset, order, device, lambda done, count: told.append((done, count)))
    stream = StreamFeed(dataset, order, device)
    assert told[-1] == (18, 18)
    for step in (0, 1, 5, 2):
        rows = order(step)
        clips = [dataset[int(row)] for row in rows]
        expected = torch.stack([clip.video for clip in clips])
        sources = [int(clip.source.split("/")[1]) for clip in clips]
        for feed in (resident, stream):
            batch = feed(step)
            assert torch.equal(batch.video, expected)
            assert batch.source_numbers is not None
            assert batch.source_numbers.tolist() == sources
            assert batch.sources == tuple(clip.source for clip in clips)
            assert torch.equal(batch.frames, torch.stack([clip.frames for clip in clips]))


def test_training_renders_and_reads_no_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreWriter(tmp_path / "train", 16, 16, {}) as writer:
        frames = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
        writer.append(
            RawVideo("mine", frames, np.kron(frames[..., 0] // 100, np.ones((2, 2), np.uint8)))
        )
        writer.finish()
    settings = StoreConfig(path=tmp_path, height=16, width=16, window=SETTINGS.window, source=None)
    stored, generated = StoreDataset(settings, "train"), SolidsDataset(SETTINGS, "train")
    expected = [stored.batch([2, 0]), generated.batch([7, 0])]
    assert all(batch.masks is not None and batch.metadata for batch in expected)

    def refuse(*_: object) -> None:
        raise AssertionError("masks that nobody uses")

    monkeypatch.setattr("geoco.solids.render._render_masks", refuse)
    monkeypatch.setattr(StoreDataset, "_masks", property(refuse))
    given = [stored.batch_frames([2, 0]), generated.batch_frames([7, 0])]
    for batch, known in zip(given, expected, strict=True):
        assert batch.masks is None
        assert not batch.metadata
        assert batch.sources == known.sources
        assert torch.equal(batch.video, known.video)
        assert torch.equal(batch.frames, known.frames)
    for dataset in (stored, generated):
        order, device = Order(len(dataset), 2, 0), torch.device("cpu")
        one, other = ResidentFeed(dataset, order, device), StreamFeed(dataset, order, device)
        assert torch.equal(one(0).video, other(0).video)


# -- data together with others ---------------------------------------------------------------------


def store(root: Path, lengths: tuple[int, ...], size: int = 16) -> Path:
    """Videos whose frames all have another brightness."""
    with StoreWriter(root / "train", size, size, {}) as writer:
        for number, length in enumerate(lengths):
            bright = 100 + 10 * number + np.arange(length, dtype=np.uint8)
            frames = np.broadcast_to(bright[:, None, None, None], (length, size, size, 3))
            writer.append(RawVideo(f"mine/{number}", frames))
        writer.finish()
    return root


def configure_mixture(*extra_stores: ExtraStoreConfig) -> Config:
    return Config(data=SETTINGS, train=TrainConfig(extra_stores=extra_stores))


def test_clips_of_other_stores_come_as_often_as_asked(tmp_path: Path) -> None:
    """Three videos of five clips each, and twice the 2 + 1 clips of two more."""
    dataset = open_training(
        configure_mixture(ExtraStoreConfig(path=store(tmp_path, (3, 2)), times=2))
    )
    assert isinstance(dataset, MixedDataset)
    assert len(dataset) == 15 + 2 * 3
    assert dataset.frame_count == 18 + 5
    assert dataset.first_frames.tolist()[15:] == 2 * [18, 19, 21]
    assert dataset.source_numbers.tolist()[15:] == 2 * [3, 3, 4]
    own = SolidsDataset(SETTINGS, "train")
    assert dataset.first_frames.tolist()[:15] == own.first_frames.tolist()
    assert dataset.source_numbers.tolist()[:15] == own.source_numbers.tolist()


def test_both_feeds_mix_alike(tmp_path: Path) -> None:
    dataset = open_training(configure_mixture(ExtraStoreConfig(path=store(tmp_path, (3, 2)))))
    order = Order(len(dataset), 5, 1)
    device = torch.device("cpu")
    resident, stream = ResidentFeed(dataset, order, device), StreamFeed(dataset, order, device)
    own = SolidsDataset(SETTINGS, "train")
    bright = {15: 100, 16: 101, 17: 110}
    for step in range(4):
        one, other = resident(step), stream(step)
        assert one.sources == other.sources
        assert one.tensors().keys() == other.tensors().keys() == {"video", "frames", NUMBERS}
        for name, value in one.tensors().items():
            assert torch.equal(value, other.tensors()[name]), name
        for row, video in zip(order(step).tolist(), one.video, strict=True):
            if row < len(own):
                assert torch.equal(video, own[row].video)
            else:
                assert video[:, 0, 0, 0].tolist() == [bright[row], bright[row] + 1]
    rows = [16, 2, 17, 16]
    batch = dataset.batch_frames(rows)
    assert batch.sources == ("mine/0", "train/0", "mine/1", "mine/0")
    assert batch.frames.tolist() == [[1, 2], [2, 3], [0, 1], [1, 2]]


def test_without_others_the_dataset_is_itself() -> None:
    assert isinstance(open_training(configure_mixture()), SolidsDataset)


def test_windows_are_those_asked_for(tmp_path: Path) -> None:
    settings = configure_mixture(ExtraStoreConfig(path=store(tmp_path, (3, 2))))
    dataset = open_training(settings, WindowConfig(length=1, stride=2))
    assert isinstance(dataset, MixedDataset)
    other = dataset.ingredients[1].dataset
    assert isinstance(other, StoreDataset)
    assert (dataset.length, len(other)) == (1, 3)


@pytest.mark.parametrize(
    ("size", "path", "words"),
    [(24, "", "its frames are 24 x 24, but those of data are 16 x 16"), (16, "no", "no store")],
)
def test_what_cannot_be_mixed_is_refused(tmp_path: Path, size: int, path: str, words: str) -> None:
    store(tmp_path, (3,), size)
    with pytest.raises(GeocoError, match=words):
        open_training(configure_mixture(ExtraStoreConfig(path=tmp_path / path)))


def test_named_on_the_command_line() -> None:
    settings = config.load(None, ["train.extra_stores=[{path: stores/mine, times: 3}]"])
    assert settings.train.extra_stores == (ExtraStoreConfig(path=Path("stores/mine"), times=3),)
    assert config.loads(settings.to_yaml()) == settings
