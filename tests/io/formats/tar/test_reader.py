"""Rows read back: equal to the bit, at random, from many threads and processes; foreign archives too."""

import io
import tarfile
from typing import ClassVar

import fsspec
import numpy as np
import pytest
import webdataset
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Block, Ragged
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.tar import TarReader, TarWriter
from logloom.schema import STRING, ColumnType, Schema
from tests.io.formats.rows import TYPES, assert_equal_values, digests, random_block, schema_of, schemas


def test_rows_of_many_shards_are_one_sequence(tmp_path):
    schema = schema_of(TYPES[:4])
    blocks = [random_block(schema, n, n, log_id=f"log{n}") for n in (3, 1, 5)]
    for n, block in enumerate(blocks):
        writer = TarWriter(tmp_path / f"{n}.tar", schema)
        writer.append(block)
        writer.close()
    reader = TarReader([tmp_path / f"{n}.tar" for n in range(3)], schema)
    assert [row["log_id"] for row in reader] == ["log3"] * 3 + ["log1"] + ["log5"] * 5
    assert reader[-1]["timestamp"] == blocks[2].timestamp[-1]
    first = [blocks[2].timestamp[0], blocks[0].timestamp[0]]
    assert [row["timestamp"] for row in reader.__getitems__([4, 0])] == first
    for index in (len(reader), -len(reader) - 1):
        with pytest.raises(IndexError, match="of 9"):
            reader[index]


def write(path, schema, block, ext=None):
    writer = TarWriter(path, schema, ext)
    writer.append(block)
    return writer.close()


def assert_same_rows(reader, block, schema):
    assert len(reader) == len(block)
    for row in range(len(block)):
        expected, found = block.row(row, schema), reader[row]
        assert list(found) == list(expected)
        for name in expected:
            assert_equal_values(found[name], expected[name])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_the_bits_of_nans_in_scalars_survive(tmp_path, dtype):
    size = np.dtype(dtype).itemsize
    quiet, signalling = {
        2: (0x7E01, 0xFD55),
        4: (0x7FC00001, 0xFF812345),
        8: (0x7FF8 << 48 | 9, 0xFFF0 << 48 | 5),
    }[size]
    values = np.array([quiet, signalling], f"<u{size}").view(f"<{dtype}")
    schema = Schema({"x": ColumnType(dtype)})
    write(tmp_path / "shard.tar", schema, Block("d", "p", 0, {"timestamp": np.arange(2), "x": values}))
    (block,) = TarReader(tmp_path / "shard.tar", schema).blocks()
    assert block.columns["x"].tobytes() == values.tobytes()


@given(schema=schemas(), rows=st.integers(1, 12), seed=st.integers(0, 99), max_bytes=st.integers(1, 5000))
def test_blocks_of_any_size_hold_the_rows_written(schema, rows, seed, max_bytes, tmp_path_factory):
    path = tmp_path_factory.mktemp("blocks") / "shard.tar"
    block = random_block(schema, rows, seed)
    reader = TarReader(path, schema, entries=[write(path, schema, block)])
    blocks = list(reader.blocks(max_bytes=max_bytes))
    assert [b.first_row for b in blocks] == np.cumsum([0, *map(len, blocks)])[:-1].tolist()
    assert {(b.log_id, b.partition) for b in blocks} == {("car/drive", "p3")}
    assert digests(blocks, schema) == digests([block], schema)


def test_only_the_members_asked_for_are_read(tmp_path):
    schema = Schema({"near": ColumnType("<f8", (2,)), "far": ColumnType("<f8", (2,))}, ("near",))
    block = random_block(schema, 2, 0)
    write(tmp_path / "shard.tar", schema, block)
    data = (tmp_path / "shard.tar").read_bytes()
    (tmp_path / "shard.tar").write_bytes(data.replace(b"\x93NUMPY", b"\x93NOPY!", 1))  # far of row 0
    reader = TarReader(tmp_path / "shard.tar", schema)
    row = reader.row(0, ["near", "near.age"])
    assert list(row) == ["log_id", "timestamp", "near", "near.age"]
    assert_equal_values(row["near"], block.columns["near"][0])
    assert_equal_values(row["near.age"], block.columns["near.age"][0])
    with pytest.raises(DatasetError, match="far"):
        reader.row(0, ["far"])


