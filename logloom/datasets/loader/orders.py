"""The order in which rows come to training: functions of a position and a seed, without a state.

Here: `Order`, of one dataset; `MixedOrder`, of several by weight.
Elsewhere: batches (logloom.datasets.loader.loader), several datasets as one
(logloom.datasets.mixing.mixture).

Positions are int64 and count rows from the beginning of training, over all epochs and shards.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from logloom.caching import cached_property
from logloom.errors import UsageError

Ints = NDArray[np.int64]

LONGEST_PERIOD = 1_000_000  # positions; weights of six digits


class Order:
    """The order in which rows of one dataset come, epoch after epoch."""

    def __init__(self, length: int, shuffle: bool):
        self._length = length
        self._shuffle = shuffle
        self._permutation = functools.lru_cache(maxsize=2)(self._permute)

    def _permute(self, seed: int, epoch: int) -> Ints:
        return np.random.default_rng([seed, epoch]).permutation(self._length)

    def rows(self, positions: Ints, seed: int) -> Ints:
        """The rows at some positions, ascending, of the endless sequence of epochs."""
        epochs, places = np.divmod(positions, self._length)
        if not self._shuffle:
            return places
        rows = np.empty(len(positions), np.int64)
        for epoch in np.unique(epochs).tolist():
            there = epochs == epoch
            rows[there] = self._permutation(seed, epoch)[places[there]]
        return rows


class MixedOrder:
    """The order in which rows of several sources come, by weight.

    Weights repeat after a period, the least number of positions in which each source comes a whole number of
    times. Which source comes at each position of a period, and for how many times it came before, are two
    arrays; so position p of any size is looked up, at p modulo the period.

        weights 3/5, 2/5   period 5   sources  0 1 0 1 0 | 0 1 0 1 0 | …
                                      before   0 0 1 1 2 | 3 2 4 3 5 | …
    """

    def __init__(
        self, lengths: Sequence[int], shares: Sequence[int], shuffle: bool, repeat: bool, seed: int = 0
    ):
        """
        Args:
            lengths: (S,) rows of each source; at least one where its share isn't 0.
            shares: (S,) how often each comes in a period; see `shares_of`.
            shuffle: each source in a fresh permutation each time that it begins anew; else in its own order.
            repeat: see `logloom.datasets.mix`.
            seed: of the permutations, beside that given to `rows`.
        """
        self._lengths, self._shares = np.array(lengths, np.int64), np.array(shares, np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._shuffle, self._repeat, self._seed = shuffle, repeat, seed
        self._sources = pattern_of(shares)
        self._period = len(self._sources)
        self._before = np.empty(self._period, np.int64)
        for source, share in enumerate(shares):
            self._before[self._sources == source] = np.arange(share)
        self._permutation = functools.lru_cache(maxsize=2 * len(shares))(self._permute)

    def _permute(self, seed: int, source: int, epoch: int) -> Ints:
        return np.random.default_rng([self._seed, seed, source, epoch]).permutation(self._lengths[source])

    @cached_property
    def length(self) -> int:
        """Positions of an epoch: until each source came whole; or, unless they repeat, one would anew."""
        ends = []
        for source in np.flatnonzero(self._shares).tolist():
            # That of its last row, after which the epoch ends; or that of the next row, which is not in it.
            times = int(self._lengths[source]) - self._repeat
            periods, rest = divmod(times, int(self._shares[source]))
            slot = int(np.flatnonzero(self._sources == source)[rest])
            ends.append(periods * self._period + slot + self._repeat)
        return max(ends) if self._repeat else min(ends)

    def draws(self, positions: Ints) -> tuple[Ints, Ints]:
        """(n,) the source at each position, and (n,) how many times it came before."""
        periods, places = np.divmod(positions, self._period)
        sources = self._sources[places]
        return sources, periods * self._shares[sources] + self._before[places]

    def rows(self, positions: Ints, seed: int) -> Ints:
        """(n,) rows at some positions; a row's number counts through all sources, one after the other."""
        if self._repeat:
            sources, draws = self.draws(positions)
            epochs, rows = np.divmod(draws, self._lengths[sources])
        else:
            epochs, within = np.divmod(positions, self.length)
            sources, rows = self.draws(within)
        if self._shuffle:
            # One number for both, since that of a batch is found far sooner than a pair is.
            keys = epochs * len(self._shares) + sources
            for key in set(keys.tolist()):
                there = np.flatnonzero(keys == key)
                epoch, source = divmod(key, len(self._shares))
                rows[there] = self._permutation(seed, source, epoch)[rows[there]]
        return self._starts[sources] + rows


def shares_of(weights: Sequence[float | str | Fraction]) -> list[int]:
    """How often each source comes in a period; exact: a float is the decimal of its text.

    Raises:
        UsageError: a weight is negative or no number, all are 0, or the period is too long.
    """
    if not weights:
        raise UsageError("mix: no sources; name at least one, with its weight")
    exact = [_exact(one) for one in weights]
    total = sum(exact, Fraction(0))
    if any(one < 0 for one in exact) or total <= 0:
        raise UsageError(f"mix: weights {', '.join(map(str, exact))}: none is negative, and not all are 0")
    period = math.lcm(*((one / total).denominator for one in exact))
    if period > LONGEST_PERIOD:
        raise UsageError(
            f"mix: weights of so many digits repeat after {period:,} rows only, of at most "
            f"{LONGEST_PERIOD:,}: round them, or write them as whole numbers (2 and 1 rather than 0.6666667 "
            "and 0.3333333)"
        )
    return [int(one / total * period) for one in exact]


def _exact(weight: float | str | Fraction) -> Fraction:
    try:
        return Fraction(weight) if isinstance(weight, int | Fraction) else Fraction(str(weight))
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(
            f"mix: weight {weight!r:.60}: not a number; a weight is a number such as 0.6"
        ) from error


def pattern_of(shares: Sequence[int]) -> Ints:
    """(D,) which source comes at each position of a period, D = sum(shares).

    Among the first p positions a source of share s occurs p s / D times, with a difference of less than one.
    For that its time number k has to be within positions [floor(k D / s), ceil((k + 1) D / s)). A sequence
    that keeps all these exists for any shares, and the earliest end first finds it: the sources are jobs of
    unit length on one processor, see Baruah, Cohen, Plaxton and Varvel, "Proportionate progress" (1996).
    """
    period = sum(shares)
    pattern = np.empty(period, np.int64)
    jobs = [_windows(number, share, period) for number, share in enumerate(shares) if share]
    waiting = [(*next(job), job) for job in jobs]  # (first position, end, source) first; sources differ
    heapq.heapify(waiting)
    ready: list[tuple[int, int, Iterator[tuple[int, int, int]]]] = []
    for position in range(period):
        while waiting and waiting[0][0] <= position:
            _, end, source, job = heapq.heappop(waiting)
            heapq.heappush(ready, (end, source, job))
        _, source, job = heapq.heappop(ready)
        pattern[position] = source
        if (following := next(job, None)) is not None:
            heapq.heappush(waiting, (*following, job))
    return pattern


def _windows(source: int, share: int, period: int) -> Iterator[tuple[int, int, int]]:
    """(first position, end, source) of each time that a source comes."""
    for time in range(share):
        yield time * period // share, -(-(time + 1) * period // share), source
