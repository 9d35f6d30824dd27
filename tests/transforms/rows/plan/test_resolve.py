"""A recipe meets real logs: what fits becomes a plan, all that doesn't is said at once."""

import numpy as np
import pytest

from logloom.errors import RecipeError
from logloom.io.logs.opening import open_log
from logloom.recipe import Recipe
from logloom.schema import ColumnType, Schema
from logloom.transforms.rows.plan.remedies import WAYS_ON
from logloom.transforms.rows.plan.resolve import hold_to, resolve
from logloom.transforms.rows.plan.row_plan import Sampling, SyncClock
from logloom.transforms.rows.plan.unfit_columns import unfit_columns
from tests.transforms.ros2_logs import COMMAND, POSE, SPEED, START, VIDEO, header, speeds, write_log

POSES = [
    (START + i, {"header": header(START + i), "pose": {"position": {"x": 1.0}, "orientation": {"w": 1.0}}})
    for i in range(3)
]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = write_log(
        tmp_path_factory.mktemp("logs") / "drive.mcap",
        {
            "/can": (SPEED, speeds()),
            "/pose": (POSE, POSES),
            "/cmd": (COMMAND, [(START, {"throttle": 1.0, "gains": [1.0]})]),
            "/video": (
                VIDEO,
                [(START, {"timestamp": {"sec": 1, "nanosec": 0}, "data": b"", "format": "h264"})],
            ),
        },
    )
    return open_log([path])


def recipe(columns: str, more: str = "", clock: str = "{rate: 10}") -> Recipe:
    lines = "".join(f"  {line.strip()}\n" for line in columns.strip().splitlines())
    return Recipe.from_yaml(f"name: t\nlogs: x\nclock: {clock}\ncolumns:\n{lines}{more}")


def mistakes(made: Recipe, **logs) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        resolve(made, logs)
    return str(caught.value).splitlines()


def test_a_recipe_that_fits_becomes_a_plan(log):
    made = recipe(
        """speed: {topic: /can, field: speed, resample: linear, unit: m s-1, dtype: float32}
        gear: {topic: /can, field: gear, tolerance: 50ms, offset: -12ms}
        matrix: {topic: /pose, field: pose.orientation, as: rotation_matrix, resample: slerp}
        turns: {topic: /pose, field: pose.orientation, as: rotation_matrix, resample: window}
        mean: {topic: /can, field: speed, resample: mean}
        throttle: {topic: /cmd, field: throttle, resample: static}"""
    )
    plan, notes = resolve(made, {"drive": log})
    types = plan.schema.columns
    assert [str(t) for t in types.values()] == [
        "float32",
        "int32",
        "float64[3, 3]",
        "float64[?, 3, 3]",
        "float64",
        "float64",
    ]
    assert types["speed"].unit == "m s-1"
    columns = {column.name: column for column in plan.columns}
    assert columns["speed"].sampling == Sampling("linear", tolerance=100_000_000)  # the period
    assert columns["gear"].sampling == Sampling("previous", tolerance=50_000_000, offset=-12_000_000)
    assert columns["mean"].sampling == Sampling("mean", window=(-100_000_000, 0))
    assert columns["matrix"].message_type.shape == (4,)
    assert notes == ()


def test_everything_that_does_not_fit_is_said_at_once(log):
    made = recipe(
        """a: {topic: /cn, field: speed}
        b: {topic: /can, field: sped}
        c: {topic: /can, field: note, resample: mean}
        d: {topic: /pose, field: pose.position, resample: slerp}
        e: {topic: /cmd, field: gains, resample: window}
        f: {topic: /video, field: data}
        g: {topic: /can, field: speed}
        h: {derive: "no_such_module:f", from: [g], dtype: int32}""",
        "rows: {where: \"g == 'fast'\"}\n"
        "time: {topics: {/cmd: header, /cmdd: log}}\n"
        "outputs: {tar: {ext: {g: npy}}}\n",
    )
    lines = mistakes(made, drive=log)
    expected = [
        "recipe.yaml:5: columns.a.topic: the log has no topic '/cn'; did you mean /can?",
        "recipe.yaml:6: columns.b.field: ",
        "recipe.yaml:7: columns.c.resample: mean ",
        "recipe.yaml:8: columns.d.resample: slerp needs quaternions",
        "recipe.yaml:9: columns.e.resample: window can't be applied to float64[?]",
        "recipe.yaml:10: columns.f.topic: /video is compressed video",
        "recipe.yaml:12: columns.h.derive: derive 'no_such_module:f'",
        "recipe.yaml:13: rows.where: character 6 of",
        "recipe.yaml:14: time.topics./cmdd: the log has no topic '/cmdd'; did you mean /cmd?",
        "recipe.yaml:15: outputs.tar: ext: g (float64) is kept in meta.json",
    ]
    assert len(lines) == len(expected), "\n".join(lines)
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start), line
    assert "did you mean speed?" in lines[1]


