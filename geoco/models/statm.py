"""STATM-SAVi, a baseline of video: plain slot attention with STATM's transformer between frames.

A slot is an appearance alone. The transformer (`models/temporal.py`) predicts where the next frame
starts from all slots so far, in STATM's strongest published form: in parallel each slot looks at
the slots of its frame and at its own history. docs/baselines.md lists what is our choice.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geoco import config, geometry
from geoco.geometry import EPSILON
from geoco.models import encoders
from geoco.models.decoders import DECODERS, Fields
from geoco.models.picture_model import PictureModel
from geoco.models.slots import Binding, Slots, build_mlp
from geoco.models.temporal import AppearancePredictor

# In a slot's own frame the canvas is then [-1, 1] again, so that its decoder is SAVi's.
CANVAS_SCALE = 0.2


class PlainSlotAttention(nn.Module):
    """Slot attention without positions: tokens say where they are by an embedding, added to them.

    Each slot has a learned start (our choice, GeoCo-SAVi's).
    """

    def __init__(self, count: int, dim: int, token_dim: int, update_dim: int) -> None:
        super().__init__()
        self.appearance = nn.Parameter(torch.randn(count, dim))
        self.place = nn.Linear(2, token_dim)
        self.token_norm = nn.LayerNorm(token_dim)
        self.slot_norm = nn.LayerNorm(dim)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(token_dim, dim, bias=False)
        self.value = nn.Linear(token_dim, dim, bias=False)
        self.recurrence = nn.GRUCell(dim, dim)
        self.update_mlp = build_mlp(dim, update_dim)

    def start_slots(self, batch: int) -> Float[Tensor, "{batch} slot dim"]:
        """Where a first frame starts."""
        return self.appearance.expand(batch, -1, -1)

    def forward(
        self,
        tokens: Float[Tensor, "batch token token_dim"],
        start: Float[Tensor, "batch slot dim"],
        iterations: int,
    ) -> tuple[Float[Tensor, "batch slot dim"], Float[Tensor, "batch slot token"]]:
        """The slots after so many updates, and where they attended in the last of them."""
        side = round(tokens.shape[1] ** 0.5)
        points = geometry.build_grid(side, side, dtype=self.place.weight.dtype, device=start.device)
        tokens = self.token_norm(tokens + self.place(points.flatten(0, 1)))
        key, value = self.key(tokens), self.value(tokens)
        slots, attention = start, start.new_empty(0)
        for _ in range(iterations):
            query = self.query(self.slot_norm(slots))
            logits = torch.einsum("bsd,btd->bst", query, key) * query.shape[-1] ** -0.5
            owned = torch.softmax(logits if logits.dtype == torch.float64 else logits.float(), 1)
            attention = owned / (owned.sum(-1, keepdim=True) + EPSILON)
            seen = torch.einsum("bst,btd->bsd", attention.to(value.dtype), value)
            state = self.recurrence(seen.flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
            slots = state + self.update_mlp(state)
        return slots, attention


class Statm(PictureModel):
    """Slots without position and scale, which are nan wherever slots have to have them."""

    settings: config.StatmConfig
    attention: PlainSlotAttention

    def __init__(self, settings: config.StatmConfig) -> None:
        super().__init__(settings)
        slots, predictor = settings.slots, settings.predictor
        self.encoder = encoders.build_encoder(settings.encoder, settings.decoder.layers[-1][0])
        self.attention = PlainSlotAttention(
            slots.count, slots.dim, self.encoder.dim, slots.update_dim
        )
        self.predictor = AppearancePredictor(slots.dim, predictor.heads, predictor.hidden)
        self.decoder = DECODERS[settings.decoder.design](settings.decoder, slots.dim)

    @property
    def carries_slots(self) -> bool:
        return True

    def bind(
        self,
        video: Float[Tensor, "batch time 3 height width"],
        positions: Float[Tensor, "batch slot 2"],
        temporal: bool = True,
        features: Float[Tensor, "batch time token channel"] | None = None,
    ) -> Binding:
        """Slots of every frame; `positions` are nothing to them.

        A later frame starts where the predictor says, or, with `temporal` off, where the frame
        before it ended.
        """
        tokens = self.encode(video, features)
        start = self.attention.start_slots(len(video))
        iterations = self.settings.slots.first_iterations
        history: list[Tensor] = []
        attentions: list[Tensor] = []
        for frame in tokens.unbind(1):
            start, attention = self.attention(frame, start, iterations)
            history.append(start)
            attentions.append(attention)
            if temporal and len(history) < video.shape[1]:
                start = self.predictor(history)
            iterations = self.settings.slots.later_iterations
        appearance = torch.stack(history, 1)
        return Binding(
            make_unplaced_slots(appearance),
            torch.stack(attentions, 1),
            torch.zeros_like(appearance),
        )

    def decode_slots(self, slots: Slots, extent: int = 1, alpha_only: bool = False) -> Fields:
        """What slots look like; positions and scales are not looked at."""
        centered = Slots(
            slots.appearance,
            torch.zeros_like(slots.position),
            torch.full_like(slots.scale, CANVAS_SCALE),
        )
        return super().decode_slots(centered, extent, alpha_only)


def make_unplaced_slots(appearance: Float[Tensor, "*batch slot dim"]) -> Slots:
    """Slots of a model that knows no position and no scale."""
    shape = (*appearance.shape[:-1], 2)
    kind = torch.promote_types(appearance.dtype, torch.float32)
    nowhere = torch.full(shape, torch.nan, dtype=kind, device=appearance.device)
    return Slots(appearance, nowhere, nowhere[..., 0])
