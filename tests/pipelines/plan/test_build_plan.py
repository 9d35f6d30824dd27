"""What a plan says of itself to whoever runs it."""

import pytest

from logloom.demo import make_drives
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe

RECIPE = """\
name: size
logs: ["*.mcap"]
clock: {rate: 10}
columns:
  camera: {topic: /cam/front/compressed, COLUMN, resample: nearest}
outputs:
  tar: {ext: {camera: jpg}}
"""


@pytest.mark.parametrize(
    ("column", "transcodes"),
    [("field: data", False), ("as: image, resize: [24, 32], encode: jpg", True)],
)
def test_a_build_that_resizes_or_encodes_says_so_to_who_chooses_workers(column, transcodes, tmp_path):
    make_drives(tmp_path, seconds=1)
    recipe = Recipe.from_yaml(RECIPE.replace("COLUMN", column), source="recipe.yaml")
    size = plan_build(recipe, str(tmp_path / "root"), base=str(tmp_path)).size
    assert size.transcodes == transcodes
    assert size.message_bytes > 0
    assert size.partitions > 0
