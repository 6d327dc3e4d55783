"""Files in and out: exports, uploads and edit lists are what the editor reads and writes."""

import io
import runpy
import weakref
import zipfile
from pathlib import Path

import av
import numpy as np
import pytest
from fastapi.testclient import TestClient
from helpers_web import HOME, SIZE, Page, decode_image, encode_image, make_samples, read_pixels
from PIL import Image

from geoco import drawing, media
from geoco.editing.editor import Editor, Film, Scene
from geoco.media import Limits
from geoco.web import Settings, create_app


def test_exports(page: Page, editor: Editor, frames: np.ndarray) -> None:
    expected = editor.encode(frames[0, 0]).move(1, dx=3)
    state = page.edit(page.open(), op="move", slot=1, dx=3)
    path = f"/states/{state['id']}/export"
    picture = page.get(f"{path}/picture.png")
    assert np.array_equal(decode_image(picture.content), expected.image)
    assert picture.headers["content-disposition"] == 'attachment; filename="picture.png"'
    large = decode_image(page.get(f"{path}/picture.png?zoom=3").content)
    assert np.array_equal(large, expected.image.repeat(3, 0).repeat(3, 1))
    assert np.array_equal(decode_image(page.get(f"{path}/original.png").content), frames[0, 0])
    replayed = Scene.replay(page.get(f"{path}/edits.json").text, editor)
    assert np.array_equal(replayed.image, expected.image)
    page.get(f"{path}/picture.png?frame=1", 422)
    page.get(f"{path}/passwords.txt", 422)


def test_the_exported_code_runs(
    page: Page, editor: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = page.edit(page.open(), op="move", slot=1, dx=3)
    path = f"/states/{state['id']}/export"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Editor, "load", classmethod(lambda cls, name: editor))
    Path("original.png").write_bytes(page.get(f"{path}/original.png").content)
    exec(page.get(f"{path}/edits.py").text, {})
    assert np.array_equal(decode_image(Path("edited.png").read_bytes()), read_pixels(state))


def test_the_code_names_the_donors(page: Page) -> None:
    donor = page.open("film")
    state = page.edit(page.open(), op="transplant", slot=1, donor=donor["id"], donor_slot=2)
    code = page.get(f"/states/{state['id']}/export/edits.py").text
    assert "edits.zip has them, too" in code
    assert "donor0 = editor.encode_video('donor0.png', seed=42" in code
    assert "scene = scene.transplant(1, donor0, donor_slot=2)" in code
    compile(code, "edits.py", "exec")


