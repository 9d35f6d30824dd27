"""The files and folders that bags lie in: on disks, in object stores, in memory, behind path-like objects.

Here: `open_file` (random access to one file's bytes), `open_folder` (a dataset's files, and publishing).
Elsewhere: what the bytes mean (logloom.io.bags.bag, logloom.io.bags.spec).
"""

from __future__ import annotations

import collections
import os
import pathlib
import resource
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from logloom.errors import DatasetError, LogloomError, StorageError, UsageError
from logloom.io.checks import check_file
from logloom.io.storage import MISSING, Store, filesystem, is_local

SPEC = "spec.json"  # a folder without it is no dataset, so it appears last


class ByteFile(Protocol):
    """Random access to a file's bytes, from many threads; pickles; crosses a fork."""

    name: str

    @property
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes.

        Raises:
            DatasetError: the file is gone, or ends earlier.
        """
        ...


class _Descriptor:
    """An open file, closed with its last user."""

    __slots__ = ("number",)

    def __init__(self, path: str):
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


pread = os.pread
preadv: Callable[..., int] = os.preadv  # takes arrays; its declared type doesn't say so
_MAX_OPEN = max(64, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, 4096))
_opened: collections.deque[weakref.ref[LocalFile]] = collections.deque()
_opening = threading.Lock()


def _renew_lock() -> None:
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)  # a thread of the parent may have held it


class LocalFile:
    """A file on a disk, opened when first read; the oldest are closed when very many are open."""

    __slots__ = ("__weakref__", "_descriptor", "_size", "name")

    def __init__(self, path: str):
        self.name = path
        self._descriptor: _Descriptor | None = None
        self._size = -1

    def __reduce__(self) -> tuple[Any, ...]:
        return (LocalFile, (self.name,))

    @property
    def size(self) -> int:
        if self._size < 0:
            self._size = os.fstat(self._open().number).st_size
        return self._size

    def read(self, offset: int, size: int) -> bytes:
        descriptor = self._descriptor or self._open()
        data = pread(descriptor.number, size, offset)
        if len(data) == size:
            return data
        parts = [data]
        while data and sum(map(len, parts)) < size:  # a signal, or more than 2 GiB
            done = sum(map(len, parts))
            data = os.pread(descriptor.number, size - done, offset + done)
            parts.append(data)
        return _whole(b"".join(parts), offset, size, self.name)

    def read_into(self, offset: int, buffers: Sequence[Any], size: int) -> None:
        """Fills buffers of `size` bytes in all."""
        descriptor = self._descriptor or self._open()
        if preadv(descriptor.number, buffers, offset) != size:
            data = memoryview(self.read(offset, size))
            for buffer in buffers:
                target = memoryview(buffer).cast("B")
                target[:], data = data[: len(target)], data[len(target) :]

    def _open(self) -> _Descriptor:
        with _opening:
            try:
                descriptor = self._descriptor = _Descriptor(self.name)
            except OSError as error:
                raise _explained(self.name, error) from error
            _opened.append(weakref.ref(self))
            while len(_opened) > _MAX_OPEN:
                oldest = _opened.popleft()()
                if oldest is not None:
                    oldest._descriptor = None
        return descriptor


class MemoryFile:
    """Bytes that are in memory already."""

    def __init__(self, data: bytes | bytearray | memoryview, name: str = "bytes"):
        self.name = name
        self._data = bytes(data)

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, size: int) -> bytes:
        return _whole(self._data[offset : offset + size], offset, size, self.name)


class RemoteFile:
    """A file in an object store, by range requests through fsspec."""

    def __init__(self, uri: str, options: Mapping[str, Any] | None = None):
        self.name = uri
        self._options = options
        self._size = -1

    @property
    def size(self) -> int:
        if self._size < 0:
            fs, path = filesystem(self.name, self._options)
            try:
                self._size = int(fs.size(path))
            except OSError as error:
                raise _explained(self.name, error) from error
        return self._size

    def read(self, offset: int, size: int) -> bytes:
        if size == 0:
            return b""
        fs, path = filesystem(self.name, self._options)
        try:
            data = bytes(fs.cat_file(path, start=offset, end=offset + size))
        except OSError as error:
            raise _explained(self.name, error) from error
        return _whole(data, offset, size, self.name)


class PathFile:
    """A file behind an object that has `open`, as granular's users bring their own."""

    def __init__(self, path: Any):
        self.name = str(path)
        self._path = path
        self._start()

    def _start(self) -> None:
        self._stream: Any = None
        self._pid = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "_path": self._path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    @property
    def size(self) -> int:
        with self._lock:
            return int(self._opened().seek(0, os.SEEK_END))

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            stream = self._opened()
            stream.seek(offset)
            return _whole(bytes(stream.read(size)), offset, size, self.name)

    def _opened(self) -> Any:
        if self._stream is None or self._pid != os.getpid():  # a position can't be shared across a fork
            try:
                self._stream, self._pid = self._path.open("rb"), os.getpid()
            except OSError as error:
                raise _explained(self.name, error) from error
        return self._stream


def _whole(data: bytes, offset: int, size: int, name: str) -> bytes:
    if len(data) != size:
        raise DatasetError(
            f"{name}: ends at byte {offset + len(data)}, {size} bytes from byte {offset} were wanted; it was "
            "truncated or written to since it was opened"
        )
    return data


def _explained(name: str, error: OSError) -> LogloomError:
    if isinstance(error, MISSING):
        return DatasetError(f"{name}: there is no such file")
    return StorageError(f"{name}: {error.strerror or error}")


def open_file(where: Any, options: Mapping[str, Any] | None = None) -> ByteFile:
    """A file by its path, URI, path-like object, or bytes.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(where, LocalFile | MemoryFile | RemoteFile | PathFile):
        return where
    if isinstance(where, bytes | bytearray | memoryview):
        return MemoryFile(where)
    if isinstance(where, str | os.PathLike):
        uri = os.fspath(where)
        check_file(uri, options)
        return LocalFile(uri.split("://", 1)[-1]) if is_local(uri) else RemoteFile(uri, options)
    if hasattr(where, "open"):
        return PathFile(where)
    raise UsageError(f"expected a path, a URI or bytes, got {type(where).__name__}")


class Folder(Protocol):
    """Where one dataset lies, or a folder of them."""

    name: str

    def file(self, name: str) -> ByteFile: ...

    def child(self, name: str) -> Folder: ...

    def exists(self, name: str) -> bool:
        """Whether there is such a file, or such a folder with something in it."""
        ...

    def names(self) -> list[str]:
        """What lies directly in it, sorted."""
        ...

    def make(self) -> None:
        """Makes the folder where folders exist by themselves."""
        ...

    def scratch_parent(self) -> pathlib.Path | None:
        """A local folder on the same disk, outside this one; None where there is none."""
        ...

    def publish(self, scratch: pathlib.Path) -> None:
        """Makes a local folder's files this folder's, whole or not at all.

        Raises:
            UsageError: it is there already.
        """
        ...


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
    """Why a dataset is not written onto another."""
    return f"{name}: there is a finished dataset already; delete it first, or write to another folder"


def open_folder(where: Any, options: Mapping[str, Any] | None = None) -> Folder:
    """A folder by its path, URI or path-like object.

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
