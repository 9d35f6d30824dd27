"""Checks of blocks from anybody's pipeline, before their rows are stored.

Here: `checked`, which makes a block's columns those of a schema or reports what doesn't fit.
Elsewhere: blocks (logloom.blocks), their types (logloom.schema).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from logloom.blocks import Array, Block, Lists, Ragged, Values, has_form
from logloom.errors import UsageError
from logloom.schema import TIMESTAMP, ColumnType, Schema
from logloom.text import near_to, shortened, some_of


def checked(block: Block, schema: Schema) -> Block:
    """Return a block whose columns have the types of a schema.

    Numbers are cast where no value changes. A row may have the timestamp of the one before it; see
    `logloom.io.beam.merge.merged`.

    Args:
        block: rows of one log, by timestamp.
        schema: of all columns.

    Raises:
        UsageError: columns are missing or unknown, have another type, shape or length, or timestamps descend;
            names log, column and row.

    Examples:
        >>> stamps = np.array([10, 20])
        >>> block = Block("drive", "", 0, {"timestamp": stamps, "speed": np.array([1, 2], "i2")})
        >>> checked(block, Schema({"speed": ColumnType("<f8")})).columns["speed"]
        array([1., 2.])
    """
    if not isinstance(block, Block):
        given = f"{shortened(repr(block))}: a {type(block).__name__}"
        raise UsageError(f"WriteTo: {given}; write blocks, which GroupRows makes of rows")
    _check_log_id(block.log_id)
    wanted = {"timestamp": TIMESTAMP, **schema.all}
    missing = [name for name in wanted if name not in block.columns]
    if missing:
        _refuse(block, f"has no column {some_of(missing)}; add it, or leave it out of the schema")
    unknown = [name for name in block.columns if name not in wanted]
    if unknown:
        near = near_to(unknown[0], wanted)
        _refuse(block, f"the schema has no column {unknown[0]!r}{near}; leave it out of the block")
    stamps = block.columns["timestamp"]
    if not isinstance(stamps, np.ndarray):
        _refuse(block, f"a {type(stamps).__name__}, must be an array of int64", "timestamp")
    rows = len(stamps)
    columns = {name: _column(block, name, ctype, rows) for name, ctype in wanted.items()}
    stamps = columns["timestamp"]
    assert isinstance(stamps, np.ndarray)
    descends = np.flatnonzero(stamps[1:] < stamps[:-1])
    if len(descends):
        row = int(descends[0]) + 1
        _refuse(
            block, f"timestamp {stamps[row]} comes after {stamps[row - 1]}; sort the block's rows", row=row
        )
    return replace(block, log_id=str(block.log_id), partition=str(block.partition or ""), columns=columns)


def _check_log_id(log_id: Any) -> None:
    if not isinstance(log_id, str):
        raise UsageError(f"block of log {log_id!r}: a log_id is a text, not {type(log_id).__name__}")
    if (
        any(part in ("", ".", "..") for part in log_id.split("/"))
        or not log_id.isprintable()
        or "\\" in log_id
    ):
        raise UsageError(
            f"block of log {log_id!r}: a log_id is one or more names joined by /, none of them '.' or '..', "
            "without backslashes and control characters; rename the log"
        )


def _refuse(block: Block, problem: str, name: str = "", row: int | None = None) -> NoReturn:
    column = f", column {name}" if name else ""
    place = "" if row is None else f", row {block.first_row + row}"
    partition = f", partition {block.partition}" if block.partition else ""
    raise UsageError(f"block of log {block.log_id}{partition}{column}{place}: {problem}")


def _column(block: Block, name: str, ctype: ColumnType, rows: int) -> Values:
    values = block.columns[name]
    if not isinstance(values, np.ndarray | Ragged):
        kind = "a Ragged" if ctype.is_ragged else "an array"
        _refuse(block, f"a {type(values).__name__}, the schema has {ctype}; give {kind}", name)
    if len(values) != rows:
        _refuse(block, f"{len(values)} rows, timestamp has {rows}", name)
    if isinstance(values, Ragged) != ctype.is_ragged:
        _refuse(block, f"{_shown(values)}, the schema has {ctype}", name)
    if isinstance(values, Ragged):
        return _ragged(block, name, ctype, values)
    if values.shape[1:] != ctype.shape:
        _refuse(block, f"{_shown(values)}, the schema has {ctype}", name)
    return _cast(block, name, ctype, values, values, None)


def _ragged(block: Block, name: str, ctype: ColumnType, values: Ragged) -> Ragged:
    if not has_form(values, ctype):
        _refuse(block, f"{_shown(values)}, the schema has {ctype}", name)
    if (values.shapes < 0).any():
        row = int(np.flatnonzero((values.shapes < 0).any(axis=1))[0])
        _refuse(block, f"a length of {values.shapes[row].min()}", name, row)
    if not values.is_joined:  # rows may have other types than the column that was made of them
        rows = [_row(block, name, ctype, row, number) for number, row in enumerate(values)]
        if any(row is not given for row, given in zip(rows, values, strict=True)):
            values = Ragged.from_rows(rows, ctype)
    elif len(values.values) != values.offsets[-1]:
        _refuse(block, f"{len(values.values)} values for rows of {values.offsets[-1]} in all", name)
    elif values.dtype != ctype.dtype:
        values = values.with_values(_cast(block, name, ctype, values, values.values, values.offsets))
    if ctype.kind == "string":
        _check_text(block, name, values)
    return values


def _row(block: Block, name: str, ctype: ColumnType, row: Array, number: int) -> Array:
    """A row of a ragged column as the type of the column."""
    if row.shape[ctype.num_ragged :] != ctype.tail or not _can_cast(row.dtype, ctype.dtype):
        _refuse(block, f"{ColumnType(row.dtype, row.shape)}, the schema has {ctype}", name, number)
    return _cast(block, name, ctype, row, row, np.array([0, len(row)]), number)


def _check_text(block: Block, name: str, values: Ragged) -> None:
    data, starts = values.values, values.offsets[:-1][values.lengths > 0]
    try:
        data.tobytes().decode("utf-8")
        is_text = not ((data[starts] & 0xC0) == 0x80).any()  # no row begins within a character
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        for row, text in enumerate(values):
            try:
                text.tobytes().decode("utf-8")
            except UnicodeDecodeError as error:
                _refuse(block, f"no text in UTF-8 ({error}); encode it, or make the column bytes", name, row)


def _cast(
    block: Block,
    name: str,
    ctype: ColumnType,
    given: Values,
    values: Array,
    offsets: Array | None,
    first_row: int = 0,
) -> Array:
    """Values as the type of a column.

    Args:
        given: the column, for messages.
        offsets: where each row starts in `values`; None if they have an entry a row.
        first_row: the number of the first row in the block.
    """
    if values.dtype == ctype.dtype:
        return values
    if not _can_cast(values.dtype, ctype.dtype):
        _refuse(block, f"{_shown(given)}, the schema has {ctype}; convert the values", name)
    found = values.astype(ctype.dtype)
    if values.size and values.dtype.kind in "iu" and ctype.dtype.kind in "fc":  # which numpy calls safe
        changed = np.flatnonzero((found.astype(values.dtype) != values).reshape(len(values), -1).any(axis=1))
        if len(changed):
            at = int(changed[0])
            within = at if offsets is None else int(np.searchsorted(offsets, at, "right")) - 1
            row = first_row + max(within, 0)
            problem = f"{values.reshape(len(values), -1)[at].max()} has no exact value in {ctype}"
            _refuse(block, f"{problem}, the block has {_shown(given)}", name, row)
    return found


def _can_cast(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether all values of a type are values of another, field by field."""
    if given.hasobject:
        return False
    if wanted.names is None or given.names is None:
        return given.names == wanted.names and np.can_cast(given, wanted, "safe")
    if given.names != wanted.names:
        return False
    return all(
        given[name].shape == wanted[name].shape and _can_cast(given[name].base, wanted[name].base)
        for name in wanted.names
    )


def _shown(values: Values) -> str:
    if isinstance(values, Lists):
        return str(ColumnType(values.dtype, (None, None, *values.tail), "lists"))
    shape = (None,) * values.shapes.shape[1] + values.tail if isinstance(values, Ragged) else values.shape[1:]
    return str(ColumnType(values.dtype, shape)) if not values.dtype.hasobject else "Python objects"
