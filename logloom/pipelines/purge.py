"""Purging: erasing logs from all versions of a root, and proving by reading that nothing of them is left.

The story: tombstones are written first, so that what goes is no hole and no build brings it back. Then go
the logs' units with their portions, assembled outputs that hold rows of them, views, what was listed and
indexed of logs, and what builds left in runs/; parts of logs last, since they say which units there were, so
that an interrupted purge is run again. Roots that point into this one lose their copies, too. Then all files
are looked through. Manifests and shards stay to the byte: a version still says that it had the log, by its
log_id and URIs.
Elsewhere: tombstones (logloom.io.purged), what versions need (logloom.pipelines.gc_needed).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from blake3 import blake3

from logloom.errors import DatasetError, LogloomError, PurgedError, UsageError
from logloom.io.ages import FoundFile, listed, remove_files, remove_folder
from logloom.io.assembled import assembled_files
from logloom.io.entries import Entry, FileEntry, find_entry, read_log_part, unit_folder, unit_names
from logloom.io.log_statistics import statistics_file
from logloom.io.manifest import (
    Assembled,
    Manifest,
    all_versions,
    as_laid_out,
    manifest_at,
    read_assembled,
    resolve_version,
    version_file,
    version_numbers,
    view_folder,
)
from logloom.io.metadata import canonical, parsed
from logloom.io.purged import Purged, Tombstone, digest_of_log, write_tombstone
from logloom.io.remote import MISSING
from logloom.io.removals import are_in
from logloom.io.shards import LogRecord, shard_file
from logloom.io.storage import TEMPORARY, UNITS, Store
from logloom.io.tables.references import USERS
from logloom.pipelines.gc_needed import Needed, user_of, view_users
from logloom.pipelines.status import builds
from logloom.pipelines.view import COPIED

_SEARCHED = 64 << 20  # bytes of a file in runs/ or tmp/ that are looked through
_PIECE = 8 << 20
_TOLD = ("runs", "index", TEMPORARY)  # folders whose files tell of logs


@dataclass
class PurgeReport:
    """What a purge erased; of a dry run, would erase.

    Attributes:
        logs: log_ids.
        versions: that held rows of them.
        units, files, bytes: that were removed.
        left: where something of the logs was still found, or may be; empty proves that all is gone.
        names: files of manifests that still name the logs.
        others: what was erased from roots that point into this one.
    """

    root: str
    dry_run: bool
    logs: list[str]
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
    logs: Sequence[str],
    *,
    reason: str = "",
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> PurgeReport:
    """Erases logs from all versions of a root.

    Args:
        logs: log_ids, or URIs of any of their files.
        reason: stands in the tombstone, for whoever meets it.
        dry_run: only tell.
        on_progress: called with how many files were looked through at the end, of how many.

    Raises:
        UsageError: no version has, or had, such a log; or a build runs.
        DatasetError: what a version holds can't be told; nothing was removed.
        StorageError: a disk or an object store refused; run it again.
    """
    return _purge(Store.at(root, storage_options), logs, reason, dry_run, on_progress, set())


def _purge(
    store: Store,
    logs: Sequence[str],
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
    purging = _Purging(store, logs, dry_run, seen)
    # Roots that refer to this one have some of the logs.
    unknown = purging.unknown if is_first or not purging.found else []
    if unknown:
        resolve_version(store, "latest")
        words = ", ".join(unknown[:5])
        raise UsageError(f"{store.uri}: no version has {words}; `logloom diff` and `head` show log_ids")
    return purging.run(reason, on_progress)


class _Purging:
    """A purge on its way.

    Attributes:
        found: records of the logs, by version.
        unknown: those of the logs that no version has.
    """

    def __init__(self, store: Store, logs: Sequence[str], dry_run: bool, seen: set[str]):
        self._store, self._dry, self._seen = store, dry_run, seen
        self._as_it_lies = replace(store, fan_out=0)
        self._purged = Purged(store)
        wanted = set(logs)
        there, removed = all_versions(store)
        self._manifests = [manifest_at(store, number) for number in there]
        self._needed = Needed.by(store, self._manifests).names
        for number in removed:
            with contextlib.suppress(DatasetError):  # what is left of it is found as what no version names
                manifest = manifest_at(store, number)
                self._needed = np.union1d(self._needed, Needed.by(store, [manifest]).names)
                self._manifests.append(manifest)
        found = {manifest.version: list(_records(manifest, wanted)) for manifest in self._manifests}
        self.found = {number: own for number, own in found.items() if own}
        self._records = {record.part: record for own in self.found.values() for record in own}
        known = {name for own in self.found.values() for one in own for name in (one.log_id, *one.uris)}
        self.unknown = sorted(wanted - known)
        self._log_ids = sorted({record.log_id for record in self._records.values()})
        self.done = PurgeReport(store.uri, dry_run, self._log_ids, sorted(self.found))
        self._digests: dict[int, set[str]] = {}  # of erased files, by size
        texts = {*self._log_ids, *(uri for record in self._records.values() for uri in record.uris)}
        texts |= {record.content_id for record in self._records.values() if record.content_id}
        said = {form for text in texts for form in (text.encode(errors="surrogateescape"), _as_json(text))}
        # Whole words: a log may be called "a".
        self._telling = re.compile(rb"(?<![\w.-])(" + b"|".join(map(re.escape, said)) + rb")(?![\w.-])")

    def run(self, reason: str, on_progress: Callable[[int, int], None]) -> PurgeReport:
        units = list(self._units())
        assembled = self._assembled()
        users = self._users()
        if self._dry:
            folders = [folder for entry in units for folder in entry.folders]
            for folder in [*folders, *(f for _, own in assembled for f in own)]:
                self._count(list(listed(self._store, folder)))
            self.done.units = len(units)
            return self.done
        self._write_tombstones([folder for _, own in assembled for folder in own], reason)
        self.done.others = [done for user in users if (done := self._in_user(user))]
        for part, own in assembled:
            self._remember_assembled(part, own)
        for entry in units:
            self._remember(entry.files)
        self._spare_shared([folder for _, own in assembled for folder in own])
        for number in self.found:
            self._remove_view(number)
        for _, own in assembled:
            for folder in own:  # its own folder last: it lists the portions
                self._remove_folder(folder)
        for entry in units:
            for folder in entry.folders:
                self._remove_folder(folder)
        self.done.units = len(units)
        self._remove_unfinished()
        self._remove_notes()
        self._remove_single([f"logs/{part}.parquet" for part in self._records if part])
        self._remove_single([r.refusal_list for r in self._records.values() if r.refusal_list])
        self._remove_single([statistics_file(r) for r in self._records.values() if r.statistics])
        if self._store.local is not None:
            os.sync()  # what is proven to be gone stays gone if the power fails
        self._prove(units, on_progress)
        began = [status for status in builds(self._store) if not status.is_over]
        self.done.left += [f"a build of version {one.version} began meanwhile; purge again" for one in began]
        return self.done

    # --- what there is

    def _units(self) -> Iterator[Entry]:
        for part in sorted(filter(None, self._records)):
            try:
                yield from read_log_part(self._store, part)
            except PurgedError:
                continue  # by a purge that came to its end

    def _assembled(self) -> list[tuple[Assembled, list[str]]]:
        """Assembled outputs that hold rows of the logs, and the folders that only such outputs name."""
        touched, others = dict[str, Assembled](), dict[str, Assembled]()
        for manifest in self._manifests:
            splits = {record.split for record in self.found.get(manifest.version, ()) if record.rows}
            for part in manifest.assembled:
                (touched if part.split in splits else others)[f"{part.output}/{part.identity}"] = part
        kept = {folder for name, part in others.items() if name not in touched for folder in self._own(part)}
        return [(part, [f for f in self._own(part) if f not in kept]) for part in touched.values()]

    def _own(self, part: Assembled) -> list[str]:
        """The folders of an assembled output: its portions' and its own."""
        own = unit_folder(part.output, part.identity)
        try:
            portions = read_assembled(self._store, part).portions
        except PurgedError:
            return [own]
        return [*(unit_folder(part.output, portion.identity) for portion in portions), own]

    def _write_tombstones(self, folders: Iterable[str], reason: str) -> None:
        shared = tuple(sorted(set(folders)))
        for log_id in self._log_ids:
            own = [record for record in self._records.values() if record.log_id == log_id]
            contents = tuple(sorted({record.content_id for record in own}))
            parts = tuple(sorted({record.part for record in own if record.part}))
            write_tombstone(self._store, Tombstone(digest_of_log(log_id), contents, parts, shared, reason))

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
        copies = [file.name for file in listed(self._store, folder) if self._is_copy(file)]
        self._store.remove(f"{folder}/{COPIED}")
        self._remove_single(copies)

    def _remove_unfinished(self) -> None:
        """Removes what builds of these logs left that never committed: no build runs that may need it."""
        for output in self._store.names(UNITS):
            folders = [unit_folder(output, name) for name in unit_names(self._store, output)]
            for folder, is_needed in zip(folders, are_in(self._needed, folders), strict=True):
                if not is_needed and self._is_of_logs(output, folder):
                    self._remove_folder(folder)

    def _is_of_logs(self, output: str, folder: str) -> bool:
        """Whether a folder that no version names is of the logs, or unfinished, or holds what others gave."""
        try:
            entry = find_entry(self._store, output, folder.rpartition("/")[2])
        except DatasetError:
            return True  # assembled, or damaged: it is made again
        return entry is None or entry.log_id in self._log_ids

    def _remove_notes(self) -> None:
        """Removes what was indexed and listed of logs, and what tells of these in runs/ and tmp/."""
        store = self._store
        self._remove_single([file.name for file in listed(store, "index")])
        passing = [
            file.name for file in listed(store, "runs") if self._tells(file) or file.name[-8:] == ".parquet"
        ]
        self._remove_single(passing)
        if store.local is not None:
            store.sweep()
        self._remove_single([file.name for file in listed(store, TEMPORARY)])

    def _tells(self, file: FoundFile) -> bool:
        """Whether a file names one of the logs."""
        try:
            data = self._store.read_range(file.name, 0, _SEARCHED)
        except MISSING:
            return False
        return self._telling.search(data) is not None

    # --- roots that point into this one

    def _users(self) -> list[str]:
        """URIs of tables and roots that point into units or views of this root."""
        names = [f"{USERS}/{name}" for name in self._store.names(USERS)]
        for number in self.found:
            names += view_users(self._store, number)
        return sorted({user_of(self._store, name) for name in names})

    def _in_user(self, uri: str) -> PurgeReport | None:
        """Erases the logs from a root that points into this one; None where that was done."""
        done = PurgeReport(uri, self._dry, self._log_ids)
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
                return _purge(other, self._log_ids, "", False, lambda done, total: None, self._seen)
            done.left.append(f"{uri}: a table that points into what was erased; write it again without it")
        except UsageError as error:
            if "no version has" not in str(error):
                done.left.append(str(error))
        except LogloomError as error:
            done.left.append(f"{uri}: can't be looked at ({error}); purge it, too")
        return done

    # --- the proof

    def _remember(self, files: Iterable[FileEntry]) -> None:
        """Notes which bytes must not be found any more."""
        for file in files:
            if file.size:
                self._digests.setdefault(file.size, set()).add(file.digest)

    def _spare_shared(self, gone: Sequence[str]) -> None:
        """Forgets bytes that other logs have given too, such as the same metadata: these stay."""
        starts = tuple(f"{folder}/" for folder in gone)
        records = (record for manifest in self._manifests for record in manifest.logs)
        logs = {record.part for record in records if record.part} - self._records.keys()
        for name in sorted(logs):
            with contextlib.suppress(DatasetError):  # a lost part is for `repair`
                self._spare(file for entry in read_log_part(self._store, name) for file in entry.files)
        # Versions share what they have in common.
        for part in dict.fromkeys(part for manifest in self._manifests for part in manifest.assembled):
            with contextlib.suppress(DatasetError):
                files = assembled_files(self._store, part.identity, read_assembled(self._store, part))
                self._spare(file for place, file in files if not place.startswith(starts))

    def _spare(self, files: Iterable[FileEntry]) -> None:
        for file in files:
            self._digests.get(file.size, set()).discard(file.digest)

    def _remember_assembled(self, part: Assembled, folders: Sequence[str]) -> None:
        with contextlib.suppress(DatasetError):  # what is missing can't be found, either
            files = assembled_files(self._store, part.identity, read_assembled(self._store, part))
            starts = tuple(f"{folder}/" for folder in folders)
            self._remember(file for place, file in files if place.startswith(starts))

    def _prove(self, units: Sequence[Entry], on_progress: Callable[[int, int], None]) -> None:
        """Looks through all files: for names of the logs, for their units, and for copies of their files."""
        gone = {entry.identity for entry in units}
        for manifest in self._manifests:
            shards = [shard for shard in manifest.logs.shards if shard.digest]
            inside = (s for s in shards if any(s.first <= log_id <= s.last for log_id in self._log_ids))
            self.done.names += [shard_file(shard) for shard in inside]
        self.done.names = sorted(set(self.done.names))
        files = [file for name in self._store.names() for file in listed(self._as_it_lies, name)]
        for number, file in enumerate(files, 1):
            if file.name.startswith("versions/"):
                continue
            if gone.intersection(file.name.split("/")):
                self.done.left.append(f"{self._store.uri_of(file.name)}: of a unit that was to go")
            elif not self._is_needed(file) and self._is_copy(file):
                self.done.left.append(f"{self._store.uri_of(file.name)}: a copy of a file that was erased")
            elif file.name.split("/")[0] in _TOLD and self._tells(file):
                self.done.left.append(f"{self._store.uri_of(file.name)}: names a log that was erased")
            on_progress(number, len(files))

    def _is_needed(self, file: FoundFile) -> bool:
        """Whether it is of a unit that a version names; another log may have given the same bytes."""
        within, *steps = file.name.split("/")
        place = 2 if self._store.fan_out else 1  # of the identity, after the output
        named = unit_folder(steps[0], steps[place]) if within == UNITS and len(steps) > place else ""
        return bool(are_in(self._needed, [named])[0])

    def _is_copy(self, file: FoundFile) -> bool:
        digests = self._digests.get(file.size)
        if not digests:
            return False
        digest = blake3()
        for start in range(0, file.size, _PIECE):
            digest.update(self._as_it_lies.read_range(file.name, start, start + _PIECE))
        return digest.hexdigest() in digests


def _as_json(text: str) -> bytes:
    return canonical(text).strip().strip(b'"')


def _records(manifest: Manifest, wanted: set[str]) -> Iterator[LogRecord]:
    """The records of a version whose log_id or one of whose URIs is wanted."""
    columns = manifest.logs.columns("log_id", "uris").to_pydict()
    pairs = zip(columns["log_id"], columns["uris"], strict=True)
    places = [
        place
        for place, (log_id, uris) in enumerate(pairs)
        if log_id in wanted or not wanted.isdisjoint(parsed(uris or "[]", "uris"))
    ]
    return manifest.logs.take(places)
