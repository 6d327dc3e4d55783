"""From one picture per slot to one of all slots, and the supports of slots in it.

Three kinds of support never mix: training support (differentiable, one foreground at a time),
measurement support (masks, by the largest alpha), reference support (masks from outside). So with
backgrounds: the training set, the selector's slot and the measurement slot are three things.
"""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

SHARPNESS = 2.0  # gamma of Eq. (onefg)
SELECTOR_BORDER = 4  # pixels
SELECTOR_MASS = 0.25  # lambda_mass of Eq. (bg-selection)


def compute_alpha(
    logits: Float[Tensor, "*batch slot height width"],
) -> Float[Tensor, "*batch slot height width"]:
    """Alpha: the softmax over all slots, Eq. (compositor); never in less than float32."""
    return torch.softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-3)


def composite(
    rgb: Float[Tensor, "*batch slot 3 height width"],
    alpha: Float[Tensor, "*batch slot height width"],
) -> Float[Tensor, "*batch 3 height width"]:
    """The sum of slots' colours, weighted by alpha."""
    return (rgb * alpha.unsqueeze(-3)).sum(-4)


def compute_masks(
    logits: Float[Tensor, "*batch slot height width"],
) -> Bool[Tensor, "*batch slot height width"]:
    """Measurement support: a pixel belongs to the slot of largest alpha, the first of equals."""
    owner = logits.argmax(-3, keepdim=True)
    slots = torch.arange(logits.shape[-3], device=logits.device)
    return owner == slots[:, None, None]


def training_support(
    logits: Float[Tensor, "*batch slot height width"],
    background: Bool[Tensor, "*batch slot"],
) -> Float[Tensor, "*batch slot height width"]:
    """Training support: each slot's contest with the background set alone, sharpened: Eq. (onefg).

    The set is an identity, not a path for gradients; the logits of its members stay live. Where it
    is empty no pixel is contested, and the support is one everywhere.
    """
    return torch.sigmoid(SHARPNESS * compute_foreground_margin(logits, background))


def compute_foreground_margin(
    logits: Float[Tensor, "*batch slot height width"],
    background: Bool[Tensor, "*batch slot"],
) -> Float[Tensor, "*batch slot height width"]:
    """Each slot's logit less the background set's."""
    return logits - compute_background_logit(logits, background)


def compute_background_logit(
    logits: Float[Tensor, "*batch slot height width"],
    background: Bool[Tensor, "*batch slot"],
) -> Float[Tensor, "*batch 1 height width"]:
    """The background set as one slot, aggregated by logsumexp."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    # Not minus infinity: an empty set must give a gradient of zero, not an undefined one.
    outside = ~background[..., None, None]
    return logits.masked_fill(outside, -1e9).logsumexp(-3, keepdim=True)


def find_foreground_slots(
    alpha: Float[Tensor, "*batch slot height width"],
    scale: Float[Tensor, "*batch slot"],
    fewest_pixels: int = 20,
    most_coverage: float = 0.6,
    least_peak: float = 0.3,
    largest_scale: float = 0.3,
) -> Bool[Tensor, "*batch slot"]:
    """Slots that hold an object, judged on detached values; all others form the background set."""
    alpha, scale = alpha.detach(), scale.detach()
    owned = compute_masks(alpha).sum((-2, -1))
    pixels = alpha.shape[-2] * alpha.shape[-1]
    peak = alpha.amax((-2, -1))
    sized = (owned > fewest_pixels) & (owned < most_coverage * pixels)
    return sized & (peak > least_peak) & (scale < largest_scale)


def find_measurement_background(
    alpha: Float[Tensor, "*batch slot height width"],
) -> Int64[Tensor, "*batch"]:
    """The slot with the largest mean alpha: what evaluation calls background."""
    return alpha.mean((-2, -1)).argmax(-1)


def find_selector_background(
    alpha: Float[Tensor, "*batch slot height width"],
) -> Int64[Tensor, "*batch"]:
    """The slot that owns the image border, with a share for its mass: Eq. (bg-selection)."""
    alpha = alpha.detach()
    width = SELECTOR_BORDER
    border = torch.ones(alpha.shape[-2:], dtype=alpha.dtype, device=alpha.device)
    border[width:-width, width:-width] = 0
    edge = (alpha * border).sum((-2, -1)) / border.sum()
    return (edge + SELECTOR_MASS * alpha.mean((-2, -1))).argmax(-1)
