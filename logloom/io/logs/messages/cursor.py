"""Reading the same place of many payloads at once.

Here: `Cursor`, payloads of one byte order, and how to read words, values and stretches of bytes of all of
them in one call. Only this code accesses payload bytes; it checks every read against the end of its message.
Elsewhere: layouts (logloom.io.logs.messages.ros.decoders).

A place is counted from the start of each payload's body. It is a plain int while it is the same in all
payloads, and an array (n,) from where they differ; so messages of one layout are walked once, whatever their
number, and others at the cost of a few numpy calls a field. Payloads at equal distances in their buffer, such
as those of the only topic of a chunk, are read as one strided view; places that were found are cached, so
that repeated walks read only the requested values.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged, run_indices
from logloom.io.logs.messages.raw_messages import RawMessages
from logloom.schema import BYTES

Array = NDArray[Any]
At = int | NDArray[np.int64]
Buffer = NDArray[np.uint8]

VIEW_BYTES = 256  # rows of bytes this long on average stay views of their buffers
_HEAD_BYTES = 32  # of each payload that are fetched when the first of them is asked for
_COPY_BYTES = 96  # from about here one slice per row is faster than an index for every byte
_JOIN_ROWS, _JOIN_BYTES = 32, 4096  # few and small payloads per buffer are joined first


class MisfitError(Exception):
    """Some messages don't fit their definition.

    Attributes:
        rows: which of the RawMessages; at least one.
        reason: of all of them.
    """

    def __init__(self, rows: NDArray[np.intp], reason: str):
        super().__init__(reason)
        self.rows = rows
        self.reason = reason


class LackError(MisfitError):
    """Some messages lack a wanted value, as an array is too short."""


class Run(NamedTuple):
    """Neighbouring payloads of a cursor in one buffer.

    Attributes:
        rows: of the cursor.
        start: of the first one's body.
        step: from the start of one body to the next, where that is the same for all; else None.
    """

    buffer: Buffer
    rows: slice
    start: int
    step: int | None


class Cursor:
    """Payloads of one byte order.

    Attributes:
        buffers: of the payloads.
        buffer: (n,) index of each payload's buffer.
        base: (n,) start of its body in the buffer.
        size: (n,) bytes of each body; the least and the most are `shortest` and `longest`.
        rows: (n,) which of the RawMessages they are; n >= 1.
        order: "<" or ">".
        lead: bytes of each payload before its body.
        places: cached places of elements of arrays (`logloom.io.logs.messages.ros.elements`).
    """

    __slots__ = (
        "_ended",
        "_head",
        "_runs",
        "_words",
        "base",
        "buffer",
        "buffers",
        "lead",
        "longest",
        "order",
        "places",
        "rows",
        "shortest",
        "size",
    )

    def __init__(
        self,
        buffers: Sequence[Buffer],
        buffer: NDArray[np.intp],
        base: NDArray[np.int64],
        size: NDArray[np.int64],
        rows: NDArray[np.intp],
        order: str,
        lead: int,
    ):
        self.buffers, self.buffer, self.base, self.size = buffers, buffer, base, size
        self.rows, self.order, self.lead = rows, order, lead
        one = int(size[0])
        self.shortest, self.longest = (one, one) if len(size) == 1 else (int(size.min()), int(size.max()))
        self._runs = _runs(buffers, buffer, base)
        self._words: dict[int, At] = {}
        self._ended: set[int] = set()
        self._head: Array | None = None
        self.places: dict[Hashable, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: Array | slice) -> Cursor:
        """Return a cursor of some of the payloads."""
        base, size, rows = self.base[which], self.size[which], self.rows[which]
        return Cursor(self.buffers, self.buffer[which], base, size, rows, self.order, self.lead)

    def by_buffer(self) -> list[Cursor]:
        """The payloads of each buffer."""
        return [self.take(run.rows) for run in self._runs]

    def refuse(self, bad: bool | NDArray[np.bool_], reason: str) -> None:
        """Raise a MisfitError for the payloads with a true `bad`; a single bool applies to all."""
        if isinstance(bad, np.ndarray):
            if bad.any():
                raise MisfitError(self.rows[bad], reason)
        elif bad:
            raise MisfitError(self.rows, reason)

    def need(self, at: At) -> None:
        """Refuse messages that end before `at`."""
        if isinstance(at, np.ndarray) or at > self.shortest:
            self.refuse(at > self.size, "it ends before its definition does")

    def word(self, at: At) -> At:
        """Return the u32 at a place of each payload; one int if all are equal."""
        if len(self) == 1:  # a numpy call on one value costs ten times as much
            self.need(at + 4)
            start = int(self.base[0]) + int(at if isinstance(at, int) else at[0])
            word = self.buffers[self.buffer[0]][start : start + 4]
            return int.from_bytes(word, "little" if self.order == "<" else "big")
        if not isinstance(at, int):
            return settle(self.items(at, np.dtype(self.order + "u4")))
        if at not in self._words:
            self._words[at] = settle(self.items(at, np.dtype(self.order + "u4")))
        return self._words[at]

    def need_zero(self, at: At) -> None:
        """Refuse messages in which the byte at a place, the end of a text, isn't zero."""
        if isinstance(at, int) and at in self._ended:
            return
        self.refuse(self.items(at, np.dtype("u1")) != 0, "text doesn't end with a zero byte")
        if isinstance(at, int):
            self._ended.add(at)

    def items(self, at: At, dtype: np.dtype[Any]) -> Array:
        """(n, *shape of dtype): one value of each payload."""
        self.need(at + dtype.itemsize)
        shape, base = dtype.shape, dtype.base
        if dtype.itemsize == 0:
            return np.zeros((len(self), *shape), base)
        packed = self._from_head(at, dtype.itemsize) if isinstance(at, int) and len(self) > 1 else None
        if packed is None:
            packed = self._fetched(at, dtype.itemsize)
        return packed.view(base).reshape(len(self), *shape)

    def _from_head(self, at: int, width: int) -> Array | None:
        """(n,) opaque items from the first bytes of each payload; None if they are further behind.

        Lengths are mostly there: fetching these bytes once is faster than accessing each payload for each
        word.
        """
        at += self.lead
        length = min(_HEAD_BYTES, self.shortest + self.lead)
        if at + width > length:
            return None
        if self._head is None:
            self._head = self._fetched(-self.lead, length)
        return np.ndarray((len(self),), f"V{width}", self._head.data, at, (length,)).copy()

    def _fetched(self, at: At, width: int) -> Array:
        """(n,) opaque items of `width` bytes, which the payloads must have."""
        opaque = np.dtype(f"V{width}")
        packed = np.empty(len(self), opaque)
        for buffer, rows, start, step in self._runs:
            # Equal distances, as of an uncompressed chunk of one topic: one strided view.
            #
            # buffer   | head AAAA rest | head AAAA rest |      start + at = 4, step = 12, width 4
            #
            # Else each byte begins an item of an overlapping view, of which those wanted are picked.
            if step is not None and isinstance(at, int):
                every = np.ndarray((rows.stop - rows.start,), opaque, buffer.data, start + at, (step,))
                packed[rows] = every
                continue
            window = np.ndarray((max(0, len(buffer) - width + 1),), opaque, buffer.data, strides=(1,))
            packed[rows] = window[self.base[rows] + (at if isinstance(at, int) else at[rows])]
        return packed

    def windows(self, at: At, width: int) -> Array | None:
        """(n,) opaque items from a place of each payload on, including bytes after its end.

        None where a buffer is shorter than one.
        """
        self.need(at)
        opaque = np.dtype(f"V{width}")
        packed, starts = np.empty(len(self), opaque), self.base + at
        for buffer, rows, _, _ in self._runs:
            last = len(buffer) - width
            if last < 0:
                return None
            every = np.ndarray((last + 1,), opaque, buffer.data, strides=(1,))
            packed[rows] = every[np.minimum(starts[rows], last)]
            for row in (rows.start + np.flatnonzero(starts[rows] > last)).tolist():
                packed[row] = buffer[int(starts[row]) :].tobytes().ljust(width, b"\0")
        return packed

    def runs(self, at: At, lengths: At) -> Buffer:
        """Return `lengths` bytes at a place of each payload, concatenated."""
        self.need(at + lengths)
        if isinstance(lengths, int):
            return self.items(at, np.dtype((np.uint8, (lengths,)))).reshape(-1)
        starts, ends = self.base + at, np.cumsum(lengths)
        begins = ends - lengths
        joined = np.empty(int(ends[-1]), np.uint8)
        few = len(joined) < _COPY_BYTES * len(self)
        for buffer, rows, _, _ in self._runs:
            if few:
                first, stop = int(begins[rows.start]), int(ends[rows.stop - 1])
                joined[first:stop] = buffer[run_indices(starts[rows], lengths[rows])]
                continue
            places = zip(starts[rows].tolist(), begins[rows].tolist(), ends[rows].tolist(), strict=True)
            for start, begin, end in places:
                joined[begin:end] = buffer[start : start + end - begin]
        return joined

    def bytes(self, at: At, lengths: At) -> Ragged:
        """Return a row of bytes for each payload; long ones are views of the buffer."""
        self.need(at + lengths)
        counts = spread(lengths, len(self))
        if counts.sum() < VIEW_BYTES * len(self):
            return Ragged(self.runs(at, lengths), counts)
        views: list[Buffer] = []
        starts, ends = self.base + at, self.base + at + counts
        for buffer, rows, _, _ in self._runs:
            places = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
            views += [buffer[start:end] for start, end in places]
        return Ragged.from_rows(views, BYTES)


