"""Scenes and films: every edit by its numbers, and the picture against decoding the whole scene."""

import base64
import json
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import make_png_header, make_tiny_model

from geoco import config, media
from geoco.data import SolidsDataset
from geoco.editing.apply import find_empty_slots
from geoco.editing.decoded import DecodedFrames
from geoco.editing.editor import Editor, Film, Scene
from geoco.editing.operations import Move
from geoco.errors import GeocoError
from geoco.models import compositing, pretrained
from geoco.models.decoders import Fields
from geoco.models.slots import Binding, Slots
from geoco.models.tracking import track_slots

SIZE = 16
STEP = 2 / (SIZE - 1)


@pytest.fixture(scope="module")
def editor() -> Editor:
    model = make_tiny_model().model.float()
    videos = config.Config(data=config.SolidsConfig(window=config.WindowConfig(length=6)))
    return Editor(pretrained.LoadedModel("tiny", model, videos, 0, (0.05, 1.2)))


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    solids = config.SolidsConfig(
        episodes=config.EpisodesConfig(train=1, val=2, test=1),
        frames=12,
        height=SIZE,
        width=SIZE,
        supersample=1,
        window=config.WindowConfig(length=6),
    )
    return SolidsDataset(solids, "val").batch([0, 1]).video.permute(0, 1, 3, 4, 2).numpy()


@pytest.fixture(scope="module")
def scene(editor: Editor, frames: np.ndarray) -> Scene:
    return editor.encode(frames[0, 0])


@pytest.fixture(scope="module")
def other(editor: Editor, frames: np.ndarray) -> Scene:
    return editor.encode(frames[1, 0])


@pytest.fixture(scope="module")
def film(editor: Editor, frames: np.ndarray) -> Film:
    return editor.encode_video(frames[0])


def list_objects(scene: Scene) -> list[int]:
    return [slot.index for slot in scene.slots if not slot.is_background and slot.area >= 10]


def decode_whole(scene: Scene | Film) -> torch.Tensor:
    """The picture of all slots, decoded together by the model's own path."""
    decoded = scene.decoded
    slots = Slots(*(part[None] for part in vars(decoded.slots).values()))
    binding = Binding(slots, decoded.attention[None], torch.zeros_like(slots.appearance))
    with torch.no_grad():
        return decoded.model.decode(binding).image[0]


# -- what a scene shows ----------------------------------------------------------------------------


def test_a_scene_is_what_the_model_draws(scene: Scene) -> None:
    torch.testing.assert_close(scene.decoded.image, decode_whole(scene))
    assert scene.image.shape == (SIZE, SIZE, 3)
    assert scene.image.dtype == np.uint8
    expected = (255 * decode_whole(scene)[0].clamp(0, 1)).round().permute(1, 2, 0).numpy()
    assert np.abs(scene.image.astype(int) - expected).max() <= 1
    assert (scene.masks.sum(0) == 1).all()
    np.testing.assert_allclose(scene.alpha.sum(0), 1, rtol=1e-5)


def test_views_of_slots(scene: Scene) -> None:
    for slot in scene.slots:
        mask = scene.masks[slot.index]
        assert slot.area == mask.sum()
        assert slot.position == pytest.approx(scene.decoded.slots.position[0, slot.index].tolist())
        if slot.box is not None:
            rows, columns = np.nonzero(mask)
            box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert slot.box == box
        else:
            assert slot.area == 0
    background = [slot.index for slot in scene.slots if slot.is_background]
    assert background == [int(scene.alpha.mean((1, 2)).argmax())]


