"""What a dataset gives beside rows: filters, other libraries' tables, datasets end to end, good errors."""

import re
import shutil
import sys

import numpy as np
import polars
import pyarrow as pa
import pytest

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets import concat
from logloom.errors import UsageError
from logloom.schema import ColumnType, Schema

OBJECT = np.dtype([("label", "<U8"), ("at", "<f4", (2,)), ("id", "<i2")])
TYPES = Schema(
    {
        "pose": ColumnType(np.dtype("f4"), (2, 3), unit="m"),
        "speed": ColumnType(np.dtype("f8"), unit="m s-1"),
        "points": ColumnType(np.dtype("i2"), (None, 2)),
        "patches": ColumnType(np.dtype("u1"), (None, None)),
        "objects": ColumnType(OBJECT, (None,)),
        "best": ColumnType(OBJECT),
        "half": ColumnType(np.dtype("f2")),
        "wave": ColumnType(np.dtype("c8")),
        "image": ColumnType(np.dtype("u1"), (None,), "bytes"),
        "name": ColumnType(np.dtype("u1"), (None,), "string"),
        "none": ColumnType(np.dtype("f4"), (0,)),
    }
)


def made(number, log_id="a"):
    objects = np.zeros(number % 3, OBJECT)
    objects["label"], objects["id"] = "car", np.arange(len(objects))
    return {
        "log_id": log_id,
        "timestamp": 10**18 + number * 10**8,
        "pose": np.arange(6, dtype="f4").reshape(2, 3) + number,
        "speed": number / 2,
        "points": np.full((number % 4, 2), number, "i2"),
        "patches": np.arange(number % 2 * 6, dtype="u1").reshape(number % 2 * 2, 3),
        "objects": objects,
        "best": np.array(("bike", (1, number), number), OBJECT)[()],
        "half": np.float16(number),
        "wave": np.complex64(number - 1j),
        "image": bytes([number]) * 3,
        "name": f"n{number}",
        "none": np.empty(0, "f4"),
    }


def write(folder, numbers, types=TYPES, log_id="a", change=lambda row: row):
    tt.write_table(str(folder), [change(made(number, log_id)) for number in numbers], types=types)
    return logloom.datasets.open(folder)


@pytest.fixture
def rows(tmp_path):
    return write(tmp_path / "table", range(10))


def plain(value):
    """A value as Arrow gives it back."""
    if isinstance(value, np.void):
        return {name: plain(value[name]) for name in value.dtype.names}
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, np.complexfloating):
        return {"real": value.real, "imag": value.imag}
    return value.item() if isinstance(value, np.generic) else value


def test_an_arrow_table_holds_what_rows_hold_whatever_their_types(rows):
    table = rows.to_arrow()
    assert table.to_pylist() == [{name: plain(value) for name, value in row.items()} for row in rows]
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["timestamp"] == "int64"
    assert kinds["pose"] == "fixed_size_list<item: fixed_size_list<item: float>[3]>[2]"
    assert kinds["points"] == "list<item: fixed_size_list<item: int16>[2]>"
    assert kinds["patches"] == "list<item: list<item: uint8>>"
    assert kinds["image"] == "binary"
    assert kinds["best"].startswith("struct<label: string, at: fixed_size_list<item: float>[2], id: int16>")
    assert rows.take(0).to_arrow().schema == table.schema
    assert rows.to_arrow(["name", "sp*"]).column_names == ["log_id", "timestamp", "speed", "name"]


def test_batches_have_one_schema_and_as_many_rows_as_asked_for(rows):
    batches = list(rows.shuffle(1).to_batches(rows=4))
    assert [batch.num_rows for batch in batches] == [4, 4, 2]
    assert pa.Table.from_batches(batches).to_pylist() == rows.shuffle(1).to_arrow().to_pylist()
    assert next(iter(rows.to_batches("speed"))).schema.names == ["log_id", "timestamp", "speed"]
    with pytest.raises(UsageError, match="a batch has at least one"):
        rows.to_batches(rows=0)


def test_batches_of_large_rows_stay_small(tmp_path):
    tt.write_table(
        str(tmp_path / "t"), [{"log_id": "a", "timestamp": n, "x": bytes(4 << 20)} for n in range(40)]
    )
    sizes = [batch.num_rows for batch in logloom.datasets.open(tmp_path / "t").to_batches()]
    assert sum(sizes) == 40
    assert max(sizes[1:]) <= 16


def test_padded_windows_become_lists_of_fixed_size(rows):
    windows = rows.window([-1, 0], on_edge="pad")
    table = windows.select(["speed", "points", "name"]).to_arrow()
    assert str(table.schema.field("points").type) == (
        "fixed_size_list<item: list<item: fixed_size_list<item: int16>[2]>>[2]"
    )
    first = table.to_pylist()[0]
    assert first["mask"] == [False, True]
    assert first["name"] == ["", "n0"]
    assert first["log_id"] == "a"
    assert table.to_pylist()[3]["points"] == [[[2, 2]] * 2, [[3, 3]] * 3]
    frame = windows.to_pandas(["points", "speed"])
    assert [part.shape for part in frame["points"][3]] == [(2, 2), (3, 2)]
    assert frame["speed"][3].tolist() == [1.0, 1.5]


