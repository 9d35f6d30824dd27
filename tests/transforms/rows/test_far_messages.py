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


@pytest.mark.parametrize(("rows", "tolerance"), [(7, "24h"), (50, "24h"), (7, "none"), (1000, "none")])
def test_the_last_state_counts_until_the_next_whatever_its_age(tmp_path, rows, tolerance):
    def at(*seconds):
        return [(START + int(s * 1e9), {"throttle": float(s), "gains": []}) for s in seconds]

    times = (0.05, 3.33, 3.34, 21.0)
    topics = {"/clock": (COMMAND, at(*np.arange(300) / 10)), "/mode": (COMMAND, at(*times))}
    log = open_log([write_log(tmp_path / "drive.mcap", topics)], OpenOptions())
    mode = {"topic": "/mode", "field": "throttle", "tolerance": tolerance}
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


def test_an_unlimited_tolerance_fills_no_silence(tmp_path):
    times = START + np.concatenate([np.arange(50), np.arange(50) + 10 * 36_000]) * 10**8  # 10 h between
    messages = [(int(time), {"throttle": float(number), "gains": []}) for number, time in enumerate(times)]
    log = open_log([write_log(tmp_path / "drive.mcap", {"/mode": (COMMAND, messages)})], OpenOptions())
    column = {"topic": "/mode", "field": "throttle", "tolerance": "none"}
    data = {
        "name": "x",
        "logs": ["*"],
        "clock": {"rate": 10},
        "columns": {"mode": column},
        "outputs": {"tar": {}},
    }
    recipe = Recipe.model_validate(data)
    assert Recipe.from_yaml(recipe.to_yaml()).columns == recipe.columns
    found, _ = built(log, resolve(recipe, {"drive": log})[0], max_bytes=1 << 20)
    np.testing.assert_array_equal(found["timestamp"], times)
    np.testing.assert_array_equal(found["mode"], np.arange(100.0))
