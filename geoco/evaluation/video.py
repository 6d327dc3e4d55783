"""Whole-video editing: one object of every video, edited in all frames (paper, Sec. D).

A reference object anchors a slot in one frame (`video_tracks`). The slot keeps its edit
through the video, and areas are summed over all frames before F1 is taken. Commands are those of
the single-frame table, in pixels of the model's canvas; a video's frames take the place of windows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from geoco import metrics
from geoco.errors import GeocoError
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
from geoco.evaluation.decode_edits import decode_edits, takes_commands
from geoco.evaluation.editing import PERCENT, REPLICATES
from geoco.evaluation.interfaces import SlotModel
from geoco.evaluation.video_tracks import (
    ObjectTrack,
    choose_first_windows,
    count_fewest_pixels,
    measure_window_length,
    track_objects,
)
from geoco.evaluation.windows import Factual, Progress, Windows, join_factuals
from geoco.metrics import Interval
from geoco.models import compositing

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
    dataset: Windows,
    batch: int,
    limit: int | None = None,
    progress: Progress = lambda done, total: None,
) -> TubeRecords:
    """Edit one object of every video, or of `limit` videos; `batch` frames decoded at a time.

    A model that can neither be told nor set where slots are is asked for transplants alone.
    """
    windows, sources = choose_first_windows(dataset, limit), dataset.sources

    def tracks() -> Iterator[ObjectTrack]:
        for number, track in enumerate(track_objects(model, dataset, windows, batch)):
            progress(number, len(windows))
            if track is not None:
                yield track

    eligible = np.zeros(len(windows), dtype=np.bool_)
    pieces: list[TubeEdits] = []
    for track, donor in pair_with_donors(tracks()):
        eligible[track.video] = True
        pieces += _edit_track(model, track, donor, batch)
    progress(len(windows), len(windows))
    return TubeRecords(
        sources=tuple(sources[window] for window in windows),
        eligible=eligible,
        frames=measure_window_length(dataset, int(windows[0])),
        edits=_join_edits(pieces),
    )


def score_tubes(records: TubeRecords, pairs: Iterable[Pair] | None = None) -> TubeScores:
    """The table from the records alone; of some recipient-donor pairs only, if they are given.

    Models are compared on the pairs that all of them have (`common_pairs`). Moves and resizes are
    then those of the recipients.
    """
    edits, eligible = records.edits, int(records.eligible.sum())
    if pairs is not None:
        wanted = set(pairs)
        unknown = sorted(wanted - set(records.pairs))
        if unknown:
            raise GeocoError(
                f"video {unknown[0][0]} with donor {unknown[0][1]} is no pair of these records: "
                "compare models on pairs that all of them have"
            )
        edits = edits.where(np.isin(edits.video, [recipient for recipient, _ in wanted]))
        eligible = len(wanted)
    position, scale, transplant = (_score_kind(edits.of(kind), kind) for kind in KINDS)
    videos = len(records.sources)
    return TubeScores(videos, eligible, records.frames, position, scale, transplant)


def find_common_pairs(several: Sequence[TubeRecords]) -> tuple[Pair, ...]:
    """Recipient and donor videos that are a pair in the records of every model."""
    if len({(records.sources, records.frames) for records in several}) != 1:
        raise GeocoError("models can be compared only on the same videos of the same length")
    common = set.intersection(*(set(records.pairs) for records in several))
    return tuple(sorted(common))


def pair_with_donors(
    tracks: Iterable[ObjectTrack],
) -> Iterator[tuple[ObjectTrack, ObjectTrack | None]]:
    """Each with the next as its donor, the last with the first; one that is alone has none."""
    first = last = None
    for track in tracks:
        if last is None:
            first = track
        else:
            yield last, track
        last = track
    if last is not None:
        yield last, None if first is last else first


def _edit_track(
    model: SlotModel, track: ObjectTrack, donor: ObjectTrack | None, batch: int
) -> Iterator[TubeEdits]:
    """All edits of a track; those of a kind that the model does not take are left out."""
    mine = _locate_slot(track, 0)
    asked: list[Commands] = []
    if takes_commands(model, track.factual, "position"):
        resized = build_resizes(track.factual, mine)
        changing = (resized.command != IDENTITY).nonzero()[:, 0]
        asked = [build_moves(track.factual, mine), resized.rows(changing)]
    for commands in asked:
        yield _measure_edits(model, track, track, track.factual, commands, batch)
    if donor is not None:
        both = join_factuals((track.factual, donor.factual))
        swapped = transplant_given(both, mine, _locate_slot(donor, len(track.factual)))
        yield _measure_edits(model, track, donor, both, swapped, batch)


def _measure_edits(
    model: SlotModel,
    track: ObjectTrack,
    donor: ObjectTrack,
    masks: Factual,
    commands: Commands,
    batch: int,
) -> TubeEdits:
    """Tubes of one kind; `masks` has whatever the targets are made from, the track's frames first.

    Commands come frame by frame, and within a frame in their order.
    """
    time, kind = len(track.factual), KINDS.index(commands.kind)
    drawn = torch.zeros(len(commands), *masks.masks.shape[-2:], dtype=torch.bool)
    for chunk, slot, (_, logits) in decode_edits(model, track.factual, commands, batch):
        drawn[chunk] = compositing.compute_masks(logits)[:, slot].cpu()

    def tubes(frames: Tensor) -> Tensor:
        return frames.unflatten(0, (time, -1)).transpose(0, 1)

    target = tubes(compute_targets(masks, commands, torch.arange(len(commands)))[1])
    unchanged = tubes(masks.masks[commands.window, commands.slot])
    count = len(target)
    return TubeEdits(
        video=np.full(count, track.video, dtype=np.int64),
        donor_video=np.full(count, donor.video, dtype=np.int64),
        kind=np.full(count, kind, dtype=np.int64),
        command=commands.command[:count].numpy(),
        f1=metrics.tube_f1(tubes(drawn), target).numpy(),
        noop=metrics.tube_f1(unchanged, target).numpy(),
        valid=(target.sum((-3, -2, -1)) >= count_fewest_pixels(*target.shape[-2:])).numpy(),
    )


def _locate_slot(track: ObjectTrack, first: int) -> Objects:
    """The followed slot in every frame, the frames being rows from `first` on."""
    frames = torch.arange(len(track.factual))
    return frames + first, torch.full_like(frames, track.anchor.slot)


def _join_edits(pieces: Sequence[TubeEdits]) -> TubeEdits:
    none, whole = np.zeros(0), np.zeros(0, dtype=np.int64)
    nothing = TubeEdits(whole, whole, whole, whole, none, none, np.zeros(0, dtype=np.bool_))
    pieces = [nothing, *pieces]
    return TubeEdits(
        *(np.concatenate([getattr(p, part.name) for p in pieces]) for part in fields(TubeEdits))
    )


def _score_kind(edits: TubeEdits, kind: CommandKind) -> TubeKind:
    scored = edits.where(edits.valid)
    if len(scored) == 0:
        return TubeKind(Interval(float("nan"), float("nan"), float("nan")), float("nan"), 0)
    names, video = np.unique(scored.video, return_inverse=True)

    def means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return PERCENT * _average_commands(values, scored.command, weights[:, video])

    once = np.ones((1, len(names)))
    if kind == "transplant":  # one command: a plain mean
        f1 = metrics.pair_weighted_interval(
            PERCENT * scored.f1, scored.video, scored.donor_video, REPLICATES
        )
    else:
        low, high = np.percentile(
            means(scored.f1, _resample_videos(len(names))), metrics.PERCENTILES
        )
        f1 = Interval(float(means(scored.f1, once)[0]), float(low), float(high))
    return TubeKind(f1, float(means(scored.noop, once)[0]), len(scored))


def _resample_videos(videos: int) -> Float64[np.ndarray, "replicate video"]:
    """How often each video is drawn: the resamples of `metrics.pooled_interval`."""
    share = np.full(videos, 1 / videos)
    drawn = np.random.default_rng(0).multinomial(videos, share, size=REPLICATES)
    return drawn.astype(np.float64)


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
    return sums / defined
