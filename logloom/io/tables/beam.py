"""Beam transforms over tables; their elements are blocks.

Here: wiring, and the few lines that write single blocks.
Elsewhere: reading rows (logloom.io.tables.unit), writing and committing (logloom.io.tables.write). Builds
from recipes have their own wiring in logloom.pipelines, with units that outlive a job.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from logloom.blocks import Block
from logloom.extras import beam_needed
from logloom.io.beam import ReadFrom
from logloom.io.filesystems import absolute_uri
from logloom.io.tables.description import file_name
from logloom.io.tables.format import FORMAT
from logloom.io.tables.source import TableSource
from logloom.io.tables.where import Where
from logloom.io.tables.write import Patterns, commit_table, write_part
from logloom.schema import Schema

with beam_needed():
    import apache_beam as beam


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
        """See `read_index` for `where`.

        Args:
            columns: names or globs; None is all columns, ages and availabilities included.
            max_bytes: of a block, about.
        """
        rows = functools.partial(TableSource, where=where)
        super().__init__(absolute_uri(uri), FORMAT, columns, max_bytes, storage_options, rows=rows)


class WriteToTable(beam.PTransform):
    """Writes blocks as one table and gives its URI, once it is whole.

    Each block is written where it is, as a part of its own; none crosses a shuffle. Blocks may come in any
    order, and equal blocks give equal bytes.
    """

    def __init__(
        self,
        uri: str,
        schema: Schema,
        *,
        index: Patterns | None = None,
        groups: Mapping[str, Patterns] | None = None,
        reference: str | Sequence[str] | None = None,
        compress: str | Mapping[str, str] | None = None,
        max_gap: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """See `write_table`.

        Args:
            schema: of the blocks.
        """
        super().__init__()
        self.uri = absolute_uri(uri)
        self.schema = schema
        self.options = {
            "index": index,
            "groups": groups,
            "reference": reference,
            "compress": compress,
            "storage_options": storage_options,
        }
        self.max_gap = max_gap

    def expand(self, blocks: Any) -> Any:
        parts = blocks | "WritePart" >> beam.Map(_write_block, self.uri, self.schema, self.options)
        gathered = parts | "GatherParts" >> beam.CombineGlobally(beam.combiners.ToListCombineFn())
        return gathered | "CommitTable" >> beam.Map(
            _commit, self.uri, self.schema, self.options, self.max_gap
        )


def _write_block(block: Block, uri: str, schema: Schema, options: Mapping[str, Any]) -> dict[str, Any]:
    name = f"{file_name(block.log_id)}~{file_name(block.partition)}~{block.first_row:012d}"
    return write_part(uri, [block], name, schema, **options)


def _commit(
    entries: Iterable[Mapping[str, Any]],
    uri: str,
    schema: Schema,
    options: Mapping[str, Any],
    max_gap: int | None,
) -> str:
    commit_table(uri, entries, schema, max_gap=max_gap, **options)
    return uri
