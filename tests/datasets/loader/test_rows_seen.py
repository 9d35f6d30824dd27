"""Which rows a Loader gave at some steps."""

import numpy as np
import pytest

import logloom.io.formats.table as tt
from logloom.datasets import Loader, mix, open, rows_seen
from logloom.errors import UsageError


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seen")
    for name, length in (("urban", 9), ("highway", 4)):
        rows = [
            {"log_id": f"{name}-{k % 2}", "timestamp": 100 * k, "speed": float(k)}
            for k in sorted(range(length), key=lambda k: k % 2)
        ]
        tt.write_table(str(folder / name), rows)
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
    rows = open(two["urban"])
    whole = batches(rows, 8, seed=5)
    assert named(rows_seen(rows, range(24), seed=5)) == whole
    found = rows_seen(rows, range(7, 20), seed=5)
    assert named(found) == whole[7:20]
    assert [row["step"] for row in found] == list(range(7, 20))
    for row in found:
        assert row["row"] == row["timestamp"] // 200
    assert named(rows_seen(rows, range(19, 0, -6), seed=5)) == whole[19:0:-6]
    assert named(rows_seen(rows, range(12), shuffle=False)) == batches(rows, 4, shuffle=False)
    shards = [batches(rows, 4, seed=5, shard_id=k, num_shards=2) for k in range(2)]
    assert [shards[k][n] for n in range(12) for k in range(2)] == whole
    fast = rows.filter("speed > 2")
    assert named(rows_seen(fast, range(12))) == batches(fast, 4)


def test_the_rows_of_windows_are_those_at_which_they_stand(two):
    past = open(two["urban"]).window([-1, 0], max_gap=None)
    assert len(past) == 7
    with Loader(past, 3, workers=0) as loader:
        stamps = np.concatenate([next(loader)["timestamp"][:, 1] for _ in range(3)])
    assert [row["timestamp"] for row in rows_seen(past, range(9))] == stamps.tolist()


def test_the_rows_of_a_mixture_are_named_with_their_source(two):
    mixture = mix({two["urban"]: 0.75, two["highway"]: 0.25}, seed=2)
    found = rows_seen(mixture, range(3, 30), seed=1)
    assert named(found) == batches(mixture, 10, seed=1)[3:30]
    for row in found:
        assert row["source"] == two[row["log_id"].partition("-")[0]]


@pytest.mark.parametrize("steps", [range(-1, 3), range(2**64, 2**64 + 1), range(3, -3, -1)])
def test_steps_that_make_no_sense_are_refused(two, steps):
    with pytest.raises(UsageError, match="steps are counted from 0"):
        rows_seen(open(two["urban"]), steps)


def test_no_steps_have_no_rows(two):
    rows = open(two["urban"])
    assert rows_seen(rows, range(5, 5)) == []
    with pytest.raises(UsageError, match="no rows"):
        rows_seen(rows.filter("speed > 99"), range(1))
