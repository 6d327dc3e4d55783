"""A folder that divides itself: the same videos validate every time, and none of them trains."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from geoco.config import FolderSource, StoreConfig
from geoco.data import StoreDataset, folder
from geoco.data.importing import import_data
from geoco.data.store import read_index
from geoco.errors import GeocoError


def write_clip(path: Path, frames: int = 3, value: int = 0) -> None:
    """A folder of frames whose brightness counts them."""
    path.mkdir(parents=True)
    for number in range(frames):
        Image.new("RGB", (12, 10), (10 * number + value,) * 3).save(path / f"{number}.png")


def write_clips(path: Path, count: int) -> Path:
    for number in range(count):
        write_clip(path / f"clip{number}", value=number)
    return path


def make_store(tmp_path: Path, **options: object) -> StoreConfig:
    source = FolderSource.model_validate({"path": tmp_path / "raw", "split": "auto", **options})
    return StoreConfig(path=tmp_path / "store", height=8, width=8, source=source)


def imported(config: StoreConfig) -> dict[str, set[str]]:
    written = import_data(config, lambda _: None)
    return {split: {v.source for v in read_index(path).videos} for split, path in written.items()}


def test_videos_are_divided_by_name_and_seed(tmp_path: Path) -> None:
    write_clips(tmp_path / "raw", 8)
    split = imported(make_store(tmp_path))
    assert len(split["val"]) == 2  # a fifth of eight, rounded
    assert split["train"] | split["val"] == {f"clip{number}" for number in range(8)}
    assert not split["train"] & split["val"]
    # By hand: sorted by the SHA-256 of "42 clip0", "42 clip1" and so on.
    assert split["val"] == {"clip0", "clip1"}
    source = make_store(tmp_path, seed=1).source
    assert isinstance(source, FolderSource)
    assert set(folder.divide_videos(source).val) != split["val"]


@pytest.mark.parametrize(("count", "share", "validating"), [(2, 0.2, 1), (2, 0.9, 1), (5, 0.5, 2)])
def test_both_parts_have_a_video(tmp_path: Path, count: int, share: float, validating: int) -> None:
    write_clips(tmp_path / "raw", count)
    source = make_store(tmp_path, validation=share).source
    assert isinstance(source, FolderSource)
    division = folder.divide_videos(source)
    assert (len(division.train), len(division.val)) == (count - validating, validating)


def test_what_is_decided_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    write_clips(tmp_path / "raw", 8)
    import_data(make_store(tmp_path), lambda _: None, said.append)
    assert said == [
        "2 of 8 videos validate, the others train (data.source.validation=0.2, drawn by "
        "data.source.seed=42): clip0, clip1"
    ]


def test_of_an_only_video_the_last_part_validates(tmp_path: Path) -> None:
    write_clip(tmp_path / "raw" / "clip", frames=10)
    config = make_store(tmp_path, max_frames=3)
    said: list[str] = []
    import_data(config, lambda _: None, said.append)
    assert said[0].startswith("one video: its last 2 of 10 frames validate")
    train, val = (StoreDataset(config, split) for split in ("train", "val"))
    assert [int(clip.video[0, 0, 0, 0]) // 10 for clip in val] == [8]  # windows every 8 frames
    assert val.frame_count == 2
    assert int(val.frame_numbers[0]) == 8
    assert train.frame_count == 8
    assert [video.first for video in train.index.videos] == [0, 3, 6]


def test_a_single_picture_cannot_be_divided(tmp_path: Path) -> None:
    write_clip(tmp_path / "raw" / "clip", frames=1)
    with pytest.raises(GeocoError, match="a single frame leaves nothing to validate on: add more"):
        import_data(make_store(tmp_path), lambda _: None)
    assert not (tmp_path / "store").exists()


def test_files_that_cannot_be_read_are_named_before_the_work(tmp_path: Path) -> None:
    write_clips(tmp_path / "raw", 3)
    (tmp_path / "raw" / "clip1" / "0.png").write_bytes(b"junk")
    (tmp_path / "raw" / "film.gif").write_bytes(b"")
    with pytest.raises(GeocoError, match=r"clip1.*\(also film.gif\): move such files out of .*raw"):
        import_data(make_store(tmp_path), lambda _: None)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("finished", ["train", "both"])
def test_another_set_of_videos_is_not_mixed_in(tmp_path: Path, finished: str) -> None:
    """What has trained could come to validate: one video less draws another one."""
    write_clips(tmp_path / "raw", 8)
    config = make_store(tmp_path)
    imported(config)
    if finished == "train":
        for file in (config.path / "val").iterdir():
            file.unlink()
        (config.path / "val").rmdir()
    for file in (tmp_path / "raw" / "clip7").iterdir():
        file.unlink()
    (tmp_path / "raw" / "clip7").rmdir()
    before = (config.path / "train" / "index.json").read_bytes()
    with pytest.raises(GeocoError, match="its videos are not those of the import before"):
        imported(config)
    assert (config.path / "train" / "index.json").read_bytes() == before


def test_stores_outlive_their_videos(tmp_path: Path) -> None:
    write_clips(tmp_path / "raw", 2)
    config = make_store(tmp_path)
    first = imported(config)
    (tmp_path / "raw").rename(tmp_path / "elsewhere")
    assert imported(config) == first


def test_stores_of_one_split_are_known_as_before(tmp_path: Path) -> None:
    """Settings that do not matter are no part of what an import is checked against."""
    write_clips(tmp_path / "raw", 2)
    config = make_store(tmp_path, split="train")
    imported(config)
    source = read_index(config.path / "train").settings["source"]
    assert not {"validation", "seed"} & source.keys()
    assert imported(make_store(tmp_path, split="train", seed=3)) == {"train": {"clip0", "clip1"}}
    np.testing.assert_array_equal(StoreDataset(config, "train").source_numbers, [0, 1])
