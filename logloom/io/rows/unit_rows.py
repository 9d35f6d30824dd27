"""Rows of several units as one sequence, for tar shards and folders of bags.

Here: `UnitRows`, which finds the unit of a row, selects columns and makes batches; and `LoadedReader`, for
formats whose units are so small that they are read whole.
Elsewhere: reading a row (each format's reader).
"""

from __future__ import annotations

import abc
import bisect
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Block, take
from logloom.caching import cached_property
from logloom.io.rows.sources import BLOCK_BYTES, RowSource, Run
from logloom.schema import Schema


def uris_of(uris: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """One URI or path, or many, as a list."""
    return [os.fspath(uri) for uri in ([uris] if isinstance(uris, str | os.PathLike) else uris)]


class UnitRows(RowSource):
    """Units that follow each other; counts their rows when first asked for one."""

    def __init__(self, schema: Schema, uris: Sequence[str]):
        self._schema = schema
        self.place = uris[0] if uris else ""
        self._num_units = len(uris)
        self._bounds: list[int] | None = None

    @abc.abstractmethod
    def _row_counts(self) -> Iterable[int]:
        """How many rows each unit has."""

    def __len__(self) -> int:
        return self._row_bounds()[-1]

    @abc.abstractmethod
    def _run(self, number: int, start: int, stop: int, names: Sequence[str]) -> Run:
        """Rows from `start` on of one unit: those up to `stop`, or fewer where these need several reads."""

    @abc.abstractmethod
    def _cuts(self, number: int, names: Sequence[str], max_bytes: int) -> Iterator[tuple[int, int]]:
        """Return where to cut a unit into ranges of about `max_bytes`, one read each."""

    @abc.abstractmethod
    def _partition(self, number: int) -> str:
        """Of a unit's blocks."""

    @abc.abstractmethod
    def _row(self, position: int, names: Sequence[str]) -> dict[str, Any]:
        """A single row: half the time that a batch of one takes."""

    def rows(self, positions: NDArray[np.int64], names: Sequence[str]) -> list[dict[str, Any]]:
        if len(positions) > 1:
            return super().rows(positions, names)
        return [self._row(position, names) for position in positions.tolist()]

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """See `RowSource.scan`; a block is of one unit, of which a log may have any rows."""
        for number, low, high in self._spans(start, stop):
            for begin, end in clipped(self._cuts(number, names, max_bytes), low, high):
                log_ids, stamps, columns = self._run(number, begin, end, names)
                first = 0
                for log_id, group in itertools.groupby(log_ids):
                    last = first + len(list(group))
                    found = {"timestamp": stamps, **columns}
                    if last - first < len(log_ids):
                        found = {name: take(values, slice(first, last)) for name, values in found.items()}
                    yield Block(log_id, self._partition(number), begin - low + first, found)
                    first = last
            self._release(number)

    def _release(self, number: int) -> None:
        """Let go of a unit that was scanned; by default nothing."""

    def _runs(self, rows: NDArray[np.int64], names: Sequence[str]) -> Iterator[Run]:
        """Ascending rows, in as few reads as there are runs of them within units."""
        bounds = np.asarray(self._row_bounds())
        units = np.searchsorted(bounds, rows, side="right") - 1
        ends = np.flatnonzero((np.diff(rows) != 1) | (np.diff(units) != 0)) + 1
        for first, last in itertools.pairwise([0, *ends.tolist(), len(rows)]):
            number = int(units[first])
            start, stop = int(rows[first] - bounds[number]), int(rows[last - 1] + 1 - bounds[number])
            while start < stop:
                run = self._run(number, start, stop, names)
                yield run
                start += len(run[0])

    def _spans(self, start: int, stop: int | None) -> Iterator[tuple[int, int, int | None]]:
        """(number of a unit, first row, row behind the last) for the units that hold rows [start, stop).

        Rows count within the unit; None is its end, so that no unit is counted before it is read.
        """
        if start == 0 and stop is None:
            yield from ((number, 0, None) for number in range(self._num_units))
            return
        for number, (first, last) in enumerate(itertools.pairwise(self._row_bounds())):
            low, high = max(start, first), last if stop is None else min(stop, last)
            if low < high:
                yield number, low - first, high - first

    def _row_bounds(self) -> list[int]:
        if self._bounds is None:
            self._bounds = [0, *itertools.accumulate(self._row_counts())]
        return self._bounds

    def _place_of(self, position: int) -> tuple[int, int]:
        """The number of the unit that holds a row, and the row's number in it."""
        bounds = self._row_bounds()
        number = bisect.bisect_right(bounds, position) - 1
        return number, position - bounds[number]


def clipped(cuts: Iterable[tuple[int, int]], low: int, high: int | None) -> Iterator[tuple[int, int]]:
    """Clip ranges to [low, high); None is no limit."""
    for start, stop in cuts:
        start, stop = max(start, low), stop if high is None else min(stop, high)
        if start < stop:
            yield start, stop


class LoadedReader(RowSource):
    """A source that loads its unit whole on first use.

    Pickles without the loaded rows; thread-safe and fork-safe.
    """

    @abc.abstractmethod
    def load(self) -> tuple[Schema, Block | None]:
        """Read the unit.

        Returns:
            Its schema, and all its rows; None where it has none.

        Raises:
            DatasetError: it is damaged, or missing.
        """

    @cached_property
    def _loaded(self) -> tuple[Schema, Block | None]:
        return self.load()

    @property
    def schema(self) -> Schema:
        """Of its rows."""
        return self._loaded[0]

    def __len__(self) -> int:
        block = self._loaded[1]
        return 0 if block is None else len(block)

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        block = self._loaded[1]
        if block is None:
            return
        step = max(1, max_bytes * len(block) // max(1, block.nbytes))
        last = len(block) if stop is None else stop
        for first in range(start, last, step):
            rows = slice(first, min(first + step, last))
            found = {name: take(block.columns[name], rows) for name in ("timestamp", *names)}
            yield Block(block.log_id, block.partition, first - start, found)
