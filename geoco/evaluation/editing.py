"""The editing table: commanded position, scale and appearance, on all and on interior objects.

Every edit leaves a record, so that anybody can resample them by source video. Three populations
are kept apart: F1 is over valid edits, center errors over all edits of valid objects,
disappearance over edits whose ideal target has any area. In the interior scope all three are the
valid edits that stay clear of the outermost pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from geoco import metrics
from geoco.evaluation.commands import (
    FACTORS,
    IDENTITY,
    MOVES,
    Commands,
    Eligibility,
    build_moves,
    build_resizes,
    build_transplants,
    compute_targets,
    judge_eligibility,
)
from geoco.evaluation.decode_edits import decode_kinds, takes_commands
from geoco.evaluation.factual import Mean, average_defined
from geoco.evaluation.interfaces import SlotModel
from geoco.evaluation.windows import Factual, Progress
from geoco.metrics import Interval
from geoco.models.compositing import compute_masks

REPLICATES = 10_000
PERCENT = 100.0


@dataclass(frozen=True)
class Records:
    """All edits of one kind; scale edits come five to an object, in the order of the factors."""

    window: Int64[np.ndarray, " edit"]  # index in the dataset
    slot: Int64[np.ndarray, " edit"]
    command: Int64[np.ndarray, " edit"]
    video: Int64[np.ndarray, " edit"]
    donor_video: Int64[np.ndarray, " edit"]  # the recipient's own but for transplants
    valid: Bool[np.ndarray, " edit"]
    positive: Bool[np.ndarray, " edit"]
    interior: Bool[np.ndarray, " edit"]
    noop: Float64[np.ndarray, " edit"]
    f1: Float64[np.ndarray, " edit"]
    error: Float64[np.ndarray, " edit"]  # E_dp or D_app, nan where undefined and for scale edits
    miss_x: Float64[np.ndarray, " edit"]  # where the center is, less where it should be, grid units
    miss_y: Float64[np.ndarray, " edit"]
    radius: Float64[np.ndarray, " edit"]
    coverage: Float64[np.ndarray, " edit"]

    def __len__(self) -> int:
        return len(self.window)

    def where(self, kept: Bool[np.ndarray, " edit"]) -> "Records":
        return Records(*(getattr(self, part.name)[kept] for part in fields(self)))


@dataclass(frozen=True)
class EditRecords:
    """The records of all three kinds."""

    position: Records
    scale: Records
    transplant: Records


@dataclass(frozen=True)
class Kind:
    """One kind of edit in one scope."""

    f1: Interval  # percent, with its 95% interval over source videos
    noop: float  # percent
    edits: int  # the denominator of both
    error: Mean | None  # E_dp or D_app; scale edits have none
    disappeared: int
    disappearable: int


@dataclass(frozen=True)
class Curves:
    """Slopes of the five-point scale response, means over defined curves."""

    radius: Mean
    coverage: Mean


@dataclass(frozen=True)
class Scope:
    """All scores of one scope."""

    position: Kind
    scale: Kind  # the four commands that are not the identity
    transplant: Kind
    curves: Curves


@dataclass(frozen=True)
class EditingScores:
    """The editing table in both scopes; `all` is that of valid objects without boundary filter."""

    objects: int
    all: Scope
    interior: Scope


@dataclass(frozen=True)
class Outcomes:
    """What a model made of commands."""

    f1: Float64[Tensor, " edit"]
    center: Float64[Tensor, "edit 2"]  # nan where the edited support is empty
    radius: Float64[Tensor, " edit"]
    coverage: Float64[Tensor, " edit"]


def record_edits(
    model: SlotModel,
    factual: Factual,
    batch: int,
    progress: Progress = lambda done, total: None,
) -> EditRecords:
    """Run every command. Which edits are scored is decided for all before the first is decoded.

    A model without commands and without explicit positions is asked for transplants alone.
    """
    nobody = tuple(part[:0] for part in factual.objects)
    objects = (
        factual.objects if takes_commands(model, factual, "position") else (nobody[0], nobody[1])
    )
    asked = [
        build_moves(factual, objects),
        build_resizes(factual, objects),
        build_transplants(factual),
    ]
    eligible = [judge_eligibility(factual, commands) for commands in asked]
    outcomes = measure_outcomes(model, factual, asked, batch, progress)
    position, scale, transplant = (
        _build_records(factual, *parts) for parts in zip(asked, eligible, outcomes, strict=True)
    )
    return EditRecords(position, scale, transplant)


def measure_outcomes(
    model: SlotModel,
    factual: Factual,
    asked: Sequence[Commands],
    batch: int,
    progress: Progress = lambda done, total: None,
) -> list[Outcomes]:
    """Decode every edit, at most `batch` at a time, and measure the edited slot's support."""
    outcomes = [_make_outcomes(len(commands)) for commands in asked]
    total, done = sum(len(commands) for commands in asked), 0
    for kind, chunk, slot, (_, logits) in decode_kinds(model, factual, asked, batch):
        support = compute_masks(logits)[:, slot]
        target = compute_targets(factual, asked[kind], chunk, support.device)[1]
        moments, outcome = metrics.support_moments(support), outcomes[kind]
        outcome.f1[chunk] = metrics.f1(support, target).cpu()
        outcome.center[chunk] = moments.center.cpu()
        outcome.radius[chunk] = moments.radius.cpu()
        outcome.coverage[chunk] = moments.coverage.cpu()
        done += len(chunk)
        progress(done, total)
    return outcomes


