"""One bag file: records laid end to end, and a table of where each ends.

Here: `BagWriter`, `BagReader`, and `RecordFile`, on which writers of many bags stand.
Elsewhere: datasets of several bags (logloom.io.bags.dataset_writer, dataset_reader), what records mean (logloom.io.bags.codecs).

Three generations of the table, all of little-endian u64, all read:
1. records, then N + 1 limits, the first 0, the last where the records end, which is where the limits begin;
2. the same without the 0: N ends; a bag without records is an empty file;
3. records alone, and N ends in an `.idx` file beside. It may promise less than the bag holds, after a crash.
"""

from __future__ import annotations

import array
import io
import itertools
import operator
import os
import pathlib
import struct
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.errors import DatasetError, UsageError
from logloom.io.bags.codecs import array_head
from logloom.io.bags.files import ByteFile, LocalFile, MemoryFile, open_file
from logloom.io.storage import explained

Generation = Literal[1, 3]
Buffer = bytes | bytearray | memoryview

_GATHER_BYTES = 1 << 20
_TWO = struct.Struct("<QQ")
_GATHER_PIECES = 1000  # one writev takes 1024


class RecordFile:
    """A file that grows record by record; small ones are gathered into few writes."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.nbytes = 0
        self._ends = array.array("Q")
        self._pieces: list[Buffer] = []
        self._gathered = 0
        with explained(str(path)):
            self._file = io.FileIO(path, "xb")

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, record: bytes) -> int:
        """Adds a record, which must not change later; gives its number."""
        size = len(record)
        self._ends.append(self.nbytes + size)
        self.nbytes += size
        self._pieces.append(record)
        self._gathered += size
        if self._gathered >= _GATHER_BYTES or len(self._pieces) >= _GATHER_PIECES:
            self.flush()
        return len(self._ends) - 1

    def append_at_once(self, *pieces: Buffer) -> int:
        """Adds a record in pieces that may change later: they are written before it returns."""
        size = sum(map(len, pieces))
        self._ends.append(self.nbytes + size)
        self.nbytes += size
        self._pieces += pieces
        self._gathered += size
        self.flush()
        return len(self._ends) - 1

    def extend(self, pieces: Iterable[Buffer], sizes: NDArray[np.int64]) -> None:
        """Adds records of the given sizes, cut into pieces anyhow; all is written before it returns."""
        total = 0
        for piece in pieces:
            self._pieces.append(piece)
            self._gathered += len(piece)
            total += len(piece)
            if self._gathered >= _GATHER_BYTES or len(self._pieces) >= _GATHER_PIECES:
                self.flush()
        if total != int(sizes.sum()):
            raise ValueError(f"{total} bytes for records of {sizes.sum()}")
        self._ends.frombytes((self.nbytes + np.cumsum(sizes)).astype("=u8").tobytes())
        self.nbytes += total
        self.flush()

    def rollback(self, length: int) -> None:
        """Takes back all but the first records."""
        if length == len(self._ends):
            return
        self.flush()
        del self._ends[length:]
        self.nbytes = self._ends[-1] if length else 0
        with explained(str(self.path)):
            self._file.truncate(self.nbytes)
            self._file.seek(self.nbytes)

    def flush(self) -> None:
        """Hands everything to the operating system."""
        pieces, total = self._pieces, self._gathered
        self._pieces, self._gathered = [], 0
        if not pieces:
            return
        with explained(str(self.path)):
            written = os.writev(self._file.fileno(), pieces)
            rest = memoryview(b"".join(pieces))[written:] if written < total else memoryview(b"")
            while len(rest):
                rest = rest[os.write(self._file.fileno(), rest) :]

    def finish(self, table: bool, idx: bool) -> None:
        """Ends the file: `table` puts the limits behind the records, `idx` the ends into a file beside."""
        ends = np.frombuffer(self._ends, np.uint64).astype("<u8").tobytes() if len(self._ends) else b""
        if table:
            self._pieces += [bytes(8), ends]
            self._gathered += 8 + len(ends)
        self.flush()
        self._file.close()
        if idx:
            with explained(str(self.path)), io.FileIO(self.path.with_suffix(".idx"), "xb") as file:
                file.write(ends)

    def abandon(self) -> None:
        """Closes the file without ending it."""
        self._pieces.clear()
        self._file.close()


class BagWriter:
    """Writes one bag with its table of limits; the file appears when it is closed, whole.

    Leaving the `with` by an exception leaves nothing behind.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """
        Raises:
            UsageError: there is such a file already.
        """
        self.path = pathlib.Path(path)
        if self.path.exists():
            raise UsageError(f"{self.path}: there is a bag already; delete it first, or take another name")
        self._partial = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}.partial")
        self._records = RecordFile(self._partial)
        self._closed = False

    @property
    def size(self) -> int:
        """Bytes of the file, its table included."""
        return self._records.nbytes + 8 * len(self._records) + 8

    def __len__(self) -> int:
        return len(self._records)

    def append(self, record: Buffer, flush: bool = True) -> int:
        """Adds a record and gives its number.

        Args:
            flush: taken for granular's sake; records go to the disk when enough of them wait.

        Raises:
            UsageError: not bytes, or the writer is closed.
        """
        if self._closed:
            raise UsageError(f"{self.path}: the writer is closed")
        if not isinstance(record, bytes | bytearray | memoryview):
            raise UsageError(f"{self.path}: a record is bytes, got {type(record).__name__}; encode it first")
        return self._records.append(bytes(record))

    def flush(self) -> None:
        """Hands everything to the operating system."""
        self._records.flush()

    def close(self) -> None:
        """Ends the file and gives it its name.

        Raises:
            UsageError: meanwhile there is such a file.
        """
        if self._closed:
            return
        self._closed = True
        self._records.finish(table=True, idx=False)
        try:
            with explained(str(self.path)), self._partial.open("rb") as file:
                os.fsync(file.fileno())
                try:
                    os.link(self._partial, self.path)
                except FileExistsError:
                    raise UsageError(f"{self.path}: another writer finished this bag first") from None
        finally:
            self._partial.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        elif not self._closed:
            self._closed = True
            self._records.abandon()
            self._partial.unlink(missing_ok=True)


