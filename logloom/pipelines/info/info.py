"""Descriptions of logs, and suggested recipes: the answer of `logloom info`.

Here: values that print as tables or JSON. No Beam.
Elsewhere: printing (logloom.cli), suggesting recipes (logloom.transforms.suggest.recipe).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Literal

import numpy as np

from logloom.errors import LogReadError
from logloom.io.logs.files.container_log import ContainerLog
from logloom.io.logs.files.log_part import ACTIVE
from logloom.io.logs.interface import Log, LogSummary, OnError, OpenOptions, TopicInfo, unfinished_words
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.match import access_to, group_logs
from logloom.io.logs.opening import open_log
from logloom.io.logs.rates import TopicRate, rates_of
from logloom.io.storage.filesystems import with_access
from logloom.io.video.preview import VideoGlimpse, glimpse
from logloom.text import OnMessage, counted, human_bytes, human_duration, human_time, ignore_message
from logloom.transforms.rows.calibrations import camera_topics, ends_otherwise
from logloom.values import dataclass

COLUMNS = ("topic", "type", "messages", "Hz", "first", "last", "silent")


@dataclass(frozen=True)
class LogDescription:
    """Description of a log.

    Attributes:
        silences: by topic, ns; see `longest_silence`.
        rates: by topic.
        videos: by topic of compressed video, a preview.
        recalibrated: topics of cameras whose last calibration differs from the first.
    """

    log_id: str
    summary: LogSummary
    silences: Mapping[str, int]
    rates: Mapping[str, TopicRate] = field(default_factory=dict)
    videos: Mapping[str, VideoGlimpse] = field(default_factory=dict)
    recalibrated: Sequence[str] = ()

    @property
    def headline(self) -> str:
        s = self.summary
        what = f"{counted(s.num_messages, 'message')} of {counted(len(s.topics), 'topic')}"
        files = f"\n{s.uris[0]}{' …' if len(s.uris) > 1 else ''}"
        if not s.num_messages:
            return f"{self.log_id}: {what}, {human_bytes(s.size)}{files}"
        when = f"in {human_duration(s.last - s.first)}, {human_bytes(s.size)}, from {human_time(s.first)}"
        videos = "".join(f"\n{topic}: {seen.words}" for topic, seen in self.videos.items())
        changed = "".join(
            f"\n{topic}: its last calibration differs from the first; `--tree` shows when it changes"
            for topic in self.recalibrated
        )
        return f"{self.log_id}: {what} {when}{files}{videos}{changed}{self._clock_notes}"

    @property
    def _clock_notes(self) -> str:
        """Describe strays and places where the clock was set back."""
        facts = self.summary.recorded
        strays = "".join(
            f"\n{topic}: {counted(count, 'message')} outside the recording, {stray.reason}: "
            f"{human_time(stray.run.first)}"
            for stray in facts.strays
            for topic, count in stray.run.messages.items()
        )
        return strays + "".join(f"\nthe clock was set back by {place.words}" for place in facts.set_backs)

    def table_rows(self) -> list[tuple[str, ...]]:
        start = self.summary.first
        return [
            (
                t.topic,
                t.type,
                f"{t.num_messages:,}",
                f"{self._rate(t).hertz:.2f}",
                f"{(t.first - start) / 1e9:.3f} s" if t.num_recorded else "",
                f"{(t.last - start) / 1e9:.3f} s" if t.num_recorded else "",
                self._silence(t),
            )
            for t in self.summary.topics.values()
        ]

    def _silence(self, topic: TopicInfo) -> str:
        """Return the share of time without messages, and the longest known silence, if they are unusual."""
        longest, rate = self.silences.get(topic.topic, 0), self._rate(topic)
        share = rate.silence_words.partition(" of ")[0]
        return ", ".join(
            words for words in (share, f"≥ {longest / 1e9:.3f} s" * (longest > 2 * rate.period)) if words
        )

    def _rate(self, topic: TopicInfo) -> TopicRate:
        return self.rates.get(topic.topic, TopicRate(0))

    def to_json(self) -> dict[str, Any]:
        topics = [
            {
                "topic": t.topic,
                "type": t.type,
                "messages": t.num_messages,
                "hz": round(self._rate(t).hertz, 3),
                **({"silent": round(self._rate(t).silent, 3)} if self._rate(t).silence_words else {}),
                "first": t.first if t.num_recorded else None,
                "last": t.last if t.num_recorded else None,
                **({"video": asdict(self.videos[t.topic])} if t.topic in self.videos else {}),
                **({"recalibrated": True} if t.topic in self.recalibrated else {}),
            }
            for t in self.summary.topics.values()
        ]
        unfinished = {"unfinished": dict(self.summary.unfinished)} if self.summary.unfinished else {}
        return {"log_id": self.log_id, "uri": self.summary.uris[0], **unfinished, "topics": topics}


def longest_silence(log: ContainerLog, topic: str) -> int:
    """Return the longest silence of a topic that the index proves, in ns; 0 for none.

    An index has the chunks of a topic with their first and last times, so the true longest gap may be longer;
    `doctor` examines each message.
    """
    shares = np.concatenate([part.shares(topic)[["first", "last"]] for part in log.parts])
    shares = shares[~log.summary.recorded.are_strays(shares["first"])]
    shares = shares[np.argsort(shares["first"], kind="stable")]
    between = shares["first"][1:] - np.maximum.accumulate(shares["last"])[:-1]
    return max(0, int(between.max(initial=0)))


def rate(messages: int, first: int, last: int) -> float:
    """Return messages per second over their own time range; 0 if that is meaningless."""
    return (messages - 1) * 1e9 / (last - first) if messages > 1 and last > first else 0.0


def open_all(
    logs: Sequence[str],
    storage_options: Mapping[str, Any],
    on_error: OnError,
    on_note: OnMessage,
    *,
    takes_unfinished: bool = False,
    lists_unusable: bool = False,
    set_back: Literal["", "first", "last"] = "",
    on_skipped: OnMessage = ignore_message,
) -> tuple[dict[str, Log], dict[str, tuple[str, ...]]]:
    """Open the logs of files, folders or globs; return also the URIs of skipped ones; both by log_id.

    Args:
        on_error: as in recipes.
        on_note: called with notes on salvaged, skipped and unfinished logs.
        takes_unfinished: whether to salvage a log that its recorder hasn't closed, for any `on_error`.
        lists_unusable: whether to skip unusable messages, for any `on_error`.
        set_back: see `OpenOptions`.
        on_skipped: see `group_logs`.

    Raises:
        UsageError: one matches nothing.
        LogReadError: one can't be read, and isn't to be skipped; or none can.
    """
    groups = group_logs(logs, storage_options, on_skipped)
    reads = "skip" if lists_unusable and on_error == "fail" else on_error
    options = OpenOptions(reads, access_to(storage_options, groups), set_back=set_back, guesses_tables=True)
    opened: dict[str, Log] = {}
    skipped: dict[str, tuple[str, ...]] = {}
    for files in groups:
        try:
            opened[files.log_id] = _open(files, options, takes_unfinished)
        except LogReadError as error:
            if on_error == "fail" or len(skipped) + 1 == len(groups):
                raise
            skipped[files.log_id] = files.uris
            on_note(f"skipped: {files.log_id}: {error}")
        else:
            for note in _notes_of(files.log_id, opened[files.log_id].summary):
                on_note(note)
    return opened, skipped


def _open(files: LogFiles, options: OpenOptions, takes_unfinished: bool) -> Log:
    try:
        log = open_log(files.uris, options)
        _ = log.summary
        return log
    except LogReadError:
        if not takes_unfinished or options.on_error == "salvage":
            raise
        salvaged = _unless_damaged(files, replace(options, on_error="salvage"))
        if salvaged is None:
            raise
        return salvaged


def _unless_damaged(files: LogFiles, options: OpenOptions) -> Log | None:
    """Return the log if its only problem is that its recorder hasn't closed it."""
    try:
        log = open_log(files.uris, options)
        return log if log.summary.unfinished else None
    except LogReadError:
        return None


