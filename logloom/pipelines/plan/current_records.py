"""Find log records of the latest version that are still current.

Columns of the records are compared with a listing.
Here: `standing`, `changed_logs`, and tasks of logs.
Elsewhere: listing and opening logs (logloom.pipelines.plan.logs), planning (logloom.pipelines.plan.plan).

A record is current if its key is the log's present one. A key is a digest of what all logs of a build share,
and of a log's name, content id, URIs, split and catalogue values. All records of a version were made, or
found to be current, by one build, so they share the former: a few keys show whether it changed. The latter
are columns; if some keys differ, all are computed, mostly from these columns.
"""

from __future__ import annotations

import operator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from logloom.io.catalog.pages import LogStatus
from logloom.io.logs.log_list import LogFiles
from logloom.io.rows.log_ranges import Ints
from logloom.pipelines.plan.logs import PlanLogs, State
from logloom.pipelines.plan.next_version import Before
from logloom.recipe import LogTable, Recipe
from logloom.transforms.build.job import LogJob, LogTask, is_key_of

_KEYS = 64  # of similar logs, computed to see whether what all logs share changed
_ROWS = 8192  # compared at a time, as their texts are copied
_PLAIN = r"^[ !#-\[\]-~]*$"  # texts that need no escapes in JSON


def task_of(job: LogJob, logs: PlanLogs, row: int, files: LogFiles) -> LogTask:
    """Return the task of building the log at a position, which was opened or is cached."""
    content_id, uris = logs.content_of(row, files)
    split = logs.split_of(files, uris)
    key = job.log_key(files.log_id, content_id, uris, split, files.catalogue)
    task = LogTask(files.log_id, uris, content_id, split, key, catalogue=files.catalogue)
    duplicate = logs.duplicates.get(files.log_id)
    return task if duplicate is None else replace(task, duplicate_of=duplicate.duplicate_of)


def changed_logs(job: LogJob, recipe: Recipe, logs: PlanLogs, before: Before) -> Ints:
    """Return positions of the cached logs that have to be built."""
    rows = logs.rows(State.REMEMBERED)
    return rows[~standing(job, recipe, logs, before, rows)]


