"""Evaluate a model that is not ours: two attributes and two methods are enough.

    python examples/evaluate_your_model.py

The model here does not learn: six soft discs that sit where slots start, in the colours below them.
It obeys every command, sees no objects, and shows what the tables make of that.
"""

from pathlib import Path

import torch
from torch import Tensor

from geoco.config import SolidsConfig
from geoco.data import SolidsDataset
from geoco.evaluation import Encoded, evaluate
from geoco.geometry import build_grid
from geoco.models.slots import Slots


class Discs:
    slots, size = 6, 64

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        place = starts[:, :, None]  # [batch slot 1 2], as grid_sample wants it
        colors = torch.nn.functional.grid_sample(frames, place, align_corners=True)[..., 0].mT
        scale = torch.full(starts.shape[:2], 0.2)
        scale[:, 0] = 2.0  # the first slot is the background
        return Encoded(Slots(colors, starts, scale), None)

    def decode(self, encoded: Encoded, slots: Slots) -> tuple[Tensor, Tensor]:
        away = build_grid(64, 64) - slots.position[:, :, None, None]
        logits = 10 * (1 - away.norm(dim=-1) / slots.scale[:, :, None, None])
        rgb = slots.appearance[..., None, None].expand(-1, -1, -1, 64, 64)
        return rgb, logits


def main() -> None:
    dataset = SolidsDataset(SolidsConfig(), "val")
    out = Path("runs") / "discs"
    evaluate(Discs(), dataset, out, "discs", ("factual", "editing"), windows=20)
    print((out / "tables.md").read_text())


if __name__ == "__main__":
    main()
