"""Columns of rows as bags: the type of each, and conversion to records and back.

Here: `types_of`, `records_of` and `column_from`, for many rows at once.
Elsewhere: the byte formats of single values (logloom.io.formats.bags.codecs), files
(logloom.io.formats.bags.row_writer).
A datapoint is a row: `log_id` (utf8), `timestamp` (i64), the columns, and `meta` with ages and
availabilities.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Lists, Ragged, Values, bytes_of, column_of_rows
from logloom.errors import UsageError
from logloom.io.formats.bags.bag import Buffer
from logloom.io.formats.bags.codecs import ArrayDecoder, array_head, decode_msgpack, decode_tree, encode_tree
from logloom.io.rows.flat_lists import LENGTHS, lists_of
from logloom.schema import ColumnType, Schema

META = "meta"
KINDS_OF_BYTES = ("bytes", "jpg", "png", "mp4", "webm", "msgpack")  # what a bytes column may be called
_VALUES, _LENGTHS = "values", "lengths"  # of the tree of a row of lists of lists
_LAID_OUT = 4096  # fixed-size values up to this many bytes are copied next to their heads

Records = tuple[Iterable[Buffer], NDArray[np.int64]]


def default_type(ctype: ColumnType) -> str:
    """The type of a column without one in the recipe."""
    if ctype.kind in ("bytes", "string"):
        return {"string": "utf8", "bytes": "bytes"}[ctype.kind]
    if ctype.dtype.names is not None or ctype.kind == "lists":
        return "tree"
    return "i64" if ctype.dtype == np.dtype("<i8") and ctype.shape == () else "array"


def types_of(schema: Schema, types: Mapping[str, str]) -> dict[str, str]:
    """Make the spec of a dataset with rows of this schema.

    Args:
        types: of columns with another type than the default.

    Raises:
        UsageError: a column doesn't exist, or a type can't hold it.
    """
    if problems := type_problems(schema, types):
        raise UsageError("; ".join(problems))
    chosen = {name: types.get(name, default_type(ctype)) for name, ctype in schema.columns.items()}
    meta = {META: "msgpack"} if schema.sampled else {}
    return dict(sorted({"log_id": "utf8", "timestamp": "i64", **chosen, **meta}.items()))


def type_problems(schema: Schema, types: Mapping[str, str]) -> list[str]:
    """List the problems of chosen types, one line each."""
    problems = []
    for name, chosen in types.items():
        if name not in schema.columns:
            problems.append(f"types: no column {name!r} in this output")
            continue
        ctype = schema.columns[name]
        usual = default_type(ctype)
        fits = [
            usual,
            *(KINDS_OF_BYTES if ctype.kind == "bytes" else ()),
            *(["tree"] if usual == "array" else ()),
        ]
        if chosen not in fits:
            hint = "; `encode: jpg` makes images" if chosen in ("jpg", "png") else ""
            problems.append(
                f"types: {name} ({ctype}) can't be {chosen!r}, only {', '.join(dict.fromkeys(fits))}{hint}"
            )
    return problems


def column_problems(name: str, ctype: ColumnType) -> list[str]:
    """List why a column can't be stored, whatever its type is named."""
    dtypes = (
        [ctype.dtype]
        if ctype.dtype.names is None
        else [ctype.dtype[field].base for field in ctype.dtype.names]
    )
    try:
        for dtype in dtypes:
            if dtype.names is None:
                array_head(dtype, ())
    except UsageError as error:
        return [f"column {name}: {error}"]
    return []


def records_of(type_name: str, ctype: ColumnType, values: Values) -> Records:
    """Encode rows of a column as records: pieces of bytes in order, and the size of each record.

    Raises:
        UsageError: the values are not of the schema's type.
    """
    if values.dtype != ctype.dtype or isinstance(values, Ragged) != ctype.is_ragged:
        raise UsageError(f"its values are {values.dtype}, the schema has {ctype}")
    if isinstance(values, Lists) != (ctype.kind == "lists"):
        raise UsageError(f"its values are no lists of lists, or some, the schema has {ctype}")
    if isinstance(values, Lists):  # before the lists of a row, which a tree would have one by one
        rows = zip(values.flat, values.inner, strict=True)
        return _sized([encode_tree({_VALUES: flat, _LENGTHS: inner}) for flat, inner in rows])
    if type_name == "tree":
        return _sized([encode_tree(value) for value in values])
    if ctype.kind != "array":
        return _sized([bytes_of(row) for row in values])
    if type_name == "i64":
        return [bytes_of(values)], np.full(len(values), 8, np.int64)  # type: ignore[arg-type]
    if isinstance(values, Ragged):
        heads = [array_head(ctype.dtype, row.shape) for row in values]
        bodies = [bytes_of(row) for row in values]
        sizes = np.array([len(h) + len(b) for h, b in zip(heads, bodies, strict=True)], np.int64)
        return itertools.chain.from_iterable(zip(heads, bodies, strict=True)), sizes
    return _fixed_records(ctype, values)


def _fixed_records(ctype: ColumnType, values: Array) -> Records:
    head = array_head(ctype.dtype, ctype.tail)
    size = math.prod(ctype.tail) * ctype.dtype.itemsize
    sizes = np.full(len(values), len(head) + size, np.int64)
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(len(values), size)
    if size > _LAID_OUT:
        return itertools.chain.from_iterable((head, row.data) for row in data), sizes
    records = np.empty((len(values), len(head) + size), np.uint8)
    records[:, : len(head)] = np.frombuffer(head, np.uint8)
    records[:, len(head) :] = data
    return [records.reshape(-1).data], sizes


