"""Builds of logs whose recorder's clock was wrong: strays, leaps, and clocks set back."""

import json
import re

import numpy as np
import pytest

from logloom import datasets
from logloom.errors import RecipeError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.cases import case
from tests.forking import command
from tests.io.logs.conftest import toy  # noqa: F401 (a fixture)
from tests.io.logs.making import Message, ros1_payload, toy_payload, write_bag, write_mcap
from tests.pipelines.conftest import build_at

S = 10**9
T0 = 1_700_000_000 * S
TICK = S // 10
SCHEMA = ("std_msgs/msg/Float64", "ros2msg", b"float64 data\n")


def value(i):
    return b"\0\1\0\0" + np.float64(i).tobytes()


def of(topic, *times):
    return [Message(topic, int(t), int(t), 0, value(i)) for i, t in enumerate(times)]


def ticks(count, start=T0, first=0):
    return [start + i * TICK for i in range(first, first + count)]


def write(path, messages, **options):
    return write_mcap(path, messages, encoding="cdr", schema=SCHEMA, **options)


SHAPES = {
    "sound": [*of("/event", T0 + 3 * TICK), *of("/x", *ticks(100))],
    "stray": [*of("/event", 0), *of("/x", *ticks(100))],
    "began_1970": of("/x", *ticks(30, 0), *ticks(100)),
    "ahead": of("/x", *ticks(100), T0 + 40 * 365 * 86400 * S),
}


def recipe_of(path, logs, extra="", clock="rate: 10", columns=""):
    path.write_text(
        f"name: t\nlogs: [{', '.join(map(str, logs))}]\nclock: {{{clock}}}\n{extra}\ncolumns:\n"
        "  x: {topic: /x, field: data, resample: nearest, tolerance: 10ms}\n"
        f"{columns}outputs: {{parquet: {{}}}}\n"
    )
    return path


def build(folder, logs, extra="", **more):
    """Whether a build is whole, and its rows."""
    recipe = recipe_of(folder / "recipe.yaml", logs, extra, **more)
    return build_at(Recipe.load(str(recipe)), folder / "root").is_whole, rows_of(folder)


def build_command(folder, logs, extra=""):
    """The exit code and stderr of a build, and its rows."""
    recipe = recipe_of(folder / "recipe.yaml", logs, extra)
    done = command("build", str(recipe), "--to", str(folder / "root"))
    return done, rows_of(folder) if done.returncode in (0, 3) else {}


def rows_of(folder):
    """By log_id the times and values of x."""
    dataset, rows = datasets.open(str(folder / "root")), {}
    for i in range(len(dataset)):
        row = dataset[i]
        rows.setdefault(str(row["log_id"]), []).append((int(row["timestamp"]), float(row["x"])))
    return rows


def record(folder, log_id):
    logs = read_manifest(Store.at(str(folder / "root"))).logs
    return next(one for one in logs if one.log_id == log_id)


@pytest.mark.parametrize("on_error", ["fail", "skip", "salvage"])
def test_strays_are_refused_and_listed_under_every_on_error(tmp_path, on_error):
    logs = [write(tmp_path / f"{name}.mcap", messages) for name, messages in SHAPES.items()]
    done, rows = build_command(tmp_path, logs, f"on_error: {on_error}")
    assert done.returncode == 3
    offset = {"began_1970": 30}
    for name in SHAPES:
        assert rows[name] == [(t, i + offset.get(name, 0)) for i, t in enumerate(ticks(100))], name
    assert (record(tmp_path, "sound").status, record(tmp_path, "sound").refused) == ("whole", 0)
    for name, topic, count in [("stray", "/event", 1), ("began_1970", "/x", 30), ("ahead", "/x", 1)]:
        found = record(tmp_path, name)
        assert (found.status, found.refused) == ("salvaged", count)
        assert f"{topic}: {count} message" in found.reasons[0]
        assert f"{topic}: {count} message" in done.stderr
    again = command("build", str(tmp_path / "recipe.yaml"), "--to", str(tmp_path / "root"))
    assert "up to date" in again.stderr
    assert verify(str(tmp_path / "root"), against_logs=True, num_workers=1).findings == ()


def test_a_log_with_a_stray_is_planned_with_a_warning(tmp_path):
    log = write(tmp_path / "stray.mcap", SHAPES["stray"])
    done = command(
        "plan", str(recipe_of(tmp_path / "r.yaml", [log])), "--to", str(tmp_path / "root"), "--json"
    )
    assert json.loads(done.stdout)["partitions"] == 1
    assert "/event: 1 message outside the recording, logged before the year 2000" in done.stderr


