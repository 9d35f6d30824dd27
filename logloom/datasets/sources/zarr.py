"""Rows of a zarr dataset: one that logloom wrote, any group of arrays along one axis, or groups of such.

Elsewhere: reading our own (logloom.io.zarr); the others are read by zarr itself.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.datasets.batches import Batch
from logloom.datasets.sources.base import ChainedSource, Ints, RowSource, Stretches
from logloom.errors import UsageError
from logloom.io.storage import Store
from logloom.io.zarr.others import along_rows, open_groups
from logloom.io.zarr.reader import ZarrReader
from logloom.schema import TIMESTAMP, ColumnType, Schema


class ZarrSource(RowSource):
    """The rows of a zarr dataset that logloom wrote."""

    def __init__(self, uri: str, storage_options: Mapping[str, Any], stretches: Stretches | None = None):
        """Opens nothing yet.

        Args:
            stretches: what a version's manifest says of the rows; None where there is none.
        """
        self.place = uri
        self._storage, self._told = storage_options, stretches
        if stretches is None:
            self.unknown = (
                "zarr.json of zarr format 3 (its chunks have checksums)"
                if self.reader.format == 3
                else "the files of zarr format 2, which have no checksums"
            )

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


def open_arrays(
    uri: str, storage_options: Mapping[str, Any], columns: str | Sequence[str] | None
) -> RowSource:
    """A group that others wrote: of arrays, or of groups with the same arrays, of which each is a log.

    Args:
        columns: names of arrays, needed where a group's arrays are of several lengths, or groups differ.

    Raises:
        DatasetError: it can't be read.
        UsageError: it holds no arrays, or it isn't clear what a row is.
    """
    wanted = [columns] if isinstance(columns, str) else columns
    paths = list(open_groups(Store.at(uri, storage_options)))
    parts = [ArraysSource(f"{uri}/{path}" if path else uri, storage_options, wanted, path) for path in paths]
    if len(parts) == 1:
        return parts[0]
    schema = parts[0].schema
    for part in parts[1:]:
        if part.schema != schema:
            mine, others = ({f"{n}: {t}" for n, t in s.columns.items()} for s in (part.schema, schema))
            raise UsageError(
                f"{uri}: its groups differ ({', '.join(sorted(others ^ mine)[:6])} in {parts[0].place} or "
                f"{part.place} alone), so they aren't logs of one dataset; name the arrays that all have: "
                "columns=[…], or open one group"
            )
    return ChainedSource(uri, parts, schema, None)


class ArraysSource(RowSource):
    """Row i is entry i of each array of a zarr group: what others, such as xarray, wrote."""

    has_stamps = False
    unknown = "zarr arrays whose codecs have no checksum"

    def __init__(
        self, uri: str, storage_options: Mapping[str, Any], columns: Sequence[str] | None, log_id: str = ""
    ):
        """Opens nothing yet.

        Args:
            log_id: what the group is called among others; by default its folder's name.
        """
        self.place = uri
        self._storage, self._wanted = storage_options, columns
        self._log_id = log_id or uri.rsplit("/", 1)[-1]

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
        return Stretches.of_logs([self._log_id], [self._num_rows])

    @functools.cached_property
    def _num_rows(self) -> int:
        return next(int(array.shape[0]) for array in self.reader.values())

    @property
    def stamps(self) -> None:
        return None

    def _open(self) -> dict[str, Any]:
        arrays = open_groups(Store.at(self.place, self._storage))[""]
        if self._wanted is not None:
            patterns = self._wanted
            chosen = [name for name in arrays if any(fnmatch.fnmatchcase(name, one) for one in patterns)]
            arrays = {name: arrays[name] for name in chosen} or arrays  # whoever picks columns tells of typos
        return along_rows(arrays, self.place)

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
