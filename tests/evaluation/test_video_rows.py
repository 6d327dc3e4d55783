"""Evaluation over all frames: rows, instance metrics, tracks and matched edits of known answers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_oracles import STEP, Discs, video_major
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from geoco import config, edit_maps, metrics
from geoco.data import ClipBatch, SolidsDataset
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
    finite_grid,
    make_unplaced_slots,
    matched,
    reference_objects,
    reference_tracks,
    stability,
    supports,
    windows,
)
from geoco.evaluation.factual import measure_segmentation, record_centers, score_factual
from geoco.evaluation.interfaces import Decoded, Encoded
from geoco.evaluation.video import record_tubes, score_tubes
from geoco.evaluation.video_rows import compute_video_factual
from geoco.geometry import build_grid
from geoco.metrics.rgb import grow_square, video_psnr
from geoco.models import compositing, pretrained
from geoco.models.slots import Slots

COLORS = torch.tensor([[0.5, 0.5, 0.5], [0.8, 0.2, 0.2], [0.2, 0.3, 0.8], [0.1, 0.9, 0.3]])


class Boxes(Discs):
    """Squares of even sides on pixel edges, drawn exactly; slots of every frame are known.

    [window time slot ...]; slot 0 is the background. Half a side is appearance times scale.
    """

    carries = True

    def __init__(self, scenes: Slots, size: int = 64) -> None:
        super().__init__(scenes, size)

    @property
    def slots(self) -> int:
        return self.scenes.scale.shape[-1]

    def encode(self, frames: Tensor, starts: Tensor) -> Encoded:
        number = (frames[:, 0, 0, 0] * 255).round().long()
        return Encoded(self.scenes[number, 0], None)

    def track(self, video: Tensor, starts: Tensor) -> TrackedSlots:
        number = (video[:, 0, 0, 0, 0] * 255).round().long()
        return TrackedSlots(self.scenes[number], None)

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(slots)

    def draw(self, slots: Slots) -> Decoded:
        away = build_grid(self.size, self.size, dtype=torch.float64)
        away = (away - slots.position.double()[..., None, None, :]).abs().amax(-1)
        half = slots.appearance[..., 0].double() * slots.scale.double()
        logits = 1e4 * (half[..., None, None] - away)
        background = slots.appearance[..., 1] > 0
        logits = torch.where(background[..., None, None], 0.0, logits)
        colors = COLORS[: self.slots][: logits.shape[1]].expand(len(logits), -1, -1)
        return colors[..., None, None].expand(-1, -1, -1, self.size, self.size), logits


class DeafBoxes(Boxes):
    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(encoded.slots)


class SwappingBoxes(Boxes):
    """Its first two objects change slots half-way."""

    def track(self, video: Tensor, starts: Tensor) -> TrackedSlots:
        slots = super().track(video, starts).slots
        half = slots.scale.shape[1] // 2
        order = torch.tensor([0, 2, 1])
        later = slots[:, half:].map(lambda part: part[:, :, order])
        return TrackedSlots(Slots.cat((slots[:, :half], later), 1), None)


def make_scenes(clips: int = 3, time: int = 4, sides: Sequence[int] = (12, 16)) -> Slots:
    """Boxes on either side, each clip's a little elsewhere, that sink by a pixel per frame."""
    place = torch.tensor([(0.0, 0.0), (-0.5, 0.0), (0.5, 0.0)])[: len(sides) + 1]
    pixels = ((place + 1) / STEP).floor() + 0.5  # between pixels: sides are even
    pixels = pixels.expand(clips, time, -1, -1).clone()
    pixels[..., 1] += torch.arange(time)[:, None] + torch.arange(clips)[:, None, None]
    half = torch.tensor([0.0, *sides]) / 2
    looks = torch.stack((half, (half == 0).float()), -1).expand(clips, time, -1, -1)
    return Slots(looks.clone(), pixels * STEP - 1, torch.full((clips, time, len(half)), STEP))


@dataclass(frozen=True)
class Clips:
    """A model's own pictures as a dataset; masks of its objects, each pixel `zoom` to a side."""

    model: Boxes
    sources: Sequence[str]
    zoom: int = 1
    description: str = "boxes"

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        chosen = list(indices)
        scenes = self.model.scenes[chosen]
        time = scenes.scale.shape[1]
        rgb, logits = self.model.draw(scenes.map(lambda part: part.flatten(0, 1)))
        image = compositing.composite(rgb, compositing.compute_alpha(logits))
        video = (255 * image).round().to(torch.uint8).unflatten(0, (-1, time))
        video[:, :, :, 0, 0] = torch.tensor(chosen, dtype=torch.uint8)[:, None, None]
        owner = logits.argmax(1).to(torch.uint8).unflatten(0, (-1, time))
        return ClipBatch(
            video=video,
            sources=tuple(self.sources[index] for index in chosen),
            frames=torch.arange(time).expand(len(chosen), -1),
            masks=owner.repeat_interleave(self.zoom, -1).repeat_interleave(self.zoom, -2),
        )


def make_factual(model: Boxes, zoom: int = 1, videos: int | None = None) -> tuple[Clips, Factual]:
    clips = model.scenes.scale.shape[0]
    dataset = Clips(model, video_major(videos or clips, clips // (videos or clips)), zoom)
    return dataset, compute_video_factual(model, dataset, np.arange(clips), 7)


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
    model = Boxes(make_scenes())
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
    assert edits.all.position.f1.estimate == 100
    assert edits.all.position.edits == 4 * 24
    records = matched.record_matched(model, dataset, factual, 9)
    pairs = matched.score_matched(records)
    assert (pairs.objects, pairs.windows, pairs.videos) == (6, 3, 3)
    assert pairs.position.f1 is not None
    assert pairs.position.f1.estimate == 100
    assert pairs.position.change is not None
    assert pairs.position.change.estimate == 0
    assert pairs.position.carried == 24
    assert pairs.transplant.carried == 6


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