def test_a_leap_of_thirty_days_makes_no_ticks_in_between(tmp_path):
    later = ticks(50, T0 + 30 * 86400 * S, 10)
    log = write(tmp_path / "leap.mcap", of("/x", *ticks(10), *later))
    is_whole, rows = build(tmp_path, [log])
    assert (is_whole, rows["leap"]) == (True, [(t, i) for i, t in enumerate([*ticks(10), *later])])
    assert record(tmp_path, "leap").planned == 60


def test_a_window_reaches_into_a_silence(tmp_path):
    log = write(tmp_path / "leap.mcap", of("/x", *ticks(10), *ticks(10, T0 + 86400 * S)))
    columns = "  mean: {topic: /x, field: data, resample: mean, window: [-2s, 0s]}\n"
    _, rows = build(tmp_path, [log], columns=columns)
    assert [t for t, _ in rows["leap"]] == [*ticks(30), *ticks(10, T0 + 86400 * S)]


@pytest.mark.parametrize("clock", ["topic: /x", "rate: 10"])
def test_a_recipe_may_state_the_extent(tmp_path, clock):
    log = write(tmp_path / "ahead.mcap", SHAPES["ahead"])
    extra = "time: {by: log, from: 1s, to: '2023-11-14T22:13:23Z'}"
    is_whole, rows = build(tmp_path, [log], extra, clock=clock)
    assert is_whole  # what lies beyond a stated end is no stray
    assert rows["ahead"] == [(t, i) for i, t in enumerate(ticks(21, first=10), 10)]
    assert record(tmp_path, "ahead").refused == 0


def test_a_stated_start_makes_a_night_in_1970_the_recording(tmp_path):
    log = write(tmp_path / "began_1970.mcap", SHAPES["began_1970"])
    is_whole, rows = build(tmp_path, [log], "time: {from: '1970-01-01T00:00:00Z'}")
    assert is_whole
    assert [t for t, _ in rows["began_1970"]] == [*ticks(30, 0), *ticks(100)]


NO_TIMES = [
    ("time: {from: '2023-11-14T22:13:23'}", "has no zone; write 2023-11-14T22:13:23Z for UTC"),
    ("time: {from: soon}", "is not a time; write it like 2026-11-22T08:30:00Z"),
    ("time: {from: 5}", "5 has no unit"),
    ("time: {from: 5s, to: 2s}", "ends before it begins"),
    ("time: {set_back: middle}", "first"),
]


def test_times_that_make_no_sense_are_refused_with_their_line(tmp_path):
    log = write(tmp_path / "sound.mcap", SHAPES["sound"])
    for extra, words in NO_TIMES:
        with case(extra), pytest.raises(RecipeError, match=rf"recipe.yaml:4: time.*{re.escape(words)}"):
            Recipe.load(str(recipe_of(tmp_path / "recipe.yaml", [log], extra)))


SET_BACK = of("/x", *ticks(50), *ticks(50, T0 + 2 * S))


@pytest.mark.parametrize(("part", "size"), [("first", 100), ("last", 700), ("last", 10**6)])
def test_a_recipe_chooses_a_part_of_a_log_whose_clock_was_set_back(tmp_path, part, size):
    log = write(tmp_path / "back.mcap", SET_BACK, chunk_size=size)
    is_whole, rows = build(tmp_path, [log], f"time: {{set_back: {part}}}\npartition: {{rows: 20}}")
    assert is_whole
    first, last = ticks(50), ticks(50, T0 + 2 * S)
    expected = enumerate(first) if part == "first" else enumerate(last, 50)
    assert rows["back"] == [(t, i) for i, t in expected]
    assert verify(str(tmp_path / "root"), against_logs=True, num_workers=1).findings == ()


@pytest.mark.parametrize("on_error", ["fail", "skip", "salvage"])
def test_a_clock_set_back_is_an_error_of_its_log(tmp_path, on_error):
    logs = [write(tmp_path / "back.mcap", SET_BACK), write(tmp_path / "sound.mcap", SHAPES["sound"])]
    done, rows = build_command(tmp_path, logs, f"on_error: {on_error}")
    assert "back.mcap: the clock was set back by 2.9 s at 4.9 s (in the order of the file)" in done.stderr
    assert done.returncode == (1 if on_error == "fail" else 3)
    if on_error != "fail":
        assert list(rows) == ["sound"]
        assert record(tmp_path, "back").status == "skipped"


def write_db3(path, messages):
    from rosbags.rosbag2 import Writer

    from tests.io.logs.rosbag2.test_rosbag2 import STORE

    with Writer(path, version=9) as writer:
        connection = writer.add_connection("/a", "std_msgs/msg/String", typestore=STORE)
        for message in messages:
            writer.write(connection, message.log_time, message.data)
    return path.glob("*.db3")


