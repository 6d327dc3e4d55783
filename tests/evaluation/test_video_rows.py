"""Evaluation over all frames: rows, and models whose scores are known beforehand."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_oracles import video_major
from helpers_boxes import Boxes, Clips, DeafBoxes, SwappingBoxes, make_factual, make_scenes
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from geoco import config, edit_maps, metrics
from geoco.data import SolidsDataset
from geoco.editing.editor import Editor
from geoco.errors import GeocoError
from geoco.evaluation import (
    Factual,
    TrackedSlots,
    adapter,
    as_values,
    commands,
    compare,
    editing,
    evaluate,
    make_unplaced_slots,
    matched,
    stability,
    windows,
)
from geoco.evaluation.factual import measure_segmentation, record_centers, score_factual
from geoco.evaluation.interfaces import Decoded, Encoded
from geoco.evaluation.reference_tracks import find_anchors
from geoco.evaluation.video import record_tubes, score_tubes
from geoco.evaluation.video_rows import compute_video_factual
from geoco.models import pretrained
from geoco.models.decoders import Fields
from geoco.models.slots import Slots


def test_a_video_of_one_frame_is_the_single_frame_protocol(tmp_path: Path) -> None:
    model = Boxes(make_scenes(6, 1))
    model.carries = False  # starts as single frames do; boxes do not care
    dataset = Clips(model, video_major(3, 2))
    one, two = (
        compute_video_factual(model, dataset, np.arange(6), 4),
        windows.compute_factual(model, dataset, 4),
    )
    for part in fields(Factual):
        first, second = getattr(one, part.name), getattr(two, part.name)
        if isinstance(first, Tensor):
            assert torch.equal(first, second), part.name
        elif isinstance(first, Slots):
            assert all(map(torch.equal, vars(first).values(), vars(second).values()))
        else:
            np.testing.assert_array_equal(first, second)
    for score in (score_factual, stability.score_stability, stability.score_shared_background):
        values = [as_values(score(model, rows, 4)) for rows in (one, two)]
        assert values[0] == values[1]
    edits = [editing.score_editing(editing.record_edits(model, rows, 4)) for rows in (one, two)]
    assert as_values(edits[0]) == as_values(edits[1])
    tables = {
        choice: evaluate(model, dataset, tmp_path / choice, "boxes", frames=choice).tables
        for choice in ("all", "first")
    }
    assert tables["all"] == tables["first"]
    assert "tubes" not in tables["all"]


def test_rows_are_all_frames_of_all_windows() -> None:
    _, factual = make_factual(Boxes(make_scenes(3, 4)))
    assert factual.window.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert factual.clip.tolist() == factual.window.tolist()
    assert factual.time.tolist() == [0, 1, 2, 3] * 3
    assert factual.valid.sum() == 24
    center = factual.moments.center[:, 1]
    torch.testing.assert_close(center, factual.slots.position[:, 1].double(), atol=1e-6, rtol=0)


def test_donors_are_of_the_same_frame_of_the_next_video() -> None:
    _, factual = make_factual(Boxes(make_scenes(4, 3)), videos=2)
    # Clips 0 and 1 are of video 0; in window-major order 0, 2, 1, 3, and around.
    expected = [3 * clip + time for clip in (2, 3, 1, 0) for time in range(3)]
    assert commands.find_next_rows(factual).tolist() == expected
    row, slot = commands.find_donors(factual)
    mine, _ = factual.objects
    assert row.tolist() == [expected[number] for number in mine.tolist()]
    assert slot.tolist() == [1, 2] * 12


@pytest.mark.parametrize("zoom", [1, 2])
def test_the_truth_scores_perfectly(zoom: int) -> None:
    """Of boxes of 8 and 16 pixels every size is a whole number of pixels, and even."""
    model = Boxes(make_scenes(sides=(8, 16)))
    dataset, factual = make_factual(model, zoom)
    scores = score_factual(model, factual, 4)
    assert (scores.windows, scores.frames, scores.objects) == (3, 4, 24)
    assert scores.segmentation is not None
    for part in fields(scores.segmentation):
        score = getattr(scores.segmentation, part.name)
        assert (score.value, score.defined, score.total) == (1.0, 3, 3), part.name
    assert scores.reference_errors is not None
    for part in fields(scores.reference_errors):
        error = getattr(scores.reference_errors, part.name)
        assert error.value == pytest.approx(0, abs=1e-6), part.name
        assert (error.defined, error.total) == (6, 6)
    edits = editing.score_editing(editing.record_edits(model, factual, 9))
    for scope in (edits.all, edits.interior):
        for kind, each in ((scope.position, 4), (scope.scale, 4), (scope.transplant, 1)):
            assert kind.f1.estimate == 100
            assert (kind.edits, kind.disappeared) == (24 * each, 0)
            assert kind.error is None or kind.error.value == pytest.approx(0, abs=1e-12)
        assert scope.curves.coverage.value == pytest.approx(2)
        # The RMS radius of a box of n x n pixels goes with the root of n^2 - 1.
        sides = np.outer((8, 16), commands.FACTORS)
        slopes = [np.polyfit(np.log(commands.FACTORS), np.log(n**2 - 1) / 2, 1)[0] for n in sides]
        assert scope.curves.radius.value == pytest.approx(np.mean(slopes))
    tubes = score_tubes(record_tubes(model, factual, 9))
    assert (tubes.eligible, tubes.frames) == (3, 4)
    for kind, each in ((tubes.position, 4), (tubes.scale, 4), (tubes.transplant, 1)):
        assert (kind.f1.estimate, kind.f1.low, kind.edits) == (100, 100, 3 * each)
    records = matched.record_matched(model, dataset, factual, 9)
    pairs = matched.score_matched(records)
    assert (pairs.objects, pairs.windows, pairs.videos) == (6, 3, 3)
    for kind in (pairs.position, pairs.scale):
        assert kind.f1 is not None
        assert kind.f1.estimate == 100
        assert (kind.common, kind.carried) == (24, 24)
    for kind, count in ((pairs.position, 24), (pairs.scale, 24), (pairs.transplant, 6)):
        assert kind.change is not None
        assert (kind.change.estimate, kind.edits, kind.carried) == (0, count, count)


def test_who_ignores_commands_scores_the_no_op() -> None:
    model = DeafBoxes(make_scenes())
    dataset, factual = make_factual(model, 2)
    scores = editing.score_editing(editing.record_edits(model, factual, 9)).all
    for kind in ("position", "scale", "transplant"):
        assert getattr(scores, kind).f1.estimate == pytest.approx(getattr(scores, kind).noop)
    # Six pixels of twelve and of sixteen remain: 1/2 and 10/16 of either mask.
    assert scores.position.noop == pytest.approx(100 * (6 / 12 + 10 / 16) / 2)
    pairs = matched.score_matched(matched.record_matched(model, dataset, factual, 9))
    assert pairs.position.f1 is not None
    assert pairs.position.f1.estimate == pytest.approx(100 * (6 / 12 + 10 / 16) / 2)


def test_two_slots_that_swap_half_way_lose_exactly_that() -> None:
    """Every frame is as good as before; over the video each slot has half of each object."""
    objects = make_scenes(2, 4, (12, 12))
    model, dataset = SwappingBoxes(objects), Clips(Boxes(objects), ["a", "b"])
    factual = compute_video_factual(model, dataset, np.arange(2), 5)
    scores = score_factual(model, factual, 5)
    assert scores.segmentation is not None
    # Intersection 2 of 4 frames, union 6.
    assert scores.segmentation.mean_iou.value == pytest.approx(1 / 3)
    assert scores.segmentation.mean_best_overlap.value == pytest.approx(1 / 3)
    pixels = 2 * 4 * 144
    assert scores.segmentation.foreground_ari.value == pytest.approx(
        adjusted_rand_score([1, 1, 2, 2] * (pixels // 4), [1, 2, 1, 2] * (pixels // 4))
    )
    alone = measure_segmentation(
        replace(factual, length=1), dataset.batch([0, 1]).masks.flatten(0, 1)
    )  # type: ignore[union-attr]
    assert alone.mean_iou.value == 1
    edits = editing.score_editing(editing.record_edits(model, factual, 9)).all
    assert edits.position.f1.estimate == 100  # every frame's object obeys in whichever slot it is
    tubes = score_tubes(record_tubes(model, factual, 9))
    assert tubes.position.f1.estimate == 100  # as its slot does
    # Associations are those of each track's own frame, the first of equals.
    assert record_centers(factual).position_to_reference.max() < 1e-6


def test_a_model_of_single_frames_scores_its_first_frames_as_ever() -> None:
    """Bound anew in every frame, from where single frames start."""
    loaded = pretrained.load("geoco-solids")
    window = config.WindowConfig(length=2, stride=50)
    dataset = SolidsDataset(config.SolidsConfig(window=window), "val")
    model = adapter(loaded.model, loaded.config)
    chosen = np.array([0, 2])
    rows = compute_video_factual(model, dataset, chosen, 4)
    single = windows.compute_factual_of(model, dataset, chosen, 4)
    first = slice(None, None, 2)
    assert torch.equal(rows.masks[first], single.masks)
    assert torch.equal(rows.valid[first], single.valid)
    torch.testing.assert_close(rows.psnr[first], single.psnr, rtol=1e-5, atol=0)


def test_tube_f1_is_that_of_an_edited_film() -> None:
    """The editor tracks a clip from the same start, and moves the same slot in all frames."""
    loaded = pretrained.load("geoco-solids")
    window = config.WindowConfig(length=2, stride=50)
    dataset = SolidsDataset(config.SolidsConfig(window=window), "val")
    factual = compute_video_factual(adapter(loaded.model, loaded.config), dataset, np.array([0]), 2)
    records = record_tubes(adapter(loaded.model, loaded.config), factual, 64)
    (anchor,) = find_anchors(factual, [0])
    assert anchor is not None
    starts = windows.draw_starting_positions(0, 6)[None]
    loaded.model.draw_positions = lambda batch, generator: starts  # type: ignore[method-assign]
    film = Editor(loaded).encode_video(dataset.batch([0]).video[0].permute(0, 2, 3, 1).numpy())
    for place, move in enumerate(commands.MOVES):
        own = torch.from_numpy(film.masks[:, anchor.slot])
        edit = edit_maps.AffineMap.from_move(torch.tensor([move]), 64, 64)
        edited = torch.from_numpy(film.move(anchor.slot, *move).masks[:, anchor.slot])
        expected = metrics.tube_f1(edited, edit_maps.warp_mask(own, edit))
        assert records.edits.of("position").f1[place] == pytest.approx(float(expected), abs=1e-12)


def test_frames_are_drawn_once_for_all_kinds_of_edits() -> None:
    """Frames of which something is asked, and one slot for each edit."""

    class Counting(Boxes):
        drawn = 0

        def fields(self, slots: Slots) -> Fields:
            self.drawn += slots.scale.numel()
            rgb, logits = self.draw(slots)
            return Fields(logits, rgb)

        def compose(self, encoded: Encoded, fields: Fields) -> Decoded:
            assert fields.rgb is not None
            return fields.rgb, fields.logits

    model = Counting(make_scenes())
    dataset, factual = make_factual(model)
    for record, asked in (
        (lambda: editing.record_edits(model, factual, 5), 24 * (4 + 5 + 1)),
        (lambda: record_tubes(model, factual, 5), 12 * (4 + 4 + 1)),
    ):
        model.drawn = 0
        record()
        assert model.drawn == 12 * 3 + asked
    frames = len(record_centers(factual).window) // 2  # a track of either box in one frame each
    model.drawn = 0
    matched.record_matched(model, dataset, factual, 5)
    assert model.drawn == frames * 3 + 6 * (4 + 4 + 1)


def test_tables_and_comparison_of_videos(tmp_path: Path) -> None:
    objects = make_scenes(3, 4)
    dataset = Clips(Boxes(objects), ["a", "b", "c"], 2)
    for name, kind in (("obedient", Boxes), ("deaf", DeafBoxes)):
        results = evaluate(kind(objects), dataset, tmp_path / name, name, batch=9)
        assert set(results.tables) == {
            "factual", "editing", "stability", "shared-background", "matched", "tubes"
        }  # fmt: skip
        about = json.loads((tmp_path / name / "editing.json").read_text())["population"]
        assert about["frame"] == "all of each window"
        assert about["initialization seed"] == "20260723 + window // 4"
        assert about["size of masks"].startswith("128 x 128")
    text = (tmp_path / "deaf" / "tables.md").read_text()
    assert "| GeoCo-SAVi (paper, MOVi-C) | 0.1935 | 0.4610 | 0.2451 | 0.2507 |" in text
    assert "| **deaf (measured here)** | 1.0000 | 1.0000 | 1.0000 | 1.0000 |" in text
    assert "(paper, Obj3D)" not in text
    for population in (  # whom the numbers are of, under every table
        "of 3 videos of 4 frames. Position errors are over 6/6 tracks",
        "Spreads fix s = 0.2 and are over 24 objects of single frames.",
        "is over 3 videos with one edited object each.",
        "E_Δp (a fraction of the diagonal), 96/96, β_r and β_A, 24/24 and 24/24, and D_app (grid "
        "L2), 24/24.",
        "All 4 frames of a video together, 3/3 videos weighing the same",
        "here 6/6 of them.",
        "Here 24 valid objects of all frames.",
        "Here 96 position, 96 scale, 24 transplant.",
        "here 24 position and 24 scale edits of 6 objects in 3 videos",
        "Edits here: 24 position, 24 scale, 6 transplant. They are of tracks of 3 videos, ",
        "24/24 position, 24/24 scale, 6/6 transplant edits, of 3, 3, 3 videos.",
        "one object in each of 3 videos, all 4 frames retained; edits: 12 position, 12 scale, 3 ",
    ):
        assert population in text, population
    comparison = compare([tmp_path / "obedient", tmp_path / "deaf"], tmp_path / "both")
    tubes = {name: tables["tubes"]["position"]["f1"] for name, tables in comparison.tables.items()}
    assert tubes["obedient"]["estimate"] == 100
    assert tubes["deaf"]["estimate"] == pytest.approx(100 * 10 / 16)
    gap = next(one for one in comparison.differences if one.measure == "F1 (%)")
    assert gap.value.estimate == pytest.approx(-100 * (6 / 12 + 6 / 16) / 2)
    gaps = {one.kind: one for one in comparison.differences if one.measure == "Tube F1 (%)"}
    assert gaps["position"].value.estimate == pytest.approx(100 * 10 / 16 - 100)
    assert (gaps["position"].model, gaps["position"].edits) == ("deaf", 3)
    assert (
        "| **obedient (measured here)** | 100.00 |" in (tmp_path / "both/comparison.md").read_text()
    )


def test_first_frames_alone_are_labelled(tmp_path: Path) -> None:
    model = Boxes(make_scenes(3, 4))
    dataset = Clips(model, ["a", "b", "c"], 2)
    results = evaluate(model, dataset, tmp_path, "boxes", ["editing"], frames="first")
    assert results.population["frame"] == "the first of each window"
    assert results.tables["editing"]["objects"] == 6
    with pytest.raises(GeocoError, match="whole-video editing is of all frames"):
        evaluate(model, dataset, tmp_path / "other", "boxes", ["tubes"], frames="first")


def test_slots_without_positions_have_no_geometry_in_the_tables(tmp_path: Path) -> None:
    class Unplaced(Boxes):
        def track(self, video: Tensor, starts: Tensor) -> TrackedSlots:
            slots = super().track(video, starts).slots
            parts = (slots.appearance, slots.position, slots.scale[..., None])
            return TrackedSlots(make_unplaced_slots(torch.cat(parts, -1)), None)

        def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
            look = slots.appearance
            return self.draw(Slots(look[..., :2], look[..., 2:4], look[..., 4]))

    objects = make_scenes(3, 2)
    dataset = Clips(Boxes(objects), ["a", "b", "c"], 2)
    evaluate(Unplaced(objects), dataset, tmp_path, "unplaced", ["factual", "editing", "tubes"])
    text = (tmp_path / "tables.md").read_text()
    line = next(
        row for row in text.splitlines() if row.startswith("| **unplaced (measured here)**")
    )
    assert line.split(" | ")[2:4] == ["N/A", "N/A"]
