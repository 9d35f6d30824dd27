"""A log in each language of messages, with a field of each type that it has, and the fields to try.

In the tier check, ROS 1 and IDL try what ROS 2 doesn't have, and few of the kinds of whole numbers are tried.
"""

from __future__ import annotations

import datetime
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logloom.io.logs.messages.definitions import Array, Number, Struct, Text, Type
from logloom.io.logs.messages.ros.languages import parse
from tests.io.logs.making import Message, write_mcap
from tests.io.logs.messages.payloads import serialize, topic
from tests.io.logs.messages.test_protobuf import definitions, message_type
from tests.tier import by_tier

START, STEP, COUNT = 1_700_000_000 * 10**9, 10**8, 5
LENGTH = 3  # of every list

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = ["bool", *INTEGERS, "float32", "float64"]
ALIKE = by_tier(("int16", "int32", "uint16", "uint32", "uint64", "char"), ())  # no field of these is tried

_STRUCTS = """\
===
MSG: lab/Point
float64 x
float64 y
===
MSG: lab/Named
string name
float64 value
===
MSG: lab/Deep
string name
float64[] values
lab/Named[] inside
===
MSG: lab/Empty
"""
_FIELDS = [
    *((f"one_{kind}", kind) for kind in [*NUMBERS, "byte", "char"]),
    *((f"list_{kind}", f"{kind}[]") for kind in [*NUMBERS, "byte", "char"]),
    *((f"fixed_{kind}", f"{kind}[{LENGTH}]") for kind in ["bool", "uint8", "int64", "float32"]),
    ("text", "string"),
    ("texts", "string[]"),
    ("pair", "string[2]"),
    ("point", "lab/Point"),
    ("points", "lab/Point[]"),
    ("corners", f"lab/Point[{LENGTH}]"),
    ("named", "lab/Named"),
    ("nameds", "lab/Named[]"),
    ("deep", "lab/Deep"),
    ("deeps", "lab/Deep[]"),
    ("empty", "lab/Empty"),
    ("empties", "lab/Empty[]"),
]
_ROS2 = [("wide", "wstring"), ("wides", "wstring[]"), ("bounded", "float64[<=4]"), ("short", "string<=8")]
_ROS2 += [("stamp", "builtin_interfaces/Time"), ("stamps", "builtin_interfaces/Time[]")]
_ROS2 += [("span", "builtin_interfaces/Duration")]
_ROS1 = [("stamp", "time"), ("stamps", "time[]"), ("span", "duration"), ("spans", "duration[]")]
NESTED = ["point.x", "points.x", "points[].x", "corners.x", "named.name", "nameds.name", "nameds.value"]
NESTED += ["deep.values", "deep.inside", "deeps.values", "deeps[].values", "deeps[].inside", "deeps.name"]
NESTED += ["deeps.inside.value", "deeps[].inside[].value", "deeps[].inside[].name", "text.x", "one_int8[0]"]


def _idl(fields: Sequence[tuple[str, str]]) -> str:
    """The same definition in IDL, with an enum and wide characters."""
    words = {"bool": "boolean", "float32": "float", "float64": "double", "byte": "octet"}

    def written(name: str, kind: str) -> str:
        is_list = kind.endswith("]")
        inner = kind[: kind.index("[")] if is_list else kind
        length = kind[kind.index("[") + 1 : -1] if is_list else ""
        base, _, bound = inner.partition("<=")
        base = words.get(base, base.replace("/", "::msg::"))
        base = f"{base}<{bound}>" if bound else base
        if not is_list:
            return f"{base} {name};"
        if length.isdigit():
            return f"{base} {name}[{length}];"
        return f"sequence<{base}{f', {length[2:]}' if length else ''}> {name};"

    structs, current = [], []
    for line in _STRUCTS.splitlines():
        if line.startswith("MSG: "):
            current = [line.removeprefix("MSG: lab/")]
            structs.append(current)
        elif line != "===":
            current.append(written(*reversed(line.split())))
    structs[-1].append("uint8 structure_needs_at_least_one_member;")
    body = "\n".join(f"struct {name} {{ {' '.join(members)} }};" for name, *members in structs)
    root = " ".join(written(name, kind) for name, kind in fields)
    more = "Kind kind; sequence<Kind> kinds;"
    inside = f"enum Kind {{ RED, BLUE }}; {body} struct Root {{ {root} {more} }};"
    return f"module lab {{ module msg {{ {inside} }}; }};"


