"""Blobs: files of chunks, one file per column group of a part.

Here: `BlobWriter`, which stores each distinct chunk once, and the codecs of compressed groups.
Elsewhere: reading ranges of blobs (logloom.io.formats.table.read.range_reader), the index that points into
them (logloom.io.formats.table.index.index).

A blob is concatenated chunks without a header, in row order of their first use. Hashes are of the stored
bytes. A compressed chunk is the u64 size of the chunk, then one lz4 block or zstd frame.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import field
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.formats.table.chunks import Buffer, Chunk
from logloom.values import dataclass

HASH_BYTES = 32
_BATCH = 4 << 20  # bytes hashed by one task: the file is written while the next ones are hashed
_JOINED = 8 << 10  # chunks below this are copied together: that costs less than handling their pieces
_SYNC = 16 << 20  # bytes after which what was written is sent to the disk, while more is written
_IOV_MAX = 1024
_SIZE = struct.Struct("<Q")

Place = tuple[str, int, int]  # blob, offset, length
_Packed = tuple[Sequence[Chunk], list[int], list[bytes]]  # chunks as stored, their sizes and hashes
Pack = Callable[[bytes], bytes]
Unpack = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]


@dataclass
class ChunkPlaces:
    """The places of the chunks of a group's rows, row by row.

    Attributes:
        longest: bytes of the longest chunk before compression.
    """

    blobs: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    longest: int = 0


class BlobWriter:
    """Writes the chunks of one group, each distinct one once. Not for several threads.

    The file depends only on the sequence of chunks, not on how they were batched.
    """

    def __init__(self, path: pathlib.Path, name: str, codec: str | None, workers: Executor, syncer: Executor):
        """Creates the file.

        Args:
            path: of the blob.
            name: its name in `places`.
            codec: "lz4", "zstd" or None.
            workers: threads that hash and compress.
            syncer: a thread that waits for the disk.
        """
        self.places = ChunkPlaces()
        self._name = name
        self._pack = packer(codec) if codec else None
        self._workers, self._syncer = workers, syncer
        self._known: dict[bytes, Place] = {}
        self._end = 0
        self._synced = 0
        self._syncing: Future[None] | None = None
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def prepare(self, chunks: Sequence[Chunk]) -> list[Future[_Packed]]:
        """Starts to hash and compress chunks; `append` takes the result, in the same order."""
        sizes = [sum(map(len, chunk)) for chunk in chunks]
        self.places.longest = max(self.places.longest, *sizes, 0)
        # Threads that hash small chunks wait for the interpreter longer than for the hashes.
        submit = (
            _at_once if self._pack is None and sum(sizes) < _JOINED * len(sizes) else self._workers.submit
        )
        return [
            submit(_finish, chunks[start:stop], sizes[start:stop], self._pack)
            for start, stop in itertools.pairwise(_cuts(sizes))
        ]

    def append(self, prepared: Sequence[Future[_Packed]], stored_elsewhere: Mapping[bytes, Place]) -> None:
        """Write chunks that are not stored yet, here or elsewhere, and record the place of all.

        Raises:
            StorageError: the disk refused.
        """
        known, places = self._known, self.places
        for future in prepared:
            fresh: list[Buffer] = []
            for chunk, size, digest in zip(*future.result(), strict=True):
                place = known.get(digest) or stored_elsewhere.get(digest)
                if place is None:
                    place = known[digest] = (self._name, self._end, size)
                    self._end += size
                    fresh += chunk
                places.blobs.append(place[0])
                places.offsets.append(place[1])
                places.lengths.append(place[2])
                places.hashes.append(digest)
            try:
                _write_all(self._fd, fresh)
                self._start_sync()
            except OSError as error:
                raise StorageError(f"{self._name}: could not write at byte {self._end}: {error}") from error

    def _start_sync(self) -> None:
        """Start to sync written bytes from time to time, so that little is left to wait for at the end."""
        if self._end - self._synced >= _SYNC and (self._syncing is None or self._syncing.done()):
            if self._syncing is not None:
                self._syncing.result()
            self._synced = self._end
            self._syncing = self._syncer.submit(os.fdatasync, self._fd)

    def close(self) -> None:
        """Closes the file (not all of it synced).

        Raises:
            StorageError: the disk refused.
        """
        try:
            if self._syncing is not None:
                self._syncing.result()  # the system reports an error only once
        except OSError as error:
            raise StorageError(f"{self._name}: could not write before byte {self._end}: {error}") from error
        finally:
            os.close(self._fd)


def _at_once(work: Callable[..., _Packed], *arguments: Any) -> Future[_Packed]:
    """Do as an executor's `submit`, synchronously."""
    done: Future[_Packed] = Future()
    done.set_result(work(*arguments))
    return done


