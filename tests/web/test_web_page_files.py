"""The page in a real browser: files in and out, videos, reloads, phones."""

import base64
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from helpers_browser import (
    DESKTOP,
    PHONE,
    find_middle,
    needs_chromium,
    open_page,
    read_canvas,
    read_edits,
    to_screen,
    wait_for_image,
    wait_until_settled,
)
from helpers_web import decode_image, encode_image
from playwright.sync_api import Browser, Page, expect

from geoco import media
from geoco.editing.editor import Editor, Film, Scene

pytestmark = needs_chromium


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    yield from open_page(browser, address, viewport=DESKTOP)


def test_exports(page: Page, scene: Scene, slot: int, editor: Editor) -> None:
    page.click(f"#objects [data-slot='{slot}']")
    page.click("#remove")
    wait_until_settled(page)
    expected = scene.remove(slot)
    exports = {}
    for title in ("Picture png", "Edit list", "Python zip"):
        with page.expect_download() as download:
            page.locator("#exports a").filter(has_text=title.split()[0]).first.click()
        exports[download.value.suggested_filename] = Path(download.value.path()).read_bytes()
    # Named by what was opened, and by what they are.
    assert set(exports) == {"one-edited.png", "one-edits.json", "one-edits.zip"}
    assert np.array_equal(decode_image(exports["one-edited.png"]), expected.image)
    assert np.array_equal(
        Scene.replay(exports["one-edits.json"].decode(), editor).image, expected.image
    )
    with zipfile.ZipFile(io.BytesIO(exports["one-edits.zip"])) as archive:
        code = archive.read("one-edits/one-edits.py").decode()
    assert f"scene = scene.remove({slot})" in code
    page.click("#code-details summary")
    expect(page.locator("#code")).to_contain_text(f"scene = scene.remove({slot})")
    expect(page.locator("#code")).to_contain_text("encode('one-original.png'")
    # What was taken away can be opened again.
    page.set_input_files(
        "#file",
        {"name": "edits.json", "mimeType": "application/json", "buffer": exports["one-edits.json"]},
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


def test_work_survives_a_reload(page: Page, editor: Editor, frames: np.ndarray) -> None:
    picture = {"name": "b.png", "mimeType": "image/png", "buffer": encode_image(frames[1, 0])}
    page.set_input_files("#file", picture)
    other = editor.encode(frames[1, 0])
    wait_for_image(page, other.image)
    one, two = [slot.index for slot in other.slots if not slot.is_background and slot.area >= 10][
        :2
    ]
    states = [other, other.remove(one), other.remove(one).move(two, dx=2)]
    page.click(f"#objects [data-slot='{one}']")
    page.click("#remove")
    wait_for_image(page, states[1].image)
    page.click(f"#objects [data-slot='{two}']")
    page.focus("#overlay")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#redo")).to_be_disabled()
    wait_for_image(page, states[2].image)
    page.wait_for_timeout(600)
    wait_until_settled(page)
    page.click("#undo")
    wait_for_image(page, states[1].image)
    page.reload()
    wait_until_settled(page)
    wait_for_image(page, states[1].image)
    page.click("#redo")
    wait_for_image(page, states[2].image)
    for expected in (states[1], other):
        page.click("#undo")
        wait_for_image(page, expected.image)
    expect(page.locator("#undo")).to_be_disabled()
    assert page.get_attribute("#exports a[data-file='edits.zip']", "href").endswith("name=b")
    # Also what needs the file again: the server still has it.
    page.click("#again")
    wait_for_image(page, editor.encode(frames[1, 0], seed=43).image)


def test_a_video_survives_a_reload(page: Page, editor: Editor, frames: np.ndarray) -> None:
    page.click("[data-sample=film]")
    expect(page.locator("#timeline")).to_be_visible()
    page.check("input[value=keys]")
    page.locator("#frame").fill("3")
    wait_until_settled(page)
    page.focus("#overlay")
    page.keyboard.press("1")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#undo")).to_be_enabled()
    page.reload()
    wait_until_settled(page)
    film = editor.encode_video(frames[0]).move(1, keys={3: (1, 0)})
    wait_for_image(page, film.images[3])
    expect(page.locator("#frame")).to_have_value("3")
    expect(page.locator("input[value=keys]")).to_be_checked()
    # Key frames go on where they were.
    page.locator("#frame").fill("5")
    wait_until_settled(page)
    page.focus("#overlay")
    page.keyboard.press("1")
    page.keyboard.press("ArrowDown")
    page.wait_for_timeout(600)
    wait_until_settled(page)
    assert read_edits(page)[0]["keys"] == [[3, 1, 0], [5, 1, 1]]


def test_a_page_says_that_the_server_has_forgotten(page: Page, slot: int) -> None:
    page.click(f"#objects [data-slot='{slot}']")
    page.click("#remove")
    wait_until_settled(page)
    session = page.evaluate("() => sessionStorage.getItem('geoco-session')")
    assert page.request.delete(f"{page.url}api/sessions/{session}").ok
    page.click("#duplicate") if page.is_enabled("#duplicate") else page.click("[data-sample=two]")
    expect(page.locator("#problem")).to_have_text(
        "The server has forgotten what was open here: reload the page to begin anew."
    )
    page.reload()
    wait_until_settled(page)
    expect(page.locator("#problem")).to_contain_text("open it again")
    expect(page.locator("#undo")).to_be_disabled()


def test_uploads_show_how_far_they_are(page: Page, editor: Editor) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (160, 160, 3), dtype=np.uint8)
    data = encode_image(picture)
    slow_down(page, len(data))
    page.set_input_files("#file", {"name": "b.png", "mimeType": "image/png", "buffer": data})
    expect(page.locator("#upload-text")).to_have_text(re.compile(r"Sending b.png: [1-9]\d?%"))
    assert 0 < page.evaluate("() => document.getElementById('progress').value") <= 1
    wait_for_image(page, editor.encode(picture).image)
    expect(page.locator("#upload")).to_be_hidden()


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


