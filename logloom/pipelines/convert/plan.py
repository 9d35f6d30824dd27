"""Plan a conversion: find the logs of a source to convert, before any write.

Here: `ConvertPlan`, and which records of an earlier conversion are kept.
Elsewhere: sources (logloom.pipelines.convert.sources), the job (logloom.transforms.build.conversion), running
it (logloom.pipelines.build.build).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ValidationError

from logloom.digests import digest_of
from logloom.errors import UsageError
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.catalog.tombstones import Purged
from logloom.io.catalog.version_files import check_root
from logloom.io.formats.interface import Format
from logloom.io.formats.registry import format_named, output_problems
from logloom.io.rows.log_ranges import LogRange, SourceLog
from logloom.io.rows.sources import About, RowSource
from logloom.io.storage.store import Store
from logloom.pipelines.plan.build_plan import Plan
from logloom.pipelines.plan.next_version import (
    Before,
    is_unchanged,
    left_out_note,
    next_version,
    purged_notes,
)
from logloom.query.where import parse
from logloom.recipe.mistakes import from_pydantic
from logloom.schema import Schema
from logloom.transforms.build.bundles import bundle_size, bundled, packed
from logloom.transforms.build.conversion import ROW_KEYS, ConvertJob, ConvertTask
from logloom.transforms.build.job import LogTask, PartitionTask
from logloom.transforms.build.settings import BuildSettings
from logloom.transforms.rows.notices import notes_of
from logloom.uris import is_local
from logloom.validation import dotted
from logloom.values import dataclass


class LogToConvert(NamedTuple):
    """A log that will be converted, part by part."""

    task: ConvertTask
    parts: tuple[LogRange, ...]


@dataclass(frozen=True, kw_only=True)
class ConvertPlan(Plan):
    """What a conversion will do.

    Attributes:
        logs: that will be converted.
    """

    job: ConvertJob
    logs: tuple[LogToConvert, ...]

    @property
    def partitions(self) -> Iterator[tuple[LogTask, LogRange]]:
        return ((log.task, part) for log in self.logs for part in log.parts)

    @property
    def elements(self) -> Iterator[LogTask | bytes]:
        for task, parts in self.logs:
            tasks, sizes = (PartitionTask(task, part) for part in parts), (part.size for part in parts)
            yield from map(packed, bundled(tasks, sizes, self.job.bundle))

    @property
    def uris(self) -> Iterator[str]:
        yield self.job.recipe["convert"]["from"]

    @property
    def work(self) -> dict[str, tuple[int, int]]:
        return {task.log_id: (sum(part.size for part in parts), len(parts)) for task, parts in self.logs}


def plan_convert(
    source: RowSource,
    root: str,
    output: str,
    *,
    options: Mapping[str, Any] | None = None,
    columns: list[str] | None = None,
    limit: int | None = None,
    settings: BuildSettings | None = None,
    on_error: str = "fail",
    where: str = "",
    storage_options: Mapping[str, Any] | None = None,
) -> ConvertPlan:
    """Plans a conversion.

    Args:
        source: the rows to convert, as `open_source` gives them.
        root: URI of the new dataset's root.
        output: the format to write.
        options: what a recipe would say under `outputs.<output>`; each replaces one that the source has.
        columns: names or globs; all by default. A column brings its age and availability.
        limit: only the first logs, for a trial.
        settings: of this job: what is read back, and its labels.
        on_error, where: as of `ConvertJob`.
        storage_options: of the new root: fsspec options by protocol.

    Returns:
        The plan, for `logloom.pipelines.convert.convert.convert`.

    Raises:
        UsageError: the format can't hold the columns or a log's name, or the root holds other things, or is
            the source itself; or the filter can't be used.
    """
    store = Store.at(root, storage_options)
    check_root(store)
    places = (store.uri, source.place)
    if len({os.path.realpath(uri) if is_local(uri) else uri.rstrip("/") for uri in places}) == 1:
        raise UsageError(f"{store.uri}: the source itself; choose another folder for what is converted")
    form = format_named(output)
    schema = source.schema.part(columns)
    about = _filtered(source, where)
    hints = about.hints.get(output, {})
    chosen, notes = make_options(form, schema, hints, options or {}, source.period)
    _check_holds(form, chosen, schema, source.period)
    logs = list(source.logs())[:limit]
    _check_logs(form, chosen, logs)
    parent, following = next_version(store)
    job = ConvertJob(
        name=about.name,
        recipe=about.recipe,
        outputs={output: chosen},
        settings=settings or BuildSettings(),
        source=source,
        columns=tuple(schema.columns),
        on_error=on_error,
        where=where,
        **following,
    )
    return _against_parent(job, parent, logs, notes)


def _filtered(source: RowSource, where: str) -> About:
    """What a conversion records of its source, and of the filter, which is checked."""
    about = source.about
    if not where:
        return about
    parse(where).bound({**ROW_KEYS, **source.schema.all})
    return replace(about, recipe={**about.recipe, "convert": {**about.recipe["convert"], "where": where}})


def _against_parent(
    job: ConvertJob, parent: Manifest | None, logs: list[SourceLog], noted: list[str]
) -> ConvertPlan:
    """Sorts the logs into those to convert and those whose records stay."""
    before, purged = Before(parent), Purged(job.store)
    erased = {log.record.log_id for log in logs if purged.has_rows_of(log.record.content_id)}
    logs = [log for log in logs if log.record.log_id not in erased]
    listed: list[LogRecord] = []
    planned: list[LogToConvert] = []
    left_out: list[str] = []
    for log in logs:
        record = log.record
        content = digest_of([record.content_id, record.status, [part.identity for part in log.parts]])
        key = job.log_key(record.log_id, content, record.uris, record.split, record.catalogue)
        known = before.known.get(record.log_id)
        if known is not None and known.status == LogStatus.dropped:
            left_out.append(record.log_id)  # and so its record stays
        elif not log.parts:  # listed only: skipped, or without a tick
            listed.append(replace(record, key=key, part="", verified="", units=0, statistics=""))
        elif known is None or known.key != key:
            named = record.log_id, record.uris, record.content_id, record.split, key
            planned.append(LogToConvert(ConvertTask(*named, record=record), log.parts))
    gone = before.known.keys() - {log.record.log_id for log in logs}
    changes = before.changes(listed, gone)
    job = replace(job, bundle=bundle_size(sum(len(log.parts) for log in planned)))
    same = parent is not None and not planned and not changes and is_unchanged(job, parent)
    notes = (*job.source.about.notes, *noted)
    notes += (*left_out_note(job.store, left_out), *purged_notes(purged, erased))
    found = tuple(notes_of("source", notes))
    return ConvertPlan(job=job, logs=tuple(planned), noted=found, up_to_date=same, changes=changes)


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
    form: Format, schema: Schema, hints: Mapping[str, Any], given: Mapping[str, Any], period: int | None
) -> tuple[BaseModel, list[str]]:
    """The options of a format: those of the source, in which those given replace keys.

    Of an option that is a mapping of names, those whose columns aren't converted are left out. A format that
    keeps columns as they are does without other options that don't fit, too.

    Returns:
        The options, and notes of what a format that has an own layout leaves out.

    Raises:
        UsageError: an option makes no sense, or a required one is missing.
    """
    chosen, left_out, before = {**hints, **given}, dict[str, list[str]](), None
    options = _validated(form, schema, chosen, given, period)
    while before != chosen:  # a check may name one problem at a time
        before = chosen
        for name in [name for name in hints if name in chosen and name not in given]:
            value = chosen[name]
            if isinstance(value, Mapping) and not isinstance(getattr(options, name), BaseModel):
                for key in value:
                    rest = {other: item for other, item in chosen[name].items() if other != key}
                    if _is_better(form, schema, chosen, fewer := _with(chosen, name, rest)):
                        chosen = fewer
                        left_out.setdefault(name, []).append(key)
            elif form.keeps_columns and _is_better(form, schema, chosen, fewer := _with(chosen, name, None)):
                chosen = fewer
    notes = [
        f"{form.name}: {name}: {', '.join(keys)} left out, of columns that aren't converted"
        for name, keys in sorted(left_out.items())
        if not form.keeps_columns
    ]
    return form.Options.model_validate(chosen), notes


def _with(options: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Options with another value of one, or without it."""
    others = {key: item for key, item in options.items() if key != name}
    return {**others, name: value} if value else others


