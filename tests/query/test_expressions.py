"""Generated expressions of filters against plain Python, of rows with missing values, in each format."""

import functools
import math
import operator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logloom
import logloom.io.formats.table as tt
from logloom.blocks import Ragged
from logloom.query.binder import time_of
from logloom.query.bounds import WholeLog, evaluate, gather
from logloom.query.bounds import leaves as leaves_of
from logloom.query.where import parse
from logloom.schema import AGE, AVAILABLE, NO_AGE, STRING, TIMESTAMP, ColumnType
from tests.tier import examples

DAY = time_of("2026-01-01")
HOUR = 3600 * 10**9
POSE = [
    {"x": x, "at": {"id": n, "v": [x, 1.0]}, "name": name}
    for x, n, name in (
        *((0.5, 1, "a"), (math.nan, 2**53 + 1, "Ü"), (-1.5, -3, "")),
        *((math.inf, 0, "bus"), (2.0, 7, "a"), (0.0, -(2**63), "b")),
    )
]
NUMBERS = [0, 2**63 - 1, None, -(2**63), 3, 2**62]
ROWS = [
    {
        "timestamp": DAY + k * HOUR,
        "n": NUMBERS[k],
        "small": [1, -1, 0, 127, -128, 5][k],
        "u": [0, 2**64 - 1, 2**63, 1, 7, 3][k],
        "f": [0.5, math.nan, None, -0.0, math.inf, 1e300][k],
        "seen": [DAY, DAY + 1, None, DAY - HOUR, DAY + 3 * HOUR, 0][k],
        "n.age": [0, 10**7, NO_AGE, HOUR, 10**7 - 1, -5][k],
        "text": ["", "Über", None, "a\0", "日本", "x"][k],
        "items": [[1, 2], [], None, [3], [1, 2, 3], []][k],
        "vec": [float(k), -1.0, math.nan],
        "pose": POSE[k],
    }
    for k in range(6)
]
STRUCT = pa.struct(
    [
        ("x", pa.float64()),
        ("at", pa.struct([("id", pa.int64()), ("v", pa.list_(pa.float64(), 2))])),
        ("name", pa.string()),
    ]
)
TABLE = pa.table(
    {
        "timestamp": pa.array([row["timestamp"] for row in ROWS]),
        "n": pa.array(NUMBERS, pa.int64()),
        "small": pa.array([row["small"] for row in ROWS], pa.int8()),
        "u": pa.array([row["u"] for row in ROWS], pa.uint64()),
        "f": pa.array([row["f"] for row in ROWS], pa.float64()),
        "seen": pa.array([row["seen"] for row in ROWS], pa.timestamp("ns", "UTC")),
        "text": pa.array([row["text"] for row in ROWS], pa.string()),
        "items": pa.array([row["items"] for row in ROWS], pa.list_(pa.int32())),
        "vec": pa.array([row["vec"] for row in ROWS], pa.list_(pa.float64(), 3)),
        "pose": pa.array([row["pose"] for row in ROWS], STRUCT),
    }
)


# --- expressions: (text, its value in a row), None where a value is missing --------------------------------


def field(text, *path):
    return text, lambda row: functools.reduce(lambda value, step: value[step], path, row)


def lifted(function):
    """A function of values that is None where one is."""
    return lambda *values: None if any(value is None for value in values) else function(*values)


def calculated(sign, a, b):
    """As Python's integers and numpy's floats."""
    if sign == "/" or isinstance(a, float) or isinstance(b, float):
        a, b = np.float64(a), np.float64(b)
    with np.errstate(all="ignore"):
        found = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[sign](a, b)
    return float(found) if isinstance(found, np.floating) else found


def binary(a, sign, b):
    return f"({a[0]} {sign} {b[0]})", lambda row: lifted(functools.partial(calculated, sign))(
        a[1](row), b[1](row)
    )


