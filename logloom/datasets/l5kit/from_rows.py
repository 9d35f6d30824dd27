"""Rows of any dataset as L5Kit's four arrays, with a frame per row as in `l5kit`.

Elsewhere: how columns fill the arrays (logloom.io.formats.l5kit.mapping), the rows
(logloom.datasets.dataset).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from logloom.blocks import Array, Block, Ragged
from logloom.datasets.dataset import Dataset
from logloom.durations import nanoseconds_of
from logloom.errors import UsageError
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.l5kit.dtypes import ARRAYS, FRAMES, SCENES
from logloom.io.formats.l5kit.mapping import RowMapping, map_structs, mapping_of
from logloom.io.formats.l5kit.options import L5KitOptions, host_of
from logloom.io.formats.l5kit.rows import INTERVALS
from logloom.io.formats.l5kit.stage import Runs
from logloom.validation import describe_first

_ROWS_AT_ONCE = 256


def dataset_of_rows(rows: Dataset, *, host: str = "", **mapping: Any) -> ChunkedDataset:
    """The rows of a dataset, such as a version's table, for EgoDataset and AgentDataset.

        rows = logloom.datasets.open("drives", output="table")
        ego = EgoDataset(cfg, dataset_of_rows(rows, agents="agents", tl_faces="lights"))

    Reads all rows once, for the frames and for where each one's agents are: some 160 bytes a frame stay in
    memory. Agents and lights are read when they are asked for.

    Args:
        rows: in stored order, without `map` and `window`; where rows were left out a scene may end.
        host: of all scenes, or "{log_id}"; at most 16 characters.
        mapping: translation, rotation, agents, tl_faces and max_gap, as under `outputs.l5kit` of a recipe;
            max_gap, as a text ("150ms") or in seconds, is by default one and a half periods of the rows'
            clock, where it has one.

    Raises:
        UsageError: a column is missing or doesn't fit, or rows are out of order.
        LogReadError: a value doesn't fit its field.
    """
    if mapping.get("max_gap") is not None:
        mapping["max_gap"] = f"{nanoseconds_of(mapping['max_gap'], 'dataset_of_rows: max_gap')}ns"
    try:
        options = L5KitOptions(host=host, **mapping)
    except ValidationError as error:
        raise UsageError(f"dataset_of_rows: {describe_first(error)}") from error
    if any(f"{{{name}}}" in host for name in ("stem", "parent", "path")):
        raise UsageError(f"host {host!r}: rows have no URI; use {{log_id}} or a fixed name")
    fill = mapping_of(options, rows.schema)
    log_ids, frames = _frames_of(rows, fill)
    dataset = ChunkedDataset("")
    dataset.frames = frames
    dataset.scenes = _scenes_of(log_ids, frames["timestamp"], options, rows.max_gap_ns)
    for name in INTERVALS:
        setattr(dataset, name, StructColumn(rows, fill, name, frames[INTERVALS[name]]))
    return dataset


def _frames_of(rows: Dataset, mapping: RowMapping) -> tuple[list[str], Array]:
    """The log_id of each row, and the frames."""
    frames = np.zeros(len(rows), FRAMES.dtype)
    log_ids: list[str] = []
    held = dict.fromkeys(INTERVALS, 0)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        numbers = np.arange(start, min(start + _ROWS_AT_ONCE, len(rows)))
        block, names = _read(rows, numbers, mapping.columns)
        log_ids += names
        mapped = mapping.apply(block)
        part = frames[start : numbers[-1] + 1]
        for name in ("timestamp", "ego_translation", "ego_rotation"):
            part[name] = mapped[name]
        for name, field in INTERVALS.items():
            structs = mapped[name]
            assert isinstance(structs, Ragged)
            bounds = structs.offsets + held[name]
            part[field] = np.stack([bounds[:-1], bounds[1:]], axis=1)
            held[name] = int(bounds[-1])
    return log_ids, frames


def _read(rows: Dataset, numbers: NDArray[np.int64], columns: Sequence[str]) -> tuple[Block, list[str]]:
    """Some rows as a block, and their log_ids."""
    batch: dict[str, Any] = dict(rows.get_many(numbers, columns=columns))
    log_ids: list[str] | None = batch.pop("log_id", None)
    if log_ids is None or np.shape(batch.get("timestamp", ())) != numbers.shape:
        raise UsageError(f"{rows}: frames are rows as they are stored, without map and window")
    values = {name: Ragged(*value) if isinstance(value, tuple) else value for name, value in batch.items()}
    return Block(log_ids[0], f"row {numbers[0]}", int(numbers[0]), values), log_ids


def _scenes_of(log_ids: Sequence[str], stamps: Array, options: L5KitOptions, max_gap: int | None) -> Array:
    """The rows of the scenes array: one for each stretch of a log's rows without a gap."""
    scenes: list[tuple[tuple[int, int], str, int, int]] = []
    seen: set[str] = set()
    cuts = [n for n in range(1, len(log_ids)) if log_ids[n] != log_ids[n - 1]]
    for start, stop in itertools.pairwise([0, *cuts, len(log_ids)]) if log_ids else ():
        log_id, own = log_ids[start], stamps[start:stop]
        if log_id in seen or (own[1:] <= own[:-1]).any():
            raise UsageError(f"rows of log {log_id!r} are out of order: frames are rows in stored order")
        seen.add(log_id)
        runs = Runs(options.max_gap if options.max_gap is not None else max_gap)
        runs.add(own)
        host = host_of(options, log_id, log_id)
        scenes += [((start + a, start + b), host, first, last) for a, b, first, last in runs.found]
    return np.array(scenes, SCENES.dtype)


class StructColumn:
    """Agents or lights of rows, laid end to end; read when they are asked for, a slice at a time.

    Pickles without rows and serves many threads, as its rows do.
    """

    ndim = 1

    def __init__(self, rows: Dataset, mapping: RowMapping, name: str, intervals: Array):
        """Reads nothing.

        Args:
            name: "agents" or "tl_faces".
            intervals: (rows, 2) where each row's structs are.
        """
        self._rows, self._name = rows, name
        self._rules = mapping.agents if name == "agents" else mapping.tl_faces
        self._stops = intervals[:, 1].astype(np.int64)
        self.dtype = ARRAYS[name].dtype

    def __len__(self) -> int:
        return int(self._stops[-1]) if len(self._stops) else 0

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def __getitem__(self, key: Any) -> Any:
        """What numpy would give; cheap for slices, which read their rows only.

        Raises:
            IndexError: there is no such struct.
        """
        if isinstance(key, slice):
            chosen = range(len(self))[key]
            if chosen.step == 1:
                return self._slice(chosen.start, chosen.stop)
            return self._slice(0, len(self))[key]
        if isinstance(key, int | np.integer):
            place = range(len(self))[int(key)]
            return self._slice(place, place + 1)[0]
        return self._slice(0, len(self))[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        structs = self._slice(0, len(self))
        return structs if dtype is None else structs.astype(dtype)

    def _slice(self, start: int, stop: int) -> Array:
        if start >= stop or self._rules is None:
            return np.empty(0, self.dtype)
        first, last = np.searchsorted(self._stops, (start, stop - 1), side="right").tolist()
        block, _ = _read(self._rows, np.arange(first, last + 1), [self._rules.column])
        structs = map_structs(self._rules, ARRAYS[self._name], block, f"{block.log_id} {block.partition}")
        skipped = start - (int(self._stops[first - 1]) if first else 0)
        return structs.values[skipped : skipped + stop - start]
