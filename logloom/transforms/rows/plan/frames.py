"""Resolve a recipe's columns of poses: check topics of transforms, and frames.

Elsewhere: resolving all else (resolve), reading transforms (logloom.transforms.rows.frames).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import Log
from logloom.io.logs.message_times import offset_of
from logloom.recipe import TransformColumn
from logloom.recipe.columns import Frame, FramePair
from logloom.recipe.mistakes import Mistake
from logloom.recipe.sections import Time
from logloom.resample.frame_tree import Extrapolation
from logloom.schema import ColumnType
from logloom.text import near_to
from logloom.transforms.rows.frames import frame_named_by, frames_of, is_transform_topic, no_transforms
from logloom.transforms.rows.plan.row_plan import TransformPlan
from logloom.transforms.rows.pose_lookups import FORMS
from logloom.validation import Path


def transform_plan(name: str, column: TransformColumn, time: Time) -> TransformPlan:
    """Return the plan of a column in which `frame_mistakes` finds nothing wrong."""
    plan = pose_plan(name, column.tf, time, column.as_)
    ctype = replace(plan.ctype, unit=column.unit, description=column.description)
    return replace(plan, at=column.at or "", ctype=ctype)


def pose_plan(name: str, tf: FramePair, time: Time, form: str = "pose") -> TransformPlan:
    """Return the plan for looking up a pair of frames at ticks."""
    return TransformPlan(
        name=name,
        source=tf.from_ if isinstance(tf.from_, str) else "",
        target=tf.to if isinstance(tf.to, str) else "",
        topics=tf.topics,
        static=tf.static,
        reach=Extrapolation(tf.cache, tf.kind, tf.limit),
        at="",
        form=form,
        ctype=ColumnType(np.dtype("<f8"), FORMS[form]),
        max_delay=time.max_delay,
        source_topic="" if isinstance(tf.from_, str) else tf.from_.topic,
        target_topic="" if isinstance(tf.to, str) else tf.to.topic,
        offsets=tuple((topic, ns) for topic in tf.topics if (ns := offset_of(time.sources(topic)))),
    )


def frame_mistakes(
    path: Path, tf: FramePair, variants: Mapping[str, Collection[str]], logs: Mapping[str, Log]
) -> Iterator[Mistake]:
    """Find mistakes in a pair of frames.

    Args:
        path: its place in the recipe.
        variants: of each topic of `tf`, the first log with each of its definitions; empty if no log has it.
        logs: opened logs, which are read one after the other until all frames are found.
    """
    strange = list(topic_mistakes(path, variants, logs))
    yield from strange
    known = {topic for topic, log_ids in variants.items() if log_ids}
    some = [log for _, log in sorted(logs.items()) if known & log.summary.topics.keys()]
    if strange or not some:
        return
    try:
        ends = {key: _name_of(frame, logs) for key, frame in (("from", tf.from_), ("to", tf.to))}
    except UsageError as error:
        yield Mistake(path, str(error))
        return
    wanted, frames = {frame for frame in ends.values() if frame}, set[str]()
    for log in some:
        try:
            frames |= frames_of(log, tf.topics, tf.static, wanted)
        except LogReadError:  # its frames are unknown; the build reports its damage
            return
        except UsageError:  # its topics have another type, and it is left out
            continue
        if wanted <= frames:
            return
    whose = "the log" if len(some) == 1 else f"the {len(some)} logs that were checked"
    for key, frame in ends.items():
        if frame in wanted - frames:
            why = f"no transform has the frame {frame!r} in {whose}{near_to(frame, sorted(frames))}"
            yield Mistake((*path, key), why)


def topic_mistakes(
    path: Path, variants: Mapping[str, Collection[str]], logs: Mapping[str, Log]
) -> Iterator[Mistake]:
    """Find topics without transforms; see `frame_mistakes`."""
    for topic, log_ids in variants.items():
        for log_id in log_ids:
            if not is_transform_topic(logs[log_id], topic):
                whose = f" (log {log_id})" if len(logs) > 1 else ""
                yield Mistake(path, no_transforms(logs[log_id], topic) + whose)


def _name_of(frame: Frame, logs: Mapping[str, Log]) -> str:
    """Return the name of a frame; "" if no opened log has it.

    Raises:
        UsageError: messages of its topic have no frame.
    """
    if isinstance(frame, str):
        return frame
    for _, log in sorted(logs.items()):
        try:
            name = frame_named_by(log, frame.topic)
        except LogReadError:  # the build reports it
            continue
        if name:
            return name
    return ""
