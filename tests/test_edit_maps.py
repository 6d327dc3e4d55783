"""Ideal edits: maps by hand, warps against loops and torch's sampler, eligibility by force."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from geoco import edit_maps, geometry, metrics
from geoco.edit_maps import AffineMap

FACTORS = torch.tensor([0.5, 0.75, 1.0, 1.25, 1.5], dtype=torch.float64)
MOVES = torch.tensor([[6, 0], [-6, 0], [0, 6], [0, -6]])


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def random_mask(seed: int, *shape: int, share: float = 0.4) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def random_maps(seed: int, count: int) -> AffineMap:
    generator = torch.Generator().manual_seed(seed)
    factor = 0.4 + 1.6 * torch.rand(count, generator=generator, dtype=torch.float64)
    return AffineMap(factor, torch.rand(count, 2, generator=generator, dtype=torch.float64) - 0.5)


def disc(size: int, x: float, y: float, radius: float) -> Tensor:
    pixels = torch.arange(size, dtype=torch.float64)
    return (pixels - x).square() + (pixels[:, None] - y).square() <= radius**2


def block(size: int, left: int, top: int, right: int, bottom: int) -> Tensor:
    mask = torch.zeros(size, size, dtype=torch.bool)
    mask[top : bottom + 1, left : right + 1] = True
    return mask


# -- maps ------------------------------------------------------------------------------------------


def test_maps_by_hand() -> None:
    move = AffineMap.from_move(torch.tensor([[6, 0], [0, -3]]), 31, 64)
    assert move.factor.tolist() == [1, 1]
    torch.testing.assert_close(move.offset, torch.tensor([[12 / 63, 0], [0, -6 / 30]]).double())
    resize = AffineMap.from_resize(number(1.5), torch.tensor([0.2, -0.4], dtype=torch.float64))
    points = resize.apply(torch.tensor([[0.2, -0.4], [0.4, 0.0], [-0.2, -0.4]]))
    expected = torch.tensor([[0.2, -0.4], [0.5, 0.2], [-0.4, -0.4]]).double()
    torch.testing.assert_close(points, expected, atol=1e-7, rtol=0)
    there, here = torch.tensor([-0.5, 0.1]), torch.tensor([0.3, 0.2])
    swap = AffineMap.from_transplant(here, torch.tensor(0.1), there, torch.tensor(0.2))
    assert swap.factor.item() == pytest.approx(0.5)
    # The donor's center goes to the recipient's, its scale to the recipient's scale.
    moved = swap.apply(torch.stack((there, there + torch.tensor([0.2, 0.0]))))
    expected = torch.stack((here, here + torch.tensor([0.1, 0.0]))).double()
    torch.testing.assert_close(moved, expected, atol=1e-7, rtol=0)


def test_commands_and_objects_broadcast() -> None:
    positions = torch.tensor([[0.1, -0.2], [0.3, 0.0], [-0.4, 0.2]])
    edit = AffineMap.from_resize(FACTORS, positions[:, None])
    assert edit.factor.shape == (3, 5)
    assert edit.offset.shape == (3, 5, 2)
    masks = random_mask(0, 3, 20, 20)
    together = edit_maps.warp_mask(masks[:, None], edit)
    able = edit_maps.is_feasible(masks[:, None], edit)
    assert together.shape == (3, 5, 20, 20)
    for item, command in np.ndindex(3, 5):
        alone = AffineMap.from_resize(FACTORS[command], positions[item])
        assert torch.equal(together[item, command], edit_maps.warp_mask(masks[item], alone))
        assert able[item, command] == edit_maps.is_feasible(masks[item], alone)


@given(st.floats(0.05, 20), st.floats(-1, 1), st.floats(-1, 1), st.integers(0, 99))
def test_the_inverse_undoes(factor: float, x: float, y: float, seed: int) -> None:
    edit = AffineMap.from_resize(number(factor), torch.tensor([x, y], dtype=torch.float64))
    points = torch.randn(7, 2, generator=torch.Generator().manual_seed(seed)).double()
    torch.testing.assert_close(edit.inverse().apply(edit.apply(points)), points)
    torch.testing.assert_close(edit.apply(edit.inverse().apply(points)), points)


# -- warps of masks --------------------------------------------------------------------------------


def roll_mask(mask: Tensor, dx: int, dy: int) -> Tensor:
    height, width = mask.shape[-2:]
    result = torch.roll(mask, (dy, dx), (-2, -1))
    rows, columns = torch.arange(height) - dy, torch.arange(width) - dx
    inside = ((rows >= 0) & (rows < height))[:, None] & (columns >= 0) & (columns < width)
    return result & inside


@given(
    st.integers(2, 70), st.integers(2, 70), st.integers(-9, 9), st.integers(-9, 9), st.integers(0)
)
@settings(deadline=None)
def test_whole_pixel_moves_are_exact(height: int, width: int, dx: int, dy: int, seed: int) -> None:
    mask = random_mask(seed % 1000, 2, height, width)
    edit = AffineMap.from_move(torch.tensor([dx, dy]), height, width)
    assert torch.equal(edit_maps.warp_mask(mask, edit), roll_mask(mask, dx, dy))
    layer = torch.rand(2, 3, height, width)
    expected = torch.where(
        roll_mask(torch.ones_like(mask), dx, dy)[:, None], layer.roll((dy, dx), (-2, -1)), 0
    )
    assert torch.equal(edit_maps.warp_image(layer, edit), expected)


def test_the_papers_moves_and_a_scale_by_hand() -> None:
    mask = block(64, 20, 30, 25, 33)
    moved = edit_maps.warp_mask(mask, AffineMap.from_move(MOVES, 64, 64))
    assert torch.equal(moved[0], block(64, 26, 30, 31, 33))
    assert torch.equal(moved[3], block(64, 20, 24, 25, 27))
    # Doubling about pixel 20 of 64: column c of the target reads 20 + (c - 20) / 2.
    place = torch.tensor([20, 30], dtype=torch.float64) * 2 / 63 - 1
    large = edit_maps.warp_mask(mask, AffineMap.from_resize(number(2), place))
    # Half-way places read the right and lower pixel: column 19 reads 19.5, that is 20.
    assert torch.equal(large, block(64, 19, 29, 30, 36))


def test_places_half_way_read_the_right_and_lower_pixel() -> None:
    mask = torch.tensor([[1, 0, 1, 1, 0, 1]], dtype=torch.bool).repeat(3, 1)
    half = edit_maps.warp_mask(mask, AffineMap.from_move(torch.tensor([0.5, 0]), 3, 6))
    assert torch.equal(half, mask)
    more = edit_maps.warp_mask(mask, AffineMap.from_move(torch.tensor([0.5001, 0]), 3, 6))
    assert more[0].tolist() == [False, True, False, True, True, False]
    # A place that rounding puts an atom before half-way is still half-way.
    almost = edit_maps.warp_mask(
        mask, AffineMap.from_move(torch.tensor([0.5 + 1e-9, 0], dtype=torch.float64), 3, 6)
    )
    assert torch.equal(almost, mask)


def nearest_by_loop(mask: Tensor, edit: AffineMap) -> Tensor:
    """Each target pixel asks every source pixel how far its inverse image is."""
    height, width = mask.shape
    result = torch.zeros_like(mask)
    factor, (shift_x, shift_y) = edit.factor.item(), edit.offset.tolist()
    for row, column in np.ndindex(height, width):
        x = ((-1 + 2 * column / (width - 1)) - shift_x) / factor
        y = ((-1 + 2 * row / (height - 1)) - shift_y) / factor
        for i, j in np.ndindex(height, width):
            near_x = abs(x - (-1 + 2 * j / (width - 1))) * (width - 1) / 2 < 0.5
            near_y = abs(y - (-1 + 2 * i / (height - 1))) * (height - 1) / 2 < 0.5
            if near_x and near_y:
                result[row, column] = mask[i, j]
    return result


def test_warps_against_a_loop() -> None:
    maps = random_maps(3, 6)
    for index, mask in enumerate(random_mask(4, 6, 9, 12)):
        edit = AffineMap(maps.factor[index], maps.offset[index])
        warped = edit_maps.warp_mask(mask, edit)
        assert torch.equal(warped, nearest_by_loop(mask, edit))
        assert warped.any()


def sample_field(field: Tensor, edit: AffineMap, mode: str) -> Tensor:
    """torch's own sampler, in float64, at the inverse image of the grid."""
    height, width = field.shape[-2:]
    points = geometry.build_grid(height, width, dtype=torch.float64)
    back = edit.inverse()
    places = back.factor[:, None, None, None] * points + back.offset[:, None, None]
    return F.grid_sample(field.double(), places, mode, padding_mode="zeros", align_corners=True)


