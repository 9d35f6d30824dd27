"""Logs whose topics are defined differently from the plan of their recipe.

Here: `unfit_columns`, and `fitted`, the plan without the columns that a log doesn't fit.
Elsewhere: the plan, and its choice among definitions (logloom.transforms.rows.plan.resolve).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from logloom.errors import OF_CONTENT
from logloom.io.logs.interface import Log, Refusal
from logloom.transforms.rows.accounts import WHOLE_TOPIC
from logloom.transforms.rows.plan.row_plan import ColumnPlan, RowPlan

_NO_TOPIC = ""


def unfit_columns(plan: RowPlan, log: Log) -> dict[str, str]:
    """Return why columns can't be taken from a log's messages, by column."""
    topics = log.summary.topics
    found = {c.name: _misfit(c, log) for c in plan.columns if c.topic in topics}
    return {name: why for name, why in found.items() if why}


def _misfit(column: ColumnPlan, log: Log) -> str:
    """Return why the messages of its topic don't fit a column; "" if they do."""
    try:
        found = log.column_type(column.topic, column.spec)
        is_static = column.sampling.rules.uses == "topic"
        if not is_static and log.time_source(column.topic, column.time) is None:
            return f"its messages have no {' or '.join(map(str, column.time))} stamp"
    except OF_CONTENT as error:
        return str(error)
    if column.fits(found):
        return ""
    return f"its type is {found} in this log, and {column.message_type} in the dataset"


def _of_unknown_times(plan: RowPlan, log: Log) -> Iterator[tuple[str, str]]:
    """Find deskewed columns whose clouds in a log have unknown times of points, and why."""
    for column in plan.columns:
        if column.deskew is not None and column.topic in log.summary.topics:
            from logloom.transforms.rows.point_times import point_times

            try:
                point_times(log, column)
            except OF_CONTENT as error:
                yield column.name, str(error)


def fitted(plan: RowPlan, log: Log) -> tuple[RowPlan, dict[str, Refusal]]:
    """Return a plan for reading a log, and the refused messages by column.

    A column that the log doesn't fit is unavailable, as if the log lacked its topic; so is one of clouds with
    unknown times of points.
    """
    unfit = {**dict(_of_unknown_times(plan, log)), **unfit_columns(plan, log)}
    columns = tuple(replace(c, topic=_NO_TOPIC) if c.name in unfit else c for c in plan.columns)
    refused = {}
    for column in plan.columns:
        info = log.summary.topics.get(column.topic)
        if column.name in unfit and info is not None and info.num_messages:
            reason = f"column {column.name}: {unfit[column.name]}; none of its messages is used"
            uri = log.summary.uris[0]
            refused[column.name] = Refusal(
                uri, -1, column.topic, WHOLE_TOPIC, info.first, reason, info.num_messages
            )
    return replace(plan, columns=columns) if unfit else plan, refused
