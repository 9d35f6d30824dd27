"""What `order` and `splits` say of a dataset: the very rows that a Loader gave, and how near splits lie."""

import json

import numpy as np
import pytest

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets import Loader, mix
from logloom.datasets.loader.rows_seen import rows_seen
from logloom.datasets.splits.separation import requested_splits, version_splits
from logloom.errors import UsageError
from tests.pipelines.test_commands import logloom as command


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seen")
    for name, length in (("urban", 9), ("highway", 4)):
        tt.write_table(
            str(folder / name),
            [
                {
                    "log_id": f"{name}-{k % 2}",
                    "timestamp": 100 * k,
                    "speed": float(k),
                    "place": np.array([30.0 * k, 10.0 * (k % 2)]),
                }
                for k in sorted(range(length), key=lambda k: k % 2)
            ],
        )
    return {name: str(folder / name) for name in ("urban", "highway")}


def batches(source, count, **options):
    with Loader(source, 3, workers=0, **options) as loader:
        taken = [next(loader) for _ in range(count)]
    return [
        (log_id, stamp)
        for one in taken
        for log_id, stamp in zip(one["log_id"], one["timestamp"], strict=True)
    ]


def named(rows):
    return [(row["log_id"], row["timestamp"]) for row in rows]


def test_the_rows_at_some_steps_are_those_that_the_loader_gave(two):
    rows = logloom.datasets.open(two["urban"])
    whole = batches(rows, 8, seed=5)
    assert named(rows_seen([two["urban"]], "0:24", seed=5)) == whole
    found = rows_seen([two["urban"]], "7:20", seed=5)
    assert named(found) == whole[7:20]
    assert [row["step"] for row in found] == list(range(7, 20))
    for row in found:
        assert row["row"] == row["timestamp"] // 200
    assert named(rows_seen([two["urban"]], "0:12", shuffle=False)) == batches(rows, 4, shuffle=False)
    shards = [batches(rows, 4, seed=5, shard_id=k, num_shards=2) for k in range(2)]
    assert [shards[k][n] for n in range(12) for k in range(2)] == whole
    fast = batches(rows.filter("speed > 2"), 4)
    assert named(rows_seen([two["urban"]], "0:12", where="speed > 2")) == fast
    past = rows.window([-1, 0], max_gap=None)
    seen = rows_seen([two["urban"]], "0:9", window="-1:1")
    assert len(past) == 7
    with Loader(past, 3, workers=0) as loader:
        stamps = np.concatenate([next(loader)["timestamp"][:, 1] for _ in range(3)])
    assert [row["timestamp"] for row in seen] == stamps.tolist()


def test_the_rows_of_a_mixture_are_named_with_their_source(two):
    roots = [f"{two['urban']}=0.75", f"{two['highway']}=0.25"]
    mixture = mix({two["urban"]: 0.75, two["highway"]: 0.25}, seed=2)
    found = rows_seen(roots, "3:30", seed=1, mix_seed=2)
    assert named(found) == batches(mixture, 10, seed=1)[3:30]
    for row in found:
        assert row["source"] == two[row["log_id"].partition("-")[0]]
    with pytest.raises(UsageError, match="each has a weight"):
        rows_seen([two["urban"], two["highway"]], "0:3")
    with pytest.raises(UsageError, match="named twice"):
        rows_seen([f"{two['urban']}=0.5", f"{two['urban']}=0.5"], "0:3")


@pytest.mark.parametrize("steps", ["5", "5:1", "-1:3", "0:9999999", f"{2**64}:{2**64}", "a:b", ""])
def test_steps_that_make_no_sense_are_refused(two, steps):
    with pytest.raises(UsageError, match="--steps"):
        rows_seen([two["urban"]], steps)


def test_the_command_prints_them_as_a_table_and_as_json(two):
    told = command("order", two["urban"], "--seed", 3, "--steps", "2:6", "--json")
    assert json.loads(told.stdout) == rows_seen([two["urban"]], "2:6", seed=3)
    table = command("order", two["urban"], "--seed", 3, "--steps", "2:6").stdout
    for row in rows_seen([two["urban"]], "2:6", seed=3):
        assert f"{row['step']}" in table
        assert row["log_id"] in table
    refused = command("order", two["urban"], "--steps", "2")
    assert (refused.returncode, "two whole numbers" in refused.stderr) == (2, True)


def test_splits_that_a_dataset_would_have_are_counted_and_measured(two):
    shares = ["a=0.5", "b=0.5"]
    found = requested_splits(two["urban"], shares, "place", 60.0, 20.0, "place")
    rows = logloom.datasets.open(two["urban"])
    parts = logloom.datasets.split(rows, {"a": 0.5, "b": 0.5}, by="place", cell=60, gap=20, position="place")
    assert {name: one["rows"] for name, one in found.counts.items()} == {k: len(v) for k, v in parts.items()}
    assert found.left_out == len(rows) - sum(map(len, parts.values()))
    (pair,) = found.nearest
    assert pair.metres >= 20 or not pair.rows
    arguments = ("splits", two["urban"], "--by", "place", "--cell", 60, "--gap", 20, "--position", "place")
    told = command(*arguments, "--share", "a=0.5", "--share", "b=0.5", "--json")
    said = json.loads(told.stdout)
    assert said.pop("warnings") == [line.partition(": ")[2] for line in told.stderr.splitlines()]
    assert said == json.loads(json.dumps(found.to_json()))
    for wrong in (["a"], ["a=0.5", "a=0.5"]):
        with pytest.raises(UsageError, match="write each split once"):
            requested_splits(two["urban"], wrong, "time", 1.0, 0.0, None)


def test_splits_of_few_cells_that_get_nothing_are_named_with_the_reason(two):
    shares = ("--share", "a=0.5", "--share", "b=0.5")
    told = command("splits", two["urban"], "--by", "time", "--cell", 1e6, *shares, "--json")
    said = json.loads(told.stdout)
    (empty,) = [name for name, one in said["splits"].items() if not one["rows"]]
    assert said["warnings"] == [line.partition(": ")[2] for line in told.stderr.splitlines()]
    assert f"split '{empty}' gets no row: shares are those of many cells" in told.stderr
    refused = command("splits", two["urban"], *shares)
    assert (refused.returncode, "give --by, too" in refused.stderr) == (2, True)


def test_a_dataset_without_versions_has_no_splits_of_its_own(two):
    with pytest.raises(UsageError, match="version"):
        version_splits(two["urban"], None)
