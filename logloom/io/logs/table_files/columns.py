"""Columns of tables as fields of messages: their definition, and their values.

Here: conversion of Arrow schemas to definitions in the .msg language, and pure functions from Arrow
columns to values, and to which rows have one.
Elsewhere: reading files (files), their times (row_times), paths and adapters
(logloom.io.logs.messages). Definitions leave out what can't be a column: lists of lists, maps, unions,
columns of nulls alone. A name that isn't an identifier is in quotes.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logloom.blocks import Lists, Ragged, Values, fill_missing
from logloom.errors import UsageError
from logloom.io.arrow.columns import lists_of_views
from logloom.io.logs.interface import TABLE_ROW, FieldSpec
from logloom.io.logs.messages import adapters
from logloom.io.logs.messages.definitions import Number, Struct, Text, Type
from logloom.io.logs.messages.fields import Selection, column_type, flat, joined_type, packed, select, whole
from logloom.io.logs.messages.partial import examine
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


def without_type(schema: pa.Schema) -> dict[str, str]:
    """Return the columns that definitions leave out, with their types."""
    return {
        field.name: str(field.type) for field in schema if _word(field.type, f"{TABLE_ROW}_x", {}) is None
    }


def _declare(name: str, fields: Sequence[pa.Field], done: dict[str, list[str]]) -> bool:
    """Write the lines of a message and of nested ones; return whether it has any field."""
    lines: list[str] = []
    done[name] = lines
    counts = Counter(field.name for field in fields)
    for field in fields:
        word = _word(field.type, f"{name}_{field.name}", done)
        if word is not None and counts[field.name] == 1 and field.name:
            plain = _NAME.fullmatch(field.name)
            lines.append(f"{word} {field.name if plain else json.dumps(field.name)}\n")
    return bool(lines)


def _word(kind: pa.DataType, name: str, done: dict[str, list[str]]) -> str | None:
    """Return a type in the .msg language; None for one that isn't supported as a column.

    Args:
        name: for the message of a struct.
    """
    if pa.types.is_dictionary(kind):
        return _word(kind.value_type, name, done)
    if _is_list(kind):
        item = _word(kind.value_type, name, done)
        length = str(kind.list_size) if pa.types.is_fixed_size_list(kind) else ""
        return None if item is None or item.endswith("]") or length == "0" else f"{item}[{length}]"
    if pa.types.is_struct(kind):
        name = _free(re.sub(r"[^A-Za-z0-9_/]", "_", name), done)
        inside = dict(done)
        if not _declare(name, [kind.field(i) for i in range(kind.num_fields)], inside):
            return None
        done.update(inside)
        return name
    if pa.types.is_decimal(kind):
        return "int64" if _is_whole(kind) else "float64"
    return next((word for is_one, word in _WORDS if is_one(kind)), None) or _NUMBERS.get(kind)


def _free(name: str, taken: Container[str]) -> str:
    """Return the name, or one with a number that isn't taken."""
    numbers = (f"{name}_{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbers) if one not in taken)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or _is_list_view(kind)
    )


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _is_whole(kind: pa.DataType) -> bool:
    """Whether decimals have no fraction."""
    return bool(kind.scale == 0)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


_WORDS: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (_is_binary, "uint8[]"),
    (_is_text, "string"),
    (pa.types.is_timestamp, "builtin_interfaces/Time"),
    (pa.types.is_date, "builtin_interfaces/Time"),
    (pa.types.is_time, "builtin_interfaces/Duration"),  # since midnight
    (pa.types.is_duration, "builtin_interfaces/Duration"),
)


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
        return adapters.take(spec, root, _reader(table, root))
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


def _reader(table: pa.Table, root: Struct) -> adapters.Read:
    """Return a function that reads columns of rows, for adapters."""

    def read(paths: Sequence[str], width: int, rows: NDArray[np.intp] | None = None) -> Sequence[Values]:
        part = table if rows is None else table.take(pa.array(rows))
        try:
            return [_column(part, select(root, path, width)) for path in paths]
        except UnfitError as error:
            raise UnfitError(error.row if rows is None else int(rows[error.row]), str(error)) from error

    return read


def _side_by_side(spec: FieldSpec, parts: Sequence[Ragged]) -> Ragged:
    for path, part in zip(spec.paths, parts, strict=True):
        differs = (part.shapes != parts[0].shapes).any(axis=1)
        if differs.any():
            raise UnfitError(int(np.argmax(differs)), f"{path} and {spec.paths[0]} differ in length")
    columns = [part.values if part.tail else part.values[:, None] for part in parts]
    return Ragged(np.concatenate(columns, axis=1), parts[0].shapes)


