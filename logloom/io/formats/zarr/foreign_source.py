"""Rows of foreign zarr groups: arrays along one axis, or groups of such arrays.

Training reads entries as they are stored; conversions, which need types, read them as `RawRows`.
Elsewhere: datasets that logloom wrote (reader), which arrays hold rows (foreign_groups), the columns that
values become (cf_conventions).
"""

from __future__ import annotations

import contextlib
import fnmatch
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.formats.chunk_files import MAX_CHUNK_BYTES
from logloom.io.formats.zarr.cf_conventions import Decoding, column_of, decoding_of, times_as_int64
from logloom.io.formats.zarr.foreign_groups import FILES, Groups, along_rows, dimensions_of, find_groups
from logloom.io.rows.batches import Batch, scattered
from logloom.io.rows.chain import grouped
from logloom.io.rows.inference.files import LOG_ID, DatasetPiece, RawRows, absent
from logloom.io.rows.inference.files import Batch as RawBatch
from logloom.io.rows.inference.types import RawColumn, UnfitValuesError
from logloom.io.rows.log_ranges import Ints, Stretches
from logloom.io.rows.sources import RowSource, joined_bounds, row_ranges
from logloom.io.storage.filesystems import explained
from logloom.io.storage.folders import content_of, files_below
from logloom.io.storage.store import Store
from logloom.schema import BYTES, STRING, ColumnType, Schema
from logloom.text import some_of

_PIECE_BYTES = 256 << 20


def open_arrays(store: Store, columns: Sequence[str] | None) -> ArraysSource:
    """Open a foreign group: of arrays, or of groups with the same arrays, each of which is a log.

    Args:
        columns: names of arrays, needed if a group's arrays are of several lengths, or groups differ.

    Raises:
        DatasetError: it can't be read.
        UsageError: it has no arrays, one of those named can't be read, or it isn't clear what a row is.
    """
    source = ArraysSource(store, columns)
    if named := [name for name in source.refused if name.rsplit("/", 1)[-1] in (columns or ())]:
        raise UsageError(
            "\n".join(f"{source.place}: column {name}: {source.refused[name]}" for name in named)
        )
    source.schema  # noqa: B018 # raises where groups differ
    return source


