"""Lengths of time that the Python API is given: one rule for texts and numbers."""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.durations import nanoseconds_of, offset_of
from logloom.errors import UsageError


@given(st.integers(0, 3 * 10**17))
def test_a_time_is_the_same_as_a_text_of_any_unit_and_in_seconds(ns):
    seconds = Decimal(ns) / 10**9
    assert nanoseconds_of(f"{ns}ns", "x") == ns
    assert nanoseconds_of(f"{seconds:f}s", "x") == pytest.approx(ns, abs=64)  # filters read numbers as floats
    assert nanoseconds_of(seconds, "x") == nanoseconds_of(Fraction(ns, 10**9), "x") == ns
    if ns < 10**14:
        assert nanoseconds_of(ns / 10**9, "x") == ns
        assert nanoseconds_of(np.float64(ns / 10**9), "x") == ns


@given(st.timedeltas(datetime.timedelta(0), datetime.timedelta(days=3650)))
def test_a_timedelta_is_the_same_of_python_and_of_numpy(value):
    micros = value // datetime.timedelta(microseconds=1)
    assert nanoseconds_of(value, "x") == nanoseconds_of(np.timedelta64(value), "x") == micros * 1000


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        ("300ms", 300_000_000),
        (0.3, 300_000_000),
        (np.float32(0.3), 300_000_000),
        (2, 2_000_000_000),
        (np.int64(2), 2_000_000_000),
        (0, 0),
        ("0s", 0),
        ("1.5us", 1500),
        ("2h", 7_200_000_000_000),
        (datetime.timedelta(milliseconds=150), 150_000_000),
        (np.timedelta64(150, "ms"), 150_000_000),
        (np.timedelta64(3, "25ns"), 75),
        (np.timedelta64(1, "D"), 86_400_000_000_000),
        (np.timedelta64(2, "W"), 14 * 86_400_000_000_000),
    ],
)
def test_texts_and_timedeltas_have_their_unit_and_numbers_are_seconds(value, ns):
    assert nanoseconds_of(value, "x") == ns


@pytest.mark.parametrize(
    "value",
    [
        -0.1,
        "-300ms",
        float("nan"),
        np.float32("nan"),
        float("inf"),
        -float("inf"),
        True,
        None,
        "300",
        "",
        "ms",
        "5 parsecs",
        "recipe",
        [0.3],
        b"300ms",
        1e9,
        "1000000h",
        1j,
        datetime.timedelta(seconds=-1),
        datetime.timedelta(days=4000),
        np.timedelta64(-1, "ns"),
        np.timedelta64("NaT"),
        np.timedelta64("NaT", "s"),
        np.timedelta64(2**62, "W"),
        np.timedelta64(1, "M"),
        np.timedelta64(5),
    ],
)
def test_what_is_no_length_of_time_is_refused_by_the_name_of_its_argument(value):
    with pytest.raises(UsageError, match=r"^window: max_gap=.*'300ms' .*seconds such as 0\.3"):
        nanoseconds_of(value, "window: max_gap")


@pytest.mark.parametrize(
    "value", ["300ms", 0.3, Decimal("0.3"), datetime.timedelta(seconds=0.3), np.timedelta64(300, "ms")]
)
def test_an_offset_is_a_time_before_or_after(value):
    before = f"-{value}" if isinstance(value, str) else -value
    assert (offset_of(before, "x"), offset_of(value, "x")) == (-300_000_000, 300_000_000)


@pytest.mark.parametrize("value", ["--1s", "-", "-1", None, [1], np.timedelta64("NaT"), float("-inf")])
def test_what_is_no_offset_is_refused(value):
    with pytest.raises(UsageError, match=r"x=.*: not a length of time"):
        offset_of(value, "x")
