"""L5Kit datasets as foreign ones: a log for each scene, a row for each frame.

Elsewhere: the arrays and how frames become rows (logloom.io.l5kit).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom.blocks import Block
from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.foreign.base import ForeignLog, LogRange
from logloom.io.foreign.files import content_of
from logloom.io.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.l5kit.options import MAPPED_HINTS
from logloom.io.l5kit.rows import L5KitReader
from logloom.io.storage import Store
from logloom.schema import Schema


class L5KitDataset:
    """See `ForeignDataset`. A scene's log_id is its number in nine digits."""

    kind = "l5kit"

    def __init__(self, store: Store):
        """Opens the scenes.

        Raises:
            DatasetError: it is damaged.
        """
        self.uri = store.uri
        self.schema: Schema = MAPPED_SCHEMA
        self._reader = L5KitReader(store.uri, store.options)
        self._content, self._size = content_of(store, _all_files(store))
        hosts = {str(host) for host in self._reader.dataset.scenes[:]["host"]}
        host = hosts.pop() if len(hosts) == 1 else "{log_id}"
        self.hints: Mapping[str, Mapping[str, Any]] = {"l5kit": {**MAPPED_HINTS, "host": host}}
        several = ("scenes are of several hosts, which rows don't hold",) if hosts else ()
        self.notes: tuple[str, ...] = several

    def logs(self) -> Sequence[ForeignLog]:
        """See `ForeignDataset.logs`."""
        reader = self._reader
        logs = []
        frames = max(1, len(reader))
        for scene, (first, last) in enumerate(reader.dataset.scenes[:]["frame_index_interval"].tolist()):
            log_id = f"{scene:09}"
            stamps = reader.dataset.frames[first:last]["timestamp"]
            parts: tuple[LogRange, ...] = ()
            if len(stamps):
                if (stamps[1:] <= stamps[:-1]).any():
                    raise DatasetError(f"{self.uri}: the times of scene {scene} don't ascend")
                identity = digest_of([self._content, scene])[:32]
                start, stop = int(stamps[0]), int(stamps[-1]) + 1
                size = self._size * len(stamps) // frames
                parts = (LogRange("scene", start, stop, len(stamps), identity, scene, size),)
            logs.append(ForeignLog(log_id, f"{self.uri}/{log_id}", parts))
        return logs

    def blocks(
        self, log_id: str, part: LogRange, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20
    ) -> Iterator[Block]:
        """See `ForeignDataset.blocks`."""
        return self._reader.log_blocks(part.where, columns, max_bytes)


def _all_files(store: Store) -> list[str]:
    arrays = ("scenes", "frames", "agents", "traffic_light_faces")
    return [f"{array}/{name}" for array in arrays for name in store.names(array)]
