"""Parquet files of a table's index: writing them, and reading them with checks.

Here: `read_file`, `read_part` and `write_file`; `decode_texts`, since text columns are read as dictionaries.
Elsewhere: the index of all logs in memory (index), names of files and columns
(logloom.io.formats.table.description).

Files have page checksums, are zstd-compressed, and are read by pandas, polars and DuckDB as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from logloom.errors import DatasetError
from logloom.io.arrow.files import arrow_file
from logloom.io.formats.table import description as d
from logloom.io.formats.table.blobs import HASH_BYTES
from logloom.io.formats.table.where import index_columns, mask
from logloom.io.storage.known_files import check_file
from logloom.query.where import Filter

ROWS_PER_GROUP = 1 << 16
HASH_TYPE = pa.binary(HASH_BYTES)


def decode_texts(column: pa.ChunkedArray) -> tuple[list[str], NDArray[Any]]:
    """Decode a dictionary column: the distinct texts, and the (N,) number of each row's text among them."""
    if not len(column):
        return [], np.empty(0, np.int32)
    merged = column.unify_dictionaries()
    codes = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in merged.chunks]
    return merged.chunk(0).dictionary.to_pylist(), np.concatenate(codes)


def is_text(name: str, table: d.Description) -> bool:
    """Whether an index or service column holds texts: dictionaries on disk, categories in memory."""
    group = d.group_field(name)
    return group[2] == "blob" if group else table.index.get(name) == "str"


def read_file(
    uri: str,
    names: Sequence[str],
    table: d.Description,
    storage_options: Mapping[str, Any] | None = None,
    where: Filter | pc.Expression | None = None,
) -> pa.Table:
    """Read columns of one log's index, of all rows or those that pass a filter; texts as dictionaries.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    looked_at = index_columns(where, table) if isinstance(where, Filter) else []
    texts = [name for name in {*names, *looked_at} if is_text(name, table)]
    reading = {"read_dictionary": texts, "page_checksum_verification": True}
    with parquet_source(uri, storage_options) as source:
        if isinstance(where, pc.Expression):
            rows = pq.read_table(source, columns=list(names), filters=where, use_threads=False, **reading)
        else:
            with pq.ParquetFile(source, **reading) as file:
                if where is None:
                    rows = file.read(columns=list(names), use_threads=False)
                else:
                    rows = _passing(file, list(names), where, looked_at, table)
        _check_types(rows, names, table)
        return rows


def _passing(
    file: pq.ParquetFile, names: list[str], where: Filter, looked_at: list[str], table: d.Description
) -> pa.Table:
    """Read the rows that pass; of row groups without any, only the filter's columns are read."""
    parts = [file.read_row_groups([], columns=names)]
    others = [name for name in names if name not in looked_at]
    for number in range(file.num_row_groups):
        seen = file.read_row_group(number, columns=looked_at, use_threads=False)
        _check_types(seen, looked_at, table)
        passed = mask(where, seen, table)
        if passed.any():
            rows = file.read_row_group(number, columns=others, use_threads=False)
            for name in set(names).intersection(looked_at):
                rows = rows.append_column(name, seen[name])
            parts.append(rows.select(parts[0].column_names).filter(passed))
    return pa.concat_tables(parts)


def _check_types(rows: pa.Table, names: Sequence[str], table: d.Description) -> None:
    for name in names:
        if name not in rows.column_names:
            raise KeyError(f"no column {name}")
        group, found = d.group_field(name), rows.schema.field(name).type
        if is_text(name, table):
            wanted = pa.dictionary(pa.int32(), pa.string())
        elif group and group[2] == "hash":
            wanted = HASH_TYPE
        else:
            wanted = pa.from_numpy_dtype(np.dtype(table.index.get(name, np.int64)))
        if found != wanted or rows[name].null_count:
            raise KeyError(f"column {name} is {found} with {rows[name].null_count} nulls, expected {wanted}")
        if is_text(name, table):
            rows[name].validate(full=True)  # that no row's number is beyond the dictionary


@contextlib.contextmanager
def parquet_source(uri: str, storage_options: Mapping[str, Any] | None) -> Iterator[Any]:
    """Open a file for pyarrow, whose errors in the block are converted to name the file.

    Raises:
        DatasetError: the file is missing or damaged.
        StorageError: it can't be read.
    """
    check_file(uri, storage_options)

    def damaged(reason: str) -> DatasetError:
        return DatasetError(f"{uri}: this index file is damaged ({reason}); build the table again")

    def missing(reason: str) -> DatasetError:
        return DatasetError(f"{uri}: this index file is missing; build the table again")

    with arrow_file(uri, storage_options, damaged, missing) as source:
        yield source


def read_part(uri: str, storage_options: Mapping[str, Any] | None = None) -> pa.Table:
    """Read all columns of a part's index rows, texts as dictionaries.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    with (
        parquet_source(uri, storage_options) as source,
        pq.ParquetFile(source, page_checksum_verification=True) as file,
    ):
        rows = file.read(use_threads=False)
        rows.validate(full=True)
        return rows


def write_file(path: str, rows: pa.Table) -> None:
    """Writes index rows as a local Parquet file; the same rows give the same bytes."""
    names = rows.column_names
    texts = [field.name for field in rows.schema if pa.types.is_dictionary(field.type)]
    hashes = [name for name in names if name.endswith(".hash")]
    deltas = [name for name in names if rows.schema.field(name).type == pa.int64()]
    pq.write_table(
        rows,
        path,
        row_group_size=ROWS_PER_GROUP,
        compression="zstd",
        use_dictionary=texts,
        column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in names if name not in hashes],
        write_page_checksum=True,
    )