def test_a_frame_of_pandas_has_columns_of_numbers_and_the_arrays_of_rows(rows):
    frame = rows.to_pandas()
    assert list(frame.columns) == list(rows[0])
    assert frame["speed"].tolist() == [row["speed"] for row in rows]
    assert (frame["timestamp"].dtype, frame["speed"].dtype, frame["half"].dtype) == ("int64", "f8", "f2")
    for number, row in enumerate(rows):
        np.testing.assert_array_equal(frame["pose"][number], row["pose"])
        np.testing.assert_array_equal(frame["patches"][number], row["patches"])
        assert frame["best"][number] == row["best"]
        assert frame["image"][number] == row["image"]
    assert list(rows.take(0).to_pandas().columns) == list(frame.columns)


def test_a_frame_of_polars_has_the_types_of_arrow(rows):
    frame = rows.to_polars()
    assert frame.height == 10
    assert frame.schema["pose"] == polars.Array(polars.Float32, (2, 3))
    assert frame.schema["image"] == polars.Binary
    assert frame["objects"].to_list() == [plain(row["objects"]) for row in rows]
    assert frame["pose"][3].to_list() == plain(rows[3]["pose"])


def test_without_polars_the_error_says_what_to_install(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UsageError, match="pip install polars"):
        rows.to_polars()


def test_what_functions_make_becomes_columns_and_what_arrow_cannot_hold_is_named(rows):
    table = rows.map(lambda row: {"n": int(row["speed"]), "mean": row["pose"].mean(axis=0), "t": [1]})
    assert table.to_arrow().to_pylist()[2] == {"n": 1, "mean": [3.5, 4.5, 5.5], "t": [1]}
    assert table.to_pandas()["n"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    with pytest.raises(UsageError, match="can't store the values of odd"):
        rows.map(lambda row: {"odd": object()}).to_arrow()
    with pytest.raises(UsageError, match="a function given to map made a float64"):
        rows.map(lambda row: row["speed"]).to_arrow()
    changing = rows.map(lambda row: {"x": 1 if row["speed"] < 2 else "text"})
    with pytest.raises(UsageError, match="from row 4 on there are other types"):
        list(changing.to_batches(rows=4))


def test_a_filter_is_text_a_function_of_rows_or_one_of_batches(rows):
    expected = rows.filter("speed > 2 and name != 'n7'").positions.tolist()
    assert expected == [5, 6, 8, 9]
    by_row = rows.filter(lambda row: row["speed"] > 2 and row["name"] != "n7", columns=["speed", "name"])
    assert by_row.positions.tolist() == expected
    assert list(by_row[0]) == list(rows[0])  # the columns are the function's alone
    batched = rows.filter(lambda b: (b["speed"] > 2) & (np.array(b["name"]) != "n7"), batched=True)
    assert batched.positions.tolist() == expected
    view = rows.shuffle(2).map(lambda row: {"s": row["speed"]}).filter(lambda sample: sample["s"] > 2)
    assert sorted(sample["s"] for sample in view) == [2.5, 3.0, 3.5, 4.0, 4.5]
    windows = rows.window([-1, 0]).filter("speed > 2")
    assert windows[0]["speed"].tolist() == [2.0, 2.5]
    assert len(rows.filter("speed > 99").filter(lambda row: True)) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sped > 2",), "no column 'sped'; did you mean speed"), ((5,), "text or a function, got a int"),
        ((lambda row: 1,), "gave 1 for row 0, not True or False"), (("speed > 2", "speed"), "text names"),
        ((lambda row: True, "sped"), "no column matches 'sped'; did you mean speed"),
    ],
)  # fmt: skip
def test_a_wrong_filter_says_what_is_wrong(rows, arguments, message):
    with pytest.raises(UsageError, match=message):
        rows.filter(*arguments)


def test_a_function_of_batches_gives_a_truth_value_for_each_row(rows):
    with pytest.raises(UsageError, match=r"gave float64\[10\] for rows 0 to 9, not \(10,\) bool"):
        rows.filter(lambda batch: batch["speed"], batched=True)


def test_head_gives_the_first_rows(rows):
    assert rows.head(3).positions.tolist() == [0, 1, 2]
    assert len(rows.head()) == 5


