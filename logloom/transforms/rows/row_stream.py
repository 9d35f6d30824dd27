"""Make the rows of a span, in blocks, from the messages of its log.

Here: `build_blocks`, which works on a span piece by piece, so that memory is bounded for any length. Rows
don't depend on spans, pieces and blocks.
Elsewhere: pieces and their columns (logloom.transforms.rows.topic_columns), planning spans (spans),
accounts (accounts), filters (logloom.query.where), derived columns (logloom.transforms.rows.derive.columns)
and the memory shared by all streams (logloom.transforms.build.memory_budget).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Block, Lists, Ragged, Values, cut_by_bytes, empty, take
from logloom.digests import RowsDigest
from logloom.errors import LogReadError, UsageError
from logloom.io.catalog.labels import LogLabels
from logloom.io.logs.interface import Log, OnError, Refusal
from logloom.query import where
from logloom.resample.angles import TurnEvidence, added
from logloom.row_splits import COLUMN
from logloom.schema import TIMESTAMP
from logloom.transforms.build import memory_budget
from logloom.transforms.rows.accounts import ColumnTally, Seen, Tally, add_up, within
from logloom.transforms.rows.derive import columns as derive
from logloom.transforms.rows.gaps import TickGaps
from logloom.transforms.rows.label_columns import LabelCounts, Labelled
from logloom.transforms.rows.plan.row_plan import DerivedPlan, RowPlan, Span
from logloom.transforms.rows.plan.unfit_columns import fitted
from logloom.transforms.rows.point_times import times_in
from logloom.transforms.rows.pose_lookups import Looked, read_trees
from logloom.transforms.rows.resample import Indices, Times
from logloom.transforms.rows.row_splits import RowSplitter, joined_runs
from logloom.transforms.rows.spans import ByteIndex, cut
from logloom.transforms.rows.topic_columns import Piece, Sampled, SpanValues, read_statics
from logloom.transforms.rows.video_columns import video_values

# The C library reuses freed blocks of up to 32 MiB. Larger ones come as fresh pages, and clearing these takes
# longer than filling them.
BLOCK_BYTES = 24 << 20
UNKNOWN_BYTES = 1 << 20  # estimate for a row's value of a column without fixed shape, until rows were made


def build_blocks(
    log: Log,
    log_id: str,
    plan: RowPlan,
    span: Span,
    *,
    max_bytes: int,
    labels: Mapping[str, LogLabels] | None = None,
    on_error: OnError = "fail",
) -> RowStream:
    """Yield the rows of a span, once.

    Args:
        max_bytes: approximate size of messages read at a time, and of a block. A block has at least one
            row, and with more than one no more than `BLOCK_BYTES`.
        labels: of the log, by column; missing columns have none.
        on_error: refuse messages that can't be decoded with "salvage", pictures also with "skip".

    Raises (while iterating):
        LogReadError: the log is damaged, under `on_error: fail`.
        UsageError: columns of one topic disagree about its message time, or the filter about the columns.
        LogloomError: a value doesn't fit its column, or a derived column's function fails.
    """
    return RowStream(log, log_id, plan, span, max_bytes, labels or {}, on_error)


class RowStream:
    """Blocks of a span's rows; `tally` is complete after the last one."""

    def __init__(
        self,
        log: Log,
        log_id: str,
        plan: RowPlan,
        span: Span,
        max_bytes: int,
        labels: Mapping[str, LogLabels],
        on_error: OnError,
    ):
        self._labels, self._on_error = labels, on_error
        self._log, self._log_id, self._plan, self._span = log, log_id, plan, span
        self._max_bytes = max(1, max_bytes)
        self._budget = _RowBudget(plan, max_bytes)
        self._maker = _RowMaker(plan)
        self._tally: Tally | None = None
        self._part: Piece | None = None

    @property
    def tally(self) -> Tally:
        """The span's accounts.

        Raises:
            UsageError: not all blocks were consumed yet.
        """
        if self._tally is None:
            raise UsageError("the tally of a span is available after its last block")
        return self._tally

    def account(self, rows: int, digests: RowsDigest) -> dict[str, Any]:
        """Return the tally for entries."""
        return self.tally.to_json()

    def refused(self) -> Mapping[str, Sequence[Refusal]]:
        """Return the messages that columns refuse among those that the latest rows may use, by column."""
        columns = {} if self._part is None else self._part.columns
        return {name: one.seen().refused for name, one in columns.items() if isinstance(one, Sampled)}

    def __iter__(self) -> Iterator[Block]:
        log, plan, span = self._log, self._plan, self._span
        unfit: Mapping[str, Refusal] = {}
        if self._on_error == "salvage":
            plan, unfit = fitted(plan, log)
        statics = read_statics(log, plan, self._on_error)
        try:
            point_times = times_in(log, plan)
            frames = read_trees(log, plan, span, point_times)
        except UsageError as error:  # properties of frames or points are of the log, not of the recipe
            raise LogReadError(f"{log.summary.uris[0]}: {error}") from error
        videos = video_values(log, plan)
        shared = SpanValues(statics, frames, videos, self._labels, point_times, self._on_error)
        sizes = ByteIndex(log.summary)
        accounts = _Accounts(plan, span, shared, unfit)
        for piece in cut(span, plan, log.summary, self._max_bytes, sizes):
            messages = sizes.between(piece.start, piece.stop)
            # Writers of rows keep another copy.
            with memory_budget.ROWS.reserved(messages + 2 * self._budget.bytes_of(piece)):
                yield from self._blocks_of(piece, plan, shared, accounts)
        self._tally = accounts.tally()

    def _blocks_of(
        self, piece: Span, plan: RowPlan, shared: SpanValues, accounts: _Accounts
    ) -> Iterator[Block]:
        """A separate method, so that a piece is freed before the next is read."""
        self._part = part = Piece(self._log, plan, piece, shared)
        for ticks in self._budget.groups(accounts.drop_unavailable(part)):
            group = accounts.drop_undecodable(part, ticks)
            columns = self._maker.rows(part, group, accounts)
            for rows in self._budget.blocks(columns):
                block = columns if rows is None else {n: take(v, rows) for n, v in columns.items()}
                yield Block(self._log_id, self._span.name, accounts.rows, block)
                accounts.rows += len(block["timestamp"])
        accounts.close(part)
        self._part = None


