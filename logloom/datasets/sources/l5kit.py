"""Rows of an L5Kit dataset: a frame each, with its agents and lights."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Ragged
from logloom.datasets.batches import Batch, rows_of
from logloom.datasets.sources.base import Ints, RowSource, Stretches
from logloom.errors import DatasetError
from logloom.io.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.l5kit.rows import INTERVALS, L5KitReader, ReadRows
from logloom.io.l5kit.rows import rows_of as rows_of_arrays
from logloom.schema import Schema


class L5KitSource(RowSource):
    """Frames as rows. A scene is a log, called by its number in nine digits unless a manifest tells more."""

    def __init__(self, uri: str, storage_options: Mapping[str, Any], stretches: Stretches | None = None):
        """Opens nothing yet.

        Args:
            stretches: what a version's manifest says of the rows; None where there is none.
        """
        self.place = uri
        self._storage, self._told = storage_options, stretches
        self.unknown = (
            "" if stretches is not None else "the files of an L5Kit dataset, which have no checksums"
        )

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
        return self._checked(L5KitReader(self.place, self._storage), self._told)

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


def open_rows(
    uri: str,
    storage_options: Mapping[str, Any],
    told: Stretches | None = None,
    columns: Sequence[str] | None = None,
) -> RowSource:
    """See `OpenRows` in logloom.datasets.sources.base."""
    return L5KitSource(uri, storage_options, told)


def _ragged(read: ReadRows, name: str, intervals: Ints) -> Ragged:
    """The agents or lights of some frames, by their (n, 2) intervals."""
    cuts = np.flatnonzero(intervals[1:, 0] != intervals[:-1, 1]) + 1
    runs = itertools.pairwise([0, *cuts.tolist(), len(intervals)])
    parts = [read(name, int(intervals[first, 0]), int(intervals[last - 1, 1])) for first, last in runs]
    return Ragged(np.concatenate(parts), intervals[:, 1] - intervals[:, 0])
