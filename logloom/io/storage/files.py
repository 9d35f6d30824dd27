"""Bytes of files at paths and URIs, by pread or by range requests.

Here: `File`, which the readers of datasets share; `OpenFile` and `open_local`, for one local file;
`keep_freed_memory`, since rows of megabytes would wait for fresh pages.
Elsewhere: requests and errors (logloom.io.storage.remote.range_requests), logs, whose files
aren't kept open (logloom.io.logs.files.ranges); the layout of files (in each format).
"""

from __future__ import annotations

import collections
import ctypes
import functools
import itertools
import os
import resource
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError, LogloomError
from logloom.io.storage.known_files import check_file
from logloom.io.storage.locks import Lock
from logloom.io.storage.remote.range_file import RangedFile
from logloom.io.storage.remote.range_requests import (
    LOCAL_GAP,
    REMOTE_GAP,
    Options,
    cut_short,
    failure,
    fetch,
    fetch_many,
    joined,
    size_of,
    whole,
)
from logloom.uris import chained, is_local, path_of

_REMOTE_WINDOW = 4 << 20
_REMOTE_HEADS = 64 << 10  # instead of a window, where headers are further apart than `REMOTE_GAP`
_REMOTE_AT_ONCE = 64 << 20

_MAX_OPEN = max(64, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, 4096))

pread = os.pread
preadv: Callable[..., int] = os.preadv  # takes arrays; its declared type doesn't say so


class OpenFile:
    """An open file; closed with its last user, so never during a read.

    Attributes:
        size: bytes when it was opened; -1 if unknown.
    """

    __slots__ = ("fd", "size")

    def __init__(self, path: str, *, is_sized: bool = True):
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self.fd).st_size if is_sized else -1

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)

    def read(self, offset: int, size: int) -> bytes:
        """The bytes of a range, fewer only where the file ends; the kernel gives at most 2 GiB at once."""
        data = pread(self.fd, size, offset)
        while len(data) < size and (more := pread(self.fd, size - len(data), offset + len(data))):
            data += more
        return data

    def fill(self, buffers: Sequence[Any], offset: int) -> int:
        """Read what one call left out, after a signal or beyond 2 GiB.

        Returns:
            Bytes read, fewer only where the file ends.
        """
        done = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            while view:
                got = preadv(self.fd, (view,), offset + done)
                if not got:
                    return done
                view, done = view[got:], done + got
        return done


def open_local(
    uri: str, missing: Callable[[str], LogloomError] = DatasetError, *, is_sized: bool = True
) -> OpenFile:
    """Open a file on a disk; see `failure` for what it raises."""
    try:
        return OpenFile(path_of(uri), is_sized=is_sized)
    except OSError as error:
        raise failure(uri, error, missing) from chained(error)


