"""Times of builds and commits of versions: a small file beside each manifest.

    versions/00000007.times.json    {"version", "started", "committed", "digest"}, in seconds since 1970

Manifests, units and outputs contain no clock times, so that a build that is killed and run again makes the
same bytes. Dates of files are no substitute: a copy or a restore changes them. The file is created if absent,
right after the commit, so the first commit of a version counts. A version whose commit was killed just before
is sound without it; the file isn't added later, since the time is unknown then.

Here: these files; which of their times are reliable; the version of a day.
Elsewhere: the commit (logloom.transforms.build.commit), what is retained by these times
(logloom.pipelines.gc.gc).
"""

from __future__ import annotations

import bisect
import datetime
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.tags import Version
from logloom.io.storage.metadata import STRICT, Count, checked, parsed, sealed, unsealed
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.text import human_time, some_of
from logloom.values import dataclass

CLOCKS_APART_S = 300  # by which clocks of machines that are set may differ
_SET_SINCE = 1_577_836_800  # 2020: an earlier time is of a clock that was never set
_DAY_S = 86400
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_WAY_OUT = "put it back from a backup, or remove it: then the version counts as one without a time"


@dataclass(frozen=True)
class Times:
    """When a version was made, in seconds since the Unix epoch.

    Attributes:
        started: when its build was planned, by the clock of the command; 0 where unknown.
        committed: by the clock of the machine that committed it.
    """

    __pydantic_config__ = STRICT

    version: Version
    started: Count
    committed: Count


def clock() -> int:
    """This machine's clock, in seconds since the Unix epoch; only for files beside manifests."""
    return int(time.time())


def times_file(number: int) -> str:
    return f"versions/{number:08d}.times.json"


def write_times(store: Store, number: int, started: int) -> None:
    """Record that a version was committed just now, unless a time is recorded already."""
    store.create(times_file(number), sealed(asdict(Times(number, started, clock()))))


def read_times(store: Store, number: int) -> Times | None:
    """Read when a version was made; None if not recorded.

    Raises:
        DatasetError: the file is damaged.
    """
    name = times_file(number)
    place = store.uri_of(name)
    if (data := store.read_if_there(name)) is None:
        return None
    found = checked(Times, unsealed(parsed(data, place, _WAY_OUT), place, _WAY_OUT), place, _WAY_OUT)
    if found.version != number:
        raise DatasetError(f"{place}: the times of version {found.version}; {_WAY_OUT}")
    return found


def is_clock_set(seconds: float, now: float) -> bool:
    """Return whether a recorded time can be right: not of a clock that was never set, nor in the future."""
    return _SET_SINCE <= seconds <= now + CLOCKS_APART_S


@dataclass(frozen=True)
class CommitTimes:
    """When versions were committed.

    Attributes:
        known: seconds since the Unix epoch of versions, ascending as their numbers are, but for clocks that
            are a little apart.
        missing: versions without a recorded time.
        problems: for people, of each version whose file is damaged or whose clock was wrong.
    """

    known: Mapping[int, int]
    missing: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: Store, numbers: Sequence[int], now: float) -> CommitTimes:
        """Read the times of versions.

        A version is committed after those before it. Where times say otherwise, a clock ran back or ahead;
        the fewest that contradict all others are left out.

        Args:
            numbers: of the versions, ascending.
            now: seconds since the Unix epoch.
        """

        def read(number: int) -> Times | str | None:
            try:
                return read_times(store, number)
            except DatasetError as error:
                return str(error)

        found = dict(zip(numbers, ahead(read, numbers), strict=True))
        problems = {number: one for number, one in found.items() if isinstance(one, str)}
        times = {number: one for number, one in found.items() if isinstance(one, Times)}
        known = {number: one.committed for number, one in times.items() if _is_sound(one, now)}
        in_order = _in_order(list(known.values()))
        known = {number: at for number, at, fits in zip(known, known.values(), in_order, strict=True) if fits}
        for number in times.keys() - known.keys():
            at = human_time(times[number].committed * 10**9)
            problems[number] = (
                f"version {number}: was committed {at} by a clock that was wrong then, or ran back: that "
                "contradicts the times of its build, of other versions, or of now, so it isn't relied on"
            )
        missing = tuple(number for number, one in found.items() if one is None)
        return cls(known, missing, tuple(problems[number] for number in sorted(problems)))


def _is_sound(times: Times, now: float) -> bool:
    ran_back = times.started > times.committed + CLOCKS_APART_S
    return is_clock_set(times.committed, now) and not ran_back


def _in_order(times: Sequence[int]) -> list[bool]:
    """(N,) which belong to the most times that ascend; the earliest such.

    >>> _in_order([1000, 9000000, 2000, 3000])
    [True, False, True, True]
    """
    close, latest = list(times), 0
    for place, at in enumerate(times):
        latest = latest if latest - CLOCKS_APART_S <= at < latest else at
        close[place] = latest
    ends: list[int] = []  # by length - 1, the smallest time that a series of that length ends with,
    places: list[int] = []  # and where that one is
    before: list[int | None] = []
    for place, at in enumerate(close):
        length = bisect.bisect_right(ends, at)
        ends[length : length + 1], places[length : length + 1] = [at], [place]
        before.append(places[length - 1] if length else None)
    fits = [False] * len(times)
    last = places[-1] if places else None
    while last is not None:
        fits[last], last = True, before[last]
    return fits


# --- days -----------------------------------------------------------------------------------------------


def is_day(text: str) -> bool:
    """Return whether a text is a day, as in 2026-11-24."""
    try:
        return _DAY.fullmatch(text) is not None and bool(datetime.date.fromisoformat(text))
    except ValueError:
        return False


def start_of_day(day: str) -> int:
    """In seconds since the Unix epoch; days are UTC's."""
    return int(datetime.datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp())


def version_of_day(store: Store, day: str, numbers: Sequence[int]) -> int:
    """Return the version of a day: the last one committed up to the day's end.

    Args:
        day: as in 2026-11-24.
        numbers: of all versions, ascending, those that were removed among them.

    Raises:
        UsageError: there was none by then, or it is unknown.
    """
    end, now = start_of_day(day) + _DAY_S, clock()
    if end > now:
        return numbers[-1]
    known = CommitTimes.of(store, numbers, now).known
    last = max((number for number, at in known.items() if at < end), default=0)
    following = min((number for number, at in known.items() if at >= end), default=numbers[-1] + 1)
    if unknown := [number for number in numbers if last < number < following]:
        raise UsageError(
            f"{store.uri}: some versions have no recorded commit time ({some_of(unknown)}), so the "
            f"last one up to the end of {day} isn't known; name a version by its number"
        )
    if not last:
        first = human_time(known[following] * 10**9)
        raise UsageError(f"{store.uri}: no version up to the end of {day}: the first one is of {first}")
    return last


def first_since(store: Store, day: str, numbers: Sequence[int]) -> int:
    """Return the first version that may have been committed on a day or later; the next number for none."""
    known = CommitTimes.of(store, numbers, clock()).known
    return 1 + max((number for number, at in known.items() if at < start_of_day(day)), default=0)


def time_problems(store: Store, number: int) -> Iterator[str]:
    """Describe what is wrong with the file of a version's times."""
    try:
        read_times(store, number)
    except DatasetError as error:
        yield str(error)
