"""The bytes of files at paths and URIs: on disks by pread, elsewhere by requests for ranges.

Here: `File`, which the readers of datasets share, `OpenFile`, and what they are made of: `open_local`,
`size_of`, `fetch` and `fetch_many`.
Elsewhere: trying again (logloom.io.remote), archives (logloom.io.zipped), and in each format what lies where.

A missing file is a DatasetError, or what a caller names instead, as is a range that its file doesn't have.
Any other failure is a StorageError.
"""

from __future__ import annotations

import collections
import os
import resource
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logloom.errors import DatasetError, LogloomError
from logloom.io.checks import check_file
from logloom.io.filesystems import filesystem
from logloom.io.remote import MISSING, storage_error
from logloom.uris import chained, is_local

Options = Mapping[str, Any] | None
_MAX_OPEN = max(64, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, 4096))

pread = os.pread
preadv: Callable[..., int] = os.preadv  # takes arrays; its declared type doesn't say so


def failure(uri: str, error: OSError, missing: Callable[[str], LogloomError] = DatasetError) -> LogloomError:
    """The error that tells of a failure to read a file.

    Args:
        missing: makes the error of a file that isn't there.
    """
    if isinstance(error, IsADirectoryError):
        return missing(f"{uri}: can't be read, it is a folder")
    if isinstance(error, MISSING):
        return missing(f"{uri}: there is no such file")
    return storage_error(uri, error)


# --- on this machine's disks ----------------------------------------------------------------------------


class OpenFile:
    """An open file; closed with its last user, so that letting go of it never pulls it from under a read.

    Attributes:
        size: bytes when it was opened; -1 where nobody asked.
    """

    __slots__ = ("fd", "size")

    def __init__(self, path: str, *, is_sized: bool = True):
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self.fd).st_size if is_sized else -1

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)

    def fill(self, buffers: Sequence[Any], offset: int) -> int:
        """Reads piece by piece what one call didn't give whole, after a signal or beyond 2 GiB.

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
    """Opens a file on a disk; see `failure` for what it raises."""
    try:
        return OpenFile(path_of(uri), is_sized=is_sized)
    except OSError as error:
        raise failure(uri, error, missing) from chained(error)


def path_of(uri: str) -> str:
    """The path of a local file, whether or not it was given with a scheme."""
    return uri.split("://", 1)[-1]


# --- elsewhere ------------------------------------------------------------------------------------------


def size_of(uri: str, options: Options, missing: Callable[[str], LogloomError] = DatasetError) -> int:
    """The bytes of a remote file; see `failure` for what it raises."""
    fs, path = filesystem(uri, options)
    try:
        return int(fs.size(path))
    except OSError as error:
        raise failure(uri, error, missing) from chained(error)


def fetch(
    uri: str,
    options: Options,
    start: int,
    stop: int,
    missing: Callable[[str], LogloomError] = DatasetError,
) -> bytes:
    """The bytes [start, stop) of a remote file, fewer where it ends; see `failure` for what it raises."""
    if start >= stop:
        return b""
    fs, path = filesystem(uri, options)
    try:
        return bytes(fs.cat_file(path, start=start, end=stop))
    except OSError as error:
        raise failure(uri, error, missing) from chained(error)


def fetch_many(
    uris: Sequence[str],
    options: Options,
    starts: Sequence[int],
    stops: Sequence[int],
    missing: Callable[[str], LogloomError] = DatasetError,
) -> list[Any]:
    """Ranges of remote files, those of one file system all at once: bytes, fewer where a file ends.

    In the place of a range whose file is missing stands the error that says so.

    Raises:
        StorageError: one of them can't be read.
    """
    found: list[Any] = [None] * len(uris)
    opened = {uri: filesystem(uri, options) for uri in dict.fromkeys(uris)}
    systems: dict[Any, list[int]] = {}
    for i, uri in enumerate(uris):
        systems.setdefault(uri.split("://", 1)[0], []).append(i)
    for own in systems.values():
        fs, paths = opened[uris[own[0]]][0], [opened[uris[i]][1] for i in own]
        answers = fs.cat_ranges(paths, [starts[i] for i in own], [stops[i] for i in own], on_error="return")
        for i, data in zip(own, answers, strict=True):
            if isinstance(data, MISSING):
                found[i] = failure(uris[i], data, missing)
            elif isinstance(data, OSError):  # of an archive
                raise failure(uris[i], data) from data
            elif isinstance(data, Exception):
                raise data
            else:
                found[i] = data
    return found


# --- either ---------------------------------------------------------------------------------------------


class File:
    """A file, opened when first read. Serves many threads; pickles as where it is; crosses a fork.

    Of the local ones the oldest are closed when very many are open in a process.

    Attributes:
        name: its path or URI.
    """

    __slots__ = ("__weakref__", "_copy", "_file", "_options", "_size", "is_local", "name")

    def __init__(self, uri: str | os.PathLike[str], options: Options = None, copy: str | None = None):
        """Opens nothing yet.

        Args:
            copy: path of a local copy, which is read instead.
        """
        self.name = os.fspath(uri)
        self.is_local = copy is not None or is_local(self.name)
        self._options, self._copy = options, copy
        self._file: OpenFile | None = None
        self._size = -1

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.name, self._options, self._copy))

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

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes.

        Raises:
            DatasetError: the file is gone, or ends earlier.
        """
        file = self._file
        if file is None:
            if not self.is_local:
                return self._whole(fetch(self.name, self._options, offset, offset + size), offset, size)
            file = self._open()
        try:
            data = pread(file.fd, size, offset)
            if len(data) == size:
                return data
            room = bytearray(size)
            return self._whole(bytes(room[: file.fill((room,), offset)]), offset, size)
        except OSError as error:
            raise failure(self.name, error) from chained(error)

    def read_into(self, offset: int, buffers: Sequence[Any], size: int) -> None:
        """Fills buffers of `size` bytes in all, of a local file. Raises what `read` raises."""
        file = self._file or self._open()
        try:
            if preadv(file.fd, buffers, offset) != size and (done := file.fill(buffers, offset)) != size:
                raise self._cut(offset, size, done)
        except OSError as error:
            raise failure(self.name, error) from chained(error)

    def opened(self) -> OpenFile:
        """The open local file; to be held while it is used, since another thread may let go of it."""
        return self._file or self._open()

    def release(self) -> None:
        """Lets go of the open file; the next read opens it again."""
        self._file = None

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

    def _whole(self, data: bytes, offset: int, size: int) -> bytes:
        if len(data) != size:
            raise self._cut(offset, size, len(data))
        return data

    def _cut(self, offset: int, size: int, done: int) -> DatasetError:
        return DatasetError(
            f"{self.name}: ends at byte {offset + done}, {size} bytes from byte {offset} were wanted; it was "
            "truncated or written to since it was opened"
        )


_opened: collections.deque[weakref.ref[File]] = collections.deque()
_opening = threading.Lock()


def _renew_lock() -> None:
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)  # a thread of the parent may have held it
