"""Arrays of structs that hold text: found at once where messages repeat their layout, and always right."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import LogReadError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.messages.ros import elements
from logloom.io.logs.messages.ros.decoders import CdrDecoder
from tests.io.logs.messages.payloads import raw_messages, same, serialize, topic

LINKS = """Link[] links
uint8 last
===
MSG: pkg/Link
builtin_interfaces/Time stamp
string parent
string child
float64[3] at
===
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
WHOLE, CHILD = FieldSpec(("links",)), FieldSpec(("links[].child",))


def link(number, parent, child):
    stamp = {"sec": number, "nanosec": 7}
    return {"stamp": stamp, "parent": parent, "child": child, "at": [number / 2, -1.0, float(number)]}


def message(number, names):
    return {"links": [link(number + i, *pair) for i, pair in enumerate(names)], "last": number % 256}


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
PUBLISHERS = st.lists(st.lists(st.tuples(NAMES, NAMES), max_size=4), min_size=1, max_size=4)


@given(
    publishers=PUBLISHERS, seed=st.integers(0, 99), order=st.sampled_from("<>"), per_buffer=st.integers(1, 40)
)
def test_messages_of_several_publishers_read_as_they_were_written(publishers, seed, order, per_buffer):
    decode = CdrDecoder(topic(LINKS))
    taken = random.Random(seed).choices(publishers, k=30)
    written = [message(i, names) for i, names in enumerate(taken)]
    raw = raw_messages([serialize(decode.root, one, order) for one in written], per_buffer)
    assert decode.check(raw).all()
    for read, one in zip(decode.take(raw, WHOLE), written, strict=True):
        assert same(read, one["links"])
    for read, one in zip(decode.take(raw, CHILD), written, strict=True):
        assert read.tolist() == [link["child"] for link in one["links"]]


def test_messages_of_one_size_and_several_layouts_are_told_apart():
    decode = CdrDecoder(topic(LINKS))
    kinds = [[("map", "odometry"), ("odometry", "base")], [("odometry", "map"), ("base", "odometry")]]
    written = [message(i, kinds[i % 3 == 0]) for i in range(50)]
    payloads = [serialize(decode.root, one) for one in written]
    assert len(set(map(len, payloads))) == 1
    for read, one in zip(decode.take(raw_messages(payloads), WHOLE), written, strict=True):
        assert same(read, one["links"])


@pytest.mark.parametrize("first", [True, False])
def test_a_damaged_message_among_those_that_look_like_it_is_refused_alone(first):
    decode = CdrDecoder(topic(LINKS))
    payloads = [serialize(decode.root, message(i, [("map", "odom"), ("odom", "base")])) for i in range(20)]
    which = 0 if first else 13
    # The length of its first text: it claims to reach beyond the message, or leads elsewhere within it.
    for length in (2**32 - 1, 12, 3):
        damaged = bytearray(payloads[which])
        damaged[16:20] = length.to_bytes(4, "little")
        raw = raw_messages([*payloads[:which], bytes(damaged), *payloads[which + 1 :]], 6)
        assert np.flatnonzero(~decode.check(raw)).tolist() == [which]
        with pytest.raises(LogReadError, match=f"chunk {which // 6}, /topic message"):
            decode.take(raw, WHOLE)


def test_counts_that_would_be_read_at_wrong_places_take_no_memory():
    """Each element of a wrong guess could claim as many elements as the whole message has room for."""
    text = "Outer[] a\n===\nMSG: pkg/Outer\nstring name\nInner[] b\n===\nMSG: pkg/Inner\nstring s"
    decode = CdrDecoder(topic(text))

    def outer(i):
        names = ["n" * (k % 5) for k in range(i % 4)]
        return {"a": [{"name": "x" * (i % 3), "b": [{"s": name} for name in names]} for _ in range(5)]}

    written = [outer(i) for i in range(40)]
    raw = raw_messages([serialize(decode.root, one) for one in written])
    assert decode.check(raw).all()
    names = decode.take(raw, FieldSpec(("a[].name",)))
    assert [row.tolist() for row in names] == [[o["name"] for o in one["a"]] for one in written]


@pytest.mark.parametrize("text", ["plain", "größer", "x" * 70, "", "a\0b"])
def test_text_of_any_length_and_alphabet_is_kept_at_its_width(text):
    decode = CdrDecoder(topic(LINKS))
    pairs = [("map", text), (text, "odom")]
    raw = raw_messages(
        [serialize(decode.root, message(i, pairs[: i % 3])) for i in range(30)], 30, b"\xff" * 3
    )
    for i, row in enumerate(decode.take(raw, FieldSpec(("links[].child",), strings=70))):
        assert row.dtype == "<U70"
        assert row.tolist() == [text, "odom"][: i % 3]


def test_messages_whose_looks_mix_to_one_number_are_told_apart(monkeypatch):
    """The text before the array could look like an element that starts where those of shorter texts do."""
    monkeypatch.setattr(elements, "_MIXERS", np.zeros(3, np.uint64))
    decode = CdrDecoder(topic("string name\nItem[] items\n===\nMSG: pkg/Item\nstring s"))
    written = [
        {"name": ["", "abcdefgh\x0f\0\0\0"][i % 2], "items": [{"s": ["hello", "hi"][i % 2]}]}
        for i in range(12)
    ]
    raw = raw_messages([serialize(decode.root, one) for one in written])
    assert decode.check(raw).all()
    found = decode.take(raw, FieldSpec(("items[].s",)))
    assert [row.tolist() for row in found] == [["hello"], ["hi"]] * 6
