"""The curriculum as data: what a training step contains, and how strongly (paper, Sec. 3.5).

`Curriculum.plan` answers for any step without having seen the ones before it, so that a run can
resume anywhere. What decides which computations a step contains is its `Mode`; the rest of a
`Plan` are numbers.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from geoco.config import Config, ModelConfig
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
    recenter: float  # the weight of pulling positions to their masks' centers
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
    muon_learning_rate: float  # zero without Muon
    temporal_learning_rate: float
    selector_learning_rate: float
    reference_scale: float
    gate_share: float  # of the ramp of the term `gate`: how far a gate of slots has closed
    selector_cap: float
    phase: str


class Curriculum:
    """The schedule of a configuration, shortened to its budget.

    `cold_scale` is where the reference scale starts: that of uniform attention on the token grid.
    """

    def __init__(self, config: Config, cold_scale: float) -> None:
        # Other kinds of models have neither of these parts, nor steered layers.
        model = config.model if isinstance(config.model, ModelConfig) else None
        self._selector = model.selector if model and model.selector.enabled else None
        self._decoder = model.decoder if model else None
        self._train = _shorten(config.train)
        self._cold_scale = cold_scale
        self._frames = config.data.window.length
        self._temporal: PhaseConfig | None = None
        if model and model.temporal.enabled:
            self._temporal = next((p for p in self._train.phases if p.temporal), None)

    @property
    def steps(self) -> int:
        return self._train.steps

    def plan(self, step: int) -> Plan:
        """What a step contains."""
        train, selector, temporal = self._train, self._train.selector, self._temporal
        rate, share = train.learning_rate, self._cosine_share(step, 0, train.warmup)
        temporal_rate = selector_rate = cap = 0.0
        if temporal is not None:
            temporal_share = self._cosine_share(step, temporal.start, train.temporal.warmup)
            temporal_rate = train.temporal.factor * rate * temporal_share
        if self._selector is not None:
            # Its optimizer is its own, and knows no decay.
            selector_rate = selector.learning_rate * _ramp_share(
                step, selector.start, selector.warmup
            )
            cap = self._selector.cap * _ramp_share(step, selector.apply, selector.ramp)
        final = self._cold_scale if self._decoder is None else self._decoder.reference_scale
        reference, gate = train.reference, self._active_phase("gate", step)
        return Plan(
            mode=self._mode(step),
            weights={term: self._weight(term, step) for term in TERMS},
            learning_rate=rate * share,
            muon_learning_rate=(train.muon_learning_rate or 0.0) * share,
            temporal_learning_rate=temporal_rate,
            selector_learning_rate=selector_rate,
            reference_scale=continue_reference_scale(
                step, self._cold_scale, final, reference.start, reference.length
            ),
            gate_share=0.0 if gate is None else _ramp_share(step, gate.start, gate.ramp),
            selector_cap=cap,
            phase=self._phases_until(step)[-1].name,
        )

    def mode_starts(self) -> list[int]:
        """The first steps of new modes, the very first included."""
        candidates = {start for start, _ in self._mode_candidates() if start < self.steps}
        starts: list[int] = []
        for step in sorted(candidates):
            if not starts or self._mode(step) != self._mode(starts[-1]):
                starts.append(step)
        return starts

    def milestones(self) -> list[tuple[int, str]]:
        """What begins and what is complete at which step: the run's table of contents."""
        train = self._train
        milestones = list(self._mode_candidates())
        for phase in train.phases:
            rising = [
                term for term in phase.terms if self._active_phase(term, phase.start) is phase
            ]
            if phase.ramp and rising:
                milestones.append((phase.start + phase.ramp, f"{' and '.join(rising)} in full"))
        if self._decoder is not None and self._decoder.design == "steered":
            milestones.append((train.reference.start, "reference scale moves"))
            milestones.append(
                (train.reference.start + train.reference.length, "reference scale final")
            )
        if train.warmup:
            milestones.append((train.warmup, "learning rate decays"))
        if self._temporal is not None and train.temporal.warmup:
            end = self._temporal.start + train.temporal.warmup
            milestones.append((end, "temporal learning rate decays"))
        if self._selector is not None and train.selector.ramp:
            milestones.append(
                (train.selector.apply + train.selector.ramp, "selector's cap in full")
            )
        return sorted((m for m in milestones if m[0] < self.steps), key=lambda m: m[0])

    def _mode(self, step: int) -> Mode:
        phases = self._phases_until(step)
        selector = self._train.selector

        def last(name: str, otherwise: Any) -> Any:
            values = [getattr(phase, name) for phase in phases]
            return next((value for value in reversed(values) if value is not None), otherwise)

        return Mode(
            terms=frozenset(term for term in TERMS if self._weight(term, step) > 0),
            center=last("center", "coordinate"),
            sharpness=last("sharpness", SHARPNESS),
            recenter=last("recenter", 0.0),
            frames=last("frames", self._frames),
            temporal=self._temporal is not None and step >= self._temporal.start,
            selector_trains=self._selector is not None and step >= selector.start,
            selector_applies=self._selector is not None and step >= selector.apply,
        )

    def _mode_candidates(self) -> Iterable[tuple[int, str]]:
        """Every step at which the mode may change."""
        yield from ((phase.start, phase.name) for phase in self._train.phases)
        if self._selector is not None:
            yield self._train.selector.start, "selector trains"
            yield self._train.selector.apply, "selector applies"

    def _phases_until(self, step: int) -> list[PhaseConfig]:
        return [phase for phase in self._train.phases if phase.start <= step]

    def _active_phase(self, term: Term, step: int) -> PhaseConfig | None:
        """The phase that switched a term on, if it is on at a step."""
        since = None
        for phase in self._phases_until(step) if getattr(self._train.weights, term) else ():
            if term in phase.without:
                since = None
            elif term in phase.terms:
                since = since or phase
        return since

    def _weight(self, term: Term, step: int) -> float:
        phase = self._active_phase(term, step)
        if phase is None:
            return 0.0
        full: float = getattr(self._train.weights, term)
        return full * _ramp_share(step, phase.start, phase.ramp)

    def _cosine_share(self, step: int, start: int, warmup: int) -> float:
        """A share that rises linearly, then falls to zero at the end as a cosine does."""
        if not start <= step < self.steps:
            return 0.0
        if step < start + warmup:
            return _ramp_share(step, start, warmup)
        gone = (step - start - warmup) / (self.steps - start - warmup)
        return 0.5 * (1 + math.cos(math.pi * gone))


def _ramp_share(step: int, start: int, ramp: int) -> float:
    """A share: nothing before `start`, everything from the last step of the ramp on."""
    if step < start:
        return 0.0
    return min(1.0, (step - start + 1) / ramp) if ramp else 1.0


def _shorten(train: TrainConfig) -> TrainConfig:
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
