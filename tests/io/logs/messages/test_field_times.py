"""Times in fields: exact, and refused where they are none, in every encoding of messages."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import UsageError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME
from logloom.io.logs.messages.field_times import UNITS, as_nanoseconds, exact_nanoseconds, joined_stamps
from logloom.io.logs.messages.json import JsonDecoder
from logloom.io.logs.messages.protobuf import ProtobufDecoder
from logloom.io.logs.messages.ros.decoders import CdrDecoder, Ros1Decoder
from tests.io.logs.messages.payloads import raw_messages, serialize, topic
from tests.io.logs.messages.test_json import decoder_of
from tests.io.logs.messages.test_protobuf import definitions, info, message_type

NS = 1_700_000_000_123_456_789  # no float64
DEFINITION = """string name
{time} stamp
Timing x
===
MSG: pkg/Timing
uint64 us
int64 ns
float64 s
float32 short
bool valid
int64[2] two
string text
Pair pair
===
MSG: pkg/Pair
int32 sec
uint32 nanosec
"""
TIMING = {"us": NS // 1000, "ns": NS, "s": 1.5, "short": 0.25, "valid": True, "two": [1, 2], "text": "t"}


@pytest.mark.parametrize("encoding", ["cdr", "ros1"])
def test_numbers_and_stamps_of_ros_messages_are_times(encoding):
    kind, language, parts = (
        (CdrDecoder, "ros2msg", ("sec", "nanosec"))
        if encoding == "cdr"
        else (Ros1Decoder, "ros1msg", ("secs", "nsecs"))
    )
    decoder = kind(topic(DEFINITION.format(time="time"), encoding, language))
    stamp = dict(zip(parts, divmod(NS, 10**9), strict=True))
    pair = dict(zip(("sec", "nanosec"), divmod(NS, 10**9), strict=True))
    whole = serialize(
        decoder.root, {"name": "abc", "stamp": stamp, "x": {**TIMING, "pair": pair}}, encoding=encoding
    )
    raw = raw_messages([whole, whole[:12], whole])
    for path, unit, time in (
        ("stamp", "", NS),
        ("x.pair", "", NS),
        ("x.us", "us", NS // 1000 * 1000),
        ("x.ns", "ns", NS),
        ("x.s", "s", 1_500_000_000),
        ("x.short", "s", 250_000_000),
    ):
        decoder.check_field_time(path, unit)
        assert decoder.field_time(raw, path, unit).tolist() == [time, MIN_TIME, time], path


@pytest.mark.parametrize(
    ("path", "unit", "why"),
    [
        ("x.uss", "us", "did you mean x.us"),
        ("stmp", "", "did you mean stamp"),
        ("x.text", "us", "'x.text' is text, not a time"),
        ("x.valid", "s", "'x.valid' is a bool, not a time"),
        ("x.two", "ns", "is an array"),
        ("x.two[0]", "ns", "is an array"),
        ("x.ns", "", r"number \(int64\) without a unit; write {field: x.ns, unit: us} \(or ns, ms, s\)"),
        ("stamp", "s", "is a stamp of seconds and nanoseconds; leave out `unit`"),
        ("x", "", "has us, ns, s, short, valid, two, text, pair, so it is no stamp"),
    ],
)
def test_a_field_that_is_no_time_says_why(path, unit, why):
    decoder = CdrDecoder(topic(DEFINITION.format(time="time")))
    with pytest.raises(UsageError, match=why):
        decoder.check_field_time(path, unit)


def test_numbers_and_timestamps_of_protobuf_messages_are_times():
    definition, classes = definitions(
        message_type("Inner", ("at", ".google.protobuf.Timestamp"), ("us", "uint64"), ("s", "double")),
        message_type("Outer", ("inner", ".toy.Inner")),
    )
    message = classes["Outer"]()
    message.inner.at.FromNanoseconds(NS)
    message.inner.us, message.inner.s = NS // 1000, 1.5
    decoder = ProtobufDecoder(info("toy.Outer", definition))
    raw = raw_messages([message.SerializeToString(), b"\xff", b""])
    assert decoder.field_time(raw, "inner.at", "").tolist() == [NS, MIN_TIME, 0]
    assert decoder.field_time(raw, "inner.us", "us").tolist() == [NS // 1000 * 1000, MIN_TIME, 0]
    assert decoder.field_time(raw, "inner.s", "s").tolist() == [1_500_000_000, MIN_TIME, 0]
    with pytest.raises(UsageError, match=r"did you mean inner.us"):
        decoder.check_field_time("inner.uss", "us")


def test_numbers_of_json_are_exact_even_where_the_schema_says_number():
    schema = {
        "type": "object",
        "properties": {"t": {"type": "number"}, "at": {"type": "object", "properties": {
            "secs": {"type": "integer"}, "nsecs": {"type": "integer"}}}},
    }  # fmt: skip
    messages = [{"t": NS, "at": {"secs": NS // 10**9, "nsecs": NS % 10**9}}, {"t": "x"}, {}, {"t": 1e300}]
    raw = raw_messages([json.dumps(message).encode() for message in messages])
    for decoder in (decoder_of(schema), decoder_of(None)):
        decoder.check_field_time("t", "ns")
        assert decoder.field_time(raw, "t", "ns").tolist() == [NS, MIN_TIME, MIN_TIME, MIN_TIME]
        assert decoder.field_time(raw, "at", "").tolist() == [NS, MIN_TIME, MIN_TIME, MIN_TIME]
    with pytest.raises(UsageError, match="did you mean t"):
        decoder_of(schema).check_field_time("tt", "ns")
    assert isinstance(decoder_of(None), JsonDecoder)


@given(st.integers(MIN_TIME, MAX_TIME), st.sampled_from(sorted(UNITS)))
def test_integers_are_converted_exactly_or_are_no_time(value, unit):
    expected = value * UNITS[unit]
    fits = abs(expected) <= MAX_TIME // UNITS[unit] * UNITS[unit]
    assert as_nanoseconds(np.array([value]), unit).tolist() == [expected if fits else MIN_TIME]
    if value >= 0:
        assert as_nanoseconds(np.array([value], "u8"), unit).tolist() == [expected if fits else MIN_TIME]


@given(st.floats(-4e9, 4e9), st.sampled_from(sorted(UNITS)))
def test_floats_are_rounded_to_the_nearest_nanosecond(value, unit):
    exact = Fraction(value) * UNITS[unit]
    (time,) = as_nanoseconds(np.array([value]), unit).tolist()
    assert abs(time - exact) <= Fraction(1, 2) + Fraction(1, 10**6)
    assert abs(exact_nanoseconds(value, unit) - exact) <= Fraction(1, 2)


def test_numbers_that_are_no_times_are_none():
    odd = np.array([np.nan, np.inf, -np.inf, 1e300, 1.0])
    assert as_nanoseconds(odd, "s").tolist() == [MIN_TIME] * 4 + [10**9]
    assert as_nanoseconds(np.array([2**64 - 1], "u8"), "ns").tolist() == [MIN_TIME]
    seconds, rest = np.array([2**62, 1, 1]), np.array([0, -1, 5])
    assert joined_stamps(seconds, rest).tolist() == [MIN_TIME, MIN_TIME, 10**9 + 5]
    last = np.array([MAX_TIME // 10**9] * 2), np.array([MAX_TIME % 10**9, MAX_TIME % 10**9 + 1])
    assert joined_stamps(*last).tolist() == [MAX_TIME, MIN_TIME]  # and not around to 1677
    for value in (True, "1", None, float("nan"), float("inf"), 1e300):
        with pytest.raises(ValueError, match=r"is no|leave the range|NaN"):
            exact_nanoseconds(value, "s")
