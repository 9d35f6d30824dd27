import datetime
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logloom.io.formats.table as tt
from logloom.blocks import Lists, Ragged
from logloom.errors import UsageError
from logloom.query.binder import time_of
from logloom.query.comparison import Categories
from logloom.query.where import all_of, parse
from logloom.schema import AVAILABLE, BYTES, STRING, TIMESTAMP, ColumnType, Schema
from tests.cases import case
from tests.tier import examples

TYPES = {
    "timestamp": TIMESTAMP,
    "speed.mean": ColumnType(np.dtype("<f8")),
    "small": ColumnType(np.dtype("<f4")),
    "n": ColumnType(np.dtype("<i8")),
    "u": ColumnType(np.dtype("<u8")),
    "moving": ColumnType(np.dtype("?")),
    "gear": STRING,
    "ego.position": ColumnType(np.dtype("<f8"), (3,)),
    "image": BYTES,
    "image.available": AVAILABLE,
    "image.age": ColumnType(np.dtype("<i8")),
    "pose": ColumnType(np.dtype([("at", [("y", "f8")])])),
    "lane": ColumnType(np.dtype("<i4")),
    "lane.available": AVAILABLE,
    "open": ColumnType(np.dtype("?")),
    "open.available": AVAILABLE,
    "note": STRING,
    "note.available": AVAILABLE,
}
COLUMNS = {
    "timestamp": np.array([10, 20, 30, 40]),
    "speed.mean": np.array([0.0, 0.7, math.nan, 9.0]),
    "small": np.array([0.1, 0.5, 1.0, math.inf], np.float32),
    "n": np.array([-1, 0, 2**53 + 1, 7]),
    "u": np.array([0, 1, 2**63, 2**64 - 1], np.uint64),
    "moving": np.array([True, False, True, False]),
    "gear": Ragged.from_bytes([b"P", b"D", "Ü".encode(), b""]),
    "ego.position": np.arange(12.0).reshape(4, 3),
    "image": Ragged.from_bytes([b"", b"x", b"y", b""]),
    "image.available": np.array([False, True, True, False]),
    "image.age": np.array([-(2**63), 5, 6, -(2**63)]),
    "pose": np.zeros(4, TYPES["pose"].dtype),
    "lane": np.array([0, 0, 3, 4], np.int32),
    "lane.available": np.array([False, True, True, True]),
    "open": np.array([False, False, False, True]),
    "open.available": np.array([False, False, True, True]),
    "note": Ragged.from_bytes([b"a", b"b", b"", b""]),
    "note.available": np.array([True, True, False, True]),
}
SAMPLED = ("lane", "open", "note")


def test_a_filter_names_the_columns_it_looks_at_and_which_rows_pass():
    found = parse("n > 1 and (available(image) or gear in ('P') or not moving)")
    assert found.columns == ("gear", "image.available", "moving", "n")
    assert found.bound(TYPES).mask(COLUMNS, num_rows=4).tolist() == [False, False, True, True]


