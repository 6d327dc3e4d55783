"""Every metric: a case computed by hand, and a loop or a library that knows nothing of ours."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from torch import Tensor

from geoco import edit_maps, metrics


def random_mask(seed: int, *shape: int, share: float = 0.4) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def labels(seed: int, count: int, *shape: int) -> Tensor:
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(seed))


def video_labels() -> tuple[Tensor, Tensor]:
    """Blocks of instances over 24 frames, and a prediction that gets a third of pixels wrong."""
    reference = torch.zeros(24, 64, 64, dtype=torch.int64)
    for index in range(1, 8):
        reference[:, 8 * index : 8 * index + 7, 4 * index : 4 * index + 30] = index
    wrong = random_mask(1, 24, 64, 64, share=0.33)
    return reference, torch.where(wrong, labels(2, 11, 24, 64, 64), (3 * reference + 5) % 11)


# -- supports --------------------------------------------------------------------------------------


def test_support_moments_by_hand() -> None:
    mask = torch.zeros(3, 3, 5, dtype=torch.bool)
    mask[0, 1, 2] = mask[0, 1, 4] = True  # at (0, 0) and (1, 0)
    mask[1, 0, 3] = True
    moments = metrics.support_moments(mask)
    assert moments.center[0].tolist() == [0.5, 0]
    assert moments.center[1].tolist() == [0.5, -1]
    assert moments.center[2].isnan().all()
    assert moments.radius.tolist() == [0.5, 0, 0]  # exactly: one pixel has no extent
    assert moments.coverage.tolist() == pytest.approx([2 / 15, 1 / 15, 0])


def test_support_moments_against_a_loop() -> None:
    masks = random_mask(0, 2, 3, 6, 9)
    moments = metrics.support_moments(masks)
    for index in np.ndindex(2, 3):
        points = [
            (-1 + 2 * column / 8, -1 + 2 * row / 5)
            for row, column in np.ndindex(6, 9)
            if masks[index][row, column]
        ]
        x, y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
        square = sum((u - x) ** 2 + (v - y) ** 2 for u, v in points) / len(points)
        assert moments.center[index].tolist() == pytest.approx([x, y])
        assert moments.radius[index].item() == pytest.approx(math.sqrt(square))
        assert moments.coverage[index].item() == pytest.approx(len(points) / 54)


# -- decomposition ---------------------------------------------------------------------------------


def rand_by_pairs(one: list[int], other: list[int]) -> float:
    """Exactly, from every pair of pixels."""
    both = rows = columns = total = 0
    for i, j in itertools.combinations(range(len(one)), 2):
        same, alike = one[i] == one[j], other[i] == other[j]
        both, rows, columns, total = (
            both + (same and alike),
            rows + same,
            columns + alike,
            total + 1,
        )
    chance = Fraction(rows * columns, total)
    most = Fraction(rows + columns, 2)
    return float((both - chance) / (most - chance)) if most != chance else 1.0


def test_adjusted_rand_by_hand() -> None:
    # The textbook case: 0.24242...
    one, other = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 2, 2])
    assert metrics.adjusted_rand(one, other) == pytest.approx(8 / 33)
    assert metrics.adjusted_rand(one, 7 - one) == 1  # names do not matter
    assert metrics.adjusted_rand(one, torch.zeros_like(one)) == 0
    assert metrics.adjusted_rand(torch.zeros_like(one), torch.ones_like(one)) == 1
    assert metrics.adjusted_rand(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])) == -0.5


def test_foreground_rand_leaves_out_the_reference_background() -> None:
    reference = torch.tensor([[0, 0, 1], [1, 2, 2]], dtype=torch.uint8)
    predicted = torch.tensor([[5, 1, 3], [3, 4, 4]])
    assert metrics.adjusted_rand(reference, predicted, foreground_only=True) == 1
    assert metrics.adjusted_rand(reference, predicted) < 1
    empty = torch.zeros_like(reference)
    assert math.isnan(metrics.adjusted_rand(empty, predicted, foreground_only=True))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=20))
@settings(deadline=None)
def test_adjusted_rand_against_all_pairs(pixels: list[tuple[int, int]]) -> None:
    one, other = (list(names) for names in zip(*pixels, strict=True))
    score = metrics.adjusted_rand(torch.tensor(one), torch.tensor(other))
    assert score == pytest.approx(rand_by_pairs(one, other), abs=1e-14)
    assert score == metrics.adjusted_rand(torch.tensor(other), torch.tensor(one))
    assert -0.5 <= score <= 1


def test_adjusted_rand_of_a_whole_video() -> None:
    """Where 64 bits overflow, and another library's answer was 1.76."""
    reference, predicted = video_labels()
    table = np.zeros((8, 11), dtype=object)  # Python's integers
    for i, j in np.ndindex(8, 11):
        table[i, j] = int(((reference == i) & (predicted == j)).sum())

    def pairs(counts: np.ndarray) -> Fraction:
        return sum((Fraction(int(n) * (int(n) - 1), 2) for n in counts.flatten()), Fraction(0))

    rows, columns = pairs(table.sum(1)), pairs(table.sum(0))
    chance = rows * columns / pairs(np.array([table.sum()], dtype=object))
    expected = float((pairs(table) - chance) / ((rows + columns) / 2 - chance))
    assert 0.2 < expected < 0.8
    assert metrics.adjusted_rand(reference, predicted) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("foreground_only", [False, True])
