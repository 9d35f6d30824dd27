"""Byte ranges: few requests, few bytes, the right bytes, whichever file system serves them."""

import pickle
import threading
from typing import ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from logloom.errors import LogReadError, StorageError
from logloom.io.logs.files import ranges
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.files.ranges import LogFile, Scratch, fetches, read_ahead
from logloom.io.logs.interface import TopicRequest
from logloom.io.logs.opening import open_log
from logloom.io.storage.remote import retries
from tests.io.logs.making import (
    MS,
    START,
    Message,
    contents,
    expected,
    make_messages,
    read_all,
    ros1_payload,
    toy_payload,
    write_bag,
    write_mcap,
)


class CountingFileSystem(MemoryFileSystem):
    """Keeps files in memory and the ranges that were asked for."""

    protocol = "counting"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]
    requests: ClassVar = []
    looks: ClassVar = []

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("counting://", "memory://"))

    def cat_file(self, path, start=None, end=None, **kwargs):
        data = super().cat_file(path, start=start, end=end, **kwargs)
        self.requests.append((start, len(data)))
        return data

    def info(self, path, **kwargs):
        self.looks.append(path)
        return super().info(path, **kwargs)


@pytest.fixture
def counting():
    fsspec.register_implementation("counting", CountingFileSystem, clobber=True)
    fs = CountingFileSystem()
    fs.store.clear()
    fs.requests.clear()
    fs.looks.clear()
    CHUNKS.clear()
    return fs


@pytest.mark.parametrize("is_local", [True, False])
def test_fetched_bytes_are_those_of_the_file(tmp_path, counting, is_local):
    data = bytes(np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8))
    (tmp_path / "x").write_bytes(data)
    counting.pipe_file("/x", data)
    file = LogFile(str(tmp_path / "x") if is_local else "counting://x")
    starts = np.array([0, 100, 3000, 4990])
    stops = np.array([100, 120, 3500, 5000])
    found = [bytes(fetch()) for fetch in fetches(file, starts, stops, Scratch())]
    assert found == [data[a:b] for a, b in zip(starts, stops, strict=True)]
    assert file.size == pickle.loads(pickle.dumps(file)).size == 5000
    with pytest.raises(LogReadError, match="only 10 of bytes"):
        file.read(4990, 5010)


def test_local_ranges_are_read_into_memory_that_was_given_back(tmp_path):
    (tmp_path / "x").write_bytes(bytes(range(200)))
    file, scratch = LogFile(str(tmp_path / "x")), Scratch()
    first = scratch.read(file, 0, 100)
    second = scratch.read(file, 100, 190)
    assert (bytes(first), bytes(second)) == (bytes(range(100)), bytes(range(100, 190)))
    memory = first.obj
    scratch.take_back(first)
    scratch.take_back(memoryview(b"from elsewhere"))
    third = scratch.read(file, 50, 120)
    assert third.obj is memory
    assert (bytes(third), bytes(second)) == (bytes(range(50, 120)), bytes(range(100, 190)))
    assert bytes(scratch.read(file, 0, 200)) == bytes(range(200))
    with pytest.raises(LogReadError, match="only 10 of bytes"):
        scratch.read(file, 190, 210)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_chunks_stay_what_they_are_while_others_are_read(tmp_path, compression):
    messages = make_messages(900)
    log = open_log([str(write_mcap(tmp_path / "x.mcap", messages, compression=compression, chunk_size=4000))])
    CHUNKS.clear()
    part = log.parts[0]
    chunks = dict(part.chunks(part.index.with_messages))
    assert len(chunks) > 5
    for number, chunk in chunks.items():
        CHUNKS.clear()
        ((_, alone),) = part.chunks(np.array([number]))
        assert bytes(alone.buffer) == bytes(chunk.buffer)
        assert alone.log_time.tolist() == chunk.log_time.tolist()


def test_results_come_in_order_and_jobs_run_in_threads():
    seen = set()
    together = threading.Barrier(2, timeout=10)

    def job(i):
        together.wait()  # passes only if two jobs run at the same time
        seen.add(threading.get_ident())
        return i

    assert list(read_ahead(job, range(20))) == list(range(20))
    assert len(seen) == 2


