"""Protobuf messages give what mcap-protobuf-support gives, and damage never a wrong value."""

import builtins
import contextlib
import importlib
import random
import sys

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Kind
from mcap.reader import make_reader
from mcap_protobuf.decoder import DecoderFactory
from mcap_protobuf.writer import Writer

from logloom.blocks import python_value
from logloom.errors import LogReadError, UnknownEncodingError, UsageError
from logloom.io.logs.interface import MIN_TIME, FieldSpec, OpenOptions, TopicInfo
from logloom.io.logs.messages.protobuf import ProtobufDecoder
from logloom.io.logs.opening import open_log
from tests.io.logs.making import SECOND, START, read_all
from tests.io.logs.messages.payloads import raw_messages
from tests.tier import by_tier

NUMBERS = ["double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"]
NUMBERS += ["fixed32", "fixed64", "sfixed32", "sfixed64", "bool"]
TIMESTAMP = ".google.protobuf.Timestamp"


def message_type(name, *fields):
    """A message of fields (name, type, and "repeated" where it is)."""
    made = descriptor_pb2.DescriptorProto(name=name)
    for number, (field, kind, *repeated) in enumerate(fields, 1):
        label = Kind.LABEL_REPEATED if repeated else Kind.LABEL_OPTIONAL
        added = made.field.add(name=field, number=number, label=label)
        if kind.startswith("."):
            added.type, added.type_name = Kind.TYPE_MESSAGE, kind
        elif kind == "Color":
            added.type, added.type_name = Kind.TYPE_ENUM, ".toy.Color"
        else:
            added.type = getattr(Kind, f"TYPE_{kind.upper()}")
    return made


def definitions(*messages):
    """(definition as a log holds it, message classes by name)."""
    file = descriptor_pb2.FileDescriptorProto(name="toy.proto", package="toy", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=7)
    file.message_type.extend(messages)
    files = descriptor_pb2.FileDescriptorSet(file=[file])  # before what it needs: any order must do
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    pool = descriptor_pool.DescriptorPool()
    for each in reversed(files.file):
        pool.Add(each)
    found = pool.FindFileByName("toy.proto").message_types_by_name
    classes = {name: message_factory.GetMessageClass(each) for name, each in found.items()}
    return files.SerializeToString(), classes


ALL = [
    message_type("Point", ("x", "double"), ("y", "double")),
    message_type("Box", ("name", "string"), ("size", ".toy.Point"), ("color", "Color")),
    message_type(
        "Everything",
        ("timestamp", TIMESTAMP),
        *((f"a_{kind}", kind) for kind in NUMBERS),
        *((f"many_{kind}", kind, "repeated") for kind in NUMBERS),
        ("text", "string"),
        ("data", "bytes"),
        ("color", "Color"),
        ("point", ".toy.Point"),
        ("boxes", ".toy.Box", "repeated"),
        ("parent", ".toy.Everything"),
    ),
]
DEFINITION, CLASSES = definitions(*ALL)


def random_everything(rng, empty=False):
    message = CLASSES["Everything"]()
    if empty:
        return message
    message.timestamp.FromNanoseconds(START + rng.randrange(10**10))

    def number(kind):
        if kind == "bool":
            return rng.random() < 0.5
        if kind in ("double", "float"):
            return float(np.float32(rng.gauss(0, 1e10)))
        bits = 32 if "32" in kind else 64
        return rng.randrange(2**bits) - (0 if kind.startswith(("u", "f")) else 2 ** (bits - 1))

    for kind in NUMBERS:
        if rng.random() < 0.8:
            setattr(message, f"a_{kind}", number(kind))
        getattr(message, f"many_{kind}").extend(number(kind) for _ in range(rng.randrange(5)))
    message.text = rng.choice(["", "plain", "naïve 漢字"])
    message.data = rng.randbytes(rng.randrange(40))
    message.color = rng.choice([0, 7])
    message.point.x = rng.random()
    for i in range(rng.randrange(4)):
        message.boxes.add(name=f"box {i}", color=7 * (i % 2)).size.y = i / 3
    return message


def info(name, definition=DEFINITION, encoding="protobuf"):
    return TopicInfo("/topic", name, "protobuf", encoding, definition, 0, 0, 0)


