"""The terms of the training objective, one pure function per equation, named after the paper.

Each is a sum over samples divided by a count over all processes (`sum_counts`), so that the terms
of several processes add up to those of the whole batch. What the paper detaches is detached here.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from geoco.config.training import CenterPenalty
from geoco.geometry import EPSILON, Moments
from geoco.models.compositing import SHARPNESS, find_measurement_background
from geoco.training.distributed import Sum, sum_locally

TAIL_THRESHOLD = 0.25  # tau


def huber(residual: Float[Tensor, "..."], threshold: float) -> Float[Tensor, "..."]:
    """Eq. (huber-definition), element by element."""
    return F.huber_loss(residual, torch.zeros_like(residual), reduction="none", delta=threshold)


def weighted_mean(
    value: Float[Tensor, "..."], weight: Float[Tensor, "..."], sum_counts: Sum = sum_locally
) -> Float[Tensor, ""]:
    """The mean of values by detached weights; zero where nothing has any."""
    weight = weight.detach()
    # A value without weight may be infinite; zero times infinity would spoil the sum.
    value = torch.where(weight > 0, value, torch.zeros_like(value))
    return (weight * value).sum() / sum_counts(weight.sum()).clamp_min(EPSILON)


def rec(
    image: Float[Tensor, "batch time 3 height width"],
    target: Float[Tensor, "batch time 3 height width"],
    sum_counts: Sum = sum_locally,
) -> Float[Tensor, ""]:
    """Squared error of every colour value: Eq. (reconstruction-loss)."""
    square = (image - target).square()
    return weighted_mean(square, torch.ones_like(square), sum_counts)


def ov(
    attention: Float[Tensor, "batch time slot token"], sum_counts: Sum = sum_locally
) -> Float[Tensor, ""]:
    """How much two slots attend to the same tokens, on average: Eq. (overlap-loss)."""
    count = attention.shape[-2]
    # The sum over ordered pairs i != j is that over all pairs less the diagonal.
    together = attention.sum(-2).square().sum(-1)
    alike = attention.square().sum((-2, -1))
    overlap = (together - alike) / (count * (count - 1))
    return weighted_mean(overlap, torch.ones_like(overlap), sum_counts)


def pos(
    center: Float[Tensor, "*supports 2"],
    position: Float[Tensor, "*supports 2"],
    valid: Bool[Tensor, "*supports"],
    threshold: float,
    sum_counts: Sum = sum_locally,
    live: bool = False,
) -> Float[Tensor, ""]:
    """Centroids of valid supports against the positions commanded: Eq. (position-loss).

    `live` positions are not detached. A centroid moves with its slot's position, so that what the
    two send to the position cancels, but for what the grid and the edge do.
    """
    residual = huber(center - (position if live else position.detach()), threshold).mean(-1)
    return weighted_mean(residual, valid.to(residual.dtype), sum_counts)


def center_penalty(
    residual: Float[Tensor, "*supports 2"],
    scale: Float[Tensor, "*supports"],
    kind: CenterPenalty,
    threshold: float,
) -> Float[Tensor, "*supports"]:
    """L_ctr: each coordinate by itself, or the distance in units of the recipient's scale."""
    if kind == "coordinate":
        return huber(residual, threshold).mean(-1)
    distance = torch.linalg.vector_norm(residual, dim=-1)
    return huber(distance / (scale.detach() + EPSILON), threshold)


def geo(
    counterfactual: Moments,
    recipient: Moments,
    donor_compactness: Float[Tensor, "*pairs"],
    position: Float[Tensor, "*pairs 2"],
    scale: Float[Tensor, "*pairs"],
    confidence: Float[Tensor, "*pairs"],
    center: CenterPenalty,
    threshold: float,
    compactness: float,
    sum_counts: Sum = sum_locally,
) -> Float[Tensor, ""]:
    """Transplants keep the recipient's center and extent and the donor's fill: Eq. (geometry-loss).

    `compactness` is lambda_K.
    """
    away = counterfactual.center - position.detach()
    radius = counterfactual.radius.log() - recipient.radius.detach().log()
    fill = (counterfactual.compactness + EPSILON).log()
    fill = fill - (donor_compactness.detach() + EPSILON).log()
    penalty = (
        center_penalty(away, scale, center, threshold)
        + huber(radius, threshold)
        + compactness * huber(fill, threshold)
    )
    return weighted_mean(penalty, confidence, sum_counts)


def gate(
    gates: Float[Tensor, "batch time slot dim"], sum_counts: Sum = sum_locally
) -> Float[Tensor, ""]:
    """The mean square of the terminal readout's gates."""
    square = gates.square()
    return weighted_mean(square, torch.ones_like(square), sum_counts)


def tail(
    margin: Float[Tensor, "*supports height width"],
    weight: Float[Tensor, "*supports"],
    sum_counts: Sum = sum_locally,
) -> Float[Tensor, ""]:
    """T(q) of supports q = sigmoid(2 z), by weight: pixels of low confidence are pushed to none.

    The objective takes half of the factual and half of the counterfactual mean.
    """
    steep = SHARPNESS * margin
    low = (torch.sigmoid(steep) < TAIL_THRESHOLD).detach()
    # -log(1 - q), stable where q is close to one; those pixels are not low, and stay out.
    penalty = torch.where(low, F.softplus(steep), torch.zeros_like(steep)).mean((-2, -1))
    return weighted_mean(penalty, weight, sum_counts)


def feat(
    predicted: Float[Tensor, "batch time token channel"],
    features: Float[Tensor, "batch time token channel"],
    sum_counts: Sum = sum_locally,
) -> Float[Tensor, ""]:
    """Squared error of a frozen encoder's features, each token's at mean zero and variance one."""
    wide = features if features.dtype == torch.float64 else features.float()
    target = F.layer_norm(wide, wide.shape[-1:]).detach()
    square = (predicted.to(target.dtype) - target).square()
    return weighted_mean(square, torch.ones_like(square), sum_counts)


def own(
    rgb: Float[Tensor, "*batch slot 3 height width"],
    alpha: Float[Tensor, "*batch slot height width"],
    width: float,
    frame: Float[Tensor, "*batch 3 height width"] | None = None,
    sum_counts: Sum = sum_locally,
) -> Float[Tensor, ""]:
    """What objects own although the background would draw it as well; ours, not the paper's.

    The mean over pixels of the sum over slots i other than the background b, that of largest mean
    alpha, of alpha_i exp(-|c_i - rgb_b|^2 / (2 width^2)), the square a mean over colours. c_i is
    what the slot draws there, or what the frame shows, if it is given. Only alpha learns from it:
    no colour comes nearer to another or moves away.
    """
    rgb = rgb.detach()
    background = find_measurement_background(alpha.detach())
    is_background = torch.arange(alpha.shape[-3], device=alpha.device) == background[..., None]
    behind = (rgb * is_background[..., None, None, None]).sum(-4, keepdim=True)
    there = rgb if frame is None else frame.unsqueeze(-4)
    alike = torch.exp((there - behind).square().mean(-3) / (-2 * width**2))
    needless = (alpha * alike * ~is_background[..., None, None]).sum(-3)
    return weighted_mean(needless, torch.ones_like(needless), sum_counts)
