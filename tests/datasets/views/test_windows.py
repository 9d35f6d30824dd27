"""Windows that columns have of their own, in rows and in times, against one row after the other."""

import collections
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets import concat
from logloom.errors import UsageError
from logloom.io.formats.table.source import TableSource
from logloom.schema import ColumnType, Schema
from logloom.windows import nearest_rows

TYPES = Schema(
    {
        "state": ColumnType(np.dtype("f4"), (2,)),
        "n": ColumnType(np.dtype("i8")),
        "points": ColumnType(np.dtype("i2"), (None, 2)),
        "image": ColumnType(np.dtype("u1"), (None,), "bytes"),
        "task": ColumnType(np.dtype("u1"), (None,), "string"),
    }
)
MISSING = {"n": 0, "image": b"", "task": "", "timestamp": 0}
LOGS = {"a": [0, 10, 20, 30, 60, 70, 81], "b": [5, 15, 24]}  # ms; a has a gap after 30


def made(log_id, number, ms):
    return {
        "log_id": log_id,
        "timestamp": ms * 10**6,
        "state": np.array([number, ms], "f4"),
        "n": np.int64(number + 1),
        "points": np.full((number % 3, 2), number, "i2"),
        "image": bytes([number]) * (number + 1),
        "task": "pick " * number,
    }


ROWS = [made(log_id, n, ms) for log_id, times in LOGS.items() for n, ms in enumerate(times)]
RUNS = {None: [7, 3], "20ms": [4, 3, 3]}  # rows of each run, by max_gap


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    tt.write_table(str(folder / "t"), ROWS, types=TYPES)
    return logloom.datasets.open(folder / "t")


def run_of(position, max_gap):
    start = 0
    for length in RUNS[max_gap]:
        if position < start + length:
            return range(start, start + length)
        start += length
    raise IndexError(position)


def around(position, offset, run, tolerance):
    """The row at an offset and whether it exists; of one that doesn't the nearest."""
    if isinstance(offset, int):
        row = position + offset
        return min(max(row, run[0]), run[-1]), row in run
    wanted = ROWS[position]["timestamp"] + round(offset * 1e9)
    row = min(run, key=lambda one: abs(ROWS[one]["timestamp"] - wanted))
    times = [ROWS[one]["timestamp"] for one in (run[0], run[-1])]
    if tolerance is None:
        return row, times[0] <= wanted <= times[1]
    return row, abs(ROWS[row]["timestamp"] - wanted) <= tolerance * 10**6


def expected(position, offsets, on_edge, max_gap, tolerance):
    """A sample, made one value at a time; None where the window is not whole and must be."""
    run, sample, masks = run_of(position, max_gap), dict(ROWS[position]), {}
    for name in [*ROWS[0], "timestamp"]:
        if name not in offsets:
            continue
        found = [around(position, offset, run, tolerance) for offset in offsets[name]]
        if on_edge in ("drop", "error") and not all(exists for _, exists in found):
            return None
        empty = {"state": np.full(2, np.nan, "f4"), "points": np.empty((0, 2), "i2"), **MISSING}[name]
        values = [ROWS[row][name] if exists or on_edge == "repeat" else empty for row, exists in found]
        sample[name] = values if name in ("points", "image", "task") else np.stack(values)
        masks[f"{name}.mask"] = np.array([exists for _, exists in found])
    return {**sample, **(masks if on_edge in ("pad", "repeat") else {})}


def check_equal(found, wanted):
    assert list(found) == list(wanted)
    for key, value in wanted.items():
        if isinstance(value, list):
            assert len(found[key]) == len(value)
            assert all(np.array_equal(one, two) for one, two in zip(found[key], value, strict=True)), key
        else:
            np.testing.assert_array_equal(found[key], value, err_msg=key)


STEPS = st.lists(st.integers(-3, 3), min_size=1, max_size=3)
TIMES = st.lists(st.integers(-40, 40).map(lambda ms: ms / 1000), min_size=1, max_size=3)
OFFSETS = st.dictionaries(
    st.sampled_from([name for name in ROWS[0] if name != "log_id"]), STEPS | TIMES, min_size=1
)


def test_a_window_stacks_a_row_and_the_ones_before(rows):
    view = rows.window({"n": [-1, 0]}, on_edge="pad")
    assert view[1]["n"].tolist() == [ROWS[0]["n"], ROWS[1]["n"]]
    assert view[1]["n.mask"].all()
    assert view[0]["n"].tolist() == [0, ROWS[0]["n"]]
    assert view[0]["n.mask"].tolist() == [False, True]
    assert len(rows.window({"n": [-1, 0]}, on_edge="drop")) == len(rows) - len(LOGS)


