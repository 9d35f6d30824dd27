"""`L5KitReader`: one row per frame of an L5Kit dataset, with agents and lights.

Elsewhere: the arrays, and conversion of frames to rows (rows).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from logloom.blocks import Array, Block, Ragged
from logloom.caching import cached_property
from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.formats.l5kit.chunked_dataset import ChunkedDataset
from logloom.io.formats.l5kit.dtypes import ARRAYS
from logloom.io.formats.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.formats.l5kit.options import MAPPED_HINTS
from logloom.io.formats.l5kit.rows import (
    INTERVALS,
    ReadRows,
    check_fields,
    read_blocks,
    rows_of,
    select_columns,
)
from logloom.io.rows.batches import Batch
from logloom.io.rows.log_ranges import Ints, LogRange, SourceLog, Stretches
from logloom.io.rows.sources import BLOCK_BYTES, About, DatasetSource, check_count
from logloom.io.storage.folders import content_of


class L5KitReader(DatasetSource):
    """Frames as rows. A scene is a log, named by its number in nine digits unless a manifest names it.

    So rows are in the order of frames. Caches compressed chunks, pickles without them, serves many threads.
    """

    kind = "l5kit"
    _schema = MAPPED_SCHEMA

    def _unchecked(self) -> str:
        self._opened  # noqa: B018 # raises what is wrong with it
        return "the files of an L5Kit dataset, which have no checksums"

    @property
    def _dataset(self) -> ChunkedDataset:
        return self._opened[0]

    @property
    def _own(self) -> Stretches:
        return self._opened[1]

    @cached_property
    def stamps(self) -> Ints:
        return np.asarray(self._dataset.frames["timestamp"], np.int64)[: len(self)]

    @cached_property
    def _opened(self) -> tuple[ChunkedDataset, Stretches]:
        """The arrays, and the scenes as logs."""
        dataset = ChunkedDataset(self.place, storage_options=self._store.options).open()
        check_fields(dataset)
        bounds = np.asarray(dataset.scenes["frame_index_interval"], np.int64).reshape(-1, 2)
        starts, stops = bounds[:, 0], bounds[:, 1]
        expected = np.concatenate([[0], stops[:-1]]) if len(stops) else stops
        if (starts != expected).any() or (stops < starts).any() or (stops > len(dataset.frames)).any():
            raise DatasetError(f"{dataset.path}: the scenes' frames don't follow one another")
        own = Stretches.of_logs([f"{n:09}" for n in range(len(bounds))], (stops - starts).tolist())
        check_count(self.place, own.num_rows, self._known)
        return dataset, own

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """Read frames, each once; agents and lights of consecutive frames in one read."""
        dataset = self._dataset
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
                column = _ragged(rows_of(dataset), name, intervals).take(back)
                batch[name] = (column.values, column.shapes[:, 0])
            else:
                batch[name] = frames[name][back]
        return batch

    @property
    def about(self) -> About:
        hosts = sorted({str(host) for host in self._dataset.scenes[:]["host"]})
        host = hosts[0] if len(hosts) == 1 else "{log_id}"
        notes = ("scenes are of several hosts, which rows don't contain",) if len(hosts) > 1 else ()
        return replace(super().about, notes=notes, hints={"l5kit": {**MAPPED_HINTS, "host": host}})

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
                parts = [LogRange("scene", start, end, len(stamps), identity, first, share)]
            logs.append(SourceLog.of(log_id, f"{self.place}/{log_id}", parts))
        return logs

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        for log_id, first, last in self.stretches.between(start, stop):
            read = rows_of(self._dataset)
            for block in read_blocks(read, first, last, log_id, "scene", self.place, max_bytes):
                yield select_columns(block, names)


def _ragged(read: ReadRows, name: str, intervals: Ints) -> Ragged:
    """The agents or lights of some frames, by their (n, 2) intervals."""
    cuts = np.flatnonzero(intervals[1:, 0] != intervals[:-1, 1]) + 1
    runs = itertools.pairwise([0, *cuts.tolist(), len(intervals)])
    parts = [read(name, int(intervals[first, 0]), int(intervals[last - 1, 1])) for first, last in runs]
    return Ragged(np.concatenate(parts), intervals[:, 1] - intervals[:, 0])
