"""Videos, one upright frame at a time: files, folders of images, and sequences of frames.

Containers are decoded by FFmpeg, through PyAV; animated PNG and WebP by Pillow.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from geoco.errors import GeocoError
from geoco.media.folders import IMAGES, VIDEOS, check_file, find_images
from geoco.media.limits import ANY_LENGTH, LIMITS, Limits, count_time
from geoco.media.pictures import (
    DAMAGE,
    Picture,
    convert_image,
    name_file,
    open_image,
    read_image,
    read_picture,
)

Pictures = UInt8[np.ndarray, "time height width 3"]
ANIMATIONS = ("PNG", "WEBP")  # image formats that may hold a film


def read_video(source: Any, limits: Limits = LIMITS) -> Pictures:
    """All frames of a video at once; `iterate_video` needs less memory."""
    return np.stack(list(iterate_video(source, limits)))


def iterate_video(source: Any, limits: Limits = LIMITS) -> Iterator[Picture]:
    """The frames of a video at their full size, each decoded when it is asked for.

    A video is a file, a folder of images, or a sequence or array of frames.
    """
    number, shape = 0, None
    for number, frame in enumerate(_list_frames(source, limits), 1):
        height, width, _ = frame.shape
        limits.check_video(width, height, number)
        shape = shape or frame.shape
        if frame.shape != shape:
            raise GeocoError(
                f"all frames must have one size, got {shape[1]} x {shape[0]} and {width} x "
                f"{height} pixels"
            )
        yield frame
    if not number:
        raise GeocoError("a video needs at least one frame, got none")


def is_video(path: Path) -> bool:
    """Whether a path is a video's, by its name; of PNG and WebP by their headers."""
    suffix = path.suffix.lower()
    return path.is_dir() or suffix in VIDEOS or (suffix in IMAGES and is_animation(path))


def is_animation(source: Path | bytes) -> bool:
    """Whether an image file, or its bytes, is a film: an animated PNG or WebP."""
    try:
        with open_image(source, ANIMATIONS, LIMITS) as image:
            return getattr(image, "is_animated", False)
    except DAMAGE:
        return False  # who reads it says what is wrong


def decode_video(
    path: Path, frame_rate: float | None = None, limits: Limits = ANY_LENGTH
) -> Iterator[tuple[str, Picture]]:
    """The frames of a video file with their names; with a frame rate, those nearest its times."""
    av = import_av(f"{path}: reading video files")
    check_file(path)
    try:
        _check_whole(path)
        if path.suffix.lower() == ".gif":
            _check_gif(path, limits)
        with av.open(str(path.absolute()), metadata_errors="replace") as container:
            timed = _decode_timed(container, limits)
            every = (frame for _, frame in timed if frame is not None)
            chosen = every if frame_rate is None else _choose_nearest(timed, frame_rate)
            for number, frame in enumerate(chosen):
                yield f"frame {number}", _extract_pixels(frame)
    except GeocoError as error:
        raise type(error)(f"{path}: {error}") from None
    except av.FFmpegError as error:
        raise GeocoError(
            f"{path}: not a video that can be decoded, or damaged: {error.strerror}"
        ) from None


def decode_video_bytes(
    data: bytes, kind: str, fit: Callable[[Picture], Picture], limits: Limits = LIMITS
) -> tuple[list[Picture], float]:
    """The frames of a video in memory, fitted one by one so that they stay small, and their rate.

    `kind` is FFmpeg's name of the container, or Pillow's of an animation.
    """
    frames, milliseconds = [], 0.0
    for frame, duration in _decode_bytes(data, kind, limits):
        frames.append(fit(frame))
        milliseconds += duration
    # Rounded, since a sum of durations has lost the last digits.
    return frames, round(1000 * len(frames) / milliseconds, 6) if milliseconds > 0 else 12


def iterate_video_bytes(data: bytes, kind: str, limits: Limits = LIMITS) -> Iterator[Picture]:
    """The frames of a video in memory at their full size, each decoded when it is asked for."""
    return (frame for frame, _ in _decode_bytes(data, kind, limits))


# -- sources ---------------------------------------------------------------------------------------


def _list_frames(source: Any, limits: Limits) -> Iterator[Picture]:
    if isinstance(source, str | Path):
        return count_time(_decode_path(Path(source), limits), limits)
    if isinstance(source, Iterable) and not isinstance(source, Image.Image):
        return (read_picture(frame, limits) for frame in source)
    raise GeocoError(f"a video must be a path or a sequence of frames, not {source!r:.60}")


def _decode_path(path: Path, limits: Limits) -> Iterator[Picture]:
    suffix = path.suffix.lower()
    if path.is_dir():
        images = find_images(path)
        if not images:
            raise GeocoError(f"{path}: there is no image in this folder")
        limits.check_video(0, 0, len(images))
        return (read_image(image, limits) for image in images)
    if suffix in VIDEOS:
        return (frame for _, frame in decode_video(path, limits=limits))
    if not path.exists():
        raise GeocoError(f"{path}: there is no such file or folder")
    check_file(path)
    if suffix in IMAGES and is_animation(path):
        return _decode_animated_file(path, limits)
    raise GeocoError(
        f"{path}: expected a video ({', '.join(VIDEOS)}), an animated PNG or WebP, or a folder of "
        "images"
    )


