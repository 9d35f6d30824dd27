"""Tasks that are columns until somebody asks for them."""

import numpy as np
import pyarrow as pa
import pytest

from logloom.io.logs.log_list import LogFiles, LogList
from logloom.pipelines.plan.log_tasks import ListedTasks
from logloom.recipe import Recipe

RECIPE = """
name: one
logs: ["*.mcap"]
clock: {rate: 10}
columns: {speed: {topic: /can, field: speed}}
split: {train: 0.5, val: 0.5}
"""


@pytest.fixture
def tasks():
    names = [f"car-{number:05}" for number in range(10_000)]
    logs = LogList.of(
        LogFiles(name, (f"{name}.mcap",), (f"size {at}, mtime 1",)) for at, name in enumerate(names)
    )
    rows = np.arange(1, 10_000, 2)
    keys = pa.array([None if row % 3 else f"key-{row}" for row in rows.tolist()], pa.string())
    return ListedTasks(Recipe.from_yaml(RECIPE), logs, rows, remembered=True, before=keys)


def test_they_are_those_at_their_positions(tasks):
    made = list(tasks)
    assert [task.log_id for task in made] == list(tasks.log_ids) == tasks.ids.to_pylist()
    assert (len(tasks), made[0].log_id, made[-1].log_id) == (5000, "car-00001", "car-09999")
    assert {task.split for task in made} == {"train", "val"}
    assert [task.before for task in made[:4]] == ["", "key-3", "", ""]
    assert len({task.listed for task in made}) == 5000


def test_one_and_some_are_those_of_all(tasks):
    made = list(tasks)
    assert [tasks[0], tasks[-1], tasks[4098]] == [made[0], made[-1], made[4098]]
    assert list(tasks[4090:4100]) == made[4090:4100]
    with pytest.raises(IndexError):
        tasks[5000]


def test_what_no_later_plan_may_remember_has_no_listing(tasks):
    forgotten = ListedTasks(tasks.recipe, tasks.files, tasks.rows)
    assert {(task.listed, task.before) for task in forgotten} == {("", "")}
