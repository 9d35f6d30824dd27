"""Layouts of messages in the encodings CDR and ROS 1, and reading values by them.

Here: `Wire`, the differences between the encodings; `Node`, a struct, an array, a text or a run of fields of
fixed size. A layout is a tree of nodes; a node is read in all payloads of a cursor at once.
Elsewhere: the decoders, and making nodes from a definition (decoders), reading bytes
(logloom.io.logs.messages.cursor), selections (logloom.io.logs.messages.fields), converting values
(logloom.io.logs.messages.values).

CDR aligns numbers to their size, counted from the start of the body, so the place of a field depends on the
*phase* at which it starts, its place modulo 8; text and arrays shift everything after them. ROS 1 doesn't
align. Structs have no alignment of their own and no padding after them: a node's size includes the padding
before each number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Lists, Ragged, Values, fill_missing
from logloom.io.logs.messages.cursor import Array, At, Cursor, LackError, settle, spread
from logloom.io.logs.messages.definitions import Struct, Text
from logloom.io.logs.messages.fields import Selection, flat, value_type, whole
from logloom.io.logs.messages.ros.elements import element_places
from logloom.io.logs.messages.values import (
    checked_text,
    fill,
    fixed_text,
    flattened,
    member,
    picked,
    selected,
    settled,
    short_text,
    text_of_wide,
)
from logloom.values import dataclass


@dataclass(frozen=True)
class Wire:
    """Differences between the encodings.

    Attributes:
        aligned: numbers are at multiples of their size.
        terminated: text ends with a zero byte that its length counts.
        empty_bytes: size of a message without fields.
        padding: how many bytes may follow the last field.
    """

    aligned: bool
    terminated: bool
    empty_bytes: int
    padding: int


CDR = Wire(aligned=True, terminated=True, empty_bytes=1, padding=3)
ROS1 = Wire(aligned=False, terminated=False, empty_bytes=0, padding=0)

Wants = Mapping[Hashable, Selection]  # by slot: what to read, relative to a node
Found = dict[Hashable, Values]  # by slot: (n, *shape), or n ragged rows; text as UTF-8 rows


Make = Callable[[int, str], tuple[int, np.dtype[Any]]]


class Node(ABC):
    """A value, an array or a struct in a payload.

    Attributes:
        least: its minimum size in bytes.
        is_bounded: whether visiting it takes little memory even at a wrong place.
    """

    least: int
    is_bounded: bool = True

    @abstractmethod
    def visit(self, cursor: Cursor, at: At, wants: Wants, found: Found) -> At:
        """Read what is wanted of the node at `at`, and return the place after it."""


class Fixed(Node):
    """A node of the same size in every message: a number, an array of numbers, a run of such fields."""

    def __init__(self, align: int, sizes: Sequence[int], make: Make, leads: bool):
        """
        Args:
            align: of its most aligned number.
            sizes: bytes it takes from each phase below `align`.
            make: maps (phase, byte order) to the padding before it and its dtype.
            leads: whether a most aligned number comes first, so that only the padding before it depends on
                the phase. If its size is a multiple of `align` too, it *tiles*: elements of an array are at
                equal distances, regardless of the phase of the first.
        """
        self.align = align
        self.sizes = tuple(sizes)
        self.table = np.array(sizes, np.int64)
        self.least = min(sizes)
        self.leads = leads
        self.tiles = leads and sizes[0] % align == 0
        self._make = make
        self._layouts: dict[tuple[int, str], tuple[int, np.dtype[Any]]] = {}

    @property
    def stride(self) -> int:
        """From the end of one element of an array to the end of the next.

        The most aligned number of an element makes its end have the same phase, wherever it starts.
        """
        return self.sizes[self.sizes[0] % self.align]

    def layout(self, phase: int, order: str) -> tuple[int, np.dtype[Any]]:
        key = phase % self.align, order
        if key not in self._layouts:
            self._layouts[key] = self._make(*key)
        return self._layouts[key]

    def end(self, at: At) -> At:
        if isinstance(at, int):
            return at + self.sizes[at % self.align]
        return at + self.table[at % self.align]

    def visit(self, cursor: Cursor, at: At, wants: Wants, found: Found) -> At:
        if self.leads:
            at = _aligned(at, self.align)
        end = self.end(at)
        cursor.need(end)
        if not wants:
            return end
        if isinstance(at, int) or self.leads:
            phase = 0 if self.leads else int(at) % self.align
            found.update(self._read(cursor, at, phase, wants))
            return end
        phases = at % self.align
        for phase in np.unique(phases).tolist():
            some = phases == phase
            for slot, values in self._read(cursor.take(some), at[some], phase, wants).items():
                if slot not in found:
                    found[slot] = np.empty((len(cursor), *values.shape[1:]), values.dtype)
                found[slot][some] = values  # type: ignore[index]
        return end

    def _read(self, cursor: Cursor, at: At, phase: int, wants: Wants) -> dict[Hashable, Array]:
        """Read what is wanted if all places have the same phase."""
        before, whole_dtype = self.layout(phase, cursor.order)
        places = {slot: _follow(whole_dtype, selection, cursor.order) for slot, selection in wants.items()}
        start = min(offset for offset, _ in places.values())
        span = max(offset + dtype.itemsize for offset, dtype in places.values()) - start
        if span > 2 * sum(dtype.itemsize for _, dtype in places.values()):
            sources = {slot: cursor.items(at + before + o, dtype) for slot, (o, dtype) in places.items()}
            return {slot: settled(sources[slot], selection) for slot, selection in wants.items()}
        # Fields that are close together are fetched together, as memory access dominates.
        names = [f"f{i}" for i in range(len(places))]
        fields = {
            "names": names,
            "formats": [dtype for _, dtype in places.values()],
            "offsets": [offset - start for offset, _ in places.values()],
            "itemsize": span,
        }
        source = cursor.items(at + before + start, np.dtype(fields))  # type: ignore[call-overload]
        return {slot: settled(source[n], s) for n, (slot, s) in zip(names, wants.items(), strict=True)}


class Characters(Node):
    """A string."""

    least = 4

    def __init__(self, text: Text, wire: Wire):
        self.text = text
        self.wire = wire

    def visit(self, cursor: Cursor, at: At, wants: Wants, found: Found) -> At:
        start = _aligned(at, 4 if self.wire.aligned else 1)
        length = cursor.word(start)
        start, unit = start + 4, 4 if self.text.wide else 1
        end = start + length * unit
        cursor.need(end)
        if self.wire.terminated and not self.text.wide:
            length = _without_zero(cursor, start, length)
        if self.text.bound is not None:
            cursor.refuse(length > self.text.bound, f"text is longer than its bound of {self.text.bound}")
        for slot, selection in wants.items():
            if selection.is_inside and not self.text.wide:
                short = short_text(cursor, start, length, selection.width)
                if short is not None:
                    found[slot] = short
                    continue
            rows = cursor.bytes(start, length * unit)
            rows = text_of_wide(cursor, rows) if self.text.wide else checked_text(cursor, rows)
            found[slot] = fixed_text(cursor, rows, selection.width) if selection.is_inside else rows
        return settle(end) if isinstance(end, np.ndarray) else end


class Repeated(Node):
    """An array: of a fixed number of elements, or of a counted one up to `bound`."""

    def __init__(self, element: Node, length: int | None, bound: int | None, wire: Wire):
        self.element = element
        self.length = length
        self.bound = bound
        self.wire = wire
        self.least = 4 if length is None else length * element.least
        self.is_bounded = isinstance(element, Fixed)

    def counted(self, cursor: Cursor, at: At) -> tuple[At, At]:
        """Return the number of elements, and the place after the count."""
        if self.length is not None:
            return self.length, at
        at = _aligned(at, 4 if self.wire.aligned else 1)
        count = cursor.word(at)
        if self.bound is not None:
            cursor.refuse(count > self.bound, f"an array is longer than its bound of {self.bound}")
        # Before anything is allocated or walked.
        cursor.need(at + 4 + count * self.element.least)
        return count, at + 4

    def visit_first(self, cursor: Cursor, at: At, wants: Wants, found: Found) -> None:
        """Read the first element of each message; `wants` are relative to it."""
        count, at = self.counted(cursor, at)
        cursor.refuse(count < 1, "an array has no elements")
        self.element.visit(cursor, at, wants, found)

    def visit(self, cursor: Cursor, at: At, wants: Wants, found: Found) -> At:
        count, at = self.counted(cursor, at)
        if isinstance(self.element, Fixed):
            return self._visit_fixed(self.element, cursor, at, count, wants, found)
        counts = spread(count, len(cursor))
        starts, ends = element_places(self.element, cursor, at, counts)
        inner = {slot: s.inner for slot, s in wants.items() if s.inner is not None}
        for slot in [slot for slot in inner if isinstance(wants[slot].pick, int)]:
            found[slot] = self._one(wants[slot], inner.pop(slot), cursor, starts, counts)
        values: Found = {}
        if inner and len(starts):
            every = cursor.take(np.repeat(np.arange(len(cursor)), counts))
            self.element.visit(every, settle(starts), inner, values)
        for slot, selection in inner.items():
            if selection.is_list:
                found[slot] = self._lists(wants[slot], values.get(slot), counts, cursor)
            else:
                found[slot] = self._rows(wants[slot], _fixed(values.get(slot), selection), counts, cursor)
        return settle(ends)

    def _visit_fixed(
        self, element: Fixed, cursor: Cursor, at: At, count: At, wants: Wants, found: Found
    ) -> At:
        first = element.end(at)  # where the first element ends, if there is one
        if isinstance(count, int):
            end = first + (count - 1) * element.stride if count else at
        else:
            end = np.where(count > 0, first + (count - 1) * element.stride, at)
        cursor.need(end)
        for slot, selection in wants.items():
            if selection.is_bytes:
                found[slot] = cursor.bytes(at, count)
            else:
                values = _elements(element, cursor, at, count, selection.inner)
                found[slot] = self._rows(selection, values, spread(count, len(cursor)), cursor)
        return settle(end) if isinstance(end, np.ndarray) else end

    def _one(
        self,
        selection: Selection,
        inner: Selection,
        cursor: Cursor,
        starts: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> Values:
        """Read one element of each message; values of it may be lists."""
        has = _having(selection, cursor, counts)
        values: Found = {}
        if has.any():
            some = cursor if has.all() else cursor.take(has)
            self.element.visit(some, settle(starts[picked(selection, counts)[has]]), {0: inner}, values)
        if not inner.is_list:
            return _among(_fixed(values.get(0), inner), has)
        found = _lists_of(values.get(0), inner)
        if has.all():
            return found
        lengths = np.zeros(len(has), np.int64)
        lengths[has] = found.lengths
        return Ragged(found.values, lengths)

    def _rows(self, selection: Selection, values: Array, counts: NDArray[np.int64], cursor: Cursor) -> Values:
        """Return the elements of each message as a row, or those that are picked."""
        if self.length is None and selection.pick is None:
            return Ragged(values, counts)
        if self.length is None:
            has = _having(selection, cursor, counts)
            return _among(values[picked(selection, counts)[has]], has)
        rows = values.reshape(len(counts), self.length, *values.shape[1:])
        return rows if selection.pick is None else rows[:, selection.pick]

    def _lists(
        self, selection: Selection, values: Values | None, counts: NDArray[np.int64], cursor: Cursor
    ) -> Lists:
        """Return the lists of each message's elements, or of those that are picked."""
        assert selection.inner is not None
        found = _lists_of(values, selection.inner)
        if selection.pick is not None:
            _having(selection, cursor, counts)
            places = picked(selection, counts)
            found, counts = found.take(places.reshape(-1)), np.full(len(counts), places.shape[1])
        return Lists(found.values, counts, found.lengths)


