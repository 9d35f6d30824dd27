"""Byte ranges of files, local or remote.

Here: `Source`, which opens a file when first asked, and merges neighbouring ranges into few reads.
Elsewhere: what the bytes mean (members, reader).
"""

from __future__ import annotations

import collections
import itertools
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.io.checks import check_file
from logloom.io.storage import filesystem, is_local

_MAX_OPEN = 256
_LOCAL_GAP = 16 << 10  # unwanted bytes that cost less to read than another call
_REMOTE_GAP = 1 << 20
_REMOTE_WINDOW = 4 << 20
_REMOTE_HEADS = 64 << 10  # instead of a window, where headers lie further apart than `_REMOTE_GAP`
_REMOTE_AT_ONCE = 64 << 20


class _OpenFile:
    """A file descriptor, closed with its last user."""

    def __init__(self, path: str):
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


_opened: collections.deque[weakref.ref[Source]] = collections.deque()
_opening = threading.Lock()


def _renew_lock() -> None:
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)  # a thread of the parent may have held it


class Source:
    """A file at a path or URI. Reads from many threads; pickles as its URI; survives a fork.

    At most 256 local files are kept open in a process, however many sources there are.

    Attributes:
        gap: unwanted bytes between two ranges that cost less to read than another request.
    """

    def __init__(
        self, uri: str | os.PathLike[str], options: Mapping[str, Any] | None = None, path: str | None = None
    ):
        """Opens nothing yet.

        Args:
            path: of a local copy, which is read instead.
        """
        self.uri = os.fspath(uri)
        self._options = options
        self._file: _OpenFile | None = None
        self._size: int | None = None
        self.is_local = path is not None or is_local(self.uri)
        self._copy = path
        self._path = path or (self.uri.split("://", 1)[-1] if self.is_local else self.uri)
        self.gap = _LOCAL_GAP if self.is_local else _REMOTE_GAP
        self._window: tuple[int, bytes] = (0, b"")
        self._last_head = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return (Source, (self.uri, self._options, self._copy))

    @property
    def size(self) -> int:
        """
        Raises:
            DatasetError: there is no such file.
        """
        if self._size is None:
            if self.is_local:
                file = self._open()
                self._size = os.fstat(file.descriptor).st_size
            else:
                check_file(self.uri, self._options)
                fs, path = filesystem(self.uri, self._options)
                try:
                    self._size = int(fs.size(path))
                except OSError as error:
                    raise self._explain(error) from error
        return self._size

    def read(self, offset: int, size: int) -> Array:
        """(size,) uint8, writable.

        Raises:
            DatasetError: the file ends earlier, or is gone.
            StorageError: it can't be read.
        """
        if offset + size > self.size:
            raise DatasetError(f"{self.uri}: {self.size} bytes, byte {offset + size} was wanted")
        if not self.is_local:
            return np.frombuffer(bytearray(self._fetch(offset, size)), np.uint8)
        data = np.empty(size, np.uint8)
        file = self._open()
        done = 0
        while done < size:
            try:
                got = os.preadv(file.descriptor, [data[done:].data], offset + done)
            except OSError as error:
                raise self._explain(error) from error
            if not got:
                raise DatasetError(f"{self.uri}: ends at byte {offset + done}, while being read")
            done += got
        return data

    def read_head(self, offset: int, size: int) -> bytes:
        """A few bytes, perhaps fewer at the end of the file.

        Remote ones come with much that lies behind them, unless headers are so far apart that this is nothing
        but the large members between.
        """
        if self.is_local:
            file = self._open()
            try:
                return os.pread(file.descriptor, size, offset)
            except OSError as error:
                raise self._explain(error) from error
        start, window = self._window
        near, self._last_head = abs(offset - self._last_head) <= self.gap, offset
        if not start <= offset <= offset + size <= start + len(window):
            stop = min(offset + max(size, _REMOTE_WINDOW if near else _REMOTE_HEADS), self.size)
            start, window = self._window = offset, self._fetch(offset, stop - offset)
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
        fs, path = filesystem(self.uri, self._options)
        found = []
        answers = fs.cat_ranges([path] * len(ends), [*offsets], ends, on_error="return")
        for data, offset, size in zip(answers, offsets, sizes, strict=True):
            if isinstance(data, OSError):
                raise self._explain(data) from data
            if isinstance(data, BaseException):
                raise data
            if len(data) != size:
                raise DatasetError(f"{self.uri}: {len(data)} bytes at byte {offset}, {size} were wanted")
            found.append(np.frombuffer(data, np.uint8))
        return found

    def read_bytes(self, offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """Ranges in ascending order as bytes; local ones each by a call of their own, which saves a copy."""
        if not self.is_local:
            return [data.tobytes() for data in self.read_many(offsets, sizes)]
        file = self._open()
        try:
            found = [*map(os.pread, itertools.repeat(file.descriptor), sizes, offsets)]
        except OSError as error:
            raise self._explain(error) from error
        if [*map(len, found)] != [*sizes]:  # a read may give less than was asked for
            return [self.read(at, size).tobytes() for at, size in zip(offsets, sizes, strict=True)]
        return found

    def release(self) -> None:
        """Lets go of the file and of what was read ahead; the next read opens it again."""
        self._file = None
        self._window = (0, b"")

    def _fetch(self, offset: int, size: int) -> bytes:
        if size <= 0:
            return b""
        fs, path = filesystem(self.uri, self._options)
        try:
            data: bytes = fs.cat_file(path, start=offset, end=offset + size)
        except OSError as error:
            raise self._explain(error) from error
        if len(data) != size:
            raise DatasetError(f"{self.uri}: {len(data)} bytes at byte {offset}, {size} were wanted")
        return data

    def _open(self) -> _OpenFile:
        """The open file; to be held while its descriptor is used, since another thread may let go of it."""
        file = self._file
        if file is not None:
            return file
        check_file(self.uri, self._options)
        with _opening:
            if self._file is not None:
                return self._file
            try:
                file = self._file = _OpenFile(self._path)
            except OSError as error:
                raise self._explain(error) from error
            _opened.append(weakref.ref(self))
            while len(_opened) > _MAX_OPEN:
                oldest = _opened.popleft()()
                if oldest is not None:
                    oldest._file = None
            return file

    def _explain(self, error: OSError) -> LogloomError:
        if isinstance(error, FileNotFoundError):
            return DatasetError(f"{self.uri}: there is no such file")
        return StorageError(f"{self.uri}: {error.strerror or error}")
