"""Whole-video editing: tubes counted by hand, analytic models, and a loop over edits and frames."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product

import numpy as np
import pytest
import torch
from evaluation_oracles import STEP, Discs, scenes, video_major
from torch import Tensor

from geoco import config, metrics
from geoco.data import ClipBatch, SolidsDataset
from geoco.errors import GeocoError
from geoco.evaluation import video as tubes
from geoco.evaluation.adapters import GeoCoModel
from geoco.evaluation.commands import FACTORS, IDENTITY, MOVES
from geoco.evaluation.editing import REPLICATES
from geoco.evaluation.interfaces import (
    Decoded,
    Encoded,
    OneSlotModel,
    SlotModel,
    TrackedSlots,
    VideoModel,
    make_unplaced_slots,
)
from geoco.evaluation.reference_tracks import Anchor, count_fewest_pixels, find_anchors
from geoco.evaluation.video import (
    KINDS,
    TubeEdits,
    TubeRecords,
    compare_tubes,
    find_common_pairs,
    score_tubes,
)
from geoco.evaluation.video_rows import choose_first_windows, compute_video_factual
from geoco.evaluation.windows import SEED, VIDEO_SEED, Factual, Windows, draw_starting_positions
from geoco.geometry import build_grid
from geoco.models.geoco import GeoCo
from geoco.models.slots import Binding, Slots

POSITION, SCALE, TRANSPLANT = range(3)


class Moving(Discs):
    """Discs whose slots of every frame are known: [window time slot ...]."""

    carries = True

    def __init__(self, scenes: Slots, size: int = 64) -> None:
        super().__init__(scenes, size)
        self.seen: dict[int, Tensor] = {}  # where the slots of each window were told to start
        self.largest = self.followed = 0  # frames at once

    @property
    def slots(self) -> int:
        return self.scenes.scale.shape[-1]

    def track(self, video: Tensor, starts: Tensor) -> TrackedSlots:
        number = (video[:, 0, 0, 0, 0] * 255).round().long()
        self.seen |= dict(zip(number.tolist(), starts, strict=True))
        self.followed = max(self.followed, video.shape[0] * video.shape[1])
        slots = self.scenes
        return TrackedSlots(
            Slots(slots.appearance[number], slots.position[number], slots.scale[number]), None
        )

    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        self.largest = max(self.largest, len(slots.scale))
        return self.draw(slots)


class Deaf(Moving):
    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(encoded.slots)


class Boxes(Moving):
    """Squares instead of discs, so that pixels are easily counted."""

    def draw(self, slots: Slots) -> Decoded:
        away = build_grid(self.size, self.size, dtype=torch.float64)
        away = (away - slots.position.double()[..., None, None, :]).abs().amax(-1)
        half = slots.appearance[..., 0].double() * slots.scale.double()
        logits = 1e4 * (half[..., None, None] - away)
        background = slots.appearance[..., 1] > 0
        logits = torch.where(background[..., None, None], 0.0, logits)
        return torch.rand(*logits.shape[:2], 3, self.size, self.size), logits


class DeafBoxes(Boxes):
    def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
        return self.draw(encoded.slots)


@dataclass(frozen=True)
class Videos:
    """Windows of which each is a picture of its own number, with reference masks or without."""

    sources: Sequence[str]
    masks: Tensor | None
    time: int
    size: int = 64
    asked: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, indices: Sequence[int]) -> ClipBatch:
        self.asked.extend(indices)
        number = torch.tensor(indices, dtype=torch.uint8)[:, None, None, None, None]
        return ClipBatch(
            video=number.expand(-1, self.time, 3, self.size, self.size),
            sources=tuple(self.sources[index] for index in indices),
            frames=torch.arange(self.time).expand(len(indices), -1),
            masks=None if self.masks is None else self.masks[list(indices)],
        )


def discs(windows: int = 5, time: int = 4, objects: int = 1) -> Slots:
    """Random discs that sink by a pixel per frame."""
    first = scenes(windows, (10.0, 13.0) if objects == 1 else (5.0, 6.0), objects)
    fall = torch.arange(time)[None, :, None, None] * torch.tensor([0.0, STEP])
    return Slots(
        first.appearance[:, None].expand(-1, time, -1, -1).clone(),
        first.position[:, None] + fall,
        first.scale[:, None].expand(-1, time, -1).clone(),
    )


def boxes(sides: Sequence[Sequence[int]], place: tuple[float, float] = (0.0, 0.0)) -> Slots:
    """One box in front of a background; its side in pixels, even, for each window and frame."""
    side = torch.tensor(sides, dtype=torch.float32)
    looks = torch.stack((side / 2, torch.zeros_like(side)), -1)[:, :, None]
    rest = torch.tensor([0.0, 1.0]).expand_as(looks)
    return Slots(
        torch.cat((rest, looks), 2),
        torch.tensor(place).expand(*side.shape, 2, 2).clone(),
        torch.full((*side.shape, 2), STEP),
    )


def make_videos(model: Moving, sources: Sequence[str] | None = None) -> Videos:
    """The windows of a model, its own factual ownership as the reference."""
    slots = model.scenes
    windows, time = slots.scale.shape[:2]
    _, logits = model.draw(
        Slots(
            slots.appearance.flatten(0, 1), slots.position.flatten(0, 1), slots.scale.flatten(0, 1)
        )
    )
    owner = logits.argmax(1).to(torch.uint8).unflatten(0, (windows, time))
    return Videos(sources or [f"video {w}" for w in range(windows)], owner, time, model.size)


def record_tubes(
    model: SlotModel,
    dataset: Windows,
    batch: int,
    limit: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TubeRecords:
    """The records of a dataset's first windows."""
    chosen = choose_first_windows(dataset, limit)
    factual = compute_video_factual(model, dataset, chosen, batch)
    return tubes.record_tubes(model, factual, batch, progress)


