"""ROS 2 bags: the kind, the files of a bag, and missing ones.

Here: `KIND`, and the container of each file by its name.
Elsewhere: sqlite files (db3), compressed files (local_copies); and in logloom.io.logs MCAP files
(logloom.io.logs.mcap), compressed messages (logloom.io.logs.files.message_compression), several files
(logloom.io.logs.files.container_log), metadata.yaml (logloom.io.logs.bag_metadata).

A bag is a folder of .db3 or .mcap files, each possibly compressed (.zstd), with a metadata.yaml, which may be
absent or out of date. A listed file that is missing is damage: a split of the drive is gone. Plain .mcap
files that are named one by one are of kind mcap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from logloom.errors import LogReadError
from logloom.io.logs.bag_metadata import MAX_BYTES, METADATA, ZSTD_SUFFIXES, missing_files
from logloom.io.logs.files.compression import ZSTD_MAGIC
from logloom.io.logs.files.container import Container
from logloom.io.logs.files.container_log import ContainerLog
from logloom.io.logs.files.lazy_attributes import lazy
from logloom.io.logs.files.log_part import LogPart
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.interface import Log, LogSummary, OpenOptions, Refusal
from logloom.io.logs.mcap.reader import McapFile
from logloom.io.logs.mcap.records import MAGIC as MCAP_MAGIC
from logloom.io.logs.rosbag2.db3 import MAGIC, Db3File
from logloom.io.logs.rosbag2.local_copies import UnpackedFile
from logloom.io.storage.filesystems import file_name_of, filesystem, uri_in
from logloom.uris import is_local

_BAG_FILE = re.compile(r".*\.(db3|mcap)(\.zstd|\.zst)?")
_SPLIT = re.compile(r"(.+)_(\d+)\.(mcap|db3)(\.zstd|\.zst)?")
_PACKED = tuple(f".{kind}{suffix}" for kind in ("db3", "mcap") for suffix in ZSTD_SUFFIXES)


class Rosbag2Kind:
    """Opens ROS 2 bags: their files, or a metadata.yaml, which means all files of its folder."""

    name = "rosbag2"
    also = ("mcap",)
    suffixes = (".db3", *_PACKED, METADATA)

    def files_in(self, names: Sequence[str]) -> list[str]:
        """Return the files of a bag without a metadata.yaml: NAME_0.mcap, NAME_1.mcap, …."""
        files = [name for name in names if _BAG_FILE.fullmatch(name)]
        found = [_SPLIT.fullmatch(name) for name in files]
        splits = {(match[1], int(match[2])) for match in found if match}
        is_bag = len(splits) == len(files) and len({name for name, _ in splits}) == 1
        return files if is_bag and METADATA not in names else []

    def matches(self, uri: str, head: bytes) -> bool:
        return head.startswith(MAGIC) or (uri.endswith(_PACKED) and head.startswith(ZSTD_MAGIC))

    def open(self, uris: Sequence[str], options: OpenOptions) -> Log:
        files: dict[str, None] = {}
        missing: dict[str, list[Refusal]] = {}
        for uri in uris:
            found = _files_of(uri, options)
            files |= dict.fromkeys(found)
            if _is_metadata(uri) and (lost := _missing(uri, found, options)):
                missing[uri] = lost
        return BagLog(list(files), options, missing)


KIND = Rosbag2Kind()


class BagLog(ContainerLog):
    """A `ContainerLog` that refuses, or lists, files that are missing according to its metadata.yaml.

    Such a metadata.yaml is among the URIs of the summary, so that the log can be opened by them.
    """

    def __init__(self, uris: Sequence[str], options: OpenOptions, missing: Mapping[str, Sequence[Refusal]]):
        """
        Args:
            missing: by URI of a metadata.yaml.
        """
        super().__init__(uris, options, bag_file)
        self._missing = {uri: tuple(missing[uri]) for uri in sorted(missing)}

    def __reduce__(self) -> tuple[Any, ...]:
        return (BagLog, (self._uris, self._options, self._missing))

    @lazy
    def summary(self) -> LogSummary:
        whole = super().summary
        missing = chain.from_iterable(self._missing.values())
        uris = (*whole.uris, *self._missing)
        return replace(whole, uris=uris, refusals=(*whole.refusals, *missing))

    @lazy
    def parts(self) -> list[LogPart]:
        if self._missing and self._options.on_error != "salvage":
            missing = chain.from_iterable(self._missing.values())
            lines = "; ".join(f"{refusal.uri}: {refusal.reason}" for refusal in missing)
            raise LogReadError(
                f"{lines}. Copy the bag again, or set on_error: salvage to use the files that are there."
            )
        return super().parts


def bag_file(file: LogFile, options: OpenOptions) -> Container:
    """Return the container of a bag's file, by its name, else by its first bytes."""
    name = file.uri
    if name.endswith(ZSTD_SUFFIXES):
        name, file = name.rpartition(".")[0], UnpackedFile(file.uri, options.storage_options)
    is_mcap = name.endswith(".mcap")
    if not name.endswith((".mcap", ".db3")):
        is_mcap = file.read(0, min(len(MCAP_MAGIC), file.size)) == MCAP_MAGIC
    return McapFile(file, options) if is_mcap else Db3File(file, options)


def _is_metadata(uri: str) -> bool:
    return file_name_of(uri) == METADATA


def _missing(uri: str, found: Sequence[str], options: OpenOptions) -> list[Refusal]:
    """List the files in a metadata.yaml that don't exist."""
    file = LogFile(uri, options.storage_options)
    text = file.read(0, file.size) if file.size <= MAX_BYTES else b""
    folder = uri.rpartition("/")[0]
    return [
        Refusal(f"{folder}/{name}", -1, "", 0, 0, f"is missing, though {METADATA} lists it", 0)
        for name in missing_files(text, map(file_name_of, found))
    ]


def _files_of(uri: str, options: OpenOptions) -> list[str]:
    """Return the files that a URI refers to.

    Raises:
        LogReadError: a metadata.yaml without any.
    """
    if not _is_metadata(uri):
        return [uri]
    folder = uri.rpartition("/")[0]
    fs, path = filesystem(folder or ".", options.storage_options)
    names = sorted(info["name"] for info in fs.ls(path, detail=True) if info["type"] != "directory")
    found = [name for name in names if _BAG_FILE.fullmatch(name.rsplit("/", 1)[-1])]
    if not found:
        raise LogReadError(f"{uri}: there are no .db3 or .mcap files beside it; the bag is incomplete")
    return found if is_local(uri) else [uri_in(uri, name) for name in found]
