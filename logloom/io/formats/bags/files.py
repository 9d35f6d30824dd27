"""Files and folders of bags: local, in object stores, in memory or path-like.

Here: `open_file` (random access to the bytes of a file), `open_folder` (the files of a dataset, and
publishing).
Elsewhere: files at paths and URIs (logloom.io.storage.files), their content (bag, spec).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Self

from logloom.errors import UsageError
from logloom.io.storage.files import File
from logloom.io.storage.locks import Lock
from logloom.io.storage.remote.range_requests import failure, whole
from logloom.io.storage.store import Store

SPEC = "spec.json"  # a folder without it is no dataset, so it appears last


class ClosedAtEnd:
    """An object that a `with` closes at its end."""

    def close(self) -> None:
        raise NotImplementedError

    def _abandon(self) -> None:
        """Close an object after an exception."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()


class ByteFile(Protocol):
    """Random access to a file's bytes, from many threads; pickles; crosses a fork."""

    name: str

    @property
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly `size` bytes.

        Raises:
            DatasetError: the file is gone, or ends earlier.
            StorageError: it can't be read.
        """


class MemoryFile:
    """Bytes that are in memory already."""

    def __init__(self, data: bytes | bytearray | memoryview, name: str = "bytes"):
        self.name = name
        self._data = bytes(data)

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, size: int) -> bytes:
        return whole(self._data[offset : offset + size], offset, size, self.name)


class PathFile:
    """A file behind an object that has `open`, as granular's users bring their own."""

    def __init__(self, path: Any):
        self.name = str(path)
        self._path = path
        self._start()

    def _start(self) -> None:
        self._stream: Any = None
        self._pid = 0
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "_path": self._path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    @property
    def size(self) -> int:
        with self._reading() as stream:
            return int(stream.seek(0, os.SEEK_END))

    def read(self, offset: int, size: int) -> bytes:
        with self._reading() as stream:
            stream.seek(offset)
            return whole(bytes(stream.read(size)), offset, size, self.name)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Any]:
        """The open file, for one thread."""
        with self._lock:
            try:
                if self._stream is None or self._pid != os.getpid():  # a fork can't share a position
                    self._stream, self._pid = self._path.open("rb"), os.getpid()
                yield self._stream
            except OSError as error:
                raise failure(self.name, error) from error


def open_file(where: Any, options: Mapping[str, Any] | None = None) -> ByteFile:
    """Open a file by its path, URI, path-like object, or bytes.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(where, File | MemoryFile | PathFile):
        return where
    if isinstance(where, bytes | bytearray | memoryview):
        return MemoryFile(where)
    if isinstance(where, str | os.PathLike):
        return File(where, options)
    if hasattr(where, "open"):
        return PathFile(where)
    raise UsageError(f"expected a path, a URI or bytes, got {type(where).__name__}")


class Folder(Protocol):
    """The folder of one dataset, or of several."""

    name: str

    def file(self, name: str) -> ByteFile: ...

    def child(self, name: str) -> Folder: ...

    def exists(self, name: str) -> bool:
        """Whether there is such a file, or such a folder with something in it."""

    def names(self) -> list[str]:
        """Names of its direct entries, sorted."""

    def make(self) -> None:
        """Create the folder, in stores that have folders."""

    def scratch_parent(self) -> pathlib.Path | None:
        """A local folder on the same disk, outside this one; None where there is none."""

    def publish(self, scratch: pathlib.Path) -> None:
        """Move a local folder's files into this folder, all or none.

        Raises:
            UsageError: it exists already.
        """


class StoreFolder:
    """A folder at a path or URI."""

    def __init__(self, store: Store):
        self.name = store.uri
        self._store = store

    def file(self, name: str) -> ByteFile:
        return open_file(self._store.uri_of(name), self._store.options)

    def child(self, name: str) -> StoreFolder:
        return StoreFolder(Store(self._store.uri_of(name), self._store.options))

    def exists(self, name: str = "") -> bool:
        return self._store.exists(name)

    def names(self) -> list[str]:
        return self._store.names()

    def make(self) -> None:
        if self._store.local is not None:
            self._store.local.mkdir(parents=True, exist_ok=True)

    def scratch_parent(self) -> pathlib.Path | None:
        return self._store.local.parent if self._store.local is not None else None

    def publish(self, scratch: pathlib.Path) -> None:
        # A rename takes the place of an empty folder only, so of two writers the second fails.
        base, _, name = self.name.rpartition("/")
        marker = (scratch / SPEC).stat().st_ino
        if self._store.local is None and self.exists(SPEC):
            raise UsageError(already_there(self.name))
        Store(base or "/", self._store.options).publish(scratch, name, last=SPEC)
        if self._store.local is not None and (self._store.local / SPEC).stat().st_ino != marker:
            raise UsageError(already_there(self.name))


class PathFolder:
    """A folder behind an object with `/`, `open`, `exists`, `mkdir` and `glob`, as granular takes them."""

    def __init__(self, path: Any):
        self.name = str(path)
        self._path = path

    def file(self, name: str) -> ByteFile:
        return PathFile(self._path / name)

    def child(self, name: str) -> PathFolder:
        return PathFolder(self._path / name)

    def exists(self, name: str = "") -> bool:
        return bool((self._path / name if name else self._path).exists())

    def names(self) -> list[str]:
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in self._path.glob("*"))

    def make(self) -> None:
        if not self._path.exists():
            self._path.mkdir()

    def scratch_parent(self) -> pathlib.Path | None:
        return None

    def publish(self, scratch: pathlib.Path) -> None:
        self.make()
        if self.exists(SPEC):
            raise UsageError(already_there(self.name))
        for path in sorted(scratch.iterdir(), key=lambda path: (path.name == SPEC, path.name)):
            with (self._path / path.name).open("wb") as target:
                target.write(path.read_bytes())


def already_there(name: str) -> str:
    """The error of writing a dataset onto another."""
    return f"{name}: there is a finished dataset already; delete it first, or write to another folder"


def open_folder(where: Any, options: Mapping[str, Any] | None = None) -> Folder:
    """Open a folder by its path, URI or path-like object.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(where, StoreFolder | PathFolder):
        return where
    if isinstance(where, str | os.PathLike):
        return StoreFolder(Store.at(os.fspath(where), options))
    if hasattr(where, "open") and hasattr(where, "glob"):
        return PathFolder(where)
    raise UsageError(f"expected a folder's path or URI, got {type(where).__name__}")
