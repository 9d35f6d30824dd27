"""Orders of rows for training: pure functions of a position and a seed.

Here: `Order`, of one dataset; `MixedOrder`, of several by weight; `RowGroups`, which both shuffle where rows
are to be read group by group.
Elsewhere: batches (logloom.datasets.loader.loader), several datasets as one
(logloom.datasets.mixing.mixture).

Positions are int64 and count rows from the beginning of training, over all epochs and shards.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from logloom.caching import cached_property
from logloom.digests import digest_of
from logloom.errors import UsageError

Ints = NDArray[np.int64]

LONGEST_PERIOD = 1_000_000  # positions; weights of six digits


class RowGroups:
    """Rows by the groups in which they are stored, and the order in which they come group by group.

    In each epoch the groups come in a random order. Each `pool` of them that follow each other are shuffled:
    their rows come in a random order before any row of the next ones.

        groups  a a a | b b | c c c | d d    pool 2    c a c c a a | d b b d

    Attributes:
        starts: (G + 1,) where each group begins among the rows ordered by group.
    """

    def __init__(self, starts: Ints, members: Ints | None):
        """
        Args:
            members: (n,) numbers of the rows, ordered by group; None where they are 0, 1, ….
        """
        is_plain = members is None or np.array_equal(members, np.arange(len(members)))
        self.starts, self._members = starts, None if is_plain else members

    def members_of(self, group: int) -> Ints:
        """(k,) the numbers of the rows of a group."""
        start, stop = self.starts[group : group + 2].tolist()
        return np.arange(start, stop) if self._members is None else self._members[start:stop]

    def places_of(self, rows: Ints) -> Ints:
        """(k,) the places of rows among those ordered by group."""
        return rows if self._members is None else self._places[rows]

    @cached_property
    def _places(self) -> Ints:
        assert self._members is not None
        places = np.empty_like(self._members)
        places[self._members] = np.arange(len(places))
        return places

    @property
    def digest(self) -> str:
        """Of which rows are in which group."""
        parts = [self.starts] if self._members is None else [self.starts, self._members]
        hashes = [blake3(np.ascontiguousarray(part, "<i8").view(np.uint8).data).hexdigest() for part in parts]
        return digest_of(hashes)[:32]

    def permuted(self, rng: np.random.Generator, pool: int) -> tuple[Ints, Ints]:
        """(n,) the rows in a random order; and the number of each one's group in its pool, from 0."""
        order = rng.permutation(len(self.starts) - 1)
        sizes = np.diff(self.starts)[order]
        ends = np.cumsum(sizes)
        rows = np.repeat(self.starts[order] - ends + sizes, sizes) + np.arange(self.starts[-1])
        lanes = np.repeat(np.arange(len(order)) % pool, sizes)
        bounds = [0, *ends[pool - 1 :: pool].tolist(), len(rows)]
        for start, stop in itertools.pairwise(bounds):
            shuffled = start + rng.permutation(stop - start)
            rows[start:stop], lanes[start:stop] = rows[shuffled], lanes[shuffled]
        return rows if self._members is None else self._members[rows], lanes.astype(np.int32)


class Order:
    """The order in which rows of one dataset come, epoch after epoch."""

    def __init__(self, length: int, shuffle: bool, groups: RowGroups | None = None, pool: int = 1):
        """
        Args:
            groups: that are shuffled, and the rows in them; None to shuffle all rows.
            pool: how many groups are shuffled together.
        """
        self._length, self._shuffle, self._groups, self._pool = length, shuffle, groups, pool
        self._permutation = functools.lru_cache(maxsize=2)(self._permute)

    def _permute(self, seed: int, epoch: int) -> tuple[Ints, ...]:
        rng = np.random.default_rng([seed, epoch])
        if self._groups is not None:
            return self._groups.permuted(rng, self._pool)
        return (rng.permutation(self._length),)

    def rows(self, positions: Ints, seed: int) -> Ints:
        """The rows at some positions, ascending, of the endless sequence of epochs."""
        return self._found(positions, seed, 0) if self._shuffle else positions % self._length

    def lanes(self, positions: Ints, seed: int) -> Ints:
        """The number of each row's group in its pool."""
        return self._found(positions, seed, 1)

    def _found(self, positions: Ints, seed: int, which: int) -> Ints:
        epochs, places = np.divmod(positions, self._length)
        found = np.empty(len(positions), np.int64)
        for epoch in np.unique(epochs).tolist():
            there = epochs == epoch
            found[there] = self._permutation(seed, epoch)[which][places[there]]
        return found


