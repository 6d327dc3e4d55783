"""Import: pixels known by hand, every split, and a resumed import equal to an uninterrupted one."""

import itertools
import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_faults import survives
from PIL import Image

from geoco.config import (
    FolderSource,
    MoviSource,
    Obj3DSource,
    SolidsConfig,
    StoreConfig,
    WindowConfig,
)
from geoco.data import SolidsDataset, movi
from geoco.data.importing import ImportProgress, fit_video, import_data
from geoco.data.source import RawVideo
from geoco.data.store import StoreDataset, verify_store
from geoco.errors import GeocoError
from geoco.instances import score_masks
from geoco.media import center_box

ROOT = Path(__file__).parents[2]


def write_obj3d(root: Path, **episodes: int) -> Obj3DSource:
    """Episodes of 100 frames, 16 x 16; the frames differ in all pixels."""
    generator = np.random.default_rng(0)
    for split, number in episodes.items():
        for episode in range(number):
            folder = root / split / str(episode)
            folder.mkdir(parents=True)
            pixels = generator.integers(0, 256, (100, 16, 16, 4), dtype=np.uint8)
            pixels[..., 3] = 255
            for frame, picture in enumerate(pixels, start=1):
                Image.fromarray(picture).save(folder / f"test_{frame}.png")
    return Obj3DSource(path=root)


def store_of(path: Path, source: Any, size: int = 8, **options: Any) -> StoreConfig:
    return StoreConfig(path=path, height=size, width=size, source=source, **options)


def nothing(_: ImportProgress) -> None:
    pass


def raw(frames: np.ndarray, masks: np.ndarray | None = None) -> RawVideo:
    return RawVideo("video", frames, masks)


