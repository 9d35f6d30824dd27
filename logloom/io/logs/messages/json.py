"""The decoder of JSON messages, with a JSON Schema as their definition or none.

Here: schemas to types, and checked values of messages.
Elsewhere: columns of such messages (object_decoders).

By a schema, `number` is float64, `integer` and enums of integers int64, `boolean` bool, `string` text or
(with contentEncoding base64) bytes; an object of seconds and nanoseconds ({sec, nsec} and the like) is a time
in int64 ns. Without a schema the column's `dtype` is the type: of the value at the end of the path, or of its
elements if the path ends in `[]`. Values are never rounded or wrapped: one of another type is an error.
A message has no value for a column if it lacks the property, or has null there; inside arrays, null is NaN
for floats.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.errors import UnknownEncodingError, UsageError
from logloom.io.logs.interface import FieldSpec, TopicInfo
from logloom.io.logs.messages.definitions import (
    MAX_DEPTH,
    MAX_FIELDS,
    MAX_FIXED_NUMBERS,
    Array,
    Field,
    Number,
    Struct,
    Text,
    Type,
)
from logloom.io.logs.messages.fields import Selection, UntypedError, has, line_of
from logloom.io.logs.messages.object_decoders import ObjectDecoder, OtherValueError, is_float

_BYTE = Number(np.dtype("u1"), is_byte=True)
_INTEGER = Number(np.dtype("<i8"))
_TIMES = (("sec", "nsec"), ("sec", "nanosec"), ("secs", "nsecs"), ("seconds", "nanos"))
_NUMBERS = {"number": Number(np.dtype("<f8")), "integer": _INTEGER, "boolean": Number(np.dtype("?"))}


class JsonDecoder(ObjectDecoder):
    """See `Decoder`.

    Raises:
        UnknownEncodingError: the schema can't be read.
    """

    def __init__(self, info: TopicInfo):
        super().__init__(info)
        if info.definition_encoding not in ("jsonschema", ""):
            raise UnknownEncodingError(
                f"its definition is {info.definition_encoding!r}, which doesn't describe "
                "JSON messages; known is jsonschema"
            )
        try:
            schema = _loads(info.definition) if info.definition.strip() else {}
            self.root = _JsonSchema(schema).root(info.type)
        except (ValueError, RecursionError) as error:
            raise UnknownEncodingError(f"definition of {info.type}: {error}") from error

    def root_for(self, spec: FieldSpec) -> Struct:
        if spec.adapter is not None:
            if not self.root.fields:
                raise UsageError(
                    f"as {spec.adapter}: JSON messages without a schema have no types; name fields, and "
                    "their dtype"
                )
            return self.root
        unknown = [path for path in spec.paths if not has(self.root, path)]
        if not unknown:
            return self.root
        if spec.dtype is None:
            if not self.root.fields:
                raise UntypedError(
                    f"field {unknown[0]!r}: JSON messages without a schema have no types: set dtype, and "
                    "write [] after the path of an array"
                )
            return self.root  # to find the nearest valid name
        return _of_paths(self.info.type, [path.split(".") for path in spec.paths], _leaf(spec.dtype))

    def may_lack(self, selection: Selection) -> bool:
        return True

    def holds(self, message: Any, names: Sequence[str]) -> bool:
        for name in names:
            if not isinstance(message, dict):
                return True  # of another type than its definition says
            message = message.get(name)
            if message is None:
                return False
        return True

    def _has(self, message: Any, selection: Selection) -> bool:
        if not self.holds(message, selection.names):
            return False
        for name in selection.names:
            message = self.field(message, name)
        if selection.array is None or selection.inner is None:
            return _is_whole(message, selection.type, selection.packed)
        if selection.is_bytes:
            return True
        items = self._items(message, selection.type, selection.array)
        if len(items) < selection.least:
            return selection.fills
        pick, inner = selection.pick, selection.inner
        if pick is not None:
            items = items[pick] if isinstance(pick, slice) else [items[pick]]
        if not isinstance(pick, int) and inner.array is None and is_float(inner.type):  # null is NaN there
            return all(self.holds(item, inner.names[:-1]) for item in items) if inner.names else True
        if inner.names or inner.array is not None:
            return all(self._has(item, inner) for item in items)
        return all(_is_whole(item, inner.type, inner.packed) for item in items)

    def check_field_time(self, path: str, unit: str) -> None:
        if self.root.fields:  # without a schema, messages show whether they have the field
            super().check_field_time(path, unit)

    def parse(self, payload: bytes) -> Any:
        message = _loads(payload)
        if not isinstance(message, dict):
            raise ValueError(f"it is {message!r:.40}, not an object")
        return message

    def field(self, message: Any, name: str) -> Any:
        if not isinstance(message, dict):
            raise OtherValueError(message, "is no object")
        if name not in message:
            raise ValueError(f"there is no {name!r}")
        return message[name]

    def inside(self, message: Any, name: str, may_lack: bool) -> Any:
        return message.get(name) if may_lack and isinstance(message, dict) else self.field(message, name)

    def elements(self, value: Any) -> Sequence[Any]:
        if not isinstance(value, list):
            raise OtherValueError(value, "is no array")
        return value

    def numbers(self, values: Sequence[Any], kind: Number) -> Sequence[Any]:
        return [_number(value, kind.dtype) for value in values]

    def misfit(self, path: str, error: ValueError) -> str:
        if has(self.root, path) or not isinstance(error, OtherValueError):
            return super().misfit(path, error)
        return f"field {path!r}: {error}; {_way_to_read(error, path)}"

    def octets(self, value: Any) -> bytes:
        if isinstance(value, list):
            return bytes(self.numbers(value, _BYTE))
        if not isinstance(value, str):
            raise ValueError(f"{value!r:.40} is no base64")
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{value[:40]!r} is no base64: {error}") from error


def _way_to_read(error: OtherValueError, path: str) -> str:
    """Return the line of a recipe that reads a value which no schema gives a type."""
    value = error.value
    if error.why == "is no object" and isinstance(value, list):
        head, _, name = path.rpartition(".")
        return f"write [] after the path of the array, as in `{line_of(f'{head}[].{name}')}`"
    if error.why == "is no object":
        return f"write `{line_of(path.rpartition('.')[0])}`"
    if error.why == "is no array":
        return f"write `{line_of(path.replace('[]', ''))}`"
    if isinstance(value, dict):
        inside = next((name for name in value if name.isidentifier()), "")
        return f"write `{line_of(f'{path}.{inside}')}`, or another of its properties"
    if isinstance(value, list):
        if path.endswith("[]"):
            return "an array in an array can't be a column"
        return f"write `{line_of(f'{path}[]')}`, with the `dtype` of its elements"
    if isinstance(value, bool | str):
        return f"write `dtype: {'bool' if isinstance(value, bool) else 'string'}`"
    integers = ("int64", "uint64") if isinstance(value, int) else ()
    fitting = (name for name in integers if np.iinfo(name).min <= value <= np.iinfo(name).max)
    return f"write `dtype: {next(fitting, 'float64')}`"


def _is_whole(value: Any, kind: Type, dtype: np.dtype[Any]) -> bool:
    """Return whether a value is there, and all in it but floats, or it isn't what its definition says."""
    if not isinstance(kind, Struct) or not isinstance(value, dict):
        return value is not None
    for field in kind.fields:
        if not kind.is_time and field.name not in (dtype.names or ()):
            continue
        part: Any = value.get(field.name)
        items = part if field.array is not None and isinstance(part, list) else [part]
        if is_float(field.type) and (field.array is None or items is part):
            continue
        base = dtype if kind.is_time else dtype[field.name].base
        if not all(_is_whole(item, field.type, base) for item in items):
            return False
    return True


