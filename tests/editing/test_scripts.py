"""Edits as Python: scripts run with the files beside them, and bad arguments are refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers import make_small_solids, make_tiny_model
from PIL import Image

from geoco import config, media
from geoco.editing.editor import Editor, Film, Scene
from geoco.editing.recording import check_seed
from geoco.errors import GeocoError
from geoco.files import check_writable
from geoco.models import pretrained

Editable = Scene | Film


@pytest.fixture(scope="module")
def editor() -> Editor:
    model = make_tiny_model().model.float()
    videos = config.Config(data=config.SolidsConfig(window=config.WindowConfig(length=6)))
    return Editor(pretrained.LoadedModel("tiny", model, videos, 0, (0.05, 1.2)))


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    return make_small_solids().batch([0, 3]).video.permute(0, 1, 3, 4, 2).numpy()


@pytest.fixture(scope="module")
def scene(editor: Editor, frames: np.ndarray) -> Scene:
    return editor.encode(frames[0, 0])


@pytest.fixture(scope="module")
def other(editor: Editor, frames: np.ndarray) -> Scene:
    return editor.encode(frames[1, 0], seed=7)


@pytest.fixture(scope="module")
def film(editor: Editor, frames: np.ndarray) -> Film:
    clip = np.concatenate([frames[0], frames[1], frames[1]])  # two frames that are equal
    return editor.encode_video(clip, frames_per_second=8)


def run_script(path: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch) -> Editable:
    """What the script ends with, run from another folder."""
    monkeypatch.setattr(Editor, "load", classmethod(lambda cls, name: editor))
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    monkeypatch.chdir(elsewhere)
    scope: dict[str, object] = {"__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    made = scope["scene"]
    assert isinstance(made, Scene | Film)
    return made


def get_pixels(made: Editable) -> np.ndarray:
    return made.images if isinstance(made, Film) else made.image


def test_scripts_run_with_the_files_beside_them(
    editor: Editor,
    scene: Scene,
    other: Scene,
    film: Film,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deep = other.move(1, dx=2).transplant(2, scene.resize(1, 1.2), 1)  # a donor with a donor
    frame = film.remove(3).frame(2)  # a donor that is a frame of an edited film
    single = editor.encode_video(film.frames[:1])
    for made in (
        scene.move(1, dx=3).transplant(2, deep, 2).swap(0, 1),
        scene.transplant(2, frame, 1).set_background(other),
        frame.move(1, dx=1),
        film.transplant(1, film.move(2, dx=4), 2).interpolate(film.resize(1, 1.3), 0.5),
        film.transplant(1, single, 2).move(1, keys={0: (0, 0), 2: (3, -1)}),
    ):
        made.save_python(tmp_path / "edits.py")
        again = run_script(tmp_path / "edits.py", editor, monkeypatch)
        assert np.array_equal(get_pixels(again), get_pixels(made))
        assert again.key == made.key
        if isinstance(made, Scene):
            assert np.array_equal(media.read_image(tmp_path / "edits-edited.png"), made.image)
        else:
            assert (tmp_path / "edits-edited.mp4").exists()


def test_a_script_of_a_file_reads_that_file(
    editor: Editor, frames: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = frames[0, 0].repeat(3, 0).repeat(3, 1)
    (tmp_path / "pictures").mkdir()
    Image.fromarray(large).save(tmp_path / "pictures" / "frame.png")
    made = editor.encode(large).remove(1)
    made.save_python(tmp_path / "scripts" / "e.py", tmp_path / "pictures" / "frame.png")
    assert [path.name for path in (tmp_path / "scripts").iterdir()] == ["e.py"]
    again = run_script(tmp_path / "scripts" / "e.py", editor, monkeypatch)
    assert np.array_equal(get_pixels(again), made.image)


def test_text_alone_names_its_files(scene: Scene, film: Film) -> None:
    assert scene.transplant(1, film, 2).to_python("a.png").splitlines() == [
        "from geoco import Editor",
        "",
        "editor = Editor.load('tiny')",
        "scene = editor.encode('a.png', seed=42)",
        "donor0 = editor.encode_video('donor0.png', seed=42, frames_per_second=8)",
        "scene = scene.transplant(1, donor0, donor_slot=2)",
        "scene.save('edited.png')",
    ]


# -- arguments -------------------------------------------------------------------------------------


def test_numbers_of_numpy(scene: Scene, other: Scene, film: Film) -> None:
    one = np.argmax(scene.alpha.mean((1, 2)) < 2)  # an np.int64
    assert type(one) is np.int64
    assert np.array_equal(scene.move(one, dx=np.float64(2)).image, scene.move(0, dx=2).image)
    same = scene.transplant(np.uint8(1), other, np.int32(2))
    assert same.to_json() == scene.transplant(1, other, 2).to_json()
    moved = film.move(np.int64(1), keys={np.int64(0): (np.float64(0), 0), 2: (np.float64(3), 1)})
    assert moved.to_json() == film.move(1, keys={0: (0, 0), 2: (3, 1)}).to_json()
    limited = film.remove(1, frames=(np.int64(0), np.int64(1)))
    assert limited.to_json() == film.remove(1, frames=(0, 1)).to_json()
    with pytest.raises(GeocoError, match="move slot: Input should be greater than or equal to 0"):
        scene.move(np.int64(-1), dx=1)


def test_donors_of_a_wrong_type(scene: Scene) -> None:
    for wrong in ("other.png", Path("other.png"), scene.image, None, 3):
        said = f"a donor must be a scene or a film, not {type(wrong).__name__}: encode it first"
        for request in (
            lambda donor: scene.transplant(1, donor, 2),
            lambda donor: scene.set_background(donor),
            lambda donor: scene.interpolate(donor, 0.5),
        ):
            with pytest.raises(GeocoError, match=said):
                request(wrong)


def test_seeds_and_rates(editor: Editor, frames: np.ndarray) -> None:
    for seed in (-1, 2**63, 10**20):
        with pytest.raises(GeocoError, match=f"seed {seed}: expected a whole number from 0 to 9"):
            editor.encode(frames[0, 0], seed=seed)
        with pytest.raises(GeocoError, match=f"seed {seed}: "):
            editor.encode_video(frames[0], seed=seed)
    for other in (1.5, "42", None):
        with pytest.raises(GeocoError, match=f"seed {other}: expected a whole number"):
            check_seed(other)
    assert check_seed(np.int64(3)) == 3
    for rate in (0, 0.001, -1, 1001, float("nan"), float("inf")):
        with pytest.raises(GeocoError, match=r"frames a second: expected 0.1 to 1000"):
            editor.encode_video(frames[0], frames_per_second=rate)


def test_zoom(scene: Scene) -> None:
    for zoom in (0, -1, 65):
        with pytest.raises(GeocoError, match=f"zoom {zoom}: expected 1 or more"):
            scene.draw_outlines(zoom)
        with pytest.raises(GeocoError, match=f"zoom {zoom}: "):
            scene.compare(scene, zoom)


def test_sentences_of_edit_lists(scene: Scene) -> None:
    good = json.loads(scene.to_json())
    for text, said in (
        ("{", "the edit list is not right: Invalid JSON: EOF while parsing an object"),
        ("[]", "the edit list is not right: Input should be an object, got "),
        (json.dumps({**good, "format": 2}), "the edit list is not right: format: Input should be"),
        (
            json.dumps({**good, "frames_per_second": 0.001}),
            r"the edit list is not right: frames_per_second: .* greater than or equal to 0.1",
        ),
    ):
        with pytest.raises(GeocoError, match=f"^{said}"):
            Scene.replay(text, scene.editor)


# -- where results go ------------------------------------------------------------------------------


def test_targets_are_checked_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    for name, said in (
        ("a.txt", "pictures are saved as .png or .jpg"),
        ("file/a.png", "file is no folder"),
        ("folder.png", "a folder has this name"),
        ("file", "there is something here already"),
    ):
        with pytest.raises(GeocoError, match=said):
            media.check_target(tmp_path / name, is_video=False)
    with pytest.raises(GeocoError, match="a video is saved as"):
        media.check_target(tmp_path / "a.jpg", is_video=True)
    media.check_target(tmp_path / "new" / "folder" / "a.png", is_video=False)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(GeocoError, match=f"cannot write here: the folder {tmp_path} is read-only"):
        check_writable(tmp_path / "new" / "a.png")
    assert not (tmp_path / "new").exists()
