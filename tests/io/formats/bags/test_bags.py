"""Single bags: all generations, ranges, damage, and what a crash leaves."""

import io
import multiprocessing
import pathlib
import pickle
import struct
import threading

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.formats.bags import BagReader, BagWriter
from logloom.io.storage import files

RECORDS = [b"", b"one", b"", b"\0" * 9, b"four"]


def first_generation(records):
    limits = np.cumsum([0, *map(len, records)])
    return b"".join(records) + b"".join(struct.pack("<Q", limit) for limit in limits)


def second_generation(records):
    ends = np.cumsum([0, *map(len, records)])[1:]
    return b"".join(records) + b"".join(struct.pack("<Q", end) for end in ends)


def write(path, records=RECORDS):
    with BagWriter(path) as writer:
        for record in records:
            writer.append(record)
    return path


def test_a_bag_is_its_records_and_their_limits(tmp_path):
    with BagWriter(tmp_path / "x.bag") as writer:
        assert [writer.append(record) for record in RECORDS] == list(range(5))
        assert len(writer) == 5
        size = writer.size
    with BagReader(tmp_path / "x.bag") as reader:
        assert (len(reader), reader[1], reader[3:]) == (5, b"one", RECORDS[3:])
    data = (tmp_path / "x.bag").read_bytes()
    assert data == first_generation(RECORDS)
    assert len(data) == size == reader.size


@given(st.lists(st.binary(max_size=20), max_size=12), st.booleans(), st.booleans(), st.data())
def test_records_of_all_generations_read_back(tmp_path_factory, records, cache_index, cache_data, data):
    folder = tmp_path_factory.mktemp("bag")
    (folder / "v3.bag").write_bytes(b"".join(records) + b"torn")
    (folder / "v3.idx").write_bytes(
        b"".join(struct.pack("<Q", e) for e in np.cumsum([0, *map(len, records)])[1:])
    )
    sources = [folder / "v3.bag", first_generation(records), str(write(folder / "v1.bag", records))]
    if all(records):
        sources.append(second_generation(records))
    for source in sources:
        reader = BagReader(source, cache_index, cache_data)
        assert len(reader) == len(records)
        assert [reader[i] for i in range(len(records))] == records
        assert [reader[i] for i in range(-len(records), 0)] == records
        start = data.draw(st.integers(0, 15))
        stop = data.draw(st.integers(start, 20))
        assert reader[start:stop] == records[start:stop]
        assert reader[range(start, stop)] == records[start:stop]
        assert pickle.loads(pickle.dumps(reader))[:] == records
        assert reader.copy()[:] == records


@pytest.mark.parametrize("cache_index", [True, False])
def test_what_is_not_there_is_refused(tmp_path, cache_index):
    reader = BagReader(write(tmp_path / "x.bag"), cache_index)
    for index in (5, -6):
        with pytest.raises(IndexError, match="of 5"):
            reader[index]
    for index in (range(3, 1), slice(0, 4, 2), slice(-2, None), range(4, 0, -1)):
        with pytest.raises(UsageError, match="forward"):
            reader[index]
    assert reader[9:12] == []
    reader.close()
    with pytest.raises(UsageError, match="closed"):
        reader[0]


def test_a_range_is_one_read(tmp_path):
    reads = []

    class Counting(io.FileIO):
        def read(self, size=-1):
            reads.append(size)
            return super().read(size)

    class Path:
        def open(self, mode):
            return Counting(tmp_path / "x.bag", mode)

    write(tmp_path / "x.bag")
    reader = BagReader(Path())
    reads.clear()
    assert reader[1:5] == RECORDS[1:5]
    assert reads == [sum(map(len, RECORDS))]


