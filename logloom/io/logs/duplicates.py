"""Logs with the same content: one recording under several names.

Here: `equal_logs`, which groups logs by their bytes, and the digests that it compares, the cheap ones first.
Elsewhere: content ids (logloom.io.logs.files.ranges), what plans and `doctor` do about duplicates
(logloom.pipelines.plan.duplicates, logloom.pipelines.doctor.doctor).

    sizes of files  ->  last bytes of each file  ->  all bytes
    from the listing    of logs of equal size        of logs whose ends are equal, too

Names and order of a log's files don't matter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from blake3 import blake3

from logloom.errors import LogReadError
from logloom.io.logs.files.ranges import LogFile, content_id
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.match import size_of_files, waiting_threads
from logloom.io.storage.threads import in_threads

T = TypeVar("T")

END_BYTES = 4096  # of a file; includes the index of a container, which distinguishes nearly all recordings


def end_digest(log: LogFiles, storage_options: Mapping[str, Any]) -> str | None:
    """Digest the sizes and last `END_BYTES` of a log's files; None if one can't be read."""
    try:
        files = [LogFile(uri, storage_options) for uri in log.recordings]
        ends = [
            file.size.to_bytes(8, "little") + file.read(max(0, file.size - END_BYTES), file.size)
            for file in files
        ]
    except LogReadError:
        return None
    return _of_all(ends)


def whole_digest(log: LogFiles, storage_options: Mapping[str, Any]) -> str | None:
    """Digest all bytes of a log's files; None if one can't be read."""
    try:
        whole = [content_id(LogFile(uri, storage_options), hash="full") for uri in log.recordings]
    except LogReadError:
        return None
    return _of_all(bytes.fromhex(digest) for digest in whole)


def equal_logs(logs: Sequence[LogFiles], storage_options: Mapping[str, Any]) -> list[list[LogFiles]]:
    """Group logs whose files have the same bytes, at least two per group, in the order of the logs."""

    def size(log: LogFiles) -> int | None:
        return size_of_files(log.recordings, storage_options) if log.size is None else log.size

    groups = groups_by(logs, size)
    groups = [
        part for group in groups for part in groups_by(group, lambda log: end_digest(log, storage_options))
    ]
    return [
        part for group in groups for part in groups_by(group, lambda log: whole_digest(log, storage_options))
    ]


def groups_by(items: Sequence[T], key: Callable[[T], Hashable | None]) -> list[list[T]]:
    """Group items by equal keys, at least two per group, in order; items with the key None are left out."""
    found: dict[Hashable, list[T]] = {}
    for item in items:
        if (own := key(item)) is not None:
            found.setdefault(own, []).append(item)
    return [group for group in found.values() if len(group) > 1]


def end_digests(logs: Sequence[LogFiles], storage_options: Mapping[str, Any]) -> list[str | None]:
    """As `end_digest`, of many logs at once."""
    threads = waiting_threads(uri for log in logs for uri in log.uris)
    return in_threads(lambda log: end_digest(log, storage_options), logs, threads)


def _of_all(digests: Iterable[bytes]) -> str:
    """Combine the digests of all files, in any order."""
    made = blake3()
    for one in sorted(digests):
        made.update(len(one).to_bytes(8, "little") + one)
    return made.hexdigest()
