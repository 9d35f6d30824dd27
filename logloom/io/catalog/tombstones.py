"""Tombstones: records of purged logs, and purged time ranges of logs.

    versions/purged/<digest of the log_id>.json     a tombstone, without the log's content or name

Here: tombstones, which distinguish purged data from damage.
Elsewhere: purging (logloom.pipelines.purge.purge), reading logs without purged times
(logloom.io.logs.redaction).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.errors import DatasetError, PurgedError
from logloom.io.storage.faults import MISSING
from logloom.io.storage.metadata import STRICT, Count, Int64, Text, checked, parsed, sealed, unsealed
from logloom.io.storage.store import Store
from logloom.schema import TimeRanges
from logloom.text import some_of
from logloom.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

TOMBSTONES = "versions/purged"
_FILE = re.compile(r"[0-9a-f]{64}\.json")
_WAY_OUT = (
    "put it back from a backup. Without one remove it, run `logloom repair` for the versions that have its "
    "log, then purge that once more; the next build would take the log in again"
)
_BATCH = 4096  # names that are Python objects at a time


@dataclass(frozen=True)
class Tombstone:
    """The record of a purged log.

    Attributes:
        log: BLAKE3 of its log_id.
        contents: content ids of what was erased as a whole; a log with another content may be built.
        parts: digests that named its parts of manifests.
        folders: of assembled outputs and portions that held rows of it, with those of other logs.
        reason: for people; "" where none was given.
        ranges: what was erased of it otherwise, [start, stop) each in ns; whatever its content, no build
            makes rows of messages from then.
        redacted: content ids of the whole logs of which these were erased.
        sizes: bytes of the files of each log that was erased as a whole; none where one of them isn't known.
    """

    __pydantic_config__ = STRICT

    log: Text
    contents: tuple[Text, ...]
    parts: tuple[Text, ...]
    folders: tuple[Text, ...]
    reason: Text
    ranges: tuple[tuple[Int64, Int64], ...]
    redacted: tuple[Text, ...]
    sizes: tuple[Count, ...]

    def merged(self, other: Tombstone) -> Tombstone:
        """Of what was erased before and is now."""
        sizes = {*self.sizes, *other.sizes}
        for one in (self, other):
            sizes = sizes if one.sizes or not one.contents else set()
        return Tombstone(
            self.log,
            tuple(sorted({*self.contents, *other.contents})),
            tuple(sorted({*self.parts, *other.parts})),
            tuple(sorted({*self.folders, *other.folders})),
            other.reason or self.reason,
            merged_ranges([*self.ranges, *other.ranges]),
            tuple(sorted({*self.redacted, *other.redacted})),
            tuple(sorted(sizes)),
        )


def merged_ranges(ranges: Iterable[tuple[int, int]]) -> TimeRanges:
    """Ranges [start, stop) in order, those that overlap or touch as one.

    >>> merged_ranges([(5, 7), (1, 3), (3, 4)])
    ((1, 4), (5, 7))
    """
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return tuple(merged)


def digest_of_log(log_id: str) -> str:
    """Return the digest that replaces a secret log_id."""
    return blake3(log_id.encode(errors="surrogateescape")).hexdigest()


def write_tombstone(store: Store, tombstone: Tombstone) -> None:
    """Write a tombstone, or add to the existing one."""
    for before in _tombstones(store):
        if before.log == tombstone.log:
            tombstone = before.merged(tombstone)
    store.replace(f"{TOMBSTONES}/{tombstone.log}.json", sealed(asdict(tombstone)))


def _tombstones(store: Store) -> list[Tombstone]:
    """
    Raises:
        DatasetError: some are damaged; names all of these.
    """
    stones, problems = [], []
    for name in filter(_FILE.fullmatch, store.names(TOMBSTONES)):
        try:
            stones.append(_read_tombstone(store, name))
        except DatasetError as error:
            problems.append(str(error))
    if problems:
        raise DatasetError("\n".join(problems))
    return stones


def _read_tombstone(store: Store, name: str) -> Tombstone:
    place = store.uri_of(f"{TOMBSTONES}/{name}")
    value = parsed(store.read(f"{TOMBSTONES}/{name}"), place, _WAY_OUT)
    stone = checked(Tombstone, unsealed(value, place, _WAY_OUT), place, _WAY_OUT)
    if name != f"{stone.log}.json":
        raise DatasetError(f"{place}: the tombstone of another log, {stone.log}; {_WAY_OUT}")
    return stone


class Purged:
    """All that was erased from a root.

    Attributes:
        parts: digests of logs' parts of manifests.
        folders: of assembled outputs and portions.
        redactions: see `logloom.io.logs.interface.OpenOptions`.
        knows_sizes: whether it is known how large all logs were that were erased as a whole.

    Raises:
        DatasetError: a tombstone is damaged.
    """

    def __init__(self, store: Store):
        self._logs = {stone.log: stone for stone in _tombstones(store)}
        self.parts = frozenset(part for stone in self._logs.values() for part in stone.parts)
        self.folders = frozenset(folder for stone in self._logs.values() for folder in stone.folders)
        whole = [stone for stone in self._logs.values() if stone.contents]
        self._contents = frozenset(content for stone in whole for content in stone.contents)
        self._sizes = frozenset(size for stone in whole for size in stone.sizes)
        self.knows_sizes = bool(whole) and all(stone.sizes for stone in whole)
        self._redacted = frozenset(content for stone in self._logs.values() for content in stone.redacted)
        self.redactions = self._ranges()

    def _ranges(self) -> dict[str, TimeRanges]:
        ranges: dict[str, TimeRanges] = {}
        for stone in self._logs.values():
            if stone.ranges:
                ranges[stone.log] = stone.ranges
                for content in stone.redacted:  # of several logs, where one is a copy of another
                    ranges[content] = merged_ranges([*ranges.get(content, ()), *stone.ranges])
        return ranges | dict.fromkeys(self._contents, ()) if ranges else {}

    def __len__(self) -> int:
        return len(self._logs)

    def has(self, content_id: str) -> bool:
        """Return whether this content was erased as a whole, under whichever log_id."""
        return content_id in self._contents

    def has_rows_of(self, content_id: str) -> bool:
        """Return whether what was erased includes rows that were made of this content."""
        return self.has(content_id) or content_id in self._redacted

    def has_named(self, log_id: str) -> bool:
        """Return whether something was erased of a log of this name."""
        return bool(self._logs) and digest_of_log(log_id) in self._logs

    def has_files_of(self, log_id: str, content_id: str, part: str) -> bool:
        """Return whether files that a log's record names were erased; a log without rows has no part."""
        return part in self.parts if part else self.has_named(log_id) and self.has_rows_of(content_id)

    def had_whole(self, log_id: str) -> bool:
        """Return whether a log of this name was erased as a whole."""
        stone = self._logs.get(digest_of_log(log_id)) if self._contents else None
        return stone is not None and bool(stone.contents)

    def may_have(self, log_id: str, size: int | None) -> bool:
        """Return whether a log's content is needed to find out if it was erased as a whole.

        Args:
            size: bytes of its files; None if unknown.
        """
        if not self._contents:
            return False
        return size is None or not self.knows_sizes or self.resembles(log_id, size)

    def are_like(self, log_ids: pa.Array, contents: pa.Array, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(N,) which logs may be ones that were erased as a whole, by content id, name or size.

        Args:
            log_ids, contents: (N,) texts.
            sizes: (N,) bytes of the files of each; -1 if unknown.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._contents:
            return np.zeros(len(sizes), bool)
        erased = pc.is_in(contents, pa.array(sorted(self._contents), contents.type))
        like: NDArray[np.bool_] = sizes < 0
        like |= erased.to_numpy(zero_copy_only=False)
        like |= np.isin(sizes, np.array(sorted(self._sizes), np.int64))
        named = {log for log, stone in self._logs.items() if stone.contents}
        for first in range(0, len(log_ids), _BATCH):
            some = log_ids[first : first + _BATCH].to_pylist()
            like[first : first + _BATCH] |= [digest_of_log(log_id) in named for log_id in some]
        return like

    def resembles(self, log_id: str, size: int | None) -> bool:
        """Return whether a log that was erased as a whole had this name, or so many bytes."""
        return size in self._sizes or self.had_whole(log_id)


def check_purged(
    store: Store, place: str, *, part: str = "", folder: str = "", logs: Sequence[str] = ()
) -> None:
    """Raise an error where something that is missing was erased on purpose.

    Args:
        logs: log_ids of those that it had rows of, as far as they are known.

    Raises:
        PurgedError: it was.
    """
    try:
        stones = _tombstones(store)
    except MISSING:
        return
    for stone in stones:
        if part in stone.parts or folder in stone.folders:
            why = f" ({stone.reason})" if stone.reason else ""
            log = f"log {some_of(logs)}" if logs else "a log"
            raise PurgedError(
                f"{place}: was purged{why}: {log} that it held rows of, or some time of that log, was erased "
                "from all versions. Versions built since are without it: open the newest, or build one"
            )
