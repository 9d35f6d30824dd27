"""Filters over whole logs against a plain evaluator of single rows, whatever blocks the rows come in."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Block, Ragged
from logloom.datasets.search.find import merged
from logloom.datasets.search.log_matches import parsed_for, passing, search
from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.intervals import Intervals, Search
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.schema import MAX_TIME, MIN_TIME, STRING, ColumnType, Schema

ELEMENT = np.dtype([("class", "<U4"), ("d", "<f4"), ("p", [("x", "<f8"), ("id", "<i8", (2,))])])
COLUMNS = {
    "speed": ColumnType(np.dtype("<f8")),
    "n": ColumnType(np.dtype("<i8")),
    "moving": ColumnType(np.dtype("?")),
    "gear": STRING,
    "vec": ColumnType(np.dtype("<f4"), (2,)),
    "objects": ColumnType(ELEMENT, (None,)),
    "ranges": ColumnType(np.dtype("<f4"), (None,)),
}
SAMPLED = ("speed", "n", "gear", "objects")
MAX_GAP = 15


class Rows(RowSource):
    """Logs of rows in memory, in blocks that end wherever they are told to."""

    place = "rows"

    def __init__(self, logs, block_rows=1000, saved=()):
        self._schema = Schema(COLUMNS, SAMPLED)
        self._logs, self._block_rows = logs, block_rows
        self.rows_ = [row for rows in logs.values() for row in rows]
        self.max_gap = MAX_GAP
        self.intervals = dict(saved).__getitem__

    @property
    def stretches(self):
        return Stretches.of_logs(list(self._logs), [len(rows) for rows in self._logs.values()])

    @property
    def stamps(self):
        return np.array([row["t"] for row in self.rows_], np.int64)

    def scan(self, names, max_bytes=0, start=0, stop=None):
        for log_id, first, last in self.stretches.between(start, stop):
            for at in range(first, last, self._block_rows):
                some = self.rows_[at : min(at + self._block_rows, last)]
                stamps = np.array([row["t"] for row in some])
                values = {name: stored(name, [row.get(name) for row in some]) for name in names}
                yield Block(log_id, "", at - first, {"timestamp": stamps, **values})


def stored(name, values):
    """A column as rows hold it: 0, NaN or nothing where a value is unavailable."""
    if name.endswith(".available"):
        return np.array([value is not None for value in values])
    ctype = COLUMNS[name]
    if ctype.kind == "string":
        return Ragged.from_bytes([(value or "").encode() for value in values])
    if name == "objects":
        rows = [[(c, d, (x, ids)) for c, d, x, ids in value or ()] for value in values]
        return Ragged.from_rows([np.array(row, ELEMENT) for row in rows], ctype)
    if name == "ranges":
        return Ragged.from_rows([np.array(value, np.float32) for value in values], ctype)
    missing = math.nan if ctype.dtype.kind == "f" else 0
    return np.array([missing if value is None else value for value in values], ctype.dtype).reshape(
        -1, *ctype.tail
    )


class _Rows(Rows):
    """`c.available` is read of the value of c."""

    def scan(self, names, max_bytes=0, start=0, stop=None):
        for row in self.rows_:
            row.update({f"{name}.available": row[name] for name in SAMPLED})
        yield from super().scan(names, max_bytes, start, stop)


# --- the plain evaluator: a condition is (text, fn(rows, i) -> True, False or None) -----------------------


def known(value):
    return None if value is None or value != value else value


def compared(word, a, b):
    """Of values, or of ranges of counts."""
    if a is None or b is None:
        return None
    signs = {
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
    }
    sides = [side if isinstance(side, range) else [side] for side in (a, b)]
    said = {signs[word](x, y) for x, y in itertools.product(*sides)}
    return said.pop() if len(said) == 1 else None


def both(values):
    values = list(values)
    return False if False in values else None if None in values else True


def either(values):
    values = list(values)
    return True if True in values else None if None in values else False


def opposite(value):
    return None if value is None else not value


def apart(rows, i):
    """Whether a gap, or the log's begin, lies before a row."""
    return i == 0 or rows[i]["t"] - rows[i - 1]["t"] > MAX_GAP


def lasting(ns, inner):
    def holds(rows, i):
        said = []
        for a, b in itertools.product(range(i + 1), range(i, len(rows))):
            if rows[b]["t"] - rows[a]["t"] >= ns and not any(apart(rows, k) for k in range(a + 1, b + 1)):
                said.append(both(inner(rows, k) for k in range(a, b + 1)))
        return either(said)

    return holds


