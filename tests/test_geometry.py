"""Grids, moments and supports: by hand, against loops, and the invariants that the paper proves."""

import math

import numpy as np
import pytest
import torch

from geoco import geometry
from geoco.models import compositing


def disc(size: int, x: float, y: float, radius: float) -> torch.Tensor:
    points = geometry.build_grid(size, size).double()
    return ((points[..., 0] - x).square() + (points[..., 1] - y).square() < radius**2).double()


# -- grids -----------------------------------------------------------------------------------------


def test_grids_end_on_the_endpoints() -> None:
    points = geometry.build_grid(3, 5)
    assert points[0, 0].tolist() == [-1, -1]
    assert points[2, 4].tolist() == [1, 1]
    assert points[0, 1].tolist() == [-0.5, -1]  # x first
    assert points[1, 0].tolist() == [-1, 0]


def test_larger_canvases_keep_the_spacing() -> None:
    for size in (16, 32, 64):
        usual, large = geometry.build_grid(size, size), geometry.build_grid(size, size, extent=3)
        assert large.shape[0] == geometry.count_samples(size, 3) == 3 * (size - 1) + 1
        inner = slice(size - 1, 2 * size - 1)
        torch.testing.assert_close(large[inner, inner], usual)


@pytest.mark.parametrize(("size", "scale"), [(16, 0.869226987), (24, 0.851256531)])
def test_uniform_attention_has_the_papers_cold_scale(size: int, scale: float) -> None:
    assert geometry.compute_uniform_scale(size) == pytest.approx(scale, abs=5e-10)
    points = geometry.build_grid(size, size).double()
    assert points.square().sum(-1).mean().sqrt().item() == pytest.approx(scale, abs=1e-7)


def test_coordinates_in_a_slots_frame() -> None:
    points = torch.tensor([[0.5, 0.1], [0.0, -0.4]])
    coordinates = geometry.to_slot_frame(points, torch.tensor([[0.1, 0.1]]), torch.tensor([0.08]))
    torch.testing.assert_close(coordinates, torch.tensor([[[1.0, 0.0], [-0.25, -1.25]]]))
    many = geometry.to_slot_frame(geometry.build_grid(4, 5), torch.zeros(2, 3, 2), torch.ones(2, 3))
    assert many.shape == (2, 3, 4, 5, 2)


# -- moments ---------------------------------------------------------------------------------------


def test_moments_by_hand() -> None:
    support = torch.zeros(3, 3, dtype=torch.float64)
    support[1, 1], support[1, 2] = 1, 0.5  # at (0, 0) and (1, 0)
    moments = geometry.compute_moments(support)
    mean = 0.5 / 1.5
    spread = (1 * mean**2 + 0.5 * (1 - mean) ** 2) / 1.5
    assert moments.center.tolist() == pytest.approx([mean, 0], abs=1e-7)
    assert moments.radius.item() == pytest.approx(math.sqrt(spread), abs=1e-7)
    assert moments.coverage.item() == pytest.approx(1.5 / 9)
    assert moments.compactness.item() == pytest.approx(1.5 / 9 / spread, abs=1e-6)


def test_moments_against_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    supports_ = torch.rand(2, 3, 5, 7, generator=generator, dtype=torch.float64)
    moments = geometry.compute_moments(supports_)
    for index in np.ndindex(2, 3):
        mass = x = y = 0.0
        for row, column in np.ndindex(5, 7):
            m = float(supports_[index][row, column])
            u, v = -1 + column / 3, -1 + row / 2
            mass, x, y = mass + m, x + m * u, y + m * v
        x, y, square = x / mass, y / mass, 0.0
        for row, column in np.ndindex(5, 7):
            m = float(supports_[index][row, column])
            square += m * ((-1 + column / 3 - x) ** 2 + (-1 + row / 2 - y) ** 2) / mass
        assert moments.center[index].tolist() == pytest.approx([x, y], abs=1e-7)
        assert moments.radius[index].item() == pytest.approx(math.sqrt(square), abs=1e-7)
        assert moments.coverage[index].item() == pytest.approx(mass / 35)


def test_an_empty_support_has_finite_moments_and_gradients() -> None:
    support = torch.zeros(4, 4, requires_grad=True)
    moments = geometry.compute_moments(support)
    total = moments.center.sum() + moments.radius + moments.coverage + moments.compactness
    assert torch.isfinite(total)
    assert torch.isfinite(torch.autograd.grad(total, support)[0]).all()


@pytest.mark.parametrize("factor", [0.5, 0.75, 1.5])
def test_radius_coverage_and_compactness_scale_as_proved(factor: float) -> None:
    """r grows by k, A by k^2, K stays; on 512 pixels the disc's edge hardly matters."""
    before = geometry.compute_moments(disc(512, 0.1, -0.2, 0.4))
    after = geometry.compute_moments(disc(512, 0.1, -0.2, 0.4 * factor))
    assert (after.radius / before.radius).item() == pytest.approx(factor, rel=5e-3)
    assert (after.coverage / before.coverage).item() == pytest.approx(factor**2, rel=5e-3)
    assert (after.compactness / before.compactness).item() == pytest.approx(1, rel=5e-3)
    # A disc's coverage is pi R^2 / 4 of the square canvas, its squared RMS radius R^2 / 2.
    assert before.compactness.item() == pytest.approx(math.pi / 2, rel=0.01)
    torch.testing.assert_close(after.center, before.center, atol=1e-3, rtol=0)


