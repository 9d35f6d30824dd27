"""Base of decoders whose library makes an object of each message.

Here: `ObjectDecoder`, which converts values of such objects to columns. Objects are cached for several
columns, up to a limit.
Elsewhere: the libraries and their definitions (protobuf, json), paths (fields), adapters.
Column types and errors are the same as for encodings of fixed layout.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from logloom import blocks
from logloom.blocks import Lists, Ragged, Values
from logloom.errors import LogReadError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec
from logloom.io.logs.messages import adapters
from logloom.io.logs.messages.declared_types import TypedDecoder
from logloom.io.logs.messages.definitions import Array, Number, Struct, Text, Type
from logloom.io.logs.messages.field_times import NANOSECONDS, SECONDS, exact_nanoseconds
from logloom.io.logs.messages.fields import Selection, flat, select, value_type
from logloom.io.logs.messages.raw_messages import RawMessages
from logloom.io.logs.messages.values import SECOND, UnfitError, flattened

_T = TypeVar("_T")


class OtherValueError(ValueError):
    """A value of a message has another type than the one that is read.

    Attributes:
        value: the value.
        why: such as "is no text".
    """

    def __init__(self, value: Any, why: str):
        super().__init__(f"{value!r:.60} {why}")
        self.value = value
        self.why = why


class ObjectDecoder(TypedDecoder):
    """Decodes messages of one type, one by one; built once per topic, thread-safe, pickles.

    An encoding implements reading a payload, a field, elements, numbers and bytes. Each of these raises a
    ValueError if a message doesn't fit its definition.
    """

    stamps = (*TypedDecoder.stamps, "transforms[].timestamp")

    def parse(self, payload: bytes) -> Any:
        """Parse a message to an object."""
        raise NotImplementedError

    def field(self, message: Any, name: str) -> Any:
        """Return a field's value."""
        raise NotImplementedError

    def inside(self, message: Any, name: str, may_lack: bool) -> Any:
        """Return a field's value within what a column takes whole; NaN or None for a float that isn't set."""
        raise NotImplementedError

    def elements(self, value: Any) -> Sequence[Any]:
        """Return the elements of an array."""
        raise NotImplementedError

    def numbers(self, values: Sequence[Any], kind: Number) -> Sequence[Any]:
        """Return what numpy converts to numbers of this kind without changing a value."""
        raise NotImplementedError

    def octets(self, value: Any) -> bytes:
        """Return the bytes of a sequence of bytes."""
        raise NotImplementedError

    def holds(self, message: Any, names: Sequence[str]) -> bool:
        """Return whether a message has a value at these names, or one that differs from its definition."""
        raise NotImplementedError

    def header_time(self, raw: RawMessages) -> NDArray[np.int64]:
        """(N,) header stamps in ns; `MIN_TIME` for messages without one."""
        stamp = self._stamp()
        if stamp is None:
            return np.full(len(raw), MIN_TIME, np.int64)

        def time_of(message: Any) -> int:
            found = self._picked(message, stamp)
            if stamp.inner is not None:  # of a list's elements
                return found[0] if found else MIN_TIME
            return found  # type: ignore[no-any-return]

        times = [self._attempt(raw, row, time_of, MIN_TIME) for row in range(len(raw))]
        return np.array(times, np.int64)

    def field_time(self, raw: RawMessages, path: str, unit: str) -> NDArray[np.int64]:
        """(N,) times of a field in ns; `MIN_TIME` for messages without one."""
        names = path.split(".")

        def time_of(message: Any) -> int:
            value = message
            for name in names:
                value = self.field(value, name)
            return exact_nanoseconds(value, unit) if unit else self._stamp_time(value)

        return np.array([self._attempt(raw, row, time_of, MIN_TIME) for row in range(len(raw))], np.int64)

    def _stamp_time(self, value: Any) -> int:
        """Return the time of a stamp of seconds and nanoseconds, of any usual names."""
        parts: list[Any] = []
        for names in (SECONDS, NANOSECONDS):
            for name in names:
                with contextlib.suppress(ValueError, AttributeError):
                    parts.append(self.field(value, name))
                    break
        if len(parts) < 2 or not all(type(part) is int for part in parts):
            raise ValueError(f"{value!r:.40} has no whole seconds and nanoseconds")
        return exact_nanoseconds(parts[0] * SECOND + parts[1], "ns")

    def check(self, raw: RawMessages) -> NDArray[np.bool_]:
        """(N,) whether each payload is a message of the encoding."""
        fits = [self._attempt(raw, row, lambda message: True, False) for row in range(len(raw))]
        return np.array(fits, np.bool_)

    def take(self, raw: RawMessages, spec: FieldSpec) -> Values:
        """See `Messages.take`; of all messages in `raw`."""
        ctype = self.column_type(spec)
        if not len(raw):
            return blocks.empty(ctype)
        try:
            return adapters.take(spec, self.root_for(spec), self.reader(raw, spec))
        except UnfitError as error:
            raise LogReadError(f"{raw.place(error.row)}: {error}") from error

    def has_elements(self, raw: RawMessages, selections: Sequence[Selection]) -> NDArray[np.bool_]:
        def has_all(message: Any) -> bool:
            return all(self._has(message, selection) for selection in selections)

        return np.array([self._attempt(raw, row, has_all, True) for row in range(len(raw))], np.bool_)

    def _has(self, message: Any, selection: Selection) -> bool:
        """Return whether a message has the selected field, and the elements of it."""
        if not self.holds(message, selection.names):
            return False
        if not selection.may_lack or selection.array is None:
            return True
        for name in selection.names:
            message = self.field(message, name)
        items = self._items(message, selection.type, selection.array)
        if len(items) < selection.least:
            return False
        inner, pick = selection.inner, selection.pick
        return not isinstance(pick, int) or inner is None or self._has(items[pick], inner)

    def objects(self, raw: RawMessages) -> Iterator[Any]:
        """Yield the objects of messages, without those that can't be parsed."""
        for row in range(len(raw)):
            with contextlib.suppress(UnfitError):
                yield self._open(raw, row)

    def _attempt(self, raw: RawMessages, row: int, read: Callable[[Any], _T], otherwise: _T) -> _T:
        try:
            return read(self._open(raw, row))
        except (UnfitError, ValueError):
            return otherwise

    def _open(self, raw: RawMessages, row: int) -> Any:
        position = int(raw.position[row])
        known = raw.parsed.get(position)
        if known is not None:
            return known
        start = int(raw.start[row])
        payload = raw.buffers[raw.buffer[row]][start : start + int(raw.length[row])]
        try:
            message = self.parse(payload.tobytes())
        except (ValueError, RecursionError) as error:
            raise UnfitError(row, f"it is no {self.info.encoding} message: {error}") from error
        raw.parsed.put(position, message, len(payload))
        return message

    def misfit(self, path: str, error: ValueError) -> str:
        """Describe a value that isn't of the type that a column reads."""
        return f"field {path!r} differs from its definition: {error}"

    def read_fields(self, raw: RawMessages, root: Struct, paths: Sequence[str], width: int) -> list[Values]:
        selections = [select(root, path, width) for path in paths]
        columns: list[list[Any]] = [[] for _ in selections]
        for row in range(len(raw)):
            message = self._open(raw, row)
            for column, selection, path in zip(columns, selections, paths, strict=True):
                try:
                    column.append(self._value(message, selection))
                except ValueError as error:
                    raise UnfitError(row, self.misfit(path, error)) from error
        return [_laid_out(column, selection) for column, selection in zip(columns, selections, strict=True)]

    def _value(self, message: Any, selection: Selection) -> Any:
        """Read a selection of a message: bytes for bytes and text, else see `_picked`."""
        if not (selection.is_bytes or _is_text(selection)):
            return self._picked(message, selection)
        for name in selection.names:
            message = self.field(message, name)
        return self.octets(message) if selection.is_bytes else _text(message).encode("utf-8")

    def _picked(self, value: Any, selection: Selection) -> Any:
        """Read a number, a text, a tuple for a sub-message, or a list for an array."""
        for name in selection.names:
            is_last = name is selection.names[-1]
            value = self.inside(value, name, is_last and selection.array is None and is_float(selection.type))
        if selection.array is None or selection.inner is None:
            return self._plain([value], selection.type, selection.packed)[0]
        items = self._items(value, selection.type, selection.array)
        pick, inner = selection.pick, selection.inner
        if len(items) < selection.least:
            if selection.fills:
                return _missing(selection)
            raise ValueError(f"it has {len(items)} elements, fewer than {selection.least}")
        if isinstance(pick, int):
            return self._picked(items[pick], inner)
        items = items if pick is None else items[pick]
        if inner.names or inner.array is not None:
            return [self._picked(item, inner) for item in items]
        return self._plain(items, inner.type, inner.packed)

    def _plain(self, values: Sequence[Any], kind: Type, dtype: np.dtype[Any]) -> Sequence[Any]:
        """Values of one type, as they are kept inside arrays."""
        if isinstance(kind, Number):
            return self.numbers(values, kind)
        if isinstance(kind, Text):
            return [_short(_text(value), dtype.itemsize // 4) for value in values]
        if kind.is_time:
            return [self._time(value, kind) for value in values]
        members = [
            (field, dtype[field.name].base) for field in kind.fields if field.name in (dtype.names or ())
        ]
        made = []
        for value in values:
            found: list[Any] = []
            for field, base in members:
                part = self.inside(value, field.name, field.array is None and is_float(field.type))
                items = [part] if field.array is None else self._items(part, field.type, field.array)
                plain = self._plain(items, field.type, base)
                found.append(plain[0] if field.array is None else list(plain))
            made.append(tuple(found))
        return made

    def _items(self, value: Any, kind: Type, array: Array) -> Sequence[Any]:
        is_bytes = isinstance(kind, Number) and kind.is_byte and array.length is None
        items = self.octets(value) if is_bytes else self.elements(value)
        if array.length is not None and len(items) != array.length:
            raise ValueError(f"it has {len(items)} elements, not {array.length}")
        return items

    def _time(self, value: Any, kind: Struct) -> int:
        parts = [
            self.numbers([self.field(value, f.name)], f.type)[0]
            for f in kind.fields
            if isinstance(f.type, Number)
        ]
        time = int(parts[0]) * SECOND + int(parts[1])
        if not MIN_TIME <= time <= MAX_TIME:
            raise ValueError(f"{parts[0]} s leave the range of int64 nanoseconds")
        return time


def _is_text(selection: Selection) -> bool:
    return selection.array is None and isinstance(selection.type, Text)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise OtherValueError(value, "is no text")
    return value


def is_float(kind: Type) -> bool:
    """Return whether values of a type may be NaN."""
    return isinstance(kind, Number) and kind.dtype.kind == "f"


def _short(text: str, width: int) -> str:
    if len(text) > width:
        raise ValueError(
            f"text {text[:80]!r} has {len(text)} characters, the column keeps {width}; raise `strings`"
        )
    return text


def _layout_of(selection: Selection) -> tuple[np.dtype[Any], tuple[int | None, ...], bool]:
    """dtype and shape of what `_picked` reads, and whether its sub-messages become vectors."""
    inmost = selection
    while inmost.inner is not None:
        inmost = inmost.inner
    dtype = inmost.packed
    _, shape = value_type(selection)
    if inmost.flatten and dtype.names and flat(dtype) is not None:
        shape = shape[:-1]  # the numbers of a sub-message, which are its fields until they are flattened
    return dtype, shape, inmost.flatten


def _missing(selection: Selection) -> Any:
    """Return the value of elements that an array within an array lacks: NaN, 0 or empty."""
    dtype, shape, _ = _layout_of(selection)
    missing = np.zeros([length or 0 for length in shape], dtype)
    blocks.fill_missing(missing)
    return missing.tolist()


def _laid_out(column: Sequence[Any], selection: Selection) -> Values:
    """Convert the values of all messages to a column."""
    if selection.is_bytes or _is_text(selection):
        return Ragged.from_bytes(column)
    dtype, shape, is_flat = _layout_of(selection)
    num_ragged = 2 if selection.is_lists else int(None in shape[:1])
    levels: list[Sequence[Any]] = [column]
    for _ in range(num_ragged):
        levels.append(list(chain.from_iterable(levels[-1])))
    items = list(levels[-1])
    tail = [length or 0 for length in shape[num_ragged:]]
    values = np.array(items, dtype).reshape(len(items), *tail)
    values = flattened(values) if is_flat else values
    if num_ragged == 2:
        return Lists(values, *([len(one) for one in level] for level in levels[:2]))
    return Ragged(values, [len(row) for row in column]) if num_ragged else values
