"""Tar shards in Beam: `ReadFromTar` and `WriteToTar`, whose elements are blocks.

Here: joining the pieces of a shard.
Elsewhere: the wiring (logloom.io.beam), reading and writing themselves (reader, writer). The other modules
here do without Beam.
"""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from logloom.blocks import Block
from logloom.io.beam import ReadUnits, WriteUnits
from logloom.io.storage import Store
from logloom.io.tar.headers import END
from logloom.io.tar.reader import TarReader
from logloom.io.tar.samples import key_before
from logloom.io.tar.writer import TarWriter
from logloom.schema import Schema


class ReadFromTar(ReadUnits):
    """The rows of tar shards as blocks; each shard is read by one worker."""

    opener = TarReader


class WriteToTar(WriteUnits):
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
        super().__init__(root, _TarPieces(schema, dict(ext or {})), storage_options)


@dataclass(frozen=True)
class _TarPieces:
    """A piece is a tar without its end; see `Pieces`."""

    schema: Schema
    ext: Mapping[str, str]

    last_of_piece: ClassVar = "piece"
    last_of_unit: ClassVar = "shard.tar"

    def write(self, block: Block, folder: pathlib.Path) -> None:
        writer = TarWriter(folder / self.last_of_piece, self.schema, self.ext)
        writer.append(block)
        writer.close(end=False)

    def name_of(self, log_id: str, partition: str) -> str:
        return f"{key_before(log_id)}{key_before(partition)}"[:-1]

    def join(self, store: Store, pieces: Sequence[str], folder: pathlib.Path) -> None:
        with (folder / self.last_of_unit).open("xb") as target:
            for piece in pieces:
                with store.fs.open(store.fs_path(f"{piece}/{self.last_of_piece}"), "rb") as source:
                    shutil.copyfileobj(source, target, 16 << 20)
            target.write(END)

    def found(self, store: Store, name: str, rows: int) -> tuple[str, int, int]:
        uri = store.uri_of(f"{name}/{self.last_of_unit}")
        return uri, rows, int(store.fs.size(store.fs_path(f"{name}/{self.last_of_unit}")))
