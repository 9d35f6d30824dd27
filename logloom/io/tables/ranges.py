"""Reading byte ranges of many files, from local disks with pread, from object stores with range requests.

Here: `RangeReader`.
Elsewhere: which ranges hold which rows (logloom.io.tables.loader).

A reader opens files when they are first read, pickles without them, and serves many threads. Nothing open
crosses a fork: a child process starts with none.
"""

from __future__ import annotations

import itertools
import os
import resource
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import DatasetError
from logloom.io.files import OpenFile, fetch_many, open_local, size_of
from logloom.io.memory import keep_freed_memory
from logloom.uris import is_local

LOCAL_GAP = 16 << 10  # bytes between two ranges below which reading them too is cheaper than another request
REMOTE_GAP = 1 << 20
LOCAL_WASTE = 4 << 10  # the same for ranges that are read to places of their own
JOINED = 256  # ranges of one call, since that takes 1024 buffers at most
# Below this, and for small ranges, threads wait for each other more than they gain.
_PARALLEL_BYTES = 4 << 20
_PARALLEL_RANGE = 256 << 10
LARGE_BYTES = 32 << 10  # values from which on copying them costs more than another read

_LARGE = 64 << 20

Bytes = NDArray[np.uint8]
Ints = NDArray[np.integer[Any]]
Ranges = tuple[Ints, Ints, Ints]  # (n,) files, offsets and lengths
Target = tuple[memoryview, ...]  # the buffers that a range is read to, one after the other
_Request = tuple[int, int, int, Target]  # file, offset, end
_pread = os.pread
_preadv: Callable[..., int] = os.preadv  # takes arrays; its declared type doesn't say so


