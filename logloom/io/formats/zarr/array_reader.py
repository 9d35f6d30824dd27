"""Reading the entries of one array, chunk by chunk.

Here: `ArrayReader`.
Elsewhere: the format of chunks (layout, shards), which of them are needed (logloom.io.formats.chunk_files),
columns made of arrays (reader).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.io.formats.chunk_files import ChunkPieces, cut
from logloom.io.formats.zarr.layout import ArrayLayout
from logloom.io.formats.zarr.shards import decode_chunk, decode_index, index_bytes
from logloom.io.storage.files import File
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.remote.range_requests import runs
from logloom.io.storage.store import Store

_CACHED_RANGE_BYTES = 512
_LOCAL_RUN = 256 << 10  # so much stays in a core's cache until it is decoded
_REMOTE_RUN = 16 << 20


class ArrayReader:
    """An array of a dataset. A file or chunk that is missing is an error, never fill values."""

    def __init__(self, store: Store, path: str, layout: ArrayLayout, cache: LruCache[Array]):
        """
        Args:
            cache: of indices of shards and of chunks of small columns, which arrays of a dataset share.
        """
        self.layout = layout
        self._store = store
        self._path = path
        self._cache = cache
        self._sources: dict[int, File] = {}
        self._per_file = layout.shard // layout.chunk

    def read(self, start: int, stop: int) -> Array:
        """Read entries [start, stop).

        Raises:
            DatasetError: the array has fewer, or a file is missing or damaged.
        """
        return self.gather(np.array([start]), np.array([stop]))

    def take(self, rows: NDArray[np.int64], out: Array | None = None) -> Array:
        """Read entries in any order; see `gather`."""
        return self.gather(rows, rows + 1, out)

    def gather(self, starts: NDArray[np.int64], stops: NDArray[np.int64], out: Array | None = None) -> Array:
        """Read the entries of some ranges, concatenated; each chunk that they touch is read once.

        Args:
            starts, stops: (n,) ranges in any order.
            out: used for the result if it fits.

        Raises:
            DatasetError: the array has fewer entries, or a file is missing or damaged.
        """
        layout, total = self.layout, self._checked(starts, stops)
        if not total or not layout.row_bytes:
            return np.empty((total, *layout.tail), layout.dtype)
        pieces = cut(starts, stops, layout.chunk)
        if self._are_short(len(starts), total):
            return self._from_cache(pieces, total)
        shape = (total, *layout.tail)
        if out is None or out.shape != shape or out.dtype != layout.dtype or not out.flags.c_contiguous:
            out = np.empty(shape, layout.dtype)
        flat = out.reshape(-1).view(np.uint8)
        targets = (pieces.target * layout.row_bytes).tolist()
        for piece, data in self._decoded(pieces, flat):
            flat[targets[piece] : targets[piece] + len(data)] = data
        return out

    def gather_bytes(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> list[bytes]:
        """Read the bytes of each range; otherwise as `gather`."""
        total = self._checked(starts, stops)
        if not total or self._are_short(len(starts), total):
            whole = self.gather(starts, stops).tobytes()
            ends = (np.cumsum(stops - starts) * self.layout.row_bytes).tolist()
            return [whole[start:end] for start, end in pairwise([0, *ends])]
        pieces = cut(starts, stops, self.layout.chunk)
        parts: list[list[Any]] = [[] for _ in starts]
        targets = np.cumsum(stops - starts)
        owners = np.searchsorted(targets, pieces.target, side="right").tolist()
        left = np.bincount(owners, minlength=len(starts)).tolist()
        found = [b""] * len(starts)
        for piece, data in self._decoded(pieces, None):
            owner = owners[piece]
            parts[owner].append(data)
            left[owner] -= 1
            if not left[owner]:
                found[owner] = b"".join(parts[owner])
        return found

    def _checked(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> int:
        """Count the entries of ranges, after checking that all files with them exist."""
        layout = self.layout
        if ((starts < 0) | (stops < starts) | (stops > layout.shape[0])).any():
            raise DatasetError(
                f"{self._store.uri_of(self._path)}: {layout.shape[0]} entries, "
                f"{starts.min()} to {stops.max()} were expected: damaged"
            )
        if layout.row_bytes:
            self._check_files(starts, stops)
        return int((stops - starts).sum())

    def _are_short(self, ranges: int, total: int) -> bool:
        return total * self.layout.row_bytes <= ranges * _CACHED_RANGE_BYTES

    def _check_files(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Check all needed files before anything is allocated, so that a wrong length takes no memory."""
        shard = self.layout.shard
        wanted = stops > starts
        firsts, lasts = starts[wanted] // shard, (stops[wanted] - 1) // shard
        seen: set[int] = set()
        for first, last in set(zip(firsts.tolist(), lasts.tolist(), strict=True)):
            for file in range(first, last + 1):
                if file not in seen:
                    seen.add(file)
                    self._index(file)

    def _from_cache(self, pieces: ChunkPieces, total: int) -> Array:
        """Read short ranges from cached chunks, since other calls will need parts of them too."""
        numbers = pieces.chunk.tolist()
        if numbers[0] == numbers[-1] and len(numbers) == total:
            return self._chunk(numbers[0])[pieces.source[np.argsort(pieces.target)]]
        out = np.empty((total, *self.layout.tail), self.layout.dtype)
        chunk, latest = None, -1
        for number, source, target, count in zip(*(part.tolist() for part in pieces), strict=True):
            if chunk is None or number != latest:
                chunk, latest = self._chunk(number), number
            out[target : target + count] = chunk[source : source + count]
        return out

    def _chunk(self, number: int) -> Array:
        """A chunk by its number in the array, (chunk, *tail); cached, so it must not be changed."""
        key = (self._path, number)
        found = self._cache.get(key)
        if found is None:
            file, place = divmod(number, self._per_file)
            offset, size = self._index(file)[place].tolist()
            data = self._source(file).read_array(offset, size)
            raw = decode_chunk(self.layout, data, self._source(file).name, place)
            found = raw.view(self.layout.dtype).reshape(self.layout.chunk, *self.layout.tail)
            self._cache.put(key, found)
        return found

    def _decoded(self, pieces: ChunkPieces, out: Array | None) -> Iterator[tuple[int, Array]]:
        """Yield the bytes of each piece, (number of the piece, (n,) uint8), by ascending chunk.

        Args:
            out: the bytes of the result, if wanted in one array; whole chunks may be decompressed right into
                it, and such pieces are not yielded.
        """
        width, whole = self.layout.row_bytes, self.layout.chunk_bytes
        numbers, firsts = np.unique(pieces.chunk, return_index=True)
        bounds = [*firsts.tolist(), len(pieces.chunk)]
        at, to, size = ((part * width).tolist() for part in pieces[1:])
        for nth, stored, file, number in self._stored(numbers):
            first, last = bounds[nth], bounds[nth + 1]
            into = None
            if out is not None and last == first + 1 and size[first] == whole:
                into = out[to[first] : to[first] + whole]
            raw = decode_chunk(self.layout, stored, file, number, into)
            if raw is into:
                continue
            for piece in range(first, last):
                yield piece, raw[at[piece] : at[piece] + size[piece]]

    def _stored(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, Array, str, int]]:
        """Yield chunks as stored: the position in `numbers`, the bytes, the file and the place in it.

        Args:
            numbers: (n,) of chunks in the array, ascending.
        """
        files, places = np.divmod(numbers, self._per_file)
        for start, stop in pairwise([0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]):
            file = int(files[start])
            source = self._source(file)
            offsets, sizes = self._index(file)[places[start:stop]].T
            begins, ends = offsets.tolist(), (offsets + sizes).tolist()
            most = _LOCAL_RUN if source.is_local else _REMOTE_RUN
            bounds = runs(offsets, offsets + sizes, most, source.gap)
            starts = [begins[low] for low in bounds[:-1]]
            lengths = [ends[high - 1] - at for high, at in zip(bounds[1:], starts, strict=True)]
            found = source.stream(starts, lengths)
            for (low, high), at in zip(pairwise(bounds), starts, strict=True):
                data = next(found)
                for nth in range(low, high):
                    stored = data[begins[nth] - at : ends[nth] - at]
                    yield start + nth, stored, source.name, int(places[start + nth])
                del data, stored  # so that the next read gets the same memory, still in the core's cache

    def _index(self, file: int) -> Array:
        """(chunks, 2) offset and length of each chunk of a file."""
        key = (self._path, -1 - file)
        found = self._cache.get(key)
        if found is None:
            try:
                found = self._find_chunks(file)
            except DatasetError as error:
                raise self._explained(error) from error
            self._cache.put(key, found)
        return found

    def _find_chunks(self, file: int) -> Array:
        source = self._source(file)
        if self.layout.format == 2:
            return np.array([[0, source.size]])
        tail = index_bytes(self.layout)
        if source.size < tail:
            raise DatasetError(f"{source.name}: {source.size} bytes, too short for a shard: damaged")
        data = source.read_array(source.size - tail, tail)
        return decode_index(self.layout, data, file, source.size, source.name)

    def _explained(self, error: DatasetError) -> DatasetError:
        entries = self.layout.shape[0]
        return DatasetError(
            f"{error}; the array has {entries} entries, so what zarr would read as fill values is lost: "
            "copy or build the dataset again"
            if "no such file" in str(error)
            else str(error)
        )

    def _source(self, file: int) -> File:
        if file not in self._sources:
            uri = self._store.uri_of(f"{self._path}/{self.layout.file_name(file)}")
            self._sources[file] = File(uri, self._store.options)
        return self._sources[file]
