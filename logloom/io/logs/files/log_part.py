"""One file of a log: its index from any source, and its stretches.

Stretches are read ahead and checked.

Here: `LogPart`, `open_part`, and `place_of`, where people and other tools find a message.
Elsewhere: the kinds of file (logloom.io.logs), several files as one log (container_log).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from logloom.errors import LogReadError, TruncatedLogError, UsageError
from logloom.io.logs.files.collector import Origin
from logloom.io.logs.files.compression import allowance
from logloom.io.logs.files.container import CHUNKS, Budget, Chunk, Container, FileIndex, Int64s, way_on
from logloom.io.logs.files.lazy_attributes import lazy
from logloom.io.logs.files.message_compression import inflated
from logloom.io.logs.files.ranges import LogFile, Scratch, content_id, fetches, read_ahead
from logloom.io.logs.files.sidecars import Sidecars
from logloom.io.logs.interface import MessagePlace, OpenOptions, Refusal
from logloom.io.logs.recording_times import HOUR, RecordedTime
from logloom.io.storage.step_times import step
from logloom.values import dataclass

LISTED = 5  # damaged places that an error names
ACTIVE = ".active"  # suffix of a file that ROS 1's recorder hasn't closed


@dataclass(frozen=True)
class LogPart:
    """One file of a log.

    Attributes:
        base: the chunk number, in the log, of the file's first chunk.
        max_chunk_bytes, hash: see `OpenOptions`.
    """

    container: Container
    index: FileIndex
    base: int = 0
    max_chunk_bytes: int = 1 << 30
    hash: Literal["ends", "full"] = "ends"

    @property
    def uri(self) -> str:
        return self.container.file.uri

    @lazy
    def content_id(self) -> str:
        return content_id(self.container.file, hash=self.hash)

    @property
    def unfinished(self) -> str:
        """Why the file counts as not closed by its recorder; "" if it was closed."""
        if self.uri.endswith(ACTIVE):
            return f"its name ends in {ACTIVE}"
        return str(getattr(self.container, "unfinished", ""))

    @lazy
    def first(self) -> int:
        """Its first log time; 0 without messages."""
        times = self.index.stretches["first"][self.index.with_messages]
        return int(times.min()) if len(times) else 0

    @property
    def last(self) -> int:
        times = self.index.stretches["last"][self.index.with_messages]
        return int(times.max()) if len(times) else 0

    @lazy
    def channels(self) -> dict[str, list[int]]:
        """Channel ids by topic."""
        found: dict[str, list[int]] = {}
        for channel in sorted(self.index.channels):
            found.setdefault(self.index.channels[channel].topic, []).append(channel)
        return found

    def shares(self, topic: str) -> NDArray[Any]:
        """Return the rows of the index for a topic."""
        none = np.empty(0, np.intp)
        rows = [self._share_rows.get(channel, none) for channel in self.channels.get(topic, [])]
        wanted: NDArray[Any] = self.index.shares[np.sort(np.concatenate([none, *rows]))]
        return wanted

    @lazy
    def _share_rows(self) -> dict[int, NDArray[np.intp]]:
        """The rows of the index by channel: looked up for each of thousands of topics."""
        return by_value(self.index.shares["channel"])

    def stretches_with(self, topic: str, first: int, last: int) -> Int64s:
        """Select the stretches that may contain messages of a topic with first <= log time <= last."""
        shares = self.shares(topic)
        return np.unique(shares["stretch"][(shares["first"] <= last) & (shares["last"] >= first)])

    def rows_of(self, chunk: Chunk, topic: str) -> NDArray[np.bool_]:
        """Select the messages of a topic in a chunk."""
        channels = self.channels.get(topic, [])
        if len(channels) == 1:
            mine: NDArray[np.bool_] = chunk.channel == channels[0]
            return mine
        return np.isin(chunk.channel, channels)

    def rows_by_topic(self, chunk: Chunk) -> dict[str, NDArray[np.intp]]:
        """Group the messages of a chunk by topic, ascending; topics without any are left out."""
        by_channel = by_value(chunk.channel)
        found: dict[str, list[NDArray[np.intp]]] = {}
        for channel, rows in by_channel.items():
            if channel in self.index.channels:
                found.setdefault(self.index.channels[channel].topic, []).append(rows)
        return {
            topic: rows[0] if len(rows) == 1 else np.sort(np.concatenate(rows))
            for topic, rows in found.items()
        }

    def origin(self, stretch: int) -> Origin:
        row = self.index.stretches[stretch]
        position = int(row["position"]) + (self.base << 32)
        unit = getattr(self.container, "unit", "byte")
        return Origin(self.uri, int(row["offset"]), position, bool(row["loose"]), unit)

    def chunks(self, stretches: Int64s) -> Iterator[tuple[int, Chunk]]:
        """Read stretches by ascending number; damage is reported in the chunks' problems.

        Raises:
            LogReadError: they are too large together.
        """
        budget = Budget(self.container.file)
        rows = self.index.stretches
        identity = self.container.file.identity
        keys = [(identity, self.container.settings, int(rows["offset"][i])) for i in stretches.tolist()]
        found = [CHUNKS.get(key) for key in keys]
        missing = stretches[[chunk is None for chunk in found]]
        starts = rows["offset"][missing]
        scratch = Scratch()
        jobs = fetches(self.container.file, starts, starts + rows["length"][missing], scratch)

        def decode(pair: tuple[int, Callable[[], memoryview]]) -> Chunk:
            return self._decode(*pair, scratch)

        decoded = read_ahead(decode, zip(missing.tolist(), jobs, strict=True))
        for number, key, chunk in zip(stretches.tolist(), keys, found, strict=True):
            if chunk is None:
                chunk = next(decoded)
                CHUNKS.put(key, chunk)
            budget.take(chunk.buffer.nbytes)
            yield number, chunk

    def _decode(self, number: int, fetch: Callable[[], memoryview], scratch: Scratch) -> Chunk:
        with step("read a chunk", int(self.index.stretches["length"][number])):
            data = fetch()
        with step("decode a chunk", len(data)):
            chunk = self.container.decode(self.index.stretches[number], data)
            if not chunk.shares_memory(data):
                scratch.take_back(data)
            # ROS 2's recorder can compress messages one by one, which nothing in the file declares.
            channel = self.index.channels.get(int(chunk.channel[0])) if len(chunk) else None
            if channel is not None and channel.encoding == "cdr":
                # Relative to the stored bytes: chunks of compressed messages may be compressed once more.
                chunk = inflated(chunk, min(self.max_chunk_bytes, allowance(len(data))))
            return chunk if chunk.problems else replace(chunk, problems=self._contradictions(number, chunk))

    def _contradictions(self, number: int, chunk: Chunk) -> tuple[str, ...]:
        """Find contradictions between a stretch and the index; rows selected by it could be incomplete."""
        for channel, count in self.claims(number).items():
            found = int(np.count_nonzero(chunk.channel == channel))
            if found != count:
                return (f"it has {found} messages where the index has {count}",)
        if len(chunk) != sum(self.claims(number).values()):
            return ("it has messages that are missing in the index",)
        row = self.index.stretches[number]
        if len(chunk) and not row["first"] <= chunk.log_time.min() <= chunk.log_time.max() <= row["last"]:
            return ("it has messages outside the times in the index",)
        return ()

    @lazy
    def _share_starts(self) -> Int64s:
        numbers = np.arange(len(self.index.stretches) + 1)
        return np.searchsorted(self.index.shares["stretch"], numbers).astype(np.int64)

    def claims(self, number: int) -> dict[int, int]:
        """Return how many messages of each channel a stretch has according to the index."""
        mine = self.index.shares[self._share_starts[number] : self._share_starts[number + 1]]
        return dict(zip(mine["channel"].tolist(), mine["count"].tolist(), strict=True))

    def num_lost(self, number: int, chunk: Chunk, topic: str) -> int:
        """Return how many messages of a topic the index has that a damaged stretch lacks."""
        mine = self.channels.get(topic, [])
        claimed = sum(count for channel, count in self.claims(number).items() if channel in mine)
        return max(0, claimed - int(self.rows_of(chunk, topic).sum()))

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the damage that a scan found."""
        base = self.base << 32
        return tuple(
            Refusal(
                self.uri,
                lost.offset,
                lost.topic,
                lost.position + base,
                lost.log_time,
                f"{lost.reason} ({lost.length} bytes)" if lost.length else lost.reason,
                lost.num_messages,
                lost.unit,
            )
            for lost in self.index.lost
        )

    @property
    def has_entries(self) -> bool:
        """Whether the file has index records of single messages."""
        return not self.index.is_scanned and hasattr(self.container, "entries")

    def entries(self, number: int) -> tuple[Int64s, Int64s, Int64s]:
        """Return the channel, log time and position of each message of a stretch, in file order.

        They come from the file's own index records if it has any, else from the messages.
        """
        row = self.index.stretches[number]
        base = int(row["position"]) + (self.base << 32)
        look = None if self.index.is_scanned else getattr(self.container, "entries", None)
        if look is not None:
            try:
                found = look(row)
            except LogReadError:  # a message index may be damaged where the messages aren't
                found = {}
            if sum(len(times) for times, _ in found.values()) == sum(self.claims(number).values()):
                none = np.empty(0, np.int64)
                channel = np.repeat(
                    np.array(list(found), np.int64), [len(times) for times, _ in found.values()]
                )
                time = np.concatenate([none, *(times for times, _ in found.values())])
                offset = np.concatenate([none, *(offsets for _, offsets in found.values())])
                order = np.argsort(offset, kind="stable")
                return channel[order], time[order], base + offset[order]
        ((_, chunk),) = self.chunks(np.array([number]))
        return chunk.channel, chunk.log_time, base + chunk.offset

    def extent(self, topic: str, recorded: RecordedTime | None = None) -> tuple[int, int] | None:
        """Return the first and last log time of a topic; None without messages.

        The index of a file has times by stretch only; in stretches where a topic may begin or end, the file's
        own index records are read.

        Args:
            recorded: recording times, to ignore strays; None if the topic has none.
        """
        shares = self.shares(topic)
        if recorded is not None:
            rows = self.index.stretches[shares["stretch"]]
            # A stretch of up to an hour is within one run.
            narrow = rows["last"] - rows["first"] <= HOUR
            known = [self._without_strays(i, topic, recorded) for i in np.unique(shares["stretch"][~narrow])]
            shares = shares[narrow & ~recorded.are_strays(rows["first"])]
            spans = [span for span in (*known, self._extent_of(shares, topic)) if span is not None]
            return (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None
        return self._extent_of(shares, topic)

    def _without_strays(self, number: int, topic: str, recorded: RecordedTime) -> tuple[int, int] | None:
        channel, time, _ = self.entries(number)
        time = time[np.isin(channel, self.channels[topic]) & ~recorded.are_strays(time)]
        return (int(time.min()), int(time.max())) if len(time) else None

    def _extent_of(self, shares: NDArray[Any], topic: str) -> tuple[int, int] | None:
        if len(shares) == 0:
            return None
        if self.index.is_scanned:
            return int(shares["first"].min()), int(shares["last"].max())
        numbers = np.unique(shares["stretch"])
        firsts, lasts = (self.index.stretches[name][numbers] for name in ("first", "last"))
        begin, end = int(lasts.max()), int(firsts.min())
        for i in np.argsort(firsts, kind="stable").tolist():
            if firsts[i] > begin:
                break
            begin = min(begin, self._extent_in(int(numbers[i]), topic)[0])
        for i in np.argsort(-lasts, kind="stable").tolist():
            if lasts[i] < end:
                break
            end = max(end, self._extent_in(int(numbers[i]), topic)[1])
        return begin, end

    def _extent_in(self, number: int, topic: str) -> tuple[int, int]:
        row = self.index.stretches[number]
        if number not in self._known_times:
            look = getattr(self.container, "entries", None)
            try:
                found = look(row) if look is not None else {}
            except LogReadError:
                found = {}  # reading the stretch reports this; here its own times are good enough
            self._known_times[number] = {
                channel: (int(time.min()), int(time.max()))
                for channel, (time, _) in found.items()
                if len(time)
            }
        by_channel = self._known_times[number]
        times = [by_channel[channel] for channel in self.channels[topic] if channel in by_channel]
        if not times:
            return int(row["first"]), int(row["last"])
        # Never beyond the stretch's own times: partitions are planned by these.
        first = max(min(span[0] for span in times), int(row["first"]))
        return first, min(max(span[1] for span in times), int(row["last"]))

    @lazy
    def _known_times(self) -> dict[int, Mapping[int, tuple[int, int]]]:
        return {}


def by_value(values: Int64s) -> dict[int, NDArray[np.intp]]:
    """Group the indices of equal values, ascending."""
    if len(values) and (values == values[0]).all():
        return {int(values[0]): np.arange(len(values))}
    order = np.argsort(values, kind="stable")
    found, starts = np.unique(values[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, starts[1:]), strict=True)) if len(values) else {}


