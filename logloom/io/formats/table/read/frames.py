"""Conversion of index frames to arrays that locate the chunks of each row.

Here: `open_frame`, `Slot` (the rows of one table in the frame), `joined_frame` (several frames as one, so
that a batch with rows of all is one read), and the names of merged columns.
Elsewhere: the service columns' names, and tables with the same way to store rows
(logloom.io.formats.table.description), merging frames (logloom.io.formats.table.read.merge).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from logloom.caching import cached_property
from logloom.errors import UsageError
from logloom.io.formats.table import description as d
from logloom.io.formats.table.read.merge import MergeStep, merge_steps, num_slots
from logloom.io.formats.table.read.range_reader import RangeReader
from logloom.io.formats.table.versions import open_table
from logloom.schema import ColumnType, Schema
from logloom.values import dataclass

Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class GroupPlaces:
    """The places of the chunks of some rows of one group.

    Attributes:
        codes: (N,) numbers into `files`; -1: nowhere.
        files: numbers of the blobs for the loader's `RangeReader`.
        offsets, lengths: (N,) bytes.
    """

    codes: Ints
    files: Sequence[int]
    offsets: Ints
    lengths: Ints

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    @cached_property
    def is_whole(self) -> bool:
        """Whether every row has a chunk."""
        return bool((self.codes >= 0).all())

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        return np.asarray(self.files, np.int64)

    @cached_property
    def _runs(self) -> NDArray[np.int32]:
        """(N,) equal numbers for rows of the frame whose chunks are contiguous."""
        breaks = (self.codes[1:] != self.codes[:-1]) | (
            self.offsets[1:] != self.offsets[:-1] + self.lengths[:-1]
        )
        runs = np.zeros(len(self.codes), np.int32)
        np.cumsum(breaks, out=runs[1:])
        return runs

    def take(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Return (file, offset, length) of some rows."""
        return self._numbers[self.codes[rows]], self.offsets[rows], self.lengths[rows]

    def follow(self, first: int, last: int) -> bool:
        """Whether the chunks of the frame's rows from `first` to `last` are contiguous."""
        return self._runs.item(first) == self._runs.item(last)


@dataclass(frozen=True)
class Slot:
    """One table of a frame, or several of the same columns that were concatenated.

    Attributes:
        tables: their URIs; `descriptions` of each.
        table_of_log: (number of logs,) the table of each log.
        logs: URIs of the logs' index files.
        log_codes: (N,) the log of each row; -1 where the row has no part of this slot.
        rows: (N,) the row's number within its log.
        groups: group to places.
    """

    tables: Sequence[str]
    descriptions: Sequence[d.Description]
    table_of_log: Ints
    logs: Sequence[str]
    log_codes: Ints
    rows: Ints
    groups: Mapping[str, GroupPlaces]

    def tables_of_rows(self) -> Ints:
        """(N,) the table of each row, -1 where there is none."""
        return np.append(self.table_of_log, -1)[self.log_codes]


@dataclass(frozen=True)
class OpenFrame:
    """The arrays of a frame that reading needs.

    Attributes:
        length: rows.
        slots: the tables of the rows.
        steps: how these were merged.
        log_ids: (N,) numbers and the texts that they number; None if the frame has none.
        stamps: (N,) timestamps; None if the frame has none.
    """

    length: int
    slots: Sequence[Slot]
    steps: Sequence[MergeStep]
    log_ids: tuple[Ints, Sequence[str]] | None
    stamps: NDArray[np.int64] | None

    @property
    def may_lack(self) -> frozenset[int]:
        """The slots that rows may lack, since they were merged by how="left"."""
        left = [step for step in self.steps if step.how == "left"]
        return frozenset(slot for step in left for slot in range(step.slot, step.slot + step.width))

    def variants(self) -> tuple[list[tuple[int, ...]], Ints | None]:
        """The combinations of the rows' tables, and each row's number; None if there is just one.

        Rows that may lack a table count to its first, so that they have its columns.
        """
        may_lack = self.may_lack
        if all(
            len(slot.tables) == 1 and (number in may_lack or (slot.log_codes >= 0).all())
            for number, slot in enumerate(self.slots)
        ):
            return [(0,) * len(self.slots)], None
        if not self.length:
            return [], None
        tables = np.stack([slot.tables_of_rows() for slot in self.slots], axis=1)
        for number in may_lack:
            if self.slots[number].tables:
                tables[:, number] = np.maximum(tables[:, number], 0)
        found, numbers = np.unique(tables, axis=0, return_inverse=True)
        return [tuple(row) for row in found.tolist()], numbers.reshape(-1).astype(np.int32)