class Record(Node):
    """A struct in which something has a variable length."""

    def __init__(self, struct: Struct, parts: Sequence[tuple[frozenset[str], Node]]):
        """
        Args:
            parts: its fields in order; consecutive ones of fixed size are one `Fixed`, in which they are
                named; others are separate.
        """
        self.struct = struct
        self.parts = parts
        self.least = sum(node.least for _, node in parts)
        self.is_bounded = all(node.is_bounded for _, node in parts)
        self._wholes: dict[Hashable, Mapping[tuple[str, ...], Selection]] = {}

    def visit(self, cursor: Cursor, at: At, wants: Wants, found: Found) -> At:
        inner = dict(wants)
        for slot in [slot for slot, selection in wants.items() if not selection.names]:
            inner |= {(slot, path): field for path, field in self._leaves(inner.pop(slot)).items()}
        read: Found = {}
        for names, node in self.parts:
            inside = {slot: s for slot, s in inner.items() if s.names[0] in names}
            if not isinstance(node, Fixed):
                inside = {slot: s.within for slot, s in inside.items()}
            at = node.visit(cursor, at, inside, read)
        for slot, selection in wants.items():
            found[slot] = read[slot] if selection.names else self._structured(cursor, slot, selection, read)
        return at

    def _leaves(self, selection: Selection) -> Mapping[tuple[str, ...], Selection]:
        """Return the fields of a structured value by path; those of a `Record` in it one by one."""
        key = selection.packed, selection.width
        if key not in self._wholes:
            leaves: dict[tuple[str, ...], Selection] = {}
            for field in self.struct.fields:
                if field.name not in (selection.packed.names or ()):
                    continue
                mine = whole(field.name, field, selection.width)
                node = next(node for names, node in self.parts if field.name in names)
                inside = node._leaves(mine.within) if isinstance(node, Record) else {(): mine}
                for path, leaf in inside.items():
                    names = leaf.names if leaf is mine else (field.name, *leaf.names)
                    leaves[field.name, *path] = replace(leaf, names=names)
            self._wholes[key] = leaves
        return self._wholes[key]

    def _structured(self, cursor: Cursor, slot: Hashable, selection: Selection, read: Found) -> Array:
        # Zeroed, so that only the characters of short text must be written.
        values = np.zeros(len(cursor), selection.packed)
        for path in self._leaves(selection):
            field = read.pop((slot, path))
            assert not isinstance(field, Ragged)  # lengths that differ are refused by `packed`
            fill(member(values, path), field)
        return flattened(values) if selection.flatten else values


