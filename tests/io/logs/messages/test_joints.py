"""Joints by name: values of a plain loop over messages, in every encoding and for every kind of message."""

import json
from dataclasses import replace

import numpy as np
import pytest

from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import FieldSpec, TopicInfo
from logloom.io.logs.messages.joints import EACH, HAS, LACKS, REFUSED
from logloom.io.logs.messages.json import JsonDecoder
from logloom.io.logs.messages.protobuf import ProtobufDecoder
from logloom.io.logs.messages.ros.decoders import CdrDecoder, Ros1Decoder
from tests.io.logs.messages.payloads import raw_messages, serialize, topic
from tests.io.logs.messages.test_protobuf import definitions, info, message_type
from tests.tier import by_tier

STATE = "string frame\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n"
KINDS = """
string[] joint_names
Transform[] transforms
Twist[] twist
Point[] points
Interfaces[] interface_values
State actual
Named[] joints
===
MSG: pkg/Transform
Vector translation
Turn rotation
===
MSG: pkg/Twist
Vector linear
Vector angular
===
MSG: pkg/Vector
float64 x
float64 y
float64 z
===
MSG: pkg/Turn
float64 x
float64 y
float64 z
float64 w
===
MSG: pkg/Point
float64[] positions
float64[] velocities
===
MSG: pkg/Interfaces
string[] interface_names
float64[] values
===
MSG: pkg/State
float32[] positions
===
MSG: pkg/Named
string name
float64 position
"""


def joints(field, *names, **options):
    return FieldSpec((field,), "joints", names=names, **options)


def taken(decoder, raw, spec):
    """By number of a message that has a value, the value."""
    rows = np.flatnonzero(decoder.has_value(raw, spec))
    values = decoder.take(raw.take(rows), spec)
    assert (values.dtype, values.shape[1:]) == (np.dtype("f8"), decoder.column_type(spec).shape)
    states, numbers = each_joint(decoder, raw, spec)
    for place, name in enumerate(spec.names):
        alone = replace(spec, names=(name,))
        np.testing.assert_array_equal(states[:, place] == HAS, decoder.has_value(raw, alone))
        own = np.flatnonzero(states[:, place] == HAS)
        expected = decoder.take(raw.take(own), alone).reshape(len(own), numbers.shape[2])
        np.testing.assert_array_equal(numbers[own, place], expected)
    return dict(zip(rows.tolist(), values.tolist(), strict=True))


def each_joint(decoder, raw, spec):
    """What is known of each joint of messages, and its numbers."""
    each = replace(spec, adapter=EACH)
    found = np.full((len(raw), *decoder.column_type(each).shape), np.nan)
    held = decoder.has_value(raw, each)
    rows = np.arange(len(raw)) if held is None else np.flatnonzero(held)
    found[rows] = decoder.take(raw.take(rows), each)
    return found[:, :, 0], found[:, :, 1:]


def random_states(rng, count):
    """Messages of several publishers, in any order of their joints, some without velocities."""
    robot = [f"joint {i}" for i in range(6)] + ["gripper", "long " + "x" * 50]
    publishers = [robot[:6], robot[6:], robot[2:4], robot, []]
    states, names = [], robot[:6]
    for _ in range(count):
        if rng.random() < 0.4:  # mostly as in the message before
            names = list(rng.permutation(publishers[rng.integers(len(publishers))]))
        position = rng.normal(size=len(names)).tolist()
        velocity = rng.normal(size=len(names)).tolist() if rng.random() < 0.6 else []
        frame = "f" * int(rng.integers(9))
        state = {"frame": frame, "name": list(map(str, names)), "position": position, "velocity": velocity}
        states.append(state | {"effort": []})
    return states


def looped(states, field, wanted):
    """The same as `taken`, message by message."""
    found = {}
    for row, state in enumerate(states):
        values = dict(zip(state["name"], state[field], strict=False))
        if all(name in values for name in wanted) and len(state[field]) == len(state["name"]):
            found[row] = [values[name] for name in wanted]
    return found


def decoders():
    """By encoding, a decoder of states and a function that makes payloads."""
    cdr = CdrDecoder(topic(STATE))
    ros1 = Ros1Decoder(topic(STATE, "ros1", "ros1msg", "pkg/Root"))
    lists = ("position", "velocity", "effort")
    kinds = [("frame", "string"), ("name", "string", "repeated")]
    definition, classes = definitions(
        message_type("State", *kinds, *((name, "double", "repeated") for name in lists))
    )
    numbers = {"type": "array", "items": {"type": "number"}}
    texts = {"type": "array", "items": {"type": "string"}}
    schema = {"type": "object", "properties": {"name": texts, **dict.fromkeys(lists, numbers)}}
    of_json = TopicInfo("/topic", "State", "json", "jsonschema", json.dumps(schema).encode(), 0, 0, 0)
    return {
        "cdr": (cdr, lambda state: serialize(cdr.root, state)),
        "cdr big": (cdr, lambda state: serialize(cdr.root, state, ">")),
        "ros1": (ros1, lambda state: serialize(ros1.root, state, encoding="ros1")),
        "protobuf": (
            ProtobufDecoder(info("toy.State", definition)),
            lambda state: classes["State"](**state).SerializeToString(),
        ),
        "json": (JsonDecoder(of_json), lambda state: json.dumps(state).encode()),
    }


