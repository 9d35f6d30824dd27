"""Files of foreign datasets: listing them, and telling one content from another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.storage import Store, explained

_MIB = 1 << 20
MAX_FILES = 1_000_000


def content_of(store: Store, names: Sequence[str]) -> tuple[str, int]:
    """BLAKE3 over each file's size and its first and last MiB, in hex: as logs are told apart; and all bytes.

    Raises:
        DatasetError: a file is gone.
    """
    digest, total = blake3(), 0
    fs = store.fs
    for name in names:
        uri = store.uri_of(name)
        try:
            with explained(uri, (FileNotFoundError,)), fs.open(uri, "rb", **_opening(store)) as file:
                size = file.seek(0, 2)
                file.seek(0)
                digest.update(size.to_bytes(8, "little"))
                total += size
                digest.update(file.read(_MIB))
                file.seek(max(0, size - _MIB))
                digest.update(file.read(_MIB))
        except FileNotFoundError:
            raise DatasetError(f"{uri}: there is no such file") from None
    return digest.hexdigest(), total


def _opening(store: Store) -> dict[str, Any]:
    """How a file is opened whose ends alone are read."""
    return {} if store.local is not None else {"block_size": _MIB, "cache_type": "none"}


def walk(store: Store, suffixes: tuple[str, ...], depth: int = 8) -> list[str]:
    """Names of all files below a folder that end so, sorted; hidden ones and `_…` are passed over."""
    found: list[str] = []

    def visit(folder: str, left: int) -> None:
        for name in store.names(folder):
            path = f"{folder}/{name}" if folder else name
            if name.startswith((".", "_")):
                continue
            if name.lower().endswith(suffixes):
                found.append(path)
            elif left and store.fs.isdir(store.uri_of(path)):
                visit(path, left - 1)
            if len(found) > MAX_FILES:
                raise DatasetError(f"{store.uri}: more than {MAX_FILES:,} files")

    visit("", depth)
    return sorted(found)


def files_below(store: Store, folders: Sequence[str]) -> list[str]:
    """Names of all files in some folders and the folders in them, sorted."""
    found: list[str] = []
    for folder in folders:
        uri = store.uri_of(folder)
        root = store.fs._strip_protocol(uri).rstrip("/")
        found += [f"{folder}{path[len(root) :]}" for path in store.fs.find(uri)]
        if len(found) > MAX_FILES:
            raise DatasetError(f"{store.uri}: more than {MAX_FILES:,} files")
    return sorted(found)
