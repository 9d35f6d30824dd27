"""Conversion of Arrow columns, of Parquet files and Lance tables, to columns of logloom.

Here: `columns_of` for types, `raw_columns` for values, and `typed_values` for values of known types.
Elsewhere: opening files (logloom.io.formats), the inverse (arrays).

Numbers, text, bytes and lists keep their types; times are int64 ns; a struct of numbers is a structured
value, any other struct a column for each field (`image.bytes`). A null is a row without a value: NaN, NaT
(its bits, in int64), 0 or empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logloom.blocks import Array, Ragged, Values, fill_missing
from logloom.errors import UsageError
from logloom.io.rows.inference.types import RawColumn
from logloom.schema import BYTES, STRING, ColumnType
from logloom.values import dataclass

_NAT = np.iinfo(np.int64).min  # numpy's missing time, as int64
_NULL_WITHIN = "a null within a list or struct"
_TWICE = "the name occurs twice; rename one"


@dataclass(frozen=True)
class ArrowColumn:
    """A column of a table.

    Attributes:
        name: fields of structs are joined by dots.
        path: from the table's column down to a struct's field.
        ctype: None if the shape depends on values (lists of text, lists of lists).
        problem: why it can't be read, or "".
    """

    name: str
    path: tuple[str, ...]
    type: pa.DataType
    ctype: ColumnType | None
    problem: str = ""


def columns_of(schema: pa.Schema) -> list[ArrowColumn]:
    """Return the columns of a table, including unreadable ones."""
    found: list[ArrowColumn] = []
    twice = _repeated(schema.names)
    for field in schema:
        try:
            if field.name in twice:
                raise ValueError(_TWICE)
            found += _columns(field, (field.name,))
        except ValueError as error:
            found.append(ArrowColumn(field.name, (field.name,), field.type, None, str(error)))
    # A struct's field may have the same name as another column.
    same = _repeated(column.name for column in found)
    return [
        replace(column, problem=_TWICE) if column.name in same and not column.problem else column
        for column in found
    ]


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def chosen(columns: Sequence[ArrowColumn], names: Sequence[str] | None, place: str) -> list[ArrowColumn]:
    """Return the columns of these names; None for all.

    Raises:
        UsageError: one of them can't be read; lists all of them.
    """
    found = [column for column in columns if names is None or column.name in names]
    problems = [f"{place}: column {column.name}: {column.problem}" for column in found if column.problem]
    if problems:
        raise UsageError("\n".join(dict.fromkeys(problems)))
    return found


def _columns(field: pa.Field, path: tuple[str, ...]) -> Iterator[ArrowColumn]:
    kind = _storage(field.type)
    if pa.types.is_struct(kind) and not _is_plain(kind):
        if twice := _repeated(inner.name for inner in kind):
            raise ValueError(f"{', '.join(sorted(twice))}: {_TWICE}")
        for inner in kind:
            yield from _columns(inner, (*path, inner.name))
        return
    ctype = _ctype(field.type)
    if ctype is not None and field.metadata:
        metadata = {key.decode("utf-8", "replace"): text for key, text in field.metadata.items()}
        texts = {
            key: metadata[key].decode("utf-8", "replace")
            for key in ("unit", "description")
            if key in metadata
        }
        ctype = replace(ctype, **texts)
    yield ArrowColumn(".".join(path), path, field.type, ctype)


def _storage(kind: pa.DataType) -> pa.DataType:
    """Return the storage type of an extension type.

    Raises:
        ValueError: their axes are permuted.
    """
    if isinstance(kind, pa.FixedShapeTensorType) and list(order := kind.permutation or ()) != sorted(order):
        raise ValueError(
            f"a tensor whose axes are permuted {order}; transpose it, or leave it out by --columns"
        )
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether values have a numpy dtype of fixed size: numbers, fixed lists and structs of these."""
    try:
        _element(kind)
    except ValueError:
        return False
    return True


def _ctype(kind: pa.DataType) -> ColumnType | None:
    if isinstance(kind, pa.FixedShapeTensorType):
        base, _ = _element(kind.value_type)
        return ColumnType(base, tuple(kind.shape))
    kind = _storage(kind)
    if _is_text(kind):
        return STRING
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return BYTES
    if is_list(kind):
        inner = _storage(kind.value_type)
        if _is_text(inner) or is_list(inner):
            return None
        base, shape = _element(inner)
        return ColumnType(base, (None, *shape), unit=_unit(inner))
    base, shape = _element(kind)
    return ColumnType(base, shape, unit=_unit(kind))


