from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import UsageError
from logloom.transforms.rows.ticks import rate_ticks, tick_range, tick_time, topic_ticks

RATES = st.one_of(
    st.sampled_from(["10", "29.97", "0.3333333333333333333333333333", "3", "1e9", "1e-3", "59.94005994"]),
    st.decimals("0.001", "1000000000", allow_nan=False, places=9).map(str),
)


def test_ticks_are_multiples_of_the_period_since_1970_floored_to_nanoseconds():
    start, stop = tick_range(Decimal(10), 950_000_000, 1_200_000_000)  # the ticks of 10 Hz in an extent
    assert (start, stop) == (10, 13)
    assert rate_ticks(Decimal(10), start, stop).tolist() == [1_000_000_000, 1_100_000_000, 1_200_000_000]
    assert rate_ticks(Decimal(3), -4, 2).tolist() == [
        -1333333334, -1000000000, -666666667, -333333334, 0, 333333333,
    ]  # fmt: skip


@given(RATES, st.integers(-(2**62), 2**62), st.integers(0, 40))
def test_ticks_are_the_exact_floors(rate, time, count):
    rate = Decimal(rate)
    start, _ = tick_range(rate, time, time)
    exact = [(k * 10**9 / Fraction(rate)).__floor__() for k in range(start, start + count)]
    assert rate_ticks(rate, start, start + count).tolist() == exact
    assert [tick_time(rate, start + i) for i in range(count)] == exact


@given(RATES, st.integers(-(10**15), 10**15), st.integers(0, 10**9))
def test_the_range_holds_just_the_ticks_of_an_extent(rate, first, length):
    rate, last = Decimal(rate), first + length
    start, stop = tick_range(rate, first, last)
    assert start <= stop
    assert tick_time(rate, start - 1) < first
    assert tick_time(rate, stop) > last
    if start < stop:
        assert first <= tick_time(rate, start)
        assert tick_time(rate, stop - 1) <= last


def test_logs_recorded_apart_share_their_ticks():
    rate = Decimal("29.97")
    a, b = (rate_ticks(rate, *tick_range(rate, t, t + 10**9)) for t in (10**18, 10**18 + 300_000_000))
    assert np.isin(b[b <= a[-1]], a).all()


@pytest.mark.parametrize("rate", ["0", "-1", "NaN", "Infinity", "1e10", "1e-999999999", "1000000000.1"])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(UsageError, match="rate must be between"):
        rate_ticks(Decimal(rate), 0, 1)


def test_a_topic_clock_ticks_once_for_equal_stamps():
    assert topic_ticks(np.array([5, 3, 5, 9])).tolist() == [3, 5, 9]
