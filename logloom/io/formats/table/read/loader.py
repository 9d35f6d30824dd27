"""Random access to the rows of tables that are in a DataFrame of their index.

Here: `row_loader` and `RowLoader`.
Elsewhere: the DataFrame, here called frame (logloom.io.formats.table.index.index), the arrays made of it
(logloom.io.formats.table.read.frames), the columns of rows and the plan of reading them
(logloom.io.formats.table.read.plans), windows (logloom.io.formats.table.read.windows), reading
(logloom.io.formats.table.read.plan_reader).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from logloom.blocks import Lists
from logloom.durations import Time, nanoseconds_of
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.table.chunks import unpacked_lists
from logloom.io.formats.table.read.frames import Ints, OpenFrame, joined_frame, open_frame
from logloom.io.formats.table.read.plan_reader import PlanReader, at_positions
from logloom.io.formats.table.read.plans import Cost, Patterns, Plans, ReadPlan, cost_of
from logloom.io.formats.table.read.range_reader import RangeReader
from logloom.io.formats.table.read.windows import RowWindow, Windows, steps_of
from logloom.io.rows.batches import tuple_of
from logloom.io.storage.remote.range_requests import LOCAL_GAP, REMOTE_GAP
from logloom.schema import ColumnType, Schema

OnEdge = Literal["error", "drop", "pad"]


class RowPositionError(UsageError, IndexError):
    """A position or an offset leads to a row that doesn't exist."""


