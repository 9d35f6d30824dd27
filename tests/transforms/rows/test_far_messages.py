"""A tolerance longer than the log: any earlier message counts, however few ticks a partition has."""

import numpy as np
import pytest

from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.recipe import Recipe
from logloom.transforms.rows.accounts import reconcile
from logloom.transforms.rows.plan.resolve import resolve
from tests.transforms.ros2_logs import COMMAND, START, write_log
from tests.transforms.rows.test_pose_lookups import built

MS = 1_000_000


@pytest.mark.parametrize("rows", [7, 50, 1000])
def test_the_last_state_counts_until_the_next_whatever_its_age(tmp_path, rows):
    def at(*seconds):
        return [(START + int(s * 1e9), {"throttle": float(s), "gains": []}) for s in seconds]

    times = (0.05, 3.33, 3.34, 21.0)
    topics = {"/clock": (COMMAND, at(*np.arange(300) / 10)), "/mode": (COMMAND, at(*times))}
    log = open_log([write_log(tmp_path / "drive.mcap", topics)], OpenOptions())
    mode = {"topic": "/mode", "field": "throttle", "tolerance": "24h"}
    data = {
        "name": "states",
        "logs": ["*"],
        "clock": {"rate": 10},
        "columns": {"mode": mode, "near": {**mode, "resample": "nearest"}},
        "partition": {"rows": rows},
        "outputs": {"tar": {}},
    }
    plan = resolve(Recipe.model_validate(data), {"drive": log})[0]
    found, tallies = built(log, plan, max_bytes=1 << 10)
    ticks, stamps = found["timestamp"], START + (np.array(times) * 1e9).astype(np.int64)
    last = np.searchsorted(stamps, ticks, "right") - 1
    np.testing.assert_array_equal(found["mode.available"], last >= 0)
    known = last >= 0
    np.testing.assert_array_equal(found["mode"][known], np.array(times)[last[known]])
    np.testing.assert_array_equal(found["mode.age"][known], ticks[known] - stamps[last[known]])
    nearest = np.abs(ticks[:, None] - stamps).argmin(axis=1)
    np.testing.assert_array_equal(found["near"], np.array(times)[nearest])
    accounts = reconcile(plan, log.summary, tallies)["/mode"].columns
    assert accounts["mode"].used == len(np.unique(last[known]))
    assert accounts["near"].used == len(np.unique(nearest))
