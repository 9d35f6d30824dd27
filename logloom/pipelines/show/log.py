"""The log that rows come from, to be shown beside them: `logloom show --with-log`.

Here: `log_of`, which opens it, and `messages_of`, its messages undecoded, so that topics of any encoding are
there.
Elsewhere: reading files (logloom.io.logs), where the messages go (mcap), decoded ones (topics).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from logloom.errors import LogReadError, UsageError
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.tombstones import Purged
from logloom.io.logs.files.container import Channel, Chunk
from logloom.io.logs.files.container_log import ContainerLog
from logloom.io.logs.files.log_part import LogPart
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, Log, OpenOptions
from logloom.io.logs.opening import open_log
from logloom.io.logs.recording_times import is_static
from logloom.io.logs.redaction import redacted_ranges
from logloom.io.logs.table_dialects import dialects_of
from logloom.io.storage.store import Store
from logloom.text import OnMessage
from logloom.values import dataclass


@dataclass(frozen=True)
class RawMessage:
    """A message of a log.

    Attributes:
        log_time, publish_time: ns since the Unix epoch.
    """

    channel: Channel
    log_time: int
    publish_time: int
    data: bytes


def log_of(store: Store, manifest: Manifest, record: LogRecord) -> Log:
    """The log that rows were built of.

    Args:
        manifest: of the version that the rows are of.

    Raises:
        UsageError: no file of it is known, or some of its time was erased.
        LogReadError: it isn't what the rows were built of.
    """
    whose = f"log {record.log_id!r}"
    if not record.uris:
        raise UsageError(f"{whose}: the version names no files of it; leave --with-log out")
    recipe = manifest.recipe
    names = tuple(recipe.get("time", {}).get("name", ()))
    options = OpenOptions(
        "salvage",
        store.options,
        store.uri_of("index"),
        hash=recipe.get("hash", "ends"),
        time_names=names,
        set_back=recipe.get("time", {}).get("set_back") or "",
        tables=dialects_of(recipe),
    )
    log = open_log(record.uris, options, record.log_id)
    content_id = log.summary.content_id
    if redacted_ranges(Purged(store).redactions, record.log_id, content_id):
        raise UsageError(
            f"{whose}: some of its time was erased, which its files may still contain; leave --with-log out"
        )
    if content_id != record.content_id:
        raise LogReadError(
            f"{record.uris[0]}: has changed since the build, so it isn't what the rows come from; "
            "leave --with-log out, or build again"
        )
    return log


def messages_of(log: Log, first: int, last: int, on_problem: OnMessage) -> Iterator[RawMessage]:
    """The messages of a log with first <= log time <= last: by file, by chunk, by log time in each.

    Args:
        on_problem: is called for each damaged stretch; what is whole of it is given.

    Raises:
        UsageError: the log is made of tables, which hold no messages as they were recorded.
    """
    if not isinstance(log, ContainerLog):
        raise UsageError(
            f"{log.summary.uris[0]}: is made of tables, which contain no messages as recorded; leave "
            "--with-log out, or show it in Rerun"
        )
    return _messages(log, first, last, on_problem)


def _messages(log: ContainerLog, first: int, last: int, on_problem: OnMessage) -> Iterator[RawMessage]:
    for part in log.parts:
        stretches = part.index.stretches
        overlaps = (stretches["first"] <= last) & (stretches["last"] >= first)
        numbers = part.index.with_messages
        for number, chunk in part.chunks(numbers[overlaps[numbers]]):
            for problem in chunk.problems:
                on_problem(f"{part.origin(number).place}: {problem}")
            positions = part.origin(number).position + chunk.offset
            yield from _of_chunk(part, chunk, first, last, _are_of_pass(log, positions))


def _are_of_pass(log: ContainerLog, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N,) which messages count: those of the pass that is shown of a log whose clock was set back."""
    first, last = log.summary.pass_positions or (MIN_TIME, MAX_TIME)
    return (positions >= first) & (positions <= last)


def _of_chunk(
    part: LogPart, chunk: Chunk, first: int, last: int, counts: NDArray[np.bool_]
) -> Iterator[RawMessage]:
    for row in np.argsort(chunk.log_time, kind="stable").tolist():
        channel = part.index.channels.get(int(chunk.channel[row]))
        log_time = int(chunk.log_time[row])
        if channel is None or not first <= log_time <= last:
            continue
        if not (counts[row] or is_static(channel.topic)):
            continue
        start = int(chunk.start[row])
        data = chunk.buffer[start : start + int(chunk.length[row])].tobytes()
        yield RawMessage(channel, log_time, int(chunk.publish_time[row]), data)
