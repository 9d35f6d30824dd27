"""Rows of datasets whose files don't say what a row is: read once to learn the types, then for the rows.

Here: `SurveyedSource`, of which each kind of dataset is a subclass, in its format's package.
Elsewhere: going through the pieces once (pieces), types from values (survey).

`timestamp` and `log_id` among the names are taken for what they are to logloom where they can be: int64 that
ascends within a log, text of which equal ones are neighbours. Else they are columns like any other
(`timestamp_`, `log_id_`), a log is the dataset, and its rows are timed by their number.
"""

from __future__ import annotations

import abc
import functools
import itertools
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logloom.blocks import Block, Values
from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.folders import short_name
from logloom.io.pieces import (
    LOG_ID,
    TIME,
    Batch,
    DatasetPiece,
    RowRun,
    Survey,
    num_rows,
    stamps_of,
    survey_all,
)
from logloom.io.sources import BLOCK_BYTES, Columns, RowSource
from logloom.io.storage import Store
from logloom.io.stretches import DAMAGE, Ints, LogRange, SourceLog, Stretches
from logloom.io.survey import (
    RawColumn,
    SeenColumn,
    UnfitValuesError,
    column_name,
    column_names,
    stacked,
)
from logloom.schema import NO_AGE, RESERVED_LAST_PARTS, STRING, TIMESTAMP, ColumnType, Schema

_KEPT = 4  # parts in memory: who reads rows in order, or near each other, reads each part once


