"""Resampling: choose messages for ticks, and combine their values.

Here: `choose` and `Choice`, pure functions over arrays.
Elsewhere: ticks (ticks), policies (logloom.resample.policies), reading messages
and making blocks (row_stream).

Messages are ordered by (message time, position in the log). Policies of one or two messages use only the last
of equal times; windows and counts use all. Times are int64 ns, those of messages with the column's offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from logloom.blocks import Array, Lists, Ragged, Values, empty, fixed_text, run_indices, take, text_lengths
from logloom.errors import LogloomError
from logloom.resample import kernels
from logloom.resample.kernels import Floats
from logloom.resample.policies import Indices, Mask, ResamplePolicy, Times, shifted
from logloom.schema import NO_AGE, ColumnType
from logloom.transforms.rows.plan.row_plan import Sampling
from logloom.values import dataclass

__all__ = ["Choice", "Indices", "Mask", "Times", "cast_values", "choose", "shifted"]


@dataclass(frozen=True)
class Choice:
    """The messages that each tick uses: those from `lo` to `hi` in the order of their times.

    Attributes:
        ticks: (T,) ascending.
        order: (M,) indices of messages in (message time, position) order.
        times: (M,) their message times.
        lo, hi: (T,) ranges in `order`; empty if no message is usable.
    """

    policy: ResamplePolicy
    ticks: Times
    order: Indices
    times: Times
    lo: Indices
    hi: Indices

    @property
    def available(self) -> Mask:
        """(T,) whether there was a usable message; a count is always available."""
        counts = self.policy.takes == "nothing"
        return np.ones(len(self.ticks), np.bool_) if counts else self.lo < self.hi

    @property
    def age(self) -> Times:
        """(T,) tick minus the time of the used message: the earlier of two, the latest of a window."""
        age = np.full(len(self.ticks), NO_AGE)
        used = np.flatnonzero(self.lo < self.hi)
        shown = self.lo if self.policy.uses == "two" else self.hi - 1
        age[used] = self.ticks[used] - self.times[shown[used]]
        return age

    @property
    def rows(self) -> Indices:
        """The messages that any tick uses, as ascending indices without repeats."""
        return np.sort(self.order[self._needed()])

    def used(self, tick: int) -> Indices:
        """The messages that a tick uses, in the order of their times."""
        return self.order[self.lo[tick] : self.hi[tick]]

    def select(self, ticks: Indices | Mask | slice) -> Choice:
        """Select some of the ticks."""
        return replace(self, ticks=self.ticks[ticks], lo=self.lo[ticks], hi=self.hi[ticks])

    def apply(
        self,
        values: Values,
        ctype: ColumnType,
        name: str = "",
        adapt: Callable[[Values], Values] | None = None,
    ) -> tuple[Values, Times, Mask]:
        """Return the column's values at each tick.

        Args:
            values: of the messages `rows`, in that order. A count ignores them.
            ctype: of a row.
            name: of the column, for messages.
            adapt: converts resampled values, before the cast to `ctype`.

        Returns:
            (T, *shape) or T ragged values, (T,) ages in ns, (T,) availabilities.

        Raises:
            LogloomError: a number doesn't fit the type of the column.
        """
        available = self.available
        if not available.any():
            return empty(ctype, len(available)), self.age, available
        chosen = self if available.all() else self.select(available)
        if isinstance(values, Ragged) and ctype.dtype.kind == "U" != values.dtype.kind:
            values = _fixed(values, ctype, name)
        with np.errstate(all="ignore"):
            resampled = chosen._resample(values)
            usable = cast_values(adapt(resampled) if adapt else resampled, ctype, name, chosen.ticks)
        return _spread(usable, available, ctype), self.age, available

    def _needed(self) -> Indices:
        """Return the places in `order` of messages that any tick uses, ascending."""
        used = self.lo < self.hi
        lo, hi = self.lo[used], self.hi[used]
        if len(lo) == 0:
            return np.empty(0, np.intp)
        base = int(lo.min())
        length = int(hi.max()) - base + 1
        # ranges    [0, 2) [1, 3)   begin at 0 1, end at 2 3
        # depth     1  2  1  0      how many ranges a message is in: those begun less those ended
        depth = np.cumsum(np.bincount(lo - base, minlength=length) - np.bincount(hi - base, minlength=length))
        return np.flatnonzero(depth) + base

    def _resample(self, values: Values) -> Values:
        """Return one value for each tick, all of which are available."""
        if self.policy.takes == "nothing":
            return (self.hi - self.lo).astype(np.int64)
        needed = self._needed()
        base = int(needed[0]) if len(needed) else 0
        # slots[i] is the place of the value of message `base + i` in order.
        slots = np.zeros((int(needed[-1]) - base + 1) if len(needed) else 0, np.intp)
        slots[needed[np.argsort(self.order[needed])] - base] = np.arange(len(needed))
        lo, hi = self.lo - base, self.hi - base
        if self.policy.uses == "one":
            return take(values, slots[lo])
        if isinstance(values, Ragged):
            raise LogloomError("values whose length differs by message can't be resampled by this policy")
        if self.policy.between is not None:
            return self._interpolate(*self.policy.between, values[slots[lo]], values[slots[hi - 1]])
        if self.policy.reduce is None:
            return Ragged(values[slots[run_indices(lo, hi - lo)]], hi - lo)
        return self.policy.reduce(values[slots], lo, hi - lo)

    def _interpolate(
        self,
        kernel: Callable[[Floats, Floats, Floats], Floats],
        alone: Callable[[Floats], Floats],
        a: Array,
        b: Array,
    ) -> Array:
        """Interpolate between the messages before and after each tick; if they are the same, use its
        value.
        """
        before, after = self.times[self.lo], self.times[self.hi - 1]
        apart = np.flatnonzero(before != after)
        a = a.astype(np.float64)
        result = alone(a)
        w = (self.ticks - before)[apart] / (after - before)[apart]
        result[apart] = kernel(a[apart], b[apart].astype(np.float64), w)
        return result


def choose(sampling: Sampling, times: Times, ticks: Times, wanted: Times | None = None) -> Choice:
    """Find the messages that each tick uses.

    Args:
        sampling: any policy but static.
        times: (N,) message times, offset included, in log order.
        ticks: (T,) ascending.
        wanted: (T,) for `matched`, the time of the message that the clock chose at each tick.

    Returns:
        The choice, whose `apply` takes the values of its messages.
    """
    if (times[1:] >= times[:-1]).all():
        order, ordered = np.arange(len(times)), times
    else:
        order = np.argsort(times, kind="stable")  # stable: equal times keep their order in the log
        ordered = times[order]
    rules = sampling.rules
    if rules.uses in ("one", "two"):
        last = np.append(ordered[1:] != ordered[:-1], np.ones(min(1, len(ordered)), np.bool_))
        if not last.all():
            order, ordered = order[last], ordered[last]
    if len(ordered):
        assert rules.find is not None  # only static has none
        at = ticks if wanted is None else wanted
        lo, hi = rules.find(ordered, at, sampling.tolerance, sampling.window)
    else:
        lo = hi = np.zeros(len(ticks), np.intp)
    return Choice(rules, ticks, order, ordered, lo, hi)


def cast_values(values: Values, ctype: ColumnType, name: str, ticks: Times) -> Values:
    """Cast values to the column's dtype.

    Raises:
        LogloomError: a number doesn't fit the type.
    """
    if values.dtype == ctype.dtype:
        return values
    flat = values.values if isinstance(values, Ragged) else values
    misfit = kernels.first_misfit(flat, ctype.dtype)
    if misfit is not None:
        element = misfit // max(1, int(np.prod(flat.shape[1:])))
        row = element
        if isinstance(values, Ragged):
            row = int(np.searchsorted(values.offsets, element, "right")) - 1
        number = flat.flat[misfit]
        if np.isnan(number):
            way = "Give the column a dtype of floats, or `nan: unavailable` if messages have the NaN."
        elif np.isinf(number):
            way = "Give the column a dtype of floats."
        else:
            way = "Give the column a wider dtype."
        raise LogloomError(
            f"column {name!r} at tick {ticks[row]} ns: {number} does not fit {ctype.dtype}. {way}"
        )
    with np.errstate(all="ignore"):
        flat = kernels.cast(flat, ctype.dtype)
    return values.with_values(flat) if isinstance(values, Ragged) else flat


def _fixed(texts: Ragged, ctype: ColumnType, name: str) -> Array:
    """Convert texts of messages for a column with several texts per row.

    Raises:
        LogloomError: one is too long.
    """
    width = ctype.dtype.itemsize // 4
    lengths = text_lengths(texts)
    if (lengths > width).any():
        text = texts[int(np.argmax(lengths > width))].tobytes().decode("utf-8")
        raise LogloomError(
            f"column {name!r}: text {text[:80]!r} has {len(text)} characters, the column keeps {width}; "
            "raise `strings`"
        )
    return fixed_text(texts, width)


def _spread(usable: Values, available: Mask, ctype: ColumnType) -> Values:
    """Place the rows of available ticks among empty rows."""
    if available.all():
        return usable
    if not isinstance(usable, Ragged):
        rows = empty(ctype, len(available))
        assert isinstance(rows, np.ndarray)
        rows[available] = usable
        return rows
    if isinstance(usable, Lists):
        counts = np.zeros(len(available), np.int64)
        counts[available] = usable.inner.shapes[:, 0]
        return Lists(usable.values, counts, usable.inner.values)
    shapes = np.zeros((len(available), ctype.num_ragged), np.int64)
    shapes[available] = usable.shapes
    if usable.is_joined:
        return Ragged(usable.values, shapes)
    nothing = np.empty((*[0] * ctype.num_ragged, *ctype.tail), ctype.dtype)
    parts = iter(usable)
    return Ragged.from_rows([next(parts) if row else nothing for row in available.tolist()], ctype)
