"""The rows of one output of a version. A log's list of units is read when the first of them is needed.

Here: `LogsSource`, which finds the unit that a row lies in.
Elsewhere: which logs those are, and what opens a unit (logloom.datasets.version); parts of logs
(logloom.io.catalog.entries); datasets that are put together from units (each format's own source).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from logloom.caching import cached_property
from logloom.errors import PurgedError
from logloom.io.catalog.entries import Entry, LogUnits, read_log_part
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.version_files import view_folder
from logloom.io.rows.chain import ChainedSource, grouped
from logloom.io.rows.log_ranges import Ints, Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.schema import Schema
from logloom.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

_PARTS = 64 << 20  # bytes of parts of logs that are kept
_UNITS = 1 << 14  # units that are kept open, some kB each


class LogsSource(ChainedSource):
    """The units of an output, log after log; those used last stay open."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        output: str,
        logs: pa.Table,
        open_unit: Callable[[Entry], RowSource],
        schema: Schema | None,
        max_gap: int | None = None,
        timed_by: tuple[RowSource, Ints | range] | None = None,
    ):
        """Reads nothing, unless only a unit tells the columns: then the first log's part and its first unit.

        Args:
            logs: log_id, split, part and rows (above 0) of each.
            open_unit: gives the rows of a unit; picklable.
            schema: of the rows; None where only a unit tells.
        """
        self._store, self._output, self._logs, self._open_unit = store, output, logs, open_unit
        self._log_units: LruCache[_Units] = LruCache(_PARTS, least=1)
        self._open_units: LruCache[RowSource] = LruCache(_UNITS, size=_one)
        place = f"{store.uri_of(view_folder(manifest.version))}/{output}"
        super().__init__(place, (), schema or Schema.from_json(manifest.schema), max_gap, timed_by)
        if schema is None and len(logs):
            self._schema = self._unit(0, 0).schema

    @cached_property
    def stretches(self) -> Stretches:
        return stretches_of(self._store, self._logs, self._output)

    @cached_property
    def _bounds(self) -> Ints:
        return self.stretches.bounds

    def _every_part(self) -> Iterator[Callable[[], RowSource]]:
        for log, found in ahead(lambda log: (log, self._units_of(log)), range(len(self._logs))):
            for number in range(len(found.numbers)):
                yield functools.partial(self._unit, log, number)

    def _groups(self, positions: Ints) -> list[tuple[RowSource, Ints, Ints]]:
        return [
            (self._unit(log, number), where[chosen], own)
            for log, where, rows in grouped(self._bounds, positions)
            for number, chosen, own in grouped(self._units_of(log).bounds, rows)
        ]

    def _units_of(self, log: int) -> _Units:
        """
        Raises:
            DatasetError: the log's part is missing or damaged, or has other rows than the manifest says.
        """
        found = self._log_units.get(log)
        if found is None:
            log_id, part, rows = (self._logs[name][log].as_py() for name in ("log_id", "part", "rows"))
            units = units_left(self._store, log_id, part)
            numbers, counts = units.with_rows(self._output, rows)
            found = _Units(units, numbers, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
            self._log_units.put(log, found)
        return found

    def _unit(self, log: int, number: int) -> RowSource:
        unit = self._open_units.get((log, number))
        if unit is None:
            found = self._units_of(log)
            unit = self._open_unit(found.part[int(found.numbers[number])])
            self._open_units.put((log, number), unit)
        return unit


@dataclass(frozen=True)
class _Units:
    """The units of a log in one output.

    Attributes:
        numbers: (U,) of those that hold rows, in the log's part.
        bounds: (U + 1,) where each begins, in rows of the log.
    """

    part: LogUnits
    numbers: Ints
    bounds: Ints

    @property
    def nbytes(self) -> int:
        return self.part.nbytes + 2 * self.bounds.nbytes


def _one(unit: RowSource) -> int:
    return 1


def units_left(store: Store, log_id: str, part: str) -> LogUnits:
    """Read which units a log has.

    Raises:
        PurgedError: they were erased; says by which filter the version is opened without them.
        DatasetError: its part is missing or damaged.
    """
    try:
        return read_log_part(store, part, brief=True)
    except PurgedError as error:
        raise PurgedError(f'{error}; or open this one with where="log_id != {log_id!r}"') from error


def stretches_of(store: Store, logs: pa.Table, output: str) -> Stretches:
    """The rows of logs; their partitions are looked up in the logs' parts when asked for.

    Args:
        logs: see `LogsSource`.
    """
    return Stretches(
        logs["log_id"].to_pylist(),
        [""] * len(logs),
        logs["split"].to_pylist(),
        logs["rows"].to_numpy(),
        find_partitions=functools.partial(_by_partition, store, logs, output),
    )


def _by_partition(store: Store, logs: pa.Table, output: str) -> Stretches:
    triples = zip(*(logs[name].to_pylist() for name in ("log_id", "part", "rows")), strict=True)
    found = list(ahead(lambda triple: _partitions_of(store, output, *triple), triples))
    lengths = [len(names) for names, _ in found]
    return Stretches(
        np.repeat(np.array(logs["log_id"].to_pylist(), object), lengths).tolist(),
        [name for names, _ in found for name in names],
        np.repeat(np.array(logs["split"].to_pylist(), object), lengths).tolist(),
        np.concatenate([np.empty(0, np.int64), *(rows for _, rows in found)]),
    )


def _partitions_of(store: Store, output: str, log_id: str, part: str, rows: int) -> tuple[list[str], Ints]:
    units = units_left(store, log_id, part)
    numbers, counts = units.with_rows(output, rows)
    return units.table["partition"].take(numbers).to_pylist(), counts
