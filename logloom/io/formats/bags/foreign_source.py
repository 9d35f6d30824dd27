"""Rows of bags that another tool wrote: in one folder, or in numbered folders.

Numbered folders are named 000000, 000001, …

Images and videos stay bytes, as in every row of logloom; sequences are lists. Conversions, which need types,
read the same datapoints as `RawRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.inference import type_of
from logloom.io.formats import bags
from logloom.io.formats.bags.codecs import decode_int, decode_msgpack, decode_tree, decode_utf8, decoders
from logloom.io.formats.bags.columns import KINDS_OF_BYTES, META
from logloom.io.formats.bags.files import SPEC
from logloom.io.formats.bags.spec import is_sequence
from logloom.io.rows.batches import Batch, stacked_rows
from logloom.io.rows.inference.files import Batch as RawBatch
from logloom.io.rows.inference.files import DatasetPiece, RawRows
from logloom.io.rows.inference.types import RawColumn
from logloom.io.rows.log_ranges import Ints, Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.folders import content_of
from logloom.io.storage.store import Store
from logloom.schema import BYTES, STRING, ColumnType, Schema, base_of

_NUMBERS = {"int": "<i8", "i64": "<i8", "u64": "<u8"}


def _column_of(key: str, type_name: str, values: list[Any], place: str) -> RawColumn:
    """Convert the values of a key, decoded by `_COLUMN_DECODERS`, to a column.

    It has a problem where a number is too large, or a sequence can't be a column.
    """
    base = type_name.removesuffix("[]")
    try:
        if is_sequence(type_name):
            return RawColumn([_sequence(base, row) for row in values], is_sequence=True)
        if base in _NUMBERS:
            return RawColumn(np.array(values, _NUMBERS[base]))
    except (ValueError, OverflowError) as error:
        return RawColumn([None] * len(values), problem=f"{place}: {error}")
    return RawColumn(values)


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
    return _structured(decode_tree(record), record)


def _tree_of_numbers(record: bytes) -> Any:
    """As `_tree`; a number that isn't an array is one, too."""
    return _structured(_as_arrays(decode_tree(record)), record)


def _map_of_numbers(record: bytes) -> Any:
    """A structured value where msgpack has a map of numbers and such maps, else the record as it is."""
    return _structured(_as_arrays(decode_msgpack(record)), record)


def _as_arrays(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _as_arrays(item) for name, item in tree.items()}
    fits = isinstance(tree, float) or (isinstance(tree, int) and -(2**63) <= tree < 2**63)
    return np.array(tree) if fits else tree


def _structured(found: Any, record: bytes) -> Any:
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


def _loses(values: Array, dtype: np.dtype[Any]) -> bool:
    """Whether integers in structured values change in another dtype with the same fields."""
    if values.dtype == dtype:
        return False
    if values.dtype.names is not None:
        return any(_loses(values[name], dtype[name].base) for name in values.dtype.names)
    is_rounded = values.dtype.kind in "iu" and dtype.kind == "f"
    return is_rounded and bool((values.astype(dtype).astype(object) != values.astype(object)).any())


_COLUMN_DECODERS: Mapping[str, Callable[[bytes], Any]] = {  # all others stay bytes
    "utf8": decode_utf8,
    "int": decode_int,
    "i64": decoders["i64"],
    "u64": decoders["u64"],
    "array": decoders["array"],
    "tree": _tree,
}
_STRUCT_DECODERS = {"tree": _tree_of_numbers, "msgpack": _map_of_numbers}


def _with_meta(
    batch: dict[str, RawColumn], metas: list[bytes], sampled: Sequence[str], place: str
) -> RawBatch:
    """Add the ages and availabilities in `meta` records to the sampled columns of a batch."""
    try:
        rows = [decode_msgpack(record) for record in metas]
    except (ValueError, TypeError, RecursionError) as error:
        raise DatasetError(f"{place}: meta.bag contains no msgpack ({error!r})") from error
    found = dict(batch)
    for column in (name for name in sampled if name in batch):
        try:
            ages = np.array([row[f"{column}.age"] for row in rows], np.int64)
            available = np.array([row[f"{column}.available"] for row in rows], np.bool_)
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise DatasetError(f"{place}: meta.bag lacks ages of {column} ({error!r})") from error
        found[column] = RawColumn(batch[column].values, None, False, available, ages)
    return found


_ROW_DECODERS = {**bags.decoders, **dict.fromkeys(("jpg", "png", "mp4", "webm"), bytes)}
_INTEGERS = {"i64": np.int64, "int": np.int64, "u64": np.uint64}
_OBJECT = ColumnType(np.dtype("O"))
_PIECE_BYTES = 256 << 20


