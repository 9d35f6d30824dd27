"""What was read back, so that a build that starts again doesn't read it again.

A bundle whose units were read back, and found right, leaves an empty file in runs/, named by the units' files
and columns: units with other bytes have another name. Marks are gone once their version is committed.
Here: `read_back_bundle` and `units_read_back`.
Elsewhere: reading one partition's units back (logloom.transforms.partition).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from logloom.digests import digest_of
from logloom.io.entries import Entry
from logloom.io.manifest import runs_folder
from logloom.io.storage import Store
from logloom.transforms.job import Target
from logloom.transforms.journal import READING_BACK, Note
from logloom.transforms.partition import PartitionResult, read_back

_MARK = re.compile(r"[0-9a-f]{2}/[0-9a-f]{30}-(\d{1,9})")


def read_back_bundle(job: Target, results: Sequence[PartitionResult]) -> tuple[list[PartitionResult], int]:
    """Reads the units of a bundle back, unless they are known to be right; gives how many were known."""
    entries = [entry for result in results for entry in result.entries]
    mark = _mark_of(job, entries) if entries and job.verify != "none" else ""
    if mark and job.verify != "all" and job.store.exists(mark):
        for result in results:
            job.journal.write(Note(READING_BACK, result.log.log_id, found=True))
        return list(results), len(entries)
    read = [read_back(job, result) for result in results]
    if mark and not any(result.failures for result in read):
        job.store.create(mark, b"", durable=False)
    return read, 0


def _mark_of(job: Target, entries: Sequence[Entry]) -> str:
    """The mark of units that hold just these bytes, read to the same extent."""
    said = [[one.output, one.identity, [file.digest for file in one.files], one.columns] for one in entries]
    digest = digest_of([job.verify, said])[:32]
    return f"{marks_folder(job.number)}/{digest[:2]}/{digest[2:]}-{len(entries)}"


def marks_folder(number: int) -> str:
    """Where the marks of a version lie that is yet to be committed."""
    return f"{runs_folder(number)}/read"


def units_read_back(store: Store, number: int) -> int:
    """How many units of a version that is being built were read back, by all its attempts."""
    found = map(_MARK.fullmatch, store.sizes(marks_folder(number)))
    return sum(int(mark[1]) for mark in found if mark is not None)
