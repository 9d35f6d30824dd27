"""Targets of a purge: records, units, assembled outputs, and referring roots.

Here: `Found`; nothing is changed.
Elsewhere: erasing it (logloom.pipelines.purge.purge), time ranges of a log (rows).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from logloom.errors import DatasetError, PurgedError, UsageError
from logloom.io.catalog.artifacts import LOG_FILES, PART, Holdings, files_named
from logloom.io.catalog.entries import Entry, read_log_part
from logloom.io.catalog.manifest import Assembled, Manifest, folders_of, manifest_at
from logloom.io.catalog.pages import LogRecord, page_file
from logloom.io.catalog.tombstones import Purged, merged_ranges
from logloom.io.catalog.version_files import all_versions, version_file
from logloom.io.formats.registry import referred_to
from logloom.io.storage.file_ages import FoundFile
from logloom.io.storage.metadata import parsed
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.pipelines.gc.retention import check_found, check_users
from logloom.pipelines.plan.next_version import check_whole, passes_of
from logloom.pipelines.purge.proof import Traces
from logloom.pipelines.purge.rows import ErasedTime, content_without, count_rows
from logloom.schema import TimeRanges


class Found:
    """What versions say of some logs, those that `gc` took out included.

    Attributes:
        manifests: of all versions.
        needed: what these need.
        records: of the logs, by version; none that was made without the time that goes.
        parts: digests that name their parts of manifests.
        log_ids: of the logs.
        unknown: what was asked for and no version has.
        ranges: by log_id, for those of which only some time goes.
    """

    def __init__(self, store: Store, logs: Sequence[str], times: Sequence[ErasedTime]):
        self._store = store
        there, removed, lost = all_versions(store)
        check_found(store, lost)
        self.manifests = [manifest_at(store, number) for number in there]
        self.needed = Holdings.of(store, self.manifests)
        for number in removed:
            # What is left of it, or of one whose manifest is lost, is found as what no version names.
            with contextlib.suppress(DatasetError, UsageError):
                manifest = manifest_at(store, number)
                self.needed = self.needed.merged(Holdings.of(store, [manifest]))
                self.manifests.append(manifest)
        whole = set(logs)
        wanted = whole | {time.log for time in times}
        self._whole: dict[str, str] = {}  # of later passes, the logs that are wanted
        for manifest in self.manifests:
            check_whole(store, manifest.logs, wanted)
            self._whole |= {one.log_id: log for log in wanted for one in passes_of(manifest.logs, log)}
        found = {
            manifest.version: list(_records(manifest, wanted | self._whole.keys()))
            for manifest in self.manifests
        }
        self.records = {number: own for number, own in found.items() if own}
        distinct = list({(one.log_id, one.uris, one.content_id): one for one in self._every()}.values())
        self.log_ids = sorted({record.log_id for record in distinct})
        self.unknown = sorted(wanted - {name for one in distinct for name in (one.log_id, *one.uris)})
        self.ranges: dict[str, TimeRanges] = {}
        named_whole = {one.log_id for one in distinct if not whole.isdisjoint(self._names(one))}
        for record in distinct:
            own = [(t.start, t.stop) for t in times if t.log in self._names(record)]
            if own and record.log_id not in named_whole:
                known = self.ranges.get(record.log_id, ())
                self.ranges[record.log_id] = merged_ranges([*known, *own])
        self._leave_out_done()
        self.parts = sorted({record.part for record in self._every() if record.part})

    def _names(self, record: LogRecord) -> set[str]:
        """By which a log may be named: its log_id, that of the log that it is a pass of, and its files."""
        return {record.log_id, self._whole.get(record.log_id, record.log_id), *record.uris}

    def _leave_out_done(self) -> None:
        """Leaves out what was built since an earlier purge of these times: nothing of them is in it.

        Raises:
            UsageError: see `content_without`.
        """
        newest = self._newest()
        done = {id: content_without(self._store, *newest[id], ranges) for id, ranges in self.ranges.items()}
        self._done = [record for record in self._every() if record.content_id == done.get(record.log_id)]
        left = {
            number: [record for record in own if record.content_id != done.get(record.log_id)]
            for number, own in self.records.items()
        }
        self.records = {number: own for number, own in left.items() if own}

    def _newest(self) -> dict[str, tuple[Manifest, LogRecord]]:
        """The newest version that has each log, and its record there."""
        newest: dict[str, tuple[Manifest, LogRecord]] = {}
        for manifest in sorted(self.manifests, key=lambda manifest: manifest.version):
            newest |= {r.log_id: (manifest, r) for r in self.records.get(manifest.version, ())}
        return newest

    def _every(self) -> Iterator[LogRecord]:
        return (record for own in self.records.values() for record in own)

    def of(self, log_id: str) -> list[LogRecord]:
        """What versions say of a log."""
        return [record for record in self._every() if record.log_id == log_id]

    def every(self) -> list[LogRecord]:
        """What versions say of all the logs."""
        return list(self._every())

    def units(self) -> list[Entry]:
        """The units of the logs in all versions; none of those that an earlier purge erased."""
        return [entry for units in ahead(self._units_of, self.parts) for entry in units]

    def _units_of(self, part: str) -> Sequence[Entry]:
        try:
            return read_log_part(self._store, part, brief=True)
        except PurgedError:
            return ()

    def files(self) -> list[str]:
        """The single files that records of the logs name, without those of what stays; their parts last."""
        named, kept = ({n for one in some for n in files_named(one)} for some in (self._every(), self._done))
        parts = {name for record in self._every() for name in LOG_FILES[PART].of(record)}
        return sorted(named - kept, key=lambda name: (name in parts, name))

    def num_rows(self) -> int:
        """How many rows go, of the newest version that has each log; none of what an earlier purge erased."""
        rows = 0
        for log_id, (manifest, record) in self._newest().items():
            if ranges := self.ranges.get(log_id):
                rows += count_rows(self._store, manifest, record, ranges)
            elif self._store.exists(LOG_FILES[PART].name(record.part)):  # which goes last
                rows += record.rows
        return rows

    def assembled(self) -> list[tuple[Assembled, list[str]]]:
        """Assembled outputs that hold rows of the logs, and the folders that only such outputs name."""
        touched, others = dict[str, Assembled](), dict[str, Assembled]()
        for manifest in self.manifests:
            splits = {record.split for record in self.records.get(manifest.version, ()) if record.rows}
            for part in manifest.assembled:
                (touched if part.split in splits else others)[f"{part.output}/{part.identity}"] = part
        kept = {folder for name, part in others.items() if name not in touched for folder in self._own(part)}
        return [(part, [f for f in self._own(part) if f not in kept]) for part in touched.values()]

    def _own(self, part: Assembled) -> list[str]:
        """The folders of an assembled output, the one that lists the others last."""
        try:
            return folders_of(self._store, part)[::-1]
        except PurgedError:
            return [part.folder]

    def copies(self) -> Iterator[str]:
        """List logs with the content of a log to erase that were not named."""
        contents = {record.content_id: record.log_id for record in self._every() if record.content_id}
        purged, known = Purged(self._store).parts, set(self.log_ids)
        for manifest in self.manifests:
            columns = manifest.logs.columns("log_id", "content_id", "part").to_pydict()
            for log_id, content, part in zip(*columns.values(), strict=True):
                if content in contents and log_id not in known and part and part not in purged:
                    known.add(log_id)
                    yield f"{log_id}: has the same content as {contents[content]}; purge it, too"

    def named_in(self, traces: Traces) -> list[str]:
        """Files of manifests, which stay, that name the logs: as a record, as the first or last log of a
        page, or in the recipe."""
        files = [FoundFile(version_file(manifest.version), 0, 0) for manifest in self.manifests]
        named = [file.name for file in files if traces.is_named_in(file)]
        pages = {s.digest: s for manifest in self.manifests for s in manifest.logs.pages if s.digest}
        inside = (s for s in pages.values() if any(s.first <= log_id <= s.last for log_id in self.log_ids))
        return sorted({*named, *(page_file(page) for page in inside)})

    def users(self) -> list[str]:
        """URIs of tables and roots that point into units or views of this root.

        Raises:
            UsageError: no installed part reads their notes.
        """
        store, found = self._store, set()
        for place in (None, *self.records):
            check_users(store, place)
            for form in referred_to():
                found |= {form.user_of(store, note) for note in form.notes(store, place)}
        return sorted(found)


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
