"""Duplicates among the logs of a plan: one recording under several names, and the split that they share.

Here: `settle_duplicates`, which finds them, and `settled`, the rule for their split.
Elsewhere: comparing bytes (logloom.io.logs.duplicates), what is known of logs (logloom.pipelines.plan_logs).

Content ids find them: those of logs that were opened or are remembered, and of records whose logs are gone.
Of logs that nobody has opened yet, those are opened that may equal another one by their sizes and ends. A
content id covers the ends of a file, so larger files of one content id are read once as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logloom.errors import UsageError
from logloom.io.logs.duplicates import end_digests, groups_by
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.passes import pass_named
from logloom.io.shards import DROPPED, LogRecord
from logloom.io.stretches import Ints
from logloom.pipelines.plan_logs import PlanLogs, State
from logloom.pipelines.versions import Before
from logloom.recipe import Recipe
from logloom.transforms.build_warnings import BuildWarning
from logloom.words import counted

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 20  # duplicates that are named
_REMEDY = "remove one, or set `duplicates: keep_first`"
_OF_GONE = "`duplicates: keep_first` keeps only the rows of the first, whose files are gone"


class EqualLog(NamedTuple):
    """One of several logs with the same content.

    Attributes:
        split: that its own name or table says; of a log that is gone, the one that its rows are in.
        is_built: whether the newest version has rows of it.
        is_marked: whether its record there says that it is a duplicate.
        is_gone: so that its rows stay where they are.
    """

    log_id: str
    split: str
    is_built: bool = False
    is_marked: bool = False
    is_gone: bool = False


@dataclass(frozen=True)
class Duplicate:
    """A log that has the same content as another one.

    Attributes:
        duplicate_of: the log_id of that one.
        split: that both go to.
        own_split: where its own name or table would have put it.
        is_built_first: whether the other one was built by an earlier version.
        is_first_gone: whether only rows of the other one are left, which `vanished: keep` keeps.
        is_left_out: by `duplicates: keep_first`.
    """

    log_id: str
    duplicate_of: str
    split: str
    own_split: str
    is_built_first: bool = False
    is_first_gone: bool = False
    is_left_out: bool = False

    @property
    def warning(self) -> str:
        """What people should know of it."""
        what = f"{self.log_id}: same content as {self.duplicate_of}"
        if self.is_left_out:
            return f"{what}; left out, by `duplicates: keep_first`"
        remedy = _OF_GONE if self.is_first_gone else _REMEDY
        if self.split == "all" == self.own_split:
            return f"{what}, so its rows are in the dataset twice; {remedy}"
        built = ", which was built first" if self.is_built_first else ""
        instead = f" instead of {self.own_split!r}" if self.own_split != self.split else ""
        return f"{what}{built}: both are in split {self.split!r}{instead}; {remedy}"


def settled(members: Sequence[EqualLog]) -> list[Duplicate]:
    """The duplicates among logs with the same content: all but the first.

    The first one is a log that was built already, else the first by name. All go to its split; where a log
    is gone whose rows are in another split, to that one, as these can't move.

    >>> settled([EqualLog("a", "train"), EqualLog("b", "val", is_built=True)])[0].warning
    "a: same content as b, which was built first: both are in split 'val' instead of 'train'; \
remove one, or set `duplicates: keep_first`"
    """
    first = min(members, key=lambda one: (not one.is_built, one.is_marked, one.log_id))
    stuck = [one for one in members if one.is_gone and one.split != first.split]
    if stuck and not first.is_gone:
        first = min(stuck, key=lambda one: one.log_id)
    return [
        Duplicate(
            one.log_id,
            first.log_id,
            first.split,
            one.split,
            is_built_first=first.is_built,
            is_first_gone=first.is_gone,
        )
        for one in sorted(members, key=lambda one: one.log_id)
        if one is not first
    ]


def settle_duplicates(recipe: Recipe, logs: PlanLogs, before: Before) -> list[str]:
    """Finds the duplicates among logs that are to be built, and does with them what the recipe says.

    Returns:
        Notes on logs with the content of one that somebody dropped.

    Raises:
        UsageError: there are some, under `duplicates: fail`.
        LogReadError: see `PlanLogs.open`.
    """
    absent = _absent(recipe, logs, before)
    logs.open(_worth_opening(logs, before, is_any_absent=len(absent) > 0))
    found, notes = list[Duplicate](), list[str]()
    for rows, gone in _groups(recipe, logs, before, absent):
        names = logs.files.ids.take(rows).to_pylist()
        staying = [record for record in gone if record.status != DROPPED]
        dropped = sorted(record.log_id for record in gone if record.status == DROPPED)
        members = [*_members(logs, before, rows), *(_member_of(record) for record in staying)]
        found += [one for one in settled(members) if one.log_id in names] if len(members) > 1 else []
        notes += [f"{name}: same content as {dropped[0]}, which was dropped" for name in names if dropped]
    found = sorted(found, key=lambda one: one.log_id)
    if found and recipe.duplicates == "fail":
        lines = "\n".join(f"  {one.log_id}: same content as {one.duplicate_of}" for one in found[:_SHOWN])
        more = f"\n  and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        count = counted(len(found), "log has", "logs have")
        raise UsageError(
            f"{count} the content of another one, and the recipe says `duplicates: fail`; {_REMEDY}:\n"
            f"{lines}{more}"
        )
    logs.set_duplicates(found, are_left_out=recipe.duplicates == "keep_first")
    return sorted(notes)


def duplicate_warnings(duplicates: Mapping[str, Duplicate]) -> list[BuildWarning]:
    """What people should know of duplicates: the first ones, and how many more there are."""
    ordered = [one for _, one in sorted(duplicates.items())]
    found = [BuildWarning(one.warning, is_doubtful=not one.is_left_out) for one in ordered[:_SHOWN]]
    if more := ordered[_SHOWN:]:
        text = f"{len(more):,} more logs have the content of another one"
        found.append(BuildWarning(text, is_doubtful=not more[0].is_left_out))
    return found


def marks(logs: PlanLogs, before: Before, *but_for: Iterable[str]) -> Iterator[LogRecord]:
    """Records that stay but for the log that they are duplicates of.

    Args:
        but_for: logs whose records are made anew.
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
    """(N,) the log that each of the newest version is a duplicate of; "" for none."""
    import pyarrow.compute as pc

    return pc.fill_null(before.column("duplicate_of").combine_chunks(), "")


