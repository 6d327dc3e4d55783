"""Every term of the objective against values worked out by hand, and what it leaves alone."""

import math

import pytest
import torch
from torch import Tensor

from geoco.geometry import Moments, compute_moments
from geoco.training import losses

DOUBLE = torch.float64


def test_huber_is_quadratic_then_linear() -> None:
    residual = torch.tensor([0.0, 0.03, -0.05, 0.25], dtype=DOUBLE)
    expected = torch.tensor([0.0, 0.00045, 0.00125, 0.05 * (0.25 - 0.025)], dtype=DOUBLE)
    torch.testing.assert_close(losses.huber(residual, 0.05), expected)


def test_weighted_mean_ignores_what_has_no_weight() -> None:
    value = torch.tensor([1.0, 4.0, math.inf, math.nan], requires_grad=True)
    mean = losses.weighted_mean(value, torch.tensor([3.0, 1.0, 0.0, 0.0]))
    assert mean.item() == pytest.approx(7 / 4)
    mean.backward()
    assert value.grad is not None
    assert value.grad.tolist() == [0.75, 0.25, 0.0, 0.0]
    assert losses.weighted_mean(value, torch.zeros(4)).item() == 0


def test_counts_of_all_processes_divide() -> None:
    value = torch.tensor([2.0, 4.0])
    mean = losses.weighted_mean(value, torch.ones(2), lambda count: 2 * count)
    assert mean.item() == pytest.approx(1.5)


def test_rec_is_the_mean_over_all_colour_values() -> None:
    target = torch.zeros(1, 1, 3, 2, 2)
    image = target.clone()
    image[0, 0, 1, 0, 1] = 0.6
    assert losses.rec(image, target).item() == pytest.approx(0.36 / 12)


def test_ov_by_a_loop_and_for_uniform_slots() -> None:
    attention = torch.rand(2, 3, 4, 9, dtype=DOUBLE).softmax(-1)
    pairs = [
        (attention[:, :, i] * attention[:, :, j]).sum(-1)
        for i in range(4)
        for j in range(4)
        if i != j
    ]
    torch.testing.assert_close(losses.ov(attention), torch.stack(pairs).mean())
    uniform = torch.full((1, 1, 6, 256), 1 / 256)
    assert losses.ov(uniform).item() == pytest.approx(1 / 256)


def test_pos_by_hand() -> None:
    center = torch.tensor([[0.10, 0.0], [0.0, 0.0], [0.9, 0.9]], requires_grad=True)
    position = torch.tensor([[0.08, 0.0], [0.0, 0.1], [0.0, 0.0]], requires_grad=True)
    valid = torch.tensor([True, True, False])
    loss = losses.pos(center, position, valid, 0.05)
    first = 0.5 * 0.02**2 / 2
    second = 0.05 * (0.1 - 0.025) / 2
    assert loss.item() == pytest.approx((first + second) / 2)
    loss.backward()
    assert position.grad is None
    assert center.grad is not None
    assert center.grad[0, 0].item() == pytest.approx(0.02 / 4, rel=1e-4)
    assert center.grad[2].eq(0).all()


def test_center_penalties() -> None:
    residual = torch.tensor([[0.03, 0.04], [0.3, 0.4]], dtype=DOUBLE)
    scale = torch.tensor([2.0, 0.1], dtype=DOUBLE, requires_grad=True)
    each = losses.center_penalty(residual, scale, "coordinate", 0.05)
    assert each[0].item() == pytest.approx((0.5 * 0.03**2 + 0.5 * 0.04**2) / 2)
    assert each[1].item() == pytest.approx((0.05 * 0.275 + 0.05 * 0.375) / 2)
    whole = losses.center_penalty(residual, scale, "normalized", 0.05)
    assert whole[0].item() == pytest.approx(0.5 * 0.025**2)
    assert whole[1].item() == pytest.approx(0.05 * (5 - 0.025), rel=1e-6)
    assert not whole.requires_grad


