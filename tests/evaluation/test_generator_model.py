"""The truth as a model: it draws what the generator draws, and loses only what is really hidden."""

from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from geoco import edit_maps, metrics
from geoco.config import EpisodesConfig, SolidsConfig
from geoco.data import ClipBatch, SolidsDataset
from geoco.errors import GeocoError
from geoco.evaluation import (
    CommandModel,
    Encoded,
    as_values,
    commands,
    editing,
    evaluate,
    matched,
)
from geoco.evaluation.commands import FACTORS, MOVES
from geoco.evaluation.factual import score_factual
from geoco.evaluation.generator_model import TrueScenes
from geoco.evaluation.interfaces import Decoded
from geoco.evaluation.windows import Factual, compute_factual
from geoco.models import compositing
from geoco.reporting.tables_matched import build_exact
from geoco.solids import Move, Pictures, Replace, Scale, SceneEdit

# One sample per pixel, so that a pixel has one owner and all that follows is exact.
SMALL_SOLIDS = SolidsConfig(
    episodes=EpisodesConfig(train=1, val=4, test=1), frames=16, supersample=1
)
STEP = 2 / 63  # one pixel on the grid


@cache
def dataset() -> SolidsDataset:
    return SolidsDataset(SMALL_SOLIDS, "val", amodal=True)


@cache
def clips() -> ClipBatch:
    return dataset().batch(range(len(dataset())))


@cache
def record_edits() -> tuple[Factual, editing.EditRecords]:
    truth = TrueScenes(dataset())
    factual = compute_factual(truth, dataset(), 3, 5)
    return factual, editing.record_edits(truth, factual, 7)


def encode_windows(truth: TrueScenes, windows: list[int]) -> Encoded:
    frames = dataset().batch(windows).video[:, 0].float() / 255
    return truth.encode(frames, torch.zeros(len(windows), truth.slots, 2))


def find_labels(drawn: Decoded) -> Tensor:
    """Whom every pixel belongs to; slots are numbered as labels are."""
    return drawn[1].argmax(1).to(torch.uint8)


def compose_image(drawn: Decoded) -> Tensor:
    image = compositing.composite(drawn[0], compositing.compute_alpha(drawn[1]))
    return (255 * image).round().to(torch.uint8)


def render_alone(window: int, edit: SceneEdit, donor: int | None = None) -> tuple[Tensor, Tensor]:
    """The generator's picture of one edit, asked for by itself."""
    indices = [window] if donor is None else [window, donor]
    pictures = dataset().render_counterfactuals(indices, [(0, edit)])
    return pictures.frames[0], pictures.masks[0]


def test_without_an_edit_it_is_the_true_picture() -> None:
    truth = TrueScenes(dataset())
    windows = [7, 0, 5, 7, 3]  # in any order, and some twice
    scenes = encode_windows(truth, windows)
    drawn = truth.decode(scenes, scenes.slots)
    known = dataset().batch(windows)
    assert known.masks is not None
    assert torch.equal(find_labels(drawn), known.masks[:, 0])
    assert torch.equal(compose_image(drawn), known.video[:, 0])


def test_slots_know_where_true_objects_are() -> None:
    truth = TrueScenes(dataset())
    slots = encode_windows(truth, [4]).slots
    masks = dataset().batch([4]).masks
    assert masks is not None
    for label in range(1, truth.slots):
        rows, columns = np.nonzero((masks[0, 0] == label).numpy())
        if len(rows) == 0:
            assert slots.position[0, label].tolist() == [0, 0]
            assert slots.scale[0, label] == 0
            continue
        center = STEP * np.array([columns.mean(), rows.mean()]) - 1
        np.testing.assert_allclose(slots.position[0, label], center)
        radius = STEP * np.sqrt(rows.var() + columns.var())
        np.testing.assert_allclose(slots.scale[0, label], radius)


def test_commands_are_the_generators() -> None:
    truth = TrueScenes(dataset())
    assert isinstance(truth, CommandModel)
    windows = [6, 2, 2]
    scenes = encode_windows(truth, windows)
    asked = [(pixels, 1.0) for pixels in (*MOVES, (-11, 20))]
    asked += [((0.0, 0.0), factor) for factor in FACTORS]
    for pixels, factor in asked:
        move, size = torch.tensor([pixels] * 3) * STEP, torch.full((3,), factor)
        drawn = truth.command(scenes, 2, move.float(), size)
        edit = Move(1, *pixels) if factor == 1 else Scale(1, factor)
        for row, window in enumerate(windows):
            frame, mask = render_alone(window, edit)
            assert torch.equal(find_labels(drawn)[row], mask)
            assert torch.equal(compose_image(drawn)[row], frame)


