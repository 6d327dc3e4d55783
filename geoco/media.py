"""Pictures and videos in and out; the only place that decodes their files.

In: `read_picture` and `read_video` take whatever a user brings, `read_image` and `decode_video` a
file; `decode_image` and `decode_video_bytes` serve callers with limits of their own, as the web
uploads. `fit_frames` brings frames to a model's size: the largest centred square,
resized and antialiased; nothing is stretched. Out: `save_frames` and `encode_png`.
"""

import io
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from geoco import drawing
from geoco.errors import GeocoError
from geoco.files import write_whole

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
VIDEOS = (".mp4", ".webm", ".gif", ".mov", ".mkv", ".avi")
Picture = UInt8[np.ndarray, "height width 3"]
Pictures = UInt8[np.ndarray, "time height width 3"]
# What decoders raise at damaged files.
DAMAGE = (OSError, SyntaxError, ValueError, LookupError, TypeError, EOFError, struct.error)
MOST_FRAMES = 200  # of a film: all its slots stay in memory, some 6 MB a frame at 64 x 64


def read_picture(source: Any) -> Picture:
    """A path, a PIL image, an array or a tensor as upright RGB.

    Arrays are [height, width] or [height, width, 3 or 4], tensors may also have channels first;
    numbers are bytes, or floats in [0, 1].
    """
    if isinstance(source, str | Path):
        return read_image(Path(source))
    if isinstance(source, Image.Image):
        return np.asarray(source.convert("RGB"))
    if isinstance(source, Tensor):
        source = source.detach().cpu()
        if source.ndim == 3 and source.shape[0] in (1, 3, 4) and source.shape[2] not in (3, 4):
            source = source.permute(1, 2, 0)
        source = source.numpy()
    if not isinstance(source, np.ndarray):
        raise GeocoError(
            "a picture must be a path, a PIL image, an array or a tensor, got "
            f"{type(source).__name__}"
        )
    return _convert_to_rgb(source)


def read_video(source: Any, most: int = MOST_FRAMES) -> Pictures:
    """A video file, a folder of images, or a sequence or array of frames."""
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir():
            frames = [read_image(image) for image in islice(find_images(path), most + 1)]
            if not frames:
                raise GeocoError(f"{path}: there is no image in this folder")
        elif path.suffix.lower() in VIDEOS:
            frames = [frame for _, frame in islice(decode_video(path), most + 1)]
        elif path.exists():
            raise GeocoError(
                f"{path}: expected a video ({', '.join(VIDEOS)}) or a folder of images"
            )
        else:
            raise GeocoError(f"{path}: there is no such file or folder")
    elif isinstance(source, Iterable) and not isinstance(source, Image.Image):
        frames = [read_picture(frame) for frame in islice(source, most + 1)]
    else:
        raise GeocoError(f"a video must be a path or a sequence of frames, not {source!r:.60}")
    if not frames:
        raise GeocoError("a video needs at least one frame, got none")
    if len(frames) > most:
        raise GeocoError(f"the video has more than {most} frames: cut it into shorter pieces")
    shapes = {frame.shape for frame in frames}
    if len(shapes) > 1:
        raise GeocoError(f"all frames must have one size, got {sorted(shapes)}")
    return np.stack(frames)


# -- reading files ---------------------------------------------------------------------------------


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
    return sorted(entries, key=_natural_key)


def find_images(folder: Path) -> list[Path]:
    return [entry for entry in list_folder(folder) if is_file(entry, IMAGES)]


def read_image(path: Path) -> Picture:
    """An image file as upright RGB. Alpha is dropped, not composited: frames are opaque."""
    try:
        return decode_image(path)
    except GeocoError as error:
        raise GeocoError(f"{path}: {error}") from None
    except UnidentifiedImageError:
        empty = path.stat().st_size == 0
        reason = "the file is empty" if empty else "the file is not an image, or is damaged"
        raise GeocoError(f"{path}: {reason}") from None
    except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GeocoError(f"{path}: cannot read this image: {reason}") from None


