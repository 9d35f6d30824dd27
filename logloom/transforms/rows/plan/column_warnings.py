"""Warnings of `plan` and `build` on suspicious columns of a log.

Here: policies that don't suit values which wrap, or don't (`column_turns`, `turn_warnings`), columns most of
whose messages are unusable (`lost_warnings`), and points that float32 rounds (`rounding_warnings`).
Elsewhere: the arithmetic (logloom.resample.angles), accounts (logloom.transforms.rows.accounts), passing
warnings of logs to the commit (logloom.transforms.build.outcomes), those before a build
(logloom.pipelines.plan.column_warnings).
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from logloom.errors import OF_CONTENT
from logloom.io.logs.interface import Log, LogSummary, Messages, Refusal
from logloom.io.logs.messages import point_clouds
from logloom.resample.angles import MAX_NUMBERS, TURNS, TurnEvidence, added, turn_evidence
from logloom.text import counted
from logloom.transforms.rows.accounts import Tally, within
from logloom.transforms.rows.plan.row_plan import ColumnPlan, RowPlan, Span
from logloom.transforms.rows.resample import Indices, Times

Turns = Mapping[str, Sequence[TurnEvidence]]
_ANGLES = ("linear", "angle", "mean")  # policies that change values which wrap, or don't
_LEAST_JUMP = TURNS["rad"] / 2


def may_wrap(column: ColumnPlan) -> bool:
    """Return whether it matters if values of a column wrap."""
    kind = column.message_type
    is_short = not kind.is_ragged and math.prod(kind.tail) <= MAX_NUMBERS
    return is_short and column.sampling.policy in _ANGLES and kind.dtype.kind in "iuf"


def column_turns(
    column: ColumnPlan, messages: Messages, rows: Indices, times: Times, span: Span
) -> tuple[TurnEvidence, ...]:
    """Collect evidence of angles in values of messages; empty if they certainly suit the column's policy.

    Each message, and each pair of neighbours with a possible tick between them, is counted in one span of a
    log.

    Args:
        rows: numbers of messages, in the order of their times.
        times: (n,) of these, ascending, with the column's offset.
    """
    if not may_wrap(column) or len(rows) == 0:
        return ()
    in_log = np.argsort(rows)
    try:
        taken = messages.take(column.spec, rows[in_log])
    except OF_CONTENT:  # of one that no row can use
        return ()
    assert isinstance(taken, np.ndarray)
    values = np.empty_like(taken)
    values[in_log] = taken
    sampling, steps = column.sampling, times[1:] - times[:-1]
    # Ticks reach as far as the halo of their span, so the span with the middle of a pair has both.
    at = times[1:] if sampling.rules.uses == "window" else times[:-1] + steps // 2
    reach = sampling.back if sampling.rules.uses == "window" else sampling.back + sampling.forward
    paired = (steps >= 0) & (steps <= reach) & within(at, span)
    if sampling.policy != "angle":
        numbers = values.astype(np.float64, copy=False)
        with np.errstate(invalid="ignore", over="ignore"):
            steps_of_values = np.abs(numbers[1:] - numbers[:-1])[paired]
        if not (steps_of_values > _LEAST_JUMP).any():
            return ()
    found = turn_evidence(values, within(times, span), paired)
    if sampling.policy != "angle" and not any(number.wraps(unit) for number in found for unit in TURNS):
        return ()
    return found if any(number.low <= number.high for number in found) else ()


def turns_of(tallies: Iterable[Tally]) -> Turns:
    """Sum the evidence of all partitions of a log, by column."""
    parts: dict[str, list[tuple[TurnEvidence, ...]]] = {}
    for tally in tallies:
        for name, turns in tally.turns.items():
            parts.setdefault(name, []).append(turns)
    return {name: added(found) for name, found in parts.items()}


def turn_warnings(plan: RowPlan, turns: Turns) -> Iterator[tuple[str, str]]:
    """Return the name and a warning of each column whose policy doesn't suit its values."""
    for column in plan.columns:
        problem = _misfit(column, turns.get(column.name, ()))
        if problem:
            yield column.name, f"column {column.name}: {problem}"


