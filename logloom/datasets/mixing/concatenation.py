"""Datasets one after the other, as one.

Here: `concat`.
Elsewhere: datasets by weight (logloom.datasets.mixing.mixture), sources one after the other
(`ChainedSource`), the splits of one dataset (logloom.datasets.splits.folders).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from logloom.caching import cached_property
from logloom.datasets.dataset import Dataset
from logloom.datasets.splits.folders import MixedSource
from logloom.datasets.splits.labels import labels_of
from logloom.errors import UsageError
from logloom.inference import wider
from logloom.io.rows.log_ranges import SplitLabels, Stretches
from logloom.io.rows.sources import RowSource
from logloom.schema import ColumnType, Schema


def concat(datasets: Iterable[Dataset[dict[str, Any]]]) -> Dataset[dict[str, Any]]:
    """The rows of several datasets as one dataset: those of the first, then those of the second, …

    Windows stay within a log of one dataset, also where another has a log of the same name.

    Args:
        datasets: at least one, with equal columns: names, dtypes, shapes and units. Lengths may be fixed in
            one and differ by row in another. `window` and `map` come after.

    Raises:
        UsageError: columns differ, says where; or a dataset has windows, or was mapped.

    Examples:
        >>> rows = logloom.datasets.open("demo/dataset")
        >>> both = logloom.datasets.concat([rows.head(20), rows.filter("ego.speed > 9")])
        >>> len(both) > 20
        True
    """
    views = list(datasets)
    if not views:
        raise UsageError("concat: no datasets")
    for number, view in enumerate(views):
        if not isinstance(view, Dataset):
            raise UsageError(f"concat: item {number} is a {type(view).__name__}, no dataset")
        if view.is_mapped or view.window_steps:
            raise UsageError(
                f"concat: dataset {number} ({view.place}) has windows or was mapped; concat first, then call "
                "window or map on the result"
            )
    sources = [view.source for view in views]
    place = "concat of " + ", ".join(dict.fromkeys(view.place for view in views))
    chained = ConcatSource(place, sources, common_schema(views))
    starts = np.cumsum([0, *(len(source) for source in sources[:-1])], dtype=np.int64)
    positions = np.concatenate([view.positions + start for view, start in zip(views, starts, strict=True)])
    both = Dataset[dict[str, Any]](chained, positions, views[0].columns)
    if all(view.borders is None for view in views):
        return both
    plain = (np.zeros(len(view.source), np.bool_) if view.borders is None else view.borders for view in views)
    return both.apart(np.ones(len(both), np.bool_), np.cumsum(np.concatenate([*plain])))


class ConcatSource(MixedSource):
    """The rows of several sources, one source after the other."""

    def __init__(self, place: str, parts: Sequence[RowSource], schema: Schema):
        super().__init__(place, parts, schema, parts[0].max_gap)
        if any(part.find_splits is not None for part in parts):
            self.find_splits = self._joined_splits

    def _joined_splits(self) -> SplitLabels:
        return SplitLabels.joined([labels_of(part) for part in self._parts])

    @property
    def max_gap(self) -> int | None:
        """
        Raises:
            UsageError: the parts have clocks of several rates.
        """
        gaps = {part.max_gap for part in self._parts}
        if len(gaps) > 1:
            listed = ", ".join(sorted("none" if gap is None else f"{gap / 1e9:g} s" for gap in gaps))
            raise UsageError(
                f"{self.place}: their clocks differ, and so do longest gaps ({listed}); pass one as max_gap="
            )
        return gaps.pop()

    @max_gap.setter
    def max_gap(self, _: int | None) -> None: ...

    @cached_property
    def stretches(self) -> Stretches:
        return Stretches.joined([part.stretches for part in self._parts], apart=True)


def common_schema(views: Sequence[Dataset[dict[str, Any]]], verb: str = "concat") -> Schema:
    """The types of the columns that all show.

    Args:
        verb: what is done with them, for messages.

    Raises:
        UsageError: they differ.
    """
    first = views[0]
    types: dict[str, ColumnType] = dict(first.schema.columns)
    sampled = set(first.schema.sampled)
    for number, view in enumerate(views[1:], 1):
        problems = []
        if view.source.has_stamps != first.source.has_stamps:
            problems.append(f"it has {'' if view.source.has_stamps else 'no '}log_ids and timestamps")
        problems += [f"it lacks {name}" for name in first.columns if name not in view.columns]
        problems += [f"it also has {name}" for name in view.columns if name not in first.columns]
        for name in types.keys() & view.schema.columns.keys():
            own = view.schema.columns[name]
            common = wider(types[name], own)
            if common is None or own.unit != types[name].unit:
                problems.append(f"its {name} is {_shown_type(own)} instead of {_shown_type(types[name])}")
            else:
                types[name] = common
        if problems:
            more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
            raise UsageError(
                f"{verb}: dataset {number} ({view.place}) has other columns than dataset 0 ({first.place}): "
                f"{'; '.join(sorted(problems)[:10])}{more}. Choose by select([…]) what all have alike"
            )
        sampled &= set(view.schema.sampled)
    return Schema(types, tuple(name for name in types if name in sampled))


def _shown_type(ctype: ColumnType) -> str:
    return f"{ctype} in {ctype.unit}" if ctype.unit else str(ctype)
