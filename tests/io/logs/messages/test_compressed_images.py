"""Depth images of image_transport, and PNGs of 16 bits, hold the values that were encoded."""

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from logloom.errors import LogReadError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages import rvl
from logloom.io.logs.messages.compressed_images import form_of, pixels_of
from logloom.io.logs.messages.ros.decoders import CdrDecoder
from tests.io.logs.messages.payloads import raw_messages, serialize, topic
from tests.io.logs.messages.test_adapters import COMPRESSED


def encoded_rvl(pixels):
    """A plain encoder of the code, one nibble after another."""
    nibbles = []

    def put(number):
        while True:
            more = number >> 3
            nibbles.append(number & 7 | (8 if more else 0))
            number = more
            if not number:
                return

    values, at, previous = [int(v) for v in pixels], 0, 0
    while at < len(values):
        zeros = at
        while at < len(values) and values[at] == 0:
            at += 1
        put(at - zeros)
        start = at
        while at < len(values) and values[at] != 0:
            at += 1
        put(at - start)
        for value in values[start:at]:
            difference = value - previous
            put(difference * 2 if difference >= 0 else -difference * 2 - 1)
            previous = value
    nibbles += [0] * (-len(nibbles) % 8)
    words = [int("".join(f"{n:x}" for n in nibbles[i : i + 8]), 16) for i in range(0, len(nibbles), 8)]
    return struct.pack(f"<{len(words)}I", *words)


def encoded_png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def depth(values, form, a=0.0, b=0.0):
    """A message with uint16 pixels as image_transport compresses them."""
    if "rvl" in form:
        data = struct.pack("<II", values.shape[1], values.shape[0]) + encoded_rvl(values.ravel())
    else:
        data = encoded_png(values)
    return message(form, struct.pack("<iff", 0, a, b) + data)


def message(form, data):
    return {"format": np.frombuffer(form.encode(), np.uint8), "data": np.frombuffer(data, np.uint8)}


def checked(sent):
    """The pixels of a message, whose form agrees with them."""
    pixels, form = pixels_of(sent), form_of(sent)
    assert form == (pixels.dtype.newbyteorder("="), pixels.shape)
    return pixels


numbers = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 65535), st.integers(800, 900))


@given(st.lists(numbers, min_size=1, max_size=300))
def test_rvl_decodes_what_was_encoded(values):
    pixels = np.array(values, np.uint16)
    data = np.frombuffer(encoded_rvl(pixels), np.uint8)
    np.testing.assert_array_equal(rvl.decode(data, len(pixels)), pixels)
    if len(data) > 4:
        with pytest.raises(ValueError, match="RVL data"):
            rvl.decode(data[:-4], len(pixels))
    with pytest.raises(ValueError, match="RVL data"):
        rvl.decode(data, len(pixels) + 300)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_bytes_are_pixels_or_no_rvl(data, count):
    try:
        pixels = rvl.decode(np.frombuffer(data, np.uint8), count)
    except ValueError:
        return
    assert pixels.shape == (count,)


FORMS = [
    ("16UC1; compressedDepth png", False),
    ("16UC1; compressedDepth", False),
    ("16UC1; compressedDepth rvl", False),
    ("mono16; compressedDepth rvl", False),
    ("16UC1", False),
    ("32FC1; compressedDepth png", True),
    ("32FC1; compressedDepth", True),
    ("32FC1; compressedDepth rvl", True),
]


@pytest.mark.parametrize(("form", "is_inverse"), FORMS)
def test_depth_images_are_millimetres_or_metres(form, is_inverse):
    rng = np.random.default_rng(5)
    if not is_inverse:
        values = rng.integers(0, 65536, (37, 41)).astype(np.uint16)
        values[rng.random(values.shape) < 0.3] = 0
        found = checked(depth(values, form))
        np.testing.assert_array_equal(found[:, :, 0], values)
        assert found.dtype == np.uint16
        return
    # As the publisher quantises: depth_quantization 100, depth_max 10 m.
    metres = rng.uniform(0.4, 12, (37, 41)).astype(np.float32)
    metres[rng.random(metres.shape) < 0.1] = np.nan
    a = np.float32(100.0 * 101.0)
    b = np.float32(1.0) - a / np.float32(10.0)
    is_near = metres < 10
    values = np.zeros(metres.shape, np.uint16)
    values[is_near] = (a / metres[is_near] + b).astype(np.uint16)
    found = checked(depth(values, form, a, b))[:, :, 0]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(found), ~is_near)
    np.testing.assert_allclose(found[is_near], metres[is_near], rtol=0.0015)
    one = np.argwhere(is_near)[0]
    assert found[tuple(one)] == a / (np.float32(values[tuple(one)]) - b)


