"""The decoder of protobuf messages, defined by serialised FileDescriptorSets.

Here: descriptors to types, and fields of messages, through google.protobuf.
Elsewhere: columns of such messages (object_decoders). A message has no value for a column if a field with
presence isn't set: an `optional` one, a sub-message, one of a oneof. A float that isn't set is NaN within an
array or sub-message. Other absent fields have protobuf's default. Timestamps and durations are int64 ns,
enums are int32, maps are arrays of key and value in the order of their keys. Recursive fields can't be
columns and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from logloom.errors import UnknownEncodingError
from logloom.io.logs.interface import TopicInfo
from logloom.io.logs.messages.definitions import (
    MAX_DEPTH,
    MAX_FIELDS,
    Array,
    Field,
    Number,
    Struct,
    Text,
    Type,
)
from logloom.io.logs.messages.fields import Selection
from logloom.io.logs.messages.object_decoders import ObjectDecoder

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import DecodeError, Message
except ImportError as error:
    raise UnknownEncodingError(
        "protobuf messages need the protobuf package: pip install 'logloom[protobuf]'"
    ) from error

_INT64 = Number(np.dtype("<i8"))
_INT32 = Number(np.dtype("<i4"))
_TIMES = {
    name: Struct(name, (Field("seconds", _INT64), Field("nanos", _INT32)), is_time=True)
    for name in ("google.protobuf.Timestamp", "google.protobuf.Duration")
}
_BYTES = Number(np.dtype("u1"), is_byte=True)
_KINDS: dict[int, Type] = {
    FieldDescriptor.CPPTYPE_INT32: _INT32,
    FieldDescriptor.CPPTYPE_INT64: _INT64,
    FieldDescriptor.CPPTYPE_UINT32: Number(np.dtype("<u4")),
    FieldDescriptor.CPPTYPE_UINT64: Number(np.dtype("<u8")),
    FieldDescriptor.CPPTYPE_DOUBLE: Number(np.dtype("<f8")),
    FieldDescriptor.CPPTYPE_FLOAT: Number(np.dtype("<f4")),
    FieldDescriptor.CPPTYPE_BOOL: Number(np.dtype("?")),
    FieldDescriptor.CPPTYPE_ENUM: _INT32,
    FieldDescriptor.CPPTYPE_STRING: Text(),
}


class _MapEntry(NamedTuple):
    """An element of a map."""

    key: Any
    value: Any


class ProtobufDecoder(ObjectDecoder):
    """See `Decoder`.

    Raises:
        UnknownEncodingError: the definition can't be read, or the protobuf package is missing.
    """

    def __init__(self, info: TopicInfo):
        super().__init__(info)
        if info.definition_encoding != "protobuf":
            raise UnknownEncodingError(
                f"its definition is {info.definition_encoding!r}, which doesn't describe "
                "protobuf messages; these bring a FileDescriptorSet, called 'protobuf'"
            )
        try:
            descriptor = _descriptor(info.type, info.definition)
            self.root = _struct(descriptor)
        except (ValueError, TypeError, KeyError, DecodeError, RecursionError) as error:
            raise UnknownEncodingError(f"definition of {info.type}: {error}") from error
        self._class = message_factory.GetMessageClass(descriptor)

    def may_lack(self, selection: Selection) -> bool:
        if super().may_lack(selection):
            return True
        descriptor = self._class.DESCRIPTOR
        for name in selection.names:
            field = descriptor.fields_by_name[name]
            if field.has_presence:
                return True
            descriptor = field.message_type
        return False

    def holds(self, message: Any, names: Sequence[str]) -> bool:
        for name in names:
            if message.DESCRIPTOR.fields_by_name[name].has_presence and not message.HasField(name):
                return False
            message = getattr(message, name)
        return True

    def parse(self, payload: bytes) -> Message:
        message: Message = self._class()
        try:
            message.ParseFromString(payload)
        except DecodeError as error:
            raise ValueError(str(error)) from error
        if not message.IsInitialized():
            raise ValueError("it lacks required fields")
        return message

    def field(self, message: Any, name: str) -> Any:
        value = getattr(message, name)
        return [_MapEntry(key, value[key]) for key in sorted(value)] if isinstance(value, Mapping) else value

    def inside(self, message: Any, name: str, may_lack: bool) -> Any:
        is_set = not may_lack or not isinstance(message, Message) or self.holds(message, [name])
        return self.field(message, name) if is_set else math.nan

    def elements(self, value: Any) -> Sequence[Any]:
        return value  # type: ignore[no-any-return]

    def numbers(self, values: Sequence[Any], kind: Number) -> Sequence[Any]:
        return values

    def octets(self, value: Any) -> bytes:
        return value  # type: ignore[no-any-return]


def _descriptor(name: str, definition: bytes) -> Descriptor:
    """Return the descriptor of a message, from a FileDescriptorSet in any order."""
    files = descriptor_pb2.FileDescriptorSet.FromString(definition).file
    by_name = {file.name: file for file in files}
    pool = descriptor_pool.DescriptorPool()
    done: set[str] = set()

    def add(name: str, inside: tuple[str, ...]) -> None:
        if name in inside:
            raise ValueError(f"the file {name} imports itself")
        file = by_name.get(name) or _well_known(name)
        for other in file.dependency:
            if other not in done:
                add(other, (*inside, name))
        pool.Add(file)
        done.add(name)

    for file in sorted(by_name):
        if file not in done:
            add(file, ())
    return pool.FindMessageTypeByName(name)


def _well_known(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file of protobuf's own, which some recorders omit."""
    if name == "google/protobuf/timestamp.proto":
        from google.protobuf import timestamp_pb2 as module
    elif name == "google/protobuf/duration.proto":
        from google.protobuf import duration_pb2 as module
    else:
        raise ValueError(f"it lacks the file {name}")
    found = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(found)
    return found


