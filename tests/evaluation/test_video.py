"""Whole-video editing: tubes counted by hand, and analytic models."""

import math
from dataclasses import replace

import pytest
import torch
from evaluation_oracles import STEP, Discs, scenes, video_major
from helpers_tubes import (
    POSITION,
    SCALE,
    Boxes,
    Deaf,
    DeafBoxes,
    Moving,
    boxes,
    discs,
    f1_of,
    make_videos,
    record_tubes,
)
from torch import Tensor

from geoco.errors import GeocoError
from geoco.evaluation.commands import MOVES
from geoco.evaluation.interfaces import (
    Decoded,
    Encoded,
    TrackedSlots,
    make_unplaced_slots,
)
from geoco.evaluation.video import (
    KINDS,
    score_tubes,
)
from geoco.evaluation.video_rows import choose_first_windows
from geoco.evaluation.windows import SEED, VIDEO_SEED, draw_starting_positions
from geoco.models.slots import Slots


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


@pytest.mark.parametrize("batch", [1, 3, 9])
def test_no_more_frames_are_decoded_at_once_than_asked_for(batch: int) -> None:
    model = Moving(discs())
    record_tubes(model, make_videos(model), batch)
    assert model.largest == batch
    assert model.followed == (8 if batch == 9 else 4)  # never less than a video


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
