"""A log made of container files: read the stretches that requests need.

Here: `ContainerLog`, the `Log` of every kind that implements `Container`.
Elsewhere: opening (logloom.io.logs.opening), the kinds (logloom.io.logs), one file (log_part), message times
and refusals (logloom.io.logs.message_times), decoding (logloom.io.logs.messages).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom import parts
from logloom.blocks import Values
from logloom.errors import LogReadError, UnknownEncodingError, UsageError
from logloom.io.logs.files.collector import Gathering, is_sparse
from logloom.io.logs.files.container import Chunk, Container
from logloom.io.logs.files.lazy_attributes import lazy
from logloom.io.logs.files.log_part import LogPart, damage_error, open_part, place_of
from logloom.io.logs.files.ranges import LogFile, content_id
from logloom.io.logs.files.sidecars import BOUNDS, Sidecars
from logloom.io.logs.interface import (
    MAX_TIME,
    MIN_TIME,
    FieldSpec,
    Log,
    LogSummary,
    MessagePlace,
    Messages,
    MessageTime,
    OpenOptions,
    Refusal,
    TopicInfo,
    TopicRequest,
)
from logloom.io.logs.message_times import (
    Stamped,
    by_log_time,
    log_range,
    misfit_words,
    stamp,
    time_source,
    within,
    without_broken_pictures,
)
from logloom.io.logs.messages.partial import without_nan
from logloom.io.logs.messages.picture_structure import has_pictures, picture_problems
from logloom.io.logs.messages.raw_messages import Decoder, RawMessages
from logloom.io.logs.recording_times import HOUR, Entries, MessageTimes, RecordedTime, is_static, recorded
from logloom.schema import ColumnType
from logloom.text import counted
from logloom.values import dataclass

_RUN, _RUNS = 4, 8  # stretches that are sampled for intervals: neighbours, and how many such runs
_READ_FOR_TIMES = 16 << 20  # bytes of messages to read for their times, where a file has no index of them
_FEW_LOOKS = 16  # stretches to examine again whenever the log is opened

ContainerType = Callable[[LogFile, OpenOptions], Container]


@dataclass
class DecodedMessages:
    """See `Messages`; payloads aren't copied until taken."""

    topic: str
    time: NDArray[np.int64]
    log_time: NDArray[np.int64]
    position: NDArray[np.int64]
    refused: Sequence[Refusal]
    raw: RawMessages
    decoder: Decoder

    def __len__(self) -> int:
        return len(self.time)

    def take(self, spec: FieldSpec, rows: NDArray[np.intp]) -> Values:
        is_all = len(rows) == len(self) and bool((np.asarray(rows) == np.arange(len(self))).all())
        return self.decoder.take(self.raw if is_all else self.raw.take(rows), spec)

    def has_value(self, spec: FieldSpec) -> NDArray[np.bool_] | None:
        return _has_value(self.decoder, self.raw, spec)


def _has_value(decoder: Decoder, raw: RawMessages, spec: FieldSpec) -> NDArray[np.bool_] | None:
    """See `Messages.has_value`."""
    held = decoder.has_value(raw, spec)
    return without_nan(held, len(raw), spec, lambda rows: decoder.take(raw.take(rows), spec))


@dataclass
class Wanted:
    """A request being answered, and the messages found so far.

    Attributes:
        first, last: range of the log times of its messages.
        damage: broken stretches with messages of the topic.
        has_pictures: whether its messages are compressed pictures.
        part: the positions, first and last, of messages that are part of the log; None for all.
    """

    request: TopicRequest
    source: MessageTime
    decoder: Decoder
    first: int
    last: int
    found: Gathering
    damage: list[Refusal]
    has_pictures: bool
    part: tuple[int, int] | None = None

    def stamped(
        self, raw: RawMessages, max_delay: int | None, asked: Callable[[Stamped], NDArray[np.bool_]]
    ) -> Stamped:
        """Return message times and refusals; pictures that were asked for are checked."""
        found = stamp(raw, self.decoder, self.source, max_delay)
        if not self.has_pictures:
            return found
        return without_broken_pictures(found, raw, self.decoder, asked(found))


