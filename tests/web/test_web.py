"""The server: what it answers is what the editor does, and nobody gets more than is theirs."""

import base64
import io
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from helpers_web import HOME, SIZE, Page, as_array, as_png, make_editor, make_frames, make_samples
from PIL import Image

from geoco.editing.editor import Editor, Film, Scene
from geoco.errors import GeocoError
from geoco.web import Settings, create_app
from geoco.web.middleware import HEADERS
from geoco.web.samples import Sample, make_solids_samples
from geoco.web.schema import encode_run_lengths
from geoco.web.server import open_listener
from geoco.web.sessions import OpenedFrames, SceneState, Session, Sessions


@pytest.fixture(scope="module")
def editor() -> Editor:
    return make_editor()


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    return make_frames()


@pytest.fixture(scope="module")
def app(editor: Editor, frames: np.ndarray) -> FastAPI:
    return create_app(editor, lambda: make_samples(frames))


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url=HOME) as client:
        yield client


@pytest.fixture
def page(client: TestClient) -> "Iterator[Page]":
    page = Page(client)
    yield page
    assert client.delete(page.root).status_code == 204


def pixels(answer: dict[str, Any]) -> np.ndarray:
    return as_array(base64.b64decode(answer["frame"]["picture"]))


# -- what there is ---------------------------------------------------------------------------------


def test_a_session_says_which_model_it_is(client: TestClient) -> None:
    answer = client.post("/api/sessions").json()
    assert answer["model"]["name"] == "tiny"
    assert (answer["model"]["size"], answer["model"]["slots"]) == (SIZE, 4)
    assert answer["model"]["trained_scales"] == [0.05, 1.2]
    assert len(answer["id"]) == 32  # 192 bits in base 64
    assert client.get(f"/api/sessions/{answer['id']}").json() == answer
    assert client.delete(f"/api/sessions/{answer['id']}").status_code == 204
    assert client.get(f"/api/sessions/{answer['id']}").status_code == 404


def test_samples(client: TestClient, frames: np.ndarray) -> None:
    answer = client.get("/api/samples").json()
    assert [(sample["id"], sample["frames"]) for sample in answer] == [
        ("one", 1),
        ("two", 1),
        ("film", 6),
    ]
    picture = client.get("/api/samples/two/picture.png")
    assert picture.headers["content-type"] == "image/png"
    assert np.array_equal(as_array(picture.content), frames[1, 0])
    assert "there are one, two, film" in client.get("/api/samples/x/picture.png").json()["detail"]


def test_generated_samples_show_a_few_objects() -> None:
    found = make_solids_samples(32)
    assert [len(sample.frames) for sample in found] == [1] * 6 + [20] * 2
    assert all(sample.frames.shape[1:] == (32, 32, 3) for sample in found)
    assert len({sample.frames.tobytes() for sample in found}) == len(found)
    assert not np.array_equal(found[-1].frames[0], found[-1].frames[-1])


def test_an_opened_scene_is_what_the_editor_makes(
    page: Page, editor: Editor, frames: np.ndarray
) -> None:
    answer = page.open()
    scene = editor.encode(frames[0, 0])
    assert np.array_equal(pixels(answer), scene.image)
    runs = answer["frame"]["runs"]
    owner = np.repeat(runs[1::2], runs[::2]).reshape(SIZE, SIZE)
    assert np.array_equal(owner, scene.masks.argmax(0))
    for sent, slot in zip(answer["frame"]["slots"], scene.slots, strict=True):
        assert (sent["x"], sent["y"]) == slot.position
        assert (sent["index"], sent["scale"], sent["area"]) == (slot.index, slot.scale, slot.area)
        assert sent["box"] == (None if slot.box is None else list(slot.box))
        assert (sent["is_background"], sent["is_present"]) == (slot.is_background, slot.is_present)
    assert (answer["kind"], answer["frames"], answer["edits"]) == ("picture", 1, [])
    again = page.open(seed=3)
    assert np.array_equal(pixels(again), editor.encode(frames[0, 0], seed=3).image)


