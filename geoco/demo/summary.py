"""The demo's numbers: one edit of each kind of every true object, measured against the generator.

A short form of the object-matched tables; `geoco eval` runs every command on every object.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from rich.console import Console
from rich.table import Column, Table
from torch import Tensor

from geoco import metrics
from geoco.data.solids import SolidsDataset
from geoco.evaluation import Encoded, OneSlotModel, adapter
from geoco.evaluation.commands import (
    Commands,
    build_moves,
    build_resizes,
    judge_eligibility,
    transplant_given,
)
from geoco.evaluation.commands import compute_targets as ideal_targets
from geoco.evaluation.decode_edits import decode_edits
from geoco.evaluation.editing import PERCENT
from geoco.evaluation.exact_targets import draw_truths
from geoco.evaluation.factual import Mean, measure_segmentation
from geoco.evaluation.interfaces import Decoded
from geoco.evaluation.matched import REPLICATES
from geoco.evaluation.reference_objects import (
    AskedEdits,
    References,
    ask_moves,
    ask_resizes,
    ask_transplants,
    compute_oracle_targets,
    find_references,
)
from geoco.evaluation.windows import Factual, compute_factual
from geoco.metrics import Interval, rgb
from geoco.models import pretrained
from geoco.models.compositing import composite, compute_alpha, compute_masks
from geoco.models.decoders import Fields
from geoco.models.slots import Slots

WINDOWS = 24  # that the summary is measured on
BATCH = 8  # scenes decoded at once


@dataclass(frozen=True)
class KindSummary:
    """One kind of edit: one command of each true object, means over videos with 95% intervals."""

    edits: int
    unassociated: int  # of them, left as they were: no slot shares a pixel with the object
    scored: int  # edits that F1 is over: of a slot that is a valid object, with a valid target
    f1: Interval  # percent, of the edited slot's mask and the commanded one
    f1_unedited: Interval  # of its mask without the edit
    psnr: Interval  # dB, of the editing region against the exact counterfactual
    psnr_reconstruction: Interval  # the same of the reconstruction, not edited
    psnr_frame: Interval  # and of the original frame


@dataclass(frozen=True)
class Summary:
    """A model on the first validation windows, as `geoco eval --windows` takes them."""

    model: str
    step: int
    windows: int
    videos: int
    objects: int  # true ones
    psnr: float  # dB, of the reconstruction
    foreground_ari: Mean
    position: KindSummary
    scale: KindSummary
    transplant: KindSummary


def measure_model(
    loaded: pretrained.LoadedModel, dataset: SolidsDataset, windows: int = WINDOWS
) -> Summary:
    """One move, one resize and one transplant of every true object of some windows.

    Objects take turns with the protocol's commands: `geoco eval` runs all of them on each.
    """
    slot_model = adapter(loaded.model, loaded.config)
    assert isinstance(slot_model, OneSlotModel)
    model = _RememberingModel(slot_model)
    record = compute_factual(model, dataset, BATCH, windows)
    assert record.reference is not None
    objects = find_references(record)
    kinds = [
        _measure_kind(model, dataset, record, objects, _take_turns(objects, asked))
        for asked in (
            ask_moves(objects),
            ask_resizes(objects),
            ask_transplants(record, objects),
        )
    ]
    return Summary(
        loaded.name,
        loaded.step,
        len(record),
        len(set(record.source)),
        len(objects),
        float(record.psnr.mean()),
        measure_segmentation(record, record.reference).foreground_ari,
        *kinds,
    )


class _RememberingModel:
    """A model that draws a scene once: all kinds of edits start from the same ones."""

    def __init__(self, model: OneSlotModel) -> None:
        self.slots, self.size = model.slots, model.size
        self.encode, self.compose = model.encode, model.compose
        self._model = model
        self._scenes: dict[bytes, Fields] = {}

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.compose(encoded, self.fields(slots))

    def fields(self, slots: Slots) -> Fields:
        if slots.scale.shape[1] < self.slots:
            return self._model.fields(slots)
        parts = (slots.appearance, slots.position, slots.scale)
        key = b"".join(part.cpu().numpy().tobytes() for part in parts)
        if key not in self._scenes:
            self._scenes[key] = self._model.fields(slots)
        return self._scenes[key]


def _take_turns(objects: References, asked: AskedEdits) -> AskedEdits:
    """Of each object one command, the next object the next one; transplants have but one."""
    if asked.kind == "transplant":
        return asked
    number = torch.arange(len(objects))
    each = len(asked) // max(len(objects), 1)
    return asked.rows(number * each + number % max(each, 1))


def _measure_kind(
    model: OneSlotModel,
    dataset: SolidsDataset,
    record: Factual,
    objects: References,
    asked: AskedEdits,
) -> KindSummary:
    device = torch.device("cpu")
    able = objects.slot >= 0
    done = (able[asked.object] & able[asked.donor]).nonzero()[:, 0]
    commands = _find_commands(record, objects, asked.rows(done))
    wanted = judge_eligibility(record, commands)
    scored = wanted.valid & record.valid[commands.window, commands.slot].numpy()
    window = objects.window[asked.object]
    before = record.image[window]
    after = before.clone()
    masks, targets = torch.zeros(2, len(commands), *before.shape[-2:], dtype=torch.bool)
    for chunk, slot, (colors, logits) in decode_edits(model, record, commands, BATCH):
        after[done[chunk]] = composite(colors, compute_alpha(logits))
        masks[chunk] = compute_masks(logits)[:, slot]
        targets[chunk] = ideal_targets(record, commands, chunk)[1]
    truth = draw_truths(dataset, record, objects, asked, device).image
    region = compute_oracle_targets(record, objects, asked, device).region
    video = record.video[window.numpy()]

    def likeness(image: Float[Tensor, "edit 3 height width"]) -> Interval:
        return _estimate_mean(rgb.region_psnr(image, truth, region).numpy(), video)

    def overlap(values: Float64[np.ndarray, " command"]) -> Interval:
        return _estimate_mean(PERCENT * values[scored], video[done.numpy()][scored])

    return KindSummary(
        edits=len(asked),
        unassociated=len(asked) - len(done),
        scored=int(scored.sum()),
        f1=overlap(metrics.f1(masks, targets).numpy()),
        f1_unedited=overlap(wanted.noop),
        psnr=likeness(after),
        psnr_reconstruction=likeness(before),
        psnr_frame=likeness(record.frame[window].float() / 255),
    )


def _find_commands(record: Factual, objects: References, asked: AskedEdits) -> Commands:
    """The same edits through the slots of the objects."""
    recipients = objects.window[asked.object], objects.slot[asked.object]
    if asked.kind == "transplant":
        donors = objects.window[asked.donor], objects.slot[asked.donor]
        return transplant_given(record, recipients, donors)
    every = (build_moves if asked.kind == "position" else build_resizes)(record, recipients)
    each = len(every) // max(len(asked), 1)
    return every.rows(torch.arange(len(asked)) * each + asked.command)


def _estimate_mean(
    values: Float64[np.ndarray, " edit"], video: Int64[np.ndarray, " edit"]
) -> Interval:
    """Within videos, then over videos, as the object-matched tables take it."""
    defined = ~np.isnan(values)
    if not defined.any():
        return Interval(float("nan"), float("nan"), float("nan"))
    return metrics.paired_interval(metrics.video_means(values[defined], video[defined]), REPLICATES)


def print_summary(summary: Summary, console: Console) -> None:
    """A small table, undefined values as dashes."""
    ari = summary.foreground_ari
    console.print(
        f"{summary.windows} validation windows of {summary.videos} videos, {summary.objects} "
        f"objects: reconstruction {summary.psnr:.2f} dB, "
        f"FG-ARI {_format_number(PERCENT * ari.value)}%",
        highlight=False,
        soft_wrap=True,
    )
    names = ("", "edits", "dB", "unedited", "frame", "scored", "F1, %", "unedited")
    table = Table(names[0], *(Column(name, justify="right") for name in names[1:]))
    kinds = (summary.position, summary.scale, summary.transplant)
    for name, kind in zip(("moved", "resized", "transplanted"), kinds, strict=True):
        likeness = (kind.psnr, kind.psnr_reconstruction, kind.psnr_frame)
        overlap = (kind.f1, kind.f1_unedited)
        left, right = ([_format_number(value.estimate) for value in v] for v in (likeness, overlap))
        table.add_row(name, str(kind.edits), *left, str(kind.scored), *right)
    console.print(table)
    console.print(
        "dB: the edited region against the generator's exact counterfactual; beside it the same\n"
        "reconstruction, and the original frame, without the edit. F1: the edited slot's mask\n"
        "against the commanded one, where slot and target are large enough; beside it without "
        "the edit.",
        highlight=False,
        soft_wrap=True,
    )


def _format_number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.1f}"