def passing(text):
    found = parse(text).bound(TYPES)
    return np.flatnonzero(found.mask(COLUMNS, 4)).tolist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("speed.mean > 0.5 and available(image)", [1]),
        ("speed.mean > 0.5 or available(image)", [1, 2, 3]),
        ("not available(image)", [0, 3]),
        ("not not moving", [0, 2]),
        ("not moving or n == 7 and moving", [1, 3]),
        ("(not moving or n == 7) and moving", []),
        ("0 < speed.mean <= 9", [1, 3]),
        ("0 <= n < 8 != 9", [1, 3]),
        ("speed.mean != 0.7", [0, 3]),  # a comparison with NaN is unknown
        ("not speed.mean == 0.7", [0, 3]),
        ("speed.mean == 0.7 or not speed.mean == 0.7", [0, 1, 3]),
        ("speed.mean > 0 or n > 0", [1, 2, 3]),  # true or unknown
        ("not (speed.mean > 0 and n < 0)", [0, 1, 2, 3]),  # not (unknown and false)
        ("not 10 < speed.mean < n", [0, 1, 3]),
        ("not -5 > n < speed.mean", [0, 1, 2, 3]),  # a chain is false if one comparison is
        ("lane == 0", [1]),  # what is stored for the rows that have none
        ("lane != 3 or timestamp == 10", [0, 1, 3]),
        ("not lane in (3, 4)", [1]),
        ("lane not in (3, 4)", [1]),
        ("lane < n", [2, 3]),
        ("not lane < n", [1]),
        ("open", [3]),
        ("not open", [2]),
        ("open == false", [2]),
        ("not (open and moving)", [1, 2, 3]),
        ("note == ''", [3]),
        ("note != 'a'", [1, 3]),
        ("not note in ('a', '')", [1]),
        ("len(note) == 0", [3]),
        ("available(lane) == false", [0]),
        ("lane.available and open.available", [2, 3]),
        ("speed.mean not in (0, 0.7)", [3]),
        ("speed.mean in [0, 0.7]", [0, 1]),
        ("n in (-1, 7)", [0, 3]),
        ("-1 == n", [0]),
        ("n == 9007199254740993", [2]),
        ("n == 9007199254740992", []),
        ("u >= 9223372036854775808", [2, 3]),
        ("u == 18446744073709551615", [3]),
        ("n < 1e300", [0, 1, 2, 3]),
        ("small == 0.5", [1]),
        ("small > 0.1", [0, 1, 2, 3]),  # as float64, float32's 0.1 is a bit more
        ("moving == true", [0, 2]),
        ("moving", [0, 2]),
        ("false", []),
        ("true", [0, 1, 2, 3]),
        ("1 < 2", [0, 1, 2, 3]),
        ("gear == 'D'", [1]),
        ('gear in ("P", "Ü")', [0, 2]),
        ("gear != ''", [0, 1, 2]),
        ("gear == 'not'", []),
        ("ego.position[2] >= 5", [1, 2, 3]),
        ("image.age < 6 and available(image)", [1]),
        ("timestamp >= 30", [2, 3]),
        ("small >= .5e0", [1, 2, 3]),
        ("n\n>\t0", [2, 3]),
        ("n > speed.mean", []),
        ("u > n", [0, 1, 2, 3]),
        ("n < 1e308", [0, 1, 2, 3]),
        ("gear > 'D'", [0, 2]),
        ("moving < true", [1, 3]),
        ("n in ()", []),
        ("n not in []", [0, 1, 2, 3]),
        ("speed.mean not in []", [0, 1, 3]),
        ("n in {-1, 7,}", [0, 3]),
        ("-2 < n in (-1, 8)", [0]),
        ("n == 0x7 or n == 0b0 or n == 0o7", [1, 3]),
        ("n == 9_007_199_254_740_993", [2]),
        ("`speed.mean` == 0 and `n` < +1", [0]),
        ("gear == 'P\\n'", []),
        ("isfinite(speed.mean)", [0, 1, 3]),
        ("isnan(speed.mean) or n == 7", [2, 3]),
        ("isfinite(small)", [0, 1, 2]),
        ("isnan(small)", []),  # infinity is a number
        ("isfinite(n) and isfinite(moving)", [0, 1, 2, 3]),
        ("not isfinite(ego.position)", []),
        ("isfinite(ego.position[2])", [0, 1, 2, 3]),
        ("ego.position.2 >= 5", [1, 2, 3]),
        ("pose.at.y == 0", [0, 1, 2, 3]),
        ("n + 1 == 9007199254740994", [2]),
        ("u * 2 > 18446744073709551615", [2, 3]),
        ("u - n > 9223372036854775807", [3]),
        ("-n > 0 or +n == 7", [0, 3]),
        ("abs(n - 3) <= 4", [0, 1, 3]),
        ("2 + 3 * 4 == 14 and (2 + 3) * 4 == 20 and 7 - 2 - 1 == 4", [0, 1, 2, 3]),
        ("8 / 2 / 2 == 2 and -2 * -3 == 6 and 1 - -1 == 2", [0, 1, 2, 3]),
        ("n / 0 > 1", [2, 3]),
        ("n / 0 != 1", [0, 2, 3]),  # 0 / 0 is NaN
        ("small * 2 in (1, 2)", [1, 2]),
        ("len(gear) == 1", [0, 1, 2]),
        ("len(image) == 1", [1, 2]),
        ("len(ego.position) == 3", [0, 1, 2, 3]),
        ("image.age < 6ns", [1]),
        ("image.age in (6ns, 0.005us)", [1, 2]),
        ("image.age < 6", [1]),
        ("not image.age < 6ns", [2]),
        ("timestamp < '1970-01-01T00:00:00.000000025Z'", [0, 1]),
        ("timestamp - '1970-01-01' >= 30ns", [2, 3]),
        ("'1970-01-01' + 30ns <= timestamp < '2026-01-01'", [2, 3]),
        ("timestamp not in ('1970-01-01', '2026-01-31 12:00')", [0, 1, 2, 3]),
    ],
)
def test_a_filter_lets_pass(text, rows):
    assert passing(text) == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "character 1 of .* at the end"),
        ("n >", "character 4 .*expected a column"),
        ("n > 1 1", "character 7 .*expected an operator"),
        ("n ; 1", "character 3 .*unexpected ';'"),
        ("n = 1", "character 3 .*unexpected '='; here it is =="),
        ("n > 1 && n < 2", "character 7 .*unexpected '&&'; here it is and"),
        ("n > 1 || n < 2", "character 7 .*unexpected '||'; here it is or".replace("|", r"\|")),
        ("!(n > 1)", "unexpected '!'; here it is not"),
        (
            "n is not null",
            "character 3 .*no operator 'is'; here it is available\\(column\\), or not",
        ),
        ("(size(n) > 1)", r"character 2 .*size\(…\) isn't a function; here it is len\(column\)"),
        ("sqrt(n) > 1", r"character 1 .*sqrt\(…\) isn't a function"),
        ("spee.mean > 1", "character 1 .*did you mean speed.mean"),
        ("n > 0 and available(imag)", "character 11 .*did you mean image.available"),
        ("available(n)", "no column 'n.available'"),
        ("zzz > 1", "there are timestamp, speed.mean"),
        ("gear == 1", "a text is compared with a number"),
        ("n == true", "a number is compared with a truth"),
        ("n and moving", "a condition is true or false, this is a number"),
        ("n", "a condition is true or false"),
        ("'x'", "a condition is true or false"),
        ("ego.position > 1", r"only single numbers and text can be compared, this is float64\[3\]"),
        ("ego.position[3] > 1", "index 3 is out of range"),
        ("ego.position[-1] > 1", "expected an index"),
        (f"ego.position[{'1' * 5000}] > 1", "expected an index"),
        ("image == 'x'", "only single numbers and text"),
        ("isfinite(gear)", r"isfinite\(…\) is for numbers, this is string"),
        ("isnan(image)", r"isnan\(…\) is for numbers, this is bytes"),
        ("isnan(n) == 1", "a truth is compared with a number"),
        ("isnan(n[0])", "accepts an index of a vector, this is int64"),
        ("isnan(ego.position[3])", "character 7 .*index 3 is out of range"),
        ("isfinite(spee.mean)", "character 10 .*did you mean speed.mean"),
        ("isfinite speed.mean", "character 10 .*expected an operator"),
        ("n in (,)", "expected a column, a number"),
        ("n in (1, 2]", r"character 11 .*expected '\)', found '\]'"),
        ("n > -'x'", "expected a number"),
        ("n > 1__0", "expected an operator"),
        ("gear == 'it''s'", "expected an operator"),
        ("`n > 1", "unexpected '`'"),
        ("n in 3", "expected a list"),
        ("n < 1e999", "character 5 .*the number is too large, found '1e999'"),
        ("-1e999 < n", "character 2 .*too large"),
        ("n in (1, 1_0e999)", "character 10 .*too large"),
        ("n < 1" + "0" * 400, "too large"),
        ("n not 3", "expected 'in'"),
        ("n in (1", r"expected '\)'"),
        ("(" * 60 + "n", "nested more than 50"),
        ("not " * 60 + "moving", "nested more than 50"),
        ("__import__('os').system('x')", r"__import__\(…\) isn't a function|unexpected"),
        ("isfinit(n)", r"character 1 .*isfinit\(…\) isn't a function; did you mean isfinite\?"),
        ("not nan(n)", r"character 5 .*nan\(…\) isn't a function; here it is isnan\(column\)"),
        (
            "sqrt(n) > 1",
            r"sqrt\(…\) isn't a function; there are available, delta, count, any, all, isfinite, isnan, "
            "abs, len",
        ),
        ("n > 1" + " " * 1_000_000, "1000005 characters, more than"),
        ("timestamp > 10ms", "character 13 .*a time is compared with a duration"),
        ("n > 10ms", "a number is compared with a duration; write a number without unit"),
        ("n > 10sec", "character 7 .*expected a unit: ns, us, ms, s, min, m, h, d, found 'sec'"),
        ("image.age > '2026-01-01'", "an age is compared with a text; write a duration such as 10ms"),
        ("n > '2026-01-01'", "a number is compared with a text"),
        ("timestamp > '2026-13-01'", "'2026-13-01' is not a time: month must be in"),
        ("timestamp > '1.2.2026'", "character 13 .*'1.2.2026' is not a time; write 2026-01-31, or"),
        ("timestamp > gear", "a time is compared with a text; only constant texts are dates"),
        ("timestamp + timestamp > 1", "character 13 .*a time \\+ a time has no meaning"),
        (
            "image.age + 1 > 10ms + 1",
            "character 24 .*a duration \\+ a number has no meaning; write both",
        ),
        ("-timestamp < 1", "character 1 .*- of a time; subtract another time first"),
        ("n + gear > 1", "character 5 .*only numbers are calculated with, this is a text"),
        ("abs(moving) > 1", "character 5 .*only numbers are calculated with, this is a truth"),
        ("abs(n", "expected '\\)' at the end"),
        ("n + > 1", "character 5 .*expected a column, a number or a 'text', found '>'"),
        ("len(n) > 1", r"character 5 .*len\(…\) is for texts, bytes, lists and vectors, this is int64"),
        ("pose.at.z > 1", "character 1 .*no field 'z' in pose.at; there is only y"),
        ("pose > 1", "this is struct; name a field, as in pose.at"),
        ("pose.at > 1", "this is struct; name a field, as in pose.at.y"),
        ("ego.position.3 > 1", "index 3 is out of range"),
        ("ego.position > 1", "name one, as in ego.position.0"),
        ("n.x > 1", "no column 'n.x'"),
        ("ego.position.x > 1", "no column 'ego.position.x'|only single numbers"),
        ("n between 1 and 2", "no operator 'between'; here it is a chain, as in 1 <= column <= 2"),
        ("gear LIKE 'a%'", "no operator 'LIKE'; here it is == or in; for parts of texts `rows.filter`"),
        ("n <> 1", "unexpected '<>'; here it is !="),
        ("ego[1].x > 1", "character 7 .*unexpected '.'; here it is a dotted name, as in corners.1.x"),
        ("n % 2 == 0", r"unexpected '%'; here it is \+, -, \* or /"),
        ("n ** 2 > 1", r"unexpected '\*\*'"),
        ("n > 1 AND n < 2", "no operator 'AND'; here it is and"),
        ("NOT n > 1", "no operator 'NOT'; here it is not"),
        ("n == null", "no column 'null'; here it is available"),
        ("date(timestamp) > 1", "here it is a text, as in timestamp >= '2026-01-31'"),
    ],
)
def test_a_wrong_filter_is_refused_with_its_place(text, message):
    with pytest.raises(UsageError, match=message):
        parse(text).bound(TYPES)