def test_adjusted_rand_against_scikit_learn(foreground_only: bool) -> None:
    cluster = pytest.importorskip("sklearn.metrics.cluster")
    pairs = [(labels(seed, 4, 20, 20), labels(seed + 50, 6, 20, 20)) for seed in range(5)]
    for reference, predicted in [video_labels(), *pairs]:
        kept = reference > 0 if foreground_only else reference >= 0
        expected = cluster.adjusted_rand_score(reference[kept].numpy(), predicted[kept].numpy())
        score = metrics.adjusted_rand(reference, predicted, foreground_only)
        assert score == pytest.approx(expected, abs=1e-12)


def test_overlaps_by_hand() -> None:
    reference = torch.tensor([[0, 1, 1, 1], [0, 2, 2, 0]])
    predicted = torch.tensor([[0, 1, 1, 1], [0, 1, 1, 3]])
    # Segment 1 covers both instances: IoU 3/5 and 2/5. Only one can have it; nothing else helps.
    assert metrics.mean_iou(reference, predicted) == pytest.approx(3 / 5 / 2)
    assert metrics.mean_best_overlap(reference, predicted) == pytest.approx((3 / 5 + 2 / 5) / 2)
    background = torch.zeros_like(reference)
    assert math.isnan(metrics.mean_iou(background, predicted))
    assert math.isnan(metrics.mean_best_overlap(background, predicted))
    one = torch.ones_like(predicted)
    assert metrics.mean_iou(reference, one) == pytest.approx(3 / 8 / 2)


def test_the_assignment_is_optimal_and_not_greedy() -> None:
    # Segments a and b hold 4 and 3 pixels of instance 1; a holds the 2 of instance 2 as well.
    reference = torch.tensor([1] * 4 + [1] * 3 + [2] * 2)
    predicted = torch.tensor([8] * 4 + [9] * 3 + [8] * 2)
    # IoU(1, a) = 4/9 is the largest, but 3/7 with b leaves 2/6 to instance 2.
    assert metrics.mean_iou(reference, predicted) == pytest.approx((3 / 7 + 2 / 6) / 2)
    assert metrics.mean_best_overlap(reference, predicted) == pytest.approx((4 / 9 + 2 / 6) / 2)


@pytest.mark.parametrize("seed", range(6))
def test_overlaps_against_all_assignments(seed: int) -> None:
    reference, predicted = labels(seed, 4, 5, 6), labels(seed + 20, 3 + seed % 4, 5, 6)
    instances = [i for i in reference.unique().tolist() if i]
    segments = predicted.unique().tolist()
    iou = {}
    for i, j in itertools.product(instances, segments):
        one, other = reference == i, predicted == j
        iou[i, j] = float((one & other).sum()) / float((one | other).sum())
    padded = segments + [None] * len(instances)
    best = max(
        sum(iou.get((i, j), 0.0) for i, j in zip(instances, chosen, strict=True))
        for chosen in itertools.permutations(padded, len(instances))
    )
    assert metrics.mean_iou(reference, predicted) == pytest.approx(best / len(instances))
    alone = [max(iou[i, j] for j in segments) for i in instances]
    assert metrics.mean_best_overlap(reference, predicted) == pytest.approx(np.mean(alone))
    assert metrics.mean_iou(reference, predicted) <= np.mean(alone) + 1e-12


