"""Isotropic invariant slot attention (paper, Sec. 3.1) with the terminal readout (Sec. 3.6).

A slot is appearance, position and scale. Tokens are seen in each slot's own frame, so that keys and
values differ by slot; appearance is updated recurrently, position and scale are read off as the
first two moments of attention.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geoco import geometry
from geoco.geometry import EPSILON

SMALLEST_SCALE, LARGEST_SCALE = 0.001, 2.0


@dataclass(frozen=True)
class Slots:
    """The state of slots. Position is (x, y) in [-1, 1]; scale is RMS; both at least float32."""

    appearance: Float[Tensor, "*batch slot dim"]
    position: Float[Tensor, "*batch slot 2"]
    scale: Float[Tensor, "*batch slot"]

    def __getitem__(self, index: Any) -> "Slots":
        """Some of the slots, by their leading dimensions."""
        return self.map(lambda part: part[index])

    def map(self, function: Callable[[Tensor], Tensor]) -> "Slots":
        """Every part changed alike."""
        return Slots(function(self.appearance), function(self.position), function(self.scale))

    def to(self, *target: Any) -> "Slots":
        """On another device or of another type, as `Tensor.to` understands it."""
        return self.map(lambda part: part.to(*target))

    def detach(self) -> "Slots":
        return self.map(Tensor.detach)

    def flatten(self) -> "Slots":
        """All leading dimensions as one."""
        return Slots(
            self.appearance.flatten(0, -2), self.position.flatten(0, -2), self.scale.flatten()
        )

    @staticmethod
    def stack(pieces: "Sequence[Slots]", dim: int = 0) -> "Slots":
        """Along a new leading dimension."""
        return Slots(*(torch.stack(parts, dim) for parts in zip(*map(_parts, pieces), strict=True)))

    @staticmethod
    def cat(pieces: "Sequence[Slots]", dim: int = 0) -> "Slots":
        """Along a leading dimension."""
        return Slots(*(torch.cat(parts, dim) for parts in zip(*map(_parts, pieces), strict=True)))

    def with_slot(self, index: int, slot: "Slots") -> "Slots":
        """The same slots with one exchanged; `slot` has a single one in its place."""

        def put(axis: int, old: Tensor, new: Tensor) -> Tensor:
            result = old.clone()
            result.narrow(axis, index, 1).copy_(new)
            return result

        return Slots(
            put(-2, self.appearance, slot.appearance),
            put(-2, self.position, slot.position),
            put(-1, self.scale, slot.scale),
        )


@dataclass(frozen=True)
class Binding:
    """Slots bound to a frame: their state, where they attend, how far the readout moved them."""

    slots: Slots
    attention: Float[Tensor, "*batch slot token"]  # sums to one over tokens
    gate: Float[Tensor, "*batch slot dim"]  # zero without a readout

    def __getitem__(self, index: Any) -> "Binding":
        """Some of the slots, by their leading dimensions."""
        return Binding(self.slots[index], self.attention[index], self.gate[index])

    @staticmethod
    def stack(pieces: "Sequence[Binding]", dim: int = 0) -> "Binding":
        """Along a new leading dimension."""
        return Binding(
            Slots.stack([piece.slots for piece in pieces], dim),
            torch.stack([piece.attention for piece in pieces], dim),
            torch.stack([piece.gate for piece in pieces], dim),
        )

    @staticmethod
    def cat(pieces: "Sequence[Binding]", dim: int = 0) -> "Binding":
        """Along a leading dimension."""
        return Binding(
            Slots.cat([piece.slots for piece in pieces], dim),
            torch.cat([piece.attention for piece in pieces], dim),
            torch.cat([piece.gate for piece in pieces], dim),
        )


def draw_positions(
    batch: int, slots: int, generator: torch.Generator
) -> Float[Tensor, "{batch} {slots} 2"]:
    """Random starting positions, uniform on the canvas, on the generator's device."""
    shape = (batch, slots, 2)
    return 2 * torch.rand(shape, generator=generator, device=generator.device) - 1


