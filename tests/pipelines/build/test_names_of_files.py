"""Logs, tables and roots whose names have characters of globs and URIs."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import logloom as ll
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines.doctor.doctor import examine_all
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.info.info import describe, suggested_recipe
from logloom.recipe import Keep, Recipe
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log

NAMES = ["100%", "a b", "a#b", "a?b", "c%20d", "x[1]"]
RECIPE = """\
name: t
logs: {logs}
clock: {{rate: 10}}
columns:
  speed: {{topic: /can, field: speed}}
  tag: {{table: "tags[?]*/a#%20.parquet", field: tag, expect: one, tolerance: 20ms}}
outputs: {{tar: {{}}}}
"""


@pytest.fixture
def place(tmp_path):
    """The folder of a recipe, with logs and labels; its name is a glob that another folder matches."""
    place = tmp_path / "campaign [winter] 100%"
    for number, name in enumerate(NAMES):
        path = place / "raw" / f"{name}.mcap"
        write_log(path, {"/can": (SPEED, speeds(20, start=START + number * 100 * SECOND))})
    write_log(tmp_path / "campaign w 100%/raw/other.mcap", {"/can": (SPEED, speeds(20))})
    (place / "tags[?]*").mkdir()
    times = [START + number * 100 * SECOND for number in range(len(NAMES))]
    pq.write_table(
        pa.table({"log_id": NAMES, "timestamp": times, "tag": NAMES}), place / "tags[?]*" / "a#%20.parquet"
    )
    pyarrow.csv.write_csv(pa.table({"uri": [f"raw/{name}.mcap" for name in NAMES]}), place / "logs[ab].csv")
    return place


ROOT = "root #1 [x] %41"


@pytest.mark.parametrize("logs", ["raw/*.mcap", "{table: 'logs[ab].csv', uri: uri}", "raw"])
def test_they_are_built_opened_and_reused(place, logs):
    (place / "r.yaml").write_text(RECIPE.format(logs=logs))
    root = str(place / ROOT)
    assert ll.build(str(place / "r.yaml"), root).manifest.version == 1
    rows = ll.open(root)
    assert sorted({row["log_id"] for row in rows}) == NAMES
    tags = {row["log_id"]: row["tag"] for row in rows if row.get("tag")}
    assert tags == {name: name for name in NAMES}
    again = ll.plan(str(place / "r.yaml"), root)
    assert again.up_to_date
    records = read_manifest(Store.at(root), 1).logs
    assert [record.uris for record in records] == [(str(place / f"raw/{name}.mcap"),) for name in NAMES]
    write_log(place / "raw/new %.mcap", {"/can": (SPEED, speeds(20, start=START + 10**4 * SECOND))})
    if "table" not in logs:
        assert ll.plan(str(place / "r.yaml"), root).num_logs == 1  # the new one


def test_they_are_verified_collected_and_converted(place):
    (place / "r.yaml").write_text(RECIPE.format(logs="raw/*.mcap"))
    root = str(place / ROOT)
    ll.build(str(place / "r.yaml"), root)
    assert ll.verify(root, against_logs=True, workers=1).findings == ()
    write_log(place / "raw/new %.mcap", {"/can": (SPEED, speeds(20, start=START + 10**4 * SECOND))})
    assert ll.build(str(place / "r.yaml"), root).manifest.version == 2
    rows = ll.open(root)
    assert len(rows) == len(ll.open(f"{root}@1")) // len(NAMES) * (len(NAMES) + 1)
    collect_garbage(root, keep=Keep(last=1))
    assert ll.verify(root, against_logs=True, workers=1).findings == ()
    copied = str(place / "copy?*")
    ll.convert(root, copied, "table", workers=1)
    np.testing.assert_array_equal([row["speed"] for row in ll.open(copied)], [row["speed"] for row in rows])


def test_they_are_described_and_suggested(place):
    uris = [str(place / "raw" / f"{name}.mcap") for name in NAMES]
    assert [one.log_id for one in describe(uris, {})] == NAMES
    assert [one.log_id for one in examine_all(uris, {})] == NAMES
    recipe = Recipe.from_yaml(suggested_recipe(uris, {}))
    assert sorted(recipe.logs) == sorted(uris)
    assert ll.plan(recipe, str(place / "root")).num_logs == len(NAMES)
