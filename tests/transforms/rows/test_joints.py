"""Columns of joints: rows of a plain loop over messages of several publishers, and their accounts."""

import numpy as np
import pytest

from logloom.errors import LogReadError, RecipeError
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.recipe import Recipe
from logloom.schema import NO_AGE
from logloom.transforms.rows.accounts import reconcile
from logloom.transforms.rows.lineage import trace
from logloom.transforms.rows.plan.resolve import resolve
from tests.tier import by_tier
from tests.transforms.ros2_logs import HEADER, START, header, write_log
from tests.transforms.rows.test_pose_lookups import built, recipe

STATE = (
    "sensor_msgs/msg/JointState",
    "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n"
    + HEADER,
)
MS = 1_000_000


def state(time, values, names=None):
    names = list(values) if names is None else names
    said = {"name": names, "position": [values[name] for name in names], "velocity": [], "effort": []}
    return time, {"header": header(time), **said}


def random_states(rng, count=60):
    """An arm whose joints are in any order, sometimes with one fewer; a gripper; an unrelated joint."""
    states = []
    for i in range(count):
        time = START + i * 50 * MS + int(rng.integers(20)) * MS
        arm = {name: float(rng.normal()) for name in rng.permutation(["a", "b", "c"])[: 2 + (i % 4 > 0)]}
        for values in (arm, {"g": float(i)}, {"other": 0.0}):
            if rng.random() < 0.7:
                states.append(state(time + int(rng.integers(20)) * MS, values))
    return states


def log_of(path, states, **options):
    return open_log([write_log(path, {"/joint_states": (STATE, states)})], OpenOptions(**options))


def column(**keys):
    joints = {"topic": "/joint_states", "as": "joints", "field": "position", "tolerance": "100ms"}
    return {**joints, **keys}


def plan_of(log, **columns):
    data = {
        "name": "robot",
        "logs": ["*.mcap"],
        "clock": {"rate": 50},
        "columns": columns,
        "partition": {"rows": 17},
        "outputs": {"tar": {}},
    }
    return resolve(Recipe.model_validate(data), {"drive": log})[0]


def looped(ticks, states, wanted, policy):
    """(value, age) of each tick, joint by joint; None where a joint has no message."""
    rows = []
    for tick in ticks.tolist():
        found = []
        for names in wanted:
            held = {t: m for t, m in states if set(names) <= set(m["name"])}
            before = max((t for t in held if tick - 100 * MS <= t <= tick), default=None)
            after = min((t for t in held if tick <= t <= tick + 100 * MS), default=None)
            ends = [before] if policy == "previous" else [before, after]
            if None in ends:
                break
            a, b = (
                np.array([dict(zip(m["name"], m["position"], strict=True))[n] for n in names])
                for m in (held[ends[0]], held[ends[-1]])
            )
            share = 0 if ends[0] == ends[-1] else (tick - ends[0]) / (ends[-1] - ends[0])
            found.append((a + (b - a) * share, tick - before))
        whole = len(found) == len(wanted)
        rows.append((np.concatenate([v for v, _ in found]), max(age for _, age in found)) if whole else None)
    return rows


@pytest.mark.parametrize("policy", ["previous", "linear"])
@pytest.mark.parametrize("seed", range(by_tier(2, 20)))
def test_rows_are_those_of_a_loop_joint_by_joint_or_of_messages_that_have_all(tmp_path, policy, seed):
    rng = np.random.default_rng(seed)
    states = random_states(rng)
    log = log_of(tmp_path / "drive.mcap", states)
    plan = plan_of(
        log,
        arm=column(names=["b", "c", "a"], resample=policy),
        robot=column(names=["g", "b", "a"], resample=policy, partial=True),
    )
    rows, tallies = built(log, plan)
    for name, wanted in (("arm", [["b", "c", "a"]]), ("robot", [["g"], ["b"], ["a"]])):
        expected = looped(rows["timestamp"], states, wanted, policy)
        available = np.array([one is not None for one in expected])
        assert 0 < available.sum() < len(available)
        np.testing.assert_array_equal(rows[f"{name}.available"], available)
        ages = [NO_AGE if one is None else one[1] for one in expected]
        np.testing.assert_array_equal(rows[f"{name}.age"], ages)
        values = [one[0] for one in expected if one is not None]
        np.testing.assert_allclose(rows[name][available], values, rtol=1e-12)
        assert plan.schema.columns[name].names == tuple(joint for names in wanted for joint in names)
    accounts = reconcile(plan, log.summary, tallies)["/joint_states"].columns
    assert accounts["arm"].without_value == sum(len({*"abc"} & {*m["name"]}) < 3 for _, m in states)
    assert accounts["robot"].without_value == sum(not {*"gba"} & {*m["name"]} for _, m in states)
    assert 0 < accounts["robot"].used <= len(states) - accounts["robot"].without_value
    for tick in rows["timestamp"][::20].tolist():  # the lineage of a row has all messages behind it
        found = trace(log, plan, tick)["robot"]
        row = int(np.searchsorted(rows["timestamp"], tick))
        assert bool(found.used) == rows["robot.available"][row]
        if found.used:
            assert max(tick - source.time for source in found.used) == rows["robot.age"][row]


