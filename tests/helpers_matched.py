"""Models that paint what they are told, for the object-matched tables."""

from collections.abc import Sequence

import torch
from evaluation_oracles import Discs, scenes, video_major
from torch import Tensor

from geoco.data import ClipBatch
from geoco.evaluation import (
    Encoded,
    make_unplaced_slots,
    matched,
    windows,
)
from geoco.evaluation.interfaces import Decoded
from geoco.models import compositing
from geoco.models.slots import Slots

COLORS = torch.tensor([[0.5, 0.5, 0.5], [0.8, 0.2, 0.2], [0.2, 0.3, 0.8]])


class Painted(Discs):
    """Discs on a grey floor, each slot in its own colour."""

    def draw(self, slots: Slots) -> Decoded:
        logits = super().draw(slots)[1]
        colors = COLORS[: logits.shape[1]].expand(len(logits), -1, -1)
        return colors[..., None, None].expand(-1, -1, -1, self.size, self.size), logits


class PaintedDeaf(Painted):
    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(encoded.slots)


class PaintedMute(Painted):
    """Knows no position and no scale, and takes no command: all is appearance."""

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        slots = super().encode(frames, starts).slots
        parts = (slots.appearance, slots.position, slots.scale[..., None])
        return Encoded(make_unplaced_slots(torch.cat(parts, -1)), None)

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        state = slots.appearance
        return self.draw(Slots(state[..., :2], state[..., 2:4], state[..., 4]))


class Shown:
    """The pictures of a model as a dataset, with its own masks as reference."""

    def __init__(self, model: Painted, sources: Sequence[str]) -> None:
        self.sources = sources
        rgb, logits = model.draw(model.scenes)
        image = compositing.composite(rgb, compositing.compute_alpha(logits))
        self.frames = (255 * image).round().to(torch.uint8)
        # Which window a frame is of is told by its corner, which no disc covers.
        self.frames[:, :, 0, 0] = torch.arange(len(sources), dtype=torch.uint8)[:, None]
        self.masks = logits.argmax(1).to(torch.uint8)

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        chosen = list(indices)
        return ClipBatch(
            self.frames[chosen, None],
            tuple(self.sources[k] for k in chosen),
            torch.zeros(len(chosen), 1, dtype=torch.int64),
            self.masks[chosen, None],
        )


def record_discs(kind: type[Painted] = Painted) -> tuple[Painted, Shown, matched.MatchedRecords]:
    model = kind(scenes(6, radii=(8.0, 9.0), objects=2))
    dataset = Shown(model, video_major(3, 2))
    factual = windows.compute_factual(model, dataset, 4)
    return model, dataset, matched.record_matched(model, dataset, factual, 4)
