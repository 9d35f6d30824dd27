"""Warnings of `plan` about columns, from a sample of the messages that a build would read.

Elsewhere: the warnings themselves, and those of a build, which reads all
(logloom.transforms.rows.plan.column_warnings).
"""

from __future__ import annotations

import contextlib

import numpy as np

from logloom.errors import OF_CONTENT, LogloomError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, Log, TopicRequest
from logloom.pipelines.plan.build_plan import BuildPlan
from logloom.resample.angles import TurnEvidence, added
from logloom.transforms.build.job import opened
from logloom.transforms.rows.notices import BuildWarning
from logloom.transforms.rows.plan.column_warnings import column_turns, may_wrap, turn_warnings
from logloom.transforms.rows.plan.row_plan import RowPlan, Span
from logloom.transforms.suggest.samples import stretches

LOGS = 16  # sampled logs, evenly spread over the names of those to build
BYTES = 32 << 20  # of their messages, all together


def column_warnings(plan: BuildPlan) -> list[BuildWarning]:
    """Return warnings about columns in some of the messages to read."""
    if not any(may_wrap(column) for column in plan.job.plan.columns):
        return []
    number = min(LOGS, len(plan.logs))
    some = [plan.logs[i * (len(plan.logs) - 1) // max(1, number - 1)].task for i in range(number)]
    found = []
    for task in some:
        with contextlib.suppress(LogloomError, OSError):  # the build reports it
            warnings = sampled_warnings(opened(plan.job, task), plan.job.plan, BYTES // number)
            seen = "(of the sampled messages)"
            found += [BuildWarning(f"{task.log_id}: {warning} {seen}") for warning in warnings]
    return found


def sampled_warnings(log: Log, plan: RowPlan, max_bytes: int) -> list[str]:
    """Sample a bounded part of a log; a small log is read completely."""
    columns = [c for c in plan.columns if may_wrap(c) and c.topic in log.summary.topics]
    parts: dict[str, list[tuple[TurnEvidence, ...]]] = {}
    ranges = stretches(log, max_bytes)[0] if columns else ()
    for start, stop in ranges:
        with contextlib.suppress(*OF_CONTENT):
            found = log.read({c.topic: TopicRequest(start, stop, ("log",), 0) for c in columns})
            for column in columns:
                messages = found[column.topic]
                order = np.argsort(messages.log_time, kind="stable")
                every = Span(MIN_TIME, MAX_TIME)
                turns = column_turns(column, messages, order, messages.log_time[order], every)
                if turns:
                    parts.setdefault(column.name, []).append(turns)
    return list(turn_warnings(plan, {name: added(turns) for name, turns in parts.items()}))