def taken(decoder, messages, *paths, **options):
    spec = FieldSpec(paths, **options)
    values = decoder.take(raw_messages([m.SerializeToString() for m in messages]), spec)
    ctype = decoder.column_type(spec)
    assert values.dtype == ctype.dtype
    return [python_value(values[row], ctype) for row in range(len(values))]


def test_every_kind_of_field_equals_what_mcap_protobuf_support_reads(tmp_path):
    rng = random.Random(0)
    messages = [random_everything(rng, empty=i % 9 == 0) for i in range(60)]
    path = tmp_path / "drive.mcap"
    with path.open("wb") as file, Writer(file) as writer:
        for i, message in enumerate(messages):
            writer.write_message("/all", message, START + i * SECOND, START + i * SECOND - 5)
    with path.open("rb") as file:
        read = make_reader(file, decoder_factories=[DecoderFactory()]).iter_decoded_messages()
        theirs = [each.decoded_message for each in read]
    found = read_all(open_log([str(path)]))["/all"]
    assert len(found) == len(theirs) == 60
    rows = np.arange(60)
    for field in [*(f"{a}_{kind}" for a in ("a", "many") for kind in NUMBERS), "color"]:
        values = found.take(FieldSpec((field,)), rows)
        for row, message in enumerate(theirs):
            np.testing.assert_array_equal(values[row], getattr(message, field))
    for field, decode in (("text", lambda row: row.tobytes().decode()), ("data", lambda row: row.tobytes())):
        values = found.take(FieldSpec((field,)), rows)
        assert [decode(values[row]) for row in rows] == [getattr(message, field) for message in theirs]
    points = found.take(FieldSpec(("point",)), rows)
    assert points.tolist() == [[message.point.x, message.point.y] for message in theirs]
    boxes = found.take(FieldSpec(("boxes",)), rows)
    for row, message in enumerate(theirs):
        wanted = [(box.name, (box.size.x, box.size.y), box.color) for box in message.boxes]
        assert boxes[row].tolist() == wanted
    sizes = found.take(FieldSpec(("boxes[].size.y", "boxes[].size.x")), rows)
    assert [row.tolist() for row in sizes] == [[[b.size.y, b.size.x] for b in m.boxes] for m in theirs]
    stamps = found.take(FieldSpec(("timestamp",)), rows)
    assert stamps.tolist() == [message.timestamp.ToNanoseconds() for message in theirs]


def test_the_timestamp_of_a_foxglove_message_is_its_header_time():
    decoder = ProtobufDecoder(info("toy.Everything"))
    messages = [random_everything(random.Random(i)) for i in range(3)]
    raw = raw_messages([m.SerializeToString() for m in messages] + [b"\xff"])
    assert decoder.time_source(("header", "log")) == "header"
    assert ProtobufDecoder(info("toy.Point")).time_source(("header", "log")) == "log"
    times = [m.timestamp.ToNanoseconds() for m in messages]
    assert decoder.header_time(raw).tolist() == [*times, MIN_TIME]
    assert decoder.check(raw).tolist() == [True, True, True, False]


def test_a_time_beyond_64_bits_is_refused_and_never_wraps():
    decoder = ProtobufDecoder(info("toy.Everything"))
    message = CLASSES["Everything"]()
    message.timestamp.seconds = 1 << 40
    assert decoder.header_time(raw_messages([message.SerializeToString()])).tolist() == [MIN_TIME]
    with pytest.raises(LogReadError, match=r"field 'timestamp'.*leave the range of int64"):
        taken(decoder, [message], "timestamp")


def test_unknown_fields_are_passed_over():
    newer, classes = definitions(message_type("Point", ("x", "double"), ("y", "double"), ("z", "string")))
    del newer
    message = classes["Point"](x=1, y=2, z="new")
    assert np.array_equal(taken(ProtobufDecoder(info("toy.Point")), [message], "x", "y"), [[1, 2]])


