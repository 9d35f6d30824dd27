"""Read plans: which column groups are read for a selection of columns.

Here: `Step` (one group of one table), `ReadPlan`, `Cost`, which a loader reports, and `Plans`, those of a
loader, each made once per selection. Merging and concatenating frames gives rows from different combinations
of tables; each combination is a variant, which may have other columns and has plans of its own.
Elsewhere: covers (logloom.io.formats.table.groups), decoding (logloom.io.formats.table.chunks), reading
(logloom.io.formats.table.read.loader).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.table.blobs import Unpack, unpacker
from logloom.io.formats.table.chunks import Decode, Layout
from logloom.io.formats.table.description import Description, alike
from logloom.io.formats.table.groups import LOCAL_REQUEST, REMOTE_REQUEST, cheapest_cover
from logloom.io.formats.table.read.frames import (
    GroupPlaces,
    Ints,
    MergedColumn,
    OpenFrame,
    shown_columns,
    union_schema,
)
from logloom.io.formats.table.read.large_chunks import LargeChunks
from logloom.io.formats.table.read.range_reader import RangeReader
from logloom.schema import ColumnType, Schema
from logloom.values import dataclass

_NEVER = 1 << 62
Patterns = str | Sequence[str] | None

_ONLY = (0,)


@dataclass(frozen=True)
class Step:
    """Reading one group.

    Attributes:
        slot: of the merged tables; `table` its URI.
        columns: stored name to shown name, and `types` of the latter.
        layout: of the group's chunks, once `unpack`ed (None where they are stored as they are).
        mean_bytes: of a chunk, by the sizes recorded when the table was written.
        places: of the frame's rows.
        decode: takes a chunk as stored, gives the columns to a row.
        large: reads large chunks of local files; None if reading them whole is as quick.
    """

    slot: int
    table: str
    group: str
    columns: Mapping[str, str]
    types: Mapping[str, ColumnType]
    layout: Layout
    unpack: Unpack | None
    mean_bytes: float
    places: GroupPlaces
    decode: Decode
    large: LargeChunks | None

    @cached_property
    def _cuts(self) -> list[tuple[str, tuple[int, ...], np.dtype[Any], int, tuple[int, ...]]]:
        """Parameters for cutting each column out of chunks of one size; empty if chunks differ in size."""
        if self.layout.size is None or self.unpack is not None:
            return []
        cuts = []
        for name, shown in self.columns.items():
            ctype = self.types[shown]
            strides = (self.layout.size, *np.empty(ctype.tail, ctype.dtype).strides)
            cuts.append((shown, ctype.tail, ctype.dtype, self.layout.starts[name], strides))
        return cuts

    @cached_property
    def runs(self) -> list[Layout]:
        """Those of the layout, up to the last that holds a wanted column."""
        runs = self.layout.runs
        last = max(i for i, run in enumerate(runs) if any(name in self.columns for name in run.columns))
        return runs[: last + 1]

    def unstack(self, data: NDArray[np.uint8], rows: Sequence[dict[str, Any]]) -> bool:
        """Set the columns of contiguous chunks in their rows, if all chunks have one size.

        Raises:
            DatasetError: they don't have the size that their columns take.
        """
        if not self._cuts:
            return False
        size, count = self.layout.size or 0, len(rows)
        if len(data) != size * count:
            raise DatasetError(f"{count} chunks have {len(data)} bytes, their columns take {size} each")
        for shown, tail, dtype, start, strides in self._cuts:
            values: Array = np.ndarray((count, *tail), dtype, data, start, strides)
            for row, value in zip(rows, values, strict=False):
                row[shown] = value
        return True


@dataclass(frozen=True)
class ReadPlan:
    """Reading a selection of columns.

    Attributes:
        template: shown names in order, log_id and timestamp first where the frame has them.
        fast: of each step what reading one row needs: codes, files, offsets, lengths, decode, large, and the
            bytes from which on chunks count as large.
    """

    names: tuple[str, ...]
    template: dict[str, Any]
    steps: tuple[Step, ...]
    fast: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class GroupCost:
    """The cost of a call for one group: `columns` as shown, `bytes` on average."""

    table: str
    group: str
    columns: tuple[str, ...]
    requests: int
    bytes: int


@dataclass(frozen=True)
class Cost:
    """The cost of a call: requests and bytes on average, in total and by group."""

    groups: tuple[GroupCost, ...]
    requests: int
    bytes: int

    def __str__(self) -> str:
        lines = [f"{self.requests} requests, {self.bytes:,} bytes"]
        lines += [
            f"  {g.table} {g.group}: {g.requests} x, {g.bytes:,} bytes for {', '.join(g.columns)}"
            for g in self.groups
        ]
        return "\n".join(lines)


def make_plan(
    names: Sequence[str],
    keys: Sequence[str],
    columns: Mapping[str, MergedColumn],
    tables: Mapping[int, tuple[str, Description]],
    places: Mapping[int, Mapping[str, GroupPlaces]],
    rows: int,
    local: bool,
) -> ReadPlan:
    """Chooses the groups to read.

    Args:
        names: shown names, each in `columns`.
        keys: of log_id and timestamp those that rows show.
        tables: URI and description of each slot's table.
        places: of the frame's rows, by slot and group.
        rows: neighbouring ones that a request covers.
        local: whether requests are cheap.
    """
    steps = []
    for slot, (uri, table) in tables.items():
        wanted = [columns[name].name for name in names if columns[name].slot == slot]
        shown = {columns[name].name: name for name in names if columns[name].slot == slot}
        request = LOCAL_REQUEST if local else REMOTE_REQUEST
        costs = {group: rows * table.mean_bytes(group) + request for group in table.groups}
        left = set(wanted)
        for group in cheapest_cover(wanted, table.groups, costs):
            own = [c for c in table.groups[group] if c in left]
            left -= set(own)
            if own:
                steps.append(_step(slot, uri, table, group, {c: shown[c] for c in own}, places[slot][group]))
    template = dict.fromkeys([*keys, *names])
    fast = tuple(
        (
            s.places.codes,
            s.places.files,
            s.places.offsets,
            s.places.lengths,
            s.decode,
            s.large,
            s.large.limit if s.large is not None and local else _NEVER,
        )
        for s in steps
    )
    return ReadPlan(tuple(names), template, tuple(steps), fast)


def _step(
    slot: int, uri: str, table: Description, group: str, columns: Mapping[str, str], places: GroupPlaces
) -> Step:
    types = table.schema.all
    layout = Layout({name: types[name] for name in table.groups[group]})
    types = {**types, **layout.columns}
    codec = table.codecs.get(group)
    unpack = unpacker(codec, table.longest[group]) if codec else None
    decode = layout.decoder(columns)
    # Arrays of a chunk are views of it; only bytes and texts are copied out.
    copied = any(types[name].kind != "array" for name in columns)
    return Step(
        slot,
        uri,
        group,
        columns,
        {shown: types[name] for name, shown in columns.items()},
        layout,
        unpack,
        table.mean_bytes(group),
        places,
        decode if unpack is None else _unpacking(unpack, decode),
        LargeChunks(layout, columns) if unpack is None and copied else None,
    )


def _unpacking(unpack: Unpack, decode: Decode) -> Decode:
    def unpack_and_decode(stored: NDArray[np.uint8], row: dict[str, Any]) -> None:
        decode(unpack(stored), row)

    return unpack_and_decode


def cost_of(plan: ReadPlan, rows: int, span: int, gap: int) -> Cost:
    """Estimate the cost of reading some rows.

    Args:
        rows: how many.
        span: number of rows from the first to the last, inclusive.
        gap: bytes between chunks up to which one request reads both.
    """
    groups = []
    for step in plan.steps:
        skipped = step.mean_bytes * (span - rows) / max(1, rows - 1)
        requests = 1 if skipped <= gap else rows
        size = step.mean_bytes * (span if requests == 1 else rows)
        groups.append(GroupCost(step.table, step.group, tuple(step.columns.values()), requests, round(size)))
    return Cost(tuple(groups), sum(g.requests for g in groups), sum(g.bytes for g in groups))


class Plans:
    """The plans of a loader, each made when first needed; pickles without them.

    Attributes:
        schema: of the rows; of merged tables all columns, suffixes added.
    """

    def __init__(self, frame: OpenFrame, reader: RangeReader, columns: Patterns):
        """
        Args:
            columns: default of callers that pass None.

        Raises:
            UsageError: a pattern matches nothing.
        """
        self._frame, self._reader, self._default = frame, reader, columns
        self._variants, self._variant_of_row = frame.variants()
        self._plans: dict[Any, ReadPlan] = {}
        for number in sorted(frame.may_lack):
            slot = frame.slots[number]
            if len(slot.tables) > 1:  # rows that have none of them are read as if of the first
                self._described(number, range(len(slot.tables)))
        # Each combination of tables that rows come from has its own columns.
        self._shown = [self._shown_in(variant) for variant in self._variants]
        parts = []
        for variant, shown in zip(self._variants, self._shown, strict=True):
            where = " + ".join(s.tables[t] for s, t in zip(frame.slots, variant, strict=True) if t >= 0)
            types = {
                name: frame.slots[column.slot].descriptions[variant[column.slot]].schema.all[column.name]
                for name, column in shown.items()
                if not name.endswith((".age", ".available"))
            }
            parts.append((where, types, [name.rpartition(".")[0] for name in shown if name.endswith(".age")]))
        self.schema: Schema = union_schema(parts)
        self._names(columns)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": {}}

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows, hence no plans."""
        return not self._variants

    @property
    def is_local(self) -> bool:
        """Whether all blobs are files of this machine."""
        return all(map(self._reader.is_local, range(len(self._reader.uris))))

    def _shown_in(self, variant: Sequence[int]) -> dict[str, Any]:
        schemas = [
            slot.descriptions[table].schema if table >= 0 else None
            for slot, table in zip(self._frame.slots, variant, strict=True)
        ]
        return {
            **shown_columns(schemas, self._frame.steps, meta=False),
            **shown_columns(schemas, self._frame.steps, meta=True),
        }

    def _names(self, columns: Patterns) -> tuple[str, ...]:
        try:
            return self.schema.select(self._default if columns is None else columns)
        except UsageError as error:
            raise UsageError(f"{self.place}: {error}") from error

    @property
    def place(self) -> str:
        """The tables of the rows, for messages."""
        tables = [" and ".join(slot.tables[:3]) + " …" * (len(slot.tables) > 3) for slot in self._frame.slots]
        return " + ".join(tables)

    def of_row(self, columns: Patterns, position: int, rows: int = 1) -> ReadPlan:
        """Return the plan of a row, or of `rows` of its neighbours.

        Raises:
            UsageError: a pattern matches nothing, or the row has no such column.
        """
        if self._variant_of_row is None:
            return self._plan_of(columns, _ONLY, rows)
        return self._plan_of(columns, (int(self._variant_of_row[position]),), rows)

    def of_rows(self, columns: Patterns, positions: Ints, rows: int = 1) -> ReadPlan:
        """Return the plan of a batch of rows; arguments as for `of_row`.

        Raises:
            UsageError: a pattern matches nothing, there is no row, or rows are stored differently.
        """
        if not len(positions):
            raise UsageError("an empty batch: give at least one position")
        if self._variant_of_row is None:
            return self._plan_of(columns, _ONLY, rows)
        return self._plan_of(columns, tuple(sorted(set(self._variant_of_row[positions].tolist()))), rows)

    def _plan_of(self, columns: Patterns, variants: tuple[int, ...], rows: int) -> ReadPlan:
        names = columns if columns is None or isinstance(columns, str) else tuple(columns)
        key = (variants, names, rows)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._make_plan(self._names(columns), variants, rows)
        return plan

    def _make_plan(self, names: Sequence[str], variants: Sequence[int], rows: int) -> ReadPlan:
        shown = self._shown[variants[0]]
        chosen: dict[int, list[int]] = {}
        for variant in variants:
            tables = [(slot, t) for slot, t in enumerate(self._variants[variant]) if t >= 0]
            if not tables:
                raise UsageError(
                    f"a row of the frame (of {self.place}) points into no table, its service columns being "
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
                for key, held in (("log_id", self._frame.log_ids), ("timestamp", self._frame.stamps))
                if held is not None
            ],
            shown,
            {
                slot: (self._frame.slots[slot].tables[tables[0]], self._described(slot, tables))
                for slot, tables in chosen.items()
            },
            {slot: self._frame.slots[slot].groups for slot in chosen},
            rows,
            self.is_local,
        )

    def _described(self, slot: int, tables: Sequence[int]) -> Description:
        """Return one description of some tables of a slot, whose rows are read together."""
        own = self._frame.slots[slot]
        try:
            return alike([own.descriptions[table] for table in tables])
        except ValueError as error:
            where = " and ".join(own.tables[table] for table in sorted(set(tables)))
            raise UsageError(
                f"a batch of rows of {where}, {error}: read them apart, or a row at a time"
            ) from error
