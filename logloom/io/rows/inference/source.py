"""Rows of datasets without declared types, which a first pass infers.

Here: `SurveyedSource`, for any format, and the first pass, which infers schema, logs and parts.
Elsewhere: how a format reads such files (`RawRows` in files), types from values (types).

The names `timestamp` and `log_id` have their meaning in logloom if possible: int64 that ascends within a log,
and text whose equal values are neighbours. Else they are columns like any other (`timestamp_`, `log_id_`),
the dataset is one log, and the time of a row is its number. This is also so in conversions if logs aren't
ordered by name, since versions order rows by log, and rows keep their order.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from logloom.blocks import Block, Values
from logloom.caching import cached_property
from logloom.digests import digest_of
from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.pages import LogStatus
from logloom.io.formats.registry import form_options
from logloom.io.rows.chain import grouped
from logloom.io.rows.inference.files import (
    LOG_ID,
    TIME,
    Batch,
    DatasetPiece,
    RawRows,
    RowRun,
    Survey,
    absent,
    num_rows,
    stamps_of,
    survey_all,
)
from logloom.io.rows.inference.types import (
    RawColumn,
    SeenColumn,
    UnfitValuesError,
    column_name,
    stacked,
)
from logloom.io.rows.log_ranges import DAMAGE, Ints, LogRange, SourceLog, Stretches
from logloom.io.rows.sources import BLOCK_BYTES, About, RowSource, Run, Share, joined_bounds, row_ranges
from logloom.io.storage.folders import short_name
from logloom.io.storage.lru_cache import LruCache
from logloom.row_splits import COLUMN as SPLIT
from logloom.schema import NO_AGE, STRING, TIMESTAMP, ColumnType, Schema, base_of, root_of
from logloom.values import dataclass

_KEPT_BYTES = 128 << 20  # of rows in memory: reading rows near each other reads each piece once
_READ_BYTES = 16 << 20  # about, that are read at once
_RANGE_ROWS = 64  # from which on neighbours alone are read, where that is possible


class SurveyedSource(RowSource):
    """Rows whose types are inferred from all of their values."""

    def __init__(
        self,
        raw: RawRows,
        columns: Sequence[str] | None = None,
        *,
        num_workers: int = 1,
        on_error: str = "fail",
        by_name: bool = True,
    ):
        """Read the whole dataset once.

        Args:
            columns: names or globs of columns to read; all by default.
            num_workers: processes that read it.
            on_error: "skip" leaves out pieces that can't be read or don't fit those before, and lists each
                as a log of its own, since its log is unknown.
            by_name: whether rows must be ordered by log_id to be of logs, as those of versions are.

        Raises:
            DatasetError: it is damaged, has no rows, or its rows don't fit each other.
            UsageError: a column that is named can't be read, or none can.
        """
        self.place, self.kind, self._raw = raw.place, raw.kind, raw
        self.unknown = f"what {self.kind} doesn't check itself"
        self._learnt = _learn(raw, columns, num_workers, on_error, by_name)
        self._schema, self.has_stamps = self._learnt.schema, self._learnt.has_stamps
        self.refused = self.left_out = self._learnt.refused
        names = self._learnt.names
        self._forms = {names[name]: form for name, form in raw.forms(list(names)).items() if name in names}

    @property
    def about(self) -> About:
        odd = (f"{name} doesn't order the rows; it is column {name}_" for name in self._learnt.odd)
        refused = (f"{name} is left out: {why}" for name, why in self.refused.items())
        hints = {output: {option: self._forms} for output, option in form_options().items()}
        return replace(super().about, notes=(*self._raw.notes, *odd, *refused), hints=hints)

    def logs(self) -> Sequence[SourceLog]:
        return self._learnt.logs

    def shares(self) -> Sequence[Share]:
        """See `RowSource.shares`: the runs of rows, with the inferred types, so that workers infer none."""
        return [
            Share(self._part(run), run.name, run.log_id, 0, 0, run.rows, run.size, is_stream=True)
            for run in self._learnt.runs
        ]

    def _part(self, run: _PartRun) -> SurveyedSource:
        """The rows of one run."""
        part = copy.copy(self)
        part._raw = self._raw.part(run.piece)
        part._learnt = replace(self._learnt, logs=(), runs=(run,))
        return part

    @cached_property
    def stretches(self) -> Stretches:
        runs = self._learnt.runs
        return Stretches.of_logs([run.log_id for run in runs], [run.rows for run in runs])

    @cached_property
    def stamps(self) -> Ints | None:
        return super().stamps if self.has_stamps else None

    def group_bounds(self, names: Sequence[str]) -> Ints:
        """See `RowSource.group_bounds`: the pieces, or ranges of a piece if rows are read one by one."""
        bounds = []
        for piece, group in itertools.groupby(self._learnt.runs, lambda run: run.piece):
            rows = sum(run.rows for run in group)
            bounds.append(row_ranges(rows, piece.size / rows) if self._raw.is_direct else np.array([0, rows]))
        return joined_bounds(bounds)

    def _runs(self, rows: Ints, names: Sequence[str]) -> Iterator[Run]:
        """Read each piece that has some of the rows once."""
        found = [(self._learnt.runs[number], own) for number, _, own in grouped(self.stretches.bounds, rows)]
        pieces = [list(group) for _, group in itertools.groupby(found, lambda one: one[0].piece)]
        if self._raw.is_direct:
            is_range = len(rows) >= _RANGE_ROWS and rows[-1] - rows[0] + 1 == len(rows)
            keeps = not is_range and self._fit(pieces, tuple(names))
        else:
            keeps = len(pieces) == 1 or self._fit(pieces, tuple(names))
        for group in pieces:
            log_ids = [run.log_id for run, own in group for _ in range(len(own))]
            wanted = np.concatenate([run.first + own for run, own in group])
            done = 0
            for block in self._rows_of_piece(group[0][0].piece, tuple(names), wanted, keeps):
                yield log_ids[done : done + len(block)], block.timestamp, block.columns
                done += len(block)
            if done != len(wanted):
                raise DatasetError(f"{group[0][0].piece.place}: rows are gone that were there before")

    def _fit(self, pieces: Sequence[Sequence[tuple[_PartRun, Ints]]], names: tuple[str, ...]) -> bool:
        """Whether all these pieces fit into memory together, as far as known."""
        per_row = self._bytes_per_row.get(names)
        num_rows = sum(run.rows for group in pieces for run, _ in group)
        return per_row is not None and per_row * num_rows <= _KEPT_BYTES

    def _rows_of_piece(
        self, piece: DatasetPiece, names: tuple[str, ...], rows: Ints, keeps: bool
    ) -> Iterator[Block]:
        """Ascending rows of a piece.

        Args:
            keeps: whether to keep what is read for the next time.
        """
        found = self._kept.get((piece, names))
        if found is None or not found.has(rows):
            found = self._read(piece, names, rows) if keeps else None
        if found is not None and found.has(rows):
            firsts = np.cumsum([found.first, *map(len, found.blocks)])
            for number, _, within in grouped(firsts, rows):
                yield Block("", "", 0, found.blocks[number].take(within))
            return
        at = 0
        for batch in self._raw.pick(piece, self._files_names(names), rows, _READ_BYTES):
            block = self._block(piece, batch, names, at)
            self._bytes_per_row[names] = block.nbytes / max(1, len(block))
            yield block
            at += len(block)

    def _read(self, piece: DatasetPiece, names: tuple[str, ...], rows: Ints) -> _KeptRows:
        """Read a piece; of one that is too large to be kept, up to these rows, of which the last are kept."""
        blocks: list[Block] = []
        first = at = num_bytes = 0
        for batch in self._raw.batches(piece, self._files_names(names), _READ_BYTES):
            blocks.append(self._block(piece, batch, names, at))
            num_bytes += blocks[-1].nbytes
            at += len(blocks[-1])
            while num_bytes > _KEPT_BYTES and len(blocks) > 1:
                num_bytes -= blocks[0].nbytes
                first += len(blocks.pop(0))
            if first and at > rows[-1]:
                break
        self._bytes_per_row[names] = num_bytes / max(1, at - first)
        found = _KeptRows(first, blocks, num_bytes)
        self._kept.put((piece, names), found)
        return found

    @cached_property
    def _kept(self) -> LruCache[_KeptRows]:
        return LruCache(_KEPT_BYTES, least=1)

    @cached_property
    def _bytes_per_row(self) -> dict[tuple[str, ...], float]:
        return {}

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """See `RowSource.scan`; each piece is read once, whatever logs are in it."""
        stop = len(self) if stop is None else stop
        runs = zip(self._learnt.runs, self.stretches.bounds.tolist(), strict=False)
        found = [(run, max(start, first) - first, min(stop, first + run.rows) - first) for run, first in runs]
        wanted = (one for one in found if one[1] < one[2])
        for piece, group in itertools.groupby(wanted, lambda one: one[0].piece):
            yield from self._piece_blocks(piece, list(group), names, max_bytes)

    def _piece_blocks(
        self,
        piece: DatasetPiece,
        wanted: Sequence[tuple[_PartRun, int, int]],
        names: Sequence[str],
        max_bytes: int,
    ) -> Iterator[Block]:
        """Rows [low, high) of each of some runs of a piece, which follow each other."""
        at = number = done = 0
        for batch in self._raw.batches(piece, self._files_names(names), max_bytes):
            count = num_rows(batch)
            block: Block | None = None
            while number < len(wanted):
                run, low, high = wanted[number]
                begin, end = max(run.first + low + done - at, 0), min(run.first + high - at, count)
                if begin < end:
                    block = block or self._block(piece, batch, names, at)
                    taken = block.take(slice(begin, end)) if (begin, end) != (0, count) else block.columns
                    if not self.has_stamps:
                        first = run.start + low + done
                        taken = {**taken, TIME: np.arange(first, first + end - begin)}
                    yield Block(run.log_id, run.name, done, taken)
                    done += end - begin
                if done < high - low:
                    break
                number, done = number + 1, 0
            at += count
            if number == len(wanted):
                return
        run, low, high = wanted[number]
        raise DatasetError(f"{piece.place}: {done} rows, {high - low} were there before")

    def _files_names(self, names: Sequence[str]) -> list[str]:
        """What to read for some columns: never nothing, so that rows can be counted."""
        bases, of_files = {base_of(name) for name in names}, self._learnt.names
        wanted = [name for name, column in of_files.items() if column in bases]
        wanted += [TIME] if self.has_stamps else []
        return wanted or list(of_files)[:1] or [LOG_ID]

    def _block(self, piece: DatasetPiece, batch: Batch, names: Sequence[str], first: int) -> Block:
        count = num_rows(batch)
        columns: dict[str, Values] = {TIME: np.zeros(count, np.int64)}
        if self.has_stamps:
            stamps = stamps_of(batch)
            if stamps is None:
                raise DatasetError(f"{piece.place}: no longer has timestamps")
            columns[TIME] = stamps
        of_column = {column: name for name, column in self._learnt.names.items()}
        for name in names:
            base = base_of(name)
            raw = batch.get(of_column[base]) or absent(count)
            try:
                columns[name] = self._stacked(raw, name) if base == name else _meta(name, raw, count)
            except UnfitValuesError as error:
                raise DatasetError(f"{piece.place}: {of_column[base]} at row {first}: {error}") from error
        return Block("", "", 0, columns)

    def _stacked(self, raw: RawColumn, name: str) -> Values:
        if raw.available is not None and name not in self.schema.sampled:
            raise UnfitValuesError("a row has no value")
        return stacked(raw, self.schema.columns[name])


def _meta(name: str, raw: RawColumn, count: int) -> Values:
    """Ages and availabilities: a row that has a value was measured at its time, unless files say more."""
    available = raw.available if raw.available is not None else np.ones(count, bool)
    if name.endswith(".available"):
        return available
    return raw.ages if raw.ages is not None else np.where(available, 0, NO_AGE)


@dataclass(frozen=True)
class _KeptRows:
    """Consecutive rows of a piece in memory.

    Attributes:
        first: of the rows, in the piece.
    """

    first: int
    blocks: Sequence[Block]
    nbytes: int

    def has(self, rows: Ints) -> bool:
        """Whether it has all of some ascending rows."""
        return self.first <= int(rows[0]) and int(rows[-1]) < self.first + sum(map(len, self.blocks))


@dataclass(frozen=True)
class _PartRun:
    """Consecutive rows of a part in a piece.

    Attributes:
        first: of the rows, in the piece.
        start: of the part; of the first row, where rows are timed by their number.
        size: about how many bytes they take in storage.
    """

    log_id: str
    name: str
    rows: int
    piece: DatasetPiece
    first: int
    start: int
    size: int


@dataclass(frozen=True)
class _LearntRows:
    """The result of the first pass.

    Attributes:
        names: columns by the names in the files.
        refused: why columns can't be read, by the names in the files.
        has_stamps: whether `timestamp` orders the rows of each log.
        odd: which of `log_id` and `timestamp` are there, but are columns like any other.
        logs: all of them, by log_id.
        runs: where the rows of their parts are, in the order of the files.
    """

    schema: Schema
    names: Mapping[str, str]
    refused: Mapping[str, str]
    has_stamps: bool
    odd: Sequence[str]
    logs: Sequence[SourceLog]
    runs: Sequence[_PartRun]


def _learn(
    raw: RawRows, columns: Sequence[str] | None, num_workers: int, on_error: str, by_name: bool
) -> _LearntRows:
    """Read the whole dataset once; see `SurveyedSource` for arguments and errors."""
    wanted = _wanted(raw, columns)
    pieces = list(raw.pieces(wanted))
    found = survey_all(raw.batches, pieces, wanted, num_workers)  # each process is sent the dataset
    lost = {number: survey for number, survey in enumerate(found) if isinstance(survey, DatasetError)}
    if lost and on_error != "skip":
        raise next(iter(lost.values()))
    surveys = [Survey() if isinstance(survey, DatasetError) else survey for survey in found]
    seen = _merged(pieces, surveys, lost, on_error)
    if not any(survey.rows for survey in surveys):
        raise next(iter(lost.values())) if lost else DatasetError(f"{raw.place}: no rows")
    has_ids, has_stamps = _usable_keys(surveys, seen, by_name)
    keys = [name for name, used in ((LOG_ID, has_ids), (TIME, has_stamps)) if used]
    others = {name: column for name, column in seen.items() if name not in keys}
    refused = _refused(others)
    _check_refused(raw.place, refused, columns, len(others))
    names = {name: column_name(name) for name in others if name not in refused}
    logs, runs = _cut(raw.place, pieces, surveys, has_ids, has_stamps)
    return _LearntRows(
        Schema(
            {column: seen[name].ctype for name, column in names.items()},
            tuple(column for name, column in names.items() if seen[name].sampled),
        ),
        names,
        refused,
        has_stamps,
        [name for name in (LOG_ID, TIME) if name in names],
        sorted([*logs, *_lost_logs(raw.place, pieces, lost)], key=lambda log: log.log_id),
        runs,
    )


def _refused(seen: Mapping[str, SeenColumn]) -> dict[str, str]:
    """Why columns can't be read, by name."""
    found: dict[str, str] = {}
    made: dict[str, list[str]] = {}
    for name, column in seen.items():
        try:
            column.ctype  # noqa: B018 # raises where it can't be read
            made.setdefault(column_name(name), []).append(name)
        except UnfitValuesError as error:
            found[name] = str(error)
    for same, names in made.items():
        for name in names if len(names) > 1 else ():
            found[name] = f"{' and '.join(map(repr, names))} would both be column {same!r}; rename one"
    return found


