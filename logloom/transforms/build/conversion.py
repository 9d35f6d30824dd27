"""Conversions as builds: a job whose rows come from parts of a dataset.

Here: `ConvertJob`, the rows of a part, and the record of a converted log.
Elsewhere: the source (logloom.io.rows.sources), planning (logloom.pipelines.convert.plan), the steps that
conversions share with builds from logs (partition, commit, logloom.transforms.beam.build).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Block, take
from logloom.caching import cached_property
from logloom.digests import RowsDigest, digest_of
from logloom.errors import DatasetError, ReadBackError, UsageError
from logloom.io.catalog.entries import Entry, write_log_part
from logloom.io.catalog.log_statistics import of_units, write_statistics
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.logs.interface import Refusal
from logloom.io.rows.log_ranges import DAMAGE, FILTERED, LogRange
from logloom.io.rows.sources import RowSource
from logloom.query.comparison import Categories
from logloom.query.where import SEMANTICS as FILTER_SEMANTICS
from logloom.query.where import Filter, parse
from logloom.schema import STRING, TIMESTAMP, Schema
from logloom.text import counted
from logloom.transforms.build import memory_budget
from logloom.transforms.build.job import Job, LogTask, PartitionRows, PartitionTask
from logloom.transforms.build.partition_results import MAX_REASONS, Failure
from logloom.transforms.rows.accounts import Tally
from logloom.transforms.rows.gaps import filtered_gaps
from logloom.transforms.rows.row_splits import joined_runs, rows_by_split
from logloom.values import dataclass

SEMANTICS = 1  # counts up when a source's rows would become others
ROW_KEYS = {"log_id": STRING, "timestamp": TIMESTAMP}  # that filters may name beside columns


@dataclass(frozen=True, kw_only=True)
class ConvertTask(LogTask):
    """A log to convert.

    Attributes:
        record: as the source has it.
    """

    record: LogRecord


@dataclass(frozen=True, kw_only=True)
class ConvertJob(Job):
    """A conversion, as its workers know it.

    Attributes:
        columns: names of the source's columns to convert, without ages and availabilities.
        on_error: "fail", or "skip" to leave out parts of the source that are damaged.
        where: a filter that rows must pass, of single rows; "" for all rows.
    """

    source_error = DatasetError

    source: RowSource
    columns: tuple[str, ...]
    on_error: str = "fail"
    where: str = ""

    @cached_property
    def schema(self) -> Schema:
        """The part of the source's schema that is converted."""
        return self.source.schema.part(self.columns)

    @property
    def period(self) -> int | None:
        """The source's."""
        return self.source.period

    @cached_property
    def plan_identity(self) -> str:
        """Digest of what all rows depend on beside the source's own content."""
        filtered = [FILTER_SEMANTICS, self.where] if self.where else []
        return digest_of(["convert", SEMANTICS, self.schema.to_json(), self.period, *filtered])

    @property
    def failure_kinds(self) -> Mapping[type[Exception], str]:
        different = "log" if self.on_error == "skip" else "readback"
        return {ReadBackError: different, DatasetError: "log", UsageError: "recipe"}

    @property
    def left_out(self) -> Sequence[str]:
        return ("log", "worker") if self.on_error == "skip" else ()

    def rows_of(self, partition: PartitionTask) -> PartitionRows:
        """See `Job.rows_of`; as the source's reader gives them."""
        assert isinstance(partition.span, LogRange)
        return _ConvertedRows(self, partition.log.log_id, partition.span)

    def _place(self, log: LogTask, part: LogRange) -> list[Any]:
        return [log.log_id, part.identity, part.name, part.start, part.stop]


