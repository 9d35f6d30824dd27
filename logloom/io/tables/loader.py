"""Reading rows: from a frame of index rows to values.

Here: `row_loader` and `RowLoader`.
Elsewhere: what is taken out of the frame (logloom.io.tables.frames), how a selection of columns is planned
(logloom.io.tables.plans), windows (logloom.io.tables.windows), batches (logloom.io.tables.batches).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from logloom.errors import DatasetError, UsageError
from logloom.io.tables.batches import Column, StepBatch, missing_value
from logloom.io.tables.blobs import chunk_hash
from logloom.io.tables.frames import Ints, open_slots, shown_columns, union_schema
from logloom.io.tables.plans import Cost, Plan, Step, cost_of, make_plan
from logloom.io.tables.ranges import LOCAL_GAP, REMOTE_GAP, Bytes, RangeReader
from logloom.io.tables.windows import Window, Windows
from logloom.schema import Schema

Patterns = str | Sequence[str] | None
OnEdge = Literal["error", "drop", "pad"]


class RowPositionError(UsageError, IndexError):
    """A position or an offset leads to a row that doesn't exist."""


def row_loader(
    index: pd.DataFrame,
    columns: Patterns = None,
    *,
    check: bool = False,
    max_gap: int | None = None,
    threads: int | None = None,
    storage: Mapping[str, Any] | None = None,
) -> RowLoader:
    """Opens the rows of a frame that came from `read_index` or `merge`, however filtered, sorted or joined
    up.

    Args:
        columns: patterns of what calls without `columns` give; None is every column (ages and availabilities
            aside).
        check: compare every chunk with its hash when it is read.
        max_gap: ns between rows of a log beyond which no window goes; None: as the table says.
        threads: that read batches.
        storage: fsspec options by protocol.

    Raises:
        UsageError: the frame lost its service columns, or a pattern matches nothing.
        DatasetError: a table that the frame points into is gone or damaged.
    """
    return RowLoader(index, columns, check=check, max_gap=max_gap, threads=threads, storage=storage)


