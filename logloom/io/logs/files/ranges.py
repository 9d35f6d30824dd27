"""Byte ranges of files at any URI, and reading ahead.

Here: `LogFile` (size, ranges, content id), `fetches` (neighbouring ranges by few requests), read-ahead by two
threads.
Elsewhere: what the bytes mean (logloom.io.logs), which of them a reader needs (container_log).
Ranges are half-open, [start, stop), in bytes.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeVar

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.errors import LogReadError, TruncatedLogError
from logloom.io.storage.faults import size_in
from logloom.io.storage.files import open_local
from logloom.io.storage.filesystems import filesystem, with_access
from logloom.io.storage.remote.range_requests import failure, fetch, fetch_many, runs
from logloom.io.storage.threads import ahead
from logloom.uris import chained, is_local, path_of, shown

T = TypeVar("T")
U = TypeVar("U")

MIB = 1 << 20
MAX_REQUEST = 16 * MIB  # a larger stretch is fetched by several requests


class LogFile:
    """One file at a URI. Keeps no file handle, so it pickles, survives forks and is thread-safe."""

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None):
        """
        Args:
            uri: a path, or any URI that fsspec opens.
            storage_options: for fsspec, by protocol.
        """
        self.uri = shown(uri)
        self._storage_options = dict(with_access(storage_options, [uri]))
        self._local = path_of(uri) if is_local(uri) else None
        self._identity: tuple[str, int, str] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (LogFile, (self.uri, self._storage_options))

    @property
    def is_local(self) -> bool:
        return self._local is not None

    @property
    def identity(self) -> tuple[str, int, str]:
        """(URI, size, token that changes when the file is replaced); looked up once."""
        if self._identity is None:
            self._identity = (self.uri, *self._describe())
        return self._identity

    @property
    def size(self) -> int:
        return self.identity[1]

    @property
    def stored_size(self) -> int:
        """Stored bytes: less than `size` if the whole file is compressed."""
        return self.size

    def head(self, count: int) -> bytes:
        """Read the first `count` bytes of the file, or all if it has fewer. Raises the errors of `read`."""
        if not self.is_local and self._identity is None:
            # This needs no request for the size.
            return self._read(0, count)
        return self.read(0, min(count, self.size))

    def read(self, start: int, stop: int) -> bytes:
        """Read a range of bytes.

        Raises:
            LogReadError: the file is missing.
            TruncatedLogError: the file ends before `stop`.
            StorageError: the storage failed.
        """
        if stop <= start:
            return b""
        data = self._read(start, stop)
        if len(data) != stop - start:
            raise _cut_short(self.uri, start, stop - start, len(data))
        return data

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read several ranges, requested concurrently. Raises the errors of `read`."""
        if self.is_local or len(ranges) == 1:
            return [self.read(start, stop) for start, stop in ranges]
        starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
        return fetch_many(
            [self.uri] * len(ranges), self._storage_options, starts, stops, LogReadError, _cut_short
        )

    def read_into(self, start: int, room: memoryview) -> None:
        """Fill `room` with the bytes of a local file from `start` on. Raises the errors of `read`."""
        file = open_local(self.uri, LogReadError, is_sized=False)
        try:
            done = file.fill((room,), start)
        except OSError as error:
            raise failure(self.uri, error) from chained(error)
        if done < len(room):
            raise _cut_short(self.uri, start, len(room), done)

    def _describe(self) -> tuple[int, str]:
        try:
            if self._local:
                stat = os.stat(self._local)
                if not pathlib.Path(self._local).is_file():
                    raise IsADirectoryError(f"{self._local} is not a file")
                return stat.st_size, f"{stat.st_ino}-{stat.st_mtime_ns}"
            fs, path = filesystem(self.uri, self._storage_options)
            fs.invalidate_cache(fs._parent(path))  # this process may have listed it before it changed
            info = fs.info(path)
            if info["type"] != "file":
                raise IsADirectoryError(f"{path} is not a file")
            # As `fs.ukey` has it, which asks for it once more.
            return size_in(info, self.uri), blake3(shown(str(info)).encode()).hexdigest(length=16)
        except OSError as error:
            raise failure(self.uri, error, LogReadError) from chained(error)

    def _read(self, start: int, stop: int) -> bytes:
        """Read a range, of fewer bytes if the file ends."""
        if self._local is None:
            return fetch(self.uri, self._storage_options, start, stop, LogReadError)
        file = open_local(self.uri, LogReadError, is_sized=False)
        try:
            return file.read(start, stop - start)
        except OSError as error:
            raise failure(self.uri, error) from chained(error)


