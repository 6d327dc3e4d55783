"""Obj3D: numeric order, exact pixels, and one clear sentence for every kind of bad folder."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from geoco.config import Obj3DSource
from geoco.data import obj3d
from geoco.errors import GeocoError


def write_episode(
    folder: Path, frames: int = 12, name: str = "test_{}.png", first: int = 1
) -> Path:
    """Frame number n is filled with (n, 2n, 100), so that its value says which frame it is."""
    folder.mkdir(parents=True)
    for number in range(first, first + frames):
        color = (number, 2 * number, 100)
        Image.new("RGB", (12, 10), color).save(folder / name.format(number))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Obj3DSource:
    """Three episodes in val, two in test, named so that text order would be wrong."""
    for episode in (2, 10, 9):
        write_episode(tmp_path / "data" / "val" / str(episode))
    for episode in (0, 1):
        write_episode(tmp_path / "data" / "test" / str(episode))
    return Obj3DSource(path=tmp_path / "data")


def numbers(video: obj3d.RawVideo) -> list[int]:
    return video.frames[:, 0, 0, 0].tolist()


def test_order_is_numeric(source: Obj3DSource) -> None:
    assert obj3d.list_splits(source) == ("val", "test")
    assert obj3d.count_videos(source, "val") == 3
    videos = list(obj3d.read_videos(source, "val"))
    assert [video.source for video in videos] == ["val/2", "val/9", "val/10"]
    assert numbers(videos[0]) == list(range(1, 13))
    assert videos[0].masks is None


def test_pixels_are_exact(source: Obj3DSource) -> None:
    frames = next(obj3d.read_videos(source, "test")).frames
    assert frames.shape == (12, 10, 12, 3)
    assert (frames[6] == (7, 14, 100)).all()


def test_skip_goes_on_after_the_first_videos(source: Obj3DSource) -> None:
    assert [video.source for video in obj3d.read_videos(source, "val", 2)] == ["val/10"]
    assert list(obj3d.read_videos(source, "val", 3)) == []


def test_transparent_frames_lie_over_white(source: Obj3DSource) -> None:
    for number in range(1, 13):
        file = source.path / "val" / "2" / f"test_{number}.png"
        Image.new("RGBA", (12, 10), (number, 20, 30, 255 if number > 1 else 128)).save(file)
    frames = next(obj3d.read_videos(source, "val")).frames
    assert frames[0, 0, 0].tolist() == [128, 137, 142]  # half, over white
    assert frames[11, 9, 11].tolist() == [12, 20, 30]


def test_plain_frame_folders(tmp_path: Path) -> None:
    write_episode(tmp_path / "train" / "a", name="cam2_{:04d}.png", first=5)
    write_episode(tmp_path / "train" / "b", frames=3, name="{}.jpg")
    first, second = obj3d.read_videos(Obj3DSource(path=tmp_path), "train")
    assert numbers(first) == list(range(5, 17))
    assert np.abs(np.array(numbers(second)) - [1, 2, 3]).max() <= 2  # JPEG is not exact
    assert second.frames.shape == (3, 10, 12, 3)


def test_hidden_and_loose_files_are_ignored(source: Obj3DSource) -> None:
    (source.path / "val" / "readme.txt").write_text("hello")
    (source.path / "val" / ".cache").mkdir()
    (source.path / "val" / "2" / "._test_1.png").write_text("not an image")
    assert obj3d.count_videos(source, "val") == 3
    assert numbers(next(obj3d.read_videos(source, "val"))) == list(range(1, 13))


# -- bad folders -----------------------------------------------------------------------------------


def damage(source: Obj3DSource, kind: str) -> None:
    first = source.path / "val" / "2"
    frame = first / "test_7.png"
    match kind:
        case "missing folder":
            shutil.rmtree(source.path)
        case "a file":
            shutil.rmtree(source.path)
            source.path.write_text("hello")
        case "no split":
            shutil.rmtree(source.path / "val")
        case "no splits":
            shutil.rmtree(source.path)
            (source.path / "OBJ3D").mkdir(parents=True)
        case "empty split":
            shutil.rmtree(source.path / "val")
            (source.path / "val").mkdir()
        case "empty episode":
            shutil.rmtree(first)
            first.mkdir()
        case "other files only":
            for file in list(first.iterdir()):
                file.rename(file.with_suffix(".txt"))
        case "gap":
            frame.unlink()
        case "first missing":
            (first / "test_1.png").unlink()
        case "last missing":
            (source.path / "val" / "9" / "test_12.png").unlink()
        case "twice":
            shutil.copy(frame, first / "test_07.png")
        case "no number":
            shutil.copy(frame, first / "preview.png")
        case "not an image":
            frame.write_text("hello")
        case "empty file":
            frame.write_bytes(b"")
        case "truncated":
            frame.write_bytes(frame.read_bytes()[:-30])
        case "other size":
            Image.new("RGB", (12, 11)).save(frame)
        case "a folder as a frame":
            frame.unlink()
            frame.mkdir()


BAD_FOLDERS = {
    "missing folder": r"data: there is no such folder",
    "a file": r"data: expected a folder, but this is a file",
    "no split": r"no split 'val': it has test",
    "no splits": r"expected folders train, val or test, found OBJ3D",
    "empty split": r"val: no episodes: expected folders 0, 1, 2",
    "empty episode": r"val/2: no frames: expected images test_1.png",
    "other files only": r"val/2: no frames: expected images test_1.png",
    "gap": r"val/2: test_7.png is missing",
    "first missing": r"val/2: test_1.png is missing",
    "last missing": r"val/9: 11 frames, but the first episode has 12: .* incomplete",
    "twice": r"frame 7 is there twice",
    "no number": r"preview.png: expected a frame number in the name",
    "not an image": r"test_7.png: the file is not an image, or is damaged",
    "empty file": r"test_7.png: the file is empty",
    "truncated": r"test_7.png: cannot read this image: .*truncated",
    "other size": r"val/2: .*test_7.png is 12 x 11 pixels, but test_1.png is 12 x 10 pixels",
    "a folder as a frame": r"val/2: test_7.png is missing",
}


@pytest.mark.parametrize("kind", BAD_FOLDERS)
def test_bad_folders(source: Obj3DSource, kind: str) -> None:
    damage(source, kind)
    with pytest.raises(GeocoError, match=BAD_FOLDERS[kind]) as caught:
        list(obj3d.read_videos(source, "val"))
    assert "\n" not in str(caught.value)


def test_missing_frame_is_named_as_its_neighbours(tmp_path: Path) -> None:
    episode = write_episode(tmp_path / "val" / "17", frames=100)
    (episode / "test_57.png").unlink()
    with pytest.raises(GeocoError, match=r"val/17: test_57.png is missing"):
        next(obj3d.read_videos(Obj3DSource(path=tmp_path), "val"))
    episode = write_episode(tmp_path / "train" / "0", name="frame_{:05d}.png")
    (episode / "frame_00003.png").unlink()
    with pytest.raises(GeocoError, match=r"train/0: frame_00003.png is missing"):
        next(obj3d.read_videos(Obj3DSource(path=tmp_path), "train"))


def test_a_png_cut_anywhere_never_gives_wrong_pixels(tmp_path: Path) -> None:
    episode = write_episode(tmp_path / "val" / "0", frames=1)
    file = episode / "test_1.png"
    generator = np.random.default_rng(0)
    Image.fromarray(generator.integers(0, 256, (10, 12, 3), dtype=np.uint8)).save(file)
    whole = file.read_bytes()
    expected = next(obj3d.read_videos(Obj3DSource(path=tmp_path), "val")).frames
    messages: list[str] = []
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        try:
            frames = next(obj3d.read_videos(Obj3DSource(path=tmp_path), "val")).frames
        except GeocoError as error:
            messages.append(str(error))
        else:
            np.testing.assert_array_equal(frames, expected)
    assert len(messages) > 0.9 * len(whole)
    assert all("test_1.png: " in message for message in messages)


def test_unreadable(source: Obj3DSource) -> None:
    (source.path / "val" / "2" / "test_7.png").chmod(0)
    if os.access(source.path / "val" / "2" / "test_7.png", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(GeocoError, match=r"test_7.png: cannot read this image: Permission denied"):
        next(obj3d.read_videos(source, "val"))
    (source.path / "val" / "2").chmod(0)
    with pytest.raises(GeocoError, match=r"val/2: cannot read this folder: Permission denied"):
        next(obj3d.read_videos(source, "val"))
    (source.path / "val" / "2").chmod(0o700)
