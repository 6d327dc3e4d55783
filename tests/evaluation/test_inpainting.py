"""The visible-layer oracle: layers by hand, targets by hand, and beside the generator's truth."""

import numpy as np
import pytest
import torch
from torch import Tensor

from geoco.config import EpisodesConfig, SolidsConfig
from geoco.data import SolidsDataset
from geoco.edit_maps import AffineMap, warp_mask
from geoco.evaluation import inpainting
from geoco.metrics.rgb import psnr
from geoco.solids import Move

FLOOR = torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64)
RED = torch.tensor([0.8, 0.2, 0.2], dtype=torch.float64)


def square(size: int = 32, soft: float = 1.0) -> tuple[Tensor, Tensor]:
    """A red square of 8 x 8 on a grey floor; its rim on the left is mixed with the floor."""
    labels = torch.zeros(1, size, size, dtype=torch.uint8)
    labels[:, 12:20, 10:18] = 1
    share = labels.double()
    share[:, 12:20, 10] = soft
    frame = FLOOR[:, None, None] + (RED - FLOOR)[:, None, None] * share[:, None]
    return frame, labels


def by_pixels(x: float, y: float, size: int = 32) -> AffineMap:
    return AffineMap.from_move(torch.tensor([[x, y]]), size, size)


def test_an_object_with_hard_edges() -> None:
    frame, labels = square()
    layer = inpainting.cut_out(frame, labels, torch.tensor([1]))
    assert torch.equal(layer.support, labels == 1)
    torch.testing.assert_close(layer.alpha, (labels == 1).double())
    torch.testing.assert_close(layer.background, FLOOR[:, None, None].expand(1, 3, 32, 32))
    torch.testing.assert_close(layer.rgb, RED[:, None, None] * layer.alpha[:, None])


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_alpha_at_a_mixed_rim_is_its_share(share: float) -> None:
    frame, labels = square(soft=share)
    layer = inpainting.cut_out(frame, labels, torch.tensor([1]))
    # The rim itself counts a little where the object's own colour is sought.
    assert layer.alpha[0, 13:19, 10].numpy() == pytest.approx(share, abs=1e-5)
    assert layer.rgb[0, :, 15, 10].numpy() == pytest.approx((share * RED).numpy(), abs=1e-5)


def test_a_ring_pixel_owns_at_most_half() -> None:
    frame, labels = square()
    frame[0, :, 15, 18] = FLOOR + 0.3 * (RED - FLOOR)
    frame[0, :, 16, 18] = FLOOR + 0.8 * (RED - FLOOR)
    alpha = inpainting.cut_out(frame, labels, torch.tensor([1])).alpha
    assert float(alpha[0, 15, 18]) == pytest.approx(0.3)
    assert float(alpha[0, 16, 18]) == pytest.approx(0.5)


def test_a_labelled_pixel_owns_at_least_half() -> None:
    frame, labels = square(soft=0.2)
    alpha = inpainting.cut_out(frame, labels, torch.tensor([1])).alpha
    assert (alpha[0, 13:19, 10] == 0.5).all()


def test_nothing_of_another_object_fills_a_hole_or_is_taken() -> None:
    frame, labels = square()
    labels[:, 12:20, 18:24] = 2
    frame[:, :, 12:20, 18:24] = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)[:, None, None]
    layer = inpainting.cut_out(frame, labels, torch.tensor([1]))
    hole = layer.background[:, :, 12:20, 10:18]
    torch.testing.assert_close(hole, FLOOR[:, None, None].expand_as(hole))
    assert torch.equal(layer.background[..., 18:24], frame[..., 18:24])
    # The edge between the two is hard, on both sides.
    assert (layer.alpha[0, 12:20, 17] == 1).all()
    assert (layer.alpha[0, 12:20, 18] == 0).all()


def test_an_object_of_the_floors_colour_keeps_its_mask() -> None:
    frame, labels = square()
    frame = FLOOR[:, None, None].expand(1, 3, 32, 32) + 0.001 * labels[:, None]
    layer = inpainting.cut_out(frame, labels, torch.tensor([1]))
    assert torch.equal(layer.alpha, (labels == 1).double())


def test_a_frame_without_any_floor() -> None:
    frame, labels = square()
    labels[labels == 0] = 2
    layer = inpainting.cut_out(frame, labels, torch.tensor([1]))
    assert layer.background.isfinite().all()
    torch.testing.assert_close(layer.background[0, :, 15, 15], frame.mean((-2, -1))[0])


