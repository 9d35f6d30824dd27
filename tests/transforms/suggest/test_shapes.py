"""Lists of numbers that have one length in all messages are suggested as vectors, in every language."""

import pathlib
import re

import numpy as np
import pytest

from logloom.errors import RecipeError
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.pipelines.plan.column_warnings import column_warnings
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.transforms.rows.plan.image_forms import list_misfits
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.suggest.recipe import suggest
from tests.transforms.ros2_logs import COMMAND, START, write_log
from tests.transforms.rows.test_nan import in_json, opened, protobuf, ros1, samples, table
from tests.transforms.rows.test_pose_lookups import built

MS = 1_000_000


def mcap(write):
    return lambda path, messages: write(path.with_suffix(".mcap"), messages)


def columns_of(*logs):
    named = {f"log-{number}": log for number, log in enumerate(logs)}
    recipe = Recipe.from_yaml(suggest(named))
    resolve(recipe, named)
    return recipe.columns


def list_of(columns):
    (found,) = [one for one in columns.values() if one.topic == "/s" and "list" in one.field[0]]
    return found


@pytest.mark.parametrize(
    "write", [mcap(in_json), mcap(protobuf), mcap(ros1), table], ids=["json", "protobuf", "ros1", "table"]
)
def test_lists_of_one_length_are_suggested_as_vectors(tmp_path, write):
    messages = samples(0, 20)
    log = opened(write(tmp_path / "same", messages))
    found = list_of(columns_of(log))
    assert (found.shape, found.resample) == ((2,), "nearest")
    messages[7][1]["list"] = [1.0]
    other = opened(write(tmp_path / "other", messages))
    for logs in ((other,), (log, other)):
        columns = columns_of(*logs)
        found = list_of(columns)
        assert found.shape is None


def gains(*lists):
    return [
        (START + i * 10 * MS, {"throttle": float(i), "gains": list(map(float, one))})
        for i, one in enumerate(lists)
    ]


def log_of(path: pathlib.Path, *lists, **options):
    return open_log([write_log(path, {"/cmd": (COMMAND, gains(*lists))})], OpenOptions(**options))


@pytest.mark.parametrize("lists", [[[1, 2]], [[], []], [[1], [1, 2]], [[1, 2], []]])
def test_lists_that_are_few_or_empty_or_differ_stay_lists(tmp_path, lists):
    columns = columns_of(log_of(tmp_path / "a.mcap", *lists))
    assert [column.shape for column in columns.values() if "gains" in column.field] in ([None], [])


def plan_of(log, on_error="fail", **keys):
    data = {
        "name": "arm",
        "logs": ["*"],
        "clock": {"topic": "/cmd"},
        "columns": {"gains": {"topic": "/cmd", "field": "gains", "tolerance": "25ms", **keys}},
        "on_error": on_error,
        "outputs": {"tar": {}},
    }
    if keys.get("resample") in ("window", "mean"):
        data["columns"]["gains"] |= {"window": ["-15ms", "0ms"]}
        del data["columns"]["gains"]["tolerance"]
    return resolve(Recipe.model_validate(data), {"drive": log})[0]


@pytest.mark.parametrize("policy", ["linear", "window", "mean"])
def test_the_error_of_a_policy_names_the_shape_which_then_builds(tmp_path, policy):
    lists = [[i, 2 * i, 3 * i] for i in range(5)]
    log = log_of(tmp_path / "drive.mcap", *lists)
    said = rf"resample: {policy} can't be applied to float64\[\?\].*; write `shape: \[3\]`, if all lists have"
    with pytest.raises(RecipeError, match=said):
        plan_of(log, resample=policy)
    rows = built(log, plan_of(log, resample=policy, shape=[3]))[0]["gains"]
    values = np.array(lists, float)
    before = np.concatenate([values[:1], values[:-1]])
    if policy == "linear":
        np.testing.assert_array_equal(rows, values)
    elif policy == "mean":
        np.testing.assert_array_equal(rows, (values + before) / 2)
    else:
        np.testing.assert_array_equal(rows[3], values[2:4])
        assert rows.tail == (3,)


def test_lists_of_another_length_are_refused_and_counted(tmp_path):
    log = log_of(tmp_path / "drive.mcap", [1, 2], [3, 4], [5], [7, 8], on_error="skip")
    plan = plan_of(log, on_error="skip", shape=[2], resample="previous", tolerance="1ms")
    rows, tallies = built(log, plan, on_error="skip")
    assert rows["gains.available"].tolist() == [True, True, False, True]
    np.testing.assert_array_equal(rows["gains"][rows["gains.available"]], [[1, 2], [3, 4], [7, 8]])
    (refusal,) = tallies[0].refusals
    assert "a list of 1 numbers; shape [2] has 2. Write `shape: [1]` if all lists have that" in refusal.reason
    assert "`on_error: skip` refuses such messages" in refusal.reason
    assert list_misfits(plan, log) == {}


def test_a_plan_names_the_length_of_lists_that_have_another_than_the_shape(tmp_path):
    path = tmp_path / "drive.mcap"
    log = log_of(path, [1, 2, 3], [3, 4, 5], [5, 6, 7])
    said = "the first and the last list of /cmd have 3 numbers; shape [2] has 2; write `shape: [3]`"
    assert said in list_misfits(plan_of(log, shape=[2]), log)["gains"]
    assert list_misfits(plan_of(log, shape=[3]), log) == {}
    text = (
        f"name: arm\nlogs: ['{path}']\nclock: {{topic: /cmd}}\ncolumns:\n"
        "  gains: {topic: /cmd, field: gains, shape: [2], tolerance: 25ms}\noutputs: {tar: {}}\n"
    )
    with pytest.raises(RecipeError, match=re.escape(said)):
        plan_build(Recipe.from_yaml(text), str(tmp_path / "root"))
    (warning,) = column_warnings(
        plan_build(Recipe.from_yaml(text + "on_error: skip\n"), str(tmp_path / "root"))
    )
    assert (warning.kind, warning.column) == ("lists", "gains")
    assert said in warning.text
