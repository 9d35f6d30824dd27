"""JSON messages: typed by their schema or by the column, and never a value that isn't in the message."""

import base64
import contextlib
import json
import math
import random
import re

import numpy as np
import pytest
from mcap.writer import Writer

from logloom.blocks import python_value
from logloom.errors import LogReadError, UnknownEncodingError, UsageError
from logloom.io.logs.interface import MIN_TIME, FieldSpec, OpenOptions, TopicInfo
from logloom.io.logs.messages.json import JsonDecoder
from logloom.io.logs.messages.raw_messages import Parsed
from logloom.io.logs.opening import open_log
from tests.cases import case
from tests.io.logs.making import SECOND, START, read_all
from tests.io.logs.messages.payloads import raw_messages
from tests.tier import by_tier

TIME = {
    "type": "object",
    "title": "time",
    "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}},
}
POINT = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}}
SCHEMA = {
    "type": "object",
    "properties": {
        "timestamp": TIME,
        "speed": {"type": "number"},
        "count": {"type": ["integer", "null"]},
        "ok": {"type": "boolean"},
        "name": {"type": "string"},
        "data": {"type": "string", "contentEncoding": "base64"},
        "mode": {"oneOf": [{"title": "A", "const": 0}, {"title": "B", "const": 1}]},
        "position": {"$ref": "#/$defs/point"},
        "path": {"type": "array", "items": {"$ref": "#/$defs/point"}},
        "K": {"type": "array", "items": {"type": "number"}, "minItems": 4, "maxItems": 4},
        "ranges": {"type": "array", "items": {"type": "number"}},
        "boxes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "id": {"type": "integer"}},
            },
        },
        "children": {"type": "array", "items": {"$ref": "#"}},
        "anything": {},
    },
    "$defs": {"point": POINT},
}


def decoder_of(schema=SCHEMA, encoding="jsonschema"):
    definition = b"" if schema is None else json.dumps(schema).encode()
    return JsonDecoder(TopicInfo("/topic", "toy", "json", encoding, definition, 0, 0, 0))


def taken(decoder, messages, *paths, **options):
    spec = FieldSpec(paths, **options)
    payloads = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
    values = decoder.take(raw_messages(payloads), spec)
    ctype = decoder.column_type(spec)
    assert values.dtype == ctype.dtype
    return [python_value(values[row], ctype) for row in range(len(values))]


