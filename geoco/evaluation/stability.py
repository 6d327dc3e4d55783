"""Stability at fixed geometry: does the same position and scale give the same extent to all?

An object is drawn at the centre in three sizes, with a background and nobody else. What then
varies over objects is due to appearance. No output is excluded: an empty one counts as zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from geoco import metrics
from geoco.errors import GeocoError
from geoco.evaluation.interfaces import Encoded, OneSlotModel, SlotModel
from geoco.evaluation.windows import Factual, Progress
from geoco.metrics import Spread
from geoco.models.compositing import compute_masks
from geoco.models.slots import Slots

SCALES = (0.1, 0.2, 0.3)
APPEARANCES = 1024
BACKGROUNDS = 8
SEED = 20260717  # of the shared-background sample; the paper's validation-loader seed


@dataclass(frozen=True)
class SpreadAtScale:
    """Mean, deviation and variation of radius and coverage over appearances at one scale."""

    scale: float
    radius: Spread
    coverage: Spread


@dataclass(frozen=True)
class StabilityScores:
    """Each object with its own factual background, pooled."""

    objects: int
    spreads: tuple[SpreadAtScale, ...]


@dataclass(frozen=True)
class SharedBackgroundScores:
    """Objects with common backgrounds: spreads within each background, averaged over them."""

    appearances: int
    backgrounds: tuple[str, ...]  # the videos they come from
    spreads: tuple[SpreadAtScale, ...]


@dataclass(frozen=True)
class BackgroundPairs:
    """An object and the background that it is drawn with: windows are rows of the record."""

    window: Int64[Tensor, " pair"]
    slot: Int64[Tensor, " pair"]
    background_window: Int64[Tensor, " pair"]
    background_slot: Int64[Tensor, " pair"]

    def __len__(self) -> int:
        return len(self.window)


def score_stability(
    model: SlotModel,
    factual: Factual,
    batch: int,
    progress: Progress = lambda done, total: None,
) -> StabilityScores:
    """Every valid object with the background of its own window."""
    window, slot = factual.objects
    pairs = BackgroundPairs(window, slot, window, factual.background[window])
    radius, coverage = _measure_extents(model, factual, pairs, batch, progress)
    spreads = tuple(
        SpreadAtScale(scale, _measure_spread(radius[:, k]), _measure_spread(coverage[:, k]))
        for k, scale in enumerate(SCALES)
    )
    return StabilityScores(len(pairs), spreads)


def score_shared_background(
    model: SlotModel,
    factual: Factual,
    batch: int,
    progress: Progress = lambda done, total: None,
) -> SharedBackgroundScores:
    """A sample of objects, each with each of a few backgrounds from distinct videos."""
    window, slot = factual.objects
    chosen = sample_objects(len(window))
    rows = choose_backgrounds(factual)
    grid = torch.cartesian_prod(rows, chosen)
    backgrounds, objects = grid.unbind(1)
    pairs = BackgroundPairs(
        window[objects], slot[objects], backgrounds, factual.background[backgrounds]
    )
    radius, coverage = _measure_extents(model, factual, pairs, batch, progress)
    shape = (len(rows), len(chosen), len(SCALES))
    radius, coverage = radius.reshape(shape), coverage.reshape(shape)
    spreads = tuple(
        SpreadAtScale(scale, _average_spread(radius[..., k]), _average_spread(coverage[..., k]))
        for k, scale in enumerate(SCALES)
    )
    names = tuple(factual.source[int(row)] for row in rows)
    return SharedBackgroundScores(len(chosen), names, spreads)


def sample_objects(count: int) -> Int64[Tensor, " chosen"]:
    """1,024 of the valid objects, or all there are, in their order."""
    drawn = np.random.default_rng((SEED, 0)).permutation(count)[:APPEARANCES]
    return torch.from_numpy(np.sort(drawn))


def choose_backgrounds(factual: Factual) -> Int64[Tensor, " background"]:
    """A window from each of eight videos, or of all there are; the same for every model."""
    generator = np.random.default_rng((SEED, 1))
    video = factual.video
    videos = generator.permutation(int(video.max()) + 1)[:BACKGROUNDS]
    return torch.tensor([int(generator.choice(np.flatnonzero(video == v))) for v in videos])


@torch.no_grad()
def _measure_extents(
    model: SlotModel, factual: Factual, pairs: BackgroundPairs, batch: int, progress: Progress
) -> tuple[Float64[np.ndarray, "pair scale"], Float64[np.ndarray, "pair scale"]]:
    """Radius and coverage of each object in each size."""
    if not factual.explicit:
        raise GeocoError("stability needs slots with a position and a scale; these have none")
    radius, coverage = (np.zeros((len(pairs), len(SCALES))) for _ in range(2))
    done = 0
    for chunk in _split_by_object(pairs, batch):
        encoded = _encode_pairs(factual, pairs, chunk)
        for k, logits in enumerate(_decode_sizes(model, encoded)):
            moments = metrics.support_moments(compute_masks(logits)[:, 0])
            radius[chunk.numpy(), k] = moments.radius.cpu().numpy()
            coverage[chunk.numpy(), k] = moments.coverage.cpu().numpy()
        done += len(chunk)
        progress(done, len(pairs))
    return radius, coverage


def _split_by_object(pairs: BackgroundPairs, batch: int) -> Iterator[Int64[Tensor, " pair"]]:
    """Pairs a few at a time, those of one object together: it is then drawn once for all."""
    order = torch.from_numpy(np.lexsort((pairs.slot.numpy(), pairs.window.numpy())))
    yield from order.split(batch) if len(pairs) else ()


def _decode_sizes(model: SlotModel, encoded: Encoded) -> Iterator[Tensor]:
    """Alpha logits with the object in each size; equal slots are drawn once, if that can be."""
    slots = encoded.slots
    if not isinstance(model, OneSlotModel):
        for scale in SCALES:
            yield model.decode(encoded, _place_first(slots, scale))[1]
        return
    background, behind = _drop_repetitions(slots[:, 1:])
    behind_fields = model.fields(background)[behind]
    for scale in SCALES:
        target, which = _drop_repetitions(_place_first(slots, scale)[:, :1])
        scene = model.fields(target)[which].with_slots(behind_fields)
        yield model.compose(encoded, scene)[1]


def _place_first(slots: Slots, scale: float) -> Slots:
    """The first slot at the centre, in a size."""
    position, scales = slots.position.clone(), slots.scale.clone()
    position[:, 0], scales[:, 0] = 0.0, scale
    return Slots(slots.appearance, position, scales)


def _drop_repetitions(slots: Slots) -> tuple[Slots, Int64[Tensor, " row"]]:
    """Scenes of one slot without repetition, and which of them each was."""
    parts = (slots.appearance.flatten(1), slots.position.flatten(1), slots.scale.flatten(1))
    unique, which = torch.cat([part.double() for part in parts], 1).unique(
        dim=0, return_inverse=True
    )
    first = torch.full((len(unique),), len(which)).scatter_reduce(
        0, which, torch.arange(len(which)), "amin"
    )
    return slots[first], which


def _encode_pairs(factual: Factual, pairs: BackgroundPairs, chunk: Tensor) -> Encoded:
    """Scenes of two slots, the object first, both as they are in their own frames."""
    window = torch.stack((pairs.window[chunk], pairs.background_window[chunk]), 1)
    slot = torch.stack((pairs.slot[chunk], pairs.background_slot[chunk]), 1)
    return Encoded(factual.slots, factual.attention, factual.active).rows((window, slot))


def _measure_spread(values: np.ndarray) -> Spread:
    if values.size == 0:
        return Spread(float("nan"), float("nan"), float("nan"))
    return metrics.fixed_geometry_spread(values)


def _average_spread(values: np.ndarray) -> Spread:
    if values.size == 0:
        return Spread(float("nan"), float("nan"), float("nan"))
    return metrics.background_averaged_spread(values)
