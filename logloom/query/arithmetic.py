"""Arithmetic of filters: exact for integers, as numpy's for floats.

Integers that don't fit in int64 become Python's, in arrays of objects. A quotient is a float64, also of
integers: by zero it is infinite or NaN.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from logloom.blocks import Lists, Ragged

_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_INT64 = np.iinfo(np.int64)


def calculate(sign: str, a: Any, b: Any) -> Any:
    """Return a sum, difference, product or quotient of numbers: arrays, Python's numbers, or both.

    Examples:
        >>> calculate("+", np.array([2**63 - 1]), 1)
        array([9223372036854775808], dtype=object)
        >>> calculate("/", np.array([1, 0]), 0).tolist()
        [inf, nan]
    """
    a, b = np.asarray(a), np.asarray(b)
    operation = _OPERATIONS[sign]
    if sign == "/" or "f" in (a.dtype.kind, b.dtype.kind):
        with np.errstate(all="ignore"):
            return np.asarray(operation(as_float(a), as_float(b)))
    if a.size and b.size:
        ends = [operation(x, y) for x in _ends(a) for y in _ends(b)]
        if not _fit([*ends, *_ends(a), *_ends(b)]):
            return np.asarray(operation(a.astype(object), b.astype(object)), object)
    return np.asarray(operation(a.astype(np.int64), b.astype(np.int64)))


def signed(word: str, value: Any) -> Any:
    """Return the value, its negative or, for `abs`, its absolute value.

    Examples:
        >>> signed("abs", np.array([-(2**63), 5])).tolist()
        [9223372036854775808, 5]
    """
    value = np.asarray(value)
    operation: Any = {"+": operator.pos, "-": operator.neg, "abs": abs}[word]
    if value.dtype.kind != "f" and value.size:
        is_small = _fit([*_ends(value), *map(operator.neg, _ends(value))])
        value = value.astype(np.int64 if is_small else object)
    return np.asarray(operation(value))


def as_float(value: Any) -> Any:
    """Return numbers as float64; integers beyond its range are infinite.

    Examples:
        >>> as_float(np.array([10**400, -3], object)).tolist()
        [inf, -3.0]
    """
    value = np.asarray(value)
    if value.dtype != object:
        return value.astype(np.float64)
    largest = int(np.finfo(np.float64).max)
    found = [
        float(number) if -largest <= number <= largest else float("inf") * (1 if number > 0 else -1)
        for number in value.flat
    ]
    return np.array(found, np.float64).reshape(value.shape)


def _ends(value: Any) -> tuple[int, int]:
    return int(value.min()), int(value.max())


def _fit(numbers: list[int]) -> bool:
    return _INT64.min <= min(numbers) and max(numbers) <= _INT64.max


def lengths(values: Any, *, is_text: bool) -> Any:
    """Return the number of lists or elements of each row, or of bytes or characters.

    Args:
        values: of a column, or an array of bytes objects.

    Examples:
        >>> lengths(Ragged.from_bytes(["Über".encode(), b""]), is_text=True).tolist()
        [4, 0]
        >>> lengths(np.zeros((2, 3)), is_text=False).tolist()
        [3, 3]
    """
    if isinstance(values, Lists):
        return values.inner.shapes[:, 0]
    if isinstance(values, Ragged):
        if not is_text:
            return values.shapes[:, 0]
        total = np.append(0, np.cumsum(_begins(values.values)))
        return total[values.offsets[1:]] - total[values.offsets[:-1]]
    if values.dtype.kind == "O":
        return np.array(
            [int(_begins(np.frombuffer(text, np.uint8)).sum()) if is_text else len(text) for text in values],
            np.int64,
        )
    return np.full(len(values), values.shape[1], np.int64)


def _begins(text: Any) -> Any:
    """Whether bytes of UTF-8 begin a character."""
    return (text & 0xC0) != 0x80
