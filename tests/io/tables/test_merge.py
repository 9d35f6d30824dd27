"""Merging: what is joined, what is refused, and how colliding names are shown."""

import numpy as np
import pandas as pd
import pytest

import logloom.io.tables as tt
from logloom.errors import UsageError
from tests.io.tables.making import assert_rows_equal, drive, labels

ON = ["log_id", "timestamp"]


@pytest.fixture
def tables(tmp_path):
    rows = drive(num_logs=2, rows=12)
    tt.write_table(f"{tmp_path}/sensors", rows, index=["speed", "pedestrians_count"])
    tt.write_table(f"{tmp_path}/labels", labels(rows, every=2)[::-1], index="labels.count")
    return tmp_path, rows


def test_rows_meet_by_key_in_the_order_of_the_left_frame(tables):
    root, rows = tables
    left = tt.read_index(f"{root}/sensors").sort_values("speed")
    merged = tt.merge(left, tt.read_index(f"{root}/labels"), on=ON)
    both = [r | n for r, n in zip(rows[::2], labels(rows, every=2), strict=True)]
    both.sort(key=lambda row: row["speed"])
    assert merged["labels.count"].tolist() == [row["labels.count"] for row in both]
    for found, wanted in zip(tt.row_loader(merged), both, strict=True):
        assert_rows_equal(found, wanted)


def test_colliding_names_get_suffixes_in_the_frame_and_in_rows(tables):
    root, rows = tables
    other = [{**{k: row[k] for k in ON}, "speed": -row["speed"], "n": 1} for row in rows]
    tt.write_table(f"{root}/other", other, index=["speed"])
    merged = tt.merge(*(tt.read_index(f"{root}/{name}") for name in ("sensors", "other")), on=ON)
    assert {"speed_x", "speed_y"} <= set(merged.columns)
    row = tt.row_loader(merged).get_row(5, ["speed_*", "n"])
    assert (row["speed_x"], row["speed_y"], row["n"]) == (rows[5]["speed"], -rows[5]["speed"], 1)
    named = tt.merge(
        *(tt.read_index(f"{root}/{name}") for name in ("sensors", "other")), on=ON, suffixes=("", "_other")
    )
    row = tt.row_loader(named).get_row(5, ["speed", "speed_other"])
    assert (row["speed"], row["speed_other"]) == (rows[5]["speed"], -rows[5]["speed"])


def test_suffixes_nest_with_the_merges(tables):
    root, rows = tables
    for number in range(3):
        tt.write_table(f"{root}/t{number}", [{**{k: row[k] for k in ON}, "v": number} for row in rows])
    t0, t1, t2 = (tt.read_index(f"{root}/t{number}") for number in range(3))
    nested = tt.merge(t0, tt.merge(t1, t2, on=ON, suffixes=("_p", "_q")), on=ON)
    row = tt.row_loader(nested).get_row(3)
    assert {k: int(v) for k, v in row.items() if k.startswith("v")} == {"v": 0, "v_p": 1, "v_q": 2}
    again = tt.merge(tt.merge(t0, t1, on=ON, suffixes=("_a", "_b")), t2, on=ON)
    row = tt.row_loader(again).get_row(3)
    assert {k: int(v) for k, v in row.items() if k.startswith("v")} == {"v_a": 0, "v_b": 1, "v": 2}


def test_keys_other_than_log_and_time(tmp_path):
    tt.write_table(f"{tmp_path}/a", [{"frame": n, "x": n * 2} for n in range(6)], index="frame")
    tt.write_table(f"{tmp_path}/b", [{"frame": n, "y": n * 3} for n in range(5, -1, -1)], index="frame")
    merged = tt.merge(tt.read_index(f"{tmp_path}/a"), tt.read_index(f"{tmp_path}/b"), on="frame")
    loader = tt.row_loader(merged.iloc[[4]])
    assert loader.get_row(0) == {"frame": 4, "x": 8, "y": 12}
    rows = loader.get_rows(0, None, range(-2, 2))
    assert [(row["x"], row["y"]) for row in rows] == [(4, 6), (6, 9), (8, 12), (10, 15)]


