"""The pictures of a page that README and the documentation show: `make picture`.

`report.png` is the top of the page, `pictures/PART.png` the top of each part that docs/tutorial.md tells of.
"""

import io
import pathlib
import sys

import PIL.Image
from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import CHROMIUM

_SIZE = {"width": 1240, "height": 900}
_NARROW = {"width": 900, "height": 900}
_MARGIN = 16
# The parts of the page, by their ids, and how much of each is shown at most, in pixels.
PARTS = {"samples": 800, "rows": 480, "columns": 560, "ages": 420}


def main(page: str, folder: str) -> None:
    docs = pathlib.Path(folder)
    (docs / "pictures").mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page(viewport=_SIZE)
        shown.goto(pathlib.Path(page).resolve().as_uri())
        shown.locator("#slider").fill("9")
        _write(docs / "report.png", shown.screenshot(), 128)
        shown.set_viewport_size(_NARROW)
        for part, height in PARTS.items():
            _write(docs / "pictures" / f"{part}.png", _top_of(shown, part, height), 48)
        browser.close()


def _top_of(shown: Page, part: str, height: int) -> bytes:
    box = shown.locator(f"#{part}").bounding_box()
    assert box is not None, f"the page has no part {part}"
    return shown.screenshot(
        full_page=True,
        clip={
            "x": box["x"] - _MARGIN,
            "y": box["y"],
            "width": box["width"] + 2 * _MARGIN,
            "height": min(box["height"], height),
        },
    )


def _write(path: pathlib.Path, data: bytes, colours: int) -> None:
    with PIL.Image.open(io.BytesIO(data)) as picture:
        small = picture.convert("RGB").quantize(colours, dither=PIL.Image.Dither.NONE)
    small.save(path, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
