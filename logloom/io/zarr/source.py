"""Rows of zarr groups that others wrote: of arrays along one axis, or of groups of such.

Elsewhere: our own datasets (reader); others' as a conversion takes them (foreign).
"""

from __future__ import annotations

import fnmatch
import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.batches import Batch
from logloom.blocks import Array
from logloom.errors import DatasetError, UsageError
from logloom.io.chained import ChainedSource
from logloom.io.sources import RowSource
from logloom.io.storage import Store
from logloom.io.stretches import Ints, Stretches
from logloom.io.zarr.others import along_rows, find_groups
from logloom.schema import BYTES, STRING, ColumnType, Schema

_FIRST_ROWS = 64  # of a block, before anything is known of the size of a row


def open_arrays(store: Store, columns: Sequence[str] | None) -> RowSource:
    """A group that others wrote: of arrays, or of groups with the same arrays, of which each is a log.

    Args:
        columns: names of arrays, needed where a group's arrays are of several lengths, or groups differ.

    Raises:
        DatasetError: it can't be read.
        UsageError: it holds no arrays, or it isn't clear what a row is.
    """
    uri = store.uri
    paths, unreadable = find_groups(store)
    parts = [ArraysSource(Store(store.uri_of(path), store.options), columns, path) for path in paths]
    lacking = unreadable | {name: why for part in parts for name, why in part.unreadable.items()}
    if columns is not None:
        lacking = {name: why for name, why in lacking.items() if _matches(name.rsplit("/", 1)[-1], columns)}
    if lacking:
        told = "; ".join(f"{name}: {why}" for name, why in sorted(lacking.items()))
        warnings.warn(
            f"{uri}: left out, since they can't be opened: {told[:2000]}. Choose others by columns=[…]",
            stacklevel=6,
        )
    for part in parts:
        part.others = unreadable
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

    def __init__(self, store: Store, columns: Sequence[str] | None, log_id: str = ""):
        """Opens nothing yet.

        Args:
            log_id: what the group is called among others; by default its folder's name.
        """
        self.place = store.uri
        self._store, self._wanted = store, columns
        self._log_id = log_id or store.uri.rsplit("/", 1)[-1]
        self.others: Mapping[str, str] = {}  # beside this group's arrays, what can't be opened

    @functools.cached_property
    def schema(self) -> Schema:
        types = {name: _type_of(array) for name, array in self._along_rows.items()}
        return Schema({name: ctype for name, ctype in types.items() if ctype is not None})

    @property
    def unreadable(self) -> dict[str, str]:
        """Arrays of types that no column has, and what they are."""
        odd = set(self._along_rows) - set(self.schema.columns)
        return {name: f"values of type {self._along_rows[name].dtype}" for name in sorted(odd)}

    @property
    def left_out(self) -> Mapping[str, str]:  # type: ignore[override]
        """Arrays that are no columns, and why."""
        others = {name: array for name, array in self.reader.items() if name not in self._along_rows}
        return {**self.others, **self.unreadable} | {
            name: "the coordinate of another axis" if array.ndim else "a scalar, no entry for each row"
            for name, array in others.items()
        }

    @functools.cached_property
    def _along_rows(self) -> dict[str, Any]:
        return along_rows(self.reader, self.place)

    @functools.cached_property
    def stretches(self) -> Stretches:
        return Stretches.of_logs([self._log_id], [self._num_rows])

    @functools.cached_property
    def _num_rows(self) -> int:
        return next(int(array.shape[0]) for array in self._along_rows.values())

    @property
    def stamps(self) -> None:
        return None

    def _open(self) -> dict[str, Any]:
        arrays: dict[str, Any] = find_groups(self._store)[0][""]
        if self._wanted is not None:
            chosen = {name: array for name, array in arrays.items() if _matches(name, self._wanted)}
            return chosen or arrays  # whoever picks columns tells of typos
        return arrays

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        batch = self.batch(positions, names)
        return [{name: values[row] for name, values in batch.items()} for row in range(len(positions))]

    def batch(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        rows, back = np.unique(positions, return_inverse=True)
        is_sorted = np.array_equal(back, np.arange(len(rows)))
        batch: Batch = {}
        for name in names:
            found = self._read(name, rows)
            found = found if is_sorted else found[back]
            ctype = self.schema.columns[name]
            if ctype.kind != "array":
                batch[name] = found.tolist()
            else:
                batch[name] = found.astype(object) if ctype.dtype.kind == "O" else found
        return batch

    def _read(self, name: str, rows: Ints) -> Array:
        """The given rows of an array, ascending."""
        array, first, last = self.reader[name], int(rows[0]), int(rows[-1])
        try:
            if last - first + 1 == len(rows):
                return np.asarray(array[first : last + 1])
            return np.asarray(array.oindex[rows])
        except Exception as error:  # each codec has errors of its own
            raise DatasetError(
                f"{self.place}/{name}: rows {first} to {last} can't be read ({type(error).__name__}: {error})"
            ) from error


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _type_of(array: Any) -> ColumnType | None:
    """The type of the column that an array is; None where it can't be one."""
    from zarr.dtype import VariableLengthBytes, VariableLengthUTF8

    stored = getattr(array.metadata, "data_type", None) or array.metadata.dtype
    texts = {VariableLengthUTF8: STRING, VariableLengthBytes: BYTES}
    if type(stored) in texts:
        return texts[type(stored)] if array.ndim == 1 else ColumnType(np.dtype("O"), array.shape[1:])
    if array.dtype.kind not in "biufcSUVmM":
        return None
    return ColumnType(array.dtype, array.shape[1:])