def test_layer_over_background_gives_the_frame_back() -> None:
    """On any picture: the colours are what is left after the floor's share."""
    draw = torch.Generator().manual_seed(0)
    frame = 0.3 + 0.4 * torch.rand(3, 3, 32, 32, generator=draw, dtype=torch.float64)
    labels = square()[1].expand(3, -1, -1)
    layer = inpainting.cut_out(frame, labels, torch.tensor([1, 1, 1]))
    still = inpainting.compose_target(layer, AffineMap.from_move(torch.zeros(3, 2), 32, 32))
    inside = (layer.rgb > 0) & (layer.rgb < layer.alpha[:, None])
    kept = inside | (layer.alpha[:, None] == 0)
    assert kept.double().mean() > 0.98
    torch.testing.assert_close(still[kept], frame[kept])


def test_a_moved_square_by_hand() -> None:
    frame, labels = square()
    layer = inpainting.cut_out(frame, labels, torch.tensor([1]))
    moved = inpainting.compose_target(layer, by_pixels(3, -2))
    expected = torch.roll(frame, (-2, 3), (-2, -1))
    torch.testing.assert_close(moved, expected)


def test_half_a_pixel_mixes_colours_by_their_alpha() -> None:
    """Premultiplied: the rim is half red and half floor, not half red and half black."""
    frame, labels = square()
    layer = inpainting.cut_out(frame, labels, torch.tensor([1]))
    moved = inpainting.compose_target(layer, by_pixels(0.5, 0))
    torch.testing.assert_close(moved[0, :, 15, 18], (RED + FLOOR) / 2)
    torch.testing.assert_close(moved[0, :, 15, 10], (RED + FLOOR) / 2)


def test_a_transplant_lies_on_the_recipients_floor() -> None:
    frame, labels = square()
    green = frame.flip(1)
    donor = inpainting.cut_out(green, labels, torch.tensor([1]))
    recipient = inpainting.cut_out(frame.roll(4, -1), labels.roll(4, -1), torch.tensor([1]))
    put = inpainting.compose_target(donor, by_pixels(4, 0), recipient.background)
    torch.testing.assert_close(put, green.roll(4, -1))
    darker = inpainting.compose_target(donor, by_pixels(4, 0), 0.5 * recipient.background)
    torch.testing.assert_close(darker[0, :, 0, 0], 0.5 * FLOOR)
    torch.testing.assert_close(darker[0, :, 15, 17], green[0, :, 15, 13])


def test_regions_by_hand() -> None:
    frame, labels = square()
    layer = inpainting.cut_out(frame, labels, torch.tensor([1]))
    region = inpainting.find_region(layer, warp_mask(layer.support, by_pixels(3, 0)))
    # Together 11 x 8; two four-connected steps add two rows or columns on each side, less corners.
    assert int(region.sum()) == 11 * 8 + 2 * 2 * (11 + 8) + 4
    assert region[0, 15, 8]
    assert not region[0, 15, 7]
    soft = inpainting.cut_out(*square(soft=0.5), torch.tensor([1]))
    ring = soft.alpha.clone()
    ring[0, 15, 25] = 0.2  # a footprint beyond the support
    donor = inpainting.Layer(soft.rgb, ring, soft.background, soft.support)
    wide = inpainting.find_transplant_region(layer, donor, donor.support, by_pixels(0, 0))
    assert wide[0, 15, 27]
    assert not wide[0, 15, 28]


def test_on_solids_it_is_close_to_the_truth_where_nothing_was_hidden() -> None:
    """A lone object's layer is all there is to see but for its shadow."""
    settings = SolidsConfig(episodes=EpisodesConfig(train=1, val=8, test=1))
    dataset = SolidsDataset(settings, "val")
    windows = [len(dataset.starts) * k for k in range(8)]
    batch = dataset.batch(windows)
    assert batch.masks is not None
    frames, labels = batch.video[:, 0].double() / 255, batch.masks[:, 0]
    number = torch.tensor([2] * 8)
    layer = inpainting.cut_out(frames, labels, number)
    edit = AffineMap.from_move(torch.tensor([[6, 0]]).expand(8, 2), 64, 64)
    guess = inpainting.compose_target(layer, edit)
    truth = dataset.render_counterfactuals(windows, [(k, Move(1, 6, 0)) for k in range(8)])
    scores = psnr(guess, truth.frames.double() / 255).numpy()
    unmoved = psnr(frames, truth.frames.double() / 255).numpy()
    assert np.median(scores) > 38
    assert (scores > unmoved).all()
