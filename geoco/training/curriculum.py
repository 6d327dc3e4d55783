"""The curriculum as data: what a training step contains, and how strongly (paper, Sec. 3.5).

`Curriculum.plan` answers for any step without having seen the ones before it, so that a run can
resume anywhere. What decides which computations a step contains is its `Mode`; the rest of a
`Plan` are numbers.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from geoco.config import Config
from geoco.config.training import CenterPenalty, PhaseConfig, Term, TrainConfig
from geoco.models.compositing import SHARPNESS
from geoco.models.decoders import continue_reference_scale

TERMS: tuple[Term, ...] = get_args(Term)


@dataclass(frozen=True)
class Mode:
    """Which computations a step contains: steps of one mode can share one recorded graph."""

    terms: frozenset[Term]  # those of some weight
    center: CenterPenalty
    sharpness: float  # gamma of training supports
    recenter: float  # the weight of positions' way to their masks' centers
    frames: int  # of a clip
    temporal: bool  # whether the temporal initializer is on
    selector_trains: bool
    selector_applies: bool


@dataclass(frozen=True)
class Plan:
    """One step of training."""

    mode: Mode
    weights: dict[Term, float]  # of all terms, zero where inactive
    learning_rate: float
    temporal_learning_rate: float
    selector_learning_rate: float
    reference_scale: float
    selector_cap: float
    phase: str


class Curriculum:
    """The schedule of a configuration, shortened to its budget.

    `cold_scale` is where the reference scale starts: that of uniform attention on the token grid.
    """

    def __init__(self, config: Config, cold_scale: float) -> None:
        self._model = config.model
        self._train = _shortened(config.train)
        self._cold_scale = cold_scale
        self._frames = config.data.window.length
        self._temporal: PhaseConfig | None = None
        if config.model.temporal.enabled:
            self._temporal = next((p for p in self._train.phases if p.temporal), None)

    @property
    def steps(self) -> int:
        return self._train.steps

    def plan(self, step: int) -> Plan:
        """What a step contains."""
        train, selector, temporal = self._train, self._train.selector, self._temporal
        rate = train.learning_rate
        temporal_rate = selector_rate = cap = 0.0
        if temporal is not None:
            share = self._decaying(step, temporal.start, train.temporal.warmup)
            temporal_rate = train.temporal.factor * rate * share
        if self._model.selector.enabled:
            # Its optimizer is its own, and knows no decay.
            selector_rate = selector.learning_rate * _risen(step, selector.start, selector.warmup)
            cap = self._model.selector.cap * _risen(step, selector.apply, selector.ramp)
        final, reference = self._model.decoder.reference_scale, train.reference
        return Plan(
            mode=self._mode(step),
            weights={term: self._weight(term, step) for term in TERMS},
            learning_rate=rate * self._decaying(step, 0, train.warmup),
            temporal_learning_rate=temporal_rate,
            selector_learning_rate=selector_rate,
            reference_scale=continue_reference_scale(
                step, self._cold_scale, final, reference.start, reference.length
            ),
            selector_cap=cap,
            phase=self._reached(step)[-1].name,
        )

    def changes(self) -> list[int]:
        """The first steps of new modes, the very first included."""
        starts = {start for start, _ in self._beginnings() if start < self.steps}
        found: list[int] = []
        for step in sorted(starts):
            if not found or self._mode(step) != self._mode(found[-1]):
                found.append(step)
        return found

    def milestones(self) -> list[tuple[int, str]]:
        """What begins and what is complete at which step: the run's table of contents."""
        train, model = self._train, self._model
        found = list(self._beginnings())
        for phase in train.phases:
            rising = [term for term in phase.terms if self._since(term, phase.start) is phase]
            if phase.ramp and rising:
                found.append((phase.start + phase.ramp, f"{' and '.join(rising)} in full"))
        if model.decoder.design == "steered":
            found.append((train.reference.start, "reference scale moves"))
            found.append((train.reference.start + train.reference.length, "reference scale final"))
        if train.warmup:
            found.append((train.warmup, "learning rate decays"))
        if self._temporal is not None and train.temporal.warmup:
            end = self._temporal.start + train.temporal.warmup
            found.append((end, "temporal learning rate decays"))
        if model.selector.enabled and train.selector.ramp:
            found.append((train.selector.apply + train.selector.ramp, "selector's cap in full"))
        return sorted((m for m in found if m[0] < self.steps), key=lambda m: m[0])

    def _mode(self, step: int) -> Mode:
        reached = self._reached(step)
        selector = self._train.selector

        def last(name: str, otherwise: Any) -> Any:
            said = [getattr(phase, name) for phase in reached]
            return next((value for value in reversed(said) if value is not None), otherwise)

        return Mode(
            terms=frozenset(term for term in TERMS if self._weight(term, step) > 0),
            center=last("center", "coordinate"),
            sharpness=last("sharpness", SHARPNESS),
            recenter=last("recenter", 0.0),
            frames=last("frames", self._frames),
            temporal=self._temporal is not None and step >= self._temporal.start,
            selector_trains=self._model.selector.enabled and step >= selector.start,
            selector_applies=self._model.selector.enabled and step >= selector.apply,
        )

    def _beginnings(self) -> Iterable[tuple[int, str]]:
        """Every step at which the mode may change."""
        yield from ((phase.start, phase.name) for phase in self._train.phases)
        if self._model.selector.enabled:
            yield self._train.selector.start, "selector trains"
            yield self._train.selector.apply, "selector applies"

    def _reached(self, step: int) -> list[PhaseConfig]:
        return [phase for phase in self._train.phases if phase.start <= step]

    def _since(self, term: Term, step: int) -> PhaseConfig | None:
        """The phase that switched a term on, if it is on at a step."""
        since = None
        for phase in self._reached(step) if getattr(self._train.weights, term) else ():
            if term in phase.without:
                since = None
            elif term in phase.terms:
                since = since or phase
        return since

    def _weight(self, term: Term, step: int) -> float:
        phase = self._since(term, step)
        if phase is None:
            return 0.0
        full: float = getattr(self._train.weights, term)
        return full * _risen(step, phase.start, phase.ramp)

    def _decaying(self, step: int, start: int, warmup: int) -> float:
        """A share that rises linearly, then falls to zero at the end as a cosine does."""
        if not start <= step < self.steps:
            return 0.0
        if step < start + warmup:
            return _risen(step, start, warmup)
        gone = (step - start - warmup) / (self.steps - start - warmup)
        return 0.5 * (1 + math.cos(math.pi * gone))


