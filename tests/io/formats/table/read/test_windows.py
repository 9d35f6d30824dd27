"""Windows: rows of the log as stored, whatever became of the frame."""

import functools
import pickle
import tempfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.io.formats.table as tt
from logloom.errors import UsageError
from tests.io.formats.table.making import PERIOD, assert_rows_equal, drive, labels

ON = ["log_id", "timestamp"]


@functools.cache
def stored() -> tuple[str, list, list]:
    """A table with gaps and a labels table that lacks some of its rows; rows of both."""
    root = tempfile.mkdtemp(prefix="windows-")
    rows = drive(num_logs=3, rows=25)
    rows = [row for number, row in enumerate(rows) if number not in (7, 8, 30, 61)]
    tt.write_table(
        f"{root}/sensors", rows, index=["speed", "pedestrians_count"], max_gap=f"{3 * PERIOD // 2}ns"
    )
    some = [row for number, row in enumerate(labels(rows)) if number % 5 != 4]
    tt.write_table(f"{root}/labels", some[::-1])
    return root, rows, some


def neighbours(rows, number, offsets, merged_with=None):
    """The slow, obvious answer: the row at each offset, or None."""
    found = []
    for offset in offsets:
        there = number + offset
        step = 1 if offset > 0 else -1
        path = range(number, there, step)
        whole = 0 <= there < len(rows) and all(
            0 <= place + step < len(rows)
            and rows[place]["log_id"] == rows[place + step]["log_id"]
            and abs(rows[place]["timestamp"] - rows[place + step]["timestamp"]) <= 3 * PERIOD // 2
            for place in path
        )
        row = rows[there] if whole else None
        if row is not None and merged_with is not None:
            key = tuple(row[k] for k in ON)
            row = row | merged_with[key] if key in merged_with else None
        found.append(row)
    return found


def change(frame, how, seed):
    """What people do to frames."""
    if how == "filter":
        return frame[frame.speed > 0.4]
    if how == "sort":
        return frame.sort_values("speed")
    if how == "sample":
        return frame.sample(frac=0.6, random_state=seed)
    if how == "concat":
        return pd.concat([frame[frame.speed > 0.5], frame[frame.speed < 0.6]])
    if how == "pickle":
        return pickle.loads(pickle.dumps(frame.iloc[::2]))
    return frame


@given(
    how=st.sampled_from(["", "filter", "sort", "sample", "concat", "pickle"]),
    merged=st.booleans(),
    offsets=st.lists(st.integers(-6, 6), min_size=1, max_size=7, unique=True),
    stride=st.integers(1, 3),
    seed=st.integers(0, 99),
    pick=st.integers(0, 10**6),
    pickled=st.booleans(),
)
def test_a_window_is_the_neighbours_as_stored(how, merged, offsets, stride, seed, pick, pickled):
    root, rows, some = stored()
    frame = tt.read_index(f"{root}/sensors")
    if merged:
        frame = tt.merge(frame, tt.read_index(f"{root}/labels"), on=ON)
    frame = change(frame, how, seed)
    loader = tt.row_loader(frame)
    loader = pickle.loads(pickle.dumps(loader)) if pickled else loader
    position = pick % len(loader)
    keys = [tuple(row[k] for k in ON) for row in rows]
    number = keys.index(tuple(frame[k].iloc[position] for k in ON))
    by_key = {tuple(row[k] for k in ON): row for row in some} if merged else None
    wanted = neighbours(rows, number, [o * stride for o in offsets], by_key)

    found, mask = loader.get_rows(position, None, offsets, stride=stride, on_edge="pad")
    assert mask.tolist() == [row is not None for row in wanted]
    for row, expected in zip(found, wanted, strict=True):
        if expected is not None:
            assert_rows_equal(row, expected)
            assert len(row) == (12 if merged else 10)
    dropped = loader.get_rows(position, "lidar.*", offsets, stride=stride, on_edge="drop")
    assert len(dropped) == mask.sum()
    if not mask.all():
        with pytest.raises(tt.RowPositionError, match="no rows at offsets"):
            loader.get_rows(position, None, offsets, stride=stride)
    batch, many = loader.get_window_many(
        [position, position],
        ["ego.position", "lidar.points", "weather"],
        offsets,
        stride=stride,
        on_edge="pad",
    )
    assert many.tolist() == [mask.tolist()] * 2
    assert batch["ego.position"].shape == (2, len(offsets), 3)
    values, lengths = batch["lidar.points"]
    assert lengths.shape == (2, len(offsets))
    assert len(values) == lengths.sum()
    for k, expected in enumerate(wanted):
        if expected is not None:
            np.testing.assert_array_equal(batch["ego.position"][1, k], expected["ego.position"])
            assert batch["weather"][1][k] == expected["weather"]
        else:
            assert np.isnan(batch["ego.position"][1, k]).all()
            assert lengths[1, k] == 0


