"""Tables in Beam: `ReadFromTable` and `WriteToTable`, whose elements are blocks.

Elsewhere: the implementation that formats share (logloom.io.beam).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from logloom.durations import Time, nanoseconds_of
from logloom.errors import UsageError
from logloom.io.beam.read import ReadFrom
from logloom.io.beam.write import WriteTo
from logloom.io.formats.table.format import FORMAT, TableOptions
from logloom.io.formats.table.where import Where
from logloom.io.formats.table.write.write import Patterns
from logloom.io.storage.filesystems import absolute_uri
from logloom.query.where import all_of
from logloom.schema import Schema


class ReadFromTable(ReadFrom):
    """Reads a table as blocks, log by log in parallel; its rows must have log_id and timestamp."""

    def __init__(
        self,
        uri: str,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        max_bytes: int = 64 << 20,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """See `ReadFrom`.

        Args:
            where: a text, or tuples (column, operator, constant) that must all hold.

        Raises:
            UsageError: `where` is an expression of pyarrow, which only `read_index` takes.
        """
        if where is not None and not isinstance(where, str):
            if not isinstance(where, list | tuple):
                raise UsageError("ReadFromTable: where= accepts no expression of pyarrow; write it as a text")
            where = all_of(where).text
        super().__init__(uri, FORMAT, columns, max_bytes, storage_options, where=where)


class WriteToTable(WriteTo):
    """Writes blocks as one table (see `WriteTo`)."""

    def __init__(
        self,
        uri: str,
        schema: Schema,
        *,
        index: Patterns | None = None,
        groups: Mapping[str, Patterns] | None = None,
        reference: str | Sequence[str] | None = None,
        compress: str | Mapping[str, str] | None = None,
        max_gap: Time | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **how: Any,
    ):
        """See `write_table`.

        Args:
            schema: of the blocks.
            how: run_id, read_back, stale_after: see `WriteTo`.

        Raises:
            UsageError: a pattern matches nothing, or a column can't be in the index.
        """
        given = {"index": [index] if isinstance(index, str) else index, "groups": groups}
        given |= {"reference": reference, "compress": compress}
        options = TableOptions.model_validate({key: value for key, value in given.items() if value})
        options._max_gap = None if max_gap is None else nanoseconds_of(max_gap, "WriteToTable: max_gap")
        super().__init__(absolute_uri(uri), FORMAT, schema, options, storage_options=storage_options, **how)
