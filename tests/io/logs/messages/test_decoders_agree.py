"""Our decoders give what rosbags, mcap-ros2-support and mcap-ros1-support give, message by message."""

import numpy as np
import pytest
from mcap.records import Schema
from mcap_ros1.decoder import DecoderFactory as Ros1Factory
from mcap_ros2.decoder import DecoderFactory as Ros2Factory
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from logloom.blocks import python_value
from logloom.errors import UsageError
from logloom.io.logs.interface import FieldSpec, TopicInfo
from logloom.io.logs.messages.definitions import Struct
from logloom.io.logs.messages.fields import paths
from logloom.io.logs.messages.ros.decoders import CdrDecoder, Ros1Decoder
from tests.io.logs.messages.payloads import raw_messages, same
from tests.tier import by_tier

STORES = {"cdr": get_typestore(Stores.ROS2_HUMBLE), "ros1": get_typestore(Stores.ROS1_NOETIC)}


def dtype_of(name):
    return {"bool": "?", "byte": "u1", "char": "u1"}.get(name, name)


def random_message(store, name, rng):
    """A message of any type in a store, with lengths that differ."""

    def value(desc):
        kind, inside = desc
        if kind == Nodetype.NAME:
            return random_message(store, inside, rng)
        if kind == Nodetype.BASE:
            return scalar(inside[0])
        element, length = inside[0], inside[1]
        if kind == Nodetype.SEQUENCE:
            length = int(rng.integers(0, min(length, 4) + 1 if length else 5))
        items = [value(element) for _ in range(length)]
        if element[0] == Nodetype.BASE and element[1][0] != "string":
            return np.array(items, dtype_of(element[1][0]))
        return items

    def scalar(kind):
        if kind == "string":
            return "".join(rng.choice(list("abc é漢"), rng.integers(0, 9)))
        if kind == "bool":
            return bool(rng.integers(2))
        if kind.startswith("float"):
            return float(np.dtype(kind).type(rng.normal()))
        info = np.iinfo(dtype_of(kind))
        value = int(rng.integers(info.min, info.max, dtype=info.dtype, endpoint=True))
        # Whether bytes and characters have a sign is not agreed upon.
        return value % 128 if kind in ("byte", "octet", "char") else value

    _, fields = store.fielddefs[name]
    made = {field: value(desc) for field, desc in fields}
    if name.startswith("builtin_interfaces/"):
        made = {field: int(rng.integers(0, 10**9)) for field in made}
    return store.types[name](**made)


def plain(value, kind, array=None):
    """A foreign value as numbers, texts, dicts and lists."""
    if array is not None:
        return [plain(item, kind) for item in value]
    if not isinstance(kind, Struct):
        return value.item() if isinstance(value, np.generic) else value
    if kind.is_time:
        seconds, nanoseconds = ("secs", "nsecs") if hasattr(value, "secs") else ("sec", "nanosec")
        return {"sec": getattr(value, seconds), "nanosec": getattr(value, nanoseconds)}
    return {field.name: plain(getattr(value, field.name), field.type, field.array) for field in kind.fields}


def at(value, path):
    name, _, rest = path.partition(".")
    found = value[name.removesuffix("[]")]
    if not rest:
        return found
    return [at(item, rest) for item in found] if name.endswith("[]") else at(found, rest)


def assert_reads_as(decoder, payloads, messages, per_buffer=5):
    """Every path of the definition reads as in the foreign messages; gives how many columns that were."""
    raw = raw_messages(payloads, per_buffer)
    assert decoder.check(raw).all()
    written = [plain(message, decoder.root) for message in messages]
    columns = 0
    for path in paths(decoder.root):
        spec = FieldSpec((path,))
        try:
            ctype = decoder.column_type(spec)
        except UsageError:
            continue
        values = decoder.take(raw, spec)
        assert len(values) == len(payloads)
        assert values.dtype == ctype.dtype, path
        columns += 1
        for i, message in enumerate(written):
            value, expected = python_value(values[i], ctype), at(message, path)
            if ctype.kind == "bytes":
                assert list(value) == [item % 256 for item in expected], (path, i)
            else:
                assert same(value, expected), (path, ctype, value, expected)
    return columns


