"""Inference of column types from values, and of valid column names.

Here: `RawColumn` (some rows of a column as a foreign reader gives them), `SeenColumn` (what has been seen of
its values), and `stacked`, which converts such rows to values of the inferred type.
Elsewhere: reading a dataset (files).

A shape is fixed where all rows have it; else the axes up to the last one that differs are ragged. Text arrays
are as wide as the widest; times and durations become int64 ns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Lists, Ragged, Values, column_of_rows, empty, has_form, take
from logloom.inference import Kind, common_shape, kind_of
from logloom.schema import (
    COLUMN_NAME,
    RESERVED_LAST_PARTS,
    RESERVED_NAMES,
    ColumnType,
    dtype_from_json,
    dtype_to_json,
)
from logloom.values import dataclass


@dataclass(frozen=True)
class RawColumn:
    """Some rows of a column.

    Attributes:
        values: (n, *shape); or a list of bytes, of str, or of one array a row, in which None is an
            empty sequence or a missing value.
        ctype: if declared by the files.
        is_sequence: whether the first axis is ragged even where all rows are of one length.
        available: (n,) which rows have a value; None where all do, and must.
        ages: (n,) int64 ns, if the files have them.
        loosest: what the column is if no row of the dataset has a value.
        problem: why no column has such values, which are None then; or "".
    """

    values: Array | Ragged | list[Any]  # Lists need no declared type
    ctype: ColumnType | None = None
    is_sequence: bool = False
    available: NDArray[np.bool_] | None = None
    ages: NDArray[np.int64] | None = None
    loosest: ColumnType | None = None
    problem: str = ""

    def take(self, rows: NDArray[np.int64]) -> RawColumn:
        """Select rows by number, as a copy."""
        values = self.values
        return replace(
            self,
            values=[values[row] for row in rows.tolist()] if isinstance(values, list) else take(values, rows),
            available=None if self.available is None else self.available[rows],
            ages=None if self.ages is None else self.ages[rows],
        )


class UnfitValuesError(ValueError):
    """Values that make no column together; the message says why."""


@dataclass(frozen=True)
class SeenColumn:
    """What has been seen of a column.

    Attributes:
        low, high: the smallest and largest length of each axis.
        declared: the type that files declare.
        sampled: whether rows may lack a value.
        dtype: None as long as there was no value.
        loosest: the type if there never is one; None if unknown.
        problem: why the column can't be read; or "".
    """

    kind: Kind = "array"
    dtype: np.dtype[Any] | None = None
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()
    declared: ColumnType | None = None
    is_sequence: bool = False
    sampled: bool = False
    loosest: ColumnType | None = None
    problem: str = ""

    @classmethod
    def of(cls, column: RawColumn) -> SeenColumn:
        """
        Raises:
            UnfitValuesError: the rows make no column.
        """
        if column.problem:
            raise UnfitValuesError(column.problem)
        sampled = column.available is not None or column.ages is not None
        if column.ctype is not None:
            return cls(column.ctype.kind, column.ctype.dtype, declared=column.ctype, sampled=sampled)
        values = column.values
        if isinstance(values, Lists):
            shape = (0, 0, *values.tail)
            dtype = plain_dtype(values.dtype)
            return cls("lists", dtype, shape, shape, sampled=sampled, loosest=column.loosest)
        if isinstance(values, np.ndarray):
            return cls._of_shapes(
                [(values.dtype, values.shape[1:])] if len(values) else [], column.is_sequence, sampled
            )
        assert isinstance(values, list)
        present = [value for value in values if value is not None]
        kinds = {kind_of(type(value)) for value in present}
        if len(kinds) > 1:
            raise UnfitValuesError(f"rows are of different kinds: {', '.join(sorted(kinds))}")
        (kind,) = kinds or {"array"}
        if kind != "array":
            return cls(kind, np.dtype("u1"), sampled=sampled)
        seen = cls._of_shapes({(v.dtype, v.shape) for v in present}, column.is_sequence, sampled)
        return replace(seen, loosest=column.loosest)

    @classmethod
    def _of_shapes(
        cls, found: Iterable[tuple[np.dtype[Any], tuple[int, ...]]], is_sequence: bool, sampled: bool
    ) -> SeenColumn:
        seen = cls(is_sequence=is_sequence, sampled=sampled)
        for dtype, shape in found:
            seen = seen.and_(cls("array", plain_dtype(dtype), shape, shape, None, is_sequence, sampled))
        return seen

    def and_(self, other: SeenColumn) -> SeenColumn:
        """What has been seen in both.

        Raises:
            UnfitValuesError: one column can't hold both.
        """
        if self.problem or other.problem:
            return self if self.problem else other
        sampled = self.sampled or other.sampled
        sequence = self.is_sequence or other.is_sequence
        if self.dtype is None or other.dtype is None:
            known = other if self.dtype is None else self
            return replace(
                known, is_sequence=sequence, sampled=sampled, loosest=self.loosest or other.loosest
            )
        kinds = {self.kind, other.kind}
        if len(kinds) > 1 and kinds != {"array", "lists"}:
            raise UnfitValuesError(f"rows are of different kinds: {self.kind}, {other.kind}")
        if self.declared != other.declared:
            raise UnfitValuesError(f"files say different types: {self.declared}, {other.declared}")
        if len(self.low) != len(other.low):
            raise UnfitValuesError(f"rows of {len(self.low)} and of {len(other.low)} dimensions")
        declared = self.declared
        if declared is not None and other.declared is not None and declared.attributes:
            both = {*declared.attributes} & {*other.declared.attributes}
            declared = replace(declared, attributes=tuple(sorted(both)))
        low = tuple(map(min, self.low, other.low))
        high = tuple(map(max, self.high, other.high))
        if "lists" in kinds and low[2:] != high[2:]:
            raise UnfitValuesError(f"elements of lists are of different shapes: {low[2:]}, {high[2:]}")
        dtype = _common(self.dtype, other.dtype)
        return replace(
            self,
            kind="lists" if "lists" in kinds else self.kind,
            dtype=dtype,
            low=low,
            high=high,
            declared=declared,
            is_sequence=sequence,
            sampled=sampled,
        )

    @property
    def ctype(self) -> ColumnType:
        """
        Raises:
            UnfitValuesError: no row had a value, or the column can't be read.
        """
        if self.problem:
            raise UnfitValuesError(self.problem)
        if self.declared is not None:
            return self.declared
        if self.dtype is None and self.loosest is not None:
            return self.loosest
        if self.dtype is None:
            raise UnfitValuesError("no row has a value, so its type is unknown")
        unit = "ns" if self.dtype.kind in "mM" else ""
        if self.kind == "lists":
            return ColumnType(_stored(self.dtype), (None, None, *self.high[2:]), self.kind, unit)
        if self.kind != "array":
            return ColumnType(self.dtype, (None,), self.kind)
        of_sequence = [(None, *self.high[1:])] if self.is_sequence else []
        shape = common_shape([self.low, self.high, *of_sequence]) or ()
        return ColumnType(_stored(self.dtype), shape, unit=unit)


def plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Little-endian, and packed where structured.

    Raises:
        UnfitValuesError: it holds Python objects.
    """
    if dtype.hasobject:
        raise UnfitValuesError("values are Python objects")
    little = dtype.newbyteorder("<")
    return little if little.names is None else dtype_from_json(dtype_to_json(little))


