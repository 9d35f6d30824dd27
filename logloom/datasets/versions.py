"""Rows of one output of a committed version.

Here: which sources make up an output, and the order (log_id, timestamp) over its splits.
Elsewhere: the sources themselves, what a manifest says (logloom.io.manifest).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import numpy as np

from logloom.datasets.picking import near
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.assembled import assembled_store
from logloom.io.checks import check_all, known_files, unit_files, with_check
from logloom.io.entries import Entry, read_log_part
from logloom.io.manifest import Manifest, view_folder
from logloom.io.shards import LogRecord
from logloom.io.sources import ChainedSource, ReaderSource, RowSource
from logloom.io.storage import Store
from logloom.io.stretches import Ints, Stretches
from logloom.io.units import AssembledFormat, Reader, by_preference, format_named, options_of
from logloom.schema import Schema

_THREADS = 16

Unit = tuple[LogRecord, Entry]


def open_version(
    store: Store,
    manifest: Manifest,
    output: str | None,
    splits: Sequence[str] | None,
    check: bool = False,
) -> tuple[RowSource, Ints]:
    """The rows of an output, and their positions ordered by (log_id, timestamp).

    Args:
        output: None for the one whose rows are quickest to reach.
        splits: None for all.
        check: whether to compare what is read with the digests that the version has.

    Raises:
        UsageError: there is no such output or split; names those there are.
        DatasetError: the manifest's parts are missing or damaged.
    """
    place = store.uri_of(view_folder(manifest.version))
    output = _chosen_output(manifest, output, place)
    known = sorted({log.split for log in manifest.logs if log.part} | set(_named_splits(manifest)))
    wanted = _chosen_splits(splits, known, place)
    logs = [log for log in manifest.logs if log.part and log.split in wanted]
    units = _units(store, logs)
    parts, order = _parts(store, manifest, output, units.get(output, []), check)
    schema = parts[0].schema if parts else Schema.from_json(manifest.schema)
    max_gap = max_gap_of(manifest)
    at_hand = format_named(output).has_stamps_at_hand
    timed_by = None if at_hand else _timed_by(store, manifest, units, check)
    return ChainedSource(f"{place}/{output}", parts, schema, max_gap, timed_by), order


def _timed_by(
    store: Store, manifest: Manifest, units: Mapping[str, Sequence[Unit]], check: bool
) -> tuple[RowSource, Ints] | None:
    """Another output that has the timestamps of the same rows at hand; in shards they lie between payload."""
    names = by_preference(name for name in units if format_named(name).has_stamps_at_hand)
    output = next(iter(names), None)
    if output is None:
        return None
    try:
        parts, order = _parts(store, manifest, output, units[output], check)
        return ChainedSource(store.uri_of(output), parts, parts[0].schema, None), order
    except LogloomError:  # it was removed, or is damaged
        return None


def max_gap_of(manifest: Manifest) -> int | None:
    """One and a half periods of the recipe's clock, ns; None where a topic is the clock."""
    rate = (manifest.recipe.get("clock") or {}).get("rate")  # what is converted has no recipe
    return None if rate is None else int(10**9 / Decimal(str(rate))) * 3 // 2


def _chosen_output(manifest: Manifest, output: str | None, place: str) -> str:
    readable = [name for name in manifest.outputs if format_named(name).has_rows]
    if output is None:
        if not readable:
            raise UsageError(f"{place}: no output with rows; {near('', manifest.outputs)}")
        return by_preference(readable)[0]
    if output not in readable:
        raise UsageError(f"{place}: no output {output!r}; {near(output, readable)}")
    return output


def _named_splits(manifest: Manifest) -> Iterable[str]:
    split = manifest.recipe.get("split")
    return [name for name in split if name != "by"] if isinstance(split, Mapping) else []


