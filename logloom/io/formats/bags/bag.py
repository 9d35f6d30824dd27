"""One bag file: concatenated records, and a table of the end of each.

Here: `BagWriter`, `BagReader`, and `RecordFile`, the base of writers of many bags.
Elsewhere: the table (logloom.io.formats.bags.limits), datasets of several bags
(logloom.io.formats.bags.dataset_writer, dataset_reader), encoding of records
(logloom.io.formats.bags.codecs).
"""

from __future__ import annotations

import array
import functools
import io
import itertools
import operator
import os
import pathlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, cut_by_bytes
from logloom.errors import UsageError
from logloom.io.formats.bags.files import ClosedAtEnd, MemoryFile, open_file
from logloom.io.formats.bags.limits import checked_range, ends_of_idx, find_ends, idx_beside
from logloom.io.storage.files import File
from logloom.io.storage.filesystems import explained

Generation = Literal[1, 3]
Buffer = bytes | bytearray | memoryview

_GATHER_BYTES = 1 << 20
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
        """Add a record, which must not change later; return its number."""
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
        """Remove all but the first records."""
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
        """Finish the file: `table` writes the limits after the records, `idx` the ends to a separate file."""
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
        """Close the file without finishing it."""
        self._pieces.clear()
        self._file.close()


class BagWriter(ClosedAtEnd):
    """Writes one bag with its table of limits; the complete file appears when it is closed.

    Leaving the `with` by an exception leaves nothing behind. `closed` is whether it was closed or abandoned.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """
        Args:
            path: of the file.

        Raises:
            UsageError: the file exists already.
        """
        self.path = pathlib.Path(path)
        if self.path.exists():
            raise UsageError(f"{self.path}: there is a bag already; delete it first, or take another name")
        self._partial = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}.partial")
        self._records = RecordFile(self._partial)
        self.closed = False

    @property
    def size(self) -> int:
        """Bytes of the file, including its table."""
        return self._records.nbytes + 8 * len(self._records) + 8

    def __len__(self) -> int:
        return len(self._records)

    def append(self, record: Buffer, flush: bool = True) -> int:
        """Adds a record.

        Args:
            record: its bytes.
            flush: ignored, as in granular; records are written when enough of them are buffered.

        Returns:
            The record's number.

        Raises:
            UsageError: not bytes, or the writer is closed.
        """
        if self.closed:
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
            UsageError: another writer finished this bag first.
        """
        if self.closed:
            return
        self.closed = True
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

    def _abandon(self) -> None:
        if not self.closed:
            self.closed = True
            self._records.abandon()
            self._partial.unlink(missing_ok=True)


