"""Rows of one output of a committed version.

Here: which sources make up an output, the order (log_id, timestamp) over its splits, and `LogsSource`, which
finds the unit of a row. A log's list of units is read when the first of them is needed.
Elsewhere: parts of logs (logloom.io.catalog.entries); datasets that are assembled from units (each format's
own source); what a manifest says (logloom.io.catalog.manifest).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from logloom.caching import cached_property
from logloom.datasets.splits.labels import labels_of_logs
from logloom.datasets.statistics import counted_logs
from logloom.datasets.views.positions import array_of
from logloom.errors import DatasetError, LogloomError, PurgedError, UsageError
from logloom.io.catalog.assembled_outputs import assembled_store
from logloom.io.catalog.entries import Entry, LogUnits, read_log_part
from logloom.io.catalog.file_digests import known_files, unit_files
from logloom.io.catalog.intervals import read_intervals
from logloom.io.catalog.manifest import Manifest
from logloom.io.catalog.row_counts import row_split_names
from logloom.io.catalog.tombstones import Purged, check_purged
from logloom.io.catalog.version_files import view_folder
from logloom.io.formats.interface import AssembledFormat
from logloom.io.formats.registry import by_preference, format_named, options_of
from logloom.io.rows.chain import ChainedSource, grouped
from logloom.io.rows.log_ranges import Ints, Stretches
from logloom.io.rows.sources import RowSource, Share
from logloom.io.storage.known_files import check_all, with_check
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.parts import familiar_output
from logloom.query.where import may_hold, parse
from logloom.schema import Schema
from logloom.text import near_to
from logloom.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa


OrderedRows = tuple[RowSource, Ints | range]  # and their positions in the order in which they are shown


def open_version(
    store: Store,
    manifest: Manifest,
    output: str | None,
    splits: Sequence[str] | None,
    check: bool = False,
    where: str | None = None,
) -> OrderedRows:
    """The rows of an output, and their positions ordered by (log_id, timestamp).

    Args:
        output: None for the one whose rows are quickest to reach.
        splits: None for all.
        check: whether to compare what is read with the digests that the version has.
        where: a filter that rows have to pass later on; logs that were purged are left out where it holds for
            none of their rows.

    Raises:
        UsageError: there is no such output or split; names those there are.
        PurgedError: a dataset of a whole split was erased, since it held rows of a log that was purged.
        DatasetError: the version's list of logs is missing or damaged, or what is read to know the columns.
    """
    place = store.uri_of(view_folder(manifest.version))
    output = _chosen_output(manifest, output, place)
    logs, names = _logs_of(manifest, splits, place)
    if where is not None:
        logs = _without_purged(store, logs, where)
    source = functools.partial(_source, store, manifest, logs=logs, check=check)
    timed_by = None if format_named(output).has_stamps_at_hand else _timed_by(manifest, source)
    rows, order = source(output, max_gap=max_gap_of(manifest), timed_by=timed_by)
    rows.intervals = functools.partial(read_intervals, store, manifest.version)
    if format_named(output).keeps_columns:
        rows.counted = functools.partial(counted_logs, store, logs)
    if logs["splits"].null_count < len(logs):
        rows.find_splits = functools.partial(labels_of_logs, store, logs, output)
    if names is not None and rows.row_splits is not None:
        order = array_of(order)
        order = order[rows.row_splits.are_in(names)[order]]
    return rows, order


def _logs_of(
    manifest: Manifest, splits: Sequence[str] | None, place: str
) -> tuple[pa.Table, Sequence[str] | None]:
    """log_id, split, part, rows, statistics and splits of the logs of some splits that have rows; and the
    splits of single rows that are wanted, None where all rows of these logs are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    logs = manifest.logs.columns("log_id", "split", "part", "rows", "statistics", "splits")
    logs = logs.filter(pc.not_equal(logs["part"], ""))
    whole = set(logs["split"].unique().to_pylist())
    single = row_split_names(logs["splits"])
    wanted = None
    if splits is not None:
        known = sorted(whole | set(single) | set(manifest.split_names))
        for name in splits:
            if name not in known:
                raise UsageError(f"{place}: no split {name!r}{near_to(name, known)}")
        wanted = splits
        if not single or whole & set(wanted):  # the folder of a view, "all", holds all rows
            logs = logs.filter(pc.is_in(logs["split"], pa.array(wanted, pa.string())))
            wanted = None
    return logs.filter(pc.greater(logs["rows"], 0)).combine_chunks(), wanted


