"""Columns of poses: the lookups of a recipe's `tf` columns, and their values.

Here: reading transforms for a span's lookups (`read_trees`), and `Looked`, a column of a piece.
Elsewhere: the tree of frames and its lookups (logloom.resample.frame_tree), transforms in messages (frames),
the pieces of columns (topic_columns).

A lookup at time t only uses transforms within `cache` of t, so a span that reads this margin gives the same
rows as the whole log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Values
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, Log
from logloom.resample.frame_tree import FOUND, REASONS, FrameTree
from logloom.resample.kernels import NAN, Floats
from logloom.resample.poses import matrices
from logloom.schema import NO_AGE
from logloom.transforms.rows.calibrations import calibration_notes
from logloom.transforms.rows.frame_notes import POINT_TIMES, frame_notes
from logloom.transforms.rows.frames import frame_named_by, read_frames, rooted_by_motion
from logloom.transforms.rows.plan.row_plan import RowPlan, Span, TransformPlan
from logloom.transforms.rows.point_times import PointTimes
from logloom.transforms.rows.resample import Indices, Mask, Times
from logloom.values import dataclass

# Values of a pose in rows, and their shapes.
FORMS = {"pose": (7,), "matrix": (4, 4), "position": (3,), "quaternion": (4,), "rotation_matrix": (3, 3)}


@dataclass(frozen=True)
class SpanFrames:
    """Frames of a log in a span.

    Attributes:
        trees: by the topics of their transforms, `TransformPlan.topics` and `.static`, and `.by_odometry`.
        named: frames of topics' messages, by topic.
        notes: anomalies in messages of the span, and the number of affected transforms or messages.
        last_at: log time of the last of these messages, for some notes.
    """

    trees: Mapping[tuple[tuple[str, ...], tuple[str, ...], bool], FrameTree]
    named: Mapping[str, str]
    notes: Mapping[str, int]
    last_at: Mapping[str, int]

    def lookup(self, plan: TransformPlan, times: Times) -> tuple[Floats, NDArray[np.uint8]]:
        """Look up the poses of a plan at some times; see `FrameTree.lookup`."""
        source = self.named[plan.source_topic] if plan.source_topic else plan.source
        target = self.named[plan.target_topic] if plan.target_topic else plan.target
        return self.trees[plan.topics, plan.static, plan.by_odometry].lookup(
            source, target, times, plan.reach
        )


def read_trees(
    log: Log, plan: RowPlan, span: Span, point_times: Mapping[str, PointTimes] = MappingProxyType({})
) -> SpanFrames:
    """Read the transforms that lookups of a span may use.

    Args:
        point_times: of deskewed columns, for notes.

    Raises:
        LogReadError: the log is damaged, under `on_error: fail`.
        UsageError: a topic has no transforms, or its messages have no frame.
    """
    trees: dict[tuple[tuple[str, ...], tuple[str, ...], bool], FrameTree] = {}
    changed = calibration_notes(log, plan, span)
    notes = {text: count for text, (count, _) in changed.items()}
    named: dict[str, str] = {}
    for wanted in plan.lookups:
        for topic in (wanted.source_topic, wanted.target_topic):
            if topic and topic not in named:
                named[topic] = frame_named_by(log, topic)
        key = (wanted.topics, wanted.static, wanted.by_odometry)
        if key in trees:
            continue
        start, stop = reach(plan, span, *key[:2])
        found = read_frames(log, *key[:2], start, stop, wanted.max_delay, offsets=dict(wanted.offsets))
        trees[key] = FrameTree(rooted_by_motion(found.table) if wanted.by_odometry else found.table)
        for text, count in frame_notes(found, span).items():
            notes[text] = max(count, notes.get(text, 0))
    for name, times in point_times.items():
        notes[f"{POINT_TIMES}{name}: {times.words}"] = 1
    return SpanFrames(trees, named, notes, {text: last for text, (_, last) in changed.items()})


def reach(plan: RowPlan, span: Span, topics: Iterable[str], static: Iterable[str]) -> tuple[int, int]:
    """Return the range of stamps that lookups of a span's ticks may use, for some topics."""
    sampled = {column.name: column.sampling for column in plan.columns}
    back = forward = 0
    for column in plan.lookups:
        if (column.topics, column.static) == (topics, static):
            at, reach = sampled.get(column.at), column.reach.cache + column.around
            back = max(back, reach + (at.back if at else 0))
            forward = max(forward, reach + (at.forward if at else 0))
    start = span.start if span.start == MIN_TIME else max(MIN_TIME, span.start - back)
    stop = span.stop if span.stop == MAX_TIME else min(MAX_TIME, span.stop + forward)
    return start, stop


class Looked:
    """A column of looked up poses in a piece.

    Attributes:
        available: (T,) of the piece's ticks.
    """

    def __init__(self, plan: TransformPlan, frames: SpanFrames, ticks: Times, at: tuple[Times, Mask] | None):
        """
        Args:
            at: (T,) ages and availabilities of the column whose message times are looked up; None for the
            ticks.
        """
        self._plan = plan
        ages, known = (np.zeros(len(ticks), np.int64), np.ones(len(ticks), np.bool_)) if at is None else at
        self._ages = np.where(known, ages, 0)
        self._poses, self._reasons = frames.lookup(plan, ticks - self._ages)
        self._known = known
        self.available = known & (self._reasons == FOUND)

    def rows(self, ticks: Indices) -> tuple[Values, Times, Mask]:
        """Return the column at some of the piece's ticks: values, ages and availabilities."""
        available = self.available[ticks]
        with np.errstate(all="ignore"):
            values = shown(self._poses[:, ticks], self._plan.form)
        values[~available] = NAN
        return values, np.where(available, self._ages[ticks], NO_AGE), available

    def keep(self, ticks: Indices) -> None:
        """Do nothing: poses have no messages of their own to count."""

    def lacking(self, among: Mask) -> dict[str, int]:
        """Count ticks without a pose, by reason."""
        counts = np.bincount(self._reasons[self._known & among], minlength=len(REASONS)).tolist()
        found = {reason: count for reason, count in zip(REASONS, counts, strict=True) if reason and count}
        without = int((~self._known & among).sum())
        return found | ({f"no {self._plan.at}": without} if without else {})


def shown(poses: Floats, form: str) -> Array:
    """Convert poses to values of a column: (n, *FORMS[form]) float64."""
    if form in ("matrix", "rotation_matrix"):
        made = matrices(poses)
        return made if form == "matrix" else np.ascontiguousarray(made[:, :3, :3])
    rows = {"pose": slice(0, 7), "position": slice(0, 3), "quaternion": slice(3, 7)}[form]
    return np.ascontiguousarray(poses[rows].T)