class ContainerLog:
    """See `Log`. Keeps no file open; pickles as its arguments; thread-safe."""

    def __init__(self, uris: Sequence[str], options: OpenOptions, container: ContainerType):
        """
        Args:
            uris: the files of one log, in any order.
            options: how logs are read: what to do about damage, limits, sidecar indices.
            container: makes the container of a file.
        """
        self._uris = tuple(uris)
        self._options = options
        self._container = container

    def __reduce__(self) -> tuple[Any, ...]:
        return (ContainerLog, (self._uris, self._options, self._container))

    @lazy
    def summary(self) -> LogSummary:
        parts = self.parts
        files = [part.container.file for part in parts]
        stretches = [part.index.stretches[part.index.with_messages] for part in parts]
        rows = np.concatenate(stretches)
        facts = self._recorded
        times, sizes = self._sizes(rows, facts)
        return LogSummary(
            tuple(part.uri for part in parts),
            sum(file.stored_size for file in files),
            parts[0].content_id if len(parts) == 1 else content_id(*files, hash=self._options.hash),
            {topic: self._describe(topic) for topic in sorted(self._infos)},
            facts.first,
            facts.last,
            times,
            sizes,
            tuple(refusal for part in parts for refusal in part.refusals()),
            {part.uri: part.unfinished for part in parts if part.unfinished},
            known_times=facts,
            pass_positions=self._pass,
        )

    @lazy
    def _recorded(self) -> RecordedTime:
        """Recording times, as far as the recipe uses them."""
        facts = self._whole
        if self._pass is not None:
            entries = list(map(self._entries, range(len(self._message_times.first))))
            topic, time = (np.concatenate([each[i] for each in entries]) for i in (0, 1))
            names = self._message_times.topics
            facts = recorded(MessageTimes.of({name: time[topic == i] for i, name in enumerate(names)}))
        return facts.within(*self._options.extent)

    @lazy
    def _pass(self) -> tuple[int, int] | None:
        """The first and last position of the selected part of a log whose clock was set back."""
        places = [place.position for place in self._whole.set_backs]
        passes = list(zip([MIN_TIME, *places], [*(place - 1 for place in places), MAX_TIME], strict=True))
        number = {"first": 1, "last": len(passes), "split": self._options.pass_number}
        chosen = number.get(self._options.set_back, 0)
        if chosen > len(passes):
            what = counted(len(passes), "pass", "passes")
            raise LogReadError(f"{self._uris[0]}: has {what}, and no pass {chosen}; build again")
        return passes[chosen - 1] if places and chosen else None

    def _entries(self, number: int) -> Entries:
        """Return the messages of a stretch that are part of the log."""
        found = self._message_times.entries(number)
        if self._pass is None:
            return found
        mine = (found.position >= self._pass[0]) & (found.position <= self._pass[1])
        return Entries(found.topic[mine], found.time[mine], found.position[mine])

    @lazy
    def _stretches_of_pass(self) -> set[tuple[str, int]]:
        """The URIs and numbers of stretches of a selected pass; None for a whole log."""
        places = [(part.uri, i) for part in self.parts for i in part.index.with_messages.tolist()]
        found = self._message_times.entries
        return {
            place
            for number, place in enumerate(places)
            if len(self._entries(number).time) or not len(found(number).time)
        }

    @lazy
    def _whole(self) -> RecordedTime:
        """Recording times of the whole log; stored beside its index if many stretches had to be examined."""
        times = self._message_times
        if self.sidecars.uri is None or len(times.suspicious) <= _FEW_LOOKS:
            return recorded(times)
        name = content_id(*(part.container.file for part in self.parts), hash=self._options.hash)
        facts = self.sidecars.load_recorded(name)
        if facts is None:
            facts = recorded(times)
            self.sidecars.save_recorded(name, facts)
        return facts

    @lazy
    def _message_times(self) -> MessageTimes:
        """Message times by stretch, according to the index."""
        topics = sorted(self._infos)
        numbers = {topic: i for i, topic in enumerate(topics)}
        firsts, lasts, files, shares = [], [], [], []
        places: list[tuple[LogPart, int]] = []
        for at, part in enumerate(self.parts):
            index, mine = part.index, part.index.with_messages
            new = np.zeros(len(index.stretches), np.int64)
            new[mine] = np.arange(len(mine)) + len(places)
            of = {i: numbers[channel.topic] for i, channel in index.channels.items()}
            found, inverse = np.unique(index.shares["channel"], return_inverse=True)
            topic = np.array([of[i] for i in found.tolist()], np.int64)[inverse]
            order = [index.shares[name] for name in ("count", "begin", "back")]
            shares.append(np.stack([new[index.shares["stretch"]], topic, *order]))
            firsts.append(index.stretches["first"][mine])
            lasts.append(index.stretches["last"][mine])
            files.append(np.full(len(mine), at))
            places += [(part, i) for i in mine.tolist()]
        of_shares = np.concatenate([np.empty((5, 0), np.int64), *shares], axis=1)
        stretch, topics_of, count, begin, back = of_shares

        def look(number: int) -> Entries:
            part, own = places[number]
            channel, time, position = part.entries(own)
            of = {i: numbers[found.topic] for i, found in part.index.channels.items()}
            is_known = np.isin(channel, list(of))
            topic = np.array([of[i] for i in channel[is_known].tolist()], np.int64)
            return Entries(topic, time[is_known], position[is_known])

        first, last, file = (
            np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)
            for parts in (firsts, lasts, files)
        )
        return MessageTimes(topics, first, last, file, stretch, topics_of, count, begin, back, look)

    def _sizes(self, rows: NDArray[Any], facts: RecordedTime) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(C, 2) first and last times of stretches, and (C,) their bytes; of a stretch with several runs,
        those of each run of the recording.
        """
        times = np.stack([rows["first"], rows["last"]], axis=1).astype(np.int64)
        sizes = rows["size"].astype(np.int64)
        wide = (times[:, 1] - times[:, 0] > HOUR) | (self._pass is not None)
        found = [times[~wide], np.empty((0, 2), np.int64)]
        shares = [sizes[~wide]]
        for number in np.flatnonzero(wide).tolist():
            count = len(self._message_times.entries(number).time)
            inside = np.sort(self._entries(number).time)
            for run in facts.read:
                lo = int(np.searchsorted(inside, run.first))
                hi = int(np.searchsorted(inside, run.last, "right"))
                if lo < hi:
                    found.append(inside[[[lo, hi - 1]]])
                    shares.append(sizes[[number]] * (hi - lo) // count)
        return np.concatenate(found), np.concatenate(shares)

    def column_type(self, topic: str, spec: FieldSpec) -> ColumnType:
        """See `Log.column_type`."""
        return self.decoder(topic).column_type(spec)

    def time_source(self, topic: str, sources: Sequence[MessageTime]) -> MessageTime | None:
        """See `Log.time_source`."""
        return time_source(self.decoder(topic), self._infos[topic][0], sources)

    def read(self, requests: Mapping[str, TopicRequest]) -> dict[str, Messages]:
        """See `Log.read`."""
        wanted = {
            topic: self._wanted(topic, requests[topic]) for topic in sorted(requests) if topic in self._infos
        }
        self._index_times({topic: w for topic, w in wanted.items() if w.request.max_delay is None})
        for part in self.parts:
            needed = {topic: self._needed(part, topic, want) for topic, want in wanted.items()}
            takers: dict[int, dict[str, Wanted]] = {}
            for topic, stretches in needed.items():
                for number in stretches.tolist():
                    takers.setdefault(number, {})[topic] = wanted[topic]
            for number, chunk in part.chunks(np.array(sorted(takers), np.int64)):
                self._take(part, number, chunk, takers[number])
        facts = self._recorded
        for want in wanted.values():
            want.part = self._pass
        selected = {topic: _select(want, facts) for topic, want in wanted.items()}
        if self._options.on_error != "salvage":
            self._raise_damage([r for want in wanted.values() for r in want.damage])
        if self._options.on_error == "fail":
            self._raise_refused([r for messages in selected.values() for r in messages.refused])
        return dict(selected)

    def sampled_times(self) -> Iterator[dict[str, NDArray[np.int64]]]:
        """Yield log times by topic, without strays, of some runs of neighbouring stretches.

        They come from index records; of files without any, only small stretches are read.
        """
        times, facts = self._message_times, self._recorded
        rows = np.concatenate([part.index.stretches[part.index.with_messages] for part in self.parts])
        has_index = np.concatenate([np.full(len(p.index.with_messages), p.has_entries) for p in self.parts])
        free, starts = _READ_FOR_TIMES, np.arange(0, len(rows), _RUN)
        if len(starts) > _RUNS:
            starts = starts[np.unique(np.linspace(0, len(starts) - 1, _RUNS).astype(np.intp))]
        for start in starts.tolist():
            found: list[Entries] = []
            for number in range(start, min(start + _RUN, len(rows))):
                free -= 0 if has_index[number] else int(rows["size"][number])
                if free >= 0:
                    found.append(self._entries(number))
            topic, time = (np.concatenate([np.empty(0, np.int64), *(e[i] for e in found)]) for i in (0, 1))
            keep = ~facts.are_strays(time)
            topic, time = topic[keep].astype(np.int64), time[keep]
            yield {times.topics[i]: time[topic == i] for i in np.unique(topic).tolist()}

    def places(self, topic: str, positions: NDArray[np.int64]) -> list[MessagePlace]:
        """See `Log.places`."""
        return [place_of(self.parts, topic, position) for position in positions.tolist()]

    def last_message(self, topic: str, spec: FieldSpec | None = None) -> Messages:
        """See `Log.last_message`."""
        decoder = self.decoder(topic)
        source = decoder.time_source(("header", "log")) or "log"
        are_pictures = has_pictures(self._infos[topic][0], decoder)
        damage: list[Refusal] = []
        refused: list[Refusal] = []
        for part in reversed(self.parts):
            for number in np.unique(part.shares(topic)["stretch"])[::-1].tolist():
                found = Gathering(topic)
                ((_, chunk),) = part.chunks(np.array([number]))
                rows = np.flatnonzero(part.rows_of(chunk, topic))
                found.add(chunk, rows, part.origin(number), is_sparse=True)
                raw = found.raw()
                damage += _damage_of(part, number, chunk, topic)
                last, reasons = _last_usable(raw, decoder, are_pictures, spec)
                refused += _refusals(
                    found, raw, np.isin(np.arange(len(raw)), list(reasons)), reasons.__getitem__
                )
                if self._options.on_error != "salvage":
                    self._raise_damage(damage)
                if self._options.on_error == "fail":
                    self._raise_refused(refused)
                if len(last):
                    raw = raw.take(last)
                    time = decoder.header_time(raw) if source == "header" else raw.log_time
                    return DecodedMessages(
                        topic, time, raw.log_time, raw.position, [*damage, *refused], raw, decoder
                    )
        raw = Gathering(topic).raw()
        return DecodedMessages(
            topic, raw.log_time, raw.log_time, raw.position, [*damage, *refused], raw, decoder
        )

    @property
    def sidecars(self) -> Sidecars:
        """The store of indices made by reading the whole log."""
        return Sidecars(self._options.sidecars, self._options.storage_options)

    @lazy
    def parts(self) -> list[LogPart]:
        """Its files by (first log time, name), with their indices and their chunks numbered through."""
        files = [LogFile(uri, self._options.storage_options) for uri in self._uris]
        parts = [open_part(self._container(file, self._options), self._options) for file in files]
        parts.sort(key=lambda part: (part.first, part.uri))
        base = 0
        for i, part in enumerate(parts):
            parts[i] = replace(part, base=base)
            base += part.index.num_numbers
        return parts

    def _raise_damage(self, damage: Sequence[Refusal]) -> None:
        if damage:
            raise damage_error(damage, self.parts[0].container.remedy)

    def _raise_refused(self, refused: Sequence[Refusal]) -> None:
        if refused:
            way = "leave the topic out (or, for a wrong time, give it another time or a larger max_delay)"
            raise damage_error(refused, way)

    @lazy
    def _infos(self) -> dict[str, list[TopicInfo]]:
        """The different definitions of each topic (there should be one), without counts and times."""
        found: dict[str, list[TopicInfo]] = {}
        for part in self.parts:
            for topic, channels in part.channels.items():
                for channel in map(part.index.channels.__getitem__, channels):
                    info = TopicInfo(
                        topic,
                        channel.type,
                        channel.encoding,
                        channel.definition_encoding,
                        channel.definition,
                        *(0, 0, 0),
                    )
                    if info not in found.setdefault(topic, []):
                        found[topic].append(info)
        return found

    def _describe(self, topic: str) -> TopicInfo:
        if self._pass is not None:
            return self._describe_pass(topic)
        count = sum(int(part.shares(topic)["count"].sum()) for part in self.parts)
        damage = [lost for part in self.parts for lost in part.index.lost if lost.topic == topic]
        count += sum(lost.num_messages for lost in damage)
        strays = 0 if is_static(topic) else self._recorded.num_strays(topic)
        extents = [part.extent(topic, self._recorded if strays else None) for part in self.parts]
        spans = [extent for extent in extents if extent is not None]
        first, last = min((a for a, _ in spans), default=0), max((b for _, b in spans), default=0)
        info = self._infos[topic][0]
        return replace(info, num_messages=count, first=first, last=last, num_strays=strays)

    def _describe_pass(self, topic: str) -> TopicInfo:
        number = self._message_times.topics.index(topic)
        entries = map(self._entries, range(len(self._message_times.first)))
        time = np.concatenate([np.empty(0, np.int64), *(one.time[one.topic == number] for one in entries)])
        strays = 0 if is_static(topic) else self._recorded.num_strays(topic)
        kept = time[~self._recorded.are_strays(time)] if strays else time
        first, last = (int(kept.min()), int(kept.max())) if len(kept) else (0, 0)
        info = self._infos[topic][0]
        return replace(info, num_messages=len(time), first=first, last=last, num_strays=strays)

    @lazy
    def _decoders(self) -> dict[str, Decoder]:
        return {}

    def decoder(self, topic: str) -> Decoder:
        """Return the decoder of a topic's messages.

        Args:
            topic: its name.

        Raises:
            UsageError: no such topic.
            UnknownEncodingError: no installed package decodes it.
        """
        if topic not in self._decoders:
            infos = self._infos.get(topic, [])
            if not infos:
                raise UsageError(
                    f"{self._uris[0]}: no topic {topic}; there are {', '.join(sorted(self._infos))}"
                )
            if len(infos) > 1:
                types = ", ".join(sorted({f"{info.type} as {info.encoding}" for info in infos}))
                raise LogReadError(
                    f"{self._uris[0]}: topic {topic} has {len(infos)} different definitions ({types}), which "
                    "can't be one column; record them as two topics, or leave the topic out"
                )
            self._decoders[topic] = _decoder_of(infos[0], self._uris[0])
        return self._decoders[topic]

    def _wanted(self, topic: str, request: TopicRequest) -> Wanted:
        decoder = self.decoder(topic)
        source = time_source(decoder, self._infos[topic][0], request.time)
        if source is None:
            raise UsageError(
                f"{self._uris[0]}: topic {topic} has none of the times {', '.join(map(str, request.time))}; "
                "add log, which it always has"
            )
        are_pictures = has_pictures(self._infos[topic][0], decoder)
        return Wanted(
            request, source, decoder, *log_range(request, source), Gathering(topic), [], are_pictures
        )

    def _needed(self, part: LogPart, topic: str, want: Wanted) -> NDArray[np.int64]:
        """Select the stretches of a part that may contain requested messages or refusals to report."""
        found = self._near(part, topic, want)
        if self._pass is None or want.request.with_strays:
            return found
        return found[[(part.uri, number) in self._stretches_of_pass for number in found.tolist()]]

    def _near(self, part: LogPart, topic: str, want: Wanted) -> NDArray[np.int64]:
        """`_needed` for all passes."""
        request = want.request
        if request.max_delay is not None or by_log_time(want.source):
            return part.stretches_with(topic, want.first, want.last)
        bounds = self._bounds[part.uri, topic, want.source]
        open_stop = request.stop if request.stop == np.iinfo(np.int64).max else request.stop - 1
        holds = (bounds["first"] <= open_stop) & (bounds["last"] >= request.start)
        refused = bounds["stretch"][bounds["refused"] > 0]
        near = np.intersect1d(refused, part.stretches_with(topic, request.start, open_stop))
        return np.union1d(bounds["stretch"][holds], near)

    @lazy
    def _bounds(self) -> dict[tuple[str, str, MessageTime], NDArray[Any]]:
        """Message times by stretch, for requests without `max_delay`; by (URI, topic, source)."""
        return {}

    def _index_times(self, wanted: Mapping[str, Wanted]) -> None:
        """Index the message times of these topics, in one pass for all that have no index."""
        sidecars = self.sidecars
        for part in self.parts:
            missing: dict[str, Wanted] = {}
            for topic, want in wanted.items():
                key = (part.uri, topic, want.source)
                if by_log_time(want.source) or key in self._bounds or topic not in part.channels:
                    self._bounds.setdefault(key, np.empty(0, BOUNDS))
                    continue
                known = sidecars.load_bounds(part.content_id, topic, want.source)
                if known is None:
                    missing[topic] = want
                else:
                    self._bounds[key] = known
            for topic, bounds in _scan_times(part, missing).items():
                source = missing[topic].source
                sidecars.save_bounds(part.content_id, topic, source, bounds)
                self._bounds[part.uri, topic, source] = bounds

    def _take(self, part: LogPart, number: int, chunk: Chunk, takers: Mapping[str, Wanted]) -> None:
        """Add the messages of a chunk to the requests that want them."""
        mine, none = part.rows_by_topic(chunk), np.empty(0, np.intp)
        rows = {
            topic: _between(chunk.log_time, mine.get(topic, none), want) for topic, want in takers.items()
        }
        sparse = is_sparse(chunk, sum(int(chunk.length[chosen].sum()) for chosen in rows.values()))
        origin = part.origin(number)
        for topic, want in takers.items():
            want.found.add(chunk, rows[topic], origin, sparse)
            want.damage += _damage_of(part, number, chunk, topic)


def _between(log_time: NDArray[np.int64], rows: NDArray[np.intp], want: Wanted) -> NDArray[np.intp]:
    """Select rows of messages in the log time range of a request."""
    # Rows of a chunk are ascending, so as many as there are times are all of them.
    times = log_time if len(rows) == len(log_time) else log_time[rows]
    if not len(times) or (times.min() >= want.first and times.max() <= want.last):
        return rows
    return rows[(times >= want.first) & (times <= want.last)]


def _decoder_of(info: TopicInfo, uri: str) -> Decoder:
    try:
        made = parts.load("decoders", info.encoding)
    except UsageError as error:
        raise UnknownEncodingError(
            f"{uri}: topic {info.topic}: {error}; leave the topic out, or install a package that decodes it"
        ) from None
    try:
        decoder: Decoder = made(info)
    except UnknownEncodingError as error:
        raise UnknownEncodingError(f"{uri}: topic {info.topic}: {error}") from error
    return decoder


def _damage_of(part: LogPart, number: int, chunk: Chunk, topic: str) -> list[Refusal]:
    """Describe damage of a stretch as the refusal of a topic's lost messages."""
    if not chunk.problems:
        return []
    row, origin = part.index.stretches[number], part.origin(number)
    lost = part.num_lost(number, chunk, topic)
    reason = "; ".join(chunk.problems[:4])
    first = int(row["first"])
    return [Refusal(origin.uri, origin.offset, topic, origin.position, first, reason, lost, origin.unit)]


