"""Local copies of compressed files, which can't be read by ranges.

Here: `UnpackedCopy`, a temporary file, and `UnpackedFile`, which reads from one.
Elsewhere: contents of the files (db3, logloom.io.logs.mcap).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import zstandard

from logloom.errors import LogReadError, StorageError
from logloom.io.logs.files.compression import MAX_RATIO
from logloom.io.logs.files.ranges import MAX_REQUEST, LogFile
from logloom.io.storage.disk import remove_with
from logloom.io.storage.locks import Lock

MAX_UNPACKED = 64 << 30
FREE_UNPACKED = 1 << 30  # bytes that any compressed file may expand to
_SLICE = 4096  # compressed bytes processed at a time; a block of a few bytes may expand to 128 KiB


class UnpackedCopy:
    """A temporary file with the contents of a zstd file, made on first use.

    It is removed with this object, or when the process that made it ends.
    """

    def __init__(self, file: LogFile):
        self._file = file
        self._lock = Lock()
        self._path: str | None = None
        self._problem = ""

    @property
    def path(self) -> str:
        """
        The path of the copy.

        Raises:
            LogReadError: the file is missing, unreadable or expands beyond the limit.
            StorageError: it can't be fetched, or the disk of temporary files is full.
        """
        with self._lock:
            if self._path is None:
                self._path = self._make()
            return self._path

    @property
    def packed_size(self) -> int:
        """Compressed size of the original file."""
        return self._file.size

    @property
    def problem(self) -> str:
        """Why the copy is incomplete; "" if it is complete."""
        return self._problem if self.path else ""

    def _make(self) -> str:
        try:
            handle, path = tempfile.mkstemp(prefix="logloom-")
            remove_with(self, path)
            with os.fdopen(handle, "wb") as target:
                most = min(MAX_UNPACKED, max(FREE_UNPACKED, MAX_RATIO * self._file.size))
                for data in self._unpacked():
                    target.write(data)
                    if target.tell() > most:
                        raise LogReadError(
                            f"{self._file.uri}: its {self._file.size} bytes expand to more than {most}; "
                            "leave it out, or, if that is intended, decompress it with `zstd -d`"
                        )
        except OSError as error:
            raise StorageError(f"{self._file.uri}: can't be copied to a temporary file: {error}") from error
        return path

    def _unpacked(self) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor()
        frame = None
        for start in range(0, self._file.size, MAX_REQUEST):
            piece = self._file.read(start, min(start + MAX_REQUEST, self._file.size))
            for at in range(0, len(piece), _SLICE):
                data = piece[at : at + _SLICE]
                while data:
                    frame = frame or decompressor.decompressobj()
                    try:
                        yield frame.decompress(data)
                    except zstandard.ZstdError as error:
                        self._problem = f"its zstd data are damaged ({error})"
                        return
                    data = frame.unused_data if frame.eof else b""
                    frame = None if frame.eof else frame
        if frame is not None:
            self._problem = "its zstd data end early"


class UnpackedFile(LogFile):
    """The contents of a zstd file, which is decompressed as a whole on the first read."""

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None):
        super().__init__(uri, storage_options)
        self.copy = UnpackedCopy(LogFile(uri, storage_options))

    def __reduce__(self) -> tuple[Any, ...]:
        return (UnpackedFile, super().__reduce__()[1])

    @property
    def is_local(self) -> bool:
        return True

    @property
    def stored_size(self) -> int:
        return self.copy.packed_size

    def _describe(self) -> tuple[int, str]:
        _, packed = super()._describe()
        return os.stat(self.copy.path).st_size, packed

    def _read(self, start: int, stop: int) -> bytes:
        return LogFile(self.copy.path).read(start, stop)

    def read_into(self, start: int, room: memoryview) -> None:
        LogFile(self.copy.path).read_into(start, room)
