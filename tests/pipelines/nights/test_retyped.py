"""Messages that change over the years: other types, other names of topics and fields."""

import numpy as np
import pytest

from logloom import datasets
from logloom.errors import LogloomError, RecipeError
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
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
        f"outputs: {{table: {{}}}}\n{more}"
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
    with pytest.raises(RecipeError, match=r"float32 in log a but float64 in log b; add `dtype: float64`"):
        planned(tmp_path, "topic: /grip, field: width")
    plan = planned(tmp_path, "topic: /grip, field: width, dtype: float32", sample=sample)
    assert plan.kept.logs == 1
    build(plan)
    values, names = rows(tmp_path)
    assert {value.dtype for value in values} == {np.dtype(np.float32)}
    expected = np.concatenate([EIGHTHS, np.array(EIGHTHS) + 0.1]).astype(np.float32)
    assert np.array_equal(values, expected)
    assert names == ["a"] * COUNT + ["b"] * COUNT
    assert planned(tmp_path, "topic: /grip, field: width, dtype: float32", sample=sample).up_to_date


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
