"""Folders that logs lie in: what each holds, and which of them are logs themselves.

Here: `Folders`, which lists a folder once for all who ask, and tells ROS 2 bags by their metadata.yaml.
Elsewhere: URIs, globs and names (match), which folders are logs of a kind (each kind).
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from logloom.io.logs.bag_metadata import MAX_BYTES, METADATA, missing_files
from logloom.io.logs.opening import kinds

T = TypeVar("T")

_BAG_FILE = re.compile(r".*\.(mcap|db3)(\.zstd|\.zst)?")


def is_bag_file(name: str) -> bool:
    """Whether a file may belong to a ROS 2 bag, which then is its folder."""
    last = name.rsplit("/", 1)[-1]
    return last == METADATA or _BAG_FILE.fullmatch(last) is not None


def parent_of(name: str) -> str:
    return name.rpartition("/")[0]


class Folders:
    """Folders of any of fsspec's file systems, as they are when first asked for. Serves many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Any, threading.Lock] = {}
        self._known: dict[Any, Any] = {}

    def kind_of(self, fs: Any, path: str) -> str | None:
        """What a path is, "file" or "directory"; None where nothing is there."""
        if is_bag_file(path):  # its folder is looked at anyway
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                kind = self._entries(fs, parent_of(path)).get(path)
                if kind in ("file", "directory"):  # what a link leads to, a listing doesn't say
                    return kind
        try:
            return str(fs.info(path)["type"])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def bags(self, fs: Any, folders: Iterable[str], threads: int) -> dict[str, tuple[str, ...]]:
        """Those folders that are ROS 2 bags, and their files."""
        unique = sorted(set(folders))
        with ThreadPoolExecutor(max(1, min(threads, len(unique)))) as pool:
            found = list(pool.map(lambda folder: self._bag(fs, folder), unique))
        return {folder: files for folder, files in zip(unique, found, strict=True) if files}

    def log_in(self, fs: Any, folder: str) -> tuple[str, ...]:
        """The files of the log that a folder is, by the first kind that says so; none where it is none."""
        listed = self._files(fs, folder)
        names = [name.rsplit("/", 1)[-1] for name in listed]
        for kind in sorted(kinds().values(), key=lambda kind: getattr(kind, "is_generic", False)):
            files_in: Callable[[Sequence[str]], Sequence[str]] | None = getattr(kind, "files_in", None)
            if files_in is not None and (own := set(files_in(names))):
                return tuple(path for path, name in zip(listed, names, strict=True) if name in own)
        return ()

    def _entries(self, fs: Any, folder: str) -> dict[str, str]:
        """All that lies directly in a folder, and what it is."""

        def ask() -> dict[str, str]:
            return {info["name"]: info["type"] for info in fs.ls(folder, detail=True)}

        return self._once(fs, folder, "entries", ask)

    def _files(self, fs: Any, folder: str) -> list[str]:
        return sorted(name for name, kind in self._entries(fs, folder).items() if kind != "directory")

    def _bag(self, fs: Any, folder: str) -> tuple[str, ...]:
        """The files of a ROS 2 bag; none where the folder is none."""

        def ask() -> tuple[str, ...]:
            listed = self._files(fs, folder)
            if f"{folder}/{METADATA}" not in listed:
                return ()
            # Any tool may write a metadata.yaml; only a bag's own says so.
            text = fs.cat_file(f"{folder}/{METADATA}", start=0, end=MAX_BYTES)
            if b"rosbag2_bagfile_information" not in text[:4096]:
                return ()
            files = [name for name in listed if _BAG_FILE.fullmatch(name.rsplit("/", 1)[-1])]
            # Whoever opens the bag must know that it isn't whole.
            is_whole = not missing_files(text, files)
            return tuple(files if is_whole or not files else [*files, f"{folder}/{METADATA}"])

        return self._once(fs, folder, "bag", ask)

    def _once(self, fs: Any, folder: str, what: str, ask: Callable[[], T]) -> T:
        """What `ask` gives, asked by the first thread that wants it while the others wait."""
        # Each thread has a file system of its own, and what one lists the others don't know.
        key = (str(fs.protocol), folder, what)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._known:
                self._known[key] = ask()
            found: T = self._known[key]
            return found
