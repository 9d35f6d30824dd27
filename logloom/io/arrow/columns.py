"""Conversion of Arrow columns (Parquet, Lance) to columns of a dataset.

Here: `columns_of` for types, `raw_columns` for values, and `typed_values` for values of known types.
Elsewhere: opening files (logloom.io.formats), the inverse (arrays).

Numbers, text, bytes and lists (of lists) keep their types; times are int64 ns; decimals float64 or int64; a
dictionary is its values, a map a list of pairs; a struct of numbers is a structured value, any other struct a
column for each field (`image.bytes`). docs/parquet.md has the table of types. A null is a row without a
value: NaN, NaT (its bits, in int64), 0 or empty. Within lists and structs a null is NaN or NaT; where the
type has neither, the column can't be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logloom.blocks import Array, Lists, Ragged, Values, fill_missing
from logloom.io.rows.inference.types import RawColumn
from logloom.schema import BYTES, STRING, ColumnType
from logloom.values import dataclass

_NAT = int(np.iinfo(np.int64).min)  # numpy's missing time, as int64
_INT64_DIGITS = 18  # of a decimal, all of which int64 holds
_NULL_WITHIN = "a null within a list or struct"
_TWICE = "the name occurs twice; rename one"


@dataclass(frozen=True)
class ArrowColumn:
    """A column of a table.

    Attributes:
        name: fields of structs are joined by dots.
        path: from the table's column down to a struct's field.
        type: as `plain_type` gives it.
        ctype: None if the type depends on values (lists of text or of lists, nothing but nulls).
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
    return _unique(found)


def _unique(columns: Sequence[ArrowColumn]) -> list[ArrowColumn]:
    """Columns, with a problem where two have one name, such as a struct's field and another column."""
    same = _repeated(column.name for column in columns)
    return [
        replace(column, problem=_TWICE) if column.name in same and not column.problem else column
        for column in columns
    ]


