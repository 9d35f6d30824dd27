"""Messages that change over the years: other types, other names of topics and fields."""

import numpy as np
import pytest

from logloom import datasets
from logloom.errors import LogloomError, LogReadError, RecipeError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.head.why import Explainer
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.transforms.ros2_logs import SECOND, START, write_log

COUNT = 20


def night(archive, name, number, kind, values, topic="/grip", field="width"):
    """Write a log of one message each 0.1 s; its first tick is that of its first message."""
    times = [START + number * 3600 * SECOND + i * SECOND // 10 for i in range(len(values))]
    messages = [(time, {field: value}) for time, value in zip(times, values, strict=True)]
    topics = {topic: ((f"lab_msgs/msg/Grip{number}", f"{kind} {field}\n"), messages)}
    return write_log(archive / f"{name}.mcap", topics)


def planned(archive, column, more="", **choices):
    text = (
        f"name: t\nlogs: ['*.mcap']\nclock: {{rate: 10}}\ncolumns:\n  grip: {{{column}, resample: nearest}}\n"
        f"outputs: {{tar: {{}}}}\n{more}"
    )
    recipe = Recipe.from_yaml(text, source="grip.yaml")
    return plan_build(recipe, str(archive / "root"), base=str(archive), **choices)


def rows(archive):
    """Values and log_ids of all rows."""
    opened = datasets.open(str(archive / "root"))
    found = [opened[i] for i in range(len(opened))]
    return [row["grip"] for row in found], [row["log_id"] for row in found]


EIGHTHS = [i / 8 for i in range(COUNT)]


@pytest.mark.parametrize("sample", [None, 1])
def test_a_night_with_a_new_type_is_cast_and_what_is_built_is_reused(tmp_path, sample):
    night(tmp_path, "a", 0, "float32", EIGHTHS)
    build(planned(tmp_path, "topic: /grip, field: width"))
    night(tmp_path, "b", 1, "float64", [value + 0.1 for value in EIGHTHS])
    with pytest.raises(
        RecipeError, match=r"float32 in log a but float64 in log b; add `dtype: float64`"
    ) as of:
        planned(tmp_path, "topic: /grip, field: width")
    assert "or add `dtype: float32`, which the dataset has, so that only new logs are built; or" in str(
        of.value
    )
    plan = planned(tmp_path, "topic: /grip, field: width, dtype: float32", sample=sample)
    assert plan.kept.logs == 1
    build(plan)
    values, names = rows(tmp_path)
    assert {value.dtype for value in values} == {np.dtype(np.float32)}
    expected = np.concatenate([EIGHTHS, np.array(EIGHTHS) + 0.1]).astype(np.float32)
    assert np.array_equal(values, expected)
    assert names == ["a"] * COUNT + ["b"] * COUNT
    assert planned(tmp_path, "topic: /grip, field: width, dtype: float32", sample=sample).up_to_date
    assert planned(tmp_path, "topic: /grip, field: width, dtype: float64", sample=sample).kept.logs == 0


def test_lists_are_cast_as_well(tmp_path):
    lists = [[i / 8] * (i % 3) for i in range(COUNT)]
    night(tmp_path, "a", 0, "float32[]", lists)
    night(tmp_path, "b", 1, "float64[]", lists)
    build(planned(tmp_path, "topic: /grip, field: width, dtype: float64"))
    values, _ = rows(tmp_path)
    assert [value.tolist() for value in values] == lists * 2


@pytest.mark.parametrize(
    ("kind", "value", "dtype"),
    [
        ("int64", 10**12, "int32"),
        ("int16", 300, "uint8"),
        ("float64", 1e300, "float32"),
        ("float32", 2e9, "int16"),
    ],
)
def test_a_number_that_does_not_fit_ends_the_build_or_leaves_its_log_out(tmp_path, kind, value, dtype):
    night(tmp_path, "a", 0, dtype, [0] * COUNT)
    night(tmp_path, "b", 1, kind, [0] * (COUNT - 1) + [value])
    column = f"topic: /grip, field: width, dtype: {dtype}"
    with pytest.raises(LogloomError, match=rf"does not fit {dtype}\. Give the column a wider dtype"):
        build(planned(tmp_path, column))
    manifest = build(planned(tmp_path, column, "on_error: skip\n")).manifest
    (skipped,) = [record for record in manifest.logs if record.status == "skipped"]
    assert skipped.log_id == "b"
    assert f"does not fit {dtype}" in skipped.reasons[0]


def test_dtype_brings_back_a_log_that_was_left_out_for_its_type(tmp_path):
    night(tmp_path, "a", 0, "int8", range(COUNT))
    night(tmp_path, "b", 1, "uint8", range(COUNT))
    for mode in ("skip", "salvage"):
        build(planned(tmp_path, "topic: /grip, field: width", f"on_error: {mode}\n"))
        build(planned(tmp_path, "topic: /grip, field: width, dtype: int8", f"on_error: {mode}\n"))
        values, _ = rows(tmp_path)
        assert list(map(int, values)) == [*range(COUNT)] * 2


ANY = "topic: {any: [/grip, /gripper/state]}, field: {any: [width, breadth]}, dtype: float64"


@pytest.mark.parametrize("sample", [None, 1])
def test_a_night_with_other_names_adds_only_its_log(tmp_path, sample):
    night(tmp_path, "a", 0, "float32", EIGHTHS)
    build(planned(tmp_path, ANY))
    night(tmp_path, "b", 1, "float64", EIGHTHS, topic="/gripper/state", field="breadth")
    night(tmp_path, "c", 2, "float64", EIGHTHS, topic="/gripper/state")
    plan = planned(tmp_path, ANY, sample=sample)
    assert plan.kept.logs == 1
    build(plan)
    values, names = rows(tmp_path)
    assert np.array_equal(values, EIGHTHS * 3)
    assert names == ["a"] * COUNT + ["b"] * COUNT + ["c"] * COUNT
    assert planned(tmp_path, ANY, sample=sample).up_to_date
    verified = verify(str(tmp_path / "root"), against_logs=True)
    assert verified.is_proven, verified


def test_times_and_clocks_by_the_first_name_hold_for_the_others(tmp_path):
    night(tmp_path, "a", 0, "float32", EIGHTHS)
    night(tmp_path, "b", 1, "float32", EIGHTHS, topic="/gripper/state")
    text = (
        "name: t\nlogs: ['*.mcap']\nclock: {topic: /grip}\ncolumns:\n"
        f"  grip: {{{ANY}, resample: exact}}\n"
        "time: {topics: {/grip: {offset: 5ms}}}\noutputs: {tar: {}}\n"
    )
    recipe = Recipe.from_yaml(text)
    build(plan_build(recipe, str(tmp_path / "root"), base=str(tmp_path)))
    opened = datasets.open(str(tmp_path / "root"))
    times = [int(opened[i]["timestamp"]) for i in range(len(opened))]
    first = [START + i * SECOND // 10 + 5_000_000 for i in range(COUNT)]
    assert times == [*first, *(time + 3600 * SECOND for time in first)]
    assert np.array_equal(rows(tmp_path)[0], EIGHTHS * 2)


@pytest.mark.parametrize("kind", ["topics", "fields"])
def test_a_log_with_two_of_the_names_fails_with_both(tmp_path, kind):
    times = [START + i * SECOND // 10 for i in range(COUNT)]
    one = ("lab_msgs/msg/One", "float64 width\n"), [(time, {"width": 1.0}) for time in times]
    two = (
        ("lab_msgs/msg/Two", "float64 width\nfloat64 breadth\n"),
        [(time, {"width": 1.0, "breadth": 2.0}) for time in times],
    )
    topics = {"/grip": one, "/gripper/state": one} if kind == "topics" else {"/gripper/state": two}
    write_log(tmp_path / "both.mcap", topics)
    night(tmp_path, "fine", 1, "float64", EIGHTHS)
    both = {"topics": "/grip and of /gripper/state", "fields": "'width' and 'breadth'"}[kind]
    with pytest.raises(LogReadError, match=f"both.mcap: .*{both}, which `any` makes one"):
        planned(tmp_path, ANY)
    manifest = build(planned(tmp_path, ANY, "on_error: skip\n")).manifest
    assert {record.log_id: record.status for record in manifest.logs} == {"both": "skipped", "fine": "whole"}


def test_lineage_names_the_topic_of_the_log_and_the_recipe_all_of_them(tmp_path):
    night(tmp_path, "b", 1, "float64", EIGHTHS, topic="/gripper/state")
    build(planned(tmp_path, ANY))
    store = Store.at(str(tmp_path / "root"))
    manifest = read_manifest(store, 1)
    (record,) = manifest.logs
    why = Explainer(store, manifest).why(record, START + 3600 * SECOND)
    assert why.to_json("grip")["topic"] == "/gripper/state"
    assert "{any: [/grip, /gripper/state]}" in why.recipe_line("grip")
    assert "{any: [width, breadth]}" in why.recipe_line("grip")
