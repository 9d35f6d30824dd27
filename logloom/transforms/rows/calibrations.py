"""Calibrations of cameras in a log: their topics and changes.

Here: pure functions of a log. A *calibration* is the matrix K, the distortion D, its model and the size in
one message of sensor_msgs/CameraInfo or foxglove.CameraCalibration.
Elsewhere: their columns (adapters camera_matrix and distortion), the recipe's `calibration`
(logloom.recipe.calibration), the frame of a camera (logloom.transforms.rows.frames).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from logloom.errors import OF_CONTENT, LogReadError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, Log, Messages, TopicRequest
from logloom.text import counted, human_time, some_of

if TYPE_CHECKING:
    from logloom.resample.frame_tree import Times
    from logloom.transforms.rows.plan.row_plan import RowPlan, Span

CALIBRATION = "the calibration on "  # prefix of notes on calibrations

_MATRIX = FieldSpec(adapter="camera_matrix")
_PARTS = (
    _MATRIX,
    FieldSpec(adapter="distortion"),
    FieldSpec(("distortion_model",)),
    FieldSpec(("height", "width")),
)
_AT_A_TIME = 4096  # messages
MAX_TIMES = 5  # of changes to report


def camera_topics(log: Log) -> Iterator[str]:
    """Return the topics of a log with calibrations, in name order."""
    return (topic for topic in log.summary.topics if len(_parts(log, topic)) == len(_PARTS))


def calibration_changes(log: Log, topic: str) -> Times:
    """Return the log times of messages whose calibration differs from the previous message's.

    Raises:
        LogReadError: damage, under `on_error` fail.
    """
    messages = log.read({topic: TopicRequest(MIN_TIME, MAX_TIME, ("log",), None)})[topic]
    found = _recorded(log, messages)
    changed = [i for i in range(1, len(found)) if found[i] != found[i - 1]]
    return messages.log_time[np.array(changed, np.intp)]


def changes_in_words(times: Times) -> str:
    """Describe how often a calibration changes, with the first times.

    Args:
        times: (n,) log times, of `calibration_changes`, n >= 1.

    Examples:
        >>> changes_in_words(np.array([1_700_000_000_500_000_000]))
        'changes 1 time: at 2023-11-14 22:13:20.500 UTC (log time)'
    """
    first = some_of((human_time(time) for time in times.tolist()), MAX_TIMES)
    return f"changes {counted(len(times), 'time')}: at {first} (log time)"


def ends_otherwise(log: Log, topic: str) -> bool:
    """Return whether the last calibration of a topic differs from its first; reads only these two messages.

    Raises:
        LogReadError: damage, under `on_error` fail.
    """
    info = log.summary.topics[topic]
    if info.num_messages < 2 or info.first == info.last:
        return False
    first = log.read({topic: TopicRequest(info.first, info.first + 1, ("log",), None)})[topic]
    found = [*_recorded(log, first)[:1], *_recorded(log, log.last_message(topic))]
    return len(set(found)) > 1


def calibration_note(log: Log, topic: str, span: Span) -> dict[str, tuple[int, int]]:
    """Note messages of a span whose calibration isn't the topic's last one in the log: their number, and the
    last log time.

    Raises:
        LogReadError: damage, under `on_error` fail.
    """
    last = log.last_message(topic)
    messages = log.read({topic: TopicRequest(span.start, span.stop, ("log",), None)}).get(topic)
    if messages is None or not len(last):
        return {}
    (whole,) = _recorded(log, last)
    others = np.flatnonzero([one != whole for one in _recorded(log, messages)])
    text = f"{CALIBRATION}{topic} changes within the log; these messages differ from its last"
    return {text: (len(others), int(messages.log_time[others].max()))} if len(others) else {}


def calibration_notes(log: Log, plan: RowPlan, span: Span) -> dict[str, tuple[int, int]]:
    """Return `calibration_note` for topics whose calibration is in rows.

    Raises:
        LogReadError: damage, under `on_error` fail.
    """
    topics = {column.topic for column in plan.columns if column.spec.adapter == _MATRIX.adapter}
    notes: dict[str, tuple[int, int]] = {}
    for topic in sorted(topics & log.summary.topics.keys()):
        notes |= calibration_note(log, topic, span)
    return notes


def _parts(log: Log, topic: str) -> list[FieldSpec]:
    """Return the parts of a calibration in messages of a topic."""
    found = []
    for spec in _PARTS:
        try:
            log.column_type(topic, spec)
        except OF_CONTENT:
            continue
        found.append(spec)
    return found


def _recorded(log: Log, messages: Messages) -> list[bytes]:
    """Serialize the calibration of each message, equal for equal ones; None for a message without one."""
    specs = _parts(log, messages.topic)
    found: list[bytes] = []
    for at in range(0, len(messages), _AT_A_TIME):
        rows = np.arange(at, min(at + _AT_A_TIME, len(messages)))
        try:
            found += _bytes_of(messages, specs, rows)
        except LogReadError:  # e.g. of a camera that isn't calibrated yet; rows may not need it
            found += [_bytes_or_none(messages, specs, row) for row in np.split(rows, len(rows))]
    return found


def _bytes_or_none(messages: Messages, specs: Sequence[FieldSpec], row: NDArray[np.intp]) -> bytes:
    try:
        return _bytes_of(messages, specs, row)[0]
    except LogReadError:
        return b""


def _bytes_of(messages: Messages, specs: Sequence[FieldSpec], rows: NDArray[np.intp]) -> list[bytes]:
    parts = [messages.take(spec, rows) for spec in specs]
    return [b"|".join(np.ascontiguousarray(part[i]).tobytes() for part in parts) for i in range(len(rows))]
