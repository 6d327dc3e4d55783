"""The editor's page in a real browser, for its tests."""

import base64
import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers_web import SIZE
from playwright.sync_api import Browser, Page

from geoco.editing.editor import Scene

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")
DESKTOP = {"width": 1280, "height": 1000}
PHONE = {"width": 390, "height": 844}


def open_page(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """A page on the first sample; anything that it reports as an error fails the test."""
    context = browser.new_context(**options)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda message: (
            problems.append(message.text)
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )
    page.goto(address)
    wait_until_settled(page)
    yield page
    context.close()
    assert problems == []


def wait_until_settled(page: Page) -> None:
    page.wait_for_selector("#stage[data-busy=false][data-state]")


def read_canvas(page: Page) -> np.ndarray:
    """The pixels on the screen, of the model's size."""
    text, side = page.evaluate(
        """() => {
          const canvas = document.getElementById("picture");
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return [btoa(String.fromCharCode(...data)), canvas.width];
        }"""
    )
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(side, side, 4)[..., :3]


def wait_for_image(page: Page, image: np.ndarray) -> None:
    end = time.monotonic() + 10
    while not np.array_equal(read_canvas(page), image):
        assert time.monotonic() < end, "the picture does not become what it should"
        page.wait_for_timeout(20)


def read_edits(page: Page) -> list[dict[str, Any]]:
    """What was done, from the edit list that the page offers."""
    address = page.get_attribute("#exports a[data-file='edits.json']", "href")
    answer = page.request.get(page.url.rstrip("/") + address)
    edits: list[dict[str, Any]] = json.loads(answer.text())["edits"]
    return edits


def find_middle(scene: Scene, slot: int) -> tuple[float, float]:
    """A pixel that belongs to a slot, near its middle."""
    rows, columns = np.nonzero(scene.masks[slot])
    nearest = np.hypot(rows - rows.mean(), columns - columns.mean()).argmin()
    return columns[nearest] + 0.5, rows[nearest] + 0.5


def to_screen(page: Page, x: float, y: float) -> tuple[float, float]:
    box = page.locator("#overlay").bounding_box()
    assert box is not None
    return box["x"] + x * box["width"] / SIZE, box["y"] + y * box["height"] / SIZE


def drag(page: Page, start: tuple[float, float], end: tuple[float, float], steps: int = 4) -> None:
    page.mouse.move(*to_screen(page, *start))
    page.mouse.down()
    page.mouse.move(*to_screen(page, *end), steps=steps)
