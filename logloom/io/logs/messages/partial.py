"""Decode the values of messages, leaving out those that can't be decoded.

Here: `take_partly`, and `examine` and `without_nan` for whether they have values.
Elsewhere: decoding (logloom.io.logs.messages), reporting messages that can't be decoded
(logloom.transforms.rows.topic_columns).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom import blocks
from logloom.blocks import Ragged, Values
from logloom.errors import LogloomError, StorageError
from logloom.io.logs.interface import FieldSpec

Rows = NDArray[np.intp]

# Lack of memory, files or modules, and failures of a store aren't faults of a message.
_NOT_OF_A_MESSAGE = (StorageError, MemoryError, OSError, ImportError)
# Decoders limit the expansion of small messages within one call, and several calls together do as well.
_MAX_BYTES = 1 << 30
_AT_ONCE = 1 << 14  # messages that are examined together, to bound the memory for their text
_FIRST_ROWS, _AT_ONCE_BYTES = 64, 16 << 20  # of values that are decoded together to look for NaN


def take_partly(
    take: Callable[[Rows], Values], rows: Rows
) -> tuple[Values | None, NDArray[np.bool_], dict[int, str]]:
    """Take the values of messages, leaving out each that can't be taken alone.

    Args:
        take: returns the values of some messages; raises if one of them can't be decoded.
        rows: (n,) numbers of messages.

    Returns:
        Values of the decoded messages, or None; (n,) mask of these; and errors by the numbers of the others.
    """
    reasons: dict[int, str] = {}
    parts = _taken(take, rows, reasons)
    size = sum(_num_bytes(values) for values in parts) if len(parts) > 1 else 0
    if size > _MAX_BYTES:
        return take(rows), np.ones(len(rows), np.bool_), {}  # raises the same error again
    values = parts[0] if len(parts) == 1 else blocks.concatenate(parts) if parts else None
    return values, ~np.isin(rows, list(reasons)), reasons


def examine(held: NDArray[np.bool_], rows: Rows, has_value: Callable[[Rows], NDArray[np.bool_]]) -> None:
    """Write into `held` which of some messages have a value; those that can't be decoded keep what they had.

    Args:
        held: (N,) by the number of the message.
        rows: (n,) numbers of messages.
        has_value: returns which messages have a value; raises if one of them can't be decoded.
    """
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        values, is_read, _ = take_partly(has_value, some)
        if isinstance(values, np.ndarray):
            held[some[is_read]] = values


def without_nan(
    held: NDArray[np.bool_] | None, count: int, spec: FieldSpec, take: Callable[[Rows], Values]
) -> NDArray[np.bool_] | None:
    """(N,) which messages have a value for a column, those with NaN left out if it skips them.

    Args:
        held: (N,) which have one apart from NaN; None for all.
        count: N.
        take: returns the values of some messages.
    """
    if not spec.skips_nan:
        return held
    found = np.ones(count, np.bool_) if held is None else held.copy()
    examine(found, np.flatnonzero(found), lambda rows: ~_have_nan(take, rows))
    return found


def _have_nan(take: Callable[[Rows], Values], rows: Rows) -> NDArray[np.bool_]:
    """(n,) which values have NaN; a few are decoded at a time, as they may be long lists."""
    found, start, step = np.zeros(len(rows), np.bool_), 0, _FIRST_ROWS
    while start < len(rows):
        values = take(rows[start : start + step])
        found[start : start + step] = blocks.any_of_row(values, np.isnan)
        start += step
        step = max(1, _AT_ONCE_BYTES * len(values) // max(1, _num_bytes(values)))
    return found


def _taken(take: Callable[[Rows], Values], rows: Rows, reasons: dict[int, str]) -> list[Values]:
    try:
        return [take(rows)]
    except _NOT_OF_A_MESSAGE:
        raise
    except Exception as error:  # any error of a decoder
        if len(rows) == 1:
            reasons[int(rows[0])] = _words(error)
            return []
    middle = len(rows) // 2
    return [*_taken(take, rows[:middle], reasons), *_taken(take, rows[middle:], reasons)]


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, LogloomError) else f"{type(error).__name__}: {error}"


def _num_bytes(values: Values | Any) -> int:
    return values.nbytes if isinstance(values, Ragged) else int(np.asarray(values).nbytes)
