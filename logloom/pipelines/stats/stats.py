"""Statistics of a version's columns, from its builds or by reading rows.

Here: `column_statistics`, by split where asked; what differs between those of two versions.
Elsewhere: reading rows (recount), what statistics are (logloom.statistics), where a root keeps them
(logloom.io.catalog.log_statistics).
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.errors import PurgedError, UsageError
from logloom.io.catalog.log_statistics import read_statistics_file
from logloom.io.catalog.manifest import Manifest, open_root
from logloom.io.catalog.row_counts import row_split_counts, row_split_names
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.pipelines.stats import totals
from logloom.pipelines.stats.recount import by_reading, splits_by_reading
from logloom.schema import Schema
from logloom.statistics.columns import Statistics
from logloom.statistics.summary import summary
from logloom.text import counted, near_to
from logloom.values import dataclass

MAX_LOGS = 1000  # whose statistics are read to tell two versions apart, unless more are asked for
COMPARED = ("unavailable", "count", "min", "max", "mean")
_MUCH_WIDER = 0.1  # of a range: values further beyond it matter


@dataclass(frozen=True)
class VersionStatistics:
    """What is known of the columns of a version.

    Attributes:
        splits: that were counted.
        logs, rows: that were counted.
        read: of how many logs the rows were read.
    """

    version: int
    splits: tuple[str, ...]
    logs: int
    rows: int
    read: int
    schema: Schema
    statistics: Statistics

    def columns(self) -> dict[str, dict[str, Any]]:
        """An object for each column (see `logloom.statistics.summary`)."""
        return summary(self.statistics, self.schema)

    def to_json(self) -> dict[str, Any]:
        """What `logloom stats --json` prints."""
        return {
            "version": self.version,
            "splits": list(self.splits),
            "logs": self.logs,
            "rows": self.rows,
            "read": self.read,
            "columns": self.columns(),
        }


@dataclass(frozen=True)
class StatisticsChanges:
    """What differs in the statistics of two versions; pairs are before and after.

    Attributes:
        numbers: that differ of those that both have, by column, field and element, and by what they are.
        availability: by column that is available in none of the rows any more, or in a share that is smaller
            by a tenth of all: the rows in which it is available, and all rows; the lowest share first.
        ranges: by column, field and element with values beyond its earlier range by more than a tenth of
            that: the least and the greatest; the furthest first, and ages after values.
    """

    numbers: Mapping[str, Mapping[str, tuple[Any, Any]]]
    availability: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[tuple[Any, Any], tuple[Any, Any]]] = field(default_factory=dict)


def column_statistics(
    root: str,
    version: int | str = "latest",
    *,
    split: str | None = None,
    logs: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    every_value: bool = False,
    num_workers: int = 1,
    storage_options: Mapping[str, Any] | None = None,
) -> VersionStatistics:
    """The statistics of a version's columns.

    Args:
        root: URI of the dataset's root.
        version: a number, a tag or "latest".
        split: None for all.
        logs: log_ids; None for all.
        columns: names or globs; None is every column.
        every_value: read all rows, and look at all of large values.
        num_workers: processes that read.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

    Returns:
        The statistics, merged over the logs; `columns()` gives them by column.

    Raises:
        UsageError: there is no such version, split, log or column.
        DatasetError: statistics, or rows that must be read, are missing or damaged.

    Examples:
        >>> speed = column_statistics("demo/dataset", columns=["ego.speed"]).columns()["ego.speed"]
        >>> speed["unit"], speed["unavailable"], speed["count"] == speed["rows"]
        ('m s-1', 0, True)
    """
    store, manifest = open_root(Store.at(root, storage_options), version)
    return statistics_of(
        store,
        manifest,
        split=split,
        logs=logs,
        columns=columns,
        every_value=every_value,
        num_workers=num_workers,
    )


def statistics_of(
    store: Store,
    manifest: Manifest,
    *,
    split: str | None = None,
    logs: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    every_value: bool = False,
    num_workers: int = 1,
) -> VersionStatistics:
    """As `column_statistics`, of a version that is open."""
    schema = Schema.from_json(manifest.schema)
    chosen = schema.part(columns)
    splits = totals.splits_of(manifest)
    if split is not None and split not in splits:
        of_rows = row_split_names(manifest.logs.column("splits"))
        if split not in of_rows:
            raise UsageError(f"{store.uri}: no split {split!r}{near_to(split, [*splits, *of_rows])}")
        if logs is not None:
            raise UsageError(f"{store.uri}: split {split!r} is one of rows; give a split, or logs")
        return row_split_statistics(
            store, manifest, [split], chosen, every_value=every_value, num_workers=num_workers
        )[split]
    shown = splits if split is None else [split]
    chosen_logs = {name: manifest.logs.where("split", [name]) for name in shown}
    if logs is not None:
        wanted = _positions_of(store, manifest, logs)
        outside = np.setdiff1d(wanted, np.concatenate([*chosen_logs.values()]))
        for one in manifest.logs.take(outside[:1]):
            raise UsageError(
                f"{store.uri}: log {one.log_id!r} is in split {one.split!r}, not in {split!r}; leave out "
                "one of both"
            )
        chosen_logs = {name: np.intersect1d(found, wanted) for name, found in chosen_logs.items()}
        chosen_logs = {name: found for name, found in chosen_logs.items() if len(found)}
        shown = list(chosen_logs)
    counted = [totals.Counted.at(manifest, found) for found in chosen_logs.values()]
    every = np.concatenate([np.empty(0, np.int64), *(chosen_logs.values() if every_value else ())])
    records = [one for one in manifest.logs.take(np.sort(every)) if one.rows]

    def parts() -> Iterator[Statistics]:
        for one in [] if every_value else counted:
            yield from _counted_by_builds(store, manifest.version, one.digests, schema, chosen, num_workers)
        yield from by_reading(
            store, manifest, records, chosen, every_value=every_value, num_workers=num_workers
        )

    return VersionStatistics(
        manifest.version,
        tuple(shown),
        sum(map(len, counted)),
        sum(one.rows for one in counted),
        len(records),
        chosen,
        Statistics.merged(parts()),
    )


def row_split_statistics(
    store: Store,
    manifest: Manifest,
    names: Sequence[str],
    columns: Schema,
    *,
    every_value: bool = False,
    num_workers: int = 1,
    max_bytes: int | None = None,
) -> dict[str, VersionStatistics]:
    """The statistics of splits that single rows are in.

    Rows are read, but for those of logs that are in one split with all their rows.

    Args:
        columns: that are counted.
        max_bytes: of what is read; None for any number.

    Returns:
        By split; nothing where more than `max_bytes` would be read.

    Raises:
        UsageError: rows must be read, and no output holds some column as it was built.
        DatasetError: statistics, or rows that must be read, are missing or damaged.
    """
    rows_of = {
        position: counts
        for position, counts in enumerate(row_split_counts(manifest.logs.column("splits")))
        if not counts.keys().isdisjoint(names)
    }
    whole = [position for position, counts in rows_of.items() if len(counts) == 1 and not every_value]
    read = sorted(rows_of.keys() - set(whole))
    records = list(manifest.logs.take(read))
    counted = splits_by_reading(
        store,
        manifest,
        records,
        columns,
        names,
        every_value=every_value,
        num_workers=num_workers,
        max_bytes=max_bytes,
    )
    schema = Schema.from_json(manifest.schema)

    def of_split(name: str, by_unit: Sequence[Statistics]) -> VersionStatistics:
        own = {position: counts[name] for position, counts in rows_of.items() if name in counts}
        unread = totals.Counted.at(manifest, sorted(own.keys() & set(whole))).digests
        parts = [*by_unit, *_counted_by_builds(store, manifest.version, unread, schema, columns, num_workers)]
        num_read, statistics = len(own.keys() & set(read)), Statistics.merged(parts)
        num_rows = sum(own.values())
        return VersionStatistics(manifest.version, (name,), len(own), num_rows, num_read, columns, statistics)

    return {} if counted is None else {name: of_split(name, counted[name]) for name in names}


def _positions_of(store: Store, manifest: Manifest, logs: Sequence[str]) -> NDArray[np.int64]:
    """Return the positions of logs in a version.

    Raises:
        UsageError: it lacks one of them.
    """
    known = manifest.logs.column("log_id").to_pylist()
    for log in logs:
        if log not in known:
            hint = near_to(log, known)
            raise UsageError(f"{store.uri}: version {manifest.version} has no log {log!r}{hint}")
    return manifest.logs.where("log_id", logs)


def _counted_by_builds(
    store: Store, version: int, logs: Sequence[totals.Names], schema: Schema, chosen: Schema, num_workers: int
) -> Iterator[Statistics]:
    """Return what builds counted of the logs of a split; kept for the next time if of all columns."""
    found = totals.read_merged(store, version, logs)
    if found is not None:
        yield found.part(chosen.columns)
    elif len(chosen.columns) < len(schema.columns):
        yield from totals.merged(store, logs, chosen.columns, num_workers)
    else:
        found = Statistics.merged(totals.merged(store, logs, None, num_workers))
        totals.write_merged(store, version, logs, found)
        yield found.part(chosen.columns)


def changed_statistics(
    stores: tuple[Store, Store], versions: tuple[Manifest, Manifest], most: int | None = MAX_LOGS
) -> StatisticsChanges | None:
    """What differs in the statistics of two versions (see `changes_of`).

    Files of logs of which both say the same are read once. Of versions with more logs than `most`, what
    builds have kept merged is read.

    Args:
        most: logs of a version, for whose statistics a file each is read.

    Returns:
        None if unknown: some log was purged, or there are more than `most`
        and one of the versions has nothing merged.

    Raises:
        DatasetError: statistics are missing or damaged.
    """
    before, after = (_counted(manifest, most) for manifest in versions)
    try:
        if before is None or after is None:
            old, new = (_kept(store, manifest) for store, manifest in zip(stores, versions, strict=True))
        else:
            shared = before & after if stores[0].uri == stores[1].uri else collections.Counter[totals.Names]()
            of_both = _brief(stores[0], shared)
            old, new = (
                Statistics.merged([of_both, _brief(store, own - shared)])
                for store, own in zip(stores, (before, after), strict=True)
            )
    except PurgedError:
        return None
    if old is None or new is None:
        return None
    schemas = (Schema.from_json(manifest.schema) for manifest in versions)
    return changes_of(*map(summary, (old, new), schemas))


def _kept(store: Store, manifest: Manifest) -> Statistics | None:
    """Of a version from what is merged of its splits; None where that isn't kept.

    Raises:
        DatasetError: those of a log of a small split, which are not merged, are missing or damaged.
    """
    splits = [totals.Counted.of(manifest, split) for split in totals.splits_of(manifest)]
    if not totals.has_merged(store, manifest):
        return None
    found = [
        totals.read_merged(store, manifest.version, logs.digests)
        or Statistics.merged(totals.merged(store, logs.digests))
        for logs in splits
    ]
    return Statistics.merged(found)


def _counted(manifest: Manifest, most: int | None) -> collections.Counter[totals.Names] | None:
    """The statistics of the logs that have rows; None where there are too many."""
    import pyarrow.compute as pc

    if most is not None:
        counts = (pc.sum(pc.greater(one["rows"], 0)).as_py() or 0 for one in manifest.logs.tables("rows"))
        if any(count > most for count in itertools.accumulate(counts)):  # of an archive it reads a page
            return None
    logs = manifest.logs.columns("rows", "statistics", "part")
    logs = logs.filter(pc.greater(logs["rows"], 0))
    return collections.Counter(zip(*(logs[key].to_pylist() for key in ("statistics", "part")), strict=True))


def _brief(store: Store, logs: collections.Counter[totals.Names]) -> Statistics:
    """How many values some logs have together, the least, the greatest and their sums."""
    return Statistics.merged(
        ahead(lambda names: read_statistics_file(store, *names, brief=True), logs.elements())
    )


def changes_of(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> StatisticsChanges:
    """What differs in statistics that both have.

    Args:
        before, after: see `VersionStatistics.columns`; also of brief statistics.
    """
    old, new = map(_by_element, (before, after))
    found = {
        label: {
            key: (old[label].get(key), numbers.get(key))
            for key in COMPARED
            if not (key == "unavailable" and label.endswith(".age"))  # the column has it
            and numbers.get(key) != old[label].get(key)
        }
        for label, numbers in new.items()
        if label in old
    }
    available = [{name: _available(stats) for name, stats in columns.items()} for columns in (before, after)]
    shared = [name for name in available[1] if name in available[0] and not name.endswith(".age")]
    less = {name: (available[0][name], available[1][name]) for name in shared}
    less = {name: both for name, both in less.items() if _is_much_less(*both)}
    wider = {label: _beyond(old[label], numbers) for label, numbers in new.items() if label in old}
    return StatisticsChanges(
        {label: changed for label, changed in found.items() if changed},
        dict(sorted(less.items(), key=lambda one: one[1][1][0] / one[1][1][1])),
        {
            label: tuple((one[label]["min"], one[label]["max"]) for one in (old, new))  # type: ignore[misc]
            for label in sorted(wider, key=lambda label: (label.endswith(".age"), -wider[label]))
            if wider[label] > _MUCH_WIDER
        },
    )


def _by_element(columns: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The numbers of each column, with how often it is unavailable, and of each of its elements."""
    return {
        label: {"unavailable": stats.get("unavailable"), **numbers} if label == name else numbers
        for name, stats in columns.items()
        for label, numbers in ((name, {}), *elements(name, stats))
    }


