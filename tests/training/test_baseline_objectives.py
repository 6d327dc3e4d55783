"""The losses of the video baselines by hand, what they weigh, and whom they reach."""

import math

import pytest
import torch
from torch import Tensor

from geoco import config
from geoco.models.build import build
from geoco.training import losses, objectives
from geoco.training.curriculum import TERMS, Curriculum
from geoco.training.objective import Draws, Losses
from geoco.training.staitus_objective import align, count_open, overlap_of_active

SMALL = [
    "model.encoder={kind: conv, width: 8}",
    "model.slots={count: 3, dim: 8, update_dim: 8}",
    "model.decoder={broadcast: 4, layers: [[8,3],[16,3]]}",
    "model.predictor={heads: 2, hidden: 8}",
]


def test_alignment_by_hand() -> None:
    """Cosines of 1, 0, -1 and 0.6; a closed slot does not count."""
    predicted = torch.tensor([[[[2.0, 0], [1, 0], [0, 3], [3, 4]]]])
    appearance = torch.tensor([[[[5.0, 0], [0, 1], [0, -1], [1, 0]]]])
    gates = torch.ones(1, 1, 4)
    assert align(predicted, appearance, gates).item() == pytest.approx((0 + 1 + 2 + 0.4) / 4)
    gates[..., 2] = 0
    assert align(predicted, appearance, gates).item() == pytest.approx((0 + 1 + 0.4) / 3)
    nothing = torch.empty(1, 0, 4, 2)
    assert align(nothing, nothing, torch.empty(1, 0, 4)).item() == 0


def test_overlap_by_hand() -> None:
    """Slots 0 and 1 share half a token each; with slot 2 closed only that pair is left."""
    attention = torch.tensor([[[[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]]]])
    pairs = (0.25 + 0.25 + 0) / 3
    assert overlap_of_active(attention, torch.ones(1, 1, 3)).item() == pytest.approx(pairs)
    assert losses.ov(attention).item() == pytest.approx(pairs)
    closed = torch.tensor([[[1.0, 1, 0]]])
    assert overlap_of_active(attention, closed).item() == pytest.approx(0.25)
    closed = torch.tensor([[[1.0, 0, 1]]])
    assert overlap_of_active(attention, closed).item() == 0
    alone = torch.tensor([[[0.0, 0, 1]]])
    assert overlap_of_active(attention, alone).item() == 0


def test_open_slots_are_counted_by_their_probability() -> None:
    probability = torch.tensor([[[0.9, 0.1], [0.5, 0.1]]])
    assert count_open(probability).item() == pytest.approx(0.4)


def compute(
    name: str, step: int, *changes: str
) -> tuple[Losses, torch.nn.Module, dict[str, float]]:
    settings = config.load(f"configs/{name}.yaml", SMALL)
    torch.manual_seed(0)
    model = build(settings.model)
    plan = Curriculum(settings, model.cold_scale).plan(step)
    model.set_gate_share(plan.gate_share)
    video = torch.rand(2, plan.mode.frames, 3, 16, 16)
    draws = Draws.sample(torch.Generator().manual_seed(0), 2, plan.mode.frames, 3)
    weights = torch.tensor([plan.weights[term] for term in TERMS])
    objective = objectives[settings.model.kind](model, settings.train)
    made = objective.compute(video, torch.arange(2), draws, weights, plan.mode)
    assert tuple(made.by_name) == objective.terms
    return made, model, dict(plan.weights)


def reached(loss: Tensor, model: torch.nn.Module) -> set[str]:
    model.zero_grad()
    loss.backward(retain_graph=True)
    return {
        name.split(".")[0]
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and parameter.grad.abs().max() > 0
    }


def test_statm_reconstructs_and_no_more() -> None:
    made, model, _ = compute("statm-movi-c", 80_000)
    assert made.total.item() == made.by_name["rec"].item()
    assert reached(made.total, model) == {"encoder", "attention", "predictor", "decoder"}
    silent = [name for name, p in model.named_parameters() if p.grad is None]
    assert silent == []


@pytest.mark.parametrize("step", [0, 20_000, 80_000])
def test_what_staitus_weighs_and_reaches(step: int) -> None:
    made, model, weights = compute("staitus-movi-c", step)
    values = {name: value.item() for name, value in made.by_name.items()}
    gate = 5e-3 * min(max(step - 14_999, 0) / 15_000, 1)
    expected = values["rec"] + 0.018 * values["ov"] + 0.1 * values["align"] + gate * values["gate"]
    assert made.total.item() == pytest.approx(expected, rel=1e-6)
    assert weights["gate"] == pytest.approx(gate)
    bound = {"encoder", "attention", "predictor"}
    drawn = bound | {"decoder"}
    assert reached(made.by_name["rec"], model) == (drawn | {"activity"} if step else drawn)
    assert reached(made.by_name["ov"], model) == bound
    assert reached(made.by_name["align"], model) == bound
    # At first the last layer is zero: only its bias and weights hear anything.
    assert reached(made.by_name["gate"], model) == {"activity"}
    assert math.isclose(values["gate"], 0.95, rel_tol=1e-5)


def test_alignment_leaves_poses_alone() -> None:
    """Of a second frame's position nothing is asked, whatever the objects did."""
    settings = config.load("configs/staitus-movi-c.yaml", SMALL)
    torch.manual_seed(0)
    model = build(settings.model)
    binding = model.bind(torch.rand(1, 2, 3, 16, 16), torch.zeros(1, 3, 2))
    for part in (binding.slots.position, binding.slots.scale):
        part.retain_grad()
    predicted = getattr(binding, "predicted")  # noqa: B009
    align(predicted, binding.slots.appearance[:, 1:], torch.ones(1, 1, 3)).backward()
    assert binding.slots.position.grad is None
    assert binding.slots.scale.grad is None
