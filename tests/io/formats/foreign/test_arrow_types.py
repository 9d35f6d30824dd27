"""Columns of any Arrow type are those that pyarrow's to_pylist gives, in whatever way they are read."""

import contextlib
import datetime
import decimal
import math
import string
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import logloom as ll
from logloom.errors import UsageError
from logloom.io.arrow.columns import columns_of, raw_columns
from logloom.io.formats.foreign import open_foreign
from tests.tier import examples

UNITS = ("s", "ms", "us", "ns")
INTS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [
    pa.decimal128(9, 2),
    pa.decimal128(38, 20),
    pa.decimal128(18),
    pa.decimal128(30),
    pa.decimal256(60, 5),
]
TIMES = [
    pa.date32(),
    pa.date64(),
    *(pa.timestamp(unit) for unit in UNITS),
    pa.timestamp("us", "Europe/Berlin"),
    *map(pa.duration, UNITS),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
]
PLAIN = [*INTS, *FLOATS, *DECIMALS, *TIMES, pa.bool_()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)]
EPOCH = datetime.datetime(1970, 1, 1)
NAT = -(2**63)


def structs(*fields):
    return st.lists(st.one_of(*fields), min_size=1, max_size=3).map(
        lambda kinds: pa.struct(list(zip("abc", kinds, strict=False)))
    )


plain = st.sampled_from(PLAIN)
text = st.sampled_from(TEXTS)
small = plain | plain.map(lambda kind: pa.list_(kind, 2)) | structs(plain)
element = small | text | structs(small, text)
KINDS = st.one_of(
    small,
    text,
    st.sampled_from([*BYTES, pa.null()]),
    structs(small, text, st.sampled_from(BYTES), element.map(pa.list_)),
    element.map(pa.list_),
    element.map(pa.large_list),
    plain.map(lambda kind: pa.list_(pa.list_(kind))),
    st.tuples(text, small | text).map(lambda kinds: pa.map_(*kinds)),
)


def leaf_values(kind):
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(
            lambda number: decimal.Decimal(number).scaleb(-kind.scale, decimal.Context(prec=80))
        )
    if kind == pa.bool_():
        return st.booleans()
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width).map(np.dtype(kind.to_pandas_dtype()).type)
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        return st.integers(int(limits.min), int(limits.max))
    if pa.types.is_date(kind):
        return st.dates(datetime.date(1700, 1, 1), datetime.date(2250, 1, 1))
    if pa.types.is_time(kind):
        return st.times().map(
            lambda time: time.replace(microsecond=time.microsecond if pa.types.is_time64(kind) else 0)
        )
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        most = 9 * 10**18 // {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[kind.unit]
        return st.integers(-most, most).map(lambda count: pa.scalar(count, pa.int64()).cast(kind).as_py())
    if pa.types.is_null(kind):
        return st.none()
    if kind in BYTES:
        size = {"min_size": 3, "max_size": 3} if kind == pa.binary(3) else {"max_size": 4}
        return st.binary(**size)
    return st.text(string.ascii_letters + "é∂", max_size=4)