def test_a_transplant_is_the_generators() -> None:
    truth = TrueScenes(dataset())
    scenes, donors = encode_windows(truth, [1, 6, 7]), encode_windows(truth, [3, 1, 4])
    one = replace(scenes.slots[:, 3:4], appearance=donors.slots.appearance[:, 1:2])
    one.appearance[1] = scenes.slots.appearance[1, 3]  # this one keeps its own
    drawn = truth.decode(scenes, scenes.slots.with_slot(3, one))
    for row, (window, donor) in enumerate(((1, 3), (6, 6), (7, 4))):
        edit = Replace(2, 1, 0) if donor != window else Move(2, 0, 0)
        frame, mask = render_alone(window, edit, donor)
        assert torch.equal(find_labels(drawn)[row], mask)
        assert torch.equal(compose_image(drawn)[row], frame)
    # All it needs to know is in the slots: one that never saw a frame draws the same.
    other, slots = TrueScenes(dataset()), scenes.slots.with_slot(3, one)
    for row in (2, 0, 1):
        again = other.decode(scenes.rows(torch.tensor([row])), slots[[row]])
        assert torch.equal(compose_image(again)[0], compose_image(drawn)[row])


def test_moves_are_whole_pixels_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SceneEdit] = []
    draw = SolidsDataset.render_counterfactuals

    def note_and_render(self: SolidsDataset, indices: Any, edits: Any, *rest: Any) -> Pictures:
        asked.extend(edit for _, edit in edits)
        return draw(self, indices, edits, *rest)

    monkeypatch.setattr(SolidsDataset, "render_counterfactuals", note_and_render)
    truth = TrueScenes(dataset())
    scenes = encode_windows(truth, [0, 1, 2])
    pixels = torch.tensor([[6, -6], [-7, 11], [3, 0.5]])
    move = (pixels.double() * STEP).float()
    assert (move.double() / STEP != pixels).any()  # float32 has no such step
    truth.command(scenes, 1, move, torch.ones(3))
    assert asked[:2] == [Move(0, 6, -6), Move(0, -7, 11)]
    half = asked[2]
    assert isinstance(half, Move)
    assert (half.dx, half.dy) == (3, pytest.approx(0.5, abs=1e-6))


def test_an_isolated_object_scores_all() -> None:
    """Nothing but floor within eight pixels: whole-pixel moves are perfect, sizes nearly so."""
    pair = SolidsDataset(
        SMALL_SOLIDS.model_copy(update={"resting": (1, 1), "supersample": 3}), "val"
    )
    truth = TrueScenes(pair)
    factual = compute_factual(truth, pair, 8)
    records = editing.record_edits(truth, factual, 8)
    assert factual.reference is not None
    alone = []
    for window, slot in zip(*factual.objects, strict=True):
        mask = factual.masks[window, slot]
        others = (factual.reference[window] != 0) & ~mask
        beside = pad(others, [8] * 4, value=True).float()[None, None]  # there is no floor outside
        near = max_pool2d(beside, 17, 1)[0, 0] > 0
        alone.append(not bool((near & mask).any()))
    kept = np.array(alone)
    assert 3 <= kept.sum() < len(kept)
    moved = records.position.where(np.repeat(kept, len(MOVES)))
    assert (moved.f1 == 1).all()
    assert moved.interior.all()
    assert moved.noop.max() < 0.8
    assert moved.error.max() < 1e-9
    resized = records.scale.where(np.repeat(kept, len(FACTORS)))
    assert (resized.f1[resized.command == commands.IDENTITY] == 1).all()
    assert resized.f1.min() > 0.9
    for values, ideal_slope in ((resized.radius, 1), (resized.coverage, 2)):
        curves = torch.from_numpy(values.reshape(-1, len(FACTORS)))
        slopes = metrics.response_slope(torch.tensor(FACTORS), curves)
        assert slopes.numpy() == pytest.approx(ideal_slope, rel=0.05)


def test_what_goes_behind_another_object_is_lost_and_nothing_else() -> None:
    """Of objects that are wholly visible: the target less whatever stands nearer to the camera."""
    factual, records = record_edits()
    known = clips()
    assert known.masks is not None
    assert known.amodal is not None
    asked = commands.build_moves(factual)
    targets = commands.compute_targets(factual, asked, torch.arange(len(asked)))[1]
    hidden = 0
    for edit, (row, slot) in enumerate(
        zip(asked.window.tolist(), asked.slot.tolist(), strict=True)
    ):
        window = int(factual.window[row])
        whole = known.amodal[window][0, slot - 1]
        mask = factual.masks[row, slot]
        if not torch.equal(whole, mask) or not edit_maps.stays_interior(
            edit_maps.compute_cell_bounds(mask), 64, 64
        ):
            continue
        order = known.metadata[window]["order"][0]
        nearer = [label for label in range(1, len(order) + 1) if order[label - 1] < order[slot - 1]]
        front = torch.isin(known.masks[window, 0], torch.tensor(nearer, dtype=torch.uint8))
        seen = targets[edit] & ~front
        assert records.position.f1[edit] == metrics.f1(seen, targets[edit])
        assert (records.position.f1[edit] < 1) == bool((targets[edit] & front).any())
        hidden += bool((targets[edit] & front).any())
    assert hidden >= 3