def test_datasets_end_to_end_keep_their_views_and_no_window_goes_from_one_to_the_other(rows, tmp_path):
    other = write(
        tmp_path / "other", range(10, 16)
    )  # goes on where the first ends, in a log of the same name
    both = concat([rows.take([3, 1]), other.filter("speed > 6")])
    assert [row["name"] for row in both] == ["n3", "n1", "n13", "n14", "n15"]
    assert both.get_many([4, 0])["name"] == ["n15", "n3"]
    whole = concat([rows, other])
    assert len(whole.window([-1, 0, 1])) == 8 + 4
    assert whole.index["row"].tolist() == [*range(10), *range(6)]
    assert whole.to_arrow().num_rows == 16
    assert concat([whole, rows]).window([-1, 0])[-1]["name"] == ["n8", "n9"]


def test_datasets_whose_lengths_are_fixed_in_one_alone_have_ragged_ones(rows, tmp_path):
    fixed = Schema({**TYPES.columns, "points": ColumnType(np.dtype("i2"), (2, 2))})
    other = write(
        tmp_path / "fixed", range(3), fixed, change=lambda row: row | {"points": np.ones((2, 2), "i2")}
    )
    both = concat([rows, other])
    assert str(both.schema.columns["points"]) == "int16[?, 2]"
    values, lengths = both.get_many([3, 10])["points"]
    assert lengths.tolist() == [3, 2]
    assert values.tolist() == [[3, 3]] * 3 + [[1, 1]] * 2


def test_datasets_that_differ_say_where(rows, tmp_path):
    columns = {
        **TYPES.columns,
        "speed": ColumnType(np.dtype("f4"), unit="m s-1"),
        "extra": ColumnType(np.dtype("?")),
    }
    columns["pose"] = ColumnType(np.dtype("f4"), (2, 3), unit="km")
    del columns["name"]
    other = write(tmp_path / "o", range(2), Schema(columns), change=lambda row: row | {"extra": True})
    message = (
        r"dataset 1 \(.*o\) has other columns than dataset 0 \(.*table\): it also has extra; it lacks name; "
        r"its pose is float32\[2, 3\] in km instead of float32\[2, 3\] in m; its speed is float32 in m s-1 "
        r"instead of float64 in m s-1\. Choose by select"
    )
    with pytest.raises(UsageError, match=message):
        concat([rows, other])
    alike = ["points", "image"]
    assert len(concat([rows.select(alike), other.select(alike)])) == 12
    for wrong, told in (
        ([], "no datasets"), ([rows, [1]], "item 1 is a list"), ([rows, rows.window([0])], "has windows or"),
        ([rows.map(dict)], "or was mapped"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=told):
            concat(wrong)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("speed", r"rows\[0\]\['speed'\]; rows.select\('speed'\) has that column"),
        ("sped", "no column 'sped'; did you mean speed"), ("log_id", "rows.index has that column"),
        (["speed"], r"select\(\[…\]\)"), (None, "by number"),
        (1.5, "rows are reached by number, from 0 to 9, by a slice, list or mask"),
    ],
)  # fmt: skip
def test_a_wrong_key_says_what_to_call_instead(rows, key, message):
    with pytest.raises(TypeError, match=message):
        rows[key]
    with pytest.raises(UsageError, match=message):
        rows[key]


@pytest.mark.parametrize("how", ["select", "get_many", "to_arrow", "to_pandas", "open"])
def test_a_wrong_column_names_the_nearest(rows, tmp_path, how):
    calls = {
        "get_many": lambda: rows.get_many([0], "pose.x"),
        "open": lambda: logloom.datasets.open(tmp_path / "table", columns="pose.x"),
    }
    with pytest.raises(UsageError, match=r"no column matches 'pose.x'; did you mean pose"):
        calls.get(how, lambda: getattr(rows, how)("pose.x"))()


def test_many_columns_are_not_all_listed_in_an_error(tmp_path):
    row = {"log_id": "a", "timestamp": 1} | {f"c{n}": n for n in range(60)}
    tt.write_table(str(tmp_path / "t"), [row])
    with pytest.raises(UsageError, match=r"and 40 more$"):
        logloom.datasets.open(tmp_path / "t", columns="nothing")


def test_the_text_of_a_dataset_fits_a_screen(tmp_path, rows):
    assert re.sub(r"^<Dataset .*table\n", "", repr(rows)).startswith(
        "  10 rows of 1 log: a\n  11 columns:\n    pose     float32[2, 3]  m\n"
    )
    place = tmp_path / ("deep/" * 20) / "table"
    many = [
        {"log_id": f"a-rather-long-name-of-a-log-{log}", "timestamp": 1}
        | {f"{'long_' * 15}{n}.x": 1.0 for n in range(57)}
        for log in range(9)
    ]
    place.parent.mkdir(parents=True)
    tt.write_table(str(place), many)
    for view in (logloom.datasets.open(place), logloom.datasets.open(place).map(dict).window([0, 1])):
        lines = repr(view).splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80
        assert "… and 42 more" in lines[-1]
    assert "9 rows of 9 logs: a-rather" in repr(logloom.datasets.open(place))
    assert "…  float64" in repr(logloom.datasets.open(place))
    assert "0 rows of 0 logs\n" in repr(rows.take(0))
    shutil.rmtree(tmp_path / "deep")
