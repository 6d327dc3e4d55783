"""Appearance transplants: which slot of a scene gets whose appearance, and what that looks like.

Nothing waits for the device: no shape depends on data.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from geoco.config.training import TrainConfig
from geoco.geometry import EPSILON, Moments
from geoco.models.interface import Model
from geoco.models.slot_quality import SlotQuality
from geoco.models.slots import Binding, Slots
from geoco.training.distributed import gather_rows


@dataclass(frozen=True)
class TransplantPairs:
    """One transplant per scene. Donors are counted over all slots of all scenes in order."""

    recipient: Int64[Tensor, " scene"]
    donor: Int64[Tensor, " scene"]
    confidence: Float[Tensor, " scene"]  # zero where a scene has no pair


@dataclass(frozen=True)
class Transplants:
    """One slot per scene with another appearance, and what it should keep."""

    margin: Float[Tensor, "*scenes height width"]  # over the background, as decoded
    recipient: Moments
    donor_compactness: Float[Tensor, "*scenes"]
    position: Float[Tensor, "*scenes 2"]
    scale: Float[Tensor, "*scenes"]
    confidence: Float[Tensor, "*scenes"]


@torch.no_grad()
def choose_pairs(
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
) -> TransplantPairs:
    """At most one pair per scene, with a donor of another source and of similar scale.

    `order` and `choice` are uniform random numbers: the valid recipient of smallest `order` that
    has a donor wins, its donor is uniform over those it could have.
    """
    slots = recipients.shape[1]
    ratio = scale[:, :, None] / donor_scale.flatten().clamp_min(EPSILON)
    similar = (ratio >= scale_ratio[0]) & (ratio <= scale_ratio[1])
    foreign = source[:, None] != donor_source[None].repeat_interleave(slots, 1)
    fits = recipients[:, :, None] & donors.flatten() & similar & foreign[:, None]
    has_donor = fits.any(-1)
    recipient = torch.where(has_donor, order, torch.full_like(order, 2.0)).argmin(-1)
    candidates = fits.gather(1, recipient[:, None, None].expand(-1, 1, fits.shape[-1]))[:, 0]
    rank = candidates.cumsum(-1)
    wanted = (choice * rank[:, -1]).floor().to(rank.dtype) + 1
    donor = (candidates & (rank == wanted[:, None])).to(torch.uint8).argmax(-1)
    of_donor = donor_confidence.flatten()[donor]
    of_recipient = confidence.gather(1, recipient[:, None])[:, 0]
    product = of_recipient * of_donor
    none = torch.zeros_like(product)
    return TransplantPairs(recipient, donor, torch.where(has_donor.any(-1), product, none))


def decode_transplants(
    model: Model,
    binding: Binding,
    quality: SlotQuality,
    background: Float[Tensor, "batch time 1 height width"],
    moments: Moments,
    source: Int64[Tensor, " batch"],
    order: Float[Tensor, "batch time slot"],
    choice: Float[Tensor, "batch time"],
    settings: TrainConfig,
    choose: Callable[..., TransplantPairs] = choose_pairs,
) -> Transplants:
    """Choose pairs on the frames that geo looks at, and decode the transplanted slots' alpha.

    `background` and `moments` are of the supports as they are; donors are those of all processes.
    """
    frames = [t for t in settings.geometry_frames if t < binding.attention.shape[1]]
    slots = binding.slots
    every_source = gather_rows(source)
    by_frame = []
    for t in frames:
        # Appearance stays live: the donor's path learns from what became of it.
        donor_appearance = gather_rows(slots.appearance[:, t]).flatten(0, 1)
        donor_compactness = gather_rows(moments.compactness[:, t].detach()).flatten()
        pairs = choose(
            quality.valid[:, t],
            slots.scale[:, t].detach(),
            quality.confidence[:, t],
            source,
            gather_rows(quality.valid[:, t]),
            gather_rows(slots.scale[:, t].detach()),
            gather_rows(quality.confidence[:, t]),
            every_source,
            order[:, t],
            choice[:, t],
            settings.quality.scale_ratio,
        )
        own = torch.arange(len(source), device=source.device)
        position = slots.position[:, t].detach()[own, pairs.recipient]
        scale = slots.scale[:, t].detach()[own, pairs.recipient]
        decoded = model.decode_slots(
            Slots(donor_appearance[pairs.donor], position, scale), alpha_only=True
        )
        recipient = Moments(
            *(part[:, t].detach()[own, pairs.recipient] for part in vars(moments).values())
        )
        by_frame.append(
            Transplants(
                decoded.logits - background[:, t, 0],
                recipient,
                donor_compactness[pairs.donor],
                position,
                scale,
                pairs.confidence,
            )
        )
    return _stack_frames(by_frame)


def _stack_frames(by_frame: Sequence[Transplants]) -> Transplants:
    def stack(name: str) -> Tensor:
        return torch.stack([getattr(frame, name) for frame in by_frame], 1)

    names = ("center", "radius", "coverage", "compactness")
    recipient = Moments(
        *(torch.stack([getattr(frame.recipient, name) for frame in by_frame], 1) for name in names)
    )
    return Transplants(
        stack("margin"),
        recipient,
        stack("donor_compactness"),
        stack("position"),
        stack("scale"),
        stack("confidence"),
    )
