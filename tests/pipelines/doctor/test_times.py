"""What doctor finds of times: topics that stop, stamps of no use, frames, logs without messages."""

import io
import itertools
import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.opening import open_log
from logloom.io.logs.recording_times import RecordedTime
from logloom.pipelines.doctor.doctor import examine
from logloom.pipelines.doctor.observations import MAX_SKEW, WatchedTopic
from logloom.pipelines.doctor.times import judge_times
from logloom.recipe.sections import Time
from logloom.transforms.suggest.recipe import suggest
from tests.io.logs.making import MS, ROS1, Message, ros1_payload, write_mcap
from tests.pipelines.doctor.test_doctor import run
from tests.transforms.ros2_logs import (
    COMMAND,
    COMPRESSED,
    POSE,
    SECOND,
    SPEED,
    START,
    TF,
    header,
    speeds,
    transform,
    write_log,
)


def look(path):
    CHUNKS.clear()
    return examine(LogFiles("take", (str(path),)), OpenOptions("salvage"))


def commands(times):
    return COMMAND, [(t, {"throttle": 0.5, "gains": []}) for t in times]


def every(period, count, start=START):
    return [start + i * period for i in range(count)]


def found_of(tmp_path, **topics):
    """Findings of a log of {topic: log times} of messages without a header."""
    path = write_log(tmp_path / "take.mcap", {f"/{name}": commands(times) for name, times in topics.items()})
    return look(path)


def judged(**topics):
    """Findings of topics by their log times alone."""
    healths = []
    for name, times in sorted(topics.items()):
        watched = WatchedTopic()
        watched.add(np.array(times, np.int64), None)
        healths.append(watched.health(f"/{name}", "x/X", len(times)))
    return [(finding.kind, finding.topic) for finding in judge_times(healths, RecordedTime(()), "take.mcap")]


# --- topics that stop


def test_a_topic_that_dies_one_that_begins_half_way_and_a_stall_are_named_with_place_and_size(tmp_path):
    ticks = every(10 * MS, 1000)
    stall = ticks[:300] + ticks[345:]
    found = found_of(tmp_path, fine=ticks, arm=ticks[:500], late=ticks[500:], stall=stall)
    seen = {f.kind: (f.topic, f.time, f.duration, f.count) for f in found.findings}
    assert seen == {
        "begins": ("/late", ticks[0], 5 * SECOND, 500),
        "ends": ("/arm", ticks[499], 5 * SECOND, 500),
        "gap": ("/stall", ticks[299], 460 * MS, 45),
    }
    assert {f.severity for f in found.findings} == {"note"}
    assert (found.is_healthy, found.is_damaged) == (False, False)
    lines = "\n".join(found.lines())
    assert lines.startswith("take: no damage; 3 notes\n")
    assert "/arm: it ends 5 s before the log ends, 500 of its intervals of 10 ms" in lines
    assert (
        "/stall: it is silent for 460 ms, 46 of its intervals of 10 ms, 2.99 s after the log begins" in lines
    )


@pytest.mark.parametrize("period", [MS, 10 * MS, 100 * MS, SECOND])
@pytest.mark.parametrize(("missing", "is_found"), [(4, False), (45, True)])
def test_what_a_stall_is_depends_on_the_period_of_its_topic(period, missing, is_found):
    times = every(period, 400)
    stalls = times[:100] + times[100 + missing :]
    assert judged(x=stalls, y=times) == ([("gap", "/x")] if is_found else [])


@given(st.integers(0, 2**32), st.integers(2, 400), st.sampled_from(["poisson", "bursts", "on change"]))
def test_topics_of_events_neither_stall_nor_stop(seed, count, kind):
    rng = random.Random(seed)
    intervals = {
        "poisson": lambda: rng.expovariate(2),
        "bursts": lambda: rng.choice([0.001, 0.002, 0.02, 0.5, 5]),
        "on change": lambda: rng.choice([0.05, 0.05, 0.05, 1, 10]),
    }[kind]
    times = [START + 20 * SECOND]
    for _ in range(count):
        times.append(times[-1] + int(intervals() * SECOND))
    steady = every(10 * MS, (times[-1] - START) // (10 * MS) + 2000)
    assert [f for f in judged(event=times, steady=steady) if f[1] == "/event"] == []


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=60, unique=True), st.data())
def test_no_message_lies_in_a_gap_in_whatever_order_messages_come(times, data):
    watched = WatchedTopic()
    rest = [min(times), *data.draw(st.permutations([t for t in times if t != min(times)]))]
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        watched.add(np.array(rest[:count], np.int64), None)
        rest = rest[count:]
    ordered = sorted(times)
    expected = {(a, b - a) for a, b in itertools.pairwise(ordered)}
    assert set(watched.longest) == expected