def _is_better(form: Format, schema: Schema, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether options that are changed make sense, and don't cause some problem any more."""
    try:
        options = form.Options.model_validate(after)
    except ValidationError:
        return False
    problems = form.check(form.Options.model_validate(before), schema)
    return bool(Counter(problems) - Counter(form.check(options, schema)))


def _validated(
    form: Format, schema: Schema, chosen: Mapping[str, Any], given: Mapping[str, Any], period: int | None
) -> BaseModel:
    try:
        return form.Options.model_validate(chosen)
    except ValidationError as error:
        wrong = from_pydantic(error.errors(), form.Options)
        lines = [f"--options: {form.name} {dotted(one.path)}: {one.message}" for one in wrong]
        proposed = form.proposed(schema, period)
        if proposed and all(one["type"] == "missing" for one in error.errors()):
            whole = {**proposed, **given}
            text = yaml.safe_dump(whole, default_flow_style=True, width=10**6, sort_keys=False).strip()
            lines.append(f"write for example --options '{text}'")
        raise UsageError("\n".join(lines)) from error


def _check_holds(form: Format, options: BaseModel, schema: Schema, period: int | None) -> None:
    """Raises UsageError listing what of the columns, and of the clock, a format can't hold."""
    of_clock = form.check_clock(options, period)
    own = output_problems(form, options, schema)
    problems = [*(f"{key}: {problem}" for key, problem in of_clock.items()), *own]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems[:20])
        raise UsageError(
            f"{form.name} can't store these rows; choose others by --columns, or set --options:\n{listed}"
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