# -- at the own size -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"viewport": DESKTOP}, {"viewport": PHONE, "is_mobile": True, "color_scheme": "dark"}],
    ids=["desktop", "phone"],
)
def test_own_sizes_can_be_taken_away(
    browser: Browser,
    solids_address: str,
    solids_editor: Editor,
    solids_frames: np.ndarray,
    options: dict[str, Any],
) -> None:
    scene = solids_editor.encode(solids_frames[0])
    slots = [slot for slot in scene.slots if not slot.is_background and slot.area >= 40]
    slot = slots[0].index
    animation = media.encode_animated_png(list(solids_frames), 100)
    uploads = [("photo.png", encode_image(solids_frames[0]), "Picture", "png")]
    if "is_mobile" not in options:
        uploads.append(("clip.png", animation, "Video", "mp4"))
    taken = []
    for page in open_page(browser, solids_address, **options):
        for name, data, title, kind in uploads:
            page.set_input_files("#file", {"name": name, "mimeType": "image/png", "buffer": data})
            expect(page.locator("#warnings")).to_contain_text("128 x 128 pixels")
            wait_until_settled(page)
            page.click(f"#objects [data-slot='{slot}']")
            page.click("#remove")
            expect(page.locator("#undo")).to_be_enabled()
            wait_until_settled(page)
            width = page.evaluate("() => document.documentElement.scrollWidth")
            assert width <= options["viewport"]["width"]
            with page.expect_download() as download:
                page.locator("#exports a").filter(has_text=f"{title}, 128 × 128").click()
            assert download.value.suggested_filename == f"{Path(name).stem}-edited-own-size.{kind}"
            taken.append(Path(download.value.path()).read_bytes())
    picture = decode_image(taken[0])
    assert np.array_equal(picture, scene.remove(slot).render())
    assert picture.shape == (128, 128, 3)
    # Outside of the edit the picture is the file's, to the bit.
    same = (picture == solids_frames[0]).all(-1)
    left, top, right, bottom = (2 * side for side in slots[0].box or ())
    assert not same[top:bottom, left:right].all()
    assert 0.8 < same.mean() < 1
    if len(taken) == 1:
        return
    with av.open(io.BytesIO(taken[1])) as video:
        drawn = np.stack([frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)])
    expected = np.stack(list(solids_editor.encode_video(solids_frames).remove(slot).render()))
    assert drawn.shape == expected.shape == (2, 128, 128, 3)
    assert np.abs(drawn.astype(int) - expected).mean() < 3


def test_donors_show_how_far_they_are(page: Page) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (160, 160, 3), dtype=np.uint8)
    data = encode_image(picture)
    slow_down(page, len(data))
    page.set_input_files("#giver-file", {"name": "d.png", "mimeType": "image/png", "buffer": data})
    sending = page.locator("#giver-upload")
    expect(sending.locator("label")).to_have_text(re.compile(r"Sending d.png: [1-9]\d?%"))
    expect(page.locator("#tray-hint")).not_to_contain_text("Choose a scene")
    expect(sending).to_be_hidden()
    expect(page.locator("#upload")).to_be_hidden()


def slow_down(page: Page, bytes_a_second: int) -> None:
    network = page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1}
    network.send("Network.emulateNetworkConditions", {**slow, "uploadThroughput": bytes_a_second})
