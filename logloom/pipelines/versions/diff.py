"""Two versions side by side: their logs, rows, columns, outputs and recipes.

Here: `compare`, and values for differences. Versions share manifest pages with most of their log records,
which aren't read; the others are compared as columns. Elsewhere: pages (logloom.io.catalog.pages), printing
(logloom.cli.diff).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from logloom.errors import RecipeError
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.page_merge import SortedRows
from logloom.io.catalog.pages import LogStatus, table_of, total
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.row_counts import rows_by_split
from logloom.io.catalog.tombstones import Purged, digest_of_log
from logloom.io.storage.store import Store
from logloom.pipelines.stats.stats import StatisticsChanges
from logloom.recipe import Recipe
from logloom.recipe import yaml as recipe_yaml
from logloom.schema import ColumnType, Schema, dtype_to_json
from logloom.text import changed_numbers, human_number
from logloom.values import dataclass

# What is compared of a log that both have; its key differs by the recipe, too.
_COMPARED = (
    *("content_id", "uris", "split", "catalogue", "status", "planned", "rows", "refused", "units", "part"),
    "key",
)
_SHOWN = ("split", "status", "rows", "units")
Worded = tuple[str, str]  # what differs, and how
_TOTALS = ("logs", "rows", "ticks_planned", "refused", "skipped", "units")


_WORDS = {name: name for name in _COMPARED} | {
    "content_id": "content",
    "planned": "ticks_planned",
    "part": "data",
    "key": "recipe or content",
}


@dataclass(frozen=True)
class LogChanges:
    """Logs whose records differ between two versions.

    Attributes:
        counts: how many were "added", are "gone" and "changed".
        by_kind: how many of the changed ones differ in what.
        added, gone: log_ids of the first of them.
        changed: of the first of them log_id, in what they differ, and some of it before and after.
        splits: by split whose size differs, how many logs and how many rows it has more.
    """

    counts: Mapping[str, int]
    by_kind: Mapping[str, int]
    added: Sequence[str]
    gone: Sequence[str]
    changed: Sequence[Mapping[str, Any]]
    splits: Mapping[str, tuple[int, int]]

    @classmethod
    def between(cls, before: LogRecords, after: LogRecords, limit: int = 0) -> LogChanges:
        """Compares records, as many at a time as a page holds; pages that both have are not read.

        Args:
            limit: of logs that are named, of each kind.
        """
        counts, kinds = {"added": 0, "gone": 0, "changed": 0}, dict.fromkeys(_COMPARED, 0)
        added: list[str] = []
        gone: list[str] = []
        changed: list[Mapping[str, Any]] = []
        sizes: dict[str, dict[str, int]] = {}
        for old, new in _side_by_side(before, after):
            came, left, pairs, differs = _sorted_out(old, new)
            for sign, side in ((-1, old), (1, new)):
                for name, num_logs, num_rows in rows_by_split(side):
                    size = {"logs": sign * num_logs, "rows": sign * num_rows}
                    sizes[name] = total([sizes.get(name, {}), size])
            counts = total([counts, {"added": len(came), "gone": len(left), "changed": len(pairs[0])}])
            kinds = total([kinds, {name: int(mask.sum()) for name, mask in differs.items()}])
            added += came.slice(0, limit - len(added)).to_pylist()
            gone += left.slice(0, limit - len(gone)).to_pylist()
            changed += _described(*pairs, differs, limit - len(changed))
        by_kind = {_WORDS[k]: count for k, count in kinds.items() if count}
        splits = {
            name: (one["logs"], one["rows"]) for name, one in sorted(sizes.items()) if any(one.values())
        }
        return cls(counts, by_kind, added, gone, changed, splits)


def _side_by_side(before: LogRecords, after: LogRecords) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield rows of both sides between the same log_ids, except for shared pages."""
    shared = {page.digest for page in before.pages} & {page.digest for page in after.pages}
    both = [page for page in before.pages if page.digest in shared]
    names = ["log_id", *_COMPARED, "splits"]
    sides = [SortedRows(side.without(both).tables(*names)) for side in (before, after)]
    empty = table_of(()).select(names)
    while bounds := [side.last for side in sides if side.last is not None]:
        taken = [side.take(min(bounds), None) for side in sides]
        old, new = (empty if rows is None else rows.combine_chunks() for rows in taken)
        yield _not_dropped(old), _not_dropped(new)


def _not_dropped(rows: pa.Table) -> pa.Table:
    """Remove logs that are only recorded as dropped."""
    import pyarrow.compute as pc

    return rows.filter(pc.not_equal(rows["status"], LogStatus.dropped))


