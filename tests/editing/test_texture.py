"""The picture's texture goes on where objects stand, and plain floors stay as they are."""

import math

import torch

from geoco.editing.layers import FrameLayers, measure_bodies
from geoco.editing.texture import add_texture

FLOOR, BALL = torch.tensor([0.5, 0.55, 0.6]), torch.tensor([0.8, 0.2, 0.1])

SIDE, PERIOD = 96, (12, 8)  # rows, columns
HOLE = slice(40, 58), slice(30, 44)


def paint_pattern(height: float) -> torch.Tensor:
    """A floor of waves, whose mean is the plain one."""
    rows, columns = (
        torch.sin(2 * math.pi * torch.arange(SIDE) / period) * height for period in PERIOD
    )
    return FLOOR[:, None, None] + rows[:, None] + columns


def cover() -> torch.Tensor:
    covered = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    covered[HOLE] = True
    return covered


def paint_plain() -> torch.Tensor:
    return FLOOR[:, None, None].expand(3, SIDE, SIDE)


def test_a_periodic_pattern_goes_on_where_it_is_covered() -> None:
    """In phase, up to the peaks, the strongest twentieth of the texture, which are cut."""
    floor, covered = paint_pattern(0.05), cover()
    frame = torch.where(covered, BALL[:, None, None], floor)
    filled = add_texture(frame, paint_plain(), covered, ~covered)
    error = (filled - floor)[:, covered].abs()
    assert error.max() < 0.015  # the waves are 0.1 high
    assert (paint_plain() - floor)[:, covered].abs().max() > 0.09


def test_a_plain_floor_stays_as_it_is_to_the_bit() -> None:
    noise = torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)) - 0.5
    covered = cover()
    frame = torch.where(covered, BALL[:, None, None], paint_plain() + noise / 255)
    assert torch.equal(add_texture(frame, paint_plain(), covered, ~covered), paint_plain())


def test_shadows_edges_are_no_stronger_than_texture() -> None:
    """What is not surely floor may be anything: it counts as far as texture does."""
    floor, covered = paint_pattern(0.01), cover()
    frame = torch.where(covered, BALL[:, None, None], floor)
    shade = torch.zeros_like(covered)
    shade[60:64, 60:64] = True
    frame = torch.where(shade, frame * 0.5, frame)
    filled = add_texture(frame, paint_plain(), covered, ~covered & ~shade)
    assert (filled - paint_plain()).abs().max() <= 0.02 + 1e-6


def test_the_same_hole_is_filled_alike_in_another_frame() -> None:
    """Another object in the hole and a little noise: a film's floor holds still."""
    floor, covered = paint_pattern(0.05), cover()
    noise = torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(1)) - 0.5
    one = torch.where(covered, BALL[:, None, None], floor)
    two = torch.where(covered, 1 - BALL[:, None, None], floor + noise / 255)
    first, second = (add_texture(f, paint_plain(), covered, ~covered) for f in (one, two))
    assert (first - second)[:, covered].abs().max() < 2 / 255


def test_the_textured_floor_is_left_when_the_object_goes() -> None:
    """Layers over it still add up to the picture, and what no object owns stays to the bit."""
    floor, covered = paint_pattern(0.05), cover()
    frame = torch.where(covered, BALL[:, None, None], floor)
    clean = add_texture(frame, paint_plain(), covered, ~covered)
    share = torch.stack((~covered, covered)).float()
    alpha = share * torch.tensor([0.0, 1.0])[:, None, None]
    center, radius = measure_bodies(alpha)
    colors = torch.stack((paint_plain(), frame))
    layers = FrameLayers(
        frame, clean, share, alpha, colors, share, 0, center, radius, center, radius
    )
    assert torch.equal(layers.rest[:, ~covered], frame[:, ~covered])
    assert (layers.rest - floor).abs().max() < 0.015
    layer = layers.take(1)
    torch.testing.assert_close(layers.rest * (1 - layer[3]) + layer[:3], frame, atol=1e-5, rtol=0)
