"""The least distance between two sets of points, in space or in time.

Elsewhere: what they are (logloom.datasets.splits.split).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from logloom.blocks import Array
from logloom.io.rows.log_ranges import Ints

_LEVELS = 45  # of which the last has boxes of a 10^-13th of all, whose points count as one
_PAIRS = 1 << 18  # of boxes that are looked at together


def least_distance(one: Array, other: Array, few: int = 1 << 20) -> tuple[float, tuple[int, ...]]:
    """The distance of the two nearest points, and their numbers; (inf, ()) where a set is empty.

    Branch and bound over two quadtrees. Pairs of boxes whose points can't be nearer than two that are known
    are given up, others are quartered, the nearest first, until few pairs of points are left.

    Args:
        one, other: (N, d) and (M, d) float64, finite.
        few: pairs of points that are compared at once.
    """
    if not len(one) or not len(other):
        return math.inf, ()
    (one, known), (other, known_too) = (
        np.unique(points, axis=0, return_index=True) for points in (one, other)
    )
    low = np.minimum(one.min(axis=0), other.min(axis=0))
    side = float((np.maximum(one.max(axis=0), other.max(axis=0)) - low).max()) or 1.0
    levels = functools.cache(lambda level: (_Boxes(one, low, side, level), _Boxes(other, low, side, level)))
    best, at = math.inf, (0, 0)
    todo = [(0, np.zeros((1, 2), np.int64), np.zeros(1))]
    while todo:
        level, pairs, bounds = todo.pop()
        pairs = pairs[bounds < best]
        a, b = levels(level)
        if int((a.counts[pairs[:, 0]] * b.counts[pairs[:, 1]]).sum()) <= few:
            chosen, is_last = _crossed(pairs, (a.starts, a.counts), (b.starts, b.counts)), True
            points = a.order[chosen[:, 0]], b.order[chosen[:, 1]]
        else:
            a, b = levels(level + 1)
            chosen, is_last = _crossed(pairs, a.children, b.children), False
            chosen = np.stack([a.by_parent[chosen[:, 0]], b.by_parent[chosen[:, 1]]], axis=1)
            points = a.first[chosen[:, 0]], b.first[chosen[:, 1]]
        if not len(chosen):
            continue
        distances = np.sqrt(np.square(one[points[0]] - other[points[1]]).sum(axis=1))
        least = int(distances.argmin())
        if distances[least] < best:
            best, at = float(distances[least]), (int(points[0][least]), int(points[1][least]))
        if not is_last and level < _LEVELS:
            # Of two boxes of one point each all is known.
            chosen = chosen[a.counts[chosen[:, 0]] * b.counts[chosen[:, 1]] > 1]
            between = np.maximum(np.abs(a.cells[chosen[:, 0]] - b.cells[chosen[:, 1]]) - 1, 0)
            # A little less: a point that is on a border may have been counted to the box beside it.
            bounds = np.sqrt(np.square(between * a.side).sum(axis=1)) * (1 - 1e-9)
            order = np.argsort(bounds, kind="stable")
            for start in reversed(range(0, len(order), _PAIRS)):
                some = order[start : start + _PAIRS]
                todo.append((level + 1, chosen[some], bounds[some]))
    return best, (int(known[at[0]]), int(known_too[at[1]]))


def least_time(one: Ints, other: Ints) -> tuple[float, tuple[int, ...]]:
    """The seconds between the two nearest times, and their numbers; (inf, ()) where a set is empty.

    Args:
        one, other: (N,) and (M,) int64 ns, in any order.
    """
    if not len(one) or not len(other):
        return math.inf, ()
    times = np.concatenate([one, other])
    order = np.argsort(times, kind="stable")
    is_other = order >= len(one)
    changes = np.flatnonzero(is_other[1:] != is_other[:-1])  # the two nearest are neighbours of both sets
    apart = np.diff(times[order].astype(np.uint64))[changes]  # which doesn't overflow
    least = int(apart.argmin())
    first, second = sorted(order[changes[least] : changes[least] + 2].tolist())
    return int(apart[least]) / 1e9, (first, second - len(one))


class _Boxes:
    """The boxes of one level that hold points, which are in 2^level parts along each axis.

    Attributes:
        side: of a box.
        cells: (B, d) their numbers.
        first: (B,) a point of each.
        order: (N,) the points, box after box: those of box b from starts[b], as many as counts[b].
        by_parent: (B,) the boxes in the order of their parents' numbers; `children` says (starts, counts).
    """

    def __init__(self, points: Array, low: Array, side: float, level: int):
        self.side = side / 2**level
        most = 2**level - 1  # the points furthest up are on the last box's border
        every = np.minimum(np.floor((points - low) / self.side), most).astype(np.int64)
        self.cells, self.first, own, self.counts = np.unique(
            every, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        self.order = np.argsort(own.reshape(-1), kind="stable")
        self.starts = np.cumsum(self.counts) - self.counts
        _, parents, counts = np.unique(self.cells // 2, axis=0, return_inverse=True, return_counts=True)
        self.by_parent = np.argsort(parents.reshape(-1), kind="stable")
        self.children = np.cumsum(counts) - counts, counts


def _crossed(pairs: Ints, one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> Ints:
    """(P', 2) for each pair of groups all pairs of their members; groups are (starts, counts).

    >>> groups = (np.array([0]), np.array([2])), (np.array([0, 3]), np.array([3, 1]))
    >>> _crossed(np.array([[0, 1]]), *groups).tolist()
    [[0, 3], [1, 3]]
    """
    (starts, counts), (more_starts, more_counts) = one, other
    sizes = counts[pairs[:, 0]] * more_counts[pairs[:, 1]]
    pair = np.repeat(np.arange(len(pairs)), sizes)
    number = np.arange(len(pair)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    width = more_counts[pairs[pair, 1]]
    members = starts[pairs[pair, 0]] + number // width, more_starts[pairs[pair, 1]] + number % width
    return np.stack(members, axis=1)
