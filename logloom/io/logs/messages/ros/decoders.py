"""Decoders of messages whose definition fixes their layout: CDR (ROS 2) and ROS 1.

Here: `CdrDecoder` and `Ros1Decoder`, over all messages of a topic at once; the compiler of layouts, from a
definition to the nodes that walk its messages.
Elsewhere: the nodes (wire), paths (logloom.io.logs.messages.fields), images, clouds and the like
(logloom.io.logs.messages.adapters), containers.
No objects are made of messages; see `cursor`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from logloom import blocks
from logloom.blocks import Values
from logloom.errors import LogReadError
from logloom.io.logs.interface import MIN_TIME, FieldSpec, TopicInfo
from logloom.io.logs.messages import adapters
from logloom.io.logs.messages.cursor import At, Cursor, LackError, MisfitError, cursors
from logloom.io.logs.messages.declared_types import TypedDecoder
from logloom.io.logs.messages.definitions import Field, Number, Struct, Text, Type
from logloom.io.logs.messages.field_times import as_nanoseconds, field_time, joined_stamps
from logloom.io.logs.messages.fields import Selection, select
from logloom.io.logs.messages.raw_messages import RawMessages
from logloom.io.logs.messages.ros.languages import parse
from logloom.io.logs.messages.ros.wire import CDR, ROS1, Characters, Fixed, Node, Record, Repeated, Wire
from logloom.io.logs.messages.values import UnfitError

_RETRIES = 8  # rounds of removing misfits from a batch, before its messages are tried one by one

_T = TypeVar("_T")


class _LayoutDecoder(TypedDecoder):
    """Decodes messages of one type; built once per topic, pure, thread-safe, pickles.

    Raises:
        UnknownEncodingError: the definition can't be read.
    """

    wire: Wire
    encapsulated: bool

    def __init__(self, info: TopicInfo):
        super().__init__(info)
        self.root = parse(info)
        self._layout = _compile_layout(self.root, self.wire)

    def header_time(self, raw: RawMessages) -> NDArray[np.int64]:
        """(N,) header stamps in ns; `MIN_TIME` for messages too short to have one."""
        times = np.full(len(raw), MIN_TIME, np.int64)
        stamp = self._stamp()
        if stamp is None:
            return times
        for rows, (found,) in self._read_times(raw, (stamp,)):
            times[rows] = found
        return times

    def field_time(self, raw: RawMessages, path: str, unit: str) -> NDArray[np.int64]:
        """(N,) times of a field in ns; `MIN_TIME` for messages without one."""
        times = np.full(len(raw), MIN_TIME, np.int64)
        for rows, found in self._read_times(raw, field_time(self.root, path, unit).selections):
            if len(found) == 2:
                times[rows] = joined_stamps(*found)
            else:
                times[rows] = as_nanoseconds(found[0], unit) if unit else found[0]
        return times

    def _read_times(
        self, raw: RawMessages, selections: Sequence[Selection]
    ) -> Iterator[tuple[NDArray[np.intp], list[NDArray[Any]]]]:
        """Read numbers or stamps of the messages that are long enough for all of them."""
        for start in cursors(raw, self.encapsulated):
            read = lambda cursor: [self._read_stamp(cursor, selection) for selection in selections]  # noqa: E731
            for cursor, found in _attempt(start, read):
                yield cursor.rows, found

    def check(self, raw: RawMessages) -> NDArray[np.bool_]:
        """(N,) whether each payload has a length that fits its definition (framing, no deep decode)."""
        fits = np.zeros(len(raw), np.bool_)
        for start in cursors(raw, self.encapsulated):
            for cursor, _ in _attempt(start, lambda cursor: self._visit(cursor, {})):
                fits[cursor.rows] = True
        return fits

    def take(self, raw: RawMessages, spec: FieldSpec) -> Values:
        """See `Messages.take`; of all messages in `raw`."""
        ctype = self.column_type(spec)
        if not len(raw):
            return blocks.empty(ctype)
        try:
            return adapters.take(spec, self.root, self.reader(raw, spec))
        except UnfitError as error:
            raise LogReadError(f"{raw.place(error.row)}: {error}") from error
        except MisfitError as error:
            row = int(error.rows.min())
            others = f" (and {len(error.rows) - 1} more)" if len(error.rows) > 1 else ""
            raise LogReadError(
                f"{raw.place(row)} doesn't fit the definition of {self.info.type}{others}: {error.reason}. "
                "Set on_error: salvage to use the messages that do"
            ) from error

    def has_elements(self, raw: RawMessages, selections: Sequence[Selection]) -> NDArray[np.bool_]:
        wants: dict[Hashable, Selection] = dict(enumerate(selections))
        found = np.ones(len(raw), np.bool_)
        for start in cursors(raw, self.encapsulated):
            cursor = start
            while not isinstance(cursor, MisfitError):
                try:
                    self._visit(cursor, wants)
                    break
                except MisfitError as misfit:
                    if isinstance(misfit, LackError):
                        found[misfit.rows] = False
                    left = ~np.isin(cursor.rows, misfit.rows)
                    if not left.any():
                        break
                    cursor = cursor.take(left)
        return found

    def read_fields(self, raw: RawMessages, root: Struct, paths: Sequence[str], width: int) -> list[Values]:
        wants: dict[Hashable, Selection] = {
            slot: select(root, path, width) for slot, path in enumerate(paths)
        }
        parts: list[tuple[Cursor, dict[Hashable, Values]]] = []
        for cursor in cursors(raw, self.encapsulated):
            if isinstance(cursor, MisfitError):
                raise MisfitError(
                    cursor.rows, cursor.reason
                )  # new cursors: a traceback would keep the buffers
            parts.append((cursor, self._visit(cursor, wants)))
        rows = np.concatenate([cursor.rows for cursor, _ in parts])
        pieces = [[found[slot] for _, found in parts] for slot in wants]
        columns = [own[0] if len(own) == 1 else blocks.concatenate(own) for own in pieces]
        if (rows[1:] > rows[:-1]).all():
            return columns
        back = np.argsort(rows, kind="stable")
        return [blocks.take(column, back) for column in columns]

    def _visit(self, cursor: Cursor, wants: Mapping[Hashable, Selection]) -> dict[Hashable, Values]:
        """Read the wanted fields of messages whose length must be that of their definition."""
        found: dict[Hashable, Values] = {}
        end = self._layout.visit(cursor, 0, wants, found)
        if not isinstance(end, int) or cursor.shortest < end or cursor.longest > end + self.wire.padding:
            left = cursor.size - end
            cursor.refuse((left < 0) | (left > self.wire.padding), "its length isn't that of its fields")
        return found

    def _read_stamp(self, cursor: Cursor, stamp: Selection) -> NDArray[Any]:
        """Read the stamps, or numbers, and nothing after them."""
        found: dict[Hashable, Values] = {}
        at: At = 0
        for names, node in self._layout.parts:
            if stamp.names[0] not in names:
                at = node.visit(cursor, at, {}, found)
            elif stamp.inner is not None and isinstance(node, Repeated):
                node.visit_first(cursor, at, {0: stamp.inner}, found)
                break
            else:
                node.visit(cursor, at, {0: stamp if isinstance(node, Fixed) else stamp.within}, found)
                break
        times = found[0]
        assert isinstance(times, np.ndarray)
        return times


class CdrDecoder(_LayoutDecoder):
    """Messages as ROS 2 writes them: plain CDR (XCDR1), of either byte order."""

    wire = CDR
    encapsulated = True


class Ros1Decoder(_LayoutDecoder):
    """Messages as ROS 1 writes them."""

    wire = ROS1
    encapsulated = False


def _attempt(start: Cursor | MisfitError, read: Callable[[Cursor], _T]) -> list[tuple[Cursor, _T]]:
    """Return what `read` returns for the messages that fit; the others are left out."""
    if isinstance(start, MisfitError):
        return []
    cursor = start
    for _ in range(_RETRIES):
        try:
            return [(cursor, read(cursor))]
        except MisfitError as misfit:
            fits = ~np.isin(cursor.rows, misfit.rows)
            if not fits.any():
                return []
            cursor = cursor.take(fits)
    results: list[tuple[Cursor, _T]] = []
    parts = cursor.by_buffer()
    if len(parts) > 1:
        return [found for part in parts for found in _attempt(part, read)]
    for row in range(len(cursor)):
        alone = cursor.take(np.array([row]))
        try:
            results.append((alone, read(alone)))
        except MisfitError:
            continue
    return results


@functools.lru_cache(maxsize=256)
def _compile_layout(root: Struct, wire: Wire) -> Record:
    """Return the layout of messages of one type; consecutive fields of fixed size are read by one dtype."""
    return _LayoutCompiler(wire).record(root)


class _LayoutCompiler:
    def __init__(self, wire: Wire):
        self.wire = wire
        self.done: dict[Struct, Node] = {}

    def node(self, kind: Type) -> Node:
        if isinstance(kind, Number):
            return self.number(kind.dtype)
        if isinstance(kind, Text):
            return Characters(kind, self.wire)
        if kind not in self.done:
            record = self.record(kind)
            (_, only), *others = record.parts
            self.done[kind] = only if not others and isinstance(only, Fixed) else record
        return self.done[kind]

    def number(self, dtype: np.dtype[Any], count: int | None = None) -> Fixed:
        """Return a number, or an array of numbers; with a dtype of any byte order and "u1" for bool."""
        align = dtype.itemsize if self.wire.aligned and count != 0 else 1
        plain = np.dtype("u1") if dtype.kind == "b" else dtype
        size = dtype.itemsize * (1 if count is None else count)

        def make(phase: int, order: str) -> tuple[int, np.dtype[Any]]:
            base = plain.newbyteorder(order)  # type: ignore[arg-type]
            return -phase % align, base if count is None else np.dtype((base, (count,)))

        return Fixed(align, [-phase % align + size for phase in range(align)], make, leads=True)

    def field(self, field: Field) -> Node:
        length = None if field.array is None else field.array.length
        if length is not None and isinstance(field.type, Number):
            return self.number(field.type.dtype, length)
        element = self.node(field.type)
        if field.array is None:
            return element
        if length is not None and isinstance(element, Fixed) and element.tiles:
            return self.tiled(element, length)
        return Repeated(element, length, field.array.bound, self.wire)

    def tiled(self, element: Fixed, length: int) -> Fixed:
        def make(phase: int, order: str) -> tuple[int, np.dtype[Any]]:
            pad, dtype = element.layout(0, order)
            return -phase % element.align + pad, np.dtype((dtype, (length,)))

        size = element.sizes[0] * length
        pads = [-phase % element.align if length else 0 for phase in range(element.align)]
        return Fixed(element.align, [pad + size for pad in pads], make, leads=True)

    def record(self, struct: Struct) -> Record:
        parts: list[tuple[frozenset[str], Node]] = []
        run: list[tuple[str, Fixed]] = []
        for field in struct.fields:
            node = self.field(field)
            if isinstance(node, Fixed):
                run.append((field.name, node))
                continue
            if run:
                parts.append(self.run(run))
                run = []
            parts.append((frozenset([field.name]), node))
        if not struct.fields:
            # A name that no field can have, so nothing finds it.
            run = [("", self.number(np.dtype("u1"), self.wire.empty_bytes))]
        return Record(struct, [*parts, self.run(run)] if run else parts)

    def run(self, members: list[tuple[str, Fixed]]) -> tuple[frozenset[str], Fixed]:
        """Consecutive fields of fixed size."""
        align = max(node.align for _, node in members)

        def make(phase: int, order: str) -> tuple[int, np.dtype[Any]]:
            formats, offsets, at = [], [], phase
            for _, node in members:
                pad, dtype = node.layout(at, order)
                formats.append(dtype)
                offsets.append(at - phase + pad)
                at = int(node.end(at))
            names = [name or "_" for name, _ in members]
            size = at - phase
            return 0, np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})

        sizes = []
        for phase in range(align):
            at: Any = phase
            for _, node in members:
                at = node.end(at)
            sizes.append(at - phase)
        first = members[0][1]
        leads = first.leads and first.align == align
        return frozenset(name for name, _ in members), Fixed(align, sizes, make, leads)
