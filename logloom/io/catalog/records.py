"""The records of all logs of a version, as a sequence that reads shards on demand.

Here: `LogRecords`. A hundred thousand logs are columns of some MB, converted to Python objects one by one.
Elsewhere: shards and their columns (logloom.io.catalog.pages), what names them (logloom.io.catalog.manifest).
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from logloom.errors import DatasetError
from logloom.io.catalog.pages import (
    NO_LOGS,
    SHARDS,
    LogRecord,
    LogStatus,
    RecordShard,
    described,
    fetch,
    read_shard,
    records_of,
    rows_of,
    schema,
    shard_file,
    table_of,
    total,
)
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead

if TYPE_CHECKING:
    import pyarrow as pa

_HELD = 2  # shards whose rows are kept for the next question


class LogRecords(Sequence[LogRecord]):
    """Records sorted by log_id, in shards of a root; equal to any sequence of the same records.

    Holds the columns that were asked for and few rows. Pickles as the names of its shards, and reads from
    many threads. Records not yet written are held as one table: see `of`.

    Attributes:
        shards: in the order of their log_ids.
        folder: of the root, that contains them.

    Raises:
        DatasetError: on reading, a shard is missing or damaged; names its file.
    """

    def __init__(self, store: Store | None = None, shards: Iterable[RecordShard] = (), folder: str = SHARDS):
        self._store = store
        self.shards = tuple(shards)
        self.folder = folder
        self._ends = list(itertools.accumulate(shard.logs for shard in self.shards))
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._tables: dict[int, pa.Table] = {}

    @classmethod
    def of(cls, records: Iterable[LogRecord]) -> LogRecords:
        """Return records that are in no shard, in the order given."""
        table = table_of(records)
        made = cls(None, [described(table)])
        made._tables[0] = table
        made._columns = {name: table[name] for name in table.column_names}
        return made

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> LogRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LogRecord]: ...
    def __getitem__(self, index: int | slice) -> LogRecord | Sequence[LogRecord]:
        if isinstance(index, slice):
            return tuple(self.take(range(len(self))[index]))
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"asked for record {index} of {len(self)}")
        (record,) = self.take([position])
        return record

    def __iter__(self) -> Iterator[LogRecord]:
        for number, table in enumerate(self.tables()):
            yield from records_of(table, self._place(number))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LogRecords) and self.is_stored and self.shards == other.shards:
            return True
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LogRecords({len(self)} logs in {len(self.shards)} shards)"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), **({"_columns": {}, "_tables": {}} if self.is_stored else {})}

    @property
    def is_stored(self) -> bool:
        """Whether each record is in a shard of a root."""
        return all(shard.digest for shard in self.shards)

    @property
    def totals(self) -> dict[str, int]:
        """Sums over all logs (see `totals_of`)."""
        return NO_LOGS | total(shard.totals for shard in self.shards)

    @property
    def statuses(self) -> dict[str, int]:
        """How many logs are of each status."""
        return total(shard.statuses for shard in self.shards)

    def are_whole(self, *, within_budget: bool) -> bool:
        """Return whether no log was salvaged or skipped, but for those that a budget allows to skip."""
        bad = {LogStatus.salvaged} if within_budget else {LogStatus.salvaged, LogStatus.skipped}
        return set(self.statuses) <= {*LogStatus} - bad

    @property
    def dropped(self) -> dict[str, int]:
        """Ticks that are no row, by reason, over all logs."""
        return total(shard.dropped for shard in self.shards)

    def columns(self, *names: str) -> pa.Table:
        """Some columns of all records, a row each, read by ranges and then held.

        Args:
            names: fields of `LogRecord`; `uris`, `dropped` and `reasons` come as JSON texts.
        """
        import pyarrow as pa

        wanted = [name for name in dict.fromkeys(names) if name not in self._columns]
        if wanted:
            tables = [
                rows_of(self._at, shard, data, wanted, self.folder)  # Arrow keeps memory for each thread
                for shard, data in ahead(lambda one: (one, self._fetched(one, wanted)), self.shards)
            ]
            empty = schema().empty_table().select(wanted)
            found = pa.concat_tables([empty, *tables])
            self._columns.update({name: found[name] for name in wanted})
        return pa.table({name: self._columns[name] for name in names})

    def column(self, name: str) -> pa.ChunkedArray:
        """One column, as of `columns`."""
        return self.columns(name)[name]

    def find(self, log_id: str) -> LogRecord | None:
        """The record of a log, from the one shard that may hold it."""
        shard = self.shard_for(log_id)
        if shard is None:
            return None
        number = self.shards.index(shard)
        table = self._table(number)
        row = table["log_id"].index(log_id).as_py()
        return None if row < 0 else records_of(table.slice(row, 1), self._place(number))[0]

    def shard_for(self, log_id: str) -> RecordShard | None:
        """The one shard that may hold a log."""
        number = bisect.bisect_right([shard.first for shard in self.shards], log_id) - 1
        if not self.is_stored:
            number = 0
        return self.shards[number] if number >= 0 and self.shards else None

    def without(self, shards: Iterable[RecordShard]) -> LogRecords:
        """Return the records that are not in these shards."""
        left_out = {shard.digest for shard in shards if shard.digest}
        if not any(shard.digest in left_out for shard in self.shards):
            return self
        kept = (shard for shard in self.shards if shard.digest not in left_out)
        return LogRecords(self._store, kept, self.folder)

    def where(self, column: str, values: Iterable[str]) -> NDArray[np.int64]:
        """Positions of the logs whose split, say, is one of some; ascending."""
        import pyarrow as pa
        import pyarrow.compute as pc

        chosen = pc.is_in(self.column(column), pa.array(list(values), pa.string()))
        return np.flatnonzero(chosen.to_numpy())

    def take(self, positions: Iterable[int] | NDArray[np.int64]) -> Iterator[LogRecord]:
        """The records at some positions, from the shards that hold them, which are read some ahead."""
        numbered = ((bisect.bisect_right(self._ends, int(at)), int(at)) for at in positions)
        wanted = (
            (number, [at for _, at in group])
            for number, group in itertools.groupby(numbered, key=lambda pair: pair[0])
        )
        for number, table in ahead(lambda one: (one[0], self._rows_at(*one)), wanted, threads=4):
            yield from records_of(table, self._place(number))

    def _rows_at(self, number: int, positions: Sequence[int]) -> pa.Table:
        """The rows of a shard at some positions of all records."""
        first = self._ends[number] - self.shards[number].logs
        return self._table(number).take([at - first for at in positions])

    def whole(self) -> tuple[LogRecords, list[str]]:
        """The records whose shards are whole, and what is wrong with each other shard."""
        found = list(ahead(self._problem, range(len(self.shards)), threads=4))
        if not any(found):
            return self, []
        sound = (shard for shard, problem in zip(self.shards, found, strict=True) if not problem)
        return LogRecords(self._store, sound, self.folder), [problem for problem in found if problem]

    def _problem(self, number: int) -> str:
        try:
            records_of(self._table(number), self._place(number))
        except DatasetError as error:
            return str(error)
        return ""

    def tables(self, *names: str) -> Iterator[pa.Table]:
        """All rows, a table a shard, read some ahead.

        Args:
            names: of columns, which are read by ranges; none for all of them.
        """
        if not names or not self.is_stored:
            for table in ahead(self._table, range(len(self.shards)), threads=2):
                yield table.select(names) if names else table
            return
        for shard, data in ahead(lambda one: (one, self._fetched(one, names)), self.shards, threads=2):
            yield rows_of(self._at, shard, data, names, self.folder)

    @property
    def _at(self) -> Store:
        assert self._store is not None  # but for records that are held as a table
        return self._store

    def _fetched(self, shard: RecordShard, names: Sequence[str]) -> bytes:
        return fetch(self._at, shard, names, self.folder)

    def _table(self, number: int) -> pa.Table:
        found = self._tables.get(number)
        if found is None:
            found = read_shard(self._at, self.shards[number], self.folder)
            self._tables = {**dict(list(self._tables.items())[1 - _HELD :]), number: found}
        return found

    def _place(self, number: int) -> str:
        if self._store is None:
            return "logs"
        return self._store.uri_of(shard_file(self.shards[number], self.folder))
