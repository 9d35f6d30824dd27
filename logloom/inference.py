"""Types from values: what a column is, told by its rows.

Here: kinds of Python values, and the shape and the type that rows, or parts of a dataset, have in common.
Elsewhere: what types mean (logloom.schema), what a message's definition says (logloom.io.logs.messages).

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

Kind = Literal["array", "bytes", "string"]


def kind_of(kind: type) -> Kind:
    """The kind of column for values of a Python type."""
    if issubclass(kind, str):
        return "string"
    return "bytes" if issubclass(kind, bytes | bytearray | memoryview) else "array"


def common_shape(shapes: Iterable[tuple[int | None, ...]]) -> tuple[int | None, ...] | None:
    """The shape of a column whose rows have these shapes, at least one; None where they differ in rank.

    >>> common_shape([(2, 3, 4), (5, 3, 4)])
    (None, 3, 4)
    """
    distinct = list(dict.fromkeys(shapes))
    if len({len(shape) for shape in distinct}) > 1:
        return None
    lengths = map(set, zip(*distinct, strict=True))
    ragged = max(
        (axis for axis, found in enumerate(lengths, 1) if len(found) > 1 or None in found), default=0
    )
    return (None,) * ragged + distinct[0][ragged:]


def type_of(one: Array, other: Array) -> ColumnType | None:
    """The type of a column from two of its values; None where no type holds both."""
    return wider(*(ColumnType(value.dtype, value.shape) for value in (one, other)))


def wider(one: ColumnType, other: ColumnType | None) -> ColumnType | None:
    """A type for values of both; None where there is none."""
    if other is None or one == other:
        return other
    if (one.kind, one.dtype) != ("array", other.dtype) or other.kind != "array":
        return None
    shape = common_shape([one.shape, other.shape])
    return None if shape is None else ColumnType(one.dtype, shape)
