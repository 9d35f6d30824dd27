"""Rows of blocks as datapoints of bags: through the writer, the reader, the format and steps of Beam."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.io.formats.bags as granular
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.bags import BagsReader, BagsWriter, ReadFromBags, WriteToBags
from logloom.io.formats.bags.format import FORMAT
from logloom.io.formats.interface import UnitContext
from logloom.schema import BYTES, STRING, ColumnType, Schema
from tests.io.beam.steps import finish, read_here
from tests.io.formats.rows import (
    TYPES,
    assert_equal_values,
    cut,
    digests,
    random_block,
    schema_of,
    schemas,
)

SCHEMA = Schema(
    {
        "camera.front": BYTES,
        "lidar.points": ColumnType("<f4", (None, 4)),
        "objects": ColumnType(np.dtype([("x", "<f4"), ("id", "<U5")]), (None,)),
        "speed": ColumnType("<f4"),
        "steps": ColumnType("<i8"),
        "note": STRING,
    },
    ("camera.front", "speed"),
)
CONTEXT = UnitContext("car/drive", "drive.mcap", "p3", "all")


def test_rows_are_read_by_number_and_ages_when_named(tmp_path):
    block = random_block(SCHEMA, 3, 0)
    writer = BagsWriter(tmp_path, SCHEMA)
    writer.append(block)
    writer.close()
    reader = BagsReader(tmp_path, SCHEMA)
    assert (len(reader), reader[1]["note"]) == (3, block.row(1, SCHEMA)["note"])
    row = reader.row(1, ["speed", "*.age"])
    assert list(row) == ["log_id", "timestamp", "speed", "camera.front.age", "speed.age"]
    assert row["speed.age"] == block.columns["speed.age"][1]


def write(directory, blocks, schema, **options):
    directory.mkdir(exist_ok=True)
    writer = BagsWriter(directory, schema, **options)
    for block in blocks:
        writer.append(block)
    return writer.close()


@given(schemas(), st.integers(0, 2**32), st.integers(1, 9), st.sampled_from([1, 3]))
def test_rows_of_any_schema_read_back_bit_by_bit(tmp_path_factory, schema, seed, num_rows, generation):
    path = tmp_path_factory.mktemp("bags")
    block = random_block(schema, num_rows, seed)
    write(path, [block], schema, generation=generation)
    reader = pickle.loads(pickle.dumps(BagsReader(path, schema)))
    assert len(reader) == num_rows
    blocks = list(reader.blocks(max_bytes=500))
    assert digests(blocks, schema) == digests([block], schema)
    assert {b.log_id for b in blocks} == {block.log_id}
    assert [b.first_row for b in blocks] == np.cumsum([0, *map(len, blocks)])[:-1].tolist()
    for index in range(num_rows):
        expected = block.row(index, schema)
        found = reader[index]
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert_equal_values(found[name], value)


def test_a_row_is_a_datapoint_with_default_types(tmp_path):
    block = random_block(SCHEMA, 3, 0)
    write(tmp_path / "unit", [block], SCHEMA)
    with granular.DatasetReader(tmp_path / "unit", granular.decoders) as reader:
        assert reader.spec == {
            "camera.front": "bytes",
            "lidar.points": "array",
            "log_id": "utf8",
            "meta": "msgpack",
            "note": "utf8",
            "objects": "tree",
            "speed": "array",
            "steps": "i64",
            "timestamp": "i64",
        }
        row, expected = reader[1], block.row(1, SCHEMA, tuple(SCHEMA.all))
    assert (row["log_id"], row["timestamp"]) == (expected["log_id"], expected["timestamp"])
    assert row["steps"] == expected["steps"]
    assert row["meta"] == {name: expected[name].item() for name in SCHEMA.meta}
    assert row["lidar.points"].tobytes() == expected["lidar.points"].tobytes()
    assert row["objects"]["id"].tolist() == expected["objects"]["id"].tolist()


def test_a_reader_reads_only_the_bags_it_is_asked_for(tmp_path):
    block = random_block(SCHEMA, 3, 0)
    write(tmp_path / "unit", [block], SCHEMA)
    for name in ("camera.front", "lidar.points", "meta"):
        (tmp_path / "unit" / f"{name}.bag").unlink()
    reader = BagsReader(tmp_path / "unit", SCHEMA)
    assert reader.row(2, ["speed"])["speed"].tobytes() == block.columns["speed"][2].tobytes()
    (found,) = reader.blocks(["speed", "note"])
    assert list(found.columns) == ["timestamp", "speed", "note"]
    with pytest.raises(DatasetError, match=r"camera\.front\.bag"):
        reader[0]


def test_rows_of_two_logs_in_one_folder_are_refused(tmp_path):
    with pytest.raises(UsageError, match="one log"):
        write(tmp_path, [random_block(SCHEMA, 2, 0), random_block(SCHEMA, 2, 0, log_id="b")], SCHEMA)


def test_stamps_that_go_back_are_refused(tmp_path):
    block = random_block(SCHEMA, 2, 0)
    with pytest.raises(UsageError, match="don't ascend"):
        write(tmp_path, [block, block], SCHEMA)


def test_values_of_another_type_name_the_column(tmp_path):
    block = random_block(SCHEMA, 2, 0)
    with pytest.raises(UsageError, match="speed"):
        write(tmp_path, [block], Schema({"speed": ColumnType("<f8")}))


def test_a_record_of_another_type_is_an_error_that_names_bag_and_rows(tmp_path):
    write(
        tmp_path,
        [random_block(Schema({"speed": ColumnType("<f4")}), 4, 0)],
        Schema({"speed": ColumnType("<f4")}),
    )
    reader = BagsReader(tmp_path, Schema({"speed": ColumnType("<f8")}))
    with pytest.raises(DatasetError, match=r"speed\.bag, rows 0 to 3"):
        list(reader.blocks())


@pytest.mark.parametrize(
    ("given_options", "words"),
    [
        ({"types": {"camera.frnt": "jpg"}}, "camera.frnt"),
        ({"types": {"lidar.points": "jpg"}}, "encode: jpg"),
        ({"types": {"note": "bytes"}}, "utf8"),
        ({"types": {"camera.front": "nonsense"}}, "bytes"),
        ({"columns": ["radar.*"]}, "radar"),
    ],
)
def test_each_option_that_does_not_fit_is_one_line(given_options, words):
    (line,) = FORMAT.check(FORMAT.Options(**given_options), SCHEMA)
    assert words in line
    assert "\n" not in line


def test_a_unit_reads_back_through_the_format(tmp_path):
    chosen = FORMAT.Options(types={"camera.front": "jpg"}, columns=["camera.*", "speed"], generation=3)
    assert FORMAT.check(chosen, SCHEMA) == []
    block = random_block(SCHEMA, 5, 0)
    writer = FORMAT.writer(tmp_path, SCHEMA, chosen, CONTEXT)
    writer.append(block)
    entry = writer.close()
    reader = FORMAT.reader(str(tmp_path), SCHEMA, chosen, entry, storage_options={})
    assert list(reader.schema.columns) == ["camera.front", "speed"]
    assert digests(list(reader.blocks()), reader.schema) == digests([block], reader.schema)
    files = sorted(path.name for path in tmp_path.iterdir())
    shown = FORMAT.view(12, [*files, "entry.json"])
    assert shown == {name: f"000012/{name}" for name in files}
    assert not any(name.startswith("refs") for name in files)


def test_a_unit_with_fewer_rows_than_written_is_found(tmp_path):
    write(tmp_path, [random_block(SCHEMA, 3, 0)], SCHEMA)
    reader = FORMAT.reader(str(tmp_path), SCHEMA, FORMAT.Options(), {"rows": 4})
    with pytest.raises(DatasetError, match="3 rows, 4 were written"):
        list(reader.blocks())


def test_blocks_in_any_order_become_the_folder_that_one_writer_makes(tmp_path):
    schema = schema_of(TYPES[::6])
    block = random_block(schema, 9, 0)
    write(tmp_path / "expected", [block], schema)
    finish(WriteToBags(str(tmp_path / "out"), schema), cut(block, [2, 3, 7])[::-1])
    folder = tmp_path / "out" / "000000"
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert found.pop("_written.json")
    assert found == {path.name: path.read_bytes() for path in (tmp_path / "expected").iterdir()}
    assert {path.parent for path in (tmp_path / "out").rglob("*") if path.is_file()} == {folder}


def test_steps_of_a_pipeline_read_folders_as_blocks(tmp_path):
    schema = schema_of(TYPES[::6])
    for n in range(2):
        write(tmp_path / str(n), [random_block(schema, 4, n, log_id=f"log{n}")], schema)
    uris = [str(tmp_path / str(n)) for n in range(2)]
    found = read_here(ReadFromBags(uris, schema, max_bytes=20_000))
    assert {block.log_id for block in found} == {"log0", "log1"}
    for n in range(2):
        own = [block for block in found if block.log_id == f"log{n}"]
        assert digests(own, schema) == digests([random_block(schema, 4, n, log_id=f"log{n}")], schema)


def test_a_generation_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(UsageError, match="generation"):
        WriteToBags(str(tmp_path), SCHEMA, generation=2)
