"""The one protocol for rows, whatever their format, whoever wrote them, of a unit or of a whole dataset.

Here: `RowSource`, which whatever reads rows reads: builds, the commands, training, Beam's pipelines; and
`DatasetSource`, for datasets that say themselves which rows they have.
Elsewhere: the formats' own sources (in each format's package), several sources as one (chain), what rows
belong to (log_ranges), which of the rows a dataset shows and in which order (logloom.datasets.dataset), rows
into batches (logloom.io.rows.batches).

A source numbers its rows from 0 in stored order: those of a log follow each other, by timestamp.
"""

from __future__ import annotations

import abc
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from logloom.blocks import Array, Block, Ragged, Values
from logloom.caching import cached_property
from logloom.errors import DatasetError, UsageError
from logloom.io.rows.batches import Batch, rows_of, stacked_rows
from logloom.io.rows.log_ranges import Ints, LogRange, SourceLog, SplitLabels, Stretches
from logloom.io.storage.store import Store
from logloom.schema import Schema
from logloom.statistics.columns import Statistics

if TYPE_CHECKING:
    from logloom.io.catalog.intervals import Intervals

BLOCK_BYTES = 64 << 20
Columns = Sequence[str] | None  # names or globs; what None means, each function says
Share = tuple["RowSource | None", int, int | None]  # [start, stop) of a unit, or of all rows; None: the end
_FIRST_ROWS = 64  # of a block, before anything is known of the size of a row


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
        counted: gives the statistics of some columns over all rows, where builds counted them;
            None itself where nobody did. See `logloom.statistics`.
        period: of a rate clock, in ns; None where rows have none.
        intervals: gives what was saved with the version by name; None where rows are of no version.
        find_splits: gives the splits of single rows; None where each log is in one.
    """

    place: str = ""
    kind: str = ""
    period: int | None = None
    max_gap: int | None = None
    has_stamps: bool = True
    unknown: str = ""
    left_out: Mapping[str, str] = MappingProxyType({})
    counted: Callable[[Sequence[str]], Statistics] | None = None
    intervals: Callable[[str], Intervals] | None = None
    find_splits: Callable[[], SplitLabels] | None = None
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

    @cached_property
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

        Returns:
            The values by name: numpy values, bytes for bytes, str for strings.

        Raises:
            IndexError: there is no such row.
            DatasetError: what is stored is damaged.
        """
        index, names = self._position(index), self.schema.select(columns)
        (block,) = self.blocks(names, 1, index, index + 1)
        return self.row_of(block, 0, names)

    def _position(self, index: int) -> int:
        """The number of a row from 0; see `row`."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return index % len(self)

    def _positions(self, indices: ArrayLike) -> Ints:
        """As `_position`, of (n,) rows."""
        rows, length = np.asarray(indices, np.int64).reshape(-1), len(self)
        outside = (rows < -length) | (rows >= length)
        if outside.any():
            raise IndexError(f"{self.place}: row {rows[outside][0]} of {length}")
        return np.where(rows < 0, rows + length, rows)

    def row_of(self, block: Block, index: int, names: Sequence[str]) -> dict[str, Any]:
        """A row of one of the blocks.

        Args:
            block: of this source.
            index: within the block.
            names: of columns, each in the schema.

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
        """Rows in the order asked for: log_id and timestamp where there are any, then the named columns.

        Args:
            positions: (n,) numbers of rows, from 0; in any order, repeating or not.
            names: of columns, each in the schema.
        """
        return [self.row(position, names) for position in positions.tolist()]

    def batch(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        """Rows as one array or list per column; see `logloom.io.rows.batches`.

        Args:
            positions: (n,) numbers of rows, from 0; in any order, repeating or not.
            names: of columns, each in the schema.
            out: arrays to fill, where columns have a fixed shape; the others are ignored.
        """
        return stacked_rows(self.rows(positions, names), self.schema.all, self.place, positions)

    def blocks(
        self, columns: Columns = None, max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """Rows [start, stop) in order, in blocks of about `max_bytes`, each of one log, of one row at least.

        Args:
            columns: names or globs, beside `timestamp`; None is all, ages and availabilities too.
            max_bytes: about how much a block holds.
            start: the first row.
            stop: the row after the last; None is the end.

        Raises:
            DatasetError: files are damaged, gone, or hold something else than before.
        """
        names = tuple(self.schema.all) if columns is None else self.schema.select(columns)
        return self._blocks(names, max_bytes, start, stop)

    def _blocks(self, names: Sequence[str], max_bytes: int, start: int, stop: int | None) -> Iterator[Block]:
        """The rows of `blocks`, once the columns are chosen: what this project's sources override."""
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

    # --- beside others ----------------------------------------------------------------------------------

    def leaves(self) -> Sequence[RowSource]:
        """The sources that this one puts end to end; by default itself."""
        return [self]

    def joined(self, others: Sequence[RowSource]) -> RowSource | None:
        """Joins these rows and those of others behind them, so that a batch of them is one read; for `batch`.

        None where such a source would be no quicker than one after the other.

        Args:
            others: the sources behind this one.

        Returns:
            The joined source; None where it would be no quicker than one after the other.
        """
        return None

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
        """The rows of a part that `logs` told, as `blocks` gives them.

        Args:
            log_id: of the part's log.
            part: one that `logs` told.
            columns: as for `blocks`.
            max_bytes: about how much a block holds.
        """
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

    def _checked(self, reader: Any, known: Stretches | None) -> Any:
        """A reader of as many rows as the manifest says.

        Raises:
            DatasetError: it has more or fewer.
        """
        if known is not None and len(reader) != known.num_rows:
            raise DatasetError(
                f"{self.place}: {len(reader)} rows, the manifest says {known.num_rows}; "
                "`logloom verify` tells more"
            )
        return reader

    def __getstate__(self) -> dict[str, Any]:
        made = {"_opened", *_cached_names(type(self))}
        return {key: value for key, value in self.__dict__.items() if key not in made}


class BatchedSource(RowSource):
    """Rows of files that hold values by column, so that a batch is the quickest way to any of them."""

    def row(self, index: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """See `RowSource.row`."""
        return self.rows(np.array([self._position(index)]), self.schema.select(columns))[0]

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        """See `RowSource.rows`."""
        return rows_of(self.batch(positions, names), len(positions))


class DatasetSource(RowSource):
    """The rows of a dataset whose files say all that is to be known of them; each log is a worker's share."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        known: Stretches | None = None,
    ):
        """Reads what the dataset says of itself, or waits with it until it is needed.

        Args:
            known: what a version's manifest says of the rows; None where there is none.

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

    def shares(self) -> Sequence[Share]:
        """See `RowSource.shares`: the logs."""
        return [(None, first, stop) for _, first, stop in self.stretches.spans()]


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
    return frozenset(
        name
        for base in kind.__mro__
        for name, value in vars(base).items()
        if isinstance(value, cached_property)
    )
