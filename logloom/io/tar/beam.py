"""Tar shards in Beam: `ReadFromTar` and `WriteToTar`, whose elements are blocks.

Elsewhere: what they do (logloom.io.beam). The other modules here do without Beam.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from logloom.io.beam import ReadFrom, WriteTo
from logloom.io.storage import Store
from logloom.io.tar.format import FORMAT, SHARD, TarOptions
from logloom.io.tar.reader import TarReader
from logloom.schema import Schema


class ReadFromTar(ReadFrom):
    """The rows of tar shards as blocks; each shard is read by one worker."""

    def __init__(
        self,
        uris: Sequence[str | os.PathLike[str]],
        schema: Schema,
        columns: Sequence[str] | None = None,
        max_bytes: int = 64 << 20,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            uris: of shards that `schema` describes.
            columns: names or globs; all, ages and availabilities too, by default.
            max_bytes: about how much a block holds.
        """
        units = functools.partial(_units, schema=schema)
        super().__init__(uris, FORMAT, columns, max_bytes, storage_options, units=units)


def _units(store: Store, schema: Schema) -> list[TarReader]:
    return [TarReader(store.uri, schema, storage_options=store.options)]


class WriteToTar(WriteTo):
    """Writes blocks to `<root>/<log_id>/<partition>/shard.tar` and gives what was written.

    No payload is shuffled. Gives {"uri", "log_id", "partition", "rows", "bytes"} for each shard; its bytes
    don't depend on how rows were cut into blocks.
    """

    def __init__(
        self,
        root: str,
        schema: Schema,
        ext: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            root: path or URI of a folder.
            ext: what a column's members are called, by column.

        Raises:
            UsageError: the columns or extensions don't fit.
        """
        options = TarOptions(ext=dict(ext or {}))
        super().__init__(root, FORMAT, schema, options, storage_options=storage_options, file=SHARD)