def test_a_reader_that_stops_early_leaves_no_jobs_behind():
    started = []
    results = read_ahead(started.append, range(1000))
    next(results)
    results.close()
    assert len(started) < 10


def test_an_error_in_a_job_reaches_the_reader():
    def fail():
        raise LogReadError("broken")

    with pytest.raises(LogReadError, match="broken"):
        list(read_ahead(lambda work: work(), [int, int, fail, int]))


def test_a_file_system_that_fails_is_a_storage_error(counting, monkeypatch):
    monkeypatch.setattr(retries, "WAITS", (0, 0))
    counting.pipe_file("/x", b"12345678")
    file = LogFile("counting://x")

    def refuse(*args, **kwargs):
        raise TimeoutError("no answer")

    monkeypatch.setattr(CountingFileSystem, "cat_file", refuse)
    with pytest.raises(
        StorageError, match=r"counting://x: the server doesn't answer any more, .*; check the network"
    ):
        file.read(0, 4)


@pytest.mark.usefixtures("toy")
def test_remote_logs_read_as_local_ones(tmp_path, counting):
    messages = make_messages(300)
    for name, write, publish in (("x.mcap", write_mcap, True), ("x.bag", write_bag, False)):
        if not publish:
            messages = make_messages(300, payload=ros1_payload)
        counting.pipe_file(f"/{name}", write(tmp_path / name, messages).read_bytes())
        log = open_log([f"counting://{name}"])
        assert contents(read_all(log)) == expected(messages, publish)
        local = open_log([str(tmp_path / name)]).summary
        assert log.summary.topics == local.topics
        assert log.summary.content_id == local.content_id


@pytest.fixture
def drive(tmp_path, counting):
    """A log of 40 MB in 400 chunks on the counting file system: /a in all of them, /rare in every fourth."""
    rng = np.random.default_rng(0)
    messages = []
    for i in range(800):
        topic = "/rare" if i % 8 == 0 else "/a"
        time = START + i * 100 * MS
        messages.append(Message(topic, time, time, time, toy_payload(time, rng.bytes(50_000))))
    path = write_mcap(tmp_path / "drive.mcap", messages, compression="lz4", chunk_size=99_000)
    counting.pipe_file("/drive.mcap", path.read_bytes())
    return messages


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("topic", ["/a", "/rare"])
def test_one_percent_of_a_log_takes_few_requests_and_few_bytes(counting, drive, topic):
    start = START + 400 * 100 * MS
    log = open_log(["counting://drive.mcap"])
    found = log.read({topic: TopicRequest(start, start + 5000 * MS, ("log",))})[topic]
    assert found.log_time.tolist() == [
        m.log_time for m in drive if m.topic == topic and start <= m.log_time < start + 5000 * MS
    ]
    rows = log.parts[0].index.stretches[log.parts[0].stretches_with(topic, start, start + 5000 * MS - 1)]
    reads = [size for offset, size in counting.requests if offset and size > 70_000]
    assert sum(reads) <= 1.3 * rows["length"].sum()
    assert len(counting.requests) <= (10 if topic == "/a" else 14)


@pytest.mark.usefixtures("toy")
def test_opening_a_remote_log_looks_at_its_size_once(counting, drive):
    assert open_log(["counting://drive.mcap"]).summary.num_messages == len(drive)
    assert counting.looks == ["/drive.mcap"]


@pytest.mark.parametrize("size", [1, 63, 64, 65])
def test_the_head_of_a_remote_file_is_all_of_a_short_one(counting, size):
    data = bytes(range(size))
    counting.pipe_file("/x", data)
    assert LogFile("counting://x").head(64) == data[:64]
    assert len(counting.looks) == (size < 64)


def test_a_remote_file_that_is_empty_or_gone_is_no_log(counting):
    counting.pipe_file("/x.mcap", b"")
    with pytest.raises(LogReadError, match=r"counting://x\.mcap: empty file"):
        open_log(["counting://x.mcap"])
    with pytest.raises(LogReadError, match=r"counting://y\.mcap: there is no such file"):
        open_log(["counting://y.mcap"])


def test_a_summary_reads_the_index_only(counting, drive):
    log = open_log(["counting://drive.mcap"])
    assert log.summary.num_messages == len(drive)
    assert sum(size for _, size in counting.requests) < 2.5 * ranges.MIB
    assert len(counting.requests) <= 12
