"""Lineage of poses: the transforms of a log that a lookup uses, frame by frame.

Here: `trace_pose`, of a column of poses; `trace_motion`, of a cloud whose points are deskewed.
Elsewhere: the lookups themselves (logloom.resample.frame_tree), the lineage of values of messages (lineage).
Times are int64 nanoseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, Log, TopicRequest
from logloom.resample.frame_tree import FOUND, REASONS, FrameTree, Hop, TransformTable
from logloom.transforms.rows.frames import LogFrames, frame_named_by, read_frames, rooted_by_motion
from logloom.transforms.rows.lineage import Source
from logloom.transforms.rows.plan.row_plan import ColumnPlan, TransformPlan
from logloom.transforms.rows.point_times import PointFields, point_times
from logloom.transforms.rows.resample import Times
from logloom.values import dataclass


@dataclass(frozen=True)
class HopLineage:
    """A frame's transforms in its parent.

    Attributes:
        parent: "" if the frame has none at that time; `used` are then the nearest transforms.
        topic: of the messages.
        is_static: whether these apply to all times; their `Source.time` is then their log time.
    """

    child: str
    parent: str
    topic: str
    used: tuple[Source, ...]
    is_static: bool = False


@dataclass(frozen=True)
class PoseLineage:
    """Transforms behind poses of one frame in another.

    Attributes:
        source, target: frames.
        times: of lookups: one, or the first and the last.
        hops: from the source to the target.
        reason: why there is no pose; "" if there is one.
    """

    source: str
    target: str
    times: tuple[int, ...]
    hops: tuple[HopLineage, ...]
    reason: str = ""


def trace_pose(log: Log, plan: TransformPlan, times: Sequence[int], tick: int) -> PoseLineage:
    """Return the transforms that lookups of poses use.

    Args:
        times: one, or the first and the last time of lookups.
        tick: reference of ages.

    Raises:
        LogReadError: the log is damaged, unless it is opened for salvage.
        UsageError: a topic has no transforms, or its messages have no frame.
    """
    source = frame_named_by(log, plan.source_topic) if plan.source_topic else plan.source
    target = frame_named_by(log, plan.target_topic) if plan.target_topic else plan.target
    start = max(MIN_TIME, min(times) - plan.reach.cache)
    stop = min(MAX_TIME, max(times) + plan.reach.cache + 1)
    found = read_frames(
        log, plan.topics, plan.static, start, stop, plan.max_delay, offsets=dict(plan.offsets)
    )
    if plan.by_odometry:
        found = replace(found, table=rooted_by_motion(found.table))
    tree = FrameTree(found.table)
    hops: dict[tuple[str, str], list[int]] = {}
    reasons = []
    for time in times:
        steps, reason = tree.hops(source, target, time, plan.reach)
        reasons += [REASONS[reason]] if reason != FOUND else []
        for hop in steps:
            hops.setdefault((hop.child, hop.parent), []).extend(hop.rows)
    # A frame without transforms is fine: the root of a tree has none.
    used = [Hop(*names, _between(found.table, rows)) for names, rows in hops.items() if rows]
    lineages = (_hop_lineage(log, found, hop, tick) for hop in used)
    return PoseLineage(source, target, tuple(times), tuple(lineages), reasons[0] if reasons else "")


def _between(table: TransformTable, rows: Iterable[int]) -> tuple[int, ...]:
    """Return transforms of one frame, and those between them; of equal stamps the first in the log."""
    some = np.unique(np.array([*rows], np.int64))
    if table.is_static[some[0]]:
        return tuple(some.tolist())
    stamps = table.stamp[some]
    own = (table.child == table.child[some[0]]) & ~table.is_static
    own &= (table.stamp >= stamps.min()) & (table.stamp <= stamps.max())
    between = np.flatnonzero(own)
    _, first = np.unique(table.stamp[between], return_index=True)
    return tuple(between[first].tolist())


def _hop_lineage(log: Log, found: LogFrames, hop: Hop, tick: int) -> HopLineage:
    table = found.table
    used = []
    for row in hop.rows:
        topic = found.topics[int(found.topic[row])]
        time = int((table.log_time if table.is_static[row] else table.stamp)[row])
        (place,) = log.places(topic, found.position[row : row + 1])
        used.append(Source(time, int(table.log_time[row]), tick - time, place))
    return HopLineage(hop.child, hop.parent, topic, tuple(used), bool(table.is_static[hop.rows[0]]))


def trace_motion(log: Log, column: ColumnPlan, cloud: Source, tick: int) -> PoseLineage | None:
    """Return the transforms that a cloud's points are moved by; None for no points.

    Args:
        column: with its `deskew`.
        cloud: the message of the points.

    Raises:
        LogReadError, UsageError: as `trace_pose`; points have no times.
    """
    assert column.deskew is not None
    own = _times_of_points(log, column, cloud)
    if not len(own):
        return None
    first, last = int(own.min()), int(own.max())
    times = [min(first, tick), max(last, tick)] if column.deskew.to == "tick" else [first, last]
    return trace_pose(log, column.deskew.pose, times, tick)


def _times_of_points(log: Log, column: ColumnPlan, cloud: Source) -> Times:
    """(n,) times of a cloud's points within the recipe's bounds."""
    assert column.deskew is not None
    times, fields = point_times(log, column), PointFields(column.spec)
    request = TopicRequest(cloud.time, cloud.time + 1, column.time, column.max_delay)
    messages = log.read({column.topic: request})[column.topic]
    places = log.places(column.topic, messages.position)
    rows = np.array([row for row, place in enumerate(places) if place == cloud.place], np.int64)
    if not len(rows):
        return np.empty(0, np.int64)
    read = messages.take(fields.of_time(times.field, times.unit), rows)
    values: NDArray[np.int64] = fields.times(
        read.values if isinstance(read, Ragged) else np.asarray(read[0]), times.unit
    )
    start = cloud.time - column.shift if times.is_absolute else 0
    within = column.deskew.pose.around
    values = values[(values >= start - within) & (values <= start + within)]
    return values + (cloud.time + column.sampling.offset - start)
