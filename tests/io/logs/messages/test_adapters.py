"""Adapters: images, point clouds, scans, positions and rotations, from ROS and Foxglove messages."""

import contextlib
import io
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from logloom.blocks import python_value
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages.adapters import rotation_matrix
from logloom.io.logs.messages.ros.decoders import CdrDecoder, Ros1Decoder
from tests.io.logs.messages.payloads import raw_messages, serialize, topic
from tests.tier import by_tier

IMAGE = "uint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data"
FOXGLOVE_IMAGE = (
    "time timestamp\nstring frame_id\nuint32 width\nuint32 height\nstring encoding\nuint32 step\nuint8[] data"
)
COMPRESSED = "string format\nuint8[] data"


def read(definition, messages, spec, per_buffer=3):
    """(column type, rows) of messages, after checking that the rows are of that type."""
    decode = CdrDecoder(topic(definition))
    values = decode.take(raw_messages([serialize(decode.root, m) for m in messages], per_buffer), spec)
    ctype = decode.column_type(spec)
    assert values.dtype == ctype.dtype
    assert len(values) == len(messages)
    return ctype, [python_value(row, ctype) for row in values]


def image(pixels, encoding, padding=0, big=False):
    height, width = pixels.shape[:2]
    rows = pixels.astype(pixels.dtype.newbyteorder(">" if big else "<")).reshape(height, -1).view(np.uint8)
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=77)
    return {
        "height": height,
        "width": width,
        "encoding": encoding,
        "is_bigendian": int(big),
        "step": rows.shape[1],
        "data": rows.ravel().tolist(),
    }


def pixels_of(dtype, channels, shape=(5, 7)):
    rng = np.random.default_rng(3)
    return rng.integers(0, 200, (*shape, channels)).astype(dtype)


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(
    ("encoding", "dtype", "channels", "order"),
    [
        ("rgb8", "uint8", 3, [0, 1, 2]),
        ("bgr8", "uint8", 3, [2, 1, 0]),
        ("rgba8", "uint8", 4, [0, 1, 2, 3]),
        ("bgra8", "uint8", 4, [2, 1, 0, 3]),
        ("mono8", "uint8", 1, [0]),
        ("mono16", "uint16", 1, [0]),
        ("rgb16", "uint16", 3, [0, 1, 2]),
        ("bgr16", "uint16", 3, [2, 1, 0]),
        ("rgba16", "uint16", 4, [0, 1, 2, 3]),
        ("bgra16", "uint16", 4, [2, 1, 0, 3]),
        *(
            (f"{kind}C{n}", dtype, n, list(range(n)))
            for kind, dtype in (
                ("8U", "uint8"),
                ("8S", "int8"),
                ("16U", "uint16"),
                ("16S", "int16"),
                ("32S", "int32"),
                ("32F", "float32"),
                ("64F", "float64"),
            )
            for n in (1, 2, 3, 4)
        ),
    ],
)
def test_raw_images_read_in_every_encoding(encoding, dtype, channels, order, big, padding):
    pixels = pixels_of(dtype, channels)
    spec = FieldSpec(adapter="image", dtype=dtype)
    ctype, rows = read(IMAGE, [image(pixels, encoding, padding, big)] * 2, spec)
    assert (ctype.dtype, ctype.shape) == (np.dtype(dtype), (None, None, None))
    for row in rows:
        np.testing.assert_array_equal(row, pixels[:, :, order])


def test_a_raw_image_that_needs_no_change_is_a_view():
    decode = CdrDecoder(topic(IMAGE))
    raw = raw_messages([serialize(decode.root, image(pixels_of("uint8", 3, (20, 20)), "rgb8", padding=4))])
    assert np.shares_memory(decode.take(raw, FieldSpec(adapter="image"))[0], raw.buffers[0])


def test_images_of_a_promised_shape_are_one_array():
    pixels = pixels_of("uint8", 3)
    spec = FieldSpec(adapter="image", shape=(5, 7, 3))
    ctype, rows = read(IMAGE, [image(pixels, "rgb8")] * 3, spec)
    assert ctype.shape == (5, 7, 3)
    np.testing.assert_array_equal(rows, [pixels] * 3)
    with pytest.raises(LogReadError, match=r"\(4, 7, 3\), the column's \(5, 7, 3\)"):
        read(IMAGE, [image(pixels[:4], "rgb8")], spec)


