"""Duplicates among the logs of a plan: copies of a recording, and their split.

Here: `settle_duplicates`, which finds them, and `settled`, the rule for their split.
Elsewhere: comparing bytes (logloom.io.logs.duplicates), the logs of a plan (logloom.pipelines.plan.logs).

Content ids find them: those of opened and cached logs, and of records whose logs are missing. Unopened logs
are opened if their sizes and ends equal another one's. A content id covers the ends of a file, so larger
files with the same content id are read completely, once.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from logloom.errors import InputError
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.logs.duplicates import end_digests, groups_by
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.passes import pass_named
from logloom.io.rows.log_ranges import Ints
from logloom.pipelines.plan.logs import PlanLogs, State
from logloom.pipelines.plan.next_version import Before
from logloom.recipe import Recipe
from logloom.recipe.logs import split_of
from logloom.text import counted
from logloom.transforms.rows.notices import BuildWarning
from logloom.values import dataclass

_SHOWN = 20  # duplicates listed in messages
_REMEDY = "remove one, or set `duplicates: keep_first`"
_GONE, _CUT = "whose files are missing", "whose files were truncated"


class _LogToBuild(NamedTuple):
    """A log to build that may equal another one: its position in the plan, and the bytes of its files."""

    row: int
    log: LogFiles
    size: int


class _SameContent(NamedTuple):
    """Logs with the same content.

    Attributes:
        names: log_ids of these, and of logs that records mark them as duplicates of.
        found: the logs to build.
        records: of logs that aren't to be built, in the latest version.
    """

    names: set[str]
    found: list[_LogToBuild]
    records: list[LogRecord]

    @classmethod
    def joined(cls, groups: Sequence[Self]) -> Self:
        """Join groups whose contents are equal."""
        return cls(
            set[str]().union(*(group.names for group in groups)),
            [one for group in groups for one in group.found],
            [record for group in groups for record in group.records],
        )


class EqualLog(NamedTuple):
    """One of several logs with the same content.

    Attributes:
        split: by its own name or table.
        is_built: whether the latest version has rows of it.
        is_marked: whether its record there marks it as a duplicate.
        is_known: whether that record has its present content.
        staying: why the rows of the latest version are kept, for people; "" for a log to build, or one that
            waits.
    """

    log_id: str
    split: str
    is_built: bool = False
    is_marked: bool = False
    is_known: bool = False
    staying: str = ""


@dataclass(frozen=True)
class Duplicate:
    """A log with the same content as another one.

    Attributes:
        duplicate_of: log_id of the other one.
        split: split of both.
        own_split: the split by its own name or table.
        is_built_first: whether the other one was built by an earlier version.
        is_known: whether the latest version marks it as a duplicate.
        staying: see `EqualLog`.
        first_staying: the same for the other one.
        is_first_dropped: whether the other one was dropped.
        is_left_out: by `duplicates: keep_first`.
    """

    log_id: str
    duplicate_of: str
    split: str
    own_split: str
    is_built_first: bool = False
    is_known: bool = False
    staying: str = ""
    first_staying: str = ""
    is_first_dropped: bool = False
    is_left_out: bool = False

    @property
    def is_doubtful(self) -> bool:
        """Whether its rows are in the dataset already."""
        return not (self.is_left_out or self.is_known)

    @property
    def same(self) -> str:
        """Describe what it equals."""
        dropped = ", which was dropped" if self.is_first_dropped else ""
        return f"{self.log_id}: same content as {self.duplicate_of}{dropped}"

    @property
    def warning(self) -> str:
        """Warning for people."""
        if self.is_left_out:
            return f"{self.same}; left out, by `duplicates: keep_first`"
        remedy = _REMEDY
        if self.staying == _CUT:
            remedy = f"remove {self.log_id}, {self.staying}, or copy them again"
        elif self.staying:
            remedy = f"`duplicates: keep_first` leaves out the rows of {self.log_id}, {self.staying}"
        elif self.first_staying:
            remedy = f"`duplicates: keep_first` keeps only the rows of the first, {self.first_staying}"
        if self.split == "all" == self.own_split:
            return f"{self.same}, so its rows are in the dataset twice; {remedy}"
        built = ", which was built first" if self.is_built_first else ""
        instead = f" instead of {self.own_split!r}" if self.own_split != self.split else ""
        return f"{self.same}{built}: both are in split {self.split!r}{instead}; {remedy}"


def settled(members: Sequence[EqualLog]) -> list[Duplicate]:
    """Return the duplicates among logs with the same content: all but the first.

    The first one is a log that was built already, else the first by name; of several built ones preferably
    one that was not a duplicate, and whose files are missing. All go to its split.

    >>> settled([EqualLog("a", "train"), EqualLog("b", "val", is_built=True)])[0].warning
    "a: same content as b, which was built first: both are in split 'val' instead of 'train'; \
remove one, or set `duplicates: keep_first`"
    """
    first = min(members, key=lambda one: (not one.is_built, one.is_marked, not one.staying, one.log_id))
    return [
        Duplicate(
            one.log_id,
            first.log_id,
            first.split,
            one.split,
            is_built_first=first.is_built,
            is_known=one.is_known,
            staying=one.staying,
            first_staying=first.staying,
        )
        for one in sorted(members, key=lambda one: one.log_id)
        if one is not first
    ]


def settle_duplicates(recipe: Recipe, logs: PlanLogs, before: Before, root: str) -> list[BuildWarning]:
    """Find the duplicates among logs to build or keep, and treat them as the recipe defines.

    A copy of a dropped log is one as well, unless the latest version has rows of any of them.

    Returns:
        Warnings about logs to build whose content is that of a dropped log.

    Raises:
        InputError: duplicates, under `duplicates: fail`.
        LogReadError: see `PlanLogs.open`.
    """
    absent = _absent(recipe, logs, before)
    logs.open(_worth_opening(logs, before, absent))
    found, of_dropped = list[Duplicate](), list[tuple[EqualLog, str]]()
    for rows, others in _groups(recipe, logs, before, absent):
        staying = [_member_of(recipe, logs, one) for one in others if one.status != LogStatus.dropped]
        dropped = sorted(one.log_id for one in others if one.status == LogStatus.dropped)
        members = [*_members(logs, before, rows), *staying]
        is_new = bool(dropped) and not any(one.is_built for one in members)
        if is_new and recipe.duplicates != "warn":
            again = (Duplicate(one.log_id, dropped[0], one.split, one.split) for one in members)
            found += [replace(one, is_first_dropped=True) for one in again]
            continue
        found += settled(members) if len(members) > 1 else []
        of_dropped += [(one, dropped[0]) for one in members if dropped]
    found = sorted(found, key=lambda one: one.log_id)
    if found and recipe.duplicates == "fail":
        raise InputError(_refusal(found))
    if recipe.duplicates == "keep_first":
        # A truncated log would be new to the next build, without the record of its complete content.
        found = [replace(one, is_left_out=one.staying != _CUT) for one in found]
    logs.set_duplicates(found)
    return [
        BuildWarning(
            f"{one.log_id}: same content as {name}, which was dropped, and {_to_leave_out(one, root)}",
            is_doubtful=not one.is_built,
            kind="duplicate",
            log=one.log_id,
        )
        for one, name in sorted(of_dropped)
        if one.log_id not in logs.duplicates or not logs.duplicates[one.log_id].is_left_out
    ]


def _refusal(found: Sequence[Duplicate]) -> str:
    """Explain why `duplicates: fail` refuses a build."""
    lines = "\n".join(f"  {one.same}" for one in found[:_SHOWN])
    more = f"\n  and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    count = counted(len(found), "log has", "logs have")
    remedy = _REMEDY
    if any(one.is_first_dropped for one in found):
        remedy += ", which also leaves out copies of dropped logs; `duplicates: warn` builds these"
    why = "the content of another one, and the recipe has `duplicates: fail`"
    return f"{count} {why}; {remedy}:\n{lines}{more}"


def _to_leave_out(one: EqualLog, root: str) -> str:
    """Describe a copy of a dropped log, and how to leave it out: only logs of a version can be dropped."""
    drop = f"`logloom drop {shlex.quote(root)} {shlex.quote(one.log_id)}`"
    if one.is_built:
        return f"it is in the dataset; to leave it out as well: {drop}"
    return f"it is built; to leave it out as well, set `duplicates: keep_first`, or once it is built: {drop}"


def duplicate_warnings(duplicates: Mapping[str, Duplicate]) -> list[BuildWarning]:
    """Return warnings about the first duplicates, new ones before others, and the number of the rest."""
    ordered = sorted(duplicates.values(), key=lambda one: (not one.is_doubtful, one.log_id))
    found = [
        BuildWarning(one.warning, is_doubtful=one.is_doubtful, kind="duplicate", log=one.log_id)
        for one in ordered[:_SHOWN]
    ]
    if more := ordered[_SHOWN:]:
        text = f"{len(more):,} more logs have the content of another one"
        found.append(BuildWarning(text, is_doubtful=more[0].is_doubtful, kind="duplicate"))
    return found


def marks(logs: PlanLogs, before: Before, *but_for: Iterable[str]) -> Iterator[LogRecord]:
    """Return kept records whose duplicate_of changes.

    Args:
        but_for: logs whose records are remade.
    """
    import pyarrow.compute as pc

    marked = before.ids.filter(pc.greater(_marks_before(before), "")).to_pylist() if len(before.ids) else []
    there = {*before.having(sorted(logs.duplicates)), *marked}
    names = [name for name in sorted(there.difference(*but_for)) if logs.is_listed(name)]
    for record in before.records(names):
        one = logs.duplicates.get(record.log_id)
        duplicate_of = "" if one is None or one.is_left_out else one.duplicate_of
        if record.duplicate_of != duplicate_of:
            yield replace(record, duplicate_of=duplicate_of)


def _marks_before(before: Before) -> pa.Array:
    """(N,) the log that each of the latest version is a duplicate of; "" for none."""
    import pyarrow.compute as pc

    return pc.fill_null(before.column("duplicate_of").combine_chunks(), "")


def _absent(recipe: Recipe, logs: PlanLogs, before: Before) -> Ints:
    """Return positions of records whose logs aren't to be built: dropped and kept ones."""
    names = set(before.missing_from(logs.files.ids))
    if recipe.vanished != "keep":
        names &= {*before.left_out, *before.with_passes(logs.unsettled), *logs.shortened}
    rows = np.sort(before.rows_of(sorted(names)))
    parts = before.column("part").take(rows).to_pylist() if len(rows) else []
    return rows[[part not in logs.tombstones.parts for part in parts]] if parts else rows


