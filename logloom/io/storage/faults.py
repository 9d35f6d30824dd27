"""Faults of disks, networks and stores, as errors distinct from damage.

Here: `storage_error` words them; `fault_of` separates them from damage where a library read the file;
`MISSING` are the errors of a file that doesn't exist.
Elsewhere: retrying requests (logloom.io.storage.remote.retries). This module imports no file system.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.io.storage.remote import retries
from logloom.uris import host_of

MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""The errors of reading a file that doesn't exist."""
PARTS_WAY_OUT = (
    "serve it with one that serves ranges (such as nginx, Apache or Caddy, not `python -m http.server`), "
    "or copy the file here first"
)
_REASONS = {
    errno.ENOSPC: "the disk is full: free some space and run this again, what a build finished is kept",
    errno.EDQUOT: "the quota is used up: free some space and run this again, what a build finished is kept",
    errno.EFBIG: "a file would be larger than this disk or the process may have (ulimit -f)",
    errno.EROFS: "it is read-only",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
}
# Of a missing file, and of an impossible offset, which damage can cause.
_OF_FILES = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL})


class ArchiveError(OSError):
    """An archive is missing or damaged; readers convert this to an error about their log or dataset."""


def storage_error(what: str, error: BaseException) -> LogloomError:
    """Return the StorageError for a disk or a store, with a remedy; for a damaged archive a DatasetError.

    Args:
        what: could not be read or written: a URI, or more words.
    """
    if isinstance(error, ArchiveError):
        return DatasetError(f"{what}: {error}")
    if isinstance(error, OSError):
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error) or type(error).__name__)
    else:
        reason = f"{type(error).__name__}: {error}"
    return StorageError(f"{what}: {reason}")


def fault_of(what: str, error: BaseException) -> LogloomError | None:
    """Return the StorageError for a library's error about a file; None if it is about the file's content.

    Libraries such as Arrow raise OSErrors of both kinds; only those of the system have a number.

    Args:
        what: could not be read: a URI, or more words.
    """
    if isinstance(error, StorageError):
        return error
    is_fault = isinstance(error, OSError) and error.errno and error.errno not in _OF_FILES
    return storage_error(what, error) if is_fault else None


def unsized(uri: str) -> retries.UnfitServerError:
    """Return the error for a file whose size its server doesn't report."""
    return retries.UnfitServerError(
        f"the server at {host_of(uri)} doesn't report the size of the file (it sends no Content-Length, or "
        f"compresses its answers), so that no part of it can be read; {PARTS_WAY_OUT}"
    )


def size_in(info: Mapping[str, Any], uri: str) -> int:
    """The bytes of a file as a file system describes it.

    Raises:
        StorageError: it doesn't know.
    """
    if info.get("size") is None:
        raise storage_error(uri, unsized(uri))
    return int(info["size"])
