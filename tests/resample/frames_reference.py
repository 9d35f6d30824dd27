"""Lookups made slowly and obviously: one time, one frame at a time, by matrices and Python's own sines."""

from __future__ import annotations

import math

import numpy as np


def matrix_of(position, quaternion) -> np.ndarray:
    x, y, z, w = np.asarray(quaternion, float) / np.linalg.norm(quaternion)
    made = np.eye(4)
    made[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    made[:3, 3] = position
    return made


def slerp(a, b, w) -> np.ndarray:
    """For any w: the turn from a to b, w times over."""
    a, b = (np.asarray(q, float) / np.linalg.norm(q) for q in (a, b))
    if a @ b < 0:
        b = -b
    theta = 2 * math.asin(min(1.0, np.linalg.norm(b - a) / 2))
    if theta < 1e-12:
        return a
    return (math.sin((1 - w) * theta) * a + math.sin(w * theta) * b) / math.sin(theta)


class SlowTree:
    """Transforms as (child, parent, stamp, position, quaternion) in log order; stamp None for static ones."""

    def __init__(self, transforms):
        self.static, self.dynamic = {}, {}
        for child, parent, stamp, position, quaternion in transforms:
            if stamp is None:
                self.static[child] = (parent, position, quaternion)
        for child, parent, stamp, position, quaternion in transforms:
            if stamp is not None and child not in self.static:
                self.dynamic.setdefault(child, {}).setdefault(stamp, (parent, position, quaternion))

    def edge(self, child, t, cache, kind="none", limit=0):
        """(parent, matrix), or why there is none."""
        if child in self.static:
            parent, position, quaternion = self.static[child]
            return parent, matrix_of(position, quaternion)
        stamps = sorted(self.dynamic.get(child, {}))
        known = [s for s in stamps if abs(s - t) <= cache]
        before, after = [s for s in known if s <= t], [s for s in known if s >= t]
        if not known:
            return "no path"
        if before and after:
            return self._between(child, before[-1], after[0], t)
        near = before[-1] if before else after[0]
        if kind != "none" and abs(near - t) <= limit:
            if kind == "hold":
                return self._between(child, near, near, t)
            pair = before[-2:] if before else after[:2]
            if len(pair) == 2 and self.dynamic[child][pair[0]][0] == self.dynamic[child][pair[1]][0]:
                return self._between(child, *pair, t)
        return "future" if before else "past"

    def _between(self, child, s0, s1, t):
        (p0, x0, q0), (p1, x1, q1) = self.dynamic[child][s0], self.dynamic[child][s1]
        if s0 == s1 or p0 != p1:
            return p0, matrix_of(x0, q0)
        w = (t - s0) / (s1 - s0)
        return p0, matrix_of(np.asarray(x0) + (np.asarray(x1) - np.asarray(x0)) * w, slerp(q0, q1, w))

    def chain(self, frame, t, *rule):
        found, matrix, path = {frame: np.eye(4)}, np.eye(4), [frame]
        while True:
            edge = self.edge(path[-1], t, *rule)
            if isinstance(edge, str):
                return found, edge
            parent, own = edge
            if parent in found:
                return found, "no path"
            matrix = own @ matrix
            found[parent] = matrix
            path.append(parent)

    def lookup(self, source, target, t, cache, kind="none", limit=0):
        """The 4 x 4 matrix, or why there is none."""
        up, up_end = self.chain(source, t, cache, kind, limit)
        down, down_end = self.chain(target, t, cache, kind, limit)
        for frame, matrix in up.items():
            if frame in down:
                return np.linalg.inv(down[frame]) @ matrix
        return next((end for end in (down_end, up_end) if end != "no path"), "no path")
