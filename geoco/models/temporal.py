"""The temporal initializer: where slots start on the next frame (paper, supplement).

One layer of a time-slot transformer in the manner of STATM. It predicts a correction to plain
carry-forward, at first of no size; slot attention then refines the start on the frame itself.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from geoco import geometry
from geoco.models.slots import LARGEST_SCALE, SMALLEST_SCALE, Slots


class TimeSlotLayer(nn.Module):
    """One layer of STATM: each slot looks at the other slots now, and at its own states up to now.

    Both looks are sets: nothing says which slot is which or how long ago a state was, so slots may
    come in any order and a history may have any length.
    """

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.across = nn.MultiheadAttention(width, heads, batch_first=True)  # the slots
        self.across_norm = nn.LayerNorm(width)
        self.along = nn.MultiheadAttention(width, heads, batch_first=True)  # time
        self.along_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.norm = nn.LayerNorm(width)

    def look_around(
        self, states: Float[Tensor, "batch slot time width"]
    ) -> Float[Tensor, "batch slot width"]:
        """What each slot makes of the others and of its own past; the last state is that of now."""
        now = states[:, :, -1]
        others, _ = self.across(now, now, now, need_weights=False)
        own = states.flatten(0, 1)
        past, _ = self.along(own[:, -1:], own, own, need_weights=False)
        seen = self.across_norm(now + others) + self.along_norm(now + past.view_as(now))
        result: Tensor = self.norm(seen + self.mlp(seen))
        return result


class AppearancePredictor(TimeSlotLayer):
    """The appearances of the next frame from those of all frames so far: STATM's own predictor.

    Gradients flow back through all of them. Slots have this layer's width.
    """

    def forward(
        self, history: Sequence[Float[Tensor, "batch slot dim"]]
    ) -> Float[Tensor, "batch slot dim"]:
        with torch.autocast(history[-1].device.type, enabled=False):
            return self.look_around(torch.stack(list(history), 2).to(self.norm.weight.dtype))


class TemporalInitializer(TimeSlotLayer):
    """The next start of slots with position and scale: where they are, and a learned correction.

    With `token_dim`, ours after RandSF.Q, each slot also looks at the tokens of the next frame and
    where they are, before it is bound to them.
    """

    def __init__(
        self,
        dim: int = 64,
        width: int = 128,
        heads: int = 4,
        hidden: int = 512,
        token_dim: int | None = None,
    ) -> None:
        super().__init__(width, heads, hidden)
        self.dim = dim
        self.ahead: Ahead | None = None if token_dim is None else Ahead(token_dim, width, heads)
        self.embed = nn.Linear(dim + 3, width)
        self.residual = nn.Linear(width, dim + 3)
        nn.init.zeros_(self.residual.weight)
        nn.init.zeros_(self.residual.bias)

    def forward(
        self,
        history: Sequence[Slots],
        tokens: Float[Tensor, "batch token token_dim"] | None = None,
    ) -> Slots:
        """The next start by Eq. (temporal-initializer); the last of `history` is the latest state.

        No gradient flows back in time, neither through what is looked at nor through what is added
        to: the next frame's losses teach this module and what follows it. `tokens` are the next
        frame's, where they are looked at; nor do they learn from it.
        """
        states = [slots.detach() for slots in history]
        last = states[-1]
        # A few slots only, so that full precision costs nothing and coordinates are never rounded.
        with torch.autocast(last.scale.device.type, enabled=False):
            flat = torch.stack([_flatten_state(slots) for slots in states], 2)
            embedded = self.embed(flat.to(self.embed.weight.dtype))
            seen = self.look_around(embedded)
            if self.ahead is not None:
                assert tokens is not None
                seen = self.ahead(seen, tokens.detach())
            change = self.residual(seen)
            appearance, position, scale = change.split((self.dim, 2, 1), -1)
            return Slots(
                last.appearance + appearance,
                (last.position + position).clamp(-1, 1),
                (last.scale * scale[..., 0].exp()).clamp(SMALLEST_SCALE, LARGEST_SCALE),
            )


class Ahead(nn.Module):
    """What slots make of the tokens of the next frame; tokens say where they are."""

    def __init__(self, token_dim: int, width: int, heads: int) -> None:
        super().__init__()
        self.token_norm = nn.LayerNorm(token_dim)
        self.read = nn.Linear(token_dim, width)
        self.place = nn.Linear(2, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(
        self,
        slots: Float[Tensor, "batch slot width"],
        tokens: Float[Tensor, "batch token token_dim"],
    ) -> Float[Tensor, "batch slot width"]:
        side, kind = round(tokens.shape[1] ** 0.5), slots.dtype
        points = geometry.build_grid(side, side, dtype=kind, device=slots.device).flatten(0, 1)
        there = self.read(self.token_norm(tokens.to(kind))) + self.place(points)
        found, _ = self.attention(slots, there, there, need_weights=False)
        result: Tensor = self.norm(slots + found)
        return result


def bring_forward(history: Sequence[Slots], choice: Float[Tensor, " batch"]) -> list[Slots]:
    """The same states, of which each clip's chosen one is now the last, from which it is predicted.

    `choice` is uniform in [0, 1). A history is a set: where the last one goes does not matter.
    """
    states, last = Slots.stack(history, 1), len(history) - 1
    chosen = (choice * len(history)).long().clamp(max=last)[:, None]
    place = torch.arange(len(history), device=choice.device)
    order = torch.where(place == chosen, last, torch.where(place == last, chosen, place))
    rows = torch.arange(len(choice), device=choice.device)[:, None]
    swapped = states[rows, order]
    return [swapped[:, number] for number in range(len(history))]


def _flatten_state(slots: Slots) -> Float[Tensor, "batch slot state"]:
    """A slot's state as one vector, its scale as it is: only the update is in logarithms."""
    return torch.cat((slots.appearance, slots.position, slots.scale[..., None]), -1)
