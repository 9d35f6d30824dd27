"""Reading the entries of one array, chunk by chunk.

Here: `ArrayReader` and the cache of chunks that its kind shares.
Elsewhere: what chunks look like (layout, shards), columns made of arrays (reader).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.io.storage import Store
from logloom.io.tar.sources import Source
from logloom.io.zarr.layout import ArrayLayout
from logloom.io.zarr.shards import CRC_BYTES, decode_chunk, decode_index, decode_run, index_bytes

_CACHED_ROW_BYTES = 512


class ChunkCache:
    """Arrays that were used last, up to `max_bytes`: indices of shards, chunks of small columns."""

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._found: OrderedDict[tuple[str, int], Array] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int]) -> Array | None:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: tuple[str, int], found: Array) -> None:
        with self._lock:
            if key in self._found or found.nbytes > self.max_bytes:
                return
            self._found[key] = found
            self.num_bytes += found.nbytes
            while self.num_bytes > self.max_bytes:
                _, oldest = self._found.popitem(last=False)
                self.num_bytes -= oldest.nbytes


class ArrayReader:
    """An array of a dataset. A file or chunk that is missing is an error, never fill values."""

    def __init__(self, store: Store, path: str, layout: ArrayLayout, cache: ChunkCache):
        self.layout = layout
        self._store = store
        self._path = path
        self._cache = cache
        self._sources: dict[int, Source] = {}
        self._caches_chunks = layout.row_bytes <= _CACHED_ROW_BYTES

    def read(self, start: int, stop: int) -> Array:
        """Entries [start, stop).

        Raises:
            DatasetError: the array has fewer, or a file is missing or damaged.
        """
        layout = self.layout
        if not 0 <= start <= stop <= layout.shape[0]:
            raise DatasetError(
                f"{self._store.uri_of(self._path)}: {layout.shape[0]} entries, {stop} were wanted: damaged"
            )
        if start == stop or not layout.row_bytes:
            return np.empty((stop - start, *layout.tail), layout.dtype)
        first, last = start // layout.chunk, (stop - 1) // layout.chunk + 1
        low = start - first * layout.chunk
        if last == first + 1:
            entries = self._chunk(first)[low : low + stop - start]
            return entries.copy() if self._caches_chunks else entries
        run = self._plain_run(first, last)
        if run is not None:
            return run[low : low + stop - start]
        chunks = list(self._chunks(range(first, last)))
        # Chunks are read before there is room for them all: a wrong length can't claim memory.
        whole = np.empty((stop - start, *layout.tail), layout.dtype)
        at = 0
        for number, chunk in enumerate(chunks):
            part = chunk[low if number == 0 else 0 :][: stop - start - at]
            whole[at : at + len(part)] = part
            at += len(part)
        return whole

    def take(self, rows: NDArray[np.int64]) -> Array:
        """The given entries, in any order.

        Raises:
            DatasetError: a file is missing or damaged.
        """
        layout = self.layout
        if len(rows) == 1:
            return self.read(int(rows[0]), int(rows[0]) + 1)
        taken = np.empty((len(rows), *layout.tail), layout.dtype)
        if not layout.row_bytes:
            return taken
        chunk_of = rows // layout.chunk
        for number, chunk in zip(wanted := np.unique(chunk_of).tolist(), self._chunks(wanted), strict=True):
            here = chunk_of == number
            taken[here] = chunk[rows[here] - number * layout.chunk]
        return taken

    def _chunks(self, numbers: Sequence[int]) -> Iterator[Array]:
        """Chunks by ascending number, (chunk, *tail) each, never to be changed; neighbours read together."""
        per_file = self.layout.shard // self.layout.chunk
        at = 0
        while at < len(numbers):
            file = numbers[at] // per_file
            upto = at + 1
            while upto < len(numbers) and numbers[upto] // per_file == file:
                upto += 1
            yield from self._chunks_of(file, [number - file * per_file for number in numbers[at:upto]])
            at = upto

    def _plain_run(self, first: int, last: int) -> Array | None:
        """Chunks [first, last) end to end, where they lie so in one shard and aren't compressed."""
        layout = self.layout
        file, place = divmod(first, layout.shard // layout.chunk)
        if (
            layout.compress != "none"
            or layout.format != 3
            or (last - 1) // (layout.shard // layout.chunk) != file
        ):
            return None
        stored = layout.chunk_bytes + CRC_BYTES
        try:
            index = self._index(file)[place : place + last - first]
            begin = int(index[0, 0])
            if (index != [[begin + number * stored, stored] for number in range(last - first)]).any():
                return None
            source = self._source(file)
            data = source.read(begin, len(index) * stored)
        except DatasetError as error:
            raise self._explained(error) from error
        return decode_run(layout, data, place, source.uri)

    def _chunks_of(self, file: int, numbers: Sequence[int]) -> Iterator[Array]:
        if len(numbers) == 1:
            yield self._chunk(file * (self.layout.shard // self.layout.chunk) + numbers[0])
            return
        for number, data in zip(numbers, self._read_chunks(file, numbers), strict=True):
            yield self._decode(file, number, data)

    def _chunk(self, number: int) -> Array:
        """A chunk by its number in the array; kept where chunks hold many rows."""
        key = (self._path, number)
        found = self._cache.get(key) if self._caches_chunks else None
        if found is None:
            file, place = divmod(number, self.layout.shard // self.layout.chunk)
            (data,) = self._read_chunks(file, [place])
            found = self._decode(file, place, data)
            if self._caches_chunks:
                self._cache.put(key, found)
        return found

    def _decode(self, file: int, number: int, data: Array) -> Array:
        return decode_chunk(self.layout, data, f"{self._source(file).uri}: chunk {number}")

    def _read_chunks(self, file: int, numbers: Sequence[int]) -> list[Array]:
        source = self._source(file)
        try:
            if self.layout.format == 2:
                return [source.read(0, source.size)]
            offsets, sizes = self._index(file)[list(numbers)].T.tolist()
            if offsets == sorted(offsets):
                return source.read_many(offsets, sizes)
            return [source.read(offset, size) for offset, size in zip(offsets, sizes, strict=True)]
        except DatasetError as error:
            raise self._explained(error) from error

    def _index(self, file: int) -> Array:
        key = (self._path, -1 - file)
        found = self._cache.get(key)
        if found is None:
            source, tail = self._source(file), index_bytes(self.layout)
            if source.size < tail:
                raise DatasetError(f"{source.uri}: {source.size} bytes, too short for a shard: damaged")
            data = source.read(source.size - tail, tail)
            found = decode_index(self.layout, data, file, source.size, source.uri)
            self._cache.put(key, found)
        return found

    def _explained(self, error: DatasetError) -> DatasetError:
        entries = self.layout.shape[0]
        return DatasetError(
            f"{error}; the array has {entries} entries, so what zarr would read as fill values is lost: "
            "copy or build the dataset again"
            if "no such file" in str(error)
            else str(error)
        )

    def _source(self, file: int) -> Source:
        if file not in self._sources:
            uri = self._store.uri_of(f"{self._path}/{self.layout.file_name(file)}")
            self._sources[file] = Source(uri, self._store.options)
        return self._sources[file]
