"""What a manifest claims, held against the units that it names and against itself; no payload is read.

Here: totals, splits, keys, counts and assembled outputs of a version; its manifest's digest.
Elsewhere: units by their bytes (logloom.transforms.finished), all of it together (logloom.pipelines.verify).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from logloom import __version__
from logloom.errors import DatasetError, LogloomError
from logloom.io.entries import Entry
from logloom.io.manifest import (
    Manifest,
    digest_of_manifest,
    read_manifest,
    version_file,
    version_numbers,
)
from logloom.io.manifest_digest import digest_file
from logloom.io.shards import LogRecord
from logloom.io.storage import Store
from logloom.io.units import AssembledFormat, format_named
from logloom.recipe import Recipe
from logloom.recipe.logs import split_of
from logloom.transforms.finish import keys_of
from logloom.transforms.job import Committed
from logloom.transforms.tally import Tally
from logloom.words import counted

NOT_CHECKED = "not checked: it has no digest, as those made before logloom wrote one; the next build adds it"


@dataclass(frozen=True)
class Finding:
    """One thing found wrong: where, and what."""

    log_id: str
    partition: str
    message: str

    def __str__(self) -> str:
        place = " ".join(part for part in (self.log_id, self.partition) if part)
        return f"{place}: {self.message}" if place else self.message


Units = Mapping[tuple[str, str], Sequence[Entry]]  # of a log, in an output


def units_of(entries: Sequence[tuple[LogRecord, Entry]]) -> Units:
    """Units by (log_id, output), in span order."""
    units: dict[tuple[str, str], list[Entry]] = {}
    for record, entry in entries:
        units.setdefault((record.log_id, entry.output), []).append(entry)
    return units


def manifest_state(store: Store, number: int) -> tuple[str, list[Finding]]:
    """Whether a manifest, which its own digest doesn't refute, is confirmed by it or by the next version.

    Returns:
        "checked" or NOT_CHECKED; and what is wrong.
    """
    checked = store.exists(digest_file(number))
    following = next((other for other in version_numbers(store) if other > number), None)
    try:
        child = read_manifest(store, following) if following is not None else None
    except DatasetError:
        child = None  # verifying that version reports it
    if child is None or child.parent != number or not child.parent_digest:
        return "checked" if checked else NOT_CHECKED, []
    if child.parent_digest != digest_of_manifest(store, number):
        place = store.uri_of(version_file(number))
        message = f"{place}: not the manifest that version {child.version} was built upon, its bytes changed"
        return "checked", [Finding("", "", message)]
    return "checked", []


def whole_logs(manifest: Manifest) -> tuple[Manifest, list[Finding]]:
    """A manifest of the logs whose shards are whole, and what is wrong with the others.

    Where one isn't, it claims no totals.
    """
    logs, problems = manifest.logs.whole()
    whole = replace(manifest, logs=logs, totals={}) if problems else manifest
    return whole, [Finding("", "", problem) for problem in problems]


def check_claims(
    store: Store,
    manifest: Manifest,
    entries: Sequence[tuple[LogRecord, Entry]],
    lost: Collection[str] = (),
) -> Iterator[Finding]:
    """Says where a manifest contradicts itself or the units that it names.

    Args:
        lost: log_ids of the logs whose parts can't be read, so that `entries` lacks theirs.
    """
    units = units_of(entries)
    yield from _check_lists(manifest)
    yield from _check_splits(manifest)
    yield from _check_keys(store, manifest, output_order(entries))
    for record in manifest.logs:
        if record.log_id not in lost:
            yield from _check_log(manifest, record, units)
    if not lost:
        yield from _check_assembled(manifest, entries)


def output_order(entries: Sequence[tuple[LogRecord, Entry]]) -> list[str]:
    """The outputs in the order of the recipe, which JSON doesn't keep, but parts of logs do."""
    return list(dict.fromkeys(entry.output for _, entry in entries))


def _check_lists(manifest: Manifest) -> Iterator[Finding]:
    found = manifest.logs.totals
    for name, total in manifest.totals.items():
        if found.get(name, total) != total:
            yield Finding("", "", f"the manifest says {total} {name}, its logs add up to {found[name]}")
    for before, after in itertools.pairwise(manifest.logs.column("log_id").to_pylist()):
        if before >= after:
            yield Finding(after, "", f"stands after {before} in the manifest: twice, or out of order")


def _check_splits(manifest: Manifest) -> Iterator[Finding]:
    if "convert" in manifest.recipe:  # its splits are those of what it was converted from
        return
    try:
        recipe = Recipe.model_validate(manifest.recipe)
    except (ValidationError, LogloomError) as error:
        yield Finding("", "", f"the manifest's recipe is none that this logloom reads: {error}")
        return
    for record in manifest.logs:
        expected = split_of(recipe, record.log_id, record.uris)
        if record.split != expected:
            yield Finding(
                record.log_id, "", f"the manifest has it in split {record.split}, its recipe in {expected}"
            )