def _check_refused(
    place: str, refused: Mapping[str, str], columns: str | Sequence[str] | None, num_columns: int
) -> None:
    """
    Raises:
        UsageError: one of the columns is named, not only matched, or there is no other; lists all of these.
    """
    given = {columns} if isinstance(columns, str) else {*(columns or ())}
    named = [name for name in refused if given & {column_name(name), f"{column_name(name)}.available"}]
    if len(refused) == num_columns:
        named = list(refused)
    if named:
        raise UsageError("\n".join(f"{place}: column {name}: {refused[name]}" for name in named))


def _wanted(raw: RawRows, patterns: Sequence[str] | None) -> list[str] | None:
    """Names in the files of columns that match, of the keys and of splits; None for all.

    Raises:
        UsageError: a pattern matches nothing.
    """
    if patterns is None:
        return None
    names = raw.names()
    made = {name: column_name(name) for name in names}
    keys = {LOG_ID, TIME}.intersection(names)  # read anyway; whether they become columns shows later
    given = [patterns] if isinstance(patterns, str) else patterns
    others = [_root_of(pattern, made) for pattern in given if pattern not in keys]
    plain = ColumnType(np.dtype("u1"))
    # An availability is wanted by its own name, whatever the column's values turn out to be.
    chosen = {
        base_of(n) for n in Schema(dict.fromkeys(made.values(), plain), (*made.values(),)).select(others)
    }
    return [name for name in names if made[name] in chosen or name in (LOG_ID, TIME, SPLIT)]