@pytest.mark.parametrize("size", [(64, 64), (33, 50)])
def test_warps_against_torchs_sampler(size: tuple[int, int]) -> None:
    maps = random_maps(5, 40)
    masks = random_mask(6, 40, *size)
    expected = sample_field(masks[:, None], maps, "nearest")[:, 0] > 0.5
    assert torch.equal(edit_maps.warp_mask(masks, maps), expected)
    layers = torch.rand(40, 4, *size, dtype=torch.float64)
    torch.testing.assert_close(
        edit_maps.warp_image(layers, maps), sample_field(layers, maps, "bilinear")
    )


@given(st.floats(1.01, 1.8), st.floats(-0.3, 0.3), st.floats(-0.3, 0.3), st.integers(0, 999))
@settings(deadline=None)
def test_a_mask_enlarged_and_shrunk_again_is_itself(
    factor: float, x: float, y: float, seed: int
) -> None:
    mask = torch.zeros(64, 64, dtype=torch.bool)
    mask[20:44, 20:44] = random_mask(seed, 24, 24)
    edit = AffineMap.from_resize(number(factor), torch.tensor([x, y], dtype=torch.float64))
    large = edit_maps.warp_mask(mask, edit)
    assert large.sum() >= mask.sum()
    assert torch.equal(edit_maps.warp_mask(large, edit.inverse()), mask)