def _decode_animated_file(path: Path, limits: Limits) -> Iterator[Picture]:
    with name_file(path):
        for frame, _ in _decode_animation(path, limits):
            yield frame


def _decode_animation(source: Path | bytes, limits: Limits) -> Iterator[tuple[Picture, float]]:
    """The frames of an animated PNG or WebP, each with its milliseconds."""
    with open_image(source, ANIMATIONS, limits) as image:
        count = getattr(image, "n_frames", 1)
        limits.check_video(*image.size, count)
        # A PNG may hold a picture for programs that cannot show films: no part of the film.
        for number in range(1 if image.info.get("default_image") else 0, count):
            image.seek(number)
            yield convert_image(image), float(image.info.get("duration") or 0)


def _decode_bytes(data: bytes, kind: str, limits: Limits) -> Iterator[tuple[Picture, float]]:
    """The frames of a video in memory, each with its milliseconds."""
    av = import_av("reading videos")
    try:
        if kind in ANIMATIONS:
            yield from count_time(_decode_animation(data, limits), limits)
            return
        if kind == "gif":
            _check_end_of_gif(data[-64:])
            _check_gif(data, limits)
        with av.open(io.BytesIO(data), format=kind, metadata_errors="replace") as container:
            timed = count_time(_decode_timed(container, limits), limits)
            for number, (_, frame) in enumerate(timed, 1):
                if frame is not None:
                    limits.check_video(frame.width, frame.height, number)
                    rate = container.streams.video[0].average_rate or 12
                    yield _extract_pixels(frame), 1000 / float(rate)
    except GeocoError:
        raise
    except (av.FFmpegError, *DAMAGE):
        raise GeocoError("this video is damaged or cut off: it cannot be read") from None


# -- decoding by FFmpeg ----------------------------------------------------------------------------


def import_av(purpose: str) -> Any:
    """PyAV, an optional dependency."""
    try:
        import av
    except ImportError:
        raise GeocoError(f"{purpose} needs PyAV: pip install 'geoco-savi[video]'") from None
    return av


def _extract_pixels(frame: Any) -> Picture:
    """A decoded video frame as upright RGB, over white where it is transparent."""
    if any(component.is_alpha for component in frame.format.components):
        pixels = convert_image(Image.fromarray(frame.to_ndarray(format="rgba")))
    else:
        pixels = frame.to_ndarray(format="rgb24")
    # Phones film sideways and say so; older PyAV does not pass it on. Both count the angle
    # counterclockwise.
    return np.rot90(pixels, round(getattr(frame, "rotation", 0) / 90))


def _decode_timed(container: Any, limits: Limits) -> Iterator[tuple[float, Any]]:
    """Every frame with its time in seconds, ending in the video's end time with no frame."""
    if not container.streams.video:
        audio = "only audio" if container.streams.audio else "the file may be cut off"
        raise GeocoError(f"there is no video in this file: {audio}")
    stream = container.streams.video[0]
    if stream.codec_context is None:
        raise GeocoError("this video is of a kind that cannot be decoded")
    limits.check_video(stream.width, stream.height, stream.frames)
    stream.thread_type = "AUTO"
    step = 1 / float(stream.average_rate or 25)
    start, time, end = None, -step, 0.0
    for packet in container.demux(stream):
        if packet.pts is not None:
            end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base))
        for frame in packet.decode():
            limits.check_picture(frame.width, frame.height)  # headers may lie
            time = time + step if frame.time is None else frame.time
            start = time if start is None else start
            yield time, frame
    if start is None:
        raise GeocoError("this video has no frames")
    end = max(end, time + step)
    if stream.duration is not None:
        # The header's promise is the only trace of a file that was cut between two packets.
        promised = float(stream.duration * stream.time_base)
        if promised - (end - start) > max(3 * step, 0.01 * promised):
            raise GeocoError(
                f"the file is cut off: {end - start:.1f} s of {promised:.1f} s are there"
            )
    yield end, None


def _choose_nearest(timed: Iterator[tuple[float, Any]], rate: float) -> Iterator[Any]:
    """For each of the times k / rate, the frame that is nearest to it."""
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
        raise GeocoError(f"cannot read this file: {error.strerror}") from None
    if size == 0:
        raise GeocoError("the file is empty")
    if path.suffix.lower() == ".gif":
        _check_end_of_gif(tail)


def _check_end_of_gif(tail: bytes) -> None:
    if b"\x00;" not in tail:
        raise GeocoError("the file is cut off: it lacks the end mark of a GIF")


def _check_gif(source: Path | bytes, limits: Limits) -> None:
    """A GIF's header knows no number of frames; Pillow counts them without decoding one."""
    try:
        with open_image(source, ("GIF",), limits) as image:
            if limits != ANY_LENGTH:
                limits.check_video(*image.size, getattr(image, "n_frames", 1))
    except GeocoError:
        raise
    except DAMAGE:
        return  # FFmpeg says what is wrong
