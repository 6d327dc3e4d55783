"""Frames at a model's size, and as tensors."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from geoco.errors import GeocoError
from geoco.media.pictures import Picture

LEAST_SIDE = 8


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


def fit_frame(picture: Picture, size: int) -> UInt8[np.ndarray, "_height _width 3"]:
    """The largest centred square of a picture, at a model's size."""
    height, width = picture.shape[:2]
    if (height, width) == (size, size):
        return picture
    if min(height, width) < LEAST_SIDE:
        raise GeocoError(f"a picture of {width} x {height} pixels is too small to show objects")
    box = center_box(height, width, size, size)
    image = Image.fromarray(np.ascontiguousarray(picture))
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box))


def fit_frames(
    frames: UInt8[np.ndarray, "time height width 3"], size: int
) -> UInt8[np.ndarray, "time _height _width 3"]:
    """The largest centred square of each frame, at a model's size."""
    return np.stack([fit_frame(frame, size) for frame in frames])


def to_tensor(
    frames: UInt8[np.ndarray, "time height width 3"], device: Any
) -> Float[Tensor, "time 3 height width"]:
    """Frames as a model reads them, in [0, 1]."""
    return torch.tensor(frames).permute(0, 3, 1, 2).to(device).float() / 255


def to_bytes(
    images: Float[Tensor, "*frames 3 height width"],
) -> UInt8[np.ndarray, "*frames height width 3"]:
    """What a model draws, as bytes with channels last."""
    pixels = (255 * images.detach().float().clamp(0, 1)).round().to(torch.uint8)
    return pixels.movedim(-3, -1).cpu().numpy()
