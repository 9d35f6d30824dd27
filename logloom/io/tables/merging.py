"""Merging tables: one frame whose rows point into the blobs of several tables.

Here: `merge`, and reading back how a frame was merged.
Elsewhere: columns of frames (logloom.io.tables.frames).

The service columns of the n-th table of a frame are called `__<n>.…`; merging renumbers those of the right
side. How that side was merged stands in a column of its own, `__<n>.merge`, a category with one value
(JSON), so that it survives whatever pandas does with the frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from logloom.errors import UsageError
from logloom.io.tables import description as d


@dataclass(frozen=True)
class MergeStep:
    """How the tables `slot` to `slot + width - 1` were merged to those from `base` to `slot - 1`."""

    slot: int
    base: int
    width: int
    on: tuple[str, ...]
    suffixes: tuple[str, str]

    def to_json(self) -> str:
        return json.dumps({k: v for k, v in asdict(self).items() if k not in ("slot", "base")})


def num_slots(columns: Iterable[object]) -> int:
    """How many tables a frame points into."""
    return 1 + max((int(m[1]) for c in columns if (m := d.SERVICE_COLUMN.fullmatch(str(c)))), default=-1)


def merge(
    left: pd.DataFrame,
    right: pd.DataFrame,
    on: str | Sequence[str],
    *,
    suffixes: tuple[str | None, str | None] = ("_x", "_y"),
) -> pd.DataFrame:
    """Joins two tables' frames row by row where the columns `on` are equal; other rows are left out.

    Rows come in the order of `left`, whose rows are also what windows count. Both frames may be merged
    already.

    Args:
        on: names of index columns that both frames have; a key stands for one row on each side.
        suffixes: added to the names of other columns that both sides have, stored columns too; None or ""
            leaves a side's names as they are.

    Raises:
        UsageError: a key is missing, of different type, or repeats; or suffixes leave two columns of one
            name. Names tables and rows.
    """
    keys = [on] if isinstance(on, str) else list(on)
    if not keys:
        raise UsageError('merge: on is empty; name index columns, such as on=["log_id", "timestamp"]')
    if not isinstance(suffixes, Sequence) or isinstance(suffixes, str) or len(suffixes) != 2:
        raise UsageError(f"merge: suffixes={suffixes!r}; give two, such as ('_x', '_y')")
    for side, frame in (("left", left), ("right", right)):
        _check_keys(side, frame, keys)
    for key in keys:
        _check_types(key, left, right)
    rows = _matching_rows(left, right, keys)
    first = num_slots(left.columns)
    ends = (suffixes[0] or "", suffixes[1] or "")
    step = MergeStep(first, 0, num_slots(right.columns), tuple(keys), ends)
    kept_left, kept_right = left.iloc[rows[0]], right.iloc[rows[1]].drop(columns=keys)
    shared = [
        name
        for name in kept_right.columns
        if name in kept_left.columns and not d.SERVICE_COLUMN.fullmatch(str(name))
    ]
    kept_left = kept_left.rename(columns={name: f"{name}{ends[0]}" for name in shared})
    renamed = {name: f"{name}{ends[1]}" for name in shared} | {
        name: d.service(int(match[1]) + first, match[2])
        for name in kept_right.columns
        if (match := d.SERVICE_COLUMN.fullmatch(str(name)))
    }
    kept_right = kept_right.rename(columns=renamed)
    both = [*kept_left.columns, *kept_right.columns]
    if twice := sorted({str(name) for name in both if both.count(name) > 1}):
        raise UsageError(
            f"merge: suffixes {suffixes} leave two columns called {', '.join(twice)} (of {_place(left)} and "
            f"{_place(right)}); give others, such as suffixes=('_x', '_y')"
        )
    kept_left, kept_right = kept_left.reset_index(drop=True), kept_right.reset_index(drop=True)
    merged: pd.DataFrame = pd.concat([kept_left, kept_right], axis=1)
    how = pd.CategoricalDtype([step.to_json()])
    merged[d.service(first, "merge")] = pd.Categorical.from_codes(np.zeros(len(merged), np.int8), dtype=how)
    return merged


def _place(frame: pd.DataFrame) -> str:
    """The left-most table of a frame, or several, for people."""
    logs = frame[d.service(0, "log")]
    tables = sorted({d.table_of(str(log)) for log in logs.unique()})
    return " and ".join(tables[:3]) + " …" * (len(tables) > 3) if tables else "no table"


def _row(frame: pd.DataFrame, position: int) -> str:
    """Where a row is stored, for people."""
    return f"row {frame[d.service(0, 'row')].iloc[position]} of {frame[d.service(0, 'log')].iloc[position]}"


def _check_keys(side: str, frame: pd.DataFrame, keys: Sequence[str]) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise UsageError(f"merge: the {side} side is no frame of read_index but {type(frame).__name__}")
    if lost := [name for name in (d.service(0, "log"), d.service(0, "row")) if name not in frame.columns]:
        raise UsageError(
            f"merge: the {side} frame lost its service column {lost[0]}, or never had any; merge frames of "
            "read_index, with the columns that begin with __"
        )
    if missing := [key for key in keys if key not in frame.columns]:
        names = [str(name) for name in frame.columns if not d.SERVICE_COLUMN.fullmatch(str(name))]
        raise UsageError(
            f"merge: the {side} frame (of {_place(frame)}) has no column {missing[0]!r}; it has "
            f"{', '.join(names)}. A key has to be an index column of both tables"
        )
    repeated = frame.duplicated(subset=list(keys), keep=False)
    if repeated.any():
        position = int(repeated.to_numpy().argmax())
        equal = (frame[keys] == frame[keys].iloc[position]).all(axis=1).to_numpy()
        again = int(np.flatnonzero(equal)[1]) if equal.sum() > 1 else position  # NaN keys repeat, yet differ
        value = ", ".join(f"{key} {frame[key].iloc[position]}" for key in keys)
        raise UsageError(
            f"merge: {int(repeated.sum())} rows of the {side} frame share their key, first at position "
            f"{position} and again at {again} ({value}: {_row(frame, position)}, {_row(frame, again)}); "
            "merge before repeating rows, or on more columns"
        )


def _check_types(key: str, left: pd.DataFrame, right: pd.DataFrame) -> None:
    kinds = [_kind(frame[key]) for frame in (left, right)]
    if kinds[0] != kinds[1]:
        raise UsageError(
            f"merge: key {key!r} is {kinds[0]} on the left ({_place(left)}), {kinds[1]} on the right "
            f"({_place(right)}); convert one, such as with frame.assign({key}=frame.{key}.astype(...))"
        )


def _kind(series: pd.Series[Any]) -> str:
    dtype = series.cat.categories.dtype if isinstance(series.dtype, pd.CategoricalDtype) else series.dtype
    if pd.api.types.is_integer_dtype(dtype):
        return "integer"
    if pd.api.types.is_string_dtype(dtype) or dtype.kind == "O":
        return "text"
    return str(dtype)


def _matching_rows(left: pd.DataFrame, right: pd.DataFrame, keys: Sequence[str]) -> tuple[Any, Any]:
    """Positions of the rows whose keys meet, in the order of `left`."""
    sides = []
    for frame in (left, right):
        plain = {key: frame[key].array for key in keys}
        sides.append(pd.DataFrame(plain | {"position": range(len(frame))}))
    for key in keys:
        kinds = [side[key].dtype for side in sides]
        if any(isinstance(kind, pd.CategoricalDtype) for kind in kinds):
            columns = [_category(side[key]) for side in sides]
            both = pd.api.types.union_categoricals(columns, sort_categories=False).categories
            for side, column in zip(sides, columns, strict=True):
                side[key] = column.set_categories(both).codes
    met = sides[0].merge(sides[1], on=list(keys), how="left", suffixes=("", ".right"))
    found = met["position.right"].notna().to_numpy()
    return met["position"].to_numpy()[found], met["position.right"].to_numpy()[found].astype("int64")


def _category(series: pd.Series[Any]) -> pd.Categorical:
    """A key as a category; texts as Python's, whatever pandas holds them in."""
    values = pd.Categorical(series)
    return values.rename_categories(str) if _kind(series) == "text" else values


def merge_steps(frame: pd.DataFrame) -> list[MergeStep]:
    """How the tables of a frame were merged, by slot.

    Raises:
        UsageError: parts of the frame were merged in different ways.
    """
    steps: list[MergeStep] = []
    open_until: list[tuple[int, int]] = [
        (0, num_slots(frame.columns))
    ]  # subtrees (base, end) around the slot
    for slot in range(1, open_until[0][1]):
        name = d.service(slot, "merge")
        if name not in frame.columns:
            raise UsageError(f"the frame lost its service column {name}; keep the columns that begin with __")
        series = frame[name]
        found = (
            series.cat.categories
            if isinstance(series.dtype, pd.CategoricalDtype)
            else series.dropna().unique()
        )
        texts = [str(text) for text in found]
        if len(texts) != 1:
            raise UsageError(
                f"the frame's rows were merged in {len(texts)} ways ({name}); use a loader for each"
            )
        how = json.loads(texts[0])
        while slot >= open_until[-1][1]:
            open_until.pop()
        step = MergeStep(slot, open_until[-1][0], how["width"], tuple(how["on"]), tuple(how["suffixes"]))
        steps.append(step)
        open_until.append((slot, slot + step.width))
    return steps