def _runs(buffers: Sequence[Buffer], buffer: NDArray[np.intp], base: NDArray[np.int64]) -> list[Run]:
    if len(base) == 1:
        return [Run(buffers[buffer[0]], slice(0, 1), int(base[0]), 0)]
    gaps = np.diff(base)
    turns = np.flatnonzero(buffer[1:] != buffer[:-1]) + 1
    runs = []
    for first, stop in pairwise([0, *turns.tolist(), len(base)]):
        inside = gaps[first : stop - 1]
        step = int(inside[0]) if len(inside) else 0
        is_even = step >= 0 and bool((inside == step).all())
        start = int(base[first])
        runs.append(Run(buffers[buffer[first]], slice(first, stop), start, step if is_even else None))
    return runs


def settle(at: NDArray[np.integer[Any]]) -> At:
    """Return one int for an array of equal values."""
    first = int(at[0])
    return first if len(at) == 1 or bool((at == first).all()) else at.astype(np.int64, copy=False)


def spread(at: At, n: int) -> NDArray[np.int64]:
    """Broadcast one int to (n,)."""
    return at if isinstance(at, np.ndarray) else np.full(n, at, np.int64)


def cursors(raw: RawMessages, encapsulated: bool) -> Sequence[Cursor | MisfitError]:
    """Group all payloads by byte order; also return those with invalid first bytes.

    Made once for checks, times and columns of messages, which walk the same places.

    Args:
        encapsulated: whether four bytes with the byte order precede the body.
    """
    key = "cursors", encapsulated
    if key not in raw.remembered:
        raw.remembered[key] = tuple(_cursors(raw, encapsulated))
    found: Sequence[Cursor | MisfitError] = raw.remembered[key]
    return found