def test_run_lengths() -> None:
    assert encode_run_lengths(np.array([[2, 2, 0], [0, 0, 1]])) == [2, 2, 3, 0, 1, 1]
    assert encode_run_lengths(np.zeros((2, 2), dtype=np.int64)) == [4, 0]


# -- edits -----------------------------------------------------------------------------------------

EDITS = [
    ({"op": "move", "slot": 1, "dx": 3, "dy": -2.5}, lambda s, o: s.move(1, dx=3, dy=-2.5)),
    ({"op": "move_to", "slot": 1, "x": 0.5, "y": 0}, lambda s, o: s.move_to(1, 0.5, 0)),
    ({"op": "resize", "slot": 2, "factor": 1.5}, lambda s, o: s.resize(2, 1.5)),
    ({"op": "resize_to", "slot": 2, "scale": 0.3}, lambda s, o: s.resize_to(2, 0.3)),
    ({"op": "swap", "slot": 1, "other": 2}, lambda s, o: s.swap(1, 2)),
    ({"op": "remove", "slot": 3}, lambda s, o: s.remove(3)),
    ({"op": "duplicate", "slot": 1, "into": 3, "dx": 4}, lambda s, o: s.duplicate(1, 3, dx=4)),
    (
        {"op": "transplant", "slot": 1, "donor": "?", "donor_slot": 3},
        lambda s, o: s.transplant(1, o, 3),
    ),
    ({"op": "set_background", "donor": "?"}, lambda s, o: s.set_background(o)),
    ({"op": "interpolate", "donor": "?", "share": 0.5}, lambda s, o: s.interpolate(o, 0.5)),
]


@pytest.mark.parametrize(("sent", "meant"), EDITS, ids=lambda value: value["op"] if isinstance(
    value, dict) else "")  # fmt: skip
def test_edits_do_what_the_editor_does(
    page: Page,
    editor: Editor,
    frames: np.ndarray,
    sent: dict[str, Any],
    meant: Any,
) -> None:
    first, donor = page.open("one"), page.open("two")
    if "donor" in sent:
        sent = {**sent, "donor": donor["id"]}
    expected: Scene = meant(editor.encode(frames[0, 0]), editor.encode(frames[1, 0]))
    before = pixels(first)
    shown = page.post(f"/states/{first['id']}/previews", 200, json=sent)
    assert np.array_equal(pixels(shown), expected.image)
    answer = page.edit(first, **sent)
    assert np.array_equal(pixels(answer), expected.image)
    assert not np.array_equal(expected.image, before)
    assert answer["warnings"] == list(expected.warnings) == shown["warnings"]
    assert answer["edits"] == [edit.model_dump(mode="json") for edit in expected.history]
    # The old state is as it was: undo is going back to it.
    assert np.array_equal(pixels(page.get(f"/states/{first['id']}").json()), before)


def test_previews_are_not_kept(page: Page, app: FastAPI) -> None:
    first = page.open()
    session = app.state.service.sessions.find(page.root.split("/")[-1])
    for _ in range(3):
        page.post(f"/states/{first['id']}/previews", 200, json={"op": "move", "slot": 1, "dx": 1})
    assert len(session) == 1


def test_videos(page: Page, editor: Editor, frames: np.ndarray) -> None:
    film = editor.encode_video(frames[0])
    first = page.open("film")
    assert (first["kind"], first["frames"]) == ("video", 6)
    some = page.edit(first, frame=3, op="move", slot=1, dx=3, frames=[2, 4])
    expected = film.move(1, dx=3, frames=(2, 4))
    assert np.array_equal(pixels(some), expected.images[3])
    assert some["frame"]["number"] == 3
    path = page.edit(some, op="move", slot=2, keys=[[0, 0, 0], [5, 4, 2]])
    expected = expected.move(2, keys={0: (0, 0), 5: (4, 2)})
    sent = page.get(f"/states/{path['id']}/frames").json()["frames"]
    shown = np.stack([as_array(base64.b64decode(frame["picture"])) for frame in sent])
    assert np.array_equal(shown, expected.images)
    preview = page.post(
        f"/states/{path['id']}/previews?frame=4",
        200,
        json={"op": "resize", "slot": 1, "factor": 1.5},
    )
    assert np.array_equal(pixels(preview), expected.frame(4).resize(1, 1.5).image)
    detail = page.post(
        f"/states/{path['id']}/previews?frame=6", 422, json={"op": "remove", "slot": 1}
    )
    assert detail == {"detail": "there is no frame 6: frames go from 0 to 5"}