class _Decoders(dict[str, Any]):
    """Decoders by type; values of unknown types stay bytes."""

    def __missing__(self, name: str) -> Any:
        return bytes


class DatapointsSource(RowSource, RawRows):
    """Datapoints as rows, grouped by the keys `log_id` and `timestamp` if there are such keys.

    Without them each folder of bags is a log of its name. A piece is a range of datapoints of one folder.
    """

    kind = "granular"
    unknown = "bags, which have no checksums"

    def __init__(self, store: Store):
        """Reads the spec.

        Raises:
            DatasetError: there is no dataset, or it is damaged.
        """
        self.place, self._store = store.uri, store
        self._is_sharded = not store.exists(SPEC)
        if self._is_sharded and not store.names():
            raise DatasetError(f"{store.uri}: no dataset of bags")
        self.spec: dict[str, str] = self.reader.spec
        self.has_stamps = self.spec.get("log_id") == "utf8" and self.spec.get("timestamp") == "i64"
        self._keys = ("log_id", "timestamp") if self.has_stamps else ()

    def __getstate__(self) -> dict[str, Any]:
        sampled = {name: value for name, value in vars(self).items() if name == "_sampled"}
        return {**super().__getstate__(), **sampled}  # finding it again would open all folders

    @cached_property
    def schema(self) -> Schema:
        columns = {key: self._type(key) for key in self.names() if key not in self._keys}
        return Schema(columns, self._sampled)

    @cached_property
    def _sampled(self) -> tuple[str, ...]:
        """The columns whose ages and availabilities are in `meta`, as in bags that logloom wrote."""
        if not (self.has_stamps and self.spec.get(META) == "msgpack" and len(self.reader)):
            return ()
        first = self.reader[0, (META,)][META]
        if not isinstance(first, dict):
            return ()
        sampled = tuple(dict.fromkeys(base_of(str(name)) for name in first))
        is_ours = {*Schema({}, sampled).meta} == {*first} and {*sampled} <= self.spec.keys()
        return sampled if is_ours else ()

    def _type(self, key: str) -> ColumnType:
        name = self.spec[key]
        if is_sequence(name) or name in ("msgpack", "tree"):
            return _OBJECT
        if name == "utf8":
            return STRING
        if name in _INTEGERS:
            return ColumnType(np.dtype(_INTEGERS[name]))
        return self._array_type(key) if name == "array" else BYTES

    def _array_type(self, key: str) -> ColumnType:
        """Dtype and shape as the first datapoint has them; axes that differ in the last one are ragged."""
        if not len(self.reader):
            return _OBJECT
        first, last = (np.asarray(self.reader[number, (key,)][key]) for number in (0, -1))
        return type_of(first, last) or _OBJECT

    @property
    def _folders(self) -> dict[str, bags.DatasetReader]:
        """The folders of bags by name; "" where there is only one."""
        if not self._is_sharded:
            return {"": self.reader}
        return {f"{number:06d}": reader for number, reader in enumerate(self.reader.readers)}

    @cached_property
    def stretches(self) -> Stretches:
        if not self.has_stamps:
            name = self.place.rstrip("/").rsplit("/", 1)[-1]
            rows = {folder or name: len(reader) for folder, reader in self._folders.items()}
            return Stretches.of_logs(list(rows), list(rows.values()))
        return Stretches.of_rows(self._column("log_id"))

    @cached_property
    def stamps(self) -> Ints | None:
        return np.array(self._column("timestamp"), np.int64) if self.has_stamps else None

    def _column(self, key: str) -> list[Any]:
        values: list[Any] = self.reader[0 : len(self.reader), (key,)].get(key, [])
        return values

    @cached_property
    def reader(self) -> Any:
        """The bags: values by key."""
        kind = bags.ShardedDatasetReader if self._is_sharded else bags.DatasetReader
        return self._open_folder(kind, "", _ROW_DECODERS)

    def _open_folder(self, kind: Any, folder: str, decoders: Mapping[str, Any]) -> Any:
        return kind(self._store.uri_of(folder), _Decoders(decoders), storage_options=self._store.options)

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        keys = (*self._keys, *names)
        return [self._row(position, keys) for position in positions.tolist()]

    def _row(self, position: int, keys: tuple[str, ...]) -> dict[str, Any]:
        own = [key for key in keys if key in self.spec]
        found = self.reader[position, own if len(own) == len(keys) else [*own, META]]
        row: dict[str, Any] = {
            key: found[key] if key in found else self._meta(found[META], key, position) for key in keys
        }
        for key in own:
            dtype = _INTEGERS.get(self.spec[key])
            if dtype is not None:
                try:
                    row[key] = dtype(row[key])
                except OverflowError as error:
                    raise DatasetError(
                        f"{self.place}: {key} of datapoint {position} is {row[key]}, too large for 64 bits"
                    ) from error
        return row

    def _meta(self, record: Any, name: str, position: int) -> Any:
        """An age or availability of a datapoint."""
        given, kept = (int, np.int64) if name.endswith(".age") else (bool, np.bool_)
        try:
            if type(record[name]) is not given:
                raise TypeError(f"{record[name]!r}"[:80])
            return kept(record[name])
        except (TypeError, KeyError, OverflowError) as error:
            raise DatasetError(
                f"{self.place}: meta of datapoint {position} has no {name} ({error!r}); write it again"
            ) from error

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        return stacked_rows(self.rows(positions, names), self.schema.all, self.place, positions)

    # --- for filters ------------------------------------------------------------------------------------

    @cached_property
    def structs(self) -> Mapping[str, ColumnType]:
        """Trees of arrays of one length, and trees and maps of numbers, as the first datapoint has them."""
        found = {}
        for key in self.names():
            if self.spec[key] in _STRUCT_DECODERS and len(self.reader):
                first = self._arrays[0, (key,)][key]
                if isinstance(first, np.ndarray) and first.dtype.names is not None and first.ndim < 2:
                    found[key] = ColumnType(first.dtype, (None,) * first.ndim)
        return found

    @cached_property
    def _arrays(self) -> Any:
        kind = bags.ShardedDatasetReader if self._is_sharded else bags.DatasetReader
        return self._open_folder(kind, "", _STRUCT_DECODERS)

    def take_structs(self, positions: Ints, names: Sequence[str]) -> Batch:
        batch: Batch = {}
        for name in names:
            values = [self._arrays[position, (name,)][name] for position in positions.tolist()]
            ctype = self.structs[name]
            try:
                if any(value.ndim != len(ctype.shape) for value in values):
                    raise TypeError("trees of several shapes")
                joined = np.concatenate([np.atleast_1d(value) for value in values])
                if any(_loses(value, joined.dtype) for value in values):
                    raise TypeError("integers beyond 2^53 beside floats")
            except (AttributeError, TypeError) as error:
                raise DatasetError(
                    f"{self.place}: {name} is not the same struct in all rows ({error})"
                ) from error
            lengths = np.array([len(np.atleast_1d(value)) for value in values], np.int64)
            batch[name] = (joined, lengths) if ctype.shape else joined
        return batch

    # --- for conversions --------------------------------------------------------------------------------

    def names(self) -> Sequence[str]:
        """See `RawRows.names`: the keys, in the order of the recipe where `meta` has it."""
        others = [key for key in self.spec if key not in self._sampled]
        return [*self._sampled, *(key for key in others if not (key == META and self._sampled))]

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        found = []
        for folder, reader in self._folders.items():
            files = [f"{folder}/{name}".lstrip("/") for name in self._store.names(folder)]
            content, size = content_of(self._store, files)
            step = max(1, _PIECE_BYTES * len(reader) // max(1, reader.size))
            for start in range(0, len(reader), step):
                stop = min(start + step, len(reader))
                place = f"{self._store.uri_of(folder)}: datapoints {start} to {stop}"
                share = size * (stop - start) // len(reader)
                found.append(DatasetPiece(place, (folder, start, stop), content, share))
        return found

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[RawBatch]:
        folder, start, stop = piece.where
        reader = self._open_folder(bags.DatasetReader, folder, _COLUMN_DECODERS)
        extra = [META] if self._sampled else []
        keys = list(self.spec) if names is None else [key for key in self.spec if key in {*names, *extra}]
        step = max(1, max_bytes * len(reader) // max(1, reader.size))
        for first in range(start, stop, step):
            values = self._values(reader, keys, first, min(first + step, stop))
            metas = values.pop(META, None) if self._sampled else None
            own = [key for key in self.names() if key in values]
            batch = {key: _column_of(key, self.spec[key], values[key], piece.place) for key in own}
            yield batch if metas is None else _with_meta(batch, metas, self._sampled, piece.place)

    def _values(
        self, reader: bags.DatasetReader, keys: list[str], first: int, last: int
    ) -> dict[str, list[Any]]:
        if not any(map(is_sequence, self.spec.values())):
            return reader[first:last, keys]
        rows = [reader[number, keys] for number in range(first, last)]
        return {key: [row[key] for row in rows] for key in keys}

    def forms(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `RawRows.forms`: types whose bytes are kept."""
        return {key: name for key, name in self.spec.items() if key in names and name in KINDS_OF_BYTES}
