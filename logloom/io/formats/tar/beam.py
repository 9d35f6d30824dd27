"""Tar shards in Beam: `ReadFromTar` and `WriteToTar`, whose elements are blocks.

Elsewhere: the implementation that formats share (logloom.io.beam). The other modules here don't import Beam.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logloom.io.beam.read import ReadUnits
from logloom.io.beam.write import WriteTo
from logloom.io.formats.tar.format import FORMAT, TarOptions
from logloom.schema import Schema


class ReadFromTar(ReadUnits):
    """Reads the rows of tar shards as blocks."""

    form = FORMAT


class WriteToTar(WriteTo):
    """Writes blocks as a folder of shards, one for each partition: 000000.tar, … (see `WriteTo`)."""

    def __init__(
        self,
        root: str,
        schema: Schema,
        ext: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **how: Any,
    ):
        """
        Args:
            root: path or URI of a new or empty folder.
            ext: what a column's members are called, by column.
            how: run_id, read_back, stale_after: see `WriteTo`.

        Raises:
            UsageError: the columns or extensions don't fit.
        """
        options = TarOptions(ext=dict(ext or {}))
        super().__init__(root, FORMAT, schema, options, storage_options=storage_options, **how)
