"""Checks of files on opening, by the BLAKE3 digests in a version's entries.

Here: `KnownFiles`, part of the storage options with which a file is opened; the checks made there; and
`UncheckedWarning`.
Elsewhere: checksums that formats have themselves (their readers), what manifests and entries say
(logloom.io.catalog.manifest, logloom.io.catalog.entries).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import size_and_digest

# Logs are opened through this module, too, which needs nothing of datasets.
if TYPE_CHECKING:
    from logloom.io.catalog.entries import FileEntry

CHECK = "logloom.check"  # in storage options, beside the protocols


class UncheckedWarning(UserWarning):
    """Some of what a caller wants checked has no checksum, so damage can't be detected."""


class KnownFiles:
    """Files by URI; each is compared once in a process, when it is first opened.

    Pickles without results: another process compares again.
    """

    def __init__(self, find: Callable[[], Mapping[str, FileEntry]]):
        """
        Args:
            find: gives size and digest of the files by URI; a negative size where only the digest is known.
        """
        self._find = find
        self._files: Mapping[str, FileEntry] | None = None
        self._sound: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return (KnownFiles, (self._find,))

    def pending(self, uri: str) -> FileEntry | None:
        """Return the known digest of a file that wasn't compared yet."""
        if self._files is None:
            self._files = self._find()
        return None if uri in self._sound else self._files.get(uri)

    def compare(self, uri: str, known: FileEntry, size: int, digest: str) -> None:
        """
        Raises:
            DatasetError: the file isn't what it should be.
        """
        if known.size >= 0 and size != known.size:
            raise DatasetError(f"{uri}: damaged, it has {size} bytes instead of {known.size}; {_REMEDY}")
        if digest != known.digest:
            raise DatasetError(
                f"{uri}: damaged, its bytes don't match the digest of what was written; {_REMEDY}"
            )
        self._sound.add(uri)

    def uris(self) -> Sequence[str]:
        """List all files with a known digest."""
        self.pending("")
        return list(self._files or ())


_REMEDY = "copy it again from a good copy, or build the dataset again"


def is_checked(options: Mapping[str, Any] | None) -> bool:
    """Return whether files opened with these storage options are compared with checksums."""
    return CHECK in (options or {})


def with_check(
    options: Mapping[str, Any] | None, find: Callable[[], Mapping[str, FileEntry]] = dict
) -> dict[str, Any]:
    """Return storage options with which files are compared with their known digests."""
    return {**(options or {}), CHECK: KnownFiles(find)}


def without_check(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The storage options alone, for files that have checksums of their own."""
    return {name: own for name, own in (options or {}).items() if name != CHECK}


def check_file(uri: str, options: Mapping[str, Any] | None) -> None:
    """Compare a file that is about to be opened, if its digest is known and it wasn't compared before.

    Raises:
        DatasetError: it isn't what it should be. A missing one is left to its reader.
    """
    known: KnownFiles | None = (options or {}).get(CHECK)
    wanted = known.pending(uri) if known is not None else None
    if known is None or wanted is None:
        return
    try:
        size, digest = size_and_digest(uri, options)
    except MISSING:
        return
    known.compare(uri, wanted, size, digest)


def check_all(options: Mapping[str, Any] | None) -> None:
    """As `check_file`, of all files whose content is known: for formats that open theirs by themselves."""
    known: KnownFiles | None = (options or {}).get(CHECK)
    for uri in known.uris() if known is not None else ():
        check_file(uri, options)


def check_bytes(uri: str, data: bytes, options: Mapping[str, Any] | None) -> None:
    """As `check_file`, of a file that was read whole.

    Raises:
        DatasetError: it isn't what it should be.
    """
    known: KnownFiles | None = (options or {}).get(CHECK)
    wanted = known.pending(uri) if known is not None else None
    if known is not None and wanted is not None:
        known.compare(uri, wanted, len(data), blake3(data).hexdigest())
