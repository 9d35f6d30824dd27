"""Decoding CDR and ROS 1: equal to what was serialised, whatever the definition, and never past the end."""

import pickle
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logloom.blocks import python_value
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import MIN_TIME, FieldSpec
from logloom.io.logs.messages.definitions import ROS1_TYPES, ROS2_TYPES, Array, Field, Number, Struct, Text
from logloom.io.logs.messages.fields import paths
from logloom.io.logs.messages.ros.decoders import CdrDecoder, Ros1Decoder
from tests.io.logs.messages.payloads import raw_messages, same, serialize, topic

NUMBERS = [
    *("bool", "byte", "char", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float32", "float64"),
]


def decoder(root: Struct, encoding: str):
    """A decoder of a tree, by way of its text."""
    texts: dict[str, str] = {}

    def write(struct_: Struct) -> None:
        lines = []
        for field in struct_.fields:
            kind = field.type
            if isinstance(kind, Struct):
                name = kind.name
                if not kind.is_time:
                    write(kind)
            elif isinstance(kind, Text):
                name = ("wstring" if kind.wide else "string") + (f"<={kind.bound}" if kind.bound else "")
            else:
                name = next(n for n in NUMBERS if TYPES[encoding][n] == kind)
            array = field.array
            if array is not None:
                inside = "" if array.length is None else array.length
                name += f"[<={array.bound}]" if array.bound else f"[{inside}]"
            lines.append(f"{name} {field.name}")
        texts[struct_.name] = "\n".join(lines)

    write(root)
    first = texts.pop(root.name)
    text = first + "".join(f"\n{'=' * 80}\nMSG: {name}\n{body}\n" for name, body in texts.items())
    kind, language = (CdrDecoder, "ros2msg") if encoding == "cdr" else (Ros1Decoder, "ros1msg")
    return kind(topic(text, encoding, language, root.name))


TYPES = {"cdr": ROS2_TYPES, "ros1": ROS1_TYPES}


@st.composite
def structs(draw, encoding, depth=3, name="pkg/Root", sequences=True):
    fields = []
    for i in range(draw(st.integers(0 if depth < 3 else 1, 5))):
        choice = draw(st.integers(0, 9))
        if choice < 5 or depth == 0:
            kind = TYPES[encoding][draw(st.sampled_from(NUMBERS))]
        elif choice == 5:
            kind = Text(wide=encoding == "cdr" and draw(st.booleans()), bound=None)
        elif choice == 6:
            kind = TYPES[encoding][draw(st.sampled_from(["time", "duration"]))]
        else:
            inner = draw(st.booleans())
            kind = draw(structs(encoding, depth - 1, f"{name}{i}", inner and sequences))
        array = draw(st.sampled_from([None, None, Array(length=2), Array(length=3), Array(), Array(bound=5)]))
        if encoding == "ros1" and array is not None and array.bound:
            array = Array()
        if not sequences and array is not None and array.length is None:
            array = Array(length=2)
        fields.append(Field(f"f{i}", kind, array))
    return Struct(name, tuple(fields))


def values_of(kind, array):
    if array is not None:
        low, high = (array.length, array.length) if array.length is not None else (0, array.bound or 4)
        return st.lists(values_of(kind, None), min_size=low, max_size=high)
    if isinstance(kind, Text):
        return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
    if isinstance(kind, Struct):
        names = [field.name for field in kind.fields]
        parts = [values_of(field.type, field.array) for field in kind.fields]
        if kind.is_time:
            parts = [st.integers(0, 2**31 - 1), st.integers(0, 10**9 - 1)]
        return st.tuples(*parts).map(lambda values: dict(zip(names, values, strict=True)))
    assert isinstance(kind, Number)
    if kind.dtype.kind == "b":
        return st.booleans()
    if kind.dtype.kind == "f":
        return st.floats(width=kind.dtype.itemsize * 8)
    info = np.iinfo(kind.dtype)
    return st.integers(int(info.min), int(info.max))


def expected_at(value, path):
    """What a path means, element by element."""
    name, _, rest = path.partition(".")
    field = value[name.removesuffix("[]")]
    if not rest:
        return field
    return [expected_at(item, rest) for item in field] if name.endswith("[]") else expected_at(field, rest)


def agree(actual, ctype, expected):
    value = python_value(actual, ctype)
    return value == bytes(item % 256 for item in expected) if ctype.kind == "bytes" else same(value, expected)


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data(), encoding=st.sampled_from(["cdr", "ros1"]))
def test_every_path_of_any_definition_reads_what_was_written(data, encoding):
    root = data.draw(structs(encoding))
    decode = decoder(root, encoding)
    messages = data.draw(st.lists(values_of(root, None), min_size=1, max_size=12))
    if data.draw(st.booleans()):
        messages = [messages[0]] * 9 + messages
    orders = ["<", ">"] if encoding == "cdr" else ["<"]
    payloads = [
        serialize(root, m, data.draw(st.sampled_from(orders)), encoding, data.draw(st.integers(0, 3)))
        for m in messages
    ]
    raw = raw_messages(payloads, data.draw(st.integers(1, 30)))
    assert decode.check(raw).all()
    for path in paths(root):
        spec = FieldSpec((path,))
        try:
            ctype = decode.column_type(spec)
        except UsageError:
            continue
        values = decode.take(raw, spec)
        assert len(values) == len(messages)
        assert values.dtype == ctype.dtype, path
        for i, message in enumerate(messages):
            assert agree(values[i], ctype, expected_at(message, path)), (
                path,
                ctype,
                values[i],
                expected_at(message, path),
            )