class RangeReader:
    """Reads ranges of files that are known by number.

    Attributes:
        uris: of the files; `number_of` adds to them.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None = None, threads: int | None = None):
        self.uris: list[str] = []
        self._numbers: dict[str, int] = {}
        self._any_remote = False
        self._storage = storage_options
        self._threads = threads or min(8, 2 * (os.cpu_count() or 1))
        self._start()

    def _start(self) -> None:
        self._files: dict[int, OpenFile] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._numbering = threading.Lock()
        _READERS.add(self)
        keep_freed_memory()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_files", "_pool", "_numbering")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def number_of(self, uri: str) -> int:
        """The number to read a file by."""
        number = self._numbers.get(uri)
        if number is not None:
            return number
        with self._numbering:
            if uri not in self._numbers:
                self._any_remote |= not is_local(uri)
                self.uris.append(uri)
                self._numbers[uri] = len(self.uris) - 1
            return self._numbers[uri]

    def is_local(self, number: int) -> bool:
        return not self._any_remote or is_local(self.uris[number])

    def read(self, number: int, offset: int, length: int) -> Bytes:
        """One range, as a fresh writable array.

        Raises:
            DatasetError: the file is missing, or ends before the range does.
            StorageError: it can't be read.
        """
        file = self._files.get(number)
        if file is None:
            if not self.is_local(number):
                return self._fetch([(number, offset, length)])[0]
            file = self._open(number)
        if not 0 <= offset <= offset + length <= file.size:
            raise self._cut(number, offset, length, file.size)
        data = np.empty(length, np.uint8)
        if length and _preadv(file.fd, (data,), offset) != length:
            self._fill(file, number, (data.data,), offset)  # a signal, or more than 2 GiB
        return data

    def read_bytes(self, number: int, offset: int, length: int) -> bytes:
        """One range, as bytes.

        Raises:
            DatasetError: the file is missing, or ends before the range does.
        """
        file = self._files.get(number)
        if file is not None and 0 <= offset <= offset + length <= file.size:
            data = _pread(file.fd, length, offset)
            if len(data) == length:  # but for a signal, or more than 2 GiB
                return data
        return self.read(number, offset, length).tobytes()

    def read_into(self, ranges: Ranges, targets: Sequence[Target]) -> None:
        """Reads many ranges in few large requests and several threads.

        Args:
            ranges: which the files have (see `check`), in any order.
            targets: of each the buffers to fill, `length` bytes in all.

        Raises:
            DatasetError: a file is missing, or was cut short meanwhile.
        """
        numbers, offsets, lengths = ranges
        if self._any_remote:
            remote = [i for i, number in enumerate(numbers.tolist()) if not self.is_local(number)]
            self._fetch_into(numbers[remote], offsets[remote], lengths[remote], [targets[i] for i in remote])
            local = np.setdiff1d(np.arange(len(targets)), remote)
            numbers, offsets, lengths = numbers[local], offsets[local], lengths[local]
            targets = [targets[i] for i in local.tolist()]
        requests, total = _requests((numbers, offsets, lengths), targets), int(lengths.sum())
        workers = min(self._threads, total // _PARALLEL_BYTES, len(requests))
        if workers < 2 or total < _PARALLEL_RANGE * len(targets):
            self._scatter(requests)
            return
        shares = _shares(requests, workers)
        futures = [self._workers.submit(self._scatter, share) for share in shares[1:]]
        try:
            self._scatter(shares[0])
        finally:
            failed = [error for future in futures if (error := future.exception())]
        if failed:
            raise failed[0]

    def read_all(self, ranges: Sequence[tuple[int, int, int]]) -> list[Bytes]:
        """Many ranges, each (file, offset, length), as fresh arrays in the order asked for."""
        if not ranges:
            return []
        places = np.array(ranges, np.int64).T
        self.check(*places)
        found = [np.empty(length, np.uint8) for _, _, length in ranges]
        self.read_into((places[0], places[1], places[2]), [(data.data,) for data in found])
        return found

    def check_one(self, number: int, offset: int, length: int) -> None:
        """As `check`, for one range of a local file."""
        file = self._files.get(number) or self._open(number)
        if not 0 <= offset <= offset + length <= file.size:
            raise self._cut(number, offset, length, file.size)

    def check(self, numbers: Ints, offsets: Ints, lengths: Ints) -> None:
        """Makes sure that files have the ranges (n,), so that nothing is allocated on an index's word.

        Raises:
            DatasetError: a file is missing, or ends before a range does.
        """
        if not len(numbers):
            return
        if self._any_remote:
            sizes = self._sizes(numbers, offsets, lengths)
        else:
            files = self._files
            sizes = np.array([(files.get(n) or self._open(n)).size for n in numbers.tolist()], np.int64)
        wrong = (offsets < 0) | (lengths < 0) | (offsets > sizes - lengths)
        if wrong.any():
            first = int(wrong.argmax())
            raise self._cut(int(numbers[first]), int(offsets[first]), int(lengths[first]), int(sizes[first]))

    def _sizes(self, numbers: Ints, offsets: Ints, lengths: Ints) -> NDArray[np.int64]:
        """(n,) how far each range's file goes, as far as it has to be known before reading."""
        sizes = np.empty(len(numbers), np.int64)
        for number in set(numbers.tolist()):
            own = numbers == number
            if self.is_local(number):
                sizes[own] = (self._files.get(number) or self._open(number)).size
            elif int(lengths[own].max()) > _LARGE:
                sizes[own] = size_of(self.uris[number], self._storage, _missing)
            else:
                sizes[own] = int(offsets[own].max()) + _LARGE  # it will tell when asked for the bytes
        return sizes

    @property
    def _workers(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="ranges")
        return self._pool

    def _scatter(self, requests: Sequence[_Request]) -> None:
        """Reads local ranges."""
        files, open_ = self._files, self._open
        for number, start, end, buffers in requests:
            file = files.get(number) or open_(number)
            if _preadv(file.fd, buffers, start) != end - start:
                self._fill(file, number, buffers, start)

    def _fetch_into(self, numbers: Ints, offsets: Ints, lengths: Ints, targets: Sequence[Target]) -> None:
        """Reads ranges of object stores."""
        ranges = list(zip(numbers.tolist(), offsets.tolist(), lengths.tolist(), strict=True))
        for buffers, data in zip(targets, self._fetch(ranges), strict=True):
            at = 0
            for buffer in buffers:
                buffer[:] = data[at : at + len(buffer)].data
                at += len(buffer)

    def _fill(self, file: OpenFile, number: int, buffers: Target, offset: int) -> None:
        """Reads piece by piece what one call didn't give whole."""
        size = sum(map(len, buffers))
        if (done := file.fill(buffers, offset)) != size:
            raise self._cut(number, offset, size, offset + done)

    def _open(self, number: int) -> OpenFile:
        file = open_local(self.uris[number], _missing)
        while len(self._files) >= _MAX_OPEN:
            self._files.pop(next(iter(self._files)), None)
        return self._files.setdefault(number, file)

    def _cut(self, number: int, offset: int, length: int, size: int) -> DatasetError:
        return DatasetError(
            f"{self.uris[number]}: this blob is cut short: bytes {offset} to {offset + length} are wanted, "
            f"it has {size}; copy or build it again"
        )

    def _fetch(self, ranges: Sequence[tuple[int, int, int]]) -> list[Bytes]:
        """Ranges of object stores, concurrently; neighbours are joined by fsspec's own rules and ours."""
        joined, places = _join(ranges, REMOTE_GAP)
        if not joined:
            return []
        found: list[Bytes] = []
        uris, starts = [self.uris[number] for number, _, _ in joined], [offset for _, offset, _ in joined]
        stops = [offset + length for _, offset, length in joined]
        answers = fetch_many(uris, self._storage, starts, stops, _missing)
        for (number, offset, length), data in zip(joined, answers, strict=True):
            if isinstance(data, DatasetError):
                raise data
            if len(data) != length:
                raise self._cut(number, offset, length, offset + len(data))
            found.append(np.frombuffer(bytearray(data), np.uint8))
        return [found[i][start : start + length] for i, start, length in places]