def info_of(store, name, encoding):
    text, _ = store.generate_msgdef(name, ros_version=2 if encoding == "cdr" else 1)
    language = "ros2msg" if encoding == "cdr" else "ros1msg"
    return TopicInfo("/t", name, encoding, language, text.encode(), 0, 0, 0)


@pytest.mark.parametrize("encoding", ["cdr", "ros1"])
def test_every_type_of_a_distribution_reads_as_rosbags_reads_it(encoding):
    store, rng = STORES[encoding], np.random.default_rng(7)
    columns = 0
    for name in sorted(store.fielddefs)[:: by_tier(8, 1)]:
        messages = [random_message(store, name, rng) for _ in range(6)]
        if encoding == "cdr":
            payloads = [bytes(store.serialize_cdr(m, name)) for m in messages]
            messages = [store.deserialize_cdr(p, name) for p in payloads]
            decoder = CdrDecoder(info_of(store, name, encoding))
        else:
            payloads = [bytes(store.serialize_ros1(m, name)) for m in messages]
            messages = [store.deserialize_ros1(p, name) for p in payloads]
            decoder = Ros1Decoder(info_of(store, name, encoding))
        columns += assert_reads_as(decoder, payloads, messages)
    assert columns > by_tier(125, 1000)


def test_big_endian_messages_read_as_rosbags_reads_them():
    store, rng = STORES["cdr"], np.random.default_rng(8)
    for name in ("sensor_msgs/msg/Imu", "sensor_msgs/msg/PointCloud2", "tf2_msgs/msg/TFMessage"):
        messages = [random_message(store, name, rng) for _ in range(9)]
        payloads = [
            bytes(store.serialize_cdr(m, name, little_endian=i % 2 == 0)) for i, m in enumerate(messages)
        ]
        assert_reads_as(CdrDecoder(info_of(store, name, "cdr")), payloads, messages)


@pytest.mark.parametrize("encoding", ["cdr", "ros1"])
def test_messages_read_as_the_mcap_libraries_read_them(encoding):
    store, rng = STORES[encoding], np.random.default_rng(9)
    factory = Ros2Factory() if encoding == "cdr" else Ros1Factory()
    kinds = (
        "sensor_msgs/msg/JointState",
        "sensor_msgs/msg/CameraInfo",
        "diagnostic_msgs/msg/DiagnosticArray",
    )
    for number, name in enumerate(kinds, 1):
        info = info_of(store, name, encoding)
        short = name if encoding == "cdr" else name.replace("/msg/", "/")
        schema = Schema(id=number, name=short, encoding=info.definition_encoding, data=info.definition)
        decode = factory.decoder_for(encoding, schema)
        messages = [random_message(store, name, rng) for _ in range(9)]
        serialize = store.serialize_cdr if encoding == "cdr" else store.serialize_ros1
        payloads = [bytes(serialize(m, name)) for m in messages]
        decoder = CdrDecoder(info) if encoding == "cdr" else Ros1Decoder(info)
        assert_reads_as(decoder, payloads, [decode(p) for p in payloads])


# Every primitive type, text, arrays of every kind, sub-messages in each other, constants, empty messages.
EVERYTHING = """int32 LIMIT=7
string NAME=constant
bool flag
byte octet
char letter
int8 i8
uint8 u8
int16 i16
uint16 u16
int32 i32
uint32 u32
int64 i64
uint64 u64
float32 f32
float64 f64
string text
{time} stamp
{duration} delay
bool[3] flags
uint8[] data
int16[] counts
float64[5] five
string[] words
string[2] pair
test_msgs/Inner inner
test_msgs/Empty nothing
test_msgs/Inner[2] both
test_msgs/Inner[] many
test_msgs/Empty[] nothings
{bounded}uint8 last
"""
INNER = """float32 x
uint8 KIND=3
uint8 kind
test_msgs/Leaf[3] leaves
string label
test_msgs/Leaf[] more
int64 end
"""
LEAF = "float64 y\nint8 z\n"
WORDS = {
    "cdr": {
        "time": "builtin_interfaces/Time",
        "duration": "builtin_interfaces/Duration",
        "bounded": "string<=40 short\nfloat64[<=4] few\nstring<=40[<=3] tags\ntest_msgs/Leaf[<=2] some\n",
    },
    "ros1": {"time": "time", "duration": "duration", "bounded": ""},
}