def _struct(root: Descriptor) -> Struct:
    """Return the type of a message.

    Raises:
        ValueError: it is absurdly large or deep.
    """
    done: dict[str, Struct] = {}
    counts: dict[str, int] = {}  # fields of each finished message

    def struct_of(descriptor: Descriptor, inside: tuple[str, ...]) -> Struct:
        name = descriptor.full_name
        if name in _TIMES and _is_time(descriptor):
            return _TIMES[name]
        if name in done:
            return done[name]
        if len(inside) >= MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} messages are nested")
        fields, omitted = [], []
        for field in descriptor.fields:
            sub = field.message_type
            if sub is not None and sub.full_name in (*inside, name):
                omitted.append((field.name, f"is a {sub.full_name} within one, so it can't be a column"))
                continue
            kind = _type(field) if sub is None else struct_of(sub, (*inside, name))
            is_bytes = field.type == FieldDescriptor.TYPE_BYTES
            if is_bytes and _is_repeated(field):
                omitted.append((field.name, "is a list of bytes of any lengths, so it can't be a column"))
                continue
            fields.append(Field(field.name, kind, Array() if is_bytes or _is_repeated(field) else None))
        counts[name] = sum(counts.get(f.type.name, 2) if isinstance(f.type, Struct) else 1 for f in fields)
        if counts[name] > MAX_FIELDS:
            raise ValueError(f"{name} has {counts[name]} fields: absurdly large")
        done[name] = Struct(name, tuple(fields), omitted=tuple(omitted))
        return done[name]

    return struct_of(root, ())


def _is_time(descriptor: Descriptor) -> bool:
    """Return whether a message with the name of a time has its fields: a log may define anything."""
    kinds = [(f.name, _KINDS.get(f.cpp_type)) for f in descriptor.fields if not _is_repeated(f)]
    return kinds == [("seconds", _INT64), ("nanos", _INT32)]


def _type(field: FieldDescriptor) -> Type:
    return _BYTES if field.type == FieldDescriptor.TYPE_BYTES else _KINDS[field.cpp_type]


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)
