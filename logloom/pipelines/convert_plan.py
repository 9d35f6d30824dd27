"""Planning a conversion: what the rows of a source mean for a root, before anything is written.

Here: the job, its units, and what an earlier conversion left to keep.
Elsewhere: sources (logloom.pipelines.convert_sources), running the job (logloom.pipelines.convert).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from logloom.digests import digest_of
from logloom.errors import UsageError
from logloom.io.manifest import (
    Manifest,
    check_root,
)
from logloom.io.shards import DROPPED, LogRecord
from logloom.io.sources import RowSource
from logloom.io.storage import Store
from logloom.io.stretches import LogRange, SourceLog
from logloom.io.units import Format, format_named
from logloom.pipelines.versions import Before, check_verify, is_unchanged, left_out_note, next_version
from logloom.recipe.mistakes import from_pydantic
from logloom.runners import Size
from logloom.schema import Schema
from logloom.transforms.bundles import bundle_size
from logloom.transforms.job import LogTask, Target
from logloom.validation import dotted

SEMANTICS = 1  # counts up when a source's rows would become others


@dataclass(frozen=True, kw_only=True)
class ConvertJob(Target):
    """A conversion, as its workers know it.

    Attributes:
        columns: names of the source's columns to convert, without ages and availabilities.
        on_error: "fail", or "skip" to leave out parts of the source that are damaged.
    """

    source: RowSource
    columns: tuple[str, ...]
    on_error: str = "fail"

    @functools.cached_property
    def schema(self) -> Schema:
        """The part of the source's schema that is converted."""
        return self.source.schema.part(self.columns)

    @property
    def period(self) -> int | None:
        """The source's."""
        return self.source.period

    @functools.cached_property
    def plan_identity(self) -> str:
        """Digest of what all rows depend on beside the source's own content."""
        return digest_of(["convert", SEMANTICS, self.schema.to_json(), self.period])

    @property
    def output(self) -> str:
        """The one format that is written."""
        return next(iter(self.outputs))

    def unit_identity(self, log_id: str, part: LogRange) -> str:
        """The name of one part's unit."""
        where = [log_id, part.identity, part.name, part.start, part.stop]
        return digest_of([self.plan_identity, self.output_identity(self.output), where])[:32]


@dataclass(frozen=True)
class LogToConvert:
    """A log that will be converted, as one task for each part."""

    task: LogTask
    source: SourceLog


@dataclass(frozen=True)
class ConvertPlan:
    """What a conversion will do.

    Attributes:
        logs: that will be converted.
        changes: records that change in the newest version beside those of `logs`, see `Before.changes`.
        up_to_date: the newest version already says all that a new one would.
        staged: digests of files in runs/ with the parts of `logs`, where a graph shouldn't hold them.
    """

    job: ConvertJob
    logs: tuple[LogToConvert, ...]
    notes: tuple[str, ...]
    up_to_date: bool
    changes: tuple[LogRecord, ...] = ()
    staged: tuple[str, ...] = ()

    @property
    def parts(self) -> list[tuple[LogToConvert, LogRange]]:
        return [(log, part) for log in self.logs for part in log.source.parts]

    @property
    def bytes(self) -> int:
        """Of the logs that will be converted, as they lie there."""
        return sum(part.size for _, part in self.parts)

    @property
    def size(self) -> Size:
        """How much work it is, for who chooses how many workers it is worth."""
        return Size(self.bytes, len(self.parts))

    @property
    def work(self) -> dict[str, tuple[int, int]]:
        """Of each log that will be converted, its bytes and its parts."""
        parts = {log.task.log_id: log.source.parts for log in self.logs}
        return {log_id: (sum(part.size for part in own), len(own)) for log_id, own in parts.items()}

    @property
    def is_guessed(self) -> bool:
        """Never; see `logloom.pipelines.progress.Watched`."""
        return False

    def unit_identities(self) -> list[tuple[str, str]]:
        """(output, identity) of every unit of the logs that will be converted."""
        job = self.job
        return [(job.output, job.unit_identity(log.task.log_id, part)) for log, part in self.parts]