def _risen(step: int, start: int, ramp: int) -> float:
    """A share: nothing before `start`, everything from the last step of the ramp on."""
    if step < start:
        return 0.0
    return min(1.0, (step - start + 1) / ramp) if ramp else 1.0


def _shortened(train: TrainConfig) -> TrainConfig:
    """The same schedule with every number of steps multiplied by the budget.

    What has a length keeps one of at least a step; rounding keeps the order of what has a start.
    """

    def at(start: int) -> int:
        return round(start * train.budget)

    def long(length: int) -> int:
        return max(1, round(length * train.budget)) if length else 0

    selector, temporal, reference = train.selector, train.temporal, train.reference
    return train.model_copy(
        update={
            "budget": 1.0,
            "steps": long(train.steps),
            "warmup": long(train.warmup),
            "phases": tuple(
                phase.model_copy(update={"start": at(phase.start), "ramp": long(phase.ramp)})
                for phase in train.phases
            ),
            "reference": reference.model_copy(
                update={"start": at(reference.start), "length": long(reference.length)}
            ),
            "selector": selector.model_copy(
                update={
                    "start": at(selector.start),
                    "apply": at(selector.apply),
                    "ramp": long(selector.ramp),
                    "warmup": long(selector.warmup),
                }
            ),
            "temporal": temporal.model_copy(update={"warmup": long(temporal.warmup)}),
        }
    )