def _chosen_splits(splits: Sequence[str] | None, known: Sequence[str], place: str) -> Sequence[str]:
    if splits is None:
        return known
    for name in splits:
        if name not in known:
            raise UsageError(f"{place}: no split {name!r}; {near(name, known)}")
    return splits


def _units(store: Store, logs: Sequence[LogRecord]) -> dict[str, list[Unit]]:
    """The units that hold rows, in row order, by output."""
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = list(pool.map(lambda log: read_log_part(store, log.part), logs))
    units: dict[str, list[Unit]] = {}
    for log, entries in zip(logs, parts, strict=True):
        for entry in entries:
            if entry.rows:
                units.setdefault(entry.output, []).append((log, entry))
    return units


def _parts(
    store: Store, manifest: Manifest, output: str, units: Sequence[Unit], check: bool
) -> tuple[list[RowSource], Ints]:
    """The sources of an output, and the order of their rows by log."""
    opened = _whole_dataset(store, manifest, output, check)
    if opened is None:
        return _unit_sources(store, manifest, output, units, check), _counting(units)
    by_split = sorted(range(len(units)), key=lambda number: (units[number][0].split, number))
    groups = itertools.groupby([units[number] for number in by_split], key=lambda unit: unit[0].split)
    parts = [opened(split, _stretches(list(own))) for split, own in groups]
    # The sources lie split after split, while rows are shown in the order of `units`.
    counts = np.array([units[number][1].rows for number in by_split], np.int64)
    firsts = np.cumsum(counts) - counts
    spans = {number: (int(first), int(n)) for number, first, n in zip(by_split, firsts, counts, strict=True)}
    pieces = [np.arange(spans[n][0], sum(spans[n]), dtype=np.int64) for n in range(len(units))]
    return parts, np.concatenate([np.empty(0, np.int64), *pieces])


def _counting(units: Sequence[Unit]) -> Ints:
    return np.arange(sum(entry.rows for _, entry in units), dtype=np.int64)


def _stretches(units: Sequence[Unit]) -> Stretches:
    return Stretches(
        [log.log_id for log, _ in units],
        [entry.partition for _, entry in units],
        [log.split for log, _ in units],
        np.array([entry.rows for _, entry in units], np.int64),
    )


def _unit_sources(
    store: Store, manifest: Manifest, output: str, units: Sequence[Unit], check: bool
) -> list[RowSource]:
    schema = Schema.from_json(manifest.schema)
    options = options_of(store, manifest)[output]
    sources: list[RowSource] = []
    for log, entry in units:
        files = functools.partial(unit_files, store, entry)
        storage = with_check(store.options, files) if check else store.options
        folder = store.uri_of(entry.folder)
        opener = functools.partial(_open_unit, output, folder, schema, options, entry.unit, storage)
        sources.append(ReaderSource(folder, opener, _stretches([(log, entry)])))
    return sources


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
    if form.shows_units and (store.local is None or not store.path_of(view).is_dir()):
        return None

    def opened(split: str, told: Stretches) -> RowSource:
        if split not in parts:
            raise DatasetError(
                f"{store.uri}: version {manifest.version} names no {output} of split {split!r}: its manifest "
                "is damaged; `logloom verify` says how"
            )
        if form.shows_units:
            shown = f"{view}/{split}"
            return form.rows(Store.at(store.uri_of(shown), options(split, shown)), told=told)
        within = Store(store.uri, options(split))
        return form.rows(assembled_store(within, output, parts[split].identity), told=told)

    return opened


def _open_unit(
    output: str,
    folder: str,
    schema: Schema,
    options: Any,
    unit: Mapping[str, Any],
    storage_options: Mapping[str, Any],
) -> Reader:
    """The reader of a finished unit.

    Args:
        schema: of the recipe's columns; the output may hold fewer.
        unit: what its writer said on closing.
    """
    form = format_named(output)
    if not form.compares_files:
        check_all(storage_options)
    return form.reader(folder, schema, options, unit, storage_options=storage_options)