@pytest.mark.parametrize(
    ("edit", "status", "message"),
    [
        ({"op": "move", "slot": 9}, 422, "there is no slot 9: the scene has slots 0 to 3"),
        ({"op": "fly", "slot": 1}, 422, "'fly'"),
        ({"op": "move", "slot": 1, "dx": "far"}, 422, "dx: Input should be a valid number"),
        ({"op": "move", "slot": 1, "dz": 1}, 422, "dz"),
        ({"op": "move", "slot": 1.5}, 422, "slot"),
        ({"op": "resize", "slot": 1, "factor": 0}, 422, "greater than 0"),
        ({"op": "move", "slot": 1, "frames": [1, 0]}, 422, "the first comes after the last"),
        ({"op": "transplant", "slot": 1, "donor": "x", "donor_slot": 0}, 404, "open the other"),
        ([], 422, "the edit"),
    ],
)
def test_impossible_edits(page: Page, edit: Any, status: int, message: str) -> None:
    first = page.open()
    for kind in ("edits", "previews"):
        detail = page.post(f"/states/{first['id']}/{kind}", status, json=edit)["detail"]
        assert message in detail
        assert "\n" not in detail


# -- files -----------------------------------------------------------------------------------------


def test_exports(page: Page, editor: Editor, frames: np.ndarray) -> None:
    expected = editor.encode(frames[0, 0]).move(1, dx=3)
    state = page.edit(page.open(), op="move", slot=1, dx=3)
    path = f"/states/{state['id']}/export"
    picture = page.get(f"{path}/picture.png")
    assert np.array_equal(as_array(picture.content), expected.image)
    assert picture.headers["content-disposition"] == 'attachment; filename="picture.png"'
    large = as_array(page.get(f"{path}/picture.png?zoom=3").content)
    assert np.array_equal(large, expected.image.repeat(3, 0).repeat(3, 1))
    assert np.array_equal(as_array(page.get(f"{path}/original.png").content), frames[0, 0])
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
    assert np.array_equal(as_array(Path("edited.png").read_bytes()), pixels(state))


def test_the_code_names_the_donors(page: Page) -> None:
    donor = page.open("film")
    state = page.edit(page.open(), op="transplant", slot=1, donor=donor["id"], donor_slot=2)
    code = page.get(f"/states/{state['id']}/export/edits.py").text
    assert "edits.json holds them, too" in code
    assert "donor0 = editor.encode_video('donor0.mp4', seed=42)" in code
    assert "scene = scene.transplant(1, donor0, donor_slot=2)" in code
    compile(code, "edits.py", "exec")


def test_exported_videos(page: Page, editor: Editor, frames: np.ndarray) -> None:
    expected = editor.encode_video(frames[0]).remove(1)
    state = page.edit(page.open("film"), op="remove", slot=1)
    path = f"/states/{state['id']}/export"
    with av.open(io.BytesIO(page.get(f"{path}/video.mp4?zoom=4").content)) as video:
        shown = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    assert np.stack(shown).shape == (6, 4 * SIZE, 4 * SIZE, 3)
    large = expected.images.repeat(4, 1).repeat(4, 2)
    assert np.abs(np.stack(shown).astype(int) - large).mean() < 8
    with Image.open(io.BytesIO(page.get(f"{path}/animation.gif").content)) as animation:
        assert animation.size == (SIZE, SIZE)
    with av.open(io.BytesIO(page.get(f"{path}/original.mp4?zoom=4").content)) as video:
        before = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    source = frames[0].repeat(4, 1).repeat(4, 2)
    assert np.abs(np.stack(before).astype(int) - source).mean() < 8
    code = page.get(f"{path}/edits.py").text
    assert "scene = editor.encode_video('original.mp4', seed=42)" in code
    replayed = Film.replay(page.get(f"{path}/edits.json").text, editor)
    assert np.array_equal(replayed.images, expected.images)