class RowLoader:
    """Random access to the rows of a frame, by position: `loader[3]`, `get_row`, `get_rows`, `get_many`.

    It keeps what it needs of the frame, not the frame. It pickles into workers, serves many threads, and
    opens files when they are first read, anew in every process.

    Attributes:
        schema: of the rows; of merged tables all columns, suffixes added.
    """

    def __init__(
        self,
        index: pd.DataFrame,
        columns: Patterns,
        *,
        check: bool,
        max_gap: int | None,
        threads: int | None,
        storage: Mapping[str, Any] | None,
    ):
        """See `row_loader`."""
        self._reader = RangeReader(storage, threads)
        self._slots, steps = open_slots(index, self._reader, storage)
        self._length = len(index)
        self._keys: dict[str, Any] = {}
        stamps = index["timestamp"].to_numpy() if "timestamp" in index.columns else None
        if "log_id" in index.columns:
            log_ids = pd.Categorical(index["log_id"])
            self._keys["log_id"] = (np.asarray(log_ids.codes), [str(text) for text in log_ids.categories])
        if stamps is not None:
            self._keys["timestamp"] = stamps
        self._windows = Windows(self._slots, steps, stamps, max_gap, self._reader, storage)
        self._merge_steps = steps
        self._check = check
        self._find_variants()
        self._plans: dict[Any, Plan] = {}
        self._default = columns
        self._columns(columns)

    def _find_variants(self) -> None:
        """Rows may come from different tables (concatenated frames); each combination is planned apart."""
        tables = np.stack([slot.tables_of_rows() for slot in self._slots], axis=1)
        self._variants: list[tuple[int, ...]]
        self._variant_of_row: Ints | None = None
        if len(tables) and (tables == tables[0]).all():
            self._variants = [tuple(tables[0].tolist())]
        elif len(tables):
            found, numbers = np.unique(tables, axis=0, return_inverse=True)
            self._variants = [tuple(row) for row in found.tolist()]
            self._variant_of_row = numbers.reshape(-1).astype(np.int32)
        else:
            self._variants = [(0,) * len(self._slots)] if all(s.tables for s in self._slots) else []
        self._shown = [self._shown_in(variant) for variant in self._variants]
        parts = []
        for variant, shown in zip(self._variants, self._shown, strict=True):
            where = " + ".join(s.tables[t] for s, t in zip(self._slots, variant, strict=True) if t >= 0)
            types = {n: self._type(variant, c.slot, c.name) for n, c in shown.items() if not _is_meta(n)}
            parts.append((where, types, [n.rpartition(".")[0] for n in shown if n.endswith(".age")]))
        self.schema: Schema = union_schema(parts)

    def _shown_in(self, variant: Sequence[int]) -> dict[str, Any]:
        schemas = [
            slot.descriptions[table].schema if table >= 0 else None
            for slot, table in zip(self._slots, variant, strict=True)
        ]
        return {
            **shown_columns(schemas, self._merge_steps, meta=False),
            **shown_columns(schemas, self._merge_steps, meta=True),
        }

    def _type(self, variant: Sequence[int], slot: int, name: str) -> Any:
        return self._slots[slot].descriptions[variant[slot]].schema.all[name]

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
        return self.schema.select(self._default if columns is None else columns)

    def _plan(self, columns: Patterns, position: int, rows: int = 1) -> Plan:
        variant = 0 if self._variant_of_row is None else int(self._variant_of_row[position])
        names = columns if columns is None or isinstance(columns, str) else tuple(columns)
        key = (variant, names, rows)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._make_plan(self._columns(columns), variant, rows)
        return plan

    def _make_plan(self, names: Sequence[str], variant: int, rows: int) -> Plan:
        shown, tables = self._shown[variant], self._variants[variant]
        chosen = [(slot, t) for slot, t in enumerate(tables) if t >= 0]
        if lacking := [name for name in names if name not in shown]:
            where = " + ".join(self._slots[slot].tables[t] for slot, t in chosen)
            raise UsageError(f"some rows of the frame are of {where}, which has no column {lacking[0]!r}")
        return make_plan(
            names,
            list(self._keys),
            shown,
            {slot: (self._slots[slot].tables[t], self._slots[slot].descriptions[t]) for slot, t in chosen},
            {slot: self._slots[slot].groups for slot, _ in chosen},
            rows,
            all(self._reader.is_local(number) for number in range(len(self._reader.uris))),
        )

    def get_row(self, pos: int, columns: Patterns = None) -> dict[str, Any]:
        """One row: log_id and timestamp where the frame has them, then the columns, in schema order.

        Args:
            pos: of the row in the frame, from 0.
            columns: names or globs in which `*` crosses dots; `.*` alone means every column.

        Returns:
            Name to numpy value; bytes and str for those kinds. The arrays are the caller's own.

        Raises:
            RowPositionError: there is no such position.
            UsageError: a pattern matches nothing.
            DatasetError: what is stored is damaged or missing; names table, part, columns and row.
        """
        if not 0 <= pos < self._length:
            raise RowPositionError(f"position {pos} of {self._length} rows")
        plan = self._plan(columns, pos)
        if self._check:
            return self._rows(plan, _at(pos))[0]
        row = plan.template.copy()
        for key, values in self._keys.items():
            row[key] = values[1][values[0].item(pos)] if key == "log_id" else values[pos]
        try:
            for codes, files, offsets, lengths, decode in plan.fast:
                decode(self._reader.read(files[codes.item(pos)], offsets.item(pos), lengths.item(pos)), row)
        except DatasetError:
            self._rows(plan, _at(pos))  # step by step, so that the error can say which it was
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
            pos: of the row in the frame.
            columns: as for `get_row`.
            offsets: rows before (negative) and after (positive); 0 is the row itself.
            stride: what offsets are multiplied by.
            on_edge: what to do about rows that don't exist, because the log ends there or has a gap, or
                because a merged table lacks them: "error"; "drop" leaves them out; "pad" gives rows of NaN,
                    0, false or
                empty values, and which are real.

        Returns:
            A list of rows as `get_row` gives them; with "pad" (rows, mask), mask being (k,) bool.

        Raises:
            RowPositionError: `on_edge` is "error" and a row doesn't exist.
        """
        if not 0 <= pos < self._length:
            raise RowPositionError(f"position {pos} of {self._length} rows")
        steps, low, high = _offsets(tuple(offsets), stride)
        plan = self._plan(columns, pos, max(1, len(steps)))
        window = self._windows.around(pos, steps, low, high)
        if on_edge == "error" and not window.exists.all():
            self._refuse(pos, steps, window)
        rows = self._rows(plan, window)
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
            positions: (n,) in the frame, in any order, repeating or not.
            columns: as for `get_row`.
            out: arrays to fill by column name, for example pinned memory: (n, *shape) for a fixed shape, at
                least as many elements as needed for a ragged one.

        Returns:
            log_id: list of n; timestamp: (n,); a column of fixed shape: (n, *shape); a ragged one: (values,
                lengths)
            with values (total, *tail) and lengths (n,), or (n, r) for r ragged axes; bytes and strings: list
            of n.
        """
        where = np.asarray(positions, np.int64).reshape(-1)
        outside = (where < 0) | (where >= self._length)
        if outside.any():
            raise RowPositionError(f"position {where[outside][0]} of {self._length} rows")
        return self._batch(columns, [_at_all(where)], where, out)

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
            positions: (n,) in the frame.
            offsets, stride: of the k rows of a window, as for `get_rows`.
            on_edge: "pad" gives NaN, 0, false or empty where a row doesn't exist.
            out: as for `get_many`, for n·k rows.

        Returns:
            Columns as `get_many` gives them for n·k rows, but fixed shapes as (n, k, *shape) and lengths as
            (n, k) or (n, k, r); and the (n, k) mask of rows that exist.
        """
        where = np.asarray(positions, np.int64).reshape(-1)
        steps, low, high = _offsets(tuple(offsets), stride)
        windows = []
        for pos in where.tolist():
            if not 0 <= pos < self._length:
                raise RowPositionError(f"position {pos} of {self._length} rows")
            window = self._windows.around(pos, steps, low, high)
            if on_edge == "error" and not window.exists.all():
                self._refuse(pos, steps, window)
            windows.append(window)
        batch = self._batch(columns, windows, where, out, rows=max(1, len(steps)))
        mask = np.concatenate([w.exists for w in windows]) if windows else np.empty(0, np.bool_)
        shape = (len(where), len(steps))
        return {name: _folded(column, shape) for name, column in batch.items()}, mask.reshape(shape)

    def explain(self, columns: Patterns = None, offsets: Sequence[int] | None = None) -> Cost:
        """What a call costs: groups, requests and bytes, on average over the table's rows.

        Args:
            columns: as for `get_row`.
            offsets: of `get_rows`; None means `get_row`.
        """
        count = 1 if offsets is None else max(1, len(offsets))
        if not self._variants:
            return Cost((), 0, 0)
        span = 1 if offsets is None else max(offsets) - min(offsets) + 1
        plan = self._plan(columns, 0, count)
        gap = LOCAL_GAP if all(map(self._reader.is_local, range(len(self._reader.uris)))) else REMOTE_GAP
        return cost_of(plan, count, span, gap)

    def _rows(self, plan: Plan, window: Window) -> list[dict[str, Any]]:
        """Rows of a window; those that don't exist hold missing values."""
        count = len(window.exists)
        rows = [plan.template.copy() for _ in range(count)]
        for key, values in self._key_values(window).items():
            for row, value in zip(rows, values, strict=True):
                row[key] = value
        existing = np.flatnonzero(window.exists).tolist()
        for step in plan.steps:
            files, offsets, lengths = (part.tolist() for part in self._windows.ranges(step, window))
            if len(existing) < count:
                for number in np.flatnonzero(~window.exists).tolist():
                    rows[number] |= {name: missing_value(name, ctype) for name, ctype in step.types.items()}
                files, offsets, lengths = ([part[i] for i in existing] for part in (files, offsets, lengths))
            try:
                chunks = read_neighbours(self._reader, files, offsets, lengths)
            except DatasetError:
                self._blame_read(step, window, existing, files, offsets, lengths)
                raise
            for number, chunk in zip(existing, chunks, strict=True):
                self._decode(step, window, number, chunk, rows[number])
        return rows

    def _decode(self, step: Step, window: Window, number: int, chunk: Bytes, row: dict[str, Any]) -> None:
        try:
            if self._check:
                self._check_chunk(step, window, number, chunk)
            step.decode(chunk, row)
        except DatasetError as error:
            raise DatasetError(f"{self._name(step, window, number)}: {error}") from error

    def _check_chunk(self, step: Step, window: Window, number: int, chunk: Bytes) -> None:
        uri, row = self._stored_row(step.slot, window, number)
        wanted = self._windows.log(step.slot, uri, hashes=True).hashes[step.group][row]
        if chunk_hash((chunk.data,)) != wanted:
            raise DatasetError("the stored bytes don't match their hash; copy or build the part again")

    def _blame_read(
        self, step: Step, window: Window, existing: Sequence[int], *ranges: Sequence[int]
    ) -> None:
        """Reads one by one what couldn't be read together, and names the row that fails."""
        for number, file, offset, length in zip(existing, *ranges, strict=True):
            try:
                self._reader.read(file, offset, length)
            except DatasetError as error:
                raise DatasetError(f"{self._name(step, window, number)}: {error}") from error

    def _stored_row(self, slot: int, window: Window, number: int) -> tuple[str, int]:
        """The index file and the row in it of a window's row."""
        if window.positions is None:
            log, rows = window.stored[slot]
            return log.uri, int(rows[number])
        position, own = int(window.positions[number]), self._slots[slot]
        return own.logs[int(own.log_codes[position])], int(own.rows[position])

    def _name(self, step: Step, window: Window, number: int) -> str:
        uri, row = self._stored_row(step.slot, window, number)
        files, offsets, _ = self._windows.ranges(step, window)
        part = self._reader.uris[int(files[number])].split("/")[-2]
        log = uri.rpartition("/")[2].removesuffix(".parquet")
        return (
            f"{step.table}: part {part}, group {step.group} ({', '.join(step.columns)}), row {row} of log "
            f"{log}, byte {offsets[number]}"
        )

    def _key_values(self, window: Window) -> dict[str, Sequence[Any]]:
        """log_id and timestamp of a window's rows where the frame has them; stamp 0 where no row exists."""
        found: dict[str, Sequence[Any]] = {}
        if "log_id" in self._keys:
            codes, texts = self._keys["log_id"]
            where = window.positions if window.positions is not None else [window.origin] * len(window.exists)
            found["log_id"] = [texts[codes[position]] for position in where]
        if "timestamp" in self._keys:
            stamps: Any = np.where(window.exists, self._windows.stamps(window), 0)
            found["timestamp"] = stamps
        return found

    def _refuse(self, pos: int, steps: Ints, window: Window) -> NoReturn:
        lacking = steps[~window.exists].tolist()
        uri, row = self._stored_row(0, _at(pos), 0)
        raise RowPositionError(
            f"position {pos} (row {row} of {uri}): no rows at offsets {lacking}: the log ends there or has a "
            "gap, or "
            'a merged table lacks them; on_edge="drop" or "pad" goes on'
        )

    def _batch(
        self,
        columns: Patterns,
        windows: Sequence[Window],
        positions: Ints,
        out: Mapping[str, Any] | None,
        rows: int = 1,
    ) -> dict[str, Any]:
        if not len(positions):
            raise UsageError("an empty batch: give at least one position")
        plan = self._plan(columns, int(positions[0]), rows)
        if self._variant_of_row is not None and len(np.unique(self._variant_of_row[positions])) > 1:
            raise UsageError("a batch of rows from several tables: read them apart, or a row at a time")
        exists = np.concatenate([window.exists for window in windows])
        owners = [(window, number) for window in windows for number in range(len(window.exists))]
        steps: list[tuple[Step, StepBatch]] = []
        requests: list[tuple[int, int, Bytes]] = []
        try:
            for step in plan.steps:
                parts = [self._windows.ranges(step, window) for window in windows]
                files, offsets, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
                self._reader.check(files[exists], offsets[exists], lengths[exists])
                batch = StepBatch(step, lengths, exists, out or {})
                steps.append((step, batch))
                requests += zip(files[exists].tolist(), offsets[exists].tolist(), batch.targets, strict=True)
            self._reader.read_into(sorted(requests, key=lambda request: request[:2]))
        except DatasetError:
            for window in windows:
                self._rows(plan, window)  # step by step, so that the error can say which it was
            raise
        found: dict[str, Any] = plan.template.copy()
        for key in self._keys:
            values = [self._key_values(window)[key] for window in windows]
            found[key] = (
                np.concatenate(values) if key == "timestamp" else [v for part in values for v in part]
            )
        for step, batch in steps:
            found |= self._finish(step, batch, owners, np.flatnonzero(exists))
        return found

    def _finish(
        self, step: Step, batch: StepBatch, owners: Sequence[tuple[Window, int]], existing: Ints
    ) -> Mapping[str, Column]:
        if self._check:
            for number, chunk in zip(existing.tolist(), batch.targets, strict=True):
                window, own = owners[number]
                try:
                    self._check_chunk(step, window, own, chunk)
                except DatasetError as error:
                    raise DatasetError(f"{self._name(step, window, own)}: {error}") from error

        def failed(number: int, error: Exception) -> NoReturn:
            raise DatasetError(f"{self._name(step, *owners[number])}: {error}") from error

        return batch.finish(failed)


