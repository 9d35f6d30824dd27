"""Point clouds of any field layout, padding and byte order: named fields as float32, or whole."""

import random
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import python_value
from logloom.errors import LogloomError, LogReadError, UsageError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages.point_clouds import dtype_for, named_dtypes, rounding, settled
from logloom.io.logs.messages.ros.decoders import CdrDecoder
from logloom.io.logs.opening import open_log
from tests.io.logs.making import START, Message, everything, write_mcap
from tests.io.logs.messages.payloads import raw_messages, serialize, topic
from tests.tier import by_tier

CLOUD = """uint32 height
uint32 width
PointField[] fields
bool is_bigendian
uint32 point_step
uint32 row_step
uint8[] data
bool is_dense
===
MSG: sensor_msgs/PointField
string name
uint32 offset
uint8 datatype
uint32 count
"""
FOXGLOVE = """uint32 point_stride
PackedElementField[] fields
uint8[] data
===
MSG: foxglove_msgs/PackedElementField
string name
uint32 offset
uint8 type
"""
TYPES = {"int8": 1, "uint8": 2, "int16": 3, "uint16": 4, "int32": 5, "uint32": 6, "float32": 7, "float64": 8}
LETTERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 8: "d"}
XYZI = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("i", "u2")])
WHOLE = FieldSpec(adapter="points")


class LogOf:
    """As much of a log as tells the fields of its clouds."""

    def __init__(self, decoder, payloads):
        self.decoder, self.payloads = decoder, payloads
        self.summary = SimpleNamespace(uris=("drive.mcap",))

    def last_message(self, topic):
        return self

    def __len__(self):
        return len(self.payloads)

    def take(self, spec, rows):
        return self.decoder.take(raw_messages(self.payloads).take(rows), spec)


def read(messages, spec, definition=CLOUD):
    """Column type and rows; what `points` needs to know is taken from the first message."""
    decode = CdrDecoder(topic(definition))
    payloads = [serialize(decode.root, m) for m in messages]
    spec = settled(LogOf(decode, payloads[:1]), "/topic", spec)
    values = decode.take(raw_messages(payloads, 3), spec)
    ctype = decode.column_type(spec)
    assert values.dtype == ctype.dtype
    return ctype, [python_value(row, ctype) for row in values]


def cloud(points, names=None, big=False, step=None, offsets=None, height=1, row_padding=0):
    """A PointCloud2 of a structured array."""
    names = names or points.dtype.names
    offsets = offsets or [points.dtype.fields[name][1] for name in points.dtype.names]
    step = step or points.dtype.itemsize
    formats = [points.dtype[name] for name in points.dtype.names]
    bases = [form.base.newbyteorder(">" if big else "<") for form in formats]
    layout = {
        "names": points.dtype.names,
        "formats": [(base, form.shape) for base, form in zip(bases, formats, strict=True)],
        "offsets": offsets,
        "itemsize": step,
    }
    wide = np.frombuffer(bytes([0xAB]) * (len(points) * step), np.dtype(layout)).copy()
    for name in points.dtype.names:
        wide[name] = points[name]
    rows = wide.view(np.uint8).reshape(height, -1)
    rows = np.pad(rows, ((0, 0), (0, row_padding)), constant_values=9)
    fields = [
        {"name": name, "offset": offset, "datatype": TYPES[base.name], "count": int(np.prod(form.shape))}
        for name, offset, base, form in zip(names, offsets, bases, formats, strict=True)
    ]
    return {
        "height": height,
        "width": len(points) // height,
        "fields": fields,
        "is_bigendian": big,
        "point_step": step,
        "row_step": rows.shape[1],
        "data": rows.ravel().tolist(),
        "is_dense": True,
    }


def points_of(dtype, n=12):
    rng = np.random.default_rng(5)
    points = np.empty(n, dtype)
    for name in points.dtype.names:
        points[name] = rng.integers(0, 100, points[name].shape)
    return points


