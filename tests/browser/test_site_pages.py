"""Pages of the documentation site in build/site, as a browser shows them from a disk.

`make docs` makes them and runs this. Every page is opened once, on a narrow screen; three small pages stand
for all where styles and scripts decide alone.
"""

import itertools

import pytest

from tests.browser.looks import image_widths, serious_findings, width_of
from tests.conftest import REPOSITORY

SITE = REPOSITORY / "build" / "site"
# Of 404.html, styles and scripts are where the site will stand.
PAGES = sorted(path for path in SITE.rglob("*.html") if path.name != "404.html")
SHOWN = ["index.html", "tutorial.html", "reference/beam.html"]
pytestmark = pytest.mark.skipif(
    not SITE.is_dir(), reason="no site in build/site; `make docs` makes it and runs this"
)


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_says_nothing_on_the_console_and_asks_no_other_place_for_anything(name, open_page):
    opened = open_page(SITE / name, folder=SITE)
    assert (opened.said, opened.asked) == ([], [])


def test_the_pictures_of_the_tutorial_are_shown(open_page):
    widths = image_widths(open_page(SITE / "tutorial.html", folder=SITE).page)
    assert len(widths) >= 4
    assert min(widths) > 100


@pytest.mark.parametrize(("name", "dark"), [(SHOWN[1], True), (SHOWN[2], False)])
def test_axe_finds_nothing_serious_on_a_wide_screen(name, dark, open_page):
    page = open_page(SITE / name, dark=dark, bypass=True, folder=SITE).page
    assert serious_findings(page) == []


@pytest.fixture(scope="module")
def narrow(chromium):
    """Each page on a screen of 360 pixels, by turns light and dark: its width, and what axe finds on it."""
    found = {}
    looks = [
        chromium.new_context(
            viewport={"width": 360, "height": 900}, color_scheme=scheme, bypass_csp=True
        ).new_page()
        for scheme in ("light", "dark")
    ]
    for path, page in zip(PAGES, itertools.cycle(looks), strict=False):
        page.goto(path.as_uri())
        page.wait_for_selector(".md-search[aria-label]", state="attached")  # site.js has run
        found[path.relative_to(SITE).as_posix()] = width_of(page), serious_findings(page)
    for page in looks:
        page.context.close()
    return found


def test_no_page_needs_scrolling_sideways(narrow):
    assert len(narrow) > 50
    assert {name: width for name, (width, _) in narrow.items() if width > 360} == {}


def test_axe_finds_nothing_serious_on_any_page(narrow):
    assert {name: findings for name, (_, findings) in narrow.items() if findings} == {}


def test_wide_tables_are_scrolled_by_keyboard(open_page):
    page = open_page(SITE / "design/4-formats.html", width=360, folder=SITE).page
    boxes = page.locator(".md-typeset__scrollwrap")
    assert boxes.count() > 0
    assert {box.get_attribute("tabindex") for box in boxes.all()} == {"0"}


def test_the_search_finds_a_page_by_keyboard(open_page):
    opened = open_page(SITE / "index.html", folder=SITE)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("webdataset")
    opened.page.locator(".md-search-result__item").first.wait_for()
    titles = opened.page.locator(".md-search-result__item h1").all_text_contents()
    assert any("WebDataset" in title for title in titles)
    assert (opened.said, opened.asked) == ([], [])
