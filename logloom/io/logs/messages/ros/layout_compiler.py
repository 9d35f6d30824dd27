"""The layout compiler: from a definition to the nodes that walk its messages.

Here: sizes, alignment and numpy dtypes of fixed size; consecutive fields of fixed size become one run, read
by one dtype.
Elsewhere: the nodes (wire), definitions (logloom.io.logs.messages.definitions).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from logloom.io.logs.messages.definitions import Field, Number, Struct, Text, Type
from logloom.io.logs.messages.ros.wire import Characters, Fixed, Node, Record, Repeated, Wire


@functools.lru_cache(maxsize=256)
def compile_layout(root: Struct, wire: Wire) -> Record:
    """Return the layout of messages of one type."""
    return _Compiler(wire).record(root)


class _Compiler:
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
