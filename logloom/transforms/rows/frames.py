"""Transforms in messages: the frames in /tf and /tf_static topics of a log.

Here: reading them (`read_frames`), finding their topics, and the frame of other messages.
Elsewhere: the tree of transforms, and lookups in it (logloom.resample.frame_tree), anomalies (frame_notes),
columns (pose_lookups). Messages are tf2_msgs/TFMessage, tf/tfMessage, geometry_msgs/TransformStamped,
nav_msgs/Odometry, and Foxglove's FrameTransform and FrameTransforms. A name's leading slash, a relic of tf's
first version, is removed, as in tf2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array, Ragged
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, TABLE_ROW, FieldSpec, Log, Messages, TopicRequest
from logloom.io.logs.message_times import are_known, moved
from logloom.resample.frame_tree import Times, TransformTable
from logloom.resample.poses import inverse, poses_of
from logloom.values import dataclass

_FIRST_LOOK = 10 * 10**9  # ns
_AT_A_TIME = 4096  # messages whose names of frames are in memory as text
_FEW_NAMES = 64
_NAMED = 20  # frames with one fault
# In the order of the shapes that the adapter knows.
_STAMPS = ("transforms[].header.stamp", "header.stamp", "transforms[].timestamp", "timestamp")
_FRAMES = ("header.frame_id", "frame_id")
_TRANSFORMS = FieldSpec(adapter="transforms", strings=64)
_OF_ROW = FieldSpec()  # no field: the log itself provides the times of a table's rows


@dataclass(frozen=True)
class LogFrames:
    """The transforms that were read of a log.

    Attributes:
        topic: (n,) of each transform of `table`, as a position in `topics`.
        position: (n,) of its message, as of `Messages`.
        unusable: problems of unusable transforms, and the log times of their messages.
        slashed: original names that begin with a slash, and the log times of their messages.
    """

    table: TransformTable
    topics: tuple[str, ...]
    topic: NDArray[np.intp]
    position: Times
    unusable: Mapping[str, Times]
    slashed: Mapping[str, Times]


def is_transform_topic(log: Log, topic: str) -> bool:
    """Return whether a topic of the log has transforms."""
    return _stamp_spec(log, topic) is not None


def frame_topics(log: Log) -> tuple[list[str], list[str]]:
    """Return the topics of a log with transforms, by their names: /tf, /robot1/tf; and static ones."""
    named: dict[str, list[str]] = {"tf": [], "tf_static": []}
    for topic in log.summary.topics:
        last = topic.rpartition("/")[2]
        if last in named and is_transform_topic(log, topic):
            named[last].append(topic)
    return named["tf"], named["tf_static"]


def read_frames(
    log: Log,
    topics: Sequence[str],
    static: Sequence[str],
    start: int = MIN_TIME,
    stop: int = MAX_TIME,
    max_delay: int | None = None,
    *,
    takes_far: bool = False,
    offsets: Mapping[str, int] = MappingProxyType({}),
) -> LogFrames:
    """Read the transforms of a log whose stamps are in a range, and all static ones.

    Args:
        topics, static: missing ones are ignored.
        max_delay: ns; the largest distance of a stamp from its message's log time; None for any distance, for
            which the whole log is read.
        takes_far: whether to include transforms further from it, as far as they are read.
        offsets: ns; by topic, what to add to stamps.

    Raises:
        UsageError: a topic has no transforms.
        LogReadError: damage, under `on_error` fail.
    """
    if max_delay is None:
        first, last = MIN_TIME, MAX_TIME
    else:
        first = start if start == MIN_TIME else max(MIN_TIME, start - max_delay)
        last = stop if stop == MAX_TIME else min(MAX_TIME, stop + max_delay)
    spans = dict.fromkeys(topics, (first, last)) | dict.fromkeys(static, (MIN_TIME, MAX_TIME))
    requests = {
        topic: TopicRequest(*span, ("log",), None, with_strays=topic in static)
        for topic, span in spans.items()
    }
    there = {topic: request for topic, request in requests.items() if topic in log.summary.topics}
    reading = _TransformReading(tuple(there), frozenset(static), None if takes_far else max_delay, offsets)
    for topic, messages in log.read(there).items() if there else ():
        reading.take(log, topic, messages)
    return reading.done()


def rooted_by_motion(table: TransformTable) -> TransformTable:
    """Invert static transforms so that frames whose motion is known are at their root.

    A driver's odometry may be that of its own sensor, which `/tf_static` mounts on the base: of its two
    parents, the static one becomes its child.

        odom                odom
         |  odometry         |
        lidar               lidar
         |  static           |  inverted
        base                base
    """
    child, parent, poses = table.child.copy(), table.parent.copy(), table.pose.copy()
    moving = set(table.child[~table.is_static].tolist())
    for frame in sorted(moving):
        rows = np.flatnonzero(table.is_static)
        parents = dict(zip(child[rows].tolist(), parent[rows].tolist(), strict=True))  # the last one wins
        chain = [frame]
        while chain[-1] in parents and parents[chain[-1]] not in {*chain, *moving}:
            chain.append(parents[chain[-1]])
        own = rows[np.isin(child[rows], chain[:-1])]
        child[own], parent[own] = parent[own], child[own]
        poses[:, own] = inverse(poses[:, own])
    return replace(table, child=child, parent=parent, pose=poses)


def frames_of(log: Log, topics: Sequence[str], static: Sequence[str], wanted: set[str]) -> set[str]:
    """Return names of a log's frames: in its first seconds if these include the wanted ones, else in all of
    it.

    Raises:
        UsageError, LogReadError: as `read_frames`.
    """
    for stop, max_delay in ((log.summary.first + _FIRST_LOOK, 0), (MAX_TIME, None)):
        table = read_frames(log, topics, static, log.summary.first, stop, max_delay, takes_far=True).table
        names = {table.names[number] for number in np.union1d(table.child, table.parent).tolist()}
        if wanted <= names:
            break
    return names


def frame_named_by(log: Log, topic: str) -> str:
    """Return the frame of a topic's last message; "" if the log has no such message.

    Raises:
        UsageError: messages of the topic have no frame.
        LogReadError: the message is damaged, under `on_error` fail.
    """
    last = log.last_message(topic) if topic in log.summary.topics else None
    if last is None or not len(last):
        return ""
    for path in _FRAMES:
        spec = FieldSpec((path,))
        try:
            is_text = log.column_type(topic, spec).kind == "string"
        except UsageError:
            continue
        if is_text:
            (name,) = last.take(spec, np.arange(1))
            return bytes(name).decode("utf-8", "replace").removeprefix("/")
    raise UsageError(f"messages of {topic} ({log.summary.topics[topic].type}) have no frame")


def no_transforms(log: Log, topic: str) -> str:
    """Explain that a topic has no transforms."""
    info = log.summary.topics[topic]
    if info.type != TABLE_ROW:
        return f"{topic} has no stamped transforms ({info.type})"
    return (
        f"{topic} has no stamped transforms: rows of a table need parent_frame_id and child_frame_id, and "
        "structs translation (x, y, z) and rotation (x, y, z, w)"
    )


def _stamp_spec(log: Log, topic: str) -> FieldSpec | None:
    """Return the field with the stamps of transforms; None if a topic has none."""
    try:
        log.column_type(topic, _TRANSFORMS)
    except UsageError:
        return None
    is_table = log.summary.topics[topic].type == TABLE_ROW
    for path in _STAMPS:
        spec = FieldSpec((path,))
        try:
            found = log.column_type(topic, spec)
        except UsageError:
            continue
        if found.dtype == np.int64 and not found.tail and not (is_table and path == "timestamp"):
            return spec
    return _OF_ROW if is_table else None


def _pieces(
    log: Log, messages: Messages, stamp: FieldSpec, rows: NDArray[np.intp]
) -> Iterator[tuple[NDArray[np.intp], Ragged, Times]]:
    """Yield the transforms of messages and their stamps, with the rows taken at a time.

    Fewer if names of frames are long: all take as much memory as the longest.
    """
    from logloom.transforms.suggest.samples import take_text  # most logs have no transforms

    found = messages.log_time[rows] if stamp is _OF_ROW else messages.take(stamp, rows)
    stamps = found.values if isinstance(found, Ragged) else found
    try:
        values, _ = take_text(log, messages, _TRANSFORMS, rows, len(stamps))
    except LogReadError:
        if len(rows) == 1:
            raise
        for half in np.array_split(rows, 2):
            yield from _pieces(log, messages, stamp, half)
        return
    assert isinstance(values, Ragged)
    yield rows, values, np.repeat(stamps, values.lengths) if stamp is _OF_ROW else stamps


class _TransformReading:
    """Transforms of several topics being collected in one table."""

    def __init__(
        self,
        topics: tuple[str, ...],
        static: frozenset[str],
        max_delay: int | None,
        offsets: Mapping[str, int],
    ):
        self._topics, self._static, self._max_delay, self._offsets = topics, static, max_delay, offsets
        self._names: dict[str, int] = {}
        self._parts: list[tuple[Array, ...]] = []
        self._unusable: dict[str, list[Times]] = {}
        self._slashed: dict[str, list[Times]] = {}

    def take(self, log: Log, topic: str, messages: Messages) -> None:
        spec = _stamp_spec(log, topic)
        if spec is None:
            raise UsageError(no_transforms(log, topic))
        for at in range(0, len(messages), _AT_A_TIME):
            rows = np.arange(at, min(at + _AT_A_TIME, len(messages)))
            for own, values, stamps in _pieces(log, messages, spec, rows):
                message = np.repeat(own, values.lengths)
                is_time = are_known(stamps)
                stamps = np.where(is_time, moved(stamps, self._offsets.get(topic, 0)), stamps)
                self._add(
                    topic, values.values, stamps, messages.log_time[message], messages.position[message]
                )

    def _add(self, topic: str, values: Array, stamp: Times, log_time: Times, position: Times) -> None:
        child = self._numbered(values["child"], log_time)
        parent = self._numbered(values["parent"], log_time)
        pose, is_pose = poses_of(values["translation"], values["rotation"])
        usable = np.ones(len(child), np.bool_)
        for reason, wrong in self._wrong(topic, child, parent, stamp, log_time, is_pose):
            rows = np.flatnonzero(wrong & usable)
            for frame in np.unique(child[rows])[:_NAMED].tolist():
                text = f"transforms of frame {list(self._names)[frame]!r} on {topic} {reason}"
                self._unusable.setdefault(text, []).append(log_time[rows[child[rows] == frame]])
            usable &= ~wrong
        number = np.full(len(child), self._topics.index(topic))
        part = (child, parent, stamp, pose.T, number, log_time, position)
        self._parts.append(tuple(values[usable] for values in part))

    def _wrong(
        self,
        topic: str,
        child: NDArray[np.intp],
        parent: NDArray[np.intp],
        stamp: Times,
        log_time: Times,
        is_pose: NDArray[np.bool_],
    ) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        nameless = self._names.get("", -1)
        yield "lack a frame's name", (child == nameless) | (parent == nameless)
        yield "have their own frame as parent", child == parent
        yield "are invalid: a number isn't finite, or the rotation's norm is zero", ~is_pose
        if topic in self._static:
            return
        yield "have an invalid stamp", (stamp == 0) | (stamp == MIN_TIME) | (stamp == MAX_TIME)
        if self._max_delay is not None:
            latest = log_time + np.minimum(self._max_delay, MAX_TIME - log_time)
            is_far = (stamp < log_time - self._max_delay) | (stamp > latest)
            yield "are further from their log time than max_delay allows", is_far

    def _numbered(self, texts: Array, log_time: Times) -> NDArray[np.intp]:
        """Return names as numbers; few of them are compared faster than sorted."""
        numbers = np.full(len(texts), -1, np.intp)
        left = np.arange(len(texts))
        for _ in range(_FEW_NAMES):
            if len(left) == 0:
                return numbers
            name = texts[left[0]]
            same = texts[left] == name
            numbers[left[same]] = self._number(str(name), log_time[left[same]])
            left = left[~same]
        names, first, which = np.unique(texts[left], return_index=True, return_inverse=True)
        known = [self._number(str(n), log_time[left[i : i + 1]]) for n, i in zip(names, first, strict=True)]
        numbers[left] = np.array(known, np.intp)[which]
        return numbers

    def _number(self, name: str, log_time: Times) -> int:
        if name.startswith("/"):
            self._slashed.setdefault(name, []).append(log_time)
        return self._names.setdefault(name.removeprefix("/"), len(self._names))

    def done(self) -> LogFrames:
        none = np.empty(0, np.int64)
        empty = (none, none, none, np.empty((0, 7)), none, none, none)
        child, parent, stamp, pose, topic, log_time, position = (
            np.concatenate(parts) for parts in zip(empty, *self._parts, strict=True)
        )
        order = np.argsort(position, kind="stable")  # those of one message keep their order
        topic = topic[order]
        is_static = np.isin(topic, [i for i, name in enumerate(self._topics) if name in self._static])
        poses = np.ascontiguousarray(pose[order].T)
        columns = child[order], parent[order], stamp[order], poses, is_static, log_time[order]
        return LogFrames(
            TransformTable(tuple(self._names), *columns),
            self._topics,
            topic,
            position[order],
            {text: np.concatenate(times) for text, times in self._unusable.items()},
            {text: np.concatenate(times) for text, times in self._slashed.items()},
        )