def _without_purged(store: Store, logs: pa.Table, where: str) -> pa.Table:
    """The logs but for those that were purged and for no row of which a filter can hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parsed = parse(where)
    if "log_id" not in parsed.columns or not (purged := _purged(store)):
        return logs
    are_purged = pc.is_in(logs["part"], pa.array(sorted(purged.parts), pa.string()))
    log_ids = logs["log_id"].filter(are_purged).to_pylist()
    gone = [log_id for log_id in log_ids if not may_hold(parsed.root, {"log_id": log_id})]
    return logs.filter(pc.invert(pc.is_in(logs["log_id"], pa.array(gone, pa.string()))))


def _purged(store: Store) -> Purged | None:
    """What was erased from a root; None where a tombstone is damaged: other rows can still be read."""
    try:
        return Purged(store)
    except DatasetError:
        return None


def _timed_by(manifest: Manifest, source: Callable[[str], OrderedRows]) -> OrderedRows | None:
    """Another output that has the timestamps of the same rows at hand; in shards they are between payload."""
    names = by_preference(manifest.outputs)
    output = next((name for name in names if format_named(name).has_stamps_at_hand), None)
    if output is None:
        return None
    try:
        return source(output)
    except LogloomError:  # it was removed, or is damaged
        return None


def max_gap_of(manifest: Manifest) -> int | None:
    """One and a half periods of the recipe's clock, ns; None where it has none."""
    return None if manifest.period is None else manifest.period * 3 // 2


def _chosen_output(manifest: Manifest, output: str | None, place: str) -> str:
    if output is not None and output in manifest.outputs:
        format_named(output)  # or the error of what no part offers
    readable = [name for name in by_preference(manifest.outputs) if format_named(name).has_rows]
    if output is None:
        if not readable:
            raise UsageError(f"{place}: no output with rows{near_to('', manifest.outputs)}")
        return readable[0]
    if output not in readable:
        own = familiar_output(output)
        hint = f"; here it is {own}" if own in readable else near_to(output, readable)
        raise UsageError(f"{place}: no output {output!r}{hint}")
    return output


def _source(
    store: Store,
    manifest: Manifest,
    output: str,
    *,
    logs: pa.Table,
    check: bool,
    max_gap: int | None = None,
    timed_by: OrderedRows | None = None,
) -> OrderedRows:
    """The rows of an output, and the order of their positions by log."""
    opened = _whole_dataset(store, manifest, output, check)
    if opened is None:
        schema, options = Schema.from_json(manifest.schema), options_of(store, manifest, [output])[output]
        opener = functools.partial(_unit_source, store, schema, options, check)
        held = format_named(output).columns_of(options, schema)
        units = LogsSource(store, manifest, output, logs, opener, held, max_gap, timed_by)
        return units, range(len(units))
    splits, own = np.unique(np.array(logs["split"].to_pylist(), str), return_inverse=True)
    known_rows = [stretches_of(store, logs.filter(own == number), output) for number in range(len(splits))]
    parts = [opened(split, rows) for split, rows in zip(splits.tolist(), known_rows, strict=True)]
    schema = parts[0].schema if parts else Schema.from_json(manifest.schema)
    place = f"{store.uri_of(view_folder(manifest.version))}/{output}"
    source = ChainedSource(place, parts, schema, max_gap, timed_by)
    return source, range(len(source)) if len(parts) < 2 else _by_log(logs["rows"].to_numpy(), own)


def _by_log(counts: Ints, splits: Ints) -> Ints:
    """Positions in the order of logs, of sources that are split after split.

    Args:
        counts, splits: (L,) rows of each log, and the number of its split.
    """
    order = np.argsort(splits, kind="stable")
    firsts = np.empty_like(counts)
    firsts[order] = np.cumsum(counts[order]) - counts[order]
    shown = np.cumsum(counts) - counts
    return np.repeat(firsts - shown, counts) + np.arange(counts.sum(), dtype=np.int64)