def _notes_of(log_id: str, summary: LogSummary) -> list[str]:
    """Return notes on an incomplete log."""
    notes = [
        f"{uri}: {unfinished_words(why)}; its current content is shown"
        for uri, why in sorted(summary.unfinished.items())
    ]
    if summary.refusals:
        first = max(summary.refusals, key=lambda one: one.num_messages)
        more = f", and {len(summary.refusals) - 1:,} more" if len(summary.refusals) > 1 else ""
        where = f"{first.uri} {first.place}" if first.offset >= 0 else first.uri
        notes.append(f"salvaged: {log_id}: {where}: {first.reason}{more}; `logloom doctor` lists all damage")
    return notes


def describe(
    logs: Sequence[str],
    storage_options: Mapping[str, Any],
    on_error: OnError = "fail",
    on_note: OnMessage = ignore_message,
    on_skipped: OnMessage = ignore_message,
) -> list[LogDescription]:
    """Describe each log; see `open_all`.

    Of one that is still being written, describe its current content, unless damaged logs are skipped.
    """
    described = []
    opened, _ = open_all(
        logs, storage_options, on_error, on_note, takes_unfinished=on_error != "skip", on_skipped=on_skipped
    )
    for log_id, log in opened.items():
        silences: dict[str, int] = {}
        if isinstance(log, ContainerLog):
            silences = {topic: longest_silence(log, topic) for topic in log.summary.topics}
        seen = {topic: glimpse(log, topic) for topic, info in log.summary.topics.items() if info.num_messages}
        videos = {topic: video for topic, video in seen.items() if video is not None}
        rates = rates_of(log)
        described.append(LogDescription(log_id, log.summary, silences, rates, videos, _recalibrated(log)))
    return described


