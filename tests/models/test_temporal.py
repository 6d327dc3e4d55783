"""The temporal initializer: its formulas in a loop, who sees what, and where gradients end."""

import math

import pytest
import torch
from helpers_temporal import (
    BATCH,
    DIM,
    SLOTS,
    attend,
    change_slot,
    find_changes,
    history,
    parts,
)
from torch import Tensor, nn

from geoco.models.slots import Slots
from geoco.models.temporal import TemporalInitializer


def build_initializer(seed: int = 0) -> TemporalInitializer:
    """A small one past its first steps: everything in it does something."""
    torch.manual_seed(seed)
    initializer = TemporalInitializer(dim=DIM, width=8, heads=2, hidden=12).double()
    for parameter in initializer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return initializer


# -- the formulas ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 4])
@torch.no_grad()
def test_against_loops(length: int) -> None:
    initializer, states = build_initializer(), history(length)
    actual = initializer(states)
    for b in range(BATCH):
        tokens = [
            [
                initializer.embed(
                    torch.cat((s.appearance[b, i], s.position[b, i], s.scale[b, i][None]))
                )
                for s in states
            ]
            for i in range(SLOTS)
        ]
        for i in range(SLOTS):
            now = tokens[i][-1]
            others = attend(initializer.across, now, [tokens[j][-1] for j in range(SLOTS)])
            past = attend(initializer.along, now, tokens[i])
            seen = initializer.across_norm(now + others) + initializer.along_norm(now + past)
            delta = initializer.residual(initializer.norm(seen + initializer.mlp(seen)))
            last = states[-1]
            appearance = last.appearance[b, i] + delta[:DIM]
            position = (last.position[b, i] + delta[DIM : DIM + 2]).clamp(-1, 1)
            scale = min(max(last.scale[b, i].item() * math.exp(delta[-1].item()), 0.001), 2)
            torch.testing.assert_close(actual.appearance[b, i], appearance)
            torch.testing.assert_close(actual.position[b, i], position)
            assert actual.scale[b, i].item() == pytest.approx(scale)


def test_the_update_by_hand() -> None:
    """The final bias alone: appearance and position are added to, scale is multiplied."""
    initializer = TemporalInitializer(dim=2, width=8, heads=2, hidden=8)
    with torch.no_grad():
        initializer.residual.bias.copy_(torch.tensor([0.5, -2.0, 0.25, -0.5, math.log(3)]))
    last = Slots(
        torch.tensor([[[1.0, 1.0], [0.0, 3.0]]]),
        torch.tensor([[[0.0, 0.0], [0.875, -0.75]]]),
        torch.tensor([[0.1, 0.3]]),
    )
    start = initializer([last])
    assert start.appearance.tolist() == [[[1.5, -1], [0.5, 1]]]
    assert start.position.tolist() == [[[0.25, -0.5], [1, -1]]]  # the second is clipped
    torch.testing.assert_close(start.scale, torch.tensor([[0.3, 0.9]]))


@pytest.mark.parametrize(("log_change", "expected"), [(50.0, 2.0), (-50.0, 0.001)])
def test_scale_is_clipped(log_change: float, expected: float) -> None:
    initializer = TemporalInitializer(dim=DIM, width=8, heads=2, hidden=8).double()
    nn.init.constant_(initializer.residual.bias, log_change)
    start = initializer(history())
    assert start.scale.unique().tolist() == [expected]
    assert start.position.unique().tolist() == [math.copysign(1, log_change)]


@pytest.mark.parametrize("length", [1, 4])
def test_it_starts_as_exact_carry_forward(length: int) -> None:
    torch.manual_seed(0)
    initializer = TemporalInitializer(dim=DIM).double()
    states = history(length)
    for mine, theirs in zip(parts(initializer(states)), parts(states[-1]), strict=True):
        assert torch.equal(mine, theirs)


