"""Whole-video editing: one object of every video, edited in all frames (paper, Sec. D).

A reference track anchors a slot in one frame. The paper leaves open which: here the one of largest
visible area over the window, the lowest number among equals, whatever the model. The slot keeps its
edit through the video, and areas are summed over all frames before F1 is taken, at the size of the
reference masks. Commands are those of the single-frame table, in pixels of the model's canvas.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from geoco import metrics
from geoco.errors import GeocoError
from geoco.evaluation.canvas import Canvas
from geoco.evaluation.commands import (
    IDENTITY,
    KINDS,
    CommandKind,
    Commands,
    Objects,
    build_moves,
    build_resizes,
    compute_targets,
    transplant_given,
)
from geoco.evaluation.decode_edits import decode_kinds, takes_commands
from geoco.evaluation.editing import PERCENT, REPLICATES
from geoco.evaluation.interfaces import SlotModel
from geoco.evaluation.reference_tracks import count_fewest_pixels, find_anchors
from geoco.evaluation.windows import Factual, Progress
from geoco.metrics import Interval

Pair = tuple[int, int]  # recipient and donor video


@dataclass(frozen=True)
class TubeEdits:
    """Edits of whole videos; videos are numbers in `TubeRecords.sources`."""

    video: Int64[np.ndarray, " edit"]
    donor_video: Int64[np.ndarray, " edit"]  # the recipient's own but for transplants
    kind: Int64[np.ndarray, " edit"]  # which of KINDS
    command: Int64[np.ndarray, " edit"]  # which of MOVES or FACTORS; 0 for transplants
    f1: Float64[np.ndarray, " edit"]
    noop: Float64[np.ndarray, " edit"]  # of the unchanged recipient
    valid: Bool[np.ndarray, " edit"]

    def __len__(self) -> int:
        return len(self.video)

    def where(self, kept: Bool[np.ndarray, " edit"]) -> "TubeEdits":
        return TubeEdits(*(getattr(self, part.name)[kept] for part in fields(self)))

    def of(self, kind: CommandKind) -> "TubeEdits":
        return self.where(self.kind == KINDS.index(kind))


@dataclass(frozen=True)
class TubeRecords:
    """Every edit, and the videos: those that were looked at, and which of them had a track."""

    sources: tuple[str, ...]
    eligible: Bool[np.ndarray, " video"]
    frames: int  # of each video
    edits: TubeEdits

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Recipient and donor of every transplant, valid or not."""
        swapped = self.edits.of("transplant")
        return tuple(zip(swapped.video.tolist(), swapped.donor_video.tolist(), strict=True))


@dataclass(frozen=True)
class TubeKind:
    """One kind of edit: the mean over videos of each command, then over commands."""

    f1: Interval  # percent, with its 95% interval over source videos
    noop: float  # percent
    edits: int  # valid ones


@dataclass(frozen=True)
class TubeScores:
    """The whole-video editing table."""

    videos: int
    eligible: int  # of these the scores are
    frames: int
    position: TubeKind
    scale: TubeKind
    transplant: TubeKind


def record_tubes(
    model: SlotModel,
    factual: Factual,
    batch: int,
    progress: Progress = lambda done, total: None,
) -> TubeRecords:
    """Edit one object of every video in all of its frames; `batch` frames decoded at a time.

    A video is the first of its windows. A model that can neither be told nor set where slots are is
    asked for transplants alone.
    """
    clips = _find_first_clips(factual)
    anchors = {
        number: anchor
        for number, anchor in enumerate(find_anchors(factual, clips))
        if anchor is not None
    }

    def locate(numbers: Iterable[int]) -> Objects:
        which = [(clips[number], anchors[number].slot) for number in numbers]
        return _locate_slots(factual, torch.tensor(which, dtype=torch.int64).view(-1, 2))

    objects, donors = locate(anchors), _pair_donors(list(anchors))
    asked: list[tuple[Commands, dict[int, int]]] = []
    if takes_commands(model, factual, "position"):
        resized = build_resizes(factual, objects)
        changing = (resized.command != IDENTITY).nonzero()[:, 0]
        own = {number: number for number in anchors}
        asked += [(build_moves(factual, objects), own), (resized.rows(changing), own)]
    asked.append((transplant_given(factual, locate(donors), locate(donors.values())), donors))
    counts = _count_pixels(model, factual, [commands for commands, _ in asked], batch, progress)
    pieces = [
        _sum_tubes(factual, *kind, pixels) for kind, pixels in zip(asked, counts, strict=True)
    ]
    eligible = np.isin(np.arange(len(clips)), list(anchors))
    sources = tuple(factual.source[clip * factual.length] for clip in clips)
    return TubeRecords(sources, eligible, factual.length, _join_edits(pieces))


