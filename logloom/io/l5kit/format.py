"""L5Kit as a dataset format of the pipelines: units are staged, then assembled into one dataset a split."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom.digests import digest_of
from logloom.errors import UsageError
from logloom.io.entries import Entry
from logloom.io.l5kit.assemble import (
    L5KitChunkTask,
    L5KitPlanJson,
    StagedL5Kit,
    differences,
    make_chunk,
    plan_assembly,
)
from logloom.io.l5kit.dtypes import FOLDERS
from logloom.io.l5kit.mapping import plan_mapping
from logloom.io.l5kit.mask_chunks import MaskTask
from logloom.io.l5kit.options import MAPPED_HINTS, L5KitOptions, host_of
from logloom.io.l5kit.stage import ClosedL5Kit, L5KitStageReader, L5KitStageWriter
from logloom.io.manifest import LogRecord
from logloom.io.sources import RowSource
from logloom.io.storage import Store
from logloom.io.stretches import Stretches
from logloom.io.units import AssemblyPlan, Format, UnitContext, check_unit
from logloom.schema import Schema


class L5KitFormat(Format):
    """See `Format` and `AssembledFormat` in logloom.io.units."""

    name = "l5kit"
    suffix = ".zarr"
    semantics = 1
    Options = L5KitOptions
    preference = 60
    keeps_columns = False
    has_stamps_at_hand = True
    reads_assembled = True

    def check(self, options: L5KitOptions, schema: Schema) -> list[str]:
        """Columns that are missing or don't fit, one line each."""
        return plan_mapping(options, schema)[1]

    def check_log(self, options: L5KitOptions, log_id: str, log_uri: str) -> list[str]:
        """A host that is too long."""
        try:
            host_of(options, log_uri, log_id)
        except UsageError as error:
            return [str(error)]
        return []

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: L5KitOptions, context: UnitContext
    ) -> L5KitStageWriter:
        """Stages one partition; see `L5KitStageWriter`."""
        return L5KitStageWriter(directory, schema, options, context)

    def reader(
        self,
        directory: str,
        schema: Schema,
        options: L5KitOptions,
        entry: Mapping[str, Any],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> L5KitStageReader:
        """Opens one staged unit: its mapped rows."""
        check_unit(ClosedL5Kit, entry, directory)
        return L5KitStageReader(directory, entry, storage_options)

    def recognises(self, store: Store) -> bool:
        """Whether a folder is an L5Kit dataset."""
        return set(store.names()) >= FOLDERS

    def again(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Its rows have the names of L5Kit's arrays; see `MAPPED_HINTS`."""
        return {**MAPPED_HINTS, "host": options["host"]}

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, told: Stretches | None = None
    ) -> RowSource:
        """Frames."""
        from logloom.io.l5kit.source import L5KitSource

        return L5KitSource(store, told)

    def view(self, number: int, files: Sequence[str]) -> dict[str, str]:
        """Staged units are not shown, only what is assembled from them."""
        return {}

    def plan_assembly(
        self,
        store: Store,
        units: Sequence[tuple[LogRecord, Entry]],
        schema: Schema,
        options: L5KitOptions,
        period: int | None,
    ) -> AssemblyPlan:
        """See `logloom.io.l5kit.assemble.plan_assembly`."""
        for _, entry in units:
            check_unit(ClosedL5Kit, entry.unit, store.uri_of(entry.folder))
        staged = [
            StagedL5Kit(
                record.log_id, record.uris[0], entry.folder, entry.unit, digest_of(dict(entry.columns))
            )
            for record, entry in units
            if entry.rows
        ]
        return plan_assembly(staged, options, period)

    def make_chunk(self, store: Store, task: L5KitChunkTask | MaskTask) -> tuple[str, bytes]:
        """The name and the bytes of one chunk."""
        return make_chunk(store, task)

    def assembled_differences(
        self, folder: str, unit: Mapping[str, Any], storage_options: Mapping[str, Any]
    ) -> Iterator[str]:
        """Says how a dataset differs from what was staged for it."""
        check_unit(L5KitPlanJson, unit, folder)
        return differences(folder, unit, storage_options)


FORMAT = L5KitFormat()