class _ConvertedRows:
    """The blocks of a part of a source."""

    def __init__(self, job: ConvertJob, log_id: str, part: LogRange):
        self._job, self._log_id, self._part = job, log_id, part
        types = {**ROW_KEYS, **job.source.schema.all}
        self._filter = parse(job.where).bound(types) if job.where else None
        # Of a filtered part: what was read, and which rows passed.
        self._read = RowsDigest(job.schema)
        self._passed: list[NDArray[np.bool_]] = []
        self._times: list[NDArray[np.int64]] = []

    def __iter__(self) -> Iterator[Block]:
        job, part = self._job, self._part
        if not part.rows:  # a unit without rows has no files to open
            return
        rows, names = 0, tuple(job.schema.all)
        if self._filter is not None:
            names = tuple(dict.fromkeys((*names, *(n for n in self._filter.columns if n not in ROW_KEYS))))
        with memory_budget.ROWS.reserved(3 * job.block_bytes):
            for block in job.source.scan_part(part, names, job.block_bytes):
                if self._filter is not None:
                    block = self._passing(self._filter, block)
                    if not len(block):
                        continue
                # A format keeps to the partition's name that the plan knows, whatever the reader says.
                yield replace(block, partition=part.name, first_row=rows)
                rows += len(block)

    def _passing(self, found: Filter, block: Block) -> Block:
        """The rows of a block that pass, with the columns that are converted."""
        self._read.update(block)
        log_id = Categories.of([block.log_id], np.zeros(len(block), np.int64))
        passed = found.mask({**block.columns, "log_id": log_id}, len(block))
        self._passed.append(passed)
        self._times.append(block.timestamp)
        columns = {name: block.columns[name] for name in ("timestamp", *self._job.schema.all)}
        return replace(block, columns={name: take(values, passed) for name, values in columns.items()})

    def refused(self) -> Mapping[str, Sequence[Refusal]]:
        """See `PartitionRows`; there are no messages."""
        return {}

    def account(self, rows: int, digests: RowsDigest) -> dict[str, Any]:
        """See `PartitionRows.account`; the tally is the source's."""
        part, place = self._part, self._job.recipe["convert"]["from"]
        num_read = rows if self._filter is None else sum(map(len, self._passed))
        if num_read != part.rows:
            raise ReadBackError(f"{place}: {counted(num_read, 'row')}, there were {part.rows} before")
        digests = digests if self._filter is None else self._read
        found = digests.hexdigests() if num_read else {}
        different = [name for name, digest in found.items() if part.digests.get(name, digest) != digest]
        if different:
            raise ReadBackError(
                f"{place}: column {', '.join(different)} reads otherwise than it was written; "
                "`logloom verify` shows where"
            )
        return dict(part.tally) if self._filter is None else self._filtered_tally(rows)

    def _filtered_tally(self, rows: int) -> dict[str, Any]:
        """The source's tally with the rows that didn't pass."""
        part = self._part
        before = Tally.from_json(part.tally) if part.tally else Tally(part.start, part.stop, part.rows)
        passed = np.concatenate([np.empty(0, np.bool_), *self._passed])
        times = np.concatenate([np.empty(0, np.int64), *self._times])
        names, counts = [name for name, _ in before.splits], [count for _, count in before.splits]
        kept = np.repeat(np.arange(len(names)), counts)[passed[: sum(counts)]].tolist()
        dropped = {**before.dropped, FILTERED: before.dropped.get(FILTERED, 0) + part.rows - rows}
        splits = joined_runs((names[number], 1) for number in kept)
        gaps = filtered_gaps(before.gaps, times, passed, FILTERED, self._job.period)
        return replace(before, rows=rows, dropped=dropped, splits=splits, gaps=gaps).to_json()


def converted_record(
    job: ConvertJob, log: LogTask, entries: Sequence[Entry], failures: Sequence[Failure]
) -> LogRecord:
    """The record of a log, without the parts of which `failures` tell."""
    assert isinstance(log, ConvertTask)
    record = replace(
        log.record,
        key=log.key,
        part=write_log_part(job.store, entries),
        statistics=write_statistics(job.store, log.log_id, of_units(job.store, entries)),
        units=len(entries),
        rows=sum(entry.rows for entry in entries),
        verified=job.settings.read_share,
    )
    if not (failures or job.where):
        return record
    tallies = [
        Tally.from_json(entry.tally)
        for entry in entries
        if entry.output == entries[0].output and entry.tally  # others' datasets have none
    ]
    splits = rows_by_split(run for tally in tallies for run in tally.splits) if record.splits else {}
    dropped, lost = log.record.dropped, log.record.rows - record.rows
    if job.where:
        filtered = sum(tally.dropped[FILTERED] for tally in tallies)
        lost -= filtered - dropped.get(FILTERED, 0)
        dropped = {**dropped, FILTERED: filtered}
    record = replace(record, splits=splits, dropped=dropped)
    if not failures:
        return record
    # First what is lost here, so that it isn't cut off behind what the source's build refused.
    reasons = (*(f"partition {one.partition}: {one.message}" for one in failures), *log.record.reasons)
    return replace(
        record,
        # Another key than that of the whole log, so that each conversion tries these parts again.
        key=digest_of([record.key, DAMAGE]),
        status=LogStatus.salvaged if record.rows else LogStatus.skipped,
        dropped={**dropped, DAMAGE: dropped.get(DAMAGE, 0) + lost},
        reasons=reasons[:MAX_REASONS],
    )
