"""The page in a real browser: what is dragged there is what the editor does in Python."""

import base64
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from helpers_web import SIZE, decode_image, encode_image, make_samples
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from geoco.editing.editor import Editor, Film, Scene
from geoco.web import Settings, create_app
from geoco.web.server import open_listener

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt install chromium")
DESKTOP = {"width": 1280, "height": 1000}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def address(editor: Editor, frames: np.ndarray) -> Iterator[str]:
    app = create_app(editor, lambda: make_samples(frames), Settings(sessions=100))
    listener = open_listener("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    yield from open_page(browser, address, viewport=DESKTOP)


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
    address = page.get_attribute("#exports a[download='edits.json']", "href")
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


@pytest.fixture(scope="module")
def scene(editor: Editor, frames: np.ndarray) -> Scene:
    return editor.encode(frames[0, 0])


@pytest.fixture(scope="module")
def slot(scene: Scene) -> int:
    """The largest object."""
    objects = [slot for slot in scene.slots if not slot.is_background and slot.area >= 10]
    return max(objects, key=lambda slot: slot.area).index


def test_the_page_shows_what_the_model_draws(page: Page, scene: Scene) -> None:
    assert np.array_equal(read_canvas(page), scene.image)
    expect(page.locator("#model")).to_have_text(
        "Model tiny · 4 slots · pictures are fitted to 16 × 16 pixels"
    )
    expect(page.locator("#objects button")).to_have_count(4)
    expect(page.locator("#samples button")).to_have_count(3)
    expect(page.locator("#undo")).to_be_disabled()
    expect(page.locator("#timeline")).to_be_hidden()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input:not([hidden]), select")].filter(
          (one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.length)).length"""
    )
    assert nameless == 0


def test_dragging_moves_an_object(page: Page, scene: Scene, slot: int) -> None:
    x, y = find_middle(scene, slot)
    drag(page, (x, y), (x + 3, y - 2))
    expected = scene.move(slot, dx=3, dy=-2)
    # The picture follows before the pointer is let go.
    wait_for_image(page, expected.image)
    expect(page.locator("#undo")).to_be_disabled()
    page.mouse.up()
    wait_until_settled(page)
    assert np.array_equal(read_canvas(page), expected.image)
    assert not np.array_equal(expected.image, scene.image)
    assert [(edit["op"], edit["dx"], edit["dy"]) for edit in read_edits(page)] == [("move", 3, -2)]
    expect(page.locator(f"#objects [data-slot='{slot}']")).to_have_attribute("aria-pressed", "true")


def test_the_outline_follows_at_once(page: Page, scene: Scene, slot: int) -> None:
    """Also when the server does not answer at all."""
    page.route("**/previews*", lambda route: route.abort())
    x, y = find_middle(scene, slot)
    drag(page, (x, y), (x, y), steps=1)
    before = page.locator("#overlay").screenshot()
    page.mouse.move(*to_screen(page, x + 4, y))
    after = page.locator("#overlay").screenshot()
    assert before != after
    page.mouse.up()
    page.unroute_all(behavior="ignoreErrors")


def test_a_corner_resizes(page: Page, scene: Scene, slot: int) -> None:
    view = scene.slots[slot]
    assert view.box is not None
    page.click(f"#objects [data-slot='{slot}']")
    pivot = np.array([(p + 1) / 2 * (SIZE - 1) + 0.5 for p in view.position])
    corners = [(x, y) for x in (view.box[0], view.box[2]) for y in (view.box[1], view.box[3])]
    corner = max(corners, key=lambda place: np.hypot(*(np.array(place) - pivot)))
    inside = tuple(np.clip(corner, 0.1, SIZE - 0.1))
    goal = pivot + 0.75 * (np.array(inside) - pivot)
    drag(page, inside, tuple(goal))
    page.mouse.up()
    wait_until_settled(page)
    (edit,) = read_edits(page)
    assert edit["op"] == "resize"
    assert edit["factor"] == pytest.approx(0.75, abs=0.01)
    assert np.array_equal(read_canvas(page), scene.resize(slot, edit["factor"]).image)


def test_the_wheel_resizes(page: Page, scene: Scene, slot: int) -> None:
    page.mouse.click(*to_screen(page, *find_middle(scene, slot)))
    for _ in range(3):
        page.mouse.wheel(0, 100)
    expect(page.locator("#undo")).to_be_enabled()
    wait_until_settled(page)
    (edit,) = read_edits(page)
    assert edit["op"] == "resize"
    assert edit["factor"] == pytest.approx(np.exp(-0.36), abs=1e-3)
    assert np.array_equal(read_canvas(page), scene.resize(slot, edit["factor"]).image)


def test_an_object_is_transplanted_from_the_tray(
    page: Page, scene: Scene, slot: int, editor: Editor, frames: np.ndarray
) -> None:
    other = editor.encode(frames[1, 0])
    page.select_option("#giver", "two")
    given = page.locator("#tray button").first
    number = int(given.get_attribute("data-giver") or "")
    box = given.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(*to_screen(page, *find_middle(scene, slot)), steps=4)
    page.mouse.up()
    expect(page.locator("#undo")).to_be_enabled()
    wait_until_settled(page)
    expected = scene.transplant(slot, other, number)
    assert np.array_equal(read_canvas(page), expected.image)
    # The same again with the keyboard, and the background, too.
    page.click("#undo")
    wait_until_settled(page)
    given.press("Enter")
    wait_until_settled(page)
    assert np.array_equal(read_canvas(page), expected.image)
    page.click("#backdrop")
    wait_until_settled(page)
    assert np.array_equal(read_canvas(page), expected.set_background(other).image)


def test_undo_and_redo(page: Page, scene: Scene, slot: int) -> None:
    x, y = find_middle(scene, slot)
    drag(page, (x, y), (x + 2, y))
    page.mouse.up()
    wait_until_settled(page)
    page.keyboard.press("Delete")
    wait_until_settled(page)
    moved = scene.move(slot, dx=2)
    assert np.array_equal(read_canvas(page), moved.remove(slot).image)
    for keys, expected in (
        ("Control+z", moved),
        ("Control+z", scene),
        ("Control+z", scene),
        ("Control+Shift+z", moved),
    ):
        page.keyboard.press(keys)
        wait_until_settled(page)
        wait_for_image(page, expected.image)
    # A new edit drops what could be redone.
    page.keyboard.press(str(slot))
    page.click("#remove")
    wait_until_settled(page)
    expect(page.locator("#redo")).to_be_disabled()
    assert [edit["op"] for edit in read_edits(page)] == ["move", "remove"]


def test_keys(page: Page, scene: Scene, slot: int) -> None:
    page.focus("#overlay")
    page.keyboard.press(str(slot))
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    expected = scene.move(slot, dx=3, dy=-5)
    wait_for_image(page, expected.image)
    for _ in range(2):
        page.keyboard.press("-")
    expected = expected.resize(slot, round(1.05**-2, 4))
    wait_for_image(page, expected.image)
    expect(page.locator("#stage")).to_have_attribute("data-busy", "false")
    page.wait_for_timeout(600)
    wait_until_settled(page)
    # Keys in a row are one edit each kind.
    assert [edit["op"] for edit in read_edits(page)] == ["move", "resize"]
    page.keyboard.press("Escape")
    expect(page.locator("#numbers")).to_be_hidden()


def test_exact_numbers(page: Page, scene: Scene, slot: int) -> None:
    page.click(f"#objects [data-slot='{slot}']")
    view = scene.slots[slot]
    x = (view.position[0] + 1) / 2 * (SIZE - 1)
    assert float(page.input_value("#x")) == pytest.approx(x, abs=0.051)
    page.fill("#x", "4")
    page.press("#x", "Enter")
    wait_until_settled(page)
    (edit,) = read_edits(page)
    assert (edit["op"], edit["x"]) == ("move_to", pytest.approx(2 * 4 / (SIZE - 1) - 1))
    expected = scene.move_to(slot, edit["x"], view.position[1])
    assert np.array_equal(read_canvas(page), expected.image)
    page.fill("#scale", "0.4")
    page.press("#scale", "Enter")
    wait_until_settled(page)
    assert np.array_equal(read_canvas(page), expected.resize_to(slot, 0.4).image)
    page.fill("#scale", "50")
    page.press("#scale", "Enter")
    expect(page.locator("#problem")).to_contain_text("less than or equal to 2, got 50")


def test_swap_duplicate_and_their_messages(page: Page, scene: Scene, slot: int) -> None:
    page.click(f"#objects [data-slot='{slot}']")
    other = int(page.locator("#swap option").nth(1).get_attribute("value") or "")
    page.select_option("#swap", str(other))
    wait_until_settled(page)
    assert np.array_equal(read_canvas(page), scene.swap(slot, other).image)
    page.click("#undo")
    wait_until_settled(page)
    background = next(view.index for view in scene.slots if view.is_background)
    page.click(f"#objects [data-slot='{background}']")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#warnings")).to_contain_text("is the background")


def test_before_and_after(page: Page, scene: Scene, slot: int) -> None:
    page.click(f"#objects [data-slot='{slot}']")
    page.click("#remove")
    wait_until_settled(page)
    edited = scene.remove(slot).image
    page.click("#compare")
    expected = np.concatenate([scene.source[:, : SIZE // 2], edited[:, SIZE // 2 :]], axis=1)
    wait_for_image(page, expected)
    page.select_option("#before", "model")
    wait_for_image(page, np.concatenate([scene.image[:, :8], edited[:, 8:]], axis=1))
    page.locator("#split").fill("0")
    wait_for_image(page, edited)


def test_stale_requests_are_dropped(page: Page, scene: Scene, slot: int) -> None:
    asked: list[dict[str, Any]] = []

    def slowly(route: Route) -> None:
        asked.append(json.loads(route.request.post_data or ""))
        page.wait_for_timeout(120)
        route.continue_()

    page.route("**/previews*", slowly)
    x, y = find_middle(scene, slot)
    drag(page, (x, y), (x + 4, y + 1), steps=40)
    expected = scene.move(slot, dx=4, dy=1).image
    wait_for_image(page, expected)
    assert asked[-1]["dx"] == 4
    assert len(asked) <= 10, "of forty moves, all but a few are out of date before they are sent"
    page.unroute_all(behavior="wait")
    page.mouse.up()
    wait_until_settled(page)
    assert np.array_equal(read_canvas(page), expected)


def test_a_busy_server_is_asked_again(page: Page, scene: Scene, slot: int) -> None:
    asked: list[str] = []

    def busy_once(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(
                status=503, headers={"Retry-After": "0"}, json={"detail": "the server is busy"}
            )
        else:
            route.continue_()

    page.route("**/edits?*", busy_once)
    page.click(f"#objects [data-slot='{slot}']")
    page.click("#remove")
    wait_for_image(page, scene.remove(slot).image)
    assert len(asked) == 2
    page.unroute_all(behavior="wait")


def test_exports(page: Page, scene: Scene, slot: int, editor: Editor) -> None:
    page.click(f"#objects [data-slot='{slot}']")
    page.click("#remove")
    wait_until_settled(page)
    expected = scene.remove(slot)
    exports = {}
    for title in ("Picture png", "Edit list", "Python py"):
        with page.expect_download() as download:
            page.locator("#exports a").filter(has_text=title.split()[0]).first.click()
        exports[download.value.suggested_filename] = Path(download.value.path()).read_bytes()
    assert np.array_equal(decode_image(exports["picture.png"]), expected.image)
    assert np.array_equal(
        Scene.replay(exports["edits.json"].decode(), editor).image, expected.image
    )
    assert f"scene = scene.remove({slot})" in exports["edits.py"].decode()
    page.click("#code-details summary")
    expect(page.locator("#code")).to_have_text(exports["edits.py"].decode())
    # What was taken away can be opened again.
    page.set_input_files(
        "#file",
        {"name": "edits.json", "mimeType": "application/json", "buffer": exports["edits.json"]},
    )
    expect(page.locator("#undo")).to_be_disabled()
    wait_until_settled(page)
    assert np.array_equal(read_canvas(page), expected.image)


def test_files(page: Page, scene: Scene, editor: Editor, frames: np.ndarray) -> None:
    bad = {"name": "a.png", "mimeType": "image/png", "buffer": b"this is no picture"}
    page.set_input_files("#file", bad)
    expect(page.locator("#problem")).to_contain_text("This file is of no kind that can be edited")
    assert np.array_equal(read_canvas(page), scene.image)
    wide = np.concatenate([frames[1, 0], frames[1, 0]], axis=1)
    good = {"name": "b.png", "mimeType": "image/png", "buffer": encode_image(wide)}
    page.set_input_files("#file", good)
    wait_for_image(page, editor.encode(wide).image)
    expect(page.locator("#problem")).to_be_hidden()
    expect(page.locator("#warnings")).to_contain_text("32 x 16 pixels, cut to its middle square")
    page.click("#again")
    wait_for_image(page, editor.encode(wide, seed=43).image)


def test_a_file_is_dropped_on_the_page(page: Page, editor: Editor, frames: np.ndarray) -> None:
    data = page.evaluate_handle(
        """(text) => {
          const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
          const transfer = new DataTransfer();
          transfer.items.add(new File([bytes], "c.png", { type: "image/png" }));
          return transfer;
        }""",
        base64.b64encode(encode_image(frames[1, 0])).decode(),
    )
    page.dispatch_event("#stage", "drop", {"dataTransfer": data})
    wait_for_image(page, editor.encode(frames[1, 0]).image)


def test_videos(page: Page, editor: Editor, frames: np.ndarray) -> None:
    film: Film = editor.encode_video(frames[0])
    page.click("[data-sample=film]")
    expect(page.locator("#timeline")).to_be_visible()
    wait_until_settled(page)
    assert np.array_equal(read_canvas(page), film.images[0])
    page.locator("#frame").fill("3")
    wait_for_image(page, film.images[3])
    # A range of frames.
    page.fill("#first", "2")
    page.fill("#last", "4")
    page.focus("#overlay")
    page.keyboard.press("1")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#undo")).to_be_enabled()
    expected = film.move(1, dx=2, frames=(2, 4))
    wait_for_image(page, expected.images[3])
    page.locator("#frame").fill("5")
    wait_for_image(page, expected.images[5])
    # Key frames: at 5 two to the left, at 0 one down; in between a straight line.
    page.check("input[value=keys]")
    page.focus("#overlay")
    for keys, frame in (("ArrowLeft ArrowLeft", 0), ("ArrowDown", 0)):
        for key in keys.split():
            page.keyboard.press(key)
        page.wait_for_timeout(600)
        wait_until_settled(page)
        page.locator("#frame").fill(str(frame))
        wait_until_settled(page)
        page.focus("#overlay")
    assert read_edits(page)[1]["keys"] == [[0, -2, 1], [5, -2, 0]]
    expected = expected.move(1, keys={0: (-2, 1), 5: (-2, 0)})
    page.locator("#frame").fill("2")
    wait_for_image(page, expected.images[2])
    expect(page.locator("#keys i")).to_have_count(2)
    page.click("#play")
    wait_for_image(page, expected.images[4])
    page.click("#play")


def test_a_page_that_is_loaded_again_goes_on_with_its_session(page: Page) -> None:
    def session() -> str:
        identifier: str = page.evaluate("() => sessionStorage.getItem('geoco-session')")
        return identifier

    before = session()
    page.reload()
    wait_until_settled(page)
    assert session() == before


def test_a_phone(browser: Browser, address: str, scene: Scene, slot: int) -> None:
    for page in open_page(browser, address, viewport=PHONE, has_touch=True, is_mobile=True):
        width = page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= PHONE["width"]
        page.touchscreen.tap(*to_screen(page, *find_middle(scene, slot)))
        expect(page.locator("#numbers")).to_be_visible()
        small = page.evaluate(
            """() => [...document.querySelectorAll(".tools button, .exports a")].filter(
              (one) => one.getBoundingClientRect().height < 36).length"""
        )
        assert small == 0