def f1_of(records: TubeRecords, kind: int) -> list[float]:
    return records.edits.f1[records.edits.kind == kind].tolist()


@pytest.mark.parametrize("objects", [1, 2])
def test_a_perfect_decoder_scores_perfectly(objects: int) -> None:
    model = Moving(discs(objects=objects))
    scores = score_tubes(record_tubes(model, make_videos(model), 7))
    assert (scores.videos, scores.eligible, scores.frames) == (5, 5, 4)
    assert (scores.position.edits, scores.scale.edits, scores.transplant.edits) == (20, 20, 5)
    assert scores.position.f1.estimate == scores.position.f1.low == 100
    assert scores.scale.f1.estimate > (97 if objects == 1 else 93)  # scaled staircases
    assert scores.transplant.f1.estimate > (96 if objects == 1 else 92)


def test_a_decoder_that_ignores_commands_scores_as_no_edit() -> None:
    objects = discs()
    deaf, perfect = (
        score_tubes(record_tubes(kind(objects), make_videos(kind(objects)), 7))
        for kind in (Deaf, Moving)
    )
    for kind in KINDS:
        one, two = getattr(deaf, kind), getattr(perfect, kind)
        assert one.f1.estimate == pytest.approx(one.noop, abs=1e-12)
        assert one.noop == two.noop < 95


def test_a_tube_with_an_empty_frame_by_hand() -> None:
    """A box of 12 x 12 that is hidden in the second frame: empty frames add nothing."""
    records = record_tubes(DeafBoxes(boxes([[12, 0]])), make_videos(Boxes(boxes([[12, 0]]))), 5)
    assert f1_of(records, POSITION) == [144 / 288] * 4
    # Targets of 6, 9, 15 and 18 pixels' side.
    expected = [2 * 36 / (144 + 36), 2 * 81 / (144 + 81), 288 / (144 + 225), 288 / (144 + 324)]
    assert f1_of(records, SCALE) == expected
    assert records.edits.command.tolist() == [0, 1, 2, 3, 0, 1, 3, 4]
    scores = score_tubes(records)
    assert scores.position.f1.estimate == scores.position.noop == 50
    assert scores.scale.f1.estimate == pytest.approx(100 * sum(expected) / 4)
    assert scores.transplant.edits == 0  # nobody to take an appearance from
    assert math.isnan(scores.transplant.f1.estimate)


