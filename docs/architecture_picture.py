"""Draws the layers of docs/architecture.md: `python docs/architecture_picture.py`."""

import json
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

IMAGE = Path(__file__).parent / "images" / "architecture.png"
# From the highest layer to the lowest, what is in each part; a test compares them with the imports.
LAYERS: tuple[dict[str, str], ...] = (
    {"cli": "commands and their options"},
    {
        "publishing": "model cards, the Hub",
        "demo": "what make demo shows",
        "web": "the editor in a browser",
    },
    {
        "training": "losses, schedule, loop, runs",
        "evaluation": "protocol, tables, figures",
        "editing": "scenes, films, edit lists",
    },
    {"data": "clips, stores, loaders"},
    {
        "models": "encoders, slots, decoders",
        "solids": "the embedded dataset",
        "instances": "masks from frames alone",
    },
    {
        "media": "pictures, videos",
        "metrics": "of masks, of colours",
        "ops": "the convolution",
        "reporting": "tables as text",
    },
    {
        "geometry": "grids, slot frames",
        "edit_maps": "what a perfect edit gives",
        "drawing": "masks, sheets",
    },
    {"config": "typed sections, YAML"},
    {"files": "written whole or not at all"},
    {"errors": "one sentence each"},
)
WIDTH, ROW, GAP, MARGIN = 940, 50, 8, 14
PAPER, BOX, EDGE, INK, GREY = (
    "white",
    (232, 240, 250),
    (41, 105, 176),
    (40, 40, 40),
    (105, 105, 105),
)


def draw_layers() -> Image.Image:
    height = 2 * MARGIN + len(LAYERS) * (ROW + GAP) - GAP
    scale = 2  # for sharp screens
    image = Image.new("RGB", (scale * WIDTH, scale * height), PAPER)
    brush = ImageDraw.Draw(image)
    name_font, text_font = (ImageFont.load_default(scale * size) for size in (16, 13))
    for row, parts in enumerate(LAYERS):
        top = MARGIN + row * (ROW + GAP)
        width = (WIDTH - 2 * MARGIN - (len(parts) - 1) * GAP) / len(parts)
        for column, (name, text) in enumerate(parts.items()):
            left = MARGIN + column * (width + GAP)
            box = [scale * value for value in (left, top, left + width, top + ROW)]
            brush.rounded_rectangle(box, 6 * scale, BOX, EDGE, scale)
            middle = scale * (left + width / 2)
            brush.text((middle, scale * (top + 16)), name, INK, name_font, anchor="mm")
            brush.text((middle, scale * (top + 36)), text, GREY, text_font, anchor="mm")
    return image


if __name__ == "__main__":
    texts = PngInfo()
    texts.add_text("layers", json.dumps(LAYERS))  # so that a test sees whether the picture is old
    draw_layers().save(IMAGE, optimize=True, pnginfo=texts)
    print(f"wrote {IMAGE}")
