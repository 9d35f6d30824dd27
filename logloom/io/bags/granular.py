"""Folders of bags that granular wrote, one dataset or many as shards: a row for each datapoint.

Here: which columns their types become. utf8 is text; int, i64 and u64 are numbers; arrays are what they are;
a tree of arrays is structured; images, videos, msgpack and types of one's own stay bytes as they lie there.
Sequences of arrays, numbers and text are ragged columns.
Elsewhere: reading bags (dataset_reader), datapoints for training (source).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError
from logloom.io.bags.codecs import decode_int, decode_msgpack, decode_tree, decode_utf8, decoders
from logloom.io.bags.columns import KINDS_OF_BYTES, META
from logloom.io.bags.dataset_reader import DatasetReader
from logloom.io.bags.files import SPEC, open_folder
from logloom.io.bags.spec import is_sequence, read_spec
from logloom.io.folders import content_of
from logloom.io.pieces import Batch, DatasetPiece
from logloom.io.survey import RawColumn
from logloom.io.surveyed import SurveyedSource

_PIECE_BYTES = 256 << 20


class GranularSource(SurveyedSource):
    """See `SurveyedSource`."""

    kind = "granular"

    def find(self) -> None:
        """
        Raises:
            DatasetError: there is no dataset, or something else beside its shards.
        """
        store = self._store
        self._folders = [""] if store.exists(SPEC) else store.names()
        for number, name in enumerate(self._folders):
            if name not in ("", f"{number:06d}"):
                raise DatasetError(f"{store.uri}: {name!r} is no shard, or one before it is missing")
        if not self._folders:
            raise DatasetError(f"{store.uri}: no dataset of bags")

    @functools.cached_property
    def _spec(self) -> dict[str, str]:
        return read_spec(open_folder(self._store.uri_of(self._folders[0]), self._store.options))

    @property
    def _is_ours(self) -> bool:
        """Whether `meta` holds ages and availabilities, as in bags that logloom wrote."""
        said = [self._spec.get(key) for key in (META, "log_id", "timestamp")]
        return said == ["msgpack", "utf8", "i64"]

    def names(self) -> Sequence[str]:
        """The keys."""
        return [key for key in self._spec if not (key == META and self._is_ours)]

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """Ranges of datapoints of a shard."""
        found = []
        for folder in self._folders:
            uri = self._store.uri_of(folder)
            reader = self._shard(folder)
            if reader.spec != self._spec:
                raise DatasetError(f"{uri}: has another spec than {self._folders[0]}")
            names = [f"{folder}/{name}" if folder else name for name in self._store.names(folder)]
            content, size = content_of(self._store, names)
            step = max(1, _PIECE_BYTES * len(reader) // max(1, reader.size))
            for start in range(0, len(reader), step):
                stop = min(start + step, len(reader))
                place = f"{uri}: datapoints {start} to {stop}"
                share = size * (stop - start) // len(reader)
                found.append(DatasetPiece(place, (folder, start, stop), content, share))
        return found

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        """See `SurveyedSource.batches`."""
        folder, start, stop = piece.where
        reader = self._shard(folder)
        keys = list(self._spec) if names is None else [key for key in self._spec if key in {*names, META}]
        step = max(1, max_bytes * len(reader) // max(1, reader.size))
        for first in range(start, stop, step):
            last = min(first + step, stop)
            columns = self._datapoints(reader, keys, first, last)
            metas = columns.pop(META) if self._is_ours and META in columns else None
            batch = {key: self._raw(key, values, piece.place) for key, values in columns.items()}
            yield batch if metas is None else _with_meta(batch, metas, piece.place)

    def forms(self, names: Sequence[str]) -> Mapping[str, str]:
        """Types whose bytes are kept."""
        return {key: name for key, name in self._spec.items() if key in names and name in KINDS_OF_BYTES}

    def _shard(self, folder: str) -> DatasetReader:
        types = {name.removesuffix("[]") for name in self._spec.values()}
        chosen = {name: _DECODERS.get(name, bytes) for name in types}
        return DatasetReader(self._store.uri_of(folder), chosen, storage_options=self._store.options)

    def _datapoints(
        self, reader: DatasetReader, keys: list[str], first: int, last: int
    ) -> dict[str, list[Any]]:
        if not any(map(is_sequence, self._spec.values())):
            return reader[first:last, keys]
        rows = [reader[number, keys] for number in range(first, last)]
        return {key: [row[key] for row in rows] for key in keys}

    def _raw(self, key: str, values: list[Any], place: str) -> RawColumn:
        type_name = self._spec[key]
        base = type_name.removesuffix("[]")
        try:
            if is_sequence(type_name):
                return RawColumn([_sequence(base, row) for row in values], is_sequence=True)
            if base in _NUMBERS:
                return RawColumn(np.array(values, _NUMBERS[base]))
        except (ValueError, OverflowError) as error:
            raise DatasetError(f"{place}: {key}: {error}; leave it out by --columns") from error
        return RawColumn(values)


_NUMBERS = {"int": "<i8", "i64": "<i8", "u64": "<u8"}


def _sequence(base: str, row: list[Any]) -> Array | None:
    """A row's sequence as one array; None for an empty one."""
    if not row:
        return None
    if base in _NUMBERS:
        return np.array(row, _NUMBERS[base])
    if base == "utf8":
        if any(text.endswith("\0") for text in row):
            raise ValueError("text that ends in NUL, which an array of text would lose")
        return np.array(row, np.str_)
    if base == "array":
        if len({(item.dtype, item.shape) for item in row}) > 1:
            raise ValueError("a sequence of arrays of different shapes")
        return np.stack(row)
    raise ValueError(f"a sequence of {base} is no column")


