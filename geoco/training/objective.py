"""The complete training objective of one batch, and its way back through the model.

Two of the terms, pos and the factual half of tail, update decoder and appearance but send nothing
to any commanded position or scale. Both read the same decoded logits as the other terms, so rather
than decoding twice they go back through the decoder by themselves, with the commands left out, and
what they have to say about appearance joins the other terms' way back (`Objective.backward`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from geoco.config.training import CenterPenalty, SelectorTrainingConfig, TrainConfig
from geoco.geometry import Moments, compute_moments
from geoco.models import compositing, slot_quality
from geoco.models.decoders import Fields
from geoco.models.interface import Model, Reconstruction
from geoco.models.selector import Domain, Selector, find_domain
from geoco.models.slots import Binding, Slots, draw_positions
from geoco.training import distributed, losses, selector_teacher, transplants
from geoco.training.curriculum import TERMS, Mode


@dataclass(frozen=True)
class Draws:
    """All random numbers of a step, drawn for the whole batch whoever computes it."""

    positions: Float[Tensor, "batch slot 2"]  # where slots start
    order: Float[Tensor, "batch time slot"]  # of recipients
    choice: Float[Tensor, "batch time"]  # of donors
    mirror: Float[Tensor, " batch"]  # below a half, a clip may be mirrored

    @staticmethod
    def of(generator: torch.Generator, batch: int, time: int, slots: int) -> "Draws":
        positions = draw_positions(batch, slots, generator)
        order = torch.rand(batch, time, slots, generator=generator)
        choice = torch.rand(batch, time, generator=generator)
        return Draws(positions, order, choice, torch.rand(batch, generator=generator))


@dataclass(frozen=True)
class Terms:
    """The six losses, not weighted; zero where a term is not active."""

    rec: Float[Tensor, ""]
    ov: Float[Tensor, ""]
    pos: Float[Tensor, ""]
    geo: Float[Tensor, ""]
    gate: Float[Tensor, ""]
    tail: Float[Tensor, ""]


@dataclass(frozen=True)
class Objective:
    """Losses of a batch: by term, and weighted in the two sums that go back by different ways."""

    terms: Terms
    live: Float[Tensor, ""]
    gated: Float[Tensor, ""] | None  # what must not reach positions and scales
    selector: Float[Tensor, ""] | None
    appearance: Float[Tensor, "batch time slot dim"]
    scene: Reconstruction

    def backward(self, decoder: Sequence[nn.Parameter], selector: Sequence[nn.Parameter]) -> None:
        """Add the gradients of everything to `.grad`; `decoder` holds the decoder's parameters."""
        tensors, gradients = [self.live], [torch.ones_like(self.live)]
        if self.gated is not None:
            inputs = [self.appearance, *decoder]
            found = torch.autograd.grad(self.gated, inputs, retain_graph=True, allow_unused=True)
            if found[0] is not None:
                tensors.append(self.appearance)
                gradients.append(found[0])
            for parameter, gradient in zip(decoder, found[1:], strict=True):
                if gradient is not None:
                    add_gradient(parameter, gradient)
        torch.autograd.backward(tensors, gradients)
        if self.selector is not None:
            found = torch.autograd.grad(self.selector, selector)
            for parameter, gradient in zip(selector, found, strict=True):
                add_gradient(parameter, gradient)


