"""Matched sets: one message of each of some topics, close together in time.

A message is in one set at most.
Here: `match`, a pure function of the times of each topic, which also returns where the result is certain.
Elsewhere: reading these times (logloom.transforms.rows.sync_clock), columns of sets
(logloom.transforms.rows.topic_columns).

A set's *spread* is the time from its earliest message to its latest, its *distance* the sum of distances to
the message of the topic that stamps it. Sets come in the order of (spread, distance, times); the first is
matched, then each next one that shares no message with those matched before, and crosses none: of two sets
one has the earlier message of every topic. So matching depends only on nearby sets, and on distant ones only
through chains of ever tighter sets. Times are int64 nanoseconds, distinct and ascending in each topic;
unknown times are never matched.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logloom.io.logs.interface import MAX_TIME, MIN_TIME
from logloom.resample.policies import Indices, Mask, Times, shifted
from logloom.values import dataclass

MAX_TOPICS = 16  # distances of as many messages sum up within int64
_FAR = 1 << 61  # further than any recipe's `within`; twice it fits in int64


@dataclass(frozen=True)
class Matched:
    """Matched sets among the messages of a stretch of a log.

    Attributes:
        sets: (S, K) indices into the times of each topic; ascending in every column.
        first, stop: sets whose stamp is in [first, stop) are the same as for the whole log.
    """

    sets: Indices
    first: int
    stop: int


def match(
    times: Sequence[Times], stamp: int, within: int, start: int = MIN_TIME, stop: int = MAX_TIME
) -> Matched:
    """Match the messages of a stretch of a log.

    Args:
        times: (N_k,) of each topic, distinct and ascending: all in [start, stop) of the log.
        stamp: the topic whose message provides the time of a set.
        within: the largest spread of a set.
        start, stop: `MIN_TIME` and `MAX_TIME` if the log has nothing before and after.

    Returns:
        The sets, and how far messages outside [start, stop) could change them.

    >>> camera, lidar = np.array([0, 33, 66, 100]), np.array([2, 97, 140])
    >>> match([camera, lidar], 1, 50).sets.tolist()
    [[0, 0], [3, 1]]
    """
    return _Matching(times, stamp, within, start, stop).run()


class _CandidateSet(NamedTuple):
    """The next possible set of a stamping message, or, once its best set is uncertain, any other."""

    spread: int
    distance: int
    times: tuple[int, ...]
    pivot: int
    picked: tuple[int, ...] = ()


class _Matching:
    """One run, from the tightest set to the widest.

    Attributes:
        left, right: sets that begin before `left`, or end at or after `right`, may meet messages beyond the
            stretch, or sets that do, and so on; a set that is certain shields those on its other side.
    """

    # known        start [------------------------------------) stop
    # uncertain      ####|within                    within|####
    # matched            .  x  o    o   o     o    o   x  .        o certain, x uncertain
    # first, stop           |---|                  |---|           from the first o to the last
    def __init__(self, times: Sequence[Times], stamp: int, within: int, start: int, stop: int):
        self._times, self._stamp, self._within = times, stamp, within
        self.left = start if start == MIN_TIME else start + within
        self.right = stop if stop == MAX_TIME else stop - within
        self._chosen: list[int] = []  # messages of the stamping topic, ascending
        self._sets: dict[int, tuple[int, ...]] = {}

    def run(self) -> Matched:
        num_pivots = len(self._times[self._stamp])
        heap = self._best(np.arange(num_pivots), *self._room(0))
        heapq.heapify(heap)
        while heap:
            entry = heapq.heappop(heap)
            for another in self._step(entry):
                heapq.heappush(heap, another)
        first, stop = self.left, self.right
        if self._chosen:
            stamps = self._times[self._stamp]
            first = min(first, int(stamps[self._chosen[0]]))
            stop = max(stop, int(stamps[self._chosen[-1]]) + 1)
        rows = [self._sets[pivot] for pivot in self._chosen]
        return Matched(np.array(rows, np.intp).reshape(-1, len(self._times)), first, stop)

    def _step(self, entry: _CandidateSet) -> Iterator[_CandidateSet]:
        """Match a set, or skip it; yield other candidates of its stamping message."""
        pivot, (is_left, is_right) = entry.pivot, self._exposed(entry.pivot)
        if not entry.picked:
            at = int(self._times[self._stamp][pivot])
            reach = (at - self._within, at + self._within)
            self._blur(*reach, is_left and at < self.left, is_right and at >= self.right)
            return
        lo, hi = self._room(pivot)
        if not all(a <= at < b for a, at, b in zip(lo, entry.picked, hi, strict=True)):
            yield from self._best(np.array([pivot]), lo, hi)
            return
        first, last = min(entry.times), max(entry.times)
        is_left, is_right = is_left and first < self.left, is_right and last >= self.right
        if not (is_left or is_right):
            bisect.insort(self._chosen, pivot)
            self._sets[pivot] = entry.picked
            return
        self._blur(first, last, is_left, is_right)
        nearest = self._nearest_other(pivot, entry.picked, lo, hi)
        if nearest <= self._within:
            yield _CandidateSet(max(entry.spread, nearest), 0, (), pivot)

    def _exposed(self, pivot: int) -> tuple[bool, bool]:
        """Return whether no certain set shields a message from what is before, and after, the stretch."""
        chosen = self._chosen
        return not (chosen and chosen[0] < pivot), not (chosen and chosen[-1] > pivot)

    def _blur(self, first: int, last: int, is_left: bool, is_right: bool) -> None:
        """Mark as uncertain what meets an uncertain set that begins and ends at these times."""
        if is_left:
            self.left = max(self.left, last + 1)
        if is_right:
            self.right = min(self.right, first)

    def _room(self, pivot: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the range of messages of each topic, [lo, hi), that neighbouring sets leave free."""
        at = bisect.bisect(self._chosen, pivot)
        lo, hi = (0,) * len(self._times), tuple(len(times) for times in self._times)
        if at:
            lo = tuple(index + 1 for index in self._sets[self._chosen[at - 1]])
        if at < len(self._chosen):
            hi = self._sets[self._chosen[at]]
        return lo, hi

    def _nearest_other(self, pivot: int, picked: Sequence[int], lo: Sequence[int], hi: Sequence[int]) -> int:
        """Return the distance of a stamping message to the nearest one outside its best set; `_FAR` for
        none.
        """
        at, nearest = int(self._times[self._stamp][pivot]), _FAR
        for k, times in enumerate(self._times):
            if k == self._stamp:
                continue
            middle = min(max(int(np.searchsorted(times, at)), lo[k]), hi[k] - 1)
            others = [i for i in range(max(lo[k], middle - 2), min(hi[k], middle + 3)) if i != picked[k]]
            nearest = min([nearest, *(abs(int(times[i]) - at) for i in others)])
        return nearest

    def _best(self, pivots: Indices, lo: Sequence[int], hi: Sequence[int]) -> list[_CandidateSet]:
        """Return the first set, in the order of sets, of each of some stamping messages that have any.

        Args:
            pivots: (P,) messages of the stamping topic.
            lo, hi: (K,) range of messages of each topic, [lo, hi).
        """
        at = self._times[self._stamp][pivots]
        # A tightest set only has nearest messages of each topic on either side.
        before, after = np.zeros((2, len(self._times), len(pivots)), np.intp)
        back, ahead = np.full((2, len(self._times), len(pivots)), _FAR)
        for k, times in enumerate(self._times):
            if k == self._stamp:
                before[k], back[k] = pivots, 0
            elif lo[k] < hi[k]:
                right = np.searchsorted(times, at, "right")
                before[k], after[k] = np.minimum(right, hi[k]) - 1, np.maximum(right, lo[k])
                back[k] = self._distances(times, before[k], at, lo[k], hi[k])
                ahead[k] = self._distances(times, after[k], at, lo[k], hi[k])
        spread, distance, is_after = _tightest(back, ahead)
        found = np.flatnonzero(spread <= self._within)
        picked = np.where(is_after, after, before)[:, found].T.tolist()
        return [
            _CandidateSet(int(spread[n]), int(distance[n]), self._at(row), int(pivots[n]), tuple(row))
            for n, row in zip(found.tolist(), picked, strict=True)
        ]

    def _at(self, picked: Sequence[int]) -> tuple[int, ...]:
        return tuple(int(times[i]) for times, i in zip(self._times, picked, strict=True))

    def _distances(self, times: Times, index: Indices, at: Times, lo: int, hi: int) -> NDArray[np.int64]:
        """(P,) from stamping messages to others; `_FAR` to none, and beyond `within`."""
        found = times[np.clip(index, 0, len(times) - 1)]
        near = (found >= shifted(at, -self._within)) & (found <= shifted(at, self._within))
        return np.where((index >= lo) & (index < hi) & near, np.abs(found - at), _FAR)