@pytest.mark.parametrize(
    "text",
    [
        *("1969-12-31", "1970-01-01 00:00", "2026-01-31T08:30:00", "2026-01-31T08:30:00.123456789"),
        *("1677-01-01", "2024-02-29T23:59:59.5", "0001-01-01"),
    ],
)
def test_times_are_those_of_numpy(text):
    seconds, _, fraction = text.partition(".")
    wanted = int(np.datetime64(seconds.replace(" ", "T"), "s").astype(int)) * 10**9
    wanted += int(fraction.ljust(9, "0")) if fraction else 0
    assert time_of(text) == wanted
    if ":" in text:
        assert time_of(f"{text}Z") == wanted
        assert time_of(f"{text}+01:30") == time_of(f"{text}+0130") == wanted - 5400 * 10**9


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-1-1", "2026-02-30", "2026-01-01T24:00", "2026-01-01Z", "2026-01-01T08:30 UTC"]
)
def test_other_texts_are_no_times(text):
    with pytest.raises(ValueError, match=r"date|day|hour"):
        time_of(text)


@pytest.mark.parametrize(
    "time",
    [
        datetime.date(2026, 1, 31),
        datetime.datetime(2026, 1, 31, 12, 30, 0, 5),
        datetime.datetime(2026, 1, 31, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
        np.datetime64("2026-01-31T00:00:00.123456789"),
        np.datetime64("2026-01-31"),
    ],
)
def test_tuples_of_a_filter_take_times(time):
    found = all_of([("timestamp", "==", time), ("timestamp", "in", [time])])
    assert parse(found.text).bound(TYPES).columns == ("timestamp",)
    if isinstance(time, datetime.datetime) and time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    zoned = isinstance(time, datetime.datetime)
    wanted = round(time.timestamp() * 10**6) * 1000 if zoned else int(np.datetime64(time, "ns").astype(int))
    columns = {"timestamp": np.array([wanted, wanted + 1])}
    assert found.bound(TYPES).mask(columns, 2).tolist() == [True, False]


@given(st.text("n()<>=!1.0' \"[],-+*/andotirspeavlbm", max_size=40))
def test_any_text_is_a_filter_or_refused(text):
    try:
        found = parse(text).bound(TYPES)
    except UsageError:
        return
    assert found.mask(COLUMNS, 4).shape == (4,)


def rows_of(columns):
    """The same rows as Python's values: texts are str, missing ones None."""
    values = {
        name: [row.tobytes().decode() for row in column] if isinstance(column, Ragged) else column.tolist()
        for name, column in columns.items()
    }
    for name in set(SAMPLED).intersection(columns):
        values[name] = np.where(columns[f"{name}.available"], np.array(values[name], object), None).tolist()
    return [{name: values[name][row] for name in values} for row in range(4)]


def one(row, name):
    """A column's value in a row: `ego.position[1]` too."""
    name, _, index = name.replace("`", "").partition("[")
    return row[name][int(index[:-1])] if index else row[name]


def compared(word, a, b):
    """What a comparison means, in plain Python; None is unknown."""
    if a is None or b is None:
        return None
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
    if a != a or b != b:
        return None
    signs = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}
    return signs[word]