class SlotAttention(nn.Module):
    """Binds slots to tokens on a square grid; `readout` adds the terminal appearance readout."""

    def __init__(
        self,
        count: int = 6,
        dim: int = 64,
        token_dim: int = 64,
        update_dim: int = 128,
        grid_dim: int = 128,
        initial_scale: float = 1.0,
        readout: bool = True,
        gate_bound: float = 0.5,
    ) -> None:
        super().__init__()
        self.appearance = nn.Parameter(torch.randn(count, dim))
        self.scale = nn.Parameter(torch.full((count,), initial_scale))
        self.token_norm = nn.LayerNorm(token_dim)
        self.slot_norm = nn.LayerNorm(dim)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(token_dim, dim, bias=False)
        self.value = nn.Linear(token_dim, dim, bias=False)
        self.grid = nn.Linear(2, dim)
        self.grid_mlp = build_mlp(dim, grid_dim)
        self.recurrence = nn.GRUCell(dim, dim)
        self.update_mlp = build_mlp(dim, update_dim)
        self.readout = Readout(dim, gate_bound) if readout else None

    def start_slots(self, position: Float[Tensor, "batch slot 2"]) -> Slots:
        """Where a first frame starts: learned appearances and scales at the given positions."""
        batch = position.shape[0]
        return Slots(self.appearance.expand(batch, -1, -1), position, self.scale.expand(batch, -1))

    def forward(
        self, tokens: Float[Tensor, "batch token token_dim"], start: Slots, iterations: int
    ) -> Binding:
        """`iterations` updates of the slots, then one more look that updates no appearance."""
        tokens = self.token_norm(tokens)
        key, value = self.key(tokens), self.value(tokens)
        side = round(tokens.shape[1] ** 0.5)
        kind, device = start.scale.dtype, start.scale.device
        points = geometry.build_grid(side, side, dtype=kind, device=device).flatten(0, 1)
        slots = start
        for _ in range(iterations):
            attention, aggregate = self._attend(key, value, points, slots)
            position, scale = compute_attention_moments(attention, points)
            slots = Slots(self._update(slots.appearance, aggregate), position, scale)
        attention, aggregate = self._attend(key, value, points, slots)
        position, scale = compute_attention_moments(attention, points)
        appearance = slots.appearance
        gate = torch.zeros_like(appearance)
        if self.readout is not None:
            appearance, gate = self.readout(appearance, self._update(appearance, aggregate))
        return Binding(Slots(appearance, position, scale), attention, gate)

    def _attend(
        self, key: Tensor, value: Tensor, points: Tensor, slots: Slots
    ) -> tuple[Float[Tensor, "batch slot token"], Float[Tensor, "batch slot dim"]]:
        """Spatially normalised attention, Eq. (spatial-attention), and the values it gathers."""
        with torch.autocast(points.device.type, enabled=False):  # coordinates are never rounded
            seen = geometry.to_slot_frame(points, slots.position, slots.scale)
            # A linear layer of two inputs, written out: it then fuses with what follows it.
            weight = self.grid.weight
            place = seen[..., :1] * weight[:, 0] + seen[..., 1:] * weight[:, 1] + self.grid.bias
        keys = self.grid_mlp(key[:, None] + place)
        values = self.grid_mlp(value[:, None] + place)
        query = self.query(self.slot_norm(slots.appearance))
        logits = torch.einsum("bsd,bstd->bst", query, keys) * query.shape[-1] ** -0.5
        owned = torch.softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=1)
        attention = owned / (owned.sum(-1, keepdim=True) + EPSILON)
        return attention, torch.einsum("bst,bstd->bsd", attention.to(values.dtype), values)

    def _update(self, appearance: Tensor, aggregate: Tensor) -> Tensor:
        dim = appearance.shape[-1]
        state = self.recurrence(aggregate.reshape(-1, dim), appearance.reshape(-1, dim))
        state = state.view_as(appearance)
        result: Tensor = state + self.update_mlp(state)
        return result


class Readout(nn.Module):
    """A bounded step from an appearance toward its next update, at first of no length.

    Position and scale stay as they are.
    """

    def __init__(self, dim: int, bound: float) -> None:
        super().__init__()
        self.bound = bound
        self.norm = nn.LayerNorm(2 * dim, elementwise_affine=False)
        self.gate = nn.Linear(2 * dim, dim)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(
        self, appearance: Float[Tensor, "*slots dim"], proposal: Float[Tensor, "*slots dim"]
    ) -> tuple[Float[Tensor, "*slots dim"], Float[Tensor, "*slots dim"]]:
        """The new appearance and the gate."""
        step = proposal - appearance
        gate = self.bound * torch.tanh(self.gate(self.norm(torch.cat((appearance, step), -1))))
        return appearance + gate * step, gate


def compute_attention_moments(
    attention: Float[Tensor, "batch slot token"], points: Float[Tensor, "token 2"]
) -> tuple[Float[Tensor, "batch slot 2"], Float[Tensor, "batch slot"]]:
    """Position and scale of slots, the moments of their attention: Eq. (isa-moments)."""
    with torch.autocast(attention.device.type, enabled=False):
        points = points.to(attention.dtype)
        position = attention @ points
        away = (points - position[:, :, None]).square().sum(-1)
        scale = ((attention * away).sum(-1) + EPSILON).sqrt()
        return position, scale.clamp(SMALLEST_SCALE, LARGEST_SCALE)


def build_mlp(dim: int, hidden: int) -> nn.Sequential:
    """A layer in between, behind a norm of what comes in."""
    return nn.Sequential(
        nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim)
    )


def _parts(slots: Slots) -> tuple[Tensor, Tensor, Tensor]:
    return slots.appearance, slots.position, slots.scale
