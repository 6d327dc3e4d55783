"""Receptive-field validity: by hand, and against the same decoder on a larger canvas."""

import pytest
import torch
from helpers import build_decoder

from geoco.models import receptive_field
from geoco.models.slots import Slots


@pytest.mark.parametrize(
    ("dilation", "kernel", "expected"),
    [
        (1.0, 1, [1, 1, 1, 1, 1, 1]),
        (1.0, 3, [0, 1, 1, 1, 1, 0]),
        (1.5, 3, [0, 0.5, 1, 1, 0.5, 0]),  # from 1 - 1.5 half a pixel is outside
        (0.25, 3, [0.75, 1, 1, 1, 1, 0.75]),
        (1.0, 5, [0, 0, 1, 1, 0, 0]),
        (0.75, 5, [0, 0.5, 1, 1, 0.5, 0]),  # the outer taps are at 1.5
        (3.0, 3, [0, 0, 0, 0, 0, 0]),
    ],
)
def test_validity_of_a_convolution_by_hand(
    dilation: float, kernel: int, expected: list[float]
) -> None:
    line = torch.ones(1, 6, dtype=torch.float64)
    actual = receptive_field.convolve_line(line, torch.tensor([dilation]), kernel)
    assert actual[0].tolist() == expected


def test_validity_of_slots_with_dilations_of_their_own() -> None:
    line = torch.tensor([[1.0, 1, 1, 1, 1], [0, 1, 1, 1, 0]], dtype=torch.float64)
    actual = receptive_field.convolve_line(line, torch.tensor([1.5, 0.5]), 3)
    assert actual.tolist() == [[0, 0.5, 1, 0.5, 0], [0, 0.5, 1, 0.5, 0]]


def test_validity_through_a_decoder_by_hand() -> None:
    decoder = build_decoder("conventional", 2, broadcast=4, layers=((4, 3), (7, 3)))
    actual = receptive_field.trace_alpha(decoder, torch.tensor([0.1, 0.4]))
    # 0 1 1 0, then upsampled to 0 .5 1 1 1 .5 0, then the least of three neighbours.
    assert actual.tolist() == [[0, 0, 0.5, 1, 0.5, 0, 0]] * 2
    plane = receptive_field.to_plane(actual[0])
    assert plane[3].tolist() == [0, 0, 0.5, 1, 0.5, 0, 0]
    assert plane[2, 2] == 0.25
    assert receptive_field.is_complete(plane).nonzero().tolist() == [[3, 3]]


def test_rounding_does_not_take_a_pixel_away() -> None:
    line = torch.ones(1, 6, dtype=torch.float64)
    for much, pixels in ((1e-7, 4), (1e-5, 2)):
        actual = receptive_field.convolve_line(line, torch.tensor([1 + much]).double(), 3)
        assert int(receptive_field.is_complete(actual).sum()) == pixels


def test_a_warped_canvas_has_no_valid_domain() -> None:
    decoder = build_decoder("canonical", 2, broadcast=4, layers=((8, 3),))
    assert not receptive_field.trace_alpha(decoder, torch.tensor([0.2])).any()


@pytest.mark.parametrize("design", ["steered", "conventional"])
@pytest.mark.parametrize("scale", [0.03, 0.1, 0.2, 0.31, 0.6])
@torch.no_grad()
def test_where_valid_the_edge_plays_no_part(design: str, scale: float) -> None:
    """The same decoder on a larger canvas agrees there, and disagrees in the next row outside."""
    torch.manual_seed(3)
    decoder = build_decoder(design, 6, broadcast=8, layers=((16, 5), (32, 3), (32, 3))).double()
    for number, layer in enumerate(decoder.refine):
        layer.bias.add_(0.3)  # few units silent
        if design == "steered":
            layer.gain.fill_((0.4, -0.3, 0.2)[number])
    slots = Slots(
        torch.randn(2, 6).double(),
        torch.tensor([[0.1, -0.3], [-0.9, 0.8]]).double(),
        torch.full((2,), scale).double(),
    )
    usual = decoder(slots, alpha_only=True).logits
    middle = slice(31, 63)
    large = decoder(slots, extent=3, alpha_only=True).logits[:, middle, middle]
    line = receptive_field.is_complete(receptive_field.trace_alpha(decoder, slots.scale))[0]
    inside = line[:, None] & line
    differs = ((usual - large).abs() > 1e-9).any(0)
    assert not (differs & inside).any()
    if design == "steered" and scale == 0.6:
        assert not line.any()
        return
    first = int(line.nonzero()[0])
    assert line.tolist() == [first <= place < 32 - first for place in range(32)]
    assert 0 < first < 16
    for outside in (first - 1, 32 - first):
        assert differs[outside, line].any()
        assert differs[line, outside].any()