def decode_image(
    source: Path | bytes,
    formats: tuple[str, ...] | None = None,
    check_size: Callable[[int, int], None] | None = None,
) -> Picture:
    """An image file, or its bytes, as upright RGB; damage raises whatever Pillow raises.

    `formats` are those that it may have; `check_size` gets the header's width and height before any
    pixel is decoded.
    """
    file = source if isinstance(source, Path) else io.BytesIO(source)
    with Image.open(file, formats=formats) as image:
        if check_size is not None:
            check_size(*image.size)
        if image.mode[0] in "IF":
            raise GeocoError(f"expected 8 bits per channel, got an image of mode {image.mode}")
        upright = ImageOps.exif_transpose(image)
    if upright.mode == "P":  # a palette may hold transparency, which RGB alone would refuse
        upright = upright.convert("RGBA")
    return np.asarray(upright.convert("RGB"))


def decode_video(path: Path, frame_rate: float | None = None) -> Iterator[tuple[str, Picture]]:
    """The frames of a video file with their names; with a frame rate, those nearest its times."""
    av = _import_av(f"{path}: reading video files")
    _check_whole(path)
    try:
        with av.open(str(path.absolute())) as container:
            if not container.streams.video:
                audio = "only audio" if container.streams.audio else "the file may be cut off"
                raise GeocoError(f"{path}: there is no video in this file: {audio}")
            timed = _decode_timed(path, container)
            every = (frame for _, frame in timed if frame is not None)
            number = -1
            for number, frame in enumerate(
                every if frame_rate is None else _choose_nearest(timed, frame_rate)
            ):
                yield f"frame {number}", _extract_pixels(frame)
            if number < 0:
                raise GeocoError(f"{path}: this video has no frames")
    except av.FFmpegError as error:
        raise GeocoError(
            f"{path}: not a video that can be decoded, or damaged: {error.strerror}"
        ) from None


def decode_video_bytes(
    data: bytes,
    container_format: str,
    check: Callable[[int, int, int], None],
    fit: Callable[[Picture], Picture],
) -> tuple[list[Picture], float]:
    """The frames of a video in memory, fitted one by one so that they stay small, and their rate.

    `check` gets width, height and number of frames: the header's before anything is decoded, then,
    since headers may lie, those of each frame before it becomes pixels.
    """
    frames = []
    av = _import_av("reading videos")
    try:
        with av.open(io.BytesIO(data), format=container_format) as container:
            if not container.streams.video:
                raise GeocoError("there is no video in this file")
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise GeocoError("this video is of a kind that cannot be decoded")
            check(stream.width, stream.height, stream.frames)
            for number, frame in enumerate(container.decode(video=0), 1):
                check(frame.width, frame.height, number)
                frames.append(fit(_extract_pixels(frame)))
            return frames, float(stream.average_rate or 12)
    except GeocoError:
        raise
    except (av.FFmpegError, *DAMAGE):
        raise GeocoError("this video is damaged or cut off: it cannot be read") from None


def _extract_pixels(frame: Any) -> Picture:
    """A decoded video frame as upright RGB."""
    # Phones film sideways and say so; older PyAV does not pass it on. Both count the angle
    # counterclockwise.
    quarters = round(getattr(frame, "rotation", 0) / 90)
    return np.rot90(frame.to_ndarray(format="rgb24"), quarters)


def _import_av(purpose: str) -> Any:
    """PyAV, an optional dependency."""
    try:
        import av
    except ImportError:
        raise GeocoError(f"{purpose} needs PyAV: pip install 'geoco-savi[video]'") from None
    return av


def _decode_timed(path: Path, container: Any) -> Iterator[tuple[float, Any]]:
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
        raise GeocoError(f"{path}: cannot read this file: {error.strerror}") from None
    if size == 0:
        raise GeocoError(f"{path}: the file is empty")
    if path.suffix.lower() == ".gif" and b"\x00;" not in tail:
        raise GeocoError(f"{path}: the file is cut off: it lacks the end mark of a GIF")


def is_file(entry: Path, suffixes: tuple[str, ...]) -> bool:
    return entry.suffix.lower() in suffixes and not entry.is_dir()


def _natural_key(path: Path) -> tuple[list[int | str], str]:
    parts = re.split(r"(\d+)", path.name.casefold())  # text and digits alternate, text first
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], path.name