def test_what_appears_in_an_empty_frame_counts() -> None:
    class Ghost(Boxes):
        """Draws a box of 6 x 6 where an edited object is hidden."""

        def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
            touched = (slots.position != encoded.slots.position).flatten(1).any(1)
            touched |= (slots.scale != encoded.slots.scale).any(1)
            looks = encoded.slots.appearance.clone()
            looks[:, 1, 0] = torch.where(touched & (looks[:, 1, 0] == 0), 3.0, looks[:, 1, 0])
            return self.draw(replace(encoded.slots, appearance=looks))

    model = Ghost(boxes([[12, 0]]))
    records = record_tubes(model, make_videos(model), 1)
    assert f1_of(records, POSITION) == [144 / (288 + 36)] * 4
    assert records.edits.noop[:4].tolist() == [0.5] * 4


def test_what_disappears_in_a_frame_counts() -> None:
    class Vanishing(Boxes):
        """Obeys, but loses whatever has moved in the second frame, which has a smaller box."""

        def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
            gone = (slots.position != encoded.slots.position).flatten(1).any(1)
            gone &= encoded.slots.appearance[:, 1, 0] == 4.0
            rgb, logits = self.draw(slots)
            logits[gone, 1] = -1e6
            return rgb, logits

    model = Vanishing(boxes([[12, 8]]))
    records = record_tubes(model, make_videos(model), 3)
    assert f1_of(records, POSITION) == [2 * 144 / (144 + 144 + 64)] * 4


def test_a_valid_edit_has_enough_pixels_in_the_whole_tube() -> None:
    """A box of 6 x 6 in columns 1 to 6: moved left one column remains, 6 pixels in a frame."""
    place = (-1 + 3.5 * STEP, STEP / 2)
    for sides, kept in (([[6, 6]], True), ([[6, 0]], False)):
        model = Boxes(boxes(sides, place))
        records = record_tubes(model, make_videos(model), 4)
        left = MOVES.index((-6, 0))
        assert records.edits.valid[left] == kept
        assert score_tubes(records).position.edits == 3 + kept
        assert score_tubes(records).scale.edits == 3 + kept  # half the size is 9 pixels


def test_donors_are_the_next_eligible_videos() -> None:
    """The third has too few pixels, the last is smaller than ten in its largest frame too."""
    model = Boxes(boxes([[12, 10], [10, 10], [2, 2], [8, 6], [6, 8], [0, 2]]))
    records = record_tubes(model, make_videos(model), 5)
    assert records.eligible.tolist() == [True, True, False, True, True, False]
    assert records.pairs == ((0, 1), (1, 3), (3, 4), (4, 0))
    moved = records.edits.of("position")
    assert moved.donor_video.tolist() == moved.video.tolist()
    # All are at one place in one size, so that appearance alone tells the side of a box.
    swapped = records.edits.of("transplant")
    assert swapped.f1.tolist() == [1.0] * 4
    assert swapped.noop.tolist() == [
        2 * (100 + 100) / (144 + 100 + 100 + 100),
        2 * (64 + 36) / (100 + 100 + 64 + 36),
        2 * (36 + 36) / (64 + 36 + 36 + 64),
        2 * (36 + 64) / (36 + 64 + 144 + 100),
    ]


def test_a_donor_may_sit_in_another_slot() -> None:
    """A box of 12 on the left in slot 1, with a small one; and one of 10 on the right in slot 2."""
    side = torch.tensor([[0.0, 12, 6], [0.0, 6, 10]])[:, None].expand(-1, 2, -1)
    left, right = (-1 + 15.5 * STEP, 0.0), (1 - 15.5 * STEP, 0.0)
    place = torch.tensor([(0.0, 0.0), left, right]).expand(2, 2, -1, -1)
    looks = torch.stack((side / 2, (side == 0).float()), -1)
    model = Boxes(Slots(looks, place.clone(), torch.full_like(side, STEP)))
    swapped = record_tubes(model, make_videos(model), 5).edits.of("transplant")
    assert swapped.f1.tolist() == [1.0, 1.0]
    assert swapped.noop.tolist() == [2 * 100 / (144 + 100)] * 2


