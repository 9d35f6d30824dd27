"""Which pages of a sqlite file hold a table: to fetch them together, before sqlite asks for one by one.

Here: `leaves`, the pages that hold the rows of a table, and `tails`, those that hold the rest of long rows.
Elsewhere: fetching them (sqlite_pages). sqlite alone reads what they say: if a damaged file leads astray
here, pages are fetched in vain.

An interior page lists its children, each with the highest row id under it; a leaf holds rows; all leaves of a
table lie at one depth. Of a row that is too long for its leaf, the rest lies in a chain of pages of its own,
in a file that only grew one behind the other (https://www.sqlite.org/fileformat2.html).
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator

from logloom.io.logs.rosbag2.sqlite_pages import PagedFile

_INTERIOR, _LEAF = 5, 13
_SHARE = 64  # of so many pages at most one is an interior page of a table that isn't damaged, or of few
_LEAST = 64


def leaves(file: PagedFile, root: int, first: int, last: int) -> list[int]:
    """The pages of a table's rows with first <= id <= last, by id; those on the way there are announced."""
    level, left = [root], max(_LEAST, file.num_pages // _SHARE)
    while level := [number for number in dict.fromkeys(level) if 1 <= number <= file.num_pages]:
        if file.page(level[0])[0] != _INTERIOR:
            return level
        left -= len(level)
        if left < 0:  # they lead back to each other
            break
        file.expect(level)
        level = [child for number in level for child in _children(file.page(number), first, last)]
    return []


def _children(page: bytes, first: int, last: int) -> Iterator[int]:
    """Those that hold rows with first <= id <= last."""
    lowest = -(1 << 63)
    for cell in _cells(page, 12):
        highest, _ = _varint(page, cell + 4)
        if first <= highest and lowest <= last:
            yield int.from_bytes(page[cell : cell + 4], "big")
        lowest = highest
    if lowest <= last:
        yield int.from_bytes(page[8:12], "big")


def tails(file: PagedFile, leaf: int, ids: Container[int], reserved: int) -> Iterator[int]:
    """The pages that hold the rest of some rows of a leaf.

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
    """Where the cells of a page start, as it lists them behind its header."""
    count = min(int.from_bytes(page[3:5], "big"), (len(page) - header) // 2)
    return struct.unpack_from(f">{count}H", page, header)


def _varint(page: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where the next begins."""
    value = 0
    for i, byte in enumerate(page[at : at + 9]):
        value = value << 8 | byte if i == 8 else value << 7 | byte & 0x7F
        if i == 8 or byte < 0x80:
            return value - (1 << 64) if value >> 63 else value, at + i + 1
    return 0, len(page)
