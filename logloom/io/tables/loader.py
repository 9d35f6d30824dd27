"""Reading rows: from a frame of index rows to values.

Here: `row_loader` and `RowLoader`.
Elsewhere: what is taken out of the frame (logloom.io.tables.frames), plans of what to read
(logloom.io.tables.plans), windows (logloom.io.tables.windows), reading (logloom.io.tables.reading).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from logloom.errors import DatasetError, UsageError
from logloom.io.tables import description as d
from logloom.io.tables.frames import Ints, OpenFrame, open_frame, shown_columns, union_schema
from logloom.io.tables.plans import Cost, ReadPlan, alike, cost_of, make_plan
from logloom.io.tables.ranges import LOCAL_GAP, REMOTE_GAP, RangeReader
from logloom.io.tables.reading import PlanReader, at_positions
from logloom.io.tables.windows import RowWindow, Windows
from logloom.schema import Schema

Patterns = str | Sequence[str] | None
OnEdge = Literal["error", "drop", "pad"]

_ONLY = (0,)
_FARTHEST = 1 << 40  # rows from another


class RowPositionError(UsageError, IndexError):
    """A position or an offset leads to a row that doesn't exist."""


def row_loader(
    index: pd.DataFrame,
    columns: Patterns = None,
    *,
    check: bool = False,
    max_gap: int | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RowLoader:
    """Opens the rows of a frame that came from `read_index` or `merge`, however filtered, sorted or joined
    up.

    Args:
        columns: patterns of what calls without `columns` give; None is every column (ages and availabilities
            aside).
        check: compare every chunk with its hash when it is read.
        max_gap: ns between rows of a log beyond which no window goes; None: as the table says.
        threads: that read batches.
        storage_options: fsspec options by protocol.

    Raises:
        UsageError: the frame lost its service columns, or a pattern matches nothing.
        DatasetError: a table that the frame points into is gone or damaged.
    """
    reader = RangeReader(storage_options, threads)
    frame = open_frame(index, reader, storage_options)
    return RowLoader(frame, reader, columns, check=check, max_gap=max_gap, storage_options=storage_options)


class RowLoader:
    """Random access to the rows of a frame, by position: `loader[3]`, `get_row`, `get_rows`, `get_many`.

    It keeps what it needs of the frame, not the frame. It pickles into workers, serves many threads, and
    opens files when they are first read, anew in every process.

    Attributes:
        schema: of the rows; of merged tables all columns, suffixes added.
    """

    def __init__(
        self,
        frame: OpenFrame,
        reader: RangeReader,
        columns: Patterns = None,
        *,
        check: bool = False,
        max_gap: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """See `row_loader`; `reader` knows the blobs that `frame` names."""
        self._frame, self._reader, self._check = frame, reader, check
        self._length, self._log_ids, self._stamps = frame.length, frame.log_ids, frame.stamps
        self._windows = Windows(frame, max_gap, reader, storage_options)
        self._read = PlanReader(frame, self._windows, reader, check)
        self._variants, self._variant_of_row = frame.variants()
        self._may_lack = bool(frame.may_lack)
        self._find_columns()
        self._plans: dict[Any, ReadPlan] = {}
        self._default = columns
        self._columns(columns)

    def _find_columns(self) -> None:
        """Names and types of the columns; each combination of tables that rows come from has its own."""
        for number in sorted(self._frame.may_lack):
            slot = self._frame.slots[number]
            if len(slot.tables) > 1:  # rows that have none of them are read as if of the first
                self._described(number, range(len(slot.tables)))
        self._shown = [self._shown_in(variant) for variant in self._variants]
        parts = []
        for variant, shown in zip(self._variants, self._shown, strict=True):
            where = " + ".join(s.tables[t] for s, t in zip(self._frame.slots, variant, strict=True) if t >= 0)
            types = {n: self._type(variant, c.slot, c.name) for n, c in shown.items() if not _is_meta(n)}
            parts.append((where, types, [n.rpartition(".")[0] for n in shown if n.endswith(".age")]))
        self.schema: Schema = union_schema(parts)

    def _shown_in(self, variant: Sequence[int]) -> dict[str, Any]:
        schemas = [
            slot.descriptions[table].schema if table >= 0 else None
            for slot, table in zip(self._frame.slots, variant, strict=True)
        ]
        return {
            **shown_columns(schemas, self._frame.steps, meta=False),
            **shown_columns(schemas, self._frame.steps, meta=True),
        }

    def _type(self, variant: Sequence[int], slot: int, name: str) -> Any:
        return self._frame.slots[slot].descriptions[variant[slot]].schema.all[name]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": {}}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: int) -> dict[str, Any]:
        return self.get_row(position)

    def __getitems__(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """Rows for torch's DataLoader, which asks for a batch at a time."""
        return [self.get_row(position) for position in positions]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.get_row(position) for position in range(self._length))

    def _columns(self, columns: Patterns) -> tuple[str, ...]:
        try:
            return self.schema.select(self._default if columns is None else columns)
        except UsageError as error:
            raise UsageError(f"{self._place}: {error}") from error

    @property
    def _place(self) -> str:
        """The tables that the rows lie in, for people."""
        tables = [" and ".join(slot.tables[:3]) + " …" * (len(slot.tables) > 3) for slot in self._frame.slots]
        return " + ".join(tables)

    def _plan(self, columns: Patterns, position: int, rows: int = 1) -> ReadPlan:
        if self._variant_of_row is None:
            return self._plan_of(columns, _ONLY, rows)
        return self._plan_of(columns, (int(self._variant_of_row[position]),), rows)

    def _plan_of(self, columns: Patterns, variants: tuple[int, ...], rows: int) -> ReadPlan:
        names = columns if columns is None or isinstance(columns, str) else tuple(columns)
        key = (variants, names, rows)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._make_plan(self._columns(columns), variants, rows)
        return plan

    def _make_plan(self, names: Sequence[str], variants: Sequence[int], rows: int) -> ReadPlan:
        shown = self._shown[variants[0]]
        chosen: dict[int, list[int]] = {}
        for variant in variants:
            tables = [(slot, t) for slot, t in enumerate(self._variants[variant]) if t >= 0]
            if not tables:
                raise UsageError(
                    f"a row of the frame (of {self._place}) points into no table, its service columns being "
                    "empty as an outer join or reindex leaves them: drop it"
                )
            if lacking := [name for name in names if name not in self._shown[variant]]:
                where = " + ".join(self._frame.slots[slot].tables[t] for slot, t in tables)
                raise UsageError(f"some rows of the frame are of {where}, which has no column {lacking[0]!r}")
            if any(self._shown[variant][name] != shown[name] for name in names):
                raise UsageError("a batch of rows that were merged in different ways: read them apart")
            for slot, table in tables:
                chosen.setdefault(slot, []).append(table)
        return make_plan(
            names,
            [
                key
                for key, held in (("log_id", self._log_ids), ("timestamp", self._stamps))
                if held is not None
            ],
            shown,
            {
                slot: (self._frame.slots[slot].tables[tables[0]], self._described(slot, tables))
                for slot, tables in chosen.items()
            },
            {slot: self._frame.slots[slot].groups for slot in chosen},
            rows,
            all(self._reader.is_local(number) for number in range(len(self._reader.uris))),
        )

    def _described(self, slot: int, tables: Sequence[int]) -> d.Description:
        """What some tables of a slot, whose rows are read together, say of themselves."""
        own = self._frame.slots[slot]
        try:
            return alike([own.descriptions[table] for table in tables])
        except ValueError as error:
            where = " and ".join(own.tables[table] for table in sorted(set(tables)))
            raise UsageError(
                f"a batch of rows of {where}, {error}: read them apart, or a row at a time"
            ) from error

    def _position(self, pos: int) -> int:
        """A position from 0, of one that may count from the end."""
        if not -self._length <= pos < self._length:
            raise self._outside(pos)
        return pos % self._length

    def _outside(self, pos: object) -> RowPositionError:
        return RowPositionError(
            f"position {pos} of {self._length} rows (of {self._place}); positions count the frame's rows, "
            "from 0, negative ones from the end"
        )

    def get_row(self, pos: int, columns: Patterns = None) -> dict[str, Any]:
        """One row: log_id and timestamp where the frame has them, then the columns, in schema order.

        Args:
            pos: of the row in the frame, from 0; negative ones count from the end.
            columns: names or globs in which `*` crosses dots; `.*` alone means every column.

        Returns:
            Name to numpy value; bytes and str for those kinds. The arrays are the caller's own.

        Raises:
            RowPositionError: there is no such position.
            UsageError: a pattern matches nothing.
            DatasetError: what is stored is damaged or missing; names table, part, columns and row.
        """
        if not 0 <= pos < self._length:
            pos = self._position(pos)
        plan = self._plan(columns, pos)
        if self._check or self._may_lack:
            return self._read.rows(plan, at_positions(np.array([pos])))[0]
        row = plan.template.copy()
        if self._log_ids is not None:
            row["log_id"] = self._log_ids[1][self._log_ids[0].item(pos)]
        if self._stamps is not None:
            row["timestamp"] = self._stamps[pos]
        try:
            for codes, files, offsets, lengths, decode, large, limit in plan.fast:
                file, length = files[codes.item(pos)], lengths.item(pos)
                if length >= limit:
                    large.row(self._reader, file, offsets.item(pos), length, row)
                else:
                    decode(self._reader.read(file, offsets.item(pos), length), row)
        except DatasetError:
            self._read.rows(
                plan, at_positions(np.array([pos]))
            )  # so that the error can say which chunk it was
            raise
        return row

    def get_rows(
        self,
        pos: int,
        columns: Patterns = None,
        offsets: Sequence[int] = range(-10, 0),
        *,
        stride: int = 1,
        on_edge: OnEdge = "error",
    ) -> Any:
        """The rows around one: neighbours in its log as stored, whatever the frame was filtered to.

        Args:
            pos: of the row in the frame, as for `get_row`.
            columns: as for `get_row`.
            offsets: rows before (negative) and after (positive); 0 is the row itself.
            stride: what offsets are multiplied by.
            on_edge: what to do about rows that don't exist, because the log ends there or has a gap, or
                because a merged table lacks them: "error"; "drop" leaves them out; "pad" gives rows of NaN,
                0, false or empty values, and which are real.

        Returns:
            A list of rows as `get_row` gives them; with "pad" (rows, mask), mask being (k,) bool.

        Raises:
            RowPositionError: `on_edge` is "error" and a row doesn't exist.
        """
        pos = self._position(pos)
        _check_edge(on_edge, ("error", "drop", "pad"))
        steps, low, high, consecutive = _offsets(*_hashable(offsets), stride)
        plan = self._plan(columns, pos, max(1, len(steps)))
        if consecutive and self._windows.holds(pos, low, high):
            first = pos + steps.item(0)
            rows = self._read.run(plan, first, first + len(steps))
            return (rows, np.ones(len(rows), np.bool_)) if on_edge == "pad" else rows
        window = self._windows.around(pos, steps, low, high)
        if on_edge == "error" and not window.exists.all():
            self._refuse(pos, steps, window)
        rows = self._read.rows(plan, window)
        if on_edge == "pad":
            return rows, window.exists
        return (
            rows if on_edge == "error" else [r for r, there in zip(rows, window.exists, strict=True) if there]
        )

    def get_many(
        self, positions: ArrayLike, columns: Patterns = None, out: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Many rows as one array per column.

        Reads are sorted, joined where they are neighbours, and done in several threads.

        Args:
            positions: (n,) in the frame, as for `get_row`, in any order, repeating or not.
            columns: as for `get_row`.
            out: arrays to fill by column name, for example pinned memory: (n, *shape) for a fixed shape, at
                least as many elements as needed for a ragged one.

        Returns:
            log_id: list of n; timestamp: (n,); a column of fixed shape: (n, *shape); a ragged one: (values,
            lengths) with values (total, *tail) and lengths (n,), or (n, r) for r ragged axes; bytes and
            strings: list of n.

        Raises:
            RowPositionError: there is no such position.
            UsageError: a pattern matches nothing, an array of `out` doesn't fit, or rows lie in tables that
                store them differently.
            DatasetError: what is stored is damaged or missing; names table, part, columns and row.
        """
        where = self._positions(positions)
        plan = self._batch_plan(columns, where)
        _check_names(out, plan)
        return _with_stamps(self._read.batch(plan, [at_positions(where)], out), out)

    def get_window_many(
        self,
        positions: ArrayLike,
        columns: Patterns = None,
        offsets: Sequence[int] = range(-10, 0),
        *,
        stride: int = 1,
        on_edge: Literal["error", "pad"] = "error",
        out: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], NDArray[np.bool_]]:
        """The windows around many rows.

        Args:
            positions: (n,) in the frame, as for `get_row`.
            offsets, stride: of the k rows of a window, as for `get_rows`.
            on_edge: "pad" gives NaN, 0, false or empty where a row doesn't exist.
            out: as for `get_many`, for n·k rows.

        Returns:
            Columns as `get_many` gives them for n·k rows, but fixed shapes as (n, k, *shape) and lengths as
            (n, k) or (n, k, r); and the (n, k) mask of rows that exist.

        Raises:
            As `get_rows` and `get_many`.
        """
        where = self._positions(positions)
        _check_edge(on_edge, ("error", "pad"))
        steps, low, high, _ = _offsets(*_hashable(offsets), stride)
        plan = self._batch_plan(columns, where, max(1, len(steps)))
        _check_names(out, plan)
        windows = []
        for pos in where.tolist():
            window = self._windows.around(pos, steps, low, high)
            if on_edge == "error" and not window.exists.all():
                self._refuse(pos, steps, window)
            windows.append(window)
        inside = [window.positions for window in windows if window.positions is not None]
        if len(inside) == len(windows):
            windows = [at_positions(np.concatenate(inside))]
        batch = _with_stamps(self._read.batch(plan, windows, out), out)
        mask = np.concatenate([window.exists for window in windows])
        shape = (len(where), len(steps))
        return {name: _folded(column, shape) for name, column in batch.items()}, mask.reshape(shape)

    def log_spans(self) -> list[tuple[int, int]]:
        """(first, stop) positions of consecutive rows of one log, in order."""
        if not self._length:
            return []
        codes = self._frame.slots[0].log_codes
        cuts = (np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()
        return list(itertools.pairwise([0, *cuts, self._length]))

    def explain(self, columns: Patterns = None, offsets: Sequence[int] | None = None) -> Cost:
        """What a call costs: groups, requests and bytes, on average over the table's rows.

        Args:
            columns: as for `get_row`.
            offsets: of `get_rows`; None means `get_row`.
        """
        if offsets is not None and not len(offsets):
            offsets = None
        count = 1 if offsets is None else len(offsets)
        if not self._variants:
            return Cost((), 0, 0)
        span = 1 if offsets is None else max(offsets) - min(offsets) + 1
        plan = self._plan(columns, 0, count)
        gap = LOCAL_GAP if all(map(self._reader.is_local, range(len(self._reader.uris)))) else REMOTE_GAP
        return cost_of(plan, count, span, gap)

    def _refuse(self, pos: int, steps: Ints, window: RowWindow) -> NoReturn:
        lacking = steps[~window.exists].tolist()
        shown = ", ".join(map(str, lacking[:6])) + f", … ({len(lacking)} in all)" * (len(lacking) > 6)
        uri, row = self._read.stored_row(0, at_positions(np.array([pos])), 0)
        raise RowPositionError(
            f"position {pos} (row {row} of {uri}): no rows at offsets {shown}: the log ends there or has a "
            'gap, or a merged table lacks them; on_edge="drop" or "pad" goes on'
        )

    def _positions(self, positions: ArrayLike) -> Ints:
        """(n,) positions in the frame, all of which there are."""
        given = np.asarray(positions)
        if given.size and given.dtype.kind not in "iu":  # a mask would be taken for rows 0 and 1
            raise UsageError(
                f"positions are whole numbers, not {given.dtype}; of a mask take np.flatnonzero(mask)"
            )
        given = given.reshape(-1)
        outside = (given < -self._length) | (given >= self._length)
        if outside.any():
            raise self._outside(given[outside][0])
        where = given.astype(np.int64)
        return np.where(where < 0, where + self._length, where)

    def _batch_plan(self, columns: Patterns, positions: Ints, rows: int = 1) -> ReadPlan:
        if not len(positions):
            raise UsageError("an empty batch: give at least one position")
        if self._variant_of_row is None:
            return self._plan_of(columns, _ONLY, rows)
        return self._plan_of(columns, tuple(np.unique(self._variant_of_row[positions]).tolist()), rows)


def _check_edge(on_edge: str, known: Sequence[str]) -> None:
    if on_edge not in known:
        raise UsageError(f"on_edge={on_edge!r}; there are {', '.join(known)}")


def _check_names(out: Mapping[str, Any] | None, plan: ReadPlan) -> None:
    if unknown := [name for name in out or () if name not in plan.template]:
        raise UsageError(f"out has {unknown[0]!r}, which isn't read; read are {', '.join(plan.template)}")


def _with_stamps(batch: dict[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
    """The batch, its timestamps in the array that `out` has for them."""
    given, stamps = (out or {}).get("timestamp"), batch.get("timestamp")
    if given is not None and stamps is not None:
        array = np.asarray(given)
        if array.dtype != stamps.dtype or array.shape != stamps.shape:
            raise UsageError(
                f"out['timestamp'] is {array.dtype}{list(array.shape)}, this batch needs "
                f"{stamps.dtype}{list(stamps.shape)}"
            )
        array[...] = stamps
        batch["timestamp"] = array
    return batch


def _is_meta(name: str) -> bool:
    return name.endswith((".age", ".available"))


def _hashable(offsets: Sequence[int]) -> tuple[Sequence[int], frozenset[type]]:
    """Offsets and the types among them, since True and 1.0 are equal to 1."""
    if isinstance(offsets, range):
        return offsets, frozenset()
    return tuple(offsets), frozenset(map(type, offsets))


@functools.lru_cache(maxsize=256)
def _offsets(
    offsets: Sequence[int], kinds: frozenset[type], stride: int
) -> tuple[NDArray[np.int64], int, int, bool]:
    """Offsets times stride, the least and the greatest of them and 0, and whether they go up by one."""
    given = np.array(offsets)
    if (given.size and given.dtype.kind != "i") or stride != int(stride) or stride < 1:
        raise UsageError(f"offsets {offsets}, stride {stride}: offsets are whole, strides from 1 on")
    if given.size and int(np.abs(given).max()) * int(stride) > _FARTHEST:
        raise UsageError(f"offsets {offsets}, stride {stride}: no log has so many rows")
    steps = given.astype(np.int64) * stride
    consecutive = len(steps) > 0 and bool((np.diff(steps) == 1).all())
    return steps, int(min(0, *steps, 0)), int(max(0, *steps, 0)), consecutive


def _folded(column: Any, shape: tuple[int, int]) -> Any:
    """A column of n·k rows as n windows of k."""
    if isinstance(column, tuple):
        values, lengths = column
        return values, lengths.reshape(*shape, *lengths.shape[1:])
    if isinstance(column, np.ndarray):
        return column.reshape(*shape, *column.shape[1:])
    return [column[start : start + shape[1]] for start in range(0, len(column), shape[1] or 1)]
