"""Pictures for people: masks as outlines and tints, contact sheets, animations."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image, ImageDraw, ImageFont

from geoco.errors import GeocoError
from geoco.files import write_whole

Picture = UInt8[np.ndarray, "_height _width 3"]

# Ten well separated hues (after Paul Tol); instance i takes colour i modulo ten.
COLORS = np.array(
    [
        (238, 119, 51),
        (0, 119, 187),
        (238, 51, 119),
        (0, 153, 136),
        (204, 187, 68),
        (51, 187, 238),
        (204, 51, 17),
        (170, 51, 119),
        (34, 136, 51),
        (187, 187, 187),
    ],
    dtype=np.uint8,
)
MARGIN = 4
PAPER = 255
MOST_ZOOM = 64


def overlay_masks(
    picture: Picture, masks: UInt8[np.ndarray, "mask_height mask_width"], zoom: int = 1
) -> Picture:
    """A picture in grey, magnified, with each instance tinted and outlined in its colour.

    Masks may have more pixels than the picture; each pixel drawn shows the mask at its middle.
    """
    grey = np.rint(picture.mean(-1, keepdims=True)).astype(np.uint8).repeat(3, -1)
    large = magnify(grey, zoom)
    rows, columns = (
        (2 * np.arange(drawn) + 1) * stored // (2 * drawn)
        for drawn, stored in zip(large.shape[:2], masks.shape, strict=True)
    )
    labels = masks[np.ix_(rows, columns)]
    inside = labels > 0
    color = COLORS[(labels.astype(np.int64) - 1) % len(COLORS)]
    edge = _find_edges(labels)
    weight = np.where(edge, 1.0, np.where(inside, 0.45, 0.0))[..., None]
    return np.rint(large * (1 - weight) + color * weight).astype(np.uint8)


def draw_outlines(
    picture: Picture, labels: UInt8[np.ndarray, "height width"], zoom: int = 4
) -> Picture:
    """A picture, magnified, with each instance outlined in its colour and numbered from 0."""
    large = magnify(picture, zoom).copy()
    big = labels.repeat(zoom, 0).repeat(zoom, 1)
    edge = _find_edges(big)
    large[edge] = COLORS[(big[edge].astype(np.int64) - 1) % len(COLORS)]
    image = Image.fromarray(large)
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=max(10, 4 * zoom))
    for label in np.unique(labels[labels > 0]):
        rows, columns = np.nonzero(labels == label)
        place = (zoom * (columns.mean() + 0.5), zoom * (rows.mean() + 0.5))
        color = tuple(int(part) for part in COLORS[(int(label) - 1) % len(COLORS)])
        pen.text(place, str(label - 1), color, font, "mm", stroke_width=2, stroke_fill="white")
    return np.asarray(image)


def magnify(picture: Picture, zoom: int) -> Picture:
    """Every pixel as a square, so that what is shown is what is there."""
    if not 1 <= zoom <= MOST_ZOOM:
        raise GeocoError(
            f"zoom {zoom}: expected 1 or more, the side of a pixel's square, up to {MOST_ZOOM}"
        )
    return picture.repeat(zoom, 0).repeat(zoom, 1)


def compose_sheet(rows: Sequence[Sequence[Picture]]) -> Picture:
    """Pictures of one size in rows and columns on white paper."""
    height, width, _ = rows[0][0].shape
    most = max(len(row) for row in rows)
    paper = np.full(
        (len(rows) * (height + MARGIN) + MARGIN, most * (width + MARGIN) + MARGIN, 3),
        PAPER,
        dtype=np.uint8,
    )
    for row, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            top, left = row * (height + MARGIN) + MARGIN, column * (width + MARGIN) + MARGIN
            paper[top : top + height, left : left + width] = picture
    return paper


def _find_edges(labels: UInt8[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"]:
    """Pixels of instances that touch anything else."""
    padded = np.pad(labels, 1, mode="edge")
    neighbours = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
    different = np.any([neighbour != labels for neighbour in neighbours], axis=0)
    return np.asarray((labels > 0) & different)


def save_pictures(path: Path, pictures: Iterable[Picture], frames_per_second: float = 8) -> None:
    """Write one picture as PNG, or several as an animated GIF; whole or not at all.

    Those of a GIF are asked for one by one; a byte is kept of each pixel.
    """
    suffix = path.suffix.lower()
    images = (Image.fromarray(picture) for picture in pictures)
    first = next(images, None)
    second = next(images, None) if suffix == ".png" else None
    if suffix not in (".png", ".gif") or first is None or second is not None:
        raise GeocoError(
            f"{path}: pictures are written as .png (one) or .gif (animated), not '{suffix}'"
        )
    buffer = io.BytesIO()
    if suffix == ".png":
        first.save(buffer, format="PNG", optimize=True)
    else:
        duration = round(1000 / frames_per_second)
        first.save(
            buffer, format="GIF", save_all=True, append_images=images, duration=duration, loop=0
        )
    write_whole(path, buffer.getvalue())
