"""Beam transforms over annotation files; their elements are blocks.

Here: wiring, and the few lines that stage single blocks.
Elsewhere: reading files (reader), staging and assembling (stage, assemble). Builds from recipes have their
own wiring in logloom.pipelines, with units that outlive a job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom.blocks import Block
from logloom.errors import UsageError
from logloom.extras import beam_needed
from logloom.io.annotations.assemble import StagedAnnotations, make_file, plan_assembly
from logloom.io.annotations.mapping import INFO, mapping_of
from logloom.io.annotations.options import Options
from logloom.io.annotations.reader import AnnotationReader
from logloom.io.annotations.stage import INFOS, AnnotationStageWriter
from logloom.io.storage import Store
from logloom.io.units import UnitContext
from logloom.schema import Schema

with beam_needed():
    import apache_beam as beam

from logloom.io.beam import remove_stage, stage_of


class ReadFromAnnotations(beam.PTransform):
    """Reads annotation files as blocks of data infos (see `AnnotationReader`); each is read by one worker."""

    def __init__(
        self,
        uris: str | Sequence[str],
        columns: Sequence[str] | None = None,
        max_bytes: int = 64 << 20,
        storage_options: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self.uris = [uris] if isinstance(uris, str | os.PathLike) else list(uris)
        self.columns = columns
        self.max_bytes = max_bytes
        self.storage_options = storage_options

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "NameFiles" >> beam.Create([os.fspath(uri) for uri in self.uris])
            | "SpreadFiles" >> beam.Reshuffle()
            | "ReadInfos" >> beam.FlatMap(_read, self.columns, self.max_bytes, self.storage_options)
        )


class WriteToAnnotations(beam.PTransform):
    """Writes blocks as one annotation file with the files it names, and gives its URI once it is whole.

    Files go to `folder` as they come; data infos are staged in `<folder>.stage`, so that no payload crosses a
    shuffle. Infos are ordered by (log_id, timestamp).
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        schema: Schema,
        options: Options,
        split: str = "all",
        storage_options: Mapping[str, Any] | None = None,
    ):
        """Checks what can be checked before there are rows.

        Args:
            schema: of the blocks.
            split: names the file, by `options.file`.

        Raises:
            UsageError: the columns don't fit.
        """
        super().__init__()
        mapping_of(options, schema)
        self.target = Store.at(os.fspath(folder), storage_options)
        self.schema = schema
        self.options = options
        self.split = split

    def expand(self, blocks: Any) -> Any:
        return (
            blocks
            | "StageBlock" >> beam.FlatMap(_stage_block, self.target, self.schema, self.options, self.split)
            | "ListUnits" >> beam.combiners.ToList()
            | "WriteFile" >> beam.Map(_write_file, self.target, self.options, self.split)
        )


def _read(
    uri: str, columns: Sequence[str] | None, max_bytes: int, storage_options: Mapping[str, Any] | None
) -> Iterator[Block]:
    return AnnotationReader(uri, storage_options).blocks(columns, max_bytes)


def _stage_block(
    block: Block, target: Store, schema: Schema, options: Options, split: str
) -> Iterator[StagedAnnotations]:
    """Stages one block as a unit of its own, named by its infos: a second attempt finds it there."""
    if not len(block):
        return
    stage = stage_of(target)
    with stage.scratch() as folder:
        writer = AnnotationStageWriter(
            folder, schema, options, UnitContext(block.log_id, "", block.partition, split)
        )
        writer.append(block)
        unit = writer.close()
        digest = unit.pop("columns")[INFO]
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / INFOS):
            _create(target, path.relative_to(folder).as_posix(), path.read_bytes())
            path.unlink()
        stage.publish(folder, digest[:32], last=INFOS)
    yield StagedAnnotations(block.log_id, digest[:32], unit, digest)


def _create(target: Store, name: str, data: bytes) -> None:
    """Creates a file; one that is there must hold the same, as after an attempt that was repeated."""
    if not target.create(name, data) and target.read(name) != data:
        raise UsageError(f"{target.uri_of(name)}: another dataset's file; remove it or choose another folder")


def _write_file(units: Sequence[StagedAnnotations], target: Store, options: Options, split: str) -> str:
    """Writes the annotation file, whose presence says that the dataset is whole."""
    name = options.file_of(split)
    if target.exists(name):
        raise UsageError(f"{target.uri_of(name)}: is there already; remove it or choose another folder")
    ordered = sorted(units, key=lambda unit: (unit.log_id, unit.unit["span"]))
    stage = stage_of(target)
    for task in plan_assembly(ordered, options, split).tasks:
        target.create(*make_file(stage, task))
    remove_stage(target)
    return target.uri_of(name)
