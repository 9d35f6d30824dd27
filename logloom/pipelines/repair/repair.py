"""Repair a version: rebuild damaged or lost files, checked by recorded digests.

All files of the version are checked; lost parts of logs are written again from entries; damaged units are
built again from their logs, by the version's own recipe; outputs are assembled again from their units; views
that show an old file are updated. A file is put in place only if it has the original bytes.
Needs no Beam: runs the same functions as a build, in a pool of processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from logloom.cpus import available_cpus
from logloom.errors import DatasetError, LogloomError
from logloom.io.catalog.artifacts import LOG_FILES, PART, damaged_files
from logloom.io.catalog.assembled_outputs import assembled_files
from logloom.io.catalog.entries import Entry
from logloom.io.catalog.manifest import Assembled, Manifest, open_root, read_assembled, read_manifest
from logloom.io.catalog.manifest_digest import write_digest
from logloom.io.catalog.pages import LogRecord, LogStatus
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.tags import mend_tags
from logloom.io.catalog.tombstones import Purged
from logloom.io.catalog.version_files import version_file, version_numbers
from logloom.io.logs.opening import open_log
from logloom.io.storage.filesystems import with_access
from logloom.io.storage.store import Store
from logloom.pipelines.plan.next_version import new_run
from logloom.pipelines.plan.plan import resolved_references
from logloom.pipelines.repair.assembled_outputs import assemble_again
from logloom.pipelines.repair.units import (
    REBUILDING,
    DamagedLog,
    Mended,
    UnitDamage,
    damage_of,
    mend_entries,
    mend_statistics,
    mend_unit,
)
from logloom.pipelines.verify.against_logs import job_again
from logloom.pipelines.verify.claims import Finding, output_order, whole_logs
from logloom.pipelines.verify.verify import (
    Task,
    check_view,
    problems_beside,
    read_parts,
    reading_of,
    run_tasks,
)
from logloom.pipelines.view import mend_view
from logloom.recipe import Recipe
from logloom.recipe.logs import open_options
from logloom.transforms.build.job import Committed, LogJob
from logloom.transforms.build.run_note import Announced
from logloom.transforms.build.statistics_checks import unit_statistics_problem
from logloom.transforms.build.unit_checks import assembled_problems
from logloom.values import dataclass


@dataclass(frozen=True)
class Repair:
    """What a repair found and did.

    Attributes:
        units: that were checked.
        damaged: what was wrong.
        repaired: what was put back; of a dry run, none.
        unrepaired: what couldn't be, and why; of a dry run, none.
    """

    version: int
    units: int
    damaged: tuple[Finding, ...]
    repaired: tuple[Finding, ...] = ()
    unrepaired: tuple[Finding, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether the version now is as it was committed."""
        return not (self.unrepaired or (self.damaged and not self.repaired))


