"""Nobody gets more than is theirs: hosts, origins, sizes, paths, failures, a full queue."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from helpers_web import HOME, Page, encode_image, make_samples

from geoco.editing.editor import Editor
from geoco.errors import GeocoError
from geoco.web import Settings, create_app
from geoco.web.middleware import HEADERS
from geoco.web.samples import Sample
from geoco.web.server import open_listener


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
        data = encode_image(frames[0, 0])
        tries = [pool.submit(client.post, page.root + "/uploads", content=data) for _ in range(3)]
        # The page itself is still there.
        assert client.get("/").status_code == 200
        refused = [one.result(20) for one in tries if _ends_soon(one)]
        release.set()
        assert first.result(20).status_code == 200
        assert sorted(one.result(20).status_code for one in tries) == [201, 503, 503]
        for answer in refused:
            assert answer.json() == {"detail": "the server is busy: try again in a second"}
            assert answer.headers["retry-after"] == "1"
        assert len(refused) == 2
        assert client.post(page.root + "/uploads", content=data).status_code == 201


def _ends_soon(future: Any) -> bool:
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


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//[", "http://a]b["])
def test_origins_that_cannot_be_read(client: TestClient, origin: str) -> None:
    answer = client.post("/api/sessions", headers={"Origin": origin})
    assert answer.status_code in (400, 403)
    assert "origin" in answer.json()["detail"] or "own page" in answer.json()["detail"]


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
    def fail(*_: Any) -> Any:
        raise RuntimeError("the secret of /home/me")

    monkeypatch.setattr(Editor, "encode", fail)
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