def _tightest(
    back: NDArray[np.int64], ahead: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], Mask]:
    """The first set, in the order of sets, around each stamping message.

    Args:
        back, ahead: (K, P) distances of each topic's nearest messages on either side; `_FAR` for none.

    Returns:
        (P,) spreads, (P,) distances, (K, P) whether the set has the message ahead.
    """
    num_topics, num_pivots = back.shape
    spread, distance = np.full((2, num_pivots), 4 * _FAR - 1)
    is_after = np.zeros((num_topics, num_pivots), np.bool_)
    for begin in back:  # a set begins as far back as one of its messages
        reaches = back <= begin
        end = np.where(reaches, 0, ahead).max(axis=0)
        # Within a spread each topic gives its nearest message, the earlier on a tie.
        later = ~reaches | ((ahead < back) & (ahead <= end))
        length, total = begin + end, np.where(later, ahead, back).sum(axis=0)
        is_less = (length < spread) | ((length == spread) & (total < distance))
        is_tie = (length == spread) & (total == distance)
        is_less |= is_tie & _is_earlier(later, is_after)
        spread, distance = np.where(is_less, length, spread), np.where(is_less, total, distance)
        is_after = np.where(is_less, later, is_after)
    return spread, distance, is_after


def _is_earlier(a: Mask, b: Mask) -> Mask:
    """(P,) which sets have the earlier message of the first topic in which two differ."""
    differ = a != b
    first = differ.argmax(axis=0)
    is_earlier: Mask = differ.any(axis=0) & ~a[first, np.arange(a.shape[1])]
    return is_earlier
