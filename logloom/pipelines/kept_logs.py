"""Logs whose rows stay as the newest version has them, though a build can't make them again.

Here: `kept_records`, `kept_notes`, and `key_now`.
Elsewhere: which logs these are (logloom.pipelines.plan), identities (logloom.transforms.job).

Rows of two recipes must not be mixed. A record's key shows whether this recipe made its rows. If it differs,
the record is compared with the key that the log would have if all of this were as it was, none of which
decides about the log's rows:

    partition   how rows are cut into units
    split       of whole logs: units aren't stored by split
    on_error    of a log of which nothing was refused
    set_back    where there was none before: a log whose clock was set back had no rows then
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from logloom.errors import LogloomError, UsageError
from logloom.io.shards import LogRecord
from logloom.pipelines.splits import splits_rows
from logloom.pipelines.versions import Before
from logloom.recipe import Recipe
from logloom.recipe.logs import split_of
from logloom.transforms.columns import changed
from logloom.transforms.job import LogJob
from logloom.words import counted, some_of

_OF_ROWS = ("time", "clock", "columns", "rows", "on_error", "outputs", "split")
_NAMED = 20  # logs in a command


def kept_records(job: LogJob, recipe: Recipe, log_ids: Sequence[str], before: Before) -> list[LogRecord]:
    """The records of logs that stay as the newest version has them, as far as they change.

    Raises:
        UsageError: another recipe made some of these rows; says what differs, and how to leave them out.
    """
    changing, other, has_refused = [], [], False
    earlier = functools.cache(lambda: _but_for_rows(job, before.recipe))
    for record in before.records(log_ids):
        key, split = key_now(job, recipe, record), _split_now(recipe, record)
        if record.part and record.key != key and not _has_same_rows(job, earlier(), record):
            other.append(record.log_id)
            has_refused |= not _is_whole(record)
        elif record.status != "kept" or (record.key, record.split) != (key, split):
            changing.append(replace(record, status="kept", key=key, split=split))
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
    """Says which logs keep the rows that the newest version has of them."""
    if log_ids and before.parent is not None:
        are = counted(len(log_ids), "log whose files are gone keeps", "logs whose files are gone keep")
        yield f"{are} the rows of version {before.parent.version} ({some_of(log_ids)})"


def key_now(job: LogJob, recipe: Recipe, record: LogRecord) -> str:
    """The key that a log of the newest version would have if it were built as it was then."""
    split = _split_now(recipe, record)
    return job.log_key(record.log_id, record.content_id, record.uris, split, record.catalogue)


def _split_now(recipe: Recipe, record: LogRecord) -> str:
    """The split of a record under a recipe; that of a duplicate is the split of another log."""
    if record.duplicate_of:
        return record.split
    return split_of(recipe, record.log_id, record.uris, record.split, record.catalogue)


def _but_for_rows(job: LogJob, recipe: Mapping[str, Any]) -> LogJob | None:
    """The job with what an earlier recipe said of all that may decide about no row; None of a conversion."""
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
    """Whether a record of another recipe has the rows that a job would make.

    Args:
        earlier: see `_but_for_rows`.
    """
    if earlier is None:
        return False
    named = record.log_id, record.content_id, record.uris, record.split
    key = earlier.log_key(*named, record.catalogue)
    return record.key == key and (_is_whole(record) or earlier.on_error == job.on_error)


def _is_whole(record: LogRecord) -> bool:
    return record.status in ("whole", "empty") or not (record.refused or record.reasons)


def _differences(job: LogJob, before: Before, has_refused: bool) -> Iterator[str]:
    """In what the recipe of the newest version differs: keys, columns, outputs, and code.

    Args:
        has_refused: messages of some of the logs were refused, so that `on_error` decided about rows.
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