class BagReader:
    """Random access to the records of one bag.

    Opens files when they are read, pickles as where they are, serves many threads and crosses a fork.
    """

    def __init__(self, source: Any, cache_index: bool = True, cache_data: bool = False, *, idx: Any = None):
        """
        Args:
            source: a path, URI or path-like object; or the bytes of a bag that has its table inside.
            cache_index: keep the table in memory: 8 bytes a record, and one read less for each.
            cache_data: keep everything in memory.
            idx: of the file of ends; False: the table is inside. By default as the files say.

        Raises:
            DatasetError: there is no such file, or its table is damaged; names the file and the byte.
        """
        self._arguments = (source, cache_index, cache_data, idx)
        bag = open_file(source)
        if idx is None:
            idx = _idx_beside(source)
        index = open_file(idx) if idx else None
        if cache_data:
            bag = MemoryFile(bag.read(0, bag.size), bag.name)
        self.name = bag.name
        self._bag = bag
        self._table = _find_ends(bag) if index is None else _ends_of_idx(bag, index)
        self._length = self._table.count
        self._limits: memoryview | None = None
        if cache_index or cache_data:
            self._limits = self._table.read_all()
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, self._arguments)

    @property
    def size(self) -> int:
        """Bytes of records and table."""
        return self._table.nbytes

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int | slice | range) -> bytes | list[bytes]:
        """A record; or the records of a range, with one read, as far as there are any.

        Raises:
            IndexError: there is no such record.
            UsageError: the reader is closed, or a range goes backwards or in steps.
            DatasetError: the file is damaged or gone.
        """
        if self._closed:
            raise UsageError(f"{self.name}: the reader is closed")
        if isinstance(index, slice | range):
            data, limits = self.read_range(*checked_range(index, self._length))
            return [data[start:stop] for start, stop in itertools.pairwise(limits)]
        number = operator.index(index)
        if not -self._length <= number < self._length:
            raise IndexError(f"{self.name}: record {number} of {self._length}")
        return self.fetcher()(number % self._length)

    def fetcher(self) -> Callable[[int], bytes]:
        """A function from a number, known to be in range, to its record: the quickest way to one."""
        limits, read = self._limits, self._bag.read
        if limits is None:
            return self._table.fetcher(read)

        def fetch(number: int) -> bytes:
            start = limits[number]
            return read(start, limits[number + 1] - start)

        return fetch

    def read_range(self, start: int, stop: int) -> tuple[bytes, list[int]]:
        """The bytes of records [start, stop) in one read, and the n + 1 limits of these within them."""
        if start >= stop:
            return b"", [0]
        if self._limits is not None:
            limits = self._limits[start : stop + 1].tolist()
        else:
            limits = self._table.read(start, stop)
        first = limits[0]
        data = self._bag.read(first, limits[-1] - first)
        return data, [limit - first for limit in limits] if first else limits

    def read_arrays(self, targets: Iterable[tuple[int, Array]]) -> None:
        """Reads records of `array` type straight into arrays.

        Args:
            targets: (number, known to be in range; a contiguous array of the record's dtype and shape).

        Raises:
            ValueError: a record holds another dtype or shape.
        """
        for number, target in targets:
            head = array_head(target.dtype, target.shape)
            start, stop = (
                self._limits[number : number + 2] if self._limits else self._table.read(number, number + 1)
            )
            if stop - start != len(head) + target.nbytes:
                raise ValueError(f"{self.name}: record {number} is no {target.dtype} {target.shape}")
            found = bytearray(len(head))
            if isinstance(self._bag, LocalFile):
                self._bag.read_into(start, (found, target), stop - start)
            else:
                data = self._bag.read(start, stop - start)
                found[:] = data[: len(head)]
                target[...] = np.frombuffer(data, target.dtype, -1, len(head)).reshape(target.shape)
            if found != head:
                raise ValueError(f"{self.name}: record {number} is no {target.dtype} {target.shape}")

    def limits(self) -> NDArray[np.int64]:
        """(N + 1,) where each record begins in the bag, and where the last ends."""
        limits = self._limits if self._limits is not None else self._table.read_all()
        return np.frombuffer(limits, np.int64)

    def stretches(self, max_bytes: int) -> Iterator[tuple[int, int]]:
        """Consecutive [start, stop) of all records, each of about `max_bytes` or of one record."""
        return cut_evenly(self.limits(), max_bytes)

    def copy(self) -> BagReader:
        """A reader of the same bag that shares nothing with this one."""
        return _reopen(*self._arguments)

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _reopen(source: Any, cache_index: bool, cache_data: bool, idx: Any) -> BagReader:
    return BagReader(source, cache_index, cache_data, idx=idx)


