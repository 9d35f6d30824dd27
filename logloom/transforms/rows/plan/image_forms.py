"""Images whose dtype or shape isn't that of their column.

Here: `image_misfits`, which compares a plan with the first image of each topic of a log.
Elsewhere: what fits (logloom.io.logs.messages.images), reporting it before a build
(logloom.pipelines.plan.plan), images that a build refuses (logloom.transforms.rows.topic_columns).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from logloom.errors import OF_CONTENT
from logloom.io.logs.interface import FieldSpec, Log, TopicRequest
from logloom.io.logs.messages.adapters import FORMS
from logloom.io.logs.messages.images import column_type, form_of, misfit
from logloom.io.logs.messages.pixel_encodings import Form
from logloom.transforms.rows.plan.row_plan import RowPlan

_FIRST_REACH = 1_000_000_000  # ns after a topic's first message in which to look for its first image


def image_misfits(plan: RowPlan, log: Log) -> dict[str, str]:
    """Return why the first image of a log doesn't fit a column, and what to set, by column.

    Columns of encoded images fit any; images that can't be read are left to a build.
    """
    found: dict[str, str] = {}
    forms: dict[tuple[str, FieldSpec], Form | None] = {}
    for column in plan.columns:
        spec = column.spec
        if spec.adapter != "image" or spec.encode is not None or column.topic not in log.summary.topics:
            continue
        plain = replace(spec, adapter=FORMS, shape=None, resize=None, dtype=None)
        if (column.topic, plain) not in forms:
            try:
                forms[column.topic, plain] = _first_form(log, column.topic, plain)
            except OF_CONTENT:
                forms[column.topic, plain] = None
        form = forms[column.topic, plain]
        if form is not None and (problem := misfit(spec, column_type(spec), form, "")):
            found[column.name] = f"the first image of {column.topic} doesn't fit: {problem}"
    return found


def _first_form(log: Log, topic: str, spec: FieldSpec) -> Form | None:
    """Return the form of a topic's first image by log time; None if it has none.

    Raises:
        LogReadError: the log is damaged there, or the image can't be read.
    """
    info = log.summary.topics[topic]
    start, reach = info.first, 1
    while start <= info.last:
        stop = min(start + reach, info.last + 1)
        messages = log.read({topic: TopicRequest(start, stop, ("log",), 0)})[topic]
        held = messages.has_value(spec) if len(messages) else None
        rows = np.arange(len(messages)) if held is None else np.flatnonzero(held)
        if len(rows):
            first = rows[np.argmin(messages.log_time[rows])]
            (numbers,) = messages.take(spec, np.array([first]))
            return form_of(numbers)
        start, reach = stop, max(_FIRST_REACH, reach * 4)
    return None