def test_a_topic_without_the_wanted_stamp_names_the_line_and_what_it_has(log):
    made = recipe("a: {topic: /cmd, field: throttle}", "time: {by: header}\n")
    (line,) = mistakes(made, drive=log)
    assert line.startswith("recipe.yaml:6: time.by")
    assert "have no header stamp; write topics: {/cmd: log}" in line
    resolve(
        recipe("a: {topic: /cmd, field: throttle, resample: static}", "time: {by: header}\n"), {"drive": log}
    )


def test_a_topic_that_some_logs_lack_is_listed_unless_it_is_wanted(log, tmp_path):
    other = open_log([write_log(tmp_path / "other.mcap", {"/can": (SPEED, speeds())})])
    columns = "a: {topic: /can, field: speed}\nb: {topic: /cmd, field: throttle%s}"
    _, notes = resolve(recipe(columns % ""), {"drive": log, "other": other})
    assert tuple(map(str, notes)) == ("1 log (other) has no message of /cmd; unavailable there: b",)
    (line,) = mistakes(recipe(columns % ", missing: fail"), drive=log, other=other)
    assert line.startswith("recipe.yaml:6: columns.b.missing: 1 log (other) has no message of /cmd")


def test_a_clock_of_synced_topics_becomes_a_plan(log, tmp_path):
    clock = "{sync: [/pose, /can], within: 20ms}"
    made = recipe("speed: {topic: /can, field: speed}", "time: {max_delay: 2s}\n", clock)
    plan, notes = resolve(made, {"drive": log})
    times = (("header", "log"),) * 2
    assert plan.clock == SyncClock(("/pose", "/can"), times, "/pose", 20_000_000, 2_000_000_000)
    assert plan.columns[0].sampling == Sampling("matched", 20_000_000)
    assert not notes
    other = open_log([write_log(tmp_path / "other.mcap", {"/can": (SPEED, speeds())})])
    _, notes = resolve(made, {"drive": log, "other": other})
    assert tuple(map(str, notes)) == ("clock: 1 log (other) has no message of /pose, and so no rows",)
    made = recipe("speed: {topic: /can, field: speed}", clock="{sync: [/can, /pos], match: exact}")
    assert mistakes(made, drive=log) == [
        "recipe.yaml:3: clock.sync[1]: the log has no topic '/pos'; did you mean /pose?"
    ]


def test_a_log_without_the_clock_topic_is_listed(log, tmp_path):
    other = open_log([write_log(tmp_path / "other.mcap", {"/can": (SPEED, speeds())})])
    made = recipe("a: {topic: /can, field: speed, tolerance: 1s}", clock="{topic: /pose}")
    plan, notes = resolve(made, {"drive": log, "other": other})
    assert plan.clock.topic == "/pose"
    assert tuple(map(str, notes)) == ("clock: 1 log (other) has no message of /pose, and so no rows",)


def test_logs_that_disagree_about_a_selected_field_are_both_named(log, tmp_path):
    kind = (SPEED[0], SPEED[1].replace("float64 speed", "float32 speed"))
    other = open_log([write_log(tmp_path / "other.mcap", {"/can": (kind, speeds())})])
    made = recipe("a: {topic: /can, field: speed}\nb: {topic: /can, field: gear}")
    assert mistakes(made, drive=log, other=other) == [
        "recipe.yaml:5: columns.a.field: logs disagree about its type: "
        "float64 in log drive but float32 in log other; add `dtype: float64`, which stores both; or "
        f"{WAYS_ON}"
    ]
    # The remedy works.
    plan, _ = resolve(
        recipe("a: {topic: /can, field: speed, dtype: float64}"), {"drive": log, "other": other}
    )
    assert str(plan.schema.columns["a"]) == "float64"
    hold_to(plan, recipe("a: {topic: /can, field: speed, dtype: float64}"), "other", other)
    # About what nobody selects they may disagree.
    resolve(recipe("b: {topic: /can, field: gear}"), {"drive": log, "other": other})


