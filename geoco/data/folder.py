"""Any folder of videos (mp4, webm, gif, mov, mkv, avi) or of frame folders, as a user brings it.

Subfolders are searched. A video file is one video; a folder that holds images is one video, its
frames in natural order of their names (2 before 10). A folder that holds both is refused, since
the images could be frames or thumbnails. Names that start with a dot are ignored.

With `frame_rate` the output times are those of the first frame + k / frame_rate up to the end of
the video, and each takes the frame nearest to it, the earlier of two equally near. Videos longer
than `max_frames` come in pieces of that length (the last may be shorter), so that memory stays
bounded; one piece may take at most MOST_FRAMES frames and MOST_BYTES decoded.
"""

import re
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from geoco.config import FolderSource, Split
from geoco.data.source import RawVideo
from geoco.errors import GeocoError

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
VIDEOS = (".mp4", ".webm", ".gif", ".mov", ".mkv", ".avi")
MOST_FRAMES = 10_000
MOST_BYTES = 4 * 2**30

Frame = UInt8[np.ndarray, "height width 3"]


def splits(source: FolderSource) -> tuple[Split, ...]:
    """The splits there are: a folder is one, the one its configuration says."""
    return (source.split,)


def count(source: FolderSource, split: Split) -> int | None:
    paths = _videos(source, split)
    if source.max_frames is None:
        return len(paths)
    if not all(path.is_dir() for path in paths):
        return None  # only decoding tells how many pieces a video file gives
    return sum(-(-len(find_images(path)) // source.max_frames) for path in paths)


def read(source: FolderSource, split: Split, skip: int = 0) -> Iterator[RawVideo]:
    paths = _videos(source, split)
    if source.max_frames is None:
        paths, skip = paths[skip:], 0
    return islice((video for path in paths for video in _read_video(source, path)), skip, None)


# -- frame folders: shared with obj3d.py -----------------------------------------------------------


def list_folder(folder: Path) -> list[Path]:
    """What a folder holds, hidden names left out, in natural order (2 before 10)."""
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except FileNotFoundError:
        raise GeocoError(f"{folder}: there is no such folder") from None
    except NotADirectoryError:
        raise GeocoError(f"{folder}: expected a folder, but this is a file") from None
    except OSError as error:
        raise GeocoError(f"{folder}: cannot read this folder: {error.strerror}") from None
    return sorted(entries, key=_natural_order)


def find_images(folder: Path) -> list[Path]:
    return [entry for entry in list_folder(folder) if _is_file(entry, IMAGES)]


def read_images(paths: list[Path]) -> Iterator[tuple[str, Frame]]:
    """Each image under its name, read when it is asked for."""
    return ((path.name, read_image(path)) for path in paths)


def read_image(path: Path) -> Frame:
    """An image file as upright RGB. Alpha is dropped, not composited: frames are opaque."""
    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image)
    except UnidentifiedImageError:
        empty = path.stat().st_size == 0
        reason = "the file is empty" if empty else "the file is not an image, or is damaged"
        raise GeocoError(f"{path}: {reason}") from None
    except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GeocoError(f"{path}: cannot read this image: {reason}") from None
    if upright.mode[0] in "IF":
        raise GeocoError(
            f"{path}: expected 8 bits per channel, got an image of mode {upright.mode}"
        )
    if upright.mode == "P":  # a palette may hold transparency, which RGB alone would refuse
        upright = upright.convert("RGBA")
    return np.asarray(upright.convert("RGB"))


def cut(
    path: Path, name: str, frames: Iterator[tuple[str, Frame]], most: int | None = None
) -> Iterator[RawVideo]:
    """The labelled frames of the video at `path` as one RawVideo, or pieces of `most` frames."""
    first = ahead = next(frames, None)
    number = 0
    while ahead is not None and first is not None:
        piece: list[Frame] = []
        while ahead is not None and len(piece) != most:
            label, frame = ahead
            if frame.shape != first[1].shape:
                sizes = f"{label} is {_size(frame)}, but {first[0]} is {_size(first[1])}"
                raise GeocoError(f"{path}: frames of different sizes: {sizes}")
            if len(piece) == MOST_FRAMES or (len(piece) + 1) * frame.nbytes > MOST_BYTES:
                raise GeocoError(
                    f"{path}: more than {len(piece)} frames of {_size(frame)} do not fit into "
                    "memory at once: set data.source.max_frames, for example to 100"
                )
            piece.append(frame)
            ahead = next(frames, None)
        yield RawVideo(name, np.stack(piece), first=number)
        number += len(piece)


# -- finding and decoding --------------------------------------------------------------------------


def _videos(source: FolderSource, split: Split) -> list[Path]:
    """Video files and frame folders, in natural order."""
    if split != source.split:
        raise GeocoError(
            f"{source.path}: this folder is the split '{source.split}' (data.source.split), "
            f"so there is no split '{split}'"
        )
    found = _find(source.path)
    if not found:
        kinds = {path.suffix or path.name for path in source.path.rglob("*") if path.is_file()}
        only = f"only {', '.join(sorted(kinds)[:5])} files" if kinds else "the folder is empty"
        raise GeocoError(
            f"{source.path}: no videos ({' '.join(VIDEOS)}) or images ({' '.join(IMAGES)}): {only}"
        )
    return found


def _find(folder: Path) -> list[Path]:
    found: list[Path] = []
    images: list[Path] = []
    for entry in list_folder(folder):
        if entry.is_dir():
            found += _find(entry)
        elif _is_file(entry, VIDEOS):
            found.append(entry)
        elif _is_file(entry, IMAGES):
            images.append(entry)
    if images and found:
        raise GeocoError(
            f"{folder}: holds images ({images[0].name}) beside videos ({found[0].name}): move the "
            "images elsewhere or, if they are a video's frames, into a subfolder of their own"
        )
    return [folder] if images else found


def _read_video(source: FolderSource, path: Path) -> Iterator[RawVideo]:
    name = path.relative_to(source.path).as_posix() if path != source.path else path.resolve().name
    if not path.is_dir():
        return cut(path, name, decode_video(path, source.frame_rate), source.max_frames)
    if source.frame_rate is not None:
        raise GeocoError(
            f"{path}: a folder of images has no frame rate to resample: "
            "leave out data.source.frame_rate"
        )
    return cut(path, name, read_images(find_images(path)), source.max_frames)


def decode_video(path: Path, frame_rate: float | None = None) -> Iterator[tuple[str, Frame]]:
    try:
        import av
    except ImportError:
        raise GeocoError(
            f"{path}: reading video files needs PyAV: pip install 'geoco-savi[video]'"
        ) from None
    _check_whole(path)
    try:
        with av.open(str(path.absolute())) as container:
            if not container.streams.video:
                audio = "only audio" if container.streams.audio else "the file may be cut off"
                raise GeocoError(f"{path}: there is no video in this file: {audio}")
            timed = _timed(path, container)
            every = (frame for _, frame in timed if frame is not None)
            number = -1
            for number, frame in enumerate(
                every if frame_rate is None else _nearest(timed, frame_rate)
            ):
                pixels = frame.to_ndarray(format="rgb24")
                # Phones film sideways and say so; older PyAV does not pass it on. Both count the
                # angle counterclockwise.
                quarters = round(getattr(frame, "rotation", 0) / 90)
                yield f"frame {number}", np.rot90(pixels, quarters)
            if number < 0:
                raise GeocoError(f"{path}: this video has no frames")
    except av.FFmpegError as error:
        raise GeocoError(
            f"{path}: not a video that can be decoded, or damaged: {error.strerror}"
        ) from None


def _timed(path: Path, container: Any) -> Iterator[tuple[float, Any]]:
    """Every frame with its time in seconds, ending in the video's end time with no frame."""
    stream = container.streams.video[0]
    stream.thread_type = "AUTO"
    step = 1 / float(stream.average_rate or 25)
    start, time, end = None, -step, 0.0
    for packet in container.demux(stream):
        if packet.pts is not None:
            end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base))
        for frame in packet.decode():
            time = time + step if frame.time is None else frame.time
            start = time if start is None else start
            yield time, frame
    end = max(end, time + step)
    if stream.duration is not None and start is not None:
        # The header's promise is the only trace of a file that was cut between two packets.
        promised = float(stream.duration * stream.time_base)
        if promised - (end - start) > max(3 * step, 0.01 * promised):
            raise GeocoError(
                f"{path}: the file is cut off: {end - start:.1f} s of {promised:.1f} s are there"
            )
    yield end, None


