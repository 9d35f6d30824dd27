"""The index: read by anyone's Parquet reader, opened in part, small on disk and in memory."""

import json

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

import logloom.io.formats.table as tt
from logloom.errors import DatasetError, UsageError
from tests.io.formats.table.making import drive
from tests.tier import by_tier


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    root = tmp_path_factory.mktemp("index") / "t"
    rows = drive(num_logs=4, rows=25)
    tt.write_table(str(root), rows, index=["speed", "pedestrians_count", "weather", "ego.position"])
    return root, rows


def test_a_vector_stands_in_the_index_as_scalars(table):
    root, rows = table
    index = tt.read_index(str(root))
    names = [name for name in index.columns if not name.startswith("__")]
    vector = ["ego.position.0", "ego.position.1", "ego.position.2"]
    assert names == ["log_id", "timestamp", *vector, "speed", "pedestrians_count", "weather"]
    np.testing.assert_array_equal(index[vector].to_numpy(), np.stack([row["ego.position"] for row in rows]))


def test_pandas_polars_and_pyarrow_read_it_as_it_is(table):
    root, rows = table
    stamps = [row["timestamp"] for row in rows]
    weather = [row["weather"] for row in rows]
    frame = pd.read_parquet(root / "index")
    assert frame.timestamp.tolist() == stamps
    assert frame.weather.tolist() == weather
    frame = pl.read_parquet(root / "index" / "*.parquet")
    assert frame["timestamp"].to_list() == stamps
    assert frame["weather"].cast(pl.String).to_list() == weather
    assert {len(digest) for digest in frame["__0.lidar.points.hash"].to_list()} == {32}
    assert pq.read_table(root / "index")["speed"].to_pylist() == [row["speed"] for row in rows]


def test_duckdb_reads_it_as_it_is(table):
    root, rows = table
    query = f"SELECT timestamp, weather FROM '{root}/index/*.parquet' WHERE pedestrians_count > 3"
    found = duckdb.sql(f"{query} ORDER BY timestamp").fetchall()
    wanted = [(row["timestamp"], row["weather"]) for row in rows if row["pedestrians_count"] > 3]
    assert found == sorted(wanted)


def test_texts_are_categories_that_all_logs_share(table):
    root, rows = table
    index = tt.read_index(str(root))
    assert index.weather.cat.categories.tolist() == ["rain", "snow", "sun"]
    assert index.log_id.cat.categories.tolist() == [f"drive-{n}" for n in range(4)]
    assert index.weather.tolist() == [row["weather"] for row in rows]
    for threads in (1, 8):
        pd.testing.assert_frame_equal(tt.read_index(str(root), threads=threads), index)


