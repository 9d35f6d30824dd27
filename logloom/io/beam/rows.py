"""Group rows of a pipeline into blocks, and convert blocks to rows.

Here: `GroupRows`, from dicts or `beam.Row`s to blocks; `to_rows`, from blocks to `beam.Row`s.
Elsewhere: blocks of datasets (logloom.io.beam.read), of logs (logloom.transforms.beam.read_logs), and into
datasets (logloom.io.beam.write).
"""

from __future__ import annotations

import contextlib
import itertools
import keyword
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Optional

import numpy as np

from logloom.blocks import Array, Block, Lists, Ragged, Values, python_value
from logloom.durations import Time, nanoseconds_of
from logloom.errors import DatasetError, UsageError
from logloom.extras import beam_needed
from logloom.metrics import count
from logloom.schema import MAX_TIME, MIN_TIME, ColumnType, Schema
from logloom.text import near_to, shortened, some_of

with beam_needed():
    import apache_beam as beam
    from apache_beam.transforms.display import DisplayDataItem
    from apache_beam.transforms.window import GlobalWindows
    from apache_beam.typehints.row_type import RowTypeConstraint

KEYS = ("log_id", "timestamp")
# Of the types that Beam has, the narrowest that holds all values. Its BYTE refuses negative numbers.
_BEAM_TYPES: dict[np.dtype[Any], Any] = {
    np.dtype(dtype): beam_type
    for dtypes, beam_type in (
        ("?", bool),
        ("i1 u1 i2", np.int16),
        ("u2 i4", np.int32),
        ("u4 i8", np.int64),
        ("f2 f4", np.float32),
        ("f8", np.float64),
    )
    for dtype in dtypes.split()
}


def field_of(column: str) -> str:
    """The name of a column in Beam's rows and in dataframes, where names have no dots.

    Args:
        column: its name.

    >>> field_of("camera.front"), field_of("class"), field_of("3d-boxes")
    ('camera__front', 'class_', 'c3d_boxes')
    """
    name = re.sub(r"\W", "_", column.replace(".", "__"), flags=re.ASCII)
    if not name[:1].isalpha():
        name = f"c{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


# --- rows to blocks ---------------------------------------------------------------------------------------

# A value is its bytes, with its shape where rows differ in length: Beam writes these fast, and they are equal
# if the values are.
_Value = bytes | tuple[tuple[int, ...], bytes]
_PACKERS: dict[tuple[type, np.dtype[Any]], Callable[[Any], bytes]] = {
    (of, np.dtype(f"<{code}")): struct.Struct(f"<{form}").pack
    for of, codes, forms in ((float, "f2 f4 f8", "efd"), (int, "i1 u1 i2 u2 i4 u4 i8 u8", "bBhHiIqQ"))
    for code, form in zip(codes.split(), forms, strict=True)
}
_Row = tuple[int, tuple[_Value, ...]]  # its timestamp, and its values in the order of the schema


