"""Samples of tar shards that are opened without a schema.

Shards of other tools give bytes by suffix, as the webdataset package does; those that logloom wrote give
rows, with the types that shards record: integers in meta.json are int64, floats are float64. Conversions,
which need types, read the samples of both as `RawRows`.
Elsewhere: the columns that members become then (webdataset).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.inference import type_of
from logloom.io.formats.tar.index import ShardIndex
from logloom.io.formats.tar.npy import read_npy
from logloom.io.formats.tar.reader import TarReader
from logloom.io.formats.tar.sample_json import own_meta
from logloom.io.formats.tar.samples import META, column_of, parse_key
from logloom.io.formats.tar.stream import SUFFIXES, open_stream, stream_samples
from logloom.io.formats.tar.webdataset import KEY, batch_of, forms_of, is_meta, notes_of, row_of
from logloom.io.rows.batches import Batch, stacked_rows
from logloom.io.rows.inference.files import Batch as RawBatch
from logloom.io.rows.inference.files import DatasetPiece, RawRows
from logloom.io.rows.log_ranges import Ints, Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.braces import braceexpand
from logloom.io.storage.filesystems import file_name_of
from logloom.io.storage.folders import content_of, files_of
from logloom.io.storage.store import Store
from logloom.schema import BYTES, STRING, ColumnType, Schema
from logloom.text import some_of

_SUFFIX = re.compile(f"({'|'.join(map(re.escape, SUFFIXES))})$", re.IGNORECASE)


def open_shards(store: Store) -> RowSource:
    """The shards in a folder, or those that a URI names; the first sample shows whether logloom wrote them.

    Raises:
        DatasetError: a shard is damaged.
    """
    uris = [store.uri_of(name) for name in store.names() if name.lower().endswith(SUFFIXES)]
    uris = uris or braceexpand(store.uri)
    shards = ShardsSource(store.uri, uris, store.options)
    if len(shards):
        first = shards.reader.row(0, (META,))
        if META in first and own_meta(first[KEY], first[META]) is not None:
            return WrittenShardsSource(store.uri, uris, store.options)
    return shards


def find_shards(store: Store) -> ShardsSource:
    """The shards in a folder and those below it, or those that a URI names, for a conversion.

    Raises:
        DatasetError: there is no shard.
    """
    folder, names = files_of(store, SUFFIXES)
    if not names:
        raise DatasetError(f"{store.uri}: no shards ({', '.join(SUFFIXES)})")
    return ShardsSource(store.uri, [folder.uri_of(name) for name in names], folder.options)


class ShardsSource(RowSource, RawRows):
    """A row is {"__key__": "098953", "jpg": bytes, …}; a shard is a log, called by its file's name.

    A piece is a shard, too.
    """

    kind = "webdataset"
    has_stamps = False
    unknown = "what tar shards hold, whose headers alone have checksums"

    def __init__(self, place: str, uris: Sequence[str], storage_options: Mapping[str, Any]):
        """Opens nothing yet.

        Args:
            uris: of the shards, in row order.
        """
        self.place = place
        self._uris, self._storage = list(uris), storage_options

    @cached_property
    def schema(self) -> Schema:
        return Schema(dict.fromkeys(self._suffixes, BYTES))

    @cached_property
    def _suffixes(self) -> list[str]:
        return sorted({suffix for index in self._indices() for layout in index.layouts for suffix in layout})

    def _indices(self) -> list[ShardIndex]:
        return self.reader.indices

    @cached_property
    def stretches(self) -> Stretches:
        names = [_SUFFIX.sub("", file_name_of(uri)) for uri in self._uris]
        return Stretches.of_logs(names, [len(index) for index in self._indices()])

    @cached_property
    def stamps(self) -> Ints | None:
        return None

    @cached_property
    def small(self) -> Mapping[str, Any]:
        return {"key": np.array([key for index in self._indices() for key in index.keys], object)}

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        return self.reader.raw_rows(positions.tolist(), names)

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        return stacked_rows(self.rows(positions, names), self.schema.all, self.place, positions)

    @cached_property
    def reader(self) -> TarReader:
        return TarReader(self._uris, storage_options=self._storage)

    # --- for conversions --------------------------------------------------------------------------------

    def _samples(self, uri: str) -> Iterator[dict[str, Any]]:
        with open_stream(uri, options=self._storage) as stream:
            yield from stream_samples(stream, uri)

    def names(self) -> Sequence[str]:
        """See `RawRows.names`: of the first sample."""
        uri = self._uris[0]
        for sample in self._samples(uri):
            row = row_of(sample, uri, None)
            return [name for name in row if not is_meta(name, row)]
        raise DatasetError(f"{uri}: no samples")

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        return [DatasetPiece(uri, uri, *content_of(Store(uri, self._storage), [""])) for uri in self._uris]

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[RawBatch]:
        rows: list[dict[str, Any]] = []
        size = 0
        for sample in self._samples(piece.where):
            row = row_of(sample, piece.place, names)
            if rows and row.keys() != rows[0].keys():
                odd = some_of(sorted(row.keys() ^ rows[0].keys()))
                raise DatasetError(
                    f"{piece.place}: sample {sample[KEY]} has other members than those before ({odd})"
                )
            rows.append(row)
            size += sum(len(data) for data in sample.values())
            if size >= max_bytes:
                yield batch_of(rows)
                rows, size = [], 0
        if rows:
            yield batch_of(rows)

    @property
    def notes(self) -> tuple[str, ...]:
        """See `RawRows.notes`: by the first sample."""
        return tuple(notes_of(next(self._samples(self._uris[0]), {})))

    def forms(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `RawRows.forms`: by the first sample."""
        found = forms_of(next(self._samples(self._uris[0]), {}))
        return {name: form for name, form in found.items() if name in names}