def one_by_one(message):
    """The points of a cloud as tuples, each field unpacked alone, as the message definition says."""
    order = ">" if message["is_bigendian"] else "<"
    data, points = bytes(message["data"]), []
    for row in range(message["height"]):
        for column in range(message["width"]):
            start = row * message["row_step"] + column * message["point_step"]
            point = []
            for field in message["fields"]:
                form = f"{order}{field['count']}{LETTERS[field['datatype']]}"
                values = struct.unpack_from(form, data, start + field["offset"])
                point.append(values[0] if field["count"] == 1 else list(values))
            points.append(tuple(point))
    return points


@st.composite
def clouds(draw):
    """Any layout: fields in any order in the point, with gaps, padded rows, both byte orders, any bits."""
    kinds = draw(st.lists(st.tuples(st.sampled_from(range(1, 9)), st.integers(1, 3)), min_size=1, max_size=6))
    fields, at = [], 0
    for i, (kind, count) in enumerate(kinds):
        at += draw(st.integers(0, 5))
        fields.append({"name": f"f{i}", "offset": at, "datatype": kind, "count": count})
        at += count * struct.calcsize(f"<{LETTERS[kind]}")
    step = at + draw(st.integers(0, 5))
    height, width = draw(st.integers(0, 3)), draw(st.integers(0, 4))
    row_step = width * step + draw(st.integers(0, 7))
    return {
        "height": height,
        "width": width,
        "fields": draw(st.permutations(fields)),
        "is_bigendian": draw(st.booleans()),
        "point_step": step,
        "row_step": row_step,
        "data": list(draw(st.binary(min_size=height * row_step, max_size=height * row_step))),
        "is_dense": draw(st.booleans()),
    }


def same(one, other):
    return np.array_equal(one, other, equal_nan=True)


@given(clouds())
def test_a_whole_cloud_of_any_layout_keeps_names_types_and_values(message):
    ctype, (points,) = read([message], WHOLE)
    assert ctype.dtype.names == tuple(field["name"] for field in message["fields"])
    assert ctype.dtype.isalignedstruct is False
    assert ctype.dtype.itemsize == sum(
        field["count"] * struct.calcsize(f"<{LETTERS[field['datatype']]}") for field in message["fields"]
    )
    expected = one_by_one(message)
    assert len(points) == len(expected)
    for i, field in enumerate(message["fields"]):
        letter = np.dtype(LETTERS[field["datatype"]])
        assert ctype.dtype[field["name"]].base == letter
        values = np.array([point[i] for point in expected], letter).reshape(points[field["name"]].shape)
        assert same(points[field["name"]], values)


@given(clouds(), st.data())
def test_named_fields_of_any_layout_are_float32(message, data):
    single = [i for i, field in enumerate(message["fields"]) if field["count"] == 1]
    if not single:
        return
    chosen = data.draw(st.lists(st.sampled_from(single), min_size=1, unique=True))
    names = [message["fields"][i]["name"] for i in chosen]
    ctype, (points,) = read([message], FieldSpec(adapter=f"points[{','.join(names)}]"))
    assert (ctype.dtype, ctype.shape) == (np.float32, (None, len(names)))
    expected = one_by_one(message)
    for k, i in enumerate(chosen):
        letter = LETTERS[message["fields"][i]["datatype"]]
        with np.errstate(over="ignore"):
            assert same(points[:, k], np.array([p[i] for p in expected], letter).astype(np.float32))


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(("height", "row_padding"), [(1, 0), (3, 0), (3, 7)])
def test_clouds_of_different_layouts_read_as_one_column_of_named_fields(big, height, row_padding):
    points = points_of(XYZI)
    shape = {"height": height, "row_padding": row_padding}
    messages = [
        cloud(points, None, big, **shape),
        cloud(points, None, big, step=40, offsets=[21, 4, 30, 9], **shape),
    ]
    ctype, rows = read(messages, FieldSpec(adapter="points[z,x,intensity]"))
    assert (ctype.dtype, ctype.shape) == (np.float32, (None, 3))
    expected = np.stack([points[name].astype("f4") for name in ("z", "x", "i")], axis=1)
    for row in rows:
        np.testing.assert_array_equal(row, expected)


