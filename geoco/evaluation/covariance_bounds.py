"""How covariant a finite-grid decoder is, and what that implies for its masks.

The paper's Secs. "Finite-Grid Covariance Diagnostics" and "Final Probabilities and Target
Membership". P samples a factual field at the inverse edit coordinate (`edit_maps.warp_image`), q is
the target slot's transported logit, and a domain says where it is measured. The propositions are
returned as both sides of an inequality, so that a diagnostic can assert them on every measurement.
All in float64: the slack needed is then far below anything reported.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from geoco.models.compositing import compute_masks

FEWEST_PIXELS = 16  # of a measurement domain
LEAST_SIZE = 1e-8  # of a logit field that an error is relative to


@dataclass(frozen=True)
class Inequality:
    """left <= right, element by element."""

    left: Tensor
    right: Tensor

    def holds(self, slack: float = 0.0) -> bool:
        """Whether it does everywhere; where both sides are nan, nothing is claimed."""
        unclaimed = self.left.isnan() & self.right.isnan()
        return bool(((self.left.double() <= self.right.double() + slack) | unclaimed).all())


def compute_rms(
    values: Float[Tensor, "*edits height width"], domain: Bool[Tensor, "*edits height width"]
) -> Float64[Tensor, "*edits"]:
    """Over a domain: from 0, lower is better of errors; nan where the domain is empty.

    Of probability differences, at most 1: "Prob. RMSE".
    """
    inside = torch.where(domain, values.double(), 0)
    return (inside.square().sum((-2, -1)) / domain.sum((-2, -1))).sqrt()


def compute_covariance_error(
    edited: Float[Tensor, "*edits height width"],
    transported: Float[Tensor, "*edits height width"],
    domain: Bool[Tensor, "*edits height width"],
) -> Float64[Tensor, "*edits"]:
    """Relative RMSE of raw logits against the transported factual ones: from 0, lower is better.

    nan where the domain has fewer than 16 pixels: those interventions are not averaged.
    """
    error = compute_rms(edited.double() - transported.double(), domain)
    relative = error / compute_rms(transported, domain).clamp_min(LEAST_SIZE)
    return relative.where(domain.sum((-2, -1)) >= FEWEST_PIXELS, torch.nan)


def bound_probability(
    logits: Float[Tensor, "*edits slot height width"],
    slot: Int64[Tensor, "*edits"],
    transported: Float[Tensor, "*edits height width"],
) -> Inequality:
    """|alpha_e - alpha_bar| <= tanh(|eps| / 4): Eq. (final-probability-bound).

    `logits` are the edited scene's final ones and `transported` is q; alpha_bar is the target's
    probability in the reference scene, q against the edited competitors. Both sides are in [0, 1],
    lower is better.
    """
    target, others = _split(logits, slot)
    reference = torch.sigmoid(transported.double() - others.logsumexp(-3))
    difference = (_take_alpha(logits, slot) - reference).abs()
    return Inequality(difference, torch.tanh((target - transported.double()).abs() / 4))


def bound_transported_probability(
    logits: Float[Tensor, "*edits slot height width"],
    slot: Int64[Tensor, "*edits"],
    transported: Float[Tensor, "*edits height width"],
    transported_others: Float[Tensor, "*edits height width"],
    transported_alpha: Float[Tensor, "*edits height width"],
) -> Inequality:
    """|alpha_e - P alpha_f| <= tanh(|eps - db| / 4) + J: Eq. (transported-probability-bound).

    `transported_others` is P of the factual competitors' logsumexp; db is what competition changed,
    J what bilinear sampling of probabilities instead of logits does. The left side is in [0, 1],
    the right one in [0, 2], lower is better.
    """
    target, others = _split(logits, slot)
    transported, before = transported.double(), transported_others.double()
    residual = target - transported - (others.logsumexp(-3) - before)
    sampling = (torch.sigmoid(transported - before) - transported_alpha.double()).abs()
    difference = (_take_alpha(logits, slot) - transported_alpha.double()).abs()
    return Inequality(difference, torch.tanh(residual.abs() / 4) + sampling)


@dataclass(frozen=True)
class Membership:
    """The target's hard masks in the edited and the reference scene, and where they may differ."""

    actual: Bool[Tensor, "*edits height width"]  # A
    reference: Bool[Tensor, "*edits height width"]  # I
    uncertain: Bool[Tensor, "*edits height width"]  # U, |q - m_e| <= |eps|


def compute_membership(
    logits: Float[Tensor, "*edits slot height width"],
    slot: Int64[Tensor, "*edits"],
    transported: Float[Tensor, "*edits height width"],
    domain: Bool[Tensor, "*edits height width"],
) -> Membership:
    """Who owns a pixel, with the edited target logit and with the transported one, on a domain."""
    target, others = _split(logits, slot)
    expected = transported.double()
    margin = (expected - others.amax(-3)).abs()
    replaced = torch.where(_mark_slot(logits, slot), expected.unsqueeze(-3), logits.double())
    return Membership(
        actual=_take(compute_masks(logits), slot) & domain,
        reference=_take(compute_masks(replaced), slot) & domain,
        uncertain=(margin <= (target - expected).abs()) & domain,
    )


def bound_membership(members: Membership) -> Inequality:
    """Membership differs only where it is uncertain: Eq. (hard-membership-condition).

    Both sides are masks, fewer pixels are better. Holds without slack: rounding keeps the order of
    the two differences that U compares.
    """
    return Inequality(members.actual ^ members.reference, members.uncertain)


def bound_membership_f1(members: Membership) -> Inequality:
    """1 - |U and (A or I)| / (|A| + |I|) <= F1(A, I): Eq. (membership-f1-bound).

    Both in [0, 1], higher is better; nan where neither scene gives the target a pixel. The paper's
    max with zero is never needed: A or I has no more pixels than both together.
    """
    area = members.actual.sum((-2, -1)) + members.reference.sum((-2, -1))
    shared = (members.actual & members.reference).sum((-2, -1))
    doubtful = members.uncertain & (members.actual | members.reference)
    # Whole numbers over the same area: rounding keeps their order, and no slack is needed.
    bound = (area - doubtful.sum((-2, -1))).double() / area
    return Inequality(bound, 2 * shared.double() / area)


def _mark_slot(logits: Tensor, slot: Tensor) -> Tensor:
    slots = torch.arange(logits.shape[-3], device=logits.device)
    return (slots == slot[..., None])[..., None, None]


def _take(field: Tensor, slot: Tensor) -> Tensor:
    """The fields of the given slots."""
    index = slot[..., None, None, None].expand(*slot.shape, 1, *field.shape[-2:])
    return field.gather(-3, index).squeeze(-3)


def _split(logits: Tensor, slot: Tensor) -> tuple[Tensor, Tensor]:
    """The target's logit, and all logits with the target's taken out."""
    logits = logits.double()
    return _take(logits, slot), logits.masked_fill(_mark_slot(logits, slot), -torch.inf)


def _take_alpha(logits: Tensor, slot: Tensor) -> Tensor:
    """The target's probability from the full softmax, as the picture uses it."""
    return _take(torch.softmax(logits.double(), -3), slot)