class MixedOrder:
    """The order in which rows of several sources come, by weight.

    Weights repeat after a period, the least number of positions in which each source comes a whole number of
    times. Which source comes at each position of a period, and for how many times it came before, are two
    arrays; so position p of any size is looked up, at p modulo the period.

        weights 3/5, 2/5   period 5   sources  0 1 0 1 0 | 0 1 0 1 0 | …
                                      before   0 0 1 1 2 | 3 2 4 3 5 | …
    """

    def __init__(
        self,
        lengths: Sequence[int],
        shares: Sequence[int],
        shuffle: bool,
        repeat: bool,
        seed: int = 0,
        groups: Sequence[RowGroups] = (),
        pool: int = 1,
    ):
        """
        Args:
            lengths: (S,) rows of each source; at least one where its share isn't 0.
            shares: (S,) how often each comes in a period; see `shares_of`.
            shuffle: each source in a fresh permutation each time that it begins anew; else in its own order.
            repeat: see `logloom.datasets.mix`.
            seed: of the permutations, beside that given to `rows`.
            groups, pool: of each source, see `Order`; () to shuffle all rows.
        """
        self._lengths, self._shares = np.array(lengths, np.int64), np.array(shares, np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._shuffle, self._repeat, self._seed = shuffle, repeat, seed
        self._groups, self._pool = groups, pool
        self._sources = pattern_of(shares)
        self._period = len(self._sources)
        self._before = np.empty(self._period, np.int64)
        for source, share in enumerate(shares):
            self._before[self._sources == source] = np.arange(share)
        self._permutation = functools.lru_cache(maxsize=2 * len(shares))(self._permute)

    def _permute(self, seed: int, source: int, epoch: int) -> tuple[Ints, ...]:
        rng = np.random.default_rng([self._seed, seed, source, epoch])
        if self._groups:
            return self._groups[source].permuted(rng, self._pool)
        return (rng.permutation(self._lengths[source]),)

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
        epochs, sources, rows = self._places(positions)
        if self._shuffle:
            rows = self._found(epochs, sources, rows, seed, 0)
        return self._starts[sources] + rows

    def lanes(self, positions: Ints, seed: int) -> Ints:
        """(n,) the number of each row's group in the pool of its source; sources count on."""
        epochs, sources, rows = self._places(positions)
        return sources * self._pool + self._found(epochs, sources, rows, seed, 1)

    def _places(self, positions: Ints) -> tuple[Ints, Ints, Ints]:
        """(n,) the epoch of the source, the source, and the place in the source's order."""
        if self._repeat:
            sources, draws = self.draws(positions)
            epochs, rows = np.divmod(draws, self._lengths[sources])
        else:
            epochs, within = np.divmod(positions, self.length)
            sources, rows = self.draws(within)
        return epochs, sources, rows

    def _found(self, epochs: Ints, sources: Ints, places: Ints, seed: int, which: int) -> Ints:
        found = np.empty(len(places), np.int64)
        # One number for both, since that of a batch is found far sooner than a pair is.
        keys = epochs * len(self._shares) + sources
        for key in set(keys.tolist()):
            there = np.flatnonzero(keys == key)
            epoch, source = divmod(key, len(self._shares))
            found[there] = self._permutation(seed, source, epoch)[which][places[there]]
        return found


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
