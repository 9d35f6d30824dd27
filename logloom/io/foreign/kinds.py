"""The kinds of folders that can be opened, for training and to be converted.

Here: `kinds` and `kind_of`; and the kinds that are only read, never written: Parquet files, and Lance.
Elsewhere: what is written too says for itself how it is opened (logloom.io.units.Format).
"""

from __future__ import annotations

from logloom.io.braces import braceexpand
from logloom.io.folders import walk
from logloom.io.foreign.pieces import PieceReader
from logloom.io.storage import Store
from logloom.io.units import FolderKind, format_named, format_names


class _Lance(FolderKind):
    name = "lance"

    def recognises(self, store: Store) -> bool:
        return bool(store.names("_versions")) and not store.exists("spec.json")

    def pieces(self, store: Store) -> PieceReader:
        from logloom.io.lance import LanceReader

        return LanceReader(store)


class _Parquet(FolderKind):
    name = "parquet"
    is_generic = True

    def recognises(self, store: Store) -> bool:
        """Whether a folder holds Parquet files, in itself or in a folder of its own, or a URI names them."""
        from logloom.io.parquet import SUFFIXES

        if store.names():
            return bool(walk(store, SUFFIXES, depth=1))
        return braceexpand(store.uri)[0].lower().endswith(SUFFIXES)

    def pieces(self, store: Store) -> PieceReader:
        from logloom.io.parquet import ParquetReader

        return ParquetReader(store)


def kinds() -> dict[str, FolderKind]:
    """All kinds of folders that can be opened, by name, in the order in which a folder is looked at."""
    found: list[FolderKind] = [*map(format_named, format_names()), _Lance(), _Parquet()]
    return {form.kind or form.name: form for form in sorted(found, key=lambda form: form.is_generic)}


def kind_of(store: Store) -> FolderKind | None:
    """The kind of a folder, or of the files that a URI names; None where it is of none that is known."""
    return next((form for form in kinds().values() if form.recognises(store)), None)