def _cut_short(uri: str, start: int, size: int, count: int) -> TruncatedLogError:
    return TruncatedLogError(
        f"{uri}: only {count} of bytes {start} to {start + size} exist, as the file was truncated; wait "
        "until its writer has finished, and run again"
    )


# The parts of a file that its content id depends on.
HASHES: tuple[Literal["ends", "full"], ...] = ("ends", "full")


def content_id(*files: LogFile, hash: str = "ends") -> str:
    """Return the content id of files, in hex: BLAKE3 over the size (u64, little-endian) and bytes of each.

    Args:
        hash: "ends" for the first and the last MiB, "full" for all bytes, preceded by the word "full".
    """
    if hash == "full":
        return _full_id(tuple(file.identity for file in files), files)
    digest = blake3()
    for file in files:
        digest.update(file.size.to_bytes(8, "little"))
        digest.update(file.read(0, min(MIB, file.size)))
        digest.update(file.read(max(0, file.size - MIB), file.size))
    return digest.hexdigest()


_full_ids: dict[tuple[tuple[str, int, str], ...], str] = {}  # requested many times in a process


def _full_id(identities: tuple[tuple[str, int, str], ...], files: Sequence[LogFile]) -> str:
    if identities not in _full_ids:
        digest = blake3(b"full")
        for file in files:
            digest.update(file.size.to_bytes(8, "little"))
            for piece in read_ahead(partial(_piece, file), range(0, file.size, MAX_REQUEST)):
                digest.update(piece)
        _full_ids[identities] = digest.hexdigest()
    return _full_ids[identities]


def _piece(file: LogFile, start: int) -> bytes:
    return file.read(start, min(start + MAX_REQUEST, file.size))


class Scratch:
    """Reusable memory for local ranges: fresh pages cost more than reading them.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._spare: list[NDArray[np.uint8]] = []

    def read(self, file: LogFile, start: int, stop: int) -> memoryview:
        size = max(0, stop - start)
        try:
            memory = self._spare.pop()
        except IndexError:
            memory = np.empty(0, np.uint8)
        if len(memory) < size:
            memory = np.empty(size + size // 8, np.uint8)  # the next one may be a little larger
        view = memory.data[:size]
        file.read_into(start, view)
        return view

    def take_back(self, data: memoryview) -> None:
        """Recycle memory that `read` returned, once it has no other references; ignores other memory."""
        if isinstance(data.obj, np.ndarray):
            self._spare.append(data.obj)


def fetches(
    file: LogFile, starts: NDArray[np.int64], stops: NDArray[np.int64], scratch: Scratch
) -> Iterator[Callable[[], memoryview]]:
    """Return a function per range that reads its bytes; remote neighbours share a request.

    Local ranges are read, into `scratch`, when their function is called, in the calling thread; remote ones
    are requested a little ahead of the caller.
    """
    if file.is_local:
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            yield partial(scratch.read, file, start, stop)
        return
    groups = list(pairwise(runs(starts, stops, MAX_REQUEST)))
    spans = [(int(starts[low]), int(stops[high - 1])) for low, high in groups]
    requests = read_ahead(lambda span: memoryview(file.read(*span)), spans)
    for (low, high), (first, _), data in zip(groups, spans, requests, strict=True):
        for start, stop in zip(starts[low:high].tolist(), stops[low:high].tolist(), strict=True):
            yield partial(_part, data, start - first, stop - first)


def _part(data: memoryview, start: int, stop: int) -> memoryview:
    return data[start:stop]


def read_ahead(work: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    """As `ahead` with two threads, so that only a few chunks are in memory at once."""
    return ahead(work, items, threads=2, at_once=1)
