"""Roots whose units lie in folders, and earlier ones where they lie side by side, each with the other."""

import re

import fsspec
import numpy as np

import logloom.datasets
from logloom.io.manifest import as_laid_out, read_manifest
from logloom.io.storage import Store
from logloom.io.tables.users import users_of
from logloom.pipelines.build import build
from logloom.pipelines.plan import plan_build
from logloom.pipelines.verify import verify
from logloom.recipe import Recipe
from tests.pipelines.test_earlier import ROOT, recipe

__all__ = ["recipe"]


def with_output(output):
    """The earlier recipe with another output alone."""
    text = fsspec.filesystem("memory").cat_file("/earlier/recipe.yaml").decode()
    text = re.sub(r"(?s)\noutputs:\n.*?\n\n", f"\noutputs:\n  {output}\n\n", text)
    return Recipe.from_yaml(text[: text.index("\nsplit:")], source="recipe.yaml")


def test_tables_point_into_roots_of_either_layout_and_both_know_of_it(recipe, tmp_path):
    expected = {row["timestamp"]: row for row in logloom.datasets.open(ROOT, output="table", split="val")}
    # Of the first, another takes its chunks from the earlier root; of that, the next one by way of it.
    places = [ROOT, "memory://earlier/first", str(tmp_path / "second")]
    for holder, place in zip([f"{ROOT}/v00000001/table/val", f"{places[1]}@1"], places[1:], strict=True):
        table = with_output(f"table: {{index: [ego.speed], reference: '{holder}'}}")
        build(plan_build(table, place), view="none")
        assert read_manifest(Store.at(place)).fan_out == 2
        assert verify(place, num_workers=1).findings == ()
    assert read_manifest(Store.at(ROOT)).fan_out == 0
    blobs = [path.stat().st_size for path in (tmp_path / "second").glob("parts/table/*/*/*lidar.points.blob")]
    assert sum(blobs) == 0
    for place in places[:2]:
        store = as_laid_out(Store.at(place))
        users = users_of(store)
        assert users.unknown == ()
        assert users.folders
        assert all(store.exists(f"{folder}/entry.json") for folder in users.folders)
    rows = logloom.datasets.open(places[2])
    found = [row for row in rows if row["timestamp"] in expected]
    assert found
    for row in found:
        assert row["camera.front"] == expected[row["timestamp"]]["camera.front"]
        assert np.array_equal(row["lidar.points"], expected[row["timestamp"]]["lidar.points"])


def test_two_builds_that_begin_in_an_empty_root_put_units_into_the_same_folders(recipe):
    plans = [plan_build(with_output("bags: {}"), "memory://earlier/both") for _ in range(2)]
    first, second = (build(plan, view="none") for plan in plans)
    assert (first.reused, second.built) == (0, 0)
    assert first.manifest.to_bytes() == second.manifest.to_bytes()
