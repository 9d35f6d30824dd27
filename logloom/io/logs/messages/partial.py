"""Values of the messages that can be decoded, where some can't.

Here: `take_partly`.
Elsewhere: decoding (logloom.io.logs.messages), what becomes of messages that can't be decoded
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

Rows = NDArray[np.intp]

# Want of memory, files or modules, and refusals of a store: no fault of a message.
_NOT_OF_A_MESSAGE = (StorageError, MemoryError, OSError, ImportError)
# Decoders limit what small messages unpack to, within one call; so do several calls together.
_MAX_BYTES = 1 << 30


def take_partly(
    take: Callable[[Rows], Values], rows: Rows
) -> tuple[Values | None, NDArray[np.bool_], dict[int, str]]:
    """Take the values of messages, leaving out each that can't be taken alone.

    Args:
        take: gives the values of some messages; raises where one of them can't be decoded.
        rows: (n,) numbers of messages.

    Returns:
        Values of those that could be taken, None where there are none of them; (n,) which these are; and why
        the others could not, by their numbers.
    """
    reasons: dict[int, str] = {}
    parts = _taken(take, rows, reasons)
    size = sum(_num_bytes(values) for values in parts) if len(parts) > 1 else 0
    if size > _MAX_BYTES:
        return take(rows), np.ones(len(rows), np.bool_), {}  # raises what it raised before
    values = parts[0] if len(parts) == 1 else blocks.concatenate(parts) if parts else None
    return values, ~np.isin(rows, list(reasons)), reasons


def _taken(take: Callable[[Rows], Values], rows: Rows, reasons: dict[int, str]) -> list[Values]:
    try:
        return [take(rows)]
    except _NOT_OF_A_MESSAGE:
        raise
    except Exception as error:  # whatever a decoder raises of a message
        if len(rows) == 1:
            reasons[int(rows[0])] = _words(error)
            return []
    middle = len(rows) // 2
    return [*_taken(take, rows[:middle], reasons), *_taken(take, rows[middle:], reasons)]


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, LogloomError) else f"{type(error).__name__}: {error}"


def _num_bytes(values: Values | Any) -> int:
    return values.nbytes if isinstance(values, Ragged) else int(np.asarray(values).nbytes)