def test_padding_is_nan_zero_false_or_empty(tmp_path):
    rows = [
        {
            "log_id": "a",
            "timestamp": t,
            "x": 1.5,
            "n": 3,
            "ok": True,
            "b": b"xy",
            "s": "é",
            "r": np.ones((t + 1, 2)),
        }
        for t in range(2)
    ]
    tt.write_table(f"{tmp_path}/t", rows)
    (row, real), mask = tt.row_loader(tt.read_index(f"{tmp_path}/t")).get_rows(
        0, None, range(-1, 1), on_edge="pad"
    )
    assert mask.tolist() == [False, True]
    assert_rows_equal(real, rows[0])
    assert np.isnan(row["x"])
    assert (row["n"], row["ok"], row["b"], row["s"], row["r"].shape) == (0, False, b"", "", (0, 2))
    assert row["log_id"] == "a"


def test_the_gap_can_be_said_when_loading(tmp_path):
    rows = [{"log_id": "a", "timestamp": t, "x": t} for t in (0, 10, 20, 50, 60)]
    tt.write_table(f"{tmp_path}/t", rows)
    index = tt.read_index(f"{tmp_path}/t")
    assert len(tt.row_loader(index).get_rows(4, "x", range(-4, 0))) == 4
    for frame in (index, index.iloc[::2]):  # neighbours in the frame, and as stored
        loader = tt.row_loader(frame, max_gap="15ns")
        assert len(loader.get_rows(len(frame) - 1, "x", range(-4, 0), on_edge="drop")) == 1


def test_windows_work_without_log_id_and_timestamp(tmp_path):
    tt.write_table(f"{tmp_path}/t", [{"x": n} for n in range(9)])
    index = tt.read_index(f"{tmp_path}/t").iloc[[4, 2]]
    assert [row["x"] for row in tt.row_loader(index).get_rows(0, "x", range(-2, 3))] == [2, 3, 4, 5, 6]


def test_windows_of_a_table_in_many_parts_cross_the_parts(tmp_path):
    rows = drive(num_logs=1, rows=40)
    types = tt.infer_types(rows)
    entries = [
        tt.write_part(f"{tmp_path}/t", rows[start : start + 10], f"{start:03}", types)
        for start in (30, 0, 20, 10)
    ]
    tt.commit_table(f"{tmp_path}/t", entries, types)
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"))
    found = loader.get_rows(12, None, range(-5, 20))
    for row, wanted in zip(found, rows[7:32], strict=True):
        assert_rows_equal(row, wanted)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"on_edge": "skip"}, "on_edge='skip'; there are error, drop, pad"),
        ({"stride": 0}, "stride 0: offsets are whole, strides from 1 on"),
        ({"stride": -1}, "strides from 1 on"),
        ({"offsets": [0.5]}, r"offsets \(0.5,\), stride 1: offsets are whole"),
        ({"offsets": [True]}, "offsets are whole"),
    ],
)
def test_windows_that_make_no_sense_are_refused(tmp_path, choices, words):
    tt.write_table(f"{tmp_path}/t", drive(num_logs=1, rows=5))
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"))
    given = {"offsets": [0]} | choices
    with pytest.raises(UsageError, match=words):
        loader.get_rows(2, "speed", **given)
    with pytest.raises(UsageError, match=words.removesuffix(", drop, pad")):
        loader.get_window_many([2], "speed", **given)
    with pytest.raises(UsageError, match="on_edge='drop'; there are error, pad"):
        loader.get_window_many([2], "speed", on_edge="drop")


def test_a_window_that_leaves_its_log_names_the_row_and_the_first_offsets(tmp_path):
    tt.write_table(f"{tmp_path}/t", drive(num_logs=2, rows=5))
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"))
    words = (
        rf"position 7 \(row 2 of {tmp_path}/t/index/drive-1\.parquet\): no rows at offsets "
        r"-10, -9, -8, -7, -6, -5, … \(8 in all\): the log ends there"
    )
    with pytest.raises(tt.RowPositionError, match=words):
        loader.get_rows(7)