@beam.typehints.with_output_types(Block)
class GroupRows(beam.PTransform):
    """Loose rows to blocks, by timestamp within each log. The rows themselves cross a shuffle.

    A row is a dict, or a `beam.Row` or named tuple, of log_id, timestamp and every column of the schema; ages
    and availabilities, too, as nothing in a row implies them (`Schema(schema.columns)` has none). Columns
    have their own names, or those of `to_rows`. Numpy's values keep their type, or become one that holds all
    of its values; Python's become any type that holds the value, floats rounded. None is NaN in a column of
    single floats, as in Beam's dataframes. Rows with equal timestamps and equal values count once.
    """

    def __init__(self, schema: Schema, span: Time = "1min"):
        """Chooses the blocks.

        Args:
            schema: of the rows.
            span: rows of a log within one such span, counted from the epoch, make a block, which a worker
                has in memory: "1min", or a number of seconds.

        Raises:
            UsageError: the span isn't positive.

        Examples:
            >>> import apache_beam as beam
            >>> rows = [{"log_id": "drive", "timestamp": stamp, "speed": stamp / 10} for stamp in (20, 10)]
            >>> with beam.Pipeline() as pipeline:
            ...     grouped = pipeline | beam.Create(rows) | GroupRows(Schema({"speed": ColumnType("<f4")}))
            ...     _ = grouped | beam.Map(lambda block: print(block.columns["speed"]))
            [1. 2.]
        """
        super().__init__()
        if not isinstance(schema, Schema):
            raise UsageError(f"GroupRows: {schema!r}: must be a Schema, such as Schema({{'speed': …}})")
        self._schema, self._span = schema, nanoseconds_of(span, "GroupRows: span")
        if not self._span:
            raise UsageError("GroupRows: span: not positive; pass a length of time such as '1min'")

    def expand(self, rows: Any) -> Any:
        if not getattr(rows, "is_bounded", True):
            raise UsageError("GroupRows: a block is whole once its rows have ended; the input is unbounded")
        known = _known(self._schema)
        return (
            rows
            | "IntoOneWindow" >> beam.WindowInto(GlobalWindows())
            | "KeyBySpan" >> beam.Map(_by_span, self._schema, known, self._span)
            | "Group" >> beam.GroupByKey()
            | "MakeBlock" >> beam.Map(_to_block, self._schema, self._span)
        )

    def display_data(self) -> dict[str, Any]:
        return {
            "span": DisplayDataItem(f"{self._span / 1e9:g} s", label="Span of a block"),
            "columns": DisplayDataItem(", ".join(self._schema.columns), label="Columns"),
        }


def _known(schema: Schema) -> dict[str, str]:
    """Columns by the names that they may have in rows."""
    return {field_of(name): name for name in schema.all} | {name: name for name in schema.all}


