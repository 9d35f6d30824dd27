"""Images and lists whose dtype or shape isn't that of their column.

Here: `first_images`, the forms of the first images of a log's topics; `image_misfits`, which compares these
with a plan; `list_misfits`, which compares the lengths of lists.
Elsewhere: what fits (logloom.io.logs.messages.images), reporting it before a build
(logloom.pipelines.plan.plan), images that a build refuses (logloom.transforms.rows.topic_columns).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from logloom.blocks import Ragged, Values
from logloom.errors import OF_CONTENT
from logloom.io.logs.interface import FieldSpec, Log, Messages, TopicRequest
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


def list_misfits(plan: RowPlan, log: Log) -> dict[str, str]:
    """Return why the lists of a log don't fit the `shape` of their columns, and what to write, by column.

    Lists that can't be read, and columns of which the first list and the last differ, are left to a build.
    """
    found = {}
    for column in plan.columns:
        spec, length = column.spec, math.prod(column.spec.shape or ())
        if spec.adapter is not None or spec.shape is None or column.topic not in log.summary.topics:
            continue
        plain = replace(spec, shape=None)
        with contextlib.suppress(*OF_CONTENT):
            lists = [_first(log, column.topic, plain), _value(log.last_message(column.topic, plain), plain)]
            lengths = {int(one.lengths[0]) for one in lists if isinstance(one, Ragged) and len(one)}
            if len(lengths) == 1 and length not in lengths:
                (own,) = lengths
                found[column.name] = (
                    f"the first and the last list of {column.topic} have {own} numbers; "
                    f"shape {list(spec.shape)} has {length}; write `shape: [{own}]`, or leave it out"
                )
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
    values = _first(log, topic, spec)
    return None if values is None else form_of(values[0])


def _first(log: Log, topic: str, spec: FieldSpec) -> Values | None:
    """Return the value of a topic's first message by log time that has one; None if none has.

    Raises:
        LogReadError: the log is damaged there, or the message can't be read.
    """
    info = log.summary.topics[topic]
    start, reach = info.first, 1
    while start <= info.last:
        stop = min(start + reach, info.last + 1)
        messages = log.read({topic: TopicRequest(start, stop, ("log",), 0)})[topic]
        values = _value(messages, spec)
        if values is not None:
            return values
        start, reach = stop, max(_FIRST_REACH, reach * 4)
    return None


def _value(messages: Messages, spec: FieldSpec) -> Values | None:
    """Return the value of the first of some messages by log time that has one; None if none has."""
    held = messages.has_value(spec) if len(messages) else None
    rows = np.arange(len(messages)) if held is None else np.flatnonzero(held)
    return messages.take(spec, rows[[np.argmin(messages.log_time[rows])]]) if len(rows) else None
