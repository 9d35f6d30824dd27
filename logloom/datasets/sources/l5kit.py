"""Rows of an L5Kit dataset: a frame each, with its agents and lights."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from logloom.datasets.sources.base import Ints, RowSource, Stretches
from logloom.io.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.l5kit.rows import DatasetReader
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

    def _open(self) -> DatasetReader:
        return DatasetReader(self.place, self._storage)

    def rows(self, positions: Ints, names: Any) -> list[dict[str, Any]]:
        rows = super().rows(positions, names)
        if self._told is not None:
            numbers = self._told.number_of(positions).tolist()
            for row, number in zip(rows, numbers, strict=True):
                row["log_id"] = self._told.log_ids[number]
        return rows
