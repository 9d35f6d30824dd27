"""Charts as SVG paths: histograms, time lines of logs, tracks on a map.

Here: pure functions from numbers to coordinates. Of each view box, x goes right and y down.
Elsewhere: what is drawn (samples, logs), the elements and colours around it (page).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.pipelines.report.logs import LogLine
from logloom.pipelines.report.samples import Track
from logloom.values import dataclass

WIDTH, HEIGHT = 256, 56  # of a histogram's view box
LANE = 1000  # width of a time line's view box
MAP = 1000  # width of the map's
_SECOND = 10**9


@dataclass(frozen=True)
class Bars:
    """A histogram: the path of its bars, its ends as text, and tooltips.

    Attributes:
        first, step: of the edges, which are `first + k * step`.
    """

    path: str
    low: str
    high: str
    first: float
    step: float
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Lanes:
    """The time line: all logs begin at its left end.

    Attributes:
        paths: of each log, the path of its stretches.
        ticks: labels at even distances, the first at the left end and the last at the right one.
    """

    paths: tuple[str, ...]
    ticks: tuple[str, ...]


@dataclass(frozen=True)
class MapView:
    """Tracks on a plain map, north (y) up.

    Attributes:
        paths: of each track.
        grid: path of lines that are `cell` apart.
    """

    paths: tuple[str, ...]
    grid: str
    cell: str
    height: float
    left: float
    top: float
    scale: float

    def at(self, place: tuple[float, float]) -> tuple[float, float]:
        """Return a place in the view box."""
        return round((place[0] - self.left) * self.scale, 1), round((self.top - place[1]) * self.scale, 1)


def bars_of(histogram: Mapping[str, Any] | None, unit: float = 1.0) -> Bars | None:
    """The bars of a histogram, see `logloom.statistics.summary.Histogram`.

    Args:
        unit: what edges are divided by.
    """
    if not histogram:
        return None
    counts, edges = histogram["counts"], [edge / unit for edge in histogram["edges"]]
    most, wide = max(counts), WIDTH / len(counts)
    path = []
    for number, count in enumerate(counts):
        if count:  # the smallest count still shows
            tall = max(1.0, count / most * HEIGHT)
            path.append(f"M{number * wide:.4g} {HEIGHT}v{-tall:.4g}h{wide * 0.92:.4g}v{tall:.4g}z")
    ends = _edge(edges[0]), _edge(edges[-1])
    return Bars("".join(path), *ends, edges[0], edges[1] - edges[0], tuple(counts))


def _edge(number: float) -> str:
    return f"{number:.0f}" if 1e4 <= abs(number) < 1e9 else f"{number:.4g}"


def shares(counts: Mapping[str, int]) -> tuple[tuple[str, int, float, float], ...]:
    """(name, count, where its share begins, how wide it is) of the whole, in a bar of width 100."""
    whole = sum(counts.values())
    found, at = [], 0
    for name, count in counts.items():
        if count:
            found.append((name, count, round(at / whole * 100, 3), round(count / whole * 100, 3)))
        at += count
    return tuple(found)


def lanes_of(lines: Sequence[LogLine]) -> Lanes:
    """The stretches of logs, from the first row of each."""
    lengths = [(one.pieces[-1][1] - one.pieces[0][0]) / _SECOND for one in lines if one.pieces]
    end = _rounded(max(lengths, default=0.0) or 1.0)
    paths = []
    for one in lines:
        path = []
        for first, last in one.pieces:
            begin, until = ((time - one.pieces[0][0]) / _SECOND / end * LANE for time in (first, last))
            wide = max(1.0, until - begin)
            path.append(f"M{begin:.5g} 0h{wide:.5g}v10h{-wide:.5g}z")
        paths.append("".join(path))
    return Lanes(tuple(paths), tuple(_duration(end * quarter / 4) for quarter in range(5)))


def _rounded(length: float) -> float:
    """A length rounded up to one whose quarters are easy to read."""
    power = 10.0 ** math.floor(math.log10(length))
    return next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if length <= step * power)


def _duration(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.4g} s"
    return f"{seconds / 60:.4g} min" if seconds < 36000 else f"{seconds / 3600:.4g} h"


def map_of(tracks: Sequence[Track], places: Sequence[tuple[float, float] | None]) -> MapView | None:
    """Tracks on a map that shows all of them, and other places; None where no two are apart."""
    parts = [track.points for track in tracks] + [np.array([place]) for place in places if place]
    points = np.concatenate([np.empty((0, 2)), *parts])
    if not len(points) or np.abs(points).max() > 1e12:
        return None
    low, high = points.min(axis=0), points.max(axis=0)
    extent = float((high - low).max())
    if extent <= 1e-9 * max(1.0, float(np.abs(points).max())):  # less than what rounding makes of it
        return None
    margin = extent * 0.06
    wide, tall = (float(side) + 2 * margin for side in high - low)
    most = max(tall, 0.4 * wide)
    wide = max(wide, most / 1.1)  # a tall narrow map would fill more than a screen
    left, top = (float(low[0] + high[0]) - wide) / 2, (float(low[1] + high[1]) + most) / 2
    scale = MAP / wide
    view = MapView((), "", "", round(most * scale, 1), left, top, scale)
    cell = _cell(wide)
    paths = tuple(_line([view.at((float(x), float(y))) for x, y in track.points]) for track in tracks)
    return MapView(paths, _grid(view, cell, most), f"{cell:g}", view.height, left, top, scale)


def _line(points: Sequence[tuple[float, float]]) -> str:
    if not points:
        return ""
    head, *rest = [f"{x:g} {y:g}" for x, y in points]
    return f"M{head}L{' '.join(rest)}" if rest else f"M{head}h0"


def _cell(wide: float) -> float:
    """A round number, some fifth of the map."""
    rough = wide / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if rough <= step * power)


def _grid(view: MapView, cell: float, tall: float) -> str:
    columns = range(math.ceil(view.left / cell), math.floor((view.left + MAP / view.scale) / cell) + 1)
    rows = range(math.ceil((view.top - tall) / cell), math.floor(view.top / cell) + 1)
    lines = [f"M{view.at((number * cell, 0))[0]:g} 0V{view.height:g}" for number in columns]
    lines += [f"M0 {view.at((0, number * cell))[1]:g}H{MAP}" for number in rows]
    return "".join(lines)
