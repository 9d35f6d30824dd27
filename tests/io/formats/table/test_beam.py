"""Tables in Beam pipelines."""

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

import logloom.io.formats.table as tt
from logloom.errors import UsageError
from logloom.io.formats.table.description import read_description
from tests.io.beam.steps import read_here
from tests.io.formats.table.making import assert_rows_equal, drive


def test_a_table_that_is_read_and_written_again_holds_the_same_rows(tmp_path):
    rows = drive(num_logs=3, rows=15)
    tt.write_table(f"{tmp_path}/a", rows, index="speed")
    schema = tt.row_loader(tt.read_index(f"{tmp_path}/a")).schema
    with beam.Pipeline("FnApiRunner") as pipeline:
        written = (
            pipeline
            | tt.ReadFromTable(f"{tmp_path}/a", max_bytes=2000)
            | tt.WriteToTable(
                f"{tmp_path}/b", schema, index="speed", groups={"lidar": "lidar.*"}, max_gap="1s"
            )
        )
        assert_that(written | beam.Map(lambda one: one.uri), equal_to([f"{tmp_path}/b"]))
    index = tt.read_index(f"{tmp_path}/b")
    for found, wanted in zip(tt.row_loader(index), rows, strict=True):
        assert_rows_equal(found, wanted)
    assert index.speed.tolist() == [row["speed"] for row in rows]
    assert tt.verify(f"{tmp_path}/b") == []
    table = read_description(f"{tmp_path}/b", {})
    assert (table.max_gap, next(iter(table.groups))) == (10**9, "lidar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_filtered_part_of_a_table_is_read(tmp_path):
    rows = drive(num_logs=2, rows=10)
    tt.write_table(f"{tmp_path}/a", rows, index="speed")
    wanted = [row["timestamp"] for row in rows if row["speed"] > 0.5]
    blocks = read_here(tt.ReadFromTable(f"{tmp_path}/a", columns=["lidar.*"], where="speed > 0.5"))
    assert [int(stamp) for block in blocks for stamp in block.timestamp] == wanted


def test_a_table_without_logs_makes_no_blocks(tmp_path):
    tt.write_table(f"{tmp_path}/a", [{"x": 1}])
    with pytest.raises(UsageError, match="no log_id and timestamp"):
        read_here(tt.ReadFromTable(f"{tmp_path}/a"))
