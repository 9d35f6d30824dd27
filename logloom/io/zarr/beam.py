"""Beam transforms over zarr datasets; their elements are blocks.

Here: wiring, and the few lines that stage single blocks.
Elsewhere: reading rows (reader), staging and assembling (stage, assemble). Builds from recipes have their own
wiring in logloom.pipelines, with units that outlive a job.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from logloom.blocks import Block
from logloom.digests import RowsDigest
from logloom.errors import UsageError
from logloom.io.storage import Store
from logloom.io.units import AssemblyPlan, UnitContext
from logloom.io.zarr.arrays import problems_of
from logloom.io.zarr.assemble import FileTask, StagedUnit, make_file, plan_assembly, stored_digest
from logloom.io.zarr.options import ZarrOptions
from logloom.io.zarr.reader import ZarrReader
from logloom.io.zarr.stage import SMALL, StageWriter
from logloom.schema import Schema

try:
    import apache_beam as beam
except ModuleNotFoundError as error:
    raise UsageError("Beam is not installed; pip install 'logloom[build]'") from error

from logloom.io.beam import remove_stage, stage_of

_ROOT_FILES = ("zarr.json", ".zgroup")  # written last: they say that a dataset is whole


class ReadFromZarr(beam.PTransform):
    """Reads a dataset that logloom wrote as blocks, logs side by side (see `ZarrReader`)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        max_bytes: int = 64 << 20,
        storage_options: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self.path = os.fspath(path)
        self.columns = columns
        self.max_bytes = max_bytes
        self.storage_options = storage_options

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "NameDataset" >> beam.Create([self.path])
            | "ListLogs" >> beam.FlatMap(_logs, self.storage_options)
            | "SpreadLogs" >> beam.Reshuffle()
            | "ReadLog" >> beam.FlatMap(_read_log, self.columns, self.max_bytes, self.storage_options)
        )


class WriteToZarr(beam.PTransform):
    """Writes blocks as one dataset and gives its path, once it is whole.

    Blocks may come in any order and are staged as they come, in `<path>.stage`, so that none crosses a
    shuffle; their rows are written twice. Rows are ordered by (log_id, timestamp).
    """

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
        super().__init__()
        self.options = options or ZarrOptions()
        self.schema = self.options.stored(schema)
        problems = problems_of(self.schema)
        if problems:
            raise UsageError("; ".join(problems))
        self.target = Store.at(os.fspath(path), storage_options)

    def expand(self, blocks: Any) -> Any:
        units = (
            blocks
            | "StageBlock" >> beam.FlatMap(_stage_block, self.target, self.schema)
            | "ListUnits" >> beam.combiners.ToList()
        )
        written = (
            units
            | "PlanFiles" >> beam.FlatMap(_plan_files, self.target, self.schema, self.options)
            | "SpreadFiles" >> beam.Reshuffle()
            | "WriteFile" >> beam.Map(_write_file, self.target)
        )
        return units | "WriteMetadata" >> beam.Map(
            _finish, self.target, self.schema, self.options, beam.pvalue.AsList(written)
        )


def _logs(path: str, storage_options: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    for log_id in ZarrReader(path, storage_options=storage_options).logs:
        yield path, log_id


def _read_log(
    log: tuple[str, str],
    columns: Sequence[str] | None,
    max_bytes: int,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[Block]:
    path, log_id = log
    return ZarrReader(path, storage_options=storage_options).log(log_id).blocks(columns, max_bytes)


def _stage_block(block: Block, target: Store, schema: Schema) -> Iterator[StagedUnit]:
    """Stages one block as a unit of its own, named by its content: a second attempt finds it there."""
    if not len(block):
        return
    stage = stage_of(target)
    digests = RowsDigest(schema)
    digests.update(block)
    digest = stored_digest(digests.hexdigests(), schema)
    with stage.scratch() as folder:
        writer = StageWriter(folder, schema, UnitContext(block.log_id, "", block.partition, ""))
        writer.append(block)
        unit = writer.close()
        stage.publish(folder, digest[:32], last=SMALL)
    yield StagedUnit(block.log_id, digest[:32], unit, digest)


def _plan(units: Iterable[StagedUnit], schema: Schema, options: ZarrOptions) -> AssemblyPlan:
    ordered = sorted(units, key=lambda unit: (unit.log_id, unit.unit["span"]))
    return plan_assembly(ordered, schema, options)


def _plan_files(
    units: Sequence[StagedUnit], target: Store, schema: Schema, options: ZarrOptions
) -> Sequence[FileTask]:
    if any(target.exists(name) for name in _ROOT_FILES):
        raise UsageError(f"{target.uri}: there is a dataset already; remove it or choose another path")
    tasks: Sequence[FileTask] = _plan(units, schema, options).tasks
    return tasks


def _write_file(task: FileTask, target: Store) -> str:
    name, data = make_file(stage_of(target), task)
    target.replace(name, data)
    return name


def _finish(
    units: Sequence[StagedUnit], target: Store, schema: Schema, options: ZarrOptions, written: Sequence[str]
) -> str:
    """Writes the metadata, the root's last; `written` is there to be waited for."""
    files = _plan(units, schema, options).files
    for name in sorted(files, key=lambda name: (name in _ROOT_FILES, name)):
        target.replace(name, files[name])
    remove_stage(target)
    return target.uri
