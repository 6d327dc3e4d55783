"""Pictures as upright RGB, 8 bits a channel, whatever they come as.

Transparent places are laid over white, as pages and viewers show them. Turned photographs are
turned upright. 16 bits a channel become 8.
"""

import io
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from geoco.errors import GeocoError
from geoco.media.folders import check_file
from geoco.media.limits import LIMITS, Limits, TooLargeError

Picture = UInt8[np.ndarray, "height width 3"]
# Named, because Pillow knows formats that start other programs, too.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "PPM")
# What decoders raise at damaged files.
DAMAGE = (OSError, SyntaxError, ValueError, LookupError, TypeError, EOFError, struct.error)
_OPENING = threading.Lock()


def read_picture(source: Any, limits: Limits = LIMITS) -> Picture:
    """A path, a PIL image, an array or a tensor as upright RGB.

    Arrays are [height, width] or [height, width, 3 or 4], tensors may also have channels first;
    numbers are bytes, 16 bits or floats in [0, 1].
    """
    if isinstance(source, str | Path):
        return read_image(Path(source), limits)
    if isinstance(source, Image.Image):
        limits.check_picture(*source.size)
        try:
            return convert_image(source)
        except GeocoError:
            raise
        except DAMAGE as error:
            raise GeocoError(f"cannot read this picture: {error}") from None
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
    return _convert_array(source, limits)


def read_image(path: Path, limits: Limits = LIMITS) -> Picture:
    """An image file as upright RGB; of several frames the first."""
    with name_file(path):
        return decode_image(path, FORMATS, limits)


def decode_image(
    source: Path | bytes, formats: tuple[str, ...] = FORMATS, limits: Limits = LIMITS
) -> Picture:
    """An image file, or its bytes, as upright RGB; damage raises whatever Pillow raises."""
    with open_image(source, formats, limits) as image:
        return convert_image(image)


@contextmanager
def open_image(
    source: Path | bytes, formats: tuple[str, ...], limits: Limits
) -> Iterator[Image.Image]:
    """An image of which only the header was read, and its size checked."""
    if isinstance(source, Path):
        check_file(source)
    try:
        # Pillow warns of what is refused here. Filters of warnings are those of all threads.
        with _OPENING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(
                source if isinstance(source, Path) else io.BytesIO(source), formats=formats
            )
    except Image.DecompressionBombError:
        raise TooLargeError(
            f"the picture is too large: at most {limits.pixels:,} pixels are read"
        ) from None
    with image:
        limits.check_picture(*image.size)
        yield image


@contextmanager
def name_file(path: Path) -> Iterator[None]:
    """Say which image file is meant, in one sentence whatever Pillow raises."""
    try:
        yield
    except GeocoError as error:
        named = str(error).startswith(str(path))
        raise type(error)(str(error) if named else f"{path}: {error}") from None
    except UnidentifiedImageError:
        empty = path.stat().st_size == 0
        reason = "the file is empty" if empty else "the file is not an image, or is damaged"
        raise GeocoError(f"{path}: {reason}") from None
    except (*DAMAGE, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GeocoError(f"{path}: cannot read this image: {reason}") from None


def convert_image(image: Image.Image) -> Picture:
    """The frame that an image shows, upright, over white."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode[0] in "IF":
        values = np.asarray(upright)
        if values.dtype == np.int32 and values.min() >= 0 and values.max() < 2**16:
            values = values.astype(np.uint16)
        if (clear := upright.info.get("transparency")) is not None:
            values = np.where(values == clear, values.dtype.type(2**16 - 1), values)
        return np.repeat(_convert_to_bytes(values)[..., None], 3, -1)
    if not upright.has_transparency_data:
        return np.asarray(upright.convert("RGB"))
    layers = upright.convert("RGBA")
    paper = Image.new("RGB", layers.size, "white")
    paper.paste(layers, mask=layers.getchannel("A"))
    return np.asarray(paper)


def _convert_array(values: np.ndarray, limits: Limits) -> Picture:
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim != 3 or values.shape[-1] not in (1, 3, 4) or 0 in values.shape:
        raise GeocoError(
            f"a picture must be [height, width, 3], got an array of shape {list(values.shape)}"
        )
    limits.check_picture(values.shape[1], values.shape[0])
    pixels = _convert_to_bytes(values)
    if pixels.shape[-1] == 4:
        return convert_image(Image.fromarray(np.ascontiguousarray(pixels)))
    return np.ascontiguousarray(pixels.repeat(3, -1) if pixels.shape[-1] == 1 else pixels)


def _convert_to_bytes(values: np.ndarray) -> UInt8[np.ndarray, "..."]:
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        return np.rint(values / np.float32(257)).astype(np.uint8)
    if np.issubdtype(values.dtype, np.floating):
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise GeocoError("a picture of floats must lie in [0, 1]: divide bytes by 255")
        return np.rint(255 * values).astype(np.uint8)
    raise GeocoError(f"a picture must hold bytes, 16 bits or floats in [0, 1], not {values.dtype}")
