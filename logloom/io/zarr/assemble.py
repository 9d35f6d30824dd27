"""One zarr dataset from the staged units of a split: its plan, its files, and the proof of it.

Here: pure functions; each file is made from the ranges of units it needs, by one worker, in any order.
Elsewhere: staged units (stage), bytes of files (shards), where files are published (the caller).

A log is the group `<log_id>`. Metadata is consolidated for each log, and for the whole tree while that has at
most `MAX_TREE_ARRAYS` arrays: beyond that a reader of one log would read that of thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from pydantic import BaseModel

from logloom.blocks import Array
from logloom.digests import RowsDigest, digest_of
from logloom.errors import DatasetError, LogloomError, StorageError, UsageError
from logloom.io.metadata import Count, Text
from logloom.io.storage import Store
from logloom.io.tar.sources import ByteSource
from logloom.io.units import AssemblyPlan
from logloom.io.zarr.arrays import LogArray
from logloom.io.zarr.groups import array_attributes, group_files, log_problems
from logloom.io.zarr.layout import ArrayLayout
from logloom.io.zarr.options import ZarrOptions
from logloom.io.zarr.reader import ZarrReader
from logloom.io.zarr.shards import encode_file
from logloom.io.zarr.stage import StagedArray, read_staged, staged_arrays
from logloom.schema import Schema

MAX_TREE_ARRAYS = 10_000
_CHECK_BYTES = 16 << 20


@dataclass(frozen=True)
class StagedZarr:
    """A finished unit, as assembly needs to know it.

    Attributes:
        folder: of the unit, within the store.
        unit: what its writer's `close` gave.
        digest: of its rows, over all columns that are stored.
    """

    log_id: str
    folder: str
    unit: Mapping[str, Any]
    digest: str

    @property
    def rows(self) -> int:
        return int(self.unit["rows"])

    def length(self, array: LogArray) -> int:
        """Entries that it adds to an array."""
        return int(self.unit["values"][array.column]) if array.axis == "values" else self.rows


@dataclass(frozen=True)
class ZarrPiece:
    """Entries [start, stop) of one unit's array.

    Attributes:
        rows: of the unit.
        base: of offsets: how many values the log holds before those of this unit.
    """

    folder: str
    start: int
    stop: int
    rows: int
    base: int = 0


@dataclass(frozen=True)
class ZarrFileTask:
    """One file of one array of one log.

    Attributes:
        folder: of the array within the dataset.
        leads: whether it begins with the first offset, which no row ends at.
        pieces: what it holds, in order.
    """

    folder: str
    file: int
    layout: ArrayLayout
    staged: StagedArray
    leads: bool
    pieces: tuple[ZarrPiece, ...]


def plan_assembly(units: Sequence[StagedZarr], schema: Schema, options: ZarrOptions) -> AssemblyPlan:
    """Plans the dataset of some units; reads nothing.

    Args:
        units: in row order, (log_id, span).
        schema: of what is stored.

    Raises:
        UsageError: a log_id can't name a group, or one lies within another.
        DatasetError: the units are out of order.
    """
    logs = {log_id: list(own) for log_id, own in groupby(units, key=lambda unit: unit.log_id)}
    _check_order(units, logs)
    staged = staged_arrays(schema)
    tasks: list[ZarrFileTask] = []
    metadata: dict[str, dict[str, Any]] = {}
    for log_id, own in logs.items():
        for name, place in staged.items():
            layout = _layout(place.array, own, schema, options)
            tasks += _file_tasks(f"{log_id}/{name}", place, layout, own)
            attributes, dimensions = array_attributes(place.array, schema), list(place.array.dimensions)
            metadata[f"{log_id}/{name}"] = layout.metadata() | {"attributes": attributes}
            if options.format == 3:
                metadata[f"{log_id}/{name}"]["dimension_names"] = dimensions
            else:
                attributes["_ARRAY_DIMENSIONS"] = dimensions
    rows = {log_id: sum(unit.rows for unit in own) for log_id, own in logs.items()}
    whole = len(metadata) <= MAX_TREE_ARRAYS
    files = group_files(metadata, rows, schema, options.format, whole)
    parts = [[u.log_id, u.unit["partition"], u.rows, u.digest] for u in units]
    return AssemblyPlan(tasks, files, {"parts": parts})


def _check_order(units: Sequence[StagedZarr], logs: Mapping[str, Sequence[StagedZarr]]) -> None:
    ids = [log_id for log_id, _ in groupby(units, key=lambda unit: unit.log_id)]
    if ids != sorted(set(ids)):
        raise DatasetError("units of logs out of order, or of a log in two places")
    for own in logs.values():
        for before, after in pairwise(own):
            if after.unit["span"][0] <= before.unit["span"][1]:
                raise DatasetError(f"{after.folder}: its rows don't come after those before them")
    problems = [line for log_id in ids for line in log_problems(log_id)]
    folders = {
        "/".join(log_id.split("/")[:depth]) for log_id in ids for depth in range(1, log_id.count("/") + 1)
    }
    problems += [f"log_id {log_id!r} is also a folder of other logs" for log_id in ids if log_id in folders]
    if problems:
        raise UsageError("; ".join(problems) + ": give log_id another template")


def _layout(
    array: LogArray, units: Sequence[StagedZarr], schema: Schema, options: ZarrOptions
) -> ArrayLayout:
    length = sum(unit.length(array) for unit in units) + (array.axis == "bounds")
    ctype = schema.columns.get(array.column)
    # Encoded images don't get smaller.
    plain = array.part == "data" and ctype is not None and ctype.kind != "array"
    return ArrayLayout.choose(array, length, options, plain)


def _file_tasks(
    folder: str, staged: StagedArray, layout: ArrayLayout, units: Sequence[StagedZarr]
) -> Iterator[ZarrFileTask]:
    array = staged.array
    lead = int(array.axis == "bounds")
    starts = np.cumsum([lead, *(unit.length(array) for unit in units)]).tolist()
    bases = np.cumsum([0, *(unit.unit["values"].get(array.column, 0) for unit in units)]).tolist()
    for file in range(layout.num_files):
        first = file * layout.shard
        last = min(first + layout.shard, layout.shape[0])
        pieces = []
        at = max(0, int(np.searchsorted(starts, first, side="right")) - 1)
        while at < len(units) and starts[at] < last:
            start, stop = max(first, starts[at]) - starts[at], min(last, starts[at + 1]) - starts[at]
            if start < stop:
                base = bases[at] if lead else 0
                pieces.append(ZarrPiece(units[at].folder, start, stop, units[at].rows, base))
            at += 1
        yield ZarrFileTask(folder, file, layout, staged, bool(lead) and file == 0, tuple(pieces))


def make_file(store: Store, task: ZarrFileTask) -> tuple[str, bytes]:
    """The name and the bytes of one file.

    Raises:
        DatasetError: a staged file is missing or too short.
    """
    parts: list[Array] = [np.zeros(1, task.layout.dtype)] if task.leads else []
    for piece in task.pieces:
        source = ByteSource(store.uri_of(f"{piece.folder}/{task.staged.file}"), store.options)
        entries = read_staged(source, task.staged, piece.rows, piece.start, piece.stop)
        parts.append(entries + piece.base if piece.base else entries)
    entries = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return f"{task.folder}/{task.layout.file_name(task.file)}", encode_file(task.layout, entries)


class ZarrPlanJson(BaseModel):
    """What an `AssemblyPlan` says; of each unit log_id, partition, rows and digest."""

    parts: tuple[tuple[Text, Text, Count, Text], ...]


# --- proof ----------------------------------------------------------------------------------------------


def stored_digest(columns: Mapping[str, str], schema: Schema) -> str:
    """Digest of a unit's rows from those of its columns."""
    return digest_of({name: columns[name] for name in ("log_id", "timestamp", *schema.all)})


