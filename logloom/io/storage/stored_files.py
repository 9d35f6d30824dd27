"""Reading the files of one folder on a disk or in an object store.

Here: `StoredFiles`: files by name, their sizes and URIs.
Elsewhere: writing (store), opening URIs (filesystems), ranges of files
(logloom.io.storage.remote.range_requests, files).
A file is read through the folder's own file system, since its name may contain what is special in a URI.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Self

from logloom.caching import cached_property
from logloom.errors import StorageError
from logloom.io.storage.disk import paths_below
from logloom.io.storage.faults import MISSING, size_in
from logloom.io.storage.filesystems import absolute_uri, explained, filesystem, with_access, with_credentials
from logloom.uris import chained, is_local, path_of, shown
from logloom.values import dataclass

PLACES = "logloom.places"  # in storage options: see logloom.io.catalog.assembled_outputs
UNITS = "parts"  # in a root, the folder of all units


@dataclass(frozen=True)
class StoredFiles:
    """A folder at a URI. Small and picklable, so workers can open it again.

    Attributes:
        uri: absolute, without a slash at the end.
        options: fsspec options by protocol; never written anywhere.
        fan_out: of a root, how many first characters of a unit's name are the name of its parent folder; 0
            if all units of an output are in one folder (see logloom.io.catalog.entries).
    """

    uri: str
    options: Mapping[str, Any] = field(default_factory=dict)
    fan_out: int = 0

    @classmethod
    def at(cls, uri: str, options: Mapping[str, Any] | None = None) -> Self:
        """Return the folder at a URI or a path; relative paths start from the working directory.

        Args:
            uri: of the folder.
            options: fsspec options by protocol.
        """
        absolute = absolute_uri(uri).rstrip("/") or "/"
        return cls(shown(absolute), with_access(options, [absolute]))

    @cached_property
    def local(self) -> pathlib.Path | None:
        """The folder as a path, None on an object store."""
        return pathlib.Path(path_of(self.uri)) if is_local(self.uri) else None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "local"}

    @property
    def fs(self) -> Any:
        """The fsspec file system of the folder."""
        return filesystem(self.uri, self.options)[0]

    def uri_of(self, name: str) -> str:
        """Return the URI of a file in the folder.

        Args:
            name: of the file, relative to the folder.

        Raises:
            StorageError: the name would leave the folder.
        """
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise StorageError(f"{self.uri}: {name!r} would be outside the folder")
        uri = f"{self.uri}/{self.stored_name(name)}" if name else self.uri
        places = self.options.get(PLACES)
        return uri if places is None else str(places.place(uri))

    def stored_name(self, name: str) -> str:
        """Return the name of a file with the parent folder that `fan_out` adds to a unit.

        Args:
            name: of the file, relative to the folder.
        """
        steps = name.split("/", 3)
        if not self.fan_out or steps[0] != UNITS or len(steps) < 3 or not steps[2]:
            return name
        return "/".join([*steps[:2], steps[2][: self.fan_out], *steps[2:]])

    def path_of(self, name: str) -> pathlib.Path:
        """Return the path of a file in a local folder.

        Args:
            name: of the file, relative to the folder.

        Raises:
            StorageError: the name would leave the folder.
        """
        return pathlib.Path(self.local_name(name))

    def local_name(self, name: str) -> str:
        """Return `path_of` as a text: creating paths of millions of files takes too long.

        Args:
            name: of the file, relative to the folder.

        Raises:
            StorageError: the name would leave the folder.
        """
        if self.local is None:
            raise StorageError(f"{self.uri}: not on this machine's disks")
        return path_of(self.uri_of(name))

    def kept_path(self, name: str, within: str) -> pathlib.Path:
        """Return the path of a file that is in the folder `within` even after following symbolic links.

        Args:
            name: of the file, relative to the folder.
            within: a folder, relative to this one.

        Raises:
            FileNotFoundError: it doesn't exist.
            StorageError: it is elsewhere.
        """
        path = self.path_of(name)
        real = path.resolve(strict=True)
        if not real.is_relative_to(self.path_of(within).resolve()):
            raise StorageError(f"{path}: a symbolic link leads out of {self.path_of(within)}")
        return real

    def fs_path(self, name: str) -> str:
        """Return the path of a file for `fs`: its URI, with the credentials.

        Args:
            name: of the file, relative to the folder.
        """
        return with_credentials(self.uri_of(name), self.options)

    @contextlib.contextmanager
    def _explained(self, name: str, passing: tuple[type[OSError], ...] = ()) -> Iterator[None]:
        try:
            with explained(self.uri_of(name), passing):
                yield
        except passing as error:
            if chained(error) is None:
                raise type(error)(self.uri_of(name)) from None
            raise

    def read(self, name: str) -> bytes:
        """Read all bytes of a file.

        Args:
            name: of the file, relative to the folder.

        Raises:
            FileNotFoundError, NotADirectoryError, IsADirectoryError: it doesn't exist.
            StorageError: it can't be read.
        """
        with self._explained(name, MISSING):
            if self.local is not None:
                return self.path_of(name).read_bytes()
            data: bytes = self.fs.cat_file(self.fs_path(name))
            return data

    def read_if_there(self, name: str) -> bytes | None:
        """Read all bytes of a file; None if it doesn't exist. See `read`."""
        try:
            return self.read(name)
        except MISSING:
            return None

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Read the bytes [start, stop) of a file, fewer where it ends; raises as `read` does.

        Args:
            name: of the file, relative to the folder.
            start: the first byte.
            stop: the byte after the last.
        """
        with self._explained(name, MISSING):
            if self.local is not None:
                with self.path_of(name).open("rb") as file:
                    file.seek(start)
                    return file.read(stop - start)
            data: bytes = self.fs.cat_file(self.fs_path(name), start=start, end=stop)
            return data

    def exists(self, name: str) -> bool:
        """Return whether a file or a folder of this name exists.

        Args:
            name: relative to the folder.

        Raises:
            StorageError: the store doesn't answer.
        """
        with self._explained(name):
            if self.local is not None:
                return self.path_of(name).exists()
            fs = self.fs
            fs.invalidate_cache()  # another process may have made it since the folder was listed
            with contextlib.suppress(*MISSING):
                fs.info(self.fs_path(name))
                return True
            return False

    def size(self, name: str) -> int | None:
        """Return the size of a file; None if it doesn't exist.

        Args:
            name: of the file, relative to the folder.
        """
        try:
            with self._explained(name, MISSING):
                if self.local is not None:
                    return self.path_of(name).stat().st_size
                self.fs.invalidate_cache()
                return size_in(self.fs.info(self.fs_path(name)), self.uri_of(name))
        except MISSING:
            return None

    def state(self, name: str) -> Any:
        """Return the size of a file, with its time of change or ETag, to detect changes.

        Args:
            name: of the file, relative to the folder.
        """
        if self.local is not None:
            stat = self.path_of(name).stat()
            return stat.st_size, stat.st_mtime_ns
        info = self.fs.info(self.fs_path(name))
        changes = (info.get(name) for name in ("ETag", "mtime", "updated", "crc"))
        return info.get("size"), str(next(filter(None, changes), None))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a folder, by name within it; one listing of an object store.

        Args:
            folder: its name, relative to this one.
        """
        with self._explained(folder):
            if self.local is not None:
                top = self.path_of(folder)
                paths = paths_below(top) if top.exists() else []
                files = (path for path in paths if path.is_file())
                return {path.relative_to(top).as_posix(): path.stat().st_size for path in files}
            self.fs.invalidate_cache()
            own = f"/{self.uri_of(folder).split('://', 1)[-1].strip('/')}/"
            found = self.fs.find(self.fs_path(folder), detail=True)
            return {f"/{path.lstrip('/')}".removeprefix(own): int(f["size"]) for path, f in found.items()}

    def names(self, folder: str = "") -> list[str]:
        """List the names directly in a folder, sorted; none if the folder doesn't exist.

        Args:
            folder: its name, relative to this one.
        """
        places = self.options.get(PLACES)
        elsewhere = set() if places is None else places.names(self.uri_of(folder))
        return sorted(elsewhere.union(self._own_names(folder)))

    def _own_names(self, folder: str) -> list[str]:
        try:
            with self._explained(folder, (FileNotFoundError,)):
                if self.local is not None:
                    path = self.path_of(folder)
                    return os.listdir(path) if path.is_dir() else []
                self.fs.invalidate_cache()
                found = self.fs.ls(self.fs_path(folder), detail=False)
        except FileNotFoundError:
            return []
        own = self.uri_of(folder).split("://", 1)[-1].rstrip("/")
        return [p.rstrip("/").rsplit("/", 1)[-1] for p in found if p.rstrip("/") != own]
