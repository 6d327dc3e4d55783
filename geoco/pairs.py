"""Appearance transplants: which slots are fit for them, and who gets whose appearance.

Everything here is detached and judged on the factual scene alone: a poor transplant cannot escape
supervision by invalidating its own pair. Nothing waits for the device: no shape depends on data.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from geoco import geometry, supports
from geoco.config_training import Quality
from geoco.geometry import EPSILON
from geoco.slots import Binding


@dataclass(frozen=True)
class Judged:
    """What the factual decomposition says of each slot."""

    foreground: Bool[Tensor, "*batch slot"]  # holds an object; all others are background
    positioned: Bool[Tensor, "*batch slot"]  # pos looks at it
    valid: Bool[Tensor, "*batch slot"]  # fit to give or take an appearance
    confidence: Float[Tensor, "*batch slot"]


@dataclass(frozen=True)
class Pairs:
    """One transplant per scene. Donors are counted over all slots of all scenes in order."""

    recipient: Int64[Tensor, " scene"]
    donor: Int64[Tensor, " scene"]
    confidence: Float[Tensor, " scene"]  # zero where a scene has no pair


@torch.no_grad()
def judge(
    logits: Float[Tensor, "*batch slot height width"], binding: Binding, settings: Quality
) -> Judged:
    """Foreground, fitness and confidence of slots, from what they own and attend to."""
    alpha = supports.ownership(logits)
    foreground = supports.foreground_slots(
        alpha,
        binding.slots.scale,
        settings.fewest_pixels,
        settings.most_coverage,
        settings.least_peak,
        settings.largest_scale,
    )
    # Without any background, support is one everywhere and says nothing.
    foreground_seen = foreground & ~foreground.all(-1, keepdim=True)
    support = supports.one_foreground(logits, ~foreground)
    shape = geometry.moments(support)
    positioned = foreground_seen & (shape.coverage <= settings.position_coverage)

    attention = binding.attention
    overlap = _largest_cosine(attention)
    tokens = 1 / attention.square().sum(-1).clamp_min(EPSILON)
    valid = (
        foreground_seen
        & (tokens >= settings.fewest_tokens)
        & (tokens <= settings.most_tokens * attention.shape[-1])
        & _inside(binding, logits.shape[-2:], settings)
        & (overlap < settings.most_overlap)
    )
    if settings.coherent:
        owned, covered = supports.hard_ownership(alpha), support > 0.5
        both = (owned & covered).sum((-2, -1))
        agreement = both / (owned | covered).sum((-2, -1)).clamp_min(1)
        valid = (
            valid
            & (shape.compactness >= settings.least_compactness)
            & (tokens >= settings.fewest_coherent_tokens)
            & (agreement >= settings.least_agreement)
        )
    return Judged(foreground, positioned, valid, 1 - overlap)


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


def _largest_cosine(
    attention: Float[Tensor, "*batch slot token"],
) -> Float[Tensor, "*batch slot"]:
    unit = attention / attention.square().sum(-1, keepdim=True).sqrt().clamp_min(EPSILON)
    cosine = unit @ unit.transpose(-1, -2)
    itself = torch.eye(cosine.shape[-1], dtype=torch.bool, device=cosine.device)
    return cosine.masked_fill(itself, 0).amax(-1).clamp(0, 1)


def _inside(binding: Binding, size: torch.Size, settings: Quality) -> Bool[Tensor, "*batch slot"]:
    """Whether a slot's reach, by the deviations of its attention, stays off the image's edge."""
    attention, position = binding.attention, binding.slots.position
    side = round(attention.shape[-1] ** 0.5)
    points = geometry.grid(side, side, dtype=position.dtype, device=position.device).flatten(0, 1)
    away = (points - position[..., None, :]).square()
    deviation = (attention[..., None] * away).sum(-2).sqrt()
    height, width = size
    reach = position.abs() + settings.deviations * deviation
    inside_x = reach[..., 0] <= 1 - settings.border * 2 / (width - 1)
    inside_y = reach[..., 1] <= 1 - settings.border * 2 / (height - 1)
    return inside_x & inside_y
