"""States of slots through time, what changes between two, and attention in a loop."""

import math

import torch
from torch import Tensor, nn

from geoco.models.slots import Slots

BATCH, SLOTS, DIM = 2, 4, 5


def state(seed: int) -> Slots:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.rand(BATCH, SLOTS, *shape, generator=generator, dtype=torch.float64)

    return Slots(4 * draw(DIM) - 2, draw(2) - 0.5, 0.2 + 0.3 * draw())


def history(length: int = 3) -> list[Slots]:
    return [state(seed) for seed in range(length)]


def parts(slots: Slots) -> tuple[Tensor, Tensor, Tensor]:
    return slots.appearance, slots.position, slots.scale


def change_slot(slots: Slots, slot: int) -> Slots:
    """The same state with one slot elsewhere, of another size and look."""
    appearance, position, scale = (part.clone() for part in parts(slots))
    appearance[:, slot] += 1
    position[:, slot] *= -1
    scale[:, slot] *= 1.5
    return Slots(appearance, position, scale)


def find_changes(before: Slots, after: Slots) -> list[bool]:
    """Which slots differ at all."""
    different = (before.appearance - after.appearance).abs().amax((0, 2)) > 1e-9
    return different.tolist()


def attend(attention: nn.MultiheadAttention, query: Tensor, others: list[Tensor]) -> Tensor:
    """One query over a list of vectors, head by head."""
    assert attention.in_proj_weight is not None
    weights = attention.in_proj_weight.chunk(3)
    biases = attention.in_proj_bias.chunk(3)
    q = weights[0] @ query + biases[0]
    size = len(query) // attention.num_heads
    gathered = []
    for head in range(attention.num_heads):
        here = slice(head * size, (head + 1) * size)
        keys = [(weights[1] @ other + biases[1])[here] for other in others]
        values = [(weights[2] @ other + biases[2])[here] for other in others]
        scores = [math.exp((q[here] @ key).item() / math.sqrt(size)) for key in keys]
        gathered.append(
            sum(s / sum(scores) * value for s, value in zip(scores, values, strict=True))
        )
    return attention.out_proj.weight @ torch.cat(gathered) + attention.out_proj.bias  # type: ignore[arg-type]