def _absent(recipe: Recipe, logs: PlanLogs, before: Before) -> Ints:
    """Positions of records whose logs aren't among those to build: dropped ones, and those that stay."""
    names = set(before.missing_from(logs.files.ids))
    if recipe.vanished != "keep":
        names &= {*before.left_out, *before.with_passes(logs.unsettled)}
    rows = before.rows_of(sorted(name for name in names if not logs.was_purged(name)))
    return np.sort(rows)


def _worth_opening(logs: PlanLogs, before: Before, *, is_any_absent: bool) -> Ints:
    """Positions of logs that nobody has opened, and that may have the content of another one."""
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
    # Passes of one log share its files, and are no duplicates of each other.
    several = [group for group in alike if len({log.uris for _, log, _ in group}) > 1]
    wanted = {row for group in several for row, _, _ in group}
    known = before.rows_of(logs.files.ids.take(left))
    if len(known) and before.parent is not None:
        was_marked = known >= 0
        was_marked[was_marked] = _marks_before(before).take(known[was_marked]).to_numpy(False) != ""
        wanted.update(left[was_marked].tolist())
    if is_any_absent:
        wanted.update(left[known < 0].tolist())
    return left[np.isin(left, sorted(wanted))]


def _groups(
    recipe: Recipe, logs: PlanLogs, before: Before, absent: Ints
) -> Iterator[tuple[list[int], list[LogRecord]]]:
    """For each content that several logs have: positions of those to build, records of the others."""
    import pyarrow as pa
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
    splits_passes = recipe.time.set_back == "split"

    def number(log_id: str) -> int:
        return pass_named(log_id).number if splits_passes else 1

    there = list(zip(chosen.tolist(), logs.files.at(chosen), logs.sizes(chosen).tolist(), strict=True))
    by_content: dict[tuple[str, int], list[tuple[int, LogFiles, int]]] = {}
    for one in there:
        by_content.setdefault((ids[one[0]], number(one[1].log_id)), []).append(one)
    for content, members in by_content.items():
        if logs.was_content_purged(content[0]):
            continue
        same = [one for one in records if (one.content_id, number(one.log_id)) == content]
        classes = _classes(logs, members)
        for group in classes:
            # With several, nothing tells which of them a log that is gone was equal to.
            of_gone = same if len(classes) == 1 else []
            if len(group) + len(of_gone) > 1:
                yield [row for row, _, _ in group], of_gone


def _classes(
    logs: PlanLogs, members: Sequence[tuple[int, LogFiles, int]]
) -> list[list[tuple[int, LogFiles, int]]]:
    """Logs of one content id, those together whose files have the same bytes."""
    if len(members) == 1:
        return [list(members)]
    classes: dict[object, list[tuple[int, LogFiles, int]]] = {}
    for row, log, size in members:
        whole = logs.whole_digest(row, log, size)
        classes.setdefault((size, row if whole is None else whole), []).append((row, log, size))
    return list(classes.values())


def _members(logs: PlanLogs, before: Before, rows: Sequence[int]) -> Iterator[EqualLog]:
    positions = np.array(rows, np.int64)
    files = list(logs.files.at(positions))
    records = {one.log_id: one for one in before.records(before.having([log.log_id for log in files]))}
    for row, log in zip(rows, files, strict=True):
        record = records.get(log.log_id)
        is_built = record is not None and record.status not in ("skipped", DROPPED)
        is_marked = record is not None and bool(record.duplicate_of)
        _, uris = logs.content_of(row, log)
        yield EqualLog(log.log_id, logs.own_split(log, uris), is_built, is_marked)


def _member_of(record: LogRecord) -> EqualLog:
    return EqualLog(
        record.log_id, record.split, is_built=True, is_marked=bool(record.duplicate_of), is_gone=True
    )
