"""Memory of drawing at the pictures' own size: bounded, counted, and given in turns."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from helpers_web import HOME, Page, encode_image, make_samples
from PIL import Image

from geoco.editing.editor import Editor, Scene
from geoco.errors import GeocoError
from geoco.web import Settings, create_app
from geoco.web.drawing_room import DrawingRoom
from geoco.web.sessions import OpenedFrames, SceneState, Sessions

SIDE = 96


def test_who_does_not_fit_waits_for_its_turn() -> None:
    events: list[str] = []

    async def draw(room: DrawingRoom, name: str, count: int, release: asyncio.Event) -> None:
        await room.take(count)
        events.append(name)
        await release.wait()
        room.give_back(count)

    async def run() -> None:
        sessions = Sessions(Settings())
        room = DrawingRoom(Settings(drawing_bytes=10, waiting=3), sessions)
        ends = [asyncio.Event() for _ in range(4)]
        tasks = []
        for number, count in enumerate((6, 5, 4, 1)):
            tasks.append(asyncio.create_task(draw(room, "abcd"[number], count, ends[number])))
            await asyncio.sleep(0)
        assert events == ["a"]  # the last two would fit, but b was there before them
        assert sessions._reserved == 6
        with pytest.raises(HTTPException, match="busy") as busy:
            await room.take(1)
        assert busy.value.headers == {"Retry-After": "1"}
        with pytest.raises(GeocoError, match="to draw this at its own size needs 1 MiB"):
            await room.take(2**20)
        tasks[2].cancel()  # who hangs up while it waits
        ends[0].set()
        await asyncio.sleep(0.01)
        assert events == ["a", "b", "d"]
        assert sessions._reserved == 6
        ends[1].set()
        ends[3].set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sessions._reserved == 0

    asyncio.run(run())


def test_what_is_drawn_counts_with_all_that_is_kept() -> None:
    class Full(Sessions):
        trimmed = 0

        def trim(self) -> None:
            self.trimmed += 1

    sessions = Full(Settings())

    async def run() -> None:
        await DrawingRoom(Settings(), sessions).take(7)

    asyncio.run(run())
    assert sessions.trimmed == 1


def open_large(page: Page, frames: np.ndarray) -> dict[str, Any]:
    large = np.asarray(Image.fromarray(frames[0, 0]).resize((SIDE, SIDE)))
    return page.post("/uploads", content=encode_image(large))


def test_room_for_drawings_is_part_of_all_memory(editor: Editor, frames: np.ndarray) -> None:
    """While one draws, what others keep is dropped; and it draws alone where two do not fit."""
    entered, release = threading.Event(), threading.Event()
    drawing: list[int] = []
    most: list[int] = []
    render = Scene.render_frames

    def slow(self: Scene, size: Any = "original") -> Any:
        drawing.append(1)
        most.append(len(drawing))
        entered.set()
        release.wait(20)
        yield from render(self, size)
        drawing.pop()

    large = Image.fromarray(frames[0, 0]).resize((SIDE, SIDE))
    needed = editor.encode(large).drawing_bytes
    settings = Settings(drawing_bytes=needed * 3 // 2, all_bytes=needed)
    app = create_app(editor, lambda: make_samples(frames), settings)
    with (
        pytest.MonkeyPatch.context() as patch,
        TestClient(app, base_url=HOME) as client,
        ThreadPoolExecutor(3) as pool,
    ):
        patch.setattr(Scene, "render_frames", slow)
        page, other = Page(client), Page(client)
        kept = app.state.service.sessions.find(other.root.split("/")[-1]).find_state(
            other.open()["id"]
        )
        state = open_large(page, frames)
        path = f"{page.root}/states/{state['id']}/export/own-size.png"
        answers = [pool.submit(client.get, path) for _ in range(3)]
        try:
            assert entered.wait(20)
            assert kept.cached is None
            # The other thread is free for edits meanwhile.
            page.edit(state, op="move", slot=1, dx=1)
        finally:
            release.set()
        assert {answer.result(60).status_code for answer in answers} == {200}
    assert max(most) == 1
    assert app.state.service.sessions._reserved == 0


def test_too_much_to_draw_is_refused_in_a_sentence(editor: Editor, frames: np.ndarray) -> None:
    settings = Settings(drawing_bytes=1000)
    app = create_app(editor, lambda: make_samples(frames), settings)
    with TestClient(app, base_url=HOME) as client:
        page = Page(client)
        state = open_large(page, frames)
        answer = page.get(f"/states/{state['id']}/export/own-size.png", 422)
        assert "take looks from fewer pictures" in answer.json()["detail"]
        page.get(f"/states/{state['id']}/export/picture.png")
    assert app.state.service.sessions._reserved == 0


def test_a_drawing_that_fails_gives_its_room_back(
    editor: Editor, frames: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Scene, size: Any = "original") -> Any:
        raise GeocoError("it cannot be drawn")

    monkeypatch.setattr(Scene, "render_frames", fail)
    app = create_app(editor, lambda: make_samples(frames))
    with TestClient(app, base_url=HOME) as client:
        page = Page(client)
        state = open_large(page, frames)
        path = f"/states/{state['id']}/export/own-size.png"
        assert page.get(path, 422).json() == {"detail": "it cannot be drawn"}
    assert app.state.service.sessions._reserved == 0


def test_a_drawing_that_no_thread_takes_gives_its_room_back(
    editor: Editor, frames: np.ndarray
) -> None:
    service = create_app(editor, lambda: make_samples(frames)).state.service
    service.queue.end()
    session = service.sessions.open()
    state = SceneState(OpenedFrames(editor, frames[0, :1], 42, 12))
    with pytest.raises(HTTPException, match="ending"):
        asyncio.run(service.draw(session, state, 7, lambda: 1))
    assert service.sessions._reserved == 0