def score_editing(records: EditRecords) -> EditingScores:
    """Both scopes from the records alone."""
    curves = len(records.scale) // len(FACTORS)
    feasible = np.asarray(records.scale.interior.reshape(curves, len(FACTORS)).all(1))
    resized = records.scale.where(records.scale.command != IDENTITY)
    inside = [part.where(part.interior) for part in (records.position, resized, records.transplant)]
    return EditingScores(
        objects=curves,
        all=Scope(
            _score_kind(records.position, True),
            _score_kind(resized, False),
            _score_kind(records.transplant, True),
            _fit_curves(records.scale, np.ones(curves, dtype=np.bool_)),
        ),
        interior=Scope(
            _score_kind(inside[0], True),
            _score_kind(inside[1], False),
            _score_kind(inside[2], True),
            _fit_curves(records.scale, feasible),
        ),
    )


def _make_outcomes(count: int) -> Outcomes:
    f1, radius, coverage = (torch.zeros(count, dtype=torch.float64) for _ in range(3))
    return Outcomes(f1, torch.full((count, 2), torch.nan, dtype=torch.float64), radius, coverage)


def _build_records(
    factual: Factual, commands: Commands, eligible: Eligibility, outcomes: Outcomes
) -> Records:
    height, width = factual.masks.shape[-2:]
    center = factual.moments.center[commands.window, commands.slot]
    error = torch.full((len(commands),), torch.nan, dtype=torch.float64)
    miss = outcomes.center - center
    if commands.kind == "position":
        miss = miss - commands.map.offset
    if commands.kind == "transplant":
        error = metrics.drift(center, outcomes.center)
    elif commands.kind == "position":
        pixels = torch.tensor(MOVES, dtype=torch.float64)[commands.command]
        error = metrics.translation_error(center, outcomes.center, pixels, height, width)
    window = commands.window.numpy()
    return Records(
        window=factual.window[window],
        slot=commands.slot.numpy(),
        command=commands.command.numpy(),
        video=factual.video[window],
        donor_video=factual.video[commands.mask_window.numpy()],
        valid=eligible.valid,
        positive=eligible.positive,
        interior=eligible.interior,
        noop=eligible.noop,
        f1=outcomes.f1.numpy(),
        error=error.numpy(),
        miss_x=miss[:, 0].numpy(),
        miss_y=miss[:, 1].numpy(),
        radius=outcomes.radius.numpy(),
        coverage=outcomes.coverage.numpy(),
    )


def _score_kind(records: Records, has_error: bool) -> Kind:
    scored = records.where(records.valid)
    able = records.where(records.positive)
    return Kind(
        f1=_average_f1(scored),
        noop=PERCENT * average_defined(scored.noop).value,
        edits=len(scored),
        error=average_defined(records.error) if has_error else None,
        disappeared=int((able.coverage == 0).sum()),
        disappearable=len(able),
    )


def _average_f1(records: Records) -> Interval:
    """Transplant pairs weigh as recipient and donor; other edits have one video."""
    if len(records) == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    values = PERCENT * records.f1
    if (records.donor_video != records.video).any():
        return metrics.pair_weighted_interval(
            values, records.video, records.donor_video, REPLICATES
        )
    return metrics.pooled_interval(values, records.video, REPLICATES)


def _fit_curves(scale: Records, kept: Bool[np.ndarray, " curve"]) -> Curves:
    factors = torch.tensor(FACTORS, dtype=torch.float64)

    def slope(values: np.ndarray) -> Mean:
        curves = torch.from_numpy(values.reshape(-1, len(FACTORS))[kept])
        return average_defined(metrics.response_slope(factors, curves))

    return Curves(slope(scale.radius), slope(scale.coverage))