def opposite(value):
    return None if value is None else not value


def every(values):
    values = list(values)
    return False if False in values else None if None in values else True


def some(values):
    return opposite(every(map(opposite, values)))


def of_floats(word, value):
    numbers = value if isinstance(value, list) else [value]
    return all(map(math.isfinite, numbers)) if word == "isfinite" else any(map(math.isnan, numbers))


def test_isfinite_and_isnan_look_at_all_lists_of_a_row():
    types = {"paths": ColumnType(np.dtype(np.float32), (None, None), "lists")}
    paths = Lists(np.array([1, math.nan, math.inf, 2], np.float32), counts=[2, 0, 1, 1], lengths=[1] * 4)
    for text, rows in (("isnan(paths)", [0]), ("isfinite(paths)", [1, 3])):
        found = parse(text).bound(types)
        assert np.flatnonzero(found.mask({"paths": paths}, 4)).tolist() == rows
    with pytest.raises(UsageError, match=r"accepts an index of a vector, this is float32\[\?\]\[\?\]"):
        parse("isnan(paths[0])").bound(types)


def column_or(names, constants):
    """(text, what it is in a row) of one kind."""
    named = st.sampled_from(names).map(lambda name: (name, lambda row: one(row, name)))
    given = st.sampled_from(constants).map(lambda pair: (pair[0], lambda row: pair[1]))
    return st.one_of(named, given)