def value_of(kind: Type, array: Array | None, i: int) -> Any:
    """Some value of message i, of a type of a ROS definition."""
    if array is not None:
        return [value_of(kind, None, i + k) for k in range(array.length or LENGTH)]
    if isinstance(kind, Number):
        return bool(i % 2) if kind.dtype.kind == "b" else i
    if isinstance(kind, Text):
        return f"t{i}"
    return {field.name: value_of(field.type, field.array, i) for field in kind.fields}


def _ros(folder: pathlib.Path, encoding: str, language: str, text: str) -> pathlib.Path:
    info = topic(text, encoding, language, "lab/msg/Root")
    root: Struct = parse(info)
    payloads = [serialize(root, value_of(root, None, i), encoding=encoding) for i in range(COUNT)]
    return _mcap(folder, payloads, encoding, ("lab/msg/Root", language, text.encode()))


def _mcap(folder: pathlib.Path, payloads: Sequence[bytes], encoding: str, schema: Any) -> pathlib.Path:
    times = [START + i * STEP for i in range(COUNT)]
    messages = [Message("/x", t, t, t, data) for t, data in zip(times, payloads, strict=True)]
    return write_mcap(folder / "log.mcap", messages, encoding=encoding, schema=schema)


def ros2(folder: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    fields = [*_FIELDS, *_ROS2]
    text = "\n".join(f"{kind} {name}" for name, kind in fields) + "\n" + _STRUCTS
    tried = [name for name, kind in fields if kind.partition("[")[0] not in ALIKE]
    return _ros(folder, "cdr", "ros2msg", text), tried + NESTED


def idl(folder: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    fields = [(name, kind) for name, kind in [*_FIELDS, *_ROS2]]
    tried = by_tier(["text", "wide", "bounded", "points"], [name for name, _ in fields])
    return _ros(folder, "cdr", "ros2idl", _idl(fields)), [*tried, "kind", "kinds"]


def ros1(folder: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    fields = [*_FIELDS, *_ROS1]
    text = "\n".join(f"{kind} {name}" for name, kind in fields) + "\n" + _STRUCTS
    tried = by_tier(
        ["one_int8", "text", "points", *(name for name, _ in _ROS1)], [name for name, _ in fields]
    )
    return _ros(folder, "ros1", "ros1msg", text), tried + by_tier([], NESTED)


def protobuf(folder: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    kinds = [
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint64",
        "fixed32",
        "bool",
        "string",
        "bytes",
    ]
    entry = message_type("CountsEntry", ("key", "string"), ("value", "double"))
    entry.options.map_entry = True
    root = message_type(
        "Root",
        *((f"one_{kind}", kind) for kind in kinds),
        *((f"list_{kind}", kind, "repeated") for kind in kinds),
        ("color", "Color"),
        ("colors", "Color", "repeated"),
        ("stamp", ".google.protobuf.Timestamp"),
        ("stamps", ".google.protobuf.Timestamp", "repeated"),
        *((name, f".toy.{name.title()}") for name in ("point", "named", "deep", "empty")),
        *((f"{name}s", f".toy.{name.title()}", "repeated") for name in ("point", "named", "deep", "empty")),
        ("counts", ".toy.Root.CountsEntry", "repeated"),
        ("parent", ".toy.Root"),
        ("either", "double"),
        ("other", "string"),
    )
    root.nested_type.append(entry)
    root.oneof_decl.add(name="choice")
    for field in root.field:
        if field.name in ("either", "other"):
            field.oneof_index = 0
    definition, classes = definitions(
        message_type("Point", ("x", "double"), ("y", "double")),
        message_type("Named", ("name", "string"), ("value", "double")),
        message_type(
            "Deep", ("name", "string"), ("values", "double", "repeated"), ("inside", ".toy.Named", "repeated")
        ),
        message_type("Empty"),
        root,
    )

    def filled(name: str, i: int) -> Any:
        made = classes[name]()
        for field in made.DESCRIPTOR.fields:
            many = range(LENGTH if field.is_repeated else 1)
            if field.name == "counts":
                for k in many:
                    made.counts[f"k{k}"] = i
            elif field.message_type is not None:
                kind = field.message_type.name
                if kind == "Root":
                    continue
                for k in many:
                    if kind == "Timestamp":
                        part = made.stamps.add() if field.is_repeated else made.stamp
                        part.FromNanoseconds(START + i + k)
                    else:
                        part = filled(kind, i + k)
                        (
                            getattr(made, field.name).append
                            if field.is_repeated
                            else getattr(made, field.name).CopyFrom
                        )(part)
            elif field.name != ("either" if i % 2 else "other"):  # one of both
                values = [_plain(field, i + k) for k in many]
                if field.is_repeated:
                    getattr(made, field.name).extend(values)
                else:
                    setattr(made, field.name, values[0])
        return made

    payloads = [filled("Root", i).SerializeToString() for i in range(COUNT)]
    names = [field.name for field in root.field]
    nested = [path for path in NESTED if not path.startswith(("corners", "text", "one_"))]
    return (
        _mcap(folder, payloads, "protobuf", ("toy.Root", "protobuf", definition)),
        [*names, *nested, "counts[].value", "counts.value", "counts.k0", "parent.either", "one_string.x"],
    )


def _plain(field: Any, i: int) -> Any:
    if field.type == field.TYPE_STRING:
        return f"t{i}"
    if field.type == field.TYPE_BYTES:
        return bytes([i])
    if field.type == field.TYPE_ENUM:
        return 7 * (i % 2)
    return bool(i % 2) if field.type == field.TYPE_BOOL else i


_JSON: dict[str, Callable[[int], Any]] = {
    "one": lambda i: i + 0.5,
    "count": lambda i: i,
    "flag": lambda i: bool(i % 2),
    "text": lambda i: f"t{i}",
    "data": lambda i: "AQID",
    "kind": lambda i: i % 2,
    "stamp": lambda i: {"sec": i, "nsec": 5},
    "numbers": lambda i: [i + 0.5, i, i],
    "counts": lambda i: [i, i, i],
    "flags": lambda i: [True, False, True],
    "texts": lambda i: ["a", "b", "c"],
    "triple": lambda i: [1.0, 2.0, 3.0],
    "point": lambda i: {"x": i, "y": 1.5},
    "points": lambda i: [{"x": i + k, "y": 1.5} for k in range(LENGTH)],
    "named": lambda i: {"name": "a", "value": i},
    "nameds": lambda i: [{"name": "a", "value": i}] * LENGTH,
    "deep": lambda i: {"name": "a", "values": [1.0, i, 2.0], "inside": [{"name": "a", "value": i}] * LENGTH},
    "deeps": lambda i: [_JSON["deep"](i)] * LENGTH,
    "empty": lambda i: {},
    "empties": lambda i: [{}] * LENGTH,
    "grid": lambda i: [[1.0, 2.0, 3.0]] * LENGTH,
    "union": lambda i: i,
    "anything": lambda i: i,
    "nothing": lambda i: None,
}


def _json_schema() -> dict[str, Any]:
    number, text = {"type": "number"}, {"type": "string"}
    integer, boolean = {"type": "integer"}, {"type": "boolean"}

    def listed(item: Any) -> dict[str, Any]:
        return {"type": "array", "items": item}

    def struct(**properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": properties}

    named = struct(name=text, value=number)
    deep = struct(name=text, values=listed(number), inside=listed(named))
    point = struct(x=number, y=number)
    return struct(
        one=number,
        count=integer,
        flag=boolean,
        text=text,
        data={"type": "string", "contentEncoding": "base64"},
        kind={"enum": [0, 1]},
        stamp=struct(sec=integer, nsec=integer),
        numbers=listed(number),
        counts=listed(integer),
        flags=listed(boolean),
        texts=listed(text),
        triple={"type": "array", "items": number, "minItems": 3, "maxItems": 3},
        point=point,
        points=listed(point),
        named=named,
        nameds=listed(named),
        deep=deep,
        deeps=listed(deep),
        empty=struct(),
        empties=listed(struct()),
        grid=listed(listed(number)),
        union={"type": ["number", "string"]},
        anything={},
        nothing={"type": "null"},
    )


_JSON_NESTED = [path for path in NESTED if not path.startswith(("corners", "one_"))]


def json_with_schema(folder: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    return _json(folder, ("Root", "jsonschema", json.dumps(_json_schema()).encode()))


def json_without_schema(folder: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    return _json(folder, ("", "", b""))


def _json(folder: pathlib.Path, schema: Any) -> tuple[pathlib.Path, list[str]]:
    payloads = [json.dumps({name: make(i) for name, make in _JSON.items()}).encode() for i in range(COUNT)]
    return _mcap(folder, payloads, "json", schema), [*_JSON, *_JSON_NESTED, "grid[]", "grid[0]", "nowhere"]


def tables(folder: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    point = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    named = pa.struct([("name", pa.string()), ("value", pa.float64())])
    deep = pa.struct([("name", pa.string()), ("values", pa.list_(pa.float64()))])
    kinds: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
        **{name: (getattr(pa, name)(), lambda i: i) for name in INTEGERS},
        "float16": (pa.float16(), lambda i: np.float16(i)),
        "float32": (pa.float32(), float),
        "float64": (pa.float64(), float),
        "flag": (pa.bool_(), lambda i: bool(i % 2)),
        "text": (pa.string(), lambda i: f"t{i}"),
        "large_text": (pa.large_string(), lambda i: f"t{i}"),
        "word": (pa.dictionary(pa.int32(), pa.string()), lambda i: f"t{i % 2}"),
        "data": (pa.binary(), lambda i: bytes([i])),
        "key": (pa.binary(3), lambda i: bytes([i] * 3)),
        "moment": (pa.timestamp("us"), lambda i: i),
        "span": (pa.duration("ms"), lambda i: datetime.timedelta(milliseconds=i)),
        "day": (pa.date32(), lambda i: datetime.date(2026, 1, 1 + i)),
        "clock": (pa.time64("us"), lambda i: i),
        "price": (pa.decimal128(9, 2), lambda i: i),
        "nothing": (pa.null(), lambda i: None),
        "numbers": (pa.list_(pa.float64()), lambda i: [i, 1.0, 2.0]),
        "triple": (pa.list_(pa.float64(), 3), lambda i: [i, 1.0, 2.0]),
        "texts": (pa.list_(pa.string()), lambda i: ["a", "b", "c"]),
        "flags": (pa.list_(pa.bool_()), lambda i: [True] * LENGTH),
        "moments": (pa.list_(pa.timestamp("ns")), lambda i: [i] * LENGTH),
        "point": (point, lambda i: {"x": i, "y": 1}),
        "points": (pa.list_(point), lambda i: [{"x": i, "y": 1}] * LENGTH),
        "named": (named, lambda i: {"name": "a", "value": i}),
        "nameds": (pa.list_(named), lambda i: [{"name": "a", "value": i}] * LENGTH),
        "deep": (deep, lambda i: {"name": "a", "values": [1.0] * LENGTH}),
        "deeps": (pa.list_(deep), lambda i: [{"name": "a", "values": [1.0] * LENGTH}] * LENGTH),
        "grid": (pa.list_(pa.list_(pa.float64())), lambda i: [[1.0] * LENGTH] * LENGTH),
        "pairs": (pa.map_(pa.string(), pa.float64()), lambda i: [("a", 1.0)] * LENGTH),
        "speed [m/s]": (pa.float64(), float),
    }
    columns = {name: pa.array([make(i) for i in range(COUNT)], kind) for name, (kind, make) in kinds.items()}
    stamps = pa.array([START + i * STEP for i in range(COUNT)], pa.timestamp("ns"))
    (folder / "log").mkdir()
    pq.write_table(pa.table({"timestamp": stamps, **columns}), folder / "log" / "x.parquet")
    nested = [
        "point.x",
        "points.x",
        "points[].x",
        "nameds.name",
        "deep.values",
        "deeps.values",
        "deeps[].values",
    ]
    return folder / "log" / "x.parquet", [*kinds, *nested, "grid[]", "grid[0]", "nowhere", "point.z"]


LANGUAGES = {
    "ros2": ros2,
    "idl": idl,
    "ros1": ros1,
    "protobuf": protobuf,
    "json": json_with_schema,
    "plain json": json_without_schema,
    "tables": tables,
}
