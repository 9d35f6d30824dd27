"""Loaders in threads, in forked and spawned processes, and over object stores."""

import multiprocessing
import os
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import fsspec
import numpy as np
import pytest

import logloom.io.formats.table as tt
from logloom.errors import DatasetError
from logloom.io.formats.table.read import range_reader
from logloom.io.storage import files
from logloom.testing.processes import in_fork
from tests.io.formats.table.making import assert_rows_equal, drive, labels
from tests.tier import by_tier

ON = ["log_id", "timestamp"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    root = tmp_path_factory.mktemp("workers")
    rows = drive(num_logs=3, rows=30)
    tt.write_table(f"{root}/t", rows, index="speed")
    tt.write_table(f"{root}/labels", labels(rows))
    return root, rows


def read_some(loader, positions):
    """What a worker does; runs in another process."""
    rows = [loader.get_row(position) for position in positions]
    batch = loader.get_many(positions, "ego.position")
    return rows, batch["ego.position"]


@pytest.mark.parametrize("method", by_tier(["fork"], ["fork", "spawn"]))
def test_a_loader_that_was_used_serves_worker_processes(table, method):
    root, rows = table
    loader = tt.row_loader(tt.read_index(f"{root}/t"))
    loader.get_row(0)
    loader.get_rows(50, offsets=[-1])
    # A spawned process imports all again; one is enough.
    count = 2 if method == "fork" else 1
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context(method)) as pool:
        for found, batch in pool.map(read_some, [loader] * 4, [[3, 80, 41]] * 4):
            for row, position in zip(found, (3, 80, 41), strict=True):
                assert_rows_equal(row, rows[position])
            np.testing.assert_array_equal(batch, [rows[p]["ego.position"] for p in (3, 80, 41)])


def test_a_forked_child_reads_on_by_threads_of_its_own(table, monkeypatch):
    monkeypatch.setattr(range_reader, "_PARALLEL_BYTES", 1)
    monkeypatch.setattr(range_reader, "_PARALLEL_RANGE", 0)
    root, rows = table
    loader = tt.row_loader(tt.read_index(f"{root}/t"), threads=2)

    def read():
        return loader.get_many(list(range(60)))["camera.front"], loader._reader._threads._made[0]

    expected = [row["camera.front"] for row in rows[:60]]
    assert read() == (expected, os.getpid())
    found, owner = in_fork(read)
    assert found == expected
    assert owner != os.getpid()
    assert read() == (expected, os.getpid())
    assert_rows_equal(loader.get_row(5), rows[5])


def test_many_threads_share_a_loader(table, monkeypatch):
    monkeypatch.setattr(files, "_MAX_OPEN", 2)  # files are evicted while others read them
    root, rows = table
    merged = tt.merge(tt.read_index(f"{root}/t"), tt.read_index(f"{root}/labels"), on=ON)
    loader = tt.row_loader(merged[merged.speed > 0.2])
    wanted = [row | label for row, label in zip(rows, labels(rows), strict=True) if row["speed"] > 0.2]
    assert loader._reader._files == {}

    def read(position):
        return loader.get_row(position), loader.get_rows(position, "speed", [-1, 0, 1], on_edge="drop")

    positions = np.random.default_rng(0).integers(0, len(loader), 400).tolist()
    with ThreadPoolExecutor(8) as pool:
        for position, (row, window) in zip(positions, pool.map(read, positions), strict=True):
            assert_rows_equal(row, wanted[position])
            assert window
    assert sum(file._file is not None for file in loader._reader._files.values()) <= 8


def test_a_pickled_loader_carries_no_open_files_and_no_plans(table):
    root, rows = table
    loader = tt.row_loader(tt.read_index(f"{root}/t"), "ego.*")
    fresh = len(pickle.dumps(loader))
    loader.get_row(3)
    loader.get_rows(3, None, [-1], on_edge="pad")
    loader.get_many(range(40), None)
    again = pickle.loads(pickle.dumps(loader))
    assert len(pickle.dumps(again)) <= fresh + 8 * len(rows) + 1000  # the runs of neighbours
    assert list(again[3]) == ["log_id", "timestamp", "ego.position"]


