"""Which columns the rows of a frame have, and the plan by which some of them are read.

Here: `Plans`. Rows that come from other combinations of tables than others do, as merging and concatenating
frames makes them, are of another variant: they may have other columns, and have plans of their own.
Elsewhere: the frame (frames), making a single plan (plans), reading by it (plan_reader).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logloom.errors import UsageError
from logloom.io.formats.table import description as d
from logloom.io.formats.table.read.frames import Ints, OpenFrame, shown_columns, union_schema
from logloom.io.formats.table.read.plans import ReadPlan, alike, make_plan
from logloom.io.formats.table.read.range_reader import RangeReader
from logloom.schema import Schema

Patterns = str | Sequence[str] | None

_ONLY = (0,)


class Plans:
    """The plans of a loader, each made when first needed; pickles without them.

    Attributes:
        schema: of the rows; of merged tables all columns, suffixes added.
    """

    def __init__(self, frame: OpenFrame, reader: RangeReader, columns: Patterns):
        """
        Args:
            columns: what None means to those who ask for plans.

        Raises:
            UsageError: a pattern matches nothing.
        """
        self._frame, self._reader, self._default = frame, reader, columns
        self._variants, self._variant_of_row = frame.variants()
        self._plans: dict[Any, ReadPlan] = {}
        self._find_columns()
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

    def _names(self, columns: Patterns) -> tuple[str, ...]:
        try:
            return self.schema.select(self._default if columns is None else columns)
        except UsageError as error:
            raise UsageError(f"{self.place}: {error}") from error

    @property
    def place(self) -> str:
        """The tables that the rows lie in, for people."""
        tables = [" and ".join(slot.tables[:3]) + " …" * (len(slot.tables) > 3) for slot in self._frame.slots]
        return " + ".join(tables)

    def of_row(self, columns: Patterns, position: int, rows: int = 1) -> ReadPlan:
        """For a row, or for `rows` of its neighbours.

        Raises:
            UsageError: a pattern matches nothing, or the row has no such column.
        """
        if self._variant_of_row is None:
            return self._plan_of(columns, _ONLY, rows)
        return self._plan_of(columns, (int(self._variant_of_row[position]),), rows)

    def of_rows(self, columns: Patterns, positions: Ints, rows: int = 1) -> ReadPlan:
        """For a batch of rows; arguments as for `of_row`.

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


def _is_meta(name: str) -> bool:
    return name.endswith((".age", ".available"))
