"""Columns of tables as fields of messages: their definition, and their values.

Here: conversion of Arrow schemas to definitions in the .msg language, and pure functions from Arrow
columns to values.
Elsewhere: reading files (files), their times (times), paths and adapters
(logloom.io.logs.messages). Definitions leave out what can't be a column: lists of lists, decimals, maps,
names that aren't valid in paths.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values
from logloom.errors import UsageError
from logloom.io.logs.interface import TABLE_ROW, FieldSpec
from logloom.io.logs.messages import adapters
from logloom.io.logs.messages.definitions import Number, Struct, Text
from logloom.io.logs.messages.fields import Selection, column_type, flat, joined_type, packed, select, whole
from logloom.io.logs.messages.values import UnfitError, picked

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_NUMBERS = {pa.type_for_alias(name): name for name in _INTEGERS} | {
    pa.bool_(): "bool",
    pa.float16(): "float32",  # which contains all its values
    pa.float32(): "float32",
    pa.float64(): "float64",
}


def definition_of(schema: pa.Schema) -> str:
    """Return the columns of a table as a message definition (ros2msg)."""
    done: dict[str, list[str]] = {}
    _declare(TABLE_ROW, schema, done)
    sections = [f"MSG: {name}\n" * (name != TABLE_ROW) + "".join(lines) for name, lines in done.items()]
    return (80 * "=" + "\n").join(sections)


def _declare(name: str, fields: Sequence[pa.Field], done: dict[str, list[str]]) -> bool:
    """Write the lines of a message and of nested ones; return whether it has any field."""
    lines: list[str] = []
    done[name] = lines
    counts = Counter(field.name for field in fields)
    for field in fields:
        word = _word(field.type, f"{name}_{field.name}", done)
        if word is not None and _NAME.fullmatch(field.name) and counts[field.name] == 1:
            lines.append(f"{word} {field.name}\n")
    return bool(lines)


def _word(kind: pa.DataType, name: str, done: dict[str, list[str]]) -> str | None:
    """Return a type in the .msg language; None for one that isn't supported as a column."""
    if pa.types.is_dictionary(kind):
        return _word(kind.value_type, name, done)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item = _word(kind.value_type, name, done)
        length = str(kind.list_size) if pa.types.is_fixed_size_list(kind) else ""
        return None if item is None or item.endswith("]") or length == "0" else f"{item}[{length}]"
    if _is_binary(kind):
        return "uint8[]"
    if _is_text(kind):
        return "string"
    if pa.types.is_timestamp(kind):
        return "builtin_interfaces/Time"
    if pa.types.is_duration(kind):
        return "builtin_interfaces/Duration"
    if pa.types.is_struct(kind):
        inside: dict[str, list[str]] = {}
        fields = [kind.field(i) for i in range(kind.num_fields)]
        if not _NAME.fullmatch(name.rsplit("/", 1)[-1]) or not _declare(name, fields, inside):
            return None
        done.update(inside)
        return name
    return _NUMBERS.get(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def top_level(spec: FieldSpec, root: Struct) -> list[str]:
    """Return the columns of a table that a spec reads."""
    paths = adapters.paths(spec, root).values() if spec.adapter else spec.paths
    return sorted({select(root, path).names[0] for path in paths})


def values_of(table: pa.Table, spec: FieldSpec, root: Struct) -> Values:
    """Return the values of a spec for each row of a table.

    Raises:
        UnfitError: a row is null, but the column needs a value.
    """
    if spec.adapter is not None:
        read = adapters.paths(spec, root)
        width = adapters.text_width(spec)
        found = {word: _column(table, select(root, path, width)) for word, path in read.items()}
        return adapters.convert(spec, found)
    selections = [select(root, path, spec.strings) for path in spec.paths]
    parts = [_column(table, selection) for selection in selections]
    if len(parts) == 1:
        return adapters.shaped(parts[0], spec)
    ctype = joined_type(spec, selections)
    if ctype.is_ragged:
        return adapters.shaped(
            _side_by_side(spec, [part for part in parts if isinstance(part, Ragged)]), spec
        )
    columns = [part.reshape(len(table), -1) for part in parts if isinstance(part, np.ndarray)]
    return adapters.shaped(np.concatenate(columns, axis=1), spec)


def _side_by_side(spec: FieldSpec, parts: Sequence[Ragged]) -> Ragged:
    for path, part in zip(spec.paths, parts, strict=True):
        differs = (part.shapes != parts[0].shapes).any(axis=1)
        if differs.any():
            raise UnfitError(int(np.argmax(differs)), f"{path} and {spec.paths[0]} differ in length")
    columns = [part.values if part.tail else part.values[:, None] for part in parts]
    return Ragged(np.concatenate(columns, axis=1), parts[0].shapes)


def structured(table: pa.Table, root: Struct, names: Sequence[str], width: int) -> NDArray[Any]:
    """(N,) some columns of each row as structured values, see `structured_type`.

    Raises:
        UnfitError: a row is null, but the column needs a value, or a text is too long.
    """
    values = np.empty(len(table), structured_type(root, names, width))
    for name in names:
        field = root.field(name)
        assert field is not None
        values[name] = _values(_joined(table, name), whole(name, field, width), name)
    return values


def structured_type(root: Struct, names: Sequence[str], width: int) -> np.dtype[Any]:
    """Return the dtype of `structured`.

    Raises:
        UsageError: the column doesn't exist, is a part of another, or has lengths that differ by row.
    """
    fields = []
    for name in names:
        whole_one = select(root, name, width).names[0]
        field = root.field(name)
        if field is None:
            raise UsageError(
                f"field: {name!r} is a part of a column, and labels of several values hold whole ones; write "
                f"{whole_one}"
            )
        fields.append(field)
    return packed(Struct(TABLE_ROW, tuple(fields)), width)


def _joined(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one contiguous array."""
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # of no chunks, or of more text than one array holds
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def _column(table: pa.Table, selection: Selection) -> Values:
    name = selection.names[0]
    column = _joined(table, name)
    for part in selection.names[1:]:
        column = _decoded(column)
        _refuse_nulls(column, name)
        column, name = pc.struct_field(column, part), f"{name}.{part}"
    if column_type(selection).kind == "string":
        return _text_rows(_decoded(column), name)
    return _values(column, selection, name)


def _values(array: pa.Array, selection: Selection, name: str) -> Values:
    """Return the selected values of each item of a column, after following `names`."""
    array = _decoded(array)
    if selection.array is None or selection.inner is None:
        return _items(array, selection, name)
    if _is_binary(array.type) or _is_text(array.type):
        return _text_rows(array, name)
    _refuse_nulls(array, name)
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
    short = lengths < selection.least
    if short.any():
        row = int(np.argmax(short))
        raise UnfitError(row, f"{name} has {lengths[row]} elements, fewer than {selection.least}")
    items = array.flatten()
    inner = selection.inner
    if isinstance(selection.pick, int):
        items = items.take(pa.array(picked(selection, lengths)))
    for part in inner.names:
        _refuse_nulls(items, name)
        items = pc.struct_field(items, part)
    try:
        values = _values(items, inner, f"an item of {name}")
    except UnfitError as error:
        is_one = isinstance(selection.pick, int)
        row = error.row if is_one else pc.list_parent_indices(array)[error.row].as_py()
        raise UnfitError(row, str(error)) from error
    if isinstance(selection.pick, int):
        return values
    assert isinstance(values, np.ndarray)
    length = selection.array.length
    if length is None and selection.pick is None:
        return Ragged(values, lengths)
    if length is None:
        return np.asarray(values[picked(selection, lengths)])
    fixed = values.reshape(len(array), length, *values.shape[1:])
    return fixed if selection.pick is None else fixed[:, selection.pick]


def _items(array: pa.Array, selection: Selection, name: str) -> NDArray[Any]:
    """Return numbers, times, text of fixed width, or structured values."""
    kind = selection.type
    if isinstance(kind, Text):
        return _fixed_text(array, selection.width, name)
    if isinstance(kind, Number):
        if kind.dtype.kind != "f":
            _refuse_nulls(array, name)
        return np.asarray(array.to_numpy(zero_copy_only=False)).astype(kind.dtype, copy=False)
    _refuse_nulls(array, name)
    if kind.is_time:
        unit = pa.duration("ns") if pa.types.is_duration(array.type) else pa.timestamp("ns")
        times: NDArray[Any] = array.cast(unit).cast(pa.int64()).to_numpy(zero_copy_only=False)
        return times
    values = np.empty(len(array), selection.packed)
    for field in kind.fields:
        if field.name in (values.dtype.names or ()):
            part = whole(field.name, field, selection.width)
            values[field.name] = _values(pc.struct_field(array, field.name), part, f"{name}.{field.name}")
    numbers = flat(values.dtype) if selection.flatten else None
    return values if numbers is None else values.view(numbers[0]).reshape(len(array), *numbers[1])


def _fixed_text(array: pa.Array, width: int, name: str) -> NDArray[Any]:
    _refuse_nulls(array, name)
    lengths = pc.utf8_length(array).to_numpy(zero_copy_only=False)
    if len(lengths) and lengths.max() > width:
        row = int(np.argmax(lengths))
        raise UnfitError(row, f"{name} has {lengths[row]} characters, more than `strings: {width}` allows")
    return np.array(array.to_pylist(), f"<U{width}")


def _text_rows(array: pa.Array, name: str) -> Ragged:
    """Return bytes or UTF-8 of each item."""
    _refuse_nulls(array, name)
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    plain = array.cast(pa.large_binary())
    if len(plain) == 0:
        return Ragged(np.empty(0, np.uint8), np.empty(0, np.int64))
    _, offsets, data = plain.buffers()
    bounds = np.frombuffer(offsets, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Ragged(values[bounds[0] : bounds[-1]], np.diff(bounds))


def _decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _refuse_nulls(array: pa.Array, name: str) -> None:
    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise UnfitError(row, f"{name} is null; only floats can be missing. Fill it, or leave the column out")
