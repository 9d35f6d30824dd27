"""The protocol for reading rows of any format, of a unit or of a whole dataset.

Here: `RowSource`, from which builds, commands, training and Beam's pipelines read rows; and `DatasetSource`,
for datasets that describe their rows themselves.
Elsewhere: the formats' own sources (in each format's package), several sources as one (chain), the logs and
splits of rows (log_ranges), selection and order of a dataset's rows (logloom.datasets.dataset), batches
(logloom.io.rows.batches).

A source numbers its rows from 0 in stored order: those of a log follow each other, by timestamp.
"""

from __future__ import annotations

import abc
import functools
import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from logloom.blocks import Array, Block, Ragged, Values, concatenate, python_value, take
from logloom.caching import cached_property
from logloom.errors import DatasetError, UsageError
from logloom.io.rows.batches import Batch, ragged_of, rows_of, tuple_of
from logloom.io.rows.log_ranges import Ints, LogRange, SourceLog, SplitLabels, Stretches
from logloom.io.storage.store import Store
from logloom.schema import ColumnType, Schema
from logloom.values import dataclass

if TYPE_CHECKING:
    from logloom.io.catalog.intervals import Intervals
    from logloom.statistics.columns import Statistics

BLOCK_BYTES = 64 << 20
Columns = Sequence[str] | None  # names or globs; the meaning of None is that of each function
Run = tuple[Sequence[str], Array, Mapping[str, Values]]  # log_ids, timestamps and columns of some rows
_FIRST_ROWS = 64  # of a block, before anything is known of the size of a row
_GROUP_ROWS = 1024
_GROUP_BYTES = 8 << 20
_VARYING_BYTES = 64 << 10  # about what a picture or a list takes, where only its type is known


@dataclass(frozen=True)
class About:
    """Facts on a dataset that a conversion records beside its rows.

    Attributes:
        name: of the new dataset.
        recipe: what its manifest has instead of a recipe.
        notes: for people, how rows were made.
        hints: options by output format that keep more of what is here, such as which bytes are jpg.
    """

    name: str
    recipe: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    hints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Share:
    """Consecutive rows that a worker reads alone.

    Attributes:
        source: contains them, and pickles small; None for the source that lists its shares, which a worker
            opens again.
        partition: of the rows within their log.
        log_id: of all rows; None if only their source records it.
        first_row: the number of the first row within its partition.
        start, stop: positions in the source; None for the end.
        size: about how many bytes they take in storage; 0 if unknown.
        is_stream: whether rows in the middle can only be read from the start.
    """

    source: RowSource | None
    partition: str
    log_id: str | None = None
    first_row: int = 0
    start: int = 0
    stop: int | None = None
    size: int = 0
    is_stream: bool = False


