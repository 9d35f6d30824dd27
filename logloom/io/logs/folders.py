"""Folders that logs lie in: what each holds, and which of them are logs themselves.

Here: `Folders`, which lists a folder once for all who ask, and tells ROS 2 bags by their metadata.yaml.
Elsewhere: URIs, globs and names (match), which folders are logs of a kind (each kind).
A metadata.yaml is read through the file system that listed it, whose paths may mean something else in a URI.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from blake3 import blake3

from logloom.errors import StorageError
from logloom.io.logs.bag_metadata import MAX_BYTES, METADATA, missing_files
from logloom.io.logs.listings import Listed, entry_of, is_disk, is_hidden_name, is_web, listed, local_stamp
from logloom.io.logs.opening import kinds
from logloom.io.storage.threads import in_threads

T = TypeVar("T")

_RECORDINGS = tuple(f".{kind}{packed}" for kind in ("mcap", "db3") for packed in ("", ".zstd", ".zst"))
_UNLISTED = (401, 403, 405)  # answers of web servers, beside 404, for folders that they don't list


def is_bag_file(name: str) -> bool:
    """Whether a file may belong to a ROS 2 bag, which then is its folder."""
    return name.endswith(_RECORDINGS) or is_metadata(name)


def is_metadata(name: str) -> bool:
    """Whether a file is called as that of a ROS 2 bag that tells of the others."""
    return name.endswith(METADATA) and name.rsplit("/", 1)[-1] == METADATA


def parent_of(name: str) -> str:
    return name.rpartition("/")[0]


class Folders:
    """Folders of any of fsspec's file systems, as they are when first asked for. Serves many threads.

    Attributes:
        known_bags: digest of the listing of a folder with a metadata.yaml to what that makes of it: "no bag",
            "whole", or "lacks files".
    """

    def __init__(self, known_bags: Mapping[str, str] | None = None) -> None:
        """
        Args:
            known_bags: of an earlier listing, so that a metadata.yaml that hasn't changed need not be read.
        """
        self._bags_before = known_bags or {}
        self.known_bags: dict[str, str] = {}
        self._lock = threading.Lock()
        self._locks: dict[Any, threading.Lock] = {}
        self._known: dict[Any, Any] = {}
        self._now_ns = time.time_ns()

    @property
    def now_ns(self) -> int:
        """When listing began, ns since the Unix epoch."""
        return self._now_ns

    def matching(self, fs: Any, pattern: str) -> tuple[list[str], list[str]]:
        """The files and the folders that match a glob, each sorted."""
        files, below, folders = listed(fs, pattern, self._now_ns)
        with self._lock:
            for folder, entries in folders.items():
                self._known.setdefault((str(fs.protocol), folder, "entries"), entries)
        return files, below

    def stamp(self, fs: Any, path: str) -> str:
        """What tells that a file hasn't changed, as far as its folder's listing does; see `listing`."""
        if is_disk(fs) and not path.endswith(".db3"):  # all of an archive may come this way
            return local_stamp(path, self._now_ns)
        beside = self._beside(fs, path)
        if path.endswith(".db3") and (f"{path}-wal" in beside or f"{path}-journal" in beside):
            return ""  # what was written to it lies beside it
        if is_disk(fs):
            return local_stamp(path, self._now_ns)
        entry = beside.get(path)
        return entry.stamp if entry is not None else ""

    def _beside(self, fs: Any, path: str) -> dict[str, Listed]:
        """What lies in a file's folder, where that was listed; else what is known of the file."""
        protocol = str(fs.protocol)
        known: dict[str, Listed] = self._known.get((protocol, parent_of(path), "entries"), {})
        return known or self._known.get((protocol, path, "file"), {})

    def kind_of(self, fs: Any, path: str) -> str | None:
        """What a path is, "file" or "directory"; None where nothing is there."""
        if is_bag_file(path):  # its folder is looked at anyway
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                entry = self._entries(fs, parent_of(path)).get(path)
                # What a link leads to, a listing doesn't say.
                if entry is not None and entry.kind in ("file", "directory"):
                    return entry.kind
        try:
            info = fs.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with self._lock:
            self._known[str(fs.protocol), path, "file"] = {path: entry_of(fs, info, self._now_ns)}
        return str(info["type"])

    def bags(self, fs: Any, folders: Iterable[str], threads: int) -> dict[str, tuple[str, ...]]:
        """Those folders that are ROS 2 bags, and their files."""
        unique = sorted(set(folders))
        found = in_threads(lambda folder: self._bag(fs, folder), unique, threads)
        return {folder: files for folder, files in zip(unique, found, strict=True) if files}

    def log_in(self, fs: Any, folder: str) -> tuple[str, ...]:
        """The files of the log that a folder is, by the first kind that says so; none where it is none."""
        listed = self._files(fs, folder)
        names = [name.rsplit("/", 1)[-1] for name in listed]
        for kind in sorted(kinds(), key=lambda kind: getattr(kind, "is_generic", False)):
            files_in: Callable[[Sequence[str]], Sequence[str]] | None = getattr(kind, "files_in", None)
            if files_in is not None and (own := set(files_in(names))):
                return tuple(path for path, name in zip(listed, names, strict=True) if name in own)
        return ()

    def _entries(self, fs: Any, folder: str) -> dict[str, Listed]:
        """All that lies directly in a folder, and what it is."""

        def find() -> dict[str, Listed]:
            try:
                found = fs.ls(folder, detail=True)
            except (FileNotFoundError, StorageError) as error:
                refused = getattr(error.__cause__, "status", 0) in _UNLISTED
                if is_web(fs) and (refused or isinstance(error, FileNotFoundError)):
                    return {}  # a web server has files in folders that it doesn't list
                raise
            return {info["name"]: entry_of(fs, info, self._now_ns) for info in found}

        return self._once(fs, folder, "entries", find)

    def _files(self, fs: Any, folder: str) -> list[str]:
        """The files in a folder, sorted, without hidden ones."""
        entries = self._entries(fs, folder)
        return sorted(n for n, one in entries.items() if one.kind != "directory" and not is_hidden_name(n))

    def _bag(self, fs: Any, folder: str) -> tuple[str, ...]:
        """The files of a ROS 2 bag; none where the folder is none."""

        def find() -> tuple[str, ...]:
            listed = self._files(fs, folder)
            if f"{folder}/{METADATA}" not in listed:
                return ()
            files = [name for name in listed if name.endswith(_RECORDINGS)]
            what = self._what_metadata_makes(fs, folder, files)
            if what == "no bag":
                return ()
            # Whoever opens the bag must know that it isn't whole.
            return tuple(files if what == "whole" or not files else [*files, f"{folder}/{METADATA}"])

        return self._once(fs, folder, "bag", find)

    def _what_metadata_makes(self, fs: Any, folder: str, files: Sequence[str]) -> str:
        """See `known_bags`; of a folder with a metadata.yaml, and the files in it that may be a bag's."""
        path = f"{folder}/{METADATA}"
        stamp = self.stamp(fs, path)
        listing = blake3("\0".join((str(fs.protocol), path, stamp, *files)).encode()).hexdigest(length=16)
        what = self._bags_before.get(listing, "") if stamp else ""
        if what not in ("no bag", "whole", "lacks files"):
            # Any tool may write a metadata.yaml; only a bag's own says so.
            text = fs.cat_file(path, start=0, end=MAX_BYTES)
            is_bag = b"rosbag2_bagfile_information" in text[:4096]
            what = ("lacks files" if missing_files(text, files) else "whole") if is_bag else "no bag"
        if stamp:
            self.known_bags[listing] = what
        return what

    def _once(self, fs: Any, folder: str, what: str, find: Callable[[], T]) -> T:
        """What `find` gives, asked by the first thread that wants it while the others wait."""
        # Each thread has a file system of its own, and what one lists the others don't know.
        key = (str(fs.protocol), folder, what)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._known:
                self._known[key] = find()
            found: T = self._known[key]
            return found
