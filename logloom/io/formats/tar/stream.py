"""Streams of samples from tar archives: pipes, compressed and remote files.

Here: opening and decompressing streams, `compression_of`, and `stream_samples`.
Elsewhere: the walk and its checks (members), random access (reader), the pipeline (logloom.datasets.tar).
Streams are no `File` (logloom.io.storage.files): a pipe and a compressed file can't give ranges.
"""

from __future__ import annotations

import bz2
import io
import lzma
import os
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, cast

from logloom.errors import DatasetError, LogloomError, StorageError, UsageError
from logloom.io.formats.tar.headers import BLOCK
from logloom.io.formats.tar.members import TarCutShort, group, walk
from logloom.io.storage.faults import fault_of
from logloom.io.storage.filesystems import filesystem
from logloom.io.storage.remote.range_requests import failure
from logloom.uris import is_local, path_of

_STEP = 16 << 20  # what is read at a time of a member that claims to be large
_BUFFER = 256 << 10
PIPE = "pipe:"
SUFFIXES = (
    ".tar",
    ".tgz",
    *(f".tar.{kind}" for kind in ("gz", "zst", "bz2", "xz")),
    ".tbz2",
    ".txz",
    ".tzst",
)
_MAX_DICTIONARY = 128 << 20  # bytes that xz may ask for; `xz -9` takes half of it


def open_stream(
    source: str | os.PathLike[str], allow_pipe: bool = False, options: Mapping[str, Any] | None = None
) -> BinaryIO:
    """Opens a shard for reading from its beginning; gzip, zstd, bzip2 and xz are undone.

    Args:
        source: a path, an fsspec URI, or `pipe:<shell command>`.
        allow_pipe: whether a command may be run.
        options: for fsspec, by protocol.

    Raises:
        UsageError: a command, which is not allowed.
        DatasetError: there is no such file.
        StorageError: it can't be opened.
    """
    name = os.fspath(source)
    if name.startswith(PIPE):
        if not allow_pipe:
            raise UsageError(f"{name}: runs a command; pass allow_pipe=True if you trust where it came from")
        return decompressed(_buffered(_Pipe(name[len(PIPE) :])), name)
    try:
        if is_local(name):
            raw = open(path_of(name), "rb", buffering=_BUFFER)  # noqa: SIM115
        else:
            fs, path = filesystem(name, options)
            raw = fs.open(path, "rb")
        return decompressed(raw, name)
    except OSError as error:
        raise failure(name, error) from error


class _Pipe(io.RawIOBase):
    """What a shell command prints. A command that fails is an error at its end, not a short archive."""

    def __init__(self, command: str):
        self.name = PIPE + command
        # The caller passed allow_pipe=True, so the command is their own.
        self._process = subprocess.Popen(command, shell=True, stdout=subprocess.PIPE)  # nosec B602

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        assert self._process.stdout is not None
        got = os.readv(self._process.stdout.fileno(), [buffer])
        if not got and self._process.wait():
            raise StorageError(f"{self.name}: the command ended with status {self._process.returncode}")
        return got

    def close(self) -> None:
        if not self.closed and self._process.stdout is not None:
            self._process.stdout.close()
            self._process.wait()  # it ends by SIGPIPE if it has more to print
        super().close()


def decompressed(stream: BinaryIO, name: str) -> BinaryIO:
    """The stream, or what it holds compressed (`compression_of`), by its first bytes; a cut one just ends."""
    if not hasattr(stream, "peek"):
        stream = _buffered(cast(io.RawIOBase, stream))
    kind = compression_of(cast(io.BufferedReader, stream).peek(8))
    return stream if kind is None else _buffered(_Unpacked(stream, name, _UNPACKERS[kind](stream)))


def compression_of(head: bytes) -> str | None:
    """The compression of a file by its first bytes: gzip, zstd, bzip2 or xz."""
    return next((name for name, magic in _MAGIC.items() if head.startswith(magic)), None)


def _buffered(raw: io.RawIOBase) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(raw, _BUFFER))


def _gunzipped(stream: BinaryIO) -> Iterator[bytes]:
    """Pieces of what a gzip file holds; where it was cut, all there is, of which gzip.GzipFile loses some."""
    member = zlib.decompressobj(wbits=31)
    data = stream.read(_BUFFER)
    while data:
        yield member.decompress(data, _BUFFER)
        if member.eof:
            data = member.unused_data.lstrip(b"\0") or stream.read(_BUFFER)
            member = zlib.decompressobj(wbits=31)
        else:
            data = member.unconsumed_tail or stream.read(_BUFFER)


