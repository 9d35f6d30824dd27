"""Episodes and scenes of plans and builds: their number, what ends them, and the line that joins them."""

import dataclasses
import json

import numpy as np
import pytest

import logloom.datasets
from logloom.pipelines.build.build import build
from logloom.pipelines.plan import column_warnings as module
from logloom.pipelines.plan.column_warnings import with_sample
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from tests.absent import needs
from tests.transforms.ros2_logs import POSE, SECOND, SPEED, speeds, write_log

needs("lerobot")
MS = SECOND // 1000
NEAR = "resample: nearest, tolerance: 60ms"
LEROBOT = "lerobot: {fps: 10, features: {action: [base], observation.state: [x]}}"


def dropouts(lost=((30, 33), (60, 63), (61, 64)), count=100, step=100 * MS):
    """Messages at 10 Hz, of which some are missing."""
    gone = {number for start, stop in lost for number in range(start, stop)}
    messages = speeds(count, step=step)
    return SPEED, [message for number, message in enumerate(messages) if number not in gone]


def recipe(folder, x=NEAR, require="[x]", more="", outputs=LEROBOT, base=NEAR):
    return Recipe.from_yaml(
        f"name: t\nlogs: '{folder}/logs/*.mcap'\nclock: {{rate: 10}}\noutputs: {{{outputs}}}\n{more}\n"
        f"columns:\n  base: {{topic: /can, field: speed, {base}}}\n"
        f"  x: {{topic: /x, field: speed, {x}}}\nrows: {{require: {require}}}\n"
    )


def logs(folder, **topics):
    write_log(
        folder / "logs/drive.mcap", {"/can": (SPEED, speeds(100)), **{f"/{k}": v for k, v in topics.items()}}
    )


def both(folder, made):
    """The counts and warnings about sequences of a plan and of a build."""
    plan = plan_build(made, str(folder / "root"))
    sampled, built = with_sample(plan), build(plan)
    kinds = ("episodes", "scenes")
    return [
        (one.sequences, [warning for warning in one.warnings if warning.kind in kinds])
        for one in (sampled, built)
    ]


def episodes(folder):
    root = next((folder / "root").glob("v*")) / "lerobot/all/meta/info.json"
    return json.loads(root.read_text())["total_episodes"]


@pytest.mark.parametrize("policy", ["nearest", "previous", "next", "linear"])
def test_following_the_line_that_is_named_makes_one_episode(tmp_path, policy):
    logs(tmp_path, x=dropouts())
    before = f"resample: {policy}, tolerance: 60ms"
    for counts, warnings in both(tmp_path, recipe(tmp_path, before)):
        (one,), (warning,) = counts, warnings
        assert (one.number, one.logs, sum(one.lengths)) == (3, 1, one.rows)
        assert (one.shortest, one.longest) == (min(one.lengths), max(one.lengths))
        assert (warning.kind, warning.column, warning.topic, warning.log) == ("episodes", "x", "/x", "drive")
        assert "rows without x end 2" in warning.text
        assert "which makes 1 of these 3" in warning.text
        assert not warning.is_doubtful
    assert episodes(tmp_path) == 3
    rows = logloom.datasets.open(str(next((tmp_path / "root").glob("v*")) / "lerobot/all"))
    times = np.array([rows[row]["timestamp"] for row in range(len(rows))])
    lengths = np.diff([0, *(np.flatnonzero(np.diff(times) > 150 * MS) + 1), len(times)])
    assert list(one.lengths) == lengths.tolist()
    after = tmp_path / "after"
    logs(after, x=dropouts())
    line = before.replace("tolerance: 60ms", warning.line)
    for counts, warnings in both(after, recipe(after, line)):
        assert ([one.number for one in counts], warnings) == ([1], [])
    assert episodes(after) == 1


def test_partitions_change_nothing(tmp_path):
    logs(tmp_path, x=dropouts())
    ((whole,), _), (built, _) = both(tmp_path, recipe(tmp_path))
    cut = tmp_path / "cut"
    logs(cut, x=dropouts())
    (counts, _), (again, warnings) = both(cut, recipe(cut, more="partition: {rows: 7}"))
    assert again == built
    assert dataclasses.replace(whole, is_estimate=False) == built[0]
    assert counts == (whole,)
    assert len(warnings) == 1


def test_logs_that_are_skipped_have_no_episodes(tmp_path):
    logs(tmp_path, x=dropouts())
    messages = speeds(100)
    messages[-1][1]["speed"] = 1e300
    write_log(tmp_path / "logs/far.mcap", {"/can": (SPEED, messages), "/x": dropouts()})
    made = recipe(tmp_path, base=f"{NEAR}, dtype: float32", more="partition: {rows: 20}\non_error: skip")
    (counts,) = build(plan_build(made, str(tmp_path / "root"))).sequences
    assert (counts.logs, counts.number) == (1, episodes(tmp_path))


