"""Samples of tar shards that others wrote: bytes by suffix, as the webdataset package gives them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.datasets.batches import Batch, stacked_rows
from logloom.datasets.sources.base import Ints, RowSource, Stretches
from logloom.io.storage import file_name_of
from logloom.io.tar.reader import TarReader
from logloom.schema import BYTES, Schema

KEY = "__key__"


class ShardsSource(RowSource):
    """A row is {"__key__": "098953", "jpg": bytes, …}; a shard is a log, called by its file's name."""

    has_stamps = False

    def __init__(self, place: str, uris: Sequence[str], storage_options: Mapping[str, Any]):
        """Opens nothing yet.

        Args:
            uris: of the shards, in row order.
        """
        self.place = place
        self._uris, self._storage = list(uris), storage_options

    @functools.cached_property
    def schema(self) -> Schema:
        return Schema(dict.fromkeys(self._suffixes, BYTES))

    @functools.cached_property
    def _suffixes(self) -> list[str]:
        return sorted({suffix for index in self._indices() for layout in index.layouts for suffix in layout})

    def _indices(self) -> list[Any]:
        indices: list[Any] = self.reader.indices
        return indices

    @functools.cached_property
    def stretches(self) -> Stretches:
        names = [file_name_of(uri).removesuffix(".tar") for uri in self._uris]
        return Stretches.of_logs(names, [len(index) for index in self._indices()])

    @property
    def stamps(self) -> None:
        return None

    @functools.cached_property
    def small(self) -> Mapping[str, Any]:
        return {"key": np.array([key for index in self._indices() for key in index.keys], object)}

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        return [self.reader.row(position, names) for position in positions.tolist()]

    def batch(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        return stacked_rows(self.rows(positions, names), {}, self.place, positions)

    def _open(self) -> TarReader:
        return TarReader(self._uris, storage_options=self._storage)