def _unit_source(store: Store, schema: Schema, options: Any, check: bool, entry: Entry) -> RowSource:
    """The rows of a finished unit.

    Args:
        schema: of the recipe's columns; the output may hold fewer.
    """
    files = functools.partial(unit_files, store, entry)
    storage = with_check(store.options, files) if check else store.options
    form = format_named(entry.output)
    if not form.compares_files:
        check_all(storage)
    folder = store.uri_of(entry.folder)
    return form.reader(folder, schema, options, entry.unit, storage_options=storage)


def _whole_dataset(
    store: Store, manifest: Manifest, output: str, check: bool
) -> Callable[[str, Stretches], RowSource] | None:
    """Opens the dataset of a split, for outputs that are put together into one; None for the others."""
    parts = {part.split: part for part in manifest.assembled if part.output == output}

    def options(split: str, shown: str | None = None) -> Mapping[str, Any]:
        if not check:
            return store.options
        return with_check(store.options, functools.partial(known_files, store, parts[split], shown))

    form = format_named(output)
    view = f"{view_folder(manifest.version)}/{output}"
    if not (isinstance(form, AssembledFormat) and form.reads_assembled):
        return None
    purged = _purged(store)
    is_whole = purged is None or all(part.folder not in purged.folders for part in parts.values())
    if form.shows_units and not (is_whole and store.local is not None and store.path_of(view).is_dir()):
        return None

    def opened(split: str, known_rows: Stretches) -> RowSource:
        if split not in parts:
            raise DatasetError(
                f"{store.uri}: version {manifest.version} names no {output} of split {split!r}: its manifest "
                "is damaged; `logloom verify` shows how"
            )
        if purged is not None and parts[split].folder in purged.folders:
            logs = manifest.logs.columns("log_id", "split", "part").to_pydict().values()
            held = zip(*logs, strict=True)
            names = [log_id for log_id, own, part in held if own == split and part in purged.parts]
            place = f"{store.uri}: {output} of split {split!r} in version {manifest.version}"
            check_purged(store, place, folder=parts[split].folder, logs=names)
        if form.shows_units:
            shown = f"{view}/{split}"
            return form.rows(Store.at(store.uri_of(shown), options(split, shown)), known=known_rows)
        within = replace(store, options=options(split))
        return form.rows(assembled_store(within, output, parts[split].identity), known=known_rows)

    return opened


_PARTS = 64 << 20  # bytes of parts of logs that are kept
_UNITS = 1 << 14  # units that are kept open, some kB each


