"""A real server: silent connections are closed, hang-ups leave no trace, and its end is soon."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from helpers_web import encode_image, make_samples

from geoco.editing.editor import Editor
from geoco.web import Settings, create_app
from geoco.web.connections import PatientProtocol, Server
from geoco.web.server import open_listener


class Running:
    """A server in a thread, which can be told to end."""

    def __init__(self, app: Any, settings: Settings) -> None:
        self.listener = open_listener("127.0.0.1", 0)
        self.port = self.listener.getsockname()[1]
        self.service = app.state.service
        self.server = Server(app, settings, self.service.queue)
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],))
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.web = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def end(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.web.close()


@pytest.fixture
def running(
    editor: Editor, frames: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    monkeypatch.setattr(PatientProtocol, "seconds", 0.3)
    settings = Settings(silent_seconds=0.3, ending_seconds=1)
    one = Running(create_app(editor, lambda: make_samples(frames), settings), settings)
    yield one
    one.end()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_connection_that_asks_nothing_is_closed(running: Running, sent: bytes) -> None:
    with running.connect() as connection:
        connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    # And one that drips does not gain time by that.
    with running.connect() as connection, pytest.raises(ConnectionError):  # noqa: PT012
        for _ in range(100):
            connection.sendall(b"G")
            time.sleep(0.05)


def test_a_body_that_does_not_come_is_not_waited_for(running: Running) -> None:
    session = running.web.post("/api/sessions").json()["id"]
    with running.connect() as connection:
        head = f"POST /api/sessions/{session}/uploads HTTP/1.1\r\nHost: localhost\r\n"
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\nabc".encode())
        assert b" 408 " in connection.recv(1000).split(b"\r\n")[0]


def test_hang_ups_write_no_traceback(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    session = running.web.post("/api/sessions").json()["id"]
    path = f"/api/sessions/{session}/uploads"
    with caplog.at_level(logging.WARNING):
        for body in (b"", b"abc"):
            connection = running.connect()
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
            connection.sendall(head.encode() + body)
            time.sleep(0.05)
            connection.close()
        time.sleep(0.2)
        assert running.web.get(f"/api/sessions/{session}").status_code == 200
    assert caplog.records == []


def test_the_end_does_not_wait_for_work(
    editor: Editor, frames: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    entered, release = threading.Event(), threading.Event()

    class SlowEditor(Editor):
        def encode(self, picture: Any, seed: int = 42) -> Any:
            entered.set()
            release.wait(20)
            return super().encode(picture, seed)

    slow = SlowEditor.__new__(SlowEditor)
    slow.__dict__.update(editor.__dict__)
    settings = Settings(ending_seconds=1)
    running = Running(create_app(slow, lambda: make_samples(frames), settings), settings)
    session = running.web.post("/api/sessions").json()["id"]
    answers: list[httpx.Response] = []
    content = encode_image(frames[0, 0])

    def upload() -> None:
        answers.append(running.web.post(f"/api/sessions/{session}/uploads", content=content))

    waiting = threading.Thread(target=upload)
    waiting.start()
    assert entered.wait(20)
    silent = running.connect()
    silent.sendall(b"POST /api/sessions/x/uploads HTTP/1.1\r\nHost: localhost\r\n")
    silent.sendall(b"Content-Length: 9\r\n\r\n")
    with caplog.at_level(logging.WARNING):
        running.end()  # while the worker still works
        waiting.join(20)
    assert not release.is_set()
    assert answers[0].status_code == 503
    assert "ending" in answers[0].json()["detail"]
    assert not any(record.exc_info for record in caplog.records)
    assert running.server.works_on
    release.set()
    silent.close()
