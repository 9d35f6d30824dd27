"""Rows and columns of a log that `logloom show` displays in viewers.

Here: `rows_of`, and the columns of what it gives: images, clouds, places, poses, or plain values.
Elsewhere: reading rows and telling images, clouds and places (logloom.pipelines.version_rows), MCAP files
(mcap) with messages for Foxglove (foxglove), Rerun (rerun).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.tombstones import check_purged
from logloom.io.storage.store import Store
from logloom.pictures import is_image
from logloom.pipelines.plan.next_version import where_logs_are
from logloom.pipelines.version_rows import RowsOfLogs, has_value, is_cloud, is_place
from logloom.schema import AGE, MAX_TIME, MIN_TIME, NO_AGE, ColumnType
from logloom.text import counted
from logloom.values import dataclass

WORLD = "map"  # the frame of places of which no recipe names it
_RANGE = re.compile(r"(\d*):(\d*)")
_ROTATIONS = ("rotation", "orientation", "quaternion")
_POINTS = re.compile(r"points\[([^\]]*)\]")
Kind = Literal[
    "image", "cloud", "place", "pose", "plain", "video", "transforms"
]  # the last two of topics only
Values = Mapping[str, Any]
Pose = tuple[tuple[float, ...], tuple[float, ...]]  # x, y, z; and the quaternion x, y, z, w


@dataclass(frozen=True)
class ShownColumn:
    """A column, or the age of one, and how it is drawn.

    Attributes:
        frame: of images and clouds the frame in which they are; of places and poses that which they are in.
        child: of poses, the frame whose pose it is.
        axes: the names of a point's numbers, of clouds that aren't structured.
        turn: of places, the column that says how the thing is turned; "" without one.
    """

    name: str
    ctype: ColumnType
    kind: Kind = "plain"
    frame: str = ""
    child: str = ""
    axes: tuple[str, ...] = ()
    turn: str = ""


class ShownRows:
    """Rows of one log of a version, in order.

    Attributes:
        record: of the log.
        numbers: of the rows in the log, ascending; one at least.
    """

    def __init__(self, store: Store, manifest: Manifest, position: int, numbers: Sequence[int]):
        self.name, self.version = manifest.name, manifest.version
        self.record: LogRecord = manifest.logs[position]
        self.numbers = numbers
        self._recipe = manifest.recipe
        self._rows = RowsOfLogs(store, manifest)
        self._first = int(self._rows.ends[position - 1]) if position else 0
        self._columns: dict[str, ShownColumn] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def title(self) -> str:
        """Which rows of the log these are: `100:400`, and how many of them where some are left out."""
        first, stop = self.numbers[0], self.numbers[-1] + 1
        return f"{first}:{stop}" if len(self) == stop - first else f"{first}:{stop}, {len(self)} of them"

    @property
    def names(self) -> list[str]:
        """All columns that may be shown, and their ages."""
        return [one for name in self._rows.schema.columns for one in (name, f"{name}.age")]

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last log time to show of the log: any, if all rows of a log are shown."""
        if len(self) == self.record.rows:
            return MIN_TIME, MAX_TIME
        ends = self._rows.found((self._first + self.numbers[0], self._first + self.numbers[-1]))
        first, last = (int(self._rows.row(record, number)["timestamp"]) for _, record, number in ends)
        return first, last

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows with all their columns, ages and availabilities.

        Raises:
            DatasetError: what is stored is damaged.
        """
        for _, record, number in self._rows.found(self._first + number for number in self.numbers):
            yield self._rows.row(record, number)

    def usable(self, values: Values) -> Iterator[ShownColumn]:
        """The columns of which a row has a usable value, and the ages that it knows.

        A column is what its first value that isn't empty shows it to be.
        """
        for name, ctype in self._rows.schema.columns.items():
            if name not in values or not values.get(f"{name}.available", True):
                continue
            yield self._column(name, ctype, values)
            if (age := values.get(f"{name}.age")) is not None and int(age) != NO_AGE:
                yield ShownColumn(f"{name}.age", AGE)

    def _column(self, name: str, ctype: ColumnType, values: Values) -> ShownColumn:
        if name in self._columns:
            return self._columns[name]
        column = column_of(name, ctype, values[name], self._recipe, self._rows.schema.columns)
        if has_value(values, name):
            self._columns[name] = column
        return column


def rows_of(
    store: Store,
    manifest: Manifest,
    log_id: str | None = None,
    rows: str | None = None,
    only: Collection[int] | None = None,
) -> ShownRows:
    """Rows of a log.

    Args:
        store: the root, as `open_root` gives it.
        log_id: None for the first log that has rows.
        rows: `a:b` for rows a to b of the log, without b; either may be left out.
        only: the numbers of those in the log that are shown; None for all.

    Raises:
        UsageError: no such log, no such rows.
        PurgedError: the log was erased.
    """
    counts = manifest.logs.column("rows").to_pylist()
    names = manifest.logs.column("log_id").to_pylist()
    whose = f"{store.uri}: version {manifest.version}"
    if log_id is None:
        position = next((at for at, count in enumerate(counts) if count), -1)
        if position < 0:
            raise UsageError(f"{whose} has no rows")
    elif log_id in names:
        position = names.index(log_id)
    else:
        raise UsageError(f"{whose} has no log {log_id!r}{where_logs_are(store.uri, manifest.logs, log_id)}")
    check_purged(store, f"{whose}, log {names[position]!r}", part=manifest.logs[position].part)
    start, stop = _range(rows, counts[position], f"{whose}, log {names[position]!r}")
    numbers = range(start, stop) if only is None else [n for n in sorted(only) if start <= n < stop]
    if not numbers:
        raise UsageError(
            f"{whose}, log {names[position]!r}: no row from {start} to {stop - 1} passes --where"
        )
    return ShownRows(store, manifest, position, numbers)


def _range(rows: str | None, total: int, whose: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(rows if rows is not None else ":")
    if found is None:
        raise UsageError(f"--rows {rows!r}: expected FIRST:END, like 100:400, 100: or :400")
    start, stop = int(found[1] or 0), min(int(found[2] or total), total)
    if start >= stop:
        why = f", so --rows {rows} is none of them" if total and rows is not None else ""
        raise UsageError(f"{whose} has {counted(total, 'row')}{why}")
    return start, stop


def column_of(
    name: str, ctype: ColumnType, value: Any, recipe: Mapping[str, Any], columns: Mapping[str, ColumnType]
) -> ShownColumn:
    """What a column is drawn as.

    Args:
        value: one of its values that isn't empty, where there is one.
        recipe: of the version.
        columns: all of them.
    """
    group = name.rpartition(".")[0] or name
    pair = _frames(recipe, name)
    if is_image(value):
        return ShownColumn(name, ctype, "image", group)
    if is_cloud(name, ctype, recipe) and (not ctype.dtype.names or _drawable(ctype.dtype)):
        return ShownColumn(
            name, ctype, "cloud", _cloud_frame(recipe, name, group), axes=_axes(recipe, name, ctype)
        )
    if pair and ctype.shape in ((7,), (4, 4)) and ctype.dtype.kind == "f":
        return ShownColumn(name, ctype, "pose", pair[1], pair[0])
    if is_place(name, ctype):
        turn = next((f"{group}.{word}" for word in _ROTATIONS if _turns(columns.get(f"{group}.{word}"))), "")
        return ShownColumn(name, ctype, "place", pair[1] if pair else WORLD, turn=turn)
    return ShownColumn(name, ctype)


def _drawable(dtype: np.dtype[Any]) -> bool:
    return all(dtype[name].str[1:] in ("f4", "f8", "i1", "i2", "i4", "u1", "u2", "u4") for name in ("x", "y"))


def _column_of(recipe: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    column = recipe.get("columns", {}).get(name)
    return column if isinstance(column, Mapping) else {}


def _frames(recipe: Mapping[str, Any], name: str) -> tuple[str, str] | None:
    """Of a column of poses: which frame's pose it is, and in which."""
    pair = _column_of(recipe, name).get("tf")
    if not isinstance(pair, Mapping):
        return None
    source, target = (f["topic"] if isinstance(f, Mapping) else f for f in (pair["from"], pair["to"]))
    return str(source), str(target)