def nearby(ns, inner):
    return lambda rows, i: either(
        inner(rows, k) for k in range(len(rows)) if abs(rows[k]["t"] - rows[i]["t"]) <= ns
    )


def delta(ns, value):
    def change(rows, i):
        earlier = [k for k in range(len(rows)) if rows[k]["t"] <= rows[i]["t"] - (ns or 0)]
        k = i - 1 if ns is None else max(earlier, default=-1)
        first, last = min(k, i), max(k, i)
        if k < 0 or any(apart(rows, j) for j in range(first + 1, last + 1)):
            return None
        a, b = value(rows, i), value(rows, k)
        return None if a is None or b is None else known(a - b)

    return change


def elements(word, name, inner):
    def holds(rows, i):
        value = rows[i][name]
        if value is None:
            return None
        said = [inner(value, k) for k in range(len(value))]
        if word == "count":
            return range(said.count(True), len(said) - said.count(False) + 1)
        return either(said) if word == "any" else both(said)

    return holds


FIELDS = {
    "class": lambda e, i: e[i][0],
    "d": lambda e, i: known(e[i][1]),
    "p.x": lambda e, i: known(e[i][2]),
    "p.id[1]": lambda e, i: e[i][3][1],
}
SIGNS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def comparison(operand, constants):
    def make(operand, sign, constant):
        text, value = operand
        return f"{text} {sign} {constant[0]}", lambda rows, i: compared(sign, value(rows, i), constant[1])

    def chain(low, operand, sign, high):
        text, value = operand
        return (
            f"{low[0]} <= {text} {sign} {high[0]}",
            lambda rows, i: both(
                [compared("<=", low[1], value(rows, i)), compared(sign, value(rows, i), high[1])]
            ),
        )

    def member(operand, items, negated):
        text, value = operand

        def holds(rows, i):
            said = either(compared("==", value(rows, i), item) for _, item in items)
            if isinstance(found := value(rows, i), range):  # it may be each of these
                answers = {any(x == item for _, item in items) for x in found}
                said = answers.pop() if len(answers) == 1 else None
            elif found is None:
                said = None
            return opposite(said) if negated else said

        listed = ", ".join(text for text, _ in items)
        return f"{text} {'not ' if negated else ''}in ({listed})", holds

    constant = st.sampled_from(constants)
    return st.one_of(
        st.builds(make, operand, SIGNS, constant),
        st.builds(chain, constant, operand, SIGNS, constant),
        st.builds(member, operand, st.lists(constant, max_size=3), st.booleans()),
    )


NUMBERS = [("0", 0), ("1", 1), ("-1.5", -1.5), ("2", 2), ("3.5", 3.5)]
TEXTS = [("'P'", "P"), ("'D'", "D"), ("''", "")]
DURATIONS = st.sampled_from(
    [
        ("0ns", 0),
        ("5ns", 5),
        ("10 ns", 10),
        ("0.02us", 20),
        ("0.03e0 us", 30),
        ("3660d", 3660 * 86400 * 10**9),
    ]
)


def column(name, index=None):
    text = name if index is None else f"{name}[{index}]"
    if index is None:
        return text, lambda rows, i: known(rows[i][name])
    return text, lambda rows, i: known(rows[i][name][index])


NUMERIC = [column("speed"), column("n"), column("vec", 1)]


def of_floats(word, numbers):
    """Of what is stored: a missing number is NaN, a missing list empty."""
    numbers = [math.nan if number is None else number for number in numbers]
    return all(map(math.isfinite, numbers)) if word == "isfinite" else any(map(math.isnan, numbers))


WORDS = st.sampled_from(["isfinite", "isnan"])
STORED = {
    "speed": lambda row: [row["speed"]],
    "n": lambda row: [0],
    "vec": lambda row: row["vec"],
    "vec[1]": lambda row: row["vec"][1:],
    "ranges": lambda row: row["ranges"],
    "objects": lambda row: [number for _, d, x, _ in row["objects"] or () for number in (d, x)],
}
FINITE = st.builds(
    lambda word, name: (f"{word}({name})", lambda rows, i: of_floats(word, STORED[name](rows[i]))),
    WORDS,
    st.sampled_from(list(STORED)),
)
FINITE_ELEMENTS = st.builds(
    lambda word, field: (f"{word}({field})", lambda e, i: of_floats(word, [e[i][{"d": 1, "p.x": 2}[field]]])),
    WORDS,
    st.sampled_from(["d", "p.x"]),
)
OF_ELEMENTS = st.one_of(
    FINITE_ELEMENTS,
    comparison(st.sampled_from([(n, FIELDS[n]) for n in ("d", "p.x", "p.id[1]")]), NUMBERS),
    comparison(st.just(("class", FIELDS["class"])), TEXTS),
)


