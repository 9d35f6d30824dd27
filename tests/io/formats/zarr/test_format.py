"""The output `zarr` of a recipe: its options and checks, and units through the format's interface."""

import numpy as np
import pytest
from pydantic import ValidationError

from logloom.io.formats.interface import UnitContext
from logloom.io.formats.zarr.format import FORMAT
from logloom.schema import ColumnType, Schema
from tests.io.formats.zarr.making import SCHEMA, assert_equal_columns, make_block

CONTEXT = UnitContext("car/drive", "drive.mcap", "p3", "all")


def options(**given):
    return FORMAT.Options(**given)


def test_the_options_of_the_guide_are_taken():
    assert options(rows_per_chunk=256, format=3).rows_per_chunk == 256
    assert FORMAT.check(options(rows_per_chunk=256, format=2, columns=["lidar.*"]), SCHEMA) == []


@pytest.mark.parametrize(
    "given",
    [{"format": 4}, {"rows_per_chunk": 0}, {"compress": "gzip"}, {"chunks": 3}, {"rows_per_chunk": "x"}],
)
def test_options_that_make_no_sense_are_refused(given):
    with pytest.raises(ValidationError):
        options(**given)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": ColumnType("<f4", (None,)), "a.offsets": ColumnType("<f4")}, "a.offsets"),
        ({"a": ColumnType(np.dtype([("x", "<f4")])), "a.x": ColumnType("<f4")}, "a.x"),
        ({"a": ColumnType(np.dtype([("é/", "<f4")]))}, "field"),
        ({"a": ColumnType("<M8[ns]")}, "datetime64"),
        ({"a": ColumnType("<f8", (1 << 28,))}, "1 GiB"),
    ],
)
def test_each_column_that_can_not_be_arrays_is_one_line(columns, words):
    (line,) = FORMAT.check(options(), Schema(columns))
    assert words in line
    assert "\n" not in line


def test_a_pattern_that_matches_nothing_is_one_line():
    (line,) = FORMAT.check(options(columns=["radar.*"]), SCHEMA)
    assert "radar" in line


@pytest.mark.parametrize(
    "log_id", ["../up", "a//b", "a/zarr.json", "__x", ".", "a\n", "x" * 300, ".zgroup/a"]
)
def test_a_log_id_that_can_not_name_a_group_is_one_line(log_id):
    (line,) = FORMAT.check_log(options(), log_id, "up.mcap")
    assert "log_id" in line
    assert "\n" not in line


@pytest.mark.parametrize("log_id", ["drive", "car/2026-11-01", "né.1", "a b"])
def test_other_log_ids_name_groups(log_id):
    assert FORMAT.check_log(options(), log_id, "up.mcap") == []


def test_a_unit_reads_back_through_the_format(tmp_path):
    chosen = options(columns=["camera.*", "speed"])
    block = make_block(5)
    writer = FORMAT.writer(tmp_path, SCHEMA, chosen, CONTEXT)
    writer.append(block)
    entry = writer.close()
    reader = FORMAT.reader(str(tmp_path), SCHEMA, chosen, entry, storage_options={})
    assert list(reader.schema.columns) == ["speed", "camera.front"]
    (found,) = reader.blocks()
    assert set(found.columns) == {"timestamp", *reader.schema.all}
    assert_equal_columns(found, block)
    assert FORMAT.view(0, ["entry.json", "small-columns"]) == {}