def chains(operands, constants):
    signs = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    items = st.lists(st.sampled_from(constants), max_size=3)
    brackets = st.sampled_from(["()", "[]", "{}"])

    def chain(first, rest):
        text = first[0] + "".join(f" {sign} {operand[0]}" for sign, operand in rest)
        sides = [first[1], *(operand[1] for _, operand in rest)]
        return text, lambda row: every(
            compared(sign, a(row), b(row)) for (sign, _), a, b in zip(rest, sides, sides[1:], strict=False)
        )

    def member(operand, found, negated, pair, comma):
        inner = ", ".join(text for text, _ in found) + ("," if comma and found else "")

        def holds(row):
            value = operand[1](row)
            if value is None or value != value:
                return None
            found_in = some(compared("==", value, item) for _, item in found)
            return opposite(found_in) if negated else found_in

        return f"{operand[0]} {'not ' if negated else ''}in {pair[0]}{inner}{pair[1]}", holds

    return st.one_of(
        st.builds(chain, operands, st.lists(st.tuples(signs, operands), min_size=1, max_size=3)),
        st.builds(member, operands, items, st.booleans(), brackets, st.booleans()),
    )


NUMBERS = [
    ("0", 0),
    ("+1", 1),
    ("-1", -1),
    ("0.5", 0.5),
    ("7", 7),
    ("0x10", 16),
    ("5_0", 50),
    ("1e308", 1e308),
]
NUMBERS += [
    ("9007199254740993", 2**53 + 1),
    ("0.1", 0.1),
    ("- .7e0", -0.7),
    ("18446744073709551615", 2**64 - 1),
]
TEXTS = [("'D'", "D"), ('"Ü"', "Ü"), ("''", ""), ('"it\'s"', "it's"), ("'P'", "P")]
TRUTHS = [("true", True), ("False", False)]
COMPARISONS = st.one_of(
    chains(
        column_or(["n", "u", "small", "speed.mean", "`n`", "ego.position[1]", "timestamp", "lane"], NUMBERS),
        NUMBERS,
    ),
    chains(column_or(["gear", "note"], TEXTS), TEXTS),
    chains(column_or(["moving", "open"], TRUTHS), TRUTHS),
    st.sampled_from(["moving", "open", "lane.available"]).map(lambda name: (name, lambda row: row[name])),
    st.just(("available(image)", lambda row: row["image.available"])),
    st.builds(
        lambda word, name: (f"{word}({name})", lambda row: of_floats(word, one(row, name))),
        st.sampled_from(["isfinite", "isnan"]),
        st.sampled_from(["n", "u", "small", "speed.mean", "`n`", "ego.position[1]", "ego.position"]),
    ),
)


