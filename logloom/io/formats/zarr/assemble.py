"""Assembly of a split's zarr dataset: plan, files and verification.

Here: pure functions; each file is made from the ranges of units it needs, by one worker, in any order.
Elsewhere: staged units (stage), bytes of files (shards), publishing files (the caller).

A log is the group `<log_id>`. Metadata is consolidated for each log, and for the whole tree while that has at
most `MAX_TREE_ARRAYS` arrays: beyond that a reader of one log would read the metadata of thousands.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.digests import digest_of, digests_of_rows
from logloom.errors import UsageError
from logloom.io.formats import assembly
from logloom.io.formats.interface import AssemblyPlan, PlannedPortion, StagedUnit, unit_name
from logloom.io.formats.stages import staged_file
from logloom.io.formats.zarr.columns import LogArray
from logloom.io.formats.zarr.groups import array_attributes, group_files, log_problems
from logloom.io.formats.zarr.layout import ArrayLayout, ZarrOptions
from logloom.io.formats.zarr.reader import ZarrReader
from logloom.io.formats.zarr.shards import encode_file
from logloom.io.formats.zarr.stage import StagedArray, read_staged, staged_arrays
from logloom.io.storage.store import Store
from logloom.schema import Schema
from logloom.values import dataclass

MAX_TREE_ARRAYS = 10_000
T = TypeVar("T")


@dataclass(frozen=True)
class ZarrFileTask:
    """One file of one array of one log.

    Attributes:
        folder: of the array within the dataset.
        leads: whether it begins with the first offset, at which no row ends.
        pieces: its content, in order.
    """

    folder: str
    file: int
    layout: ArrayLayout
    staged: StagedArray
    leads: bool
    pieces: tuple[assembly.UnitRange, ...]


def plan_assembly(units: Sequence[StagedUnit], schema: Schema, options: ZarrOptions) -> AssemblyPlan:
    """Plans the dataset of some units; reads nothing.

    Args:
        units: in row order, (log_id, span).
        schema: of what is stored.

    Raises:
        UsageError: a log_id can't name a group, or one is within another.
        DatasetError: the units are out of order.
    """
    logs = assembly.by_log(units)
    _check_names([*logs])
    staged = staged_arrays(schema)
    attributes = {name: _attributes(place.array, schema, options) for name, place in staged.items()}
    arrays: list[_PlannedArray] = []
    starts, portions = [0], []
    types = digest_of(schema.to_json())
    metadata: dict[str, dict[str, Any]] = {}
    made: dict[tuple[str, ArrayLayout], dict[str, Any]] = {}
    for log_id, own in logs.items():
        first = starts[-1]
        for name, place in staged.items():
            array = _PlannedArray(f"{log_id}/{name}", place, _layout(place.array, own, schema, options), own)
            arrays.append(array)
            starts.append(starts[-1] + array.layout.num_files)
            kind = name, array.layout
            if kind not in made:  # one object for all logs of a length, of which one text is made
                made[kind] = array.layout.metadata() | attributes[name]
            metadata[array.folder] = made[kind]
        inputs = [types, *(unit_name(unit.folder) for unit in own)]
        portions.append(PlannedPortion(log_id, inputs, (first, starts[-1])))
    rows = {log_id: sum(unit.rows for unit in own) for log_id, own in logs.items()}
    whole = len(metadata) <= MAX_TREE_ARRAYS
    files = group_files(metadata, rows, schema, options.format, whole)

    def task(number: int) -> ZarrFileTask:
        at = bisect.bisect_right(starts, number) - 1
        return arrays[at].task(number - starts[at])

    tasks = _OnDemand(starts[-1], task)
    reads = _OnDemand(starts[-1], lambda number: [piece.folder for piece in task(number).pieces])
    parts = assembly.parts_json(units, lambda unit: stored_digest(unit.columns, schema))
    return AssemblyPlan(tasks, files, {"parts": parts}, portions=portions, reads=reads)


class _OnDemand(Sequence[T]):
    """Items that are made on access: those of kept logs, most of them, are never accessed."""

    def __init__(self, length: int, make: Callable[[int], T]):
        self._numbers, self._make = range(length), make

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> list[T]: ...
    def __getitem__(self, number: int | slice) -> T | list[T]:
        if isinstance(number, slice):
            return [self._make(n) for n in self._numbers[number]]
        return self._make(self._numbers[number])


def _attributes(array: LogArray, schema: Schema, options: ZarrOptions) -> dict[str, Any]:
    """The entries of an array's metadata besides the layout."""
    attributes, dimensions = array_attributes(array, schema), list(array.dimensions)
    if options.format == 3:
        return {"attributes": attributes, "dimension_names": dimensions}
    return {"attributes": attributes | {"_ARRAY_DIMENSIONS": dimensions}}


