"""Averages of weights: what is frozen has none. What a run makes of them is in test_trainer.py."""

import torch
from torch import nn

from geoco.training.averages import WeightAverages


def test_only_what_is_trained_is_averaged() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    averages = WeightAverages(model, 0.75)
    frozen, first = model[0].weight.clone(), model[1].weight.detach().clone()
    with torch.no_grad():
        model[1].weight.add_(1)
    averages.update(torch.zeros(()))
    with averages.in_place():
        assert set(averages.state()) == {"live/1.weight", "live/1.bias"}
        assert torch.equal(model[0].weight, frozen)
        torch.testing.assert_close(model[1].weight.detach(), first + 0.25)
    torch.testing.assert_close(model[1].weight.detach(), first + 1)
