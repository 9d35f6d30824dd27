"""Find the pages of a table in a sqlite file, to fetch them together before sqlite reads them.

Here: `leaves`, the pages with the rows of a table, and `tails`, those with the rest of long rows.
Elsewhere: fetching them (sqlite_pages). Only sqlite interprets their content: a damaged file can only cause
unnecessary fetches here.

An interior page lists its children, each with the highest row id under it; a leaf contains rows; all leaves
of a table have the same depth. The rest of a row that is too long for its leaf is in a chain of pages,
consecutive in a file that only grew (https://www.sqlite.org/fileformat2.html).
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator

from logloom.io.logs.rosbag2.sqlite_pages import PagedFile

_INTERIOR, _LEAF = 5, 13
_SHARE = 64  # at most one in so many pages is an interior page of a table that isn't damaged or small
_LEAST = 64


def leaves(file: PagedFile, root: int, first: int, last: int) -> list[int]:
    """Find the pages of a table's rows with first <= id <= last, by id, announcing interior pages."""
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
