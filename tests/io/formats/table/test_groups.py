"""Column groups: the default ones, the named ones, and the cheapest cover of a selection."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.io.formats.table as tt
from logloom.errors import UsageError
from logloom.io.formats.table.groups import cheapest_cover, make_groups
from logloom.schema import ColumnType, Schema
from tests.io.formats.table.making import assert_rows_equal, drive

SCHEMA = Schema(
    {
        "camera.front": ColumnType(np.dtype("u1"), (None,), "bytes"),
        "speed": ColumnType(np.dtype("<f8")),
        "pose": ColumnType(np.dtype("<f8"), (4, 4)),
        "image": ColumnType(np.dtype("u1"), (64, 64, 3)),
        "points": ColumnType(np.dtype("<f4"), (None, 4)),
    },
    ("speed",),
)


def test_small_columns_share_a_group_large_and_ragged_ones_have_their_own():
    assert make_groups(SCHEMA) == {
        "camera.front": ("camera.front",),
        "small-columns": ("speed", "pose"),
        "image": ("image",),
        "points": ("points",),
        "meta": ("speed.age", "speed.available"),
    }


def test_named_groups_come_first_and_what_they_leave_out_is_grouped_by_default():
    groups = make_groups(SCHEMA, {"frame": ["camera.*", "points"], "all": ".*", "few": ["speed", "pose"]})
    assert groups["all"] == tuple(SCHEMA.columns)
    assert groups["frame"] == ("camera.front", "points")
    assert set(groups) == {"frame", "all", "few", "meta"}


def test_a_group_that_matches_nothing_or_leaves_the_folder_is_refused():
    with pytest.raises(UsageError, match="no column matches 'radar"):
        make_groups(SCHEMA, {"frame": ["radar.*"]})
    for name in ("../up", "a/b", ""):
        with pytest.raises(UsageError, match="names are made of"):
            make_groups(SCHEMA, {name: ".*"})
    with pytest.raises(UsageError, match="leaves out image"):
        make_groups(SCHEMA, {"image": ["points"]})


@given(st.data())
def test_the_cover_costs_no_more_than_any_other(data):
    columns = "abcdef"[: data.draw(st.integers(1, 6))]
    groups = {
        f"g{number}": sorted(data.draw(st.sets(st.sampled_from(columns), min_size=1)))
        for number in range(data.draw(st.integers(0, 6)))
    } | {f"own-{c}": [c] for c in columns}
    costs = {name: data.draw(st.integers(1, 50)) for name in groups}
    wanted = sorted(data.draw(st.sets(st.sampled_from(columns), min_size=1)))

    found = cheapest_cover(wanted, groups, costs)

    assert set(wanted) <= {c for g in found for c in groups[g]}
    best = min(
        sum(costs[g] for g in some)
        for n in range(len(groups) + 1)
        for some in itertools.combinations(groups, n)
        if set(wanted) <= {c for g in some for c in groups[g]}
    )
    assert sum(costs[g] for g in found) == best


def test_hundreds_of_overlapping_groups_are_covered_in_no_time():
    columns = [f"c{i}" for i in range(100)]
    rng = np.random.default_rng(0)
    groups = {f"g{i}": list(rng.choice(columns, 20, replace=False)) for i in range(300)}
    groups |= {f"own-{c}": [c] for c in columns}
    costs = {name: float(rng.random()) for name in groups}
    found = cheapest_cover(columns, groups, costs)
    assert set(columns) <= {c for g in found for c in groups[g]}


def test_each_call_reads_the_group_that_costs_it_least(tmp_path):
    rows = drive()
    named = {
        "row": ".*",
        "lidar": "lidar.*",
        "radar.returns": "radar.*",
        "camera.front": "camera.*",
        "ego": ["ego.*", "speed"],
    }
    tt.write_table(f"{tmp_path}/t", rows, groups=named)
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"))

    def groups(columns):
        return [g.group for g in loader.explain(columns).groups]

    assert groups(None) == ["row"]  # one request instead of five
    assert groups("lidar.*") == ["lidar"]
    assert groups("ego.position") == ["ego"]
    for position in (0, 41):
        for columns in (None, "lidar.*", ["ego.position", "camera.front"]):
            assert_rows_equal(loader.get_row(position, columns), rows[position])


def test_explain_says_groups_requests_and_bytes(tmp_path):
    rows = [{"a": np.zeros(1000, np.float64), "b": np.zeros(3), "c": 1.0} for _ in range(10)]
    tt.write_table(f"{tmp_path}/t", rows)
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"))
    cost = loader.explain()
    assert (cost.requests, cost.bytes) == (2, 8000 + 32)
    assert [(g.group, g.columns, g.bytes) for g in cost.groups] == [
        ("a", ("a",), 8000),
        ("small-columns", ("b", "c"), 32),
    ]
    assert "2 requests, 8,032 bytes" in str(cost)
    assert loader.explain("b", offsets=range(-5, 0)).bytes == 5 * 32
    assert loader.explain("b", offsets=[]) == loader.explain("b")
