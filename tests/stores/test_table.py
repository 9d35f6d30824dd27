"""Tables in real object stores' interfaces: written, read, merged and shared with workers."""

import json
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import logloom.io.formats.table as tt
from logloom.errors import DatasetError, UsageError
from tests.io.formats.table.making import assert_rows_equal, drive, labels

pytestmark = pytest.mark.engines
ON = ["log_id", "timestamp"]


@pytest.fixture
def tables(store, bucket):
    """A sensors table, one of labels, and how to reach them."""
    rows = drive(num_logs=2, rows=30)
    options = {"storage_options": store.storage_options}
    tt.write_table(f"{bucket}/sensors", rows, index=["speed", "pedestrians_count"], **options)
    tt.write_table(f"{bucket}/labels", labels(rows), **options)
    return f"{bucket}/sensors", f"{bucket}/labels", rows, options


def read_some(loader, positions):
    """What a worker does; runs in another process."""
    return [loader.get_row(position) for position in positions], loader.get_many(positions, "ego.position")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_that_was_used_serves_worker_processes(tables, method):
    uri, _, rows, options = tables
    loader = tt.row_loader(tt.read_index(uri, **options), **options)
    loader.get_row(0)
    loader.get_many([1, 50])
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        for found, batch in pool.map(read_some, [loader] * 3, [[3, 55, 41]] * 3, timeout=100):
            for row, position in zip(found, (3, 55, 41), strict=True):
                assert_rows_equal(row, rows[position])
            np.testing.assert_array_equal(
                batch["ego.position"], [rows[p]["ego.position"] for p in (3, 55, 41)]
            )
    assert_rows_equal(loader.get_row(7), rows[7])


def test_rows_of_merged_tables_are_read_by_many_threads(tables):
    sensors, others, rows, options = tables
    merged = tt.merge(tt.read_index(sensors, **options), tt.read_index(others, **options), on=ON)
    loader = pickle.loads(pickle.dumps(tt.row_loader(merged[merged.pedestrians_count > 3], **options)))
    both = [
        row | label for row, label in zip(rows, labels(rows), strict=True) if row["pedestrians_count"] > 3
    ]
    with ThreadPoolExecutor(8) as pool:
        for found, wanted in zip(pool.map(loader.get_row, range(len(loader))), both, strict=True):
            assert_rows_equal(found, wanted)
    windows, mask = loader.get_window_many([5, 2], ["labels.count", "speed"], range(-3, 1), on_edge="pad")
    assert mask[:, -1].all()
    assert windows["labels.count"][0, -1] == both[5]["labels.count"]


def test_a_filter_opens_a_part_of_a_table(tables):
    uri, _, rows, options = tables
    index = tt.read_index(uri, columns="speed", where="speed > 0.5 and log_id == 'drive-1'", **options)
    wanted = [row for row in rows[30:] if row["speed"] > 0.5]
    assert index.speed.tolist() == [row["speed"] for row in wanted]
    assert_rows_equal(tt.row_loader(index, **options).get_row(0), wanted[0])


def test_chains_of_references_and_damage_are_named(tables, store, bucket):
    uri, _, rows, options = tables
    rows[3]["speed"] = 9.0
    tt.write_table(f"{bucket}/v2", rows, reference=uri, **options)
    rows[4]["speed"] = 9.0
    tt.write_table(f"{bucket}/v3", rows, reference=f"{bucket}/v2", **options)
    described = json.loads(store.fs.cat_file(f"{bucket}/v3/table.json"))
    assert described["references"] == [f"{bucket}/v2", uri]
    assert tt.verify(f"{bucket}/v3", **options) == []
    (blob,) = store.fs.glob(f"{uri}/parts/*/camera.front.blob")
    data = bytearray(store.fs.cat_file(blob))
    data[12] ^= 1
    store.fs.pipe_file(blob, bytes(data))
    for name in ("sensors", "v2", "v3"):
        (line,) = tt.verify(f"{bucket}/{name}", **options)
        assert line.startswith(f"{bucket}/{name}: part ")
        assert "group camera.front (camera.front), row 0 of log drive-0: bytes 0 to " in line
    store.fs.rm_file(blob)
    loader = tt.row_loader(tt.read_index(f"{bucket}/v3", **options), **options)
    with pytest.raises(
        DatasetError, match=rf"v3: part .*row 5 of log drive-0.*{uri}/parts/.*there is no such file"
    ):
        loader.get_row(5)


def test_a_second_table_at_the_same_place_is_refused(tables):
    uri, _, rows, options = tables
    with pytest.raises(UsageError, match="there is a table already"):
        tt.write_table(uri, rows, **options)
    with pytest.raises(DatasetError, match="no table here"):
        tt.read_index(f"{uri}/nothing", **options)