def every_kind(folder, times):
    def messages(data):
        return [Message("/a", t, t, t, data) for t in times]

    toys = messages(toy_payload(1, b"x" * 40))
    yield write_mcap(folder / "indexed.mcap", toys)
    yield write_mcap(folder / "no_index.mcap", toys, index_types=[])
    yield write_mcap(folder / "no_chunks.mcap", toys, use_chunking=False)
    yield write_bag(folder / "one.bag", messages(ros1_payload(1, b"x" * 40)))
    yield from write_db3(folder / "bag", messages(b"\0\1\0\0\2\0\0\0x\0"))


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("part", ["first", "last"])
def test_every_kind_of_file_gives_the_messages_of_a_part(tmp_path, part):
    before, after = [0, *ticks(50)], [*ticks(50, T0 + 2 * S), T0 + 40 * 86400 * S]
    for path in every_kind(tmp_path, [*before, *after]):
        log = open_log([str(path)], OpenOptions(set_back=part))
        (topic,) = log.summary.topics.values()
        wanted = {"first": before[1:], "last": after[:-1]}[part]
        found = log.read({"/a": TopicRequest(MIN_TIME, MAX_TIME, ("log",))})["/a"]
        assert found.log_time.tolist() == wanted, path
        every = log.read({"/a": TopicRequest(MIN_TIME, MAX_TIME, ("log",), with_strays=True)})["/a"]
        assert sorted(every.log_time.tolist()) == sorted([*before, *after]), path
        assert (topic.num_messages, topic.num_strays) == (51, 1), path
        assert (log.summary.first, log.summary.last) == (wanted[0], wanted[-1]), path
        assert log.summary.recorded.set_backs == ()


@pytest.mark.usefixtures("toy")
def test_every_kind_of_file_shows_where_its_clock_was_set_back_and_its_strays(tmp_path):
    for path in every_kind(tmp_path, [0, *ticks(50), *ticks(50, T0 + 2 * S)]):
        summary = open_log([str(path)]).summary
        facts = summary.recorded
        assert [(p.at, p.to) for p in facts.set_backs] == [(T0 + 49 * TICK, T0 + 2 * S)], path
        assert [(stray.run.first, stray.run.size) for stray in facts.strays] == [(0, 1)], path
        (topic,) = summary.topics.values()
        assert (summary.first, summary.last) == (topic.first, topic.last) == (T0, T0 + 69 * TICK), path
        assert (topic.num_messages, topic.num_strays) == (101, 1), path


def test_a_suggested_recipe_takes_rate_and_tolerance_without_strays(tmp_path):
    write(tmp_path / "drive.mcap", [*of("/event", 0), *of("/x", 0, 0, *ticks(50))])
    done = command("info", str(tmp_path / "drive.mcap"), "--recipe")
    assert "clock: {rate: 10}" in done.stdout
    assert "tolerance: 200ms" in done.stdout
    assert "topic: /event" not in done.stdout
    assert not build_at(Recipe.from_yaml(done.stdout), tmp_path / "root").is_whole
    assert (record(tmp_path, "drive").rows, record(tmp_path, "drive").refused) == (50, 3)


def test_a_suggested_recipe_keeps_the_first_part_of_a_log_whose_clock_was_set_back(tmp_path):
    write(tmp_path / "back.mcap", of("/x", *ticks(50), *ticks(50, T0 - 25 * S)))
    done = command("info", str(tmp_path / "back.mcap"), "--recipe")
    assert "clock: {rate: 10}" in done.stdout
    assert "set_back: first" in done.stdout
    assert "the clock of back was set back by 29.9 s at 4.9 s" in done.stdout
    assert "`last` keeps what follows, `split` both" in done.stdout
    assert build_at(Recipe.from_yaml(done.stdout), tmp_path / "root").is_whole
    assert record(tmp_path, "back").rows == 50


def test_info_names_strays_and_clocks_set_back(tmp_path):
    write(tmp_path / "drive.mcap", [*of("/event", 0), *SET_BACK])
    done = command("info", str(tmp_path / "drive.mcap"))
    assert "/event: 1 message outside the recording, logged before the year 2000" in done.stdout
    assert "the clock was set back by 2.9 s at 4.9 s" in done.stdout


def test_a_suggested_recipe_takes_no_rate_from_a_leap(tmp_path):
    write(tmp_path / "leap.mcap", of("/x", *ticks(10), *ticks(50, T0 + 30 * 86400 * S)))
    done = command("info", str(tmp_path / "leap.mcap"), "--recipe")
    assert "clock: {rate: 10}" in done.stdout
    assert "tolerance: 200ms" in done.stdout
    assert build_at(Recipe.from_yaml(done.stdout), tmp_path / "root").is_whole
    assert record(tmp_path, "leap").rows == 60 + 4  # two ticks on either side lie within the tolerance
