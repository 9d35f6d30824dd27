"""Rows of differing lengths, and blocks of rows: the same rows, whichever form they were made from."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from logloom import blocks
from logloom.blocks import Block, Lists, Ragged, concatenate, empty, take
from logloom.digests import ColumnDigest
from logloom.schema import BYTES, STRING, ColumnType, Schema

DTYPES = [np.dtype(d) for d in ("u1", "<i8", "<f4", "?", "<U3", [("x", "<f8"), ("n", "<i2", (2,))])]


def test_rows_of_a_block_are_as_users_see_them():
    schema = Schema({"name": STRING, "blob": BYTES, "pose": ColumnType("<f8", (2,))})
    columns = {
        "timestamp": np.array([10, 20]),
        "name": Ragged.from_bytes(["é".encode(), b""]),
        "blob": Ragged.from_bytes([b"\0\1", memoryview(b"")]),
        "pose": np.arange(4.0).reshape(2, 2),
    }
    block = Block("drive", "p", 0, columns)
    row = block.row(0, schema)
    assert (row["log_id"], row["timestamp"], row["name"], row["blob"]) == ("drive", 10, "é", b"\0\1")
    assert row["pose"].tolist() == [0.0, 1.0]
    assert block.row(1, schema, ["name"]).keys() == {"log_id", "timestamp", "name"}
    assert Block("drive", "p", 0, block.take(slice(1, 2))).row(0, schema)["blob"] == b""
    assert (len(block), block.nbytes) == (2, 16 + 2 + 2 + 32)


def test_rows_of_any_length_and_of_one_are_taken_and_concatenated():
    points = Ragged(np.arange(6), [1, 2, 3])  # all values, and the length of each row
    assert [row.tolist() for row in points] == [[0], [1, 2], [3, 4, 5]]
    assert [row.tolist() for row in take(points, np.array([2, 0]))] == [[3, 4, 5], [0]]
    nothing = empty(ColumnType("<i8", (None,)), num_rows=1)
    assert [row.tolist() for row in concatenate([points, nothing])][2:] == [[3, 4, 5], []]
    speeds = np.array([1.0, 2.0, 4.0])
    assert take(speeds, slice(None, 0, -1)).tolist() == [4, 2]
    assert concatenate([speeds, empty(ColumnType("<i8"), num_rows=2)]).tolist() == [1, 2, 4, 0, 0]


@st.composite
def ragged(draw, ctype=None):
    """A Ragged, joined or of rows, and its rows."""
    if ctype is None:
        shape = (*[None] * draw(st.integers(1, 2)), *draw(st.lists(st.integers(1, 3), max_size=2)))
        ctype = ColumnType(draw(st.sampled_from(DTYPES)), shape)
    longest = draw(st.sampled_from([3, 3, 3, 200]))  # long rows are gathered in another way
    rows = []
    for _ in range(draw(st.integers(0, 6))):
        leading = [draw(st.integers(0, longest if axis == 0 else 3)) for axis in range(ctype.num_ragged)]
        shape = (*leading, *ctype.tail)
        items = np.random.default_rng(len(rows)).integers(0, 2, (*shape, ctype.dtype.itemsize), np.uint8)
        rows.append(items.view(ctype.dtype).reshape(shape) if items.size else np.empty(shape, ctype.dtype))
    if draw(st.booleans()):
        return Ragged.from_rows(rows, ctype), rows, ctype
    flat = [row.reshape(-1, *ctype.tail) for row in rows]
    values = np.concatenate([np.empty((0, *ctype.tail), ctype.dtype), *flat])
    shapes = np.array([row.shape[: ctype.num_ragged] for row in rows], np.int64).reshape(-1, ctype.num_ragged)
    return Ragged(values, shapes), rows, ctype


def check(found: Ragged, rows, ctype) -> None:
    assert len(found) == len(rows)
    assert (found.dtype, found.tail) == (ctype.dtype, ctype.tail)
    assert found.shapes.tolist() == [list(row.shape[: ctype.num_ragged]) for row in rows]
    for row, expected in zip(found, rows, strict=True):
        assert (row.dtype, row.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(row, expected)
    assert found.nbytes == sum(row.nbytes for row in rows)
    joined = [row.reshape(-1, *ctype.tail) for row in rows]
    np.testing.assert_array_equal(
        found.values, np.concatenate([np.empty((0, *ctype.tail), ctype.dtype), *joined])
    )
    assert found.values.dtype == ctype.dtype
    assert found.offsets.tolist() == np.cumsum([0, *map(len, joined)]).tolist()


@given(ragged())
def test_rows_and_values_say_the_same_and_survive_pickling(made):
    found, rows, ctype = made
    check(pickle.loads(pickle.dumps(found)), rows, ctype)
    check(found, rows, ctype)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 2**63, -1, -3, -4, -(2**64)])
def test_slices_of_any_step_are_those_of_lists(step):
    rows = [np.arange(length, dtype="u1") for length in (2, 0, 3)]
    whole = Ragged.from_rows(rows, ColumnType(np.dtype("u1"), (None,)))
    joined = Ragged(np.concatenate(rows), [2, 0, 3])
    for found in (whole, joined, whole.take(slice(0, 0)), joined.take(slice(0, 0))):
        expected = list(found)[::step]
        assert [row.tolist() for row in found.take(slice(None, None, step))] == [e.tolist() for e in expected]


@given(ragged(), st.data())
def test_taken_rows_are_the_rows_in_the_order_asked_for(made, data):
    found, rows, ctype = made
    some = data.draw(st.slices(len(rows)))
    check(found.take(some), rows[some], ctype)
    if rows:
        positions = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=9))
        dtype = data.draw(st.sampled_from([np.int64, np.int32, np.intp]))
        check(found.take(np.array(positions, dtype)), [rows[p] for p in positions], ctype)
    wanted = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    check(
        found.take(np.array(wanted, bool)), [r for r, want in zip(rows, wanted, strict=True) if want], ctype
    )
    with pytest.raises(IndexError):
        found.take(np.ones(len(rows) + 1, bool))
    np.testing.assert_equal(
        [row.tobytes() for row in take(found, np.arange(len(rows)))], [r.tobytes() for r in rows]
    )


@given(st.data())
def test_concatenated_parts_are_all_their_rows(data):
    first, rows, ctype = data.draw(ragged())
    parts, every = [first], list(rows)
    for _ in range(data.draw(st.integers(0, 3))):
        more, more_rows, _ = data.draw(ragged(ctype))
        parts.append(more)
        every += more_rows
    check(concatenate(parts), every, ctype)


def test_all_rows_in_order_are_not_copied_and_others_are_copies_or_views_of_rows():
    joined = Ragged(np.arange(6), [1, 2, 3])
    assert take(joined, np.arange(3)) is joined
    assert np.shares_memory(joined.take(slice(1, 3)).values, joined.values)
    assert not np.shares_memory(joined.take(np.array([2, 1])).values, joined.values)
    rows = [np.arange(3), np.arange(4)]
    assert Ragged.from_rows(rows, ColumnType("<i8", (None,))).take(np.array([1]))[0] is rows[1]


def test_a_position_that_is_not_there_is_an_error():
    joined = Ragged(np.arange(6), [1, 2, 3])
    for broken in (3, -4):
        with pytest.raises(IndexError):
            joined.take(np.array([0, broken]))
        with pytest.raises(IndexError):
            joined[broken]


def test_values_that_lengths_do_not_add_up_to_are_refused():
    with pytest.raises(ValueError, match="5 values for rows of 6"):
        Ragged(np.arange(5), [1, 2, 3])


def test_what_is_missing_is_nan_zero_false_or_empty():
    struct = np.dtype([("x", "<f4"), ("n", "<i4"), ("name", "<U2")])
    row = empty(ColumnType(struct, (2,)), 1)[0]
    assert np.isnan(row["x"]).all()
    assert row["n"].tolist() == [0, 0]
    assert row["name"].tolist() == ["", ""]
    assert empty(ColumnType("?"), 2).tolist() == [False, False]
    assert [value.shape for value in empty(ColumnType("<f8", (None, None, 3)), 2)] == [(0, 0, 3)] * 2


@st.composite
def lists_of_lists(draw):
    """Lists of lists, their rows, and their type."""
    ctype = ColumnType(
        draw(st.sampled_from(DTYPES)), (None, None, *draw(st.sampled_from([(), (2,)]))), "lists"
    )
    lengths = draw(st.lists(st.lists(st.sampled_from([0, 1, 3, 200]), max_size=3), max_size=5))
    rows = []
    for row in lengths:
        shapes = [(length, *ctype.tail) for length in row]
        rng = np.random.default_rng(len(rows))
        bits = [rng.integers(0, 2, (*shape, ctype.dtype.itemsize), np.uint8) for shape in shapes]
        rows.append(
            [one.reshape(-1).view(ctype.dtype).reshape(s) for one, s in zip(bits, shapes, strict=True)]
        )
    return Ragged.from_rows(rows, ctype), rows, ctype


def check_lists(found, rows, ctype):
    assert isinstance(found, Lists)
    assert blocks.has_form(found, ctype)
    assert (found.dtype, found.tail) == (ctype.dtype, ctype.tail)
    assert [[(one.dtype, one.shape, one.tobytes()) for one in row] for row in found] == [
        [(one.dtype, one.shape, one.tobytes()) for one in row] for row in rows
    ]
    assert found.nbytes == sum(one.nbytes + 8 for row in rows for one in row)
    assert found.lengths.tolist() == [sum(map(len, row)) for row in rows]
    assert [row.tolist() for row in found.inner] == [[len(one) for one in row] for row in rows]


@given(lists_of_lists(), st.data())
def test_lists_of_lists_are_taken_joined_and_pickled_like_other_rows(made, data):
    found, rows, ctype = made
    check_lists(pickle.loads(pickle.dumps(found)), rows, ctype)
    chosen = data.draw(st.lists(st.integers(0, max(0, len(rows) - 1)), max_size=6 if rows else 0))
    check_lists(take(found, np.array(chosen, np.int64)), [rows[row] for row in chosen], ctype)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool)
    check_lists(take(found, mask), [row for row, wanted in zip(rows, mask, strict=True) if wanted], ctype)
    cut = data.draw(st.slices(len(rows)))
    check_lists(take(found, cut), rows[cut], ctype)
    check_lists(concatenate([found, take(found, cut), empty(ctype, 2)]), [*rows, *rows[cut], [], []], ctype)
    check_lists(found.with_values(found.values.copy()), rows, ctype)


def test_lists_are_not_joined_with_other_rows():
    lists, ctype = Lists(np.arange(2), [1], [2]), ColumnType(np.dtype("<i8"), (None,))
    with pytest.raises(TypeError, match="make no column"):
        concatenate([lists, Ragged.from_rows([np.arange(2)], ctype)])


def test_lists_of_negative_length_are_refused():
    with pytest.raises(ValueError, match="negative"):
        Lists(np.arange(1), [2], [2, -1])
    with pytest.raises(ValueError, match="values"):
        Lists(np.arange(2), [1], [3])


def test_the_digest_of_lists_of_lists_is_of_both_lengths_and_then_of_values():
    rows = [[np.array([1.0, 2.0]), np.empty(0)], [], [np.array([3.0])]]
    ctype = ColumnType(np.dtype("f8"), (None, None), "lists")
    found = ColumnDigest("x", ctype)
    for part in (slice(0, 1), slice(1, 3)):
        found.update(Ragged.from_rows(rows[part], ctype))
    head = b'["x","<f8",[null,null],"lists"]'
    parts = np.array([2, 0, 1], "<i8"), np.array([2, 0, 1], "<i8"), np.array([1, 2, 3], "<f8")
    digests = b"".join(blake3(part.tobytes()).digest() for part in parts)
    assert found.hexdigest() == blake3(head + digests).hexdigest()
    other = ColumnDigest("x", ctype)
    other.update(Ragged.from_rows([[np.array([1.0, 2.0])], [np.empty(0)], [np.array([3.0])]], ctype))
    assert other.hexdigest() != found.hexdigest()
