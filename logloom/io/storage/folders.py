"""Files of plain folders: listing them, and a digest of their content."""

from __future__ import annotations

from collections.abc import Sequence

from blake3 import blake3

from logloom.errors import DatasetError, UsageError
from logloom.io.storage.braces import files_named
from logloom.io.storage.files import File
from logloom.io.storage.known_files import without_check
from logloom.io.storage.store import Store

_MIB = 1 << 20
MAX_FILES = 1_000_000


def files_of(store: Store, suffixes: tuple[str, ...]) -> tuple[Store, list[str]]:
    """Return the files of a dataset with a suffix: one at a URI, those in braces, or all below a folder.

    Returns:
        A folder, and the names of files in it; [""] where it is the file itself.

    Raises:
        UsageError: braces name something else, or files that share no folder.
    """
    uris = files_named(store.uri) if "{" in store.uri and not store.names() else [store.uri]
    if uris != [store.uri]:
        folder = store.uri[: store.uri.index("{")].rpartition("/")[0]
        if odd := next((uri for uri in uris if not uri.lower().endswith(suffixes)), None):
            raise UsageError(f"{store.uri}: names {odd!r}, which doesn't end in {', '.join(suffixes)}")
        if len(set(uris)) < len(uris):
            raise UsageError(f"{store.uri}: names a file twice")
        if not folder or folder.endswith(":/"):
            raise UsageError(f"{store.uri}: braces must follow a folder")
        return Store(folder, store.options), [uri[len(folder) + 1 :] for uri in uris]
    is_file = store.uri.lower().endswith(suffixes) and not store.names()
    return store, [""] if is_file else walk(store, suffixes)


def short_name(uri: str) -> str:
    """Return a dataset's name: the end of its URI, up to the first dot or brace."""
    name, brace, _ = uri.rstrip("/").rpartition("/")[2].partition(".")[0].partition("{")
    return (name.rstrip("-_") if brace else name) or "rows"


def content_of(store: Store, names: Sequence[str]) -> tuple[str, int]:
    """Return the BLAKE3 of each file's size, first and last MiB, in hex (as for logs), and the total size.

    Raises:
        DatasetError: a file is gone.
    """
    digest, total = blake3(), 0
    for name in names:
        file = File(store.uri_of(name), without_check(store.options))
        size, length = file.size, min(_MIB, file.size)
        digest.update(size.to_bytes(8, "little"))
        digest.update(file.read(0, length))
        digest.update(file.read(size - length, length))
        total += size
    return digest.hexdigest(), total


def walk(store: Store, suffixes: tuple[str, ...], depth: int = 8) -> list[str]:
    """List all files below a folder with a suffix, sorted, without hidden ones and `_…`."""
    found: list[str] = []

    def visit(folder: str, left: int) -> None:
        for name in store.names(folder):
            path = f"{folder}/{name}" if folder else name
            if name.startswith((".", "_")):
                continue
            if name.lower().endswith(suffixes):
                found.append(path)
            elif left and store.fs.isdir(store.fs_path(path)):
                visit(path, left - 1)
            if len(found) > MAX_FILES:
                raise DatasetError(f"{store.uri}: more than {MAX_FILES:,} files")

    visit("", depth)
    return sorted(found)


def files_below(store: Store, folders: Sequence[str]) -> list[str]:
    """List all files in and below some folders, sorted."""
    found: list[str] = []
    for folder in folders:
        uri = store.fs_path(folder)
        root = store.fs._strip_protocol(uri).rstrip("/")
        found += [f"{folder}{path[len(root) :]}" for path in store.fs.find(uri)]
        if len(found) > MAX_FILES:
            raise DatasetError(f"{store.uri}: more than {MAX_FILES:,} files")
    return sorted(found)
