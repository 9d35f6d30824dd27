"""LeRobot takes no missing value; the error names the messages whose refusal made it."""

import pytest

from logloom.errors import LogloomError
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from tests.transforms.ros2_logs import COMMAND, START, write_log

RECIPE = """
name: arm
logs: ["{logs}"]
on_error: skip
clock: {{rate: 10}}
columns:
  gains: {{topic: /cmd, field: gains, shape: [2], resample: previous}}
  throttle: {{topic: /cmd, field: throttle, resample: previous}}
outputs:
  lerobot: {{fps: 10, task: drive, features: {{observation.state: [throttle, gains]}}}}
"""


def test_the_reason_of_a_skipped_log_names_the_messages_that_are_refused(tmp_path):
    lists = [[1.0, 2.0]] * 10
    lists[6] = [1.0]
    messages = [
        (START + i * 100_000_000, {"throttle": float(i), "gains": one}) for i, one in enumerate(lists)
    ]
    log = write_log(tmp_path / "drive.mcap", {"/cmd": (COMMAND, messages)})
    plan = plan_build(Recipe.from_yaml(RECIPE.format(logs=log)), str(tmp_path / "root"))
    with pytest.raises(LogloomError) as raised:
        build(plan)
    said = str(raised.value)
    assert "gains isn't available at" in said
    assert "`rows: {require: [gains]}`" in said
    assert "1 message of /cmd refused: column gains: " in said
    assert "a list of 1 numbers; shape [2] has 2" in said
