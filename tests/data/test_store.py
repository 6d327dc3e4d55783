"""The store: what is written comes back, after any kill, and damage is found and named."""

import itertools
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_faults import fill_disk, survives
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from geoco.config import StoreConfig, WindowConfig
from geoco.data.clip import ClipBatch
from geoco.data.source import RawVideo
from geoco.data.store import StoreDataset, read_index, verify_store
from geoco.data.store_writer import StoreWriter
from geoco.errors import GeocoError

HEIGHT, WIDTH = 8, 10
SETTINGS = {"crop": "center", "source": {"kind": "obj3d", "path": "somewhere"}}
FILES = ("frames.u8", "masks.u8", "index.json")


def make_video(number: int, frames: int = 5, masks: bool = True) -> RawVideo:
    generator = np.random.default_rng(number)
    return RawVideo(
        source=f"val/{number}",
        frames=generator.integers(0, 256, (frames, HEIGHT, WIDTH, 3), dtype=np.uint8),
        masks=generator.integers(0, 4, (frames, HEIGHT, WIDTH), np.uint8) if masks else None,
        metadata={"number": number, "ratio": 1 / 3, "labels": ["cube", "café"]},
    )


def open_writer(path: Path, **changes: Any) -> StoreWriter:
    return StoreWriter(path, HEIGHT, WIDTH, {**SETTINGS, **changes})


def write_store(path: Path, lengths: tuple[int, ...] = (5, 3, 9), masks: bool = True) -> Path:
    with open_writer(path) as writer:
        for number, frames in enumerate(lengths):
            writer.append(make_video(number, frames, masks))
        writer.finish()
    return path


def config_for(root: Path, length: int = 1, stride: int = 8, **sizes: int) -> StoreConfig:
    sizes = {"height": HEIGHT, "width": WIDTH, **sizes}
    return StoreConfig(
        path=root, source=None, window=WindowConfig(length=length, stride=stride), **sizes
    )


def nothing(*_: object) -> None:
    pass


# -- what is written comes back --------------------------------------------------------------------


def test_bytes_are_channel_first_and_in_order(tmp_path: Path) -> None:
    path = write_store(tmp_path / "val")
    videos = [make_video(number, frames) for number, frames in enumerate((5, 3, 9))]
    frames = np.fromfile(path / "frames.u8", np.uint8).reshape(17, 3, HEIGHT, WIDTH)
    masks = np.fromfile(path / "masks.u8", np.uint8).reshape(17, HEIGHT, WIDTH)
    np.testing.assert_array_equal(frames[5, 1], videos[1].frames[0, :, :, 1])
    np.testing.assert_array_equal(
        frames.transpose(0, 2, 3, 1), np.concatenate([video.frames for video in videos])
    )
    np.testing.assert_array_equal(
        masks, np.concatenate([video.masks for video in videos if video.masks is not None])
    )
    index = json.loads((path / "index.json").read_text())
    assert index["format"] == 2
    assert (index["height"], index["width"]) == (HEIGHT, WIDTH)
    assert index["mask_size"] == [HEIGHT, WIDTH]
    assert index["settings"] == SETTINGS
    assert [video["start"] for video in index["videos"]] == [0, 5, 8]
    assert index["videos"][1]["metadata"] == videos[1].metadata
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)


def test_hundred_frames_give_thirteen_windows(tmp_path: Path) -> None:
    write_store(tmp_path / "val", (100, 100), masks=False)
    dataset = StoreDataset(config_for(tmp_path, length=4), "val")
    starts = [int(dataset[i].frames[0]) for i in range(len(dataset))]
    assert starts == [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96] * 2
    assert dataset.sources == ("val/0",) * 13 + ("val/1",) * 13
    last = dataset[25]
    assert last.frames.tolist() == [96, 97, 98, 99]
    assert last.masks is None
    expected = make_video(1, 100, masks=False).frames[96:]
    np.testing.assert_array_equal(last.video.permute(0, 2, 3, 1).numpy(), expected)