# -- the ideal response ----------------------------------------------------------------------------


@given(st.floats(10, 14), st.floats(28, 35), st.floats(28, 35))
@settings(deadline=None)
def test_ideal_discs_answer_scale_with_one_and_two(radius: float, x: float, y: float) -> None:
    mask = disc(64, x, y, radius)
    before = metrics.support_moments(mask)
    edit = AffineMap.from_resize(FACTORS, before.center)
    assert edit_maps.is_feasible(mask, edit).all()
    after = metrics.support_moments(edit_maps.warp_mask(mask, edit))
    assert metrics.response_slope(FACTORS, after.radius).item() == pytest.approx(1, abs=0.03)
    assert metrics.response_slope(FACTORS, after.coverage).item() == pytest.approx(2, abs=0.06)


def test_a_transplanted_disc_takes_the_recipients_place_and_size() -> None:
    donor, recipient = disc(64, 20, 40, 12), disc(64, 38, 30, 8)
    one, other = metrics.support_moments(recipient), metrics.support_moments(donor)
    edit = AffineMap.from_transplant(one.center, one.radius, other.center, other.radius)
    target = edit_maps.warp_mask(donor, edit)
    assert metrics.f1(target, recipient).item() > 0.95
    pixels = metrics.drift(one.center, metrics.support_moments(target).center) * 63 / 2
    assert pixels.item() < 0.5


def test_premultiplied_layers_keep_their_colour() -> None:
    """Where the layer is half covered it is half as bright, never mixed with what lay outside."""
    colour = torch.tensor([0.9, 0.5, 0.1])
    alpha = disc(64, 30, 33, 9).float()
    layer = torch.cat((colour[:, None, None] * alpha, alpha[None]))
    moved = edit_maps.warp_image(
        layer, AffineMap.from_resize(number(1.3), torch.tensor([0.1, 0.2]))
    )
    partly = (moved[3] > 0.01) & (moved[3] < 0.99)
    assert partly.sum() > 20
    shown = moved[:3] / moved[3].clamp_min(1e-6)
    torch.testing.assert_close(shown[:, partly], colour[:, None].expand(3, int(partly.sum())))
    # Half a pixel to the right: the left edge is covered by half.
    half = edit_maps.warp_image(
        block(8, 2, 2, 4, 4)[None].float(), AffineMap.from_move(torch.tensor([0.5, 0]), 8, 8)
    )
    torch.testing.assert_close(half[0, 3], torch.tensor([0, 0, 0.5, 1, 1, 0.5, 0, 0]))


# -- who is eligible -------------------------------------------------------------------------------


def test_cell_bounds_by_hand() -> None:
    mask = torch.zeros(3, 8, 10, dtype=torch.bool)
    mask[0, 2, 3] = True
    mask[1, 0, 9] = mask[1, 7, 4] = True
    bounds = edit_maps.compute_cell_bounds(mask)
    assert bounds[0].tolist() == [2.5, 1.5, 3.5, 2.5]
    assert bounds[1].tolist() == [3.5, -0.5, 9.5, 7.5]
    assert bounds[2].isnan().all()
    moved = edit_maps.transform_bounds(
        bounds[0], AffineMap.from_move(torch.tensor([6, -3]), 8, 10), 8, 10
    )
    assert moved.tolist() == pytest.approx([8.5, -1.5, 9.5, -0.5])  # nothing is clipped
    center = torch.tensor([3 / 4.5 - 1, 2 / 3.5 - 1], dtype=torch.float64)
    grown = edit_maps.transform_bounds(bounds[0], AffineMap.from_resize(number(3), center), 8, 10)
    assert grown.tolist() == pytest.approx([1.5, 0.5, 4.5, 3.5])