def _unit(kind: pa.DataType) -> str:
    return "ns" if _is_time(_storage(kind)) else ""


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_time(kind: pa.DataType) -> bool:
    """Whether elements are times, such as those of a fixed list."""
    while pa.types.is_fixed_size_list(kind):
        kind = _storage(kind.value_type)
    return bool(pa.types.is_temporal(kind))


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists of unknown length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _element(kind: pa.DataType) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """dtype and shape of values of fixed size.

    Raises:
        ValueError: not supported.
    """
    kind = _storage(kind)
    if pa.types.is_fixed_size_list(kind):
        base, shape = _element(kind.value_type)
        return base, (kind.list_size, *shape)
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise ValueError("a struct without fields")
        return np.dtype([(field.name, *_element(field.type)) for field in kind]), ()
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return np.dtype("<i8"), ()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.dtype(kind.to_pandas_dtype()), ()
    raise ValueError(f"{kind} has no counterpart; cast it, or leave it out by --columns")


def raw_columns(batch: pa.RecordBatch, columns: Sequence[ArrowColumn]) -> dict[str, RawColumn]:
    """Read the values of some rows.

    Raises:
        ValueError: a null within a list or struct, lists of lists that aren't arrays, a text in a list that
            ends in zeros, a time out of range, or a missing column.
    """
    found = {}
    for column in columns:
        index = batch.schema.get_field_index(column.path[0])
        if index < 0:
            raise ValueError(f"{column.name}: not there, or there twice")
        array = batch.column(index)
        for name in column.path[1:]:
            # Not `field`: a null struct's fields are nulls.
            array = pc.struct_field(array, name)
        try:
            found[column.name] = _raw(array, column)
        except (ValueError, pa.ArrowException) as error:
            raise ValueError(f"{column.name}: {error}") from error
    return found


def _raw(array: Any, column: ArrowColumn) -> RawColumn:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()  # whose values may be null, as well
    available = np.asarray(array.is_valid()) if array.null_count else None
    ctype = column.ctype
    if ctype is None:
        rows, loosest = _nested(array)
        return RawColumn(rows, None, True, available, loosest=loosest)
    if ctype.kind == "string":
        texts = array.cast(pa.large_string())
        if column.name == "log_id":  # compared, not only stored
            return RawColumn(texts.to_pylist(), ctype, False, available)
        return RawColumn(_joined(texts.cast(pa.large_binary())), ctype, False, available)
    if ctype.kind == "bytes":
        return RawColumn(_joined(array.cast(pa.large_binary())), ctype, False, available)
    if ctype.is_ragged:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        inner = _numbers(array.flatten(), ctype.dtype, ctype.tail)
        return RawColumn(Ragged(inner, lengths), ctype, False, available)
    if available is not None and pa.types.is_struct(array.type):
        array = array.fill_null(_zeros(array.type))
    values = _numbers(array, ctype.dtype, ctype.tail, nulls=True)
    if available is not None:
        values = values.copy()
        missing = values[~available]
        fill_missing(missing)
        values[~available] = _NAT if _is_time(array.type) else missing
    return RawColumn(values, ctype, False, available)


def typed_values(array: Any, ctype: ColumnType) -> Values:
    """Return the values of a column that `stored_array` made (logloom.io.arrow.arrays), bit by bit.

    Raises:
        ValueError: a null, a shape that doesn't fit the elements, a text longer than the type is wide.
    """
    if array.null_count:
        raise ValueError("a null where each row has a value")
    if ctype.num_ragged < 2:
        return _raw(array, ArrowColumn("", (), array.type, ctype)).values  # type: ignore[return-value]
    data, sizes = pc.struct_field(array, "data"), pc.struct_field(array, "shape")
    if data.null_count:
        raise ValueError(_NULL_WITHIN)
    shapes = _numbers(sizes, np.dtype("<i4"), (len(ctype.shape),)).astype(np.int64)
    lengths = pc.list_value_length(data).to_numpy(zero_copy_only=False)
    if (shapes < 0).any() or (shapes[:, ctype.num_ragged :] != ctype.tail).any():
        raise ValueError(f"a shape that is none of {ctype}")
    if (shapes.astype(np.float64).prod(axis=1) != lengths).any():
        raise ValueError("a shape that doesn't fit its elements")
    elements = _numbers(data.flatten(), ctype.dtype, ()).reshape(-1, *ctype.tail)
    return Ragged(elements, shapes[:, : ctype.num_ragged])


def _nested(array: Any) -> tuple[list[Array | None], ColumnType]:
    """Convert lists of lists, or of text, to an array per row; None if a row has no inner lists.

    Returns:
        The rows, and the type of any such rows.

    Raises:
        ValueError: lists that aren't arrays, or a null within one.
    """
    lengths: list[Array] = []
    bounds: list[Array] = []
    while is_list(array.type):
        if lengths and array.null_count:
            raise ValueError(_NULL_WITHIN)
        own = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        lengths.append(own)
        bounds.append(np.concatenate([[0], np.cumsum(own)]))
        array = array.flatten()
        array = array.storage if isinstance(array, pa.ExtensionArray) else array
    is_text = _is_text(array.type)
    leaves = _texts(array, np.dtype("U")) if is_text else _numbers(array, *_element(array.type))
    rows = _nested_rows(lengths, bounds, leaves)
    shape = (None,) * len(lengths) + leaves.shape[1:]
    return rows, ColumnType(leaves.dtype, shape, unit=_unit(array.type))


