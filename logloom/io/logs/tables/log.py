"""Logs of tables: one file per topic, one row per message.

Files are `<topic>.parquet`, `<topic>.feather` or `<topic>.csv`.

Here: `TableLog`, which reads only requested row groups and columns.
Elsewhere: its kind (reader), the files, their columns and times (logloom.io.logs.table_files), files with one
message each (sweeps), grouping files to logs (logloom.io.logs.match). The time of a row is its log time; rows
have no header. Files of one topic are joined in name order. The position of a row is (group number << 32) |
row in its group, groups counted over these files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from logloom import blocks
from logloom.blocks import Ragged, Values
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.files.lazy_attributes import lazy
from logloom.io.logs.files.log_part import damage_error
from logloom.io.logs.files.ranges import LogFile, content_id
from logloom.io.logs.interface import (
    MIN_TIME,
    TABLE_ROW,
    FieldSpec,
    LogSummary,
    MessagePlace,
    Messages,
    MessageTime,
    OpenOptions,
    Refusal,
    StatedTime,
    TopicInfo,
    TopicRequest,
    source_of,
)
from logloom.io.logs.message_times import Stamped, stated, within
from logloom.io.logs.messages import adapters
from logloom.io.logs.messages.definitions import Struct
from logloom.io.logs.messages.field_times import field_time
from logloom.io.logs.messages.fields import select
from logloom.io.logs.messages.partial import without_nan
from logloom.io.logs.messages.ros.languages import parse
from logloom.io.logs.messages.values import UnfitError
from logloom.io.logs.recording_times import MessageTimes, RecordedTime, is_static, recorded
from logloom.io.logs.table_dialects import TableDialect, dialect_for
from logloom.io.logs.table_files.columns import (
    definition_of,
    may_lack,
    present,
    top_level,
    values_of,
    without_type,
)
from logloom.io.logs.table_files.files import CsvTable, TableFile, table_file
from logloom.io.logs.table_files.guesses import guess, is_time_name, paths_of
from logloom.io.logs.table_files.row_times import (
    column_at,
    path_to,
    resolution,
    shows_no_zone,
    times_by,
)
from logloom.io.logs.table_files.times import TIME_COLUMNS, time_column, times_in
from logloom.io.logs.tables import named_files, sweeps
from logloom.io.storage.filesystems import file_name_of
from logloom.io.storage.lru_cache import LruCache
from logloom.schema import BYTES, ColumnType
from logloom.text import some_of
from logloom.values import dataclass

KEPT_BYTES = 64 << 20  # of columns read last, as rows are taken block by block

_REMEDY = "fill in or drop these rows"
_NO_TIME = "it has no time"
_NO_CLEAR_TIME = "it has no time that can be read, or a local one that occurs twice or never"
_TIMES = "times, which all rows have"


@dataclass(frozen=True)
class TableTopic:
    """The files of one topic, and the time of each row.

    Attributes:
        groups: (file, group in it) of each group, in position order.
        time: (N,) of every row; `MIN_TIME` if it has none.
        group: (N,) the number of each row's group; row: (N,) the row in it.
    """

    info: TopicInfo
    root: Struct
    files: tuple[TableFile, ...]
    groups: tuple[tuple[int, int], ...]
    time: NDArray[np.int64]
    group: NDArray[np.int64]
    row: NDArray[np.int64]

    @property
    def position(self) -> NDArray[np.int64]:
        return (self.group << 32) | self.row


@dataclass
class TableMessages:
    """See `Messages`; values are read when taken."""

    topic: str
    time: NDArray[np.int64]
    log_time: NDArray[np.int64]
    position: NDArray[np.int64]
    refused: Sequence[Refusal]
    log: TableLog

    def __len__(self) -> int:
        return len(self.time)

    def take(self, spec: FieldSpec, rows: NDArray[np.intp]) -> Values:
        return self.log.take(self.topic, spec, self.position[rows])

    def has_value(self, spec: FieldSpec) -> NDArray[np.bool_] | None:
        return self.log.has_value(self.topic, spec, self.position)


class TableLog:
    """See `Log`. Keeps no file open; pickles as its arguments; thread-safe."""

    def __init__(self, uris: Sequence[str], options: OpenOptions):
        """
        Args:
            uris: the files of one log, in any order.
        """
        self._uris = tuple(sorted(uris))
        self._options = options
        self._kept: LruCache[pa.ChunkedArray] = LruCache(KEPT_BYTES)
        self._whole: set[tuple[str, int, FieldSpec]] = set()  # groups where each row has a value

    def __reduce__(self) -> tuple[Any, ...]:
        return (TableLog, (self._uris, self._options))

    @lazy
    def summary(self) -> LogSummary:
        files = [LogFile(uri, self._options.storage_options) for uri in self._uris]
        facts = self._recorded
        infos = {name: _without_strays(self._topics[name], facts) for name in sorted(self._topics)}
        spans, sizes = self._spans()
        return LogSummary(
            self._uris,
            sum(file.size for file in files),
            self._content_id(files),
            infos,
            facts.first,
            facts.last,
            spans,
            sizes,
            tuple(self._damage),
            known_times=facts,
            is_told_by_files=not any(named_files.text_columns(t.root) for t in self._topics.values()),
        )

    def dialects(self) -> dict[str, TableDialect]:
        """See `OfTables.dialects`."""
        stated = self._options.tables
        files = (file for topic in self._topics.values() for file in topic.files)
        return {file.uri: file.how for file in files if dialect_for(file.uri, stated) is None}

    def time_notes(self, uri: str) -> list[str]:
        """See `OfTables.time_notes`."""
        for topic in self._topics.values():
            for at, file in enumerate(topic.files):
                if file.uri == uri and not isinstance(file, sweeps.SweepFile):
                    inside = np.array([one == at for one, _ in topic.groups], np.bool_)[topic.group]
                    return _time_notes(file, topic.time[inside])
        return []

    def left_out(self, topic: str) -> dict[str, str]:
        """See `OfTables.left_out`."""
        file = self._topic(topic).files[0]
        found = {name: f"{kind}: no column has this type" for name, kind in without_type(file.schema).items()}
        if isinstance(file, sweeps.SweepFile):
            return found
        time = file.how.row_time
        used = time.names if time else (time_column(file.schema.names),)
        return found | {
            path: _TIMES for path, _ in paths_of(file.schema) if path in used or is_time_name(path)
        }

    @lazy
    def _recorded(self) -> RecordedTime:
        """Recording times. Rows of a table have no order apart from their times."""
        times = {name: topic.time[topic.time != MIN_TIME] for name, topic in self._topics.items()}
        return recorded(MessageTimes.of(times)).within(*self._options.extent)

    def column_type(self, topic: str, spec: FieldSpec) -> ColumnType:
        found = self._topic(topic)
        try:
            if spec.adapter == named_files.NAME:
                named_files.check(spec, found.root)
                return BYTES
            return adapters.column_type(spec, found.root)
        except UsageError as error:
            why = str(error)
            for name, kind in without_type(found.files[0].schema).items():
                if any(f"{path}.".startswith((f"{name}.", f"{name}[")) for path in spec.paths):
                    why = f"field {name!r} is {kind}, so it can't be a column"
            raise type(error)(f"topic {topic} ({found.files[0].uri}): {why}") from None

    def time_source(self, topic: str, sources: Sequence[MessageTime]) -> MessageTime | None:
        found = self._topic(topic)
        for source in sources:
            if isinstance(source, StatedTime) and source.by is None:
                try:
                    field_time(found.root, source.field, source.unit)
                except UsageError as error:
                    raise UsageError(f"topic {topic} ({found.files[0].uri}): {error}") from None
                return source
            if source_of(source) != "header":
                return source
        return None

    def read(self, requests: Mapping[str, TopicRequest]) -> dict[str, Messages]:
        found: dict[str, Messages] = {}
        for name in sorted(requests.keys() & self._topics.keys()):
            topic, request = self._topics[name], requests[name]
            source = self.time_source(name, request.time)
            if source is None:
                raise UsageError(
                    f"{topic.files[0].uri}: rows of tables have no header, only a log time: add log"
                )
            recorded = topic.time != MIN_TIME
            if self._recorded.strays and not (request.with_strays or is_static(name)):
                recorded &= ~self._recorded.are_strays(topic.time)
            if not isinstance(source, StatedTime):
                wanted = within(topic.time, request.start, request.stop) & recorded
                found[name] = self._messages(name, np.flatnonzero(wanted))
                continue
            stamped = self._stated(name, source, request.max_delay)
            wanted = within(stamped.time, request.start, request.stop) & recorded & stamped.usable
            lost = within(topic.time, request.start, request.stop) & recorded & ~stamped.usable
            refused = [_refused(topic, row, stamped.reason(row)) for row in np.flatnonzero(lost).tolist()]
            if refused and self._options.on_error == "fail":
                raise damage_error(refused, _REMEDY)
            found[name] = self._messages(name, np.flatnonzero(wanted), stamped.time, refused)
        return found

    def _stated(self, name: str, source: StatedTime, max_delay: int | None) -> Stamped:
        """Return the times of all rows that a recipe states for a topic."""
        topic = self._topics[name]
        times = topic.time
        if source.by is None:
            times = self._times_in(name, source)
        return stated(times, topic.time, source, max_delay)

    def _times_in(self, name: str, source: StatedTime) -> NDArray[np.int64]:
        """(N,) times in a column of a topic, in ns; `MIN_TIME` for null. Those read last are kept."""
        topic = self._topics[name]
        path = select(topic.root, source.field).names
        parts = []
        for at, group in topic.groups:
            file = topic.files[at]
            column = self._columns(file, group, path[:1]).column(path[0])
            try:
                parts.append(times_in(column, path[1:], source.unit))
            except (UsageError, pa.ArrowException) as error:
                raise LogReadError(f"{file.uri}: column {source.field}: {error}") from error
        return np.concatenate([*parts, np.empty(0, np.int64)])

    def sampled_times(self) -> Iterator[dict[str, NDArray[np.int64]]]:
        """Yield the times of all rows, by topic, without strays."""
        known = {name: topic.time[topic.time != MIN_TIME] for name, topic in self._topics.items()}
        yield {name: times[~self._recorded.are_strays(times)] for name, times in known.items()}

    def places(self, topic: str, positions: NDArray[np.int64]) -> list[MessagePlace]:
        found = self._topic(topic)
        known, usable = found.position, np.cumsum(found.time != MIN_TIME) - 1
        rows = np.searchsorted(known, positions)
        if not (known[np.minimum(rows, len(known) - 1)] == positions).all():
            raise UsageError(f"{found.files[0].uri}: not all of {positions.tolist()} are positions of rows")
        places = []
        for row in rows.tolist():
            at, group = found.groups[int(found.group[row])]
            file = found.files[at]
            line = file.groups[group].first + int(found.row[row])
            places.append(MessagePlace(file.uri, "row", line, None, int(usable[row])))
        return places

    def last_message(self, topic: str, spec: FieldSpec | None = None) -> Messages:
        usable = np.flatnonzero(self._topic(topic).time != MIN_TIME)
        if spec is None:
            return self._messages(topic, usable[-1:])
        for part in reversed(np.split(usable, np.flatnonzero(np.diff(self._topic(topic).group[usable])) + 1)):
            held = self.has_value(topic, spec, self._topic(topic).position[part])
            if len(found := part if held is None else part[held]):
                return self._messages(topic, found[-1:])
        return self._messages(topic, usable[:0])

    def has_value(self, topic: str, spec: FieldSpec, position: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """(N,) whether the row at each of these positions has a value; see `Messages.has_value`."""
        group, row = position >> 32, position & 0xFFFFFFFF
        found = self._topic(topic)
        plain = FieldSpec(spec.paths) if spec.adapter == named_files.NAME else spec
        held: NDArray[np.bool_] | None = None
        for number in np.unique(group).tolist():
            of_group = self._group_has_value(found, plain, number)
            if of_group is not None:
                held = np.ones(len(position), np.bool_) if held is None else held
                held[group == number] = of_group[row[group == number]]
        return without_nan(held, len(position), spec, lambda rows: self.take(topic, spec, position[rows]))

    def _group_has_value(self, topic: TableTopic, spec: FieldSpec, number: int) -> NDArray[np.bool_] | None:
        """(N,) whether each row of a group has a value; None if all have, or reading them is an error."""
        at, group = topic.groups[number]
        file = topic.files[at]
        wanted = top_level(spec, topic.root)
        can_lack = file.marks_nothing or may_lack(file.schema, spec, topic.root)
        if not can_lack or (file.uri, group, spec) in self._whole:
            return None
        try:
            held = present(self._columns(file, group, wanted), spec, topic.root, file.marks_nothing)
        except (LogReadError, UnfitError, pa.ArrowException):
            return None  # `take` reports it
        if held is None:
            self._whole.add((file.uri, group, spec))
        return held

    def take(self, topic: str, spec: FieldSpec, position: NDArray[np.int64]) -> Values:
        """Take a column's values from the rows at these positions.

        Raises:
            LogReadError: a file is damaged, or a row lacks a value that the column needs.
        """
        ctype = self.column_type(topic, spec)
        if len(position) == 0:
            return blocks.empty(ctype)
        group, row = position >> 32, position & 0xFFFFFFFF
        # Each group is read once; then rows are put in the requested order.
        order = np.argsort(group, kind="stable")
        numbers, starts = np.unique(group[order], return_index=True)
        parts = [
            self._take_group(topic, spec, int(number), row[rows])
            for number, rows in zip(numbers, np.split(order, starts[1:]), strict=True)
        ]
        back = np.empty(len(order), np.intp)
        back[order] = np.arange(len(order))
        return blocks.take(blocks.concatenate(parts), back)

    def _take_group(self, name: str, spec: FieldSpec, number: int, rows: NDArray[np.int64]) -> Values:
        topic = self._topics[name]
        at, group = topic.groups[number]
        file = topic.files[at]
        is_named = spec.adapter == named_files.NAME
        if is_named:
            spec = FieldSpec(spec.paths)
        wanted = top_level(spec, topic.root)
        table = self._columns(file, group, wanted).take(pa.array(rows))
        try:
            values = values_of(table, spec, topic.root)
        except (UnfitError, pa.ArrowException) as error:
            row = rows[error.row] if isinstance(error, UnfitError) and error.row < len(rows) else rows[0]
            line = file.groups[group].first + int(row)
            raise LogReadError(f"{file.uri}: {', '.join(wanted)} at row {line}: {error}") from error

        if not is_named:
            return values
        names = [name.tobytes().decode() for name in values]
        return Ragged.from_bytes(named_files.read_named(file.uri.rsplit("/", 1)[0], names, self._options))

    def _columns(self, file: TableFile, group: int, names: Sequence[str]) -> pa.Table:
        """Return columns of a group; the latest are cached."""
        found = {name: self._kept.get((file.uri, group, name)) for name in names}
        missing = [name for name, column in found.items() if column is None]
        if missing:
            table = file.read(group, missing)
            found |= {name: table.column(name) for name in missing}
        for name in missing:
            self._kept.put((file.uri, group, name), found[name])
        return pa.table(found)

    def _content_id(self, files: Sequence[LogFile]) -> str:
        """Content id of the tables, and, if they name files, of their sizes, which columns may read."""
        named = [
            named_files.sizes(file, self._topics[name].root, self._options)
            for name in sorted(self._topics)
            for file in self._topics[name].files
        ]
        plain = content_id(*files, hash=self._options.hash)
        if self._options.hash == "full":
            tables = [file for name in sorted(self._topics) for file in self._topics[name].files]
            for file, names in zip(tables, named, strict=True):
                plain = named_files.with_contents(plain, file, names, self._options)
        return named_files.with_sizes(plain, named) if any(named) else plain

    def _messages(
        self,
        name: str,
        rows: NDArray[np.intp],
        times: NDArray[np.int64] | None = None,
        refused: Sequence[Refusal] = (),
    ) -> TableMessages:
        """Return some rows of a topic; `times` are those of all rows if they aren't the log times."""
        topic = self._topics[name]
        log_time = topic.time[rows]
        time = log_time if times is None else times[rows]
        return TableMessages(name, time, log_time, topic.position[rows], refused, self)

    def _topic(self, name: str) -> TableTopic:
        if name not in self._topics:
            known = ", ".join(sorted(self._topics))
            raise UsageError(f"{self._uris[0]}: no topic {name}; there are {known}")
        return self._topics[name]

    @lazy
    def _damage(self) -> list[Refusal]:
        """Find unusable rows, as far as their times show them; empty unless salvaging."""
        return self._opened[1]

    @lazy
    def _topics(self) -> dict[str, TableTopic]:
        return self._opened[0]

    @lazy
    def _opened(self) -> tuple[dict[str, TableTopic], list[Refusal]]:
        by_topic: dict[str, list[TableFile]] = {}
        damage: list[Refusal] = []
        files = [self._file(uri, damage) for uri in self._uris]
        known = [file for file in files if file is not None]
        for file in sweeps.with_sweeps(known, self._options.time_names):
            by_topic.setdefault(sweeps.topic_of(file), []).append(file)
        if self._options.on_error != "salvage":
            sweeps.check_times(
                [file for files in by_topic.values() for file in files],
                partial(advice, options=self._options),
            )
        topics: dict[str, TableTopic] = {}
        for name, files_of_topic in by_topic.items():
            whole: list[tuple[TableFile, list[NDArray[np.int64]]]] = []
            for file in files_of_topic:
                try:
                    whole.append((file, _times(file, self._options)))
                except LogReadError as error:
                    self._refuse(file.uri, name, error, damage)
            sweeps.check_folders(name, [file for file, _ in whole])
            if whole:
                topics[name] = _join(name, whole)
                damage += _untimed(topics[name])
        if damage and self._options.on_error != "salvage":
            raise damage_error(damage, _REMEDY)
        return topics, damage

    def _file(self, uri: str, damage: list[Refusal]) -> TableFile | None:
        """Return a table, as the recipe describes it, or as guessed; None if it is damaged."""
        how = dialect_for(uri, self._options.tables)
        try:
            if how is None and self._options.guesses_tables:
                how = guess(uri, self._options)
        except LogReadError as error:
            self._refuse(uri, "", error, damage)
            return None
        return table_file(uri, self._options, how or TableDialect())

    def _refuse(self, uri: str, topic: str, error: LogReadError, damage: list[Refusal]) -> None:
        """Add a file to the damage if it may be left out; else raise the error."""
        if self._options.on_error != "salvage":
            raise error
        damage.append(Refusal(uri, 0, topic, 0, 0, str(error), 0))

    def _spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(C, 2) first and last time of each group with times, and (C,) its bytes."""
        spans: list[tuple[int, int]] = []
        sizes: list[int] = []
        for name in sorted(self._topics):
            topic = self._topics[name]
            edges = np.searchsorted(topic.group, np.arange(len(topic.groups) + 1))
            for number, (at, group) in enumerate(topic.groups):
                times = topic.time[edges[number] : edges[number + 1]]
                times = np.sort(times[times != MIN_TIME])
                num_bytes = topic.files[at].groups[group].num_bytes
                for run in self._recorded.read:
                    inside = times[(times >= run.first) & (times <= run.last)]
                    if len(inside):
                        spans.append((int(inside[0]), int(inside[-1])))
                        sizes.append(num_bytes * len(inside) // len(times))
        return np.array(spans, np.int64).reshape(-1, 2), np.array(sizes, np.int64)


def _times(file: TableFile, options: OpenOptions) -> list[NDArray[np.int64]]:
    """Return the times of each group of a file.

    Raises:
        LogReadError: there are none, or they can't be read.
        UsageError: the recipe states columns that the file lacks.
    """
    if isinstance(file, sweeps.SweepFile):
        return [np.array([file.time])]
    try:
        has_time = file.how.time is not None or time_column(file.schema.names) is not None
        if has_time:
            return times_by(file)
    except LogReadError as error:
        raise type(error)(f"{error}{advice(file, options)}") from error
    raise LogReadError(
        f"{file.uri}: has no time column ({', '.join(TIME_COLUMNS)}), "
        f"only {some_of(file.schema.names, 20)}.{advice(file, options) or f' {sweeps.WAY_OUT}'}"
    )


def advice(file: TableFile, options: OpenOptions) -> str:
    """Return the lines for a recipe with which a table that can't be read is, if they can be guessed."""
    import yaml

    try:
        stated = dialect_for(file.uri, options.tables)
        how = guess(file.uri, options, stated)
    except (LogReadError, UsageError):
        return ""
    if how == file.how or how.is_plain or options.guesses_tables:
        return ""
    entry = yaml.safe_dump(
        how.to_data(), sort_keys=False, allow_unicode=True, default_flow_style=True, width=1 << 30
    ).strip()
    return f"\nTo read it, write in the recipe, if this guess is right:\ntables:\n- {entry}"


