"""Which blocks may be written, and what is reported of others."""

from dataclasses import replace

import numpy as np
import pytest

from logloom.blocks import Block, Ragged
from logloom.errors import UsageError
from logloom.io.beam.checks import checked
from logloom.schema import STRING, ColumnType, Schema

POINT = np.dtype([("x", "<f4"), ("n", "<i4")])
SCHEMA = Schema(
    {
        "speed": ColumnType("<f4"),
        "count": ColumnType("<i4"),
        "pose": ColumnType("<f8", (3, 4)),
        "scan": ColumnType("<f4", (None, 2)),
        "name": STRING,
        "point": ColumnType(POINT),
    }
)


def block(**changes):
    """Three rows, with other columns; None leaves one out."""
    columns = {
        "timestamp": np.array([10, 20, 30]),
        "speed": np.array([1, 2, 3], "f4"),
        "count": np.array([1, 2, 3], "i4"),
        "pose": np.zeros((3, 3, 4)),
        "scan": Ragged(np.zeros((4, 2), "f4"), [1, 0, 3]),
        "name": Ragged.from_bytes([b"a", b"", b"c"]),
        "point": np.zeros(3, POINT),
    }
    columns = {name: values for name, values in {**columns, **changes}.items() if values is not None}
    return Block("drive", "p0", 5, columns)


def test_numbers_are_cast_where_no_value_changes():
    found = checked(block(speed=np.array([1, -2, 3], "i2"), count=np.array([1, 2, 255], "u1")), SCHEMA)
    assert found.columns["speed"].dtype == np.float32
    assert found.columns["speed"].tolist() == [1, -2, 3]
    assert found.columns["count"].dtype == np.int32
    assert found.columns["count"].tolist() == [1, 2, 255]
    scan = Ragged(np.ones((4, 2), "f2"), [1, 0, 3])
    assert checked(block(scan=scan), SCHEMA).columns["scan"].dtype == np.float32
    doubles = checked(block(timestamp=np.array([10, 10, 30])), SCHEMA)  # may be equal rows
    assert doubles.timestamp.tolist() == [10, 10, 30]


WRONG_POINT = np.zeros(3, [("x", "<f4"), ("m", "<i4")])
UNFIT = [
    ({"speed": None}, "has no column speed"),
    ({"sped": np.zeros(3)}, "the schema has no column 'sped'; did you mean speed"),
    ({"log_id": np.zeros(3)}, "the schema has no column 'log_id'"),
    ({"count": np.array([1, 2**40, 3])}, "column count: int64, the schema has int32"),
    ({"count": np.array([1, np.nan, 3])}, "column count: float64, the schema has int32"),
    ({"speed": np.array([1.0, 2, 3])}, "column speed: float64, the schema has float32"),
    ({"pose": np.zeros((3, 4, 3))}, r"column pose: float64\[4, 3\], the schema has float64\[3, 4\]"),
    (
        {"pose": np.array([0, 2**53 + 1, 0]).repeat(12).reshape(3, 3, 4)},
        "row 6: 9007199254740993 has no exact",
    ),
    ({"speed": np.zeros(2, "f4")}, "column speed: 2 rows, timestamp has 3"),
    ({"speed": [1.0, 2.0, 3.0]}, "column speed: a list, the schema has float32; give an array"),
    ({"speed": np.array([1, "a", 3], object)}, "column speed: Python objects, the schema has float32"),
    ({"scan": np.zeros((3, 2), "f4")}, r"column scan: float32\[2\], the schema has float32\[\?, 2\]"),
    ({"scan": Ragged(np.zeros((4, 3), "f4"), [1, 0, 3])}, r"column scan: float32\[\?, 3\], the schema"),
    ({"speed": Ragged(np.zeros(4, "f4"), [1, 0, 3])}, r"column speed: float32\[\?\], the schema has"),
    ({"point": WRONG_POINT}, "column point: struct, the schema has struct"),
    ({"timestamp": np.array([10, 30, 20])}, "row 7: timestamp 20 comes after 30"),
    ({"timestamp": np.array([1.0, 2, 3])}, "column timestamp: float64, the schema has int64"),
    ({"timestamp": [10, 20, 30]}, "column timestamp: a list, must be an array"),
]


@pytest.mark.parametrize(("changes", "problem"), UNFIT)
def test_what_does_not_fit_is_reported_with_log_column_and_types(changes, problem):
    with pytest.raises(UsageError, match=f"block of log drive, partition p0.*{problem}"):
        checked(block(**changes), SCHEMA)


LISTS = ColumnType("<i4", (None,))


def rows_of(*arrays):
    """A ragged column of arrays that may have other types than it says."""
    return Ragged.from_rows([np.asarray(array) for array in arrays], LISTS)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (rows_of([1], [2**40], [3]), r"row 5: int64\[1\], the schema has int32\[\?\]"),
        (rows_of(np.ones(1, "i4"), [1.5], np.ones(2, "i2")), r"row 6: float64\[1\], the schema has"),
        (rows_of(*(np.ones((2, 2), "i4"),) * 3), r"row 5: int32\[2, 2\], the schema has int32"),
    ],
)
def test_rows_of_a_ragged_column_are_checked_one_by_one(values, problem):
    with pytest.raises(UsageError, match=rf"column lists, {problem}"):
        checked(block(lists=values), Schema({**SCHEMA.columns, "lists": LISTS}))


def test_rows_of_narrower_types_are_cast():
    values = rows_of(np.array([1, 2], "i2"), np.array([], "i4"), np.array([3], "u1"))
    found = checked(block(lists=values), Schema({**SCHEMA.columns, "lists": LISTS})).columns["lists"]
    assert [row.tolist() for row in found] == [[1, 2], [], [3]]
    assert {row.dtype for row in found} == {np.dtype("i4")}


@pytest.mark.parametrize("texts", [[b"a", b"\xff", b""], [b"a", b"", "\u00e4".encode()[:1]]])
def test_text_that_is_none_is_refused(texts):
    with pytest.raises(UsageError, match=r"column name, row [67]: no text in UTF-8"):
        checked(block(name=Ragged.from_bytes(texts)), SCHEMA)
    split = ["\u00e4".encode()[:1], "\u00e4".encode()[1:], b""]  # valid where rows are joined
    with pytest.raises(UsageError, match="column name, row 5: no text in UTF-8"):
        checked(block(name=Ragged.from_bytes(split)), SCHEMA)


def test_a_block_without_rows_fits():
    columns = {**block().take(slice(0, 0)), "pose": np.zeros((0, 3, 4), "i8")}
    found = checked(replace(block(), columns=columns), SCHEMA)
    assert len(found) == 0
    assert found.columns["pose"].dtype == np.float64


@pytest.mark.parametrize("given", [{"log_id": "a"}, None])
def test_what_is_no_block_is_refused(given):
    with pytest.raises(UsageError, match="write blocks, which GroupRows makes of rows"):
        checked(given, SCHEMA)


def test_lengths_that_do_not_add_up_are_refused():
    scan = Ragged(np.zeros((4, 2), "f4"), [1, 0, 3])
    scan.shapes[2] = -3
    with pytest.raises(UsageError, match="column scan, row 7: a length of -3"):
        checked(block(scan=scan), SCHEMA)


@pytest.mark.parametrize("log_id", ["", ".", "..", "a/../b", "/a", "a//b", "a/", "a\0b", "a\nb", "a\\b", 7])
def test_a_log_id_stays_inside_the_place(log_id):
    with pytest.raises(UsageError, match="a log_id is"):
        checked(replace(block(), log_id=log_id), SCHEMA)