def joined(word, parts):
    join = every if word == "and" else some
    return f" {word} ".join(f"({text})" for text, _ in parts), lambda row: join(f(row) for _, f in parts)


CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        inner.map(lambda c: (f"not ({c[0]})", lambda row: opposite(c[1](row)))),
        st.builds(joined, st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(8))
@given(CONDITIONS)
def test_filters_mean_what_plain_python_means(condition):
    text, holds = condition
    found = parse(text).bound(TYPES)
    assert found.mask(COLUMNS, 4).tolist() == [holds(row) is True for row in rows_of(COLUMNS)], text


INDEXED = [name for name in TYPES if name.partition(".")[0] not in ("image", "pose", "timestamp")]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The same rows as a table whose index has their numbers and texts, the vector's as scalars."""
    uri = str(tmp_path_factory.mktemp("where") / "table")
    rows = [{**row, "log_id": "a"} for row in rows_of(COLUMNS)]
    for row in rows:
        row |= {"small": np.float32(row["small"]), "u": np.uint64(row["u"])}
        row["ego.position"] = np.array(row["ego.position"])
    types = Schema({n: TYPES[n] for n in INDEXED if not n.endswith(".available")}, SAMPLED)
    tt.write_table(uri, rows, types=types, index=[*types.columns])
    return uri


@given(CONDITIONS.filter(lambda condition: "image" not in condition[0]))
def test_the_index_of_a_table_is_filtered_as_rows_are(table, condition):
    found = tt.read_index(table, where=condition[0])
    passed = parse(condition[0]).bound(TYPES).mask(COLUMNS, 4)
    assert found.timestamp.tolist() == COLUMNS["timestamp"][passed].tolist(), condition[0]


@given(CONDITIONS, st.sampled_from(["and", "or"]), CONDITIONS, CONDITIONS)
def test_not_binds_before_and_and_that_before_or(first, word, second, third):
    def mask(text):
        return parse(text).bound(TYPES).mask(COLUMNS, 4).tolist()

    a, b, c = (f"({text})" for text, _ in (first, second, third))
    assert mask(f"not {a} {word} {b}") == mask(f"(not {a}) {word} {b}")
    assert mask(f"{a} or {b} and {c}") == mask(f"{a} or ({b} and {c})")


def test_a_list_may_name_every_log_of_a_table():
    logs = [f"drive-{n}" for n in range(2000)]
    found = parse(f"log_id in {logs!r}")
    codes = np.array([3, 1999, 2000])
    columns = {"log_id": Categories.of([*logs, "another"], codes)}
    assert found.mask(columns, 3).tolist() == [True, True, False]


def test_texts_that_end_in_a_zero_byte_are_told_apart():
    columns = {"gear": Ragged.from_bytes([b"P", b"P\0"])}
    assert parse("gear == 'P'").mask(columns, 2).tolist() == [True, False]
    assert parse("gear == 'P\0'").mask(columns, 2).tolist() == [False, True]


class Counted(bytes):
    """A text that counts how often it is compared or looked up."""

    looks = 0

    def __eq__(self, other):
        Counted.looks += 1
        return bytes.__eq__(self, other)

    def __hash__(self):
        Counted.looks += 1
        return bytes.__hash__(self)