def test_a_message_with_a_joint_twice_is_refused_and_counted(tmp_path):
    states = [state(START + i * 20 * MS, {"a": float(i), "b": 0.0}) for i in range(30)]
    states[7] = state(states[7][0], {"a": 7.0, "b": 0.0}, ["a", "a", "b"])
    columns = {"one": column(names=["a"]), "parts": column(names=["a", "b"], partial=True)}
    path = tmp_path / "drive.mcap"
    log = log_of(path, states)
    with pytest.raises(LogReadError, match="it has the joint 'a' twice"):
        built(log, plan_of(log, **columns))
    log = log_of(path, states, on_error="salvage")
    rows, tallies = built(log, plan_of(log, **columns), on_error="salvage")
    accounts = reconcile(plan_of(log, **columns), log.summary, tallies)["/joint_states"].columns
    for name in columns:
        assert (accounts[name].refused, accounts[name].used) == (1, 29)
        assert (~rows[f"{name}.available"]).sum() == 1


@pytest.mark.parametrize("partial", [False, True])
def test_the_lineage_of_a_missing_value_has_the_refused_message_and_why(tmp_path, partial):
    states = [state(START + i * 20 * MS, {"a": float(i), "b": 0.0}) for i in range(30)]
    states[7] = state(states[7][0], {"a": 7.0, "b": 0.0}, ["a", "a", "b"])
    log = log_of(tmp_path / "drive.mcap", states, on_error="salvage")
    keys = {"names": ["a", "b"], "partial": partial}
    two = {name: column(resample=name, **keys) for name in ("linear", "previous")}
    window = column(resample="mean", window=["-50ms", "0ms"], tolerance=None, **keys)
    plan = plan_of(log, mean=window, **two)
    found = trace(log, plan, states[7][0])
    for name in ("linear", "previous"):
        assert found[name].used == ()
        assert found[name].reason.startswith("a message that it would use is refused: ")
        assert found[name].reason.endswith("it has the joint 'a' twice")
        assert [source.time for source in found[name].nearest] == [states[7][0]]
    used = states[5:8] if partial else states[5:7]  # of b alone, the message has a value
    assert [source.time for source in found["mean"].used] == [time for time, _ in used]


def test_the_lineage_of_a_static_value_that_is_refused_has_why(tmp_path):
    states = [state(START, {"a": 0.0}), state(START + 20 * MS, {"a": 1.0}, ["a", "a"])]
    log = log_of(tmp_path / "drive.mcap", states, on_error="salvage")
    plan = plan_of(log, still=column(names=["a"], resample="static", tolerance=None))
    found = trace(log, plan, START)["still"]
    assert (found.used, [source.log_time for source in found.nearest]) == ((), [START + 20 * MS])
    assert found.reason.endswith("it has the joint 'a' twice")


@pytest.mark.parametrize("odd", range(14, 20))  # a partition ends after 17 ticks
def test_a_message_that_one_joint_refuses_and_another_uses_counts_once(tmp_path, odd):
    states = [state(START + i * 20 * MS, {"a": float(i), "b": 0.0}) for i in range(30)]
    states[odd] = state(states[odd][0], {"a": 7.0, "b": 0.0}, ["a", "a", "b"])
    log = log_of(tmp_path / "drive.mcap", states, on_error="salvage")
    keys = {"resample": "mean", "window": ["-100ms", "60ms"], "tolerance": None, "partial": True}
    plan = plan_of(log, parts=column(names=["a", "b"], **keys))
    rows, tallies = built(log, plan, on_error="salvage")
    assert len(tallies) == 2
    account = reconcile(plan, log.summary, tallies)["/joint_states"].columns["parts"]
    assert (account.refused, account.used, account.not_chosen) == (1, 29, 0)
    assert rows["parts.available"].all()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("as: joints, field: position", "needs `names`"),
        ("as: joints, names: [a]", "needs one `field`"),
        ("as: joints, field: [position, velocity], names: [a]", "needs one `field`"),
        ("as: joints, field: position, names: [a, b, a]", "`names` has 'a' twice"),
        ("field: position, names: [a]", "`names` needs `as: joints`"),
        ("field: position, partial: true", "`partial` needs `as: joints`"),
        ("as: joints, field: position, names: [a], shape: [1]", "`shape` is for images"),
        ("as: 'joints[a]', field: position, names: [a]", r"write joints alone"),
        *(
            (
                f"as: joints, field: position, names: [a], partial: true, resample: {policy}",
                "`partial` has no meaning",
            )
            for policy in ("window", "all", "count", "static")
        ),
    ],
)
def test_a_mistaken_column_is_refused_with_its_place(keys, words):
    with pytest.raises(RecipeError, match=rf"columns.arm.*{words}"):
        recipe(f"arm: {{topic: /joint_states, {keys}}}")
