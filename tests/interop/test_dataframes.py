"""Beam's dataframes over rows of blocks, and blocks of their rows; `make interop` fetches their pandas."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from logloom.blocks import Ragged
from logloom.datasets import open as open_dataset
from logloom.recipe import Recipe
from logloom.schema import BYTES, STRING, ColumnType, Schema
from logloom.testing.rows import random_block
from tests.forking import pages_environment
from tests.interop.conftest import REPOSITORY
from tests.pages import blocks
from tests.pipelines.conftest import QUICK

SCHEMA = Schema(
    {
        "ego.speed": ColumnType("<f8"),
        "count": ColumnType("u1"),
        "half": ColumnType("<f2"),
        "note": STRING,
        "image": BYTES,
        "pose": ColumnType("<f4", (2, 3)),
        "points": ColumnType("<f4", (None, 2)),
        "box": ColumnType([("x", "<f4"), ("ids", "<i2", (2,))], (None,)),
    },
    ("ego.speed",),
)
SCRIPT = """
import json, pickle, sys
import apache_beam as beam
from apache_beam.dataframe.convert import to_dataframe, to_pcollection
from apache_beam.testing.util import assert_that
from logloom.io.beam import GroupRows, to_rows

schema, blocks = pickle.load(open(sys.argv[1], "rb"))

def save(found):
    pickle.dump({block.log_id: block.columns for block in found}, open(sys.argv[2], "wb"))

def show(means):
    print(json.dumps([means.log_id, means.ego__speed, means.count]))

with beam.Pipeline("FnApiRunner") as pipeline:
    frame = to_dataframe(pipeline | beam.Create(blocks) | to_rows(schema))
    means = frame.groupby("log_id")[["ego__speed", "count"]].mean()
    to_pcollection(means, include_indexes=True) | beam.Map(show)
    assert_that(to_pcollection(frame) | GroupRows(schema), save)
"""


def run(command, folder, env):
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def env():
    """The environment of processes with a pandas that Beam's dataframes take."""
    packages = REPOSITORY / ".cache/pandas2"
    if not (packages / "pandas").exists():
        pytest.skip(f"no pandas for Beam's dataframes here ({packages}); `make interop` fetches it")
    return {**pages_environment(), "PYTHONPATH": f"{packages}{os.pathsep}{REPOSITORY}"}


@pytest.fixture(scope="module")
def root(logs_of, root_of):
    """A version with the column that the page reads."""
    text = QUICK.format(folder=logs_of(2, 2), rows=20, outputs="{tar: {}}", more="")
    return root_of(Recipe.from_yaml(text.replace("{speed:", "{ego.speed:")))


@pytest.fixture(scope="module")
def computed(env, tmp_path_factory, root):
    """The blocks, the means by log, the columns of blocks of rows of a dataframe, lines of the page."""
    folder = tmp_path_factory.mktemp("dataframes")
    given = [random_block(SCHEMA, 30, seed, log_id) for seed, log_id in enumerate("ab")]
    for block in given:
        speeds = np.random.default_rng(5).normal(size=len(block))
        speeds[7] = np.nan
        block.columns["ego.speed"][:] = speeds
    (folder / "given").write_bytes(pickle.dumps((SCHEMA, given)))
    (folder / "demo").mkdir()
    (folder / "demo/dataset").symlink_to(root)
    (shown,) = (block.text for block in blocks("docs/beam.md") if "pandas" in block.title)
    program = f"{SCRIPT}\nfrom logloom.io.beam import ReadFrom\n{shown}"
    printed = run([sys.executable, "-c", program, "given", "found"], folder, env)
    lines = printed.splitlines()
    means = {log: numbers for log, *numbers in map(json.loads, lines[: len(given)])}
    return given, means, pickle.loads((folder / "found").read_bytes()), lines[len(given) :]


def test_means_by_log_are_those_of_numpy(computed):
    given, means, *_ = computed
    assert means.keys() == {"a", "b"}
    for block in given:
        speed, count = block.columns["ego.speed"], block.columns["count"]
        np.testing.assert_allclose(means[block.log_id], [np.nanmean(speed), np.mean(count)], rtol=1e-12)


def test_rows_of_a_dataframe_become_the_blocks_that_they_came_from(computed):
    given, _, found, _ = computed
    for block in given:
        columns = found[block.log_id]
        assert columns.keys() == block.columns.keys()
        for name, values in block.columns.items():
            other = columns[name]
            assert type(other) is type(values), name
            if isinstance(values, Ragged):
                assert other.shapes.tolist() == values.shapes.tolist(), name
                other, values = other.values, values.values
            assert (other.dtype, other.shape) == (values.dtype, values.shape), name
            assert repr(other.tolist()) == repr(values.tolist()), name  # NaN is equal to NaN


def test_the_example_of_the_page_prints_the_mean_of_each_log(computed, root):
    *_, lines = computed
    printed = dict(line.split() for line in lines)
    rows = open_dataset(root, columns=["ego.speed"])
    for log in ("drive-00", "drive-01"):
        speeds = [row["ego.speed"] for row in rows if row["log_id"] == log]
        np.testing.assert_allclose(float(printed[log]), np.mean(speeds))
