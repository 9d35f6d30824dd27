"""Batches: the same values as row by row, stacked."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.io.formats.table as tt
from logloom.errors import DatasetError, UsageError
from logloom.schema import ColumnType, Schema
from tests.io.formats.table.making import ALL_TYPES, assert_rows_equal, drive, typed_row


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = [{"log_id": f"l{n // 10}", "timestamp": n, **typed_row(rng)} for n in range(30)]
    root = tmp_path_factory.mktemp("typed")
    tt.write_table(f"{root}/plain", rows, types=ALL_TYPES)
    tt.write_table(f"{root}/packed", rows, types=ALL_TYPES, compress="zstd")
    tt.write_table(f"{root}/grouped", rows, types=ALL_TYPES, groups={"all": ".*"}, compress={"all": "lz4"})
    return root, rows


@pytest.mark.parametrize("name", ["plain", "packed", "grouped"])
def test_every_type_comes_back_from_every_kind_of_group(typed, name):
    root, rows = typed
    loader = tt.row_loader(tt.read_index(f"{root}/{name}"))
    for position in (0, 29, 13):
        row = loader.get_row(position)
        assert set(row) == set(rows[position])
        assert_rows_equal(row, rows[position])
        for column, ctype in ALL_TYPES.columns.items():
            if ctype.kind == "array":
                assert row[column].dtype == ctype.dtype, column
    assert loader.schema.columns["vector"].unit == "m"
    assert loader.schema.columns["vector"].description == "where it is"


@given(st.sampled_from(["plain", "packed", "grouped"]), st.lists(st.integers(0, 29), min_size=1, max_size=12))
def test_a_batch_holds_what_its_rows_hold(typed, name, positions):
    root, rows = typed
    batch = tt.row_loader(tt.read_index(f"{root}/{name}"), check=True).get_many(positions)
    wanted = [rows[position] for position in positions]
    assert batch["log_id"] == [row["log_id"] for row in wanted]
    for column, ctype in ALL_TYPES.columns.items():
        values = [row[column] for row in wanted]
        found = batch[column]
        if ctype.kind != "array":
            assert found == values
        elif not ctype.is_ragged:
            assert found.dtype == ctype.dtype
            np.testing.assert_array_equal(found, np.stack(values))
        else:
            data, lengths = found
            shapes = np.array([value.shape[: ctype.num_ragged] for value in values])
            np.testing.assert_array_equal(lengths.reshape(shapes.shape), shapes)
            np.testing.assert_array_equal(data, np.concatenate([v.reshape(-1, *ctype.tail) for v in values]))


def test_batches_fill_the_arrays_they_are_given(tmp_path):
    rows = [
        {"image": np.full((20, 30), n, np.float64), "r": np.arange(n, dtype=np.int32), "x": n}
        for n in range(8)
    ]
    tt.write_table(f"{tmp_path}/t", rows)
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"))
    out = {"image": np.empty((3, 20, 30)), "r": np.empty(100, np.int32), "x": np.empty(3, np.int64)}
    batch = loader.get_many([7, 2, 5], out=out)
    assert batch["image"] is out["image"]
    assert np.shares_memory(batch["r"][0], out["r"])
    assert out["image"][:, 0, 0].tolist() == [7, 2, 5]
    assert out["x"].tolist() == [7, 2, 5]
    assert batch["r"][0].tolist() == [*range(7), *range(2), *range(5)]
    with pytest.raises(UsageError, match=r"out\['image'\] is float32"):
        loader.get_many([1, 2, 3], out={"image": np.empty((3, 20, 30), np.float32)})
    with pytest.raises(UsageError, match="needs int32 of at least"):
        loader.get_many([7, 7], out={"r": np.empty(13, np.int32)})


def test_large_batches_read_in_threads_hold_the_same_values(tmp_path):
    rng = np.random.default_rng(0)
    rows = [{"a": rng.random((200, 100)), "b": rng.bytes(int(rng.integers(10**5)))} for _ in range(40)]
    tt.write_table(f"{tmp_path}/t", rows)
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"), threads=4)
    positions = rng.integers(0, 40, 64)
    batch = loader.get_many(positions)
    np.testing.assert_array_equal(batch["a"], np.stack([rows[p]["a"] for p in positions]))
    assert batch["b"] == [rows[p]["b"] for p in positions]


def test_large_bytes_are_read_straight_and_checked(tmp_path):
    rows = [{"jpeg": bytes([n]) * size} for n, size in enumerate((70_001, 70_000, 5, 70_007))]
    tt.write_table(f"{tmp_path}/t", rows)
    index = tt.read_index(f"{tmp_path}/t")
    loader = tt.row_loader(index)
    assert [row["jpeg"] for row in loader] == [row["jpeg"] for row in rows]
    for positions in ([3, 0, 1, 0], [2, 3]):
        assert loader.get_many(positions)["jpeg"] == [rows[position]["jpeg"] for position in positions]
    (blob,) = (tmp_path / "t").glob("parts/*/jpeg.blob")
    blob.chmod(0o644)
    data = bytearray(blob.read_bytes())
    data[:8] = (80_000).to_bytes(8, "little")
    blob.write_bytes(data)
    for read in (lambda: loader.get_row(0), lambda: loader.get_many([3, 0]), lambda: loader.get_many([2, 0])):
        with pytest.raises(DatasetError, match=r"row 0 .*too short for jpeg"):
            read()
    assert loader.get_many([2, 1])["jpeg"] == [rows[2]["jpeg"], rows[1]["jpeg"]]
    assert loader.get_row(1) == rows[1]


def test_torch_style_batches_of_rows(typed):
    root, rows = typed
    loader = tt.row_loader(tt.read_index(f"{root}/plain"), ["vector", "points"])
    for row, position in zip(loader.__getitems__([3, 1]), (3, 1), strict=True):
        assert set(row) == {"log_id", "timestamp", "vector", "points"}
        assert_rows_equal(row, rows[position])


def test_negative_positions_count_from_the_end_as_in_sequences(typed):
    loader = tt.row_loader(tt.read_index(f"{typed[0]}/plain"))
    for negative in (-1, -30, np.int64(-7)):
        position = int(negative) + 30
        np.testing.assert_equal(loader.get_row(negative), loader.get_row(position))
        np.testing.assert_equal(loader[negative], loader[position])
        np.testing.assert_equal(loader.__getitems__([negative]), [loader[position]])
        np.testing.assert_equal(loader.get_many([negative, 3]), loader.get_many([position, 3]))
        for window in (range(-2, 1), [1]):
            both = [loader.get_rows(p, "vector", window, on_edge="pad") for p in (negative, position)]
            np.testing.assert_equal(*both)
            both = [
                loader.get_window_many([p], "vector", window, on_edge="pad") for p in (negative, position)
            ]
            np.testing.assert_equal(*both)


def test_empty_and_wild_positions_are_refused(typed):
    loader = tt.row_loader(tt.read_index(f"{typed[0]}/plain"))
    with pytest.raises(UsageError, match="an empty batch"):
        loader.get_many([])
    for wild in (-31, 30, 10**12, 2**63 + 1):
        with pytest.raises(IndexError, match=f"position {wild} of 30 rows"):
            loader.get_many([wild])
        with pytest.raises(IndexError, match=f"position {wild} of 30 rows"):
            loader.get_many([0, wild] if wild < 2**63 else np.array([0, wild], np.uint64))
        with pytest.raises(tt.RowPositionError, match=f"position {wild} of 30 rows"):
            loader.get_row(wild)
        with pytest.raises(tt.RowPositionError):
            loader.get_rows(wild)


def test_rows_of_tables_of_one_kind_can_be_mixed_in_a_frame(tmp_path):
    first, second = drive(num_logs=1, rows=5), drive(num_logs=1, rows=5, seed=1)
    second = [{k: v for k, v in row.items() if k != "camera.front"} | {"extra": 1.0} for row in second]
    tt.write_table(f"{tmp_path}/a", first, index="speed")
    tt.write_table(f"{tmp_path}/b", second)
    frame = pd.concat([tt.read_index(f"{tmp_path}/{name}") for name in "ab"])
    loader = tt.row_loader(frame.iloc[::-1])
    for position, wanted in enumerate([*first, *second][::-1]):
        assert_rows_equal(loader.get_row(position, ["lidar.*", "speed"]), wanted)
    assert loader.get_row(0, "extra")["extra"] == 1.0
    with pytest.raises(UsageError, match=r"some rows .*/a.* no column 'extra'"):
        loader.get_row(9, "extra")
    assert len(loader.get_rows(9, "speed", range(5))) == 5
    with pytest.raises(UsageError, match=r"a batch of rows of .*/a and .*/b, whose columns differ"):
        loader.get_many([0, 9], "speed")


def test_a_column_of_two_types_is_refused_with_both_tables(tmp_path):
    for name, value in [("a", np.float64(1)), ("b", np.int64(1))]:
        tt.write_table(f"{tmp_path}/{name}", [{"log_id": name, "timestamp": 0, "x": value}])
    with pytest.raises(UsageError, match=rf"column x is float64 in {tmp_path}/a, int64 in {tmp_path}/b; use"):
        tt.row_loader(pd.concat([tt.read_index(f"{tmp_path}/{name}") for name in "ab"]))


@pytest.mark.parametrize("compress", [None, "zstd"])
def test_a_batch_takes_rows_of_several_tables_that_store_them_alike(tmp_path, compress):
    rows = [drive(num_logs=2, rows=8, seed=seed) for seed in range(3)]
    rows[1][3]["camera.front"] = bytes(5000)  # of unlike sizes, too
    for number, own in enumerate(rows):
        own = [row | {"log_id": f"{row['log_id']}-{number}"} for row in own]
        tt.write_table(f"{tmp_path}/{number}", own, index="speed", compress=compress, max_gap=1)
        rows[number] = own
    frame = pd.concat([tt.read_index(f"{tmp_path}/{number}") for number in range(3)])
    order = np.random.default_rng(0).permutation(len(frame))
    wanted = [[*rows[0], *rows[1], *rows[2]][number] for number in order]
    loader = pickle.loads(pickle.dumps(tt.row_loader(frame.iloc[order], check=True)))
    columns = ["camera.front", "lidar.*", "speed", "weather", "ego.position"]
    batch = loader.get_many(np.arange(len(order)), columns)
    assert batch["camera.front"] == [row["camera.front"] for row in wanted]
    assert batch["weather"] == [row["weather"] for row in wanted]
    np.testing.assert_array_equal(batch["timestamp"], [row["timestamp"] for row in wanted])
    np.testing.assert_array_equal(batch["ego.position"], [row["ego.position"] for row in wanted])
    points, lengths = batch["lidar.points"]
    np.testing.assert_array_equal(lengths, [len(row["lidar.points"]) for row in wanted])
    np.testing.assert_array_equal(points, np.concatenate([row["lidar.points"] for row in wanted]))
    positions = [number for number in range(len(order)) if order[number] % 8 >= 2]
    windows, mask = loader.get_window_many(positions, "speed", range(-2, 1))
    assert mask.all()
    for number, position in enumerate(positions):
        expected = [row["speed"] for row in loader.get_rows(position, "speed", range(-2, 1))]
        np.testing.assert_array_equal(windows["speed"][number], expected)


def test_damage_in_a_batch_of_several_tables_names_the_right_one(tmp_path):
    rows = drive(num_logs=1, rows=4)
    for name in "ab":
        tt.write_table(f"{tmp_path}/{name}", rows)
    (blob,) = tmp_path.glob("b/parts/*/camera.front.blob")
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:20])
    loader = tt.row_loader(pd.concat([tt.read_index(f"{tmp_path}/{name}") for name in "ab"]))
    with pytest.raises(DatasetError, match=rf"^{tmp_path}/b: part .*row 1 of log drive-0.*cut short"):
        loader.get_many([1, 5])


def test_tables_in_other_groups_make_no_batch(tmp_path):
    rows = drive(num_logs=1, rows=4)
    tt.write_table(f"{tmp_path}/a", rows)
    tt.write_table(f"{tmp_path}/b", rows, groups={"frame": ["camera.*", "lidar.*"]})
    loader = tt.row_loader(pd.concat([tt.read_index(f"{tmp_path}/{name}") for name in "ab"]))
    with pytest.raises(UsageError, match=r"/a and .*/b, whose column groups differ: .*a row at a time"):
        loader.get_many([1, 5])
    assert_rows_equal(loader.get_row(5), rows[1])


@pytest.mark.parametrize("positions", [[True, False, True], [0.0, 1.5], ["0", "1"], np.array([1], "<M8[ns]")])
def test_a_mask_is_not_taken_for_positions(typed, positions):
    loader = tt.row_loader(tt.read_index(f"{typed[0]}/plain"))
    for read in (loader.get_many, lambda p: loader.get_window_many(p, offsets=[0])):
        with pytest.raises(UsageError, match=r"positions are whole numbers, not .*np\.flatnonzero\(mask\)"):
            read(positions)


def test_timestamps_fill_their_array_and_arrays_of_unread_columns_are_refused(typed):
    loader = tt.row_loader(tt.read_index(f"{typed[0]}/plain"))
    stamps = np.empty(3, np.int64)
    batch = loader.get_many([4, 1, 4], "vector", out={"timestamp": stamps})
    assert batch["timestamp"] is stamps
    assert stamps.tolist() == [typed[1][n]["timestamp"] for n in (4, 1, 4)]
    with pytest.raises(UsageError, match=r"out\['timestamp'\] is int64\[3\], this batch needs int64\[2\]"):
        loader.get_many([4, 1], "vector", out={"timestamp": stamps})
    with pytest.raises(
        UsageError, match="out has 'points', which isn't read; read are log_id, timestamp, vector"
    ):
        loader.get_many([4, 1], "vector", out={"points": np.empty((9, 4), np.float32)})
    for name, shape in (("vector", (2, 3)), ("points", (99, 4))):
        array = np.empty(shape, np.float32)
        array.flags.writeable = False
        with pytest.raises(UsageError, match=rf"out\['{name}'\] is read-only"):
            loader.get_many([4, 1], name, out={name: array})


@pytest.mark.parametrize("length", [5, 1 << 50, 1 << 62, (1 << 64) - 1])
def test_a_batch_finds_lengths_that_do_not_fit_their_chunk(tmp_path, length):
    rows = [{"a": n, "flat": np.zeros((2, 0, n), "<f4"), "points": np.ones((4, 3)) * n} for n in (1, 2, 3)]
    types = Schema(
        {
            "a": ColumnType(np.dtype("<i8")),
            "flat": ColumnType(np.dtype("<f4"), (None, None, None)),
            "points": ColumnType(np.dtype("<f8"), (None, 3)),
        }
    )
    tt.write_table(f"{tmp_path}/t", rows, types=types, groups={"all": ".*"})
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"))
    assert loader.get_many([2, 0])["flat"][1].tolist() == [[2, 0, 3], [2, 0, 1]]
    (blob,) = (tmp_path / "t").rglob("all.blob")
    chunks = bytearray(blob.read_bytes())
    chunks[32:40] = length.to_bytes(8, "little")  # of the points, after a and flat's three lengths
    blob.chmod(0o644)
    blob.write_bytes(chunks)
    with pytest.raises(
        DatasetError, match=r"group all .*row 0 .*too short for points \(\d+,\): \d+ at byte 40"
    ):
        loader.get_many([1, 0])
    chunks[8:16] = length.to_bytes(8, "little")  # beside a length of 0
    blob.write_bytes(chunks)
    with pytest.raises(DatasetError, match="row 0"):
        loader.get_many([1, 0], ["a", "flat"] if length > 5 else None)