def test_pieces_keep_their_source_and_their_frame_numbers(tmp_path: Path) -> None:
    whole = make_video(0, 9, masks=False)
    with open_writer(tmp_path / "val") as writer:
        writer.append(RawVideo("a.mp4", whole.frames[:5]))
        writer.append(RawVideo("a.mp4", whole.frames[5:], first=5))
        writer.finish()
    dataset = StoreDataset(config_for(tmp_path, length=2, stride=2), "val")
    assert dataset.sources == ("a.mp4",) * 4
    assert [clip.frames.tolist() for clip in dataset] == [[0, 1], [2, 3], [5, 6], [7, 8]]
    expected = whole.frames[7:9].transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(dataset[3].video.numpy(), expected)


def make_finely_masked(number: int, frames: int = 5, factor: int = 2) -> RawVideo:
    """Masks of `factor` times as many rows as the frame, and three times as many columns."""
    generator = np.random.default_rng(100 + number)
    size = (frames, factor * HEIGHT, 3 * WIDTH)
    masks = generator.integers(0, 4, size, np.uint8)
    return RawVideo(f"val/{number}", make_video(number, frames).frames, masks)


def test_masks_have_a_size_of_their_own(tmp_path: Path) -> None:
    videos = [make_finely_masked(number, frames) for number, frames in enumerate((5, 3, 9))]
    for video in videos:  # stopped after each, so that the size comes from the journal
        with open_writer(tmp_path / "val") as writer:
            writer.append(video)
    with open_writer(tmp_path / "val") as writer:
        assert len(writer) == 3
        coarse, expected = (
            make_finely_masked(3, factor=1),
            r"masks \[5, 16, 30\], got .*\[5, 8, 30\]",
        )
        with pytest.raises(GeocoError, match=expected):
            writer.append(coarse)
        writer.finish()
    assert json.loads((tmp_path / "val" / "index.json").read_text())["mask_size"] == [16, 30]
    verify_store(tmp_path / "val", nothing)
    clip = StoreDataset(config_for(tmp_path, length=4, stride=2), "val")[3]
    assert (clip.source, clip.frames.tolist()) == ("val/2", [4, 5, 6, 7])
    assert clip.masks is not None
    np.testing.assert_array_equal(clip.masks.numpy(), videos[2].masks[4:8])
    np.testing.assert_array_equal(clip.video.permute(0, 2, 3, 1).numpy(), videos[2].frames[4:8])
    with (tmp_path / "val" / "masks.u8").open("r+b") as file:
        file.seek(8 * 16 * 30 - 1)  # the last pixel of the second video's masks
        file.write(b"\x09")
    with pytest.raises(GeocoError, match=r"1 of 3 videos do not match .* first 'val/1'"):
        verify_store(tmp_path / "val", nothing)


def make_old(path: Path, masks: bool) -> None:
    """The index as the first format had it, whose masks always had the frames' size."""
    index = json.loads((path / "index.json").read_text())
    del index["mask_size"]
    (path / "index.json").write_text(json.dumps({**index, "format": 1, "has_masks": masks}))


@pytest.mark.parametrize("masks", [True, False])
def test_stores_of_the_first_format_are_read(tmp_path: Path, masks: bool) -> None:
    path = write_store(tmp_path / "val", masks=masks)
    expected = StoreDataset(config_for(tmp_path, length=2), "val").batch([0, 1, 2])
    make_old(path, masks)
    assert read_index(path).mask_size == ((HEIGHT, WIDTH) if masks else None)
    verify_store(path, nothing)
    assert_same(StoreDataset(config_for(tmp_path, length=2), "val").batch([0, 1, 2]), expected)


def test_an_unfinished_store_of_the_first_format_is_not_continued(tmp_path: Path) -> None:
    with open_writer(tmp_path / "val") as writer:
        writer.append(make_video(0))
    journal = tmp_path / "val.partial" / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(GeocoError, match=r"other settings \(format changed\): delete it"):
        open_writer(tmp_path / "val")


def test_windows_never_cross_videos(tmp_path: Path) -> None:
    write_store(tmp_path / "val", (5, 3, 9))
    dataset = StoreDataset(config_for(tmp_path, length=4, stride=2), "val")
    windows = [(clip.source, int(clip.frames[0])) for clip in dataset]
    assert windows == [("val/0", 0), ("val/2", 0), ("val/2", 2), ("val/2", 4)]
    clip = dataset[3]
    video = make_video(2, 9)
    np.testing.assert_array_equal(clip.video.numpy(), video.frames[4:8].transpose(0, 3, 1, 2))
    assert clip.masks is not None
    assert video.masks is not None
    np.testing.assert_array_equal(clip.masks.numpy(), video.masks[4:8])
    assert clip.metadata == video.metadata


