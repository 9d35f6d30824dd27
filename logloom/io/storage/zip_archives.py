"""Files in zip archives, as a read-only file system.

Here: `ZippedFiles`. Paths are `<archive>!/<member>`, archive being a path or URI with %
and ! quoted, so that names join to them as to any folder.
Elsewhere: `zip://member::archive`, as users write it, becomes such a path (logloom.io.storage.filesystems).

Uncompressed members (`zip -0`) are read by ranges; compressed ones are decompressed from the start, or from
where the last read of the member ended.
"""

from __future__ import annotations

import functools
import io
import os
import threading
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NoReturn, cast

from fsspec import AbstractFileSystem

from logloom.errors import UsageError
from logloom.io.storage.faults import ArchiveError
from logloom.io.storage.remote.range_file import RangedFile
from logloom.uris import is_local

_KEPT = 16  # archives, and cursors in an archive
_STEP = 1 << 20
_HEADER = 30  # bytes of a local header before the name, whose length and that of the extra field end it
_MOST = 1040  # times its size is what deflate can hold, a little more than 1032


class _Archive:
    """An open archive: its members by path, and ranges of them. Serves many threads."""

    def __init__(self, uri: str, fs: Any, path: str):
        try:
            self.uri, self._file = uri, fs.open(path, "rb")
        except FileNotFoundError as error:
            raise ArchiveError(f"{uri}: there is no such archive, and none is written") from error
        try:
            self._zip = zipfile.ZipFile(self._file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            self._file.close()
            raise ArchiveError(f"{uri}: is no zip archive, or was cut short or damaged ({error})") from error
        self._lock = threading.Lock()
        self._cursors: OrderedDict[str, Any] = OrderedDict()
        self._starts: dict[str, int] = {}
        self.members: dict[str, zipfile.ZipInfo] = {}
        self.folders: dict[str, dict[str, bool]] = {"": {}}  # the names in each, and whether they are folders
        for info in self._zip.infolist():
            parts = info.filename.rstrip("/").split("/")
            if info.filename.startswith("/") or {"", ".", ".."} & set(parts):
                continue  # no name within a folder
            if not info.is_dir():
                self.members["/".join(parts)] = info
            for depth, part in enumerate(parts):
                inside = depth < len(parts) - 1 or info.is_dir()
                names = self.folders.setdefault("/".join(parts[:depth]), {})
                names[part] = names.get(part, False) or inside
                if inside:
                    self.folders.setdefault("/".join(parts[: depth + 1]), {})

    def read(self, member: str, start: int, stop: int) -> bytes:
        """The bytes of a range, clipped to the member's end.

        Raises:
            ArchiveError: the member is damaged, encrypted, or compressed in a way that is unknown here.
        """
        info = self.members[member]
        stop = min(stop, info.file_size)
        if start >= stop:
            return b""
        try:
            with self._lock:
                if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1:
                    return self._stored(info, start, stop)
                return self._decompressed(info, start, stop)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            RuntimeError,
            NotImplementedError,
            ValueError,
        ) as error:
            raise ArchiveError(f"{self.uri}: member {member}: {error}") from error

    def _stored(self, info: zipfile.ZipInfo, start: int, stop: int) -> bytes:
        first = self._starts.get(info.filename)
        if first is None:
            self._zip.open(info).close()  # compares the local header with the directory
            self._file.seek(info.header_offset)
            head = self._file.read(_HEADER)
            first = info.header_offset + _HEADER
            first += int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
            self._starts[info.filename] = first
        self._file.seek(first + start)
        data: bytes = self._file.read(stop - start)
        if len(data) < stop - start:
            raise EOFError(f"ends at byte {start + len(data)} of {info.file_size}; the archive was cut short")
        return data

    def _decompressed(self, info: zipfile.ZipInfo, start: int, stop: int) -> bytes:
        if info.compress_type == zipfile.ZIP_DEFLATED and info.file_size > _MOST * (info.compress_size + 64):
            raise ValueError(f"claims {info.file_size} bytes in {info.compress_size}, which can't be")
        cursor = self._cursors.pop(info.filename, None)
        if cursor is None or cursor.tell() > start:
            cursor = self._zip.open(info)
        while (behind := start - cursor.tell()) > 0:
            if not cursor.read(min(behind, _STEP)):
                break
        data: bytes = cursor.read(stop - start)
        if len(data) < stop - start:
            raise EOFError(f"ends before byte {stop} of {info.file_size}; it is damaged")
        self._cursors[info.filename] = cursor
        while len(self._cursors) > _KEPT:
            self._cursors.popitem(last=False)
        return data


