"""The temporal initializer's look at the next frame, and starts from any earlier frame."""

import pytest
import torch
from helpers_temporal import BATCH, DIM, SLOTS, attend, change_slot, find_changes, history, parts
from torch import Tensor, nn

from geoco import config
from geoco.models.geoco import GeoCo
from geoco.models.slots import Slots
from geoco.models.temporal import Ahead, TemporalInitializer, bring_forward

TOKENS, TOKEN_DIM = 9, 6
TINY = config.ModelConfig(
    encoder=config.ConvEncoderConfig(width=8),
    slots=config.SlotsConfig(count=SLOTS, dim=8, update_dim=8, grid_dim=8, readout=False),
    decoder=config.DecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
    selector=config.SelectorConfig(enabled=False),
    temporal=config.TemporalConfig(enabled=True, width=8, heads=2, hidden=8, ahead=True),
)


def build_initializer() -> TemporalInitializer:
    torch.manual_seed(0)
    initializer = TemporalInitializer(DIM, 8, 2, 12, TOKEN_DIM).double()
    for parameter in initializer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return initializer


def draw_tokens() -> Tensor:
    generator = torch.Generator().manual_seed(9)
    return torch.randn(BATCH, TOKENS, TOKEN_DIM, generator=generator, dtype=torch.float64)


@torch.no_grad()
def test_the_look_ahead_against_loops() -> None:
    torch.manual_seed(0)
    ahead = Ahead(TOKEN_DIM, 8, 2).double()
    for parameter in ahead.parameters():
        nn.init.normal_(parameter, std=0.5)
    slots, tokens = torch.randn(BATCH, SLOTS, 8).double(), draw_tokens()
    actual = ahead(slots, tokens)
    line = (-1.0, 0.0, 1.0)
    where = [torch.tensor((x, y)).double() for y in line for x in line]
    for b in range(BATCH):
        there = [
            ahead.read(ahead.token_norm(token)) + ahead.place(point)
            for token, point in zip(tokens[b], where, strict=True)
        ]
        for i in range(SLOTS):
            expected = ahead.norm(slots[b, i] + attend(ahead.attention, slots[b, i], there))
            torch.testing.assert_close(actual[b, i], expected)


def test_it_starts_as_exact_carry_forward() -> None:
    torch.manual_seed(0)
    initializer, states = TemporalInitializer(dim=DIM, token_dim=TOKEN_DIM).double(), history()
    for mine, theirs in zip(
        parts(initializer(states, draw_tokens())), parts(states[-1]), strict=True
    ):
        assert torch.equal(mine, theirs)


def test_every_slot_sees_the_next_frame() -> None:
    initializer, states, tokens = build_initializer(), history(), draw_tokens()
    before = initializer(states, tokens)
    changed = tokens.clone()
    changed[:, 4] += torch.linspace(-1, 1, TOKEN_DIM)
    assert find_changes(before, initializer(states, changed)) == [True] * SLOTS
    # Tokens say where they are: the same ones elsewhere are another frame.
    assert find_changes(before, initializer(states, tokens.flip(1))) == [True] * SLOTS
    order = torch.tensor([2, 0, 3, 1])
    shuffled = [Slots(*(part[:, order] for part in parts(slots))) for slots in states]
    for mine, theirs in zip(parts(initializer(shuffled, tokens)), parts(before), strict=True):
        torch.testing.assert_close(mine, theirs[:, order])
    # Slots see each other's presents; the past of each stays its own.
    after = initializer([states[0], change_slot(states[1], slot=2), states[2]], tokens)
    assert find_changes(before, after) == [False, False, True, False]


def test_neither_tokens_nor_the_past_learn_from_it() -> None:
    initializer, tokens = build_initializer(), draw_tokens().requires_grad_()
    outcome = sum(part.square().sum() for part in parts(initializer(history(), tokens)))
    assert isinstance(outcome, Tensor)
    own = list(initializer.named_parameters())
    grads = torch.autograd.grad(outcome, [*(p for _, p in own), tokens], allow_unused=True)
    assert grads[-1] is None
    silent = [name for (name, _), g in zip(own, grads, strict=False) if g is None or not g.any()]
    assert silent == []


# -- pairs -----------------------------------------------------------------------------------------


def test_the_chosen_state_comes_last_and_none_is_lost() -> None:
    """Thirds of [0, 1) choose one of three, for each clip by itself."""
    states = history(3)
    choices = {0.0: 0, 0.33: 0, 0.34: 1, 0.66: 1, 0.67: 2, 0.999: 2}
    for first, one in choices.items():
        for second, other in choices.items():
            brought = bring_forward(states, torch.tensor([first, second]))
            for row, chosen in enumerate((one, other)):
                order = [state.scale[row].tolist() for state in brought]
                plain = [state.scale[row].tolist() for state in states]
                assert order[-1] == plain[chosen]
                assert sorted(order) == sorted(plain)
                assert torch.equal(brought[-1].appearance[row], states[chosen].appearance[row])


def build_model() -> GeoCo:
    torch.manual_seed(0)
    model = GeoCo(TINY).double()
    assert model.temporal is not None
    for parameter in model.temporal.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


@torch.no_grad()
def test_a_frame_starts_from_the_frame_that_was_drawn() -> None:
    model = build_model()
    assert isinstance(model.temporal, TemporalInitializer)
    video, starts = torch.rand(2, 3, 3, 16, 16).double(), torch.rand(2, SLOTS, 2).double()
    earlier = torch.tensor([[0.0, 0.9, 0.2], [0.0, 0.1, 0.8]]).double()
    bound = model.bind(video, starts, earlier=earlier).slots
    tokens = model.encode(video)
    # Of the third frame the first clip starts from frame 0, the second from frame 1.
    states = [bound[:, 0], bound[:, 1]]
    first, second = (model.temporal([states[1 - n], states[n]], tokens[:, 2]) for n in (0, 1))
    start = Slots(
        *(torch.stack((a[0], b[1])) for a, b in zip(parts(first), parts(second), strict=True))
    )
    expected = model.attention(tokens[:, 2], start, 2).slots
    for mine, theirs in zip(parts(bound[:, 2]), parts(expected), strict=True):
        torch.testing.assert_close(mine, theirs)
    last = torch.full((2, 3), 0.99).double()
    for mine, theirs in zip(
        parts(model.bind(video, starts, earlier=last).slots),
        parts(model.bind(video, starts).slots),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("ahead", [True, False])
def test_the_look_is_an_option(ahead: bool) -> None:
    temporal = TINY.temporal.model_copy(update={"ahead": ahead})
    model = GeoCo(TINY.model_copy(update={"temporal": temporal}))
    assert isinstance(model.temporal, TemporalInitializer)
    assert (model.temporal.ahead is not None) == ahead
