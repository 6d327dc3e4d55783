"""How a gallery is laid out: pictures in rows under headings, with outlines along pixel borders.

Needs matplotlib, which is imported when something is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from geoco import drawing

DPI = 160
SIDE, GAP, LINE, LABEL = 192, 8, 30, 110  # dots: a picture, between two, a text line, row labels
LETTER = 8  # points

Group = tuple[str, Sequence[str]]  # a heading, and one for each of its columns


@dataclass(frozen=True)
class Outline:
    """What it runs around, and its colour."""

    mask: Bool[np.ndarray, "height width"]
    color: str


@dataclass(frozen=True)
class Panel:
    """One picture of a gallery, with a line of text above it."""

    picture: drawing.Picture
    outlines: tuple[Outline, ...] = ()
    title: str = ""


Row = Sequence[Panel | None]


def draw_gallery(
    groups: Sequence[Group], labels: Sequence[str], rows: Sequence[Row], colors: dict[str, str]
) -> drawing.Picture:
    """Groups of columns side by side; `colors` says in the last line what the outlines are."""
    height, width = next(panel for row in rows for panel in row if panel).picture.shape[:2]
    zoom = choose_zoom(width)
    tall, wide = zoom * height, zoom * width
    lefts, right = [], LABEL if labels else 0
    for _, heads in groups:
        lefts += [right + 2 * GAP + place * (wide + GAP) for place in range(len(heads))]
        right = lefts[-1] + wide
    above = LINE if any(panel and panel.title for row in rows for panel in row) else GAP
    tops = [2 * LINE + above + number * (tall + above) for number in range(len(rows))]
    figure, axes = _start_figure(right + 2 * GAP, tops[-1] + tall + 2 * LINE)
    for row, top in zip(rows, tops, strict=True):
        for panel, left in zip(row, lefts, strict=True):
            if panel is not None:
                _put_panel(axes, panel, left, top, wide)
    for label, top in zip(labels, tops, strict=False):
        axes.text(2 * GAP, top + tall / 2, label, fontsize=LETTER, va="center")
    _write_headings(axes, groups, lefts, wide)
    _draw_legend(axes, colors, lefts[0], tops[-1] + tall + LINE)
    return render_figure(figure)


def choose_zoom(width: int) -> int:
    """How many dots a pixel gets: a whole number, so that all pixels look alike."""
    return max(1, round(SIDE / width))


def trace_boundary(mask: Bool[np.ndarray, "height width"]) -> Float64[np.ndarray, "segment 2 2"]:
    """Where a mask ends, as segments (x, y) of a pixel's length from the picture's corner."""
    padded = np.pad(mask, 1)
    y, x = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])
    across = np.stack((np.stack((x, y), 1), np.stack((x + 1, y), 1)), 1)
    y, x = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])
    down = np.stack((np.stack((x, y), 1), np.stack((x, y + 1), 1)), 1)
    return np.concatenate((across, down)).astype(np.float64)


def render_figure(figure: Any) -> drawing.Picture:
    """A figure of matplotlib's as pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _start_figure(wide: int, tall: int) -> tuple[Any, Any]:
    """An empty figure whose coordinates are its dots, from the upper left corner."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(wide / DPI, tall / DPI), dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, wide), ylim=(tall, 0), autoscale_on=False)
    axes.axis("off")
    return figure, axes


def _put_panel(axes: Any, panel: Panel, left: int, top: int, wide: int) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    large = drawing.magnify(panel.picture, wide // panel.picture.shape[1])
    place = (left, left + wide, top + large.shape[0], top)
    axes.imshow(large, extent=place, aspect="auto", interpolation="nearest")
    axes.text(left, top - 6, panel.title, fontsize=LETTER, va="bottom")
    frame = Rectangle((left, top), wide, large.shape[0], transform=axes.transData)
    for outline in panel.outlines:
        dots = wide / outline.mask.shape[1]
        lines = list(dots * trace_boundary(outline.mask) + (left, top))
        for ink, weight in (("black", 1.6), (outline.color, 0.9)):
            drawn = LineCollection(lines, colors=ink, linewidths=weight)
            axes.add_collection(drawn)
            drawn.set_clip_path(frame)


def _write_headings(axes: Any, groups: Sequence[Group], lefts: Sequence[int], wide: int) -> None:
    column = 0
    for title, heads in groups:
        axes.text(lefts[column], LINE - 6, title, fontsize=LETTER, weight="bold", va="bottom")
        for head in heads:
            middle = lefts[column] + wide / 2
            axes.text(middle, 2 * LINE - 6, head, fontsize=LETTER, ha="center", va="bottom")
            column += 1


def _draw_legend(axes: Any, colors: dict[str, str], left: int, middle: int) -> None:
    for color, name in colors.items():
        axes.plot(left + 8, middle, marker="s", color=color, markeredgecolor="black", markersize=6)
        axes.text(left + 24, middle, name, fontsize=LETTER, va="center")
        left += 60 + 10 * len(name)