def _refusals(
    found: Gathering, raw: RawMessages, refused: NDArray[np.bool_], reason: Callable[[int], str]
) -> list[Refusal]:
    """Return the refused messages among those gathered."""
    made: list[Refusal] = []
    for row in np.flatnonzero(refused).tolist():
        origin, position = found.origins[raw.buffer[row]], int(raw.position[row])
        offset, log_time = origin.offset_of(position), int(raw.log_time[row])
        why, unit = reason(row), origin.unit
        made.append(Refusal(origin.uri, offset, raw.topic, position, log_time, why, unit=unit))
    return made


def _select(want: Wanted, facts: RecordedTime) -> DecodedMessages:
    """Return the messages of a request, and the refusals in its range of log times.

    Strays are left out of both: the summary counts them.
    """
    request, raw = want.request, want.found.raw()
    if want.part is not None and not request.with_strays:
        raw = raw.take(np.flatnonzero((raw.position >= want.part[0]) & (raw.position <= want.part[1])))
    if facts.strays and not (request.with_strays or is_static(raw.topic)):
        is_stray = facts.are_strays(raw.log_time)
        raw = raw.take(np.flatnonzero(~is_stray)) if is_stray.any() else raw
    own = within(raw.log_time, request.start, request.stop)
    stamped = want.stamped(
        raw, request.max_delay, lambda found: own | within(found.time, request.start, request.stop)
    )
    mine = ~stamped.usable & own
    refused = _refusals(want.found, raw, mine, stamped.reason)
    # With the margin for late messages, this read also finds damage that another request reports.
    damage = [r for r in want.damage if r.num_messages and _is_within(r.log_time, request)]
    chosen = np.flatnonzero(stamped.usable & within(stamped.time, request.start, request.stop))
    if len(chosen) < len(raw):
        raw = raw.take(chosen)
    time = stamped.time if len(chosen) == len(stamped.time) else stamped.time[chosen]
    refused = [*damage, *refused]
    return DecodedMessages(raw.topic, time, raw.log_time, raw.position, refused, raw, want.decoder)


