"""Blocks into a dataset and out again, in Beam."""

import itertools

import apache_beam as beam
import pytest

import logloom.io.formats.zarr
from logloom.errors import UsageError
from logloom.io.formats.zarr import ReadFromZarr, WriteToZarr, ZarrOptions
from logloom.schema import ColumnType, Schema
from tests.files import files_in
from tests.io.beam.steps import finish
from tests.io.formats.zarr.making import SCHEMA, assemble, make_block, part, stage


def logs():
    return [make_block(20, seed, log_id=log) for seed, log in enumerate(("a", "b/c"))]


def test_blocks_in_any_order_make_the_dataset_that_a_build_makes(store, tmp_path):
    expected, _ = assemble(store, [u for block in logs() for u in stage(store, block, [7])])
    blocks = [part(block, a, b) for block in logs() for a, b in itertools.pairwise([0, 7, 12, 20])][::-1]
    path = tmp_path / "written.zarr"
    assert finish(WriteToZarr(path, SCHEMA), blocks).uri == str(path)
    found = files_in(path)
    assert found.pop("_written.json")
    assert found == files_in(expected)
    assert not (tmp_path / "written.zarr.stage").exists()


def test_a_dataset_pipes_into_another_one(store, tmp_path):
    folder, _ = assemble(store, [u for block in logs() for u in stage(store, block, [7])])
    with beam.Pipeline("FnApiRunner") as pipeline:
        blocks = pipeline | ReadFromZarr(folder, max_bytes=3000)
        blocks | WriteToZarr(tmp_path / "copy.zarr", SCHEMA, ZarrOptions())
    found = files_in(tmp_path / "copy.zarr")
    assert found.pop("_written.json")
    assert found == files_in(folder)


def test_columns_that_can_not_be_arrays_are_refused_at_once(tmp_path):
    with pytest.raises(UsageError, match="datetime64"):
        WriteToZarr(tmp_path / "x.zarr", Schema({"a": ColumnType("<M8[ns]")}))


def test_public_names_are_those_in_the_list():
    for name in logloom.io.formats.zarr.__all__:
        public = getattr(logloom.io.formats.zarr, name)
        assert getattr(public, "__name__", "FORMAT") == name
    with pytest.raises(AttributeError, match="nothing"):
        logloom.io.formats.zarr.nothing  # noqa: B018
