"""Folders of logs: listings, and folders that are logs themselves.

Here: `Folders`, which caches listings, recognizes ROS 2 bags by their metadata.yaml, and finds the logs in a
folder that is none itself.
Elsewhere: URIs, globs and names (match), folders that are logs of a kind (each kind).
A metadata.yaml is read through the file system that listed it, whose paths may mean something else in a URI.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from blake3 import blake3

from logloom.errors import StorageError
from logloom.io.logs.bag_metadata import MAX_BYTES, METADATA, missing_files
from logloom.io.logs.listings import Listed, entry_of, is_disk, is_hidden_name, is_web, listed, local_stamp
from logloom.io.logs.opening import Kind, kinds
from logloom.io.storage.threads import in_threads
from logloom.text import counted, some_of

T = TypeVar("T")

_RECORDINGS = tuple(f".{kind}{packed}" for kind in ("mcap", "db3") for packed in ("", ".zstd", ".zst"))
_UNLISTED = (401, 403, 405)  # answers of web servers, beside 404, for folders that they don't list


def is_bag_file(name: str) -> bool:
    """Return whether a file may belong to a ROS 2 bag, whose log is its folder."""
    return name.endswith(_RECORDINGS) or is_metadata(name)


def is_metadata(name: str) -> bool:
    """Return whether a file has the name of a ROS 2 bag's metadata."""
    return name.endswith(METADATA) and name.rsplit("/", 1)[-1] == METADATA


def parent_of(name: str) -> str:
    return name.rpartition("/")[0]


def _is_generic(kind: Kind) -> bool:
    return getattr(kind, "is_generic", False)


def _recordings(names: Iterable[str]) -> list[str]:
    """Return the files that have names of recordings, without tables, which may be anything."""
    suffixes = tuple(suffix for kind in kinds() if not _is_generic(kind) for suffix in kind.suffixes)
    return [name for name in names if name.endswith(suffixes) and not is_metadata(name)]


_MANIFEST = re.compile(r".*/versions/\d{8}\.json")
_LOOKED_INTO = 5  # folders that are passed over


