"""Folders that logs lie in: what each holds, and which of them are logs themselves.

Here: `Folders`, which lists a folder once for all who ask, and tells ROS 2 bags and folders of tables.
Elsewhere: URIs, globs and names (logloom.transforms.match), opening (logloom.io.logs).
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from logloom.io.logs.bag_metadata import MAX_BYTES, METADATA, missing_files
from logloom.io.logs.tables.reader import SUFFIXES

T = TypeVar("T")

_BAG_FILE = re.compile(r".*\.(mcap|db3)(\.zstd|\.zst)?")
_SPLIT = re.compile(r"(.+)_(\d+)\.(mcap|db3)(\.zstd|\.zst)?")


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

    def splits(self, fs: Any, folder: str) -> tuple[str, ...]:
        """The files of a ROS 2 bag whose metadata.yaml was never written: NAME_0.mcap, NAME_1.mcap, …."""
        listed = self._files(fs, folder)
        files = [name for name in listed if _BAG_FILE.fullmatch(name.rsplit("/", 1)[-1])]
        found = [_SPLIT.fullmatch(name.rsplit("/", 1)[-1]) for name in files]
        splits = {(match[1], int(match[2])) for match in found if match}
        is_bag = len(splits) == len(files) and len({name for name, _ in splits}) == 1
        return tuple(files) if is_bag and f"{folder}/{METADATA}" not in listed else ()

    def tables(self, fs: Any, folder: str) -> tuple[str, ...]:
        """The tables in a folder, which are one log; none where a metadata.yaml says otherwise."""
        listed = self._files(fs, folder)
        if f"{folder}/{METADATA}" in listed:
            return ()
        return tuple(name for name in listed if name.endswith(SUFFIXES))

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
