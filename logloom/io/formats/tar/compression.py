"""Decompression of shards for random access.

Here: `unpacked`, the source of a shard that may be compressed.
Elsewhere: decompressing a stream (stream), the members of the archive (index).

No compression allows random access, so a shard is unpacked when its first row is read: into a folder of this
user's in the temporary one (TMPDIR), under a name that follows from the shard and its state, so that all
worker processes read one copy. The process that made it removes it when it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any, BinaryIO

from logloom.errors import DatasetError, StorageError
from logloom.io.formats.tar.stream import compression_of, open_stream
from logloom.io.storage.files import File
from logloom.io.storage.filesystems import explained, filesystem
from logloom.uris import is_local, path_of

MAX_BYTES = 64 << 30  # of a shard, unpacked: one that holds more is a bomb, or no shard to read rows from
_STEP = 4 << 20
_KEPT_FREE = 1 << 30  # bytes of the disk that are left to others


def unpacked(source: File, options: Mapping[str, Any] | None) -> File:
    """The source itself, or one of the same name whose bytes are decompressed.

    Raises:
        DatasetError: damaged compression, or more than `MAX_BYTES`.
        StorageError: there is no room for it.
    """
    if compression_of(source.read_head(0, 8)) is None:
        return source
    folder = pathlib.Path(tempfile.gettempdir()) / f"logloom-shards-{os.getuid()}"
    with explained(str(folder)):
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.lstat().st_uid != os.getuid() or folder.is_symlink():
            raise StorageError(f"{folder}: is another user's; set TMPDIR to a folder of your own")
        path = folder / f"{_state_of(source.name, options)}.tar"
        if not path.exists():
            _unpack(source.name, options, path)
    return File(source.name, options, copy=str(path))


def _state_of(uri: str, options: Mapping[str, Any] | None) -> str:
    """A name that changes with the file."""
    if is_local(uri):
        place = os.path.realpath(path_of(uri))
        stat = os.stat(place)
        state = f"{place} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
    else:
        fs, path = filesystem(uri, options)
        state = f"{uri} {sorted(fs.info(path).items(), key=str)}"
    return hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _unpack(uri: str, options: Mapping[str, Any] | None, path: pathlib.Path) -> None:
    descriptor, partial = tempfile.mkstemp(".partial", dir=path.parent)
    try:
        with open(descriptor, "wb") as file, open_stream(uri, options=options) as stream:
            _copy(stream, file, uri, path.parent)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        raise
    atexit.register(_remove, path, os.getpid())


def _copy(stream: BinaryIO, file: BinaryIO, uri: str, folder: pathlib.Path) -> None:
    done = 0
    while data := stream.read(_STEP):
        done += len(data)
        if done > MAX_BYTES:
            raise DatasetError(
                f"{uri}: unpacks to more than {MAX_BYTES} bytes; unpack it yourself if you trust it, or "
                "iterate over it with logloom.datasets.tar.sampleiterator"
            )
        if shutil.disk_usage(folder).free < _KEPT_FREE + len(data):
            raise StorageError(
                f"{uri}: no room to unpack it in {folder}; set TMPDIR to a larger disk, or iterate over it "
                "with logloom.datasets.tar.sampleiterator"
            )
        file.write(data)


def _remove(path: pathlib.Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked copy only reads it
        path.unlink(missing_ok=True)