def cut_evenly(limits: NDArray[np.int64], max_bytes: int) -> Iterator[tuple[int, int]]:
    """Consecutive [start, stop) that cover n things, each at most `max_bytes` or one thing.

    Args:
        limits: (n + 1,) bytes before each thing, and in all.
    """
    start, count = 0, len(limits) - 1
    while start < count:
        stop = max(start + 1, int(np.searchsorted(limits, limits[start] + max_bytes, "right")) - 1)
        yield start, stop
        start = stop


def checked_range(index: slice | range, length: int) -> tuple[int, int]:
    """The start and stop of a range of a sequence, clipped to its length.

    Raises:
        UsageError: it counts from the end, goes backwards, or in steps.
    """
    start = 0 if index.start is None else operator.index(index.start)
    stop = length if index.stop is None else operator.index(index.stop)
    if not 0 <= start <= stop or index.step not in (None, 1):
        raise UsageError(f"{index}: ranges go forward from 0 in steps of 1")
    return min(start, length), min(stop, length)


class _Table:
    """Where the ends of a bag's records stand.

    Attributes:
        count: of records.
        nbytes: of records and table together.
    """

    def __init__(self, file: ByteFile, at: int, count: int, data_end: int, bag: str, nbytes: int):
        self._file, self._at, self._data_end, self._bag = file, at, data_end, bag
        self.count, self.nbytes = count, nbytes

    def read(self, start: int, stop: int) -> list[int]:
        """The limits of records [start, stop), start < stop: n + 1 numbers."""
        skipped = 1 if start else 0  # the first record starts at 0, which no end says
        data = self._file.read(self._at + 8 * (start - skipped), 8 * (stop - start + skipped))
        limits: list[int] = np.frombuffer(data, "<u8").tolist()
        if not skipped:
            limits.insert(0, 0)
        if any(a > b for a, b in itertools.pairwise(limits)) or limits[-1] > self._data_end:
            self._complain(np.array(limits, np.uint64), start)
        return limits

    def fetcher(self, read_bag: Callable[[int, int], bytes]) -> Callable[[int], bytes]:
        """A function from a number to its record, which looks the limits up each time."""
        read, before, data_end = self._file.read, self._at - 8, self._data_end

        def fetch(number: int) -> bytes:
            if number:
                start, stop = _TWO.unpack(read(before + 8 * number, 16))
            else:
                start, stop = 0, int.from_bytes(read(before + 8, 8), "little")
            if not start <= stop <= data_end:
                self.read(number, number + 1)
            return read_bag(start, stop - start)

        return fetch

    def read_all(self) -> memoryview:
        """All limits, (count + 1,) u64."""
        limits = np.zeros(self.count + 1, np.uint64)
        limits[1:] = np.frombuffer(self._file.read(self._at, 8 * self.count), "<u8")
        if (limits[1:] < limits[:-1]).any() or limits[-1] > self._data_end:
            self._complain(limits, 0)
        return limits.data

    def _complain(self, limits: NDArray[np.uint64], start: int) -> None:
        bad = (limits[1:] < limits[:-1]) | (limits[1:] > self._data_end)
        record = start + int(np.flatnonzero(bad)[0])
        raise DatasetError(
            f"{self._file.name}: damaged limit at byte {self._at + 8 * record}: record {record} would "
            f"lie in bytes {limits[record - start]} to {limits[record - start + 1]} of {self._bag}, whose "
            f"records end at byte {self._data_end}; write the bag again"
        )


