"""Bags in Beam: `ReadFromBags` and `WriteToBags`, whose elements are blocks.

Here: joining the pieces of a folder.
Elsewhere: the wiring (logloom.io.beam), reading and writing themselves (row_reader, row_writer). The other
modules here do without Beam.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from logloom.blocks import Block
from logloom.io.bags.bag import BagReader, Generation
from logloom.io.bags.columns import types_of
from logloom.io.bags.dataset_writer import UnfinishedDataset
from logloom.io.bags.files import SPEC, open_folder
from logloom.io.bags.row_reader import BagsReader
from logloom.io.bags.row_writer import BagsWriter, append_refs
from logloom.io.beam import ReadUnits, WriteUnits
from logloom.io.storage import Store
from logloom.schema import Schema

_STEP = 16 << 20


class ReadFromBags(ReadUnits):
    """The rows of folders of bags as blocks; each folder is read by one worker."""

    opener = BagsReader


class WriteToBags(WriteUnits):
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
        chosen = dict(types or {})
        pieces = _BagsPieces(schema, chosen, types_of(schema, chosen), generation)
        super().__init__(root, pieces, storage_options)


@dataclass(frozen=True)
class _BagsPieces:
    """A piece is a folder of bags too; see `Pieces`."""

    schema: Schema
    types: Mapping[str, str]
    spec: Mapping[str, str]
    generation: Generation

    last_of_piece: ClassVar = SPEC
    last_of_unit: ClassVar = SPEC

    def write(self, block: Block, folder: pathlib.Path) -> None:
        writer = BagsWriter(folder, self.schema, self.types, generation=3)
        writer.append(block)
        writer.close()

    def name_of(self, log_id: str, partition: str) -> str:
        return f"{log_id}/{partition}"

    def join(self, store: Store, pieces: Sequence[str], folder: pathlib.Path) -> None:
        joined = UnfinishedDataset(open_folder(folder), self.spec, self.generation, scratch=folder)
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
                append_refs(joined.refs, len(self.spec), count)
        joined.close()

    def found(self, store: Store, name: str, rows: int) -> tuple[str, int, int]:
        uri = store.uri_of(name)
        reader = BagsReader(uri, Schema({}), storage_options=store.options)
        size = sum(int(store.fs.size(store.fs_path(f"{name}/{file}"))) for file in store.names(name))
        return uri, len(reader), size
