"""Looking: what logs hold, what a build would do, and the rows of a dataset with their lineage.

Here: the answers of `logloom info`, `plan` and `head` as values that print as tables or JSON. No Beam.
Elsewhere: printing (logloom.cli), suggesting recipes (logloom.transforms.suggest).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from logloom.errors import LogReadError, UsageError
from logloom.io.entries import Entry
from logloom.io.logs.base import Log, LogSummary, OnError, OpenOptions, TopicInfo, unfinished_words
from logloom.io.logs.log import ContainerLog
from logloom.io.logs.match import LogFiles, access_to, group_logs
from logloom.io.logs.opening import open_log
from logloom.io.manifest import LogRecord, entries_of, read_manifest
from logloom.io.storage import Store, with_access
from logloom.io.units import by_preference
from logloom.pipelines import splits
from logloom.pipelines.plan import BuildPlan
from logloom.pipelines.progress import human_bytes
from logloom.pipelines.verify import reading_of
from logloom.pipelines.why import Explainer, Why, iso8601
from logloom.schema import NO_AGE, Schema
from logloom.transforms.suggest import Tell, no_words, suggest
from logloom.words import counted

_JPEG = b"\xff\xd8\xff"

COLUMNS = ("topic", "type", "messages", "Hz", "first", "last", "silent")


# --- logs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogDescription:
    """What `info` says of a log.

    Attributes:
        silences: by topic, ns; see `longest_silence`.
    """

    log_id: str
    summary: LogSummary
    silences: Mapping[str, int]

    @property
    def headline(self) -> str:
        s = self.summary
        what = f"{counted(s.num_messages, 'message')} of {counted(len(s.topics), 'topic')}"
        files = f"\n{s.uris[0]}{' …' if len(s.uris) > 1 else ''}"
        if not s.num_messages:
            return f"{self.log_id}: {what}, {human_bytes(s.size)}{files}"
        seconds = (s.last - s.first) / 1e9
        return f"{self.log_id}: {what} in {seconds:.1f} s, {human_bytes(s.size)}, from {utc(s.first)}{files}"

    def table_rows(self) -> list[tuple[str, ...]]:
        start = self.summary.first
        return [
            (
                t.topic,
                t.type,
                f"{t.num_messages:,}",
                f"{rate(t.num_messages, t.first, t.last):.2f}",
                f"{(t.first - start) / 1e9:.3f} s" if t.num_messages else "",
                f"{(t.last - start) / 1e9:.3f} s" if t.num_messages else "",
                self._silence(t),
            )
            for t in self.summary.topics.values()
        ]

    def _silence(self, topic: TopicInfo) -> str:
        """The longest known silence of a topic, where it is longer than usual."""
        longest = self.silences.get(topic.topic, 0)
        usual = (topic.last - topic.first) / max(1, topic.num_messages - 1)
        return f"≥ {longest / 1e9:.3f} s" if longest > 2 * usual else ""

    def to_json(self) -> dict[str, Any]:
        topics = [
            {
                "topic": t.topic,
                "type": t.type,
                "messages": t.num_messages,
                "hz": round(rate(t.num_messages, t.first, t.last), 3),
                "first": t.first if t.num_messages else None,
                "last": t.last if t.num_messages else None,
            }
            for t in self.summary.topics.values()
        ]
        unfinished = {"unfinished": dict(self.summary.unfinished)} if self.summary.unfinished else {}
        return {"log_id": self.log_id, "uri": self.summary.uris[0], **unfinished, "topics": topics}


def longest_silence(log: ContainerLog, topic: str) -> int:
    """The longest time, in ns, between two messages of a topic that the index proves; 0 where it proves none.

    An index tells which chunks hold a topic and when these begin and end, so the true longest gap may be
    longer; `doctor` looks at each message.
    """
    shares = np.concatenate([part.shares(topic)[["first", "last"]] for part in log.parts])
    shares = shares[np.argsort(shares["first"], kind="stable")]
    between = shares["first"][1:] - np.maximum.accumulate(shares["last"])[:-1]
    return max(0, int(between.max(initial=0)))


def rate(messages: int, first: int, last: int) -> float:
    """Messages a second over their own time range; 0 where that says nothing."""
    return (messages - 1) * 1e9 / (last - first) if messages > 1 and last > first else 0.0


def utc(time_ns: int) -> str:
    """A time for people."""
    try:
        moment = datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.UTC)
    except (ValueError, OverflowError):
        return f"{time_ns} ns"
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def open_all(
    logs: Sequence[str],
    storage_options: Mapping[str, Any],
    on_error: OnError,
    tell: Tell,
    *,
    takes_unfinished: bool = False,
    lists_unusable: bool = False,
) -> tuple[dict[str, Log], dict[str, tuple[str, ...]]]:
    """The logs that files, folders or globs mean, and the URIs of those that are skipped; both by log_id.

    Args:
        on_error: as recipes have it.
        tell: told what was salvaged, skipped or is still being written.
        takes_unfinished: whether a log that its recorder hasn't closed is salvaged, whatever `on_error` says.
        lists_unusable: whether to read on over messages that can't be used, whatever `on_error` says.

    Raises:
        UsageError: one matches nothing.
        LogReadError: one can't be read, and isn't to be skipped; or none can.
    """
    groups = group_logs(logs, storage_options)
    reads = "skip" if lists_unusable and on_error == "fail" else on_error
    options = OpenOptions(reads, access_to(storage_options, groups))
    opened: dict[str, Log] = {}
    skipped: dict[str, tuple[str, ...]] = {}
    for files in groups:
        try:
            opened[files.log_id] = _open(files, options, takes_unfinished)
        except LogReadError as error:
            if on_error == "fail" or len(skipped) + 1 == len(groups):
                raise
            skipped[files.log_id] = files.uris
            tell(f"skipped: {files.log_id}: {error}")
        else:
            for note in _notes_of(files.log_id, opened[files.log_id].summary):
                tell(note)
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
    """The log, where what is wrong with it is that its recorder hasn't closed it."""
    try:
        log = open_log(files.uris, options)
        return log if log.summary.unfinished else None
    except LogReadError:
        return None


