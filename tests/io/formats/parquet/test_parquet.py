"""The output `parquet`: row groups, images, options, and plain folders of its files."""

import errno
import io
import json
import os
import re

import apache_beam as beam
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

from logloom.blocks import Block, Ragged
from logloom.digests import digests_of_rows
from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.arrow.layout import ArrowLayout
from logloom.io.arrow.writer import MAX_ROWS
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.interface import UnitContext
from logloom.io.formats.parquet import ParquetReader, ParquetWriter, ReadFromParquet
from logloom.io.formats.parquet.format import FORMAT
from logloom.io.rows.chain import UnitsSource
from logloom.io.storage.store import Store
from logloom.schema import BYTES, STRING, ColumnType, Schema
from logloom.testing.rows import SCHEMA, TYPES, cut, random_block
from tests.files import flip

PIXELS = ColumnType(np.dtype("u1"), (None, None, None))


def test_batches_of_rows_in_any_order_are_those_rows(tmp_path):
    block = random_block(SCHEMA, 40, 3)
    writer = ParquetWriter(tmp_path / "rows.parquet", ArrowLayout(SCHEMA), 500)  # bytes of a row group
    writer.append(block)
    assert writer.close()["rows"] == 40
    reader = ParquetReader(Store.at(str(tmp_path)), "rows.parquet")
    order = np.array([39, 0, 17, 17, 3, 38, 1])
    batch = reader.take(order, ["steps", "note", "lidar.points"])
    assert batch["timestamp"].tolist() == block.timestamp[order].tolist()
    assert batch["steps"].tolist() == block.columns["steps"][order].tolist()
    lengths = [len(block.columns["lidar.points"][row]) for row in order.tolist()]
    assert batch["lidar.points"][1].tolist() == lengths
    out = {"steps": np.zeros(7, np.int64)}
    assert reader.take(order, ["steps"], out)["steps"] is out["steps"]
    assert out["steps"].tolist() == batch["steps"].tolist()


def write(folder, blocks, schema=SCHEMA, **options):
    """Writes blocks as files of a folder, a partition each; gives their entries."""
    folder.mkdir(exist_ok=True)
    chosen, entries = FORMAT.Options(**options), []
    for number, own in enumerate(blocks):
        name = FORMAT.view(number, ["rows.parquet"])["rows.parquet"]
        writer = ParquetWriter(folder / name, chosen.layout(schema), chosen.row_group_bytes)
        for block in own if isinstance(own, list) else [own]:
            writer.append(block)
        entries.append(writer.close())
    return entries


def image_block(rows):
    """Pixels of some shapes, and encoded images, of which one isn't there."""
    columns = {
        "timestamp": np.arange(len(rows)),
        "raw": Ragged.from_rows(rows, PIXELS),
        "depth": np.arange(len(rows) * 6, dtype="<u2").reshape(-1, 2, 3, 1) * 1000,
        "front": Ragged.from_bytes([b"", *[b"\xff\xd8jpg"] * (len(rows) - 1)]),
    }
    return Block("a", "p", 0, columns)


IMAGES = Schema({"raw": PIXELS, "depth": ColumnType(np.dtype("<u2"), (2, 3, 1)), "front": BYTES})


# --- what is written ------------------------------------------------------------------------------------


def test_row_groups_end_where_their_values_fill_them_however_rows_arrive(tmp_path):
    schema = Schema({"v": ColumnType(np.dtype("<f8")), "data": BYTES})
    sizes = [10, 0, 200, 5, 5, 5, 300, 1]
    block = Block(
        "a",
        "p",
        0,
        {
            "timestamp": np.arange(8),
            "v": np.arange(8.0),
            "data": Ragged.from_bytes([bytes(size) for size in sizes]),
        },
    )
    write(tmp_path / "whole", [block], schema, row_group_bytes=100)
    write(tmp_path / "cut", [cut(block, (1, 3, 4, 7))], schema, row_group_bytes=100)
    path = tmp_path / "whole" / "000000.parquet"
    metadata = pq.read_metadata(path)
    counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    # 16 bytes of numbers a row: 26 + 16 + 216 fill the first, 3 * 21 + 316 the second.
    assert counts == [3, 4, 1]
    assert path.read_bytes() == (tmp_path / "cut" / "000000.parquet").read_bytes()


