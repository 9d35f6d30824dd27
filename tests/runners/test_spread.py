"""The work of one log goes to all workers of an engine."""

import os

import pytest

from logloom.demo import make_drives
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions

pytestmark = pytest.mark.engines

WHOSE = """\
import logloom
from marks import mark

@logloom.derive
def whose(columns):
    mark({folder!r}, {main})
    return columns["ego.speed"]
"""
MARKS = '''\
import os
import pathlib
import time

END = time.monotonic() + 60

def mark(folder, main):
    """Name this process, and wait for another worker, however busy the machine is."""
    (pathlib.Path(folder) / str(os.getpid())).touch()
    while os.getpid() != main and len({*os.listdir(folder)} - {str(main)}) < 2 and time.monotonic() < END:
        time.sleep(0.01)
'''
RECIPE = """\
name: whose
logs: [{logs}/drive-00.mcap]
clock: {{rate: 10}}
columns:
  ego.speed: {{topic: /odom, field: twist.twist.linear.x, resample: previous}}
  whose: {{derive: "whose:whose", from: [ego.speed], dtype: float64}}
partition: {{rows: 4}}
outputs:
  zarr: {{}}
"""


@pytest.mark.parametrize("runner", ["direct", "flink"])
def test_the_partitions_of_one_log_are_built_by_both_workers(runner, tmp_path):
    make_drives(tmp_path / "logs", seconds=6)
    told = tmp_path / "told"
    told.mkdir()
    module = tmp_path / "whose.py"
    module.write_text(WHOSE.format(folder=str(told), main=os.getpid()))
    (tmp_path / "marks.py").write_text(MARKS)
    recipe = Recipe.from_yaml(RECIPE.format(logs=tmp_path / "logs"), source="whose.yaml")
    plan = plan_build(recipe, str(tmp_path / "root"), py_files=[str(module)])
    (tmp_path / "marks.py").unlink()  # it travels with the job
    build(plan, runner=RunnerOptions(runner, workers=2))
    assert len({*os.listdir(told)} - {str(os.getpid())}) == 2