def _cuts(sizes: Sequence[int]) -> list[int]:
    """Where to cut chunks into batches of about `_BATCH` bytes: from 0 to their number."""
    if not sizes:
        return [0]
    batch_of = np.cumsum(sizes) // _BATCH
    return [0, *(np.flatnonzero(np.diff(batch_of)) + 1).tolist(), len(sizes)]


def _finish(chunks: Sequence[Chunk], sizes: list[int], pack: Pack | None) -> _Packed:
    if pack is not None:
        chunks = [(pack(b"".join(chunk)),) for chunk in chunks]
        sizes = [len(chunk[0]) for chunk in chunks]
    else:
        chunks = [
            (b"".join(chunk),) if size < _JOINED and len(chunk) > 1 else chunk
            for chunk, size in zip(chunks, sizes, strict=True)
        ]
    return chunks, sizes, _hashes(chunks)


def chunk_hash(chunk: Chunk) -> bytes:
    """BLAKE3 of a chunk as stored."""
    return _hashes([chunk])[0]


def _hashes(chunks: Sequence[Chunk]) -> list[bytes]:
    hasher, digests = blake3(), []
    for chunk in chunks:
        for piece in chunk:
            if len(piece):
                hasher.update(piece)
        digests.append(hasher.digest())
        hasher.reset()
    return digests


def _write_all(fd: int, pieces: Sequence[Buffer]) -> None:
    for start in range(0, len(pieces), _IOV_MAX):
        some = pieces[start : start + _IOV_MAX]
        written = os.writev(fd, some)
        if written < sum(map(len, some)):  # a signal, a full disk, or more than 2 GiB
            rest = memoryview(b"".join(some))[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]


def packer(codec: str) -> Pack:
    """Return the function that compresses a chunk.

    Raises:
        UsageError: no such codec.
    """
    compress: Callable[[bytes], bytes]
    if codec == "lz4":
        import lz4.block

        def compress(data: bytes) -> bytes:
            block: bytes = lz4.block.compress(data, store_size=False)
            return block
    elif codec == "zstd":
        import zstandard

        def compress(data: bytes) -> bytes:
            # A compressor serves one thread at a time, and making one costs little beside a chunk.
            return zstandard.ZstdCompressor(level=3, write_content_size=False).compress(data)
    else:
        raise UsageError(f"compression {codec!r}; there are lz4 and zstd")
    return lambda data: _SIZE.pack(len(data)) + compress(data)


def unpacker(codec: str, longest: int) -> Unpack:
    """Return the function that decompresses a stored chunk; it allocates at most `longest` bytes.

    The function raises DatasetError if the stored bytes are damaged.
    """
    import lz4.block
    import zstandard

    def unpack(stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if len(stored) < _SIZE.size:
            raise DatasetError(f"a compressed chunk of {len(stored)} bytes")
        (size,) = _SIZE.unpack_from(stored.data)
        if size > longest:
            raise DatasetError(f"the chunk claims {size} bytes, the group's longest has {longest}")
        data: Any = stored.data[_SIZE.size :]
        try:
            if codec == "lz4":
                raw = lz4.block.decompress(data, uncompressed_size=size, return_bytearray=True)
            else:
                # A frame that states its size would be given as much memory as it asks for; ours never do.
                if zstandard.frame_content_size(data) not in (-1, 0):
                    raise DatasetError("the chunk is a zstd frame of stated size")
                raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=size) if size else b""
        except (lz4.block.LZ4BlockError, zstandard.ZstdError, ValueError) as error:
            raise DatasetError(f"the chunk is no {codec} data: {error}") from error
        if len(raw) != size:
            raise DatasetError(f"the chunk has {len(raw)} bytes, expected {size}")
        return np.frombuffer(raw, np.uint8).copy() if codec == "zstd" else np.frombuffer(raw, np.uint8)

    return unpack