def assert_same(one: ClipBatch, other: ClipBatch) -> None:
    assert torch.equal(one.video, other.video)
    assert torch.equal(one.frames, other.frames)
    assert (one.masks is None) == (other.masks is None)
    assert one.masks is None or (other.masks is not None and torch.equal(one.masks, other.masks))
    assert one.sources == other.sources
    assert one.metadata == other.metadata


@pytest.mark.parametrize("masks", [True, False])
def test_batch_equals_stacked_items(tmp_path: Path, masks: bool) -> None:
    write_store(tmp_path / "val", (5, 3, 9), masks)
    dataset = StoreDataset(config_for(tmp_path, length=2, stride=1), "val")
    order = [7, 0, 3, 3, -1, 12]
    assert_same(dataset.batch(order), ClipBatch.collate([dataset[i] for i in order]))
    with pytest.raises(IndexError):
        dataset[len(dataset)]
    with pytest.raises(GeocoError, match="at least one clip"):
        dataset.batch([])


def test_batches_do_not_share_memory_with_the_store(tmp_path: Path) -> None:
    write_store(tmp_path / "val")
    dataset = StoreDataset(config_for(tmp_path), "val")
    before = dataset[0].video.clone()
    dataset[0].video.zero_()
    dataset.batch([0]).video.zero_()
    assert torch.equal(dataset[0].video, before)


def test_workers_give_the_same_clips(tmp_path: Path) -> None:
    write_store(tmp_path / "val", (5, 30, 9))
    dataset = StoreDataset(config_for(tmp_path, length=2, stride=1), "val")
    dataset.batch([0])  # the maps are open here, and must not travel
    loader = DataLoader(
        dataset,
        batch_size=7,
        num_workers=2,
        collate_fn=ClipBatch.collate,
        multiprocessing_context="spawn",  # so that the dataset must travel
    )
    for number, batch in enumerate(loader):
        rows = range(7 * number, min(7 * number + 7, len(dataset)))
        assert_same(batch, dataset.batch(list(rows)))


def test_pickle_holds_no_frames(tmp_path: Path) -> None:
    write_store(tmp_path / "val", (100, 100))
    dataset = StoreDataset(config_for(tmp_path, length=4), "val")
    expected = dataset.batch([3, 20])
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 10_000 < (tmp_path / "val" / "frames.u8").stat().st_size
    assert_same(pickle.loads(pickled).batch([3, 20]), expected)


# -- kills -----------------------------------------------------------------------------------------

VIDEOS = 4


def continue_store(path: Path, appended: Callable[[], object] = lambda: None) -> None:
    """What an import does when it is run again."""
    if path.exists():
        read_index(path)
        return
    with open_writer(path) as writer:
        for number in range(len(writer), VIDEOS):
            writer.append(make_video(number, 1 + number % 7))
            appended()
        writer.finish()


def assert_identical(path: Path, reference: Path) -> None:
    for name in FILES:
        assert (path / name).read_bytes() == (reference / name).read_bytes(), name


def assert_kept(path: Path, videos: int) -> None:
    """No video is lost that was appended: it is in the store, or in an unfinished one."""
    if path.exists():
        assert len(read_index(path).videos) == VIDEOS
        return
    with open_writer(path) as writer:
        assert len(writer) >= videos


def check_every_operation(
    folder: Path, interrupt: Callable[[int, Callable[[], object]], bool]
) -> None:
    """Interrupt an import at one operation after the other; resumed, it is as if uninterrupted.

    `interrupt` takes the operation's number and the work, and says if the work came to its end.
    """
    reference, appended = folder / "reference", list[int]()
    continue_store(reference)
    for number in itertools.count():
        path = folder / str(number)
        work = partial(continue_store, path, partial(appended.append, number))
        finished = interrupt(number, work)
        assert_kept(path, appended.count(number))
        continue_store(path)
        assert_identical(path, reference)
        if finished:
            break
    assert number > 10 * VIDEOS