def test_no_row_group_has_more_rows_than_a_limit(tmp_path):
    schema = Schema({"on": ColumnType(np.dtype("?"))})
    rows = MAX_ROWS + 10
    block = Block("a", "p", 0, {"timestamp": np.arange(rows), "on": np.arange(rows) % 3 == 0})
    write(tmp_path, [cut(block, (5, MAX_ROWS + 3))], schema, row_group_bytes=1 << 30)
    metadata = pq.read_metadata(tmp_path / "000000.parquet")
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [MAX_ROWS, 10]


def test_columns_have_the_types_that_readers_know(tmp_path):
    write(tmp_path, [random_block(SCHEMA, 5, 0)], images={"camera.front": "jpg"})
    found = pq.read_schema(tmp_path / "000000.parquet")
    assert found.names[:2] == ["log_id", "timestamp"]
    types = {name: str(found.field(name).type) for name in found.names}
    assert types["timestamp"] == types["speed.age"] == "int64"
    assert types["ego.position"] == "fixed_size_list<element: double>[3]"
    assert types["camera.front"] == "struct<bytes: binary, path: string>"
    assert types["lidar.points"].startswith("list<element: fixed_size_list<")
    assert (types["note"], types["moving"], types["speed.available"]) == ("string", "bool", "bool")
    assert found.field("ego.position").metadata[b"unit"] == b"m"
    statistics = pq.read_metadata(tmp_path / "000000.parquet").row_group(0).column(1).statistics
    assert statistics.has_min_max


def test_images_are_null_where_there_is_none_and_pixels_come_back_from_png(tmp_path):
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 256, shape, np.uint8) for shape in [(3, 4, 3), (2, 2, 1), (5, 1, 4)]]
    block = image_block([*rows, np.zeros((0, 0, 0), np.uint8)])
    images = {"raw": "png", "depth": "png", "front": "jpg"}
    (entry,) = write(tmp_path, [block], IMAGES, images=images)
    table = pq.read_table(tmp_path / "000000.parquet")
    assert [value.as_py() is None for value in table["front"]] == [True, False, False, False]
    assert [value.as_py() is None for value in table["raw"]] == [False, False, False, True]
    assert table["raw"][0].as_py()["bytes"].startswith(b"\x89PNG")
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features == {name: {"_type": "Image"} for name in images}
    reader = ParquetReader(Store.at(str(tmp_path)), "000000.parquet")
    assert digests_of_rows(reader.blocks(), IMAGES) == digests_of_rows([block], IMAGES)
    assert entry["bytes"] == (tmp_path / "000000.parquet").stat().st_size


def test_pixels_that_png_can_not_hold_are_an_error_that_names_log_and_column(tmp_path):
    block = image_block([np.zeros((2, 2, 2), np.uint8)] * 2)
    with pytest.raises(UsageError, match="a: column raw, rows 0 to 1: an image of 2 channels"):
        write(tmp_path, [block], IMAGES, images={"raw": "png"})


def test_a_text_that_is_no_utf_8_is_an_error_that_names_log_and_column(tmp_path):
    schema = Schema({"note": STRING})
    block = Block("a", "p", 0, {"timestamp": np.arange(1), "note": Ragged.from_bytes([b"\xff"])})
    with pytest.raises(UsageError, match=r"a: column note, rows 0 to 0: .*UTF-?8"):
        write(tmp_path, [block], schema)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"images": {"camera.frnt": "jpg"}}, "camera.frnt"),
        ({"images": {"camera.front": "npy"}}, "unknown kind of image"),
        ({"images": {"speed": "png"}}, "neither bytes nor pixels"),
        ({"images": {"raw": "jpg"}}, "encode: jpg"),
        ({"columns": ["raw"], "images": {"camera.front": "jpg"}}, "camera.front"),
        ({"columns": ["radar.*"]}, "radar"),
    ],
)
def test_each_option_that_does_not_fit_is_one_line(given, words):
    schema = Schema({"camera.front": BYTES, "speed": ColumnType(np.dtype("<f4")), "raw": PIXELS})
    assert FORMAT.check(FORMAT.Options(images={"raw": "png", "camera.front": "jpg"}), schema) == []
    (line,) = FORMAT.check(FORMAT.Options(**given), schema)
    assert words in line


