"""Table of resample policies: the messages used around a tick, and the result.

Here: `POLICIES`. A new policy is added here, and a second, slow implementation in
tests/transforms/reference.py.
Elsewhere: arithmetic (kernels), applying a policy (logloom.transforms.rows.resample), related keys of recipes
(logloom.recipe.columns), lineage of missing messages (logloom.transforms.rows.lineage).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.io.logs.interface import MAX_TIME, MIN_TIME
from logloom.resample import kernels
from logloom.resample.kernels import Floats
from logloom.values import dataclass

Times = NDArray[np.int64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Range = tuple[Indices, Indices]

# (times of messages, ticks, tolerance, window) to the (T,) ranges of messages that ticks use, empty for none.
Find = Callable[[Times, Times, int, tuple[int, int]], Range]


@dataclass(frozen=True)
class ResamplePolicy:
    """The messages that a policy uses, and its result.

    Attributes:
        uses: one message, the two around the tick, a window of them, all at the tick, or the topic's last, at
            any time.
        takes: supported values: any; fixed, of one length in all messages; numbers; quaternions (..., 4); or
            nothing if it only counts.
        before, after: whether messages before and after the tick are used, within `tolerance`.
        result: the dtype of a row's value; None: the message's.
        find: the messages of each tick.
        between: for two messages, the kernel (a, b, weight) and its value at the exact time of one.
        reduce: for windows, the kernel (values, starts, lengths); None keeps all values.
        by_clock: whether the clock chooses the message, by its time.
    """

    uses: Literal["one", "two", "window", "tick", "topic"]
    takes: Literal["any", "fixed", "numbers", "quaternions", "nothing"]
    find: Find | None = None
    before: bool = False
    after: bool = False
    result: str | None = None
    between: tuple[Callable[[Floats, Floats, Floats], Floats], Callable[[Floats], Floats]] | None = None
    reduce: Callable[[Array, Indices, Indices], Array] | None = None
    by_clock: bool = False

    @property
    def tolerates(self) -> bool:
        """Whether a tolerance of columns bounds its reach."""
        return (self.before or self.after) and not self.by_clock

    @property
    def gathers(self) -> bool:
        """Whether a row has the values of all messages that are used."""
        return self.uses in ("window", "tick") and self.takes != "nothing" and self.reduce is None

    @property
    def keeps_rotations(self) -> bool:
        """Whether a quaternion remains one."""
        return self.takes in ("any", "fixed", "quaternions")


# times     10      20      30
# ticks        12      25     36        tolerance 5
# previous     0       1      -         the last message up to the tick: searchsorted(right) - 1
# next         -       2      -         the first from there on: searchsorted(left)
# nearest      0       1      -         the earlier on a tie
# both         -       1,2    -         each within 5 of the tick
#
# A range [lo, hi) of messages for each tick, lo = hi = 0 where none is usable:
#
#     lo = 0 1 0, hi = 1 2 0 for previous
def _previous(times: Times, ticks: Times, tolerance: int, window: tuple[int, int]) -> Range:
    at = np.searchsorted(times, ticks, "right") - 1
    return _one(at, _gap_back(times, ticks, at) <= tolerance)


def _next(times: Times, ticks: Times, tolerance: int, window: tuple[int, int]) -> Range:
    at = np.searchsorted(times, ticks, "left")
    return _one(at, _gap_forward(times, ticks, at) <= tolerance)


def _nearest(times: Times, ticks: Times, tolerance: int, window: tuple[int, int]) -> Range:
    before, after = np.searchsorted(times, ticks, "right") - 1, np.searchsorted(times, ticks, "left")
    back, forward = _gap_back(times, ticks, before), _gap_forward(times, ticks, after)
    return _one(np.where(back <= forward, before, after), np.minimum(back, forward) <= tolerance)


def _exact(times: Times, ticks: Times, tolerance: int, window: tuple[int, int]) -> Range:
    at = np.searchsorted(times, ticks, "left")
    return _one(at, _gap_forward(times, ticks, at) == 0)


def _both(times: Times, ticks: Times, tolerance: int, window: tuple[int, int]) -> Range:
    before, after = np.searchsorted(times, ticks, "right") - 1, np.searchsorted(times, ticks, "left")
    usable = np.maximum(_gap_back(times, ticks, before), _gap_forward(times, ticks, after)) <= tolerance
    return np.where(usable, before, 0), np.where(usable, after + 1, 0)


def _window(times: Times, ticks: Times, tolerance: int, window: tuple[int, int]) -> Range:
    lo, hi = (np.searchsorted(times, shifted(ticks, by), "right") for by in window)
    return lo, np.maximum(lo, hi)


def _all(times: Times, ticks: Times, tolerance: int, window: tuple[int, int]) -> Range:
    return np.searchsorted(times, ticks, "left"), np.searchsorted(times, ticks, "right")


def _one(at: Indices, usable: Mask) -> Range:
    return np.where(usable, at, 0), np.where(usable, at + 1, 0)


_NEVER = np.iinfo(np.uint64).max


# Distances are unsigned: between a negative stamp and a tick they may exceed int64.
def _gap_back(times: Times, ticks: Times, at: Indices) -> NDArray[np.uint64]:
    """(T,) from message `at` forward to the tick; the largest number where `at` is -1."""
    gap = ticks.view(np.uint64) - times[np.maximum(at, 0)].view(np.uint64)
    return np.where(at >= 0, gap, _NEVER)


def _gap_forward(times: Times, ticks: Times, at: Indices) -> NDArray[np.uint64]:
    """(T,) from the tick forward to message `at`; the largest number where `at` is past the end."""
    gap = times[np.minimum(at, len(times) - 1)].view(np.uint64) - ticks.view(np.uint64)
    return np.where(at < len(times), gap, _NEVER)


def shifted(times: Times, by: int) -> Times:
    """times + by, clipped to int64.

    >>> shifted(np.array([5, MAX_TIME]), 7).tolist() == [12, MAX_TIME]
    True
    """
    return np.minimum(times, MAX_TIME - by) + by if by >= 0 else np.maximum(times, MIN_TIME - by) + by


def _two(
    takes: Literal["numbers", "quaternions"],
    kernel: Callable[[Floats, Floats, Floats], Floats],
    alone: Callable[[Floats], Floats],
) -> ResamplePolicy:
    return ResamplePolicy("two", takes, _both, before=True, after=True, result="<f8", between=(kernel, alone))


def _reduced(reduce: Callable[[Array, Indices, Indices], Array], result: str | None = None) -> ResamplePolicy:
    return ResamplePolicy("window", "numbers", _window, result=result, reduce=reduce)


POLICIES: Mapping[str, ResamplePolicy] = {
    "previous": ResamplePolicy("one", "any", _previous, before=True),
    "next": ResamplePolicy("one", "any", _next, after=True),
    "nearest": ResamplePolicy("one", "any", _nearest, before=True, after=True),
    "exact": ResamplePolicy("one", "any", _exact),
    "matched": ResamplePolicy("one", "any", _exact, before=True, after=True, by_clock=True),
    "linear": _two("numbers", kernels.linear, kernels.canonical),
    "slerp": _two("quaternions", kernels.slerp, kernels.normalised),
    "angle": _two("numbers", kernels.angle, lambda a: kernels.canonical(kernels.wrap(a))),
    "window": ResamplePolicy("window", "fixed", _window),
    "all": ResamplePolicy("tick", "fixed", _all),
    "mean": _reduced(kernels.mean, "<f8"),
    "min": _reduced(kernels.smallest),
    "max": _reduced(kernels.largest),
    "sum": _reduced(kernels.total, "<f8"),
    "first": ResamplePolicy("window", "fixed", _window, reduce=kernels.first),
    "last": ResamplePolicy("window", "fixed", _window, reduce=kernels.last),
    "count": ResamplePolicy("window", "nothing", _window, result="<i8"),
    "static": ResamplePolicy("topic", "any"),
}
