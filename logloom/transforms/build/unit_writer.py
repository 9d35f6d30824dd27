"""Making the rows of a partition once, and passing them to every output's writer.

Here: `Writing`.
Elsewhere: which units are written, and publishing them (logloom.transforms.build.partition), the source of
rows (logloom.transforms.rows.row_stream, logloom.transforms.build.conversion), the formats' writers
(logloom.io).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from logloom.digests import RowsDigest
from logloom.errors import LogloomError, UsageError
from logloom.io.catalog.entries import Entry, FileEntry, files_in, files_of
from logloom.io.catalog.log_statistics import noted
from logloom.io.formats.capabilities import Portion
from logloom.io.formats.interface import UnitContext, Writer, closed
from logloom.io.formats.registry import format_named
from logloom.io.storage.disk import start_writing
from logloom.io.storage.step_times import each, step
from logloom.statistics.rows import RowStatistics
from logloom.transforms.build.job import Job, PartitionTask
from logloom.transforms.build.row_digests import digested
from logloom.transforms.build.unit_portions import open_portions

_WRITE_OUT = 16 << 20  # bytes of rows that are sent to the disk together
_SMALL = 64 << 10  # bytes of rows that are hashed sooner than a thread has begun to


class Writing:
    """Makes the rows of a partition once and feeds every output's writer, each in a scratch folder."""

    def __init__(
        self,
        job: Job,
        partition: PartitionTask,
        outputs: Iterable[str],
        *,
        keep_portions: bool = False,
        anew: bool = False,
        with_statistics: bool = False,
    ):
        self._job, self._partition, self._outputs = job, partition, tuple(outputs)
        self._keep_portions, self._anew = keep_portions, anew
        self._stack = contextlib.ExitStack()
        # Hashing leaves Python's lock to others, so that of much goes on beside writing.
        self._hasher = self._stack.enter_context(ThreadPoolExecutor(1))
        self._writers: dict[str, Writer] = {}
        self._digests = RowsDigest(job.schema)
        self._counting = RowStatistics(job.schema) if with_statistics else None
        self.folders: dict[str, pathlib.Path] = {}
        self.portions: dict[str, dict[str, Portion]] = {}
        self.rows = self._unwritten = 0
        self.tally: dict[str, Any] = {}
        self.statistics = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self) -> None:
        stream = self._job.rows_of(self._partition)
        count = None if self._counting is None else self._counting.update
        for block in each("make rows", stream):
            if len(block) and not self._writers:  # no rows, no files
                self._open_writers()
            is_small = block.nbytes < _SMALL
            hashed = None if is_small else self._hasher.submit(digested, self._digests, count, block)
            for output, writer in self._writers.items():
                with step(f"write {output}", block.nbytes), _of_rows():
                    writer.append(block)
            if hashed is None:
                digested(self._digests, count, block)
            else:
                hashed.result()
            self.rows += len(block)
            self._write_out(block.nbytes)
        self.tally = stream.account(self.rows, self._digests)
        if self._counting is not None and self.rows:
            self.statistics = noted(self._counting.close())

    def _write_out(self, nbytes: int) -> None:
        """Has the disk busy while the next rows are made, so that little is left to wait for when all are."""
        self._unwritten += nbytes
        if self._unwritten < _WRITE_OUT or self._anew or not self._keep_portions:  # else nothing is published
            return
        self._unwritten = 0
        portions = itertools.chain.from_iterable(own.values() for own in self.portions.values())
        folders = [*self.folders.values(), *(one.scratch for one in portions if one.scratch is not None)]
        self._hasher.submit(start_writing, [path for folder in folders for path in files_in(folder)])

    def _open_writers(self) -> None:
        job, log, span = self._job, self._partition.log, self._partition.span
        context = UnitContext(
            log.log_id,
            log.uris[0],
            span.name,
            log.split,
            job.period,
            span.start,
            span.stop,
            job.store.options,
        )
        for output in self._outputs:
            folder = self.folders[output] = self._stack.enter_context(job.store.scratch())
            if self._keep_portions:
                self.portions[output] = open_portions(job, output, log, span, self._stack, anew=self._anew)
            own = dataclasses.replace(context, portions=self.portions.get(output, {}))
            options = job.outputs[output]
            self._writers[output] = format_named(output).writer(folder, job.schema, options, own)

    def close(self, output: str) -> tuple[dict[str, Any], dict[str, str]]:
        """What the output's writer says, and the digests of its columns; after `run`, once."""
        if output not in self._writers:
            self.folders[output] = self._stack.enter_context(self._job.store.scratch())
            return {}, {}
        with step(f"write {output}"), _of_rows():
            return closed(self._writers[output], self._digests)

    def entry(self, blank: Entry) -> Entry:
        """The entry of a unit whose rows are all written."""
        unit, columns = self.close(blank.output)
        portions = self.portions.get(blank.output, {})
        own = files_of(self.folders[blank.output])
        return dataclasses.replace(
            blank,
            rows=self.rows,
            files=(*own, *itertools.chain(*map(_files_of_portion, portions.values()))),
            columns=columns,
            unit=unit,
            tally=self.tally,
            statistics=self.statistics,
        )


@contextlib.contextmanager
def _of_rows() -> Iterator[None]:
    """What a writer can't hold is a matter of a log's rows, not of the recipe: plans have checked that."""
    try:
        yield
    except UsageError as error:
        raise LogloomError(str(error)) from error.__cause__ or error


def _files_of_portion(portion: Portion) -> list[FileEntry]:
    if portion.finished is not None:
        files = portion.finished.files
    else:
        assert portion.scratch is not None
        files = files_of(portion.scratch)
    return [dataclasses.replace(file, portion=portion.identity) for file in files]
