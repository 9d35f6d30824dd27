"""Writing a partition as one data file of a Lance table.

Here: `LanceWriter`, and the names of data files.
Elsewhere: the Arrow schema of rows (logloom.io.arrow.layout), which rows are written together
(logloom.io.arrow.writer), the table (manifest).

pylance gives data files random names, writes metadata of a schema in any order, and cuts its input into pages
as it arrives. So names are made here, from log and partition; metadata is in the manifest alone; and rows are
passed in groups whose bounds depend on rows alone.
"""

from __future__ import annotations

import pathlib
from typing import Any

import pyarrow as pa

from logloom.digests import digest_of
from logloom.io.arrow.layout import ArrowLayout
from logloom.io.arrow.writer import TableWriter
from logloom.io.formats.interface import UnitContext
from logloom.io.formats.lance.pylance import lance

SUFFIX = ".lance"
FILE_VERSION = "2.1"  # of Lance's file format; the first that has null structs, which images are
_GROUP_BYTES = 4 << 20


class LanceWriter(TableWriter):
    """See `TableWriter`; `close` returns the file's name as `file`."""

    def __init__(self, folder: pathlib.Path, layout: ArrowLayout, context: UnitContext):
        super().__init__(folder / file_name(context), layout, _GROUP_BYTES)
        self._lance = lance()
        self._file: Any = None

    def write(self, table: Any) -> None:
        if self._file is None:
            file = self._lance.file
            plain = pa.schema([field.remove_metadata() for field in self.layout.arrow])
            self._file = file.LanceFileWriter(str(self.path), plain, version=FILE_VERSION)
        self._file.write_batch(_aligned(table))

    def finish(self) -> None:
        self._file.close()

    def close(self) -> dict[str, Any]:
        return {**super().close(), "file": self.path.name}


def file_name(context: UnitContext) -> str:
    """The name of a unit's data file, in the unit and in tables: Lance takes few characters but digits."""
    return digest_of([context.log_id, context.partition])[:32] + SUFFIX


def _aligned(table: Any) -> Any:
    """Copy a table to memory with the alignment of its types, which Lance requires."""
    table = table.replace_schema_metadata()
    table = table.cast(pa.schema([field.remove_metadata() for field in table.schema]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all().combine_chunks()