def test_a_gap_of_seconds_stays_and_what_where_drops_has_a_line_of_the_output(tmp_path):
    lost, where = ((20, 40), (60, 62)), "where: base < 80 or base > 82"
    logs(tmp_path, x=dropouts(lost))
    _, (counts, warnings) = both(tmp_path, recipe(tmp_path, require=f"[x], {where}"))
    assert [(cut.reasons, cut.is_long, cut.number) for cut in counts[0].cuts] == [
        (("require x",), False, 1),
        (("require x",), True, 1),
        (("where",), False, 1),
    ]
    by_tolerance, by_gap = warnings
    assert (by_tolerance.line, by_tolerance.column) == ("tolerance: 500ms", "x")
    assert "which makes 3 of these 4" in by_tolerance.text
    assert (by_gap.line, by_gap.column) == ("outputs: {lerobot: {episodes: {gap: 500ms}}}", "")
    assert "by where end 1" in by_gap.text
    after = tmp_path / "after"
    logs(after, x=dropouts(lost))
    outputs = LEROBOT.replace("fps: 10", "fps: 10, episodes: {gap: 500ms}")
    made = recipe(after, f"resample: nearest, {by_tolerance.line}", f"[x], {where}", outputs=outputs)
    _, (counts, warnings) = both(after, made)
    assert ([one.number for one in counts], warnings) == ([2], [])


def test_gaps_in_which_two_columns_are_missing_are_named_at_both(tmp_path):
    lost, of_base = ((30, 33),), ((31, 34), (70, 72))
    made = recipe(tmp_path, require="[base, x]")
    logs(tmp_path, x=dropouts(lost), can=dropouts(of_base))
    _, (counts, warnings) = both(tmp_path, made)
    assert [(cut.reasons, cut.number) for cut in counts[0].cuts] == [
        (("require base",), 1),
        (("require base", "require x"), 1),
    ]
    assert [(one.column, one.line) for one in warnings] == [("base", "tolerance: 1s"), ("x", "tolerance: 1s")]
    assert "some also are rows without base" in warnings[1].text
    after = tmp_path / "after"
    logs(after, x=dropouts(lost), can=dropouts(of_base))
    line = "resample: nearest, tolerance: 1s"
    _, (counts, warnings) = both(after, recipe(after, line, "[base, x]", base=line))
    assert ([one.number for one in counts], warnings) == ([1], [])


def test_only_a_part_of_a_large_log_is_sampled_and_its_episodes_are_estimated(tmp_path, monkeypatch):
    lost = [(start, start + 2) for start in range(20, 4000, 40)]
    write_log(tmp_path / "logs/drive.mcap", {"/can": (SPEED, speeds(4000)), "/x": dropouts(lost, 4000)})
    monkeypatch.setattr(module, "TICKS", 1600)
    plan = with_sample(plan_build(recipe(tmp_path), str(tmp_path / "root")))
    (one,) = plan.sequences
    assert 70 <= one.number <= 130
    assert (one.is_estimate, one.shortest, one.lengths) == (True, 0, ())
    assert str(one).startswith(f"about {one.number} episodes of 1 log; ended by gaps: ")


def test_scenes_are_counted_too(tmp_path):
    needs("l5kit")
    upright, origin = {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}, {"x": 1.0, "y": 2.0, "z": 3.0}
    pose = {"position": origin, "orientation": upright}
    poses = [(time, {"header": message["header"], "pose": pose}) for time, message in dropouts()[1]]
    write_log(tmp_path / "logs/drive.mcap", {"/can": (SPEED, speeds(100)), "/pose": (POSE, poses)})
    made = Recipe.from_yaml(
        f"name: t\nlogs: '{tmp_path}/logs/*.mcap'\nclock: {{rate: 10}}\nrows: {{require: [at]}}\n"
        "outputs: {l5kit: {translation: at, rotation: turn}}\ncolumns:\n"
        "  at: {topic: /pose, field: pose.position, resample: nearest, tolerance: 60ms}\n"
        "  turn: {topic: /pose, field: pose.orientation, resample: nearest, as: rotation_matrix}\n"
    )
    for counts, warnings in both(tmp_path, made):
        assert [(one.kind, one.number) for one in counts] == [("scene", 3)]
        assert [(one.kind, one.line) for one in warnings] == [("scenes", "tolerance: 1s")]
