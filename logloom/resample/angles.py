"""Detection of wrapping angles, whose consecutive values jump by a whole turn.

All values of such an angle are within one turn.
Here: `TurnEvidence` of one number, which can be added over parts of a log.
Elsewhere: interpolating angles (kernels), suggestions (logloom.transforms.suggest.samples), warnings
(logloom.transforms.rows.plan.column_warnings).

    heading    3.0  3.1 -3.1 -3.0     a step, a jump by a turn, a step: wraps
    a wheel    3.0  3.1  3.2  3.3     steps: doesn't wrap, and `angle` would bend it
    noise      3.0  0.1 -3.1  1.5     mostly neither steps nor jumps: doesn't wrap
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.resample.kernels import TURN
from logloom.values import dataclass

TURNS: Mapping[str, float] = MappingProxyType({"rad": TURN, "deg": 360.0})
MAX_NUMBERS = 16  # of a value; longer ones are hardly angles
# of a turn: the largest distance from none or one of a difference that counts as a step or a jump
_NEAR = 1 / 8
_ROUNDING = 1e-6  # of a turn; float32 has half of it
_REST = 0.01  # of a turn, by which jumps may miss it regardless of the steps beside them
_TURNED = 3  # turns that show a rotation
_ONE_WAY = 20  # steps forward for each one backward, or the other way round, that make a rotation
_SPAN = 1.02  # turns that values which wrap may span

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Jumps:
    """Differences between consecutive values, for one length of a turn.

    Attributes:
        whole: number near a whole turn.
        other: number near neither none nor one.
        rest: the smallest deviation of a whole one from a turn; the turn itself if there is none.
        step: the largest of those near none.
        forward, backward: number of ascending and descending ones, on the shorter way.
        turned: number of those longer than half a turn, whose shorter way is the other one.
        longest: the longest shorter way of these.
        pace: the largest of the others.
    """

    whole: int = 0
    other: int = 0
    rest: float = TURNS["deg"]
    step: float = 0.0
    forward: int = 0
    backward: int = 0
    turned: int = 0
    longest: float = 0.0
    pace: float = 0.0

    def __add__(self, more: Jumps) -> Jumps:
        return Jumps(
            self.whole + more.whole,
            self.other + more.other,
            min(self.rest, more.rest),
            max(self.step, more.step),
            self.forward + more.forward,
            self.backward + more.backward,
            self.turned + more.turned,
            max(self.longest, more.longest),
            max(self.pace, more.pace),
        )

    def is_rotation(self, slack: float) -> bool:
        """Return whether values always turn one way, and deviate from a turn by no more than their usual
        steps.
        """
        one_way = _ONE_WAY * min(self.forward, self.backward) <= max(self.forward, self.backward)
        return self.turned >= _TURNED and one_way and self.longest <= self.pace + slack


@dataclass(frozen=True)
class TurnEvidence:
    """Evidence from values of messages for one number; sums don't depend on the order of the parts.

    Attributes:
        low, high: the extent of finite values.
        beyond: number beyond half a turn of radians, which `angle` would change.
        rad, deg: differences.
    """

    low: float = float(np.finfo(np.float64).max)
    high: float = float(np.finfo(np.float64).min)
    beyond: int = 0
    rad: Jumps = Jumps()
    deg: Jumps = Jumps()

    def __add__(self, more: TurnEvidence) -> TurnEvidence:
        return TurnEvidence(
            min(self.low, more.low),
            max(self.high, more.high),
            self.beyond + more.beyond,
            self.rad + more.rad,
            self.deg + more.deg,
        )

    def jumps(self, unit: str) -> Jumps:
        return self.rad if unit == "rad" else self.deg

    def wraps(self, unit: str) -> bool:
        """Return whether values stay within one turn, and jump by a whole one at its ends."""
        found, turn = self.jumps(unit), TURNS[unit]
        is_smooth = found.whole >= found.other and found.rest <= 2 * found.step + _REST * turn
        is_angle = (found.whole > 0 and is_smooth) or found.is_rotation(_REST * turn)
        return is_angle and self.high - self.low <= _SPAN * turn

    @property
    def fits_radians(self) -> bool:
        """Whether values may be directions in radians, from -pi to pi or from 0 to 2 pi."""
        if self.low > self.high:
            return True  # no finite value
        slack = _ROUNDING * TURN
        half = TURN / 2 + slack
        is_positive = self.low >= -slack and self.high <= TURN + slack
        in_reach = max(-self.low, self.high) <= TURN + slack
        return is_positive or (-half <= self.low and self.high <= half) or (self.wraps("rad") and in_reach)


def turn_evidence(values: Array, own: Mask, paired: Mask) -> tuple[TurnEvidence, ...]:
    """Collect evidence from values of consecutive messages, for each of their numbers.

    Args:
        values: (n, ...) numbers in time order.
        own: (n,) mask of values to include in the extent.
        paired: (n - 1,) mask of differences to the next value to include.

    >>> heading = np.array([2.9, 3.0, 3.1, -3.1, -3.0])
    >>> (found,) = turn_evidence(heading, np.ones(5, bool), np.ones(4, bool))
    >>> found.rad.whole, found.wraps("rad"), found.wraps("deg")
    (1, True, False)
    """
    numbers = values.reshape(len(values), -1).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        steps = (numbers[1:] - numbers[:-1])[paired]
    return tuple(
        TurnEvidence(*_extent(column[own]), rad=_jumps(steps[:, i], "rad"), deg=_jumps(steps[:, i], "deg"))
        for i, column in enumerate(numbers.T)
    )


def added(parts: Iterable[tuple[TurnEvidence, ...]]) -> tuple[TurnEvidence, ...]:
    """Add the evidence of all parts, number by number."""
    found: tuple[TurnEvidence, ...] = ()
    for part in parts:
        found = tuple(a + b for a, b in zip(found, part, strict=True)) if found else part
    return found


def _extent(values: Array) -> tuple[float, float, int]:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return TurnEvidence.low, TurnEvidence.high, 0
    beyond = int(np.count_nonzero(np.abs(finite) > TURN / 2 + _ROUNDING * TURN))
    return float(finite.min()), float(finite.max()), beyond


def _jumps(steps: Array, unit: str) -> Jumps:
    turn = TURNS[unit]
    signed = steps[np.isfinite(steps)]
    steps = np.abs(signed)
    rests = np.abs(steps - turn)
    whole, small = rests <= _NEAR * turn, steps <= _NEAR * turn
    turned = steps > turn / 2
    shorter = np.where(turned, signed - np.copysign(turn, signed), signed)
    return Jumps(
        int(whole.sum()),
        int((~whole & ~small).sum()),
        float(rests[whole].min(initial=TURNS["deg"])),
        float(steps[small].max(initial=0.0)),
        int(np.count_nonzero(shorter > 0)),
        int(np.count_nonzero(shorter < 0)),
        int(turned.sum()),
        float(np.abs(shorter[turned]).max(initial=0.0)),
        float(steps[~turned].max(initial=0.0)),
    )