def _having(selection: Selection, cursor: Cursor, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which arrays have what is picked; refuse messages that lack it, unless it is to be filled."""
    has = counts >= selection.least
    if not selection.fills and not has.all():
        raise LackError(cursor.rows[~has], f"an array has fewer than {selection.least} elements")
    return has


def _among(values: Array, has: NDArray[np.bool_]) -> Array:
    """Place the elements of some arrays among those of others, which lack them."""
    if has.all():
        return values
    rows = np.zeros((len(has), *values.shape[1:]), values.dtype)
    fill_missing(rows)
    rows[has] = values
    return rows


def _lists_of(values: Values | None, selection: Selection) -> Ragged:
    """Return lists of all elements; None if there are none."""
    dtype, shape = value_type(selection)
    if isinstance(values, Ragged):
        # Sequences of bytes are read without a sign, which ROS 1's have.
        return Ragged(values.values.view(dtype), values.lengths) if selection.is_bytes else values
    return Ragged(np.empty((0, *(n or 0 for n in shape[1:])), dtype), np.empty(0, np.int64))


def _aligned(at: At, align: int) -> At:
    return (at + align - 1) & -align


def _without_zero(cursor: Cursor, start: At, length: At) -> At:
    """Lengths of text without the zero byte that ends it; empty text may lack it."""
    if isinstance(length, int):
        if length == 0:
            return 0
        cursor.need_zero(start + length - 1)
        return length - 1
    behind = start + length - 1
    if length.all():
        cursor.need_zero(behind)
        return length - 1
    some = np.flatnonzero(length)
    if len(some):
        cursor.take(some).need_zero(spread(behind, len(cursor))[some])
    return np.maximum(length - 1, 0)


def _follow(dtype: np.dtype[Any], selection: Selection, order: str) -> tuple[int, np.dtype[Any]]:
    """Return the place of a selected field in a structured dtype, and its dtype."""
    offset = 0
    for name in selection.names:
        assert dtype.fields is not None
        dtype, more = dtype.fields[name][:2]
        offset += more
    # A sub-message that becomes a vector, and is one in messages, is fetched as one.
    if selection.flatten and selection.inner is None and dtype.newbyteorder("<") == selection.packed:
        numbers = flat(selection.packed) if dtype.names else None
        if numbers is not None:
            dtype = np.dtype((numbers[0].newbyteorder(order), numbers[1]))  # type: ignore[arg-type]
    return offset, dtype


def _elements(element: Fixed, cursor: Cursor, at: At, count: At, inner: Selection | None) -> Array:
    """Read a selection of each element of an array, all messages concatenated: (total, *shape)."""
    assert inner is not None
    _, dtype = element.layout(element.sizes[0], cursor.order)
    counts = spread(count, len(cursor))
    first = element.end(at)
    if element.tiles:
        start = first - element.stride
        if not isinstance(count, int):
            start = np.where(count > 0, start, at)
        elif count == 0:
            start = at
        return selected(_viewed(cursor.runs(start, count * element.stride), dtype), inner)
    # The first elements start in another phase, so they may have other padding.
    more = np.maximum(counts - 1, 0)
    start = np.where(counts > 0, first, at)
    others = selected(_viewed(cursor.runs(start, more * element.stride), dtype), inner)
    values = np.empty((int(counts.sum()), *others.shape[1:]), others.dtype)
    some = np.flatnonzero(counts)
    is_first = np.zeros(len(values), bool)
    is_first[(np.cumsum(counts) - counts)[some]] = True
    values[~is_first] = others
    if len(some):
        found: Found = {}
        element.visit(cursor.take(some), spread(at, len(cursor))[some], {0: inner}, found)
        values[is_first] = found[0]
    return values


def _viewed(data: NDArray[np.uint8], dtype: np.dtype[Any]) -> Array:
    return data.view(dtype) if len(data) else np.empty(0, dtype)


def _fixed(values: Values | None, selection: Selection) -> Array:
    """Return elements of all messages, with text as wide as in columns; None if there are none."""
    assert not isinstance(values, Ragged)
    dtype, shape = value_type(selection)
    if values is not None and values.dtype.kind != "S":
        return values
    fixed = np.zeros((0 if values is None else len(values), *(n or 0 for n in shape)), dtype)
    if values is not None:
        fill(fixed, values)
    return fixed
