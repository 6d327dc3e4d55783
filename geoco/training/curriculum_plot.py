"""The picture of a curriculum: weights, learning rates, reference scale and cap over its phases."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geoco import drawing
from geoco.training.curriculum import TERMS, Curriculum, Plan

INK, RULE, SHADE = "#303438", "#c9ced6", "#f0f2f6"
WIDTH, LINE, LETTER = 10.0, 0.19, 0.075  # inches: the figure, a line of text, a letter of a phase

Band = tuple[int, int, str]  # a phase's first step, the next one's, its name
Panel = dict[str, list[float]]  # values by name
# Ten names for the ten colours; what has the colour of another is never in one panel with it.
COLORED = ("rec", "ov", "pos", "geo", "gate", "tail", "selector", "model", "temporal", "recenter")
ALSO_COLORED = {"own": "temporal", "Muon": "rec"}


def draw_curriculum(curriculum: Curriculum, path: Path) -> None:
    """Draw weights, learning rates, reference scale and cap over the phases, as PNG.

    What a run does not have is not drawn.
    """
    # Here, since importing it takes a while.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    steps = _choose_steps(curriculum)
    plans = [curriculum.plan(step) for step in steps]
    bands, panels = _phase_bands(steps, plans), _panel_values(plans)
    shown = {title: panel for title, panel in panels.items() if any(map(any, panel.values()))}
    heights = [
        3.2 if title == "weight" else 2.0 if len(shown[title]) > 1 else 1.1 for title in shown
    ]
    figure = Figure(figsize=(WIDTH, sum(heights) + 1), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    rows = figure.subplots(len(shown), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    colors = dict(zip(COLORED, (drawing.COLORS / 255).tolist(), strict=True))
    colors |= {name: colors[like] for name, like in ALSO_COLORED.items()}
    for axes, height, (title, panel) in zip(rows, heights, shown.items(), strict=True):
        lines = {name: values for name, values in panel.items() if any(values)}
        for name, values in lines.items():
            style = "--" if name == "recenter" else "-"  # may lie on a term's line
            axes.plot(steps, _hide_leading_zeros(values), style, color=colors.get(name, INK), lw=2)
        _set_range(axes, title, [max(values) for values in lines.values()])
        _shade_phases(axes, bands)
        _name_lines(axes, steps, lines, colors, LINE / height)
    _name_phases(rows[0], bands)
    rows[-1].set_xlabel("step", color=INK)
    rows[-1].xaxis.set_major_formatter("{x:,.0f}")
    figure.align_ylabels(list(rows))
    canvas.draw()
    drawing.save_pictures(path, [np.asarray(canvas.buffer_rgba())[..., :3].copy()])


def _choose_steps(curriculum: Curriculum) -> list[int]:
    """About a thousand steps, and both sides of every corner."""
    corners = [step for step, _ in curriculum.milestones()]
    even = range(0, curriculum.steps, max(1, curriculum.steps // 1000))
    beside = {corner - 1 for corner in corners if corner > 0}
    return sorted({*even, *corners, *beside, curriculum.steps - 1})


def _phase_bands(steps: Sequence[int], plans: Sequence[Plan]) -> list[Band]:
    runs = itertools.groupby(zip(steps, plans, strict=True), key=lambda pair: pair[1].phase)
    firsts = [(next(run)[0], name) for name, run in runs]
    ends = [*(step for step, _ in firsts[1:]), steps[-1] + 1]
    return [(start, end, name) for (start, name), end in zip(firsts, ends, strict=True)]


def _panel_values(plans: Sequence[Plan]) -> dict[str, Panel]:
    return {
        "weight": {
            **{term: [plan.weights[term] for plan in plans] for term in TERMS},
            "recenter": [plan.mode.recenter for plan in plans],
        },
        "learning rate": {
            "selector": [plan.selector_learning_rate for plan in plans],
            "model": [plan.learning_rate for plan in plans],
            "Muon": [plan.muon_learning_rate for plan in plans],
            "temporal": [plan.temporal_learning_rate for plan in plans],
        },
        "reference\nscale": {"$s_{ref}$": [plan.reference_scale for plan in plans]},
        "selector's\ncap": {"cap": [plan.selector_cap for plan in plans]},
    }


def _hide_leading_zeros(values: Sequence[float]) -> list[float]:
    """Without the zeros before a line begins, save the last: it rises from the floor."""
    first = next(index for index, value in enumerate(values) if value)
    return [math.nan] * (first - 1) + list(values[max(first - 1, 0) :])


def _set_range(axes: Any, title: str, most: Sequence[float]) -> None:
    axes.set_ylabel(title, color=INK)
    if title == "weight":
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylim(min(most) / 20, max(most) * 3)
    else:
        axes.set_ylim(0, 1.25 * max(most))
        axes.yaxis.set_major_formatter("{x:g}")


def _shade_phases(axes: Any, bands: Sequence[Band]) -> None:
    """Every other phase, behind everything."""
    for start, end, _ in bands[1::2]:
        axes.axvspan(start, end, color=SHADE, linewidth=0, zorder=0)
    axes.set_xlim(0, bands[-1][1])
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(RULE)


def _name_lines(
    axes: Any, steps: Sequence[int], lines: Panel, colors: dict[str, Any], gap: float
) -> None:
    """Where a line ends, on the right and apart by `gap`; at its peak if it ends in nothing."""
    lowest = -math.inf
    for name, values in sorted(lines.items(), key=lambda item: item[1][-1]):
        style = {"color": colors.get(name, INK), "weight": "bold", "textcoords": "offset points"}
        peak, end = max(values), values[-1]
        if end < 0.05 * peak:
            axes.annotate(f"{name} {peak:g}", (steps[values.index(peak)], peak), (4, 3), **style)
            continue
        place = axes.transData.transform((0, end))
        lowest = max(lowest + gap, axes.transAxes.inverted().transform(place)[1])
        axes.annotate(
            f"{name} {end:g}", (1, lowest), (6, 0), xycoords="axes fraction", va="center", **style
        )


def _name_phases(axes: Any, bands: Sequence[Band]) -> None:
    """Above the panel, one word to a line, in as many rows as keep names apart."""
    rows: list[float] = []  # where each is free from
    for start, end, name in bands:
        words = name.split()
        middle = (start + end) / 2
        half = max(map(len, words)) * LETTER / WIDTH * bands[-1][1] / 2
        row = next((index for index, free in enumerate(rows) if free <= middle - half), len(rows))
        rows[row : row + 1] = [middle + half]
        axes.annotate(
            "\n".join(words),
            (middle, 1),
            (0, 4 + 28 * row),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            color=INK,
            fontsize=9,
            ha="center",
            va="bottom",
        )