class SurveyedSource(RowSource):
    """Rows of a dataset whose types are learnt. A subclass says where its pieces lie and what they hold."""

    def __init__(
        self,
        store: Store,
        columns: Sequence[str] | None = None,
        *,
        num_workers: int = 1,
        on_error: str = "fail",
    ):
        """Reads the whole dataset once.

        Args:
            columns: names or globs of columns to read; all by default.
            num_workers: processes that read it.
            on_error: "skip" leaves out pieces that can't be read or don't fit those before, and lists each
                as a log of its own, since nothing says which it is part of.

        Raises:
            DatasetError: it is damaged, has no rows, or its rows don't fit each other.
            UsageError: two names would become one column.
        """
        self.place, self._store = store.uri, store
        self.unknown = f"what {self.kind} doesn't check itself"
        self.find()
        wanted = self._wanted(columns)
        pieces = list(self.pieces(wanted))
        found = survey_all(self.batches, pieces, wanted, num_workers)  # each process is sent this source
        self._pieces = pieces
        lost = {number: survey for number, survey in enumerate(found) if isinstance(survey, DatasetError)}
        if lost and on_error != "skip":
            raise next(iter(lost.values()))
        surveys = [Survey() if isinstance(survey, DatasetError) else survey for survey in found]
        seen = self._merged(surveys, lost, on_error)
        if not any(survey.rows for survey in surveys):
            raise next(iter(lost.values())) if lost else DatasetError(f"{self.place}: no rows")
        self._has_ids, self.has_stamps = _usable_keys(surveys, seen)
        keys = [name for name, used in ((LOG_ID, self._has_ids), (TIME, self.has_stamps)) if used]
        self._odd = [name for name in (LOG_ID, TIME) if name in seen and name not in keys]
        self._names = column_names((name for name in seen if name not in keys), self.place)
        self._schema = self._schema_of(seen)
        forms = self.forms(list(self._names))
        self._forms = {self._names[name]: form for name, form in forms.items() if name in self._names}
        logs = [*self._make_logs(surveys), *self._lost_logs(lost)]
        self._logs, self._runs = _numbered(sorted(logs, key=lambda log: log.log_id))

    # --- what a subclass says ---------------------------------------------------------------------------

    def find(self) -> None:
        """Looks for what is there, before anything else.

        Raises:
            DatasetError: there is no dataset.
        """

    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """What rows hold, by the names in the files."""

    @abc.abstractmethod
    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """All pieces of the named columns, in row order; None is all columns. Opens no more than it must."""

    @abc.abstractmethod
    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        """The rows of a piece, by the names in the files; None is all of them.

        Raises:
            DatasetError: damage; names file and place.
        """

    def forms(self, names: Sequence[str]) -> Mapping[str, str]:
        """What bytes hold, where names or files tell: jpg, png, msgpack, …"""
        return {}

    # --- what was learnt --------------------------------------------------------------------------------

    def _wanted(self, patterns: Sequence[str] | None) -> list[str] | None:
        """Names in the files of columns that match, and of the keys; None for all, whatever later files hold.

        Raises:
            UsageError: a pattern matches nothing.
        """
        if patterns is None:
            return None
        names = self.names()
        made = {name: column_name(name) for name in names}
        plain = ColumnType(np.dtype("u1"))
        chosen = Schema(dict.fromkeys(made.values(), plain)).select(patterns)
        return [name for name in names if made[name] in chosen or name in (LOG_ID, TIME)]

    def _merged(
        self, surveys: list[Survey], lost: dict[int, DatasetError], on_error: str
    ) -> dict[str, SeenColumn]:
        """What was seen of all pieces; those that don't fit the ones before become lost, or an error."""
        seen: dict[str, SeenColumn] = {}
        for number, (piece, survey) in enumerate(zip(self._pieces, surveys, strict=True)):
            try:
                seen = _with(seen, piece, survey) if survey.rows else seen
            except DatasetError as error:
                if on_error != "skip":
                    raise
                lost[number], surveys[number] = error, Survey()
        return seen

    def _schema_of(self, seen: Mapping[str, SeenColumn]) -> Schema:
        columns: dict[str, ColumnType] = {}
        for name, column in self._names.items():
            try:
                columns[column] = seen[name].ctype
            except UnfitValuesError as error:
                raise DatasetError(f"{self.place}: {name}: {error}; leave it out by --columns") from error
        sampled = (column for name, column in self._names.items() if seen[name].sampled)
        return Schema(columns, tuple(sampled))

    def _make_logs(self, surveys: Sequence[Survey]) -> list[SourceLog]:
        name = short_name(self.place)
        found: dict[str, list[tuple[int, int, RowRun]]] = {}
        for number, survey in enumerate(surveys):
            first = 0
            runs = survey.runs if self._has_ids else _joined(survey.runs)
            for run in runs:
                found.setdefault(run.log_id if self._has_ids else name, []).append((number, first, run))
                first += run.rows
        rows = [max(1, survey.rows) for survey in surveys]
        return [
            SourceLog.of(log_id, self.place, self._parts_of(log_id, places, rows))
            for log_id, places in found.items()
        ]

    def _lost_logs(self, lost: Mapping[int, DatasetError]) -> Iterator[SourceLog]:
        for count, (number, error) in enumerate(sorted(lost.items())):
            piece = self._pieces[number]
            log = SourceLog.of(f"{self.dataset_name}.lost.{count:06}", piece.place, ())
            record = replace(
                log.record,
                content_id=piece.content,
                status="skipped",
                dropped={DAMAGE: 0},
                reasons=(str(error),),
            )
            yield SourceLog(record, ())

    def _parts_of(
        self, log_id: str, places: Sequence[tuple[int, int, RowRun]], rows: Sequence[int]
    ) -> list[LogRange]:
        counts = [0, *itertools.accumulate(run.rows for _, _, run in places)]
        starts = counts[:-1]
        stop = counts[-1]
        if self.has_stamps:
            starts = [run.first for _, _, run in places]
            stop = places[-1][2].last + 1
        parts = []
        for (number, first, run), start, end in zip(places, starts, [*starts[1:], stop], strict=True):
            identity = digest_of([self._pieces[number].content, first, run.rows, log_id, start])[:32]
            size = self._pieces[number].size * run.rows // rows[number]
            where = (number, first, start)
            parts.append(LogRange(f"{number:06}", start, end, run.rows, identity, where, size))
        return parts

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"{name} doesn't order the rows; it is column {name}_" for name in self._odd)

    @property
    def hints(self) -> Mapping[str, Mapping[str, Any]]:
        return {"bags": {"types": self._forms}, "tar": {"ext": self._forms}}

    def logs(self) -> Sequence[SourceLog]:
        """See `RowSource.logs`."""
        return self._logs

    @functools.cached_property
    def stretches(self) -> Stretches:
        return Stretches.of_logs([run.log_id for run in self._runs], [run.rows for run in self._runs])

    @functools.cached_property
    def stamps(self) -> Ints | None:
        return super().stamps if self.has_stamps else None

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        """See `RowSource.rows`; a part is read whole, and the last few stay in memory."""
        return [self._row(position, tuple(names)) for position in positions.tolist()]

    def _row(self, position: int, names: tuple[str, ...]) -> dict[str, Any]:
        bounds = self.stretches.bounds
        number = int(np.searchsorted(bounds, position, side="right")) - 1
        blocks, firsts = self._read(number, names)
        at = position - int(bounds[number])
        place = int(np.searchsorted(firsts, at, side="right")) - 1
        return self.row_of(blocks[place], at - int(firsts[place]), names)

    def _read(self, number: int, names: tuple[str, ...]) -> tuple[list[Block], Ints]:
        kept: OrderedDict[tuple[int, tuple[str, ...]], tuple[list[Block], Ints]] = self.reader
        found = kept.get((number, names))
        if found is None:
            blocks = list(self._run_blocks(self._runs[number], names, BLOCK_BYTES, 0, None))
            lengths = np.array([len(block) for block in blocks], np.int64)
            found = kept[number, names] = blocks, np.cumsum(lengths) - lengths
            while len(kept) > _KEPT:
                kept.pop(next(iter(kept)), None)
        return found

    def _open(self) -> OrderedDict[Any, Any]:
        return OrderedDict()  # what was read of parts, in this process

    def blocks(
        self, columns: Columns = None, max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """See `RowSource.blocks`."""
        names = tuple(self.schema.all) if columns is None else self.schema.select(columns)
        stop = len(self) if stop is None else stop
        for run, first in zip(self._runs, self.stretches.bounds.tolist(), strict=False):
            low, high = max(start, first) - first, min(stop, first + run.rows) - first
            if low < high:
                yield from self._run_blocks(run, names, max_bytes, low, high)

    def _run_blocks(
        self, run: _PartRun, names: Sequence[str], max_bytes: int, low: int, high: int | None
    ) -> Iterator[Block]:
        """Rows [low, high) of a part."""
        piece, wanted = self._pieces[run.piece], self._files_names(names)
        rows = (run.rows if high is None else high) - low
        first, start = run.first + low, run.start + low
        at = done = 0
        for batch in self.batches(piece, wanted, max_bytes):
            count = num_rows(batch)
            begin, end = max(first - at, 0), min(first + rows - at, count)
            if begin < end:
                block = self._block(run, piece, batch, names, start + done)
                taken = block.take(slice(begin, end)) if (begin, end) != (0, count) else block.columns
                if not self.has_stamps:
                    taken = {**taken, TIME: np.arange(start + done, start + done + end - begin)}
                yield Block(run.log_id, run.name, done, taken)
                done += end - begin
            at += count
        if done != rows:
            raise DatasetError(f"{piece.place}: {done} rows, {rows} were there before")

    def _files_names(self, names: Sequence[str]) -> list[str]:
        """What to read for some columns: never nothing, so that rows can be counted."""
        bases = {name.rpartition(".")[0] if _is_meta(name) else name for name in names}
        wanted = [name for name, column in self._names.items() if column in bases]
        wanted += [TIME] if self.has_stamps else []
        return wanted or list(self._names)[:1] or [LOG_ID]

    def _block(
        self, run: _PartRun, piece: DatasetPiece, batch: Batch, names: Sequence[str], first: int
    ) -> Block:
        columns: dict[str, Values] = {}
        count = num_rows(batch)
        if self.has_stamps:
            stamps = stamps_of(batch)
            if stamps is None:
                raise DatasetError(f"{piece.place}: no longer has timestamps")
            columns[TIME] = stamps
        of_column = {column: name for name, column in self._names.items()}
        for name in names:
            base = name.rpartition(".")[0] if _is_meta(name) else name
            raw = batch[of_column[base]]
            try:
                columns[name] = _meta(name, raw, count) if _is_meta(name) else self._stacked(raw, name)
            except UnfitValuesError as error:
                raise DatasetError(f"{piece.place}: {of_column[base]} at row {first}: {error}") from error
        return Block(run.log_id, run.name, 0, {TIME: np.zeros(count, np.int64), **columns})

    def _stacked(self, raw: RawColumn, name: str) -> Values:
        if raw.available is not None and name not in self.schema.sampled:
            raise UnfitValuesError("a row has no value")
        return stacked(raw, self.schema.columns[name])


@dataclass(frozen=True)
class _PartRun:
    """Where the rows of a part lie.

    Attributes:
        piece: its number.
        first: of the rows, in the piece.
        start: of the part; of the first row, where rows are timed by their number.
    """

    log_id: str
    name: str
    rows: int
    piece: int
    first: int
    start: int


def _numbered(logs: Sequence[SourceLog]) -> tuple[list[SourceLog], list[_PartRun]]:
    """The logs with the position of each part's first row, and where the rows of the parts lie."""
    numbered, runs, position = [], [], 0
    for log in logs:
        parts = []
        for part in log.parts:
            runs.append(_PartRun(log.log_id, part.name, part.rows, *part.where))
            parts.append(replace(part, where=position))
            position += part.rows
        numbered.append(SourceLog(log.record, tuple(parts)))
    return numbered, runs


def _with(seen: Mapping[str, SeenColumn], piece: DatasetPiece, survey: Survey) -> dict[str, SeenColumn]:
    if seen and seen.keys() != survey.seen.keys():
        odd = sorted(seen.keys() ^ survey.seen.keys())
        raise DatasetError(f"{piece.place}: not all rows have {', '.join(odd[:5])}")
    made = {}
    for name, found in survey.seen.items():
        try:
            made[name] = seen[name].and_(found) if name in seen else found
        except UnfitValuesError as error:
            raise DatasetError(f"{piece.place}: {name}: {error}, against those before") from error
    return made


def _is_meta(name: str) -> bool:
    return name.rpartition(".")[2] in RESERVED_LAST_PARTS


def _meta(name: str, raw: RawColumn, count: int) -> Values:
    """Ages and availabilities: a row that has a value was measured at its time, unless files say more."""
    available = raw.available if raw.available is not None else np.ones(count, bool)
    if name.endswith(".available"):
        return available
    return raw.ages if raw.ages is not None else np.where(available, 0, NO_AGE)


def _joined(runs: Sequence[RowRun]) -> list[RowRun]:
    """All runs of a piece as one."""
    if not runs:
        return []
    return [RowRun("", sum(run.rows for run in runs), runs[0].first, runs[-1].last)]


def _usable_keys(surveys: Sequence[Survey], seen: Mapping[str, SeenColumn]) -> tuple[bool, bool]:
    """Whether log_id names logs, and timestamp orders their rows."""

    def is_(name: str, ctype: ColumnType) -> bool:
        column = seen.get(name)
        if column is None or column.sampled or column.dtype is None:
            return False
        found = column.ctype
        return (found.dtype, found.shape, found.kind) == (ctype.dtype, ctype.shape, ctype.kind)

    runs = [run for survey in surveys for run in survey.runs]
    has_ids = is_(LOG_ID, STRING)
    if has_ids:
        neighbours = [log_id for log_id, _ in itertools.groupby(runs, key=lambda run: run.log_id)]
        has_ids = len(set(neighbours)) == len(neighbours) and all(neighbours)
    ascends = all(survey.ascends for survey in surveys)
    for a, b in itertools.pairwise(runs):
        ascends &= b.first > a.last or (has_ids and a.log_id != b.log_id)
    return has_ids, is_(TIME, TIMESTAMP) and ascends
