"""Warnings of columns: a policy that values don't suit, and values that are lost for one reason."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logloom.io.logs.interface import MAX_TIME, MIN_TIME, Refusal
from logloom.io.logs.opening import open_log
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.column_warnings import column_warnings
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.transforms.rows.accounts import Tally
from logloom.transforms.rows.plan.column_warnings import lost_warnings, turn_warnings, turns_of
from logloom.transforms.rows.plan.resolve import resolve
from tests.absent import present
from tests.forking import command as logloom
from tests.tier import by_tier
from tests.transforms.ros2_logs import POSE, SECOND, START, header, write_log
from tests.transforms.rows.test_deskew import column as lidar
from tests.transforms.rows.test_deskew import sweeps, topics
from tests.transforms.rows.test_pose_lookups import built
from tests.transforms.rows.test_pose_lookups import recipe as recipe_of

N = 600
STEP = SECOND // 20
STEADY = 0.05 * np.arange(N)
WHEEL = 5.0 * np.sin(np.arange(N) / 60)


def wrapped(values, turn=2 * np.pi, low=-np.pi):
    return (values - low) % turn + low


def write_car(folder, **columns):
    """A table of a car: a message each 50 ms."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({"timestamp_ns": START + 7 + np.arange(N) * STEP, **columns}), folder / "car.parquet"
    )
    return str(folder / "car.parquet")


def warnings_of(path, columns, rows=1000, max_bytes=1 << 20):
    log = open_log([path])
    plan = resolve(recipe_of(columns, rows), {"drive": log})[0]
    _, tallies = built(log, plan, max_bytes)
    return [text for _, text in turn_warnings(plan, turns_of(tallies))]


CHANGES = "`resample: angle` accepts directions in radians and changes"
MIXES = "mixes neighbouring values, but those of /car jump by a whole turn"


IN_DEGREES = wrapped(STEADY * 57.3, 360, 0)


@pytest.mark.parametrize(
    ("policy", "values", "said"),
    [
        (
            "angle",
            WHEEL,
            f"{CHANGES} 321 values of /car beyond half a turn (-4.99995 to 4.99996: without jumps ",
        ),
        ("angle", IN_DEGREES, f"{CHANGES} 593 values of /car beyond half a turn (0 to 359.115: degrees, or "),
        (
            "angle",
            np.linspace(-100, 100, N),
            f"{CHANGES} 582 values of /car beyond half a turn (-100 to 100: ",
        ),
        ("angle", STEADY, f"{CHANGES} 537 values of /car beyond half a turn (0 to 29.95: "),
        ("angle", wrapped(STEADY), ""),
        ("angle", wrapped(STEADY, low=0), ""),
        ("angle", np.float32(wrapped(STEADY)), ""),
        ("angle", np.full(N, np.nan), ""),
        ("angle", WHEEL / 5, ""),
        ("linear", wrapped(STEADY), f"`resample: linear` {MIXES} (2 pi) 5 times; write `resample: angle`"),
        (
            "linear",
            IN_DEGREES,
            f"`resample: linear` {MIXES} (360) 4 times; write `resample: nearest` (`angle` ",
        ),
        (
            "linear",
            np.int32(IN_DEGREES),
            f"`resample: linear` {MIXES} (360) 4 times; write `resample: nearest`",
        ),
        ("linear", WHEEL, ""),
        ("linear", STEADY, ""),
        ("linear", np.random.default_rng(0).uniform(-3.1, 3.1, N), ""),
        ("linear", np.where(np.arange(N) % 7, np.inf, np.nan), ""),
        ("nearest", wrapped(STEADY), ""),
    ],
)
def test_a_policy_that_bends_values_gets_a_warning_in_any_partition(tmp_path, policy, values, said):
    path = write_car(tmp_path, x=values)
    columns = f"x: {{topic: /car, field: x, resample: {policy}, tolerance: 60ms}}"
    found = warnings_of(path, columns)
    assert len(found) == bool(said)
    assert "".join(found).removeprefix("column x: ").startswith(said)
    for rows, max_bytes in by_tier([(130, 1 << 12)], [(40, 1 << 20), (170, 1 << 10)]):
        assert found == warnings_of(path, columns, rows, max_bytes)


def test_a_mean_of_values_that_jump_by_a_turn_gets_a_warning(tmp_path):
    columns = "x: {topic: /car, field: x, resample: mean, window: [-100ms, 0ms]}"
    path = write_car(tmp_path, x=wrapped(STEADY), y=STEADY)
    (found,) = warnings_of(path, columns)
    assert found.startswith(f"column x: `resample: mean` {MIXES} (2 pi) 5 times")
    assert [found] == warnings_of(path, columns, rows=30)
    assert warnings_of(path, columns.replace("field: x", "field: y")) == []


def test_neighbours_count_as_far_as_ticks_lie_between_them(tmp_path):
    """With an offset, and with messages as far apart as tolerances let them be."""
    path = write_car(tmp_path, x=wrapped(STEADY))
    for tolerance, offset, is_told in ((30, 0, True), (30, -29, True), (30, 400, True), (24, 0, False)):
        columns = (
            f"x: {{topic: /car, field: x, resample: linear, tolerance: {tolerance}ms, offset: {offset}ms}}"
        )
        found = warnings_of(path, columns)
        assert [MIXES in line for line in found] == [True] * is_told
        assert found == warnings_of(path, columns, rows=by_tier(25, 7))