def joined(word, parts):
    join = both if word == "and" else either
    return f" {word} ".join(f"({text})" for text, _ in parts), lambda rows, i: join(
        f(rows, i) for _, f in parts
    )


ELEMENT_CONDITIONS = st.recursive(
    OF_ELEMENTS,
    lambda inner: st.one_of(
        st.builds(joined, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=2)),
        inner.map(lambda one: (f"not ({one[0]})", lambda rows, i: opposite(one[1](rows, i)))),
    ),
    max_leaves=3,
)


def quantified(word, conditions):
    listed = "".join(f", {text}" for text, _ in conditions)
    return f"{word}(objects{listed})", elements(
        word, "objects", lambda e, i: both(f(e, i) for _, f in conditions)
    )


SOME = st.lists(ELEMENT_CONDITIONS, min_size=1, max_size=2)
COUNTS = st.one_of(
    st.builds(quantified, st.just("count"), st.lists(ELEMENT_CONDITIONS, max_size=2)),
    st.just(
        (
            "count(ranges, value < 2)",
            elements("count", "ranges", lambda e, i: compared("<", known(e[i]), 2)),
        )
    ),
)
CHANGES = st.builds(
    lambda one, duration: (
        f"delta({one[0]}{', ' + duration[0] if duration else ''})",
        delta(duration[1] if duration else None, one[1]),
    ),
    st.sampled_from(NUMERIC),
    st.one_of(st.none(), DURATIONS),
)
BASE = st.one_of(
    comparison(st.sampled_from(NUMERIC), NUMBERS),
    comparison(st.just(column("gear")), TEXTS),
    comparison(COUNTS, NUMBERS),
    comparison(CHANGES, NUMBERS),
    st.builds(quantified, st.sampled_from(["any", "all"]), SOME),
    FINITE,
    st.just(("moving", lambda rows, i: rows[i]["moving"])),
    st.just(("available(speed)", lambda rows, i: rows[i]["speed"] is not None)),
    st.just(("in(saved)", lambda rows, i: any(a <= rows[i]["t"] < b for a, b in rows[i]["saved"]))),
)
CONDITIONS = st.recursive(
    BASE,
    lambda inner: st.one_of(
        st.builds(joined, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        inner.map(lambda one: (f"not ({one[0]})", lambda rows, i: opposite(one[1](rows, i)))),
        st.builds(lambda one, d: (f"({one[0]}) for {d[0]}", lasting(d[1], one[1])), inner, DURATIONS),
        st.builds(lambda one, d: (f"({one[0]}) within {d[0]}", nearby(d[1], one[1])), inner, DURATIONS),
        st.builds(
            lambda one, a, b: (
                f"({one[0]}) for {a[0]} within {b[0]}",
                nearby(b[1], lasting(a[1], one[1])),
            ),
            inner,
            DURATIONS,
            DURATIONS,
        ),
    ),
    max_leaves=4,
)
FLOATS = st.sampled_from([0.0, 1.0, 2.0, -1.5, 3.5, math.inf, math.nan])
OBJECT = st.tuples(
    st.sampled_from(["P", "D", ""]), FLOATS, FLOATS, st.tuples(st.integers(-2, 3), st.integers(-2, 3))
)
ROW = st.fixed_dictionaries(
    {
        "speed": st.one_of(st.none(), FLOATS),
        "n": st.one_of(st.none(), st.integers(-2, 4)),
        "moving": st.booleans(),
        "gear": st.one_of(st.none(), st.sampled_from(["P", "D", ""])),
        "vec": st.tuples(FLOATS, FLOATS),
        "objects": st.one_of(st.none(), st.lists(OBJECT, max_size=3)),
        "ranges": st.lists(FLOATS, max_size=3),
        "gap": st.sampled_from([0, 5, 10, 15, 16, 40]),
    }
)
SPANS = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 30)), max_size=3)
START = st.sampled_from([0, 1_700_000_000_000_000_000, MIN_TIME, MAX_TIME - 500])


def timed(rows, start, spans):
    """Rows with times, and the intervals of their log."""
    at, starts, stops = start, [], []
    for row in rows:
        at += row["gap"]
        row["t"] = at
    for first, length in sorted(spans):
        if not stops or start + first > stops[-1]:
            starts.append(start + first)
            stops.append(start + first + length)
    for row in rows:
        row["saved"] = list(zip(starts, stops, strict=True))
    return starts, stops