BASE = [{"log_id": "a", "timestamp": number} for number in range(6)]


def test_filtered_windows_are_refused_where_a_key_no_longer_tells_the_row(tmp_path):
    tt.write_table(f"{tmp_path}/left", [row | {"x": n} for n, row in enumerate(BASE)], index="x")
    twice = [row | {"rev": rev, "box": 100 * rev + n} for n, row in enumerate(BASE) for rev in (2, 1)]
    tt.write_table(f"{tmp_path}/labels", twice, index="rev")
    left, right = tt.read_index(f"{tmp_path}/left"), tt.read_index(f"{tmp_path}/labels")
    merged = tt.merge(left, right[right.rev == 2], on=ON)
    boxes = [row["box"] for row in tt.row_loader(merged).get_rows(3, "box", range(-2, 1))]
    assert boxes == [201, 202, 203]
    with pytest.raises(UsageError, match=r"several rows of .*/labels.* share their log_id, timestamp"):
        tt.row_loader(merged[merged.x != 1]).get_rows(2, "box", range(-2, 1))


def test_filtered_windows_are_refused_where_a_key_was_changed_before_the_merge(tmp_path):
    tt.write_table(f"{tmp_path}/left", [row | {"x": n} for n, row in enumerate(BASE)], index="x")
    tt.write_table(f"{tmp_path}/right", [row | {"y": n} for n, row in enumerate(BASE)])
    left, right = tt.read_index(f"{tmp_path}/left"), tt.read_index(f"{tmp_path}/right")
    merged = tt.merge(left, right.assign(timestamp=right.timestamp + 1), on=ON)
    loader = tt.row_loader(merged)
    assert [(row["x"], row["y"]) for row in loader.get_rows(2, None, range(-2, 1))] == [
        (1, 0),
        (2, 1),
        (3, 2),
    ]
    filtered = tt.row_loader(merged[merged.x != 2])
    assert filtered.get_row(1)["y"] == 2
    with pytest.raises(UsageError, match=r"/right.* has another row than the frame was merged with"):
        filtered.get_rows(1, None, range(-2, 1))


def test_filtered_windows_are_refused_where_keys_do_not_tell_the_log(tmp_path):
    tt.write_table(f"{tmp_path}/left", [row | {"x": n} for n, row in enumerate(BASE)], index="x")
    parts = [row | {"log_id": f"p{n // 3}", "y": n} for n, row in enumerate(BASE)]
    tt.write_table(f"{tmp_path}/right", parts)
    merged = tt.merge(*(tt.read_index(f"{tmp_path}/{name}") for name in ("left", "right")), on="timestamp")
    assert [row["y"] for row in tt.row_loader(merged).get_rows(3, "y", range(-2, 1))] == [1, 2, 3]
    with pytest.raises(UsageError, match="merge on log_id too"):
        tt.row_loader(merged[merged.x != 1]).get_rows(2, "y", range(-2, 1), on_edge="drop")


@pytest.mark.parametrize(
    "change", [lambda t: t / 1e9, lambda t: t // 10**6, lambda t: t - t.iloc[0] + 10**12]
)
def test_gaps_are_those_of_the_log_whatever_became_of_the_frame_s_times(tmp_path, change):
    rows = [
        {"log_id": "a", "timestamp": stamp * 10**6, "x": n}
        for n, stamp in enumerate([0, 100, 200, 9000, 9100])
    ]
    tt.write_table(f"{tmp_path}/t", rows, index="x", max_gap=0.15)
    frame = tt.read_index(f"{tmp_path}/t")
    for one in (frame, frame.assign(timestamp=change(frame.timestamp))):
        found = tt.row_loader(one).get_rows(3, "x", range(-2, 2), on_edge="drop")
        assert [row["x"] for row in found] == [3, 4]


@pytest.mark.parametrize(("offsets", "stride"), [([2**62], 4), ([0, 2**62], 1), ([-(2**50)], 1)])
def test_offsets_beyond_any_log_are_refused(tmp_path, offsets, stride):
    tt.write_table(f"{tmp_path}/t", [row | {"x": n} for n, row in enumerate(BASE)])
    with pytest.raises(UsageError, match="no log has so many rows"):
        tt.row_loader(tt.read_index(f"{tmp_path}/t")).get_rows(0, "x", offsets, stride=stride)
