"""The page in a real browser: what is dragged there is what the editor does in Python."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers_browser import (
    DESKTOP,
    drag,
    find_middle,
    needs_chromium,
    open_page,
    read_canvas,
    read_edits,
    to_screen,
    wait_for_image,
    wait_until_settled,
)
from helpers_web import SIZE
from playwright.sync_api import Browser, Page, Route, expect

from geoco.editing.editor import Editor, Scene
from geoco.models import pretrained
from geoco.models.reconstruction_quality import QualityReference

pytestmark = needs_chromium


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    yield from open_page(browser, address, viewport=DESKTOP)


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
    expect(page.locator("#problem")).to_contain_text("The scale can be 2 at most, not 50.")


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
    expect(page.locator("#new-warnings")).to_contain_text("is the background")
    wait_until_settled(page)
    # What an edit before warned of stays to be seen, but is not said again.
    page.click(f"#objects [data-slot='{slot}']")
    page.click("#remove")
    wait_until_settled(page)
    expect(page.locator("#new-warnings")).to_have_text("")
    expect(page.locator("#earlier summary")).to_have_text("1 warning of an earlier edit")
    page.click("#earlier summary")
    expect(page.locator("#earlier li")).to_contain_text("is the background")


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


def test_the_line_between_before_and_after_is_dragged(page: Page, scene: Scene, slot: int) -> None:
    page.click(f"#objects [data-slot='{slot}']")
    page.click("#remove")
    wait_until_settled(page)
    page.click("#compare")
    edited = scene.remove(slot).image
    wait_for_image(page, np.concatenate([scene.source[:, :8], edited[:, 8:]], axis=1))
    drag(page, (SIZE / 2, SIZE - 1), (12, 3))
    page.mouse.up()
    wait_for_image(page, np.concatenate([scene.source[:, :12], edited[:, 12:]], axis=1))
    expect(page.locator("#split")).to_have_value("75")
    assert [edit["op"] for edit in read_edits(page)] == ["remove"]


def test_one_key_shows_the_original(page: Page, scene: Scene, slot: int) -> None:
    page.keyboard.press("o")
    wait_for_image(page, scene.source)
    expect(page.locator("#original")).to_have_attribute("aria-pressed", "true")
    # Objects can be selected on it; an edit shows what the model draws.
    page.mouse.click(*to_screen(page, *find_middle(scene, slot)))
    expect(page.locator("#numbers")).to_be_visible()
    assert np.array_equal(read_canvas(page), scene.source)
    page.keyboard.press("ArrowRight")
    wait_for_image(page, scene.move(slot, dx=1).image)
    expect(page.locator("#original")).to_have_attribute("aria-pressed", "false")


def test_it_says_that_a_picture_is_of_another_kind(
    page: Page, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect(page.locator("#doubt")).to_be_hidden()
    monkeypatch.setattr(pretrained, "list_shipped", dict)  # loading them takes a while
    reference = QualityReference("tests", 100, tuple(float(90 + k) for k in range(9)))
    monkeypatch.setattr(editor, "quality_reference", reference)
    page.click("[data-sample=two]")
    doubt = page.locator("#doubt-text")
    expect(doubt).to_contain_text("The model tiny does not know pictures of this kind")
    expect(doubt).to_contain_text("91.0 or more where it does")
    page.click("#show-original")
    expect(page.locator("#original")).to_have_attribute("aria-pressed", "true")
    page.focus("#dismiss")
    page.keyboard.press("Enter")
    expect(page.locator("#doubt")).to_be_hidden()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "slot 2 cannot be duplicated: no slot is empty; remove one first, or name the one to "
            "give up with `into`",
            "Slot 2 cannot be duplicated: every slot is in use. Select an object that may go, "
            "press Remove, and try Duplicate again.",
        ),
        (
            "the edit move_to.x: Input should be greater than or equal to -3, got -4.0",
            "The place x must be -3 at least, not -4.0.",
        ),
        (
            "this session has no such state to take from: open the other scene first",
            "The server has forgotten that scene: choose it again under From.",
        ),
        ("slot 2 was removed from the scene", "Slot 2 was removed from the scene."),
    ],
)
def test_messages_speak_of_buttons(page: Page, said: str, shown: str) -> None:
    rephrase = "async (said) => (await import('/messages.js')).rephrase(said)"
    assert page.evaluate(rephrase, said) == shown


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