def _last_usable(
    raw: RawMessages, decoder: Decoder, are_pictures: bool, spec: FieldSpec | None
) -> tuple[NDArray[np.intp], dict[int, str]]:
    """Return a stretch's last usable message with a value, if any, and the refusals after it."""
    fits = decoder.check(raw)
    has_value = None if spec is None else _has_value(decoder, raw, spec)
    reasons: dict[int, str] = {}
    for row in range(len(raw) - 1, -1, -1):
        at = np.array([row])
        if not fits[row]:
            reasons[row] = misfit_words(raw, row)
        elif are_pictures and (problems := picture_problems(raw, decoder, at)):
            reasons |= problems
        elif has_value is None or has_value[row]:
            return at, reasons
    return np.empty(0, np.intp), reasons


def _is_within(time: int, request: TopicRequest) -> bool:
    return bool(within(np.array(time), request.start, request.stop))


def _scan_times(part: LogPart, wanted: Mapping[str, Wanted]) -> dict[str, NDArray[Any]]:
    """Read the stretches with any of these topics once, for each topic's message times by stretch."""
    rows: dict[str, list[tuple[int, int, int, int]]] = {topic: [] for topic in wanted}
    mine = {topic: np.unique(part.shares(topic)["stretch"]) for topic in wanted}
    stretches = np.unique(np.concatenate([*mine.values(), np.empty(0, np.int64)]))
    for number, chunk in part.chunks(stretches):
        for topic, want in wanted.items():
            if number not in mine[topic]:
                continue
            found = Gathering(topic)
            found.add(chunk, np.flatnonzero(part.rows_of(chunk, topic)), part.origin(number), is_sparse=False)
            stamped = want.stamped(found.raw(), None, lambda found: np.ones(len(found.time), np.bool_))
            times = stamped.time[stamped.usable]
            first, last = (int(times.min()), int(times.max())) if len(times) else (1, 0)
            refused = len(stamped.time) - len(times) + len(chunk.problems)
            rows[topic].append((number, first, last, refused))
    return {topic: np.array(found, BOUNDS) for topic, found in rows.items()}


@dataclass(frozen=True)
class ContainerKind:
    """A kind of log whose files are containers with a magic; see `logloom.io.logs.opening.Kind`."""

    name: str
    suffixes: tuple[str, ...]
    magic: bytes
    container: ContainerType

    def matches(self, uri: str, head: bytes) -> bool:
        return head.startswith(self.magic)

    def open(self, uris: Sequence[str], options: OpenOptions) -> Log:
        return ContainerLog(uris, options, self.container)
