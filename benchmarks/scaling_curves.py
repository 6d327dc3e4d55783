"""What benchmarks/scaling.py measured: exponents, and one figure of all curves."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from geoco import drawing

Axis = Literal["slots", "frames", "side", "batch"]
# What a size counts: slots, frames and clips one thing, a side its square.
DIMENSIONS: dict[Axis, int] = {"slots": 1, "frames": 1, "side": 2, "batch": 1}
NAMES: dict[Axis, str] = {
    "slots": "slots",
    "frames": "frames",
    "side": "image side (pixels)",
    "batch": "clips in a batch",
}
WORKS = {"training": "training step", "encoding": "encoding", "edit": "edit"}
MEASURES = ("seconds", "memory", "operations")
FITTED = 3  # points of the upper part of a curve

INK, RULE = "#303438", "#c9ced6"
WIDTH, HEIGHT, DPI = 10.0, 5.4, 120


@dataclass(frozen=True)
class Curve:
    """What a kind of work costs at growing sizes."""

    sizes: tuple[int, ...]
    costs: tuple[float, ...]


def read_curve(results: Mapping[str, Any], axis: str, work: str, measure: str) -> Curve | None:
    """Of a kind of work along an axis, if it was measured there."""
    points = results["axes"].get(axis, {})
    costs = {int(size): point[work][measure] for size, point in points.items() if work in point}
    sizes = tuple(sorted(costs))
    return Curve(sizes, tuple(costs[size] for size in sizes)) if len(sizes) > 1 else None


def fit_exponent(curve: Curve, dimensions: int = 1) -> float:
    """The power of size with which cost grows, by least squares in the upper part of the curve."""
    x = [dimensions * math.log(size) for size in curve.sizes[-FITTED:]]
    y = [math.log(cost) for cost in curve.costs[-FITTED:]]
    across, up = sum(x) / len(x), sum(y) / len(y)
    product = sum((a - across) * (b - up) for a, b in zip(x, y, strict=True))
    return product / sum((a - across) ** 2 for a in x)


def list_exponents(results: Mapping[str, Any]) -> list[tuple[Axis, str, str, list[float]]]:
    """Axis, the range of sizes, work, and exponents of time, memory and products."""
    rows = []
    for axis, dimensions in DIMENSIONS.items():
        for work in WORKS:
            curves = [read_curve(results, axis, work, measure) for measure in MEASURES]
            there = [curve for curve in curves if curve is not None]
            if there:
                fitted = there[0].sizes[-FITTED:]
                exponents = [fit_exponent(curve, dimensions) for curve in there]
                rows.append((axis, f"{fitted[0]} to {fitted[-1]}", work, exponents))
    return rows


def draw_growth(results: Mapping[str, Any]) -> drawing.Picture:
    """Time above, memory below, an axis to a column; exponents where curves end."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    rows = figure.subplots(2, len(DIMENSIONS), sharex="col", sharey="row")
    for measure, unit, scale, panels in (
        ("seconds", "seconds", 1.0, rows[0]),
        ("memory", "MiB", 2.0**20, rows[1]),
    ):
        for axis, axes in zip(DIMENSIONS, panels, strict=True):
            _draw_curves(axes, results, axis, measure, scale)
        panels[0].set_ylabel(unit, color=INK)
    for axis, axes in zip(DIMENSIONS, rows[1], strict=True):
        axes.set_xlabel(NAMES[axis], color=INK)
    lines, names = rows[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=3, frameon=False, labelcolor=INK)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _draw_curves(
    axes: Any, results: Mapping[str, Any], axis: Axis, measure: str, scale: float
) -> None:
    """Curves of one panel, and from the start of each what would be linear, dotted."""
    sizes: tuple[int, ...] = ()
    for number, (work, name) in enumerate(WORKS.items()):
        curve = read_curve(results, axis, work, measure)
        if curve is None:
            continue
        sizes, color = curve.sizes, tuple(drawing.COLORS[number] / 255)
        costs = [cost / scale for cost in curve.costs]
        axes.plot(sizes, costs, "o-", color=color, lw=2, ms=4, label=name)
        linear = [costs[0] * (size / sizes[0]) ** DIMENSIONS[axis] for size in sizes]
        axes.plot(sizes, linear, ":", color=color, lw=1)
        power = fit_exponent(curve, DIMENSIONS[axis])
        style = {"color": color, "weight": "bold", "textcoords": "offset points", "va": "center"}
        axes.annotate(f"{power:.2f}", (sizes[-1], costs[-1]), (6, 0), **style)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xticks([], minor=True)
    if sizes:
        axes.set_xlim(sizes[0] / 1.25, sizes[-1] * (sizes[-1] / sizes[0]) ** 0.28)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(RULE)