def test_a_topic_that_pauses_again_and_again_is_no_sensor_that_stalls():
    times = [t for start in range(0, 100, 10) for t in every(50 * MS, 60, START + start * SECOND)]
    assert judged(joystick=times, steady=every(10 * MS, 12000)) == []


@pytest.mark.parametrize("jitter", [0, 4])
def test_a_regular_topic_may_jitter_and_lose_single_messages(jitter):
    rng = random.Random(0)
    times = [t + rng.randint(-jitter, jitter) * MS for t in every(33 * MS, 1000) if rng.random() > 0.03]
    assert judged(x=times, y=every(10 * MS, 3300)) == []
    assert judged(x=times[:400], y=every(10 * MS, 3300)) == [("ends", "/x")]


def test_latched_and_rare_topics_neither_stall_nor_stop():
    rare = every(SECOND, 10)
    assert judged(map=[START], tf_static=[START, START + 1], rare=rare, x=every(10 * MS, 6000)) == []


def test_topics_that_a_recorder_subscribes_to_one_by_one_are_no_finding():
    late = {f"t{i}": every(10 * MS, 2000 - 9 * i, START + i * 90 * MS) for i in range(10)}
    assert judged(**late) == []


def test_topics_that_stop_together_are_one_finding(tmp_path):
    ticks = every(10 * MS, 1000)
    cut = {f"t{i}": ticks[: 500 + i] for i in range(5)}
    found = found_of(tmp_path, fine=ticks, **cut)
    (finding,) = found.findings
    assert (finding.kind, finding.topic) == ("ends", "/t0, /t1, /t2, /t3, /t4")
    assert finding.message == "5 topics end 5 s before the log ends"
    silent = {f"t{i}": ticks[:300] + ticks[400:] for i in range(3)}
    (finding,) = found_of(tmp_path, fine=ticks, **silent).findings
    assert (finding.kind, finding.topic) == ("gap", "/t0, /t1, /t2")
    assert finding.message.startswith("3 topics are silent for 1.01 s, 2.99 s after the log begins")


def test_several_stalls_of_a_topic_are_one_finding():
    times = every(10 * MS, 3000)
    chosen = [t for i, t in enumerate(times) if not (1000 <= i < 1040 or 2000 <= i < 2045)]
    assert judged(x=chosen, y=times) == [("gap", "/x")]


# --- the recording


def test_strays_are_named_with_place_size_and_line_and_move_no_end_of_a_topic(tmp_path):
    ticks = every(100 * MS, 100)
    found = found_of(
        tmp_path, x=[*every(100 * MS, 30, 0), *ticks, START + 40 * 365 * 86400 * SECOND], y=ticks
    )
    assert [(f.kind, f.topic, f.count, f.severity, f.recipe) for f in found.findings] == [
        ("stray", "/x", 30, "damage", "time: {from: 2023-11-14T22:13:20Z}"),
        ("stray", "/x", 1, "damage", "time: {to: 2023-11-14T22:13:29.9Z}"),
    ]
    assert (found.findings[0].time, found.findings[0].duration) == (0, 2900 * MS)
    x = found.topics[0]
    assert (x.first, x.last, x.messages, x.strays) == (ticks[0], ticks[-1], 100, 31)


@pytest.mark.parametrize(("times", "severity"), [([0], "damage"), ([0, START], "note")])
def test_a_stray_is_a_note_where_a_build_takes_the_last_message_of_its_topic(tmp_path, times, severity):
    found = found_of(tmp_path, map=times, x=every(100 * MS, 100))
    assert [(f.kind, f.topic, f.severity) for f in found.findings] == [("stray", "/map", severity)]


