"""File objects for libraries that read and seek, on top of requests for ranges."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

from logloom.errors import LogloomError


class RangedFile(io.RawIOBase):
    """A file each read of which requests one range and returns all of it.

    Attributes:
        error: why a read failed, for libraries that replace the error by their own.
    """

    error: LogloomError | None = None

    def __init__(self, name: str, size: int, read_range: Callable[[int, int], bytes]):
        """
        Args:
            name: the URI, for messages.
            size: in bytes.
            read_range: the bytes [start, stop).
        """
        self.name, self.size = name, size
        self._read_range, self._position = read_range, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        stop = self.size if size is None or size < 0 else min(self.size, self._position + size)
        if stop <= self._position:
            return b""
        try:
            data = self._read_range(self._position, stop)
        except LogloomError as error:
            self.error = error
            raise
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)
