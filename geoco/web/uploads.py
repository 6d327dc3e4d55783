"""Files from strangers: what they are is read from their first bytes, and sizes before pixels.

Decoders are told which format to expect, so that nothing can pass for a playlist that opens other
files or addresses. Frames are fitted to the model as they come, so that long videos stay small; of
larger ones the file is kept, too.
"""

import base64
from dataclasses import dataclass, replace

import numpy as np
from fastapi import HTTPException
from jaxtyping import UInt8
from pydantic import ValidationError

from geoco import media
from geoco.editing import recording
from geoco.editing.originals import Originals, VideoBytes, choose_side, fit_picture
from geoco.editing.recording import EditList
from geoco.errors import GeocoError
from geoco.web.settings import Settings

IMAGES = {b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG", b"BM": "BMP"}
TIFFS = (b"II*\0", b"MM\0*")
EXPECTED = (
    "expected a picture (PNG, JPEG, WebP, BMP, TIFF) or a video (MP4, MOV, WebM, MKV, AVI, GIF, "
    "animated PNG or WebP)"
)


@dataclass(frozen=True, eq=False)
class Upload:
    """Frames at the model's size, and what was done to get them."""

    frames: UInt8[np.ndarray, "time height width 3"]
    frames_per_second: float
    notes: tuple[str, ...]
    originals: Originals | None = None  # of what is larger than the model's size


def read_upload(data: bytes, size: int, settings: Settings) -> Upload:
    """A picture or a video, within the limits."""
    if not data:
        raise GeocoError("the file is empty")
    image, video = _recognize_image(data), _recognize_video(data)
    if video is None and image in media.ANIMATIONS and media.is_animation(data):
        video = image
    if video is not None:
        return _read_video(data, video, size, settings)
    if image is not None:
        picture = _read_picture(data, image, settings)
        notes = _describe_fit(picture.shape[1], picture.shape[0], size)
        frames, originals = fit_picture(picture, size)
        return Upload(frames, 12, notes, originals)
    raise HTTPException(415, f"this file is of no kind that can be edited: {EXPECTED}")


def read_edit_list(data: bytes, settings: Settings) -> tuple[str, bool]:
    """An edit list that is safe to replay, and whether it is a film's."""
    try:
        text = data.decode()
        edit_list = EditList.model_validate_json(text)
    except UnicodeDecodeError:
        raise GeocoError("the edit list is not right: it is not text in UTF-8") from None
    except ValidationError as error:
        raise GeocoError(recording.describe_problem(error, "the edit list is not right:")) from None
    lists = list(recording.walk_lists(edit_list))
    frames = sum(len(one.frames) for one in lists)
    edits = sum(len(one.edits) for one in lists)
    if frames > 2 * settings.film_frames or edits > settings.edits:
        raise GeocoError(
            f"the edit list is too long: it has {frames} frames and {edits} edits, at most "
            f"{2 * settings.film_frames} and {settings.edits} are replayed here"
        )
    fewer = replace(settings, reading=recording.limit_frames(edit_list))
    for one in lists:
        for frame in one.frames:
            _read_picture(_decode_base64(frame), "PNG", fewer)
    return text, edit_list.kind == "Film"


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise GeocoError("the edit list is not right: a frame is not a PNG in base 64") from None


# -- pictures --------------------------------------------------------------------------------------


def _recognize_image(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data.startswith(TIFFS):
        return "TIFF"
    return next((name for magic, name in IMAGES.items() if data.startswith(magic)), None)


def _read_picture(data: bytes, kind: str, settings: Settings) -> media.Picture:
    try:
        return media.decode_image(data, (kind,), settings.reading)
    except GeocoError:
        raise
    except media.DAMAGE:
        raise GeocoError(f"this {kind} file is damaged or cut off: it cannot be read") from None


# -- videos ----------------------------------------------------------------------------------------


def _recognize_video(data: bytes) -> str | None:
    """FFmpeg's name of the container."""
    if data[4:8] in (b"ftyp", b"moov", b"mdat", b"wide"):
        return "mov"
    if data.startswith(b"\x1aE\xdf\xa3"):
        return "matroska"
    if data[:4] == b"RIFF" and data[8:12] == b"AVI ":
        return "avi"
    return "gif" if data.startswith((b"GIF87a", b"GIF89a")) else None


def _read_video(data: bytes, kind: str, size: int, settings: Settings) -> Upload:
    sizes: set[tuple[int, int]] = set()

    def fit(pixels: media.Picture) -> UInt8[np.ndarray, "_height _width 3"]:
        sizes.add((pixels.shape[1], pixels.shape[0]))
        if len(sizes) > 1:
            raise GeocoError("all frames of a video must have one size")
        return media.fit_frame(pixels, size)

    frames, rate = media.decode_video_bytes(data, kind, fit, settings.reading)
    spaced = np.linspace(0, len(frames) - 1, min(len(frames), settings.film_frames)).round()
    kept = tuple(int(number) for number in spaced)
    chosen = np.stack([frames[number] for number in kept])
    width, height = next(iter(sizes))
    notes = _describe_fit(width, height, size)
    if len(kept) < len(frames):
        notes = (f"{len(kept)} of {len(frames)} frames are used, evenly spaced", *notes)
    rate = min(60.0, max(1.0, rate * len(kept) / len(frames)))
    side = choose_side(width, height, size)
    # The file as it came is smaller than its frames: they are decoded again when they are needed.
    originals = None if side is None else VideoBytes(data, kind, side, kept)
    return Upload(chosen, rate, notes, originals)


def _describe_fit(width: int, height: int, size: int) -> tuple[str, ...]:
    if (width, height) == (size, size):
        return ()
    crop = "" if width == height else "cut to its middle square and "
    return (f"{width} x {height} pixels, {crop}fitted to {size} x {size}, the model's size",)
