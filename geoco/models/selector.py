"""Selective alpha ownership: which pixels a foreground slot gives up (paper, Sec. 3.6, supplement).

A small pointwise network looks at what owner and background say about a pixel. Where it is sure
enough, the smallest symmetric transfer of logit from the owner to the background lets the
background win. The same in training and inference; `training.selector_teacher` trains it.

Nothing here waits for the device or has shapes that depend on values: a training step is recorded
in a CUDA graph.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from geoco import config
from geoco.models import compositing
from geoco.models.decoders import Fields

EPSILON = 1e-8
SCALARS, PROJECTED, COLORS = 8, 8, 3
INPUTS = SCALARS + 2 * PROJECTED + COLORS


@dataclass(frozen=True)
class Domain:
    """Where the selector may act, judged on detached raw logits; teacher and selector share it.

    `required` has a value everywhere but a meaning only where a foreground slot owns the pixel.
    """

    background: Int64[Tensor, "*scene"]
    owner: Int64[Tensor, "*scene height width"]
    required: Float[Tensor, "*scene height width"]
    deployed: Bool[Tensor, "*scene height width"]

    @property
    def background_map(self) -> Int64[Tensor, "*scene height width"]:
        """The background slot again at every pixel, for lookups beside those of the owner."""
        return self.background[..., None, None].expand_as(self.owner)


@dataclass(frozen=True)
class Densities:
    """How slots spread alpha and attention over pixels, relative to spreading them evenly."""

    alpha: Float[Tensor, "*scene slot height width"]
    attention: Float[Tensor, "*scene slot height width"]

    @property
    def ratio(self) -> Float[Tensor, "*scene slot height width"]:
        """Above one a slot owns more of a pixel than its attention to it explains."""
        return (self.alpha + EPSILON) / (self.attention + EPSILON)


def compute_required_transfer(
    owner_gap: Float[Tensor, "*pixels"], other_gap: Float[Tensor, "*pixels"], margin: float
) -> Float[Tensor, "*pixels"]:
    """The smallest transfer with which background wins by the margin: Eq. (required-transfer-main).

    Gaps are logits less the background's: the owner's, which meets the background half way, and
    that of the strongest other foreground, which stays where it is.
    """
    return torch.maximum((owner_gap + margin) / 2, other_gap + margin).clamp(min=0)


@torch.no_grad()
def find_domain(
    logits: Float[Tensor, "*scene slot height width"], settings: config.SelectorConfig
) -> Domain:
    """Foreground-owned pixels of owners that amount to something, whose transfer is small."""
    alpha = compositing.compute_alpha(logits)
    background = compositing.find_selector_background(alpha)
    owner = logits.argmax(-3)
    background_map = background[..., None, None].expand_as(owner)
    at_background = pick_values(logits, background_map)
    required = compute_required_transfer(
        pick_values(logits, owner) - at_background,
        _find_strongest_other(logits, owner, background_map) - at_background,
        settings.margin,
    )
    area = mark_members(owner, logits.shape[-3]).sum((-2, -1))
    sound = (area > settings.least_area) & (alpha.amax((-2, -1)) > settings.least_peak)
    owner_sound = sound.gather(-1, owner.flatten(-2)).unflatten(-1, owner.shape[-2:])
    deployed = (owner != background_map) & owner_sound & (required <= settings.label_limit)
    return Domain(background, owner, required, deployed)


def apply_transfer(
    logits: Float[Tensor, "*scene slot height width"],
    domain: Domain,
    accepted: Bool[Tensor, "*scene height width"],
    cap: Float[Tensor, ""] | float,
) -> Float[Tensor, "*scene slot height width"]:
    """Logits after the capped transfer at accepted pixels: Eq. (logit-transfer-main).

    Gradients pass through the logits as if nothing had been moved.
    """
    moved = torch.clamp(domain.required.detach(), max=cap) * accepted
    slots = logits.shape[-3]
    gives, takes = mark_members(domain.owner, slots), mark_members(domain.background_map, slots)
    return logits + moved.unsqueeze(-3) * (takes.to(moved.dtype) - gives.to(moved.dtype))


def compute_densities(
    alpha: Float[Tensor, "*scene slot height width"],
    attention: Float[Tensor, "*scene slot token"],
) -> Densities:
    """Densities of alpha and of attention, the latter resampled from its square grid to pixels."""
    side = round(attention.shape[-1] ** 0.5)
    tokens = attention.to(alpha.dtype).unflatten(-1, (side, side))
    pixels = F.interpolate(
        tokens.reshape(-1, 1, side, side), alpha.shape[-2:], mode="bilinear", align_corners=True
    )
    return Densities(_normalize_density(alpha), _normalize_density(pixels.reshape(alpha.shape)))


def pick_values(
    values: Float[Tensor, "*scene slot height width"], slot: Int64[Tensor, "*scene height width"]
) -> Float[Tensor, "*scene height width"]:
    """At every pixel the value of one slot."""
    return values.gather(-3, slot.unsqueeze(-3)).squeeze(-3)


def mark_members(
    slot: Int64[Tensor, "*scene height width"], slots: int
) -> Bool[Tensor, "*scene slot height width"]:
    """For each of `slots` slots the pixels at which it is the one named."""
    return slot.unsqueeze(-3) == torch.arange(slots, device=slot.device)[:, None, None]


class Selector(nn.Module):
    """Scores every pixel by how surely its owner should give it up, and applies the transfer.

    Its inputs are detached: whatever is made of its scores reaches its own parameters alone. `cap`
    is moved in place by a schedule; at zero the selector is switched off.
    """

    cap: Tensor

    def __init__(self, settings: config.SelectorConfig, dim: int = 64) -> None:
        super().__init__()
        self.settings = settings
        self.project = nn.Linear(dim, PROJECTED)
        self.judge = nn.Sequential(
            nn.Linear(INPUTS, 32), nn.SiLU(), nn.Linear(32, 16), nn.SiLU(), nn.Linear(16, 1)
        )
        self.register_buffer("cap", torch.tensor(settings.cap, dtype=torch.float32))

    def forward(
        self, fields: Fields, attention: Float[Tensor, "*scene slot token"], domain: Domain
    ) -> Float[Tensor, "*scene height width"]:
        """The score of each pixel, nu: a logit, of no meaning outside the domain."""
        evidence = self.gather_evidence(fields, attention, domain)
        with torch.autocast(evidence.device.type, enabled=False):
            result: Tensor = self.judge(evidence)
        return result.squeeze(-1)

    def gather_evidence(
        self, fields: Fields, attention: Float[Tensor, "*scene slot token"], domain: Domain
    ) -> Float[Tensor, "*scene height width inputs"]:
        """What the network sees of each pixel, from raw logits, in the precision of its weights."""
        assert fields.plain_rgb is not None
        owner, background = domain.owner, domain.background_map
        kind = self.project.weight.dtype
        scalars = _compute_scalars(fields.logits.detach(), attention.detach(), owner, background)
        if not self.settings.attention:
            scalars = torch.cat((scalars[..., :-2], torch.zeros_like(scalars[..., -2:])), -1)
        projected = self._project_features(fields).to(kind)
        own = pick_pixels(projected, owner)
        difference = own - pick_pixels(projected, background)  # which cancels the bias
        rgb = fields.plain_rgb.detach().movedim(-3, -1).to(kind)
        color = pick_pixels(rgb, owner) - pick_pixels(rgb, background)
        return torch.cat((scalars.to(kind), own, difference, color), -1)

    def condense(self, fields: Fields) -> Fields:
        """The same with features projected already, for fields that are looked at more than once.

        They hold an eighth of the numbers. The projection has no gradient any more.
        """
        with torch.no_grad():
            projected = self._project_features(fields).movedim(-1, -3)
        return replace(fields, features=None, projected=projected)

    def _project_features(self, fields: Fields) -> Float[Tensor, "*slots height width channel"]:
        """All slots are projected before one is looked up: that moves 8 numbers a pixel, not 64.

        It is done in the precision of the features, which a wider one would only copy.
        """
        if fields.projected is not None:
            return fields.projected.movedim(-3, -1)
        assert fields.features is not None
        features = fields.features.detach().movedim(-3, -1)
        weight, bias = (part.to(features.dtype) for part in self.project.parameters())
        with torch.autocast(features.device.type, enabled=False):
            return F.linear(features, weight, bias)

    def transfer(
        self,
        logits: Float[Tensor, "*scene slot height width"],
        domain: Domain,
        score: Float[Tensor, "*scene height width"],
    ) -> Float[Tensor, "*scene slot height width"]:
        """Alpha logits after pixels of the domain whose score passes the threshold are given up."""
        accepted = domain.deployed & (torch.sigmoid(score.detach()) > self.settings.threshold)
        return apply_transfer(logits, domain, accepted, self.cap)

    def refine(
        self, fields: Fields, attention: Float[Tensor, "*scene slot token"]
    ) -> Float[Tensor, "*scene slot height width"]:
        """The alpha logits after the selector; no parameter of it has a gradient from them."""
        domain = find_domain(fields.logits, self.settings)
        with torch.no_grad():
            score = self(fields, attention, domain)
        return self.transfer(fields.logits, domain, score)


def _compute_scalars(
    logits: Tensor, attention: Tensor, owner: Tensor, background: Tensor
) -> Float[Tensor, "*scene height width 8"]:
    """Ownership, logit gaps and densities at each pixel, of the owner and its rivals.

    The last two are what the owner attends to; all others move with it.
    """
    alpha = compositing.compute_alpha(logits)
    density = compute_densities(alpha, attention)
    at_background = pick_values(logits, background)
    other_gap = _find_strongest_other(logits, owner, background) - at_background
    parts = (
        pick_values(alpha, owner),
        pick_values(alpha, background),
        _find_strongest_other(alpha, owner, background).clamp(min=0),
        pick_values(logits, owner) - at_background,
        other_gap.masked_fill(other_gap.isneginf(), 0),  # nobody else there
        pick_values(density.alpha, owner),
        pick_values(density.attention, owner),
        pick_values(density.ratio, owner).log(),
    )
    return torch.stack(parts, -1)


def _find_strongest_other(values: Tensor, owner: Tensor, background: Tensor) -> Tensor:
    """The largest value of slots that are neither owner nor background; minus infinity if none."""
    slots = values.shape[-3]
    named = mark_members(owner, slots) | mark_members(background, slots)
    return values.masked_fill(named, -torch.inf).amax(-3)


def _normalize_density(values: Tensor) -> Tensor:
    return values / values.mean((-2, -1), keepdim=True).clamp(min=EPSILON)


def pick_pixels(
    values: Float[Tensor, "*scene slot height width channel"],
    slot: Int64[Tensor, "*scene height width"],
) -> Float[Tensor, "*scene height width channel"]:
    """At every pixel the channels of one slot."""
    index = slot[..., None, :, :, None].expand(*slot.shape[:-2], 1, *values.shape[-3:])
    return values.gather(-4, index).squeeze(-4)
