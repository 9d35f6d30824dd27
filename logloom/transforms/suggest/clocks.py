"""Clocks of topics: stamps in other fields, and constant offsets from log times.

Here: pure functions from stamps and log times to the distance of a clock, and to the line of a recipe that
repairs it; and the fields of a definition that may be stamps.
Elsewhere: samples of stamps (samples), message times that a recipe states (logloom.io.logs.message_times).
Times are int64 nanoseconds. A *lead* is a stamp minus its message's log time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from logloom.errors import UsageError
from logloom.io.logs.messages.definitions import Number, Struct
from logloom.io.logs.messages.field_times import UNITS, field_time
from logloom.recipe import yaml as text
from logloom.recipe.values import duration_text
from logloom.values import dataclass

MAX_AHEAD = 10**9  # ns; a message can't be recorded earlier than it is measured, apart from clocks' errors
MAX_BEHIND = 10 * 10**9  # ns; a transport that is always slower than this, and never slower still, is none
MAX_SPREAD = 500_000_000  # ns; between the 5 % and 95 % of a clock at a constant distance
_KNOWN = {37 * 10**9: "TAI", 18 * 10**9: "GPS time"}  # ahead of UTC, since 2017
_TRANSPORT = (-20_000_000, 300_000_000)  # ns; of a message from its stamp to the recorder
_SAME_CLOCK = 10**9  # ns; clocks of topics that differ by less are one
_PACE = 0.05  # relative; a number counts in the unit in which it is this near the pace of log times
_STAMPS = ("stamp", "timestamp", "time_stamp", "time")
_NUMBERS = (*_STAMPS, *(f"{name}_{unit}" for name in ("timestamp", "time", "stamp") for unit in UNITS))
_DEPTH = 4  # of sub-messages in which a stamp is searched for

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Leads:
    """Leads of a topic's messages: those that 5 %, half and 95 % don't exceed, and the furthest."""

    low: int
    median: int
    high: int
    least: int
    most: int

    @property
    def furthest(self) -> int:
        return max(abs(self.least), abs(self.most))

    def moved(self, offset: int) -> Leads:
        """Return the leads of stamps with an offset."""
        return Leads(*(ns + offset for ns in (self.low, self.median, self.high, self.least, self.most)))


def leads_of(stamps: Times, log_times: Times) -> Leads:
    """Measure leads; stamps may have any value.

    >>> leads_of(np.array([5, 7]), np.array([3, 4]))
    Leads(low=2, median=2, high=3, least=2, most=3)
    """
    limit = 1 << 61
    leads = np.sort(np.clip(stamps, -limit, limit) - np.clip(log_times, 0, limit))
    low, median, high = (int(leads[round(share * (len(leads) - 1))]) for share in (0.05, 0.499, 0.95))
    return Leads(low, median, high, int(leads[0]), int(leads[-1]))


def joined(parts: Sequence[Leads]) -> Leads:
    """Return the leads of all parts of a topic, such as those of several logs."""
    medians = sorted(part.median for part in parts)
    return Leads(
        min(part.low for part in parts),
        medians[(len(medians) - 1) // 2],
        max(part.high for part in parts),
        min(part.least for part in parts),
        max(part.most for part in parts),
    )


def is_other_clock(leads: Leads) -> bool:
    """Return whether stamps are of another clock than log times, at a constant distance."""
    is_far = leads.median > MAX_AHEAD or leads.median < -MAX_BEHIND
    return is_far and leads.high - leads.low <= MAX_SPREAD


def offsets_of(topics: Mapping[str, Leads]) -> dict[str, int]:
    """Return the offset of each topic on another clock, ns.

    Topics on one clock have one offset, that of the quickest, as the others are delayed by their transport;
    a known distance such as that of TAI is exact.

    >>> second = 10**9
    >>> ahead = Leads(*[37 * second - 8_000_000] * 5)
    >>> offsets_of({"/lidar": ahead, "/imu": ahead.moved(-2_000_000), "/odom": Leads(0, 0, 0, 0, 0)})
    {'/lidar': -37000000000, '/imu': -37000000000}
    """
    foreign = sorted((leads.median, name) for name, leads in topics.items() if is_other_clock(leads))
    found: dict[str, int] = {}
    group: list[tuple[int, str]] = []
    for i, (lead, name) in enumerate(foreign):
        group.append((lead, name))
        if i + 1 < len(foreign) and foreign[i + 1][0] - lead < _SAME_CLOCK:
            continue
        found |= dict.fromkeys((one for _, one in group), offset_for(group[-1][0]))
        group = []
    return {name: found[name] for name in topics if name in found}


def offset_for(lead: int) -> int:
    """Return the offset for stamps with a lead: of a known clock exactly, else to the millisecond."""
    for ahead in _KNOWN:
        if _TRANSPORT[0] <= ahead - lead <= _TRANSPORT[1]:
            return -ahead
    return -round(lead / 10**6) * 10**6


def clock_words(leads: Leads, offset: int) -> str:
    """Describe the distance of a clock: its stamps are 37.000 s ahead of log time (TAI, …)."""
    side = "ahead of" if leads.median > 0 else "behind"
    known = _KNOWN.get(-offset, "")
    is_exact = f", so {known}, which is {-offset // 10**9} s ahead of UTC" if known else ""
    spread = (leads.high - leads.low) / 1e6
    return (
        f"its stamps are {abs(leads.median) / 1e9:.3f} s {side} log time (median; 90 % within {spread:.3g} ms"
        f"{is_exact})"
    )


def offset_line(topic: str, offset: int) -> str:
    """Return the line of a recipe with the offset of a topic.

    >>> offset_line("/lidar", -37 * 10**9)
    'time: {topics: {/lidar: {offset: -37s}}}'
    """
    return f"time: {text.flow({'topics': {topic: {'offset': duration_text(offset)}}})}"


def other_clock(topic: str, leads: Leads) -> str:
    """Explain that a topic is on another clock, with the line that repairs it; "" if it isn't.

    >>> other_clock("/lidar", Leads(*[37 * 10**9 - 8_000_000] * 5))[:79]
    'topic /lidar is on another clock: its stamps are 36.992 s ahead of log time (me'
    """
    if not is_other_clock(leads):
        return ""
    offset = offset_for(leads.median)
    words = f"topic {topic} is on another clock: {clock_words(leads, offset)}"
    return f"{words}; write {offset_line(topic, offset)}"


def stamp_fields(root: Struct) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the fields of a message that may be its stamp, the likeliest first, with their possible units.

    These are times named like one (`stamp`, `std_header.stamp`), then numbers (`timestamp`, `time_us`).
    """
    inside = sorted(_paths(root, "", 0), key=lambda path: path.count("."))
    for path in inside:
        try:
            field_time(root, path, "")
        except UsageError:
            continue
        yield path, ("",)
    for path in inside:
        name = path.rpartition(".")[2]
        named = tuple(unit for unit in UNITS if name.endswith(f"_{unit}"))
        try:
            field_time(root, path, "us")
        except UsageError:
            continue
        yield path, named or tuple(UNITS)


def _paths(struct: Struct, prefix: str, depth: int) -> Iterator[str]:
    for field in struct.fields:
        if field.array is not None:
            continue
        is_number = isinstance(field.type, Number) and field.type.dtype.itemsize == 8
        is_struct = isinstance(field.type, Struct)
        if (field.name in _STAMPS and is_struct) or (field.name in _NUMBERS and is_number):
            yield prefix + field.name
        is_deep = depth == _DEPTH or (prefix and "header" not in field.name)  # stamps of parts of a message
        if isinstance(field.type, Struct) and not field.type.is_time and not is_deep:
            yield from _paths(field.type, f"{prefix}{field.name}.", depth + 1)


def keeps_pace(stamps: Times, log_times: Times) -> bool:
    """Return whether stamps advance as log times do, as far as a few messages show."""
    if len(stamps) < 3:
        return False
    lasts, took = int(stamps.max()) - int(stamps.min()), int(log_times.max()) - int(log_times.min())
    return took > 0 and abs(lasts / took - 1) <= _PACE
