"""Small pictures of values, which may be anything."""

import io

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from logloom.pictures import is_image, seen_from_above, thumbnail


def encoded(image, kind):
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_an_encoded_image_becomes_a_small_jpeg_of_its_shape(kind):
    data = encoded(PIL.Image.linear_gradient("L").resize((1000, 400)).convert("RGB"), kind)
    assert is_image(data)
    small = thumbnail(data, 320)
    with PIL.Image.open(io.BytesIO(small.data)) as image:
        assert (image.format, image.size) == ("JPEG", (320, 128))
        assert image.getpixel((5, 5))[0] < 20 < 235 < image.getpixel((5, 122))[0]
    assert thumbnail(data, 320) == small


@pytest.mark.parametrize("shape", [(40, 50), (40, 50, 1), (40, 50, 3), (40, 50, 4)])
def test_arrays_are_images(shape):
    value = np.full(shape, 77, np.uint8)
    assert is_image(value)
    small = thumbnail(value)
    with PIL.Image.open(io.BytesIO(small.data)) as image:
        assert image.size == (50, 40)
        assert abs(image.getpixel((9, 9))[0] - 77) < 3


def test_depth_is_shown_by_its_own_range():
    depth = np.linspace(500, 700, 64 * 64).reshape(64, 64).astype(np.uint16)
    small = thumbnail(encoded(PIL.Image.fromarray(depth), "PNG"))
    with PIL.Image.open(io.BytesIO(small.data)) as image:
        assert image.getpixel((0, 0))[0] < 10 < 245 < image.getpixel((63, 63))[0]


def test_a_bomb_is_not_opened():
    image = PIL.Image.new("1", (20_000, 20_000))
    assert thumbnail(encoded(image, "PNG")) is None


@given(st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"]))
def test_whatever_bytes_are_no_error_comes_of_them(data, head):
    found = thumbnail(head + data)
    assert found is None or found.width > 0


def test_x_points_up_and_y_to_the_left():
    points = np.array([[8.5, 0, 0], [0, 8.5, 1]])
    shown = seen_from_above(points, 10, 100)
    with PIL.Image.open(io.BytesIO(shown.data)) as image:
        ground = image.convert("RGB").getpixel((50, 50))
        pixels = np.asarray(image.convert("RGB")).astype(int)
    rows, columns = np.nonzero(np.abs(pixels - np.array(ground)).sum(axis=2))
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == [(7, 50), (50, 7)]


@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(0, 20), st.integers(2, 5)),
        elements={"allow_nan": True, "allow_infinity": True},
    ),
    st.floats(1e-3, 1e6),
)
def test_whatever_points_are_no_error_comes_of_them(points, reach):
    assert seen_from_above(points, reach, 32).width == 32
