"""Statistics of a version's rows, counted by reading them as a build counts them.

Here: of whole logs (`by_reading`), and of the splits that single rows are in (`splits_by_reading`).
Elsewhere: what builds have counted, of which nothing needs to be read (stats), what statistics are
(logloom.statistics).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from logloom.blocks import Block
from logloom.errors import UsageError
from logloom.io.catalog.entries import Entry, read_log_part
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.row_counts import runs_of_unit
from logloom.io.formats.registry import by_preference
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import Task, reading_of, run_tasks
from logloom.schema import Schema
from logloom.statistics.columns import Statistics
from logloom.statistics.rows import RowStatistics
from logloom.transforms.build.read_back import Reading
from logloom.transforms.build.statistics_checks import columns_held, count_unit

Runs = Sequence[tuple[str, int]]  # the split of each row of a unit, and how many rows of it come together


def by_reading(
    store: Store,
    manifest: Manifest,
    records: Sequence[LogRecord],
    schema: Schema,
    *,
    every_value: bool,
    num_workers: int,
) -> Iterator[Statistics]:
    """The statistics of logs.

    Raises:
        UsageError: no output holds some column as it was built.
    """
    if not records:
        return
    reading = reading_of(store, manifest)
    held = _columns_by_output(reading, schema)
    tasks = (
        Task(_count_unit, (reading, entry, schema.part(held[entry.output]), every_value))
        for record in records
        for entry in read_log_part(store, record.part, brief=True)
        if entry.rows and entry.output in held
    )
    for found in run_tasks(tasks, num_workers):
        yield from found


def _count_unit(reading: Reading, entry: Entry, schema: Schema, every_value: bool) -> Iterator[Statistics]:
    yield count_unit(reading, entry, schema, every_value=every_value)


def splits_by_reading(
    store: Store,
    manifest: Manifest,
    records: Sequence[LogRecord],
    schema: Schema,
    names: Collection[str],
    *,
    every_value: bool = False,
    num_workers: int = 1,
    max_bytes: int | None = None,
) -> dict[str, list[Statistics]] | None:
    """The statistics of the splits that rows of some logs are in.

    Args:
        names: of the splits that are asked for; units without a row of these are not read.
        max_bytes: of units that are read; None for any number.

    Returns:
        By split, those of its rows, unit by unit; None where more than `max_bytes` would be read.

    Raises:
        UsageError: no output holds some column as it was built.
    """
    counted: dict[str, list[Statistics]] = {name: [] for name in names}
    if not records:
        return counted
    reading = reading_of(store, manifest)
    held = _columns_by_output(reading, schema)
    units: list[tuple[Entry, Runs]] = []
    size = 0
    for unit in _units_of_splits(store, records, held, names):
        units.append(unit)
        size += unit[0].size
        if max_bytes is not None and size > max_bytes:
            return None
    tasks = (
        Task(_count_splits, (reading, entry, schema.part(held[entry.output]), runs, names, every_value))
        for entry, runs in units
    )
    for found in run_tasks(tasks, num_workers):
        for name, statistics in found:
            counted[name].append(statistics)
    return counted


def _units_of_splits(
    store: Store, records: Sequence[LogRecord], outputs: Collection[str], names: Collection[str]
) -> Iterator[tuple[Entry, Runs]]:
    """The units that have rows of some splits, with the split of each row."""
    for record in records:
        place = store.uri_of(f"logs/{record.part}.parquet")
        for entry in read_log_part(store, record.part):
            if entry.rows and entry.output in outputs:
                runs = runs_of_unit(entry.tally, entry.rows, place)
                if any(name in names for name, _ in runs):
                    yield entry, runs


def _count_splits(
    reading: Reading, entry: Entry, schema: Schema, runs: Runs, names: Collection[str], every_value: bool
) -> Iterator[tuple[str, Statistics]]:
    """By split, the statistics of a unit's rows that are in it."""
    own = sorted({name for name, _ in runs if name in names})
    labels = np.repeat([own.index(name) if name in names else -1 for name, _ in runs], [n for _, n in runs])
    counting = [RowStatistics(schema, every_value=every_value) for _ in own]
    at = 0
    for block in reading.open(entry).blocks(tuple(schema.all), max_bytes=reading.block_bytes):
        here = labels[at : at + len(block)]
        for number, one in enumerate(counting):
            rows = np.flatnonzero(here == number)
            if len(rows):
                one.update(Block(block.log_id, block.partition, 0, block.take(rows)))
        at += len(block)
    yield from ((name, one.close()) for name, one in zip(own, counting, strict=True))


def _columns_by_output(reading: Reading, schema: Schema) -> dict[str, list[str]]:
    """Which columns are read from which output: from as few as possible, each as it was written.

    Raises:
        UsageError: no output holds some column so.
    """
    left = dict.fromkeys(schema.columns)
    chosen: dict[str, list[str]] = {}
    for output in by_preference(reading.outputs):
        held = columns_held(reading, output)
        found = [name for name in left if name in held.columns]
        if found:
            chosen[output] = found
        left = {name: None for name in left if name not in found}
    if left:
        raise UsageError(
            f"{reading.store.uri}: no output has column {', '.join(left)} as it was built, and no build "
            "has counted all rows that are asked for; choose others with --columns, or build again into a "
            "new root"
        )
    return chosen
