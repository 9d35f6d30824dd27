"""All samples of a dataset in order, some at a time.

Here: batches of bounded bytes, and which samples a function keeps.
Elsewhere: batches themselves (logloom.io.rows.batches), filters (logloom.datasets.search.log_matches).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.rows.batches import Batch

if TYPE_CHECKING:
    from logloom.datasets.dataset import Dataset

_FIRST_ROWS = 32  # of the first batch, which tells what a row takes
_MOST_ROWS = 1 << 16
_BATCH_BYTES = 64 << 20


def pieces_of(dataset: Dataset[Any], rows: int | None) -> Iterator[tuple[int, Batch]]:
    """Batches in order, and where each begins.

    Args:
        rows: of a batch; None for as many as take some 64 MiB.
    """
    start, step = 0, rows or _FIRST_ROWS
    while start < len(dataset):
        batch = dataset.get_many(np.arange(start, min(start + step, len(dataset))))
        taken = min(step, len(dataset) - start)
        yield start, batch
        if rows is None:
            step = int(min(_MOST_ROWS, max(1, _BATCH_BYTES * taken // max(1, _size_of(batch)))))
        start += taken


def mask_of(dataset: Dataset[Any], keeps: Callable[[Any], Any], batched: bool) -> NDArray[np.bool_]:
    """(n,) which samples a function keeps.

    Raises:
        UsageError: it gave something else than a truth value, or (n,) of them, for each.
    """
    masks = [np.empty(0, np.bool_)]
    for start, batch in pieces_of(dataset, None) if batched else ():
        taken = len(batch[next(iter(batch))]) if batch else 0
        mask = np.asarray(keeps(batch))
        if mask.dtype != np.bool_ or mask.shape != (taken,):
            raise UsageError(
                f"filter: the function gave {mask.dtype}{list(mask.shape)} for rows {start} to "
                f"{start + taken - 1}, not ({taken},) bool"
            )
        masks.append(mask)
    if not batched:
        kept = [_truth(keeps(sample), number) for number, sample in enumerate(dataset)]
        masks.append(np.array(kept, np.bool_))
    return np.concatenate(masks)


def _truth(value: Any, number: int) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise UsageError(
            f"filter: the function gave {value!r:.80} for row {number}, not True or False; it is given a "
            "row, or, with batched=True, a batch"
        )
    return bool(value)


def _size_of(batch: Batch) -> int:
    """Bytes, about."""
    size = 0
    for column in batch.values():
        if isinstance(column, tuple | np.ndarray):
            size += sum(part.nbytes for part in (column if isinstance(column, tuple) else (column,)))
        else:
            size += sum(_length(value) for value in column)
    return size


def _length(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(map(_length, value))
    return len(value) if isinstance(value, str | bytes) else int(getattr(value, "nbytes", 8))