def _available(stats: Mapping[str, Any]) -> tuple[int, int]:
    """The rows in which a column is available, and all rows."""
    rows = stats.get("rows", 0)
    return rows - stats.get("unavailable", 0), rows


def _is_much_less(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Whether a share of rows fell to none, or by a tenth of all; not where a version has no rows."""
    fell, whole = before[0] * after[1] - after[0] * before[1], before[1] * after[1]
    return fell > 0 and (not after[0] or 10 * fell >= whole)


def _beyond(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """How far values are beyond the range before, in lengths of it; infinite if it had none."""
    if any(one.get(end) is None for one in (before, after) for end in ("min", "max")):
        return 0.0
    beyond = max(before["min"] - after["min"], after["max"] - before["max"])
    length = before["max"] - before["min"]
    return math.inf if beyond > 0 and not length else beyond / (length or 1)


def elements(name: str, stats: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is said of each element of a column, with its unit, and of each length; lists are taken apart."""
    own = [(name, stats), *((f"{name} {field}", one) for field, one in stats.get("fields", {}).items())]
    own += [(f"{name} lengths", stats["lengths"])] if "lengths" in stats else []
    own += [(f"{name} inner lengths", stats["inner_lengths"])] if "inner_lengths" in stats else []
    for label, one in own:
        counts = one.get("count")
        if isinstance(counts, list):
            names = one.get("names", ())
            each = len(counts) // len(names) if names and len(counts) % len(names) == 0 else 0
            for number in range(len(counts)):
                place = f"[{number}]"
                if each:  # by name, and by the place among the numbers of that name
                    place = f"[{names[number // each]}]" + (f"[{number % each}]" if each > 1 else "")
                elif len(counts) == 1:  # of all numbers together, or of the only one
                    place = ""
                yield f"{label}{place}", _element(one, number)
        else:
            yield label, one


def _element(stats: Mapping[str, Any], number: int) -> dict[str, Any]:
    nested = {key: _element(stats[key], number) for key in ("quantiles", "distinct") if key in stats}
    listed = {
        key: value[number] for key, value in stats.items() if isinstance(value, list) and key != "names"
    }
    return listed | nested | ({"unit": stats["unit"]} if "unit" in stats else {})


def sample_note(stats: Mapping[str, Any]) -> str:
    """What of a column's large values was not looked at, for people; "" where all was.

    >>> sample_note({"left_out": 2000}), sample_note({})
    ('a sample of each value; 2,000 positions not looked at', '')
    """
    left_out = stats.get("left_out", 0)
    return f"a sample of each value; {counted(left_out, 'position')} not looked at" if left_out else ""
