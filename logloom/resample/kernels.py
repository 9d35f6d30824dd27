"""Arithmetic on sampled values, the same to the bit on every CPU.

Here: interpolation (linear, slerp, angle), reduction of windows, and casts.
Elsewhere: selecting messages (logloom.transforms.rows.resample).

Values are (N, ...) arrays. Only separate additions, subtractions, multiplications, divisions, square roots,
floors and comparisons are used, each rounded according to IEEE 754: numpy's transcendental functions, its
pairwise sums and its BLAS give different bits on different CPUs. Callers silence floating point warnings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array

Indices = NDArray[np.intp]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NAN = np.array(0x7FF8000000000000, np.uint64).view(np.float64)
TURN = 2 * np.pi
PARALLEL = 0.9995  # quaternions with a larger dot product are interpolated along the chord

# Taylor coefficients in z = x * x: sin x = x * P(z) for |x| <= pi / 2, asin x = x * Q(z) for |x| <= 0.2.
_SIN = [float(Fraction((-1) ** n, math.factorial(2 * n + 1))) for n in range(12)]
_ASIN = [
    float(Fraction(math.factorial(2 * n), 4**n * math.factorial(n) ** 2 * (2 * n + 1))) for n in range(13)
]


def canonical(values: Floats) -> Floats:
    """Rewrites every NaN, in place, to the one with bits 0x7ff8000000000000."""
    values[np.isnan(values)] = NAN
    return values


def linear(a: Floats, b: Floats, w: Floats) -> Floats:
    """a + (b - a) * w, of (n, ...) values with (n,) weights.

    >>> linear(np.array([1.0, 10.0]), np.array([3.0, 20.0]), np.array([0.5, 0.25])).tolist()
    [2.0, 12.5]
    """
    return canonical(a + (b - a) * _beside(w, a))


def angle(a: Floats, b: Floats, w: Floats) -> Floats:
    """Interpolate radians along the shorter arc from a to b, the positive one if they are exactly half a turn
    apart.

    >>> angle(np.array([3.0]), np.array([-3.0]), np.array([0.5])).round(3).tolist()  # through pi, not 0
    [3.142]
    """
    return canonical(wrap(a + wrap(b - a) * _beside(w, a)))


def wrap(angles: Floats) -> Floats:
    """The angles in (-pi, pi]; those within stay as they are, infinite ones become NaN.

    >>> wrap(np.array([1.0, 4.0, -np.pi])).round(3).tolist()
    [1.0, -2.283, 3.142]
    """
    angles = np.where(np.isinf(angles), NAN, angles)
    # Beyond 2**53 turns one step leaves a rest of many turns, hence the loop.
    while (far := np.abs(angles) > TURN).any():
        angles = np.where(far, angles - np.floor(angles / TURN) * TURN, angles)
    angles = np.where(angles <= -np.pi, angles + TURN, angles)
    return np.where(angles > np.pi, angles - TURN, angles)


def slerp(a: Floats, b: Floats, w: Floats) -> Floats:
    """Unit quaternions on the shorter great arc from a to b; (n, ..., 4) of any norm but zero.

    >>> slerp(np.array([[0.0, 0, 0, 1]]), np.array([[0.0, 0, 1, 0]]), np.array([0.5])).round(3).tolist()
    [[0.0, 0.0, 0.707, 0.707]]
    """
    a, b, w = normalised(a), normalised(b), _beside(w, a)
    dot = _dot(a, b)
    b = np.where(dot < 0, -b, b)
    dot = np.abs(dot)
    chord = normalised(a + (b - a) * w)
    theta = _arccos(np.minimum(dot, PARALLEL))
    arc = (a * _sin((1 - w) * theta) + b * _sin(w * theta)) / _sin(theta)
    return canonical(np.where(dot > PARALLEL, chord, arc))


def normalised(quaternions: Floats) -> Floats:
    """The quaternions divided by their norm; NaN where it is zero or not finite.

    >>> normalised(np.array([[0.0, 3, 0, 4]])).round(3).tolist()
    [[0.0, 0.6, 0.0, 0.8]]
    """
    # Divided by the largest part first, for squares of very small or large parts leave the range of float64.
    largest = np.abs(quaternions[..., :1])
    for part in range(1, 4):
        other = np.abs(quaternions[..., part : part + 1])
        largest = np.where(other > largest, other, largest)
    scaled = quaternions / largest
    return canonical(scaled / np.sqrt(_dot(scaled, scaled)))


def has_zero_norm(quaternions: Array) -> Mask:
    """(n,) whether any quaternion of a message is zero; of (n, ..., 4).

    >>> has_zero_norm(np.array([[0, 0, 0, 1], [0, 0, 0, 0]])).tolist()
    [False, True]
    """
    zero: Mask = np.all(quaternions == 0, axis=-1)
    found: Mask = np.any(zero, axis=tuple(range(1, zero.ndim)))
    return found


def arc_angles(dot: Floats, half_chord: Floats) -> tuple[Floats, Floats]:
    """The angles of great arcs between two unit quaternions, and their sines.

    Unlike `slerp` it doesn't replace short arcs by chords, so it is exact to the last digits at any angle.

    Args:
        dot: (n,) cosines of the angles between them, 0 to 1: b's sign is such that the arc is the shorter.
        half_chord: (n,) |b - a| / 2, which is more precise for small angles than cosines.
    """
    # The sine of half the angle is half the chord. Halved twice more it is at most sin(pi / 16) < 0.2.
    sine, cosine = half_chord, np.sqrt((1 + dot) * 0.5)
    for _ in range(2):
        cosine = np.sqrt((1 + cosine) * 0.5)
        sine = sine / (2 * cosine)
    theta = 8 * (sine * _polynomial(_ASIN, sine * sine))
    return theta, _sin(theta)


def arc_weights(theta: Floats, sine: Floats, w: Floats) -> tuple[Floats, Floats]:
    """The weights of a and b at `w` of great arcs.

    Args:
        theta, sine: (n,) of `arc_angles`.
        w: (n,) from 0 to 1.

    >>> a, b = arc_weights(*arc_angles(np.array([0.0]), np.array([np.sqrt(0.5)])), np.array([0.5]))
    >>> (a.round(3).tolist(), b.round(3).tolist())
    ([0.707], [0.707])
    """
    v = 1 - w
    of_a, of_b = _sin(v * theta), _sin(w * theta)
    is_arc = sine > 0
    if is_arc.all():
        return of_a / sine, of_b / sine
    sine = np.where(is_arc, sine, 1.0)
    return np.where(is_arc, of_a / sine, v), np.where(is_arc, of_b / sine, w)


def _dot(a: Floats, b: Floats) -> Floats:
    """(..., 1) sums of four products, left to right."""
    total = a[..., :1] * b[..., :1]
    for part in range(1, 4):
        total = total + a[..., part : part + 1] * b[..., part : part + 1]
    return total


def _arccos(c: Floats) -> Floats:
    """Angles whose cosines are c, 0 <= c <= 0.9995."""
    # Sine and cosine of half the angle three times over, until the series of asin is short.
    sine, cosine = np.sqrt((1 - c) * 0.5), np.sqrt((1 + c) * 0.5)
    for _ in range(2):
        cosine = np.sqrt((1 + cosine) * 0.5)
        sine = sine / (2 * cosine)
    return 8 * (sine * _polynomial(_ASIN, sine * sine))


def _sin(x: Floats) -> Floats:
    """Sines of 0 <= x <= pi / 2."""
    return x * _polynomial(_SIN, x * x)


def _polynomial(coefficients: list[float], z: Floats) -> Floats:
    total = np.full_like(z, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total *= z
        total += coefficient
    return total


def _beside(w: Floats, values: Floats) -> Floats:
    """(n,) weights shaped so that they multiply (n, ...) values."""
    return w.reshape(len(w), *[1] * (values.ndim - 1))


Step = Callable[[Array, Array], Array]


def _add(total: Array, value: Array) -> Array:
    return np.add(total, value)


def _smaller(best: Array, value: Array) -> Array:
    return np.where(_is_nan(best) | ~(_is_nan(value) | (value < best)), best, value)


def _larger(best: Array, value: Array) -> Array:
    return np.where(_is_nan(best) | ~(_is_nan(value) | (value > best)), best, value)


def _is_nan(values: Array) -> Mask:
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)


def total(values: Array, starts: Indices, lengths: Indices) -> Array:
    """(T, ...) float64 sums of runs of (N, ...) values, each added from its first to its last.

    >>> total(np.array([1, 2, 4, 8]), np.array([0, 1]), np.array([2, 3])).tolist()
    [3.0, 14.0]
    """
    return canonical(_fold(_add, values.astype(np.float64), starts, lengths))


def mean(values: Array, starts: Indices, lengths: Indices) -> Array:
    """(T, ...) float64 sums of runs divided by their lengths.

    >>> mean(np.array([1, 2, 4, 8]), np.array([0, 1]), np.array([2, 2])).tolist()
    [1.5, 3.0]
    """
    sums = _fold(_add, values.astype(np.float64), starts, lengths)
    return canonical(sums / _beside(lengths.astype(np.float64), sums))


def smallest(values: Array, starts: Indices, lengths: Indices) -> Array:
    """(T, ...) the first of the smallest values of runs, or the first NaN.

    >>> smallest(np.array([3, 1, 2]), np.array([0, 2]), np.array([3, 1])).tolist()
    [1, 2]
    """
    return _fold(_smaller, values, starts, lengths)


def largest(values: Array, starts: Indices, lengths: Indices) -> Array:
    """(T, ...) the first of the largest values of runs, or the first NaN.

    >>> largest(np.array([3, 1, 2]), np.array([0, 2]), np.array([3, 1])).tolist()
    [3, 2]
    """
    return _fold(_larger, values, starts, lengths)


def first(values: Array, starts: Indices, lengths: Indices) -> Array:
    """(T, ...) the first values of runs.

    >>> first(np.array([3, 1, 2]), np.array([0, 2]), np.array([2, 1])).tolist()
    [3, 2]
    """
    return values[starts]


def last(values: Array, starts: Indices, lengths: Indices) -> Array:
    """(T, ...) the last values of runs.

    >>> last(np.array([3, 1, 2]), np.array([0, 2]), np.array([2, 1])).tolist()
    [1, 2]
    """
    chosen: Array = values[starts + lengths - 1]
    return chosen


# One step for all runs at a time, while they last:
#
# values   | a b c | d | e f |      starts 0 3 4, lengths 3 1 2
# result     a       d   e          k = 0
#            a+b         e+f        k = 1: the runs longer than 1
#            a+b+c                  k = 2: those longer than 2
def _fold(step: Step, values: Array, starts: Indices, lengths: Indices) -> Array:
    """step(... step(step(v0, v1), v2) ..., vn) of every run, from left to right."""
    result = values[starts]
    longest = int(lengths.max(initial=0))
    if longest > len(starts) and step is _add:
        # Few long runs. A cumulative sum adds one value after the other; np.sum and reduceat add pairwise.
        for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            result[row] = np.add.accumulate(values[start : start + length], axis=0)[-1]
        return result
    if longest > len(starts):
        for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            result[row] = _halve(step, values[start : start + length])
        return result
    for k in range(1, longest):
        active = np.flatnonzero(lengths > k)
        result[active] = step(result[active], values[starts[active] + k])
    return result


def _halve(step: Step, values: Array) -> Array:
    """Reduces (n, ...) values by an associative step, joining neighbours until one is left.

    >>> _halve(_smaller, np.array([5, 4, 7, 2, 9])).tolist()  # 5 4 7 2 9, 4 2 9, 2 9, 2
    2
    """
    while len(values) > 1:
        pairs = step(values[:-1:2], values[1::2])
        values = np.concatenate([pairs, values[-1:]]) if len(values) % 2 else pairs
    whole: Array = values[0]
    return whole


def first_misfit(values: Array, dtype: np.dtype[Any]) -> int | None:
    """Return the flat index of the first number beyond a type; None if all fit.

    Floats round, and only a finite number that would become infinite doesn't fit.

    >>> first_misfit(np.array([1.0, 300.0]), np.dtype("u1"))
    1
    >>> first_misfit(np.array([np.inf, 65519.0, 65520.0]), np.dtype("f2"))
    2
    """
    if dtype.kind == "b" or values.dtype == dtype or values.dtype.kind == "b":
        return None
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            misfit = np.isinf(values.astype(dtype)) & np.isfinite(values)
        return int(np.argmax(misfit)) if misfit.any() else None
    limits = np.iinfo(dtype)
    if values.dtype.kind == "f":
        # The limits as float64 are exact powers of two; not every int64 has a float64 of its own.
        rounded = np.rint(values.astype(np.float64))
        misfit = ~((rounded >= float(limits.min)) & (rounded < float(limits.max + 1)))
    else:
        own = np.iinfo(values.dtype)
        misfit = (values < max(limits.min, own.min)) | (values > min(limits.max, own.max))
    return int(np.argmax(misfit)) if misfit.any() else None


def cast(values: Array, dtype: np.dtype[Any]) -> Array:
    """Cast values to another type: to integers half to even, to bool whether they differ from zero.

    Numbers beyond the type must be excluded before (see `first_misfit`).

    >>> cast(np.array([0.5, 1.5, 2.6]), np.dtype("u1")).tolist()
    [0, 2, 3]
    """
    if values.dtype.kind == "f" and dtype.kind in "iu":
        values = np.rint(values)
    return values.astype(dtype, copy=False)
