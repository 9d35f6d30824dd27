"""The coordinate frames of logs as trees: the answer of `logloom info --tree`.

Here: values that print as lines or JSON. Reads only the transforms and calibrations of a log.
Elsewhere: reading them (logloom.transforms.rows.frames), other answers of `info` (info).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from logloom.io.logs.interface import MAX_TIME, MIN_TIME, Log, OnError
from logloom.pipelines.info.info import open_all, rate
from logloom.resample.frame_tree import FrameTree
from logloom.text import OnMessage, counted, ignore_message, printable
from logloom.transforms.rows.calibrations import (
    CALIBRATION,
    calibration_changes,
    camera_topics,
    changes_in_words,
)
from logloom.transforms.rows.frame_notes import frame_notes, note_words
from logloom.transforms.rows.frames import frame_topics, read_frames
from logloom.transforms.rows.plan.row_plan import Span
from logloom.values import dataclass

MAX_DRAWN = 1000  # frames
MAX_INDENT = 40  # levels drawn as such; deeper ones are drawn below each other


@dataclass(frozen=True)
class FrameDescription:
    """One frame.

    Attributes:
        parent: "" for a root; the last of several successive ones.
        parents: number of successive parents.
        topics: with its pose.
        transforms: number of transforms, counting static ones once.
        hz: of its stamps; 0 for a static frame.
    """

    frame: str
    parent: str
    is_static: bool
    parents: int
    topics: tuple[str, ...]
    transforms: int
    hz: float

    @property
    def words(self) -> str:
        """Text after its name."""
        if not self.parent:
            return ""
        topics = ", ".join(self.topics)
        turns = f", {self.parents} successive parents" if self.parents > 1 else ""
        return f"static, {topics}" if self.is_static else f"{self.hz:.2f} Hz, {topics}{turns}"


@dataclass(frozen=True)
class TreeDescription:
    """The frames of a log, by name.

    Attributes:
        notes: anomalies, and the number of affected transforms.
        calibrations: log times, in ns, at which the calibration of a camera changes, by topic with changes.
    """

    log_id: str
    frames: tuple[FrameDescription, ...]
    notes: Mapping[str, int]
    calibrations: Mapping[str, tuple[int, ...]]

    def lines(self) -> Iterator[str]:
        """The tree as text."""
        yield f"{self.log_id}: {counted(len(self.frames), 'frame')}"
        drawn = list(self._drawn())
        width = max((len(name) for name, _ in drawn), default=0)
        yield from (f"{name:<{width}}  {words}".rstrip() for name, words in drawn[:MAX_DRAWN])
        if len(drawn) > MAX_DRAWN:
            yield f"… and {len(drawn) - MAX_DRAWN:,} more"
        yield from (f"note: {note_words(text, count)}" for text, count in self.notes.items())
        for topic, times in self.calibrations.items():
            yield f"note: {CALIBRATION}{printable(topic)} {changes_in_words(np.array(times))}"

    def _drawn(self) -> Iterator[tuple[str, str]]:
        children: dict[str, list[FrameDescription]] = {}
        for frame in self.frames:
            children.setdefault(frame.parent, []).append(frame)
        seen: set[str] = set()
        roots = children.get("", [])
        # Frames without a root are in a loop, or below one; its first frame is treated as a root.
        for root in (*roots, *(frame for frame in self.frames if frame.parent)):
            waiting = [(root, "", "")]
            while waiting:
                frame, before, beneath = waiting.pop()
                if frame.frame in seen:
                    continue
                seen.add(frame.frame)
                yield f"{before}{printable(frame.frame)}", printable(frame.words)
                below = children.get(frame.frame, [])
                deep = len(beneath) >= 3 * MAX_INDENT
                for i, child in reversed(list(enumerate(below))):
                    is_last = i == len(below) - 1
                    branch, stem = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
                    waiting.append((child, beneath + branch, beneath if deep else beneath + stem))

    def to_json(self) -> dict[str, Any]:
        frames = [asdict(frame) | {"hz": round(frame.hz, 3)} for frame in self.frames]
        calibrations = {topic: list(times) for topic, times in self.calibrations.items()}
        notes = {"notes": dict(self.notes), "calibrations": calibrations}
        return {"log_id": self.log_id, "frames": frames, **notes}


def draw_trees(
    logs: Sequence[str],
    storage_options: Mapping[str, Any],
    on_error: OnError = "fail",
    on_note: OnMessage = ignore_message,
    on_skipped: OnMessage = ignore_message,
) -> list[TreeDescription]:
    """Draw the frames of each log; see `logloom.pipelines.info.info.open_all`."""
    opened, _ = open_all(
        logs, storage_options, on_error, on_note, takes_unfinished=on_error != "skip", on_skipped=on_skipped
    )
    return [_tree_of(log_id, log) for log_id, log in opened.items()]


def _tree_of(log_id: str, log: Log) -> TreeDescription:
    found = read_frames(log, *frame_topics(log))
    table = found.table
    described: dict[str, FrameDescription] = {}
    for child, parent, turns, stamps in FrameTree(table).edges():
        own = table.child == table.names.index(child)
        topics = tuple(found.topics[topic] for topic in np.unique(found.topic[own]))
        number = 1 if stamps is None else len(stamps)
        hz = 0.0 if stamps is None else rate(number, int(stamps[0]), int(stamps[-1]))
        described[child] = FrameDescription(child, parent, stamps is None, turns, topics, number, hz)
    roots = {frame.parent for frame in described.values()} - described.keys()
    described |= {root: FrameDescription(root, "", False, 0, (), 0, 0.0) for root in roots}
    frames = tuple(described[name] for name in sorted(described))
    changes = {topic: tuple(calibration_changes(log, topic).tolist()) for topic in camera_topics(log)}
    changes = {topic: times for topic, times in changes.items() if times}
    return TreeDescription(log_id, frames, frame_notes(found, Span(MIN_TIME, MAX_TIME)), changes)