def score_tubes(records: TubeRecords, pairs: Iterable[Pair] | None = None) -> TubeScores:
    """The table from the records alone; of some recipient-donor pairs only, if they are given.

    Models are compared on the pairs that all of them have (`find_common_pairs`). Moves and resizes
    are then those of the recipients.
    """
    edits, eligible = records.edits, int(records.eligible.sum())
    if pairs is not None:
        wanted = set(pairs)
        edits, eligible = _keep_pairs(records, wanted), len(wanted)
    position, scale, transplant = (_score_kind(edits.of(kind)) for kind in KINDS)
    videos = len(records.sources)
    return TubeScores(videos, eligible, records.frames, position, scale, transplant)


def compare_tubes(
    first: TubeRecords, other: TubeRecords, pairs: Iterable[Pair]
) -> dict[CommandKind, Interval]:
    """How much higher another model scores than the first, by kind of edit, with 95% intervals.

    On common pairs; in every replicate both are scored on the same videos. Kinds that a model has
    no valid edits of are left out.
    """
    wanted = set(pairs)
    both = [_keep_pairs(records, wanted) for records in (first, other)]
    gaps: dict[CommandKind, Interval] = {}
    for kind in KINDS:
        scored = [edits.where(edits.valid).of(kind) for edits in both]
        if all(len(edits) for edits in scored):
            weights = _draw_weights(_find_videos(*scored))
            less, more = (_average(edits, edits.f1, weights) for edits in scored)
            gaps[kind] = _make_interval(more - less)
    return gaps


def find_common_pairs(several: Sequence[TubeRecords]) -> tuple[Pair, ...]:
    """Recipient and donor videos that are a pair in the records of every model."""
    if len({(records.sources, records.frames) for records in several}) != 1:
        raise GeocoError("models can be compared only on the same videos of the same length")
    common = set.intersection(*(set(records.pairs) for records in several))
    return tuple(sorted(common))


def _keep_pairs(records: TubeRecords, wanted: set[Pair]) -> TubeEdits:
    """The edits of those recipients."""
    unknown = sorted(wanted - set(records.pairs))
    if unknown:
        raise GeocoError(
            f"video {unknown[0][0]} with donor {unknown[0][1]} is no pair of these records: "
            "compare models on pairs that all of them have"
        )
    return records.edits.where(np.isin(records.edits.video, [video for video, _ in wanted]))


def _find_first_clips(factual: Factual) -> list[int]:
    """The first window of every video, by its number among those that are evaluated."""
    if factual.length < 2:
        raise GeocoError(
            "whole-video editing needs windows of several frames, but those of the dataset have "
            "one: set the length of its window"
        )
    if factual.reference is None:
        raise GeocoError(
            "whole-video editing follows an object of the reference masks, but the dataset has "
            "none: use one with masks"
        )
    first: dict[str, int] = {}
    for clip, source in enumerate(factual.source[:: factual.length]):
        first.setdefault(source, clip)
    return list(first.values())


def _pair_donors(videos: Sequence[int]) -> dict[int, int]:
    """Of every video the next, of the last the first; one that is alone has none."""
    if len(videos) < 2:
        return {}
    return dict(zip(videos, [*videos[1:], videos[0]], strict=True))


def _locate_slots(factual: Factual, which: Int64[Tensor, "clip 2"]) -> Objects:
    """Slots in every frame of windows, one after the other; which slot of which window."""
    clip, slot = which.unbind(1)
    rows = clip[:, None] * factual.length + torch.arange(factual.length)
    return rows.flatten(), slot.repeat_interleave(factual.length)


def _count_pixels(
    model: SlotModel, factual: Factual, asked: Sequence[Commands], batch: int, progress: Progress
) -> list[Int64[Tensor, "edit 5"]]:
    """Of the edited slot and its target: pixels of both, of either, the same of the unedited slot.

    Of each frame no more is kept than that.
    """
    canvas = Canvas.of_reference(factual)
    counts = [torch.zeros(len(commands), 5, dtype=torch.int64) for commands in asked]
    total, done = sum(len(commands) for commands in asked), 0
    for kind, chunk, slot, (_, logits) in decode_kinds(model, factual, asked, batch):
        commands, drawn = asked[kind], canvas.find_support(logits, slot)
        target = compute_targets(factual, commands, chunk, drawn.device, canvas)[1]
        same = canvas.take_masks(commands.window[chunk], commands.slot[chunk], drawn.device)
        parts = (drawn & target, drawn, target, same & target, same)
        counts[kind][chunk] = torch.stack([part.sum((-2, -1)) for part in parts], -1).cpu()
        done += len(chunk)
        progress(done, total)
    return counts