def unary(word, a):
    text = f"abs({a[0]})" if word == "abs" else f"{word}{a[0]}"
    function = {"abs": abs, "-": operator.neg, "+": operator.pos}[word]
    return text, lambda row: lifted(function)(a[1](row))


def constant(text, value):
    return text, lambda row: value


def length(text, *path):
    name, value = field(text, *path)
    return f"len({name})", lambda row: lifted(len)(value(row))


COLUMNS = [
    field("n", "n"),
    field("small", "small"),
    field("u", "u"),
    field("f", "f"),
    field("vec.0", "vec", 0),
    field("vec[1]", "vec", 1),
    field("pose.x", "pose", "x"),
    field("pose.at.id", "pose", "at", "id"),
    field("pose.at.v.1", "pose", "at", "v", 1),
    field("`pose`.at.v[0]", "pose", "at", "v", 0),
    length("text", "text"),
    length("items", "items"),
    length("vec", "vec"),
    length("pose.name", "pose", "name"),
]
CONSTANTS = [
    constant("0", 0),
    constant("2.5", 2.5),
    constant("9223372036854775807", 2**63 - 1),
    constant("18446744073709551615", 2**64 - 1),
    constant("1e308", 1e308),
    constant("3", 3),
]


def numeric(columns):
    return st.recursive(
        st.sampled_from(columns + CONSTANTS),
        lambda inner: st.one_of(
            st.builds(binary, inner, st.sampled_from("+-*/"), inner),
            st.builds(unary, st.sampled_from(["-", "+", "abs"]), inner),
        ),
        max_leaves=4,
    )


