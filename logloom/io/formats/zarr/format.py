"""The output `zarr`: staged units, assembled into one zarr dataset per split."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

from logloom.io.formats.interface import AssemblyPlan, StagedUnit, UnitContext
from logloom.io.formats.stages import StagedFormat
from logloom.io.formats.zarr.assemble import make_file, plan_assembly, problems
from logloom.io.formats.zarr.columns import problems_of
from logloom.io.formats.zarr.foreign_groups import FILES
from logloom.io.formats.zarr.groups import is_own, log_problems
from logloom.io.formats.zarr.layout import ZarrOptions
from logloom.io.formats.zarr.reader import ZarrReader
from logloom.io.formats.zarr.stage import ZarrStageReader, ZarrStageWriter
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.store import Store
from logloom.schema import Schema


class ZarrFormat(StagedFormat):
    """See `Format` and `AssembledFormat` in logloom.io.formats.interface."""

    name = "zarr"
    suffix = ".zarr"
    semantics = 1
    stage_reader = ZarrStageReader
    last = ("zarr.json", ".zgroup")
    Options = ZarrOptions
    preference = 20
    has_stamps_at_hand = True
    reads_assembled = True
    media_type = "application/x-zarr"

    def check(self, options: ZarrOptions, schema: Schema) -> list[str]:
        """List columns that can't be arrays, one line each."""
        return options.problems(schema, problems_of)

    def check_log(self, options: ZarrOptions, log_id: str, log_uri: str) -> list[str]:
        """A log_id that can't name a group."""
        return [f"{log_uri}: {problem}" for problem in log_problems(log_id)]

    def staged(self, options: ZarrOptions, schema: Schema) -> Schema:
        return options.stored(schema)

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: ZarrOptions, context: UnitContext
    ) -> ZarrStageWriter:
        """Stages one partition; see `ZarrStageWriter`."""
        return ZarrStageWriter(directory, options.stored(schema), context)

    def recognises(self, store: Store) -> bool:
        """Whether a folder is a zarr group; formats based on such groups have names that are tried before."""
        return bool(set(store.names()) & set(FILES))

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> RowSource:
        """Open the rows of a dataset that logloom wrote, or entries of foreign arrays."""
        if known is None and not is_own(store):
            from logloom.io.formats.zarr.foreign_source import open_arrays

            return open_arrays(store, columns)
        return ZarrReader(store.uri, storage_options=store.options, known=known)

    def typed_rows(self, store: Store, columns: Sequence[str] | None = None, **how: Any) -> RowSource:
        """Do as `rows`, with foreign arrays as columns."""
        if is_own(store):
            return self.rows(store)
        from logloom.io.formats.zarr.foreign_source import ArraysSource
        from logloom.io.rows.inference.source import SurveyedSource

        return SurveyedSource(ArraysSource(store), columns, **how)

    def plan_stages(
        self, units: Sequence[StagedUnit], schema: Schema, options: ZarrOptions, period: int | None
    ) -> AssemblyPlan:
        """See `logloom.io.formats.zarr.assemble.plan_assembly`."""
        return plan_assembly(units, options.stored(schema), options)

    make_chunk = staticmethod(make_file)
    assembled_problems = fresh_problems = staticmethod(problems)


FORMAT = ZarrFormat()
"""The format of the output `zarr`, for functions that take a format as an object."""