def _worth_opening(logs: PlanLogs, before: Before, absent: Ints) -> Ints:
    """Return positions of unopened logs that may have the content of another one.

    Args:
        absent: see `_absent`.
    """
    left = logs.rows(State.LEFT)
    if not len(left):
        return left
    rows = logs.rows(State.LEFT, State.OPENED, State.REMEMBERED)
    sizes = logs.sizes(rows)
    _, numbers, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    with_left = np.bincount(numbers, np.isin(rows, left)) > 0
    chosen = rows[((counts > 1) & with_left)[numbers] & (sizes >= 0)]
    files = list(logs.files.at(chosen))
    ends = end_digests(files, logs.options.storage_options)
    alike = groups_by(list(zip(chosen.tolist(), files, ends, strict=True)), lambda one: one[2])
    # Passes of one log share its files, and aren't duplicates of each other.
    several = [group for group in alike if len({log.uris for _, log, _ in group}) > 1]
    wanted = {row for group in several for row, _, _ in group}
    known = before.rows_of(logs.files.ids.take(left))
    if len(known) and before.parent is not None:
        was_marked = known >= 0
        was_marked[was_marked] = _marks_before(before).take(known[was_marked]).to_numpy(False) != ""
        wanted.update(left[was_marked].tolist())
    if len(absent):
        wanted.update(left[known < 0].tolist())
        firsts = _marks_before(before).take(absent).unique().to_pylist()
        wanted.update(logs.files.rows_of(list(filter(None, firsts))).tolist())
    return left[np.isin(left, sorted(wanted))]


