"""Rows whose columns have other names than those stored.

Here: `RenamedSource`, which is a source as any other: filters, windows and statistics use the new names.
Elsewhere: `Dataset.rename`, which makes one (logloom.datasets.dataset).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logloom.blocks import Array, Block
from logloom.caching import cached_property
from logloom.datasets.views.column_choice import names_of
from logloom.datasets.views.positions import SampleWindows
from logloom.errors import UsageError
from logloom.io.rows.batches import Batch
from logloom.io.rows.log_ranges import Ints, SplitLabels, Stretches
from logloom.io.rows.sources import BLOCK_BYTES, RowSource
from logloom.schema import ColumnType, Schema, base_of
from logloom.statistics.columns import Statistics

_INDEX = ("log_id", "timestamp", "partition", "split", "row")


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
        if not isinstance(new, str) or not new or new in _INDEX or base_of(new) != new:
            raise UsageError(
                f"{place}: rename: {old!r} can't become {new!r}; a name is a text that ends neither in .age "
                f"nor in .available, and none of {', '.join(_INDEX)}"
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
    return replace(windows, columns={names.get(name, name): spec for name, spec in own.items()})


class RenamedSource(RowSource):
    """The rows of a source under other names; without columns whose name another one has now."""

    def __init__(self, source: RowSource, names: Mapping[str, str]):
        """
        Args:
            names: the new names, by name.
        """
        schema, taken = source.schema, set(names.values())
        columns = {
            names.get(name, name): ctype
            for name, ctype in schema.columns.items()
            if name in names or name not in taken
        }
        sampled = [names.get(name, name) for name in schema.sampled if name in names or name not in taken]
        self._source, self._new_names = source, dict(names)
        self._schema = Schema(columns, tuple(sampled))
        back = {new: old for old, new in names.items()}
        self._stored = {name: renamed(name, back) for name in self._schema.all}
        self.place, self.kind, self.period = source.place, source.kind, source.period
        self.has_stamps, self.unknown, self.intervals = source.has_stamps, source.unknown, source.intervals
        self.left_out, self.refused = dict(source.left_out), dict(source.refused)
        self.counted = None if source.counted is None else self._renamed_counts
        self.find_splits = None if source.find_splits is None else functools.partial(_splits_of, source)

    def _renamed_counts(self, columns: Sequence[str]) -> Statistics:
        assert self._source.counted is not None
        found = self._source.counted([self._stored[name] for name in columns])
        lanes = {
            key._replace(column=renamed(key.column, self._new_names)): lane
            for key, lane in found.lanes.items()
        }
        return Statistics({key: lanes[key] for key in sorted(lanes)})

    @property
    def max_gap(self) -> int | None:
        """
        Raises:
            UsageError: parts of the source have clocks of several rates.
        """
        return self._source.max_gap

    @max_gap.setter
    def max_gap(self, _: int | None) -> None: ...

    @property
    def stretches(self) -> Stretches:
        return self._source.stretches

    @property
    def stamps(self) -> Ints | None:
        return self._source.stamps

    @cached_property
    def small(self) -> Mapping[str, Array]:
        stored, known = self._source.small, self._source.schema.all
        own = {name: stored[old] for name, old in self._stored.items() if old in stored}
        others = (name for name in stored if name not in known and name not in self._stored)
        return {**{name: stored[name] for name in others}, **own}

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        stored = {self._stored.get(name, name): array for name, array in (out or {}).items()}
        found = self._source.take(positions, [self._stored[name] for name in names], stored)
        return {**_keys_of(found), **{name: found[self._stored[name]] for name in names if found}}

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        found = self._source.rows(positions, [self._stored[name] for name in names])
        return [{**_keys_of(row), **{name: row[self._stored[name]] for name in names}} for row in found]

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        for block in self._source.scan([self._stored[name] for name in names], max_bytes, start, stop):
            columns = {name: block.columns[self._stored[name]] for name in names}
            yield replace(block, columns={"timestamp": block.columns["timestamp"], **columns})

    @property
    def structs(self) -> Mapping[str, ColumnType]:
        types = self._source.structs
        return {name: types[old] for name, old in self._stored.items() if old in types}

    def take_structs(self, positions: Ints, names: Sequence[str]) -> Batch:
        found = self._source.take_structs(positions, [self._stored[name] for name in names])
        return {name: found[self._stored[name]] for name in names}


def _splits_of(source: RowSource) -> SplitLabels:
    assert source.row_splits is not None
    return source.row_splits


def _keys_of(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: found[key] for key in ("log_id", "timestamp") if key in found}
