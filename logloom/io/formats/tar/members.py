"""Members of a tar archive: walking over them, and grouping them into samples.

Here: `walk` and `group`, the same for an archive that is indexed and one that is streamed; all their checks.
Elsewhere: headers (headers), random access (index, reader), streams (stream).
Members are plain files; folders are skipped; links, devices and sparse files are refused, and so are names
that lead out of a folder. Samples are grouped as by the webdataset package: members with equal names up to
the first dot after the last slash; files without a dot and `__names__` belong to none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from logloom.errors import DatasetError
from logloom.io.formats.tar.headers import BLOCK, is_end, padded, parse_header, parse_pax
from logloom.io.formats.tar.samples import split_name

_MAX_EXTENDED = 1 << 20  # no PAX header or long name is longer
_MAX_NAME = 4096  # characters of a path, more than file systems take
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


class ArchiveCursor(Protocol):
    """A place in an archive that moves forward.

    Attributes:
        name: of the archive, for errors.
        position: of the next byte.
    """

    name: str
    position: int

    def read(self, size: int) -> bytes:
        """The next bytes; fewer only at the end."""

    def skip_to(self, position: int) -> None:
        """Moves forward, perhaps beyond the end, where nothing is read."""


Entry = tuple[str, int, int]  # a plain file in an archive: its name, and the offset and size of its bytes


def walk(cursor: ArchiveCursor) -> Iterator[Entry]:
    """The plain files of an archive. When one is yielded, the cursor is at its bytes, which may be read.

    Raises:
        TarCutShort: the archive ends in a member, or without an end-of-archive marker.
        DatasetError: damage, or a member that is refused; names file and offset.
    """
    path: str | None = None
    size: int | None = None
    while True:
        at = cursor.position
        block = cursor.read(BLOCK)
        if len(block) < BLOCK:
            raise TarCutShort(
                f"{cursor.name}: at byte {at}: no end-of-archive marker; it was cut short, copy it again"
            )
        if is_end(block):
            _check_end(cursor)
            return
        try:
            name, length, kind = parse_header(block)
            if kind in b"xgL":
                records = _extended(cursor, length, kind)
                path, size = records.get("path", path), _size_record(records, size)
                continue
            name = name if path is None else path
            is_file = _is_file(name, kind)
        except ValueError as error:
            raise DatasetError(f"{cursor.name}: at byte {at}: {error}") from error
        length = length if size is None else size
        path = size = None
        if is_file:
            yield name, at + BLOCK, length
        cursor.skip_to(at + BLOCK + padded(length))


def _extended(cursor: ArchiveCursor, size: int, kind: bytes) -> dict[str, str]:
    """What a PAX header or a GNU long name says about the next member."""
    if size > _MAX_EXTENDED:
        raise ValueError(f"a name or PAX header of {size} bytes")
    end = cursor.position + padded(size)
    data = cursor.read(size)
    cursor.skip_to(end)
    if kind == b"L":
        return {"path": data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    records = parse_pax(data)
    if any(key.startswith("GNU.sparse") for key in records):
        raise ValueError("a sparse file; make the tar without --sparse")
    if kind == b"g" and records.keys() & {"path", "size"}:
        raise ValueError("a global PAX header that names files")
    return records


def _size_record(records: dict[str, str], before: int | None) -> int | None:
    text = records.get("size")
    if text is None:
        return before
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise ValueError(f"a PAX size {text[:40]!r}")
    return int(text)


def _is_file(name: str, kind: bytes) -> bool:
    """Whether it is a plain file; False for a folder.

    Raises:
        ValueError: neither, or of a name that leads out of the dataset.
    """
    if kind not in (b"0", b"\0", b"7", b"5"):
        what = _KINDS.get(kind, f"of type {kind!r}")
        raise ValueError(f"member {name!r} is {what}; datasets contain plain files only")
    if not name or name[0] == "/" or "\0" in name or (".." in name and ".." in name.split("/")):
        raise ValueError(f"member {name!r} would be outside the dataset's folder")
    if len(name) > _MAX_NAME:
        raise ValueError(f"a name of {len(name)} characters, {name[:60]!r}…; {_MAX_NAME} is the most")
    return kind != b"5" and name[-1] != "/"


def _check_end(cursor: ArchiveCursor) -> None:
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


def group(members: Iterable[tuple[str, int, T]], archive: str) -> Iterator[tuple[str, dict[str, T]]]:
    """Samples: key, and what belongs to each member by suffix in lower case.

    Args:
        members: name, offset, and whatever belongs to each.
        archive: its name, for errors.

    Raises:
        DatasetError: a member twice, or a sample in two places.
        TarCutShort: as `members` raise it, after the last sample that is whole.
    """
    seen: set[str] = set()
    key, sample = "", dict[str, T]()
    before: frozenset[str] = frozenset()
    try:
        for name, offset, what in members:
            named = split_name(name)
            if named is None or (name[:2] == "__" and _IGNORED.match(name)):
                continue
            if named[0] != key:
                if sample:
                    yield key, sample
                key, sample, before = named[0], {}, frozenset(sample)
                if key in seen:
                    raise DatasetError(
                        f"{archive}: at byte {offset - BLOCK}: sample {key!r} in two places; its "
                        "members must be neighbours (`tar --sort=name`)"
                    )
                seen.add(key)
            suffix = named[1].lower()
            if suffix in sample:
                raise DatasetError(f"{archive}: at byte {offset - BLOCK}: member {name!r} is there twice")
            sample[suffix] = what
    except TarCutShort:
        # At a cut a sample counts as whole only if it has all members of the one before it.
        if sample and before <= sample.keys():
            yield key, sample
        raise
    if sample:
        yield key, sample
