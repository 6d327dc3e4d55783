"""Models that know where everything is in a video, and the videos that they know."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from evaluation_oracles import STEP, Discs, scenes
from torch import Tensor

from geoco.data import ClipBatch
from geoco.evaluation import video as tubes
from geoco.evaluation.interfaces import (
    Decoded,
    Encoded,
    SlotModel,
    TrackedSlots,
)
from geoco.evaluation.video import (
    TubeRecords,
)
from geoco.evaluation.video_rows import choose_first_windows, compute_video_factual
from geoco.evaluation.windows import Windows, choose_windows
from geoco.geometry import build_grid
from geoco.models.slots import Slots

POSITION, SCALE, TRANSPLANT = range(3)


class Moving(Discs):
    """Discs whose slots of every frame are known: [window time slot ...]."""

    carries = True

    def __init__(self, scenes: Slots, size: int = 64) -> None:
        super().__init__(scenes, size)
        self.seen: dict[int, Tensor] = {}  # where the slots of each window were told to start
        self.largest = self.followed = 0  # frames at once

    @property
    def slots(self) -> int:
        return self.scenes.scale.shape[-1]

    def track(self, video: Tensor, starts: Tensor) -> TrackedSlots:
        number = (video[:, 0, 0, 0, 0] * 255).round().long()
        self.seen |= dict(zip(number.tolist(), starts, strict=True))
        self.followed = max(self.followed, video.shape[0] * video.shape[1])
        slots = self.scenes
        return TrackedSlots(
            Slots(slots.appearance[number], slots.position[number], slots.scale[number]), None
        )

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        self.largest = max(self.largest, len(slots.scale))
        return self.draw(slots)


class Deaf(Moving):
    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(encoded.slots)


class Boxes(Moving):
    """Squares instead of discs, so that pixels are easily counted."""

    def draw(self, slots: Slots) -> Decoded:
        away = build_grid(self.size, self.size, dtype=torch.float64)
        away = (away - slots.position.double()[..., None, None, :]).abs().amax(-1)
        half = slots.appearance[..., 0].double() * slots.scale.double()
        logits = 1e4 * (half[..., None, None] - away)
        background = slots.appearance[..., 1] > 0
        logits = torch.where(background[..., None, None], 0.0, logits)
        return torch.rand(*logits.shape[:2], 3, self.size, self.size), logits


class DeafBoxes(Boxes):
    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(encoded.slots)


@dataclass(frozen=True)
class Videos:
    """Windows of which each is a picture of its own number, with reference masks or without."""

    sources: Sequence[str]
    masks: Tensor | None
    time: int
    size: int = 64
    asked: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        self.asked.extend(indices)
        number = torch.tensor(indices, dtype=torch.uint8)[:, None, None, None, None]
        return ClipBatch(
            video=number.expand(-1, self.time, 3, self.size, self.size),
            sources=tuple(self.sources[index] for index in indices),
            frames=torch.arange(self.time).expand(len(indices), -1),
            masks=None if self.masks is None else self.masks[list(indices)],
        )


def discs(windows: int = 5, time: int = 4, objects: int = 1) -> Slots:
    """Random discs that sink by a pixel per frame."""
    first = scenes(windows, (10.0, 13.0) if objects == 1 else (5.0, 6.0), objects)
    fall = torch.arange(time)[None, :, None, None] * torch.tensor([0.0, STEP])
    return Slots(
        first.appearance[:, None].expand(-1, time, -1, -1).clone(),
        first.position[:, None] + fall,
        first.scale[:, None].expand(-1, time, -1).clone(),
    )


def boxes(sides: Sequence[Sequence[int]], place: tuple[float, float] = (0.0, 0.0)) -> Slots:
    """One box in front of a background; its side in pixels, even, for each window and frame."""
    side = torch.tensor(sides, dtype=torch.float32)
    looks = torch.stack((side / 2, torch.zeros_like(side)), -1)[:, :, None]
    rest = torch.tensor([0.0, 1.0]).expand_as(looks)
    return Slots(
        torch.cat((rest, looks), 2),
        torch.tensor(place).expand(*side.shape, 2, 2).clone(),
        torch.full((*side.shape, 2), STEP),
    )


def make_videos(model: Moving, sources: Sequence[str] | None = None) -> Videos:
    """The windows of a model, its own factual ownership as the reference."""
    slots = model.scenes
    windows, time = slots.scale.shape[:2]
    _, logits = model.draw(
        Slots(
            slots.appearance.flatten(0, 1), slots.position.flatten(0, 1), slots.scale.flatten(0, 1)
        )
    )
    owner = logits.argmax(1).to(torch.uint8).unflatten(0, (windows, time))
    return Videos(sources or [f"video {w}" for w in range(windows)], owner, time, model.size)


def record_tubes(
    model: SlotModel,
    dataset: Windows,
    batch: int,
    limit: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TubeRecords:
    """The records of a dataset's first windows."""
    chosen = choose_first_windows(dataset, choose_windows(dataset, limit))
    factual = compute_video_factual(model, dataset, chosen, batch)
    return tubes.record_tubes(model, factual, batch, progress)


def f1_of(records: TubeRecords, kind: int) -> list[float]:
    return records.edits.f1[records.edits.kind == kind].tolist()