def _recalibrated(log: Log) -> list[str]:
    """See `LogDescription`; without topics whose first or last message is damaged, which `doctor` reports."""
    found = []
    for topic in camera_topics(log):
        with contextlib.suppress(LogReadError):
            found += [topic] if ends_otherwise(log, topic) else []
    return found


def suggested_recipe(
    logs: Sequence[str],
    storage_options: Mapping[str, Any],
    on_error: OnError = "fail",
    on_note: OnMessage = ignore_message,
    on_left_out: OnMessage = ignore_message,
    on_skipped: OnMessage = ignore_message,
) -> str:
    """Return a recipe, as YAML, that builds these logs without changes; see `open_all`.

    Args:
        on_error: under "fail", the recipe salvages logs with a file called .active.
        on_left_out: called with unusable topics, and why; these are also comments in the recipe.
        on_skipped: see `group_logs`.
    """
    from logloom.transforms.suggest.recipe import suggest  # needed by recipes only

    # A topic with unusable messages is left out, so that they needn't fail.
    if on_error == "fail" and any(
        uri.endswith(ACTIVE) for files in group_logs(logs, storage_options) for uri in files.uris
    ):
        on_error = "salvage"  # what its recorder hasn't closed has no index, and mostly a torn end
    opened, skipped = open_all(
        logs, storage_options, on_error, on_note, lists_unusable=True, on_skipped=on_skipped
    )
    set_back = {
        log_id: places[0].words
        for log_id, log in opened.items()
        if (places := log.summary.recorded.set_backs)
    }
    if set_back:
        opened, _ = open_all(
            logs, storage_options, on_error, ignore_message, lists_unusable=True, set_back="first"
        )
    return suggest(
        opened,
        with_access(storage_options, logs),
        on_error=on_error,
        skipped=skipped,
        on_skipped=on_note,
        on_left_out=on_left_out,
        set_back=set_back,
    )