# -- the picture -----------------------------------------------------------------------------------

INK, RULE, SHADE = "#303438", "#c9ced6", "#f0f2f6"
WIDTH, LINE, LETTER = 10.0, 0.19, 0.075  # inches: the figure, a line of text, a letter of a phase

Band = tuple[int, int, str]  # a phase's first step, the next one's, its name
Panel = dict[str, list[float]]  # values by name


def picture(curriculum: Curriculum, path: Path) -> None:
    """Draw weights, learning rates, reference scale and cap over the phases, as PNG.

    What a run does not have is not drawn.
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from geoco import drawing

    steps = _drawn_steps(curriculum)
    plans = [curriculum.plan(step) for step in steps]
    bands, panels = _bands(steps, plans), _panels(plans)
    drawn = {title: panel for title, panel in panels.items() if any(map(any, panel.values()))}
    heights = [
        3.2 if title == "weight" else 2.0 if len(drawn[title]) > 1 else 1.1 for title in drawn
    ]
    figure = Figure(figsize=(WIDTH, sum(heights) + 1), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    rows = figure.subplots(len(drawn), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    named = [*TERMS, *panels["learning rate"], "recenter"]
    colors = dict(zip(named, (drawing.COLORS / 255).tolist(), strict=False))
    for axes, height, (title, panel) in zip(rows, heights, drawn.items(), strict=True):
        lines = {name: values for name, values in panel.items() if any(values)}
        for name, values in lines.items():
            style = "--" if name == "recenter" else "-"  # may lie on a term's line
            axes.plot(steps, _from_its_start(values), style, color=colors.get(name, INK), lw=2)
        _set_range(axes, title, [max(values) for values in lines.values()])
        _shade(axes, bands)
        _name_lines(axes, steps, lines, colors, LINE / height)
    _name_phases(rows[0], bands)
    rows[-1].set_xlabel("step", color=INK)
    rows[-1].xaxis.set_major_formatter("{x:,.0f}")
    figure.align_ylabels(list(rows))
    canvas.draw()
    drawing.save_pictures(path, [np.asarray(canvas.buffer_rgba())[..., :3].copy()])


def _drawn_steps(curriculum: Curriculum) -> list[int]:
    """About a thousand steps, and both sides of every corner."""
    corners = [step for step, _ in curriculum.milestones()]
    even = range(0, curriculum.steps, max(1, curriculum.steps // 1000))
    beside = {corner - 1 for corner in corners if corner > 0}
    return sorted({*even, *corners, *beside, curriculum.steps - 1})


def _bands(steps: Sequence[int], plans: Sequence[Plan]) -> list[Band]:
    runs = itertools.groupby(zip(steps, plans, strict=True), key=lambda pair: pair[1].phase)
    firsts = [(next(run)[0], name) for name, run in runs]
    ends = [*(step for step, _ in firsts[1:]), steps[-1] + 1]
    return [(start, end, name) for (start, name), end in zip(firsts, ends, strict=True)]


def _panels(plans: Sequence[Plan]) -> dict[str, Panel]:
    return {
        "weight": {
            **{term: [plan.weights[term] for plan in plans] for term in TERMS},
            "recenter": [plan.mode.recenter for plan in plans],
        },
        "learning rate": {
            "selector": [plan.selector_learning_rate for plan in plans],
            "model": [plan.learning_rate for plan in plans],
            "temporal": [plan.temporal_learning_rate for plan in plans],
        },
        "reference\nscale": {"$s_{ref}$": [plan.reference_scale for plan in plans]},
        "selector's\ncap": {"cap": [plan.selector_cap for plan in plans]},
    }


def _from_its_start(values: Sequence[float]) -> list[float]:
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


def _shade(axes: Any, bands: Sequence[Band]) -> None:
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
        shown = axes.transData.transform((0, end))
        lowest = max(lowest + gap, axes.transAxes.inverted().transform(shown)[1])
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
