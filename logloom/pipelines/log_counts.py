"""How many logs a version has, and which of them aren't whole, in words that all commands share."""

from __future__ import annotations

from collections.abc import Mapping

from logloom.io.records import LogRecords
from logloom.io.shards import DROPPED
from logloom.words import counted, some_of

_SHOWN = 5  # names of logs


def logs_in_words(statuses: Mapping[str, int]) -> str:
    """The logs that rows are of, without those that somebody dropped.

    >>> logs_in_words({"whole": 5}), logs_in_words({"whole": 2, "skipped": 3, "dropped": 1})
    ('5 logs', '2 of 5 logs (3 skipped)')
    """
    total = sum(statuses.values()) - statuses.get(DROPPED, 0)
    skipped = statuses.get("skipped", 0)
    if not skipped:
        return counted(total, "log")
    return f"{total - skipped:,} of {counted(total, 'log')} ({skipped:,} skipped)"


def lacking_in_words(logs: LogRecords) -> str:
    """The logs of which a version doesn't say all: `2 logs are skipped (a, b); 1 log is salvaged (c)`.

    "" where there are none.
    """
    return "; ".join(
        f"{counted(count, 'log is', 'logs are')} {status} ({_names(logs, status)})"
        for status in ("skipped", "salvaged", DROPPED)
        if (count := logs.statuses.get(status, 0))
    )


def _names(logs: LogRecords, status: str) -> str:
    rows = logs.where("status", [status])
    return some_of((record.log_id for record in logs.take(rows[: _SHOWN + 1])), _SHOWN)
