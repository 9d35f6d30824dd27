"""An object store in memory that fails as told: `faulty://bucket/name`."""

from __future__ import annotations

import pathlib
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

import logloom

ROOT = "faulty://bucket"


class UnavailableError(Exception):
    """As the errors of clients of object stores: of no built-in kind, with a status."""

    def __init__(self, status: int):
        super().__init__(f"the store answered {status}")
        self.status = status


def _short(data: Any) -> Any:
    return data[: len(data) // 2] if isinstance(data, bytes) else data


def _raising(error: Callable[[], Exception]) -> Callable[[Callable[[], Any]], Any]:
    def fail(work: Callable[[], Any]) -> Any:
        raise error()

    return fail


def _lost(work: Callable[[], Any]) -> Any:
    work()
    raise ConnectionResetError("the connection was reset")


# What becomes of a request, by the name of the fault.
FAULTS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "reset": _raising(lambda: ConnectionResetError("the connection was reset")),
    "time-out": _raising(lambda: TimeoutError("no answer in time")),
    "short": lambda work: _short(work()),
    "403": _raising(lambda: PermissionError("forbidden")),
    "404": _raising(lambda: FileNotFoundError("no such object")),
    "503": _raising(lambda: UnavailableError(503)),
    "lost": _lost,
}


_ASKING = threading.local()
_WRITING = threading.Lock()
_OWN = str(pathlib.Path(logloom.__file__).parent)


def place_of(frame: FrameType | None, most: int) -> tuple[tuple[str, int], ...]:
    """The lines of logloom that a call comes from, the nearest first."""
    found = []
    while frame is not None and len(found) < most:
        if frame.f_code.co_filename.startswith(_OWN):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


@dataclass
class Faults:
    """Which requests fail, and how.

    Attributes:
        kind: of fault, a name in `FAULTS`.
        at: number of the first request to fail, from 0; None for none.
        times: how many fail from there on.
        path: only requests for paths that match count.
        once: each request fails when it is first made, and not again.
        places: of the code that asked, and the number of the first request of each.
    """

    kind: str = "reset"
    at: int | None = None
    times: int = 1
    path: str = ""
    once: bool = False
    requests: int = 0
    done: list[str] = field(default_factory=list)
    places: dict[tuple[tuple[str, int], ...], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _met: set[str] = field(default_factory=set)

    def set(
        self,
        kind: str = "reset",
        at: int | None = None,
        times: int = 1,
        path: str = "",
        *,
        once: bool = False,
    ) -> None:
        self.kind, self.at, self.times, self.path, self.once = kind, at, times, path, once
        self.requests, self.done, self.places, self._met = 0, [], {}, set()

    def next(self, what: str, path: str) -> str | None:
        """Counts a request; the fault that it meets."""
        if not re.search(self.path, path):
            return None
        with self._lock:
            number, self.requests = self.requests, self.requests + 1
            self.places.setdefault(place_of(sys._getframe(1), most=10), number)
            if self.once:
                if f"{what} {path}" in self._met:
                    return None
                self._met.add(f"{what} {path}")
                self.done.append(f"{what} {path}")
                return self.kind
            if self.at is None or not self.at <= number < self.at + self.times:
                return None
            self.done.append(f"{what} {path}")
            return self.kind


class FaultyFiles(MemoryFileSystem):
    """Each request is counted, and fails if it is its turn. Listings and reads of ranges are one each."""

    protocol = "faulty"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    faults = Faults()
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("faulty://", "memory://")))

    def _ask(self, what: str, path: str, work: Callable[[], Any]) -> Any:
        if getattr(_ASKING, "is_inside", False):  # what it asks itself on the way, as whether a file is there
            return work()
        fault = self.faults.next(what, path)
        _ASKING.is_inside = True
        try:
            return work() if fault is None else FAULTS[fault](work)
        finally:
            _ASKING.is_inside = False

    def info(self, path: str, **kwargs: Any) -> Any:
        return self._ask("info", path, lambda: MemoryFileSystem.info(self, path, **kwargs))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        return self._ask("ls", path, lambda: MemoryFileSystem.ls(self, path, detail=detail, **kwargs))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> Any:
        return self._ask(f"read {start}-{end}", path, lambda: _bytes_at(self, path, start, end))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> Any:
        def write() -> None:
            with _WRITING:  # fsspec's own looks whether a file is there, and creates it a moment later
                MemoryFileSystem.pipe_file(self, path, bytes(value), mode=mode)

        return self._ask("write", path, write)

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        with open(lpath, "rb") as file:
            self.pipe_file(rpath, file.read())

    def get_file(self, rpath: str, lpath: str, **kwargs: Any) -> None:
        with open(lpath, "wb") as file:
            file.write(self.cat_file(rpath))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> Any:
        return self._ask("copy", path1, lambda: MemoryFileSystem.cp_file(self, path1, path2))

    def rm_file(self, path: str) -> Any:
        return self._ask("remove", path, lambda: MemoryFileSystem._rm(self, path))

    def _rm(self, path: str) -> Any:
        return self.rm_file(path)

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode != "rb":
            return super()._open(path, mode, **kwargs)
        own = {k: v for k, v in kwargs.items() if k in ("block_size", "cache_type", "cache_options", "size")}
        return _Reading(self, path, mode, **own)


class _Reading(AbstractBufferedFile):
    """A file whose ranges are requests, as in the clients of object stores."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.cat_file(self.path, start=start, end=end)
        return data


def _bytes_at(fs: FaultyFiles, path: str, start: int | None, end: int | None) -> bytes:
    own = fs._strip_protocol(path)
    if own not in fs.store:
        raise FileNotFoundError(path)
    return bytes(fs.store[own].getvalue()[start:end])


def install() -> Faults:
    """Makes `faulty://` known, empty and without faults."""
    fsspec.register_implementation("faulty", FaultyFiles, clobber=True)
    FaultyFiles.store.clear()
    FaultyFiles.pseudo_dirs[:] = [""]
    FaultyFiles.faults.set()
    return FaultyFiles.faults
