"""Rows of an L5Kit dataset: a frame each, with its agents and lights.

Elsewhere: the arrays, and how frames become rows (rows).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.batches import Batch, rows_of
from logloom.blocks import Array, Block, Ragged
from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.folders import content_of
from logloom.io.l5kit.dtypes import ARRAYS
from logloom.io.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.l5kit.options import MAPPED_HINTS
from logloom.io.l5kit.rows import INTERVALS, L5KitReader, ReadRows
from logloom.io.l5kit.rows import rows_of as rows_of_arrays
from logloom.io.sources import RowSource
from logloom.io.storage import Store
from logloom.io.stretches import Ints, LogRange, SourceLog, Stretches
from logloom.schema import Schema


class L5KitSource(RowSource):
    """Frames as rows. A scene is a log, called by its number in nine digits unless a manifest tells more."""

    kind = "l5kit"

    def __init__(self, store: Store, told: Stretches | None = None):
        """Opens nothing yet.

        Args:
            told: what a version's manifest says of the rows; None where there is none.
        """
        self.place = store.uri
        self._store, self._told = store, told
        self.unknown = "" if told is not None else "the files of an L5Kit dataset, which have no checksums"

    @property
    def schema(self) -> Schema:
        return MAPPED_SCHEMA

    @functools.cached_property
    def stretches(self) -> Stretches:
        if self._told is not None:
            return self._told
        scenes = self.reader.dataset.scenes["frame_index_interval"]
        counts = np.diff(np.asarray(scenes, np.int64).reshape(-1, 2)).reshape(-1).tolist()
        return Stretches.of_logs([f"{scene:09}" for scene in range(len(counts))], counts)

    @functools.cached_property
    def stamps(self) -> Ints:
        return np.asarray(self.reader.dataset.frames["timestamp"], np.int64)[: len(self)]

    def _open(self) -> Any:
        return self._checked(L5KitReader(self.place, self._store.options), self._told)

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        return rows_of(self.batch(positions, names), len(positions))

    def batch(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """Frames, each read once; agents and lights of frames that follow each other in one read."""
        dataset = self.reader.dataset
        unique, back = np.unique(positions, return_inverse=True)
        frames = dataset.frames[unique]
        stretches = self.stretches
        batch: Batch = {
            "log_id": [stretches.log_ids[number] for number in stretches.number_of(positions).tolist()],
            "timestamp": frames["timestamp"][back],
        }
        for name in names:
            if name in INTERVALS:
                intervals = frames[INTERVALS[name]]
                if (backwards := intervals[:, 1] < intervals[:, 0]).any():
                    frame = int(unique[backwards.argmax()])
                    raise DatasetError(f"{self.place}: the {name} of frame {frame} end before they begin")
                column = _ragged(rows_of_arrays(dataset), name, intervals).take(back)
                batch[name] = (column.values, column.shapes[:, 0])
            else:
                batch[name] = frames[name][back]
        return batch

    @functools.cached_property
    def _hosts(self) -> list[str]:
        return sorted({str(host) for host in self.reader.dataset.scenes[:]["host"]})

    @property
    def hints(self) -> Mapping[str, Mapping[str, Any]]:
        host = self._hosts[0] if len(self._hosts) == 1 else "{log_id}"
        return {"l5kit": {**MAPPED_HINTS, "host": host}}

    @property
    def notes(self) -> tuple[str, ...]:
        return ("scenes are of several hosts, which rows don't hold",) if len(self._hosts) > 1 else ()

    def logs(self) -> Sequence[SourceLog]:
        """See `RowSource.logs`: a part for each scene that has frames."""
        folders = [kind.key for kind in ARRAYS.values()]
        names = [f"{array}/{name}" for array in folders for name in self._store.names(array)]
        content, size = content_of(self._store, names)
        logs = []
        for scene, (log_id, first, stop) in enumerate(self.stretches.spans()):
            stamps = self.stamps[first:stop]
            parts = []
            if len(stamps):
                if (stamps[1:] <= stamps[:-1]).any():
                    raise DatasetError(f"{self.place}: the times of scene {scene} don't ascend")
                identity = digest_of([content, scene])[:32]
                start, end = int(stamps[0]), int(stamps[-1]) + 1
                share = size * len(stamps) // len(self)
                parts = [LogRange("scene", start, end, len(stamps), identity, scene, share)]
            logs.append(SourceLog.of(log_id, f"{self.place}/{log_id}", parts))
        return logs

    def blocks(
        self, log_id: str, part: LogRange, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20
    ) -> Iterator[Block]:
        """See `RowSource.blocks`."""
        blocks: Iterator[Block] = self.reader.log_blocks(part.where, columns, max_bytes)
        return blocks


def _ragged(read: ReadRows, name: str, intervals: Ints) -> Ragged:
    """The agents or lights of some frames, by their (n, 2) intervals."""
    cuts = np.flatnonzero(intervals[1:, 0] != intervals[:-1, 1]) + 1
    runs = itertools.pairwise([0, *cuts.tolist(), len(intervals)])
    parts = [read(name, int(intervals[first, 0]), int(intervals[last - 1, 1])) for first, last in runs]
    return Ragged(np.concatenate(parts), intervals[:, 1] - intervals[:, 0])
