"""Parts of a recipe: its keys except columns and outputs, as pydantic models.

Here: names of logs and tables of them, times, clocks, rows, partitions, splits, retention, skipping.
Elsewhere: the recipe as a whole (model), columns (columns), checks that look at several keys at once
(checks).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from logloom.io.logs.interface import MessageTime, StatedTime, TimeSource
from logloom.io.logs.table_files import name_times as time_names
from logloom.recipe import checks, patterns
from logloom.recipe.columns import FieldPath, Positive, RecipePart, Topic, as_list, text_check
from logloom.recipe.values import (
    ClockOffset,
    Delay,
    LengthOfTime,
    Moment,
    Percent,
    Rate,
    ShareOrLogs,
    Size,
    decimal_text,
    distance,
    distance_text,
    duration_text,
    length_of_time,
    moment_text,
)
from logloom.row_splits import RowSplit
from logloom.validation import OneOrKeys

TEMPLATE_NAMES = ("stem", "parent", "path")
REST = "train"  # the split of logs that no list names, if none has a share

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def template_problem(template: str, names: Iterable[str] = TEMPLATE_NAMES) -> str | None:
    """Describe what is wrong with a template such as "{parent}-{stem}"; None if it is valid."""
    known = list(names)
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        return f"{template!r} is not a template: {error}"
    for _, name, spec, conversion in parts:
        if name is not None and (name not in known or spec or conversion):
            return f"{{{name}}} is unknown; there are {', '.join(f'{{{n}}}' for n in known)}"
    return None if template else "is empty"


def name_problem(name: str) -> str | None:
    """Describe what is wrong with the name of a dataset or a split; None if it is valid."""
    return None if _NAME.fullmatch(name) else f"{name!r}: names consist of letters, digits, and . _ -"


def _split_by_problem(by: str) -> str | None:
    """Describe what is wrong with a template apart from its names, which `checks` looks up."""
    names = (*TEMPLATE_NAMES, *filter(str.isidentifier, checks.names_in(by)))
    return None if by == "log_id" else template_problem(by, names)


Template = Annotated[str, text_check(template_problem)]
Sources = Annotated[tuple[TimeSource, ...], BeforeValidator(as_list), Field(min_length=1)]
Name = Annotated[str, text_check(name_problem)]
TimeNames = Annotated[
    tuple[Annotated[str, text_check(time_names.name_problem)], ...], BeforeValidator(as_list)
]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(as_list)]


class LogName(RecipePart):
    """`log_id: {match: <regex>, as: "{car}-{day}"}`: named groups of a regex found in the absolute URI."""

    match: Annotated[str, text_check(patterns.problem)]
    as_: str = Field(alias="as")

    @model_validator(mode="after")
    def _names_its_groups(self) -> Self:
        problem = template_problem(self.as_, [*re.compile(self.match).groupindex, *TEMPLATE_NAMES])
        if problem:
            raise ValueError(f"as: {problem}")
        return self


class LogTable(RecipePart):
    """`logs: {table: drives.parquet, uri: path}`: a table that lists the logs, one row per file or folder.

    Attributes:
        table: URI of a Parquet, Feather or CSV file.
        uri, log_id, split: columns.
        host: the column with the host of each log's scenes, instead of that of `outputs.l5kit`.
        index: columns to copy into the index of `outputs.table`.
        where: a filter over the table's columns.
    """

    table: Annotated[str, Field(min_length=1)]
    uri: Annotated[str, Field(min_length=1)]
    log_id: Annotated[str, Field(min_length=1)] | None = None
    split: Annotated[str, Field(min_length=1)] | None = None
    host: Annotated[str, Field(min_length=1)] | None = None
    index: Texts = ()
    where: str = ""

    @property
    def says(self) -> bool:
        """Whether the table defines values for outputs."""
        return self.host is not None or bool(self.index)


class TopicTime(RecipePart):
    """`topics: {/steering: {field: stamp, offset: -12ms}}`: the message time of one topic.

    Attributes:
        by: the sources in order of preference; None for those of all topics.
        field: the dotted path of a number, or of a stamp of seconds and nanoseconds.
        unit: of a number.
        offset: ns; added to the time, for the clock and all columns of the topic.
    """

    by: Sources | None = None
    field: FieldPath | None = None
    unit: Literal["ns", "us", "ms", "s"] | None = None
    offset: ClockOffset = 0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.by is not None and self.field is not None:
            raise ValueError("write `by`, a source, or `field`, not both")
        if self.unit is not None and self.field is None:
            raise ValueError("`unit` is that of a `field`")
        if not self.model_fields_set:
            raise ValueError("write {field: stamp}, {field: timestamp, unit: us}, or {offset: -12ms}")
        return self

    def sources(self, by: tuple[TimeSource, ...]) -> tuple[MessageTime, ...]:
        """Return its sources in order of preference.

        Args:
            by: those of all topics.
        """
        if self.field is not None:
            return (StatedTime(None, self.field, self.unit or "", self.offset),)
        sources = self.by or by
        return tuple(StatedTime(one, offset=self.offset) for one in sources) if self.offset else sources


class Time(RecipePart):
    """`time`: which time of a message is its message time.

    Attributes:
        by: the sources in order of preference; the first that a topic's messages have is used.
        max_delay: ns; the largest distance of a message time from its log time, None for any.
        topics: `by` of single topics, or their time in another field, or with an offset.
        name: patterns for names of tables that contain one message each: "lidar_{ns}".
        from_, to: the extent of each log, if its messages don't define it.
        set_back: which messages to use if a recorder's clock was set back: those before all such places,
            after all of them, or those of each pass as a separate log.
    """

    by: Sources = ("header", "log")
    max_delay: Delay = 1_000_000_000
    topics: dict[Topic, OneOrKeys[Sources, TopicTime]] = Field(default_factory=dict)
    name: TimeNames = ()
    from_: Moment | None = Field(default=None, alias="from")
    to: Moment | None = None
    set_back: Literal["first", "last", "split"] | None = None

    @model_validator(mode="after")
    def _has_a_length(self) -> Self:
        first, last = self.from_, self.to
        if first and last and first.is_relative == last.is_relative and first.ns > last.ns:
            raise ValueError(f"from {moment_text(first)} to {moment_text(last)}: ends before it begins")
        return self

    def sources(self, topic: str) -> tuple[MessageTime, ...]:
        """The sources of a topic's message times in order of preference.

        Args:
            topic: its name.
        """
        own = self.topics.get(topic, self.by)
        return own.sources(self.by) if isinstance(own, TopicTime) else own


class Clock(RecipePart):
    """`clock`: a rate in Hz, the topic whose messages make rows, or topics whose messages are matched.

    Attributes:
        sync: one row per matched set of messages, one message of each of these topics.
        within: ns; the largest time between two messages of a set.
        stamp: the topic that provides the times of rows; by default the first of `sync`.
        match: "exact" if the times of a set must be equal.
    """

    rate: Rate | None = None
    topic: Topic | None = None
    sync: Annotated[tuple[Topic, ...], BeforeValidator(as_list)] = ()
    within: LengthOfTime | None = None
    stamp: Topic | None = None
    match: Literal["approximate", "exact"] = "approximate"

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if [self.rate is not None, self.topic is not None, bool(self.sync)].count(True) != 1:
            raise ValueError(
                "write exactly one of {rate: 10} (Hz), {topic: /lidar} and {sync: [/camera, /lidar]}"
            )
        return self


class Rows(RecipePart):
    """`rows`: which ticks become rows: those with `require` available that match `where`."""

    require: Texts = ()
    where: str = ""


class Partition(RecipePart):
    """`partition`: limits of a partition: ticks, and message bytes according to the log's index."""

    rows: Positive = 1000
    bytes: Size = 512 << 20


