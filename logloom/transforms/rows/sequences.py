"""Sequences of rows: their number, their lengths, and the causes of their ends.

LeRobot's episodes and L5Kit's scenes are such sequences.
Here: `SequenceCounts` of an output, from the rows of logs; notices with the line of a recipe that joins
sequences.
Elsewhere: gaps between rows (logloom.transforms.rows.gaps), the formats that have sequences
(logloom.io.formats.capabilities), counting those of a build (logloom.transforms.build.commit) and of a sample
(logloom.pipelines.plan.column_warnings).

    rows      . . . . .     . . . . .           . . . .
    sequence |---------|   |---------|         |-------|
                       <--->  short: bridged by messages around it, if the column tolerates so much
                                     <--------->  long: nothing replaces what is missing
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.io.formats.capabilities import SequencedFormat
from logloom.io.formats.registry import format_named
from logloom.io.storage.metadata import Count, Text
from logloom.recipe.values import duration_text
from logloom.text import counted, human_duration, human_time
from logloom.transforms.rows.gaps import Cut, GapTally, cuts_of, merged_cuts
from logloom.transforms.rows.notices import BuildWarning
from logloom.transforms.rows.plan.row_plan import ColumnPlan, RowPlan
from logloom.values import dataclass

MAX_LENGTHS = 100  # that are listed
_REQUIRE = "require "


@dataclass(frozen=True)
class SequenceCounts:
    """The sequences of an output in some logs.

    Attributes:
        kind: what the output calls them: episode, scene.
        lengths: rows of the first ones.
        shortest, longest: rows; 0 where unknown.
        cuts: the gaps that end them.
        is_estimate: from a sample, without values.
    """

    output: Text
    kind: Text
    logs: Count
    number: Count
    rows: Count
    lengths: tuple[Count, ...]
    shortest: Count
    longest: Count
    cuts: tuple[Cut, ...] = ()
    is_estimate: bool = False

    def __str__(self) -> str:
        about = "about " if self.is_estimate else ""
        text = f"{about}{counted(self.number, self.kind)} of {counted(self.logs, 'log')}"
        if self.shortest:
            span = counted(self.longest, "row")
            text += f", of {span if self.shortest == self.longest else f'{self.shortest:,} to {span}'}"
        ends = ", ".join(f"{cut.number:,} {_where(cut)}" for cut in self.cuts)
        return f"{text}; ended by gaps: {ends}" if ends else text

    def to_json(self) -> dict[str, Any]:
        """Return its fields; durations in ns."""
        cuts = [{**asdict(cut), "reasons": list(cut.reasons)} for cut in self.cuts]
        return {**asdict(self), "lengths": list(self.lengths), "cuts": cuts}


def _where(cut: Cut) -> str:
    named = " and ".join(_named(reason) for reason in cut.reasons) or "without a message in the log"
    upto = "of up to" if cut.number > 1 else "of"
    return f"{named} ({upto} {human_duration(cut.longest)})"


def _named(reason: str) -> str:
    """
    >>> _named("require cam"), _named("where"), _named("purged")
    ('without cam', 'by where', 'purged')
    """
    if reason.startswith(_REQUIRE):
        return f"without {reason.removeprefix(_REQUIRE)}"
    return reason if reason == "purged" else f"by {reason}"


def counts_of(
    output: str,
    options: Any,
    found: Sequence[tuple[int, int, int]],
    gaps: Iterable[GapTally],
    period: int | None,
    log: str,
) -> SequenceCounts | None:
    """Count the sequences of a log; None for outputs without, and logs without rows.

    Args:
        found: rows, first and last time of each, in time order.
        gaps: of the log's spans.
    """
    form = format_named(output)
    if not (isinstance(form, SequencedFormat) and found):
        return None
    limit = form.longest_gap(options, period)
    lengths = tuple(rows for rows, *_ in found)
    cuts: tuple[Cut, ...] = ()
    if limit is not None:
        pairs = ((one[2], other[1]) for one, other in itertools.pairwise(found))
        ends = [pair for pair in pairs if pair[1] - pair[0] > limit]
        cuts = cuts_of(gaps, ends, limit, period, log)
    some = lengths[:MAX_LENGTHS]
    return SequenceCounts(
        output, form.sequence, 1, len(found), sum(lengths), some, min(lengths), max(lengths), cuts
    )


def runs_of(times: NDArray[np.int64], limit: int | None) -> list[tuple[int, int, int]]:
    """Cut rows at gaps over `limit` ns, if any: the number of each run, its first and its last time."""
    ends = [] if limit is None else (np.flatnonzero(np.diff(times) > limit) + 1).tolist()
    bounds = itertools.pairwise([0, *ends, len(times)])
    return [(stop - start, int(times[start]), int(times[stop - 1])) for start, stop in bounds]


def merged_sequences(parts: Iterable[Iterable[SequenceCounts]]) -> tuple[SequenceCounts, ...]:
    """Sum counts of logs, given in their order, by output."""
    outputs: dict[str, list[SequenceCounts]] = {}
    for part in parts:
        for one in part:
            outputs.setdefault(one.output, []).append(one)
    return tuple(
        SequenceCounts(
            output,
            found[0].kind,
            sum(one.logs for one in found),
            sum(one.number for one in found),
            sum(one.rows for one in found),
            tuple(length for one in found for length in one.lengths)[:MAX_LENGTHS],
            min(one.shortest for one in found),
            max(one.longest for one in found),
            merged_cuts(cut for one in found for cut in one.cuts),
            any(one.is_estimate for one in found),
        )
        for output, found in sorted(outputs.items())
    )


# --- notices ----------------------------------------------------------------------------------------------


def sequence_warnings(
    found: Iterable[SequenceCounts], plan: RowPlan, outputs: Mapping[str, Any]
) -> Iterator[BuildWarning]:
    """Warn of short gaps that end sequences, each with the line that joins them."""
    columns = {column.name: column for column in plan.columns}
    for one in found:
        short = [cut for cut in one.cuts if not cut.is_long and cut.reasons]
        names = dict.fromkeys(
            reason.removeprefix(_REQUIRE)
            for cut in short
            for reason in cut.reasons
            if reason.startswith(_REQUIRE)
        )
        bridged = [name for name in names if name in columns and columns[name].sampling.rules.tolerates]
        for name in bridged:
            yield _by_tolerance(one, columns[name], [cut for cut in short if _REQUIRE + name in cut.reasons])
        lines = {f"{_REQUIRE}{name}" for name in bridged}
        if others := [cut for cut in short if not lines.intersection(cut.reasons)]:
            yield _by_gap(one, others, outputs[one.output])


def _by_tolerance(counts: SequenceCounts, column: ColumnPlan, cuts: Sequence[Cut]) -> BuildWarning:
    """Messages that are as far from a gap's ticks as the rows around are, and those from theirs, suffice."""
    longest, name, sampling = max(cut.longest for cut in cuts), column.name, column.sampling
    line = f"tolerance: {duration_text(_rounder(longest + sampling.tolerance))}"
    alone = sum(cut.number for cut in cuts if len(cut.reasons) == 1)
    joined = f", which makes {counts.number - alone:,} of these {counts.number:,}" if alone else ""
    if sampling.rules.uses == "two":
        effect = "values in between are interpolated"
    else:
        effect = f"{name}.age shows which rows repeat a message"
    others = dict.fromkeys(_named(r) for cut in cuts for r in cut.reasons if r != _REQUIRE + name)
    also = f"; some also are rows {' and '.join(others)}" if others else ""
    return BuildWarning(
        f"{_ended(counts, cuts, f'rows without {name}')}{also}; write `{line}` at {name}{joined}; {effect}",
        is_doubtful=False,
        kind=f"{counts.kind}s",
        column=name,
        topic=column.topic,
        log=cuts[0].log,
        line=line,
    )


