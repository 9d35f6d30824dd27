"""Statistics of a version's columns, as its builds counted them; of logs without any, by reading their rows.

Here: `column_statistics`, by split where asked; what differs between those of two versions.
Elsewhere: what statistics are (logloom.statistics), where a root keeps them (logloom.io.log_statistics).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logloom.errors import PurgedError, UsageError
from logloom.io.ahead import ahead
from logloom.io.entries import Entry, read_log_part
from logloom.io.log_statistics import read_statistics
from logloom.io.manifest import Manifest, open_root
from logloom.io.shards import LogRecord
from logloom.io.storage import Store
from logloom.io.units import by_preference
from logloom.pipelines.verify import Task, reading_of, run_tasks
from logloom.schema import Schema
from logloom.statistics.state import Statistics
from logloom.statistics.summary import summary
from logloom.transforms.counted import columns_held, count_unit
from logloom.transforms.reading_back import Reading

MAX_LOGS = 1000  # whose statistics are read to tell two versions apart
COMPARED = ("unavailable", "count", "min", "max", "mean")


@dataclass(frozen=True)
class VersionStatistics:
    """What is known of the columns of a version.

    Attributes:
        splits: that were counted.
        logs, rows: that were counted.
        read: how many of the logs had no statistics, so that their rows were read.
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
        return {
            "version": self.version,
            "splits": list(self.splits),
            "logs": self.logs,
            "rows": self.rows,
            "read": self.read,
            "columns": self.columns(),
        }


def column_statistics(
    root: str,
    version: int | str = "latest",
    *,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    every_value: bool = False,
    num_workers: int = 1,
    storage_options: Mapping[str, Any] | None = None,
) -> VersionStatistics:
    """The statistics of a version's columns.

    Args:
        split: None for all.
        columns: names or globs; None is every column.
        every_value: read all rows, and look at all of large values.
        num_workers: processes that read.

    Raises:
        UsageError: there is no such version, split or column.
        DatasetError: statistics, or rows that must be read, are missing or damaged.
    """
    store, manifest = open_root(Store.at(root, storage_options), version)
    return statistics_of(
        store, manifest, split=split, columns=columns, every_value=every_value, num_workers=num_workers
    )


def statistics_of(
    store: Store,
    manifest: Manifest,
    *,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    every_value: bool = False,
    num_workers: int = 1,
) -> VersionStatistics:
    """As `column_statistics`, of a version that is open."""
    schema = Schema.from_json(manifest.schema)
    chosen = schema.part(columns)
    splits = sorted(set(manifest.logs.column("split").to_pylist()))
    if split is not None and split not in splits:
        raise UsageError(f"{store.uri}: no split {split!r}; there are {', '.join(splits)}")
    shown = splits if split is None else [split]
    records = [one for one in manifest.logs.take(manifest.logs.where("split", shown)) if one.rows]
    known = [one for one in records if one.statistics and not every_value]
    unknown = [one for one in records if every_value or not one.statistics]

    def parts() -> Iterator[Statistics]:
        for found in ahead(lambda record: read_statistics(store, record), known):
            yield found.part(chosen.columns)
        yield from _by_reading(
            store, manifest, unknown, chosen, every_value=every_value, num_workers=num_workers
        )

    return VersionStatistics(
        manifest.version,
        tuple(shown),
        len(records),
        sum(record.rows for record in records),
        len(unknown),
        chosen,
        Statistics.merged(parts()),
    )


def known_columns(store: Store, manifest: Manifest) -> dict[str, dict[str, Any]] | None:
    """What builds counted of each column of a version; None where some log has no statistics or was purged,
    and where they are more than MAX_LOGS.
    """
    said = manifest.logs.columns("rows", "statistics").to_pydict()
    names = [name for name, rows in zip(said["statistics"], said["rows"], strict=True) if rows]
    if not all(names) or len(names) > MAX_LOGS:
        return None
    try:
        return statistics_of(store, manifest).columns()
    except PurgedError:
        return None


def changes_of(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, tuple[Any, Any]]]:
    """What differs in numbers that both have, before and after, by column, field and element.

    Args:
        before, after: see `VersionStatistics.columns`.
    """
    old, new = (
        {
            label: {"unavailable": said.get("unavailable"), **told} if label == name else told
            for name, said in columns.items()
            for label, told in ((name, {}), *elements(name, said))
        }
        for columns in (before, after)
    )
    found = {
        label: {
            key: (old[label].get(key), told.get(key))
            for key in COMPARED
            if told.get(key) != old[label].get(key)
        }
        for label, told in new.items()
        if label in old
    }
    return {label: changed for label, changed in found.items() if changed}


def elements(name: str, said: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is said of each element of a column, and of each length; lists are taken apart."""
    own = [(name, said), *((f"{name} {field}", one) for field, one in said.get("fields", {}).items())]
    own += [(f"{name} lengths", said["lengths"])] if "lengths" in said else []
    for label, one in own:
        counts = one.get("count")
        if isinstance(counts, list):
            yield from ((f"{label}[{number}]", _element(one, number)) for number in range(len(counts)))
        else:
            yield label, one


def _element(said: Mapping[str, Any], number: int) -> dict[str, Any]:
    nested = {key: _element(said[key], number) for key in ("quantiles", "distinct") if key in said}
    return {key: value[number] for key, value in said.items() if isinstance(value, list)} | nested


def _by_reading(
    store: Store,
    manifest: Manifest,
    records: Sequence[LogRecord],
    schema: Schema,
    *,
    every_value: bool,
    num_workers: int,
) -> Iterator[Statistics]:
    """The statistics of logs, counted as a build counts them."""
    if not records:
        return
    reading = reading_of(store, manifest)
    held = _columns_by_output(reading, schema)
    tasks = (
        Task(_count_unit, (reading, entry, schema.part(held[entry.output]), every_value))
        for record in records
        for entry in read_log_part(store, record.part, brief=True)
        if entry.rows and entry.output in held
    )
    for found in run_tasks(tasks, num_workers):
        yield from found


def _count_unit(reading: Reading, entry: Entry, schema: Schema, every_value: bool) -> Iterator[Statistics]:
    yield count_unit(reading, entry, schema, every_value=every_value)


def _columns_by_output(reading: Reading, schema: Schema) -> dict[str, list[str]]:
    """Which columns are read from which output: from as few as possible, each as it was written.

    Raises:
        UsageError: no output holds some column so.
    """
    left = dict.fromkeys(schema.columns)
    chosen: dict[str, list[str]] = {}
    for output in by_preference(reading.outputs):
        held = columns_held(reading, output)
        found = [name for name in left if name in held.columns]
        if found:
            chosen[output] = found
        left = {name: None for name in left if name not in found}
    if left:
        raise UsageError(
            f"{reading.store.uri}: no output holds column {', '.join(left)} as it was built, and some logs "
            "have no statistics; choose others with --columns, or build again into a new root"
        )
    return chosen