def _nearest(timed: Iterator[tuple[float, Any]], rate: float) -> Iterator[Any]:
    tolerance = 1e-3  # seconds; webm and mkv round times to milliseconds
    number = 0
    start, shown = next(timed)
    before = start
    for time, frame in timed:
        limit = time - tolerance if frame is None else (before + time) / 2 + tolerance
        while start + number / rate <= limit:
            yield shown
            number += 1
        before, shown = time, frame


def _check_whole(path: Path) -> None:
    """Catch what decoders pass over in silence: empty files, and GIFs without their last byte."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 64))
            tail = file.read()
    except OSError as error:
        raise GeocoError(f"{path}: cannot read this file: {error.strerror}") from None
    if size == 0:
        raise GeocoError(f"{path}: the file is empty")
    if path.suffix.lower() == ".gif" and b"\x00;" not in tail:
        raise GeocoError(f"{path}: the file is cut off: it lacks the end mark of a GIF")


def _is_file(entry: Path, suffixes: tuple[str, ...]) -> bool:
    return entry.suffix.lower() in suffixes and not entry.is_dir()


def _natural_order(path: Path) -> tuple[list[int | str], str]:
    parts = re.split(r"(\d+)", path.name.casefold())  # text and digits alternate, text first
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], path.name


def _size(frame: Frame) -> str:
    return f"{frame.shape[1]} x {frame.shape[0]} pixels"
