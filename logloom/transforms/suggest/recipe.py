"""Suggest a recipe for logs, which builds without changes.

Here: clock, tolerances and max_delay for the logs, columns that can be built, also of video, and the text.
Elsewhere: columns by the types of messages (columns), samples of messages (samples), resolving a recipe
(logloom.transforms.rows.plan.resolve).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from logloom import parts
from logloom.errors import OF_CONTENT, LogReadError, UsageError
from logloom.io.formats.registry import by_preference, format_named, format_names
from logloom.io.logs.interface import FieldSpec, Log, TopicInfo
from logloom.io.logs.match import TEMPLATES, fill_template, naming_uri, unique_template
from logloom.io.logs.messages.ros.languages import definition_of
from logloom.io.logs.rates import rates_of
from logloom.io.logs.recording_times import is_static
from logloom.io.logs.table_dialects import OfTables, TableDialect, entries
from logloom.io.storage.filesystems import file_name_of
from logloom.io.video.frames import check_decoder, pyav
from logloom.io.video.preview import glimpse, holds_video
from logloom.recipe import Recipe
from logloom.recipe import yaml as text
from logloom.recipe.values import duration_text
from logloom.resample.policies import POLICIES
from logloom.schema import RESERVED_LAST_PARTS, RESERVED_NAMES, ColumnType
from logloom.text import OnMessage, counted, ignore_message, printable, some_of
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.suggest.columns import (
    Candidate,
    Candidates,
    candidates,
    joint_columns,
    json_candidates,
    known,
    pictures,
    transforms,
    with_joints,
)
from logloom.transforms.suggest.json_properties import properties_of, sampled_objects
from logloom.transforms.suggest.samples import Sample, are_two_depths, sample
from logloom.values import dataclass

RATES = (0.1, 0.2, 0.5, 1, 2, 5, 10)  # Hz; usual rates of rows
MIN_TICKS = 10  # a log with fewer ticks gets its rows from a topic
MAX_NAME = 120  # characters of a column's name that come from its topic
MAX_COMMENT = 300  # characters
MAX_NAMED = 12  # fields in one comment
_COMMENT = "  # "
_OUTSIDE = "all its messages are outside the recording; `logloom doctor LOG` shows their times"
_MS = 1_000_000
_NICE = (1, 2, 5)
# Types of video that no column supports, as their messages don't declare a codec.
_OTHER_VIDEO = re.compile(r"H26[45]|ffmpeg_image|theora", re.IGNORECASE)


@functools.cache
def _output() -> str:
    """Choose tar, which takes columns of any type; without it, the quickest output that maps no columns."""
    if any(name == "tar" for name in parts.names("outputs")):
        return "tar"
    return next(name for name in by_preference(format_names()) if format_named(name).keeps_columns)


@dataclass(frozen=True)
class _SuggestedTopic:
    """A topic over all logs.

    Attributes:
        info, log: of the first log that has messages of it.
        messages: in all logs.
        period: ns between messages, in the log where that is longest; 0 if there are fewer than two.
        silence: the time without messages in that log, for a comment.
    """

    info: TopicInfo
    log: Log
    messages: int
    period: int
    silence: str = ""

    @property
    def name(self) -> str:
        return self.info.topic

    @property
    def base(self) -> str:
        """Prefix of the topic's columns."""
        parts = [re.sub(r"[^a-z0-9_]", "_", part.lower()) for part in self.name.split("/") if part]
        name = ".".join(f"_{part}" if part[0].isdigit() else part for part in parts)
        return name[:MAX_NAME].rstrip(".") or "topic"

    def spread(self, per_time: float) -> _SuggestedTopic:
        """Return the topic for when this many messages share a time: the period is that between times."""
        return replace(self, period=round(self.period * per_time))


