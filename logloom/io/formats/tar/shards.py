"""Samples of tar shards that are opened without a schema.

Shards of other tools give bytes by suffix, as the webdataset package does; those that logloom wrote give
rows, with the types that shards record: integers in meta.json are int64, floats are float64. Conversions,
which need types, read the samples of both as `RawRows`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from logloom.io.formats.tar.samples import EXTENSION, META, column_of, parse_key
from logloom.io.formats.tar.stream import SUFFIXES, open_stream, stream_samples
from logloom.io.rows.batches import Batch, stacked_rows
from logloom.io.rows.inference.files import Batch as RawBatch
from logloom.io.rows.inference.files import DatasetPiece, RawRows, absent
from logloom.io.rows.inference.types import RawColumn
from logloom.io.rows.log_ranges import Ints, Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.braces import files_named
from logloom.io.storage.filesystems import file_name_of
from logloom.io.storage.folders import content_of, files_of
from logloom.io.storage.store import Store
from logloom.schema import BYTES, NO_AGE, RESERVED_LAST_PARTS, STRING, ColumnType, Schema, base_of

_KEY = "__key__"
_KEY_COLUMN = "key"


def _names_of(suffixes: Iterable[str], is_own: bool) -> dict[str, str]:
    """The members' columns, and their suffixes.

    Args:
        suffixes: of all samples, so that a member has one name in all of them.
        is_own: whether logloom wrote them; in others' the samples' keys are a column, too.
    """
    suffixes = list(suffixes)
    stems = [suffix.rpartition(".")[0] or suffix for suffix in suffixes]
    names = stems if len(set(stems)) == len(stems) else suffixes
    if not is_own:
        names = [_beside_key(name, names) for name in names]
    return dict(zip(names, suffixes, strict=True))


def _beside_key(name: str, names: Sequence[str]) -> str:
    """The name of a member's column where `key` is the samples' keys."""
    if name == _KEY_COLUMN:
        while name == _KEY_COLUMN or name in names:
            name += "_"
    return name


def _notes_of(suffixes: Sequence[str]) -> list[str]:
    """For people: which members of others' samples aren't called as their columns."""
    as_they_are = _names_of(suffixes, is_own=True)
    return [
        f"member {suffix} is column {name}; column {_KEY_COLUMN} has the samples' keys"
        for name, suffix in _names_of(suffixes, is_own=False).items()
        if name not in as_they_are
    ]


def _forms_of(names: Mapping[str, str]) -> dict[str, str]:
    """Extensions of the members that stay bytes, by column."""
    extensions = {name: suffix.rpartition(".")[2] for name, suffix in names.items()}
    return {
        name: {"jpeg": "jpg"}.get(extension, extension)
        for name, extension in extensions.items()
        if extension not in _DECODERS and EXTENSION.fullmatch(extension)
    }


def _row_of(
    sample: Mapping[str, Any], suffixes: Sequence[str], place: str, names: Sequence[str] | None
) -> dict[str, Any]:
    """A sample's values by column; None is all of them.

    Args:
        suffixes: of all samples.

    Raises:
        DatasetError: a member isn't what its extension says.
    """
    meta = _own_meta(sample)
    row: dict[str, Any] = {_KEY_COLUMN: sample[_KEY]} if meta is None else {**meta}
    for name, suffix in _names_of(suffixes, meta is not None).items():
        if (suffix == META and meta is not None) or (names is not None and name not in names):
            continue
        if (data := sample.get(f".{suffix}")) is None:
            continue
        decode = _DECODERS.get(suffix.rpartition(".")[2])
        try:
            row[name] = decode(data) if decode is not None else data
        except (ValueError, UnicodeDecodeError) as error:
            raise DatasetError(f"{place}: {sample[_KEY]}.{suffix}: {error}") from error
    wanted = {name for name in row if names is None or name in names}
    return {name: value for name, value in row.items() if {name, name.rpartition(".")[0]} & wanted}


def _own_meta(sample: Mapping[str, Any]) -> dict[str, Any] | None:
    """What meta.json says in a shard that logloom wrote, None in others."""
    data = sample.get(f".{META}")
    return None if data is None else own_meta(sample[_KEY], data)


def _class_number(data: bytes) -> int:
    number = int(data.decode("ascii"))
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} doesn't fit int64")
    return number


def _array(data: bytes) -> Any:
    return read_npy(np.frombuffer(data, np.uint8))


def _text(data: bytes) -> str:
    return data.decode("utf-8")


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), _class_number),
    **dict.fromkeys(("txt", "text", "transcript", "json", "jsn"), _text),
    "npy": _array,
}


def _is_meta(name: str, row: Mapping[str, Any]) -> bool:
    """Whether it is the age or availability of another column."""
    base, _, last = name.rpartition(".")
    return last in RESERVED_LAST_PARTS and base in row


def _batch_of(rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> RawBatch:
    """Rows, some of which may lack columns; None is all columns that one of them has."""
    every = dict.fromkeys(name for row in rows for name in row)
    found = {name: _column(name, rows) for name in every if not _is_meta(name, every)}
    return {name: found.get(name) or absent(len(rows)) for name in (found if names is None else names)}


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> RawColumn:
    has = np.array([name in row for row in rows], np.bool_)
    present = [row for row in rows if name in row]
    values = [row[name] for row in present]
    plain: Any = values
    if all(type(value) is int for value in values):
        plain = np.array(values, "<i8")
    elif isinstance(values[0], np.generic) and len({type(value) for value in values}) == 1:
        plain = np.array(values)
    if not has.all():
        own = iter(plain)
        plain = [next(own) if there else None for there in has]
    if f"{name}.available" not in present[0]:
        return RawColumn(plain, available=None if has.all() else has)
    available = np.array([bool(row.get(f"{name}.available")) for row in rows], np.bool_)
    ages = np.array([row.get(f"{name}.age", NO_AGE) for row in rows], np.int64)
    return RawColumn(plain, None, False, available, ages)


_SUFFIX = re.compile(f"({'|'.join(map(re.escape, SUFFIXES))})$", re.IGNORECASE)


def open_shards(store: Store) -> RowSource:
    """The shards in a folder, or those that a URI names; the first sample shows whether logloom wrote them.

    Raises:
        DatasetError: a shard is damaged.
    """
    uris = [store.uri_of(name) for name in store.names() if name.lower().endswith(SUFFIXES)]
    uris = uris or files_named(store.uri)
    shards = ShardsSource(store.uri, uris, store.options)
    if len(shards):
        first = shards.reader.row(0, (META,))
        if META in first and own_meta(first[_KEY], first[META]) is not None:
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
    key_name = _KEY
    unknown = "what tar shards contain, whose headers alone have checksums"

    def __init__(
        self,
        place: str,
        uris: Sequence[str],
        storage_options: Mapping[str, Any],
        suffixes: list[str] | None = None,
    ):
        """Opens nothing yet.

        Args:
            uris: of the shards, in row order.
            suffixes: of all samples of the dataset, where these shards are a part of it.
        """
        self.place = place
        self._uris, self._storage = list(uris), storage_options
        self._found_suffixes = suffixes

    @cached_property
    def schema(self) -> Schema:
        """Members are bytes; those that not all samples have say so by their availability."""
        layouts = [set(layout) for index in self._indices() for layout in index.layouts]
        sampled = [
            suffix
            for suffix in self._suffixes
            if not {f"{suffix}.{last}" for last in RESERVED_LAST_PARTS} & {*self._suffixes}
            and not all(suffix in layout for layout in layouts)
        ]
        return Schema(dict.fromkeys(self._suffixes, BYTES), tuple(sampled))

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
        bases = {name: base_of(name) if name in self.schema.meta else name for name in names}
        found = []
        for sample in self.reader.raw_rows(positions.tolist(), list(bases.values())):
            row = {_KEY: sample[_KEY]}
            for name, base in bases.items():
                if name == base:
                    row[name] = sample.get(name, b"")
                elif name.endswith(".available"):
                    row[name] = np.bool_(base in sample)
                else:
                    row[name] = np.int64(0 if base in sample else NO_AGE)
            found.append(row)
        return found

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        return stacked_rows(self.rows(positions, names), self.schema.all, self.place, positions)

    @cached_property
    def reader(self) -> TarReader:
        return TarReader(self._uris, storage_options=self._storage)

    # --- for conversions --------------------------------------------------------------------------------

    def _samples(self, uri: str) -> Iterator[dict[str, Any]]:
        with open_stream(uri, options=self._storage) as stream:
            yield from stream_samples(stream, uri)

    @property
    def _every_suffix(self) -> list[str]:
        """Of all samples, in the order in which they come; those of damaged shards may lack."""
        if self._found_suffixes is not None:
            return self._found_suffixes
        found: dict[str, None] = {}
        for uri in self._uris:
            with contextlib.suppress(DatasetError):  # reading the shard raises it
                if uri.lower().endswith(".tar"):
                    (index,) = TarReader([uri], storage_options=self._storage).indices
                    found |= dict.fromkeys(suffix for layout in index.layouts for suffix in layout)
                else:
                    for sample in self._samples(uri):
                        found |= dict.fromkeys(suffix[1:] for suffix in sample if suffix != _KEY)
        self._found_suffixes = list(found)
        return self._found_suffixes

    def names(self) -> Sequence[str]:
        """See `RawRows.names`: of the first sample and of all members."""
        uri = self._uris[0]
        for sample in self._samples(uri):
            row = _row_of(sample, self._every_suffix, uri, None)
            is_own = _own_meta(sample) is not None
            members = _names_of(self._every_suffix, is_own)
            others = (name for name, suffix in members.items() if not (is_own and suffix == META))
            return list(dict.fromkeys([*(name for name in row if not _is_meta(name, row)), *others]))
        raise DatasetError(f"{uri}: no samples")

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        self._every_suffix  # noqa: B018 # found once, before workers get copies
        return [DatasetPiece(uri, uri, *content_of(Store(uri, self._storage), [""])) for uri in self._uris]

    def part(self, piece: DatasetPiece) -> ShardsSource:
        return ShardsSource(self.place, [piece.where], self._storage, self._every_suffix)

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[RawBatch]:
        rows: list[dict[str, Any]] = []
        size = 0
        for sample in self._samples(piece.where):
            rows.append(_row_of(sample, self._every_suffix, piece.place, names))
            size += sum(len(data) for data in sample.values())
            if size >= max_bytes:
                yield _batch_of(rows, names)
                rows, size = [], 0
        if rows:
            yield _batch_of(rows, names)

    @property
    def notes(self) -> tuple[str, ...]:
        """See `RawRows.notes`: by the first sample, and all members."""
        first = next(self._samples(self._uris[0]), {})
        return () if _own_meta(first) is not None else tuple(_notes_of(self._every_suffix))

    def forms(self, names: Sequence[str]) -> Mapping[str, str]:
        """See `RawRows.forms`: by the first sample, and all members."""
        is_own = _own_meta(next(self._samples(self._uris[0]), {})) is not None
        found = _forms_of(_names_of(self._every_suffix, is_own))
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
        meta = own_meta(first[_KEY], first[META]) or {}
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
        meta = own_meta(sample[_KEY], sample[META]) if META in sample else None
        row: dict[str, Any] = {"log_id": log_id, "timestamp": np.int64(stamp)}
        for name in names:
            suffix = self._members.get(name, META)
            if suffix not in sample or (suffix == META and name not in (meta or {})):
                raise DatasetError(f"{self.place}: sample {sample[_KEY]} lacks {name}")
            if suffix == META:
                row[name] = self._small_value(sample[_KEY], name, (meta or {})[name])
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
            raise DatasetError(f"{self.place}: {name} of sample {sample[_KEY]} is {shape}, others {ctype}")
        return array

    def _array(self, sample: Mapping[str, Any], name: str, suffix: str) -> Array:
        try:
            return read_npy(np.frombuffer(sample[suffix], np.uint8))
        except ValueError as error:
            raise DatasetError(f"{self.place}: {name} of sample {sample[_KEY]}: {error}") from error


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