def record(labels: Tensor, masks: Tensor, background: int = 0) -> Factual:
    time, slots, height, width = masks.shape
    large = masks.sum((-2, -1)) >= count_fewest_pixels(height, width)
    return Factual(
        window=np.zeros(time, dtype=np.int64),
        source=("a",) * time,
        slots=Slots(
            torch.zeros(time, slots, 1), torch.zeros(time, slots, 2), torch.ones(time, slots)
        ),
        attention=None,
        masks=masks,
        background=torch.full((time,), background),
        valid=large & (torch.arange(slots) != background),
        frame=torch.zeros(time, 3, height, width, dtype=torch.uint8),
        image=torch.zeros(time, 3, height, width),
        psnr=torch.zeros(time, dtype=torch.float64),
        reference=labels,
        length=time,
    )


def find_anchor(factual: Factual) -> Anchor | None:
    (anchor,) = find_anchors(factual, [0])
    return anchor


def paint_labels(time: int, *areas: tuple[int, int, slice]) -> Tensor:
    """Labels on 64 x 64: in frame t, part of row 2n is labelled n."""
    labels = torch.zeros(time, 64, 64, dtype=torch.uint8)
    for frame, label, columns in areas:
        labels[frame, 2 * label, columns] = label
    return labels


def assign_slots(labels: Tensor, *slots: int) -> Tensor:
    """Ownership in which label n belongs to the n-th of `slots`; slot 0 is the rest."""
    owner = torch.zeros_like(labels)
    for label, slot in enumerate(slots, 1):
        owner[labels == label] = slot
    return owner[:, None] == torch.arange(4)[:, None, None]


def test_the_object_of_largest_area_over_time_is_anchored_where_it_is_largest() -> None:
    first = (0, 1, slice(0, 50))  # the largest in one frame, but only 50 in total
    labels = paint_labels(
        3, first, (0, 2, slice(0, 12)), (1, 2, slice(0, 30)), (2, 2, slice(0, 30))
    )
    masks = torch.cat(
        (
            assign_slots(labels[:1], 1, 3),
            assign_slots(labels[1:2], 3, 2),
            assign_slots(labels[2:], 2, 1),
        )
    )
    assert find_anchor(record(labels, masks)) == Anchor(label=2, frame=1, slot=2)
    equal = paint_labels(2, (0, 1, slice(0, 20)), (1, 2, slice(0, 20)))
    assert find_anchor(record(equal, assign_slots(equal, 3, 1))) == Anchor(label=1, frame=0, slot=3)


def test_association_is_one_to_one() -> None:
    """The larger object shares most with slot 1, which the smaller one needs more."""
    labels = paint_labels(2, (0, 1, slice(0, 50)), (0, 2, slice(0, 22)))
    owner = torch.zeros_like(labels)
    owner[0, 2, :24], owner[0, 2, 24:43], owner[0, 4, :22] = 1, 2, 1
    masks = owner[:, None] == torch.arange(4)[:, None, None]
    assert find_anchor(record(labels, masks)) == Anchor(label=1, frame=0, slot=2)


def test_who_is_not_eligible() -> None:
    twenty, nineteen = (paint_labels(2, (1, 1, slice(0, count))) for count in (20, 19))

    def divide(mine: int) -> Tensor:
        """Slot 2 has so many of the object's pixels, slots 1 and 3 have the others."""
        owner = torch.zeros_like(twenty)
        owner[1, 2, :mine], owner[1, 2, mine:15], owner[1, 2, 15:20] = 2, 1, 3
        return owner[:, None] == torch.arange(4)[:, None, None]

    assert find_anchor(record(twenty, divide(10))) == Anchor(1, 1, 2)
    assert find_anchor(record(nineteen, divide(10))) is None  # the object is too small
    assert find_anchor(record(twenty, divide(9))) is None  # its slot's support is
    assert find_anchor(record(twenty, divide(10), background=2)) is None
    assert find_anchor(record(paint_labels(2), divide(10))) is None  # there is no object
    closed = torch.tensor([True, True, False, True]).expand(2, 4)
    assert find_anchor(replace(record(twenty, divide(10)), active=closed)) is None
    assert [count_fewest_pixels(n, n) for n in (64, 128, 16, 24)] == [10, 40, 1, 2]


