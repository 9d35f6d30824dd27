"""The records of all logs of a version, as a sequence that reads pages on demand.

Here: `LogRecords`. A hundred thousand logs are columns of some MB, converted to Python objects one by one.
Elsewhere: pages and their columns (logloom.io.catalog.pages), what names them (logloom.io.catalog.manifest).
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
    PAGES,
    LogRecord,
    LogStatus,
    RecordPage,
    described,
    fetch,
    page_file,
    read_page,
    records_of,
    rows_of,
    schema,
    table_of,
    total,
)
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead

if TYPE_CHECKING:
    import pyarrow as pa

_HELD = 2  # pages whose rows are kept for the next question


class LogRecords(Sequence[LogRecord]):
    """Records sorted by log_id, in pages of a root; equal to any sequence of the same records.

    Holds the columns that were asked for and few rows. Pickles as the names of its pages, and reads from
    many threads. Records not yet written are held as one table: see `of`.

    Attributes:
        pages: in the order of their log_ids.
        folder: of the root, that contains them.

    Raises:
        DatasetError: on reading, a page is missing or damaged; names its file.
    """

    def __init__(self, store: Store | None = None, pages: Iterable[RecordPage] = (), folder: str = PAGES):
        self._store = store
        self.pages = tuple(pages)
        self.folder = folder
        self._ends = list(itertools.accumulate(page.logs for page in self.pages))
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._tables: dict[int, pa.Table] = {}

    @classmethod
    def of(cls, records: Iterable[LogRecord]) -> LogRecords:
        """Return records that are in no page, in the order given."""
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
        if isinstance(other, LogRecords) and self.is_stored and self.pages == other.pages:
            return True
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LogRecords({len(self)} logs in {len(self.pages)} pages)"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), **({"_columns": {}, "_tables": {}} if self.is_stored else {})}

    @property
    def is_stored(self) -> bool:
        """Whether each record is in a page of a root."""
        return all(page.digest for page in self.pages)

    @property
    def totals(self) -> dict[str, int]:
        """Sums over all logs (see `totals_of`)."""
        return NO_LOGS | total(page.totals for page in self.pages)

    @property
    def statuses(self) -> dict[str, int]:
        """How many logs are of each status."""
        return total(page.statuses for page in self.pages)

    def are_whole(self, *, within_budget: bool) -> bool:
        """Return whether no log was salvaged or skipped, but for those that a budget allows to skip."""
        bad = {LogStatus.salvaged} if within_budget else {LogStatus.salvaged, LogStatus.skipped}
        return set(self.statuses) <= {*LogStatus} - bad

    @property
    def dropped(self) -> dict[str, int]:
        """Ticks that are no row, by reason, over all logs."""
        return total(page.dropped for page in self.pages)

    def columns(self, *names: str) -> pa.Table:
        """Some columns of all records, a row each, read by ranges and then held.

        Args:
            names: fields of `LogRecord`; `uris`, `dropped` and `reasons` come as JSON texts.
        """
        import pyarrow as pa

        wanted = [name for name in dict.fromkeys(names) if name not in self._columns]
        if wanted:
            tables = [
                rows_of(self._at, page, data, wanted, self.folder)  # Arrow keeps memory for each thread
                for page, data in ahead(lambda one: (one, self._fetched(one, wanted)), self.pages)
            ]
            empty = schema().empty_table().select(wanted)
            found = pa.concat_tables([empty, *tables])
            self._columns.update({name: found[name] for name in wanted})
        return pa.table({name: self._columns[name] for name in names})

    def column(self, name: str) -> pa.ChunkedArray:
        """One column, as of `columns`."""
        return self.columns(name)[name]

    def find(self, log_id: str) -> LogRecord | None:
        """The record of a log, from the one page that may hold it."""
        page = self.page_for(log_id)
        if page is None:
            return None
        number = self.pages.index(page)
        table = self._table(number)
        row = table["log_id"].index(log_id).as_py()
        return None if row < 0 else records_of(table.slice(row, 1), self._place(number))[0]

    def page_for(self, log_id: str) -> RecordPage | None:
        """The one page that may hold a log."""
        number = bisect.bisect_right([page.first for page in self.pages], log_id) - 1
        if not self.is_stored:
            number = 0
        return self.pages[number] if number >= 0 and self.pages else None

    def without(self, pages: Iterable[RecordPage]) -> LogRecords:
        """Return the records that are not in these pages."""
        left_out = {page.digest for page in pages if page.digest}
        if not any(page.digest in left_out for page in self.pages):
            return self
        kept = (page for page in self.pages if page.digest not in left_out)
        return LogRecords(self._store, kept, self.folder)

    def where(self, column: str, values: Iterable[str]) -> NDArray[np.int64]:
        """Positions of the logs whose split, say, is one of some; ascending."""
        import pyarrow as pa
        import pyarrow.compute as pc

        chosen = pc.is_in(self.column(column), pa.array(list(values), pa.string()))
        return np.flatnonzero(chosen.to_numpy())

    def take(self, positions: Iterable[int] | NDArray[np.int64]) -> Iterator[LogRecord]:
        """The records at some positions, from the pages that hold them, which are read some ahead."""
        numbered = ((bisect.bisect_right(self._ends, int(at)), int(at)) for at in positions)
        wanted = (
            (number, [at for _, at in group])
            for number, group in itertools.groupby(numbered, key=lambda pair: pair[0])
        )
        for number, table in ahead(lambda one: (one[0], self._rows_at(*one)), wanted, threads=4):
            yield from records_of(table, self._place(number))

    def _rows_at(self, number: int, positions: Sequence[int]) -> pa.Table:
        """The rows of a page at some positions of all records."""
        first = self._ends[number] - self.pages[number].logs
        return self._table(number).take([at - first for at in positions])

    def whole(self) -> tuple[LogRecords, list[str]]:
        """The records whose pages are whole, and what is wrong with each other page."""
        found = list(ahead(self._problem, range(len(self.pages)), threads=4))
        if not any(found):
            return self, []
        sound = (page for page, problem in zip(self.pages, found, strict=True) if not problem)
        return LogRecords(self._store, sound, self.folder), [problem for problem in found if problem]

    def _problem(self, number: int) -> str:
        try:
            records_of(self._table(number), self._place(number))
        except DatasetError as error:
            return str(error)
        return ""

    def tables(self, *names: str) -> Iterator[pa.Table]:
        """All rows, a table a page, read some ahead.

        Args:
            names: of columns, which are read by ranges; none for all of them.
        """
        if not names or not self.is_stored:
            for table in ahead(self._table, range(len(self.pages)), threads=2):
                yield table.select(names) if names else table
            return
        for page, data in ahead(lambda one: (one, self._fetched(one, names)), self.pages, threads=2):
            yield rows_of(self._at, page, data, names, self.folder)

    @property
    def _at(self) -> Store:
        assert self._store is not None  # but for records that are held as a table
        return self._store

    def _fetched(self, page: RecordPage, names: Sequence[str]) -> bytes:
        return fetch(self._at, page, names, self.folder)

    def _table(self, number: int) -> pa.Table:
        found = self._tables.get(number)
        if found is None:
            found = read_page(self._at, self.pages[number], self.folder)
            self._tables = {**dict(list(self._tables.items())[1 - _HELD :]), number: found}
        return found

    def _place(self, number: int) -> str:
        if self._store is None:
            return "logs"
        return self._store.uri_of(page_file(self.pages[number], self.folder))
