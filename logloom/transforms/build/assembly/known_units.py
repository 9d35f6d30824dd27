"""A cache of units of assembled outputs; builds read only the units of new logs.

    index/units      by log, what a plan needs of its units, and their lines in the last plan

Here: `UnitMemory`, this file. Elsewhere: storing it (logloom.io.logs.files.sidecars), its use (plan).

It is trusted as the manifest is. A log that it lacks, or whose record has changed, is read. As all of index/
the file may be deleted at any time, and every purge deletes it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from logloom.caching import cached_property
from logloom.digests import digest_of
from logloom.errors import DatasetError, LogloomError
from logloom.io.catalog.entries import read_log_part, unit_folder
from logloom.io.catalog.log_tables import catalogued
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.tombstones import Purged
from logloom.io.formats.interface import StagedUnit, unit_name
from logloom.io.logs.files.sidecars import Sidecars
from logloom.io.storage.metadata import Count, Name, Text, canonical, checked
from logloom.io.storage.store import Store
from logloom.transforms.build.job import Target
from logloom.values import dataclass

NAME = "units"
UnitsByOutput = Mapping[str, Sequence[StagedUnit]]
_LAYOUT = 1  # of the file
_Unit = tuple[Name, Text, Count, dict[str, Any], dict[str, Text], list[Any]]  # as `_remembered` lists it
_REMEMBERED: Any = tuple[list[Text], dict[str, list[_Unit]]]
_LEFT_OUT = "files", "software", "tally"  # of very many units, so without what only those need that are read


@dataclass(frozen=True)
class UnitMemory:
    """The units of logs, as an earlier build found them, and those that this one reads.

    Attributes:
        outputs: that are assembled.
        known: by log_id, what `_remembered` made of a log.
        used, read: by log_id, what `units_of` gave: with the digest of the log's part, from `known`; or from
            that part.
    """

    job: Target
    outputs: tuple[str, ...]
    known: Mapping[str, bytes] = field(default_factory=dict)
    used: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    read: dict[str, tuple[LogRecord, UnitsByOutput]] = field(default_factory=dict)

    @classmethod
    def load(cls, job: Target, outputs: Sequence[str]) -> UnitMemory:
        """What there is; nothing where it is damaged, or of other outputs."""
        memory = cls(job, tuple(outputs))
        data = Sidecars.of(job.store).load(NAME) or {}
        if data.get("about") != memory._about:
            return memory
        try:
            return cls(job, memory.outputs, {_decoded(name): text for name, text in data["logs"]})
        except (KeyError, TypeError, ValueError, AttributeError):
            return memory

    def units_of(self, record: LogRecord) -> UnitsByOutput:
        """The units of a log that hold rows, by output.

        Raises:
            DatasetError: its part of the manifest is missing or damaged.
        """
        if (known := self._known(record)) is not None:
            return known
        found: dict[str, list[StagedUnit]] = {output: [] for output in self.outputs}
        for entry in read_log_part(self.job.store, record.part, left_out=_LEFT_OUT).entries_with_rows(found):
            found[entry.output].append(StagedUnit.of(record, entry))
        self.read[record.log_id] = record, found
        return found

    def _known(self, record: LogRecord) -> UnitsByOutput | None:
        """The cached units of an unchanged log; None if it has changed, or its cached units are not valid."""
        try:
            text = self.known[record.log_id]
            facts, units = checked(_REMEMBERED, json.loads(text), NAME)
        except (KeyError, TypeError, ValueError, RecursionError, DatasetError):
            return None
        if facts != _facts(record) or {*units} != {*self.outputs}:
            return None
        self.used[record.log_id] = record.part, text
        return {output: [_unit(record, output, *kept) for kept in own] for output, own in units.items()}

    def save(self, parts: Mapping[str, Sequence[Any]]) -> None:
        """Keeps what was asked for, for the next build; a root that takes nothing does without.

        Args:
            parts: by a unit's folder, what the plan says of it.
        """
        if not self.read and len(self.used) == len(self.known):
            return
        texts = self.used | {
            log_id: (record.part, _remembered(record, units, parts))
            for log_id, (record, units) in self.read.items()
        }
        logs = [[_encoded(log_id), texts[log_id][1]] for log_id in sorted(texts)]
        with contextlib.suppress(LogloomError, OSError):
            Sidecars.of(self.job.store).save(NAME, {"about": self._about, "logs": logs})
            if not Purged(self.job.store).parts.isdisjoint(part for part, _ in texts.values()):
                forget_units(self.job.store)  # a purge went through index/ meanwhile

    @cached_property
    def _about(self) -> str:
        """What the file depends on beside logs."""
        outputs = [self.job.output_identity(output) for output in self.outputs]
        return digest_of([_LAYOUT, outputs, self.job.schema.to_json()])


def forget_units(store: Store) -> None:
    """Removes what is remembered of units."""
    store.remove(f"index/{NAME}")


def _unit(
    record: LogRecord,
    output: str,
    name: str,
    partition: str,
    rows: int,
    unit: Mapping[str, Any],
    columns: Mapping[str, str],
    planned: Sequence[Any],
) -> StagedUnit:
    of_log, folder = (record.log_id, record.uris[0], record.split), unit_folder(output, name)
    about_log = catalogued(record.catalogue)
    return StagedUnit(*of_log, partition, folder, rows, unit, columns, about_log, planned)


def _remembered(record: LogRecord, units: UnitsByOutput, parts: Mapping[str, Sequence[Any]]) -> bytes:
    """Make the cache entry of a log, with digests of columns only where no plan replaces them."""
    rows = {
        output: [
            [
                unit_name(unit.folder),
                unit.partition,
                unit.rows,
                unit.unit,
                {} if unit.folder in parts else unit.columns,
                parts.get(unit.folder, ()),
            ]
            for unit in own
        ]
        for output, own in units.items()
    }
    return canonical([_facts(record), rows])


def _facts(record: LogRecord) -> list[str]:
    """What the units of a log depend on, by which a log is known again."""
    return [record.uris[0], record.part, record.split, record.catalogue]


def _encoded(log_id: str) -> bytes:
    return log_id.encode(errors="surrogateescape")


def _decoded(name: bytes) -> str:
    return name.decode(errors="surrogateescape")