def test_whole_clouds_may_differ_in_padding_and_byte_order_but_not_in_their_fields():
    points = points_of(XYZI)
    messages = [cloud(points), cloud(points, big=True, step=40, offsets=[21, 4, 30, 9]), cloud(points[:0])]
    ctype, rows = read(messages, WHOLE)
    assert (ctype.dtype, ctype.shape) == (XYZI, (None,))
    assert rows[0].tolist() == rows[1].tolist() == points.tolist()
    assert rows[2].shape == (0,)
    other = points_of([("x", "f4"), ("y", "f4"), ("z", "f8"), ("i", "u2")])
    with pytest.raises(LogReadError, match=r"offset 1 in it: its points are x:float32,y:float32,z:float64"):
        read([cloud(points), cloud(other)], WHOLE)
    with pytest.raises(LogReadError, match=r"those of the column x:float32; name the fields"):
        read([cloud(points)], FieldSpec(adapter="points", dtype="x:float32"))


def test_the_last_row_of_a_cloud_may_lack_its_padding():
    points = points_of(XYZI)
    message = cloud(points, height=3, row_padding=7)
    del message["data"][-7:]
    _, rows = read([message], FieldSpec(adapter="points[x]"))
    np.testing.assert_array_equal(rows[0][:, 0], points["x"])


XYZ = [("x", "f4"), ("y", "f4"), ("z", "f4")]
VENDORS = {
    "ouster": (
        [*XYZ, ("intensity", "f4"), ("t", "u4"), ("ring", "u1"), ("near_ir", "u2"), ("range", "u4")],
        {"intensity": "intensity", "time": "t", "ring": "ring", "ambient": "near_ir", "range": "range"},
    ),
    "velodyne": (
        [*XYZ, ("intensity", "f4"), ("ring", "u2"), ("time", "f4")],
        {"time": "time", "ring": "ring", "intensity": "intensity"},
    ),
    "livox": (
        [*XYZ, ("reflectivity", "u1"), ("tag", "u1"), ("line", "u1"), ("offset_time", "u4")],
        {"time": "offset_time", "ring": "line", "intensity": "reflectivity", "tag": "tag"},
    ),
    "hesai": (
        [*XYZ, ("intensity", "f4"), ("timestamp", "f8"), ("ring", "u2")],
        {"time": "timestamp", "ring": "ring", "intensity": "intensity"},
    ),
}


@pytest.mark.parametrize("vendor", VENDORS)
def test_vendors_names_stand_for_the_usual_ones(vendor):
    dtype, names = VENDORS[vendor]
    points = points_of(dtype)
    _, rows = read([cloud(points, step=48)], FieldSpec(adapter=f"points[x,{','.join(names)}]"))
    expected = np.stack([points[name].astype("f4") for name in ("x", *names.values())], axis=1)
    np.testing.assert_array_equal(rows[0], expected)


def test_a_field_of_the_very_name_is_taken_before_the_names_of_vendors():
    points = points_of([("i", "f4"), ("intensity", "f8")])
    _, rows = read([cloud(points)], FieldSpec(adapter="points[intensity]"))
    np.testing.assert_array_equal(rows[0][:, 0], points["intensity"].astype("f4"))


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(("name", "kind"), [("rgb", "f4"), ("rgb", "u4"), ("rgba", "u4")])
def test_packed_colours_are_read_by_their_letters_and_stay_packed_in_whole_clouds(name, kind, big):
    colours = np.array([[1, 2, 3, 4], [250, 251, 252, 253]], np.uint32)  # r g b a
    bits = (colours[:, 3] << 24) | (colours[:, 0] << 16) | (colours[:, 1] << 8) | colours[:, 2]
    points = np.empty(2, [("x", "f4"), (name, kind)])
    points["x"], points[name] = 0, bits.view(kind)
    _, rows = read([cloud(points, big=big)], FieldSpec(adapter="points[b,g,r,a]"))
    assert rows[0].tolist() == colours[:, [2, 1, 0, 3]].tolist()
    _, (row,) = read([cloud(points, big=big)], WHOLE)
    assert row[name].tobytes() == bits.tobytes()


def test_clouds_may_be_empty_and_then_need_no_fields():
    some, none = cloud(points_of(XYZI)), cloud(points_of(XYZI, 0))
    bare = none | {"fields": [], "point_step": 0}
    for spec, shape in [(FieldSpec(adapter="points[x,y]"), (0, 2)), (WHOLE, (0,))]:
        _, rows = read([some, none, bare], spec)
        assert [len(row) for row in rows] == [12, 0, 0]
        assert rows[2].shape == shape


