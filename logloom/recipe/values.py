"""Small values of a recipe (durations, sizes, rates, shares) and their notation.

Here: pydantic types that read "50ms", "500m", "512MiB", 29.97 or "1%" exactly and write it back the same.
Elsewhere: the keys that contain them (model), the original text of YAML numbers (yaml).
Durations are int nanoseconds, distances int millimetres, sizes int bytes, rates and shares exact decimals.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, SerializationInfo

from logloom.io.logs.recording_times import Bound
from logloom.text import DURATION_UNITS, MAX_DURATION, shortened

_DURATION_UNITS = {**DURATION_UNITS, "µs": DURATION_UNITS["us"]}
_DISTANCE_UNITS = {"mm": 1, "cm": 10, "m": 1000, "km": 10**6}
_SIZE_UNITS = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:(?<=:\d\d:\d\d)\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?"
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_QUANTITY = re.compile(r"([+-]?[0-9]{1,20}(?:\.[0-9]{1,20})?) ?([A-Za-zµ]*)")
_NUMBER = re.compile(r"[0-9]{1,40}(\.[0-9]{1,40})?")

MAX_OFFSET = 290 * 365 * 86400 * 10**9  # ns; between two clocks
MAX_DISTANCE = 10**11  # mm
MAX_SIZE = 1 << 50
MAX_DIGITS = 18  # of a rate or a share
MIN_RATE, MAX_RATE = Decimal("0.000001"), Decimal(10**9)  # a faster clock would repeat ticks


class ExactFloat(float):
    """A number as a recipe writes it: a float that keeps its text, since 29.97 has no exact float."""

    text: str

    def __new__(cls, text: str) -> ExactFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __reduce__(self) -> tuple[Any, ...]:
        return (ExactFloat, (self.text,))


def duration(value: Any, example: str = "50ms") -> int:
    """Parse a duration such as "50ms", "-12ms" or "1.5s" to nanoseconds.

    Args:
        example: for messages; its unit is the one suggested for a number without a unit.

    Raises:
        ValueError: not a duration; the message has a hint for a number without a unit.
    """
    nanoseconds = _quantity(value, _DURATION_UNITS, "duration", example)
    if abs(nanoseconds) > MAX_DURATION:
        raise ValueError(f"{value} is more than ten years")
    return nanoseconds


def clock_offset(value: Any) -> int:
    """Parse a duration between two clocks, which may count from years apart."""
    nanoseconds = _quantity(value, _DURATION_UNITS, "duration", "-12ms")
    if abs(nanoseconds) > MAX_OFFSET:
        raise ValueError(f"{value} is more than 290 years")
    return nanoseconds


def length_of_time(value: Any, example: str = "50ms") -> int:
    """Parse a duration that isn't negative; `example` as in `duration`."""
    nanoseconds = duration(value, example)
    if nanoseconds < 0:
        raise ValueError(f"{value} is negative")
    return nanoseconds


def delay(value: Any) -> int | None:
    """Parse a duration, or None for the word none."""
    if value is None:
        raise ValueError("expected a duration like 1s, or none")
    return None if value == "none" else length_of_time(value)


def moment(value: Any) -> Bound:
    """Parse a time such as "2026-11-22T08:30:00Z", or a duration since the start of a log, "90s".

    Raises:
        ValueError: neither of these; the message has a hint for a time without a zone.
    """
    if isinstance(value, Bound):
        return value
    found = _MOMENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        if isinstance(value, str) and not _QUANTITY.fullmatch(value.strip()):
            raise ValueError(
                f"{_shown(value)} is not a time; write it like 2026-11-22T08:30:00Z, or as a duration since "
                "the start of the log, like 90s"
            )
        return Bound(length_of_time(value, "90s"), is_relative=True)
    date, clock, fraction, zone = found.groups()
    if zone is None:
        raise ValueError(f"{value} has no zone; write {value}Z for UTC, or its offset like {value}+01:00")
    try:
        time = datetime.datetime.fromisoformat(f"{date}T{clock}{zone.replace('Z', '+00:00')}")
    except ValueError as error:
        raise ValueError(f"{value} is not a time: {error}") from None
    ns = round((time - _EPOCH) / datetime.timedelta(seconds=1)) * 10**9 + int((fraction or "").ljust(9, "0"))
    if not 0 <= ns < 2**63 - 1:
        raise ValueError(f"{value} is outside the years 1970 to 2262")
    return Bound(ns)