def _tree(record: bytes) -> Any:
    """A structured array where the tree is a dict of arrays of one length, else the record as it is."""
    found = decode_tree(record)
    if isinstance(found, np.ndarray):
        return found
    leaves = list(_leaves(found))
    if not leaves or not all(isinstance(leaf, np.ndarray) for leaf in leaves):
        return record
    rank = min(leaf.ndim for leaf in leaves)
    shape = leaves[0].shape[:rank]
    if any(leaf.shape[:rank] != shape for leaf in leaves):
        return record
    array = np.zeros(shape, _dtype_of(found, rank))
    _fill(array, found)
    return array


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict) and all(isinstance(name, str) and name for name in tree):
        for item in tree.values():
            yield from _leaves(item)
    else:
        yield tree


def _dtype_of(tree: Any, rank: int) -> np.dtype[Any]:
    if isinstance(tree, dict):
        return np.dtype([(name, _dtype_of(item, rank)) for name, item in tree.items()])
    return np.dtype((tree.dtype, tree.shape[rank:]))


def _fill(array: Array, tree: dict[str, Any]) -> None:
    for name, item in tree.items():
        if isinstance(item, dict):
            _fill(array[name], item)
        else:
            array[name] = item


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "utf8": decode_utf8,
    "int": decode_int,
    "i64": decoders["i64"],
    "u64": decoders["u64"],
    "array": decoders["array"],
    "tree": _tree,
}


def _with_meta(batch: dict[str, RawColumn], metas: list[bytes], place: str) -> Batch:
    """The batch with the ages and availabilities that `meta` records hold."""
    try:
        rows = [decode_msgpack(record) for record in metas]
    except (ValueError, TypeError, RecursionError) as error:
        raise DatasetError(f"{place}: meta.bag holds no msgpack ({error!r})") from error
    names = list(rows[0]) if rows and isinstance(rows[0], dict) else []
    found = dict(batch)
    for column in {str(name).rpartition(".")[0] for name in names} & batch.keys():
        try:
            ages = np.array([row[f"{column}.age"] for row in rows], np.int64)
            available = np.array([row[f"{column}.available"] for row in rows], np.bool_)
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise DatasetError(f"{place}: meta.bag says nothing of {column} ({error!r})") from error
        found[column] = RawColumn(batch[column].values, None, False, available, ages)
    return found
