"""Models whose scores are known beforehand, and the windows that they are evaluated on.

Discs drawn analytically: at p, with radius appearance x s. Or their masks, warped pixel by pixel.
Frames say nothing but which window they are of, and the oracle knows the slots of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from geoco import geometry, metrics
from geoco.data import ClipBatch
from geoco.evaluation import Encoded
from geoco.evaluation.interfaces import Decoded
from geoco.models.compositing import compute_masks
from geoco.models.slots import Slots

STEP = 2 / 63  # one pixel of 64


@dataclass(frozen=True)
class Numbered:
    """Windows of which each is a picture of its own number; video-major, as datasets are."""

    sources: Sequence[str]
    size: int = 64
    masks: Tensor | None = None
    asked: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        self.asked.extend(indices)
        number = torch.tensor(indices, dtype=torch.uint8)
        return ClipBatch(
            video=number[:, None, None, None, None].expand(-1, 1, 3, self.size, self.size),
            sources=tuple(self.sources[index] for index in indices),
            frames=torch.zeros(len(indices), 1, dtype=torch.int64),
            masks=None if self.masks is None else self.masks[list(indices), None],
        )


class Discs:
    """Draws every slot exactly where and as large as it says; slot 0 is the background."""

    def __init__(self, scenes: Slots, size: int = 64) -> None:
        self.scenes, self.size = scenes, size
        self.decoded = 0

    @property
    def slots(self) -> int:
        return self.scenes.scale.shape[1]

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        number = (frames[:, 0, 0, 0] * 255).round().long()
        return Encoded(self.scenes, None).rows(number)

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        self.decoded += len(slots.scale)
        return self.draw(slots)

    def draw(self, slots: Slots) -> Decoded:
        points = geometry.build_grid(self.size, self.size, dtype=torch.float64)
        away = points - slots.position.double()[..., None, None, :]
        radius = slots.appearance[..., 0].double() * slots.scale.double()
        logits = 1e4 * (radius[..., None, None] - torch.linalg.vector_norm(away, dim=-1))
        background = slots.appearance[..., 1] > 0
        logits = torch.where(background[..., None, None], 0.0, logits)
        return torch.rand(*logits.shape[:2], 3, self.size, self.size), logits


class Warped(Discs):
    """Warps the discs' factual masks; a position is the centroid, an appearance says whose mask.

    Sampled by PyTorch, not by the protocol's own function.
    """

    def __init__(self, scenes: Slots, size: int = 64) -> None:
        self.masks = compute_masks(Discs(scenes, size).draw(scenes)[1])
        windows, count = scenes.scale.shape
        whose = torch.cartesian_prod(torch.arange(windows), torch.arange(count)).float()
        center = metrics.support_moments(self.masks).center
        super().__init__(
            replace(scenes, appearance=whose.view(windows, count, 2), position=center), size
        )

    def draw(self, slots: Slots) -> Decoded:
        whose = slots.appearance.long().unbind(-1)
        source = self.scenes[whose]
        shrink = (source.scale.double() / slots.scale)[..., None, None, None]
        points = geometry.build_grid(self.size, self.size, dtype=torch.float64)
        away = points - slots.position[..., None, None, :]
        # A little to the right and down: half-way between pixels takes those, not the even ones.
        places = source.position[..., None, None, :] + shrink * away + 1e-6
        masks = self.masks[whose].double().flatten(0, 1)[:, None]
        warped = F.grid_sample(masks, places.flatten(0, 1), mode="nearest", align_corners=True)
        logits = (2 * warped - 1).view(*slots.scale.shape, self.size, self.size)
        logits = torch.where((whose[1] == 0)[..., None, None], 0.0, logits)
        return torch.zeros(*logits.shape[:2], 3, self.size, self.size), logits


class Deaf(Discs):
    """Ignores every command."""

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(encoded.slots)


class Moody(Discs):
    """Obeys about half of the commands; which ones depends on the command alone."""

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        state = 37.3 * slots.position.sum((1, 2)) + 91.7 * (
            slots.scale + slots.appearance[..., 0]
        ).sum(1)
        obeys = state.mul(1e3).frac().abs() < 0.5
        old = encoded.slots

        def choose_obeyed(new: Tensor, kept: Tensor) -> Tensor:
            return torch.where(obeys.view(-1, *[1] * (new.ndim - 1)), new, kept)

        return self.draw(
            Slots(
                choose_obeyed(slots.appearance, old.appearance),
                choose_obeyed(slots.position, old.position),
                choose_obeyed(slots.scale, old.scale),
            )
        )


def scenes(
    windows: int, radii: tuple[float, float] = (10.0, 13.0), objects: int = 1, seed: int = 0
) -> Slots:
    """Random discs apart from each other; radii in pixels, appearance is radius over scale."""
    draw = torch.Generator().manual_seed(seed)
    places = torch.tensor([[0.0, 0.0], [-0.55, 0.0], [0.55, 0.0]])
    places = places[:1] if objects == 1 else places[1 : objects + 1]
    jitter = 0.1 * (torch.rand(windows, objects, 2, generator=draw) - 0.5)
    radius = radii[0] + (radii[1] - radii[0]) * torch.rand(windows, objects, generator=draw)
    factor = 1.2 + 0.6 * torch.rand(windows, objects, generator=draw)
    appearance = torch.stack((factor, torch.zeros_like(factor)), -1)
    return Slots(
        torch.cat((torch.tensor([0.0, 1.0]).expand(windows, 1, 2), appearance), 1),
        torch.cat((torch.zeros(windows, 1, 2), places + jitter), 1),
        torch.cat((torch.full((windows, 1), 0.8), radius * STEP / factor), 1),
    )


def video_major(videos: int, windows: int) -> list[str]:
    return [f"video {number // windows}" for number in range(videos * windows)]
