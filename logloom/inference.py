"""Inference of column types from rows.

Here: kinds of Python values, and the common shape and type of rows, or of parts of a dataset.
Elsewhere: types themselves (logloom.schema), types of messages (logloom.io.logs.messages).

Axes are ragged up to the last one whose length differs:

    rows (2, 3, 4), (2, 3, 4)   column (2, 3, 4)
    rows (2, 3, 4), (5, 3, 4)   column (None, 3, 4)
    rows (2, 3, 4), (2, 5, 4)   column (None, None, 4)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from logloom.blocks import Array
from logloom.schema import ColumnType

Kind = Literal["array", "bytes", "string", "lists"]


def kind_of(kind: type) -> Kind:
    """Return the kind of column for values of a Python type."""
    if issubclass(kind, str):
        return "string"
    return "bytes" if issubclass(kind, bytes | bytearray | memoryview) else "array"


def common_shape(shapes: Iterable[tuple[int | None, ...]]) -> tuple[int | None, ...] | None:
    """Return the shape of a column whose rows have these shapes, at least one; None if ranks differ.

    >>> common_shape([(2, 3, 4), (5, 3, 4)])
    (None, 3, 4)
    >>> common_shape([(2, 0), (1, 0)])  # lists of empty lists: 0 is no length that all lists have
    (None, None)
    """
    distinct = list(dict.fromkeys(shapes))
    if len({len(shape) for shape in distinct}) > 1:
        return None
    lengths = map(set, zip(*distinct, strict=True))
    ragged = max(
        (axis for axis, found in enumerate(lengths, 1) if len(found) > 1 or None in found), default=0
    )
    if ragged:
        ragged = max([ragged, *(axis for axis, length in enumerate(distinct[0], 1) if length == 0)])
    return (None,) * ragged + distinct[0][ragged:]


def type_of(one: Array, other: Array) -> ColumnType | None:
    """Return the type of a column from two of its values; None if there is none."""
    return wider(*(ColumnType(value.dtype, value.shape) for value in (one, other)))


def wider(one: ColumnType, other: ColumnType | None) -> ColumnType | None:
    """Return a type for values of both; None if there is none."""
    if other is None or one == other:
        return other
    if (one.kind, one.dtype) != ("array", other.dtype) or other.kind != "array":
        return None
    shape = common_shape([one.shape, other.shape])
    return None if shape is None else ColumnType(one.dtype, shape)
