"""Filters on the index of a table: the argument `where` of `read_index`.

Here: which columns of an index a filter may name, and evaluation over Arrow columns.
Elsewhere: the language (logloom.query.where), reading the rows of a file that pass
(logloom.io.formats.table.index.index).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from logloom.blocks import Array
from logloom.io.formats.table import description as d
from logloom.query.comparison import Categories
from logloom.query.where import Filter, all_of, parse
from logloom.schema import STRING, ColumnType

Where: TypeAlias = str | Sequence[tuple[str, str, Any]] | Any  # or a pyarrow expression


def to_filter(where: str | Sequence[tuple[str, str, Any]], table: d.Description) -> Filter:
    """Parse a filter, and check it against the index of a table.

    Args:
        where: "speed > 3 and ego.position[0] < 1 and log_id in ['a', 'b']", or tuples (column, operator,
            constant) that must all hold.

    Raises:
        UsageError: the text doesn't parse, or a column isn't in the index.
    """
    found = parse(where) if isinstance(where, str) else all_of(where)
    units = {name: ctype.unit for name, ctype in table.schema.all.items()}
    types = {
        name: STRING if dtype == "str" else ColumnType(np.dtype(dtype), unit=units.get(name, ""))
        for name, dtype in table.index.items()
    }
    return found.bound({**types, **_vectors(table)})


def mask(found: Filter, rows: pa.Table, table: d.Description) -> Array:
    """Evaluate a filter: (len(rows),) whether each row passes.

    Args:
        rows: the columns that `index_columns` names, at least.
    """
    columns: dict[str, Any] = {}
    for name in found.columns:
        if name in table.index:
            columns[name] = _values(rows[name].combine_chunks())
        else:
            ctype = table.schema.all[name]
            stacked = np.stack([_values(rows[s].combine_chunks()) for s, _ in d.scalars(name, ctype)], -1)
            columns[name] = stacked.reshape(len(rows), *ctype.tail)
    return found.mask(columns, len(rows))


def index_columns(found: Filter, table: d.Description) -> list[str]:
    """The columns of the index that a filter uses."""
    return [
        own
        for name in found.columns
        for own in (
            [name] if name in table.index else [s for s, _ in d.scalars(name, table.schema.all[name])]
        )
    ]


def _vectors(table: d.Description) -> Mapping[str, ColumnType]:
    """Columns whose numbers are all columns of the index."""
    return {
        name: ctype
        for name, ctype in table.schema.all.items()
        if name not in table.index
        and not ctype.is_ragged
        and all(s in table.index for s, _ in d.scalars(name, ctype))
    }


def _values(column: Any) -> Any:
    if not pa.types.is_dictionary(column.type):
        return column.to_numpy(zero_copy_only=False)
    return Categories.of(column.dictionary.to_pylist(), column.indices.to_numpy(zero_copy_only=False))
