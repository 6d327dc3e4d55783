"""What is measured over all frames: labels, tracks, mattes and limits, by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers_boxes import Boxes, make_factual, make_scenes
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from geoco import edit_maps, metrics
from geoco.evaluation import (
    TrackedSlots,
    finite_grid,
    matched,
    reference_objects,
    reference_tracks,
    supports,
)
from geoco.evaluation.factual import measure_segmentation, record_centers, score_factual
from geoco.metrics.rgb import grow_square, video_psnr


def test_instance_metrics_are_scikit_learns_over_whole_videos() -> None:
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(0, 4, (6, 8, 8), generator=generator).to(torch.uint8)
    owner = torch.where(torch.rand(6, 8, 8, generator=generator) < 0.4, labels, 3 - labels % 3)
    _, factual = make_factual(Boxes(make_scenes(2, 3)))
    factual = replace(factual, reference=labels, owner=owner.to(torch.uint8))
    scores = measure_segmentation(factual, labels)
    pairs = [(labels[k : k + 3].flatten(), owner[k : k + 3].flatten()) for k in (0, 3)]
    expected = np.mean([adjusted_rand_score(*pair) for pair in pairs])
    assert scores.ari.value == pytest.approx(expected)
    inside = [(one[one > 0], two[one > 0]) for one, two in pairs]
    expected = np.mean([adjusted_rand_score(*pair) for pair in inside])
    assert scores.foreground_ari.value == pytest.approx(expected)


def test_alpha_is_enlarged_before_the_largest_is_taken() -> None:
    """Between one pixel's 0.9 and the next one's 0.4 the contest is lost after five sixths."""
    alpha = torch.tensor([[0.9, 0.4]]).double()
    logits = torch.stack((alpha.log(), (1 - alpha).log()))[None]
    owner = supports.find_owners(logits, (1, 8))
    # Centers of eight pixels lie at -3/8, -1/8, 1/8 ... of the coarse ones; 0.9 - 0.5 x = 0.5.
    assert owner[0, 0].tolist() == [int(0.9 - 0.5 * min(max(x, 0), 1) < 0.5)
                                    for x in (np.arange(8) + 0.5) / 4 - 0.5]  # fmt: skip
    assert torch.equal(supports.find_support(logits, 1, (1, 8))[0], owner[0] == 1)
    assert supports.find_support(logits, 1, (1, 2)).tolist() == [[[False, True]]]


def test_a_move_is_a_whole_number_of_finer_pixels_too() -> None:
    mask = torch.zeros(1, 64, 64, dtype=torch.bool)
    mask[0, 20:31, 5:19] = True
    edit = edit_maps.AffineMap.from_move(torch.tensor([[6, -6]]), 64, 64)

    def enlarge(masks: Tensor) -> Tensor:
        return masks.repeat_interleave(2, -1).repeat_interleave(2, -2)

    fine = edit.resample((64, 64), (128, 128))
    expected = enlarge(edit_maps.warp_mask(mask, edit))
    assert torch.equal(edit_maps.warp_mask(enlarge(mask), fine), expected)
    torch.testing.assert_close(fine.offset, torch.tensor([[24 / 127, -24 / 127]]).double())
    center, finer = (metrics.support_moments(part).center for part in (mask, enlarge(mask)))
    back = edit_maps.convert_points(finer, (128, 128), (64, 64))
    torch.testing.assert_close(back, center)


def test_tracks_by_hand() -> None:
    labels = torch.zeros(3, 64, 64, dtype=torch.uint8)
    labels[0, 10:15, 10:15], labels[1, 10:16, 10:16], labels[2, 10:16, 20:26] = 1, 1, 1
    labels[:, 40, 40:59] = 2  # nineteen pixels
    labels[:, 50, 40:60] = 3  # twenty, all of them rim
    owner = torch.zeros_like(labels)
    owner[1, 10:16, 12:20] = 2  # of the core's 4 x 4 pixels 3 x 4
    owner[0, 50, 40:60] = 1
    _, factual = make_factual(Boxes(make_scenes(1, 3)))
    factual = replace(
        factual, reference=labels, masks=owner[:, None] == torch.arange(3)[:, None, None]
    )
    tracks = reference_tracks.find_tracks(factual)
    assert tracks.row.tolist() == [1, 0]  # the earliest of equal frames
    assert tracks.label.tolist() == [1, 3]
    assert tracks.area.tolist() == [25 + 36 + 36, 60]
    assert tracks.slot.tolist() == [2, 1]
    assert tracks.recall.tolist() == [12 / 16, 1]
    assert tracks.purity.tolist() == [12 / 48, 1]
    assert tracks.agrees.tolist() == [False, True]
    assert reference_tracks.shrink_to_core(labels[1:2] == 1).sum() == 16


def test_positions_are_measured_where_most_of_a_track_is_seen() -> None:
    objects = make_scenes(1, 4)
    objects.appearance[0, :, 1, 0] = torch.tensor([5.0, 6, 7, 7])  # half a side, in pixels
    model = Boxes(objects)
    _, factual = make_factual(model, 2)
    shifted = replace(factual.slots, position=factual.slots.position + torch.tensor([0.3, 0.4]))
    centers = record_centers(replace(factual, slots=shifted))
    assert (centers.window.tolist(), centers.label.tolist()) == ([0, 0], [1, 2])
    np.testing.assert_allclose(centers.position_to_reference, 0.5, atol=1e-6)
    np.testing.assert_allclose(centers.position_to_decoded, 0.5, atol=1e-6)
    tracks = reference_objects.find_references(factual)
    assert tracks.window.tolist() == [2, 0]


def test_area_limits_grow_with_the_masks() -> None:
    """A box of six by six is 144 pixels of twice as fine a mask; two by two are sixteen."""
    dataset, factual = make_factual(Boxes(make_scenes(2, 2, (6, 2))), 2)
    canvas = reference_objects.Canvas.of_reference(factual)
    assert (canvas.size, canvas.fewest_pixels) == ((128, 128), 40)
    assert reference_objects.Canvas.of_model(factual).fewest_pixels == 10
    records = matched.record_matched(Boxes(make_scenes(2, 2, (6, 2))), dataset, factual, 4)
    assert set(records.label) == {1}  # the other is no valid object, and no track


def test_what_a_matte_makes_of_finer_masks() -> None:
    """A mask that covers half of a pixel shows half of it."""
    _, factual = make_factual(Boxes(make_scenes(2, 2)), 2)
    assert factual.reference is not None
    labels = torch.zeros_like(factual.reference)
    labels[:, 20:40, 21:41] = 1  # half a pixel to the right
    objects = reference_objects.find_references(replace(factual, reference=labels))
    layer = reference_objects._cut_layers(
        replace(factual, reference=labels), objects, torch.tensor([0]), torch.device("cpu")
    )
    assert layer.alpha[0, 12, 9:22].tolist() == [0, 0.5, *[1] * 9, 0.5, 0]
    assert layer.support[0, 12].nonzero()[:, 0].tolist() == list(range(11, 21))
    frame = factual.frame[objects.window[:1]].double() / 255
    torch.testing.assert_close(layer.rgb + (1 - layer.alpha[:, None]) * layer.background, frame)


def test_preserved_is_what_lies_outside_of_a_square() -> None:
    mask = torch.zeros(1, 9, 9, dtype=torch.bool)
    mask[0, 4, 4] = mask[0, 0, 0] = True
    grown = grow_square(mask)
    assert grown[0, 2:7, 2:7].all()
    assert grown.sum() == 25 + 9 - 1  # the corner's three by three, one pixel in both


def test_psnr_of_a_video_by_hand() -> None:
    decibel = torch.tensor([[20.0, 30.0], [torch.inf, 20.0]]).double()
    expected = [-10 * np.log10((0.01 + 0.001) / 2), -10 * np.log10(0.005)]
    np.testing.assert_allclose(video_psnr(decibel).numpy(), expected)
    assert video_psnr(decibel[:, :1])[1] == torch.inf


def test_closed_slots_count_nowhere() -> None:
    class Gated(Boxes):
        """Closes its last slot in every other frame."""

        def track(self, video: Tensor, starts: Tensor) -> TrackedSlots:
            slots = super().track(video, starts).slots
            weights = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
            open_ = torch.ones(slots.scale.shape, dtype=torch.bool)
            open_[:, ::2, 2] = False
            return TrackedSlots(slots, weights.expand(*slots.scale.shape[:2], -1, -1), open_)

    model = Gated(make_scenes(2, 4))
    _, factual = make_factual(model)
    assert factual.valid[:, 2].tolist() == [False, True] * 4
    assert factual.encoded(torch.tensor([0, 1])).active.tolist() == [
        [True, True, False],
        [True] * 3,
    ]  # type: ignore[union-attr]
    scores = score_factual(model, factual, 4)
    # Two open maps overlap by a half, three by (1/2 + 0 + 1/2) / 3.
    assert scores.attention_overlap.value == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert scores.active_slots == 2.5


def test_covariance_is_of_sure_tracks_off_the_edge() -> None:
    model = Boxes(make_scenes(3, 2))
    _, factual = make_factual(model, 2)
    factual = replace(factual, attention=torch.ones(6, 3, 4))
    chosen = finite_grid.choose_objects(model, factual, 4)
    assert chosen.nonzero().tolist() == [[0, 1], [0, 2], [2, 1], [2, 2], [4, 1], [4, 2]]
    assert finite_grid.choose_objects(model, factual, 4, 2).sum() == 4
    assert factual.reference is not None
    labels = factual.reference.clone()
    labels[:, :, :3] = 1  # the first object now reaches the edge
    chosen = finite_grid.choose_objects(model, replace(factual, reference=labels), 4)
    assert not chosen[:, 1].any()


def test_what_must_stay_in_videos() -> None:
    """A box of 12 x 12 that moves by six pixels: 18 x 12, and two pixels more on every side."""
    _, factual = make_factual(Boxes(make_scenes(2, 2)), 2)
    objects, device = reference_objects.find_references(factual), torch.device("cpu")
    moved = reference_objects.ask_moves(objects).rows(torch.tensor([0]))
    wanted = reference_objects.compute_oracle_targets(factual, objects, moved, device)
    assert wanted.touched.sum() == 22 * 16
    assert wanted.region.sum() == 22 * 16 - 4 * 3  # steps are four-connected where PSNR is taken
    swapped = reference_objects.ask_transplants(factual, objects)
    wanted = reference_objects.compute_oracle_targets(factual, objects, swapped, device)
    assert torch.equal(wanted.touched, wanted.region)


def test_what_a_transplant_preserves_needs_two_sure_tracks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first track of three clips with two each is unsure: as a recipient and as a donor."""
    model = Boxes(make_scenes())
    dataset, factual = make_factual(model, 2)
    objects = reference_objects.find_references(factual)
    unsure = replace(objects, agrees=torch.arange(6) > 0)
    monkeypatch.setattr(matched, "find_references", lambda factual: unsure)
    scores = matched.score_matched(matched.record_matched(model, dataset, factual, 9))
    assert (scores.position.carried, scores.position.carried_videos) == (20, 3)
    assert (scores.transplant.edits, scores.transplant.carried) == (6, 4)
