"""Tar shards in Beam: `ReadFromTar` and `WriteToTar`, whose elements are blocks.

Here: the wiring, and joining the pieces of a shard.
Elsewhere: reading and writing themselves (reader, writer). This is the only module here that imports Beam.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam

from logloom.blocks import Block
from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.storage import Store, explained
from logloom.io.tar.headers import END
from logloom.io.tar.reader import TarReader
from logloom.io.tar.samples import key_before
from logloom.io.tar.writer import TarWriter
from logloom.schema import Schema

_PIECES = "tmp/pieces"


class ReadFromTar(beam.PTransform):
    """The rows of tar shards as blocks; each shard is read by one worker."""

    def __init__(
        self,
        uris: Sequence[str],
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
        super().__init__()
        self._uris = [os.fspath(uri) for uri in uris]
        self._arguments = (schema, columns, max_bytes, storage_options)

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "ListShards" >> beam.Create(self._uris)
            | "Spread" >> beam.Reshuffle()
            | "ReadBlocks" >> beam.FlatMap(_read_blocks, *self._arguments)
        )


def _read_blocks(
    uri: str,
    schema: Schema,
    columns: Sequence[str] | None,
    max_bytes: int,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[Block]:
    return TarReader(uri, schema, storage_options=storage_options).blocks(columns, max_bytes)


class WriteToTar(beam.PTransform):
    """Writes blocks to `<root>/<log_id>/<partition>/shard.tar` and gives what was written.

    No payload is shuffled: each block becomes a piece of its shard at once, and pieces are joined in row
    order. Gives {"uri", "log_id", "partition", "rows", "bytes"} for each shard; its bytes don't depend on how
    rows were cut into blocks.
    """

    def __init__(
        self,
        root: str,
        schema: Schema,
        ext: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self._store = Store.at(root, storage_options)
        self._schema = schema
        self._ext = dict(ext or {})

    def expand(self, blocks: Any) -> Any:
        return (
            blocks
            | "HasRows" >> beam.Filter(len)
            | "WritePieces" >> beam.Map(_write_piece, self._store, self._schema, self._ext)
            | "PiecesOfShards" >> beam.GroupByKey()
            | "JoinPieces" >> beam.Map(_join_pieces, self._store)
        )


def _write_piece(
    block: Block, store: Store, schema: Schema, ext: Mapping[str, str]
) -> tuple[tuple[str, str], tuple[int, int, int, int, str]]:
    """Writes one block; gives its shard, and (first row, rows, first and last stamp, name of the piece)."""
    shard = (block.log_id, block.partition)
    stamps = (int(block.timestamp[0]), int(block.timestamp[-1]))
    name = f"{_PIECES}/{digest_of(shard)[:32]}/{block.first_row:012d}-{len(block)}"
    with store.scratch() as folder:
        writer = TarWriter(folder / "piece", schema, ext)
        writer.append(block)
        writer.close(end=False)
        store.publish(folder, name, last="piece")
    return shard, (block.first_row, len(block), *stamps, name)


def _join_pieces(
    shard: tuple[tuple[str, str], Iterable[tuple[int, int, int, int, str]]], store: Store
) -> dict[str, Any]:
    (log_id, partition), pieces = shard
    ordered = sorted(set(pieces))
    rows, last = 0, None
    for first_row, count, first_stamp, last_stamp, _ in ordered:
        if first_row != rows or (last is not None and first_stamp <= last):
            raise DatasetError(f"{log_id} {partition}: a block at row {first_row}, row {rows} comes next")
        rows, last = rows + count, last_stamp
    name = f"{key_before(log_id)}{key_before(partition)}"[:-1]
    if not store.exists(f"{name}/shard.tar"):
        with store.scratch() as folder, explained(store.uri_of(name)):
            with (folder / "shard.tar").open("xb") as target:
                for *_, piece in ordered:
                    with store.fs.open(store.uri_of(f"{piece}/piece"), "rb") as source:
                        shutil.copyfileobj(source, target, 16 << 20)
                target.write(END)
            store.publish(folder, name, last="shard.tar")
    uri = store.uri_of(f"{name}/shard.tar")
    for *_, piece in ordered:
        if store.exists(f"{piece}/piece"):
            store.fs.rm(store.uri_of(piece), recursive=True)
    size = int(store.fs.size(uri))
    return {"uri": uri, "log_id": log_id, "partition": partition, "rows": rows, "bytes": size}
