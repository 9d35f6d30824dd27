"""Field paths: what they select, the column types that follow, and help when they are wrong."""

import contextlib

import numpy as np
import pytest

from logloom import blocks
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages.fields import MAX_VALUE_BYTES
from logloom.io.logs.messages.ros.decoders import CdrDecoder
from tests.io.logs.messages.payloads import raw_messages, serialize, topic
from tests.tier import by_tier

TEXT = """
std_msgs/Header header
Pose pose
Pose[3] corners
Box[] boxes
Group[] groups
Group[2] both
Shelf[] shelves
float32[6] six
float32[] many
string[2] two
string[] names
uint8[4] key
byte[] blob
bool[] flags
Mixed mixed
Nothing nothing
===
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
===
MSG: pkg/Pose
float64[3] position
float64 yaw
===
MSG: pkg/Box
uint8 kind
Pose pose
string label
float32[2] size
===
MSG: pkg/Group
uint16 id
Box[] boxes
float32[] weights
string[] words
byte[] data
===
MSG: pkg/Shelf
Group[] groups
===
MSG: pkg/Mixed
builtin_interfaces/Duration age
bool ok
uint16 n
Pose pose
===
MSG: pkg/Nothing
"""


@pytest.fixture(scope="module")
def decode():
    return CdrDecoder(topic(TEXT))


POSE = [("position", "<f8", (3,)), ("yaw", "<f8")]
BOX = [("kind", "u1"), ("pose", POSE), ("label", "<U8"), ("size", "<f4", (2,))]


@pytest.mark.parametrize(
    ("path", "dtype", "shape"),
    [
        ("header.stamp", "<i8", ()),
        ("header.stamp.sec", "<i4", ()),
        ("pose", "<f8", (4,)),
        ("pose.position", "<f8", (3,)),
        ("pose.position[1]", "<f8", ()),
        ("six[1:4]", "<f4", (3,)),
        ("six[4:]", "<f4", (2,)),
        ("six[:2]", "<f4", (2,)),
        ("many", "<f4", (None,)),
        ("many[]", "<f4", (None,)),
        ("many[1]", "<f4", ()),
        ("many[0:2]", "<f4", (2,)),
        ("blob[1]", "u1", ()),
        ("blob[0:2]", "u1", (2,)),
        ("boxes[1]", BOX, ()),
        ("boxes[0].pose", "<f8", (4,)),
        ("boxes[0].label", "<U8", ()),
        ("boxes[0:2].size", "<f4", (2, 2)),
        ("groups[1].boxes", BOX, (None,)),
        ("groups[1].boxes[].kind", "u1", (None,)),
        ("groups[1].boxes[0].pose.position", "<f8", (3,)),
        ("corners", POSE, (3,)),
        ("corners[2]", "<f8", (4,)),
        ("corners[1:]", POSE, (2,)),
        ("corners[].yaw", "<f8", (3,)),
        ("corners[1:].position[0]", "<f8", (2,)),
        ("corners[0].position", "<f8", (3,)),
        ("boxes", BOX, (None,)),
        ("boxes[].pose", "<f8", (None, 4)),
        ("boxes[].pose.position[0:2]", "<f8", (None, 2)),
        ("boxes[].label", "<U8", (None,)),
        ("groups[].id", "<u2", (None,)),
        ("two", "<U8", (2,)),
        ("two[1]", "<U8", ()),
        ("names", "<U8", (None,)),
        ("key", "u1", (4,)),
        ("flags", "?", (None,)),
        ("mixed", [("age", "<i8"), ("ok", "?"), ("n", "<u2"), ("pose", POSE)], ()),
        ("header", [("stamp", "<i8"), ("frame_id", "<U8")], ()),
    ],
)
def test_a_path_has_the_type_that_the_definition_gives(decode, path, dtype, shape):
    spec = FieldSpec((path,), strings=8)
    ctype = decode.column_type(spec)
    assert (ctype.dtype, ctype.shape, ctype.kind) == (np.dtype(dtype), shape, "array")
    raw = raw_messages(PAYLOADS(decode))
    has_value = decode.has_value(raw, spec)
    values = decode.take(raw if has_value is None else raw.take(np.flatnonzero(has_value)), spec)
    assert values.dtype == ctype.dtype
    got = (None, *values.tail) if ctype.is_ragged else values.shape[1:]
    assert got == shape


