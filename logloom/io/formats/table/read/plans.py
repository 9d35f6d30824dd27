"""Plans: what reading a selection of columns takes, worked out once per selection.

Here: `Step` (one group of one table), `ReadPlan`, and `Cost`, which is what a loader explains.
Elsewhere: covers (logloom.io.formats.table.groups), decoding (logloom.io.formats.table.chunks), reading
(logloom.io.formats.table.read.loader).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.errors import DatasetError
from logloom.io.formats.table.blobs import Unpack, unpacker
from logloom.io.formats.table.chunks import Decode, Layout
from logloom.io.formats.table.description import Description
from logloom.io.formats.table.groups import LOCAL_REQUEST, REMOTE_REQUEST, cheapest_cover
from logloom.io.formats.table.read.frames import GroupPlaces, MergedColumn
from logloom.io.formats.table.read.large_chunks import LargeChunks
from logloom.schema import ColumnType

_NEVER = 1 << 62


@dataclass(frozen=True)
class Step:
    """Reading one group.

    Attributes:
        slot: of the merged tables; `table` its URI.
        columns: stored name to the name it is shown by, and `types` of the latter.
        layout: of the group's chunks, once `unpack`ed (None where they are stored as they are).
        mean_bytes: of a chunk, by the sizes recorded when the table was written.
        places: of the frame's rows.
        decode: takes a chunk as stored, gives the columns to a row.
        large: reads large chunks of local files; None where reading them whole is as quick.
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
        """Of each column what cutting it out of chunks of one size takes; empty if chunks differ in size."""
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
        """Gives the columns of chunks that lie end to end to their rows, if all chunks have one size.

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
    """What a call reads of one group: `columns` as shown, `bytes` on average."""

    table: str
    group: str
    columns: tuple[str, ...]
    requests: int
    bytes: int


@dataclass(frozen=True)
class Cost:
    """What a call reads: requests and bytes on average, in all and by group."""

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


def alike(tables: Sequence[Description]) -> Description:
    """One description for tables that store rows in the same way.

    Raises:
        ValueError: they don't; says what differs.
    """
    first = tables[0]
    for table in tables[1:]:
        types = [
            {name: (t.dtype, t.shape, t.kind) for name, t in one.schema.all.items()} for one in (first, table)
        ]
        if types[0] != types[1]:
            raise ValueError("whose columns differ")
        if first.groups != table.groups or first.codecs != table.codecs:
            raise ValueError("whose column groups differ")
    if len(tables) == 1:
        return first
    return dataclasses.replace(
        first,
        bytes={group: sum(table.bytes[group] for table in tables) for group in first.groups},
        longest={group: max(table.longest[group] for table in tables) for group in first.groups},
        logs=tuple(log for table in tables for log in table.logs),
    )


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
    """What reading some rows costs.

    Args:
        rows: how many.
        span: how many rows lie between the first and the last, these included.
        gap: bytes between chunks up to which one request reads both.
    """
    groups = []
    for step in plan.steps:
        skipped = step.mean_bytes * (span - rows) / max(1, rows - 1)
        requests = 1 if skipped <= gap else rows
        size = step.mean_bytes * (span if requests == 1 else rows)
        groups.append(GroupCost(step.table, step.group, tuple(step.columns.values()), requests, round(size)))
    return Cost(tuple(groups), sum(g.requests for g in groups), sum(g.bytes for g in groups))
