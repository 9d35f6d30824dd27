"""Walking over the members of a tar archive, and grouping them into samples.

Here: `walk` and `group`, the same for an archive that is indexed and one that streams by; all their checks.
Elsewhere: headers themselves (headers), random access (index, reader), streams (stream).
Members are plain files; folders are passed over; links, devices and sparse files are refused, and so are
names that lead out of a folder. Samples are what the webdataset package makes of an archive: members with
equal names up to the first dot after the last slash; files without a dot and `__names__` belong to none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from logloom.errors import DatasetError
from logloom.io.tar.headers import BLOCK, is_end, padded, parse_header, parse_pax
from logloom.io.tar.samples import split_name

_MAX_EXTENDED = 1 << 20  # no PAX header or long name is longer
_IGNORED = re.compile(r"__[^/]*__($|/)")
_KINDS = {
    b"1": "a link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"S": "a sparse file",
}

T = TypeVar("T")


class TarCutShort(DatasetError):  # noqa: N818, it says what happened
    """An archive ends before its end-of-archive marker."""


class Cursor(Protocol):
    """A place in an archive that moves forward.

    Attributes:
        name: of the archive, for errors.
        position: of the next byte.
    """

    name: str
    position: int

    def read(self, size: int) -> bytes:
        """The next bytes; fewer only at the end."""
        ...

    def skip_to(self, position: int) -> None:
        """Moves forward.

        Raises:
            TarCutShort: the archive ends before.
        """
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A plain file in an archive: its name, and where its bytes are."""

    name: str
    offset: int
    size: int


def walk(cursor: Cursor) -> Iterator[Entry]:
    """The plain files of an archive. While one is held the cursor stands at its bytes, which may be read.

    Raises:
        TarCutShort: the archive ends in a member, or without an end-of-archive marker.
        DatasetError: damage, or a member that is refused; names file and offset.
    """
    path: str | None = None
    size: int | None = None
    while True:
        at = cursor.position
        place = f"{cursor.name}: at byte {at}"
        block = cursor.read(BLOCK)
        if len(block) < BLOCK:
            raise TarCutShort(f"{place}: no end-of-archive marker; the file was cut short, copy it again")
        if is_end(block):
            _check_end(cursor)
            return
        header = parse_header(block, place)
        data = at + BLOCK
        if header.kind in b"xgL":
            records = _extended(cursor, header.kind, header.size, place)
            path, size = records.get("path", path), _size_record(records, place, size)
            continue
        entry = Entry(header.name if path is None else path, data, header.size if size is None else size)
        path = size = None
        if not _is_folder(entry, header.kind, place):
            yield entry
        cursor.skip_to(data + padded(entry.size))


def _extended(cursor: Cursor, kind: bytes, size: int, place: str) -> dict[str, str]:
    """What a PAX header or a GNU long name says about the next member."""
    if size > _MAX_EXTENDED:
        raise DatasetError(f"{place}: a name or PAX header of {size} bytes")
    end = cursor.position + padded(size)
    data = cursor.read(size)
    cursor.skip_to(end)
    if kind == b"L":
        return {"path": data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    records = parse_pax(data, place)
    if any(key.startswith("GNU.sparse") for key in records):
        raise DatasetError(f"{place}: a sparse file; make the tar without --sparse")
    if kind == b"g" and records.keys() & {"path", "size"}:
        raise DatasetError(f"{place}: a global PAX header that names files")
    return records


def _size_record(records: dict[str, str], place: str, before: int | None) -> int | None:
    text = records.get("size")
    if text is None:
        return before
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise DatasetError(f"{place}: a PAX size {text[:40]!r}")
    return int(text)


def _is_folder(entry: Entry, kind: bytes, place: str) -> bool:
    name = entry.name
    if kind not in (b"0", b"\0", b"7", b"5"):
        what = _KINDS.get(kind, f"of type {kind!r}")
        raise DatasetError(f"{place}: member {name!r} is {what}; datasets hold plain files only")
    if name.startswith("/") or ".." in name.split("/") or "\0" in name or not name:
        raise DatasetError(f"{place}: member {name!r} would lie outside the dataset's folder")
    return kind == b"5" or name.endswith("/")


def _check_end(cursor: Cursor) -> None:
    """After the first zero block: a second, then nothing but zeros."""
    at = cursor.position
    rest = cursor.read(BLOCK)
    if len(rest) < BLOCK:
        raise TarCutShort(f"{cursor.name}: at byte {at}: half an end-of-archive marker; it was cut short")
    while rest:
        if rest.count(0) != len(rest):
            raise DatasetError(
                f"{cursor.name}: at byte {at}: more after the end of the archive; joined tars hide all but "
                "the first, list them one by one"
            )
        at = cursor.position
        rest = cursor.read(1 << 16)


def group(
    members: Iterable[tuple[Entry, T]], archive: str
) -> Iterator[tuple[str, dict[str, tuple[Entry, T]]]]:
    """Samples: key, and members by suffix in lower case.

    Args:
        members: with whatever belongs to each.
        archive: its name, for errors.

    Raises:
        DatasetError: a member twice, or a sample in two places.
        TarCutShort: as `members` raise it, after the last sample that is whole.
    """
    seen: set[str] = set()
    key, sample = "", dict[str, tuple[Entry, T]]()
    before: frozenset[str] = frozenset()
    try:
        for entry, what in members:
            named = split_name(entry.name)
            if named is None or _IGNORED.match(entry.name):
                continue
            if named[0] != key:
                if sample:
                    yield key, sample
                key, sample, before = named[0], {}, frozenset(sample)
                if key in seen:
                    raise DatasetError(
                        f"{archive}: at byte {entry.offset - BLOCK}: sample {key!r} in two places; its "
                        "members must be neighbours (`tar --sort=name`)"
                    )
                seen.add(key)
            suffix = named[1].lower()
            if suffix in sample:
                raise DatasetError(
                    f"{archive}: at byte {entry.offset - BLOCK}: member {entry.name!r} is there twice"
                )
            sample[suffix] = entry, what
    except TarCutShort:
        # At a cut nobody knows whether a sample is whole, unless it has all that the one before it has.
        if sample and before <= sample.keys():
            yield key, sample
        raise
    if sample:
        yield key, sample
