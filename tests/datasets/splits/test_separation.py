"""How near the splits of a dataset come to each other: `stats --splits`."""

import json

import numpy as np
import pytest

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets.splits.separation import requested_splits, version_splits
from logloom.errors import UsageError
from tests.pipelines.test_commands import logloom as command


@pytest.fixture(scope="module")
def urban(tmp_path_factory):
    root = tmp_path_factory.mktemp("seen") / "urban"
    places = [np.array([30.0 * k, 10.0 * (k % 2)]) for k in range(9)]
    rows = [
        {"log_id": f"urban-{k % 2}", "timestamp": 100 * k, "place": place} for k, place in enumerate(places)
    ]
    tt.write_table(str(root), sorted(rows, key=lambda row: row["log_id"]))
    return str(root)


def test_splits_that_a_dataset_would_have_are_counted_and_measured(urban):
    shares = ["a=0.5", "b=0.5"]
    found = requested_splits(urban, shares, "place", 60.0, 20.0, "place")
    rows = logloom.datasets.open(urban)
    parts = logloom.datasets.split(rows, {"a": 0.5, "b": 0.5}, by="place", cell=60, gap=20, position="place")
    assert {name: one["rows"] for name, one in found.counts.items()} == {k: len(v) for k, v in parts.items()}
    assert found.left_out == len(rows) - sum(map(len, parts.values()))
    (pair,) = found.nearest
    assert pair.metres >= 20 or not pair.rows
    arguments = (
        "stats",
        urban,
        "--splits",
        "--by",
        "place",
        "--cell",
        60,
        "--gap",
        20,
        "--position",
        "place",
    )
    told = command(*arguments, "--share", "a=0.5", "--share", "b=0.5", "--json")
    said = json.loads(told.stdout)
    assert said.pop("warnings") == [line.partition(": ")[2] for line in told.stderr.splitlines()]
    assert said == json.loads(json.dumps(found.to_json()))
    for wrong in (["a"], ["a=0.5", "a=0.5"]):
        with pytest.raises(UsageError, match="write each split once"):
            requested_splits(urban, wrong, "time", 1.0, 0.0, None)


def test_splits_of_few_cells_that_get_nothing_are_named_with_the_reason(urban):
    shares = ("--share", "a=0.5", "--share", "b=0.5")
    told = command("stats", urban, "--splits", "--by", "time", "--cell", 1e6, *shares, "--json")
    said = json.loads(told.stdout)
    (empty,) = [name for name, one in said["splits"].items() if not one["rows"]]
    assert said["warnings"] == [line.partition(": ")[2] for line in told.stderr.splitlines()]
    assert f"split '{empty}' gets no row: shares are those of many cells" in told.stderr
    refused = command("stats", urban, "--splits", *shares)
    assert (refused.returncode, "give --by, too" in refused.stderr) == (2, True)


def test_a_dataset_without_versions_has_no_splits_of_its_own(urban):
    with pytest.raises(UsageError, match="version"):
        version_splits(urban, None)