TRACKS = """std_msgs/Header header
Track[] tracks
uint8[] blob
string<=8 note
float64[<=3] few
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: pkg/Track
uint32 id
string label
float64[2] size
geometry_msgs/Point[] hull
================================================================================
MSG: geometry_msgs/Point
float64 x
float64 y
float64 z
"""


def track(number, hull=2):
    points = [{"x": float(i), "y": -float(i), "z": number / 4} for i in range(hull)]
    return {"id": number, "label": f"car{number}", "size": [number / 2, 1.5], "hull": points}


def tracks(number, count=3, note="ok", few=2):
    return {
        "header": {"stamp": {"sec": number, "nanosec": 5}, "frame_id": "map" * (number % 3)},
        "tracks": [track(i, i % 3) for i in range(count)],
        "blob": list(range(number % 7)),
        "note": note,
        "few": [0.5] * few,
    }


TRACK_PATHS = [
    "header",
    "header.stamp",
    "tracks[].id",
    "tracks[].label",
    "tracks[].size",
    "blob",
    "note",
    "few",
]


def take_or_error(decode, raw, path):
    try:
        values = decode.take(raw, FieldSpec((path,)))
        return [np.asarray(row).tobytes() for row in values]
    except LogReadError as error:
        return str(error)


@given(data=st.data(), order=st.sampled_from("<>"))
def test_damaged_messages_never_read_beyond_their_end(data, order):
    decode = CdrDecoder(topic(TRACKS))
    payloads = [serialize(decode.root, tracks(i, i % 4), order) for i in range(6)]
    for _ in range(data.draw(st.integers(1, 4))):
        which = data.draw(st.integers(0, 5))
        payload = bytearray(payloads[which])
        if data.draw(st.booleans()):
            del payload[data.draw(st.integers(0, len(payload))) :]
        elif len(payload) >= 8:
            at = data.draw(st.integers(0, len(payload) - 4))
            payload[at : at + 4] = struct.pack(
                "<I", data.draw(st.sampled_from([0, 1, 5, 255, 2**31, 2**32 - 1]))
            )
        payloads[which] = bytes(payload)
    outcomes = []
    for filler in (b"\x00", b"\xff", b"\x01"):
        raw = raw_messages(payloads, per_buffer=4, gap=filler * 70)
        fits = decode.check(raw)
        stamps = decode.header_time(raw)
        outcomes.append(
            (fits.tolist(), stamps.tolist(), [take_or_error(decode, raw, p) for p in TRACK_PATHS])
        )
        whole = raw.take(np.flatnonzero(fits))
        assert decode.check(whole).all()
        one_by_one = [decode.check(raw.take(np.array([i])))[0] for i in range(6)]
        assert one_by_one == fits.tolist()
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("encoding", ["cdr", "ros1"])
def test_a_message_cut_anywhere_is_refused_with_its_place(encoding):
    text = TRACKS.replace("string<=8", "string").replace("float64[<=3]", "float64[]")
    kind = CdrDecoder if encoding == "cdr" else Ros1Decoder
    text = text if encoding == "cdr" else text.replace("builtin_interfaces/Time", "time")
    decode = kind(topic(text, encoding, "ros2msg" if encoding == "cdr" else "ros1msg"))
    value = tracks(4)
    if encoding == "ros1":
        value["header"]["stamp"] = {"secs": 4, "nsecs": 5}
    whole = serialize(decode.root, value, encoding=encoding)
    for length in range(len(whole)):
        raw = raw_messages([whole, whole[:length], whole])
        assert decode.check(raw).tolist() == [True, False, True]
        with pytest.raises(LogReadError, match=r"drive.mcap: chunk 0, /topic message at offset \d+ in it"):
            decode.take(raw, FieldSpec(("header.stamp",)))
    longer = raw_messages([whole + b"\0" * n for n in range(6)])
    assert decode.check(longer).tolist() == [n <= (3 if encoding == "cdr" else 0) for n in range(6)]


