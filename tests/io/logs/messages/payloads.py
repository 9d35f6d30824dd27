"""Messages for the tests of decoding: a slow serialiser, slow comparison, and payloads as logs hold them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from logloom.io.logs.interface import TopicInfo
from logloom.io.logs.messages.definitions import Array, Number, Struct, Text, Type
from logloom.io.logs.messages.raw_messages import RawMessages


def topic(
    definition: str, encoding: str = "cdr", language: str = "ros2msg", name: str = "pkg/msg/Root"
) -> TopicInfo:
    return TopicInfo("/topic", name, encoding, language, definition.encode(), 0, 0, 0)


def raw_messages(payloads: Sequence[bytes], per_buffer: int = 7, gap: bytes = b"\xee" * 3) -> RawMessages:
    """Payloads in buffers of a few each, with bytes between them that must never be read."""
    buffers, buffer, start = [], [], []
    for first in range(0, len(payloads), per_buffer):
        data = bytearray()
        for payload in payloads[first : first + per_buffer]:
            data += gap
            buffer.append(len(buffers))
            start.append(len(data))
            data += payload
        buffers.append(np.frombuffer(bytes(data), np.uint8))
    times = np.arange(len(payloads), dtype=np.int64)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    places = [f"drive.mcap: chunk {i}" for i in range(len(buffers))]
    where = np.array(buffer, np.intp), np.array(start, np.int64)
    return RawMessages("/topic", times, times, times, buffers, *where, lengths, places)


class Serializer:
    """One value after the other, straight from the rules of the encoding."""

    def __init__(self, order: str, encoding: str):
        self.order = order
        self.is_cdr = encoding == "cdr"
        self.body = bytearray()

    def number(self, kind: np.dtype[Any], value: Any) -> None:
        if self.is_cdr:
            self.body += b"\xcd" * (-len(self.body) % kind.itemsize)
        self.body += np.array(value, kind).astype(kind.newbyteorder(self.order)).tobytes()

    def word(self, value: int) -> None:
        self.number(np.dtype("u4"), value)

    def value(self, kind: Type, array: Array | None, value: Any) -> None:
        if array is not None:
            if array.length is None:
                self.word(len(value))
            for item in value:
                self.value(kind, None, item)
        elif isinstance(kind, Number):
            self.number(kind.dtype, value)
        elif isinstance(kind, Text):
            self.text(kind, value)
        else:
            for field in kind.fields:
                self.value(field.type, field.array, value[field.name])
            if self.is_cdr and not kind.fields:
                self.body += b"\x00"

    def text(self, kind: Text, value: str) -> None:
        data = value.encode()
        if kind.wide:
            self.word(len(value))
            self.body += value.encode("utf-32-le" if self.order == "<" else "utf-32-be")
        elif self.is_cdr:
            self.word(len(data) + 1)
            self.body += data + b"\0"
        else:
            self.word(len(data))
            self.body += data

    def payload(self, padding: int = 0) -> bytes:
        head = {"<": b"\x00\x01\x00\x00", ">": b"\x00\x00\x00\x00"}[self.order] if self.is_cdr else b""
        return head + bytes(self.body) + b"\x00" * (padding if self.is_cdr else 0)


def serialize(root: Struct, value: Any, order: str = "<", encoding: str = "cdr", padding: int = 0) -> bytes:
    out = Serializer(order, encoding)
    out.value(root, None, value)
    return out.payload(padding)


def written_leaves(value: Any) -> list[Any]:
    """The numbers, times and texts of a written value, in definition order."""
    if isinstance(value, dict):
        if set(value) in ({"sec", "nanosec"}, {"secs", "nsecs"}):
            seconds, nanoseconds = value.values()
            return [seconds * 10**9 + nanoseconds]
        return [leaf for part in value.values() for leaf in written_leaves(part)]
    return [leaf for part in value for leaf in written_leaves(part)] if isinstance(value, list) else [value]


def read_leaves(value: Any) -> list[Any]:
    """The same of a value of a column."""
    if isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim):
        return [leaf for part in value for leaf in read_leaves(part)]
    names = getattr(getattr(value, "dtype", None), "names", None)
    return [leaf for name in names for leaf in read_leaves(value[name])] if names else [value]


def same_leaf(read: Any, written: Any) -> bool:
    """Equal, NaNs by their bits."""
    if isinstance(written, float):
        bits = struct.pack("<d", written) if read.dtype.itemsize == 8 else struct.pack("<f", written)
        return bytes(read.tobytes()) == bits
    return bool(read == written)


def same(read: Any, written: Any) -> bool:
    """Whether a value of a column is what a message says."""
    there, here = written_leaves(written), read_leaves(read)
    return len(there) == len(here) and all(same_leaf(a, b) for a, b in zip(here, there, strict=True))