def _common(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    if a == b:
        return a
    if a.kind == b.kind and a.kind in "US":  # text of any width
        return max(a, b, key=lambda dtype: dtype.itemsize)
    if a.names is not None and a.names == b.names:
        parts = [(a[name].subdtype or (a[name], ()), b[name].subdtype or (b[name], ())) for name in a.names]
        if all(mine[1] == other[1] for mine, other in parts):
            fields = [_common(mine[0], other[0]) for mine, other in parts]
            shapes = [mine[1] for mine, _ in parts]
            return np.dtype([*zip(a.names, fields, shapes, strict=True)])
    raise UnfitValuesError(f"rows are of different types: {a}, {b}")


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype("<i8") if dtype.kind in "mM" else dtype


def stacked(column: RawColumn, ctype: ColumnType) -> Values:
    """Convert rows to values of a type.

    Raises:
        UnfitValuesError: a row is of another type; names the row.
    """
    if column.problem:
        raise UnfitValuesError(column.problem)
    values = column.values
    if isinstance(values, list) and column.available is not None and not column.available.any():
        return missing_rows(ctype, len(values))
    if isinstance(values, Ragged):
        is_inferred = isinstance(values, Lists) and column.ctype is None  # text may be narrower
        if not has_form(values, ctype) or not (is_inferred or values.dtype == ctype.dtype):
            raise UnfitValuesError(f"{values.dtype} rows, should be {ctype}")
        return values.with_values(_cast(values.values, ctype.dtype)) if is_inferred else values
    if isinstance(values, np.ndarray) and not ctype.is_ragged:
        if values.shape[1:] != ctype.tail:
            raise UnfitValuesError(f"rows of shape {values.shape[1:]}, should be {ctype}")
        return _cast(values, ctype.dtype)
    return _stacked_rows(list(values), ctype)


def missing_rows(ctype: ColumnType, num_rows: int) -> Values:
    """Return rows without a value: NaN, NaT's bits where the type is of times, else 0 or empty."""
    found = empty(ctype, num_rows)
    if isinstance(found, np.ndarray) and ctype.unit == "ns" and ctype.dtype == np.int64:
        found[...] = np.iinfo(np.int64).min
    return found


def _stacked_rows(rows: Sequence[Any], ctype: ColumnType) -> Values:
    missing = missing_rows(ctype, 1)[0]
    arrays: list[Any] = []
    for number, row in enumerate(rows):
        if row is None:
            arrays.append(missing)
        elif ctype.kind == "lists":
            arrays.append([_cast(one, ctype.dtype) for one in row])
        elif kind_of(type(row)) != ctype.kind:
            raise UnfitValuesError(f"row {number} of the batch is {kind_of(type(row))}, should be {ctype}")
        elif ctype.kind == "array":
            arrays.append(_fitting(row, ctype, number))
        else:
            arrays.append(np.frombuffer(row.encode() if isinstance(row, str) else row, np.uint8))
    return column_of_rows(arrays, ctype)


def _fitting(row: Array, ctype: ColumnType, number: int) -> Array:
    ragged = ctype.num_ragged
    if row.ndim != len(ctype.shape) or row.shape[ragged:] != ctype.tail:
        raise UnfitValuesError(f"row {number} of the batch has shape {list(row.shape)}, should be {ctype}")
    return _cast(row, ctype.dtype)


def _cast(values: Array, dtype: np.dtype[Any]) -> Array:
    if values.dtype == dtype:
        return values
    if values.dtype.kind in "mM" and dtype == np.dtype("<i8"):
        unit = "m8[ns]" if values.dtype.kind == "m" else "M8[ns]"
        cast = values.astype(unit)
        if (cast.astype(values.dtype) != values)[~np.isnat(values)].any():
            raise UnfitValuesError("a time that int64 ns can't store")
        return cast.astype("<i8")
    if _common(plain_dtype(values.dtype), dtype) != dtype:
        raise UnfitValuesError(f"{values.dtype} values, should be {dtype}")
    return values.astype(dtype)


def column_name(name: str) -> str:
    """Convert a foreign name to the name of a column."""
    parts = [re.sub(r"[^a-z0-9_]", "_", part) for part in name.lower().split(".")]
    column = ".".join(part if part[:1] and not part[0].isdigit() else f"_{part}" for part in parts)
    assert COLUMN_NAME.fullmatch(column), column
    is_reserved = column in RESERVED_NAMES or column.rpartition(".")[2] in RESERVED_LAST_PARTS
    return f"{column}_" if is_reserved else column
