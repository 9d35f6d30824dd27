"""Verification of a committed version against its manifest and its logs.

Here: reading every unit and every assembled dataset back through its own reader, and the view.
Elsewhere: checks without payload (claims), deriving rows again (against_logs).
Needs no Beam: runs the same functions as a build, in a pool of processes.
"""

from __future__ import annotations

import array
import itertools
import math
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.cpus import available_cpus
from logloom.errors import DatasetError
from logloom.interpreter import process_pool
from logloom.io.catalog.artifacts import STATISTICS, damaged_files, files_named
from logloom.io.catalog.commit_times import time_problems
from logloom.io.catalog.entries import Entry, FileEntry, read_log_part
from logloom.io.catalog.intervals import problems_of
from logloom.io.catalog.manifest import Assembled, Manifest, open_root, read_assembled
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.catalog.removal_notes import are_in, key_of
from logloom.io.catalog.tags import tag_problems
from logloom.io.catalog.tombstones import Purged
from logloom.io.catalog.version_files import view_folder
from logloom.io.storage.filesystems import explained, with_access
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead, in_order
from logloom.pipelines.verify.against_logs import check_spans, derive_again, job_again, task_of
from logloom.pipelines.verify.claims import Claims, Finding, manifest_state, whole_logs
from logloom.pipelines.view import view_files
from logloom.statistics.rows import RowStatistics
from logloom.transforms.build.assembly.files import assembled_differences
from logloom.transforms.build.job import Committed, LogJob
from logloom.transforms.build.read_back import Reading, differences, draw_of, is_sampled
from logloom.transforms.build.statistics_checks import (
    columns_held,
    found_entries,
    statistics_sum_problem,
    unit_statistics_problem,
    unit_statistics_problems,
)
from logloom.transforms.build.unit_checks import assembled_problems, check_file, unit_problems
from logloom.values import dataclass

_LEAST_LOGS = 64  # that a sample looks at
_NAMED = 10  # logs in a report
_ALONE_S = 1.0  # seconds of work that no pool of processes is started for


