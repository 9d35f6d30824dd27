"""Rows of a zarr dataset: one that logloom wrote, or any group of arrays along one axis.

Elsewhere: reading our own (logloom.io.zarr); the others are read by zarr itself.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.datasets.batches import Batch
from logloom.datasets.sources.base import Ints, RowSource, Stretches
from logloom.errors import DatasetError, UsageError
from logloom.io.storage import Store, filesystem, is_local
from logloom.io.zarr.groups import ATTRIBUTE
from logloom.io.zarr.reader import ZarrReader
from logloom.schema import TIMESTAMP, ColumnType, Schema


def is_own(store: Store) -> bool:
    """Whether a zarr group is a dataset that logloom wrote."""
    names = [name for name in ("zarr.json", ".zattrs") if store.exists(name)]
    return bool(names) and f'"{ATTRIBUTE}"'.encode() in store.read(names[0])


class ZarrSource(RowSource):
    """The rows of a zarr dataset that logloom wrote."""

    def __init__(self, uri: str, storage_options: Mapping[str, Any], stretches: Stretches | None = None):
        """Opens nothing yet.

        Args:
            stretches: what a version's manifest says of the rows; None where there is none.
        """
        self.place = uri
        self._storage, self._told = storage_options, stretches

    @functools.cached_property
    def schema(self) -> Schema:
        schema: Schema = self.reader.schema
        return schema

    @functools.cached_property
    def stretches(self) -> Stretches:
        logs: dict[str, int] = self.reader.logs
        return Stretches.of_logs(list(logs), list(logs.values())) if self._told is None else self._told

    @functools.cached_property
    def stamps(self) -> Ints:
        logs = [self.reader.log(log_id) for log_id in self.reader.logs]
        found: list[Any] = [log.take("timestamp", TIMESTAMP, np.arange(len(log))) for log in logs]
        return np.concatenate([np.empty(0, np.int64), *found])

    def _open(self) -> Any:
        return self._checked(ZarrReader(self.place, storage_options=self._storage), self._told)


class ArraysSource(RowSource):
    """Row i is entry i of each array of a zarr group: what others, such as xarray, wrote."""

    has_stamps = False

    def __init__(self, uri: str, storage_options: Mapping[str, Any], columns: Sequence[str] | None):
        """Opens nothing yet.

        Args:
            columns: names of arrays, needed where a group's arrays are of several lengths.
        """
        self.place = uri
        self._storage = storage_options
        self._wanted = [columns] if isinstance(columns, str) else columns

    @functools.cached_property
    def schema(self) -> Schema:
        return Schema(
            {
                name: ColumnType(array.dtype, array.shape[1:])
                for name, array in self.reader.items()
                if array.dtype.kind in "biufcSUV"
            }
        )

    @functools.cached_property
    def stretches(self) -> Stretches:
        return Stretches.of_logs([Store.at(self.place).uri.rsplit("/", 1)[-1]], [self._num_rows])

    @functools.cached_property
    def _num_rows(self) -> int:
        return next(int(array.shape[0]) for array in self.reader.values())

    @property
    def stamps(self) -> None:
        return None

    def _open(self) -> dict[str, Any]:
        import zarr

        try:
            group: Any = zarr.open_group(self._zarr_store(), mode="r")
            arrays = {name: array for name, array in sorted(group.arrays()) if array.ndim}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DatasetError(f"{self.place}: no zarr group that can be read ({error})") from error
        if self._wanted is not None:
            import fnmatch

            arrays = {
                name: array
                for name, array in arrays.items()
                if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._wanted)
            } or arrays
        lengths = {name: array.shape[0] for name, array in arrays.items()}
        if not arrays:
            raise UsageError(f"{self.place}: a zarr group without arrays has no rows")
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise UsageError(
                f"{self.place}: its arrays differ in length ({told}), so it isn't clear what a row is; name "
                "those of one length: columns=[…]"
            )
        return arrays

    def _zarr_store(self) -> Any:
        if is_local(self.place):
            return self.place.split("://", 1)[-1]
        from zarr.storage import FsspecStore

        fs, path = filesystem(self.place, {**self._storage})
        return FsspecStore.from_mapper(fs.get_mapper(path), read_only=True)

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        batch = self.batch(positions, names)
        return [{name: values[row] for name, values in batch.items()} for row in range(len(positions))]

    def batch(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        batch: Batch = {}
        rows, back = np.unique(positions, return_inverse=True)
        for name in names:
            array = self.reader[name]
            first, last = int(rows[0]), int(rows[-1])
            if last - first + 1 == len(rows):
                found = np.asarray(array[first : last + 1])
            else:
                found = np.asarray(array.oindex[rows])
            batch[name] = found if np.array_equal(back, np.arange(len(rows))) else found[back]
        return batch
