"""Bags in Beam: `ReadFromBags` and `WriteToBags`, whose elements are blocks.

Here: the wiring, and joining the pieces of a folder.
Elsewhere: reading and writing themselves (row_reader, row_writer). This is the only module here that imports
Beam.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np

from logloom.blocks import Block
from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.bags.bag import BagReader, Generation
from logloom.io.bags.columns import types_of
from logloom.io.bags.dataset_writer import UnfinishedDataset
from logloom.io.bags.files import SPEC, open_folder
from logloom.io.bags.row_reader import BagsReader
from logloom.io.bags.row_writer import BagsWriter, append_refs
from logloom.io.storage import Store, explained
from logloom.schema import Schema

_PIECES = "tmp/pieces"
_STEP = 16 << 20


class ReadFromBags(beam.PTransform):
    """The rows of folders of bags as blocks; each folder is read by one worker."""

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
            uris: of folders that `schema` describes.
            columns: names or globs; all, ages and availabilities too, by default.
            max_bytes: about how much a block holds.
        """
        super().__init__()
        self._uris = [os.fspath(uri) for uri in uris]
        self._arguments = (schema, columns, max_bytes, storage_options)

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "ListFolders" >> beam.Create(self._uris)
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
    return BagsReader(uri, schema, storage_options=storage_options).blocks(columns, max_bytes)


class WriteToBags(beam.PTransform):
    """Writes blocks to `<root>/<log_id>/<partition>/`, a folder of bags, and gives what was written.

    No payload is shuffled: each block becomes a piece of its folder at once, and pieces are joined in row
    order. Gives {"uri", "log_id", "partition", "rows", "bytes"} for each folder, whose bytes don't depend on
    how rows were cut into blocks.
    """

    def __init__(
        self,
        root: str,
        schema: Schema,
        types: Mapping[str, str] | None = None,
        generation: Generation = 1,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            root: path or URI of a folder.
            types, generation: as for `BagsWriter`.
        """
        super().__init__()
        self._store = Store.at(root, storage_options)
        self._schema = schema
        self._spec = types_of(schema, types or {})
        self._types = dict(types or {})
        self._generation: Generation = generation

    def expand(self, blocks: Any) -> Any:
        return (
            blocks
            | "HasRows" >> beam.Filter(len)
            | "WritePieces" >> beam.Map(_write_piece, self._store, self._schema, self._types)
            | "PiecesOfFolders" >> beam.GroupByKey()
            | "JoinPieces" >> beam.Map(_join_pieces, self._store, self._spec, self._generation)
        )


def _write_piece(
    block: Block, store: Store, schema: Schema, types: Mapping[str, str]
) -> tuple[tuple[str, str], tuple[int, int, int, int, str]]:
    """Writes one block; gives its folder, and (first row, rows, first and last stamp, name of the piece)."""
    folder_key = (block.log_id, block.partition)
    stamps = (int(block.timestamp[0]), int(block.timestamp[-1]))
    name = f"{_PIECES}/{digest_of(folder_key)[:32]}/{block.first_row:012d}-{len(block)}"
    with store.scratch() as folder:
        writer = BagsWriter(folder, schema, types, generation=3)
        writer.append(block)
        writer.close()
        store.publish(folder, name, last=SPEC)
    return folder_key, (block.first_row, len(block), *stamps, name)


def _join_pieces(
    folder: tuple[tuple[str, str], Iterable[tuple[int, int, int, int, str]]],
    store: Store,
    spec: Mapping[str, str],
    generation: Generation,
) -> dict[str, Any]:
    (log_id, partition), pieces = folder
    ordered = sorted(set(pieces))
    rows, last = 0, None
    for first_row, count, first_stamp, last_stamp, _ in ordered:
        if first_row != rows or (last is not None and first_stamp <= last):
            raise DatasetError(f"{log_id} {partition}: a block at row {first_row}, row {rows} comes next")
        rows, last = rows + count, last_stamp
    name = f"{log_id}/{partition}"
    if not store.exists(f"{name}/{SPEC}"):
        with store.scratch() as scratch, explained(store.uri_of(name)):
            _join(store, [piece for *_, piece in ordered], scratch, spec, generation)
            store.publish(scratch, name, last=SPEC)
    for *_, piece in ordered:
        if store.exists(f"{piece}/{SPEC}"):
            store.fs.rm(store.uri_of(piece), recursive=True)
    uri = store.uri_of(name)
    found = BagsReader(uri, Schema({}), storage_options=store.options)
    size = sum(int(store.fs.size(store.uri_of(f"{name}/{file}"))) for file in store.names(name))
    return {"uri": uri, "log_id": log_id, "partition": partition, "rows": len(found), "bytes": size}


def _join(
    store: Store,
    pieces: Sequence[str],
    scratch: pathlib.Path,
    spec: Mapping[str, str],
    generation: Generation,
) -> None:
    joined = UnfinishedDataset(open_folder(scratch), spec, generation, scratch=scratch)
    for piece in pieces:
        count = 0
        for key, file in joined.files.items():
            source = open_folder(store.uri_of(piece), store.options)
            bag = BagReader(source.file(f"{key}.bag"), idx=source.file(f"{key}.idx"))
            count = len(bag)
            for start, stop in bag.stretches(_STEP):
                data, limits = bag.read_range(start, stop)
                file.extend([data], np.array(limits[1:], np.int64) - limits[:-1])
        if joined.refs is not None:
            append_refs(joined.refs, len(spec), count)
    joined.close()