def _check_names(ids: Sequence[str]) -> None:
    problems = [line for log_id in ids for line in log_problems(log_id)]
    folders = {
        "/".join(log_id.split("/")[:depth]) for log_id in ids for depth in range(1, log_id.count("/") + 1)
    }
    problems += [f"log_id {log_id!r} is also a folder of other logs" for log_id in ids if log_id in folders]
    if problems:
        raise UsageError("; ".join(problems) + ": give log_id another template")


def _layout(
    array: LogArray, units: Sequence[StagedUnit], schema: Schema, options: ZarrOptions
) -> ArrayLayout:
    length = sum(_lengths(units, array)) + (array.axis == "bounds")
    ctype = schema.columns.get(array.column)
    # Encoded images don't get smaller.
    plain = array.part == "data" and ctype is not None and ctype.kind in ("bytes", "string")
    return ArrayLayout.choose(array, length, options, plain)


def _lengths(units: Sequence[StagedUnit], array: LogArray) -> list[int]:
    """Entries that each unit adds to an array."""
    if array.axis != "values":
        return [unit.rows for unit in units]
    return [int(unit.unit["values"][array.column]) for unit in units]


@dataclass(frozen=True)
class _PlannedArray:
    """One array of one log.

    Attributes:
        folder: within the dataset.
        units: of the log, in row order.
    """

    folder: str
    staged: StagedArray
    layout: ArrayLayout
    units: Sequence[StagedUnit]

    def task(self, file: int) -> ZarrFileTask:
        """The task that makes one of its files."""
        starts, bases = self._starts
        lead = self.staged.array.axis == "bounds"
        first = file * self.layout.shard
        last = min(first + self.layout.shard, self.layout.shape[0])
        pieces = tuple(
            assembly.UnitRange(
                self.units[at].folder, start, stop, self.units[at].rows, (bases[at],) if lead else ()
            )
            for at, start, stop in assembly.ranges_within(starts, first, last)
        )
        return ZarrFileTask(self.folder, file, self.layout, self.staged, lead and file == 0, pieces)

    @cached_property
    def _starts(self) -> tuple[list[int], list[int]]:
        """(units + 1) the start of each unit's entries, from which its offsets count."""
        array = self.staged.array
        lead = int(array.axis == "bounds")
        values = (unit.unit["values"].get(array.column, 0) for unit in self.units) if lead else ()
        starts = itertools.accumulate(_lengths(self.units, array), initial=lead)
        return [*starts], [*itertools.accumulate(values, initial=0)]


def make_file(store: Store, task: ZarrFileTask) -> tuple[str, bytes]:
    """Make the name and the bytes of one file.

    Raises:
        DatasetError: a staged file is missing or too short.
    """
    parts: list[Array] = [np.zeros(1, task.layout.dtype)] if task.leads else []
    for piece in task.pieces:
        file = staged_file(store, f"{piece.folder}/{task.staged.file}")
        entries = read_staged(file, task.staged, piece.rows, piece.start, piece.stop)
        parts.append(entries + piece.bases[0] if piece.bases else entries)
    entries = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return f"{task.folder}/{task.layout.file_name(task.file)}", encode_file(task.layout, entries)


# --- proof ----------------------------------------------------------------------------------------------


def stored_digest(columns: Mapping[str, str], schema: Schema) -> str:
    """Digest of a unit's rows from those of its columns."""
    return digest_of({name: columns[name] for name in ("log_id", "timestamp", *schema.all)})


def problems(
    folder: str,
    unit: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    fresh: Collection[str] | None = None,
) -> Iterator[str]:
    """Compare a dataset, read through its reader, with the rows that were staged for it.

    Args:
        fresh: the logs to read; None for all.
    """
    reader = ZarrReader(folder, storage_options=storage_options)
    found = dict(zip(reader.stretches.log_ids, reader.stretches.counts.tolist(), strict=True))
    if found != {part.log_id: part.row + part.rows for part in assembly.parts_of(unit)}:
        yield "contains other logs or numbers of rows than were written"
        return

    names = tuple(reader.schema.all)

    def digest(part: assembly.UnitRanges) -> str:
        blocks = reader.log(part.log_id).read(names, part.row, part.row + part.rows, assembly.CHECK_BYTES)
        return stored_digest(digests_of_rows(blocks, reader.schema), reader.schema)

    yield from assembly.part_problems(unit, digest, lambda part: fresh is None or part.log_id in fresh)
