"""Under load: all that is kept counts, what is worked for stays, the rest is told when."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from helpers_web import HOME, Page, encode_image, make_samples
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

from geoco.editing.editor import Editor
from geoco.web import Settings, create_app
from geoco.web.middleware import RequestGuard
from geoco.web.sessions import OpenedFrames, SceneState, Session, Sessions
from geoco.web.work_queue import AHEAD, WorkQueue


def find_session(client: TestClient, page: Page) -> Session:
    return client.app.state.service.sessions.find(page.root.split("/")[-1])


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "status"),
    [
        ({"op": "move", "slot": 1, "dx": 1}, 200),
        ({"op": "move", "slot": 99}, 422),  # computed in vain, but computed
    ],
)
def test_previews_count(
    editor: Editor, frames: np.ndarray, edit: dict[str, Any], status: int
) -> None:
    state = SceneState(OpenedFrames(editor, frames[0, :1], 42, 12))
    state.compute_scene()
    alone = Session(Settings(), 0)
    alone.keep_state(state)
    settings = Settings(session_bytes=4 * alone.held)
    with TestClient(create_app(editor, lambda: make_samples(frames), settings)) as client:
        client.base_url = HOME
        page = Page(client)
        states = [page.open()]
        for _ in range(9):
            states.append(page.edit(states[-1], op="move", slot=1, dx=1))
        session = find_session(client, page)
        for one in states:
            page.post(f"/states/{one['id']}/previews", status, json=edit)
            assert session.bytes <= settings.session_bytes
            assert session.held >= session.bytes - alone.held  # the newest may go on growing


def test_room_is_kept_for_what_is_made_and_what_comes_in(
    editor: Editor, frames: np.ndarray
) -> None:
    each = SceneState(OpenedFrames(editor, frames[0, :1], 42, 12))
    each.compute_scene()
    one = Session(Settings(), 0)
    one.keep_state(each)
    making = 2 * (1 + AHEAD)
    settings = Settings(all_bytes=(2 + making) * one.held, workers=1, incoming_bytes=one.held)
    sessions = Sessions(settings)
    states = []
    for _ in range(2):
        session = sessions.open()
        state = SceneState(OpenedFrames(editor, frames[0, :1], 42, 12))
        state.compute_scene()
        session.keep_state(state)
        states.append(state)
    sessions.trim()
    assert all(state.cached is not None for state in states)
    sessions.receive(one.held // 2)
    assert [state.cached is None for state in states] == [True, False]
    with pytest.raises(HTTPException, match="too much is being uploaded") as caught:
        sessions.receive(one.held)
    assert caught.value.status_code == 503
    sessions.forget(one.held // 2)
    sessions.receive(one.held)


# -- what comes in ---------------------------------------------------------------------------------


async def send_request(
    settings: Settings,
    messages: list[dict[str, Any]],
    headers: dict[str, str],
    sessions: Sessions,
) -> tuple[list[int], list[bytes]]:
    """Statuses and bodies of the answer to a request; after the last message nothing more comes."""
    waiting = iter(messages)

    async def receive() -> dict[str, Any]:
        message = next(waiting, None)
        if message is None:
            await asyncio.Event().wait()
        return message

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def answer_errors(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except StarletteHTTPException as error:
            await send({"type": "http.response.start", "status": error.status_code, "headers": []})
            await send({"type": "http.response.body", "body": error.detail.encode()})

    scope = {
        "type": "http",
        "path": "/api/sessions/x/uploads",
        "headers": [
            (name.lower().encode(), value.encode())
            for name, value in {"host": "localhost", **headers}.items()
        ],
    }
    await RequestGuard(answer_errors, settings, sessions)(scope, receive, send)
    return (
        [message["status"] for message in sent if "status" in message],
        [message["body"] for message in sent if "body" in message],
    )


def part(size: int, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


def test_unfinished_uploads_count_together() -> None:
    settings = Settings(incoming_bytes=1000, silent_seconds=0.2)
    sessions = Sessions(settings)

    async def send_all() -> list[Any]:
        slow = [
            send_request(settings, [part(300)], {}, sessions)  # and then it says nothing
            for _ in range(5)
        ]
        return await asyncio.gather(*slow)

    answers = asyncio.run(send_all())
    assert sorted(status for statuses, _ in answers for status in statuses) == [408] * 3 + [503] * 2
    # All of it is free again.
    done = asyncio.run(send_request(settings, [part(500), part(500, more=False)], {}, sessions))
    assert done[0] == [200]


def test_a_length_that_is_told_has_its_room_from_the_beginning() -> None:
    """Those that begin are received to the end; the rest is refused before anything of it comes."""
    settings = Settings(incoming_bytes=1000, silent_seconds=5)
    sessions = Sessions(settings)
    headers = {"content-length": "400"}

    async def send_all() -> list[Any]:
        tries = [
            send_request(settings, [part(200), part(200, more=False)], headers, sessions)
            for _ in range(5)
        ]
        return await asyncio.gather(*tries)

    answers = asyncio.run(send_all())
    assert sorted(status for statuses, _ in answers for status in statuses) == [200] * 2 + [503] * 3
    assert sum(b"too much is being uploaded" in body[0] for _, body in answers) == 3
    # One that sends more than it told counts with all of it.
    for count, status in ((1000, 200), (1001, 503)):
        lie = [part(count - 1), part(1, more=False)]
        assert asyncio.run(send_request(settings, lie, {"content-length": "3"}, sessions))[0] == [
            status
        ]
    sessions.receive(1000)  # all of it is free again


def test_refusals_before_a_body_say_when_to_come_again(editor: Editor, frames: np.ndarray) -> None:
    settings = Settings(incoming_bytes=100)
    with TestClient(create_app(editor, lambda: make_samples(frames), settings)) as client:
        client.base_url = HOME
        page = Page(client)
        answer = client.post(page.root + "/uploads", content=b"x" * 101)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "too much is being uploaded" in answer.json()["detail"]


def test_a_client_that_hangs_up_is_no_failure() -> None:
    settings = Settings()
    sessions = Sessions(settings)
    gone = [part(300), {"type": "http.disconnect"}]
    assert asyncio.run(send_request(settings, gone, {}, sessions)) == ([], [])
    sessions.receive(settings.incoming_bytes)


def test_a_length_of_five_thousand_digits() -> None:
    settings = Settings()
    headers = {"content-length": "9" * 5000}
    statuses, _ = asyncio.run(send_request(settings, [part(1, False)], headers, Sessions(settings)))
    assert statuses == [413]


# -- the door --------------------------------------------------------------------------------------


def test_a_session_that_is_worked_for_stays() -> None:
    now = 0.0
    settings = Settings(sessions=2, idle_seconds=100, crowded_seconds=50, empty_seconds=5)
    sessions = Sessions(settings, lambda: now)
    busy, idle = sessions.open(), sessions.open()
    with sessions.use(busy.id):
        now = 99.0
        third = sessions.open()  # takes the place of the idle one, though that was used later
        with pytest.raises(HTTPException, match="no such session"):
            sessions.find(idle.id)
        with sessions.use(third.id), pytest.raises(HTTPException, match="too many") as caught:
            sessions.open()
        assert caught.value.headers == {"Retry-After": "5"}
        now = 250.0
        sessions.expire()
        assert len(sessions) == 1
    # Its time begins when the work ends.
    now = 349.0
    assert sessions.find(busy.id) is busy


def test_a_page_has_time_to_open_something() -> None:
    now = 0.0
    sessions = Sessions(Settings(sessions=1, empty_seconds=5), lambda: now)
    first = sessions.open()
    now = 2.5
    with pytest.raises(HTTPException, match="too many") as caught:
        sessions.open()
    assert caught.value.headers == {"Retry-After": "3"}
    assert sessions.find(first.id) is first


def test_an_upload_keeps_its_session(editor: Editor, frames: np.ndarray) -> None:
    """The place of a session is given away before its upload is computed, or not at all."""
    entered, release = threading.Event(), threading.Event()

    class SlowEditor(Editor):
        def encode(self, picture: Any, seed: int = 42) -> Any:
            entered.set()
            release.wait(20)
            return super().encode(picture, seed)

    slow = SlowEditor.__new__(SlowEditor)
    slow.__dict__.update(editor.__dict__)
    settings = Settings(sessions=1, empty_seconds=0, crowded_seconds=0, idle_seconds=0)
    with TestClient(create_app(slow, lambda: make_samples(frames), settings)) as client:
        client.base_url = HOME
        sessions = client.app.state.service.sessions
        sessions._clock = lambda: 0.0
        page = Page(client)
        answers: list[Any] = []
        content = encode_image(frames[0, 0])
        upload = threading.Thread(
            target=lambda: answers.append(client.post(page.root + "/uploads", content=content))
        )
        upload.start()
        assert entered.wait(20)
        sessions._clock = lambda: 10.0
        refused = client.post("/api/sessions")
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        release.set()
        upload.join(20)
        assert answers[0].status_code == 201
        page.get(f"/states/{answers[0].json()['id']}")


# -- the queue -------------------------------------------------------------------------------------


def test_of_one_worker_at_most_one_result_is_not_counted() -> None:
    events: list[str] = []

    async def run() -> None:
        queue = WorkQueue(1, 4)

        def work(name: str) -> str:
            events.append(f"begin {name}")
            if name == "b":
                raise ValueError(name)
            return name

        answers = await asyncio.gather(
            *(
                queue.run(lambda n=name: work(n), lambda result: events.append(f"count {result}"))
                for name in "abc"
            ),
            return_exceptions=True,
        )
        assert [str(answer) for answer in answers] == ["a", "b", "c"]

    asyncio.run(run())
    assert AHEAD == 1
    assert [event for event in events if event.startswith("begin")] == [
        "begin a",
        "begin b",
        "begin c",
    ]
    counts = [event for event in events if event.startswith("count")]
    assert counts == ["count a", "count None", "count c"]
    assert events.index("count a") < events.index("begin c")


def test_a_worker_goes_on_while_the_loop_is_at_work() -> None:
    begun = threading.Event()

    async def run() -> None:
        queue = WorkQueue(1, 4)
        first = asyncio.create_task(queue.run(lambda: 1))
        second = asyncio.create_task(queue.run(begun.set))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # both are handed over
        assert begun.wait(20)  # the loop is not asked
        await asyncio.gather(first, second)

    asyncio.run(run())


def test_a_queue_that_ends_answers_everyone() -> None:
    release = threading.Event()

    async def run() -> None:
        queue = WorkQueue(1, 4)
        waiting = [asyncio.create_task(queue.run(lambda: release.wait(20))) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert queue.end()
        for answer in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5):
            assert isinstance(answer, HTTPException)
            assert answer.status_code == 503
            assert "ending" in answer.detail
        with pytest.raises(HTTPException, match="ending"):
            await queue.run(lambda: 1)
        release.set()

    asyncio.run(run())
