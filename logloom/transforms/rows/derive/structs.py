"""Structs that users' functions return, as values of a column of structs.

Here: `structs_of`, which takes structured arrays, dicts and tuples, field by field.
Elsewhere: calling functions and checking what they return (columns).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Lists, Ragged, Values
from logloom.resample import kernels
from logloom.schema import ColumnType
from logloom.text import some_of


def structs_of(result: Any, ctype: ColumnType) -> Values:
    """Convert what a function returned to values of a column of structs.

    Args:
        result: of each row a structured array, or lists of dicts, tuples or structured values to the depth of
            the shape; or all rows as one such array, or `Ragged`. For lists of lists a list of these for each
            row, or `Lists`.
        ctype: of the column.

    Raises:
        ValueError: a struct lacks a field or has one too many, or a value doesn't fit its type.

    Examples:
        >>> ctype = ColumnType(np.dtype([("id", "u4"), ("at", [("x", "f8")])]), (None,))
        >>> rows = structs_of([[{"id": 7, "at": {"x": 0.5}}], []], ctype)
        >>> rows.lengths.tolist(), rows.values.tolist()
        ([1, 0], [(7, (0.5,))])
    """
    if ctype.kind == "lists":
        return _lists_of(result, ctype)
    if isinstance(result, Ragged):
        return Ragged(_filled(result.values, result.values.shape, ctype), result.shapes)
    if isinstance(result, np.ndarray) and not ctype.is_ragged and result.shape[1:] == ctype.tail:
        return _filled(result, result.shape, ctype)
    rows = [_flat(row, len(ctype.shape)) for row in result]
    shapes = [shape for _, shape in rows]
    wrong = [shape for shape in shapes if len(shape) != len(ctype.shape)]
    if wrong or any(shape[ctype.num_ragged :] != ctype.tail for shape in shapes):
        raise ValueError(f"shapes {some_of(sorted(set(map(str, shapes))))}")
    parts = [elements for elements, _ in rows]
    dtypes = {part.dtype if isinstance(part, np.ndarray) else None for part in parts}
    total = sum(math.prod(shape) for shape in shapes)
    width = math.prod(ctype.tail)
    size = (total // width if width else 0, *ctype.tail) if ctype.is_ragged else (len(rows), *ctype.tail)
    whole: Any = [element for part in parts for element in part]
    if len(dtypes) == 1 and None not in dtypes:
        whole = np.concatenate(parts)
    values = _filled(whole, size, ctype)
    if not ctype.is_ragged:
        return values
    lengths = [shape[: ctype.num_ragged] for shape in shapes]
    return Ragged(values, np.array(lengths, np.int64).reshape(len(rows), ctype.num_ragged))


def _lists_of(result: Any, ctype: ColumnType) -> Lists:
    if isinstance(result, Lists):
        return result.with_values(_filled(result.values, result.values.shape, ctype))
    rows = [list(row) for row in result]
    inner = structs_of([one for row in rows for one in row], ctype.flat)
    assert isinstance(inner, Ragged)
    return Lists(inner.values, [len(row) for row in rows], inner.lengths)


def _flat(row: Any, depth: int) -> tuple[Sequence[Any] | Array, tuple[int, ...]]:
    """Return the elements of a row in C order, and its shape."""
    if isinstance(row, np.ndarray):
        return row.reshape(-1), row.shape
    if depth == 0:
        return [row], ()
    if isinstance(row, str | bytes | Mapping) or not hasattr(row, "__len__"):
        raise ValueError(f"expected a list of structs for each row, got {type(row).__name__}")
    parts = [_flat(part, depth - 1) for part in row]
    inner = {shape for _, shape in parts}
    if len(inner) > 1:
        raise ValueError(f"shapes {some_of(sorted(map(str, inner)))} in one row")
    return [element for part, _ in parts for element in part], (len(parts), *next(iter(inner), ()))


def _filled(elements: Any, size: tuple[int, ...], ctype: ColumnType) -> Array:
    found = np.zeros(math.prod(size), ctype.dtype)
    _fill(found, elements.reshape(-1) if isinstance(elements, np.ndarray) else elements, "")
    return found.reshape(size)


def _fill(found: Array, given: Any, path: str) -> None:
    """Write values into an array of the same length, structs field by field."""
    if len(found) == 0:
        return
    if found.dtype.names is None:
        _fill_leaf(found, given, path)
        return
    names = found.dtype.names
    for own in _names_of(given, names, path):
        for kind, wrong in (("no", set(names) - {*own}), ("an unknown", {*own} - set(names))):
            if wrong:
                raise ValueError(f"{path or 'a struct'} has {kind} field {some_of(sorted(wrong))}")
    for place, name in enumerate(names):
        inner = f"{path}.{name}" if path else name
        if isinstance(given, np.ndarray):
            _fill(found[name], given[name], inner)
        else:
            _fill(
                found[name], [row[place if isinstance(row, tuple | list) else name] for row in given], inner
            )


def _names_of(given: Any, names: tuple[str, ...], path: str) -> set[tuple[str, ...]]:
    """Return the differing lists of fields that structs have; tuples have those of the type, in order."""
    if isinstance(given, np.ndarray):
        if given.dtype.names is None:
            raise ValueError(f"{path or 'an element'} is {given.dtype}, not a struct of {', '.join(names)}")
        return {given.dtype.names}
    found = set()
    for row in given:
        if isinstance(row, Mapping):
            found.add(tuple(map(str, row)))
        elif isinstance(row, np.void) and row.dtype.names is not None:
            found.add(row.dtype.names)
        elif isinstance(row, tuple | list) and len(row) == len(names):
            found.add(names)
        else:
            raise ValueError(
                f"{path or 'an element'} is {type(row).__name__}, not a struct of {', '.join(names)}"
            )
    return found


def _fill_leaf(found: Array, given: Any, path: str) -> None:
    values = np.asarray(given)
    is_text = found.dtype.kind == "U"
    if values.shape != found.shape or values.dtype.kind not in ("U" if is_text else "iufb"):
        raise ValueError(
            f"{path} is {values.dtype} of shape {values.shape[1:]}, not {found.dtype} of {found.shape[1:]}"
        )
    if is_text:
        width = found.dtype.itemsize // 4
        lengths = np.char.str_len(values)
        if lengths.max(initial=0) > width:
            longest = str(values.flat[int(lengths.argmax())])
            raise ValueError(
                f"{path}: {longest[:80]!r} has {len(longest)} characters, the column keeps {width}; raise "
                "`strings`"
            )
        found[...] = values
        return
    misfit = kernels.first_misfit(values, found.dtype)
    if misfit is not None:
        raise ValueError(f"{path}: {values.flat[misfit]} doesn't fit {found.dtype}")
    with np.errstate(all="ignore"):
        found[...] = kernels.cast(values, found.dtype)