def _sorted_out(
    old: pa.Table, new: pa.Table
) -> tuple[pa.ChunkedArray, pa.ChunkedArray, tuple[pa.Table, pa.Table], dict[str, NDArray[np.bool_]]]:
    """log_ids that came and that left; the rows of both sides that differ, and by column which do in it."""
    import pyarrow.compute as pc

    found = pc.index_in(new["log_id"], value_set=old["log_id"].combine_chunks())
    came = new["log_id"].filter(pc.is_null(found))
    left = old["log_id"].filter(pc.invert(pc.is_in(old["log_id"], new["log_id"].combine_chunks())))
    new, old = new.filter(pc.is_valid(found)), old.take(found.drop_null())
    unequal = {name: _unequal(old[name], new[name]) for name in _COMPARED}
    unequal["key"] &= ~unequal["content_id"]  # the key of another content is another
    changed = np.logical_or.reduce(list(unequal.values()))
    rows = pa.array(changed)
    return came, left, (old.filter(rows), new.filter(rows)), {name: d[changed] for name, d in unequal.items()}


def _unequal(old: pa.ChunkedArray, new: pa.ChunkedArray) -> NDArray[np.bool_]:
    """(N,) where two columns differ; null equals null alone."""
    import pyarrow.compute as pc

    values = pc.fill_null(pc.not_equal(old, new), False).to_numpy()
    nulls = pc.not_equal(pc.is_null(old), pc.is_null(new)).to_numpy()
    either: NDArray[np.bool_] = np.logical_or(values, nulls)
    return either


def _described(
    old: pa.Table, new: pa.Table, differs: Mapping[str, NDArray[np.bool_]], limit: int
) -> Iterator[dict[str, Any]]:
    """The first of the rows that differ, for people and JSON."""
    before, after = (table.slice(0, limit).to_pylist() for table in (old, new))
    for row, (was, now) in enumerate(zip(before, after, strict=True)):
        pairs = {name: [was[name], now[name]] for name in _SHOWN if was[name] != now[name]}
        words = [_WORDS[name] for name, mask in differs.items() if mask[row]]
        yield {"log_id": now["log_id"], "differs": words, **pairs}