@pytest.mark.parametrize("again", [0, 3, 6, 9])
def test_killed_at_every_operation_and_resumed(tmp_path: Path, again: int) -> None:
    """Also if the resumption is killed, a few operations after its start."""

    def kill_twice(number: int, work: Callable[[], object]) -> bool:
        finished = survives(number, work)
        survives(again, work)
        return finished

    check_every_operation(tmp_path, kill_twice)


@pytest.mark.parametrize("lasting", [False, True])
def test_full_disk_at_every_operation(tmp_path: Path, lasting: bool) -> None:
    def fill(number: int, work: Callable[[], object]) -> bool:
        finished, message = fill_disk(number, work, lasting)
        assert finished == (not message)
        assert finished or re.search(r"cannot write here: No space left .* where it", message)
        return finished

    check_every_operation(tmp_path, fill)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.floats(0, 1), junk=st.integers(0, 700), extra=st.booleans())
def test_every_state_a_kill_can_leave(tmp_path: Path, cut: float, junk: int, extra: bool) -> None:
    """The journal cut at any byte, with bytes of unjournaled videos behind the journaled ones."""
    path, reference, begun = (tmp_path / name for name in ("val", "reference", "begun"))
    if not reference.exists():
        continue_store(reference)
        with open_writer(begun) as writer:
            for number in range(VIDEOS - 1):
                writer.append(make_video(number, 1 + number % 7))
    shutil.rmtree(path, ignore_errors=True)
    unfinished = tmp_path / "val.partial"
    shutil.copytree(tmp_path / "begun.partial", unfinished)
    journal = (unfinished / "journal.jsonl").read_bytes()
    (unfinished / "journal.jsonl").write_bytes(journal[: round(cut * len(journal))])
    for name in ("frames.u8", "masks.u8") if extra else ("frames.u8",):
        with (unfinished / name).open("ab") as file:
            file.write(b"\xff" * junk)
    if extra:  # killed between the index and the final name
        (unfinished / "index.json").write_text('{"format": 1, "hei')
    with open_writer(path) as writer:  # what the first resumption leaves must itself be resumable
        writer.append(make_video(len(writer), 1 + len(writer) % 7))
    continue_store(path)
    assert_identical(path, reference)


def test_torn_last_line_loses_only_that_video(tmp_path: Path) -> None:
    with open_writer(tmp_path / "val") as writer:
        for number in range(3):
            writer.append(make_video(number))
    journal = tmp_path / "val.partial" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-9])
    with open_writer(tmp_path / "val") as writer:
        assert len(writer) == 2
        assert writer.last is not None
        assert writer.last.source == "val/1"
    assert (tmp_path / "val.partial" / "frames.u8").stat().st_size == 10 * 3 * HEIGHT * WIDTH


def test_a_writer_is_closed_by_a_full_disk(tmp_path: Path) -> None:
    with open_writer(tmp_path / "val") as writer:
        writer.append(make_video(0))
        _, message = fill_disk(0, lambda: writer.append(make_video(1)), lasting=False)
        assert "cannot write here: No space left" in message
        with pytest.raises(GeocoError, match="this writer is closed"):
            writer.append(make_video(1))


# -- the writer refuses ----------------------------------------------------------------------------


def test_finished_store_is_not_overwritten(tmp_path: Path) -> None:
    path = write_store(tmp_path / "val")
    before = (path / "frames.u8").read_bytes()
    with pytest.raises(GeocoError, match=r"there is a store already: delete it or choose"):
        open_writer(path)
    assert (path / "frames.u8").read_bytes() == before


def test_other_settings_do_not_continue(tmp_path: Path) -> None:
    with open_writer(tmp_path / "val") as writer:
        writer.append(make_video(0))
    with pytest.raises(GeocoError, match=r"other settings \(crop changed\)"):
        open_writer(tmp_path / "val", crop="none")
    with pytest.raises(GeocoError, match=r"other settings \(height, width changed\)"):
        StoreWriter(tmp_path / "val", 16, 16, SETTINGS)
    with open_writer(tmp_path / "val") as writer:
        assert len(writer) == 1


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with (
        open_writer(tmp_path / "val"),
        pytest.raises(GeocoError, match="another import is writing here"),
    ):
        open_writer(tmp_path / "val")
    open_writer(tmp_path / "val").close()


