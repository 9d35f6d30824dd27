"""Beam transforms over L5Kit datasets; their elements are blocks.

Here: the few lines that stage single blocks.
Elsewhere: the wiring (logloom.io.beam), reading rows (rows), staging and assembling (stage, assemble). Builds
from recipes have their own wiring in logloom.pipelines, with units that outlive a job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from logloom.blocks import Block
from logloom.digests import digest_of
from logloom.errors import UsageError
from logloom.io.beam import ReadDataset, WriteAssembled
from logloom.io.l5kit.assemble import StagedL5Kit, make_chunk, plan_assembly
from logloom.io.l5kit.mapping import mapping_of
from logloom.io.l5kit.options import L5KitOptions
from logloom.io.l5kit.rows import L5KitReader
from logloom.io.l5kit.stage import L5KitStageWriter
from logloom.io.storage import Store
from logloom.io.units import AssemblyPlan, UnitContext
from logloom.schema import Schema


class ReadFromL5Kit(ReadDataset):
    """Reads a dataset as blocks of frames; a log for each scene, named by its number (see `L5KitReader`).

    The columns are those of `logloom.io.l5kit.mapping.MAPPED_SCHEMA`; `columns` selects among them.
    """

    opener = L5KitReader


class WriteToL5Kit(WriteAssembled):
    """Writes blocks as one dataset and gives its path, once it is whole (see `WriteAssembled`)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        options: L5KitOptions,
        period: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Checks what can be checked before there are rows.

        Args:
            schema: of the blocks.
            period: of the rows' clock, in ns, where it has one.

        Raises:
            UsageError: the columns don't fit, or the host needs a log's URI, which blocks don't have.
        """
        mapping_of(options, schema)
        if any(f"{{{name}}}" in options.host for name in ("stem", "parent", "path")):
            raise UsageError(f"host {options.host!r}: blocks have no URI; use {{log_id}} or a fixed name")
        super().__init__(path, _L5Kit(schema, options, period), storage_options)


@dataclass(frozen=True)
class _L5Kit:
    """How blocks become an L5Kit dataset."""

    schema: Schema
    options: L5KitOptions
    period: int | None

    last: ClassVar[tuple[str, ...]] = (".zgroup",)

    def stage(self, block: Block, stage: Store) -> StagedL5Kit:
        context = UnitContext(block.log_id, block.log_id, block.partition, "", self.period)
        with stage.scratch() as folder:
            writer = L5KitStageWriter(folder, self.schema, self.options, context)
            writer.append(block)
            unit = writer.close()
            columns = unit.pop("columns")
            name = digest_of([block.log_id, block.partition, block.first_row, columns])[:32]
            stage.publish(folder, name, last="frames")
        return StagedL5Kit(block.log_id, block.log_id, name, unit, digest_of(columns))

    def plan(self, units: Sequence[StagedL5Kit]) -> AssemblyPlan:
        ordered = sorted(units, key=lambda unit: (unit.log_id, unit.unit["runs"][0][2]))
        return plan_assembly(ordered, self.options, self.period)

    def make(self, stage: Store, task: Any) -> tuple[str, bytes]:
        return make_chunk(stage, task)
