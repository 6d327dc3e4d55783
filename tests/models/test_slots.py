"""Invariant slot attention: its formulas in a loop, its symmetries, its counts."""

import math

import pytest
import torch
from torch import Tensor

from geoco import geometry
from geoco.models.slots import (
    Readout,
    SlotAttention,
    Slots,
    compute_attention_moments,
    draw_positions,
)


def build_attention(readout: bool = True, count: int = 4) -> tuple[SlotAttention, Tensor, Slots]:
    torch.manual_seed(0)
    attention = SlotAttention(
        count=count, dim=8, token_dim=6, update_dim=10, grid_dim=12, readout=readout
    )
    attention = attention.double()
    tokens = torch.randn(2, 25, 6, dtype=torch.float64)
    positions = torch.rand(2, count, 2, dtype=torch.float64) * 2 - 1
    return attention, tokens, attention.start_slots(positions)


def by_loops(
    attention: SlotAttention, tokens: Tensor, start: Slots, iterations: int
) -> list[Tensor]:
    """The same computation, one slot and one token at a time, from the paper's equations."""
    a, p, s = start.appearance.clone(), start.position.clone(), start.scale.clone()
    points = geometry.build_grid(5, 5, dtype=torch.float64).flatten(0, 1)
    batch, slots, dim = a.shape
    weights = torch.zeros(batch, slots, 25, dtype=torch.float64)
    for number in range(iterations + 1):
        logits = torch.zeros(batch, slots, 25, dtype=torch.float64)
        values = torch.zeros(batch, slots, 25, dim, dtype=torch.float64)
        for b in range(batch):
            for i in range(slots):
                query = attention.query.weight @ attention.slot_norm(a[b, i])
                for n in range(25):
                    token = attention.token_norm(tokens[b, n])
                    where = (points[n] - p[b, i]) / (5 * s[b, i] + 1e-8)
                    place = attention.grid.weight @ where + attention.grid.bias
                    key = attention.grid_mlp(attention.key.weight @ token + place)
                    values[b, i, n] = attention.grid_mlp(attention.value.weight @ token + place)
                    logits[b, i, n] = query @ key / math.sqrt(dim)
        owned = logits.exp() / logits.exp().sum(1, keepdim=True)
        weights = owned / (owned.sum(-1, keepdim=True) + 1e-8)
        for b in range(batch):
            for i in range(slots):
                gathered = sum(weights[b, i, n] * values[b, i, n] for n in range(25))
                p[b, i] = sum(weights[b, i, n] * points[n] for n in range(25))
                square = sum(
                    weights[b, i, n] * (points[n] - p[b, i]).square().sum() for n in range(25)
                )
                s[b, i] = (square + 1e-8).sqrt().clamp(0.001, 2)
                proposal = attention.recurrence(gathered[None], a[b, i][None])[0]
                proposal = proposal + attention.update_mlp(proposal)
                if number < iterations:
                    a[b, i] = proposal
                elif attention.readout is not None:
                    joined = torch.cat((a[b, i], proposal - a[b, i]))
                    joined = (joined - joined.mean()) / (joined.var(unbiased=False) + 1e-5).sqrt()
                    gate = 0.5 * torch.tanh(attention.readout.gate(joined))
                    a[b, i] = a[b, i] + gate * (proposal - a[b, i])
    return [a, p, s, weights]


@pytest.mark.parametrize("readout", [True, False])
@pytest.mark.parametrize("iterations", [1, 2])
@torch.no_grad()
def test_against_loops(readout: bool, iterations: int) -> None:
    attention, tokens, start = build_attention(readout, count=3)
    if attention.readout is not None:
        torch.nn.init.normal_(attention.readout.gate.weight)
    actual = attention(tokens, start, iterations)
    expected = by_loops(attention, tokens, start, iterations)
    parts = (actual.slots.appearance, actual.slots.position, actual.slots.scale, actual.attention)
    for mine, theirs in zip(parts, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_position_and_scale_are_the_moments_of_attention() -> None:
    attention, tokens, start = build_attention()
    actual = attention(tokens, start, 3)
    points = geometry.build_grid(5, 5, dtype=torch.float64).flatten(0, 1)
    torch.testing.assert_close(
        actual.attention.sum(-1), torch.ones(2, 4).double(), atol=1e-7, rtol=0
    )
    position = (actual.attention[..., None] * points).sum(-2)
    torch.testing.assert_close(actual.slots.position, position)
    away = (points - position[:, :, None]).square().sum(-1)
    torch.testing.assert_close(
        actual.slots.scale, ((actual.attention * away).sum(-1) + 1e-8).sqrt()
    )


def test_moments_by_hand_and_clamped() -> None:
    points = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    attention = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]])
    position, scale = compute_attention_moments(attention, points)
    assert position.tolist() == [[[0, 0], [0, 1]]]
    assert scale[0].tolist() == pytest.approx([1, 0.001])  # a point would be 1e-4


def test_slots_may_come_in_any_order() -> None:
    attention, tokens, start = build_attention()
    order = torch.tensor([2, 0, 3, 1])
    plain = attention(tokens, start, 2)
    shuffled = attention(
        tokens,
        Slots(start.appearance[:, order], start.position[:, order], start.scale[:, order]),
        2,
    )
    torch.testing.assert_close(shuffled.slots.appearance, plain.slots.appearance[:, order])
    torch.testing.assert_close(shuffled.slots.position, plain.slots.position[:, order])
    torch.testing.assert_close(shuffled.attention, plain.attention[:, order])