def open_frame(
    frame: pd.DataFrame, reader: RangeReader, storage_options: Mapping[str, Any] | None
) -> OpenFrame:
    """Convert a frame to the arrays that reading its rows needs.

    Raises:
        UsageError: the frame lost its service columns.
        DatasetError: a table that it points into is gone.
    """
    if not hasattr(frame, "columns"):
        raise UsageError(
            f"a loader reads rows of a frame, row_loader(read_index(uri)); this is {frame!r:.80}"
        )
    count = num_slots(frame.columns)
    if count == 0:
        raise UsageError(
            "the frame has no service columns (__0.log, __0.row, …), so the place of its rows "
            "is unknown; keep them when selecting columns"
        )
    slots = [_open_slot(frame, slot, reader, storage_options) for slot in range(count)]
    return OpenFrame(
        len(frame),
        slots,
        merge_steps(frame),
        _texts(frame, "log_id") if "log_id" in frame.columns else None,
        frame["timestamp"].to_numpy() if "timestamp" in frame.columns else None,
    )


def _open_slot(
    frame: pd.DataFrame, slot: int, reader: RangeReader, storage_options: Mapping[str, Any] | None
) -> Slot:
    codes, logs = _texts(frame, d.service(slot, "log"))
    tables = sorted({d.table_of(log) for log in logs})
    descriptions = [open_table(table, storage_options)[1] for table in tables]
    groups = {}
    for group in dict.fromkeys(name for table in descriptions for name in table.groups):
        blob_codes, blobs = _texts(frame, d.service(slot, group, "blob"))
        groups[group] = GroupPlaces(
            blob_codes,
            [reader.number_of(uri) for uri in blobs],
            _numbers(frame, d.service(slot, group, "offset")),
            _numbers(frame, d.service(slot, group, "length")),
        )
    return Slot(
        tables,
        descriptions,
        np.array([tables.index(d.table_of(log)) for log in logs], np.int64),
        logs,
        codes,
        _numbers(frame, d.service(slot, "row")),
        groups,
    )