def test_a_leap_of_the_clock_is_one_finding_with_the_line_that_keeps_the_largest_part(tmp_path):
    times = every(100 * MS, 10) + every(100 * MS, 50, START + SECOND + 30 * 86400 * SECOND)
    found = found_of(tmp_path, x=times, y=times)
    (finding,) = found.findings
    assert (finding.kind, finding.severity, finding.count) == ("silence", "note", 20)
    assert finding.message.startswith("all topics are silent for 30 days, or the clock leapt, 900 ms after")
    assert (finding.time, finding.recipe) == (times[9], "time: {from: 2023-12-14T22:13:21Z}")


def test_a_clock_set_back_is_damage_with_its_size_place_and_line(tmp_path):
    times = every(10 * MS, 500) + every(10 * MS, 500, START + 2 * SECOND)
    messages = [Message("/q", t, t, t, ros1_payload(t, b"x")) for t in times]
    schema = (ROS1[0], "ros1msg", ROS1[1].encode())
    path = write_mcap(tmp_path / "take.mcap", messages, encoding="ros1", schema=schema, use_chunking=False)
    (finding,) = [f for f in look(path).findings if f.kind != "index"]
    assert (finding.kind, finding.severity, finding.topic) == ("set_back", "damage", "/q")
    assert "set back by 3 s at 5 s of the log" in finding.message
    assert finding.recipe == "time: {set_back: first}"
    assert (finding.time, finding.duration) == (times[499], 2990 * MS)
    record = path.read_bytes()[finding.offset :]
    assert record[0] == 5  # a message of MCAP
    assert int.from_bytes(record[15:23], "little") == times[500]


# --- stamps


def test_the_bound_on_stamps_is_that_of_a_recipe():
    assert Time().max_delay == MAX_SKEW


def test_stamps_of_zero_are_a_note_with_the_line_of_the_recipe(tmp_path):
    messages = [(t, {**m, "header": header(0)}) for t, m in speeds(100)]
    found = look(write_log(tmp_path / "take.mcap", {"/command": (SPEED, messages)}))
    (finding,) = found.findings
    assert (finding.kind, finding.count, finding.severity) == ("unstamped", 100, "note")
    assert finding.recipe == "time: {topics: {/command: log}}"
    assert not found.is_healthy
    assert next(found.lines()) == "take: no damage; 1 note"
    assert (
        'the stamps of all 100 messages are zero ("now"), which a build refuses by default' in finding.message
    )


def test_a_name_that_yaml_would_read_as_another_value_is_quoted_in_the_line_of_the_recipe(tmp_path):
    messages = [(t, {**m, "header": header(0)}) for t, m in speeds(30)]
    found = look(write_log(tmp_path / "take.mcap", {"a: {b}, c": (SPEED, messages)}))
    assert found.findings[0].recipe == "time: {topics: {'a: {b}, c': log}}"


@pytest.mark.parametrize(
    ("delay", "recipe"),
    [
        (1150 * MS, "time: {max_delay: 2s}"),
        (3070 * MS, "time: {max_delay: 4s}"),
        (9_500 * MS, "time: {max_delay: 10s}"),
    ],
)
def test_late_stamps_are_a_note_with_the_line_that_makes_a_build_take_them(tmp_path, delay, recipe):
    found = look(write_log(tmp_path / "take.mcap", {"/speed": (SPEED, speeds(50, delay=delay))}))
    (finding,) = found.findings
    assert (finding.kind, finding.count, finding.severity, finding.recipe) == ("late", 50, "note", recipe)
    suggested = suggest({"take": open_log([str(tmp_path / "take.mcap")])})
    assert "max_delay" not in recipe or re.findall("max_delay: [0-9]+s", suggested) == [recipe[7:-1]]
    assert "the stamps of all 50 messages are more than 1 s from the log time" in finding.message


def tf(t, *children):
    return t, {"transforms": [transform(t, "map", child) for child in children]}


def test_a_latched_transform_older_than_the_recording_is_no_finding(tmp_path):
    static = [(START, tf(START - 3600 * SECOND, "base")[1])]
    moving = [tf(t, "tool") for t in every(20 * MS, 100)]
    topics = {"/tf_static": (TF, static), "/tf": (TF, moving), "/map": (SPEED, speeds(1, delay=90 * SECOND))}
    found = look(write_log(tmp_path / "take.mcap", topics))
    assert (found.findings, found.is_healthy) == ((), True)


