"""Exact sums of floats, which don't depend on the order of values.

Here: numbers `m * 2**e` of any size (`Dyadic`), and the sums of the rows of a matrix and of their squares.
Elsewhere: their use (logloom.statistics.series).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from logloom.values import dataclass

CHUNK = 4096  # values that are summed at once: 2**12 products of 2**40 stay below 2**53
FLOAT_BITS = 1024  # finite floats are below 2**1024
_BITS = 20  # of a limb
_LARGE, _SMALL = 500, -500  # binary exponents beyond which scaling might lose bits
_TEXT = re.compile(r"(-?[0-9a-f]{1,2000})p(-?[0-9]{1,5})")


@dataclass(frozen=True)
class Dyadic:
    """The number `m * 2**e`; m is odd, or both are 0, so that equal numbers are equal objects.

    >>> Dyadic.of(0.1) + Dyadic.of(0.2) == Dyadic.of(0.3)
    False
    >>> float(Dyadic.of(1e16) + Dyadic.of(1) + Dyadic.of(-1e16))
    1.0
    """

    m: int = 0
    e: int = 0

    @classmethod
    def scaled(cls, m: int, e: int) -> Self:
        """`m * 2**e` for any m."""
        if m & 1:
            return cls(m, e)
        if not m:
            return cls()
        zeros = (m & -m).bit_length() - 1
        return cls(m >> zeros, e + zeros)

    @classmethod
    def of(cls, number: float) -> Self:
        """An int, or a finite float."""
        m, denominator = number.as_integer_ratio()
        return cls.scaled(m, 1 - denominator.bit_length())

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`.

        Raises:
            ValueError: not a number.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not a sum: {text[:40]!r}")
        return cls.scaled(int(match[1], 16), int(match[2]))

    @classmethod
    def total(cls, numbers: Iterable[Dyadic]) -> Self:
        """Return the sum, which is the same in any order."""
        known = list(numbers)
        least = min((one.e for one in known), default=0)
        return cls.scaled(sum(one.m << (one.e - least) for one in known), least)

    def __add__(self, other: Dyadic) -> Dyadic:
        return Dyadic.total((self, other))

    def __lt__(self, other: Dyadic) -> bool:
        least = min(self.e, other.e)
        return self.m << (self.e - least) < other.m << (other.e - least)

    def times(self, count: int) -> Dyadic:
        return Dyadic.scaled(self.m * count, self.e)

    def squared(self) -> Dyadic:
        return Dyadic.scaled(self.m**2, 2 * self.e)

    def __str__(self) -> str:
        return f"{self.m:x}p{self.e}"

    def __float__(self) -> float:
        return float(self.fraction)

    @property
    def fraction(self) -> Fraction:
        return Fraction(self.m << self.e) if self.e >= 0 else Fraction(self.m, 1 << -self.e)


def mean_of(total: Dyadic, count: int) -> float:
    """Return the mean, rounded once."""
    return float(total.fraction / count)


def std_of(total: Dyadic, squares: Dyadic, count: int) -> float:
    """Return the population standard deviation, like numpy's, with an error of at most an ulp or two.

    >>> bool(std_of(Dyadic.of(6), Dyadic.of(14), 3) == np.std([1, 2, 3]))
    True
    """
    variance = (count * squares.fraction - total.fraction**2) / count**2
    # Scaled by a power of four, so that neither large nor small ones leave the range of floats.
    half = (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
    scaled = variance / 4**half if half >= 0 else variance * 4**-half
    try:
        return math.ldexp(math.sqrt(float(scaled)), half)
    except OverflowError:  # by an ulp, of values that are plus and minus the largest float
        return sys.float_info.max


# value     = q0 * 2**s  +  q1 * 2**(s-20)  +  q2 * 2**(s-40) + …    q whole, at most 2**20 square    = q0*q0
# * 2**2s  +  2*q0*q1 * 2**(2s-20)  +  … Sums of at most 4096 such q, or products of two, are whole and below
# 2**53: floats represent them exactly in any order of summation. So BLAS can be used.
def sums_of(values: NDArray[np.float64]) -> tuple[list[Dyadic], list[Dyadic]]:
    """Sum rows, and their squares.

    Args:
        values: (L, n) finite, n at most CHUNK.

    >>> sums, squares = sums_of(np.array([[0.5, 3.0], [1e300, -1e300]]))
    >>> [float(one) for one in sums], float(squares[0])
    ([3.5, 0.0], 9.25)
    """
    if not values.size:
        return [Dyadic()] * len(values), [Dyadic()] * len(values)
    largest = np.maximum(values.max(axis=1), -values.min(axis=1))
    exponents = np.frexp(largest)[1].astype(np.int64)
    scalable = exponents <= _LARGE
    for row in np.flatnonzero(scalable & (exponents > _BITS)).tolist():
        sizes = np.abs(values[row])
        scalable[row] = not ((sizes > 0) & (sizes < 2.0**_SMALL)).any()
    if scalable.all():
        return _limb_sums(values, exponents)
    sums, squares = [Dyadic()] * len(values), [Dyadic()] * len(values)
    rows = np.flatnonzero(scalable)
    for row, *found in zip(rows.tolist(), *_limb_sums(values[rows], exponents[rows]), strict=True):
        sums[row], squares[row] = found
    for row in np.flatnonzero(~scalable).tolist():
        sums[row], squares[row] = slow_sums(values[row].tolist())
    return sums, squares


def slow_sums(values: Iterable[float]) -> tuple[Dyadic, Dyadic]:
    """Sum ints or floats of any size, and their squares."""
    numbers = [Dyadic.of(value) for value in values]
    return Dyadic.total(numbers), Dyadic.total(one.squared() for one in numbers)


def _limb_sums(
    values: NDArray[np.float64], exponents: NDArray[np.int64]
) -> tuple[list[Dyadic], list[Dyadic]]:
    rest = np.ldexp(values, (_BITS - exponents)[:, None])
    limbs: list[NDArray[Any]] = []
    while True:
        limb = np.rint(rest)
        limbs.append(limb)
        rest -= limb
        if not rest.any():
            break
        rest *= 2.0**_BITS
    parts = np.stack(limbs, axis=1)  # (L, K, n)
    totals = parts.sum(axis=2).astype(np.int64)
    products = (parts @ parts.transpose(0, 2, 1)).astype(np.int64)
    num = len(limbs)
    diagonals = np.zeros((len(values), 2 * num - 1), np.int64)
    for limb_number in range(num):
        diagonals[:, limb_number : limb_number + num] += products[:, limb_number]
    lowest = (exponents - _BITS * num).tolist()
    sums = [Dyadic.scaled(_joined(row), e) for row, e in zip(totals.tolist(), lowest, strict=True)]
    squares = [Dyadic.scaled(_joined(row), 2 * e) for row, e in zip(diagonals.tolist(), lowest, strict=True)]
    return sums, squares


def _joined(limbs: Iterable[int]) -> int:
    """Return the whole number of limbs, the highest first."""
    number = 0
    for limb in limbs:
        number = (number << _BITS) + limb
    return number
