"""Scores that are known beforehand: a perfect decoder, one that ignores commands, one between."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from evaluation_oracles import STEP, Deaf, Discs, Moody, Numbered, Warped, scenes, video_major

from geoco.evaluation import commands, editing, stability
from geoco.evaluation.commands import FACTORS, MOVES
from geoco.evaluation.editing import EditingScores
from geoco.evaluation.factual import calibrate_scale, score_factual
from geoco.evaluation.interfaces import SlotModel
from geoco.evaluation.windows import Factual, compute_factual
from geoco.models.slots import Slots

WINDOWS = Numbered(video_major(videos=4, windows=3))
OBJECTS = scenes(len(WINDOWS))


def score_edits(model: SlotModel, batch: int = 5) -> EditingScores:
    factual = compute_factual(model, WINDOWS, batch)
    return editing.score_editing(editing.record_edits(model, factual, batch))


def test_a_perfect_decoder_scores_perfectly() -> None:
    """Up to pixels: the target of a scaled disc is a scaled staircase."""
    scores = score_edits(Discs(OBJECTS))
    assert scores.objects == 12
    assert scores.all.transplant.edits == 12
    assert scores.all.position.f1.estimate == 100
    assert scores.all.scale.f1.estimate > 97
    assert scores.all.transplant.f1.estimate > 96
    for scope in (scores.all, scores.interior):
        assert scope.curves.radius.value == pytest.approx(1, abs=0.03)
        assert scope.curves.coverage.value == pytest.approx(2, abs=0.06)
        assert scope.position.error is not None
        assert scope.position.error.value < 1e-9
        assert scope.transplant.error is not None
        assert scope.transplant.error.value < STEP / 2
        assert scope.position.disappeared == 0
        assert scope.scale.disappeared == 0


def test_a_decoder_that_warps_masks_exactly_scores_100() -> None:
    scores = score_edits(Warped(OBJECTS))
    assert scores.objects == 12
    for scope in (scores.all, scores.interior):
        for kind in (scope.position, scope.scale, scope.transplant):
            assert kind.edits > 0
            assert kind.f1.estimate == kind.f1.low == kind.f1.high == 100
            assert kind.disappeared == 0
        # Radii are 10 to 13 pixels: pixels bias small discs.
        assert scope.curves.radius.value == pytest.approx(1, abs=0.03)
        assert scope.curves.coverage.value == pytest.approx(2, abs=0.06)
        assert scope.position.error is not None
        assert scope.position.error.value < 1e-9
        assert scope.transplant.error is not None
        assert scope.transplant.error.value < STEP / 2


def test_masks_that_leave_the_canvas_are_warped_exactly_too() -> None:
    """Two discs of a scene, off the centre: some targets lose pixels beyond the edge."""
    model = Warped(scenes(len(WINDOWS), objects=2))
    scores = score_edits(model)
    assert scores.objects == 24
    assert scores.interior.position.edits < scores.all.position.edits == 96
    for scope in (scores.all, scores.interior):
        for kind in (scope.position, scope.scale, scope.transplant):
            assert kind.f1.estimate == 100


def test_a_decoder_that_ignores_commands_scores_as_no_edit() -> None:
    scores = score_edits(Deaf(OBJECTS))
    for scope in (scores.all, scores.interior):
        for kind in (scope.position, scope.scale, scope.transplant):
            assert kind.f1.estimate == pytest.approx(kind.noop, abs=1e-12)
            assert kind.noop < 95
        assert scope.curves.radius.value == pytest.approx(0, abs=1e-12)
        assert scope.position.error is not None
        assert scope.position.error.value == pytest.approx(6 / (64 * 2**0.5))


def test_misses_are_where_a_center_is_less_where_it_should_be() -> None:
    """Of an obedient decoder none; of a deaf one the whole command, the other way."""
    dataset = Numbered(video_major(3, 4))
    for kind, share in ((Discs, 0), (Deaf, -6 * STEP)):
        model = kind(OBJECTS)
        records = editing.record_edits(model, compute_factual(model, dataset, 5), 5)
        moves = np.array(MOVES)[records.position.command] / 6
        misses = np.stack((records.position.miss_x, records.position.miss_y), 1)
        np.testing.assert_allclose(misses, share * moves, atol=1e-9)
        length = np.hypot(records.transplant.miss_x, records.transplant.miss_y)
        np.testing.assert_allclose(length, records.transplant.error)


def test_a_broken_decoder_lies_between() -> None:
    none, some, all_ = (score_edits(kind(OBJECTS)).all for kind in (Deaf, Moody, Discs))
    for kind in ("position", "scale", "transplant"):
        low, between, high = (getattr(scope, kind).f1.estimate for scope in (none, some, all_))
        assert low + 1 < between < high - 1
    assert 0.2 < some.curves.radius.value < 0.8


def test_no_op_rows_depend_on_factual_masks_alone() -> None:
    one, two = score_edits(Discs(OBJECTS)), score_edits(Deaf(OBJECTS))
    for kind in ("position", "scale", "transplant"):
        assert getattr(one.all, kind).noop == getattr(two.all, kind).noop
        assert getattr(one.all, kind).edits == getattr(two.all, kind).edits


def test_denominators_are_three_populations() -> None:
    """A disc of radius 6 at the left edge: moved left it has few pixels or none."""
    slots = scenes(3, (6, 6), objects=2)
    slots.position[0, 1] = torch.tensor([-1.0 - 2 * STEP, 0.0])  # moved left: 0 pixels remain
    slots.position[1, 1] = torch.tensor([-1.0 + 1 * STEP, 0.0])  # moved left: a sliver remains
    model, windows = Discs(slots), Numbered(["a", "b", "c"])
    factual = compute_factual(model, windows, 2)
    records = editing.record_edits(model, factual, 2).position
    assert factual.valid[:, 1:].all()
    assert len(records) == 6 * 4
    left = records.where((records.command == MOVES.index((-6, 0))) & (records.slot == 1))
    assert left.positive.tolist() == [False, True, True]
    assert left.valid.tolist() == [False, False, True]
    assert left.interior.tolist() == [False, False, True]
    scores = editing.score_editing(editing.record_edits(model, factual, 2))
    position = scores.all.position
    assert position.error is not None
    assert (position.error.total, position.disappearable, position.edits) == (24, 23, 22)
    assert position.error.defined == 23  # no center where the disc has left the canvas
    assert scores.interior.position.edits < position.edits
    assert scores.interior.position.edits == scores.interior.position.disappearable


def test_disappearance_counts_empty_outputs_of_positive_targets() -> None:
    class Vanishing(Discs):
        def decode(self, encoded, slots):  # type: ignore[no-untyped-def]
            rgb, logits = super().decode(encoded, slots)
            gone = slots.scale[:, 1] < 0.8 * encoded.slots.scale[:, 1]
            logits[gone, 1] = -1e6
            return rgb, logits

    scores = score_edits(Vanishing(OBJECTS))
    scale = scores.all.scale
    assert (scale.disappeared, scale.disappearable) == (2 * 12, 4 * 12)
    assert scores.all.curves.radius.defined == 0
    assert scores.all.curves.radius.total == 12
    assert scale.f1.estimate < 60


def test_a_curve_is_interior_only_with_all_five_commands() -> None:
    slots = scenes(2, (12, 12))
    slots.position[0, 1] = torch.tensor([-1 + 16 * STEP, 0.0])  # 1.5 x 12 px reaches the edge
    model = Discs(slots)
    factual = compute_factual(model, Numbered(["a", "b"]), 2)
    records = editing.record_edits(model, factual, 2)
    assert records.scale.interior.reshape(2, 5).tolist() == [[True] * 4 + [False], [True] * 5]
    scores = editing.score_editing(records)
    assert scores.interior.curves.radius.total == 1
    assert scores.all.curves.radius.total == 2


def test_a_transplant_is_interior_only_with_donor_recipient_and_target() -> None:
    """The recipient touches the left edge; the donor and its smaller disc there do not."""
    slots = scenes(2, (10, 10))
    slots.appearance[:, 1, 0] = torch.tensor([1.8, 1.2])
    slots.scale[:, 1] = 10 * STEP / 1.8
    slots.position[0, 1] = torch.tensor([-1 + 9.5 * STEP, 0.0])
    factual = compute_factual(Discs(slots), Numbered(["a", "b"]), 2)
    asked = commands.build_transplants(factual)
    assert (asked.window.tolist(), asked.mask_window.tolist()) == ([0, 1], [1, 0])
    original, target = commands.compute_targets(factual, asked, torch.arange(2))
    assert not original[0, :, 0].any()
    assert not target[0, :, 0].any()
    judged = commands.judge_eligibility(factual, asked)
    assert judged.valid.tolist() == [True, True]
    assert judged.interior.tolist() == [False, False]  # of the second the donor is at the edge
    slots.position[0, 1] += 3 * STEP
    factual = compute_factual(Discs(slots), Numbered(["a", "b"]), 2)
    assert commands.judge_eligibility(factual, asked).interior.tolist() == [True, True]


@pytest.mark.parametrize("model", [Discs(OBJECTS), Moody(OBJECTS)])
def test_results_do_not_depend_on_the_compute_batch(model: SlotModel) -> None:
    def everything(batch: int) -> tuple[object, ...]:
        factual = compute_factual(model, WINDOWS, batch)
        return (
            editing.score_editing(editing.record_edits(model, factual, batch)),
            stability.score_stability(model, factual, batch),
            stability.score_shared_background(model, factual, batch),
        )

    assert everything(5) == everything(100)


def test_eligibility_is_fixed_before_any_intervention(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Discs(OBJECTS)
    factual = compute_factual(model, WINDOWS, 4)
    before = model.decoded
    judged = []
    original = editing.judge_eligibility

    def note_and_judge(factual: Factual, asked: commands.Commands) -> commands.Eligibility:
        judged.append(model.decoded)
        return original(factual, asked)

    monkeypatch.setattr(editing, "judge_eligibility", note_and_judge)
    records = editing.record_edits(model, factual, 4)
    assert judged == [before] * 3
    assert model.decoded > before
    other = editing.record_edits(Deaf(OBJECTS), factual, 4)
    for kind in ("position", "scale", "transplant"):
        for name in ("window", "slot", "valid", "positive", "interior", "noop"):
            one, two = (getattr(getattr(r, kind), name) for r in (records, other))
            np.testing.assert_array_equal(one, two)


def test_donors_by_brute_force() -> None:
    """Windows of unequal numbers of valid objects, videos of unequal numbers of windows."""
    sources = ["a", "a", "a", "b", "b", "c", "c", "c", "c"]
    valid = torch.rand(9, 4, generator=torch.Generator().manual_seed(3)) < 0.6
    factual = record(sources, valid)
    turns = [sources[:i].count(sources[i]) for i in range(9)]
    order = sorted(range(9), key=lambda i: (turns[i], i))
    expected = []
    for window in range(9):
        place = order.index(window)
        later = (order[(place + step) % 9] for step in range(1, 9))
        donor = next(other for other in later if sources[other] != sources[window])
        mine = [slot for slot in range(4) if valid[window, slot]]
        theirs = [slot for slot in range(4) if valid[donor, slot]]
        for rank, _ in enumerate(mine):
            expected.append((donor, theirs[rank]) if rank < len(theirs) else (-1, -1))
    window, slot = commands.find_donors(factual)
    assert list(zip(window.tolist(), slot.tolist(), strict=True)) == expected
    assert (-1, -1) in expected


def test_one_source_has_no_donors() -> None:
    factual = record(["a", "a"], torch.ones(2, 4, dtype=torch.bool))
    assert commands.find_donors(factual)[0].tolist() == [-1] * 8
    assert len(commands.build_transplants(factual)) == 0
    assert len(commands.judge_eligibility(factual, commands.build_transplants(factual)).valid) == 0


def test_the_background_is_no_object_and_nine_pixels_are_none() -> None:
    slots = scenes(1, objects=2)
    slots.position[0, 1:] = torch.tensor([[-30 * STEP - 0.5 * STEP, 0.5 * STEP], [0.5 * STEP] * 2])
    slots.scale[0, 1:] = torch.tensor([1.5, 1.6]) * STEP / slots.appearance[0, 1:, 0]
    factual = compute_factual(Discs(slots), Numbered(["a"]), 1)
    assert factual.masks.sum((-2, -1))[0, 1:].tolist() == [9, 9]
    assert not factual.valid.any()
    slots.scale[0, 1] = 2.1 * STEP / slots.appearance[0, 1, 0]
    factual = compute_factual(Discs(slots), Numbered(["a"]), 1)
    assert factual.valid.tolist() == [[False, True, False]]
    assert factual.background.tolist() == [0]


def test_stability_of_equal_and_of_unequal_appearances() -> None:
    equal = replace(OBJECTS, appearance=OBJECTS.appearance.clone())
    equal.appearance[:, 1, 0] = 1.5
    factual = compute_factual(Discs(equal), WINDOWS, 4)
    scores = stability.score_stability(Discs(equal), factual, 4)
    assert [spread.scale for spread in scores.spreads] == [0.1, 0.2, 0.3]
    assert scores.objects == 12
    for spread in scores.spreads:
        assert spread.radius.deviation == pytest.approx(0, abs=1e-12)
        # A disc's RMS radius is its own over the square root of two.
        assert spread.radius.mean == pytest.approx(1.5 * spread.scale / 2**0.5, rel=0.03)
    model = Discs(OBJECTS)
    factual = compute_factual(model, WINDOWS, 4)
    for scores_ in (
        stability.score_stability(model, factual, 4),
        stability.score_shared_background(model, factual, 4),
    ):
        middle = scores_.spreads[1].radius
        expected = OBJECTS.appearance[:, 1, 0].double().std(correction=0) * 0.2 / 2**0.5
        assert middle.deviation == pytest.approx(float(expected), rel=0.1)


def test_shared_backgrounds_come_from_distinct_videos() -> None:
    factual = record(video_major(20, 3), torch.ones(60, 4, dtype=torch.bool))
    rows = stability.choose_backgrounds(factual).tolist()
    assert len({factual.source[row] for row in rows}) == len(rows) == 8
    assert (
        rows == stability.choose_backgrounds(record(factual.source, factual.valid[:, :2])).tolist()
    )
    assert len(stability.sample_objects(5000)) == 1024
    assert stability.sample_objects(10).tolist() == list(range(10))


def test_factual_scores_of_known_masks() -> None:
    slots = scenes(6, (8, 9), objects=2)
    model, windows = Discs(slots), Numbered(video_major(3, 2))
    masks = compute_factual(model, windows, 6).masks
    labels = (masks * torch.arange(3)[:, None, None]).sum(1).to(torch.uint8)
    shifted = replace(slots, position=slots.position.clone())
    shifted.position[:, 1:, 0] += 3 * STEP  # what is decoded lies three pixels beside the truth
    truth = replace(windows, masks=labels)
    exact = score_factual(model, compute_factual(model, truth, 4), 4)
    assert exact.segmentation is not None
    for part in fields(exact.segmentation):
        assert getattr(exact.segmentation, part.name).value == 1
    assert exact.position_error.value < STEP / 4
    assert (exact.position_error.defined, exact.objects) == (12, 12)
    moved = Discs(shifted)
    scores = score_factual(moved, compute_factual(moved, truth, 4), 4)
    errors = scores.reference_errors
    assert errors is not None
    assert errors.decoded_to_reference.value == pytest.approx(3 * STEP)
    assert errors.position_to_reference.value == pytest.approx(3 * STEP, abs=STEP / 4)
    assert errors.position_to_decoded.total == 12
    assert scores.segmentation is not None
    assert scores.segmentation.mean_iou.value < 0.8


def test_scale_calibration_of_discs_with_one_factor() -> None:
    slots = scenes(8, (6, 12))
    factor = slots.appearance[:, 1, 0].clone()
    slots.scale[:, 1] *= factor / 1.5
    slots.appearance[:, 1, 0] = 1.5
    calibration = calibrate_scale(compute_factual(Discs(slots), Numbered(["a"] * 8), 8))
    assert calibration.observations == 8
    assert calibration.linear > 0.99
    assert calibration.unit_slope_log > 0.99
    assert calibration.log_ratio_deviation < 0.02


def test_windows_without_objects_are_scored_as_undefined() -> None:
    slots = scenes(3)
    slots.scale[:, 1] = 1e-4
    model = Discs(slots)
    factual = compute_factual(model, Numbered(["a", "b", "c"]), 2)
    scores = editing.score_editing(editing.record_edits(model, factual, 2))
    assert scores.objects == 0
    assert np.isnan(scores.all.position.f1.estimate)
    assert np.isnan(stability.score_stability(model, factual, 2).spreads[0].radius.mean)
    assert np.isnan(stability.score_shared_background(model, factual, 2).spreads[0].radius.mean)


def record(sources: list[str] | tuple[str, ...], valid: torch.Tensor) -> Factual:
    """A factual record of which only sources and validity matter."""
    windows, slots = valid.shape
    return Factual(
        window=np.arange(windows),
        source=tuple(sources),
        slots=Slots(
            torch.zeros(windows, slots, 1),
            torch.zeros(windows, slots, 2),
            torch.ones(windows, slots),
        ),
        attention=None,
        masks=torch.zeros(windows, slots, 8, 8, dtype=torch.bool),
        background=torch.zeros(windows, dtype=torch.int64),
        valid=valid,
        frame=torch.zeros(windows, 3, 8, 8, dtype=torch.uint8),
        image=torch.zeros(windows, 3, 8, 8),
        psnr=torch.zeros(windows, dtype=torch.float64),
        reference=None,
    )


def test_five_factors() -> None:
    assert FACTORS == (0.5, 0.75, 1, 1.25, 1.5)
    assert commands.IDENTITY == 2