@pytest.mark.parametrize("mode", ["skip", "salvage"])
def test_where_a_log_may_disagree_the_version_before_decides_then_most_logs_then_the_first(
    log, tmp_path, mode
):
    kind = (SPEED[0], SPEED[1].replace("float64 speed", "float32 speed"))
    odd = [open_log([write_log(tmp_path / f"{i}.mcap", {"/can": (kind, speeds())})]) for i in range(2)]
    lacking = (SPEED[0], SPEED[1].replace("float64 speed", "float64 pace"))
    without = open_log([write_log(tmp_path / "w.mcap", {"/can": (lacking, speeds())})])
    made = recipe("a: {topic: /can, field: speed}\nb: {topic: /can, field: gear}", f"on_error: {mode}\n")
    wide, narrow = ColumnType(np.dtype("<f8")), ColumnType(np.dtype("<f4"))

    def resolved(known=None, **logs):
        plan, notes = resolve(made, logs, known=known and Schema({"a": known}))
        (note,) = [note.text for note in notes if "disagree" in note.text]
        return (
            plan.columns[0].message_type,
            note,
            {name: unfit_columns(plan, one) for name, one in logs.items()},
        )

    found, note, unfit = resolved(b=log, c=odd[0], a=without)
    assert found == wide  # of two types, once each, that of the first log by name
    assert note == (
        "a: logs disagree about /can: the dataset uses float64 (log b); logs like a, c have another type; "
        "to use them, add `dtype: float64`, which stores both"
    )
    assert unfit["b"] == {}
    assert unfit["c"] == {"a": "its type is float32 in this log, and float64 in the dataset"}
    assert "car_msgs/Speed has no 'speed'" in unfit["a"]["a"]
    assert resolved(b=log, c=odd[0], d=odd[1])[0] == narrow
    assert resolved(wide, b=log, c=odd[0], d=odd[1])[0] == wide
    assert resolved(ColumnType(np.dtype("i1")), b=log, c=odd[0], d=odd[1])[0] == narrow
    with pytest.raises(RecipeError, match="car_msgs/Speed has no 'speed'"):
        resolve(made, {"a": without})


@pytest.mark.parametrize(
    ("types", "remedy"),
    [
        (("int8", "uint8"), "add `dtype: int16`, which stores both; or "),
        (("float32[]", "float64[]"), "add `dtype: float64`, which stores both; or "),
        (("int32", "float32", "int8"), "add `dtype: float64`, which stores all of them; or "),
        (("int64", "uint64"), "add `dtype: float64`, which rounds integers beyond 2**53; or "),
        (("int64", "float32"), "add `dtype: float64`, which rounds integers beyond 2**53; or "),
        (("int32", "string"), ""),
        (("int32", "int32[]"), ""),
    ],
)
def test_the_error_names_the_dtype_that_holds_all_types(tmp_path, types, remedy):
    logs = {}
    for number, kind in enumerate(types):
        value = "" if kind == "string" else [] if kind.endswith("[]") else 0
        topics = {"/v": (("car_msgs/msg/V", f"{kind} value\n"), [(START, {"value": value})])}
        logs[str(number)] = open_log([write_log(tmp_path / f"{number}.mcap", topics)])
    (line,) = mistakes(recipe("a: {topic: /v, field: value}"), **logs)
    assert line.endswith(f"{types[-1].replace('[]', '[?]')} in log {len(types) - 1}; {remedy}{WAYS_ON}")
    if remedy:
        dtype = remedy.split("`")[1]
        plan, notes = resolve(recipe(f"a: {{topic: /v, field: value, {dtype}}}"), logs)
        assert plan.schema.columns["a"].dtype == dtype.removeprefix("dtype: ")
        assert not [note for note in notes if "disagree" in note.text]


def test_sub_messages_that_differ_name_the_field_and_the_column_that_takes_it(tmp_path):
    logs, separator = {}, "=" * 80
    for kind in ("float32", "float64"):
        text = f"car_msgs/Box[] boxes\n{separator}\nMSG: car_msgs/Box\nint32 id\n{kind} score\n"
        message = (START, {"boxes": [{"id": 1, "score": 0.5}]})
        topics = {"/boxes": (("car_msgs/msg/Boxes", text), [message])}
        logs[kind] = open_log([write_log(tmp_path / f"{kind}.mcap", topics)])
    (line,) = mistakes(recipe("a: {topic: /boxes, field: boxes}"), **logs)
    keys = 'field: "boxes[].score", dtype: float64'
    assert f"; score is float32 or float64: take it as a column of its own, `{{{keys}}}`; or " in line
    plan, _ = resolve(recipe(f"a: {{topic: /boxes, {keys}}}"), logs)
    assert str(plan.schema.columns["a"]) == "float64[?]"


def test_thousands_of_logs_cost_one_look_at_each_definition(log):
    class Counted:
        looks = 0

        summary = log.summary

        def column_type(self, topic, spec):
            Counted.looks += 1
            return log.column_type(topic, spec)

        def time_source(self, topic, sources):
            return log.time_source(topic, sources)

    made = recipe("a: {topic: /can, field: speed}\nb: {topic: /can, field: gear}")
    plan, _ = resolve(made, {f"log{i}": Counted() for i in range(3000)})
    assert Counted.looks == 2
    assert plan.schema.columns["b"].dtype == np.int32


def test_the_order_of_logs_makes_no_difference(log, tmp_path):
    other = open_log([write_log(tmp_path / "other.mcap", {"/can": (SPEED, speeds())})])
    made = recipe("a: {topic: /can, field: speed}")
    assert resolve(made, {"a": log, "b": other}) == resolve(made, {"b": other, "a": log})
