"""Ranges of rows by log, partition and split; ranges of logs to convert.

They are known without reading the rows.

Here: `Stretches`, runs of rows of one log; `SplitLabels`, for logs whose rows are in several splits; and for
conversions `LogRange` and `SourceLog`.
Elsewhere: the rows themselves (sources).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.caching import cached_property
from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.values import dataclass

Ints = NDArray[np.int64]

# Why rows were left out, in manifests.
DAMAGE = "damage of the source"  # 0 if their number is unknown
FILTERED = "where of the conversion"
_PART_ROWS = 100_000


@dataclass(frozen=True)
class Stretches:
    """Runs of consecutive rows, each of one log, partition and split.

    Attributes:
        log_ids, partitions, splits: (S,) of each stretch; "" where there are none.
        counts: (S,) int64, how many rows it has.
        owners: (S,) numbers of the datasets that stretches belong to; () where all are of one. Logs of two
            are two logs, whatever they are called.
        find_partitions: returns the same rows cut by partition, if these are determined only on demand.
    """

    log_ids: Sequence[str]
    partitions: Sequence[str]
    splits: Sequence[str]
    counts: Ints
    owners: Sequence[int] = ()
    find_partitions: Callable[[], Stretches] | None = None

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
        is_coarse = any(part.find_partitions is not None for part in parts)
        return cls(
            [log_id for part in parts for log_id in part.log_ids],
            [partition for part in parts for partition in part.partitions],
            [split for part in parts for split in part.splits],
            np.concatenate([np.empty(0, np.int64), *(part.counts for part in parts)]),
            [numbers[owner] for owner in owners] if apart or any(part.owners for part in parts) else (),
            functools.partial(_joined_by_partition, parts, apart) if is_coarse else None,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (Stretches, tuple(getattr(self, one.name) for one in fields(self)))

    @cached_property
    def by_partition(self) -> Stretches:
        """The same rows, each stretch of one partition."""
        return self if self.find_partitions is None else self.find_partitions()

    @cached_property
    def bounds(self) -> Ints:
        """(S + 1,) where each stretch begins."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    @property
    def num_rows(self) -> int:
        return int(self.bounds[-1])

    def spans(self) -> list[tuple[str, int, int]]:
        """(log_id, first row, row behind the last) of each stretch."""
        bounds = self.bounds.tolist()
        return list(zip(self.log_ids, bounds[:-1], bounds[1:], strict=True))

    def between(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, int, int]]:
        """As `spans`, of the rows [start, stop) alone; None is the end."""
        bounds = self.bounds
        stop = self.num_rows if stop is None else stop
        first = int(np.searchsorted(bounds, start, side="right")) - 1
        for number in range(first, len(self.log_ids)):
            low, high = max(start, int(bounds[number])), min(stop, int(bounds[number + 1]))
            if low >= stop:
                return
            if low < high:
                yield self.log_ids[number], low, high

    def log_starts(self) -> Ints:
        """(S,) for each stretch the position of its log's first row."""
        owners = self.owners or [0] * len(self.log_ids)
        logs = list(zip(owners, self.splits, self.log_ids, strict=True))
        firsts = [0, *(n for n in range(1, len(logs)) if logs[n] != logs[n - 1])][: len(logs)]
        lengths = np.diff([*firsts, len(logs)])
        return np.repeat(self.bounds[firsts], lengths)

    def number_of(self, positions: Ints) -> Ints:
        """Return (n,) the stretch of each row."""
        return np.searchsorted(self.bounds, positions, side="right") - 1


