"""Merging tables: one frame whose rows point into the blobs of several tables.

Here: `merge`, and reading how a frame was merged.
Elsewhere: columns of frames (logloom.io.formats.table.read.frames).

The service columns of the n-th table of a frame are named `__<n>.…`; merging renumbers those of the right
side. A column `__<n>.merge`, a category with one value (JSON), records how that side was merged, so that it
survives any pandas operation on the frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.formats.table import description as d
from logloom.values import dataclass

How = Literal["inner", "left"]

_NO_PLACE = "would give rows that the left frame lacks, and windows count that one's rows"


@dataclass(frozen=True)
class MergeStep:
    """The merge of the tables `slot` to `slot + width - 1` with those from `base` to `slot - 1`.

    Attributes:
        on, right_on: the keys' names on either side.
    """

    slot: int
    base: int
    width: int
    on: tuple[str, ...]
    right_on: tuple[str, ...]
    suffixes: tuple[str, str]
    how: How = "inner"

    @property
    def shared(self) -> tuple[str, ...]:
        """Keys of one name on both sides, which the merged rows have once."""
        return tuple(name for name, right in zip(self.on, self.right_on, strict=True) if name == right)

    def to_json(self) -> str:
        return json.dumps({k: v for k, v in asdict(self).items() if k not in ("slot", "base")})


def num_slots(columns: Iterable[object]) -> int:
    """The number of tables that a frame points into."""
    return 1 + max((int(m[1]) for c in columns if (m := d.SERVICE_COLUMN.fullmatch(str(c)))), default=-1)


def merge(
    left: pd.DataFrame,
    right: pd.DataFrame,
    on: str | Sequence[str] | None = None,
    *,
    how: How = "inner",
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    suffixes: tuple[str | None, str | None] = ("_x", "_y"),
    indicator: bool | str = False,
) -> pd.DataFrame:
    """Joins to each row of `left` the row of `right` with the same key, as pandas' merge of that name does.

    Rows come in the order of `left`, whose rows are also what windows count. Both frames may be merged
    already.

    Args:
        on: names of index columns that both frames have. On the right a key identifies one row; on the left
            for any number of them, such as all rows of a log where `right` has one for each log.
        how: "inner" leaves out rows of `left` without a match; "left" keeps them: their columns of `right`
            are missing in the frame, and NaN, 0, false or empty in rows that are read.
        left_on, right_on: instead of `on`, the keys by the names that they have on either side.
        suffixes: added to the names of other columns that both sides have, stored columns too; None or ""
            leaves a side's names as they are.
        indicator: adds a column, `_merge` or of that name, with "both" or "left_only".

    Returns:
        The joined index, for `row_loader`.

    Raises:
        UsageError: a key is missing, of different type, or repeats on the right; or suffixes leave two
            columns of one name. Names tables and rows.

    Examples:
        >>> sensors, labels = tt.read_index("sensors"), tt.read_index("labels")
        >>> merged = tt.merge(sensors, labels, on=["log_id", "timestamp"])
        >>> row = tt.row_loader(merged).get_row(0, columns=["pedestrians", "label"])
        >>> len(merged), row["label"]
        (5, 'stop')
    """
    keys, right_keys = _keys(on, left_on, right_on)
    _check_ways(how, suffixes)
    _check_keys("left", left, keys)
    _check_keys("right", right, right_keys)
    _check_unique(right, right_keys)
    for pair in zip(keys, right_keys, strict=True):
        _check_types(pair, left, right)
    rows = _matching_rows(left, right, keys, right_keys, how)
    first = num_slots(left.columns)
    ends = (suffixes[0] or "", suffixes[1] or "")
    step = MergeStep(first, 0, num_slots(right.columns), tuple(keys), tuple(right_keys), ends, how)
    taken = _taken(right.drop(columns=[*step.shared]), rows[1])
    sides = _renamed(left.iloc[rows[0]], taken, first, ends)
    _check_apart(sides, suffixes, left, right)
    merged: pd.DataFrame = pd.concat([one.reset_index(drop=True) for one in sides], axis=1)
    steps = pd.CategoricalDtype([step.to_json()])
    merged[d.service(first, "merge")] = pd.Categorical.from_codes(np.zeros(len(merged), np.int8), dtype=steps)
    if indicator:
        _indicate(merged, indicator if isinstance(indicator, str) else "_merge", rows[1])
    return merged


def _renamed(
    left: pd.DataFrame, right: pd.DataFrame, first: int, ends: tuple[str, str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add suffixes to shared names of both sides; number service columns of the right from slot `first`."""
    service = {name: d.SERVICE_COLUMN.fullmatch(str(name)) for name in right.columns}
    shared = [name for name in right.columns if name in left.columns and not service[name]]
    renamed = {name: f"{name}{ends[1]}" for name in shared} | {
        name: d.service(int(match[1]) + first, match[2]) for name, match in service.items() if match
    }
    return left.rename(columns={name: f"{name}{ends[0]}" for name in shared}), right.rename(columns=renamed)