def _notes_of(log_id: str, summary: LogSummary) -> list[str]:
    """What is to say of a log that isn't whole."""
    notes = [
        f"{uri}: {unfinished_words(why)}; shown is what is in it now"
        for uri, why in sorted(summary.unfinished.items())
    ]
    if summary.refusals:
        first = summary.refusals[0]
        more = f", and {len(summary.refusals) - 1:,} more" if len(summary.refusals) > 1 else ""
        where = f"{first.uri} {first.place}" if first.offset >= 0 else first.uri
        notes.append(f"salvaged: {log_id}: {where}: {first.reason}{more}; `logloom doctor` lists all damage")
    return notes


def describe(
    logs: Sequence[str],
    storage_options: Mapping[str, Any],
    on_error: OnError = "fail",
    tell: Tell = no_words,
) -> list[LogDescription]:
    """What `info` says of each log; see `open_all`. Of one that is still being written, what is in it now."""
    described = []
    opened, _ = open_all(logs, storage_options, on_error, tell, takes_unfinished=True)
    for log_id, log in opened.items():
        silences: dict[str, int] = {}
        if isinstance(log, ContainerLog):
            silences = {topic: longest_silence(log, topic) for topic in log.summary.topics}
        described.append(LogDescription(log_id, log.summary, silences))
    return described


def suggested_recipe(
    logs: Sequence[str],
    storage_options: Mapping[str, Any],
    on_error: OnError = "fail",
    tell: Tell = no_words,
    tell_left_out: Tell = no_words,
) -> str:
    """A recipe, as YAML, that builds these logs as it stands; see `open_all`.

    Args:
        tell_left_out: told which topics can't be used, and why; comments in the recipe say it, too.
    """
    # A topic whose messages can't be used is left out, so that they need not fail.
    opened, skipped = open_all(logs, storage_options, on_error, tell, lists_unusable=True)
    return suggest(
        opened,
        with_access(storage_options, logs),
        on_error=on_error,
        skipped=skipped,
        tell_skipped=tell,
        tell_left_out=tell_left_out,
    )


# --- plans ----------------------------------------------------------------------------------------------


def plan_summary(plan: BuildPlan) -> dict[str, Any]:
    """What a build would do, as names and values."""
    units = plan.num_partitions * len(plan.job.outputs)
    finished = plan.finished()
    return {
        "root": plan.job.store.uri,
        "version": plan.job.parent if plan.up_to_date else plan.job.number,
        "up_to_date": plan.up_to_date,
        "logs_to_read": len(plan.logs),
        "logs_reused": len(plan.job.kept) - len(plan.unreadable),
        "logs_skipped": len(plan.unreadable),
        "logs_gone": len(plan.dropped),
        "partitions": plan.num_partitions,
        "rows_at_most": plan.num_ticks,
        "units_to_build": units - finished,
        "units_finished": finished,
        "message_bytes": plan.message_bytes,
        "largest_partition_bytes": plan.largest_partition,
        "chunk_reads": plan.chunk_reads,
        "columns": len(plan.job.schema.columns),
        "outputs": list(plan.job.outputs),
        "splits": (counts := splits.planned_splits(plan)),
        "warnings": splits.empty_splits(counts),
    }


