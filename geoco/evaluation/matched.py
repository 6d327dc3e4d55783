"""The object-matched tables: the same edits of the same reference objects, for every model.

Every edit of every reference object leaves a record, whether or not the model could carry it out,
so that the records of several models line up and a common pool can be drawn from them afterwards
(`geoco.evaluation.compare`). An object that no slot shares a pixel with is left as it is: its
picture is scored, what the edit preserved is undefined. Of a kind of edit that a model cannot be
asked for, everything is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from geoco import edit_maps, metrics
from geoco.evaluation.canvas import Canvas
from geoco.evaluation.commands import (
    IDENTITY,
    KINDS,
    Commands,
    build_moves,
    build_resizes,
    compute_targets,
    judge_eligibility,
    transplant_given,
)
from geoco.evaluation.decode_edits import decode_kinds, takes_commands
from geoco.evaluation.editing import PERCENT
from geoco.evaluation.exact_targets import Generator
from geoco.evaluation.interfaces import SlotModel
from geoco.evaluation.matched_measures import Judge, MatchedMeasures
from geoco.evaluation.reference_objects import (
    AskedEdits,
    References,
    ask_moves,
    ask_resizes,
    ask_transplants,
    find_references,
    have_valid_images,
)
from geoco.evaluation.windows import Factual, Progress, Windows
from geoco.metrics import Interval
from geoco.models import compositing

REPLICATES = 5_000
_CHUNK = 256  # masks that are looked at at a time


@dataclass(frozen=True)
class MatchedEdits:
    """Edits of reference objects; the first seven say which, the same for all models."""

    window: Int64[np.ndarray, " edit"]  # index in the dataset
    label: Int64[np.ndarray, " edit"]
    kind: Int64[np.ndarray, " edit"]  # which of KINDS
    command: Int64[np.ndarray, " edit"]
    video: Int64[np.ndarray, " edit"]
    reference_valid: Bool[np.ndarray, " edit"]  # the reference mask's ideal image has ten pixels
    donor_label: Int64[np.ndarray, " edit"]
    edited: Bool[np.ndarray, " edit"]  # a slot was edited at all
    valid: Bool[np.ndarray, " edit"]  # it is a valid object, and so is its ideal target


@dataclass(frozen=True)
class MatchedRecords(MatchedMeasures, MatchedEdits):
    """One row per edit of a reference object: which it is, and what was measured."""

    @property
    def taken(self) -> Bool[np.ndarray, " edit"]:
        """Edits of a kind that the model can be asked for at all."""
        return ~np.isnan(self.oracle)

    def __len__(self) -> int:
        return len(self.window)

    def where(self, kept: Bool[np.ndarray, " edit"]) -> "MatchedRecords":
        return MatchedRecords(*(getattr(self, part.name)[kept] for part in fields(self)))


SAME_FOR_ALL = ("window", "label", "kind", "command", "video", "reference_valid", "donor_label")


@dataclass(frozen=True)
class Likeness:
    """PSNR against target images, in dB, on the whole image and on the editing region."""

    full: Interval
    region: Interval


@dataclass(frozen=True)
class MatchedKind:
    """Edits of one kind: means within videos, then over videos, with their intervals.

    Scores are None where the model cannot be asked for such edits.
    """

    edits: int
    unassociated: int  # of them, left as they were
    common: int  # edits that F1 is over: valid for reference and model (or all models)
    f1: Interval | None  # percent; transplants have none
    oracle: Likeness | None
    unedited: Likeness | None
    exact: Likeness | None  # None without a generator, too
    exact_f1: Interval | None  # percent
    oracle_exact: Likeness | None
    change: Interval | None
    changed: Interval | None
    visible: int  # edits that exact_f1 is over
    carried: int  # edits that change and changed are over
    videos: int  # that edits are of
    carried_videos: int  # that edits are of which change and changed are over


@dataclass(frozen=True)
class MatchedScores:
    """The object-matched tables of one model."""

    objects: int  # these three are of the edits that F1 is over
    windows: int
    videos: int
    position: MatchedKind
    scale: MatchedKind
    transplant: MatchedKind


def record_matched(
    model: SlotModel,
    dataset: Windows,
    factual: Factual,
    batch: int,
    progress: Progress = lambda done, total: None,
) -> MatchedRecords:
    """All edits of all reference objects. A generator is also asked for the truth."""
    objects = find_references(factual)
    # As large as ten pixels of the model's canvas, in whichever pixels they are masked.
    fewest = Canvas.of_reference(factual).fewest_pixels
    objects = objects.where(edit_maps.is_large_enough(objects.mask, fewest))
    # A generator knows the truth about windows' first frames alone.
    generator = dataset if isinstance(dataset, Generator) and factual.length == 1 else None
    plans = [
        _plan_edits(model, factual, objects, edits)
        for edits in (
            ask_moves(objects),
            ask_resizes(objects),
            ask_transplants(factual, objects),
        )
    ]
    total, done = sum(len(plan.asked) for plan in plans if plan.taken), 0
    names = [part.name for part in fields(MatchedMeasures)]
    columns = [{name: np.full(len(plan.asked), np.nan) for name in names} for plan in plans]
    # Once to where the model is: every chunk of edits looks at some of them.
    images = factual.image.to(factual.device)
    judges = [Judge(factual, objects, plan.asked, generator, images) for plan in plans]
    for kind, edits, image, support, target in _decode_outcomes(
        model, factual, objects, plans, batch
    ):
        measures = judges[kind].measure(edits, image, support, target)
        for name in names:
            columns[kind][name][edits.numpy()] = getattr(measures, name)
        done += len(edits)
        progress(done, total)
    pieces = [
        _build_records(factual, objects, plan, MatchedMeasures(**measured), batch)
        for plan, measured in zip(plans, columns, strict=True)
    ]
    return MatchedRecords(
        *(np.concatenate([getattr(p, part.name) for p in pieces]) for part in fields(pieces[0]))
    )


def score_matched(
    records: MatchedRecords, common: Bool[np.ndarray, " edit"] | None = None
) -> MatchedScores:
    """From records alone. `common` are the edits that F1 is over, those valid here if not given."""
    pool = records.reference_valid & records.valid if common is None else common
    pool = pool & records.taken
    kinds = [_score_kind(records, pool, number) for number in range(len(KINDS))]
    scored = records.where(pool & (records.kind != KINDS.index("transplant")))
    objects = np.unique(np.stack((scored.window, scored.label)), axis=1).shape[1]
    windows, videos = (len(np.unique(part)) for part in (scored.window, scored.video))
    return MatchedScores(objects, windows, videos, *kinds)


@dataclass(frozen=True)
class _Plan:
    """Edits that are asked, and those that the model can carry out, through its own slots."""

    asked: AskedEdits
    taken: bool  # whether the model can be asked at all
    done: Int64[Tensor, " command"]  # which of the asked each command is
    commands: Commands
    valid: Bool[np.ndarray, " command"]


def _plan_edits(
    model: SlotModel, factual: Factual, objects: References, asked: AskedEdits
) -> _Plan:
    taken = takes_commands(model, factual, asked.kind)
    able = (objects.slot >= 0) & taken
    window, slot = objects.window, objects.slot
    done = (able[asked.object] & able[asked.donor]).nonzero()[:, 0]
    if asked.kind == "transplant":
        recipient, donor = asked.object[done], asked.donor[done]
        commands = transplant_given(
            factual, (window[recipient], slot[recipient]), (window[donor], slot[donor])
        )
    else:
        make = build_moves if asked.kind == "position" else build_resizes
        commands = make(factual, (window[able], slot[able]))
        if asked.kind == "scale":
            commands = commands.rows((commands.command != IDENTITY).nonzero()[:, 0])
    canvas = Canvas.of_reference(factual)
    objects_valid = _are_valid(factual, canvas, commands)
    valid = judge_eligibility(factual, commands, canvas).valid & objects_valid
    return _Plan(asked, taken, done, commands, valid)


def _are_valid(factual: Factual, canvas: Canvas, commands: Commands) -> np.ndarray:
    """Whether commands are of valid objects, as large as that is where masks are measured."""
    row, slot = commands.window, commands.slot
    if canvas.size == factual.canvas:
        return factual.valid[row, slot].numpy()
    large = [
        edit_maps.is_large_enough(canvas.take_masks(row[some], slot[some]), canvas.fewest_pixels)
        for some in torch.arange(len(commands)).split(_CHUNK)
    ]
    foreground = factual.background[row] != slot
    open_slots = foreground if factual.active is None else foreground & factual.active[row, slot]
    return (torch.cat(large) & open_slots).numpy()


def _decode_outcomes(
    model: SlotModel, factual: Factual, objects: References, plans: Sequence[_Plan], batch: int
) -> Iterator[tuple[int, Tensor, Tensor, Tensor | None, Tensor | None]]:
    """Every asked edit once: of which plan, which, the picture, the support and its own target.

    Those that no slot is there for come last, without a support; none if the model takes none.
    """
    canvas, asked = Canvas.of_reference(factual), [plan.commands for plan in plans]
    for kind, chunk, slot, (colors, logits) in decode_kinds(model, factual, asked, batch):
        image = compositing.composite(colors, compositing.compute_alpha(logits))
        support = canvas.find_support(logits, slot)
        target = compute_targets(factual, asked[kind], chunk, support.device, canvas)[1]
        yield kind, plans[kind].done[chunk], image, support, target
    for kind, plan in enumerate(plans):
        left = torch.full((len(plan.asked),), plan.taken)
        left[plan.done] = False
        for edits in left.nonzero()[:, 0].split(batch) if left.any() else ():
            before = factual.image[objects.window[plan.asked.object[edits]]]
            yield kind, edits, before, None, None


def _build_records(
    factual: Factual, objects: References, plan: _Plan, measures: MatchedMeasures, batch: int
) -> MatchedRecords:
    asked = plan.asked
    window = objects.window[asked.object].numpy()
    edited, valid = np.zeros((2, len(asked)), dtype=np.bool_)
    edited[plan.done.numpy()] = True
    valid[plan.done.numpy()] = plan.valid
    return MatchedRecords(
        window=factual.window[window],
        label=objects.label[asked.object].numpy(),
        kind=np.full(len(asked), KINDS.index(asked.kind)),
        command=asked.command.numpy(),
        video=factual.video[window],
        reference_valid=have_valid_images(
            Canvas.of_reference(factual), objects, asked, batch
        ).numpy(),
        donor_label=objects.label[asked.donor].numpy(),
        edited=edited,
        valid=valid,
        **vars(measures),
    )


def _score_kind(records: MatchedRecords, pool: np.ndarray, number: int) -> MatchedKind:
    mine = records.kind == number
    pool, rows = pool[mine], records.where(mine)
    taken, truth = bool(rows.taken.any()), bool((~np.isnan(rows.exact)).any())

    def interval(values: np.ndarray) -> Interval:
        return _estimate_interval(values, rows.video)

    def likeness(name: str) -> Likeness:
        return Likeness(interval(getattr(rows, name)), interval(getattr(rows, f"{name}_region")))

    return MatchedKind(
        edits=len(rows),
        unassociated=int((rows.taken & ~rows.edited).sum()),
        common=int(pool.sum()),
        f1=None
        if KINDS[number] == "transplant" or not taken
        else _estimate_interval(PERCENT * rows.f1[pool], rows.video[pool]),
        oracle=likeness("oracle") if taken else None,
        unedited=likeness("unedited") if taken else None,
        exact=likeness("exact") if truth else None,
        exact_f1=interval(PERCENT * rows.exact_f1) if truth else None,
        oracle_exact=likeness("oracle_exact") if truth else None,
        change=interval(rows.change) if taken else None,
        changed=interval(rows.changed) if taken else None,
        visible=int((~np.isnan(rows.exact_f1)).sum()),
        carried=int((~np.isnan(rows.change)).sum()),
        videos=len(np.unique(rows.video)),
        carried_videos=len(np.unique(rows.video[~np.isnan(rows.change)])),
    )


def _estimate_interval(values: np.ndarray, video: np.ndarray) -> Interval:
    """Of the mean over videos of their means; undefined values are left out."""
    defined = ~np.isnan(values)
    if not defined.any():
        return Interval(float("nan"), float("nan"), float("nan"))
    return metrics.paired_interval(metrics.video_means(values[defined], video[defined]), REPLICATES)