def present(table: pa.Table, spec: FieldSpec, root: Struct, empty_text: bool) -> NDArray[np.bool_] | None:
    """(N,) whether each row has a value of a spec; None if all have.

    A null float within a list or struct is NaN, any other null there means that the row has no value.

    Args:
        empty_text: whether an empty text is no value.
    """
    paths = adapters.paths(spec, root).values() if spec.adapter else spec.paths
    found: NDArray[np.bool_] | None = None
    for path in paths:
        selection = select(root, path)
        column = _decoded(_joined(table, selection.names[0]))
        for part in selection.names[1:]:
            column = _decoded(pc.struct_field(column, [part]))
        held = _held(column, selection)
        if empty_text and selection.array is None and isinstance(selection.type, Text) and held is None:
            held = pc.not_equal(column, "").to_numpy(zero_copy_only=False).astype(np.bool_)
        if held is not None and not held.all():
            found = held if found is None else found & held
    if not adapters.may_lack_value(spec):
        return found

    def by_adapter(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        return adapters.has_value(spec, root, _reader(table.take(pa.array(rows)), root))

    found = np.ones(len(table), np.bool_) if found is None else found
    examine(found, np.flatnonzero(found), by_adapter)
    return None if found.all() else found


def may_lack(schema: pa.Schema, spec: FieldSpec, root: Struct) -> bool:
    """Return whether rows may have no value of a spec, by null, a short list, or what its adapter finds."""
    if adapters.may_lack_value(spec):
        return True
    paths = adapters.paths(spec, root).values() if spec.adapter else spec.paths
    selections = [select(root, path) for path in paths]
    return any(one.may_lack or _is_nullable(schema.field(one.names[0])) for one in selections)


def _is_nullable(field: pa.Field) -> bool:
    inner = (field.type.field(number) for number in range(field.type.num_fields))
    return field.nullable or any(map(_is_nullable, inner))


def _held(array: pa.Array, selection: Selection) -> NDArray[np.bool_] | None:
    """(N,) whether each item after following `names` has a value; None if all have."""
    held: NDArray[np.bool_] | None = None
    if array.null_count:
        held = array.is_valid().to_numpy(zero_copy_only=False)
    if selection.array is None or selection.inner is None or selection.is_bytes:
        inner = _whole_structs(array, selection.type)
        return held if inner is None else inner if held is None else held & inner
    array = _as_list(array)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    short = lengths < selection.least
    if selection.fills and short.any():
        found = np.ones(len(array), np.bool_)
        within = _held(array.filter(pa.array(~short)), selection)
        found[~short] = True if within is None else within
        return found if held is None else held & found
    if short.any():
        held = ~short if held is None else held & ~short
    if held is not None:
        array, lengths = array.filter(pa.array(held)), lengths[held]
    items, places = array.flatten(), np.arange(lengths.sum())
    if selection.pick is not None:
        places = picked(selection, lengths)
        items = items.take(pa.array(places.reshape(-1)))
    inside = _held_inside(_decoded(items), selection.inner)
    if inside is None:
        return held
    counts = lengths if selection.pick is None else places.size // max(1, len(array))
    rows = np.ones(len(array), np.bool_)
    rows[np.repeat(np.arange(len(array)), counts)[~inside]] = False
    if held is None:
        return rows
    held[held] = rows
    return held


def _held_inside(items: pa.Array, inner: Selection) -> NDArray[np.bool_] | None:
    """(N,) whether each element of lists has a value; None if all have. A float that is null is NaN."""
    found: NDArray[np.bool_] | None = None
    for part in inner.names:
        if items.null_count:
            found = items.is_valid().to_numpy(zero_copy_only=False)
        items = _decoded(pc.struct_field(items, [part]))
    is_float = isinstance(inner.type, Number) and inner.type.dtype.kind == "f"
    held = None if is_float and inner.array is None else _held(items, inner)
    return found if held is None else held if found is None else found & held


def _whole_structs(array: pa.Array, kind: Type) -> NDArray[np.bool_] | None:
    """(N,) whether each struct has all its values but floats; None if all have, and for other types."""
    if not isinstance(kind, Struct) or kind.is_time:
        return None
    found: NDArray[np.bool_] | None = None
    for field in kind.fields:
        if field.array is None and isinstance(field.type, Number) and field.type.dtype.kind == "f":
            continue
        part = _decoded(pc.struct_field(array, [field.name]))
        held = _held(part, whole(field.name, field, 1))
        if held is not None:
            found = held if found is None else found & held
    return found


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
        column, name = pc.struct_field(column, [part]), f"{name}.{part}"
    if column_type(selection).kind == "string":
        return _text_rows(_decoded(column), name)
    return _values(column, selection, name)


def _values(array: pa.Array, selection: Selection, name: str) -> Values:
    """Return the selected values of each item of a column, after following `names`."""
    array = _decoded(array)
    if selection.array is None or selection.inner is None:
        return _items(array, selection, name)
    if selection.pick is None and (_is_binary(array.type) or _is_text(array.type)):
        return _text_rows(array, name)
    _refuse_nulls(array, name)
    array = _as_list(array)
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
    short = lengths < selection.least
    if selection.fills and short.any():
        return _filled(array, selection, name, ~short)
    if short.any():
        row = int(np.argmax(short))
        raise UnfitError(row, f"{name} has {lengths[row]} elements, fewer than {selection.least}")
    items = array.flatten()
    inner, pick = selection.inner, selection.pick
    if pick is not None:  # before nulls and lengths of others are refused
        chosen = picked(selection, lengths)
        items = items.take(pa.array(chosen.reshape(-1)))
        lengths = np.full(len(array), 1 if isinstance(pick, int) else chosen.shape[1])
    for part in inner.names:
        _refuse_nulls(items, name)
        items = pc.struct_field(items, [part])
    try:
        values = _values(items, inner, f"an item of {name}")
    except UnfitError as error:
        row = int(np.searchsorted(np.cumsum(lengths), error.row, side="right"))
        raise UnfitError(row, str(error)) from error
    if isinstance(pick, int):
        return values
    if isinstance(values, Ragged):
        return Lists(values.values, lengths, values.lengths)
    width = pick.stop - pick.start if pick is not None else selection.array.length
    if width is None:
        return Ragged(values, lengths)
    return values.reshape(len(array), width, *values.shape[1:])


def _filled(array: pa.Array, selection: Selection, name: str, is_long: NDArray[np.bool_]) -> Values:
    """Return the values of lists, of which those that are too short have none: NaN, 0 or empty."""
    try:
        found = _values(array.filter(pa.array(is_long)), selection, name)
    except UnfitError as error:
        raise UnfitError(int(np.flatnonzero(is_long)[error.row]), str(error)) from error
    if isinstance(found, Ragged):
        lengths = np.zeros(len(array), np.int64)
        lengths[is_long] = found.lengths
        return Ragged(found.values, lengths)
    values = np.zeros((len(array), *found.shape[1:]), found.dtype)
    fill_missing(values)
    values[is_long] = found
    return values


def _items(array: pa.Array, selection: Selection, name: str) -> NDArray[Any]:
    """Return numbers, times, text of fixed width, or structured values."""
    kind = selection.type
    if isinstance(kind, Text):
        return _fixed_text(array, selection.width, name)
    if isinstance(kind, Number):
        if kind.dtype.kind != "f":
            _refuse_nulls(array, name)
        if pa.types.is_decimal(array.type):
            array = _whole_numbers(array, name)
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
            values[field.name] = _values(pc.struct_field(array, [field.name]), part, f"{name}.{field.name}")
    numbers = flat(values.dtype) if selection.flatten else None
    return values if numbers is None else values.view(numbers[0]).reshape(len(array), *numbers[1])


def _whole_numbers(decimals: pa.Array, name: str) -> pa.Array:
    """Return decimals without a fraction as int64."""
    try:
        return decimals.cast(pa.string()).cast(pa.int64())
    except pa.ArrowInvalid:
        limits = np.iinfo(np.int64)
        for row, number in enumerate(decimals.to_pylist()):
            if not limits.min <= number <= limits.max:
                why = f"{name} is {number}, which doesn't fit int64; write it as text"
                raise UnfitError(row, why) from None
        raise


def _fixed_text(array: pa.Array, width: int, name: str) -> NDArray[Any]:
    _refuse_nulls(array, name)
    lengths = pc.utf8_length(array).to_numpy(zero_copy_only=False)
    if len(lengths) and lengths.max() > width:
        row = int(np.argmax(lengths))
        why = f"{name} has {lengths[row]} characters, the column keeps {width}; raise `strings`"
        raise UnfitError(row, why)
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


def _as_list(array: pa.Array) -> pa.Array:
    """Return bytes as lists of numbers; other arrays unchanged."""
    if not _is_binary(array.type):
        return array
    rows = _text_rows(array.fill_null(b""), "")
    offsets = np.concatenate([[0], np.cumsum(rows.lengths, dtype=np.int64)])
    return pa.LargeListArray.from_arrays(offsets, pa.array(rows.values), mask=array.is_null())


def _decoded(array: pa.Array) -> pa.Array:
    """Return an array of a type that has values of its own: no dictionary, view, fraction, date or time."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_decimal(kind) and not _is_whole(kind):  # by their text, which gives the nearest float
        return array.cast(pa.string()).cast(pa.float64())
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if _is_list_view(kind):
        return lists_of_views(array)
    if pa.types.is_date(kind):
        return array.cast(pa.timestamp("ms")).cast(pa.timestamp("ns"))
    if pa.types.is_time(kind):
        plain = array.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64()).cast(pa.int64())
        return plain.cast(pa.duration(kind.unit)).cast(pa.duration("ns"))
    return array


def _refuse_nulls(array: pa.Array, name: str) -> None:
    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise UnfitError(row, f"{name} is null, and only floats can be NaN; fill it, or take another column")
