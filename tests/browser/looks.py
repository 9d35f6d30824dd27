"""What tests ask of a page of Playwright, whoever made it."""

import pytest

from tests.browser.conftest import AXE


def image_widths(page):
    """The width in pixels of each image, once all are decoded; 0 for those that can't be."""
    one = "one.decode().then(() => one.naturalWidth, () => 0)"
    return page.evaluate(f"Promise.all(Array.from(document.images, (one) => {one}))")


def unfold(page):
    """Opens all that a page folds."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def width_of(page):
    """How many pixels wide a page is, with what must be scrolled to."""
    return page.evaluate("document.documentElement.scrollWidth")


def serious_findings(page):
    """Findings of axe-core that are serious or critical; a page must have been opened with `bypass`."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; `make browser` does")
    page.add_script_tag(path=str(AXE))
    # Styles of pages from a disk can't be fetched again, and what axe says of that isn't the page's.
    found = page.evaluate("axe.run({preload: false, resultTypes: ['violations']})")
    assert len(found["passes"]) > 10
    return [
        (one["id"], one["nodes"][0]["html"][:200])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
