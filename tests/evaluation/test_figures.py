"""Figures: the numbers behind them by hand, what galleries choose, files whole and repeatable."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_oracles import Discs, Moody, Numbered, scenes, video_major
from PIL import Image
from torch import Tensor

from geoco import drawing, metrics
from geoco.errors import GeocoError
from geoco.evaluation import (
    Encoded,
    commands,
    editing,
    figures,
    galleries,
    make_unplaced_slots,
    windows,
)
from geoco.evaluation.commands import FACTORS
from geoco.evaluation.editing import EditRecords, Records
from geoco.evaluation.gallery_layout import (
    LABEL,
    SIDE,
    Outline,
    Panel,
    draw_gallery,
    trace_boundary,
)
from geoco.evaluation.interfaces import Decoded
from geoco.models.slots import Slots

CURVES = ("response", "response-all", "errors", "errors-all", "drift")
NAMES = (*CURVES, "strips", "transplants", "failures")


class Painted(Moody):
    """Discs in colours of their own, the same each time, that obey half of the commands."""

    def draw(self, slots: Slots) -> Decoded:
        logits = super().draw(slots)[1]
        shade = slots.appearance[..., :1] / 2
        color = torch.cat((shade, 1 - shade, slots.appearance[..., 1:]), -1).clamp(0, 1)
        return color[..., None, None].expand(-1, -1, -1, *logits.shape[-2:]), logits


class Unplaced(Painted):
    """The same with place and size hidden in the appearance, and without commands."""

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        known = super().encode(frames, starts).slots
        parts = (known.appearance, known.position, known.scale[..., None])
        return Encoded(make_unplaced_slots(torch.cat(parts, -1)), None)

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        appearance, position, scale = slots.appearance.split((2, 2, 1), -1)
        return self.draw(Slots(appearance, position, scale[..., 0]))


def record_edits(model: Discs) -> tuple[windows.Factual, EditRecords]:
    factual = windows.compute_factual(
        model, Numbered(video_major(3, len(model.scenes.scale) // 3)), 4
    )
    return factual, editing.record_edits(model, factual, 4)


def make_records(count: int, **known: object) -> Records:
    """Records of which only some parts matter."""
    kinds = {
        "window slot command video donor_video": np.int64,
        "valid positive interior": np.bool_,
        "noop f1 error miss_x miss_y radius coverage": np.float64,
    }
    whole = {name: np.ones(count, kind) for names, kind in kinds.items() for name in names.split()}
    return Records(
        **{name: np.asarray(known.get(name, part), part.dtype) for name, part in whole.items()}
    )


def make_curves() -> Records:
    k = np.array(FACTORS)
    radius = np.stack((0.1 * k, 0.3 * np.ones(5), 0.2 * k**2, 0.2 * k**3, 0.1 * k))
    radius[4, 0] = 0  # disappeared: no slope, no curve
    interior = np.ones((5, 5), dtype=bool)
    interior[3, 4] = False
    return make_records(
        25, radius=radius.ravel(), coverage=radius.ravel() ** 2, interior=interior.ravel()
    )


def test_drift_in_pixels() -> None:
    """On 64 pixels a grid is 31.5 pixels to a side; what is undefined or at the border is out."""
    some = make_records(
        4,
        miss_x=[1 / 31.5, 0, math.nan, 5],
        miss_y=[0, -2 / 31.5, 1, 5],
        interior=[True, True, True, False],
    )
    np.testing.assert_allclose(figures._collect_misses(some, 64), [[1, 0], [0, -2]])
    both = {"a": EditRecords(some, some, some), "b": EditRecords(some, some, some)}
    one = figures.draw_drift({"a": both["a"]}, 64)
    assert figures.draw_drift(both, 64).shape[1] > one.shape[1]


def test_response_by_hand() -> None:
    """Interior: slopes 1, 0 and 2. At k = 0.5 they give 0.5, 1 and 0.25."""
    response = figures.measure_response(make_curves(), "radius", interior=True)
    assert response.curves == 3
    assert response.slope == pytest.approx(1)
    np.testing.assert_allclose(response.median, FACTORS)
    assert (response.low[0], response.high[0]) == pytest.approx((0.375, 0.75))
    assert (response.low[2], response.median[2], response.high[2]) == (1, 1, 1)
    assert (response.low[4], response.high[4]) == pytest.approx((1.25, (1.5 + 2.25) / 2))
    everywhere = figures.measure_response(make_curves(), "coverage", interior=False)
    assert everywhere.curves == 4
    assert everywhere.slope == pytest.approx((2 + 0 + 4 + 6) / 4)


def test_response_is_of_the_curves_of_the_tables() -> None:
    _, records = record_edits(Painted(scenes(6, objects=2)))
    scores = editing.score_editing(records)
    for scope, interior in ((scores.all, False), (scores.interior, True)):
        for measure in ("radius", "coverage"):
            mean = getattr(scope.curves, measure)
            response = figures.measure_response(records.scale, measure, interior)
            assert response.curves == mean.defined
            assert response.slope == pytest.approx(mean.value, nan_ok=True)


def test_response_without_curves() -> None:
    response = figures.measure_response(
        make_records(5, radius=np.zeros(5)), "radius", interior=True
    )
    assert response.curves == 0
    assert math.isnan(response.slope)
    assert np.isnan(response.median).all()


def test_cumulative_share_counts_undefined_errors() -> None:
    values, share = figures.accumulate(np.array([0.3, math.nan, 0.1, 0.2]))
    assert values.tolist() == [0.1, 0.2, 0.3]
    assert share.tolist() == [0.25, 0.5, 0.75]
    assert figures.accumulate(np.array([]))[0].tolist() == []


def test_models_are_laid_over_each_other() -> None:
    _, records = record_edits(Painted(scenes(6, objects=2)))
    other = replace(records, scale=replace(records.scale, radius=0.2 + records.scale.radius))
    one = figures.draw_response({"one": records}, interior=False)
    two = figures.draw_response({"one": records, "two": other}, interior=False)
    colors = [(picture == drawing.COLORS[1]).all(-1).any() for picture in (one, two)]
    assert colors == [False, True]
    assert (one == drawing.COLORS[0]).all(-1).any()


def test_worst_edits() -> None:
    """Not the invalid one, and of every object one."""
    records = make_records(
        7,
        window=[0, 0, 1, 1, 2, 2, 2],
        slot=[1, 1, 1, 2, 1, 1, 2],
        f1=[0.5, 0.1, 0.3, 0.3, 0.0, 0.4, 0.2],
        valid=[True, True, True, True, False, True, True],
    )
    assert galleries.find_worst(records, 3).tolist() == [1, 6, 2]
    assert galleries.find_worst(records, 10).tolist() == [1, 6, 2, 3, 5]


def test_failures_are_decoded_as_they_were_scored() -> None:
    model = Painted(scenes(6, objects=2))
    factual, records = record_edits(model)
    asked = {"position": commands.build_moves, "scale": commands.build_resizes}
    for kind, build in (*asked.items(), ("transplant", commands.build_transplants)):
        edits: Records = getattr(records, kind)
        chosen = galleries.find_worst(edits, 4)
        assert edits.f1[chosen[0]] == edits.f1[edits.valid].min()
        edited = galleries.draw_edits(
            model, factual, build(factual).rows(torch.from_numpy(chosen)), 3
        )
        scores = metrics.f1(torch.from_numpy(edited.supports), torch.from_numpy(edited.targets))
        np.testing.assert_allclose(scores, edits.f1[chosen])


def test_edits_come_in_the_order_of_the_commands() -> None:
    model = Painted(scenes(6, objects=2))
    factual, _ = record_edits(model)
    asked = commands.build_resizes(factual)
    edited = galleries.draw_edits(model, factual, asked, 3)
    assert len(edited.pictures) == len(asked) == 60
    for number in (0, 7, 33, 59):
        row, slot = asked.window[[number]], int(asked.slot[number])
        state = asked.edited
        one = Slots(state.appearance[[number]], state.position[[number]], state.scale[[number]])
        scene = factual.encoded(row)
        new = scene.slots.with_slot(slot, one[None])
        rgb, logits = model.decode(scene, new)
        image = (rgb * logits.softmax(1)[:, :, None]).sum(1)[0]
        expected = (image.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
        np.testing.assert_array_equal(edited.pictures[number], expected)
        np.testing.assert_array_equal(edited.supports[number], logits[0].argmax(0) == slot)


def test_records_of_another_evaluation_are_refused() -> None:
    model = Painted(scenes(6, objects=2))
    factual, records = record_edits(model)
    other = replace(records, position=records.position.where(np.arange(len(records.position)) > 3))
    with pytest.raises(GeocoError, match="of another evaluation than the factual pass"):
        galleries.draw_failures(model, factual, other, 4)


def test_objects_that_touch_no_border_are_shown_first() -> None:
    """The left disc is larger, but cut by the border in window 1; windows go video by video."""
    discs = scenes(6, (6, 7), objects=2)
    discs.position[:, 1], discs.position[:, 2] = torch.tensor([-0.4, 0]), torch.tensor([0.5, 0])
    discs.scale[:, 1] *= 1.5
    discs.position[2, 1] = torch.tensor([-0.95, 0])
    factual = record_edits(Painted(discs))[0]
    window, slot = galleries.choose_objects(factual, 4)
    assert window.tolist() == [0, 2, 4, 1]
    assert slot.tolist() == [1, 2, 1, 1]


def test_boundaries_by_hand() -> None:
    mask = np.zeros((3, 4), dtype=bool)
    mask[1, 2] = True
    sides = {tuple(map(tuple, side)) for side in trace_boundary(mask).tolist()}
    assert sides == {
        ((2, 1), (3, 1)),
        ((2, 2), (3, 2)),
        ((2, 1), (2, 2)),
        ((3, 1), (3, 2)),
    }
    # Closed where the picture ends, and nothing between pixels inside.
    assert len(trace_boundary(np.ones((3, 4), dtype=bool))) == 14
    assert len(trace_boundary(np.zeros((3, 4), dtype=bool))) == 0


def test_panels_are_magnified_by_whole_numbers_and_outlined() -> None:
    green = np.full((16, 16, 3), (10, 200, 30), dtype=np.uint8)
    mask = np.zeros((16, 16), dtype=bool)
    mask[4:8, 4:8] = True
    groups = [("group", ("a", "b"))]
    bare = draw_gallery(groups, ["row"], [[Panel(green), None]], {})
    assert (bare == green[0, 0]).all(-1).sum() == SIDE**2
    rows, columns = (np.flatnonzero((bare == green[0, 0]).all(-1).any(axis)) for axis in (1, 0))
    assert len(rows) == len(columns) == SIDE
    assert columns[0] >= LABEL
    outlined = draw_gallery(
        groups, ["row"], [[Panel(green, (Outline(mask, "#33bbee"),)), None]], {}
    )
    blue = (np.abs(outlined.astype(int) - (0x33, 0xBB, 0xEE)).sum(-1) < 60).nonzero()
    dots = SIDE // 16
    assert abs(blue[0].min() - (rows[0] + 4 * dots)) <= 2
    assert abs(blue[0].max() - (rows[0] + 8 * dots)) <= 2
    assert abs(blue[1].min() - (columns[0] + 4 * dots)) <= 2
    assert abs(blue[1].max() - (columns[0] + 8 * dots)) <= 2


def test_figures_are_whole_and_repeatable(tmp_path: Path) -> None:
    model = Painted(scenes(3, objects=2))
    factual, records = record_edits(model)
    paths = figures.write_figures(model, factual, records, tmp_path / "one", 4)
    again = figures.write_figures(model, factual, records, tmp_path / "two", 7)
    assert [path.stem for path in paths] == [*NAMES, "calibration"]
    assert sorted((tmp_path / "one" / "figures").iterdir()) == sorted(paths)
    for path, other in zip(paths, again, strict=True):
        assert path.read_bytes() == other.read_bytes()
        with Image.open(path) as image:
            pixels = np.asarray(image)
        assert pixels.shape[2] == 3
        assert min(pixels.shape[:2]) > 300
        assert (pixels != 255).any(-1).mean() > 0.02
        assert len(np.unique(pixels.astype(np.int64) @ (1, 256, 65536))) > 20


def test_a_model_without_geometry_shows_its_transplants(tmp_path: Path) -> None:
    model = Unplaced(scenes(3, objects=2))
    factual, records = record_edits(model)
    paths = figures.write_figures(model, factual, records, tmp_path, 4)
    assert [path.stem for path in paths] == list(NAMES)
    widths = {}
    for path in paths:
        with Image.open(path) as image:
            widths[path.stem] = image.width
    # Frame, reconstruction, masks, donor, result; and the worst transplants alone.
    assert 5 * SIDE < widths["strips"] - LABEL < 6 * SIDE
    assert 3 * SIDE < widths["failures"] < 4 * SIDE


def test_nothing_to_show(tmp_path: Path) -> None:
    """No valid object: no gallery, and curves that say so."""
    factual, records = record_edits(Painted(scenes(6, (0.5, 0.6))))
    assert int(factual.valid.sum()) == 0
    paths = figures.write_figures(Painted(scenes(6)), factual, records, tmp_path, 4)
    names = [path.stem for path in paths]
    assert names == list(CURVES)
