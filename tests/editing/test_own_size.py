"""Edits at the picture's own size: layers against exact renderings, and where pixels come from."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import make_tiny_model
from PIL import Image

from geoco import config, media
from geoco.data import SolidsDataset
from geoco.edit_maps import AffineMap
from geoco.editing import originals, rendering
from geoco.editing.decoded import DecodedFrames
from geoco.editing.editor import Editor, Film, Scene
from geoco.editing.layers import FrameLayers, cut_layers, measure_bodies
from geoco.editing.origins import SourceSlot
from geoco.errors import GeocoError
from geoco.models import pretrained

SIDE = 48  # three times the tiny model's


@pytest.fixture(scope="module")
def editor() -> Editor:
    model = make_tiny_model().model.float()
    videos = config.Config(data=config.SolidsConfig(window=config.WindowConfig(length=3)))
    return Editor(pretrained.LoadedModel("tiny", model, videos, 0, (0.05, 1.2)))


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    solids = config.SolidsConfig(
        episodes=config.EpisodesConfig(train=1, val=2, test=1),
        frames=3,
        height=SIDE,
        width=SIDE,
        supersample=1,
        window=config.WindowConfig(length=3),
    )
    return SolidsDataset(solids, "val").batch([0, 1]).video.permute(0, 1, 3, 4, 2).numpy()


@pytest.fixture(scope="module")
def scene(editor: Editor, frames: np.ndarray) -> Scene:
    return editor.encode(frames[0, 0])


@pytest.fixture(scope="module")
def other(editor: Editor, frames: np.ndarray) -> Scene:
    return editor.encode(frames[1, 0])


# -- layers ----------------------------------------------------------------------------------------

FLOOR, BALL = torch.tensor([0.5, 0.55, 0.6]), torch.tensor([0.8, 0.2, 0.1])


def paint(rows: slice, columns: slice, shade: slice | None = None, size: int = 40) -> torch.Tensor:
    """A square on an even floor, with a shadow to its left."""
    picture = FLOOR[:, None, None].repeat(1, size, size)
    if shade is not None:
        picture[:, rows, shade] *= 0.7
    picture[:, rows, columns] = BALL[:, None, None]
    return picture


def make_layers(picture: torch.Tensor, loose: torch.Tensor, **changed: object) -> FrameLayers:
    """Layers as from a model of the picture's size with a perfect floor and a loose mask."""
    body = (picture - FLOOR[:, None, None]).abs().amax(0).gt(0.2).float() * loose
    share = torch.stack((1 - loose, loose))
    center, radius = measure_bodies(torch.stack((torch.zeros_like(body), body)))
    layers = {
        "frame": picture,
        "clean": FLOOR[:, None, None].expand_as(picture),
        "share": share,
        "alpha": torch.stack((torch.zeros_like(body), body)),
        "model_colors": torch.stack((FLOOR[:, None, None].expand_as(picture), picture)),
        "model_alpha": share,
        "background": 0,
        "center": center,
        "radius": radius,
        "position": center,
        "scale": radius.clamp_min(0.01),
        **changed,
    }
    return FrameLayers(**layers)  # type: ignore[arg-type]


def test_body_and_shadow_move_and_the_loose_floor_does_not_show() -> None:
    """Ten pixels to the right: an exact picture, from a mask twice as wide as what it holds."""
    loose = torch.zeros(40, 40)
    loose[5:25, 2:20] = 1
    before = paint(slice(10, 18), slice(8, 16), slice(4, 8))
    layers = make_layers(before, loose)
    warped = rendering._warp(
        layers.take(1),
        AffineMap(torch.tensor(1.0).double(), torch.tensor([20 / 40, 0]).double()),
        40,
    )
    moved = layers.rest * (1 - warped[3]) + warped[:3]
    expected = paint(slice(10, 18), slice(18, 26), slice(14, 18))
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(layers.rest, paint(slice(0, 0), slice(0, 0)), atol=1e-5, rtol=0)


def test_layers_of_a_frame_add_up_to_it() -> None:
    loose = torch.rand(40, 40, generator=torch.Generator().manual_seed(0))
    layers = make_layers(paint(slice(10, 18), slice(8, 16), slice(4, 8)), loose.round())
    layer = layers.take(1)
    torch.testing.assert_close(
        layers.rest * (1 - layer[3]) + layer[:3], layers.frame, atol=1e-5, rtol=0
    )


def test_places_of_bodies_by_hand() -> None:
    """A square of 8 pixels from column 8 and row 10 of 40; its RMS radius is that of a square."""
    alpha = torch.zeros(1, 40, 40)
    alpha[0, 10:18, 8:16] = 1
    alpha[0, 30, 30] = 0.4  # too faint to count
    center, radius = measure_bodies(alpha)
    assert center[0].tolist() == pytest.approx([12 / 20 - 1, 14 / 20 - 1])
    assert float(radius[0]) == pytest.approx(((64 - 1) / 6) ** 0.5 / 20)
    assert measure_bodies(torch.zeros(1, 40, 40))[1].tolist() == [0]