class RowSource(abc.ABC):
    """Rows by position: those of a unit, of a folder, of a version.

    A subclass gives the schema and either `scan` or `take`, each the default of the other, or both where
    each can do better. Opens files on first use; pickles without these and without caches;
    thread-safe and fork-safe. Never returns a value that may be wrong.

    Attributes:
        place: the URI, for messages.
        kind: what `--from` calls it.
        period: of a rate clock, in ns; None where rows have none.
        max_gap: ns between two rows of a log beyond which no window goes; None: no limit.
        has_stamps: whether rows have a log_id and a timestamp.
        key_name: under which name rows have a key, a text; "" where they have none.
        unknown: what can't be checked, for people; "" where all that is read can.
        left_out: what the dataset has that rows don't have, and why.
        refused: those of `left_out` that would be columns, but can't be read.
        counted: gives the statistics of some columns over all rows, where builds counted them; None where
            they didn't. See `logloom.statistics`.
        intervals: gives what was saved with the version by name; None where rows are of no version.
        find_splits: gives the splits of single rows; None where each log is in one.
    """

    place: str = ""
    kind: str = ""
    period: int | None = None
    max_gap: int | None = None
    has_stamps: bool = True
    key_name: str = ""
    unknown: str = ""
    left_out: Mapping[str, str] = MappingProxyType({})
    refused: Mapping[str, str] = MappingProxyType({})
    counted: Callable[[Sequence[str]], Statistics] | None = None
    intervals: Callable[[str], Intervals] | None = None
    find_splits: Callable[[], SplitLabels] | None = None
    _schema: Schema

    # --- what there is ----------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """Of the rows."""
        return self._schema

    @property
    def about(self) -> About:
        """What a conversion records beside rows."""
        name = self.place.rstrip("/").rpartition("/")[2]
        return About(name, {"name": name, "columns": {}, "convert": {"from": self.place, "kind": self.kind}})

    @cached_property
    def _by_blocks(self) -> tuple[Stretches, Ints]:
        blocks = list(self.scan(()))
        runs = [
            (log_id, sum(map(len, run)))
            for log_id, run in itertools.groupby(blocks, lambda block: block.log_id)
        ]
        stamps = np.concatenate([np.empty(0, np.int64), *(block.timestamp for block in blocks)])
        return Stretches.of_logs([log_id for log_id, _ in runs], [rows for _, rows in runs]), stamps

    @property
    def stretches(self) -> Stretches:
        """The logs that rows belong to; by default one scan finds them."""
        return self._by_blocks[0]

    @cached_property
    def row_splits(self) -> SplitLabels | None:
        """The splits of single rows; None where each log is in one, see `stretches`."""
        return None if self.find_splits is None else self.find_splits()

    @property
    def stamps(self) -> Ints | None:
        """(rows,) timestamps, int64 ns since the Unix epoch; None where rows have none."""
        return self._by_blocks[1]

    @property
    def small(self) -> Mapping[str, Array]:
        """Columns that are in memory anyway, (rows,) each."""
        return {}

    def group_bounds(self, names: Sequence[str]) -> Ints:
        """(G + 1,) where groups of rows begin that are best read together; found without reading values.

        By default ranges of about 8 MiB by the types of columns, and of 1,024 rows at most.

        Args:
            names: of the columns to read, each in the schema.
        """
        return row_ranges(len(self), self._row_bytes(names))

    def _row_bytes(self, names: Sequence[str]) -> int:
        """About how many bytes a row takes, by the types of columns."""
        types = self.schema.all
        return sum(_size_of(types[name]) for name in names)

    def __len__(self) -> int:
        return self.stretches.num_rows

    # --- rows: what sources define ----------------------------------------------------------------------

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """Rows as one array or list per column; see `logloom.io.rows.batches`.

        By default each run of rows that follow each other is scanned once.

        Args:
            positions: (n,) numbers of rows, from 0; in any order, repeating or not.
            names: of columns, each in the schema.
            out: arrays to fill, where columns have a fixed shape; the others are ignored.
        """
        if not len(positions):
            return {}
        rows, back = np.unique(positions, return_inverse=True)
        runs = list(self._runs(rows, names))
        batch: Batch = {}
        if self.has_stamps:
            log_ids = [log_id for run in runs for log_id in run[0]]
            batch["log_id"] = [log_ids[row] for row in back.tolist()]
            batch["timestamp"] = np.concatenate([run[1] for run in runs])[back]
        types = self.schema.all
        is_plain = len(back) == 1 or bool((back == np.arange(len(back))).all())
        for name in names:
            values = runs[0][2][name] if len(runs) == 1 else concatenate([run[2][name] for run in runs])
            batch[name] = batched(self.place, name, values if is_plain else take(values, back), types[name])
        for name, array in (out or {}).items():
            if isinstance(batch.get(name), np.ndarray):
                array[...] = batch[name]
                batch[name] = array
        return batch

    def _runs(self, rows: Ints, names: Sequence[str]) -> Iterator[Run]:
        """Read ascending rows, in any number of runs."""
        cuts = (np.flatnonzero(np.diff(rows) != 1) + 1).tolist()
        for first, last in itertools.pairwise([0, *cuts, len(rows)]):
            for block in self.scan(names, BLOCK_BYTES, int(rows[first]), int(rows[last - 1]) + 1):
                yield [block.log_id] * len(block), block.timestamp, block.columns

    @property
    def structs(self) -> Mapping[str, ColumnType]:
        """Types of columns that rows have as Python objects, and filters see as structured arrays."""
        return {}

    def take_structs(self, positions: Ints, names: Sequence[str]) -> Batch:
        """Columns of `structs` as structured arrays, or (values, lengths).

        Args:
            positions: (n,) numbers of rows, from 0.
            names: of columns, each in `structs`.

        Returns:
            A batch of these columns alone.
        """
        raise NotImplementedError

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        """Rows in the order asked for: log_id and timestamp where there are any, then the named columns.

        Args:
            positions: (n,) numbers of rows, from 0; in any order, repeating or not.
            names: of columns, each in the schema.
        """
        return rows_of(self.take(positions, names), len(positions))

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """Rows [start, stop) in order, in blocks of about `max_bytes`, each of one log, of one row at least.

        By default they are taken by number.

        Args:
            names: of columns, each in the schema; blocks have `timestamp` too.
            max_bytes: about how much a block holds.
            start: the first row.
            stop: the row after the last; None is the end.

        Raises:
            DatasetError: files are damaged, gone, or hold something else than before.
        """
        step = _FIRST_ROWS
        for log_id, first, last in self.stretches.between(start, stop):
            at = first
            while at < last:
                positions = np.arange(at, min(at + step, last))
                batch = self.take(positions, names)
                found = {name: values_of(batch[name], f"{self.place}: {name}") for name in names}
                stamps = batch["timestamp"] if self.has_stamps else positions
                block = Block(log_id, "", at - first, {"timestamp": stamps, **found})
                yield block
                at += len(block)
                step = max(1, min(max_bytes * len(block) // max(1, block.nbytes), 4 * step))

    # --- rows: under the names that users know; not to be overridden --------------------------------------

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Row `index`, without ages and availabilities."""
        return self.row(index)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Many rows in the order asked for, as loaders ask for them."""
        return self.rows(self._positions(indices), self._names(None))

    def row(self, index: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Row `index`: log_id and timestamp where there are any, then the columns.

        Args:
            index: from 0; negative ones count from the end.
            columns: names or globs; all but ages and availabilities by default.

        Returns:
            The values by name: numpy values, bytes for bytes, str for strings.

        Raises:
            IndexError: there is no such row.
            DatasetError: what is stored is damaged.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self.rows(np.array([index % len(self)]), self._names(columns))[0]

    def get_many(
        self, indices: ArrayLike, columns: Sequence[str] | None = None, out: Mapping[str, Array] | None = None
    ) -> Batch:
        """Many rows as one array per column.

        Args:
            indices: (n,) rows in any order, repeating or not; at least one.
            columns: as for `row`.
            out: arrays to fill by column name, for columns of fixed shape: (n, *shape).

        Returns:
            log_id: list of n; timestamp: (n,); a column of fixed shape: (n, *shape); a ragged one: (values,
            lengths) with values (total, *tail) and lengths (n,), or (n, r) for r ragged axes; lists of
            lists: (values, counts, lengths), with counts (n,) of the lists of each row and the lengths of
            all lists; bytes and strings: list of n.

        Raises:
            IndexError: there is no such row.
            DatasetError: what is stored is damaged, or of other types than the schema says.
        """
        return self.take(self._positions(indices), self._names(columns), out)

    def blocks(
        self, columns: Columns = None, max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """Rows [start, stop) in order; see `scan`.

        Args:
            columns: names or globs, beside `timestamp`; None is all, ages and availabilities too.
            max_bytes: about how much a block holds.
            start: the first row.
            stop: the row after the last; None is the end.

        Raises:
            DatasetError: files are damaged, gone, or hold something else than before.
        """
        names = tuple(self.schema.all) if columns is None else self._names(columns)
        return self.scan(names, max_bytes, start, stop)

    def _positions(self, indices: ArrayLike) -> Ints:
        """(n,) rows from 0, of rows of which negative ones count from the end."""
        found, length = np.asarray(indices).reshape(-1), len(self)
        outside = (found < -length) | (found >= length)  # before uint64 wraps around
        if outside.any():
            raise IndexError(f"{self.place}: row {found[outside][0]} of {length}")
        rows = found.astype(np.int64)
        return np.where(rows < 0, rows + length, rows)

    @cached_property
    def _selected(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        return {}

    def _names(self, columns: Columns) -> tuple[str, ...]:
        """The columns that are meant; all but ages and availabilities by default."""
        if columns is None:
            return tuple(self.schema.columns)
        key = (columns,) if isinstance(columns, str) else tuple(columns)
        if key not in self._selected:
            self._selected[key] = self.schema.select(key)
        return self._selected[key]

    # --- beside others ----------------------------------------------------------------------------------

    def leaves(self) -> Sequence[RowSource]:
        """The sources that this one puts end to end; by default itself."""
        return [self]

    def joined(self, others: Sequence[RowSource]) -> RowSource | None:
        """Join these rows and those of others behind them, so that a batch of them is one read; for `take`.

        Args:
            others: the sources behind this one.

        Returns:
            The joined source; None where it would be no quicker than one after the other.
        """
        return None

    # --- for workers ------------------------------------------------------------------------------------

    def shares(self) -> Sequence[Share]:
        """List what workers may read alone, in row order; by default the partitions of logs."""
        return shares_of(self.stretches.by_partition)

    def logs(self) -> Sequence[SourceLog]:
        """All logs to convert, by log_id.

        Raises:
            DatasetError: damage; times that don't ascend.
        """
        raise UsageError(f"{self.place}: no dataset that can be converted")

    def scan_part(self, part: LogRange, names: Sequence[str], max_bytes: int) -> Iterator[Block]:
        """The rows of a part of `logs`, as `scan` gives them.

        Args:
            part: of one of `logs`.
            names: of columns.
            max_bytes: about how much a block holds.
        """
        return self.scan(names, max_bytes, part.where, part.where + part.rows)

    def __getstate__(self) -> dict[str, Any]:
        made = _cached_names(type(self))
        return {key: value for key, value in self.__dict__.items() if key not in made}


def row_ranges(num_rows: int, row_bytes: float, chunk: int = 1) -> Ints:
    """(G + 1,) bounds of ranges of about 8 MiB, of 1,024 rows at most; of whole chunks, of one at least.

    Args:
        row_bytes: of a row, about.
        chunk: rows that are read together anyway.
    """
    step = min(_GROUP_ROWS, int(_GROUP_BYTES // max(1, row_bytes)))
    step = max(1, step // chunk) * chunk
    return np.append(np.arange(0, num_rows, step, dtype=np.int64), num_rows)


def joined_bounds(bounds: Iterable[Ints]) -> Ints:
    """The bounds of ranges of several sources, one after the other; each has its own, from 0."""
    found = [np.zeros(1, np.int64)]
    for own in bounds:
        found.append(own[1:] + found[-1][-1:])
    return np.concatenate(found)


def _size_of(ctype: ColumnType) -> int:
    """About how many bytes a value takes."""
    if ctype.kind == "string":
        return ctype.dtype.itemsize
    count = math.prod(axis or 1 for axis in ctype.shape)
    return max(_VARYING_BYTES * ctype.is_ragged, ctype.dtype.itemsize * count)


def shares_of(stretches: Stretches) -> list[Share]:
    """A share for each stretch of a source; rows of one partition are numbered across its stretches."""
    numbered: Counter[tuple[str, str]] = Counter()
    shares = []
    spans = zip(stretches.spans(), stretches.partitions, strict=True)
    for (log_id, start, stop), partition in spans:
        first_row = numbered[log_id, partition]
        shares.append(Share(None, partition, log_id, first_row, start, stop))
        numbered[log_id, partition] += stop - start
    return shares


class DatasetSource(RowSource):
    """The rows of a dataset whose files describe them in full."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        known: Stretches | None = None,
    ):
        """Read the dataset's metadata, or defer this until it is needed.

        Args:
            known: facts on the rows in a version's manifest; None without one.

        Raises:
            DatasetError: there is no such dataset, or it is damaged.
        """
        self._store, self._known = Store.at(os.fspath(path), storage_options), known
        self.place = self._store.uri
        if known is None:
            self.unknown = self._unchecked()

    @abc.abstractmethod
    def _unchecked(self) -> str:
        """What of the dataset can't be checked; as `unknown`."""

    @property
    @abc.abstractmethod
    def _own(self) -> Stretches:
        """The rows by log, as the dataset itself has them."""

    @property
    def stretches(self) -> Stretches:
        return self._own if self._known is None else self._known


def check_count(place: str, rows: int, known: Stretches | None) -> None:
    """Make sure that a dataset has as many rows as its manifest says.

    Raises:
        DatasetError: it has more or fewer.
    """
    if known is not None and rows != known.num_rows:
        raise DatasetError(f"{place}: {rows} rows, the manifest has {known.num_rows}; see `logloom verify`")


def batched(place: str, name: str, values: Values, ctype: ColumnType) -> Any:
    """A column as batches have it."""
    if isinstance(values, Ragged) and ctype.kind in ("array", "lists"):
        return tuple_of(values)
    if ctype.kind != "array":
        try:
            return [python_value(value, ctype) for value in values]
        except UnicodeDecodeError as error:
            raise DatasetError(f"{place}: a value of {name} isn't UTF-8 ({error})") from error
    return values


def values_of(column: Any, place: str) -> Values:
    """A column of a batch as blocks hold it.

    Raises:
        UsageError: Python objects, which blocks don't hold.
    """
    if isinstance(column, tuple):
        return ragged_of(column)
    if isinstance(column, list):
        return Ragged.from_bytes([v.encode() if isinstance(v, str) else v for v in column])
    if column.dtype.hasobject:
        raise UsageError(f"{place}: its type is unknown before a conversion has inferred it")
    array: Values = column
    return array


@functools.cache
def _cached_names(kind: type) -> frozenset[str]:
    return frozenset(
        name
        for base in kind.__mro__
        for name, value in vars(base).items()
        if isinstance(value, cached_property)
    )