def read_neighbours(
    reader: RangeReader, files: Sequence[int], offsets: Sequence[int], lengths: Sequence[int]
) -> list[Bytes]:
    """The chunks of a window: one read where they lie one after the other, as rows of a log mostly do."""
    if not files:
        return []
    first = end = offsets[0]
    gap = LOCAL_GAP if reader.is_local(files[0]) else REMOTE_GAP
    for file, offset, length in zip(files, offsets, lengths, strict=True):
        if file != files[0] or not 0 <= offset - end <= gap:
            break
        end = offset + length
    else:
        data = reader.read(files[0], first, end - first)
        return [data[o - first : o - first + n] for o, n in zip(offsets, lengths, strict=True)]
    return reader.read_all(list(zip(files, offsets, lengths, strict=True)))


def _is_meta(name: str) -> bool:
    return name.endswith((".age", ".available"))


def _at(pos: int) -> Window:
    return _at_all(np.array([pos]))


def _at_all(positions: Ints) -> Window:
    return Window(np.ones(len(positions), np.bool_), int(positions[0]) if len(positions) else 0, positions)


@functools.lru_cache(maxsize=256)
def _offsets(offsets: tuple[int, ...], stride: int) -> tuple[NDArray[np.int64], int, int]:
    """Offsets times stride, and the least and the greatest of them and 0."""
    steps = np.array(offsets, np.int64) * stride
    return steps, int(min(0, *steps, 0)), int(max(0, *steps, 0))


def _folded(column: Any, shape: tuple[int, int]) -> Any:
    """A column of n·k rows as n windows of k."""
    if isinstance(column, tuple):
        values, lengths = column
        return values, lengths.reshape(*shape, *lengths.shape[1:])
    if isinstance(column, np.ndarray):
        return column.reshape(*shape, *column.shape[1:])
    return [column[start : start + shape[1]] for start in range(0, len(column), shape[1] or 1)]