@pytest.mark.parametrize("dtype", ["M8[ns]", "m8[us]", "g", "V3", "S4", [("a", "M8[s]")]])
def test_types_that_would_come_back_as_others_are_refused(dtype):
    (line,) = FORMAT.check(FORMAT.Options(), Schema({"odd": ColumnType(np.dtype(dtype))}))
    assert "column odd" in line


def test_a_log_id_that_is_no_utf_8_is_refused():
    assert FORMAT.check_log(FORMAT.Options(), "car/1", "x.mcap") == []
    (line,) = FORMAT.check_log(FORMAT.Options(), "car\udcff", "x.mcap")
    assert line.startswith("x.mcap: log_id")


# --- rows at random -------------------------------------------------------------------------------------


def test_a_row_is_read_without_the_rest_of_the_file(tmp_path, monkeypatch):
    schema = Schema({"data": BYTES, "v": ColumnType(np.dtype("<i4"))})
    rng = np.random.default_rng(0)
    columns = {
        "timestamp": np.arange(64),
        "v": np.arange(64, dtype=np.int32),
        "data": Ragged.from_bytes([rng.bytes(10_000) for _ in range(64)]),
    }
    block = Block("a", "p", 0, columns)
    write(tmp_path, [block], schema, row_group_bytes=20_000)
    data = (tmp_path / "000000.parquet").read_bytes()
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/parquet-rows/x.parquet", data)
    store, taken = Store.at("memory://parquet-rows"), []
    kind = type(fs.open("/parquet-rows/x.parquet"))
    read = kind.read
    monkeypatch.setattr(kind, "read", lambda own, *n: taken.append(read(own, *n)) or taken[-1])
    reader = ParquetReader(store, "x.parquet")
    row = reader[41]
    assert (row["v"], row["data"]) == (41, columns["data"][41].tobytes())
    assert sum(map(len, taken)) < len(data) // 4
    taken.clear()
    assert reader.row(40, ["v"])["v"] == 40  # of the same row group, which is in memory
    assert taken == []


# --- plain folders --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Files of two logs, and the blocks in them."""
    blocks = [random_block(SCHEMA, 6, 0, "a"), random_block(SCHEMA, 5, 1, "b")]
    write(tmp_path / "plain", blocks, images={"camera.front": "jpg"}, row_group_bytes=400)
    return tmp_path / "plain", blocks


def test_a_plain_folder_opens_with_all_types_ages_and_availabilities(folder):
    path, blocks = folder
    source = open_foreign(str(path))
    assert (type(source), source.kind, source.schema) == (UnitsSource, "parquet", SCHEMA)
    assert [(log.log_id, sum(part.rows for part in log.parts)) for log in source.logs()] == [
        ("a", 6),
        ("b", 5),
    ]
    for block, (_, first, stop) in zip(blocks, source.stretches.spans(), strict=True):
        found = source.blocks(None, 200, first, stop)
        assert digests_of_rows(found, SCHEMA) == digests_of_rows([block], SCHEMA)
    with beam.Pipeline("FnApiRunner") as pipeline:
        read = pipeline | ReadFromParquet(path, columns="speed")
        assert_that(read | beam.Map(lambda block: (block.log_id, len(block))), equal_to([("a", 6), ("b", 5)]))


def test_logs_in_one_file_are_told_apart(folder, tmp_path):
    path, blocks = folder
    tables = [pq.read_table(one) for one in sorted(path.iterdir())]
    pq.write_table(pa.concat_tables(tables), tmp_path / "both.parquet", row_group_size=4)
    source = open_foreign(str(tmp_path / "both.parquet"))
    assert source.stretches.spans() == [("a", 0, 6), ("b", 6, 11)]
    assert [row["log_id"] for row in source.rows(np.array([5, 6]), [])] == ["a", "b"]
    found = source.blocks(None, 64 << 20, 6, 11)
    assert digests_of_rows(found, SCHEMA) == digests_of_rows([blocks[1]], SCHEMA)