def moment_text(bound: Bound) -> str:
    """Format a moment for `moment`: in UTC, or as a duration."""
    if bound.is_relative:
        return duration_text(bound.ns)
    seconds, fraction = divmod(bound.ns, 10**9)
    time = _EPOCH + datetime.timedelta(seconds=seconds)
    return f"{time:%Y-%m-%dT%H:%M:%S}{f'.{fraction:09}'.rstrip('0') if fraction else ''}Z"


def duration_text(nanoseconds: int) -> str:
    """Format a duration for `duration`, in the largest unit that leaves a whole number."""
    units = [unit for unit in ("s", "ms", "us") if nanoseconds % _DURATION_UNITS[unit] == 0]
    unit = units[0] if units else "ns"
    return f"{nanoseconds // _DURATION_UNITS[unit]}{unit}"


def distance(value: Any, example: str = "500m") -> int:
    """Parse a distance such as "500m" or "1.5km" to millimetres.

    Raises:
        ValueError: not a distance, or a negative one; the message has a hint for a number without a unit.
    """
    millimetres = _quantity(value, _DISTANCE_UNITS, "distance", example)
    if not 0 <= millimetres <= MAX_DISTANCE:
        raise ValueError(f"{value} is negative, or more than 100,000 km")
    return millimetres


def distance_text(millimetres: int) -> str:
    """Format a distance for `distance`, in the largest unit that leaves a whole number."""
    unit = next(unit for unit in ("km", "m", "cm", "mm") if millimetres % _DISTANCE_UNITS[unit] == 0)
    return f"{millimetres // _DISTANCE_UNITS[unit]}{unit}"


def size(value: Any) -> int:
    """Parse a size such as "512MiB" to bytes.

    Raises:
        ValueError: not a size, or not positive; the message has a hint for a number without a unit.
    """
    count = _quantity(value, _SIZE_UNITS, "size", "512MiB")
    if not 0 < count <= MAX_SIZE:
        raise ValueError(f"{value} is not a size between 1B and {MAX_SIZE >> 40}TiB")
    return count


def size_text(count: int) -> str:
    units = [unit for unit in ("TiB", "GiB", "MiB", "KiB") if count % _SIZE_UNITS[unit] == 0]
    unit = units[0] if units else "B"
    return f"{count // _SIZE_UNITS[unit]}{unit}"


def rate(value: Any) -> Decimal:
    """Parse ticks per second, exactly as written."""
    hertz = exact(value, "a rate in Hz, like 10 or 29.97")
    if not MIN_RATE <= hertz <= MAX_RATE:
        raise ValueError(f"{decimal_text(hertz)} Hz is not between {MIN_RATE} and {MAX_RATE}")
    return hertz


def share(value: Any) -> Decimal:
    """Parse a share between 0 and 1, exactly as written."""
    part = exact(value, "a share between 0 and 1, like 0.9")
    if not 0 <= part <= 1:
        raise ValueError(f"{decimal_text(part)} is not between 0 and 1")
    return part


def share_or_logs(value: Any) -> Decimal | tuple[str, ...]:
    """Parse a share, or a list of log_ids and patterns of them."""
    if isinstance(value, list | tuple):
        if not value or not all(isinstance(name, str) and name for name in value):
            raise ValueError("a list of logs has the log_id of at least one, as text")
        return tuple(value)
    try:
        return share(value)
    except ValueError as error:
        is_name = isinstance(value, str) and not _QUANTITY.fullmatch(value)
        raise ValueError(f"{error}, or a list of logs, like [{value}]" if is_name else str(error)) from None


def percent(value: Any) -> Decimal:
    """Parse a share written as "1%"."""
    match = _QUANTITY.fullmatch(value.removesuffix("%")) if isinstance(value, str) else None
    if match is None or match[2] or not str(value).endswith("%"):
        raise ValueError(f"{_shown(value)} is not a percentage; write it like 1%")
    part = Decimal(match[1]) / 100
    if not 0 < part <= 1:
        raise ValueError(f"{value} is not above 0% and at most 100%")
    return part