def test_a_count_that_lies_is_refused_before_anything_is_allocated():
    for definition in (
        "float64[] f",
        "string[] f",
        "pkg/E[] f\n====\nMSG: pkg/E\nuint8[] g\nuint8 h",
        "string f",
    ):
        decode = CdrDecoder(topic(definition))
        payload = b"\x00\x01\x00\x00" + struct.pack("<I", 2**32 - 1) + bytes(64)
        raw = raw_messages([payload] * 3)
        assert not decode.check(raw).any()
        with pytest.raises(LogReadError, match="ends before its definition does"):
            decode.take(raw, FieldSpec(("f" if "E" not in definition else "f[].h",)))


def test_counts_of_the_largest_elements_dont_wrap_around():
    decode = CdrDecoder(topic("Big[] f\nuint8 last\n===\nMSG: pkg/Big\nuint8 a\nfloat64[60000000] b"))
    bodies = [struct.pack("<II", count, 0) + bytes(90) for count in (2**32 - 1, 2**31, 1, 2**29)]
    raw = raw_messages([b"\x00\x01\x00\x00" + body for body in bodies])
    assert not decode.check(raw).any()
    with pytest.raises(LogReadError, match="and 3 more"):
        decode.take(raw, FieldSpec(("last",)))


def test_bounds_of_text_and_arrays_are_kept():
    decode = CdrDecoder(topic(TRACKS))
    messages = [tracks(1), tracks(1, note="longer than 8"), tracks(1, few=4)]
    raw = raw_messages([serialize(decode.root, m) for m in messages])
    assert decode.check(raw).tolist() == [True, False, False]


def test_text_without_its_zero_byte_or_that_is_no_utf8_is_refused():
    decode = CdrDecoder(topic("string f"))
    good = serialize(decode.root, {"f": "abc"})
    raw = raw_messages([good, good[:-1] + b"d", good.replace(b"abc", b"\xff\xfe\xfd")])
    assert decode.check(raw).tolist() == [True, False, True]  # a check of lengths, not of values
    with pytest.raises(LogReadError, match="UTF-8"):
        decode.take(raw.take(np.array([0, 2])), FieldSpec(("f",)))


def test_other_encapsulations_than_plain_cdr_are_refused():
    decode = CdrDecoder(topic("uint32 f"))
    kinds = [b"\x00\x01", b"\x00\x00", b"\x00\x03", b"\x00\x07", b"\x01\x01"]
    raw = raw_messages([kind + b"\0\0" + b"\1\0\0\0" for kind in kinds])
    assert decode.check(raw).tolist() == [True, True, False, False, False]
    with pytest.raises(LogReadError, match="only plain CDR"):
        decode.take(raw, FieldSpec(("f",)))
    assert decode.take(raw.take(np.array([0, 1])), FieldSpec(("f",))).tolist() == [1, 1 << 24]