def run_packed(data: bytes, folder: Path) -> Path:
    """Unpack a script and run it; where its results are."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(folder)
    runpy.run_path(str(next(folder.glob("*/*.py"))))
    return next(folder.iterdir())


def test_the_packed_script_runs_with_its_donors(
    page: Page,
    editor: Editor,
    frames: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Editor, "load", classmethod(lambda cls, name: editor))
    donor = page.edit(page.open("two"), op="move", slot=2, dx=2)
    # Larger than the model: what is packed is of the model's size, and so is its result.
    state = page.post("/uploads", content=encode_image(frames[0, 0].repeat(3, 0).repeat(3, 1)))
    state = page.edit(state, op="transplant", slot=1, donor=donor["id"], donor_slot=2)
    answer = page.get(f"/states/{state['id']}/export/edits.zip?name=photo")
    assert answer.headers["content-disposition"] == 'attachment; filename="photo-edits.zip"'
    folder = run_packed(answer.content, tmp_path / "picture")
    assert {path.name for path in folder.iterdir()} == {
        "photo-edits.py",
        "photo-edits-scene.png",
        "photo-edits-donor0.png",
        "photo-edits-edited.png",
    }
    edited = decode_image((folder / "photo-edits-edited.png").read_bytes())
    assert np.array_equal(edited, read_pixels(state))
    film = page.open("film")
    film = page.edit(film, op="transplant", slot=1, donor=film["id"], donor_slot=2)
    path = f"/states/{film['id']}/export"
    folder = run_packed(page.get(f"{path}/edits.zip").content, tmp_path / "film")
    written = (folder / "edits-edited.mp4").read_bytes()
    assert read_mp4(written) == pytest.approx(read_mp4(page.get(f"{path}/video.mp4").content))


def read_mp4(data: bytes) -> np.ndarray:
    with av.open(io.BytesIO(data)) as video:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)])


def test_exported_videos(page: Page, editor: Editor, frames: np.ndarray) -> None:
    expected = editor.encode_video(frames[0]).remove(1)
    state = page.edit(page.open("film"), op="remove", slot=1)
    path = f"/states/{state['id']}/export"
    shown = read_mp4(page.get(f"{path}/video.mp4?zoom=4").content)
    assert shown.shape == (6, 4 * SIZE, 4 * SIZE, 3)
    large = expected.images.repeat(4, 1).repeat(4, 2)
    assert np.abs(shown.astype(int) - large).mean() < 8
    with Image.open(io.BytesIO(page.get(f"{path}/animation.gif").content)) as animation:
        assert animation.size == (SIZE, SIZE)
    before = read_mp4(page.get(f"{path}/original.mp4?zoom=4").content)
    source = frames[0].repeat(4, 1).repeat(4, 2)
    assert np.abs(before.astype(int) - source).mean() < 8
    code = page.get(f"{path}/edits.py").text
    assert "scene = editor.encode_video('original.mp4', seed=42)" in code
    replayed = Film.replay(page.get(f"{path}/edits.json").text, editor)
    assert np.array_equal(replayed.images, expected.images)


def test_uploads(page: Page, editor: Editor, frames: np.ndarray) -> None:
    answer = page.post("/uploads?seed=5", content=encode_image(frames[1, 0]))
    assert np.array_equal(read_pixels(answer), editor.encode(frames[1, 0], seed=5).image)
    assert answer["notes"] == []
    wide = np.zeros((40, 60, 3), dtype=np.uint8)
    wide[:, 10:50] = frames[1, 0].repeat(3, 0).repeat(3, 1)[:40, :40]
    answer = page.post(
        "/uploads", content=encode_image(wide), headers={"Content-Type": "video/mp4"}
    )
    assert np.array_equal(read_pixels(answer), editor.encode(wide).image)
    assert answer["notes"] == [
        "60 x 40 pixels, cut to its middle square and fitted to 16 x 16, the model's size"
    ]


def test_uploaded_videos_are_thinned(editor: Editor, frames: np.ndarray, tmp_path: Path) -> None:
    app = create_app(editor, lambda: make_samples(frames), Settings(film_frames=3))
    buffer = io.BytesIO()
    first, *rest = [Image.fromarray(frame.repeat(2, 0).repeat(2, 1)) for frame in frames[0]]
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=100)
    with TestClient(app, base_url=HOME) as client:
        answer = Page(client).post("/uploads", content=buffer.getvalue())
    assert (answer["kind"], answer["frames"]) == ("video", 3)
    assert answer["frames_per_second"] == pytest.approx(5)
    assert answer["notes"][0] == "3 of 6 frames are used, evenly spaced"


def test_imports(page: Page, editor: Editor, frames: np.ndarray) -> None:
    other = editor.encode(frames[1, 0])
    scene = editor.encode(frames[0, 0]).move(1, dx=2).transplant(2, other, 1)
    answer = page.post("/imports", content=scene.to_json())
    assert np.array_equal(read_pixels(answer), scene.image)
    assert len(answer["edits"]) == 2
    edited = page.edit(answer, op="remove", slot=1)
    assert np.array_equal(read_pixels(edited), scene.remove(1).image)
    film = editor.encode_video(frames[0]).remove(1, frames=(0, 2))
    assert page.post("/imports", content=film.to_json())["frames"] == 6


# -- kinds and limits of uploads -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_animated_pictures_are_films(page: Page, frames: np.ndarray, kind: str) -> None:
    buffer = io.BytesIO()
    first, *rest = [Image.fromarray(frame) for frame in frames[0]]
    options = {"lossless": True} if kind == "WEBP" else {}
    first.save(buffer, kind, save_all=True, append_images=rest, duration=125, **options)
    answer = page.post("/uploads", content=buffer.getvalue())
    assert (answer["kind"], answer["frames"]) == ("video", 6)
    assert answer["frames_per_second"] == pytest.approx(8)
    original = page.get(f"/states/{answer['id']}/export/original.png?frame=4").content
    assert np.array_equal(decode_image(original), frames[0, 4])


def test_tiff_and_sixteen_bits(page: Page, frames: np.ndarray) -> None:
    answer = page.post("/uploads", content=encode_image(frames[0, 0], "TIFF"))
    original = page.get(f"/states/{answer['id']}/export/original.png").content
    assert np.array_equal(decode_image(original), frames[0, 0])
    grey = frames[0, 0, :, :, 0]
    answer = page.post("/uploads", content=encode_image(257 * grey.astype(np.uint16)))
    original = page.get(f"/states/{answer['id']}/export/original.png").content
    assert np.array_equal(decode_image(original), grey[..., None].repeat(3, -1))


def test_limits_are_those_of_python(editor: Editor, frames: np.ndarray) -> None:
    settings = Settings(reading=Limits(pixels=600, frames=5))
    app = create_app(editor, lambda: make_samples(frames), settings)
    buffer = io.BytesIO()
    first, *rest = [Image.fromarray(frame) for frame in frames[0]]
    first.save(buffer, "GIF", save_all=True, append_images=rest)
    large = encode_image(np.zeros((30, 21, 3), np.uint8))
    with TestClient(app, base_url=HOME) as client:
        page = Page(client)
        detail = page.post("/uploads", 413, content=large)["detail"]
        assert detail == "a picture of 21 x 30 pixels is too large: at most 600 pixels are read"
        detail = page.post("/uploads", 413, content=buffer.getvalue())["detail"]
        assert detail == "the video has more than 5 frames: cut it into shorter pieces"
        assert page.client.get(page.root).json()["limits"]["video_frames"] == 5


def test_pictures_at_their_own_size(page: Page, editor: Editor) -> None:
    """A large picture is kept within the session, and its edits can be taken away as large."""
    large = np.asarray(Image.effect_mandelbrot((3 * SIZE, 3 * SIZE), (-2, -1, 1, 1), 50))
    picture = np.repeat(large[..., None], 3, -1)
    state = page.post("/uploads", content=encode_image(picture))
    assert (state["size"], state["own_size"]) == (SIZE, 3 * SIZE)
    edited = page.edit(state, op="remove", slot=1)
    exported = page.get(f"/states/{edited['id']}/export/own-size.png").content
    assert np.array_equal(decode_image(exported), editor.encode(picture).remove(1).render())
    page.get(f"/states/{edited['id']}/export/own-size.png?zoom=64", 422)


def test_films_at_their_own_size(
    editor: Editor, frames: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an uploaded film the file is kept; its frames are drawn and written one at a time."""
    large = frames[0].repeat(3, 1).repeat(3, 2)
    large[:, ::2, ::2] = 255 - large[:, ::2, ::2]  # what no picture of the model's size has
    film = editor.encode_video(large[[0, 1, 2, 4, 5]]).remove(1)  # evenly spaced
    data = media.encode_animated_png(list(large), 100)
    app = create_app(editor, lambda: make_samples(frames), Settings(film_frames=5))
    with TestClient(app, base_url=HOME) as client:
        page = Page(client)
        state = page.post("/uploads", content=data)
        assert (state["frames"], state["own_size"]) == (5, 3 * SIZE)
        session = app.state.service.sessions.find(page.root.split("/")[-1])
        start = session.find_state(state["id"]).start
        assert start.originals.data == data
        assert sum(size for _, size in start.arrays) == len(data) + start.frames.nbytes
        assert session.held > len(data)
        edited = page.edit(state, op="remove", slot=1)
        path = f"/states/{edited['id']}/export"
        picture = page.get(f"{path}/own-size.png?frame=3&name=clip")
        assert "clip-frame-3-edited-own-size.png" in picture.headers["content-disposition"]
        expected = list(film.render())
        assert np.array_equal(decode_image(picture.content), expected[3])
        drawn: list[weakref.ref[np.ndarray]] = []
        alive = []
        magnify = drawing.magnify

        def watch(picture: np.ndarray, zoom: int) -> np.ndarray:
            large = magnify(picture, zoom)
            drawn.append(weakref.ref(large))
            alive.append(sum(one() is not None for one in drawn))
            return large

        monkeypatch.setattr(drawing, "magnify", watch)
        video = read_mp4(page.get(f"{path}/own-size.mp4").content)
    assert video.shape == (5, 3 * SIZE, 3 * SIZE, 3)
    assert np.abs(video.astype(int) - np.stack(expected)).mean() < 20
    assert len(drawn) == 5
    assert max(alive) <= 3  # the first, the one before and the new one
