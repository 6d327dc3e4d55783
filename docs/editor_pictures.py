"""Make the pictures of docs/editor.md: the page in a headless Chromium.

python docs/editor_pictures.py [MODEL]
"""

import shutil
import sys
import threading
from pathlib import Path

import torch
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from geoco import Editor
from geoco.models import pretrained
from geoco.web import create_app
from geoco.web.server import open_listener

IMAGES = Path(__file__).parent / "images"
DESKTOP = {"width": 1180, "height": 900}
PHONE = {"width": 390, "height": 844}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else next(iter(pretrained.list_shipped()))
    torch.set_num_threads(1)
    app = create_app(Editor.load(name))
    listener = open_listener("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            draw(browser, address)
            browser.close()
    finally:
        server.should_exit = True
        thread.join()


def draw(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport=DESKTOP)
    _begin(page, address)
    _edit(page)
    page.screenshot(path=IMAGES / "editor.png")
    page = browser.new_page(viewport=PHONE, color_scheme="dark", device_scale_factor=2)
    _begin(page, address)
    page.click("[data-sample=video-1]")
    page.wait_for_selector("#timeline:not([hidden])")
    _edit(page)
    page.evaluate("() => window.scrollTo(0, 0)")
    page.screenshot(path=IMAGES / "editor-phone.png")


def _begin(page: Page, address: str) -> None:
    page.set_default_timeout(120_000)
    page.goto(address)
    _settle(page)


def _settle(page: Page) -> None:
    page.wait_for_selector("#stage[data-busy=false][data-state]")
    page.wait_for_timeout(700)


def _edit(page: Page) -> None:
    """Move the last object by two pixels, and fill the tray."""
    _settle(page)
    page.select_option("#giver", "scene-2")
    page.wait_for_selector("#tray button")
    page.locator("#objects button:not(.faint)").last.click()
    page.focus("#overlay")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#undo:not([disabled])")
    _settle(page)
    page.evaluate("() => document.activeElement.blur()")


if __name__ == "__main__":
    main()