def _idx_beside(source: Any) -> Any:
    """The `.idx` file beside a bag, None where there is none."""
    if isinstance(source, bytes | bytearray | memoryview):
        return None
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        stem = text[: -len(".bag")] if text.endswith(".bag") else text
        file = open_file(f"{stem}.idx")
        if isinstance(file, LocalFile):
            return f"{stem}.idx" if os.path.exists(file.name) else None
    elif hasattr(source, "with_suffix"):
        path = source.with_suffix(".idx")
        return path if path.exists() else None
    else:
        return None
    try:
        file.size  # noqa: B018 - asks whether there is one
    except DatasetError:
        return None
    return f"{stem}.idx"


def _ends_of_idx(bag: ByteFile, index: ByteFile) -> _Table:
    count, torn = divmod(index.size, 8)
    if torn:
        raise DatasetError(
            f"{index.name}: {index.size} bytes are no whole number of 8-byte limits; the last begins at byte "
            f"{8 * count}: cut the file there to read the records before it"
        )
    last = int.from_bytes(index.read(8 * (count - 1), 8), "little") if count else 0
    size = bag.size
    if last > size:
        raise DatasetError(
            f"{bag.name}: it ends at byte {size}, its records at byte {last} as {index.name} says; the bag "
            "was truncated: write it again"
        )
    return _Table(index, 0, count, size, bag.name, last + 8 * count)


def _find_ends(bag: ByteFile) -> _Table:
    size = bag.size
    if size == 0:
        return _Table(bag, 0, 0, 0, bag.name, 0)
    damaged = (
        f"{bag.name}: its last 8 bytes (from byte {size - 8}) should say where its table of limits begins"
    )
    if size < 8:
        raise DatasetError(f"{damaged}, but it has {size} bytes in all: it is no bag, or was truncated")
    start = int.from_bytes(bag.read(size - 8, 8), "little")
    if start > size - 8 or (size - start) % 8:
        raise DatasetError(
            f"{damaged}, but they say {start}: the bag was truncated or never finished, or keeps its limits "
            "in an .idx file that is missing"
        )
    has_zero = int.from_bytes(bag.read(start, 8), "little") == 0
    at = start + 8 * has_zero
    return _Table(bag, at, (size - at) // 8, start, bag.name, size)


if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("bags are read and written on little-endian machines only")
