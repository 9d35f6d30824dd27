"""The reference's code, run with only the import and the paths changed, and the requirements it lists."""

import pickle

import numpy as np
import pandas as pd
import pytest

import logloom.io.formats.table as tt
from logloom.errors import UsageError
from logloom.io.formats.table.read import range_reader
from logloom.io.storage import files
from tests.io.formats.table.making import assert_rows_equal, drive, labels
from tests.tier import by_tier


@pytest.fixture
def tables(tmp_path):
    rows = drive(num_logs=2, rows=30)
    tt.write_table(f"{tmp_path}/sensors", rows, index=["pedestrians_count", "speed"])
    tt.write_table(f"{tmp_path}/labels_v2", labels(rows))
    return tmp_path, rows


def test_the_code_that_reads_rows_runs(tables):
    root, rows = tables
    row_pos = 17
    index = tt.read_index(f"{root}/sensors")
    row_loader = tt.row_loader(index)
    # Read a row
    row = row_loader.get_row(row_pos, columns=["lidar.*", "radar.*"])
    assert list(row) == ["log_id", "timestamp", "lidar.points", "lidar.pose", "radar.returns"]
    assert_rows_equal(row, rows[row_pos])
    rows_found = row_loader.get_rows(row_pos, columns=["lidar.*", "radar.*"], offsets=range(-10, 0))
    assert len(rows_found) == 10
    for found, wanted in zip(rows_found, rows[row_pos - 10 : row_pos], strict=True):
        assert_rows_equal(found, wanted)


def test_the_code_that_joins_tables_runs(tables):
    root, rows = tables
    row_pos = 33
    sensors_index = tt.read_index(f"{root}/sensors")
    labels_index = tt.read_index(f"{root}/labels_v2")
    merged_index = tt.merge(sensors_index, labels_index, on=["log_id", "timestamp"])
    row_loader = tt.row_loader(merged_index)
    row = row_loader.get_row(row_pos, columns=["lidar.*", "radar.*", "labels.*"])
    assert_rows_equal(row, rows[row_pos] | labels(rows)[row_pos])
    assert {"lidar.points", "radar.returns", "labels.boxes", "labels.count"} <= set(row)


def test_the_code_that_selects_rows_runs(tables):
    root, rows = tables
    sensors_index = tt.read_index(f"{root}/sensors")
    labels_index = tt.read_index(f"{root}/labels_v2")
    merged_index = tt.merge(sensors_index, labels_index, on=["log_id", "timestamp"])
    merged_index = merged_index[merged_index.pedestrians_count > 3]
    row_loader = tt.row_loader(merged_index)
    row = row_loader.get_row(0, columns=[".*", "labels.*"])
    first = next(i for i, row in enumerate(rows) if row["pedestrians_count"] > 3)
    assert set(row) == set(rows[0]) | set(labels(rows)[0])
    assert_rows_equal(row, rows[first] | labels(rows)[first])


def test_requirement_1_sensor_data_comes_back_as_it_was_stored(tables):
    root, rows = tables
    for found, wanted in zip(tt.row_loader(tt.read_index(f"{root}/sensors")), rows, strict=True):
        assert set(found) == set(wanted)
        assert_rows_equal(found, wanted)


def test_requirement_2_tensors_are_views_of_the_bytes_that_were_read(tables):
    root, _ = tables
    row = tt.row_loader(tt.read_index(f"{root}/sensors")).get_row(3, columns=["lidar.*", "ego.position"])
    for name in ("lidar.points", "lidar.pose", "ego.position"):
        assert isinstance(row[name], np.ndarray)
        assert row[name].base is not None, f"{name} was copied"
        assert row[name].flags.aligned
        assert row[name].flags.writeable


def test_requirement_3_columns_that_are_not_asked_for_are_not_read(tables, monkeypatch):
    root, _ = tables
    loader = tt.row_loader(tt.read_index(f"{root}/sensors"))
    for blob in root.glob("sensors/parts/*/camera.front.blob"):
        blob.chmod(0o644)
        blob.unlink()
    assert "lidar.points" in loader.get_row(5, columns="lidar.*")
    assert loader.explain("lidar.points").requests == 1


def test_requirement_4_rows_are_read_in_any_order(tables):
    root, rows = tables
    loader = tt.row_loader(tt.read_index(f"{root}/sensors"))
    for position in np.random.default_rng(0).permutation(len(rows)):
        assert_rows_equal(loader.get_row(position), rows[position])


def test_requirement_5_rows_are_found_by_a_query_in_memory(tables):
    root, rows = tables
    index = tt.read_index(f"{root}/sensors")
    found = tt.row_loader(index.query("pedestrians_count > 3 and speed < 0.5"))
    wanted = [row for row in rows if row["pedestrians_count"] > 3 and row["speed"] < 0.5]
    assert len(found) == len(wanted) > 0
    for row, expected in zip(found, wanted, strict=True):
        assert_rows_equal(row, expected)


def test_requirement_6_a_table_is_never_changed(tables):
    root, rows = tables
    with pytest.raises(UsageError, match="there is a table already"):
        tt.write_table(f"{root}/sensors", rows[:5])
    files = [file for file in (root / "sensors").rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".blob", ".parquet", ".json"}
    for file in files:
        assert file.stat().st_mode & 0o222 == 0, f"{file} can be written to"