@given(
    CONDITIONS, st.lists(st.tuples(st.lists(ROW, max_size=8), SPANS, START), max_size=3), st.integers(1, 9)
)
def test_rows_are_found_as_a_plain_evaluator_finds_them_in_blocks_of_any_size(condition, logs, block_rows):
    text, holds = condition
    made, saved = {}, ([], [], [])
    for number, (rows, spans, start) in enumerate(logs):
        log_id = f"log-{number}"
        starts, stops = timed(rows, start, spans)
        saved = saved[0] + [log_id] * len(starts), saved[1] + starts, saved[2] + stops
        made[log_id] = rows
    intervals = Intervals(Search("moving"), *saved)
    wanted = [holds(rows, i) for rows in made.values() for i in range(len(rows))]
    for size in {block_rows, 1000}:
        source = _Rows(made, size, {"saved": intervals})
        found = list(search(source, parsed_for(source, text)))
        said = [
            True if yes else None if may else False
            for log in found
            for yes, may in zip(log.holds.tolist(), log.may.tolist(), strict=True)
        ]
        assert said == wanted, text
        assert [log.log_id for log in found] == [log_id for log_id, rows in made.items() if rows]


def one_log(values, step=10, **columns):
    rows = []
    for number, value in enumerate(values):
        row = {"speed": value, "n": number, "moving": True, "gear": "D", "vec": (0.0, 0.0)}
        rows.append({**row, "objects": [], "ranges": [], "t": step * number, **columns})
    return rows


def found(rows, text):
    return passing(_Rows({"a": rows}, 3), np.arange(len(rows)), text).tolist()


def test_a_stretch_counts_from_its_first_row_to_its_last_over_borders_of_blocks():
    rows = one_log([0, 5, 5, 5, 5, 0, 5, 5])
    assert found(rows, "speed > 1 for 30ns") == [1, 2, 3, 4]
    assert found(rows, "speed > 1 for 31ns") == []
    assert found(rows, "speed > 1 for 10ns and moving") == [1, 2, 3, 4, 6, 7]
    rows[3]["t"] += 6  # a gap of 16 ns, more than the clock's one and a half
    assert found(rows, "speed > 1 for 10ns") == [1, 2, 6, 7]
    assert found(rows, "not speed > 1 for 0s") == [0, 5]
    assert found(rows, "speed < 1 within 10ns") == [0, 1, 4, 5, 6]


def test_values_before_a_gap_are_no_earlier_ones():
    rows = one_log([0, 1, 2, 3], step=10)
    rows[2]["t"] += 6
    rows[3]["t"] += 6  # runs of two rows
    assert found(rows, "delta(speed) == 1") == [1, 3]
    assert found(rows, "delta(speed, 10ns) == 1") == [1, 3]
    assert found(rows, "delta(speed, 20ns) == 2") == []


def test_what_is_unavailable_is_neither_true_nor_false():
    rows = one_log([5, None, 5, math.nan, 0])
    assert found(rows, "(speed > 1) for 0s") == [0, 2]
    assert found(rows, "not (speed > 1) for 0s") == [4]
    assert found(rows, "not (speed > 1 for 20ns)") == [4]  # the others may be of a stretch
    assert found(rows, "delta(speed) != 0") == []
    assert found(rows, "delta(n) == 1") == [1, 2, 3, 4]
    assert found(rows, "not (speed > 1)") == [4]
    rows[1]["n"] = None
    assert found(rows, "delta(n) != 0") == [3, 4]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("{} > 0", True),
        ("{} in (1, 2)", True),
        ("{} in (0, 1, 2, 2)", True),
        ("{} in (1, 1.5)", None),
        ("{} in (0, 3)", False),
        ("{} in (1.5)", False),
        ("{} not in (2)", None),
        ("{} == 1.5", False),
        ("{} == speed", False),
        ("{} != 2", None),
        ("{} == n", None),
        ("{} == 3", False),
    ],
)
def test_a_count_of_unknown_elements_is_a_whole_number_that_may_be(text, holds):
    rows = one_log([1.5], n=1, ranges=[0.0, math.nan, 5.0])  # the count is 1 or 2
    text = text.format("count(ranges, value < 2)")
    assert (found(rows, text), found(rows, f"not ({text})")) == ([0][: holds is True], [0][: holds is False])


@pytest.mark.parametrize("first", [2**61, 2**62, 2**63 - 3, -(2**63)])
def test_differences_of_large_whole_numbers_are_exact(first):
    rows = [{**row, "n": first + k} for k, row in enumerate(one_log([0, 0, 0]))]
    assert found(rows, "delta(n) == 1") == [1, 2]
    rows[1]["n"] = -first - 1
    assert found(rows, f"delta(n) == {-2 * first - 1}") == [1]
    assert found(rows, "delta(timestamp, 20ns) == 20") == [2]


