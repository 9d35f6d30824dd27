"""Tables of record limits in bag files of the library granular (not ROS bags).

Here: `LimitsTable`; finding it (`find_ends`, `ends_of_idx`, `idx_beside`); checked ranges of records.
Elsewhere: the records themselves (logloom.io.formats.bags.bag).

The file format has three generations; all limits are little-endian u64:
1. records, then N + 1 limits, the first 0, the last where the records end, which is where the limits begin;
2. the same without the 0: N ends; a bag without records is an empty file;
3. records alone, and N ends in an `.idx` file next to it, which may list fewer records after a crash.
"""

from __future__ import annotations

import itertools
import operator
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import DatasetError, UsageError
from logloom.io.formats.bags.files import ByteFile
from logloom.io.storage.files import File
from logloom.uris import path_of

_TWO = struct.Struct("<QQ")


def checked_range(index: slice | range, length: int) -> tuple[int, int]:
    """Return the start and stop of a range of a sequence, clipped to its length.

    Raises:
        UsageError: it counts from the end, goes backwards, or in steps.
    """
    start = 0 if index.start is None else operator.index(index.start)
    stop = length if index.stop is None else operator.index(index.stop)
    if not 0 <= start <= stop or index.step not in (None, 1):
        raise UsageError(f"{index}: ranges go forward from 0 in steps of 1")
    return min(start, length), min(stop, length)


class LimitsTable:
    """The table of the limits of a bag's records.

    Attributes:
        count: of records.
        nbytes: of records and table together.
    """

    def __init__(self, file: ByteFile, at: int, count: int, data_end: int, bag: str, nbytes: int):
        self._file, self._at, self._data_end, self._bag = file, at, data_end, bag
        self.count, self.nbytes = count, nbytes

    def read(self, start: int, stop: int) -> list[int]:
        """The limits of records [start, stop), start < stop: n + 1 numbers."""
        skipped = 1 if start else 0  # the first record starts at 0, which is no end
        data = self._file.read(self._at + 8 * (start - skipped), 8 * (stop - start + skipped))
        limits: list[int] = np.frombuffer(data, "<u8").tolist()
        if not skipped:
            limits.insert(0, 0)
        if any(a > b for a, b in itertools.pairwise(limits)) or limits[-1] > self._data_end:
            self._complain(np.array(limits, np.uint64), start)
        return limits

    def fetcher(self, read_bag: Callable[[int, int], bytes]) -> Callable[[int], bytes]:
        """Return a function from a number to its record, which looks the limits up each time."""
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
            f"be in bytes {limits[record - start]} to {limits[record - start + 1]} of {self._bag}, whose "
            f"records end at byte {self._data_end}; write the bag again"
        )


def idx_beside(source: Any) -> Any:
    """The `.idx` file of a bag; None if there is none."""
    if isinstance(source, bytes | bytearray | memoryview):
        return None
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        stem = text[: -len(".bag")] if text.endswith(".bag") else text
        file = File(f"{stem}.idx")
        if file.is_local:
            return f"{stem}.idx" if os.path.exists(path_of(file.name)) else None
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


def ends_of_idx(bag: ByteFile, index: ByteFile) -> LimitsTable:
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
            f"{bag.name}: it ends at byte {size}, its records at byte {last} by {index.name}; the bag "
            "was truncated: write it again"
        )
    return LimitsTable(index, 0, count, size, bag.name, last + 8 * count)


def find_ends(bag: ByteFile) -> LimitsTable:
    size = bag.size
    if size == 0:
        return LimitsTable(bag, 0, 0, 0, bag.name, 0)
    damaged = (
        f"{bag.name}: its last 8 bytes (from byte {size - 8}) should have the start of its table of limits"
    )
    if size < 8:
        raise DatasetError(f"{damaged}, but it has {size} bytes in all: it is no bag, or was truncated")
    start = int.from_bytes(bag.read(size - 8, 8), "little")
    if start > size - 8 or (size - start) % 8:
        raise DatasetError(
            f"{damaged}, but they have {start}: the bag was truncated or never finished, or keeps its limits "
            "in an .idx file that is missing"
        )
    has_zero = int.from_bytes(bag.read(start, 8), "little") == 0
    at = start + 8 * has_zero
    return LimitsTable(bag, at, (size - at) // 8, start, bag.name, size)


if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("bags are read and written on little-endian machines only")