def meta_records(columns: Mapping[str, Values], names: Sequence[str]) -> Records:
    """The record of each row's ages and availabilities: a map from `c.age` and `c.available`."""
    rows = zip(*(columns[name].tolist() for name in names), strict=True)  # type: ignore[union-attr]
    return _sized([msgpack.packb(dict(zip(names, row, strict=True))) for row in rows])


def repeated(record: bytes, count: int) -> Records:
    """The same record for each row."""
    return [record * count], np.full(count, len(record), np.int64)


def _sized(records: Sequence[Buffer]) -> Records:
    return records, np.array([len(record) for record in records], np.int64)


def column_from(type_name: str, ctype: ColumnType, data: bytes, limits: Sequence[int]) -> Values:
    """Decode records to a column; the inverse of `records_of`.

    Args:
        data: the concatenated records.
        limits: (n + 1,) where each starts in them.

    Raises:
        ValueError: a record is of another type than the schema's.
    """
    count = len(limits) - 1
    if type_name == "i64":
        if len(data) != 8 * count or any(b - a != 8 for a, b in itertools.pairwise(limits)):
            raise ValueError("records that are not of 8 bytes")
        return np.frombuffer(data, "<i8").copy()
    if ctype.kind == "lists":
        return _lists_from([decode_tree(data[a:b]) for a, b in itertools.pairwise(limits)], ctype)
    if ctype.kind != "array":
        return Ragged(np.frombuffer(data, np.uint8), np.diff(np.array(limits, np.int64)))
    if type_name == "tree":
        return column_of_rows(
            [_from_tree(decode_tree(data[a:b]), ctype) for a, b in itertools.pairwise(limits)], ctype
        )
    if not ctype.is_ragged and (column := _uniform(ctype, data, limits)) is not None:
        return column
    return column_of_rows([_checked(array, ctype) for array in ArrayDecoder().many(data, limits)], ctype)


def _lists_from(trees: Sequence[Any], ctype: ColumnType) -> Values:
    if any(not isinstance(tree, dict) or list(tree) != [_VALUES, _LENGTHS] for tree in trees):
        raise ValueError(f"no lists of lists, the schema has {ctype}")
    flat = [_from_tree(tree[_VALUES], ctype.flat) for tree in trees]
    inner = [_from_tree(tree[_LENGTHS], LENGTHS) for tree in trees]
    return lists_of(column_of_rows(flat, ctype.flat), column_of_rows(inner, LENGTHS))


def _uniform(ctype: ColumnType, data: bytes, limits: Sequence[int]) -> Array | None:
    """Decode a column whose records all have the expected head at once."""
    head = array_head(ctype.dtype, ctype.tail)
    count = len(limits) - 1
    size = len(head) + math.prod(ctype.tail) * ctype.dtype.itemsize
    if len(data) != count * size or list(limits) != list(range(0, count * size + 1, size)):
        return None
    records = np.frombuffer(data, np.uint8).reshape(count, size)
    if not (records[:, : len(head)] == np.frombuffer(head, np.uint8)).all():
        return None
    body = np.ascontiguousarray(records[:, len(head) :]).reshape(-1)
    return body.view(ctype.dtype).reshape(count, *ctype.tail)


def _checked(value: Any, ctype: ColumnType) -> Array:
    leading = value.shape[: ctype.num_ragged]
    if value.dtype != ctype.dtype or len(leading) != ctype.num_ragged or value.shape != leading + ctype.tail:
        raise ValueError(f"{value.dtype} {list(value.shape)}, the schema has {ctype}")
    return value  # type: ignore[no-any-return]


def _from_tree(tree: Any, ctype: ColumnType) -> Array:
    """Convert the value of a tree record to a plain or structured array."""
    if ctype.dtype.names is None:
        if not isinstance(tree, np.ndarray):
            raise ValueError(f"no array, the schema has {ctype}")
        return _checked(tree, ctype)
    leaf = tree
    depth = ctype.dtype
    while isinstance(leaf, dict) and depth.names:
        first = depth.names[0]
        leaf, depth = leaf.get(first), depth[first].base
    if not isinstance(leaf, np.ndarray):
        raise ValueError(f"no arrays of fields, the schema has {ctype}")
    shape = (*leaf.shape[: ctype.num_ragged], *ctype.tail)
    array = np.zeros(shape, ctype.dtype)
    _fill_fields(array, tree)
    return array


def _fill_fields(array: Array, tree: Any) -> None:
    names = array.dtype.names or ()
    if not isinstance(tree, dict) or list(tree) != list(names):
        raise ValueError(f"fields {list(tree) if isinstance(tree, dict) else tree!r}, not {list(names)}")
    for name in names:
        field, value = array[name], tree[name]
        if field.dtype.names is not None:
            _fill_fields(field, value)
        elif not isinstance(value, np.ndarray) or (value.dtype, value.shape) != (field.dtype, field.shape):
            raise ValueError(f"field {name} is not {field.dtype} {list(field.shape)}")
        else:
            field[...] = value


def metas_from(data: bytes, limits: Sequence[int], types: Mapping[str, ColumnType]) -> dict[str, Values]:
    """The columns of `meta` records.

    Raises:
        ValueError: a record is no map, lacks a name, or holds something else.
    """
    rows = [decode_msgpack(data[a:b]) for a, b in itertools.pairwise(limits)]
    found: dict[str, Values] = {}
    for name, ctype in types.items():
        kind = bool if ctype.dtype.kind == "b" else int
        try:
            values = [row[name] for row in rows]
        except (TypeError, KeyError) as error:
            raise ValueError(f"no {name}") from error
        if any(type(value) is not kind for value in values):
            raise ValueError(f"{name} is no {ctype}")
        try:
            found[name] = np.array(values, ctype.dtype)
        except OverflowError as error:
            raise ValueError(f"{name} is no {ctype}") from error
    return found