class File:
    """A file, opened on first read. Thread-safe and fork-safe; pickles as its location.

    When a process has very many local files open, the oldest are closed.

    Attributes:
        name: its path or URI.
    """

    __slots__ = ("__weakref__", "_copy", "_file", "_head", "_options", "_size", "_window", "is_local", "name")

    def __init__(self, uri: str | os.PathLike[str], options: Options = None, copy: str | None = None):
        """Open nothing yet.

        Args:
            copy: path of a local copy, which is read instead.
        """
        self.name = os.fspath(uri)
        self.is_local = copy is not None or is_local(self.name)
        self._options, self._copy = options, copy
        self._file: OpenFile | None = None
        self._size = -1
        self._window, self._head = (0, b""), 0
        keep_freed_memory()

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.name, self._options, self._copy))

    @property
    def gap(self) -> int:
        """Unwanted bytes between two ranges that cost less to read than another request."""
        return LOCAL_GAP if self.is_local else REMOTE_GAP

    @property
    def size(self) -> int:
        """
        Raises:
            DatasetError: there is no such file.
        """
        if self._size < 0:
            if self.is_local:
                self._size = self.opened().size
            else:
                check_file(self.name, self._options)
                self._size = size_of(self.name, self._options)
        return self._size

    # --- one range

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly `size` bytes.

        Raises:
            DatasetError: the file is gone, or ends earlier.
            StorageError: it can't be read.
        """
        file = self._file
        if file is None:
            if not self.is_local:
                data = fetch(self.name, self._options, offset, offset + size)
                return whole(data, offset, size, self.name)
            file = self._open()
        try:
            data = pread(file.fd, size, offset)
            if len(data) == size:
                return data
            return whole(file.read(offset, size), offset, size, self.name)
        except OSError as error:
            raise failure(self.name, error) from chained(error)

    def read_array(self, offset: int, size: int) -> Array:
        """(size,) uint8, writable; nothing is allocated for a range that the file doesn't have.

        Raises:
            DatasetError: the file is gone, or ends earlier.
            StorageError: it can't be read.
        """
        file = self._file
        if file is None:
            if not self.is_local:
                return np.frombuffer(bytearray(self.read(offset, size)), np.uint8)
            file = self._open()
        if not 0 <= offset <= offset + size <= file.size:
            raise cut_short(self.name, offset, size, file.size - offset)
        data = np.empty(size, np.uint8)
        try:
            if size and preadv(file.fd, (data,), offset) != size:
                self.read_into(offset, (data.data,), size)  # a signal, or more than 2 GiB
        except OSError as error:
            raise failure(self.name, error) from chained(error)
        return data

    def read_into(self, offset: int, buffers: Sequence[Any], size: int) -> None:
        """Fill buffers of `size` bytes in all, of a local file. Raises what `read` raises."""
        file = self._file or self._open()
        try:
            if preadv(file.fd, buffers, offset) != size and (done := file.fill(buffers, offset)) != size:
                raise cut_short(self.name, offset, size, done)
        except OSError as error:
            raise failure(self.name, error) from chained(error)

    def fill_many(self, offsets: Sequence[int], buffers: Sequence[Sequence[Any]], size: int) -> None:
        """Fill buffers of `size` bytes each, of a local file. Raises what `read` raises."""
        fd = (file := self.opened()).fd  # held, since another thread may let go of it
        for offset, own in zip(offsets, buffers, strict=True):
            try:
                got = preadv(fd, own, offset)
            except OSError as error:
                raise failure(self.name, error) from chained(error)
            if got != size and (done := file.fill(own, offset)) != size:
                raise cut_short(self.name, offset, size, done)

    def read_head(self, offset: int, size: int) -> bytes:
        """Read a few bytes, fewer at the end of the file. Raises what `read` raises.

        Remote reads also fetch a window behind them, unless headers are so far apart that the window would
        contain only the large members between.
        """
        if self.is_local:
            try:
                return self.opened().read(offset, size)
            except OSError as error:
                raise failure(self.name, error) from chained(error)
        start, window = self._window
        near, self._head = abs(offset - self._head) <= self.gap, offset
        if not start <= offset <= offset + size <= start + len(window):
            stop = min(offset + max(size, _REMOTE_WINDOW if near else _REMOTE_HEADS), self.size)
            start, window = self._window = offset, self.read(offset, stop - offset)
        return window[offset - start : offset - start + size]

    def as_stream(self) -> RangedFile:
        """The file for libraries that read and seek, by `read_head`; raises what `size` raises."""
        return RangedFile(self.name, self.size, lambda start, stop: self.read_head(start, stop - start))

    # --- many ranges

    def read_many(self, offsets: Sequence[int], sizes: Sequence[int]) -> list[Array]:
        """Read ranges, each (size,) uint8; neighbours are read together and share memory.

        Remote ones are asked for all at once. Raises what `read` raises.
        """
        ranges = [(0, offset, size) for offset, size in zip(offsets, sizes, strict=True)]
        requests, places = joined(ranges, self.gap)
        starts, lengths = [start for _, start, _ in requests], [length for _, _, length in requests]
        if self.is_local or len(starts) < 2:
            data = [*map(self.read_array, starts, lengths)]
        else:
            data = [part.copy() for part in self._fetched(starts, lengths)]
        return [data[k][start : start + size] for k, start, size in places]

    def read_bytes(self, offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """Read ranges as bytes; local ones each by its own call, which saves a copy."""
        if not self.is_local:
            return [data.tobytes() for data in self.read_many(offsets, sizes)]
        file = self.opened()
        try:
            found = [*map(pread, itertools.repeat(file.fd), sizes, offsets)]
        except OSError as error:
            raise failure(self.name, error) from chained(error)
        if [*map(len, found)] != [*sizes]:  # a read may give less than was asked for
            return [*map(self.read, offsets, sizes)]
        return found

    def stream(self, offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[Array]:
        """Yield ranges one by one, each (size,) uint8; many remote ones are requested at a time."""
        if self.is_local:
            yield from map(self.read_array, offsets, sizes)
            return
        first = 0
        while first < len(offsets):
            last, wanted = first, 0
            while last < len(offsets) and (last == first or wanted + sizes[last] <= _REMOTE_AT_ONCE):
                wanted += sizes[last]
                last += 1
            yield from self._fetched(offsets[first:last], sizes[first:last])
            first = last

    def _fetched(self, offsets: Sequence[int], sizes: Sequence[int]) -> list[Array]:
        stops = [offset + size for offset, size in zip(offsets, sizes, strict=True)]
        found = fetch_many([self.name] * len(stops), self._options, offsets, stops)
        return [np.frombuffer(data, np.uint8) for data in found]

    # --- the open file

    def opened(self) -> OpenFile:
        """Return the open local file; keep the reference while using it, as another thread may release it."""
        return self._file or self._open()

    def release(self) -> None:
        """Close the file and drop the read-ahead buffer; the next read opens it again."""
        self._file, self._window = None, (0, b"")

    def _open(self) -> OpenFile:
        check_file(self.name, self._options)
        with _opening:
            file = self._file
            if file is None:
                file = self._file = open_local(self._copy or self.name)
                _opened.append(weakref.ref(self))
                while len(_opened) > _MAX_OPEN:
                    if (oldest := _opened.popleft()()) is not None:
                        oldest._file = None
        return file


_opened: collections.deque[weakref.ref[File]] = collections.deque()
_opening = Lock()


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT = 256 << 20
_LARGEST = 32 << 20  # the most that glibc takes from its heap, instead of mapping pages for it alone


@functools.cache
def keep_freed_memory() -> None:
    """Make the C library keep up to 256 MiB of freed memory; does nothing for other libraries than glibc.

    By default glibc gives the memory of large blocks back to the system at once, and rows of megabytes then
    wait for fresh pages, each cleared when first touched, several times longer than for their bytes. An
    environment with MALLOC_TRIM_THRESHOLD_ has precedence.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT)
    mallopt(_M_MMAP_THRESHOLD, _LARGEST)