class ByColumn(RecipePart):
    """`split: {by: {column: weather}}`: the column whose value decides for each row."""

    column: Annotated[str, Field(min_length=1)]


class Split(RecipePart):
    """`split`: names with shares, which sum to 1, or with lists of logs, which come first.

    Attributes:
        by: what decides. For whole logs: a template of log_id, URI, and columns that the table of `logs` has
            as `index`. For single rows: "place", "time", or a column.
        position: by place, the column of positions in metres.
        cell, gap: size of a cell and of the gap between splits, as text; by place a distance, by time a
            duration.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ShareOrLogs]

    by: OneOrKeys[Annotated[str, text_check(_split_by_problem)], ByColumn] = "log_id"
    position: Annotated[str, Field(min_length=1)] | None = None
    cell: str | None = None
    gap: str | None = None

    @field_validator("cell", "gap", mode="before")
    @classmethod
    def _has_its_unit(cls, value: Any, info: ValidationInfo) -> Any:
        by = info.data.get("by")
        if value is None or by not in ("place", "time"):
            return value
        if by == "place":
            return distance_text(distance(value, "500m" if info.field_name == "cell" else "50m"))
        return duration_text(length_of_time(value, "60s" if info.field_name == "cell" else "5s"))

    @property
    def shares(self) -> dict[str, Decimal]:
        """Shares of what no list names; all of it is in `REST` if no share is given."""
        given = self.__pydantic_extra__.items()
        found = {name: part for name, part in given if isinstance(part, Decimal)}
        return found or ({REST: Decimal(1)} if self.listed else {})

    @property
    def listed(self) -> dict[str, tuple[str, ...]]:
        """Lists of log_ids, and of patterns of them."""
        return {name: part for name, part in self.__pydantic_extra__.items() if isinstance(part, tuple)}

    @property
    def names(self) -> list[str]:
        """All names, in order."""
        return list(dict.fromkeys([*self.__pydantic_extra__, *self.shares]))

    @property
    def of_rows(self) -> RowSplit | None:
        """How to split single rows; None if whole logs are split."""
        shares = tuple(self.shares.items())
        if isinstance(self.by, ByColumn):
            return RowSplit("value", shares, self.by.column)
        if self.by == "place":
            cell, gap = (Decimal(distance(one or "0m")) / 1000 for one in (self.cell, self.gap))
            return RowSplit("place", shares, self.position or "", cell, gap)
        if self.by == "time":
            cell, gap = (Decimal(length_of_time(one or "0s")) / 10**9 for one in (self.cell, self.gap))
            return RowSplit("time", shares, "", cell, gap)
        return None

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        for name in self.names:
            if problem := name_problem(name):
                raise ValueError(problem)
        total = sum(self.shares.values(), Decimal(0))
        if total != 1:
            of = " of the logs that no list names" if self.listed else ""
            raise ValueError(f"the shares{of} sum to {decimal_text(total)}, not to 1")
        return self

    @model_validator(mode="after")
    def _lists_make_sense(self) -> Self:
        if self.listed and self.of_rows is not None:
            raise ValueError(
                f"{min(self.listed)}: lists logs, and `by` splits rows; leave out one of the two"
            )
        if REST in self.listed and REST in self.shares:
            raise ValueError(
                f"{REST}: no split has the logs that no list names; give one a share, such as `rest: 1`"
            )
        seen: dict[str, str] = {}
        for name, logs in self.listed.items():
            for log in logs:
                if seen.setdefault(log, name) != name:
                    raise ValueError(f"{name}: {log!r} is in {seen[log]}, too; leave it out of one")
        return self

    @model_validator(mode="after")
    def _cells_make_sense(self) -> Self:
        has_cells = self.by in ("place", "time")
        for key, goes in (("position", self.by == "place"), ("cell", has_cells), ("gap", has_cells)):
            if getattr(self, key) is not None and not goes:
                raise ValueError(f"{key}: goes with by: place{'' if key == 'position' else ' and by: time'}")
            if getattr(self, key) is None and goes and key != "gap":
                what = "the column of positions, in metres" if key == "position" else "the size of a cell"
                raise ValueError(f"by: {self.by} needs a `{key}`: {what}")
        found = self.of_rows
        if has_cells and found is not None and not (found.cell and found.gap <= found.cell):
            raise ValueError(
                f"cell: {self.cell}, gap: {self.gap or 'none'}: the cell must be larger than 0 and at least "
                "as large as the gap"
            )
        return self


class Keep(RecipePart):
    """`keep`: versions that garbage collection keeps, apart from the latest, which it always keeps.

    A version is kept if any of these selects it.

    Attributes:
        last: the number of latest versions to keep.
        daily: the number of days of which to keep the latest version, of days with versions.
        tags: "all" to keep versions with a tag, "none" to ignore tags.
    """

    last: Positive | None = None
    daily: Positive | None = None
    tags: Literal["all", "none"] = "all"

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        if self.last is None and self.daily is None:
            raise ValueError("write {last: 30}, {daily: 14}, or both; without `keep` all versions are kept")
        return self


class SkipBudget(RecipePart):
    """`on_error: {skip: 1%}`: the largest share of logs that may be skipped."""

    skip: Percent
