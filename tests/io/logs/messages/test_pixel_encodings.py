"""Encodings of raw images give what OpenCV gives, for any size, step and byte order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logloom.errors import LogReadError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages.adapters import FORMS
from logloom.io.logs.messages.images import form_of
from logloom.io.logs.messages.pixel_encodings import ENCODINGS, pixels_of
from logloom.io.logs.messages.pixel_encodings import form_of as form_of_message
from logloom.io.logs.messages.ros.decoders import CdrDecoder
from tests.io.logs.messages.payloads import raw_messages, serialize, topic
from tests.io.logs.messages.test_adapters import FOXGLOVE_IMAGE, IMAGE, image
from tests.tier import examples

cv2 = pytest.importorskip("cv2", reason="the encodings are compared with OpenCV's")

few = settings(max_examples=examples(0.3))  # of each encoding
BAYER = [f"bayer_{pattern}{bits}" for pattern in ("rggb", "bggr", "gbrg", "grbg") for bits in (8, 16)]
PAIRS = {"yuv422": "UYVY", "uyvy": "UYVY", "yuv422_yuy2": "YUY2", "yuyv": "YUY2"}


def message(encoding, height, width, step, data, big=False):
    return {
        "height": height,
        "width": width,
        "encoding": np.frombuffer(encoding.encode(), np.uint8),
        "is_bigendian": int(big),
        "step": step,
        "data": np.frombuffer(data, np.uint8),
    }


def checked(sent):
    """The pixels of a message, whose form agrees with them."""
    pixels, form = pixels_of(sent), form_of_message(sent)
    assert form == (pixels.dtype.newbyteorder("="), pixels.shape)
    return pixels


def seeded(draw, *shape, dtype=np.uint8):
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    return (
        rng.integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint16)
        .astype(np.uint8)
        .view(dtype)[..., 0]
    )


def in_rows(rows, padding, seed=5):
    """(bytes, step) of rows of bytes with padding, which the last row lacks."""
    rows = rows.view(np.uint8).reshape(len(rows), -1)
    filled = (
        np.random.default_rng(seed).integers(0, 256, (len(rows), rows.shape[1] + padding)).astype(np.uint8)
    )
    filled[:, : rows.shape[1]] = rows
    data = filled.tobytes()
    return (data[:-padding] if padding else data), filled.shape[1]


@few
@given(st.data())
@pytest.mark.parametrize("encoding", BAYER)
def test_mosaics_are_demosaiced_like_by_opencv(encoding, data):
    height, width, padding = (data.draw(st.integers(low, 40)) for low in (3, 3, 0))
    big = data.draw(st.booleans())
    dtype = np.uint8 if encoding.endswith("8") else np.uint16
    mosaic = seeded(data.draw, height, width, dtype=dtype)
    sent, step = in_rows(mosaic.astype(np.dtype(dtype).newbyteorder(">" if big else "<")), padding)
    code = getattr(cv2, f"COLOR_Bayer{encoding[6:10].upper()}2RGB")
    wanted = cv2.cvtColor(mosaic, code)
    np.testing.assert_array_equal(checked(message(encoding, height, width, step, sent, big)), wanted)


@few
@given(st.data())
@pytest.mark.parametrize("encoding", PAIRS)
def test_pairs_of_yuv_become_rgb_like_by_opencv(encoding, data):
    height, pairs, padding = (data.draw(st.integers(low, 40)) for low in (1, 1, 0))
    pixels = seeded(data.draw, height, pairs * 2, 2)
    sent, step = in_rows(pixels, padding)
    wanted = cv2.cvtColor(pixels, getattr(cv2, f"COLOR_YUV2RGB_{PAIRS[encoding]}"))
    np.testing.assert_array_equal(checked(message(encoding, height, pairs * 2, step, sent)), wanted)
    np.testing.assert_array_equal(
        checked(message(encoding, height, pairs * 2 - 1, step, sent)), wanted[:, : pairs * 2 - 1]
    )


def test_every_brightness_with_every_colour_is_that_of_opencv():
    pixels = np.empty((256, 512, 2), np.uint8)
    pixels[..., 0] = np.arange(512) // 2
    pixels[..., 1] = np.arange(256)[:, None]
    wanted = cv2.cvtColor(pixels, cv2.COLOR_YUV2RGB_UYVY)
    np.testing.assert_array_equal(checked(message("uyvy", 256, 512, 1024, pixels.tobytes())), wanted)


def even(plane):
    """A plane whose last row or column is repeated up to an even number."""
    return np.pad(plane, [(0, plane.shape[0] % 2), (0, plane.shape[1] % 2)], mode="edge")


@few
@given(st.data())
@pytest.mark.parametrize("convention", ["packed", "step", "no step", "12 bits", "all rows"])
@pytest.mark.parametrize("encoding", ["nv12", "nv21"])
def test_planes_of_yuv_become_rgb_like_by_opencv(encoding, convention, data):
    is_even = convention in ("all rows", "12 bits")
    height, width = (
        data.draw(st.integers(1, 20)) * 2 - (0 if is_even else data.draw(st.integers(0, 1))) for _ in "hw"
    )
    padding = data.draw(st.integers(1, 9)) if convention == "step" else 0
    y = seeded(data.draw, height, width)
    chroma = seeded(data.draw, -(-height // 2), -(-width // 2) * 2)
    wanted = cv2.cvtColor(
        np.concatenate([even(y), chroma]), getattr(cv2, f"COLOR_YUV2RGB_{encoding.upper()}")
    )[:height, :width]
    step = width + padding
    sent = b"".join(
        np.pad(rows, [(0, 0), (0, max(0, step - rows.shape[1]))], constant_values=9).tobytes()
        for rows in (y, chroma)
    )
    stated = {"no step": 0, "12 bits": width * 3 // 2}.get(convention, step)
    rows = height * 3 // 2 if convention == "all rows" else height
    np.testing.assert_array_equal(checked(message(encoding, rows, width, stated, sent)), wanted)


@few
@given(st.data())
@pytest.mark.parametrize("convention", ["packed", "step", "no step", "all rows"])
def test_nv24_becomes_rgb_by_the_matrix_of_the_others(convention, data):
    height, width = (data.draw(st.integers(1, 20)) for _ in "hw")
    padding = data.draw(st.integers(1, 9)) if convention == "step" else 0
    y, chroma = seeded(data.draw, height, width), seeded(data.draw, height, width, 2)
    # Of nv12, in which two by two pixels share their U and V, each pixel becomes four.
    doubled = np.concatenate([y.repeat(2, 0).repeat(2, 1), chroma.reshape(height, width * 2)])
    wanted = cv2.cvtColor(doubled, cv2.COLOR_YUV2RGB_NV12)[::2, ::2]
    sent = np.pad(y, [(0, 0), (0, padding)]).tobytes()
    sent += np.pad(chroma.reshape(height, width * 2), [(0, 0), (0, 2 * padding)]).tobytes()
    step = 0 if convention == "no step" else width + padding
    rows = height * 3 if convention == "all rows" else height
    np.testing.assert_array_equal(checked(message("nv24", rows, width, step, sent)), wanted)


def line_of(encoding, width, pixels):
    """The bytes of a row without padding."""
    if encoding in BAYER:
        return width * pixels.itemsize
    if encoding in PAIRS:
        return -(-width // 2) * 4
    return width if encoding.startswith("nv") else pixels[0].nbytes


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_any_data_is_read_or_refused_and_a_step_of_0_means_packed(encoding):
    rng = np.random.default_rng(7)
    read, refusals = 0, []
    for _ in range(60):
        height, width, step, size = (int(n) for n in rng.integers(0, (9, 9, 300, 2000)))
        sent = message(
            encoding, height, width, int(rng.choice([0, step])), rng.bytes(size), rng.random() < 0.5
        )
        try:
            pixels = checked(sent)
        except ValueError as error:
            refusals.append(str(error))
            continue
        read += 1
        if sent["step"] == 0 and height:
            again = pixels_of(sent | {"step": line_of(encoding, width, pixels)})
            np.testing.assert_array_equal(again, pixels)
    assert read > 5
    assert refusals
    assert all("don't fit" in why or "too small" in why for why in refusals)


def test_large_images_are_converted_in_bands():
    rng = np.random.default_rng(1)
    for height, width in ((301, 1000), (3, 70_001), (70_001, 3)):
        mosaic = rng.integers(0, 256, (height, width), np.uint16).astype(np.uint8)
        wanted = cv2.cvtColor(mosaic, cv2.COLOR_BayerGRBG2RGB)
        np.testing.assert_array_equal(
            checked(message("bayer_grbg8", height, width, 0, mosaic.tobytes())), wanted
        )
    planes = rng.integers(0, 256, (900, 1000), np.uint16).astype(np.uint8)
    np.testing.assert_array_equal(
        checked(message("nv12", 600, 1000, 1000, planes.tobytes())),
        cv2.cvtColor(planes, cv2.COLOR_YUV2RGB_NV12),
    )


def test_empty_images_have_no_value():
    decode = CdrDecoder(topic(IMAGE))
    grey = image(np.ones((4, 5, 1), np.uint8), "mono8")
    nothing = {"height": 0, "width": 0, "encoding": "", "is_bigendian": 0, "step": 0, "data": []}
    huge = {"width": 1 << 16, "height": 1 << 16}  # to be refused
    sent = [nothing, grey, grey | {"data": []}, grey | {"width": 0}, grey | {"height": 0}, grey | huge]
    raw = raw_messages([serialize(decode.root, m) for m in sent])
    wanted = [False, True, False, False, False, True]
    assert decode.has_value(raw, FieldSpec(adapter="image")).tolist() == wanted
    assert decode.has_value(raw, FieldSpec(adapter=FORMS)).tolist() == wanted
    (numbers,) = decode.take(raw.take(np.array([1])), FieldSpec(adapter=FORMS))
    assert form_of(numbers) == (np.dtype(np.uint8), (4, 5, 1))
    with pytest.raises(LogReadError, match="images of encoding '' aren't read; known are mono, rgb"):
        decode.take(raw, FieldSpec(adapter=FORMS))


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_foxglove_images_of_every_encoding_have_the_pixels_of_ros(encoding):
    height, width, data = 6, 8, bytes(range(256)) * 6
    sent = message(encoding, height, width, 0, data)
    wanted = checked(sent)
    fields = {"height": height, "width": width, "encoding": encoding, "step": 0, "data": list(data)}
    spec = FieldSpec(adapter="image", dtype=wanted.dtype.name, shape=wanted.shape)
    for definition, more in (
        (IMAGE, {"is_bigendian": 0}),
        (FOXGLOVE_IMAGE, {"timestamp": {"sec": 1, "nanosec": 2}, "frame_id": "x"}),
    ):
        decode = CdrDecoder(topic(definition))
        (found,) = decode.take(raw_messages([serialize(decode.root, fields | more)]), spec)
        np.testing.assert_array_equal(found, wanted)
