"""Verification: proving that a committed version says what its manifest says, and what its logs say.

Here: reading every unit and every assembled dataset back through its own reader, and deriving rows again.
Needs no Beam: the same functions as in a build, in a pool of processes.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from logloom.errors import LogloomError, UsageError
from logloom.io.logs.base import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.io.manifest import (
    ENTRY,
    Assembled,
    Entry,
    FileEntry,
    LogRecord,
    Manifest,
    entries_of,
    read_manifest,
    unit_folder,
    view_folder,
)
from logloom.io.storage import Store, with_access
from logloom.io.units import AssembledFormat, format_named
from logloom.pipelines.view import view_files
from logloom.recipe import Recipe
from logloom.schema import Schema
from logloom.transforms.derive import load_files, modules_of, read_files
from logloom.transforms.job import Job, LogTask, opened
from logloom.transforms.partition import (
    Reading,
    check_file,
    check_files,
    derive_columns,
    differences,
    is_sampled,
)
from logloom.transforms.resolve import resolve
from logloom.transforms.spans import plan_spans


@dataclass(frozen=True)
class Finding:
    """One thing found wrong: where, and what."""

    log_id: str
    partition: str
    message: str


@dataclass(frozen=True)
class Report:
    """What a verification saw.

    Attributes:
        units, rows, bytes: that were read back.
        findings: what is wrong; empty proves the version.
    """

    version: int
    units: int
    rows: int
    bytes: int
    against_logs: bool
    findings: tuple[Finding, ...]

    @property
    def is_proven(self) -> bool:
        return not self.findings


@dataclass(frozen=True)
class _Task:
    """A piece of verification for one process."""

    check: Callable[..., Iterable[Finding]]
    arguments: tuple[Any, ...]


def _run_task(task: _Task) -> list[Finding]:
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
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Reads a version back.

    Args:
        sample: "all", or "sample:<share>" of the partitions.
        against_logs: also derive every row from the logs again and compare.
        num_workers: processes; None is one for each core.
        py_files: Python files with functions that columns are derived by.
        allow_derive: modules and packages that columns may be derived by; importing them runs their code.
        logs: URIs with the credentials that reading them takes, which no version keeps.
        on_done: told how many pieces are done, of how many.

    Raises:
        UsageError: there is no such version.
        DatasetError: the manifest or a log's part can't be read at all.
        LogReadError: `against_logs`, and the logs can't be opened.
    """
    store = Store.at(root, storage_options)
    manifest = read_manifest(store, version)
    access = with_access(store.options, logs)
    reading = reading_of(store, manifest)
    entries = list(entries_of(store, manifest.logs))
    chosen = [entry for _, entry in entries if is_sampled(sample, entry.identity)]
    tasks = [_Task(_check_unit, (reading, entry)) for entry in chosen]
    tasks += [_Task(_check_assembled, (reading, part)) for part in manifest.assembled]
    findings = [*_check_sums(manifest, entries), *_check_view(store, manifest)]
    if against_logs:
        job = _job_again(store, manifest, py_files, allow_derive, access)
        tasks += list(_derive_tasks(job, manifest, chosen))
        findings += _check_spans(job, manifest, entries)
    for done, found in enumerate(_run(tasks, num_workers or os.cpu_count() or 1), 1):
        findings += found
        on_done(done, len(tasks))
    size = sum(entry.size for entry in chosen) + sum(part.size for part in manifest.assembled)
    rows = sum(entry.rows for entry in chosen)
    return Report(manifest.version, len(chosen), rows, size, against_logs, tuple(findings))


def _run(tasks: list[_Task], num_workers: int) -> Iterator[list[Finding]]:
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
    outputs = {
        name: format_named(name).Options.model_validate(options) for name, options in manifest.outputs.items()
    }
    columns = manifest.recipe["columns"]
    encoded = frozenset(name for name, column in columns.items() if column.get("encode"))
    return Reading(store, Schema.from_json(manifest.schema), outputs, encoded)


def _check_unit(reading: Reading, entry: Entry) -> Iterator[Finding]:
    problems = list(check_files(reading.store, entry))
    if not problems and entry.rows:
        problems = list(differences(reading, entry))
    for problem in problems:
        yield Finding(entry.log_id, entry.partition, problem)


