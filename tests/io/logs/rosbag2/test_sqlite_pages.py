"""sqlite bags far away are read by ranges of pages: few of them, and what a local copy gives to the bit."""

import pickle
import random

import apsw
import fsspec
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer

from logloom.errors import LogloomError, StorageError, TruncatedLogError
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.interface import OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log
from logloom.io.logs.rosbag2 import db3
from logloom.io.logs.rosbag2.sqlite_pages import PAGES, PagedFile, leaves, tails
from logloom.io.storage.remote import retries
from tests.io.logs.files.test_ranges import CountingFileSystem, counting  # noqa: F401
from tests.io.logs.making import MS, SECOND, START, contents, read_all
from tests.io.logs.rosbag2.test_rosbag2 import STORE, db3_file
from tests.tier import by_tier

ALL_IDS = (1, 1 << 40)
SALVAGE = OpenOptions(on_error="salvage")


@pytest.fixture(autouse=True)
def _forgotten():
    PAGES.clear()
    CHUNKS.clear()


def far(path):
    """The URI of a copy of a file in a store."""
    fsspec.filesystem("memory").pipe_file(f"/{path.name}", path.read_bytes())
    return f"memory://{path.name}"


def write_drive(path, seconds=20):
    """A bag as of a car: /imu of 300 bytes a hundred times a second, between images of 100 kB."""
    text = STORE.types["std_msgs/msg/String"]
    rng = random.Random(0)
    with Writer(path, version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        topics = {
            topic: writer.add_connection(topic, "std_msgs/msg/String", typestore=STORE)
            for topic in ("/imu", "/image")
        }
        for i in range(seconds * 100):
            time = START + i * 10 * MS
            for topic, size, every in (("/imu", 300, 1), ("/image", 100_000, 10)):
                if i % every == 0:
                    message = text(data=chr(97 + i % 26) * (size + rng.randrange(size // 2)))
                    writer.write(topics[topic], time, STORE.serialize_cdr(message, "std_msgs/msg/String"))
    return path / f"{path.name}.db3"


def pages_of(path, kind):
    """The pages of the table of messages, by id, as sqlite itself tells them."""
    query = "SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = ? ORDER BY path"
    return [number for (number,) in apsw.Connection(str(path)).execute(query, (kind,))]


def root_of(path):
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'messages'"
    return apsw.Connection(str(path)).execute(query).get


def stored_anew(path, page_size, reserved=0):
    database = apsw.Connection(str(path))
    database.execute(f"PRAGMA journal_mode = DELETE; PRAGMA page_size = {page_size}").fetchall()
    database.reserve_bytes(reserve=reserved)
    database.execute("VACUUM")
    database.close()
    head = path.read_bytes()[:21]
    assert (head[16:18], head[20]) == ((page_size % 65535).to_bytes(2, "big"), reserved)


@pytest.mark.parametrize("page_size", [512, 1024, 4096, 65536])
@pytest.mark.parametrize("reserved", [0, 12])
def test_the_pages_looked_up_are_those_that_sqlite_tells(tmp_path, page_size, reserved):
    path = write_drive(tmp_path / "bag", seconds=2)
    stored_anew(path, page_size, reserved)
    file = PagedFile(LogFile(str(path)), page_size)
    found = leaves(file, root_of(path), *ALL_IDS)
    assert found == (pages_of(path, "leaf") or [root_of(path)])
    rest = [page for leaf in found for page in tails(file, leaf, range(1 << 40), reserved)]
    assert sorted(rest) == sorted(pages_of(path, "overflow"))


def test_a_torn_bag_of_the_largest_pages_is_reported(tmp_path):
    path = write_drive(tmp_path / "bag", seconds=2)
    stored_anew(path, 65536)
    data = path.read_bytes()
    path.write_bytes(data[:-30_000])
    message = f"it ends at byte {len(data) - 30_000} of {len(data)}"
    with pytest.raises(TruncatedLogError, match=message):
        open_log([str(path)]).summary  # noqa: B018


def test_only_the_pages_of_some_rows_are_looked_up(tmp_path):
    path = write_drive(tmp_path / "bag", seconds=5)
    file = PagedFile(LogFile(str(path)), 4096)
    some = leaves(file, root_of(path), 50, 70)
    whole = leaves(file, root_of(path), *ALL_IDS)
    assert 1 < len(some) < 10 < len(whole)
    start = whole.index(some[0])
    assert whole[start : start + len(some)] == some
    rest = [page for leaf in some for page in tails(file, leaf, {56}, 0)]
    (size,) = apsw.Connection(str(path)).execute("SELECT length(data) FROM messages WHERE id = 56")
    assert len(rest) in (size[0] // 4092, size[0] // 4092 + 1)
    assert set(rest) < set(pages_of(path, "overflow"))


def read(uri, options):
    """All that a log gives, or the error that it gives instead, without its name."""
    try:
        log = open_log([uri], options)
        found = contents(read_all(log))
        reasons = [(r.reason, r.topic, r.position, r.num_messages) for r in log.summary.refusals]
        return found, reasons, log.summary.content_id
    except LogloomError as error:
        return type(error), str(error).replace(uri, "FILE")


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_whatever_is_damaged_reads_far_away_as_it_does_here(tmp_path, page_size):
    path = db3_file(tmp_path, count=60)
    stored_anew(path, page_size)
    data = path.read_bytes()
    rng = random.Random(page_size)
    kinds = set()
    for i in range(by_tier(12, 40)):
        changed = bytearray(data)
        for _ in range(rng.randrange(9) if i else 0):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        path = path.with_name(f"{i}.db3")  # what is kept by name must not count
        path.write_bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.3 else changed)
        for options in (OpenOptions(), SALVAGE):
            here = read(str(path), options)
            assert read(far(path), options) == here
            kinds.add(type(here[0]))
    assert kinds == {dict, type}  # some were read, others refused


def test_a_summary_and_a_partition_take_few_requests_and_few_bytes(tmp_path, counting, monkeypatch):  # noqa: F811
    monkeypatch.setattr(db3, "WINDOW_BYTES", 4 << 20)
    path = write_drive(tmp_path / "bag")
    size = path.stat().st_size
    counting.pipe_file("/bag.db3", path.read_bytes())
    options = OpenOptions(sidecars=str(tmp_path / "index"))
    local = open_log([str(path)])
    assert open_log(["counting://bag.db3"], options).summary.topics == local.summary.topics
    summary = sum(length for _, length in counting.requests)
    assert summary < 0.15 * size + 2.5 * (1 << 20)  # with the content id's two MiB
    assert len(counting.requests) < 350
    for topic, share in (("/imu", 0.1), ("/image", 0.25)):
        PAGES.clear()
        counting.requests.clear()
        log = pickle.loads(pickle.dumps(open_log(["counting://bag.db3"], options)))
        request = {topic: TopicRequest(START + 8 * SECOND, START + 10 * SECOND, ("log",))}
        assert contents(log.read(request)) == contents(local.read(request))
        fetched = sum(length for _, length in counting.requests) - 2 * (1 << 20)
        assert fetched < share * size


def test_a_whole_log_is_fetched_about_once(tmp_path, counting):  # noqa: F811
    path = write_drive(tmp_path / "bag", seconds=5)
    counting.pipe_file("/bag.db3", path.read_bytes())
    log = open_log(["counting://bag.db3"])
    log.summary.content_id  # noqa: B018
    counting.requests.clear()
    PAGES.clear()
    read_all(log)
    assert sum(length for _, length in counting.requests) < 1.1 * path.stat().st_size


def test_a_store_that_fails_is_a_storage_error_and_never_damage(tmp_path, counting, monkeypatch):  # noqa: F811
    monkeypatch.setattr(retries, "WAITS", (0, 0))
    path = write_drive(tmp_path / "bag", seconds=3)
    counting.pipe_file("/bag.db3", path.read_bytes())
    whole = len(read_all(open_log(["counting://bag.db3"]))["/imu"])
    cat_file, reads = CountingFileSystem.cat_file, []
    good = 0

    def refuse(self, path, start=None, end=None, **kwargs):
        reads.append(start)
        if len(reads) > good:
            raise TimeoutError("no answer")
        return cat_file(self, path, start, end, **kwargs)

    monkeypatch.setattr(CountingFileSystem, "cat_file", refuse)
    for good in range(1000):  # noqa: B007 (read by `refuse`)
        PAGES.clear()
        CHUNKS.clear()
        reads.clear()
        try:
            log = open_log(["counting://bag.db3"], SALVAGE)
            found = read_all(log)
        except StorageError as error:
            assert "counting://bag.db3: the server doesn't answer" in str(error)  # noqa: PT017
        else:
            break
    assert good > 5
    assert len(found["/imu"]) == whole
    assert not log.summary.refusals


def test_pages_that_lead_back_to_each_other_are_looked_up_within_limits(tmp_path):
    path = write_drive(tmp_path / "bag", seconds=2)
    stored_anew(path, 512)
    root = root_of(path)
    data = bytearray(path.read_bytes())
    page = memoryview(data)[(root - 1) * 512 : root * 512]
    assert page[0] == 5
    page[8:12] = root.to_bytes(4, "big")
    for i in range(page[4]):
        cell = int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big")
        page[cell : cell + 4] = root.to_bytes(4, "big")
    del page
    path.with_name("loop.db3").write_bytes(data)
    assert leaves(PagedFile(LogFile(str(path.with_name("loop.db3"))), 512), root, *ALL_IDS) == []
