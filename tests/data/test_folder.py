"""Folders as users bring them: videos and frame folders in, exact frames or one sentence out."""

import os
import shutil
import struct
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from geoco.config import FolderSource
from geoco.data import folder
from geoco.data.source import RawVideo
from geoco.errors import GeocoError

av = pytest.importorskip("av", reason="PyAV writes the test videos")

CODECS = {".mp4": "libx264", ".mov": "mpeg4", ".avi": "mpeg4", ".webm": "libvpx", ".mkv": "mpeg4"}
SHARED = Path(__file__).parents[3] / "shared" / "data"


def gray(number: int) -> int:
    """The brightness of frame `number`: far enough from its neighbours to survive compression."""
    return 16 + 20 * (number % 11)


def write_video(
    path: Path, frames: int = 10, rate: int = 10, times: list[int] | None = None, **options: str
) -> Path:
    """Gray frames, `gray(n)` each; `times` in units of 1 / rate where they are not 0, 1, 2, ..."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gif":
        images = [Image.new("L", (32, 24), gray(number)) for number in range(frames)]
        images[0].save(path, save_all=True, append_images=images[1:], duration=1000 // rate)
        return path
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream(CODECS[path.suffix], rate=rate)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for number in range(frames):
            pixels = np.full((24, 32, 3), gray(number), np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
            frame.pts = number if times is None else times[number]
            frame.time_base = Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def write_audio(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        sound = np.zeros((1, 1024), np.float32)
        for _ in range(4):
            frame = av.AudioFrame.from_ndarray(sound, format="fltp", layout="mono")
            frame.rate = 44100
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def write_images(path: Path, frames: int = 12, first: int = 1) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + frames):
        Image.new("RGB", (12, 10), (number, 0, 200)).save(path / f"frame{number}.png")
    return path


def read_all(path: Path, skip: int = 0, **options: float) -> list[RawVideo]:
    source = FolderSource.model_validate({"path": path, **options})
    return list(folder.read_videos(source, "train", skip))


def identify_frames(video: RawVideo) -> list[int]:
    """Which frames these are, by their brightness."""
    return [round((frame.mean() - 16) / 20) for frame in video.frames]


# -- good folders ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".mp4", ".webm", ".gif", ".mov", ".mkv", ".avi"])
def test_videos(tmp_path: Path, suffix: str) -> None:
    write_video(tmp_path / f"clip{suffix}")
    (video,) = read_all(tmp_path)
    assert video.source == f"clip{suffix}"
    assert video.frames.shape == (10, 24, 32, 3)
    assert identify_frames(video) == list(range(10))
    expected = np.array([gray(number) for number in range(10)])[:, None, None, None]
    assert np.abs(video.frames.astype(int) - expected).max() <= 6
    assert video.masks is None


def test_natural_order_and_subfolders(tmp_path: Path) -> None:
    for name in ("clip10.mp4", "clip2.mp4", "b/clip1.MP4", ".hidden.mp4", ".trash/old.mp4"):
        write_video(tmp_path / name.replace("MP4", "mp4"), frames=1)
    (tmp_path / "b" / "clip1.mp4").rename(tmp_path / "b" / "clip1.MP4")
    write_images(tmp_path / "frames")
    (tmp_path / "notes.txt").write_text("hello")
    names = [video.source for video in read_all(tmp_path)]
    assert names == ["b/clip1.MP4", "clip2.mp4", "clip10.mp4", "frames"]
    source = FolderSource(path=tmp_path)
    assert folder.list_splits(source) == ("train",)
    assert folder.count_videos(source, "train") == 4
    assert [video.source for video in read_all(tmp_path, skip=2)] == names[2:]


def test_frame_folders(tmp_path: Path) -> None:
    write_images(tmp_path / "one")
    write_images(tmp_path / "two", first=7, frames=3)
    one, two = read_all(tmp_path)
    assert one.frames[:, 0, 0, 0].tolist() == list(range(1, 13))
    assert two.frames[:, 9, 11].tolist() == [[7, 0, 200], [8, 0, 200], [9, 0, 200]]
    (alone,) = read_all(tmp_path / "one")
    assert alone.source == "one"
    np.testing.assert_array_equal(alone.frames, one.frames)


def test_images_of_every_mode(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 8), (1, 2, 3, 0)).save(tmp_path / "1.png")
    Image.new("L", (8, 8), 9).save(tmp_path / "2.png")
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 40, 50, 60])
    palette.save(tmp_path / "3.png", transparency=bytes([0, 128]))
    Image.new("1", (8, 8), 1).save(tmp_path / "4.bmp")
    (video,) = read_all(tmp_path)
    white = [255, 255, 255]
    assert video.frames[:, 3, 3].tolist() == [white, [9, 9, 9], [147, 152, 157], white]


def test_photographs_are_turned_upright(tmp_path: Path) -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255  # the left half, which is up once turned clockwise
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "1.png", exif=exif)
    (video,) = read_all(tmp_path)
    assert video.frames.shape == (1, 16, 8, 3)
    assert video.frames[0, :8].min() == 255
    assert video.frames[0, 8:].max() == 0


def test_videos_filmed_sideways_are_turned_upright(tmp_path: Path) -> None:
    path = tmp_path / "phone.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv420p"
        pixels = np.zeros((32, 64, 3), np.uint8)
        pixels[:, :32] = 255
        container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        container.mux(stream.encode())
    # The track header's display matrix: the identity becomes a quarter turn clockwise.
    one, up = 1 << 16, 1 << 30
    identity = struct.pack(">9i", one, 0, 0, 0, one, 0, 0, 0, up)
    clockwise = struct.pack(">9i", 0, one, 0, -one, 0, 0, 0, 0, up)
    header, track, rest = path.read_bytes().partition(b"tkhd")
    assert identity in rest
    path.write_bytes(header + track + rest.replace(identity, clockwise, 1))
    (video,) = read_all(tmp_path)
    assert video.frames.shape == (1, 64, 32, 3)
    assert video.frames[0, :28].min() > 230
    assert video.frames[0, 36:].max() < 25


def test_frame_rate_takes_the_nearest_frame(tmp_path: Path) -> None:
    write_video(tmp_path / "clip.mp4")  # at 0.0, 0.1, ... 0.9 s
    assert identify_frames(read_all(tmp_path, frame_rate=10)[0]) == list(range(10))
    assert identify_frames(read_all(tmp_path, frame_rate=5)[0]) == [0, 2, 4, 6, 8]
    # 0, 0.25 (as near to 0.2 as to 0.3), 0.5 and 0.75
    assert identify_frames(read_all(tmp_path, frame_rate=4)[0]) == [0, 2, 5, 7]
    # 0, 1/3, 2/3: nearest 0.3 and 0.7
    assert identify_frames(read_all(tmp_path, frame_rate=3)[0]) == [0, 3, 7]
    assert identify_frames(read_all(tmp_path, frame_rate=20)[0]) == [n // 2 for n in range(20)]
    assert identify_frames(read_all(tmp_path, frame_rate=0.5)[0]) == [0]


@pytest.mark.parametrize("frames", range(1, 11))
def test_its_own_frame_rate_changes_nothing(tmp_path: Path, frames: int) -> None:
    write_video(tmp_path / "clip.webm", frames=frames, rate=30)  # 1 / 30 s is not whole in ms
    assert identify_frames(read_all(tmp_path, frame_rate=30)[0]) == list(range(frames))


def test_frame_rate_of_a_video_with_uneven_times(tmp_path: Path) -> None:
    write_video(tmp_path / "clip.mkv", frames=4, times=[0, 1, 6, 8])
    # At 0, 0.2, 0.4, 0.6, 0.8 s; 0.4 lies nearer to 0.6 than to 0.1.
    assert identify_frames(read_all(tmp_path, frame_rate=5)[0]) == [0, 1, 2, 2, 3]


def test_long_videos_become_pieces(tmp_path: Path) -> None:
    write_video(tmp_path / "long.mp4")
    write_video(tmp_path / "short.mp4", frames=4)
    write_images(tmp_path / "still", frames=5)
    videos = read_all(tmp_path, max_frames=4)
    pieces = [("long.mp4", 0), ("long.mp4", 4), ("long.mp4", 8)]
    pieces += [("short.mp4", 0), ("still", 0), ("still", 4)]
    assert [(video.source, video.first) for video in videos] == pieces
    assert [identify_frames(video) for video in videos[:3]] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert videos[5].frames[:, 0, 0, 0].tolist() == [5]
    later = read_all(tmp_path, skip=2, max_frames=4)
    assert [(video.source, video.first) for video in later] == pieces[2:]
    assert folder.count_videos(FolderSource(path=tmp_path, max_frames=4), "train") is None
    assert folder.count_videos(FolderSource(path=tmp_path / "still", max_frames=4), "train") == 2


def test_decoding_is_lazy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "long", frames=50)
    opened: list[str] = []
    real = folder.read_image

    def record_and_read(path: Path) -> folder.Picture:
        opened.append(path.name)
        return real(path)

    monkeypatch.setattr(folder, "read_image", record_and_read)
    next(folder.read_videos(FolderSource(path=tmp_path, max_frames=5), "train"))
    assert len(opened) == 6  # one ahead, to know whether there is more


def test_one_frame_is_a_video(tmp_path: Path) -> None:
    write_video(tmp_path / "one.gif", frames=1)
    (video,) = read_all(tmp_path)
    assert identify_frames(video) == [0]
    assert identify_frames(read_all(tmp_path, frame_rate=10)[0]) == [0]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the reference GIFs are not beside the repository")
def test_published_gifs() -> None:
    videos = {video.source: video.frames.shape for video in read_all(SHARED)}
    assert videos["obj3d_original_1.gif"] == (100, 128, 128, 3)
    assert videos["movi_c_2.gif"] == (24, 256, 256, 3)
    with Image.open(SHARED / "movi_c_1.gif") as image:
        image.seek(11)
        expected = np.asarray(image.convert("RGB"))
    frame = next(folder.read_videos(FolderSource(path=SHARED), "train")).frames[11]
    np.testing.assert_array_equal(frame, expected)


# -- bad folders -----------------------------------------------------------------------------------


def make_bad(root: Path, kind: str) -> None:
    match kind:
        case "missing":
            root.rmdir()
        case "a file":
            root.rmdir()
            root.write_text("hello")
        case "other files only":
            (root / "notes.txt").write_text("hello")
        case "text as mp4":
            (root / "clip.mp4").write_text("this is not a video\n" * 20)
        case "zero bytes":
            (root / "clip.mp4").write_bytes(b"")
        case "audio only":
            write_audio(root / "clip.mp4")
        case "truncated mp4" | "truncated webm" | "truncated gif":
            file = write_video(root / f"clip.{kind.split()[1]}")
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        case "truncated mp4 with its header first":
            file = write_video(root / "clip.mp4", movflags="faststart")
            file.write_bytes(file.read_bytes()[:-200])
        case "no frames":
            with av.open(str(root / "clip.avi"), "w") as container:
                stream = container.add_stream("mpeg4", rate=10)
                stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
                container.start_encoding()
        case "images beside videos":
            write_video(root / "clip.mp4")
            write_images(root, frames=1)
        case "images beside subfolders":
            write_images(root, frames=1)
            write_images(root / "more")
        case "sizes":
            write_images(root)
            Image.new("RGB", (10, 12)).save(root / "frame5.png")
        case "text as png":
            write_images(root)
            (root / "frame5.png").write_text("hello")
        case "truncated png":
            file = write_images(root) / "frame5.png"
            file.write_bytes(file.read_bytes()[:-30])
        case "empty png":
            (root / "frame5.png").write_bytes(b"")


BAD_FOLDERS = {
    "missing": r"data: there is no such folder",
    "a file": r"data: expected a folder, but this is a file",
    "empty": r"no videos \(.mp4 .*\) or images \(.png .*\): the folder is empty",
    "other files only": r"no videos .* or images .*: only .txt files",
    "text as mp4": r"clip.mp4: not a video that can be decoded, or damaged: Invalid data",
    "zero bytes": r"clip.mp4: the file is empty",
    "audio only": r"clip.mp4: there is no video in this file: only audio",
    "truncated mp4": r"clip.mp4: (not a video .* damaged|there is no video .* be cut off)",
    "truncated webm": r"clip.webm: not a video that can be decoded, or damaged",
    "truncated gif": r"clip.gif: the file is cut off: it lacks the end mark of a GIF",
    "truncated mp4 with its header first": r"clip.mp4: (not a video .* damaged|.* cut off)",
    "no frames": r"clip.avi: (not a video .* damaged|this video has no frames)",
    "images beside videos": r"holds images \(frame1.png\) beside videos \(clip.mp4\): move",
    "images beside subfolders": r"holds images \(frame1.png\) beside videos \(more\): move",
    "sizes": r"frame5.png is 10 x 12 pixels, but frame1.png is 12 x 10 pixels",
    "text as png": r"frame5.png: the file is not an image, or is damaged",
    "truncated png": r"frame5.png: cannot read this image: .*truncated",
    "empty png": r"frame5.png: the file is empty",
}


@pytest.mark.parametrize("kind", BAD_FOLDERS)
def test_bad_folders(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "data"
    root.mkdir()
    make_bad(root, kind)
    with pytest.raises(GeocoError, match=BAD_FOLDERS[kind]) as caught:
        read_all(root)
    assert "\n" not in str(caught.value)


def test_a_video_cut_between_packets(tmp_path: Path) -> None:
    """Nothing in the data tells, only the length that the header promises."""
    file = write_video(tmp_path / "clip.mp4", frames=40, movflags="faststart")
    with av.open(str(file)) as container:
        ends = [packet.pos + packet.size for packet in container.demux() if packet.size]
    file.write_bytes(file.read_bytes()[: ends[19]])
    with pytest.raises(GeocoError, match=r"cut off: .* s of 4.0 s are there|damaged"):
        read_all(tmp_path)


def test_other_split(tmp_path: Path) -> None:
    write_images(tmp_path)
    source = FolderSource(path=tmp_path, split="val")
    assert folder.list_splits(source) == ("val",)
    assert len(list(folder.read_videos(source, "val"))) == 1
    with pytest.raises(GeocoError, match=r"is the split 'val' \(data.source.split\), .* 'train'"):
        folder.read_videos(source, "train")


def test_images_have_no_frame_rate(tmp_path: Path) -> None:
    write_images(tmp_path)
    with pytest.raises(GeocoError, match=r"no frame rate to resample: leave out data.source"):
        read_all(tmp_path, frame_rate=5)


def test_too_long_for_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "clip.mp4")
    monkeypatch.setattr(folder, "MOST_FRAMES", 9)
    with pytest.raises(GeocoError, match=r"more than 9 frames of 32 x 24 .* data.source.max_frame"):
        read_all(tmp_path)
    assert len(read_all(tmp_path, max_frames=9)) == 2
    monkeypatch.setattr(folder, "MOST_BYTES", 3 * 24 * 32 * 3)
    with pytest.raises(GeocoError, match="more than 3 frames"):
        read_all(tmp_path, max_frames=9)


def test_without_pyav(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "videos" / "clip.mp4")
    write_images(tmp_path / "images")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(GeocoError, match=r"needs PyAV: pip install 'geoco-savi\[video\]'"):
        read_all(tmp_path / "videos")
    assert len(read_all(tmp_path / "images")) == 1


def test_unreadable(tmp_path: Path) -> None:
    write_video(tmp_path / "clip.mp4").chmod(0)
    if os.access(tmp_path / "clip.mp4", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(GeocoError, match=r"clip.mp4: cannot read this file: Permission denied"):
        read_all(tmp_path)


def test_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").symlink_to(tmp_path / "nowhere.mp4")
    with pytest.raises(GeocoError, match=r"clip.mp4: cannot read this file: No such file"):
        read_all(tmp_path)
    shutil.rmtree(tmp_path)