def test_suffixes_that_leave_two_stored_columns_of_one_name_are_refused(tables):
    root, rows = tables
    keys = [{k: row[k] for k in ON} for row in rows]
    tt.write_table(f"{root}/two", [key | {"v": 1, "v_x": 2} for key in keys])
    tt.write_table(f"{root}/one", [key | {"v": 3} for key in keys])
    two, one = tt.read_index(f"{root}/two"), tt.read_index(f"{root}/one")
    with pytest.raises(
        UsageError, match="leave two columns called v_x among those of tables 1 to 1 and 2 to 2"
    ):
        tt.row_loader(tt.merge(two, one, on=ON))
    with pytest.raises(UsageError, match="leave two columns called v "):
        tt.row_loader(tt.merge(one, one, on=ON, suffixes=(None, None)))
    row = tt.row_loader(tt.merge(two, one, on=ON, suffixes=("_a", "_b"))).get_row(3)
    assert {k: int(v) for k, v in row.items() if k.startswith("v")} == {"v_a": 1, "v_x": 2, "v_b": 3}


@pytest.mark.parametrize("dtype", ["string", "str", object, "category"])
def test_text_keys_meet_whatever_pandas_holds_them_in(tables, dtype):
    root, rows = tables
    left, right = tt.read_index(f"{root}/sensors"), tt.read_index(f"{root}/labels")
    right = right.assign(log_id=right.log_id.astype(dtype))
    for sides in ((left, right), (right, left)):
        assert len(tt.merge(*sides, on=ON)) == len(rows[::2])


def test_keys_that_repeat_are_refused_with_their_place(tables):
    root, _ = tables
    left, right = (tt.read_index(f"{root}/{name}") for name in ("sensors", "labels"))
    twice = pd.concat([right, right.iloc[[3]]])
    words = (
        r"2 rows of the right frame share their key, first at position 3 and again at 12 \(log_id drive-0, "
        rf"timestamp \d+: row 3 of {root}/labels/index/drive-0\.parquet, row 3 of {root}/labels/index/drive-0"
    )
    with pytest.raises(UsageError, match=words):
        tt.merge(left, twice, on=ON)
    with pytest.raises(
        UsageError, match=r"rows of the left frame share their key, first at position 0.*drive-0"
    ):
        tt.merge(left, right, on="log_id")


def test_keys_of_different_type_are_refused(tables):
    root, _ = tables
    left, right = (tt.read_index(f"{root}/{name}") for name in ("sensors", "labels"))
    words = r"key 'timestamp' is integer on the left \(.*/sensors\), text on the right \(.*/labels\)"
    with pytest.raises(UsageError, match=words):
        tt.merge(left, right.assign(timestamp=right.timestamp.astype(str)), on=ON)
    words = r"the right frame \(of .*/labels\) has no column 'frame'; it has log_id, timestamp, labels.count"
    with pytest.raises(UsageError, match=words):
        tt.merge(left.assign(frame=range(len(left))), right, on="frame")


def test_a_lost_service_column_names_its_table(tables):
    root, _ = tables
    frame = tt.read_index(f"{root}/labels")
    with pytest.raises(UsageError, match=r"the frame of .*/labels lost its service column __0\.row"):
        tt.row_loader(frame.drop(columns="__0.row"))
    with pytest.raises(UsageError, match=r"2 columns called __0\.log"):
        tt.row_loader(pd.concat([frame, frame], axis=1))