@pytest.mark.parametrize("sign", ["in", "not in"])
def test_a_long_list_is_looked_up_in_and_not_compared_item_by_item(sign):
    Counted.looks = 0
    columns = {"gear": Categories.of([Counted(b"1"), Counted(b"x")], np.array([0, 1] * 50))}
    mask = parse(f"gear {sign} {[str(n) for n in range(2000)]}").mask(columns, 100)
    assert mask.tolist() == [sign == "in", sign != "in"] * 50
    assert Counted.looks <= 4


LONG = [0, 1, -1, 7, 126, 127, 128, 255, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]
DTYPES = ["i1", "u1", "i4", ">i8", "i8", "u8", "f4", "f8"]


@st.composite
def numbers_of_a_type(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    if dtype.kind == "f":
        values = draw(st.lists(st.sampled_from([0.0, -0.0, 1.0, 0.1, 2.0**53, math.inf, math.nan])))
    else:
        limits = np.iinfo(dtype)
        values = draw(st.lists(st.sampled_from([n for n in LONG if limits.min <= n <= limits.max])))
    return np.array(values, dtype)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8"])
def test_lists_may_contain_the_ends_of_a_type(dtype):
    limits = np.iinfo(dtype)
    column = np.array([limits.min, 1, limits.max], dtype)
    inside = f"n in ({limits.min}, {limits.max}, {limits.max + 1}, {limits.min - 1})"
    assert parse(inside).mask({"n": column}, 3).tolist() == [True, False, True]


def test_constants_of_any_length_are_exact():
    column = np.array([2**64 - 1, 2**64 - 2, 2**53 + 1, 2**53], np.uint64)
    for text, expected in [
        (f"n * 1000 == {(2**64 - 1) * 1000}", [True, False, False, False]),
        (f"n * n > {(2**64 - 2) ** 2}", [True, False, False, False]),
        (f"n == {2**53 + 1:030}", [False, False, True, False]),
        (f"n in ({10**300}, {2**64 - 2:_})", [False, True, False, False]),
    ]:
        with case(text):
            assert parse(text).mask({"n": column}, 4).tolist() == expected


ITEMS = st.one_of(
    st.lists(st.sampled_from(LONG), max_size=60),
    st.lists(st.sampled_from([*LONG, 0.5, 0.1, 2.0**53, 1.0]), max_size=60),
)


@given(numbers_of_a_type(), ITEMS, st.booleans())
def test_long_lists_of_numbers_mean_what_comparing_with_each_means(column, items, negated):
    join, word = (all, "!=") if negated else (any, "==")
    wanted = [
        value == value and join(compared(word, value, item) for item in items) for value in column.tolist()
    ]
    text = f"n {'not ' if negated else ''}in {items}"
    assert parse(text).mask({"n": column}, len(column)).tolist() == wanted


MANY = st.lists(st.sampled_from([f"{n}" for n in range(40)] + ["", "Ü", "P", "P\0"]), max_size=80)


@given(MANY, MANY, st.booleans())
def test_long_lists_of_texts_mean_what_comparing_with_each_means(rows, items, negated):
    written = ", ".join(f"'{item}'" for item in items)
    found = parse(f"gear {'not ' if negated else ''}in [{written}]")
    wanted = [(row in items) != negated for row in rows]
    for column in (Categories.found_in(rows), Ragged.from_bytes([row.encode() for row in rows])):
        assert found.mask({"gear": column}, len(rows)).tolist() == wanted


@given(MANY, st.integers(0, 80), st.integers(0, 80))
def test_rows_share_the_texts_that_are_equal_and_parts_keep_theirs_alone(rows, start, stop):
    found = Categories.found_in(rows)
    part = found[start:stop]
    for categories, texts in ((found, rows), (part, rows[start:stop])):
        assert [text.decode() for text in categories.rows] == texts
        assert len(categories.texts) == len(set(texts))


def test_lists_are_looked_up_for_single_values_too():
    assert passing("'D' in ('P', 'D')") == [0, 1, 2, 3]
    assert passing("'D' not in ('P', 'D')") == []
    assert passing("7 in (7, 8) and n not in (7, 8)") == [0, 1, 2]
    assert passing("moving in (true, true)") == [0, 2]
    assert passing("(n > 0) in (true)") == [2, 3]
