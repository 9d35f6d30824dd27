"""Conversion of stored numbers and text to values of columns.

Here: pure functions over numpy arrays: byte order, bools, times, packing, flattening, text; `UnfitError`,
which has the number of a message, as its place is unknown here.
Elsewhere: their places in messages (logloom.io.logs.messages.ros.wire), selections (fields).
A bool is true for any byte but 0. Bits of NaNs pass untouched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from logloom import blocks
from logloom.blocks import Ragged, Values
from logloom.io.logs.messages.cursor import Array, At, Cursor
from logloom.io.logs.messages.definitions import Number, Struct, Type
from logloom.io.logs.messages.fields import Selection, flat

SECOND = 1_000_000_000
_SHORT = 64  # bytes of text that are fetched in one piece
_ENDS = np.where(np.arange(_SHORT) < np.arange(_SHORT + 1)[:, None], 0xFF, 0).astype(np.uint8).view("u8")


class UnfitError(Exception):
    """A message has content that isn't a value of the column.

    Attributes:
        row: number of the message among the arguments.
    """

    def __init__(self, row: int, reason: str):
        super().__init__(reason)
        self.row = row


def selected(source: Array, selection: Selection) -> Array:
    """Select from structs of fixed layout: `settled` of the field that the names lead to."""
    for name in selection.names:
        source = source[name]
    return settled(source, selection)


def settled(source: Array, selection: Selection) -> Array:
    """Select from the field at the end of a selection's names.

    Args:
        source: (n, ...) as in messages: of any byte order, padded, "u1" for bools, times as structs;
            or already a vector if the selection flattens a sub-message.

    Returns:
        (n, ...) little-endian and packed.
    """
    if selection.inner is not None:
        return selected(source if selection.pick is None else source[..., selection.pick], selection.inner)
    if selection.packed.names and not source.dtype.names:
        return source.astype(source.dtype.newbyteorder("<"), copy=False)
    values = repacked(source, selection.type, selection.packed)
    return flattened(values) if selection.flatten else values


def picked(selection: Selection, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of the picked elements of lists that are joined.

    Args:
        counts: (n,) elements of each list, enough for what is picked.

    Returns:
        (n,) for an index, (n, k) for a slice.
    """
    before = np.cumsum(counts) - counts
    if isinstance(selection.pick, slice):
        return before[:, None] + np.arange(selection.pick.start, selection.pick.stop)
    return before + (selection.pick or 0)


def repacked(source: Array, kind: Type, dtype: np.dtype[Any]) -> Array:
    if source.dtype == dtype:
        return source
    if isinstance(kind, Number):
        return source != 0 if kind.dtype.kind == "b" else source.astype(dtype)
    assert isinstance(kind, Struct)
    if kind.is_time:
        seconds, nanoseconds = source.dtype.names or ()
        times: Array = source[seconds].astype(np.int64) * SECOND + source[nanoseconds]
        return times
    values = np.empty(source.shape, dtype)
    for field in kind.fields:
        if field.name in (dtype.names or ()):
            values[field.name] = repacked(source[field.name], field.type, dtype[field.name].base)
    return values


def flattened(values: Array) -> Array:
    """Convert structured values of one number type to vectors (..., k); return others unchanged."""
    numbers = flat(values.dtype) if values.dtype.names else None
    if numbers is None:
        return values
    dtype, shape = numbers
    return np.ascontiguousarray(values).view(dtype).reshape(*values.shape, *shape)


def side_by_side(parts: Sequence[Values]) -> Values:
    """Concatenate columns of one number type along the last axis; return a single column unchanged."""
    first = parts[0]
    if isinstance(first, Ragged):
        if len(parts) == 1:
            return first
        columns = [p.values if p.tail else p.values[:, None] for p in parts if isinstance(p, Ragged)]
        return Ragged(np.concatenate(columns, axis=1), first.shapes)
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) > 1:
        arrays = [_beside(arrays)]
    # A view of part of a fixed array must not keep all of it in memory.
    return np.ascontiguousarray(arrays[0])


def _beside(parts: Sequence[Array]) -> Array:
    """Concatenate rows; those that are adjacent in memory already are not copied."""
    parts = [part if part.ndim > 1 else part[:, None] for part in parts]
    first, width = parts[0], sum(part.shape[1] for part in parts)
    if first.strides[0] == width * first.itemsize and all(map(_adjoin, parts, parts[1:])):
        return as_strided(first, (len(first), width), (first.strides[0], first.itemsize))
    return np.concatenate(parts, axis=1)