def open_part(container: Container, options: OpenOptions) -> LogPart:
    """Find the index of a file: its own, a sidecar, or one made by a scan.

    Raises:
        LogReadError: the file is empty, of another kind, or (under `on_error` fail) damaged.
    """
    file = container.file
    if file.size == 0:
        raise LogReadError(f"{file.uri}: empty file (the writer probably crashed); exclude it")
    try:
        index = own_index(container)
    except LogReadError:
        if options.on_error != "salvage":
            raise
        index = None
    if index is not None:
        return LogPart(container, index, max_chunk_bytes=options.max_chunk_bytes, hash=options.hash)
    sidecars = Sidecars(options.sidecars, options.storage_options)
    name = content_id(file, hash=options.hash)
    index = sidecars.load_index(name, options.max_chunk_bytes)
    if index is None:
        index = container.scan()
        sidecars.save_index(name, options.max_chunk_bytes, index)
    _check_size(file, index)
    part = LogPart(container, index, max_chunk_bytes=options.max_chunk_bytes, hash=options.hash)
    if options.on_error != "salvage" and index.lost:
        raise damage_error(part.refusals(), container.remedy, any(lost.torn for lost in index.lost))
    return part


def own_index(container: Container) -> FileIndex | None:
    """Return the file's own index; None if it has none, or an incomplete one.

    Raises:
        LogReadError: it is damaged, or declares too large sizes.
    """
    index = container.read_index()
    if index is not None:
        _check_size(container.file, index)
    return index