@pytest.mark.parametrize(
    ("text", "message", "under"),
    [
        ("spede > 1 for 1s", "no column 'spede'; did you mean speed", "spede"),
        ("count(objcts) > 1", "no column 'objcts'; did you mean objects", "objcts"),
        ("count(objects, clas == 'P') > 1", "no field 'clas'; did you mean class", "clas"),
        ("count(objects, speed > 1) > 1", "no field 'speed'", "speed"),
        ("any(ranges, d < 1)", "no field 'd'; there is only value", "d <"),
        ("count(objects) > 'x'", "a number is compared with a text", "'x'"),
        ("count(objects)", "this is a number", "count"),
        ("count(speed) > 1", "only lists and vectors have elements", "speed"),
        ("any(objects)", "any.* needs a condition", ")"),
        ("any(objects, p > 1)", "no field 'p'", "p >"),
        ("any(objects, class)", "a condition is true or false, this is a text", "class"),
        ("any(objects, any(ranges, value > 1))", "isn't allowed within any", "any(ranges"),
        ("any(objects, d > 1 for 1s)", "an element has no time", "for"),
        ("any(objects, in(x))", "an element only has fields", "in"),
        ("any(objects, available(speed))", "an element only has fields", "available"),
        ("delta(gear) > 1", "only numbers change", "gear"),
        ("delta(moving) > 1", "only numbers change by something, this is a truth", "moving"),
        ("delta(speed, 1) > 1", "expected a unit: ns, us", ")"),
        ("speed > 1 for 300", "expected a unit", None),
        ("speed > 1 for ms", "expected a duration such as 300ms", "ms"),
        ("speed > 1 for 99999d", "more than ten years", "99999d"),
        ("speed > 1 for 1e300 d", "more than ten years", "1e300"),
        ("speed > 1 for 1e999s", "too large", "1e999"),
        ("speed > 1 for -1s", "expected a duration", "-1s"),
        ("speed for 1s", "this is a number", "speed"),
        ("in(Hard)", "expected a name of intervals", "Hard"),
        ("in('../x')", "expected a name of intervals", "'../x'"),
        ("in(a.b)", "expected a name of intervals", "a.b"),
        ("speed > 1 for 1s for 1s", "expected an operator", "for 1s"),
        ("(" * 60 + "moving", "nested more than 50", None),
    ],
)
def test_a_wrong_search_is_refused_and_a_mark_stands_below_its_place(text, message, under):
    with pytest.raises(UsageError, match=message) as caught:
        parsed_for(_Rows({"a": one_log([1])}), text)
    if under is not None:
        (note,) = caught.value.__notes__
        shown, mark = note.split("\n")
        assert len(mark) - 1 - 4 == text.rindex(under), note
        assert shown == f"    {text}"


def test_names_of_functions_are_columns_where_no_bracket_follows():
    class Named(_Rows):
        @property
        def small(self):
            return {name: np.arange(3) for name in ("count", "any", "all", "delta", "within", "for")}

    text = "count > 0 and any > 0 and all > 0 and delta > 0 and `for` > 0 and within > 1 for 0s"
    assert passing(Named({"a": one_log([1, 2, 3])}), np.arange(3), text).tolist() == [2]


def test_times_that_do_not_ascend_are_told():
    rows = one_log([1, 2])
    rows[1]["t"] = -1
    with pytest.raises(DatasetError, match="times of log a don't ascend"):
        found(rows, "moving for 1s")


def test_rows_of_some_logs_are_looked_at_alone():
    logs = {"a": one_log([5, 5]), "b": one_log([5, 5])}
    logs["b"][1]["t"] = -1
    assert passing(_Rows(logs), np.array([1]), "speed > 1 for 10ns").tolist() == [1]


def test_rows_are_numbered_within_their_log():
    logs = _Rows({"a": one_log([5, 5, 5]), "b": one_log([5, 5, 5])})
    assert passing(logs, np.arange(6), "row < 2 and speed > 1 for 0s").tolist() == [0, 1, 3, 4]
    assert passing(logs, np.arange(6), "row == 1 and delta(speed) == 0").tolist() == [1, 4]


def test_intervals_that_touch_are_one():
    starts, stops = merged(np.array([0, 5, 11, 20]), np.array([5, 10, 12, 30]))
    assert (starts.tolist(), stops.tolist()) == ([0, 11, 20], [10, 12, 30])
    assert [len(one) for one in merged(np.empty(0, np.int64), np.empty(0, np.int64))] == [0, 0]
