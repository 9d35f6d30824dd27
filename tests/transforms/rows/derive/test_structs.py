import re

import numpy as np
import pytest

from logloom.blocks import Lists, Ragged
from logloom.recipe.columns import struct_dtype
from logloom.schema import ColumnType
from logloom.transforms.rows.derive.structs import structs_of

AGENT = np.dtype(
    [("id", "<u4"), ("name", "<U4"), ("at", [("x", "<f8"), ("y", "<f8")]), ("size", "<f4", (2,))]
)
LIST = ColumnType(AGENT, (None,))
ONE = {"id": 7, "name": "car", "at": {"x": 1.5, "y": 2}, "size": [4, 2]}
ROW = (7, "car", (1.5, 2.0), [4.0, 2.0])


def rows_of(found):
    return [[(*row[:3], list(row[3])) for row in part.tolist()] for part in found]


def array_of(*rows, dtype=AGENT):
    return np.array([(*row[:3], tuple(row[3])) for row in rows], dtype)


@pytest.mark.parametrize(
    "result",
    [
        [[ONE, ONE], [], [ONE]],
        [[ROW, ROW], [], [ROW]],
        [[ONE, array_of(ROW)[0]], (), [dict(reversed(ONE.items()))]],
        [array_of(ROW, ROW), array_of(), array_of(ROW)],
        [array_of(ROW, ROW), [], [ONE]],
        Ragged(array_of(ROW, ROW, ROW), [2, 0, 1]),
    ],
)
def test_lists_of_structs_may_be_dicts_tuples_and_arrays(result):
    found = structs_of(result, LIST)
    assert (found.dtype, found.lengths.tolist()) == (AGENT, [2, 0, 1])
    assert rows_of(found) == [[ROW, ROW], [], [ROW]]


@pytest.mark.parametrize(
    "result",
    [
        [[[ONE, ONE], []], [], [[ROW]]],
        [[array_of(ROW, ROW), array_of()], (), [[ONE]]],
        [array_of(ROW, ROW).reshape(1, 2)[[0]], [], array_of(ROW).reshape(1, 1)],
        Lists(array_of(ROW, ROW, ROW), [2, 0, 1], [2, 0, 1]),
    ],
    ids=["dicts", "arrays", "two axes", "column"],
)
def test_lists_of_lists_of_structs_may_be_the_same(result):
    found = structs_of(result, ColumnType(AGENT, (None, None), "lists"))
    shapes = [[len(one) for one in row] for row in found]
    assert shapes in ([[2, 0], [], [1]], [[2], [], [1]])
    assert shapes[0] == [len(one) for one in result[0]]
    assert rows_of(found.flat) == [[ROW, ROW], [], [ROW]]


def test_what_is_no_list_of_lists_of_structs_is_refused():
    lists = ColumnType(AGENT, (None, None), "lists")
    assert len(structs_of([], lists)) == 0
    for row, problem in (
        ([ONE], "expected a list of structs for each row, got dict"),
        ([[{**ONE, "yaw": 1}]], "a struct has an unknown field yaw"),
        ([[np.zeros(2, AGENT)]], "shapes"),
    ):
        with pytest.raises(ValueError, match=problem):
            structs_of([row], lists)


def test_fields_of_an_array_go_by_name_and_are_cast():
    other = np.dtype(
        [("size", "<i2", (2,)), ("at", [("y", "<f4"), ("x", "<f4")]), ("id", "f8"), ("name", "U9")]
    )
    given = np.array([((4, 2), (2.0, 1.5), 6.5, "car")], other)
    found = structs_of([given], LIST)
    assert rows_of(found) == [[(6, "car", (1.5, 2.0), [4, 2])]]  # half to even, as in any column
    assert found.values.dtype == AGENT


def test_a_row_may_be_one_struct_or_a_fixed_number():
    assert structs_of([ONE, ROW], ColumnType(AGENT)).shape == (2,)
    assert rows_of([structs_of(array_of(ROW, ROW), ColumnType(AGENT))]) == [[ROW, ROW]]
    with pytest.raises(ValueError, match=r"shapes \(2,\)"):
        structs_of(np.zeros((3, 2), AGENT), ColumnType(AGENT))
    pairs = structs_of([[ONE, ONE], array_of(ROW, ROW)], ColumnType(AGENT, (2,)))
    assert (pairs.shape, pairs["id"].tolist()) == ((2, 2), [[7, 7], [7, 7]])
    grids = structs_of([[[ONE, ONE]], np.empty((0, 2), AGENT)], ColumnType(AGENT, (None, 2)))
    assert (grids.lengths.tolist(), grids.values.shape) == ([1, 0], (1, 2))


def test_no_rows_and_empty_rows_have_the_columns_type():
    assert structs_of([], LIST).dtype == AGENT
    assert structs_of([[], []], LIST).lengths.tolist() == [0, 0]
    assert structs_of([], ColumnType(AGENT)).shape == (0,)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ([{**ONE, "yaw": 1}], "a struct has an unknown field yaw"),
        ([{"id": 1, "name": "", "size": [1, 2]}], "a struct has no field at"),
        ([{**ONE, "at": {"x": 1}}], "at has no field y"),
        ([{**ONE, "at": 3}], "at is int, not a struct of x, y"),
        ([{**ONE, "id": -1}], "id: -1 doesn't fit uint32"),
        ([{**ONE, "id": float("nan")}], "id: nan doesn't fit uint32"),
        ([{**ONE, "id": "7"}], "id is <U1 of shape (), not uint32 of ()"),
        ([{**ONE, "name": 7}], "name is int64 of shape (), not <U4 of ()"),
        ([{**ONE, "name": "lorry"}], "name: 'lorry' has 5 characters, the column keeps 4; raise `strings`"),
        ([{**ONE, "size": [1, 2, 3]}], "size is int64 of shape (3,), not float32 of (2,)"),
        ([ROW[:3]], "an element is tuple, not a struct of id, name, at, size"),
        ([3], "an element is int, not a struct"),
        (ONE, "expected a list of structs for each row, got dict"),
        (5, "expected a list of structs for each row, got int"),
        (np.zeros(2), "an element is float64, not a struct of id, name, at, size"),
        (np.zeros((2, 2), AGENT), "shapes (2, 2)"),
        (np.zeros(1, [("id", "u4")]), "a struct has no field at, name, size"),
    ],
)
def test_what_is_no_such_struct_is_refused(row, problem):
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        structs_of([row], LIST)


def test_the_recipes_fields_make_the_type():
    fields = {
        "id": "uint32",
        "name": "string",
        "at": {"x": "float64", "y": "float64"},
        "size": ["float32", 2],
    }
    assert struct_dtype(fields, strings=4) == AGENT
    assert struct_dtype({"m": ["int8", 3, 2], "p": [{"x": "bool"}, 2]}, 1) == np.dtype(
        [("m", "i1", (3, 2)), ("p", [("x", "?")], (2,))]
    )
