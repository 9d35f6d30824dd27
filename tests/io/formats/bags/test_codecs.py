"""Encoders and decoders: round trips, granular's bytes, and bytes that are something else."""

import io
import struct
import sys
import zlib

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

import logloom.io.formats.bags as granular
from logloom.errors import DatasetError, LogloomError, UsageError

encoders, decoders = granular.encoders, granular.decoders

PLAIN_ARRAYS = hnp.arrays(
    st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(endianness="?"),
        hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
        hnp.complex_number_dtypes(endianness="?", sizes=(64, 128)),
        hnp.unicode_string_dtypes(max_len=5),
        hnp.datetime64_dtypes(),
    ),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)


def roundtrip(type_name, value):
    record = encoders[type_name](value)
    assert type(record) is bytes
    return decoders[type_name](record)


@given(st.integers(-(2**127), 2**127 - 1))
def test_integers_of_any_sign_take_as_few_bytes_as_they_need(value):
    record = encoders["int"](value)
    assert decoders["int"](record) == value
    if len(record) > 1:
        with pytest.raises(OverflowError):
            value.to_bytes(len(record) - 1, "little", signed=True)


@pytest.mark.parametrize("value", [0, 127, 128, 255, 256, 32767, 32768, 65535, -1, -128, -129])
def test_the_integers_that_granular_stumbles_over_are_kept(value):
    assert roundtrip("int", value) == value
    assert roundtrip("int", np.int64(value)) == value
    assert roundtrip("i64", value) == value


def test_what_is_no_small_integer_is_refused():
    for value in (2**127, -(2**127) - 1):
        with pytest.raises(UsageError, match="16 bytes"):
            encoders["int"](value)
    for wrong in (1.5, "1", None):
        with pytest.raises(TypeError):
            encoders["int"](wrong)
    with pytest.raises(OverflowError):
        encoders["u64"](-1)
    assert roundtrip("u64", 2**64 - 1) == 2**64 - 1
    with pytest.raises(ValueError, match="17 bytes"):
        decoders["int"](bytes(17))
    with pytest.raises(ValueError, match="7 bytes"):
        decoders["i64"](bytes(7))
    assert decoders["int"](b"") == 0  # how granular 0.17 wrote it


@given(PLAIN_ARRAYS)
def test_arrays_of_any_plain_dtype_keep_every_bit(array):
    if array.dtype.itemsize == 0:
        return
    for type_name in ("array", "tree"):
        found = roundtrip(type_name, array)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tobytes() == array.tobytes()
        assert found.flags.aligned
        assert not found.flags.writeable


@given(st.lists(PLAIN_ARRAYS.filter(lambda a: a.dtype.itemsize), min_size=1, max_size=5), st.data())
def test_arrays_end_to_end_decode_as_one_by_one(arrays, data):
    arrays = data.draw(st.lists(st.sampled_from(arrays), max_size=9))
    records = [encoders["array"](array) for array in arrays]
    limits = np.cumsum([0, *map(len, records)]).tolist()
    found = type(decoders["array"])().many(b"".join(records), limits)
    assert [(a.dtype, a.shape, a.tobytes()) for a in found] == [
        (a.dtype, a.shape, a.tobytes()) for a in arrays
    ]


def test_large_arrays_of_a_range_are_not_copied():
    record = encoders["array"](np.arange(20_000, dtype=np.uint8))
    decode = type(decoders["array"])()
    data = record * 3
    found = decode.many(data, [0, len(record), 2 * len(record), 3 * len(record)])
    assert all(np.array_equal(array, np.arange(20_000).astype(np.uint8)) for array in found)
    assert np.shares_memory(found[2], np.frombuffer(data, np.uint8))


def test_views_and_columns_are_stored_in_c_order():
    array = np.arange(24).reshape(4, 6)[::2, ::3].T
    assert np.array_equal(roundtrip("array", array), array)
    assert np.array_equal(roundtrip("tree", [array])[0], array)
    assert roundtrip("array", 1.5) == 1.5


def test_the_bytes_are_granulars():
    array = np.arange(3, dtype="<f4")
    assert encoders["array"](array) == msgpack.packb(("<f4", (3,), array.tobytes()))
    big = np.zeros((70_000,), np.uint8)
    assert encoders["array"](big) == msgpack.packb(("|u1", (70_000,), big.tobytes()))
    assert encoders["tree"]({"a": [array]}) == msgpack.packb({"a": [("_", "<f4", (3,), array.tobytes())]})
    assert encoders["i64"](-2) == (-2).to_bytes(8, "little", signed=True)


def test_structured_arrays_are_trees_of_fields_and_no_arrays():
    value = np.array([(1.5, "ab", (3, 4))], [("x", "<f4"), ("label", "<U5"), ("pair", "<i2", (2,))])
    with pytest.raises(UsageError, match="tree"):
        encoders["array"](value)
    for form in (value, value[0]):
        found = roundtrip("tree", form)
        assert list(found) == ["x", "label", "pair"]
        assert found["label"].dtype == "<U5"
        assert found["pair"].reshape(-1).tolist() == [3, 4]
    with pytest.raises(UsageError, match="can't store object"):
        encoders["array"](np.array([None]))