def _sum_tubes(
    factual: Factual,
    commands: Commands,
    pairs: Mapping[int, int],
    counts: Int64[Tensor, "edit 5"],
) -> TubeEdits:
    """Tubes of one kind, of recipients and donors `pairs`, video by video and in their order.

    Commands come frame by frame, and within a frame in their order.
    """
    each = len(commands) // max(len(pairs) * factual.length, 1)
    tubes = counts.view(len(pairs), factual.length, each, 5).sum(1).flatten(0, 1)
    shared, edited, wanted, kept, unchanged = tubes.double().unbind(-1)
    numbers = commands.command.view(len(pairs), factual.length, each)[:, 0].flatten()
    fewest = count_fewest_pixels(*Canvas.of_reference(factual).size)
    return TubeEdits(
        video=np.repeat(np.array(list(pairs), dtype=np.int64), each),
        donor_video=np.repeat(np.array(list(pairs.values()), dtype=np.int64), each),
        kind=np.full(len(tubes), KINDS.index(commands.kind), dtype=np.int64),
        command=numbers.numpy(),
        f1=(2 * shared / (edited + wanted).clamp_min(1)).numpy(),
        noop=(2 * kept / (unchanged + wanted).clamp_min(1)).numpy(),
        valid=(wanted >= fewest).numpy(),
    )


def _join_edits(pieces: Sequence[TubeEdits]) -> TubeEdits:
    """All kinds, video by video."""
    names = [part.name for part in fields(TubeEdits)]
    order = np.argsort(np.concatenate([piece.video for piece in pieces]), kind="stable")
    return TubeEdits(
        *(np.concatenate([getattr(piece, name) for piece in pieces])[order] for name in names)
    )


def _score_kind(edits: TubeEdits) -> TubeKind:
    scored = edits.where(edits.valid)
    if len(scored) == 0:
        return TubeKind(Interval(float("nan"), float("nan"), float("nan")), float("nan"), 0)
    weights = _draw_weights(_find_videos(scored))
    f1, noop = (_average(scored, values, weights) for values in (scored.f1, scored.noop))
    return TubeKind(_make_interval(f1), float(noop[0]), len(scored))


def _find_videos(*several: TubeEdits) -> Int64[np.ndarray, " video"]:
    """Every video that is a recipient or a donor."""
    return np.unique(np.concatenate([(edits.video, edits.donor_video) for edits in several], 1))


def _draw_weights(videos: Int64[np.ndarray, " video"]) -> dict[int, np.ndarray]:
    """How often each video counts: once, then as often as it is drawn in every replicate."""
    share = np.full(len(videos), 1 / len(videos))
    drawn = np.random.default_rng(0).multinomial(len(videos), share, size=REPLICATES)
    columns = np.concatenate((np.ones((1, len(videos))), drawn)).T
    return dict(zip(videos.tolist(), columns, strict=True))


def _average(
    edits: TubeEdits, values: Float64[np.ndarray, " edit"], weights: Mapping[int, np.ndarray]
) -> Float64[np.ndarray, " replicate"]:
    """In percent, for all edits and for every replicate; nan where none of them is drawn.

    A transplant weighs as its recipient's and its donor's weights multiplied.
    """
    weight = np.stack([weights[video] for video in edits.video.tolist()], 1)
    for place in (edits.donor_video != edits.video).nonzero()[0]:
        weight[:, place] *= weights[int(edits.donor_video[place])]
    return PERCENT * _average_commands(values, edits.command, weight)


def _make_interval(values: Float64[np.ndarray, " replicate"]) -> Interval:
    low, high = np.nanpercentile(values[1:], metrics.PERCENTILES)
    return Interval(float(values[0]), float(low), float(high))


def _average_commands(
    values: Float64[np.ndarray, " edit"],
    command: Int64[np.ndarray, " edit"],
    weights: Float64[np.ndarray, "replicate edit"],
) -> Float64[np.ndarray, " replicate"]:
    """The weighted mean over videos of each command, then the mean over commands that have any."""
    sums, defined = np.zeros(len(weights)), np.zeros(len(weights))
    for each in np.unique(command):
        mine = command == each
        weight = weights[:, mine].sum(1)
        sums += weights[:, mine] @ values[mine] / np.maximum(weight, 1)
        defined += weight > 0
    return np.divide(sums, defined, out=np.full_like(sums, np.nan), where=defined > 0)
