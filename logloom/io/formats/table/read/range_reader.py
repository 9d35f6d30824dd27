"""Byte ranges of many files, read by pread or by range requests.

Local disks are read with pread, object stores with range requests.

Here: `RangeReader`.
Elsewhere: the files (logloom.io.storage.files), the ranges of rows (logloom.io.formats.table.read.loader).

A reader opens files when they are first read, pickles without them, serves many threads, and crosses a fork.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.cpus import available_cpus
from logloom.io.storage.files import File, preadv
from logloom.io.storage.known_files import without_check
from logloom.io.storage.locks import Lock
from logloom.io.storage.remote import range_requests
from logloom.io.storage.threads import Threads
from logloom.uris import chained, is_local

LOCAL_WASTE = (
    4 << 10
)  # as `LOCAL_GAP` of logloom.io.storage.files, for ranges that are read to places of their own
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


class RangeReader:
    """Reads ranges of files that are known by number.

    Attributes:
        uris: of the files; `number_of` adds to them.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None = None, threads: int | None = None):
        self.uris: list[str] = []
        self._numbers: dict[str, int] = {}
        self._any_remote = False
        self._storage = without_check(storage_options)  # chunks have digests of their own
        self._most = threads or min(8, 2 * available_cpus())
        self._threads = Threads(self._most, "ranges")
        self._files: dict[int, File] = {}
        self._numbering = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_files": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def number_of(self, uri: str) -> int:
        """Return the number of a file, for reading it."""
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
        """Read one range, as a new writable array.

        Raises:
            DatasetError: the file is missing, or ends before the range does.
            StorageError: it can't be read.
        """
        return (self._files.get(number) or self.file(number)).read_array(offset, length)

    def read_bytes(self, number: int, offset: int, length: int) -> bytes:
        """Read one range, as bytes. Raises what `read` raises."""
        file = self._files.get(number) or self.file(number)
        if file.is_local and not 0 <= offset <= offset + length <= file.size:
            raise range_requests.cut_short(file.name, offset, length, file.size - offset)
        return file.read(offset, length)

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
        workers = min(self._most, total // _PARALLEL_BYTES, len(requests))
        if workers < 2 or total < _PARALLEL_RANGE * len(targets):
            self._scatter(requests)
            return
        shares = _shares(requests, workers)
        futures = [self._threads.pool.submit(self._scatter, share) for share in shares[1:]]
        try:
            self._scatter(shares[0])
        finally:
            failed = [error for future in futures if (error := future.exception())]
        if failed:
            raise failed[0]

    def read_all(self, ranges: Sequence[tuple[int, int, int]]) -> list[Bytes]:
        """Read many ranges, each (file, offset, length), as new arrays in the order of the call."""
        if not ranges:
            return []
        places = np.array(ranges, np.int64).T
        self.check(*places)
        found = [np.empty(length, np.uint8) for _, _, length in ranges]
        self.read_into((places[0], places[1], places[2]), [(data.data,) for data in found])
        return found

    def file(self, number: int) -> File:
        """Return a file by its number; it opens when it is first read."""
        file = self._files.get(number)
        return file or self._files.setdefault(number, File(self.uris[number], self._storage))

    def check_one(self, number: int, offset: int, length: int) -> File:
        """Do as `check`, for one range of a local file; return the file."""
        file = self.file(number)
        if not 0 <= offset <= offset + length <= file.size:
            raise range_requests.cut_short(file.name, offset, length, file.size - offset)
        return file

    def check(self, numbers: Ints, offsets: Ints, lengths: Ints) -> None:
        """Check that files have the ranges (n,), so that nothing is allocated by an untrusted index.

        Raises:
            DatasetError: a file is missing, or ends before a range does.
        """
        if not len(numbers):
            return
        if self._any_remote:
            sizes = self._sizes(numbers, offsets, lengths)
        else:
            listed = numbers.tolist()
            of_files = {number: self.file(number).size for number in set(listed)}
            sizes = np.array([of_files[number] for number in listed], np.int64)
        wrong = (offsets < 0) | (lengths < 0) | (offsets > sizes - lengths)
        if wrong.any():
            first = int(wrong.argmax())
            offset, length = int(offsets[first]), int(lengths[first])
            raise range_requests.cut_short(
                self.uris[int(numbers[first])], offset, length, int(sizes[first]) - offset
            )

    def _sizes(self, numbers: Ints, offsets: Ints, lengths: Ints) -> NDArray[np.int64]:
        """(n,) the sizes of ranges' files, if they must be known before reading."""
        sizes = np.empty(len(numbers), np.int64)
        for number in set(numbers.tolist()):
            own = numbers == number
            if self.is_local(number):
                sizes[own] = self.file(number).size
            elif int(lengths[own].max()) > _LARGE:
                sizes[own] = range_requests.size_of(self.uris[number], self._storage)
            else:
                sizes[own] = int(offsets[own].max()) + _LARGE  # reading the bytes will report it
        return sizes

    def _scatter(self, requests: Sequence[_Request]) -> None:
        """Reads local ranges."""
        last = -1
        for number, start, end, buffers in requests:
            if number != last:
                last, file = number, self.file(number)
                opened = file.opened()
            try:
                if preadv(opened.fd, buffers, start) != end - start:  # a signal, or more than 2 GiB
                    file.read_into(start, buffers, end - start)
            except OSError as error:
                raise range_requests.failure(file.name, error) from chained(error)

    def _fetch_into(self, numbers: Ints, offsets: Ints, lengths: Ints, targets: Sequence[Target]) -> None:
        """Reads ranges of object stores."""
        ranges = list(zip(numbers.tolist(), offsets.tolist(), lengths.tolist(), strict=True))
        for buffers, data in zip(targets, self._fetch(ranges), strict=True):
            at = 0
            for buffer in buffers:
                buffer[:] = data[at : at + len(buffer)].data
                at += len(buffer)

    def _fetch(self, ranges: Sequence[tuple[int, int, int]]) -> list[Bytes]:
        """Fetch ranges of object stores concurrently; neighbours are joined by fsspec's rules and ours."""
        requests, places = range_requests.joined(ranges, range_requests.REMOTE_GAP)
        if not requests:
            return []
        uris, starts = [self.uris[number] for number, _, _ in requests], [offset for _, offset, _ in requests]
        stops = [offset + length for _, offset, length in requests]
        found = [
            np.frombuffer(bytearray(data), np.uint8)
            for data in range_requests.fetch_many(uris, self._storage, starts, stops)
        ]
        return [found[i][start : start + length] for i, start, length in places]


def _requests(ranges: Ranges, targets: Sequence[Target]) -> list[_Request]:
    """Make sorted requests that cover ranges; ranges close to each other are read in one call."""
    order = np.lexsort((ranges[1], ranges[0]))
    numbers, offsets, lengths = (part[order] for part in ranges)
    repeats = (offsets[1:] == offsets[:-1]) & (numbers[1:] == numbers[:-1]) & (lengths[:-1] > 0)
    if repeats.any():  # as in windows that overlap: all ranges once, then all that come twice, and so on
        counts = np.arange(len(order))
        firsts = counts.copy()
        firsts[1:][repeats] = 0
        counts -= np.maximum.accumulate(firsts)
        order = order[np.argsort(counts, kind="stable")]
        numbers, offsets, lengths = (part[order] for part in ranges)
    ends = offsets + lengths
    gaps = offsets[1:] - ends[:-1]
    together = (numbers[1:] == numbers[:-1]) & (gaps >= 0) & (gaps <= LOCAL_WASTE)
    together[JOINED - 1 :: JOINED] = False
    buffers = [targets[i] for i in order.tolist()]
    begins, stops = offsets.tolist(), ends.tolist()
    if not together.any():
        return list(zip(numbers.tolist(), begins, stops, buffers, strict=True))
    cuts = [0, *(np.flatnonzero(~together) + 1).tolist(), len(buffers)]
    between, requests = gaps.tolist(), []
    for (first, stop), number in zip(itertools.pairwise(cuts), numbers[cuts[:-1]].tolist(), strict=True):
        target = buffers[first]
        if first + 1 < stop:
            pieces = [*target]
            for i in range(first + 1, stop):
                if gap := between[i - 1]:
                    pieces.append(_WASTE[:gap])
                pieces += buffers[i]
            target = tuple(pieces)
        requests.append((number, begins[first], stops[stop - 1], target))
    return requests


def _shares(requests: Sequence[_Request], workers: int) -> list[Sequence[_Request]]:
    """Divide requests into consecutive groups of about equal bytes, one per worker."""
    ends = np.cumsum([end - start for _, start, end, _ in requests])
    cuts = np.searchsorted(ends, int(ends[-1]) * np.arange(1, workers) / workers) + 1
    bounds = [0, *cuts.tolist(), len(requests)]
    return [requests[a:b] for a, b in itertools.pairwise(bounds) if a < b]


# For bytes that were not requested: several threads may write to it, as it is never read.
_WASTE = memoryview(bytearray(LOCAL_WASTE))