def test_messages_taken_in_any_order_come_in_that_order():
    decode = CdrDecoder(topic(TRACKS))
    raw = raw_messages([serialize(decode.root, tracks(i), "<>"[i % 2]) for i in range(40)], per_buffer=9)
    rows = np.random.default_rng(1).permutation(40)
    shuffled = raw.take(rows)
    assert (decode.take(shuffled, FieldSpec(("header.stamp",))) == rows * 10**9 + 5).all()
    blobs = decode.take(shuffled, FieldSpec(("blob",)))
    assert [len(blob) for blob in blobs] == [row % 7 for row in rows]


def test_long_bytes_stay_views_of_their_buffer():
    decode = CdrDecoder(topic("uint8[] data\nuint8 behind"))
    raw = raw_messages([serialize(decode.root, {"data": [i] * 1000, "behind": 1}) for i in range(5)])
    data = decode.take(raw, FieldSpec(("data",)))
    assert all(np.shares_memory(row, raw.buffers[0]) for row in data)
    assert [row.tolist() for row in data] == [[i] * 1000 for i in range(5)]


def test_nan_bits_pass_untouched():
    decode = CdrDecoder(topic("float32 a\nfloat64 b"))
    bits = struct.pack("<IxxxxQ", 0x7FA12345, 0x7FF4000000ABCDEF)
    swapped = b"\0\0\0\0" + struct.pack(">IxxxxQ", 0x7FA12345, 0x7FF4000000ABCDEF)
    raw = raw_messages([b"\0\1\0\0" + bits, swapped])
    assert decode.take(raw, FieldSpec(("a",))).view("<u4").tolist() == [0x7FA12345] * 2
    assert decode.take(raw, FieldSpec(("b",))).view("<u8").tolist() == [0x7FF4000000ABCDEF] * 2


