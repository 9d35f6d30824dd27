"""Purge logs or time ranges of them from all versions, and prove their erasure.

Tombstones are written first, so that missing data is not taken for damage, and no build adds it again. Then
the purge removes the logs' units with their portions, assembled outputs that contain rows of them, views,
indexes and listings of logs, and what builds left in runs/. Parts of logs are removed last, since they list
the units, so that an interrupted purge can be run again. Roots that point into this one lose their copies,
too. Finally all files are searched. Manifests and pages keep their bytes: a version still records that it
had the log, by its log_id and URIs.

If only a time range of a log is erased, all its units are removed in the same way: rows before and after the
range may use messages from it. The tombstone records the range; the next build makes the other rows again.
Elsewhere: tombstones (logloom.io.catalog.tombstones), time ranges (rows), finding what is left (proof), what
versions need (logloom.io.catalog.artifacts).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from logloom.errors import BesideError, DatasetError, LogloomError, UsageError
from logloom.io.catalog.artifacts import log_file_pattern
from logloom.io.catalog.entries import Entry, find_entry, unit_folder, unit_names
from logloom.io.catalog.intervals import (
    Intervals,
    intervals_file,
    intervals_of,
    read_intervals_file,
    write_intervals,
)
from logloom.io.catalog.manifest import as_laid_out, read_manifest
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.removal_notes import forget_removals, removing
from logloom.io.catalog.tombstones import Purged, Tombstone, digest_of_log, write_tombstone
from logloom.io.catalog.version_files import version_file, version_numbers, view_folder
from logloom.io.logs.match import size_of_files
from logloom.io.storage.file_ages import FoundFile, listed, remove_files, remove_folder
from logloom.io.storage.filesystems import absolute_uri
from logloom.io.storage.store import TEMPORARY, Store
from logloom.io.storage.stored_files import UNITS
from logloom.io.storage.threads import ahead
from logloom.pipelines.build.concurrent_builds import running_now
from logloom.pipelines.gc.areas import area_folders, area_of
from logloom.pipelines.gc.retention import view_users
from logloom.pipelines.plan.next_version import where_logs_are
from logloom.pipelines.purge.proof import Traces, files_of_assembled, find_left, log_ids_in, spare_shared
from logloom.pipelines.purge.rows import ErasedTime
from logloom.pipelines.purge.targets import Found
from logloom.pipelines.status import GOING_ON, BuildStatus, builds
from logloom.pipelines.view import COPIED
from logloom.schema import TimeRanges
from logloom.text import OnMessage, ignore_message, some_of
from logloom.transforms.build.run_note import NOTE_SUFFIX
from logloom.values import dataclass


@dataclass
class PurgeReport:
    """What a purge erased; of a dry run, would erase.

    Attributes:
        logs: log_ids.
        ranges: of those of which only some time goes, [start, stop) each in ns.
        rows: that go, of the newest version that has each log.
        versions: that held rows of them.
        units, files, bytes: that were removed.
        left: where something of the logs was still found, or may be; empty proves that all is gone.
        names: files of manifests that still name the logs.
        is_again: all that versions have of the logs was erased before.
        others: what was erased from roots that point into this one.
    """

    root: str
    dry_run: bool
    logs: list[str]
    ranges: dict[str, TimeRanges] = field(default_factory=dict)
    rows: int = 0
    versions: list[int] = field(default_factory=list)
    units: int = 0
    files: int = 0
    bytes: int = 0
    left: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    is_again: bool = False
    others: list[PurgeReport] = field(default_factory=list)

    @property
    def is_proven(self) -> bool:
        return not self.left and all(other.is_proven for other in self.others)


def purge(
    root: str,
    logs: Sequence[str] = (),
    times: Sequence[ErasedTime] = (),
    *,
    reason: str = "",
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    on_message: OnMessage = ignore_message,
) -> PurgeReport:
    """Erases logs, or some time of logs, from all versions of a root.

    Args:
        root: URI of the dataset's root.
        logs: log_ids, or URIs or paths of any of their files.
        times: of logs, of which the rest is to stay; the next build makes it again.
        reason: recorded in the tombstone, for people.
        dry_run: only tell.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        on_progress: called with how many files were looked through at the end, of how many.
        on_message: called with builds elsewhere that are watched for a sign of life, up to two minutes.

    Returns:
        What was erased, and whether anything of it may be left.

    Raises:
        BesideError: a build runs.
        UsageError: no version has, or had, such a log; nothing was recorded at such a time, or
            the rest of a log can't be built again.
        DatasetError: the content of a version is unknown; nothing was removed.
        StorageError: a disk or an object store refused; run it again.
    """
    if not logs and not times:
        raise UsageError("nothing to erase: name logs (--log LOG_ID), or times of logs (--rows LOG:FROM..TO)")
    store = Store.at(root, storage_options)
    return _purge(store, logs, times, reason, dry_run, on_progress, on_message, set())


def _purge(
    store: Store,
    logs: Sequence[str],
    times: Sequence[ErasedTime],
    reason: str,
    dry_run: bool,
    on_progress: Callable[[int, int], None],
    on_message: OnMessage,
    seen: set[str],
) -> PurgeReport:
    """As `purge`.

    Args:
        seen: URIs of roots that are purged already, which may point into each other; takes this one.
    """
    store = as_laid_out(store)

    def watched(one: BuildStatus) -> None:
        then = "waiting for its next sign of life, for it may have been killed"
        on_message(f"{store.uri}: a build may run: {one.in_words()}; {then}")

    if running := running_now(store, on_status=watched, states=GOING_ON):
        where = f"version {running[0].version}, process {running[0].pid} on {running[0].host}"
        raise BesideError(f"{store.uri}: a build runs ({where}); purge once it has ended")
    if not dry_run:
        forget_removals(store, 0.0)  # of a purge that was killed
    is_first = not seen
    seen.add(store.uri)
    found = _found(store, logs, times) if is_first else Found(store, logs, times)
    # Roots that refer to this one have some of the logs.
    unknown = found.unknown if is_first or not found.records else []
    if unknown:
        where = where_logs_are(store.uri, read_manifest(store).logs, unknown[0])
        words = some_of(map(repr, unknown))
        raise UsageError(f"{store.uri}: no version has {words}{where}")
    return _Purging(store, found, dry_run, seen, on_message).run(reason, on_progress)


def _found(store: Store, logs: Sequence[str], times: Sequence[ErasedTime]) -> Found:
    """What versions say of these; a name that no version knows may be a path from the working folder."""
    found = Found(store, logs, times)
    paths = {name: absolute_uri(name) for name in found.unknown}
    if not paths:
        return found
    meant = [paths.get(name, name) for name in logs]
    found = Found(store, meant, [replace(time, log=paths.get(time.log, time.log)) for time in times])
    found.unknown = [name for name, path in paths.items() if path in found.unknown]
    return found


class _Purging:
    """A purge on its way.

    Attributes:
        done: what became of it.
    """

    def __init__(self, store: Store, found: Found, dry_run: bool, seen: set[str], on_message: OnMessage):
        self._store, self._found, self._dry, self._seen = store, found, dry_run, seen
        self._on_message = on_message
        self._assembled = found.assembled()
        self._traces = Traces(store, found.every())
        self.done = PurgeReport(store.uri, dry_run, found.log_ids, found.ranges, found.num_rows())
        self.done.versions = sorted(found.records)
        self.done.is_again = bool(found.parts) and Purged(store).parts.issuperset(found.parts)

    def run(self, reason: str, on_progress: Callable[[int, int], None]) -> PurgeReport:
        found, store = self._found, self._store
        # Records of several versions may name the same units.
        units, users = list({entry.folder: entry for entry in found.units()}.values()), found.users()
        self.done.units = len(units)
        self.done.left += found.copies()
        gone = [folder for _, own in self._assembled for folder in own]
        folders = [folder for entry in units for folder in entry.folders]
        if not self._dry:
            self._write_tombstones(gone, reason)
        unfinished, files = self._unfinished()
        passing = self._passing()  # of builds that are over, if none is seen to run after this
        if self._dry:
            self.done.others = [done for user in users if (done := self._in_user(user))]
            self._foresee(units, gone, [*gone, *folders, *unfinished], [*files, *passing])
            return self.done
        # A build that counts on any of this is seen here, or sees the note right before its commit.
        with removing(store, [*gone, *folders, *unfinished, *files]):
            if begun := self._begun_meanwhile():
                self.done.left += begun
                return self.done
            self.done.others = [done for user in users if (done := self._in_user(user))]
            self._remember(units, gone)
            for number in found.records:
                self._remove_view(number)
            for folder in [*gone, *folders, *unfinished]:
                self._remove_folder(folder)
            self._remove_single(files)
            self._remove_notes(passing)
            self._remove_single(found.files())
            self._remove_single(_forget_intervals(store, found.records))
            if store.local is not None:
                os.sync()  # what is proven to be gone stays gone if the power fails
        return self._proven({entry.identity for entry in units}, on_progress)

    def _proven(self, identities: set[str], on_progress: Callable[[int, int], None]) -> PurgeReport:
        """Looks for what is left."""
        found, store = self._found, self._store
        self.done.names = found.named_in(self._traces)
        left = [file for file, _ in _mentioning(store, found.records)]
        self.done.left += [f"{store.uri_of(file)}: has intervals of a log that was erased" for file in left]
        self.done.left += find_left(store, self._traces, identities, found.needed, on_progress)
        self.done.left += self._begun_meanwhile()
        return self.done

    def _foresee(
        self, units: Sequence[Entry], gone: Sequence[str], folders: Sequence[str], names: Sequence[str]
    ) -> None:
        """Count what would be removed, as removing it does."""
        found, store = self._found, self._store
        singles = [*names, *found.files()]
        singles += [file for file, intervals in _mentioning(store, found.records) if intervals is None]
        if used := [number for number in found.records if view_users(store, number)]:
            self._remember(units, gone)
            singles += [name for number in used for name in self._copies_in(number)]
        files = [file for folder in dict.fromkeys(folders) for file in listed(store, folder)]
        self._count([*files, *self._there(dict.fromkeys(singles))])

    def _remember(self, units: Sequence[Entry], gone: Sequence[str]) -> None:
        """Takes traces of what goes, by which copies of it are found."""
        for part, own in self._assembled:
            starts = tuple(f"{folder}/" for folder in own)
            files = files_of_assembled(self._store, part)
            self._traces.remember(file for place, file in files if place.startswith(starts))
        for entry in units:
            self._traces.remember(entry.files)
        spare_shared(self._traces, self._store, self._found.manifests, self._found.parts, gone)

    def _write_tombstones(self, folders: Iterable[str], reason: str) -> None:
        shared = tuple(sorted(set(folders)))
        for log_id in self._found.log_ids:
            own = self._found.of(log_id)
            contents = tuple(sorted({record.content_id for record in own if record.content_id}))
            parts = tuple(sorted({record.part for record in own if record.part}))
            stone = Tombstone(digest_of_log(log_id), (), parts, shared, reason, (), (), ())
            if ranges := self._found.ranges.get(log_id):
                stone = replace(stone, ranges=ranges, redacted=contents)
            else:
                files = {record.uris for record in own if record.uris}
                sizes = [size_of_files(uris, self._store.options) for uris in files]
                known = tuple(sorted({size for size in sizes if size is not None}))
                stone = replace(stone, contents=contents, sizes=() if None in sizes else known)
            write_tombstone(self._store, stone)

    # --- removing

    def _count(self, files: Sequence[FoundFile]) -> None:
        self.done.files += len(files)
        self.done.bytes += sum(file.size for file in files)

    def _remove_folder(self, folder: str) -> None:
        files = list(listed(self._store, folder))
        self._count(files)
        remove_files(self._store, [file.name for file in files], within=folder)

    def _there(self, names: Iterable[str]) -> list[FoundFile]:
        return [FoundFile(name, size, 0) for name in names if (size := self._store.size(name)) is not None]

    def _remove_single(self, names: Iterable[str]) -> None:
        there = self._there(names)
        self._count(there)
        remove_files(self._store, [file.name for file in there])

    def _remove_view(self, number: int) -> None:
        folder = view_folder(number)
        if folder not in self._store.names():
            return
        if not view_users(self._store, number):
            remove_folder(self._store, folder, last=COPIED)
            return
        # Tables elsewhere point to rows of other logs in it.
        copies = self._copies_in(number)
        self._store.remove(f"{folder}/{COPIED}")
        self._remove_single(copies)

    def _copies_in(self, number: int) -> list[str]:
        """Files of a version's view that are copies of what goes."""
        return [file.name for file in listed(self._store, view_folder(number)) if self._traces.is_copy(file)]

    def _unfinished(self) -> tuple[list[str], list[str]]:
        """Folders of units and files of logs/ that no version names, and that may hold some of the logs."""
        folders = []
        for output in self._store.names(UNITS):
            names = list(unit_names(self._store, output))
            for name in itertools.compress(names, ~self._found.needed.has_units(output, names)):
                if self._is_of_logs(output, name):
                    folders.append(unit_folder(output, name))
        pattern = log_file_pattern()
        files = [file for file in listed(self._store, "logs") if pattern.fullmatch(file.name)]
        unneeded = itertools.compress(files, ~self._found.needed.has([file.name for file in files]))
        return folders, [file.name for file in unneeded if self._is_file_of_logs(file)]

    def _begun_meanwhile(self) -> list[str]:
        """List builds that began since this purge looked for them."""
        known = {manifest.version for manifest in self._found.manifests}
        began = [f"a build of version {one.version} began" for one in builds(self._store) if one.may_run]
        new = [number for number in version_numbers(self._store) if number not in known]
        made = [f"version {number} was made" for number in new]
        return [f"{what} meanwhile; purge again" for what in [*began, *made]]

    def _is_of_logs(self, output: str, identity: str) -> bool:
        """Whether a folder that no version names is of the logs, or unfinished, or holds what others gave."""
        try:
            entry = find_entry(self._store, output, identity)
        except DatasetError:
            return True  # assembled, or damaged: it is made again
        return entry is None or entry.log_id in self._found.log_ids

    def _is_file_of_logs(self, file: FoundFile) -> bool:
        """Whether a file of logs/ that no version names is of the logs, or damaged: it is made again."""
        if not file.name.endswith(".parquet"):
            return self._traces.is_named_in(file)
        if (data := self._store.read_if_there(file.name)) is None:
            return False
        found = log_ids_in(data)
        return not found or not found.isdisjoint(self._found.log_ids)

    def _passing(self) -> list[str]:
        """Files that no record names and that say something of the logs, or may."""
        store = self._store
        kinds = {file: area_of(file.name) for folder in area_folders() for file in listed(store, folder)}
        hidden = [file for file, area in kinds.items() if area and area.logs == "hidden"]
        plain = [file for file, area in kinds.items() if area is None or area.logs == "plain"]
        named = list(itertools.compress(plain, ahead(self._traces.is_named_in, plain)))
        # Without its outcome, a note seems to be of a build that runs, while the process that built lives.
        outcomes = {file.name.removesuffix(".json") for file in named}
        notes = [file for file in kinds if file.name.removesuffix(NOTE_SUFFIX) in outcomes]
        found = [*hidden, *named, *notes, *listed(store, TEMPORARY)]
        return list(dict.fromkeys(file.name for file in found))

    def _remove_notes(self, passing: Sequence[str]) -> None:
        self._remove_single(passing)
        if self._store.local is not None:
            self._store.sweep()

    # --- roots that point into this one

    def _in_user(self, uri: str) -> PurgeReport | None:
        """Erases the logs from a root that points into this one; None where that was done."""
        done = PurgeReport(uri, self._dry, self._found.log_ids)
        try:
            other = Store.at(uri, self._store.options)
            if other.uri in self._seen:
                return None
            if numbers := version_numbers(other):
                if not any(
                    self._store.uri.encode() in other.read(version_file(number)) for number in numbers
                ):
                    # A note is no proof: whoever wrote it could have any root erased.
                    done.left.append(
                        f"{uri}: a note claims that it points into this root, but none of its versions names "
                        "it; purge it, too, if it contains the logs"
                    )
                    return done
                whole = [log_id for log_id in self._found.log_ids if log_id not in self._found.ranges]
                times = [
                    ErasedTime(log_id, *one) for log_id, own in self._found.ranges.items() for one in own
                ]
                return _purge(
                    other, whole, times, "", self._dry, lambda *_: None, self._on_message, self._seen
                )
            erased = "would be erased; then write it again" if self._dry else "was erased; write it again"
            done.left.append(f"{uri}: a table that points into what {erased} without it")
        except UsageError as error:
            if "no version has" not in str(error):
                done.left.append(str(error))
        except LogloomError as error:
            done.left.append(f"{uri}: can't be looked at ({error}); purge it, too")
        return done


# --- intervals that were saved with versions ------------------------------------------------------------


def _forget_intervals(store: Store, records: Mapping[int, Sequence[LogRecord]]) -> list[str]:
    """Remove logs from intervals that were saved; give files that can't be read, which are to go.

    Args:
        records: of the logs, by version.
    """
    damaged = []
    for file, found in list(_mentioning(store, records)):
        if found is None:
            damaged.append(file)
            continue
        number, name = file.removesuffix(".parquet").split("/")[-2:]
        kept = found.without({record.log_id for record in records[int(number)]})
        write_intervals(store, int(number), name, kept, replace=True)
    return damaged


def _mentioning(
    store: Store, records: Mapping[int, Sequence[LogRecord]]
) -> Iterator[tuple[str, Intervals | None]]:
    """Files with intervals of the logs, and these; None for a file that can't be read."""
    for number, own in records.items():
        for name in intervals_of(store, number):
            file = intervals_file(number, name)
            try:
                found = read_intervals_file(store, file)
            except DatasetError:
                yield file, None
                continue
            if found.mentions({record.log_id for record in own}):
                yield file, found
