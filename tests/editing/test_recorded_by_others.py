"""Edit lists from anyone: replayed, or refused in one sentence, without asking anyone else."""

import base64
import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from helpers_web import HOME, SIZE, Page, make_editor, make_frames, make_samples

from geoco import drawing
from geoco.editing import recording
from geoco.editing.editor import Editor, Film, Scene
from geoco.errors import GeocoError
from geoco.models import hub, pretrained
from geoco.web import create_app


@pytest.fixture(scope="module")
def editor() -> Editor:
    return make_editor()


def make_png(width: int, height: int) -> str:
    """A PNG that says it is so large; its pixels are missing."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100))
    return base64.b64encode(data + chunk(b"IEND", b"")).decode()


def record(editor: Editor, **changes: Any) -> str:
    scene = editor.encode(np.zeros((SIZE, SIZE, 3), np.uint8)).move(1, dx=1)
    return json.dumps(json.loads(scene.to_json()) | changes)


DEEP = '{"film": ' * 5000
BAD = {
    "empty": ("", "not right: Invalid JSON: EOF"),
    "deep": (DEEP, "not right: Invalid JSON: recursion limit"),
    "slow": ({"frames_per_second": 0.001}, "frames_per_second: Input should be greater"),
    "endless": ({"frames_per_second": 1e999}, "Invalid JSON|frames_per_second: "),
    "sixty thousand": ({"frames": [make_png(60_000, 60_000)]}, "is too large"),
    "eight thousand": (
        {"frames": [make_png(8000, 8000)]},
        "is too large: at most 33,554,432 pixels",
    ),
    "many": (
        {"kind": "Film", "frames": [make_png(1024, 1024)] * 40},
        "is too large: at most 838,860 pixels",
    ),
    "broken": ({"frames": [make_png(SIZE, SIZE)[:60]]}, "not a PNG in base 64|damaged"),
    "long key": ({"k" * 100_000: 1}, "k" * 60 + ": Extra inputs are not permitted"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_one_sentence(editor: Editor, change: Any, message: str) -> None:
    text = change if isinstance(change, str) else record(editor, **change)
    if "1e999" not in message:
        text = text.replace("Infinity", "1e999")
    with pytest.raises(GeocoError, match=message) as caught:
        recording.replay(None, text, editor)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    with TestClient(create_app(editor, lambda: make_samples(make_frames())), base_url=HOME) as web:
        answer = web.post(Page(web).root + "/imports", content=text)
        assert answer.status_code in (413, 422)
        assert "\n" not in answer.json()["detail"]


def test_a_list_of_anyone_fetches_nothing(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(name: str, file: str) -> Any:
        asked.append(name)
        raise GeocoError("no connection")

    monkeypatch.setattr(hub, "fetch_from_hub", fetch)
    monkeypatch.setattr(pretrained, "fetch_from_hub", fetch)
    text = record(editor, model="someone/model")
    for act in (lambda: Scene.replay(text), lambda: Editor.load_recorded(text)):
        with pytest.raises(GeocoError, match=r"someone/model: there is no such model.*--model"):
            act()
    assert asked == []
    with pytest.raises(GeocoError, match="no connection"):
        Editor.load("someone/model")
    assert asked == ["someone/model"]
    # With an editor of the user's own it does not matter which model it names.
    assert Scene.replay(text, editor).history


def test_films_that_no_file_can_hold(editor: Editor) -> None:
    frames = make_frames()[0]
    for rate in (0.0, 0.01, 5000.0, float("nan")):
        with pytest.raises(GeocoError, match=r"frames a second: expected 0.1 to 1000"):
            editor.encode_video(frames, frames_per_second=rate)
    slow = editor.encode_video(frames, frames_per_second=0.1)
    assert Film.replay(slow.to_json(), editor).frames_per_second == 0.1


def test_no_picture_without_pixels(editor: Editor) -> None:
    scene = editor.encode(make_frames()[0, 0])
    for zoom in (0, -1):
        with pytest.raises(GeocoError, match=f"zoom {zoom}: expected 1 or more"):
            scene.draw_outlines(zoom)
        with pytest.raises(GeocoError, match=f"zoom {zoom}: expected 1 or more"):
            drawing.magnify(scene.image, zoom)