def _check_assembled(reading: Reading, part: Assembled) -> Iterator[Finding]:
    store, folder = reading.store, unit_folder(part.output, part.identity)
    name = f"{folder}/{ENTRY}"
    try:
        data = store.read(name)
    except FileNotFoundError:
        yield Finding("", part.split, f"{store.uri_of(name)}: missing")
        return
    if blake3(data).hexdigest() != part.entry:
        yield Finding("", part.split, f"{store.uri_of(name)}: its bytes changed")
        return
    entry = json.loads(data)
    problems = [
        problem
        for file in entry["files"]
        for problem in check_file(store, f"{folder}/{file['name']}", FileEntry(**file))
    ]
    if not problems:
        form = format_named(part.output)
        assert isinstance(form, AssembledFormat)
        problems = list(form.assembled_differences(store.uri_of(folder), entry["unit"], store.options))
    for problem in problems:
        yield Finding("", part.split, problem)


def _check_sums(manifest: Manifest, entries: list[tuple[LogRecord, Entry]]) -> Iterator[Finding]:
    """Whether each log's partitions lie end to end and hold as many rows as the manifest says."""
    units: dict[tuple[str, str], list[Entry]] = {}
    for record, entry in entries:
        units.setdefault((record.log_id, entry.output), []).append(entry)
    for record in manifest.logs:
        for output in manifest.outputs if record.part else ():
            parts = units.get((record.log_id, output), [])
            rows = sum(entry.rows for entry in parts)
            if rows != record.rows:
                yield Finding(record.log_id, "", f"{output}: {rows} rows, the manifest says {record.rows}")
            for left, right in itertools.pairwise(parts):
                if left.stop != right.start:
                    yield Finding(
                        record.log_id,
                        right.partition,
                        f"{output}: starts at {right.start}, not at {left.stop}",
                    )


def _check_view(store: Store, manifest: Manifest) -> Iterator[Finding]:
    """Whether the view on a local disk shows the version's files and nothing else."""
    folder = store.local / view_folder(manifest.version) if store.local else None
    if folder is None or not folder.is_dir():
        return
    shown = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    for file in view_files(store, manifest):
        path, stored = folder / file.name, (store.local or folder) / file.stored
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


def _job_again(
    store: Store,
    manifest: Manifest,
    py_files: Sequence[str],
    allow_derive: Sequence[str],
    access: Mapping[str, Any],
) -> Job:
    """The job that made a version, its recipe resolved against the version's logs."""
    if source := manifest.recipe.get("convert"):
        raise UsageError(
            f"{store.uri}: version {manifest.version} was converted from {source['from']}, not built from "
            "logs: verify it without --against-logs, and its source with"
        )
    python = read_files(py_files)
    load_files(python)
    recipe = Recipe.model_validate(manifest.recipe)
    options = OpenOptions(recipe.on_error_mode, access, store.uri_of("index"))
    logs = {r.log_id: open_log(r.uris, options) for r in manifest.logs if r.status in ("whole", "salvaged")}
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
        kept=(),
        number=manifest.version,
        parent=manifest.parent,
        open_options=options,
        py_files=python,
    )
    if job.plan_identity != manifest.plan:
        raise UsageError(
            f"{store.uri}: version {manifest.version} was built by another logloom ("
            f"{manifest.software.get('logloom')}) whose rows may differ; verify against logs with that one"
        )
    return job


def _task_of(record: LogRecord) -> LogTask:
    return LogTask(record.log_id, record.uris, record.content_id, record.split, record.key)


def _derive_tasks(job: Job, manifest: Manifest, entries: Iterable[Entry]) -> Iterator[_Task]:
    records = {record.log_id: record for record in manifest.logs if record.status in ("whole", "salvaged")}
    partitions: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.log_id in records:
            partitions.setdefault((entry.log_id, entry.partition), []).append(entry)
    for (log_id, _), units in partitions.items():
        yield _Task(_derive_again, (job, _task_of(records[log_id]), tuple(units)))


def _check_spans(job: Job, manifest: Manifest, entries: list[tuple[LogRecord, Entry]]) -> Iterator[Finding]:
    """Whether the version has every partition that its logs have."""
    for record in manifest.logs:
        if record.status not in ("whole", "salvaged"):
            continue
        try:
            spans = {span.name for span in plan_spans(opened(job, _task_of(record)).summary, job.plan)}
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
    except LogloomError as error:
        yield Finding(task.log_id, name, str(error))
        return
    for entry in units:
        rows, columns = found[entry.output]
        different = [c for c, digest in columns.items() if entry.columns.get(c, digest) != digest]
        if rows != entry.rows:
            yield Finding(task.log_id, name, f"{entry.output}: the log gives {rows} rows, not {entry.rows}")
        elif different:
            yield Finding(
                task.log_id, name, f"{entry.output}: the log gives other values in {', '.join(different)}"
            )