class _JsonSchema:
    """Convert JSON Schema to types; parts without types (recursion, unions, free objects) are left out."""

    def __init__(self, schema: Any):
        self._schema = schema
        self._num_fields = 0

    def root(self, name: str) -> Struct:
        found = self._type(self._schema, name, ())
        if found is None or found[1] is not None or not isinstance(found[0], Struct):
            return Struct(name, ())
        return found[0]

    def _type(self, schema: Any, name: str, inside: tuple[str, ...]) -> tuple[Type, Array | None] | None:
        """Return the type of a value, and of an array its elements'; None if the schema doesn't define it."""
        self._num_fields += 1
        if self._num_fields > MAX_FIELDS:
            raise ValueError(f"more than {MAX_FIELDS} fields: absurdly large")
        if not isinstance(schema, dict) or len(inside) >= MAX_DEPTH:
            return None
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return (
                None if reference in inside else self._type(self._at(reference), name, (*inside, reference))
            )
        kind = _kind(schema)
        if kind in _NUMBERS:
            return _NUMBERS[kind], None
        if kind == "string":
            is_bytes = schema.get("contentEncoding") == "base64"
            return (_BYTE, Array()) if is_bytes else (Text(), None)
        if kind == "array":
            element = self._type(schema.get("items"), name, (*inside, "[]"))
            if element is None or element[1] is not None:
                return None
            least, most = schema.get("minItems"), schema.get("maxItems")
            is_fixed = isinstance(least, int) and least == most and 0 < least <= MAX_FIXED_NUMBERS
            return element[0], Array(least if is_fixed else None)
        if kind == "object":
            return self._struct(schema, name, inside), None
        return None

    def _struct(self, schema: Mapping[str, Any], name: str, inside: tuple[str, ...]) -> Struct:
        properties = schema.get("properties")
        found, omitted = [], []
        for key, value in properties.items() if isinstance(properties, dict) else ():
            typed = self._type(value, key, (*inside, name))
            if typed is not None:
                found.append(Field(key, *typed))
            else:
                omitted.append((key, "has no type in the schema that a column can have"))
        for names in _TIMES:
            if {f.name for f in found} == set(names) and all(f.type is _INTEGER for f in found):
                return Struct(name, tuple(Field(part, _INTEGER) for part in names), is_time=True)
        return Struct(name, tuple(found), omitted=tuple(omitted))

    def _at(self, reference: str) -> Any:
        """Resolve a reference within the schema; None for any other."""
        if not reference.startswith("#"):
            return None
        at = self._schema
        for step in reference[1:].split("/")[1:]:
            at = at.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(at, dict) else None
        return at