def test_foxglove_images_read_like_those_of_ros():
    pixels = pixels_of("uint8", 3)
    fields = image(pixels, "bgr8", padding=2) | {"timestamp": {"sec": 1, "nanosec": 2}, "frame_id": "x"}
    _, rows = read(FOXGLOVE_IMAGE, [fields], FieldSpec(adapter="image"))
    np.testing.assert_array_equal(rows[0], pixels[:, :, ::-1])


def encoded(pixels, form, **options):
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, form, **options)
    return file.getvalue()


def test_compressed_images_decode():
    pixels = pixels_of("uint8", 3)
    grey, alpha, deep = pixels_of("uint8", 1), pixels_of("uint8", 4), pixels_of("uint16", 1)
    for value, form, dtype in [
        (pixels, "PNG", None),
        (grey, "PNG", None),
        (alpha, "PNG", None),
        (deep, "PNG", "uint16"),
    ]:
        message = {"format": "png", "data": list(encoded(value, form))}
        _, rows = read(COMPRESSED, [message], FieldSpec(adapter="image", dtype=dtype))
        np.testing.assert_array_equal(rows[0], value)
    jpeg = encoded(pixels, "JPEG")
    _, rows = read(COMPRESSED, [{"format": "jpeg", "data": list(jpeg)}], FieldSpec(adapter="image"))
    np.testing.assert_array_equal(rows[0], np.asarray(Image.open(io.BytesIO(jpeg))))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32", "float32"])
def test_resized_images_are_those_of_pillow(dtype):
    pixels = pixels_of(dtype, 1, (20, 30))
    encoding = {
        "uint8": "mono8",
        "uint16": "mono16",
        "int16": "16SC1",
        "int32": "32SC1",
        "float32": "32FC1",
    }[dtype]
    spec = FieldSpec(adapter="image", resize=(8, 9), shape=(8, 9, 1), dtype=dtype)
    ctype, rows = read(IMAGE, [image(pixels, encoding)] * 2, spec)
    assert ctype.shape == (8, 9, 1)
    is_kept = dtype in ("uint8", "int32")
    plain = Image.fromarray(pixels[:, :, 0] if is_kept else pixels[:, :, 0].astype("f4"))
    expected = np.asarray(plain.resize((9, 8), Image.Resampling.BILINEAR))
    expected = np.rint(expected) if "int" in dtype else expected
    np.testing.assert_array_equal(rows[1][:, :, 0], expected.astype(dtype))


def test_a_colour_image_resizes_to_three_channels():
    pixels = pixels_of("uint8", 3, (20, 30))
    ctype, rows = read(IMAGE, [image(pixels, "bgr8")], FieldSpec(adapter="image", resize=(10, 12)))
    expected = Image.fromarray(pixels[:, :, ::-1].copy()).resize((12, 10), Image.Resampling.BILINEAR)
    assert ctype.shape == (10, 12, 3)
    np.testing.assert_array_equal(rows[0], np.asarray(expected))
    with pytest.raises(LogReadError, match="set shape"):
        read(IMAGE, [image(pixels[:, :, :1], "mono8")], FieldSpec(adapter="image", resize=(10, 12)))
    mosaic = image(pixels[:, :, :1], "bayer_gbrg8")
    (whole,) = read(IMAGE, [mosaic], FieldSpec(adapter="image"))[1]
    (small,) = read(IMAGE, [mosaic], FieldSpec(adapter="image", resize=(10, 12)))[1]
    expected = Image.fromarray(whole).resize((12, 10), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(small, np.asarray(expected))


def test_encoded_images_are_bytes_that_decode_again():
    pixels = pixels_of("uint8", 3)
    ctype, rows = read(IMAGE, [image(pixels, "bgr8")], FieldSpec(adapter="image", encode="png"))
    assert ctype.kind == "bytes"
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(rows[0]))), pixels[:, :, ::-1])
    _, rows = read(IMAGE, [image(pixels, "rgb8")], FieldSpec(adapter="image", encode="jpg"))
    assert rows[0] == encoded(pixels, "JPEG", quality=95)
    deep = pixels_of("uint16", 1)
    _, rows = read(IMAGE, [image(deep, "mono16", big=True)], FieldSpec(adapter="image", encode="png"))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(rows[0]))), deep[:, :, 0])