@pytest.mark.parametrize("encoding", ["cdr", "cdr big", "ros1", "protobuf", "json"])
def test_values_are_those_of_a_loop_over_messages_of_any_order_and_publisher(encoding):
    rng = np.random.default_rng(5)
    decoder, payload = decoders()[encoding]
    states = random_states(rng, by_tier(80, 2000))
    raw = raw_messages([payload(state) for state in states])
    robot = states[0]["name"]
    wanted = [rng.permutation(robot).tolist(), ["gripper"], ["long " + "x" * 50, "gripper"], robot[3:4]]
    for names in wanted:
        for field in ("position", "velocity"):
            expected = looped(states, field, names)
            assert 0 < len(expected) < len(states)
            assert taken(decoder, raw, joints(field, *names)) == expected
        assert not decoder.has_value(raw, joints("effort", *names)).any()
    assert not decoder.has_value(raw, joints("position", robot[0], "no such")).any()


def test_messages_that_have_a_joint_twice_or_too_many_values_are_refused():
    decoder, payload = decoders()["cdr"]
    state = {"frame": "", "name": ["a", "b"], "position": [1.0, 2.0], "velocity": [], "effort": []}
    twice = state | {"name": ["a", "b", "a"], "position": [1.0, 2.0, 3.0]}
    raw = raw_messages([payload(one) for one in (state, twice, state | {"position": [1.0, 2.0, 3.0]})])
    assert decoder.has_value(raw, joints("position", "a")).all()  # to be refused when taken
    with pytest.raises(LogReadError, match=r"chunk 0, .*: it has the joint 'a' twice"):
        decoder.take(raw, joints("position", "a"))
    states, numbers = each_joint(decoder, raw, joints("position", "a", "c", "b"))
    assert states.tolist() == [[HAS, LACKS, HAS], [REFUSED, LACKS, HAS], [REFUSED, LACKS, REFUSED]]
    assert numbers[states == HAS].tolist() == [[1], [2], [2]]
    with pytest.raises(LogReadError, match="3 values of 2 joints in position"):
        decoder.take(raw, joints("position", "b"))
    assert decoder.take(raw.take(np.array([0, 1])), joints("position", "b")).tolist() == [[2], [2]]
    with pytest.raises(LogReadError, match="it lacks the joint 'c'"):
        decoder.take(raw, joints("position", "a", "c"))


def test_transforms_trajectories_interfaces_and_named_elements_are_read_by_their_fields():
    decoder = CdrDecoder(topic(KINDS))
    rng = np.random.default_rng(9)

    def numbers(count):
        return rng.normal(size=count).astype("f4").tolist()

    def vector(axes):
        return dict(zip(axes, numbers(len(axes)), strict=True))

    def interfaces():
        names = list(rng.permutation(["position", "velocity", "effort"])[: rng.integers(1, 4)])
        return {"interface_names": list(map(str, names)), "values": numbers(len(names))}

    def message():
        names = list(map(str, rng.permutation(["a", "b", "c"])))
        count = 0 if rng.random() < 0.2 else 3
        points = [{"positions": numbers(count), "velocities": []} for _ in range(rng.integers(3))]
        return {
            "joint_names": names,
            "transforms": [{"translation": vector("xyz"), "rotation": vector("xyzw")} for _ in names],
            "twist": [{"linear": vector("xyz"), "angular": vector("xyz")} for _ in names[:count]],
            "points": points,
            "interface_values": [interfaces() for _ in names],
            "actual": {"positions": numbers(3)},
            "joints": [{"name": name, "position": numbers(1)[0]} for name in names[: rng.integers(4)]],
        }

    def flat(value):
        return (
            [leaf for part in value.values() for leaf in flat(part)] if isinstance(value, dict) else [value]
        )

    def of_interface(part, name):
        return dict(zip(part["interface_names"], part["values"], strict=True))[name]

    reads = {
        "transforms": lambda m: [flat(one) for one in m["transforms"]],
        "twist": lambda m: [flat(one) for one in m["twist"]],
        "points[0].positions": lambda m: m["points"][0]["positions"],
        "points[1].positions": lambda m: m["points"][1]["positions"],
        "interface_values.position": lambda m: [
            of_interface(one, "position") if "position" in one["interface_names"] else None
            for one in m["interface_values"]
        ],
        "actual.positions": lambda m: m["actual"]["positions"],
    }
    messages = [message() for _ in range(by_tier(40, 800))]
    raw = raw_messages([serialize(decoder.root, one) for one in messages])
    for path, read in reads.items():
        for wanted in (["c", "a"], ["b"]):
            expected = {}
            for row, one in enumerate(messages):
                try:
                    values = dict(zip(one["joint_names"], read(one), strict=True))
                except (IndexError, ValueError):  # no such point, or no values
                    continue
                if None not in (found := [values[name] for name in wanted]):
                    expected[row] = found
            assert expected
            assert taken(decoder, raw, joints(path, *wanted)) == expected, path
    named = [{one["name"]: one["position"] for one in m["joints"]} for m in messages]
    expected = {row: [m["b"], m["a"]] for row, m in enumerate(named) if {"a", "b"} <= m.keys()}
    assert taken(decoder, raw, joints("joints[].position", "b", "a")) == expected
    assert decoder.column_type(joints("transforms", "a", "b")).shape == (2, 7)


@pytest.mark.parametrize(
    ("definition", "field", "words"),
    [
        (STATE, "positon", "did you mean position"),
        (STATE, "frame", "field frame is not a list with numbers for each joint"),
        (STATE, "name", "field name is not a list with numbers"),
        (STATE, "position[0]", r"field position\[0\] is not a list with numbers"),
        (
            "float64[] position\n",
            "position",
            r"no list of joints' names \(name, joint_names, .*beside position",
        ),
        ("string name\nfloat64[] position\n", "position", "no list of joints' names"),
        (KINDS, "interface_values", "is not a list with numbers|contains interface_names"),
    ],
)
def test_a_field_without_names_or_numbers_is_refused(definition, field, words):
    with pytest.raises(UsageError, match=words):
        CdrDecoder(topic(definition)).column_type(joints(field, "a"))