def random_message(rng):
    point = {"x": rng.gauss(0, 1), "y": rng.gauss(0, 1)}
    return {
        "timestamp": {"sec": START // SECOND + rng.randrange(9), "nsec": rng.randrange(SECOND)},
        "speed": rng.choice([1, 2.5, -1e300]),
        "count": rng.randrange(-(2**63), 2**63),
        "ok": rng.random() < 0.5,
        "name": rng.choice(["", "naïve 漢字 \U0001f600"]),
        "data": base64.b64encode(rng.randbytes(rng.randrange(9))).decode(),
        "mode": 1,
        "position": point,
        "path": [point] * rng.randrange(4),
        "K": [rng.random() for _ in range(4)],
        "ranges": [rng.random() for _ in range(rng.randrange(5))],
        "boxes": [{"name": f"box {i}", "id": i} for i in range(rng.randrange(4))],
        "children": [],
        "anything": {"goes": [1, "two"]},
    }


MESSAGES = [random_message(random.Random(seed)) for seed in range(20)]


def test_every_field_equals_what_the_json_module_reads_from_a_log(tmp_path):
    path = tmp_path / "drive.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("toy", "jsonschema", json.dumps(SCHEMA).encode())
        channel = writer.register_channel("/j", "json", schema)
        for i, message in enumerate(MESSAGES):
            writer.add_message(channel, START + i, json.dumps(message).encode(), START + i)
        writer.finish()
    log = open_log([str(path)])
    found = read_all(log)["/j"]

    def column(field):
        spec = FieldSpec((field,))
        values, ctype = found.take(spec, np.arange(len(found))), log.column_type("/j", spec)
        return [python_value(values[row], ctype) for row in range(len(values))]

    for field in ("speed", "count", "ok", "name", "mode"):
        assert column(field) == [message[field] for message in MESSAGES]
    for field in ("K", "ranges"):
        assert [row.tolist() for row in column(field)] == [message[field] for message in MESSAGES]
    assert column("data") == [base64.b64decode(message["data"]) for message in MESSAGES]
    coded = [MESSAGES[0] | {"data": base64.b64encode(bytes([7, n, 9])).decode()} for n in (5, 6)]
    assert taken(found.decoder, coded, "data[1]") == [5, 6]
    assert [row.tolist() for row in column("position")] == [[*m["position"].values()] for m in MESSAGES]
    assert [row.tolist() for row in column("path")] == [
        [tuple(p.values()) for p in m["path"]] for m in MESSAGES
    ]
    assert [row.tolist() for row in column("boxes")] == [
        [tuple(box.values()) for box in message["boxes"]] for message in MESSAGES
    ]
    assert [row.tolist() for row in column("K[1:3]")] == [message["K"][1:3] for message in MESSAGES]
    times = [m["timestamp"]["sec"] * SECOND + m["timestamp"]["nsec"] for m in MESSAGES]
    assert column("timestamp") == times
    assert log.time_source("/j", ("header", "log")) == "header"
    assert read_all(log, "log")["/j"].decoder.header_time(found.raw).tolist() == times


def test_a_column_of_json_without_a_schema_says_its_dtype():
    decoder = decoder_of(None, "")
    messages = [{"a": {"b": 3}, "list": [1, 2], "objects": [{"v": 1.5}], "t": "x", "raw": "AAE="}]
    with pytest.raises(UsageError, match=r"/topic.*'a.b'.*without a schema.*set dtype.*\[\]"):
        decoder.column_type(FieldSpec(("a.b",)))
    with pytest.raises(UsageError, match=r"as navsat: JSON messages without a schema.*and their dtype"):
        decoder.column_type(FieldSpec(adapter="navsat"))
    assert taken(decoder, messages, "a.b", dtype="uint8") == [3]
    assert taken(decoder, messages, "list[]", dtype="int32")[0].tolist() == [1, 2]
    assert taken(decoder, messages, "objects[].v", dtype="float32")[0].tolist() == [1.5]
    assert taken(decoder, messages, "objects[0].v", dtype="float32") == [1.5]
    assert taken(decoder, messages, "list[1]", dtype="int32") == [2]
    assert taken(decoder, messages, "list[0:2]", dtype="int32")[0].tolist() == [1, 2]
    assert taken(decoder, messages, "t", dtype="string") == ["x"]
    assert taken(decoder, messages, "raw", dtype="bytes") == [b"\0\1"]
    assert decoder.time_source(("header", "log")) == "log"
    assert taken(decoder_of(), [MESSAGES[0] | {"anything": {"v": 2}}], "anything.v", dtype="int16") == [2]


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("count", 2**63, "is no int64"),
        ("count", 1.5, "is no int64"),
        ("count", None, "is no number"),
        ("speed", True, "is no number"),
        ("speed", "1.0", "is no number"),
        ("speed", 10**400, "too large for float64"),
        ("ok", 1, "neither true nor false"),
        ("name", 5, "is no text"),
        ("name", "\ud800", "surrogates not allowed"),
        ("data", "not base64!", "is no base64"),
        ("K", [1, 2, 3], "3 elements, not 4"),
        ("ranges", {"0": 1}, "is no array"),
        ("position", [1, 2], "is no object"),
        ("boxes", [{"name": "a"}], "there is no 'id'"),
        ("timestamp", {"sec": 2**62, "nsec": 0}, "leave the range of int64"),
    ],
)
def test_a_value_of_another_type_is_an_error_that_names_field_and_message(field, value, why):
    messages = [MESSAGES[0], MESSAGES[1] | {field: value}]
    with pytest.raises(LogReadError, match=rf"drive.mcap.*/topic message at offset 1 .*'{field}'.*{why}"):
        taken(decoder_of(), messages, field)
    assert len(taken(decoder_of(), messages, "mode")) == 2