@given(
    offsets=OFFSETS,
    on_edge=st.sampled_from(["drop", "pad", "repeat", "error"]),
    max_gap=st.sampled_from([None, "20ms"]),
    tolerance=st.sampled_from([None, 0, 3, 7]),
    order=st.permutations(range(len(ROWS))),
)
def test_each_column_has_the_rows_of_its_own_window(rows, offsets, on_edge, max_gap, tolerance, order):
    given_offsets = {
        name: one if isinstance(one[0], float) else np.array(one) for name, one in offsets.items()
    }
    near = None if tolerance is None else f"{tolerance}ms"
    view = rows.take(order).window(given_offsets, on_edge=on_edge, max_gap=max_gap, tolerance=near)
    wanted = [expected(row, offsets, on_edge, max_gap, tolerance) for row in order]
    if on_edge == "error":
        for number, one in enumerate(wanted):
            if one is None:
                with pytest.raises(UsageError, match=r'has no rows at offsets .*"repeat" goes on'):
                    view[number]
            else:
                check_equal(view[number], one)
        return
    wanted = [one for one in wanted if one is not None]
    assert len(view) == len(wanted)
    for number, one in enumerate(wanted):
        check_equal(view[number], one)
    batch = view.get_many(range(len(view)))
    assert list(batch) == list(view.keys)
    for name, column in batch.items():
        values = [one[name] for one in wanted]
        if isinstance(column, tuple):
            flat = [row for value in values for row in value] if name in offsets else values
            assert column[0].tolist() == [point.tolist() for row in flat for point in row]
            assert column[1].reshape(-1).tolist() == list(map(len, flat))
        elif isinstance(column, list) or not wanted:
            assert list(column) == values
        else:
            np.testing.assert_array_equal(column, values)
    mapped = (
        rows.take(order).map(dict).window(given_offsets, on_edge=on_edge, max_gap=max_gap, tolerance=near)
    )
    for number, one in enumerate(wanted):  # what a row lacks is None in lists that functions made
        lists = {key: value for key, value in one.items() if isinstance(value, list)}
        sample = mapped[number]
        check_equal(
            {k: v for k, v in sample.items() if k not in lists},
            {k: v for k, v in one.items() if k not in lists},
        )
        assert all(len(sample[key]) == len(value) for key, value in lists.items())


@given(
    diffs=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    cuts=st.sets(st.integers(1, 11)),
    deltas=st.lists(st.integers(-30, 30), min_size=1, max_size=4),
    tolerance=st.sampled_from([None, 0, 2, 5]),
    data=st.data(),
)
def test_the_nearest_row_to_a_time_is_found_as_by_looking_at_all(diffs, cuts, deltas, tolerance, data):
    stamps = np.cumsum(np.array(diffs, np.int64))
    starts = np.array([0, *sorted(cut for cut in cuts if cut < len(stamps)), len(stamps)])
    positions = np.array(data.draw(st.lists(st.integers(0, len(stamps) - 1), max_size=6)), np.int64)
    rows, exists = nearest_rows(positions, np.array(deltas), starts, stamps, tolerance)
    for number, position in enumerate(positions.tolist()):
        first, stop = next((a, b) for a, b in itertools.pairwise(starts) if a <= position < b)
        for place, delta in enumerate(deltas):
            wanted = stamps[position] + delta
            row = min(range(first, stop), key=lambda one: abs(stamps[one] - wanted))
            assert rows[number, place] == row
            within = stamps[first] <= wanted <= stamps[stop - 1]
            near = within if tolerance is None else abs(stamps[row] - wanted) <= tolerance
            assert exists[number, place] == near


def test_a_row_is_its_own_nearest_also_where_another_has_its_time():
    stamps = np.array([0, 5, 5, 5])
    rows, _ = nearest_rows(np.arange(4), np.array([0]), np.array([0, 4]), stamps, None)
    assert rows[:, 0].tolist() == [0, 1, 2, 3]


@pytest.fixture
def reads(monkeypatch):
    """How many rows were read of each column."""
    counts, take = collections.Counter(), TableSource.take

    def counting(self, positions, names, out=None):
        counts.update(dict.fromkeys(names, len(positions)))
        return take(self, positions, names, out)

    monkeypatch.setattr(TableSource, "take", counting)
    return counts