def test_the_seed_says_where_slots_start(editor: Editor, frames: np.ndarray) -> None:
    one, again, two = (editor.encode(frames[0, 0], seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.image, again.image)
    assert not torch.equal(one.decoded.slots.position, two.decoded.slots.position)


@pytest.mark.parametrize("name", ["geoco-solids", "geoco-solids-cycles"])
def test_a_picture_is_bound_once_and_not_followed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = Editor.load(name)
    size = editor.model.size
    picture = SolidsDataset(config.SolidsConfig(height=size, width=size), "val")[0].video[0]
    generator = torch.Generator().manual_seed(42)
    starts = 2 * torch.rand(editor.model.settings.slots.count, 2, generator=generator) - 1
    followed = track_slots(editor.model, picture[None].float() / 255, starts)

    def refuse(*_: object) -> None:
        raise AssertionError("a picture was followed as a video")

    monkeypatch.setattr("geoco.models.tracking.track_slots", refuse)
    scene = editor.encode(picture)
    assert not editor.knows_videos
    for name in ("appearance", "position", "scale"):
        assert torch.equal(getattr(scene.decoded.slots, name), getattr(followed.slots, name))
    assert torch.equal(scene.decoded.attention, followed.attention)
    expected = DecodedFrames.decode(editor.model, followed.slots, followed.attention)
    assert torch.equal(scene.decoded.image, expected.image)


# -- edits -----------------------------------------------------------------------------------------


def test_move(scene: Scene) -> None:
    before = scene.decoded.slots.position.clone()
    edited = scene.move(1, dx=3, dy=-2)
    moved = (edited.decoded.slots.position - before)[0]
    np.testing.assert_allclose(moved[1], [3 * STEP, -2 * STEP], rtol=1e-5)
    assert (moved[[0, 2, 3]] == 0).all()
    torch.testing.assert_close(edited.decoded.image, decode_whole(edited))
    assert not np.array_equal(edited.image, scene.image)
    # The old scene is as it was.
    assert torch.equal(scene.decoded.slots.position, before)
    assert scene.history == ()
    assert edited.history == (Move(slot=1, dx=3.0, dy=-2.0),)


def test_move_to_and_sizes(scene: Scene) -> None:
    edited = scene.move_to(2, 0.25, -0.5).resize(2, 1.5).resize_to(1, 0.2)
    state = edited.decoded.slots
    np.testing.assert_allclose(state.position[0, 2], [0.25, -0.5])
    assert float(state.scale[0, 2]) == pytest.approx(1.5 * float(scene.decoded.slots.scale[0, 2]))
    assert float(state.scale[0, 1]) == pytest.approx(0.2)
    torch.testing.assert_close(edited.decoded.image, decode_whole(edited))


def test_transplant(scene: Scene, other: Scene) -> None:
    edited = scene.transplant(1, donor=other, donor_slot=3)
    assert torch.equal(edited.decoded.slots.appearance[0, 1], other.decoded.slots.appearance[0, 3])
    assert torch.equal(edited.decoded.slots.position, scene.decoded.slots.position)
    assert torch.equal(edited.decoded.slots.scale, scene.decoded.slots.scale)
    torch.testing.assert_close(edited.decoded.image, decode_whole(edited))


def test_transplant_by_position_and_by_keyword(scene: Scene, other: Scene) -> None:
    named = scene.transplant(slot=1, donor=other, donor_slot=3)
    assert scene.transplant(1, other, 3).history == named.history


def test_whole_numbers_are_recorded_as_floats(scene: Scene) -> None:
    (move,) = scene.move(1, dx=3, keys={0: (1, 2)}).history
    assert move == Move(slot=1, dx=3.0, keys=((0, 1.0, 2.0),))
    assert [type(value) for value in (move.dx, *move.keys[0])] == [float, int, float, float]  # type: ignore[union-attr]


def test_swap(scene: Scene) -> None:
    edited = scene.swap(1, 2)
    old, new = scene.decoded.slots.appearance[0], edited.decoded.slots.appearance[0]
    assert torch.equal(new[[0, 2, 1, 3]], old)
    assert torch.equal(edited.swap(1, 2).decoded.slots.appearance, scene.decoded.slots.appearance)
    torch.testing.assert_close(edited.decoded.image, decode_whole(edited))


def test_remove(scene: Scene) -> None:
    edited = scene.remove(1)
    assert (edited.alpha[1] == 0).all()
    np.testing.assert_allclose(edited.alpha.sum(0), 1, rtol=1e-5)
    assert edited.slots[1].area == 0
    assert edited.slots[1].box is None
    assert not edited.slots[1].is_present
    # Without a selector the others share a pixel as they did before.
    plain = {name: getattr(scene.decoded.fields, name) for name in ("logits", "rgb")}
    rest = [0, 2, 3]
    alpha = compositing.compute_alpha(plain["logits"][:, rest])
    model = scene.decoded.model
    selector, model.selector = model.selector, None
    try:
        bare = Scene(scene.editor, scene.frames, scene.seed, scene.decoded.frame(0)).remove(1)
        expected = compositing.composite(plain["rgb"][:, rest], alpha)
        torch.testing.assert_close(bare.decoded.image, expected)
    finally:
        model.selector = selector


def test_duplicate(scene: Scene) -> None:
    source = list_objects(scene)[0]
    emptied = scene.remove(next(index for index in list_objects(scene) if index != source))
    gone = emptied.history[-1].slot  # type: ignore[union-attr]
    assert gone in find_empty_slots(emptied.decoded)
    spare = min(index for index in find_empty_slots(emptied.decoded) if index != source)
    edited = emptied.duplicate(source, dx=4)
    state = edited.decoded.slots
    assert torch.equal(state.appearance[0, spare], state.appearance[0, source])
    np.testing.assert_allclose(
        state.position[0, spare] - state.position[0, source], [4 * STEP, 0], atol=1e-6
    )
    assert torch.equal(edited.decoded.attention[0, spare], edited.decoded.attention[0, source])
    assert edited.slots[spare].is_present
    named = scene.duplicate(source, into=gone)
    assert any("was not empty" in warning for warning in named.warnings)


def test_set_background(scene: Scene, other: Scene) -> None:
    edited = scene.set_background(other)
    own, theirs = scene.decoded.background, other.decoded.background
    assert torch.equal(
        edited.decoded.slots.appearance[0, own], other.decoded.slots.appearance[0, theirs]
    )
    assert torch.equal(
        edited.decoded.slots.position[0, own], other.decoded.slots.position[0, theirs]
    )
    torch.testing.assert_close(edited.decoded.image, decode_whole(edited))


def test_interpolation_is_half_way_in_place_and_geometric_in_size(scene: Scene) -> None:
    goal = scene.move(1, dx=4).resize(1, 4 / 3)
    middle = scene.interpolate(goal, 0.5)
    np.testing.assert_allclose(
        (middle.decoded.slots.position - scene.decoded.slots.position)[0, 1],
        [2 * STEP, 0],
        atol=1e-6,
    )
    ratio = float(middle.decoded.slots.scale[0, 1] / scene.decoded.slots.scale[0, 1])
    assert ratio == pytest.approx((4 / 3) ** 0.5, rel=1e-5)
    assert np.array_equal(scene.interpolate(goal, 0).image, scene.image)
    assert np.abs(scene.interpolate(goal, 1).image.astype(int) - goal.image).max() <= 1
    pictures = scene.animate(goal, 3)
    assert np.array_equal(pictures[1], middle.image)
    with pytest.raises(GeocoError, match="at least two frames"):
        scene.animate(goal, 1)


def test_only_the_changed_slot_is_decoded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    decoder = scene.decoded.model.decoder
    forward = decoder.forward

    def count_and_decode(slots: Slots, *arguments: object) -> Fields:
        drawn.append(slots.scale.numel())
        return forward(slots, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(decoder, "forward", count_and_decode)
    assert scene.move(1, dx=1).resize(1, 1.1).image is not None
    assert drawn == [1, 1]
    drawn.clear()
    assert scene.remove(1).image is not None
    assert drawn == []


# -- warnings and refusals -------------------------------------------------------------------------


def fade_slot(scene: Scene, index: int) -> Scene:
    """The same, but one slot owns nothing."""
    decoded = scene.decoded
    logits = decoded.fields.logits.clone()
    logits[:, index] = -50
    fields = decoded.fields.with_logits(logits)
    faint = replace(decoded, fields=fields)
    return Scene(scene.editor, scene.frames, 0, faint)


def test_warnings_of_what_is_transplanted(scene: Scene, other: Scene) -> None:
    one, given = list_objects(scene)[0], list_objects(other)[0]
    background = next(slot.index for slot in other.slots if slot.is_background)
    assert scene.transplant(one, other, given).warnings == ()
    assert scene.transplant(one, other, background).warnings == (
        f"the donor's slot {background} is the background: its looks may show nothing",
    )
    hidden = fade_slot(other, given)
    assert scene.transplant(one, hidden, given).warnings == (
        f"the donor's slot {given} is empty: its looks may show nothing",
    )


def test_warnings(scene: Scene) -> None:
    one = list_objects(scene)[0]
    slot = scene.slots[one]
    scale = slot.scale
    assert scene.move(one).warnings == ()
    big = scene.resize(one, 1.3 / scale)
    assert any("outside the trained range 0.050 to 1.200" in text for text in big.warnings)
    assert f"slot {one} leaves the picture" in scene.move(one, dx=40).warnings
    background = scene.decoded.background
    assert any("is the background" in text for text in scene.move(background, dx=2).warnings)
    assert any("is the background" in text for text in scene.remove(background).warnings)
    hidden = fade_slot(scene, one)
    assert hidden.move(one, dx=1).warnings == (
        f"slot {one} is empty: an edit of it may show nothing",
    )


def test_scales_that_an_edit_did_not_change_are_not_warned_of(scene: Scene, other: Scene) -> None:
    one, two = list_objects(scene)[:2]
    big = scene.resize_to(one, 1.3)
    warning = f"slot {one} gets scale 1.300, outside the trained range 0.050 to 1.200"
    assert warning in big.new_warnings
    x, y = big.slots[one].position
    given = list_objects(other)[0]
    for edited in (
        big.move_to(one, x, y),
        big.transplant(one, other, given),
        big.swap(one, two),
        big.resize(one, 1),
        big.duplicate(one, into=two),
    ):
        assert "scale" not in " ".join(edited.new_warnings)
    assert "gets scale 1.250" in " ".join(big.resize_to(one, 1.25).new_warnings)


def test_of_a_film_only_the_frames_whose_scale_changed_are_warned_of(film: Film) -> None:
    one = list_objects(film.frame(0))[0]
    big = film.resize_to(one, 1.3, frames=(0, 1))
    assert "gets scale 1.300" in " ".join(big.new_warnings)
    first, last = 1.28 / 1.3, 1.25 / big.slots_at(3)[one].scale
    changed = big.resize(one, keys={0: 1, 1: first, 3: last})
    # Frame 0 stays at 1.3; the largest that changed counts.
    scales = [changed.slots_at(frame)[one].scale for frame in range(1, len(film))]
    assert f"gets scale {max(scales):.3f}" in " ".join(changed.new_warnings)


def test_warnings_are_of_all_edits_so_far(scene: Scene) -> None:
    one = list_objects(scene)[0]
    away = f"slot {one} leaves the picture"
    moved = scene.move(one, dx=40)
    back = moved.decoded.background
    assert (moved.warnings, moved.new_warnings) == ((away,), (away,))
    later = moved.remove(back)
    lost = f"slot {back} is the background: the other slots will fill its place"
    assert (later.warnings, later.new_warnings) == ((away, lost), (lost,))
    assert moved.move(one, dx=1).warnings.count(away) == 1
    assert Scene.replay(later.to_json(), scene.editor).warnings == later.warnings


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda s: s.move(9), "there is no slot 9: the scene has slots 0 to 3"),
        (lambda s: s.move(-1), "greater than or equal to 0"),
        (lambda s: s.move(0, dx=float("nan")), "move dx"),
        (lambda s: s.move(True), "move slot: Input should be a valid integer, got True"),
        (lambda s: s.move(0, dx=True), "move dx: Input should be a valid number, got True"),
        (lambda s: s.resize(0, True), "resize factor: Input should be a valid number, got True"),
        (lambda s: s.move(0, keys={0: (1, False)}), "keys.0.2: Input should be a valid number"),
        (lambda s: s.resize(0, keys={0: True}), "keys.0.1: Input should be a valid number"),
        (lambda s: s.transplant(1, s, slot=2), r"write transplant\(slot, donor, donor_slot\)"),
        (lambda s: s.transplant(index=1, donor=s, slot=2), "transplant has no `index`"),
        (lambda s: s.resize(1, 0), "greater than 0"),
        (lambda s: s.resize(1, 99), "would get scale"),
        (lambda s: s.resize_to(1, 5), "less than or equal to 2"),
        (lambda s: s.move_to(1, 7, 0), "less than or equal to 2"),
        (lambda s: s.swap(1, 1), "cannot be swapped with itself"),
        (lambda s: s.duplicate(1, into=1), "into itself"),
        (lambda s: s.transplant(1, s, 12), "there is no slot 12: the donor has slots 0 to 3"),
        (lambda s: s.remove(1).move(1), "slot 1 was removed"),
        (lambda s: s.remove(0).remove(1).remove(2).remove(3), "the last one left"),
        (lambda s: s.move(1, frames=(0, 3)), "there is no frame 3: frames go from 0 to 0"),
        (lambda s: s.move(1, frames=(2, 1)), "the first comes after the last"),
        (lambda s: s.apply(Move(slot=1), {}).interpolate(s, 2), "less than or equal to 1"),
    ],
)
def test_impossible_edits(scene: Scene, act, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(GeocoError, match=message):
        act(scene)


# -- films -----------------------------------------------------------------------------------------


def test_a_film_carries_slots_forward(film: Film, editor: Editor, frames: np.ndarray) -> None:
    assert len(film) == 6
    torch.testing.assert_close(film.decoded.image, decode_whole(film))
    video = torch.tensor(frames[0]).permute(0, 3, 1, 2).float()[None] / 255
    generator = torch.Generator().manual_seed(42)
    starts = 2 * torch.rand(1, 4, 2, generator=generator) - 1
    with torch.no_grad():
        bound = editor.model.bind(video, starts)
    assert torch.equal(film.decoded.slots.position, bound.slots.position[0])
    assert [slot.index for slot in film.slots_at(5)] == [0, 1, 2, 3]
    with pytest.raises(GeocoError, match="there is no frame 6"):
        film.slots_at(6)


def test_the_old_spelling_of_a_films_slots_is_refused(film: Film) -> None:
    with pytest.raises(GeocoError, match=r"write film.slots_at\(frame\)"):
        film.slots(3)


def test_edits_of_some_frames(film: Film) -> None:
    edited = film.move(1, dx=3, frames=(2, 4))
    moved = (edited.decoded.slots.position - film.decoded.slots.position)[:, 1, 0]
    np.testing.assert_allclose(moved, np.array([0, 0, 3, 3, 3, 0]) * STEP, atol=1e-6)
    same = [np.array_equal(*pair) for pair in zip(edited.images, film.images, strict=True)]
    assert same == [True, True, False, False, False, True]
    gone = film.remove(1, frames=(0, 1))
    assert gone.decoded.present[:, 1].tolist() == [False, False, True, True, True, True]
    # An edit elsewhere does not bring it back.
    later = gone.move(1, dx=1, frames=(3, 4))
    assert torch.equal(later.decoded.present, gone.decoded.present)


def test_key_frames(film: Film) -> None:
    edited = film.move(1, keys={1: (0, 0), 3: (4, -2)}).resize(2, keys={0: 1, 4: 1.21})
    moved = (edited.decoded.slots.position - film.decoded.slots.position)[:, 1]
    np.testing.assert_allclose(moved[:, 0], np.array([0, 0, 2, 4, 4, 4]) * STEP, atol=1e-6)
    np.testing.assert_allclose(moved[:, 1], np.array([0, 0, -1, -2, -2, -2]) * STEP, atol=1e-6)
    ratio = (edited.decoded.slots.scale / film.decoded.slots.scale)[:, 2]
    expected = 1.21 ** (np.array([0, 1, 2, 3, 4, 4]) / 4)
    np.testing.assert_allclose(ratio, expected, rtol=1e-5)
    with pytest.raises(GeocoError, match="there is no frame 9"):
        film.move(1, keys={0: (0, 0), 9: (1, 1)})


def test_appearances_over_time(
    film: Film, other: Scene, editor: Editor, frames: np.ndarray
) -> None:
    one = film.transplant(1, other, 2)
    given = other.decoded.slots.appearance[0, 2]
    assert (one.decoded.slots.appearance[:, 1] == given).all()
    short = editor.encode_video(frames[1, :4])
    stream = film.transplant(1, short, 2).decoded.slots.appearance[:, 1]
    assert torch.equal(stream, short.decoded.slots.appearance[[0, 1, 2, 3, 3, 3], 2])


def test_a_frame_of_a_film_is_a_scene(film: Film) -> None:
    edited = film.move(1, dx=2)
    scene = edited.frame(3)
    assert np.array_equal(scene.image, edited.images[3])
    assert np.array_equal(scene.masks, edited.masks[3])
    with pytest.raises(GeocoError, match="there is no frame -1"):
        film.frame(-1)


# -- edit lists ------------------------------------------------------------------------------------


def test_an_edit_list_replays_to_the_same_pixels(scene: Scene, other: Scene, film: Film) -> None:
    donor = other.move(2, dx=2)
    edited = (
        scene.move(1, dx=3).transplant(2, donor, 3).set_background(film.frame(2).resize(1, 1.1))
    )
    again = Scene.replay(edited.to_json(), scene.editor)
    assert np.array_equal(again.image, edited.image)
    assert again.key == edited.key
    assert again.history == edited.history
    moving = film.move(1, keys={0: (0, 0), 5: (3, 1)}).remove(2, frames=(1, 2))
    assert np.array_equal(Film.replay(moving.to_json(), film.editor).images, moving.images)
    # A name says what was done: other edits, other name.
    assert len({scene.key, edited.key, donor.key, other.key}) == 4


def test_bad_edit_lists(scene: Scene, film: Film) -> None:
    editor = scene.editor
    good = json.loads(scene.move(1, dx=1).to_json())
    with pytest.raises(GeocoError, match="edit list of a film"):
        Scene.replay(film.to_json(), editor)
    for change, message in [
        ({"format": 2}, "format"),
        ({"frames": ["no"]}, "not a PNG"),
        ({"frames": []}, "one frame"),
        ({"edits": [{"op": "fly", "slot": 1}]}, "fly"),
        ({"edits": [{"op": "move", "slot": 1, "dz": 1.0}]}, "dz"),
        (
            {"edits": [{"op": "transplant", "slot": 1, "donor": "x", "donor_slot": 1}]},
            "no scene 'x'",
        ),
    ]:
        with pytest.raises(GeocoError, match=message):
            Scene.replay(json.dumps({**good, **change}), editor)
    with pytest.raises(GeocoError, match="edit list is not right"):
        Scene.replay("{", editor)


def test_a_film_is_fitted_frame_by_frame(
    editor: Editor, frames: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of full-size frames only one is held at a time."""
    alive = 0

    def render() -> Iterator[np.ndarray]:
        nonlocal alive
        for frame in frames[0]:
            large = frame.repeat(4, 0).repeat(4, 1)
            alive += 1
            weakref.finalize(large, lambda: drop())
            yield large
            most.append(alive)
            del large

    def drop() -> None:
        nonlocal alive
        alive -= 1

    most: list[int] = []
    film = editor.encode_video(render())
    assert len(film) == len(frames[0]) == len(most)
    assert max(most) <= 2
    assert np.array_equal(
        film.frames[3], media.fit_frame(frames[0, 3].repeat(4, 0).repeat(4, 1), 16)
    )


def test_large_frames_of_an_edit_list(scene: Scene) -> None:
    frame = base64.b64encode(make_png_header(60_000, 60_000)).decode()
    text = json.dumps({**json.loads(scene.to_json()), "frames": [frame]})
    with pytest.raises(GeocoError, match="not right: the picture is too large: at most 33,554,432"):
        Scene.replay(text, scene.editor)


def test_the_python_of_an_edit_list_does_the_same(
    editor: Editor, scene: Scene, other: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = scene.move(1, dx=3).resize(2, 1.25).transplant(2, other, 3).swap(0, 1)
    text = edited.to_python("frame.png").replace("from geoco import Editor\n", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Editor, "load", classmethod(lambda cls, name: editor))
    from PIL import Image

    Image.fromarray(scene.source).save("frame.png")
    Image.fromarray(other.source).save("donor0.png")
    scope: dict[str, object] = {"Editor": Editor}
    exec(text, scope)
    made = scope["scene"]
    assert isinstance(made, Scene)
    assert np.array_equal(made.image, edited.image)
    assert np.array_equal(np.asarray(Image.open("edited.png")), edited.image)


# -- pictures --------------------------------------------------------------------------------------


def test_a_scene_says_what_it_is(scene: Scene, film: Film) -> None:
    assert repr(scene.move(1)) == "Scene(model='tiny', frames=1, slots=4, edits=1)"
    assert repr(film) == "Film(model='tiny', frames=6, slots=4, edits=0)"


def test_outlines_and_comparison(scene: Scene) -> None:
    labels = scene.labels
    assert (labels == 0).sum() == scene.slots[scene.decoded.background].area
    picture = scene.draw_outlines(zoom=4)
    assert picture.shape == (4 * SIZE, 4 * SIZE, 3)
    assert scene.compare(scene.move(1, dx=2), zoom=2).shape[1] > 2 * 2 * SIZE
