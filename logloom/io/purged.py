"""Logs that were erased from a root on purpose: what stands in their place.

    versions/purged/<digest of the log_id>.json     a tombstone; nothing of the log's content, nor its name

Here: tombstones, which tell a hole from what was meant to go.
Elsewhere: erasing (logloom.pipelines.purge).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from blake3 import blake3

from logloom.errors import PurgedError
from logloom.io.metadata import STRICT, Text, canonical, checked, parsed
from logloom.io.remote import MISSING
from logloom.io.storage import Store

TOMBSTONES = "versions/purged"
_FILE = re.compile(r"[0-9a-f]{64}\.json")


@dataclass(frozen=True)
class Tombstone:
    """What is still said of a log.

    Attributes:
        log: BLAKE3 of its log_id.
        contents: content ids of what was erased; a log of this name with another content may be built.
        parts: digests that named its parts of manifests.
        folders: of assembled outputs and portions that held rows of it, with those of other logs.
        reason: for people.
    """

    __pydantic_config__ = STRICT

    log: Text
    contents: tuple[Text, ...]
    parts: tuple[Text, ...]
    folders: tuple[Text, ...]
    reason: Text = ""

    def merged(self, other: Tombstone) -> Tombstone:
        """Of what was erased before and is now."""
        return Tombstone(
            self.log,
            tuple(sorted({*self.contents, *other.contents})),
            tuple(sorted({*self.parts, *other.parts})),
            tuple(sorted({*self.folders, *other.folders})),
            other.reason or self.reason,
        )


def digest_of_log(log_id: str) -> str:
    """Stands for a log_id that is not to be told."""
    return blake3(log_id.encode(errors="surrogateescape")).hexdigest()


def write_tombstone(store: Store, tombstone: Tombstone) -> None:
    """Writes a tombstone, or adds to the one that is there."""
    for before in _tombstones(store):
        if before.log == tombstone.log:
            tombstone = before.merged(tombstone)
    store.replace(f"{TOMBSTONES}/{tombstone.log}.json", canonical(asdict(tombstone)))


def _tombstones(store: Store) -> Iterator[Tombstone]:
    for name in filter(_FILE.fullmatch, store.names(TOMBSTONES)):
        place = f"{TOMBSTONES}/{name}"
        yield checked(Tombstone, parsed(store.read(place), store.uri_of(place)), store.uri_of(place))


class Purged:
    """All that was erased from a root.

    Attributes:
        parts: digests of logs' parts of manifests.
        folders: of assembled outputs and portions.

    Raises:
        DatasetError: a tombstone is damaged.
    """

    def __init__(self, store: Store):
        self._logs = {stone.log: stone for stone in _tombstones(store)}
        self.parts = frozenset(part for stone in self._logs.values() for part in stone.parts)
        self.folders = frozenset(folder for stone in self._logs.values() for folder in stone.folders)

    def __len__(self) -> int:
        return len(self._logs)

    def has(self, log_id: str, content_id: str | None = None) -> bool:
        """Whether a log was erased; with None for its content id, whether any of that name was."""
        if not self._logs:
            return False
        stone = self._logs.get(digest_of_log(log_id))
        return stone is not None and (content_id is None or content_id in stone.contents)


def check_purged(store: Store, place: str, *, part: str = "", folder: str = "") -> None:
    """Says of something that is missing that it was erased on purpose, where it was.

    Raises:
        PurgedError: it was.
    """
    try:
        stones = list(_tombstones(store))
    except MISSING:
        return
    for stone in stones:
        if part in stone.parts or folder in stone.folders:
            why = f" ({stone.reason})" if stone.reason else ""
            raise PurgedError(
                f"{place}: was purged{why}: a log that it held rows of was erased from all versions. Build "
                "again for a version without it, and open that"
            )