def _nested_rows(lengths: Sequence[Array], bounds: Sequence[Array], leaves: Array) -> list[Array | None]:
    """Convert the lists of each row to an array.

    Args:
        lengths, bounds: of the lists of each level: number of items, and their start.
    """
    low = np.arange(len(lengths[0]))
    high = low + 1
    shapes = np.zeros((len(low), len(lengths)), np.int64)
    for level, (own, ends) in enumerate(zip(lengths, bounds, strict=True)):
        counts = high - low
        shapes[counts > 0, level] = own[low[counts > 0]]
        if (own != np.repeat(shapes[:, level], counts)).any():
            raise ValueError("lists of lists that make no array, since their lengths differ")
        low, high = ends[low], ends[high]
    tail = leaves.shape[1:]
    return [
        leaves[first:stop].reshape(*shape, *tail) if shape[0] else None
        for first, stop, shape in zip(low.tolist(), high.tolist(), shapes.tolist(), strict=True)
    ]


def _joined(array: Any) -> Ragged:
    """Return text or bytes of all rows concatenated; nulls are empty."""
    if array.null_count:
        array = array.fill_null(b"")
    offsets = np.frombuffer(array.buffers()[1], "<i8")[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    values = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return Ragged(values[offsets[0] : offsets[-1]], np.diff(offsets))


def _zeros(kind: pa.DataType) -> Any:
    def zero(inner: pa.DataType) -> Any:
        if pa.types.is_struct(inner):
            return {field.name: zero(field.type) for field in inner}
        if pa.types.is_fixed_size_list(inner):
            return [zero(inner.value_type)] * inner.list_size
        return False if pa.types.is_boolean(inner) else 0

    return pa.scalar(zero(kind), kind)


def _numbers(array: Any, dtype: np.dtype[Any], shape: tuple[int, ...], nulls: bool = False) -> Array:
    """(n, *shape) values of fixed size.

    Args:
        nulls: whether rows may be null; their values are arbitrary.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if array.null_count and not nulls:
        raise ValueError(_NULL_WITHIN)
    if 0 in shape:
        return np.zeros((len(array), *shape), dtype)
    if pa.types.is_fixed_size_list(kind):
        start, size = array.offset, kind.list_size
        inner = array.values.slice(start * size, len(array) * size)
        rest = shape[1:] if shape[:1] == (size,) else shape
        held = np.repeat(np.asarray(array.is_valid()), size)
        if inner.null_count and not np.asarray(inner.is_valid())[held].all():
            raise ValueError(_NULL_WITHIN)
        return _numbers(inner, dtype, rest, nulls=True).reshape(len(array), *shape)
    if pa.types.is_struct(kind):
        return _structured(array, dtype)
    if _is_text(kind):
        return _texts(array, dtype)
    if pa.types.is_temporal(kind):
        array = _nanoseconds(array)
    if array.null_count:
        # Arrow can't fill halves; a null's bits exist, with arbitrary values.
        kind = array.type
        zero = pa.scalar(np.float16(0), kind) if pa.types.is_float16(kind) else pa.scalar(0).cast(kind)
        array = pc.if_else(array.is_valid(), array, zero)
    found: Array = array.to_numpy(zero_copy_only=False)
    return found.astype(found.dtype.newbyteorder("<"), copy=False)


def _structured(array: Any, dtype: np.dtype[Any]) -> Array:
    """(n,) structured values, or complex ones."""
    values = np.zeros(len(array), dtype)
    if dtype.kind == "c":
        part = np.dtype(f"<f{dtype.itemsize // 2}")
        values.real = _numbers(pc.struct_field(array, "real"), part, ())
        values.imag = _numbers(pc.struct_field(array, "imag"), part, ())
        return values
    for name in dtype.names or ():
        base, shape = dtype[name].subdtype or (dtype[name], ())
        values[name] = _numbers(pc.struct_field(array, name), base, shape)
    return values


def _texts(array: Any, dtype: np.dtype[Any]) -> Array:
    """(n,) texts of a width; of the widest if the dtype has none."""
    texts = array.to_pylist()
    if None in texts:
        raise ValueError(_NULL_WITHIN)
    if dtype.itemsize and any(len(text) > dtype.itemsize // 4 for text in texts):
        raise ValueError(f"a text of more than {dtype.itemsize // 4} characters")
    if not dtype.itemsize and any(text.endswith("\0") for text in texts):
        raise ValueError("a text in a list that ends in a zero character, which arrays don't keep")
    return np.array(texts, dtype)


def _nanoseconds(array: Any) -> Any:
    """Convert times and durations to int64 ns; those out of range are an error."""
    kind = array.type
    if pa.types.is_date(kind):
        array = array.cast(pa.timestamp("ns"))
    elif pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("ns", kind.tz))
    elif pa.types.is_duration(kind):
        array = array.cast(pa.duration("ns"))
    elif pa.types.is_time(kind):
        array = array.cast(pa.time64("ns"))
    return array.cast(pa.int64())
