"""Object-matched editing: models whose scores are known, and every record by brute force."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from helpers import make_small_solids, make_tiny_model
from helpers_matched import PaintedDeaf, PaintedMute, record_discs
from torch import Tensor

from geoco import edit_maps, metrics
from geoco.edit_maps import AffineMap
from geoco.errors import GeocoError
from geoco.evaluation import (
    as_values,
    commands,
    inpainting,
    matched,
    reference_objects,
    windows,
)
from geoco.evaluation.commands import FACTORS, MOVES
from geoco.evaluation.matched_measures import MatchedMeasures
from geoco.evaluation.tables import build_text_tables
from geoco.metrics.rgb import measure_preservation, psnr, region_psnr
from geoco.models import compositing
from geoco.models.slots import Slots
from geoco.solids import Move, Replace, Scale


def test_an_obedient_model_is_like_its_targets() -> None:
    _, _, records = record_discs()
    assert len(records) == 12 * (4 + 4 + 1)
    assert records.edited.all()
    assert records.valid.all()
    moved = records.where(records.kind == 0)
    # Moves are whole pixels: only rounding to 8 bits and the marked corner are left.
    assert moved.f1.min() == 1
    assert moved.oracle_region.min() > 50
    assert moved.oracle.min() > 30
    assert moved.change.max() < 1e-9
    assert (moved.changed == 0).all()
    scores = matched.score_matched(records)
    assert scores.objects == 12
    assert scores.videos == 3
    assert scores.position.f1 is not None
    assert scores.position.f1.estimate == pytest.approx(100)
    assert scores.scale.f1 is not None
    assert scores.scale.f1.estimate > 95
    assert scores.scale.oracle is not None
    assert scores.scale.unedited is not None
    assert scores.scale.oracle.region.estimate > scores.scale.unedited.region.estimate + 3
    assert scores.position.exact is None
    assert scores.transplant.f1 is None


def test_a_deaf_model_is_its_unedited_picture() -> None:
    _, _, records = record_discs(PaintedDeaf)
    for name in ("oracle", "oracle_region"):
        unedited = getattr(records, name.replace("oracle", "unedited"))
        np.testing.assert_allclose(getattr(records, name), unedited)
    assert records.change.max() < 1e-9
    one = records.where(records.kind == 0)
    assert one.f1.max() < 0.8


def test_what_a_model_cannot_be_asked_is_undefined() -> None:
    _, _, records = record_discs(PaintedMute)
    told, swapped = (records.where(kept) for kept in (records.kind < 2, records.kind == 2))
    assert len(told) == 12 * (4 + 4)
    assert not told.edited.any()
    assert not told.valid.any()
    for name in [part.name for part in fields(MatchedMeasures)]:
        assert np.isnan(getattr(told, name)).all(), name
    assert swapped.edited.all()
    for name in ("oracle", "unedited", "change", "changed"):
        assert np.isfinite(getattr(swapped, name)).all(), name
    scores = matched.score_matched(records)
    for kind in (scores.position, scores.scale):
        assert (kind.edits, kind.unassociated, kind.common, kind.carried) == (48, 0, 0, 0)
        scored = (kind.f1, kind.oracle, kind.unedited, kind.exact, kind.exact_f1)
        assert {*scored, kind.oracle_exact, kind.change, kind.changed} == {None}
    assert scores.transplant.change is not None
    tables = {
        table.title: table for table in build_text_tables("mute", {"matched": as_values(scores)})
    }
    for title in ("Object-matched editing", "RGB preservation"):
        for row in tables[title].rows:
            assert set(row[1:]) == {"–"}, title
    for row in tables["PSNR (dB) against RGB oracle edits"].rows:
        assert [cell == "–" for cell in row[1:]] == [True, True, False] * 2
    assert "0/48 position, 0/48 scale" in tables["RGB preservation"].caption


def test_who_is_asked_and_who_gives() -> None:
    model, dataset, _ = record_discs()
    factual = windows.compute_factual(model, dataset, 4)
    objects = reference_objects.find_references(factual)
    # Two objects in each of six windows, both associated with their own slots.
    assert objects.window.tolist() == [w for w in range(6) for _ in range(2)]
    assert objects.label.tolist() == [1, 2] * 6
    assert objects.slot.tolist() == [1, 2] * 6
    asked = reference_objects.ask_transplants(factual, objects)
    # Windows 0 and 1 are of video 0, whose next video has windows 2 and 3, and so on in a circle.
    # In window-major order 1 follows 4, and 0 follows 5.
    donors = objects.window[asked.donor].view(6, 2)[:, 0].tolist()
    assert donors == [2, 3, 4, 5, 1, 0]
    assert objects.label[asked.donor].tolist() == [1, 2] * 6


def test_donors_by_rank_modulo_their_number() -> None:
    model, dataset, _ = record_discs()
    dataset.masks[2][dataset.masks[2] == 2] = 0  # the donor window of the first has one object
    factual = windows.compute_factual(model, dataset, 4)
    objects = reference_objects.find_references(factual)
    asked = reference_objects.ask_transplants(factual, objects)
    first = objects.window[asked.object] == 0
    assert objects.label[asked.donor[first]].tolist() == [1, 1]
    dataset.masks[2] = 0  # and now none: there is no pair
    factual = windows.compute_factual(model, dataset, 4)
    objects = reference_objects.find_references(factual)
    asked = reference_objects.ask_transplants(factual, objects)
    assert 0 not in objects.window[asked.object].tolist()


def test_an_object_without_a_slot_is_left_as_it_is() -> None:
    model, dataset, _ = record_discs()
    dataset.masks[0, 2:6, 20:24] = 3  # of the background slot, whom no other object wants
    dataset.masks[1] = 0
    dataset.masks[1, 2:6, 20:24] = 1
    factual = windows.compute_factual(model, dataset, 4)
    assert factual.reference is not None
    factual = replace(factual, masks=factual.masks.clone())
    factual.masks[1, :, 2:6, 20:24] = False  # nobody owns these pixels
    records = matched.record_matched(model, dataset, factual, 4)
    lost = records.where((records.window == 1) & (records.label == 1))
    assert not lost.edited.any()
    assert not lost.valid.any()
    np.testing.assert_array_equal(lost.oracle, lost.unedited)
    for name in ("f1", "change", "changed"):  # who misses an object disturbs nothing: no praise
        assert np.isnan(getattr(lost, name)).all()
    # Nor can it give its appearance: window 1 is where window 4 looks for a donor.
    orphans = records.where((records.kind == 2) & (records.window == 4))
    assert len(orphans) == 2
    assert not orphans.edited.any()
    # A slot that is background is edited all the same, but never valid.
    floor = records.where((records.window == 0) & (records.label == 3))
    assert floor.edited.all()
    assert not floor.valid.any()
    scores = matched.score_matched(records)
    assert scores.position.unassociated == 4
    assert scores.position.carried == scores.position.edits - 4
    assert scores.position.common < scores.position.edits
    assert scores.position.oracle is not None
    moved = records.where(records.kind == 0)
    expected = metrics.video_means(moved.oracle, moved.video).mean()
    assert scores.position.oracle.full.estimate == pytest.approx(expected)  # it counts here


def test_without_masks_there_is_no_such_table() -> None:
    model, dataset, _ = record_discs()
    factual = replace(windows.compute_factual(model, dataset, 4), reference=None)
    with pytest.raises(GeocoError, match="needs reference masks"):
        matched.record_matched(model, dataset, factual, 4)


def test_batches_change_nothing() -> None:
    model, dataset = make_tiny_model(), make_small_solids()
    factual = windows.compute_factual(model, dataset, 8)
    one, two = (matched.record_matched(model, dataset, factual, batch) for batch in (3, 50))
    for part in fields(one):
        np.testing.assert_allclose(
            getattr(one, part.name), getattr(two, part.name), rtol=1e-9, err_msg=part.name
        )


def test_no_more_masks_are_warped_at_once_than_a_batch_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, dataset, records = record_discs()
    factual = windows.compute_factual(model, dataset, 4)
    sizes, warp = [], edit_maps.warp_mask

    def note_and_warp(mask: Tensor, edit: AffineMap) -> Tensor:
        sizes.append(len(mask))
        return warp(mask, edit)

    monkeypatch.setattr(edit_maps, "warp_mask", note_and_warp)
    monkeypatch.setattr(commands, "_CHUNK", 3)
    again = matched.record_matched(model, dataset, factual, 3)
    assert max(sizes) == 3
    np.testing.assert_array_equal(again.reference_valid, records.reference_valid)
    assert sum(sizes) > len(records)


def test_records_of_our_model_by_brute_force() -> None:
    """Edit by edit, through `decode` of whole scenes; solids tells the truth."""
    model, dataset = make_tiny_model(), make_small_solids()
    factual = windows.compute_factual(model, dataset, 8)
    objects = reference_objects.find_references(factual)
    records = matched.record_matched(model, dataset, factual, 8)
    generator = np.random.default_rng(0)
    chosen = generator.permutation(np.flatnonzero(records.edited))[:30]
    assert set(records.kind[chosen]) == {0, 1, 2}
    assert set(np.isnan(records.exact_f1[chosen])) == {False, True}
    for row in chosen:
        one = {part.name: getattr(records, part.name)[row] for part in fields(records)}
        compare_record(model, dataset, factual, objects, one)


def find_region(layer: inpainting.Layer, edit: AffineMap) -> Tensor:
    return inpainting.find_region(layer, edit_maps.warp_mask(layer.support, edit))


def compare_record(model, dataset, factual, objects, one) -> None:  # type: ignore[no-untyped-def]
    window = int(np.flatnonzero(factual.window == one["window"])[0])
    mine = (objects.window == window) & (objects.label == int(one["label"]))
    number = int(mine.nonzero()[0, 0])
    slot = int(objects.slot[number])
    assert slot >= 0
    encoded = factual.encoded(torch.tensor([window]))
    state = encoded.slots
    new = Slots(state.appearance[:, [slot]], state.position[:, [slot]], state.scale[:, [slot]])
    frame = factual.frame[[window]].double() / 255
    layer = inpainting.cut_out(frame, factual.reference[[window]], objects.label[[number]])
    center = objects.center[[number]]
    item, index = int(one["label"]) - 1, int(one["window"])
    if one["kind"] == 0:
        move = MOVES[one["command"]]
        edit = AffineMap.from_move(torch.tensor([move]), 16, 16)
        new = replace(new, position=new.position + edit.offset.to(new.position)[:, None])
        target, region = inpainting.compose_target(layer, edit), find_region(layer, edit)
        truth = dataset.render_counterfactuals([index], [(0, Move(item, *move))])
        own = edit_maps.warp_mask(factual.masks[[window], slot], edit)
    elif one["kind"] == 1:
        factor = FACTORS[one["command"]]
        new = replace(new, scale=new.scale * factor)
        edit = AffineMap.from_resize(torch.tensor([factor]), center)
        target, region = inpainting.compose_target(layer, edit), find_region(layer, edit)
        truth = dataset.render_counterfactuals([index], [(0, Scale(item, factor))])
        own_edit = AffineMap.from_resize(torch.tensor([factor]), state.position[:, slot])
        own = edit_maps.warp_mask(factual.masks[[window], slot], own_edit)
    else:
        asked = reference_objects.ask_transplants(factual, objects)
        donor = int(asked.donor[int((asked.object == number).nonzero()[0, 0])])
        assert int(objects.label[donor]) == one["donor_label"]
        far, far_slot = int(objects.window[donor]), int(objects.slot[donor])
        new = replace(new, appearance=factual.slots.appearance[[far]][:, [far_slot]])
        far_frame = factual.frame[[far]].double() / 255
        given = inpainting.cut_out(far_frame, factual.reference[[far]], objects.label[[donor]])
        edit = AffineMap.from_transplant(
            center, objects.radius[[number]], objects.center[[donor]], objects.radius[[donor]]
        )
        target = inpainting.compose_target(given, edit, layer.background)
        ideal = edit_maps.warp_mask(given.support, edit)
        region = inpainting.find_transplant_region(layer, given, ideal, edit)
        far_index = int(factual.window[far])
        swap = Replace(item, 1, int(objects.label[donor]) - 1)
        assert one["reference_valid"] == bool(
            edit_maps.is_large_enough(edit_maps.warp_mask(objects.mask[donor], edit))[0]
        )
        truth = dataset.render_counterfactuals([index, far_index], [(0, swap)])
        own = None
    rgb, logits = model.decode(encoded, state.with_slot(slot, new))
    image = compositing.composite(rgb, compositing.compute_alpha(logits))
    support = compositing.compute_masks(logits)[:, slot]
    exact, mask = truth.frames.double() / 255, truth.masks == item + 1
    before = factual.image[[window]].double()
    kept = measure_preservation(before, image, region)
    expected = {
        "oracle": psnr(image, target),
        "oracle_region": region_psnr(image, target, region),
        "unedited_region": region_psnr(before, target, region),
        "exact": psnr(image, exact),
        "exact_region": region_psnr(image, exact, region),
        "exact_f1": metrics.f1(support, mask) if mask.sum() >= 10 else np.nan,
        "oracle_exact": psnr(target, exact),
        "change": kept.change,
        "changed": kept.changed,
    }
    if own is not None:
        expected["f1"] = metrics.f1(support, own)
    for name, value in expected.items():
        assert one[name] == pytest.approx(float(value), rel=1e-5, abs=1e-9, nan_ok=True), name


def test_scores_average_within_videos_first() -> None:
    _, _, records = record_discs()
    uneven = records.where((records.kind == 0) & ((records.video > 0) | (records.command == 0)))
    value = np.where(uneven.video == 0, 40.0, 20.0)
    scores = matched.score_matched(replace(uneven, oracle=value, change=value / 100))
    # Three videos weigh alike, though the first has fewer edits.
    assert scores.position.oracle is not None
    assert scores.position.change is not None
    assert scores.position.oracle.full.estimate == pytest.approx((40 + 20 + 20) / 3)
    assert scores.position.change.estimate == pytest.approx(0.8 / 3)
    assert scores.position.edits == len(uneven)


def test_f1_is_over_the_common_pool() -> None:
    _, _, records = record_discs()
    pool = np.zeros(len(records), dtype=np.bool_)
    pool[:4] = True
    low = replace(records, f1=np.where(pool, 0.25, 0.75))
    scores = matched.score_matched(low, pool)
    assert scores.position.f1 is not None
    assert scores.position.f1.estimate == pytest.approx(25)
    assert scores.position.common == 4
    assert scores.scale.common == 0
    assert (scores.objects, scores.windows, scores.videos) == (1, 1, 1)  # four moves of one object
    pool[records.kind == 2] = True  # transplants have no F1
    assert matched.score_matched(low, pool).objects == 1
    assert scores.scale.f1 is not None
    assert np.isnan(scores.scale.f1.estimate)


def test_a_region_is_never_the_models_choice() -> None:
    """Two models, one dataset: targets and populations are equal to the bit."""
    first, dataset, records = record_discs()
    other = PaintedDeaf(first.scenes)
    again = matched.record_matched(other, dataset, windows.compute_factual(other, dataset, 3), 3)
    for name in matched.SAME_FOR_ALL:
        np.testing.assert_array_equal(getattr(records, name), getattr(again, name))


def test_masks_of_labels() -> None:
    labels = torch.tensor([[[0, 1], [2, 2]]], dtype=torch.uint8)
    assert reference_objects.split_labels(labels).long().tolist() == [
        [[[0, 1], [0, 0]], [[0, 0], [1, 1]]]
    ]
