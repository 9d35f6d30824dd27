"""Annotation files as a dataset format of the pipelines.

Units hold the files that data infos name, shown in a version's view as they are; their infos are staged, then
assembled into one annotation file a split.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom.errors import UsageError
from logloom.io.annotations.assemble import (
    AnnotationFileTask,
    AnnotationPlanJson,
    StagedAnnotations,
    differences,
    make_file,
    plan_assembly,
)
from logloom.io.annotations.infos import check_log_id
from logloom.io.annotations.mapping import INFO, mapping_of, plan_mapping
from logloom.io.annotations.options import Options as AnnotationsOptions
from logloom.io.annotations.reader import AnnotationReader
from logloom.io.annotations.stage import (
    INFOS,
    AnnotationStageReader,
    AnnotationStageWriter,
    ClosedAnnotations,
)
from logloom.io.entries import Entry
from logloom.io.manifest import LogRecord
from logloom.io.storage import Store
from logloom.io.units import AssemblyPlan, Format, UnitContext, check_unit
from logloom.schema import Schema


class AnnotationsFormat(Format):
    """See `Format` and `AssembledFormat` in logloom.io.units."""

    name = "annotations"
    semantics = 1
    Options = AnnotationsOptions
    preference = 70
    keeps_columns = False
    has_rows = False
    splits_share_folder = True  # files are named by log, annotation files by split

    def check(self, options: AnnotationsOptions, schema: Schema) -> list[str]:
        """Columns that are missing or don't fit, one line each."""
        return plan_mapping(options, schema)[1]

    def check_log(self, options: AnnotationsOptions, log_id: str, log_uri: str) -> list[str]:
        """A log_id that can't name a folder."""
        try:
            check_log_id(log_id)
        except UsageError as error:
            return [f"{log_uri}: {error}"]
        return []

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: AnnotationsOptions, context: UnitContext
    ) -> AnnotationStageWriter:
        """Stages one partition; see `AnnotationStageWriter`."""
        return AnnotationStageWriter(directory, schema, options, context)

    def reader(
        self,
        directory: str,
        schema: Schema,
        options: AnnotationsOptions,
        entry: Mapping[str, Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> AnnotationStageReader:
        """Opens one staged unit: its mapped rows."""
        check_unit(ClosedAnnotations, entry, directory)
        return AnnotationStageReader(directory, mapping_of(options, schema).schema, entry, storage_options)

    def units(self, store: Store) -> list[AnnotationReader]:
        """The data infos of an annotation file, which the store's URI names."""
        return [AnnotationReader(store.uri, store.options)]

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """The files that infos name, by their own names; of infos, only what is assembled is shown."""
        return {name: name for name in files if name != INFOS}

    def plan_assembly(
        self,
        store: Store,
        units: Sequence[tuple[LogRecord, Entry]],
        schema: Schema,
        options: AnnotationsOptions,
        period: int | None,
    ) -> AssemblyPlan:
        """See `logloom.io.annotations.assemble.plan_assembly`."""
        for _, entry in units:
            check_unit(ClosedAnnotations, entry.unit, store.uri_of(entry.folder))
        staged = [
            StagedAnnotations(record.log_id, entry.folder, entry.unit, entry.columns[INFO])
            for record, entry in units
            if entry.rows
        ]
        return plan_assembly(staged, options, units[0][0].split if units else "all")

    def make_chunk(self, store: Store, task: AnnotationFileTask) -> tuple[str, bytes]:
        """The name and the bytes of an annotation file."""
        return make_file(store, task)

    def assembled_differences(
        self, folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any]
    ) -> Iterator[str]:
        """Says how an annotation file differs from what was staged for it."""
        check_unit(AnnotationPlanJson, unit, folder)
        return differences(folder, unit, storage_options)


FORMAT = AnnotationsFormat()