@pytest.mark.parametrize(
    ("left", "right", "dx", "expected"),
    [
        (1, 10, 0, True),
        (0, 10, 0, False),
        (0, 10, 6, False),  # the factual support counts as well
        (7, 10, -6, True),  # to exactly 0.5
        (6, 10, -6, False),
        (50, 56, 6, True),  # to exactly 62.5
        (50, 57, 6, False),
        (1, 62, 0, True),
        (1, 63, 0, False),
    ],
)
def test_the_interior_ends_at_the_outermost_band(
    left: int, right: int, dx: int, expected: bool
) -> None:
    for mask, step in (
        (block(64, left, 20, right, 30), [dx, 0]),
        (block(64, 20, left, 30, right), [0, dx]),
    ):
        assert (
            edit_maps.is_feasible(mask, AffineMap.from_move(torch.tensor(step), 64, 64)).item()
            is expected
        )


def test_rounding_does_not_push_a_mask_out_of_the_interior() -> None:
    for size, step in ((64, 1), (50, 1), (33, 2)):
        for start in range(2, size - 8, step):
            mask = block(size, start, start, start + 3, start + 3)
            left, right = (torch.tensor([d, d]) for d in (1 - start, size - 5 - start))
            for edge in (left, right):
                assert edit_maps.is_feasible(mask, AffineMap.from_move(edge, size, size))
                beyond = edge + edge.sign()
                assert not edit_maps.is_feasible(mask, AffineMap.from_move(beyond, size, size))


def test_an_empty_mask_is_nowhere() -> None:
    assert not edit_maps.is_feasible(torch.zeros(9, 9, dtype=torch.bool), random_maps(0, 3)).any()


def feasible_by_corners(mask: Tensor, edit: AffineMap) -> bool:
    """Every corner of every occupied cell, before and after, through the grid and back."""
    height, width = mask.shape
    for row, column in mask.nonzero().tolist():
        for y, x in ((row + a, column + b) for a in (-0.5, 0.5) for b in (-0.5, 0.5)):
            point = torch.tensor([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1]).double()
            u, v = edit.apply(point).tolist()
            u, v = (u + 1) * (width - 1) / 2, (v + 1) * (height - 1) / 2
            for place, size in ((x, width), (y, height), (u, width), (v, height)):
                if not 0.5 - 1e-5 <= place <= size - 1.5 + 1e-5:
                    return False
    return bool(mask.any())


@given(
    st.integers(0, 9999),
    st.sampled_from([(12, 16), (15, 15)]),
    st.one_of(
        st.tuples(st.just("move"), st.integers(-5, 5), st.integers(-5, 5)),
        st.tuples(st.just("resize"), st.sampled_from([0.5, 0.75, 1.25, 1.5]), st.floats(-1, 1)),
    ),
)
@settings(deadline=None, max_examples=60)
def test_feasibility_against_all_cell_corners(
    seed: int, size: tuple[int, int], command: tuple[str, float, float]
) -> None:
    generator = np.random.default_rng(seed)
    mask = torch.zeros(size, dtype=torch.bool)
    top, left = generator.integers(0, 6), generator.integers(0, 6)
    mask[top : top + 7, left : left + 7] = random_mask(
        seed, *mask[top : top + 7, left : left + 7].shape, share=0.1
    )
    kind, first, second = command
    if kind == "move":
        edit = AffineMap.from_move(torch.tensor([first, second]), *size)
    else:
        edit = AffineMap.from_resize(
            number(first), torch.tensor([second, -second / 2], dtype=torch.float64)
        )
    assert bool(edit_maps.is_feasible(mask, edit)) == feasible_by_corners(mask, edit)


def test_valid_objects_have_ten_pixels() -> None:
    mask = torch.zeros(2, 5, 5, dtype=torch.bool)
    mask.view(2, 25)[0, :9] = True
    mask.view(2, 25)[1, :10] = True
    assert edit_maps.is_large_enough(mask).tolist() == [False, True]
    assert edit_maps.is_large_enough(mask, least=9).tolist() == [True, True]
