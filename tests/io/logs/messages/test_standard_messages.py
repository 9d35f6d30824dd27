"""The messages that robots log most, of ROS and of Foxglove, by the adapters and fields that recipes name."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from logloom.blocks import python_value
from logloom.errors import LogReadError
from logloom.io.logs.interface import FieldSpec, TopicInfo
from logloom.io.logs.messages.json import JsonDecoder
from logloom.io.logs.messages.protobuf import ProtobufDecoder
from logloom.io.logs.messages.ros.decoders import CdrDecoder, Ros1Decoder
from tests.io.logs.messages.payloads import raw_messages
from tests.io.logs.messages.test_protobuf import definitions, message_type

ROS2, ROS1 = get_typestore(Stores.LATEST), get_typestore(Stores.ROS1_NOETIC)
ROS1.register(get_types_from_msg("geometry_msgs/TransformStamped[] transforms", "tf2_msgs/msg/TFMessage"))
PIXELS = np.random.default_rng(0).integers(0, 255, (6, 8, 3), np.uint8)


def taken(decoder, payloads, spec):
    values = decoder.take(raw_messages(payloads), spec)
    ctype = decoder.column_type(spec)
    assert values.dtype == ctype.dtype
    return [python_value(row, ctype) for row in values]


# --- ROS ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["cdr", "ros1"])
def ros(request):
    """A function from a message type and a way to make one to what a spec takes from it."""
    store, version = (ROS2, 2) if request.param == "cdr" else (ROS1, 1)

    def take(kind, values, spec):
        text = store.generate_msgdef(kind, ros_version=version)[0]
        info = TopicInfo("/topic", kind, request.param, f"ros{version}msg", text.encode(), 0, 0, 0)
        message = filled(store, kind, values)
        if version == 2:
            payload, decoder = store.serialize_cdr(message, kind), CdrDecoder(info)
        else:
            payload, decoder = store.serialize_ros1(message, kind), Ros1Decoder(info)
        assert decoder.time_source(("header", "log")) == "header"
        assert decoder.header_time(raw_messages([bytes(payload)])).tolist() == [1_700_000_000_000_000_005]
        return taken(decoder, [bytes(payload)] * 2, spec)[1]

    return take


def filled(store, kind, values):
    """A message of rosbags from nested dicts; what they leave out is zero or empty."""
    if kind == "std_msgs/msg/Header" and values is None:
        values = {"stamp": {"sec": 1_700_000_000, "nanosec": 5}, "frame_id": "map"}
    fields = {}
    for name, (category, detail) in store.get_msgdef(kind).fields:
        given = (values or {}).get(name)
        match category.name:
            case "BASE":
                fields[name] = given if given is not None else ("" if detail[0] == "string" else 0)
            case "NAME":
                fields[name] = filled(store, detail, given)
            case _:
                (inner, element), length = detail
                if inner.name == "NAME":
                    fields[name] = [filled(store, element, item) for item in given or ()]
                elif element[0] == "string":
                    fields[name] = list(given or ())
                else:
                    dtype = {"bool": "?", "byte": "u1", "char": "u1"}.get(element[0], element[0])
                    fields[name] = np.array(given if given is not None else [0] * length, dtype)
    return store.types[kind](**fields)


XYZW = {"x": 0.1, "y": 0.2, "z": 0.3, "w": 0.4}
XYZ = {"x": 1.5, "y": 2.5, "z": 3.5}


def test_images_of_ros(ros):
    image = {"height": 6, "width": 8, "encoding": "bgr8", "step": 24, "data": PIXELS.ravel()}
    kind = "sensor_msgs/msg/Image"
    np.testing.assert_array_equal(ros(kind, image, FieldSpec(adapter="image")), PIXELS[:, :, ::-1])
    png = ros(kind, image, FieldSpec(adapter="image", encode="png", resize=(3, 4)))
    expected = Image.fromarray(PIXELS[:, :, ::-1].copy()).resize((4, 3), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png))), np.asarray(expected))
    deep = (np.arange(48) * 1000).reshape(6, 8).astype(">u2")
    padded = np.pad(deep.view(np.uint8), ((0, 0), (0, 6)))
    image |= {"encoding": "16UC1", "is_bigendian": 1, "step": 22, "data": padded.ravel()}
    found = ros(kind, image, FieldSpec(adapter="image", dtype="uint16"))
    np.testing.assert_array_equal(found[:, :, 0], deep)
    depth = np.linspace(-1, 9, 48, dtype="<f4").reshape(6, 8)
    image |= {"encoding": "32FC1", "is_bigendian": 0, "step": 32, "data": depth.view(np.uint8).ravel()}
    found = ros(kind, image, FieldSpec(adapter="image", dtype="float32"))
    np.testing.assert_array_equal(found[:, :, 0], depth)


@pytest.mark.parametrize("form", ["jpeg", "png"])
def test_compressed_images_of_ros(ros, form):
    data = encoded(form)
    message = {"format": f"rgb8; {form} compressed bgr8", "data": np.frombuffer(data, np.uint8)}
    kind = "sensor_msgs/msg/CompressedImage"
    expected = np.asarray(Image.open(io.BytesIO(data)))
    np.testing.assert_array_equal(ros(kind, message, FieldSpec(adapter="image")), expected)
    assert ros(kind, message, FieldSpec(("data",))) == data
    assert ros(kind, message, FieldSpec(adapter="image", encode={"jpeg": "jpg"}.get(form, form))) == data


def test_scans_and_positions_of_ros(ros):
    ranges = np.array([1.5, np.inf, np.nan, 0], np.float32)
    scan = {"ranges": ranges, "angle_min": -1.0, "angle_increment": 0.5, "intensities": ranges[:2]}
    kind = "sensor_msgs/msg/LaserScan"
    np.testing.assert_array_equal(ros(kind, scan, FieldSpec(adapter="scan")), ranges)
    assert ros(kind, scan, FieldSpec(("angle_min", "angle_increment"))).tolist() == [-1, 0.5]
    position = {"latitude": 48.1, "longitude": 11.5, "altitude": np.nan}
    found = ros("sensor_msgs/msg/NavSatFix", position, FieldSpec(adapter="navsat"))
    np.testing.assert_array_equal(found, [48.1, 11.5, np.nan])


def test_imu_and_odometry_of_ros(ros):
    covariance = np.arange(9.0)
    imu = {"orientation": XYZW, "angular_velocity": XYZ, "linear_acceleration": {"x": 7.0}}
    imu["angular_velocity_covariance"] = covariance
    kind = "sensor_msgs/msg/Imu"
    found = ros(kind, imu, FieldSpec(("angular_velocity", "linear_acceleration")))
    assert found.tolist() == [1.5, 2.5, 3.5, 7, 0, 0]
    found = ros(kind, imu, FieldSpec(("orientation",), adapter="rotation_matrix"))
    assert found.tolist() == list(XYZW.values())  # the matrix is made of it after resampling
    assert ros(kind, imu, FieldSpec(("angular_velocity_covariance[3:5]",))).tolist() == [3, 4]
    odometry = {"child_frame_id": "base", "pose": {"pose": {"position": XYZ, "orientation": XYZW}}}
    odometry["twist"] = {"twist": {"linear": XYZ}}
    kind = "nav_msgs/msg/Odometry"
    assert ros(kind, odometry, FieldSpec(("pose.pose.position",))).tolist() == [1.5, 2.5, 3.5]
    assert ros(kind, odometry, FieldSpec(("pose.pose",))).tolist() == [*XYZ.values(), *XYZW.values()]
    assert ros(kind, odometry, FieldSpec(("twist.twist.linear.x",))) == 1.5
    assert ros(kind, odometry, FieldSpec(("child_frame_id",))) == "base"


def test_transforms_of_ros_in_a_list_or_alone(ros):
    one = {"child_frame_id": "base", "transform": {"translation": XYZ, "rotation": XYZW}}
    spec = FieldSpec(adapter="transforms", strings=8)
    for kind, message, count in [
        ("tf2_msgs/msg/TFMessage", {"transforms": [one, one | {"child_frame_id": "lidar"}]}, 2),
        ("geometry_msgs/msg/TransformStamped", one, 1),
    ]:
        found = ros(kind, message, spec)
        assert found["parent"].tolist() == ["map"] * count
        assert found["child"].tolist() == ["base", "lidar"][:count]
        assert found["translation"].tolist() == [list(XYZ.values())] * count
        assert found["rotation"].tolist() == [list(XYZW.values())] * count
        long = one | {"child_frame_id": "a_long_frame"}
        with pytest.raises(LogReadError, match=r"'a_long_frame' has 12 characters.* raise `strings`"):
            ros(kind, {"transforms": [long]} if "TF" in kind else long, spec)


# --- Foxglove -------------------------------------------------------------------------------------------

TIME = ".google.protobuf.Timestamp"
# Fields of each schema, as Foxglove documents them: types in protobuf's words, and names.
SCHEMAS = {
    "Vector3": "double x, double y, double z",
    "Quaternion": "double x, double y, double z, double w",
    "Pose": "Vector3 position, Quaternion orientation",
    "PackedElementField": "string name, fixed32 offset, int32 type",
    "RawImage": "time timestamp, string frame_id, fixed32 width, fixed32 height, string encoding, "
    "fixed32 step, bytes data",
    "CompressedImage": "time timestamp, string frame_id, bytes data, string format",
    "PointCloud": "time timestamp, string frame_id, Pose pose, fixed32 point_stride, "
    "PackedElementField[] fields, bytes data",
    "LaserScan": "time timestamp, string frame_id, Pose pose, double start_angle, double end_angle, "
    "double[] ranges, double[] intensities",
    "LocationFix": "time timestamp, string frame_id, double latitude, double longitude, double altitude, "
    "double[] position_covariance",
    "FrameTransform": "time timestamp, string parent_frame_id, string child_frame_id, Vector3 translation, "
    "Quaternion rotation",
    "FrameTransforms": "FrameTransform[] transforms",
    "PoseInFrame": "time timestamp, string frame_id, Pose pose",
}


def fields_of(schema):
    """(name, type, "repeated" where it is) of each field."""
    found = []
    for word in schema.split(", "):
        kind, name = word.split()
        repeated = ("repeated",) if kind.endswith("[]") else ()
        kind = kind.removesuffix("[]")
        kind = TIME if kind == "time" else f".toy.{kind}" if kind in SCHEMAS else kind
        found.append((name, kind, *repeated))
    return found


FOXGLOVE = {name: fields_of(schema) for name, schema in SCHEMAS.items()}
STAMP = {"sec": 1_700_000_000, "nsec": 5}
PROTOBUF_DEFINITION, CLASSES = definitions(*(message_type(name, *parts) for name, parts in FOXGLOVE.items()))


def encoded(form):
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, form)
    return file.getvalue()


def json_schema(name):
    words = {"string": {"type": "string"}, "bytes": {"type": "string", "contentEncoding": "base64"}}
    words |= {"double": {"type": "number"}, "fixed32": {"type": "integer", "minimum": 0}}
    words |= {"int32": {"oneOf": [{"title": t, "const": i} for i, t in enumerate(["UNKNOWN", "UINT8"])]}}
    properties = {}
    for field, kind, *repeated in FOXGLOVE[name]:
        if kind == TIME:
            parts = {part: {"type": "integer"} for part in ("sec", "nsec")}
            schema = {"type": "object", "title": "time", "properties": parts}
        else:
            schema = json_schema(kind[5:]) if kind.startswith(".") else words[kind]
        properties[field] = {"type": "array", "items": schema} if repeated else schema
    return {"title": f"foxglove.{name}", "type": "object", "properties": properties}


def as_json(name, values):
    """A whole message, since JSON has no defaults."""
    made = {}
    for field, kind, *repeated in FOXGLOVE[name]:
        value = values.get(field)
        if kind == TIME:
            made[field] = STAMP
        elif repeated:
            made[field] = [as_json(kind[5:], v) if kind.startswith(".") else v for v in value or ()]
        elif kind.startswith("."):
            made[field] = as_json(kind[5:], value or {})
        elif kind == "bytes":
            made[field] = base64.b64encode(value or b"").decode()
        else:
            made[field] = value if value is not None else ("" if kind == "string" else 0)
    return made


def as_protobuf(name, values):
    message = CLASSES[name]()
    for field, kind, *repeated in FOXGLOVE[name]:
        value = values.get(field)
        if kind == TIME:
            message.timestamp.seconds, message.timestamp.nanos = STAMP.values()
        elif value is None:
            continue
        elif repeated:
            parts = [as_protobuf(kind[5:], v) for v in value] if kind.startswith(".") else value
            getattr(message, field).extend(parts)
        elif kind.startswith("."):
            getattr(message, field).CopyFrom(as_protobuf(kind[5:], value))
        else:
            setattr(message, field, value)
    return message


@pytest.fixture(params=["protobuf", "json"])
def foxglove(request):
    """A function from a schema and values to what a spec takes from such a message."""

    def take(name, values, spec):
        if request.param == "json":
            definition = json.dumps(json_schema(name)).encode()
            decoder = JsonDecoder(TopicInfo("/t", name, "json", "jsonschema", definition, 0, 0, 0))
            payload = json.dumps(as_json(name, values)).encode()
        else:
            definition = PROTOBUF_DEFINITION
            decoder = ProtobufDecoder(
                TopicInfo("/t", f"toy.{name}", "protobuf", "protobuf", definition, 0, 0, 0)
            )
            payload = as_protobuf(name, values).SerializeToString()
        assert decoder.time_source(("header",)) == "header"
        assert decoder.header_time(raw_messages([payload])).tolist() == [1_700_000_000_000_000_005]
        return taken(decoder, [payload] * 2, spec)[1]

    return take


def test_images_of_foxglove(foxglove):
    raw = {"width": 8, "height": 6, "encoding": "bgr8", "step": 24, "data": PIXELS.tobytes()}
    found = foxglove("RawImage", raw, FieldSpec(adapter="image"))
    np.testing.assert_array_equal(found, PIXELS[:, :, ::-1])
    found = foxglove("RawImage", raw, FieldSpec(adapter="image", resize=(3, 4), encode="jpg"))
    assert Image.open(io.BytesIO(found)).size == (4, 3)
    for form in ("png", "jpeg"):
        compressed = {"format": form, "data": encoded(form)}
        expected = np.asarray(Image.open(io.BytesIO(encoded(form))))
        found = foxglove("CompressedImage", compressed, FieldSpec(adapter="image"))
        np.testing.assert_array_equal(found, expected)


def test_clouds_of_foxglove(foxglove):
    points = np.array([(1.5, 7, 2), (2.5, 8, 255)], [("x", "f4"), ("ring", "u2"), ("intensity", "u1")])
    fields = [
        {"name": name, "offset": points.dtype.fields[name][1], "type": kind}
        for name, kind in zip(points.dtype.names, (7, 3, 1), strict=True)
    ]
    cloud = {"point_stride": points.dtype.itemsize, "fields": fields, "data": points.tobytes()}
    found = foxglove("PointCloud", cloud, FieldSpec(adapter="points[ring,x]"))
    assert found.tolist() == [[7, 1.5], [8, 2.5]]
    whole = FieldSpec(adapter="points", dtype="x:float32,ring:uint16,intensity:uint8")
    assert foxglove("PointCloud", cloud, whole).tolist() == points.tolist()


def test_scans_and_positions_of_foxglove(foxglove):
    scan = {"ranges": [1.5, 0.25], "start_angle": -1.0, "end_angle": 1.0}
    assert foxglove("LaserScan", scan, FieldSpec(adapter="scan")).tolist() == [1.5, 0.25]
    position = {"latitude": 48.1, "longitude": 11.5, "altitude": 519.0}
    found = foxglove("LocationFix", position, FieldSpec(adapter="navsat"))
    assert found.tolist() == [48.1, 11.5, 519.0]


def test_transforms_and_poses_of_foxglove(foxglove):
    one = {"parent_frame_id": "map", "child_frame_id": "base", "translation": XYZ, "rotation": XYZW}
    spec = FieldSpec(adapter="transforms", strings=8)
    for name, message, count in [
        ("FrameTransforms", {"transforms": [one, one]}, 2),
        ("FrameTransform", one, 1),
    ]:
        found = foxglove(name, message, spec)
        assert found["parent"].tolist() == ["map"] * count
        assert found["child"].tolist() == ["base"] * count
        assert found["translation"].tolist() == [list(XYZ.values())] * count
        assert found["rotation"].tolist() == [list(XYZW.values())] * count
    pose = {"frame_id": "map", "pose": {"position": XYZ, "orientation": XYZW}}
    assert foxglove("PoseInFrame", pose, FieldSpec(("pose.position",))).tolist() == list(XYZ.values())
    found = foxglove("PoseInFrame", pose, FieldSpec(("pose.orientation",), adapter="rotation_matrix"))
    assert found.tolist() == list(XYZW.values())
