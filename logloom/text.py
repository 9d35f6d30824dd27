"""Text for people: counts, sizes, times, near names, escaped control characters.

Here: pure functions.
Elsewhere: printing (logloom.cli.terminal), messages of errors (logloom.errors). Names of topics, types
and fields come from logs and may contain anything: escape sequences, line breaks, overrides of the direction
of writing.
"""

from __future__ import annotations

import datetime
import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}

MAX_DURATION = 10 * 366 * 86_400 * 10**9  # ns, ten years: times plus any duration still fit in int64
DURATION_UNITS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
}

WAITING_LOG = "logloom.waiting"  # the logger for slow servers, whose messages no command hides
OnMessage = Callable[[str], None]  # called with messages for people


def ignore_message(message: str) -> None:
    """An `OnMessage` that does nothing."""


def counted(count: int, noun: str, many: str = "") -> str:
    """Return a count with its noun: `1 log`, `3 logs`, `1,200 logs`.

    Args:
        noun: of one.
        many: the plural, if that isn't the noun with an s.
    """
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


def human_bytes(count: float) -> str:
    """A byte count for people: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def human_seconds(seconds: float) -> str:
    """A duration for people: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def human_duration(duration_ns: int, digits: int = 3) -> str:
    """A duration in ns for people, in this many digits or two units.

    >>> [human_duration(ns) for ns in (0, 10_000_000, 999_999_999, -4_990_000_000)]
    ['0 s', '10 ms', '1 s', '-4.99 s']
    >>> [human_duration(seconds * 10**9) for seconds in (90, 30 * 86400)]
    ['1 min 30 s', '30 days']
    """
    if duration_ns == 0:
        return "0 s"
    sign, size = "-" if duration_ns < 0 else "", abs(duration_ns)
    for unit, length in (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9)):
        if size < 999.5 * length and (unit != "s" or size < 59.95 * length):
            return f"{sign}{size / length:.{digits}g} {unit}"
    days = size / (86400 * 10**9)
    return f"{sign}{human_seconds(size / 1e9) if days < 2 else f'{round(days, 1):,g} days'}"


def human_time(time_ns: int) -> str:
    """A time, ns since the Unix epoch, for people."""
    try:
        moment, rest = _moment(time_ns)
    except OverflowError:
        return f"{time_ns} ns"
    milliseconds = f".{rest // 10**6:03}" if rest else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{milliseconds} UTC"


def iso8601(time_ns: int) -> str:
    """A time in UTC with nanoseconds.

    >>> iso8601(1600000000123456789), iso8601(-1)
    ('2020-09-13T12:26:40.123456789Z', '1969-12-31T23:59:59.999999999Z')
    """
    moment, rest = _moment(time_ns)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def _moment(time_ns: int) -> tuple[datetime.datetime, int]:
    """Return the second of a time, in UTC, and the ns after it; raise OverflowError beyond all years."""
    seconds, rest = divmod(time_ns, 10**9)
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds), rest


def human_number(number: float | None, unit: str = "", digits: int = 6) -> str:
    """A number for people: a duration if its unit is ns, or a time if it is beyond ten years.

    >>> human_number(2 / 3), human_number(12345678.9), human_number(None)
    ('0.666667', '12,345,679', '')
    >>> human_number(14749100.0, "ns"), human_number(1600000000 * 10**9, "ns")
    ('14.7 ms', '2020-09-13 12:26:40 UTC')
    """
    if number is None:
        return ""
    if unit == "ns":
        is_time = abs(number) > MAX_DURATION
        return human_time(round(number)) if is_time else human_duration(round(number), min(digits, 9) // 2)
    text = f"{number:.{digits}g}"
    return f"{number:,.0f}" if "e+" in text and abs(number) < 1e15 else text


def changed_numbers(changes: Mapping[str, tuple[float | None, float | None]], arrow: str, unit: str) -> str:
    """Describe how numbers changed, other than counts that grew; in six digits, or as many as differ.

    Args:
        unit: of the numbers that aren't counts.

    Examples:
        >>> changed_numbers({"count": (5, 9), "mean": (2 / 3, 0.5), "min": (None, 1234567)}, "->", "")
        'mean 0.666667 -> 0.5, min none -> 1,234,567'
        >>> changed_numbers({"unavailable": (1, 12), "max": (8_000_000, 45_000_000)}, "->", "ns")
        'unavailable 1 -> 12, max 8 ms -> 45 ms'
    """

    def pair(name: str, old: float | None, new: float | None) -> str:
        own = "" if name in ("count", "unavailable") else unit
        for digits in (6, 9, 17):
            texts = ["none" if x is None else human_number(x, own, digits) for x in (old, new)]
            if texts[0] != texts[1]:
                break
        return f"{name} {texts[0]} {arrow} {texts[1]}"

    return ", ".join(
        pair(name, *both) for name, both in changes.items() if not (name == "count" and has_grown(both))
    )


def has_grown(both: tuple[float | None, float | None]) -> bool:
    """Whether a count, before and after, is larger than before."""
    before, after = both
    return before is not None and after is not None and after > before


def some_of(names: Iterable[object], most: int = 5) -> str:
    """Return the first of the names, and "…" if there are more.

    >>> some_of(["a", "b", "c"], 2), some_of(["a", "b"], 2)
    ('a, b, …', 'a, b')
    """
    found = [str(name) for name in itertools.islice(names, most + 1)]
    return ", ".join(found[:most] + ["…"] * (len(found) > most))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is nearest to an unknown one; "" if none is near.

    >>> nearest("sped", ["speed", "pose"]), nearest("x", ["speed", "pose"])
    ('speed', '')
    """
    return next(iter(difflib.get_close_matches(name, list(known), 1, 0.5)), "")


def near_to(name: str, known: Iterable[str], most: int = 20) -> str:
    """Extend a message on an unknown name by the nearest known ones.

    Args:
        most: of these; 0 to add nothing where none is near.

    Examples:
        >>> near_to("sped", ["speed", "pose"]), near_to("x", ["speed", "pose"])
        ('; did you mean speed?', '; there are speed, pose')
        >>> near_to("x", ["speed"]), near_to("x", [])
        ('; there is only speed', '; there are none')
        >>> near_to("x", ["speed", "pose", "lidar"], most=2)
        '; there are speed, pose and 1 more'
    """
    names = list(known)
    if close := nearest(name, names):
        return f"; did you mean {close}?"
    if not most:
        return ""
    if len(names) == 1:
        return f"; there is only {names[0]}"
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"; there are {', '.join(names[:most]) or 'none'}{more}"


def why_ended(error: BaseException) -> str:
    """Describe why a command ended, by its error: "interrupted" for Ctrl-C and SIGTERM.

    >>> why_ended(KeyboardInterrupt()), why_ended(ValueError("torn")), why_ended(MemoryError())
    ('interrupted', 'ValueError: torn', 'MemoryError')
    """
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def shortened(text: str) -> str:
    """Truncate text to 60 characters."""
    return text if len(text) <= 60 else f"{text[:57]}…"


def printable(text: str) -> str:
    r"""Return the text in one line, with control and invisible characters as escapes: \n, \x1b, \u202e.

    That is C0, DEL and C1, line separators, marks of the direction of writing, characters without width, and
    halves of surrogate pairs. The escapes are those of Python, of JSON (but for \x) and of YAML.
    """
    return _CONTROLS.sub(_escape, text)


def is_printable(text: str) -> bool:
    """Return whether `printable` leaves the text unchanged."""
    return _CONTROLS.search(text) is None


def printable_lines(text: str) -> str:
    """Return `printable` for each line of a message."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