class BagReader(ClosedAtEnd):
    """Random access to the records of one bag.

    Opens files when they are read, pickles by location, serves many threads and crosses a fork.
    `closed` says whether it was closed; a copy, pickled or not, is open.
    """

    def __init__(self, source: Any, cache_index: bool = True, cache_data: bool = False, *, idx: Any = None):
        """
        Args:
            source: a path, URI or path-like object; or the bytes of a bag that contains its table.
            cache_index: keep the table in memory: 8 bytes a record, and one read less for each.
            cache_data: keep everything in memory.
            idx: the file of ends; False: the bag contains its table. Detected by default.

        Raises:
            DatasetError: there is no such file, or its table is damaged; names the file and the byte.
        """
        self._again = functools.partial(BagReader, source, cache_index, cache_data, idx=idx)
        bag = open_file(source)
        if idx is None:
            idx = idx_beside(source)
        index = open_file(idx) if idx else None
        if cache_data:
            bag = MemoryFile(bag.read(0, bag.size), bag.name)
        self.name = bag.name
        self._bag = bag
        self._table = find_ends(bag) if index is None else ends_of_idx(bag, index)
        self._length = self._table.count
        self._limits: memoryview | None = None
        if cache_index or cache_data:
            self._limits = self._table.read_all()
        self.closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, ()

    @property
    def size(self) -> int:
        """Bytes of records and table."""
        return self._table.nbytes

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int | slice | range) -> bytes | list[bytes]:
        """Read a record; or the records of a range, clipped to the bag, with one read.

        Raises:
            IndexError: there is no such record.
            UsageError: the reader is closed, or a range goes backwards or in steps.
            DatasetError: the file is damaged or gone.
        """
        if self.closed:
            raise UsageError(f"{self.name}: the reader is closed")
        if isinstance(index, slice | range):
            data, limits = self.read_range(*checked_range(index, self._length))
            return [data[start:stop] for start, stop in itertools.pairwise(limits)]
        number = operator.index(index)
        if not -self._length <= number < self._length:
            raise IndexError(f"{self.name}: record {number} of {self._length}")
        return self.fetcher()(number % self._length)

    def fetcher(self) -> Callable[[int], bytes]:
        """Return a function from a number, known to be in range, to its record: the quickest access."""
        limits, read = self._limits, self._bag.read
        if limits is None:
            return self._table.fetcher(read)

        def fetch(number: int) -> bytes:
            start = limits[number]
            return read(start, limits[number + 1] - start)

        return fetch

    def read_range(self, start: int, stop: int) -> tuple[bytes, list[int]]:
        """Read the bytes of records [start, stop) at once, and the n + 1 limits of these within them.

        Args:
            start: the first record.
            stop: the record after the last.
        """
        if start >= stop:
            return b"", [0]
        if self._limits is not None:
            limits = self._limits[start : stop + 1].tolist()
        else:
            limits = self._table.read(start, stop)
        first = limits[0]
        data = self._bag.read(first, limits[-1] - first)
        return data, [limit - first for limit in limits] if first else limits

    def read_arrays(self, places: Sequence[tuple[int, int]], target: Array, head: bytes) -> None:
        """Reads records straight into the rows of an array.

        Args:
            places: (number of a record, known to be in range; its row of `target`).
            target: (n, *shape), of the records' dtype and shape.
            head: the head of each record, before its data.

        Raises:
            ValueError: a record holds another dtype or shape.
        """
        width, body = len(head), target[:1].nbytes
        starts, stops = self._bounds([number for number, _ in places])
        for (number, _), start, stop in zip(places, starts, stops, strict=True):
            if stop - start != width + body:
                raise self._unlike(number, target)
        found = bytearray(width * len(places))
        if isinstance(self._bag, File) and self._bag.is_local and target.flags.c_contiguous:
            heads, data = memoryview(found), target.reshape(-1).view(np.uint8).data
            buffers = [
                (heads[place * width : place * width + width], data[row * body : row * body + body])
                for place, (_, row) in enumerate(places)
            ]
            self._bag.fill_many(starts, buffers, width + body)
        else:
            for place, ((_, row), start) in enumerate(zip(places, starts, strict=True)):
                record = self._bag.read(start, width + body)
                found[place * width : place * width + width] = record[:width]
                target[row] = np.frombuffer(record, target.dtype, -1, width).reshape(target.shape[1:])
        if found != head * len(places):
            heads = memoryview(found)
            wrong = next(n for n in range(len(places)) if heads[n * width : n * width + width] != head)
            raise self._unlike(places[wrong][0], target)

    def _bounds(self, numbers: Sequence[int]) -> tuple[list[int], list[int]]:
        """The limits of records."""
        if self._limits is not None:
            limits, chosen = self.limits(), np.array(numbers, np.int64)
            return limits[chosen].tolist(), limits[chosen + 1].tolist()
        found = [self._table.read(number, number + 1) for number in numbers]
        return [start for start, _ in found], [stop for _, stop in found]

    def _unlike(self, number: int, target: Array) -> ValueError:
        return ValueError(f"{self.name}: record {number} is no {target.dtype} {target.shape[1:]}")

    def limits(self) -> NDArray[np.int64]:
        """(N + 1,) where each record begins in the bag, and where the last ends."""
        limits = self._limits if self._limits is not None else self._table.read_all()
        return np.frombuffer(limits, np.int64)

    def stretches(self, max_bytes: int) -> Iterator[tuple[int, int]]:
        """Cuts all records into stretches, each of about `max_bytes` or of one record.

        Yields:
            (start, stop) of each.
        """
        return cut_by_bytes(self.limits(), max_bytes)

    def copy(self) -> BagReader:
        """Return a reader of the same bag that shares nothing with this one."""
        return self._again()

    def close(self) -> None:
        self.closed = True
