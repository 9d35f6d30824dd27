"""Comparisons in filters, and the forms of values that they compare.

Here: columns as they are compared (`comparable`, `Categories`), their parts, lengths and finiteness;
comparisons (`compare`, `is_member`), which don't know missing values.
Elsewhere: arithmetic (arithmetic), missing values and the whole filter (bounds).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Values, any_of_row
from logloom.query.arithmetic import as_float, lengths
from logloom.query.tree import Constant, Length, Membership
from logloom.values import dataclass

Mask = NDArray[np.bool_]


_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Categories:
    """Texts of rows with each distinct one stored once, so that comparisons evaluate it once.

    Attributes:
        texts: (K,) bytes objects.
        codes: (N,) index of each row's text.
    """

    texts: NDArray[np.object_]
    codes: NDArray[np.integer[Any]]

    @classmethod
    def of(cls, texts: Iterable[str | bytes], codes: NDArray[np.integer[Any]]) -> Categories:
        found = [text.encode() if isinstance(text, str) else text for text in texts]
        return cls(_objects(found), codes)

    @classmethod
    def found_in(cls, rows: Iterable[str | bytes]) -> Categories:
        """Select those of the texts that rows have."""
        places: dict[str | bytes, int] = {}
        codes = [places.setdefault(text, len(places)) for text in rows]
        return cls.of(places, np.array(codes, np.int64))

    def __getitem__(self, rows: Any) -> Categories:
        """Select rows, and the texts that they have."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return Categories(self.texts[used], codes)

    @property
    def rows(self) -> NDArray[np.object_]:
        """(N,) the text of each row."""
        found: NDArray[np.object_] = self.texts[self.codes]
        return found


def part(values: Any, steps: tuple[int | str, ...]) -> Any:
    """Return fields of structs, or numbers of vectors."""
    for step in steps:
        values = values[step] if isinstance(step, str) else values[:, step]
    return values


def length_of(node: Length, values: Any) -> Any:
    """(n,) how many elements, characters or bytes each value of the column has."""
    if isinstance(values, Categories):
        return lengths(values.texts, is_text=node.is_text)[values.codes]
    found = part(values, node.column.steps)
    if isinstance(found, np.ndarray) and found.dtype.kind == "U":
        return np.strings.str_len(found)
    return lengths(found, is_text=node.is_text)


def finite(word: str, values: Any) -> Mask:
    """(n,) whether all numbers of each row are finite, or whether any is NaN.

    Examples:
        >>> rows = np.array([[1.0, np.nan], [np.inf, 2.0], [3.0, 4.0]])
        >>> finite("isfinite", rows).tolist(), finite("isnan", rows).tolist()
        ([False, False, True], [True, False, False])
    """
    if word == "isnan":
        return any_of_row(values, np.isnan)
    return ~any_of_row(values, lambda numbers: ~np.isfinite(numbers))


def is_member(value: Any, node: Membership) -> Any:
    """Compare with each item. Lists may be long: texts and integers are looked up."""
    if isinstance(value, Categories):
        return is_member(value.texts, node)[value.codes]
    if isinstance(value, np.ndarray) and value.dtype.kind == "O" and node.types == {bytes}:
        found = np.fromiter((text in node.values for text in value.flat), np.bool_, value.size)
        return found.reshape(value.shape) ^ node.negated
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and node.types == {int}:
        limits = np.iinfo(value.dtype)
        wanted = [item for item in node.values if isinstance(item, int) and limits.min <= item <= limits.max]
        return np.isin(value, np.array(wanted, value.dtype), invert=node.negated)
    sign, join = ("!=", np.logical_and) if node.negated else ("==", np.logical_or)
    compared = (compare(sign, value, constant(item)) for item in node.items)
    return functools.reduce(join, compared, np.full(np.shape(value), node.negated))


def constant(node: Constant) -> Any:
    """Return a number or truth as it is, and a text as an array of one bytes object."""
    return np.array(node.value, object) if isinstance(node.value, bytes) else node.value


def comparable(values: Values | Categories, steps: tuple[int | str, ...] = ()) -> Any:
    """Return the values of a column for comparisons: one number, truth or text per row."""
    if isinstance(values, Categories):
        return values
    if not isinstance(values, np.ndarray):
        return _objects([row.tobytes() for row in values])
    found = part(values, steps)
    if found.dtype.kind == "U":
        texts, codes = np.unique(found, return_inverse=True)
        return Categories.of([text.encode("utf-8", "surrogatepass") for text in texts], codes.reshape(-1))
    return found.astype(np.float64) if found.dtype.kind == "f" else found


def _objects(texts: list[bytes]) -> NDArray[np.object_]:
    found = np.empty(len(texts), object)
    found[:] = texts
    return found


def compare(word: str, a: Any, b: Any) -> Any:
    """Compare numbers, texts or truths; floats are compared as float64, also with integers."""
    if isinstance(a, Categories) and isinstance(b, np.ndarray) and not b.ndim:
        return _COMPARE[word](a.texts, b)[a.codes]
    if isinstance(b, Categories) and isinstance(a, np.ndarray) and not a.ndim:
        return _COMPARE[word](a, b.texts)[b.codes]
    a, b = (value.rows if isinstance(value, Categories) else value for value in (a, b))
    if _is_float(a) or _is_float(b):
        a, b = as_float(a), as_float(b)
    return np.asarray(_COMPARE[word](a, b), np.bool_)


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")
