"""Evaluate a model whose slots have no position and no scale: it is told to move and resize them.

    python examples/evaluate_a_commanded_model.py

The model here does not learn: a slot is a colour and a mask, in one vector, and a command warps the
mask. So it obeys moves and sizes; a transplanted slot takes its place along, and the tables say so.
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.evaluation import Encoded, evaluate, make_unplaced_slots
from geoco.geometry import build_grid
from geoco.metrics import support_moments
from geoco.models.slots import Slots

Drawn = tuple[Tensor, Tensor]


class Masks:
    slots, size = 6, 64

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        place = starts[:, :, None]  # [batch slot 1 2], as grid_sample wants it
        colors = F.grid_sample(frames, place, align_corners=True)[..., 0].mT
        away = (frames[:, None] - colors[..., None, None]).square().sum(2)
        masks = F.one_hot(away.argmin(1), self.slots).movedim(-1, 1).float()
        largest = masks.sum((2, 3)).argmax(1)
        masks[torch.arange(len(masks)), largest] = 0.5  # the background, behind all others
        return Encoded(make_unplaced_slots(torch.cat((colors, masks.flatten(2)), -1)), None)

    def decode(self, encoded: Encoded, slots: Slots) -> Drawn:
        colors, masks = slots.appearance[..., :3], slots.appearance[..., 3:]
        rgb = colors[..., None, None].expand(-1, -1, -1, 64, 64)
        return rgb, 20 * masks.unflatten(-1, (64, 64)) - 10

    def command(self, encoded: Encoded, index: int, move: Tensor, factor: Tensor) -> Drawn:
        appearance = encoded.slots.appearance.clone()
        mask = appearance[:, index, 3:].unflatten(-1, (64, 64))
        center = support_moments(mask >= 0.5).center.float()  # resizing is about the centroid
        away = build_grid(64, 64) - (center + move)[:, None, None]
        source = center[:, None, None] + away / factor[:, None, None, None]
        warped = F.grid_sample(mask[:, None], source, align_corners=True)
        appearance[:, index, 3:] = warped.flatten(1)
        return self.decode(encoded, make_unplaced_slots(appearance))


def main() -> None:
    dataset = SolidsDataset(SolidsConfig(), "val")
    out = Path("runs") / "masks"
    evaluate(Masks(), dataset, out, "masks", ("factual", "editing"), windows=20)
    print((out / "tables.md").read_text())


if __name__ == "__main__":
    main()
