"""Files that are cut, flipped or lost, and stores that fail."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import fsspec
import numpy as np
import pytest

from logloom.io.storage.remote import retries

T = TypeVar("T")


def files_in(folder: pathlib.Path) -> dict[str, bytes]:
    """The bytes of all files in a folder, by name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@contextlib.contextmanager
def replaced(path: pathlib.Path, data: bytes | None) -> Iterator[None]:
    """Gives a file other bytes, or takes it away, for a while."""
    whole = path.read_bytes()
    path.chmod(0o644)
    try:
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        yield
    finally:
        path.write_bytes(whole)


def cuts_of(data: bytes, rng: np.random.Generator, count: int = 4) -> list[bytes]:
    """A file cut at its start, in the middle, before its last byte, and anywhere."""
    places = {0, len(data) // 2, len(data) - 1, *rng.integers(0, max(1, len(data)), count).tolist()}
    return [data[:place] for place in sorted(places) if 0 <= place < len(data)]


def flips_of(data: bytes, rng: np.random.Generator, count: int = 8) -> list[bytes]:
    """A file with one bit flipped: in its first and its last byte, and anywhere."""
    if not data:
        return []
    places = [0, len(data) - 1, *rng.integers(0, len(data), count).tolist()]
    flipped = []
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(0, 8))
        flipped.append(bytes(damaged))
    return flipped


class StoreRefusedError(Exception):
    """An error as clients of object stores raise them: none of the operating system's."""


FAULTS: dict[str, type[Exception]] = {"reset": ConnectionResetError, "refused": StoreRefusedError}


class FailingStore:
    """Files in fsspec's memory that answer so many requests, and fail ever after.

    A request is asking for a file or a folder, opening one, or reading from one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], name: str):
        self.uri = f"memory://logloom-testing/{name}"
        self.left: int | None = None  # requests that will be answered; None for all
        self.fault = "reset"
        self._has_failed = False
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(retries, "WAITS", [0.0] * len(retries.WAITS))  # it never recovers
        fs, path = fsspec.url_to_fs(self.uri)
        if fs.exists(path):
            fs.rm(path, recursive=True)  # of the test before
        for file, data in files.items():
            fs.pipe_file(f"{path}/{file}", data)
        for method in ("info", "ls", "find", "exists", "isdir", "isfile", "cat_file"):
            self._watch(type(fs), method)
        self._watch_open(type(fs))

    def answer(self) -> None:
        """Counts a request; raises what the store fails with once there is none left."""
        if self.left is not None:
            if self.left <= 0:
                self._has_failed = True
                raise FAULTS[self.fault]("the store fails")
            self.left -= 1

    def _watch(self, kind: Any, method: str) -> None:
        whole = getattr(kind, method)

        def asked(fs: Any, *arguments: Any, **options: Any) -> Any:
            self.answer()
            return whole(fs, *arguments, **options)

        self._monkeypatch.setattr(kind, method, asked)

    def _watch_open(self, kind: Any) -> None:
        opened = kind._open

        def asked(fs: Any, *arguments: Any, **options: Any) -> Any:
            self.answer()
            return _WatchedFile(opened(fs, *arguments, **options), self)

        self._monkeypatch.setattr(kind, "_open", asked)

    def failures(self, fault: str, most: int = 40) -> Iterator[None]:
        """Fails after so many requests, by the kind of error that is named in `FAULTS`.

        After each of the first ten, and after each third up to `most`. Ends with the first time that no
        request failed.
        """
        self.fault = fault
        for number in (*range(min(10, most)), *range(10, most, 3)):
            self.left, self._has_failed = number, False
            yield
            if not self._has_failed:
                break
        self.left = None


class _WatchedFile:
    """An open file whose reads are requests."""

    def __init__(self, file: Any, store: FailingStore):
        self._file, self._store = file, store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _WatchedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._file)

    def read(self, *arguments: Any) -> Any:
        self._store.answer()
        return self._file.read(*arguments)

    def readinto(self, buffer: Any) -> Any:
        self._store.answer()
        return self._file.readinto(buffer)


def names(error: Exception, place: str) -> bool:
    """True; an error that doesn't name the place of what went wrong fails the test."""
    assert place in str(error), f"an error that doesn't name {place}: {error}"
    return True


def sampled(names: Sequence[T], most: int) -> list[T]:
    """At most so many of them, evenly."""
    step = max(1, -(-len(names) // most))
    return list(names)[::step]