TEXTS = [field("text", "text"), field("pose.name", "pose", "name")]
TEXT_CONSTANTS = [constant("''", ""), constant("'a'", "a"), constant("'Über'", "Über")]
AGES = [field("n.age", "n.age")]
TIMES = [field("seen", "seen"), field("timestamp", "timestamp")]
DURATIONS = [
    constant("10ms", 10**7),
    constant("1.5 h", 3 * HOUR // 2),
    constant("-2min", -120 * 10**9),
    constant("0s", 0),
]
DATES = [
    constant("'2026-01-01'", DAY),
    constant("'2026-01-01T02:00'", DAY + 2 * HOUR),
    constant("'2026-01-01 01:00:00.000000001+01:00'", DAY + 1),
    constant("'1969-12-31T23:59:59Z'", -(10**9)),
    constant("'9999-12-31'", time_of("9999-12-31")),
]


def spans(ages, times):
    """Lengths of time: ages, differences of times, and what is calculated with them."""
    between = st.builds(binary, st.sampled_from(times), st.just("-"), st.sampled_from(times + DATES[:3]))
    base = st.one_of(between, *map(st.just, ages))
    return st.one_of(
        base,
        st.builds(binary, base, st.sampled_from("+-"), st.sampled_from(DURATIONS)),
        st.builds(binary, base, st.just("*"), st.just(constant("2", 2))),
        st.builds(unary, st.sampled_from(["abs", "-"]), base),
    )


def compared(sign, a, b):
    if a is None or b is None:
        return None
    if isinstance(a, float) or isinstance(b, float):
        a, b = np.float64(a), np.float64(b)
    if a != a or b != b:
        return None
    found = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    return bool({**found, "==": operator.eq, "!=": operator.ne}[sign](a, b))


def chain(first, rest):
    sides = [first, *(operand for _, operand in rest)]
    text = first[0] + "".join(f" {sign} {operand[0]}" for sign, operand in rest)

    def holds(row):
        values = [value(row) for _, value in sides]
        return every(
            compared(sign, *pair) for (sign, _), *pair in zip(rest, values, values[1:], strict=False)
        )

    return text, holds


def every(values):
    """Whether all are true; None is unknown."""
    values = list(values)
    return False if False in values else None if None in values else True


def opposite(value):
    return None if value is None else not value


def some(values):
    return opposite(every(map(opposite, values)))


def member(operand, items, negated):
    def holds(row):
        value = operand[1](row)
        found = some(compared("==", value, item(row)) for _, item in items)
        return opposite(found) if negated else found

    return f"{operand[0]} {'not ' if negated else ''}in ({', '.join(text for text, _ in items)})", holds


SIGNS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def conditions(columns=COLUMNS, ages=(), times=TIMES):
    """Comparisons of expressions of each kind, joined."""

    def comparisons(operand, constants, other=None):
        other = st.sampled_from(constants) if other is None else other
        items = st.lists(st.sampled_from(constants), min_size=1, max_size=3)
        return st.one_of(
            st.builds(chain, operand, st.lists(st.tuples(SIGNS, other), min_size=1, max_size=2)),
            st.builds(member, operand, items, st.booleans()),
        )

    moments = st.one_of(
        st.sampled_from(times),
        st.builds(binary, st.sampled_from(times), st.sampled_from("+-"), st.sampled_from(DURATIONS)),
    )
    base = st.one_of(
        comparisons(numeric(columns), CONSTANTS, numeric(columns)),
        comparisons(st.sampled_from(TEXTS if columns is COLUMNS else TEXTS[:1]), TEXT_CONSTANTS),
        comparisons(spans(ages, times), DURATIONS),
        comparisons(moments, DATES),
    )
    joins = st.sampled_from(["and", "or"])
    return st.recursive(
        base,
        lambda inner: st.one_of(
            inner.map(lambda c: (f"not ({c[0]})", lambda row: opposite(c[1](row)))),
            st.builds(joined, joins, inner, inner),
        ),
        max_leaves=3,
    )


def joined(word, a, b):
    join = every if word == "and" else some
    return f"({a[0]}) {word} ({b[0]})", lambda row: join([a[1](row), b[1](row)])


# --- readers ---------------------------------------------------------------------------------------------

TYPES = {
    "timestamp": TIMESTAMP,
    "n": ColumnType(np.dtype("i8")),
    "small": ColumnType(np.dtype("i1")),
    "u": ColumnType(np.dtype("u8")),
    "f": ColumnType(np.dtype("f8")),
    "seen": ColumnType(np.dtype("i8"), unit="ns"),
    "text": STRING,
    "items": ColumnType(np.dtype("i4"), (None,)),
    "vec": ColumnType(np.dtype("f8"), (3,)),
    "pose": ColumnType(np.dtype([("x", "f8"), ("at", [("id", "i8"), ("v", "f8", (2,))]), ("name", "U4")])),
    "n.age": AGE,
    **{f"{name}.available": AVAILABLE for name in ("n", "f", "seen", "text", "items")},
}


def stored(name):
    """A column as blocks have it, with what is stored for missing values."""
    values = [row[name] for row in ROWS]
    if name == "text":
        return Ragged.from_bytes([(value or "").encode() for value in values])
    if name == "items":
        lists = [value or [] for value in values]
        return Ragged(np.concatenate(lists).astype("i4"), [len(one) for one in lists])
    if name == "pose":
        rows = [(one["x"], (one["at"]["id"], one["at"]["v"]), one["name"]) for one in values]
        return np.array(rows, TYPES[name].dtype)
    missing = {"f": math.nan, "seen": NO_AGE}.get(name, 0)
    return np.array([missing if value is None else value for value in values], TYPES[name].dtype)


COLUMNS_OF_BLOCK = {name: stored(name) for name in TYPES if not name.endswith(".available")} | {
    name: np.array([row[name.removesuffix(".available")] is not None for row in ROWS])
    for name in TYPES
    if name.endswith(".available")
}


def wanted(holds):
    missing = [{**row, "n.age": None if row["n.age"] == NO_AGE else row["n.age"]} for row in ROWS]
    return [row["small"] for row in missing if holds(row) is True]


@settings(max_examples=examples(8))
@given(conditions(ages=AGES))
def test_expressions_mean_what_plain_python_means(condition):
    text, holds = condition
    found = parse(text).bound(TYPES)
    passed = found.mask(COLUMNS_OF_BLOCK, len(ROWS))
    assert [row["small"] for row, is_passed in zip(ROWS, passed, strict=True) if is_passed] == wanted(holds)


@settings(max_examples=examples(2))
@given(conditions(ages=AGES))
def test_expressions_mean_the_same_where_conditions_may_be_unknown(condition):
    text, holds = condition
    found = parse(text).bound(TYPES, is_search=True)
    leaves = {leaf.at: gather(leaf, COLUMNS_OF_BLOCK) for leaf in leaves_of(found.root)}
    stamps = COLUMNS_OF_BLOCK["timestamp"]
    sure, _ = evaluate(found.root, leaves, WholeLog(stamps, np.array([0, len(ROWS)]), lambda name: None))
    assert [row["small"] for row, is_sure in zip(ROWS, sure, strict=True) if is_sure] == wanted(holds)


FORMATS = ["parquet", "lance", "zarr", "table", "bags", "tar"]


def written(folder):
    """The rows in each format, as a version and as a plain folder; returns their places."""
    source = str(folder / "rows.parquet")
    pq.write_table(TABLE, source, row_group_size=2)
    found = [source]
    for name in FORMATS:
        for plain in (False, True) if name in ("lance", "zarr") else (False,):  # others lose the unit
            found.append(str(folder / f"{name}-{plain}"))
            logloom.convert(source, found[-1], name, plain=plain)
    return found


def smalls(rows):
    return [int(row["small"]) for row in rows]


@pytest.fixture(scope="module")
def datasets(once):
    return {place: logloom.open(place) for place in once(written)}


@settings(max_examples=examples(0.6))
@given(conditions())
def test_every_reader_chooses_the_rows_that_plain_python_does(datasets, condition):
    text, holds = condition
    for place, rows in datasets.items():
        assert smalls(rows.filter(text)) == wanted(holds), (place, text)


FIXED = [
    ("abs(n + 1) > 3 and seen - '2026-01-01' < 3h", [-1, 127, 5]),
    ("pose.at.id / 2 > 0 and len(text) < 5 or timestamp == '2026-01-01T05:00Z'", [1, -1, -128, 5]),
    ("vec.0 * 2 >= u - 9223372036854775800", [1, 127, -128, 5]),
]


@pytest.mark.parametrize(("where", "rows"), FIXED)
def test_opening_and_converting_choose_the_same_rows(once, tmp_path, where, rows):
    places = once(written)
    for place in places:
        assert smalls(logloom.open(place, columns=["small"], where=where)) == rows
    logloom.convert(places[0], str(tmp_path / "own"), "parquet", columns=["small"], where=where)
    assert smalls(logloom.open(tmp_path / "own")) == rows


INDEX = ["n", "small", "u", "vec", "text"]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("expressions") / "table")
    rows = [{"log_id": "a", "timestamp": row["timestamp"]} | {n: row[n] for n in INDEX} for row in ROWS]
    for row in rows:
        row |= {"small": np.int8(row["small"]), "u": np.uint64(row["u"])}
        row |= {"vec": np.array(row["vec"])}
    tt.write_table(uri, rows, index=INDEX)
    return uri


def in_index(column):
    return column[0].partition(".")[0].partition("[")[0].removeprefix("len(").rstrip(")") in INDEX


@given(conditions([one for one in COLUMNS if in_index(one) and one[0] != "len(vec)"], times=TIMES[1:]))
def test_the_index_of_a_table_chooses_the_rows_that_plain_python_does(index, condition):
    text, holds = condition
    rows = [row["small"] for row in ROWS if holds(row) is True]
    assert tt.read_index(index, where=text).small.tolist() == rows
