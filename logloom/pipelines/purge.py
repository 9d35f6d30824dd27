"""Purging: erasing logs, or some time of logs, from all versions of a root, and proving that nothing is left.

The story: tombstones are written first, so that what goes is no hole and no build brings it back. Then go
the logs' units with their portions, assembled outputs that hold rows of them, views, what was listed and
indexed of logs, and what builds left in runs/; parts of logs last, since they say which units there were, so
that an interrupted purge is run again. Roots that point into this one lose their copies, too. Then all files
are looked through. Manifests and shards stay to the byte: a version still says that it had the log, by its
log_id and URIs.

Of a log of which only some time is erased all units go the same way: rows before and after it may hold
messages from then. The tombstone says which time; the next build makes the other rows again.
Elsewhere: tombstones (logloom.io.purged), which time that is (purge_rows), finding what is left
(purge_traces), what versions need (gc_needed).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.ages import FoundFile, listed, remove_files, remove_folder
from logloom.io.ahead import ahead
from logloom.io.entries import find_entry, unit_folder, unit_names
from logloom.io.filesystems import absolute_uri
from logloom.io.logs.match import size_of_files
from logloom.io.manifest import as_laid_out, resolve_version, version_file, version_numbers, view_folder
from logloom.io.purged import Tombstone, digest_of_log, write_tombstone
from logloom.io.removals import are_in
from logloom.io.storage import TEMPORARY, UNITS, Store
from logloom.pipelines.gc_needed import view_users
from logloom.pipelines.purge_found import Found
from logloom.pipelines.purge_rows import ErasedTime
from logloom.pipelines.purge_traces import Traces, files_of_assembled, find_left, spare_shared
from logloom.pipelines.status import builds
from logloom.pipelines.view import COPIED
from logloom.schema import TimeRanges


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
) -> PurgeReport:
    """Erases logs, or some time of logs, from all versions of a root.

    Args:
        logs: log_ids, or URIs or paths of any of their files.
        times: of logs, of which the rest is to stay; the next build makes it again.
        reason: stands in the tombstone, for whoever meets it.
        dry_run: only tell.
        on_progress: called with how many files were looked through at the end, of how many.

    Raises:
        UsageError: no version has, or had, such a log; a build runs; nothing was recorded at such a time, or
            the rest of a log can't be built again.
        DatasetError: what a version holds can't be told; nothing was removed.
        StorageError: a disk or an object store refused; run it again.
    """
    if not logs and not times:
        raise UsageError("nothing to erase: name logs, or times of logs")
    return _purge(Store.at(root, storage_options), logs, times, reason, dry_run, on_progress, set())


def _purge(
    store: Store,
    logs: Sequence[str],
    times: Sequence[ErasedTime],
    reason: str,
    dry_run: bool,
    on_progress: Callable[[int, int], None],
    seen: set[str],
) -> PurgeReport:
    """As `purge`.

    Args:
        seen: URIs of roots that are purged already, which may point into each other; takes this one.
    """
    store = as_laid_out(store)
    running = [status for status in builds(store) if not status.is_over]
    if running:
        raise UsageError(f"{store.uri}: a build runs (version {running[0].version}); purge once it has ended")
    is_first = not seen
    seen.add(store.uri)
    found = _found(store, logs, times) if is_first else Found(store, logs, times)
    # Roots that refer to this one have some of the logs.
    unknown = found.unknown if is_first or not found.records else []
    if unknown:
        resolve_version(store, "latest")
        words = ", ".join(unknown[:5])
        raise UsageError(f"{store.uri}: no version has {words}; `logloom diff` and `head` show log_ids")
    return _Purging(store, found, dry_run, seen).run(reason, on_progress)


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

    def __init__(self, store: Store, found: Found, dry_run: bool, seen: set[str]):
        self._store, self._found, self._dry, self._seen = store, found, dry_run, seen
        self._assembled = found.assembled()
        self._traces = Traces(store, found.every())
        self.done = PurgeReport(store.uri, dry_run, found.log_ids, found.ranges, found.num_rows())
        self.done.versions = sorted(found.records)

    def run(self, reason: str, on_progress: Callable[[int, int], None]) -> PurgeReport:
        found, store = self._found, self._store
        units, users = found.units(), found.users()
        self.done.units = len(units)
        self.done.left += found.copies()
        gone = [folder for _, own in self._assembled for folder in own]
        folders = [folder for entry in units for folder in entry.folders]
        if self._dry:
            for folder in [*gone, *folders]:
                self._count(list(listed(store, folder)))
            return self.done
        self._write_tombstones(gone, reason)
        self.done.others = [done for user in users if (done := self._in_user(user))]
        for part, own in self._assembled:
            starts = tuple(f"{folder}/" for folder in own)
            files = files_of_assembled(store, part)
            self._traces.remember(file for place, file in files if place.startswith(starts))
        for entry in units:
            self._traces.remember(entry.files)
        spare_shared(self._traces, store, found.manifests, found.parts, gone)
        for number in found.records:
            self._remove_view(number)
        for folder in [*gone, *folders]:
            self._remove_folder(folder)
        self._remove_unfinished()
        self._remove_notes()
        self._remove_single([f"logs/{part}.parquet" for part in found.parts])
        self._remove_single(found.files())
        if store.local is not None:
            os.sync()  # what is proven to be gone stays gone if the power fails
        self.done.names = found.named_in()
        identities = {entry.identity for entry in units}
        self.done.left += find_left(store, self._traces, identities, found.needed, on_progress)
        began = [status for status in builds(store) if not status.is_over]
        self.done.left += [f"a build of version {one.version} began meanwhile; purge again" for one in began]
        return self.done

    def _write_tombstones(self, folders: Iterable[str], reason: str) -> None:
        shared = tuple(sorted(set(folders)))
        for log_id in self._found.log_ids:
            own = self._found.of(log_id)
            contents = tuple(sorted({record.content_id for record in own if record.content_id}))
            parts = tuple(sorted({record.part for record in own if record.part}))
            stone = Tombstone(digest_of_log(log_id), (), parts, shared, reason)
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

    def _remove_single(self, names: Iterable[str]) -> None:
        there = [FoundFile(name, size, 0) for name in names if (size := self._store.size(name)) is not None]
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
        copies = [file.name for file in listed(self._store, folder) if self._traces.is_copy(file)]
        self._store.remove(f"{folder}/{COPIED}")
        self._remove_single(copies)

    def _remove_unfinished(self) -> None:
        """Removes what builds of these logs left that never committed: no build runs that may need it."""
        for output in self._store.names(UNITS):
            folders = [unit_folder(output, name) for name in unit_names(self._store, output)]
            for folder, is_needed in zip(folders, are_in(self._found.needed, folders), strict=True):
                if not is_needed and self._is_of_logs(output, folder):
                    self._remove_folder(folder)

    def _is_of_logs(self, output: str, folder: str) -> bool:
        """Whether a folder that no version names is of the logs, or unfinished, or holds what others gave."""
        try:
            entry = find_entry(self._store, output, folder.rpartition("/")[2])
        except DatasetError:
            return True  # assembled, or damaged: it is made again
        return entry is None or entry.log_id in self._found.log_ids

    def _remove_notes(self) -> None:
        """Removes what was indexed and listed of logs, and what tells of these in runs/ and tmp/."""
        store = self._store
        self._remove_single([file.name for file in listed(store, "index")])
        files = list(listed(store, "runs"))
        told = ahead(self._traces.is_named_in, files)
        passing = [file.name for file, names in zip(files, told, strict=True) if names or _is_record(file)]
        self._remove_single(passing)
        if store.local is not None:
            store.sweep()
        self._remove_single([file.name for file in listed(store, TEMPORARY)])

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
                        f"{uri}: a note says that it points into this root, but none of its versions names "
                        "it; purge it, too, if it holds the logs"
                    )
                    return done
                whole = [log_id for log_id in self._found.log_ids if log_id not in self._found.ranges]
                times = [
                    ErasedTime(log_id, *one) for log_id, own in self._found.ranges.items() for one in own
                ]
                return _purge(other, whole, times, "", False, lambda done, total: None, self._seen)
            done.left.append(f"{uri}: a table that points into what was erased; write it again without it")
        except UsageError as error:
            if "no version has" not in str(error):
                done.left.append(str(error))
        except LogloomError as error:
            done.left.append(f"{uri}: can't be looked at ({error}); purge it, too")
        return done


def _is_record(file: FoundFile) -> bool:
    """Whether it holds records of logs on their way to a commit."""
    return file.name.endswith(".parquet")
