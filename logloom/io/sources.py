"""The one protocol for rows, whatever their format, whoever wrote them, of a unit or of a whole dataset.

Here: `RowSource`, which whatever reads rows reads: builds, the commands, training, Beam's pipelines;
`ChainedSource`, several as one; `UnitsSource`, for folders of units.
Elsewhere: the formats' own sources (in each format's package), what rows belong to (stretches), which of the
rows a dataset shows and in which order (logloom.datasets.dataset), rows into batches (logloom.batches).

A source numbers its rows from 0 in stored order: those of a log follow each other, by timestamp.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from logloom.batches import Batch, scattered, stacked_rows
from logloom.blocks import Array, Block, Ragged, Values
from logloom.digests import digest_of
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.ahead import ahead
from logloom.io.folders import content_of, walk
from logloom.io.storage import Store
from logloom.io.stretches import Ints, LogRange, SourceLog, Stretches, end_to_end
from logloom.schema import Schema

BLOCK_BYTES = 64 << 20
Columns = Sequence[str] | None  # names or globs; what None means, each function says
Share = tuple[
    "RowSource | None", int, int | None
]  # [start, stop) of a source, None: the whole one; None: its end
_FIRST_ROWS = 64  # of a block, before anything is known of the size of a row
_THREADS = 8  # that ask for timestamps, each of another file


class RowSource(abc.ABC):
    """Rows by position: those of a unit, of a folder, of a version.

    A subclass gives the schema, and either `blocks` or `rows`; the rest follows, and is to be overridden
    where a format can do better. Opens what it reads when first asked; pickles without it; serves many
    threads; a forked process opens its own. Never gives a value that it can't vouch for.

    Attributes:
        place: the URI, for messages.
        max_gap: ns between two rows of a log beyond which no window goes; None: no limit.
        has_stamps: whether rows have a log_id and a timestamp.
        unknown: what can't be checked, for people; "" where all that is read can.
        left_out: what lies there that rows don't have, and why.
        kind: what `--from` calls it.
        period: of a rate clock, in ns; None where rows have none.
    """

    place: str = ""
    kind: str = ""
    period: int | None = None
    max_gap: int | None = None
    has_stamps: bool = True
    unknown: str = ""
    left_out: Mapping[str, str] = MappingProxyType({})
    _schema: Schema
    _opened: tuple[int, Any] | None = None

    # --- what there is ----------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """Of the rows."""
        return self._schema

    @property
    def dataset_name(self) -> str:
        """What a dataset made of these rows is called."""
        return self.place.rstrip("/").rpartition("/")[2]

    @property
    def recipe(self) -> Mapping[str, Any]:
        """What its manifest says instead of a recipe."""
        return {"name": self.dataset_name, "columns": {}, "convert": {"from": self.place, "kind": self.kind}}

    @property
    def hints(self) -> Mapping[str, Mapping[str, Any]]:
        """Options by output format that keep more of what is here, such as which bytes are jpg."""
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """For people, how rows were made."""
        return ()

    @functools.cached_property
    def _by_blocks(self) -> tuple[Stretches, Ints]:
        blocks = list(self.blocks(()))
        runs = [
            (log_id, sum(map(len, run)))
            for log_id, run in itertools.groupby(blocks, lambda block: block.log_id)
        ]
        stamps = np.concatenate([np.empty(0, np.int64), *(block.timestamp for block in blocks)])
        return Stretches.of_logs([log_id for log_id, _ in runs], [rows for _, rows in runs]), stamps

    @property
    def stretches(self) -> Stretches:
        """What the rows belong to."""
        return self._by_blocks[0]

    @property
    def stamps(self) -> Ints | None:
        """(rows,) timestamps, int64 ns since the Unix epoch; None where rows have none."""
        return self._by_blocks[1]

    @property
    def small(self) -> Mapping[str, Array]:
        """Columns that are in memory anyway, (rows,) each."""
        return {}

    def __len__(self) -> int:
        return self.stretches.num_rows

    # --- rows -------------------------------------------------------------------------------------------

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Row `index` as users see it (see `Block.row`), without ages and availabilities."""
        return self.row(index)

    def row(self, index: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Row `index`: log_id and timestamp where there are any, then the columns.

        Args:
            index: from 0; negative ones count from the end.
            columns: names or globs; all but ages and availabilities by default.

        Raises:
            IndexError: there is no such row.
            DatasetError: what is stored is damaged.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        index %= len(self)
        names = self.schema.select(columns)
        (block,) = self.blocks(names, 1, index, index + 1)
        return self.row_of(block, 0, names)

    def row_of(self, block: Block, index: int, names: Sequence[str]) -> dict[str, Any]:
        """A row of one of the blocks.

        Raises:
            DatasetError: a text is no UTF-8.
        """
        try:
            row = block.row(index, self.schema, names)
        except UnicodeDecodeError as error:
            raise DatasetError(
                f"{self.place}: row {index} of {block.log_id}: a text is no UTF-8 ({error})"
            ) from error
        return row if self.has_stamps else {name: row[name] for name in names}

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        """Rows in the order asked for: log_id and timestamp where there are any, then the named columns."""
        return [self.row(position, names) for position in positions.tolist()]

    def batch(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """Rows as one array or list per column; see `logloom.batches`.

        Args:
            out: arrays to fill, where columns have a fixed shape; the others are ignored.
        """
        return stacked_rows(self.rows(positions, names), self.schema.all, self.place, positions)

    def blocks(
        self, columns: Columns = None, max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """Rows [start, stop) in order, in blocks of about `max_bytes`, each of one log, of one row at least.

        Args:
            columns: names or globs, beside `timestamp`; None is all, ages and availabilities too.

        Raises:
            DatasetError: files are damaged, gone, or hold something else than before.
        """
        names = tuple(self.schema.all) if columns is None else self.schema.select(columns)
        step = _FIRST_ROWS
        for log_id, first, last in self.stretches.between(start, stop):
            at = first
            while at < last:
                positions = np.arange(at, min(at + step, last))
                batch = self.batch(positions, names)
                found = {name: values_of(batch[name], f"{self.place}: {name}") for name in names}
                stamps = batch["timestamp"] if self.has_stamps else positions
                block = Block(log_id, "", at - first, {"timestamp": stamps, **found})
                yield block
                at += len(block)
                step = max(1, min(max_bytes * len(block) // max(1, block.nbytes), 4 * step))

    # --- for workers ------------------------------------------------------------------------------------

    def shares(self) -> Sequence[Share]:
        """What workers may read apart, told without reading any row."""
        return [(None, 0, None)]

    def logs(self) -> Sequence[SourceLog]:
        """All logs to convert, by log_id.

        Raises:
            DatasetError: damage; times that don't ascend.
        """
        raise UsageError(f"{self.place}: no dataset that can be converted")

    def part_blocks(
        self, log_id: str, part: LogRange, columns: Columns = None, max_bytes: int = BLOCK_BYTES
    ) -> Iterator[Block]:
        """The rows of a part that `logs` told, as `blocks` gives them."""
        return self.blocks(columns, max_bytes, part.where, part.where + part.rows)

    # --- what is open -----------------------------------------------------------------------------------

    def _open(self) -> Any:
        """Whatever the rows are read through, for sources that ask for `reader`."""
        raise NotImplementedError

    @property
    def reader(self) -> Any:
        """What `_open` gave, in this process."""
        pid, opened = os.getpid(), self._opened
        if opened is None:
            opened = self._opened = (pid, self._open())
        elif opened[0] != pid:
            opened = self._opened = (pid, self._after_fork(opened[1]))
        return opened[1]

    def _after_fork(self, reader: Any) -> Any:
        """The reader of a forked process, made of its parent's: no open file is shared."""
        if hasattr(reader, "release"):
            reader.release()
            return reader
        return self._open()

    def _checked(self, reader: Any, told: Stretches | None) -> Any:
        """A reader of as many rows as the manifest says.

        Raises:
            DatasetError: it has more or fewer.
        """
        if told is not None and len(reader) != told.num_rows:
            raise DatasetError(
                f"{self.place}: {len(reader)} rows, the manifest says {told.num_rows}; "
                "`logloom verify` tells more"
            )
        return reader

    def __getstate__(self) -> dict[str, Any]:
        made = {"_opened", *_cached_names(type(self))}
        return {key: value for key, value in self.__dict__.items() if key not in made}


def values_of(column: Any, place: str) -> Values:
    """A column of a batch as blocks hold it.

    Raises:
        UsageError: Python objects, which blocks don't hold.
    """
    if isinstance(column, tuple):
        return Ragged(*column)
    if isinstance(column, list):
        return Ragged.from_bytes([v.encode() if isinstance(v, str) else v for v in column])
    if column.dtype.hasobject:
        raise UsageError(f"{place}: its type isn't known before a conversion has learnt it")
    array: Values = column
    return array


@functools.cache
def _cached_names(kind: type) -> frozenset[str]:
    properties = functools.cached_property
    return frozenset(
        name for base in kind.__mro__ for name, value in vars(base).items() if isinstance(value, properties)
    )


def grouped(bounds: Ints, positions: Ints) -> Iterator[tuple[int, Ints, Ints]]:
    """(number, which of `positions` lie in it, their positions there) for each stretch that is touched.

    Args:
        bounds: (S + 1,) where stretches begin.
    """
    numbers = bounds.searchsorted(positions, side="right") - 1
    if len(numbers) and (numbers == numbers[0]).all():
        yield int(numbers[0]), np.arange(len(numbers)), positions - bounds[numbers[0]]
        return
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    for start, stop in itertools.pairwise([0, *cuts.tolist(), len(order)]):
        where = order[start:stop]
        if len(where):
            number = int(numbers[where[0]])
            yield number, where, positions[where] - bounds[number]


class ChainedSource(RowSource):
    """Sources one after the other: the units of an output, or its splits."""

    def __init__(
        self,
        place: str,
        parts: Sequence[RowSource],
        schema: Schema,
        max_gap: int | None,
        timed_by: tuple[RowSource, Ints | range] | None = None,
    ):
        """
        Args:
            schema: of all parts.
            timed_by: a source that has the timestamps at hand, and the position there of each row.
        """
        self.place, self.max_gap, self._timed_by = place, max_gap, timed_by
        self.has_stamps = all(part.has_stamps for part in parts)
        self.unknown = "; ".join(dict.fromkeys(part.unknown for part in parts if part.unknown))
        self.left_out = {name: why for part in parts for name, why in part.left_out.items()}
        self._parts = list(parts)
        self._schema = schema

    @functools.cached_property
    def stretches(self) -> Stretches:
        return Stretches.joined([part.stretches for part in self._parts])

    @functools.cached_property
    def _bounds(self) -> Ints:
        return np.cumsum([0, *(len(part) for part in self._parts)], dtype=np.int64)

    @functools.cached_property
    def stamps(self) -> Ints | None:
        if not self.has_stamps:
            return None
        if self._timed_by is not None:
            source, positions = self._timed_by
            with contextlib.suppress(LogloomError):  # these rows' own files tell the same, only more slowly
                if source.stamps is not None and len(positions) == len(self):
                    return source.stamps if isinstance(positions, range) else source.stamps[positions]
        found: list[Any] = list(ahead(lambda opened: opened().stamps, self._every_part(), _THREADS))
        return np.concatenate([np.empty(0, np.int64), *found])

    def _every_part(self) -> Iterable[Callable[[], RowSource]]:
        return (functools.partial(_itself, part) for part in self._parts)

    @functools.cached_property
    def small(self) -> Mapping[str, Array]:
        first = self._parts[0].small if self._parts else {}
        names = [name for name in first if all(name in part.small for part in self._parts)]
        return {name: np.concatenate([part.small[name] for part in self._parts]) for name in names}

    def _groups(self, positions: Ints) -> list[tuple[RowSource, Ints, Ints]]:
        """(part, which of `positions` lie in it, their positions there) for each part that is touched."""
        return [(self._parts[number], where, own) for number, where, own in grouped(self._bounds, positions)]

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        found: list[Any] = [None] * len(positions)
        for part, where, own in self._groups(positions):
            for place, row in zip(where.tolist(), part.rows(own, names), strict=True):
                found[place] = row
        return found

    def batch(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        groups = self._groups(positions)
        if len(groups) == 1:
            return groups[0][0].batch(groups[0][2], names, out)
        return scattered(
            [(where, part.batch(own, names)) for part, where, own in groups], len(positions), out
        )

    def blocks(
        self, columns: Columns = None, max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """See `RowSource.blocks`."""
        for _, first, last in self.stretches.between(start, stop):
            for part, _, own in self._groups(np.arange(first, last)):
                yield from part.blocks(columns, max_bytes, int(own[0]), int(own[-1]) + 1)


class UnitsSource(ChainedSource):
    """The rows of a plain folder, unit after unit, each of which knows its schema."""

    def __init__(self, store: Store, kind: str, units: Sequence[RowSource]):
        """
        Raises:
            DatasetError: there are no units.
            UsageError: units have different columns.
        """
        if not units:
            raise DatasetError(f"{store.uri}: {kind} without units")
        for number, unit in enumerate(units):
            if unit.schema != units[0].schema:
                raise UsageError(
                    f"{store.uri}: unit {number} has other columns than the first; open them one by one"
                )
        super().__init__(store.uri, units, units[0].schema, None)
        self.kind, self.unknown = kind, f"plain folders of {kind}"
        self._store = store

    def shares(self) -> Sequence[Share]:
        """See `RowSource.shares`: the units, so that a worker opens no other."""
        return [(unit, 0, None) for unit in self._parts]

    def blocks(
        self, columns: Columns = None, max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """See `RowSource.blocks`; of units before `start` only the rows are counted, later ones stay shut."""
        first = 0
        for unit in self._parts:
            if stop is not None and first >= stop:
                return
            rows = len(unit)
            low, high = max(start - first, 0), rows if stop is None else min(stop - first, rows)
            if low < high:
                yield from unit.blocks(columns, max_bytes, low, high)
            first += rows

    def logs(self) -> Sequence[SourceLog]:
        """See `RowSource.logs`: a part for each log of a unit."""
        content, size = content_of(self._store, walk(self._store, ("",)))
        parts: dict[str, list[LogRange]] = {}
        for number, (unit, before) in enumerate(zip(self._parts, self._bounds.tolist(), strict=False)):
            for log_id, first, stop in unit.stretches.spans():
                assert unit.stamps is not None
                rows, stamps = stop - first, unit.stamps[first:stop].tolist()
                identity = digest_of([content, number, first, rows])[:32]
                share = size * rows // len(self)
                where = before + first
                part = LogRange(f"{number:06}", stamps[0], stamps[-1] + 1, rows, identity, where, share)
                parts.setdefault(log_id, []).append(part)
        return [
            SourceLog.of(log_id, self.place, end_to_end(log_id, own, self.place))
            for log_id, own in sorted(parts.items())
        ]


def _itself(part: RowSource) -> RowSource:
    return part
