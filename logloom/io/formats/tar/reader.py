"""Random access to the rows of tar shards, without unpacking them.

Here: `TarReader`.
Elsewhere: the offsets of members (index), reading bytes (logloom.io.storage.files), decoding values
(samples), streams (stream).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Ragged, Values, python_value
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.tar.compression import unpacked
from logloom.io.formats.tar.index import ShardIndex, index_of
from logloom.io.formats.tar.samples import META, column_of, decode, decode_meta, parse_key
from logloom.io.rows.flat_lists import LENGTHS, flat_types, lengths_name, lists_of
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import Columns, Run
from logloom.io.rows.unit_rows import UnitRows, uris_of
from logloom.io.storage.files import File
from logloom.io.storage.filesystems import file_name_of
from logloom.schema import ColumnType, Schema
from logloom.values import dataclass


@dataclass(frozen=True)
class _MemberPlan:
    """Which members of a sample some columns need.

    Attributes:
        positions: of the members within the sample, ascending.
        suffixes: of the same.
        columns: (name, type, which of `positions`) of columns with a member of their own.
        meta: which of `positions` is meta.json; -1 when it isn't needed.
        small: the columns in it.
    """

    positions: tuple[int, ...]
    suffixes: tuple[str, ...]
    columns: tuple[tuple[str, ColumnType, int], ...]
    meta: int
    small: Mapping[str, ColumnType]


class _Shard:
    """One archive and, once asked for, its index."""

    def __init__(
        self,
        uri: str,
        entry: Mapping[str, Any] | None,
        allow_truncated: bool,
        options: Mapping[str, Any] | None,
    ):
        self.source = File(uri, options)
        self._options = options
        self.entry = entry
        self.plans: dict[tuple[int, tuple[str, ...]], _MemberPlan] = {}
        self._allow_truncated = allow_truncated
        self._index: ShardIndex | None = None

    @property
    def partition(self) -> str:
        return str((self.entry or {}).get("partition") or file_name_of(self.source.name).partition(".")[0])

    @property
    def index(self) -> ShardIndex:
        if self._index is None:
            known = self.entry or {}
            if known and self.source.size != known["bytes"]:
                raise DatasetError(
                    f"{self.source.name}: {self.source.size} bytes, {known['bytes']} were written: "
                    "it was cut short or changed"
                )
            self.source = unpacked(self.source, self._options)
            index = index_of(self.source, self._allow_truncated)
            if known and len(index) != known["rows"]:
                raise DatasetError(f"{self.source.name}: {len(index)} rows, {known['rows']} were written")
            self._index = index
        return self._index

    def __len__(self) -> int:
        return int(self.entry["rows"]) if self.entry else len(self.index)


class TarReader(UnitRows):
    """Rows of tar shards as one sequence.

    Opens and indexes a shard when first asked for one of its rows (all of them for `len`, unless entries say
    how many rows there are). Serves many threads; pickles as its URIs. Arrays of a row may share memory.

    With a schema rows are what was written (see `Block.row`). Without one any archive opens, and a row is
    {"__key__": ..., "jpg": bytes, ...}, as the webdataset package gives it.
    """

    def __init__(
        self,
        uris: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        schema: Schema | None = None,
        *,
        entries: Sequence[Mapping[str, Any]] | None = None,
        allow_truncated: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Nothing is opened yet.

        Args:
            uris: paths or fsspec URIs of tars, in row order. Compressed ones are unpacked into the temporary
                folder (TMPDIR) when first read.
            schema: of the rows.
            entries: what the writer's `close` gave for each; sizes and row counts are held against it.
            allow_truncated: whether a shard that was cut short gives the samples that are whole.
            storage_options: for fsspec, by protocol.
        """
        self.uris = uris_of(uris)
        super().__init__(schema if schema is not None else Schema({}), self.uris)
        self._types = self.schema.all
        self._again = functools.partial(
            TarReader,
            self.uris,
            schema,
            entries=entries,
            allow_truncated=allow_truncated,
            storage_options=storage_options,
        )
        self._has_schema = schema is not None
        given: Sequence[Mapping[str, Any] | None] = entries if entries else [None for _ in self.uris]
        self._shards = [
            _Shard(uri, entry, allow_truncated, storage_options)
            for uri, entry in zip(self.uris, given, strict=True)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, ()

    def _names(self, columns: Columns) -> tuple[str, ...]:
        """The columns of a call; without a schema suffixes, where none means all."""
        if self._has_schema:
            return super()._names(columns)
        return (columns,) if isinstance(columns, str) else tuple(columns or ())

    def row(self, index: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """See `RowSource.row`; without a schema the members of some suffixes, or of all, as bytes."""
        return super().row(index, columns) if self._has_schema else self.raw_rows([index], columns)[0]

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        """See `RowSource.rows`; without a schema members as bytes."""
        if not self._has_schema:
            return self.raw_rows(positions.tolist(), names or None)
        return super().rows(positions, names)

    def _row(self, position: int, names: Sequence[str]) -> dict[str, Any]:
        number, sample = self._place_of(position)
        shard = self._shards[number]
        found = _read_columns(shard, sample, sample + 1, tuple(names), self.schema)
        log_id, timestamp = parse_key(shard.index.keys[sample], shard.source.name)
        row: dict[str, Any] = {"log_id": log_id, "timestamp": np.int64(timestamp)}
        for name in names:
            row[name] = _python_value(found[name][0], self._types[name], shard, name)
        return row

    def raw_rows(self, indices: Sequence[int], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Rows as bytes by suffix, with or without a schema; remote shards are asked for all at once.

        Args:
            indices: in any order; negative ones count from the end.
            columns: suffixes; None is all of them.

        Raises:
            IndexError: there is no such row.
            DatasetError: a shard is damaged.
        """
        found: list[dict[str, Any]] = [{} for _ in indices]
        by_shard: dict[int, list[tuple[int, int]]] = {}
        for place, position in enumerate(self._positions(indices).tolist()):
            number, sample = self._place_of(position)
            by_shard.setdefault(number, []).append((sample, place))
        for number, samples in by_shard.items():
            rows = _raw_rows(self._shards[number], [sample for sample, _ in sorted(samples)], columns)
            for (_, place), row in zip(sorted(samples), rows, strict=True):
                found[place] = row
        return found

    def _cuts(self, number: int, names: Sequence[str], max_bytes: int) -> Iterator[tuple[int, int]]:
        """Stretches of samples of one layout."""
        index = self._shards[number].index
        lasts = index.starts[1:] - 1
        ends = index.offsets[lasts] + index.sizes[lasts]
        changes = np.append(np.flatnonzero(np.diff(index.layout)) + 1, len(index))
        start = 0
        while start < len(index):
            limit = index.offsets[index.starts[start]] + max_bytes
            stop = max(start + 1, int(np.searchsorted(ends, limit, "right")))
            stop = min(stop, int(changes[np.searchsorted(changes, start, "right")]))
            yield start, stop
            start = stop

    def _partition(self, number: int) -> str:
        return self._shards[number].partition

    def _release(self, number: int) -> None:
        self._shards[number].source.release()

    def _run(self, number: int, start: int, stop: int, names: Sequence[str]) -> Run:
        if not self._has_schema:
            raise UsageError("blocks and batches need a schema: TarReader(uris, schema)")
        shard = self._shards[number]
        other = np.flatnonzero(shard.index.layout[start:stop] != shard.index.layout[start])
        stop = start + int(other[0]) if len(other) else stop
        keys = [parse_key(key, shard.source.name) for key in shard.index.keys[start:stop]]
        found = _read_columns(shard, start, stop, tuple(names), self.schema)
        columns = {name: _column(found[name], self._types[name]) for name in names}
        return [log_id for log_id, _ in keys], np.array([stamp for _, stamp in keys], np.int64), columns

    @property
    def indices(self) -> list[ShardIndex]:
        """Where the members of each shard are; those not asked for yet are read."""
        return [shard.index for shard in self._shards]

    def _row_counts(self) -> Iterator[int]:
        return map(len, self._shards)


def _raw_rows(
    shard: _Shard, samples: Sequence[int], columns: Sequence[str] | None
) -> Iterator[dict[str, Any]]:
    """Samples as bytes by suffix."""
    index = shard.index
    members: list[tuple[str, list[str]]] = []
    offsets: list[int] = []
    sizes: list[int] = []
    for sample in samples:
        start = int(index.starts[sample])
        suffixes = index.layouts[index.layout[sample]]
        wanted = [k for k, suffix in enumerate(suffixes) if columns is None or suffix in columns]
        members.append((index.keys[sample], [suffixes[k] for k in wanted]))
        offsets += [int(index.offsets[start + k]) for k in wanted]
        sizes += [int(index.sizes[start + k]) for k in wanted]
    data = iter(shard.source.read_bytes(offsets, sizes))
    for key, names in members:
        yield {"__key__": key, **{name: next(data) for name in names}}


def _plan(shard: _Shard, sample: int, names: tuple[str, ...], schema: Schema) -> _MemberPlan:
    """The plan for a sample, made once for all samples of its layout."""
    layout = int(shard.index.layout[sample])
    if (layout, names) in shard.plans:
        return shard.plans[layout, names]
    suffixes = shard.index.layouts[layout]
    types = schema.all
    at = {column_of(suffix): k for k, suffix in enumerate(suffixes) if suffix != META}
    own = {name: at[name] for name in names if name in at}
    small = {name: types[name] for name in names if name not in at}
    if small and META not in suffixes:
        raise DatasetError(
            f"{shard.source.name}: sample {shard.index.keys[sample]} has no member for "
            f"{', '.join(small)}; it has {', '.join(suffixes)}"
        )
    positions = sorted(own.values()) + [suffixes.index(META)] * bool(small)
    positions.sort()
    place = {position: k for k, position in enumerate(positions)}
    plan = _MemberPlan(
        tuple(positions),
        tuple(suffixes[position] for position in positions),
        tuple((name, types[name], place[position]) for name, position in own.items()),
        place[suffixes.index(META)] if small else -1,
        small,
    )
    shard.plans[layout, names] = plan
    return plan


def _read_columns(
    shard: _Shard, start: int, stop: int, names: tuple[str, ...], schema: Schema
) -> dict[str, Values | list[Array]]:
    """Columns of neighbouring samples of one layout; those with members of their own as one array per row.

    Raises:
        DatasetError: a member holds something else; names sample, member and offset.
    """
    try:
        return _decode_columns(shard, start, stop, names, schema)
    except ValueError:
        for sample in range(start, stop):  # which one was it?
            for name in names:
                try:
                    _decode_columns(shard, sample, sample + 1, (name,), schema)
                except ValueError as error:
                    raise DatasetError(f"{_place(shard, sample, name)}: {error}") from error
        raise


def _place(shard: _Shard, sample: int, name: str) -> str:
    index = shard.index
    suffixes = index.layouts[index.layout[sample]]
    k = next((k for k, suffix in enumerate(suffixes) if column_of(suffix) == name), None)
    k = suffixes.index(META) if k is None else k
    offset = index.offsets[index.starts[sample] + k]
    return f"{shard.source.name}: {index.keys[sample]}.{suffixes[k]} at byte {offset}"


def _decode_columns(
    shard: _Shard, start: int, stop: int, names: tuple[str, ...], schema: Schema
) -> dict[str, Values | list[Array]]:
    types = schema.all
    lists = {name: types[name] for name in names if types[name].kind == "lists"}
    if not lists:
        return _decode_members(shard, start, stop, names, schema)
    flat = Schema(flat_types(schema.columns), schema.sampled)
    found = _decode_members(shard, start, stop, (*names, *map(lengths_name, lists)), flat)
    for name, ctype in lists.items():
        parts = found[name], found.pop(lengths_name(name))
        found[name] = lists_of(_column(parts[0], ctype.flat), _column(parts[1], LENGTHS))
    return found


def _decode_members(
    shard: _Shard, start: int, stop: int, names: tuple[str, ...], schema: Schema
) -> dict[str, Values | list[Array]]:
    index, place = shard.index, shard.source.name
    plan = _plan(shard, start, names, schema)
    per_sample = len(index.layouts[index.layout[start]])
    first = int(index.starts[start])
    shape = (stop - start, per_sample)
    rows = slice(first, first + shape[0] * per_sample)
    wanted = list(plan.positions)
    offsets = index.offsets[rows].reshape(shape)[:, wanted].reshape(-1).tolist()
    sizes = index.sizes[rows].reshape(shape)[:, wanted].reshape(-1).tolist()
    data = shard.source.read_many(offsets, sizes)
    step = len(wanted)
    found: dict[str, Values | list[Array]] = {}
    for name, ctype, k in plan.columns:
        suffix = plan.suffixes[k]
        found[name] = [decode(name, ctype, part, suffix) for part in data[k::step]]
    if plan.meta >= 0:
        keys = [parse_key(key, place) for key in index.keys[start:stop]]
        texts = [part.tobytes() for part in data[plan.meta :: step]]
        found |= decode_meta([(*key, text) for key, text in zip(keys, texts, strict=True)], plan.small)
    return found


def _column(values: Values | list[Array], ctype: ColumnType) -> Values:
    if not isinstance(values, list):
        return values
    if ctype.is_ragged:
        return Ragged.from_rows(values, ctype)
    column = np.empty((len(values), *ctype.tail), ctype.dtype)
    for row, value in enumerate(values):
        column[row] = value
    return column


def _python_value(value: Any, ctype: ColumnType, shard: _Shard, name: str) -> Any:
    if ctype.kind == "array" and ctype.shape == ():
        return value[()]  # a structured value or a number, as indexing a column gives it
    try:
        return python_value(value, ctype)
    except UnicodeDecodeError as error:
        raise DatasetError(f"{shard.source.name}: a value of {name} isn't UTF-8 ({error})") from error