def _adjoin(left: Array, right: Array) -> bool:
    """Return whether each row of `right` starts at the end of that of `left`."""
    if left.strides[0] != right.strides[0] or left.dtype != right.dtype:
        return False
    if not (_is_packed(left) and _is_packed(right)):
        return False
    stop: int = _address(left) + left.shape[1] * left.itemsize
    return stop == _address(right)


def _is_packed(rows: Array) -> bool:
    """Return whether the numbers of a row are contiguous; a single one's stride is arbitrary."""
    return rows.shape[1] == 1 or rows.strides[1] == rows.itemsize


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def checked_text(cursor: Cursor, rows: Ragged) -> Ragged:
    """Check rows of UTF-8, one for each payload.

    Raises:
        MisfitError: a row is not UTF-8.
    """
    if rows.is_joined and not (rows.values & 0x80).any():
        return rows
    for row, data in enumerate(rows):
        try:
            str(data.data, "utf-8")
        except UnicodeDecodeError:
            cursor.take(np.array([row])).refuse(True, f"text isn't UTF-8: {data.tobytes()[:60]!r}")
    return rows


def text_of_wide(cursor: Cursor, rows: Ragged) -> Ragged:
    """Convert text of 32 bits per character to UTF-8, joining surrogate pairs, which some writers leave.

    Raises:
        MisfitError: a row is not text.
    """
    encoding = "utf-32-le" if cursor.order == "<" else "utf-32-be"
    texts = []
    for row, data in enumerate(rows):
        try:
            wide = str(np.ascontiguousarray(data).data, encoding, "surrogatepass")
            texts.append(wide.encode("utf-16-le", "surrogatepass").decode("utf-16-le").encode())
        except UnicodeError:
            cursor.take(np.array([row])).refuse(True, f"text isn't UTF-32: {data.tobytes()[:60]!r}")
    return Ragged.from_bytes(texts)


def short_text(cursor: Cursor, start: At, length: At, width: int) -> Array | None:
    """(n,) text of each payload as `S`, padded with zeros; None unless it is short, ASCII and one array.

    Args:
        start, length: its place in the payloads, which have that many bytes.
        width: characters that may be kept.
    """
    longest = length if isinstance(length, int) else int(length.max())
    if longest > min(width, _SHORT):
        return None
    if longest == 0:
        return np.zeros(len(cursor), "S1")
    if isinstance(length, int):
        text = cursor.items(start, np.dtype(f"V{length}"))
        characters = np.ascontiguousarray(text).view(np.uint8)
    else:
        num_words = -(-longest // 8)
        windows = cursor.windows(start, 8 * num_words)
        if windows is None:
            return None
        # Bytes after a text in its window aren't part of it.
        characters = (windows.view("u8").reshape(-1, num_words) & _ENDS[length, :num_words]).view(np.uint8)
        longest = 8 * num_words
    if int(np.bitwise_or.reduce(characters, axis=None)) & 0x80:
        return None
    return characters.reshape(-1).view(f"S{longest}")


def fill(target: Array, values: Array) -> None:
    """Write values into zeroed memory of the same shape, text of type `S` as `U`.

    Args:
        target: any strides; of text as wide as the longest.
    """
    if values.dtype.kind != "S":
        target[...] = values
        return
    width = min(values.itemsize, target.itemsize // 4)
    narrow = values.view(np.dtype((np.uint8, (values.itemsize,))))[..., :width]
    target.view(np.dtype(("<u4", (target.itemsize // 4,))))[..., :width] = narrow


def member(values: Array, path: Sequence[str]) -> Array:
    """Return a field of structured values, sub-message by sub-message."""
    for name in path:
        values = values[name]
    return values


def fixed_text(cursor: Cursor, values: Values, width: int) -> Array:
    """Convert text of each payload to `<U{width}`; return other values unchanged.

    Raises:
        MisfitError: a text is longer.
    """
    if not isinstance(values, Ragged):
        return values
    long = blocks.text_lengths(values) > width
    if long.any():
        text = values[int(np.argmax(long))].tobytes().decode("utf-8")
        what = f"text {text[:80]!r} has {len(text)} characters, the column keeps {width}; raise `strings`"
        cursor.take(long).refuse(True, what)
    return blocks.fixed_text(values, width)