class _RowBudget:
    """The number of rows to make at a time, learnt from previous rows."""

    def __init__(self, plan: RowPlan, max_bytes: int):
        self.max_bytes = min(max(1, max_bytes), BLOCK_BYTES)
        types = plan.schema.all.values()
        fixed = sum(math.prod(t.tail) * t.dtype.itemsize for t in types if not t.is_ragged)
        self._row_bytes = 8 + fixed + UNKNOWN_BYTES * sum(t.is_ragged for t in types)
        self._group = 0

    def bytes_of(self, piece: Span) -> int:
        """Estimate the bytes of a piece's rows at a time."""
        if piece.ticks is None:
            return self.max_bytes
        return min(self.max_bytes, (piece.ticks[1] - piece.ticks[0]) * self._row_bytes)

    def groups(self, ticks: Indices) -> Iterator[Indices]:
        """Split ticks into groups whose rows are about as large as a block may be."""
        at = 0
        while at < len(ticks):
            wanted = max(1, self.max_bytes // max(1, self._row_bytes))
            self._group = min(wanted, 4 * self._group) if self._group else wanted
            yield ticks[at : at + self._group]
            at += self._group

    def blocks(self, columns: Mapping[str, Values]) -> Iterator[slice | None]:
        """Split rows into blocks; None means all rows at once."""
        sizes = _row_bytes(columns)
        if len(sizes) == 0:
            return
        self._row_bytes = int(sizes.max())
        ends = np.cumsum(sizes)
        if ends[-1] <= self.max_bytes:
            yield None
            return
        for start, stop in cut_by_bytes(np.concatenate([[0], ends]), self.max_bytes):
            yield slice(start, stop)


def _row_bytes(columns: Mapping[str, Values]) -> NDArray[np.int64]:
    """(n,) bytes of each row."""
    sizes = np.zeros(len(columns["timestamp"]), np.int64)
    for values in columns.values():
        if isinstance(values, Ragged):
            sizes += values.lengths * (math.prod(values.tail) * values.dtype.itemsize)
            if isinstance(values, Lists):  # of which many may be empty
                sizes += values.inner.lengths * values.inner.dtype.itemsize
        else:
            sizes += values.itemsize * math.prod(values.shape[1:])
    return sizes


class _Accounts:
    """Counts made while a span is processed."""

    def __init__(self, plan: RowPlan, span: Span, shared: SpanValues, unfit: Mapping[str, Refusal]):
        self._plan, self._span, self._statics, self._unfit = plan, span, shared.statics, unfit
        self._frames = shared.frames
        self._lacking: dict[str, Counter[str]] = {c.name: Counter() for c in plan.lookups}
        self._labels = {c.name: LabelCounts(c, shared.labels.get(c.name)) for c in plan.labels}
        self.planned = self.rows = 0
        reasons = ["purged", *(f"require {name}" for name in plan.require), "where"]
        self.splits: list[tuple[str, int]] = []
        self.dropped = Counter(dict.fromkeys(reasons, 0))
        of_split = [] if plan.split is None else plan.split.reasons.values()
        self._gaps = TickGaps([*reasons, *of_split])
        self._masks = np.zeros(0, np.uint64)  # of the piece's ticks, what drops each
        self._owned: Counter[str] = Counter()
        self._purged: Counter[str] = Counter()
        self._lost: dict[Refusal, None] = {}
        self._deskewed = {c.name for c in plan.columns if c.deskew is not None}
        self._seen: dict[str, list[Seen]] = {c.name: [] for c in plan.columns}
        self._turns: dict[str, list[tuple[TurnEvidence, ...]]] = {}
        self._tried: Counter[str] = Counter()

    def drop_unavailable(self, part: Piece) -> Indices:
        """Select the piece's ticks at which all required columns are available."""
        self.planned += len(part.ticks)
        self.dropped["purged"] += int(part.purged.sum())
        kept = ~part.purged
        self._masks = part.purged * self._gaps.bit("purged")
        for name in self._plan.require:
            lacking = ~part.columns[name].available
            self._masks |= lacking * self._gaps.bit(f"require {name}")
            self.dropped[f"require {name}"] += int((kept & lacking).sum())
            kept &= ~lacking
        return np.flatnonzero(kept)

    def drop_undecodable(self, part: Piece, ticks: Indices) -> Indices:
        """Select ticks whose required values can be decoded, and clouds deskewed, by making them."""
        for name in self._plan.require:
            column = part.columns[name]
            if isinstance(column, Sampled) and column.may_lose and len(ticks):
                available = column.made_available(ticks)
                self.drop(f"require {name}", ticks[~available])
                ticks = ticks[available]
        return ticks

    def drop(self, reason: str, ticks: Indices) -> None:
        """Count ticks of the piece that are no rows for a reason."""
        self.dropped[reason] += len(ticks)
        self._masks[ticks] |= self._gaps.bit(reason)

    def close(self, part: Piece) -> None:
        """Count the messages of a piece whose rows are made, and the gaps between these."""
        self._gaps.add(part.ticks, self._masks)
        for topic, messages in part.messages.items():
            self._owned[topic] += int(within(messages.time, part.span).sum())
            self._purged[topic] += part.num_purged(topic)
            lost = [r for r in messages.refused if within(np.array([r.log_time]), part.span)[0]]
            self._lost |= dict.fromkeys(lost)
        for name, column in part.columns.items():
            if isinstance(column, Sampled):
                self._seen[name].append(column.seen())
                if turns := column.turns():
                    self._turns.setdefault(name, []).append(turns)
                if name in self._deskewed:
                    self._lacking[name].update(lacking := column.lacking())
                    self._tried[name] += int((column.available & ~part.purged).sum()) + sum(lacking.values())
            elif isinstance(column, Looked):
                self._lacking[name].update(column.lacking(~part.purged))
                self._tried[name] += int((~part.purged).sum())
            elif isinstance(column, Labelled):
                self._labels[name].add(column)

    def tally(self) -> Tally:
        columns = {
            c.name: ColumnTally(min(self.rows, len(static.value)), refused=static.refused)
            if (static := self._statics.get(c.name)) is not None
            else add_up(self._seen[c.name], c.sampling, self._span)
            for c in self._plan.columns
        }
        columns |= {name: ColumnTally(refused=(refusal,)) for name, refusal in self._unfit.items()}
        dropped = {reason: count for reason, count in self.dropped.items() if count}
        owned = dict(sorted(self._owned.items()))
        purged = {topic: count for topic, count in sorted(self._purged.items()) if count}
        bounds = self._span.start, self._span.stop
        lost = tuple(self._lost)
        lacking = {name: dict(sorted(counts.items())) for name, counts in self._lacking.items() if counts}
        return Tally(
            *bounds,
            self.planned,
            self.rows,
            dropped,
            owned,
            lost,
            columns,
            purged,
            lacking,
            self._frames.notes,
            {name: counts.tally(self._span) for name, counts in self._labels.items()},
            joined_runs(self.splits),
            self._frames.last_at,
            {name: added(turns) for name, turns in self._turns.items()},
            {name: count for name, count in self._tried.items() if count},
            self._gaps.tally(),
        )


class _RowMaker:
    """Makes all columns of some ticks, those for the filter and the split first."""

    def __init__(self, plan: RowPlan):
        self._plan = plan
        self._order = ["timestamp", *plan.schema.all]
        self._derived = {d.name: d for d in plan.derived}
        self._unchecked = set(self._derived)
        types = {**plan.schema.all, "timestamp": TIMESTAMP}
        self._filter = where.parse(plan.where).bound(types) if plan.where else None
        self._splitter = RowSplitter(plan.split) if plan.split is not None else None

    def rows(self, part: Piece, ticks: Indices, accounts: _Accounts) -> dict[str, Values]:
        """Return `timestamp` and every column of the schema, at the ticks that match the filter and are in
        a split.
        """
        columns: dict[str, Values] = {"timestamp": part.ticks[ticks]}
        if self._filter is not None:
            for name in self._filter.columns:
                self._make(columns, _column_of(name), part, ticks, ())
            is_passed = self._filter.mask(columns, len(ticks))
            accounts.drop("where", ticks[~is_passed])
            passed = np.flatnonzero(is_passed)
            ticks, columns = ticks[passed], _taken(columns, passed)
        if self._splitter is not None:
            for name in self._splitter.inputs:
                self._make(columns, name, part, ticks, ())
            labels = self._splitter.labels(columns)
            kept = np.flatnonzero(labels >= 0)
            for label, why in self._splitter.reasons.items():
                accounts.drop(why, ticks[labels == label])
            accounts.splits += self._splitter.runs(labels[kept])
            ticks, columns = ticks[kept], _taken(columns, kept)
            columns[COLUMN] = self._splitter.column(labels[kept])
        for name in self._plan.order:
            self._make(columns, name, part, ticks, ())
        for column in part.columns.values():
            column.keep(ticks)
        return {name: columns[name] for name in self._order}

    def _make(
        self, columns: dict[str, Values], name: str, part: Piece, ticks: Indices, needed_by: tuple[str, ...]
    ) -> None:
        """Add a column, and before it those that it is derived from."""
        if name in columns:
            return
        plan = self._derived.get(name)
        if plan is None:
            columns[name], columns[f"{name}.age"], columns[f"{name}.available"] = part.columns[name].rows(
                ticks
            )
            return
        if name in needed_by:
            raise UsageError(f"columns are derived from each other: {' from '.join([*needed_by, name])}")
        for needed in plan.inputs:
            self._make(columns, _column_of(needed), part, ticks, (*needed_by, name))
        columns[name] = self._derive(plan, columns, part.ticks[ticks])

    def _derive(self, plan: DerivedPlan, columns: Mapping[str, Values], ticks: Times) -> Values:
        if len(ticks) == 0:
            return empty(plan.ctype)
        values = derive.compute(plan, columns, ticks)
        if plan.name in self._unchecked and len(ticks) > 1:
            derive.check_row_wise(plan, columns, ticks, values)
            self._unchecked.discard(plan.name)
        return values


def _taken(columns: dict[str, Values], rows: Indices) -> dict[str, Values]:
    return {name: take(values, rows) for name, values in columns.items()}


def _column_of(name: str) -> str:
    """Return the column of a name: c for c.age and c.available."""
    return name.removesuffix(".age").removesuffix(".available")
