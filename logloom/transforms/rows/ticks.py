"""The times of rows: ticks of a clock.

Here: pure functions from a clock to ticks, in exact arithmetic.
Elsewhere: splitting ticks into partitions (logloom.transforms.rows.spans), values of rows
(logloom.transforms.rows.resample). Ticks are int64 nanoseconds since the Unix epoch, ascending; ranges of k
are half-open.
"""

from __future__ import annotations

import functools
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from logloom.errors import UsageError

SLOWEST, FASTEST = Decimal("1e-9"), Decimal("1e9")  # a tick in 31 years; a tick each nanosecond


def tick_time(rate: Decimal, k: int) -> int:
    """Return the time of tick k of a rate clock, floor(k * 10**9 / rate) ns.

    >>> [tick_time(Decimal(3), k) for k in (-1, 0, 1, 2)]
    [-333333334, 0, 333333333, 666666666]

    Raises:
        UsageError: the rate is outside 1e-9 to 1e9 Hz, as everywhere in this module.
    """
    numerator, denominator = _step(rate)
    return k * numerator // denominator


def tick_range(rate: Decimal, first: int, last: int) -> tuple[int, int]:
    """Return the range of k with ticks in [first, last], both ends included; empty as (k, k).

    Args:
        rate: ticks a second.
        first: ns since the Unix epoch.
        last: ns since the Unix epoch.

    Returns:
        (start, stop): tick k is at ⌊k · 10⁹ / rate⌋ for start <= k < stop.

    >>> tick_range(Decimal(10), 100_000_000, 250_000_000)
    (1, 3)
    """
    numerator, denominator = _step(rate)
    start = -(-first * denominator // numerator)
    stop = -(-(last + 1) * denominator // numerator)
    return start, max(start, stop)


def rate_ticks(rate: Decimal, start: int, stop: int) -> NDArray[np.int64]:
    """Return the ticks of k in [start, stop).

    Args:
        rate: ticks a second.
        start: the first k.
        stop: the k after the last.

    Returns:
        (stop - start,) ns since the Unix epoch, ascending.

    >>> rate_ticks(Decimal(3), 1, 4).tolist()
    [333333333, 666666666, 1000000000]
    """
    numerator, denominator = _step(rate)
    # k * numerator exceeds int64 within seconds of 1970, so only the offset from tick `start` is vectorised.
    base, rest = divmod(start * numerator, denominator)
    whole, part = divmod(numerator, denominator)
    if (stop - start + 1) * denominator >= 2**63:
        ticks = (base + j * whole + (rest + j * part) // denominator for j in range(stop - start))
        return np.fromiter(ticks, np.int64, max(0, stop - start))
    j = np.arange(stop - start, dtype=np.int64)
    return base + j * whole + (rest + j * part) // denominator


def topic_ticks(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """(T,) the ticks of a topic clock: its distinct message times."""
    return np.unique(times)


@functools.lru_cache(maxsize=16)  # requested repeatedly in plans of many partitions
def _step(rate: Decimal) -> tuple[int, int]:
    """Return the time between ticks in ns, as a fraction in lowest terms."""
    if not (rate.is_finite() and SLOWEST <= rate <= FASTEST):
        raise UsageError(f"clock: the rate must be between {SLOWEST} and {FASTEST} Hz, got {rate}")
    return (10**9 / Fraction(rate)).as_integer_ratio()