def test_uploads(page: Page, editor: Editor, frames: np.ndarray) -> None:
    answer = page.post("/uploads?seed=5", content=as_png(frames[1, 0]))
    assert np.array_equal(pixels(answer), editor.encode(frames[1, 0], seed=5).image)
    assert answer["notes"] == []
    wide = np.zeros((40, 60, 3), dtype=np.uint8)
    wide[:, 10:50] = frames[1, 0].repeat(3, 0).repeat(3, 1)[:40, :40]
    answer = page.post("/uploads", content=as_png(wide), headers={"Content-Type": "video/mp4"})
    assert np.array_equal(pixels(answer), editor.encode(wide).image)
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
    assert np.array_equal(pixels(answer), scene.image)
    assert len(answer["edits"]) == 2
    edited = page.edit(answer, op="remove", slot=1)
    assert np.array_equal(pixels(edited), scene.remove(1).image)
    film = editor.encode_video(frames[0]).remove(1, frames=(0, 2))
    assert page.post("/imports", content=film.to_json())["frames"] == 6


# -- sessions --------------------------------------------------------------------------------------


def test_another_session_sees_nothing(client: TestClient) -> None:
    mine, theirs = Page(client), Page(client)
    state, other = mine.open(), theirs.open("two")
    message = "this session has no such state"
    for path in ("", "/frames", "/export/picture.png"):
        assert message in theirs.get(f"/states/{state['id']}{path}", 404).json()["detail"]
    edit = {"op": "remove", "slot": 1}
    assert message in theirs.post(f"/states/{state['id']}/edits", 404, json=edit)["detail"]
    taking = {"op": "transplant", "slot": 1, "donor": state["id"], "donor_slot": 1}
    assert message in theirs.post(f"/states/{other['id']}/edits", 404, json=taking)["detail"]
    for name in ("", "x", "undefined", "%00"):
        assert client.get(f"/api/sessions/{name}/states/{state['id']}").status_code == 404


def test_sessions_expire_and_are_limited() -> None:
    now = 0.0
    sessions = Sessions(Settings(sessions=2, idle_seconds=10), lambda: now)
    one, two = sessions.open(), sessions.open()
    now = 8.0
    assert sessions.find(one.id) is one
    # Those that hold nothing make room.
    three = sessions.open()
    assert len(sessions) == 2
    assert three.id != two.id
    with pytest.raises(HTTPException, match="no such session"):
        sessions.find(two.id)
    now = 18.5
    with pytest.raises(HTTPException, match="no such session"):
        sessions.find(one.id)
    now = 19.0
    sessions.expire()
    assert len(sessions) == 0


def state_of(editor: Editor, frames: np.ndarray) -> SceneState:
    state = SceneState(OpenedFrames(editor, frames, 42, 12))
    state.compute_scene()
    return state


def test_sessions_in_use_are_not_taken_away(editor: Editor, frames: np.ndarray) -> None:
    now = 0.0
    sessions = Sessions(Settings(sessions=1, crowded_seconds=60), lambda: now)
    first = sessions.open()
    first.keep_state(state_of(editor, frames[0, :1]))
    now = 50.0
    with pytest.raises(HTTPException, match="too many sessions") as caught:
        sessions.open()
    assert caught.value.status_code == 503
    now = 61.0
    assert sessions.open() is not first
    assert len(sessions) == 1


