"""Writing: the same bytes each time, nothing twice, nothing half."""

import errno
import hashlib
import itertools
import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest

import logloom.io.formats.table as tt
from logloom.blocks import Block
from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.formats.table.description import KEYS, read_description
from logloom.io.formats.table.write.part_writer import make_plan
from logloom.io.formats.table.write.user_rows import open_rows
from logloom.schema import NO_AGE, ColumnType, Schema
from tests.io.formats.table.making import ALL_TYPES, assert_rows_equal, drive, typed_row


def files(root):
    """Every file under a table to its content's digest, notes of referencing tables aside."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "referenced-by" not in path.parts
    }


def payload(root):
    return sum(path.stat().st_size for path in root.rglob("*.blob"))


def test_the_same_rows_give_the_same_bytes(tmp_path):
    rows = drive(num_logs=2)
    for name, threads in (("a", 1), ("b", 4)):
        tt.write_table(
            f"{tmp_path}/{name}", rows, index="speed", compress={"lidar.points": "zstd"}, threads=threads
        )
    assert files(tmp_path / "a") == files(tmp_path / "b")
    index = tt.read_index(f"{tmp_path}/a")
    assert index["speed"].tolist() == [row["speed"] for row in rows]
    assert_rows_equal(tt.row_loader(index).get_row(1), rows[1])
    assert tt.verify(f"{tmp_path}/a") == []


def test_parts_written_in_any_order_give_the_same_table(tmp_path):
    rows = drive(num_logs=3, rows=10)
    types = tt.infer_types(rows)
    options = {"index": ["speed"], "groups": {"lidar": "lidar.*"}}
    pieces = [rows[start : start + 7] for start in range(0, len(rows), 7)]
    for name, order in (("a", range(len(pieces))), ("b", reversed(range(len(pieces))))):
        entries = [
            tt.write_part(f"{tmp_path}/{name}", pieces[number], f"{number:03}", types, **options)
            for number in order
        ]
        tt.commit_table(f"{tmp_path}/{name}", entries, types, **options)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    for found, wanted in zip(tt.row_loader(tt.read_index(f"{tmp_path}/a")), rows, strict=True):
        assert_rows_equal(found, wanted)


def test_the_files_are_an_index_per_log_and_a_blob_per_group(tmp_path):
    tt.write_table(f"{tmp_path}/t", drive(num_logs=2))
    names = [name for name in files(tmp_path / "t") if not name.startswith("parts")]
    assert names == ["index/drive-0.parquet", "index/drive-1.parquet", "table.json"]
    blobs = {path.name for path in (tmp_path / "t").rglob("parts/*/*")}
    assert blobs == {f"{g}.blob" for g in read_description(f"{tmp_path}/t").groups}


def test_blocks_give_the_same_bytes_however_they_are_cut(tmp_path):
    rng = np.random.default_rng(0)
    rows = [{"log_id": "a", "timestamp": n, **typed_row(rng)} for n in range(12)]

    def blocks(cuts):
        for start, stop in itertools.pairwise(cuts):
            (batch,) = open_rows(rows[start:stop], ALL_TYPES)[2]
            yield Block("a", "p", start, batch.columns)

    tt.write_table(f"{tmp_path}/one", blocks([0, 12]), types=ALL_TYPES)
    tt.write_table(f"{tmp_path}/many", blocks([0, 1, 5, 12]), types=ALL_TYPES)
    assert files(tmp_path / "one") == files(tmp_path / "many")
    for found, wanted in zip(tt.row_loader(tt.read_index(f"{tmp_path}/many")), rows, strict=True):
        assert_rows_equal(found, wanted)


def test_a_data_frame_becomes_a_table(tmp_path):
    frame = pd.DataFrame(
        {
            "log_id": ["b", "a", "b"],
            "timestamp": [3, 1, 2],
            "small": np.array([1, 2, 3], np.uint8),
            "ratio": np.array([0.5, 1, 2], np.float32),
            "ok": [True, False, True],
            "text": ["x", "yy", ""],
            "jpeg": [b"1", b"", b"333"],
            "boxes": [np.zeros((n, 4)) for n in range(3)],
        }
    )
    tt.write_table(f"{tmp_path}/t", frame, index=["small", "ok", "text"])
    index = tt.read_index(f"{tmp_path}/t")
    assert index[["log_id", "timestamp", "text"]].values.tolist() == [
        ["b", 2, ""],
        ["b", 3, "x"],
        ["a", 1, "yy"],
    ]
    assert (index.small.dtype, index.ok.dtype) == (np.uint8, bool)
    row = tt.row_loader(index).get_row(1)
    assert_rows_equal(row, frame.iloc[0].to_dict())
    assert (row["small"].dtype, row["ratio"].dtype, row["boxes"].dtype) == (np.uint8, np.float32, np.float64)


def test_what_an_interrupted_write_left_is_not_mistaken_for_the_table(tmp_path):
    rows = drive(num_logs=1)

    def breaking():
        yield from rows[:10]
        raise KeyboardInterrupt

    for interrupted in (breaking(), iter(rows[:0])):
        with pytest.raises((KeyboardInterrupt, UsageError)):
            tt.write_table(f"{tmp_path}/t", interrupted)
        with pytest.raises(DatasetError, match="no table here"):
            tt.read_index(f"{tmp_path}/t")
    types = tt.infer_types(rows)
    tt.write_part(f"{tmp_path}/t", rows[:3], "000000", types)  # published, never committed
    tt.write_table(f"{tmp_path}/t", rows)
    assert len(tt.read_index(f"{tmp_path}/t")) == len(rows)
    assert tt.verify(f"{tmp_path}/t") == []


def test_parts_that_were_never_committed_leave_nothing_in_the_table_that_is_written_later(tmp_path):
    rows = drive(num_logs=1)
    tt.write_table(f"{tmp_path}/a", rows)
    tt.write_part(f"{tmp_path}/b", rows, "000000", tt.infer_types(rows))  # of the same name and content
    tt.write_table(f"{tmp_path}/b", rows)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_all_of_a_table_is_on_the_disk_before_its_description_appears(tmp_path, monkeypatch):
    synced = set()
    fsync = os.fsync

    def noting(descriptor):
        fsync(descriptor)
        if not (tmp_path / "t/table.json").exists():
            synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr("logloom.io.formats.table.write.write.PART_ROWS", 10)
    tt.write_table(f"{tmp_path}/t", drive(num_logs=2))
    made = [path for path in (tmp_path / "t").rglob("*") if path.stat().st_ino not in synced]
    assert len(list((tmp_path / "t/parts").iterdir())) > 1
    assert made == []


def test_a_part_that_can_not_be_published_makes_no_table(tmp_path):
    rows = drive(num_logs=1)
    (tmp_path / "t").mkdir()
    (tmp_path / "t/parts").touch()  # so no folder can lie in it
    with pytest.raises(StorageError, match="parts"):
        tt.write_table(f"{tmp_path}/t", rows)
    assert not (tmp_path / "t/table.json").exists()


@pytest.mark.parametrize("refused", [1, 3])
def test_a_disk_that_fails_while_more_is_written_is_told(tmp_path, monkeypatch, refused):
    calls = itertools.count(1)

    def fdatasync(_):
        if next(calls) == refused:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr("logloom.io.formats.table.blobs._SYNC", 1)
    with pytest.raises(StorageError, match=r"image\.blob: .*Input/output error"):
        tt.write_table(f"{tmp_path}/t", ({"log_id": f"{n}", "image": b"%d" % n} for n in range(50)))
    assert not (tmp_path / "t/table.json").exists()


def test_a_chunk_that_repeats_is_stored_once(tmp_path):
    static = np.random.default_rng(0).random((50, 50))
    rows = [{"log_id": f"l{n // 50}", "timestamp": n, "map": static, "n": n % 2} for n in range(100)]
    tt.write_table(f"{tmp_path}/t", rows)
    assert payload(tmp_path / "t") == static.nbytes + 2 * 8
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"))
    assert all((row["map"] == static).all() for row in loader.get_rows(20, "map", range(-10, 10)))
    assert (loader.get_many([3, 99, 3], "map")["map"] == static).all()


def test_a_later_table_stores_only_what_is_new(tmp_path):
    rng = np.random.default_rng(0)
    rows = [{"log_id": "a", "timestamp": n, "image": rng.bytes(10_000), "x": n} for n in range(200)]
    tt.write_table(f"{tmp_path}/v1", rows)
    changed = [row | ({"image": rng.bytes(10_000)} if n in (17, 93) else {}) for n, row in enumerate(rows)]
    tt.write_table(f"{tmp_path}/v2", changed, reference=f"{tmp_path}/v1")
    assert payload(tmp_path / "v2") <= 0.02 * payload(tmp_path / "v1")
    for found, wanted in zip(
        tt.row_loader(tt.read_index(f"{tmp_path}/v2"), check=True), changed, strict=True
    ):
        assert_rows_equal(found, wanted)
    assert tt.verify(f"{tmp_path}/v2") == []


def test_a_new_column_group_leaves_the_others_untouched(tmp_path):
    rows = drive(num_logs=1)
    tt.write_table(f"{tmp_path}/v1", rows)
    before = files(tmp_path / "v1")
    tt.write_table(f"{tmp_path}/v2", [row | {"mask": b"m" * 99} for row in rows], reference=f"{tmp_path}/v1")
    assert files(tmp_path / "v1") == before
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "v2").rglob("*.blob")}
    assert {name for name, size in sizes.items() if size} == {"mask.blob"}


def test_chunks_are_found_in_several_tables_the_first_named_winning(tmp_path):
    rows = drive(num_logs=1)
    tt.write_table(f"{tmp_path}/front", [{k: row[k] for k in (*KEYS, "camera.front")} for row in rows])
    tt.write_table(f"{tmp_path}/lidar", [{k: row[k] for k in (*KEYS, "lidar.points")} for row in rows])
    tt.write_table(f"{tmp_path}/both", rows, reference=[f"{tmp_path}/lidar", f"{tmp_path}/front"])
    stored = {path.name: path.stat().st_size for path in (tmp_path / "both").rglob("*.blob")}
    assert stored["camera.front.blob"] == stored["lidar.points.blob"] == 0 < stored["radar.returns.blob"]
    index = tt.read_index(f"{tmp_path}/both")
    assert set(index["__0.lidar.points.blob"].unique()) == {str(next((tmp_path / "lidar").rglob("*.blob")))}
    for found, wanted in zip(tt.row_loader(index, check=True), rows, strict=True):
        assert_rows_equal(found, wanted)


def test_chains_of_references_point_at_the_table_that_holds_the_bytes(tmp_path):
    rows = drive(num_logs=1)
    tt.write_table(f"{tmp_path}/v1", rows)
    tt.write_table(f"{tmp_path}/v2", rows, reference=f"{tmp_path}/v1")
    tt.write_table(f"{tmp_path}/v3", rows, reference=[f"{tmp_path}/v2"])
    assert payload(tmp_path / "v3") == 0
    assert read_description(f"{tmp_path}/v3").references == (f"{tmp_path}/v2", f"{tmp_path}/v1")
    noted = [path.read_text() for path in (tmp_path / "v1/referenced-by").iterdir()]
    assert any("v3" in text for text in noted)
    shutil.rmtree(tmp_path / "v2")
    for found, wanted in zip(tt.row_loader(tt.read_index(f"{tmp_path}/v3")), rows, strict=True):
        assert_rows_equal(found, wanted)


def test_a_chain_of_references_that_lost_the_bytes_makes_no_table(tmp_path):
    rows = drive(num_logs=1, rows=3)
    tt.write_table(f"{tmp_path}/v1", rows)
    tt.write_table(f"{tmp_path}/v2", rows, reference=f"{tmp_path}/v1")
    shutil.rmtree(tmp_path / "v1")
    with pytest.raises(
        DatasetError, match=r"reference .*/v2 points into .*/v1, which is gone; bring it back"
    ):
        tt.write_table(f"{tmp_path}/v3", rows, reference=f"{tmp_path}/v2")
    assert not (tmp_path / "v3/table.json").exists()
    assert not (tmp_path / "v1").exists()


def test_structured_values_are_stored_without_the_gaps_of_aligned_fields(tmp_path):
    dtype = np.dtype([("a", "u1"), ("b", "f8")], align=True)
    values = np.array([(1, 2.0), (3, 4.0), (5, 6.0)], dtype)
    rows = [{"one": values[n], "two": values[n : n + 2], "many": values[: n + 1]} for n in range(2)]
    tt.write_table(f"{tmp_path}/t", rows)
    assert tt.verify(f"{tmp_path}/t") == []
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"))
    for row, wanted in zip(loader, rows, strict=True):
        for name in ("one", "two", "many"):
            assert row[name].tolist() == wanted[name].tolist()
            assert row[name].dtype.itemsize == 9
    batch = loader.get_many([1, 0])
    assert batch["two"].tolist() == [rows[1]["two"].tolist(), rows[0]["two"].tolist()]
    assert batch["many"][0].tolist() == [*rows[1]["many"].tolist(), *rows[0]["many"].tolist()]


def test_a_referenced_table_that_is_missing_names_itself_and_the_chunks(tmp_path):
    rows = drive(num_logs=1, rows=3)
    with pytest.raises(DatasetError, match=r"reference .*/v1: no table here.*nothing was written"):
        tt.write_table(f"{tmp_path}/v2", rows, reference=f"{tmp_path}/v1")
    tt.write_table(f"{tmp_path}/v1", rows)
    tt.write_table(f"{tmp_path}/v2", rows, reference=f"{tmp_path}/v1")
    shutil.rmtree(tmp_path / "v1")
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/v2"))
    with pytest.raises(
        DatasetError, match=r"v2: part .*lidar\.points.*row 1 of log drive-0.*v1/parts/.*no such file"
    ):
        loader.get_row(1, "lidar.points")
    damage = tt.verify(f"{tmp_path}/v2")
    assert len(damage) == 3 * len(read_description(f"{tmp_path}/v2").groups)
    assert all("/v1/parts/" in line and "no such file" in line for line in damage)


def test_a_referenced_table_that_may_only_be_read_is_used_with_a_warning(tmp_path):
    rows = drive(num_logs=1, rows=3)
    tt.write_table(f"{tmp_path}/v1", rows)
    (tmp_path / "v1/referenced-by").touch()  # no folder, so no note can be left in it
    with pytest.warns(UserWarning, match=r"v2 points into .*/v1, where no note"):
        tt.write_table(f"{tmp_path}/v2", rows, reference=f"{tmp_path}/v1")
    assert payload(tmp_path / "v2") == 0


def test_values_that_are_missing_are_told_by_available_and_age(tmp_path):
    rows = [
        {"log_id": "a", "timestamp": n, "x": n or None, "img": None if n == 2 else b"i", "n": n}
        for n in range(3)
    ]
    tt.write_table(f"{tmp_path}/t", rows)
    loader = tt.row_loader(tt.read_index(f"{tmp_path}/t"))
    found = [loader.get_row(n, ["x", "img", "*.available", "*.age"]) for n in range(3)]
    assert [bool(row["x.available"]) for row in found] == [False, True, True]
    assert [bool(row["img.available"]) for row in found] == [True, True, False]
    assert [int(row["x.age"]) for row in found] == [NO_AGE, 0, 0]
    assert (found[2]["img"], found[1]["x"]) == (b"", 1)
    assert "x.available" not in loader.get_row(0)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no rows, so no column types"),
        ([{"x": 1}, {"x": "a"}], "array and string in one column"),
        ([{"x": None}], "no row has a value"),
        ([{"x": object()}], "can't be stored"),
        ([{"x": np.zeros(2)}, {"x": np.zeros((2, 2))}], "axes in one column"),
        ([{"Camera": 1}], "column 'Camera': names are parts"),
        ([{"x.age": 1}], "reserved"),
        ([{"x": 2**63 + 1}, {"x": -1}], "column x: no integer type can store all of int64, uint64"),
        ([{"x": [1]}, {"x": [[1, 2], [3]]}], r"column x: value 1, \[\[1, 2\], \[3\]\], is no array"),
        ([{"__3.x": 7}], "column __3.x: names of this form"),
        (
            [{"a" * 300: "text"}],
            "300 letters, where a file's name has at most 150; name groups",
        ),
    ],
)
def test_rows_that_fit_no_type_are_refused(tmp_path, rows, words):
    with pytest.raises(UsageError, match=words):
        tt.write_table(f"{tmp_path}/t", rows)
    assert not (tmp_path / "t" / "table.json").exists()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros(3), r"row 1: x has shape \(3,\), its type is float32\[2\]"),
        ("text", "row 1: x = 'text' is no float32"),
        (None, "row 1: no value for x"),
        (np.array([1j, 2j]), "would lose something"),
    ],
)
def test_a_value_that_does_not_fit_its_declared_type_names_its_row(tmp_path, value, words):
    types = {"x": ColumnType(np.dtype("<f4"), (2,))}
    with pytest.raises(UsageError, match=words):
        tt.write_table(f"{tmp_path}/t", [{"x": np.zeros(2)}, {"x": value}], types=types)


def test_integers_that_would_overflow_are_refused(tmp_path):
    types = {"x": ColumnType(np.dtype("u1"))}
    tt.write_table(f"{tmp_path}/ok", [{"x": 255}], types=types)
    for value in (256, -1, 2**70, 1.5):
        with pytest.raises(UsageError, match="row 0"):
            tt.write_table(f"{tmp_path}/t", [{"x": value}], types=types)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"index": "radar"}, "no column matches 'radar'"),
        ({"index": "lidar.points"}, "stores small values only"),
        ({"index": "camera.front"}, "stores small values only"),
        ({"compress": "gzip"}, "there are lz4 and zstd"),
        ({"compress": {"nothing": "lz4"}}, "no group 'nothing'"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_written(tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        tt.write_table(f"{tmp_path}/t", drive(1, 2), **options)
    assert not (tmp_path / "t").exists()


def test_log_ids_of_any_kind_get_index_files_of_their_own(tmp_path):
    ids = ["a/b", "..", ".", "", "_x", ".x", "ä ö", "a%2Fb", "A", "x" * 300, "x" * 301]
    rows = [{"log_id": log_id, "timestamp": 1, "n": number} for number, log_id in enumerate(ids)]
    tt.write_table(f"{tmp_path}/t", rows)
    assert len(list((tmp_path / "t/index").iterdir())) == len(ids)
    index = tt.read_index(f"{tmp_path}/t")
    assert sorted(index.log_id) == sorted(ids)
    assert {row["log_id"]: int(row["n"]) for row in tt.row_loader(index)} == dict(
        zip(ids, range(11), strict=True)
    )


def test_an_empty_table_with_types_opens(tmp_path):
    tt.write_table(f"{tmp_path}/t", [], types=Schema({"x": ColumnType(np.dtype("<f4"))}))
    index = tt.read_index(f"{tmp_path}/t")
    loader = tt.row_loader(index)
    assert len(loader) == 0
    with pytest.raises(tt.RowPositionError):
        loader.get_row(0)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [{"timestamp": 1, "x": 1}, {"timestamp": 1.5, "x": 1}],
            r"row 1: timestamp = 1\.5; it is int64 nano",
        ),
        ([{"timestamp": True, "x": 1}], "row 0: timestamp = True"),
        ([{"timestamp": 2**63, "x": 1}], "row 0: timestamp = 9223372036854775808"),
        ([{"timestamp": 1, "x": 1}, {"x": 1}], "row 1: timestamp = None; .* in all rows"),
        ([{"timestamp": np.datetime64("NaT"), "x": 1}], "row 0: timestamp = .*NaT"),
        (
            [{"log_id": "a", "x": 1}, {"log_id": None, "x": 1}],
            "row 1: log_id = None; it is a text in all rows",
        ),
        ([{"log_id": "a", "x": 1}, {"x": 1}], "row 1: log_id = None"),
        ([{"x": 1}, {"log_id": "a", "x": 1}], "row 1: log_id = 'a'; it is a text in all rows, or in none"),
        ([{"log_id": 3, "x": 1}], "row 0: log_id = 3"),
        ([{"x": 1}] * 5000 + [{"x": 1, "y": 1}], "row 5000: a column 'y' that the first rows don't have"),
        ({"x": [1, 2]}, "of a dict of columns pd.DataFrame"),
        (["x"], "rows are a DataFrame, or dicts, one a row; not str"),
    ],
)
def test_nothing_of_a_row_is_changed_or_left_out_in_silence(tmp_path, rows, words):
    with pytest.raises(UsageError, match=words):
        tt.write_table(f"{tmp_path}/t", rows)
    assert not (tmp_path / "t/table.json").exists()


def test_times_of_pandas_become_nanoseconds(tmp_path):
    stamps = pd.to_datetime(["2024-01-01 00:00:00.123456789", "2024-01-02 00:00:00.000000000"])
    wanted = [1704067200123456789, 1704153600000000000]
    for number, times in enumerate((stamps, stamps.tz_localize("UTC").tz_convert("Europe/Berlin"))):
        frame = pd.DataFrame({"log_id": "a", "timestamp": times, "x": [1, 2]})
        tt.write_table(f"{tmp_path}/{number}", frame)
        assert tt.read_index(f"{tmp_path}/{number}").timestamp.tolist() == wanted
    tt.write_table(f"{tmp_path}/rows", [{"timestamp": np.datetime64(7, "s"), "x": 1}])
    assert tt.read_index(f"{tmp_path}/rows").timestamp.tolist() == [7_000_000_000]


def test_what_a_data_frame_lacks_among_texts_and_bytes_is_missing(tmp_path):
    frame = pd.DataFrame(
        {
            "name": ["sun", None, "rain"],
            "camera": [b"12", np.nan, b"3"],
            "points": [np.zeros((2, 3)), np.zeros((1, 3)), np.nan],
            "speed": [1.0, np.nan, 2.0],
        }
    )
    tt.write_table(f"{tmp_path}/t", frame, index="name*")
    index = tt.read_index(f"{tmp_path}/t")
    assert index.name.tolist() == ["sun", "", "rain"]
    rows = [tt.row_loader(index).get_row(n, [".*", "*.available"]) for n in range(3)]
    assert [row["name.available"] for row in rows] == [True, False, True]
    assert [row["camera"] for row in rows] == [b"12", b"", b"3"]
    assert [len(row["points"]) for row in rows] == [2, 1, 0]
    assert np.isnan(rows[1]["speed"])
    assert "speed.available" not in rows[1]


class TestParts:
    """Parts written here and there, by workers that may be told twice."""

    TYPES = tt.infer_types(drive(num_logs=2, rows=8))

    def entries(self, root, **options):
        rows = drive(num_logs=2, rows=8)
        return [tt.write_part(root, rows[n::2], f"p{n}", self.TYPES, **options) for n in range(2)]

    def test_a_commit_that_is_repeated_leaves_the_table_as_it_is(self, tmp_path):
        root = f"{tmp_path}/t"
        entries = json.loads(json.dumps(self.entries(root, index="speed")))
        tt.commit_table(root, [*entries, entries[0]], self.TYPES, index="speed")
        before = files(tmp_path / "t")
        assert self.entries(root, index="speed") == entries
        tt.commit_table(root, entries, self.TYPES, index="speed")
        assert files(tmp_path / "t") == before
        assert len(tt.read_index(root)) == 16
        assert tt.verify(root) == []

    def test_other_parts_are_refused_where_a_table_is(self, tmp_path):
        root = f"{tmp_path}/t"
        entries = self.entries(root)
        tt.commit_table(root, entries, self.TYPES)
        before = files(tmp_path / "t")
        with pytest.raises(UsageError, match="there is a table already"):
            tt.write_part(root, drive(num_logs=1, rows=3), "p7", self.TYPES)
        other = self.entries(f"{tmp_path}/u", groups={"all": ".*"})
        for wrong, options in ((entries[:1], {}), (other, {"groups": {"all": ".*"}}), (other, {})):
            with pytest.raises(UsageError, match="there is a table already"):
                tt.commit_table(root, wrong, self.TYPES, **options)
        assert files(tmp_path / "t") == before

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"index": "speed"}, "differ in speed; give write_part and commit_table the same types"),
            ({"groups": {"all": ".*"}}, r"differ in __0\.all\.blob, .*__0\.camera\.front\.blob"),
            ({"keys": ["timestamp"]}, "differ in log_id; .* and commit_table the keys that rows have"),
        ],
    )
    def test_parts_written_with_other_arguments_are_refused(self, tmp_path, options, words):
        entries = self.entries(f"{tmp_path}/t")
        with pytest.raises(UsageError, match=rf"/t: part p0-\w+ and the table {words}"):
            tt.commit_table(f"{tmp_path}/t", entries, self.TYPES, **options)
        assert not (tmp_path / "t/table.json").exists()
        tt.commit_table(f"{tmp_path}/t", entries, self.TYPES)
        assert tt.verify(f"{tmp_path}/t") == []


def test_a_text_may_be_shorter_than_the_type_of_its_column(tmp_path):
    types = {"name": ColumnType(np.dtype("<U7"))}
    tt.write_table(str(tmp_path / "table"), [{"name": np.str_("abc")}, {"name": "Überall"}], types=types)
    assert [row["name"] for row in tt.row_loader(tt.read_index(str(tmp_path / "table")))] == [
        "abc",
        "Überall",
    ]
    with pytest.raises(UsageError, match="<U8 would lose something as <U7"):
        tt.write_table(str(tmp_path / "other"), [{"name": "Überalls"}], types=types)


def test_the_index_has_availabilities_of_columns_whose_values_do_not_show_which_are_missing():
    columns = {"speed": ColumnType(np.dtype("<f4")), "gear": ColumnType(np.dtype("<i4"))}
    schema = Schema({**columns, "own": columns["gear"]}, sampled=("speed", "gear"))
    assert make_plan(schema, "*").index == ("speed", "gear", "own", "gear.available")
    assert make_plan(schema, ["gear.available", "gear"]).index.count("gear.available") == 1
