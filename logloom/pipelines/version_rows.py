"""Rows of a version by number, and which columns are images, clouds or places.

Elsewhere: the rows that training reads (logloom.datasets.version).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.caching import cached_property
from logloom.io.catalog.entries import Entry, LogUnits, read_log_part
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.row_counts import runs_of_unit
from logloom.io.formats.registry import by_preference, format_named
from logloom.io.rows.sources import RowSource
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import reading_of
from logloom.schema import ColumnType, Schema
from logloom.transforms.build.read_back import Reading

_PLACES = frozenset({"position", "translation", "location", "xy", "xyz", "centroid"})
_CLOUDS = frozenset({"points", "cloud", "pointcloud", "lidar", "radar"})


class RowsOfLogs:
    """The rows of a version by number, each column from the output whose rows are quickest to reach."""

    def __init__(self, store: Store, manifest: Manifest):
        self._store, self._manifest = store, manifest
        self._reading = reading_of(store, manifest)
        self.ends = np.cumsum(manifest.logs.column("rows").to_numpy())
        self._units: tuple[str, LogUnits] | None = None
        self._sources: dict[str, RowSource] = {}
        self._labels: tuple[str, list[str]] = "", []

    @cached_property
    def schema(self) -> Schema:
        """Of the columns as they were built; where no output keeps them so, as that one has them."""
        if any(format_named(name).keeps_columns for name in self.outputs()):
            return self._reading.schema
        for _, record, number in self.found(range(min(1, len(self)))):
            for source, _ in self.parts(record, [number], self.outputs()[0]):
                return source.schema
        return Schema({})

    @property
    def reading(self) -> Reading:
        return self._reading

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def found(self, rows: Iterable[int]) -> Iterator[tuple[int, LogRecord, int]]:
        """(row, its log, its number in the log), for ascending numbers of rows."""
        wanted = list(rows)
        positions = np.searchsorted(self.ends, wanted, side="right").tolist()
        numbers = sorted(set(positions))
        records = dict(zip(numbers, self._manifest.logs.take(numbers), strict=True))
        for row, position in zip(wanted, positions, strict=True):
            first = int(self.ends[position - 1]) if position else 0
            yield row, records[position], row - first

    def units(self, record: LogRecord) -> LogUnits:
        """The units of a log; those of the last one that was asked for are kept."""
        if self._units is None or self._units[0] != record.part:
            self._units = record.part, read_log_part(self._store, record.part, brief=True)
            self._sources = {}
        return self._units[1]

    def parts(
        self, record: LogRecord, rows: Sequence[int], output: str
    ) -> Iterator[tuple[RowSource, NDArray[np.int64]]]:
        """The units of an output that hold some rows of a log, each with those rows of its own.

        Args:
            rows: ascending numbers within the log.
        """
        numbers, counts = self.units(record).with_rows(output, record.rows)
        ends = np.cumsum(counts)
        at = np.searchsorted(ends, rows, side="right")
        for place in np.unique(at).tolist():
            own = np.asarray(rows, np.int64)[at == place] - (int(ends[place - 1]) if place else 0)
            yield self.source(self.units(record)[int(numbers[place])]), own

    def source(self, entry: Entry) -> RowSource:
        """The rows of a unit of the last log whose units were asked for; opened once."""
        if entry.folder not in self._sources:
            self._sources[entry.folder] = self._reading.open(entry)
        return self._sources[entry.folder]

    def split_of(self, record: LogRecord, number: int) -> str:
        """The split that a row of a log is in."""
        if not record.splits:
            return record.split
        if self._labels[0] != record.part:
            place = self._store.uri_of(f"logs/{record.part}.parquet")
            units = read_log_part(self._store, record.part)
            numbers, _ = units.with_rows(self.outputs()[0], record.rows)
            entries = (units[int(number)] for number in numbers)
            runs = (run for one in entries for run in runs_of_unit(one.tally, one.rows, place))
            self._labels = record.part, [name for name, count in runs for _ in range(count)]
        labels = self._labels[1]
        return labels[number] if number < len(labels) else record.split

    def outputs(self) -> list[str]:
        """Those with rows, the quickest first; only those that keep columns as they are, where some do."""
        readable = [name for name in by_preference(self._manifest.outputs) if format_named(name).has_rows]
        return [name for name in readable if format_named(name).keeps_columns] or readable[:1]

    def row(self, record: LogRecord, number: int) -> dict[str, Any]:
        """A row of a log with all columns, ages and availabilities that outputs hold."""
        found: dict[str, Any] = {}
        for output in self.outputs():
            for source, own in self.parts(record, [number], output):
                names = [name for name in source.schema.all if name not in found]
                if names:
                    found |= source.row(int(own[0]), names)
        return found


def has_value(values: Mapping[str, Any], name: str) -> bool:
    """Whether a row has a usable value of a column that isn't empty."""
    return name in values and bool(values.get(f"{name}.available", True)) and _size(values[name]) > 0


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list) else int(np.size(value))


def is_cloud(name: str, ctype: ColumnType, recipe: Mapping[str, Any]) -> bool:
    """Whether a column holds clouds of points: by its type, and its name or what the recipe says of it."""
    if ctype.kind != "array" or ctype.num_ragged != 1:
        return False
    if ctype.dtype.names:
        axes = [ctype.dtype[name] for name in ("x", "y", "z") if name in ctype.dtype.names]
        is_plain = all(axis.kind in "biuf" and not axis.shape for axis in axes)
        return len(ctype.shape) == 1 and {"x", "y"} <= set(ctype.dtype.names) and is_plain
    if len(ctype.shape) != 2 or not 2 <= (ctype.shape[1] or 0) <= 16 or ctype.dtype.kind != "f":
        return False
    column = recipe.get("columns", {}).get(name)
    adapter = str(column.get("as", "")) if isinstance(column, Mapping) else ""
    return adapter.startswith("points") or bool(_CLOUDS & set(name.split(".")))


def points_of(value: NDArray[Any]) -> NDArray[np.float64]:
    """(N, 2 or 3) x, y and z."""
    if value.dtype.names:
        names = [name for name in ("x", "y", "z") if name in value.dtype.names]
        return np.stack([value[name].astype(np.float64) for name in names], axis=1)
    return np.asarray(value[:, :3], np.float64)


def is_place(name: str, ctype: ColumnType) -> bool:
    """Whether a column holds places: vectors of two or three floats, by the end of its name."""
    fits = ctype.kind == "array" and ctype.shape in ((2,), (3,)) and ctype.dtype.kind == "f"
    return fits and name.rpartition(".")[2] in _PLACES
