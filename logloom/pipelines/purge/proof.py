"""Traces of erased logs, and the proof that no file of a root contains any.

Here: `Traces`, the names of logs and the digests of their files, and `find_left`, which searches all files.
Elsewhere: what is erased, and in which order (logloom.pipelines.purge.purge).
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from blake3 import blake3

from logloom.errors import DatasetError
from logloom.io.catalog.artifacts import Holdings
from logloom.io.catalog.assembled_outputs import assembled_files
from logloom.io.catalog.entries import Entry, FileEntry, read_log_part
from logloom.io.catalog.manifest import Assembled, Manifest, read_assembled
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.removal_notes import REMOVING
from logloom.io.storage.faults import MISSING
from logloom.io.storage.file_ages import FoundFile, listed
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import TEMPORARY, Store
from logloom.io.storage.stored_files import UNITS
from logloom.io.storage.threads import ahead

_SEARCHED = 64 << 20  # bytes of a file in runs/ or tmp/ that are looked through
_PIECE = 8 << 20
_NAMING = ("runs", "index", TEMPORARY)  # folders whose files tell of logs


class Traces:
    """What logs leave in a root: their names in files, and copies of their files' bytes."""

    def __init__(self, store: Store, records: Iterable[LogRecord]):
        self._store = replace(store, fan_out=0)  # files are named as they are
        self._digests: dict[int, set[str]] = {}  # of erased files, by size
        texts = {text for record in records for text in (record.log_id, record.content_id, *record.uris)}
        forms = {form for text in texts if text for form in (_encoded(text), _as_json(text))}
        # Whole words: a log may be called "a". Without a record nothing is to be found.
        words = b"|".join(map(re.escape, forms)) or rb"(?!)"
        self._names = re.compile(rb"(?<![\w.-])(" + words + rb")(?![\w.-])")

    def remember(self, files: Iterable[FileEntry]) -> None:
        """Notes bytes that must not be found any more."""
        for file in files:
            if file.size:
                self._digests.setdefault(file.size, set()).add(file.digest)

    def spare(self, files: Iterable[FileEntry]) -> None:
        """Forgets bytes that may be found."""
        for file in files:
            self._digests.get(file.size, set()).discard(file.digest)

    def may_have_copy(self, file: FoundFile) -> bool:
        """Whether a file is as large as one that was erased."""
        return bool(self._digests.get(file.size))

    def is_copy(self, file: FoundFile) -> bool:
        """Whether a file holds the bytes of one that was erased; not one that is gone by now."""
        digests = self._digests.get(file.size)
        if not digests:
            return False
        digest = blake3()
        try:
            for start in range(0, file.size, _PIECE):
                digest.update(self._store.read_range(file.name, start, start + _PIECE))
        except MISSING:
            return False
        return digest.hexdigest() in digests

    def is_named_in(self, file: FoundFile) -> bool:
        """Whether a file names one of the logs."""
        try:
            data = self._store.read_range(file.name, 0, _SEARCHED)
        except MISSING:
            return False
        return self._names.search(data) is not None


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _as_json(text: str) -> bytes:
    return canonical(text).strip().strip(b'"')


def log_ids_in(data: bytes) -> set[str]:
    """The logs that a Parquet file of logs/ is of, a part or statistics; none of one that is neither."""
    import pyarrow.parquet as pq

    with (
        contextlib.suppress(pa.ArrowException, OSError, ValueError),
        pq.ParquetFile(pa.BufferReader(data)) as file,
    ):
        if noted := (file.metadata.metadata or {}).get(b"log_id"):
            return {noted.decode(errors="surrogateescape")}
        if "log_id" in file.schema_arrow.names:
            return set(file.read(["log_id"], use_threads=False)["log_id"].to_pylist())
    return set()


def spare_shared(
    traces: Traces, store: Store, manifests: Sequence[Manifest], erased: Collection[str], gone: Iterable[str]
) -> None:
    """Forgets bytes that other logs have given too, such as the same metadata: these stay.

    Args:
        erased: digests of the parts of the logs that are erased.
        gone: folders of assembled outputs and portions that are erased.
    """
    records = (record for manifest in manifests for record in manifest.logs)
    parts = sorted({record.part for record in records if record.part} - set(erased))
    for units in ahead(functools.partial(_units_of, store), parts):
        traces.spare(file for entry in units for file in entry.files)
    starts = tuple(f"{folder}/" for folder in gone)
    # Versions share what they have in common.
    for part in dict.fromkeys(part for manifest in manifests for part in manifest.assembled):
        traces.spare(file for place, file in files_of_assembled(store, part) if not place.startswith(starts))


def _units_of(store: Store, part: str) -> Sequence[Entry]:
    with contextlib.suppress(DatasetError):  # a lost part is for `repair`
        return read_log_part(store, part, brief=True)
    return ()


def files_of_assembled(store: Store, part: Assembled) -> Iterator[tuple[str, FileEntry]]:
    """The places and files of an assembled output; none of one that is missing or damaged."""
    with contextlib.suppress(DatasetError):
        yield from assembled_files(store, part.identity, read_assembled(store, part))


def find_left(
    store: Store, traces: Traces, gone: set[str], needed: Holdings, on_progress: Callable[[int, int], None]
) -> Iterator[str]:
    """Looks through all files of a root for names of logs, their units, and copies of their files.

    Args:
        gone: identities of units that were to go.
        needed: by versions; another log may have given the same bytes.
        on_progress: called with how many files were looked through, of how many.

    Yields:
        Where something is left, or may be, in words.
    """
    as_it_lies = replace(store, fan_out=0)
    found = (file for name in store.names() if name != "versions" for file in listed(as_it_lies, name))
    total, read = 0, list[FoundFile]()
    for file in found:
        total += 1
        steps = file.name.split("/")
        if not gone.isdisjoint(steps):
            yield f"{store.uri_of(file.name)}: of a unit that was to go"
        elif file.name.startswith(f"{REMOVING}/"):
            continue  # digests of names, which may hold any letter
        elif steps[0] in _NAMING or traces.may_have_copy(file):
            read.append(file)

    def look(file: FoundFile) -> str:
        within = file.name.split("/")
        if not _is_needed(within, needed) and traces.is_copy(file):
            return "a copy of a file that was erased"
        return "names a log that was erased" if within[0] in _NAMING and traces.is_named_in(file) else ""

    for number, (file, problem) in enumerate(
        zip(read, ahead(look, read), strict=True), total - len(read) + 1
    ):
        if problem:
            yield f"{store.uri_of(file.name)}: {problem}"
        on_progress(number, total)
    on_progress(total, total)


def _is_needed(steps: Sequence[str], needed: Holdings) -> bool:
    """Whether a file is of a unit that a version names."""
    if steps[0] != UNITS or len(steps) <= 3:
        return False
    return bool(needed.has_units(steps[1], [steps[3]])[0])