def row_loader(
    index: pd.DataFrame,
    columns: Patterns = None,
    *,
    check: bool = False,
    max_gap: Time | None = None,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RowLoader:
    """Opens the rows of a frame that came from `read_index` or `merge`, however filtered, sorted or joined
    up.

    Args:
        index: the frame.
        columns: patterns of what calls without `columns` give; None is every column (ages and availabilities
            aside).
        check: compare every chunk with its hash when it is read.
        max_gap: time between rows of a log beyond which no window goes, as a text ("300ms") or in seconds;
            None: as the table says.
        threads: that read batches.
        storage_options: fsspec options by protocol.

    Returns:
        Random access to its rows, by position.

    Raises:
        UsageError: the frame lost its service columns, or a pattern matches nothing.
        DatasetError: a table that the frame points into is gone or damaged.

    Examples:
        >>> index = tt.read_index("sensors")
        >>> loader = tt.row_loader(index[index.pedestrians > 2])
        >>> loader.get_row(0, columns=["pedestrians", "lidar.*"])["lidar.points"].shape
        (3, 4)
        >>> loader.get_many([0, 1, 2], columns=["pedestrians"])["pedestrians"].tolist()
        [3, 4, 3]
    """
    reader = RangeReader(storage_options, threads)
    frame = open_frame(index, reader, storage_options)
    gap = None if max_gap is None else nanoseconds_of(max_gap, "row_loader: max_gap")
    return RowLoader(frame, reader, columns, check=check, max_gap=gap, storage_options=storage_options)


def joined_loader(
    loaders: Sequence[RowLoader], storage_options: Mapping[str, Any] | None = None
) -> RowLoader | None:
    """Concatenate the rows of several loaders to one; None if their tables store rows differently."""
    frames = [(loader._frame, loader._reader) for loader in loaders]
    reader = RangeReader(storage_options)
    frame = joined_frame(frames, reader)
    return None if frame is None else RowLoader(frame, reader, storage_options=storage_options)


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
        """See `row_loader`; `reader` knows the blobs that `frame` names, and `max_gap` is in ns."""
        self._frame, self._reader, self._check = frame, reader, check
        self._length, self._log_ids, self._stamps = frame.length, frame.log_ids, frame.stamps
        self._windows = Windows(frame, max_gap, reader, storage_options)
        self._read = PlanReader(frame, self._windows, reader, check)
        self._may_lack = bool(frame.may_lack)
        self._plans = Plans(frame, reader, columns)
        self.schema: Schema = self._plans.schema
        self._lists = {name: t for name, t in self.schema.columns.items() if t.kind == "lists"}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: int) -> dict[str, Any]:
        return self.get_row(position)

    def __getitems__(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """Rows for torch's DataLoader, which asks for a batch at a time."""
        return [self.get_row(position) for position in positions]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.get_row(position) for position in range(self._length))

    def _position(self, pos: int) -> int:
        """Convert a position that may count from the end to one from 0."""
        if not -self._length <= pos < self._length:
            raise self._outside(pos)
        return pos % self._length

    def _outside(self, pos: object) -> RowPositionError:
        return RowPositionError(
            f"position {pos} of {self._length} rows (of {self._plans.place}); positions count the frame's "
            "rows, from 0, negative ones from the end"
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
        plan = self._plans.of_row(columns, pos)
        if self._check or self._may_lack:
            return self._with_lists(self._read.rows(plan, at_positions(np.array([pos]))))[0]
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
        return self._with_lists([row])[0] if self._lists else row

    def _with_lists(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Convert the bytes of lists of lists in rows."""
        for name, ctype in self._lists.items():
            if rows and name in rows[0]:
                lists = self._unpacked([row[name] for row in rows], name, ctype)
                for row, value in zip(rows, lists, strict=True):
                    row[name] = value
        return rows

    def _stacked_lists(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Convert the bytes of lists of lists in a batch."""
        for name, ctype in self._lists.items():
            if name in batch:
                batch[name] = tuple_of(self._unpacked(batch[name], name, ctype))
        return batch

    def _unpacked(self, rows: Sequence[bytes], name: str, ctype: ColumnType) -> Lists:
        try:
            return unpacked_lists(rows, ctype)
        except DatasetError as error:
            raise DatasetError(
                f"{self._plans.place}: column {name}: {error}; see `logloom verify`"
            ) from error

    def get_rows(
        self,
        pos: int,
        columns: Patterns = None,
        offsets: Sequence[int] = range(-10, 0),
        *,
        stride: int = 1,
        on_edge: OnEdge = "error",
    ) -> Any:
        """Read the rows around one: neighbours in its log as stored, whatever the frame was filtered to.

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
        steps, low, high, consecutive = steps_of(offsets, stride)
        plan = self._plans.of_row(columns, pos, max(1, len(steps)))
        if consecutive and self._windows.holds(pos, low, high):
            first = pos + steps.item(0)
            rows = self._with_lists(self._read.run(plan, first, first + len(steps)))
            return (rows, np.ones(len(rows), np.bool_)) if on_edge == "pad" else rows
        window = self._windows.around(pos, steps, low, high)
        if on_edge == "error" and not window.exists.all():
            self._refuse(pos, steps, window)
        rows = self._with_lists(self._read.rows(plan, window))
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
            lengths) with values (total, *tail) and lengths (n,), or (n, r) for r ragged axes; lists of
            lists: (values, counts, lengths) as in `logloom.io.rows.batches`; bytes and strings: list of n.

        Raises:
            RowPositionError: there is no such position.
            UsageError: a pattern matches nothing, an array of `out` doesn't fit, or rows are in tables that
                store them differently.
            DatasetError: what is stored is damaged or missing; names table, part, columns and row.
        """
        where = self._positions(positions)
        plan = self._plans.of_rows(columns, where)
        _check_names(out, plan)
        return self._stacked_lists(_with_stamps(self._read.batch(plan, [at_positions(where)], out), out))

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
            columns: as for `get_many`.
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
        steps, low, high, _ = steps_of(offsets, stride)
        plan = self._plans.of_rows(columns, where, max(1, len(steps)))
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
        batch = self._stacked_lists(_with_stamps(self._read.batch(plan, windows, out), out))
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
        if self._plans.is_empty:
            return Cost((), 0, 0)
        span = 1 if offsets is None else max(offsets) - min(offsets) + 1
        plan = self._plans.of_row(columns, 0, count)
        return cost_of(plan, count, span, LOCAL_GAP if self._plans.is_local else REMOTE_GAP)

    def _refuse(self, pos: int, steps: Ints, window: RowWindow) -> NoReturn:
        lacking = steps[~window.exists].tolist()
        shown = ", ".join(map(str, lacking[:6])) + f", … ({len(lacking)} in all)" * (len(lacking) > 6)
        uri, row = self._read.stored_row(0, at_positions(np.array([pos])), 0)
        raise RowPositionError(
            f"position {pos} (row {row} of {uri}): no rows at offsets {shown}: the log ends there or has a "
            'gap, or a merged table lacks them; on_edge="drop" or "pad" goes on'
        )

    def _positions(self, positions: ArrayLike) -> Ints:
        """Check positions; return (n,) of the frame."""
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


def _check_edge(on_edge: str, known: Sequence[str]) -> None:
    if on_edge not in known:
        raise UsageError(f"on_edge={on_edge!r}; there are {', '.join(known)}")


def _check_names(out: Mapping[str, Any] | None, plan: ReadPlan) -> None:
    if unknown := [name for name in out or () if name not in plan.template]:
        raise UsageError(f"out has {unknown[0]!r}, which isn't read; read are {', '.join(plan.template)}")


def _with_stamps(batch: dict[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the batch, with its timestamps in the array of `out`."""
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


def _folded(column: Any, shape: tuple[int, int]) -> Any:
    """A column of n·k rows as n windows of k."""
    if isinstance(column, tuple):
        values, lengths, *inner = column
        return values, lengths.reshape(*shape, *lengths.shape[1:]), *inner
    if isinstance(column, np.ndarray):
        return column.reshape(*shape, *column.shape[1:])
    return [column[start : start + shape[1]] for start in range(0, len(column), shape[1] or 1)]
