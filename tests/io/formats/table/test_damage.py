"""Damaged tables: each clear in what, where and why; never a wrong value."""

import contextlib
import errno
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.io.formats.table as tt
from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.formats.table.read import large_chunks, range_reader
from logloom.io.storage import files
from tests.io.formats.table.making import assert_rows_equal, drive


@pytest.fixture
def table(tmp_path):
    rows = drive(num_logs=2, rows=8)
    tt.write_table(f"{tmp_path}/t", rows, index="speed")
    return tmp_path / "t", rows


def blob(root, group):
    (path,) = root.glob(f"parts/*/{group}.blob")
    path.chmod(0o644)
    return path


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_flipped_byte_is_found_by_verify_and_by_reading_with_check(table):
    root, rows = table
    index = tt.read_index(str(root))
    group = "small-columns"
    place = int(index[f"__0.{group}.offset"][11]) + 5
    flip(blob(root, group), place)
    (line,) = tt.verify(str(root))
    assert line.startswith(f"{root}: part 000000-")
    assert (
        "group small-columns (lidar.pose, ego.position, speed, pedestrians_count), row 3 of log drive-1"
        in line
    )
    assert "don't match their hash" in line
    loader = tt.row_loader(index, check=True)
    assert_rows_equal(loader.get_row(10), rows[10])
    words = r"part 000000-.*group small-columns .*row 3 of log drive-1.*don't match their hash"
    for read in (
        lambda: loader.get_row(11, "speed"),
        lambda: loader.get_rows(12, "speed", range(-2, 1)),
        lambda: loader.get_many([2, 11], "speed"),
        lambda: loader.get_window_many([12], "speed", [-1]),
    ):
        with pytest.raises(DatasetError, match=words):
            read()
    assert loader.get_row(11, "lidar.points")["lidar.points"].shape == rows[11]["lidar.points"].shape


def test_a_blob_cut_short_names_table_part_columns_and_row(table):
    root, rows = table
    path = blob(root, "camera.front")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size - 200])
    loader = tt.row_loader(tt.read_index(str(root)))
    assert_rows_equal(loader.get_row(0), rows[0])
    words = r"/t: part 000000-.*camera\.front.*row 7 of log drive-1.*cut short: bytes \d+ to \d+ are needed"
    for read in (
        lambda: loader.get_row(15),
        lambda: loader.get_rows(15, offsets=range(1)),
        lambda: loader.get_many([0, 15]),
    ):
        with pytest.raises(DatasetError, match=words):
            read()
    assert len(tt.verify(str(root))) in (2, 3)


@pytest.mark.parametrize("least", [0, 1 << 30])
def test_a_disk_that_fails_under_a_table_is_a_fault_of_the_storage_and_no_damage(table, monkeypatch, least):
    monkeypatch.setattr(large_chunks, "LARGE_BYTES", least)
    root, rows = table
    loader = tt.row_loader(tt.read_index(str(root)))

    def fail(*how):
        raise OSError(errno.EIO, "Input/output error")

    reads = (
        lambda: loader.get_row(3),
        lambda: loader.get_rows(3, offsets=range(2)),
        lambda: loader.get_many([3, 12]),
        lambda: loader.get_many([3, 12], "camera.front"),
    )
    with monkeypatch.context() as patch:
        for module, name in (
            (files, "pread"),
            (files, "preadv"),
            (large_chunks, "pread"),
            (range_reader, "preadv"),
        ):
            patch.setattr(module, name, fail)
        for read in reads:
            with pytest.raises(StorageError, match=r"\.blob: Input/output error"):
                read()
    assert_rows_equal(loader.get_row(3), rows[3])


def test_a_missing_blob_is_named_and_other_columns_still_read(table):
    root, rows = table
    loader = tt.row_loader(tt.read_index(str(root)))
    blob(root, "lidar.points").unlink()
    with pytest.raises(
        DatasetError, match=r"row 0 of log drive-0.*lidar\.points\.blob: there is no such file"
    ):
        loader.get_row(0)
    with pytest.raises(DatasetError, match="there is no such file"):
        loader.get_many([0, 3])
    assert_rows_equal(loader.get_row(0, ["camera.*", "speed"]), rows[0])
    assert len(tt.verify(str(root))) == 16


