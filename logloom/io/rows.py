"""Rows of several units as one sequence: what readers of tar shards and of folders of bags have in common.

Here: `UnitRows`, which knows in which unit a row lies and which columns are meant.
Elsewhere: reading the row (each format's reader).
"""

from __future__ import annotations

import abc
import bisect
import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

from logloom.schema import Schema


def uris_of(uris: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """One URI or path, or many, as a list."""
    return [os.fspath(uri) for uri in ([uris] if isinstance(uris, str | os.PathLike) else uris)]


class UnitRows(abc.ABC):
    """A reader of units that follow each other; counts their rows when first asked for one."""

    def __init__(self, schema: Schema):
        self.schema = schema
        self._bounds: list[int] | None = None
        self._selected: dict[tuple[str, ...], tuple[str, ...]] = {}

    @abc.abstractmethod
    def _row_counts(self) -> Iterable[int]:
        """How many rows each unit has."""

    @abc.abstractmethod
    def row(self, index: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """See `Reader.row`."""

    def __len__(self) -> int:
        return self._row_bounds()[-1]

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Row `index`, without ages and availabilities."""
        return self.row(index)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Many rows in the order asked for, as loaders ask for them."""
        return [self.row(index) for index in indices]

    def _row_bounds(self) -> list[int]:
        if self._bounds is None:
            self._bounds = [0, *itertools.accumulate(self._row_counts())]
        return self._bounds

    def _place_of(self, index: int) -> tuple[int, int]:
        """The number of the unit that holds a row, and the row's number in it.

        Raises:
            IndexError: there is no such row.
        """
        bounds = self._row_bounds()
        if not -bounds[-1] <= index < bounds[-1]:
            raise IndexError(f"row {index} of {bounds[-1]}")
        index %= bounds[-1]
        number = bisect.bisect_right(bounds, index) - 1
        return number, index - bounds[number]

    def _names(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        """The columns that are meant; all but ages and availabilities by default."""
        if columns is None:
            return tuple(self.schema.columns)
        key = (columns,) if isinstance(columns, str) else tuple(columns)
        if key not in self._selected:
            self._selected[key] = self.schema.select(key)
        return self._selected[key]