TREES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False),
        st.text(),
        st.binary(),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=12,
)


@given(TREES)
def test_trees_without_arrays_come_back_as_they_are(tree):
    if "_" not in str(tree):
        assert roundtrip("tree", tree) == tree
    assert roundtrip("msgpack", tree) == tree


@given(
    st.binary(max_size=60),
    st.sampled_from(["array", "tree", "msgpack", "utf8", "int", "i64", "u64", "jpg", "png"]),
)
def test_any_bytes_are_a_value_or_a_datasets_error(tmp_path_factory, record, type_name):
    directory = tmp_path_factory.mktemp("bags") / "data"
    with granular.DatasetWriter(directory, {"key": type_name}, None) as writer:
        writer.append({"key": record})
    with granular.DatasetReader(directory, decoders) as reader:
        try:
            reader[0]
        except DatasetError as error:
            assert f"'key' can't be decoded as {type_name}" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "parts",
    [
        ("O", (1,), b"12345678"),
        ("|O", (1,), b"12345678"),
        ("<f4", (2,), b"1234"),
        ("<f4", (-1,), b"1234"),
        ("<f4", (2**40, 2**40), b"1234"),
        ("<f4", (1.0,), b"1234"),
        ("<f4", (True,), b"1234"),
        ("<f4", 1, b"1234"),
        ("<i4,<f4", (1,), b"12345678"),
        ("(2,)<f4", (1,), b"12345678"),
        ("<f4", (1,), "1234"),
        ("|V0", (1,), b""),
        (3, (1,), b"1234"),
        ("<f4", (1,)),
        ("<f4", (1,) * 70, b"1234"),
    ],
)
def test_array_records_that_lie_are_refused(parts):
    with pytest.raises((ValueError, LogloomError)):
        decoders["array"](msgpack.packb(parts))
    if len(parts) == 3 and isinstance(parts[2], bytes):
        with pytest.raises((ValueError, LogloomError)):
            decoders["tree"](msgpack.packb(["_", *parts]))


def test_images_keep_shape_and_png_every_value():
    rng = np.random.default_rng(0)
    for shape in ((5, 7, 3), (5, 7, 4), (5, 7)):
        image = rng.integers(0, 256, shape, np.uint8)
        assert np.array_equal(roundtrip("png", image), image)
    smooth = np.add.outer(np.arange(40), np.arange(60)).astype(np.uint8)
    assert np.abs(roundtrip("jpg", smooth).astype(int) - smooth).max() <= 4


def test_an_image_that_is_bytes_already_passes_untouched():
    stream = io.BytesIO()
    Image.new("RGB", (4, 3), (1, 2, 3)).save(stream, "JPEG", quality=20)
    assert encoders["jpg"](stream.getvalue()) == stream.getvalue()
    assert encoders["png"](bytearray(b"whatever")) == b"whatever"
    assert decoders["jpg"](stream.getvalue()).shape == (3, 4, 3)


@pytest.mark.parametrize("cut", [0, 3, 40])
def test_an_image_that_does_not_decode_raises_with_key_and_datapoint(tmp_path, cut):
    with granular.DatasetWriter(tmp_path / "data", {"image": "jpg"}, encoders) as writer:
        whole = encoders["jpg"](np.zeros((64, 64, 3), np.uint8))
        writer.append({"image": whole})
        writer.append({"image": whole[: len(whole) // 2][:cut] if cut else b""})
    with granular.DatasetReader(tmp_path / "data", decoders) as reader:
        assert reader[0]["image"].shape == (64, 64, 3)
        with pytest.raises(DatasetError, match="datapoint 1: 'image' can't be decoded as jpg"):
            reader[1]


def test_an_image_of_absurd_size_is_refused_before_it_is_unpacked():
    small = io.BytesIO()
    Image.new("1", (8, 8)).save(small, "PNG")
    data = bytearray(small.getvalue())
    data[16:24] = struct.pack(">II", 60_000, 60_000)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    with pytest.raises(ValueError, match=r"decoded.*exceeds limit"):
        decoders["png"](bytes(data))


def test_videos_round_trip_with_pyav():
    video = np.zeros((20, 80, 60, 3), np.uint8)
    video[:, 20:60, 15:45] = 200
    for type_name in ("mp4", "webm"):
        found = roundtrip(type_name, video)
        assert found.shape == video.shape
        assert np.abs(found.astype(int) - video).mean() < 8
    with pytest.raises(ValueError, match="no video"):
        decoders["mp4"](b"rubbish")


def test_videos_without_pyav_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UsageError, match=r"logloom\[video\]"):
        encoders["mp4"](np.zeros((2, 4, 4, 3), np.uint8))