def test_the_background_is_the_slot_of_largest_alpha() -> None:
    model = Boxes(boxes([[12, 12], [50, 10], [44, 44]]))
    assert record_tubes(model, make_videos(model), 4).eligible.tolist() == [True, False, True]


def test_first_windows_start_where_they_do_in_every_evaluation() -> None:
    model = Moving(discs(6))
    dataset = make_videos(model, video_major(3, 2))
    assert choose_first_windows(dataset).tolist() == [0, 2, 4]
    records = record_tubes(model, dataset, 100)
    assert set(dataset.asked) == set(model.seen) == {0, 2, 4}
    for window, starts in model.seen.items():
        assert torch.equal(starts, draw_starting_positions(window, 2, seed=VIDEO_SEED))
    single = Moving(discs(6))
    single.carries = False  # a model of single frames starts as it does in their tables
    record_tubes(single, dataset, 100)
    for window, starts in single.seen.items():
        assert torch.equal(starts, draw_starting_positions(window, 2, seed=SEED))
    assert records.sources == ("video 0", "video 1", "video 2")
    some = record_tubes(model, dataset, 100, limit=2)
    assert (some.sources, some.pairs) == (("video 0", "video 1"), ((0, 1), (1, 0)))


def test_slots_without_position_are_transplanted_alone() -> None:
    class Unplaced(Boxes):
        """Knows where boxes are, but does not say."""

        def track(self, video: Tensor, starts: Tensor) -> TrackedSlots:
            return TrackedSlots(
                make_unplaced_slots(super().track(video, starts).slots.appearance), None
            )

        def decode(self, encoded: Encoded, slots: Slots) -> Decoded:
            here = torch.zeros_like(slots.position), torch.full_like(slots.scale, STEP)
            return self.draw(Slots(slots.appearance, *here))

    model = Unplaced(boxes([[12, 12], [8, 8]]))
    scores = score_tubes(record_tubes(model, make_videos(model), 4))
    assert (scores.position.edits, scores.scale.edits, scores.transplant.edits) == (0, 0, 2)
    assert math.isnan(scores.position.f1.estimate)
    # By radii a box comes out as large as the recipient's, but is drawn in its own size.
    assert scores.transplant.f1.estimate == pytest.approx(100 * 2 * 64 / (144 + 64))
    assert scores.transplant.noop == 100


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


def make_tiny_model(temporal: bool = False) -> GeoCoModel:
    """Without training, but loud enough that slots differ; also the temporal initializer."""
    torch.manual_seed(1)
    settings = config.ModelConfig(
        encoder=config.ConvEncoderConfig(width=8),
        slots=config.SlotsConfig(count=4, dim=8, update_dim=8, grid_dim=8),
        decoder=config.DecoderConfig(broadcast=4, layers=((8, 3), (16, 3))),
        selector=config.SelectorConfig(
            threshold=0.5, least_area=1, least_peak=0.0, label_limit=0.1
        ),
        temporal=config.TemporalConfig(enabled=temporal, width=8, heads=2, hidden=8, history=2),
    )
    model = GeoCo(settings).double()
    assert model.selector is not None
    with torch.no_grad():
        for weight in (model.decoder.place.weight, model.decoder.alpha.weight):
            weight.mul_(6)
        model.attention.query.weight.mul_(8)
        for weight in model.selector.judge.parameters():
            weight.mul_(4)
        if model.temporal is not None:
            model.temporal.residual.weight.normal_(0, 0.1)
    return GeoCoModel(model)


def make_small_solids(length: int = 3) -> SolidsDataset:
    return SolidsDataset(
        config.SolidsConfig(
            episodes=config.EpisodesConfig(train=1, val=8, test=1),
            frames=20,
            height=16,
            width=16,
            supersample=1,
            window=config.WindowConfig(length=length, stride=8),
        ),
        "val",
    )


def warp_by_loop(mask: np.ndarray, factor: float, old: list[float], new: list[float]) -> np.ndarray:
    """The map that takes one place to another and scales about it, pixel by pixel."""
    size = len(mask)
    result = np.zeros_like(mask)
    for row, column in product(range(size), range(size)):
        point = (2 * column / (size - 1) - 1, 2 * row / (size - 1) - 1)
        source = [(q - n) / factor + o for q, o, n in zip(point, old, new, strict=True)]
        x, y = (math.floor((q + 1) / 2 * (size - 1) + 0.5 + 1e-6) for q in source)
        if 0 <= x < size and 0 <= y < size:
            result[row, column] = mask[y, x]
    return result