def _time_notes(file: TableFile, times: NDArray[np.int64]) -> list[str]:
    how = file.how.row_time
    name = (how.columns or (None,))[0] if how else time_column(file.schema.names)
    path = path_to(file.schema, name) if name else None
    if path is None:
        return []
    kind = column_at(file.schema.empty_table(), path).type
    if pa.types.is_floating(kind) and not isinstance(file, CsvTable):
        return [f"float seconds resolve {resolution(times, kind)} ns here"]
    is_plain = pa.types.is_timestamp(kind) and not kind.tz and not (how and how.zone)
    if not (is_plain or shows_no_zone(file)):
        return []
    zone = "`zone: Europe/Berlin`, or what it is, in its `time`"
    if how is None:
        zone = f"tables: [{{files: {file_name_of(file.uri)}, time: {{column: {name}, zone: Europe/Berlin}}}}]"
    return [f"its times have no zone and are taken as UTC; if they are local, write {zone}"]


def _join(name: str, whole: Sequence[tuple[TableFile, list[NDArray[np.int64]]]]) -> TableTopic:
    """Join files of a topic; raise LogReadError if their columns differ."""
    files = [file for file, _ in whole]
    definitions = [definition_of(file.schema) for file in files]
    for file, definition in zip(files, definitions, strict=True):
        if definition != definitions[0]:
            odd = some_of(_differences(file.schema, files[0].schema)) or "their order"
            raise LogReadError(
                f"{file.uri}: has other columns than {files[0].uri} ({odd}), so they can't be one topic "
                f"({name}). Give them different log_ids."
            )
    parts = [times for _, groups in whole for times in groups]
    time = np.concatenate([*parts, np.empty(0, np.int64)])
    known = time[time != MIN_TIME]
    first, last = (int(known.min()), int(known.max())) if len(known) else (0, 0)
    encoding = files[0].uri.rsplit(".", 1)[-1]
    text, num_times = definitions[0].encode(), len(np.unique(known))
    info = TopicInfo(name, TABLE_ROW, encoding, "ros2msg", text, len(time), first, last, num_times)
    lengths = [len(part) for part in parts]
    return TableTopic(
        info,
        parse(info),
        tuple(files),
        tuple((at, group) for at, (_, groups) in enumerate(whole) for group in range(len(groups))),
        time,
        np.repeat(np.arange(len(parts)), lengths),
        np.concatenate([np.empty(0, np.int64), *(np.arange(length) for length in lengths)]),
    )


