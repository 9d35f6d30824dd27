"""Marks of units and outputs read back, so that a restarted build skips them.

A bundle whose units were read back without differences leaves an empty file in runs/, named by the digests of
the units' files and columns: units with other bytes have another name. So does an assembled output, named by
its entry. Marks are removed once their version is committed; the outcome of the build has their sum.
Here: `read_back_bundle`, `units_read_back`, `units_in_bundles`, and the marks of assembled outputs.
Elsewhere: reading one partition's units back (logloom.transforms.build.read_back), or an assembled output
(logloom.transforms.build.assembly.files).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from logloom.digests import digest_of
from logloom.io.catalog.version_files import runs_folder
from logloom.io.storage.store import Store
from logloom.transforms.build.job import Target
from logloom.transforms.build.journal import READING_BACK, Note
from logloom.transforms.build.partition_results import PartitionResult

_MARK = re.compile(r"[0-9a-f]{2}/[0-9a-f]{30}-(\d{1,9})-(\d{1,9})")


def read_back_bundle(job: Target, results: Sequence[PartitionResult]) -> tuple[list[PartitionResult], int]:
    """Reads the units of a bundle back, unless they are known to be right; gives how many were known."""
    from logloom.transforms.build.read_back import is_sampled, read_back  # which open every format

    entries = [entry for result in results for entry in result.entries]
    # Units with these names that hold just these bytes.
    held = [[one.output, one.identity, [file.digest for file in one.files], one.columns] for one in entries]
    num_read = sum(is_sampled(job.settings.verify, one.identity) for one in entries)
    mark = mark_of(job, held, len(entries), num_read) if entries and job.settings.verify != "none" else ""
    if mark and is_marked(job, mark):
        for result in results:
            job.journal.write(Note(READING_BACK, result.log.log_id, found=True))
        return list(results), len(entries)
    read = [read_back(job, result) for result in results]
    if mark and not any(result.failures for result in read):
        leave_mark(job, mark)
    return read, 0


def mark_of(job: Target, content: Any, units: int = 0, read: int = 0) -> str:
    """Return the name of the mark for JSON values that identify what was read.

    Args:
        units: of the bundle.
        read: how many of them are read back, which are fewer in a sample.
    """
    digest = digest_of([job.settings.verify, content])[:32]
    return f"{marks_folder(job.number)}/{digest[:2]}/{digest[2:]}-{units}-{read}"


def is_marked(job: Target, mark: str) -> bool:
    """Whether what has this mark needn't be read again."""
    return job.settings.verify != "all" and job.store.exists(mark)


def leave_mark(job: Target, mark: str) -> None:
    """Notes that something was read back, and found right."""
    job.store.create(mark, b"", durable=False)


def marks_folder(number: int) -> str:
    """Where the marks of a version are that is yet to be committed."""
    return f"{runs_folder(number)}/read"


def units_read_back(store: Store, number: int) -> int:
    """Return how many units of a version that is being built were read back, by all its attempts."""
    return _sum_of_marks(store, number, 2)


def units_in_bundles(store: Store, number: int) -> int:
    """Return how many units the bundles have that were read back; of a sample not all were read."""
    return _sum_of_marks(store, number, 1)


def _sum_of_marks(store: Store, number: int, group: int) -> int:
    found = map(_MARK.fullmatch, store.sizes(marks_folder(number)))
    return sum(int(mark[group]) for mark in found if mark is not None)