def test_requirement_7_hundreds_of_columns_and_fields_from_a_byte_to_ten_megabytes(tmp_path):
    row = {f"c{number:03}": np.float32(number) for number in range(500)}
    row |= {"byte": np.uint8(7), "large": np.arange(11 << 20, dtype=np.uint8)}
    tt.write_table(f"{tmp_path}/wide", [row, row], index=["byte"])
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/wide"))
    assert_rows_equal(loader.get_row(1), row)
    assert loader.get_row(1, columns="c499") == {"c499": 499}
    assert tt.verify(f"{tmp_path}/wide") == []


def test_requirement_7_a_field_of_tens_of_megabytes_and_in_nightly_of_more_than_a_hundred(tmp_path):
    size = by_tier(24, 101) << 20
    row = {"label": np.uint8(1), "scan": np.arange(size, dtype=np.uint8), "video": bytes(size)}
    tt.write_table(f"{tmp_path}/huge", [row])
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/huge"))
    assert_rows_equal(loader.get_row(0), row)
    np.testing.assert_array_equal(loader.get_many([0], "scan")["scan"], row["scan"][None])


def test_requirement_8_a_loader_serves_worker_processes(tables):
    root, rows = tables
    loader = tt.row_loader(tt.read_index(f"{root}/sensors"))
    loader.get_row(0)
    assert_rows_equal(pickle.loads(pickle.dumps(loader)).get_row(11), rows[11])


def test_requirement_9_a_sequence_of_frames_takes_one_request_per_group(tables):
    root, _ = tables
    cost = tt.row_loader(tt.read_index(f"{root}/sensors")).explain(["lidar.points"], offsets=range(-10, 0))
    assert cost.requests == 1
    assert cost.bytes == pytest.approx(
        10 * tt.row_loader(tt.read_index(f"{root}/sensors")).explain(["lidar.points"]).bytes, rel=0.2
    )


@pytest.fixture
def reads(monkeypatch):
    """The (offset, bytes) of each read that the kernel is asked for."""
    found = []

    def recording(fd, buffers, offset, _preadv=files.preadv):
        found.append((offset, sum(len(buffer) for buffer in buffers)))
        return _preadv(fd, buffers, offset)

    def recording_bytes(fd, length, offset, _pread=files.pread):
        found.append((offset, length))
        return _pread(fd, length, offset)

    monkeypatch.setattr(files, "preadv", recording)
    monkeypatch.setattr(range_reader, "preadv", recording)
    monkeypatch.setattr(files, "pread", recording_bytes)
    return found


def test_requirement_9_holds_for_the_reads_that_are_made(tables, reads):
    root, _ = tables
    index = tt.read_index(f"{root}/sensors")
    loader = tt.row_loader(index)
    merged = tt.merge(index, tt.read_index(f"{root}/labels_v2"), on=["log_id", "timestamp"])
    for chosen, columns, requests in (
        (loader, ["camera.front"], 1),
        (loader, ["camera.*", "lidar.pose", "speed"], 2),  # the small columns lie together
        (tt.row_loader(index[index.pedestrians_count > 3]), ["camera.front"], 1),
        (tt.row_loader(merged), ["camera.front", "labels.count"], 2),
    ):
        for position in (12, 15):
            reads.clear()
            found = chosen.get_rows(position, columns, range(-5, 0), on_edge="drop")
            assert len(found) == 5
            assert len(reads) == requests, columns


def test_a_batch_is_a_few_large_reads_however_its_rows_are_ordered(tables, reads):
    root, rows = tables
    loader = tt.row_loader(tt.read_index(f"{root}/sensors"))
    positions = np.random.default_rng(0).permutation(len(rows))
    batch = loader.get_many(positions, ["camera.front", "speed"])
    assert batch["camera.front"] == [rows[position]["camera.front"] for position in positions]
    assert len(reads) == 2
    reads.clear()
    windows, _ = loader.get_window_many(range(10, 20), ["camera.front"], range(-4, 1))
    assert windows["camera.front"] == [
        [row["camera.front"] for row in rows[position - 4 : position + 1]] for position in range(10, 20)
    ]
    assert len(reads) == 1  # each row stands in up to five windows


def test_merging_again_and_nested_keeps_every_table_readable(tables):
    root, rows = tables
    tt.write_table(
        f"{root}/quality", [{k: row[k] for k in ("log_id", "timestamp")} | {"good": True} for row in rows]
    )
    sensors, lab, quality = (tt.read_index(f"{root}/{name}") for name in ("sensors", "labels_v2", "quality"))
    on = ["log_id", "timestamp"]
    for merged in (
        tt.merge(tt.merge(sensors, lab, on=on), quality, on=on),
        tt.merge(sensors, tt.merge(lab, quality, on=on), on=on),
    ):
        row = tt.row_loader(merged.sample(frac=1, random_state=0)).get_row(
            0, ["labels.count", "good", "speed"]
        )
        number = int(row["labels.count"])
        assert row["good"]
        assert row["speed"] == rows[number]["speed"]


def test_the_frame_may_be_filtered_sorted_copied_concatenated_and_pickled(tables):
    root, rows = tables
    index = tt.read_index(f"{root}/sensors")
    assert not index.attrs
    changed = pd.concat([index[index.speed > 0.5], index[index.speed <= 0.5]]).sort_values("speed").copy()
    changed = pickle.loads(pickle.dumps(changed)).reset_index()
    by_speed = sorted(rows, key=lambda row: row["speed"])
    for found, wanted in zip(tt.row_loader(changed), by_speed, strict=True):
        assert_rows_equal(found, wanted)
