"""Claims of a manifest, checked against its units and itself without payload.

Here: totals, splits, keys, counts and assembled outputs of a version; its manifest's digest.
Elsewhere: units by their bytes (logloom.transforms.build.unit_checks), all checks together
(logloom.pipelines.verify.verify).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from logloom import __version__
from logloom.errors import DatasetError, LogloomError
from logloom.io.catalog.entries import Entry
from logloom.io.catalog.manifest import Manifest, digest_of_manifest, read_manifest
from logloom.io.catalog.manifest_digest import digest_file
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.catalog.version_files import all_versions, lost_manifest, version_file
from logloom.io.formats.interface import AssembledFormat
from logloom.io.formats.registry import format_named
from logloom.io.storage.store import Store
from logloom.recipe import Recipe
from logloom.recipe.logs import split_of
from logloom.text import counted
from logloom.transforms.build.job import Committed, is_key_of
from logloom.transforms.rows.accounts import Tally, dropped_of
from logloom.transforms.rows.row_splits import rows_by_split
from logloom.values import dataclass

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


def manifest_state(store: Store, number: int) -> tuple[str, list[Finding]]:
    """Whether a manifest, which its own digest doesn't refute, is confirmed by it or by the next version.

    Returns:
        "checked" or NOT_CHECKED; and what is wrong with it, and which manifests of other versions are lost.
    """
    checked = store.exists(digest_file(number))
    numbers = all_versions(store)
    findings = [Finding("", "", str(lost_manifest(store, lost))) for lost in numbers.lost]
    following = next((other for other in numbers.there if other > number), None)
    try:
        child = read_manifest(store, following) if following is not None else None
    except DatasetError:
        child = None  # verifying that version reports it
    if child is None or child.parent != number:
        return "checked" if checked else NOT_CHECKED, findings
    if child.parent_digest != digest_of_manifest(store, number):
        place = store.uri_of(version_file(number))
        message = f"{place}: not the manifest that version {child.version} was built upon, its bytes changed"
        findings.append(Finding("", "", message))
    return "checked", findings


def whole_logs(manifest: Manifest) -> tuple[Manifest, list[Finding]]:
    """A manifest of the logs whose pages are whole, and what is wrong with the others.

    Where one isn't, it claims no totals.
    """
    logs, problems = manifest.logs.whole()
    whole = replace(manifest, logs=logs, totals={}) if problems else manifest
    return whole, [Finding("", "", problem) for problem in problems]


class Claims:
    """What a version's records claim, held against the logs' units, one log after the other."""

    def __init__(self, store: Store, manifest: Manifest):
        self._store, self._manifest = store, manifest
        self._recipe: Recipe | None = None
        self._keys: _Keys | None = None
        self._waiting: list[LogRecord] = []  # until a log tells in which order outputs go into keys
        self._problem = ""
        if "convert" not in manifest.recipe:  # its splits are those of what it was converted from
            try:
                self._recipe = Recipe.model_validate(manifest.recipe)
            except (ValidationError, LogloomError) as error:
                self._problem = f"the manifest's recipe is none that this logloom reads: {error}"

    def check(self, record: LogRecord, units: Sequence[Entry] | None) -> Iterator[Finding]:
        """Says where a record contradicts the recipe, or its log's units.

        Args:
            units: of all outputs; None where they can't be read.
        """
        if record.status == LogStatus.dropped:  # by hand; whatever recipe follows, its record stays as it was
            return
        if self._recipe is not None:
            known = record.split, record.catalogue
            expected, whose = split_of(self._recipe, record.log_id, record.uris, *known), "its recipe"
            if record.duplicate_of:
                first = self._manifest.logs.find(
                    record.duplicate_of
                )  # dropped or purged since where it's None
                expected = record.split if first is None or not first.part else first.split
                whose = f"{record.duplicate_of}, of which it is a duplicate,"
            if record.split != expected:
                message = f"the manifest has it in split {record.split}, {whose} in {expected}"
                yield Finding(record.log_id, "", message)
        if self._keys is None and units:
            self._keys = _Keys(self._store, self._manifest, output_order(units))
        self._waiting.append(record)
        if self._keys is not None:
            self._keys.check(self._waiting)
            self._waiting.clear()
        if units is not None:
            yield from _check_log(self._manifest, record, units)

    def check_all(self, *, is_lost: bool) -> Iterator[Finding]:
        """Says where the manifest contradicts itself, once each log was checked.

        Args:
            is_lost: some records or units can't be read.
        """
        if self._problem:
            yield Finding("", "", self._problem)
        found = self._manifest.logs.totals
        for name, total in self._manifest.totals.items():
            if found.get(name, total) != total:
                yield Finding("", "", f"the manifest has {total} {name}, its logs add up to {found[name]}")
        for log_id in self._keys.wrong() if self._keys is not None else ():
            message = "its key isn't of this log: its URIs, content, split or the recipe changed"
            yield Finding(log_id, "", message)
        if not is_lost:
            yield from _check_assembled(self._manifest)


class _Keys:
    """Whether logs are those that their keys were made of, where this logloom makes the same keys."""

    def __init__(self, store: Store, manifest: Manifest, order: Sequence[str]):
        version = Committed.of(store, manifest)
        refers = any(getattr(options, "references", ()) for options in version.outputs.values())
        is_built = "convert" not in manifest.recipe and not refers
        self._is_known = is_built and sorted(order) == sorted(version.outputs)
        if self._is_known:
            version = replace(version, outputs={output: version.outputs[output] for output in order})
        self._version = version
        self._keyed = 0
        self._wrong: list[str] = []

    def check(self, records: Iterable[LogRecord]) -> None:
        version = self._version
        for record in records if self._is_known else ():
            named = record.log_id, record.content_id, record.uris, record.split
            key = version.log_key(*named, record.catalogue)
            if record.key:
                self._keyed += 1
                if not is_key_of(key, record.key, record.status, version.manifest.software):
                    self._wrong.append(record.log_id)

    def wrong(self) -> list[str]:
        """The logs whose keys are others."""
        # Another logloom may make other keys, and then of all logs alike.
        same = self._version.manifest.software.get("logloom") == __version__
        return self._wrong if same or len(self._wrong) < self._keyed else []


def output_order(units: Iterable[Entry]) -> list[str]:
    """The outputs in the order of the recipe, which JSON doesn't keep, but parts of logs do."""
    return list(dict.fromkeys(entry.output for entry in units))