def test_an_existing_bag_is_never_written_onto(tmp_path):
    path = write(tmp_path / "x.bag")
    with pytest.raises(UsageError, match="already"):
        BagWriter(path)
    first, second = BagWriter(tmp_path / "y.bag"), BagWriter(tmp_path / "y.bag")
    first.append(b"first")
    first.close()
    with pytest.raises(UsageError, match="first"):
        second.close()
    assert BagReader(tmp_path / "y.bag")[:] == [b"first"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.bag", "y.bag"]


def test_an_exception_leaves_nothing_behind(tmp_path):
    with pytest.raises(ZeroDivisionError), BagWriter(tmp_path / "x.bag") as writer:
        writer.append(bytes(1 // (len(writer))))
    assert list(tmp_path.iterdir()) == []


def test_records_are_bytes(tmp_path):
    with BagWriter(tmp_path / "x.bag") as writer:
        writer.append(bytearray(b"kept"))
        with pytest.raises(UsageError, match="str"):
            writer.append("text")
    assert BagReader(tmp_path / "x.bag")[:] == [b"kept"]
    with pytest.raises(UsageError, match="closed"):
        writer.append(b"late")


@pytest.mark.parametrize("cache_index", [True, False])
@pytest.mark.parametrize("entry", range(1, 5))
def test_a_damaged_limit_is_reported_with_file_and_byte(tmp_path, entry, cache_index):
    path = write(tmp_path / "x.bag")
    data = bytearray(path.read_bytes())
    at = sum(map(len, RECORDS)) + 8 * entry
    data[at : at + 8] = struct.pack("<Q", 10**6)
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=rf"x\.bag: damaged limit at byte {at}"):
        BagReader(path, cache_index)[entry - 1]


def test_a_truncated_bag_is_never_read_as_a_shorter_one_in_silence(tmp_path):
    path = write(tmp_path / "x.bag", [b"first record", b"second", b"third one", b"4"])
    whole = path.read_bytes()
    for keep in range(1, 60):
        path.write_bytes(whole[:keep])
        try:
            records = BagReader(path)[:]
        except DatasetError as error:
            assert "x.bag" in str(error)  # noqa: PT017
            assert "byte" in str(error)  # noqa: PT017
        else:  # the table ends early, in a way that no reader could tell from a whole one
            pytest.fail(f"{keep} bytes read as {records}")


@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_a_bag_or_an_error(data, cache_index):
    try:
        reader = BagReader(data, cache_index)
        records = reader[:]
    except LogloomError:
        return
    assert len(records) == len(reader)
    assert sum(map(len, records)) <= len(data)


def test_a_bag_that_shrinks_while_open_is_an_error(tmp_path):
    path = write(tmp_path / "x.bag")
    reader = BagReader(path)
    path.write_bytes(b"12345")
    with pytest.raises(DatasetError, match="truncated or written to"):
        reader[4]


def test_an_index_of_odd_length_or_beyond_the_bag_is_an_error(tmp_path):
    (tmp_path / "x.bag").write_bytes(b"abc")
    (tmp_path / "x.idx").write_bytes(struct.pack("<Q", 3) + b"123")
    with pytest.raises(DatasetError, match=r"x\.idx.*byte 8"):
        BagReader(tmp_path / "x.bag")
    (tmp_path / "x.idx").write_bytes(struct.pack("<Q", 4))
    with pytest.raises(DatasetError, match=r"x\.bag.*ends at byte 3"):
        BagReader(tmp_path / "x.bag")


def test_a_missing_bag_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"x\.bag: there is no such file"):
        BagReader(tmp_path / "x.bag")
    with pytest.raises(UsageError, match="int"):
        BagReader(3)


def test_threads_share_a_reader(tmp_path):
    records = [bytes([i]) * i for i in range(200)]
    reader = BagReader(write(tmp_path / "x.bag", records), cache_index=False)
    wrong = []

    def work(seed):
        for i in np.random.default_rng(seed).integers(0, 200, 300).tolist():
            if reader[i] != records[i]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_bags_are_read_from_any_file_system():
    fsspec.filesystem("memory").pipe("/bags/x.bag", first_generation(RECORDS))
    reader = BagReader("memory://bags/x.bag")
    assert reader[:] == RECORDS
    assert pickle.loads(pickle.dumps(reader))[4] == b"four"


def test_path_like_objects_are_paths(tmp_path):
    class PathLike:
        def __fspath__(self):
            return str(tmp_path / "x.bag")

    write(PathLike())
    assert pathlib.Path(PathLike()).exists()
    assert BagReader(PathLike())[1] == b"one"


def test_large_writes_come_out_whole(tmp_path):
    records = [bytes([i % 251]) * (i * 997 % 40_000) for i in range(300)]
    path = write(tmp_path / "x.bag", records)
    assert path.read_bytes() == first_generation(records)


def _first_record(path, queue):
    queue.put(BagReader(path)[1])


def test_a_fork_while_a_thread_opens_a_bag_leaves_the_child_able_to(tmp_path):
    path = write(tmp_path / "x.bag")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with files._opening:
        child = context.Process(target=_first_record, args=(path, queue))
        child.start()
    try:
        assert queue.get(timeout=60) == b"one"
    finally:
        child.kill()
        child.join()
