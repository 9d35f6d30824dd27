"""A recipe with the output `zarr`, built whole, verified and opened by xarray."""

import shutil

import numpy as np
import pytest
import xarray

from logloom.io.catalog.manifest import read_manifest
from logloom.io.formats.zarr import ZarrReader
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe


@pytest.fixture(scope="module")
def recipe(drive):
    text = drive.text[: drive.text.index("\noutputs:")]
    tail = "\npartition: {rows: 10}\n"
    return Recipe.from_yaml(f"{text}\noutputs:\n  zarr: {{}}\n  tar: {{}}\n{tail}", source="drive.yaml")


@pytest.fixture(scope="module")
def root(recipe, root_of):
    return root_of(recipe)


def view(root):
    (found,) = root.glob("v*/zarr/*.zarr")
    return found


def findings(root):
    return [finding.message for finding in verify(str(root), num_workers=1).findings]


def test_the_version_is_proven(root):
    assert findings(root) == []


def test_xarray_opens_every_log_of_the_view_and_has_the_rows_of_the_tar(root):
    reader = ZarrReader(view(root))
    store = Store.at(str(root))
    rows = {log.log_id: log.rows for log in read_manifest(store).logs if log.rows}
    assert dict(zip(reader.stretches.log_ids, reader.stretches.counts.tolist(), strict=True)) == rows
    for log_id, count in rows.items():
        log = xarray.open_zarr(view(root), group=log_id)
        assert log.sizes["timestamp"] == count
        (block,) = reader.log(log_id).read(tuple(reader.schema.all), 0, count, 1 << 40)
        np.testing.assert_array_equal(log.timestamp.values.astype(np.int64), block.timestamp)
        np.testing.assert_array_equal(log["ego.position"].values, block.columns["ego.position"])


def test_a_lost_chunk_is_found_though_zarr_reads_fill_values(root, tmp_path):
    copy = tmp_path / "root"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("v????????"))
    victim = min(copy.glob("parts/zarr/*/**/ego.position/c/0/0"))
    victim.unlink()
    (message,) = findings(copy)
    assert str(victim) in message
    assert "missing" in message
