"""The training objective of GeoCo-SAVi (paper, Sec. 3.5), and the backward pass it needs.

Two of the terms, pos and the factual half of tail, update decoder and appearance but send nothing
to any commanded position or scale. Both read the same decoded logits as the other terms. So rather
than decoding twice, they have a backward pass of their own through the decoder, in which positions
and scales are left out; the gradient it gives to appearance joins that of the other terms in their
backward pass (`GeoCoLosses.backward`). With `train.separate_pass` off, ours, one pass does it all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from geoco.config.training import CenterPenalty, SelectorTrainingConfig, TrainConfig
from geoco.geometry import Moments, compute_moments
from geoco.models import compositing, slot_quality
from geoco.models.decoders import Fields
from geoco.models.feature_head import FeatureHead
from geoco.models.interface import Model, Reconstruction
from geoco.models.selector import Domain, Selector, find_domain
from geoco.training import losses, selector_teacher
from geoco.training.curriculum import TERMS, Mode
from geoco.training.distributed import sum_over_ranks
from geoco.training.objective import Draws, Losses, Objective
from geoco.training.transplants import Transplants, choose_pairs, decode_transplants

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class GeoCoLosses(Losses):
    """Losses of a batch, with the sums that have different backward passes."""

    live: Float[Tensor, ""]  # reaches everything
    extra: Float[Tensor, ""] | None  # so does this, whose weight no curriculum knows
    gated: Float[Tensor, ""] | None  # must not reach positions and scales
    selector: Float[Tensor, ""] | None  # reaches the selector alone
    scene: Reconstruction
    model: Model

    def backward(self) -> None:
        self._backward(self.live if self.extra is None else self.live + self.extra)

    def backward_alone(self, name: str, weight: float) -> None:
        """By the same passes, if the losses were computed with the weight of this one alone."""
        if name in TERMS:
            self._backward(self.live)
        else:
            super().backward_alone(name, weight)

    def _backward(self, live: Tensor) -> None:
        decoder_parameters = self.model.decoder_parameters()
        tensors, gradients = [live], [torch.ones_like(live)]
        if self.gated is not None:
            appearance = self.scene.binding.slots.appearance
            for_appearance, *for_decoder = torch.autograd.grad(
                self.gated,
                [appearance, *decoder_parameters],
                retain_graph=True,
                allow_unused=True,
            )
            if for_appearance is not None:
                tensors.append(appearance)
                gradients.append(for_appearance)
            for parameter, gradient in zip(decoder_parameters, for_decoder, strict=True):
                if gradient is not None:
                    add_gradient(parameter, gradient)
        torch.autograd.backward(tensors, gradients)
        if self.selector is not None:
            assert self.model.selector is not None
            selector_parameters = list(self.model.selector.parameters())
            for_selector = torch.autograd.grad(self.selector, selector_parameters)
            for parameter, gradient in zip(selector_parameters, for_selector, strict=True):
                add_gradient(parameter, gradient)


class GeoCoObjective(Objective):
    """The six terms of the paper, two of ours, and the selector's own loss."""

    terms: tuple[str, ...] = TERMS
    separate = ("selector",)

    def __init__(self, model: Model, settings: TrainConfig, compiled: bool = False) -> None:
        super().__init__(model, settings, compiled)
        self.feature_head: FeatureHead | None = getattr(model, "feature_head", None)
        if self.feature_head is not None:
            self.terms = (*self.terms, "feat")

        def maybe_compile(function: Function) -> Function:
            return cast(Function, torch.compile(function, dynamic=False)) if compiled else function

        # What lies between the large kernels: many small operations each.
        self._score_pixels = maybe_compile(score_pixels)
        self._transfer = maybe_compile(Selector.transfer)
        self._assess_slots = maybe_compile(slot_quality.assess_slots)
        self._compute_supports = maybe_compile(compute_supports)
        self._choose_pairs = maybe_compile(choose_pairs)
        self._geo = maybe_compile(geo_of_transplants)
        self._tail = maybe_compile(losses.tail)
        self._own = maybe_compile(losses.own)

    def compute(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        source: Int64[Tensor, " batch"],
        draws: Draws,
        weights: Float[Tensor, " term"],
        mode: Mode,
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> GeoCoLosses:
        model, settings = self.model, self.settings
        random_pairs = settings.temporal.random_pairs and mode.temporal
        chosen = {"earlier": draws.earlier} if random_pairs else {}
        binding = model.bind(video, draws.positions, mode.temporal, features, **chosen)
        fields = model.decode_slots(binding.slots)
        logits, selector = self._apply_selector(video, Reconstruction(binding, fields), mode)
        scene = Reconstruction(binding, fields.with_logits(logits))
        zero = logits.new_zeros(())
        values: dict[str, Tensor] = dict.fromkeys(TERMS, zero)
        weight = dict(zip(TERMS, weights.unbind(), strict=True))

        values["rec"] = losses.rec(scene.image, video, sum_over_ranks)
        live, gated = weight["rec"] * values["rec"], None
        if "ov" in mode.terms:
            values["ov"] = losses.ov(binding.attention, sum_over_ranks)
            live = live + weight["ov"] * values["ov"]
        if "gate" in mode.terms:
            values["gate"] = losses.gate(binding.gate, sum_over_ranks)
            live = live + weight["gate"] * values["gate"]
        if "own" in mode.terms:
            assert scene.fields.rgb is not None
            against = video if settings.own_against == "frame" else None
            values["own"] = self._own(
                scene.fields.rgb, scene.alpha, settings.own_width, against, sum_over_ranks
            )
            live = live + weight["own"] * values["own"]
        if mode.recenter or mode.terms & {"pos", "geo", "tail"}:
            quality = self._assess_slots(logits, binding, settings.quality)
            supports = self._compute_supports(logits, quality.foreground, mode.sharpness)
            center, position = supports.moments.center, binding.slots.position
            if "pos" in mode.terms:
                values["pos"] = losses.pos(
                    center,
                    position,
                    quality.positioned,
                    settings.huber,
                    sum_over_ranks,
                    live=not settings.separate_pass,
                )
                gated = weight["pos"] * values["pos"]
            if mode.recenter:
                # pos the other way around: positions move, and supports stay.
                live = live + mode.recenter * losses.pos(
                    position, center, quality.positioned, settings.huber, sum_over_ranks
                )
            halves = [zero, zero]  # of tail: supports as they are, and those of transplants
            if "tail" in mode.terms:
                present = quality.foreground & ~quality.foreground.all(-1, keepdim=True)
                halves[0] = self._tail(supports.margin, present.to(logits.dtype), sum_over_ranks)
                factual_tail = 0.5 * weight["tail"] * halves[0]
                gated = factual_tail if gated is None else gated + factual_tail
            if mode.terms & {"geo", "tail"}:
                transplants = decode_transplants(
                    model, binding, quality, supports.background, supports.moments, source,
                    draws.order, draws.choice, settings, self._choose_pairs,
                )  # fmt: skip
                if "geo" in mode.terms:
                    values["geo"] = self._geo(transplants, mode.center, mode.sharpness, settings)
                    live = live + weight["geo"] * values["geo"]
                if "tail" in mode.terms:
                    halves[1] = self._tail(
                        transplants.margin, transplants.confidence, sum_over_ranks
                    )
                    live = live + 0.5 * weight["tail"] * halves[1]
            values["tail"] = 0.5 * (halves[0] + halves[1])
        if gated is not None and not settings.separate_pass:
            live, gated = live + gated, None
        extra = None
        if self.feature_head is not None:
            values["feat"] = self._compute_feat(self.feature_head, scene, video, features)
            extra = self.feature_head.settings.weight * values["feat"]
        values["selector"] = zero if selector is None else selector
        return GeoCoLosses(
            by_name=values,
            total=sum(part.detach() for part in (gated, extra) if part is not None) + live.detach(),
            live=live,
            extra=extra,
            gated=gated,
            selector=selector,
            scene=scene,
            model=model,
        )

    def _compute_feat(
        self, head: FeatureHead, scene: Reconstruction, video: Tensor, features: Tensor | None
    ) -> Tensor:
        if features is None:
            features = self.model.compute_features(video.flatten(0, 1))
            features = features.unflatten(0, video.shape[:2])
        return losses.feat(head(scene.binding.slots, scene.alpha), features, sum_over_ranks)

    def _apply_selector(
        self, video: Tensor, raw: Reconstruction, mode: Mode
    ) -> tuple[Tensor, Tensor | None]:
        """The logits after the selector, and its own loss."""
        selector, logits = self.model.selector, raw.fields.logits
        if selector is None or not (mode.selector_trains or mode.selector_applies):
            return logits, None
        domain, score, loss = self._score_pixels(
            selector,
            video,
            raw.fields.detach(),
            raw.binding.attention.detach(),
            self.settings.selector,
        )
        if mode.selector_applies:
            logits = self._transfer(selector, logits, domain, score.detach())
        return logits, loss if mode.selector_trains else None


def add_gradient(parameter: nn.Parameter, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient.to(parameter.dtype).contiguous()
    else:
        parameter.grad += gradient


# -- what is compiled, piece by piece --------------------------------------------------------------


@dataclass(frozen=True)
class Supports:
    """Training supports of the slots as they are: margins over the background, and moments."""

    background: Float[Tensor, "batch time 1 height width"]
    margin: Float[Tensor, "batch time slot height width"]
    moments: Moments


def compute_supports(logits: Tensor, foreground: Tensor, sharpness: float) -> Supports:
    background = compositing.compute_background_logit(logits, ~foreground)
    margin = logits - background
    return Supports(background, margin, compute_moments(torch.sigmoid(sharpness * margin)))


def score_pixels(
    selector: Selector,
    video: Tensor,
    fields: Fields,
    attention: Tensor,
    settings: SelectorTrainingConfig,
) -> tuple[Domain, Tensor, Tensor]:
    """Which pixels the selector may change, its score of them, and the loss of that score."""
    domain = find_domain(fields.logits, selector.settings)
    score = selector(fields, attention, domain)
    labels = selector_teacher.label_pixels(video, fields, attention, domain, settings.teacher)
    slots = fields.logits.shape[-3]
    loss = selector_teacher.selector_loss(
        score, labels, domain.owner, slots, settings, sum_over_ranks
    )
    return domain, score, loss.objective


def geo_of_transplants(
    transplants: Transplants, center: CenterPenalty, sharpness: float, settings: TrainConfig
) -> Tensor:
    return losses.geo(
        compute_moments(torch.sigmoid(sharpness * transplants.margin)),
        transplants.recipient,
        transplants.donor_compactness,
        transplants.position,
        transplants.scale,
        transplants.confidence,
        center,
        settings.huber,
        settings.weights.compactness,
        sum_over_ranks,
    )