def test_a_message_that_lacks_a_property_or_has_null_there_has_no_value():
    whole = MESSAGES[0]
    messages = [
        whole,
        {name: value for name, value in whole.items() if name != "speed"},
        whole | {"speed": None},
        whole | {"position": None},
        b"not json",
    ]
    raw = raw_messages([m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages])

    def has_value(*paths):
        return decoder_of().has_value(raw, FieldSpec(paths)).tolist()

    assert has_value("speed") == [True, False, False, True, True]  # the last one is refused
    assert has_value("position.x", "count") == [True, True, True, False, True]
    assert has_value("boxes[].id") == [True] * 5


def test_a_property_that_lacks_within_what_is_taken_whole_is_no_value():
    """A float that lacks there is NaN; what has another type is refused."""
    whole = {"x": 1.0, "y": 2.0}
    cases = {
        "position": [(whole, 1), ({"x": 1.0}, 1), ({"x": None, "y": 1.0}, 1), ([1, 2], 1)],
        "path": [([whole], 1), ([whole, {"x": 1}], 1), ([], 1), ([None], 0), ({}, 1)],
        "path[].x": [([whole], 1), ([whole, {"x": 1}], 1), ([whole, {"y": 1}], 1)],
        "path[0].x": [([whole], 1), ([whole, {"y": 1}], 1), ([{"y": 1}, whole], 0)],
        "boxes[].id": [([{"name": "a", "id": 1}], 1), ([{"name": "a", "id": None}], 0), ([{"name": "a"}], 0)],
        "boxes[].name": [([{"name": "a"}], 1), ([{"id": 1}], 0)],
        "path[0]": [([whole, {}], 1), ([None, whole], 0), ([], 0)],
        "path[0:2].y": [([whole, whole, {}], 1), ([whole, {}], 1), ([whole], 0)],
        "boxes": [([{"name": "a", "id": 1}], 1), ([{"name": "a", "id": None}], 0), ([{"id": 1}], 0)],
        "ranges": [([1.0, None], 1), (None, 0)],
        "timestamp": [({"sec": 1, "nsec": 2}, 1), ({"sec": 1}, 0)],
        "data": [("AAE=", 1), (None, 0)],
    }
    for path, values in cases.items():
        name = path.split("[")[0]
        raw = raw_messages([json.dumps(MESSAGES[0] | {name: value}).encode() for value, _ in values])
        with case(path):
            held = decoder_of().has_value(raw, FieldSpec((path,)))
            assert held.tolist() == [bool(expected) for _, expected in values]


def test_null_in_place_of_an_array_of_floats_is_no_value():
    array = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    camera = {"type": "object", "properties": {"id": {"type": "integer"}, "K": array}}
    decoder = decoder_of({"type": "object", "properties": {"camera": camera}})
    raw = raw_messages(
        [json.dumps({"camera": {"id": 1, "K": k}}).encode() for k in ([1, 2], [1, None], None)]
    )
    assert decoder.has_value(raw, FieldSpec(("camera",))).tolist() == [True, True, False]


def test_a_float_that_lacks_is_nan_in_arrays_and_objects():
    made = MESSAGES[0] | {"path": [{"x": 1.0}, {"x": None, "y": 2.0}], "position": {"y": 3.0}}
    np.testing.assert_array_equal(taken(decoder_of(), [made], "position")[0], [math.nan, 3])
    np.testing.assert_array_equal(taken(decoder_of(), [made], "path[].y")[0], [math.nan, 2])
    np.testing.assert_array_equal(taken(decoder_of(), [made], "path")[0]["y"], [math.nan, 2])
    assert math.isnan(taken(decoder_of(), [MESSAGES[0] | {"K": [1, None, 3, 4]}], "K")[0][1])
    assert taken(decoder_of(), [MESSAGES[0] | {"count": 7.0}], "count") == [7]


def test_a_float_too_large_for_float32_is_an_error_and_not_infinity():
    with pytest.raises(LogReadError, match="too large for float32"):
        taken(decoder_of(None, ""), [{"v": 1e39}], "v", dtype="float32")
    assert taken(decoder_of(None, ""), [b'{"v": Infinity}'], "v", dtype="float32") == [math.inf]