def test_an_index_row_that_points_into_nowhere_is_an_error_not_an_allocation(table):
    root, _ = table
    index = tt.read_index(str(root))
    for field, value in (
        ("offset", 2**62),
        ("offset", -8),
        ("length", 2**62),
        ("length", -1),
        ("length", 2**63 - 1),
    ):
        wild = index.copy()
        wild.loc[2, f"__0.camera.front.{field}"] = value
        loader = tt.row_loader(wild)
        for read in (
            lambda loader=loader: loader.get_row(2),
            lambda loader=loader: loader.get_rows(3, offsets=[-1]),
            lambda loader=loader: loader.get_many([2, 3]),
        ):
            with pytest.raises(DatasetError, match="cut short"):
                read()


def test_a_missing_index_file_and_a_wrong_count_are_named(table):
    root, _ = table
    file = root / "index/drive-1.parquet"
    data = file.read_bytes()
    file.unlink()
    with pytest.raises(DatasetError, match=r"drive-1\.parquet: this index file is missing"):
        tt.read_index(str(root))
    assert any("drive-1.parquet" in line for line in tt.verify(str(root)))
    file.write_bytes(data[:-30])
    with pytest.raises(DatasetError, match=r"drive-1\.parquet: this index file is damaged"):
        tt.read_index(str(root))
    file.write_bytes((root / "index/drive-0.parquet").read_bytes())
    described = json.loads((root / "table.json").read_text())
    described["logs"][1][2] = 9
    (root / "table.json").chmod(0o644)
    (root / "table.json").write_text(json.dumps(described))
    with pytest.raises(DatasetError, match=r"drive-1\.parquet: 8 rows, table\.json has 9"):
        tt.read_index(str(root))


def test_a_pattern_that_matches_nothing_says_what_there_is(table):
    loader = tt.row_loader(tt.read_index(str(table[0])))
    with pytest.raises(
        UsageError, match=r"^.*/t: no column matches 'radra\.\*'; did you mean radar\.returns\?"
    ):
        loader.get_row(0, ["lidar.*", "radra.*"])
    with pytest.raises(UsageError, match="no column matches"):
        tt.row_loader(tt.read_index(str(table[0])), "nothing")


@given(data=st.data())
def test_any_flipped_byte_of_a_blob_is_found(data, tmp_path_factory):
    root = tmp_path_factory.mktemp("flip") / "t"
    tt.write_table(
        str(root),
        drive(num_logs=1, rows=3),
        groups={"all": ".*"},
        compress=data.draw(st.sampled_from([None, "lz4", "zstd"])),
    )
    path = blob(root, "all")
    flip(path, data.draw(st.integers(0, path.stat().st_size - 1)))
    assert len(tt.verify(str(root))) == 1
    loader = tt.row_loader(tt.read_index(str(root)))
    for position in range(3):  # without check: a value or an error, never a crash
        with contextlib.suppress(DatasetError):
            loader.get_row(position)


@given(data=st.data())
def test_any_damage_to_an_index_file_is_an_error_or_found_by_verify(data, tmp_path_factory):
    root = tmp_path_factory.mktemp("flip") / "t"
    tt.write_table(str(root), drive(num_logs=1, rows=3), index="speed")
    path = root / "index/drive-0.parquet"
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.chmod(0o644)
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), place]))])
    with contextlib.suppress(DatasetError):
        for _ in tt.row_loader(tt.read_index(str(root))):
            pass
    damage = tt.verify(str(root))
    assert any("drive-0.parquet" in line for line in damage)


def test_rows_that_point_beyond_the_texts_of_their_column_are_damage(tmp_path):
    tt.write_table(str(tmp_path / "t"), drive(num_logs=1, rows=3), index="speed")
    path = tmp_path / "t/index/drive-0.parquet"
    whole = path.read_bytes()
    path.chmod(0o644)
    said = set()
    for place in range(380, 460):  # the header of a page, in which a dictionary becomes empty
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])
        try:
            tt.read_index(str(tmp_path / "t"))
        except DatasetError as error:
            said.add("out of bounds" in str(error))
    assert True in said


def test_errors_survive_pickling():
    import pickle

    error = tt.RowPositionError("position 3 of 2 rows")
    assert pickle.loads(pickle.dumps(error)).args == error.args
    assert isinstance(error, IndexError)


def test_an_index_without_a_key_of_the_rows_is_refused(table):
    root, _ = table
    described = json.loads((root / "table.json").read_text())
    del described["index"]["timestamp"]
    (root / "table.json").chmod(0o644)
    (root / "table.json").write_text(json.dumps(described))
    with pytest.raises(DatasetError, match=r"table\.json: damaged: the index has no timestamp"):
        tt.read_index(str(root))
