"""Figures of an evaluation: what the tables average, as curves and clouds, and edits to look at.

The numbers behind a figure are functions of their own. Every figure is a picture in memory until
`write_figures` writes it. Needs matplotlib, which is imported when something is drawn.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64

from geoco import drawing, metrics
from geoco.evaluation import galleries
from geoco.evaluation.commands import FACTORS, IDENTITY
from geoco.evaluation.editing import EditRecords, Records
from geoco.evaluation.factual import calibrate_scale
from geoco.evaluation.gallery_layout import DPI, render_figure
from geoco.evaluation.interfaces import SlotModel
from geoco.evaluation.windows import Factual

FOLDER = "figures"
LARGEST = 0.98  # share of the defined errors that a figure has room for

Measure = Literal["radius", "coverage"]
# What is measured, the slope that an obedient model has, and names for axis and slope.
MEASURES: tuple[tuple[Measure, int, str, str], ...] = (
    ("radius", 1, "radius $r(k)\\,/\\,r(1)$", "\\beta_r"),
    ("coverage", 2, "coverage $A(k)\\,/\\,A(1)$", "\\beta_A"),
)


@dataclass(frozen=True)
class Response:
    """Quartiles over curves of a measure at each factor, as a multiple of that at factor 1."""

    low: Float64[np.ndarray, " factor"]
    median: Float64[np.ndarray, " factor"]
    high: Float64[np.ndarray, " factor"]
    slope: float  # the mean over curves, as in the tables
    curves: int


def write_figures(
    model: SlotModel, factual: Factual, records: EditRecords, folder: Path, batch: int
) -> list[Path]:
    """Draw everything that an evaluation has to show, as PNG in `folder`/figures."""
    size = factual.masks.shape[-1]
    pictures = {
        "response": draw_response({"": records}, interior=True),
        "response-all": draw_response({"": records}, interior=False),
        "errors": draw_errors({"": records}, size, interior=True),
        "errors-all": draw_errors({"": records}, size, interior=False),
        "drift": draw_drift({"": records}, size),
        "strips": galleries.draw_strips(model, factual, batch),
        "transplants": galleries.draw_transplant_grid(model, factual, batch),
        "failures": galleries.draw_failures(model, factual, records, batch),
    }
    if factual.explicit and bool(factual.valid.any()):
        pictures["calibration"] = draw_calibration(factual)
    paths = []
    for name, picture in pictures.items():
        if picture is not None:
            paths.append(folder / FOLDER / f"{name}.png")
            drawing.save_pictures(paths[-1], [picture])
    return paths


def measure_response(scale: Records, measure: Measure, interior: bool) -> Response:
    """Of the curves that the slopes of the tables are of: positive at every factor."""
    values = getattr(scale, measure).reshape(-1, len(FACTORS))
    if interior:
        values = values[scale.interior.reshape(-1, len(FACTORS)).all(1)]
    values = values[(values > 0).all(1)]
    if len(values) == 0:
        nothing = np.full(len(FACTORS), math.nan)
        return Response(nothing, nothing, nothing, math.nan, 0)
    low, median, high = np.percentile(values / values[:, [IDENTITY]], (25, 50, 75), axis=0)
    slopes = metrics.response_slope(torch.tensor(FACTORS), torch.from_numpy(values))
    return Response(low, median, high, float(slopes.mean()), len(values))


def draw_response(models: Mapping[str, EditRecords], interior: bool) -> drawing.Picture:
    """Median extent against commanded factor with its quartiles, and the ideal slopes."""
    figure, panels = _start_figure(2)
    for axes, (measure, ideal, title, symbol) in zip(panels, MEASURES, strict=True):
        dense = np.linspace(FACTORS[0], FACTORS[-1], 50)
        axes.plot(dense, dense**ideal, color="black", linestyle="--", label=f"ideal slope {ideal}")
        for color, (name, records) in zip(_list_colors(), models.items(), strict=False):
            response = measure_response(records.scale, measure, interior)
            axes.fill_between(
                FACTORS, response.low, response.high, color=color, alpha=0.2, linewidth=0
            )
            label = f"{_format_prefix(name)}{_format_slope(symbol, response)}"
            axes.plot(FACTORS, response.median, color=color, marker="o", label=label)
        axes.set(xscale="log", yscale="log", xlabel="commanded factor $k$", ylabel=title)
        heights = np.array(FACTORS) ** ideal
        for axis, ticks in ((axes.xaxis, np.array(FACTORS)), (axes.yaxis, heights)):
            axis.set_ticks(ticks, [f"{round(tick, 2):g}" for tick in ticks])
            axis.set_ticks([], minor=True)
        axes.legend(frameon=False, loc="upper left")
    figure.suptitle(f"Response to scale: {_format_scope(interior)}, median and quartiles")
    return render_figure(figure)


def accumulate(
    errors: Float64[np.ndarray, " edit"],
) -> tuple[Float64[np.ndarray, " defined"], Float64[np.ndarray, " defined"]]:
    """Sorted errors, and the share of all edits, the undefined ones too, that are no worse."""
    defined = np.sort(errors[~np.isnan(errors)])
    return defined, np.arange(1, len(defined) + 1) / max(len(errors), 1)


def draw_errors(models: Mapping[str, EditRecords], size: int, interior: bool) -> drawing.Picture:
    """How many edits end how far from where they should: moves, and transplants that should stay.

    A curve ends below one where outputs were empty and no error is defined.
    """
    figure, panels = _start_figure(2)
    # What a pixel is in the units of the tables: of the diagonal, and of the grid.
    kinds = (
        ("position", "translation error $E_{\\Delta p}$ (of the diagonal)", math.sqrt(2) * size),
        ("transplant", "transplant drift $D_{\\mathrm{app}}$ (grid L2)", (size - 1) / 2),
    )
    for axes, (kind, title, pixels) in zip(panels, kinds, strict=True):
        most = 1 / pixels
        for color, (name, records) in zip(_list_colors(), models.items(), strict=False):
            edits: Records = getattr(records, kind)
            errors = edits.error[edits.interior] if interior else edits.error
            values, share = accumulate(errors)
            if len(values) == 0:
                axes.plot(
                    [],
                    [],
                    color=color,
                    label=f"{_format_prefix(name)}none of {len(errors):,} defined",
                )
                continue
            most = max(most, float(np.quantile(values, LARGEST)))
            share_defined = f"{len(values):,}/{len(errors):,} defined"
            label = f"{_format_prefix(name)}mean {values.mean():.4f}, {share_defined}"
            # From nothing to the right edge, wherever that will be.
            ends = (
                np.concatenate(([0.0], values, [1e9])),
                np.concatenate(([0.0], share, share[-1:])),
            )
            axes.step(*ends, where="post", color=color, label=label)
        axes.set(xlabel=title, ylabel="share of edits", xlim=(0, most), ylim=(0, 1.02))
        above = axes.secondary_xaxis(
            "top", functions=(lambda x, p=pixels: x * p, lambda x, p=pixels: x / p)
        )
        above.set_xlabel("pixels")
        axes.legend(frameon=False, loc="lower right")
    figure.suptitle(f"Where edits end: {_format_scope(interior)}")
    return render_figure(figure)


def draw_drift(models: Mapping[str, EditRecords], size: int) -> drawing.Picture:
    """Where recipients' centers end up when they take another appearance: none should move."""
    figure, panels = _start_figure(max(len(models), 1))
    misses_of_models = [_collect_misses(records.transplant, size) for records in models.values()]
    far = [np.quantile(np.abs(misses), LARGEST) for misses in misses_of_models if len(misses)]
    most = 1.1 * max([1.0, *map(float, far)])
    for axes, color, name, misses in zip(
        panels, _list_colors(), models, misses_of_models, strict=False
    ):
        axes.scatter(*misses.T, s=10, color=color, alpha=0.4, linewidth=0)
        for radius in range(1, int(most) + 1):
            axes.add_patch(_draw_circle(radius))
        axes.set(xlim=(-most, most), ylim=(most, -most), aspect="equal")
        axes.set(xlabel="pixels to the right", ylabel="pixels down")
        mean = np.hypot(*misses.T).mean() if len(misses) else math.nan
        axes.set_title(
            f"{_format_prefix(name)}mean {mean:.2f} px, N = {len(misses):,}", fontsize=10
        )
    figure.suptitle("Transplant drift: interior objects")
    return render_figure(figure)


