"""Beam transforms over tables; their elements are blocks.

Here: wiring, and the few lines that write single blocks.
Elsewhere: reading rows (logloom.io.tables.unit), writing and committing (logloom.io.tables.write). Builds
from recipes have their own wiring in logloom.pipelines, with units that outlive a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from logloom.blocks import Block
from logloom.errors import UsageError
from logloom.extras import beam_needed
from logloom.io.storage import absolute_uri
from logloom.io.tables.description import file_name
from logloom.io.tables.index import read_index
from logloom.io.tables.loader import row_loader
from logloom.io.tables.unit import BlockReader
from logloom.io.tables.versions import open_table
from logloom.io.tables.where import Where
from logloom.io.tables.write import Patterns, commit_table, write_part
from logloom.schema import Schema

with beam_needed():
    import apache_beam as beam


class ReadFromTable(beam.PTransform):
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
        super().__init__()
        self.uri = absolute_uri(uri)
        self.columns = columns
        self.where = where
        self.max_bytes = max_bytes
        self.storage_options = storage_options

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "NameTable" >> beam.Create([self.uri])
            | "ListLogs" >> beam.FlatMap(_logs, self.storage_options)
            | "SpreadLogs" >> beam.Reshuffle()
            | "ReadLog"
            >> beam.FlatMap(
                _read_log, self.uri, self.columns, self.where, self.max_bytes, self.storage_options
            )
        )


def _logs(uri: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    _, table = open_table(uri, storage_options)
    if table.keys != ("log_id", "timestamp"):
        raise UsageError(f"{uri}: its rows have no log_id and timestamp, so they make no blocks")
    return [log.log_id for log in table.logs]


def _read_log(
    log_id: str,
    uri: str,
    columns: Sequence[str] | None,
    where: Where | None,
    max_bytes: int,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[Block]:
    index = read_index(uri, [], where, logs=[log_id], storage_options=storage_options)
    if len(index):
        reader = BlockReader(row_loader(index, storage_options=storage_options))
        names = None if columns is None else reader.schema.select(columns)
        yield from reader.blocks(names, max_bytes)


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
    # A retried bundle writes its parts again; the second has the same name, for it has the same content.
    distinct = {entry["part"]: entry for entry in entries}
    commit_table(uri, distinct.values(), schema, max_gap=max_gap, **options)
    return uri
