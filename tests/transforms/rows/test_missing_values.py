"""Warnings of columns that are available in few rows, with the likely reason and the line that helps."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mcap.writer import Writer

from logloom.errors import LogloomError
from logloom.io.logs.files import container_log
from logloom.pipelines.build.build import build
from logloom.pipelines.plan import column_warnings as module
from logloom.pipelines.plan.column_warnings import column_warnings
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.transforms.build.settings import BuildSettings
from logloom.transforms.rows.missing_values import Availability, Cause, availability_warnings, merged
from tests.absent import present
from tests.transforms.ros2_logs import COMMAND, POSE, SECOND, SPEED, START, TF, speeds, transform, write_log
from tests.transforms.rows.test_deskew import column as deskewed
from tests.transforms.rows.test_deskew import sweeps
from tests.transforms.rows.test_deskew import topics as lidar_topics

MS = SECOND // 1000
CAN = (SPEED, speeds(100))  # 10 s of a car, with stamps
SLOW = (SPEED, speeds(10, step=SECOND))


def commands(times):
    """Messages without stamps."""
    return COMMAND, [(time, {"throttle": 1.0, "gains": []}) for time in times]


def stamped(delay, count=100):
    return SPEED, speeds(count, delay=delay)


JOINTS = ("test_msgs/msg/Joints", "string[] name\nfloat64[] position\nfloat64[] effort")


def joint_states(*names):
    return JOINTS, [
        (
            START + i * 50 * MS,
            {"name": [names[i % len(names)]], "position": [float(i)], "effort": []},
        )
        for i in range(200)
    ]


def joints_of(field="position", **keys):
    return x_of(field=field, resample="nearest", tolerance="100ms", **{"as": "joints", **keys})


def recipe(folder, columns, clock="{rate: 10}", more=""):
    output = present("table", "tar")[0]
    return Recipe.from_yaml(
        f"name: t\nlogs: '{folder}/logs/*.mcap'\nclock: {clock}\n{more}\noutputs: {{{output}: {{}}}}\n"
        f"columns:\n  speed: {x_of('/can', resample='nearest', tolerance='60ms')}\n  x: {columns}\n"
    )


def warned(folder, topics, columns, clock="{rate: 10}", more=""):
    """The warnings of a plan and of a build of one log."""
    write_log(folder / "logs/drive.mcap", {**topics, "/can": CAN})
    plan = plan_build(recipe(folder, columns, clock, more), str(folder / "root"))
    return column_warnings(plan), build(plan).warnings


def x_of(topic="/x", field="speed", **keys):
    return f"{{topic: {topic}, field: {field}, " + ", ".join(f"{k}: {v}" for k, v in keys.items()) + "}"


NO_LIMIT = "time: {max_delay: none}"
REASONS = {
    "interpolation": (
        {"/x": SLOW},
        x_of(resample="linear"),
        "{rate: 10}",
        "",
        ("tolerance", "tolerance: 1s"),
        "10 % of 100 rows: /x comes every 1 s, its tolerance is 100 ms; write tolerance: 1s",
    ),
    "nearest": (
        {"/x": SLOW},
        x_of(resample="nearest", tolerance="120ms"),
        "{rate: 10}",
        "",
        ("tolerance", "tolerance: 1s"),
        "29 % of 100 rows: /x comes every 1 s, its tolerance is 120 ms; write tolerance: 1s",
    ),
    "window": (
        {"/x": SLOW},
        x_of(resample="window", window="[-100ms, 0ms]"),
        "{rate: 10}",
        "",
        ("window", "window: [-1s, 0s]"),
        "10 % of 100 rows: /x comes every 1 s, its window is 100 ms long; write window: [-1s, 0s]",
    ),
    "exact": (
        {"/x": (SPEED, speeds(100, start=START + 3 * MS))},
        x_of(resample="exact"),
        "{rate: 10}",
        "",
        ("exact", "resample: nearest"),
        "0 % of 100 rows: no message of /x has exactly the time of a row; write resample: nearest",
    ),
    "latched": (
        {"/x": commands([START + 50 * MS])},
        x_of(field="throttle", resample="nearest", tolerance="10ms"),
        "{rate: 10}",
        "",
        ("single", "resample: static"),
        "0 % of 100 rows: /x has one message in 9.9 s; write resample: static, which uses it for all rows",
    ),
    "ends early": (
        {"/x": commands([START + i * 8 * MS for i in range(-9, -3)])},
        x_of(field="throttle", resample="nearest", tolerance="20ms"),
        "{topic: /can}",
        "",
        ("silent", "rows: {require: [x]}"),
        "0 % of 100 rows: /x ends 9.93 s before the rows do; write rows: {require: [x]} to drop ",
    ),
    "seconds of TAI": (
        {"/x": stamped(-37 * SECOND)},
        x_of(resample="linear"),
        "{rate: 10}",
        "time: {max_delay: 60s}",
        ("clock", "time: {topics: {/x: log}}"),
        "0 % of 100 rows: /x is on another clock than the rows: stamps of /x are 37 s after its log times;",
    ),
    "simulated time": (
        {"/x": stamped(START - 5 * SECOND)},
        x_of(resample="linear"),
        "{rate: 10}",
        NO_LIMIT,
        ("clock", "time: {topics: {/x: log}}"),
        "stamps of /x are 19,675.9 days before its log times; write time: {topics: {/x: log}}, or the offset",
    ),
    "ticks in simulated time": (
        {"/sim": stamped(START - 5 * SECOND), "/x": commands([time for time, _ in CAN[1]])},
        x_of(field="throttle", resample="nearest", tolerance="100ms"),
        "{topic: /sim}",
        NO_LIMIT,
        ("clock", "time: {topics: {/sim: log}}"),
        "0 % of 100 rows: /x is on another clock than the rows: stamps of /sim are 19,675.9 days before ",
    ),
    "an offset": (
        {"/x": (SPEED, speeds(100))},
        x_of(resample="linear", offset="37s"),
        "{rate: 10}",
        "",
        ("clock", ""),
        "0 % of 100 rows: its offset of 37 s moves /x beyond the rows; correct its offset",
    ),
    "outside the recording": (
        {"/x": (SPEED, speeds(1, start=START + 86400 * 9 * SECOND))},
        x_of(resample="linear"),
        "{rate: 10}",
        "",
        ("stray", ""),
        "0 % of 100 rows: all messages of /x are outside the recording; `logloom doctor LOG` shows",
    ),
    "a joint that isn't there": (
        {"/x": joint_states("elbow", "wrist")},
        joints_of(names="[elbw]"),
        "{rate: 10}",
        "",
        ("lacking", ""),
        "none of 100 messages of /x that were read has a joint 'elbw'; correct `names`; did you mean elbow",
    ),
    "a joint that isn't there, of several publishers": (
        {"/x": joint_states("elbow", "wrist")},
        joints_of(names="[elbow, hand]", partial="true"),
        "{rate: 10}",
        "",
        ("lacking", ""),
        "that were read has a joint 'hand'; correct `names`; there are elbow, wrist",
    ),
    "joints of several publishers": (
        {"/x": joint_states("elbow", "wrist")},
        joints_of(names="[elbow, wrist]"),
        "{rate: 10}",
        "",
        ("lacking", "partial: true"),
        "none of 100 messages of /x that were read has all of its joints; write partial: true",
    ),
    "joints without efforts": (
        {"/x": joint_states("elbow")},
        joints_of("effort", names="[elbow]"),
        "{rate: 10}",
        "",
        ("lacking", ""),
        "that were read has values of its joints in effort; correct its field, or leave the column out",
    ),
    "lists that are too short": (
        {"/x": joint_states("elbow")},
        x_of(field='"position[3]"', resample="nearest"),
        "{rate: 10}",
        "",
        ("lacking", ""),
        "messages of /x have no value for it; correct the column's `field`, or leave the column out",
    ),
    "a required column": (
        {"/x": SLOW},
        x_of(resample="linear"),
        "{rate: 10}",
        "rows: {require: [x]}",
        ("tolerance", "tolerance: 1s"),
        "10 % of 100 rows: /x comes every 1 s, its tolerance is 100 ms; write tolerance: 1s",
    ),
}


@pytest.mark.parametrize(
    ("topics", "columns", "clock", "more", "kind_line", "said"), REASONS.values(), ids=REASONS.keys()
)
def test_plan_and_build_name_the_likely_reason(tmp_path, topics, columns, clock, more, kind_line, said):
    planned, built = warned(tmp_path, topics, columns, clock, more)
    own = [one for one in built if one.column == "x"]
    (warning,) = own
    assert said in warning.text
    assert warning.text.startswith("column x is available in ")
    assert (warning.kind, warning.line) == kind_line
    assert warning.is_doubtful
    (sampled,) = (one for one in planned if one.column == "x")
    assert (sampled.kind, sampled.line) == kind_line
    assert sampled.text.replace(" sampled rows", " rows") == warning.text
    assert "sampled rows" in sampled.text


def test_the_line_that_a_warning_names_fills_the_column(tmp_path):
    write_log(tmp_path / "logs/drive.mcap", {"/can": CAN, "/x": SLOW})
    keys = {"resample": "linear"}
    before = plan_build(recipe(tmp_path, x_of(**keys)), str(tmp_path / "root"))
    (warning,) = column_warnings(before)
    name, _, value = warning.line.partition(": ")
    after = plan_build(recipe(tmp_path, x_of(**keys, **{name: value})), str(tmp_path / "root"))
    assert column_warnings(after) == []
    assert build(after).warnings == ()


def test_a_plan_warns_of_columns_also_where_refused_messages_will_fail_the_build(tmp_path):
    """Under `on_error: fail`, the default."""
    write_log(tmp_path / "logs/drive.mcap", {"/can": CAN, "/x": SLOW, "/late": stamped(18 * SECOND)})
    made = recipe(tmp_path, x_of(resample="linear") + f"\n  late: {x_of('/late', tolerance='1s')}")
    slow_and_refused = column_warnings(plan_build(made, str(tmp_path / "root")))
    assert [(one.column, one.kind) for one in slow_and_refused] == [("late", "refused"), ("x", "tolerance")]
    assert "100 of 100 messages of /late can't be used: its header time is " in slow_and_refused[0].text


@pytest.mark.parametrize(
    ("delay", "words"),
    [
        (60 * MS, "the nearest are 40 ms apart, more than `within`; state the delay of a sensor, "),
        (30 * SECOND, "none are less than 1 s apart"),
    ],
)
def test_a_clock_that_matches_no_messages_is_a_warning_with_their_distance(tmp_path, delay, words):
    late = SPEED, speeds(100, start=START + delay)
    write_log(tmp_path / "logs/drive.mcap", {"/can": CAN, "/x": late})
    output = present("table", "tar")[0]
    text = (
        f"name: t\nlogs: '{tmp_path}/logs/*.mcap'\nclock: {{sync: [/can, /x], within: 20ms}}\n"
        f"outputs: {{{output}: {{}}}}\ncolumns:\n  x: {{topic: /x, field: speed}}\n"
    )
    plan = plan_build(Recipe.from_yaml(text), str(tmp_path / "root"))
    (warning,) = column_warnings(plan)
    assert warning.text.startswith(f"drive: the clock matches no messages of /can, /x: {words}")
    assert not warning.is_doubtful  # the build may have rows of other logs
    with pytest.raises(LogloomError, match=r"\(no log has messages of /can, /x within 20 ms; `logloom plan`"):
        build(plan)


def test_a_clock_whose_messages_are_all_refused_is_a_warning(tmp_path):
    """No row is left whose columns could be counted."""
    x = x_of(field="throttle", tolerance="1s")
    write_log(tmp_path / "logs/drive.mcap", {"/x": commands([START]), "/can": stamped(-18 * SECOND)})
    planned = plan_build(recipe(tmp_path, x, "{topic: /can}"), str(tmp_path / "root"))
    (warning,) = column_warnings(planned)
    assert warning.text.startswith(
        "drive: the clock has no tick: 100 of 100 messages of /can can't be used: its header time is "
    )
    assert warning.kind == "clock"


def moving(*frames):
    """Transforms each 100 ms."""
    times = [time for time, _ in CAN[1]]
    return TF, [(time, {"transforms": [transform(time, *pair) for pair in frames]}) for time in times]


def test_a_column_without_poses_gets_one_warning(tmp_path):
    tf = moving(("map", "base"), ("world", "lidar"))
    planned, built = warned(tmp_path, {"/tf": tf}, "{tf: {from: base, to: world}}")
    (said,) = planned
    assert (said.kind, said.column) == ("pose", "x")
    assert "0 % of 100 sampled rows: there is no pose of base in world: no path; " in said.text
    (lost,) = built
    assert (lost.kind, lost.column, lost.log) == ("lost", "x", "drive")
    assert "100 of 100 ticks are without a pose of base in world: no path" in lost.text


def test_a_field_of_a_topic_of_transforms_must_be_there_as_for_others(tmp_path):
    more = "time: {topics: {/tf: {field: stmp}}}"
    with pytest.raises(LogloomError, match=r"time.topics./tf.field: .*has no 'stmp'"):
        warned(tmp_path, {"/tf": moving(("map", "base"))}, "{tf: {from: base, to: map}}", more=more)


@pytest.mark.parametrize(("delay", "warnings"), [("1s", 1), ("none", 0)])
def test_a_plan_scans_no_large_log_for_its_warnings(tmp_path, monkeypatch, delay, warnings):
    """Without `max_delay`, parts of a log are found by reading all of it, which is left to the build."""
    topics = {"/x": stamped(-37 * SECOND, 1000), "/can": (SPEED, speeds(1000))}
    write_log(tmp_path / "logs/drive.mcap", topics, chunk_size=1000)
    made = recipe(tmp_path, x_of(resample="linear"), more=f"time: {{max_delay: {delay}}}\non_error: skip")
    plan = plan_build(made, str(tmp_path / "root"))
    scanned = []
    monkeypatch.setattr(module, "BYTES", 20_000)
    monkeypatch.setattr(container_log, "_scan_times", lambda _, missing: scanned.extend(missing) or {})
    assert (len(column_warnings(plan)), scanned) == (warnings, [])


def test_clouds_that_cant_be_deskewed_get_one_warning(tmp_path):
    columns = deskewed().partition("\n")[0].removeprefix("points: ").replace("to: map", "to: world")
    made = lidar_topics(sweeps(8)) | {"/tf": moving(("map", "base"), ("world", "odom"))}
    planned, built = warned(tmp_path, made, columns)
    assert [(one.kind, one.column) for one in planned] == [("pose", "x")]
    assert "sampled rows: there is no pose of lidar in world: no path; `logloom info LOG" in planned[0].text
    assert [(one.kind, one.column) for one in built] == [("lost", "x")]


def test_a_pose_at_the_time_of_a_missing_column_names_that_column(tmp_path):
    columns = "{tf: {from: base, to: map}, at: late}\n  late: " + x_of(resample="exact")
    topics = {"/tf": moving(("map", "base")), "/x": (SPEED, speeds(100, start=START + 3 * MS))}
    for found in warned(tmp_path, topics, columns):
        (pose,) = (one for one in found if one.column == "x")
        assert pose.kind == "input"
        assert pose.text.endswith("it is looked up at the time of late, which isn't available; see late")


def test_refused_messages_get_one_warning(tmp_path):
    zero = [(time, {"header": message["header"], "pose": {}}) for time, message in speeds(100)]
    columns = x_of(field="pose.orientation", resample="slerp")
    planned, built = warned(tmp_path, {"/x": (POSE, zero)}, columns, more="on_error: skip")
    assert [(one.kind, one.column) for one in built] == [("lost", "x")]
    assert [one.column for one in planned] == ["x"]


def test_messages_that_lack_the_value_are_named(tmp_path):
    schema = json.dumps({"type": "object", "properties": {"speed": {"type": "number"}}}).encode()
    (tmp_path / "logs").mkdir()
    with (tmp_path / "logs/drive.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start()
        for topic in ("/can", "/x"):
            kind = writer.register_schema("car/Speed", "jsonschema", schema)
            channel = writer.register_channel(topic, "json", kind)
            for time, _ in CAN[1]:
                message = {"speed": 1.0} if topic == "/can" else {}
                writer.add_message(channel, time, json.dumps(message).encode(), time)
        writer.finish()
    plan = plan_build(recipe(tmp_path, x_of(resample="exact")), str(tmp_path / "root"))
    for found in (column_warnings(plan), build(plan).warnings):
        (warning,) = found
        assert (warning.kind, warning.column) == ("lacking", "x")
        assert "rows: 100 of 100 messages of /x have no value for it; correct the column" in warning.text


def label(folder, log_id, *times):
    """A table with labels of a log, and a column of it."""
    table = {"log_id": [log_id] * len(times), "timestamp": np.array(times), "score": [0.5] * len(times)}
    (folder / "labels").mkdir()
    pq.write_table(pa.table(table), folder / "labels/a.parquet")
    return f"{{table: '{folder}/labels/*.parquet', tolerance: 20ms}}"


@pytest.mark.parametrize(
    ("log_id", "start", "kind", "said"),
    [
        ("other", START, "labels", "log drive has no label in its table; the table must name logs by"),
        ("drive", START + 60 * SECOND, "clock", "its labels are 50.1 s from log drive; correct their unit"),
        (
            "drive",
            START + 30 * MS,
            "sparse",
            "log drive has 2 labels, and its tolerance is 20 ms; write rows",
        ),
    ],
)
def test_labels_of_other_logs_or_times_are_named(tmp_path, log_id, start, kind, said):
    column = label(tmp_path, log_id, start, start + 5 * SECOND)
    for found in warned(tmp_path, {}, column):
        (warning,) = found
        assert (warning.kind, warning.column, warning.is_doubtful) == (kind, "x", True)
        assert said in warning.text


def test_few_labels_that_match_are_no_warning_or_not_a_doubtful_one(tmp_path):
    column = label(tmp_path, "drive", START + SECOND)
    assert warned(tmp_path, {}, column) == ([], ())  # 1 % of the rows
    (tmp_path / "logs/drive.mcap").unlink()
    planned, built = warned(tmp_path, {"/more": (SPEED, speeds(200))}, column)
    for (warning,) in (planned, built):
        assert warning.text.startswith("column x is available in 0.5 % of 200 ")
        assert (warning.kind, warning.is_doubtful) == ("sparse", False)


def test_a_topic_that_only_new_logs_lack_is_a_warning_but_not_doubtful(tmp_path):
    write_log(tmp_path / "logs/a.mcap", {"/can": CAN, "/x": CAN})
    columns = x_of(resample="linear")
    root = str(tmp_path / "root")
    assert build(plan_build(recipe(tmp_path, columns), root)).warnings == ()
    write_log(tmp_path / "logs/b.mcap", {"/can": (SPEED, speeds(100, start=START + 60 * SECOND))})
    plan = plan_build(recipe(tmp_path, columns), root, settings=BuildSettings(strict=True))
    for found in (column_warnings(plan), build(plan).warnings):
        (warning,) = found
        assert "rows: log b has no message of /x; correct its topic or leave the column out" in warning.text
        assert (warning.kind, warning.is_doubtful, warning.log) == ("absent", False, "b")


def test_a_topic_of_several_names_of_which_a_log_has_none_is_a_warning_with_all_of_them(tmp_path):
    write_log(tmp_path / "logs/b.mcap", {"/can": CAN, "/grip": CAN})
    made = recipe(tmp_path, x_of("{any: [/gripper/state, /grip]}", resample="linear"))
    assert build(plan_build(made, str(tmp_path / "root"))).warnings == ()
    later = (SPEED, speeds(100, start=START + 60 * SECOND))
    write_log(tmp_path / "logs/a.mcap", {"/can": later, "/ee/grip": later})
    (warning,) = column_warnings(plan_build(made, str(tmp_path / "root")))
    said = "log a has no message of /gripper/state or /grip; add /ee/grip to `any` or leave the column out"
    assert said in warning.text


def test_strict_refuses_a_column_without_values_before_the_commit(tmp_path):
    write_log(tmp_path / "logs/drive.mcap", {"/can": CAN, "/x": stamped(-37 * SECOND)})
    made = recipe(tmp_path, x_of(resample="linear"), more="time: {max_delay: 60s}")
    plan = plan_build(made, str(tmp_path / "root"), settings=BuildSettings(strict=True))
    with pytest.raises(
        LogloomError, match=r"(?s)--strict: 1 warning names .*\n  column x is available in 0 %"
    ):
        build(plan)
    assert not list((tmp_path / "root/versions").glob("*.json"))


def test_a_build_without_rows_names_the_reason(tmp_path):
    write_log(tmp_path / "logs/drive.mcap", {"/can": CAN, "/x": stamped(-37 * SECOND)})
    more = "time: {max_delay: 60s}\nrows: {require: [x]}"
    plan = plan_build(recipe(tmp_path, x_of(resample="linear"), more=more), str(tmp_path / "root"))
    said = (
        r"(?s)no rows at all \(100 ticks dropped by require x\).*\n  column x .* /x is on another clock than"
    )
    with pytest.raises(LogloomError, match=said):
        build(plan)


@pytest.mark.parametrize(
    "columns",
    [
        x_of(resample="count", window="[-100ms, 0ms]"),
        x_of(resample="static"),
        x_of(resample="nearest", tolerance="500ms"),
        x_of(resample="previous", tolerance="500ms"),  # 60 % of the rows
    ],
)
def test_a_slow_topic_whose_column_reaches_far_enough_is_no_warning(tmp_path, columns):
    assert warned(tmp_path, {"/x": SLOW}, columns) == ([], ())


def test_a_topic_that_is_rare_for_another_reason_is_no_warning_above_a_share(tmp_path):
    """A fifth of the rows."""
    topics = {"/x": (SPEED, speeds(20))}
    assert warned(tmp_path, topics, x_of(resample="linear")) == ([], ())


@pytest.mark.parametrize("clock", ["{rate: 10}", "{topic: /can}"])
@pytest.mark.parametrize(("limit", "value"), [("BYTES", 6000), ("TICKS", 64)])
def test_a_plan_counts_a_part_of_a_large_log(tmp_path, monkeypatch, clock, limit, value):
    can, slow = (SPEED, speeds(600)), (SPEED, speeds(60, step=SECOND))
    write_log(tmp_path / "logs/drive.mcap", {"/can": can, "/x": slow}, chunk_size=1000)
    columns = x_of(resample="linear", tolerance="100ms")
    plan = plan_build(recipe(tmp_path, columns, clock), str(tmp_path / "root"))
    monkeypatch.setattr(module, limit, value)
    (warning,) = column_warnings(plan)
    assert warning.text.endswith("/x comes every 1 s, its tolerance is 100 ms; write tolerance: 1s")
    rows = int(re.search(r"% of (\d+) sampled rows: ", warning.text).group(1))
    assert 30 <= rows <= 200 or (clock, limit, rows) == ("{topic: /can}", "TICKS", 600)


# --- sums over logs -------------------------------------------------------------------------------------


def cause(kind, log, missing):
    return Cause(kind, f"{kind} of {log}", "mend it", log=log, missing=missing)


def available(rows, number, *causes):
    return (Availability("x", "/x", rows, number, causes),)


def texts(found, **how):
    return [one.text for one in availability_warnings(found, **how)]


def test_logs_add_up_in_any_order_and_grouping():
    parts = [
        available(100, 0, cause("clock", "b", 100)),
        available(100, 0, cause("clock", "a", 100)),
        available(100, 1, cause("silent", "c", 99)),
    ]
    whole = merged(parts)
    assert whole == merged(parts[::-1]) == merged([merged(parts[:2]), parts[2]])
    assert texts(whole) == [
        "column x is available in 0.3 % of 300 rows of 3 logs (as in a and 1 more): clock of a; mend it"
    ]
    assert " of 200 rows of 2 logs (as in a and 1 more): " in texts(merged(parts[:2]))[0]
    assert texts(whole, sampled=True)[0].startswith(
        "column x is available in 0.3 % of 300 sampled rows of 3 "
    )


@pytest.mark.parametrize(
    ("kind", "number", "is_warned"),
    [("silent", 9, True), ("silent", 10, False), ("tolerance", 499, True), ("tolerance", 500, False)],
)
def test_thresholds(kind, number, is_warned):
    assert bool(texts(available(1000, number, cause(kind, "a", 1000 - number)))) == is_warned


def test_one_log_of_many_with_another_cause_doesnt_make_a_column_short():
    """Most of what is missing is so for a reason that a rare topic may have."""
    parts = [available(100, 0, cause("tolerance", "a", 100)), available(500, 90, cause("silent", "b", 410))]
    assert texts(merged(parts)) == []