def exact(value: Any, what: str) -> Decimal:
    """Return a number's decimal without trailing zeros.

    Raises:
        ValueError: not a number, or one with too many digits.
    """
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise ValueError(f"{_shown(value)} is not a number; expected {what}")
    number = Decimal(value.text if isinstance(value, ExactFloat) else str(value))
    if not number.is_finite() or len(number.as_tuple().digits) > MAX_DIGITS or abs(number.adjusted()) > 30:
        raise ValueError(
            f"{_shown(value)} has too many digits; expected {what}, of at most {MAX_DIGITS} digits"
        )
    return number.normalize() if number else Decimal(0)


def decimal_text(number: Decimal) -> str:
    return format(number, "f")


def _quantity(value: Any, units: dict[str, int], what: str, example: str) -> int:
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or (match and not match[2]):
        unit = re.sub(r"[\d.]", "", example)
        shown = value.text if isinstance(value, ExactFloat) else value
        like = f"{shown}{unit}"
        if units is _DURATION_UNITS and "." in str(shown):  # of a part of something: most likely of seconds
            nanoseconds = Decimal(str(shown)) * 10**9
            like = duration_text(int(nanoseconds)) if nanoseconds and nanoseconds % 1 == 0 else like
        raise ValueError(f"{shown} has no unit; write a {what} like {like}")
    if match is None:
        raise ValueError(f"{_shown(value)} is not a {what}; write it like {example}")
    if match[2] not in units:
        raise ValueError(f"{value!r} has the unknown unit {match[2]!r}; there are {', '.join(units)}")
    amount = Decimal(match[1]) * units[match[2]]
    if amount != int(amount):
        raise ValueError(f"{value} is not a whole number of {next(iter(units))}")
    return int(amount)


def _shown(value: Any) -> str:
    return shortened(value.text if isinstance(value, ExactFloat) else repr(value))


def _share_or_logs(value: Decimal | tuple[str, ...], info: SerializationInfo) -> Any:
    return list(value) if isinstance(value, tuple) else _number(value, info)


def _number(value: Decimal, info: SerializationInfo) -> int | ExactFloat | str:
    if value == int(value):
        return int(value)
    # JSON's numbers are read as floats, which few decimals are.
    return decimal_text(value) if info.mode == "json" else ExactFloat(decimal_text(value))


def _percent_text(value: Decimal) -> str:
    return f"{decimal_text((value * 100).normalize() if value else value)}%"


Duration = Annotated[int, BeforeValidator(duration), PlainSerializer(duration_text, return_type=Any)]
ClockOffset = Annotated[int, BeforeValidator(clock_offset), PlainSerializer(duration_text, return_type=Any)]
LengthOfTime = Annotated[
    int, BeforeValidator(length_of_time), PlainSerializer(duration_text, return_type=Any)
]
Settling = Annotated[
    int,
    BeforeValidator(lambda value: length_of_time(value, "30min")),
    PlainSerializer(duration_text, return_type=Any),
]
Delay = Annotated[
    int | None,
    BeforeValidator(delay),
    PlainSerializer(lambda ns: "none" if ns is None else duration_text(ns), return_type=Any),
]
Moment = Annotated[
    Bound, BeforeValidator(moment), PlainSerializer(moment_text, return_type=Any, when_used="unless-none")
]
Size = Annotated[int, BeforeValidator(size), PlainSerializer(size_text, return_type=Any)]
Rate = Annotated[Decimal, BeforeValidator(rate), PlainSerializer(_number, return_type=Any)]
Share = Annotated[Decimal, BeforeValidator(share), PlainSerializer(_number, return_type=Any)]
ShareOrLogs = Annotated[
    Decimal | tuple[str, ...],
    BeforeValidator(share_or_logs),
    PlainSerializer(_share_or_logs, return_type=Any),
]
Percent = Annotated[Decimal, BeforeValidator(percent), PlainSerializer(_percent_text, return_type=Any)]
