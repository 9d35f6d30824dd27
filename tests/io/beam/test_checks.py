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
    ({"count": np.array([1, 2**40, 3])}, "column count: int64, the schema says int32"),
    ({"count": np.array([1, np.nan, 3])}, "column count: float64, the schema says int32"),
    ({"speed": np.array([1.0, 2, 3])}, "column speed: float64, the schema says float32"),
    ({"pose": np.zeros((3, 4, 3))}, r"column pose: float64\[4, 3\], the schema says float64\[3, 4\]"),
    (
        {"pose": np.array([0, 2**53 + 1, 0]).repeat(12).reshape(3, 3, 4)},
        "row 6: 9007199254740993 has no exact",
    ),
    ({"speed": np.zeros(2, "f4")}, "column speed: 2 rows, timestamp has 3"),
    ({"speed": [1.0, 2.0, 3.0]}, "column speed: a list, the schema says float32; give an array"),
    ({"speed": np.array([1, "a", 3], object)}, "column speed: Python objects, the schema says float32"),
    ({"scan": np.zeros((3, 2), "f4")}, r"column scan: float32\[2\], the schema says float32\[\?, 2\]"),
    ({"scan": Ragged(np.zeros((4, 3), "f4"), [1, 0, 3])}, r"column scan: float32\[\?, 3\], the schema"),
    ({"speed": Ragged(np.zeros(4, "f4"), [1, 0, 3])}, r"column speed: float32\[\?\], the schema says"),
    ({"point": WRONG_POINT}, "column point: struct, the schema says struct"),
    ({"timestamp": np.array([10, 30, 20])}, "row 7: timestamp 20 comes after 30"),
    ({"timestamp": np.array([1.0, 2, 3])}, "column timestamp: float64, the schema says int64"),
]


@pytest.mark.parametrize(("changes", "problem"), UNFIT)
def test_what_does_not_fit_is_reported_with_log_column_and_types(changes, problem):
    with pytest.raises(UsageError, match=f"block of log drive, partition p0.*{problem}"):
        checked(block(**changes), SCHEMA)


def test_lengths_that_do_not_add_up_are_refused():
    scan = Ragged(np.zeros((4, 2), "f4"), [1, 0, 3])
    scan.shapes[2] = -3
    with pytest.raises(UsageError, match="column scan, row 7: a length of -3"):
        checked(block(scan=scan), SCHEMA)


@pytest.mark.parametrize("log_id", ["", ".", "..", "a/../b", "/a", "a//b", "a/", "a\0b", 7])
def test_a_log_id_stays_inside_the_place(log_id):
    with pytest.raises(UsageError, match="a log_id is"):
        checked(replace(block(), log_id=log_id), SCHEMA)
