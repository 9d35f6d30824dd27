"""ROS 2 bags: the kind, and which files are one bag.

Here: `KIND`, and the container of each file by its name.
Elsewhere: sqlite files (db3), MCAP files (mcap), compression (copies, inflate), several files (log).

A bag is a folder of .db3 or .mcap files, each perhaps packed as a whole (.zstd), beside a metadata.yaml. Of
that file only its place is used: what it says of files, topics, counts and compression is often out of date
(a recorder that died never wrote it), and the files tell all of it themselves. Plain .mcap files that are
named one by one are of kind mcap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from logloom.errors import LogReadError
from logloom.io.logs.base import Log, OpenOptions
from logloom.io.logs.compression import ZSTD_MAGIC
from logloom.io.logs.container import Container
from logloom.io.logs.log import ContainerLog
from logloom.io.logs.mcap.reader import McapFile
from logloom.io.logs.ranges import File
from logloom.io.logs.rosbag2.copies import ZSTD_SUFFIXES, UnpackedFile
from logloom.io.logs.rosbag2.db3 import MAGIC, Db3File
from logloom.io.storage import filesystem, is_local

METADATA = "metadata.yaml"
_BAG_FILE = re.compile(r".*\.(db3|mcap)(\.zstd|\.zst)?")
_PACKED = tuple(f".{kind}{suffix}" for kind in ("db3", "mcap") for suffix in ZSTD_SUFFIXES)


class Rosbag2Kind:
    """Opens ROS 2 bags: their files, or a metadata.yaml, which stands for all files of its folder."""

    name = "rosbag2"
    suffixes = (".db3", *_PACKED, METADATA)

    def matches(self, uri: str, head: bytes) -> bool:
        return head.startswith(MAGIC) or (uri.endswith(_PACKED) and head.startswith(ZSTD_MAGIC))

    def open(self, uris: Sequence[str], options: OpenOptions) -> Log:
        files = [file for uri in uris for file in _files_of(uri, options)]
        return ContainerLog(list(dict.fromkeys(files)), options, bag_file)


KIND = Rosbag2Kind()


def bag_file(file: File, options: OpenOptions) -> Container:
    """The container of a bag's file, by its name."""
    name = file.uri
    if name.endswith(ZSTD_SUFFIXES):
        name, file = name.rpartition(".")[0], UnpackedFile(file.uri, options.storage_options)
    return McapFile(file, options) if name.endswith(".mcap") else Db3File(file, options)


def _files_of(uri: str, options: OpenOptions) -> list[str]:
    """The files that a URI stands for.

    Raises:
        LogReadError: a metadata.yaml without any.
    """
    folder, _, name = uri.rpartition("/")
    if name != METADATA:
        return [uri]
    fs, path = filesystem(folder or ".", options.storage_options)
    names = sorted(info["name"] for info in fs.ls(path, detail=True) if info["type"] != "directory")
    found = [name for name in names if _BAG_FILE.fullmatch(name.rsplit("/", 1)[-1])]
    if not found:
        raise LogReadError(f"{uri}: there are no .db3 or .mcap files beside it; the bag is incomplete")
    prefix = "" if is_local(uri) else f"{uri.split('://', 1)[0]}://"
    return [name if "://" in name else prefix + name for name in found]
