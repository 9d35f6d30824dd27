"""Writing a partition as one Parquet file.

Here: `ParquetWriter`, and the encoding of each column.
Elsewhere: the Arrow schema of rows (logloom.io.arrow.layout), which rows a row group has
(logloom.io.arrow.writer).

Values are compressed by zstd, images stored as they are. Pages have checksums, and an index for readers that
filter rows by their values.
"""

from __future__ import annotations

import itertools
import os
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logloom.io.arrow.layout import TIME, ArrowLayout
from logloom.io.arrow.writer import TableWriter


class ParquetWriter(TableWriter):
    """See `TableWriter`; groups are row groups."""

    def __init__(self, path: str | os.PathLike[str], layout: ArrowLayout, group_bytes: int):
        super().__init__(path, layout, group_bytes)
        self._file: pq.ParquetWriter | None = None

    def write(self, table: Any) -> None:
        if self._file is None:
            self._file = _opened(self.path, self.layout)
        self._file.write_table(table, row_group_size=len(table))

    def finish(self) -> None:
        if self._file is not None:
            self._file.close()


def _opened(path: pathlib.Path, layout: ArrowLayout) -> pq.ParquetWriter:
    """Open a file of the layout, with the encoding of each of its leaves."""
    images = {layout.stored(name) for name in layout.images}
    texts = {layout.stored(name) for name, ctype in layout.types.items() if ctype.kind == "string"}
    raw = {layout.stored(name) for name, ctype in layout.types.items() if ctype.kind == "bytes"}
    times = [layout.stored(name) for name in (TIME, *layout.schema.meta) if not name.endswith(".available")]
    leaves = _leaves(layout.arrow)
    of_column = [(column, leaf) for column, own in leaves.items() for leaf in own]
    return pq.ParquetWriter(
        str(path),
        layout.arrow,
        compression={leaf: "NONE" if column in images else "ZSTD" for column, leaf in of_column},
        use_dictionary=[leaf for column, leaf in of_column if column in texts],
        column_encoding=dict.fromkeys(times, "DELTA_BINARY_PACKED"),
        write_statistics=[leaf for column, leaf in of_column if column not in images | raw],
        write_page_index=True,
        write_page_checksum=True,
    )


def _leaves(arrow: Any) -> dict[str, list[str]]:
    """The paths of the leaves of each column."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, arrow):
        pass
    columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    paths = iter([columns.column(number).path for number in range(len(columns))])
    return {field.name: list(itertools.islice(paths, _num_leaves(field.type))) for field in arrow}


def _num_leaves(kind: Any) -> int:
    if pa.types.is_struct(kind):
        return sum(_num_leaves(one.type) for one in kind)
    return _num_leaves(kind.value_type) if pa.types.is_nested(kind) else 1