@pytest.mark.parametrize("lag", [0, 5 * MS])
def test_stamps_of_two_frames_of_a_topic_may_be_equal_or_take_turns(tmp_path, lag):
    both = [tf(t, "odom") for t in every(20 * MS, 100)]
    both += [(t + MS, tf(t - lag, "base", "laser")[1]) for t in every(20 * MS, 100)]
    found = look(write_log(tmp_path / "take.mcap", {"/tf": (TF, both)}))
    assert found.is_healthy
    poses = {"position": dict.fromkeys("xyz", 0.0), "orientation": dict.fromkeys("xyzw", 1.0)}
    messages = [
        (t + i, {"header": {**header(t - i * lag), "frame_id": frame}, "pose": poses})
        for t in every(20 * MS, 100)
        for i, frame in enumerate(("left", "right"))
    ]
    assert look(write_log(tmp_path / "poses.mcap", {"/pose": (POSE, messages)})).is_healthy


def test_equal_stamps_of_one_frame_are_a_note(tmp_path):
    both = [tf(t, "odom") for t in every(20 * MS, 100)]
    both += [(t + MS, tf(t, "odom")[1]) for t in every(20 * MS, 100)]
    found = look(write_log(tmp_path / "take.mcap", {"/tf": (TF, both)}))
    assert [(f.kind, f.count, f.severity) for f in found.findings] == [("twice", 100, "note")]


# --- pictures


def jpeg(size=64):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (size, size, 3), np.uint8)).save(file, "jpeg")
    return file.getvalue()


def test_pictures_that_a_build_refuses_for_their_structure_are_counted_and_the_first_is_placed(tmp_path):
    whole = jpeg()
    data = [whole] * 60
    data[20], data[40] = whole[: len(whole) // 2], b""
    times = every(33 * MS, 60)
    messages = [
        (t, {"header": header(t), "format": "jpeg", "data": d}) for t, d in zip(times, data, strict=True)
    ]
    found = look(write_log(tmp_path / "take.mcap", {"/cam": (COMPRESSED, messages)}))
    (finding,) = found.findings
    assert (finding.kind, finding.count, finding.severity) == ("picture", 2, "damage")
    assert finding.message.startswith(
        "2 of 60 messages of /cam contain no whole picture; the first: a JPEG of"
    )
    assert (found.topics[0].messages, found.topics[0].unfit) == (58, 2)


# --- logs without messages


def test_a_log_without_messages_is_damage_and_an_empty_file_is_unreadable(tmp_path):
    bare = look(write_mcap(tmp_path / "take.mcap", []))
    (finding,) = bare.findings
    assert (finding.kind, finding.severity, finding.remedy) == ("empty", "damage", "exclude it")
    assert bare.is_damaged
    (tmp_path / "torn.mcap").touch()
    torn = look(tmp_path / "torn.mcap")
    assert not torn.is_readable
    assert "empty file (the writer probably crashed); exclude it" in torn.findings[0].message


def test_the_command_exits_with_zero_for_notes_and_prints_readable_durations(tmp_path):
    ticks = every(10 * MS, 1000)
    topics = {"/fine": commands(ticks), "/arm": commands(ticks[:500])}
    noted = run(write_log(tmp_path / "take.mcap", topics))
    assert noted.returncode == 0
    assert "healthy" not in noted.stdout
    assert str(SECOND) not in noted.stdout
    assert "note: ends: /arm: it ends 5 s before the log ends" in noted.stdout
    bare = run(write_mcap(tmp_path / "bare.mcap", []))
    assert bare.returncode == 3


def test_every_key_of_a_finding_in_ns_says_so(tmp_path):
    ticks = every(10 * MS, 1000)
    data = found_of(tmp_path, fine=ticks, arm=ticks[:500]).to_json()
    (finding,) = data["findings"]
    assert (finding["time_ns"], finding["duration_ns"]) == (ticks[499], 5 * SECOND)
    assert {"time", "duration"}.isdisjoint(finding)
    arm = data["topics"][0]
    assert (arm["hz"], arm["period_ns"], arm["last_ns"]) == (100.0, 10 * MS, ticks[499])
