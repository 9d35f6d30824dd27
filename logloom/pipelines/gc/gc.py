"""Garbage collection: removing what no version of a root needs.

The rules of retention choose the versions that stay. The others are noted as removed, and files that only
they name are removed once that note is older than the grace period: readers, builds upon such a version, and
tables elsewhere that begin to point into it, have that time to finish. Files that no version ever named are
removed once they are that old. Each batch is noted before it is checked a last time and removed (see
logloom.io.catalog.removal_notes), entries before files. Files that logloom didn't write are listed, and left.
Elsewhere: what versions need (logloom.io.catalog.artifacts), which versions stay (retention), removing old
files (logloom.pipelines.gc.removal), builds that reuse what gc may be about to remove
(logloom.transforms.build.reuse).
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.artifacts import Holdings, log_file_pattern
from logloom.io.catalog.commit_times import CommitTimes, is_clock_set
from logloom.io.catalog.entries import unit_folder, unit_names
from logloom.io.catalog.intervals import numbers_with
from logloom.io.catalog.manifest import as_laid_out, manifest_at, no_version_at, read_manifest
from logloom.io.catalog.pages import PAGES, page_file
from logloom.io.catalog.removal_notes import (
    IGNORED_TAGS,
    RETENTION,
    forget_removals,
    is_removed_for,
    mark_removed,
    removed_file,
    removing,
)
from logloom.io.catalog.removed_versions import keep_past
from logloom.io.catalog.tags import read_tags
from logloom.io.catalog.version_files import (
    all_versions,
    check_root,
    is_root_name,
    version_file,
    view_folder,
)
from logloom.io.formats.registry import referred_to
from logloom.io.storage.file_ages import FoundFile, changed_at, listed, now_of, remove_folder
from logloom.io.storage.store import TEMPORARY, Store
from logloom.io.storage.stored_files import UNITS
from logloom.pipelines.gc.areas import Aging, Area, area_folders, area_of
from logloom.pipelines.gc.removal import Collected, Removal
from logloom.pipelines.gc.retention import check_found, check_users, check_versions, kept_versions, view_users
from logloom.pipelines.status import builds
from logloom.pipelines.versions.rollback import missing_from
from logloom.pipelines.view import COPIED
from logloom.recipe import Keep
from logloom.text import human_seconds, human_time, some_of

GRACE_S = 7 * 86400.0
KEPT_RUNS = 30  # numbers of versions of which it is told what became of their builds
_BATCH = 10_000  # units that are noted together
_PAGE = re.compile(rf"{PAGES}/[0-9a-f]{{64}}\.parquet")
_OF_VERSIONS = re.compile(
    r"pages|purged|intervals|past|tags(-again)?|[0-9]{8}\.(json|blake3|removed|times\.json)"
)
_SCRATCH = re.compile(r"\.?.+-\d+-[0-9a-f]{8}(\.partial)?")


def collect_garbage(
    root: str,
    *,
    keep: Keep | None = None,
    grace_s: float = GRACE_S,
    kept_runs: int = KEPT_RUNS,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Collected:
    """Removes what no version of a root needs.

    Args:
        root: URI of the dataset's root.
        keep: which versions stay; None is `keep` of the newest version's recipe, or all.
        grace_s: seconds for which what no version names, or what was named by a removed one, stays.
        kept_runs: the outcomes of builds of so many of the newest numbers stay.
        dry_run: only tell.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        on_progress: called with how many units were looked at, of how many.

    Returns:
        Which versions stay, which were removed, and how many files and bytes of each kind.

    Raises:
        UsageError: no root; or the grace isn't longer than the longest build, which may count on what is old.
        DatasetError: the needs of a version are unknown, since something is damaged; nothing was removed.
        StorageError: a disk or an object store refused; run it again.
    """
    store = Store.at(root, storage_options)
    if not {"versions", UNITS, "runs"}.intersection(store.names()):
        raise no_version_at(store)
    check_root(store)  # a stranger's folder may have one of these names, too
    store = as_laid_out(store)
    now = time.time() if dry_run else now_of(store)
    notes = check_grace(store, grace_s, now)
    collection = _Collection(store, now, now - grace_s, dry_run, on_progress)
    collection.done.notes += notes
    collection.versions(keep)
    collection.units()
    collection.files()
    collection.areas(kept_runs)
    collection.scratch()
    collection.strangers()
    if not dry_run:
        forget_removals(store, now, grace_s)
    return collection.done


def check_grace(store: Store, grace_s: float, now: float) -> list[str]:
    """Check that the grace is longer than each build that the root records, or that runs.

    Returns:
        Notes on builds of unknown duration, since a clock was wrong.

    Raises:
        UsageError: it isn't longer.
    """
    notes = []
    for status in builds(store):
        if not status.started:
            continue
        heard = time.time() - max(status.heard, 0)
        ended = max(heard, status.ended) if status.is_over else now
        took = ended - status.started
        is_known = is_clock_set(status.started, ended) and is_clock_set(ended, now)
        if status.is_over and not is_known:
            times = [human_time(int(seconds) * 10**9) for seconds in (status.started, ended)]
            notes.append(
                f"the duration of the build of version {status.version} ({status.run}) is unknown: it began "
                f"{times[0]} and ended {times[1]}, so a clock was wrong"
            )
        elif took >= grace_s:
            what = "has been running for" if not status.is_over else "took"
            raise UsageError(
                f"{store.uri}: the build of version {status.version} ({status.run}) {what} "
                f"{human_seconds(took)}, and a grace of {human_seconds(grace_s)} isn't longer: a build may "
                "count on what is as old as itself. Give a longer --grace"
            )
    return notes


class _Collection(Removal):
    """A garbage collection on its way: which versions, units and files go."""

    def __init__(
        self, store: Store, now: float, cutoff: float, dry_run: bool, on_progress: Callable[[int, int], None]
    ):
        super().__init__(store, now, cutoff, dry_run)
        self._on_progress = on_progress
        self._expired: list[int] = []
        self._needed = Holdings.of(store, ())
        self._unsure: set[str] = set()  # outputs of which datasets elsewhere need nobody knows what

    # --- versions

    def versions(self, keep: Keep | None) -> None:
        """Takes versions out, and learns what the others need."""
        store, done = self._store, self.done
        numbers, before, lost = all_versions(store)
        check_found(store, lost)
        check_users(store)
        rule = keep
        if rule is None and numbers:
            setting = read_manifest(store, numbers[-1]).recipe.get("keep")
            rule = Keep.model_validate(setting) if setting else None
        tags = set(read_tags(store).values())
        if rule is None or rule.tags == "all":
            back = {number for number in tags.intersection(before) if self._bring_back(number)}
            numbers, before = sorted({*numbers, *back}), [number for number in before if number not in back]
        kept = kept_versions(self._times(numbers, rule), tags, rule)
        used = [number for number in numbers if number not in kept and view_users(store, number)]
        for number in used:
            done.notes.append(f"version {number} stays, since tables elsewhere point into its view")
        kept.update(used)
        ages = {number: changed_at(store, removed_file(number)) or self._now for number in before}
        waiting = [number for number in before if ages[number] >= self._cutoff]
        self._expired = [number for number in before if ages[number] < self._cutoff]
        # All that is there now, also of versions that go: their files stay as long as their notes are young,
        # but for those that another gc, whose grace was shorter, has removed.
        users = {form.name: form.users(store) for form in referred_to()}
        manifests, left = check_versions(store, numbers), check_versions(store, waiting, may_lack=True)
        folders = [folder for own in users.values() for folder in own.folders]
        self._needed = Holdings.of(store, manifests, folders, left)
        self._unsure = {output for output, own in users.items() if own.unknown}
        done.notes += [note for own in users.values() for note in own.unknown]
        for number in sorted(set(numbers) - kept):
            self._take_out(number, tags)
        done.kept = tuple(number for number in numbers if number not in done.removed)
        done.waiting = tuple(sorted([*waiting, *done.removed]))
        for number in self._expired:
            self._view(number)
        self._intervals({*numbers, *before})

    def _times(self, numbers: Sequence[int], rule: Keep | None) -> dict[int, float | None]:
        """When versions were committed, as far as that is recorded and a rule asks for it."""
        if rule is None or not rule.daily:
            return dict.fromkeys(numbers)
        found = CommitTimes.of(self._store, numbers, self._now)
        self.done.notes += [f"{problem}; the version stays" for problem in found.problems]
        if found.missing:
            self.done.notes.append(
                f"no commit time is recorded for some versions ({some_of(found.missing)}), so a rule of "
                "days keeps them; `--keep-last` alone goes by their numbers"
            )
        return dict.fromkeys(numbers) | dict(found.known)

    def _bring_back(self, number: int) -> bool:
        """Remove the note that a version with a tag is removed; return whether the version is there again.

        Such a note is that of a gc that was to ignore tags, which stays, or of one that was killed before it
        looked for new tags, as `_take_out` does. An old one is only renewed: another gc may have read it
        before the tag was given, and be removing files.
        """
        note = removed_file(number)
        if not self._store.exists(version_file(number)):
            return False  # somebody gave it up, since its manifest is lost
        if is_removed_for(self._store, number, IGNORED_TAGS):
            return False
        is_young = (changed_at(self._store, note) or self._now) >= self._cutoff
        if is_young and self._lacks_files(number):  # a copy made an old note young
            self.done.notes.append(
                f"version {number} has a tag, but was removed, and files of it are gone: it stays removed"
            )
            return False
        if self._dry:
            return is_young
        if is_young:
            self._store.remove(note)
            return True
        mark_removed(self._store, number, RETENTION)
        self.done.notes.append(
            f"version {number} has a tag, and a gc that was killed counted it as removed: run gc again to "
            "bring it back"
        )
        return False

    def _lacks_files(self, number: int) -> bool:
        """Whether something is gone that a version names, as far as no later one does, too."""
        return any(missing_from(self._store, manifest_at(self._store, number), read_manifest(self._store)))

    def _take_out(self, number: int, tags: Collection[int]) -> None:
        """Notes that a version is removed, unless it got a tag since those were read."""
        if not self._dry:
            mark_removed(self._store, number, IGNORED_TAGS if number in tags else RETENTION)
            if number in set(read_tags(self._store).values()).difference(tags):
                self._store.remove(removed_file(number))
                return
        self.done.removed += (number,)

    def _view(self, number: int) -> None:
        """Removes the view of a version that is no more."""
        folder = view_folder(number)
        if folder not in self._store.names():
            return
        if view_users(self._store, number):
            self.done.notes.append(
                f"{self._store.uri_of(folder)}: stays, since tables elsewhere point into it"
            )
            return
        files = list(listed(self._store, folder))
        # Its files are links to those of units, which count where they are removed.
        size = 0 if self._store.local is not None else sum(file.size for file in files)
        self._count("views", files, size)
        if not self._dry:
            remove_folder(self._store, folder, last=COPIED)

    def _intervals(self, numbers: Collection[int]) -> None:
        """Remove what was saved with versions that are no more."""
        for folder, number in numbers_with(self._store):
            if number not in numbers:
                self.done.unknown.append(folder)
            elif number in self._expired:
                self._count("intervals", list(listed(self._store, folder)))
                if not self._dry:
                    remove_folder(self._store, folder)

    # --- units

    def units(self) -> None:
        """Remove units, portions and assembled outputs that no version needs."""
        looked_at = 0
        for output in self._store.names(UNITS):
            if self._is_file(f"{UNITS}/{output}"):
                self.done.unknown.append(f"{UNITS}/{output}")
                continue
            names = unit_names(self._store, output, on_stranger=self.done.unknown.append)
            while batch := list(itertools.islice(names, _BATCH)):
                looked_at += len(batch)
                if output not in self._unsure:
                    self._units_of(output, batch)
                self._on_progress(looked_at, looked_at)

    def _units_of(self, output: str, names: Sequence[str]) -> None:
        found = itertools.compress(names, ~self._needed.has_units(output, names))
        unneeded = [unit_folder(output, name) for name in found]
        old = {folder: files for folder in unneeded if (files := self._old_files(folder))}
        if self._dry:
            for files in old.values():
                self._count("units", files)
        elif old:
            with removing(self._store, old, self._now - self._cutoff) as check:
                self._remove_units(list(old), check)

    # --- single files

    def files(self) -> None:
        """Remove files of the kinds that records name, and pages with records, that no version needs."""
        self._named("log parts", "logs", log_file_pattern())
        self._named("pages", PAGES, _PAGE, before=self._keep_past)

    def _named(
        self,
        kind: str,
        folder: str,
        pattern: re.Pattern[str],
        before: Callable[[Sequence[FoundFile]], None] = lambda files: None,
    ) -> None:
        """Remove files of a folder that no version names.

        Args:
            pattern: of their names; other files are reported.
            before: called with files that are about to be removed.
        """
        files = listed(self._store, folder)
        while batch := list(itertools.islice(files, _BATCH)):
            self.done.unknown += [file.name for file in batch if not pattern.fullmatch(file.name)]
            known = [file for file in batch if pattern.fullmatch(file.name)]
            is_needed = self._needed.has([file.name for file in known])
            unneeded = itertools.compress(known, ~is_needed)
            old = [file for file in unneeded if file.changed < self._cutoff]
            before(old)
            self._remove_single(kind, old)

    def _keep_past(self, files: Sequence[FoundFile]) -> None:
        """Save keys of the logs in pages that are about to be removed, for versions that are no more."""
        if self._dry or not files:
            return
        names = {file.name for file in files}
        for number in self._expired:
            for manifest in check_versions(self._store, [number], may_lack=True):
                logs = manifest.logs
                for page in logs.pages:
                    if (name := page_file(page, logs.folder)) in names:
                        names.discard(name)
                        with contextlib.suppress(DatasetError):  # it is damaged: nobody can tell any more
                            keep_past(self._store, page, logs.folder)

    # --- what no record names

    def areas(self, kept_runs: int) -> None:
        """Remove files of areas that are of no use any more."""
        versions = frozenset({*self.done.kept, *self.done.waiting})
        aging = Aging(self._needed, versions, max([*self.done.kept, 0]), kept_runs)
        for folder in area_folders():
            files = listed(self._store, folder)
            while batch := list(itertools.islice(files, _BATCH)):
                by_area: dict[Area | None, list[FoundFile]] = {}
                for file in batch:
                    by_area.setdefault(area_of(file.name), []).append(file)
                self.done.unknown += [file.name for file in by_area.pop(None, ())]
                for area, found in by_area.items():
                    assert area is not None
                    names = [file.name.removeprefix(f"{folder}/") for file in found]
                    gone = itertools.compress(found, area.expired(aging, names))
                    old = [file for file in gone if file.changed < self._cutoff]
                    self._remove_single(area.kind, old, within=folder)

    def scratch(self) -> None:
        """Removes unfinished work on a local disk."""
        if self._store.local is None:
            return
        if not self._dry:
            self._store.sweep()
        for name in self._store.names(TEMPORARY):
            folder = f"{TEMPORARY}/{name}"
            files = list(listed(self._store, folder))
            if not files and (changed := changed_at(self._store, folder)) is not None:
                files = [FoundFile(folder, 0, changed)]
            if not _SCRATCH.fullmatch(name):
                self.done.unknown.append(folder)
            elif all(file.changed < self._cutoff for file in files):
                self._count("scratch", files)
                if not self._dry:
                    self._remove_scratch(folder)

    def strangers(self) -> None:
        """List other files in the root."""
        unknown = [name for name in self._store.names() if not is_root_name(name)]
        unknown += [f"versions/{n}" for n in self._store.names("versions") if not _OF_VERSIONS.fullmatch(n)]
        unknown = [name for name in unknown if name not in area_folders()]
        self.done.unknown = sorted([*self.done.unknown, *unknown])