def repair(
    root: str,
    version: int | str = "latest",
    *,
    dry_run: bool = False,
    num_workers: int | None = None,
    py_files: Sequence[str] = (),
    allow_derive: Sequence[str] = (),
    logs: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Repair:
    """Finds what of a version is damaged or lost, and builds it again with the same bytes.

    Args:
        root: URI of the dataset's root.
        version: a number, a tag or "latest".
        dry_run: only find.
        num_workers: processes; None is one for each core.
        py_files: Python files with functions that columns are derived by.
        allow_derive: modules and packages that columns may be derived by; importing them runs their code.
        logs: URIs of the version's logs, with credentials that are to be used.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        on_progress: called with how many pieces are checked or built, of how many.

    Returns:
        What was damaged, what was repaired, and what couldn't be, with the reason.

    Raises:
        UsageError: there is no such version.
        DatasetError: the manifest can't be read, or doesn't match its digest: nothing else records what the
            version should hold.
    """
    store, manifest = open_root(Store.at(root, storage_options), version)
    access = with_access(store.options, logs)
    manifest, broken = whole_logs(manifest)
    with _announced(store, manifest) if not dry_run else contextlib.nullcontext():
        manifest = _without_purged(store, manifest)
        remake = functools.partial(
            job_again, store, manifest, py_files, allow_derive=allow_derive, access=access
        )
        mending = _Mending(store, manifest, num_workers or available_cpus(), remake, on_progress)
        return mending.run(dry_run, broken)


def _announced(store: Store, manifest: Manifest) -> Announced:
    """Announce a repair to `purge` and `gc`, before it looks for what was purged."""
    job = dataclasses.replace(Committed.of(store, manifest), run=new_run())
    return Announced(job, "repair", leaves_outcome=False)


def _without_purged(store: Store, manifest: Manifest) -> Manifest:
    """A version without what was erased from it, which no repair brings back."""
    purged = Purged(store)
    if not len(purged):
        return manifest
    left = [one for one in manifest.logs if not purged.has_files_of(one.log_id, one.content_id, one.part)]
    if len(left) == len(manifest.logs):
        return manifest
    assembled = (part for part in manifest.assembled if part.folder not in purged.folders)
    return dataclasses.replace(manifest, logs=LogRecords.of(left), assembled=tuple(assembled))


def _readable_entries(
    store: Store, logs: Iterable[LogRecord]
) -> tuple[list[tuple[LogRecord, Entry]], list[Finding]]:
    """The units of all logs whose parts can be read, and what is wrong with the other parts."""
    entries: list[tuple[LogRecord, Entry]] = []
    lost = []
    for record, found in read_parts(store, logs):
        if isinstance(found, Finding):
            lost.append(found)
        else:
            entries += [(record, entry) for entry in found]
    return entries, lost


class _Mending:
    """A repair on its way."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        num_workers: int,
        remake: Callable[[Iterable[LogRecord]], LogJob],
        on_progress: Callable[[int, int], None],
    ):
        self._store, self._manifest = store, manifest
        self._num_workers, self._remake, self._on_done = num_workers, remake, on_progress
        self._done: list[Mended] = []

    def run(self, dry_run: bool, broken: Sequence[Finding]) -> Repair:
        """Repair what is damaged, or list what would be done.

        Args:
            broken: pages of the manifest, which no repair can make; their logs are left alone.
        """
        store, manifest = self._store, self._manifest
        entries, lost = _readable_entries(store, manifest.logs)
        found = [*broken, *lost]
        self._done += [Mended("", "", *one.message.split(": ", 1)) for one in broken if not dry_run]
        if lost and not dry_run:
            names = {one.log_id for one in lost}
            parts = [(r, PART, n) for r in manifest.logs if r.log_id in names for n in LOG_FILES[PART].of(r)]
            self._mend_files(parts, entries)
            entries, _ = _readable_entries(store, manifest.logs)
        damaged = self._all([Task(damage_of, (store, *pair, not dry_run)) for pair in entries])
        found += [Finding(d.entry.log_id, d.entry.partition, text) for d in damaged for text in d.problems]
        if damaged and not dry_run:
            self._mend_units(damaged)
        for part in manifest.assembled:
            problems = list(assembled_problems(store, part))
            found += [Finding("", part.split, f"{part.output}: {text}") for text in problems]
            if problems and not dry_run:
                self._mend_assembled(part)
            elif not (problems or dry_run):
                entry = read_assembled(store, part)
                store.settle_names(name for name, _ in assembled_files(store, part.identity, entry))
        readable = not (broken or _readable_entries(store, manifest.logs)[1])
        # A link to a file that was damaged and is no more is found wrong only now.
        found += check_view(store, manifest) if readable and not self._done else ()
        is_converted = "convert" in manifest.recipe
        files = [f for r in manifest.logs for f in damaged_files(store, r, is_converted=is_converted)]
        found += [Finding(one.record.log_id, "", one.problem) for one in files]
        if files and not dry_run:
            self._mend_files([(one.record, one.kind, one.name) for one in files], entries)
        found += problems_beside(store, manifest.version)
        if not dry_run:
            self._done += [Mended("", "", store.uri_of(name)) for name in mend_tags(store)]
            left = problems_beside(store, manifest.version)
            self._done += [Mended("", "", *one.message.split(": ", 1)) for one in left]
            store.settle(["logs", "versions"])
            self._mend_views(readable)
            write_digest(store, manifest.version, store.read(version_file(manifest.version)))
        kept = tuple(found)
        return Repair(manifest.version, len(entries), kept, self._findings(False), self._findings(True))

    def _findings(self, failed: bool) -> tuple[Finding, ...]:
        chosen = [one for one in self._done if bool(one.why_not) == failed]
        return tuple(
            Finding(one.log_id, one.partition, f"{one.name}: {one.why_not}" if failed else one.name)
            for one in chosen
        )

    def _all(self, tasks: Sequence[Task]) -> list[Any]:
        results = []
        for done, result in enumerate(run_tasks(tasks, self._num_workers), 1):
            results += result
            self._on_done(done, len(tasks))
        return results

    # --- from the logs

    def _job(self, records: Sequence[LogRecord]) -> LogJob | str:
        """The version's job, resolved against as few logs as do; or why there is none."""
        store, manifest = self._store, self._manifest
        if source := manifest.recipe.get("convert"):
            return (
                f"version {manifest.version} was converted, not built from logs: convert "
                f"{source['from']} again, into a new root"
            )
        why = ""
        for chosen in (records, manifest.logs):
            there = [record for record in chosen if not self._why_closed(record)]
            try:
                job = self._remake(there)
                outputs, references = resolved_references(job.outputs, store.options)
                return dataclasses.replace(job, outputs=outputs, references=references)
            except LogloomError as error:
                why = str(error)
        return why

    def _why_closed(self, record: LogRecord) -> str:
        """Why a log can't be built from, "" where it can."""
        if record.status not in (LogStatus.whole, LogStatus.salvaged):
            return f"its log was gone when the version was built ({', '.join(record.uris)})"
        recipe = Recipe.model_validate(self._manifest.recipe)
        erased = Purged(self._store).redactions
        options = open_options(recipe, self._store.options, self._store.uri_of("index"), erased)
        try:
            content_id = open_log(record.uris, options, record.log_id).summary.content_id
        except LogloomError as error:
            return f"its log can't be read: {error}"
        same = content_id == record.content_id
        return "" if same else f"{record.uris[0]}: no longer the log that the version was built from"

    def _builders(self, records: Sequence[LogRecord]) -> dict[str, LogJob | str]:
        """For each log the job to build it with, or why it can't be built."""
        if "convert" in self._manifest.recipe:
            return dict.fromkeys((record.log_id for record in records), self._job(()))
        closed = {record.log_id: self._why_closed(record) for record in records}
        job = self._job([record for record in records if not closed[record.log_id]])
        return {log_id: why or job for log_id, why in closed.items()}

    def _mend_files(
        self, files: Sequence[tuple[LogRecord, str, str]], entries: Sequence[tuple[LogRecord, Entry]]
    ) -> None:
        """Rebuild single files of logs.

        Args:
            files: each the record that names it, its kind and its name.
            entries: the units that are known.
        """
        records = {record.log_id: record for record, _, _ in files}
        builders = functools.cache(lambda: self._builders(list(records.values())))
        outputs = output_order(entry for _, entry in entries)
        units: dict[str, list[Entry]] = {log_id: [] for log_id in records}
        for record, entry in entries:
            if record.log_id in units:
                units[record.log_id].append(entry)
        for record, kind, name in files:

            def builder(log_id: str = record.log_id) -> LogJob | str:
                return builders()[log_id]

            log = DamagedLog(self._store, record, units[record.log_id], outputs, builder)
            why = REBUILDING[kind](log, name)
            self._done.append(Mended(record.log_id, "", self._store.uri_of(name), why))

    def _mend_units(self, damaged: Sequence[UnitDamage]) -> None:
        made_by = self._made_all()
        for one in damaged:
            self._done += mend_entries(self._store, one, made_by)
        rest = [one for one in damaged if one.files]
        builders = self._builders(list({one.record.log_id: one.record for one in rest}.values()))
        tasks = [Task(mend_unit, (self._store, builders[d.record.log_id], d)) for d in rest]
        self._done += self._all(tasks)
        self._mend_unit_statistics(damaged)

    def _mend_unit_statistics(self, damaged: Sequence[UnitDamage]) -> None:
        """Puts statistics back into entries; those that were lost were written without them."""
        reading = reading_of(self._store, self._manifest)
        lost = [one for one in damaged if unit_statistics_problem(self._store, one.entry)]
        builders = self._builders(list({one.record.log_id: one.record for one in lost}.values()))
        tasks = [Task(mend_statistics, (reading, builders[one.record.log_id], one)) for one in lost]
        known = {one.name for one in self._done if not one.why_not}
        self._done += [one for one in self._all(tasks) if one.why_not or one.name not in known]

    def _made_all(self) -> Mapping[str, str]:
        """The software of all versions up to this one; none where they differ, or one can't be read."""
        numbers = [number for number in version_numbers(self._store) if number < self._manifest.version]
        try:
            others = [read_manifest(self._store, number).software for number in numbers]
        except DatasetError:
            return {}
        made_by = self._manifest.software
        return made_by if all(other == made_by for other in others) else {}

    # --- from units

    def _mend_assembled(self, part: Assembled) -> None:
        try:
            whys = assemble_again(self._store, self._manifest, part, self._all)
        except LogloomError as error:
            whys = {part.folder: str(error)}
        self._done += [Mended("", part.split, self._store.uri_of(name), why) for name, why in whys.items()]

    def _mend_views(self, readable: bool) -> None:
        store = self._store
        restored = {one.name for one in self._done if not one.why_not}
        numbers = version_numbers(store) if restored else [self._manifest.version] if readable else []
        for number in numbers:
            try:
                done = mend_view(store, read_manifest(store, number), restored)
            except (DatasetError, FileNotFoundError) as error:
                self._done.append(Mended("", "", f"the view of version {number}", str(error)))
            else:
                self._done += [Mended("", "", place) for place in done]
        failed = any(one.why_not for one in self._done)
        if readable and not failed:
            for left in check_view(store, self._manifest):
                self._done.append(Mended("", "", left.message, "remove it, `logloom view` makes views again"))