def test_memory_is_limited_and_nothing_is_lost(editor: Editor, frames: np.ndarray) -> None:
    plain = create_app(editor, lambda: make_samples(frames))
    with TestClient(plain, base_url=HOME) as client:
        page = Page(client)
        page.open()
        each = plain.state.service.sessions.find(page.root.split("/")[-1]).bytes
    assert each > 4 * SIZE * SIZE * 4  # at least the alpha of four slots
    limit = 4 * each
    app = create_app(editor, lambda: make_samples(frames), Settings(session_bytes=limit))
    with TestClient(app, base_url=HOME) as client:
        page = Page(client)
        states = [page.open()]
        expected = [editor.encode(frames[0, 0])]
        for _ in range(9):
            states.append(page.edit(states[-1], op="move", slot=1, dx=1))
            expected.append(expected[-1].move(1, dx=1))
        session = app.state.service.sessions.find(page.root.split("/")[-1])
        assert session.bytes <= limit
        assert sum(session.find_state(state["id"]).cached is None for state in states) >= 6
        for state, scene in zip(states, expected, strict=True):
            assert np.array_equal(pixels(page.get(f"/states/{state['id']}").json()), scene.image)
        assert session.bytes <= limit
        detail = page.post("/scenes", 422, json={"sample": "film"})["detail"]
        assert "MiB of a session: use fewer frames" in detail


def test_all_sessions_share_memory(editor: Editor, frames: np.ndarray) -> None:
    def fill(settings: Settings) -> tuple[Sessions, list[SceneState], SceneState]:
        sessions = Sessions(settings)
        one, two = sessions.open(), sessions.open()
        mine = [state_of(editor, frames[0, :1]) for _ in range(3)]
        theirs = state_of(editor, frames[1, :1])
        for state in mine:
            one.keep_state(state)
        two.keep_state(theirs)
        return sessions, mine, theirs

    each = Session(Settings(), 0)
    each.keep_state(state_of(editor, frames[0, :1]))
    sessions, mine, theirs = fill(Settings(all_bytes=3 * each.held))
    sessions.trim()
    assert [state.cached is None for state in mine] == [True, True, False]
    sessions, mine, theirs = fill(Settings(all_bytes=1))
    sessions.trim()
    assert [state.cached is None for state in mine] == [True, True, True]
    assert theirs.cached is not None


def test_old_states_are_dropped(editor: Editor, frames: np.ndarray) -> None:
    app = create_app(editor, lambda: make_samples(frames), Settings(states=2, edits=3))
    with TestClient(app, base_url=HOME) as client:
        page = Page(client)
        first = page.open()
        state = first
        for _ in range(3):
            state = page.edit(state, op="move", slot=1, dx=1)
        assert "dropped" in page.get(f"/states/{first['id']}", 404).json()["detail"]
        again = page.get(f"/states/{state['id']}").json()
        assert len(again["edits"]) == 3
        detail = page.post(
            f"/states/{state['id']}/edits", 422, json={"op": "move", "slot": 1, "dx": 1}
        )["detail"]
        assert "at most 3 edits" in detail


# -- safety ----------------------------------------------------------------------------------------


def test_busy(editor: Editor, frames: np.ndarray) -> None:
    release, entered = threading.Event(), threading.Event()

    def slow() -> list[Sample]:
        entered.set()
        release.wait(20)
        return make_samples(frames)

    app = create_app(editor, slow, Settings(workers=1, waiting=1))
    with TestClient(app, base_url=HOME) as client, ThreadPoolExecutor(4) as pool:
        page = Page(client)
        first = pool.submit(client.get, "/api/samples")
        assert entered.wait(20)
        data = as_png(frames[0, 0])
        tries = [pool.submit(client.post, page.root + "/uploads", content=data) for _ in range(3)]
        # The page itself is still there.
        assert client.get("/").status_code == 200
        refused = [one.result(20) for one in tries if _soon(one)]
        release.set()
        assert first.result(20).status_code == 200
        assert sorted(one.result(20).status_code for one in tries) == [201, 503, 503]
        for answer in refused:
            assert answer.json() == {"detail": "the server is busy: try again in a second"}
            assert answer.headers["retry-after"] == "1"
        assert len(refused) == 2
        assert client.post(page.root + "/uploads", content=data).status_code == 201


def _soon(future: Any) -> bool:
    try:
        future.result(2)
    except TimeoutError:
        return False
    return True


