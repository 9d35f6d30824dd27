"""Foreign datasets without declared types: pieces, and surveys of their values.

A *piece* is what one worker reads alone: a tar shard, a row group, a range of a bag.
Here: `RawRows`, what a format offers for such datasets; `survey_all`, one pass over all pieces.
Elsewhere: types of values (types), what is inferred from surveys, and the rows (source).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

import numpy as np

from logloom.errors import DatasetError
from logloom.interpreter import process_pool
from logloom.io.rows.inference.types import RawColumn, SeenColumn, UnfitValuesError
from logloom.io.rows.log_ranges import Ints
from logloom.values import dataclass

LOG_ID, TIME = "log_id", "timestamp"
_IN_PROCESS_BYTES = 64 << 20  # below this, starting processes takes longer than reading
Batch = Mapping[str, RawColumn]


@dataclass(frozen=True)
class DatasetPiece:
    """Some rows of a dataset that one worker reads, alone: a shard, a row group, a range of a bag.

    Attributes:
        place: a file or folder and what of it, for errors.
        where: for the source alone.
        content: digest of its files.
        size: about how many bytes it takes.
    """

    place: str
    where: Any
    content: str
    size: int


class RawRows(Protocol):
    """Rows of files without declared types. To be subclassed; pickles.

    One column that can't be read keeps no other from being read: its `RawColumn` has the reason.

    Attributes:
        place: the URI, for messages.
        kind: what `--from` calls it.
        is_direct: whether `pick` reads nothing but the rows that are asked for.
    """

    place: str
    kind: str
    is_direct: bool = False

    def names(self) -> Sequence[str]:
        """What rows hold, by the names in the files."""

    @property
    def notes(self) -> tuple[str, ...]:
        """For people, how rows are made."""
        return ()

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """All pieces of the named columns, in row order; None is all columns. Opens no more than it must."""

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        """The rows of a piece, by the names in the files; None is all of them.

        Each batch has all the names that are given; rows without a column have no value for it.

        Raises:
            DatasetError: damage; names file and place.
        """

    def pick(
        self, piece: DatasetPiece, names: Sequence[str] | None, rows: Ints, max_bytes: int
    ) -> Iterator[Batch]:
        """Some rows of a piece, in batches as those of `batches`; copies, which keep no others in memory.

        Args:
            rows: (n,) numbers within the piece, ascending, at least one.
            max_bytes: about how much is read at once.

        Raises:
            DatasetError: damage; names file and place.
        """
        at = 0
        for batch in self.batches(piece, names, max_bytes):
            own = rows_between(rows, at, at + num_rows(batch))
            if len(own):
                yield {name: column.take(own) for name, column in batch.items()}
            at += num_rows(batch)
            if at > rows[-1]:
                return

    def part(self, piece: DatasetPiece) -> RawRows:
        """These rows for a worker that reads one piece of them; may be smaller to pickle."""
        return self

    def forms(self, names: Sequence[str]) -> Mapping[str, str]:
        """Encodings of bytes by column, if known from names or files: jpg, png, msgpack, …"""
        return {}


Batches = Callable[[DatasetPiece, Sequence[str] | None, int], Iterator[Batch]]  # of `RawRows`


@dataclass(frozen=True)
class RowRun:
    """Neighbouring rows of one log in a piece."""

    log_id: str
    rows: int
    first: int
    last: int


@dataclass
class Survey:
    """The types and logs found in a piece.

    Attributes:
        ascends: whether the stamps ascend within each run; so, too, if there are none.
    """

    rows: int = 0
    seen: dict[str, SeenColumn] = field(default_factory=dict)
    runs: list[RowRun] = field(default_factory=list)
    ascends: bool = True


def survey_piece(
    batches: Batches, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int = 64 << 20
) -> Survey:
    """Read the named columns of all rows of a piece, and collect their types; None is all columns.

    Rows that lack a column have no value for it. A column whose rows don't fit each other has a `problem`.

    Raises:
        DatasetError: it is damaged; names file and place.
    """
    survey = Survey()
    for batch in batches(piece, names, max_bytes):
        rows = num_rows(batch)
        found: dict[str, SeenColumn] = {}
        for name, column in batch.items():
            try:
                seen = SeenColumn.of(column)
                found[name] = survey.seen[name].and_(seen) if name in survey.seen else seen
            except UnfitValuesError as error:
                found[name] = SeenColumn(problem=f"{piece.place}: {error}")
        if survey.rows:
            found = {name: found.get(name, seen) for name, seen in survey.seen.items()} | found
            for name in survey.seen.keys() ^ batch.keys():
                found[name] = replace(found[name], sampled=True)
        survey.seen = found
        _note_runs(survey, batch, rows)
        survey.rows += rows
    return survey


def absent(num_rows: int) -> RawColumn:
    """Some rows that lack a column."""
    return RawColumn([None] * num_rows, available=np.zeros(num_rows, np.bool_))


def num_rows(batch: Batch) -> int:
    """How many rows a batch has."""
    return len(next(iter(batch.values())).values) if batch else 0


def rows_between(rows: Ints, start: int, stop: int) -> Ints:
    """Those of ascending rows in [start, stop), counted from `start`."""
    first, last = rows.searchsorted([start, stop]).tolist()
    return rows[first:last] - start


def _note_runs(survey: Survey, batch: Batch, rows: int) -> None:
    if not rows:
        return
    ids, stamps = _ids_of(batch), stamps_of(batch)
    first = 0
    for log_id, group in itertools.groupby(ids if ids is not None else [""] * rows):
        count = len(list(group))
        part = stamps[first : first + count] if stamps is not None else np.zeros(1, np.int64)
        run = RowRun(log_id, count, int(part[0]), int(part[-1]))
        survey.ascends &= bool((part[1:] > part[:-1]).all())
        if survey.runs and survey.runs[-1].log_id == log_id:
            before = survey.runs.pop()
            survey.ascends &= run.first > before.last
            run = RowRun(log_id, before.rows + count, before.first, run.last)
        survey.runs.append(run)
        first += count


def _ids_of(batch: Batch) -> list[str] | None:
    column = batch.get(LOG_ID)
    if column is None or column.available is not None or not isinstance(column.values, list):
        return None
    return column.values if all(isinstance(value, str) for value in column.values) else None


def stamps_of(batch: Batch) -> Ints | None:
    """(n,) timestamps of a batch; None where it has none that every row has."""
    column = batch.get(TIME)
    if column is None or column.available is not None or not isinstance(column.values, np.ndarray):
        return None
    return column.values if column.values.dtype == np.int64 and column.values.ndim == 1 else None


def survey_all(
    batches: Batches, pieces: Sequence[DatasetPiece], names: Sequence[str] | None, num_workers: int
) -> list[Survey | DatasetError]:
    if num_workers == 1 or len(pieces) < 2 or sum(piece.size for piece in pieces) < _IN_PROCESS_BYTES:
        return [_surveyed(batches, piece, names) for piece in pieces]
    with process_pool(min(num_workers, len(pieces))) as pool:
        count = len(pieces)
        return list(pool.map(_surveyed, [batches] * count, pieces, [names] * count))


def _surveyed(batches: Batches, piece: DatasetPiece, names: Sequence[str] | None) -> Survey | DatasetError:
    try:
        return survey_piece(batches, piece, names)
    except DatasetError as error:
        return error
