"""Beam transforms over L5Kit datasets; their elements are blocks.

Here: wiring, and the few lines that stage single blocks.
Elsewhere: reading rows (rows), staging and assembling (stage, assemble). Builds from recipes have their own
wiring in logloom.pipelines, with units that outlive a job.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from logloom.blocks import Block
from logloom.digests import digest_of
from logloom.errors import UsageError
from logloom.io.l5kit.assemble import StagedUnit, make_chunk, plan_assembly
from logloom.io.l5kit.mapping import mapping_of
from logloom.io.l5kit.options import Options
from logloom.io.l5kit.rows import DatasetReader
from logloom.io.l5kit.stage import StageWriter
from logloom.io.storage import Store
from logloom.io.units import UnitContext
from logloom.schema import Schema

try:
    import apache_beam as beam
except ModuleNotFoundError as error:
    raise UsageError("Beam is not installed; pip install 'logloom[build]'") from error

from logloom.io.beam import remove_stage, stage_of


class ReadFromL5Kit(beam.PTransform):
    """Reads a dataset as blocks of frames; a log for each scene, named by its number (see `DatasetReader`).

    The columns are those of `logloom.io.l5kit.mapping.MAPPED_SCHEMA`; `columns` selects among them.
    """

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
            | "ListScenes" >> beam.FlatMap(_scenes, self.storage_options)
            | "SpreadScenes" >> beam.Reshuffle()
            | "ReadScene" >> beam.FlatMap(_read_scene, self.columns, self.max_bytes, self.storage_options)
        )


class WriteToL5Kit(beam.PTransform):
    """Writes blocks as one dataset and gives its path, once it is whole.

    Blocks may come in any order and are staged as they come, in `<path>.stage`, so that none crosses a
    shuffle; their rows are written twice. Rows are ordered by (log_id, timestamp).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        options: Options,
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
        super().__init__()
        mapping_of(options, schema)
        if any(f"{{{name}}}" in options.host for name in ("stem", "parent", "path")):
            raise UsageError(f"host {options.host!r}: blocks have no URI; use {{log_id}} or a fixed name")
        self.target = Store.at(os.fspath(path), storage_options)
        self.schema = schema
        self.options = options
        self.period = period

    def expand(self, blocks: Any) -> Any:
        units = (
            blocks
            | "StageBlock" >> beam.Map(_stage_block, self.target, self.schema, self.options, self.period)
            | "ListUnits" >> beam.combiners.ToList()
        )
        written = (
            units
            | "PlanChunks" >> beam.FlatMap(_plan_chunks, self.target, self.options, self.period)
            | "SpreadChunks" >> beam.Reshuffle()
            | "WriteChunk" >> beam.Map(_write_chunk, self.target)
        )
        return units | "WriteMetadata" >> beam.Map(
            _finish, self.target, self.options, self.period, beam.pvalue.AsList(written)
        )


def _scenes(path: str, storage_options: Mapping[str, Any] | None) -> Iterator[tuple[str, int]]:
    for scene in range(DatasetReader(path, storage_options).num_scenes):
        yield path, scene


def _read_scene(
    scene: tuple[str, int],
    columns: Sequence[str] | None,
    max_bytes: int,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[Block]:
    path, number = scene
    return DatasetReader(path, storage_options).scene_blocks(number, columns, max_bytes)


def _stage_block(
    block: Block, target: Store, schema: Schema, options: Options, period: int | None
) -> StagedUnit:
    """Stages one block as a unit of its own, named by its content: a second attempt finds it there."""
    stage = stage_of(target)
    context = UnitContext(block.log_id, block.log_id, block.partition, "", period)
    with stage.scratch() as folder:
        writer = StageWriter(folder, schema, options, context)
        writer.append(block)
        unit = writer.close()
        columns = unit.pop("columns")
        name = digest_of([block.log_id, block.partition, block.first_row, columns])[:32]
        if len(block):
            stage.publish(folder, name, last="frames")
    return StagedUnit(block.log_id, block.log_id, name, unit, digest_of(columns))


def _in_order(units: Iterable[StagedUnit]) -> list[StagedUnit]:
    return sorted((u for u in units if u.rows["frames"]), key=lambda u: (u.log_id, u.unit["runs"][0][2]))


def _plan_chunks(
    units: Sequence[StagedUnit], target: Store, options: Options, period: int | None
) -> Sequence[Any]:
    if target.exists(".zgroup"):
        raise UsageError(f"{target.uri}: there is a dataset already; remove it or choose another path")
    return plan_assembly(_in_order(units), options, period).tasks


def _write_chunk(task: Any, target: Store) -> str:
    name, data = make_chunk(stage_of(target), task)
    target.replace(name, data)
    return name


def _finish(
    units: Sequence[StagedUnit], target: Store, options: Options, period: int | None, written: Sequence[str]
) -> str:
    """Writes the metadata; `written` is there to be waited for. The group's own file says it is whole."""
    files = plan_assembly(_in_order(units), options, period).files
    for name in sorted(files, key=lambda name: (name == ".zgroup", name)):
        target.replace(name, files[name])
    remove_stage(target)
    return target.uri
