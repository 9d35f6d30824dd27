"""Notes of a plan on compressed video: GOPs that are longer than partitions.

Here: `video_notes`.
Elsewhere: decoding (logloom.io.video), all other notes (plan).
"""

from __future__ import annotations

from logloom.io.logs.interface import Log
from logloom.io.video.preview import glimpse
from logloom.text import counted
from logloom.transforms.rows.plan.row_plan import RowPlan
from logloom.transforms.rows.spans import plan_spans
from logloom.transforms.rows.video_columns import video_topics


def video_notes(plan: RowPlan, log: Log) -> list[str]:
    """Return notes on video topics with GOPs longer than a partition, from the beginning of a log."""
    notes = []
    for topic in video_topics(plan):
        seen = glimpse(log, topic) if topic in log.summary.topics else None
        length = _partition_ns(plan, log)
        if seen is not None and 0 < length < seen.gop_ns:
            rows = -(-plan.rows * seen.gop_ns // length)
            notes.append(
                f"{topic}: keyframes are {counted(seen.gop, 'packet')} ({seen.gop_ns / 1e9:.1f} s) apart, "
                f"and a partition is {length / 1e9:.1f} s long: each decodes up to that much before its own "
                f"first picture; a partition.rows of {rows} or more wastes less"
            )
    return notes


def _partition_ns(plan: RowPlan, log: Log) -> int:
    """Return the duration of an inner partition; 0 if there is none."""
    if plan.period is not None:
        return plan.period * plan.rows
    inner = plan_spans(log.summary, plan)[1:-1]
    return inner[0].stop - inner[0].start if inner else 0
