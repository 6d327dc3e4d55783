"""The selector's teacher and its losses (paper, supplement: Teacher-Selector Details).

A pixel of the deployment domain is positive (better given to the background), protected (better
left to its owner) or unknown, and unknown pixels teach nothing. Labels come from the raw logits
and the image, all detached; only the scores that they are compared with carry gradients.

As in `selector`, nothing waits for the device and no shape depends on values.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from geoco.config.training import SelectorTeacherConfig, SelectorTrainingConfig
from geoco.models import compositing, selector
from geoco.models.decoders import Fields
from geoco.models.selector import Domain
from geoco.training import distributed

EPSILON = 1e-8
NEVER = -1e9  # finite, so that a group without members has no undefined gradient on the way


@dataclass(frozen=True)
class Labels:
    """Confidences at each pixel that its owner should give it up, and that it should not."""

    positive: Float[Tensor, "*scene height width"]
    protected: Float[Tensor, "*scene height width"]


@dataclass(frozen=True)
class SelectorLoss:
    """The parts of Eq. (selector-loss), unweighted, and their weighted sum."""

    positive: Float[Tensor, ""]
    protected: Float[Tensor, ""]
    rank: Float[Tensor, ""]
    objective: Float[Tensor, ""]


@torch.no_grad()
def label_pixels(
    image: Float[Tensor, "*scene 3 height width"],
    fields: Fields,
    attention: Float[Tensor, "*scene slot token"],
    domain: Domain,
    settings: SelectorTeacherConfig,
) -> Labels:
    """Tri-state labels, Eqs. (protected-teacher) and (teacher-tristate); zero where undeployed."""
    assert fields.rgb is not None
    owner, background = domain.owner, domain.background_map
    alpha = compositing.compute_alpha(fields.logits)
    # The whole transfer, not what a cap leaves of it: the label must not move with a schedule.
    moved = selector.apply_transfer(fields.logits, domain, domain.deployed, math.inf)
    before = _squared_error(compositing.composite(fields.rgb, alpha), image)
    after = _squared_error(
        compositing.composite(fields.rgb, compositing.compute_alpha(moved)), image
    )
    action_gain = _relative_gain(before, after)
    single = _squared_error(fields.rgb, image.unsqueeze(-4))
    individual_gain = _relative_gain(
        selector.pick_values(single, owner), selector.pick_values(single, background)
    )
    harmful = (action_gain <= settings.harmful) | (individual_gain <= settings.individual)
    protected = (harmful & domain.deployed).to(alpha.dtype)

    ratio = selector.pick_values(selector.compute_densities(alpha, attention).ratio, owner)
    acting = smoothstep(action_gain, *settings.gain) * smoothstep(ratio, *settings.density_ratio)
    local = resembles_background(image, owner == background, settings).to(alpha.dtype)
    positive = torch.maximum(acting, local) * domain.deployed
    return Labels(positive * (1 - protected), protected)


def resembles_background(
    image: Float[Tensor, "*scene 3 height width"],
    background: Bool[Tensor, "*scene height width"],
    settings: SelectorTeacherConfig,
) -> Bool[Tensor, "*scene height width"]:
    """Pixels as close to the mean of the background around them as background pixels are.

    A pixel that a foreground slot has captured never trains the background's renderer, which
    therefore never wins it back; colours of the image itself break that circle. What counts as
    close is set by the scene's own background, where it has as many neighbours.
    """
    member = background.unsqueeze(-3).to(image.dtype)
    sums = _window_sum(torch.cat((image * member, member), -3), settings.window)
    neighbours = sums[..., 3:, :, :]
    mean = sums[..., :3, :, :] / (neighbours + EPSILON)
    error = _squared_error(image, mean)
    enough = neighbours.squeeze(-3) >= settings.fewest_neighbours
    usual = masked_quantile(error.flatten(-2), (enough & background).flatten(-2), settings.quantile)
    return enough & (error <= settings.most_error * (usual[..., None, None] + EPSILON))


def masked_quantile(
    values: Float[Tensor, "*scene value"], mask: Bool[Tensor, "*scene value"], quantile: float
) -> Float[Tensor, "*scene"]:
    """The quantile of values under a mask, linear between neighbours; minus infinity if none."""
    ordered = values.masked_fill(~mask, torch.inf).sort(-1).values
    count = mask.sum(-1, keepdim=True)
    rank = quantile * (count - 1).clamp(min=0).to(values.dtype)
    low, high = rank.floor().long(), rank.ceil().long()
    at_low, at_high = ordered.gather(-1, low), ordered.gather(-1, high)
    between = at_low + (rank - low) * (at_high - at_low)
    return torch.where(count > 0, between, -torch.inf).squeeze(-1)


def smoothstep(
    value: Float[Tensor, "*values"], low: float, high: float
) -> Float[Tensor, "*values"]:
    """Zero up to `low`, one from `high` on, and a cubic without kinks between them."""
    share = ((value - low) / (high - low)).clamp(0, 1)
    return share.square() * (3 - 2 * share)


def selector_loss(
    logit: Float[Tensor, "*scene height width"],
    labels: Labels,
    owner: Int64[Tensor, "*scene height width"],
    slots: int,
    settings: SelectorTrainingConfig,
    sum_counts: distributed.Sum = distributed.sum_locally,
) -> SelectorLoss:
    """Eq. (selector-loss): every group of one scene and one owner counts alike, whatever its size.

    A class is averaged over the groups that have pixels of it, the ranking over those with both.
    """
    member = selector.mark_members(owner, slots).flatten(-2)
    score = logit.flatten(-2).unsqueeze(-2)
    positive = member * labels.positive.to(logit.dtype).flatten(-2).unsqueeze(-2)
    protected = member * labels.protected.to(logit.dtype).flatten(-2).unsqueeze(-2)
    has_positive, has_protected = positive.sum(-1) > 0, protected.sum(-1) > 0
    has_both = has_positive & has_protected
    ranks = _rank_penalty(score, positive, protected, settings).masked_fill(~has_both, 0)

    counts = torch.stack([has.sum() for has in (has_positive, has_protected, has_both)])
    positive_groups, protected_groups, both_groups = sum_counts(counts).clamp(min=1).unbind()
    positive_loss = _weighted_mean(F.softplus(-score), positive).sum() / positive_groups
    protected_loss = _weighted_mean(F.softplus(score), protected).sum() / protected_groups
    rank_loss = ranks.sum() / both_groups
    objective = positive_loss + settings.protected * protected_loss + settings.rank * rank_loss
    return SelectorLoss(positive_loss, protected_loss, rank_loss, objective)


def _rank_penalty(
    score: Float[Tensor, "*scene 1 pixel"],
    positive: Float[Tensor, "*scene slot pixel"],
    protected: Float[Tensor, "*scene slot pixel"],
    settings: SelectorTrainingConfig,
) -> Float[Tensor, "*scene slot"]:
    """How far the lowest positive score of a group falls short of its highest protected one."""
    temperature = settings.temperature
    lowest = -temperature * _soft_maximum(-score / temperature, positive)
    highest = temperature * _soft_maximum(score / temperature, protected)
    return temperature * F.softplus((settings.rank_margin + highest - lowest) / temperature)


def _soft_maximum(
    score: Float[Tensor, "*scene 1 pixel"], weight: Float[Tensor, "*scene slot pixel"]
) -> Float[Tensor, "*scene slot"]:
    """The logarithm of the weighted mean of exponentials, in which the largest scores prevail."""
    weighted = (score + weight.log()).masked_fill(weight == 0, NEVER)
    return weighted.logsumexp(-1) - (weight.sum(-1) + EPSILON).log()


def _weighted_mean(
    values: Float[Tensor, "*scene 1 pixel"], weight: Float[Tensor, "*scene slot pixel"]
) -> Float[Tensor, "*scene slot"]:
    """Weighted means of groups; zero for those without weight."""
    mass = weight.sum(-1).clamp(min=torch.finfo(weight.dtype).tiny)
    return (values * weight).sum(-1) / mass


def _squared_error(
    shown: Float[Tensor, "*pictures 3 height width"], image: Float[Tensor, "..."]
) -> Float[Tensor, "*pictures height width"]:
    return (shown - image).square().mean(-3)


def _relative_gain(before: Tensor, after: Tensor) -> Tensor:
    """By how much an error falls, in units of both: Eq. (teacher-gain); positive is better."""
    return (before - after) / (before + after + EPSILON)


def _window_sum(
    values: Float[Tensor, "*scene channel height width"], window: int
) -> Float[Tensor, "*scene channel height width"]:
    """Sums over the window around each pixel, as far as it lies on the image."""
    flat = values.reshape(-1, 1, *values.shape[-2:])
    sums = F.avg_pool2d(flat, window, stride=1, padding=window // 2, divisor_override=1)
    return sums.view_as(values)
