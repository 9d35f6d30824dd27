"""Read finished units by their own readers, and compare them with their entries.

Here: `Reading`, `differences`, and `read_back`, which a build applies to units that it wrote.
Elsewhere: building units (logloom.transforms.build.partition), the formats' readers (logloom.io), which units
were read back before (logloom.transforms.build.read_marks).
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from blake3 import blake3
from pydantic import BaseModel

from logloom.blocks import Block
from logloom.digests import RowsDigest
from logloom.errors import OF_CONTENT
from logloom.io.catalog.entries import Entry
from logloom.io.formats.registry import open_unit
from logloom.io.rows.sources import RowSource
from logloom.io.storage.faults import MISSING
from logloom.io.storage.files import keep_freed_memory
from logloom.io.storage.filesystems import explained
from logloom.io.storage.step_times import each
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.schema import Schema
from logloom.text import counted
from logloom.transforms.build import memory_budget
from logloom.transforms.build.job import Target
from logloom.transforms.build.journal import READING_BACK, Note
from logloom.transforms.build.partition_results import Failure, PartitionResult
from logloom.transforms.build.unit_checks import withdraw
from logloom.transforms.build.unit_writer import digested
from logloom.values import dataclass

READ_BYTES = 16 << 20  # of a block that is read back: a few of them need no fresh memory, which costs more
_AT_A_TIME = 6  # blocks: that are read, wait for their digest, or have it, and buffers
_UNPACKED = 8  # times the bytes of its files that a unit's rows may take, and their buffers


@dataclass(frozen=True)
class Reading:
    """What reading a version's units back takes.

    Attributes:
        outputs: name to the output's options.
        block_bytes: of rows that are looked at together, about.
    """

    store: Store
    schema: Schema
    outputs: Mapping[str, BaseModel]
    block_bytes: int = READ_BYTES

    @classmethod
    def of(cls, job: Target) -> Reading:
        return cls(job.store, job.schema, job.outputs, min(job.block_bytes, READ_BYTES))

    def open(self, entry: Entry) -> RowSource:
        """The reader of a finished unit."""
        return open_unit(self.store, self.schema, self.outputs, entry)


def read_back(job: Target, result: PartitionResult) -> PartitionResult:
    """Reads the units through their own readers; adds a failure for each that differs from its entry."""
    keep_freed_memory()
    reading = Reading.of(job)
    began = time.perf_counter()
    chosen = [
        entry for entry in result.entries if entry.rows and is_sampled(job.settings.verify, entry.identity)
    ]
    failures = [one for entry in chosen for one in damaged(job, entry, differences(reading, entry))]
    job.journal.write(Note(READING_BACK, result.log.log_id, seconds=time.perf_counter() - began))
    return dataclasses.replace(result, failures=(*result.failures, *failures))


def damaged(job: Target, entry: Entry, problems: Iterable[str]) -> list[Failure]:
    """The failures of a unit that isn't what its entry promises, which no longer counts as finished."""
    found = list(problems)
    if not found:
        return []
    way_out = withdraw(job.store, entry.log_id, entry.folders) or "build again: it will be made anew"
    return [Failure(entry.log_id, entry.partition, "readback", f"{one}; {way_out}") for one in found]


def is_sampled(verify: str, identity: str) -> bool:
    """Whether a unit is among those to read back; the same ones in every attempt."""
    if verify in ("all", "new", "none"):
        return verify != "none"
    return draw_of(identity) < float(verify.removeprefix("sample:"))


def draw_of(identity: str) -> float:
    """Return the number in [0, 1) that decides whether a sample has a unit.

    >>> round(draw_of("a unit"), 3)
    0.406
    """
    return int(blake3(identity.encode()).hexdigest()[:8], 16) / 2**32


def differences(
    reading: Reading, entry: Entry, on_block: Callable[[Block], object] | None = None
) -> Iterator[str]:
    """Says how a unit differs, read through its reader, from what its entry promises.

    Args:
        on_block: called with all that is read.

    Raises:
        StorageError: it can't be read.
    """
    place = reading.store.uri_of(entry.folder)
    try:
        with explained(place, MISSING):
            reader = reading.open(entry)
            digests = RowsDigest(reader.schema)
            rows = 0
            with memory_budget.ROWS.reserved(min(_AT_A_TIME * reading.block_bytes, _UNPACKED * entry.size)):
                # Hashing leaves Python's lock to whoever reads the next block.
                blocks = each("read rows", reader.blocks(max_bytes=reading.block_bytes))
                for block in ahead(functools.partial(digested, digests, on_block), blocks, threads=1):
                    rows += len(block)
    except (*OF_CONTENT, *MISSING, ValueError) as error:
        yield f"{place}: {error}"
        return
    if rows != entry.rows:
        yield f"{place}: {counted(rows, 'row')}, its entry has {entry.rows}"
        return
    found = digests.hexdigests()
    unknown = [name for name in found if name not in entry.columns]
    if unknown:
        yield f"{place}: the entry has no digest of column {', '.join(unknown)}"
    different = [name for name in found if found[name] != entry.columns.get(name, found[name])]
    if different:
        yield f"{place}: read back differs from what was written in column {', '.join(different)}"
