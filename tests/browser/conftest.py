"""A headless Chromium that tells all that a page does; `make browser` installs it and axe-core."""

import contextlib
import os
import pathlib
import shutil
from dataclasses import dataclass, field

import pytest

from tests.conftest import REPOSITORY

AXE = REPOSITORY / ".cache/browser/node_modules/axe-core/axe.min.js"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@dataclass
class Opened:
    """A page in the browser, and what went on in it.

    Attributes:
        page: of Playwright.
        said: messages of the console, and errors.
        asked: URLs that it asked for, but for its own file, what stands in it, and files of its own folder.
    """

    page: object
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH (or in CHROMIUM=...); `make browser` installs Debian's")
    with playwright.sync_playwright() as driver:
        # Root has no sandbox, and machines of tests little shared memory.
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """Opens a file as a page: `open_page(path, width=360, dark=True)`; all in `folder` is its own."""
    with contextlib.ExitStack() as stack:

        def opened(
            path: pathlib.Path,
            width: int = 1280,
            dark: bool = False,
            bypass: bool = False,
            folder: pathlib.Path | None = None,
        ) -> Opened:
            context = chromium.new_context(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if dark else "light",
                bypass_csp=bypass,  # for axe, which is no script of the page
            )
            stack.callback(context.close)
            found = Opened(context.new_page())
            found.page.on("console", lambda message: found.said.append(message.text))
            found.page.on("pageerror", lambda error: found.said.append(str(error)))
            found.page.on("dialog", lambda dialog: (found.said.append("a dialog"), dialog.dismiss()))
            own = path.resolve().as_uri()
            beside = ("data:",) if folder is None else ("data:", f"{folder.resolve().as_uri()}/")
            found.page.on(
                "request",
                lambda request: (
                    None
                    if request.url == own or request.url.startswith(beside)
                    else found.asked.append(request.url)
                ),
            )
            found.page.goto(own, wait_until="load" if folder is None else "networkidle")
            return found

        yield opened
