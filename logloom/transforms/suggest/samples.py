"""Samples of logs' messages for a suggested recipe: stamps, encodings, values.

Here: reading a bounded part of each log, and its properties.
Elsewhere: columns by definitions (columns), the recipe (recipe).
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values
from logloom.errors import OF_CONTENT, LogloomError, LogReadError
from logloom.io.logs.interface import (
    MIN_TIME,
    TABLE_ROW,
    FieldSpec,
    Log,
    Messages,
    Refusal,
    TopicRequest,
)
from logloom.io.logs.messages import joints, point_clouds
from logloom.io.logs.messages.adapters import FORMS
from logloom.io.logs.messages.compressed_images import is_depth
from logloom.io.logs.messages.field_times import as_nanoseconds, joined_stamps
from logloom.io.logs.messages.images import form_of
from logloom.io.logs.messages.pixel_encodings import Form
from logloom.io.logs.messages.ros.languages import definition_of
from logloom.io.video.codecs import codec_named
from logloom.recipe.values import duration_text
from logloom.resample.angles import MAX_NUMBERS, TurnEvidence, added, turn_evidence
from logloom.text import counted, some_of
from logloom.transforms.suggest.clocks import (
    Leads,
    clock_words,
    joined,
    keeps_pace,
    leads_of,
    offsets_of,
    stamp_fields,
)
from logloom.transforms.suggest.columns import Candidate, pictures
from logloom.values import dataclass

MAX_BYTES = 256 << 20  # of messages, over all logs
MAX_STRETCHES = 32  # of one log, evenly spread
DEFAULT_DELAY = 1_000_000_000
MAX_DELAY = 3600 * 10**9  # beyond this a stamp is of another clock

MAX_FIELDS = 8  # of a topic to look at whether they are its stamp
MAX_LOOKED = 100_000  # messages of one topic and stretch whose values are sampled
MAX_SETS = 32  # of joints that messages have
MAX_STRINGS = 1 << 12  # limit of characters of text in arrays
_UNCOUNTED_STRINGS = 1 << 7  # if the number of texts is unknown
MAX_TEXT_BYTES = 256 << 20  # limit of values' memory, as all are as wide as the longest text

_STAMPS = ("header.stamp", "timestamp", "transforms[].header.stamp", "transforms[].timestamp")
_FRAMES = ("child_frame_id", "header.frame_id", "frame_id")
_OTHER_VIDEO = re.compile("theora", re.IGNORECASE)  # video formats that aren't supported


@dataclass
class SeenJoints:
    """The joints of sampled messages.

    Attributes:
        messages: their number.
        sets: how many messages have values of this set of joints, and the first list of its names.
    """

    messages: int = 0
    sets: dict[frozenset[str], tuple[int, tuple[str, ...]]] = field(default_factory=dict)

    def add(self, names: tuple[str, ...], messages: int) -> None:
        before, first = self.sets.get(frozenset(names), (0, names))
        self.sets[frozenset(names)] = (before + messages, first)

    @property
    def names(self) -> tuple[str, ...]:
        """All joints, those of the most frequent messages first."""
        ordered = sorted(self.sets.values(), key=lambda one: -one[0])
        return tuple(dict.fromkeys(name for _, names in ordered for name in names))

    @property
    def is_partial(self) -> bool:
        """Whether no message has all joints."""
        return frozenset(self.names) not in self.sets

    @property
    def interval(self) -> float:
        """How many messages of the topic there are for one of the column, or of its rarest joint."""
        if not self.is_partial:
            return self.messages / self.sets[frozenset(self.names)][0]
        counts = [sum(n for n, own in self.sets.values() if name in own) for name in self.names]
        return max(1.0, self.messages / min(counts))

    @property
    def words(self) -> str:
        """Name the sets, if there are several."""
        each = [f"{some_of(names, 12)} in {counted(n, 'message')}" for n, names in self.sets.values()]
        return f"joints: {'; '.join(each)}" if len(each) > 1 else ""


@dataclass
class Sample:
    """Properties of sampled messages.

    Attributes:
        leads: by topic, of sampled stamps, for each part of the logs that was sampled.
        fields: of topics whose stamp is in another field than the header, the keys of a recipe for it.
        is_whole: whether all messages were seen.
        static: topics whose last message is used with any stamp; `suggest` sets it.
        unstamped: topics with a stamp of zero, which can't be a message time.
        unusable: topics to leave out, and why.
        image_forms: by topic, the dtypes and shapes of its images.
        per_time: by topic, how many messages share a time on average, if any do.
        mixed: topics with messages of several frames.
        clouds: by topic of point clouds, the types of the fields that all have.
        columns: by topic, the candidates adapted to their values.
        refused: by topic, names of candidates whose values can't be taken, and why.
        damaged: by log_id, why a log can't be read.
        turns: by topic and candidate, whether values wrap, over all samples.
        joints: by topic and candidate, the sets of joints that messages have.
        lengths: by topic and candidate, of lists of numbers, the number of messages of each length.
    """

    leads: dict[str, list[Leads]] = field(default_factory=dict)
    fields: dict[str, dict[str, str]] = field(default_factory=dict)
    is_whole: bool = True
    static: set[str] = field(default_factory=set)
    unstamped: set[str] = field(default_factory=set)
    unusable: dict[str, str] = field(default_factory=dict)
    image_forms: dict[str, set[Form]] = field(default_factory=dict)
    per_time: dict[str, float] = field(default_factory=dict)
    mixed: set[str] = field(default_factory=set)
    clouds: dict[str, dict[str, str]] = field(default_factory=dict)
    columns: dict[str, list[Candidate]] = field(default_factory=dict)
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    damaged: dict[str, LogReadError] = field(default_factory=dict)
    turns: dict[tuple[str, str], tuple[TurnEvidence, ...]] = field(default_factory=dict)
    joints: dict[tuple[str, str], SeenJoints] = field(default_factory=dict)
    lengths: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)

    @property
    def time(self) -> dict[str, Any]:
        """The `time` of a recipe: one clock for all columns."""
        # All messages were seen, or else others may be twice as late.
        delay = bound_on_delay(self._worst_near if self.is_whole else self._worst_near * 2)
        head: dict[str, Any] = {"by": ["header", "log"], "max_delay": duration_text(delay)}
        if self._is_at_another_pace:
            return head | {"by": "log"}
        topics: dict[str, Any] = {}
        by_log, offsets = self.unstamped | self._far, self._offsets
        for topic in sorted({*by_log, *offsets, *(self.fields.keys() - self.unusable.keys())}):
            offset = offsets.get(topic)
            keys = self.fields.get(topic, {}) | ({"offset": duration_text(offset)} if offset else {})
            topics[topic] = "log" if topic in by_log else keys
        return head | ({"topics": topics} if topics else {})

    @property
    def comment(self) -> str:
        if self._is_at_another_pace:
            return (
                "stamps are far from their log times, and at no constant distance: simulated, or replayed? "
                "Log times are one clock for all columns"
            )
        seen = "stamps" if self.is_whole else "the sampled stamps"
        clocks = self._clock_words
        corrected = ", with these offsets" * bool(clocks)
        near = f"{seen} are at most {self._worst_near / 1e9:.3g} s from their log times{corrected}"
        return "; ".join([near, *clocks])

    @property
    def _clock_words(self) -> list[str]:
        """Describe each clock once, by its first topic."""
        used, by_offset = self._used, dict[int, list[str]]()
        for topic, offset in sorted(offsets_of(used).items()):
            by_offset.setdefault(offset, []).append(topic)
        return [
            f"{some_of(topics, 3)}: {clock_words(used[topics[0]], offset)}"
            for offset, topics in by_offset.items()
        ]

    @property
    def _used(self) -> dict[str, Leads]:
        others = self.unusable.keys() | self.unstamped | self.static
        return {topic: joined(leads) for topic, leads in self.leads.items() if topic not in others}

    @property
    def _offsets(self) -> dict[str, int]:
        return offsets_of(self._used)

    @property
    def _delays(self) -> dict[str, int]:
        """The most ns seen between a message's time and its log time, by topic."""
        offsets = self._offsets
        return {topic: leads.moved(offsets.get(topic, 0)).furthest for topic, leads in self._used.items()}

    @property
    def _far(self) -> set[str]:
        """Topics with useless stamps: far off, and at no constant distance."""
        return {topic for topic, delay in self._delays.items() if delay > MAX_DELAY}

    @property
    def _is_at_another_pace(self) -> bool:
        return bool(self._far) and self._far == self._used.keys()

    @property
    def _worst_near(self) -> int:
        far = self._far
        return max((delay for topic, delay in self._delays.items() if topic not in far), default=0)


