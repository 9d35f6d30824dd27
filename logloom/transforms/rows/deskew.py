"""Columns of deskewed clouds, with points moved to where they were at one time.

Here: `Deskewing`, for a column in a span, and its plan (`deskew_plan`).
Elsewhere: the arithmetic (logloom.resample.deskew), times of points (point_times), choosing clouds
(topic_columns), poses of a span (pose_lookups).

A row depends only on its tick, its cloud, and transforms within `cache` of the times that are looked up,
which for points are at most `around` from the message time; so any partition gives the same rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.recipe.columns import Deskew
from logloom.resample.deskew import deskewed
from logloom.resample.frame_tree import FOUND, REASONS, Times
from logloom.resample.kernels import Floats
from logloom.transforms.rows.plan.row_plan import ColumnPlan, DeskewPlan, TransformPlan
from logloom.transforms.rows.point_times import AXES, PointFields, PointTimes, are_measured
from logloom.transforms.rows.pose_lookups import SpanFrames

FAR_TIME = len(REASONS)  # of a point, from its cloud's
WHY = (*REASONS, "points' times")


class Deskewing:
    """Deskews the clouds of a column.

    Attributes:
        spec: reads the times of points of a message.
    """

    def __init__(self, column: ColumnPlan, frames: SpanFrames, times: PointTimes):
        assert column.deskew is not None
        self._plan, self._frames, self._times = column.deskew, frames, times
        self._offset = column.sampling.offset + column.shift
        self._fields = PointFields(column.spec)
        self._axes = self._fields.axes(column.ctype)
        self.spec = self._fields.of_time(times.field, times.unit)

    def move(self, cloud: Array, read: Array, message_time: int, tick: int) -> tuple[Array, int]:
        """Return a deskewed cloud as a new array; or why that isn't possible, a position in `WHY`.

        Args:
            cloud: (n, k) or (n,) points of the column.
            read: (n,) values of `spec` for its message.
            message_time: of the cloud, with the offsets of the column and its topic.
        """
        plan = self._plan
        points = np.stack([self._axis(cloud, i) for i in range(3)]).astype(np.float64)
        measured = np.flatnonzero(are_measured(points))
        if len(measured) == 0:
            return cloud, FOUND
        own = self._fields.times(read, self._times.unit)[measured]
        # Without overflow for any numbers in the message.
        start = message_time - self._offset if self._times.is_absolute else 0
        limit = plan.pose.around
        if ((own < start - limit) | (own > start + limit)).any():
            return cloud, FAR_TIME
        own = own + (message_time - start)  # a sensor's delay is that of its points, as well
        to = tick if plan.to == "tick" else int(own.min() if plan.to == "start" else own.max())
        moved, reason = deskewed(points[:, measured], own, to, self._lookup)
        if reason != FOUND:
            return cloud, reason
        made = cloud.copy()
        for i in range(3):
            self._axis(made, i)[measured] = moved[i]
        return made, FOUND

    def _axis(self, cloud: Array, i: int) -> Array:
        return cloud[AXES[i]] if self._axes is None else cloud[:, self._axes[i]]

    def _lookup(self, times: Times) -> tuple[Floats, NDArray[np.uint8]]:
        return self._frames.lookup(self._plan.pose, times)


def deskew_plan(column: ColumnPlan, wanted: Deskew, pose: TransformPlan) -> DeskewPlan:
    """Return the plan of a column with deskewed points.

    Args:
        pose: of the lidar at ticks.

    Raises:
        UsageError: points have no x, y and z.
    """
    PointFields(column.spec).axes(column.ctype)
    pose = replace(pose, at=column.name, around=wanted.within)
    return DeskewPlan(pose, wanted.time or "", wanted.unit or "", wanted.to)
