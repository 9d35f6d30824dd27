"""Sources of rows that are concatenations of other sources.

Here: `ChainedSource`, of any sources; `UnitsSource`, of a folder's units; `grouped`, which finds the source
of each row.
Elsewhere: the protocol for rows (sources).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Block
from logloom.caching import cached_property
from logloom.digests import digest_of
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.rows.batches import Batch, scattered
from logloom.io.rows.log_ranges import Ints, LogRange, SourceLog, Stretches, end_to_end
from logloom.io.rows.sources import BLOCK_BYTES, RowSource, Share, joined_bounds
from logloom.io.storage.folders import content_of, walk
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.schema import Schema

_THREADS = 8  # that ask for timestamps, each of another file
_FIRST = np.zeros(1, np.int64)  # which of one position
_FIRST.flags.writeable = False


class ChainedSource(RowSource):
    """Sources one after the other: the units of an output, or its splits."""

    def __init__(
        self,
        place: str,
        parts: Sequence[RowSource],
        schema: Schema,
        max_gap: int | None,
        timed_by: tuple[RowSource, Ints | range] | None = None,
    ):
        """
        Args:
            schema: of all parts.
            timed_by: a source that has the timestamps at hand, and the position there of each row.
        """
        self.place, self.max_gap, self._timed_by = place, max_gap, timed_by
        self.has_stamps = all(part.has_stamps for part in parts)
        self.key_name = parts[0].key_name if parts else ""
        self.unknown = "; ".join(dict.fromkeys(part.unknown for part in parts if part.unknown))
        self.left_out = {name: why for part in parts for name, why in part.left_out.items()}
        self.refused = {name: why for part in parts for name, why in part.refused.items()}
        self._parts = list(parts)
        self._schema = schema

    @cached_property
    def stretches(self) -> Stretches:
        return Stretches.joined([part.stretches for part in self._parts])

    @cached_property
    def _bounds(self) -> Ints:
        return np.cumsum([0, *(len(part) for part in self._parts)], dtype=np.int64)

    @cached_property
    def stamps(self) -> Ints | None:
        if not self.has_stamps:
            return None
        if self._timed_by is not None:
            source, positions = self._timed_by
            with contextlib.suppress(LogloomError):  # these rows' own files have the same, only more slowly
                if source.stamps is not None and len(positions) == len(self):
                    return source.stamps if isinstance(positions, range) else source.stamps[positions]
        found: list[Any] = list(ahead(lambda opened: opened().stamps, self._every_part(), _THREADS))
        return np.concatenate([np.empty(0, np.int64), *found])

    def _every_part(self) -> Iterable[Callable[[], RowSource]]:
        return (functools.partial(_itself, part) for part in self._parts)

    @cached_property
    def small(self) -> Mapping[str, Array]:
        first = self._parts[0].small if self._parts else {}
        names = [name for name in first if all(name in part.small for part in self._parts)]
        return {name: np.concatenate([part.small[name] for part in self._parts]) for name in names}

    def group_bounds(self, names: Sequence[str]) -> Ints:
        """See `RowSource.group_bounds`: those of each part."""
        own = ahead(lambda opened: opened().group_bounds(names), self._every_part(), _THREADS)
        return joined_bounds(own)

    @cached_property
    def _joined(self) -> RowSource | None:
        return joined([self])

    def _groups(self, positions: Ints) -> list[tuple[RowSource, Ints, Ints]]:
        """(part, which of `positions` are in it, their positions there) for each part that is touched."""
        return [(self._parts[number], where, own) for number, where, own in grouped(self._bounds, positions)]

    def leaves(self) -> Sequence[RowSource]:
        return [leaf for part in self._parts for leaf in part.leaves()] or [self]

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        found: list[Any] = [None] * len(positions)
        for part, where, own in self._groups(positions):
            for place, row in zip(where.tolist(), part.rows(own, names), strict=True):
                found[place] = row
        return found

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        groups = self._groups(positions)
        if len(groups) == 1:
            return groups[0][0].take(groups[0][2], names, out)
        if self._joined is not None:
            return self._joined.take(positions, names, out)
        return scattered([(where, part.take(own, names)) for part, where, own in groups], len(positions), out)

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        for _, first, last in self.stretches.between(start, stop):
            for part, _, own in self._groups(np.arange(first, last)):
                yield from part.scan(names, max_bytes, int(own[0]), int(own[-1]) + 1)


def joined(sources: Sequence[RowSource]) -> RowSource | None:
    """The rows of sources, one after the other, as one of which a batch is one read; None where none is."""
    first, *others = [leaf for source in sources for leaf in source.leaves()]
    return first.joined(others) if others else None


class UnitsSource(ChainedSource):
    """The rows of a plain folder, unit after unit, each of which knows its schema."""

    def __init__(
        self, store: Store, kind: str, units: Sequence[RowSource], files: Sequence[str] | None = None
    ):
        """
        Args:
            files: names of the units in the folder; None for all directly in it.

        Raises:
            DatasetError: there are no units.
            UsageError: units have different columns.
        """
        if not units:
            raise DatasetError(f"{store.uri}: {kind} without units")
        for number, unit in enumerate(units):
            if unit.schema != units[0].schema:
                raise UsageError(
                    f"{store.uri}: unit {number} has other columns than the first; open them one by one"
                )
        super().__init__(store.uri, units, units[0].schema, None)
        self.kind, self.unknown = kind, f"plain folders of {kind}"
        self._store, self._files = store, files

    def shares(self) -> Sequence[Share]:
        """See `RowSource.shares`: the units, so that a worker opens no other; none is opened for this."""
        return [Share(unit, f"{number:06}") for number, unit in enumerate(self._parts)]

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """See `RowSource.scan`; of units before `start` only the rows are counted, later ones stay shut."""
        first = 0
        for unit in self._parts:
            if stop is not None and first >= stop:
                return
            rows = len(unit)
            low, high = max(start - first, 0), rows if stop is None else min(stop - first, rows)
            if low < high:
                yield from unit.scan(names, max_bytes, low, high)
            first += rows

    def logs(self) -> Sequence[SourceLog]:
        """See `RowSource.logs`: a part for each log of a unit."""
        files = walk(self._store, ("",)) if self._files is None else self._files
        content, size = content_of(self._store, files)
        parts: dict[str, list[LogRange]] = {}
        for number, (unit, before) in enumerate(zip(self._parts, self._bounds.tolist(), strict=False)):
            for log_id, first, stop in unit.stretches.spans():
                assert unit.stamps is not None
                rows, stamps = stop - first, unit.stamps[first:stop].tolist()
                identity = digest_of([content, number, first, rows])[:32]
                share = size * rows // len(self)
                where = before + first
                part = LogRange(f"{number:06}", stamps[0], stamps[-1] + 1, rows, identity, where, share)
                parts.setdefault(log_id, []).append(part)
        return [
            SourceLog.of(log_id, self.place, end_to_end(log_id, own, self.place))
            for log_id, own in sorted(parts.items())
        ]


def grouped(bounds: Ints, positions: Ints) -> Iterator[tuple[int, Ints, Ints]]:
    """(number, which of `positions` are in it, their positions there) for each stretch that is touched.

    Args:
        bounds: (S + 1,) where stretches begin.
    """
    if len(positions) == 1:  # a row by its number goes through this several times
        number = int(bounds.searchsorted(positions[0], side="right")) - 1
        yield number, _FIRST, positions - bounds[number]
        return
    numbers = bounds.searchsorted(positions, side="right") - 1
    if len(numbers) and (numbers == numbers[0]).all():
        yield int(numbers[0]), np.arange(len(numbers)), positions - bounds[numbers[0]]
        return
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    for start, stop in itertools.pairwise([0, *cuts.tolist(), len(order)]):
        where = order[start:stop]
        if len(where):
            number = int(numbers[where[0]])
            yield number, where, positions[where] - bounds[number]


def _itself(part: RowSource) -> RowSource:
    return part
