"""Warnings that `--strict` refuses, and warnings about a log as a whole.

What the recipe accepts by name (`on_error: skip`, `vanished: keep`, `time: {set_back: …}`) is no warning.

Elsewhere: what a warning is (logloom.transforms.rows.notices), warnings about columns
(logloom.transforms.rows.plan.column_warnings) and about splits (logloom.pipelines.stats.splits).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from logloom.io.logs.interface import LogSummary
from logloom.io.logs.match import EACH_FILE, is_split
from logloom.text import counted, human_duration
from logloom.transforms.rows.accounts import strays_of
from logloom.transforms.rows.notices import BuildWarning
from logloom.transforms.rows.plan.row_plan import RowPlan

MANY = 1000  # partitions of a log; so many with few messages are suspicious
MAX_APART = 600 * 10**9  # ns; between files that are one recording by their names
MAX_LISTED = 20  # warnings in the message of a refusal


def as_json(warnings: Iterable[BuildWarning]) -> dict[str, list[str]]:
    """Keys of a result: the texts of all warnings, and of those that `--strict` refuses."""
    found = list(dict.fromkeys(warnings))
    return {"warnings": [one.text for one in found], "doubtful": [o.text for o in found if o.is_doubtful]}


def strict_refusal(warnings: Iterable[BuildWarning]) -> str:
    """Why `--strict` refuses a build with these warnings; "" where it doesn't."""
    doubtful = as_json(warnings)["doubtful"]
    if not doubtful:
        return ""
    lines = [
        *doubtful[:MAX_LISTED],
        *([f"… and {len(doubtful) - MAX_LISTED} more"] * (len(doubtful) > MAX_LISTED)),
    ]
    count = counted(len(doubtful), "warning names", "warnings name")
    listed = "".join(f"\n  {line}" for line in lines)
    return f"--strict: {count} lost or doubtful data; mend it, or build without --strict:{listed}"


def log_warnings(
    plan: RowPlan, uri: str, summary: LogSummary, spans: Sequence[tuple[int, int]]
) -> Iterator[BuildWarning]:
    """Warnings about the times of a log: messages outside its recording, pauses between its files, and
    partitions with few messages.

    Args:
        spans: start and stop of its partitions, in time order.
    """
    for stray in strays_of(plan, summary):
        yield BuildWarning(f"{stray.uri}: {stray.topic}: {stray.reason}", kind="stray", topic=stray.topic)
    apart = _longest_gap(summary) if len(summary.uris) > 1 and is_split(summary.uris) else 0
    if apart > MAX_APART:
        yield BuildWarning(
            f"{uri}: its files are one recording by their names, but {human_duration(apart)} apart; "
            f"if they are several, `{EACH_FILE}` makes each file a log",
            is_doubtful=False,
            kind="splits",
            line=EACH_FILE,
        )
    number, messages = len(spans), summary.num_messages
    if number >= MANY and 10 * number >= messages:
        days = (spans[-1][0] - spans[0][1]) / 86400e9
        yield BuildWarning(
            f"{uri}: {number:,} partitions for {messages:,} messages: its log times are {days:,.1f} days "
            "apart, so some are probably wrong; each costs a worker some milliseconds and a unit. "
            "`logloom doctor` shows more; a larger partition.rows makes fewer",
            kind="times",
        )


def _longest_gap(summary: LogSummary) -> int:
    """Return the longest time in which a log has no messages, ns."""
    first, last = summary.chunk_times[np.argsort(summary.chunk_times[:, 0], kind="stable")].T
    return int((first[1:] - np.maximum.accumulate(last)[:-1]).max(initial=0))
