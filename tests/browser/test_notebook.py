"""What notebooks show of datasets, schemas, recipes and versions, as a browser shows it."""

import dataclasses
import io

import numpy as np
import PIL.Image
import pytest

import logloom.datasets
from logloom.blocks import Block, Ragged
from logloom.datasets.dataset import Dataset
from logloom.io.catalog.manifest import read_manifest
from logloom.io.rows.unit_rows import LoadedReader
from logloom.io.storage.store import Store
from logloom.recipe import Recipe
from logloom.schema import BYTES, ColumnType, Schema
from tests.browser.looks import image_widths, serious_findings, width_of
from tests.pipelines.conftest import FULL_OUTPUT, built  # noqa: F401  # a fixture
from tests.pipelines.conftest import long_drive as drive  # noqa: F401  # a fixture

HACK = "window.hacked=1"
HOSTILE = f"'\"></td></table></script><script>{HACK}</script><img src=x onerror={HACK}>\u202e\x1b[31m"
FLOAT = ColumnType(np.dtype("f8"), (3,), unit=HOSTILE, description=HOSTILE)


class HostileRows(LoadedReader):
    """Two rows with an image, in a log and columns with hostile names."""

    place = HOSTILE

    def load(self):
        file = io.BytesIO()
        PIL.Image.new("RGB", (640, 480), "teal").save(file, "PNG")
        columns = {
            "timestamp": np.arange(2),
            HOSTILE: Ragged.from_bytes([file.getvalue()] * 2),
            f"{HOSTILE}{HOSTILE}": np.zeros((2, 3)),
        }
        schema = Schema({HOSTILE: BYTES, f"{HOSTILE}{HOSTILE}": FLOAT})
        return schema, Block(HOSTILE, "000000", 0, columns)


def notebook(path, *shown):
    """A page with outputs of cells as a notebook has them: nobody's style sheet, one below the other."""
    outputs = "\n".join(
        f"<section aria-label='Output {n}'>{one._repr_html_()}</section>" for n, one in enumerate(shown)
    )
    path.write_text(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Notebook</title>"
        "<meta name='viewport' content='width=device-width'></head>"
        f"<body><main><h1>Notebook</h1>{outputs}</main></body></html>",
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="module")
def page(built, drive, tmp_path_factory):  # noqa: F811
    """A notebook on the demo's drives."""
    manifest = read_manifest(Store.at(str(built)))
    rows = logloom.datasets.open(str(built), output=FULL_OUTPUT)
    shown = (rows, Schema.from_json(manifest.schema), drive.recipe(), manifest)
    return notebook(tmp_path_factory.mktemp("notebook") / "page.html", *shown)


@pytest.fixture(scope="module")
def hostile(built, tmp_path_factory):  # noqa: F811
    """A notebook whose columns, topics, units, logs and places have hostile names."""
    source = HostileRows()
    rows = Dataset(source, range(2), tuple(source.schema.columns))
    recipe = Recipe(
        name="hostile",
        logs=[f"/{HOSTILE}/*.mcap"],
        clock={"rate": 10},
        columns={"speed": {"topic": f"/{HOSTILE}", "field": HOSTILE, "resample": "linear", "unit": "m s-1"}},
        outputs={"tar": {}},
    )
    manifest = dataclasses.replace(read_manifest(Store.at(str(built))), name=HOSTILE, reason=HOSTILE)
    shown = (rows, source.schema, recipe, manifest)
    return notebook(tmp_path_factory.mktemp("hostile") / "page.html", *shown)


@pytest.fixture(params=["page", "hostile"])
def any_page(request):
    return request.getfixturevalue(request.param)


def test_outputs_say_nothing_on_the_console_ask_for_nothing_and_show_their_images(any_page, open_page):
    opened = open_page(any_page)
    widths = image_widths(opened.page)
    assert len(widths) >= 2
    assert min(widths) > 10
    assert (opened.said, opened.asked) == ([], [])


def test_hostile_names_run_no_script_and_are_shown_as_text(hostile, open_page):
    opened = open_page(hostile)
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator("script").count() == 0
    assert opened.page.locator("section").count() == 4
    for section in opened.page.locator("section").all():
        assert "<img src=x onerror=" in section.inner_text()
    assert "\u202e" not in opened.page.content()


def test_axe_finds_nothing_serious(any_page, open_page):
    assert serious_findings(open_page(any_page, width=360, bypass=True).page) == []


def test_outputs_need_no_scrolling_sideways(any_page, open_page):
    assert width_of(open_page(any_page, width=360).page) <= 360
