"""Columns of poses: recipes over real logs, the same rows for any partition, and what strange frames mean."""

import itertools
import math

import numpy as np
import pytest

from logloom.blocks import concatenate
from logloom.errors import LogReadError, RecipeError, UsageError
from logloom.io.catalog.tombstones import digest_of_log
from logloom.io.logs.opening import open_log
from logloom.io.logs.redaction import RedactedLog
from logloom.recipe import Recipe
from logloom.resample.frame_tree import Extrapolation, FrameTree
from logloom.resample.poses import matrices
from logloom.schema import MAX_TIME, MIN_TIME, NO_AGE
from logloom.transforms.build.commit import notes_on_frames
from logloom.transforms.build.job import plain
from logloom.transforms.rows.frame_notes import frame_notes
from logloom.transforms.rows.frames import read_frames
from logloom.transforms.rows.plan.resolve import hold_to, resolve
from logloom.transforms.rows.plan.row_plan import Span
from logloom.transforms.rows.row_stream import build_blocks
from logloom.transforms.rows.spans import plan_spans
from logloom.transforms.suggest import samples
from tests.tier import by_tier
from tests.transforms.ros2_logs import SECOND, SPEED, START, TF, speeds, transform, write_log

MS = 1_000_000


def yaw(angle):
    return 0, 0, math.sin(angle / 2), math.cos(angle / 2)