def test_a_message_whose_field_isnt_set_has_no_value_where_a_field_can_be_unset():
    optional = message_type("Reading", ("speed", "double"), ("gear", "int32"), ("at", ".toy.Point"))
    optional.oneof_decl.add(name="_speed")
    optional.field[0].proto3_optional, optional.field[0].oneof_index = True, 0
    definition, classes = definitions(ALL[0], optional)
    messages = [classes["Reading"](), classes["Reading"](speed=0.0), classes["Reading"](speed=2.5)]
    messages[2].at.x = 0.0  # set, to its default
    raw = raw_messages([*(m.SerializeToString() for m in messages), b"\xff"])
    decoder = ProtobufDecoder(info("toy.Reading", definition))

    def has_value(*paths):
        return decoder.has_value(raw, FieldSpec(paths)).tolist()

    assert has_value("speed") == [False, True, True, True]  # the last one is refused when it is taken
    assert has_value("at.y") == has_value("at") == [False, False, True, True]
    assert has_value("speed", "at.x") == [False, False, True, True]
    assert decoder.has_value(raw, FieldSpec(("gear",))) is None
    assert taken(decoder, messages, "gear") == [0, 0, 0]


def test_a_float_that_isnt_set_is_nan_within_what_is_taken_whole():
    part = message_type("Part", ("x", "double"), ("y", "float"), ("n", "int32"))
    for i, name in enumerate(("y", "n"), start=1):
        part.oneof_decl.add(name=f"_{name}")
        part.field[i].proto3_optional, part.field[i].oneof_index = True, i - 1
    whole = message_type("Whole", ("part", ".toy.Part"), ("parts", ".toy.Part", "repeated"))
    definition, classes = definitions(ALL[0], part, whole)
    message = classes["Whole"](part={"x": 1.0}, parts=[{"y": 0.0}, {"n": 3}])
    decoder = ProtobufDecoder(info("toy.Whole", definition))
    assert decoder.has_value(
        raw_messages([message.SerializeToString()]), FieldSpec(("part.y",))
    ).tolist() == [0]
    (row,) = taken(decoder, [message], "part")
    assert (row["x"], np.isnan(row["y"]), row["n"]) == (1, True, 0)
    (rows,) = taken(decoder, [message], "parts")
    np.testing.assert_array_equal(rows["x"], [0, 0])
    np.testing.assert_array_equal(rows["y"], [0, np.nan])
    np.testing.assert_array_equal(taken(decoder, [message], "parts[].y")[0], [0, np.nan])


def test_fields_that_lead_back_into_their_message_are_left_out():
    decoder = ProtobufDecoder(info("toy.Everything"))
    with pytest.raises(UsageError, match=r"parent is a toy\.Everything within one, so it can't be a column"):
        decoder.column_type(FieldSpec(("parent.text",)))
    file = descriptor_pb2.FileDescriptorSet()
    struct_pb2.DESCRIPTOR.CopyToProto(file.file.add())
    recursive = ProtobufDecoder(info("google.protobuf.Struct", file.SerializeToString()))
    message = struct_pb2.Struct()
    message.update({"b": "two", "a": 1.5})
    keys = taken(recursive, [message], "fields[].key")
    assert keys[0].tolist() == ["a", "b"]  # a map has no order of its own
    numbers = taken(recursive, [message], "fields[].value.number_value")[0]
    np.testing.assert_array_equal(numbers, [1.5, np.nan])  # b has a text in its place
    message.update(dict.fromkeys("hfdgec", 1.0))
    assert taken(recursive, [message], "fields[].key")[0].tolist() == list("abcdefgh")