def test_parameters_are_those_of_its_layers() -> None:
    """Embedding, two attentions of four projections, three norms, a network, the residual."""
    expected = (
        (67 * 128 + 128)
        + 2 * 4 * (128 * 128 + 128)
        + 3 * 2 * 128
        + (128 * 512 + 512 + 512 * 128 + 128)
        + (128 * 67 + 67)
    )
    assert sum(p.numel() for p in TemporalInitializer().parameters()) == expected == 281_923


# -- who sees what ---------------------------------------------------------------------------------


def test_slots_may_come_in_any_order() -> None:
    initializer, states = build_initializer(), history()
    order = torch.tensor([2, 0, 3, 1])
    shuffled = [Slots(*(part[:, order] for part in parts(slots))) for slots in states]
    for mine, theirs in zip(parts(initializer(shuffled)), parts(initializer(states)), strict=True):
        torch.testing.assert_close(mine, theirs[:, order])


def test_a_batch_is_its_samples() -> None:
    initializer, states = build_initializer(), history()
    together = initializer(states)
    alone = initializer([Slots(*(part[1:] for part in parts(slots))) for slots in states])
    for mine, theirs in zip(parts(alone), parts(together), strict=True):
        torch.testing.assert_close(mine, theirs[1:])


def test_the_past_of_a_slot_is_its_own() -> None:
    initializer, states = build_initializer(), history()
    before = initializer(states)
    after = initializer([states[0], change_slot(states[1], slot=2), states[2]])
    assert find_changes(before, after) == [False, False, True, False]


def test_the_present_is_seen_by_all() -> None:
    initializer, states = build_initializer(), history()
    before = initializer(states)
    after = initializer([*states[:2], change_slot(states[2], slot=2)])
    assert find_changes(before, after) == [True] * SLOTS


def test_now_is_not_then_but_the_past_has_no_order() -> None:
    initializer, (oldest, older, last) = build_initializer(), history()
    plain = initializer([oldest, older, last])
    assert find_changes(plain, initializer([oldest, last, older])) == [True] * SLOTS
    assert find_changes(plain, initializer([older, last])) == [True] * SLOTS
    assert find_changes(plain, initializer([older, oldest, last])) == [False] * SLOTS


# -- gradients and precision -----------------------------------------------------------------------


def test_nothing_flows_back_in_time() -> None:
    initializer = build_initializer()
    states = [Slots(*(part.requires_grad_() for part in parts(slots))) for slots in history()]
    inputs = [part for slots in states for part in parts(slots)]
    outcome = sum(part.square().sum() for part in parts(initializer(states)))
    assert isinstance(outcome, Tensor)
    own = list(initializer.parameters())
    grads = torch.autograd.grad(outcome, [*own, *inputs], allow_unused=True)
    assert all(grad is None for grad in grads[len(own) :])
    named = zip(initializer.named_parameters(), grads[: len(own)], strict=True)
    assert [name for (name, _), grad in named if grad is None or not grad.any()] == []


def test_at_first_only_the_residual_learns() -> None:
    torch.manual_seed(0)
    initializer = TemporalInitializer(dim=DIM).double()
    sum(part.square().sum() for part in parts(initializer(history()))).backward()  # type: ignore[union-attr]
    learning = {
        name
        for name, parameter in initializer.named_parameters()
        if parameter.grad is not None and parameter.grad.any()
    }
    assert learning == {"residual.weight", "residual.bias"}


def test_nothing_is_rounded_under_autocast() -> None:
    initializer = build_initializer().float()
    states = [Slots(*(part.float() for part in parts(slots))) for slots in history()]
    expected = initializer(states)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = initializer(states)
        coarse = [Slots(s.appearance.bfloat16(), s.position, s.scale) for s in states]
        from_coarse = initializer(coarse)
    for mine, theirs in zip(parts(actual), parts(expected), strict=True):
        assert torch.equal(mine, theirs)
    assert {part.dtype for part in parts(from_coarse)} == {torch.float32}