def test_payloads_that_are_no_json_object_dont_fit():
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    payloads = [b"{}", b"[]", b"", b"{", b"\xff{}", deep, b'{"a":' + b"1" * 5000 + b"}", '{"é": 1}'.encode()]
    fits = decoder_of().check(raw_messages(payloads)).tolist()
    assert fits == [True, False, False, False, False, False, False, True]
    assert decoder_of().header_time(raw_messages(payloads)).tolist() == [MIN_TIME] * len(payloads)


@pytest.mark.parametrize("schema", [b"{", b"\xff", b"[" * 100_000])
def test_a_schema_that_is_no_json_is_refused(schema):
    with pytest.raises(UnknownEncodingError, match="definition of toy"):
        JsonDecoder(TopicInfo("/topic", "toy", "json", "jsonschema", schema, 0, 0, 0))


def test_a_schema_that_unfolds_absurdly_is_refused(monkeypatch):
    monkeypatch.setattr("logloom.io.logs.messages.json.MAX_FIELDS", 1000)
    definitions = {
        f"l{i}": {"type": "object", "properties": {n: {"$ref": f"#/$defs/l{i + 1}"} for n in "ab"}}
        for i in range(40)
    }
    with pytest.raises(UnknownEncodingError, match="absurdly large"):
        decoder_of({"$ref": "#/$defs/l0", "$defs": definitions})


def test_mutated_messages_and_schemas_decode_or_are_refused():
    rng = random.Random(1)
    decoder, payload = decoder_of(), json.dumps(MESSAGES[3]).encode()
    schema = json.dumps(SCHEMA).encode()
    specs = [FieldSpec((path,)) for path in ("speed", "count", "name", "data", "boxes", "K", "timestamp")]
    for _ in range(by_tier(150, 2300)):
        raw = raw_messages([mutated(rng, payload)])
        if decoder.check(raw)[0]:
            decoder.header_time(raw)
            for spec in specs:
                with contextlib.suppress(LogReadError):
                    assert len(decoder.take(raw, spec)) == 1
    for _ in range(by_tier(150, 2300)):
        definition = mutated(rng, schema)
        with contextlib.suppress(UnknownEncodingError):
            JsonDecoder(TopicInfo("/topic", "toy", "json", "jsonschema", definition, 0, 0, 0))


def mutated(rng, data):
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        changed[rng.randrange(len(changed))] = rng.choice(b'0123456789"{}[],:.eEnull\\u\xff')
    return bytes(changed)


def test_messages_that_arent_json_are_salvaged_around(tmp_path):
    path = tmp_path / "drive.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("/j", "json", 0)
        for i, data in enumerate([b'{"x": 1}', b"{", b'{"x": 3}']):
            writer.add_message(channel, START + i, data, START + i)
        writer.finish()
    with pytest.raises(LogReadError, match="/j: its 1 bytes don't fit"):
        read_all(open_log([str(path)]))
    found = read_all(open_log([str(path)], OpenOptions(on_error="salvage")))["/j"]
    assert found.take(FieldSpec(("x",), dtype="int8"), np.arange(2)).tolist() == [1, 3]
    assert [refusal.log_time for refusal in found.refused] == [START + 1]


@pytest.fixture
def counted(monkeypatch):
    """Counts the messages that are parsed."""
    counts = []
    parse = JsonDecoder.parse
    monkeypatch.setattr(JsonDecoder, "parse", lambda self, payload: counts.append(1) or parse(self, payload))
    return counts


def test_a_message_is_parsed_once_however_many_columns_look_into_it(counted):
    decoder, raw = decoder_of(), raw_messages([json.dumps(m).encode() for m in MESSAGES])
    assert decoder.check(raw).all()
    decoder.header_time(raw)
    some = raw.take(np.array([7, 3, 3, 11]))
    for path in ("speed", "name", "boxes", "position"):
        assert len(decoder.take(some, FieldSpec((path,)))) == 4
    assert len(counted) == len(MESSAGES)
    assert decoder.take(some, FieldSpec(("speed",))).tolist() == [MESSAGES[i]["speed"] for i in (7, 3, 3, 11)]