def _misfit(column: ColumnPlan, turns: Sequence[TurnEvidence]) -> str:
    policy, topic = column.sampling.policy, column.topic
    wrapping = {unit: [one for one in turns if one.wraps(unit)] for unit in TURNS}
    if policy == "angle":
        return _no_angle(topic, [one for one in turns if not one.fits_radians], wrapping)
    for unit, turn in (("rad", "2 pi"), ("deg", "360")):
        if wrapping[unit]:
            jumps = counted(max(one.jumps(unit).turned for one in wrapping[unit]), "time")
            remedy = "`resample: angle`" if unit == "rad" else "`resample: nearest` (`angle` accepts radians)"
            alone = "" if all(one.fits_radians for one in turns) or unit == "deg" else " in a separate column"
            return (
                f"`resample: {policy}` mixes neighbouring values, but those of {topic} jump by a whole turn "
                f"({turn}) {jumps}; write {remedy}{alone}"
            )
    return ""


def _no_angle(
    topic: str, misfits: Sequence[TurnEvidence], wrapping: Mapping[str, Sequence[TurnEvidence]]
) -> str:
    if not misfits:
        return ""
    low, high = min(one.low for one in misfits), max(one.high for one in misfits)
    is_within = max(-low, high) <= TURNS["rad"]
    why = "without jumps by a turn" if is_within else "degrees, or not an angle that wraps"
    remedy = "`resample: nearest`" if wrapping["deg"] else "`resample: linear`"
    alone = " in a separate column" if wrapping["rad"] else ""
    hint = "" if wrapping["deg"] or is_within else ", or `nearest` if they wrap"
    beyond = counted(max(one.beyond for one in misfits), "value")
    return (
        f"`resample: angle` accepts directions in radians and changes {beyond} of {topic} beyond half a turn "
        f"({low:.6g} to {high:.6g}: {why}); write {remedy}{alone}{hint}"
    )


def has_points(column: ColumnPlan) -> bool:
    """Return whether a column has named fields of points as float32, which may round them."""
    is_named = (column.spec.adapter or "").startswith(f"{point_clouds.NAME}[")
    return is_named and column.ctype.dtype == np.float32


def rounding_warnings(plan: RowPlan, log: Log) -> Iterator[tuple[str, str]]:
    """Return names of columns of points whose dtype rounds values of a log's last cloud, with a warning."""
    for column in filter(has_points, plan.columns):
        with contextlib.suppress(*OF_CONTENT):  # the build reports it
            cloud = log.last_message(column.topic)
            for name, most in point_clouds.rounding(column.spec, cloud).items() if len(cloud) else ():
                yield (
                    column.name,
                    f"column {column.name}: float32 rounds the values of {name!r} of {column.topic} by up to "
                    f"{most:.3g} (in the last cloud); write `dtype: float64` to keep them",
                )


# --- values that are lost -------------------------------------------------------------------------------


def lost_warnings(plan: RowPlan, summary: LogSummary, tallies: Sequence[Tally]) -> Iterator[tuple[str, str]]:
    """Return the name of each column of which more than half is lost for one reason, its messages or its
    ticks, and a warning.
    """
    lost = [*summary.refusals, *(refusal for tally in tallies for refusal in tally.lost)]
    for column in plan.columns:
        messages = summary.topics[column.topic].num_messages if column.topic in summary.topics else 0
        own = (
            refusal
            for tally in tallies
            if (found := tally.columns.get(column.name))
            for refusal in found.refused
        )
        of_topic = (refusal for refusal in lost if refusal.topic == column.topic)
        for reason, count in _by_reason(dict.fromkeys((*of_topic, *own))):
            if 2 * count > messages:
                reason = reason.removeprefix(f"column {column.name}: ")
                what = f"{count:,} of {counted(messages, 'message')} of {column.topic}"
                yield column.name, f"column {column.name}: {what} can't be used: {reason}"
    for looked in plan.lookups:
        tried = sum(tally.tried.get(looked.name, 0) for tally in tallies)
        lacking = sum((Counter(tally.lacking.get(looked.name, {})) for tally in tallies), Counter[str]())
        for reason, count in sorted(lacking.items()):
            if 2 * count > tried and reason != f"no {looked.at}":
                pose = "all points' poses" if looked.around else "a pose"
                what = f"{count:,} of {counted(tried, 'tick')}"
                text = f"{what} are without {pose} of {looked.words}: {reason}"
                yield looked.name, f"column {looked.name}: {text}"


def _by_reason(refusals: Iterable[Refusal]) -> Iterator[tuple[str, int]]:
    """Group reasons that differ only in numbers, with the first message and the count of each."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for refusal in refusals:
        kind = re.sub(r"\d+", "0", refusal.reason)
        first.setdefault(kind, refusal.reason)
        counts[kind] += refusal.num_messages
    return ((first[kind], count) for kind, count in counts.items())
