"""STAITUS: its gate through the ramp, its pose between frames, and who sees whose history."""

import math

import pytest
import torch
from torch import Tensor, nn

from geoco import config
from geoco.evaluation import adapter
from geoco.evaluation.interfaces import VideoModel
from geoco.models import compositing
from geoco.models.slots import Slots
from geoco.models.staitus import Activity, Staitus
from geoco.training.curriculum import Curriculum

BATCH, SLOTS, DIM = 2, 4, 8
BIAS = -0.5
SETTINGS = config.StaitusConfig(
    encoder=config.ConvEncoderConfig(width=8),
    slots=config.StaitusSlotsConfig(count=SLOTS, dim=DIM, update_dim=8, grid_dim=8),
    decoder=config.BaselineDecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
    predictor=config.PredictorConfig(heads=2, hidden=8),
    activity=config.ActivityConfig(hidden=4),
)


def build_model(share: float = 1.0) -> Staitus:
    """Past its first steps: about half of all slots are closed, if the gate is."""
    torch.manual_seed(0)
    model = Staitus(SETTINGS).double()
    for part in (model.predictor, model.activity):
        for parameter in part.parameters():
            nn.init.normal_(parameter, std=0.5)
    nn.init.constant_(model.activity.logit.bias, BIAS)
    model.set_gate_share(share)
    return model