def _check_size(file: LogFile, index: FileIndex) -> None:
    """Raise a LogReadError if stretches declare too large sizes together."""
    Budget(file).take(sum(index.stretches["size"].tolist()))


def damage_error(refusals: Sequence[Refusal], remedy: str, torn: bool = False) -> LogReadError:
    """List damage in an error: the first few places, each with its topics, and the number of others."""
    topics: dict[tuple[str, str], list[str]] = {}  # by file and words
    for r in refusals:
        topics.setdefault((r.uri, f"{r.reason}, {_place(r)}"), []).extend([r.topic] if r.topic else [])
    lines = []
    for uri, own in itertools.groupby(itertools.islice(topics.items(), LISTED), lambda item: item[0][0]):
        places = [f"{', '.join(names)}: {words}" if names else words for (_, words), names in own]
        lines.append(f"{uri}: {', and '.join(places)}")
    if len(topics) > LISTED:
        lines.append(f"and {len(topics) - LISTED} more")
    kind = TruncatedLogError if torn else LogReadError
    return kind(f"{'; '.join(lines)}; {way_on(remedy)}")


def _place(refusal: Refusal) -> str:
    inside = refusal.position & 0xFFFFFFFF
    in_chunk = refusal.unit == "byte" and inside and inside != refusal.offset & 0xFFFFFFFF
    return refusal.place + (f" + {inside} in the uncompressed chunk" if in_chunk else "")


def place_of(parts: Sequence[LogPart], topic: str, position: int) -> MessagePlace:
    """Return the place of a topic's message in the files of a log.

    Raises:
        UsageError: no message of the topic has the position.
        LogReadError: a chunk can't be read.
    """
    at = max(i for i, part in enumerate(parts) if part.base << 32 <= position)
    part = parts[at]
    shares = part.shares(topic)
    starts = part.index.stretches["position"][shares["stretch"]] + (part.base << 32)
    if (starts <= position).any():
        start = int(starts[starts <= position].max())
        number = int(shares["stretch"][starts == start][0])
        ((_, chunk),) = part.chunks(np.array([number], np.int64))
        mine = chunk.offset[part.rows_of(chunk, topic)] + start
        if position in mine:
            earlier = [one.shares(topic) for one in parts[:at]]
            before = sum(int(one["count"].sum()) for one in (*earlier, shares[starts < start]))
            origin = part.origin(number)
            offset = origin.offset_of(position)
            inside = None if origin.is_loose or origin.unit != "byte" else position - start
            return MessagePlace(
                origin.uri, origin.unit, offset, inside, before + int((mine < position).sum())
            )
    raise UsageError(f"no message of {topic} at position {position}")