def _check_keys(store: Store, manifest: Manifest, order: Sequence[str]) -> Iterator[Finding]:
    """Whether logs are those that their keys were made of, where this logloom makes the same keys."""
    version = Committed.of(store, manifest)
    refers = any(getattr(options, "references", ()) for options in version.outputs.values())
    if "convert" in manifest.recipe or refers or sorted(order) != sorted(version.outputs):
        return
    version = replace(version, outputs={output: version.outputs[output] for output in order})
    keyed = [record for record in version.manifest.logs if record.key]
    wrong = []
    for record in keyed:
        key = version.log_key(record.log_id, record.content_id, record.uris, record.split)
        if record.key not in (keys_of(key, manifest.software) if record.status == "skipped" else (key,)):
            wrong.append(record)
    # Another logloom may make other keys, and then of all logs alike.
    if len(wrong) < len(keyed) or version.manifest.software.get("logloom") == __version__:
        for record in wrong:
            yield Finding(
                record.log_id,
                "",
                "its key isn't of this log: its URIs, content, split or the recipe changed",
            )


def _check_log(manifest: Manifest, record: LogRecord, units: Units) -> Iterator[Finding]:
    """Whether a log's partitions lie end to end and hold what the manifest says."""
    if not record.part:
        if record.rows:
            yield Finding(
                record.log_id,
                "",
                f"the manifest says {counted(record.rows, 'row')}, but names no units of it",
            )
        return
    for output in manifest.outputs:
        parts = units.get((record.log_id, output), [])
        rows = sum(entry.rows for entry in parts)
        if rows != record.rows:
            yield Finding(
                record.log_id, "", f"{output}: {counted(rows, 'row')}, the manifest says {record.rows}"
            )
        for entry in parts:
            for name in ("log_id", "content_id"):
                if getattr(entry, name) != getattr(record, name):
                    yield Finding(record.log_id, entry.partition, f"{output}: its unit is of another {name}")
        for left, right in itertools.pairwise(parts):
            if left.stop != right.start:
                yield Finding(
                    record.log_id,
                    right.partition,
                    f"{output}: starts at {right.start}, not at {left.stop}",
                )
        if "convert" not in manifest.recipe:
            yield from _check_counts(record, output, parts)


def _check_counts(record: LogRecord, output: str, parts: Sequence[Entry]) -> Iterator[Finding]:
    """Whether what a log's partitions counted adds up to what the manifest says of it."""
    tallies = [Tally.from_json(entry.tally) for entry in parts]
    dropped: dict[str, int] = {}
    for tally in tallies:
        for reason, count in tally.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    summed = {
        "rows": sum(tally.rows for tally in tallies),
        "planned": sum(tally.planned for tally in tallies),
        "dropped": dropped,
    }
    for name, found in summed.items():
        claimed = getattr(record, name)
        if found != (dict(claimed) if isinstance(claimed, Mapping) else claimed):
            yield Finding(record.log_id, "", f"{output}: counted {name} {found}, the manifest says {claimed}")
    listed = _num_refused(tallies)
    # A damaged log may have lost more than partitions can list; a whole one has lost nothing.
    is_whole = record.status in ("whole", "empty")
    if record.refused < listed or (is_whole and (record.refused or listed)):
        yield Finding(
            record.log_id,
            "",
            f"{output}: {counted(listed, 'message')} refused, the manifest says {record.refused} and that "
            f"the log is {record.status}",
        )


def _num_refused(tallies: Sequence[Tally]) -> int:
    """How many messages partitions list as refused, by the reader or by columns."""
    owned = {topic for tally in tallies for topic in tally.owned}
    lost = dict.fromkeys(refusal for tally in tallies for refusal in tally.lost)
    unusable = {
        (refusal.topic, refusal.position)
        for tally in tallies
        for column in tally.columns.values()
        for refusal in column.refused
    }
    return sum(refusal.num_messages for refusal in lost if refusal.topic in owned) + len(unusable)


def _check_assembled(manifest: Manifest, entries: Sequence[tuple[LogRecord, Entry]]) -> Iterator[Finding]:
    """Whether each output that is assembled is there for each split, with all its rows."""
    rows: dict[tuple[str, str], int] = {}
    for record, entry in entries:
        if entry.rows and isinstance(format_named(entry.output), AssembledFormat):
            key = (entry.output, record.split)
            rows[key] = rows.get(key, 0) + entry.rows
    claimed = {(part.output, part.split): part.rows for part in manifest.assembled}
    for output, split in sorted(rows.keys() | claimed.keys()):
        found, expected = rows.get((output, split), 0), claimed.get((output, split), 0)
        if found != expected:
            yield Finding(
                "",
                "",
                f"{output} of split {split}: units hold {counted(found, 'row')}, the manifest says "
                f"{expected}",
            )