def _missing(text: str) -> DatasetError:
    return DatasetError(text.replace("there is no such file", "this blob is missing"))


def _requests(ranges: Ranges, targets: Sequence[Target]) -> list[_Request]:
    """Sorted requests that cover ranges; those that follow each other closely are read in one call."""
    order = np.lexsort((ranges[1], ranges[0]))
    numbers, offsets, lengths = (part[order] for part in ranges)
    ends = offsets + lengths
    gaps = offsets[1:] - ends[:-1]
    repeats = (gaps < 0) & (numbers[1:] == numbers[:-1]) & (offsets[1:] == offsets[:-1])
    if repeats.any():  # as in windows that overlap: all ranges once, then all that come twice, and so on
        counts = np.arange(len(order))
        counts -= np.maximum.accumulate(np.where(np.append(True, ~repeats), counts, 0))
        order = order[np.argsort(counts, kind="stable")]
        numbers, offsets, lengths = (part[order] for part in ranges)
        ends = offsets + lengths
        gaps = offsets[1:] - ends[:-1]
    apart = (numbers[1:] != numbers[:-1]) | (gaps < 0) | (gaps > LOCAL_WASTE)
    apart[JOINED - 1 :: JOINED] = True
    buffers = [targets[i] for i in order.tolist()]
    if apart.all():
        return list(zip(numbers.tolist(), offsets.tolist(), ends.tolist(), buffers, strict=True))
    firsts = np.flatnonzero(np.append(True, apart))
    stops = np.append(firsts[1:], len(buffers))
    joined = [buffers[first] for first in firsts.tolist()]
    for request in np.flatnonzero(stops - firsts > 1).tolist():
        together: list[memoryview] = [*joined[request]]
        for i in range(int(firsts[request]) + 1, int(stops[request])):
            if gap := int(gaps[i - 1]):
                together.append(_WASTE[:gap])
            together += buffers[i]
        joined[request] = tuple(together)
    starts, last = offsets[firsts].tolist(), ends[stops - 1].tolist()
    return list(zip(numbers[firsts].tolist(), starts, last, joined, strict=True))


def _shares(requests: Sequence[_Request], workers: int) -> list[Sequence[_Request]]:
    """Consecutive requests of about equal bytes for each worker."""
    ends = np.cumsum([end - start for _, start, end, _ in requests])
    cuts = np.searchsorted(ends, int(ends[-1]) * np.arange(1, workers) / workers) + 1
    bounds = [0, *cuts.tolist(), len(requests)]
    return [requests[a:b] for a, b in itertools.pairwise(bounds) if a < b]


def _join(
    ranges: Sequence[tuple[int, int, int]], gap: int
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """Requests that cover the ranges, and of each range (request, start in it, length)."""
    joined: list[tuple[int, int, int]] = []
    places: list[tuple[int, int, int]] = [(0, 0, 0)] * len(ranges)
    for i in sorted(range(len(ranges)), key=lambda i: ranges[i]):
        number, offset, length = ranges[i]
        if joined and joined[-1][0] == number and offset <= joined[-1][1] + joined[-1][2] + gap:
            _, start, size = joined[-1]
            joined[-1] = (number, start, max(size, offset + length - start))
        else:
            joined.append((number, offset, length))
        places[i] = (len(joined) - 1, offset - joined[-1][1], length)
    return joined, places


# Where bytes go that nobody asked for: several threads may write to it, as nobody ever reads it.
_WASTE = memoryview(bytearray(LOCAL_WASTE))
_MAX_OPEN = max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
_READERS: weakref.WeakSet[RangeReader] = weakref.WeakSet()


def _forget_all() -> None:
    for reader in list(_READERS):
        reader._start()


_after_fork: Callable[..., None] = os.register_at_fork
_after_fork(after_in_child=_forget_all)
