"""Verification: proving that a committed version says what its manifest says, and what its logs say.

Here: reading every unit and every assembled dataset back through its own reader, and deriving rows again.
Needs no Beam: the same functions as in a build, in a pool of processes.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from logloom.errors import DatasetError, LogloomError, StorageError, UsageError
from logloom.io.entries import Entry, FileEntry, read_log_part
from logloom.io.filesystems import with_access
from logloom.io.logs.base import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.io.manifest import Assembled, Manifest, read_assembled, read_manifest, view_folder
from logloom.io.shards import LogRecord
from logloom.io.storage import Store
from logloom.pipelines.verify_claims import Finding, check_claims, manifest_state, whole_logs
from logloom.pipelines.view import view_files
from logloom.recipe import Recipe
from logloom.transforms.assembly import assembled_differences
from logloom.transforms.derive import load_files, modules_of, read_files
from logloom.transforms.finish import refusal_list_problem
from logloom.transforms.finished import assembled_problems, check_file, unit_problems
from logloom.transforms.job import Committed, Job, LogTask, opened
from logloom.transforms.partition import Reading, derive_columns, differences, is_sampled
from logloom.transforms.resolve import resolve
from logloom.transforms.spans import plan_spans
from logloom.words import counted

_READERS = 16  # threads that read parts of logs; they wait for storage


@dataclass(frozen=True)
class Report:
    """What a verification saw.

    Attributes:
        units, rows, bytes: that were read back.
        findings: what is wrong; empty proves the version.
        manifest: "checked" by its digest, or why not.
        verified, trusted: what the build that committed the version read back (see `Manifest`).
        committed_by: software of that build.
        made_by: {"software", "units"} each: which software made how many units; none where it wasn't noted.
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

    @property
    def is_proven(self) -> bool:
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
        sample: "all", or "sample:<share>" of the partitions.
        against_logs: also derive every row from the logs again and compare.
        num_workers: processes; None is one for each core.
        py_files: Python files with functions that columns are derived by.
        allow_derive: modules and packages that columns may be derived by; importing them runs their code.
        logs: URIs with the credentials that reading them takes, which no version keeps.
        on_progress: called with how many pieces are done, of how many.

    Raises:
        UsageError: there is no such version.
        DatasetError: the manifest can't be read, or isn't what its digest says.
        LogReadError: `against_logs`, and the logs can't be opened.
    """
    store = Store.at(root, storage_options)
    manifest, broken = whole_logs(read_manifest(store, version))
    access = with_access(store.options, logs)
    reading = reading_of(store, manifest)
    entries, lost = readable_entries(store, manifest.logs)
    chosen = [entry for _, entry in entries if is_sampled(sample, entry.identity)]
    tasks = [Task(_check_unit, (reading, entry)) for entry in chosen]
    tasks += [Task(_check_assembled, (reading, part)) for part in manifest.assembled]
    state, findings = _check_manifest(store, manifest, entries, [*broken, *lost])
    if against_logs:
        job = job_again(store, manifest, py_files, allow_derive=allow_derive, access=access)
        tasks += list(_derive_tasks(job, manifest, chosen))
        findings += _check_spans(job, manifest, entries)
    for done, found in enumerate(run_tasks(tasks, num_workers or os.cpu_count() or 1), 1):
        findings += found
        on_progress(done, len(tasks))
    size = sum(entry.size for entry in chosen) + sum(part.size for part in manifest.assembled)
    rows = sum(entry.rows for entry in chosen)
    return Report(
        manifest.version,
        len(chosen),
        rows,
        size,
        against_logs,
        tuple(findings),
        manifest=state,
        verified=manifest.verified if manifest.format > 1 or manifest.verified != "all" else "new",
        trusted=dict(manifest.trusted),
        committed_by=dict(manifest.software),
        made_by=_made_by(entry for _, entry in entries),
    )


def _check_manifest(
    store: Store, manifest: Manifest, entries: Sequence[tuple[LogRecord, Entry]], lost: Sequence[Finding]
) -> tuple[str, list[Finding]]:
    """Whether its digest confirms a manifest; and where it contradicts itself, its units or its view."""
    state, findings = manifest_state(store, manifest.version)
    findings += [*lost, *check_claims(store, manifest, entries, {one.log_id for one in lost})]
    for record, name, problem in damaged_refusal_lists(store, manifest):
        findings.append(Finding(record.log_id, "", f"{store.uri_of(name)}: {problem}"))
    if not lost:
        findings += check_view(store, manifest)
    return state, findings


def damaged_refusal_lists(store: Store, manifest: Manifest) -> Iterator[tuple[LogRecord, str, str]]:
    """Logs whose file of all that was refused is missing or damaged: which file, and what is wrong.

    Those of a conversion's source lie in its root.
    """
    for record in () if "convert" in manifest.recipe else manifest.logs:
        if found := refusal_list_problem(store, record):
            yield record, *found


def _made_by(entries: Iterable[Entry]) -> tuple[Mapping[str, Any], ...]:
    counts = Counter(tuple(sorted(entry.software.items())) for entry in entries)
    return tuple({"software": dict(made_by), "units": count} for made_by, count in sorted(counts.items()))


def readable_entries(
    store: Store, logs: Iterable[LogRecord]
) -> tuple[list[tuple[LogRecord, Entry]], list[Finding]]:
    """The units of all logs whose parts can be read, and what is wrong with the other parts."""
    records = [record for record in logs if record.part]

    def read(record: LogRecord) -> list[Entry] | Finding:
        try:
            return read_log_part(store, record.part)
        except DatasetError as error:
            return Finding(record.log_id, "", str(error))

    entries, lost = [], []
    with ThreadPoolExecutor(_READERS) as threads:
        for record, found in zip(records, threads.map(read, records), strict=True):
            if isinstance(found, Finding):
                lost.append(found)
            else:
                entries += [(record, entry) for entry in found]
    return entries, lost


def run_tasks(tasks: Sequence[Task], num_workers: int) -> Iterator[list[Any]]:
    """What each task finds, in order, in a pool of processes."""
    if num_workers == 1 or len(tasks) < 2:
        yield from map(_run_task, tasks)
        return
    # Not fork: threads of the caller (progress, fsspec) may hold locks.
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(min(num_workers, len(tasks)), context) as pool:
        yield from pool.map(_run_task, tasks)


# --- against the manifest -------------------------------------------------------------------------------


def reading_of(store: Store, manifest: Manifest) -> Reading:
    """What reading the units of a committed version takes."""
    return Reading.of(Committed.of(store, manifest))


def _check_unit(reading: Reading, entry: Entry) -> Iterator[Finding]:
    problems = list(unit_problems(reading.store, entry))
    if not problems and entry.rows:
        problems = list(differences(reading, entry))
    for problem in problems:
        yield Finding(entry.log_id, entry.partition, problem)


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
    if folder is None or not folder.is_dir():
        return
    shown = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    try:
        files = list(view_files(store, manifest))
    except DatasetError as error:
        yield Finding("", "", f"{folder}: can't be checked: {error}")
        return
    for file in files:
        path, stored = store.path_of(f"{folder.name}/{file.name}"), store.path_of(file.stored)
        if file.name not in shown:
            yield Finding("", "", f"{path}: missing from the view")
        elif not (stored.exists() and path.samefile(stored)):
            entry = FileEntry(file.name, file.size, file.digest)
            for problem in check_file(store, f"{folder.name}/{file.name}", entry):
                yield Finding("", "", problem)
        shown.discard(file.name)
    for name in sorted(shown):
        yield Finding("", "", f"{folder / name}: not part of this version")


# --- against the logs -----------------------------------------------------------------------------------


def job_again(
    store: Store,
    manifest: Manifest,
    py_files: Sequence[str],
    records: Iterable[LogRecord] | None = None,
    *,
    allow_derive: Sequence[str] = (),
    access: Mapping[str, Any] | None = None,
) -> Job:
    """The job that made a version, its recipe resolved against the version's logs.

    Args:
        records: of the logs to resolve it against; None for all.
        allow_derive: modules and packages that columns may be derived by.
        access: storage options that logs are opened by; None for the store's own.

    Raises:
        UsageError: these logs, or this logloom, don't give the rows that the version has.
        LogReadError: the logs can't be opened.
    """
    if source := manifest.recipe.get("convert"):
        raise UsageError(
            f"{store.uri}: version {manifest.version} was converted from {source['from']}, not built from "
            "logs: verify it without --against-logs, and its source with"
        )
    python = read_files(py_files)
    load_files(python)
    recipe = Recipe.model_validate(manifest.recipe)
    options = OpenOptions(
        recipe.on_error_mode, access or store.options, store.uri_of("index"), hash=recipe.hash
    )
    chosen = manifest.logs if records is None else records
    logs = {r.log_id: open_log(r.uris, options) for r in chosen if r.status in ("whole", "salvaged")}
    allowed = [*allow_derive, *modules_of(python)]
    plan, _ = resolve(recipe, logs, allowed) if logs else (None, ())
    if plan is None:
        raise UsageError(f"{store.uri}: version {manifest.version} has no log to derive rows from")
    job = Job(
        store=store,
        name=manifest.name,
        recipe=manifest.recipe,
        plan=plan,
        outputs=reading_of(store, manifest).outputs,
        number=manifest.version,
        parent=manifest.parent,
        open_options=options,
        py_files=python,
    )
    if job.plan_identity != manifest.plan:
        raise UsageError(
            f"{store.uri}: version {manifest.version} was built by another logloom ("
            f"{manifest.software.get('logloom')}) whose rows may differ, or from more logs than can be read: "
            "do this with that one, and all logs"
        )
    return job


def task_of(record: LogRecord) -> LogTask:
    return LogTask(record.log_id, record.uris, record.content_id, record.split, record.key)


def _derive_tasks(job: Job, manifest: Manifest, entries: Iterable[Entry]) -> Iterator[Task]:
    records = {record.log_id: record for record in manifest.logs if record.status in ("whole", "salvaged")}
    partitions: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.log_id in records:
            partitions.setdefault((entry.log_id, entry.partition), []).append(entry)
    for (log_id, _), units in partitions.items():
        yield Task(_derive_again, (job, task_of(records[log_id]), tuple(units)))


def _check_spans(job: Job, manifest: Manifest, entries: list[tuple[LogRecord, Entry]]) -> Iterator[Finding]:
    """Whether the version has every partition that its logs have."""
    for record in manifest.logs:
        if record.status not in ("whole", "salvaged"):
            continue
        try:
            spans = {span.name for span in plan_spans(opened(job, task_of(record)).summary, job.plan)}
        except StorageError:
            raise  # the fault of this machine or store, not of the log
        except LogloomError as error:
            yield Finding(record.log_id, "", str(error))
            continue
        there = {entry.partition for r, entry in entries if r.log_id == record.log_id}
        for name in sorted(spans - there):
            yield Finding(record.log_id, name, "the version lacks this partition of the log")


def _derive_again(job: Job, task: LogTask, units: tuple[Entry, ...]) -> Iterator[Finding]:
    """Makes a partition's rows from the log again and compares them with what its units hold."""
    name = units[0].partition
    try:
        log = opened(job, task)
        span = next(span for span in plan_spans(log.summary, job.plan) if span.name == name)
        found = derive_columns(job, task, span, [entry.output for entry in units])
    except StopIteration:
        yield Finding(task.log_id, name, "the log has no such partition")
        return
    except StorageError:
        raise
    except LogloomError as error:
        yield Finding(task.log_id, name, str(error))
        return
    for entry in units:
        rows, columns = found[entry.output]
        different = [c for c, digest in columns.items() if entry.columns.get(c, digest) != digest]
        if rows != entry.rows:
            yield Finding(
                task.log_id, name, f"{entry.output}: the log gives {counted(rows, 'row')}, not {entry.rows}"
            )
        elif different:
            yield Finding(
                task.log_id, name, f"{entry.output}: the log gives other values in {', '.join(different)}"
            )