def in_words(name: str, value: Any) -> str:
    """A value of `plan_summary` for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes"):
        return human_bytes(value)
    if isinstance(value, int):
        return f"{value:,}"
    if name == "splits":
        return splits.in_words(value)
    return ", ".join(value) if isinstance(value, list) else str(value)


# --- rows -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShownRow:
    """A row of a dataset and where it comes from.

    Attributes:
        values: log_id, timestamp, columns, and the ages and availabilities that the output holds.
        why: its lineage, where it was asked for.
    """

    values: Mapping[str, Any]
    schema: Schema
    columns: tuple[str, ...]
    record: LogRecord
    entry: Entry
    why: Why | None = None

    def headline(self) -> str:
        """Which row it is, and with its lineage of which files."""
        stamp = int(self.values["timestamp"])
        files = "".join(f"\n{uri}" for uri in self.record.uris) if self.why else ""
        return f"{self.values['log_id']} {stamp} ({utc(stamp)}){files}"

    def lines(self) -> list[tuple[str, ...]]:
        """(column, value) for a table, with lineage (message time, the same in UTC, age, place)."""
        lines: list[tuple[str, ...]] = []
        for name in self.columns:
            value = brief(self.values[name])
            lines += self.why.lines(name, value, self._age(name)) if self.why else [(name, value)]
        return lines

    def _age(self, name: str) -> int | None:
        age = int(self.values.get(f"{name}.age", NO_AGE))
        return None if age == NO_AGE else age

    def to_json(self) -> dict[str, Any]:
        row = {"log_id": self.values["log_id"], "timestamp": int(self.values["timestamp"])}
        row |= {name: as_json(self.values[name]) for name in self.columns}
        if self.why is None:
            return row
        lineage = {
            name: {
                "age": as_json(self.values.get(f"{name}.age")),
                "available": as_json(self.values.get(f"{name}.available")),
                **self.why.to_json(name),
            }
            for name in self.columns
        }
        why = {"timestamp_iso": iso8601(row["timestamp"]), "uris": list(self.record.uris)}
        unit = {"output": self.entry.output, "partition": self.entry.partition, "folder": self.entry.folder}
        return row | {"why": {**why, "unit": unit, "columns": lineage}}


def head(
    root: str,
    version: int | str = "latest",
    *,
    output: str | None = None,
    start: int = 0,
    count: int = 5,
    columns: Sequence[str] | None = None,
    why: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> list[ShownRow]:
    """Rows `start` to `start + count` of a version, read through its connector.

    Args:
        output: None for the one that `logloom.datasets.open` takes.
        why: also find their lineage in the logs.

    Raises:
        UsageError: no such version, output, column or row.
    """
    store = Store.at(root, storage_options)
    manifest = read_manifest(store, version)
    reading = reading_of(store, manifest)
    output = output or by_preference(manifest.outputs)[0]
    if output not in manifest.outputs:
        raise UsageError(f"no output {output!r} in version {manifest.version}; {', '.join(manifest.outputs)}")
    explainer = Explainer(store, manifest) if why else None
    shown: list[ShownRow] = []
    skip = start
    for record, entry in entries_of(store, manifest.logs):
        if entry.output != output or not entry.rows:
            continue
        if start >= entry.rows:
            start -= entry.rows
            continue
        reader = reading.open(entry)
        names = reader.schema.select(columns)
        wanted = (*names, *(m for m in reader.schema.meta if m.rsplit(".", 1)[0] in names))
        for index in range(start, min(entry.rows, start + count - len(shown))):
            values = reader.row(index, wanted)
            found = explainer.why(record, int(values["timestamp"])) if explainer else None
            shown.append(ShownRow(values, reader.schema, names, record, entry, found))
        start = 0
        if len(shown) >= count:
            break
    if not shown and skip:
        rows = skip - start
        raise UsageError(
            f"{store.uri}: version {manifest.version} has {counted(rows, 'row')}, so none is at {skip:,}"
        )
    return shown


def brief(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, bytes):
        kind = " (JPEG)" if value.startswith(_JPEG) else ""
        return f"{counted(len(value), 'byte')}{kind}"
    if isinstance(value, np.ndarray) and value.ndim:
        if value.size > 9 or value.dtype.names:
            kind = "struct" if value.dtype.names else str(value.dtype)
            return f"{kind} {' x '.join(map(str, value.shape))}"
        with np.printoptions(formatter={"float_kind": lambda number: f"{number:.6g}"}, linewidth=1000):
            return np.array2string(value, separator=", ").replace("\n", "")
    text = f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def as_json(value: Any) -> Any:
    """A value as JSON: bytes as their length, non-finite floats as text."""
    if isinstance(value, bytes):
        return {"bytes": len(value)}
    if isinstance(value, np.ndarray) and value.dtype.names:
        if value.ndim:
            return [as_json(item) for item in value]
        return {name: as_json(value[name]) for name in value.dtype.names}
    if isinstance(value, np.void):
        return {name: as_json(value[name]) for name in value.dtype.names or ()}
    if isinstance(value, np.ndarray):
        return [as_json(item) for item in value] if value.ndim else as_json(value[()])
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
