"""A server around a tiny model, and a session of it."""

from collections.abc import Iterator

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from helpers_web import HOME, Page, make_editor, make_frames, make_samples

from geoco.editing.editor import Editor
from geoco.web import create_app


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
