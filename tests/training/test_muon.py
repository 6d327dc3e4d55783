"""Muon against the library's, against singular values, and stopped."""

import copy

import pytest
import torch
from torch import Tensor, nn

from geoco.training.muon import RMS, Muon, is_matrix, orthogonalize

SHAPES = [(16, 40), (16, 40), (40, 16), (16, 5, 4, 2), (24, 24)]


def make_parameters(seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def set_gradients(parameters: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def as_matrices(values: list[nn.Parameter]) -> list[nn.Parameter]:
    return [nn.Parameter(value.detach().reshape(value.shape[0], -1).clone()) for value in values]


@pytest.mark.parametrize("rate", [0.02, torch.tensor(0.02)])
def test_steps_are_those_of_the_library(rate: float | Tensor) -> None:
    """That takes one matrix at a time; kernels are flattened for it by hand."""
    ours = make_parameters()
    theirs = as_matrices(ours)
    muon = Muon(ours, rate)
    library = torch.optim.Muon(
        theirs, lr=0.02, weight_decay=0.0, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(4):
        set_gradients(ours, step)
        for own, other in zip(ours, theirs, strict=True):
            assert own.grad is not None
            other.grad = own.grad.reshape(other.shape).clone()
        muon.step()
        library.step()
    start = make_parameters()
    for own, other, first in zip(ours, theirs, start, strict=True):
        moved = (own - first).reshape(other.shape)
        expected = other - first.reshape(other.shape)
        # bf16 inside, summed in another order
        assert (moved - expected).norm() < 0.02 * expected.norm()
        torch.testing.assert_close(
            muon.state[own]["momentum"].reshape(other.shape),
            library.state[other]["momentum_buffer"],
        )


def test_directions_are_evened_out() -> None:
    """A gradient with one direction a hundred times as strong moves both alike."""
    left, _ = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(1)))
    right, _ = torch.linalg.qr(torch.randn(30, 30, generator=torch.Generator().manual_seed(2)))
    strengths = torch.logspace(0, -2, 12)
    matrix = left @ torch.diag(strengths) @ right[:12]
    values = torch.linalg.svdvals(orthogonalize(matrix[None])[0].float())
    assert values.min() > 0.5
    assert values.max() < 1.3
    parameter = nn.Parameter(torch.zeros(12, 30))
    parameter.grad = matrix
    Muon([parameter], 1.0).step()
    assert parameter.square().mean().sqrt().item() == pytest.approx(RMS, rel=0.2)
    assert (parameter * matrix).sum() < 0


def test_a_stopped_optimizer_changes_nothing() -> None:
    parameters = make_parameters()
    muon = Muon(parameters, 0.02)
    muon.found_inf = torch.zeros(())
    set_gradients(parameters, 0)
    muon.step()
    before = copy.deepcopy(([p.detach() for p in parameters], muon.state_dict()["state"]))
    muon.found_inf.fill_(1)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, torch.nan)
    muon.step()
    for value, parameter in zip(before[0], parameters, strict=True):
        assert torch.equal(value, parameter)
    for number, entry in muon.state_dict()["state"].items():
        assert torch.equal(entry["momentum"], before[1][number]["momentum"])


def test_only_matrices() -> None:
    assert is_matrix(torch.zeros(8, 2, 2, 2))
    assert not is_matrix(torch.zeros(3, 64, 3, 3))
    assert not is_matrix(torch.zeros(64, 2))
    assert not is_matrix(torch.zeros(64))
    with pytest.raises(ValueError, match=r"not for shape \[3, 64\]"):
        Muon([nn.Parameter(torch.zeros(3, 64))], 0.1)