def test_who_is_in_front_is_asked_of_the_model() -> None:
    both = torch.zeros(4, 8, 8)
    both[:, 2:6, 2:6] = 1
    placed = [rendering._Placed(slot, lambda: both) for slot in (1, 2)]
    for front, behind in ((1, 2), (2, 1)):
        alpha = torch.zeros(3, 8, 8)
        alpha[front], alpha[behind] = 0.7, 0.3
        order = rendering._order_by_depth(placed, alpha)
        assert [layer.slot for layer in order] == [behind, front]


def test_what_was_hidden_is_painted_by_the_model() -> None:
    """Where the slot was hidden and now has its pixels, the model's colours go on."""
    layer = torch.zeros(5, 4, 4)
    layer[4, :2] = 1
    share = torch.ones(4, 4)
    share[:, 2:] = 0
    painted = BALL[:, None, None].expand(3, 4, 4)
    drawn = rendering._fill_hidden(layer, share, painted)
    assert drawn[3].tolist() == [[1, 1, 0, 0]] * 2 + [[0] * 4] * 2
    torch.testing.assert_close(drawn[:3, 0, 0], BALL)


def test_shadows_are_not_bodies(editor: Editor, frames: np.ndarray) -> None:
    """Dark of the floor's own hue is shadow, another hue or much darker is body."""
    from geoco.editing.layers import _tell_bodies

    clean = FLOOR[:, None, None].repeat(1, 1, 4)
    frame = clean * torch.tensor([1.0, 0.7, 0.2, 1.0])
    frame[:, 0, 3] = BALL
    assert _tell_bodies(frame, clean)[0].tolist() == [0, 0, 1, 1]


# -- scenes ----------------------------------------------------------------------------------------


def test_an_untouched_picture_stays_to_the_bit(scene: Scene, frames: np.ndarray) -> None:
    assert scene.own_side == SIDE
    assert np.array_equal(scene.render(), frames[0, 0])
    assert np.array_equal(scene.move(1).resize(2, 1).render(), frames[0, 0])
    there = scene.move(1, dx=2).move(1, dx=-2)
    assert np.array_equal(there.render(), frames[0, 0])


def test_an_edit_changes_something_and_the_model_s_size_is_there_too(scene: Scene) -> None:
    edited = scene.remove(1)
    assert not np.array_equal(edited.render(), scene.render())
    assert edited.render().shape == (SIDE, SIDE, 3)
    assert np.array_equal(edited.render("model"), edited.image)


def test_whose_pixels_a_slot_shows(scene: Scene, other: Scene) -> None:
    own, given = scene.pixels.source, other.pixels.source

    def looks(edited: Scene, slot: int) -> list[tuple[float, SourceSlot]]:
        return list(edited.pixels.frames[0][slot].looks)

    edited = scene.transplant(1, other.swap(0, 2), 2).swap(1, 3).move(3, dx=1)
    assert looks(edited, 3) == [(1, SourceSlot(given, 0, 0))]
    assert looks(edited, 1) == [(1, SourceSlot(own, 0, 3))]
    assert [origin.place.slot for origin in edited.pixels.frames[0]] == [0, 1, 2, 3]
    copy = scene.duplicate(1, into=2, dx=3).pixels.frames[0][2]
    assert (copy.looks, copy.place) == (((1, SourceSlot(own, 0, 1)),), SourceSlot(own, 0, 1))
    half = scene.interpolate(scene.transplant(1, other, 2), 0.25)
    assert looks(half, 1) == [
        (0.75, SourceSlot(own, 0, 1)),
        (0.25, SourceSlot(given, 0, 2)),
    ]
    floor = scene.set_background(other)
    assert looks(floor, scene.decoded.background) == [
        (1, SourceSlot(given, 0, other.decoded.background))
    ]


def test_every_kind_of_edit_can_be_drawn(scene: Scene, other: Scene) -> None:
    background = scene.decoded.background
    slot = next(index for index in range(4) if index != background)
    assert not np.array_equal(scene.remove(background).render(), scene.render())
    for edited in (  # an untrained model's slots hold nothing that must be seen
        scene.set_background(other),
        scene.move(background, dx=3),
        scene.remove(slot),
        scene.resize(slot, 1.5),
        scene.resize(slot, 0.5),
        scene.transplant(slot, other, 1),
        scene.transplant(slot, other, other.decoded.background),
        scene.swap(slot, background),
        scene.duplicate(slot, into=(slot + 1) % 4, dx=2),
    ):
        assert edited.render().shape == (SIDE, SIDE, 3)