def _by_span(row: Any, schema: Schema, known: Mapping[str, str], span: int) -> tuple[tuple[str, int], _Row]:
    log_id, stamp, given = _read_row(row, known)
    where = _where(log_id, stamp)
    if missing := [name for name in schema.all if name not in given]:
        raise UsageError(f"{where}: no column {some_of(missing)}; add it, or leave it out of the schema")
    values = []
    for name, ctype in schema.all.items():
        try:
            values.append(_packed(given[name], ctype))
        except ValueError as error:
            raise UsageError(f"{where}, column {name}: {error}; convert the value") from None
    return (log_id, stamp // span), (stamp, tuple(values))


def _where(log_id: Any, stamp: Any) -> str:
    return f"row of log {log_id} at {stamp}"


def _read_row(row: Any, known: Mapping[str, str]) -> tuple[str, int, dict[str, Any]]:
    """The log_id and timestamp of a row, and its values by column.

    Args:
        row: dict, `beam.Row` or named tuple.
        known: see `_known`.
    """
    if not isinstance(row, Mapping):
        if not hasattr(row, "_asdict"):
            raise UsageError(
                f"GroupRows: {shortened(repr(row))}: a {type(row).__name__}; give dicts or beam.Rows"
            )
        row = row._asdict()
    log_id, stamp = row.get("log_id"), row.get("timestamp")
    where = _where(log_id, stamp)
    if not isinstance(log_id, str):
        raise UsageError(f"{where}: log_id is a {type(log_id).__name__}; it must be a str")
    if not isinstance(stamp, int | np.integer) or isinstance(stamp, bool):
        raise UsageError(
            f"{where}: timestamp is a {type(stamp).__name__}; it must be an int, ns since the epoch"
        )
    if not MIN_TIME <= stamp <= MAX_TIME:
        raise UsageError(f"{where}: timestamp: doesn't fit int64; it must be ns since the epoch")
    given: dict[str, Any] = {}
    for name, value in row.items():
        if name in KEYS:
            continue
        if name not in known:
            near = near_to(str(name), known)
            raise UsageError(f"{where}: the schema has no column {name!r}{near}; leave it out of the row")
        if known[name] in given:
            raise UsageError(f"{where}: column {known[name]} is there twice, also as {name}; leave one out")
        given[known[name]] = value
    return str(log_id), int(stamp), given  # not numpy's


def _packed(value: Any, ctype: ColumnType) -> _Value:
    """
    Raises:
        ValueError: the value doesn't fit; the message has both types.
    """
    if not ctype.shape and (pack := _PACKERS.get((type(value), ctype.dtype))):
        with contextlib.suppress(struct.error, OverflowError):  # it doesn't fit
            return pack(value)
    if ctype.kind == "string":
        if not isinstance(value, str):
            raise ValueError(_misfit(value, ctype))
        return value.encode()
    if ctype.kind == "bytes":
        if not isinstance(value, bytes | bytearray | memoryview):
            raise ValueError(_misfit(value, ctype))
        return bytes(value)
    if ctype.kind == "lists":
        if not isinstance(value, list | tuple):
            raise ValueError(_misfit(value, ctype))
        lists = [_as_array(one, ctype.flat) for one in value]
        return tuple(map(len, lists)), b"".join(one.tobytes() for one in lists)
    array = _as_array(value, ctype)
    data = array.tobytes()
    return (array.shape[: ctype.num_ragged], data) if ctype.is_ragged else data


def _misfit(value: Any, ctype: ColumnType) -> str:
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        given = _shown(ColumnType(value.dtype, value.shape))
    else:
        given = f"{shortened(repr(value))} ({type(value).__name__})"
    return f"{given}, the schema has {_shown(ctype)}"


def _shown(ctype: ColumnType) -> str:
    return str(ctype) if ctype.dtype.names is None else f"{ctype} of {ctype.dtype}"


def _as_array(value: Any, ctype: ColumnType) -> Array:
    """An array of the type of a column.

    Args:
        value: of numpy, or of Python: numbers, texts and rows, nested in lists.

    Raises:
        ValueError: the value doesn't fit.
    """
    if value is None and not ctype.shape and ctype.dtype.kind == "f":
        value = float("nan")
    has_type = isinstance(value, np.ndarray | np.generic)
    if ctype.dtype.names is not None and not has_type:
        array = _structured(value, ctype)
    else:
        try:
            array = np.asarray(value)
        except (ValueError, OverflowError) as error:  # of lists that differ in length
            raise ValueError(_misfit(value, ctype)) from error
    if not has_type and not array.size:
        array = np.empty(_whole_shape(array.shape, ctype), ctype.dtype)
    if array.ndim != len(ctype.shape) or array.shape[ctype.num_ragged :] != ctype.tail:
        raise ValueError(_misfit(value, ctype))
    if array.dtype == ctype.dtype:
        return array
    fits = _is_safe(array, ctype.dtype) if has_type else _keeps(array, ctype.dtype)
    if not fits:
        raise ValueError(_misfit(value, ctype))
    return array.astype(ctype.dtype)


def _whole_shape(shape: tuple[int, ...], ctype: ColumnType) -> tuple[int, ...]:
    """The shape of nested lists without elements, which don't show the axes within an empty one."""
    return shape + tuple(length or 0 for length in ctype.shape[len(shape) :])


def _structured(value: Any, ctype: ColumnType) -> Array:
    """An array of rows, dicts or tuples nested in lists, as many levels as the type has axes."""
    shape: list[int] = []
    elements = [value]
    for _ in ctype.shape:
        if not elements:
            break
        lengths = {len(element) if type(element) in (list, tuple) else -1 for element in elements}
        if lengths == {-1} or len(lengths) > 1:
            raise ValueError(_misfit(value, ctype))
        shape.append(lengths.pop())
        elements = list(itertools.chain.from_iterable(elements))
    array = np.empty(len(elements), ctype.dtype)
    names = ctype.dtype.names or ()
    for row, element in enumerate(elements):
        fields = element if isinstance(element, Mapping) else getattr(element, "_asdict", dict)()
        given = {
            known: fields[name] for name in fields for known in names if name in (known, field_of(known))
        }
        if len(given) != len(names) or len(fields) != len(names):
            raise ValueError(_misfit(value, ctype))
        for name in names:
            base, inner = ctype.dtype[name].subdtype or (ctype.dtype[name], ())
            array[name][row] = _as_array(given[name], ColumnType(base, inner))
    return array.reshape(shape)


def _is_safe(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether a type has all values of the array's type, and these values exactly."""
    if array.dtype.hasobject or (array.dtype.names is None) != (dtype.names is None):
        return False
    if dtype.names is not None:
        return np.can_cast(array.dtype, dtype, "equiv")
    return np.can_cast(array.dtype, dtype, "safe") and (array.dtype.kind not in "iu" or _keeps(array, dtype))


def _keeps(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether a type has the values of Python's numbers or texts; floats may be rounded."""
    kinds = {"b": "b", "i": "biu", "u": "biu", "f": "biuf", "c": "biufc", "U": "U"}
    if array.dtype.kind not in kinds.get(dtype.kind, ""):
        return False
    if array.dtype.kind == "U":
        return array.dtype.itemsize <= dtype.itemsize
    if array.dtype.kind == "b":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
        if array.dtype.kind in "iu":
            return bool((cast == array).all() and (cast.real.astype(array.dtype) == array).all())
    return bool((np.isfinite(cast) == np.isfinite(array)).all())


def _to_block(grouped: tuple[tuple[str, int], Iterable[_Row]], schema: Schema, span: int) -> Block:
    (log_id, number), rows = grouped
    given = sorted(rows, key=itemgetter(0))
    distinct = given[:1]
    for stamp, values in given[1:]:
        if stamp != distinct[-1][0]:
            distinct.append((stamp, values))
        elif values != distinct[-1][1]:
            both = zip(schema.all, values, distinct[-1][1], strict=True)
            name = next(name for name, one, other in both if one != other)
            raise DatasetError(
                f"log {log_id}, timestamp {stamp}: two rows have different values of {name}; leave one out "
                "before GroupRows, or give each a timestamp of its own"
            )
    count(rows_grouped=len(distinct), rows_equal=len(given) - len(distinct))
    columns: dict[str, Values] = {"timestamp": np.array([stamp for stamp, _ in distinct], np.int64)}
    for place, (name, ctype) in enumerate(schema.all.items()):
        columns[name] = _unpacked([values[place] for _, values in distinct], ctype)
    return Block(log_id, f"{number * span}-{(number + 1) * span}", 0, columns)


def _unpacked(values: Sequence[Any], ctype: ColumnType) -> Values:
    if ctype.kind in ("bytes", "string"):
        return Ragged.from_bytes(values)
    if ctype.kind == "lists":
        inner = np.array([length for lengths, _ in values for length in lengths], np.int64)
        flat = np.frombuffer(bytearray().join(data for _, data in values), ctype.dtype)
        return Lists(flat.reshape(-1, *ctype.tail), [len(lengths) for lengths, _ in values], inner)
    if not ctype.is_ragged:
        together = bytearray().join(values)
        return np.frombuffer(together, ctype.dtype).reshape(len(values), *ctype.tail)
    rows = [np.frombuffer(data, ctype.dtype).reshape(*shape, *ctype.tail) for shape, data in values]
    return Ragged.from_rows(rows, ctype)


# --- blocks to rows ---------------------------------------------------------------------------------------


def to_rows(schema: Schema) -> Any:
    """A transform of blocks to `beam.Row`s of one Beam schema, for Beam's dataframes among others.

    A row has log_id, timestamp, and each column of the schema, ages and availabilities too, by its name in
    `field_of`: `camera.front` is `camera__front`. Values are Python's; arrays are lists of lists, structured
    values are rows in rows. `GroupRows` makes equal blocks of them. Blocks may have more columns than the
    schema: `to_rows(schema.part(["ego.*"]))` takes only some.

    Args:
        schema: of the blocks, or a part of it.

    Returns:
        A transform, from a PCollection of blocks to one of rows.

    Raises:
        UsageError: Beam has no type for a column (uint64, complex numbers, times), or two columns have the
            same name in rows.

    Examples:
        >>> import apache_beam as beam
        >>> schema = Schema({"ego.speed": ColumnType("<f8")})
        >>> columns = {"timestamp": np.array([10, 20]), "ego.speed": np.array([1.0, 2.0])}
        >>> with beam.Pipeline() as pipeline:
        ...     rows = pipeline | beam.Create([Block("drive", "", 0, columns)]) | to_rows(schema)
        ...     speeds = rows | beam.Map(lambda row: (row.log_id, row.ego__speed))
        ...     _ = speeds | beam.combiners.Mean.PerKey() | beam.Map(print)
        ('drive', 1.5)
    """
    fields = _fields([*KEYS, *schema.all], "to_rows")
    types = [_beam_type(name, ctype) for name, ctype in schema.all.items()]
    named = zip(fields, [str, np.int64, *types], strict=True)
    rows = RowTypeConstraint.from_fields(list(named))
    return "to_rows" >> beam.FlatMap(_rows_of, schema, fields).with_output_types(rows)


def _fields(names: Sequence[str], where: str) -> list[str]:
    found: dict[str, str] = {}
    for name in names:
        other = found.setdefault(field_of(name), name)
        if other != name:
            raise UsageError(
                f"{where}: columns {other!r} and {name!r} are both {field_of(name)!r} in rows of Beam; leave "
                "one out with schema.part"
            )
    return list(found)


def _beam_type(name: str, ctype: ColumnType) -> Any:
    if ctype.kind == "string":
        return str
    if ctype.kind == "bytes":
        # Beam's dataframes make numpy's S of bytes, which has no zeros at the end; of these, objects.
        return Optional[bytes]  # noqa: UP045 - Beam takes `bytes | None` for any object
    dtype = ctype.dtype
    if dtype.names is not None:
        inner = []
        for field in dtype.names:
            base, shape = dtype[field].subdtype or (dtype[field], ())
            inner.append(_beam_type(f"{name}.{field}", ColumnType(base, shape)))
        found: Any = RowTypeConstraint.from_fields(
            list(zip(_fields(dtype.names, f"to_rows: {name}"), inner, strict=True))
        )
    else:
        found = str if dtype.kind == "U" else _BEAM_TYPES.get(dtype)
    if found is None:
        raise UsageError(
            f"to_rows: column {name}: Beam has no type for {dtype}; leave it out with schema.part"
        )
    for _ in ctype.shape:
        found = Sequence[found]
    return found


def _rows_of(block: Block, schema: Schema, fields: Sequence[str]) -> Iterator[beam.Row]:
    where = f"to_rows: block of log {block.log_id}"
    if missing := [name for name in schema.all if name not in block.columns]:
        raise UsageError(f"{where}: no column {some_of(missing)}; leave it out with schema.part")
    for name, ctype in schema.all.items():
        if (found := block.columns[name].dtype) != ctype.dtype:
            raise UsageError(f"{where}, column {name}: {found}, the schema has {ctype}; convert the values")
    columns = [_python_values(block.columns[name], ctype) for name, ctype in schema.all.items()]
    for stamp, *values in zip(block.timestamp.tolist(), *columns, strict=True):
        yield beam.Row(**dict(zip(fields, (block.log_id, stamp, *values), strict=True)))


def _python_values(values: Values, ctype: ColumnType) -> list[Any]:
    if ctype.kind == "lists":
        return [[_python(one) for one in row] for row in values]
    if ctype.kind != "array":
        return [python_value(value, ctype) for value in values]
    if isinstance(values, Ragged):
        return [_python(value) for value in values]
    rows: list[Any] = _python(values)
    return rows


def _python(values: Any) -> Any:
    """Lists of Python's numbers and texts, and of rows for structured values."""
    names = values.dtype.names
    if names is None:
        return values.tolist()
    flat = values.reshape(-1)
    columns = [_python(flat[name]) for name in names]
    fields = [field_of(name) for name in names]
    rows = (beam.Row(**dict(zip(fields, row, strict=True))) for row in zip(*columns, strict=True))
    return np.fromiter(rows, object, len(flat)).reshape(values.shape).tolist()