def test_moments_differentiate() -> None:
    support = torch.rand(2, 4, 5, dtype=torch.float64, requires_grad=True)

    def parts(value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        moments = geometry.compute_moments(value)
        return moments.center, moments.radius, moments.coverage, moments.compactness

    assert torch.autograd.gradcheck(parts, support)


# -- supports --------------------------------------------------------------------------------------


def test_composition_by_hand() -> None:
    logits = torch.tensor([math.log(3.0), 0.0]).view(1, 2, 1, 1)
    alpha = compositing.compute_alpha(logits)
    assert alpha.flatten().tolist() == pytest.approx([0.75, 0.25])
    rgb = torch.tensor([[1.0, 0, 0], [0, 1.0, 0.4]]).view(1, 2, 3, 1, 1)
    picture = compositing.composite(rgb, alpha)
    assert picture.flatten().tolist() == pytest.approx([0.75, 0.25, 0.1])


def test_alpha_is_a_partition() -> None:
    alpha = compositing.compute_alpha(torch.randn(2, 3, 5, 4, 4) * 9)
    torch.testing.assert_close(alpha.sum(-3), torch.ones(2, 3, 4, 4))


def test_hard_ownership_takes_the_first_of_equals() -> None:
    logits = torch.tensor([[1.0, 2.0], [1.0, 5.0], [0.0, 5.0]]).view(3, 1, 2)
    assert compositing.compute_masks(logits).squeeze(1).tolist() == [
        [True, False],
        [False, True],
        [False, False],
    ]


def test_one_foreground_ignores_other_foregrounds() -> None:
    logits = torch.randn(4, 3, 3, dtype=torch.float64)
    background = torch.tensor([False, True, False, True])
    support = compositing.training_support(logits, background)
    aggregated = torch.log(logits[1].exp() + logits[3].exp())
    torch.testing.assert_close(support[0], torch.sigmoid(2 * (logits[0] - aggregated)))
    changed = logits.clone()
    changed[2] += 100
    torch.testing.assert_close(compositing.training_support(changed, background)[0], support[0])


def test_gradients_of_one_foreground_reach_target_and_background_alone() -> None:
    logits = torch.randn(4, 3, 3, requires_grad=True)
    background = torch.tensor([False, True, False, True])
    compositing.training_support(logits, background)[0].sum().backward()
    assert logits.grad is not None
    reached = logits.grad.abs().sum((1, 2)) > 0
    assert reached.tolist() == [True, True, False, True]


def test_without_background_nothing_contests_and_nothing_breaks() -> None:
    logits = torch.randn(3, 2, 2, requires_grad=True)
    support = compositing.training_support(logits, torch.zeros(3, dtype=torch.bool))
    assert (support == 1).all()
    support.sum().backward()
    assert logits.grad is not None
    assert not logits.grad.any()


def test_foreground_slots_by_each_criterion() -> None:
    """Slot 0 holds an object; the others each fail one test; what remains is background."""
    owner = torch.full((20, 20), 5)
    owner[:5, :5] = 0  # 25 pixels
    owner[6:10, :5] = 1  # 20 pixels: one too few
    owner[11:16, :5] = 2  # 25 pixels, but too large a scale
    alpha = torch.full((6, 20, 20), 0.02)
    alpha.scatter_(0, owner[None], 0.9)
    scale = torch.tensor([0.2, 0.2, 0.3, 0.2, 0.2, 0.2])
    foreground = compositing.find_foreground_slots(alpha, scale)
    assert foreground.tolist() == [
        True,
        False,
        False,
        False,
        False,
        False,
    ]  # slot 5 owns more than 60 %
    faint = torch.full((6, 20, 20), 0.1)
    faint.scatter_(0, owner[None], 0.29)
    assert not compositing.find_foreground_slots(faint, scale).any()


def test_backgrounds_by_mass_and_by_border() -> None:
    alpha = torch.zeros(3, 20, 20)
    alpha[0, 4:16, 4:16] = 1  # 144 pixels, none on the border
    alpha[1] = 1 - alpha[0]
    alpha[1, 4:6, :4] = 0
    alpha[2, 4:6, :4] = 1
    assert compositing.find_measurement_background(alpha).item() == 1
    assert compositing.find_selector_background(alpha).item() == 1
    wide = torch.zeros(2, 20, 20)
    wide[0, 1:19, 1:19] = 1  # most of the picture
    wide[1] = 1 - wide[0]
    assert compositing.find_measurement_background(wide).item() == 0
    # Of the border's 256 pixels slot 0 owns 180; score 180/256 + 0.25 * 324/400 against the rest.
    assert compositing.find_selector_background(wide).item() == 0
    frame = torch.zeros(2, 20, 20)
    frame[0, 4:16, 4:16] = 1
    frame[1] = 1 - frame[0]
    frame[:, :4] = torch.tensor([0.45, 0.55])[:, None, None]
    assert compositing.find_selector_background(frame).item() == 1
