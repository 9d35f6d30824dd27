"""A dataset in a zip archive, as zarr's ZipStore writes it: read as if its files lay in a folder.

Elsewhere: folders (logloom.io.storage), what the files mean (array, chunked).
"""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import dataclass, field
from typing import Any

from logloom.errors import DatasetError
from logloom.io.filesystems import filesystem
from logloom.io.l5kit.metadata import MAX_CHUNK_BYTES
from logloom.io.storage import Store

SUFFIX = ".zip"


@dataclass(frozen=True)
class ZipStore(Store):
    """The files of an archive, for reading; its other methods are those of the archive's own file.

    Serves many threads. Pickles without the open file, and no two processes share one: each opens its own,
    for a fork would read from wherever its parent has just moved to.

    Attributes:
        uri: of the archive.
        folder: where in it the files lie, "" or with a slash at the end.
    """

    folder: str = ""
    _archives: dict[int, zipfile.ZipFile] = field(default_factory=dict, repr=False, compare=False)

    @property
    def _archive(self) -> zipfile.ZipFile:
        process = os.getpid()
        if process not in self._archives:
            with self._explained("", (FileNotFoundError,)):
                fs, path = filesystem(self.uri, self.options)
                try:
                    self._archives[process] = zipfile.ZipFile(fs.open(path, "rb"))
                except (zipfile.BadZipFile, NotImplementedError) as error:
                    raise DatasetError(f"{self.uri}: not a zip archive, or cut short: {error}") from error
        return self._archives[process]

    def _info(self, name: str) -> zipfile.ZipInfo:
        try:
            return self._archive.getinfo(f"{self.folder}{name}")
        except KeyError:
            raise FileNotFoundError(name) from None

    def uri_of(self, name: str) -> str:
        """Where a file lies, for messages: the archive and the name in it."""
        return super().uri_of(f"{self.folder}{name}")

    def read(self, name: str) -> bytes:
        """All bytes of a file.

        Raises:
            FileNotFoundError: it isn't there.
            DatasetError: it is damaged, or absurdly large.
        """
        info = self._info(name)
        if info.file_size > 2 * MAX_CHUNK_BYTES:
            raise DatasetError(f"{self.uri_of(name)}: {info.file_size} bytes, no chunk is that large")
        try:
            with self._explained(name):
                return self._archive.read(info)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
            raise DatasetError(f"{self.uri_of(name)}: damaged in the archive: {error}") from error

    def exists(self, name: str) -> bool:
        """Whether a file is in the archive.

        Raises:
            DatasetError, StorageError: the archive can't be read.
        """
        try:
            self._info(name)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str = "") -> list[str]:
        """The names directly in a folder, sorted; none where the folder isn't there."""
        inside = f"{self.folder}{folder}/" if folder else self.folder
        within = (n.removeprefix(inside) for n in self._archive.namelist() if n.startswith(inside))
        return sorted({name.split("/", 1)[0] for name in within} - {""})

    def state(self, name: str) -> Any:
        """Size and checksum of a file."""
        info = self._info(name)
        return info.file_size, info.CRC

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_archives": {}}