def values_of(kind, nulls):
    """Values as pa.array takes them; `nulls` at any level, or only whole rows."""
    inner = lambda kind: values_of(kind, nulls) if not nulls else st.none() | values_of(kind, nulls)  # noqa: E731
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: inner(field.type) for field in kind})
    if pa.types.is_map(kind):
        return st.lists(st.tuples(values_of(kind.key_type, False), inner(kind.item_type)), max_size=3)
    if pa.types.is_fixed_size_list(kind):
        return st.lists(inner(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    if pa.types.is_list(kind) and pa.types.is_list(kind.value_type):
        leaf = values_of(kind.value_type.value_type, False)
        return st.integers(1, 2).flatmap(
            lambda n: st.lists(st.lists(leaf, min_size=n, max_size=n), max_size=2)
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.lists(inner(kind.value_type), max_size=3)
    return leaf_values(kind)


@st.composite
def columns(draw):
    kind = draw(KINDS)
    values = draw(st.lists(st.none() | values_of(kind, draw(st.booleans())), min_size=2, max_size=7))
    return pa.array(values, kind)


class UnreadableError(Exception):
    """A null where nothing can stand for it."""


def expected(kind, value, inside=False):
    """A value of to_pylist as numpy's tolist gives ours."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_map(kind):
        pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return [expected(pair, {"key": key, "value": item}, True) for key, item in value]
    if value is None:
        if pa.types.is_temporal(kind):
            return NAT
        if inside and not (pa.types.is_floating(kind) or is_fraction(kind) or pa.types.is_null(kind)):
            raise UnreadableError
        return math.nan
    if pa.types.is_struct(kind):
        return tuple(expected(field.type, value[field.name], True) for field in kind)
    if pa.types.is_nested(kind):
        return [expected(kind.value_type, one, True) for one in value]
    if pa.types.is_decimal(kind):
        return float(value) if is_fraction(kind) else int(value)
    if pa.types.is_temporal(kind):
        return nanoseconds(value)
    return value.item() if isinstance(value, np.generic) else value


def is_fraction(kind):
    return pa.types.is_decimal(kind) and (kind.scale > 0 or kind.precision > 18)


def nanoseconds(value):
    if hasattr(value, "nanosecond") or hasattr(value, "nanoseconds"):  # pandas
        return value.value
    if isinstance(value, datetime.datetime):
        value = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
        value -= EPOCH
    elif isinstance(value, datetime.date):
        value = datetime.datetime(value.year, value.month, value.day) - EPOCH
    elif isinstance(value, datetime.time):
        value = datetime.datetime.combine(EPOCH, value) - EPOCH
    return value // datetime.timedelta(microseconds=1) * 1000


def is_plain(kind):
    if pa.types.is_struct(kind):
        return all(is_plain(field.type) for field in kind)
    return is_plain(kind.value_type) if pa.types.is_fixed_size_list(kind) else kind in PLAIN


def pieces(name, kind, values):
    """The columns that a column becomes: name, type, values."""
    if pa.types.is_struct(kind) and not is_plain(kind):
        for field in kind:
            inner = [None if value is None else value[field.name] for value in values]
            yield from pieces(f"{name}.{field.name}", field.type, inner)
    else:
        yield name, kind, values


def is_unread(kind, value):
    """Whether Arrow writes a value, but can't read it: a null at or above a list of a fixed length."""
    if pa.types.is_fixed_size_list(kind):
        return value is None or any(is_unread(kind.value_type, one) for one in value)
    if pa.types.is_struct(kind):
        return any(is_unread(field.type, value and value[field.name]) for field in kind)
    if pa.types.is_map(kind):
        return any(is_unread(kind.item_type, item) for _, item in value or ())
    return pa.types.is_nested(kind) and any(is_unread(kind.value_type, one) for one in value or ())


def readable(name, kind, values):
    """What to find of each column, None for those that can't be read."""
    found = {}
    for column, inner, own in pieces(name, kind, values):
        try:
            if any(is_unread(kind, value) for value in values):
                raise UnreadableError
            found[column] = [None if one is None else expected(inner, one) for one in own]
        except UnreadableError:
            found[column] = None
    return found


def same(found, wanted):
    if isinstance(found, np.ndarray | np.generic):
        found = found.tolist()
    if isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, float) and math.isnan(wanted):
        return math.isnan(found)
    return found == wanted and type(found) is type(wanted)


def check_rows(rows, wanted):
    """Compare rows with what is expected of each column; of missing values only the availability."""
    for name, values in wanted.items():
        is_sampled = f"{name}.available" in rows[0]
        for row, value in zip(rows, values, strict=True):
            available = not is_sampled or bool(row[f"{name}.available"])
            assert available == (value is not None), name
            assert value is None or same(row[name], value), name


def read_back(opened, wanted, order):
    names = [*wanted, *(f"{name}.available" for name in opened.schema.sampled)]
    check_rows(
        [opened.select(names)[place] for place in order],
        {n: [v[i] for i in order] for n, v in wanted.items()},
    )
    return names


@settings(max_examples=examples(0.6))
@given(
    columns(),
    columns(),
    st.randoms(use_true_random=False),
    st.sampled_from(["parquet", "tar", "table", "zarr"]),
)
def test_columns_of_any_type_are_what_pyarrow_gives(one, other, random, output):
    rows = min(len(one), len(other))
    table = pa.table({"n": range(rows), "one": one[:rows], "other": other[:rows]})
    wanted = {"n": list(range(rows))}
    for name in ("one", "other"):
        wanted |= readable(name, table.schema.field(name).type, table[name].to_pylist())
    refused = {name for name, values in wanted.items() if values is None}
    wanted = {name: values for name, values in wanted.items() if values is not None}
    with tempfile.TemporaryDirectory() as folder:
        try:
            pq.write_table(table, f"{folder}/x.parquet", row_group_size=2)
        except pa.ArrowNotImplementedError:  # parts of views within structs
            reject()
        with pytest.warns(UserWarning, match="left out") if refused else contextlib.nullcontext():
            opened = ll.open(f"{folder}/x.parquet")
        assert opened.left_out.keys() == refused
        order = random.sample(range(rows), rows)
        names = read_back(opened, wanted, order)
        check_rows(list(opened.select(names)), wanted)
        kept = [place for place in range(rows) if place % 2]
        where = ll.open(f"{folder}/x.parquet", columns=names, where="n == 1 or n == 3 or n == 5")
        assert where.positions.tolist() == kept
        check_rows(
            [where[place] for place in range(len(kept))], {n: [v[i] for i in kept] for n, v in wanted.items()}
        )
        done = ll.convert(f"{folder}/x.parquet", f"{folder}/{output}", output, columns=list(wanted))
        assert done.manifest.totals["rows"] == rows
        read_back(ll.open(f"{folder}/{output}"), wanted, order)
        for name in refused:
            with pytest.raises(UsageError, match=f"column {name}: "):
                open_foreign(f"{folder}/x.parquet", columns=[name])


@pytest.mark.parametrize("made", [pa.list_view, pa.large_list_view])
def test_list_views_that_are_null_or_empty_behind_others_have_no_items(made):
    batch = pa.record_batch([pa.array([[1, 2], None, [3], []], made(pa.int32()))], names=["x"])
    for rows, values, lengths in ((batch, [1, 2, 3], [2, 0, 1, 0]), (batch.slice(1), [3], [0, 1, 0])):
        column = raw_columns(rows, columns_of(rows.schema))["x"]
        assert (column.values.values.tolist(), column.values.lengths.tolist()) == (values, lengths)
        assert column.available.tolist() == [row is not None for row in rows.column(0).to_pylist()]
