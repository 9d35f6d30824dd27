"""A partition far larger than the blocks it is built in: blocks hold, while it is built and read back."""

import json
import subprocess
import sys

import pytest

from benchmarks import workloads
from tests.conftest import REPOSITORY

RECIPE = """\
name: large
logs: [LOG]
clock: {rate: 12}
columns:
  image: {topic: /camera/image, as: image, shape: [480, 640, 3], resample: nearest}
partition: {rows: 100000, bytes: 4GiB}
outputs:
  tar: {ext: {image: npy}}
"""
IMAGES = 1000


@pytest.mark.slow
def test_a_partition_of_many_blocks_is_never_held_whole(tmp_path, record_property):
    recipe = tmp_path / "large.yaml"
    recipe.write_text(RECIPE.replace("LOG", json.dumps(str(workloads.image_mcap(tmp_path, IMAGES)))))
    command = [sys.executable, REPOSITORY / "benchmarks" / "scripts" / "many.py"]
    done = subprocess.run(
        [*command, recipe, tmp_path / "root", "direct", "1"], check=True, stdout=subprocess.PIPE
    )
    found = json.loads(done.stdout)
    assert found["partitions"] == 1
    (shard,) = (tmp_path / "root" / "parts").rglob("*.tar")
    size, grown = shard.stat().st_size, found["driver_peak"] - found["idle"]
    told = f"one partition of {size >> 20} MiB: {found['driver_peak'] >> 20} MiB at most, {grown >> 20} by it"
    record_property("peak", told)
    print(told)
    assert size > 900e6
    assert grown < size / 2, told