def test_it_agrees_with_the_truth_of_the_matched_table() -> None:
    """There the generator is asked by reference labels; here by slots and appearances."""
    truth = TrueScenes(dataset())
    factual = compute_factual(truth, dataset(), 3, 2)
    records = matched.record_matched(truth, dataset(), factual, 16)
    assert records.edited.all()
    assert set(records.kind.tolist()) == {0, 1, 2}
    assert records.exact.min() > 150  # dB: float32 against float64
    assert (records.exact_f1 == 1).all()


def test_f1_is_over_what_can_be_seen() -> None:
    """Ten pixels of the edited object: fewer are no target, and no failure either."""
    hiding = SolidsDataset(SMALL_SOLIDS.model_copy(update={"seed": 2}), "val")
    truth = TrueScenes(hiding)
    factual = compute_factual(truth, hiding, 3, 4)
    factual.masks[0, 1] = False  # an object that has no slot
    records = matched.record_matched(truth, hiding, factual, 16)
    lost = records.where((records.window == factual.window[0]) & (records.label == 1))
    assert not lost.edited.any()
    for index, kind in enumerate((Move, Scale)):
        rows = records.where(records.kind == index)
        seen = []
        for window, label, command in zip(rows.window, rows.label, rows.command, strict=True):
            asked = MOVES[command] if kind is Move else (FACTORS[command],)
            drawn = hiding.render_counterfactuals(
                [int(window)], [(0, kind(int(label) - 1, *asked))]
            )
            seen.append(int((drawn.masks == int(label)).sum()))
        visible = np.array(seen) >= 10
        assert not visible.all()
        np.testing.assert_array_equal(np.isnan(rows.exact_f1), ~visible)
        np.testing.assert_array_equal(rows.exact_f1[visible], rows.edited[visible])
    scores = matched.score_matched(records)
    known = records.where((records.kind == 0) & ~np.isnan(records.exact_f1))
    assert scores.position.visible == len(known) < scores.position.edits
    assert scores.position.exact_f1 is not None
    expected = 100 * metrics.video_means(known.exact_f1, known.video).mean()
    assert scores.position.exact_f1.estimate == pytest.approx(expected)
    shown = build_exact("truth", as_values(scores))
    assert shown is not None
    assert f"visible: {len(known)}/{scores.position.edits} position, " in shown.caption


def test_nothing_but_edits_is_wrong() -> None:
    scores = score_factual(TrueScenes(dataset()), record_edits()[0], 8)
    assert scores.psnr == float("inf")
    assert scores.position_error.value == 0
    assert scores.calibration.linear == pytest.approx(1)
    assert scores.segmentation is not None
    assert scores.segmentation.foreground_ari.value == 1
    assert scores.segmentation.mean_iou.value == 1
    assert scores.reference_errors is not None
    assert scores.reference_errors.position_to_reference.value == 0
    assert scores.reference_errors.position_to_reference.defined == scores.objects


def test_tables_whatever_the_batches(tmp_path: Path) -> None:
    truth = TrueScenes(dataset())
    results = evaluate(truth, dataset(), tmp_path, "truth", ("editing",), batch=50, windows=2)
    factual = compute_factual(truth, dataset(), 1, 2)
    records = editing.record_edits(truth, factual, 3)
    wanted = editing.score_editing(records)
    assert results.tables["editing"] == as_values(wanted)
    for scope in (wanted.all, wanted.interior):
        for kind in (scope.position, scope.scale, scope.transplant):
            assert kind.edits > 0
            assert 80 < kind.f1.estimate < 100


def test_what_it_cannot_do_it_refuses() -> None:
    truth = TrueScenes(dataset())
    scenes = encode_windows(truth, [0, 5])
    slots = scenes.slots
    stay, keep = torch.zeros(2, 2), torch.ones(2)
    with pytest.raises(GeocoError, match="not the first of any window"):
        truth.encode(torch.full((1, 3, 64, 64), 0.5), torch.zeros(1, truth.slots, 2))
    with pytest.raises(GeocoError, match="not both at once"):
        truth.command(scenes, 1, stay + STEP, 2 * keep)
    with pytest.raises(GeocoError, match="has no object -1"):
        truth.command(scenes, 0, stay + STEP, keep)
    for part in fields(slots)[1:]:
        with pytest.raises(GeocoError, match="by `command`"):
            truth.decode(scenes, replace(slots, **{part.name: getattr(slots, part.name) + 0.1}))
    with pytest.raises(GeocoError, match="one object of a scene at a time"):
        truth.decode(scenes, replace(slots, appearance=slots.appearance.flip(0)))
    with pytest.raises(GeocoError, match="only square frames"):
        TrueScenes(SolidsDataset(SMALL_SOLIDS.model_copy(update={"width": 32}), "val"))
