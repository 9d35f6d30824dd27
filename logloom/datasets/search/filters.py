"""Filters: which rows of a dataset pass a `where`.

Here: reading no more columns than the filter looks at, of the rows that are asked for alone.
Elsewhere: the language (logloom.query.where), filters that look at other rows, too, and what can be named
beside the columns (log_matches).
"""

from __future__ import annotations

import numpy as np

from logloom.datasets.search.log_matches import (
    comparable_texts,
    index_types,
    index_values,
    parsed_for,
    search,
)
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import RowSource

_ROWS_AT_ONCE = 4096


def passing(source: RowSource, positions: Ints, where: str) -> Ints:
    """The positions whose rows pass a filter.

    Args:
        where: such as "ego.speed > 3 and split == 'train' and available(camera.front)": compares columns of
            the data, index columns, log_id, partition, split, row and timestamp. What looks beyond a row
            looks at all rows of its log, whatever the positions.

    Raises:
        UsageError: it can't be parsed, or names what isn't there; says which is nearest.
    """
    parsed = parsed_for(source, where)
    if parsed.beyond:
        holds = np.zeros(len(source), np.bool_)
        for log in search(source, parsed, positions):
            holds[log.first : log.first + len(log.holds)] = log.holds
        return positions[holds[positions]]
    own = index_types(source)
    columns = {name: index_values(source, name, positions) for name in parsed.columns if name in own}
    read = [name for name in parsed.columns if name not in own]
    if not read:
        return positions[parsed.mask(columns, len(positions))]
    kept = []
    for start in range(0, len(positions), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        batch = source.take(positions[some], read)
        values = {name: comparable_texts(batch[name]) for name in read}
        values |= {name: column[some] for name, column in columns.items()}
        kept.append(positions[some][parsed.mask(values, len(positions[some]))])
    return np.concatenate([np.empty(0, np.int64), *kept])
