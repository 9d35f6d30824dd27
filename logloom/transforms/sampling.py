"""A look at some messages of logs, for a recipe to be suggested: stamps, encodings, rotations.

Here: reading a bounded part of each log and what that says.
Elsewhere: what follows for the recipe (suggest).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values
from logloom.errors import LogloomError
from logloom.io.logs.base import FieldSpec, Log, Messages, TopicInfo, TopicRequest

MAX_BYTES = 256 << 20  # of messages, over all logs
MAX_STRETCHES = 32  # of one log, evenly spread
DEFAULT_DELAY = 1_000_000_000
MAX_DELAY = 3600 * 10**9  # beyond it the log was replayed, and only a scan finds its messages

_STAMPS = ("header.stamp", "timestamp", "transforms[].header.stamp", "transforms[].timestamp")
_ROTATIONS = ("pose.pose.orientation", "pose.orientation")
_VIDEO = re.compile(r"h\.?26[45]|hevc|av1|vp9|theora", re.IGNORECASE)
_VIDEO_TYPE = re.compile(r"CompressedVideo|FFMPEGPacket|H26[45]|ffmpeg_image|theora", re.IGNORECASE)
# Encodings of raw images, to the dtype that holds their pixels; others are no images to a column.
_PIXELS = (
    (re.compile(r"(mono|rgba?|bgra?|bayer_\w{4})16|16UC[1-4]"), "uint16"),
    (re.compile(r"32FC[1-4]"), "float32"),
    (re.compile(r"(mono|rgba?|bgra?|bayer_\w{4})8|8UC[1-4]"), None),
)


@dataclass
class Sample:
    """What some messages say.

    Attributes:
        delays: by topic, the most ns seen between a message's stamp and its log time.
        is_whole: whether all messages were seen.
        unstamped: topics with a stamp of zero, which can't be a message time.
        unusable: topics to leave out, and why.
        image_dtypes: of topics with raw images that aren't uint8.
        zero_rotations: topics with a quaternion of norm zero.
    """

    delays: dict[str, int] = field(default_factory=dict)
    is_whole: bool = True
    unstamped: set[str] = field(default_factory=set)
    unusable: dict[str, str] = field(default_factory=dict)
    image_dtypes: dict[str, str] = field(default_factory=dict)
    zero_rotations: set[str] = field(default_factory=set)

    @property
    def by_log_time(self) -> set[str]:
        """Topics whose stamps are of no use: zero, or far off where other topics' stamps are near."""
        return self.unstamped if self._is_replayed else self.unstamped | self._far

    @property
    def max_delay(self) -> int | None:
        """A bound on the delay, in whole seconds; None where the whole log was stamped at another time."""
        if self._is_replayed:
            return None
        # What was seen is all there is, or else others may come twice as late.
        expected = self._worst_near if self.is_whole else self._worst_near * 2
        return max(DEFAULT_DELAY, -(-expected // 10**9) * 10**9)

    @property
    def comment(self) -> str:
        if self._is_replayed:
            return "stamps lie far from their log times: replayed? The log is scanned for them"
        seen = "stamps" if self.is_whole else "the stamps looked at"
        return f"{seen} lie at most {self._worst_near / 1e9:.3g} s from their log times"

    @property
    def _used(self) -> dict[str, int]:
        return {t: d for t, d in self.delays.items() if t not in self.unusable and t not in self.unstamped}

    @property
    def _far(self) -> set[str]:
        return {topic for topic, delay in self._used.items() if delay > MAX_DELAY}

    @property
    def _is_replayed(self) -> bool:
        return bool(self._far) and self._far == self._used.keys()

    @property
    def _worst_near(self) -> int:
        return max((delay for topic, delay in self._used.items() if topic not in self._far), default=0)


def sample(topics: Mapping[str, TopicInfo], logs: Sequence[Log]) -> Sample:
    """Looks at a bounded part of each log; a small log is looked at whole."""
    found = Sample()
    for name, info in topics.items():
        if _VIDEO_TYPE.search(info.type):
            found.unusable[name] = f"compressed video ({info.type}): a single message of it is no image"
    for log in logs:
        stretches, is_whole = _stretches(log, MAX_BYTES // len(logs))
        found.is_whole &= is_whole
        for start, stop in stretches:
            wanted = [topic for topic in topics if topic in log.summary.topics]
            requests = {topic: TopicRequest(start, stop, ("log",), 0) for topic in wanted}
            for topic, messages in log.read(requests).items():
                if len(messages):
                    _look(found, log, messages, topic)
    return found


def _stretches(log: Log, max_bytes: int) -> tuple[list[tuple[int, int]], bool]:
    """Ranges of log time that hold at most about so many bytes, and whether they are the whole log."""
    summary = log.summary
    sizes, times = summary.chunk_bytes, summary.chunk_times
    if sizes.sum() <= max_bytes:
        return [(summary.first, summary.last + 1)], True
    count = int(np.clip(max_bytes // max(1, int(sizes.max())), 1, min(MAX_STRETCHES, len(sizes))))
    chosen = np.unique(np.linspace(0, len(sizes) - 1, count).astype(np.intp))
    order = np.argsort(times[:, 0], kind="stable")[chosen]
    return [(int(times[i, 0]), int(times[i, 1]) + 1) for i in order], False


def _look(found: Sample, log: Log, messages: Messages, topic: str) -> None:
    kind = log.summary.topics[topic].type
    stamps = _stamps(log, messages, topic)
    if stamps is not None:
        if not stamps.all():
            found.unstamped.add(topic)
        else:
            worst = int(np.abs(stamps - messages.log_time).max())
            found.delays[topic] = max(found.delays.get(topic, 0), worst)
    for path in _ROTATIONS:
        rotations = _field(log, messages, topic, path)
        if isinstance(rotations, np.ndarray) and not rotations.any(axis=-1).all():
            found.zero_rotations.add(topic)
    if kind.endswith("Image"):
        _look_at_images(found, log, messages, topic)


def _look_at_images(found: Sample, log: Log, messages: Messages, topic: str) -> None:
    for encoding in _texts(_field(log, messages, topic, "encoding")):
        dtype = next((dtype for pattern, dtype in _PIXELS if pattern.fullmatch(encoding)), "")
        if dtype == "":
            found.unusable[topic] = (
                f"images of encoding {encoding!r}, which have no pixels to take as they are"
            )
        elif dtype is not None:
            found.image_dtypes[topic] = dtype
    for kind in _texts(_field(log, messages, topic, "format")):
        if _VIDEO.search(kind):
            found.unusable[topic] = f"compressed video ({kind}): a single message of it is no image"


def _stamps(log: Log, messages: Messages, topic: str) -> NDArray[np.int64] | None:
    """(n,) header stamps; None where messages have none, or one has none in it."""
    if log.time_source(topic, ("header",)) is None:
        return None
    for path in _STAMPS:
        values = _field(log, messages, topic, path)
        if isinstance(values, np.ndarray) and values.ndim == 1:
            return values
        if isinstance(values, Ragged) and (values.lengths > 0).all():
            return values.values[values.offsets[:-1]]
    return None


def _field(log: Log, messages: Messages, topic: str, path: str) -> Values | None:
    spec = FieldSpec(paths=(path,))
    try:
        log.column_type(topic, spec)
        return messages.take(spec, np.arange(len(messages)))
    except LogloomError:
        return None


def _texts(values: Any) -> Iterator[str]:
    if isinstance(values, Ragged):
        yield from sorted({row.tobytes().decode("utf-8", "replace") for row in values})
