"""Lanes of columns: the values of a column that are counted together.

Here: `RowStatistics`, which counts the rows of blocks as they are written or read.
Elsewhere: statistics of a lane (logloom.statistics.series), of all lanes (logloom.statistics.columns).

    one number                        a lane
    a vector or matrix, up to 64      a lane for each element
    larger, or of varying length      a lane for each element of a last axis of fixed length (x, y, z of
                                      points), and for each channel of images; else one
    varying length                    and a lane for each length
    structured                        each field, as above
    text                              a lane of texts
    bytes                             their lengths alone
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Block, Lists, Ragged
from logloom.schema import NO_AGE, ColumnType, Schema
from logloom.statistics.columns import INNER, LENGTHS, ROWS, VALUES, Key, Statistics
from logloom.statistics.exact_sums import CHUNK
from logloom.statistics.series import Lane, Numbers, merged_lanes, numbers_of, texts_of, whole_numbers_of

MAX_LANES = 64  # elements of a vector or matrix with separate lanes
MAX_CHANNELS = 16  # of the last axis of larger ones
SAMPLE = 64  # positions of a large value that are sampled
_WAITING = 1 << 17  # numbers that wait to be counted together
_AT_ONCE = 1 << 14  # numbers that are counted together, so that they stay in a processor's cache
_MERGED = 64  # parts of a lane that wait to be merged
_WHOLE = 2**53


class RowStatistics:
    """Statistics of rows, fed block by block; the result doesn't depend on how rows are split into blocks.

    Args:
        every_value: whether to count all of large values, not a sample of positions.
    """

    def __init__(self, schema: Schema, *, every_value: bool = False):
        self._types = dict(schema.columns)
        self._sampled = frozenset(schema.sampled)
        self._limit = None if every_value else SAMPLE
        self._known: dict[Key, list[Lane]] = defaultdict(list)
        self._rows: Counter[str] = Counter()
        self._missing: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._waiting: dict[tuple[str, str, str, int], list[NDArray[np.float64]]] = defaultdict(list)
        self._num_waiting = 0

    def update(self, block: Block) -> None:
        """Add the next rows."""
        for name, ctype in self._types.items():
            values = block.columns[name]
            self._rows[name] += len(values)
            available = block.columns.get(f"{name}.available") if name in self._sampled else None
            if isinstance(available, np.ndarray):
                missing = len(available) - int(np.count_nonzero(available))
                self._missing[name] += missing
                rows = np.flatnonzero(available) if missing else None
                age = block.columns[f"{name}.age"]
                assert isinstance(age, np.ndarray)
                measured = available & (age != NO_AGE)  # a count is available without a message
                self._numbers(f"{name}.age", "", VALUES, age if measured.all() else age[measured])
                if rows is not None:
                    values = values.take(rows) if isinstance(values, Ragged) else values[rows]
            if isinstance(values, Ragged):
                self._ragged(name, ctype, values)
            else:
                self._fixed(name, values)
        if self._num_waiting >= _WAITING:
            self._count()

    def close(self) -> Statistics:
        """Return the statistics of all rows."""
        self._count()
        for name, rows in self._rows.items():
            missing = self._missing[name]
            rows_lane = Numbers(rows - missing, missing, left_out=self._left_out[name])
            self._know(Key(name, "", ROWS, 0), rows_lane)
        return Statistics.of(self._known)

    # --- columns

    def _fixed(self, name: str, values: Array) -> None:
        size = math.prod(values.shape[1:])
        if values.dtype.names is not None:
            self._elements(name, "", values.reshape(-1))
        elif size <= MAX_LANES:
            self._elements(name, "", values)
        else:
            lanes = channels_of(values.shape[1:])
            positions = values.reshape(len(values), size // lanes, lanes)
            chosen = places(size // lanes, self._limit)
            self._left_out[name] += len(values) * (size // lanes - len(chosen))
            self._elements(name, "", positions[:, chosen].reshape(-1, lanes))

    def _ragged(self, name: str, ctype: ColumnType, values: Ragged) -> None:
        if isinstance(values, Lists):
            self._numbers(name, "", LENGTHS, values.inner.shapes)
            self._numbers(name, INNER, LENGTHS, values.inner.values)
        else:
            self._numbers(name, "", LENGTHS, values.shapes)
        if ctype.kind == "string":
            texts = (row.tobytes().decode(errors="replace") for row in values)
            self._know(Key(name, "", VALUES, 0), texts_of(texts))
        elif ctype.kind != "bytes":
            is_image = ctype.shape == (None, None, None)
            if not is_image and (self._limit is None or values.lengths.max(initial=0) <= self._limit):
                self._elements(name, "", values.values)
                return
            for row in values.flat if isinstance(values, Lists) else values:
                channels = (channels_of(row.shape),) if is_image else values.tail
                positions = row.reshape(-1, *channels)
                chosen = places(len(positions), self._limit)
                self._left_out[name] += len(positions) - len(chosen)
                self._elements(name, "", positions[chosen])

    def _elements(self, name: str, field: str, values: Array) -> None:
        """Add (n, *shape) values: a lane for each element of the shape, or fewer if it is large."""
        dtype = values.dtype
        if dtype.names is not None:
            for part in dtype.names:
                self._elements(name, f"{field}.{part}" if field else part, values[part])
        elif dtype.kind == "c":
            self._elements(name, f"{field}.real" if field else "real", values.real)
            self._elements(name, f"{field}.imag" if field else "imag", values.imag)
        elif dtype.kind == "U":
            # Half of a surrogate pair can't be stored in a file.
            texts = (text.encode(errors="replace").decode() for text in values.reshape(-1).tolist())
            self._know(Key(name, field, VALUES, 0), texts_of(texts))
        elif dtype.kind in "biuf":
            if math.prod(values.shape[1:]) > MAX_LANES:
                values = values.reshape(-1, channels_of(values.shape[1:]))
            self._numbers(name, field, VALUES, values)

    def _numbers(self, name: str, field: str, part: str, values: Array) -> None:
        """Add (n, *shape) numbers, with a lane for each element of the shape."""
        lanes = values.reshape(len(values), math.prod(values.shape[1:])).T
        if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and _are_large(values):
            for number, lane in enumerate(lanes):
                self._know(Key(name, field, part, number), whole_numbers_of(lane))
            return
        with np.errstate(invalid="ignore"):  # NaNs that would signal
            self._waiting[name, field, part, len(lanes)].append(lanes.astype(np.float64))
        self._num_waiting += values.size

    def _count(self) -> None:
        """Count all waiting numbers; those of several columns at once if there are as many of each."""
        together: dict[int, list[tuple[Key, NDArray[np.float64]]]] = defaultdict(list)
        for (name, field, part, _), pieces in self._waiting.items():
            for number, lane in enumerate(np.concatenate(pieces, axis=1)):
                together[len(lane)].append((Key(name, field, part, number), lane))
        self._waiting.clear()
        self._num_waiting = 0
        for length, lanes in together.items():
            step = max(1, _AT_ONCE // max(1, min(length, CHUNK)))
            for at in range(0, len(lanes), step):
                chosen = lanes[at : at + step]
                found = numbers_of(np.stack([lane for _, lane in chosen]))
                for (key, _), one in zip(chosen, found, strict=True):
                    self._know(key, one)

    def _know(self, key: Key, lane: Lane) -> None:
        known = self._known[key]
        known.append(lane)
        if len(known) >= _MERGED:  # so that many rows take no more memory than a few
            known[:] = [merged_lanes(known)]


def channels_of(shape: tuple[int, ...]) -> int:
    """Return the number of lanes of a large value of this shape: those of its last axis, if these are few."""
    return shape[-1] if len(shape) > 1 and 0 < shape[-1] <= MAX_CHANNELS else 1


@functools.lru_cache(maxsize=1024)
def places(count: int, limit: int | None) -> NDArray[np.int64]:
    """Select positions to sample of `count`: all, or one from each of `limit` equal parts.

    The place in a part depends on its number only, without a period that an image might have.

    >>> places(3, 8).tolist(), places(1000, 4).tolist()
    ([0, 1, 2], [0, 404, 559, 963])
    """
    if limit is None or count <= limit:
        return np.arange(count)
    numbers = np.arange(limit + 1, dtype=np.int64)
    starts = numbers * count // limit
    shares = (numbers[:-1] * 0x9E3779B1 & 0xFFFFFFFF) >> 8
    return starts[:-1] + (shares * np.diff(starts) >> 24)


def _are_large(values: Array) -> bool:
    return bool(values.size) and max(-int(values.min()), int(values.max())) > _WHOLE
