"""Logs of others: whatever they call their topics, and whatever they hold, a suggestion is a recipe."""

import importlib.metadata
import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcap.writer import Writer

from logloom.errors import UsageError
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.pipelines.build.build import build
from logloom.pipelines.info.info import suggested_recipe
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.recipe import yaml as recipe_yaml
from logloom.text import printable_lines
from logloom.transforms.suggest import samples
from logloom.transforms.suggest.recipe import MAX_NAME, suggest
from tests.io.logs.messages.test_protobuf import definitions, message_type
from tests.tier import by_tier
from tests.transforms.ros2_logs import POSE, SECOND, SPEED, START, header, speeds, write_log

STEP = SECOND // 10
TIMES = [START + i * STEP for i in range(20)]
ANGLE = {"type": "object", "properties": {"yaw": {"type": "number"}, "gear": {"type": "integer"}}}


def write_json(path, topics, times=TIMES):
    """A log of {topic: (type's name, schema or None, message)}, each message said at all times."""
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        for topic, (name, schema, message) in topics.items():
            data = json.dumps(schema).encode() if schema is not None else b""
            number = writer.register_schema(name, "jsonschema" if schema is not None else "", data)
            channel = writer.register_channel(topic, "json", number)
            for time in times:
                writer.add_message(channel, time, json.dumps(message).encode(), time)
        writer.finish()
    return str(path)


def built(text, tmp_path):
    plan = plan_build(Recipe.from_yaml(text), str(tmp_path / "root"))
    return build(plan, num_workers=1).manifest


# --- names ----------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30) | st.sampled_from(
    [
        "/a\n  clock: {rate: 1}",
        "\x1b[31m/red\x1b[0m",
        "/t\u2028x\u0085y",
        "/\u202egnorw",
        "# no: yes",
        "'\"{}[]&*!|>%@`,",
        "/" + "long" * 600,
        "<<",
        "null",
        "1.5",
    ]
)


@given(topics=st.dictionaries(NAMES, st.tuples(NAMES, NAMES), min_size=1, max_size=4))
def test_whatever_topics_types_and_fields_are_called_the_suggestion_is_a_recipe(tmp_path, topics):
    told = {
        topic: (
            kind,
            {"type": "object", "properties": {"speed": {"type": "number"}, field: {"type": "number"}}},
            {"speed": 1.5, field: 0.5},
        )
        for topic, (kind, field) in topics.items()
    }
    path = write_json(tmp_path / "log.mcap", told)
    named = {topic for topic in topics if topic.strip()}
    if not named:
        with pytest.raises(UsageError):
            suggested_recipe([path], {})
        return
    text = suggested_recipe([path], {})
    recipe = Recipe.from_yaml(text)
    assert {column.topic for column in recipe.columns.values()} == named
    # No name breaks out of its line, be it of a column or a comment: only what is suggested stands there.
    assert printable_lines(text) == text
    lines = text.split("\n")
    for line in lines[lines.index("columns:") + 1 : lines.index("outputs:")]:
        data, _, mistakes = recipe_yaml.load(line.strip(), "line")
        assert not mistakes
        assert data is None if line.startswith("  # ") else len(data) == 1
    assert Recipe.from_yaml(recipe.to_yaml()) == recipe


def test_a_long_topic_keeps_its_name_and_gets_a_column_of_a_short_one(tmp_path):
    topics = {
        f"/{'x' * 2000}/{i}": (SPEED, [(t, {**m, "header": header(0)}) for t, m in speeds()]) for i in (1, 2)
    }
    recipe = Recipe.from_yaml(suggested_recipe([write_log(tmp_path / "log.mcap", topics)], {}))
    assert {column.topic for column in recipe.columns.values()} == set(topics)
    assert set(recipe.time.topics) == set(topics)
    assert max(map(len, recipe.columns)) <= MAX_NAME + 20


def test_a_recipe_of_a_topic_with_line_breaks_builds(tmp_path):
    topic = "/a\n  b: {topic: /other}\x1b[0m"
    text = suggested_recipe([write_log(tmp_path / "log.mcap", {topic: (SPEED, speeds())})], {})
    assert built(text, tmp_path).totals["rows"] > 10


# --- policies that values decide ------------------------------------------------------------------------


def write_table(path, **columns):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_columns_of_rows_that_share_a_stamp_take_the_nearest_and_reach_the_next_stamp(tmp_path):
    frames = np.arange(30) * SECOND + START
    path = write_table(
        tmp_path / "agents.parquet", timestamp=np.repeat(frames, 10), x=np.arange(300.0), yaw=np.zeros(300)
    )
    text = suggested_recipe([path], {})
    columns = Recipe.from_yaml(text).columns
    assert [column.resample for column in columns.values()] == ["nearest", "nearest"]
    assert {column.tolerance for column in columns.values()} == {2 * SECOND}
    assert "several messages share a time" in text
    assert built(text, tmp_path).totals["rows"] > 20


def wrapped(values, turn=2 * np.pi, low=-np.pi):
    return (values - low) % turn + low


