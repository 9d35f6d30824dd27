"""Summary of statistics for people: a JSON object per column.

Here: `summary`; quantiles and histograms, with their uncertainty.
Elsewhere: the statistics behind them (logloom.statistics.series).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.schema import AGE, ColumnType, Schema
from logloom.statistics.columns import INNER, LENGTHS, ROWS, VALUES, Key, Statistics
from logloom.statistics.exact_sums import Dyadic, mean_of, std_of
from logloom.statistics.series import Lane, Numbers, Texts
from logloom.statistics.value_counts import Cells
from logloom.values import dataclass

PERCENTS = (1, 10, 50, 90, 99)
MAX_BINS = 64  # of a histogram
MAX_DISTINCT = 64  # whole numbers that are shown with their counts
_TINY = 2.0**-1000
_WHOLE = 2**53


@dataclass(frozen=True)
class Histogram:
    """Counts of finite numbers in bins of one width, which is a power of two.

    A number on an edge belongs to the bin on the far side of zero.

    Attributes:
        edges: (bins + 1) multiples of the width.
        counts: (bins) exact.
    """

    edges: list[float]
    counts: list[int]


def summary(statistics: Statistics, schema: Schema) -> dict[str, dict[str, Any]]:
    """Return an object for each column, including ages, in the schema's order.

    Columns with several numbers per row, such as a vector or an image's channels, have lists.
    """
    own: dict[str, dict[Key, Lane]] = {}
    for key, lane in statistics.lanes.items():
        own.setdefault(key.column, {})[key] = lane
    found = {}
    for name, ctype in schema.columns.items():
        if name in own:
            found[name] = _column(own[name], ctype)
        if (age := f"{name}.age") in own:
            found[age] = _column(own[age] | _rows_of_age(own, name), AGE)
    return found


def _rows_of_age(lanes: Mapping[str, Mapping[Key, Lane]], name: str) -> dict[Key, Lane]:
    """The lane of rows of a column's age: those with a message are available."""
    rows = lanes.get(name, {}).get(Key(name, "", ROWS, 0))
    ages = lanes[f"{name}.age"].get(Key(f"{name}.age", "", VALUES, 0))
    if not (isinstance(rows, Numbers) and isinstance(ages, Numbers)):
        return {}
    return {Key(f"{name}.age", "", ROWS, 0): Numbers(ages.count, rows.count + rows.nan - ages.count)}


def _column(lanes: Mapping[Key, Lane], ctype: ColumnType) -> dict[str, Any]:
    result: dict[str, Any] = {"type": str(ctype)} | ({"unit": ctype.unit} if ctype.unit else {})
    if ctype.names:
        result["names"] = list(ctype.names)
    parts: dict[tuple[str, str], list[Lane]] = {}
    for key, lane in lanes.items():
        parts.setdefault((key.part, key.field), []).append(lane)
    for rows in parts.pop((ROWS, ""), []):
        assert isinstance(rows, Numbers)
        result |= {"rows": rows.count + rows.nan, "unavailable": rows.nan}
        if rows.left_out:
            result["left_out"] = rows.left_out
    lengths, inner = parts.pop((LENGTHS, ""), None), parts.pop((LENGTHS, INNER), None)
    is_list = bool(ctype.tail if ctype.kind == "lists" else ctype.shape) and ctype.kind in ("array", "lists")
    fields = {field: found for (_, field), found in parts.items()}
    if "" in fields:
        result |= _described(fields.pop(""), ctype.dtype, is_list=is_list)
    elif fields:
        result["fields"] = {
            field: _described(found, _field_dtype(ctype.dtype, field), is_list=len(found) > 1)
            for field, found in fields.items()
        }
    if lengths is not None:
        result["lengths"] = _described(lengths, np.dtype("i8"), is_list=len(lengths) > 1)
    if inner is not None:
        result["inner_lengths"] = _described(inner, np.dtype("i8"), is_list=False)
    return result


def _field_dtype(dtype: np.dtype[Any], field: str) -> np.dtype[Any]:
    for name in field.split("."):
        if name not in (dtype.names or ()):  # a complex number's part
            return np.dtype("f8")
        dtype = dtype[name].base
    return dtype


def _described(lanes: Sequence[Lane], dtype: np.dtype[Any], *, is_list: bool) -> dict[str, Any]:
    """Describe lanes, with a list for each value if there are several."""
    described = [describe(lane, dtype) for lane in lanes]
    return _listed(described) if is_list else described[0]