def test_a_batch_is_its_samples() -> None:
    attention, tokens, start = build_attention()
    together = attention(tokens, start, 2)
    alone = attention(
        tokens[1:], Slots(start.appearance[1:], start.position[1:], start.scale[1:]), 2
    )
    torch.testing.assert_close(alone.slots.appearance, together.slots.appearance[1:])


# -- the readout -----------------------------------------------------------------------------------


def test_the_readout_starts_as_the_identity() -> None:
    attention, tokens, start = build_attention(readout=True)
    with_it = attention(tokens, start, 2)
    attention.readout = None
    without = attention(tokens, start, 2)
    assert torch.equal(with_it.slots.appearance, without.slots.appearance)
    assert not with_it.gate.any()
    assert not without.gate.any()


def test_the_readout_leaves_position_and_scale_alone() -> None:
    attention, tokens, start = build_attention(readout=True)
    before = attention(tokens, start, 2).slots
    assert attention.readout is not None
    torch.nn.init.normal_(attention.readout.gate.weight)
    after = attention(tokens, start, 2).slots
    assert not torch.equal(after.appearance, before.appearance)
    assert torch.equal(after.position, before.position)
    assert torch.equal(after.scale, before.scale)
    wanted = list(attention.readout.parameters())
    grads = torch.autograd.grad(after.position.sum() + after.scale.sum(), wanted, allow_unused=True)
    assert all(grad is None for grad in grads)


def test_the_gate_is_bounded() -> None:
    readout = Readout(4, 0.5)
    torch.nn.init.constant_(readout.gate.bias, 1e3)
    appearance, proposal = torch.zeros(2, 4), torch.full((2, 4), 3.0)
    moved, gate = readout(appearance, proposal)
    assert (gate == 0.5).all()
    assert (moved == 1.5).all()


# -- starts ----------------------------------------------------------------------------------------


def test_positions_come_from_the_generator() -> None:
    first = draw_positions(500, 6, torch.Generator().manual_seed(42))
    again = draw_positions(500, 6, torch.Generator().manual_seed(42))
    assert torch.equal(first, again)
    assert first.abs().max() <= 1
    assert first.mean().abs() < 0.05
    assert first.std().item() == pytest.approx(1 / math.sqrt(3), abs=0.02)


def test_starts_are_learned_appearances_and_unit_scales() -> None:
    attention = SlotAttention(count=3)
    start = attention.start_slots(torch.zeros(2, 3, 2))
    assert (start.scale == 1).all()
    assert torch.equal(start.appearance[0], attention.appearance)
    assert torch.equal(start.appearance[1], attention.appearance)


def test_parameters_are_those_of_the_release() -> None:
    """79,750: learned starts, three norms, projections, two shared networks, a GRU and the gate."""
    count = sum(parameter.numel() for parameter in SlotAttention().parameters())
    assert count == 79_750
    bare = SlotAttention(readout=False)
    assert sum(parameter.numel() for parameter in bare.parameters()) == 79_750 - (128 * 64 + 64)


def test_coordinates_are_not_rounded_under_autocast() -> None:
    attention = SlotAttention()
    tokens = torch.randn(2, 256, 64)
    start = attention.start_slots(torch.zeros(2, 6, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = attention(tokens, start, 1)
    assert actual.slots.position.dtype == torch.float32
    assert actual.slots.scale.dtype == torch.float32
    assert actual.attention.dtype == torch.float32
    torch.testing.assert_close(actual.attention.sum(-1), torch.ones(2, 6), atol=1e-5, rtol=0)


def test_some_slots_and_one_exchanged() -> None:
    slots = Slots(torch.arange(12.0).view(2, 3, 2), torch.zeros(2, 3, 2), torch.ones(2, 3))
    assert slots[1].appearance.tolist() == [[6, 7], [8, 9], [10, 11]]
    assert slots[:, 1:2].appearance.tolist() == [[[2, 3]], [[8, 9]]]
    other = Slots(torch.full((2, 1, 2), 5.0), torch.full((2, 1, 2), 0.5), torch.full((2, 1), 0.25))
    changed = slots.with_slot(2, other)
    assert changed.appearance[:, 2].tolist() == [[5, 5], [5, 5]]
    assert changed.position[:, :, 0].tolist() == [[0, 0, 0.5]] * 2
    assert changed.scale.tolist() == [[1, 1, 0.25]] * 2
    # What was there before is untouched, and so are the others.
    assert torch.equal(slots.scale, torch.ones(2, 3))
    assert torch.equal(changed[:, :2].appearance, slots[:, :2].appearance)


def test_slots_carry_themselves() -> None:
    pieces = [
        Slots(torch.rand(2, 3, 5), torch.rand(2, 3, 2), torch.rand(2, 3)).to(torch.float64)
        for _ in range(4)
    ]
    stacked, joined = Slots.stack(pieces, 1), Slots.cat(pieces)
    for name in ("appearance", "position", "scale"):
        parts = [getattr(piece, name) for piece in pieces]
        assert torch.equal(getattr(stacked, name), torch.stack(parts, 1))
        assert torch.equal(getattr(joined, name), torch.cat(parts))
        assert torch.equal(getattr(stacked[:, 2], name), parts[2])
        assert torch.equal(getattr(joined.map(torch.neg), name), -torch.cat(parts))
        assert torch.equal(getattr(pieces[0].flatten(), name)[4], parts[0][1, 1])
        assert getattr(stacked, name).dtype == torch.float64
