"""The digest of a manifest, in a file beside it, to detect accidental changes.

Here: `versions/00000007.blake3`, one line as b3sum prints and checks it.
Elsewhere: manifests, whose `parent_digest` is that of the version before (logloom.io.catalog.manifest).

It is written after the commit, so it may be missing: the next build adds it. Rewriting both files goes
unnoticed here; the digest in the next version's manifest reveals it.
"""

from __future__ import annotations

from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.storage.store import Store


def digest_file(number: int) -> str:
    return f"versions/{number:08d}.blake3"


def write_digest(store: Store, number: int, data: bytes) -> None:
    """Write the digest of a manifest that was just committed, or one that is missing."""
    line = _line(number, data)
    # Not created if absent: a version that was removed by hand may have left its own.
    if store.read_if_there(digest_file(number)) != line:
        store.replace(digest_file(number), line)


def check_digest(store: Store, number: int, data: bytes) -> bool:
    """Return whether a manifest has a digest beside it.

    Raises:
        DatasetError: it is that of other bytes, or damaged itself.
    """
    line, own = store.read_if_there(digest_file(number)), _line(number, data)
    if line is None:
        return False
    if line.split()[:1] != own.split()[:1]:
        raise DatasetError(
            f"{store.uri_of('versions')}/{number:08d}.json: damaged or changed, its bytes don't match their "
            f"digest in {digest_file(number)}. Take both files from a backup, or open another version; if "
            "you know that the manifest is right, remove the digest: the next build writes it again"
        )
    if line != own:
        raise DatasetError(
            f"{store.uri_of(digest_file(number))}: damaged, though its digest is the manifest's: remove "
            "this file, the next build writes it again"
        )
    return True


def _line(number: int, data: bytes) -> bytes:
    return f"{blake3(data).hexdigest()}  {number:08d}.json\n".encode()
