"""Filters: which rows pass `where`, in the language of a recipe's `rows: {where: …}`.

Here: what can be named beside the columns, and reading no more columns than the filter looks at.
Elsewhere: the language (logloom.transforms.where).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.datasets.picking import near
from logloom.errors import UsageError
from logloom.io.sources import RowSource
from logloom.io.stretches import Ints
from logloom.schema import COLUMN_NAME, STRING, TIMESTAMP, ColumnType
from logloom.transforms.where import Filter, parse

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
    parsed = parse(where)
    own = _index_types(source)
    types = {**own, **source.schema.all}
    _check_names(parsed, types, source)
    parsed.check(types)
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


def _check_names(parsed: Filter, types: Mapping[str, ColumnType], source: RowSource) -> None:
    for name in parsed.columns:
        if name not in types:
            raise UsageError(f"where: {source.place} has no column {name!r}; {near(name, types)}")


def _index_values(source: RowSource, name: str, positions: Ints) -> Array:
    if name in source.small:
        return _comparable(source.small[name][positions])
    if name == "timestamp":
        assert source.stamps is not None
        return source.stamps[positions]
    stretches = source.stretches
    numbers = stretches.number_of(positions)
    if name == "row":
        return positions - stretches.log_starts()[numbers]
    texts = {"log_id": stretches.log_ids, "partition": stretches.partitions, "split": stretches.splits}[name]
    return _as_bytes(texts)[numbers]


def _comparable(values: Any) -> Array:
    """Numbers as they are; texts as the filter compares them, (n,) bytes objects."""
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return values
    return _as_bytes(values)


def _as_bytes(texts: Sequence[str] | Array) -> Array:
    found = np.empty(len(texts), object)
    found[:] = [text.encode() if isinstance(text, str) else text for text in texts]
    return found
