"""Merging: the pages of a version from those of its parent and what changed since.

Here: reading sorted rows in steps (`SortedRows`), cutting them into pages, and merging page by page. A
page without changes is reused by its name, unread.
Elsewhere: pages themselves (logloom.io.catalog.pages), which changes there are
(logloom.transforms.build.commit).

    parent   | a b c | D e f g | H i |        capitals: a page begins with them, whatever its neighbours
    changes      ·       x               -> | a b c | D e f x g | H i |   one page is read and written
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from logloom.io.catalog.pages import (
    GONE,
    MAX_LOGS,
    PAGES,
    LogRecord,
    RecordPage,
    is_border,
    read_page,
    table_of,
    write_page,
)
from logloom.io.catalog.records import LogRecords
from logloom.io.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


def write_records(store: Store, records: Iterable[LogRecord], folder: str = PAGES) -> LogRecords:
    """Write records, sorted by log_id, as pages."""
    pages = _Pages(store, folder)
    records = iter(records)
    while rows := list(itertools.islice(records, MAX_LOGS)):
        pages.add(table_of(rows))
    return pages.close()


def merge_records(store: Store, parent: LogRecords, changes: Sequence[LogRecords]) -> LogRecords:
    """Write the pages of a version.

    Args:
        changes: records that are new or replace the parent's, and of logs that are `GONE`; no log in two.

    Raises:
        DatasetError: a page that is needed is missing or damaged.
    """
    pages = _Pages(store, PAGES)
    coming = [SortedRows(one.tables()) for one in changes]
    runs = _runs(parent.pages)
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        end = following[0].first if following else None
        if run and all(one.is_past(end) for one in coming):
            pages.take(run)
            continue
        rows = SortedRows(read_page(store, page, parent.folder) for page in run)
        for table in _merged(rows, coming, end):
            pages.add(table)
    return pages.close()


def _runs(pages: Sequence[RecordPage]) -> list[list[RecordPage]]:
    """The pages between borders: one, or more where there are more logs than one holds."""
    runs: list[list[RecordPage]] = [[]]
    for page in pages:
        if runs[-1] and is_border(page.first):
            runs.append([])
        runs[-1].append(page)
    return runs


class SortedRows:
    """Sorted rows that come table by table, and are taken up to some log_id."""

    def __init__(self, tables: Iterable[pa.Table]):
        self._tables = (table for table in tables if len(table))
        self._table: pa.Table | None = next(self._tables, None)

    @property
    def last(self) -> str | None:
        """The last log_id at hand; None at the end."""
        return None if self._table is None else str(self._table["log_id"][-1].as_py())

    def is_past(self, end: str | None) -> bool:
        """Return whether no row is left before a log_id, or at all."""
        return self._table is None or (end is not None and self._table["log_id"][0].as_py() >= end)

    def take(self, last: str, end: str | None) -> pa.Table | None:
        """The rows at hand up to `last`, and before `end`."""
        import pyarrow.compute as pc

        if self._table is None:
            return None
        ids = self._table["log_id"]
        chosen = pc.less_equal(ids, last)
        if end is not None:
            chosen = pc.and_(chosen, pc.less(ids, end))
        count = pc.sum(chosen).as_py() or 0
        taken, rest = self._table.slice(0, count), self._table.slice(count)
        self._table = rest if len(rest) else next(self._tables, None)
        return taken


def _merged(parent: SortedRows, changes: Sequence[SortedRows], end: str | None) -> Iterator[pa.Table]:
    """Merge the rows before a log_id; a change replaces the parent's row of its log."""
    import pyarrow as pa
    import pyarrow.compute as pc

    while not all(one.is_past(end) for one in (parent, *changes)):
        bound = min(one.last for one in (parent, *changes) if not one.is_past(end) and one.last is not None)
        kept = parent.take(bound, end)
        new = pa.concat_tables(
            [table_of(()), *(rows for one in changes if (rows := one.take(bound, end)) is not None)]
        )
        if kept is not None and len(new):
            kept = kept.filter(pc.invert(pc.is_in(kept["log_id"], new["log_id"].combine_chunks())))
        rows = pa.concat_tables([new, *([kept] if kept is not None else [])]).sort_by("log_id")
        yield rows.filter(pc.not_equal(rows["status"], GONE))


class _Pages:
    """Pages as they are cut from sorted rows, at borders and where one is full."""

    def __init__(self, store: Store, folder: str):
        self._store, self._folder = store, folder
        self._done: list[RecordPage] = []
        self._last_run: list[RecordPage] = []  # of pages taken over; rows that follow may go on with it
        self._open: list[pa.Table] = []
        self._rows = 0

    def take(self, run: Sequence[RecordPage]) -> None:
        """Goes on with pages that are there, which begin at a border, or at the very beginning."""
        self._cut()
        self._last_run = list(run)

    def add(self, table: pa.Table) -> None:
        """Goes on with rows."""
        ids = table["log_id"].to_pylist()
        borders = [row for row, log_id in enumerate(ids) if is_border(log_id)]
        for start, stop in itertools.pairwise(sorted({0, *borders, len(ids)})):
            rows = table.slice(start, stop - start)
            if is_border(ids[start]):
                self._cut()
            elif self._last_run:
                *whole, last = self._last_run
                self._done += whole
                self._open, self._rows = [read_page(self._store, last, self._folder)], last.logs
                self._last_run = []
            while len(rows):
                if self._rows == MAX_LOGS:
                    self._cut()
                fitting = rows.slice(0, MAX_LOGS - self._rows)
                self._open.append(fitting)
                self._rows += len(fitting)
                rows = rows.slice(len(fitting))

    def close(self) -> LogRecords:
        self._cut()
        return LogRecords(self._store, self._done, self._folder)

    def _cut(self) -> None:
        import pyarrow as pa

        self._done += self._last_run
        self._last_run = []
        if self._rows:
            table = pa.concat_tables(self._open).combine_chunks()
            self._done.append(write_page(self._store, table, self._folder))
        self._open, self._rows = [], 0
