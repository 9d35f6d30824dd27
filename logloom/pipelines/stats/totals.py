"""Merged statistics of all logs of a split, cached in a root.

    index/statistics-<version>-<digest>.parquet   of the logs whose files of statistics give this digest

Here: `Counted`, logs of a version that have rows; reading and writing such files; `keep_merged`, for builds.
Elsewhere: statistics of a version (logloom.pipelines.stats.stats), of a log
(logloom.io.catalog.log_statistics).

As all of index/ these files may go at any time, and go with any purge; then the statistics of each log are
read. Merging is exact, so a build adds its new logs to what its parent's file says.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.errors import LogloomError
from logloom.io.catalog import log_statistics
from logloom.io.catalog.log_statistics import read_statistics_file
from logloom.io.catalog.manifest import Manifest, read_manifest
from logloom.io.catalog.tombstones import Purged
from logloom.io.storage.faults import MISSING
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.pipelines.verify.verify import Task, run_tasks
from logloom.statistics.columns import Statistics
from logloom.text import OnMessage, ignore_message
from logloom.values import dataclass

MERGED = re.compile(r"statistics-(\d{8})-[0-9a-f]{32}\.parquet")
MAX_LOGS = 10_000  # whose statistics a build reads for this, some 3 ms each
_MANY = 1000  # logs that take seconds, so that people are told
_AT_ONCE = 64  # logs whose statistics a process reads and merges before it hands them on

Names = tuple[str, str]  # the digests of a log's statistics, and of its part of the manifest


@dataclass(frozen=True)
class Counted:
    """Logs of a version that have rows, such as those of a split.

    Attributes:
        digests: of the statistics and the part of each, in order.
        rows: of all.
    """

    digests: tuple[Names, ...]
    rows: int

    @classmethod
    def of(cls, manifest: Manifest, split: str) -> Self:
        """Of a split of a version."""
        return cls.at(manifest, manifest.logs.where("split", [split]))

    @classmethod
    def at(cls, manifest: Manifest, positions: Sequence[int] | NDArray[np.int64]) -> Self:
        """Of the logs of a version at some positions."""
        logs = manifest.logs.columns("rows", "statistics", "part")
        rows = logs["rows"].to_numpy()
        own = np.zeros(len(logs), bool)
        own[np.asarray(positions, np.int64)] = True
        found = logs.filter(own & (rows > 0)).select(["statistics", "part"])
        names = tuple(zip(*(column.to_pylist() for column in found.columns), strict=True))
        return cls(names, int(rows[own].sum()))

    def __len__(self) -> int:
        return len(self.digests)


def merged(
    store: Store, logs: Sequence[Names], columns: Iterable[str] | None = None, num_workers: int = 1
) -> Iterator[Statistics]:
    """What builds counted of logs, some logs together.

    Args:
        columns: None is all.

    Raises:
        DatasetError: statistics are missing or damaged; names the file.
    """
    chosen = None if columns is None else tuple(columns)
    chunks = (logs[at : at + _AT_ONCE] for at in range(0, len(logs), _AT_ONCE))
    tasks = (Task(_merged_chunk, (store, chunk, chosen)) for chunk in chunks)
    for found in run_tasks(tasks, num_workers):
        yield from found


def _merged_chunk(
    store: Store, logs: Sequence[Names], columns: tuple[str, ...] | None
) -> Iterator[Statistics]:
    found = ahead(lambda names: read_statistics_file(store, *names), logs)
    yield Statistics.merged(one if columns is None else one.part(columns) for one in found)


def read_merged(store: Store, version: int, logs: Sequence[Names]) -> Statistics | None:
    """The statistics of logs together, where a version has kept them."""
    if len(logs) < log_statistics.MANY_LOGS:
        return None
    name = _file(version, logs)
    with contextlib.suppress(*MISSING, LogloomError):  # damaged: those of each log are read
        return Statistics.from_bytes(store.read(name), store.uri_of(name))
    return None


def write_merged(store: Store, version: int, logs: Sequence[Names], statistics: Statistics) -> None:
    """Keeps the statistics of logs together; a root that takes none does without."""
    if len(logs) < log_statistics.MANY_LOGS:
        return
    name, parts = _file(version, logs), {part for _, part in logs}
    with contextlib.suppress(LogloomError, OSError):
        store.replace(name, statistics.to_bytes(), durable=False)
        if not Purged(store).parts.isdisjoint(parts):  # a purge went through index/ meanwhile
            store.remove(name)


def _file(version: int, logs: Sequence[Names]) -> str:
    digest = blake3("\n".join(map("/".join, logs)).encode(errors="surrogateescape")).hexdigest()[:32]
    return f"index/statistics-{version:08d}-{digest}.parquet"


def splits_of(manifest: Manifest) -> list[str]:
    """The splits that logs of a version are in."""
    return sorted(set(manifest.logs.column("split").to_pylist()))


def has_merged(store: Store, manifest: Manifest) -> bool:
    """Return whether a version's statistics are available without reading those of many logs."""
    unread = 0
    for split in splits_of(manifest):
        logs = Counted.of(manifest, split)
        is_small = len(logs.digests) < log_statistics.MANY_LOGS
        is_kept = not is_small and store.exists(_file(manifest.version, logs.digests))
        if not is_kept:
            unread += len(logs)
    return unread < log_statistics.MANY_LOGS


def keep_merged(
    store: Store, manifest: Manifest, num_workers: int = 1, on_message: OnMessage = ignore_message
) -> None:
    """Keeps the statistics of a new version's splits: those of its parent, and of its new logs.

    Where more than `MAX_LOGS` would have to be read, as where logs went, nothing is kept: who asks first
    reads.

    Args:
        num_workers: processes that read.
        on_message: called if it takes seconds.
    """
    with contextlib.suppress(LogloomError):  # the version is there, and needs none of this
        parent = None if manifest.parent is None else read_manifest(store, manifest.parent)
        for split in splits_of(manifest):
            own = Counted.of(manifest, split)
            is_small = len(own) < log_statistics.MANY_LOGS
            if is_small or store.exists(_file(manifest.version, own.digests)):
                continue
            base, fresh = _base(store, parent, split, own.digests)
            if len(fresh) > MAX_LOGS:
                continue
            if len(fresh) > _MANY:
                on_message(f"merging the statistics of {len(fresh):,} logs")
            found = Statistics.merged([*base, *merged(store, fresh, num_workers=num_workers)])
            write_merged(store, manifest.version, own.digests, found)


def _base(
    store: Store, parent: Manifest | None, split: str, logs: Sequence[Names]
) -> tuple[list[Statistics], Sequence[Names]]:
    """What the parent knows of logs that stay, and the others; nothing where it knows of some that went."""
    if parent is not None:
        before = Counted.of(parent, split).digests
        stay = set(before)
        if stay.issubset(logs) and (base := read_merged(store, parent.version, before)) is not None:
            return [base], [names for names in logs if names not in stay]
    return [], logs