def test_no_column_is_read_at_more_rows_than_its_own_window_has(rows, reads):
    view = rows.window({"image": range(-1, 1), "state": range(4)}, max_gap=None)
    view[0]
    assert reads == {"image": 2, "state": 4, "n": 1, "points": 1, "task": 1}
    reads.clear()
    view.get_many(range(len(view)))  # rows 1, 2 and 3 of the first log, whose windows share rows
    assert len(view) == 3
    assert reads == {"image": 4, "state": 6, "n": 3, "points": 3, "task": 3}
    reads.clear()
    view.select("image").get_many([0])
    assert reads == {"image": 2}


def test_times_are_texts_seconds_or_timedeltas_and_nearest_within_the_tolerance(rows):
    for offsets in (
        ["-10ms", "0s"],
        [-0.01, 0],
        np.array([-0.01, 0]),
        np.array([-10, 0], "m8[ms]"),
    ):
        view = rows.window(offsets, max_gap=None, tolerance="1ms")
        assert [one["n"].tolist() for one in view] == [[1, 2], [2, 3], [3, 4], [5, 6], [6, 7], [1, 2], [2, 3]]
        assert view[0]["state"].shape == (2, 2)
    exact = rows.window([-0.01, 0], max_gap=None, tolerance=0)
    assert [one["n"].tolist() for one in exact] == [[1, 2], [2, 3], [3, 4], [5, 6], [1, 2]]
    assert (
        rows.window([-0.005, 0.0], 2, max_gap=None, tolerance=0).positions.tolist()
        == exact.positions.tolist()
    )


def test_an_end_is_repeated_as_lerobot_does(rows):
    """Its rule: indices are clamped to the episode, and `is_pad` marks those that were beyond."""
    fps, deltas = 100, {"state": [-0.02, -0.01, 0.0, 0.01], "n": [0.0, 0.01, 0.02]}
    only = rows.filter("log_id == 'a'").take(slice(0, 4))  # 100 rows a second
    view = only.window(deltas, on_edge="repeat", max_gap="20ms", tolerance="100us")
    for row, sample in enumerate(view):
        for name, seconds in deltas.items():
            asked = [row + round(one * fps) for one in seconds]
            clamped = [max(0, min(3, one)) for one in asked]
            np.testing.assert_array_equal(sample[name], [ROWS[one][name] for one in clamped])
            assert (~sample[f"{name}.mask"]).tolist() == [one < 0 or one >= 4 for one in asked]


def test_windows_of_columns_stay_within_logs_of_datasets_that_are_put_end_to_end(rows):
    both = concat([rows, rows.filter("log_id == 'b'")])
    view = both.window({"n": [-1, 0], "task": range(1)}, on_edge="repeat", max_gap=None)
    assert len(view) == 13
    assert [one["n"].tolist() for one in view][7:] == [[1, 1], [1, 2], [2, 3]] * 2
    labels = np.array([0] * 3 + [1] * 7)
    part = rows.apart(labels == 1, labels)
    assert part.window({"n": [-1, 0]}, on_edge="pad", max_gap=None)[0]["n.mask"].tolist() == [False, True]


def test_tables_of_other_libraries_have_lists_where_columns_have_windows(rows):
    view = rows.window({"points": [-1, 0], "state": range(3), "task": [0, 1]}, on_edge="pad", max_gap=None)
    table, frame = view.to_arrow(), view.to_pandas()
    assert table.num_rows == 10
    assert table.column_names == list(view.keys) == list(frame)
    assert table.schema.field("points").type.list_size == 2
    assert table.schema.field("n").type == pa.int64()
    for number in range(10):
        sample = view[number]
        assert frame["task"][number] == sample["task"] == table["task"][number].as_py()
        np.testing.assert_array_equal(frame["state"][number], sample["state"])
        assert table["points"][number].as_py() == [one.tolist() for one in sample["points"]]
        assert table["state.mask"][number].as_py() == sample["state.mask"].tolist()
    nothing = view.take(0)
    assert nothing.to_arrow().schema == table.schema
    assert list(nothing.get_many([])) == list(view.keys)


