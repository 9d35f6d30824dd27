"""Verification of a table: each indexed chunk exists and is unchanged.

Here: `verify`.
Elsewhere: comparing a dataset with its logs (logloom.pipelines).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from blake3 import blake3

from logloom.cpus import available_cpus
from logloom.errors import DatasetError
from logloom.io.formats.table.blobs import chunk_hash, unpacker
from logloom.io.formats.table.chunks import Layout
from logloom.io.formats.table.description import Description, LogRows, part_of
from logloom.io.formats.table.index.index import StoredLog, read_log
from logloom.io.formats.table.read.range_reader import RangeReader
from logloom.io.formats.table.versions import open_table
from logloom.io.storage.store import Store
from logloom.io.storage.threads import in_threads

_BATCH = 64 << 20


def verify(
    uri: str, *, threads: int | None = None, storage_options: Mapping[str, Any] | None = None
) -> list[str]:
    """Read a whole table, its index and every chunk, in referenced tables too.

    Args:
        uri: of the table.
        threads: logs verified at a time; None is one per core.
        storage_options: fsspec options by protocol.

    Returns:
        The problems, a line for each chunk or file, naming table, part, columns and row; empty if there are
        none.

    Raises:
        DatasetError: there is no table, or table.json itself is damaged.

    Examples:
        >>> verify("sensors")
        []
    """
    root, table = open_table(uri, storage_options)

    def damage(log: LogRows) -> list[str]:
        return list(_damage_of_log(root, table, log, storage_options))

    return [line for lines in in_threads(damage, table.logs, threads or available_cpus()) for line in lines]


def _damage_of_log(
    root: str, table: Description, log: LogRows, storage_options: Mapping[str, Any] | None
) -> Iterator[str]:
    try:
        if log.digest and blake3(Store.at(root, storage_options).read(log.file)).hexdigest() != log.digest:
            yield f"{root}/{log.file}: this index file doesn't match its digest; build the table again"
        stored = read_log(
            f"{root}/{log.file}", table, list(table.index), hashes=True, storage_options=storage_options
        )
    except FileNotFoundError:
        yield f"{root}/{log.file}: this index file is missing; build the table again"
        return
    except DatasetError as error:
        yield str(error)
        return
    if stored.rows != log.rows:
        yield f"{stored.uri}: {stored.rows} rows, table.json has {log.rows}"
    reader = RangeReader(storage_options, threads=1)
    for group in table.groups:
        yield from _damage_of_group(root, table, stored, group, reader)


def _damage_of_group(
    root: str, table: Description, stored: StoredLog, group: str, reader: RangeReader
) -> Iterator[str]:
    blobs, codes = stored.blobs[group]
    places, hashes = stored.places[group], stored.hashes[group]
    columns = {name: table.schema.all[name] for name in table.groups[group]}
    decode = Layout(columns).decoder({name: name for name in columns})
    codec = table.codecs.get(group)
    unpack = unpacker(codec, table.longest[group]) if codec else None
    files = [reader.number_of(blob) for blob in blobs]
    for rows in _batches(places[:, 1], np.lexsort((places[:, 0], codes))):
        ranges = [(files[codes[row]], *places[row].tolist()) for row in rows]
        for row, range_, data in zip(rows, ranges, _read(reader, ranges), strict=True):
            where = f"{root}: part {part_of(blobs[codes[row]])}, group {group} ({', '.join(columns)})"
            where += f", row {row} of log {stored.uri.rpartition('/')[2].removesuffix('.parquet')}"
            if isinstance(data, DatasetError):
                yield f"{where}: {data}"
            elif chunk_hash((data.data,)) != hashes[row]:
                yield f"{where}: bytes {range_[1]} to {range_[1] + range_[2]} don't match their hash"
            else:
                try:
                    decode(unpack(data) if unpack else data, {})
                except DatasetError as error:
                    yield f"{where}: {error}"


def _batches(lengths: Any, order: Any) -> Iterator[list[int]]:
    """Yield rows in the order of their chunks, some bytes at a time."""
    batch: list[int] = []
    size = 0
    for row in order.tolist():
        batch.append(row)
        size += int(lengths[row])
        if size > _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _read(reader: RangeReader, ranges: Sequence[tuple[int, int, int]]) -> Sequence[Any]:
    """Read the bytes of each range, or return the error of reading it."""
    try:
        return reader.read_all(ranges)
    except DatasetError:
        found: list[Any] = []
        for one in ranges:
            try:
                found.append(reader.read(*one))
            except DatasetError as error:
                found.append(error)
        return found