def _root_of(pattern: str, made: Mapping[str, str]) -> str:
    """The column of a field that a filter names; other patterns as they are."""
    is_glob = any(sign in pattern for sign in "*?[")
    return pattern if is_glob else root_of(pattern, {*made.values()}) or pattern


def _merged(
    pieces: Sequence[DatasetPiece], surveys: list[Survey], lost: dict[int, DatasetError], on_error: str
) -> dict[str, SeenColumn]:
    """What was seen of all pieces; on "skip" those that don't fit the ones before become lost."""
    seen: dict[str, SeenColumn] | None = None
    for number, (piece, survey) in enumerate(zip(pieces, surveys, strict=True)):
        if not survey.rows:
            continue
        made: dict[str, SeenColumn] = {}
        unfit: list[str] = []
        for name in survey.seen if seen is None else {**seen, **survey.seen}:
            before, own = (seen or survey.seen).get(name), survey.seen.get(name)
            if before is None or own is None:  # rows without it have no value
                made[name] = replace(before or own or SeenColumn(), sampled=True)
                continue
            try:
                made[name] = before.and_(own)
            except UnfitValuesError as error:
                unfit.append(f"{piece.place}: {name}: {error}, against those before")
                made[name] = SeenColumn(problem=f"{piece.place}: {error}, against those before")
        if unfit and on_error == "skip":
            lost[number], surveys[number] = DatasetError("; ".join(unfit)), Survey()
        else:
            seen = made
    return seen or {}


