"""Rows of several units as one sequence: what readers of tar shards and of folders of bags have in common.

Here: `UnitRows`, which knows in which unit a row lies and which columns are meant, and makes batches; and
`LoadedReader`, for formats of units so small that they are read whole.
Elsewhere: reading the row (each format's reader).
"""

from __future__ import annotations

import abc
import bisect
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logloom.blocks import Array, Block, Ragged, Values, concatenate, python_value, take
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.rows.batches import Batch, rows_of
from logloom.io.rows.sources import RowSource
from logloom.schema import ColumnType, Schema

Run = tuple[Sequence[str], Array, Mapping[str, Values]]  # log_ids, timestamps and columns of some rows


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
        self._selected: dict[tuple[str, ...], tuple[str, ...]] = {}

    @abc.abstractmethod
    def _row_counts(self) -> Iterable[int]:
        """How many rows each unit has."""

    def __len__(self) -> int:
        return self._row_bounds()[-1]

    def rows(self, positions: NDArray[np.int64], names: Sequence[str]) -> list[dict[str, Any]]:
        if len(positions) > 1:
            return rows_of(self.get_many(positions, names), len(positions))
        return [self.row(position, names) for position in positions.tolist()]

    def batch(
        self, positions: NDArray[np.int64], names: Sequence[str], out: Mapping[str, Array] | None = None
    ) -> Batch:
        return self.get_many(positions, names, out)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Many rows in the order asked for, as loaders ask for them."""
        return [self.row(index) for index in indices]

    @abc.abstractmethod
    def _run(self, number: int, start: int, stop: int, names: Sequence[str]) -> Run:
        """Rows from `start` on of one unit: those up to `stop`, or fewer where these need several reads."""

    def get_many(
        self, indices: ArrayLike, columns: Sequence[str] | None = None, out: Mapping[str, Array] | None = None
    ) -> dict[str, Any]:
        """Many rows as one array per column; rows that follow each other are read together, each once.

        Args:
            indices: (n,) rows in any order, repeating or not; at least one.
            columns: as for `row`.
            out: arrays to fill by column name, for columns of fixed shape: (n, *shape).

        Returns:
            log_id: list of n; timestamp: (n,); a column of fixed shape: (n, *shape); a ragged one: (values,
            lengths) with values (total, *tail) and lengths (n,), or (n, r) for r ragged axes; bytes and
            strings: list of n.

        Raises:
            IndexError: there is no such row.
            DatasetError: what is stored is damaged, or of other types than the schema says.
        """
        names = self._names(columns)
        rows, back = np.unique(self._positions(indices), return_inverse=True)
        runs = list(self._runs(rows, names))
        log_ids = [log_id for run in runs for log_id in run[0]]
        batch: dict[str, Any] = {
            "log_id": [log_ids[row] for row in back.tolist()],
            "timestamp": np.concatenate([run[1] for run in runs])[back],
        }
        types = self.schema.all
        for name in names:
            values = take(concatenate([run[2][name] for run in runs]), back)
            batch[name] = batched(name, values, types[name])
        for name, array in (out or {}).items():
            if isinstance(batch.get(name), np.ndarray):
                array[...] = batch[name]
                batch[name] = array
        return batch

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

    def _place_of(self, index: int) -> tuple[int, int]:
        """The number of the unit that holds a row, and the row's number in it.

        Raises:
            IndexError: there is no such row.
        """
        bounds, index = self._row_bounds(), self._position(index)
        number = bisect.bisect_right(bounds, index) - 1
        return number, index - bounds[number]

    def _names(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        """The columns that are meant; all but ages and availabilities by default."""
        if columns is None:
            return tuple(self.schema.columns)
        key = (columns,) if isinstance(columns, str) else tuple(columns)
        if key not in self._selected:
            self._selected[key] = self.schema.select(key)
        return self._selected[key]


def clipped(cuts: Iterable[tuple[int, int]], low: int, high: int | None) -> Iterator[tuple[int, int]]:
    """What of some ranges lies within [low, high); None is no limit."""
    for start, stop in cuts:
        start, stop = max(start, low), stop if high is None else min(stop, high)
        if start < stop:
            yield start, stop


def batched(name: str, values: Values, ctype: ColumnType) -> Any:
    """A column as `get_many` gives it."""
    if ctype.kind != "array":
        try:
            return [python_value(value, ctype) for value in values]
        except UnicodeDecodeError as error:
            raise DatasetError(f"a value of {name} is no UTF-8 ({error})") from error
    if isinstance(values, Ragged):
        return values.values, values.shapes if ctype.num_ragged > 1 else values.shapes[:, 0]
    return values


class LoadedReader(RowSource):
    """A source that loads its unit whole when it is first asked.

    Pickles without what it loaded, serves many threads, and crosses a fork.
    """

    @abc.abstractmethod
    def load(self) -> tuple[Schema, Block | None]:
        """Reads the unit.

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

    def _blocks(self, names: Sequence[str], max_bytes: int, start: int, stop: int | None) -> Iterator[Block]:
        block = self._loaded[1]
        if block is None:
            return
        step = max(1, max_bytes * len(block) // max(1, block.nbytes))
        last = len(block) if stop is None else stop
        for first in range(start, last, step):
            rows = slice(first, min(first + step, last))
            found = {name: take(block.columns[name], rows) for name in ("timestamp", *names)}
            yield Block(block.log_id, block.partition, first - start, found)