def test_headers(page: Page, client: TestClient) -> None:
    state = page.open()
    for path in ("/", "/main.js", "/api/samples", f"{page.root}/states/{state['id']}", "/none"):
        answer = client.get(path, headers={"Origin": HOME})
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, path
        assert "access-control-allow-origin" not in answer.headers
        expected = "no-store" if path.startswith("/api/") else "no-cache"
        assert answer.headers["cache-control"] == expected
    assert "default-src 'none'" in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[", "localhost."])
def test_other_names_are_not_answered(client: TestClient, host: str) -> None:
    answer = client.post("/api/sessions", headers={"Host": host})
    assert answer.status_code == 400
    assert "answers to 127.0.0.1, localhost only" in answer.json()["detail"]
    assert client.post("/api/sessions", headers={"Host": "localhost:8000"}).status_code == 201


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_other_sites_are_not_served(client: TestClient, origin: str) -> None:
    answer = client.post("/api/sessions", headers={"Origin": origin})
    assert answer.status_code == 403
    assert "own page" in answer.json()["detail"]


def test_too_many_bytes(editor: Editor, frames: np.ndarray) -> None:
    settings = Settings(upload_bytes=2000, request_bytes=500)
    app = create_app(editor, lambda: make_samples(frames), settings)
    with TestClient(app, base_url=HOME) as client:
        page = Page(client)

        def endless() -> Iterator[bytes]:
            for _ in range(10):
                yield b"x" * 1000

        for content in (b"x" * 2001, endless()):  # with a length, and without
            detail = page.post("/uploads", 413, content=content)["detail"]
            assert detail == "the request is too large: at most 2000 bytes are read here"
        page.post("/scenes", 413, json={"sample": "x" * 600})
        page.post("/uploads", 415, content=b"x" * 1999)


def test_paths_of_clients_are_never_opened(client: TestClient, page: Page) -> None:
    state = page.open()
    for path in (
        "/../server.py",
        "/%2e%2e/server.py",
        "/..%2fserver.py",
        "/static/../../server.py",
        "//etc/passwd",
        "/%2fetc/passwd",
        f"{page.root}/states/{state['id']}/export/..%2f..%2fserver.py",
        f"{page.root}/states/{state['id']}/export/%2fetc%2fpasswd",
        "/api/samples/..%2f..%2fserver.py/picture.png",
    ):
        answer = client.get(path)
        assert answer.status_code in (404, 422), path
        assert b"create_app" not in answer.content
        assert b"root:" not in answer.content
    page.post("/scenes", 404, json={"sample": "../server.py"})
    page.post("/scenes", 404, json={"sample": "/etc/passwd"})


def test_a_failure_tells_no_secrets(
    editor: Editor, frames: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("the secret of /home/me")

    monkeypatch.setattr(Editor, "encode", broken)
    app = create_app(editor, lambda: make_samples(frames))
    with TestClient(app, base_url=HOME, raise_server_exceptions=False) as client:
        answer = client.post(Page(client).root + "/scenes", json={"sample": "one"})
    assert answer.status_code == 500
    assert answer.json() == {"detail": "something went wrong on the server: try something else"}
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_port_that_is_taken() -> None:
    with open_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(GeocoError, match=f"port {port} of 127.0.0.1 cannot be used"):
            open_listener("127.0.0.1", port)
    with pytest.raises(GeocoError, match="port 70000"):
        open_listener("127.0.0.1", 70_000)


def test_the_interface_is_described(client: TestClient) -> None:
    described = client.get("/api/openapi.json").json()
    edits = "/api/sessions/{session}/states/{state}/edits"
    body = described["paths"][edits]["post"]["requestBody"]["content"]["application/json"]
    sent = described["components"]["schemas"][body["schema"]["$ref"].split("/")[-1]]
    assert set(sent["discriminator"]["mapping"]) == {edit["op"] for edit, _ in EDITS}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (path, method)
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    schema = answer["content"]["application/json"]["schema"]
                    assert schema["$ref"].endswith("/Problem"), (path, method, status)
    assert json.dumps(described).count("HTTPValidationError") == 0