def test_only_the_wanted_columns_are_loaded(table):
    root, rows = table
    index = tt.read_index(str(root), columns=["speed"])
    assert [name for name in index.columns if not name.startswith("__")] == ["log_id", "timestamp", "speed"]
    assert tt.row_loader(index).get_row(3, "weather")["weather"] == rows[3]["weather"]
    with pytest.raises(UsageError, match=r"no column 'lidar.points' \(.*row_loader.*; there are log_id, "):
        tt.read_index(str(root), columns=["lidar.points"])


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("pedestrians_count > 3", lambda r: r["pedestrians_count"] > 3),
        ("speed < 0.5 and not weather == 'sun'", lambda r: r["speed"] < 0.5 and r["weather"] != "sun"),
        ("0.2 <= speed < 0.5 or `ego.position.0` > 0.9", lambda r: 0.2 <= r["speed"] < 0.5 or
        r["ego.position"][0] > 0.9), ("weather in ['rain', 'snow'] and log_id != 'drive-2'", lambda r:
        r["weather"] != "sun" and r["log_id"] != "drive-2"), ("log_id not in ('drive-0', 'drive-1')", lambda
        r: r["log_id"] not in ("drive-0", "drive-1")), ([("speed", ">", 0.5), ("weather", "in", ["sun"])],
            lambda r: r["speed"] > 0.5 and r["weather"] == "sun"),
        (pc.field("timestamp") >= 2 * 10**11, lambda r: r["timestamp"] >= 2 * 10**11),
        ("speed > 99", lambda r: False),
        ("ego.position[0] > speed", lambda r: r["ego.position"][0] > r["speed"]),
        ([("log_id", "in", ("drive-1", "it's")), ("speed", "<=", np.float32(0.5))], lambda r: r["log_id"] ==
        "drive-1" and r["speed"] <= 0.5),
        (f"pedestrians_count < {10**23} and not speed in []", lambda r: True),
    ],
)  # fmt: skip
def test_a_filter_loads_just_the_rows_for_which_it_holds(table, where, holds):
    root, rows = table
    index = tt.read_index(str(root), where=where)
    wanted = [row for row in rows if holds(row)]
    assert index.timestamp.tolist() == [row["timestamp"] for row in wanted]
    for found, row in zip(tt.row_loader(index), wanted, strict=True):
        assert found["camera.front"] == row["camera.front"]
    if len(index):
        assert len(tt.row_loader(index).get_rows(0, "speed", range(3), on_edge="drop")) > 0


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("velocity > 3", "no column 'velocity'; there are log_id"),
        ("speed >", "character 8 .*expected a column"),
        ("__import__('os').system('true')", r"character 1 .*__import__\(…\) isn't a function"),
        ("speed ** 2 > 1", r"character 7 .*unexpected '\*\*'; here it is \+, -"),
        ("ego.position[3] > 1", "character 1 .*index 3 is out of range"),
        ("ego.position > 1", "character 1 .*only single numbers and text"),
        ([("speed", "~", 1)], "operator '~'"),
        ([], "an empty list"),
        ("speed > 'a'", "character 9 .*a number is compared with a text"),
        ([("speed", ">", "a")], "character 11 .*a number is compared with a text"),
        ("weather == 1", "character 12 .*a text is compared with a number"),
        ("log_id", "character 1 .*a condition is true or false, this is a text"),
        ("weather in 'rain'", "character 12 .*expected a list"),
        ([("weather", "in", "rain")], r"weather in 'rain'; give a list, such as weather in \['rain'\]"),
        ("speed in [0, 'a']", "character 14 .*a number is compared with a text"),
        ([("speed", "==", None)], "speed == None: neither a number, nor text"),
    ],
)
def test_a_filter_that_can_not_be_understood_is_refused(table, where, words):
    with pytest.raises(UsageError, match=f"^{table[0]}: where.*{words}"):
        tt.read_index(str(table[0]), where=where)


def test_columns_of_the_index_are_chosen_by_globs_and_a_vector_by_its_name(table):
    root, _ = table

    def chosen(columns):
        names = tt.read_index(str(root), columns=columns).columns
        return [name for name in names if not name.startswith("__")][2:]

    vector = ["ego.position.0", "ego.position.1", "ego.position.2"]
    assert chosen(["ego.position"]) == chosen("ego.*") == vector
    assert chosen(["speed", "ego.position.1"]) == ["ego.position.1", "speed"]


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_the_hash_of_a_chunk_is_the_blake3_of_its_bytes_in_the_blob(tmp_path, codec):
    tt.write_table(f"{tmp_path}/t", drive(num_logs=1, rows=4), compress=codec)
    index = pq.read_table(tmp_path / "t/index/drive-0.parquet").to_pydict()
    groups = [name.removesuffix(".hash") for name in index if name.endswith(".hash")]
    assert len(groups) == 5
    for group in groups:
        found = zip(*(index[f"{group}.{part}"] for part in ("blob", "offset", "length", "hash")), strict=True)
        for blob, offset, length, digest in found:
            stored = (tmp_path / "t" / blob).read_bytes()[offset : offset + length]
            assert blake3(stored).digest() == digest


