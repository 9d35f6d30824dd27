"""Records of logs in pages: read lazily, shared by versions, proven, and a function of the records alone."""

import dataclasses
import os
import pickle
import time

import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from logloom.errors import DatasetError
from logloom.io.catalog import pages as pages_module
from logloom.io.catalog.page_merge import merge_records, write_records
from logloom.io.catalog.pages import GONE, LogRecord, is_border, page_file, read_page, table_of
from logloom.io.catalog.records import LogRecords
from logloom.io.storage.store import Store
from logloom.testing.processes import in_fork
from tests.files import flip
from tests.tier import examples


def record(number: int, **changes) -> LogRecord:
    made = LogRecord(
        log_id=f"car-{number:06}",
        uris=(f"s3://logs/{number}.mcap",),
        content_id=blake3(b"c%d" % number).hexdigest(),
        split="val" if number % 5 == 0 else "train",
        key=blake3(b"k%d" % number).hexdigest(),
        status="whole",
        part=blake3(b"p%d" % number).hexdigest(),
        rows=number,
        planned=number + 1,
        dropped={"gap": 1} if number % 3 else {},
        refused=0,
        verified="all",
        units=2,
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture
def store(tmp_path):
    return Store.at(str(tmp_path))


@pytest.fixture
def small_pages(monkeypatch):
    """Pages of four logs or so, eight at most."""
    monkeypatch.setattr(pages_module, "_BORDER", 2**64 // 4)
    monkeypatch.setattr("logloom.io.catalog.page_merge.MAX_LOGS", 8)


def test_records_come_back_equal_one_by_one_and_by_columns(store):
    records = [record(n) for n in range(10_000)]
    written = write_records(store, records)
    logs = LogRecords(store, written.pages)
    assert len(logs.pages) > 2
    assert logs == tuple(records)
    assert logs[7] == records[7]
    assert logs[-1] == records[-1]
    assert logs[3:5] == tuple(records[3:5])
    assert logs.find("car-004711") == records[4711]
    assert logs.find("car-") is None
    assert logs.find("zebra") is None
    assert logs.column("rows").to_pylist() == list(range(10_000))
    assert logs.columns("log_id", "split")["split"][5].as_py() == "val"
    assert [r.log_id for r in logs.take(logs.where("split", ["val"])[:2])] == ["car-000000", "car-000005"]
    assert logs.totals == {
        "logs": 10_000,
        "parts": 10_000,
        "rows": sum(range(10_000)),
        "ticks_planned": sum(range(1, 10_001)),
        "refused": 0,
        "skipped": 0,
        "units": 20_000,
    }
    assert logs.dropped == {"gap": sum(n % 3 > 0 for n in range(10_000))}
    assert logs != tuple(records[:-1])
    assert pickle.loads(pickle.dumps(logs)) == logs


def test_records_that_lie_in_no_page_answer_alike():
    records = [record(3), record(1, uris=("/logs/\udcff.mcap",))]  # formats 1 and 2 may hold them unsorted
    logs = LogRecords.of(records)
    assert list(logs) == records
    assert logs.find("car-000001") == records[1]
    assert logs.column("rows").to_pylist() == [3, 1]
    assert pickle.loads(pickle.dumps(logs)) == records
    assert LogRecords() == ()


def test_a_column_is_read_by_ranges_and_few_bytes(store, monkeypatch):
    logs = LogRecords(store, write_records(store, [record(n) for n in range(9000)]).pages)
    asked = []
    read = Store.read_range

    def counted(self, name, start, stop):
        asked.append(stop - start)
        return read(self, name, start, stop)

    monkeypatch.setattr(Store, "read_range", counted)
    assert logs.column("rows").to_pylist() == list(range(9000))
    large = [page for page in logs.pages if page.size > 64 << 10]
    assert len(asked) == 2 * len(large)
    assert sum(asked) < sum(page.size for page in large) / 2


def test_a_new_log_changes_one_page_and_the_others_are_not_read(store, small_pages):
    before = write_records(store, [record(n) for n in range(0, 400, 2)])
    new = LogRecords.of([record(201)])
    only = pages_around(before, "car-000201")
    for page in before.pages:
        if page.digest not in only:
            (store.local / page_file(page)).unlink()
    after = merge_records(store, before, [new])
    assert len({page.digest for page in after.pages} - {page.digest for page in before.pages}) <= 2


def pages_around(logs: LogRecords, log_id: str) -> set[str]:
    """The pages between the borders before and after a log."""
    digests = [page.digest for page in logs.pages]
    at = max(n for n, page in enumerate(logs.pages) if page.first <= log_id)
    first = max(n for n in range(at + 1) if n == 0 or is_border(logs.pages[n].first))
    ends = (n for n in range(at + 1, len(digests)) if is_border(logs.pages[n].first))
    return set(digests[first : next(ends, len(digests))])


NIGHT = st.dictionaries(st.integers(0, 60), st.sampled_from(["new", "gone", "kept"]), min_size=0, max_size=20)


@settings(max_examples=examples(0.5))
@given(nights=st.lists(NIGHT, min_size=1, max_size=6))
def test_after_any_nights_the_pages_are_those_of_the_records_alone(tmp_path_factory, nights):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages_module, "_BORDER", 2**64 // 4)
        patch.setattr("logloom.io.catalog.page_merge.MAX_LOGS", 5)
        store = Store.at(str(tmp_path_factory.mktemp("root")))
        known: dict[str, LogRecord] = {}
        logs = LogRecords()
        for number, night in enumerate(nights):
            built, delta = {}, {}
            for log, what in night.items():
                made = record(log, rows=number)
                if what == "new":
                    built[made.log_id] = made
                elif made.log_id in known:
                    delta[made.log_id] = dataclasses.replace(known[made.log_id], status=what)
            known |= built | delta
            known = {log_id: one for log_id, one in known.items() if one.status != GONE}
            changes = [LogRecords.of([one[log_id] for log_id in sorted(one)]) for one in (delta, built)]
            logs = merge_records(store, logs, changes)
            expected = [known[log_id] for log_id in sorted(known)]
            assert logs == expected
            assert logs.pages == write_records(store, expected).pages


def test_two_records_of_one_log_are_no_version(store):
    with pytest.raises(DatasetError, match="'car-000001' follows 'car-000001'"):
        write_records(store, [record(1), record(1)])


def test_a_damaged_or_lost_page_names_its_file_and_the_way_out(store):
    logs = write_records(store, [record(n) for n in range(50)])
    path = store.local / page_file(logs.pages[0])
    flip(path)
    with pytest.raises(DatasetError, match=rf"{path.name}: damaged.*backup.*logloom verify"):
        list(logs)
    path.unlink()
    with pytest.raises(DatasetError, match=rf"{path.name}: a page of the manifest is missing.*backup"):
        LogRecords(store, logs.pages).column("rows")


def test_a_damaged_page_that_is_written_again_is_whole(store):
    logs = write_records(store, [record(n) for n in range(50)])
    flip(store.local / page_file(logs.pages[0]))
    assert list(write_records(store, [record(n) for n in range(50)])) == [record(n) for n in range(50)]
    assert list(LogRecords(store, logs.pages)) == [record(n) for n in range(50)]


def test_a_flipped_bit_in_a_column_is_found_by_its_page(store):
    logs = write_records(store, [record(n) for n in range(1500)])
    page = max(logs.pages, key=lambda one: one.size)
    path = store.local / page_file(page)
    chunk = pq.read_metadata(path).row_group(0).column(5)  # of keys
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=rf"{path.name}: damaged"):
        LogRecords(store, [page]).column("key")
    assert len(LogRecords(store, [page]).column("rows")) == page.logs  # its Parquet pages are whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "../x"}, "split is no name"),
        ({"part": "a/b"}, "part is no name"),
        ({"part": ".."}, "part is no name"),
        ({"rows": -1}, "rows is below 0"),
        ({"dropped": {"gap": -1}}, "dropped"),
    ],
)
def test_a_strangers_page_is_refused_though_its_digest_fits(store, change, message):
    table = table_of([record(1, **change)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages_module, "described", lambda *of: logs_of(*of))
        page, data = pages_module.page_of(table)
    store.create(page_file(page), data)
    with pytest.raises(DatasetError, match=message):
        list(LogRecords(store, [page]))


def test_a_record_without_a_file_is_refused(store):
    page, data = pages_module.page_of(table_of([record(1, uris=())]))
    store.create(page_file(page), data)
    with pytest.raises(DatasetError, match=r"row 0: log .* has no uris"):
        list(LogRecords(store, [page]))


@pytest.mark.parametrize("names", [None, ["reasons"]], ids=["whole", "one column"])
def test_a_small_page_that_unpacks_to_very_much_is_refused(store, names, monkeypatch):
    records = (record(n, status="skipped", reasons=("x" * 10_000,)) for n in range(1000))
    (page,) = write_records(store, records).pages
    assert page.size < 200_000
    monkeypatch.setattr(pages_module, "MAX_BYTES", 2_000_000)
    with pytest.raises(DatasetError, match="decompressed size exceeds the limit"):
        pages_module.rows_of(store, page, pages_module.fetch(store, page, names), names)


def logs_of(table, digest="", size=0):
    return pages_module.RecordPage(digest, size, "car-000001", "car-000001", {"logs": len(table)}, {}, {})


def test_a_page_of_other_logs_than_the_manifest_says_is_refused(store):
    page = write_records(store, [record(1), record(2)]).pages[0]
    for lie in ({"last": "car-000003"}, {"totals": {**page.totals, "rows": 7}}, {"dropped": {"x": 1}}):
        with pytest.raises(DatasetError, match=r"parquet: contains other logs or sums"):
            read_page(store, dataclasses.replace(page, **lie))
    with pytest.raises(DatasetError, match=r"parquet: 2 logs, the manifest has 3"):
        read_page(store, dataclasses.replace(page, totals={**page.totals, "logs": 3}))


def test_pages_are_read_by_no_thread_that_outlives_the_read(store):
    logs = write_records(store, [record(n) for n in range(6000)])
    assert len(logs.pages) > 1

    def threads_after_reading():
        before = os.listdir("/proc/self/task")
        LogRecords(store, logs.pages).columns("rows", "log_id")
        assert sum(one.rows for one in LogRecords(store, logs.pages)) == sum(range(6000))
        until = time.monotonic() + 60  # a joined thread is listed until the system has removed it
        while (left := set(os.listdir("/proc/self/task")) - set(before)) and time.monotonic() < until:
            time.sleep(0.01)
        return left

    assert not in_fork(threads_after_reading)  # where Arrow has no threads yet
