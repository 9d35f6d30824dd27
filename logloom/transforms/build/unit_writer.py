"""Making the rows of a partition once, and passing them to every output's writer.

Here: `Writing`; `digested`, which digests rows as they pass, written or read; portions of units, which
survive a change to the rest of the recipe, such as a table's column groups: their identity, finding finished
ones, publishing new ones.
Elsewhere: which units are written, and publishing them (logloom.transforms.build.partition), the source of
rows (logloom.transforms.rows.row_stream, logloom.transforms.build.conversion), the formats' writers
(logloom.io), portions in formats (logloom.io.formats.capabilities).
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Self

from logloom.blocks import Block
from logloom.digests import RowsDigest, digest_of
from logloom.errors import LogloomError, UsageError
from logloom.io.catalog.entries import Entry, files_in, files_of, publish_unit, unit_folder
from logloom.io.catalog.log_statistics import noted
from logloom.io.formats.capabilities import Portion, PortionedFormat
from logloom.io.formats.interface import UnitContext, Writer, closed
from logloom.io.formats.registry import format_named
from logloom.io.logs.interface import Refusal
from logloom.io.rows.log_ranges import LogRange
from logloom.io.storage.disk import start_writing
from logloom.io.storage.step_times import each, step
from logloom.query.where import parse
from logloom.schema import TIMESTAMP
from logloom.statistics.rows import RowStatistics
from logloom.text import counted
from logloom.transforms.build.job import Job, LogJob, LogTask, PartitionTask, place_of, plain
from logloom.transforms.build.journal import Journal
from logloom.transforms.build.partition_progress import PartitionProgress
from logloom.transforms.build.reuse import taken_unit
from logloom.transforms.rows.plan.row_plan import RowPlan, Span

_WRITE_OUT = 16 << 20  # bytes of rows that are sent to the disk together
_SMALL = 64 << 10  # bytes of rows that are hashed sooner than a thread has begun to


def digested(digests: RowsDigest, count: Callable[[Block], object] | None, block: Block) -> Block:
    """Add a block to digests of columns and, where asked, to statistics; return the block."""
    with step("hash columns", block.nbytes):
        digests.update(block)
    if count is not None:
        with step("count statistics", block.nbytes):
            count(block)
    return block


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
        progress: PartitionProgress | None = None,
    ):
        """
        Args:
            progress: notes how far the rows are; None notes nothing.
        """
        self._job, self._partition, self._outputs = job, partition, tuple(outputs)
        self._keep_portions, self._anew = keep_portions, anew
        self._stack = contextlib.ExitStack()
        # Hashing leaves Python's lock to others, so that of much goes on beside writing.
        self._hasher = self._stack.enter_context(ThreadPoolExecutor(1))
        self._progress = progress or PartitionProgress(replace(job, journal=Journal()), partition)
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
        for block in self._progress.making(each("make rows", stream)):
            if len(block) and not self._writers:  # no rows, no files
                self._open_writers()
            is_small = block.nbytes < _SMALL
            hashed = None if is_small else self._hasher.submit(digested, self._digests, count, block)
            with self._progress.writing():
                for output, writer in self._writers.items():
                    with step(f"write {output}", block.nbytes), _of_rows(stream.refused):
                        writer.append(block)
            if hashed is None:
                digested(self._digests, count, block)
            else:
                hashed.result()
            self.rows += len(block)
            self._write_out(block.nbytes)
            self._progress.note(self.rows, block)
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
            own = replace(context, portions=self.portions.get(output, {}))
            options = job.outputs[output]
            self._writers[output] = format_named(output).writer(folder, job.schema, options, own)

    def close(self, output: str) -> tuple[dict[str, Any], dict[str, str]]:
        """What the output's writer says, and the digests of its columns; after `run`, once."""
        if output not in self._writers:
            self.folders[output] = self._stack.enter_context(self._job.store.scratch())
            return {}, {}
        with step(f"write {output}"), self._progress.writing(), _of_rows():
            return closed(self._writers[output], self._digests)

    def entry(self, blank: Entry) -> Entry:
        """The entry of a unit whose rows are all written."""
        unit, columns = self.close(blank.output)
        files = [*files_of(self.folders[blank.output])]
        for portion in self.portions.get(blank.output, {}).values():
            folder, finished = portion.scratch, portion.finished
            own = finished.files if finished is not None else files_of(folder) if folder is not None else ()
            files += [replace(file, portion=portion.identity) for file in own]
        return replace(
            blank,
            rows=self.rows,
            files=tuple(files),
            columns=columns,
            unit=unit,
            tally=self.tally,
            statistics=self.statistics,
        )