def disc(x: float, y: float, radius: float, size: int = 65) -> Tensor:
    line = torch.linspace(-1, 1, size, dtype=DOUBLE)
    away = (line[None, :] - x).square() + (line[:, None] - y).square()
    return (away < radius**2).to(DOUBLE)


def geo_of(support: Tensor, recipient: Tensor, donor: Tensor, center: str = "coordinate") -> Tensor:
    return losses.geo(
        compute_moments(support[None]),
        compute_moments(recipient[None]),
        compute_moments(donor[None]).compactness,
        torch.tensor([[0.25, 0.0]], dtype=DOUBLE),
        torch.tensor([0.2], dtype=DOUBLE),
        torch.ones(1, dtype=DOUBLE),
        center,  # type: ignore[arg-type]
        0.05,
        0.25,
    )


def test_geo_is_zero_for_a_transplant_that_obeys() -> None:
    """The recipient's place and extent with the donor's fill, whatever the donor's own size."""
    recipient, donor = disc(0.25, 0, 0.3), disc(-0.5, 0.5, 0.4)
    assert geo_of(recipient, recipient, donor).item() < 1e-5


def test_geo_by_hand() -> None:
    recipient, donor = disc(0.25, 0, 0.3), disc(0, 0, 0.3)
    moved = disc(0.25 + 0.125, 0, 0.3)
    assert geo_of(moved, recipient, donor).item() == pytest.approx(
        0.05 * (0.125 - 0.025) / 2, rel=1e-3
    )
    assert geo_of(moved, recipient, donor, "normalized").item() == pytest.approx(
        0.05 * (0.125 / 0.2 - 0.025), rel=1e-3
    )
    half = compute_moments((0.5 * recipient)[None])
    assert half.compactness.item() == pytest.approx(
        compute_moments(recipient[None]).compactness.item() / 2, rel=1e-6
    )
    faint = geo_of(0.5 * recipient, recipient, donor).item()
    assert faint == pytest.approx(0.25 * 0.05 * (math.log(2) - 0.025), rel=1e-2)


def test_geo_sends_nothing_to_targets_or_commands() -> None:
    def leaves(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=DOUBLE).add(0.5).requires_grad_()

    made, kept = (Moments(leaves(3, 2), leaves(3), leaves(3), leaves(3)) for _ in range(2))
    fill, position, scale, confidence = leaves(3), leaves(3, 2), leaves(3), leaves(3)
    losses.geo(made, kept, fill, position, scale, confidence, "normalized", 0.05, 0.25).backward()
    for target in (*vars(kept).values(), fill, position, scale, confidence):
        assert target.grad is None
    assert made.center.grad is not None
    assert made.radius.grad is not None
    assert made.compactness.grad is not None


def test_gate_is_the_mean_square() -> None:
    gates = torch.tensor([[[[0.5, -0.1], [0.0, 0.2]]]])
    assert losses.gate(gates).item() == pytest.approx((0.25 + 0.01 + 0.04) / 4)


def test_tail_pushes_only_what_is_already_low() -> None:
    # q = sigmoid(2 z): 0.119 at -1, 0.27 at -0.5, 0.5 at 0.
    margin = torch.tensor([[[-1.0, -0.5], [0.0, 9.0]]], dtype=DOUBLE, requires_grad=True)
    loss = losses.tail(margin, torch.ones(1, dtype=DOUBLE))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-2)) / 4)
    loss.backward()
    assert margin.grad is not None
    low = 2 / (1 + math.exp(2)) / 4
    torch.testing.assert_close(margin.grad, torch.tensor([[[low, 0], [0, 0]]], dtype=DOUBLE))


def test_tail_is_stable_and_empty_populations_are_zero() -> None:
    margin = torch.full((2, 3, 3), -200.0, requires_grad=True)
    assert losses.tail(margin, torch.ones(2)).item() == 0
    assert losses.tail(margin - math.inf, torch.zeros(2)).item() == 0