def test_attention_overlap_by_hand_and_against_a_loop() -> None:
    apart = torch.eye(3).repeat(2, 1, 1)
    assert metrics.attention_overlap(apart).tolist() == [0, 0]
    assert metrics.attention_overlap(torch.ones(4, 10)).item() == pytest.approx(0.1)
    halves = torch.tensor([[1.0, 1, 0], [0, 2, 2], [0, 0, 0]])  # (1/2, 1/2, 0) and (0, 1/2, 1/2)
    assert metrics.attention_overlap(halves).item() == pytest.approx(2 * 0.25 / 6)
    attention = torch.rand(5, 4, 7)
    overlap = metrics.attention_overlap(attention)
    for frame in range(5):
        total = 0.0
        for i, j in itertools.permutations(range(4), 2):
            one, other = attention[frame, i], attention[frame, j]
            total += sum(
                float(a / one.sum() * b / other.sum()) for a, b in zip(one, other, strict=True)
            )
        assert overlap[frame].item() == pytest.approx(total / 12, rel=1e-5)


# -- positions -------------------------------------------------------------------------------------


def test_position_error_and_drift_are_distances() -> None:
    one, other = (
        torch.tensor([[0.0, 0.0], [math.nan, 0.1]]),
        torch.tensor([[0.3, -0.4], [0.0, 0.1]]),
    )
    for distances in (metrics.position_error(one, other), metrics.drift(other, one)):
        assert distances[0].item() == pytest.approx(0.5)
        assert distances[1].isnan()
    several = torch.randn(2, 6, 4, 2, generator=torch.Generator().manual_seed(0))
    distances = metrics.position_error(several[0], several[1])
    for i, j in np.ndindex(6, 4):
        expected = math.dist(several[0, i, j].tolist(), several[1, i, j].tolist())
        assert distances[i, j].item() == pytest.approx(expected, rel=1e-6)


def test_association_by_hand() -> None:
    decoded = torch.zeros(3, 4, 4, dtype=torch.bool)
    decoded[0, :2], decoded[1, 2:, :2], decoded[2, 2:, 2:] = True, True, True
    reference = torch.zeros(4, 4, 4, dtype=torch.bool)
    reference[0, 3, 3] = True
    reference[1, :3, :2] = True  # four pixels of slot 0, two of slot 1
    reference[2, 1:4, 0] = True  # one of slot 0, two of slot 1
    association = metrics.associate(reference, decoded)
    assert association.tolist() == [2, 0, 1, -1]  # the last is empty, and slots have run out
    # Nor does an empty object take a slot that is left.
    assert metrics.associate(reference[[3, 1]], decoded).tolist() == [-1, 0]
    # A slot is given once: the third object's better half is another's whole.
    reference[1], reference[2] = decoded[0], False
    reference[2, 1:3, :2] = True
    reference[2, 1, 2] = True  # three of slot 0, two of slot 1
    assert metrics.associate(reference, decoded).tolist() == [2, 0, 1, -1]


@pytest.mark.parametrize("objects", [2, 4, 5])
def test_association_against_all_permutations(objects: int) -> None:
    reference = random_mask(objects, 3, 2, objects, 6, 6, share=0.2)
    decoded = torch.nn.functional.one_hot(labels(7, 4, 3, 2, 6, 6), 4).movedim(-1, -3).bool()
    association = metrics.associate(reference, decoded)
    for frame in np.ndindex(3, 2):
        shared = [[int((a & b).sum()) for b in decoded[frame]] for a in reference[frame]]
        slots = [*range(4), *[None] * objects]
        best = max(
            sum(0 if j is None else row[j] for row, j in zip(shared, chosen, strict=True))
            for chosen in set(itertools.permutations(slots, objects))
        )
        chosen = association[frame].tolist()
        taken = [j for j in chosen if j >= 0]
        assert len(set(taken)) == len(taken)
        assert sum(row[j] for row, j in zip(shared, chosen, strict=True) if j >= 0) == best
        assert all(row[j] > 0 for row, j in zip(shared, chosen, strict=True) if j >= 0)