def one_by_one(model: GeoCoModel, dataset: SolidsDataset) -> list[tuple[float, ...]]:
    """Every edit alone and frame by frame: video, donor, kind, command, F1, no-op."""
    anchors: dict[int, tuple[Binding, int, np.ndarray]] = {}
    network = model.model
    first = choose_first_windows(dataset)
    factual = compute_video_factual(model, dataset, first, 1000)
    for number, anchor in enumerate(find_anchors(factual, range(len(first)))):
        if anchor is not None:
            window = int(first[number])
            frames = dataset.batch([window]).images().double()
            seed = VIDEO_SEED if model.carries else SEED
            starts = draw_starting_positions(window, 4, seed=seed)[None].double()
            binding, slot = network.bind(frames, starts), anchor.slot
            owner = network.decode(binding).fields.logits[0].argmax(1).numpy()
            anchors[number] = binding, slot, owner == slot

    def find_pixels(binding: Binding, frame: int, slot: int, state: Slots) -> np.ndarray:
        """Where a slot is seen in a frame in which it has another state; all are drawn anew."""
        edited = binding.slots[0, [frame]].with_slot(slot, state)
        scene = Binding(edited, binding.attention[0, [frame]], binding.gate[0, [frame]])
        return (network.decode(scene).fields.logits[0].argmax(0) == slot).numpy()

    def parts(slots: Slots) -> tuple[Tensor, Tensor, Tensor]:
        return slots.appearance, slots.position, slots.scale

    result: list[tuple[float, ...]] = []
    videos = list(anchors)
    wanted = [(POSITION, c) for c in range(4)] + [(SCALE, c) for c in range(5) if c != IDENTITY]
    for video, (kind, command) in product(videos, [*wanted, (TRANSPLANT, 0)]):
        donor = videos[(videos.index(video) + 1) % len(videos)] if kind == TRANSPLANT else video
        (binding, slot, masks), (other, given, sources) = anchors[video], anchors[donor]
        shared, area, kept, before = 0, 0, 0, 0
        for frame in range(binding.slots.scale.shape[1]):
            look, place, scale = (part[0, [frame]][:, [slot]] for part in parts(binding.slots))
            theirs = [part[0, [frame]][:, [given]] for part in parts(other.slots)]
            factor, old = 1.0, place[0, 0].tolist()
            new = old
            if kind == POSITION:
                new = [q + 2 * d / 15 for q, d in zip(old, MOVES[command], strict=True)]
                state = Slots(look, torch.tensor([[new]], dtype=torch.float64), scale)
            elif kind == SCALE:
                factor = FACTORS[command]
                state = Slots(look, place, scale * factor)
            else:
                old, factor = theirs[1][0, 0].tolist(), float(scale / theirs[2])
                state = Slots(theirs[0], place, scale)
            target = warp_by_loop(sources[frame], factor, old, new)
            drawn, same = find_pixels(binding, frame, slot, state), masks[frame]
            shared, area = shared + (drawn & target).sum(), area + drawn.sum() + target.sum()
            kept, before = kept + (same & target).sum(), before + same.sum() + target.sum()
        result.append((video, donor, kind, command, 2 * shared / area, 2 * kept / before))
    return result


def test_records_of_a_network_are_those_of_a_loop() -> None:
    model, dataset = make_tiny_model(temporal=True), make_small_solids()
    with torch.no_grad():
        expected = np.array(one_by_one(model, dataset))
    edits = record_tubes(model, dataset, 7).edits
    assert len(edits) == len(expected) >= 3 * 9
    columns = (edits.video, edits.donor_video, edits.kind, edits.command, edits.f1, edits.noop)
    np.testing.assert_allclose(np.stack(columns, 1), expected)
    assert len(set(edits.f1.tolist())) > len(edits) / 2  # the numbers say something