def differences(
    folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Says how a dataset, read through `ZarrReader`, differs from the rows that were staged for it.

    Args:
        folder: URI of the dataset.
        unit: of its `AssemblyPlan`.

    Raises:
        StorageError: it can't be read.
    """
    try:
        reader = ZarrReader(folder, storage_options=storage_options)
        lengths = dict(_rows_of_logs(unit))
        if reader.logs != lengths:
            yield f"{folder}: holds other logs or numbers of rows than were written"
            return
    except StorageError:
        raise
    except LogloomError as error:
        yield f"{folder}: {error}"
        return
    row, latest = 0, None
    for log_id, partition, rows, digest in unit["parts"]:
        row = row if log_id == latest else 0
        latest = log_id
        problem = _part_difference(reader, log_id, row, row + rows, digest)
        if problem:
            yield f"{folder}: {problem} (rows {row} to {row + rows} of {log_id}, {partition})"
        row += rows


def _rows_of_logs(unit: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for log_id, parts in groupby(unit["parts"], key=lambda part: part[0]):
        yield log_id, sum(part[2] for part in parts)


def _part_difference(reader: ZarrReader, log_id: str, start: int, stop: int, digest: str) -> str:
    """How the rows of one unit differ, or ""."""
    found = RowsDigest(reader.schema)
    try:
        for block in reader.log(log_id).blocks(None, _CHECK_BYTES, start, stop):
            found.update(block)
    except StorageError:
        raise
    except (LogloomError, ValueError) as error:
        return str(error)
    same = stored_digest(found.hexdigests(), reader.schema) == digest
    return "" if same else "the rows read back differ from what was written"