def test_all_the_way_to_another_scene_is_that_scene_s_floor(scene: Scene, other: Scene) -> None:
    """Without objects nothing is left but the other picture's background, at its own pixels."""
    edited = scene.set_background(other)
    bare = other
    for slot in set(range(4)) - {scene.decoded.background}:
        edited = edited.remove(slot)
    for slot in set(range(4)) - {other.decoded.background}:
        bare = bare.remove(slot)
    difference = edited.render().astype(int) - bare.render().astype(int)
    assert np.abs(difference).max() <= 2


def test_a_map_of_a_slot_by_hand(scene: Scene, other: Scene) -> None:
    """Moved by a pixel of the model's 16: a sixteenth of the picture, whatever its size."""
    from geoco.editing.own_size import _Cutter

    cut = _Cutter(lambda frames, seed: scene.editor.bind_and_decode(frames, seed)[0]).cut
    moved = scene.move(1, dx=1)
    origin = moved.pixels.frames[0][1]
    edit = rendering._map_slot(1, origin, origin.looks[0][1], moved.decoded, cut)
    assert edit is not None
    assert float(edit.factor) == pytest.approx(1, abs=1e-6)
    assert edit.offset.tolist() == pytest.approx([2 / 16, 0], abs=1e-6)
    larger = scene.resize(1, 1.5)
    edit = rendering._map_slot(1, origin, origin.looks[0][1], larger.decoded, cut)
    assert edit is not None
    layers = cut(origin.place)
    center = layers.center[1] if layers.radius[1] > 0 else layers.position[1]
    torch.testing.assert_close(edit.apply(center), center, atol=1e-6, rtol=0)
    assert float(edit.factor) == pytest.approx(1.5, abs=1e-5)


# -- what is kept ----------------------------------------------------------------------------------


def test_what_is_kept_of_pictures(editor: Editor) -> None:
    wide = np.zeros((30, 50, 3), np.uint8)
    wide[:, 10:40, 1] = np.arange(30)[:, None]
    scene = editor.encode(wide)
    assert np.array_equal(scene.render(), wide[:, 10:40])
    assert editor.encode(np.zeros((16, 40, 3), np.uint8)).own_side == 16
    assert originals.choose_side(3000, 2000, 16) == 1024


def test_films_frame_by_frame(editor: Editor, frames: np.ndarray, tmp_path: Path) -> None:
    film = editor.encode_video(frames[0])
    assert np.array_equal(np.stack(list(film.render())), frames[0])
    edited = film.remove(1, frames=(1, 2))
    drawn = list(edited.render())
    assert np.array_equal(drawn[0], frames[0, 0])
    assert not np.array_equal(drawn[2], frames[0, 2])
    assert np.array_equal(edited.frame(2).render(), drawn[2])
    edited.save(tmp_path / "film", "original")
    assert np.array_equal(media.read_video(tmp_path / "film"), np.stack(drawn))


def test_a_film_reads_its_file_again(editor: Editor, frames: np.ndarray, tmp_path: Path) -> None:
    media.save_frames(tmp_path / "clip", frames[0])
    film = editor.encode_video(tmp_path / "clip")
    assert np.array_equal(np.stack(list(film.render())), frames[0])
    Image.fromarray(frames[1, 0][:40, :40]).save(tmp_path / "clip" / "00001.png")
    with pytest.raises(GeocoError, match="changed or gone since it was read"):
        list(film.render())


def test_a_donor_film_s_last_frame_goes_on(editor: Editor, frames: np.ndarray) -> None:
    donor = editor.encode_video(frames[1][:2])
    film: Film = editor.encode_video(frames[0]).transplant(1, donor, 2)
    given = [slots[1].looks[0][1].frame for slots in film.pixels.frames]
    assert given == [0, 1, 1]
    assert len(list(film.render())) == 3


def test_replays_at_the_picture_s_own_size(
    editor: Editor, scene: Scene, frames: np.ndarray
) -> None:
    edited = scene.remove(1)
    small = Scene.replay(edited.to_json(), editor)
    assert small.own_side == 16
    large = Scene.replay(edited.to_json(), editor, frames[0, 0])
    assert np.array_equal(large.render(), edited.render())
    with pytest.raises(GeocoError, match="does not show the frames of this edit list"):
        Scene.replay(edited.to_json(), editor, frames[1, 0])
    assert "save('edited.png', size='original')" in edited.to_python()
    assert "save('edited.png')" in small.to_python()


def test_layers_are_cut_at_the_own_size(scene: Scene, frames: np.ndarray) -> None:
    decoded: DecodedFrames = scene.decoded
    layers = cut_layers(
        torch.tensor(frames[0, 0]), torch.tensor(scene.frames[0]), decoded, decoded.background
    )
    assert layers.side == SIDE
    assert not layers.alpha[decoded.background].any()
    torch.testing.assert_close(layers.share.sum(0), torch.ones(SIDE, SIDE))
