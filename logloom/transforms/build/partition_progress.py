"""Progress within a partition: rows, and times of making and writing them.

Elsewhere: the journal (logloom.transforms.build.journal), what people see (logloom.pipelines.build.progress).
"""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Iterable, Iterator

from logloom.blocks import Block
from logloom.schema import MAX_TIME, MIN_TIME
from logloom.transforms.build.job import Job, LogJob, PartitionTask, opened
from logloom.transforms.build.journal import BUILDING, Note
from logloom.transforms.rows.plan.row_plan import Span

_NOTE_EVERY = 0.5  # seconds
_DELAYS = pathlib.Path("/proc/thread-self/schedstat")  # Linux: ns on a processor, and ns waiting for one


def _needed() -> float:
    """Seconds for which this process had a processor, and its thread waited for one that others had."""
    delayed = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        delayed = int(_DELAYS.read_bytes().split()[1])
    return time.process_time() + delayed / 1e9


class PartitionProgress:
    """What a partition took since the last note."""

    def __init__(self, job: Job, partition: PartitionTask):
        self._job, self._partition = job, partition
        self._began, self._worked = time.perf_counter(), _needed()
        self._made = self._made_cpu = self._wrote = self._wrote_cpu = 0.0
        self._rows = 0
        self._part = 0.0  # that was noted

    def making(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks; the time until each comes is that of reading and decoding."""
        coming = iter(blocks)
        while True:
            began, worked = time.perf_counter(), _needed()
            block = next(coming, None)
            self._made += time.perf_counter() - began
            self._made_cpu += _needed() - worked
            if block is None:
                return
            yield block

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """The time of the block of code is that of encoding and writing."""
        began, worked = time.perf_counter(), _needed()
        try:
            yield
        finally:
            self._wrote += time.perf_counter() - began
            self._wrote_cpu += _needed() - worked

    def note(self, rows: int, block: Block) -> None:
        """Note what is done so far, unless that was noted just now.

        Args:
            rows: of the partition so far, of which `block` has the last.
        """
        if self._job.journal.folder and time.perf_counter() - self._began >= _NOTE_EVERY and len(block):
            part = max(self._part, min(1.0, self._share(int(block.timestamp[-1]))))
            self._write(rows, part - self._part, done=False)
            self._part = part

    def close(self, rows: int, *, found: bool) -> None:
        """Note that all is done, and published.

        Args:
            found: it was there already.
        """
        self._write(rows, self._part, done=True, found=found)

    def _write(self, rows: int, part: float, *, done: bool, found: bool = False) -> None:
        now, worked = time.perf_counter(), _needed()
        note = Note(
            BUILDING,
            self._partition.log.log_id,
            done,
            seconds=now - self._began,
            rows=rows - self._rows,
            found=found,
            cpu=worked - self._worked,
            part=part,
            made=self._made,
            made_cpu=self._made_cpu,
            wrote=self._wrote,
            wrote_cpu=self._wrote_cpu,
        )
        self._job.journal.write(note)
        self._began, self._worked, self._rows = now, worked, rows
        self._made = self._made_cpu = self._wrote = self._wrote_cpu = 0.0

    def _share(self, time_ns: int) -> float:
        """The share of the partition up to a row."""
        span = self._partition.span
        if not (isinstance(span, Span) and isinstance(self._job, LogJob)):
            return 0.0
        start, stop = span.start, span.stop
        if start == MIN_TIME or stop == MAX_TIME:
            summary = opened(self._job, self._partition.log).summary
            start, stop = max(start, summary.first), min(stop, summary.last + 1)
        return (time_ns - start) / max(1, stop - start)
