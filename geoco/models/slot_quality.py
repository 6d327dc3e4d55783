"""Which slots hold an object, and which are fit for transplants; judged on detached values.

From the factual scene alone: a poor transplant cannot escape supervision by invalidating its own
pair. Nothing waits for the device: no shape depends on data.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from geoco import geometry
from geoco.config.training import SlotQualityConfig
from geoco.geometry import EPSILON
from geoco.models import compositing
from geoco.models.slots import Binding


@dataclass(frozen=True)
class SlotQuality:
    """What the factual decomposition says of each slot."""

    foreground: Bool[Tensor, "*batch slot"]  # holds an object; all others are background
    positioned: Bool[Tensor, "*batch slot"]  # pos looks at it
    valid: Bool[Tensor, "*batch slot"]  # fit to give or take an appearance
    confidence: Float[Tensor, "*batch slot"]


@torch.no_grad()
def assess_slots(
    logits: Float[Tensor, "*batch slot height width"], binding: Binding, settings: SlotQualityConfig
) -> SlotQuality:
    """Foreground, fitness and confidence of slots, from what they own and attend to."""
    alpha = compositing.compute_alpha(logits)
    foreground = compositing.find_foreground_slots(
        alpha,
        binding.slots.scale,
        settings.fewest_pixels,
        settings.most_coverage,
        settings.least_peak,
        settings.largest_scale,
    )
    # Without any background, support is one everywhere and says nothing.
    foreground_seen = foreground & ~foreground.all(-1, keepdim=True)
    support = compositing.training_support(logits, ~foreground)
    shape = geometry.compute_moments(support)
    positioned = foreground_seen & (shape.coverage <= settings.position_coverage)

    attention = binding.attention
    overlap = _compute_largest_cosine(attention)
    tokens = 1 / attention.square().sum(-1).clamp_min(EPSILON)
    valid = (
        foreground_seen
        & (tokens >= settings.fewest_tokens)
        & (tokens <= settings.most_tokens * attention.shape[-1])
        & _stay_inside(binding, logits.shape[-2:], settings)
        & (overlap < settings.most_overlap)
    )
    if settings.coherent:
        owned, covered = compositing.compute_masks(alpha), support > 0.5
        both = (owned & covered).sum((-2, -1))
        agreement = both / (owned | covered).sum((-2, -1)).clamp_min(1)
        valid = (
            valid
            & (shape.compactness >= settings.least_compactness)
            & (tokens >= settings.fewest_coherent_tokens)
            & (agreement >= settings.least_agreement)
        )
    return SlotQuality(foreground, positioned, valid, 1 - overlap)


def _compute_largest_cosine(
    attention: Float[Tensor, "*batch slot token"],
) -> Float[Tensor, "*batch slot"]:
    unit = attention / attention.square().sum(-1, keepdim=True).sqrt().clamp_min(EPSILON)
    cosine = unit @ unit.transpose(-1, -2)
    itself = torch.eye(cosine.shape[-1], dtype=torch.bool, device=cosine.device)
    return cosine.masked_fill(itself, 0).amax(-1).clamp(0, 1)


def _stay_inside(
    binding: Binding, size: torch.Size, settings: SlotQualityConfig
) -> Bool[Tensor, "*batch slot"]:
    """Whether a slot's reach, by the deviations of its attention, stays off the image's edge."""
    attention, position = binding.attention, binding.slots.position
    side = round(attention.shape[-1] ** 0.5)
    points = geometry.build_grid(side, side, dtype=position.dtype, device=position.device).flatten(
        0, 1
    )
    away = (points - position[..., None, :]).square()
    deviation = (attention[..., None] * away).sum(-2).sqrt()
    height, width = size
    reach = position.abs() + settings.deviations * deviation
    inside_x = reach[..., 0] <= 1 - settings.border * 2 / (width - 1)
    inside_y = reach[..., 1] <= 1 - settings.border * 2 / (height - 1)
    return inside_x & inside_y