def test_fields_that_nobody_asks_for_may_be_anything():
    points = points_of([("x", "f4"), ("_", "u1", (4,)), ("i", "f4"), ("pad", "u1", (12,)), ("y", "f8")])
    message = cloud(points, names=["x", "_", "i", "_", "y"])
    _, rows = read([message], FieldSpec(adapter="points[y,x,i]"))
    np.testing.assert_array_equal(rows[0], np.stack([points[n] for n in "yxi"], axis=1).astype("f4"))
    _, (row,) = read([message], WHOLE)
    assert row.dtype.names == ("x", "i", "y")
    assert row.tolist() == points[["x", "i", "y"]].tolist()
    for change in ({"name": "i"}, {"name": "no name"}, {"datatype": 99}):
        message["fields"][4] = {"name": "q", "offset": 24, "datatype": 7, "count": 1} | change
        _, rows = read([message], FieldSpec(adapter="points[x]"))
        assert rows[0][:, 0].tolist() == points["x"].tolist()
        with pytest.raises(LogReadError):
            read([message], FieldSpec(adapter="points[i,q]"))


@pytest.mark.parametrize("big", [False, True])
def test_a_column_of_float64_keeps_stamps_coordinates_and_large_integers(big):
    points = np.zeros(3, [("x", "f8"), ("t", "u4"), ("timestamp", "f8")])
    points["x"] = 691_234.125 + np.arange(3)
    points["t"] = 2**32 - 1 - np.arange(3)
    points["timestamp"] = 1_700_000_000 + np.arange(3) * 1e-5
    message = cloud(points, big=big)
    ctype, (row,) = read([message], FieldSpec(adapter="points[timestamp,x,t]", dtype="float64"))
    assert ctype.dtype == np.dtype("<f8")
    for i, name in enumerate(("timestamp", "x", "t")):
        assert row[:, i].tolist() == points[name].tolist()


def test_the_named_fields_of_clouds_are_those_that_all_have_with_their_widest_type():
    def named(*clouds):
        decode = CdrDecoder(topic(CLOUD))
        log = LogOf(decode, [serialize(decode.root, one) for one in clouds])
        return named_dtypes(log, np.arange(len(clouds)))

    one = cloud(points_of([("x", "f4"), ("_", "u1"), ("ring", "u2"), ("normal", "f4", (3,)), ("t", "u4")]))
    other = cloud(points_of([("t", "u4"), ("x", "f8"), ("ring", "u2")]), big=True)
    bare = cloud(points_of(XYZI, 0)) | {"fields": []}
    assert named(bare, one) == {"x": "<f4", "ring": "<u2", "t": "<u4"}
    assert named(one, other) == {"x": "<f8", "ring": "<u2", "t": "<u4"}
    assert named(bare) is None
    assert [dtype_for(kinds) for kinds in (["<f4", "<u2"], ["<f4", "<u4"], ["<f8"])] == [
        "float32",
        "float64",
        "float64",
    ]


def test_rounding_is_measured_by_field():
    points = np.zeros(2, [("x", "f8"), ("y", "f8"), ("z", "f4")])
    points["x"], points["y"], points["z"] = [2**24 + 1, np.nan], [0.5, 1e300], 0.1
    decode = CdrDecoder(topic(CLOUD))
    log = LogOf(decode, [serialize(decode.root, cloud(points))])
    assert rounding(FieldSpec(adapter="points[x,y,z]"), log) == {"x": 1.0, "y": np.inf}