def test_damaged_journal(tmp_path: Path) -> None:
    with open_writer(tmp_path / "val") as writer:
        for number in range(3):
            writer.append(make_video(number))
    unfinished = tmp_path / "val.partial"
    lines = (unfinished / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (unfinished / "journal.jsonl").write_bytes(b"".join([lines[0], b"{nonsense}\n", *lines[2:]]))
    with pytest.raises(GeocoError, match=r"line 2 is damaged: delete .* from the start"):
        open_writer(tmp_path / "val")
    (unfinished / "journal.jsonl").write_bytes(b"".join([b"5\n", *lines[1:]]))
    with pytest.raises(GeocoError, match="line 1 is damaged"):
        open_writer(tmp_path / "val")
    (unfinished / "journal.jsonl").write_bytes(b"".join(lines))
    os.truncate(unfinished / "frames.u8", 100)
    with pytest.raises(GeocoError, match=r"frames.u8: expected at least 3600 bytes, found 100"):
        open_writer(tmp_path / "val")


def break_video(**changes: Any) -> RawVideo:
    """A video that the run-time checks of the tests would not let us construct."""
    video = make_video(0)
    for name, value in changes.items():
        object.__setattr__(video, name, value)
    return video


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frames": np.zeros((5, 8, 9, 3), np.uint8)}, r"\[time, 8, 10, 3\], got .*\[5, 8, 9, 3\]"),
        ({"frames": np.zeros((5, 8, 10, 3), np.float32)}, "expected uint8 frames .* got float32"),
        ({"frames": np.zeros((0, 8, 10, 3), np.uint8)}, r"got uint8 \[0, 8, 10, 3\]"),
        (
            {"masks": np.zeros((4, 8, 10), np.uint8)},
            r"masks \[5, height, width\], got .*\[4, 8, 10\]",
        ),
        (
            {"masks": np.zeros((5, 0, 10), np.uint8)},
            r"masks \[5, height, width\], got .*\[5, 0, 10\]",
        ),
        (
            {"masks": np.zeros((5, 80), np.uint8)},
            r"masks \[5, height, width\], got uint8 \[5, 80\]",
        ),
        ({"masks": np.zeros((5, 8, 10), np.float32)}, "expected integer masks .* got float32"),
        ({"masks": np.full((5, 8, 10), 256)}, "mask ids from 256 to 256, but a store holds"),
        ({"masks": np.full((5, 8, 10), -1)}, "mask ids from -1 to -1"),
        ({"metadata": {"array": np.zeros(2)}}, "metadata that JSON cannot hold"),
        ({"metadata": {"mass": float("nan")}}, "metadata that JSON cannot hold"),
    ],
)
def test_bad_videos_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with open_writer(tmp_path / "val") as writer:
        with pytest.raises(GeocoError, match=f"val/0: .*{message}"):
            writer.append(break_video(**changes))
        writer.append(make_video(1))  # and nothing of the refused one is in the way
        writer.finish()
    verify_store(tmp_path / "val", nothing)


def test_masks_for_all_videos_or_none(tmp_path: Path) -> None:
    with open_writer(tmp_path / "val") as writer:
        writer.append(make_video(0))
        with pytest.raises(GeocoError, match="val/1: this video has no masks, but those before"):
            writer.append(make_video(1, masks=False))
    with open_writer(tmp_path / "test") as writer:
        writer.append(make_video(0, masks=False))
        with pytest.raises(GeocoError, match=r"val/1: this video has masks, but .* have no"):
            writer.append(make_video(1))
    with (
        open_writer(tmp_path / "train") as writer,
        pytest.raises(GeocoError, match="no videos were imported"),
    ):
        writer.finish()


# -- damage ----------------------------------------------------------------------------------------


def edit_index(path: Path, **changes: Any) -> None:
    index = json.loads((path / "index.json").read_text())
    (path / "index.json").write_text(json.dumps({**index, **changes}))


def shift_second_video(path: Path) -> None:
    videos = json.loads((path / "index.json").read_text())["videos"]
    videos[1]["start"] += 1
    edit_index(path, videos=videos)