def pose(x):
    return {"position": [x, x + 1, x + 2], "yaw": -x}


def box(x):
    return {"kind": int(x), "pose": pose(x), "label": f"b{int(x)}", "size": [x, 2 * x]}


def group(n):
    words = [f"w{i}" for i in range(n)]
    return {"id": n, "boxes": [box(1.0)] * n, "weights": [0.5] * n, "words": words, "data": [9] * n}


def message(n):
    return {
        "header": {"stamp": {"sec": n, "nanosec": 1}, "frame_id": "map"},
        "pose": pose(float(n)),
        "corners": [pose(float(n + i)) for i in range(3)],
        "boxes": [box(float(i)) for i in range(n)],
        "groups": [group(i) for i in range(n)],
        "both": [group(n), group(1)],
        "shelves": [{"groups": [group(i)] * i} for i in range(n)],
        "six": [float(i) for i in range(6)],
        "many": [0.5] * n,
        "two": ["left", "right"],
        "names": [f"n{i}" for i in range(n)],
        "key": [1, 2, 3, 4],
        "blob": [7] * n,
        "flags": [True, False][:n],
        "mixed": {"age": {"sec": -1, "nanosec": 5}, "ok": True, "n": n, "pose": pose(0.5)},
        "nothing": {},
    }


def PAYLOADS(decode):  # noqa: N802
    return [serialize(decode.root, message(n)) for n in (2, 0, 3, 3)]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("pose.position[1]", [3.0, 1.0, 4.0, 4.0]),
        ("corners[2]", [[4.0, 5.0, 6.0, -4.0], [2.0, 3.0, 4.0, -2.0]] + [[5.0, 6.0, 7.0, -5.0]] * 2),
        ("corners[1:].position[0]", [[3.0, 4.0], [1.0, 2.0], [4.0, 5.0], [4.0, 5.0]]),
        ("boxes[].size[1]", [[0.0, 2.0], [], [0.0, 2.0, 4.0], [0.0, 2.0, 4.0]]),
        ("boxes[].label", [["b0", "b1"], [], ["b0", "b1", "b2"], ["b0", "b1", "b2"]]),
        ("groups[].id", [[0, 1], [], [0, 1, 2], [0, 1, 2]]),
        ("two[1]", ["right"] * 4),
        ("mixed.age", [-(10**9) + 5] * 4),
        ("flags", [[True, False], [], [True, False], [True, False]]),
    ],
)
def test_a_path_reads_what_it_names(decode, path, expected):
    values = decode.take(raw_messages(PAYLOADS(decode)), FieldSpec((path,)))
    assert [row.tolist() for row in values] == expected


def test_bytes_and_strings_have_kinds_of_their_own(decode):
    assert decode.column_type(FieldSpec(("blob",))).kind == "bytes"
    assert decode.column_type(FieldSpec(("header.frame_id",))).kind == "string"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("pose.positon", r"pkg/Pose has no 'positon'; did you mean pose.position"),
        ("boxes[].lable", r"did you mean boxes\[\].label"),
        ("yaw", r"did you mean pose\.yaw\?"),
        ("boxes.label", r'boxes is an array; write `field: "boxes\[\]\.label"`'),
        ("six[6]", "six has 6 elements, 0 to 5"),
        ("six[3:3]", "six has 6 elements"),
        ("many[1:]", r"another length in each message; write both ends, as in many\[0:3\]"),
        ("many[2:2]", r"\[2:2\] selects nothing"),
        ("many[70000]", "indices are at most 65535"),
        (
            "shelves[].groups[].boxes",
            r'no lists within these; take those of one element: `field: "shelves\[0\]\.groups',
        ),
        ("groups.boxes.label", r'groups is an array; write `field: "groups\[\]\.boxes\[\]\.label"`'),
        (
            "groups",
            r"pkg/Group contains boxes, whose length differs.*; write .*`field: \"groups\[\]\.boxes\"`",
        ),
        ("pose[0]", "pose is no array; write `field: pose`"),
        ("pose[0].yaw", r"pose is no array; write `field: pose\.yaw`"),
        ("six.x", r'write `field: "six\[\]\.x"`'),
        ("six[].x", "elements of six have no fields of their own; write `field: six`"),
        ("header.frame_id.x", r"no fields of its own; write `field: header\.frame_id`"),
        ("nothing", "has no fields"),
        ("a..b", "paths look like"),
        ("a[-1]", "paths look like"),
        ("", "paths look like"),
    ],
)
def test_a_wrong_path_is_refused_with_the_way_out(decode, path, words):
    with pytest.raises(UsageError, match=rf"topic /topic \(pkg/msg/Root\): .*{words}"):
        decode.column_type(FieldSpec((path,)))


