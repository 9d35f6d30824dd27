"""Rows in the order of their row groups, and reading each group once.

Here: `groups_of`, the groups of a dataset's rows; `HeldRows`, a dataset that keeps groups in memory.
Elsewhere: the order of groups and of rows in them (logloom.datasets.loader.orders), where groups begin
(`RowSource.group_bounds`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.datasets.dataset import Dataset
from logloom.datasets.loader.orders import RowGroups
from logloom.datasets.mixing.mixture import MixedRows
from logloom.datasets.views import positions as views
from logloom.io.rows import batches
from logloom.io.rows.batches import Batch, scattered
from logloom.io.rows.chain import grouped
from logloom.io.rows.delegation import DelegatingSource
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import RowSource


def groups_of(rows: Dataset[Any]) -> RowGroups:
    """The rows of a dataset by the row groups that they are stored in; reads metadata alone."""
    bounds, stored = rows.source.group_bounds(rows.columns), rows.stored_rows
    if isinstance(stored, range) and stored.step == 1:
        starts = np.unique(np.clip(bounds - stored.start, 0, len(stored)))
        return RowGroups(starts, None)
    numbers = np.searchsorted(bounds, rows.positions, side="right") - 1
    members = np.argsort(numbers, kind="stable").astype(np.int64)
    cuts = np.flatnonzero(np.diff(numbers[members])) + 1
    return RowGroups(np.concatenate([[0], cuts, [len(members)]]).astype(np.int64), members)


def held(source: Dataset[Any] | MixedRows, groups: Sequence[RowGroups], most: int) -> Any:
    """The same rows, read by groups.

    Args:
        groups: of the dataset, or of each part of a mixture.
        most: groups of each dataset that are in memory.
    """
    if isinstance(source, Dataset):
        return HeldRows.of(source, groups[0], most)
    parts = zip(source.parts.items(), groups, strict=True)
    return source.with_parts({name: HeldRows.of(part, own, most) for (name, part), own in parts})


class HeldSource(DelegatingSource):
    """Rows of a source, of which some are in memory. For one thread; pickles without these.

    Attributes:
        columns: of the groups in memory; rows of others are read.
        groups: (positions, ascending, and their batch by `take`) by the number of a group, the one used last
            behind the others.
    """

    def __init__(self, source: RowSource, columns: Sequence[str]):
        super().__init__(source)
        self.columns = tuple(columns)
        self.groups: dict[int, tuple[Ints, Batch]] = {}

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """See `RowSource.take`; rows that aren't in memory are read."""
        parts: list[tuple[Ints, Batch]] = []
        where = np.arange(len(positions))
        for stored, batch in self.groups.values() if {*names} <= {*self.columns} else ():
            places = np.searchsorted(stored, positions[where])
            there = stored[np.minimum(places, len(stored) - 1)] == positions[where]
            if there.any():
                own = {key: batch[key] for key in (*self._keys(), *names)}
                parts.append((where[there], batches.take(own, places[there])))
                where = where[~there]
            if not len(where):
                break
        if len(where):
            parts.append((where, self.source.take(positions[where], names)))
        return scattered(parts, len(positions), out) if parts else {}

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        return batches.rows_of(self.take(positions, names), len(positions))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "groups": {}}


class HeldRows(Dataset[dict[str, Any]]):
    """A dataset that reads a row group whole when first asked for one of its rows, and keeps some groups.

    Of windows also the rows around are read.
    """

    _groups: RowGroups
    _most: int

    @classmethod
    def of(cls, rows: Dataset[Any], groups: RowGroups, most: int) -> HeldRows:
        """See `held`."""
        made = cls(HeldSource(rows.source, rows.columns), rows.stored_rows, rows.columns)
        own = {"_source": made.source, "_groups": groups, "_most": most}
        made.__dict__.update(vars(rows) | own)
        return made

    def get_many(
        self,
        numbers: Sequence[int] | Array | slice,
        columns: str | Sequence[str] | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Batch:
        """See `Dataset.get_many`."""
        chosen = self._chosen(numbers)
        parts = self._parts(chosen)
        if len(parts) == 1:
            self._hold(parts[0][0])
            return super().get_many(chosen, columns, out)
        found = []
        for groups, where in parts:
            self._hold(groups)
            found.append((where, super().get_many(chosen[where], columns)))
        windows = [key for key in found[0][1] if self.steps_of(key)]
        return scattered(found, len(chosen), out, windows)

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """See `Dataset.__getitems__`."""
        chosen = self._chosen(numbers)
        samples: list[Any] = [None] * len(chosen)
        for groups, where in self._parts(chosen):
            self._hold(groups)
            for place, sample in zip(where.tolist(), self._samples(chosen[where].tolist()), strict=True):
                samples[place] = sample
        return samples

    def _parts(self, numbers: Ints) -> list[tuple[list[int], Ints]]:
        """(groups, which of `numbers` are in them): at most as many as are kept, those in memory first."""
        kept = self._held.groups
        found = [
            (group, where)
            for group, where, _ in grouped(self._groups.starts, self._groups.places_of(numbers))
        ]
        found.sort(key=lambda one: one[0] not in kept)
        parts = []
        for first in range(0, len(found), self._most):
            some = found[first : first + self._most]
            parts.append(([group for group, _ in some], np.concatenate([where for _, where in some])))
        return parts

    @property
    def _held(self) -> HeldSource:
        assert isinstance(self._source, HeldSource)
        return self._source

    def _hold(self, groups: Sequence[int]) -> None:
        """Read groups unless they are in memory, in place of those that were used least recently."""
        kept = self._held.groups
        for group in groups:
            if group in kept:
                kept[group] = kept.pop(group)
        lacking = [group for group in groups if group not in kept]
        while kept and len(kept) + len(lacking) > self._most:
            del kept[next(iter(kept))]
        for group in lacking:
            rows = np.unique(self._with_windows(views.at(self._rows, self._groups.members_of(group))))
            kept[group] = rows, self._held.source.take(rows, self._held.columns)

    def _with_windows(self, positions: Ints) -> Ints:
        """The positions of rows and, of windows, of all their rows."""
        wanted = [positions]
        for spec in () if self._window is None else self._window.specs:
            rows, exists = spec.rows(positions, self._source.stamps if spec.is_time else None)
            wanted.append(rows.reshape(-1) if spec.on_edge == "repeat" else rows[exists])
        return np.concatenate(wanted)