def test_numbers_of_a_vector_are_told_apart(tmp_path):
    path = write_car(tmp_path, x=STEADY * 100, y=WHEEL, yaw=wrapped(STEADY))
    columns = "x: {topic: /car, field: [x, y, yaw], resample: linear, tolerance: 60ms}"
    (found,) = warnings_of(path, columns)
    assert found.endswith("(2 pi) 5 times; write `resample: angle` in a separate column")
    (found,) = warnings_of(path, columns.replace("linear", "angle"))
    assert "599 values of /car beyond half a turn (-4.99995 to 2995: degrees, or no" in found
    assert found.endswith("; write `resample: linear` in a separate column, or `nearest` if they wrap")


# --- plans and builds -----------------------------------------------------------------------------------


RECIPE = """
name: cars
logs: "{}/*/car.parquet"
log_id: "{{parent}}"
clock: {{rate: 10}}
columns:
  car.heading: {{topic: /car, field: heading, resample: linear, tolerance: 60ms}}
outputs: {{OUTPUT: {{}}}}
""".replace("OUTPUT", present("tar", "bags")[0])


def test_plan_and_build_warn_of_the_one_log_in_which_values_jump(tmp_path):
    write_car(tmp_path / "a", heading=WHEEL / 5)
    write_car(tmp_path / "b", heading=wrapped(STEADY))
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(tmp_path))
    said = f"b: column car.heading: `resample: linear` {MIXES} (2 pi) 5 times; write `resample: angle`"
    planned = logloom("plan", "recipe.yaml", "--to", "root", "--json", cwd=tmp_path)
    assert json.loads(planned.stdout)["warnings"] == [f"{said} (of the sampled messages)"]
    assert f"warning: {said}" in planned.stderr
    run = logloom("build", "recipe.yaml", "--to", "root", "--json", "--quiet", cwd=tmp_path)
    assert json.loads(run.stdout)["warnings"] == [said]
    assert run.stderr.count(f"warning: {said}\n") == 1
    assert run.returncode == 0
    assert (
        said.removeprefix("b: ") in logloom("versions", "root", "--log", "b", "--json", cwd=tmp_path).stdout
    )
    again = logloom("build", "recipe.yaml", "--to", "root", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["warnings"] == []  # nothing was built


def test_a_plan_looks_at_a_bounded_part_of_few_logs(tmp_path, monkeypatch):
    for i in range(40):
        write_car(tmp_path / f"{i:02}", heading=wrapped(STEADY))
    plan = plan_build(Recipe.from_yaml(RECIPE.format(tmp_path)), str(tmp_path / "root"))
    found = column_warnings(plan)
    assert len(found) == 20
    assert (found[0].text[:3], found[-1].text[:3]) == ("00:", "39:")


def test_the_same_logs_give_the_same_warnings_whatever_the_workers(tmp_path):
    for i in range(3):
        write_car(tmp_path / f"{i}", heading=wrapped(STEADY * (1 + i)))
    recipe = Recipe.from_yaml(RECIPE.format(tmp_path))
    one, two = (build(plan_build(recipe, str(tmp_path / f"root-{n}")), num_workers=n) for n in (1, 2))
    assert one.warnings == two.warnings
    assert [warning.text[:2] for warning in one.warnings] == [f"{i}:" for i in range(3)]


# --- values that are lost -------------------------------------------------------------------------------


def lost(path, columns, rows=1000):
    log = open_log([path])
    plan = resolve(recipe_of(columns, rows), {"drive": log})[0]
    return [text for _, text in lost_warnings(plan, log.summary, built(log, plan)[1])]


@pytest.mark.parametrize("zeros", [9, 11])
def test_a_column_most_of_whose_messages_are_refused_for_one_reason_is_told(tmp_path, zeros):
    poses = []
    for i in range(20):
        turn = {"orientation": {"w": float(i >= zeros)}}
        poses.append((START + i * STEP, {"header": header(START + i * STEP), "pose": turn}))
    path = write_log(tmp_path / "drive.mcap", {"/pose": (POSE, poses)})
    columns = "turn: {topic: /pose, field: pose.orientation, resample: slerp, tolerance: 60ms}"
    said = f"column turn: {zeros} of 20 messages of /pose can't be used: the norm of a quaternion is zero"
    for rows in (1000, 7):
        assert lost(path, columns, rows) == [said] * (zeros > 10)


def test_a_column_most_of_whose_clouds_cant_be_moved_is_told(tmp_path):
    path = write_log(tmp_path / "drive.mcap", topics(sweeps(8), stop=600))
    for rows in (1000, 7):
        *others, line = lost(path, lidar(), rows)
        count, tried = (int(word) for word in line.split() if word.isdigit())
        why = "ticks are without all points' poses of lidar in map: future"
        assert line == f"column points: {count} of {tried} {why}"
        assert tried / 2 < count < tried
        assert all(other.startswith("column pose:") for other in others)
    whole = write_log(tmp_path / "whole.mcap", topics(sweeps(8)))
    assert [line for line in lost(whole, lidar()) if "points" in line] == []


def test_reasons_that_differ_only_in_numbers_are_one(tmp_path):
    log = open_log([write_car(tmp_path, x=STEADY)])
    refusals = [Refusal("a", i, "/x", i, i, f"byte {i} of {i + 2}") for i in range(4)]
    tally = Tally(MIN_TIME, MAX_TIME, lost=tuple(refusals))
    plan = resolve(recipe_of("x: {topic: /car, field: x, resample: nearest}"), {"log": log})[0]
    topic = replace(log.summary.topics["/car"], num_messages=7)
    summary = replace(log.summary, topics={"/car": topic})
    mine = replace(tally, lost=tuple(replace(refusal, topic="/car") for refusal in refusals))
    assert [text for _, text in lost_warnings(plan, summary, [mine])] == [
        "column x: 4 of 7 messages of /car can't be used: byte 0 of 2"
    ]
    assert list(lost_warnings(plan, summary, [tally])) == []