@pytest.mark.parametrize("encode", ["png", "jpg"])
@pytest.mark.parametrize("channels", [1, 3])
def test_signed_pixels_are_not_encoded(encode, channels):
    sent = image(pixels_of("int8", channels), f"8SC{channels}")
    with pytest.raises(LogReadError, match=f"{channels} channels of int8 can't be encoded as {encode}"):
        read(IMAGE, [sent], FieldSpec(adapter="image", encode=encode))


def test_a_jpeg_passes_encode_jpg_untouched_unless_it_is_resized():
    jpeg = encoded(pixels_of("uint8", 3, (40, 40)), "JPEG", quality=30)
    message = {"format": "jpeg", "data": list(jpeg)}
    assert read(COMPRESSED, [message], FieldSpec(adapter="image", encode="jpg"))[1] == [jpeg]
    _, rows = read(COMPRESSED, [message], FieldSpec(adapter="image", encode="jpg", resize=(10, 10)))
    assert Image.open(io.BytesIO(rows[0])).size == (10, 10)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": 2}, "don't fit"),
        ({"height": 2**32 - 1, "step": 2**32 - 1}, "don't fit"),
        ({"width": 2**31}, "don't fit"),
        ({"encoding": "nv21"}, "5 x 7 nv21 pixels in rows of 21 bytes don't fit 105 bytes"),
        ({"encoding": "nv42"}, "'nv42' aren't read"),
        ({"encoding": "bayer_rggb8", "height": 2}, "2 x 7 pixels is too small"),
        ({"encoding": "mono16", "width": 3}, "pixels are uint16, the column uint8; set dtype"),
        ({"data": [0] * 10}, "don't fit"),
    ],
)
def test_raw_images_that_lie_are_refused_with_their_place(change, words):
    message = image(pixels_of("uint8", 3), "rgb8") | change
    with pytest.raises(
        LogReadError, match=rf"drive.mcap: chunk 0, /topic message at offset 1 in it: .*{words}"
    ):
        read(IMAGE, [image(pixels_of("uint8", 3), "rgb8"), message], FieldSpec(adapter="image"))


def test_compressed_images_that_dont_decode_are_refused():
    png = encoded(pixels_of("uint8", 3), "PNG")
    header = b"IHDR" + struct.pack(">II", 6_000, 6_000) + png[24:29]
    header = png[:12] + header + struct.pack(">I", zlib.crc32(header)) + png[33:]
    for data, words in [(b"", ""), (b"no image", ""), (png[:40], ""), (header, r"it claims 6000 x 6000")]:
        with pytest.raises(LogReadError, match=f"doesn't decode .*{words}"):
            read(COMPRESSED, [{"format": "png", "data": list(data)}], FieldSpec(adapter="image"))


def test_the_plainest_images_are_not_taken_for_broken_ones():
    for form, options in [("PNG", {"optimize": True}), ("JPEG", {"optimize": True, "progressive": True})]:
        file = io.BytesIO()
        Image.new("L", (6000, 4000)).convert("1" if form == "PNG" else "L").save(file, form, **options)
        message = {"format": form.lower(), "data": list(file.getvalue())}
        _, rows = read(COMPRESSED, [message], FieldSpec(adapter="image", resize=(2, 3), shape=(2, 3, 1)))
        assert rows[0].max() == 0


def test_image_settings_that_make_no_sense_are_refused_at_plan():
    decode = CdrDecoder(topic(IMAGE))
    for spec, words in [
        (FieldSpec(adapter="image", encode="gif"), "known are jpg, png"),
        (FieldSpec(adapter="image", dtype="int64"), "known are uint8"),
        (FieldSpec(adapter="image", shape=(4, 4)), "height, width, channels"),
        (FieldSpec(adapter="image", resize=(0, 5)), "height, width"),
        (FieldSpec(adapter="image", resize=(4, 5), shape=(5, 5, 3)), "resized to"),
        (FieldSpec(adapter="scan"), "the message has no ranges"),
        (FieldSpec(adapter="imagine"), "known are image, points"),
        (FieldSpec(adapter="points"), "the message has no height"),
        (FieldSpec(adapter="image[x]"), "write image alone"),
        (FieldSpec(("height", "width"), adapter="image"), "reads one field"),
    ]:
        with pytest.raises(UsageError, match=words):
            decode.column_type(spec)


