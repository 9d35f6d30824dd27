"""The output `annotations`: annotation files of OpenMMLab 2.0, one per split.

A unit holds the files that its data infos (OpenMMLab's records of samples) name, and the infos, staged.
A version's view shows the named files unchanged, and one assembled annotation file for each split.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom.errors import UsageError
from logloom.io.formats.annotations.assemble import AnnotationPlanJson, make_file, plan_assembly, problems
from logloom.io.formats.annotations.infos import check_log_id
from logloom.io.formats.annotations.mapping import mapping_of, plan_mapping
from logloom.io.formats.annotations.options import Options as AnnotationsOptions
from logloom.io.formats.annotations.reader import AnnotationReader
from logloom.io.formats.annotations.stage import (
    INFOS,
    AnnotationStageReader,
    AnnotationStageWriter,
)
from logloom.io.formats.assembly import problems_at
from logloom.io.formats.interface import AssemblyPlan, StagedUnit, UnitContext
from logloom.io.formats.stages import StagedFormat
from logloom.io.rows.chain import UnitsSource
from logloom.io.rows.log_ranges import Stretches
from logloom.io.storage.store import Store
from logloom.schema import Schema


class AnnotationsFormat(StagedFormat):
    """See `Format` and `AssembledFormat` in logloom.io.formats.interface."""

    name = "annotations"
    semantics = 1
    stage_reader = AnnotationStageReader
    Options = AnnotationsOptions
    planned = AnnotationPlanJson
    preference = 70
    keeps_columns = False
    has_rows = False
    splits_share_folder = True  # files are named by log, annotation files by split

    def check(self, options: AnnotationsOptions, schema: Schema) -> list[str]:
        """List columns that are missing or don't fit, one line each."""
        return plan_mapping(options, schema)[1]

    def check_log(self, options: AnnotationsOptions, log_id: str, log_uri: str) -> list[str]:
        """A log_id that can't name a folder."""
        try:
            check_log_id(log_id)
        except UsageError as error:
            return [f"{log_uri}: {error}"]
        return []

    def staged(self, options: AnnotationsOptions, schema: Schema) -> Schema:
        return mapping_of(options, schema).schema

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: AnnotationsOptions, context: UnitContext
    ) -> AnnotationStageWriter:
        """Stages one partition; see `AnnotationStageWriter`."""
        return AnnotationStageWriter(directory, schema, options, context)

    def units(self, store: Store) -> list[AnnotationReader]:
        """The data infos of an annotation file, which the store's URI names.

        Raises:
            UsageError: it names a folder, or a file of another kind.
        """
        try:
            return [AnnotationReader(store.uri, store.options)]
        except TypeError as error:  # as OpenMMLab's loaders have it
            raise UsageError(f"{store.uri}: {error}; name the file") from error

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> UnitsSource:
        """The data infos of an annotation file, which the store's URI names: no folder is listed for it."""
        return UnitsSource(store, self.name, self.units(store), [""])

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """The files that infos name, by their own names; of infos, only what is assembled is shown."""
        return {name: name for name in files if name != INFOS}

    def plan_stages(
        self, units: Sequence[StagedUnit], schema: Schema, options: AnnotationsOptions, period: int | None
    ) -> AssemblyPlan:
        """See `logloom.io.formats.annotations.assemble.plan_assembly`."""
        return plan_assembly(units, options, units[0].split if units else "all")

    make_chunk = staticmethod(make_file)

    def assembled_problems(
        self, folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any]
    ) -> Iterator[str]:
        """Compare an annotation file with what was staged for it."""
        file = unit["file"]
        return problems_at(file, lambda: problems(f"{folder}/{file}", unit, storage_options))


FORMAT = AnnotationsFormat()
"""The format of the output `annotations`, for functions that take a format as an object."""
