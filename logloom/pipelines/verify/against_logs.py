"""Verify a version against its logs, by making its job and rows again.

Elsewhere: units against the manifest (logloom.pipelines.verify.verify).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from logloom.errors import OF_CONTENT, UsageError
from logloom.io.catalog.entries import Entry
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.catalog.tombstones import Purged
from logloom.io.logs.opening import open_log
from logloom.io.storage.store import Store
from logloom.pipelines.verify.claims import Finding
from logloom.recipe import Recipe
from logloom.recipe.logs import open_options
from logloom.schema import ColumnType, Schema
from logloom.text import counted, some_of
from logloom.transforms.build.job import Committed, LogJob, LogTask, opened
from logloom.transforms.build.partition import derive_columns
from logloom.transforms.rows.derive.python_files import load_files, modules_of, read_files
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.plan.row_plan import changed
from logloom.transforms.rows.spans import plan_spans, span_named


def job_again(
    store: Store,
    manifest: Manifest,
    py_files: Sequence[str],
    records: Iterable[LogRecord] | None = None,
    *,
    allow_derive: Sequence[str] = (),
    access: Mapping[str, Any] | None = None,
) -> LogJob:
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
    erased = Purged(store).redactions
    options = open_options(recipe, access or store.options, store.uri_of("index"), erased)
    chosen = manifest.logs if records is None else records
    whole = [record for record in chosen if record.status in (LogStatus.whole, LogStatus.salvaged)]
    logs = {record.log_id: open_log(record.uris, options, record.log_id) for record in whole}
    allowed = [*allow_derive, *modules_of(python)]
    plan, _ = resolve(recipe, logs, allowed, labels=_label_types(manifest, recipe)) if logs else (None, ())
    if plan is None:
        raise UsageError(f"{store.uri}: version {manifest.version} has no log to derive rows from")
    job = LogJob(
        store=store,
        name=manifest.name,
        recipe=manifest.recipe,
        plan=plan,
        outputs=Committed.of(store, manifest).outputs,
        number=manifest.version,
        parent=manifest.parent,
        open_options=options,
        py_files=python,
    )
    if differing := changed(manifest.dependencies, job.dependencies):
        raise UsageError(
            f"{store.uri}: version {manifest.version} was built with other {some_of(differing)}; do this "
            "with the contents and versions that its manifest has under `dependencies`"
        )
    if job.plan_identity != manifest.plan:
        raise UsageError(
            f"{store.uri}: version {manifest.version} was built by another logloom ("
            f"{manifest.software.get('logloom')}) whose rows may differ, or from more logs than can be read: "
            "do this with that one, and all logs"
        )
    return job


def _label_types(manifest: Manifest, recipe: Recipe) -> dict[str, ColumnType]:
    """Types of columns of labels: the root keeps the labels, and needs no table."""
    columns = Schema.from_json(manifest.schema).columns
    return {name: columns[name] for name in recipe.label_columns if name in columns}


def task_of(record: LogRecord) -> LogTask:
    named = record.log_id, record.uris, record.content_id, record.split, record.key
    return LogTask(*named, catalogue=record.catalogue)


def check_spans(job: LogJob, record: LogRecord, units: Iterable[Entry]) -> Iterator[Finding]:
    """Whether the version has every partition that a log has."""
    if record.status not in (LogStatus.whole, LogStatus.salvaged):
        return
    try:
        spans = plan_spans(opened(job, task_of(record)).summary, job.plan)
    except OF_CONTENT as error:
        yield Finding(record.log_id, "", str(error))
        return
    there = {entry.partition for entry in units}
    for name in sorted({span.name for span in spans} - there):
        yield Finding(record.log_id, name, "the version lacks this partition of the log")


def derive_again(job: LogJob, task: LogTask, units: tuple[Entry, ...]) -> Iterator[Finding]:
    """Makes a partition's rows from the log again and compares them with what its units hold."""
    name = units[0].partition
    try:
        span = span_named(opened(job, task).summary, job.plan, name)
        if span is None:
            yield Finding(task.log_id, name, "the log has no such partition")
            return
        found = derive_columns(job, task, span, [entry.output for entry in units])
    except OF_CONTENT as error:
        yield Finding(task.log_id, name, str(error))
        return
    for entry in units:
        rows, columns = found[entry.output]
        different = [c for c, digest in columns.items() if entry.columns.get(c, digest) != digest]
        if rows != entry.rows:
            yield Finding(
                task.log_id, name, f"{entry.output}: the log has {counted(rows, 'row')}, not {entry.rows}"
            )
        elif different:
            yield Finding(
                task.log_id, name, f"{entry.output}: the log has other values in {', '.join(different)}"
            )