def test_a_suggested_recipe_names_all_fields_in_a_dtype_that_holds_them_and_plan_says_what_another_loses(
    tmp_path,
):
    import logloom as ll
    from logloom.pipelines.info.info import suggested_recipe
    from logloom.pipelines.plan.column_warnings import column_warnings
    from logloom.pipelines.plan.plan import plan_build
    from logloom.recipe import Recipe

    points = points_of([("x", "f4"), ("_", "u1"), ("timestamp", "f8"), ("normal", "f4", (3,))])
    points["timestamp"] = 1_700_000_000 + np.arange(12) * 1e-5
    bare = cloud(points_of(XYZI, 0)) | {"fields": []}
    log = write_clouds(tmp_path / "drive.mcap", [bare, cloud(points)])
    words = suggested_recipe([str(log)], {})
    assert "lidar: {topic: /lidar, as: 'points[x,timestamp]', resample: nearest, dtype: float64, " in words
    (tmp_path / "recipe.yaml").write_text(words)
    ll.build(tmp_path / "recipe.yaml", tmp_path / "root")
    found = [row["lidar"] for row in ll.open(tmp_path / "root")]
    assert sorted({len(one) for one in found}) == [0, 12]
    for one in found:
        assert one.dtype == np.float64
        assert one.T.tolist() in ([[], []], [points["x"].tolist(), points["timestamp"].tolist()])
    for dtype, warned in [("", ["'timestamp' of /lidar by up to "]), ("dtype: float64, ", [])]:
        recipe = Recipe.from_yaml(words.replace("dtype: float64, ", dtype), source="test")
        warnings = column_warnings(plan_build(recipe, str(tmp_path / "other")))
        assert len(warnings) == len(warned)
        assert all(part in str(one) for part, one in zip(warned, warnings, strict=True))


def fields(*rows):
    return [dict(zip(("name", "offset", "datatype", "count"), row, strict=True)) for row in rows]


@pytest.mark.parametrize("adapter", ["points", "points[x]"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 2**31}, "don't fit"),
        ({"height": 5}, "don't fit"),
        ({"point_step": 0}, "leaves its 0-byte point"),
        ({"point_step": 8}, "leaves its 8-byte point"),
        ({"fields": fields(("x", 0, 99, 1))}, "unknown type 99"),
        ({"fields": []}, "no fields|no field 'x'; it has none"),
        ({"height": 3, "row_step": 2**32 - 1}, "don't fit"),
        ({"fields": fields(("x", 0, 7, 99))}, "leaves its"),
        ({"fields": fields(("x", 0, 7, 2**32 - 1))}, "absurdly many"),
        ({"fields": fields(("x", 2**32 - 1, 7, 1))}, "leaves its"),
        ({"fields": fields(("x", 0, 7, 1), ("x", 4, 7, 1))}, "two fields .*: x, x"),
        ({"fields": fields(("x y", 0, 7, 1))}, "can't be the name|no field 'x'; it has x y"),
        (
            {"fields": fields(*((f"x{i}", 0, 8, 1) for i in range(500)))},
            "500 fields of 4000 bytes|no field 'x'",
        ),
    ],
)
def test_clouds_that_lie_are_refused(adapter, change, words):
    with pytest.raises(LogReadError, match=words):
        read([cloud(points_of(XYZI)) | change], FieldSpec(adapter=adapter))


def test_a_named_field_that_is_missing_or_has_several_values_a_point_is_refused():
    points = points_of([("x", "f4"), ("normal", "f4", (3,))])
    with pytest.raises(LogReadError, match="no field 'ring'; it has x, normal"):
        read([cloud(points)], FieldSpec(adapter="points[ring]"))
    with pytest.raises(LogReadError, match="'normal' has 3 values a point; take the cloud `as: points`"):
        read([cloud(points)], FieldSpec(adapter="points[normal]"))


def test_foxglove_clouds_number_their_types_their_own_way():
    data = np.array([(1, -2), (3, -4)], [("a", "u2"), ("b", "i2")])
    packed = [{"name": "a", "offset": 0, "type": 3}, {"name": "b", "offset": 2, "type": 4}]
    message = {"point_stride": 4, "fields": packed, "data": list(data.tobytes())}
    _, rows = read([message], FieldSpec(adapter="points[b,a]"), FOXGLOVE)
    assert rows[0].tolist() == [[-2.0, 1.0], [-4.0, 3.0]]
    ctype, rows = read([message], WHOLE, FOXGLOVE)
    assert ctype.dtype == data.dtype
    assert rows[0].tolist() == data.tolist()


def write_clouds(path, messages):
    decode = CdrDecoder(topic(CLOUD))
    logged = [
        Message("/lidar", START + i, START + i, 0, serialize(decode.root, m)) for i, m in enumerate(messages)
    ]
    schema = ("sensor_msgs/msg/PointCloud2", "ros2msg", CLOUD.encode())
    return write_mcap(path, logged, encoding="cdr", schema=schema)


