"""Logs that can't be built again, whose rows of the latest version are kept.

Here: `kept_records`, `waiting_records` and `kept_notes`; `check_index` of a table of logs.
Elsewhere: finding them (logloom.pipelines.plan.plan), identities (logloom.transforms.build.job).

Rows of two recipes must not be mixed. A record's key shows whether this recipe made its rows. If it differs,
the record is compared with the key for earlier values of these settings, which don't affect the log's rows:

    partition how rows are split into units
    split       of whole logs: units aren't stored by split
    on_error    of a log of which nothing was refused
    set_back if there was none before: a log whose clock was set back had no rows then
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from logloom.errors import LogloomError, UsageError
from logloom.io.catalog.log_tables import catalogued
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.logs.log_list import LogFiles
from logloom.pipelines.plan.logs import PlanLogs
from logloom.pipelines.plan.next_version import Before
from logloom.pipelines.stats.splits import splits_rows
from logloom.recipe import LogTable, Recipe
from logloom.recipe.logs import split_of
from logloom.text import counted, some_of
from logloom.transforms.build.job import LogJob
from logloom.transforms.rows.plan.row_plan import changed

_OF_ROWS = ("time", "clock", "columns", "rows", "on_error", "outputs", "split")
_NAMED = 20  # logs listed in a command
_KINDS = {str: "a text", bool: "a truth", int: "a number", float: "a number"}


def kept_records(
    job: LogJob, recipe: Recipe, log_ids: Sequence[str], logs: PlanLogs, before: Before
) -> list[LogRecord]:
    """Return the changed records of logs whose rows of the latest version are kept.

    Raises:
        UsageError: another recipe made some of these rows; the message has the differences, and how to leave
            them out.
    """
    changing, other, has_refused = [], [], False
    earlier = functools.cache(lambda: _but_for_rows(job, before.recipe))
    for record in before.records(log_ids):
        now = replace(_moved(job, recipe, record, logs, before), status=LogStatus.kept)
        if record.part and record.key != now.key and not _has_same_rows(job, earlier(), record):
            other.append(record.log_id)
            has_refused |= not _is_whole(record)
        elif record != now:
            changing.append(now)
    if other:
        passes = before.later_passes(other)
        whole = [log_id for log_id in other if log_id not in passes]
        named = " ".join(map(shlex.quote, whole[:_NAMED])) + " …" * (len(whole) > _NAMED)
        differs = some_of(_differences(job, before, has_refused))
        them, their = ("it", "its") if len(other) == 1 else ("them", "their")
        drop = f"logloom drop {shlex.quote(job.store.uri)} {named}"
        raise UsageError(
            f"{counted(len(other), 'log')} can't be built again, and {their} rows were made by another "
            f"recipe ({some_of(other)}){f', which differs in {differs}' if differs else ''}. Rows of two "
            f"recipes can't be mixed: leave {them} out by `{drop}`, undo the change, or build into a new root"
        )
    return changing


def kept_notes(log_ids: Sequence[str], before: Before) -> Iterator[str]:
    """List logs that keep their rows of the latest version."""
    if log_ids and before.parent is not None:
        are = counted(len(log_ids), "log whose files are missing keeps", "logs whose files are missing keep")
        yield f"{are} the rows of version {before.parent.version} ({some_of(log_ids)})"


def waiting_records(
    job: LogJob, recipe: Recipe, log_ids: Sequence[str], logs: PlanLogs, before: Before
) -> list[LogRecord]:
    """Return the records of logs that wait for a later build, if their split changes.

    Raises:
        UsageError: another recipe made some of these rows.
    """
    records = list(before.records(log_ids))
    moved = [_moved(job, recipe, record, logs, before) for record in records]
    is_other = [one.rows and one.key != _key(job, one, one.split) for one in records]
    other = sorted(one.log_id for one, differs in zip(records, is_other, strict=True) if differs)
    if other:
        raise UsageError(
            f"{counted(len(other), 'log waits', 'logs wait')} for a later build, by the recipe's `settle`, "
            f"whose rows were made by another recipe ({some_of(other)}); these can't be mixed with rows of "
            "this one: build once their files have settled, leave `settle` out, or undo the change"
        )
    return [now for was, now in zip(records, moved, strict=True) if was.rows and now != was]


def _moved(job: LogJob, recipe: Recipe, record: LogRecord, logs: PlanLogs, before: Before) -> LogRecord:
    """Update a record of the latest version as if its log were built again unchanged: its key, split and
    mark.
    """
    split, duplicate_of = _split_now(recipe, record, logs, before)
    return replace(record, key=_key(job, record, split), split=split, duplicate_of=duplicate_of)


def _key(job: LogJob, record: LogRecord, split: str) -> str:
    return job.log_key(record.log_id, record.content_id, record.uris, split, record.catalogue)


def _split_now(recipe: Recipe, record: LogRecord, logs: PlanLogs, before: Before) -> tuple[str, str]:
    """Return the split of a record under a recipe, and the log that it is a duplicate of.

    A duplicate follows the other log as long as that is in the dataset, even if equality can't be checked any
    more, as after a change of `hash`.
    """
    if found := logs.duplicates.get(record.log_id):
        return found.split, found.duplicate_of
    if record.duplicate_of:
        rows = logs.files.rows_of([record.duplicate_of])
        for _, log in logs.at(rows[rows >= 0]):
            return logs.split_of(log, log.uris), record.duplicate_of
        for first in before.records(before.having([record.duplicate_of])):
            if first.status != LogStatus.dropped and not first.duplicate_of and recipe.vanished != "drop":
                return _split_now(recipe, first, logs, before)[0], record.duplicate_of
    return split_of(recipe, record.log_id, record.uris, record.split, record.catalogue), ""


def _but_for_rows(job: LogJob, recipe: Mapping[str, Any]) -> LogJob | None:
    """Return the job with an earlier recipe's values of all settings that may not affect rows; None for a
    conversion.
    """
    try:
        was = Recipe.model_validate(recipe)
    except (ValidationError, LogloomError):
        return None
    set_back = job.open_options.set_back if was.time.set_back else ""
    return replace(
        job,
        plan=replace(job.plan, rows=was.partition.rows, bytes=was.partition.bytes),
        open_options=replace(job.open_options, on_error=was.on_error_mode, set_back=set_back),
    )


def _has_same_rows(job: LogJob, earlier: LogJob | None, record: LogRecord) -> bool:
    """Return whether a record of another recipe has the rows that a job would make.

    Args:
        earlier: see `_but_for_rows`.
    """
    if earlier is None:
        return False
    named = record.log_id, record.content_id, record.uris, record.split
    key = earlier.log_key(*named, record.catalogue)
    return record.key == key and (_is_whole(record) or earlier.on_error == job.on_error)


def _is_whole(record: LogRecord) -> bool:
    return record.status in (LogStatus.whole, LogStatus.empty) or not (record.refused or record.reasons)


def _differences(job: LogJob, before: Before, has_refused: bool) -> Iterator[str]:
    """Return differences from the recipe of the latest version: keys, columns, outputs, and code.

    Args:
        has_refused: messages of some of the logs were refused, so that `on_error` affected rows.
    """
    recipes = before.recipe, job.recipe
    matters = {"on_error": has_refused, "split": any(map(splits_rows, recipes))}
    for key in _OF_ROWS:
        was, now = (recipe.get(key) or {} for recipe in recipes)
        if not matters.get(key, True):
            continue
        if key in ("columns", "outputs") and isinstance(was, Mapping):
            yield from (f"{key}.{name}" for name in sorted({*was, *now}) if was.get(name) != now.get(name))
        elif was != now:
            yield key
    if before.parent is not None:
        yield from changed(before.parent.dependencies, job.dependencies)


def check_index(recipe: Recipe, logs: PlanLogs, before: Before, log_ids: Sequence[str]) -> None:
    """Check that kept logs have values of the same kinds in the index as the recipe's table of logs.

    Args:
        log_ids: logs that the table no longer lists, or that wait for a later build.

    Raises:
        UsageError: a column has values of two kinds; names the rows.
    """
    if not isinstance(recipe.logs, LogTable) or not recipe.logs.index:
        return
    names = set(recipe.logs.index)
    listed: dict[str, tuple[Any, str]] | None = None
    for record in before.records(log_ids):
        stored = dict(catalogued(record.catalogue).index) if record.part else {}
        for name in sorted(names.intersection(stored)):
            if stored[name] is None:
                continue
            listed = _first_values(logs.files, names) if listed is None else listed
            value, uri = listed.get(name, (stored[name], ""))
            if _KINDS[type(value)] != _KINDS[type(stored[name])]:
                raise UsageError(
                    f"{logs.sources[0]}: index: {name} of {uri} is {value!r:.80}, {_KINDS[type(value)]}, but "
                    f"the kept rows of {record.log_id} were built with {stored[name]!r:.80}, "
                    f"{_KINDS[type(stored[name])]}: restore that column, list {record.log_id} again, or "
                    "leave its rows out by `vanished: drop`"
                )


def _first_values(logs: Iterable[LogFiles], names: set[str]) -> dict[str, tuple[Any, str]]:
    """Return a value of each column, all of whose values are of one kind, and the file of the log in that
    row.
    """
    found: dict[str, tuple[Any, str]] = {}
    for log in logs:
        stored = dict(catalogued(log.catalogue).index)
        new = {name: (value, log.uris[0]) for name, value in stored.items() if value is not None}
        found = new | found
        if names <= found.keys():
            break
    return found