class WrittenShardsSource(ShardsSource):
    """Rows of shards that logloom wrote: log_id and timestamp, small values, decoded arrays, and bytes."""

    has_stamps = True

    @cached_property
    def _members(self) -> dict[str, str]:
        """The suffix of each column that has a member of its own."""
        return {column_of(suffix): suffix for suffix in self._suffixes if suffix != META}

    @cached_property
    def schema(self) -> Schema:
        first = self.reader.row(0, (META,))
        meta = own_meta(first[KEY], first[META]) or {}
        types = {
            name: _small_type(value) for name, value in meta.items() if name not in ("log_id", "timestamp")
        }
        for name, suffix in self._members.items():
            types[name] = self._member_type(suffix)
        sampled = tuple(name for name in types if {f"{name}.age", f"{name}.available"} <= types.keys())
        own = {f"{name}.{part}" for name in sampled for part in ("age", "available")}
        return Schema({name: ctype for name, ctype in types.items() if name not in own}, sampled)

    def _member_type(self, suffix: str) -> ColumnType:
        if not suffix.endswith(".npy"):
            return BYTES
        sizes = np.concatenate([_sizes_of(index, suffix) for index in self._indices()])
        present = np.flatnonzero(sizes >= 0)  # arrays of one size have one shape
        low, high = (int(present[place]) for place in (sizes[present].argmin(), sizes[present].argmax()))
        name = column_of(suffix)
        found = type_of(*(self._array(self.reader.row(row, (suffix,)), name, suffix) for row in (low, high)))
        if found is None:
            raise DatasetError(f"{self.place}: samples {low} and {high} differ in the type of {name}")
        return found

    @cached_property
    def _keys_of_rows(self) -> list[tuple[str, int]]:
        return [
            parse_key(key, uri)
            for uri, index in zip(self._uris, self._indices(), strict=True)
            for key in index.keys
        ]

    @cached_property
    def stretches(self) -> Stretches:
        return Stretches.of_rows([log_id for log_id, _ in self._keys_of_rows])

    @cached_property
    def stamps(self) -> Ints | None:
        return np.array([stamp for _, stamp in self._keys_of_rows], np.int64)

    @property
    def small(self) -> Mapping[str, Any]:
        return {}

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        wanted = sorted({self._members.get(name, META) for name in names})
        samples = self.reader.raw_rows(positions.tolist(), wanted)
        return [self._row(*pair, names) for pair in zip(positions.tolist(), samples, strict=True)]

    def _row(self, position: int, sample: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        log_id, stamp = self._keys_of_rows[position]
        meta = own_meta(sample[KEY], sample[META]) if META in sample else None
        row: dict[str, Any] = {"log_id": log_id, "timestamp": np.int64(stamp)}
        for name in names:
            suffix = self._members.get(name, META)
            if suffix not in sample or (suffix == META and name not in (meta or {})):
                raise DatasetError(f"{self.place}: sample {sample[KEY]} lacks {name}")
            if suffix == META:
                row[name] = self._small_value(sample[KEY], name, (meta or {})[name])
            else:
                row[name] = self._value(sample, name, suffix)
        return row

    def _small_value(self, key: str, name: str, value: Any) -> Any:
        ctype, found = self.schema.all[name], _small_type(value)
        if value is not None and (found.kind, found.dtype) == (ctype.kind, ctype.dtype):
            return value
        raise DatasetError(f"{self.place}: {name} of sample {key} is {str(value)[:80]}, no {ctype}")

    def _value(self, sample: Mapping[str, Any], name: str, suffix: str) -> Any:
        if not suffix.endswith(".npy"):
            return sample[suffix]
        array, ctype = self._array(sample, name, suffix), self.schema.columns[name]
        if array.dtype != ctype.dtype or array.ndim != len(ctype.shape):
            shape = f"{array.dtype}{list(array.shape)}"
            raise DatasetError(f"{self.place}: {name} of sample {sample[KEY]} is {shape}, others {ctype}")
        return array

    def _array(self, sample: Mapping[str, Any], name: str, suffix: str) -> Array:
        try:
            return read_npy(np.frombuffer(sample[suffix], np.uint8))
        except ValueError as error:
            raise DatasetError(f"{self.place}: {name} of sample {sample[KEY]}: {error}") from error


def _small_type(value: Any) -> ColumnType:
    return ColumnType(value.dtype) if isinstance(value, np.generic) else STRING


def _sizes_of(index: ShardIndex, suffix: str) -> Ints:
    """(N,) bytes of each sample's member; -1 where there is none."""
    sizes = np.full(len(index), -1, np.int64)
    for number, layout in enumerate(index.layouts):
        if suffix in layout:
            rows = np.flatnonzero(index.layout == number)
            sizes[rows] = index.sizes[index.starts[rows] + layout.index(suffix)]
    return sizes