def test_windows_of_columns_of_foreign_datasets(tmp_path):
    (tmp_path / "p").mkdir()
    pq.write_table(pa.table({"v": np.arange(6), "w": np.arange(6) * 0.5}), tmp_path / "p/a.parquet")
    group = zarr.open_group(tmp_path / "z", mode="w", zarr_format=2)
    group.create_array("v", data=np.arange(6))
    group.create_array("w", data=np.arange(6) * 0.5)
    for place in (tmp_path / "p", tmp_path / "z"):
        rows = logloom.datasets.open(place)
        view = rows.window({"v": range(-1, 2)}, on_edge="repeat", max_gap=None)
        assert [one["v"].tolist() for one in view][::5] == [[0, 0, 1], [4, 5, 5]]
        assert [one["w"] for one in view] == [row / 2 for row in range(6)]
        if not rows.source.has_stamps:
            with pytest.raises(
                UsageError, match=r"have no timestamps; give offsets in rows, range\(-10, 1\)"
            ):
                rows.window({"v": ["-1s"]}, max_gap=None)


def test_what_a_view_says_of_its_windows(rows):
    view = rows.window({"image": range(-1, 1), "n": ["-20ms", "0ms"]}, on_edge="pad", mask="real")
    assert "windows: image: 2 rows, -1 to 0; n: 2 times, -0.02 to 0 s" in repr(view)
    assert view.keys == ("log_id", "timestamp", *TYPES.columns, "n.real", "image.real")
    assert view.select("image").keys == ("log_id", "timestamp", "image", "image.real")
    assert view.spec["image"] == (np.dtype(object), (2,))
    assert (view.steps_of("n"), view.steps_of("state"), view.window_steps) == (2, 0, 2)


def test_globs_name_columns_of_one_window(rows):
    sample = rows.window({"[ni]*": range(2), "timestamp": [0.0, 0.01]}, max_gap=None)[0]
    assert (sample["n"].tolist(), len(sample["image"]), sample["timestamp"].tolist()) == (
        [1, 2],
        2,
        [0, 10**7],
    )


@pytest.mark.parametrize(
    ("offsets", "options", "match"),
    [
        ({"imgae": [0]}, {}, "no column matches 'imgae'; did you mean image"),
        ({}, {}, "no columns; name some"),
        ({"n": []}, {}, "offsets are integers such as"),
        ({"n": "-10ms"}, {}, "got '-10ms'"),
        ({"n": [0], "[ni]*": [1]}, {}, r"'n' and '\[ni\]\*' both name n"),
        (
            {"n": [-1, 0], "state": [0.0, 0.1]},
            {},
            r"n=\[-1, 0\]: rows, or seconds as state has\? Write range",
        ),
        (["10 parsecs"], {}, "offset='10 parsecs': not a length of time"),
        ([float("nan")], {}, "not a length of time"),
        ([10**40], {}, "offsets are integers"),
        ([0.1], {"tolerance": -1}, "window: tolerance=-1: not a length of time"),
        ({"log_id": [0]}, {}, "'log_id' is no column"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused_with_the_way_out(rows, offsets, options, match):
    with pytest.raises(UsageError, match=match):
        rows.window(offsets, **options)


def test_a_mask_that_would_hide_a_column_is_refused(tmp_path):
    tt.write_table(str(tmp_path / "t"), [{"log_id": "a", "timestamp": 0, "n": 1, "n.mask": 2}])
    rows = logloom.datasets.open(tmp_path / "t")
    with pytest.raises(UsageError, match=r"'n\.mask' is a column; name the mask otherwise"):
        rows.window({"n": [0]}, on_edge="pad")
    assert rows.window({"n": [0]}, on_edge="pad", mask="real")[0]["n.real"].tolist() == [True]


def test_functions_before_a_window_must_leave_the_columns_that_it_names(rows):
    kept = rows.map(only_n)
    assert kept.window({"n": range(2)}, max_gap=None)[0]["n"].tolist() == [1, 2]
    with pytest.raises(UsageError, match="functions given to map left no 'state'; they gave n"):
        kept.window({"state": range(2)}, max_gap=None)[0]


def only_n(row):
    return {"n": row["n"]}


def test_lists_of_arrays_that_functions_give_stay_lists_in_windows(rows):
    mapped = rows.map(lambda row: {"parts": [np.ones(2)]}).window([-1, 0], on_edge="pad")
    first, second = mapped[0]["parts"], mapped[1]["parts"]
    assert first[0] is None  # and no list of zeros or NaN, which is a value
    assert [[one.tolist() for one in row] for row in (first[1], *second)] == [[[1.0, 1.0]]] * 3
