"""Appearance transplants: which slot of a scene gets whose appearance.

Nothing waits for the device: no shape depends on data.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from geoco.geometry import EPSILON


@dataclass(frozen=True)
class Pairs:
    """One transplant per scene. Donors are counted over all slots of all scenes in order."""

    recipient: Int64[Tensor, " scene"]
    donor: Int64[Tensor, " scene"]
    confidence: Float[Tensor, " scene"]  # zero where a scene has no pair


@torch.no_grad()
def choose(
    recipients: Bool[Tensor, "scene slot"],
    scale: Float[Tensor, "scene slot"],
    confidence: Float[Tensor, "scene slot"],
    source: Int64[Tensor, " scene"],
    donors: Bool[Tensor, "every slot"],
    donor_scale: Float[Tensor, "every slot"],
    donor_confidence: Float[Tensor, "every slot"],
    donor_source: Int64[Tensor, " every"],
    order: Float[Tensor, "scene slot"],
    choice: Float[Tensor, " scene"],
    scale_ratio: tuple[float, float],
) -> Pairs:
    """At most one pair per scene, with a donor of another source and of similar scale.

    `order` and `choice` are uniform random numbers: the valid recipient of smallest `order` that
    has a donor wins, its donor is uniform over those it could have.
    """
    slots = recipients.shape[1]
    ratio = scale[:, :, None] / donor_scale.flatten().clamp_min(EPSILON)
    similar = (ratio >= scale_ratio[0]) & (ratio <= scale_ratio[1])
    foreign = source[:, None] != donor_source[None].repeat_interleave(slots, 1)
    fits = recipients[:, :, None] & donors.flatten() & similar & foreign[:, None]
    able = fits.any(-1)
    recipient = torch.where(able, order, torch.full_like(order, 2.0)).argmin(-1)
    mine = fits.gather(1, recipient[:, None, None].expand(-1, 1, fits.shape[-1]))[:, 0]
    rank = mine.cumsum(-1)
    wanted = (choice * rank[:, -1]).floor().to(rank.dtype) + 1
    donor = (mine & (rank == wanted[:, None])).to(torch.uint8).argmax(-1)
    given = donor_confidence.flatten()[donor]
    taken = confidence.gather(1, recipient[:, None])[:, 0]
    product = taken * given
    return Pairs(recipient, donor, torch.where(able.any(-1), product, torch.zeros_like(product)))
