"""Several messages at one stamp: annotation tables whose boxes keep their class, and text of JSON."""

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

import logloom.datasets
from logloom.errors import LogloomError, RecipeError
from logloom.io.logs.opening import open_log
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.spans import plan_spans
from tests.cases import case
from tests.pipelines.conftest import build_at
from tests.transforms.suggest.test_hostile import STEP, TIMES, write_json

STAMPS = 315_966_070_559_696_000 + np.arange(40) * 100_000_000
CLASSES = ["REGULAR_VEHICLE", "PEDESTRIAN", "Bäckerwagen", ""]
RECIPE = """
name: annotated
logs: {folder}
clock: {{topic: /annotations}}
columns:
  boxes: {{topic: /annotations, field: [length_m, width_m], resample: all}}
  classes: {{topic: /annotations, field: category, resample: all, strings: {strings}}}
  recent: {{topic: /annotations, field: category, resample: window, window: [-100ms, 0ms]}}
partition: {{rows: {rows}}}
outputs: {{tar: {{}}, table: {{}}}}
"""


@pytest.fixture(scope="module")
def boxes():
    """At each stamp some boxes: [(class, length, width)], in no order of time."""
    rng = np.random.default_rng(0)
    return [
        [
            (CLASSES[rng.integers(4)], float(rng.random()), float(rng.random()))
            for _ in range(rng.integers(1, 78))
        ]
        for _ in STAMPS
    ]


@pytest.fixture(scope="module")
def folder(boxes, tmp_path_factory):
    made = tmp_path_factory.mktemp("log") / "drive"
    made.mkdir()
    rows = [(int(t), *box) for t, found in zip(STAMPS, boxes, strict=True) for box in found]
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    names = ("timestamp_ns", "category", "length_m", "width_m")
    columns = dict(zip(names, map(list, zip(*shuffled, strict=True)), strict=True))
    pyarrow.feather.write_feather(pa.table(columns), made / "annotations.feather")
    return made


@pytest.mark.parametrize("rows", [1000, 5])
def test_boxes_of_one_time_are_one_row_and_keep_their_class(folder, boxes, tmp_path, rows):
    root = tmp_path / "root"
    build_at(Recipe.from_yaml(RECIPE.format(folder=folder, rows=rows, strings=24)), root)
    assert sum(map(len, boxes)) > 1000
    for output in ("tar", "table"):
        found = logloom.datasets.open(str(root), output=output)
        with case(output):
            assert [int(row["timestamp"]) for row in found] == STAMPS.tolist()
            for row, expected in zip(found, boxes, strict=True):
                made = [(str(c), *map(float, b)) for c, b in zip(row["classes"], row["boxes"], strict=True)]
                assert sorted(made) == sorted(expected)
                assert len(row["recent"]) == len(expected)
    assert not verify(str(root), against_logs=True, num_workers=1).findings


def test_partitions_of_a_table_count_times_and_not_rows(folder):
    log = open_log([str(folder / "annotations.feather")])
    plan, _ = resolve(Recipe.from_yaml(RECIPE.format(folder=folder, rows=10, strings=24)), {"drive": log})
    info = log.summary.topics["/annotations"]
    assert (info.num_ticks, info.num_messages > 1000) == (40, True)
    assert len(plan_spans(log.summary, plan)) in (4, 5)  # 40 ticks, 10 a partition; the grid is that of 1970


def test_a_text_that_is_longer_than_the_column_keeps_is_named(folder, tmp_path):
    with pytest.raises(
        LogloomError, match=r"column 'classes': text 'REGULAR_VEHICLE' has 15 characters.*`strings`"
    ):
        build_at(Recipe.from_yaml(RECIPE.format(folder=folder, rows=10, strings=14)), tmp_path / "root")


def test_text_of_json_without_a_schema_is_a_column(tmp_path):
    (tmp_path / "logs").mkdir()
    said = {"state": {"name": "driving", "speed": 3}}
    write_json(tmp_path / "logs" / "log.mcap", {"/state": ("", None, said)})
    text = (
        f"name: t\nlogs: {tmp_path}/logs/*.mcap\nclock: {{rate: 10}}\noutputs: {{tar: {{}}}}\ncolumns:\n"
        "  state: {topic: /state, field: state.name, dtype: string, tolerance: 1s}\n"
        "  states: {topic: /state, field: state.name, dtype: string, resample: window,"
        " window: [-150ms, 0s]}\n"
    )
    build_at(Recipe.from_yaml(text), tmp_path / "root")
    found = logloom.datasets.open(str(tmp_path / "root"))
    assert {row["state"] for row in found} == {"driving"}
    assert [row["states"].tolist() for row in found][1:] == [["driving"] * 2] * (len(TIMES) - 1)
    assert STEP == 100_000_000


def test_string_is_no_dtype_of_numbers(tmp_path):
    schema = {"type": "object", "properties": {"speed": {"type": "number"}, "name": {"type": "string"}}}
    log = open_log([write_json(tmp_path / "log.mcap", {"/state": ("State", schema, {"speed": 1.0})})])
    text = (
        "name: t\nlogs: x\nclock: {rate: 10}\ncolumns:\n  a: {topic: /state, field: FIELD, dtype: string}\n"
    )
    plan, _ = resolve(Recipe.from_yaml(text.replace("FIELD", "name")), {"log": log})
    assert plan.columns[0].ctype.kind == "string"
    with pytest.raises(
        RecipeError, match=r"recipe.yaml:5: columns.a.dtype: string is for text .* float64 here"
    ):
        resolve(Recipe.from_yaml(text.replace("FIELD", "speed")), {"log": log})
    with pytest.raises(RecipeError, match=r"columns.a.dtype: no such dtype as 'strin'; did you mean string"):
        Recipe.from_yaml(text.replace("string", "strin"))