STEADY = np.linspace(0.0, 20.0, 90)  # a turn takes some 28 values
WHEEL = 5.0 * np.sin(np.arange(90) / 20)


@pytest.mark.parametrize(
    ("name", "values", "policy"),
    [
        ("steering_angle", WHEEL, "linear"),
        ("yaw", WHEEL, "linear"),
        ("yaw", STEADY, "linear"),
        ("yaw", wrapped(STEADY), "angle"),
        ("yaw", wrapped(STEADY, low=0), "angle"),
        ("direction", wrapped(STEADY + np.random.default_rng(0).normal(size=90) / 20), "angle"),
        ("direction", np.float32(wrapped(STEADY)), "angle"),
        ("yaw", wrapped(STEADY * 57.3, 360, 0), "nearest"),
        ("yaw", wrapped(STEADY * 57.3, 360, -180), "nearest"),
        ("yaw", np.linspace(-1.0, 350.0, 90), "linear"),
        ("yaw", np.random.default_rng(0).uniform(-3.1, 3.1, 90), "linear"),
        ("voltage", 3.0 * np.sign(np.sin(np.arange(90) / 5 + 0.1)), "linear"),
        ("yaw", np.full(90, np.nan), "linear"),
    ],
)
def test_only_values_that_jump_by_a_turn_are_angles_whatever_their_name(tmp_path, name, values, policy):
    times = START + np.arange(90) * STEP
    path = write_table(tmp_path / "ego.parquet", timestamp=times, **{name: values}, other=np.zeros(90))
    text = suggested_recipe([path], {})
    columns = Recipe.from_yaml(text).columns
    assert columns[f"ego.{name}"].resample == policy
    assert columns[f"ego.{name}"].unit == ("rad" if policy == "angle" else "")
    assert columns["ego.other"].resample == "linear"
    if by_tier(policy == "angle", True):
        assert built(text, tmp_path).totals["rows"] > 20


@pytest.mark.parametrize("turn_at", [0, 1, 2])
def test_one_log_of_several_in_which_values_wrap_decides(tmp_path, turn_at):
    paths = []
    for i in range(3):
        values = wrapped(STEADY) if i == turn_at else STEADY / 9
        times = START + (np.arange(90) + 1000 * i) * STEP
        paths.append(write_table(tmp_path / f"{i}" / "ego.parquet", timestamp=times, heading=values))
    assert Recipe.from_yaml(suggested_recipe(paths, {})).columns["ego.heading"].resample == "angle"


def test_of_many_messages_some_show_what_wraps(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "MAX_LOOKED", 450)
    heading = wrapped(np.linspace(0.0, 200.0, 900))
    times = START + np.arange(900) * STEP
    path = write_table(
        tmp_path / "ego.parquet", timestamp=times, heading=heading, wheel=5 * np.sin(times / 1e10)
    )
    columns = Recipe.from_yaml(suggested_recipe([path], {})).columns
    assert [columns[f"ego.{name}"].resample for name in ("heading", "wheel")] == ["angle", "linear"]


def test_transforms_of_several_frames_in_turn_are_not_interpolated(tmp_path):
    pose = {"position": {"x": 1.0}, "orientation": {"w": 1.0}}
    turns = [
        (t, {"header": {**header(t), "frame_id": "ab"[i % 2]}, "pose": pose}) for i, t in enumerate(TIMES)
    ]
    one = [(t, {"header": header(t), "pose": pose}) for t in TIMES]
    path = write_log(tmp_path / "log.mcap", {"/turns": (POSE, turns), "/one": (POSE, one)})
    text = suggested_recipe([path], {})
    columns = Recipe.from_yaml(text).columns
    assert {name: column.resample for name, column in columns.items()} == {
        "one.position": "linear",
        "one.rotation": "slerp",
        "turns.position": "nearest",
        "turns.rotation": "nearest",
    }
    assert "messages are of several frames" in text
    assert built(text, tmp_path).totals["rows"] > 10


def test_room_is_made_for_the_longest_name_in_an_array(tmp_path):
    schema = {
        "type": "object",
        "properties": {
            "boxes": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            }
        },
    }
    path = write_json(tmp_path / "log.mcap", {"/b": ("B", schema, {"boxes": [{"name": "x" * 100}]})})
    text = suggested_recipe([path], {})
    assert Recipe.from_yaml(text).columns["b.boxes"].strings == 128
    assert built(text, tmp_path).totals["rows"] > 10


# --- encodings ------------------------------------------------------------------------------------------


