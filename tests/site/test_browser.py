"""Pages of the documentation site in build/site, as a browser shows them from a disk.

`make docs` makes them and runs this. Three small pages stand for all: the styles and scripts are the same.
"""

import pytest

from tests.browser.conftest import chromium, open_page  # noqa: F401  # fixtures
from tests.browser.looks import image_widths, serious_findings, width_of
from tests.conftest import REPOSITORY

SITE = REPOSITORY / "build" / "site"
SHOWN = ["index.html", "tutorial.html", "reference/beam.html"]
pytestmark = pytest.mark.skipif(
    not SITE.is_dir(), reason="no site in build/site; `make docs` makes it and runs this"
)


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_says_nothing_on_the_console_and_asks_no_other_place_for_anything(name, open_page):  # noqa: F811
    opened = open_page(SITE / name, folder=SITE)
    assert (opened.said, opened.asked) == ([], [])


def test_the_pictures_of_the_tutorial_are_shown(open_page):  # noqa: F811
    widths = image_widths(open_page(SITE / "tutorial.html", folder=SITE).page)
    assert len(widths) >= 4
    assert min(widths) > 100


@pytest.mark.parametrize(
    ("name", "width", "dark"), [(SHOWN[0], 360, False), (SHOWN[1], 1280, True), (SHOWN[2], 1280, False)]
)
def test_axe_finds_nothing_serious(name, width, dark, open_page):  # noqa: F811
    page = open_page(SITE / name, width=width, dark=dark, bypass=True, folder=SITE).page
    assert serious_findings(page) == []


@pytest.mark.parametrize("name", [*SHOWN, "design/4-formats.html", "recipe.html"])
def test_a_page_needs_no_scrolling_sideways(name, open_page):  # noqa: F811
    assert width_of(open_page(SITE / name, width=360, folder=SITE).page) <= 360


def test_wide_tables_are_scrolled_by_keyboard(open_page):  # noqa: F811
    page = open_page(SITE / "design/4-formats.html", width=360, folder=SITE).page
    boxes = page.locator(".md-typeset__scrollwrap")
    assert boxes.count() > 0
    assert {box.get_attribute("tabindex") for box in boxes.all()} == {"0"}


def test_the_search_finds_a_page_by_keyboard(open_page):  # noqa: F811
    opened = open_page(SITE / "index.html", folder=SITE)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("webdataset")
    opened.page.locator(".md-search-result__item").first.wait_for()
    titles = opened.page.locator(".md-search-result__item h1").all_text_contents()
    assert any("WebDataset" in title for title in titles)
    assert (opened.said, opened.asked) == ([], [])