def test_structured_values_of_absurd_size_are_refused(decode):
    with pytest.raises(UsageError, match="name the fields to take"):
        decode.column_type(FieldSpec(("boxes",), strings=MAX_VALUE_BYTES))


def random_group(rng):
    boxes = [box(float(rng.integers(9))) for _ in range(rng.integers(3))]
    weights = rng.normal(size=rng.integers(3)).astype("f4").tolist()
    words = [f"w{i}" for i in range(rng.integers(3))]
    return {"id": 1, "boxes": boxes, "weights": weights, "words": words, "data": [7] * rng.integers(3)}


def test_a_path_through_two_lists_reads_lists_of_lists(decode):
    """As in a plain loop, whatever the lengths; of struct, text, bytes and numbers."""
    rng = np.random.default_rng(5)
    groups = [[random_group(rng) for _ in range(rng.integers(4))] for _ in range(by_tier(60, 600))]
    both = [[random_group(rng) for _ in range(2)] for _ in groups]
    shelves = [[{"groups": own}] for own in groups]
    made = zip(groups, both, shelves, strict=True)
    messages = [message(3) | {"groups": one, "both": two, "shelves": three} for one, two, three in made]
    raw = raw_messages([serialize(decode.root, one) for one in messages])
    as_tuple = lambda b: (b["kind"], (b["pose"]["position"], b["pose"]["yaw"]), b["label"], b["size"])  # noqa: E731
    reads = {
        "groups[].weights": ("<f4", (), lambda g: g["weights"]),
        "groups[].words": ("<U8", (), lambda g: g["words"]),
        "groups[].data": ("u1", (), lambda g: g["data"]),
        "groups[].boxes[].kind": ("u1", (), lambda g: [b["kind"] for b in g["boxes"]]),
        "groups[].boxes[].pose": (
            "<f8",
            (4,),
            lambda g: [[*b["pose"]["position"], b["pose"]["yaw"]] for b in g["boxes"]],
        ),
        "groups[].boxes": (BOX, (), lambda g: [*map(as_tuple, g["boxes"])]),
    }
    for path, (dtype, tail, read) in reads.items():
        for begin, given in (("groups[]", groups), ("both", both), ("shelves[0].groups", groups)):
            spec = FieldSpec((path.replace("groups[]", f"{begin.removesuffix('[]')}[]"),), strings=8)
            ctype = decode.column_type(spec)
            assert (ctype.dtype, ctype.shape, ctype.kind) == (np.dtype(dtype), (None, None, *tail), "lists")
            assert decode.has_value(raw, spec) is None or decode.has_value(raw, spec).all()
            values = decode.take(raw, spec)
            assert blocks.has_form(values, ctype)
            found = [[plain(one.tolist()) for one in row] for row in values]
            assert found == [[plain(read(one)) for one in row] for row in given], spec
    picked = decode.take(raw, FieldSpec(("both[1:].weights",)))
    assert [[one.tolist() for one in row] for row in picked] == [[row[1]["weights"]] for row in both]