def test_a_log_that_is_not_there_is_named(table):
    root, _ = table
    assert set(tt.read_index(str(root), logs=["drive-1"]).log_id) == {"drive-1"}
    with pytest.raises(UsageError, match=r"no log 'drive-11' among its 4; did you mean drive-1"):
        tt.read_index(str(root), logs=["drive-0", "drive-11"])


def test_files_have_page_checksums_and_a_flipped_byte_is_found(tmp_path):
    tt.write_table(f"{tmp_path}/t", drive(num_logs=1))
    file = tmp_path / "t/index/drive-0.parquet"
    group = pq.ParquetFile(file).metadata.row_group(0)
    place = (
        next(
            group.column(i)
            for i in range(group.num_columns)
            if group.column(i).path_in_schema.endswith("points.hash")
        ).data_page_offset
        + 200
    )
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    assert any("drive-0.parquet" in line and "damaged" in line for line in tt.verify(f"{tmp_path}/t"))


def test_a_newer_format_is_refused_with_advice(tmp_path):
    tt.write_table(f"{tmp_path}/t", drive(num_logs=1, rows=2))
    file = tmp_path / "t/table.json"
    data = json.loads(file.read_text())
    file.chmod(0o644)
    for change, words in (
        ({"version": 2}, r"t/table.json: version 2, this release of logloom reads up to 1; install a"),
        ({"format": "other"}, "format 'other', expected 'logloom-table'"),
        ({"logs": [["x", "../up.parquet", 1, ""]]}, "damaged"),
        ({"logs": [["x", "index/../../up.parquet", 1, ""]]}, "damaged"),
        ({"groups": {"a": ["nothing"]}}, "damaged"),
        ({"schema": None}, "damaged"),
    ):
        file.write_text(json.dumps(data | change))
        with pytest.raises(DatasetError, match=words):
            tt.read_index(f"{tmp_path}/t")
    file.write_text(json.dumps(data)[:-20])
    with pytest.raises(DatasetError, match="damaged"):
        tt.read_index(f"{tmp_path}/t")
    with pytest.raises(DatasetError, match="no table here"):
        tt.read_index(f"{tmp_path}/other")


def test_an_index_is_small_on_disk_and_in_memory(tmp_path):
    logs = by_tier(3, 10)
    rows = logs * 10_000
    frame = pd.DataFrame(
        {
            "log_id": np.repeat([f"log-{n}" for n in range(logs)], rows // logs),
            "timestamp": np.arange(rows) * 10**8,
            "a": np.arange(rows, dtype=np.float32),
            "b": np.arange(rows, dtype=np.int32),
            "c": np.arange(rows) % 1000,
            "d": np.arange(rows, dtype=np.float64),
        }
    )
    tt.write_table(f"{tmp_path}/t", frame, index=["a", "b"], groups={c: [c] for c in "abcd"})
    size = sum(path.stat().st_size for path in (tmp_path / "t/index").iterdir())
    assert size / rows / 4 <= 64
    index = tt.read_index(f"{tmp_path}/t")
    assert index.memory_usage(deep=True).sum() / rows <= 200
    service = [name for name in index.columns if name.startswith("__0.a.")]
    assert index[service].memory_usage(index=False).sum() / rows <= 20


def test_a_blob_path_that_leaves_the_table_is_refused(tmp_path):
    tt.write_table(f"{tmp_path}/t", drive(num_logs=1, rows=4))
    file = tmp_path / "t/index/drive-0.parquet"
    rows = pq.read_table(file)
    file.chmod(0o644)
    for path in ("/etc/passwd", "../../secret", "parts/../../x"):
        name = "__0.camera.front.blob"
        texts = pq.read_table(file).column(name).cast("string")
        assert len(set(texts.to_pylist())) == 1
        changed = rows.set_column(rows.column_names.index(name), name, [[path] * len(rows)])
        pq.write_table(changed, file)
        with pytest.raises(DatasetError, match=r"which (leaves|is in no)"):
            tt.read_index(f"{tmp_path}/t")
        assert tt.verify(f"{tmp_path}/t")
