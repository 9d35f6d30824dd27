"""Types learnt from values: whatever rows there are, they come back as they were."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Ragged
from logloom.io.rows.inference.types import (
    RawColumn,
    SeenColumn,
    UnfitValuesError,
    column_name,
    stacked,
)
from logloom.schema import check_column_name

DTYPES = st.sampled_from(["<f4", ">i2", "?", "<u8", "<c8", "<U3"])


@st.composite
def rows(draw):
    dtype = np.dtype(draw(DTYPES))
    rank = draw(st.integers(0, 3))
    shapes = draw(st.lists(st.tuples(*[st.integers(0, 3)] * rank), min_size=1, max_size=6))
    return [np.asarray(draw(hnp.arrays(dtype, shape))) for shape in shapes]


@given(rows(), st.integers(0, 6), st.booleans())
def test_rows_come_back_as_they_were_however_they_were_cut(rows, cut, is_sequence):
    is_sequence = is_sequence and rows[0].ndim > 0
    parts = [part for part in (rows[:cut], rows[cut:]) if part]
    seen = SeenColumn()
    for part in parts:
        seen = seen.and_(SeenColumn.of(RawColumn(part, is_sequence=is_sequence)))
    ctype = seen.ctype
    shapes = {row.shape for row in rows}
    assert (ctype.num_ragged > 0) == (len(shapes) > 1 or is_sequence)
    found = [row for part in parts for row in stacked(RawColumn(part), ctype)]
    for before, after in zip(rows, found, strict=True):
        assert after.shape == before.shape
        np.testing.assert_array_equal(after, before)


@given(st.text(max_size=30))
def test_any_name_becomes_the_name_of_a_column(name):
    assert check_column_name(column_name(name))
    assert column_name(column_name(name)) == column_name(name)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("Left Camera.JPG", "left_camera.jpg"),
        ("0.x", "_0.x"),
        ("meta", "meta_"),
        ("a.age", "a.age_"),
        ("", "_"),
    ],
)
def test_names_keep_what_they_can(name, column):
    assert column_name(name) == column


def test_times_become_nanoseconds_and_those_out_of_range_are_refused():
    days = np.array(["2024-01-01", "1960-05-05"], "M8[D]")
    ctype = SeenColumn.of(RawColumn(days)).ctype
    assert (ctype.dtype, ctype.unit) == (np.dtype("<i8"), "ns")
    assert stacked(RawColumn(days), ctype).tolist() == [1704067200 * 10**9, -304819200 * 10**9]
    with pytest.raises(UnfitValuesError, match="int64 ns"):
        stacked(RawColumn(np.array(["9999-01-01"], "M8[D]")), ctype)


def test_text_is_as_wide_as_the_widest_and_none_is_an_empty_row():
    column = RawColumn([np.array(["a"]), None, np.array(["bcd", "e"])], is_sequence=True)
    ctype = SeenColumn.of(column).ctype
    values = stacked(column, ctype)
    assert isinstance(values, Ragged)
    assert [row.tolist() for row in values] == [["a"], [], ["bcd", "e"]]
    assert ctype.dtype == np.dtype("<U3")


def test_structured_values_with_gaps_are_packed():
    dtype = np.dtype([("a", "i1"), ("b", "<f8")], align=True)
    values = np.array([(1, 2.5)], dtype)
    ctype = SeenColumn.of(RawColumn(values)).ctype
    assert ctype.dtype.itemsize == 9
    assert stacked(RawColumn(values), ctype).tolist() == [(1, 2.5)]


@pytest.mark.parametrize(
    "values",
    [
        [b"x", "x"],
        [np.zeros(1), b"x"],
        [np.zeros(1), np.zeros(1, "i4")],
        [np.zeros(1), np.zeros((1, 1))],
        [np.array([{}], object)],
        [None],
    ],
)
def test_rows_that_make_no_column_are_refused(values):
    with pytest.raises(UnfitValuesError):
        _ = SeenColumn.of(RawColumn(values)).ctype