@pytest.mark.parametrize("kind", ["tiny", "discs"])
def test_the_compute_batch_changes_nothing(kind: str) -> None:
    model = make_tiny_model() if kind == "tiny" else Moving(discs())
    dataset = make_small_solids() if kind == "tiny" else make_videos(Moving(discs()))
    one, two, three = (record_tubes(model, dataset, batch) for batch in (2, 9, 1000))
    assert one.eligible.any()
    for other in (two, three):
        np.testing.assert_array_equal(one.eligible, other.eligible)
        for part in fields(TubeEdits):
            np.testing.assert_allclose(
                getattr(one.edits, part.name), getattr(other.edits, part.name)
            )


@pytest.mark.parametrize("batch", [1, 3, 9])
def test_no_more_frames_are_decoded_at_once_than_asked_for(batch: int) -> None:
    model = Moving(discs())
    record_tubes(model, make_videos(model), batch)
    assert model.largest == batch
    assert model.followed == (8 if batch == 9 else 4)  # never less than a video


def test_a_temporal_model_is_tracked_by_its_initializer() -> None:
    model, dataset = make_tiny_model(True), make_small_solids()
    network = model.model
    assert network.temporal is not None
    video = dataset.batch([0, 2]).images().double()
    starts = torch.stack([draw_starting_positions(window, 4) for window in (0, 2)])
    tracks = model.track(video, starts)
    assert tracks.attention is not None
    start = network.attention.start_slots(starts.double())
    history: list[Slots] = []
    with torch.no_grad():
        for frame in range(3):
            iterations = network.settings.slots.later_iterations
            if frame == 0:
                iterations = network.settings.slots.first_iterations
            bound = network.attention(network.encoder(video[:, frame]), start, iterations)
            history.append(bound.slots)
            start = network.temporal(history[-2:])
            torch.testing.assert_close(tracks.slots.position[:, frame], bound.slots.position)
            torch.testing.assert_close(tracks.slots.appearance[:, frame], bound.slots.appearance)
            torch.testing.assert_close(tracks.attention[:, frame], bound.attention)
        plain = network.bind(video, starts.double(), temporal=False)
    assert not torch.allclose(tracks.slots.position[:, 1], plain.slots.position[:, 1])


def test_protocols() -> None:
    assert isinstance(make_tiny_model(), VideoModel)
    assert isinstance(make_tiny_model(), OneSlotModel)
    assert isinstance(Moving(discs()), VideoModel)
    assert not isinstance(Discs(scenes(1)), VideoModel)


def test_progress_ends_where_it_should() -> None:
    heard: list[tuple[int, int]] = []
    model = Boxes(boxes([[12, 12], [2, 2], [8, 8], [2, 2]]))
    record_tubes(model, make_videos(model), 4, progress=lambda *news: heard.append(news))
    # Two objects in two frames each, with four moves, four sizes and a transplant.
    assert heard[-1] == (36, 36)
    assert heard == sorted(heard)


def test_nobody_eligible_gives_no_scores() -> None:
    model = Boxes(boxes([[2, 2], [2, 2]]))
    scores = score_tubes(record_tubes(model, make_videos(model), 4))
    assert (scores.videos, scores.eligible, scores.frames) == (2, 0, 2)
    for kind in KINDS:
        assert getattr(scores, kind).edits == 0
        assert math.isnan(getattr(scores, kind).f1.low)


def test_messages() -> None:
    model = Moving(discs())
    dataset = make_videos(model)
    with pytest.raises(GeocoError, match=r"^Discs cannot follow slots .* with a `track` method$"):
        record_tubes(Discs(scenes(1)), dataset, 4)
    with pytest.raises(GeocoError, match=r"windows of several frames, but .* have one"):
        record_tubes(Moving(discs(time=1)), make_videos(Moving(discs(time=1))), 4)
    with pytest.raises(GeocoError, match="reference masks, but the dataset has none"):
        record_tubes(model, replace(dataset, masks=None), 4)
    with pytest.raises(GeocoError, match="64 x 64 pixels, but the dataset has 32 x 32"):
        record_tubes(model, replace(dataset, masks=None, size=32), 4)
    with pytest.raises(GeocoError, match="at least one window"):
        record_tubes(model, dataset, 4, limit=0)
