"""An editor's page without a browser, for the tests of the server."""

import base64
import io
from typing import Any

import numpy as np
from fastapi.testclient import TestClient
from helpers import make_tiny_model
from PIL import Image

from geoco import config
from geoco.data import SolidsDataset
from geoco.editing.editor import Editor
from geoco.models import pretrained
from geoco.web.samples import Sample

SIZE = 16
HOME = "http://127.0.0.1"


def make_editor() -> Editor:
    return Editor(
        pretrained.LoadedModel(
            "tiny", make_tiny_model().model.float(), config.Config(), 0, (0.05, 1.2)
        )
    )


def make_frames() -> np.ndarray:
    small = config.SolidsConfig(
        episodes=config.EpisodesConfig(train=1, val=2, test=1),
        frames=12,
        height=SIZE,
        width=SIZE,
        supersample=1,
        window=config.WindowConfig(length=6),
    )
    return SolidsDataset(small, "val").batch([0, 1]).video.permute(0, 1, 3, 4, 2).numpy()


def make_samples(frames: np.ndarray) -> list[Sample]:
    return [
        Sample("one", "One", frames[0, :1]),
        Sample("two", "Two", frames[1, :1]),
        Sample("film", "Film", frames[0]),
    ]


class Page:
    """A session, as a page has one."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        answer = client.post("/api/sessions")
        assert answer.status_code == 201
        self.root = f"/api/sessions/{answer.json()['id']}"

    def post(self, path: str, expected: int = 201, **options: Any) -> dict[str, Any]:
        answer = self.client.post(self.root + path, **options)
        assert answer.status_code == expected, answer.text
        return answer.json()

    def get(self, path: str, expected: int = 200) -> Any:
        answer = self.client.get(self.root + path)
        assert answer.status_code == expected, answer.text
        return answer

    def open(self, sample: str = "one", **more: Any) -> dict[str, Any]:
        return self.post("/scenes", json={"sample": sample, **more})

    def edit(self, state: dict[str, Any], frame: int = 0, **edit: Any) -> dict[str, Any]:
        return self.post(f"/states/{state['id']}/edits?frame={frame}", json=edit)


def decode_image(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def encode_image(image: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()


def read_pixels(answer: dict[str, Any]) -> np.ndarray:
    """The picture of an answer."""
    return decode_image(base64.b64decode(answer["frame"]["picture"]))
