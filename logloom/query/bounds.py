"""Evaluation of filters with unknown values, over rows and over whole logs.

Here: `of_rows`, for filters of single rows; `Bounds`, which are gathered for leaves of a filter from blocks
of rows; `evaluate`, which returns where the filter holds, and where it may hold.
Elsewhere: the language (where), comparisons (comparison), reading the rows
(logloom.datasets.search.log_matches).

Logic has three values: a comparison with a missing value, or with NaN, is neither true nor false. A truth is
a pair of bounds, false below true, and so is a count of elements with unknown ones:

    known true     low True,  high True         `not` swaps and negates, `and` and `or` go bound by bound,
    unknown        low False, high True         and so do `for` and `within`, which only grow with what they
    known false    low False, high False        look at

Functions of other rows get all rows of a log, regardless of partitions and blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Ragged, Values
from logloom.query import tree
from logloom.query.arithmetic import calculate, signed
from logloom.query.binder import field_names
from logloom.query.comparison import (
    Categories,
    Mask,
    comparable,
    compare,
    constant,
    finite,
    is_member,
    length_of,
    part,
)
from logloom.query.tree import nodes
from logloom.schema import MAX_TIME, MIN_TIME, NO_AGE
from logloom.values import dataclass
from logloom.windows import run_numbers

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Bounds:
    """Bounds of a value of each row.

    Attributes:
        low, high: (n,) or one for all; if nothing is in doubt they are the same object.
        known: (n,) or one for all; the others are unknown.
    """

    low: Any
    high: Any
    known: Any = True

    @classmethod
    def of(cls, values: Any, known: Any = True) -> Bounds:
        """Return known values, with NaN unknown."""
        if isinstance(values, float):
            known = np.logical_and(known, values == values)
        elif getattr(values, "dtype", np.dtype(bool)).kind == "f":
            is_nan = np.isnan(values)
            known = np.logical_and(known, ~is_nan) if is_nan.any() else known
        return cls(values, values, known)

    @property
    def is_exact(self) -> bool:
        return self.low is self.high

    def as_truth(self) -> Bounds:
        """Return truths; unknown ones may be true or false."""
        if self.known is True:
            return self
        return Bounds(
            np.logical_and(self.low, self.known), np.logical_or(self.high, np.logical_not(self.known))
        )

    @classmethod
    def joined(cls, join: np.ufunc, truths: Sequence[Bounds]) -> Bounds:
        """Return truths joined by `and` or `or`."""
        low = functools.reduce(join, (truth.low for truth in truths))
        if all(truth.is_exact for truth in truths):
            return cls(low, low)
        return cls(low, functools.reduce(join, (truth.high for truth in truths)))

    def __invert__(self) -> Bounds:
        low = np.logical_not(self.high)
        return Bounds(low, low if self.is_exact else np.logical_not(self.low))


@dataclass(frozen=True)
class WholeLog:
    """All rows of a log.

    Attributes:
        stamps: (n,) ns, ascending.
        starts: (R + 1,) where runs begin: consecutive rows without a gap.
        saved: returns (n,) whether rows are in intervals of a name.
    """

    stamps: Ints
    starts: Ints
    saved: Callable[[str], Mask]


Leaf = tree.ColumnName | tree.Length | tree.Available | tree.Finite | tree.Quantified


def leaves(root: tree.Node) -> list[Leaf]:
    """Return the parts of a filter to gather from rows, identified by their place in the text."""
    return [node for node in nodes(root) if isinstance(node, Leaf)]


def gather(leaf: Leaf, columns: Mapping[str, Values | Categories]) -> Bounds:
    """Gather a leaf's values from some rows.

    Args:
        columns: the leaf's columns of these rows, with availabilities if they exist.
    """
    if isinstance(leaf, tree.Available):
        return Bounds.of(columns[f"{leaf.name}.available"])
    if isinstance(leaf, tree.Finite):
        return Bounds.of(finite(leaf.word, part(columns[leaf.name], leaf.column.steps)))
    if isinstance(leaf, tree.ColumnName):
        values = comparable(columns[leaf.name], leaf.steps)
        there = [values != NO_AGE] if leaf.is_time else []
        return Bounds.of(values, _known(leaf.available, columns, *there))
    if isinstance(leaf, tree.Length):
        return Bounds.of(length_of(leaf, columns[leaf.name]), _known(leaf.column.available, columns))
    counts = _counted(leaf, columns[leaf.name])
    found = Bounds(counts.low, counts.high, _known(leaf.available, columns))
    return found if leaf.word == "count" else found.as_truth()


def _known(available: str, columns: Mapping[str, Any], *masks: Mask) -> Any:
    """(n,) whether values are known; True if all are."""
    masks = (*masks, columns[available]) if available else masks
    lacking = [mask for mask in masks if not mask.all()]
    return functools.reduce(np.logical_and, lacking) if lacking else True


def _counted(leaf: tree.Quantified, values: Any) -> Bounds:
    """For each row, the least and the most elements that meet the condition; or whether any or all do."""
    if isinstance(values, Ragged):
        flat, offsets = values.values, values.offsets
    else:
        flat, offsets = values.reshape(-1), np.arange(len(values) + 1) * values.shape[1]
    lengths = np.diff(offsets)
    if leaf.condition is None:
        return Bounds(lengths, lengths)
    found: dict[int, Bounds] = {}
    for node in nodes(leaf.condition):
        if isinstance(node, tree.ColumnName):
            found[node.at] = Bounds.of(comparable(_named(flat, node.name), node.steps))
        elif isinstance(node, tree.Length):
            found[node.at] = Bounds.of(length_of(node, _named(flat, node.name)))
        elif isinstance(node, tree.Finite):
            found[node.at] = Bounds.of(finite(node.word, part(_named(flat, node.name), node.column.steps)))
    truth = _truth(leaf.condition, found, None)
    low, high = (_sums(np.broadcast_to(bound, len(flat)), offsets) for bound in (truth.low, truth.high))
    if leaf.word == "count":
        return Bounds(low, high)
    return Bounds(low > 0, high > 0) if leaf.word == "any" else Bounds(low == lengths, high == lengths)


def _named(flat: Any, field: str) -> Any:
    for name in field_names(flat.dtype)[field]:
        flat = flat[name]
    return flat


def _sums(mask: Mask, offsets: Ints) -> Ints:
    """(n,) how many are true between consecutive offsets."""
    total = np.zeros(len(mask) + 1, np.int64)
    np.cumsum(mask, out=total[1:])
    return np.asarray(total[offsets[1:]] - total[offsets[:-1]])


def joined(parts: Sequence[Bounds], num_rows: Sequence[int]) -> Bounds:
    """Join the values of blocks of rows.

    Args:
        num_rows: of each block.
    """
    known: Any = True
    if not all(part.known is True for part in parts):
        known = np.concatenate(
            [np.broadcast_to(part.known, count) for part, count in zip(parts, num_rows, strict=True)]
        )
    low = _concatenated([part.low for part in parts])
    exact = all(part.is_exact for part in parts)
    return Bounds(low, low if exact else _concatenated([part.high for part in parts]), known)


def _concatenated(parts: Sequence[Any]) -> Any:
    if not isinstance(parts[0], Categories):
        return np.concatenate(parts)
    places: dict[bytes, int] = {}
    codes = [
        np.array([places.setdefault(text, len(places)) for text in part.texts.tolist()], np.int64)[part.codes]
        for part in parts
    ]
    return Categories.of(places, np.concatenate(codes))


def of_rows(root: tree.Node, columns: Mapping[str, Values | Categories]) -> tuple[Mask, Mask]:
    """Return where a filter of single rows holds, and where it may hold: (n,) each, or () for all rows.

    Args:
        columns: of some rows, with availabilities.
    """
    truth = _truth(root, {leaf.at: gather(leaf, columns) for leaf in leaves(root)}, None)
    return np.asarray(truth.low, np.bool_), np.asarray(truth.high, np.bool_)


def evaluate(root: tree.Node, found: Mapping[int, Bounds], rows: WholeLog) -> tuple[Mask, Mask]:
    """Return where a filter holds, and where it may hold: (n,) each.

    Args:
        found: values of each leaf for all rows, by its place.
    """
    truth = _truth(root, found, rows)
    count = len(rows.stamps)
    return np.broadcast_to(truth.low, count), np.broadcast_to(truth.high, count)


def _truth(node: tree.Node, found: Mapping[int, Bounds], rows: WholeLog | None) -> Bounds:
    """Return where a condition surely holds, and where it may.

    Args:
        rows: None for elements and filters of single rows, which don't look at neighbours.
    """
    match node:
        case tree.Not(inner):
            return ~_truth(inner, found, rows)
        case tree.Join(word, parts):
            join = np.logical_and if word == "and" else np.logical_or
            return Bounds.joined(join, [_truth(part, found, rows) for part in parts])
        case tree.Comparison(operands, operators):
            values = [_value(operand, found, rows) for operand in operands]
            pairs = zip(operators, values[:-1], values[1:], strict=True)
            return Bounds.joined(np.logical_and, [_compared(*pair).as_truth() for pair in pairs])
        case tree.Membership(operand):
            return _member(_value(operand, found, rows), node).as_truth()
        case tree.Lasting(inner, ns) | tree.Nearby(inner, ns):
            assert rows is not None
            spread = lasting if isinstance(node, tree.Lasting) else nearby
            truth = _truth(inner, found, rows)
            whole = np.zeros(len(rows.stamps), np.bool_)
            return Bounds(spread(whole | truth.low, rows, ns), spread(whole | truth.high, rows, ns))
        case tree.Saved(name):
            assert rows is not None
            mask = rows.saved(name)
            return Bounds(mask, mask)
    return _value(node, found, rows).as_truth()


def _value(node: tree.Node, found: Mapping[int, Bounds], rows: WholeLog | None) -> Bounds:
    """A number, text or truth."""
    match node:
        case tree.Constant():
            return Bounds.of(constant(node))
        case tree.ColumnName() | tree.Length() | tree.Available() | tree.Finite() | tree.Quantified():
            return found[node.at]
        case tree.Unary(word, inner):
            value = _exact(_value(inner, found, rows))
            return Bounds.of(signed(word, value.low), value.known)
        case tree.Arithmetic(operands, signs):
            first, *others = [_exact(_value(operand, found, rows)) for operand in operands]
            for sign, other in zip(signs, others, strict=True):
                known = np.logical_and(first.known, other.known)
                first = Bounds.of(calculate(sign, first.low, other.low), known)
            return first
        case tree.Delta(column, ns):
            assert rows is not None
            return changed(found[column.at], rows, ns)
    return _truth(node, found, rows)


def _exact(value: Bounds) -> Bounds:
    """Return numbers for calculations, where counts with unknown elements are unknown."""
    if value.is_exact:
        return value
    return Bounds.of(value.low, np.logical_and(value.known, np.equal(value.low, value.high)))


def _compared(word: str, a: Bounds, b: Bounds) -> Bounds:
    known = np.logical_and(a.known, b.known)
    if a.is_exact and b.is_exact:
        return Bounds.of(compare(word, a.low, b.low), known)
    if word in ("==", "!="):
        low = compare("==", a.low, b.high) & compare("==", a.high, b.low)
        high = compare("<=", a.low, b.high) & compare(">=", a.high, b.low) & _whole(a) & _whole(b)
        equal = Bounds(low, high) if word == "==" else ~Bounds(low, high)
        return Bounds(equal.low, equal.high, known)
    one, other = compare(word, a.low, b.high), compare(word, a.high, b.low)
    return Bounds(one & other, one | other, known)


def _whole(value: Bounds) -> Any:
    """(n,) whether a value is a whole number, as counts are; bounds that differ are counts."""
    return np.equal(value.low, np.floor(value.low)) if value.is_exact else True


def _member(value: Bounds, node: tree.Membership) -> Bounds:
    if value.is_exact:
        return Bounds.of(np.asarray(is_member(value.low, node), np.bool_), np.asarray(value.known))
    # Counts and truths may be any whole number from low to high; these are all in the list, or some, or none.
    items = np.unique([float(item.value) for item in node.items if float(item.value).is_integer()])
    low, high = (np.asarray(bound, np.float64) for bound in (value.low, value.high))
    count = items.searchsorted(high, side="right") - items.searchsorted(low, side="left")
    low_is, high_is = count == high - low + 1, count > 0
    is_in = Bounds(low_is, high_is)
    is_in = ~is_in if node.negated else is_in
    return Bounds(is_in.low, is_in.high, value.known)


# rows      0  1  2  3 | 4  5  6        runs begin at 0 and 4
# mask      .  x  x  x | x  .  x        stretches: 1 to 3, 4, 6
def stretches(mask: Mask, starts: Ints | None = None) -> tuple[Ints, Ints]:
    """(S,) the first and the last row of each stretch of true values within a run.

    Args:
        starts: of runs; None for one run of all rows.

    >>> mask = np.array([False, True, True, True, True, False, True])
    >>> [rows.tolist() for rows in stretches(mask, np.array([0, 4, 7]))]
    [[1, 4, 6], [3, 4, 6]]
    """
    cut = np.zeros(len(mask) + 1, np.bool_)
    cut[0 if starts is None else starts] = True
    apart = np.concatenate([[False], mask, [False]])
    begins = apart[1:-1] & (~apart[:-2] | cut[:-1])
    ends = apart[1:-1] & (~apart[2:] | cut[1:])
    return np.flatnonzero(begins), np.flatnonzero(ends)


def lasting(mask: Mask, rows: WholeLog, ns: int) -> Mask:
    """(n,) whether a row is in a stretch whose last row is at least `ns` after its first."""
    first, last = stretches(mask, rows.starts)
    # Two's complement: the difference of any two ascending int64 is right as uint64.
    long_enough = (rows.stamps[last].view(np.uint64) - rows.stamps[first].view(np.uint64)) >= np.uint64(ns)
    change = np.zeros(len(mask) + 1, np.int64)
    change[first[long_enough]] += 1
    change[last[long_enough] + 1] -= 1
    return np.asarray(np.cumsum(change)[:-1] > 0)


def nearby(mask: Mask, rows: WholeLog, ns: int) -> Mask:
    """(n,) whether the mask is true for a row at most `ns` away."""
    hits = rows.stamps[mask]
    first = hits.searchsorted(shifted(rows.stamps, -ns), side="left")
    return np.asarray(hits.searchsorted(shifted(rows.stamps, ns), side="right") > first)


def shifted(stamps: Ints, ns: int) -> Ints:
    """(n,) shifted times, clipped to int64."""
    least, most = max(MIN_TIME, MIN_TIME - ns), min(MAX_TIME, MAX_TIME - ns)
    return np.asarray(np.clip(stamps, least, most) + ns)


def changed(value: Bounds, rows: WholeLog, ns: int | None) -> Bounds:
    """(n,) by how much each row's value differs from an earlier one's of its run.

    Args:
        ns: use the latest row at least this long ago; None for the previous row.
    """
    count = len(rows.stamps)
    if ns is None:
        earlier = np.arange(count) - 1
    else:
        earlier = rows.stamps.searchsorted(shifted(rows.stamps, -ns), side="right") - 1
        earlier[rows.stamps < MIN_TIME + ns] = -1
    there = np.maximum(earlier, 0)
    numbers = run_numbers(rows.starts)
    known = np.broadcast_to(value.known, count)
    both = known & known[there] & (earlier >= 0) & (numbers[there] == numbers)
    change = calculate("-", value.low[both], value.low[there[both]])
    changes = np.zeros(count, change.dtype)
    changes[both] = change
    return Bounds.of(changes, both)
