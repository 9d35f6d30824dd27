"""Deskewing: move a lidar's points to where they would be if measured at one time.

Here: `deskewed`, pure arithmetic on one cloud.
Elsewhere: clouds of rows (logloom.transforms.rows.deskew), poses
(logloom.resample.poses).

A lidar measures points one after the other while it moves. With T(t) the pose of the lidar at time t in a
static frame, a point p of time t would have been measured at time r as T(r)^-1 T(t) p. Moving objects stay
smeared, as their motion is unknown. As in `poses`, only operations that IEEE 754 rounds are used, and each
point is computed independently, so bits are the same on every CPU and in any block. Times are int64
nanoseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from logloom.resample.frame_tree import FOUND, Indices, Times
from logloom.resample.kernels import Floats
from logloom.resample.poses import compose, inverse, rows_of_matrices

Lookup = Callable[[Times], tuple[Floats, NDArray[np.uint8]]]
BLOCK = 4096  # points at a time, so that arrays stay in the CPU cache
_BIN_BITS = 17  # a sweep of 100 ms in bins of a microsecond


def deskewed(points: Floats, times: Times, to: int, lookup: Lookup) -> tuple[Floats, int]:
    """Move points to where they would have been measured at one time.

    Args:
        points: (3, n) x, y, z in the lidar's frame at the time of each.
        times: (n,) in any order.
        to: the one time.
        lookup: the poses (7, m) of the lidar at m times and why one is missing; see `FrameTree.lookup`.
            Called once, with distinct times.

    Returns:
        (3, n), and `FOUND`; or the unchanged points, and why the first of the poses is missing.
    """
    distinct, which = _distinct(times)
    poses, reasons = lookup(np.append(distinct, to))
    if reasons.any():
        return points, int(reasons[np.argmax(reasons != FOUND)])
    ways = np.empty((12, len(distinct)))
    for at in range(0, len(distinct), BLOCK):
        ways[:, at : at + BLOCK] = _ways(poses[:, -1:], poses[:, at : min(at + BLOCK, len(distinct))])
    moved = np.empty_like(points)
    for at in range(0, points.shape[1], BLOCK):
        rows = slice(at, at + BLOCK)
        x, y, z = points[:, rows]
        way = ways[:, rows] if which is None else ways.take(which[rows], axis=1, mode="clip")
        for axis in range(3):
            a, b, c, d = way[4 * axis : 4 * axis + 4]
            moved[axis, rows] = a * x + b * y + c * z + d
    return moved, FOUND


def _ways(last: Floats, poses: Floats) -> Floats:
    """(12, n) transforms of points from where they were measured to the last pose."""
    # The difference of two places on a map may be a millionth of their coordinates: it is computed first.
    poses, last = poses.copy(), last.copy()
    poses[:3] -= last[:3]
    last[:3] = 0
    return rows_of_matrices(compose(inverse(last), poses))


# times   5 5 5 7 7 5      runs    5 7 5  of lengths 3 2 1
# distinct    5 7          which   0 1 0  and for each point 0 0 0 1 1 0
def _distinct(times: Times) -> tuple[Times, Indices | None]:
    """Return the distinct times, ascending, and each time's index among them; None if all are distinct and
    ascending.
    """
    is_new = times[1:] != times[:-1]
    starts = np.append(0, np.flatnonzero(is_new) + 1) if len(times) else np.empty(0, np.intp)
    runs = times[starts]
    if (runs[1:] > runs[:-1]).all():
        if len(runs) == len(times):
            return times, None
        distinct, which = runs, np.arange(len(runs))
    else:
        distinct, which = _found_in_bins(runs) or np.unique(runs, return_inverse=True)
    if len(runs) < len(times):
        which = np.repeat(which, np.diff(np.append(starts, len(times))))
    return distinct, which


def _found_in_bins(times: Times) -> tuple[Times, Indices] | None:
    """`np.unique` without sorting; None if two times may share a bin, or times are far apart.

    A lidar's clouds are often ordered by beam, so that the times of its columns repeat cyclically.
    """
    first, last = int(times.min()), int(times.max())
    shift = max(0, (last - first).bit_length() - _BIN_BITS)
    if last - first >= 1 << 62 or len(times) < 1 << 8:
        return None
    bins = (times - first) >> shift
    of_bin = np.full((last - first >> shift) + 1, first - 1)
    of_bin[bins] = times
    if (of_bin.take(bins) != times).any():
        return None
    taken = of_bin >= first
    which = (np.cumsum(taken) - 1).take(bins)
    return of_bin[taken], which
