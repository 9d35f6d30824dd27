"""Poses of frames of reference in others, as arrays.

Here: composing, inverting and interpolating them, and their matrices.
Elsewhere: poses between frames of a log (logloom.resample.frame_tree), arithmetic of the arc
between two rotations (kernels).

Poses are (7, n) float64 arrays: rows x, y, z of the child's origin in the parent, then the quaternion x, y,
z, w of norm one that turns the child's vectors into the parent's: p_parent = q p_child q* + t. An n of 1 is
broadcast. As in `kernels`, only operations that IEEE 754 rounds are used, so bits are the same on every CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.resample import kernels
from logloom.resample.kernels import Floats, Mask

IDENTITY = np.array([[0.0], [0], [0], [0], [0], [0], [1]])


def poses_of(translations: NDArray[Any], rotations: NDArray[Any]) -> tuple[Floats, Mask]:
    """Make poses from values of messages, with a mask of valid ones.

    Args:
        translations: (n, 3).
        rotations: (n, 4) quaternions x, y, z, w of any norm but zero.

    Returns:
        (7, n), and (n,) whether all numbers are finite and the rotation is valid.
    """
    poses = np.empty((7, len(translations)))
    poses[:3] = np.asarray(translations, np.float64).T
    with np.errstate(all="ignore"):
        poses[3:] = kernels.normalised(np.array(rotations, np.float64).reshape(-1, 4)).T
    usable: Mask = np.logical_and.reduce(np.isfinite(poses), axis=0)
    return poses, usable


def compose(a: Floats, b: Floats) -> Floats:
    """a after b: of frame c in a, where a is of b in a and b is of c in b."""
    made = np.empty((7, max(a.shape[1], b.shape[1])))
    np.add(a[:3], turned(a[3:], b[:3]), out=made[:3])
    _multiply(a[3:], b[3:], made[3:])
    return made


def inverse(poses: Floats) -> Floats:
    """Of the parent in the child."""
    made = np.empty_like(poses)
    made[3:6], made[6] = -poses[3:6], poses[6]
    made[:3] = -turned(made[3:], poses[:3])
    return made


def turned(q: Floats, v: Floats) -> Floats:
    """(3, n) vectors turned by (4, n) unit quaternions: v + 2 w (u x v) + 2 u x (u x v) with q = (u, w)."""
    x, y, z, w = q
    tx, ty, tz = 2 * (y * v[2] - z * v[1]), 2 * (z * v[0] - x * v[2]), 2 * (x * v[1] - y * v[0])
    made = np.empty((3, max(q.shape[1], v.shape[1])))
    np.add(v[0] + w * tx, y * tz - z * ty, out=made[0])
    np.add(v[1] + w * ty, z * tx - x * tz, out=made[1])
    np.add(v[2] + w * tz, x * ty - y * tx, out=made[2])
    return made


def between(a: Floats, b: Floats, w: Floats) -> Floats:
    """The poses at `w` of the way from a to b: `along` their `arcs`."""
    return along(arcs(a, b), w)


# Precomputed data of the interpolation from a pose to the next: its rows.
_STEP, _STOP, _THETA, _SINE = slice(7, 10), slice(10, 14), 14, 15


def arcs(a: Floats, b: Floats) -> Floats:
    """(16, n): the ways from poses a to poses b.

    Rows are a itself; the step of its position; b's rotation, on the side of a's; the angle between the two,
    and its sine.
    """
    made = np.empty((16, max(a.shape[1], b.shape[1])))
    made[:7], made[_STEP] = a, b[:3] - a[:3]
    start = a[3:]
    dot = start[0] * b[3] + start[1] * b[4] + start[2] * b[5] + start[3] * b[6]
    made[_STOP] = b[3:] * np.where(dot < 0, -1.0, 1.0)
    d = made[_STOP] - start
    half_chord = np.sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + d[3] * d[3]) * 0.5
    made[_THETA], made[_SINE] = kernels.arc_angles(np.minimum(np.abs(dot), 1.0), half_chord)
    return made


def along(ways: Floats, w: Floats) -> Floats:
    """The poses at `w` of ways: positions on a line, rotations on the shorter great arc.

    Args:
        ways: (16, n) of `arcs`.
        w: (n,) 0 gives the start itself, 1 gives the end. Beyond, the motion goes on as it was: straight, and
            at one rate of turn about one axis.
    """
    made = np.empty((7, len(w)))
    made[:3] = ways[:3] + ways[_STEP] * w
    outside = (w < 0) | (w > 1)
    if outside.any():
        made[3:] = _beyond(ways[3:7], ways[_STOP], w)
        inside = np.flatnonzero(~outside)
        made[3:, inside] = _rotated(ways[:, inside], w[inside])
    else:
        made[3:] = _rotated(ways, w)
    # At the time of a message the result is its value, bit by bit.
    exact = np.flatnonzero(w == 0)
    if len(exact):
        made[:, exact] = ways[:7, exact]
    return made


def _rotated(ways: Floats, w: Floats) -> Floats:
    of_a, of_b = kernels.arc_weights(ways[_THETA], ways[_SINE], w)
    turned_so_far: Floats = ways[3:7] * of_a
    turned_so_far += ways[_STOP] * of_b
    return turned_so_far


def _beyond(a: Floats, b: Floats, w: Floats) -> Floats:
    """a r^w with r = a* b, for any w: r^n with n = floor(w), then the arc from r^n to r^(n + 1)."""
    step = np.empty_like(a)
    _multiply(_conjugate(a), b, step)
    step = step * np.where(step[3] < 0, -1.0, 1.0)
    whole = np.floor(w)
    power = _power(step, whole.astype(np.int64))
    start, stop = np.empty_like(a), np.empty_like(a)
    _multiply(a, power, start)
    _multiply(start, step, stop)
    still = np.zeros((3, len(w)))
    return _rotated(arcs(np.concatenate([still, start]), np.concatenate([still, stop])), w - whole)


def _power(q: Floats, n: NDArray[np.int64]) -> Floats:
    """Unit quaternions to whole powers, by squaring."""
    q = np.where(n < 0, _conjugate(q), q)
    n = np.abs(n)
    power = np.broadcast_to(IDENTITY[3:], q.shape).copy()
    while n.any():
        product = np.empty_like(q)
        _multiply(power, q, product)
        power = np.where(n & 1, product, power)
        _multiply(q, q, product)
        q, n = product, n >> 1
    return kernels.normalised(power.T).T


def _conjugate(q: Floats) -> Floats:
    turned_back: Floats = q * np.array([[-1.0], [-1], [-1], [1]])
    return turned_back


def _multiply(a: Floats, b: Floats, into: Floats) -> None:
    """The products of quaternions (4, n)."""
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    into[0] = aw * bx + ax * bw + ay * bz - az * by
    into[1] = aw * by + ay * bw + az * bx - ax * bz
    into[2] = aw * bz + az * bw + ax * by - ay * bx
    into[3] = aw * bw - ax * bx - ay * by - az * bz


def matrices(poses: Floats) -> Floats:
    """(n, 4, 4): p_parent = M p_child, of column vectors (x, y, z, 1)."""
    made = np.zeros((poses.shape[1], 4, 4))
    made.reshape(-1, 16)[:, :12] = rows_of_matrices(poses).T
    made[:, 3, 3] = 1
    return made


def rows_of_matrices(poses: Floats) -> Floats:
    """(12, n): the first three rows of `matrices`, one after the other."""
    made = np.empty((12, poses.shape[1]))
    x, y, z, w = poses[3:]
    made[0], made[1], made[2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    made[4], made[5], made[6] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    made[8], made[9], made[10] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)
    made[3::4] = poses[:3]
    return made
