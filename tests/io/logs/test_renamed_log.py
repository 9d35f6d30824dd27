"""Logs whose topics and fields have one of several names."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from logloom.errors import LogReadError
from logloom.io.catalog.tombstones import digest_of_log
from logloom.io.logs.interface import Alternatives, FieldSpec, OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log
from tests.transforms.suggest.test_hostile import write_json

NAMES = Alternatives({"/can": ("/vehicle",)}, {"/can": {"velocity": ("speed", "v")}})
WANTED = FieldSpec(("velocity",))
EVERYTHING = {"/can": TopicRequest(0, 1 << 62)}


def renamed(path, names=NAMES, log_id="", **options):
    return open_log([path], replace(OpenOptions(alternatives=names), **options), log_id)


def values(log, spec=WANTED):
    messages = log.read(EVERYTHING)["/can"]
    return messages.take(spec, np.arange(len(messages))).tolist()


@pytest.mark.parametrize("topic", ["/can", "/vehicle"])
def test_a_log_is_read_by_the_first_names(tmp_path, topic):
    path = write_log(
        tmp_path / "a.mcap", {topic: (SPEED, speeds(count=5)), "/other": (SPEED, speeds(count=2))}
    )
    plain, log = open_log([path]), renamed(path)
    messages = plain.read({topic: EVERYTHING["/can"]})[topic]
    expected = messages.take(FieldSpec(("speed",)), np.arange(5)).tolist()
    for one in (log, pickle.loads(pickle.dumps(log))):
        assert list(one.summary.topics) == ["/can", "/other"]
        assert one.summary.topics["/can"].topic == topic
        assert one.summary.content_id == plain.summary.content_id
        assert one.summary.messages_id != plain.summary.messages_id
        assert values(one) == expected
        joined = values(one, FieldSpec(("velocity", "velocity")))
        assert joined == [[value, value] for value in expected]
        assert str(one.column_type("/can", WANTED)) == "float64"
        last = one.last_message("/can", WANTED)
        assert last.topic == "/can"
        assert last.take(WANTED, np.arange(1)).tolist() == expected[-1:]
        assert one.places("/can", messages.position) == plain.places(topic, messages.position)
        assert one.time_source("/can", ("header", "log")) == "header"


def test_a_log_with_the_first_names_only_is_the_log_itself(tmp_path):
    path = write_log(tmp_path / "a.mcap", {"/can": (SPEED, speeds(count=5))})
    names = Alternatives({"/can": ("/vehicle",)}, {"/can": {"speed": ("velocity",)}})
    assert renamed(path, names).summary.messages_id == open_log([path]).summary.messages_id
    assert OpenOptions(alternatives=names).known_by != OpenOptions().known_by
    assert OpenOptions(alternatives=Alternatives()).known_by == OpenOptions().known_by


def test_erased_time_is_erased_by_any_name(tmp_path):
    path = write_log(tmp_path / "a.mcap", {"/vehicle": (SPEED, speeds(count=5))})
    middle = START + SECOND // 10
    ranges = {digest_of_log("a"): ((middle, middle + 1),)}
    kept = values(renamed(path))
    assert values(renamed(path, log_id="a", redactions=ranges)) == [kept[0], *kept[2:]]


@pytest.mark.parametrize(("path", "expected"), [("speed", 3.5), ("v", 7.5), ("velocity", 9.5)])
def test_json_without_a_schema_has_the_field_of_its_messages(tmp_path, path, expected):
    log = renamed(write_json(tmp_path / "a.mcap", {"/vehicle": ("car/Speed", None, {path: expected})}))
    assert set(values(log, replace(WANTED, dtype="float64"))) == {expected}


@pytest.mark.parametrize("name", ["velocity", "speed"])
def test_a_message_that_only_an_adapter_reads_is_a_field(tmp_path, name):
    """A column can't have all of it, as it contains a list."""
    nested = f"x_msgs/Speeds {name}\n{'=' * 80}\nMSG: x_msgs/Speeds\nfloat64[] values\n"
    messages = [(START + i, {name: {"values": [1.5] * i}}) for i in range(3)]
    log = renamed(write_log(tmp_path / "a.mcap", {"/can": (("x_msgs/msg/Car", nested), messages)}))
    assert log.summary.renamed == (() if name == "velocity" else (("/can velocity", "speed"),))


def test_json_with_two_of_the_fields_names_both(tmp_path):
    log = renamed(write_json(tmp_path / "a.mcap", {"/can": ("car/Speed", None, {"speed": 1, "v": 2})}))
    with pytest.raises(LogReadError, match=r"a\.mcap: messages of /can have 'speed' and 'v', which `any`"):
        _ = log.summary


def test_a_topic_without_messages_does_not_count(tmp_path):
    empty, path = (SPEED, []), tmp_path / "a.mcap"
    log = renamed(write_log(path, {"/can": empty, "/vehicle": (SPEED, speeds(count=3))}))
    assert log.summary.topics["/can"].num_messages == 3
    assert len(values(log)) == 3


def test_refusals_name_the_first_topic(tmp_path):
    late = [(time + 5 * SECOND, message) for time, message in speeds(count=3)]
    log = renamed(write_log(tmp_path / "a.mcap", {"/vehicle": (SPEED, late)}), on_error="skip")
    refused = log.read({"/can": TopicRequest(0, 1 << 62, max_delay=SECOND)})["/can"].refused
    assert [one.topic for one in refused] == ["/can"] * 3