def objective(
    model: Model,
    video: Float[Tensor, "batch time 3 height width"],
    source: Int64[Tensor, " batch"],
    draws: Draws,
    weights: Float[Tensor, " term"],
    mode: Mode,
    settings: TrainConfig,
    parts: "Parts | None" = None,
) -> Objective:
    """Every active term of a batch. Sums and donors are over all processes."""
    parts = parts or Parts()
    binding = model.bind(video, draws.positions, temporal=mode.temporal)
    fields = model.decode_slots(binding.slots)
    logits, selector = _selected(model, video, fields, binding, mode, settings, parts)
    scene = Reconstruction(binding, fields.with_logits(logits))
    total = distributed.total
    zero = logits.new_zeros(())
    terms = dict.fromkeys(TERMS, zero)
    weight = dict(zip(TERMS, weights.unbind(), strict=True))

    terms["rec"] = losses.rec(scene.image, video, total)
    live, gated = weight["rec"] * terms["rec"], None
    if "ov" in mode.terms:
        terms["ov"] = losses.ov(binding.attention, total)
        live = live + weight["ov"] * terms["ov"]
    if "gate" in mode.terms:
        terms["gate"] = losses.gate(binding.gate, total)
        live = live + weight["gate"] * terms["gate"]
    if mode.recenter or mode.terms & {"pos", "geo", "tail"}:
        judged = parts.judge(logits, binding, settings.quality)
        factual = parts.support(logits, judged, mode.sharpness)
        if "pos" in mode.terms:
            terms["pos"] = losses.pos(
                factual.shape.center,
                binding.slots.position,
                judged.positioned,
                settings.huber,
                total,
            )
            gated = weight["pos"] * terms["pos"]
        if mode.recenter:
            # pos the other way around: positions move, and supports stay.
            live = live + mode.recenter * losses.pos(
                binding.slots.position,
                factual.shape.center,
                judged.positioned,
                settings.huber,
                total,
            )
        halves = [zero, zero]
        if "tail" in mode.terms:
            seen = judged.foreground & ~judged.foreground.all(-1, keepdim=True)
            halves[0] = parts.tail(factual.margin, seen.to(logits.dtype), total)
            factual_tail = 0.5 * weight["tail"] * halves[0]
            gated = factual_tail if gated is None else gated + factual_tail
        if mode.terms & {"geo", "tail"}:
            transplant = _transplant(
                model, binding, judged, factual, source, draws, settings, parts.choose
            )
            if "geo" in mode.terms:
                terms["geo"] = parts.geo(transplant, mode.center, mode.sharpness, settings)
                live = live + weight["geo"] * terms["geo"]
            if "tail" in mode.terms:
                halves[1] = parts.tail(transplant.margin, transplant.confidence, total)
                live = live + 0.5 * weight["tail"] * halves[1]
        terms["tail"] = 0.5 * (halves[0] + halves[1])
    return Objective(Terms(**terms), live, gated, selector, binding.slots.appearance, scene)


