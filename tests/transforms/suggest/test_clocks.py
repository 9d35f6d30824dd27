"""Clocks that differ from the recorder's: recognised from the data, and repaired by the suggested recipe."""

import re

import numpy as np
import pytest

import logloom.datasets
from logloom.io.logs.interface import StatedTime
from logloom.io.logs.messages.ros.decoders import CdrDecoder
from logloom.io.logs.opening import open_log
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.transforms.suggest.clocks import leads_of, offset_for, other_clock, stamp_fields
from logloom.transforms.suggest.recipe import suggest
from tests.io.logs.messages.payloads import topic
from tests.tier import by_tier
from tests.transforms.ros2_logs import HEADER, SECOND, SPEED, START, header, speeds, write_log

MS = 10**6
BOOT = START - 1503 * SECOND
STAMPED = ("car_msgs/msg/Steering", "builtin_interfaces/Time stamp\nfloat64 angle\n" + HEADER)
STD_HEADER = ("uav_msgs/msg/Fix", "std_msgs/Header std_header\nfloat64 lat\n" + HEADER)
NESTED = (
    "fusion_msgs/msg/Track",
    "fusion_msgs/Inner meta\nfloat64 x\n===\nMSG: fusion_msgs/Inner\nstd_msgs/Header header\n" + HEADER,
)
PX4 = ("px4_msgs/msg/VehicleOdometry", "uint64 timestamp\nuint64 timestamp_sample\nfloat32[3] position\n")
BARE = ("car_msgs/msg/Command", "float64 throttle\n")
TICKS = [START + i * SECOND // 10 for i in range(60)]


def stamped(clock, late=0, ticks=TICKS):
    """Messages of SPEED, logged `late` after they were measured, stamped by another clock."""
    return [
        (t + late, {"header": header(clock(t)), "speed": (t - START) / 1e9, "gear": 1, "note": ""})
        for t in ticks
    ]


def stamp(t):
    return header(t)["stamp"]


def suggested(tmp_path, topics, *more):
    logs = {"drive": open_log([write_log(tmp_path / "drive.mcap", topics)])}
    logs |= {
        f"other{i}": open_log([write_log(tmp_path / f"other{i}.mcap", one)]) for i, one in enumerate(more)
    }
    text = suggest(logs)
    return Recipe.from_yaml(text), re.search("^time:.*$", text, re.MULTILINE)[0]


@pytest.mark.parametrize(
    ("ahead", "offset", "words"),
    [
        (37 * SECOND, -37 * SECOND, "stamps are 36.992 s ahead of log time .*so TAI, which is 37 s ahead of"),
        (18 * SECOND, -18 * SECOND, "17.992 s ahead of log time .*so GPS time, which is 18 s ahead of UTC"),
        (3 * SECOND, -2_992 * MS, "stamps are 2.992 s ahead of log time .median; 90 % within 0 ms.$"),
        (-BOOT, BOOT + 8 * MS, "stamps are 1699998497.008 s behind log time"),
        (-20 * SECOND, 20 * SECOND + 8 * MS, "stamps are 20.008 s behind log time"),
    ],
)
def test_a_clock_at_a_constant_distance_gets_its_offset_and_rows_have_both_topics(
    tmp_path, ahead, offset, words
):
    topics = {
        "/lidar": (SPEED, stamped(lambda t: t + ahead, 8 * MS)),
        "/odom": (SPEED, stamped(lambda t: t, 2 * MS)),
    }
    recipe, line = suggested(tmp_path, topics)
    assert recipe.time.sources("/lidar") == (
        StatedTime("header", offset=offset),
        StatedTime("log", offset=offset),
    )
    assert recipe.time.sources("/odom") == ("header", "log")
    assert recipe.time.max_delay == SECOND
    assert re.search(words, line), line
    build(plan_build(recipe, str(tmp_path / "root")), num_workers=1)
    rows = logloom.datasets.open(str(tmp_path / "root"))
    speed = np.array([(rows[i]["lidar.speed"], rows[i]["odom.speed"]) for i in range(len(rows) - 1)])
    assert len(speed) > 50
    assert np.abs(speed[1:, 0] - speed[1:, 1]).max() <= 0.009  # the transport of the lidar, at most


def test_topics_on_one_clock_share_one_offset_that_of_the_quickest(tmp_path):
    topics = {
        "/a": (SPEED, stamped(lambda t: t - BOOT, 90 * MS)),
        "/b": (SPEED, stamped(lambda t: t - BOOT, 5 * MS)),
        "/cmd": (BARE, [(t, {"throttle": 1.0}) for t in TICKS]),
    }
    recipe, line = suggested(tmp_path, topics)
    assert {recipe.time.topics[name].offset for name in ("/a", "/b")} == {BOOT + 5 * MS}
    assert "/cmd" not in recipe.time.topics
    assert line.count("behind log time") == 1


def test_simulated_time_at_another_pace_makes_log_times_the_clock_of_all_topics(tmp_path):
    topics = {
        "/odom": (SPEED, stamped(lambda t: 30 * SECOND + (t - START) // 2)),
        "/cmd": (BARE, [(t, {"throttle": (t - START) / 1e9}) for t in TICKS]),
    }
    recipe, line = suggested(tmp_path, topics)
    assert recipe.time.by == ("log",)
    assert not recipe.time.topics
    assert "at no constant distance: simulated, or replayed? Log times are one clock for all columns" in line
    build(plan_build(recipe, str(tmp_path / "root")), num_workers=1)
    rows = logloom.datasets.open(str(tmp_path / "root"))
    assert all(abs(rows[i]["odom.speed"] - rows[i]["cmd.throttle"]) < 1e-9 for i in range(len(rows)))


def test_logs_whose_clocks_began_at_different_times_have_no_common_offset(tmp_path):
    both = [
        {"/a": (SPEED, stamped(lambda t, b=b: t - b)), "/odom": (SPEED, speeds(60))}
        for b in (BOOT, BOOT + 10**12)
    ]
    recipe, _ = suggested(tmp_path, *both)
    assert recipe.time.topics == {"/a": ("log",)}


@pytest.mark.parametrize(
    ("kind", "message", "field", "unit"),
    [
        (STAMPED, lambda t: {"stamp": stamp(t), "angle": 1.0}, "stamp", ""),
        (STD_HEADER, lambda t: {"std_header": header(t), "lat": 1.0}, "std_header.stamp", ""),
        (NESTED, lambda t: {"meta": {"header": header(t)}, "x": 1.0}, "meta.header.stamp", ""),
        (
            PX4,
            lambda t: {"timestamp": t // 1000, "timestamp_sample": 7, "position": [0.0, 0.0, 0.0]},
            "timestamp",
            "us",
        ),
    ],
)
@pytest.mark.parametrize("began", [0, BOOT])
def test_stamps_of_other_names_are_found_with_their_unit_and_offset(
    tmp_path, kind, message, field, unit, began
):
    messages = [(t + 30 * MS, message(t - began)) for t in TICKS]
    recipe, _ = suggested(tmp_path, {"/x": (kind, messages), "/odom": (SPEED, speeds(60))})
    offset = began + 30 * MS if began else 0
    assert recipe.time.sources("/x") == (StatedTime(None, field, unit, offset),)
    if by_tier(began, True):
        build(plan_build(recipe, str(tmp_path / "root")), num_workers=1)


def test_numbers_that_dont_keep_the_pace_of_the_log_are_no_stamps(tmp_path):
    counts = [
        (t, {"timestamp": 7 + i // 3, "timestamp_sample": 1, "position": [0.0] * 3})
        for i, t in enumerate(TICKS)
    ]
    recipe, _ = suggested(tmp_path, {"/x": (PX4, counts)})
    assert not recipe.time.topics


def test_stamps_are_looked_for_by_name_the_shallowest_first():
    definition = """time when
Pair stamp
Part part
uint64 time_us
int32 timestamp
===
MSG: pkg/Pair
int32 sec
uint32 nanosec
===
MSG: pkg/Part
time stamp
Pair header
"""
    root = CdrDecoder(topic(definition)).root
    assert list(stamp_fields(root)) == [("stamp", ("",)), ("part.stamp", ("",)), ("time_us", ("us",))]


def test_a_transport_is_no_other_clock():
    log = np.arange(100) * 10**8
    for late in (0, SECOND, 9 * SECOND):
        assert other_clock("/x", leads_of(log - late, log)) == ""
    jitter = np.arange(100) * 20 * MS
    assert other_clock("/x", leads_of(log - 60 * SECOND - jitter, log)) == ""
    assert other_clock("/x", leads_of(log + 2 * SECOND, log)).endswith(
        "write time: {topics: {/x: {offset: -2s}}}"
    )
    assert offset_for(37 * SECOND + 20 * MS) == -37 * SECOND
    assert offset_for(37 * SECOND + 50 * MS) == -37_050 * MS
