"""Features of the frozen encoder, drawn by slots under the alpha of the picture; ours.

What groups pixels by objects best reconstructs features, what edits pictures reconstructs colours.
The head is asked for both: each slot draws features on the token grid in its own frame, and they
are composed by the alpha that composes colours, averaged over each token's pixels. Editing does
not use it.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from geoco import config, geometry
from geoco.models.slots import Slots


class FeatureHead(nn.Module):
    """From slots and their alpha, on frames of `size`, to features on a grid of `side` tokens."""

    pooling: Tensor

    def __init__(
        self, settings: config.FeatureHeadConfig, dim: int, channels: int, size: int, side: int
    ) -> None:
        super().__init__()
        self.settings = settings
        self.place = nn.Linear(2, dim)
        self.layers = nn.Sequential(
            nn.Linear(dim, settings.hidden),
            nn.ReLU(),
            nn.Linear(settings.hidden, settings.hidden),
            nn.ReLU(),
        )
        self.read = nn.Linear(settings.hidden, channels)
        self.register_buffer("pooling", compute_pooling_matrix(size, side), persistent=False)

    def forward(
        self,
        slots: Slots,
        alpha: Float[Tensor, "batch time slot height width"],
    ) -> Float[Tensor, "batch time token channel"]:
        leading, side = slots.scale.shape[:2], len(self.pooling)
        flat = slots.map(lambda part: part.flatten(0, 1))
        kind, device = flat.scale.dtype, flat.scale.device
        points = geometry.build_grid(side, side, dtype=kind, device=device).flatten(0, 1)
        with torch.autocast(device.type, enabled=False):  # coordinates are never rounded
            place = self.place(geometry.to_slot_frame(points, flat.position, flat.scale))
            share = (self.pooling @ alpha.to(self.pooling.dtype) @ self.pooling.T).flatten(-2)
        drawn = self.layers(flat.appearance[:, :, None] + place)
        # Shares sum to one, so that the last layer may come after the sum: once, not for each slot.
        together = torch.einsum("bsn,bsnd->bnd", share.flatten(0, 1).to(drawn.dtype), drawn)
        features: Tensor = self.read(together)
        return features.unflatten(0, leading)


def compute_pooling_matrix(size: int, side: int) -> Float[Tensor, "{side} {size}"]:
    """What averaging over the pixels of each token does along one axis, as a matrix."""
    pooled = F.adaptive_avg_pool1d(torch.eye(size, dtype=torch.float64), side)
    return pooled.T.contiguous().float()