def test_depth_is_a_column_of_its_dtype():
    decode = CdrDecoder(topic(COMPRESSED))
    values = np.arange(60, dtype=np.uint16).reshape(6, 10)
    sent = depth(values, "16UC1; compressedDepth rvl")
    payload = serialize(decode.root, {"format": "16UC1; compressedDepth rvl", "data": sent["data"].tolist()})
    empty = serialize(decode.root, {"format": "16UC1; compressedDepth rvl", "data": [0] * 12})
    spec = FieldSpec(adapter="image", dtype="uint16", shape=(6, 10, 1))
    np.testing.assert_array_equal(decode.take(raw_messages([payload]), spec)[0, :, :, 0], values)
    assert decode.has_value(raw_messages([payload, empty]), spec).tolist() == [True, False]
    with pytest.raises(LogReadError, match=r"are uint16, the column uint8; set dtype: uint16"):
        decode.take(raw_messages([payload]), FieldSpec(adapter="image"))


@pytest.mark.parametrize(
    ("form", "data", "words"),
    [
        ("16UC1; compressedDepth rvl", bytes(12), "in 12 bytes"),
        ("16UC1; compressedDepth rvl", bytes(16), "it has no size"),
        ("16UC1; compressedDepth rvl", bytes(12) + struct.pack("<II", 1 << 20, 1 << 20) + bytes(8), "claims"),
        ("16UC1; compressedDepth rvl", bytes(12) + struct.pack("<II", 8, 8) + bytes(8), "empty run after 0"),
        ("16UC1; compressedDepth rvl", bytes(12) + struct.pack("<II", 8, 8), "ends after 0 of 64 pixels"),
        ("16UC1; compressedDepth rvl", bytes(12) + struct.pack("<II", 1, 1) + b"\xff" * 8, "ends after 0"),
        (
            "16UC1; compressedDepth rvl",
            bytes(12) + struct.pack("<II", 9, 9) + b"\xff" * 8 + bytes(4),
            "32 bits",
        ),
        ("16UC1; compressedDepth rvl", bytes(12) + struct.pack("<II", 1, 1) + b"\0\0\0\x20", "don't fit 1 p"),
        ("16UC1; compressedDepth png", bytes(12) + b"\x89PNG", "doesn't decode"),
        (
            "16UC1; compressedDepth",
            bytes(12) + encoded_png(np.zeros((3, 4), np.uint8)),
            "1 channels of uint8",
        ),
        ("8UC1; compressedDepth png", bytes(40), "'8UC1; compressedDepth png' aren't read"),
        ("16UC1; compressedDepth zip", bytes(40), "aren't read"),
    ],
)
def test_depth_images_that_lie_are_refused(form, data, words):
    with pytest.raises(ValueError, match=words):
        pixels_of(message(form, data))


@pytest.mark.parametrize("channels", [3, 4])
def test_pngs_of_16_bits_keep_them(channels):
    cv2 = pytest.importorskip("cv2", reason="Pillow writes no such PNG")
    rng = np.random.default_rng(2)
    smooth = np.add.outer(np.arange(60) * 700, np.arange(80) * 90)[..., None] + np.arange(channels) * 1000
    pixels = (smooth + rng.integers(0, 300, smooth.shape)).astype(np.uint16)  # so that all filters are used
    order = [2, 1, 0, 3][:channels]
    png = cv2.imencode(".png", pixels[..., order], [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_ALL_FILTERS])[1]
    np.testing.assert_array_equal(checked(message("rgb16; png compressed", png.tobytes())), pixels)


def test_grey_pngs_of_16_bits_with_alpha_keep_them():
    import zlib

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    pixels = np.random.default_rng(2).integers(0, 65536, (5, 7, 2)).astype(np.uint16)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 7, 5, 16, 4, 0, 0, 0))
    png += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    np.testing.assert_array_equal(checked(message("png", png)), pixels[:, :, [0, 0, 0, 1]])
    np.testing.assert_array_equal(
        np.asarray(Image.open(io.BytesIO(png))), (pixels >> 8)[:, :, [0, 0, 0, 1]].astype(np.uint8)
    )


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16", "CMYK"])
def test_the_header_of_a_file_shows_the_form_of_its_pixels(mode):
    grey = Image.fromarray(np.arange(63, dtype=np.uint16).reshape(7, 9))
    picture = grey if mode == "I;16" else Image.new(mode, (9, 7))
    file = io.BytesIO()
    picture.save(file, "jpeg" if mode == "CMYK" else "png")
    assert checked(message("x", file.getvalue())).shape[:2] == (7, 9)


def test_compressed_mosaics_are_demosaiced():
    cv2 = pytest.importorskip("cv2", reason="mosaics are compared with OpenCV's")
    mosaic = np.random.default_rng(3).integers(0, 256, (20, 30)).astype(np.uint8)
    wanted = cv2.cvtColor(mosaic, cv2.COLOR_BayerGBRG2RGB)
    sent = message("bayer_gbrg8; png compressed bayer_gbrg8", encoded_png(mosaic))
    np.testing.assert_array_equal(checked(sent), wanted)
