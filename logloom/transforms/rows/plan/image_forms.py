"""Images whose dtype or shape isn't that of their column.

Here: `first_images`, the forms of the first images of a log's topics; `image_misfits`, which compares these
with a plan.
Elsewhere: what fits (logloom.io.logs.messages.images), reporting it before a build
(logloom.pipelines.plan.plan), images that a build refuses (logloom.transforms.rows.topic_columns).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from logloom.errors import OF_CONTENT
from logloom.io.logs.interface import FieldSpec, Log, TopicRequest
from logloom.io.logs.messages.adapters import FORMS
from logloom.io.logs.messages.images import DEPTH_LINES, column_type, form_of, misfit
from logloom.io.logs.messages.pixel_encodings import Form
from logloom.transforms.rows.plan.row_plan import RowPlan

_FIRST_REACH = 1_000_000_000  # ns after a topic's first message in which to look for its first image


def first_images(plan: RowPlan, log: Log) -> dict[str, Form]:
    """Return the form of the first image of a log, by column.

    Columns of encoded images are left out, as they fit any; so are images that can't be read, for a build.
    """
    found: dict[str, Form] = {}
    forms: dict[tuple[str, FieldSpec], Form | None] = {}
    for column in plan.columns:
        spec = column.spec
        if spec.adapter != "image" or spec.encode is not None or column.topic not in log.summary.topics:
            continue
        plain = replace(spec, adapter=FORMS, shape=None, resize=None, dtype=None, unit="")
        if (column.topic, plain) not in forms:
            try:
                forms[column.topic, plain] = _first_form(log, column.topic, plain)
            except OF_CONTENT:
                forms[column.topic, plain] = None
        if (form := forms[column.topic, plain]) is not None:
            found[column.name] = form
    return found


def image_misfits(plan: RowPlan, forms: Mapping[str, Form]) -> dict[str, str]:
    """Return why the first images of a log don't fit their columns, and what to set, by column."""
    found = {}
    for column in plan.columns:
        form = forms.get(column.name)
        if form is not None and (problem := misfit(column.spec, column_type(column.spec), form, "")):
            found[column.name] = f"the first image of {column.topic} doesn't fit: {problem}"
    return found


def two_depths(forms: Mapping[str, Form]) -> str:
    """Explain that some logs have depth in millimetres, others in metres; "" if they don't.

    Args:
        forms: of the first images of a column, by log_id.
    """
    first: dict[str, str] = {}
    for log_id, form in forms.items():
        first.setdefault(form.dtype.name if form.shape[2] == 1 else "", log_id)
    if first.keys() != {"uint16", "float32"}:
        return ""
    return (
        f"images are uint16 in log {first['uint16']} but float32 in log {first['float32']}; for depth, in "
        f"millimetres and in metres, write {DEPTH_LINES}; else leave one kind out (`!` in `logs`)"
    )


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
