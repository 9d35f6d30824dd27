"""The tree of a log's transforms, and poses of one frame in another at any time.

Here: `FrameTree`, of arrays; many lookups at once.
Elsewhere: poses (logloom.resample.poses), transforms in messages (logloom.transforms.rows.frames), notes on
anomalies (logloom.transforms.rows.frame_notes).

Each transform is the pose of a child frame in its parent at its stamp, or at all times if static.
Between two of a child's stamps the pose is interpolated. A *lookup* goes up from both frames to the first
that they share:

    map                     map <- lidar = (map <- odom) (odom <- base) (base <- lidar)
     |  /tf, 1 Hz
    odom                    camera <- lidar = (base <- camera)^-1 (base <- lidar)
     |  /tf, 100 Hz
    base --- lidar, camera: /tf_static

The rules are those of tf2's buffer, except that nothing depends on the time of reception: a transform is
known at all times within `cache` of its stamp. Times are int64 nanoseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from logloom.resample.kernels import NAN, Floats
from logloom.resample.poses import IDENTITY, along, arcs, compose, inverse
from logloom.values import dataclass

Times = NDArray[np.int64]
Indices = NDArray[np.intp]
Rows = Indices | slice

# Why a lookup fails; tf2 raises ConnectivityException or LookupException, and ExtrapolationException.
FOUND, NO_PATH, PAST, FUTURE = 0, 1, 2, 3
REASONS = ("", "no path", "past", "future")
BLOCK = 3072  # lookups at a time, so that arrays stay in the CPU cache


@dataclass(frozen=True)
class TransformTable:
    """Transforms in messages, in the order of the log.

    Attributes:
        names: of frames.
        child, parent: (n,) positions in `names`.
        stamp: (n,) time of each; meaningless for static ones.
        pose: (7, n) of the child in its parent.
        is_static: (n,).
        log_time: (n,) of each one's message.
    """

    names: tuple[str, ...]
    child: Indices
    parent: Indices
    stamp: Times
    pose: Floats
    is_static: NDArray[np.bool_]
    log_time: Times


@dataclass(frozen=True)
class Extrapolation:
    """How far lookups reach beyond a frame's transforms.

    Attributes:
        cache: ns; the largest distance of a transform from the time that is looked up.
        kind: the value beyond a frame's last and before its first transform: nothing, the nearest ("hold"),
            or the motion of the nearest two going on ("linear").
        limit: ns; how far beyond.
    """

    cache: int
    kind: Literal["none", "hold", "linear"] = "none"
    limit: int = 0


@dataclass(frozen=True)
class Hop:
    """A step of a lookup, from a frame to its parent.

    Attributes:
        child, parent: frames; "" if the child has no parent at that time.
        rows: of the table: the transform that is used, or the two between or beside which the time is; of a
            child without a parent those nearest to the time.
    """

    child: str
    parent: str
    rows: tuple[int, ...]


class FrameTree:
    """The transforms of a log, or of a part of it.

    Of several static transforms of one child the last in the log is used, and dynamic ones of this child are
    ignored. Of several with one stamp the first is used, as in tf2.
    """

    def __init__(self, table: TransformTable):
        self.names = table.names
        self._number = {name: number for number, name in enumerate(table.names)}
        static = np.flatnonzero(table.is_static)
        # the last one wins
        self._static = dict(zip(table.child[static].tolist(), static.tolist(), strict=True))
        dynamic = np.flatnonzero(~table.is_static & ~np.isin(table.child, table.child[static]))
        dynamic = dynamic[np.lexsort((table.stamp[dynamic], table.child[dynamic]))]  # which is stable
        child, stamp = table.child[dynamic], table.stamp[dynamic]
        again = (child[1:] == child[:-1]) & (stamp[1:] == stamp[:-1])
        self._order = dynamic[np.append(np.ones(min(1, len(dynamic)), np.bool_), ~again)]
        self._stamp = table.stamp[self._order]
        self._parent = table.parent[self._order]
        pose = table.pose[:, self._order]
        # From each to the next, which may be of another child, and is unused then.
        self._ways = arcs(pose, np.concatenate([pose[:, 1:], pose[:, -1:]], axis=1))
        self._bounds = np.searchsorted(table.child[self._order], np.arange(len(table.names) + 1))
        self._length = np.diff(self._stamp, append=self._stamp[-1:])
        self._plain = {
            child: gap for child in range(len(table.names)) if (gap := self._gap(child)) is not None
        }
        self._table = table

    def _gap(self, child: int) -> int | None:
        """Return the longest time between two transforms of a child; None unless it has several, of one
        parent.
        """
        first, stop = self._bounds[child : child + 2].tolist()
        parents = self._parent[first:stop]
        if stop - first < 2 or (parents != parents[0]).any():
            return None
        # Unsigned: between a negative stamp and a time the distance may exceed int64.
        return int(np.diff(self._stamp[first:stop].view(np.uint64)).max())

    def __contains__(self, name: str) -> bool:
        return name in self._number

    def edges(self) -> Iterator[tuple[str, str, int, Times | None]]:
        """List each child, its last parent, its number of successive parents, and stamps; None if static."""
        for number, name in enumerate(self.names):
            lo, hi = self._bounds[number : number + 2]
            if number in self._static:
                yield name, self.names[self._table.parent[self._static[number]]], 1, None
            elif lo < hi:
                parents = self._parent[lo:hi]
                turns = 1 + int((parents[1:] != parents[:-1]).sum())
                yield name, self.names[parents[-1]], turns, self._stamp[lo:hi]

    def lookup(
        self, source: str, target: str, times: Times, rule: Extrapolation
    ) -> tuple[Floats, NDArray[np.uint8]]:
        """Look up poses of one frame in another: p_target = pose(p_source), as lookupTransform(target,
        source) of tf2.

        Args:
            times: (n,) in any order.

        Returns:
            (7, n), NaN where a lookup fails, and (n,) why: `FOUND`, or a position in `REASONS`.
        """
        poses = np.empty((7, len(times)))
        reasons = np.full(len(times), NO_PATH, np.uint8)
        # Unknown frames are two different ones without a parent.
        ends = self._number.get(source, -1), self._number.get(target, -2)
        with np.errstate(all="ignore"):
            for at in range(0, len(times), BLOCK):
                block = slice(at, at + BLOCK)
                self._fill_sorted(ends, times[block], rule, poses[:, block], reasons[block])
        return poses, reasons

    def hops(self, source: str, target: str, time: int, rule: Extrapolation) -> tuple[list[Hop], int]:
        """Return the transforms that one lookup uses, from the source up and down to the target.

        Returns:
            The hops; and `FOUND`, or why the lookup fails, a position in `REASONS`: then the hops are those
            up to where either end has no parent.
        """
        times, edges = np.array([time], np.int64), dict[int, _Edge]()
        chains = [self._number.get(source, -1)], [self._number.get(target, -2)]
        with np.errstate(all="ignore"):
            up, down = (self._climb(chain, slice(None), times, rule, edges) for chain in chains)
        assert isinstance(up, int)  # at a single time nothing forks
        assert isinstance(down, int)
        shared = next((frame for frame in chains[0] if frame in chains[1]), None)
        reason = FOUND if shared is not None else next((end for end in (down, up) if end != NO_PATH), NO_PATH)
        rise, fall = (
            chain[: chain.index(shared)] if shared is not None else [f for f in chain if f >= 0]
            for chain in chains
        )
        return [self._hop(frame, edges[frame], time) for frame in (*rise, *reversed(fall))], reason

    def _hop(self, frame: int, edge: _Edge, time: int) -> Hop:
        name = self.names[frame]
        parent = int(edge.parent[0]) if edge.only is None else edge.only
        if frame in self._static:
            return Hop(name, self.names[parent], (self._static[frame],))
        if parent >= 0:
            first = int(edge.lo[0])
            return Hop(name, self.names[parent], self._rows(first, first + 1 + int(edge.w[0] != 0)))
        first, stop = self._bounds[frame : frame + 2].tolist()
        after = first + int(np.searchsorted(self._stamp[first:stop], time))
        return Hop(name, "", self._rows(max(first, after - 1), min(stop, after + 1)))

    def _rows(self, first: int, stop: int) -> tuple[int, ...]:
        return tuple(self._order[first:stop].tolist())

    def _fill_sorted(
        self,
        ends: tuple[int, int],
        times: Times,
        rule: Extrapolation,
        poses: Floats,
        reasons: NDArray[np.uint8],
    ) -> None:
        """Compute lookups sorted by time, by which a child's transforms are found at once."""
        if (times[1:] >= times[:-1]).all():
            self._fill(*ends, times, rule, poses, reasons)
            return
        order = np.argsort(times)
        found, why = np.empty_like(poses), reasons[order]
        self._fill(*ends, times[order], rule, found, why)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        found.take(back, axis=1, out=poses, mode="clip")
        reasons[order] = why

    def _fill(
        self,
        source: int,
        target: int,
        times: Times,
        rule: Extrapolation,
        poses: Floats,
        reasons: NDArray[np.uint8],
    ) -> None:
        """Compute lookups of ascending times; if a frame has several parents in them, recurse for each."""
        edges: dict[int, _Edge] = {}
        groups: list[tuple[Rows, list[int], list[int]]] = [(slice(None), [source], [target])]
        while groups:
            rows, up, down = groups.pop()
            up_end = self._climb(up, rows, times, rule, edges)
            down_end = self._climb(down, rows, times, rule, edges) if isinstance(up_end, int) else 0
            fork = down_end if isinstance(up_end, int) else up_end
            if not isinstance(fork, int):
                own = np.arange(len(times))[rows]
                groups += [(own[fork == parent], [*up], [*down]) for parent in np.unique(fork)]
                continue
            below = {frame: place for place, frame in enumerate(down)}
            shared = next((place for place, frame in enumerate(up) if frame in below), None)
            if shared is None:
                poses[:, rows] = NAN
                reasons[rows] = next((end for end in (down_end, up_end) if end != NO_PATH), NO_PATH)
                continue
            rise = self._chained(up[:shared], rows, edges)
            fall = self._chained(down[: below[up[shared]]], rows, edges)
            poses[:, rows] = rise if fall is IDENTITY else compose(inverse(fall), rise)
            reasons[rows] = FOUND

    def _climb(
        self, chain: list[int], rows: Rows, times: Times, rule: Extrapolation, edges: dict[int, _Edge]
    ) -> int | NDArray[np.int64]:
        """Extend a chain up to its end, and return the reason of the end; or the parents at a fork.

        Args:
            chain: frames, each the parent of the one before in all of these lookups.
            edges: of frames in all lookups, as far as they are known.
        """
        passed = set(chain)
        while True:
            if chain[-1] not in edges:
                edges[chain[-1]] = self._edge(chain[-1], times, rule)
            edge = edges[chain[-1]]
            if edge.only is None:
                parents = edge.parent[rows]
                if (parents != parents[0]).any():
                    return parents
            parent = int(parents[0]) if edge.only is None else edge.only
            if parent < 0:
                return -parent
            if parent in passed:  # a loop, which has no end
                return NO_PATH
            chain.append(parent)
            passed.add(parent)

    def _chained(self, chain: list[int], rows: Rows, edges: dict[int, _Edge]) -> Floats:
        """Compute the pose of the first frame of a chain in the parent of its last."""
        pose = IDENTITY
        for frame in chain:
            own = self._pose_of(frame, edges[frame], rows)
            pose = own if pose is IDENTITY else compose(own, pose)
        return pose

    def _pose_of(self, frame: int, edge: _Edge, rows: Rows) -> Floats:
        if frame in self._static:
            row = self._static[frame]
            return self._table.pose[:, row : row + 1]
        return along(self._ways.take(edge.lo[rows], axis=1), edge.w[rows])

    # stamps    10      20      30      cache 15, hold 4
    # times   4   8   14      25      33   36
    # lo      -   0   0       1       2    -      the messages at or before, and at or after
    # hi      -   0   1       2       2    -      past at 4, future at 36
    def _edge(self, child: int, times: Times, rule: Extrapolation) -> _Edge:
        if child < 0:
            return _Edge.constant(-NO_PATH)
        if child in self._static:
            return _Edge.constant(int(self._table.parent[self._static[child]]))
        first, stop = self._bounds[child : child + 2].tolist()
        if first == stop:
            return _Edge.constant(-NO_PATH)
        stamps, parents = self._stamp[first:stop], self._parent[first:stop]
        after = _num_until(stamps, times)
        before = after - 1
        gap = self._plain.get(child)
        if gap is not None and gap <= rule.cache and stamps[0] <= times[0] and times[-1] < stamps[-1]:
            lo = before + first
            weights = (times - self._stamp.take(lo)) / self._length.take(lo)
            return _Edge(np.empty(0, np.int64), int(parents[0]), lo, weights)
        lo = np.maximum(before, 0)
        is_exact = (stamps[lo] == times) & (before >= 0)
        hi = np.where(is_exact, lo, np.minimum(after, len(stamps) - 1))
        has_before = (before >= 0) & _within(stamps[lo], times, rule.cache)
        has_after = (is_exact | (after < len(stamps))) & _within(times, stamps[hi], rule.cache)
        if has_before.all() and has_after.all():
            hi = np.where(parents[lo] == parents[hi], hi, lo)  # a new parent is used from its own stamp on
            return _Edge.of(parents[lo], first + lo, _weights(stamps, times, lo, hi))
        parent = np.where(has_before, np.where(has_after, parents[lo], -FUTURE), -NO_PATH)
        parent = np.where(has_after & ~has_before, -PAST, parent)
        both = has_before & has_after
        lo, hi = (
            np.where(both, lo, 0),
            np.where(both & (parents[lo] == parents[hi]), hi, np.where(both, lo, 0)),
        )
        if rule.kind != "none":
            near = np.where(has_before, before, np.minimum(after, len(stamps) - 1))
            one_sided = (has_before ^ has_after) & _within_either(stamps[near], times, rule.limit)
            self._extrapolate(one_sided, near, has_before, (stamps, parents), times, rule, (parent, lo, hi))
        return _Edge.of(parent, first + lo, _weights(stamps, times, lo, hi))

    @staticmethod
    def _extrapolate(
        wanted: NDArray[np.bool_],
        near: Indices,
        has_before: NDArray[np.bool_],
        known: tuple[Times, Indices],
        times: Times,
        rule: Extrapolation,
        found: tuple[NDArray[np.int64], Indices, Indices],
    ) -> None:
        """Extrapolate beyond a child's first and last transform."""
        (stamps, parents), (parent, lo, hi) = known, found
        rows = np.flatnonzero(wanted)
        if rule.kind == "hold":
            lo[rows] = hi[rows] = near[rows]
        else:
            other = near[rows] + np.where(has_before[rows], -1, 1)
            there = np.clip(other, 0, len(stamps) - 1)
            usable = (there == other) & _within_either(stamps[there], times[rows], rule.cache)
            usable &= parents[there] == parents[near[rows]]
            rows, there = rows[usable], there[usable]
            lo[rows], hi[rows] = np.minimum(near[rows], there), np.maximum(near[rows], there)
        parent[rows] = parents[near[rows]]


