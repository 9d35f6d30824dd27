"""Byte ranges of one file, local or remote.

Here: `ByteSource`, which merges neighbouring ranges into few reads, and reads headers ahead.
Elsewhere: opening and fetching (logloom.io.files), what the bytes mean (members, reader).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.io.files import File, Options, failure, fetch_many

_LOCAL_GAP = 16 << 10  # unwanted bytes that cost less to read than another call
_REMOTE_GAP = 1 << 20
_REMOTE_WINDOW = 4 << 20
_REMOTE_HEADS = 64 << 10  # instead of a window, where headers lie further apart than `_REMOTE_GAP`
_REMOTE_AT_ONCE = 64 << 20


class ByteSource:
    """A file at a path or URI. Reads from many threads; pickles as its URI; survives a fork.

    Attributes:
        gap: unwanted bytes between two ranges that cost less to read than another request.
    """

    def __init__(self, uri: str | os.PathLike[str], options: Options = None, path: str | None = None):
        """Opens nothing yet.

        Args:
            path: of a local copy, which is read instead.
        """
        self._file = File(uri, options, path)
        self.uri, self.is_local = self._file.name, self._file.is_local
        self._arguments = (self.uri, options, path)
        self._options = options
        self.gap = _LOCAL_GAP if self.is_local else _REMOTE_GAP
        self._window: tuple[int, bytes] = (0, b"")
        self._last_head = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return (ByteSource, self._arguments)

    @property
    def size(self) -> int:
        """
        Raises:
            DatasetError: there is no such file.
        """
        return self._file.size

    def read(self, offset: int, size: int) -> Array:
        """(size,) uint8, writable.

        Raises:
            DatasetError: the file ends earlier, or is gone.
            StorageError: it can't be read.
        """
        if offset + size > self.size:
            raise DatasetError(f"{self.uri}: {self.size} bytes, byte {offset + size} was wanted")
        if not self.is_local:
            return np.frombuffer(bytearray(self._file.read(offset, size)), np.uint8)
        data = np.empty(size, np.uint8)
        if size:
            self._file.read_into(offset, (data.data,), size)
        return data

    def read_head(self, offset: int, size: int) -> bytes:
        """A few bytes, perhaps fewer at the end of the file.

        Remote ones come with much that lies behind them, unless headers are so far apart that this is nothing
        but the large members between.
        """
        if self.is_local:
            file = self._file.opened()
            try:
                return os.pread(file.fd, size, offset)
            except OSError as error:
                raise failure(self.uri, error) from error
        start, window = self._window
        near, self._last_head = abs(offset - self._last_head) <= self.gap, offset
        if not start <= offset <= offset + size <= start + len(window):
            stop = min(offset + max(size, _REMOTE_WINDOW if near else _REMOTE_HEADS), self.size)
            start, window = self._window = offset, self._file.read(offset, stop - offset)
        return window[offset - start : offset - start + size]

    def read_many(self, offsets: Sequence[int], sizes: Sequence[int]) -> list[Array]:
        """Ranges in ascending order, each (size,) uint8; neighbours are read together and share memory.

        Remote ones are asked for all at once.
        """
        starts: list[int] = []
        stops: list[int] = []
        stretch: list[int] = []  # of each range
        for offset, size in zip(offsets, sizes, strict=True):
            if not stops or offset - stops[-1] > self.gap:
                starts.append(offset)
                stops.append(offset)
            stops[-1] = max(stops[-1], offset + size)
            stretch.append(len(starts) - 1)
        lengths = [stop - start for start, stop in zip(starts, stops, strict=True)]
        if self.is_local or len(starts) < 2:
            data = [*map(self.read, starts, lengths)]
        else:
            data = [part.copy() for part in self._fetch_many(starts, lengths)]
        places = zip(stretch, offsets, sizes, strict=True)
        return [data[k][at - starts[k] : at - starts[k] + size] for k, at, size in places]

    def stream(self, offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[Array]:
        """Ranges one after the other, each (size,) uint8; remote ones are asked for many at a time."""
        if self.is_local:
            yield from map(self.read, offsets, sizes)
            return
        first = 0
        while first < len(offsets):
            last, wanted = first, 0
            while last < len(offsets) and (last == first or wanted + sizes[last] <= _REMOTE_AT_ONCE):
                wanted += sizes[last]
                last += 1
            yield from self._fetch_many(offsets[first:last], sizes[first:last])
            first = last

    def _fetch_many(self, offsets: Sequence[int], sizes: Sequence[int]) -> list[Array]:
        ends = [offset + size for offset, size in zip(offsets, sizes, strict=True)]
        if max(ends) > self.size:
            raise DatasetError(f"{self.uri}: {self.size} bytes, byte {max(ends)} was wanted")
        found = []
        answers = fetch_many([self.uri] * len(ends), self._options, offsets, ends)
        for data, offset, size in zip(answers, offsets, sizes, strict=True):
            if isinstance(data, DatasetError):
                raise data
            if len(data) != size:
                raise DatasetError(f"{self.uri}: {len(data)} bytes at byte {offset}, {size} were wanted")
            found.append(np.frombuffer(data, np.uint8))
        return found

    def read_bytes(self, offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """Ranges in ascending order as bytes; local ones each by a call of their own, which saves a copy."""
        if not self.is_local:
            return [data.tobytes() for data in self.read_many(offsets, sizes)]
        file = self._file.opened()
        try:
            found = [*map(os.pread, itertools.repeat(file.fd), sizes, offsets)]
        except OSError as error:
            raise failure(self.uri, error) from error
        if [*map(len, found)] != [*sizes]:  # a read may give less than was asked for
            return [self.read(at, size).tobytes() for at, size in zip(offsets, sizes, strict=True)]
        return found

    def release(self) -> None:
        """Lets go of the file and of what was read ahead; the next read opens it again."""
        self._file.release()
        self._window = (0, b"")
