"""Plain folders whose format opens them as units: rows of logs, and a schema that each unit knows.

Elsewhere: the formats (logloom.io.units.Format).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logloom.blocks import Block
from logloom.digests import digest_of
from logloom.errors import DatasetError, UsageError
from logloom.io.foreign.base import FolderKind, ForeignLog, LogRange
from logloom.io.foreign.files import content_of, walk
from logloom.io.storage import Store
from logloom.io.units import Reader
from logloom.schema import Schema


class UnitsDataset:
    """See `ForeignDataset`: a part for each log of a unit."""

    notes: tuple[str, ...] = ()

    def __init__(self, store: Store, form: FolderKind):
        """
        Raises:
            DatasetError: it is damaged.
            UsageError: units have different columns.
        """
        self.uri, self.kind = store.uri, form.kind or form.name
        self._store = store
        self._readers = readers_of(store, form)
        self.schema: Schema = self._readers[0].schema
        self.hints: Mapping[str, Mapping[str, Any]] = {}

    def logs(self) -> Sequence[ForeignLog]:
        """See `ForeignDataset.logs`."""
        content, size = content_of(self._store, walk(self._store, ("",)))
        parts: dict[str, list[LogRange]] = {}
        total = max(1, sum(map(len, self._readers)))
        for number, reader in enumerate(self._readers):
            first = 0
            for log_id, blocks in itertools.groupby(reader.blocks(()), lambda block: block.log_id):
                stamps = [stamp for block in blocks for stamp in block.timestamp.tolist()]
                identity = digest_of([content, number, first, len(stamps)])[:32]
                part = LogRange(
                    f"{number:06}",
                    stamps[0],
                    stamps[-1] + 1,
                    len(stamps),
                    identity,
                    (number, first),
                    size * len(stamps) // total,
                )
                parts.setdefault(log_id, []).append(part)
                first += len(stamps)
        return [
            ForeignLog(log_id, self.uri, _end_to_end(log_id, own, self.uri))
            for log_id, own in sorted(parts.items())
        ]

    def blocks(
        self, log_id: str, part: LogRange, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20
    ) -> Iterator[Block]:
        """See `ForeignDataset.blocks`."""
        number, first = part.where
        at = 0
        for block in self._readers[number].blocks(columns, max_bytes):
            low, high = max(first - at, 0), min(first + part.rows - at, len(block))
            if low < high:
                yield Block(log_id, part.name, at + low - first, block.take(slice(low, high)))
            at += len(block)


def readers_of(store: Store, form: FolderKind) -> list[Reader]:
    """The readers of a plain folder; at least one, all of one schema.

    Raises:
        DatasetError: it is damaged, or empty.
        UsageError: they differ.
    """
    readers = list(form.units(store))
    if not readers:
        raise DatasetError(f"{store.uri}: {form.name} without units")
    for number, reader in enumerate(readers):
        if reader.schema != readers[0].schema:
            raise UsageError(
                f"{store.uri}: unit {number} has other columns than the first; open them one by one"
            )
    return readers


def _end_to_end(log_id: str, parts: Sequence[LogRange], uri: str) -> tuple[LogRange, ...]:
    """The parts of a log, each until the next begins."""
    stops = [part.start for part in parts[1:]] + [parts[-1].stop]
    for part, stop in zip(parts, stops, strict=True):
        if stop < part.stop:
            raise DatasetError(f"{uri}: the times of log {log_id} don't ascend from unit to unit")
    return tuple(replace(part, stop=stop) for part, stop in zip(parts, stops, strict=True))
