"""The one protocol for the rows of a dataset, whatever its format and whoever wrote it.

Here: `RowSource`, which training (logloom.datasets) and conversions (logloom.pipelines.convert) read,
`ChainedSource`, several as one, and `UnitsSource` for folders of units.
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
from typing import TYPE_CHECKING, Any

import numpy as np

from logloom.batches import Batch, rows_of, scattered, stacked_rows
from logloom.blocks import Array, Block
from logloom.digests import digest_of
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.ahead import ahead
from logloom.io.folders import content_of, walk
from logloom.io.storage import Store
from logloom.io.stretches import Ints, LogRange, SourceLog, Stretches, end_to_end
from logloom.schema import Schema

if TYPE_CHECKING:
    from logloom.io.units import Reader

_THREADS = 8  # that ask for timestamps, each of another file


class RowSource(abc.ABC):
    """All rows of a dataset, by position.

    Opens what it reads when first asked; pickles without it; a forked process opens its own.

    Attributes:
        place: the URI, for messages.
        max_gap: ns between two rows of a log beyond which no window goes; None: no limit.
        has_stamps: whether rows have a log_id and a timestamp.
        unknown: what can't be checked, for people; "" where all that is read can.
        left_out: what lies there that rows don't have, and why.
        kind: what `--from` calls it.
        period: of a rate clock, in ns; None where rows have none.
    """

    place: str
    kind: str = ""
    period: int | None = None
    max_gap: int | None = None
    has_stamps: bool = True
    unknown: str = ""
    left_out: Mapping[str, str] = MappingProxyType({})
    _opened: tuple[int, Any] | None = None

    @property
    @abc.abstractmethod
    def schema(self) -> Schema: ...

    @property
    def name(self) -> str:
        """What a dataset made of these rows is called."""
        return self.place.rstrip("/").rpartition("/")[2]

    @property
    def recipe(self) -> Mapping[str, Any]:
        """What its manifest says instead of a recipe."""
        return {"name": self.name, "columns": {}, "convert": {"from": self.place, "kind": self.kind}}

    @property
    def hints(self) -> Mapping[str, Mapping[str, Any]]:
        """Options by output format that keep more of what is here, such as which bytes are jpg."""
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """For people, how rows were made."""
        return ()

    @property
    @abc.abstractmethod
    def stretches(self) -> Stretches: ...

    @property
    @abc.abstractmethod
    def stamps(self) -> Ints | None:
        """(rows,) timestamps, int64 ns since the Unix epoch; None where rows have none."""

    @property
    def small(self) -> Mapping[str, Array]:
        """Columns that are in memory anyway, (rows,) each."""
        return {}

    @abc.abstractmethod
    def _open(self) -> Any:
        """A reader: `row(index, columns)`, and `get_many(indices, columns, out)` where it has that."""

    @property
    def reader(self) -> Any:
        """The reader of this process."""
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

    def __len__(self) -> int:
        return self.stretches.num_rows

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        """Rows in the order asked for: log_id and timestamp where there are any, then the named columns."""
        reader = self.reader
        if len(positions) > 1 and hasattr(reader, "get_many"):
            return rows_of(self.batch(positions, names), len(positions))
        return [reader.row(position, names) for position in positions.tolist()]

    def batch(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """Rows as one array or list per column; see `logloom.batches`.

        Args:
            out: arrays to fill, where columns have a fixed shape; the others are ignored.
        """
        reader = self.reader
        if hasattr(reader, "get_many"):
            batch: Batch = reader.get_many(positions, names, out=out)
            return batch
        return stacked_rows(self.rows(positions, names), self.schema.all, self.place, positions)

    def logs(self) -> Sequence[SourceLog]:
        """All logs to convert, by log_id; for kinds of folders whose types needn't be learnt first.

        Raises:
            DatasetError: damage; times that don't ascend.
        """
        raise NotImplementedError(f"{self.place}: its types are learnt first: see `FolderKind.pieces`")

    def blocks(
        self, log_id: str, part: LogRange, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20
    ) -> Iterator[Block]:
        """The rows of a part in order, with `timestamp` and the named columns; None is all, ages included.

        Raises:
            DatasetError: files are damaged, gone, or hold something else than when `logs` was asked.
        """
        raise NotImplementedError(f"{self.place}: its types are learnt first: see `FolderKind.pieces`")


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

    @property
    def schema(self) -> Schema:
        return self._schema

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
        found: list[Any] = list(ahead(lambda part: part.stamps, self._every_part(), _THREADS))
        return np.concatenate([np.empty(0, np.int64), *found])

    def _every_part(self) -> Iterable[RowSource]:
        return self._parts

    @functools.cached_property
    def small(self) -> Mapping[str, Array]:
        first = self._parts[0].small if self._parts else {}
        names = [name for name in first if all(name in part.small for part in self._parts)]
        return {name: np.concatenate([part.small[name] for part in self._parts]) for name in names}

    def _open(self) -> Any:
        raise NotImplementedError("the parts open themselves")

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


class UnitsSource(ChainedSource):
    """The rows of a plain folder, unit after unit, each of which knows its schema."""

    def __init__(self, store: Store, kind: str, readers: Sequence[Reader]):
        """
        Raises:
            DatasetError: there are no units.
            UsageError: units have different columns.
        """
        if not readers:
            raise DatasetError(f"{store.uri}: {kind} without units")
        for number, reader in enumerate(readers):
            if reader.schema != readers[0].schema:
                raise UsageError(
                    f"{store.uri}: unit {number} has other columns than the first; open them one by one"
                )
        parts = [ReaderSource(store.uri, functools.partial(_itself, reader)) for reader in readers]
        super().__init__(store.uri, parts, readers[0].schema, None)
        self.kind, self.unknown = kind, f"plain folders of {kind}"
        self._store = store

    def logs(self) -> Sequence[SourceLog]:
        """See `RowSource.logs`: a part for each log of a unit."""
        content, size = content_of(self._store, walk(self._store, ("",)))
        parts: dict[str, list[LogRange]] = {}
        for number, unit in enumerate(self._parts):
            for log_id, first, stop in unit.stretches.spans():
                assert unit.stamps is not None
                rows, stamps = stop - first, unit.stamps[first:stop].tolist()
                identity = digest_of([content, number, first, rows])[:32]
                share = size * rows // len(self)
                where = (number, first)
                part = LogRange(f"{number:06}", stamps[0], stamps[-1] + 1, rows, identity, where, share)
                parts.setdefault(log_id, []).append(part)
        return [
            SourceLog.of(log_id, self.place, end_to_end(log_id, own, self.place))
            for log_id, own in sorted(parts.items())
        ]

    def blocks(
        self, log_id: str, part: LogRange, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20
    ) -> Iterator[Block]:
        """See `RowSource.blocks`."""
        number, first = part.where
        at = 0
        for block in self._parts[number].reader.blocks(columns, max_bytes):
            low, high = max(first - at, 0), min(first + part.rows - at, len(block))
            if low < high:
                yield Block(log_id, part.name, at + low - first, block.take(slice(low, high)))
            at += len(block)


class ReaderSource(RowSource):
    """The rows of one unit, read by its format's own reader."""

    def __init__(self, place: str, opener: Callable[[], Reader], told: Stretches | None = None):
        """Opens nothing yet.

        Args:
            opener: gives the reader; picklable.
            told: what a manifest says of the rows; None where there is none.
        """
        self.place, self._opener, self._told = place, opener, told

    @property
    def schema(self) -> Schema:
        schema: Schema = self.reader.schema
        return schema

    @functools.cached_property
    def _keys(self) -> tuple[Stretches, Ints]:
        blocks = list(self.reader.blocks(()))
        runs = [
            (log_id, sum(map(len, run)))
            for log_id, run in itertools.groupby(blocks, lambda block: block.log_id)
        ]
        stamps = np.concatenate([np.empty(0, np.int64), *(block.timestamp for block in blocks)])
        return Stretches.of_logs([log_id for log_id, _ in runs], [rows for _, rows in runs]), stamps

    @property
    def stretches(self) -> Stretches:
        return self._keys[0] if self._told is None else self._told

    @property
    def stamps(self) -> Ints:
        return self._keys[1]

    def _open(self) -> Reader:
        return self._opener()


def _itself(reader: Reader) -> Reader:
    return reader