def _cloud_frame(recipe: Mapping[str, Any], name: str, group: str) -> str:
    """The frame whose pose a column looks up at the times of these clouds, else the column's own group."""
    columns = recipe.get("columns", {})
    pairs = (_frames(recipe, other) for other in columns if _column_of(recipe, other).get("at") == name)
    return next((pair[0] for pair in pairs if pair), group)


def _axes(recipe: Mapping[str, Any], name: str, ctype: ColumnType) -> tuple[str, ...]:
    """Names for the numbers of a point that is no struct: the recipe's, else x, y, z, value_3, ..."""
    if ctype.dtype.names:
        return ()
    width = int(ctype.shape[1] or 0)
    matched = _POINTS.fullmatch(str(_column_of(recipe, name).get("as", "")))
    names = [word.strip() for word in matched[1].split(",")] if matched else []
    if len(names) == width and len(set(names)) == width:
        return tuple(names)
    return tuple("xyz"[at] if at < 3 else f"value_{at}" for at in range(width))


def _turns(ctype: ColumnType | None) -> bool:
    return ctype is not None and ctype.dtype.kind == "f" and ctype.shape in ((4,), (3, 3))


def encoding_of(value: bytes) -> str:
    """How an image is encoded: "jpeg", "png", or "" of bytes that are neither."""
    return "jpeg" if value.startswith(b"\xff\xd8\xff") else "png" if value.startswith(b"\x89PNG\r\n") else ""


