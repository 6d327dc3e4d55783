"""Pictures and videos in and out: whatever a user brings, fitted to a model; whatever they ask for.

Files are read as `geoco.data.folder` reads them. The largest centred square is taken and resized,
antialiased; nothing is stretched.
"""

import io
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from geoco import draw
from geoco.data.folder import VIDEOS, decode_video, find_images, read_image
from geoco.data.importing import center_box
from geoco.errors import GeocoError
from geoco.files import write_whole

Picture = UInt8[np.ndarray, "height width 3"]
Pictures = UInt8[np.ndarray, "time height width 3"]
MOST_FRAMES = 200  # of a film: all its slots stay in memory, some 6 MB a frame at 64 x 64


def picture(source: Any) -> Picture:
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
    return _bytes(source)


def pictures(source: Any, most: int = MOST_FRAMES) -> Pictures:
    """A video file, a folder of images, or a sequence or array of frames."""
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir():
            found = [read_image(image) for image in islice(find_images(path), most + 1)]
            if not found:
                raise GeocoError(f"{path}: there is no image in this folder")
        elif path.suffix.lower() in VIDEOS:
            found = [frame for _, frame in islice(decode_video(path), most + 1)]
        elif path.exists():
            raise GeocoError(
                f"{path}: expected a video ({', '.join(VIDEOS)}) or a folder of images"
            )
        else:
            raise GeocoError(f"{path}: there is no such file or folder")
    elif isinstance(source, Iterable) and not isinstance(source, Image.Image):
        found = [picture(frame) for frame in islice(source, most + 1)]
    else:
        raise GeocoError(f"a video must be a path or a sequence of frames, not {source!r:.60}")
    if not found:
        raise GeocoError("a video needs at least one frame, got none")
    if len(found) > most:
        raise GeocoError(f"the video has more than {most} frames: cut it into shorter pieces")
    shapes = {frame.shape for frame in found}
    if len(shapes) > 1:
        raise GeocoError(f"all frames must have one size, got {sorted(shapes)}")
    return np.stack(found)


def fitted(frames: Pictures, size: int) -> UInt8[np.ndarray, "time _height _width 3"]:
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


def as_input(frames: Pictures, device: Any) -> Tensor:
    """Frames as a model reads them: [time 3 height width] in [0, 1]."""
    return torch.tensor(frames).permute(0, 3, 1, 2).to(device).float() / 255


def as_pictures(images: Tensor) -> Pictures:
    """What a model draws as bytes, [time height width 3]."""
    images = (255 * images.detach().clamp(0, 1)).round().to(torch.uint8)
    return images.permute(0, 2, 3, 1).cpu().numpy()


def png(image: Picture) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()


def save(path: Path, frames: Sequence[Picture], frames_per_second: float = 12) -> None:
    """Write a picture (.png), an animation (.gif), a video (.mp4) or, without suffix, a folder.

    Whole or not at all; a folder of frames must not exist yet.
    """
    suffix = path.suffix.lower()
    if suffix == ".mp4":
        write_whole(path, _mp4(frames, frames_per_second))
    elif suffix == "":
        _save_folder(path, frames)
    elif suffix == ".png" and len(frames) != 1:
        raise GeocoError(f"{path}: a video is saved as .mp4, .gif or a folder, not as one .png")
    elif suffix in (".png", ".gif"):
        draw.save(path, frames, frames_per_second)
    else:
        raise GeocoError(
            f"{path}: pictures are saved as .png, videos as .mp4, .gif or a folder, not '{suffix}'"
        )


def _save_folder(path: Path, frames: Sequence[Picture]) -> None:
    if path.exists():
        raise GeocoError(f"{path}: there is something here already: name a new folder")
    partial = path.with_name(path.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(frames):
        write_whole(partial / f"{number:05d}.png", png(frame))
    partial.rename(path)


def _mp4(frames: Sequence[Picture], frames_per_second: float) -> bytes:
    try:
        import av
    except ImportError:
        raise GeocoError("writing .mp4 needs PyAV: pip install 'geoco-savi[video]'") from None
    from fractions import Fraction

    height, width = (side + side % 2 for side in frames[0].shape[:2])  # H.264 wants even sides
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream: Any = container.add_stream(
            "libx264", rate=Fraction(frames_per_second).limit_denominator(1000)
        )
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"crf": "12"}
        for frame in frames:
            rows, columns = height - frame.shape[0], width - frame.shape[1]
            padded = np.pad(frame, ((0, rows), (0, columns), (0, 0)), mode="edge")
            for packet in stream.encode(av.VideoFrame.from_ndarray(padded, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return buffer.getvalue()


def _bytes(values: np.ndarray) -> Picture:
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
