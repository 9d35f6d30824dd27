"""Chunks: what is encoded is decoded, and damaged chunks are errors, never crashes or huge allocations."""

import contextlib

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Ragged, empty
from logloom.errors import DatasetError
from logloom.io.formats.table.blobs import packer, unpacker
from logloom.io.formats.table.chunks import Layout
from logloom.io.formats.table.write.user_rows import open_rows
from logloom.schema import ColumnType, Schema
from tests.io.formats.table.making import ALL_TYPES, assert_rows_equal, typed_row

NAMES = list(ALL_TYPES.columns)


def columns_of(rows, schema):
    (batch,) = open_rows(rows, schema)[2]
    return batch.columns


def join(chunk):
    return np.frombuffer(bytearray(b"".join(bytes(piece) for piece in chunk)), np.uint8)


@given(st.sets(st.sampled_from(NAMES), min_size=1), st.integers(0, 2**32 - 1), st.data())
def test_any_columns_come_back_as_they_were_encoded(names, seed, data):
    schema = Schema({name: ALL_TYPES.columns[name] for name in NAMES if name in names})
    rng = np.random.default_rng(seed)
    rows = [{name: value for name, value in typed_row(rng).items() if name in names} for _ in range(3)]
    layout = Layout(schema.columns)
    wanted = data.draw(st.sets(st.sampled_from(sorted(names)), min_size=1))
    decode = layout.decoder({name: name for name in wanted})
    for chunk, row in zip(layout.encode(columns_of(rows, schema), 3), rows, strict=True):
        found: dict = {}
        whole = join(chunk)
        assert len(whole) % 8 == 0
        decode(whole, found)
        assert set(found) == wanted
        assert_rows_equal(found, row)
        for name, value in found.items():
            assert getattr(value, "dtype", None) in (None, ALL_TYPES.columns[name].dtype)


def test_the_bytes_are_those_of_the_written_layout():
    layout = Layout({"a": ColumnType(np.dtype("<u2"), (None,)), "b": ColumnType(np.dtype("<u4"))})
    values = {"a": Ragged(np.array([1, 2, 3], np.uint16), [3]), "b": np.array([9], np.uint32)}
    (chunk,) = layout.encode(values, 1)
    assert join(chunk).tobytes() == (
        b"\x03\0\0\0\0\0\0\0"  # the length of a
        b"\x01\0\x02\0\x03\0\0\0"  # a, padded to 8
        b"\x09\0\0\0\0\0\0\0"
    )


def test_rows_given_one_by_one_or_stacked_give_the_same_bytes():
    ctype = ColumnType(np.dtype("<f4"), (40, 40))
    layout = Layout({"image": ctype, "n": ColumnType(np.dtype("<i4"))})
    images = np.random.default_rng(0).random((3, 40, 40), np.float32)
    apart = {"image": Ragged.from_rows(list(images), ctype), "n": np.arange(3, dtype=np.int32)}
    stacked = apart | {"image": images}
    for one, other in zip(layout.encode(apart, 3), layout.encode(stacked, 3), strict=True):
        assert join(one).tobytes() == join(other).tobytes()


@given(st.binary(max_size=200), st.sampled_from(NAMES))
def test_any_bytes_at_all_give_a_value_or_a_dataset_error(data, name):
    decode = Layout({"first": ColumnType(np.dtype("u1"), (None,)), name: ALL_TYPES.columns[name]}).decoder(
        {name: name}
    )
    row: dict = {}
    try:
        decode(np.frombuffer(data, np.uint8), row)
    except DatasetError:
        return
    assert set(row) == {name}


@given(st.tuples(*[st.integers(0, 4) | st.integers(0, 2**64 - 1)] * 2))
def test_lying_lengths_are_refused_before_anything_is_allocated(lengths):
    decode = Layout({"image": ALL_TYPES.columns["image"]}).decoder({"image": "image"})
    chunk = np.frombuffer(np.array(lengths, "<u8").tobytes() + bytes(24), np.uint8)
    row: dict = {}
    with contextlib.suppress(DatasetError):
        decode(chunk, row)
        assert row["image"].size <= 24


def test_a_chunk_of_the_wrong_size_is_refused():
    decode = Layout({"a": ColumnType(np.dtype("<f8"), (2,))}).decoder({"a": "a"})
    with pytest.raises(DatasetError, match="15 bytes, its columns take 16"):
        decode(np.zeros(15, np.uint8), {})


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
class TestCodecs:
    def test_a_packed_chunk_unpacks_to_the_same_bytes(self, codec):
        for data in (b"", b"a", b"spam" * 1000):
            packed = np.frombuffer(packer(codec)(data), np.uint8)
            assert unpacker(codec, 4000)(packed).tobytes() == data

    def test_a_chunk_that_claims_more_than_the_longest_is_refused(self, codec):
        bomb = np.frombuffer(packer(codec)(bytes(1 << 20)), np.uint8)
        with pytest.raises(DatasetError, match=r"claims 1048576 bytes, the group's longest has 1000"):
            unpacker(codec, 1000)(bomb)

    def test_a_frame_that_asks_for_memory_of_its_own_is_refused(self, codec):
        frame = zstandard.ZstdCompressor().compress(bytes(1 << 24))  # says that it holds 16 MiB
        stored = np.frombuffer((500).to_bytes(8, "little") + frame, np.uint8)
        with pytest.raises(DatasetError):
            unpacker(codec, 1000)(stored)

    @given(data=st.data())
    def test_damage_is_an_error_or_bytes_of_the_right_length(self, codec, data):
        packed = bytearray(packer(codec)(b"some text to be packed " * 9))
        place = data.draw(st.integers(0, len(packed) - 1))
        packed[place] ^= data.draw(st.integers(1, 255))
        packed = packed[: data.draw(st.integers(0, len(packed)))]
        try:
            unpacked = unpacker(codec, 500)(np.frombuffer(packed, np.uint8))
        except DatasetError:
            return
        assert len(unpacked) <= 500


def test_missing_values_encode():
    for name, ctype in ALL_TYPES.columns.items():
        layout = Layout({name: ctype})
        row: dict = {}
        layout.decoder({name: name})(join(layout.encode({name: empty(ctype, 1)}, 1)[0]), row)
        if ctype.kind == "array":
            assert np.shape(row[name]) == tuple(n or 0 for n in ctype.shape), name
        else:
            assert row[name] == ("" if ctype.kind == "string" else b"")