def _unzstd(stream: BinaryIO) -> Iterator[bytes]:
    import zstandard

    reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True, closefd=False)
    yield from iter(lambda: reader.read(_BUFFER), b"")


def _unpacked_by(make: Callable[[], Any]) -> Callable[[BinaryIO], Iterator[bytes]]:
    """A function that gives what a stream of bzip2 or xz holds, piece by piece."""

    def pieces(stream: BinaryIO) -> Iterator[bytes]:
        part = make()
        data = stream.read(_BUFFER)
        while data or not part.needs_input:
            yield part.decompress(data, _BUFFER)
            if part.eof:
                data = part.unused_data.lstrip(b"\0") or stream.read(_BUFFER)
                part = make()
            else:
                data = stream.read(_BUFFER) if part.needs_input else b""

    return pieces


_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd", "bzip2": b"BZh", "xz": b"\xfd7zXZ\0"}
_UNPACKERS: dict[str, Callable[[BinaryIO], Iterator[bytes]]] = {
    "gzip": _gunzipped,
    "zstd": _unzstd,
    "bzip2": _unpacked_by(bz2.BZ2Decompressor),
    "xz": _unpacked_by(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _MAX_DICTIONARY)),
}


class _Unpacked(io.RawIOBase):
    """A file of decompressed pieces; damage is an error that names it."""

    def __init__(self, stream: BinaryIO, name: str, pieces: Iterator[bytes]):
        self.name = name
        self._stream = stream
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            try:
                self._rest = memoryview(next(self._pieces))
            except StopIteration:
                return 0
            except LogloomError:
                raise
            except Exception as error:  # zlib.error and zstandard's have nothing else in common
                damage = DatasetError(f"{self.name}: damaged compression ({error})")
                raise fault_of(self.name, error) or damage from error
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        self._stream.close()
        super().close()


def stream_samples(
    stream: BinaryIO, name: str = "", allow_truncated: bool = False, max_bytes: int = 4 << 30
) -> Iterator[dict[str, Any]]:
    """The samples of an archive in their order: {"__key__": ..., ".jpg": bytes, ...}.

    Args:
        stream: at the beginning of an archive.
        name: for errors.
        allow_truncated: whether a cut archive ends without an error, after its last whole sample.
        max_bytes: a member larger than this is refused: archives may be bombs.

    Raises:
        DatasetError: damage, a cut, or members that are refused; names archive and offset.
        StorageError: the stream can't be read.
    """
    cursor = _StreamCursor(stream, name or str(getattr(stream, "name", "archive")))
    members = ((name, offset, cursor.payload(size, max_bytes)) for name, offset, size in walk(cursor))
    try:
        for key, sample in group(members, cursor.name):
            yield {"__key__": key} | {f".{suffix}": data for suffix, data in sample.items()}
    except TarCutShort:
        if not allow_truncated:
            raise
    except OSError as error:
        damage = DatasetError(f"{cursor.name}: at byte {cursor.position}: can't be read ({error})")
        raise fault_of(cursor.name, error) or damage from error


class _StreamCursor:
    """A cursor over a stream that can't go back."""

    def __init__(self, stream: BinaryIO, name: str):
        self.name = name
        self.position = 0
        self._stream = stream
        self._behind = 0  # bytes before `position` that are still to be read: they go with the next header

    def read(self, size: int) -> bytes:
        behind = self._behind
        if behind > BLOCK:
            behind = self._skip()
        self._behind = 0
        wanted = behind + size
        data = self._stream.read(wanted) if wanted <= _STEP else b""
        if len(data) < wanted:
            data = self._rest(data, wanted)
        if behind:
            data = data[behind:]
        self.position += len(data)
        return data

    def _skip(self) -> int:
        """Reads past whole steps; gives what is still behind, less than a block."""
        while self._behind > BLOCK:
            got = len(self._stream.read(min(self._behind, _STEP)))
            if not got:
                break
            self._behind -= got
        return self._behind

    def _rest(self, data: bytes, size: int) -> bytes:
        pieces, missing = [data], size - len(data)
        while missing and (piece := self._stream.read(min(missing, _STEP))):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def payload(self, size: int, max_bytes: int) -> bytes:
        if size > max_bytes:
            raise DatasetError(
                f"{self.name}: at byte {self.position}: a member of {size} bytes, the limit is "
                f"max_bytes={max_bytes}"
            )
        data = self.read(size)
        if len(data) < size:
            raise TarCutShort(f"{self.name}: at byte {self.position}: ends in a member; it was cut short")
        return data

    def skip_to(self, position: int) -> None:
        self._behind += position - self.position
        self.position = position
