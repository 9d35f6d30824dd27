"""Reading the same place of many payloads at once.

Here: `Cursor`, some payloads that lie in one buffer and have one byte order, and how to read words, values
and stretches of bytes of all of them in one numpy call. It is the only code that touches payload bytes, and
checks every read against the end of its message.
Elsewhere: what lies where (layouts).

A place is counted from the start of each payload's body. It is a plain int while it is the same in all
payloads, and an array (n,) from where they differ; so messages of one layout are walked once, whatever their
number, and others at the cost of a few numpy calls a field. Payloads at equal distances, as those of one
topic alone in a chunk, are read as one strided view; what was read of them to find the way is remembered, so
that going the same way again touches nothing but the values wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged
from logloom.io.logs.raw import RawMessages
from logloom.schema import BYTES

Array = NDArray[Any]
At = int | NDArray[np.int64]

VIEW_BYTES = 256  # rows of bytes this long on average stay views of their buffers
_COPY_BYTES = 96  # from about here one slice a row is faster than an index for every byte
_JOIN_ROWS, _JOIN_BYTES = 32, 4096  # few and small payloads a buffer are joined first


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


class Cursor:
    """Payloads in one buffer.

    Attributes:
        rows: (n,) which of the RawMessages they are; n >= 1.
        order: "<" or ">".
        size: (n,) bytes of each body.
        step: from the start of one body to the next, where that is the same for all; else None.
    """

    __slots__ = ("_ended", "_words", "base", "buffer", "order", "rows", "shortest", "size", "step")

    def __init__(
        self,
        buffer: NDArray[np.uint8],
        base: NDArray[np.int64],
        size: NDArray[np.int64],
        rows: NDArray[np.intp],
        order: str,
    ):
        self.buffer, self.base, self.size, self.rows, self.order = buffer, base, size, rows, order
        self.shortest = int(size[0]) if len(size) == 1 else int(size.min())
        self.step = _step(base)
        self._words: dict[int, At] = {}
        self._ended: set[int] = set()

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: Array) -> Cursor:
        """Some of the payloads."""
        return Cursor(self.buffer, self.base[which], self.size[which], self.rows[which], self.order)

    def refuse(self, bad: bool | NDArray[np.bool_], reason: str) -> None:
        """Raises a MisfitError of the payloads for which `bad` is true; one bool stands for all."""
        if isinstance(bad, np.ndarray):
            if bad.any():
                raise MisfitError(self.rows[bad], reason)
        elif bad:
            raise MisfitError(self.rows, reason)

    def lends(self, values: Array) -> bool:
        """Whether values may be a view of the buffer, and not a copy."""
        return np.may_share_memory(values, self.buffer)

    def need(self, at: At) -> None:
        """Refuses messages that end before `at`."""
        if isinstance(at, np.ndarray) or at > self.shortest:
            self.refuse(at > self.size, "it ends before its definition does")

    def word(self, at: At) -> At:
        """The u32 at a place of each payload; one int if all are equal."""
        if len(self) == 1:  # a numpy call on one value costs ten times as much
            self.need(at + 4)
            start = int(self.base[0]) + int(at if isinstance(at, int) else at[0])
            return int.from_bytes(self.buffer[start : start + 4], "little" if self.order == "<" else "big")
        if not isinstance(at, int):
            return settle(self.items(at, np.dtype(self.order + "u4")))
        if at not in self._words:
            self._words[at] = settle(self.items(at, np.dtype(self.order + "u4")))
        return self._words[at]

    def need_zero(self, at: At) -> None:
        """Refuses messages whose byte at a place, which ends a text, isn't zero."""
        if isinstance(at, int) and at in self._ended:
            return
        self.refuse(self.items(at, np.dtype("u1")) != 0, "text doesn't end with a zero byte")
        if isinstance(at, int):
            self._ended.add(at)

    def items(self, at: At, dtype: np.dtype[Any]) -> Array:
        """(n, *shape of dtype): one value of each payload; a view of the buffer where there is a step."""
        self.need(at + dtype.itemsize)
        shape, base = dtype.shape, dtype.base
        if dtype.itemsize == 0:
            return np.zeros((len(self), *shape), base)
        if self.step is not None and isinstance(at, int):
            item, start = np.dtype([("", dtype)]), int(self.base[0]) + at
            every: Array = np.ndarray((len(self),), item, self.buffer.data, start, (self.step,))["f0"]
            return every
        window = np.ndarray(
            (max(0, len(self.buffer) - dtype.itemsize + 1),), f"V{dtype.itemsize}", self.buffer, strides=(1,)
        )
        values: Array = window[self.base + at].view(base).reshape(len(self), *shape)
        return values

    def runs(self, at: At, lengths: At) -> NDArray[np.uint8]:
        """Stretches of `lengths` bytes at a place of each payload, end to end."""
        self.need(at + lengths)
        if isinstance(lengths, int):
            equal: NDArray[np.uint8] = self.items(at, np.dtype((np.uint8, (lengths,)))).copy()
            return equal.reshape(-1)
        starts, ends = self.base + at, np.cumsum(lengths)
        total = int(ends[-1])
        if total < _COPY_BYTES * len(self):
            gathered: NDArray[np.uint8] = self.buffer[
                np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
            ]
            return gathered
        joined = np.empty(total, np.uint8)
        for start, end, length in zip(starts.tolist(), ends.tolist(), lengths.tolist(), strict=True):
            joined[end - length : end] = self.buffer[start : start + length]
        return joined

    def bytes(self, at: At, lengths: At) -> Ragged:
        """A row of bytes of each payload; long ones are views of the buffer."""
        self.need(at + lengths)
        counts = spread(lengths, len(self))
        if counts.sum() < VIEW_BYTES * len(self):
            return Ragged(self.runs(at, lengths), counts)
        starts = (self.base + at).tolist()
        views = [self.buffer[start : start + n] for start, n in zip(starts, counts.tolist(), strict=True)]
        return Ragged.from_rows(views, BYTES)