# -- editing ---------------------------------------------------------------------------------------


def test_f1_by_hand() -> None:
    one, other = torch.zeros(2, 3, 3, dtype=torch.bool)
    one[0], other[:, 0] = True, True  # three pixels each, one shared
    assert metrics.f1(one, other).item() == pytest.approx(2 / 6)
    assert metrics.f1(one, one).item() == 1
    assert metrics.f1(torch.zeros_like(one), one).item() == 0
    assert metrics.f1(torch.zeros_like(one), torch.zeros_like(one)).item() == 0


def test_a_tube_sums_before_it_divides() -> None:
    edited, target = torch.zeros(2, 2, 1, 4, dtype=torch.bool)
    edited[0, 0, :4], target[0, 0, :4] = True, True  # right on four pixels
    edited[1, 0, 0], target[1, 0, 1] = True, True  # wrong on one
    assert metrics.tube_f1(edited, target).item() == pytest.approx(2 * 4 / (8 + 2))
    assert metrics.f1(edited, target).tolist() == [1, 0]
    assert metrics.tube_f1(torch.zeros_like(edited), target).item() == 0


@given(st.integers(0, 999), st.sampled_from([0.02, 0.3, 0.8]))
@settings(deadline=None, max_examples=30)
def test_f1_against_a_loop(seed: int, share: float) -> None:
    one, other = random_mask(seed, 2, 3, 4, 5, share=share)
    f1 = metrics.tube_f1(one, other).item()
    assert f1 == metrics.tube_f1(other, one).item()
    hit = missed = false = 0
    for index in np.ndindex(3, 4, 5):
        a, b = bool(one[index]), bool(other[index])
        hit, missed, false = hit + (a and b), missed + (b and not a), false + (a and not b)
    precision, recall = hit / max(hit + false, 1), hit / max(hit + missed, 1)
    harmonic = 2 * precision * recall / (precision + recall) if hit else 0
    assert f1 == pytest.approx(harmonic)
    each = metrics.f1(one, other)
    assert each.min().item() - 1e-12 <= f1 <= each.max().item() + 1e-12 or not one.any()


def test_translation_error_by_hand() -> None:
    center = torch.tensor([[0.0, 0.0]] * 3, dtype=torch.float64)
    pixel = 2 / 63
    edited = torch.tensor([[6 * pixel, 0], [9 * pixel, 4 * pixel], [math.nan, 0]]).double()
    pixels = torch.tensor([[6.0, 0.0]] * 3)
    errors = metrics.translation_error(center, edited, pixels, 64, 64)
    assert errors[0].item() == pytest.approx(0, abs=1e-7)
    assert errors[1].item() == pytest.approx(5 / math.hypot(64, 64), rel=1e-6)
    assert errors[2].isnan()
    # The paper's conversion to distances on the grid.
    grid = metrics.position_error(edited, center + pixels * pixel)
    torch.testing.assert_close(errors * 2 * math.hypot(64, 64) / 63, grid, equal_nan=True)
    wide = metrics.translation_error(center, edited, pixels, 33, 64)
    assert wide[1].item() == pytest.approx(math.hypot(3, 128 / 63) / math.hypot(33, 64), rel=1e-6)


def test_translation_error_of_an_ideal_move_is_zero() -> None:
    mask = torch.zeros(64, 64, dtype=torch.bool)
    mask[20:29, 30:36] = True
    commands = torch.tensor([[6.0, 0], [-6, 0], [0, 6], [0, -6]])
    after = metrics.support_moments(
        edit_maps.warp_mask(mask, edit_maps.AffineMap.from_move(commands, 64, 64))
    )
    before = metrics.support_moments(mask).center.expand(4, 2)
    errors = metrics.translation_error(before, after.center, commands, 64, 64)
    assert errors.max().item() < 1e-12
    ignored = metrics.translation_error(before, before, commands, 64, 64)
    assert ignored.tolist() == pytest.approx([6 / math.hypot(64, 64)] * 4)