def standing(job: LogJob, recipe: Recipe, logs: PlanLogs, before: Before, rows: Ints) -> NDArray[np.bool_]:
    """(M,) mask of current records: a build of these logs would make the same ones.

    Args:
        rows: (M,) positions of cached or opened logs.
    """
    found = before.rows_of(logs.files.ids.take(rows))
    stands = np.zeros(len(rows), bool)
    stands[found >= 0] = ~_of_status(before, found[found >= 0], LogStatus.kept)
    alike = np.flatnonzero(stands)
    pieces = np.array_split(alike, -(-len(alike) // _ROWS) or 1)
    look = [_look_alike(job, recipe, logs, before, rows[piece], found[piece]) for piece in pieces]
    alike = alike[np.concatenate(look)]
    unsure = np.flatnonzero(stands)
    if len(alike) > _KEYS:
        some = alike[np.arange(_KEYS) * len(alike) // _KEYS]
        if not np.all(_keys_stand(job, logs, before, rows[some], found[some])):
            alike = alike[_are_plain(logs, before, rows[alike], found[alike])]
            for piece in np.array_split(alike, -(-len(alike) // _ROWS) or 1):
                stands[piece] = _texts_stand(job, before, found[piece])
        unsure = np.setdiff1d(unsure, alike)
    stands[unsure] = _keys_stand(job, logs, before, rows[unsure], found[unsure])
    mended = np.flatnonzero(stands)
    mended = mended[_may_be_mended(logs, before, rows[mended], found[mended])]
    stands[mended] = _of_deaths(job, logs, before, rows[mended], found[mended])
    return stands


def _may_be_mended(logs: PlanLogs, before: Before, rows: Ints, found: Ints) -> NDArray[np.bool_]:
    """(M,) mask of logs that the latest version lacks, completely or in part, and whose files may have been
    repaired.

    A content id by the ends of a file doesn't show whether damage in its middle was repaired.

    Args:
        rows, found: (M,) positions of the logs, and of their records; -1 for none.
    """
    may = found >= 0
    skipped = _of_status(before, found[may], LogStatus.skipped)
    may[may] = skipped | _of_status(before, found[may], LogStatus.salvaged)
    may[may] = logs.may_have_changed(rows[may])
    return may


def replaced_parts(logs: PlanLogs, before: Before, rows: Ints) -> pa.Array:
    """(M,) see `LogTask.replaces`; nulls for None."""
    found = before.rows_of(logs.files.ids.take(rows))
    none = ~_may_be_mended(logs, before, rows, found)
    return before.column("part").take(pa.array(found, mask=none)).combine_chunks()


def _of_status(before: Before, found: Ints, status: str) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    are: NDArray[np.bool_] = pc.equal(before.column("status").take(found), status).to_numpy()
    return are


def _keys_stand(job: LogJob, logs: PlanLogs, before: Before, rows: Ints, found: Ints) -> NDArray[np.bool_]:
    """(M,) mask of records whose keys are their logs' present ones.

    Args:
        rows, found: (M,) positions of the logs, and of their records.
    """
    keys, statuses = (before.column(name).take(found) for name in ("key", "status"))
    candidates = zip(logs.at(rows), keys, statuses, strict=True)
    same = (
        is_key_of(task_of(job, logs, row, files).key, key.as_py(), status.as_py())
        for (row, files), key, status in candidates
    )
    return np.fromiter(same, bool, len(rows))


def _of_deaths(job: LogJob, logs: PlanLogs, before: Before, rows: Ints, found: Ints) -> NDArray[np.bool_]:
    """(M,) mask of current records of logs that workers crashed on, which may recur."""
    keys = before.column("key").take(found).to_pylist()
    candidates = zip(logs.at(rows), keys, strict=True)
    of_deaths = (task_of(job, logs, row, files).key != key for (row, files), key in candidates)
    return np.fromiter(of_deaths, bool, len(rows))


def _are_plain(logs: PlanLogs, before: Before, rows: Ints, found: Ints) -> NDArray[np.bool_]:
    """(M,) mask of logs whose names and splits need no escapes in JSON, without catalogue values."""
    import pyarrow.compute as pc

    plain = pc.equal(logs.files.column("catalogue").take(pa.array(rows)), "")
    for name in ("log_id", "split"):
        texts = before.column(name).take(pa.array(found)).combine_chunks()
        plain = pc.and_(plain, pc.match_substring_regex(texts, _PLAIN))
    are: NDArray[np.bool_] = plain.to_numpy(zero_copy_only=False)
    return are


def _texts_stand(job: LogJob, before: Before, found: Ints) -> NDArray[np.bool_]:
    """(M,) `_keys_stand` by columns, if everything in keys is the same and plain."""
    import pyarrow.compute as pc

    names = ("log_id", "content_id", "uris", "split", "key")
    columns = (before.column(name).take(pa.array(found)).combine_chunks() for name in names)
    log_ids, content_ids, uris, splits, keys = columns
    between = ('"', log_ids, '","', content_ids, '",', uris, ',"', splits, '"')
    made = job.log_keys(pc.binary_join_element_wise(*between, "").to_pylist())
    return np.fromiter(map(operator.eq, made, keys.to_pylist()), bool, len(found))


def _look_alike(
    job: LogJob, recipe: Recipe, logs: PlanLogs, before: Before, rows: Ints, found: Ints
) -> NDArray[np.bool_]:
    """(M,) mask of logs for which everything in keys is surely the same: cached logs of one file, not left
    out.
    """
    import pyarrow.compute as pc

    files = logs.files.column("uris").take(pa.array(rows))
    alone = pc.equal(pc.list_value_length(files), 1).to_numpy(zero_copy_only=False)
    skipped = _of_status(before, found, LogStatus.skipped)
    alike: NDArray[np.bool_] = alone & logs.are_remembered(rows) & ~skipped
    # The splits of duplicates aren't those of their names.
    alike &= before.column("duplicate_of").take(found).is_null().to_numpy()
    alike &= ~np.isin(rows, logs.files.rows_of(logs.duplicates))
    chosen = np.flatnonzero(alike)
    rows, found = rows[chosen], found[chosen]
    uris = files.take(pa.array(chosen)).flatten()
    plain = pc.match_substring_regex(uris, _PLAIN)
    uris = pc.if_else(plain, uris, b"").cast(pa.string())
    listed = pc.binary_join_element_wise('["', uris, '"]', "")
    content_ids, listed_before, splits = (
        before.column(name).take(found).combine_chunks() for name in ("content_id", "uris", "split")
    )
    same = pc.and_(plain, pc.equal(listed, listed_before))
    same = pc.and_(same, pc.equal(logs.contents(rows), content_ids))
    same = pc.and_(same, _same_split(job, recipe, logs, before, rows, splits))
    if recipe.label_columns or (isinstance(recipe.logs, LogTable) and recipe.logs.says):
        stored = pc.fill_null(before.column("catalogue").take(found).combine_chunks(), "")
        same = pc.and_(same, pc.equal(logs.files.column("catalogue").take(pa.array(rows)), stored))
    alike[chosen] = same.to_numpy(zero_copy_only=False)
    return alike


def _same_split(
    job: LogJob, recipe: Recipe, logs: PlanLogs, before: Before, rows: Ints, splits: pa.Array
) -> pa.Array:
    """Return whether logs of the same name and URIs have the splits in their records."""
    import pyarrow.compute as pc

    if isinstance(recipe.logs, LogTable) and recipe.logs.split:
        return pc.equal(logs.files.column("split").take(pa.array(rows)), splits)
    if recipe.split is None or recipe.split.of_rows is not None:
        return pc.equal(splits, "all")
    rules = [(one.get("split"), (one.get("order") or {}).get("split")) for one in (job.recipe, before.recipe)]
    return pa.array(np.full(len(rows), rules[0] == rules[1]))
