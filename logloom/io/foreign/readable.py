"""Folders that are only read, never written: those of Parquet files, and of Lance.

Elsewhere: what is written too says for itself how it is opened (logloom.io.units.Format).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logloom.errors import UsageError
from logloom.io.braces import braceexpand
from logloom.io.foreign.files import walk
from logloom.io.storage import Store
from logloom.io.units import Reader


@dataclass(frozen=True)
class ReadableKind:
    """See `FolderKind`."""

    name: str
    foreign: str
    kind: str = ""
    source: str = "logloom.datasets.sources.foreign"

    def units(self, store: Store) -> Sequence[Reader]:
        """It has none."""
        raise UsageError(f"{store.uri}: {self.name} has no units")


class _Lance(ReadableKind):
    is_generic = False

    def recognises(self, store: Store) -> bool:
        """Whether a folder is a Lance table."""
        return bool(store.names("_versions")) and not store.exists("spec.json")


class _Parquet(ReadableKind):
    is_generic = True

    def recognises(self, store: Store) -> bool:
        """Whether a folder holds Parquet files, in itself or in a folder of its own, or a URI names them."""
        from logloom.io.foreign.parquet import SUFFIXES

        if store.names():
            return bool(walk(store, SUFFIXES, depth=1))
        return braceexpand(store.uri)[0].lower().endswith(SUFFIXES)


LANCE = _Lance("lance", "logloom.io.foreign.lance:LanceReader")
PARQUET = _Parquet("parquet", "logloom.io.foreign.parquet:ParquetReader")
