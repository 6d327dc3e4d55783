"""Draws the pictures of docs/operator.md into docs/images: `python docs/operator_pictures.py`."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from geoco import drawing
from geoco.config import DecoderConfig
from geoco.geometry import count_samples
from geoco.models.decoders import DECODERS
from geoco.models.slots import Slots
from geoco.ops import ScaleSteeredConv2d

IMAGES = Path(__file__).parent / "images"
PAPER, INK, LINE = (255, 255, 255), (40, 40, 40), (205, 205, 205)
BLUE, ORANGE = tuple(drawing.COLORS[1].tolist()), tuple(drawing.COLORS[0].tolist())
MARGIN, HEADER = 14, 40

# Searched for: a compact shape near the slot's centre, and decoders that differ clearly there.
SEED = 675
EXTENT = 3


def draw_taps(size: int, scale: float, pixels: int = 11, zoom: int = 28) -> drawing.Picture:
    """Where the taps of one output pixel lie; each pixel is as dark as it is read."""
    dilation = ScaleSteeredConv2d(1, 1, size).dilation(torch.tensor([scale])).item()
    offsets = dilation * (np.arange(size) - size // 2)
    centers = np.arange(pixels) - pixels // 2
    reads = np.maximum(1 - np.abs(centers[:, None] - offsets), 0).sum(1)  # bilinear, along an axis
    fine = 4  # drawn larger and reduced, for smooth edges
    cell = fine * zoom
    image = Image.new("RGB", (pixels * cell, pixels * cell), PAPER)
    brush = ImageDraw.Draw(image)
    for row, down in enumerate(reads):
        for column, right in enumerate(reads):
            box = [column * cell, row * cell, (column + 1) * cell, (row + 1) * cell]
            tint = _mix(PAPER, BLUE, 0.25 * math.sqrt(down * right))
            brush.rectangle(box, tint, LINE, fine)
    middle = [pixels // 2 * cell, pixels // 2 * cell, (pixels // 2 + 1) * cell]
    brush.rectangle([*middle, middle[2]], None, INK, 2 * fine)
    radius = 5 * fine
    for down in offsets:
        for right in offsets:
            x, y = ((pixels / 2 + offset) * cell for offset in (right, down))
            spot = [x - radius, y - radius, x + radius, y + radius]
            brush.ellipse(spot, ORANGE, PAPER, fine)
    return np.asarray(image.reduce(fine))


def decode_alpha(scales: Sequence[float]) -> dict[str, Tensor]:
    """Alpha logits [scale, height, width] of one slot from untrained decoders of equal weights."""
    torch.manual_seed(SEED)
    steered = DECODERS["steered"](DecoderConfig(), 64)
    appearance = 0.3 * torch.randn(1, 64)
    conventional = DECODERS["conventional"](DecoderConfig(), 64)
    conventional.load_state_dict(steered.state_dict(), strict=False)  # it has no gains
    slots = Slots(
        appearance.expand(len(scales), -1), torch.zeros(len(scales), 2), torch.tensor(scales)
    )
    logits = {}
    for name, decoder in (("scale-steered", steered), ("conventional", conventional)):
        with torch.no_grad():
            wide = decoder(slots, extent=EXTENT, alpha_only=True).logits
        side = decoder.size
        start = (count_samples(side, EXTENT) - side) // 2  # the usual canvas, far from all borders
        logits[name] = wide[:, start : start + side, start : start + side]
    return logits


def draw_logits(logits: Tensor, zero: Tensor, unit: Tensor, zoom: int = 4) -> drawing.Picture:
    """Logits from white through blue to dark, about `zero` and in units of `unit`."""
    level = torch.sigmoid(4 * (logits - zero) / unit).numpy()[..., None]
    stops = np.array([PAPER, _mix(PAPER, BLUE, 0.35), BLUE, _mix(BLUE, INK, 0.8)], dtype=float)
    place = level * (len(stops) - 1)
    lower = np.minimum(place.astype(int), len(stops) - 2)[..., 0]
    part = place - lower[..., None]
    picture = np.rint(stops[lower] * (1 - part) + stops[lower + 1] * part).astype(np.uint8)
    return drawing.magnify(picture, zoom)


def compose_labelled(
    rows: Mapping[str, Sequence[drawing.Picture]], columns: Sequence[str], label: int
) -> drawing.Picture:
    """A sheet of pictures with a heading above each column and beside each row."""
    height, width, _ = next(iter(rows.values()))[0].shape
    size = (
        label + len(columns) * (width + MARGIN),
        HEADER + len(rows) * (height + MARGIN),
    )
    image = Image.new("RGB", size, PAPER)
    brush = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=20)
    for column, heading in enumerate(columns):
        center = label + column * (width + MARGIN) + width / 2
        brush.text((center, HEADER / 2), heading, INK, font, anchor="mm")
    for row, (heading, pictures) in enumerate(rows.items()):
        top = HEADER + row * (height + MARGIN)
        brush.text((label - 12, top + height / 2), heading, INK, font, anchor="rm", align="right")
        for column, picture in enumerate(pictures):
            left = label + column * (width + MARGIN)
            image.paste(Image.fromarray(picture), (left, top))
            brush.rectangle([left, top, left + width - 1, top + height - 1], None, LINE)
    return np.asarray(image)


def _mix(a: tuple[int, ...], b: tuple[int, ...], part: float) -> tuple[int, ...]:
    return tuple(round(x * (1 - part) + y * part) for x, y in zip(a, b, strict=True))


def main() -> None:
    scales = [0.1, 0.2, 0.3, 0.4]
    rows = {f"{size} x {size}": [draw_taps(size, scale) for scale in scales] for size in (3, 5)}
    columns = [f"s = {scale:g},  d = {scale / 0.2:g}" for scale in scales]
    drawing.save_pictures(IMAGES / "operator-taps.png", [compose_labelled(rows, columns, label=72)])

    scales = [0.1, 0.15, 0.2, 0.3, 0.4]
    fields = decode_alpha(scales)
    usual = fields["scale-steered"][2]
    zero, unit = torch.quantile(usual, 0.93), usual.std()
    rows = {
        name: [draw_logits(field, zero, unit) for field in logits]
        for name, logits in fields.items()
    }
    columns = [f"s = {scale:g}" for scale in scales]
    drawing.save_pictures(
        IMAGES / "operator-scales.png", [compose_labelled(rows, columns, label=148)]
    )


if __name__ == "__main__":
    main()