def plan_convert(
    source: RowSource,
    root: str,
    output: str,
    *,
    options: Mapping[str, Any] | None = None,
    columns: list[str] | None = None,
    limit: int | None = None,
    verify: str = "new",
    on_error: str = "fail",
    storage_options: Mapping[str, Any] | None = None,
) -> ConvertPlan:
    """Plans a conversion.

    Args:
        root: URI of the new dataset's root.
        output: the format to write.
        options: what a recipe would say under `outputs.<output>`.
        columns: names or globs; all by default. A column brings its age and availability.
        limit: only the first logs, for a trial.
        verify: "new", "all", "none" or "sample:<share>".
        on_error: as of `ConvertJob`.

    Raises:
        UsageError: the format can't hold the columns or a log's name, or the root holds other things.
    """
    store = Store.at(root, storage_options)
    check_root(store)
    check_verify(verify)
    form = format_named(output)
    schema = source.schema.part(columns)
    chosen = make_options(form, schema, source.hints.get(output, {}), options or {})
    _check_holds(form, chosen, schema)
    logs = list(source.logs())[:limit]
    _check_logs(form, chosen, logs)
    parent, following = next_version(store)
    job = ConvertJob(
        name=source.dataset_name,
        recipe=source.recipe,
        outputs={output: chosen},
        verify=verify,
        source=source,
        columns=tuple(schema.columns),
        on_error=on_error,
        **following,
    )
    return _against_parent(job, parent, logs)


def _against_parent(job: ConvertJob, parent: Manifest | None, logs: list[SourceLog]) -> ConvertPlan:
    """Sorts the logs into those to convert and those whose records stay."""
    before = Before(parent)
    listed: list[LogRecord] = []
    planned: list[LogToConvert] = []
    left_out: list[str] = []
    for log in logs:
        record = log.record
        content = digest_of([record.content_id, record.status, [part.identity for part in log.parts]])
        key = job.log_key(record.log_id, content, record.uris, record.split)
        known = before.known.get(record.log_id)
        if known is not None and known.status == DROPPED:
            left_out.append(record.log_id)  # and so its record stays
        elif not log.parts:  # listed only: skipped, or without a tick
            listed.append(replace(record, key=key, part="", verified="", units=0))
        elif known is None or known.key != key:
            task = LogTask(record.log_id, record.uris, record.content_id, record.split, key)
            planned.append(LogToConvert(task, log))
    gone = before.known.keys() - {log.record.log_id for log in logs}
    changes = before.changes(listed, gone)
    job = replace(job, bundle=bundle_size(sum(len(log.source.parts) for log in planned)))
    same = parent is not None and not planned and not changes and is_unchanged(job, parent)
    notes = (*job.source.notes, *left_out_note(job.store, left_out))
    return ConvertPlan(job, tuple(planned), notes, same, changes)


def parse_options(text: str | None) -> dict[str, Any]:
    """Options of a format as people write them on a command line: a YAML mapping.

    Raises:
        UsageError: it is none.
    """
    try:
        found = yaml.safe_load(text) if text else {}
    except yaml.YAMLError as error:
        raise UsageError(f"--options {text!r} is no YAML: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"--options {text!r}: expected a mapping, like '{{rows_per_chunk: 256}}'")
    return found


def make_options(
    form: Format, schema: Schema, hints: Mapping[str, Any], given: Mapping[str, Any]
) -> BaseModel:
    """The options of a format: those given, else what the source hints at as far as it fits.

    Raises:
        UsageError: an option that is given makes no sense.
    """
    chosen: dict[str, Any] = {}
    for name, value in hints.items():
        if name in given:
            continue
        if isinstance(value, Mapping):  # for each column what it is called, for one
            fitting = {key: item for key, item in value.items() if _fits(form, schema, name, {key: item})}
            chosen |= {name: fitting} if fitting else {}
        elif not form.keeps_columns or _fits(form, schema, name, value):
            chosen[name] = value
    try:
        return form.Options.model_validate({**chosen, **given})
    except ValidationError as error:
        wrong = from_pydantic(error.errors(), form.Options)
        raise UsageError(
            "\n".join(f"--options: {form.name} {dotted(one.path)}: {one.message}" for one in wrong)
        ) from error


def _fits(form: Format, schema: Schema, name: str, value: Any) -> bool:
    """Whether an option makes no problem that isn't there without it."""
    try:
        without, options = form.Options.model_validate({}), form.Options.model_validate({name: value})
    except ValidationError:
        return False
    return set(form.check(options, schema)) <= set(form.check(without, schema))


def _check_holds(form: Format, options: BaseModel, schema: Schema) -> None:
    """Raises UsageError listing the columns that a format can't hold."""
    problems = form.check(options, schema)
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems[:20])
        raise UsageError(
            f"{form.name} can't hold these rows; choose others by --columns, or set --options:\n{listed}"
        )


def _check_logs(form: Format, options: BaseModel, logs: list[SourceLog]) -> None:
    problems = [
        problem
        for log in logs
        if log.parts
        for problem in form.check_log(options, log.record.log_id, log.record.uris[0])
    ]
    if problems:
        raise UsageError("\n".join(problems[:20] + ["…"] * (len(problems) > 20)))
