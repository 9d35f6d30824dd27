"""Notes on frame anomalies of a log, for `logloom doctor` and version records.

Here: `frame_notes`, which counts anomalies in messages of a span of log time, so that spans can be added;
`note_words`.
Elsewhere: reading transforms (logloom.transforms.rows.frames), lookups in them (logloom.resample.frame_tree),
notes of calibrations (logloom.transforms.rows.calibrations).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from logloom.resample.frame_tree import FrameTree, Times
from logloom.text import counted, some_of
from logloom.transforms.rows.accounts import within
from logloom.transforms.rows.calibrations import CALIBRATION
from logloom.transforms.rows.frames import LogFrames
from logloom.transforms.rows.plan.row_plan import Span

POINT_TIMES = "times of the points of "  # prefix of notes of deskewed columns; these have no counts
MAX_NOTES = 20  # limit for one log
MAX_NAMED = 20  # frames in one note


def frame_notes(frames: LogFrames, span: Span) -> dict[str, int]:
    """Return anomalies, and the number of affected transforms in messages of a span, in a fixed order."""
    counted = ((text, int(within(times, span).sum())) for text, times in _strange(frames))
    return dict([(text, count) for text, count in counted if count][:MAX_NOTES])


def note_words(text: str, count: int, last_at: int | None = None) -> str:
    """Describe a note with the number of affected items, and optionally the log time of the last."""
    if text.startswith(POINT_TIMES):
        return text
    what = counted(count, "message" if text.startswith(CALIBRATION) else "transform")
    return f"{text} ({what})" if last_at is None else f"{text} ({what}, the last at {last_at} ns)"


def _strange(frames: LogFrames) -> Iterator[tuple[str, Times]]:
    """Find anomalies, with the log time of each affected transform."""
    for name, times in sorted(frames.slashed.items()):
        yield f"the name {name!r} begins with a slash, which is removed", times
    yield from sorted(frames.unusable.items(), key=lambda item: item[0])
    table = frames.table
    order = np.argsort(table.child, kind="stable")
    children, starts = np.unique(table.child[order], return_index=True)
    for child, own in zip(children.tolist(), np.split(order, starts[1:]), strict=False):
        yield from _of_child(frames, child, own)
    yield from _loops(frames)


def _of_child(frames: LogFrames, child: int, own: NDArray[np.intp]) -> Iterator[tuple[str, Times]]:
    table = frames.table
    name, times = repr(table.names[child]), table.log_time
    topics = sorted({frames.topics[topic] for topic in np.unique(frames.topic[own])})
    if len(topics) > 1:
        yield f"frame {name} is published on {' and '.join(topics)}", times[own]
    static = own[table.is_static[own]]
    changed = static[1:][_differ(frames, static[1:], static[:-1])]
    yield (
        f"the static transform of frame {name} is sent again with other values; the last is used",
        times[changed],
    )
    dynamic = own[~table.is_static[own]]
    dynamic = dynamic[np.argsort(table.stamp[dynamic], kind="stable")]
    before, after = dynamic[:-1], dynamic[1:]
    same_stamp = table.stamp[before] == table.stamp[after]
    twice = after[same_stamp & _differ(frames, before, after)]
    yield (
        f"frame {name} has different transforms at one stamp: two publishers? The first is used",
        times[twice],
    )
    turned = after[~same_stamp & (table.parent[before] != table.parent[after])]
    parents = some_of(sorted({table.names[parent] for parent in np.unique(table.parent[dynamic])}), MAX_NAMED)
    yield f"frame {name} changes its parent ({parents})", times[turned]


def _differ(frames: LogFrames, a: NDArray[np.intp], b: NDArray[np.intp]) -> NDArray[np.bool_]:
    table = frames.table
    differs: NDArray[np.bool_] = (table.parent[a] != table.parent[b]) | (
        (table.pose[:, a] != table.pose[:, b]).any(axis=0)
    )
    return differs


def _loops(frames: LogFrames) -> Iterator[tuple[str, Times]]:
    """Find frames that are their own ancestors, by the last parent of each."""
    table = frames.table
    parents = {child: parent for child, parent, *_ in FrameTree(table).edges()}
    numbers = {name: number for number, name in enumerate(table.names)}
    passed: dict[str, str] = {}  # frames by the start of the walk that visited them
    for start in sorted(parents):
        frame = start
        while frame in parents and frame not in passed:
            passed[frame] = start
            frame = parents[frame]
        if passed.get(frame) != start:
            continue
        chain = [frame]
        while (above := parents[chain[-1]]) != frame:
            chain.append(above)
        first = chain.index(min(chain))
        chain = chain[first:] + chain[:first]
        inside = np.isin(table.child, [numbers[name] for name in chain])
        names = some_of(chain, MAX_NAMED)
        yield f"the frames {names} are in a loop, in which no lookup ends", table.log_time[inside]