def without_name(columns: Sequence[ArrowColumn], name: str) -> list[ArrowColumn]:
    """Return columns in which one of a name, in lower or upper case, has another name, with `_` appended.

    >>> schema = pa.schema({"split": pa.string(), "x": pa.int8()})
    >>> [column.name for column in without_name(columns_of(schema), "split")]
    ['split_', 'x']
    """
    found = []
    for column in columns:
        root, dot, rest = column.name.partition(".")
        found.append(replace(column, name=f"{root}_{dot}{rest}") if root.lower() == name else column)
    return _unique(found)


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _columns(field: pa.Field, path: tuple[str, ...]) -> Iterator[ArrowColumn]:
    field = field.with_type(plain_type(field.type))
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


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of an array that `plain_array` gives: without decimals, dictionaries, maps and views.

    >>> plain_type(pa.list_(pa.decimal128(9, 2))), plain_type(pa.dictionary(pa.int8(), pa.string()))
    (ListType(list<item: double>), DataType(string))
    """
    if isinstance(kind, pa.BaseExtensionType):
        inner = plain_type(kind.storage_type)
        return kind if inner == kind.storage_type else inner
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_decimal(kind):
        fits = kind.scale <= 0 and kind.precision - kind.scale <= _INT64_DIGITS
        return pa.int64() if fits else pa.float64()
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
    if pa.types.is_map(kind):
        return pa.list_(
            pa.struct([("key", plain_type(kind.key_type)), ("value", plain_type(kind.item_type))])
        )
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)), kind.list_size)
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(kind.value_field.with_type(plain_type(kind.value_type)))
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    return kind


def plain_array(array: Any) -> Any:
    """Convert an array to its `plain_type`; decimals to the nearest number.

    >>> pairs = pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8()))
    >>> plain_array(pairs).to_pylist()
    [[{'key': 'a', 'value': 1}], None]
    """
    kind, target = array.type, plain_type(array.type)
    if kind == target:
        return array
    if isinstance(array, pa.ExtensionArray):
        return plain_array(array.storage)
    if pa.types.is_dictionary(kind):
        return plain_array(array.dictionary_decode())  # whose values may be null, as well
    if pa.types.is_run_end_encoded(kind):
        return plain_array(pc.run_end_decode(array))
    if pa.types.is_decimal(kind) and pa.types.is_floating(target):
        return array.cast(pa.string()).cast(target)  # which rounds once; from decimals, Arrow rounds twice
    mask = array.is_null()
    if pa.types.is_struct(kind):
        parts = [plain_array(array.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        inner = plain_array(array.values.slice(array.offset * size, len(array) * size))
        return pa.FixedSizeListArray.from_arrays(inner, type=target, mask=mask)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        of_lists = pa.large_list if pa.types.is_large_list_view(kind) else pa.list_
        return plain_array(lists_of_views(array).cast(of_lists(kind.value_field)))
    if pa.types.is_map(kind):
        inner = pa.StructArray.from_arrays(
            [plain_array(array.keys), plain_array(array.items)], fields=list(target.value_type)
        )
    elif is_list(kind):
        inner = plain_array(array.values)
    else:
        return array.cast(target)
    made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    # A copy: Arrow takes no mask beside offsets that are a slice.
    return made.from_arrays(pa.array(array.offsets.to_numpy()), inner, type=target, mask=mask)


def lists_of_views(array: Any) -> Any:
    """Convert list views to large lists; a cast of Arrow 25 gives some of them negative lengths.

    >>> lists_of_views(pa.array([[1, 2], None, [3]], pa.list_view(pa.int8()))).to_pylist()
    [[1, 2], None, [3]]
    """
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return pa.LargeListArray.from_arrays(offsets, array.flatten(), mask=array.is_null())


def _storage(kind: pa.DataType) -> pa.DataType:
    """Return the storage type of an extension type.

    Raises:
        ValueError: their axes are permuted.
    """
    if isinstance(kind, pa.FixedShapeTensorType) and list(order := kind.permutation or ()) != sorted(order):
        raise ValueError(f"a tensor whose axes are permuted {order}; transpose it")
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
    if pa.types.is_null(kind):
        return None
    inner = _storage(kind.value_type) if is_list(kind) else kind
    if is_list(inner):
        while is_list(inner):
            inner = _storage(inner.value_type)
        _element(inner, by_values=True)
        return None
    try:
        base, shape = _element(inner)
    except ValueError:
        _element(inner, by_values=True)
        return None
    return ColumnType(base, (None, *shape) if is_list(kind) else shape, unit=_unit(inner))


def _unit(kind: pa.DataType) -> str:
    return "ns" if _is_time(_storage(kind)) else ""


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_time(kind: pa.DataType) -> bool:
    """Whether elements are times, such as those of a fixed list."""
    while pa.types.is_fixed_size_list(kind):
        kind = _storage(kind.value_type)
    return bool(pa.types.is_temporal(kind))


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists of unknown length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _element(kind: pa.DataType, by_values: bool = False) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """dtype and shape of values of fixed size.

    Args:
        by_values: whether text is one, which is as wide as the widest value, and nothing but nulls.

    Raises:
        ValueError: not supported.
    """
    kind = _storage(kind)
    if pa.types.is_fixed_size_list(kind):
        base, shape = _element(kind.value_type, by_values)
        return base, (kind.list_size, *shape)
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise ValueError("a struct without fields")
        if twice := _repeated(field.name for field in kind):
            raise ValueError(f"{', '.join(sorted(twice))}: {_TWICE}")
        return np.dtype([(field.name, *_element(field.type, by_values)) for field in kind]), ()
    if by_values and (_is_text(kind) or pa.types.is_null(kind)):
        return np.dtype("<U1" if _is_text(kind) else "<f8"), ()
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return np.dtype("<i8"), ()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.dtype(kind.to_pandas_dtype()), ()
    raise ValueError(f"{kind} has no counterpart; cast it")


def raw_columns(batch: pa.RecordBatch, columns: Sequence[ArrowColumn]) -> dict[str, RawColumn]:
    """Read the values of some rows; columns that can't be read have the reason instead.

    Raises:
        ValueError: a missing column.
    """
    found: dict[str, RawColumn] = {}
    roots: dict[str, Any] = {}
    for column in columns:
        if column.problem:
            found[column.name] = RawColumn([None] * len(batch), problem=column.problem)
            continue
        root = column.path[0]
        if root not in roots:
            index = batch.schema.get_field_index(root)
            if index < 0:
                raise ValueError(f"{column.name}: not there, or there twice")
            roots[root] = batch.column(index)
        try:
            array = plain_array(roots[root])
            for name in column.path[1:]:
                array = array.storage if isinstance(array, pa.ExtensionArray) else array
                # Not `field`: a null struct's fields are nulls.
                array = pc.struct_field(array, name)
            found[column.name] = _raw(array, column)
        except (ValueError, pa.ArrowException) as error:
            found[column.name] = RawColumn([None] * len(batch), problem=str(error))
    return found


def _raw(array: Any, column: ArrowColumn, is_strict: bool = False) -> RawColumn:
    """
    Args:
        is_strict: whether a null within lists and structs is an error, even where there is NaN or NaT.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    available = np.asarray(array.is_valid()) if array.null_count else None
    ctype = column.ctype
    if ctype is None:
        return _raw_by_values(array, available)
    if ctype.kind == "string":
        texts = array.cast(pa.large_string())
        if column.name == "log_id":  # compared, not only stored
            return RawColumn(texts.to_pylist(), ctype, False, available)
        return RawColumn(_joined(texts.cast(pa.large_binary())), ctype, False, available)
    if ctype.kind == "bytes":
        return RawColumn(_joined(array.cast(pa.large_binary())), ctype, False, available)
    if ctype.kind == "lists":
        return RawColumn(_lists(array, ctype, is_strict), ctype, False, available)
    if ctype.is_ragged:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        inner = _numbers(array.flatten(), ctype.dtype, ctype.tail, is_strict)
        return RawColumn(Ragged(inner, lengths), ctype, False, available)
    if available is None:
        return RawColumn(_numbers(array, ctype.dtype, ctype.tail, is_strict), ctype)
    values = np.empty((len(array), *ctype.tail), ctype.dtype)
    _fill_missing(values, array.type)
    values[available] = _numbers(array.drop_null(), ctype.dtype, ctype.tail, is_strict)
    return RawColumn(values, ctype, False, available)


