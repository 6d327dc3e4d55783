"""STATM-SAVi: slot attention in loops, whose history a slot sees, and what permutations change."""

import math

import pytest
import torch
from torch import Tensor, nn

from geoco import config
from geoco.evaluation import adapter
from geoco.evaluation.adapters import DrawnModel
from geoco.evaluation.interfaces import ExtendedModel
from geoco.models.slots import Slots
from geoco.models.statm import PlainSlotAttention, Statm
from geoco.models.temporal import AppearancePredictor

BATCH, SLOTS, DIM = 2, 4, 8
SETTINGS = config.StatmConfig(
    encoder=config.ConvEncoderConfig(width=8),
    slots=config.StatmSlotsConfig(count=SLOTS, dim=DIM, update_dim=8),
    decoder=config.BaselineDecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
    predictor=config.PredictorConfig(heads=2, hidden=8),
)


def build_model() -> Statm:
    """All of it in use: nothing is as small as it starts."""
    torch.manual_seed(0)
    model = Statm(SETTINGS).double()
    for parameter in model.predictor.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def draw_video(time: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(BATCH, time, 3, 16, 16, generator=generator, dtype=torch.float64)


NOWHERE = torch.zeros(BATCH, SLOTS, 2, dtype=torch.float64)


# -- slot attention --------------------------------------------------------------------------------


@torch.no_grad()
def test_slot_attention_against_loops() -> None:
    torch.manual_seed(0)
    attention = PlainSlotAttention(count=3, dim=4, token_dim=5, update_dim=6).double()
    tokens, start = torch.randn(1, 9, 5).double(), torch.randn(1, 3, 4).double()
    slots, weights = attention(tokens, start, 1)
    line = (-1.0, 0.0, 1.0)
    where = [torch.tensor((x, y)).double() for y in line for x in line]
    seen = [attention.token_norm(tokens[0, n] + attention.place(where[n])) for n in range(9)]
    scores = [
        [
            math.exp(attention.query(attention.slot_norm(start[0, i])) @ attention.key(token) / 2)
            for token in seen
        ]
        for i in range(3)
    ]
    for i in range(3):
        owned = [scores[i][n] / sum(scores[j][n] for j in range(3)) for n in range(9)]
        share = [value / sum(owned) for value in owned]
        assert weights[0, i].tolist() == pytest.approx(share, rel=1e-6)
        gathered = sum(s * attention.value(token) for s, token in zip(share, seen, strict=True))
        state = attention.recurrence(gathered, start[0, i])
        expected = state + attention.update_mlp(state)
        torch.testing.assert_close(slots[0, i], expected, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_more_iterations_go_on_from_the_last() -> None:
    torch.manual_seed(0)
    attention = PlainSlotAttention(count=3, dim=4, token_dim=5, update_dim=6).double()
    tokens, start = torch.randn(2, 9, 5).double(), torch.randn(2, 3, 4).double()
    once, _ = attention(tokens, start, 1)
    torch.testing.assert_close(attention(tokens, start, 2), attention(tokens, once, 1))


# -- the predictor ---------------------------------------------------------------------------------


def build_predictor() -> AppearancePredictor:
    torch.manual_seed(0)
    predictor = AppearancePredictor(DIM, 2, 12).double()
    for parameter in predictor.parameters():
        nn.init.normal_(parameter, std=0.4)
    return predictor


def draw_history(length: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [
        torch.randn(BATCH, SLOTS, DIM, generator=generator, dtype=torch.float64)
        for _ in range(length)
    ]


@torch.no_grad()
def test_a_history_of_one_is_the_frame_itself() -> None:
    """Attention to a single state is that state's value, whatever the query."""
    predictor, (now,) = build_predictor(), draw_history(1)
    _, _, value = predictor.along.in_proj_weight.chunk(3)  # type: ignore[union-attr]
    bias = predictor.along.in_proj_bias.chunk(3)[2]
    own = predictor.along.out_proj(now @ value.T + bias)
    others, _ = predictor.across(now, now, now)
    seen = predictor.across_norm(now + others) + predictor.along_norm(now + own)
    torch.testing.assert_close(predictor([now]), predictor.norm(seen + predictor.mlp(seen)))


@torch.no_grad()
def test_slots_see_their_own_past_alone() -> None:
    predictor, history = build_predictor(), draw_history(3)
    before = predictor(history)
    changed = [state.clone() for state in history]
    changed[0][:, 1] += 1
    moved = (predictor(changed) - before).abs().amax((0, 2)) > 1e-9
    assert moved.tolist() == [False, True, False, False]
    changed = [state.clone() for state in history]
    changed[-1][:, 1] += 1  # of now everybody sees everybody
    assert ((predictor(changed) - before).abs().amax((0, 2)) > 1e-9).all()


@torch.no_grad()
def test_a_history_is_a_set_and_of_any_length() -> None:
    predictor, history = build_predictor(), draw_history(5)
    shuffled = [history[n] for n in (2, 0, 3, 1, 4)]
    torch.testing.assert_close(predictor(shuffled), predictor(history))
    assert (predictor(history) - predictor(history[1:])).abs().max() > 1e-3


# -- the model -------------------------------------------------------------------------------------


@torch.no_grad()
def test_slots_permute() -> None:
    """In which order slots start is in which order they end, through all frames."""
    model, video, order = build_model(), draw_video(), [2, 0, 3, 1]
    before = model.decode(model.bind(video, NOWHERE))
    model.attention.appearance.copy_(model.attention.appearance[order].clone())
    after = model.decode(model.bind(video, NOWHERE))
    torch.testing.assert_close(
        after.binding.slots.appearance, before.binding.slots.appearance[:, :, order]
    )
    torch.testing.assert_close(after.binding.attention, before.binding.attention[:, :, order])
    torch.testing.assert_close(after.image, before.image)


@torch.no_grad()
def test_later_frames_start_where_the_predictor_says() -> None:
    model, video = build_model(), draw_video()
    tokens = model.encode(video)
    appearance = model.bind(video, NOWHERE).slots.appearance
    slots, _ = model.attention(tokens[:, 0], model.attention.start_slots(BATCH), 3)
    history = [slots]
    for time in (1, 2):
        slots, _ = model.attention(tokens[:, time], model.predictor(history), 2)
        history.append(slots)
    torch.testing.assert_close(appearance, torch.stack(history, 1))
    plain = model.bind(video, NOWHERE, temporal=False).slots.appearance
    slots, _ = model.attention(tokens[:, 1], history[0], 2)
    torch.testing.assert_close(plain[:, 1], slots)


def test_the_last_frame_teaches_the_first() -> None:
    """The buffer is not detached: gradients flow back through all of its frames."""
    model, video = build_model(), draw_video().requires_grad_()
    model.bind(video, NOWHERE).slots.appearance[:, -1].sum().backward()
    assert video.grad is not None
    assert (video.grad.abs().amax((0, 2, 3, 4)) > 0).all()


@torch.no_grad()
def test_slots_are_drawn_wherever_they_are_said_to_be() -> None:
    """Position and scale are nothing to the decoder: nan they are, and any would do."""
    model = build_model()
    slots = model.bind(draw_video(1), NOWHERE).slots
    assert bool(slots.position.isnan().all())
    assert bool(slots.scale.isnan().all())
    placed = Slots(slots.appearance, torch.rand_like(slots.position), torch.rand_like(slots.scale))
    drawn, same = model.decode_slots(slots), model.decode_slots(placed)
    assert bool(drawn.logits.isfinite().all())
    torch.testing.assert_close(drawn.logits, same.logits)
    torch.testing.assert_close(drawn.rgb, same.rgb)


def test_it_is_evaluated_without_positions() -> None:
    model = adapter(build_model())
    assert isinstance(model, DrawnModel)
    assert not isinstance(model, ExtendedModel)
    tracked, bound = (f(draw_video(), NOWHERE) for f in (model.track, model.model.bind))
    torch.testing.assert_close(tracked.slots.appearance, bound.slots.appearance)
    assert tracked.active is None
    assert bool(tracked.slots.position.isnan().all())