def _groups(
    recipe: Recipe, logs: PlanLogs, before: Before, absent: Ints
) -> Iterator[tuple[list[int], list[LogRecord]]]:
    """Group logs with the same content: positions of those to build, records of the others."""
    import pyarrow.compute as pc

    remembered, opened = logs.rows(State.REMEMBERED), logs.rows(State.OPENED)
    gone = (
        before.column("content_id").take(absent).combine_chunks()
        if len(absent)
        else pa.array([], pa.string())
    )
    of_opened = [logs.opened[log.log_id].summary.content_id for log in logs.files.at(opened)]
    contents = pa.concat_arrays([logs.contents(remembered), pa.array(of_opened, pa.string()), gone])
    counts = pc.value_counts(contents)
    several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    several = several.filter(pc.not_equal(several, ""))
    if not len(several):
        return
    is_one = pc.is_in(contents, several).to_numpy(zero_copy_only=False)
    rows = np.concatenate([remembered, opened])
    num_there = len(rows)
    chosen = np.sort(rows[is_one[:num_there]])
    ids = dict(zip(rows.tolist(), contents[:num_there].to_pylist(), strict=True)) if len(chosen) else {}
    records = list(before.records(before.ids.take(absent[is_one[num_there:]]).to_pylist()))
    splits_passes, by_content = recipe.time.set_back == "split", dict[tuple[str, int], _SameContent]()

    def content(content_id: str, log_id: str) -> _SameContent:
        number = pass_named(log_id).number if splits_passes else 1
        return by_content.setdefault((content_id, number), _SameContent(set(), [], []))

    there = zip(chosen.tolist(), logs.files.at(chosen), logs.sizes(chosen).tolist(), strict=True)
    for one in map(_LogToBuild._make, there):
        content(ids[one.row], one.log.log_id).found.append(one)
    for record in records:
        content(record.content_id, record.log_id).records.append(record)
    for (content_id, _), same in by_content.items():
        if not logs.tombstones.has(content_id):
            for group in _with_records(logs, before, _classes(logs, same.found), same.records):
                num_staying = sum(record.status != LogStatus.dropped for record in group.records)
                if len(group.found) + len(group.records) > 1 and len(group.found) + num_staying:
                    yield [one.row for one in group.found], group.records