def make_partial(path: Path) -> None:
    path.rename(path.with_name("val.partial"))


BAD_STORES = {
    "missing": (shutil.rmtree, r"no store here: run geoco data import <config>"),
    "unfinished": (make_partial, r"import did not finish: run geoco data import <config>"),
    "no index": (lambda path: (path / "index.json").unlink(), r"it has no index.json"),
    "not JSON": (lambda path: (path / "index.json").write_text("{"), r"index.json: not a store's"),
    "not UTF-8": (lambda path: (path / "index.json").write_bytes(b"\xff\xfe"), r"not a store's"),
    "a list": (lambda path: (path / "index.json").write_text("[]"), r"not a store's index"),
    "no format": (lambda path: (path / "index.json").write_text("{}"), r"not a store's index"),
    "newer": (lambda path: edit_index(path, format=3), r"format 3, but .* reads formats 1 and 2"),
    "falsely old": (lambda path: edit_index(path, format=1), r"not a store's index, or damaged"),
    "other masks": (
        lambda path: edit_index(path, mask_size=[16, 20]),
        r"masks.u8: expected 5440 bytes, found 1360: delete",
    ),
    "wrong type": (lambda path: edit_index(path, height="8"), r"not a store's index, or damaged"),
    "unknown key": (lambda path: edit_index(path, colour=1), r"not a store's index, or damaged"),
    "no videos": (lambda path: edit_index(path, videos=[]), r"do not follow each other"),
    "shifted": (shift_second_video, r"do not follow each other: delete"),
    "short frames": (
        lambda path: os.truncate(path / "frames.u8", 4000),
        r"frames.u8: expected 4080 bytes, found 4000: delete .* import <config> again",
    ),
    "short masks": (
        lambda path: os.truncate(path / "masks.u8", 1),
        r"masks.u8: expected 1360 bytes, found 1:",
    ),
    "no masks": (lambda path: (path / "masks.u8").unlink(), r"masks.u8: expected 1360 .* found 0"),
}


@pytest.mark.parametrize("kind", BAD_STORES)
def test_bad_stores(tmp_path: Path, kind: str) -> None:
    path = write_store(tmp_path / "val")
    damage, message = BAD_STORES[kind]
    damage(path)
    with pytest.raises(GeocoError, match=message) as caught:
        StoreDataset(config_for(tmp_path), "val")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(GeocoError, match=message):
        verify_store(path, nothing)


def test_store_of_another_size(tmp_path: Path) -> None:
    write_store(tmp_path / "val")
    with pytest.raises(GeocoError, match=r"frames are 8 x 10, but .* asks for 64 x 64: set data"):
        StoreDataset(config_for(tmp_path, height=64, width=64), "val")


def test_missing_split(tmp_path: Path) -> None:
    write_store(tmp_path / "val")
    write_store(tmp_path / "test")
    with pytest.raises(GeocoError, match=r"train: there is no store here, only test, val beside"):
        StoreDataset(config_for(tmp_path), "train")


def test_no_window_fits(tmp_path: Path) -> None:
    write_store(tmp_path / "val", (5, 3))
    with pytest.raises(GeocoError, match=r"no clip of 6 frames fits, the longest video has 5"):
        StoreDataset(config_for(tmp_path, length=6), "val")
    assert len(StoreDataset(config_for(tmp_path, length=5), "val")) == 1


def test_unreadable_index(tmp_path: Path) -> None:
    path = write_store(tmp_path / "val")
    (path / "index.json").chmod(0)
    if os.access(path / "index.json", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(GeocoError, match="cannot read this file: Permission denied"):
        read_index(path)


@pytest.mark.parametrize(("name", "place"), [("frames.u8", 5 * 3 * 80), ("masks.u8", 7 * 80 + 79)])
def test_verify_names_the_damaged_video(tmp_path: Path, name: str, place: int) -> None:
    path = write_store(tmp_path / "val")
    calls: list[tuple[int, int]] = []
    verify_store(path, lambda done, total: calls.append((done, total)))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    with (path / name).open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))  # one bit of the second video
    with pytest.raises(GeocoError, match=r"1 of 3 videos do not match .* first 'val/1'"):
        verify_store(path, nothing)