def drive_topics(seconds=6):
    """A car that turns, its slow place on the map, and a lidar that doesn't move on it."""
    rng = np.random.default_rng(7)
    tf = []
    for i in range(seconds * 50):
        t = START + i * 20 * MS
        moved = [transform(t, "odom", "base", (i * 0.2, math.sin(i / 20), 0), yaw(i / 30))]
        if i % 25 == 3:
            moved.append(transform(t - 5 * MS, "/map", "odom", rng.normal(size=3), yaw(i / 99)))
        tf.append((t + int(rng.integers(0, 40)) * MS, {"transforms": moved}))
    static = [(START, {"transforms": [transform(0, "base", "/lidar", (1, 0, 2), yaw(0.1))]})]
    static.append((START + 1, {"transforms": [transform(0, "base", "camera", (2, 0, 1))]}))
    return {
        "/tf": (TF, tf),
        "/tf_static": (TF, static),
        "/can": (SPEED, speeds(seconds * 10, delay=7 * MS, step=99 * MS)),
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return open_log([write_log(tmp_path_factory.mktemp("logs") / "drive.mcap", drive_topics())])


def recipe(columns, rows=1000, more=""):
    lines = "".join(f"  {line.strip()}\n" for line in columns.strip().splitlines())
    text = f"name: t\nlogs: x\nclock: {{rate: 40}}\npartition: {{rows: {rows}}}\n{more}columns:\n{lines}"
    return Recipe.from_yaml(text)


COLUMNS = """
speed: {topic: /can, field: speed, resample: nearest, tolerance: 60ms}
lidar: {tf: {from: lidar, to: map, cache: 700ms}}
at: {tf: {from: lidar, to: map, cache: 700ms}, at: speed, as: matrix}
held: {tf: {from: odom, to: map, cache: 700ms, extrapolate: {hold: 200ms}}, as: position}
on: {tf: {from: base, to: camera, extrapolate: {linear: 50ms}}, as: quaternion}
turn: {tf: {from: base, to: odom, cache: 30ms}, as: rotation_matrix}
"""


def built(log, plan, max_bytes=1 << 20, on_error="fail"):
    """All columns of a log's rows, and the tallies of its spans."""
    blocks, tallies = [], []
    for span in plan_spans(log.summary, plan):
        stream = build_blocks(log, "drive", plan, span, max_bytes=max_bytes, on_error=on_error)
        blocks += [block.columns for block in stream]
        tallies.append(stream.tally)
    return {name: concatenate([block[name] for block in blocks]) for name in blocks[0]}, tallies


def test_partitions_of_every_size_give_the_rows_of_the_whole_log(log):
    plan = resolve(recipe(COLUMNS), {"drive": log})[0]
    whole, tallies = built(log, plan)
    assert len(tallies) == 1
    for rows, max_bytes in (
        (by_tier(17, 3), 1 << 20),
        (40, by_tier(1 << 13, 1 << 10)),
        (1000, by_tier(1 << 14, 1)),
    ):
        parts, some = built(log, resolve(recipe(COLUMNS, rows), {"drive": log})[0], max_bytes)
        assert (len(some) > 1) == (rows < 1000)
        for name, values in whole.items():
            assert values.tobytes() == parts[name].tobytes(), (rows, name)
        assert list(notes_on_frames(plan, some)) == list(notes_on_frames(plan, tallies))


def test_rows_hold_what_lookups_give_at_the_tick_or_at_the_time_of_a_message(log):
    rows, _ = built(log, resolve(recipe(COLUMNS), {"drive": log})[0])
    tree = FrameTree(read_frames(log, ["/tf"], ["/tf_static"]).table)
    ticks, rule = rows["timestamp"], Extrapolation(700 * MS)
    poses, reasons = tree.lookup("lidar", "map", ticks, rule)
    np.testing.assert_array_equal(rows["lidar"], poses.T)
    np.testing.assert_array_equal(rows["lidar.available"], reasons == 0)
    assert set(rows["lidar.age"][reasons == 0]) == {0}
    assert set(rows["lidar.age"][reasons != 0]) == {NO_AGE}
    measured = rows["speed.available"]
    times = ticks[measured] - rows["speed.age"][measured]
    assert (times % (99 * MS) == (START - 7 * MS) % (99 * MS)).all()
    poses, reasons = tree.lookup("lidar", "map", times, rule)
    np.testing.assert_array_equal(rows["at"][measured][reasons == 0], matrices(poses)[reasons == 0])
    assert not rows["at.available"][~measured].any()
    np.testing.assert_array_equal(
        rows["at.age"][measured][reasons == 0], rows["speed.age"][measured][reasons == 0]
    )
    known = rows["turn.available"]
    np.testing.assert_allclose(np.linalg.det(rows["turn"][known]), 1, atol=1e-14)
    assert rows["on"].shape == (len(ticks), 4)


def test_what_is_unavailable_is_counted_by_its_reason(log):
    plan = resolve(recipe(COLUMNS, 20, "rows: {require: [lidar]}\n"), {"drive": log})[0]
    rows, tallies = built(log, plan)
    assert rows["lidar.available"].all()
    told = dict(line.split(": ", 1) for line in notes_on_frames(plan, tallies) if ": " in line)
    dropped = sum(tally.dropped.get("require lidar", 0) for tally in tallies)
    counts = {}
    for tally in tallies:
        for reason, count in tally.lacking["lidar"].items() if "lidar" in tally.lacking else ():
            counts[reason] = counts.get(reason, 0) + count
    assert sum(counts.values()) == dropped > 0
    assert counts.keys() == {"past", "future"}
    assert told["lidar"].startswith(f"{dropped} ticks without a pose of lidar in map: future ")
    assert "no speed" in told["at"]
    assert type(tallies[0]).from_json(tallies[0].to_json()) == tallies[0]


def test_a_frame_that_nobody_publishes_is_named_with_the_nearest(log):
    made = recipe("pose: {tf: {from: lidr, to: /map}}\nother: {tf: {from: /lidar, to: odm}}")
    with pytest.raises(RecipeError) as caught:
        resolve(made, {"drive": log})
    nobody = "no transform has the frame"
    assert str(caught.value).splitlines() == [
        f"recipe.yaml:6: columns.pose.tf.from: {nobody} 'lidr' in the log; did you mean lidar?",
        f"recipe.yaml:7: columns.other.tf.to: {nobody} 'odm' in the log; did you mean odom?",
    ]


def test_frames_that_come_late_in_the_log_are_found(tmp_path):
    late = {"transforms": [transform(START + 60 * SECOND, "map", "late")]}
    soon = {"transforms": [transform(START, "map", "soon")]}
    topics = {"/tf": (TF, [(START, soon), (START + 60 * SECOND, late)])}
    log = open_log([write_log(tmp_path / "drive.mcap", topics)])
    resolve(recipe("pose: {tf: {from: late, to: soon}}"), {"drive": log})


@pytest.mark.parametrize(
    ("columns", "mistake"),
    [
        (
            "a: {tf: {from: x, to: /x}}",
            "columns.a.tf: `from` and `to` are the same frame; its pose in itself",
        ),
        ("a: {tf: {from: x, to: ''}}", "columns.a.tf.to: expected the name of a frame, like base_link"),
        ("a: {tf: {from: x}}", "columns.a.tf.to: "),
        ("a: {tf: {from: x, to: y, cash: 1s}}", "columns.a.tf.cash: unknown key; did you mean cache?"),
        (
            "a: {tf: {from: x, to: y}, extrapolate: none}",
            "columns.a.extrapolate: unknown key; it belongs under `tf`",
        ),
        ("a: {tf: {from: x, to: y, extrapolate: {hold: 1s, linear: 1s}}}", "write {hold: 100ms} or"),
        ("a: {tf: {from: x, to: y, extrapolate: nome}}", "columns.a.tf.extrapolate: "),
        (
            "a: {tf: {from: x, to: y, cache: 1s, extrapolate: {hold: 2s}}}",
            "`extrapolate` reaches beyond `cache`",
        ),
        ("a: {tf: {from: x, to: y, static: /tf}}", "/tf is in `topics` and in `static`"),
        (
            "a: {tf: {from: x, to: y}, as: matrx}",
            "columns.a.as: no such choice as 'matrx'; did you mean matrix?",
        ),
        ("a: {tf: {from: x, to: y}, at: b}", "columns.a.at: no column 'b'"),
        (
            "a: {tf: {from: x, to: y}, at: b}\nb: {topic: /can, field: speed, resample: mean}",
            "columns.a.at: b has no single message at a tick, so its time can't be looked up",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(columns, mistake):
    with pytest.raises(RecipeError) as caught:
        recipe(columns)
    assert mistake in str(caught.value)


def test_a_topic_that_holds_no_transforms_is_a_mistake(log):
    with pytest.raises(RecipeError, match="/can has no stamped transforms"):
        resolve(recipe("a: {tf: {from: x, to: y, topics: /can}}"), {"drive": log})
    with pytest.raises(RecipeError, match="the log has no topic '/tff'; did you mean /tf"):
        resolve(recipe("a: {tf: {from: x, to: y, topics: /tff, static: []}}"), {"drive": log})
    with pytest.raises(UsageError, match="/can has no stamped transforms"):
        read_frames(log, ["/can"], [])


def test_a_recipe_without_poses_keeps_its_identity(log):
    plan = resolve(recipe("speed: {topic: /can, field: speed}"), {"drive": log})[0]
    assert "transforms" not in plain(plan)[1]
    _, tallies = built(log, plan)
    assert not {"lacking", "notes"} & tallies[0].to_json().keys()


def test_a_recipe_of_poses_is_read_back_as_it_was_written():
    made = recipe(COLUMNS)
    assert Recipe.from_yaml(made.to_yaml()) == made
    assert Recipe.model_validate(made.identity_json()) == made


def test_strange_frames_are_told_and_counted(tmp_path):
    def at(i):
        return START + i * 10 * MS

    def message(i, *transforms):
        return at(i), {"transforms": [transform(at(i), *each) for each in transforms]}

    dynamic = [
        message(0, ("map", "base"), ("a", "b"), ("b", "a")),
        message(1, ("odom", "base"), ("map", "twice", (1, 0, 0))),
        message(2, ("map", "base")),
        (at(3), {"transforms": [transform(at(1), "map", "twice", (2, 0, 0))]}),
        message(4, ("map", "map"), ("map", ""), ("map", "still"), ("map", "bad", (0, 0, 0), (0, 0, 0, 0))),
        message(5, ("map", "bad", (math.nan, 0, 0)), ("/map", "base")),
        (at(6), {"transforms": [transform(0, "map", "base"), transform(at(6) + 2 * SECOND, "map", "base")]}),
    ]
    static = [
        message(0, ("base", "still")),
        message(1, ("base", "still")),
        message(2, ("base", "still", (0, 0, 1))),
    ]
    path = write_log(tmp_path / "odd.mcap", {"/tf": (TF, dynamic), "/tf_static": (TF, static)})
    frames = read_frames(open_log([path]), ["/tf"], ["/tf_static"], max_delay=SECOND)
    everything = frame_notes(frames, Span(MIN_TIME, MAX_TIME))
    assert everything == {
        "the name '/map' begins with a slash, which is removed": 1,
        "transforms of frame '' on /tf lack a frame's name": 1,
        "transforms of frame 'bad' on /tf are invalid: a number isn't finite, or "
        "the rotation's norm is zero": 2,
        "transforms of frame 'base' on /tf have an invalid stamp": 1,
        "transforms of frame 'base' on /tf are further from their log time than max_delay allows": 1,
        "transforms of frame 'map' on /tf have their own frame as parent": 1,
        "frame 'base' changes its parent (map, odom)": 2,
        "frame 'still' is published on /tf and /tf_static": 4,
        "the static transform of frame 'still' is sent again with other values; the last is used": 1,
        "frame 'twice' has different transforms at one stamp: two publishers? The first is used": 1,
        "the frames a, b are in a loop, in which no lookup ends": 2,
    }
    halves = [frame_notes(frames, span) for span in (Span(MIN_TIME, at(2)), Span(at(2), MAX_TIME))]
    assert {text: sum(half.get(text, 0) for half in halves) for text in everything} == everything
    told = FrameTree(frames.table).lookup("still", "base", np.array([at(0)]), Extrapolation(SECOND))[0]
    assert told[2, 0] == 1


def test_ticks_of_erased_time_lack_no_pose(log):
    ranges = ((START + 2 * SECOND, START + 3 * SECOND),)
    redacted = RedactedLog(log, "drive", {digest_of_log("drive"): ranges})
    plan = resolve(recipe("base: {tf: {from: base, to: odom, cache: 30ms}}"), {"drive": redacted})[0]
    rows, (tally,) = built(redacted, plan)
    assert tally.dropped == {"purged": 40}
    assert sum(tally.lacking["base"].values()) == int((~rows["base.available"]).sum())


def test_loops_among_thousands_of_frames_are_found_at_once(tmp_path):
    names = [f"f{number:04}" for number in range(2000)]
    chain = [transform(START, parent, child) for child, parent in itertools.pairwise(names)]
    loop = [transform(START, "f0007", "f0003"), transform(START, "z", "y"), transform(START, "y", "z")]
    kept = [t for t in chain if t["child_frame_id"] != "f0003"]
    rows = [(START, {"transforms": [*loop, *kept]})]
    log = open_log([write_log(tmp_path / "deep.mcap", {"/tf": (TF, rows)})])
    notes = frame_notes(read_frames(log, ["/tf"], []), Span(MIN_TIME, MAX_TIME))
    assert notes == {"the frames y, z are in a loop, in which no lookup ends": 2}
    rows.append((START + 1, {"transforms": [transform(START, names[0], names[-1])]}))
    log = open_log(
        [write_log(tmp_path / "round.mcap", {"/tf": (TF, [(START, {"transforms": chain}), rows[1]])})]
    )
    notes = frame_notes(read_frames(log, ["/tf"], []), Span(MIN_TIME, MAX_TIME))
    assert notes == {f"the frames {', '.join(names[:20])}, … are in a loop, in which no lookup ends": 2000}


def test_a_log_whose_topics_hold_no_transforms_is_not_held_to_the_plan(log, tmp_path):
    made = recipe("pose: {tf: {from: lidar, to: map}}")
    plan, _ = resolve(made, {"drive": log})
    hold_to(plan, made, "drive", log)
    other = open_log([write_log(tmp_path / "other.mcap", {**drive_topics(1), "/tf": (SPEED, speeds(3))})])
    with pytest.raises(RecipeError, match=r"recipe.yaml:6: columns.pose: /tf has no stamped transforms"):
        hold_to(plan, made, "other", other)


def test_a_long_name_of_a_frame_takes_no_more_memory_than_a_bound(tmp_path, monkeypatch):
    """All names that are read together take as much as the longest: 4 KiB of text would be gigabytes."""
    monkeypatch.setattr(samples, "MAX_TEXT_BYTES", 1 << 20)
    taken = []
    take_text = samples.take_text

    def watched(*arguments):
        values, strings = take_text(*arguments)
        taken.append(values.values.nbytes)
        return values, strings

    monkeypatch.setattr(samples, "take_text", watched)
    many = [transform(START + i, "map", f"part-{i % 3}") for i in range(100)]
    long = [transform(START + 1000, "map", "x" * 1000)]
    path = write_log(
        tmp_path / "long.mcap", {"/tf": (TF, [(START, {"transforms": m}) for m in [many] * 9 + [long]])}
    )
    table = read_frames(open_log([path]), ["/tf"], []).table
    assert len(table.child) == 901
    assert "x" * 1000 in table.names
    assert max(taken) <= 1 << 20
    both = {"/tf": (TF, [(START, {"transforms": [*many, *many, *long]})])}
    log = open_log([write_log(tmp_path / "one.mcap", both)])
    with pytest.raises(LogReadError, match=r"one.mcap.* characters.*201 values of /tf.* shorten the text"):
        read_frames(log, ["/tf"], [])