def test_columns_are_chosen_by_globs(tmp_path):
    schema = schema_of(TYPES[:6])
    write(tmp_path / "shard.tar", schema, random_block(schema, 2, 0))
    reader = TarReader(tmp_path / "shard.tar", schema)
    assert list(reader.row(1, ["c1.*"])) == ["log_id", "timestamp", "c1.part"]
    (block,) = reader.blocks(["c4.part.available", "c3.*"])
    assert list(block.columns) == ["timestamp", "c3.part", "c4.part.available"]
    with pytest.raises(UsageError, match="c9"):
        reader.row(0, ["c9"])


def test_more_shards_than_files_may_be_open(tmp_path):
    for n in range(300):
        write(tmp_path / f"{n}.tar", Schema({}), random_block(Schema({}), 1, n))
    reader = TarReader([tmp_path / f"{n}.tar" for n in range(300)], Schema({}))
    assert len({int(reader[i % 300]["timestamp"]) for i in range(600)}) > 250


def test_rows_are_read_from_an_object_store(tmp_path):
    schema = schema_of(TYPES[::5])
    block = random_block(schema, 5, 1)
    entry = write(tmp_path / "shard.tar", schema, block)
    fsspec.filesystem("memory").pipe_file("/tar-reader/shard.tar", (tmp_path / "shard.tar").read_bytes())
    reader = TarReader("memory://tar-reader/shard.tar", schema, entries=[entry])
    assert_same_rows(reader, block, schema)
    with pytest.raises(DatasetError, match="no such file"):
        len(TarReader("memory://tar-reader/none.tar", schema))


def test_a_string_that_is_no_utf8_is_kept_but_no_row_shows_it(tmp_path):
    schema = Schema({"s": STRING})
    block = Block("d", "p", 0, {"timestamp": np.arange(1), "s": Ragged.from_bytes([b"\xff\xc3\xa9"])})
    write(tmp_path / "shard.tar", schema, block)
    reader = TarReader(tmp_path / "shard.tar", schema)
    (found,) = reader.blocks()
    assert found.columns["s"][0].tobytes() == b"\xff\xc3\xa9"
    with pytest.raises(DatasetError, match="UTF-8"):
        reader[0]


def test_foreign_archives_give_the_samples_that_webdataset_gives(tmp_path, shared_data):
    path = tmp_path / "made.tar"
    with webdataset.TarWriter(str(path)) as sink:
        for n in range(5):
            sink.write(
                {"__key__": f"a.b/{n}", "left.jpg": bytes([n]), "x.JSON": {"n": n}, "npy": np.arange(n)}
            )
    for archive in (path, shared_data / "webdataset/mpdata.tar", shared_data / "webdataset/tendata.tar"):
        reader = TarReader(archive)
        expected = list(webdataset.WebDataset(str(archive), shardshuffle=False))
        assert len(reader) == len(expected)
        for row, sample in enumerate(expected):
            fields = {k: v for k, v in sample.items() if k == "__key__" or not k.startswith("__")}
            assert reader[row] == fields
        assert list(reader.row(2, [])) == ["__key__"]
    with pytest.raises(UsageError, match="schema"):
        next(TarReader(path).blocks())


def test_a_compressed_archive_gives_the_samples_that_webdataset_gives(shared_data):
    path = shared_data / "webdataset/sample.tgz"
    expected = list(webdataset.WebDataset(str(path), shardshuffle=False))
    assert [row["__key__"] for row in TarReader(path)] == [sample["__key__"] for sample in expected]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_of_every_tar_dialect_are_read(tmp_path, form):
    names = ["short.txt", "d" * 90 + "/" + "e" * 90 + ".txt"]
    if form != tarfile.USTAR_FORMAT:
        names += ["x" * 400 + ".txt", "né" * 80 + ".txt"]
    with tarfile.open(tmp_path / "a.tar", "w", format=form) as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    reader = TarReader(tmp_path / "a.tar")
    assert [reader[i]["__key__"] for i in range(len(reader))] == [name[:-4] for name in names]