BYTES_IN_LISTS = """Item[] items
Item[2] two
================================================================================
MSG: pkg/Item
byte[] data
Part[] parts
================================================================================
MSG: pkg/Part
byte[] data
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("items[].data", [[-1, 2], []]),
        ("items[0:1].data", [[-1, 2]]),
        ("items[0].data", [-1, 2]),
        ("items[0].parts[].data", [[-3], [-4]]),
        ("items[0].parts[1].data", [-4]),
        ("two[].data", [[5, -6], [-7]]),
        ("two[1].data", [-7]),
        ("two[].data[0]", [5, -7]),
    ],
)
def test_bytes_of_ros1_in_lists_have_a_sign(path, expected):
    decode = Ros1Decoder(topic(BYTES_IN_LISTS, "ros1", "ros1msg", "pkg/Root"))
    items = [
        {"data": [-1, 2], "parts": [{"data": [-3]}, {"data": [-4]}]},
        {"data": [], "parts": []},
    ]
    two = [{"data": [5, -6], "parts": []}, {"data": [-7], "parts": []}]
    raw = raw_messages([serialize(decode.root, {"items": items, "two": two}, encoding="ros1")] * 3)
    spec = FieldSpec((path,))
    values, ctype = decode.take(raw, spec), decode.column_type(spec)
    assert values.dtype == ctype.dtype == np.int8
    assert len(values) == 3
    assert all(same(python_value(value, ctype), expected) for value in values)


def test_fields_of_one_type_lie_side_by_side():
    decode = CdrDecoder(
        topic("pkg/V a\nstring s\nfloat64 b\nfloat64[2] c\n===\nMSG: pkg/V\nfloat64 x\nfloat64 y")
    )
    value = {"a": {"x": 1.0, "y": 2.0}, "s": "text", "b": 3.0, "c": [4.0, 5.0]}
    raw = raw_messages([serialize(decode.root, value)] * 10, per_buffer=3)
    spec = FieldSpec(("c", "a", "b"))
    assert decode.column_type(spec).shape == (5,)
    assert decode.take(raw, spec).tolist() == [[4.0, 5.0, 1.0, 2.0, 3.0]] * 10
    with pytest.raises(UsageError, match="one number type"):
        decode.column_type(FieldSpec(("a", "s")))


def test_fields_of_the_elements_of_one_array_lie_side_by_side():
    decode = CdrDecoder(topic(TRACKS))
    raw = raw_messages([serialize(decode.root, tracks(1, n)) for n in (0, 2, 5)])
    spec = FieldSpec(("tracks[].size", "tracks[].size[1]"))
    assert decode.column_type(spec).shape == (None, 3)
    assert [row.tolist() for row in decode.take(raw, spec)] == [
        [[i / 2, 1.5, 1.5] for i in range(n)] for n in (0, 2, 5)
    ]
    with pytest.raises(UsageError, match="other shapes"):
        decode.column_type(FieldSpec(("few", "tracks[].size[1]")))


def test_text_in_arrays_longer_than_the_column_keeps_is_an_error_with_its_value():
    decode = CdrDecoder(topic(TRACKS))
    raw = raw_messages([serialize(decode.root, tracks(1, 12))])
    assert decode.take(raw, FieldSpec(("tracks[].label",), strings=5))[0][11] == "car11"
    with pytest.raises(LogReadError, match=r"'car10' has 5 characters, the column keeps 4; raise `strings`"):
        decode.take(raw, FieldSpec(("tracks[].label",), strings=4))


def test_the_stamp_is_found_in_headers_timestamps_and_first_transforms():
    stamped = {
        "std_msgs/Header header\n===\nMSG: std_msgs/Header\ntime stamp\nstring frame_id": {
            "header": {"stamp": {"sec": -2, "nanosec": 7}, "frame_id": "x"}
        },
        "string late\ntime timestamp": {"late": "abc", "timestamp": {"sec": -2, "nanosec": 7}},
    }
    for definition, value in stamped.items():
        decode = CdrDecoder(topic(definition))
        assert decode.time_source(("header", "log")) == "header"
        whole = serialize(decode.root, value)
        raw = raw_messages([whole, whole[:9], b"", whole[:3], whole])
        at = -2 * 10**9 + 7
        assert decode.header_time(raw).tolist() == [at, MIN_TIME, MIN_TIME, MIN_TIME, at]
    plain = CdrDecoder(topic("float64 timestamp\nfloat64 x"))
    assert plain.time_source(("header", "log")) == "log"
    assert plain.time_source(("header",)) is None


def test_the_stamp_of_transforms_is_that_of_the_first():
    decode = CdrDecoder(topic(TF, name="tf2_msgs/msg/TFMessage"))
    messages = [{"transforms": [transform(i) for i in range(5, 5 + n)]} for n in (2, 0, 1)]
    raw = raw_messages([serialize(decode.root, m) for m in messages])
    assert decode.time_source(("header",)) == "header"
    assert decode.header_time(raw).tolist() == [5 * 10**9, MIN_TIME, 5 * 10**9]


TF = """geometry_msgs/TransformStamped[] transforms
===
MSG: geometry_msgs/TransformStamped
std_msgs/Header header
string child_frame_id
Transform transform
===
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
===
MSG: geometry_msgs/Transform
Vector3 translation
Quaternion rotation
===
MSG: geometry_msgs/Vector3
float64 x
float64 y
float64 z
===
MSG: geometry_msgs/Quaternion
float64 x
float64 y
float64 z
float64 w
"""


def transform(number):
    translation = {"x": 1.0 * number, "y": 2.0, "z": 3.0}
    rotation = {"x": 0.0, "y": 0.0, "z": 0.5, "w": 1.0 * number}
    return {
        "header": {"stamp": {"sec": number, "nanosec": 0}, "frame_id": f"parent{number}"},
        "child_frame_id": "child",
        "transform": {"translation": translation, "rotation": rotation},
    }


def test_transforms_come_as_parent_child_translation_rotation():
    decode = CdrDecoder(topic(TF))
    raw = raw_messages(
        [serialize(decode.root, {"transforms": [transform(i) for i in range(n)]}) for n in (2, 0)]
    )
    spec = FieldSpec(adapter="transforms")
    rows = decode.take(raw, spec)
    assert rows.dtype == decode.column_type(spec).dtype
    assert [len(row) for row in rows] == [2, 0]
    parent, child, translation, rotation = rows[0][1]
    assert (parent, child) == ("parent1", "child")
    assert (translation.tolist(), rotation.tolist()) == ([1.0, 2.0, 3.0], [0.0, 0.0, 0.5, 1.0])


def test_a_decoder_pickles_into_workers():
    decode = pickle.loads(pickle.dumps(CdrDecoder(topic(TRACKS))))
    raw = raw_messages([serialize(decode.root, tracks(3))])
    assert decode.take(raw, FieldSpec(("note",)))[0].tobytes() == b"ok"


def test_no_messages_give_empty_columns():
    decode = CdrDecoder(topic(TRACKS))
    raw = raw_messages([])
    assert len(decode.take(raw, FieldSpec(("tracks[].id",)))) == 0
    assert decode.take(raw, FieldSpec(("header.stamp",))).shape == (0,)
    assert decode.check(raw).shape == decode.header_time(raw).shape == (0,)


def test_many_small_buffers_read_as_one():
    decode = CdrDecoder(topic(TRACKS))
    payloads = [serialize(decode.root, tracks(i)) for i in range(50)]
    payloads[20] = payloads[20][:-9]
    raw = raw_messages(payloads, per_buffer=1)
    assert np.flatnonzero(~decode.check(raw)).tolist() == [20]
    fits = raw.take(np.flatnonzero(decode.check(raw)))
    assert (decode.take(fits, FieldSpec(("header.stamp",))) // 10**9 == np.delete(np.arange(50), 20)).all()
    with pytest.raises(LogReadError, match="chunk 20, /topic message at offset"):
        decode.take(raw, FieldSpec(("header.stamp",)))


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("encoding", ["cdr", "ros1"])
def test_messages_of_large_buffers_read_as_each_alone(encoding, uneven):
    kind = {"cdr": CdrDecoder, "ros1": Ros1Decoder}[encoding]
    language = {"cdr": "ros2msg", "ros1": "ros1msg"}[encoding]
    decode = kind(topic("string name\nfloat32[3] three\nfloat64[] x\nuint8 k", encoding, language))
    rng = np.random.default_rng(3)
    payloads = []
    for i in range(300):
        length = int(rng.integers(0, 6)) if uneven else 2
        name = "n" * (i % 5 if uneven else 4)
        value = {"name": name, "three": [i, 1, 2], "x": [i / 2] * length, "k": i % 256}
        payloads.append(serialize(decode.root, value, encoding=encoding))
    raw = raw_messages(payloads, per_buffer=100)
    assert decode.check(raw).all()
    alone = [raw_messages([payload]) for payload in payloads]
    for spec in (FieldSpec(("name",)), FieldSpec(("three",)), FieldSpec(("x",)), FieldSpec(("k",))):
        values = decode.take(raw, spec)
        for i, one in enumerate(alone):
            assert np.asarray(decode.take(one, spec)[0]).tobytes() == np.asarray(values[i]).tobytes()


def test_damage_of_many_kinds_in_one_buffer_leaves_the_others_as_they_are():
    fields = "\n".join(f"string s{i}" for i in range(14))
    decode = CdrDecoder(topic(fields))
    payload = serialize(decode.root, {f"s{i}": "abc" for i in range(14)})
    payloads = [bytearray(payload) for _ in range(200)]
    for i in range(14):  # each of them is found in another field
        struct.pack_into("<I", payloads[3 * i], 4 + 8 * i, 1 << 30)
    raw = raw_messages([bytes(payload) for payload in payloads], per_buffer=100)
    assert np.flatnonzero(~decode.check(raw)).tolist() == [3 * i for i in range(14)]