def _series(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    if f"{name}_x" in frame.columns:
        raise UsageError(
            f"the frame contains {name}_x instead of {name}: join tables by tt.merge, not by pandas'"
        )
    if name not in frame.columns:
        raise UsageError(
            f"the frame{_of_table(frame, name)} lost its service column {name}, so the loader can't find its "
            "rows; keep the columns that begin with __"
        )
    found = frame[name]
    if isinstance(found, pd.DataFrame):
        raise UsageError(f"the frame has {found.shape[1]} columns called {name}; join tables by tt.merge")
    return found


def _of_table(frame: pd.DataFrame, name: str) -> str:
    """Describe the table of a service column for messages, if the frame still records it."""
    match = d.SERVICE_COLUMN.fullmatch(name)
    logs = frame.get(d.service(int(match[1]), "log")) if match else None
    return f" of {d.table_of(str(logs.iloc[0]))}" if isinstance(logs, pd.Series) and len(logs) else ""


def _texts(frame: pd.DataFrame, name: str) -> tuple[Ints, list[str]]:
    """Return codes and texts of a category column, or of texts that concatenation made plain."""
    series = _series(frame, name)
    values = series.array if isinstance(series.dtype, pd.CategoricalDtype) else pd.Categorical(series)
    return np.asarray(values.codes), [str(text) for text in values.categories]


def _numbers(frame: pd.DataFrame, name: str) -> Ints:
    values = _series(frame, name).to_numpy()
    if values.dtype.kind == "f":  # concatenated with a frame that lacks the column
        return np.where(np.isnan(values), -1, values).astype(np.int64)
    return values


@dataclass(frozen=True)
class MergedColumn:
    """A column of the merged tables: its slot, and its name there."""

    slot: int
    name: str


def shown_columns(
    schemas: Sequence[Schema | None], steps: Sequence[MergeStep], *, meta: bool
) -> dict[str, MergedColumn]:
    """Make the shown names of the columns of merged tables, with suffixes as in pandas.

    Args:
        schemas: of each slot's table; None if a row lacks it.
        meta: whether to name ages and availabilities, or the columns.

    Raises:
        UsageError: suffixes leave two columns of one name.
    """
    by_slot = {step.slot: step for step in steps}

    def subtree(first: int, end: int) -> dict[str, MergedColumn]:
        schema = schemas[first]
        columns = {} if schema is None else {n: MergedColumn(first, n) for n in schema.columns}
        slot = first + 1
        while slot < end:
            step = by_slot[slot]
            columns = _joined(columns, subtree(slot, slot + step.width), step)
            slot += step.width
        return columns

    columns = subtree(0, len(schemas))
    if not meta:
        return columns
    found = {}
    for shown, column in columns.items():
        schema = schemas[column.slot]
        if schema is not None and column.name in schema.sampled:
            for part in ("age", "available"):
                found[f"{shown}.{part}"] = MergedColumn(column.slot, f"{column.name}.{part}")
    return found


def _joined(
    left: Mapping[str, MergedColumn], right: Mapping[str, MergedColumn], step: MergeStep
) -> dict[str, MergedColumn]:
    pairs = [
        (f"{name}{step.suffixes[0]}" if name in right and name not in step.shared else name, column)
        for name, column in left.items()
    ]
    pairs += [
        (f"{name}{step.suffixes[1]}" if name in left else name, column)
        for name, column in right.items()
        if name not in left or name not in step.shared
    ]
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(
            f"merge: suffixes {step.suffixes} leave two columns called {twice} among those of tables "
            f"{step.base + 1} to {step.slot} and {step.slot + 1} to {step.slot + step.width} of the frame; "
            "give others, such as suffixes=('_left', '_right')"
        )
    return found


def union_schema(parts: Sequence[tuple[str, Mapping[str, ColumnType], Sequence[str]]]) -> Schema:
    """Make one schema for rows of several tables.

    Args:
        parts: (where, columns, sampled) of each.

    Raises:
        UsageError: a column has two types.
    """
    columns: dict[str, tuple[str, ColumnType]] = {}
    sampled: dict[str, None] = {}
    for where, types, own in parts:
        sampled |= dict.fromkeys(own)
        for name, ctype in types.items():
            first, known = columns.setdefault(name, (where, ctype))
            if (known.dtype, known.shape, known.kind) != (ctype.dtype, ctype.shape, ctype.kind):
                raise UsageError(
                    f"column {name} is {known} in {first}, {ctype} in {where}; use a loader for each"
                )
    return Schema({name: ctype for name, (_, ctype) in columns.items()}, tuple(sampled))


def joined_frame(frames: Sequence[tuple[OpenFrame, RangeReader]], reader: RangeReader) -> OpenFrame | None:
    """Concatenate the rows of several frames, each with the reader of its blobs.

    None where a frame is merged of several tables, or their tables store rows in different ways.
    """
    slots = [slot for frame, _ in frames for slot in frame.slots]
    descriptions = {uri: own for s in slots for uri, own in zip(s.tables, s.descriptions, strict=True)}
    if len(slots) > len(frames) or not descriptions or any(frame.steps for frame, _ in frames):
        return None
    try:
        groups = d.alike(list(descriptions.values())).groups
    except ValueError:
        return None
    tables = list(descriptions)
    texts = [frame.log_ids for frame, _ in frames if frame.log_ids is not None]
    stamps = [frame.stamps for frame, _ in frames if frame.stamps is not None]
    if len(texts) < len(frames) or len(stamps) < len(frames):
        return None
    slot = Slot(
        tables,
        list(descriptions.values()),
        np.array([tables.index(s.tables[n]) for s in slots for n in s.table_of_log.tolist()], np.int64),
        [log for s in slots for log in s.logs],
        _end_to_end([(s.log_codes, len(s.logs)) for s in slots]),
        np.concatenate([s.rows for s in slots]),
        {group: _joined_places([s.groups[group] for s in slots], frames, reader) for group in groups},
    )
    ids = _end_to_end([(codes, len(own)) for codes, own in texts]), [text for _, own in texts for text in own]
    return OpenFrame(sum(frame.length for frame, _ in frames), [slot], [], ids, np.concatenate(stamps))


def _joined_places(
    places: Sequence[GroupPlaces], frames: Sequence[tuple[OpenFrame, RangeReader]], reader: RangeReader
) -> GroupPlaces:
    files = [
        reader.number_of(own.uris[number])
        for place, (_, own) in zip(places, frames, strict=True)
        for number in place.files
    ]
    return GroupPlaces(
        _end_to_end([(place.codes, len(place.files)) for place in places]),
        files,
        np.concatenate([place.offsets for place in places]),
        np.concatenate([place.lengths for place in places]),
    )


def _end_to_end(codes: Sequence[tuple[Ints, int]]) -> Ints:
    """Convert codes into each of several lists to codes into their concatenation; -1 stays."""
    starts = np.cumsum([0, *(length for _, length in codes)])
    moved = [np.where(own < 0, -1, own + start) for (own, _), start in zip(codes, starts, strict=False)]
    return np.concatenate(moved).astype(np.int32)
