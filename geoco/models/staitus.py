"""STAITUS, a baseline of video: slots of appearance and pose, aligned in time by appearance.

Slots are bound by invariant slot attention and drawn by ordinary convolutions. Between frames a
slot keeps its pose, and a predictor says what it will look like: prediction and what the next
frame makes of it are aligned, and nothing holds a pose back. A gate closes slots that a scene does
not need; closed ones are not drawn. No code or text of STAITUS is public where we could read it:
docs/baselines.md lists what is known and what is our choice.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from geoco import config
from geoco.models import encoders
from geoco.models.decoders import DECODERS, Fields
from geoco.models.picture_model import PictureModel
from geoco.models.slots import Binding, SlotAttention, Slots
from geoco.models.temporal import AppearancePredictor

CLOSED = 1e-12  # the share of its alpha that a closed slot keeps


@dataclass(frozen=True)
class StaitusBinding(Binding):
    """Slots bound to clips, and what was predicted of their appearances."""

    predicted: Float[Tensor, "batch later slot dim"]  # of every frame but the first


class Activity(nn.Module):
    """The probability that a slot is open, by its appearance alone; at first the same for all.

    What a slot looks like decides, not where or how large it is: so moving and resizing leave the
    gate as it was.
    """

    def __init__(self, dim: int, hidden: int, initial: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.hidden = nn.Linear(dim, hidden)
        self.logit = nn.Linear(hidden, 1)
        nn.init.zeros_(self.logit.weight)
        nn.init.constant_(self.logit.bias, math.log(initial / (1 - initial)))

    def forward(self, appearance: Float[Tensor, "*slots dim"]) -> Float[Tensor, "*slots"]:
        with torch.autocast(appearance.device.type, enabled=False):
            seen = self.norm(appearance.to(self.logit.weight.dtype))
            return torch.sigmoid(self.logit(torch.relu(self.hidden(seen)))).squeeze(-1)


class Staitus(PictureModel):
    """Slots with appearance, position and scale, of which some are closed."""

    settings: config.StaitusConfig
    attention: SlotAttention
    gate_share: Tensor

    def __init__(self, settings: config.StaitusConfig) -> None:
        super().__init__(settings)
        slots, predictor, activity = settings.slots, settings.predictor, settings.activity
        self.encoder = encoders.build_encoder(settings.encoder, settings.decoder.layers[-1][0])
        self.attention = SlotAttention(
            count=slots.count,
            dim=slots.dim,
            token_dim=self.encoder.dim,
            update_dim=slots.update_dim,
            grid_dim=slots.grid_dim,
            initial_scale=slots.initial_scale,
            readout=False,
        )
        self.predictor = AppearancePredictor(slots.dim, predictor.heads, predictor.hidden)
        self.activity = Activity(slots.dim, activity.hidden, activity.initial)
        self.decoder = DECODERS[settings.decoder.design](settings.decoder, slots.dim)
        # A part of the weights: of a training that stopped early slots are as open as they were.
        self.register_buffer("gate_share", torch.zeros(()))

    @property
    def carries_slots(self) -> bool:
        return True

    def bind(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        positions: Float[Tensor, "batch slot 2"],
        temporal: bool = True,
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> StaitusBinding:
        """Slots of every frame. A later frame starts with the predicted appearance and old pose.

        With `temporal` off it starts where the frame before it ended.
        """
        tokens = self.encode(video, features)
        start = self.attention.start_slots(positions)
        iterations = self.settings.slots.first_iterations
        bindings: list[Binding] = []
        predictions: list[Tensor] = []
        for frame in tokens.unbind(1):
            bindings.append(self.attention(frame, start, iterations))
            start = last = bindings[-1].slots
            if len(bindings) < video.shape[1]:
                seen = [binding.slots.appearance for binding in bindings]
                predictions.append(self.predictor(seen))
                if temporal:
                    start = Slots(predictions[-1], last.position, last.scale)
            iterations = self.settings.slots.later_iterations
        bound = Binding.stack(bindings, 1)
        later = bound.slots.appearance[:, 1:]
        predicted = torch.stack(predictions, 1) if predictions else torch.empty_like(later)
        return StaitusBinding(bound.slots, bound.attention, bound.gate, predicted)

    def decode_slots(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        """What slots look like, their alpha by their gates."""
        return self._close_slots(super().decode_slots(slots, extent, alpha_only), slots)

    def decode_middle(self, slots: Slots, extent: int, alpha_only: bool = False) -> Fields:
        return self._close_slots(self.decoder.decode_middle(slots, extent, alpha_only), slots)

    def compute_gates(self, appearance: Float[Tensor, "*slots dim"]) -> Float[Tensor, "*slots"]:
        """What alpha is multiplied by: one for open slots, for closed ones what the ramp leaves.

        Forward it is one or the other, backward as if it were the probability itself.
        """
        probability = self.activity(appearance)
        hard = (probability > 0.5).to(probability.dtype) + (probability - probability.detach())
        kept = 1 - self.gate_share.to(probability.dtype) * (1 - hard)
        return CLOSED + (1 - CLOSED) * kept

    def find_active(self, appearance: Float[Tensor, "*slots dim"]) -> Bool[Tensor, "*slots"]:
        """The open slots; all of them for as long as closed ones are drawn at all."""
        probability: Tensor = self.activity(appearance)
        return (probability > 0.5) | (self.gate_share < 1)

    def _close_slots(self, fields: Fields, slots: Slots) -> Fields:
        gates = self.compute_gates(slots.appearance)
        return fields.with_logits(fields.logits + gates.log()[..., None, None])

    def set_gate_share(self, value: float) -> None:
        self.gate_share.fill_(value)
