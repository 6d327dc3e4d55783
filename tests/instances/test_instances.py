"""Instances from pixels: scenes made by hand, and the quality on `solids` and the reference."""

from pathlib import Path

import numpy as np
import pytest

from geoco.config import SolidsConfig
from geoco.data.solids import SolidsDataset
from geoco.errors import GeocoError
from geoco.instances import Scores, find_instances, grow_masks, score_masks
from geoco.instances.find import check_frames
from geoco.solids import render_scenes

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT.parent / "shared" / "data" / "obj3d_cycles_val.npz"

RED, GREEN, BLUE = (125, 64, 63), (64, 121, 75), (64, 63, 120)
BLACK, WHITE = (12, 12, 12), (240, 240, 240)


class Canvas:
    """A grey floor, brighter and warmer towards the camera; what is drawn later is in front."""

    def __init__(self, size: int = 64) -> None:
        self.size, self.count = size, 0
        self.rows, self.columns = (np.mgrid[:size, :size] + 0.5) * 64 / size
        shade = 100 + 40 * self.rows / 64
        self.frame = np.stack([shade + 3, shade, shade - 4], -1).round().astype(np.uint8)
        self.masks = np.zeros((size, size), np.uint8)

    def disc(self, row: float, column: float, radius: float, color: tuple[int, ...]) -> "Canvas":
        return self._object(np.hypot(self.rows - row, self.columns - column) < radius, color)

    def box(self, top: int, left: int, bottom: int, right: int, color: tuple[int, ...]) -> "Canvas":
        return self._object(self._inside(top, left, bottom, right), color)

    def paint(
        self, top: int, left: int, bottom: int, right: int, color: tuple[int, ...]
    ) -> "Canvas":
        """A patch of colour that is no object: a glint, or what metal mirrors."""
        self.frame[self._inside(top, left, bottom, right)] = color
        return self

    def shadow(self, row: float, column: float, radius: float, light: float) -> "Canvas":
        dark = np.hypot(self.rows - row, self.columns - column) < radius
        self.frame[dark] = (self.frame[dark] * light).astype(np.uint8)
        return self

    def _inside(self, top: int, left: int, bottom: int, right: int) -> np.ndarray:
        rows = (self.rows >= top) & (self.rows < bottom)
        return rows & (self.columns >= left) & (self.columns < right)

    def _object(self, inside: np.ndarray, color: tuple[int, ...]) -> "Canvas":
        self.count += 1
        self.frame[inside] = color
        self.masks[inside] = self.count
        return self


def find_in(*canvases: Canvas) -> np.ndarray:
    return find_instances(np.stack([canvas.frame for canvas in canvases]))


def score_canvases(*canvases: Canvas) -> Scores:
    return score_masks(np.stack([canvas.masks for canvas in canvases]), find_in(*canvases))


def assert_all_found(scores: Scores, objects: int, overlap: float) -> None:
    assert len(scores.iou) == objects
    assert scores.iou.min() >= overlap, scores.iou
    assert scores.false == 0


# -- scenes made by hand ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [48, 64, 128])
def test_objects_that_stand_alone_are_found_to_the_pixel(size: int) -> None:
    scene = Canvas(size).disc(24, 18, 6, RED).box(20, 38, 32, 50, GREEN).disc(46, 40, 9, BLUE)
    scores = score_canvases(scene)
    assert_all_found(scores, 3, 1.0)


@pytest.mark.parametrize("size", [64, 128])
def test_touching_squares_of_different_colour(size: int) -> None:
    scene = Canvas(size).box(24, 16, 36, 28, RED).box(24, 28, 36, 40, BLUE)
    assert_all_found(score_canvases(scene), 2, 0.9)


@pytest.mark.parametrize("size", [64, 128])
def test_touching_discs_of_the_same_colour(size: int) -> None:
    """In one frame, with no other object to learn sizes from."""
    scene = Canvas(size).disc(30, 22, 6.5, GREEN).disc(30, 34, 6.5, GREEN)
    assert_all_found(score_canvases(scene), 2, 0.9)


def test_one_colour_in_front_of_itself() -> None:
    """The hull has floor in it, and the whole is larger than the objects that stand alone."""
    scene = Canvas().disc(26, 24, 6, RED).disc(34, 29, 7, RED)
    scene.disc(26, 46, 6, BLUE).disc(42, 52, 7.5, GREEN)
    assert_all_found(score_canvases(scene), 4, 0.75)


@pytest.mark.parametrize("alone", [True, False])
def test_an_object_cut_in_two_by_an_occluder_is_one(alone: bool) -> None:
    """With other objects to learn sizes from, and without."""
    scene = Canvas().box(22, 20, 34, 36, BLUE).box(18, 26, 38, 31, RED)
    if not alone:
        scene.box(22, 44, 34, 58, GREEN)
    assert_all_found(score_canvases(scene), scene.count, 0.9)


