"""Foreign datasets whose files don't say what a row is: read once to learn the types, then for the rows.

Here: `PieceReader`, what a kind of dataset offers, and `SurveyedDataset`, which makes rows of it.
Elsewhere: the kinds (granular, webdataset, parquet, zarr), types from values (survey).

`timestamp` and `log_id` among the names are taken for what they are to logloom where they can be: int64 that
ascends within a log, text of which equal ones are neighbours. Else they are columns like any other
(`timestamp_`, `log_id_`), a log is the dataset, and its rows are timed by their number.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Block, Values
from logloom.digests import digest_of
from logloom.errors import DatasetError
from logloom.io.foreign.base import ForeignLog, LogRange, LostFiles, column_name, column_names
from logloom.io.foreign.files import short_name
from logloom.io.foreign.survey import RawColumn, SeenColumn, UnfitValuesError, stacked
from logloom.schema import NO_AGE, RESERVED_LAST_PARTS, STRING, TIMESTAMP, ColumnType, Schema

LOG_ID, TIME = "log_id", "timestamp"
_IN_PROCESS_BYTES = 64 << 20  # below this, starting processes takes longer than reading
Batch = Mapping[str, RawColumn]


@dataclass(frozen=True)
class DatasetPiece:
    """Some rows of a dataset that one worker reads, alone: a shard, a row group, a range of a bag.

    Attributes:
        place: a file or folder and what of it, for errors.
        where: for the reader alone.
        content: digest of its files.
        size: about how many bytes it takes.
    """

    place: str
    where: Any
    content: str
    size: int


@runtime_checkable
class PieceReader(Protocol):
    """A kind of dataset. Picklable.

    Attributes:
        kind: as of `ForeignDataset`.
    """

    kind: str
    uri: str

    def names(self) -> Sequence[str]:
        """What rows hold, by the names in the files."""
        ...

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """All pieces of the named columns, in row order; None is all columns. Opens no more than it must."""
        ...

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        """The rows of a piece, by the names in the files; None is all of them.

        Raises:
            DatasetError: damage; names file and place.
        """
        ...

    def forms(self, names: Sequence[str]) -> Mapping[str, str]:
        """What bytes hold, where names or files tell: jpg, png, msgpack, …"""
        ...


@dataclass(frozen=True)
class _RowRun:
    """Neighbouring rows of one log in a piece."""

    log_id: str
    rows: int
    first: int
    last: int


@dataclass
class _Survey:
    """What was seen of a piece.

    Attributes:
        ascends: whether the stamps ascend within each run; so, too, if there are none.
    """

    rows: int = 0
    seen: dict[str, SeenColumn] = field(default_factory=dict)
    runs: list[_RowRun] = field(default_factory=list)
    ascends: bool = True


def survey_piece(
    reader: PieceReader, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int = 64 << 20
) -> _Survey:
    """Goes through the named columns of all rows of a piece; None is all columns.

    Raises:
        DatasetError: it is damaged, or rows don't fit each other; names file and column.
    """
    survey = _Survey()
    for batch in reader.batches(piece, names, max_bytes):
        rows = _num_rows(batch)
        if survey.rows and batch.keys() != survey.seen.keys():
            odd = sorted(batch.keys() ^ survey.seen.keys())
            raise DatasetError(f"{piece.place}: not all rows have {', '.join(odd[:5])}")
        for name, column in batch.items():
            try:
                seen = SeenColumn.of(column)
                survey.seen[name] = survey.seen[name].and_(seen) if name in survey.seen else seen
            except UnfitValuesError as error:
                raise DatasetError(
                    f"{piece.place}: {name}, rows {survey.rows} to {survey.rows + rows}: {error}; "
                    "leave it out by --columns"
                ) from error
        _note_runs(survey, batch, rows)
        survey.rows += rows
    return survey


def _num_rows(batch: Batch) -> int:
    return len(next(iter(batch.values())).values) if batch else 0


def _note_runs(survey: _Survey, batch: Batch, rows: int) -> None:
    if not rows:
        return
    ids, stamps = _ids_of(batch), _stamps_of(batch)
    first = 0
    for log_id, group in itertools.groupby(ids if ids is not None else [""] * rows):
        count = len(list(group))
        part = stamps[first : first + count] if stamps is not None else np.zeros(1, np.int64)
        run = _RowRun(log_id, count, int(part[0]), int(part[-1]))
        survey.ascends &= bool((part[1:] > part[:-1]).all())
        if survey.runs and survey.runs[-1].log_id == log_id:
            before = survey.runs.pop()
            survey.ascends &= run.first > before.last
            run = _RowRun(log_id, before.rows + count, before.first, run.last)
        survey.runs.append(run)
        first += count


def _ids_of(batch: Batch) -> list[str] | None:
    column = batch.get(LOG_ID)
    if column is None or column.available is not None or not isinstance(column.values, list):
        return None
    return column.values if all(isinstance(value, str) for value in column.values) else None


def _stamps_of(batch: Batch) -> NDArray[np.int64] | None:
    column = batch.get(TIME)
    if column is None or column.available is not None or not isinstance(column.values, np.ndarray):
        return None
    return column.values if column.values.dtype == np.int64 and column.values.ndim == 1 else None


class SurveyedDataset:
    """See `ForeignDataset`."""

    def __init__(
        self,
        reader: PieceReader,
        columns: Sequence[str] | None = None,
        *,
        num_workers: int = 1,
        on_error: str = "fail",
    ):
        """Reads the whole dataset once.

        Args:
            columns: names or globs of columns to read; all by default.
            on_error: "skip" leaves out pieces that can't be read or don't fit those before, and lists them
                in `lost`.

        Raises:
            DatasetError: it is damaged, has no rows, or its rows don't fit each other.
            UsageError: two names would become one column.
        """
        self._reader = reader
        self.uri, self.kind = reader.uri, reader.kind
        wanted = _wanted(reader, columns)
        self._pieces = list(reader.pieces(wanted))
        found = _survey_all(reader, self._pieces, wanted, num_workers)
        lost = {number: survey for number, survey in enumerate(found) if isinstance(survey, DatasetError)}
        if lost and on_error != "skip":
            raise next(iter(lost.values()))
        surveys = [_Survey() if isinstance(survey, DatasetError) else survey for survey in found]
        seen = self._merged(surveys, lost, on_error)
        if not any(survey.rows for survey in surveys):
            raise next(iter(lost.values())) if lost else DatasetError(f"{self.uri}: no rows")
        self.lost = tuple(
            LostFiles(self._pieces[number].place, self._pieces[number].content, str(error))
            for number, error in sorted(lost.items())
        )
        self._has_ids, self._has_stamps = _usable_keys(surveys, seen)
        self.has_stamps = self._has_stamps
        notes = []
        keys = [name for name, used in ((LOG_ID, self._has_ids), (TIME, self._has_stamps)) if used]
        for name in (LOG_ID, TIME):
            if name in seen and name not in keys:
                notes.append(f"{name} doesn't order the rows; it is column {name}_")
        self._names = column_names((name for name in seen if name not in keys), self.uri)
        self.notes = tuple(notes)
        self.schema = self._schema(seen)
        forms = reader.forms(list(self._names))
        named = {self._names[name]: form for name, form in forms.items() if name in self._names}
        self.hints: Mapping[str, Mapping[str, Any]] = {"bags": {"types": named}, "tar": {"ext": named}}
        self._logs = self._make_logs(surveys)

    def _merged(
        self, surveys: list[_Survey], lost: dict[int, DatasetError], on_error: str
    ) -> dict[str, SeenColumn]:
        """What was seen of all pieces; those that don't fit the ones before become lost, or an error."""
        seen: dict[str, SeenColumn] = {}
        for number, (piece, survey) in enumerate(zip(self._pieces, surveys, strict=True)):
            try:
                seen = _with(seen, piece, survey) if survey.rows else seen
            except DatasetError as error:
                if on_error != "skip":
                    raise
                lost[number], surveys[number] = error, _Survey()
        return seen

    def _schema(self, seen: Mapping[str, SeenColumn]) -> Schema:
        columns: dict[str, ColumnType] = {}
        for name, column in self._names.items():
            try:
                columns[column] = seen[name].ctype
            except UnfitValuesError as error:
                raise DatasetError(f"{self.uri}: {name}: {error}; leave it out by --columns") from error
        sampled = (column for name, column in self._names.items() if seen[name].sampled)
        return Schema(columns, tuple(sampled))

    def _make_logs(self, surveys: Sequence[_Survey]) -> tuple[ForeignLog, ...]:
        name = short_name(self.uri)
        found: dict[str, list[tuple[int, int, _RowRun]]] = {}
        for number, survey in enumerate(surveys):
            first = 0
            runs = survey.runs if self._has_ids else _joined(survey.runs)
            for run in runs:
                found.setdefault(run.log_id if self._has_ids else name, []).append((number, first, run))
                first += run.rows
        rows = [max(1, survey.rows) for survey in surveys]
        return tuple(
            ForeignLog(log_id, self.uri, self._parts(log_id, places, rows))
            for log_id, places in sorted(found.items())
        )

    def _parts(
        self, log_id: str, places: Sequence[tuple[int, int, _RowRun]], rows: Sequence[int]
    ) -> tuple[LogRange, ...]:
        counts = [0, *itertools.accumulate(run.rows for _, _, run in places)]
        starts = counts[:-1]
        stop = counts[-1]
        if self._has_stamps:
            starts = [run.first for _, _, run in places]
            stop = places[-1][2].last + 1
        parts = []
        for (number, first, run), start, end in zip(places, starts, [*starts[1:], stop], strict=True):
            identity = digest_of([self._pieces[number].content, first, run.rows, log_id, start])[:32]
            size = self._pieces[number].size * run.rows // rows[number]
            where = (number, first, start)
            parts.append(LogRange(f"{number:06}", start, end, run.rows, identity, where, size))
        return tuple(parts)

    def logs(self) -> Sequence[ForeignLog]:
        """See `ForeignDataset.logs`."""
        return self._logs

    def blocks(
        self, log_id: str, part: LogRange, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20
    ) -> Iterator[Block]:
        """See `ForeignDataset.blocks`."""
        number, first, start = part.where
        piece = self._pieces[number]
        names = tuple(self.schema.all) if columns is None else tuple(columns)
        wanted = self._files_names(names)
        at = done = 0
        for batch in self._reader.batches(piece, wanted, max_bytes):
            count = _num_rows(batch)
            low, high = max(first - at, 0), min(first + part.rows - at, count)
            if low < high:
                block = self._block(log_id, part, piece, batch, names, start + done)
                taken = block.take(slice(low, high)) if (low, high) != (0, count) else block.columns
                if not self._has_stamps:
                    taken = {**taken, TIME: np.arange(start + done, start + done + high - low)}
                yield Block(log_id, part.name, done, taken)
                done += high - low
            at += count
        if done != part.rows:
            raise DatasetError(f"{piece.place}: {done} rows, {part.rows} were there before")

    def _files_names(self, names: Sequence[str]) -> list[str]:
        """What to read for some columns: never nothing, so that rows can be counted."""
        bases = {name.rpartition(".")[0] if _is_meta(name) else name for name in names}
        wanted = [name for name, column in self._names.items() if column in bases]
        wanted += [TIME] if self._has_stamps else []
        return wanted or list(self._names)[:1] or [LOG_ID]

    def _block(
        self, log_id: str, part: LogRange, piece: DatasetPiece, batch: Batch, names: Sequence[str], first: int
    ) -> Block:
        columns: dict[str, Values] = {}
        count = _num_rows(batch)
        if self._has_stamps:
            stamps = _stamps_of(batch)
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
        return Block(log_id, part.name, 0, {TIME: np.zeros(count, np.int64), **columns})

    def _stacked(self, raw: RawColumn, name: str) -> Values:
        if raw.available is not None and name not in self.schema.sampled:
            raise UnfitValuesError("a row has no value")
        return stacked(raw, self.schema.columns[name])