def store_of_everything(encoding):
    store = get_typestore(Stores.ROS2_HUMBLE if encoding == "cdr" else Stores.ROS1_NOETIC)
    texts = {"Leaf": LEAF, "Empty": "uint8 NONE=0\n", "Inner": INNER}
    texts["Everything"] = EVERYTHING.format(**WORDS[encoding])
    types = {}
    for name, text in texts.items():
        types |= get_types_from_msg(text, f"test_msgs/msg/{name}")
    store.register(types)
    return store


@pytest.mark.parametrize("library", ["rosbags", "mcap"])
@pytest.mark.parametrize("encoding", ["cdr", "ros1"])
def test_every_kind_of_field_reads_as_the_libraries_read_it(encoding, library):
    store, rng, name = store_of_everything(encoding), np.random.default_rng(10), "test_msgs/msg/Everything"
    info = info_of(store, name, encoding)
    messages = [random_message(store, name, rng) for _ in range(by_tier(12, 40))]
    serialize = store.serialize_cdr if encoding == "cdr" else store.serialize_ros1
    payloads = [bytes(serialize(message, name)) for message in messages]
    if library == "rosbags":
        deserialize = store.deserialize_cdr if encoding == "cdr" else store.deserialize_ros1
        read = [deserialize(payload, name) for payload in payloads]
    else:
        factory = Ros2Factory() if encoding == "cdr" else Ros1Factory()
        short = name if encoding == "cdr" else name.replace("/msg/", "/")
        schema = Schema(id=1, name=short, encoding=info.definition_encoding, data=info.definition)
        decode = factory.decoder_for(encoding, schema)
        read = [decode(payload) for payload in payloads]
    decoder = CdrDecoder(info) if encoding == "cdr" else Ros1Decoder(info)
    assert assert_reads_as(decoder, payloads, read) >= 40


def test_the_shared_mcap_reads_as_the_mcap_library_reads_it(shared_data):
    from mcap.reader import make_reader

    with (shared_data / "logs" / "l5kit_scene.mcap").open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        topics = {}
        for schema, channel, message in reader.iter_messages():
            topics.setdefault(channel.topic, (schema, []))[1].append(message.data)
    factory = Ros2Factory()
    for name, (schema, payloads) in topics.items():
        info = TopicInfo(name, schema.name, "cdr", schema.encoding, schema.data, len(payloads), 0, 0)
        decode = factory.decoder_for("cdr", schema)
        some = payloads[:: by_tier(16, 4)]
        assert_reads_as(CdrDecoder(info), some, [decode(p) for p in some], per_buffer=50)


@pytest.mark.parametrize("bag", ["tilt_laser", "turtlesim"])
def test_the_shared_bags_read_as_rosbags_and_the_mcap_library_read_them(shared_data, bag):
    from rosbags.rosbag1 import Reader

    topics = {}
    with Reader(shared_data / "logs" / f"{bag}.bag") as reader:
        for connection, _, data in reader.messages():
            topics.setdefault((connection.topic, connection.id), (connection, []))[1].append(bytes(data))
    for connection, payloads in topics.values():
        store = get_typestore(Stores.EMPTY)
        text, name = connection.msgdef.data, connection.msgtype
        store.register(get_types_from_msg(text, name))
        info = TopicInfo(connection.topic, name, "ros1", "ros1msg", text.encode(), len(payloads), 0, 0)
        some = payloads[:: by_tier(20, 5)]
        decoder = Ros1Decoder(info)
        assert_reads_as(decoder, some, [store.deserialize_ros1(p, name) for p in some], per_buffer=40)
        schema = Schema(id=1, name=name.replace("/msg/", "/"), encoding="ros1msg", data=text.encode())
        # A factory of its own, since factories remember definitions by id.
        decode = Ros1Factory().decoder_for("ros1", schema)
        assert_reads_as(decoder, some[:20], [decode(p) for p in some[:20]])