def _of_paths(name: str, paths: Sequence[Sequence[str]], leaf: tuple[Type, Array | None]) -> Struct:
    """Return a type in which these paths, given as steps, end at such leaves."""
    fields = []
    for bare in dict.fromkeys(path[0].partition("[")[0] for path in paths):
        own = [path for path in paths if path[0].partition("[")[0] == bare]
        array = Array() if any("[" in path[0] for path in own) else None
        if deeper := [path[1:] for path in own if len(path) > 1]:
            fields.append(Field(bare, _of_paths(bare, deeper, leaf), array))
        else:
            fields.append(Field(bare, leaf[0], array or leaf[1]))
    return Struct(name, tuple(fields))


def _kind(schema: Mapping[str, Any]) -> str | None:
    """Return the type in a schema; for a number that may be null, the number's."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [item for item in kind if item != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind is None and isinstance(schema.get("properties"), dict):
        return "object"
    if kind is None:
        choices = schema.get("oneOf") or schema.get("enum")
        values = [c.get("const") if isinstance(c, dict) else c for c in choices] if choices else []
        if values and all(type(value) is int for value in values):
            return "integer"
        return "string" if values and all(isinstance(value, str) for value in values) else None
    return kind if isinstance(kind, str) else None


def _leaf(dtype: str) -> tuple[Type, Array | None]:
    if dtype == "string":
        return Text(), None
    if dtype == "bytes":
        return _BYTE, Array()
    try:
        return Number(np.dtype(dtype).newbyteorder("<")), None
    except TypeError as error:
        raise UsageError(f"dtype {dtype!r} is no number type, string or bytes") from error


def _loads(data: bytes) -> Any:
    # Not json.loads(data), which guesses UTF-16 and UTF-32 from zeros.
    return json.loads(data.decode("utf-8-sig"))


def _number(value: Any, dtype: np.dtype[Any]) -> Any:
    """Check that numpy converts a number to `dtype` unchanged, apart from the rounding of floats."""
    if dtype.kind == "b":
        if not isinstance(value, bool):
            raise OtherValueError(value, "is neither true nor false")
        return value
    if value is None and dtype.kind == "f":
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OtherValueError(value, "is no number")
    if dtype.kind == "f":
        if float(np.finfo(dtype).max) < abs(value) != math.inf:
            raise ValueError(f"{value!r:.40} is too large for {dtype.name}")
        return float(value)
    limits = np.iinfo(dtype)
    if (isinstance(value, float) and not value.is_integer()) or not limits.min <= value <= limits.max:
        raise OtherValueError(value, f"is no {dtype.name}")
    return int(value)
