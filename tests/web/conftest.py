"""A server around a tiny model, and a session of it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from helpers_web import HOME, Page, make_editor, make_frames, make_samples

from geoco.config import SolidsConfig, WindowConfig
from geoco.data import SolidsDataset
from geoco.editing.editor import Editor, Scene
from geoco.web import Settings, create_app
from geoco.web.server import open_listener


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Sums differ in their last digits by how many threads share them, and workers have fewer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(editor: Editor, frames: np.ndarray) -> Iterator[str]:
    """Of a server that runs."""
    with serve(editor, frames) as address:
        yield address


@contextmanager
def serve(editor: Editor, frames: np.ndarray) -> Iterator[str]:
    app = create_app(editor, lambda: make_samples(frames), Settings(sessions=100))
    listener = open_listener("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(20)


@pytest.fixture(scope="module")
def solids_frames() -> np.ndarray:
    """Frames of the generator, twice as large as the model for them."""
    dataset = SolidsDataset(
        SolidsConfig(height=128, width=128, window=WindowConfig(length=2, stride=2)), "val"
    )
    return dataset.batch([7]).video.permute(0, 1, 3, 4, 2).numpy()[0]


@pytest.fixture(scope="module")
def solids_editor() -> Editor:
    return Editor.load("geoco-solids")


@pytest.fixture(scope="module")
def solids_address(solids_editor: Editor, frames: np.ndarray) -> Iterator[str]:
    """Of a server with the shipped model."""
    with serve(solids_editor, frames) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from helpers_browser import CHROMIUM
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def scene(editor: Editor, frames: np.ndarray) -> Scene:
    return editor.encode(frames[0, 0])


@pytest.fixture(scope="module")
def slot(scene: Scene) -> int:
    """The largest object."""
    objects = [slot for slot in scene.slots if not slot.is_background and slot.area >= 10]
    return max(objects, key=lambda slot: slot.area).index
