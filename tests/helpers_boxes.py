"""Boxes whose slots of every frame are known, and their own pictures as a dataset."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from evaluation_oracles import STEP, Discs, video_major
from torch import Tensor

from geoco.data import ClipBatch
from geoco.evaluation import (
    Factual,
    TrackedSlots,
)
from geoco.evaluation.interfaces import Decoded, Encoded
from geoco.evaluation.video_rows import compute_video_factual
from geoco.geometry import build_grid
from geoco.models import compositing
from geoco.models.slots import Slots

COLORS = torch.tensor([[0.5, 0.5, 0.5], [0.8, 0.2, 0.2], [0.2, 0.3, 0.8], [0.1, 0.9, 0.3]])


class Boxes(Discs):
    """Squares of even sides on pixel edges, drawn exactly; slots of every frame are known.

    [window time slot ...]; slot 0 is the background. Half a side is appearance times scale.
    """

    carries = True

    def __init__(self, scenes: Slots, size: int = 64) -> None:
        super().__init__(scenes, size)

    @property
    def slots(self) -> int:
        return self.scenes.scale.shape[-1]

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        number = (frames[:, 0, 0, 0] * 255).round().long()
        return Encoded(self.scenes[number, 0], None)

    def track(self, video: Tensor, starts: Tensor) -> TrackedSlots:
        number = (video[:, 0, 0, 0, 0] * 255).round().long()
        return TrackedSlots(self.scenes[number], None)

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(slots)

    def draw(self, slots: Slots) -> Decoded:
        away = build_grid(self.size, self.size, dtype=torch.float64)
        away = (away - slots.position.double()[..., None, None, :]).abs().amax(-1)
        half = slots.appearance[..., 0].double() * slots.scale.double()
        logits = 1e4 * (half[..., None, None] - away)
        background = slots.appearance[..., 1] > 0
        logits = torch.where(background[..., None, None], 0.0, logits)
        colors = COLORS[: self.slots][: logits.shape[1]].expand(len(logits), -1, -1)
        return colors[..., None, None].expand(-1, -1, -1, self.size, self.size), logits


class DeafBoxes(Boxes):
    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(encoded.slots)


class SwappingBoxes(Boxes):
    """Its first two objects change slots half-way."""

    def track(self, video: Tensor, starts: Tensor) -> TrackedSlots:
        slots = super().track(video, starts).slots
        half = slots.scale.shape[1] // 2
        order = torch.tensor([0, 2, 1])
        later = slots[:, half:].map(lambda part: part[:, :, order])
        return TrackedSlots(Slots.cat((slots[:, :half], later), 1), None)


def make_scenes(clips: int = 3, time: int = 4, sides: Sequence[int] = (12, 16)) -> Slots:
    """Boxes on either side, each clip's a little elsewhere, that sink by a pixel per frame."""
    place = torch.tensor([(0.0, 0.0), (-0.5, 0.0), (0.5, 0.0)])[: len(sides) + 1]
    pixels = ((place + 1) / STEP).floor() + 0.5  # between pixels: sides are even
    pixels = pixels.expand(clips, time, -1, -1).clone()
    pixels[..., 1] += torch.arange(time)[:, None] + torch.arange(clips)[:, None, None]
    half = torch.tensor([0.0, *sides]) / 2
    looks = torch.stack((half, (half == 0).float()), -1).expand(clips, time, -1, -1)
    return Slots(looks.clone(), pixels * STEP - 1, torch.full((clips, time, len(half)), STEP))


@dataclass(frozen=True)
class Clips:
    """A model's own pictures as a dataset; masks of its objects, each pixel `zoom` to a side."""

    model: Boxes
    sources: Sequence[str]
    zoom: int = 1
    description: str = "boxes"

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        chosen = list(indices)
        scenes = self.model.scenes[chosen]
        time = scenes.scale.shape[1]
        rgb, logits = self.model.draw(scenes.map(lambda part: part.flatten(0, 1)))
        image = compositing.composite(rgb, compositing.compute_alpha(logits))
        video = (255 * image).round().to(torch.uint8).unflatten(0, (-1, time))
        video[:, :, :, 0, 0] = torch.tensor(chosen, dtype=torch.uint8)[:, None, None]
        owner = logits.argmax(1).to(torch.uint8).unflatten(0, (-1, time))
        return ClipBatch(
            video=video,
            sources=tuple(self.sources[index] for index in chosen),
            frames=torch.arange(time).expand(len(chosen), -1),
            masks=owner.repeat_interleave(self.zoom, -1).repeat_interleave(self.zoom, -2),
        )


def make_factual(model: Boxes, zoom: int = 1, videos: int | None = None) -> tuple[Clips, Factual]:
    clips = model.scenes.scale.shape[0]
    dataset = Clips(model, video_major(videos or clips, clips // (videos or clips)), zoom)
    return dataset, compute_video_factual(model, dataset, np.arange(clips), 7)
