"""The index of a video topic: where to start decoding for each packet.

From there the packet's picture is decoded correctly.

Here: `VideoIndex`, and `video_index`, which reads a topic once and stores its index as a sidecar.
Elsewhere: parsing single packets (h264, h265, av1, vp9), decoding (frames).

Packets are ordered by (log time, position): the order in which they were recorded. One whose picture can't be
right is refused; so *pictures = packets - refused*.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.blocks import Values
from logloom.caching import cached_property
from logloom.errors import OF_CONTENT, UsageError
from logloom.io.logs.files.sidecars import Sidecars
from logloom.io.logs.interface import MAX_TIME, FieldSpec, Log, LogSummary, Messages, TopicRequest
from logloom.io.video.bits import NO_KEYFRAME, OPEN, Look, PacketReader
from logloom.io.video.codecs import CODECS, codec_named
from logloom.values import dataclass

VERSION = 1  # incremented when the content of an index changes
WINDOW_BYTES = 64 << 20  # of messages that are read at a time, about
PACKET = np.dtype(
    [
        ("position", "<i8"),
        ("log_time", "<i8"),
        ("start", "<i4"),  # the packet with which decoding must begin; -1 if it is refused
        ("size", "<u4"),  # bytes
        ("key", "u1"),  # NO_KEY, CLOSED or OPEN
        ("reason", "u1"),  # why it is refused, an item of the index's `reasons`; 0 if it isn't
        ("feeds", "?"),  # refused only because it shows nothing: it has parameters
    ]
)
KEY = np.dtype([("packet", "<i4"), ("config", "<i4")])
MAX_REASONS = 200
MAX_CONFIG_BYTES = 16 << 20  # of the parameters of all keyframes, each change counted
NO_PICTURE = "it has no picture, only parameters of others"
TWO_STREAMS = "its picture's number is repeated: packets of two streams seem to share the topic"
UNREAD = "messages before it, which it may need, can't be read"
SILENCE = "the silence before it is longer than its numbers can show, so packets that it needs may be lost"
_OTHERS = "it is damaged"
_STAMPS = ("header.stamp", "timestamp")
_AROUND = 31  # steps between packets, whose median is the usual one


@dataclass(frozen=True)
class Config:
    """Parameters that keyframes share.

    Attributes:
        units: parameters that a decoder needs before the keyframe, as in packets.
    """

    width: int
    height: int
    units: tuple[bytes, ...]

    def missing_from(self, data: bytes) -> bytes:
        """Return the parameters that a keyframe lacks."""
        return b"" if all(unit in data for unit in self.units) else b"".join(self.units)


@dataclass(frozen=True)
class VideoIndex:
    """See the module.

    Attributes:
        codec: a name in `CODECS`; "" if no packet has one.
        packets: (N,) of dtype PACKET, in order.
        keys: (K,) of dtype KEY, those that decoding may begin with; `config` is an index of `configs`.
    """

    codec: str
    packets: NDArray[Any]
    keys: NDArray[Any]
    configs: tuple[Config, ...]
    reasons: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Return whether all its references are valid, for untrusted indices."""
        packets, keys = self.packets, self.keys
        starts, times, number = packets["start"], packets["log_time"], np.arange(len(packets))
        needed = np.append(starts[starts >= 0], np.flatnonzero(packets["key"]))
        return bool(
            (times[1:] >= times[:-1]).all()
            and (starts <= number).all()
            and ((starts >= 0) == (packets["reason"] == 0)).all()
            and (packets["reason"] < len(self.reasons)).all()
            and (keys["packet"][1:] > keys["packet"][:-1]).all()
            and ((keys["config"] >= 0) & (keys["config"] < len(self.configs))).all()
            and np.isin(needed, keys["packet"]).all()
            and (self.codec or len(needed) == 0)
        )

    def numbers_of(self, positions: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the numbers of packets at these positions in the log; -1 for none."""
        if len(self.packets) == 0:
            return np.full(len(positions), -1, np.intp)
        order = self._by_position
        ordered = self.packets["position"][order]
        at = np.minimum(np.searchsorted(ordered, positions), len(ordered) - 1)
        return np.where(ordered[at] == positions, order[at], -1)

    @cached_property
    def _by_position(self) -> NDArray[np.intp]:
        return np.argsort(self.packets["position"], kind="stable")

    def reason(self, number: int) -> str:
        """Return why packet `number` is refused; "" if it isn't."""
        return self.reasons[int(self.packets["reason"][number])]

    def config_of(self, number: int) -> Config:
        """Return the parameters of keyframe `number`."""
        at = int(np.searchsorted(self.keys["packet"], number))
        return self.configs[int(self.keys["config"][at])]

    def gop_lengths(self) -> NDArray[np.int64]:
        """(K,) packets from each keyframe up to the next."""
        ends = np.append(self.keys["packet"][1:], len(self.packets))
        lengths: NDArray[np.int64] = (ends - self.keys["packet"]).astype(np.int64)
        return lengths

    def to_data(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "codec": self.codec,
            "packets": self.packets.tobytes(),
            "keys": self.keys.tobytes(),
            "configs": [[c.width, c.height, list(c.units)] for c in self.configs],
            "reasons": list(self.reasons),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> VideoIndex | None:
        """Return None if it has another version, or isn't data of `to_data`."""
        try:
            if data["version"] != VERSION or (data["codec"] and data["codec"] not in CODECS):
                return None
            packets, keys = (np.frombuffer(data["packets"], PACKET), np.frombuffer(data["keys"], KEY))
            configs = tuple(
                Config(int(w), int(h), tuple(map(bytes, units))) for w, h, units in data["configs"]
            )
            found = cls(data["codec"], packets, keys, configs, tuple(map(str, data["reasons"])))
            return found if found.is_sound else None
        except (KeyError, TypeError, ValueError):
            return None


def video_index(log: Log, topic: str) -> VideoIndex:
    """Return the index of a topic: from a sidecar, or made by reading all its messages.

    Raises:
        LogReadError: the log is damaged, under `on_error` fail.
        UsageError: messages of the topic aren't packets.
    """
    summary = log.summary
    name = summary.topics[topic].topic if topic in summary.topics else topic
    return _kept_index(_Topic(summary.content_id, summary.uris, name, summary.pass_positions, topic, log))


@dataclass(frozen=True)
class _Topic:
    """A topic of a log as a key of caches.

    Attributes:
        topic: its name in the log.
        read_as: its name in `log`.
    """

    content_id: str
    uris: tuple[str, ...]
    topic: str
    pass_positions: tuple[int, int] | None
    read_as: str = field(compare=False)
    log: Log = field(compare=False)

    @property
    def sidecar(self) -> str:
        """Return the name of the sidecar with its index."""
        of_pass = "" if self.pass_positions is None else f"\0{self.pass_positions}"
        return f"{self.content_id}.{blake3((self.topic + of_pass).encode()).hexdigest(length=8)}.video"


@functools.lru_cache(maxsize=16)
def _kept_index(key: _Topic) -> VideoIndex:
    log, topic = key.log, key.read_as
    sidecars = sidecars_of(log)
    data = sidecars.load(key.sidecar)
    found = VideoIndex.from_data(data) if data is not None else None
    if found is None:
        found = made_index(log, topic)
        sidecars.save(key.sidecar, found.to_data())
    return found


def sidecars_of(log: Log) -> Sidecars:
    """Return where a log stores its sidecar indices; nowhere if it doesn't define that."""
    found = getattr(log, "sidecars", None)
    return found if isinstance(found, Sidecars) else Sidecars(None, {})


@dataclass
class _Building:
    """An index being made."""

    codec: str = ""
    reader: PacketReader | None = None
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    beats: list[int] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    keys: list[tuple[int, int]] = field(default_factory=list)
    configs: dict[Config, int] = field(default_factory=dict)
    config_bytes: int = 0
    horizon: int = 1

    def add(self, row: tuple[int, int, int], beat: int, words: str, data: bytes) -> None:
        """Add a packet: its position and log time, its place in time, the name of its codec, its bytes."""
        look = self._look(words, data)
        if look.key and self.reader is not None:
            look = self._keep_key(look, self.reader.config)
        if self.reader is not None:
            self.horizon = self.reader.horizon
        self.rows.append((*row, self.horizon))
        self.beats.append(beat)
        self.looks.append(look)

    def _look(self, words: str, data: bytes) -> Look:
        codec = codec_named(words)
        if codec is None:
            return self._lost(f"its format {words[:40]!r} is not a video format that can be decoded")
        if self.reader is None:
            self.codec, self.reader = codec.name, codec.reader()
        if codec.name != self.codec:
            return self._lost(f"its format is {codec.name}, that of packets before it {self.codec}")
        try:
            return self.reader.look(data)
        except ValueError as error:
            return self._lost(str(error))

    def _keep_key(self, look: Look, units: tuple[bytes, ...]) -> Look:
        """Return the keyframe; refused if its parameters exceed the limits of an index."""
        config = Config(*look.size, units)
        if config not in self.configs:
            self.config_bytes += sum(map(len, units))
            if self.config_bytes > MAX_CONFIG_BYTES:
                return self._lost("the parameters of its keyframes change too often")
        self.keys.append((len(self.looks), self.configs.setdefault(config, len(self.configs))))
        return look

    def _lost(self, reason: str) -> Look:
        if self.reader is not None:
            self.reader.lose("a packet before it, which it may need, can't be used")
        return Look(reason=reason)


def made_index(
    log: Log,
    topic: str,
    *,
    num_keys: int | None = None,
    window_bytes: int = WINDOW_BYTES,
    max_bytes: int | None = None,
) -> VideoIndex:
    """`video_index` without a sidecar.

    Args:
        num_keys: stop after this many keyframes.
        window_bytes: approximate size of the messages read at a time.
        max_bytes: stop after this many.
    """
    if topic not in log.summary.topics:
        return _finished(_Building(), [])
    building = _Building()
    breaks: list[tuple[int, int]] = [(start, -1) for start, _ in getattr(log, "ranges", ())]
    most = None if max_bytes is None else max(1, max_bytes // window_bytes)
    for start, stop in itertools.islice(windows(log.summary, topic, window_bytes), most):
        if num_keys is not None and len(building.keys) >= num_keys:
            break
        messages = log.read({topic: TopicRequest(start, stop, ("log",), 0)})[topic]
        breaks += [(refusal.log_time, refusal.position) for refusal in messages.refused]
        _add_messages(building, messages, _Fields.of(log, topic))
    return _finished(building, sorted(breaks))


def windows(summary: LogSummary, topic: str | None, num_bytes: int) -> Iterator[tuple[int, int]]:
    """Split a topic into ranges of log time, each of about this many bytes of the log's messages.

    Args:
        topic: None for the whole log.
    """
    first, last = summary.first, summary.last
    if topic is not None:
        first, last = summary.topics[topic].first, summary.topics[topic].last
    order = np.argsort(summary.chunk_times[:, 0], kind="stable")
    taken = np.cumsum(summary.chunk_bytes[order]) // num_bytes
    firsts = summary.chunk_times[order, 0][1:][np.diff(taken) > 0]
    inner = np.unique(firsts[(firsts > first) & (firsts <= last)]).tolist()
    bounds = [min(first, summary.first), *inner, min(MAX_TIME, max(last, summary.last) + 1)]
    yield from itertools.pairwise(bounds)


@dataclass(frozen=True)
class _Fields:
    """The fields of packets: the name of the codec, the bytes, and what may number or time them."""

    words: str
    beat: str  # "" without

    @classmethod
    def of(cls, log: Log, topic: str) -> _Fields:
        """
        Find the fields in the messages of a topic.

        Raises:
            UsageError: messages of the topic aren't packets.
        """
        has = functools.partial(_has, log, topic)
        words = next((name for name in ("format", "encoding") if has(name)), None)
        if words is None or not has("data"):
            raise UsageError(
                f"topic {topic}: its messages lack the fields of packets: format or encoding, and data"
            )
        return cls(words, next((path for path in ("pts", *_STAMPS) if has(path)), ""))


def _has(log: Log, topic: str, path: str) -> bool:
    try:
        log.column_type(topic, FieldSpec((path,)))
    except OF_CONTENT:
        return False
    return True


def _add_messages(building: _Building, messages: Messages, fields: _Fields) -> None:
    rows = np.arange(len(messages))
    if not len(rows):
        return
    data, words = (messages.take(FieldSpec((path,)), rows) for path in ("data", fields.words))
    beats: Values = messages.take(FieldSpec((fields.beat,)), rows) if fields.beat else messages.log_time
    if not isinstance(beats, np.ndarray) or beats.ndim != 1 or beats.dtype.kind not in "iu":
        beats = messages.log_time
    for row in np.lexsort((messages.position, messages.log_time)).tolist():
        packet = packet_bytes(data, row)
        place = int(messages.position[row]), int(messages.log_time[row]), len(packet)
        building.add(place, int(beats[row]), text_of(words, row), packet)


def packet_bytes(data: Values, row: int) -> bytes:
    """Return the bytes of message `row`."""
    return bytes(np.ascontiguousarray(data[row]).data)


def text_of(words: Values, row: int) -> str:
    return bytes(np.asarray(words[row]).tobytes()).decode("utf-8", "replace")


def _finished(building: _Building, breaks: Sequence[tuple[int, int]]) -> VideoIndex:
    count = len(building.looks)
    packets = np.zeros(count, PACKET)
    reasons = [look.reason or ("" if look.pictures else NO_PICTURE) for look in building.looks]
    if count:
        packets["position"], packets["log_time"], packets["size"], horizon = np.array(
            building.rows, np.int64
        ).T
        where = [(int(p["log_time"]), int(p["position"])) for p in packets[["log_time", "position"]]]
        numbers = [bisect.bisect_left(where, place) for place in breaks]
        _break_at(reasons, building.looks, [n for n in numbers if n < count], UNREAD)
        _break_at(reasons, building.looks, _silences(packets, building.beats, horizon), SILENCE)
    _refuse_doubtful(reasons, building.looks)
    packets["start"] = _starts(reasons, building.looks)
    texts: dict[str, int] = {"": 0, _OTHERS: 1}
    for number, reason in enumerate(reasons):
        full = len(texts) >= MAX_REASONS
        packets["reason"][number] = texts.get(reason, 1) if full else texts.setdefault(reason, len(texts))
    packets["key"] = [look.key for look in building.looks]
    packets["feeds"] = [reason == NO_PICTURE for reason in reasons]
    keys = np.array([key for key in building.keys if not reasons[key[0]]], KEY)
    return VideoIndex(building.codec, packets, keys, tuple(building.configs), tuple(texts))


def _silences(packets: NDArray[Any], beats: Sequence[int], horizon: NDArray[np.int64]) -> list[int]:
    """Find packets before which so many may be lost that numbers don't show it.

    Without numbers, one missing step of their pts, stamps or log times counts.
    """
    if len(packets) < 3:
        return []
    numbered = horizon > 1
    spoken = np.array(beats, np.float64)
    log = packets["log_time"].astype(np.float64)
    steps = np.where(numbered[1:], np.diff(log), np.diff(spoken))
    wide = np.pad(steps, _AROUND // 2, mode="symmetric")
    usual = np.median(np.lib.stride_tricks.sliding_window_view(wide, _AROUND), axis=1)
    is_silent = (usual > 0) & (steps > (horizon[1:] + 0.75) * usual)
    return (np.flatnonzero(is_silent) + 1).tolist()


def _break_at(reasons: list[str], looks: Sequence[Look], numbers: Sequence[int], why: str) -> None:
    """Refuse packets that may need others from before each of these: up to a keyframe, and those that lead
    it.
    """
    breaks, is_broken, is_behind = set(numbers), False, False
    for i, look in enumerate(looks):
        is_broken |= i in breaks
        if look.key:  # its own picture needs nothing
            is_broken, is_behind = False, is_broken and look.key == OPEN
        elif is_broken or (is_behind and look.leading):
            reasons[i] = reasons[i] or why


def _refuse_doubtful(reasons: list[str], looks: Sequence[Look]) -> None:
    """Refuse all pictures of a GOP with a repeated number, as they may be of either stream.

    Also refuse those that lead the next keyframe, which need them.
    """
    gop: list[int] = []
    was_doubtful = False
    for i, look in enumerate([*looks, Look(key=OPEN)]):
        if not look.key:
            gop.append(i)
            continue
        is_doubtful = any(looks[j].repeats for j in gop)
        for j in gop:
            if looks[j].pictures and (is_doubtful or (was_doubtful and looks[j].leading)):
                reasons[j] = TWO_STREAMS
        gop, was_doubtful = [], is_doubtful


def _starts(reasons: list[str], looks: Sequence[Look]) -> list[int]:
    """Find by packet where decoding must begin; pictures leading an open keyframe need the previous one."""
    starts = []
    before = key = -1
    for i, look in enumerate(looks):
        if look.key and not reasons[i]:
            before, key = (key if look.key == OPEN else i), i
        start = before if look.leading else key
        if start < 0:
            reasons[i] = reasons[i] or NO_KEYFRAME
        starts.append(-1 if reasons[i] else start)
    return starts
