"""Rows of datasets without declared types: read once to infer the types, then for the rows.

Here: `SurveyedSource`, for any format.
Elsewhere: how a format reads such files (`RawRows` in files), the first pass (first_pass).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from logloom.blocks import Block, Values
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.formats.registry import form_options
from logloom.io.rows.chain import grouped
from logloom.io.rows.inference.files import LOG_ID, TIME, Batch, RawRows, num_rows, stamps_of
from logloom.io.rows.inference.first_pass import PartRun, learn
from logloom.io.rows.inference.types import RawColumn, UnfitValuesError, stacked
from logloom.io.rows.log_ranges import Ints, SourceLog, Stretches
from logloom.io.rows.sources import BLOCK_BYTES, About, RowSource, Run
from logloom.schema import NO_AGE, base_of

_KEPT = 4  # parts in memory: reading rows in order, or near each other, reads each part once


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
            UsageError: two names would become one column.
        """
        self.place, self.kind, self._raw = raw.place, raw.kind, raw
        self.unknown = f"what {self.kind} doesn't check itself"
        self._learnt = learn(raw, columns, num_workers, on_error, by_name)
        self._schema, self.has_stamps = self._learnt.schema, self._learnt.has_stamps
        names = self._learnt.names
        self._forms = {names[name]: form for name, form in raw.forms(list(names)).items() if name in names}

    @property
    def about(self) -> About:
        odd = (f"{name} doesn't order the rows; it is column {name}_" for name in self._learnt.odd)
        hints = {output: {option: self._forms} for output, option in form_options().items()}
        return replace(super().about, notes=(*self._raw.notes, *odd), hints=hints)

    def logs(self) -> Sequence[SourceLog]:
        return self._learnt.logs

    @cached_property
    def stretches(self) -> Stretches:
        runs = self._learnt.runs
        return Stretches.of_logs([run.log_id for run in runs], [run.rows for run in runs])

    @cached_property
    def stamps(self) -> Ints | None:
        return super().stamps if self.has_stamps else None

    def _runs(self, rows: Ints, names: Sequence[str]) -> Iterator[Run]:
        """Read parts whole; the last few stay in memory."""
        for number, _, own in grouped(self.stretches.bounds, rows):
            blocks, firsts = self._read(number, tuple(names))
            for place, _, within in grouped(firsts, own):
                block = blocks[place]
                yield [block.log_id] * len(within), block.timestamp[within], block.take(within)

    @cached_property
    def _kept(self) -> OrderedDict[tuple[int, tuple[str, ...]], tuple[list[Block], Ints]]:
        return OrderedDict()

    def _read(self, number: int, names: tuple[str, ...]) -> tuple[list[Block], Ints]:
        kept = self._kept
        found = kept.get((number, names))
        if found is None:
            run = self._learnt.runs[number]
            blocks = list(self._run_blocks(run, names, BLOCK_BYTES, 0, run.rows))
            lengths = np.array([len(block) for block in blocks], np.int64)
            found = kept[number, names] = blocks, np.cumsum(lengths) - lengths
            while len(kept) > _KEPT:
                kept.pop(next(iter(kept)), None)
        return found

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        stop = len(self) if stop is None else stop
        for run, first in zip(self._learnt.runs, self.stretches.bounds.tolist(), strict=False):
            low, high = max(start, first) - first, min(stop, first + run.rows) - first
            if low < high:
                yield from self._run_blocks(run, names, max_bytes, low, high)

    def _run_blocks(
        self, run: PartRun, names: Sequence[str], max_bytes: int, low: int, high: int
    ) -> Iterator[Block]:
        """Rows [low, high) of a part."""
        rows, first, start = high - low, run.first + low, run.start + low
        at = done = 0
        for batch in self._raw.batches(run.piece, self._files_names(names), max_bytes):
            count = num_rows(batch)
            begin, end = max(first - at, 0), min(first + rows - at, count)
            if begin < end:
                block = self._block(run, batch, names, start + done)
                taken = block.take(slice(begin, end)) if (begin, end) != (0, count) else block.columns
                if not self.has_stamps:
                    taken = {**taken, TIME: np.arange(start + done, start + done + end - begin)}
                yield Block(run.log_id, run.name, done, taken)
                done += end - begin
            at += count
        if done != rows:
            raise DatasetError(f"{run.piece.place}: {done} rows, {rows} were there before")

    def _files_names(self, names: Sequence[str]) -> list[str]:
        """What to read for some columns: never nothing, so that rows can be counted."""
        bases, of_files = {base_of(name) for name in names}, self._learnt.names
        wanted = [name for name, column in of_files.items() if column in bases]
        wanted += [TIME] if self.has_stamps else []
        return wanted or list(of_files)[:1] or [LOG_ID]

    def _block(self, run: PartRun, batch: Batch, names: Sequence[str], first: int) -> Block:
        count = num_rows(batch)
        columns: dict[str, Values] = {TIME: np.zeros(count, np.int64)}
        if self.has_stamps:
            stamps = stamps_of(batch)
            if stamps is None:
                raise DatasetError(f"{run.piece.place}: no longer has timestamps")
            columns[TIME] = stamps
        of_column = {column: name for name, column in self._learnt.names.items()}
        for name in names:
            base = base_of(name)
            raw = batch[of_column[base]]
            try:
                columns[name] = self._stacked(raw, name) if base == name else _meta(name, raw, count)
            except UnfitValuesError as error:
                raise DatasetError(f"{run.piece.place}: {of_column[base]} at row {first}: {error}") from error
        return Block(run.log_id, run.name, 0, columns)

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