def _differences(one: pa.Schema, other: pa.Schema) -> list[str]:
    first, second = (dict(zip(schema.names, schema.types, strict=True)) for schema in (one, other))
    return [
        f"{name}: {first.get(name, 'none')} and {second.get(name, 'none')}"
        for name in {**first, **second}
        if first.get(name) != second.get(name)
    ]


def _without_strays(topic: TableTopic, recorded: RecordedTime) -> TopicInfo:
    """Return a topic for the summary, with the times of rows that aren't strays."""
    strays = 0 if is_static(topic.info.topic) else recorded.num_strays(topic.info.topic)
    if not strays:
        return topic.info
    known = topic.time[(topic.time != MIN_TIME) & ~recorded.are_strays(topic.time)]
    first, last = (int(known.min()), int(known.max())) if len(known) else (0, 0)
    return replace(topic.info, first=first, last=last, num_times=len(np.unique(known)), num_strays=strays)


def _untimed(topic: TableTopic) -> list[Refusal]:
    """Return the rows without a time."""
    refused = []
    for row in np.flatnonzero(topic.time == MIN_TIME).tolist():
        how = topic.files[topic.groups[topic.group[row]][0]].how
        is_plain = how.time is None or not (how.time.zone or len(how.time.columns) > 1)
        refused.append(_refused(topic, row, _NO_TIME if is_plain else _NO_CLEAR_TIME, log_time=0))
    return refused


def _refused(topic: TableTopic, row: int, reason: str, log_time: int | None = None) -> Refusal:
    at, group = topic.groups[topic.group[row]]
    file = topic.files[at]
    line = file.groups[group].first + int(topic.row[row])
    time = int(topic.time[row]) if log_time is None else log_time
    return Refusal(file.uri, line, topic.info.topic, int(topic.position[row]), time, reason, unit="row")