def bound_on_delay(expected: int) -> int:
    """Return the `max_delay` for an expected delay: whole seconds, and at least the default.

    >>> bound_on_delay(3_070_000_000)
    4000000000
    """
    return max(DEFAULT_DELAY, -(-expected // 10**9) * 10**9)


def sample(
    columns: Mapping[str, Sequence[Candidate]], logs: Mapping[str, Log], *, takes_refused: bool = True
) -> Sample:
    """Sample a bounded part of each log; a small log is read completely.

    Args:
        columns: by topic, the columns that its definition suggests; none for a topic of which only times
            matter.
        logs: by log_id, opened with on_error "skip" or "salvage".
        takes_refused: whether a topic may have messages that can't be used.
    """
    found = Sample(columns={topic: list(candidates) for topic, candidates in columns.items()})
    frames: dict[str, set[str]] = {}
    for log_id in sorted(logs):
        try:
            _look_at_log(found, frames, logs[log_id], MAX_BYTES // len(logs), takes_refused)
        except LogReadError as error:
            found.damaged[log_id] = error
    found.mixed = {topic for topic, names in frames.items() if len(names) > 1}
    for topic, candidates in found.columns.items():
        candidates = [_with_fields(one, found.clouds.get(topic, {})) for one in candidates]
        candidates = _with_names(found, topic, candidates)
        candidates = [
            _with_shape(one, found.lengths.get((topic, one.suffix), Counter())) for one in candidates
        ]
        found.columns[topic] = [_turned(one, found.turns.get((topic, one.suffix), ())) for one in candidates]
    return found


def _look_at_log(
    found: Sample, frames: dict[str, set[str]], log: Log, max_bytes: int, takes_refused: bool
) -> None:
    """Sample a log.

    Raises:
        LogReadError: it is damaged.
    """
    ranges, is_whole = stretches(log, max_bytes)
    found.is_whole &= is_whole
    for topic in found.columns.keys() & log.summary.topics.keys():
        try:
            log.time_source(topic, ("log",))
        except OF_CONTENT as error:
            found.unusable[topic] = _first_line(error)
    for start, stop in ranges:
        wanted = [t for t in found.columns if t in log.summary.topics and t not in found.unusable]
        for topic, messages in log.read({t: TopicRequest(start, stop, ("log",), 0) for t in wanted}).items():
            if messages.refused and (not takes_refused or not len(messages)):
                found.unusable[topic] = _refusals_in_words(messages.refused)
            elif len(messages):
                _look(found, log, messages, topic)
                _look_at_frames(frames.setdefault(topic, set()), log, messages, topic)
                _look_at_values(found, log, messages, topic)


def _refusals_in_words(refused: Sequence[Refusal]) -> str:
    first, more = refused[0], counted(len(refused) - 1, "other message")
    return f"{first.uri}: {first.place}: {first.reason}{f', and {more}' if len(refused) > 1 else ''}"


def stretches(log: Log, max_bytes: int) -> tuple[list[tuple[int, int]], bool]:
    """Return ranges of log time with at most about this many bytes, and whether they are the whole log."""
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
    if stamps is None:
        stamps = _stamps_elsewhere(found, log, messages, topic)
    times = messages.log_time
    if stamps is not None:
        if not stamps.all():
            found.unstamped.add(topic)
        else:
            found.leads.setdefault(topic, []).append(leads_of(stamps, messages.log_time))
            times = stamps
    distinct = len(np.unique(times))
    if distinct < len(times):
        found.per_time[topic] = max(found.per_time.get(topic, 1.0), len(times) / distinct)
    if kind.endswith("Image"):
        _look_at_images(found, log, messages, topic)


def _look_at_frames(frames: set[str], log: Log, messages: Messages, topic: str) -> None:
    for path in _FRAMES:
        names = set(_texts(_field(log, messages, topic, path)))
        if names:
            frames |= names
            return


def _look_at_values(found: Sample, log: Log, messages: Messages, topic: str) -> None:
    """Take each candidate like a build; refuse failures, and adapt policies to values."""
    count = min(len(messages), MAX_LOOKED)
    rows = np.unique(np.linspace(0, len(messages) - 1, count).astype(np.intp))
    kept: list[Candidate] = []
    left = list(found.columns.get(topic, ()))
    while left:
        candidate = left.pop(0)
        try:
            if str(candidate.keys.get("as", "")).startswith("points"):
                _look_at_clouds(found, messages, topic, rows)
            if candidate.keys.get("as") == joints.NAME:
                _look_at_joints(found, log, messages, topic, candidate)
                kept.append(candidate)
                continue
            lengths = found.lengths.setdefault((topic, candidate.suffix), Counter())
            fitted, turns = _fitted(candidate, log, messages, topic, rows, lengths)
        except OF_CONTENT as error:
            left = [*candidate.parts, *left]
            if not candidate.parts:
                found.refused.setdefault(topic, {})[candidate.suffix or topic] = _first_line(error)
            continue
        kept.append(fitted)
        known = found.turns.get((topic, candidate.suffix), ())
        if turns and len(known) in (0, len(turns)):
            found.turns[topic, candidate.suffix] = added([turns, known] if known else [turns])
    found.columns[topic] = kept


def _look_at_joints(found: Sample, log: Log, messages: Messages, topic: str, candidate: Candidate) -> None:
    """Count the messages that have values of each set of joints.

    Raises:
        LogloomError: names can't be read.
    """
    spec, root = FieldSpec((str(candidate.keys["field"]),), joints.NAME), definition_of(log, topic)
    assert root is not None
    path, every = joints.paths(spec, root)["names"], np.arange(len(messages))
    listed = messages.take(FieldSpec((path,), strings=joints.NAME_LENGTH), every)
    sets: dict[frozenset[str], tuple[str, ...]] = {}
    for one in joints.distinct_lists(listed):
        if len({*one}) == len(one):
            sets.setdefault(frozenset(one), one)
    seen = found.joints.setdefault((topic, candidate.suffix), SeenJoints())
    seen.messages += len(messages)
    counts: dict[frozenset[str], int] = {}
    for own in sorted((own for own in sets if own), key=len, reverse=True)[:MAX_SETS]:
        has_value = messages.has_value(replace(spec, names=sets[own]))
        whole = len(messages) if has_value is None else int(has_value.sum())
        counts[own] = whole - sum(count for other, count in counts.items() if own < other)
    for own, names in sets.items():
        if counts.get(own):
            seen.add(names, counts[own])


def _with_names(found: Sample, topic: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates with the names of their joints, without those of which no message has values."""
    kept = []
    for one in candidates:
        seen = found.joints.get((topic, one.suffix))
        if seen is None:
            kept.append(one)
        elif seen.sets:
            kept.append(one.with_keys(names=list(seen.names), partial=seen.is_partial or None))
        else:
            found.refused.setdefault(topic, {})[one.suffix] = "no message has values of joints there"
    return [one for one in kept if one.keys.get("as") != joints.NAME or "names" in one.keys]


def _fitted(
    candidate: Candidate,
    log: Log,
    messages: Messages,
    topic: str,
    rows: NDArray[np.intp],
    lengths: Counter[int],
) -> tuple[Candidate, tuple[TurnEvidence, ...]]:
    """Adapt a candidate to these messages; also return whether its numbers wrap, if they may.

    Args:
        lengths: to which those of lists of numbers are added.

    Raises:
        LogloomError: a build can't take it.
    """
    adapter = str(candidate.keys.get("as", ""))
    if adapter.startswith(("image", "points")):
        return candidate, ()
    fields = candidate.keys.get("field", ())
    spec = FieldSpec(
        (fields,) if isinstance(fields, str) else tuple(fields),
        adapter=candidate.keys.get("as"),
        strings=candidate.keys.get("strings", 32),
        dtype=candidate.keys.get("dtype"),
    )
    held = messages.has_value(spec)
    rows = rows if held is None else rows[held[rows]]
    ctype = log.column_type(topic, spec)
    if ctype.kind == "bytes" or not len(rows):
        return candidate, ()
    count = _num_values(log, messages, spec, rows) if ctype.is_ragged else len(rows)
    values, strings = take_text(log, messages, spec, rows, count)
    if strings != spec.strings:
        candidate = candidate.with_keys(strings=strings)
    if not isinstance(values, np.ndarray):
        if ctype.is_list_of_numbers:
            lengths.update(values.lengths.tolist())
        return candidate, ()
    if candidate.policy == "slerp" and not values.any(axis=-1).all():
        return candidate.with_keys(resample="nearest"), ()  # which takes quaternions of norm zero unchanged
    if candidate.policy not in ("linear", "angle") or values[:1].size > MAX_NUMBERS:
        return candidate, ()
    in_order = values[np.argsort(messages.log_time[rows], kind="stable")]
    every = np.ones(len(rows), np.bool_)
    return candidate, turn_evidence(in_order, every, every[1:])


def _look_at_clouds(found: Sample, messages: Messages, topic: str, rows: NDArray[np.intp]) -> None:
    own = point_clouds.named_dtypes(messages, rows)
    if own is not None:
        found.clouds[topic] = point_clouds.common_dtypes(found.clouds.get(topic, own), own)


def _with_fields(candidate: Candidate, kinds: Mapping[str, str]) -> Candidate:
    """Return a column of points with all fields that clouds have, in a dtype that holds them."""
    if not kinds or not str(candidate.keys.get("as", "")).startswith("points["):
        return candidate
    dtype = point_clouds.dtype_for(kinds.values())
    return candidate.with_keys(
        **{"as": f"points[{','.join(kinds)}]"},
        dtype=None if dtype == "float32" else dtype,
        unit=candidate.keys.get("unit") if set(kinds) <= {"x", "y", "z"} else None,
    )


def _with_shape(candidate: Candidate, lengths: Counter[int]) -> Candidate:
    """Return a column of lists as one of vectors, if several messages have lists of one length."""
    if len(lengths) != 1 or not all(lengths) or lengths.total() < 2:
        return candidate
    return candidate.with_keys(shape=[*lengths])


def _turned(candidate: Candidate, turns: Sequence[TurnEvidence]) -> Candidate:
    """Return the candidate with the policy for numbers that wrap, or don't."""
    is_angle = candidate.policy == "angle" or any(number.wraps("rad") for number in turns)
    if any(number.wraps("deg") for number in turns):
        return candidate.with_keys(resample="nearest", unit=None)  # `angle` takes radians
    if not is_angle:
        return candidate
    if all(number.fits_radians for number in turns):
        return candidate.with_keys(resample="angle", unit="rad")
    # Other numbers don't wrap, or a heading counts turns.
    wraps = any(number.wraps("rad") for number in turns)
    return candidate.with_keys(resample="nearest" if wraps else "linear", unit=None)


def take_text(
    log: Log, messages: Messages, spec: FieldSpec, rows: NDArray[np.intp], count: int | None
) -> tuple[Values, int]:
    """Take values, and the width of text in arrays that fits all of it.

    Args:
        count: number of values in all rows; None if unknown.

    Raises:
        LogReadError: no width up to `MAX_STRINGS` works within `MAX_TEXT_BYTES`.
    """
    while True:
        try:
            return messages.take(spec, rows), spec.strings
        except OF_CONTENT as error:
            most = MAX_STRINGS if count is not None else _UNCOUNTED_STRINGS
            if "strings" not in str(error) or spec.strings >= most:
                raise
            spec = replace(spec, strings=spec.strings * 4)
            num_bytes = (count or 0) * log.column_type(messages.topic, spec).dtype.itemsize
            if num_bytes > MAX_TEXT_BYTES:
                raise LogReadError(
                    f"{error}. With room for it {count} values of {messages.topic}, which are read together, "
                    f"would take {num_bytes} bytes, more than {MAX_TEXT_BYTES}: shorten the text"
                ) from error


def _num_values(log: Log, messages: Messages, spec: FieldSpec, rows: NDArray[np.intp]) -> int | None:
    """Count elements of arrays in messages, by a number in each; None if there is none."""
    if spec.adapter == "transforms":
        numbers = [path for path in _STAMPS if "[]" in path]
    else:
        names: Mapping[str, tuple[Any, ...]] = log.column_type(messages.topic, spec).dtype.fields or {}
        numbers = [f"{spec.paths[0]}[].{name}" for name, (kind, *_) in names.items() if kind.kind in "iufb"]
    for path in numbers:
        with contextlib.suppress(*OF_CONTENT):
            found = messages.take(FieldSpec((path,)), rows)
            return len(found.values) if isinstance(found, Ragged) else len(found)
    return None


def _first_line(error: LogloomError) -> str:
    return str(error).splitlines()[0]


def _look_at_images(found: Sample, log: Log, messages: Messages, topic: str) -> None:
    """Find forms of images that are columns of pixels: raw ones, and depth."""
    if log.summary.topics[topic].type.endswith("CompressedImage"):
        formats = set(_texts(_field(log, messages, topic, "format")))
        if not any(map(is_depth, formats)):
            _look_at_formats(found, topic, formats)
            return
        found.columns[topic] = [pictures()]
    if not any(column.keys.get("as") == "image" for column in found.columns.get(topic, ())):
        return
    spec = FieldSpec(adapter=FORMS)
    try:
        held = messages.has_value(spec)
        numbers = messages.take(spec, np.arange(len(messages)) if held is None else np.flatnonzero(held))
    except OF_CONTENT as error:
        found.unusable[topic] = _first_line(error)
        return
    assert isinstance(numbers, np.ndarray)
    forms = found.image_forms.setdefault(topic, set())
    forms |= {form_of(one) for one in np.unique(numbers, axis=0)}
    dtypes = sorted({form.dtype.name for form in forms})
    if len(dtypes) > 1 and not are_two_depths(forms):
        found.unusable[topic] = f"images of several dtypes: {', '.join(dtypes)}"


def are_two_depths(forms: Collection[Form]) -> bool:
    """Return whether images are of depth in millimetres and in metres, which a column converts."""
    kinds = {(form.dtype.name, form.shape[2]) for form in forms}
    return kinds == {("uint16", 1), ("float32", 1)}


def _look_at_formats(found: Sample, topic: str, formats: Iterable[str]) -> None:
    """Refuse a topic whose messages don't fit its column: image files, or packets of video."""
    takes_video = any(column.keys.get("as") == "image" for column in found.columns.get(topic, ()))
    for name in formats:
        if _OTHER_VIDEO.search(name):
            found.unusable[topic] = f"compressed video ({name}), which isn't decoded here"
        elif (codec_named(name) is not None) != takes_video:
            found.unusable[topic] = f"some of its messages are images, others compressed video ({name})"


def _stamps(log: Log, messages: Messages, topic: str) -> NDArray[np.int64] | None:
    """(n,) header stamps; None if messages have none, or one has none in it."""
    if log.time_source(topic, ("header",)) is None:
        return None
    for path in _STAMPS:
        values = _field(log, messages, topic, path)
        if isinstance(values, np.ndarray) and values.ndim == 1:
            return values
        if isinstance(values, Ragged) and (values.lengths > 0).all():
            return values.values[values.offsets[:-1]]
    return None


def _stamps_elsewhere(found: Sample, log: Log, messages: Messages, topic: str) -> NDArray[np.int64] | None:
    """(n,) stamps in another field than the header, ns; None if messages have none that fits."""
    if topic in found.leads and topic not in found.fields:  # a part without such a stamp
        return None
    with contextlib.suppress(*OF_CONTENT):
        root = definition_of(log, topic)
        info, known = log.summary.topics[topic], found.fields.get(topic)
        if root is None or info.type == TABLE_ROW:
            return None
        choices = (
            islice(stamp_fields(root), MAX_FIELDS)
            if known is None
            else [(known["field"], (known.get("unit", ""),))]
        )
        for path, units in choices:
            values = _field(log, messages, topic, path)
            for unit in units:
                times = _as_times(values, unit)
                is_new = known is None
                if times is None or (is_new and not keeps_pace(times, messages.log_time)):
                    continue
                found.fields[topic] = {"field": path} | ({"unit": unit} if unit else {})
                return times
    return None


def _as_times(values: Values | None, unit: str) -> NDArray[np.int64] | None:
    """(n,) times of a field's values; None if they aren't times."""
    if not isinstance(values, np.ndarray) or values.dtype.names or values.dtype.kind not in "iuf":
        return None
    if not unit and values.ndim == 2 and values.shape[1] == 2:  # seconds and nanoseconds
        times = joined_stamps(values[:, 0], values[:, 1])
    elif values.ndim == 1:
        times = as_nanoseconds(values, unit) if unit else values
    else:
        return None
    return None if (times == MIN_TIME).any() else times


def _field(log: Log, messages: Messages, topic: str, path: str) -> Values | None:
    spec = FieldSpec(paths=(path,))
    try:
        log.column_type(topic, spec)
        return messages.take(spec, np.arange(len(messages)))
    except OF_CONTENT:
        return None


def _texts(values: Any) -> Iterator[str]:
    if isinstance(values, Ragged):
        yield from sorted({row.tobytes().decode("utf-8", "replace") for row in values})
