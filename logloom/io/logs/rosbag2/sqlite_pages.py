"""Remote pages of sqlite files: sqlite reads them one by one, requests fetch many.

Here: `connected`, a connection of sqlite to a local file or a `PagedFile`, which fetches pages; `leaves` and
`tails`, which find the pages of a table. Elsewhere: the tables of a bag (db3).

An unexpected page is fetched with its neighbours, since tables grow at the end of a file. Readers announce
pages (`PagedFile.expect`): then all that fit into a batch are requested at once, in few ranges. Only sqlite
interprets the content of pages: a damaged file can only cause unnecessary fetches here.
"""

from __future__ import annotations

import contextlib
import os
import struct
import urllib.parse
import weakref
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise
from typing import Any

import apsw
import numpy as np

from logloom.errors import LogReadError, StorageError
from logloom.io.logs.files.ranges import MIB, LogFile
from logloom.io.storage.files import open_local
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.remote.range_requests import runs

PAGES: LruCache[bytes] = LruCache(32 * MIB, size=len)
_PAGE_SIZES = [512 << i for i in range(8)]  # others are damage, which sqlite names
_UNIT = 4096  # bytes cached together, unless pages are larger
_STEPS = 10_000_000
_AHEAD = 64 << 10  # bytes fetched with an unexpected page
_GAP = 64 << 10  # bytes between two wanted pages that cost less than another request
_BATCH = 8 * MIB  # bytes requested at once
_REQUESTS = 64  # at once
_RANGE = MIB  # a longer one is requested in parts, at once
REFUSALS = (apsw.CantOpenError, apsw.IOError, apsw.NoMemError)  # of the machine; damage doesn't cause them
_INTERIOR, _LEAF = 5, 13  # first byte of a table's pages
_SHARE = 64  # at most one in so many pages is an interior page of a table that isn't damaged or small
_LEAST = 64  # pages that may be interior in a small file


