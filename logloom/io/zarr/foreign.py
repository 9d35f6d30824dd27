"""Zarr groups that others wrote as a conversion reads them: arrays along one axis, a row for each entry.

Here: the arrays as columns. Units and descriptions are those of CF attributes; whole numbers "since" a date
become int64 ns.
Elsewhere: our own datasets, and the same groups for training (source), which arrays hold rows (others).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.filesystems import explained
from logloom.io.folders import content_of, files_below
from logloom.io.pieces import LOG_ID, TIME, Batch, DatasetPiece, RawRows
from logloom.io.storage import Store
from logloom.io.survey import RawColumn, UnfitValuesError, plain_dtype, stacked
from logloom.io.zarr.others import FILES, along_rows, open_groups
from logloom.schema import STRING, ColumnType

_PIECE_BYTES = 256 << 20
_MAX_CHUNK_BYTES = 1 << 30
_SINCE = re.compile(
    r"(?P<unit>[a-z]+) since (?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[T ](?P<time>\d{2}:\d{2}(?::\d{2})?)(?:\.(?P<fraction>\d{1,9}))?)?(?: ?(?:Z|UTC|\+00:?00))?"
)
_NS = {
    "nanosecond": 1,
    "microsecond": 10**3,
    "millisecond": 10**6,
    "second": 10**9,
    "minute": 60 * 10**9,
    "hour": 3600 * 10**9,
    "day": 86400 * 10**9,
}
_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")


class ForeignArrays(RawRows):
    """See `RawRows`; a piece is a range of a group's rows that cuts no chunk.

    Of several groups each is a log of its name.
    """

    kind = "zarr"

    def __init__(self, store: Store):
        """Opens the groups.

        Raises:
            DatasetError: there is no group, or a damaged one.
            UsageError: there are no arrays.
        """
        self.place, self._store = store.uri, store
        self._groups  # noqa: B018 # raises what is wrong with them

    @functools.cached_property
    def _groups(self) -> dict[str, dict[str, Any]]:
        return open_groups(self._store)

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "_store": self._store}

    def _chosen(self, group: str, names: Sequence[str] | None) -> dict[str, Any]:
        arrays, uri = self._groups[group], self._store.uri_of(group)
        if names is not None:
            missing = [name for name in names if name not in arrays and name != LOG_ID]
            if missing:
                raise DatasetError(f"{uri}: there is no array {', '.join(missing[:5])}")
            arrays = {name: arrays[name] for name in names if name in arrays}
        return along_rows(arrays, uri)

    def names(self) -> Sequence[str]:
        """Of the arrays of the first group."""
        return list(next(iter(self._groups.values())))

    def pieces(self, names: Sequence[str] | None) -> Sequence[DatasetPiece]:
        """See `RawRows.pieces`."""
        return [piece for group in self._groups for piece in self._pieces_of(group, names)]

    def _pieces_of(self, group: str, names: Sequence[str] | None) -> list[DatasetPiece]:
        arrays, uri = self._chosen(group, names), self._store.uri_of(group)
        rows = int(next(iter(arrays.values())).shape[0])
        chunk, row_bytes = _weights(arrays)
        step = chunk * max(1, _PIECE_BYTES // (chunk * row_bytes))
        folders = [f"{group}/{name}".lstrip("/") for name in arrays]
        metadata = [name for name in FILES if self._store.exists(name)]
        content, size = content_of(self._store, metadata + files_below(self._store, folders))
        return [
            DatasetPiece(
                f"{uri}: rows {first} to {stop}", (group, first, stop), content, size * (stop - first) // rows
            )
            for first, stop in ((first, min(first + step, rows)) for first in range(0, rows, step))
        ]

    def batches(self, piece: DatasetPiece, names: Sequence[str] | None, max_bytes: int) -> Iterator[Batch]:
        """See `RawRows.batches`."""
        group, first, stop = piece.where
        arrays = self._chosen(group, names)
        for name, array in arrays.items():
            if (nbytes := _row_bytes(array) * array.chunks[0]) > _MAX_CHUNK_BYTES:
                raise DatasetError(
                    f"{self._store.uri_of(group)}/{name}: chunks of {nbytes:,} bytes, at most "
                    f"{_MAX_CHUNK_BYTES:,} are read; leave it out by --columns"
                )
        chunk, row_bytes = _weights(arrays)
        step = min(chunk, max(1, max_bytes // row_bytes))
        for start in range(first, stop, step):
            end = min(start + step, stop)
            batch = {name: self._column(group, name, array, start, end) for name, array in arrays.items()}
            if len(self._groups) > 1 and LOG_ID not in batch:
                batch[LOG_ID] = RawColumn([group] * (end - start), STRING)
            yield batch

    def _column(self, group: str, name: str, array: Any, start: int, stop: int) -> RawColumn:
        place = f"{self._store.uri_of(group)}/{name}: rows {start} to {stop}"
        try:
            with explained(place):
                values = np.asarray(array[start:stop])
        except LogloomError:
            raise
        except Exception as error:  # each codec has errors of its own
            raise DatasetError(f"{place}: {type(error).__name__}: {error}") from error
        try:
            return _column_of(values, name, array.attrs)
        except UnfitValuesError as error:
            raise DatasetError(f"{place}: {error}; leave it out by --columns") from error


def _row_bytes(array: Any) -> int:
    size: int = math.prod(array.shape[1:]) * array.dtype.itemsize
    return size


def _weights(arrays: Mapping[str, Any]) -> tuple[int, int]:
    """How many rows are stored together, at most, and the bytes of one."""
    rows = max(int((array.shards or array.chunks)[0]) for array in arrays.values())
    return max(1, rows), max(1, sum(map(_row_bytes, arrays.values())))


def _column_of(values: Array, name: str, attributes: Mapping[str, Any]) -> RawColumn:
    """
    Raises:
        UnfitValuesError: no column has such values.
    """
    unit, description = (str(attributes.get(key) or "") for key in ("units", "long_name"))
    if (values.dtype.kind == "U" and values.ndim == 1) or values.dtype.kind in "TO":
        return _text(values, description)
    if values.dtype.kind in "mM":
        ctype = ColumnType(np.dtype("<i8"), values.shape[1:])
        values, unit = np.asarray(stacked(RawColumn(values), ctype)), "ns"
    elif values.dtype.kind in "iu" and " since " in unit:
        times = _times(values, unit, str(attributes.get("calendar") or "standard"))
        if times is None and name == TIME:
            raise UsageError(
                f"timestamp counts {unit!r}, which isn't understood; rename it, or make it int64 ns"
            )
        values, unit = (values, unit) if times is None else (times, "ns")
    dtype = plain_dtype(values.dtype)
    return RawColumn(
        values.astype(dtype, copy=False), ColumnType(dtype, values.shape[1:], "array", unit, description)
    )


def _text(values: Array, description: str) -> RawColumn:
    found = values.tolist()
    if values.ndim > 1 or not all(isinstance(value, str) for value in found):
        raise UnfitValuesError(
            "values are Python objects" if values.dtype.kind == "O" else "text of several axes"
        )
    return RawColumn(found, ColumnType(STRING.dtype, STRING.shape, "string", "", description))


def _times(counts: Array, unit: str, calendar: str) -> Array | None:
    """(n, …) int64 ns since the Unix epoch; None where the unit isn't one of a plain calendar.

    Raises:
        UnfitValuesError: a time that int64 ns can't hold.
    """
    found = _SINCE.fullmatch(unit)
    factor = _NS.get(found["unit"].removesuffix("s")) if found else None
    if found is None or factor is None or calendar not in _CALENDARS:
        return None
    try:
        # In seconds: numpy's nanoseconds wrap around in silence.
        start = int(np.datetime64(f"{found['day']}T{found['time'] or '00:00'}", "s").astype(np.int64))
    except ValueError:
        return None
    epoch = start * 10**9 + int((found["fraction"] or "").ljust(9, "0"))
    low, high = (int(counts.min()), int(counts.max())) if counts.size else (0, 0)
    if not -(2**63) < low * factor + epoch <= high * factor + epoch < 2**63:
        raise UnfitValuesError("a time that int64 ns can't hold")
    times = counts.astype(np.int64).view(np.uint64) * np.uint64(factor)  # on the way they may wrap around
    return (times + np.uint64(epoch % 2**64)).view(np.int64)
