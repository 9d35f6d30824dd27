"""What readers of units that follow each other promise of batches, for every format that has such units."""

import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Block, Ragged
from logloom.errors import DatasetError
from logloom.io.formats.bags import BagsReader, BagsWriter
from logloom.io.formats.tar import TarReader, TarWriter
from logloom.schema import BYTES, STRING, ColumnType, Schema

SCHEMA = Schema(
    {
        "pose": ColumnType(np.dtype("<f4"), (3,)),
        "speed": ColumnType(np.dtype("<f8")),
        "points": ColumnType(np.dtype("<i2"), (None, 2)),
        "depth": ColumnType(np.dtype("<u1"), (None, None, 3)),
        "image": BYTES,
        "name": STRING,
    },
    ("pose",),
)


def block_of(log_id, first, count):
    numbers = np.arange(first, first + count)
    columns = {
        "timestamp": numbers * 10,
        "pose": np.stack([numbers, numbers, numbers], axis=1).astype("<f4"),
        "speed": numbers * 0.5,
        "points": Ragged.from_rows(
            [np.full((n % 3, 2), n, "<i2") for n in numbers], SCHEMA.columns["points"]
        ),
        "depth": Ragged.from_rows(
            [np.full((n % 2, 2, 3), n, "u1") for n in numbers], SCHEMA.columns["depth"]
        ),
        "image": Ragged.from_bytes([bytes([n]) * n for n in numbers]),
        "name": Ragged.from_bytes([f"ä{n}".encode() for n in numbers]),
        "pose.age": numbers + 1,
        "pose.available": numbers % 2 == 0,
    }
    return Block(log_id, "p", 0, columns)


BLOCKS = [block_of("a", 0, 5), block_of("a", 5, 1), block_of("b", 6, 4)]


def write_tar(folder):
    entries = []
    for number, block in enumerate(BLOCKS):
        writer = TarWriter(folder / f"{number}.tar", SCHEMA, {"image": "jpg"})
        writer.append(block)
        entries.append(writer.close())
    return TarReader([folder / f"{number}.tar" for number in range(3)], SCHEMA, entries=entries)


def write_bags(folder):
    for number, block in enumerate(BLOCKS):
        (folder / f"{number}").mkdir()
        writer = BagsWriter(folder / f"{number}", SCHEMA, {}, 1)
        writer.append(block)
        writer.close()
    return BagsReader([folder / f"{number}" for number in range(3)], SCHEMA)


@pytest.fixture(scope="module", params=[write_tar, write_bags], ids=["tar", "bags"])
def reader(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("units"))


def values_of(column):
    return list(Ragged(*column)) if isinstance(column, tuple) else list(column)


@given(numbers=st.lists(st.integers(-10, 9), min_size=1, max_size=25))
def test_a_batch_holds_what_the_rows_hold_in_the_order_asked_for(reader, numbers):
    names = [*SCHEMA.columns, "pose.age", "pose.available"]
    batch = reader.get_many(numbers, names)
    rows = [reader.row(number, names) for number in numbers]
    assert list(batch) == list(rows[0])
    for name, column in batch.items():
        found = values_of(column)
        assert len(found) == len(rows)
        for value, row in zip(found, rows, strict=True):
            np.testing.assert_array_equal(value, row[name])
            assert getattr(value, "dtype", None) == getattr(row[name], "dtype", None)


def test_arrays_that_are_given_are_filled(reader):
    out = {"pose": np.empty((2, 3), "<f4"), "timestamp": np.empty(2, np.int64), "other": np.empty(2)}
    batch = reader.get_many([9, 0], ["pose", "name"], out)
    assert batch["pose"] is out["pose"]
    assert out["pose"][:, 0].tolist() == [9, 0]
    assert out["timestamp"].tolist() == [90, 0]
    assert batch["name"] == ["ä9", "ä0"]


def test_a_batch_beyond_the_end_is_an_index_error(reader):
    for wrong in (10, -11):
        with pytest.raises(IndexError, match=f"row {wrong} of 10"):
            reader.get_many([0, wrong])


def test_samples_of_differing_members_in_one_shard_are_read_together(tmp_path):
    for extension in ("jpg", "png"):
        writer = TarWriter(tmp_path / f"{extension}.tar", SCHEMA, {"image": extension})
        writer.append(block_of("a" if extension == "jpg" else "b", 1, 3))
        writer.close()
    with tarfile.open(tmp_path / "both.tar", "w") as both:
        for extension in ("jpg", "png"):
            with tarfile.open(tmp_path / f"{extension}.tar") as shard:
                for member in shard:
                    both.addfile(member, shard.extractfile(member))
    reader = TarReader(tmp_path / "both.tar", SCHEMA)
    batch = reader.get_many(range(6), ["image"])
    assert batch["image"] == [b"\1", b"\2\2", b"\3\3\3"] * 2
    assert batch["log_id"] == ["a"] * 3 + ["b"] * 3


def test_a_damaged_text_in_a_batch_is_an_error_that_names_the_column(tmp_path):
    block = block_of("a", 1, 2)
    columns = {**block.columns, "name": Ragged.from_bytes([b"\xff", b"x"])}
    (tmp_path / "0").mkdir()
    writer = BagsWriter(tmp_path / "0", SCHEMA, {}, 1)
    writer.append(Block("a", "p", 0, columns))
    writer.close()
    with pytest.raises(DatasetError, match="a value of name isn't UTF-8"):
        BagsReader(tmp_path / "0", SCHEMA).get_many([1, 0], ["name"])