def _step(base: NDArray[np.int64]) -> int | None:
    if len(base) == 1:
        return 0
    step = int(base[1]) - int(base[0])
    return step if step >= 0 and bool((base[1:] - base[:-1] == step).all()) else None


def settle(at: NDArray[np.integer[Any]]) -> At:
    """One int for an array of equal values."""
    first = int(at[0])
    return first if len(at) == 1 or bool((at == first).all()) else at.astype(np.int64, copy=False)


def spread(at: At, n: int) -> NDArray[np.int64]:
    """(n,) of one int."""
    return at if isinstance(at, np.ndarray) else np.full(n, at, np.int64)


def cursors(raw: RawMessages, encapsulated: bool) -> Sequence[Cursor | MisfitError]:
    """All payloads, by buffer and byte order; and those whose first bytes show that they can't be read.

    They are made once: checking messages, their times and each of their columns go the same ways.

    Args:
        encapsulated: whether four bytes come before the body, which tell the byte order.
    """
    key = "cursors", encapsulated
    if key not in raw.remembered:
        raw.remembered[key] = tuple(_cursors(raw, encapsulated))
    found: Sequence[Cursor | MisfitError] = raw.remembered[key]
    return found


def _cursors(raw: RawMessages, encapsulated: bool) -> Iterator[Cursor | MisfitError]:
    for rows, buffer, start, size in _by_buffer(raw):
        if size.min() < 4 * encapsulated or start.min() < 0 or (start + size).max() > len(buffer):
            ok = (size >= 4 * encapsulated) & (start >= 0) & (start + size <= len(buffer))
            yield MisfitError(rows[~ok], "it ends before its definition does")
            rows, start, size = rows[ok], start[ok], size[ok]
        if not encapsulated:
            if len(rows):
                yield Cursor(buffer, start, size, rows, "<")
            continue
        if not len(rows):
            continue
        heads = Cursor(buffer, start, size, rows, ">")
        kinds = settle(heads.items(0, np.dtype(">u2")))
        for value in [kinds] if isinstance(kinds, int) else np.unique(kinds).tolist():
            some = heads if isinstance(kinds, int) else heads.take(np.flatnonzero(kinds == value))
            if value > 1:
                reason = f"its encapsulation is 0x{value:04x}, and only plain CDR (0x0000, 0x0001) is read"
                yield MisfitError(some.rows, reason)
            else:
                yield Cursor(buffer, some.base + 4, some.size - 4, some.rows, "><"[value])


_Group = tuple[NDArray[np.intp], NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]


def _by_buffer(raw: RawMessages) -> Iterator[_Group]:
    """Rows, buffer, and start and length of each payload, for each buffer."""
    if not len(raw):
        return
    turns = np.flatnonzero(raw.buffer[1:] != raw.buffer[:-1]) + 1
    in_order = bool((raw.buffer[turns] > raw.buffer[turns - 1]).all())
    order = np.arange(len(raw)) if in_order else np.argsort(raw.buffer, kind="stable")
    buffer = raw.buffer if in_order else raw.buffer[order]
    if not in_order:
        turns = np.flatnonzero(buffer[1:] != buffer[:-1]) + 1
    bounds = [0, *turns.tolist(), len(raw)]
    few, small = len(raw) < _JOIN_ROWS * (len(bounds) - 1), raw.length.sum() < _JOIN_BYTES * len(raw)
    if len(bounds) > 2 and few and small:
        yield _joined(raw)
        return
    for first, stop in pairwise(bounds):
        rows = order[first:stop]
        which = slice(first, stop) if in_order else rows
        yield rows, raw.buffers[buffer[first]], raw.start[which], raw.length[which]


def _joined(raw: RawMessages) -> _Group:
    """All payloads in one buffer."""
    starts = np.maximum(raw.start, 0)
    where = zip(raw.buffer.tolist(), starts.tolist(), (starts + raw.length).tolist(), strict=True)
    payloads = [memoryview(raw.buffers[buffer])[start:end] for buffer, start, end in where]
    found = np.array([len(payload) for payload in payloads], np.int64)
    # A payload that leaves its buffer was cut short here; it must not look as if it were whole.
    size = np.where((found < raw.length) | (raw.start < 0), -1, raw.length)
    return np.arange(len(raw)), np.frombuffer(b"".join(payloads), np.uint8), np.cumsum(found) - found, size
