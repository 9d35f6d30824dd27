import itertools
import pickle

import apache_beam as beam
import numpy as np
import pytest

import logloom.io.formats.l5kit
from logloom.blocks import Block
from logloom.errors import UsageError
from logloom.io.formats.l5kit import ChunkedDataset, ReadFromL5Kit, WriteToL5Kit
from logloom.io.formats.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.formats.l5kit.reader import L5KitReader
from tests.files import files_in
from tests.io.beam.steps import finish
from tests.io.formats.l5kit.making import OPTIONS, PERIOD, assemble, make_rows, stage


def cut(block, edges):
    return [Block(block.log_id, f"{a}", 0, block.take(slice(a, b))) for a, b in itertools.pairwise(edges)]


def test_blocks_in_any_order_make_the_dataset_that_a_build_makes(store, tmp_path):
    logs = [make_rows(20, seed=ord(log), log_id=log) for log in "ab"]
    expected, _ = assemble(store, [u for block in logs for u in stage(store, block, [7])])
    blocks = [part for block in logs for part in cut(block, [0, 7, 12, 20])][::-1]
    path = tmp_path / "written.zarr"
    assert finish(WriteToL5Kit(path, MAPPED_SCHEMA, OPTIONS, PERIOD), blocks).uri == str(path)
    found = files_in(path)
    assert found.pop("_written.json")
    assert found == files_in(expected)
    assert not (tmp_path / "written.zarr.stage").exists()


def test_a_dataset_pipes_into_another_one(store, tmp_path):
    folder, _ = assemble(store, [u for log in "ab" for u in stage(store, make_rows(9, log_id=log), [4])])
    with beam.Pipeline("FnApiRunner") as pipeline:
        blocks = pipeline | ReadFromL5Kit(folder, max_bytes=3000)
        blocks | WriteToL5Kit(tmp_path / "copy.zarr", MAPPED_SCHEMA, OPTIONS, PERIOD)
    original, copy = ChunkedDataset(folder).open(), ChunkedDataset(tmp_path / "copy.zarr").open()
    for name in ("frames", "agents", "tl_faces"):
        np.testing.assert_array_equal(getattr(copy, name)[:], getattr(original, name)[:])
    assert copy.scenes["host"].tolist() == ["000000000", "000000001"]
    assert len(L5KitReader(tmp_path / "copy.zarr")) == 18


def test_no_blocks_make_an_empty_dataset(tmp_path):
    finish(WriteToL5Kit(tmp_path / "none.zarr", MAPPED_SCHEMA, OPTIONS), [make_rows(0)])
    assert len(ChunkedDataset(tmp_path / "none.zarr").open().frames) == 0


def test_mistakes_show_before_the_pipeline_runs(tmp_path):
    with pytest.raises(UsageError, match="blocks have no URI"):
        WriteToL5Kit(tmp_path, MAPPED_SCHEMA, OPTIONS.model_copy(update={"host": "{parent}"}))
    with pytest.raises(UsageError, match="no column 'pose'"):
        WriteToL5Kit(tmp_path, MAPPED_SCHEMA, OPTIONS.model_copy(update={"translation": "pose"}))
    pickle.dumps(WriteToL5Kit(tmp_path, MAPPED_SCHEMA, OPTIONS))


def test_every_public_name_is_there():
    assert all(
        getattr(logloom.io.formats.l5kit, name) is not None for name in logloom.io.formats.l5kit.__all__
    )
    with pytest.raises(AttributeError):
        logloom.io.formats.l5kit.nothing  # noqa: B018