@dataclass(frozen=True)
class VersionComparison:
    """What differs between two versions.

    Attributes:
        names: of both, as ROOT@NUMBER.
        totals: by name, before and after; None where a version doesn't say.
        columns: by name, the type before and after; None if it doesn't exist.
        outputs: by name, the options before and after, or None.
        software: by package, the version before and after, or None.
        dependencies: code and files that rows depend on, the content or version before and after, or None.
        recipe: lines of a unified diff of the two recipes as YAML.
        statistics: what differs in them; None if unknown, as not both versions have some.
    """

    names: tuple[str, str]
    logs: LogChanges
    totals: Mapping[str, tuple[int | None, int | None]]
    columns: Mapping[str, tuple[str | None, str | None]]
    outputs: Mapping[str, tuple[Any, Any]]
    software: Mapping[str, tuple[str | None, str | None]]
    dependencies: Mapping[str, tuple[str | None, str | None]]
    recipe: Sequence[str]
    statistics: StatisticsChanges | None = None

    @property
    def is_same(self) -> bool:
        """Whether both have the same records of all logs, with the same meaning."""
        of_both = (self.columns, self.outputs, self.recipe, self.dependencies, *self.logs.counts.values())
        return not any(of_both)

    def statistics_in_words(self, arrow: str) -> tuple[list[Worded], list[Worded], list[Worded]]:
        """What differs in statistics: columns that are less available, wider ranges, and what else is more
        than counts that grew; each as (what, how).
        """
        if self.statistics is None:
            return [], [], []
        found = self.statistics
        units = {label: "ns" for label in found.numbers if label.endswith(".age")}
        availability = [
            (name, f"{_of_rows(*before)} {arrow} {_of_rows(*after)} rows")
            for name, (before, after) in found.availability.items()
        ]
        ranges = [
            (label, f" {arrow} ".join(_range(*ends, units.get(label, "")) for ends in both))
            for label, both in found.ranges.items()
        ]
        others = [
            (label, changed_numbers(changes, arrow, units.get(label, "")))
            for label, changes in found.numbers.items()
        ]
        return availability, ranges, [one for one in others if one[1]]

    def splits_in_words(self) -> list[Worded]:
        """How much larger or smaller each split is; nothing where there is one, as totals have that."""
        if len(self.logs.splits) == 1 and "all" in self.logs.splits:
            return []
        return [
            (name, f"{num_rows:+,} rows, {num_logs:+,} logs")
            for name, (num_logs, num_rows) in self.logs.splits.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """See docs/versions.md."""
        logs = {
            "counts": self.logs.counts,
            "changed_in": self.logs.by_kind,
            "added": self.logs.added,
            "gone": self.logs.gone,
            "changed": self.logs.changed,
            "splits": {name: {"logs": one[0], "rows": one[1]} for name, one in self.logs.splits.items()},
        }
        return {
            "before": self.names[0],
            "after": self.names[1],
            "same": self.is_same,
            "logs": logs,
            "totals": self.totals,
            "columns": self.columns,
            "outputs": self.outputs,
            "software": self.software,
            "dependencies": self.dependencies,
            "recipe": list(self.recipe),
            "statistics": None if self.statistics is None else self.statistics.numbers,
            "availability": None if self.statistics is None else self.statistics.availability,
            "ranges": None if self.statistics is None else self.statistics.ranges,
        }


def _of_rows(available: int, rows: int) -> str:
    return f"{available:,} of {rows:,}"


def _range(low: float, high: float, unit: str) -> str:
    return f"{human_number(low, unit)} to {human_number(high, unit)}"


def compare(names: tuple[str, str], before: Manifest, after: Manifest, limit: int = 0) -> VersionComparison:
    """Compares two versions, of one root or of two.

    Args:
        names: what to call the two versions.
        before: the manifest of the earlier one.
        after: that of the later one.
        limit: of logs that are named, of each kind.

    Returns:
        What differs: logs, totals, columns, outputs, software and the recipe.

    Raises:
        DatasetError: a page that not both have is missing or damaged.
    """
    columns = [Schema.from_json(manifest.schema).columns for manifest in (before, after)]
    types = [{name: _type_text(ctype) for name, ctype in one.items()} for one in columns]
    return VersionComparison(
        names,
        LogChanges.between(before.logs, after.logs, limit),
        _totals(before, after),
        _differing(*types),
        _differing(before.outputs, after.outputs),
        _differing(before.software, after.software),
        _differing(before.dependencies, after.dependencies),
        tuple(_recipe_lines(names, before, after)),
    )


def without_purged(
    compared: VersionComparison, store: Store, before: Manifest, after: Manifest
) -> VersionComparison:
    """A comparison whose purged logs have the names of their tombstones, which don't tell their own.

    Args:
        store: the root of both versions.
    """
    purged = Purged(store)

    def name(log_id: str) -> str:
        found = (manifest.logs.find(log_id) for manifest in (before, after))
        is_purged = any(record is not None and record.part in purged.parts for record in found)
        return f"purged:{digest_of_log(log_id)[:16]}" if is_purged else log_id

    if not purged.parts:
        return compared
    logs = compared.logs
    changed = [{**one, "log_id": name(one["log_id"])} for one in logs.changed]
    added, gone = ([*map(name, ids)] for ids in (logs.added, logs.gone))
    return replace(compared, logs=replace(logs, added=added, gone=gone, changed=changed))


def _type_text(ctype: ColumnType) -> str:
    fields = f" of {dtype_to_json(ctype.dtype)}" if ctype.dtype.names else ""
    return f"{ctype}{fields}{f', {ctype.unit}' if ctype.unit else ''}"


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = sorted({*before, *after})
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _totals(before: Manifest, after: Manifest) -> dict[str, tuple[int | None, int | None]]:
    sums = [manifest.counts for manifest in (before, after)]
    for manifest, totals in zip((before, after), sums, strict=True):
        outputs = len(manifest.outputs)
        if outputs:  # each output has a unit of each partition
            totals["partitions"] = totals["units"] // outputs
    return {name: (sums[0].get(name), sums[1].get(name)) for name in (*_TOTALS, "partitions")}


def recipe_text(manifest: Manifest) -> str:
    """A version's recipe as YAML, without what is default where this software can tell."""
    data = {key: value for key, value in manifest.recipe.items() if key != "order"}
    if "convert" not in data:
        try:
            return Recipe.model_validate(manifest.recipe).to_yaml()
        except RecipeError:  # of another version of logloom, or with a format that isn't installed
            pass
    return recipe_yaml.dump(data)


def _recipe_lines(names: tuple[str, str], before: Manifest, after: Manifest) -> Iterable[str]:
    old, new = (recipe_text(manifest).splitlines() for manifest in (before, after))
    return difflib.unified_diff(old, new, *names, n=1, lineterm="")