def _with(seen: Mapping[str, SeenColumn], piece: DatasetPiece, survey: _Survey) -> dict[str, SeenColumn]:
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


def _joined(runs: Sequence[_RowRun]) -> list[_RowRun]:
    """All runs of a piece as one."""
    if not runs:
        return []
    return [_RowRun("", sum(run.rows for run in runs), runs[0].first, runs[-1].last)]


def _usable_keys(surveys: Sequence[_Survey], seen: Mapping[str, SeenColumn]) -> tuple[bool, bool]:
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


def _wanted(reader: PieceReader, patterns: Sequence[str] | None) -> list[str] | None:
    """Names in the files of columns that match, and of the keys; None for all, whatever later files hold.

    Raises:
        UsageError: a pattern matches nothing.
    """
    if patterns is None:
        return None
    names = reader.names()
    made = {name: column_name(name) for name in names}
    plain = ColumnType(np.dtype("u1"))
    chosen = Schema(dict.fromkeys(made.values(), plain)).select(patterns)
    return [name for name in names if made[name] in chosen or name in (LOG_ID, TIME)]


def _survey_all(
    reader: PieceReader, pieces: Sequence[DatasetPiece], names: Sequence[str] | None, num_workers: int
) -> list[_Survey | DatasetError]:
    if num_workers == 1 or len(pieces) < 2 or sum(piece.size for piece in pieces) < _IN_PROCESS_BYTES:
        return [_surveyed(reader, piece, names) for piece in pieces]
    # Not fork: threads of the caller (progress, fsspec) may hold locks.
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(min(num_workers, len(pieces)), context) as pool:
        count = len(pieces)
        return list(pool.map(_surveyed, [reader] * count, pieces, [names] * count))


def _surveyed(
    reader: PieceReader, piece: DatasetPiece, names: Sequence[str] | None
) -> _Survey | DatasetError:
    try:
        return survey_piece(reader, piece, names)
    except DatasetError as error:
        return error