@contextlib.contextmanager
def _of_rows(refused: Callable[[], Mapping[str, Sequence[Refusal]]] = dict) -> Iterator[None]:
    """What a writer can't hold is a matter of a log's rows, not of the recipe: plans have checked that.

    Args:
        refused: returns the messages without which the rows were made, by column.
    """
    try:
        yield
    except UsageError as error:
        why = str(error)
        for name, lost in refused().items():
            if lost and name in why.split():  # that the column is missing may be their fault
                why += f". {counted(len(lost), 'message')} of {lost[0].topic} refused: {lost[0].reason}"
        raise LogloomError(why) from error.__cause__ or error


# --- portions --------------------------------------------------------------------------------------------


def plan_part(plan: RowPlan, names: Iterable[str]) -> RowPlan:
    """What the values of some columns depend on: these, what they derive from, and what chooses rows.

    Args:
        names: columns, ages and availabilities among them.
    """
    types = {**plan.schema.all, "timestamp": TIMESTAMP}
    filtered = parse(plan.where).bound(types).columns if plan.where else ()
    inputs = {column.name: column.inputs for column in plan.derived}
    inputs |= {column.name: (column.at,) for column in plan.transforms if column.at}
    wanted: set[str] = set()
    waiting = [*names, *plan.require, *filtered]
    while waiting:
        name = waiting.pop()
        base, _, last = name.rpartition(".")
        column = base if last in ("age", "available") else name
        if column not in wanted:
            wanted.add(column)
            waiting += inputs.get(column, ())
    return replace(
        plan,
        columns=tuple(column for column in plan.columns if column.name in wanted),
        derived=tuple(column for column in plan.derived if column.name in wanted),
        transforms=tuple(column for column in plan.transforms if column.name in wanted),
        labels=tuple(column for column in plan.labels if column.name in wanted),
        order=tuple(name for name in plan.order if name in wanted),
    )


def portion_identities(job: Job, output: str, log: LogTask, span: Span | LogRange) -> dict[str, str]:
    """The names of the portions of one partition's unit of one output.

    There are none where the format has no such, nor in conversions: there is no recipe to change.
    """
    form = format_named(output)
    if not (isinstance(form, PortionedFormat) and isinstance(job, LogJob) and isinstance(span, Span)):
        return {}
    reading = job.reading_identity
    writing = [output, form.semantics, job.references.get(output, "")]
    found = {}
    for name, (columns, options) in form.portions(job.outputs[output], job.schema).items():
        part = plan_part(job.plan, columns)
        where = place_of(part, log, span, job.open_options)
        inputs = ["portion", name, reading, plain(part), writing, options, where]
        found[name] = digest_of(inputs)[:32]
    return found


def open_portions(
    job: Job,
    output: str,
    log: LogTask,
    span: Span | LogRange,
    scratch: contextlib.ExitStack,
    *,
    anew: bool = False,
) -> dict[str, Portion]:
    """The portions of a unit that is to be written: finished ones, and folders for the others.

    Args:
        anew: write those that are finished, too.
    """
    opened = {}
    unit = job.blank_entry(output, log, span)
    for name, identity in portion_identities(job, output, log, span).items():
        found = None if anew else taken_unit(job, replace(unit, identity=identity))
        folder = scratch.enter_context(job.store.scratch()) if found is None else None
        opened[name] = Portion(identity, job.store.uri_of(unit_folder(output, identity)), folder, found)
    return opened


def publish_portion(job: Job, unit: Entry, name: str, portion: Portion) -> None:
    """Publishes a portion, unless it was there before the unit of which `unit` is the entry."""
    if portion.scratch is None:
        return
    files = tuple(replace(file, portion="") for file in unit.files if file.portion == portion.identity)
    own = {"identity": portion.identity, "files": files, "unit": unit.unit["portions"][name]}
    entry = replace(unit, **own, columns={}, tally={}, statistics="")  # what rows hold, the unit says
    publish_unit(job.store, portion.scratch, entry)
