"""Rows whose columns have other names than those stored.

Here: `RenamedSource`, which is a source as any other: filters, windows and statistics use the new names.
Elsewhere: `Dataset.rename`, which makes one (logloom.datasets.dataset).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logloom.blocks import Array, Block
from logloom.caching import cached_property
from logloom.datasets.search.log_matches import INDEX_NAMES
from logloom.datasets.views.column_choice import names_of
from logloom.datasets.views.positions import SampleWindows
from logloom.errors import UsageError
from logloom.io.rows.batches import Batch
from logloom.io.rows.delegation import DelegatingSource
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import BLOCK_BYTES, RowSource
from logloom.schema import ColumnType, Schema, base_of
from logloom.statistics.columns import Statistics


def check_old_names(names: Mapping[str, str], columns: Sequence[str], source: RowSource) -> None:
    """Check the names of columns to rename.

    Raises:
        UsageError: there is no such column; or an age, which is renamed with its column.
    """
    for name in names:
        if name not in columns or base_of(name) != name:
            names_of([name], source.schema, columns, source.place, source.left_out)
            raise UsageError(f"rename: {name!r} is no name of one column; ages are renamed with theirs")


def check_new_names(names: Mapping[str, str], keys: Sequence[str], place: str) -> None:
    """Check new names of columns.

    Args:
        names: the new names, by name.
        keys: of samples after the renaming.

    Raises:
        UsageError: a new name is reserved, or there twice.
    """
    for old, new in names.items():
        if not isinstance(new, str) or not new or new in INDEX_NAMES or base_of(new) != new:
            raise UsageError(
                f"{place}: rename: {old!r} can't become {new!r}; a name is a text that ends neither in .age "
                f"nor in .available, and none of {', '.join(INDEX_NAMES)}"
            )
    if twice := next((key for key, count in Counter(keys).items() if count > 1), ""):
        raise UsageError(f"{place}: rename: two columns would be {twice!r}; drop or rename the other one")


def renamed(name: str, names: Mapping[str, str]) -> str:
    """The new name of a column, or of an age or availability."""
    base = base_of(name)
    return f"{names.get(base, base)}{name[len(base) :]}"


def renamed_windows(
    windows: SampleWindows, columns: Sequence[str], names: Mapping[str, str]
) -> SampleWindows:
    """The windows of columns, by their new names.

    Args:
        columns: that samples have; windows of others are left out.
    """
    own = {name: spec for name, spec in windows.columns.items() if name in ("timestamp", *columns)}
    return replace(windows, columns={renamed(name, names): spec for name, spec in own.items()})


class RenamedSource(DelegatingSource):
    """The rows of a source under other names; without columns whose name another one has now."""

    def __init__(self, source: RowSource, names: Mapping[str, str]):
        """
        Args:
            names: the new names, by name.
        """
        super().__init__(source)
        schema, taken = source.schema, set(names.values())
        columns = {
            names.get(name, name): ctype
            for name, ctype in schema.columns.items()
            if name in names or name not in taken
        }
        sampled = [names.get(name, name) for name in schema.sampled if name in names or name not in taken]
        self._new_names = dict(names)
        self.counted = None if source.counted is None else self._renamed_counts
        self._schema = Schema(columns, tuple(sampled))
        back = {new: old for old, new in names.items()}
        self._stored = {name: renamed(name, back) for name in self._schema.all}

    def _renamed_counts(self, columns: Sequence[str]) -> Statistics:
        assert self.source.counted is not None
        found = self.source.counted(self._old(columns))
        lanes = {
            key._replace(column=renamed(key.column, self._new_names)): lane
            for key, lane in found.lanes.items()
        }
        return Statistics({key: lanes[key] for key in sorted(lanes)})

    def _old(self, names: Sequence[str]) -> list[str]:
        return [self._stored[name] for name in names]

    @property
    def schema(self) -> Schema:
        return self._schema

    @cached_property
    def small(self) -> Mapping[str, Array]:
        stored, known = self.source.small, self.source.schema.all
        own = {name: stored[old] for name, old in self._stored.items() if old in stored}
        others = (name for name in stored if name not in known and name not in self._stored)
        return {**{name: stored[name] for name in others}, **own}

    def group_bounds(self, names: Sequence[str]) -> Ints:
        return self.source.group_bounds(self._old(names))

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        stored = {self._stored.get(name, name): array for name, array in (out or {}).items()}
        found = self.source.take(positions, self._old(names), stored)
        return self._renamed(found, names) if found else {}

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        return [self._renamed(row, names) for row in self.source.rows(positions, self._old(names))]

    def _renamed(self, found: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        kept = {key: found[key] for key in self._keys()}
        return {**kept, **{name: found[self._stored[name]] for name in names}}

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        for block in self.source.scan(self._old(names), max_bytes, start, stop):
            columns = {name: block.columns[self._stored[name]] for name in names}
            yield replace(block, columns={"timestamp": block.columns["timestamp"], **columns})

    @property
    def structs(self) -> Mapping[str, ColumnType]:
        types = self.source.structs
        return {name: types[old] for name, old in self._stored.items() if old in types}

    def take_structs(self, positions: Ints, names: Sequence[str]) -> Batch:
        found = self.source.take_structs(positions, self._old(names))
        return {name: found[self._stored[name]] for name in names}