# -- fitting and writing ---------------------------------------------------------------------------


def center_box(
    height: int, width: int, target_height: int, target_width: int
) -> tuple[int, int, int, int]:
    """The largest centered crop of the target's aspect ratio: left, top, right, bottom.

    Whole pixels, so that a crop without a change of scale leaves them as they are.
    """
    if width * target_height > height * target_width:
        crop_height, crop_width = height, max(1, round(height * target_width / target_height))
    else:
        crop_height, crop_width = max(1, round(width * target_height / target_width)), width
    left, top = (width - crop_width) // 2, (height - crop_height) // 2
    return left, top, left + crop_width, top + crop_height


def fit_frames(frames: Pictures, size: int) -> UInt8[np.ndarray, "time _height _width 3"]:
    """The largest centred square of each frame, at a model's size."""
    height, width = frames.shape[1:3]
    if (height, width) == (size, size):
        return frames
    if min(height, width) < 8:
        raise GeocoError(f"a picture of {width} x {height} pixels is too small to show objects")
    box = center_box(height, width, size, size)
    images = (
        Image.fromarray(frame).resize((size, size), Image.Resampling.BILINEAR, box)
        for frame in frames
    )
    return np.stack([np.asarray(image) for image in images])


def to_tensor(frames: Pictures, device: Any) -> Float[Tensor, "time 3 height width"]:
    """Frames as a model reads them, in [0, 1]."""
    return torch.tensor(frames).permute(0, 3, 1, 2).to(device).float() / 255


def to_bytes(
    images: Float[Tensor, "*frames 3 height width"],
) -> UInt8[np.ndarray, "*frames height width 3"]:
    """What a model draws, as bytes with channels last."""
    pixels = (255 * images.detach().float().clamp(0, 1)).round().to(torch.uint8)
    return pixels.movedim(-3, -1).cpu().numpy()


def encode_png(image: Picture) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()


def save_frames(path: Path, frames: Iterable[Picture], frames_per_second: float = 12) -> None:
    """Write a picture (.png), an animation (.gif), a video (.mp4) or, without suffix, a folder.

    Whole or not at all; a folder of frames must not exist yet.
    """
    suffix = path.suffix.lower()
    if suffix == ".mp4":
        write_whole(path, _encode_mp4(frames, frames_per_second))
    elif suffix == "":
        _save_folder(path, frames)
    elif suffix == ".gif":
        drawing.save_pictures(path, list(frames), frames_per_second)
    elif suffix == ".png":
        if len(pictures := list(islice(frames, 2))) != 1:
            raise GeocoError(f"{path}: a video is saved as .mp4, .gif or a folder, not as one .png")
        drawing.save_pictures(path, pictures)
    else:
        raise GeocoError(
            f"{path}: pictures are saved as .png, videos as .mp4, .gif or a folder, not '{suffix}'"
        )


def _save_folder(path: Path, frames: Iterable[Picture]) -> None:
    if path.exists():
        raise GeocoError(f"{path}: there is something here already: name a new folder")
    partial = path.with_name(path.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(frames):
        write_whole(partial / f"{number:05d}.png", encode_png(frame))
    partial.rename(path)


def _encode_mp4(frames: Iterable[Picture], frames_per_second: float) -> bytes:
    av = _import_av("writing .mp4")
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


def _convert_to_rgb(values: np.ndarray) -> Picture:
    if values.ndim == 2:
        values = values[..., None].repeat(3, -1)
    if values.ndim != 3 or values.shape[-1] not in (1, 3, 4) or 0 in values.shape:
        raise GeocoError(
            f"a picture must be [height, width, 3], got an array of shape {list(values.shape)}"
        )
    values = values[..., :3] if values.shape[-1] != 1 else values.repeat(3, -1)
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values)
    if np.issubdtype(values.dtype, np.floating):
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise GeocoError("a picture of floats must lie in [0, 1]: divide bytes by 255")
        return np.rint(255 * values).astype(np.uint8)
    raise GeocoError(f"a picture must hold bytes or floats in [0, 1], not {values.dtype}")