def draw_video(time: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(BATCH, time, 3, 16, 16, generator=generator, dtype=torch.float64)


def draw_starts() -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return 2 * torch.rand(BATCH, SLOTS, 2, generator=generator, dtype=torch.float64) - 1


def draw_slots() -> Slots:
    generator = torch.Generator().manual_seed(4)

    def draw(*shape: int) -> Tensor:
        return torch.randn(BATCH, SLOTS, *shape, generator=generator, dtype=torch.float64)

    return Slots(draw(DIM), draw(2) / 3, draw().abs() / 3 + 0.1)


# -- the gate --------------------------------------------------------------------------------------


def test_all_slots_are_open_at_first() -> None:
    probability = Activity(DIM, 4, 0.95)(torch.randn(3, DIM))
    assert probability.tolist() == pytest.approx([0.95] * 3)


@torch.no_grad()
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_gates_by_hand(share: float) -> None:
    """Open slots keep their alpha; closed ones what the ramp leaves of it."""
    model, slots = build_model(share), draw_slots()
    probability = model.activity(slots.appearance)
    is_open = probability > 0.5
    assert 0 < is_open.sum() < is_open.numel()
    kept = torch.where(is_open, 1.0, 1 - share).double()
    torch.testing.assert_close(model.compute_gates(slots.appearance), kept, atol=2e-12, rtol=0)
    raw = model.decoder(slots)
    alpha = kept[..., None, None] * raw.logits.exp()
    torch.testing.assert_close(
        compositing.compute_alpha(model.decode_slots(slots).logits),
        alpha / alpha.sum(1, keepdim=True),
    )
    assert torch.equal(model.find_active(slots.appearance), is_open | (share < 1))


def test_the_gate_learns_as_if_it_were_soft() -> None:
    """From open and from closed slots alike: the probability's gradient, times the ramp."""
    model, appearance = build_model(0.25), draw_slots().appearance
    probability = model.activity(appearance)
    assert 0 < (probability > 0.5).sum() < probability.numel()
    weight = torch.randn_like(probability)
    wanted = torch.autograd.grad(
        0.25 * (weight * probability).sum(), list(model.activity.parameters())
    )
    actual = torch.autograd.grad(
        (weight * model.compute_gates(appearance)).sum(), list(model.activity.parameters())
    )
    torch.testing.assert_close(actual, wanted)


def test_closed_slots_can_be_opened_by_the_picture() -> None:
    """A slot of no alpha still hears what it would have been good for; nothing is nan."""
    model, slots = build_model().float(), draw_slots().to(torch.float32)
    appearance = slots.appearance.clone().requires_grad_()
    fields = model.decode_slots(Slots(appearance, slots.position, slots.scale))
    assert fields.rgb is not None
    probability = model.activity(appearance)
    compositing.composite(fields.rgb, compositing.compute_alpha(fields.logits)).sum().backward()
    gradients = [parameter.grad for parameter in model.activity.parameters()]
    assert all(g is not None and bool(g.isfinite().all()) for g in gradients)
    closed = probability < 0.5
    assert closed.any()
    bias = model.activity.logit.bias
    assert bias.grad is not None
    assert bias.grad.abs() > 1e-6


@torch.no_grad()
def test_moving_and_resizing_leave_the_gate_alone() -> None:
    model, slots = build_model(), draw_slots()
    moved = Slots(slots.appearance, slots.position + 0.3, 1.5 * slots.scale)
    for one in (slots, moved):
        owned = compositing.compute_alpha(model.decode_slots(one).logits).amax((-2, -1))
        assert torch.equal(owned > 1e-6, model.find_active(slots.appearance))


@pytest.mark.parametrize("budget", [1.0, 0.5])
def test_the_ramp_of_the_gate(budget: float) -> None:
    """All open for 15,000 steps, then a ramp of 15,000; the term rises with it."""
    settings = config.load("configs/staitus-movi-c.yaml", [f"train.budget={budget}"])
    curriculum = Curriculum(settings, 1.0)
    shares = {0: 0, 14_999: 0, 15_000: 1 / 15_000, 22_499: 0.5, 29_999: 1, 30_000: 1, 99_999: 1}
    for step, share in shares.items():
        plan = curriculum.plan(int(step * budget))
        assert plan.gate_share == pytest.approx(share, abs=1.1e-4 / budget)
        assert plan.weights["gate"] == pytest.approx(5e-3 * plan.gate_share)
        assert ("gate" in plan.mode.terms) == (plan.gate_share > 0)
        assert plan.mode.frames == (2 if step < 70_000 else 4)
    before, after = (curriculum.plan(int(15_000 * budget) + step).gate_share for step in (-1, 0))
    assert before == 0
    assert after == pytest.approx(1 / (15_000 * budget))


# -- through a clip --------------------------------------------------------------------------------


@torch.no_grad()
def test_poses_are_kept_and_appearances_predicted() -> None:
    model, video, starts = build_model(), draw_video(), draw_starts()
    bound = model.bind(video, starts)
    tokens = model.encode(video)
    binding = model.attention(tokens[:, 0], model.attention.start_slots(starts), 3)
    history = [binding.slots.appearance]
    for time in (1, 2):
        predicted = model.predictor(history)
        torch.testing.assert_close(bound.predicted[:, time - 1], predicted)
        start = Slots(predicted, binding.slots.position, binding.slots.scale)
        binding = model.attention(tokens[:, time], start, 2)
        history.append(binding.slots.appearance)
        torch.testing.assert_close(bound.slots[:, time].position, binding.slots.position)
        torch.testing.assert_close(bound.slots[:, time].appearance, history[-1])
    plain = model.bind(video, starts, temporal=False)
    carried = model.attention(tokens[:, 1], plain.slots[:, 0], 2)
    torch.testing.assert_close(plain.slots[:, 1].appearance, carried.slots.appearance)


@torch.no_grad()
def test_slots_permute() -> None:
    model, video, starts, order = build_model(), draw_video(), draw_starts(), [2, 0, 3, 1]
    before = model.decode(model.bind(video, starts))
    for part in (model.attention.appearance, model.attention.scale):
        part.copy_(part[order].clone())
    after = model.decode(model.bind(video, starts[:, order]))
    for name in ("appearance", "position", "scale"):
        torch.testing.assert_close(
            getattr(after.binding.slots, name), getattr(before.binding.slots, name)[:, :, order]
        )
    torch.testing.assert_close(after.image, before.image)


@torch.no_grad()
def test_a_single_frame_predicts_nothing() -> None:
    bound = build_model().bind(draw_video(1), draw_starts())
    assert bound.predicted.shape == (BATCH, 0, SLOTS, DIM)


@torch.no_grad()
def test_closed_slots_are_told_to_the_evaluation() -> None:
    network, video = build_model(), draw_video()
    probability = network.activity(network.bind(video, draw_starts()).slots.appearance)
    network.activity.logit.bias.sub_(torch.logit(probability.median()))  # half of them are closed
    model = adapter(network)
    assert isinstance(model, VideoModel)
    tracked = model.track(video, draw_starts())
    assert tracked.active is not None
    assert torch.equal(tracked.active, network.find_active(tracked.slots.appearance))
    assert 0 < tracked.active.sum() < tracked.active.numel()
    encoded = model.encode(video[:, 0], draw_starts())
    assert encoded.active is not None
    assert torch.equal(encoded.active, tracked.active[:, 0])
    assert math.prod(encoded.active.shape) == BATCH * SLOTS