def _check_apart(
    sides: Sequence[pd.DataFrame],
    suffixes: tuple[str | None, str | None],
    left: pd.DataFrame,
    right: pd.DataFrame,
) -> None:
    both = [name for side in sides for name in side.columns]
    if twice := sorted({str(name) for name in both if both.count(name) > 1}):
        raise UsageError(
            f"merge: suffixes {suffixes} leave two columns called {', '.join(twice)} (of {_place(left)} and "
            f"{_place(right)}); give others, such as suffixes=('_x', '_y')"
        )


def _indicate(merged: pd.DataFrame, name: str, right_rows: NDArray[np.int64]) -> None:
    """Add a column with the sides of each row.

    Args:
        right_rows: (N,) of the right side, -1 where it has none.
    """
    if name in merged.columns:
        raise UsageError(f"merge: there is a column {name} already; call the indicator otherwise")
    sides = pd.CategoricalDtype(["left_only", "right_only", "both"])
    merged[name] = pd.Categorical.from_codes(np.where(right_rows < 0, 0, 2), dtype=sides)


def _keys(*given: str | Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The keys' names on either side, from on, left_on and right_on."""
    on, left, right = ([keys] if isinstance(keys, str) else keys for keys in given)
    if on is not None and left is None and right is None:
        left = right = on
    elif on is not None or left is None or right is None:
        raise UsageError("merge: give on=, or else both left_on= and right_on=")
    if not left or len(left) != len(right or ()):
        what = "on is empty" if not left else f"left_on names {len(left)} keys, right_on {len(right or ())}"
        raise UsageError(f'merge: {what}; name index columns, such as on=["log_id", "timestamp"]')
    return list(left), list(right or ())


def _check_ways(how: str, suffixes: object) -> None:
    if how not in get_args(How):
        ways = {
            "right": f"{_NO_PLACE}; swap the sides: merge(right, left, how='left')",
            "outer": f"{_NO_PLACE}; merge both ways with how='left', and read the two frames apart",
        }
        raise UsageError(f"merge: how={how!r} {ways.get(how, 'is unknown; there are inner and left')}")
    if not isinstance(suffixes, Sequence) or isinstance(suffixes, str) or len(suffixes) != 2:
        raise UsageError(f"merge: suffixes={suffixes!r}; give two, such as ('_x', '_y')")


def _taken(frame: pd.DataFrame, positions: NDArray[np.int64]) -> pd.DataFrame:
    """Select rows of a frame by position; -1 gives a row that is missing everywhere."""
    if (positions >= 0).all():
        return frame.iloc[positions]
    taken = frame.reset_index(drop=True).reindex(positions)
    for name in frame.columns:
        if d.SERVICE_COLUMN.fullmatch(str(name)) and frame[name].dtype.kind in "iu":
            taken[name] = taken[name].fillna(-1).astype(np.int64)  # a byte offset is no float
    return taken


def _place(frame: pd.DataFrame) -> str:
    """Describe the left-most table of a frame, or several, for messages."""
    logs = frame[d.service(0, "log")]
    tables = sorted({d.table_of(str(log)) for log in logs.unique()})
    return " and ".join(tables[:3]) + " …" * (len(tables) > 3) if tables else "no table"


def _row(frame: pd.DataFrame, position: int) -> str:
    """Describe the place of a row for messages."""
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


def _check_unique(frame: pd.DataFrame, keys: Sequence[str]) -> None:
    repeated = frame.duplicated(subset=list(keys), keep=False)
    if repeated.any():
        position = int(repeated.to_numpy().argmax())
        equal = (frame[[*keys]] == frame[[*keys]].iloc[position]).all(axis=1).to_numpy()
        again = int(np.flatnonzero(equal)[1]) if equal.sum() > 1 else position  # NaN keys repeat, yet differ
        value = ", ".join(f"{key} {frame[key].iloc[position]}" for key in keys)
        raise UsageError(
            f"merge: {int(repeated.sum())} rows of the right frame share their key, first at position "
            f"{position} and again at {again} ({value}: {_row(frame, position)}, {_row(frame, again)}); "
            "merge before repeating rows, or on more columns; or swap the sides, to give each its own"
        )


def _check_types(keys: tuple[str, str], left: pd.DataFrame, right: pd.DataFrame) -> None:
    kinds = [_kind(frame[key]) for key, frame in zip(keys, (left, right), strict=True)]
    if kinds[0] != kinds[1]:
        key, name = " or ".join(dict.fromkeys(map(repr, keys))), keys[0]
        raise UsageError(
            f"merge: key {key} is {kinds[0]} on the left ({_place(left)}), {kinds[1]} on the right "
            f"({_place(right)}); convert one, such as with frame.assign({name}=frame.{name}.astype(...))"
        )


def _kind(series: pd.Series[Any]) -> str:
    dtype = series.cat.categories.dtype if isinstance(series.dtype, pd.CategoricalDtype) else series.dtype
    if pd.api.types.is_integer_dtype(dtype):
        return "integer"
    if pd.api.types.is_string_dtype(dtype) or dtype.kind == "O":
        return "text"
    return str(dtype)


def _matching_rows(
    left: pd.DataFrame, right: pd.DataFrame, left_keys: Sequence[str], right_keys: Sequence[str], how: How
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the rows with equal keys: positions in the order of `left`; -1 on the right for no match."""
    sides = []
    for frame, own in ((left, left_keys), (right, right_keys)):
        plain: dict[Any, Any] = {number: frame[key].array for number, key in enumerate(own)}
        sides.append(pd.DataFrame(plain | {"position": range(len(frame))}))
    keys = range(len(left_keys))
    for key in keys:
        kinds = [side[key].dtype for side in sides]
        if any(isinstance(kind, pd.CategoricalDtype) for kind in kinds):
            columns = [_category(side[key]) for side in sides]
            both = pd.api.types.union_categoricals(columns, sort_categories=False).categories
            for side, column in zip(sides, columns, strict=True):
                side[key] = column.set_categories(both).codes
    met = sides[0].merge(sides[1], on=list(keys), how="left", suffixes=("", ".right"))
    positions = met["position"].to_numpy()
    found = met["position.right"].fillna(-1).to_numpy().astype(np.int64)
    kept = (found >= 0) | (how == "left")
    return positions[kept], found[kept]


def _category(series: pd.Series[Any]) -> pd.Categorical:
    """Convert a key to a category; texts become Python's, whatever their type in pandas."""
    values = pd.Categorical(series)
    return values.rename_categories(str) if _kind(series) == "text" else values


def merge_steps(frame: pd.DataFrame) -> list[MergeStep]:
    """Read how the tables of a frame were merged, by slot.

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
        step = MergeStep(
            slot,
            open_until[-1][0],
            how["width"],
            tuple(how["on"]),
            tuple(how.get("right_on", how["on"])),  # frames that were pickled may lack it
            tuple(how["suffixes"]),
            how.get("how", "inner"),
        )
        steps.append(step)
        open_until.append((slot, slot + step.width))
    return steps
