"""Words for people: counts agree with their noun, and nothing steers a terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.text import counted, human_time, is_printable, printable, printable_lines


def test_a_count_agrees_with_its_noun():
    assert [counted(n, "log") for n in (0, 1, 2, 1200)] == ["0 logs", "1 log", "2 logs", "1,200 logs"]
    assert [counted(n, "entry", "entries") for n in (1, 3)] == ["1 entry", "3 entries"]


def test_times_are_cut_to_milliseconds():
    assert human_time(1_700_000_000_999_999_999) == "2023-11-14 22:13:20.999 UTC"
    assert human_time(1_700_000_000_000_000_000) == "2023-11-14 22:13:20 UTC"
    assert human_time(-1) == "1969-12-31 23:59:59.999 UTC"
    for beyond in (2**80, -(2**80), 2**63 * 10**9, 2**90 * 10**9):
        assert human_time(beyond) == f"{beyond} ns"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/imu", "/imu"),
        ("/größe 車 🚗", "/größe 車 🚗"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[2J\x07\x7f\x9b", "\\x1b[2J\\x07\\x7f\\x9b"),
        ("a\u202eb\u2066\u2028\u2029\u200f\ufeff", "a\\u202eb\\u2066\\u2028\\u2029\\u200f\\ufeff"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_steers_a_terminal_becomes_an_escape(text, shown):
    assert printable(text) == shown
    assert is_printable(text) == (text == shown)


@given(st.text(st.characters()))
def test_printable_text_is_one_line_without_controls(text):
    shown = printable(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in shown)
    assert not any(unicodedata.bidirectional(c) in BIDI for c in shown)
    assert len(shown.splitlines()) <= 1
    assert printable(shown) == shown
    shown.encode()


BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_lines_of_a_message_stay_lines():
    assert printable_lines("one\n  two\x1b[0m\r") == "one\n  two\\x1b[0m\\r"