def test_two_objects_on_either_side_of_a_third_are_two() -> None:
    scene = Canvas().disc(28, 18, 6, BLUE).disc(28, 42, 6, BLUE).disc(30, 30, 7, RED)
    scene.disc(28, 56, 6, GREEN)
    assert_all_found(score_canvases(scene), 4, 0.9)


def test_glints_and_dark_reflections_do_not_divide_an_object() -> None:
    scene = Canvas().disc(30, 30, 9, GREEN).paint(26, 28, 28, 30, WHITE)
    scene.paint(31, 27, 33, 33, BLACK).paint(34, 28, 38, 32, BLUE)
    assert_all_found(score_canvases(scene), 1, 1.0)


@pytest.mark.parametrize("light", [0.8, 0.6, 0.45])
def test_a_shadow_is_no_object(light: float) -> None:
    scene = Canvas().shadow(36, 24, 9, light).disc(28, 30, 7, RED)
    assert_all_found(score_canvases(scene), 1, 0.95)
    assert not find_in(Canvas().shadow(36, 24, 9, light)).any()


@pytest.mark.parametrize("color", [RED, (255, 30, 30), (62, 31, 31)])
def test_an_edge_pixel_belongs_to_whom_it_shows_most(color: tuple[int, int, int]) -> None:
    """Drawn eight times as fine and averaged; bright and dim solids are outlined alike."""
    fine = Canvas(512).disc(30.3, 29.6, 8, color)
    blocks = (64, 8, 64, 8)
    frame = fine.frame.reshape(*blocks, 3).mean((1, 3)).round().astype(np.uint8)
    share = fine.masks.reshape(blocks).mean((1, 3))
    mask = find_instances(frame[None])[0] > 0
    assert mask[share > 0.6].all()
    assert not mask[share < 0.25].any()


def test_an_enlarged_frame_has_the_same_instances() -> None:
    scene = Canvas().disc(30, 22, 6.5, GREEN).disc(30, 34, 6.5, GREEN).box(22, 48, 34, 58, RED)
    scene.paint(50, 20, 52, 23, RED)  # six pixels: a speck, at every size
    small = find_in(scene)
    assert len(np.unique(small)) == 4
    assert not small[0, 50:52, 20:23].any()
    large = find_instances(scene.frame[None].repeat(2, 1).repeat(2, 2))
    assert (large != small.repeat(2, 1).repeat(2, 2)).mean() < 0.002


def test_an_empty_floor_has_no_instances() -> None:
    assert not find_in(Canvas(), Canvas()).any()


# -- time ------------------------------------------------------------------------------------------


def draw_passing(step: int) -> Canvas:
    """A disc that goes behind another of its colour, and comes out on the other side."""
    return Canvas().disc(27, 10 + 2 * step, 6, RED).disc(30, 32, 7, RED).disc(44, 52, 8, BLUE)


def test_objects_seen_apart_stay_apart_while_one_hides_the_other() -> None:
    scenes = [draw_passing(step) for step in range(23)]
    hidden_most = [step for step in range(23) if (scenes[step].masks == 1).sum() < 45]
    assert hidden_most == [9, 10, 11, 12, 13]
    together = score_canvases(*scenes)
    single = Scores.cat([score_canvases(scene) for scene in scenes])
    assert together.missed <= 3 / 69  # where all but a sliver is hidden
    assert together.missed < single.missed
    assert together.false == 0


def test_numbers_are_kept() -> None:
    scenes = [draw_passing(step) for step in range(23)]
    masks = np.stack([scene.masks for scene in scenes])
    scores = score_masks(masks, find_in(*scenes))
    assert scores.same_number >= 66  # of 69
    first, last = find_in(*scenes)[[0, -1]]
    for place in ((30, 32), (44, 52)):
        assert first[place] == last[place] > 0
    assert first[27, 10] == last[27, 54] != first[30, 32]


def test_a_hidden_object_takes_its_number_up_again() -> None:
    beside, behind = Canvas(), Canvas()
    beside.disc(30, 20, 5, BLUE).disc(30, 40, 9, RED)
    behind.disc(30, 36, 5, BLUE).disc(30, 40, 9, RED)
    instances = find_in(beside, behind, behind, beside)
    assert (instances[0] == instances[3]).all()
    assert len(np.unique(instances)) == 3
    assert len(np.unique(instances[1])) == 2


def test_a_number_goes_with_its_colour() -> None:
    one = Canvas().disc(30, 24, 6, RED).disc(30, 40, 6, BLUE)
    other = Canvas().disc(30, 24, 6, BLUE).disc(30, 40, 6, RED)
    instances = find_in(one, other)
    assert (
        instances[0, 30, 24] == instances[1, 30, 40] != instances[0, 30, 40] == instances[1, 30, 24]
    )