def test_rows_that_somebody_chose_are_read_as_they_were_written(folder, tmp_path):
    path, blocks = folder
    table = pq.read_table(path / "000000.parquet")
    chosen = table.filter(pc.field("steps") == table["steps"][2])
    pq.write_table(chosen, tmp_path / "one.parquet")
    source = open_foreign(str(tmp_path / "one.parquet"))
    assert source.schema == SCHEMA
    assert source[0]["steps"] == blocks[0].columns["steps"][2]


def test_a_file_that_somebody_gave_other_columns_is_one_of_others(folder, tmp_path):
    path, _ = folder
    table = pq.read_table(path / "000000.parquet").select(["log_id", "timestamp", "steps"])
    pq.write_table(
        table.set_column(2, "steps", table["steps"].cast(pa.int32(), safe=False)), tmp_path / "x.parquet"
    )
    source = open_foreign(str(tmp_path / "x.parquet"))
    assert {name: str(ctype) for name, ctype in source.schema.columns.items()} == {"steps": "int32"}


def test_a_schema_that_makes_no_sense_is_an_error_that_names_the_file(folder, tmp_path):
    path, _ = folder
    table = pq.read_table(path / "000000.parquet")
    endless = Schema({"steps": ColumnType(np.dtype("<i8"), (1 << 40,))}).to_json()
    told = json.dumps({"schema": endless, "images": {}, "dot": "."}).encode()
    for text in (b"{", b"[]", b"{}", b'{"schema": 1, "images": {}, "dot": "."}', told):
        pq.write_table(table.replace_schema_metadata({b"logloom": text}), tmp_path / "x.parquet")
        with pytest.raises(DatasetError, match=r"x\.parquet: metadata of the schema"):
            open_foreign(str(tmp_path / "x.parquet"))


@pytest.mark.parametrize("columns", [None, ["camera.*", "speed"]])
def test_a_plain_folder_has_the_same_rows_where_damage_is_skipped(tmp_path, columns):
    raw = PIXELS
    schema = Schema({**SCHEMA.columns, "raw": raw}, SCHEMA.sampled)
    blocks = []
    for number, log_id in enumerate("ab"):
        pixels = [np.full((2, row, 3), row, np.uint8) for row in range(1, 7)]
        block = random_block(SCHEMA, 6, number, log_id)
        blocks.append(Block(log_id, "p", 0, {**block.columns, "raw": Ragged.from_rows(pixels, raw)}))
    images = {"camera.front": "jpg", "raw": "png"}
    write(tmp_path / "plain", blocks, schema, images=images, row_group_bytes=400)
    source = open_foreign(str(tmp_path / "plain"), columns=columns, on_error="skip")
    chosen = schema.part(columns)
    assert (source.schema, source.has_stamps, source.about.notes) == (chosen, True, ())
    assert digests_of_rows(source.blocks(None, 200), chosen) == digests_of_rows(blocks, chosen)
    assert [log.record.status for log in source.logs()] == ["whole", "whole"]


def test_damaged_row_groups_of_a_plain_folder_are_left_out_and_all_others_keep_their_types(folder):
    path, blocks = folder
    (path / "000002.parquet").write_bytes(b"PAR1 and no more")
    metadata = pq.read_metadata(path / "000000.parquet")
    flip(path / "000000.parquet", metadata.row_group(0).column(1).data_page_offset + 40)  # a timestamp
    with pytest.raises(DatasetError, match=r"000002\.parquet"):
        open_foreign(str(path))
    source = open_foreign(str(path), on_error="skip")
    lost = metadata.row_group(0).num_rows
    assert 0 < lost < len(blocks[0])
    left = [Block("a", "p", 0, blocks[0].take(slice(lost, None))), blocks[1]]
    assert source.schema == SCHEMA
    assert digests_of_rows(source.blocks(), SCHEMA) == digests_of_rows(left, SCHEMA)
    reasons = [log.record.reasons[0] for log in source.logs() if log.record.status == "skipped"]
    assert [re.search(r"\d{6}\.parquet", reason)[0] for reason in reasons] == [
        "000000.parquet",
        "000002.parquet",
    ]