class ArraysSource(RowSource, RawRows):
    """Row i is entry i of each array of a foreign zarr group, such as xarray's.

    Each of several groups is a log of its name. A piece is a range of a group's rows that cuts no chunk.
    """

    kind = "zarr"
    has_stamps = False
    unknown = "zarr arrays whose codecs have no checksum"

    def __init__(self, store: Store, columns: Sequence[str] | None = None):
        """Opens the groups.

        Args:
            columns: names or globs of the arrays of rows; conversions choose theirs later.

        Raises:
            DatasetError: there is no group, or a damaged one.
            UsageError: there are no arrays.
        """
        self.place, self._store, self._wanted = store.uri, store, columns
        self.reader  # noqa: B018 # raises what is wrong with it

    @cached_property
    def _opened(self) -> dict[int, tuple[Groups, dict[str, str]]]:
        return {}

    @property
    def reader(self) -> tuple[Groups, dict[str, str]]:
        """The result of `find_groups` in this process: arrays that zarr opened don't cross a fork."""
        pid = os.getpid()
        if pid not in self._opened:
            self._opened[pid] = find_groups(self._store)
        return self._opened[pid]

    # --- as they are there ------------------------------------------------------------------------------

    @cached_property
    def _groups(self) -> Groups:
        """The arrays along the rows, of those that are wanted."""
        return {path: along_rows(self._named(path), self._store.uri_of(path)) for path in self.reader[0]}

    def _named(self, path: str) -> dict[str, Any]:
        arrays: dict[str, Any] = self.reader[0][path]
        if self._wanted is None:
            return arrays
        chosen = {name: array for name, array in arrays.items() if _matches(name, self._wanted)}
        return chosen or arrays  # the caller reports names that match nothing

    @cached_property
    def schema(self) -> Schema:
        """
        Raises:
            UsageError: groups differ.
        """
        (first, schema), *others = (
            (path, self._schema_of(path, arrays)) for path, arrays in self._groups.items()
        )
        for path, other in others:
            if other != schema:
                mine, theirs = ({f"{n}: {t}" for n, t in s.columns.items()} for s in (other, schema))
                raise UsageError(
                    f"{self.place}: its groups differ ({some_of(sorted(theirs ^ mine), 6)} in "
                    f"{self._store.uri_of(first)} or {self._store.uri_of(path)} alone), so they aren't logs "
                    "of one dataset; name the arrays that all have: columns=[…], or open one group"
                )
        return schema

    @property
    def unreadable(self) -> dict[str, str]:
        """Arrays that zarr can't open, or of types that no column has, by path, with the reason."""
        odd = {}
        for path, arrays in self._groups.items():
            for name, array in arrays.items():
                try:
                    if _type_of(array, self._decoding(path, name)) is None:
                        odd[name] = f"values of type {array.dtype}"
                except UnfitValuesError as error:
                    odd[name] = str(error)
        return {**self.reader[1], **odd}

    def _schema_of(self, path: str, arrays: Mapping[str, Any]) -> Schema:
        types = {}
        for name, array in arrays.items():
            with contextlib.suppress(UnfitValuesError):
                types[name] = _type_of(array, self._decoding(path, name))
        return Schema({name: ctype for name, ctype in types.items() if ctype is not None})

    def _decoding(self, path: str, name: str) -> Decoding:
        """The decoding of an array's values.

        Raises:
            UnfitValuesError: they can't be.
        """
        key = path, name
        if key not in self._decodings:
            array = self.reader[0][path][name]
            try:
                self._decodings[key] = decoding_of(array, bool(dimensions_of(array)))
            except UnfitValuesError as error:
                self._decodings[key] = error
        found = self._decodings[key]
        if isinstance(found, UnfitValuesError):
            raise found
        return found

    @cached_property
    def _decodings(self) -> dict[tuple[str, str], Decoding | UnfitValuesError]:
        return {}

    @property
    def refused(self) -> Mapping[str, str]:  # type: ignore[override]
        """Of `unreadable`, those that may be wanted."""
        found = self.unreadable
        if self._wanted is None:
            return found
        return {name: why for name, why in found.items() if _matches(name.rsplit("/", 1)[-1], self._wanted)}

    @property
    def left_out(self) -> Mapping[str, str]:  # type: ignore[override]
        """Arrays that are no columns, with the reason."""
        return self.unreadable | {
            name: "the coordinate of another axis" if array.ndim else "a scalar, no entry for each row"
            for path, rows in self._groups.items()
            for name, array in self._named(path).items()
            if name not in rows
        }

    @cached_property
    def stretches(self) -> Stretches:
        name = self.place.rsplit("/", 1)[-1]
        rows = [int(next(iter(arrays.values())).shape[0]) for arrays in self._groups.values()]
        return Stretches.of_logs([path or name for path in self._groups], rows)

    @property
    def stamps(self) -> None:
        return None

    def group_bounds(self, names: Sequence[str]) -> Ints:
        """See `RowSource.group_bounds`: whole chunks, or shards, of the array whose chunks are largest."""
        bounds = []
        for arrays in self._groups.values():
            named = [arrays[name] for name in names] or list(arrays.values())
            largest = max(named, key=lambda array: _row_bytes(array) * _entries(array))
            rows, row_bytes = int(largest.shape[0]), sum(map(_row_bytes, named))
            bounds.append(row_ranges(rows, row_bytes, max(1, _entries(largest))))
        return joined_bounds(bounds)

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        paths = list(self._groups)
        found = [
            (where, self._batch(paths[number], own, names))
            for number, where, own in grouped(self.stretches.bounds, positions)
        ]
        return found[0][1] if len(found) == 1 else scattered(found, len(positions), out)

    def _batch(self, path: str, positions: Ints, names: Sequence[str]) -> Batch:
        rows, back = np.unique(positions, return_inverse=True)
        is_sorted = np.array_equal(back, np.arange(len(rows)))
        batch: Batch = {}
        for name in names:
            found = self._read(path, name, rows)
            found = found if is_sorted else found[back]
            ctype = self.schema.columns[name]
            if ctype.kind != "array":
                batch[name] = found.tolist()
            else:
                batch[name] = found.astype(object) if ctype.dtype.kind == "O" else found
        return batch

    def _read(self, path: str, name: str, rows: Ints) -> Array:
        """Read rows of an array, ascending."""
        array, first, stop = self.reader[0][path][name], int(rows[0]), int(rows[-1]) + 1
        place = f"{self._store.uri_of(path)}/{name}"
        try:
            with explained(place):
                stored = array[first:stop] if stop - first == len(rows) else array.oindex[rows]
                return times_as_int64(self._decoding(path, name).decode(np.asarray(stored)))
        except LogloomError:
            raise
        except UnfitValuesError as error:
            raise DatasetError(
                f"{place}: rows {first} to {stop}: {error}; leave it out by --columns"
            ) from error
        except Exception as error:  # each codec has errors of its own
            why = f"{type(error).__name__}: {error}"
            raise DatasetError(f"{place}: rows {first} to {stop} can't be read ({why})") from error

    # --- for conversions --------------------------------------------------------------------------------

    def _chosen(self, path: str, names: Sequence[str] | None) -> tuple[dict[str, Any], dict[str, str]]:
        """The arrays of a group's rows that can be read, and why others can't.

        Raises:
            DatasetError: a group has none of the named arrays.
            UsageError: none of them can be read.
        """
        uri, refused = self._store.uri_of(path), self._refused_of(path)
        arrays = {name: array for name, array in self.reader[0][path].items() if array.ndim}
        if names is not None:
            arrays = {name: arrays[name] for name in names if name in arrays}
            refused = {name: why for name, why in refused.items() if name in names}
        rows = along_rows(arrays, uri)
        for name, array in rows.items():
            try:
                self._decoding(path, name)
            except UnfitValuesError as error:
                refused[name] = str(error)
            if (nbytes := _row_bytes(array) * array.chunks[0]) > MAX_CHUNK_BYTES:
                refused[name] = f"chunks of {nbytes:,} bytes, at most {MAX_CHUNK_BYTES:,} are read"
        found = {name: array for name, array in rows.items() if name not in refused}
        if not found and refused:
            raise UsageError("\n".join(f"{uri}: column {name}: {why}" for name, why in refused.items()))
        if not found:
            raise DatasetError(f"{uri}: there is no array {some_of(list(names or ()))}")
        return found, refused

    def _refused_of(self, path: str) -> dict[str, str]:
        """Arrays of a group that zarr can't open, and why."""
        found = {}
        for place, why in self.reader[1].items():
            folder, _, name = place.rpartition("/")
            if folder == path:
                found[name] = f"no zarr array that can be read ({why})"
        return found

    def names(self) -> Sequence[str]:
        """Of the arrays of all groups."""
        found: dict[str, None] = {}
        for path, arrays in self.reader[0].items():
            found |= dict.fromkeys(name for name, array in arrays.items() if array.ndim)
            found |= dict.fromkeys(self._refused_of(path))
        return list(found)

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        return [piece for path in self.reader[0] for piece in self._pieces_of(path, names)]

    def _pieces_of(self, path: str, names: Sequence[str] | None) -> list[DatasetPiece]:
        (arrays, _), uri = self._chosen(path, names), self._store.uri_of(path)
        rows = int(next(iter(arrays.values())).shape[0])
        chunk, row_bytes = _weights(arrays)
        step = chunk * max(1, _PIECE_BYTES // (chunk * row_bytes))
        folders = [f"{path}/{name}".lstrip("/") for name in arrays]
        metadata = [name for name in FILES if self._store.exists(name)]
        content, size = content_of(self._store, metadata + files_below(self._store, folders))
        return [
            DatasetPiece(
                f"{uri}: rows {first} to {stop}", (path, first, stop), content, size * (stop - first) // rows
            )
            for first, stop in ((first, min(first + step, rows)) for first in range(0, rows, step))
        ]

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[RawBatch]:
        path, first, stop = piece.where
        arrays, refused = self._chosen(path, names)
        chunk, row_bytes = _weights(arrays)
        step = min(chunk, max(1, max_bytes // row_bytes))
        for start in range(first, stop, step):
            rows = np.arange(start, min(start + step, stop))
            batch = {name: self._column(path, name, rows) for name in arrays}
            for name, why in refused.items():
                batch[name] = RawColumn([None] * len(rows), problem=why)
            for name in names or ():
                if name not in batch and name != LOG_ID:
                    batch[name] = absent(len(rows))
            if len(self.reader[0]) > 1 and LOG_ID not in batch:
                batch[LOG_ID] = RawColumn([path] * len(rows), STRING)
            yield batch

    def _column(self, path: str, name: str, rows: Ints) -> RawColumn:
        try:
            return column_of(self._read(path, name, rows), self._decoding(path, name))
        except UnfitValuesError as error:
            why = str(error)
        except DatasetError as error:
            if not isinstance(error.__cause__, UnfitValuesError):  # damage
                raise
            why = str(error.__cause__)
        return RawColumn([None] * len(rows), problem=f"rows {rows[0]} to {rows[-1] + 1}: {why}")


def _row_bytes(array: Any) -> int:
    size: int = math.prod(array.shape[1:]) * array.dtype.itemsize
    return size


def _entries(array: Any) -> int:
    """How many rows are stored together."""
    return int((array.shards or array.chunks)[0])


def _weights(arrays: Mapping[str, Any]) -> tuple[int, int]:
    """The most rows that are stored together, and the bytes of one."""
    rows = max(map(_entries, arrays.values()))
    return max(1, rows), max(1, sum(map(_row_bytes, arrays.values())))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, one) or one.startswith(f"{name}.") for one in patterns)


def _type_of(array: Any, decoding: Decoding) -> ColumnType | None:
    """The type of an array as a column; None if it can't be one."""
    from zarr.dtype import VariableLengthBytes, VariableLengthUTF8

    stored = getattr(array.metadata, "data_type", None) or array.metadata.dtype
    texts = {VariableLengthUTF8: STRING, VariableLengthBytes: BYTES}
    if type(stored) in texts:
        return texts[type(stored)] if array.ndim == 1 else ColumnType(np.dtype("O"), array.shape[1:])
    if array.dtype.kind not in "biufcSUVmM":
        return None
    is_time = decoding.dtype.kind in "mM"
    dtype, unit = (np.dtype("<i8"), "ns") if is_time else (decoding.dtype, decoding.unit)
    return ColumnType(dtype, array.shape[1:], "array", unit, decoding.description, decoding.attributes)