def test_response_slopes_against_scipy() -> None:
    factors = torch.tensor([0.5, 0.75, 1, 1.25, 1.5], dtype=torch.float64)
    assert metrics.response_slope(factors, 3 * factors).item() == pytest.approx(1)
    assert metrics.response_slope(factors, 0.2 * factors**2).item() == pytest.approx(2)
    assert metrics.response_slope(factors, torch.ones(5)).item() == pytest.approx(0)
    two = torch.tensor([1.0, math.e])
    assert metrics.response_slope(two, torch.tensor([1.0, 5.0])).item() == pytest.approx(
        math.log(5)
    )
    values = torch.rand(3, 4, 5) + 0.1
    slopes = metrics.response_slope(factors, values)
    for index in np.ndindex(3, 4):
        fit = stats.linregress(factors.log().numpy(), values[index].double().log().numpy())
        assert slopes[index].item() == pytest.approx(fit.slope)
    values[0, 0, 2] = 0
    slopes = metrics.response_slope(factors, values)
    assert slopes[0, 0].isnan()
    assert slopes.isnan().sum() == 1


# -- statistics ------------------------------------------------------------------------------------


def test_spreads_by_hand() -> None:
    spread = metrics.fixed_geometry_spread(np.array([0.0, 0.2, 0.4], dtype=np.float32))
    assert spread.mean == pytest.approx(0.2)
    assert spread.deviation == pytest.approx(
        math.sqrt(0.08 / 3)
    )  # of the population, zeros included
    assert spread.variation == pytest.approx(spread.deviation / 0.2)
    assert math.isnan(metrics.fixed_geometry_spread(np.zeros(3)).variation)
    both = metrics.background_averaged_spread(np.array([[1.0, 3.0], [10.0, 10.0]]))
    assert (both.mean, both.deviation) == (6, 0.5)
    assert both.variation == 0.25  # (1/2 + 0) / 2, not 0.5 / 6


def test_spreads_against_scipy() -> None:
    values = np.random.default_rng(0).random((8, 50))
    spread = metrics.background_averaged_spread(values)
    assert spread.mean == pytest.approx(np.mean([sum(row) / 50 for row in values]))
    assert spread.deviation == pytest.approx(np.mean([stats.tstd(r, ddof=0) for r in values]))
    assert spread.variation == pytest.approx(np.mean([stats.variation(row) for row in values]))


def test_calibration_by_hand() -> None:
    scale = np.array([0.1, 0.2, 0.4])
    perfect = metrics.calibration(scale, 0.8 * scale)
    assert perfect.linear == pytest.approx(1)
    assert perfect.unit_slope_log == pytest.approx(1)
    assert perfect.log_ratio_deviation == pytest.approx(0, abs=1e-12)
    # Radii that ignore scale's last doubling: log ratios 0, 0, -log 2.
    calibration = metrics.calibration(scale, np.array([0.1, 0.2, 0.2]))
    assert calibration.log_ratio_deviation == pytest.approx(math.log(2) * math.sqrt(2) / 3)
    assert calibration.unit_slope_log == pytest.approx(0)
    # In thirtieths: covariance 12, variances 42 and 6; R^2 = 12^2 / (42 * 6).
    assert calibration.linear == pytest.approx(4 / 7)
    against = metrics.calibration(scale, scale[::-1].copy())
    assert against.unit_slope_log < 0
    still = metrics.calibration(scale, np.full(3, 0.1))
    assert math.isnan(still.linear)
    assert math.isnan(still.unit_slope_log)
    assert metrics.calibration(np.full(3, 0.1), scale).linear == 0


