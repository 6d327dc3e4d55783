"""Finite grids: errors by hand, and inequalities that every measurement must satisfy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from geoco import edit_maps
from geoco.evaluation import covariance_bounds


def random_mask(seed: int, *shape: int, share: float = 0.4) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def test_covariance_error_by_hand() -> None:
    transported = torch.full((4, 5), 2.0)
    edited = transported.clone()
    domain = torch.zeros(4, 5, dtype=torch.bool)
    domain[:, :4] = True  # 16 pixels
    edited[0, 0] += 0.4
    edited[:, 4] = math.nan  # outside
    error = covariance_bounds.compute_covariance_error(edited, transported, domain)
    assert error.item() == pytest.approx(math.sqrt(0.4**2 / 16) / 2, rel=1e-6)
    assert covariance_bounds.compute_rms(edited, domain).item() == pytest.approx(
        math.sqrt((15 * 4 + 2.4**2) / 16), rel=1e-6
    )
    domain[0, 0] = False
    assert covariance_bounds.compute_covariance_error(edited, transported, domain).isnan()
    nothing = torch.zeros_like(transported)
    domain[0, 0] = True
    tiny = covariance_bounds.compute_covariance_error(nothing + 1e-9, nothing, domain)
    assert tiny.item() == pytest.approx(0.1, rel=1e-5)


def scenes(seed: int, size: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Edited logits, target slots, transported target logits, a domain."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(3, 4, 6, 7, generator=generator)
    slot = torch.randint(0, 4, (3,), generator=generator)
    index = slot[:, None, None, None].expand(3, 1, 6, 7)
    best = logits.scatter(1, index, -torch.inf).amax(1, keepdim=True)
    # Exact ties between the target and its competitors, in either scene.
    tied = random_mask(seed + 2, 3, 1, 6, 7, share=0.2)
    logits = logits.scatter(1, index, torch.where(tied, best, logits.gather(1, index)))
    target, best = logits.gather(1, index)[:, 0], best[:, 0]
    transported = target + size * torch.randn(3, 6, 7, generator=generator)
    ties = random_mask(seed, 3, 6, 7, share=0.1)
    return (
        logits,
        slot,
        torch.where(ties, best, transported),
        random_mask(seed + 1, 3, 6, 7, share=0.7),
    )


@given(st.integers(0, 9999), st.sampled_from([0.0, 1e-3, 1.0, 10.0]))
@settings(deadline=None, max_examples=60)
def test_bounds_hold_and_match_a_loop(seed: int, size: float) -> None:
    logits, slot, transported, domain = scenes(seed, size)
    probability = covariance_bounds.bound_probability(logits, slot, transported)
    members = covariance_bounds.compute_membership(logits, slot, transported, domain)
    f1 = covariance_bounds.bound_membership_f1(members)
    assert probability.holds(slack=1e-14)
    assert covariance_bounds.bound_membership(members).holds()
    assert f1.holds()
    for item in range(3):
        i, actual, reference, doubtful = int(slot[item]), set(), set(), set()
        for row, column in np.ndindex(6, 7):
            scene = logits[item, :, row, column].tolist()
            q = transported[item, row, column].item()
            changed = [*scene[:i], q, *scene[i + 1 :]]
            one, other = (math.exp(s[i]) / sum(map(math.exp, s)) for s in (scene, changed))
            assert probability.left[item, row, column].item() == pytest.approx(
                abs(one - other), abs=1e-12
            )
            bound = math.tanh(abs(scene[i] - q) / 4)
            assert probability.right[item, row, column].item() == pytest.approx(bound, abs=1e-12)
            if domain[item, row, column]:
                rest = max(s for j, s in enumerate(scene) if j != i)
                for own, masks in ((scene, actual), (changed, reference)):
                    if own.index(max(own)) == i:
                        masks.add((row, column))
                if abs(q - rest) <= abs(scene[i] - q):
                    doubtful.add((row, column))
        area = len(actual) + len(reference)
        if area == 0:
            assert f1.left[item].isnan()
            assert f1.right[item].isnan()
            continue
        assert f1.right[item].item() == pytest.approx(2 * len(actual & reference) / area)
        bound = max(0, 1 - len(doubtful & (actual | reference)) / area)
        assert f1.left[item].item() == pytest.approx(bound)


def test_the_probability_bound_is_reached() -> None:
    """Half-way between, sigma(h/2) - sigma(-h/2) = tanh(h/4): nothing smaller would do."""
    logits = torch.tensor([0.75, 0.0], dtype=torch.float64).view(1, 2, 1, 1)
    inequality = covariance_bounds.bound_probability(
        logits, torch.tensor([0]), torch.full((1, 1, 1), -0.75)
    )
    assert inequality.left.item() == pytest.approx(math.tanh(1.5 / 4))
    torch.testing.assert_close(inequality.left, inequality.right)
    assert inequality.holds(1e-15)
    assert not covariance_bounds.Inequality(inequality.left, inequality.right - 1e-3).holds(1e-4)
    assert not covariance_bounds.Inequality(torch.tensor(math.nan), torch.tensor(1.0)).holds()
    assert not covariance_bounds.Inequality(torch.tensor([True]), torch.tensor([False])).holds()


def test_nothing_is_claimed_of_a_target_without_pixels() -> None:
    logits = torch.tensor([0.0, 9.0]).view(1, 2, 1, 1).expand(1, 2, 4, 4)
    everywhere = torch.ones(1, 4, 4, dtype=torch.bool)
    members = covariance_bounds.compute_membership(
        logits, torch.tensor([0]), torch.ones(1, 4, 4), everywhere
    )
    inequality = covariance_bounds.bound_membership_f1(members)
    assert inequality.left.isnan().all()
    assert inequality.right.isnan().all()
    assert inequality.holds()


@pytest.mark.parametrize("size", [0.01, 3.0])
def test_transported_probabilities_stay_within_their_bound(size: float) -> None:
    """Factual scenes moved by part of a pixel, and edited scenes that differ from them by noise."""
    generator = torch.Generator().manual_seed(0)
    factual = 3 * torch.randn(5, 4, 8, 8, generator=generator, dtype=torch.float64)
    slot = torch.arange(5) % 4
    edit = edit_maps.AffineMap.from_move(torch.tensor([0.4, 0.3]), 8, 8)
    edited = edit_maps.warp_image(factual, edit) + size * torch.randn(
        5, 4, 8, 8, generator=generator
    )
    index = slot[:, None, None, None].expand(5, 1, 8, 8)
    others = factual.scatter(1, index, -torch.inf).logsumexp(1)
    fields = torch.stack(
        (factual.gather(1, index)[:, 0], others, factual.softmax(1).gather(1, index)[:, 0]), 1
    )
    transported = edit_maps.warp_image(fields, edit)
    inequality = covariance_bounds.bound_transported_probability(
        edited, slot, *transported.unbind(1)
    )
    assert inequality.holds(1e-14)
    for item, row, column in np.ndindex(5, 8, 8):
        scene = edited[item, :, row, column].tolist()
        q, before, alpha = transported[item, :, row, column].tolist()
        i = int(slot[item])
        after = math.log(sum(math.exp(s) for j, s in enumerate(scene) if j != i))
        change = abs(scene[i] - q - (after - before))
        bound = math.tanh(change / 4) + abs(1 / (1 + math.exp(before - q)) - alpha)
        own = math.exp(scene[i]) / sum(map(math.exp, scene))
        assert inequality.left[item, row, column].item() == pytest.approx(
            abs(own - alpha), abs=1e-12
        )
        assert inequality.right[item, row, column].item() == pytest.approx(bound, abs=1e-12)
