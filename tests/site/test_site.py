"""The documentation site in build/site: whole, and about every public name.

`make site` makes it and runs this.
"""

import ast
import html
import re
import urllib.parse

import pytest

from tests import pages
from tests.absent import present
from tests.conftest import REPOSITORY

SITE = REPOSITORY / "build" / "site"
PAGES = sorted(SITE.rglob("*.html"))
pytestmark = pytest.mark.skipif(not PAGES, reason="no site in build/site; `make site` makes it and runs this")
FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video)[^>]*\ssrc=\"([^\"]+)\"|<link[^>]*\shref=\"([^\"]+)\""
)


def reference():
    """Modules that have a page of their own."""
    return sorted(path.stem for path in (SITE / "reference").glob("logloom*.html"))


def explained():
    """Each name that some page of the reference explains, with its module; modules too."""
    pages = [path.read_text(encoding="utf-8") for path in (SITE / "reference").glob("*.html")]
    return {*reference(), *(name for page in pages for name in re.findall(r'<h\d id="([^"]+)"', page))}


def names_imported_by(page):
    """List the names that programs in a page import of logloom."""
    for block in (block for block in pages.blocks(page) if block.language == "python"):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "logloom":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "logloom")


def public_names(module):
    """What `__all__` of a module says."""
    path = REPOSITORY / module.replace(".", "/")
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{module} has no __all__")


def test_pages_ask_no_other_host_for_anything():
    for page in PAGES:
        for source, style in FETCHED.findall(page.read_text(encoding="utf-8")):
            assert "//" not in (source or style), f"{page.name} fetches {source or style}"


def test_links_and_their_anchors_lead_somewhere():
    ids = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8"))) for page in PAGES}
    for page in PAGES:
        if page.name == "404.html":  # its links begin where the site will stand
            continue
        for link in re.findall(r'<a[^>]*\shref="([^"]+)"', page.read_text(encoding="utf-8")):
            url = urllib.parse.urlsplit(html.unescape(link))
            if url.scheme:
                continue
            target = (page.parent / urllib.parse.unquote(url.path)).resolve() if url.path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{page.name} links to {link}"
            if url.fragment and target in ids and not url.fragment.startswith("__"):
                assert urllib.parse.unquote(url.fragment) in ids[target], f"{page.name} links to {link}"


@pytest.mark.parametrize("module", reference())
def test_every_public_name_is_explained(module):
    text = (SITE / "reference" / f"{module}.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'<h\d id="([^"]+)"', text))
    missing = [name for name in public_names(module) if not any(i.endswith(f".{name}") for i in ids)]
    assert not missing, f"reference/{module}.html says nothing of {missing}"


def test_names_that_programs_in_the_pages_import_are_explained():
    imported = {name: page for page in pages.PAGES for name in names_imported_by(page)}
    assert "logloom.blocks.Ragged" in imported
    known = explained()
    missing = {name: page for name, page in imported.items() if name not in known and present(name)}
    assert not missing, f"the reference explains nothing of {missing}"


def test_every_page_of_the_repository_is_on_the_site():
    for page in (REPOSITORY / "docs").rglob("*.md"):
        place = page.relative_to(REPOSITORY / "docs").with_suffix(".html")
        assert (SITE / place).exists(), f"{page.name} isn't on the site"