def _collect_misses(records: Records, size: int) -> Float64[np.ndarray, "edit 2"]:
    """Defined interior misses in pixels."""
    misses = np.stack((records.miss_x, records.miss_y), 1)[records.interior] * (size - 1) / 2
    return np.asarray(misses[~np.isnan(misses).any(1)])


def _draw_circle(radius: float) -> Any:
    from matplotlib.patches import Circle

    return Circle((0, 0), radius, fill=False, color="black", alpha=0.25, linewidth=0.7)


def draw_calibration(factual: Factual) -> drawing.Picture:
    """Inferred scale against decoded radius of every valid object, and the line of slope one."""
    from matplotlib.ticker import LogLocator, NullLocator

    scale = factual.slots.scale[factual.valid].double().numpy()
    radius = factual.moments.radius[factual.valid].numpy()
    fit = calibrate_scale(factual)
    figure, (axes,) = _start_figure(1)
    axes.scatter(scale, radius, s=12, color=_list_colors()[1], alpha=0.4, linewidth=0)
    ratio = float(np.exp(np.log(radius / scale).mean()))
    ends = np.array([scale.min() / 1.2, scale.max() * 1.2])
    label = f"$r = {ratio:.3f}\\,s$"
    axes.plot(ends, ratio * ends, color="black", linestyle="--", label=label)
    axes.legend(frameon=False, loc="upper left")
    axes.set(xscale="log", yscale="log", xlabel="inferred scale $s$", ylabel="decoded radius $r$")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    scores = (
        f"linear $R^2$ ${fit.linear:.3f}$, unit-slope log $R^2$ ${fit.unit_slope_log:.3f}$\n"
        f"std of $\\log(r/s)$ {fit.log_ratio_deviation:.3f}, {fit.observations:,} objects"
    )
    axes.set_title(scores, fontsize=10)
    return render_figure(figure)


def _start_figure(panels: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1 + 4.5 * panels, 4.2), dpi=DPI, layout="constrained")
    row = figure.subplots(1, panels, squeeze=False)[0]
    for axes in row:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, row


def _list_colors() -> list[tuple[float, ...]]:
    return [tuple(color) for color in (drawing.COLORS / 255).tolist()]


def _format_prefix(name: str) -> str:
    return f"{name}: " if name else ""


def _format_slope(symbol: str, response: Response) -> str:
    if response.curves == 0:
        return "no defined curve"
    return f"${symbol} = {response.slope:.3f}$, N = {response.curves:,}"


def _format_scope(interior: bool) -> str:
    return "interior objects" if interior else "all valid objects"