def test_protobuf_topics_are_suggested_by_their_descriptors(tmp_path):
    definition, classes = definitions(
        message_type("Vector3", ("x", "double"), ("y", "double"), ("z", "double")),
        message_type("Quaternion", ("x", "double"), ("y", "double"), ("z", "double"), ("w", "double")),
        message_type("Pose", ("position", ".toy.Vector3"), ("orientation", ".toy.Quaternion")),
        message_type(
            "PoseInFrame",
            ("timestamp", ".google.protobuf.Timestamp"),
            ("frame_id", "string"),
            ("pose", ".toy.Pose"),
            ("color", "Color"),
            ("yaw", "float"),
        ),
    )
    path = tmp_path / "log.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel(
            "/pose", "protobuf", writer.register_schema("toy.PoseInFrame", "protobuf", definition)
        )
        for time in TIMES:
            message = classes["PoseInFrame"]()
            message.timestamp.seconds, message.timestamp.nanos = divmod(time, SECOND)
            message.pose.orientation.w = 1.0
            writer.add_message(channel, time, message.SerializeToString(), time)
        writer.finish()
    text = suggested_recipe([str(path)], {})
    assert {name: column.resample for name, column in Recipe.from_yaml(text).columns.items()} == {
        "pose.position": "linear",
        "pose.rotation": "slerp",
        "pose.color": "nearest",
        "pose.yaw": "linear",
    }
    assert built(text, tmp_path).totals["rows"] > 10


def test_json_topics_are_suggested_by_their_schemas_or_values_and_others_say_why_not(tmp_path):
    topics = {
        "/bare": ("E", None, {}),
        "/typed": ("A", ANGLE, {"yaw": 1.0, "gear": 2}),
        "/free": ("B", None, {"yaw": 1.0}),
        "/empty": ("C", {"type": "object"}, {}),
        "/lies": ("D", ANGLE, {"yaw": "north", "gear": 1}),
    }
    text = suggested_recipe([write_json(tmp_path / "log.mcap", topics)], {})
    columns = Recipe.from_yaml(text).columns
    assert {name: column.resample for name, column in columns.items()} == {
        "free.yaw": "linear",
        "typed.yaw": "linear",
        "typed.gear": "nearest",
        "lies.gear": "nearest",
    }
    assert "its json messages have no schema, and those that were sampled no properties" in text
    assert "its definition types no field" in text
    assert "left out: yaw: " in text
    assert "'north' is no number" in text
    assert built(text, tmp_path).totals["rows"] > 10


def test_one_bad_topic_is_a_comment_with_the_reason_and_the_others_are_suggested(tmp_path):
    path = tmp_path / "log.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schemas = {
            "/strange": ("x/Y", "klingon", b"", "klingon"),
            "/broken": ("x/msg/Z", "ros2msg", b"Nowhere field\n", "cdr"),
            "/short": ("x/msg/S", "ros2msg", b"float64 a\nfloat64 b\n", "cdr"),
            "/good": ("x/msg/G", "ros2msg", b"float64 a\n", "cdr"),
        }
        for topic, (name, kind, definition, encoding) in schemas.items():
            number = writer.register_schema(name, kind, definition)
            channel = writer.register_channel(topic, encoding, number)
            for time in TIMES:
                writer.add_message(channel, time, b"\0\1\0\0" + bytes(8), time)
        writer.finish()
    text = suggested_recipe([str(path)], {})
    assert list(Recipe.from_yaml(text).columns) == ["good.a"]
    reasons = {line.split(":")[0]: lines for line, lines in paired(text)}
    assert "klingon" in reasons["/strange"]
    assert "Nowhere" in reasons["/broken"]
    assert "fit" in reasons["/short"]
    assert all(f"topic {topic}: topic" not in reason for topic, reason in reasons.items())
    assert built(text, tmp_path).totals["rows"] > 10


def paired(text):
    """(comment of a topic, comment below it)"""
    lines = [line.strip().removeprefix("# ") for line in text.split("\n")]
    return [(line, below) for line, below in pairwise(lines) if line.startswith("/")]


def test_many_topics_are_suggested_without_looking_for_packages_again(tmp_path, monkeypatch):
    topics = {f"/car/{i}": (SPEED, speeds(3)) for i in range(40)}
    path = write_log(tmp_path / "log.mcap", topics)
    logs = {"log": open_log([path], OpenOptions())}
    suggest(logs)

    def refuse(*_, **__):
        raise AssertionError("entry points are looked for again")

    monkeypatch.setattr(importlib.metadata, "entry_points", refuse)
    monkeypatch.setattr(importlib.metadata, "distributions", refuse)
    recipe = Recipe.from_yaml(suggest(logs))
    assert len(recipe.columns) == 80


def test_a_recipe_of_thousands_of_columns_is_read(tmp_path):
    columns = "".join(
        f"  # /some/rather/long/topic/{i}/of/a/whole/fleet: car_msgs/msg/Speed, 20 messages, 10 Hz\n"
        f"  c{i}: {{topic: /some/rather/long/topic/{i}/of/a/whole/fleet, field: speed, resample: linear}}\n"
        for i in range(8000)
    )
    text = f"name: n\nlogs: [a.mcap]\nclock: {{rate: 10}}\ncolumns:\n{columns}"
    assert len(text) > 1 << 20
    recipe = Recipe.from_yaml(text)
    assert len(recipe.columns) == 8000
    assert recipe.places.line(("columns", "c1")) == 8