class PagedFile:
    """An open file for sqlite and one connection. Pages are cached for all connections of the process.

    Attributes:
        page_size: bytes.
        num_pages: complete pages of the file.
    """

    def __init__(self, file: LogFile, page_size: int):
        self.page_size = page_size = page_size if page_size in _PAGE_SIZES else _UNIT
        self.num_pages = file.size // page_size
        self._file, self._unit = file, max(page_size, _UNIT)
        self._size = self.num_pages * page_size
        self._expected: list[int] = []
        self._place: dict[int, int] = {}

    def page(self, number: int) -> bytes:
        """Return a page by its number, from 1; raises the errors of `LogFile.read`."""
        return self.xRead(self.page_size, (number - 1) * self.page_size)

    def expect(self, pages: Iterable[int]) -> None:
        """Announce pages in the order in which they will be read; those beyond the file are ignored."""
        inside = (page for page in pages if 1 <= page <= self.num_pages)
        self._expected = list(dict.fromkeys((page - 1) * self.page_size // self._unit for page in inside))
        self._place = {unit: i for i, unit in enumerate(self._expected)}

    def _fetched(self, unit: int) -> bytes:
        """Fetch a unit that isn't in memory, and others with it."""
        if unit in self._place:
            fetched = self._fetch(self._next(self._place[unit]))
        else:
            fetched = self._fetch(range(unit, unit + max(1, _AHEAD // self._unit)))
        for number, data in fetched.items():
            PAGES.put(self._key(number), data)
        return fetched[unit]

    def _next(self, place: int) -> list[int]:
        """Choose which expected units to fetch now: the one at a place, and others after it."""
        units: list[int] = []
        requests = size = 0
        for unit in (self._expected[i] for i in range(place, len(self._expected))):
            if units and PAGES.get(self._key(unit)) is not None:
                continue
            gap = (unit - units[-1] - 1) * self._unit if units else -1
            is_near = 0 <= gap <= _GAP
            requests, size = requests + (not is_near), size + self._unit + (gap if is_near else 0)
            if units and (requests > _REQUESTS or size > _BATCH):
                break
            units.append(unit)
        return units

    def _fetch(self, units: Iterable[int]) -> dict[int, bytes]:
        """Units, and those that are between neighbours."""
        starts = np.array(sorted(units), np.int64) * self._unit
        starts = starts[starts < self._size]
        stops = np.minimum(starts + self._unit, self._size)
        groups = pairwise(runs(starts, stops, _RANGE, _GAP))
        ranges = [(int(starts[low]), int(stops[high - 1])) for low, high in groups]
        found = {}
        for (start, _), data in zip(ranges, self._file.read_many(ranges), strict=True):
            for at in range(0, len(data), self._unit):
                found[(start + at) // self._unit] = data[at : at + self._unit]
        return found

    def _key(self, unit: int) -> tuple[Any, ...]:
        return (self._file.identity, self.page_size, unit)

    # --- called by sqlite, with apsw's names ---------------------------------------------------------------

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        first, last = offset // self._unit, (min(offset + amount, self._size) - 1) // self._unit
        parts = []
        for unit in range(first, last + 1):
            data = PAGES.get(self._key(unit))
            parts.append(self._fetched(unit) if data is None else data)
        start = offset - first * self._unit
        return (
            parts[0][start : start + amount] if len(parts) == 1 else b"".join(parts)[start : start + amount]
        )

    def xFileSize(self) -> int:  # noqa: N802
        return self._size

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return apsw.SQLITE_IOCAP_IMMUTABLE

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return 0

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xLock(self, level: int) -> None:  # noqa: N802
        pass

    def xUnlock(self, level: int) -> None:  # noqa: N802
        pass

    def xClose(self) -> None:  # noqa: N802
        pass


class _Vfs(apsw.VFS):
    """sqlite's access to `PagedFile`s, by numbers instead of names, and to nothing else."""

    def __init__(self) -> None:
        super().__init__(name="logloom", base="")
        self.files: weakref.WeakValueDictionary[str, PagedFile] = weakref.WeakValueDictionary()

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        found = self.files.get(name.filename()) if isinstance(name, apsw.URIFilename) else None
        if found is None:
            raise apsw.CantOpenError(f"unknown file {name}")
        flags[1] = flags[0]
        return found

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name


_vfs = _Vfs()


@contextlib.contextmanager
def connected(source: PagedFile | str, longest: int) -> Iterator[apsw.Connection]:
    """Connect sqlite to a possibly hostile file.

    Args:
        source: a local file by its path, or any file; errors of its requests pass through sqlite.
        longest: limit of a value, in bytes.

    Raises:
        apsw.Error: sqlite can't open it.
        StorageError: the machine failed, here or in the block.
        LogReadError: the local file is gone.
    """
    try:
        with _connected(source, longest) as database:
            yield database
    except REFUSALS as error:
        if not isinstance(source, str):
            raise
        open_local(
            source, LogReadError, is_sized=False
        )  # which raises the reason, if it can't be opened now either
        raise StorageError(f"{source}: {error}") from error


@contextlib.contextmanager
def _connected(source: PagedFile | str, longest: int) -> Iterator[apsw.Connection]:
    path, vfs = (
        (f"//{os.path.abspath(source)}", None) if isinstance(source, str) else (str(id(source)), "logloom")
    )
    if not isinstance(source, str):
        _vfs.files[path] = source
    # Immutable: takes no locks and writes nothing, so it reads from read-only folders too.
    uri = f"file:{urllib.parse.quote(path)}?mode=ro&immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with contextlib.closing(apsw.Connection(uri, flags=flags, vfs=vfs)) as database:
        database.limit(apsw.SQLITE_LIMIT_LENGTH, min(longest + 4096, 1 << 30))
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON", "temp_store=MEMORY"):
            database.execute(f"PRAGMA {setting}")
        # Limits a small file whose pages refer to each other, with endless rows.
        limit_steps(database)
        # Else sqlite refuses a truncated file, of which much may be intact.
        database.execute("PRAGMA writable_schema=ON")
        yield database


def limit_steps(database: apsw.Connection, more: int = 0) -> None:
    """Stop statements with more steps of sqlite's machine than those apart from messages need."""
    database.set_progress_handler(_stop, min(_STEPS + more, (1 << 31) - 1))


def _stop() -> bool:
    return True


# --- pages of a table -----------------------------------------------------------------------------------


def leaves(file: PagedFile, root: int, first: int, last: int) -> list[int]:
    """Find the pages of a table's rows with first <= id <= last, by id, announcing interior pages.

    An interior page lists its children, each with the highest row id under it; a leaf contains rows; all
    leaves of a table have the same depth. The rest of a row that is too long for its leaf is in a chain of
    pages, consecutive in a file that only grew (https://www.sqlite.org/fileformat2.html).
    """
    level, left = [root], max(_LEAST, file.num_pages // _SHARE)
    while level := [number for number in dict.fromkeys(level) if 1 <= number <= file.num_pages]:
        if file.page(level[0])[0] != _INTERIOR:
            return level
        left -= len(level)
        if left < 0:  # they refer to each other
            break
        file.expect(level)
        level = [child for number in level for child in _children(file.page(number), first, last)]
    return []


def _children(page: bytes, first: int, last: int) -> Iterator[int]:
    """Return the children with rows in first <= id <= last."""
    lowest = -(1 << 63)
    for cell in _cells(page, 12):
        highest, _ = _varint(page, cell + 4)
        if first <= highest and lowest <= last:
            yield int.from_bytes(page[cell : cell + 4], "big")
        lowest = highest
    if lowest <= last:
        yield int.from_bytes(page[8:12], "big")


def tails(file: PagedFile, leaf: int, ids: Container[int], reserved: int) -> Iterator[int]:
    """Find the pages with the rest of some rows of a leaf.

    Args:
        ids: of the rows.
        reserved: bytes at the end of each page that sqlite doesn't use.
    """
    page, usable = file.page(leaf), file.page_size - reserved
    least, most = (usable - 12) * 32 // 255 - 23, usable - 35
    for cell in _cells(page, 8) if page[0] == _LEAF else ():
        size, at = _varint(page, cell)
        number, at = _varint(page, at)
        if not most < size <= file.xFileSize() or number not in ids:
            continue
        here = least + (size - least) % (usable - 4)
        here = here if here <= most else least
        start = int.from_bytes(page[at + here : at + here + 4], "big")
        count = -(-(size - here) // (usable - 4))
        yield from range(start, min(start + count, file.num_pages + 1))


def _cells(page: bytes, header: int) -> tuple[int, ...]:
    """Return where the cells of a page start, as listed after its header."""
    count = min(int.from_bytes(page[3:5], "big"), (len(page) - header) // 2)
    return struct.unpack_from(f">{count}H", page, header)


def _varint(page: bytes, at: int) -> tuple[int, int]:
    """Read a number of one to nine bytes; return it and the place after it."""
    value = 0
    for i, byte in enumerate(page[at : at + 9]):
        value = value << 8 | byte if i == 8 else value << 7 | byte & 0x7F
        if i == 8 or byte < 0x80:
            return value - (1 << 64) if value >> 63 else value, at + i + 1
    return 0, len(page)