def test_calibration_against_a_search() -> None:
    """Both fits found by a general minimiser, and R^2 from its residuals."""
    generator = np.random.default_rng(1)
    scale = 0.1 + 0.3 * generator.random(200)
    radius = scale * np.exp(0.2 * generator.standard_normal(200))
    calibration = metrics.calibration(scale, radius)

    def compute_r2(values: np.ndarray, fitted: np.ndarray) -> float:
        return float(1 - ((values - fitted) ** 2).sum() / ((values - values.mean()) ** 2).sum())

    (a, b), _ = optimize.curve_fit(lambda s, a, b: a * s + b, scale, radius)
    assert calibration.linear == pytest.approx(compute_r2(radius, a * scale + b), abs=1e-9)
    (c,), _ = optimize.curve_fit(lambda s, b: s + b, np.log(scale), np.log(radius))
    fitted = np.log(scale) + c
    assert calibration.unit_slope_log == pytest.approx(compute_r2(np.log(radius), fitted), abs=1e-9)
    assert calibration.log_ratio_deviation == pytest.approx(np.std(np.log(radius / scale)))


# -- intervals -------------------------------------------------------------------------------------


def loop_interval(values: list[float], videos: list[list[int]], replicates: int) -> tuple:
    """By drawing videos one by one; a value weighs as its videos' draws multiplied."""
    generator = np.random.default_rng(123)
    names = sorted({name for owners in videos for name in owners})
    means = []
    for _ in range(replicates):
        drawn = generator.choice(names, len(names)).tolist()
        weights = [math.prod(drawn.count(name) for name in owners) for owners in videos]
        if sum(weights):
            means.append(np.average(values, weights=weights))
    return tuple(np.percentile(means, [2.5, 97.5]))


def test_video_means() -> None:
    video = np.array([7, 3, 7, 3, 3])
    means = metrics.video_means(np.array([1.0, 2, 3, 4, 9]), video)
    assert means.tolist() == [5, 2]  # video 3, then video 7


@given(st.floats(-5, 5), st.integers(1, 40), st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_intervals_of_a_constant_are_that_constant(value: float, videos: int, seed: int) -> None:
    values = np.full(2 * videos, value)
    video = np.arange(2 * videos) % videos
    for interval in (
        metrics.paired_interval(values, 50, seed),
        metrics.pooled_interval(values, video, 50, seed),
        metrics.pair_weighted_interval(values, video, (video + 1) % videos, 200, seed),
    ):
        assert (interval.estimate, interval.low, interval.high) == pytest.approx(
            (value,) * 3, abs=1e-12
        )


def test_intervals_repeat_and_depend_on_the_seed() -> None:
    values = np.random.default_rng(0).random(30)
    assert metrics.paired_interval(values, seed=3) == metrics.paired_interval(values, seed=3)
    assert metrics.paired_interval(values, seed=3) != metrics.paired_interval(values, seed=4)


def test_a_paired_interval_is_that_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(2, 1, 400)
    interval = metrics.paired_interval(values)
    error = values.std() / 20
    assert interval.estimate == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - 1.96 * error, abs=0.1 * error)
    assert interval.high == pytest.approx(values.mean() + 1.96 * error, abs=0.1 * error)


def test_pooled_intervals_against_a_loop() -> None:
    generator = np.random.default_rng(5)
    video = np.repeat([4, 9, 11, 20, 31], [9, 1, 1, 2, 1])
    values = video / 30 + 0.1 * generator.random(len(video))
    interval = metrics.pooled_interval(values, video)
    assert interval.estimate == pytest.approx(values.mean())
    expected = loop_interval(values.tolist(), [[name] for name in video.tolist()], 4000)
    assert (interval.low, interval.high) == pytest.approx(expected, abs=0.02)
    # Not the mean of videos' means.
    equal = metrics.paired_interval(metrics.video_means(values, video))
    assert abs(equal.estimate - interval.estimate) > 0.02


def test_pair_weighted_intervals_against_a_loop() -> None:
    generator = np.random.default_rng(6)
    recipient = generator.integers(0, 6, 40)
    donor = (recipient + generator.integers(1, 3, 40)) % 6
    values = recipient / 6 + donor / 3 + 0.1 * generator.random(40)
    interval = metrics.pair_weighted_interval(values, recipient, donor)
    assert interval.estimate == pytest.approx(values.mean())
    owners = np.stack((recipient, donor), 1).tolist()
    expected = loop_interval(values.tolist(), owners, 6000)
    assert (interval.low, interval.high) == pytest.approx(expected, abs=0.03)
    single = metrics.pooled_interval(values, recipient)
    assert interval.high - interval.low > 1.1 * (single.high - single.low)