@dataclass(frozen=True)
class _Edge:
    """A child's transform at some times.

    Attributes:
        parent: (n,) its parent; below zero if it has none, the reason: `-PAST`.
        only: the parent at all of these times; None if there are several.
        lo: (n,) the transform before it, as a position in the tree's order.
        w: (n,) the relative distance to the next; 0 if that has another parent.
    """

    parent: NDArray[np.int64]
    only: int | None
    lo: Indices
    w: Floats

    @classmethod
    def constant(cls, parent: int) -> _Edge:
        none = np.empty(0, np.intp)
        return cls(none, parent, none, np.empty(0))

    @classmethod
    def of(cls, parent: NDArray[np.int64], lo: Indices, w: Floats) -> _Edge:
        is_one = len(parent) > 0 and (parent == parent[0]).all()
        return cls(parent, int(parent[0]) if is_one else None if len(parent) else -NO_PATH, lo, w)


# stamps   10  20  30  40
# times      12 14  25  26  27  51     ascending
# cuts         | 2  |      | 5  5      of the stamps from the first time on, in times
# until      1  1   2   2   2   4
def _num_until(stamps: Times, times: Times) -> Indices:
    """Count ascending stamps at or before each of ascending times."""
    first, stop = np.searchsorted(stamps, times[[0, -1]], "right").tolist()
    if stop - first > len(times):
        return np.searchsorted(stamps, times, "right")
    cuts = np.searchsorted(times, stamps[first:stop])
    edges = np.concatenate([[0], cuts, [len(times)]])
    return np.repeat(np.arange(first, stop + 1), edges[1:] - edges[:-1])


def _weights(stamps: Times, times: Times, lo: Indices, hi: Indices) -> Floats:
    start = stamps[lo]
    weights: Floats = (times - start) * (lo < hi) / np.maximum(stamps[hi] - start, 1)
    return weights


def _within(earlier: Times, later: Times, limit: int) -> NDArray[np.bool_]:
    # Unsigned: between a negative stamp and a time the distance may exceed int64.
    return (earlier <= later) & (later.view(np.uint64) - earlier.view(np.uint64) <= np.uint64(limit))


def _within_either(stamps: Times, times: Times, limit: int) -> NDArray[np.bool_]:
    return _within(stamps, times, limit) | _within(times, stamps, limit)
