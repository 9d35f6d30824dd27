"""Columns of labels: labels of a tick, values of rows, and the use of each label.

    ticks       0     100   200         tolerance 20
    labels     a b       c      d       at 5, 5, 115, 290
    row        [a b]  [c]   []          a, b and c are used; d matches no row; 200 has no label

Here: `Labelled`, a column of a piece; the accounts of a span (`LabelCounts`) and of a log (`account`).
Elsewhere: labels in a root (logloom.io.catalog.labels), the pieces of columns (topic_columns). A tick uses
the labels of the stamp closest to it, the earlier one on a tie, within `tolerance`. So a span needs no other
ticks to make its rows. A label that two spans may use is accounted for when all are complete, like messages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values, run_indices, take
from logloom.errors import LogloomError
from logloom.io.catalog.labels import LogLabels
from logloom.text import counted
from logloom.transforms.rows.accounts import LabelTally, Tally, near_edge, within
from logloom.transforms.rows.plan.row_plan import LabelPlan, RowPlan, Span
from logloom.transforms.rows.resample import Indices, Mask, Times, choose
from logloom.values import dataclass

MAX_LISTED = 20  # times of each kind that a log's record lists


class Labelled:
    """A column of labels in a piece.

    Attributes:
        used: (S,) stamps of labels in rows.
        without: ticks of rows without a label.
    """

    def __init__(self, plan: LabelPlan, labels: LogLabels | None, ticks: Times):
        self._plan, self._ticks = plan, ticks
        self._labels = LogLabels.none(plan.item) if labels is None else labels
        self._choice = choose(plan.sampling, self._labels.stamps, ticks)
        self.used = np.zeros(len(self._labels.stamps), np.bool_)
        self.without: list[Times] = []

    @property
    def available(self) -> Mask:
        """(T,) of the piece's ticks."""
        return self._choice.available

    def rows(self, ticks: Indices) -> tuple[Values, Times, Mask]:
        """Return the column at some of the piece's ticks: values, ages and availabilities."""
        choice, labels = self._choice.select(ticks), self._labels
        if not self._plan.many:
            return choice.apply(take(labels.values, choice.rows), self._plan.ctype, self._plan.name)
        available = choice.available
        at = choice.lo[available]
        first = labels.starts[at]
        lengths = np.zeros(len(ticks), np.int64)
        lengths[available] = labels.starts[at + 1] - first if len(at) else 0
        assert isinstance(labels.values, np.ndarray)
        found = labels.values[run_indices(first, lengths[available])]
        return Ragged(found, lengths), choice.age, available

    def keep(self, ticks: Indices) -> None:
        """Record that these ticks are rows."""
        choice = self._choice.select(ticks)
        self.used[choice.lo[choice.available]] = True
        self.without.append(self._ticks[ticks][~choice.available])


class LabelCounts:
    """Accounts of a column of labels in a span, from those of its pieces."""

    def __init__(self, plan: LabelPlan, labels: LogLabels | None):
        self._plan = plan
        self._labels = LogLabels.none(plan.item) if labels is None else labels
        self._used = np.zeros(len(self._labels.stamps), np.bool_)
        self._without: list[Times] = []

    def add(self, column: Labelled) -> None:
        self._used |= column.used
        self._without += column.without

    def tally(self, span: Span) -> LabelTally:
        labels = self._labels
        used = np.repeat(self._used, np.diff(labels.starts))
        own = within(labels.times, span)
        edge = own & ~used & near_edge(labels.times, self._plan.sampling, span)
        unmatched = own & ~used & ~edge
        without = np.concatenate([np.empty(0, np.int64), *self._without])
        return LabelTally(
            owned=int(own.sum()),
            used=int((used & own).sum()),
            used_outside=_positions(used & ~own),
            unused_edge=_positions(edge),
            unmatched=_positions(unmatched)[:MAX_LISTED],
            without=len(without),
            without_at=tuple(without[:MAX_LISTED].tolist()),
        )


def _positions(mask: Mask) -> tuple[int, ...]:
    return tuple(np.flatnonzero(mask).tolist())


@dataclass(frozen=True)
class LabelAccount:
    """Use of a log's labels in a column.

    Attributes:
        labels: of the log; used: of these, those in a row.
        unmatched: times of the first that match no row, ns.
        rows: of the log; without: of these, those without a label.
        without_at: times of the first of these, ns.
    """

    name: str
    labels: int
    used: int
    unmatched: tuple[int, ...]
    rows: int
    without: int
    without_at: tuple[int, ...]

    @property
    def lines(self) -> Iterator[str]:
        """Lines for a log's record."""
        if lost := self.labels - self.used:
            labels = f"{lost:,} of {counted(self.labels, 'label')} match no row"
            yield f"{self.name}: {labels}: at {_listed(self.unmatched)}"
        if self.without:
            rows = f"{self.without:,} of {counted(self.rows, 'row')} have no label"
            yield f"{self.name}: {rows}: at {_listed(self.without_at)}"


def _listed(times: Sequence[int]) -> str:
    once = list(dict.fromkeys(times))
    return ", ".join(map(str, once[:MAX_LISTED])) + " ns"


def account(
    plan: RowPlan, found: Mapping[str, LogLabels], tallies: Sequence[Tally]
) -> Iterator[LabelAccount]:
    """Sum the use of a log's labels.

    Args:
        found: its labels, by column.
        tallies: of all its partitions; none if the log has no ticks.

    Raises:
        LogloomError: the sums don't match.
    """
    tallies = sorted(tallies, key=lambda tally: tally.start)
    rows = sum(tally.rows for tally in tallies)
    for column in plan.labels:
        labels = found.get(column.name, LogLabels.none(column.item))
        parts = [tally.labels.get(column.name, LabelTally()) for tally in tallies]
        outside = {position for part in parts for position in part.used_outside}
        edge = {position for part in parts for position in part.unused_edge}
        used = sum(part.used for part in parts) + len(outside & edge)
        lost = sorted({position for part in parts for position in part.unmatched} | (edge - outside))
        if tallies and sum(part.owned for part in parts) != len(labels):
            raise LogloomError(
                f"column {column.name!r}: its log has {len(labels)} labels, but partitions own "
                f"{sum(part.owned for part in parts)}. This build is not safe to use; please report it."
            )
        if not tallies:
            lost = list(range(min(len(labels), MAX_LISTED)))
        without_at = itertools.islice((t for part in parts for t in part.without_at), MAX_LISTED)
        yield LabelAccount(
            column.name,
            len(labels),
            used,
            _times(labels, lost),
            rows,
            sum(part.without for part in parts),
            tuple(without_at),
        )


def _times(labels: LogLabels, positions: Sequence[int]) -> tuple[int, ...]:
    """Return the times of labels, each once, as far as they are listed."""
    times: NDArray[np.int64] = np.unique(labels.times[np.array(positions, np.int64)])
    return tuple(times[:MAX_LISTED].tolist())