# -- pixels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "target", "box"),
    [
        ((128, 128), (64, 64), (0, 0, 128, 128)),
        ((480, 640), (64, 64), (80, 0, 560, 480)),
        ((640, 480), (64, 64), (0, 80, 480, 560)),
        ((10, 13), (8, 8), (1, 0, 11, 10)),  # an odd rest: the left edge loses the smaller part
        ((100, 300), (64, 128), (50, 0, 250, 100)),
        ((300, 100), (64, 128), (0, 125, 100, 175)),
        ((1, 1000), (64, 64), (499, 0, 500, 1)),
        ((1, 3), (1024, 8), (1, 0, 2, 1)),  # never thinner than a pixel
    ],
)
def test_center_box(
    size: tuple[int, int], target: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    assert center_box(*size, *target) == box


def test_crop_without_scaling_keeps_pixels(tmp_path: Path) -> None:
    frames = np.arange(2 * 8 * 13 * 3, dtype=np.uint8).reshape(2, 8, 13, 3)
    masks = np.arange(2 * 8 * 13, dtype=np.uint8).reshape(2, 8, 13)
    fitted = fit_video(raw(frames, masks), store_of(tmp_path, None))
    np.testing.assert_array_equal(fitted.frames, frames[:, :, 2:10])
    assert fitted.masks is not None
    np.testing.assert_array_equal(fitted.masks, masks[:, :, 2:10])


def test_halving_by_hand(tmp_path: Path) -> None:
    """Antialiased bilinear at half size weighs four pixels 1 3 3 1, or 3 3 1 at the edges."""
    row = np.array([0, 0, 0, 80, 160, 160, 160, 160, 0, 0, 0, 0, 70, 0, 0, 0], np.uint8)
    frames = np.broadcast_to(row[None, None, :, None], (1, 16, 16, 3)).copy()
    fitted = fit_video(raw(frames), store_of(tmp_path, None))
    middle = [(0 + 0 + 3 * 80 + 160) / 8, (80 + 7 * 160) / 8, 7 * 160 / 8, 160 / 8, 70 / 8]
    expected = [0, *middle, 3 * 70 / 8, 0]
    assert np.abs(fitted.frames[0, 3, :, 1] - expected).max() <= 0.5


def test_thin_lines_are_averaged_not_dropped(tmp_path: Path) -> None:
    frames = np.zeros((1, 64, 64, 3), np.uint8)
    frames[:, :, 1::8] = 240
    fitted = fit_video(raw(frames), store_of(tmp_path, None))
    assert abs(fitted.frames.mean() - 30) < 4


def test_masks_take_the_nearest_pixel(tmp_path: Path) -> None:
    masks = np.zeros((1, 16, 16), np.uint8)
    masks[0, 6:10, 2:6] = 7
    masks[0, 8:, 8:] = 200
    fitted = fit_video(raw(np.zeros((1, 16, 16, 3), np.uint8), masks), store_of(tmp_path, None))
    expected = np.zeros((8, 8), np.uint8)
    expected[3:5, 1:3] = 7
    expected[4:, 4:] = 200
    assert fitted.masks is not None
    np.testing.assert_array_equal(fitted.masks[0], expected)


def test_no_crop_squeezes_the_whole_frame(tmp_path: Path) -> None:
    frames = np.zeros((1, 8, 16, 3), np.uint8)
    frames[:, :, :8] = 200
    squeezed = fit_video(raw(frames), store_of(tmp_path, None, crop="none")).frames
    assert squeezed[0, 0, :3, 0].tolist() == [200, 200, 200]
    assert squeezed[0, 0, 5:, 0].tolist() == [0, 0, 0]
    cropped = fit_video(raw(frames), store_of(tmp_path, None)).frames
    assert cropped[0, 0, :, 0].tolist() == [200] * 4 + [0] * 4


def test_only_small_metadata_is_kept(tmp_path: Path) -> None:
    positions = [[0.123456] * 100]
    metadata = {"scale": 2.5, "instances": {"label": ["cup", "shoe"], "positions": positions}}
    video = RawVideo("video", np.zeros((1, 8, 8, 3), np.uint8), None, metadata)
    kept = fit_video(video, store_of(tmp_path, None)).metadata
    assert kept == {"scale": 2.5, "instances": {"label": ["cup", "shoe"]}}


# -- whole imports ---------------------------------------------------------------------------------


def test_obj3d_from_files_to_clips(tmp_path: Path) -> None:
    source = write_obj3d(tmp_path / "raw", val=2, test=1)
    config = store_of(tmp_path / "store", source, 16, window=WindowConfig(length=4))
    seen: list[ImportProgress] = []
    stores = import_data(config, seen.append)
    assert stores == {"val": tmp_path / "store" / "val", "test": tmp_path / "store" / "test"}
    done = [(progress.split, progress.done, progress.total) for progress in seen]
    assert done == [("val", 0, 2), ("val", 1, 2), ("val", 2, 2), ("test", 0, 1), ("test", 1, 1)]
    dataset = StoreDataset(config, "val")
    assert dataset.description == "store of Obj3D, val split: 2 videos, 16 x 16"
    assert len(dataset) == 2 * 13
    clip = dataset[14]
    assert (clip.source, clip.frames.tolist()) == ("val/1", [8, 9, 10, 11])
    with Image.open(tmp_path / "raw" / "val" / "1" / "test_11.png") as image:
        expected = np.asarray(image)[..., :3]
    np.testing.assert_array_equal(clip.video[2].permute(1, 2, 0).numpy(), expected)
    verify_store(stores["val"], lambda done, total: None)


def solids_frames(frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames of `solids` and their true masks."""
    clip = SolidsDataset(SolidsConfig(window=WindowConfig(length=frames, stride=frames)), "val")[0]
    assert clip.masks is not None
    return clip.video.permute(0, 2, 3, 1).numpy(), clip.masks.numpy()


def test_instances_are_found_where_the_source_has_none(tmp_path: Path) -> None:
    frames, true = solids_frames(5)
    folder = tmp_path / "raw" / "clip"
    folder.mkdir(parents=True)
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"{number}.png")
    source = FolderSource(path=tmp_path / "raw", split="test", max_frames=3)
    config = store_of(tmp_path / "store", source, 64, instances=True, window=WindowConfig(length=2))
    stores = import_data(config, nothing)
    dataset = StoreDataset(config, "test")
    assert [int(clip.frames[0]) for clip in dataset] == [0, 3]  # pieces of three frames and two
    for clip in dataset:
        assert clip.masks is not None
        first = int(clip.frames[0])
        scores = score_masks(true[first : first + 2], clip.masks.numpy())
        assert scores.missed == 0
        assert scores.iou.mean() > 0.9
    assert json.loads((stores["test"] / "index.json").read_text())["settings"]["instances"]
    without = config.model_copy(update={"instances": False})
    with pytest.raises(GeocoError, match=r"other settings \(instances changed\)"):
        import_data(without, nothing)


def test_a_store_that_does_not_say_has_no_instances(tmp_path: Path) -> None:
    """Stores made before the setting was there are kept, and refused where instances are asked."""
    source = write_obj3d(tmp_path / "raw", val=1)
    config = store_of(tmp_path / "store", source)
    index = import_data(config, nothing)["val"] / "index.json"
    described = json.loads(index.read_text())
    del described["settings"]["instances"]
    index.write_text(json.dumps(described))
    import_data(config, nothing)
    with pytest.raises(GeocoError, match=r"other settings \(instances changed\)"):
        import_data(config.model_copy(update={"instances": True}), nothing)


def test_masks_of_the_source_are_kept(tmp_path: Path) -> None:
    frames, true = solids_frames(1)
    wanted = store_of(tmp_path, None, 64, instances=True)
    kept = fit_video(raw(frames, true * 2), wanted).masks
    assert kept is not None
    np.testing.assert_array_equal(kept, true * 2)
    assert fit_video(raw(frames), store_of(tmp_path, None, 64)).masks is None


def test_a_video_without_instances_to_find_is_named(tmp_path: Path) -> None:
    wanted = store_of(tmp_path, None, 8, instances=True)
    with pytest.raises(GeocoError, match=r"^video: instances are .* set data.instances=false"):
        fit_video(raw(np.zeros((1, 8, 8, 3), np.uint8)), wanted)


def test_folder_import(tmp_path: Path) -> None:
    frames = tmp_path / "raw" / "clip"
    frames.mkdir(parents=True)
    for number in range(3):
        Image.new("RGB", (32, 16), (number, 50, 255)).save(frames / f"{number}.png")
    config = store_of(tmp_path / "store", FolderSource(path=tmp_path / "raw", split="test"))
    assert list(import_data(config, nothing)) == ["test"]
    dataset = StoreDataset(config, "test")
    assert dataset.description.startswith("store, test split: 1 videos")
    clip = dataset[0]
    assert clip.source == "clip"
    assert clip.video[0, :, 4, 4].tolist() == [0, 50, 255]


def test_movi_is_imported_with_its_masks(tmp_path: Path) -> None:
    fixture = Path(__file__).parent / "movi"
    source = MoviSource(path=fixture)
    config = StoreConfig(path=tmp_path / "store", height=12, width=16, source=source)
    seen: list[ImportProgress] = []
    assert list(import_data(config, seen.append)) == ["val"]
    assert seen[-1] == ImportProgress("val", 3, 3)
    videos = list(movi.read_videos(source, "val"))
    dataset = StoreDataset(config, "val")
    assert dataset.description == "store of MOVi-C, val split: 3 videos, 12 x 16"
    assert [clip.source for clip in dataset if int(clip.frames[0]) == 0] == [
        video.source for video in videos
    ]
    clip, video = dataset[4], videos[1]  # windows start at 0, 8 and 16
    assert clip.frames.tolist() == [8]
    np.testing.assert_array_equal(clip.video[0].permute(1, 2, 0).numpy(), video.frames[8])
    assert clip.masks is not None
    assert video.masks is not None
    np.testing.assert_array_equal(clip.masks[0].numpy(), video.masks[8])
    assert clip.metadata["num_instances"] == video.metadata["num_instances"]
    assert "bboxes_3d" not in clip.metadata["instances"]


# -- stopping and going on -------------------------------------------------------------------------


def assert_identical(one: Path, other: Path) -> None:
    for name in ("frames.u8", "index.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def write_small_folders(root: Path) -> Obj3DSource:
    """Plain frame folders in the layout of Obj3D, two frames each."""
    for split, number in {"train": 1, "val": 3}.items():
        for episode in range(number):
            (root / split / str(episode)).mkdir(parents=True)
            for frame in range(2):
                pixels = np.full((8, 8, 3), 50 * episode + frame, np.uint8)
                Image.fromarray(pixels).save(root / split / str(episode) / f"{frame}.png")
    return Obj3DSource(path=root)


def test_an_import_killed_at_every_operation_goes_on(tmp_path: Path) -> None:
    source = write_small_folders(tmp_path / "raw")
    import_data(store_of(tmp_path / "reference", source), nothing)
    for number in itertools.count():
        config, done = store_of(tmp_path / str(number), source), dict[str, int]()

        def note(progress: ImportProgress, done: dict[str, int] = done) -> None:
            done[progress.split] = progress.done

        finished = survives(number, partial(import_data, config, note))
        again = dict[str, int]()

        def note_first(progress: ImportProgress, again: dict[str, int] = again) -> None:
            again.setdefault(progress.split, progress.done)

        import_data(config, note_first)
        assert all(count >= done.get(split, 0) for split, count in again.items())
        for split in ("train", "val"):
            assert_identical(config.path / split, tmp_path / "reference" / split)
        if finished:
            break
    assert number > 30


CHILD = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = ["tests", "tests/data"]
from test_importing import store_of
from geoco.config import Obj3DSource
from geoco.data.importing import import_data
def kill(progress):
    if progress.done == 3:
        os.kill(os.getpid(), signal.SIGKILL)
import_data(store_of(Path(sys.argv[1]), Obj3DSource(path=Path(sys.argv[2]))), kill)
"""


@pytest.mark.slow
def test_a_killed_process_leaves_an_import_that_goes_on(tmp_path: Path) -> None:
    source = write_obj3d(tmp_path / "raw", train=2, val=5)
    import_data(store_of(tmp_path / "reference", source), nothing)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "store"), str(source.path)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
    assert (tmp_path / "store" / "val.partial").is_dir()
    with pytest.raises(GeocoError, match="import did not finish"):
        StoreDataset(store_of(tmp_path / "store", source), "val")
    seen: list[ImportProgress] = []
    import_data(store_of(tmp_path / "store", source), seen.append)
    assert [progress.done for progress in seen] == [3, 4, 5]  # train was finished, val begun
    for split in ("train", "val"):
        assert_identical(tmp_path / "store" / split, tmp_path / "reference" / split)


def stop_after(done: int) -> Any:
    def stop(progress: ImportProgress) -> None:
        if progress.done == done:
            raise KeyboardInterrupt

    return stop


def test_source_that_changes_during_the_import(tmp_path: Path) -> None:
    source = write_obj3d(tmp_path / "raw", val=4)
    config = store_of(tmp_path / "store", source)
    with pytest.raises(KeyboardInterrupt):
        import_data(config, stop_after(2))
    shutil.move(tmp_path / "raw" / "val" / "0", tmp_path / "raw" / "val" / "9")
    with pytest.raises(GeocoError, match=r"source changed during the import: delete .*val.partial"):
        import_data(config, nothing)


def test_a_bad_video_stops_the_import_and_keeps_the_good_ones(tmp_path: Path) -> None:
    source = write_obj3d(tmp_path / "raw", val=3)
    import_data(store_of(tmp_path / "reference", source), nothing)
    config = store_of(tmp_path / "store", source)
    frame = tmp_path / "raw" / "val" / "1" / "test_57.png"
    frame.rename(tmp_path / "away.png")
    with pytest.raises(GeocoError, match=r"val/1: test_57.png is missing"):
        import_data(config, nothing)
    (tmp_path / "away.png").rename(frame)
    seen: list[ImportProgress] = []
    import_data(config, seen.append)
    assert seen[0].done == 1
    assert_identical(tmp_path / "store" / "val", tmp_path / "reference" / "val")


def test_finished_import_is_kept_and_other_settings_refused(tmp_path: Path) -> None:
    source = write_obj3d(tmp_path / "raw", val=1)
    config = store_of(tmp_path / "store", source)
    import_data(config, nothing)
    index = tmp_path / "store" / "val" / "index.json"
    before = index.stat().st_mtime_ns
    assert json.loads(index.read_text())["settings"]["crop"] == "center"
    import_data(config, nothing)
    assert index.stat().st_mtime_ns == before
    with pytest.raises(GeocoError, match=r"other settings \(crop changed\): delete it"):
        import_data(store_of(tmp_path / "store", source, crop="none"), nothing)
    with pytest.raises(GeocoError, match=r"other settings \(height, width changed\)"):
        import_data(store_of(tmp_path / "store", source, 16), nothing)


def test_unfinished_import_refuses_other_settings(tmp_path: Path) -> None:
    source = write_obj3d(tmp_path / "raw", val=2)
    with pytest.raises(KeyboardInterrupt):
        import_data(store_of(tmp_path / "store", source), stop_after(1))
    with pytest.raises(GeocoError, match=r"val.partial: .* other settings \(crop changed\)"):
        import_data(store_of(tmp_path / "store", source, crop="none"), nothing)


def test_no_source(tmp_path: Path) -> None:
    with pytest.raises(GeocoError, match=r"data.source: required to import"):
        import_data(store_of(tmp_path / "store", None), nothing)
    with pytest.raises(GeocoError, match=r"there is no such folder"):
        import_data(store_of(tmp_path, Obj3DSource(path=tmp_path / "nowhere")), nothing)