def test_foxglove_images_and_clouds_are_read_by_their_adapters():
    image = message_type(
        "RawImage",
        ("timestamp", TIMESTAMP),
        *(("width", "fixed32"), ("height", "fixed32"), ("encoding", "string"), ("step", "fixed32")),
        ("data", "bytes"),
    )
    element = message_type("Element", ("name", "string"), ("offset", "fixed32"), ("type", "int32"))
    cloud = message_type(
        "PointCloud", ("point_stride", "fixed32"), ("fields", ".toy.Element", "repeated"), ("data", "bytes")
    )
    definition, classes = definitions(image, element, cloud)
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    message = classes["RawImage"](width=4, height=2, encoding="rgb8", step=12, data=pixels.tobytes())
    (found,) = taken(ProtobufDecoder(info("toy.RawImage", definition)), [message], adapter="image")
    np.testing.assert_array_equal(found, pixels)
    decoder = ProtobufDecoder(info("toy.RawImage", definition))
    uyvy = classes["RawImage"](width=4, height=2, encoding="uyvy", data=bytes(range(100, 116)))
    (found,) = taken(decoder, [uyvy], adapter="image")
    assert found.shape == (2, 4, 3)
    empty = classes["RawImage"](encoding="mono8")
    raw = raw_messages([m.SerializeToString() for m in (message, empty, uyvy)])
    assert decoder.has_value(raw, FieldSpec(adapter="image")).tolist() == [True, False, True]
    points = np.arange(6, dtype="<f4").reshape(3, 2)
    fields = [classes["Element"](name=n, offset=4 * i, type=7) for i, n in enumerate("xy")]
    message = classes["PointCloud"](point_stride=8, fields=fields, data=points.tobytes())
    (found,) = taken(ProtobufDecoder(info("toy.PointCloud", definition)), [message], adapter="points[y,x]")
    np.testing.assert_array_equal(found, points[:, ::-1])


def test_text_longer_than_the_column_keeps_names_the_message():
    message = CLASSES["Everything"]()
    message.boxes.add(name="a long name")
    with pytest.raises(LogReadError, match=r"drive.mcap: chunk 0, /topic message.*'a long name'.*`strings`"):
        taken(ProtobufDecoder(info("toy.Everything")), [message], "boxes[].name", strings=4)


def test_a_message_named_timestamp_with_other_fields_is_no_time():
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="google.protobuf", syntax="proto3")
    file.message_type.append(message_type("Timestamp", ("seconds", "string")))
    file.message_type.append(message_type("Stamped", ("timestamp", TIMESTAMP)))
    definition = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    decoder = ProtobufDecoder(info("google.protobuf.Stamped", definition))
    assert decoder.time_source(("header", "log")) == "log"
    assert decoder.column_type(FieldSpec(("timestamp.seconds",))).kind == "string"


@pytest.mark.parametrize(
    ("name", "definition", "encoding", "why"),
    [
        ("toy.Point", DEFINITION[:-7], "protobuf", "definition of toy.Point"),
        ("toy.Nothing", DEFINITION, "protobuf", "toy.Nothing"),
        ("toy.Point", b"", "protobuf", "toy.Point"),
        ("toy.Point", b"float x", "ros2msg", "'ros2msg', which doesn't describe protobuf"),
    ],
)
def test_a_definition_that_cant_be_read_says_why(name, definition, encoding, why):
    with pytest.raises(UnknownEncodingError, match=why):
        ProtobufDecoder(info(name, definition, encoding))


def test_a_definition_that_lacks_or_loops_its_imports_is_refused():
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["b.proto"])
    alone = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(UnknownEncodingError, match=r"lacks the file b\.proto"):
        ProtobufDecoder(info("X", alone))
    back = descriptor_pb2.FileDescriptorProto(name="b.proto", dependency=["a.proto"])
    loop = descriptor_pb2.FileDescriptorSet(file=[file, back]).SerializeToString()
    with pytest.raises(UnknownEncodingError, match=r"imports itself"):
        ProtobufDecoder(info("X", loop))


def test_a_definition_that_unfolds_absurdly_is_refused():
    levels = [
        message_type(f"L{i}", ("a", f".toy.L{i + 1}"), ("b", f".toy.L{i + 1}"), ("x", "int32"))
        for i in range(40)
    ]
    definition, _ = definitions(*levels, message_type("L40", ("x", "int32")))
    with pytest.raises(UnknownEncodingError, match="absurdly large"):
        ProtobufDecoder(info("toy.L0", definition))


def test_without_the_protobuf_package_the_error_names_the_extra(monkeypatch):
    import_module = builtins.__import__

    def without_protobuf(name, *args):
        if name.startswith("google"):
            raise ImportError(name)
        return import_module(name, *args)

    monkeypatch.delitem(sys.modules, "logloom.io.logs.messages.protobuf")
    monkeypatch.setattr(builtins, "__import__", without_protobuf)
    with pytest.raises(UnknownEncodingError, match=r"pip install 'logloom\[protobuf\]'"):
        importlib.import_module("logloom.io.logs.messages.protobuf")


