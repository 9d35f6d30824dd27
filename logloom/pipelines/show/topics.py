"""Decoded topics of a log beside its rows in Rerun, for `show --with-log`.

Here: `LogTopics`, which selects what is shown of each message and reads it, a part of the log at a time.
Elsewhere: opening the log (log), what is drawn (rerun), decoding (logloom.io.logs.messages).

A topic is shown as what its fields tell that it is: an image, packets of video, a cloud; else field by field,
and as transforms where it holds some. Headers aren't shown: the time line says when a message was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Values
from logloom.errors import OF_CONTENT, LogloomError, LogReadError
from logloom.io.logs.interface import FieldSpec, Log, Messages, Refusal, TopicRequest
from logloom.io.logs.messages.definitions import Field, Number, Struct
from logloom.io.logs.messages.images import DTYPES
from logloom.io.logs.messages.point_clouds import settled
from logloom.io.logs.messages.ros.languages import definition_of
from logloom.io.video.index import packet_bytes, text_of, windows
from logloom.io.video.preview import holds_video
from logloom.pipelines.show.show import Kind, ShownColumn
from logloom.pipelines.version_rows import is_cloud
from logloom.schema import BYTES, STRING
from logloom.text import OnMessage, counted
from logloom.transforms.suggest.samples import take_text
from logloom.values import dataclass

WINDOW_BYTES = 64 << 20  # of messages that are read at a time
MAX_FIELDS = 200  # of a topic that are shown
_AXES = frozenset("xyzw")
_STAMPS = ("stamp", "timestamp")
_DATA = FieldSpec(("data",))
_PIXELS = tuple(FieldSpec(adapter="image", dtype=dtype) for dtype in DTYPES)
_POINTS = tuple(FieldSpec(adapter=f"points[{axes}]") for axes in ("x,y,z", "x,y"))
_TRANSFORMS = FieldSpec(adapter="transforms", strings=64)


@dataclass(frozen=True)
class ShownField:
    """What is shown of each message of a topic.

    Attributes:
        name: the field; "" of the message as a whole.
        specs: how it is read; the first that takes a message.
        codec: of video, as messages name it.
    """

    topic: str
    name: str
    specs: tuple[FieldSpec, ...] = ()
    kind: Kind = "plain"
    codec: str = ""

    @property
    def title(self) -> str:
        return f"topic {self.topic}" + (f", {self.name}" if self.name else "")


@dataclass(frozen=True)
class ShownValues:
    """Values of some messages of a topic. Iterating gives them as rows have theirs.

    Attributes:
        column: their type and kind, under the field's name.
        times: (n,) log times, ns since the Unix epoch.
        values: n of them.
    """

    field: ShownField
    column: ShownColumn
    times: NDArray[np.int64]
    values: Values

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Any]:
        ctype = self.column.ctype
        for row in range(len(self)):
            if ctype == STRING:
                yield text_of(self.values, row)  # whatever isn't UTF-8 replaced
            else:
                yield packet_bytes(self.values, row) if ctype == BYTES else self.values[row]


@dataclass
class LogTopics:
    """The messages of a log with first <= log time <= last. Iterating reads them, once.

    Attributes:
        on_problem: is called for what is damaged.
        left_out: of how many messages something isn't shown, and why of the first; by what it is.
    """

    log: Log
    first: int
    last: int
    on_problem: OnMessage
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """Those with messages, in name order."""
        return [name for name, info in self.log.summary.topics.items() if info.num_messages]

    def leave_out(self, one: ShownField, why: str, messages: int = 1) -> None:
        """Counts messages of which something isn't shown."""
        count, first = self.left_out.get(one.title, (0, why))
        self.left_out[one.title] = count + messages, first

    def __iter__(self) -> Iterator[ShownValues]:
        """Values by stretch of time, by topic, by field; those of a field in the order of messages.

        Raises:
            LogReadError: files can't be read.
        """
        shown, unread = self._fields()
        refused: dict[tuple[str, str], tuple[Refusal, int]] = {}
        for start, stop in windows(self.log.summary, None, WINDOW_BYTES):
            start, stop = max(start, self.first), min(stop, self.last + 1)
            if start >= stop:
                continue
            requests = {topic: TopicRequest(start, stop, ("log",), 0) for topic in shown}
            for topic, messages in self.log.read(requests).items():
                for one in messages.refused:
                    first, count = refused.get((topic, one.reason), (one, 0))
                    refused[topic, one.reason] = first, count + one.num_messages
                if len(messages):
                    for whole in shown[topic]:
                        yield from self._values(whole, messages)
                    for part, why in unread[topic]:
                        self.leave_out(part, why, len(messages))
        for (topic, reason), (one, count) in refused.items():
            more = f" ({counted(count, 'message')} of {topic})"
            self.on_problem(f"{one.uri}: {one.place}: {reason}{more}")

    def _fields(self) -> tuple[dict[str, list[ShownField]], dict[str, list[tuple[ShownField, str]]]]:
        """By topic what is shown of it, and what isn't and why. What nothing decodes is counted here."""
        shown: dict[str, list[ShownField]] = {}
        unread: dict[str, list[tuple[ShownField, str]]] = {}
        for topic in self.topics:
            try:
                shown[topic], unread[topic] = fields_of(self.log, topic)
            except OF_CONTENT as error:
                count = self.log.summary.topics[topic].num_messages
                self.leave_out(ShownField(topic, ""), _reason(error), count)
        return shown, unread

    def _values(self, one: ShownField, messages: Messages) -> Iterator[ShownValues]:
        """What is shown of messages: read all at once where they are alike, else one by one."""
        rows = np.arange(len(messages))
        try:
            # Text in arrays gets no more room than usual: that would be room in each message.
            yield self._shown(one, one.specs[0], messages, rows, messages.take(one.specs[0], rows))
            return
        except OF_CONTENT:
            pass
        for row in rows.tolist():
            reasons = []
            for spec in one.specs:
                try:
                    values, _ = take_text(self.log, messages, spec, rows[row : row + 1], None)
                    yield self._shown(one, spec, messages, rows[row : row + 1], values)
                    break
                except OF_CONTENT as error:
                    reasons.append(_reason(error))
            else:
                self.leave_out(one, reasons[0])

    def _shown(
        self, one: ShownField, spec: FieldSpec, messages: Messages, rows: NDArray[np.intp], values: Values
    ) -> ShownValues:
        ctype = self.log.column_type(one.topic, spec)
        return ShownValues(one, ShownColumn(one.name, ctype, one.kind), messages.log_time[rows], values)


