"""Videos come one frame at a time, within limits that headers and frames are checked against."""

import io
import os
import struct
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from geoco import media
from geoco.errors import GeocoError
from geoco.media import limits as limits_module
from geoco.media import videos

av = pytest.importorskip("av", reason="PyAV writes the test videos")


def make_frames(count: int = 5, height: int = 24, width: int = 32) -> list[np.ndarray]:
    return [np.full((height, width, 3), 40 * number, np.uint8) for number in range(count)]


def encode_animation(kind: str, frames: list[np.ndarray], **options: Any) -> bytes:
    first, *rest = [Image.fromarray(frame) for frame in frames]
    buffer = io.BytesIO()
    more = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    first.save(
        buffer, kind, save_all=True, append_images=rest, **{"duration": 100, **more, **options}
    )
    return buffer.getvalue()


def write_video(path: Path, frames: list[np.ndarray], codec: str = "mpeg4") -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


# -- every source, one frame at a time -------------------------------------------------------------


def test_sources_of_every_kind(tmp_path: Path) -> None:
    frames = make_frames()
    (tmp_path / "folder").mkdir()
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(tmp_path / "folder" / f"{number}.png")
    for name, kind in (("a.png", "PNG"), ("b.apng", "PNG"), ("c.webp", "WEBP"), ("d.gif", "GIF")):
        (tmp_path / name).write_bytes(encode_animation(kind, frames))
    names = ("folder", "a.png", "b.apng", "c.webp", "d.gif")
    paths: list[Any] = [tmp_path / name for name in names]
    for source in (*paths, frames, np.stack(frames), iter(frames)):
        assert np.array_equal(np.stack(list(media.iterate_video(source))), np.stack(frames))
    assert np.array_equal(media.read_video(tmp_path / "c.webp"), np.stack(frames))
    write_video(tmp_path / "e.mp4", frames)
    decoded = media.read_video(tmp_path / "e.mp4")
    assert np.abs(decoded.astype(int) - np.stack(frames)).max() < 6


def test_what_is_a_video(tmp_path: Path) -> None:
    frames = make_frames()
    (tmp_path / "film.png").write_bytes(encode_animation("PNG", frames))
    (tmp_path / "film.webp").write_bytes(encode_animation("WEBP", frames))
    for name in ("still.png", "still.webp", "still.tif", "still.jpg"):
        Image.fromarray(frames[0]).save(tmp_path / name)
    (tmp_path / "text.png").write_text("hello")
    names = sorted(path.name for path in tmp_path.iterdir() if media.is_video(path))
    assert names == ["film.png", "film.webp"]
    assert media.is_video(tmp_path)
    assert media.is_video(Path("missing.mp4"))
    assert not media.is_video(Path("missing.png"))
    with pytest.raises(GeocoError, match=r"still.png: expected a video .* or a folder of images"):
        media.read_video(tmp_path / "still.png")


def test_a_picture_beside_an_animation_is_no_frame(tmp_path: Path) -> None:
    film = make_frames(3)
    cover = Image.new("RGB", (32, 24), (9, 9, 9))
    cover.save(
        tmp_path / "film.png",
        save_all=True,
        append_images=[Image.fromarray(frame) for frame in film],
        default_image=True,
    )
    assert np.array_equal(media.read_video(tmp_path / "film.png"), np.stack(film))


