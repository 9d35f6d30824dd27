"""Findings about the frames and cameras of a log: contradictory names, parents and publishers, changing
calibrations.

Elsewhere: detecting anomalies (logloom.transforms.rows.frame_notes, logloom.transforms.rows.calibrations),
other findings (doctor).
"""

from __future__ import annotations

from collections.abc import Iterator

from logloom.errors import LogReadError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, Log
from logloom.pipelines.doctor.findings import HealthFinding
from logloom.transforms.rows.calibrations import calibration_changes, camera_topics, changes_in_words
from logloom.transforms.rows.frame_notes import frame_notes, note_words
from logloom.transforms.rows.frames import frame_topics, read_frames
from logloom.transforms.rows.plan.row_plan import Span

_OF_CAMERA = (
    "rows have the last calibration of the log, or with `resample: previous` that of their time; see "
    "docs/calibration.md"
)
_REMEDY = "`logloom info --tree` draws the frames; docs/transforms.md explains how lookups treat this"


def examine_frames(log: Log) -> Iterator[HealthFinding]:
    """Return notes on the frames of a log opened for salvage."""
    try:
        dynamic, static = frame_topics(log)
        if not (dynamic or static):
            return
        found = frame_notes(read_frames(log, dynamic, static), Span(MIN_TIME, MAX_TIME))
    except LogReadError:  # reported by other findings
        return
    topics = ", ".join((*dynamic, *static))
    for text, count in found.items():
        words = note_words(text, count)
        yield HealthFinding("frames", log.summary.uris[0], None, topics, count, words, _REMEDY)


def examine_calibrations(log: Log) -> Iterator[HealthFinding]:
    """Return notes on changing calibrations of cameras, of a log opened for salvage."""
    for topic in camera_topics(log):
        try:
            changes = calibration_changes(log, topic)
        except LogReadError:  # reported by other findings
            continue
        if len(changes):
            message = f"the calibration {changes_in_words(changes)}"
            uri = log.summary.uris[0]
            yield HealthFinding("calibration", uri, None, topic, len(changes), message, _OF_CAMERA)
