"""Merging: what is joined, what is refused, and how colliding names are shown."""

import numpy as np
import pandas as pd
import pytest

import logloom.io.formats.table as tt
from logloom.errors import UsageError
from tests.cases import case
from tests.io.formats.table.making import assert_rows_equal, drive, labels

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
        r"2 rows of the right frame share their key, first at position 3 and again at 12 \(log_id drive-1, "
        rf"timestamp \d+: row 3 of {root}/labels/index/drive-1\.parquet, row 3 of {root}/labels/index/drive-1"
    )
    with pytest.raises(UsageError, match=words):
        tt.merge(left, twice, on=ON)
    with pytest.raises(
        UsageError,
        match=r"rows of the right frame share their key, first at position 0.*drive-1.*swap the sides",
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
    with pytest.raises(UsageError, match=r"contains __0\.log_x instead of __0\.log: join tables by tt"):
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


NO_MERGES = [
    ({"on": []}, r"on is empty; name index columns"),
    ({}, "give on=, or else both left_on= and right_on="),
    ({"left_on": "speed"}, "give on=, or else both left_on= and right_on="),
    ({"on": ON, "left_on": ON, "right_on": ON}, "give on=, or else both"),
    ({"left_on": ON, "right_on": "timestamp"}, "left_on names 2 keys, right_on 1"),
    ({"on": ON, "how": "right"}, r"rows that the left frame lacks.*merge\(right, left, how='left'\)"),
    ({"on": ON, "how": "outer"}, "rows that the left frame lacks.*merge both ways"),
    ({"on": ON, "how": "cross"}, "how='cross' is unknown; there are inner and left"),
    ({"left_on": "speed", "right_on": "timestamp"}, "key 'speed' or 'timestamp' is float64 on the left"),
    ({"on": ON, "suffixes": ("", "_y"), "indicator": "speed"}, "a column speed already"),
    ({"on": ON, "suffixes": "_x"}, "suffixes='_x'; give two"),
    ({"on": ON, "suffixes": None}, "suffixes=None; give two"),
    ({"on": ON, "suffixes": ("_x",)}, r"suffixes=\('_x',\); give two"),
]


def test_merges_that_make_no_sense_are_refused(tables):
    index = tt.read_index(f"{tables[0]}/sensors")
    for choices, words in NO_MERGES:
        with case(choices), pytest.raises(UsageError, match=words):
            tt.merge(index, index, **choices)


def test_missing_keys_that_repeat_are_refused(tables):
    index = tt.read_index(f"{tables[0]}/sensors")
    lacking = index.assign(speed=index.speed.where(index.speed > 0.5))
    with pytest.raises(UsageError, match="rows of the right frame share their key, first at position"):
        tt.merge(index, lacking, on="speed")


def test_a_left_merge_keeps_rows_without_a_match_as_pandas_does(tables):
    root, rows = tables
    left, right = tt.read_index(f"{root}/sensors"), tt.read_index(f"{root}/labels")
    merged = tt.merge(left, right, on=ON, how="left", indicator=True)
    plain = [name for name in merged.columns if not name.startswith("__")]
    shown = [frame[[name for name in frame.columns if not name.startswith("__")]] for frame in (left, right)]
    wanted = shown[0].merge(shown[1], on=ON, how="left", indicator=True)
    pd.testing.assert_frame_equal(merged[plain], wanted, check_categorical=False, check_dtype=False)
    loader, found = tt.row_loader(merged, check=True), labels(rows)
    assert len(loader) == len(rows)
    batch = loader.get_many(range(len(rows)), ["labels.*", "speed"])
    values, lengths = batch["labels.boxes"]
    for position, row in enumerate(rows):
        has = position % 2 == 0
        own = found[position] if has else {"labels.boxes": np.zeros((0, 7), "f4"), "labels.count": 0}
        assert_rows_equal(loader.get_row(position), row | own)
        assert batch["labels.count"][position] == own["labels.count"]
        assert lengths[position] == len(own["labels.boxes"])
    assert len(values) == lengths.sum()
    assert loader.schema.select("labels.*") == ("labels.boxes", "labels.count")


def test_rows_of_a_left_merge_that_all_lack_a_match_have_its_columns_still(tables):
    root, _ = tables
    merged = tt.merge(*(tt.read_index(f"{root}/{name}") for name in ("sensors", "labels")), on=ON, how="left")
    alone = tt.row_loader(merged[merged["labels.count"].isna()])
    assert alone.get_row(0, "labels.count") | {"timestamp": 0} == {
        "log_id": "drive-0",
        "timestamp": 0,
        "labels.count": 0,
    }
    batch = alone.get_many([0, 3, -1], "labels.*")
    assert batch["labels.count"].tolist() == [0, 0, 0]
    assert batch["labels.boxes"][1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("kept", ["all", "matched", "unmatched", "shuffled"])
def test_windows_of_a_left_merge_are_those_of_the_left_table(tables, kept):
    root, rows = tables
    merged = tt.merge(*(tt.read_index(f"{root}/{name}") for name in ("sensors", "labels")), on=ON, how="left")
    chosen = {
        "all": merged,
        "matched": merged[merged["labels.count"].notna()],
        "unmatched": merged[merged["labels.count"].isna()],
        "shuffled": merged.sample(frac=1, random_state=1),
    }[kept]
    loader = tt.row_loader(chosen)
    number = {(row["log_id"], row["timestamp"]): n for n, row in enumerate(rows)}
    for position in range(len(chosen)):
        own = number[chosen.log_id.iloc[position], chosen.timestamp.iloc[position]]
        window, mask = loader.get_rows(position, ["speed", "labels.*"], range(-2, 2), on_edge="pad")
        for offset, found, exists in zip(range(-2, 2), window, mask, strict=True):
            there = 0 <= own % 12 + offset < 12
            assert exists == there
            if there:
                assert found["speed"] == rows[own + offset]["speed"]
                count = own + offset if (own + offset) % 2 == 0 else 0
                assert found["labels.count"] == count
                assert len(found["labels.boxes"]) == count % 4
    batch, mask = loader.get_window_many(range(len(chosen)), "labels.count", range(-1, 1), on_edge="pad")
    assert batch["labels.count"].shape == mask.shape == (len(chosen), 2)


def test_keys_of_other_names_meet_and_both_stay_as_in_pandas(tmp_path):
    rows = drive(num_logs=2, rows=6)
    tt.write_table(f"{tmp_path}/sensors", rows, index="speed")
    others = [
        {"drive": row["log_id"], "stamp": row["timestamp"], "n": number} for number, row in enumerate(rows)
    ]
    tt.write_table(f"{tmp_path}/others", others[::-1], index=["drive", "stamp"])
    left, right = tt.read_index(f"{tmp_path}/sensors"), tt.read_index(f"{tmp_path}/others")
    merged = tt.merge(left, right, left_on=ON, right_on=["drive", "stamp"])
    assert merged["stamp"].tolist() == merged["timestamp"].tolist()
    loader = tt.row_loader(merged)
    assert [int(row["n"]) for row in loader] == list(range(12))
    apart = tt.row_loader(merged.iloc[[9]])  # neighbours that the frame lacks are looked up by those keys
    assert [int(row["n"]) for row in apart.get_rows(0, "n", range(-2, 1))] == [7, 8, 9]


def test_a_table_with_one_row_a_log_is_joined_to_all_rows_of_the_log(tmp_path):
    rows = drive(num_logs=3, rows=8)
    tt.write_table(f"{tmp_path}/sensors", rows, index="speed")
    logs = [{"log_id": f"drive-{log}", "city": f"city {log}", "map": bytes(log + 1)} for log in (2, 0)]
    tt.write_table(f"{tmp_path}/logs", logs, index="city")
    left, right = tt.read_index(f"{tmp_path}/sensors"), tt.read_index(f"{tmp_path}/logs")
    merged = tt.merge(left, right, on="log_id")
    assert len(merged) == 16
    loader = tt.row_loader(merged)
    for row, wanted in zip(loader, [*rows[:8], *rows[16:]], strict=True):
        log = int(wanted["log_id"][-1])
        assert_rows_equal(row, wanted | {"city": f"city {log}", "map": bytes(log + 1)})
    batch, _ = tt.row_loader(merged.iloc[::3]).get_window_many([1, 2], ["city", "speed"], [-1, 0])
    assert batch["city"] == [["city 0", "city 0"], ["city 0", "city 0"]]
    kept = tt.row_loader(tt.merge(left, right, on="log_id", how="left").iloc[[0, 9, 20]])
    assert kept.get_many([0, 1, 2], "city")["city"] == ["city 0", "", "city 2"]
    for position, city in enumerate(["city 0", "", "city 2"]):
        assert kept.get_rows(position, "city", [0, 1])[1]["city"] == city


@pytest.mark.parametrize("outer", ["inner", "left"])
@pytest.mark.parametrize("inner", ["inner", "left"])
def test_windows_in_nested_merges_leave_out_what_the_merges_leave_out(tmp_path, outer, inner):
    rows = drive(num_logs=1, rows=12)
    keys = [{key: row[key] for key in ON} for row in rows]
    tt.write_table(f"{tmp_path}/a", [key | {"a": n + 1} for n, key in enumerate(keys)])
    tt.write_table(f"{tmp_path}/b", [key | {"b": n + 1} for n, key in enumerate(keys) if n % 2 == 0])
    tt.write_table(f"{tmp_path}/c", [key | {"c": n + 1} for n, key in enumerate(keys) if n % 3 == 0])
    a, b, c = (tt.read_index(f"{tmp_path}/{name}") for name in "abc")
    merged = tt.merge(a, tt.merge(b, c, on=ON, how=inner), on=ON, how=outer)

    def values(n):
        b, c = (n + 1) * (n % 2 == 0), (n + 1) * (n % 2 == 0 and n % 3 == 0)
        right = (b, c) if c or inner == "left" else (0, 0)
        return (n + 1, *right) if any(right) or outer == "left" else None

    wanted = {n: values(n) for n in range(12)}
    assert [tuple(int(row[k]) for k in "abc") for row in tt.row_loader(merged)] == [
        found for found in wanted.values() if found
    ]
    for position in range(len(merged)):
        loader = tt.row_loader(merged.iloc[[position]])
        own = int(loader.get_row(0)["a"]) - 1
        window, mask = loader.get_rows(0, None, range(-3, 4), on_edge="pad")
        for offset, row, exists in zip(range(-3, 4), window, mask, strict=True):
            expected = wanted.get(own + offset)
            assert exists == (expected is not None)
            assert tuple(int(row[k]) for k in "abc") == (expected or (0, 0, 0))


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
