"""Descriptions in words of a version's logs and their losses, for all commands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from logloom.io.catalog.pages import LogStatus
from logloom.io.catalog.records import LogRecords
from logloom.text import counted, some_of

_SHOWN = 5  # names of logs
_LISTED = re.compile(r"and ([0-9,]+) more, all listed in ")  # the rest of what a log's files lost


def logs_in_words(statuses: Mapping[str, int]) -> str:
    """Describe the number of logs with rows, without dropped ones.

    >>> logs_in_words({"whole": 5}), logs_in_words({"whole": 2, "skipped": 3, "dropped": 1})
    ('5 logs', '2 of 5 logs (3 skipped)')
    """
    total = sum(statuses.values()) - statuses.get(LogStatus.dropped, 0)
    skipped = statuses.get(LogStatus.skipped, 0)
    if not skipped:
        return counted(total, "log")
    return f"{total - skipped:,} of {counted(total, 'log')} ({skipped:,} skipped)"


def reasons_by_loss(reasons: Sequence[str], uris: Sequence[str]) -> list[str]:
    """Why a log isn't whole: what its files lost first, then what is strange about its ticks.

    >>> reasons_by_loss(["3 ticks without a pose", "a.mcap, byte 9: /odom: wrong CRC"], ["a.mcap"])
    ['a.mcap, byte 9: /odom: wrong CRC', '3 ticks without a pose']
    """

    def is_strange(reason: str) -> bool:
        return not (reason.startswith(tuple(uris)) or _LISTED.match(reason))

    return sorted(reasons, key=is_strange)


def reason_in_words(reasons: Sequence[str], uris: Sequence[str]) -> str:
    """The reason that matters most, and how many others there are; "" where there are none.

    >>> reason_in_words(["3 ticks without a pose", "a.mcap, byte 9: /odom: wrong CRC"], ["a.mcap"])
    'a.mcap, byte 9: /odom: wrong CRC (and 1 more reason)'
    """
    first, *others = dict.fromkeys(reasons_by_loss(reasons, uris)) or [""]
    listed = [found for reason in others if (found := _LISTED.match(reason))]
    more = len(others) - len(listed) + sum(int(found[1].replace(",", "")) for found in listed)
    return f"{first} (and {counted(more, 'more reason')})" if more else first


def lacking_in_words(logs: LogRecords) -> str:
    """The logs that a version hasn't as they are now: `2 logs are skipped (a, b); 1 log is salvaged (c)`.

    "" where there are none.
    """
    left = (LogStatus.skipped, LogStatus.salvaged, LogStatus.dropped)
    words: dict[LogStatus, tuple[str, str, str]] = {status: ("log is", "logs are", status) for status in left}
    words[LogStatus.kept] = "log keeps", "logs keep", "the rows of an earlier version"
    return "; ".join(
        f"{counted(count, one, many)} {what} ({_names(logs, status)})"
        for status, (one, many, what) in words.items()
        if (count := logs.statuses.get(status, 0))
    )


def _names(logs: LogRecords, status: str) -> str:
    rows = logs.where("status", [status])
    return some_of((record.log_id for record in logs.take(rows[: _SHOWN + 1])), _SHOWN)
