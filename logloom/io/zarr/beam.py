"""Beam transforms over zarr datasets; their elements are blocks.

Here: the few lines that stage single blocks.
Elsewhere: the wiring (logloom.io.beam), reading rows (reader), staging and assembling (stage, assemble).
Builds from recipes have their own wiring in logloom.pipelines, with units that outlive a job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from logloom.blocks import Block
from logloom.digests import RowsDigest
from logloom.errors import UsageError
from logloom.io.beam import ReadDataset, WriteAssembled
from logloom.io.storage import Store
from logloom.io.units import AssemblyPlan, UnitContext
from logloom.io.zarr.arrays import problems_of
from logloom.io.zarr.assemble import StagedZarr, ZarrFileTask, make_file, plan_assembly, stored_digest
from logloom.io.zarr.options import ZarrOptions
from logloom.io.zarr.reader import ZarrReader
from logloom.io.zarr.stage import SMALL, ZarrStageWriter
from logloom.schema import Schema


class ReadFromZarr(ReadDataset):
    """Reads a dataset that logloom wrote as blocks, logs side by side (see `ZarrReader`)."""

    opener = ZarrReader


class WriteToZarr(WriteAssembled):
    """Writes blocks as one dataset and gives its path, once it is whole (see `WriteAssembled`)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        options: ZarrOptions | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Checks what can be checked before there are rows.

        Args:
            schema: of the blocks.

        Raises:
            UsageError: a column can't be an array.
        """
        options = options or ZarrOptions()
        stored = options.stored(schema)
        problems = problems_of(stored)
        if problems:
            raise UsageError("; ".join(problems))
        super().__init__(path, _Zarr(stored, options), storage_options)


@dataclass(frozen=True)
class _Zarr:
    """How blocks become a zarr dataset."""

    schema: Schema
    options: ZarrOptions

    last: ClassVar[tuple[str, ...]] = ("zarr.json", ".zgroup")

    def stage(self, block: Block, stage: Store) -> StagedZarr:
        digests = RowsDigest(self.schema)
        digests.update(block)
        digest = stored_digest(digests.hexdigests(), self.schema)
        with stage.scratch() as folder:
            context = UnitContext(block.log_id, "", block.partition, "")
            writer = ZarrStageWriter(folder, self.schema, context)
            writer.append(block)
            unit = writer.close()
            stage.publish(folder, digest[:32], last=SMALL)
        return StagedZarr(block.log_id, digest[:32], unit, digest)

    def plan(self, units: Sequence[StagedZarr]) -> AssemblyPlan:
        ordered = sorted(units, key=lambda unit: (unit.log_id, unit.unit["span"]))
        return plan_assembly(ordered, self.schema, self.options)

    def make(self, stage: Store, task: ZarrFileTask) -> tuple[str, bytes]:
        return make_file(stage, task)
