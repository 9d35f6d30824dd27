"""Reading the rows of one zarr format 2 array.

Here: `ChunkedArray` (rows by index, slice, mask or field).
Elsewhere: the format of chunks (metadata), the four arrays together (chunked_dataset).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.io.formats.chunk_files import cut, read_file
from logloom.io.formats.l5kit.metadata import ArrayMetadata
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.store import Store


class ChunkedArray:
    """A read-only array of rows (structs, or integers) in compressed chunks.

    Indexing gives copies: one row for an int, else an array. Taking many rows at once is cheap, since each
    chunk is decompressed once per call; single rows are cheap only while they come from one chunk.
    Pickles without cached chunks, and serves many threads.
    """

    def __init__(
        self, store: Store, name: str, cache: LruCache[bytes] | None = None, row_shape: tuple[int, ...] = ()
    ):
        """Opens an array.

        Args:
            store: the dataset's folder.
            name: of the array within it.
            cache: of compressed chunks, by file name, which arrays of a dataset share.
            row_shape: of rows of integers; () for structs.

        Raises:
            DatasetError: there is no such array, or it is not of zarr format 2.
        """
        source = f"{name}/.zarray"
        data = read_file(store, source, f"there is no array {name!r} here")
        self.metadata = ArrayMetadata.from_bytes(data, store.uri_of(source), row_shape)
        self.name = name
        self._store = store
        self._cache = cache
        self._latest: tuple[int, Array] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.metadata.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.metadata.rows, *self.dtype.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        return (self.metadata.chunk_rows, *self.dtype.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.metadata.rows

    def __repr__(self) -> str:
        return f"ChunkedArray({self._store.uri_of(self.name)!r}, {len(self)} rows)"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        rows = self._slice(range(len(self)), None)
        return rows if dtype is None else rows.astype(dtype)

    def __getitem__(self, key: Any) -> Any:
        """Read rows, with numpy's rules of indexing.

        Args:
            key: an int, a slice (any step), a field name or list of them (of all rows), an array of ints or
                bools, or `...`.

        Raises:
            IndexError: a row outside the array.
            KeyError: no such field.
            DatasetError: a chunk is missing or damaged; names its file.
        """
        if isinstance(key, int | np.integer):
            row = range(len(self))[int(key)]
            chunk, place = divmod(row, self.metadata.chunk_rows)
            return self._chunk(chunk)[place].copy()
        if isinstance(key, slice):
            return self._slice(range(len(self))[key], None)
        if key is Ellipsis or (isinstance(key, tuple) and key == ()):
            return self._slice(range(len(self)), None)
        if isinstance(key, str):
            self._check_fields([key])
            return self._slice(range(len(self)), key)
        if isinstance(key, list) and key and all(isinstance(name, str) for name in key):
            self._check_fields(key)
            return self._slice(range(len(self)), None)[key]
        return self._pick(np.asarray(key))

    def _check_fields(self, names: Sequence[str]) -> None:
        fields = self.dtype.names or ()
        for name in names:
            if name not in fields:
                raise KeyError(f"{self._store.uri_of(self.name)}: no field {name!r}, there are {fields}")

    def _slice(self, rows: range, field: str | None) -> Array:
        if rows.step < 0:
            return self._slice(rows[::-1], field)[::-1]
        base, shape = self.dtype, ()
        if field is not None:
            base, shape = self.dtype[field].subdtype or (self.dtype[field], ())
        taken = np.empty((len(rows), *shape), base)
        done = 0
        while done < len(rows):
            chunk, first = divmod(rows[done], self.metadata.chunk_rows)
            values = self._chunk(chunk)[first :: rows.step][: len(rows) - done]
            taken[done : done + len(values)] = values if field is None else values[field]
            done += len(values)
        return taken

    def _pick(self, key: Array) -> Array:
        if key.dtype == np.bool_:
            if key.shape != (len(self),):
                raise IndexError(f"a mask of shape {key.shape} for {len(self)} rows")
            key = np.flatnonzero(key)
        if key.dtype.kind not in "iu" and key.size:
            raise TypeError(f"rows are picked by ints, slices, masks or field names, not {key.dtype}")
        if ((key < -len(self)) | (key >= len(self))).any():  # before uint64 wraps around
            raise IndexError(f"{self._store.uri_of(self.name)}: a row outside of {len(self)}")
        rows = key.astype(np.int64).reshape(-1)
        rows = np.where(rows < 0, rows + len(self), rows)
        taken = np.empty(len(rows), self.dtype)
        pieces = cut(rows, rows + 1, self.metadata.chunk_rows)
        edges = [0, *(np.flatnonzero(np.diff(pieces.chunk)) + 1).tolist(), len(rows)]
        for low, high in pairwise(edges if len(rows) else ()):
            taken[pieces.target[low:high]] = self._chunk(int(pieces.chunk[low]))[pieces.source[low:high]]
        return taken.reshape(*key.shape, *self.dtype.shape)

    def _chunk(self, index: int) -> Array:
        """All rows of a chunk, padding included; shared, so it is never returned to callers."""
        latest = self._latest
        if latest is not None and latest[0] == index:
            return latest[1]
        name = f"{self.name}/{self.metadata.chunk_name(index)}"
        data = self._cache.get(name) if self._cache else None
        if data is None:
            # zarr would read it as zeros; the writers of such datasets always write every chunk.
            missing = (
                f"the array has {len(self)} rows, so this chunk is lost; copy or build the dataset again"
            )
            data = read_file(self._store, name, missing)
            if self._cache:
                self._cache.put(name, data)
        rows = self.metadata.decode(data, self._store.uri_of(name))
        self._latest = (index, rows)
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_latest": None}