class Folders:
    """Folders of fsspec file systems, as they were when first listed. Thread-safe.

    Attributes:
        known_bags: digest of the listing of a folder with a metadata.yaml to its classification: "no bag",
            "whole", or "lacks files".
        passed_over: by folder that was given for the logs in it, the names of what is none; see `logs_in`.
    """

    def __init__(self, known_bags: Mapping[str, str] | None = None) -> None:
        """
        Args:
            known_bags: from an earlier listing, to skip reading unchanged metadata.yaml files.
        """
        self._bags_before = known_bags or {}
        self.known_bags: dict[str, str] = {}
        self.passed_over: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()
        self._locks: dict[Any, threading.Lock] = {}
        self._known: dict[Any, Any] = {}
        self._now_ns = time.time_ns()

    @property
    def notes(self) -> list[str]:
        """See `passed_over`."""
        return [
            f"{folder}: skipped {counted(len(names), 'name')} that no log has: {some_of(names)}"
            for folder, names in sorted(self.passed_over.items())
        ]

    @property
    def now_ns(self) -> int:
        """When listing began, ns since the Unix epoch."""
        return self._now_ns

    def matching(self, fs: Any, pattern: str) -> tuple[list[str], list[str]]:
        """Return the files and the folders that match a glob, each sorted."""
        files, below, folders = listed(fs, pattern, self._now_ns)
        with self._lock:
            for folder, entries in folders.items():
                self._known.setdefault((str(fs.protocol), folder, "entries"), entries)
        return files, below

    def stamp(self, fs: Any, path: str) -> str:
        """Return a file's stamp from its folder's listing; see `listing`."""
        if is_disk(fs) and not path.endswith(".db3"):  # all files of an archive may pass through here
            return local_stamp(path, self._now_ns)
        protocol = str(fs.protocol)
        known: dict[str, Listed] = self._known.get((protocol, parent_of(path), "entries"), {})
        beside = known or self._known.get((protocol, path, "file"), {})
        if path.endswith(".db3") and (f"{path}-wal" in beside or f"{path}-journal" in beside):
            return ""  # recent writes to it are in a file beside it
        if is_disk(fs):
            return local_stamp(path, self._now_ns)
        entry = beside.get(path)
        return entry.stamp if entry is not None else ""

    def kind_of(self, fs: Any, path: str) -> str | None:
        """Return what a path is, "file" or "directory"; None if it doesn't exist."""
        if is_bag_file(path):  # its folder is listed anyway
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                entry = self._entries(fs, parent_of(path)).get(path)
                # A listing doesn't contain the targets of links.
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
        """Return those folders that are ROS 2 bags, with their files."""
        unique = sorted(set(folders))
        found = in_threads(lambda folder: self._bag(fs, folder), unique, threads)
        return {folder: files for folder, files in zip(unique, found, strict=True) if files}

    def log_in(self, fs: Any, folder: str) -> tuple[str, ...]:
        """Return the files of a folder that is a log, by the first kind that recognizes it; else none.

        Tables beside recordings of other kinds are no log.
        """
        listed = self._files(fs, folder)
        names = [name.rsplit("/", 1)[-1] for name in listed]
        for kind in sorted(kinds(), key=_is_generic):
            files_in: Callable[[Sequence[str]], Sequence[str]] | None = getattr(kind, "files_in", None)
            if files_in is not None and (own := set(files_in(names))):
                if _is_generic(kind) and _recordings(names):
                    return ()
                return tuple(path for path, name in zip(listed, names, strict=True) if name in own)
        return ()

    def is_root(self, fs: Any, folder: str) -> bool:
        """Return whether a folder is a root of logloom, with a version."""
        versions = f"{folder}/versions"
        if versions not in self._entries(fs, folder):
            return False
        return any(_MANIFEST.fullmatch(name) for name in self._entries(fs, versions))

    def logs_in(self, fs: Any, folder: str) -> tuple[list[str], list[str]]:
        """Return the recordings in a folder, and the folders in it, any of which may be a log."""
        entries = self._entries(fs, folder)
        below = sorted(n for n, one in entries.items() if one.kind == "directory" and not is_hidden_name(n))
        return _recordings(self._files(fs, folder)), below

    def pass_over(self, fs: Any, folder: str, taken: Collection[str]) -> None:
        """Note what in a folder is none of its logs, which are these files and folders."""
        entries = self._entries(fs, folder)
        left = sorted(name for name in entries if not (name in taken or is_hidden_name(name)))
        below = [name for name in left if entries[name].kind == "directory"]
        with_logs = {name for name in below[:_LOOKED_INTO] if self.logs_in(fs, name)[0]}
        marks = dict.fromkeys(below, "/") | dict.fromkeys(with_logs, "/ (a folder with logs: give it, too)")
        names = tuple(name.rsplit("/", 1)[-1] + marks.get(name, "") for name in left)
        with self._lock:
            self.passed_over |= {folder: names} if names else {}

    def _entries(self, fs: Any, folder: str) -> dict[str, Listed]:
        """List a folder's direct entries and their types."""

        def find() -> dict[str, Listed]:
            try:
                found = fs.ls(folder, detail=True)
            except (FileNotFoundError, StorageError) as error:
                refused = getattr(error.__cause__, "status", 0) in _UNLISTED
                if is_web(fs) and (refused or isinstance(error, FileNotFoundError)):
                    return {}  # a web server may have files in folders that it doesn't list
                raise
            return {info["name"]: entry_of(fs, info, self._now_ns) for info in found}

        return self._once(fs, folder, "entries", find)

    def _files(self, fs: Any, folder: str) -> list[str]:
        """List the files in a folder, sorted, without hidden ones."""
        entries = self._entries(fs, folder)
        return sorted(n for n, one in entries.items() if one.kind != "directory" and not is_hidden_name(n))

    def _bag(self, fs: Any, folder: str) -> tuple[str, ...]:
        """Return the files of a ROS 2 bag; none if the folder isn't one."""

        def find() -> tuple[str, ...]:
            listed = self._files(fs, folder)
            if f"{folder}/{METADATA}" not in listed:
                return ()
            files = [name for name in listed if name.endswith(_RECORDINGS)]
            what = self._what_metadata_makes(fs, folder, files)
            if what == "no bag":
                return ()
            # The reader of the bag must know that it is incomplete.
            return tuple(files if what == "whole" or not files else [*files, f"{folder}/{METADATA}"])

        return self._once(fs, folder, "bag", find)

    def _what_metadata_makes(self, fs: Any, folder: str, files: Sequence[str]) -> str:
        """Classify a folder by its metadata.yaml and possible bag files; see `known_bags`."""
        path = f"{folder}/{METADATA}"
        stamp = self.stamp(fs, path)
        listing = blake3("\0".join((str(fs.protocol), path, stamp, *files)).encode()).hexdigest(length=16)
        what = self._bags_before.get(listing, "") if stamp else ""
        if what not in ("no bag", "whole", "lacks files"):
            # Any tool may write a metadata.yaml; only a bag's has this key.
            text = fs.cat_file(path, start=0, end=MAX_BYTES)
            is_bag = b"rosbag2_bagfile_information" in text[:4096]
            what = ("lacks files" if missing_files(text, files) else "whole") if is_bag else "no bag"
        if stamp:
            self.known_bags[listing] = what
        return what

    def _once(self, fs: Any, folder: str, what: str, find: Callable[[], T]) -> T:
        """Call `find` in the first thread that wants it while the others wait."""
        # Each thread has its own file system, with its own cache of listings.
        key = (str(fs.protocol), folder, what)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._known:
                self._known[key] = find()
            found: T = self._known[key]
            return found
