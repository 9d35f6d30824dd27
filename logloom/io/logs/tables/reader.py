"""Tables as logs: each file `<topic>.parquet`, `.feather` or `.csv` is a topic, each row a message.

Here: their kind, which costs nothing to look up.
Elsewhere: the log (log), the files (files), columns as fields of messages (columns), which files are one
log (logloom.transforms.match).
"""

from __future__ import annotations

from collections.abc import Sequence

from logloom.io.logs.base import Log, OpenOptions

PARQUET, FEATHER = b"PAR1", b"ARROW1"
SUFFIXES = (".parquet", ".feather", ".csv")


class TablesKind:
    """Opens tables."""

    name = "tables"
    suffixes = SUFFIXES

    def matches(self, uri: str, head: bytes) -> bool:
        return head.startswith((PARQUET, FEATHER))

    def open(self, uris: Sequence[str], options: OpenOptions) -> Log:
        from logloom.io.logs.tables.log import TableLog  # Arrow takes a while to load

        return TableLog(uris, options)


KIND = TablesKind()