def test_the_same_frames_give_the_same_masks() -> None:
    scenes = [draw_passing(step) for step in range(8, 14)]
    assert (find_in(*scenes) == find_in(*scenes)).all()


# -- scores and the allowance ----------------------------------------------------------------------


def test_the_allowance_by_hand() -> None:
    masks = np.zeros((1, 5, 6), np.uint8)
    masks[0, 2, 1:3] = 2
    masks[0, 0, 5] = 1
    grown = grow_masks(masks)
    assert grown.shape == (1, 2, 5, 6)
    assert np.argwhere(grown[0, 0]).tolist() == [[0, 4], [0, 5], [1, 5]]
    expected = [[1, 1], [1, 2], [2, 0], [2, 1], [2, 2], [2, 3], [3, 1], [3, 2]]
    assert np.argwhere(grown[0, 1]).tolist() == expected
    assert grow_masks(np.zeros((2, 4, 4), np.uint8)).shape == (2, 0, 4, 4)


def test_scores_by_hand() -> None:
    """A 4 x 4 object found one column off; one of nine pixels does not count; one is missed."""
    true, instances = np.zeros((2, 1, 20, 20), np.uint8)
    true[0, 2:6, 2:6] = 1
    instances[0, 2:6, 3:7] = 4
    true[0, 10:13, 2:5] = 2
    instances[0, 10:13, 2:5] = 5
    true[0, 10:14, 10:14] = 3
    instances[0, 10:14, 14:18] = 6  # beside the third: common with the allowance are 8 of 32 pixels
    result = score_masks(true, instances)
    assert result.iou.tolist() == [12 / 20, 0]
    assert result.allowed.tolist() == [1, 8 / 32]
    assert (result.missed, result.false, result.same_number) == (0.5, 1, 1)


def test_scores_of_nothing() -> None:
    empty, one = np.zeros((2, 1, 8, 8), np.uint8)
    one[0, 1:5, 1:5] = 1
    assert score_masks(empty, empty).iou.size == 0
    assert score_masks(empty, one).false == 1
    assert score_masks(one, empty).missed == 1


def test_numbers_that_change_are_counted() -> None:
    true = np.zeros((4, 8, 8), np.uint8)
    true[:, 1:5, 1:5] = 1
    instances = true.copy()
    instances[2] *= 3
    assert score_masks(true, instances).same_number == 3


# -- the agreed quality ----------------------------------------------------------------------------


def test_quality_on_solids() -> None:
    """Eight validation episodes, every fourth frame."""
    dataset = SolidsDataset(SolidsConfig(), "val")
    times = np.arange(0, 100, 4)
    scores = []
    for episode in range(8):
        pictures = render_scenes(
            dataset.extract_scenes(np.full(len(times), episode, np.int64), times), dataset.canvas
        )
        instances = find_instances(pictures.frames.permute(0, 2, 3, 1).numpy())
        scores.append(score_masks(pictures.masks.numpy(), instances))
    assert_quality(Scores.cat(scores))


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference frames are not in the project")
@pytest.mark.parametrize(
    ("every", "missed"),
    # Misses come in videos: of a quarter of them, a few more or less are chance.
    [(4, 0.02), pytest.param(1, 0.01, marks=pytest.mark.slow)],
)
def test_quality_on_the_reference(every: int, missed: float) -> None:
    with np.load(REFERENCE) as stored:
        frames, masks = stored["frames"][::every], stored["masks"][::every]
    pairs = zip(masks, frames, strict=True)
    scores = Scores.cat([score_masks(mask, find_instances(frame)) for mask, frame in pairs])
    assert_quality(scores, missed)


def assert_quality(scores: Scores, missed: float = 0.01) -> None:
    assert len(scores.iou) > 600
    assert scores.iou.mean() >= 0.90
    assert scores.missed <= missed
    assert scores.false_per_frame < 0.1


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (np.zeros((0, 64, 64, 3), np.uint8), r"got uint8 \[0, 64, 64, 3\]"),
        (np.zeros((1, 15, 64, 3), np.uint8), r"16 x 16 pixels or more, got uint8 \[1, 15, 64, 3\]"),
        (np.zeros((1, 3, 64, 64), np.uint8), r"\[time, height, width, 3\]"),
        (np.zeros((1, 64, 64, 3), np.float32), "got float32"),
    ],
)
def test_what_is_no_video_is_refused(frames: np.ndarray, said: str) -> None:
    with pytest.raises(GeocoError, match=said):
        check_frames(frames)


def test_too_many_objects_are_refused() -> None:
    """17 x 17 squares."""
    frame = np.full((68, 68, 3), 120, np.uint8)
    for row in range(0, 68, 4):
        for column in range(0, 68, 4):
            frame[row : row + 3, column : column + 3] = BLUE
    with pytest.raises(GeocoError, match=r"more than 255 objects in 1 frames"):
        find_instances(frame[None])
