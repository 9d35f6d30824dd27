"""Gaps between rows: ticks that are no rows, and what dropped them.

Here: `TickGaps`, which counts while rows are made; `GapTally`, its result for a span, also of rows that are
filtered later (`filtered_gaps`); `Cut`, gaps that end episodes (`cuts_of`).
Elsewhere: episodes and scenes (logloom.transforms.rows.sequences).
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from logloom.io.storage.metadata import Count, Int64, Text
from logloom.query.bounds import stretches
from logloom.values import dataclass

Masks = NDArray[np.uint64]

_LAST_BIT = 62  # shared by all further reasons; masks are stored as int64


@dataclass(frozen=True)
class GapTally:
    """Gaps between the rows of a span, each of which is some consecutive ticks.

    Attributes:
        reasons: what drops ticks; bit n of a mask is reason n.
        between: equal gaps between two rows: mask, ticks, number of gaps, first tick of the first, and the
            longest time from the row before to the row after, ns.
        before, after: the gap before the first row and after the last one, if there is one: mask, first and
            last tick. Without rows all ticks are `before`.
    """

    reasons: tuple[Text, ...] = ()
    between: tuple[tuple[Count, Count, Count, Int64, Count], ...] = ()
    before: tuple[Int64, ...] = ()
    after: tuple[Int64, ...] = ()

    def of(self, mask: int) -> tuple[str, ...]:
        """The reasons of a mask."""
        return tuple(reason for bit, reason in enumerate(self.reasons) if mask >> min(bit, _LAST_BIT) & 1)


class TickGaps:
    """Counts the gaps between the rows of a span while its rows are made."""

    def __init__(self, reasons: Iterable[str]):
        self._reasons = tuple(reasons)
        self._bits = {name: np.uint64(1 << min(n, _LAST_BIT)) for n, name in enumerate(self._reasons)}
        self._between: dict[tuple[int, int], list[int]] = {}
        self._before: tuple[int, ...] = ()
        self._open: tuple[int, int, int, int] | None = None  # mask, ticks, first and last tick
        self._row: int | None = None  # the last one

    def bit(self, reason: str) -> np.uint64:
        """The mask of a reason."""
        return self._bits[reason]

    def add(self, ticks: NDArray[np.int64], masks: Masks) -> None:
        """Add the next ticks.

        Args:
            ticks: (n,) ascending.
            masks: (n,) what dropped each; 0 for a row.
        """
        # masks    0 0 4 4 0 1 0        gaps [2, 4) and [5, 6)
        starts, lasts = stretches(masks != 0)
        unions = np.bitwise_or.reduceat(masks, starts) if len(starts) else masks[:0]
        at = 0
        for start, stop, mask in zip(starts.tolist(), (lasts + 1).tolist(), unions.tolist(), strict=True):
            if start > at:
                self._add_rows(int(ticks[at]), int(ticks[start - 1]))
            self._add_gap(mask, stop - start, int(ticks[start]), int(ticks[stop - 1]))
            at = stop
        if at < len(ticks):
            self._add_rows(int(ticks[at]), int(ticks[-1]))

    def _add_gap(self, mask: int, count: int, first: int, last: int) -> None:
        if self._open is not None:
            mask, count, first = mask | self._open[0], count + self._open[1], self._open[2]
        self._open = mask, count, first, last

    def _add_rows(self, first: int, last: int) -> None:
        if self._open is not None:
            mask, count, began, ended = self._open
            if self._row is None:
                self._before = mask, began, ended
            else:
                found = self._between.setdefault((mask, count), [0, began, 0])
                found[0] += 1
                found[2] = max(found[2], first - self._row)
        self._open, self._row = None, last

    def tally(self) -> GapTally:
        """The gaps so far; without any it is empty."""
        rest = () if self._open is None else (self._open[0], *self._open[2:])
        before, after = (rest, ()) if self._row is None else (self._before, rest)
        if not (self._between or before or after):
            return GapTally()
        between = tuple((*key, *found) for key, found in self._between.items())
        return GapTally(self._reasons, between, before, after)  # type: ignore[arg-type]


def filtered_gaps(
    before: GapTally,
    times: NDArray[np.int64],
    passed: NDArray[np.bool_],
    reason: str,
    period: int | None,
) -> GapTally:
    """The gaps of a span of which a filter drops some rows, too.

    A gap beside such a row becomes part of a longer one. It is found by its ticks; with a topic's clock, only
    the first of equal ones is.

    Args:
        before: without the filter.
        times: (n,) of all rows.
        passed: (n,) whether each passes.
        reason: what the filter is called.
        period: of a rate clock, ns; None for others.
    """
    #  rows     0 1     2 3 4 5       passed  0 and 1, 4 and 5
    #  before      <--->              a gap of ticks
    #  after       <-------->         another one: [2, 4) with what was between 1 and 2
    if passed.all():
        return before
    reasons = before.reasons if reason in before.reasons else (*before.reasons, reason)
    own = 1 << min(reasons.index(reason), _LAST_BIT)
    kinds = {
        (mask, ticks): [number, first, longest] for mask, ticks, number, first, longest in before.between
    }
    added: list[tuple[int, int, int, int]] = []
    edges = {"before": before.before, "after": before.after}
    starts, lasts = stretches(~passed)
    for start, stop in zip(starts.tolist(), (lasts + 1).tolist(), strict=True):
        mask, ticks, around = own, stop - start, times[max(start - 1, 0) : stop + 1].tolist()
        first, last = int(times[start]), int(times[stop - 1])
        for pair in itertools.pairwise(around):
            found = _gap_at(kinds, *pair, period)
            if found is None:
                continue
            mask, ticks, first = mask | found[0], ticks + found[1], min(first, found[2])
            last = max(last, found[2] + (found[1] - 1) * (period or 0))
        if start and stop < len(times):
            added.append((mask, ticks, first, around[-1] - around[0]))
            continue
        for edge in ["before"] * (not start) + ["after"] * (stop == len(times)):
            if known := edges[edge]:
                mask, first, last = mask | known[0], min(first, known[1]), max(last, known[2])
        edges |= {"after" if start else "before": (mask, first, last)}
        edges |= {} if start or stop < len(times) else {"after": ()}
    for mask, ticks, first, longest in added:
        kind = kinds.setdefault((mask, ticks), [0, first, 0])
        kind[:] = kind[0] + 1, min(kind[1], first), max(kind[2], longest)
    between = tuple((*key, *kind) for key, kind in kinds.items())
    return GapTally(reasons, between, **edges)  # type: ignore[arg-type]


def _gap_at(
    kinds: dict[tuple[int, int], list[int]], before: int, after: int, period: int | None
) -> tuple[int, int, int] | None:
    """Take the gap between two rows out of those that are counted: its mask, its ticks and the first of them.

    None without a gap.
    """
    fitting = [
        (not before < first < after, longest, key, first)
        for key, (_, first, longest) in kinds.items()
        if before < first < after or (period and key[1] == round((after - before) / period) - 1)
    ]
    if not fitting:
        return None
    is_another, _, key, first = min(fitting)
    kinds[key][0] -= 1
    if not kinds[key][0]:
        del kinds[key]
    return *key, before + (period or 0) if is_another else first


@dataclass(frozen=True)
class Cut:
    """Gaps of one kind that end sequences of rows.

    Attributes:
        reasons: what dropped their ticks, as a tally names it; () where a log is silent, or unknown.
        is_long: whether they are too long to be bridged by other values.
        number: of gaps.
        longest: ns from the row before to the row after.
        first: the first tick of the first gap; log: the log that it is in.
    """

    reasons: tuple[Text, ...]
    is_long: bool
    number: Count
    longest: Count
    first: Int64
    log: Text


def longest_bridge(period: int | None) -> int:
    """The longest time between rows, ns, that another message may bridge: a second, or some ticks."""
    return max(10**9, 4 * (period or 0))


def cuts_of(
    tallies: Iterable[GapTally], ends: Sequence[tuple[int, int]], limit: int, period: int | None, log: str
) -> tuple[Cut, ...]:
    """Find what ends the sequences of a log.

    Args:
        tallies: of its spans.
        ends: times of the rows before and after each gap that ends a sequence, in time order.
        limit: the longest gap that doesn't end one, ns.
        period: of a rate clock, ns; None for others.
    """
    starts = [before for before, _ in ends]
    across: dict[int, tuple[set[str], int]] = {}  # gaps over the edges of spans
    bridge = longest_bridge(period)
    kinds = list[tuple[tuple[str, ...], int, int, int]]()
    for tally in tallies:
        kinds += [
            (tally.of(mask), number, first, longest)
            for mask, _, number, first, longest in tally.between
            if longest > limit
        ]
        for mask, first, last in filter(None, (tally.before, tally.after)):
            at = bisect.bisect_left(starts, first) - 1
            if at >= 0 and last < ends[at][1]:
                names, earliest = across.setdefault(at, (set(), first))
                across[at] = names | {*tally.of(mask)}, min(first, earliest)
    found, spare = list[Cut](), len(ends) - len(across) - len(kinds)
    for reasons, number, first, longest in kinds:
        # Gaps of as many ticks of a topic's clock differ in time: some may end nothing, but not the longest.
        more = max(0, min(number - 1, spare))
        spare -= more
        found.append(Cut(reasons, longest > bridge, 1 + more, longest, first, log))
    for at, (names, first) in sorted(across.items()):
        apart = ends[at][1] - ends[at][0]
        found.append(Cut(tuple(sorted(names)), apart > bridge, 1, apart, first, log))
    if (rest := len(ends) - sum(cut.number for cut in found)) > 0:  # no ticks: far longer than all others
        before, after = max(ends, key=lambda end: end[1] - end[0])
        found.append(Cut((), after - before > bridge, rest, after - before, before, log))
    return merged_cuts(found)


def merged_cuts(cuts: Iterable[Cut]) -> tuple[Cut, ...]:
    """Sum cuts of the same kind; the first gap of the log first by name remains."""
    kinds: dict[tuple[tuple[str, ...], bool], Cut] = {}
    for cut in sorted(cuts, key=lambda one: (one.log, one.first)):
        key = cut.reasons, cut.is_long
        one = kinds.get(key)
        if one is not None:
            cut = replace(one, number=one.number + cut.number, longest=max(one.longest, cut.longest))
        kinds[key] = cut
    return tuple(kinds[key] for key in sorted(kinds))