def test_parsed_messages_are_kept_up_to_a_limit(counted, monkeypatch):
    payloads = [json.dumps(m).encode() for m in MESSAGES]
    monkeypatch.setattr(Parsed, "MAX_BYTES", sum(map(len, payloads[:5])))
    decoder, raw = decoder_of(), raw_messages(payloads)
    for _ in range(2):
        found = decoder.take(raw, FieldSpec(("speed",)))
        assert found.tolist() == [message["speed"] for message in MESSAGES]
    assert len(counted) > len(MESSAGES)
    assert len(raw.parsed._objects) <= 6


@pytest.mark.parametrize(
    ("path", "dtype", "value", "why"),
    [
        ("v", "float64", "on", "'on' is no number; write `dtype: string`"),
        ("v", "string", 3, "3 is no text; write `dtype: int64`"),
        ("v", "string", 2**63, "9223372036854775808 is no text; write `dtype: uint64`"),
        ("v", "string", 2**64, "18446744073709551616 is no text; write `dtype: float64`"),
        ("v", "bool", 1.5, "1.5 is neither true nor false; write `dtype: float64`"),
        ("v", "int64", 0.5, "0.5 is no int64; write `dtype: float64`"),
        ("v", "int8", True, "True is no number; write `dtype: bool`"),
        ("v", "float64", [1.5], '[1.5] is no number; write `field: "v[]"`, with the `dtype` of its elements'),
        ("v[]", "float64", 1.5, "1.5 is no array; write `field: v`"),
        ("v[]", "float64", [[1.5]], "[1.5] is no number; an array in an array can't be a column"),
        ("v", "float64", {"x": 1}, "{'x': 1} is no number; write `field: v.x`, or another of its properties"),
        (
            "v.x",
            "float64",
            [{"x": 1}],
            'is no object; write [] after the path of the array, as in `field: "v[].x"`',
        ),
        ("v.x", "float64", 1.5, "1.5 is no object; write `field: v`"),
    ],
)
def test_a_value_of_another_dtype_names_the_line_that_reads_it(path, dtype, value, why):
    decoder = JsonDecoder(TopicInfo("/topic", "", "json", "", b"", 0, 0, 0))
    with pytest.raises(LogReadError, match=re.escape(why)):
        decoder.take(raw_messages([json.dumps({"v": value}).encode()]), FieldSpec((path,), dtype=dtype))


def test_lists_within_lists_keep_both_lengths_and_fill_what_an_inner_one_lacks():
    number = {"type": "number"}
    result = {"type": "object", "properties": {"score": number, "name": {"type": "string"}}}
    results = {"type": "array", "items": result}
    detection = {
        "type": "object",
        "properties": {"results": results, "size": {"type": "array", "items": number}},
    }
    detections = {"type": "array", "items": detection}
    decoder = decoder_of({"type": "object", "properties": {"detections": detections}})
    scores = [[[1.5, 2.5], []], [], [[3.5]]]
    messages = [
        {
            "detections": [
                {"results": [{"score": s, "name": f"n{s}"} for s in one], "size": one} for one in row
            ]
        }
        for row in scores
    ]
    for path in ("detections[].results[].score", "detections[].size"):
        assert str(decoder.column_type(FieldSpec((path,)))) == "float64[?][?]"
        found = taken(decoder, messages, path)
        assert [[one.tolist() for one in row] for row in found] == scores
    first = taken(decoder, messages, "detections[].results[0].score")
    np.testing.assert_equal([row.tolist() for row in first], [[1.5, np.nan], [], [3.5]])
    names = taken(decoder, messages, "detections[].results[0].name")
    assert [row.tolist() for row in names] == [["n1.5", ""], [], ["n3.5"]]
    raw = raw_messages([json.dumps(message).encode() for message in messages])
    assert decoder.has_value(raw, FieldSpec(("detections[].results[0].score",))).all()