def test_rows_that_a_footer_merely_claims_take_no_memory(folder, tmp_path):
    path, _ = folder
    pq.write_table(pq.read_table(path / "000000.parquet"), tmp_path / "x.parquet")
    for claimed in (1 << 40, 1 << 60, -1):
        claim_rows(tmp_path / "x.parquet", claimed)
        with pytest.raises(DatasetError, match=r"x\.parquet: .*damaged"):
            list(ParquetReader(Store.at(str(tmp_path)), "x.parquet").blocks())


@pytest.mark.parametrize("claimed", [2000, 1 << 40, 1 << 60, -1])
def test_rows_that_somebody_elses_footer_merely_claims_are_damage(tmp_path, claimed):
    table = pa.table({"timestamp": np.arange(1000), "v": np.arange(1000.0)})
    pq.write_table(table, tmp_path / "x.parquet")
    claim_rows(tmp_path / "x.parquet", claimed)
    with pytest.raises(DatasetError, match=r"x\.parquet: .*damaged"):
        open_foreign(str(tmp_path / "x.parquet"))


def claim_rows(path, rows):
    """Has the footer say that the only row group has so many rows."""
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    group = pq.read_metadata(path).row_group(0)
    # Thrift: field 2, the bytes of the group, and field 3, its rows; both i64, in zigzag.
    before = b"\x16" + varint(group.total_byte_size) + b"\x16"
    footer = data[-8 - size : -8]
    old = before + varint(group.num_rows)
    assert footer.count(old) == 1
    footer = footer.replace(old, before + varint(rows))
    path.write_bytes(data[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def varint(number):
    number = (number << 1) ^ (number >> 63)
    found = []
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


class Unreadable(io.FileIO):
    """A file of a disk that breaks when the rows are read."""

    def read(self, size=-1):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def refused(path, *_, **__):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


@pytest.mark.parametrize("opening", [refused, lambda path, *_, **__: Unreadable(path)])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_disk_that_fails_is_no_damage_that_a_conversion_may_skip(
    folder, tmp_path, monkeypatch, opening, on_error
):
    path, _ = folder
    table = pq.read_table(path / "000000.parquet").replace_schema_metadata(None)
    (tmp_path / "others").mkdir()
    for name in ("a", "b"):
        pq.write_table(
            table.select(["log_id", "timestamp", "steps"]), tmp_path / "others" / f"{name}.parquet"
        )
    real = pa.OSFile
    monkeypatch.setattr(pa, "OSFile", lambda path: (opening if path.endswith(b"b.parquet") else real)(path))
    with pytest.raises(StorageError, match=r"b\.parquet"):
        open_foreign(str(tmp_path / "others"), on_error=on_error)


def test_a_null_that_somebody_put_in_is_an_error_that_names_column_and_row_group(folder, tmp_path):
    path, _ = folder
    table = pq.read_table(path / "000000.parquet")
    values = pa.array([None, *table["steps"].to_pylist()[1:]], pa.int64())
    number = table.schema.get_field_index("steps")
    table = table.set_column(number, table.schema.field("steps"), values)
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match=r"x\.parquet: row group 0: damaged \(steps: a null"):
        open_foreign(str(tmp_path / "x.parquet"))[0]


def test_a_file_of_another_number_of_rows_than_was_written_is_an_error(tmp_path):
    folder = tmp_path / "unit"
    folder.mkdir()
    schema, options = SCHEMA, FORMAT.Options()
    writer = FORMAT.writer(folder, schema, options, UnitContext("a", "a.mcap", "p", "all"))
    writer.append(random_block(schema, 5, 0))
    entry = {**writer.close(), "rows": 6}
    with pytest.raises(DatasetError, match="5 rows, 6 were written"):
        len(FORMAT.reader(str(folder), schema, options, entry))


def test_every_type_of_the_contract_is_held():
    assert FORMAT.check(FORMAT.Options(), Schema({f"c{n}": ctype for n, ctype in enumerate(TYPES)})) == []
