"""What a release wrote opens, verifies, gives the same rows and is up to date (tests.pipelines.released)."""

import json

import fsspec
import pytest

from logloom.io.catalog.tags import read_tags
from logloom.io.formats.registry import format_names
from logloom.io.storage.store import Store
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.absent import present
from tests.pipelines import released


@pytest.fixture(scope="module")
def text():
    """The recipe of the released root, which lies in memory together with its logs."""
    yield released.unpack()
    fsspec.filesystem("memory").rm("/released", recursive=True)


@pytest.fixture
def recipe(text):
    return Recipe.from_yaml(text, source="recipe.yaml")


def test_a_released_root_has_every_output_and_verifies_against_its_logs(recipe):
    assert sorted(recipe.outputs) == sorted(format_names())
    report = verify(released.ROOT, against_logs=True, num_workers=1)
    assert report.findings == ()
    assert report.units
    assert read_tags(Store.at(released.ROOT)) == {"gold": 1}


def test_a_released_root_gives_the_rows_that_it_gave(text):
    expected = json.loads(fsspec.filesystem("memory").cat_file("/released/rows.json"))
    assert dict(released.digests_of_rows()) == {name: expected[name] for name in present(*expected)}
    assert len(expected["table"]) > 5


def test_a_released_root_is_up_to_date(recipe):
    assert plan_build(recipe, released.ROOT).up_to_date