def add_gradient(parameter: nn.Parameter, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient.to(parameter.dtype).contiguous()
    else:
        parameter.grad += gradient


# -- parts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Factual:
    """Training supports of the slots as they are."""

    background: Float[Tensor, "batch time 1 height width"]
    margin: Float[Tensor, "batch time slot height width"]
    shape: Moments


@dataclass(frozen=True)
class _Transplant:
    """One slot per scene drawn with another appearance, and what it should keep."""

    margin: Float[Tensor, "*scenes height width"]
    recipient: Moments
    donor_compactness: Float[Tensor, "*scenes"]
    position: Float[Tensor, "*scenes 2"]
    scale: Float[Tensor, "*scenes"]
    confidence: Float[Tensor, "*scenes"]


def _geo(
    transplant: _Transplant, center: CenterPenalty, sharpness: float, settings: TrainConfig
) -> Tensor:
    return losses.geo(
        compute_moments(torch.sigmoid(sharpness * transplant.margin)),
        transplant.recipient,
        transplant.donor_compactness,
        transplant.position,
        transplant.scale,
        transplant.confidence,
        center,
        settings.huber,
        settings.weights.compactness,
        distributed.total,
    )


def _selected(
    model: Model,
    video: Tensor,
    fields: Fields,
    binding: Binding,
    mode: Mode,
    settings: TrainConfig,
    parts: "Parts",
) -> tuple[Tensor, Tensor | None]:
    """The logits after the selector, and its own loss."""
    logits = fields.logits
    if model.selector is None or not (mode.selector_trains or mode.selector_applies):
        return logits, None
    domain, score, loss = parts.score(
        model.selector, video, fields.detach(), binding.attention.detach(), settings.selector
    )
    if mode.selector_applies:
        logits = parts.transfer(model.selector, logits, domain, score.detach())
    return logits, loss if mode.selector_trains else None


def _score(
    selector: Selector,
    video: Tensor,
    fields: Fields,
    attention: Tensor,
    train: SelectorTrainingConfig,
) -> tuple[Domain, Tensor, Tensor]:
    """What the selector thinks of every pixel, and the loss of that by its teacher."""
    domain = find_domain(fields.logits, selector.settings)
    score = selector(fields, attention, domain)
    labels = selector_teacher.labels(video, fields, attention, domain, train.teacher)
    slots = fields.logits.shape[-3]
    loss = selector_teacher.selector_loss(
        score, labels, domain.owner, slots, train, distributed.total
    )
    return domain, score, loss.objective


def _factual(logits: Tensor, judged: slot_quality.SlotQuality, sharpness: float) -> _Factual:
    background = compositing.compute_background_logit(logits, ~judged.foreground)
    margin = logits - background
    return _Factual(background, margin, compute_moments(torch.sigmoid(sharpness * margin)))


def _transplant(
    model: Model,
    binding: Binding,
    judged: slot_quality.SlotQuality,
    factual: _Factual,
    source: Tensor,
    draws: Draws,
    settings: TrainConfig,
    choose: Callable[..., transplants.Pairs],
) -> _Transplant:
    """Choose pairs on the frames that geo looks at, and draw the transplanted slots' alpha."""
    frames = [t for t in settings.geometry_frames if t < binding.attention.shape[1]]
    slots = binding.slots
    every_source = distributed.gathered(source)
    parts = []
    for t in frames:
        # Appearance stays live: the donor's path learns from what became of it.
        donor_appearance = distributed.gathered(slots.appearance[:, t]).flatten(0, 1)
        donor_fill = distributed.gathered(factual.shape.compactness[:, t].detach()).flatten()
        chosen = choose(
            judged.valid[:, t],
            slots.scale[:, t].detach(),
            judged.confidence[:, t],
            source,
            distributed.gathered(judged.valid[:, t]),
            distributed.gathered(slots.scale[:, t].detach()),
            distributed.gathered(judged.confidence[:, t]),
            every_source,
            draws.order[:, t],
            draws.choice[:, t],
            settings.quality.scale_ratio,
        )
        own = torch.arange(len(source), device=source.device)
        position = slots.position[:, t].detach()[own, chosen.recipient]
        scale = slots.scale[:, t].detach()[own, chosen.recipient]
        drawn = model.decode_slots(
            Slots(donor_appearance[chosen.donor], position, scale), alpha_only=True
        )
        shape = factual.shape
        recipient = Moments(
            *(part[:, t].detach()[own, chosen.recipient] for part in vars(shape).values())
        )
        parts.append(
            _Transplant(
                drawn.logits - factual.background[:, t, 0],
                recipient,
                donor_fill[chosen.donor],
                position,
                scale,
                chosen.confidence,
            )
        )
    return _stacked(parts)


def _stacked(parts: Sequence[_Transplant]) -> _Transplant:
    def stack(name: str) -> Tensor:
        return torch.stack([getattr(part, name) for part in parts], 1)

    names = ("center", "radius", "coverage", "compactness")
    recipient = Moments(
        *(torch.stack([getattr(part.recipient, name) for part in parts], 1) for name in names)
    )
    return _Transplant(
        stack("margin"),
        recipient,
        stack("donor_compactness"),
        stack("position"),
        stack("scale"),
        stack("confidence"),
    )


@dataclass(frozen=True)
class Parts:
    """The pieces of the objective between the large kernels: many small operations each."""

    score: Callable[..., tuple[Domain, Tensor, Tensor]] = _score
    transfer: Callable[..., Tensor] = Selector.transfer
    judge: Callable[..., slot_quality.SlotQuality] = slot_quality.assess_slots
    support: Callable[..., _Factual] = _factual
    choose: Callable[..., transplants.Pairs] = transplants.choose
    geo: Callable[..., Tensor] = _geo
    tail: Callable[..., Tensor] = losses.tail

    @staticmethod
    def compiled() -> "Parts":
        return Parts(*(torch.compile(part, dynamic=False) for part in vars(Parts()).values()))