def _check_log(manifest: Manifest, record: LogRecord, units: Sequence[Entry]) -> Iterator[Finding]:
    """Whether a log's partitions are end to end and hold what the manifest says."""
    if not record.part:
        if record.rows:
            yield Finding(
                record.log_id,
                "",
                f"the manifest has {counted(record.rows, 'row')}, but names no units of it",
            )
        return
    for output in manifest.outputs:
        parts = [entry for entry in units if entry.output == output]
        rows = sum(entry.rows for entry in parts)
        if rows != record.rows:
            yield Finding(
                record.log_id, "", f"{output}: {counted(rows, 'row')}, the manifest has {record.rows}"
            )
        for entry in parts:
            for name in ("log_id", "content_id"):
                if getattr(entry, name) != getattr(record, name):
                    yield Finding(record.log_id, entry.partition, f"{output}: its unit is of another {name}")
        for left, right in itertools.pairwise(parts):
            if left.stop != right.start:
                yield Finding(
                    record.log_id, right.partition, f"{output}: starts at {right.start}, not at {left.stop}"
                )
        if "convert" not in manifest.recipe:
            yield from _check_counts(record, output, parts)


def _check_counts(record: LogRecord, output: str, parts: Sequence[Entry]) -> Iterator[Finding]:
    """Whether what a log's partitions counted adds up to what the manifest says of it."""
    tallies = [Tally.from_json(entry.tally) for entry in parts]
    summed = {
        "rows": sum(tally.rows for tally in tallies),
        "planned": sum(tally.planned for tally in tallies),
        "dropped": dropped_of(tallies),
        "splits": rows_by_split(run for tally in tallies for run in tally.splits),
    }
    for name, found in summed.items():
        claimed = getattr(record, name)
        if found != (dict(claimed) if isinstance(claimed, Mapping) else claimed):
            yield Finding(record.log_id, "", f"{output}: counted {name} {found}, the manifest has {claimed}")
    listed = _num_refused(tallies)
    # A damaged log may have lost more than partitions can list; a whole one has lost nothing.
    is_whole = record.status in (LogStatus.whole, LogStatus.empty)
    if record.refused < listed or (is_whole and (record.refused or listed)):
        yield Finding(
            record.log_id,
            "",
            f"{output}: {counted(listed, 'message')} refused, the manifest has {record.refused} and the "
            f"status {record.status}",
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


def _check_assembled(manifest: Manifest) -> Iterator[Finding]:
    """Whether each output that is assembled is there for each split, with all rows of its logs."""
    outputs = [name for name in manifest.outputs if isinstance(format_named(name), AssembledFormat)]
    if not (outputs or manifest.assembled):
        return
    logs = manifest.logs.columns("split", "rows").group_by("split").aggregate([("rows", "sum")])
    there = dict(zip(logs["split"].to_pylist(), logs["rows_sum"].to_pylist(), strict=True))
    rows = {(output, split): count for output in outputs for split, count in there.items()}
    claimed = {(part.output, part.split): part.rows for part in manifest.assembled}
    for output, split in sorted(rows.keys() | claimed.keys()):
        found, expected = rows.get((output, split), 0), claimed.get((output, split), 0)
        if found != expected:
            yield Finding(
                "",
                "",
                f"{output} of split {split}: units contain {counted(found, 'row')}, the manifest has "
                f"{expected}",
            )