def test_a_pax_header_after_a_gnu_long_name_leaves_the_name(tmp_path):
    name = "d" * 128 + ".txt"
    long = tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT)[:1024]  # without the file's own header
    file = tarfile.TarInfo("short.txt")
    file.pax_headers = {"comment": "of another tool"}
    (tmp_path / "a.tar").write_bytes(long + file.tobuf(tarfile.PAX_FORMAT) + bytes(1024))
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames() == [name]
    assert [row["__key__"] for row in TarReader(tmp_path / "a.tar")] == ["d" * 128]


class CountingFileSystem(MemoryFileSystem):
    """Keeps files in memory, the ranges that were asked for, and how often it was asked."""

    protocol = "counting-tar"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]
    ranges: ClassVar[list[int]] = []
    questions: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("counting-tar://", "memory://"))

    def cat_file(self, path, start=None, end=None, **options):
        data = super().cat_file(path, start=start, end=end, **options)
        self.ranges.append(len(data))
        self.questions.append(path)
        return data

    def cat_ranges(self, paths, starts, ends, **options):
        before = len(self.questions)
        found = super().cat_ranges(paths, starts, ends, **options)
        del self.questions[before + 1 :]  # stores answer them all together
        return found


@pytest.fixture
def counting():
    fsspec.register_implementation("counting-tar", CountingFileSystem, clobber=True)
    CountingFileSystem.ranges.clear()
    CountingFileSystem.questions.clear()
    return CountingFileSystem()


def put_shard(fs, name, rows, size):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as shard:
        for row in range(rows):
            for suffix, data in (("cls", b"%d" % row), ("jpg", bytes([row % 256]) * size)):
                member = tarfile.TarInfo(f"{row:06}.{suffix}")
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))
    fs.pipe_file(f"/{name}", buffer.getvalue())
    return len(buffer.getvalue())


@pytest.mark.parametrize(
    ("rows", "size", "requests", "share"), [(1000, 10_000, 4, 1), (12, 1_500_000, 14, 0.3)]
)
def test_a_remote_shard_is_indexed_by_few_requests_or_few_bytes(counting, rows, size, requests, share):
    total = put_shard(counting, "index.tar", rows, size)
    assert len(TarReader("counting-tar:///index.tar")) == rows
    assert len(counting.ranges) <= requests
    assert sum(counting.ranges) <= share * total


def test_rows_of_remote_shards_are_asked_for_all_at_once_and_come_in_the_order_asked_for(counting):
    put_shard(counting, "a.tar", 5, 1_200_000)
    put_shard(counting, "b.tar", 3, 100)
    reader = TarReader(["counting-tar:///a.tar", "counting-tar:///b.tar"])
    assert len(reader) == 8
    counting.questions.clear()
    rows = reader.raw_rows([7, 4, 0, 2, -8, 6])
    assert len(counting.questions) == 2
    assert [row["cls"] for row in rows] == [b"2", b"4", b"0", b"2", b"0", b"1"]
    assert [row["__key__"] for row in rows][:2] == ["000002", "000004"]
    assert all(row["jpg"] == bytes([int(row["cls"])]) * len(row["jpg"]) for row in rows)
    assert rows == [reader[index] for index in (7, 4, 0, 2, 0, 6)]
    assert reader.raw_rows([1, 3], ["cls"]) == [{"__key__": f"00000{n}", "cls": b"%d" % n} for n in (1, 3)]
    assert reader.raw_rows([]) == []
    with pytest.raises(IndexError):
        reader.raw_rows([0, 8])