def make_pixels(rgb: list[list[float]], alpha: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Slots by pixels; all three colours of a pixel are alike."""
    colors = torch.tensor(rgb, dtype=DOUBLE)[:, None, None, :].expand(-1, 3, 1, -1).clone()
    return colors.requires_grad_(), torch.tensor(alpha, dtype=DOUBLE)[:, None, :].requires_grad_()


def test_own_by_hand() -> None:
    """Slot 1 is the background, as its mean alpha is largest; colours differ by 0, 0.04, 0.2."""
    rgb, alpha = make_pixels(
        [[0.5, 0.54, 0.7], [0.5, 0.5, 0.5]],
        [[0.2, 0.3, 0.9], [0.8, 0.7, 0.1]],
    )
    loss = losses.own(rgb, alpha, 0.04)
    alike = [1.0, math.exp(-0.5), math.exp(-0.5 * 5**2)]
    expected = (0.2 * alike[0] + 0.3 * alike[1] + 0.9 * alike[2]) / 3
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert rgb.grad is None
    assert alpha.grad is not None
    torch.testing.assert_close(alpha.grad[0, 0], torch.tensor(alike, dtype=DOUBLE) / 3)
    assert alpha.grad[1].eq(0).all()


def test_own_by_hand_against_the_frame() -> None:
    """The frame is the background's colour in the first pixel alone, whatever slots draw there."""
    rgb, alpha = make_pixels(
        [[0.9, 0.5, 0.5], [0.5, 0.5, 0.5]],
        [[0.2, 0.3, 0.4], [0.8, 0.7, 0.6]],
    )
    frame = torch.tensor([0.5, 0.54, 0.7], dtype=DOUBLE)[None, None].expand(3, 1, -1)
    loss = losses.own(rgb, alpha, 0.04, frame)
    alike = [1.0, math.exp(-0.5), math.exp(-0.5 * 5**2)]
    assert loss.item() == pytest.approx((0.2 * alike[0] + 0.3 * alike[1] + 0.4 * alike[2]) / 3)
    loss.backward()
    assert rgb.grad is None
    assert alpha.grad is not None
    torch.testing.assert_close(alpha.grad[0, 0], torch.tensor(alike, dtype=DOUBLE) / 3)


def test_own_takes_the_mean_square_of_colours() -> None:
    rgb = torch.zeros(2, 3, 1, 1, dtype=DOUBLE)
    rgb[0, 2] = 0.04 * math.sqrt(3)
    alpha = torch.tensor([0.25, 0.75], dtype=DOUBLE)[:, None, None]
    assert losses.own(rgb, alpha, 0.04).item() == pytest.approx(0.25 * math.exp(-0.5))


def test_own_is_nothing_where_no_colours_agree() -> None:
    rgb, alpha = make_pixels([[0.0, 0.1], [0.9, 1.0]], [[0.4, 0.4], [0.6, 0.6]])
    assert losses.own(rgb, alpha, 0.04).item() < 1e-50


def test_own_has_no_order_of_slots_and_a_background_in_every_frame() -> None:
    generator = torch.Generator().manual_seed(3)
    rgb = 0.1 * torch.rand(2, 3, 4, 3, 5, 6, dtype=DOUBLE, generator=generator)
    alpha = torch.randn(2, 3, 4, 5, 6, dtype=DOUBLE, generator=generator).softmax(2)
    order = torch.tensor([2, 0, 3, 1])
    whole = losses.own(rgb, alpha, 0.04)
    torch.testing.assert_close(losses.own(rgb[:, :, order], alpha[:, :, order], 0.04), whole)
    shown = 0.1 * torch.rand(2, 3, 3, 5, 6, dtype=DOUBLE, generator=generator)
    for video, expected in ((None, whole), (shown, losses.own(rgb, alpha, 0.04, shown))):
        frames = [
            losses.own(rgb[b, t], alpha[b, t], 0.04, None if video is None else video[b, t])
            for b in range(2)
            for t in range(3)
        ]
        torch.testing.assert_close(torch.stack(frames).mean(), expected)