def _listed(described: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join objects to one object of lists, with None for missing values."""
    names = dict.fromkeys(name for one in described for name in one)
    return {
        name: _listed([one.get(name, {}) for one in described])
        if name in ("quantiles", "errors", "distinct")
        else [one.get(name) for one in described]
        for name in names
    }


def describe(lane: Lane, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Describe one lane.

    Args:
        lane: for brief statistics, the result has the number of values, their extent and mean.
        dtype: of its values; whole numbers are shown as such.
    """
    if isinstance(lane, Texts):
        if lane.known is None:
            return {"count": lane.count}
        return {"count": lane.count, "distinct": _distinct(list(lane.known), list(lane.known.values()))}
    is_whole = dtype.kind in "biu"
    finite = lane.finite
    low, high = (_number(end, is_whole) for end in (lane.low, lane.high))
    result: dict[str, Any] = {"count": lane.count, "nan": lane.nan, "infinite": lane.below + lane.above}
    result |= {"min": low, "max": high, "mean": None, "std": None}
    if finite:
        result["mean"] = mean_of(lane.total, finite)
        if not len(lane.cells.counts):
            del result["std"]
            return result
        result["std"] = std_of(lane.total, lane.squares, finite)
    values, errors = quantiles(lane, [percent / 100 for percent in PERCENTS], is_whole=is_whole)
    named = list(map(str, PERCENTS))
    result["quantiles"] = dict(zip(named, values, strict=True))
    result["errors"] = dict(zip(named, errors, strict=True))
    if finite:
        bins = histogram(lane.cells, is_whole=is_whole, is_cut=is_whole and _is_cut(lane))
        result["histogram"] = {"edges": bins.edges, "counts": bins.counts}
    if is_whole and lane.cells.level == 0 and len(lane.cells.numbers) <= MAX_DISTINCT and not _is_cut(lane):
        shown = [int(value) for value in lane.cells.bounds[0].tolist()]
        result["distinct"] = _distinct(shown, lane.cells.counts.tolist())
    return result


def _distinct(values: list[Any], counts: list[int]) -> dict[str, Any]:
    return {"values": values, "counts": counts}


def _number(number: Dyadic | None, is_whole: bool) -> float | int | None:
    if number is None:
        return None
    return int(number.fraction) if is_whole else float(number)


def _is_cut(lane: Numbers) -> bool:
    """Return whether some of these whole numbers may be truncated: floats represent all up to 2**53.

    Then they are multiples of 4096 in cells.
    """
    return any(end is not None and abs(end.fraction) > _WHOLE for end in (lane.low, lane.high))


def quantiles(
    lane: Numbers, shares: Sequence[float], *, is_whole: bool = False
) -> tuple[list[float | None], list[float | None]]:
    """Return quantiles of the finite numbers, interpolated linearly like numpy's, and the error bound of
    each.

    Args:
        is_whole: whether the numbers were integers, which cells truncate if large.

    Returns:
        None for each if there are no numbers.
    """
    finite = lane.finite
    if not finite or lane.low is None or lane.high is None:
        return [None] * len(shares), [None] * len(shares)
    low, high = float(lane.low), float(lane.high)
    firsts, lasts = (np.clip(np.nan_to_num(bound, nan=np.inf), low, high) for bound in lane.cells.bounds)
    if is_whole and _is_cut(lane):
        firsts, lasts = (np.clip(bound, low, high) for bound in (firsts - 4096, lasts + 4096))
    ends = np.cumsum(lane.cells.counts)

    def at(rank: int) -> tuple[float, float, float]:
        """Return bounds of the number at a rank, and its value if those of a cell are evenly spaced."""
        cell = int(np.searchsorted(ends, rank, "right"))
        first, last, count = float(firsts[cell]), float(lasts[cell]), int(lane.cells.counts[cell])
        if first == last or rank in (0, finite - 1):
            end = first if first == last else (low if rank == 0 else high)
            return end, end, end
        if max(-first, last) < _TINY:  # only zeros are left
            return first, last, 0.0
        share = (rank - (int(ends[cell]) - count) + 0.5) / count
        return first, last, min(max(first + (last - first) * share, first), last)

    values: list[float | None] = []
    errors: list[float | None] = []
    for share in shares:
        place = share * (finite - 1)
        rank = min(math.floor(place), finite - 1)
        pair = zip(at(rank), at(min(rank + 1, finite - 1)), strict=True)
        least, greatest, value = (_between(a, b, place - rank) for a, b in pair)
        values.append(value)
        errors.append(max(value - least, greatest - value))
    return values, errors


def _between(a: float, b: float, share: float) -> float:
    """Interpolate like numpy, bit by bit, except for numbers whose difference is beyond floats."""
    if math.isinf(b - a):
        return a * (1 - share) + b * share
    return a + (b - a) * share if share < 0.5 else b - (b - a) * (1 - share)


def histogram(cells: Cells, *, is_whole: bool = False, is_cut: bool = False) -> Histogram:
    """Count cells in bins, whose edges no cell crosses.

    Args:
        cells: at least one.
        is_whole: whether edges are to be whole numbers.
        is_cut: whether some may be truncated to multiples of 4096; edges then are such multiples, too, so
            that none is counted in another bin.
    """
    least, greatest = cells.bounds
    negative = cells.numbers < 0
    inner, outer = np.where(negative, greatest, least), np.where(negative, least, greatest)
    widest = float(np.max(np.abs(outer) - np.abs(inner))) if cells.level else 0.0
    # As few as may be, and not so narrow that a float can't number them.
    power = max(
        math.frexp(float(np.abs(inner).max()))[1] - 53, -1074, *([12 if is_cut else 0] if is_whole else [])
    )
    power = max(power, math.frexp(widest)[1] if widest else power)
    reach = float(inner[-1]) - float(inner[0])
    if 0 < reach < math.inf:
        power = max(power, math.frexp(reach)[1] - 8)  # narrower ones are more than 100
    bins = _bins(inner, negative, power)
    while bins[-1] - bins[0] >= MAX_BINS:
        power += 1
        bins = _bins(inner, negative, power)
    first, last = int(bins[0]), int(bins[-1])
    counts = np.zeros(last - first + 1, np.int64)
    np.add.at(counts, (bins - first).astype(np.int64), cells.counts)
    with np.errstate(over="ignore"):
        edges = np.clip(np.ldexp(np.arange(first, last + 2, dtype=np.float64), power), -_MOST, _MOST)
    return Histogram(edges.tolist(), counts.tolist())


_MOST = float(np.finfo(np.float64).max)


def _bins(inner: NDArray[np.float64], negative: NDArray[np.bool_], power: int) -> NDArray[np.float64]:
    """(k,) the bin of 2**power of each cell; -1 is the one just below 0."""
    numbers = np.floor(np.ldexp(np.abs(inner), -power))
    return np.where(negative, -1 - numbers, numbers)
