"""Filters: which rows of a dataset pass a `where`.

Here: what can be named beside the columns, and reading no more columns than the filter looks at.
Elsewhere: the language (logloom.where).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import UsageError
from logloom.io.sources import RowSource
from logloom.io.stretches import Ints
from logloom.schema import COLUMN_NAME, STRING, TIMESTAMP, ColumnType
from logloom.where import Categories, parse

_TEXTS = ("log_id", "partition", "split")
_ROWS_AT_ONCE = 4096


def passing(source: RowSource, positions: Ints, where: str) -> Ints:
    """The positions whose rows pass a filter.

    Args:
        where: such as "ego.speed > 3 and split == 'train' and available(camera.front)": compares columns of
            the data, index columns, log_id, partition, split, row and timestamp.

    Raises:
        UsageError: it can't be parsed, or names what isn't there; says which is nearest.
    """
    own = _index_types(source)
    try:
        parsed = parse(where)
        parsed.check({**own, **source.schema.all})
    except UsageError as error:
        raise UsageError(f"{source.place}: {error}") from error
    columns = {name: _index_values(source, name, positions) for name in parsed.columns if name in own}
    read = [name for name in parsed.columns if name not in own]
    if not read:
        return positions[parsed.mask(columns, len(positions))]
    kept = []
    for start in range(0, len(positions), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        batch = source.batch(positions[some], read)
        values = {name: _comparable(batch[name]) for name in read}
        values |= {name: column[some] for name, column in columns.items()}
        kept.append(positions[some][parsed.mask(values, len(positions[some]))])
    return np.concatenate([np.empty(0, np.int64), *kept])


def _index_types(source: RowSource) -> dict[str, ColumnType]:
    """What can be had without reading rows."""
    types = {**dict.fromkeys(_TEXTS, STRING), "row": TIMESTAMP}
    if source.stamps is not None:
        types["timestamp"] = TIMESTAMP
    for name, values in source.small.items():
        if COLUMN_NAME.fullmatch(name):
            types[name] = STRING if values.dtype.kind == "O" else ColumnType(values.dtype)
    return types


def _index_values(source: RowSource, name: str, positions: Ints) -> Array | Categories:
    if name in source.small:
        return _comparable(source.small[name][positions])
    if name == "timestamp":
        assert source.stamps is not None
        return source.stamps[positions]
    stretches = source.stretches
    numbers = stretches.number_of(positions)
    if name == "row":
        return positions - stretches.log_starts()[numbers]
    if name == "partition":
        stretches = stretches.by_partition
        return Categories.found_in(stretches.partitions)[stretches.number_of(positions)]
    texts = {"log_id": stretches.log_ids, "split": stretches.splits}[name]
    return Categories.found_in(texts)[numbers]


def _comparable(values: Any) -> Array | Categories:
    """Numbers as they are; texts as the filter compares them."""
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OU":
        return values
    return Categories.found_in(values)