def pose_of(column: ShownColumn, values: Values) -> Pose | None:
    """Return position and rotation in a row's value; None for numbers that aren't finite.

    Args:
        column: of kind "place" or "pose". A place without a usable rotation isn't turned.
    """
    value = np.asarray(values[column.name], np.float64)
    turn = np.array([0.0, 0.0, 0.0, 1.0])
    if value.shape == (4, 4):
        value, turn = value[:3, 3], quaternion_of(value[:3, :3])
    elif value.shape == (7,):
        value, turn = value[:3], value[3:]
    elif column.turn and has_value(values, column.turn):
        found = np.asarray(values[column.turn], np.float64)
        found = quaternion_of(found) if found.shape == (3, 3) else found
        turn = found if np.isfinite(found).all() and found.any() else turn
    if not (np.isfinite(value).all() and np.isfinite(turn).all()):
        return None
    place = [*value.tolist(), 0.0][:3]
    return tuple(place), tuple(turn.tolist())


def quaternion_of(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The unit quaternion (x, y, z, w) of a rotation matrix, w >= 0; NaN of what is none.

    By the largest of the four, which keeps all digits (Shepperd, Journal of Guidance and Control 1978).

    Args:
        matrix: (3, 3).
    """
    m = matrix.tolist()
    squares = [
        1 + m[0][0] - m[1][1] - m[2][2],
        1 - m[0][0] + m[1][1] - m[2][2],
        1 - m[0][0] - m[1][1] + m[2][2],
        1 + m[0][0] + m[1][1] + m[2][2],
    ]
    if not all(map(math.isfinite, squares)) or max(squares) <= 0:
        return np.full(4, np.nan)
    at = squares.index(max(squares))
    xy, xz, yz = m[1][0] + m[0][1], m[2][0] + m[0][2], m[2][1] + m[1][2]
    wx, wy, wz = m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]
    rows = [
        [squares[0], xy, xz, wx],
        [xy, squares[1], yz, wy],
        [xz, yz, squares[2], wz],
        [wx, wy, wz, squares[3]],
    ]
    found = np.array(rows[at])
    found /= np.sqrt((found**2).sum())
    return found if found[3] >= 0 else -found