def _by_gap(counts: SequenceCounts, cuts: Sequence[Cut], options: Any) -> BuildWarning:
    form = format_named(counts.output)
    assert isinstance(form, SequencedFormat)
    line = form.gap_line(options, duration_text(_rounder(max(cut.longest for cut in cuts))))
    what = " and ".join(dict.fromkeys(_named(reason) for cut in cuts for reason in cut.reasons))
    return BuildWarning(
        f"{_ended(counts, cuts, f'dropped rows, {what}')}; `{line}` goes on over such gaps, as if they took "
        "no time",
        is_doubtful=False,
        kind=f"{counts.kind}s",
        log=cuts[0].log,
        line=line,
    )


def _ended(counts: SequenceCounts, cuts: Sequence[Cut], what: str) -> str:
    number, longest = sum(cut.number for cut in cuts), max(cut.longest for cut in cuts)
    first = min(cuts, key=lambda cut: (cut.log, cut.first))
    about = "about " if counts.is_estimate else ""
    upto = f"gaps of up to {human_duration(longest)}, the first" if number > 1 else "a gap of "
    upto += "" if number > 1 else human_duration(longest)
    return (
        f"{counts.output}: {about}{counted(counts.number, counts.kind)} of {counted(counts.logs, 'log')}: "
        f"{what} end {number:,} ({upto} at {human_time(first.first)} in {first.log})"
    )


def _rounder(nanoseconds: int) -> int:
    """
    Return the next larger round duration.

    >>> [duration_text(_rounder(ns)) for ns in (150_000_000, 200_000_000, 999_999_999)]
    ['200ms', '500ms', '1s']
    """
    step = int(10 ** (len(str(nanoseconds)) - 1))
    return next(step * factor for factor in (1, 2, 5, 10) if step * factor > nanoseconds)


def scaled(counts: SequenceCounts, logs: int, share: float) -> SequenceCounts:
    """Estimate the sequences of all logs from those of a sample.

    Args:
        logs: number of all.
        share: of all rows, in the sample.
    """
    more = 1 / share
    cuts = tuple(replace(cut, number=round(cut.number * more)) for cut in counts.cuts)
    number = logs + round((counts.number - counts.logs) * more)
    is_whole = share == 1
    return replace(
        counts,
        logs=logs,
        number=number,
        rows=round(counts.rows * more),
        lengths=counts.lengths if is_whole else (),
        shortest=counts.shortest if is_whole else 0,
        longest=counts.longest if is_whole else 0,
        cuts=cuts,
        is_estimate=True,
    )