def test_mutated_messages_and_definitions_decode_or_are_refused():
    rng = random.Random(1)
    payload = random_everything(rng).SerializeToString()
    decoder = ProtobufDecoder(info("toy.Everything"))
    specs = [FieldSpec((path,)) for path in ("a_double", "many_uint64", "text", "boxes", "data", "timestamp")]
    read = 0
    for _ in range(by_tier(150, 5300)):
        raw = raw_messages([mutated(rng, payload)])
        if not decoder.check(raw)[0]:
            continue
        decoder.header_time(raw)
        for spec in specs:
            with contextlib.suppress(LogReadError):
                read += len(decoder.take(raw, spec))
    assert read
    for _ in range(by_tier(150, 5300)):
        with contextlib.suppress(UnknownEncodingError):
            ProtobufDecoder(info("toy.Everything", mutated(rng, DEFINITION)))


def mutated(rng, data):
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.3 else changed)


def test_messages_that_arent_protobuf_are_salvaged_around(tmp_path):
    path = tmp_path / "drive.mcap"
    from mcap.writer import Writer as RawWriter

    with path.open("wb") as file:
        writer = RawWriter(file)
        writer.start()
        schema = writer.register_schema("toy.Point", "protobuf", DEFINITION)
        channel = writer.register_channel("/p", "protobuf", schema)
        for i, data in enumerate([CLASSES["Point"](x=1).SerializeToString(), b"\xff\xff", b""]):
            writer.add_message(channel, START + i, data, START + i)
        writer.finish()
    with pytest.raises(LogReadError, match="/p: its 2 bytes don't fit"):
        read_all(open_log([str(path)]))
    found = read_all(open_log([str(path)], OpenOptions(on_error="salvage")))["/p"]
    assert found.take(FieldSpec(("x",)), np.arange(2)).tolist() == [1, 0]
    assert [refusal.log_time for refusal in found.refused] == [START + 1]


def test_a_message_is_parsed_once_however_many_columns_look_into_it(monkeypatch):
    counts = []
    parse = ProtobufDecoder.parse
    monkeypatch.setattr(ProtobufDecoder, "parse", lambda self, data: counts.append(1) or parse(self, data))
    messages = [random_everything(random.Random(i)) for i in range(9)]
    decoder = ProtobufDecoder(info("toy.Everything"))
    raw = raw_messages([message.SerializeToString() for message in messages])
    assert decoder.check(raw).all()
    decoder.header_time(raw)
    for path in ("a_double", "text", "boxes"):
        assert len(decoder.take(raw.take(np.array([4, 2])), FieldSpec((path,)))) == 2
    assert len(counts) == 9


def test_lists_within_lists_keep_both_lengths_and_fill_what_an_inner_one_lacks():
    definition, classes = definitions(
        message_type("Cube", ("x", "double"), ("label", "string")),
        message_type("Entity", ("cubes", ".toy.Cube", "repeated"), ("sizes", "float", "repeated")),
        message_type("Scene", ("entities", ".toy.Entity", "repeated")),
    )
    decoder = ProtobufDecoder(info("toy.Scene", definition))
    places = [[[1.5, 2.5], []], [], [[3.5]]]
    cubes = [[[classes["Cube"](x=x, label=f"{x}") for x in one] for one in row] for row in places]
    messages = [
        classes["Scene"](
            entities=[classes["Entity"](cubes=own, sizes=one) for own, one in zip(made, row, strict=True)]
        )
        for made, row in zip(cubes, places, strict=True)
    ]
    for path in ("entities[].cubes[].x", "entities[].sizes"):
        found = taken(decoder, messages, path)
        assert [[one.tolist() for one in row] for row in found] == places
    whole = taken(decoder, messages, "entities[].cubes", strings=4)
    assert [[one["x"].tolist() for one in row] for row in whole] == places
    assert [[one["label"].tolist() for one in row] for row in whole] == [[["1.5", "2.5"], []], [], [["3.5"]]]
    first = taken(decoder, messages, "entities[].cubes[0].x")
    np.testing.assert_equal([row.tolist() for row in first], [[1.5, np.nan], [], [3.5]])