def _with_records(
    logs: PlanLogs, before: Before, classes: Sequence[list[_LogToBuild]], records: Sequence[LogRecord]
) -> list[_SameContent]:
    """Add records of a content id to the logs with that content id, by equality.

    A content id covers the ends of a file, and missing logs only have records. So larger ones are equal if
    records mark one as a duplicate of the other, or if there is only one content on either side.
    """
    if not records:
        return [_SameContent(set(), group, []) for group in classes]
    groups: list[_SameContent] = []
    for group in classes:
        names = {one.log.log_id for one in group}
        marked = (record.duplicate_of for record in before.records(before.having(sorted(names))))
        groups.append(_SameContent(names.union(marked) - {""}, group, []))
    groups += [_SameContent({record.log_id, record.duplicate_of} - {""}, [], [record]) for record in records]
    sizes = [one.size for group in classes for one in group]
    sizes += [record.size for record in records if record.status != LogStatus.dropped]
    if all(map(logs.is_whole_content, sizes)):
        return [_SameContent.joined(groups)]
    merged: list[_SameContent] = []
    for one in groups:
        apart = [other for other in merged if one.names.isdisjoint(other.names)]
        alike = [other for other in merged if not one.names.isdisjoint(other.names)]
        merged = [*apart, _SameContent.joined([*alike, one])]
    if sum(bool(one.found) for one in merged) == sum(bool(one.records) for one in merged) == 1:
        return [_SameContent.joined(merged)]
    return merged


def _classes(logs: PlanLogs, members: Sequence[_LogToBuild]) -> list[list[_LogToBuild]]:
    """Group logs of one content id by the bytes of their files."""
    if len(members) <= 1:
        return [list(members)] * len(members)
    classes: dict[object, list[_LogToBuild]] = {}
    for one in members:
        whole = logs.whole_digest(one.log, one.size)
        classes.setdefault((one.size, one.row if whole is None else whole), []).append(one)
    return list(classes.values())


def _members(logs: PlanLogs, before: Before, rows: Sequence[int]) -> Iterator[EqualLog]:
    positions = np.array(rows, np.int64)
    files = list(logs.files.at(positions))
    records = {one.log_id: one for one in before.records(before.having([log.log_id for log in files]))}
    for row, log in zip(rows, files, strict=True):
        record = records.get(log.log_id)
        is_there = record is not None and record.part not in logs.tombstones.parts
        without = (LogStatus.skipped, LogStatus.dropped)
        is_built = is_there and record is not None and record.status not in without
        is_marked = is_built and record is not None and bool(record.duplicate_of)
        content_id, uris = logs.content_of(row, log)
        is_known = is_marked and record is not None and record.content_id == content_id
        yield EqualLog(log.log_id, logs.own_split(log, uris), is_built, is_marked, is_known)


def _member_of(recipe: Recipe, logs: PlanLogs, record: LogRecord) -> EqualLog:
    own = split_of(recipe, record.log_id, record.uris, record.split, record.catalogue)
    is_waiting = pass_named(record.log_id).log_id in logs.unsettled or record.log_id in logs.unsettled
    staying = "" if is_waiting else _CUT if record.log_id in logs.shortened else _GONE
    is_marked = bool(record.duplicate_of)
    return EqualLog(record.log_id, own, True, is_marked, is_known=is_marked, staying=staying)
