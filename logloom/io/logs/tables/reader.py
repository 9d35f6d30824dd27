"""Tables as a kind of log: one file per topic, one row per message.

Here: their kind, kept apart for fast imports.
Elsewhere: the log (log), the files and their columns (logloom.io.logs.table_files).
"""

from __future__ import annotations

from collections.abc import Sequence

from logloom.io.logs.bag_metadata import METADATA
from logloom.io.logs.interface import Log, OpenOptions
from logloom.io.logs.table_files import FEATHER, PARQUET, SUFFIXES


class TablesKind:
    """Opens tables."""

    name = "tables"
    suffixes = SUFFIXES
    is_generic = True

    def files_in(self, names: Sequence[str]) -> list[str]:
        """Return the tables in a folder, which are one log; none if it has a metadata.yaml."""
        return [] if METADATA in names else [name for name in names if name.endswith(SUFFIXES)]

    def matches(self, uri: str, head: bytes) -> bool:
        return head.startswith((PARQUET, FEATHER))

    def open(self, uris: Sequence[str], options: OpenOptions) -> Log:
        from logloom.io.logs.tables.log import TableLog  # Arrow takes a while to load

        return TableLog(uris, options)


KIND = TablesKind()