def fields_of(log: Log, topic: str) -> tuple[list[ShownField], list[tuple[ShownField, str]]]:
    """What is shown of a topic's messages, and what isn't, with the reason.

    Raises:
        LogloomError: its messages can't be decoded.
    """
    root = definition_of(log, topic)
    if root is None or not root.fields:
        return [], [(ShownField(topic, ""), "its messages have no schema that types a field")]
    if whole := _whole(log, topic, root):
        return [whole], []
    shown = [ShownField(topic, "", (_TRANSFORMS,), "transforms")] if _takes(log, topic, _TRANSFORMS) else []
    if shown and root.field("transforms"):
        return shown, []
    unread: list[tuple[ShownField, str]] = []
    for path, why in _paths(log, topic, root):
        if len(shown) + len(unread) == MAX_FIELDS:
            unread.append((ShownField(topic, "other fields"), f"the first {MAX_FIELDS} are shown"))
            break
        if why:
            unread.append((ShownField(topic, path), why))
        else:
            shown.append(ShownField(topic, path, (FieldSpec((path,)),)))
    return shown, unread


def _whole(log: Log, topic: str, root: Struct) -> ShownField | None:
    """What a topic's messages are as a whole; None where their fields are shown.

    Raises:
        LogReadError: the last of them, which determines it, is damaged.
    """
    is_data = _takes(log, topic, _DATA) and log.column_type(topic, _DATA) == BYTES
    words = next((name for name in ("format", "encoding") if root.field(name)), "")
    if is_data and words and holds_video(log, topic):
        last = log.last_message(topic)
        names = last.take(FieldSpec((words,)), np.arange(len(last)))
        return ShownField(topic, "", (_DATA,), "video", text_of(names, 0) if len(last) else "")
    if is_data and _takes(log, topic, _PIXELS[0]):
        return ShownField(topic, "", (_DATA,) if words == "format" else _PIXELS, "image")
    if is_data and _takes(log, topic, _POINTS[0]):
        return ShownField(topic, "", (*_all_of_points(log, topic), *_POINTS), "cloud")
    return None


def _all_of_points(log: Log, topic: str) -> list[FieldSpec]:
    """What reads a cloud with all its fields; nothing where the last one says of no such points."""
    try:
        spec = settled(log, topic, FieldSpec(adapter="points"))
        return [spec] if is_cloud(topic, log.column_type(topic, spec), {}) else []
    except OF_CONTENT:
        return []


def _takes(log: Log, topic: str, spec: FieldSpec) -> bool:
    """Whether a topic's definition has what a spec reads."""
    try:
        log.column_type(topic, spec)
    except OF_CONTENT:
        return False
    return True


def _paths(log: Log, topic: str, struct: Struct, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The paths of fields, each with the reason why it can't be shown, "" where it can."""
    for one in struct.fields:
        path, kind = prefix + one.name, one.type
        if _is_header(one, prefix) or (isinstance(kind, Struct) and not kind.fields):
            continue
        if isinstance(kind, Struct) and one.array is None and not (kind.is_time or _is_vector(kind)):
            yield from _paths(log, topic, kind, f"{path}.")
            continue
        try:
            ctype = log.column_type(topic, FieldSpec((path,)))
        except OF_CONTENT as error:
            if isinstance(kind, Struct) and one.array is not None and "[]" not in prefix:
                # No struct holds a whole element, but perhaps some of its fields.
                yield from _paths(log, topic, kind, f"{path}[].")
            else:
                own = f"topic {topic} ({log.summary.topics[topic].type}): "
                yield path, _reason(error).removeprefix(own)
        else:
            yield path, "bytes of unknown format" if ctype == BYTES else ""


def _is_header(one: Field, prefix: str) -> bool:
    if not isinstance(one.type, Struct):
        return False
    return one.name == "header" or (not prefix and one.name in _STAMPS and one.type.is_time)


def _is_vector(struct: Struct) -> bool:
    """Whether a sub-message is x, y, z or a quaternion."""
    return all(one.name in _AXES and isinstance(one.type, Number) and not one.array for one in struct.fields)


def _reason(error: LogloomError) -> str:
    """Why a message can't be shown, without its place, which differs from message to message."""
    cause = error.__cause__ if isinstance(error, LogReadError) else None
    return str(cause or error).splitlines()[0]