def plain(value):
    """Lists, tuples and arrays as lists."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return [*map(plain, value)] if isinstance(value, list | tuple) else value


def test_an_element_that_a_list_within_a_list_lacks_is_nan_zero_or_empty(decode):
    rng = np.random.default_rng(6)
    groups = [[random_group(rng) for _ in range(rng.integers(4))] for _ in range(60)]
    raw = raw_messages([serialize(decode.root, message(1) | {"groups": one}) for one in groups])
    nothing = (0, ([np.nan] * 3, np.nan), "", [np.nan] * 2)
    as_tuple = lambda b: (b["kind"], (b["pose"]["position"], b["pose"]["yaw"]), b["label"], b["size"])  # noqa: E731
    reads = {
        "groups[].weights[1]": lambda g: g["weights"][1] if len(g["weights"]) > 1 else np.nan,
        "groups[].weights[0:2]": lambda g: g["weights"] if len(g["weights"]) > 1 else [np.nan] * 2,
        "groups[].data[0]": lambda g: g["data"][0] if g["data"] else 0,
        "groups[].words[1]": lambda g: g["words"][1] if len(g["words"]) > 1 else "",
        "groups[].boxes[0].label": lambda g: g["boxes"][0]["label"] if g["boxes"] else "",
        "groups[].boxes[1].size": lambda g: g["boxes"][1]["size"] if len(g["boxes"]) > 1 else [np.nan] * 2,
        "groups[].boxes[0]": lambda g: as_tuple(g["boxes"][0]) if g["boxes"] else nothing,
    }
    for path, read in reads.items():
        spec = FieldSpec((path,), strings=8)
        assert decode.column_type(spec).kind == "array"
        assert decode.has_value(raw, spec) is None
        found = [plain(row.tolist()) for row in decode.take(raw, spec)]
        expected = [plain([read(one) for one in row]) for row in groups]
        np.testing.assert_equal(found, expected)
        assert len({len(row) for row in expected}) > 2


def test_an_index_into_a_list_reads_messages_that_are_long_enough(decode):
    """As in a plain loop, whatever the lengths; the others have no value, and are refused if taken."""
    rng = np.random.default_rng(3)

    def random_message():
        made = message(int(rng.integers(4)))
        return made | {
            "many": rng.normal(size=rng.integers(4)).astype("f4").tolist(),
            "blob": rng.integers(256, size=rng.integers(4)).tolist(),
            "groups": [random_group(rng) for _ in range(rng.integers(4))],
        }

    messages = [random_message() for _ in range(by_tier(60, 600))]
    raw = raw_messages([serialize(decode.root, one) for one in messages])
    reads = {
        "many[1]": lambda m: m["many"][1],
        "blob[1]": lambda m: m["blob"][1],
        "blob[1:3]": lambda m: m["blob"][1:3] if len(m["blob"]) > 2 else m["blob"][2],
        "many[1:3]": lambda m: m["many"][1:3] if len(m["many"]) > 2 else m["many"][2],
        "names[0]": lambda m: m["names"][0],
        "boxes[1].size": lambda m: m["boxes"][1]["size"],
        "groups[1].boxes[].kind": lambda m: [one["kind"] for one in m["groups"][1]["boxes"]],
        "groups[0].boxes[1].label": lambda m: m["groups"][0]["boxes"][1]["label"],
    }
    for path, read in reads.items():
        expected = {}
        for row, one in enumerate(messages):
            with contextlib.suppress(IndexError):
                expected[row] = read(one)
        assert 0 < len(expected) < len(messages)
        has_value = decode.has_value(raw, FieldSpec((path,)))
        assert np.flatnonzero(has_value).tolist() == list(expected)
        values = decode.take(raw.take(np.flatnonzero(has_value)), FieldSpec((path,)))
        assert [row.tolist() for row in values] == list(expected.values())
        with pytest.raises(LogReadError, match=r"an array has fewer than [123] elements"):
            decode.take(raw, FieldSpec((path,)))


def test_text_too_long_at_an_index_is_an_error_and_not_a_missing_value(decode):
    raw = raw_messages([serialize(decode.root, message(n) | {"names": ["n" * 9] * n}) for n in (1, 0)])
    spec = FieldSpec(("names[0]",), strings=8)
    assert decode.has_value(raw, spec).tolist() == [True, False]
    with pytest.raises(LogReadError, match="raise `strings`"):
        decode.take(raw.take(np.array([0])), spec)


def test_a_list_of_a_stated_shape_refuses_other_lengths(decode):
    raw = raw_messages(PAYLOADS(decode))
    spec = FieldSpec(("many",), shape=(3,))
    assert str(decode.column_type(spec)) == "float32[3]"
    assert decode.take(raw.take(np.array([2, 3])), spec).tolist() == [[0.5] * 3] * 2
    with pytest.raises(LogReadError, match=r"chunk 0, .*: a list of 2 numbers; shape \[3\] has 3"):
        decode.take(raw, spec)
    assert str(decode.column_type(FieldSpec(("six",), shape=(2, 3)))) == "float32[2, 3]"
    assert decode.take(raw, FieldSpec(("six",), shape=(2, 3)))[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    for path, shape in (("six", (5,)), ("names", (2,)), ("boxes", (1,)), ("pose.yaw", (1,)), ("blob", (1,))):
        with pytest.raises(UsageError, match=r"shape: .* is for a list of as many numbers"):
            decode.column_type(FieldSpec((path,), shape=shape))
