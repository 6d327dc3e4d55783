"""Sessions are apart from each other, expire, and stay within their memory."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from helpers_web import HOME, SIZE, Page, make_samples, read_pixels

from geoco.editing.editor import Editor
from geoco.web import Settings, create_app
from geoco.web.sessions import OpenedFrames, SceneState, Session, Sessions
from geoco.web.work_queue import AHEAD


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
    sessions = Sessions(Settings(sessions=2, idle_seconds=10, empty_seconds=5), lambda: now)
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


def make_state(editor: Editor, frames: np.ndarray) -> SceneState:
    state = SceneState(OpenedFrames(editor, frames, 42, 12))
    state.compute_scene()
    return state


def test_sessions_in_use_are_not_taken_away(editor: Editor, frames: np.ndarray) -> None:
    now = 0.0
    sessions = Sessions(Settings(sessions=1, crowded_seconds=60), lambda: now)
    first = sessions.open()
    first.keep_state(make_state(editor, frames[0, :1]))
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
            assert np.array_equal(
                read_pixels(page.get(f"/states/{state['id']}").json()), scene.image
            )
        assert session.bytes <= limit
        detail = page.post("/scenes", 422, json={"sample": "film"})["detail"]
        assert "MiB of a session: use fewer frames" in detail


def test_all_sessions_share_memory(editor: Editor, frames: np.ndarray) -> None:
    def fill(settings: Settings) -> tuple[Sessions, list[SceneState], SceneState]:
        sessions = Sessions(settings)
        one, two = sessions.open(), sessions.open()
        mine = [make_state(editor, frames[0, :1]) for _ in range(3)]
        theirs = make_state(editor, frames[1, :1])
        for state in mine:
            one.keep_state(state)
        two.keep_state(theirs)
        return sessions, mine, theirs

    each = Session(Settings(), 0)
    each.keep_state(make_state(editor, frames[0, :1]))
    # Three of four states, beside the room for what two workers are making.
    sessions, mine, theirs = fill(Settings(all_bytes=(3 + 2 * (2 + AHEAD)) * each.held))
    sessions.trim()
    assert [state.cached is None for state in mine] == [True, True, False]
    sessions, mine, theirs = fill(Settings(all_bytes=1))
    sessions.trim()
    assert [state.cached is None for state in mine] == [True, True, True]
    assert theirs.cached is not None


def count_encodings(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which every encoding adds its seed."""
    seeds: list[int] = []
    encode = Editor.encode

    def count(self: Editor, picture: Any, seed: int = 42) -> Any:
        seeds.append(seed)
        return encode(self, picture, seed)

    monkeypatch.setattr(Editor, "encode", count)
    return seeds


def test_a_sample_is_encoded_once_for_all_who_look_at_it(
    editor: Editor, frames: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = editor.encode(frames[0, 0])
    seeds = count_encodings(editor, monkeypatch)
    app = create_app(editor, lambda: make_samples(frames))
    with TestClient(app, base_url=HOME) as client:
        one, two = Page(client), Page(client)
        mine, theirs = one.open(), two.open()
        assert mine["id"] != theirs["id"]
        assert seeds == [42]
        edited = one.edit(mine, op="move", slot=1, dx=1)
        assert np.array_equal(read_pixels(edited), expected.move(1, dx=1).image)
        assert np.array_equal(
            read_pixels(two.get(f"/states/{theirs['id']}").json()), expected.image
        )
        one.open(seed=3)
        one.open("two")
        assert seeds == [42, 3, 42]
        # Each session counts it, so that no limit is passed.
        held = [app.state.service.sessions.find(page.root.split("/")[-1]) for page in (one, two)]
        scene = held[1].find_state(theirs["id"]).cached
        assert held[0].find_state(mine["id"]).cached is scene
        nbytes = scene.decoded.fields.rgb.untyped_storage().nbytes()
        assert all(session.bytes > nbytes for session in held)
        # Nobody else keeps it.
        gone = weakref.ref(scene)
        del scene, held
        for page in (one, two):
            client.delete(page.root)
        gc.collect()
        assert gone() is None
        Page(client).open()
        assert seeds == [42, 3, 42, 42]


def test_two_who_open_a_sample_at_once_wait_for_one_encoding(
    editor: Editor, frames: np.ndarray
) -> None:
    start = OpenedFrames(editor, frames[0, :1], 42, 12)
    with ThreadPoolExecutor(4) as pool:
        scenes = list(pool.map(lambda _: SceneState(start).compute_scene(), range(4)))
    assert all(scene is scenes[0] for scene in scenes)
    # It goes with the last who keeps it, whatever else is left of what was opened.
    gone = weakref.ref(scenes[0])
    scenes.clear()
    gc.collect()
    assert gone() is None
    assert start.make_scene().editor is editor


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
