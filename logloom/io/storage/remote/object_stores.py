"""Remote file systems, such as object stores, with retries and uniform errors.

Here: `RemoteFiles`, which `logloom.io.storage.filesystems` returns for every URI that is neither local nor in
a zip archive.
Elsewhere: the errors (logloom.io.storage.faults); how long to wait, and which clients retry themselves
(logloom.io.storage.remote.retries).

A missing file is FileNotFoundError (or NotADirectoryError, IsADirectoryError), as in fsspec; any other
failure is a StorageError, which can't be mistaken for damage. An answer with fewer bytes than the file has is
a failure, too.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem

from logloom.errors import LogloomError, StorageError
from logloom.io.storage.faults import MISSING, size_in, storage_error
from logloom.io.storage.remote import retries
from logloom.io.storage.remote.range_file import RangedFile
from logloom.io.storage.remote.timeouts import Patience, waiting
from logloom.io.storage.step_times import step
from logloom.text import human_seconds
from logloom.uris import chained

T = TypeVar("T")

BLOCK = 5 << 20  # bytes that an open file reads ahead, as fsspec has it
# Errors that callers distinguish; a LogloomError is that of an archive in another store.
_PASSING = (*MISSING, FileExistsError, LogloomError, MemoryError)


class RemoteFiles(AbstractFileSystem):
    """Another file system whose requests are retried where that helps. Thread-safe; pickles."""

    cachable = False

    def __init__(self, fs: Any, scheme: str, patience: Patience):
        """
        Args:
            fs: as fsspec opened it, with the options of `patience`.
            scheme: of the URIs it was opened for.
            patience: how long its servers are waited for.
        """
        super().__init__()
        self._own, self._scheme, self._patience = fs, scheme, patience
        if scheme in retries.S3:
            fs.retries = 1  # s3fs would repeat all that botocore has tried again, up to 25 times
        self.protocol = fs.protocol
        self.sep, self.root_marker = fs.sep, fs.root_marker
        self._strip_protocol = fs._strip_protocol
        self._parent = fs._parent
        self._is_patient = scheme in retries.PATIENT
        self._is_checked = scheme in retries.CHECKED

    def __reduce__(self) -> tuple[Any, ...]:
        return (RemoteFiles, (self._own, self._scheme, self._patience))

    def _request(self, path: str, request: Callable[[], T]) -> T:
        """Return the result of a request, with retries.

        Raises:
            StorageError: it failed for good.
        """
        began = time.monotonic()
        try:
            with step("ask the store"), waiting(self._uri(path), self._patience):
                return retries.retried(request, _PASSING, is_patient=self._is_patient, long=self._long)
        except _PASSING as error:
            hidden = retries.hidden_fault(error)
            if hidden is None:
                raise
            raise self._failure(path, hidden, began) from chained(error)
        except Exception as error:
            raise self._failure(path, error, began) from chained(error)

    @property
    def _long(self) -> float:
        """Return the seconds after which a client has finished its own attempts at a silent server."""
        is_one_of_them = self._is_patient or self._scheme in retries.S3
        return 0.4 * self._patience.total if is_one_of_them and self._patience.total else float("inf")

    def _failure(self, path: str, error: BaseException, began: float) -> LogloomError:
        if not retries.is_timeout(error):
            return storage_error(self._uri(path), error)
        took = human_seconds(time.monotonic() - began)
        return StorageError(
            f"{self._uri(path)}: the server doesn't answer any more, given up after {took}; "
            f"{self._patience.advice()}"
        )

    def _uri(self, path: str) -> str:
        return path if "://" in path else f"{self._scheme}://{path.lstrip('/')}"

    # --- reading

    def info(self, path: str, **kwargs: Any) -> Any:
        return self._request(path, lambda: self._found(path, lambda: self._own.info(path, **kwargs)))

    def _found(self, path: str, ask: Callable[[], T]) -> T:
        """Return an answer; if a kept listing lacks the file, which may be newer, ask again without it."""
        try:
            return ask()
        except FileNotFoundError:
            parent = self._parent(self._strip_protocol(path))
            if parent not in getattr(self._own, "dircache", ()):
                raise
            self._own.invalidate_cache(parent)
            return ask()

    def size(self, path: str) -> int:
        """Return the size of a file.

        Raises:
            StorageError: unknown.
        """
        return size_in(self.info(path), self._uri(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        return self._request(path, lambda: self._own.ls(path, detail=detail, **kwargs))

    def exists(self, path: str, **kwargs: Any) -> bool:
        try:
            self.info(path, **kwargs)
        except MISSING:
            return False
        return True

    def isdir(self, path: str) -> bool:
        return self._type(path) == "directory"

    def isfile(self, path: str) -> bool:
        return self._type(path) == "file"

    def _type(self, path: str) -> str:
        try:
            return str(self.info(path)["type"])
        except MISSING:
            return ""

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """List files below a folder; one that can't be listed is an error, not an empty folder."""
        if self._has_own("find"):
            return self._request(path, lambda: self._own.find(path, *args, **kwargs))
        return super().find(path, *args, **kwargs)

    def glob(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if self._has_own("glob"):
            return self._request(path, lambda: self._own.glob(path, *args, **kwargs))
        return super().glob(path, *args, **kwargs)

    @property
    def lists_below(self) -> bool:
        """Whether it lists all objects below a prefix at once, across folders."""
        return isinstance(self._own, AsyncFileSystem) and self._has_own("find")

    @property
    def globs_itself(self) -> bool:
        """Whether it implements globs itself, for example to follow links."""
        return self._has_own("glob")

    def _has_own(self, name: str) -> bool:
        """Return whether the file system overrides a method, for example to list a whole bucket at once."""
        own = type(self._own)
        if issubclass(own, AsyncFileSystem):
            return getattr(own, f"_{name}") is not getattr(AsyncFileSystem, f"_{name}")
        return getattr(own, name) is not getattr(AbstractFileSystem, name)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        return self._request(path, lambda: self._whole(path, start, end))

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Read ranges, all at once; failed ones are retried one by one until one fails for good."""
        found: list[Any]
        began = time.monotonic()
        try:
            with waiting(self._uri(paths[0] if paths else ""), self._patience):
                found = self._own.cat_ranges(paths, starts, ends, on_error="return")
        except Exception as error:
            found = [error] * len(paths)
        failed: LogloomError | None = None
        if time.monotonic() - began >= self._long:
            silent = ((p, e) for p, e in zip(paths, found, strict=True) if isinstance(e, Exception))
            failed = next((self._failure(p, e, began) for p, e in silent if retries.is_timeout(e)), None)
            if failed is not None and on_error == "raise":
                raise failed
        for i, (path, start, end, data) in enumerate(zip(paths, starts, ends, found, strict=True)):
            if isinstance(data, bytes) and len(data) == end - start:
                continue
            if failed is not None:
                found[i] = failed
                continue
            try:
                found[i] = self.cat_file(path, start, end)
            except (*MISSING, StorageError) as error:
                if on_error == "raise":
                    raise
                found[i] = error
                failed = error if isinstance(error, StorageError) else None
        return found

    def _whole(self, path: str, start: int | None, end: int | None) -> bytes:
        """Read a range; fewer bytes only at the end of the file."""
        if start is None and end is None and self._scheme in retries.S3:
            start = 0  # for a whole object, s3fs takes the size from a listing that may be old
        try:
            data = bytes(self._own.cat_file(path, start=start, end=end))
        except (*_PASSING, retries.UnfitServerError):
            raise
        except Exception as error:
            # Stores refuse a range behind the end of the file, each in its own way.
            if start is not None and not retries.is_transient(error) and self._size(path) <= start:
                return b""
            raise
        first = start or 0
        if first < 0 or (end is None and self._is_checked):
            return data
        if end is None or len(data) < end - first:
            size = self._size(path)
            wanted = (size if end is None else min(end, size)) - first
            if len(data) < wanted:
                raise retries.ShortAnswerError(f"{len(data)} bytes at byte {first}, {wanted} were requested")
        return data

    def _size(self, path: str) -> int:
        """Return the current size of a file."""
        self._own.invalidate_cache(self._parent(path))
        return size_in(self._own.info(path), self._uri(path))

    def get_file(self, rpath: str, lpath: str, **kwargs: Any) -> None:
        def get() -> None:
            self._own.get_file(rpath, lpath, **kwargs)
            size, wanted = os.path.getsize(lpath), self._own.info(rpath)["size"]
            if wanted is not None and size < wanted:
                raise retries.ShortAnswerError(f"{size} bytes, it has {wanted}")

        self._request(rpath, lambda: self._found(rpath, get))

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        if mode != "rb":
            raise NotImplementedError(f"mode {mode}: objects are written whole")
        info = self.info(path)
        if info.get("size") is None or not info.get("partial", True):  # it gives no ranges
            return _Faults(self._request(path, lambda: self._own.open(path, "rb")), self._uri(path))
        raw = RangedFile(self._uri(path), int(info["size"]), functools.partial(self.cat_file, path))
        return raw if kwargs.get("cache_type") == "none" else io.BufferedReader(raw, block_size or BLOCK)

    # --- writing

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        attempts, limit = 0, self._patience.for_sending(len(value))

        def write() -> None:
            nonlocal attempts
            attempts += 1
            try:
                self._own.pipe_file(path, value, mode=mode, **kwargs, **limit)
            except FileExistsError:
                # The answer to an attempt may have been lost after it had done its work.
                if attempts == 1:
                    raise
                with contextlib.suppress(*MISSING):
                    if self._whole(path, None, None) != value:
                        raise
                    return
                self._own.pipe_file(path, value, mode=mode, **kwargs, **limit)  # removed since

        self._request(path, write)

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        limit = self._patience.for_sending(os.path.getsize(lpath))
        self._request(rpath, lambda: self._own.put_file(lpath, rpath, **kwargs, **limit))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self._request(path1, lambda: self._own.cp_file(path1, path2, **kwargs))

    def rm_file(self, path: str) -> None:
        self._remove(path, lambda: self._own.rm_file(path))

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        self._remove(path, lambda: self._own.rm(path, recursive=recursive, maxdepth=maxdepth))

    def _remove(self, path: str, remove: Callable[[], None]) -> None:
        attempts = 0

        def request() -> None:
            nonlocal attempts
            attempts += 1
            try:
                remove()
            except FileNotFoundError:
                if attempts == 1:  # else an attempt whose answer was lost
                    raise

        self._request(path, request)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self._request(path, lambda: self._own.mkdir(path, create_parents=create_parents, **kwargs))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._request(path, lambda: self._own.makedirs(path, exist_ok=exist_ok))

    def invalidate_cache(self, path: str | None = None) -> None:
        self._own.invalidate_cache(path)


class _Faults(io.RawIOBase):
    """A stream that can't be resumed from the middle: any failure is final."""

    def __init__(self, stream: Any, uri: str):
        self.name = uri
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = cast(bytes, self._stream.read(len(buffer)))
        except _PASSING:
            raise
        except Exception as error:
            raise storage_error(self.name, error) from chained(error)
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