def test_a_log_tells_the_fields_of_its_clouds_before_any_is_taken(tmp_path):
    points = points_of(XYZI)
    log = open_log([str(write_clouds(tmp_path / "drive.mcap", [cloud(points)] * 3))])
    spec = settled(log, "/lidar", WHOLE)
    assert spec.dtype == "x:float32,y:float32,z:float32,i:uint16"
    assert settled(log, "/lidar", spec) == spec
    ctype = log.column_type("/lidar", spec)
    assert (ctype.dtype, ctype.shape) == (XYZI, (None,))
    values = log.read({"/lidar": everything()})["/lidar"].take(spec, np.array([2, 0]))
    assert values.dtype == ctype.dtype
    assert values[1].tolist() == points.tolist()


def test_a_topic_without_clouds_cant_tell_their_fields():
    decode = CdrDecoder(topic(CLOUD))
    with pytest.raises(UsageError, match=r"/topic has none; name them: points\[x,y,z\]"):
        settled(LogOf(decode, []), "/topic", WHOLE)
    with pytest.raises(UsageError, match=r"name them, as in points\[x,y,z\], or use the spec"):
        decode.column_type(WHOLE)
    for words in ("x:float16", "x", "x:float32,x:float32", "x:float32[9999999]"):
        with pytest.raises(UsageError, match="are no fields of points"):
            decode.column_type(FieldSpec(adapter="points", dtype=words))


RECIPE = """
name: clouds
logs: [{logs}]
log_id: "{{stem}}"
clock: {{topic: /lidar}}
time: {{by: log}}
columns:
  lidar: {{topic: /lidar, as: points, resample: exact}}
outputs: {{tar: {{}}, table: {{}}, zarr: {{}}, bags: {{}}}}
"""


def build_clouds(tmp_path, *clouds_of_logs):
    from logloom.pipelines.build.build import build
    from logloom.pipelines.plan.plan import plan_build
    from logloom.recipe import Recipe

    for name, messages in zip("ab", clouds_of_logs, strict=False):
        write_clouds(tmp_path / f"{name}.mcap", messages)
    recipe = Recipe.from_yaml(RECIPE.format(logs=tmp_path / "*.mcap"), source="test")
    return build(plan_build(recipe, str(tmp_path / "root")), num_workers=1)


def test_a_recipe_takes_whole_clouds_into_every_output(tmp_path):
    from logloom.pipelines.head.head import head

    points = points_of(XYZI)
    build_clouds(tmp_path, [cloud(points), cloud(points[:5], big=True, step=40, offsets=[21, 4, 30, 9])])
    for output in ("tar", "table", "zarr", "bags"):
        rows = [row.values["lidar"] for row in head(str(tmp_path / "root"), output=output)]
        assert [row.tolist() for row in rows] == [points.tolist(), points[:5].tolist()], output
        assert rows[0].dtype.names == XYZI.names


def test_a_log_with_other_points_than_the_first_fails_the_build_by_name(tmp_path):
    other = points_of([("x", "f4"), ("ring", "u2")])
    with pytest.raises(LogloomError, match=r"b\.mcap: .*its points are x:float32,ring:uint16, those of"):
        build_clouds(tmp_path, [cloud(points_of(XYZI))], [cloud(other)])


def test_mutated_clouds_are_read_or_refused_and_stay_small():
    decode = CdrDecoder(topic(CLOUD))
    for seed in range(by_tier(75, 800)):
        rng = random.Random(seed)
        payload = bytearray(serialize(decode.root, cloud(points_of(XYZI), step=rng.choice([14, 17]))))
        log = LogOf(decode, [bytes(payload)])
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(payload))
            payload[at : at + 4] = rng.choice([rng.randbytes(4), b"\xff" * 4, bytes(4)])[: len(payload) - at]
        for spec in (WHOLE, FieldSpec(adapter="points[x,intensity]")):
            spec = settled(log, "/topic", spec)
            try:
                rows = decode.take(raw_messages([bytes(payload)]), spec)
            except LogReadError:
                continue
            # Overlapping fields repeat bytes, up to a limit; named ones take 4 bytes each.
            assert rows.nbytes <= 8 * len(payload)
