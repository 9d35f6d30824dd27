"""All samples of a dataset in order, some at a time.

Here: batches of bounded bytes, which samples a function keeps, a column of all rows, and orders by columns.
Elsewhere: batches themselves (logloom.io.rows.batches), filters (logloom.datasets.search.log_matches).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.search.log_matches import INDEX_NAMES, index_values, parsed_for
from logloom.datasets.views.column_choice import BatchFn, Pick, names_of
from logloom.errors import UsageError
from logloom.io.rows.batches import Batch
from logloom.io.rows.log_ranges import Ints
from logloom.query.comparison import Categories
from logloom.schema import NO_AGE

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


def check_unchanged(dataset: Dataset[Any], where: str) -> None:
    """Check that a text filter names no columns whose stored values `normalized` changed.

    Raises:
        UsageError: it does, or can't be parsed.
    """
    of_rows, of_samples = dataset.functions
    fns = [fn for fn in (*of_rows, *of_samples) if isinstance(fn, BatchFn)]
    changed = {name for fn in fns for name in fn.changes}
    if changed and (named := sorted(changed & {*parsed_for(dataset.source, where).columns})):
        raise UsageError(
            f"filter: {where!r} compares stored values, and normalized changed {named[0]}; call filter "
            f"before normalized, or pass a function, as in rows.filter(lambda row: row[{named[0]!r}] > 1)"
        )


def column_values(dataset: Dataset[Any], name: str, verb: str) -> tuple[Array, NDArray[np.bool_]]:
    """One column of all rows, and where it has no value.

    Args:
        name: of a column that is stored, or of the index; after `map`, of what functions made.
        verb: what it is for, for messages.

    Returns:
        (n,) numbers, or objects that are all str or all bytes; (n,) bool, true where rows have none.

    Raises:
        UsageError: there is no such column, or rows have more than one number or text of it.
    """
    source, view, flag = dataset.source, dataset, ""
    if dataset.is_mapped:
        view, flag = dataset.select([name]), _flag_of(dataset, name)
    elif name in source.small:
        return _known(source.small[name][dataset.positions])
    elif name in INDEX_NAMES and name not in source.schema.all and (name != "timestamp" or source.has_stamps):
        found = index_values(source, name, dataset.positions)
        if isinstance(found, Categories):
            found = np.array([text.decode() for text in found.texts.tolist()], object)[found.codes]
        return _known(found)
    else:
        if names_of([name], source.schema, None, source.place, source.left_out) != (name,):
            raise UsageError(f"{verb}: {name!r} names no single column; its name does")
        flag = _flag_of(dataset, name)
        view = _stored(dataset, (name, flag) if flag else (name,))
    pieces = [batch for _, batch in pieces_of(view, None)] or [view.get_many([])]
    parts = [_one_value(batch[name], name, verb) for batch in pieces if name in batch]
    values, missing = _known(np.concatenate(parts or [np.empty(0)]))
    if flag:
        if dataset.is_mapped:
            pieces = [batch for _, batch in pieces_of(_stored(dataset, (flag,)), None)]
        missing = missing | ~np.concatenate([np.empty(0, np.bool_), *(batch[flag] for batch in pieces)])
    return values, missing | (values == NO_AGE if name.endswith(".age") else False)


def _stored(dataset: Dataset[Any], names: tuple[str, ...]) -> Dataset[Any]:
    """The rows of a dataset as stored, also those that are in windows or were mapped."""
    return type(dataset)(dataset.source, dataset.stored_rows, names)


def _flag_of(dataset: Dataset[Any], name: str) -> str:
    """The availability of a column, also of scaled values; "" without one, or if functions may fill gaps."""
    from logloom.datasets.statistics import Normalize

    fns = [fn for some in dataset.functions for fn in some]
    is_own = all(isinstance(fn, Normalize | Pick) for fn in fns)
    return f"{name}.available" if is_own and f"{name}.available" in dataset.source.schema.meta else ""


def _known(values: Array) -> tuple[Array, NDArray[np.bool_]]:
    return values, np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), np.bool_)


def _one_value(column: Any, name: str, verb: str) -> Array:
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "biuf":
        return column
    if isinstance(column, list) and all(isinstance(value, int | float) for value in column):
        numbers = np.array(column)  # that functions given to map returned
        if numbers.dtype.kind in "biuf":
            return numbers
    if isinstance(column, list) and any(value is None for value in column):
        raise UsageError(
            f"{verb}: {name} is None in some rows; return NaN from the function given to map where there is "
            "no number, or '' where there is no text"
        )
    for kind in (str, bytes):
        if isinstance(column, list | np.ndarray) and all(isinstance(value, kind) for value in column):
            found = np.empty(len(column), object)
            found[:] = list(column)
            return found
    raise UsageError(
        f"{verb}: rows have more than one number or text of {name}; make one of it, as in "
        f"rows.map(lambda row: {{**row, 'key': row[{name!r}][0]}}).{verb}('key')"
    )


def order_by(dataset: Dataset[Any], columns: Sequence[str], descending: bool | Sequence[bool]) -> Ints:
    """(n,) numbers of the rows, ordered by columns, of which the first decides; those without a value last.

    Args:
        descending: whether the largest comes first, for all columns or for each.

    Raises:
        UsageError: see `column_values`; or `descending` is neither a truth value nor one for each column.
    """
    flags = [descending] * len(columns) if isinstance(descending, bool | np.bool_) else descending
    if (
        not isinstance(flags, list | tuple | np.ndarray)
        or len(flags) != len(columns)
        or not all(isinstance(flag, bool | np.bool_) for flag in flags)
    ):
        raise UsageError(
            f"sort_by: descending={descending!r:.60}; pass True or False, or a list of them, one for each of "
            f"{len(columns)} columns"
        )
    keys = []
    for name, is_descending in zip(columns, flags, strict=True):
        values, missing = column_values(dataset, name, "sort_by")
        codes = np.unique(values, return_inverse=True)[1].reshape(-1)
        keys.append(np.where(missing, len(values), -codes if is_descending else codes))
    return np.lexsort(keys[::-1]) if keys else np.arange(len(dataset))


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
