"""Lists of lists as two columns: all elements of a row, and list lengths.

Here: `flat_types`, `flat_columns` and the inverse `lists_of`, for formats whose arrays can't nest.
Elsewhere: the values (logloom.blocks), the names of files and arrays (each format).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from logloom.blocks import Lists, Ragged, Values, has_form
from logloom.errors import UsageError
from logloom.schema import ColumnType

LENGTHS = ColumnType(np.dtype("<i8"), (None,))
"""The type of the column with the lengths of a row's lists."""


def lengths_name(name: str) -> str:
    """The name of the column with the lengths of another one's lists."""
    return f"{name}.lengths"


def flat_types(types: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """The types of the columns that `flat_columns` gives.

    >>> lists = ColumnType(np.dtype("f4"), (None, None), "lists")
    >>> {name: str(ctype) for name, ctype in flat_types({"x": lists}).items()}
    {'x': 'float32[?]', 'x.lengths': 'int64[?]'}
    """
    found: dict[str, ColumnType] = {}
    for name, ctype in types.items():
        found[name] = ctype.flat if ctype.kind == "lists" else ctype
        if ctype.kind == "lists":
            found[lengths_name(name)] = LENGTHS
    return found


def flat_problems(types: Mapping[str, ColumnType]) -> list[str]:
    """List columns that have the name of the lengths of lists, one line each."""
    return [
        f"columns {name} and {lengths_name(name)}: the second would be the lengths of the lists; rename one"
        for name, ctype in types.items()
        if ctype.kind == "lists" and lengths_name(name) in types
    ]


def flat_columns(columns: Mapping[str, Values], types: Mapping[str, ColumnType]) -> dict[str, Values]:
    """Return the columns of a block with lists of lists as two columns each.

    Raises:
        UsageError: values are not of their type in the schema.
    """
    found: dict[str, Values] = dict(columns)
    for name, ctype in types.items():
        values = columns[name]
        if isinstance(values, Lists) != (ctype.kind == "lists"):
            raise UsageError(f"column {name}: its values are {values.dtype}, the schema has {ctype}")
        if isinstance(values, Lists):
            if not has_form(values, ctype):
                raise UsageError(f"column {name}: elements of shape {values.tail}, the schema has {ctype}")
            found[name], found[lengths_name(name)] = values.flat, values.inner
    return found


def lists_of(flat: Values, lengths: Values) -> Lists:
    """Return lists of lists from the two columns.

    Raises:
        ValueError: lengths that don't fit the elements: damaged.
    """
    assert isinstance(flat, Ragged)
    assert isinstance(lengths, Ragged)
    found = Lists(flat.values, lengths.shapes[:, 0], lengths.values)
    if (found.shapes != flat.shapes).any():
        row = int(np.argmax((found.shapes != flat.shapes).any(axis=1)))
        raise ValueError(f"row {row} has {flat.shapes[row, 0]} elements, its lists {found.shapes[row, 0]}")
    return found
