"""Suggested columns of joints: the names that messages have, and whether one message has all."""

import pytest
import yaml

import logloom.datasets
from logloom.io.logs.opening import open_log
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.stats.stats import column_statistics, elements
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.transforms.suggest.recipe import suggest
from tests.transforms.ros2_logs import HEADER, START, header, write_log
from tests.transforms.rows.test_joints import MS, log_of, state


def columns_of(text):
    return {name: dict(keys) for name, keys in yaml.safe_load(text)["columns"].items()}


def arm(i, names=("a", "b")):
    order = names if i % 2 == 0 else names[::-1]
    return state(START + i * 20 * MS, {name: float(i) for name in order})


def test_the_joints_of_all_messages_are_named_and_empty_lists_left_out(tmp_path):
    text = suggest({"drive": log_of(tmp_path / "drive.mcap", [arm(i) for i in range(40)])})
    assert columns_of(text) == {
        "joint_states.position": {
            "topic": "/joint_states",
            "as": "joints",
            "field": "position",
            "resample": "linear",
            "names": ["a", "b"],
            "tolerance": "50ms",
        }
    }
    assert "# left out: velocity, effort: no message has values of joints there" in text
    assert "joints: " not in text


def test_joints_of_different_publishers_are_partial_and_listed_by_their_messages(tmp_path):
    gripper = [state(START + (i * 60 + 5) * MS, {"g": 0.5}) for i in range(13)]
    log = log_of(tmp_path / "drive.mcap", [*(arm(i) for i in range(40)), *gripper])
    text = suggest({"drive": log})
    found = columns_of(text)["joint_states.position"]
    assert (found["names"], found["partial"], found["resample"]) == (["a", "b", "g"], True, "linear")
    assert found["tolerance"] == "100ms"  # of the gripper, every 60 ms
    assert "# joints: a, b in 40 messages; g in 13 messages" in text
    some = [
        state(time, {"a": 1.0}) if i % 3 else (time, said)
        for i, (time, said) in enumerate(map(arm, range(40)))
    ]
    found = columns_of(suggest({"drive": log_of(tmp_path / "some.mcap", some)}))["joint_states.position"]
    assert (found["names"], "partial" in found) == (["a", "b"], False)  # some messages have all


def test_other_messages_of_joints_are_suggested_by_their_fields(tmp_path):
    kind = (
        "trajectory_msgs/msg/JointTrajectory",
        "std_msgs/Header header\nstring[] joint_names\nPoint[] points\nfloat64 speed\n"
        + HEADER
        + "================\nMSG: trajectory_msgs/Point\nfloat64[] positions\n",
    )
    said = {"joint_names": ["a", "b"], "points": [{"positions": [1.0, 2.0]}] * 2, "speed": 1.0}
    messages = [(t, {"header": header(t), **said}) for t in range(START, START + 2000 * MS, 50 * MS)]
    path = write_log(tmp_path / "drive.mcap", {"/plan": (kind, messages)})
    found = columns_of(suggest({"drive": open_log([path])}))
    assert found["plan.points.positions"]["field"] == "points[0].positions"
    assert found["plan.points.positions"]["names"] == ["a", "b"]
    assert found["plan.speed"]["field"] == "speed"
    assert len(found) == 2


@pytest.mark.parametrize("with_gripper", [False, True])
def test_the_suggestion_builds(tmp_path, with_gripper):
    states = [arm(i) for i in range(40)]
    states += [state(START + (i * 60 + 5) * MS, {"g": 0.5}) for i in range(10 * with_gripper)]
    text = suggest({"drive": log_of(tmp_path / "drive.mcap", states)})
    root = str(tmp_path / "root")
    build(plan_build(Recipe.from_yaml(text), root), num_workers=1)
    assert verify(root, against_logs=True, num_workers=1).is_proven
    names = ["a", "b", "g"] if with_gripper else ["a", "b"]
    found = column_statistics(root, columns=["joint_states.position"]).columns()["joint_states.position"]
    assert found["names"] == names
    assert [label for label, _ in elements("p", found)] == [f"p[{name}]" for name in names]
    rows = logloom.datasets.open(root)
    assert rows.schema.columns["joint_states.position"].names == tuple(names)