def _lists(array: Any, ctype: ColumnType, is_strict: bool) -> Lists:
    """Lists of lists; null rows are empty.

    Raises:
        ValueError: a null within one.
    """
    counts = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    inner = array.flatten()
    if inner.null_count:
        raise ValueError(_NULL_WITHIN)
    lengths = pc.list_value_length(inner).to_numpy(zero_copy_only=False)
    return Lists(_numbers(inner.flatten(), ctype.dtype, ctype.tail, is_strict), counts, lengths)


def _raw_by_values(array: Any, available: NDArray[np.bool_] | None) -> RawColumn:
    """Rows whose type depends on values: lists of lists or of text, nothing but nulls."""
    if pa.types.is_null(array.type):
        nothing = np.zeros(len(array), np.bool_)
        return RawColumn([None] * len(array), None, False, nothing, loosest=ColumnType(np.dtype("<f8")))
    if is_list(array.type):
        found, loosest = _nested(array)
        return RawColumn(found, None, True, available, loosest=loosest)
    base, shape = _element(array.type, by_values=True)
    values = iter(_leaves(array.drop_null()))
    rows = [next(values) if valid else None for valid in np.asarray(array.is_valid())]
    return RawColumn(rows, None, False, available, loosest=ColumnType(base, shape))


def _fill_missing(values: Array, kind: pa.DataType) -> None:
    """Fill rows with the value of "not usable", which of times is NaT's bits."""
    kind = _storage(kind)
    if pa.types.is_fixed_size_list(kind):
        _fill_missing(values, kind.value_type)
    elif pa.types.is_struct(kind) and values.dtype.names is not None:
        for field in kind:
            _fill_missing(values[field.name], field.type)
    elif pa.types.is_temporal(kind):
        values[...] = _NAT
    else:
        fill_missing(values)


def typed_values(array: Any, ctype: ColumnType) -> Values:
    """Return the values of a column that `stored_array` made (logloom.io.arrow.arrays), bit by bit.

    Raises:
        ValueError: a null, a shape that doesn't fit the elements, a text longer than the type is wide.
    """
    if array.null_count:
        raise ValueError("a null where each row has a value")
    if ctype.num_ragged < 2 or ctype.kind == "lists":
        return _raw(array, ArrowColumn("", (), array.type, ctype), True).values  # type: ignore[return-value]
    data, sizes = pc.struct_field(array, "data"), pc.struct_field(array, "shape")
    if data.null_count:
        raise ValueError(_NULL_WITHIN)
    shapes = _numbers(sizes, np.dtype("<i4"), (len(ctype.shape),), True).astype(np.int64)
    lengths = pc.list_value_length(data).to_numpy(zero_copy_only=False)
    if (shapes < 0).any() or (shapes[:, ctype.num_ragged :] != ctype.tail).any():
        raise ValueError(f"a shape that is none of {ctype}")
    if (shapes.astype(np.float64).prod(axis=1) != lengths).any():
        raise ValueError("a shape that doesn't fit its elements")
    elements = _numbers(data.flatten(), ctype.dtype, (), True).reshape(-1, *ctype.tail)
    return Ragged(elements, shapes[:, : ctype.num_ragged])