class LogsSource(ChainedSource):
    """The units of an output, log after log; those used last stay open."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        output: str,
        logs: pa.Table,
        open_unit: Callable[[Entry], RowSource],
        schema: Schema | None,
        max_gap: int | None = None,
        timed_by: tuple[RowSource, Ints | range] | None = None,
    ):
        """Reads nothing, unless only units define the columns: then the first log's part and its first unit.

        Args:
            logs: log_id, split, part and rows (above 0) of each.
            open_unit: gives the rows of a unit; picklable.
            schema: of the rows; None where only a unit defines them.
        """
        self._store, self._output, self._logs, self._open_unit = store, output, logs, open_unit
        self._log_units: LruCache[_Units] = LruCache(_PARTS, least=1)
        self._open_units: LruCache[RowSource] = LruCache(_UNITS, size=_one)
        place = f"{store.uri_of(view_folder(manifest.version))}/{output}"
        super().__init__(place, (), schema or Schema.from_json(manifest.schema), max_gap, timed_by)
        if schema is None and len(logs):
            self._schema = self._unit(0, 0).schema

    @cached_property
    def stretches(self) -> Stretches:
        return stretches_of(self._store, self._logs, self._output)

    @cached_property
    def _bounds(self) -> Ints:
        return self.stretches.bounds

    def _every_part(self) -> Iterator[Callable[[], RowSource]]:
        for log, found in self._every_log():
            for number in range(len(found.numbers)):
                yield functools.partial(self._unit, log, number)

    def _groups(self, positions: Ints) -> list[tuple[RowSource, Ints, Ints]]:
        return [
            (self._unit(log, number), where[chosen], own)
            for log, where, rows in grouped(self._bounds, positions)
            for number, chosen, own in grouped(self._units_of(log).bounds, rows)
        ]

    def shares(self) -> Sequence[Share]:
        """See `RowSource.shares`: the units, with their sizes."""
        shares, first = list[Share](), 0
        logs = zip(self.stretches.log_ids, self._every_log(), strict=True)
        for log_id, (_, found) in logs:
            numbered: Counter[str] = Counter()
            for number in found.numbers.tolist():
                entry = found.part[number]
                rows = numbered[entry.partition], first, first + entry.rows
                shares.append(Share(None, entry.partition, log_id, *rows, entry.size))
                numbered[entry.partition] += entry.rows
                first += entry.rows
        return shares

    def _every_log(self) -> Iterator[tuple[int, _Units]]:
        return ahead(lambda log: (log, self._units_of(log)), range(len(self._logs)))

    def _units_of(self, log: int) -> _Units:
        """
        Raises:
            DatasetError: the log's part is missing or damaged, or has other rows than the manifest says.
        """
        found = self._log_units.get(log)
        if found is None:
            log_id, part, rows = (self._logs[name][log].as_py() for name in ("log_id", "part", "rows"))
            units = units_left(self._store, log_id, part)
            numbers, counts = units.with_rows(self._output, rows)
            found = _Units(units, numbers, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
            self._log_units.put(log, found)
        return found

    def _unit(self, log: int, number: int) -> RowSource:
        unit = self._open_units.get((log, number))
        if unit is None:
            found = self._units_of(log)
            unit = self._open_unit(found.part[int(found.numbers[number])])
            self._open_units.put((log, number), unit)
        return unit


@dataclass(frozen=True)
class _Units:
    """The units of a log in one output.

    Attributes:
        numbers: (U,) of those that hold rows, in the log's part.
        bounds: (U + 1,) where each begins, in rows of the log.
    """

    part: LogUnits
    numbers: Ints
    bounds: Ints

    @property
    def nbytes(self) -> int:
        return self.part.nbytes + 2 * self.bounds.nbytes


def _one(unit: RowSource) -> int:
    return 1


def units_left(store: Store, log_id: str, part: str) -> LogUnits:
    """Read which units a log has.

    Raises:
        PurgedError: they were erased; says by which filter the version is opened without them.
        DatasetError: its part is missing or damaged.
    """
    try:
        return read_log_part(store, part, brief=True)
    except PurgedError as error:
        raise PurgedError(f'{error}; or open this one with where="log_id != {log_id!r}"') from error


def stretches_of(store: Store, logs: pa.Table, output: str) -> Stretches:
    """The rows of logs; their partitions are looked up in the logs' parts when asked for.

    Args:
        logs: see `LogsSource`.
    """
    return Stretches(
        logs["log_id"].to_pylist(),
        [""] * len(logs),
        logs["split"].to_pylist(),
        logs["rows"].to_numpy(),
        find_partitions=functools.partial(_by_partition, store, logs, output),
    )


def _by_partition(store: Store, logs: pa.Table, output: str) -> Stretches:
    triples = zip(*(logs[name].to_pylist() for name in ("log_id", "part", "rows")), strict=True)
    found = list(ahead(lambda triple: _partitions_of(store, output, *triple), triples))
    lengths = [len(names) for names, _ in found]
    return Stretches(
        np.repeat(np.array(logs["log_id"].to_pylist(), object), lengths).tolist(),
        [name for names, _ in found for name in names],
        np.repeat(np.array(logs["split"].to_pylist(), object), lengths).tolist(),
        np.concatenate([np.empty(0, np.int64), *(rows for _, rows in found)]),
    )


def _partitions_of(store: Store, output: str, log_id: str, part: str, rows: int) -> tuple[list[str], Ints]:
    units = units_left(store, log_id, part)
    numbers, counts = units.with_rows(output, rows)
    return units.table["partition"].take(numbers).to_pylist(), counts
