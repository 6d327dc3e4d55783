"""The selector's operating point, chosen on clips of the training split alone.

The teacher labels their pixels; the threshold is the smallest at which what the selector
would give up is right often enough. It is printed, not written: `model.selector.threshold` sets it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from geoco.config.training import SelectorTeacherConfig
from geoco.data import ClipDataset
from geoco.errors import GeocoError
from geoco.models.decoders import Fields
from geoco.models.interface import Model
from geoco.models.selector import Domain, find_domain
from geoco.training import selector_teacher


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold, and what it would do on those clips."""

    threshold: float
    precision: float  # of the labelled pixels it gives up, by the teacher's confidence
    recall: float  # of the teacher's positive pixels


@dataclass(frozen=True)
class BoundClips:
    """Some clips as a model sees them, before its selector."""

    video: Float[Tensor, "clip time 3 height width"]
    fields: Fields
    attention: Float[Tensor, "clip time slot token"]
    domain: Domain


@torch.no_grad()
def bind_clips(
    model: Model,
    dataset: ClipDataset,
    clips: int,
    generator: torch.Generator,
    batch: int = 8,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[BoundClips]:
    """Clips spread over a split, some at a time; slots start where the generator says."""
    if model.selector is None:
        raise GeocoError("this model has no selector: model.selector.enabled is false")
    rows = np.linspace(0, len(dataset) - 1, min(clips, len(dataset))).round().astype(int)
    done = 0
    for part in np.array_split(rows, -(-len(rows) // batch)):
        video = dataset.batch_frames(part.tolist()).images()
        positions = model.draw_positions(len(video), generator)
        binding = model.bind(video, positions)
        fields = model.decode_slots(binding.slots)
        domain = find_domain(fields.logits, model.selector.settings)
        yield BoundClips(video, fields, binding.attention, domain)
        done += len(part)
        progress(done, len(rows))


@torch.no_grad()
def measure_operating_points(
    model: Model,
    dataset: ClipDataset,
    clips: int,
    settings: SelectorTeacherConfig,
    generator: torch.Generator,
    batch: int = 8,
) -> list[OperatingPoint]:
    """What every threshold from 0.01 to 0.99 would do."""
    scores, positives, protected = [], [], []
    for bound in bind_clips(model, dataset, clips, generator, batch):
        assert model.selector is not None
        score = model.selector(bound.fields, bound.attention, bound.domain)
        labels = selector_teacher.label_pixels(
            bound.video, bound.fields, bound.attention, bound.domain, settings
        )
        scores.append(torch.sigmoid(score).flatten())
        positives.append(labels.positive.flatten())
        protected.append(labels.protected.flatten())
    return compute_operating_points(torch.cat(scores), torch.cat(positives), torch.cat(protected))


def compute_operating_points(
    score: Float[Tensor, " pixel"],
    positive: Float[Tensor, " pixel"],
    protected: Float[Tensor, " pixel"],
) -> list[OperatingPoint]:
    """Precision and recall by threshold; pixels that the teacher does not know are left out."""
    points = []
    for percent in range(1, 100):
        given_up = score > percent / 100
        right, wrong = float(positive[given_up].sum()), float(protected[given_up].sum())
        points.append(
            OperatingPoint(
                percent / 100,
                right / (right + wrong) if right + wrong > 0 else 1.0,
                right / max(float(positive.sum()), 1e-8),
            )
        )
    return points


def choose_operating_point(
    candidates: list[OperatingPoint], least_precision: float
) -> OperatingPoint:
    """The smallest threshold that is precise enough, else the most precise one."""
    precise = [point for point in candidates if point.precision >= least_precision]
    if precise:
        return min(precise, key=lambda point: point.threshold)
    return max(candidates, key=lambda point: point.precision)