def test_scans_and_positions_of_real_logs(shared_data):
    from rosbags.rosbag1 import Reader
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    from logloom.io.logs.interface import TopicInfo

    payloads = {"/scan": [], "/position_gps": []}
    found = {}
    with Reader(shared_data / "logs" / "tilt_laser.bag") as reader:
        wanted = [c for c in reader.connections if c.topic in payloads]
        for connection, _, data in reader.messages(connections=wanted):
            found[connection.topic] = connection
            payloads[connection.topic].append(bytes(data))
    for name, adapter, fields in [
        ("/scan", "scan", ("ranges",)),
        ("/position_gps", "navsat", ("latitude", "longitude", "altitude")),
    ]:
        connection = found[name]
        text, kind = connection.msgdef.data, connection.msgtype
        decode = Ros1Decoder(TopicInfo(name, kind, "ros1", "ros1msg", text.encode(), 0, 0, 0))
        store = get_typestore(Stores.EMPTY)
        store.register(get_types_from_msg(text, kind))
        rows = decode.take(raw_messages(payloads[name]), FieldSpec(adapter=adapter))
        for row, payload in zip(rows, payloads[name], strict=True):
            message = store.deserialize_ros1(payload, kind)
            parts = [getattr(message, field) for field in fields]
            np.testing.assert_array_equal(row, parts[0] if adapter == "scan" else parts)


def test_rotation_matrices_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    quaternions = rng.normal(size=(50, 4)) * rng.uniform(0.1, 9, (50, 1))
    matrices = rotation_matrix(quaternions)
    assert matrices.shape == (50, 3, 3)
    np.testing.assert_allclose(
        matrices @ matrices.transpose(0, 2, 1), np.broadcast_to(np.eye(3), (50, 3, 3)), atol=1e-12
    )
    np.testing.assert_allclose(np.linalg.det(matrices), 1, atol=1e-12)
    axis = quaternions[:, :3]
    np.testing.assert_allclose((matrices @ axis[:, :, None])[:, :, 0], axis, atol=1e-12)
    quarter = rotation_matrix(np.array([[0.0, 0.0, 1.0, 1.0]]))[0]
    np.testing.assert_allclose(quarter, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-15)
    assert rotation_matrix(np.zeros((0, 4))).shape == (0, 3, 3)
    for bad in ([0.0] * 4, [np.nan, 0, 0, 1], [np.inf, 0, 0, 1]):
        with pytest.raises(ValueError, match="is no rotation"):
            rotation_matrix(np.array([[0.0, 0.0, 0.0, 1.0], bad]))


def test_rotation_matrix_reads_the_quaternion_to_be_resampled():
    text = "Pose pose\n===\nMSG: pkg/Pose\nQ q\n===\nMSG: pkg/Q\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w"
    message = {"pose": {"q": {"x": 0.1, "y": 0.2, "z": 0.3, "w": 0.4}}}
    ctype, rows = read(text, [message], FieldSpec(("pose.q",), adapter="rotation_matrix"))
    assert ctype.shape == (4,)
    assert rows[0].tolist() == [0.1, 0.2, 0.3, 0.4]
    with pytest.raises(UsageError, match="field pose has no x, y, z, w"):
        read(text, [message], FieldSpec(("pose",), adapter="rotation_matrix"))


@pytest.mark.filterwarnings("ignore:Image size .* exceeds limit")
def test_mutated_images_are_read_or_refused():
    pixels = pixels_of("uint8", 3, (9, 11))
    messages = [(IMAGE, image(pixels, "bgr8", padding=3))]
    messages += [
        (COMPRESSED, {"format": f, "data": list(encoded(pixels, f))}) for f in ("jpeg", "png", "webp")
    ]
    specs = [
        FieldSpec(adapter="image"),
        FieldSpec(adapter="image", resize=(4, 5), encode="png"),
        FieldSpec(adapter="image", encode="jpg"),
    ]
    decoders = [CdrDecoder(topic(definition)) for definition, _ in messages]
    payloads = [serialize(d.root, m) for d, (_, m) in zip(decoders, messages, strict=True)]
    read, count = 0, by_tier(75, 1150)
    for seed in range(count):
        rng = random.Random(seed)
        which = rng.randrange(len(payloads))
        payload = bytearray(payloads[which])
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(payload))
            payload[at : at + 4] = rng.choice([rng.randbytes(4), b"\xff" * 4, bytes(4)])[: len(payload) - at]
        for spec in specs:
            with contextlib.suppress(LogReadError):
                read += len(decoders[which].take(raw_messages([bytes(payload)]), spec))
    assert read > count // 4