@dataclass(frozen=True)
class Report:
    """What a verification saw.

    Attributes:
        units, rows, bytes: that were read back.
        purged: logs of the version that were erased on purpose, of which nothing is checked.
        kept: with `against_logs`, logs that keep their rows though they vanished or were cut: compared with
            the manifest only.
        kept_logs: the first of these.
        findings: what is wrong; empty proves the version, but for what was purged.
        manifest: "checked" by its digest, or why not.
        verified, trusted: what the build that committed the version read back (see `Manifest`).
        committed_by: software of that build.
        made_by: {"software", "units"} each: which software made how many units.
    """

    version: int
    units: int
    rows: int
    bytes: int
    against_logs: bool
    findings: tuple[Finding, ...]
    manifest: str
    verified: str
    trusted: Mapping[str, int]
    committed_by: Mapping[str, str]
    made_by: tuple[Mapping[str, Any], ...]
    purged: int = 0
    kept: int = 0
    kept_logs: tuple[str, ...] = ()

    @property
    def is_proven(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


@dataclass(frozen=True)
class Task:
    """A piece of work for one process, and its arguments."""

    check: Callable[..., Iterable[Any]]
    arguments: tuple[Any, ...]


def _run_task(task: Task) -> list[Any]:
    return list(task.check(*task.arguments))


def verify(
    root: str,
    version: int | str = "latest",
    *,
    sample: str = "all",
    against_logs: bool = False,
    num_workers: int | None = None,
    py_files: Sequence[str] = (),
    allow_derive: Sequence[str] = (),
    logs: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Reads a version back.

    Args:
        root: URI of the dataset's root.
        version: a number, a tag or "latest".
        sample: "all", or "sample:<share>" of the units, at least one of each output. Of more than 64 logs
            only some are then checked, and neither the view, nor other logs' records, nor sums of statistics.
        against_logs: also derive every row from the logs again and compare.
        num_workers: processes; None is one for each core.
        py_files: Python files with functions that columns are derived by.
        allow_derive: modules and packages that columns may be derived by; importing them runs their code.
        logs: URIs with the credentials that reading them takes, which no version keeps.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        on_progress: called with how many pieces are done, of how many.

    Returns:
        What was looked at, and each difference that was found.

    Raises:
        UsageError: there is no such version.
        DatasetError: the manifest can't be read, or isn't what its digest says.
        LogReadError: `against_logs`, and the logs can't be opened.

    Examples:
        >>> report = verify("demo/dataset", num_workers=1)
        >>> report.is_proven, list(report.findings)
        (True, [])
    """
    store, manifest = open_root(Store.at(root, storage_options), version)
    broken: list[Finding] = []
    if len(sampled_logs(manifest.version, len(manifest.logs), sample)[0]) == len(manifest.logs):
        manifest, broken = whole_logs(manifest)
    access = with_access(store.options, logs)
    job = None
    if against_logs:
        job = job_again(store, manifest, py_files, allow_derive=allow_derive, access=access)
    state, findings = manifest_state(store, manifest.version)
    checking = _Checking(store, manifest, sample, job)
    checking.lost += broken
    for done, found in enumerate(run_tasks(checking.tasks(), num_workers or available_cpus()), 1):
        findings += found
        on_progress(done, max(done, checking.num_tasks))
    return checking.report(findings, state)


class _Checking:
    """A verification on its way, log after log: what was done of a log is forgotten.

    Attributes:
        num_tasks: how many there are, as far as is known.
        units, rows, bytes: that are read back.
        assembled: outputs that weren't erased.
        purged: logs that were.
        kept, kept_logs: see `Report`.
        made_by: how many units which software made, of the logs that were looked at.
        lost: pages and parts of logs that can't be read.
        findings: what is wrong else, by what parts of logs say, by the view, and of tags and intervals.
    """

    def __init__(self, store: Store, manifest: Manifest, sample: str, job: LogJob | None):
        """
        Args:
            job: to derive rows again with.
        """
        self._store, self._manifest, self._job = store, manifest, job
        self._logs, self._sample = sampled_logs(manifest.version, len(manifest.logs), sample)
        self._has_every_log = len(self._logs) == len(manifest.logs)
        self._purged = Purged(store)
        self.assembled = [part for part in manifest.assembled if part.folder not in self._purged.folders]
        self.num_tasks = len(self.assembled)
        self.units = self.rows = self.bytes = self.purged = self.kept = 0
        self.kept_logs: list[str] = []
        self._read: set[str] = set()  # outputs with a sampled unit
        self._nearest: dict[str, tuple[float, LogRecord, Entry]] = {}  # to the draw, by output
        self.made_by: Counter[tuple[tuple[str, str], ...]] = Counter()
        self.lost: list[Finding] = []
        self.findings = problems_beside(store, manifest.version)

    def tasks(self) -> Iterator[Task]:
        """What is to be done in processes; what needs no payload is checked meanwhile."""
        store, manifest = self._store, self._manifest
        reading = reading_of(store, manifest)
        claims = Claims(store, manifest)
        for record, units in read_parts(store, self._left(manifest.logs.take(self._logs))):
            self.findings += claims.check(record, None if isinstance(units, Finding) else units)
            if self._job is not None and record.status == LogStatus.kept:
                self.kept += 1
                self.kept_logs += [record.log_id] * (len(self.kept_logs) < _NAMED)
            if isinstance(units, Finding):
                self.lost.append(units)
                yield from self._check_log(reading, record, None)
                continue
            if self._job is not None:
                self.findings += check_spans(self._job, record, units)
            self.made_by.update(tuple(sorted(entry.software.items())) for entry in units)
            chosen = self._sampled(record, units)
            tasks = [Task(_check_unit, (reading, entry)) for entry in chosen]
            if self._job is not None and record.status in (LogStatus.whole, LogStatus.salvaged):
                tasks += _derive_tasks(self._job, record, chosen)
            self._count(chosen, tasks)
            # Their sum takes a look at each unit of the log, of which the sample of many logs wants a few.
            yield from self._check_log(reading, record, units if self._has_every_log else chosen)
            yield from tasks
        yield from self._of_outputs_without_a_draw(reading)
        yield from (Task(_check_assembled, (reading, part)) for part in self.assembled)
        self.findings += claims.check_all(is_lost=bool(self.lost))
        if not (self.lost or self.purged) and self._has_every_log:
            self.findings += check_view(store, manifest)

    def _sampled(self, record: LogRecord, units: Sequence[Entry]) -> list[Entry]:
        """Return the units of a log to read back; remember the nearest one of each output without any."""
        chosen = [entry for entry in units if is_sampled(self._sample, entry.identity)]
        self._read |= {entry.output for entry in chosen if entry.rows}
        for entry in units:
            if entry.rows and entry.output not in self._read:
                draw = (draw_of(entry.identity), record, entry)
                self._nearest[entry.output] = min(
                    self._nearest.get(entry.output, draw), draw, key=operator.itemgetter(0)
                )
        return chosen

    def _of_outputs_without_a_draw(self, reading: Reading) -> Iterator[Task]:
        """A sample has at least one unit of each output."""
        for output, (_, record, entry) in sorted(self._nearest.items()):
            if output not in self._read:
                tasks = [Task(_check_unit, (reading, entry))]
                if self._job is not None and record.status in (LogStatus.whole, LogStatus.salvaged):
                    tasks += _derive_tasks(self._job, record, [entry])
                self._count([entry], tasks)
                yield from tasks

    def _count(self, chosen: Sequence[Entry], tasks: Sequence[Task]) -> None:
        self.units += len(chosen)
        self.rows += sum(entry.rows for entry in chosen)
        self.bytes += sum(entry.size for entry in chosen)
        self.num_tasks += len(tasks)

    def report(self, findings: Iterable[Finding], state: str) -> Report:
        """What was seen, once all tasks are done.

        Args:
            findings: of the tasks.
            state: of the manifest.
        """
        manifest = self._manifest
        return Report(
            manifest.version,
            self.units,
            self.rows,
            self.bytes + sum(part.size for part in self.assembled),
            self._job is not None,
            (*findings, *self.lost, *self.findings),
            manifest=state,
            verified=manifest.verified,
            trusted=dict(manifest.trusted),
            committed_by=dict(manifest.software),
            made_by=tuple(
                {"software": dict(made_by), "units": count} for made_by, count in sorted(self.made_by.items())
            ),
            purged=self.purged,
            kept=self.kept,
            kept_logs=tuple(self.kept_logs),
        )

    def _left(self, records: Iterable[LogRecord]) -> Iterator[LogRecord]:
        """The records of logs that weren't erased."""
        for record in records:
            if record.part in self._purged.parts:
                self.purged += 1
            else:
                yield record

    def _check_log(
        self, reading: Reading, record: LogRecord, units: Sequence[Entry] | None
    ) -> Iterator[Task]:
        """Check the files that a log's record names, and statistics of its units where these are known."""
        is_erased = self._purged.has_files_of(record.log_id, record.content_id, record.part)
        if any(files_named(record)) and not is_erased:
            are_all = units is not None and self._has_every_log
            is_converted = "convert" in self._manifest.recipe
            yield Task(_check_log_files, (reading.store, record, tuple(units or ()), are_all, is_converted))
            self.num_tasks += 1


def problems_beside(store: Store, number: int) -> list[Finding]:
    """What is wrong with what no manifest names: tags, a version's times, and intervals saved with it."""
    texts = (*tag_problems(store), *time_problems(store, number), *problems_of(store, number))
    return [Finding("", "", text) for text in texts]


def sampled_logs(version: int, count: int, sample: str) -> tuple[Sequence[int], str]:
    """The positions of the logs of which units are read back, and the share of their units.

    Of few logs all are looked at, and a share of their units; of many a share, so that finding units takes no
    longer in a version of more logs. The same ones in every attempt.

    Args:
        count: of the version's logs.
    """
    if sample == "all" or count <= _LEAST_LOGS:
        return range(count), sample
    share = float(sample.removeprefix("sample:"))
    of_logs = max(share, _LEAST_LOGS / count)
    chosen = np.random.default_rng(version).choice(count, math.ceil(of_logs * count), replace=False)
    return np.sort(chosen).tolist(), f"sample:{share / of_logs}"


def read_parts(
    store: Store, logs: Iterable[LogRecord]
) -> Iterator[tuple[LogRecord, Sequence[Entry] | Finding]]:
    """Each log with its units, or with what is wrong with its part; some logs are read ahead."""

    def read(record: LogRecord) -> tuple[LogRecord, Sequence[Entry] | Finding]:
        try:
            return record, list(read_log_part(store, record.part)) if record.part else []
        except DatasetError as error:
            return record, Finding(record.log_id, "", str(error))

    return ahead(read, logs)


def run_tasks(tasks: Iterable[Task], num_workers: int) -> Iterator[list[Any]]:
    """What each task finds, in order; few tasks are taken ahead.

    Those of the first second are done here, for a pool of processes takes longer to start; then there is one.
    """
    coming = iter(tasks)
    began = time.monotonic()
    while num_workers == 1 or time.monotonic() - began < _ALONE_S:
        task = next(coming, None)
        if task is None:
            return
        yield _run_task(task)
    first = list(itertools.islice(coming, 2))
    if len(first) < 2:
        yield from map(_run_task, first)
        return
    with process_pool(num_workers) as pool:
        yield from in_order(pool, _run_task, itertools.chain(first, coming), 4 * num_workers)


def _derive_tasks(job: LogJob, record: LogRecord, units: Iterable[Entry]) -> Iterator[Task]:
    partitions: dict[str, list[Entry]] = {}
    for entry in units:
        partitions.setdefault(entry.partition, []).append(entry)
    for own in partitions.values():
        yield Task(derive_again, (job, task_of(record), tuple(own)))


# --- against the manifest -------------------------------------------------------------------------------


def reading_of(store: Store, manifest: Manifest) -> Reading:
    """What reading the units of a committed version takes."""
    return Reading.of(Committed.of(store, manifest))


def _check_unit(reading: Reading, entry: Entry) -> Iterator[Finding]:
    problems = list(unit_problems(reading.store, entry))
    if not problems and entry.rows:
        held = columns_held(reading, entry.output)
        counting = RowStatistics(held)
        problems = list(differences(reading, entry, counting.update if held.columns else None))
        if held.columns and not problems:
            problems = list(unit_statistics_problems(reading.store, entry, counting.close()))
    for problem in problems:
        yield Finding(entry.log_id, entry.partition, problem)


def _check_log_files(
    store: Store, record: LogRecord, units: Sequence[Entry], are_all: bool, is_converted: bool
) -> Iterator[Finding]:
    for entry in units:
        if problem := unit_statistics_problem(store, entry):
            yield Finding(record.log_id, entry.partition, problem)
    damaged = list(damaged_files(store, record, is_converted=is_converted))
    for one in damaged:
        yield Finding(record.log_id, "", one.problem)
    if are_all and record.rows and not any(one.kind == STATISTICS for one in damaged):
        problem = statistics_sum_problem(store, record, found_entries(store, units))
        if problem:
            yield Finding(record.log_id, "", problem)


def _check_assembled(reading: Reading, part: Assembled) -> Iterator[Finding]:
    store = reading.store
    problems = list(assembled_problems(store, part))
    if not problems:
        problems = list(assembled_differences(store, part.identity, read_assembled(store, part)))
    for problem in problems:
        yield Finding("", part.split, problem)


def check_view(store: Store, manifest: Manifest) -> Iterator[Finding]:
    """Whether the view on a local disk shows the version's files and nothing else."""
    folder = store.path_of(view_folder(manifest.version)) if store.local else None
    if folder is None or not store.exists(folder.name):
        return
    shown = array.array("Q")  # 8 bytes stand for a name: a view may have millions
    there = 0
    try:
        for file in view_files(store, manifest):
            shown.append(key_of(file.name))
            path, stored = store.path_of(f"{folder.name}/{file.name}"), store.path_of(file.stored)
            with explained(str(path)):
                is_there = path.is_file()
                is_linked = is_there and stored.exists() and path.samefile(stored)
            if not is_there:
                yield Finding("", "", f"{path}: missing from the view")
                continue
            there += 1
            if not is_linked:
                entry = FileEntry(file.name, file.size, file.digest)
                for problem in check_file(store, f"{folder.name}/{file.name}", entry):
                    yield Finding("", "", problem)
    except DatasetError as error:
        yield Finding("", "", f"{folder}: can't be checked: {error}")
        return
    with explained(str(folder)):
        has_more = sum(path.is_file() for path in folder.rglob("*")) > there
        found = sorted(path for path in folder.rglob("*") if path.is_file()) if has_more else []
    if found:
        known = are_in(np.unique(np.array(shown)), [path.relative_to(folder).as_posix() for path in found])
        for path, is_known in zip(found, known, strict=True):
            if not is_known:
                yield Finding("", "", f"{path}: not part of this version")
