"""Message definitions as one small tree of types.

Here: the tree, and `link`, which makes it from declarations.
Elsewhere: the grammars, and choosing among them (logloom.io.logs.messages.ros.languages), paths through the
tree (fields), and the types' layout in bytes (logloom.io.logs.messages.ros.wire). Grammars give
*declarations*, in which types are names; linking them into a tree finds missing, recursive and excessively
large types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.values import dataclass

MAX_DEPTH = 64  # sub-messages within sub-messages
MAX_FIELDS = 100_000  # of a message, counting those of sub-messages wherever they occur
# Limits what a definition alone implies, such as float64[1000000], counting each number as one; it keeps the
# size of an element times a u32 count within int64.
MAX_FIXED_NUMBERS = 1 << 26


@dataclass(frozen=True)
class Number:
    """A number or a bool ("?"). `is_byte` marks the types whose sequences are plain bytes."""

    dtype: np.dtype[Any]
    is_byte: bool = False


@dataclass(frozen=True)
class Text:
    """A string; wide ones (wstring) are 32 bits a character. `bound` is in characters of the encoding."""

    bound: int | None = None
    wide: bool = False


@dataclass(frozen=True, eq=False)
class Struct:
    """A message.

    Attributes:
        is_time: marks times and durations: seconds and nanoseconds, which read as int64 ns.
        omitted: names of fields that no column can have, and why: "contains itself, so it can't be a column".
    """

    name: str
    fields: tuple[Field, ...]
    is_time: bool = False
    omitted: tuple[tuple[str, str], ...] = ()

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


Type = Number | Text | Struct


@dataclass(frozen=True)
class Array:
    """An array of `length` elements, or, if that is None, of any number up to `bound`."""

    length: int | None = None
    bound: int | None = None


@dataclass(frozen=True)
class Field:
    name: str
    type: Type
    array: Array | None = None


@dataclass(frozen=True)
class Declared:
    """A field whose type is still the name of a primitive, or of a message as `pkg/Name` or `Name`."""

    name: str
    type: str
    array: Array | None = None
    text_bound: int | None = None


Declarations = Mapping[str, Sequence[Declared]]  # message name `pkg/Name` to its fields, the root first


def _numbers(byte: str) -> dict[str, Number]:
    names = ["float32", "float64", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))]
    numbers = {name: Number(np.dtype(name).newbyteorder("<"), name == "uint8") for name in names}
    char = Number(np.dtype("u1"), is_byte=True)
    return numbers | {
        "bool": Number(np.dtype("?")),
        "char": char,
        "byte": Number(np.dtype(byte), is_byte=True),
    }


def _time(name: str, seconds: str, nanoseconds: str, signs: str) -> Struct:
    types = [Number(np.dtype(f"<{sign}4")) for sign in signs]
    return Struct(name, (Field(seconds, types[0]), Field(nanoseconds, types[1])), is_time=True)


# In ROS 1 a byte is signed and a duration has two signs; both changed in ROS 2.
ROS1_TYPES: dict[str, Type] = {
    **_numbers("i1"),
    "time": _time("time", "secs", "nsecs", "uu"),
    "duration": _time("duration", "secs", "nsecs", "ii"),
}
_TIME = _time("builtin_interfaces/Time", "sec", "nanosec", "iu")
_DURATION = _time("builtin_interfaces/Duration", "sec", "nanosec", "iu")
ROS2_TYPES: dict[str, Type] = {
    **_numbers("u1"),
    "time": _TIME,
    "duration": _DURATION,
    _TIME.name: _TIME,
    _DURATION.name: _DURATION,
}


def short_name(name: str) -> str:
    """`pkg/Name` of `pkg/msg/Name` or `pkg::msg::Name`."""
    parts = name.replace("::", "/").split("/")
    return "/".join(part for part in parts if part and part not in ("msg", "srv", "action"))


def link(declared: Declarations, primitives: Mapping[str, Type]) -> Struct:
    """Link declarations to the tree of their first message.

    Raises:
        ValueError: a type is missing, recursive or absurdly large.
    """
    done: dict[str, Struct] = {}
    sizes: dict[str, tuple[int, int]] = {}  # fields and least numbers of each linked message

    def struct_named(name: str, inside: tuple[str, ...]) -> Struct:
        if name in done:
            return done[name]
        if name in inside:
            raise ValueError(f"{name} contains itself")
        if len(inside) >= MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} messages are nested")
        fields: dict[str, Field] = {}
        num_fields = num_least = 0
        for item in declared[name]:
            if item.name in fields:
                raise ValueError(f"{name} has two fields named {item.name!r}")
            if item.array is not None and item.array.length == 0:
                raise ValueError(f"{name}.{item.name} is an array of no elements")
            kind = type_of(item, name, (*inside, name))
            count, size = sizes.get(kind.name, (2, 8)) if isinstance(kind, Struct) else (1, 1)
            num_fields += count
            num_least += size * (1 if item.array is None else item.array.length or 0)
            fields[item.name] = Field(item.name, kind, item.array)
        if num_fields > MAX_FIELDS or num_least > MAX_FIXED_NUMBERS:
            raise ValueError(
                f"{name} has {num_fields} fields and at least {num_least} numbers: absurdly large"
            )
        done[name] = Struct(name, tuple(fields.values()))
        sizes[name] = num_fields, num_least
        return done[name]

    def type_of(item: Declared, owner: str, inside: tuple[str, ...]) -> Type:
        if item.type in ("string", "wstring"):
            return Text(item.text_bound, wide=item.type == "wstring")
        if item.type in primitives:
            return primitives[item.type]
        package = owner.rsplit("/", 1)[0]
        wanted = short_name(item.type)
        names = [wanted] if "/" in wanted else [f"{package}/{wanted}", f"std_msgs/{wanted}", wanted]
        anywhere = [name for name in declared if name.rsplit("/", 1)[-1] == wanted]
        for name in names + (anywhere if len(anywhere) == 1 else []):
            if name in primitives:
                return primitives[name]
            if name in declared:
                return struct_named(name, inside)
        raise ValueError(f"{owner}.{item.name} is a {item.type}, which is not defined")

    return struct_named(next(iter(declared)), ())
