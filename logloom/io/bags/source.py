"""Datapoints of bags that others wrote: a folder of bags, or folders 000000, 000001, … of them.

Images and videos stay bytes, as in every row of logloom; sequences are lists.
Elsewhere: the columns that a conversion makes of them (granular).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.batches import Batch, stacked_rows
from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.inference import type_of
from logloom.io import bags
from logloom.io.bags.files import SPEC
from logloom.io.bags.spec import is_sequence
from logloom.io.sources import RowSource
from logloom.io.storage import Store
from logloom.io.stretches import Ints, Stretches
from logloom.schema import BYTES, STRING, ColumnType, Schema

_DECODERS = {**bags.decoders, **dict.fromkeys(("jpg", "png", "mp4", "webm"), bytes)}
_INTEGERS = {"i64": np.int64, "int": np.int64, "u64": np.uint64}
_OBJECT = ColumnType(np.dtype("O"))


class _Decoders(dict[str, Any]):
    """Types that we don't know are bytes."""

    def __missing__(self, name: str) -> Any:
        return bytes


class DatapointsSource(RowSource):
    """A row is a datapoint; `log_id` and `timestamp` are what rows are grouped by, where there are such keys.

    Without them each folder of bags is a log, called by its name.
    """

    unknown = "bags, which have no checksums"

    def __init__(self, store: Store):
        """Reads the spec.

        Raises:
            DatasetError: there is no dataset, or it is damaged.
        """
        self.place, self._store = store.uri, store
        self._is_sharded = not store.exists(SPEC)
        self.spec: dict[str, str] = self.reader.spec
        self.has_stamps = self.spec.get("log_id") == "utf8" and self.spec.get("timestamp") == "i64"
        self._keys = ("log_id", "timestamp") if self.has_stamps else ()

    @functools.cached_property
    def schema(self) -> Schema:
        return Schema({key: self._type(key) for key in self.spec if key not in self._keys})

    def _type(self, key: str) -> ColumnType:
        name = self.spec[key]
        if is_sequence(name) or name in ("msgpack", "tree"):
            return _OBJECT
        if name == "utf8":
            return STRING
        if name in _INTEGERS:
            return ColumnType(np.dtype(_INTEGERS[name]))
        return self._array_type(key) if name == "array" else BYTES

    def _array_type(self, key: str) -> ColumnType:
        """Dtype and shape as the first datapoint has them; axes that differ in the last one are ragged."""
        if not len(self.reader):
            return _OBJECT
        first, last = (np.asarray(self.reader[number, (key,)][key]) for number in (0, -1))
        return type_of(first, last) or _OBJECT

    @functools.cached_property
    def stretches(self) -> Stretches:
        folders = self.reader.readers if self._is_sharded else [self.reader]
        if not self.has_stamps:
            name = self.place.rstrip("/").rsplit("/", 1)[-1]
            names = [f"{number:06d}" for number in range(len(folders))] if self._is_sharded else [name]
            return Stretches.of_logs(names, [len(folder) for folder in folders])
        return Stretches.of_rows(self._column("log_id"))

    @functools.cached_property
    def stamps(self) -> Ints | None:
        return np.array(self._column("timestamp"), np.int64) if self.has_stamps else None

    def _column(self, key: str) -> list[Any]:
        values: list[Any] = self.reader[0 : len(self.reader), (key,)].get(key, [])
        return values

    def _open(self) -> Any:
        kind = bags.ShardedDatasetReader if self._is_sharded else bags.DatasetReader
        return kind(self.place, _Decoders(_DECODERS), storage_options=self._store.options)

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        keys = (*self._keys, *names)
        return [self._row(position, keys) for position in positions.tolist()]

    def _row(self, position: int, keys: tuple[str, ...]) -> dict[str, Any]:
        found = self.reader[position, keys]
        row: dict[str, Any] = {key: found[key] for key in keys}
        for key in keys:
            dtype = _INTEGERS.get(self.spec[key])
            if dtype is not None:
                try:
                    row[key] = dtype(row[key])
                except OverflowError as error:
                    raise DatasetError(
                        f"{self.place}: {key} of datapoint {position} is {row[key]}, too large for 64 bits"
                    ) from error
        return row

    def batch(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        return stacked_rows(self.rows(positions, names), self.schema.all, self.place, positions)