def _cursors(raw: RawMessages, encapsulated: bool) -> Iterator[Cursor | MisfitError]:
    if not len(raw):
        return
    head = 4 * encapsulated
    buffers, buffer, start, size, rows = _by_buffer(raw)
    room = np.array([len(memory) for memory in buffers])
    if size.min() < head or start.min() < 0 or (start + size > room[buffer]).any():
        ok = (size >= head) & (start >= 0) & (start + size <= room[buffer])
        yield MisfitError(rows[~ok], "it ends before its definition does")
        buffer, start, size, rows = buffer[ok], start[ok], size[ok], rows[ok]
    if not len(rows):
        return
    bodies = Cursor(buffers, buffer, start + head, size - head, rows, "<", head)
    if not encapsulated:
        yield bodies
        return
    kinds = settle(bodies.items(-head, np.dtype(">u2")))
    for value in [kinds] if isinstance(kinds, int) else np.unique(kinds).tolist():
        some = bodies if isinstance(kinds, int) else bodies.take(np.flatnonzero(kinds == value))
        if value > 1:
            reason = f"its encapsulation is 0x{value:04x}, and only plain CDR (0x0000, 0x0001) is read"
            yield MisfitError(some.rows, reason)
        else:
            some.order = "><"[value]
            yield some


_Placed = tuple[
    Sequence[Buffer], NDArray[np.intp], NDArray[np.int64], NDArray[np.int64], NDArray[np.intp]
]  # buffers; of each payload: which buffer, start, length, row


def _by_buffer(raw: RawMessages) -> _Placed:
    """Sort payloads so that those of each buffer are adjacent."""
    turns = np.flatnonzero(raw.buffer[1:] != raw.buffer[:-1]) + 1
    few, small = len(raw) < _JOIN_ROWS * (len(turns) + 1), raw.length.sum() < _JOIN_BYTES * len(raw)
    if len(turns) and few and small:
        return _joined(raw)
    if (raw.buffer[turns] > raw.buffer[turns - 1]).all():
        return raw.buffers, raw.buffer, raw.start, raw.length, np.arange(len(raw))
    order = np.argsort(raw.buffer, kind="stable")
    return raw.buffers, raw.buffer[order], raw.start[order], raw.length[order], order


def _joined(raw: RawMessages) -> _Placed:
    """All payloads in one buffer."""
    starts = np.maximum(raw.start, 0)
    where = zip(raw.buffer.tolist(), starts.tolist(), (starts + raw.length).tolist(), strict=True)
    payloads = [memoryview(raw.buffers[buffer])[start:end] for buffer, start, end in where]
    found = np.array([len(payload) for payload in payloads], np.int64)
    # A payload beyond its buffer was cut here; it must not appear complete.
    size = np.where((found < raw.length) | (raw.start < 0), -1, raw.length)
    joined = np.frombuffer(b"".join(payloads), np.uint8)
    return [joined], np.zeros(len(raw), np.intp), np.cumsum(found) - found, size, np.arange(len(raw))