def test_transparent_films_lie_over_white(tmp_path: Path) -> None:
    clear = [np.full((16, 16, 4), (200, 100, 0, alpha), np.uint8) for alpha in (255, 0, 51)]
    (tmp_path / "a.png").write_bytes(encode_animation("PNG", clear))
    (tmp_path / "b.webp").write_bytes(encode_animation("WEBP", clear))
    with av.open(str(tmp_path / "c.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "bgra"
        for pixels in clear:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgba")))
        container.mux(stream.encode())
    for name in ("a.png", "b.webp", "c.mkv"):
        shown = media.read_video(tmp_path / name)
        expected = [[200, 100, 0], [255, 255, 255], [244, 224, 204]]
        assert shown[:, 8, 8].tolist() == expected, name


def test_frames_are_decoded_when_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_video(tmp_path / "clip.avi", make_frames(6))
    (tmp_path / "film.webp").write_bytes(encode_animation("WEBP", make_frames(6)))
    made: list[int] = []
    for name in ("_extract_pixels", "convert_image"):
        real = getattr(videos, name)

        def count_and_call(frame: Any, real: Any = real) -> Any:
            made.append(1)
            return real(frame)

        monkeypatch.setattr(videos, name, count_and_call)
    for name in ("clip.avi", "film.webp"):
        made.clear()
        next(media.iterate_video(tmp_path / name))
        assert len(made) == 1


# -- limits ----------------------------------------------------------------------------------------


def test_limits_of_frames_and_pixels(tmp_path: Path) -> None:
    frames = make_frames(5)
    write_video(tmp_path / "a.mp4", frames)  # the header knows how many
    write_video(tmp_path / "b.mkv", frames)  # this one does not
    (tmp_path / "c.gif").write_bytes(encode_animation("GIF", frames))
    (tmp_path / "d.webp").write_bytes(encode_animation("WEBP", frames))
    sources: list[Any] = [*sorted(tmp_path.iterdir()), np.stack(frames)]
    for source in sources:
        assert len(media.read_video(source, media.Limits(frames=5, video_pixels=5 * 768))) == 5
        with pytest.raises(media.TooLargeError, match="more than 4 frames: cut it into shorter"):
            media.read_video(source, media.Limits(frames=4))
        with pytest.raises(media.TooLargeError, match=r"of 32 x 24 pixels is too .* most 3,839 pi"):
            media.read_video(source, media.Limits(video_pixels=5 * 768 - 1))
        with pytest.raises(media.TooLargeError, match=r"a picture of 32 x 24 .* at most 767 pixel"):
            media.read_video(source, media.Limits(pixels=767))
        # One frame may be taken of a video of any length.
        first = next(media.iterate_video(source, media.ANY_LENGTH))
        assert first.shape == (24, 32, 3)


def test_what_headers_tell_is_refused_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = make_frames(5)
    write_video(tmp_path / "a.mp4", frames)
    for name, kind in (("c.gif", "GIF"), ("d.webp", "WEBP"), ("e.png", "PNG")):
        (tmp_path / name).write_bytes(encode_animation(kind, frames))

    def fail(_: Any) -> Any:
        raise AssertionError("a frame was decoded")

    monkeypatch.setattr(videos, "_extract_pixels", fail)
    monkeypatch.setattr(videos, "convert_image", fail)
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(media.TooLargeError, match=f"{path.name}: "):
            next(media.iterate_video(path, media.Limits(frames=4)))
        kind = {".png": "PNG", ".webp": "WEBP", ".mp4": "mov"}.get(path.suffix, "gif")
        with pytest.raises(media.TooLargeError):
            media.decode_video_bytes(path.read_bytes(), kind, fail, media.Limits(frames=4))


def test_a_small_file_of_large_frames_is_refused_at_once() -> None:
    """A few kilobytes that would be 2.8 billion pixels."""
    header = b"GIF89a" + struct.pack("<HHBBB", 4800, 4800, 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    bomb = header + 120 * frame + b";"
    assert len(bomb) < 5000
    with pytest.raises(media.TooLargeError, match=r"of 120 or more frames of 4800 x 4800 pixels"):
        media.decode_video_bytes(bomb, "gif", lambda pixels: pixels)


def test_a_huge_canvas_of_a_gif(tmp_path: Path) -> None:
    data = bytearray(encode_animation("GIF", make_frames(2)))
    data[6:10] = b"\xff\xff\xff\xff"
    (tmp_path / "a.gif").write_bytes(data)
    with pytest.raises(media.TooLargeError, match=r"a.gif: .* too large: at most 50,000,000 pixel"):
        media.read_video(tmp_path / "a.gif")
    with pytest.raises(media.TooLargeError):
        next(media.iterate_video(tmp_path / "a.gif", media.ANY_LENGTH))


def test_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding is timed, and what is done with the frames is not."""
    now = 0.0
    monkeypatch.setattr(limits_module.time, "monotonic", lambda: now)

    def decode(seconds: float) -> Iterator[int]:
        nonlocal now
        for number in range(4):
            now += seconds
            yield number

    for _ in limits_module.count_time(decode(5), media.Limits(seconds=20)):
        now += 1000
    with pytest.raises(media.TooLargeError, match="takes more than 20 seconds: make it smaller"):
        list(limits_module.count_time(decode(5.1), media.Limits(seconds=20)))


# -- files that are not right ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF"])
def test_animations_that_were_cut_off(tmp_path: Path, kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (4, 24, 32, 3), dtype=np.uint8)
    whole = encode_animation(kind, list(noise))
    path = tmp_path / f"a.{kind.lower()}"
    for part in (5, len(whole) // 2, len(whole) - 100):
        path.write_bytes(whole[:part])
        with pytest.raises(GeocoError, match=f"a.{kind.lower()}: ") as caught:
            media.read_video(path)
        assert "\n" not in str(caught.value)
        with pytest.raises(GeocoError):
            media.decode_video_bytes(
                whole[:part], "gif" if kind == "GIF" else kind, lambda pixels: pixels
            )


def test_pipes_are_no_videos(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.mp4")
    with pytest.raises(GeocoError, match=r"a.mp4: expected a file, but this is a pipe or a device"):
        media.read_video(tmp_path / "a.mp4")


def test_what_no_video_is() -> None:
    for source, said in (
        (3, "a video must be a path or a sequence of frames"),
        ([], "a video needs at least one frame"),
        ("missing.mp4", "missing.mp4: cannot read this file: No such file"),
        ("missing", "missing: there is no such file or folder"),
        ([np.zeros((9, 9, 3), np.uint8), np.zeros((9, 8, 3), np.uint8)], "one size, got 9 x 9 and"),
    ):
        with pytest.raises(GeocoError, match=said):
            media.read_video(source)