def _usable_keys(
    surveys: Sequence[Survey], seen: Mapping[str, SeenColumn], by_name: bool
) -> tuple[bool, bool]:
    """Return whether log_id names logs, and timestamp orders their rows."""

    def is_(name: str, ctype: ColumnType) -> bool:
        column = seen.get(name)
        if column is None or column.problem or column.sampled or column.dtype is None:
            return False
        found = column.ctype
        return (found.dtype, found.shape, found.kind) == (ctype.dtype, ctype.shape, ctype.kind)

    runs = [run for survey in surveys for run in survey.runs]
    has_ids = is_(LOG_ID, STRING)
    if has_ids:
        neighbours = [log_id for log_id, _ in itertools.groupby(runs, key=lambda run: run.log_id)]
        has_ids = len(set(neighbours)) == len(neighbours) and all(neighbours)
        has_ids &= not by_name or neighbours == sorted(neighbours)
    ascends = all(survey.ascends for survey in surveys)
    for a, b in itertools.pairwise(runs):
        ascends &= b.first > a.last or (has_ids and a.log_id != b.log_id)
    return has_ids, is_(TIME, TIMESTAMP) and ascends


def _cut(
    place: str, pieces: Sequence[DatasetPiece], surveys: Sequence[Survey], has_ids: bool, has_stamps: bool
) -> tuple[list[SourceLog], list[_PartRun]]:
    """Return the logs, with a part for each of their pieces, and the runs of rows of the parts."""
    found: dict[str, list[tuple[int, int, RowRun]]] = {}
    for number, survey in enumerate(surveys):
        first = 0
        for run in survey.runs if has_ids else _joined(survey.runs):
            found.setdefault(run.log_id if has_ids else short_name(place), []).append((number, first, run))
            first += run.rows
    logs, runs, position = [], [], 0
    for log_id, places in found.items():
        counts = [0, *itertools.accumulate(run.rows for _, _, run in places)]
        starts = [*(run.first for _, _, run in places), places[-1][2].last + 1] if has_stamps else counts
        parts = []
        for (number, first, run), (start, stop) in zip(places, itertools.pairwise(starts), strict=True):
            piece = pieces[number]
            identity = digest_of([piece.content, first, run.rows, log_id, start])[:32]
            size = piece.size * run.rows // surveys[number].rows
            part = LogRange(f"{number:06}", start, stop, run.rows, identity, position, size)
            parts.append(part)
            runs.append(_PartRun(log_id, part.name, run.rows, piece, first, start, size))
            position += run.rows
        logs.append(SourceLog.of(log_id, place, parts))
    return logs, runs


def _joined(runs: Sequence[RowRun]) -> list[RowRun]:
    """All runs of a piece as one."""
    if not runs:
        return []
    return [RowRun("", sum(run.rows for run in runs), runs[0].first, runs[-1].last)]


def _lost_logs(
    place: str, pieces: Sequence[DatasetPiece], lost: Mapping[int, DatasetError]
) -> Iterator[SourceLog]:
    """A log for each lost piece, since its log is unknown."""
    name = place.rstrip("/").rpartition("/")[2]
    for count, (number, error) in enumerate(sorted(lost.items())):
        record = replace(
            SourceLog.of(f"{name}.lost.{count:06}", pieces[number].place, ()).record,
            content_id=pieces[number].content,
            status=LogStatus.skipped,
            dropped={DAMAGE: 0},
            reasons=(str(error),),
        )
        yield SourceLog(record, ())