def _nested(array: Any) -> tuple[list[Array | None] | Lists, ColumnType]:
    """Convert lists of lists, or of text, to an array per row; None if a row has no inner lists.

    Returns:
        The rows, as `Lists` where lists of two levels make no arrays, and the type of any such rows.

    Raises:
        ValueError: lists of more levels that make no arrays, or a null within one.
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
    leaves = _leaves(array)
    rows: list[Array | None] | Lists | None = _nested_rows(lengths, bounds, leaves)
    if rows is None and len(lengths) == 2:
        rows = Lists(leaves, *lengths)
    if rows is None:
        raise ValueError("lists of lists that make no array, since their lengths differ")
    shape = (None,) * len(lengths) + leaves.shape[1:]
    return rows, ColumnType(leaves.dtype, shape, unit=_unit(array.type))


def _nested_rows(
    lengths: Sequence[Array], bounds: Sequence[Array], leaves: Array
) -> list[Array | None] | None:
    """Convert the lists of each row to an array; None where they make none.

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
            return None
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


def _leaves(array: Any) -> Array:
    """(n, *shape) elements of any lists; texts are as wide as the widest."""
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    kind = array.type
    if _is_text(kind):
        return _texts(array, np.dtype("U"))
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if _is_plain(kind):
        return _numbers(array, *_element(kind))
    if array.null_count:
        raise ValueError(_NULL_WITHIN)
    if pa.types.is_fixed_size_list(kind):
        inner = _leaves(array.flatten())
        return inner.reshape(len(array), kind.list_size, *inner.shape[1:])
    parts = {field.name: _leaves(pc.struct_field(array, field.name)) for field in kind}
    dtype = np.dtype([(name, part.dtype, part.shape[1:]) for name, part in parts.items()])
    values = np.empty(len(array), dtype)
    for name, part in parts.items():
        values[name] = part
    return values


def _numbers(array: Any, dtype: np.dtype[Any], shape: tuple[int, ...], is_strict: bool = False) -> Array:
    """(n, *shape) values of fixed size; a null is NaN or NaT's bits.

    Args:
        is_strict: whether a null is an error even there.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    is_time = pa.types.is_temporal(kind)
    if array.null_count and (is_strict or not (is_time or pa.types.is_floating(kind))):
        raise ValueError(_NULL_WITHIN)
    if 0 in shape:
        return np.zeros((len(array), *shape), dtype)
    if pa.types.is_fixed_size_list(kind):
        rest = shape[1:] if shape[:1] == (kind.list_size,) else shape
        return _numbers(array.flatten(), dtype, rest, is_strict).reshape(len(array), *shape)
    if pa.types.is_struct(kind):
        return _structured(array, dtype, is_strict)
    if _is_text(kind):
        return _texts(array, dtype)
    if is_time:
        array = pc.fill_null(_nanoseconds(array), _NAT)
    found: Array = array.to_numpy(zero_copy_only=False)
    return found.astype(found.dtype.newbyteorder("<"), copy=False)


def _structured(array: Any, dtype: np.dtype[Any], is_strict: bool) -> Array:
    """(n,) structured values, or complex ones."""
    values = np.zeros(len(array), dtype)
    if dtype.kind == "c":
        part = np.dtype(f"<f{dtype.itemsize // 2}")
        values.real = _numbers(pc.struct_field(array, "real"), part, (), is_strict)
        values.imag = _numbers(pc.struct_field(array, "imag"), part, (), is_strict)
        return values
    for name in dtype.names or ():
        base, shape = dtype[name].subdtype or (dtype[name], ())
        values[name] = _numbers(pc.struct_field(array, name), base, shape, is_strict)
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
