"""Scores of whole videos from records alone: averages, intervals, and pairs that models share."""

from dataclasses import replace

import numpy as np
import pytest

from geoco import metrics
from geoco.errors import GeocoError
from geoco.evaluation.editing import REPLICATES
from geoco.evaluation.video import (
    TubeEdits,
    TubeRecords,
    compare_tubes,
    find_common_pairs,
    score_tubes,
)


def table(*rows: tuple[int, int, int, int, float, bool]) -> TubeRecords:
    """Records of five videos: video, donor, kind, command, F1 and whether the edit is valid."""
    video, donor, kind, command, f1, valid = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    edits = TubeEdits(video, donor, kind, command, f1, f1 / 2, valid)
    eligible = np.isin(np.arange(5), video)
    return TubeRecords(tuple("abcde"), eligible, 24, edits)


def test_scores_average_videos_and_then_commands() -> None:
    rows = [(0, 0, 0, 0, 0.2, True), (1, 1, 0, 0, 0.4, True), (0, 0, 0, 1, 1.0, True)]
    scores = score_tubes(table(*rows, (1, 1, 0, 1, 0.7, False), (0, 1, 2, 0, 0.9, True)))
    assert scores.position.f1.estimate == pytest.approx(100 * (0.3 + 1.0) / 2)
    assert scores.position.noop == pytest.approx(50 * (0.3 + 1.0) / 2)
    assert (scores.position.edits, scores.transplant.edits) == (3, 1)
    drawn = np.random.default_rng(0).multinomial(2, [0.5, 0.5], size=REPLICATES)
    # Of the second command the second video has none: drawn alone, it scores by the first.
    values = {(2, 0): (0.2 + 1.0) / 2, (1, 1): (0.3 + 1.0) / 2, (0, 2): 0.4}
    expected = np.percentile([100 * values[tuple(row)] for row in drawn.tolist()], (2.5, 97.5))
    assert (scores.position.f1.low, scores.position.f1.high) == pytest.approx(tuple(expected))


def test_intervals_are_those_of_other_tables_where_all_edits_are_valid() -> None:
    draw = np.random.default_rng(1).random((5, 9))
    rows = [(v, v, k // 4, k % 4, draw[v, k], True) for v in range(5) for k in range(8)]
    rows += [(v, (v + 1) % 5, 2, 0, draw[v, 8], True) for v in range(5)]
    scores = score_tubes(table(*rows))
    video = np.repeat(np.arange(5), 4)
    for kind, part in ((scores.position, draw[:, :4]), (scores.scale, draw[:, 4:8])):
        expected = metrics.pooled_interval(100 * part.flatten(), video, REPLICATES)
        for name in ("estimate", "low", "high"):
            assert getattr(kind.f1, name) == pytest.approx(getattr(expected, name))
    drawn = np.random.default_rng(0).multinomial(5, [0.2] * 5, size=REPLICATES)
    weight = drawn * np.roll(drawn, -1, axis=1)
    kept = weight.sum(1) > 0
    means = 100 * (weight @ draw[:, 8])[kept] / weight.sum(1)[kept]
    assert scores.transplant.f1.low == pytest.approx(np.percentile(means, 2.5))
    assert scores.transplant.f1.high == pytest.approx(np.percentile(means, 97.5))


def test_models_are_compared_on_pairs_that_all_have() -> None:
    def eligible(*videos: int) -> TubeRecords:
        following = dict(zip(videos, (*videos[1:], videos[0]), strict=True))
        moved = [(v, v, 0, 0, v / 10, True) for v in videos]
        return table(*moved, *((v, d, 2, 0, v / 5, True) for v, d in following.items()))

    one, two = eligible(0, 1, 2, 3, 4), eligible(0, 1, 3, 4)
    pairs = find_common_pairs([one, two])
    assert pairs == ((0, 1), (3, 4), (4, 0))
    for records in (one, two):
        scores = score_tubes(records, pairs)
        assert (scores.videos, scores.eligible) == (5, 3)
        assert scores.position.f1.estimate == pytest.approx(10 * (0 + 3 + 4) / 3)
        assert scores.transplant.f1.estimate == pytest.approx(20 * (0 + 3 + 4) / 3)
        assert (scores.position.edits, scores.transplant.edits) == (3, 3)
    assert score_tubes(one, ((1, 2),)).position.f1.estimate == pytest.approx(10)
    with pytest.raises(GeocoError, match="video 1 with donor 2 is no pair of these records"):
        score_tubes(two, ((0, 1), (1, 2)))
    with pytest.raises(GeocoError, match="only on the same videos of the same length"):
        find_common_pairs([one, replace(two, frames=6)])


def test_differences_are_of_the_same_videos_in_every_replicate() -> None:
    """Their interval is that of the gap, not of two scores that are drawn apart."""
    draw = np.random.default_rng(4).random((2, 5, 9))
    draw[1, :, :8] = draw[0, :, :8] - 0.2  # always as much less, however videos differ
    models = [
        table(
            *((v, v, k // 4, k % 4, score[v, k], True) for v in range(5) for k in range(8)),
            *((v, (v + 1) % 5, 2, 0, score[v, 8], v != 3) for v in range(5)),
        )
        for score in draw
    ]
    gaps = compare_tubes(*models, find_common_pairs(models))
    for kind in ("position", "scale"):
        assert vars(gaps[kind]) == pytest.approx(dict.fromkeys(("estimate", "low", "high"), -20))
    drawn = np.random.default_rng(0).multinomial(5, [0.2] * 5, size=REPLICATES)
    weight = (drawn * np.roll(drawn, -1, axis=1)) * (np.arange(5) != 3)
    gap = 100 * (draw[1, :, 8] - draw[0, :, 8])
    kept = weight.sum(1) > 0
    means = (weight @ gap)[kept] / weight.sum(1)[kept]
    assert gaps["transplant"].estimate == pytest.approx(gap[[0, 1, 2, 4]].mean())
    expected = np.percentile(means, (2.5, 97.5))
    assert (gaps["transplant"].low, gaps["transplant"].high) == pytest.approx(tuple(expected))
    without = replace(models[1], edits=models[1].edits.of("transplant"))
    assert list(compare_tubes(models[0], without, find_common_pairs(models))) == ["transplant"]