_archives: OrderedDict[Any, _Archive] = OrderedDict()
_opening = threading.Lock()


def _forget() -> None:
    global _opening
    _opening = threading.Lock()
    _archives.clear()  # a child that shared the parent's files would move their positions


os.register_at_fork(after_in_child=_forget)


class ZippedFiles(AbstractFileSystem):
    """The files in all archives, which are opened on first use."""

    protocol = "zip"
    cachable = False

    def __init__(
        self, filesystem: Callable[..., Any], options: Mapping[str, Any] | None = None, **kwargs: Any
    ):
        """
        Args:
            filesystem: gives the file system of an archive, and the path in it.
            options: for the file systems of the archives, by protocol.
        """
        super().__init__(**kwargs)
        self._filesystem, self._options = filesystem, options

    def _at(self, path: str) -> tuple[_Archive, str, str]:
        """The archive, its quoted name, and the path in it."""
        own = self._strip_protocol(path)
        quoted, mark, member = f"{own}/".partition("!/")
        if not mark:
            raise UsageError(
                f"zip://{own}: names no file in an archive; write zip://inner/path::file:///data/drives.zip"
            )
        uri = quoted.replace("%21", "!").replace("%25", "%")
        try:
            stat = os.stat(uri) if is_local(uri) else None
        except FileNotFoundError as error:
            raise ArchiveError(f"{uri}: there is no such archive, and none is written") from error
        key = (uri, repr(self._options), stat and (stat.st_ino, stat.st_size, stat.st_mtime_ns))
        with _opening:
            archive = _archives.pop(key, None) or _Archive(uri, *self._filesystem(uri, self._options))
            _archives[key] = archive
            while len(_archives) > _KEPT:
                _archives.popitem(last=False)
        return archive, quoted, member.rstrip("/")

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        archive, quoted, member = self._at(path)
        name = f"{quoted}!/{member}".rstrip("/")
        if member in archive.members:
            info = archive.members[member]
            return {
                "name": name,
                "size": info.file_size,
                "type": "file",
                "crc": info.CRC,
                "at": info.header_offset,
            }
        if member in archive.folders:
            return {"name": name, "size": 0, "type": "directory"}
        raise FileNotFoundError(f"{archive.uri}: contains no {member}")

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        archive, quoted, member = self._at(path)
        if member in archive.members:
            found = [self.info(path)]
        elif member in archive.folders:
            folder = f"{quoted}!/{member}".rstrip("/")
            found = [self.info(f"{folder}/{name}") for name in sorted(archive.folders[member])]
        else:
            raise FileNotFoundError(f"{archive.uri}: contains no {member}")
        return found if detail else [info["name"] for info in found]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        archive, member, size = self._file_at(path)
        first, last, _ = slice(start, end).indices(size)
        return archive.read(member, first, last)

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> BinaryIO:
        if mode != "rb":
            self._refuse()
        archive, member, size = self._file_at(path)
        raw = RangedFile(f"{archive.uri}!/{member}", size, functools.partial(archive.read, member))
        return cast(BinaryIO, io.BufferedReader(raw, _STEP))

    def _file_at(self, path: str) -> tuple[_Archive, str, int]:
        archive, _, member = self._at(path)
        if member not in archive.members:
            kind = IsADirectoryError if member in archive.folders else FileNotFoundError
            raise kind(f"{archive.uri}: contains no file {member}")
        return archive, member, archive.members[member].file_size

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise UsageError("zip archives are only read; write to a folder or a bucket, and zip that")

    pipe_file = put_file = cp_file = rm_file = _rm = mkdir = makedirs = _refuse
