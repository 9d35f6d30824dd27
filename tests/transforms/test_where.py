import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logloom.blocks import Ragged
from logloom.errors import UsageError
from logloom.schema import AVAILABLE, BYTES, STRING, ColumnType
from logloom.transforms.where import parse

TYPES = {
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
}


def passing(text):
    found = parse(text)
    found.check(TYPES)
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
        ("speed.mean != 0.7", [0, 3]),  # NaN compares false, even here
        ("not speed.mean == 0.7", [0, 2, 3]),
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
        ("n ; 1", "character 3 .*';' has no meaning"),
        ("n = 1", "'=' has no meaning"),
        ("spee.mean > 1", "character 1 .*did you mean 'speed.mean'"),
        ("n > 0 and available(imag)", "character 11 .*did you mean 'image.available'"),
        ("available(n)", "no column 'n.available'"),
        ("zzz > 1", "there are speed.mean"),
        ("gear > 'D'", "compares numbers"),
        ("gear == 1", "a text is compared with a number"),
        ("n == true", "a number is compared with a truth"),
        ("n and moving", "a condition is true or false, this is a number"),
        ("n", "a condition is true or false"),
        ("'x'", "a condition is true or false"),
        ("ego.position > 1", r"only single numbers and text can be compared, this is float64\[3\]"),
        ("ego.position[3] > 1", "index 3 is out of range"),
        ("ego.position[-1] > 1", "expected an index"),
        ("image == 'x'", "only single numbers and text"),
        ("n in ()", "expected a column, a number"),
        ("n in 3", "expected a list"),
        ("n not 3", "expected 'in'"),
        ("n in (1", r"expected '\)'"),
        ("1e999 < n", "too large"),
        ("(" * 60 + "n", "nested more than 50"),
        ("not " * 60 + "moving", "nested more than 50"),
        ("__import__('os').system('x')", "expected an operator|has no meaning"),
        ("n > 1" + " " * 20_000, "20005 characters, more than"),
    ],
)
def test_a_wrong_filter_is_refused_with_its_place(text, message):
    with pytest.raises(UsageError, match=message):
        parse(text).check(TYPES)


def test_a_filter_names_the_columns_it_looks_at():
    text = "n > 1 and (available(image) or gear in ('P') or not moving)"
    assert parse(text).columns == ("gear", "image.available", "moving", "n")


@given(st.text("n()<>=!1.0' \"[],-andotirspeavl", max_size=40))
@settings(max_examples=500)
def test_any_text_is_a_filter_or_refused(text):
    try:
        found = parse(text)
        found.check(TYPES)
    except UsageError:
        return
    assert found.mask(COLUMNS, 4).shape == (4,)


NUMBERS = st.sampled_from(["n", "u", "small", "speed.mean", "0", "1", "-1", "0.5", "7"])
CONDITIONS = st.recursive(
    st.one_of(
        st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "=="]), NUMBERS).map(" ".join),
        st.sampled_from(["moving", "true", "n in (1, 7)"]),
    ),
    lambda inner: st.one_of(
        inner.map(lambda c: f"not {c}" if " and " not in c and " or " not in c else f"not ({c})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]}) or ({t[1]}) and ({t[2]})"),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
def test_filters_mean_what_python_means(text):
    expected = []
    for row in range(4):
        names = {
            name.replace(".", "_"): COLUMNS[name][row].item()
            for name in ("n", "u", "small", "speed.mean", "moving")
        }
        code = text.replace("speed.mean", "speed_mean").replace("true", "True")
        expected.append(bool(eval(code, {}, names)))
    assert parse(text).mask(COLUMNS, 4).tolist() == expected
