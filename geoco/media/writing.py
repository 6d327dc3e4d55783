"""Pictures and videos out: whole files or none."""

import io
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from geoco import drawing
from geoco.errors import GeocoError
from geoco.files import check_writable, write_whole
from geoco.media.pictures import Picture
from geoco.media.videos import import_av

JPEG = (".jpg", ".jpeg")
SLOWEST, FASTEST = 0.1, 1000  # frames per second


def encode_png(image: Picture) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()


def encode_animated_png(frames: Sequence[Picture], milliseconds: float | None = None) -> bytes:
    """A picture, or a film; with a duration of frames to be looked at, without one to be read."""
    first, *rest = [Image.fromarray(frame) for frame in frames]
    buffer = io.BytesIO()
    # With durations, frames that equal the one before become one with it.
    timed = {} if milliseconds is None else {"duration": milliseconds}
    first.save(buffer, format="PNG", save_all=bool(rest), append_images=rest, **timed)
    return buffer.getvalue()


def check_target(path: Path, is_video: bool) -> None:
    """Refuse, before any work, where `save_frames` could not write."""
    suffix = path.suffix.lower()
    if suffix in (".png", *JPEG) and is_video:
        raise GeocoError(f"{path}: a video is saved as .mp4, .gif or a folder, not as one picture")
    if suffix not in (".png", *JPEG, ".gif", ".mp4", ""):
        raise GeocoError(
            f"{path}: pictures are saved as .png or .jpg, videos as .mp4, .gif or a folder, not "
            f"'{suffix}'"
        )
    if suffix == ".mp4":
        import_av("writing .mp4")
    if suffix == "" and path.exists():
        raise GeocoError(f"{path}: there is something here already: name a new folder")
    check_writable(path)


def check_rate(frames_per_second: float) -> None:
    if not SLOWEST <= frames_per_second <= FASTEST:
        raise GeocoError(
            f"{frames_per_second} frames a second: expected {SLOWEST:g} to {FASTEST:g}"
        )


def save_frames(path: Path, frames: Iterable[Picture], frames_per_second: float = 12) -> None:
    """Write a picture (.png, .jpg), an animation (.gif), a video (.mp4) or a folder of frames.

    A folder is what has no suffix, and must not exist yet. Whole or not at all. Frames of videos
    and folders are asked for one by one.
    """
    check_target(path, is_video=False)
    check_rate(frames_per_second)
    suffix = path.suffix.lower()
    if suffix == ".mp4":
        write_whole(path, _encode_mp4(frames, frames_per_second))
    elif suffix == "":
        _save_folder(path, frames)
    elif suffix == ".gif":
        drawing.save_pictures(path, frames, frames_per_second)
    else:
        first, *more = islice(frames, 2)
        check_target(path, bool(more))
        if suffix in JPEG:
            write_whole(path, _encode_jpeg(first))
        else:
            drawing.save_pictures(path, [first])


def _encode_jpeg(image: Picture) -> bytes:
    buffer = io.BytesIO()
    # Colours at every pixel: at 64 x 64 a block of shared colour is as large as an object's edge.
    Image.fromarray(image).save(buffer, format="JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def _save_folder(path: Path, frames: Iterable[Picture]) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(frames):
        write_whole(partial / f"{number:05d}.png", encode_png(frame))
    partial.rename(path)


def _encode_mp4(frames: Iterable[Picture], frames_per_second: float) -> bytes:
    av = import_av("writing .mp4")
    first = next(remaining := iter(frames))
    height, width = (side + side % 2 for side in first.shape[:2])  # H.264 wants even sides
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream: Any = container.add_stream(
            "libx264", rate=Fraction(frames_per_second).limit_denominator(1000)
        )
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"crf": "12"}
        for frame in chain((first,), remaining):
            rows, columns = height - frame.shape[0], width - frame.shape[1]
            padded = np.pad(frame, ((0, rows), (0, columns), (0, 0)), mode="edge")
            for packet in stream.encode(av.VideoFrame.from_ndarray(padded, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return buffer.getvalue()