def suggest(
    logs: Mapping[str, Log],
    storage_options: Mapping[str, Any] | None = None,
    *,
    on_error: str = "fail",
    skipped: Mapping[str, Sequence[str]] | None = None,
    on_skipped: OnMessage = ignore_message,
    on_left_out: OnMessage = ignore_message,
    set_back: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Suggest a recipe as YAML with absolute URIs; every column has a comment with its source.

    Args:
        logs: by log_id, opened with on_error "skip" or "salvage". Some messages are sampled for their stamps,
            encodings and values.
        storage_options: for fsspec, by protocol.
        on_error: the recipe's.
        skipped: by log_id, the URIs of unreadable logs that the recipe includes as well.
        on_skipped: called with other damaged logs, under on_error "skip".
        on_left_out: called with unusable topics, and why.
        set_back: by log_id, where its recorder's clock was set back; of these logs the first part is used.

    Raises:
        UsageError: no log, or none with messages of supported types.
        LogReadError: a sample is damaged, and not to be skipped; or all logs are.
    """
    topics = _topics(logs)
    proposed = {topic.name: _propose(topic) for topic in topics}
    usable = {name: made.columns for name, made in proposed.items() if isinstance(made, Candidates)}
    found = sample(usable, logs, takes_refused=on_error != "fail")
    uris = {log_id: log.summary.uris for log_id, log in logs.items()} | dict(skipped or {})
    if found.damaged:
        whole = _without_damaged(logs, found.damaged, on_error, on_skipped)
        return suggest(
            whole,
            storage_options,
            on_error="skip",
            skipped={name: uris[name] for name in uris.keys() - whole.keys()},
            on_left_out=on_left_out,
            set_back=set_back,
        )
    found.unusable |= {name: made for name, made in proposed.items() if isinstance(made, str)}
    found.static = {t.name for t in topics if _is_static(t, found.columns.get(t.name, ()))}
    topics = [topic.spread(found.per_time.get(topic.name, 1.0)) for topic in topics]
    head: dict[str, Any] = {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "-", min(logs)).strip("-.")[:60] or "dataset",
        "logs": [uri for log_id in sorted(uris) for uri in uris[log_id]],
        "log_id": _template(uris, storage_options),
        "time": found.time | ({"set_back": "first"} if set_back else {}),
        "clock": _clock(logs, topics, found),
    } | ({"on_error": on_error} if on_error != "fail" else {})
    lines = _column_lines(topics, proposed, found, head["time"], logs)
    for name, comment in _outside(logs, {topic.name for topic in topics}).items():
        found.unusable[name] = _OUTSIDE
        lines += [comment, _comment(f"left out: {_OUTSIDE}")]
    for name, why in sorted(found.unusable.items()):
        on_left_out(f"topic {name}: {why}")
    heads = [*_head_lines(head, found.comment + _set_back_words(set_back)), *_table_lines(logs)]
    return "\n".join([*heads, "columns:", *lines, "outputs:", f"  {_output()}: {{}}", ""])


def _column_lines(
    topics: Sequence[_SuggestedTopic],
    proposed: Mapping[str, Candidates | str],
    found: Sample,
    time: Mapping[str, Any],
    logs: Mapping[str, Log],
) -> list[str]:
    """Return the lines of all columns, below a comment on each topic; raise a UsageError if there is none.

    Texts are comments, unless there is nothing else.
    """
    for comments_texts in (True, False):
        lines: list[str] = []
        taken: dict[str, int] = {}
        for topic in topics:
            made = proposed[topic.name]
            own = made.left_out if isinstance(made, Candidates) else {}
            lines += _topic_lines(topic, own, found, time, logs, taken, comments_texts)
        if not all(line.startswith(_COMMENT) for line in lines):
            return lines
    raise UsageError("no topic of these logs has a field that a column supports:\n" + "\n".join(lines))


def _without_damaged(
    logs: Mapping[str, Log], damaged: Mapping[str, LogReadError], on_error: str, on_skipped: OnMessage
) -> dict[str, Log]:
    """Return the undamaged logs; raise the first error if damage isn't skipped, or all logs have some."""
    if on_error != "skip" or len(damaged) == len(logs):
        raise next(iter(damaged.values()))
    for log_id, error in damaged.items():
        on_skipped(f"skipped: {log_id}: {error}")
    return {log_id: log for log_id, log in logs.items() if log_id not in damaged}


def _set_back_words(set_back: Mapping[str, str]) -> str:
    """Return the end of a comment on the first log whose clock was set back; "" without any."""
    for log_id, words in sorted(set_back.items()):
        return f"; the clock of {log_id} was set back by {words}, `last` keeps what follows, `split` both"
    return ""


def _topics(logs: Mapping[str, Log]) -> list[_SuggestedTopic]:
    """Return topics with messages, in name order.

    Raises:
        UsageError: there are none.
    """
    found: dict[str, _SuggestedTopic] = {}
    for log_id in sorted(logs):
        rates = rates_of(logs[log_id])
        for name, info in logs[log_id].summary.topics.items():
            if count := info.num_recorded:
                rate = rates[name]
                known = found.get(name) or _SuggestedTopic(info, logs[log_id], 0, 0)
                longest = max(known.period, int(rate.period))
                silence = rate.silence_words if longest > known.period else known.silence
                found[name] = _SuggestedTopic(known.info, known.log, known.messages + count, longest, silence)
    if not found:
        raise UsageError("no log has messages, so a recipe would have no columns")
    return [found[name] for name in sorted(found)]


def _outside(logs: Mapping[str, Log], recorded: Collection[str]) -> dict[str, str]:
    """Return a comment on each topic that has messages outside the recording only, in name order."""
    kinds, counts = dict[str, str](), Counter[str]()
    for log in logs.values():
        for name, info in log.summary.topics.items():
            if info.num_messages and name not in recorded:
                kinds[name] = info.type
                counts[name] += info.num_messages
    return {
        name: _comment(f"{name}: {kinds[name]}, {counted(counts[name], 'message')}") for name in sorted(kinds)
    }


def _is_static(topic: _SuggestedTopic, columns: Sequence[Candidate] = ()) -> bool:
    """Return whether all columns use the last message, like a latched topic's, which may be much older."""
    if not topic.period or is_static(topic.name):
        return True
    return bool(columns) and all(column.policy == "static" for column in columns)


# --- the head -------------------------------------------------------------------------------------------


def _template(logs: Mapping[str, Sequence[str]], options: Mapping[str, Any] | None) -> str:
    """Return the template that names the logs like here."""
    uris = {log_id: naming_uri(files, options) for log_id, files in logs.items()}
    for template in TEMPLATES:
        if all(fill_template(template, uri) == log_id for log_id, uri in uris.items()):
            return template
    return unique_template(uris.values()) or "{path}"


def _clock(logs: Mapping[str, Log], all_topics: Sequence[_SuggestedTopic], found: Sample) -> dict[str, Any]:
    """Return the rate of the busiest topic, at most 10 Hz; a topic if a log is too short for a rate."""
    topics = [topic for topic in all_topics if topic.name not in found.unusable] or all_topics
    periods = [topic.period for topic in topics if topic.period > 0]
    fastest = 1e9 / min(periods) if periods else 0.0
    # Slightly slower than a step is accepted: 9.98 Hz is 10.
    rate = max((rate for rate in RATES if rate <= fastest * 1.05), default=RATES[0])
    shortest = min(log.summary.last - log.summary.first for log in logs.values() if log.summary.num_messages)
    if shortest * rate >= MIN_TICKS * 10**9:
        return {"rate": rate}
    return {"topic": max(topics, key=lambda topic: topic.messages).name}


def _head_lines(head: Mapping[str, Any], time_comment: str) -> Iterator[str]:
    comments = {
        "logs": "URIs and globs; relative ones start at this file's folder",
        "time": printable(time_comment),
        "clock": "Hz, or {topic: ...} for a row per message",
    }
    for key, value in head.items():
        comment = f"  # {comments[key]}" if key in comments else ""
        if key == "logs":
            yield f"logs:{comment}"
            yield from (f"- {text.flow(uri)}" for uri in value)
        else:
            yield f"{key}: {text.flow(value)}{comment}"


def _table_lines(logs: Mapping[str, Log]) -> Iterator[str]:
    """Return the lines on how tables are written, as guessed, and notes on their times."""
    dialects: dict[str, TableDialect] = {}
    notes: dict[str, set[str]] = {}
    for log in logs.values():
        if isinstance(log, OfTables):
            dialects |= log.dialects()
            for uri in log.summary.uris:
                for note in log.time_notes(uri):
                    notes.setdefault(note, set()).add(file_name_of(uri))
    found = entries(dialects) if dialects else []
    if found:
        yield "tables:  # as guessed from names and values"
        yield from (f"- {text.flow(one.to_data())}" for one in found)
    for note, names in sorted(notes.items()):
        yield _comment(f"{some_of(sorted(names), MAX_NAMED)}: {note}").strip()


# --- columns --------------------------------------------------------------------------------------------


def _propose(topic: _SuggestedTopic) -> Candidates | str:
    """Return the columns that the topic's definition suggests, or why there are none."""
    try:
        root = definition_of(topic.log, topic.name)
        if (video := _video_column(topic)) is not None:
            return video if isinstance(video, str) else Candidates([video])
        known_columns = [column for column in known(topic.info) if _fits(topic, column)]
    except OF_CONTENT as error:
        return str(error).splitlines()[0]
    if known_columns:
        return Candidates([_as_written(topic, column) for column in known_columns])
    if root is None or not root.fields:
        if topic.info.definition:
            return "its definition types no field; add columns by hand"
        if topic.info.encoding == "json":
            return _of_json(topic)
        return f"its {topic.info.encoding} messages have no schema; add columns by hand"
    made = candidates(topic.info, root)
    return _without_times(topic, with_joints(made, root) if joint_columns(root) else made)


def _without_times(topic: _SuggestedTopic, found: Candidates) -> Candidates:
    """Leave out the columns of a table that are times, or can't be columns."""
    for name, reason in topic.log.left_out(topic.name).items() if isinstance(topic.log, OfTables) else ():
        here = [
            one for one in found.columns if name in (fields := one.keys.get("field", ())) or name == fields
        ]
        found.columns = [one for one in found.columns if one not in here]
        found.leave_out(name, reason)
    return found


def _of_json(topic: _SuggestedTopic) -> Candidates | str:
    """Return the columns of JSON messages without a schema, by a sample of them; or why there are none."""
    try:
        properties, left_out = properties_of(*sampled_objects(topic.log, topic.name))
    except OF_CONTENT as error:
        return str(error).splitlines()[0]
    if not (properties or left_out):
        return "its json messages have no schema, and those that were sampled no properties"
    found = json_candidates(properties)
    for name, reason in left_out.items():
        found.leave_out(name, reason)
    return found


def _video_column(topic: _SuggestedTopic) -> Candidate | str | None:
    """Return the column of a topic's pictures; why there is none, for people; None if a topic isn't video.

    A recipe uses the same log to decide whether a topic is video.

    Raises:
        LogReadError: the log is too damaged to decide.
    """
    kind = topic.info.type
    if not holds_video(topic.log, topic.name):
        if not _OTHER_VIDEO.search(kind):
            return None
        return f"compressed video ({kind}): record or transcode it as images"
    try:
        pyav()
        seen = glimpse(topic.log, topic.name)
        if seen is not None:
            check_decoder(seen.codec)
            return pictures()
        why = "no packet of its beginning can be decoded; see `logloom doctor`"
    except UsageError as error:
        why = f"{str(error).splitlines()[0]}; with it a column of `as: image` can be built"
    return f"compressed video ({kind}): {why}"


def _as_written(topic: _SuggestedTopic, column: Candidate) -> Candidate:
    """Spell the column's field like the topic's type: ROS 1 writes K, ROS 2 k."""
    path = column.keys.get("field")
    if isinstance(path, str) and _type_of(topic, path) is None:
        return column.with_keys(field=path.upper())
    return column


def _fits(topic: _SuggestedTopic, column: Candidate) -> bool:
    """Return whether messages have what a column for their type's name reads; others may have the same
    name.
    """
    path, adapter = column.keys.get("field"), str(column.keys.get("as", ""))
    if path is not None:
        return _type_of(topic, path) is not None or _type_of(topic, path.upper()) is not None
    if adapter.startswith("points"):
        return True  # depends on messages
    try:
        topic.log.column_type(topic.name, FieldSpec(adapter=adapter))
    except OF_CONTENT:
        return False
    return True


def _type_of(topic: _SuggestedTopic, path: str) -> ColumnType | None:
    try:
        return topic.log.column_type(topic.name, FieldSpec(paths=(path,)))
    except OF_CONTENT:
        return None


def _topic_lines(
    topic: _SuggestedTopic,
    by_definition: Mapping[str, Sequence[str]],
    found: Sample,
    time: Mapping[str, Any],
    logs: Mapping[str, Log],
    taken: dict[str, int],
    comments_texts: bool,
) -> Iterator[str]:
    """Return the columns of one topic, with comments on what was left out.

    Args:
        by_definition: fields that aren't columns, by the reason why.
        taken: names of columns, and how often each was wanted; updated.
        comments_texts: whether texts are comments, which become columns without their #.
    """
    hertz = f"{1e9 / topic.period:.4g} Hz" if topic.period else "once"
    hertz += f", {topic.silence}" if topic.silence else ""
    yield _comment(f"{topic.name}: {topic.info.type}, {counted(topic.messages, 'message')}, {hertz}")
    if topic.name in found.unusable:
        yield _comment(f"left out: {found.unusable[topic.name]}")
        return
    columns, left_out = (
        found.columns.get(topic.name, []),
        {reason: list(names) for reason, names in by_definition.items()},
    )
    for name, reason in found.refused.get(topic.name, {}).items():
        left_out.setdefault(reason, []).append(name)
    for words in dict.fromkeys(seen.words for (name, _), seen in found.joints.items() if name == topic.name):
        if words:
            yield _comment(words)
    if topic.name in found.mixed and (turned := _without_mixing(topic, columns)) != columns:
        yield _comment("messages are of several frames, so nothing is interpolated between them")
        columns = turned
    elif topic.name in found.per_time and any(map(_interpolates, columns)):
        yield _comment("several messages share a time, so nothing is interpolated between them")
    for column in columns:
        name = _free_name(topic.base, column.suffix, taken)
        keys = _keys(topic, column, found)
        problem = _problem(name, keys, time, logs)
        if problem is None:
            taken[name] = 1
            sign = _COMMENT if column.is_text and comments_texts else "  "
            yield f"{sign}{name}: {text.flow(keys)}"
        else:
            left_out.setdefault(problem, []).append(column.suffix or topic.name)
    for reason, names in left_out.items():
        yield _comment(f"left out: {some_of(names, MAX_NAMED)}: {reason}")


def _comment(words: str) -> str:
    """Return a comment in one line, for any names of topics."""
    line = printable(words)
    return f"{_COMMENT}{line if len(line) <= MAX_COMMENT else f'{line[: MAX_COMMENT - 1]}…'}"


def _without_mixing(topic: _SuggestedTopic, columns: Sequence[Candidate]) -> list[Candidate]:
    """Return columns of a topic with messages of several frames."""
    if any(map(_interpolates, columns)):
        adapter = FieldSpec(adapter="transforms")
        try:
            topic.log.column_type(topic.name, adapter)
        except OF_CONTENT:
            return [
                column.with_keys(resample="nearest") if _interpolates(column) else column
                for column in columns
            ]
        return [transforms()]
    return list(columns)


def _interpolates(column: Candidate) -> bool:
    """Return whether a column interpolates between messages that should be of one frame and apart in time."""
    return POLICIES[column.policy].uses == "two" and column.keys.get("as") != "joints"


def _free_name(base: str, suffix: str, taken: dict[str, int]) -> str:
    is_new = suffix and suffix != base.rsplit(".", 1)[-1]
    name = f"{base}.{suffix}" if is_new else base
    if name in RESERVED_NAMES or name.rsplit(".", 1)[-1] in RESERVED_LAST_PARTS:
        name += "_"
    wanted = name
    while name in taken:
        taken[wanted] += 1
        name = f"{wanted}_{taken[wanted]}"
    return name


def _keys(topic: _SuggestedTopic, column: Candidate, found: Sample) -> dict[str, Any]:
    """Return the keys of a column in a recipe."""
    keys = {"topic": topic.name, **column.keys}
    if keys.get("as") == "image" and (forms := found.image_forms.get(topic.name)):
        keys["dtype"] = min(form.dtype.name for form in forms)
        if are_two_depths(forms):
            keys |= {"dtype": "float32", "unit": "m"}
        if len(shapes := {form.shape for form in forms}) == 1:
            keys["shape"] = list(*shapes)
    if column.policy == "static" or _is_static(topic):
        return keys | {"resample": "static"}
    if topic.name in found.per_time and _interpolates(column):
        keys["resample"] = "nearest"
    seen = found.joints.get((topic.name, column.suffix))
    period = topic.period if seen is None else round(topic.period * seen.interval)
    return keys | {"tolerance": duration_text(nice(period * 3 // 2))}


def nice(nanoseconds: int) -> int:
    """The next of 1, 2, 5, 10, 20, … ms."""
    step = _MS
    while True:
        for digit in _NICE:
            if digit * step >= nanoseconds:
                return digit * step
        step *= 10


def _problem(
    name: str, keys: Mapping[str, Any], time: Mapping[str, Any], logs: Mapping[str, Log]
) -> str | None:
    """Explain why this column can't be built; None if it can."""
    # Only problems of the column: the whole head would be checked again for each of thousands of columns.
    own = time.get("topics", {}).get(keys["topic"])
    data = {
        "name": "column",
        "logs": ["log"],
        "time": {**time, "topics": {keys["topic"]: own} if own else {}},
        "clock": {"rate": 1},
        "columns": {name: dict(keys)},
        "outputs": {_output(): {}},
    }
    try:
        resolve(Recipe.model_validate(data), logs)
    except OF_CONTENT as error:
        return str(error).splitlines()[0].removeprefix(f"recipe: columns.{name}").lstrip(".: ")
    return None