def test_frames_without_service_columns_are_refused(tables):
    root, _ = tables
    left, right = (tt.read_index(f"{root}/{name}") for name in ("sensors", "labels"))
    with pytest.raises(UsageError, match=r"the right frame lost its service column __0\.log"):
        tt.merge(left, right[["log_id", "timestamp"]], on=ON)
    with pytest.raises(UsageError, match="the left side is no frame of read_index but dict"):
        tt.merge({"log_id": []}, right, on=ON)
    with pytest.raises(UsageError, match=r"holds __0\.log_x instead of __0\.log: join tables by tt\.merge"):
        tt.row_loader(left.merge(right, on=ON))
    with pytest.raises(UsageError, match=r"a loader reads rows of a frame, .*; this is '/tables/sensors'"):
        tt.row_loader("/tables/sensors")
    lacking = tt.row_loader(left.reindex(range(len(left) + 2)))
    assert lacking.get_row(1)["speed"] == left.speed.iloc[1]
    for read in (lacking.get_row, lambda p: lacking.get_many([p]), lambda p: lacking.get_rows(p, None, [0])):
        with pytest.raises(UsageError, match=r"of .*/sensors\) points into no table, .* outer join"):
            read(len(left))
    with pytest.raises(UsageError, match="no service columns"):
        tt.row_loader(left[["log_id", "speed"]])
    with pytest.raises(UsageError, match=r"lost its service column __0\.lidar\.points\.offset"):
        tt.row_loader(left.drop(columns="__0.lidar.points.offset"))
    with pytest.raises(UsageError, match=r"lost its service column __1\.merge"):
        tt.row_loader(tt.merge(left, right, on=ON).drop(columns="__1.merge"))


def test_suffixes_that_leave_two_columns_of_one_name_are_refused(tables):
    root, _ = tables
    index = tt.read_index(f"{root}/sensors")
    words = r"leave two columns called pedestrians_count, speed \(of .*/sensors and .*/sensors\)"
    for suffixes in (("", ""), (None, None)):
        with pytest.raises(UsageError, match=words):
            tt.merge(index, index, on=ON, suffixes=suffixes)


def test_a_suffix_of_none_leaves_names_as_they_are_as_in_pandas(tables):
    root, rows = tables
    index = tt.read_index(f"{root}/sensors")
    merged = tt.merge(index, index, on=ON, suffixes=(None, "_again"))
    assert {"speed", "speed_again"} <= set(merged.columns)
    row = tt.row_loader(merged).get_row(5, ["speed", "speed_again"])
    assert row["speed"] == row["speed_again"] == rows[5]["speed"]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"on": []}, r"on is empty; name index columns"),
        ({"on": ON, "suffixes": "_x"}, "suffixes='_x'; give two"),
        ({"on": ON, "suffixes": None}, "suffixes=None; give two"),
        ({"on": ON, "suffixes": ("_x",)}, r"suffixes=\('_x',\); give two"),
    ],
)
def test_merges_that_make_no_sense_are_refused(tables, choices, words):
    index = tt.read_index(f"{tables[0]}/sensors")
    with pytest.raises(UsageError, match=words):
        tt.merge(index, index, **choices)


def test_missing_keys_that_repeat_are_refused(tables):
    index = tt.read_index(f"{tables[0]}/sensors")
    lacking = index.assign(speed=index.speed.where(index.speed > 0.5))
    with pytest.raises(UsageError, match="rows of the left frame share their key, first at position"):
        tt.merge(lacking, index, on="speed")


def test_a_table_merged_with_itself_and_with_nothing(tables):
    root, rows = tables
    index = tt.read_index(f"{root}/sensors")
    row = tt.row_loader(tt.merge(index, index, on=ON)).get_row(7, ["lidar.points_x", "lidar.points_y"])
    np.testing.assert_array_equal(row["lidar.points_x"], rows[7]["lidar.points"])
    np.testing.assert_array_equal(row["lidar.points_y"], rows[7]["lidar.points"])
    empty = tt.merge(index, index.iloc[:0], on=ON)
    assert len(tt.row_loader(empty)) == 0


def test_a_large_merge_keeps_order_and_stays_small(tmp_path):
    rows = pd.DataFrame({"log_id": "a", "timestamp": np.arange(50_000), "x": np.arange(50_000)})
    tt.write_table(f"{tmp_path}/t", rows)
    index = tt.read_index(f"{tmp_path}/t")
    shuffled = index.sample(frac=1, random_state=0)
    merged = tt.merge(shuffled, index, on=ON)
    assert merged.timestamp.tolist() == shuffled.timestamp.tolist()
    per_row = merged.memory_usage(index=False, deep=True).sum() / len(merged)
    assert per_row < 2 * 20 + 2 * 20
