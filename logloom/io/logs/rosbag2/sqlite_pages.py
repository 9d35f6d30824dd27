"""Pages of sqlite files in object stores: sqlite asks for them one by one, they come many to a request.

Here: `connected`, a connection of sqlite to a local file or a `PagedFile`, which fetches pages.
Elsewhere: which pages hold what (sqlite_trees), the tables of a bag (db3).

A page that sqlite asks for and that nobody announced comes with its neighbours, since tables grow at the end
of a file. Whoever knows what will be read announces it (`PagedFile.expect`): then all that fits into a batch
is requested at once, by as few ranges as pay.
"""

from __future__ import annotations

import contextlib
import os
import urllib.parse
import weakref
from collections.abc import Iterable, Iterator
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
_UNIT = 4096  # bytes that are kept together, unless pages are larger
_STEPS = 10_000_000
_AHEAD = 64 << 10  # bytes that come with a page that nobody announced
_GAP = 64 << 10  # bytes between two wanted pages that cost less than a request of their own
_BATCH = 8 * MIB  # bytes requested at once
_REQUESTS = 64  # at once
_RANGE = MIB  # a longer one is requested in parts, at once
REFUSALS = (apsw.CantOpenError, apsw.IOError, apsw.NoMemError)  # of the machine; no damage brings them about


class PagedFile:
    """An open file as sqlite wants it, for one connection. Pages are kept for all connections of the process.

    Attributes:
        page_size: bytes.
        num_pages: that the file has, a torn one left out.
    """

    def __init__(self, file: LogFile, page_size: int):
        self.page_size = page_size = page_size if page_size in _PAGE_SIZES else _UNIT
        self.num_pages = file.size // page_size
        self._file, self._unit = file, max(page_size, _UNIT)
        self._size = self.num_pages * page_size
        self._expected: list[int] = []
        self._place: dict[int, int] = {}

    def page(self, number: int) -> bytes:
        """A page by its number, from 1; raises what `LogFile.read` raises."""
        return self.xRead(self.page_size, (number - 1) * self.page_size)

    def expect(self, pages: Iterable[int]) -> None:
        """Announces pages in the order in which they will be read; those beyond the file are ignored."""
        inside = (page for page in pages if 1 <= page <= self.num_pages)
        self._expected = list(dict.fromkeys((page - 1) * self.page_size // self._unit for page in inside))
        self._place = {unit: i for i, unit in enumerate(self._expected)}

    def _fetched(self, unit: int) -> bytes:
        """A unit that isn't in memory; more are fetched along."""
        if unit in self._place:
            fetched = self._fetch(self._next(self._place[unit]))
        else:
            fetched = self._fetch(range(unit, unit + max(1, _AHEAD // self._unit)))
        for number, data in fetched.items():
            PAGES.put(self._key(number), data)
        return fetched[unit]

    def _next(self, place: int) -> list[int]:
        """What to fetch now of what is expected: the unit at a place, and others behind it."""
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
        """Units, and those that lie between neighbours."""
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

    # --- what sqlite calls, by the names that apsw gives it ----------------------------------------------

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
    """sqlite's way to `PagedFile`s, by numbers instead of names, and to nothing else."""

    def __init__(self) -> None:
        super().__init__(name="logloom", base="")
        self.files: weakref.WeakValueDictionary[str, PagedFile] = weakref.WeakValueDictionary()

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        found = self.files.get(name.filename()) if isinstance(name, apsw.URIFilename) else None
        if found is None:
            raise apsw.CantOpenError(f"{name} is no file of ours")
        flags[1] = flags[0]
        return found

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name


_vfs = _Vfs()


@contextlib.contextmanager
def connected(source: PagedFile | str, longest: int) -> Iterator[apsw.Connection]:
    """A connection of sqlite, to a file that may be an enemy's.

    Args:
        source: a local file by its path, or any file; what its requests raise passes through sqlite.
        longest: bytes of a value that is read.

    Raises:
        apsw.Error: sqlite can't open it.
        StorageError: the machine refused, here or in the block.
        LogReadError: the local file is gone.
    """
    try:
        with _connected(source, longest) as database:
            yield database
    except REFUSALS as error:
        if not isinstance(source, str):
            raise
        open_local(source, LogReadError, is_sized=False)  # which says why, if it can't be opened now either
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
        # A small file whose pages lead back to each other would else give rows for ever.
        limit_steps(database)
        # Else sqlite refuses a file that is shorter than it says, of which much may be whole.
        database.execute("PRAGMA writable_schema=ON")
        yield database


def limit_steps(database: apsw.Connection, more: int = 0) -> None:
    """Ends statements that take more steps of sqlite's machine than all that isn't about messages needs."""
    database.set_progress_handler(_stop, min(_STEPS + more, (1 << 31) - 1))


def _stop() -> bool:
    return True