@pytest.fixture
def remote():
    """A folder on a file system that is not local."""
    fs = fsspec.filesystem("memory")
    yield "memory://drives"
    if fs.exists("/drives"):
        fs.rm("/drives", recursive=True)


def test_tables_on_an_object_store(remote):
    rows = drive(num_logs=2, rows=20)
    tt.write_table(f"{remote}/t", rows, index="speed", max_gap=1)
    tt.write_table(f"{remote}/v2", rows, reference=f"{remote}/t")
    fs = fsspec.filesystem("memory")
    assert not [path for path in fs.find("/drives/v2") if path.endswith(".blob") and fs.size(path)]
    for name in ("t", "v2"):
        index = tt.read_index(f"{remote}/{name}", where="timestamp >= 0")
        loader = pickle.loads(pickle.dumps(tt.row_loader(index, check=True)))
        for position in (0, 39, 17):
            assert_rows_equal(loader.get_row(position), rows[position])
        window = loader.get_rows(30, "lidar.*", range(-5, 5))
        for found, wanted in zip(window, rows[25:35], strict=True):
            assert_rows_equal(found, wanted)
        batch = loader.get_many([3, 1, 22], ["ego.position", "lidar.points"])
        np.testing.assert_array_equal(batch["ego.position"], [rows[p]["ego.position"] for p in (3, 1, 22)])
        assert tt.verify(f"{remote}/{name}") == []
    merged = tt.merge(*(tt.read_index(f"{remote}/{name}") for name in ("t", "v2")), on=ON)
    assert tt.row_loader(merged.iloc[::-1]).get_row(0, "speed_y")["speed_y"] == rows[-1]["speed"]


def test_requests_to_an_object_store_are_dearer_than_bytes(remote):
    rows = [{"a": np.zeros(30_000), "b": np.zeros(30_000), "c": np.zeros(30_000)} for _ in range(3)]
    groups = {"a": "a", "b": "b", "c": "c", "all": ".*"}
    tt.write_table(f"{remote}/t", rows, groups=groups)
    loader = tt.row_loader(tt.read_index(f"{remote}/t"))
    assert [g.group for g in loader.explain(["a", "b"]).groups] == ["all"]


def test_damage_on_an_object_store_is_named(remote):
    tt.write_table(f"{remote}/t", drive(num_logs=1, rows=5))
    loader = tt.row_loader(tt.read_index(f"{remote}/t"))
    fs = fsspec.filesystem("memory")
    (path,) = fs.glob("/drives/t/parts/*/lidar.points.blob")
    fs.pipe_file(path, fs.cat_file(path)[:40])
    with pytest.raises(DatasetError, match=r"drives/t: part .*row 4 of log drive-0.*cut short"):
        loader.get_row(4, "lidar.points")
    fs.rm_file(path)
    for read in (lambda: loader.get_row(4), lambda: loader.get_many([4, 1])):
        with pytest.raises(DatasetError, match=r"row \d of log drive-0.*there is no such file"):
            read()
    assert len(tt.verify(f"{remote}/t")) == 5


def numbers_of(reader, names):
    return [reader.number_of(name) for name in names]


def test_threads_that_meet_new_files_at_once_number_each_of_them_once():
    names = [f"/blobs/{number}" for number in range(300)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            reader = range_reader.RangeReader()
            with ThreadPoolExecutor(4) as pool:
                found = list(pool.map(numbers_of, [reader] * 4, [names] * 4))
            assert all([reader.uris[number] for number in own] == names for own in found)
            assert len(reader.uris) == len(names)
    finally:
        sys.setswitchinterval(interval)
