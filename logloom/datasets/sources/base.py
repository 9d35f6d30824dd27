"""What every source of rows offers.

Here: `RowSource`, and `Stretches`, which say what rows belong to without reading any.
Elsewhere: the sources (beside this module), which of their rows a dataset shows and in which order
(logloom.datasets.dataset), rows into batches (logloom.datasets.batches).

A source numbers its rows from 0 in stored order: those of a log follow each other, by timestamp.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets.batches import Batch, rows_of, scattered, stacked_rows
from logloom.errors import DatasetError, LogloomError
from logloom.schema import Schema

Ints = NDArray[np.int64]

_THREADS = 8  # that ask for timestamps, each of another file


@dataclass(frozen=True)
class Stretches:
    """What consecutive rows belong to.

    Attributes:
        log_ids, partitions, splits: (S,) of each stretch; "" where there are none.
        counts: (S,) int64, how many rows it has.
        owners: (S,) numbers of the datasets that stretches belong to; () where all are of one. Logs of two
            are two logs, whatever they are called.
    """

    log_ids: Sequence[str]
    partitions: Sequence[str]
    splits: Sequence[str]
    counts: Ints
    owners: Sequence[int] = ()

    @classmethod
    def of_logs(cls, log_ids: Sequence[str], counts: Sequence[int]) -> Stretches:
        """Logs that are neither partitioned nor split."""
        blank = [""] * len(log_ids)
        return cls(log_ids, blank, blank, np.asarray(counts, np.int64).reshape(-1))

    @classmethod
    def of_rows(cls, log_ids: Sequence[str]) -> Stretches:
        """Rows by the log_id of each."""
        starts = [0, *(n for n in range(1, len(log_ids)) if log_ids[n] != log_ids[n - 1])][: len(log_ids)]
        return cls.of_logs([log_ids[n] for n in starts], np.diff([*starts, len(log_ids)]).tolist())

    @classmethod
    def joined(cls, parts: Sequence[Stretches], apart: bool = False) -> Stretches:
        """The stretches of several sources, one after the other; `apart`: each is a dataset of its own."""
        owners = [
            (number, owner)
            for number, part in enumerate(parts)
            for owner in part.owners or [0] * len(part.log_ids)
        ]
        numbers = {owner: number for number, owner in enumerate(dict.fromkeys(owners))}
        return cls(
            [log_id for part in parts for log_id in part.log_ids],
            [partition for part in parts for partition in part.partitions],
            [split for part in parts for split in part.splits],
            np.concatenate([np.empty(0, np.int64), *(part.counts for part in parts)]),
            [numbers[owner] for owner in owners] if apart or any(part.owners for part in parts) else (),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (Stretches, (self.log_ids, self.partitions, self.splits, self.counts, self.owners))

    @functools.cached_property
    def bounds(self) -> Ints:
        """(S + 1,) where each stretch begins."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    @property
    def num_rows(self) -> int:
        return int(self.bounds[-1])

    def log_starts(self) -> Ints:
        """(S,) for each stretch the position of its log's first row."""
        owners = self.owners or [0] * len(self.log_ids)
        logs = list(zip(owners, self.splits, self.log_ids, strict=True))
        firsts = [0, *(n for n in range(1, len(logs)) if logs[n] != logs[n - 1])][: len(logs)]
        lengths = np.diff([*firsts, len(logs)])
        return np.repeat(self.bounds[firsts], lengths)

    def number_of(self, positions: Ints) -> Ints:
        """(n,) the stretch that each row lies in."""
        return np.searchsorted(self.bounds, positions, side="right") - 1


class RowSource(abc.ABC):
    """All rows of a dataset, by position.

    Opens what it reads when first asked; pickles without it; a forked process opens its own.

    Attributes:
        place: the URI, for messages.
        max_gap: ns between two rows of a log beyond which no window goes; None: no limit.
        has_stamps: whether rows have a log_id and a timestamp.
        unknown: what can't be checked, for people; "" where all that is read can.
        left_out: what lies there that rows don't have, and why.
    """

    place: str
    max_gap: int | None = None
    has_stamps: bool = True
    unknown: str = ""
    left_out: Mapping[str, str] = MappingProxyType({})
    _opened: tuple[int, Any] | None = None

    @property
    @abc.abstractmethod
    def schema(self) -> Schema: ...

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
        """Rows as one array or list per column; see `logloom.datasets.batches`.

        Args:
            out: arrays to fill, where columns have a fixed shape; the others are ignored.
        """
        reader = self.reader
        if hasattr(reader, "get_many"):
            batch: Batch = reader.get_many(positions, names, out=out)
            return batch
        return stacked_rows(self.rows(positions, names), self.schema.all, self.place, positions)


@functools.cache
def _cached_names(kind: type) -> frozenset[str]:
    properties = functools.cached_property
    return frozenset(
        name for base in kind.__mro__ for name, value in vars(base).items() if isinstance(value, properties)
    )


class OpenRows(Protocol):
    """What a module that a format names as its `source` calls `open_rows`."""

    def __call__(
        self,
        uri: str,
        storage_options: Mapping[str, Any],
        told: Stretches | None = None,
        columns: Sequence[str] | None = None,
    ) -> RowSource:
        """Opens a plain folder, or what a version has assembled.

        Args:
            told: what a version's manifest says of the rows; None where there is none.
            columns: names or globs of the columns that are wanted, where others may be what they like.

        Raises:
            DatasetError: it is damaged.
        """
        ...


class ChainedSource(RowSource):
    """Sources one after the other: the units of an output, or its splits."""

    def __init__(
        self,
        place: str,
        parts: Sequence[RowSource],
        schema: Schema,
        max_gap: int | None,
        timed_by: tuple[RowSource, Ints] | None = None,
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
                    return source.stamps[positions]
        with ThreadPoolExecutor(_THREADS) as pool:
            found: list[Any] = list(pool.map(lambda part: part.stamps, self._parts))
        return np.concatenate([np.empty(0, np.int64), *found])

    @functools.cached_property
    def small(self) -> Mapping[str, Array]:
        first = self._parts[0].small if self._parts else {}
        names = [name for name in first if all(name in part.small for part in self._parts)]
        return {name: np.concatenate([part.small[name] for part in self._parts]) for name in names}

    def _open(self) -> Any:
        raise NotImplementedError("the parts open themselves")

    def _groups(self, positions: Ints) -> list[tuple[RowSource, Ints, Ints]]:
        """(part, which of `positions` lie in it, their positions there) for each part that is touched."""
        numbers = np.searchsorted(self._bounds, positions, side="right") - 1
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        groups = []
        for start, stop in itertools.pairwise([0, *cuts.tolist(), len(order)]):
            where = order[start:stop]
            if len(where):
                number = int(numbers[where[0]])
                groups.append((self._parts[number], where, positions[where] - self._bounds[number]))
        return groups

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