@dataclass(frozen=True)
class SplitLabels:
    """The splits of single rows.

    Attributes:
        names: of the splits.
        numbers: (N,) int32 the split of each row by its number in `names`; -1 for none.
    """

    names: tuple[str, ...]
    numbers: NDArray[np.int32]

    @classmethod
    def of_runs(cls, names: Sequence[str], counts: Sequence[int] | Ints) -> SplitLabels:
        """Return the splits of rows from runs, each of one split; "" means none."""
        known = tuple(sorted({name for name in names if name}))
        of_name = {name: number for number, name in enumerate(known)}
        numbers = np.array([of_name.get(name, -1) for name in names], np.int32)
        return cls(known, np.repeat(numbers, np.asarray(counts, np.int64)))

    @classmethod
    def joined(cls, parts: Sequence[SplitLabels]) -> SplitLabels:
        """Those of several sources, one after the other."""
        known = tuple(sorted({name for part in parts for name in part.names}))
        moved = [
            np.array([*(known.index(name) for name in part.names), -1], np.int32)[part.numbers]
            for part in parts
        ]
        return cls(known, np.concatenate([np.empty(0, np.int32), *moved]))

    def are_in(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """(N,) which rows are in one of some splits."""
        return np.isin(self.numbers, [self.names.index(name) for name in names if name in self.names])

    @property
    def borders(self) -> NDArray[np.bool_]:
        """(N,) before which rows another split begins."""
        return np.append(True, self.numbers[1:] != self.numbers[:-1])[: len(self.numbers)]

    @property
    def texts(self) -> tuple[str, ...]:
        """The names; if some row is in no split, a last one for it, which -1 selects."""
        return (*self.names, "") if (self.numbers < 0).any() else self.names


def _joined_by_partition(parts: Sequence[Stretches], apart: bool) -> Stretches:
    return Stretches.joined([part.by_partition for part in parts], apart)


@dataclass(frozen=True)
class LogRange:
    """Consecutive rows of one log: what one worker converts, alone.

    Attributes:
        name: within its log.
        start, stop: half-open, int64 ns; the parts of a log follow each other without gaps.
        rows: how many.
        identity: digest of all that the rows depend on.
        where: the source's position of its first row, or whatever else the source knows it by.
        size: about how many bytes they take in storage.
        digests: of columns, as far as they are known.
        tally: how messages were used, where that is known.
    """

    name: str
    start: int
    stop: int
    rows: int
    identity: str
    where: Any
    size: int = 0
    digests: Mapping[str, str] = field(default_factory=dict)
    tally: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceLog:
    """A log to convert.

    Attributes:
        record: for the new manifest, still without key and part.
        parts: in row order; those without rows too.
    """

    record: LogRecord
    parts: tuple[LogRange, ...]

    @classmethod
    def of(cls, log_id: str, uri: str, parts: Sequence[LogRange]) -> SourceLog:
        """A log that no manifest knows."""
        rows = sum(part.rows for part in parts)
        record = LogRecord(
            log_id=log_id,
            uris=(uri,),
            content_id=digest_of([part.identity for part in parts]),
            split="all",
            key="",
            status=LogStatus.whole,
            part="",
            rows=rows,
            planned=rows,
            dropped={},
            refused=0,
        )
        return cls(record, tuple(parts))

    @property
    def log_id(self) -> str:
        return self.record.log_id


def parts_of(log_id: str, stamps: Ints, first_row: int, content: str, size: int) -> list[LogRange]:
    """The rows of a log, cut where they are many; `where` is the position of a part's first row.

    Args:
        stamps: (n,) of its rows.
        first_row: the position of the first one.
        content, size: digest and bytes of its files.
    """
    parts = []
    for number, first in enumerate(range(0, len(stamps), _PART_ROWS)):
        rows = min(_PART_ROWS, len(stamps) - first)
        stop = int(stamps[first + rows]) if first + rows < len(stamps) else int(stamps[-1]) + 1
        identity = digest_of([content, log_id, first, rows])[:32]
        share = size * rows // len(stamps)
        where = first_row + first
        parts.append(LogRange(f"{number:06}", int(stamps[first]), stop, rows, identity, where, share))
    return parts


def end_to_end(log_id: str, parts: Sequence[LogRange], place: str) -> list[LogRange]:
    """The parts of a log, each until the next begins.

    Raises:
        DatasetError: one begins before the one before it ends.
    """
    stops = [part.start for part in parts[1:]] + [parts[-1].stop]
    for part, stop in zip(parts, stops, strict=True):
        if stop < part.stop:
            raise DatasetError(f"{place}: the times of log {log_id} don't ascend from unit to unit")
    return [replace(part, stop=stop) for part, stop in zip(parts, stops, strict=True)]
