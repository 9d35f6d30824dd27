"""Rows of one log from several pieces, in the order of their timestamps.

Here: `merged`, which has one block of each piece in memory at a time.
Elsewhere: what the pieces are (logloom.io.beam.write).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from logloom.blocks import Array, Block, Lists, Ragged, Values, concatenate, take
from logloom.errors import DatasetError

_Columns = Mapping[str, Values]


def merged(log_id: str, pieces: Sequence[Iterator[Block]]) -> Iterator[_Columns]:
    """Merge the rows of pieces by timestamp; rows of equal timestamps and values count once.

    Args:
        log_id: of all rows, for messages.
        pieces: the blocks of each, by timestamp, all of the same columns.

    Yields:
        Columns of some rows; timestamps ascend strictly, from one mapping to the next as well.

    Raises:
        DatasetError: rows of equal timestamps have different values; names the column.
    """
    heads = {number: rows for number, piece in enumerate(pieces) if (rows := _next_rows(piece))}
    last: _Columns | None = None
    while heads:
        if len(heads) == 1:  # nothing needs to be put between its rows
            ((number, rows),) = heads.items()
            stamps = _stamps(rows)
            if (stamps[1:] > stamps[:-1]).all() and (last is None or _stamps(last)[-1] < stamps[0]):
                yield rows
                last = _taken(rows, slice(len(stamps) - 1, None))
                heads = {number: rest} if (rest := _next_rows(pieces[number])) else {}
                continue
        limit = min(int(_stamps(rows)[-1]) for rows in heads.values())
        parts = [] if last is None else [last]
        for number, rows in list(heads.items()):
            count = int(np.searchsorted(_stamps(rows), limit, "right"))
            if count:
                parts.append(_taken(rows, slice(0, count)))
            rest = _taken(rows, slice(count, None)) if count < len(_stamps(rows)) else None
            if rest := rest or _next_rows(pieces[number]):
                heads[number] = rest
            else:
                del heads[number]
        found = _in_order(log_id, parts)
        new = _taken(found, slice(last is not None, None))
        if len(_stamps(new)):
            yield new
        last = _taken(found, slice(len(_stamps(found)) - 1, None))


def _next_rows(piece: Iterator[Block]) -> _Columns | None:
    return next((block.columns for block in piece if len(block)), None)


def _stamps(rows: _Columns) -> Array:
    stamps = rows["timestamp"]
    assert isinstance(stamps, np.ndarray)
    return stamps


def _taken(rows: _Columns, which: Array | slice) -> _Columns:
    return {name: take(values, which) for name, values in rows.items()}


def _in_order(log_id: str, parts: Sequence[_Columns]) -> _Columns:
    """All rows by timestamp, each once."""
    rows: _Columns = {name: concatenate([part[name] for part in parts]) for name in parts[0]}
    stamps = _stamps(rows)
    if (stamps[1:] <= stamps[:-1]).any():
        rows = _taken(rows, np.argsort(stamps, kind="stable"))
        stamps = _stamps(rows)
    doubles = np.flatnonzero(stamps[1:] == stamps[:-1])
    if not len(doubles):
        return rows
    for name, values in rows.items():
        if len(other := doubles[_differ(values, doubles)]):
            raise DatasetError(
                f"log {log_id}, timestamp {stamps[other[0]]}: two rows have different values of {name}; "
                "leave one out before WriteTo, or give each a timestamp of its own"
            )
    return _taken(rows, np.delete(np.arange(len(stamps)), doubles + 1))


def _differ(values: Values, rows: Array) -> Array:
    """(n,) whether some rows differ from the rows after them, by their bits."""
    if isinstance(values, Lists):
        return np.logical_or(_differ(values.inner, rows), _differ(values.flat, rows))
    if isinstance(values, Ragged):
        return np.array(
            [
                (values.shapes[row] != values.shapes[row + 1]).any()
                or values[row].tobytes() != values[row + 1].tobytes()
                for row in rows.tolist()
            ],
            bool,
        )
    one, other = (
        np.ascontiguousarray(values[at]).reshape(len(rows), -1).view(np.uint8) for at in (rows, rows + 1)
    )
    differ: Array = (one != other).any(axis=1)
    return differ
