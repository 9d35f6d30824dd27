"""Logs truncated since the latest version, for example by an interrupted copy.

Here: `set_shortened_aside`, by the recipe's `shortened`.
Elsewhere: missing logs, and the records of those that keep their rows (kept_logs).

A version records the bytes of each log's files. Only logs whose files have fewer are opened: such a log was
shortened if it can't be read, or if a topic that the version used has fewer messages. A repacked log, or one
that lost only unused topics, is built like any changed log.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from logloom.errors import DatasetError, LogReadError
from logloom.io.catalog.entries import read_log_part
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.match import size_of_files
from logloom.io.logs.outline import Outline
from logloom.io.rows.log_ranges import Ints
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.pipelines.plan.logs import PlanLogs, State
from logloom.pipelines.plan.next_version import Before
from logloom.recipe import Recipe
from logloom.text import counted, human_bytes
from logloom.transforms.rows.accounts import Tally

_SHOWN = 20  # logs listed in a message
_THREADS = 16  # threads that request sizes


def set_shortened_aside(recipe: Recipe, store: Store, logs: PlanLogs, before: Before) -> None:
    """Keep the latest version's rows of truncated logs, or refuse these.

    Raises:
        LogReadError: there are some under `shortened: fail`, the default; lists them.
    """
    if before.parent is None or recipe.shortened == "build":
        return
    version = f"version {before.parent.version}"
    found = dict(_shortened(store, logs, before, version))
    if found and recipe.shortened == "fail":
        lines = [*itertools.islice(found.values(), _SHOWN), *["…"] * (len(found) > _SHOWN)]
        raise LogReadError(
            "\n".join(lines)
            + (
                f"\nCopy the files again; or set `shortened: keep` to keep the rows of {version}, or "
                "`shortened: build` to build the files' current content"
            )
        )
    for log_id, words in found.items():
        logs.set_aside(before.with_passes([log_id]), f"{words}, and its rows are kept")


def _shortened(store: Store, logs: PlanLogs, before: Before, version: str) -> Iterator[tuple[str, str]]:
    """Return the log_ids of shortened logs, without those of later passes, and how."""
    smaller = [log for _, log in logs.at(_smaller(logs, before))]
    passes = before.later_passes(log.log_id for log in smaller)
    whole = {passes.get(log.log_id, log.log_id): log for log in smaller}
    for log_id, log in sorted(whole.items()):
        records = list(before.records(before.with_passes([log_id])))
        if why := _what_lacks(store, logs, log, records):
            size = next(record.size for record in records if record.size)
            was, is_now = set(records[0].uris), set(log.recordings)
            where = f"{min(was - is_now)} is missing" if is_now < was else f"{log.uris[0]} was cut"
            now = human_bytes(_size_of(logs, log) or 0)
            cut = f"{where} since {version} was built: {now} of {human_bytes(size)}, {why}"
            is_whole = all(record.status != LogStatus.salvaged for record in records)
            yield log_id, f"{log_id}: {cut}; {version} has it {'complete' if is_whole else 'as it was'}"


def _smaller(logs: PlanLogs, before: Before) -> Ints:
    """Return positions of the logs with rows in the latest version, and other files since, with fewer
    bytes.
    """
    found = before.rows_of(logs.files.ids)
    rows = np.flatnonzero(found >= 0)
    recorded = _recorded_sizes(before, found[rows])
    rows, recorded = rows[recorded > 0], recorded[recorded > 0]
    is_new = np.isin(rows, logs.rows(State.NEW))
    changed = is_new.copy()
    changed[~is_new] = _has_changed(logs, before, rows[~is_new], found[rows[~is_new]])
    rows, recorded = rows[changed], recorded[changed]
    sizes = logs.files.sizes(rows)
    unknown = np.flatnonzero(sizes < 0)
    listed = (log for _, log in logs.at(rows[unknown]))
    asked = ahead(lambda log: _size_of(logs, log), listed, threads=_THREADS)
    sizes[unknown] = [-1 if size is None else size for size in asked]
    return rows[(sizes >= 0) & (sizes < recorded)]


def _recorded_sizes(before: Before, found: Ints) -> Ints:
    """(M,) bytes of the files that the latest version was built from; 0 without rows."""
    sizes, counts = (before.column(name).take(found).to_numpy() for name in ("size", "rows"))
    return np.where(counts > 0, sizes, 0)


def _has_changed(logs: PlanLogs, before: Before, rows: Ints, found: Ints) -> NDArray[np.bool_]:
    """(M,) mask of cached logs whose content differs from their records."""
    import pyarrow.compute as pc

    contents: pa.Array = before.column("content_id").take(found).combine_chunks()
    have: NDArray[np.bool_] = pc.not_equal(logs.contents(rows), contents).to_numpy(zero_copy_only=False)
    return have


def _size_of(logs: PlanLogs, log: LogFiles) -> int | None:
    if log.size is not None:
        return log.size
    return size_of_files(log.uris, logs.options.storage_options)


def _what_lacks(store: Store, logs: PlanLogs, log: LogFiles, records: Sequence[LogRecord]) -> str:
    """Describe what a log, with all its passes, lacks of what the latest version used; "" for nothing."""
    names = [record.log_id for record in records]
    now = Counter[str]()
    for _, one in logs.at(np.unique(logs.files.rows_of(logs.having(names)))):
        opened = logs.open_one(one)
        if not isinstance(opened, Outline):
            why, *_ = re.split(r"[.;] ", opened.removeprefix(f"{one.uris[0]}: "))  # without remedies
            return f"and can't be read: {why.rstrip('.')}"
        now.update({name: topic.num_messages for name, topic in opened.summary.topics.items()})
    fewer = {topic: count for topic, count in _messages_of(store, records).items() if now[topic] < count}
    if not fewer:
        return ""
    topic = max(sorted(fewer), key=lambda name: fewer[name] - now[name])
    more = f" (and fewer of {counted(len(fewer) - 1, 'other topic')})" * (len(fewer) > 1)
    return f"{now[topic]:,} of {counted(fewer[topic], 'message')} of {topic}{more}"


def _messages_of(store: Store, records: Sequence[LogRecord]) -> Mapping[str, int]:
    """Return how many messages of a log a version could use, by topic."""
    counts = Counter[str]()
    for record in records:
        try:
            units = read_log_part(store, record.part) if record.part else []
            tallies = [Tally.from_json(unit.tally) for unit in units if unit.output == units[0].output]
        except DatasetError:  # reported by `verify`; the rest of the log is built like any
            continue
        for tally in tallies:
            counts.update(tally.owned)
    return counts
