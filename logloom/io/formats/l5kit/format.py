"""The output `l5kit`: staged units, assembled into one L5Kit dataset per split."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from logloom.errors import UsageError
from logloom.io.formats.interface import AssemblyPlan, StagedUnit, UnitContext, Writer
from logloom.io.formats.l5kit.dtypes import FOLDERS, HOST_LENGTH
from logloom.io.formats.l5kit.mapping import MAPPED_SCHEMA, plan_mapping
from logloom.io.formats.l5kit.options import MAPPED_HINTS, L5KitOptions, gap_limit, host_of
from logloom.io.formats.stages import StagedFormat, StageReader
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.metadata import Count, Text
from logloom.io.storage.store import Store
from logloom.schema import Schema


class L5KitPlanJson(BaseModel):
    """The content of an `AssemblyPlan`; of each unit log_id, partition, frames, agents, faces and digest."""

    scenes: Text
    parts: tuple[tuple[Text, Text, Count, Count, Count, Text], ...]
    masks: Mapping[str, Count] = Field(default_factory=dict)


class L5KitFormat(StagedFormat):
    """See `Format` and `AssembledFormat` in logloom.io.formats.interface."""

    name = "l5kit"
    suffix = ".zarr"
    semantics = 1
    last = (".zgroup",)
    Options = L5KitOptions
    planned = L5KitPlanJson
    takes = "host"
    takes_for_option = True
    preference = 60
    keeps_columns = False
    has_stamps_at_hand = True
    reads_assembled = True
    sequence = "scene"

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

    def check_taken(self, value: str) -> str:
        """A host that is too long."""
        if len(value) <= HOST_LENGTH:
            return ""
        return f"the host {value!r} has more than {HOST_LENGTH} characters"

    def longest_gap(self, options: L5KitOptions, period: int | None) -> int | None:
        """Return the longest time between two frames of a scene, ns."""
        return gap_limit(options, period)

    def gap_line(self, options: L5KitOptions, gap: str) -> str:
        """Return the line by which scenes go on over gaps."""
        return f"outputs: {{l5kit: {{max_gap: {gap}}}}}"

    def sequences(
        self, units: Sequence[Mapping[str, Any]], options: L5KitOptions, period: int | None
    ) -> list[tuple[int, int, int]]:
        """List the scenes of a log."""
        from logloom.io.formats.l5kit.stage import joined_runs

        runs = joined_runs(units, gap_limit(options, period))
        return [(stop - start, first, last) for start, stop, first, last in runs]

    @property
    def stage_reader(self) -> type[StageReader]:
        from logloom.io.formats.l5kit.stage import L5KitStageReader

        return L5KitStageReader

    def staged(self, options: L5KitOptions, schema: Schema) -> Schema:
        return MAPPED_SCHEMA

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: L5KitOptions, context: UnitContext
    ) -> Writer:
        """Stages one partition; see `L5KitStageWriter`."""
        from logloom.io.formats.l5kit.stage import L5KitStageWriter

        return L5KitStageWriter(directory, schema, options, context)

    def recognises(self, store: Store) -> bool:
        """Whether a folder is an L5Kit dataset."""
        return set(store.names()) >= FOLDERS

    def again(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Its rows have the names of L5Kit's arrays; see `MAPPED_HINTS`."""
        kept = {name: options[name] for name in ("host", "max_gap", "masks") if name in options}
        return {**MAPPED_HINTS, **kept}

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> RowSource:
        """Return the frames as rows."""
        from logloom.io.formats.l5kit.reader import L5KitReader

        return L5KitReader(store.uri, store.options, known)

    def plan_stages(
        self, units: Sequence[StagedUnit], schema: Schema, options: L5KitOptions, period: int | None
    ) -> AssemblyPlan:
        """See `logloom.io.formats.l5kit.assemble.plan_assembly`."""
        from logloom.io.formats.l5kit.assemble import plan_assembly

        return plan_assembly(units, options, period)

    def make_chunk(self, store: Store, task: Any) -> tuple[str, bytes]:
        """See `logloom.io.formats.l5kit.assemble.make_chunk`."""
        from logloom.io.formats.l5kit.assemble import make_chunk

        return make_chunk(store, task)

    def assembled_problems(
        self,
        folder: str,
        unit: Mapping[str, Any],
        storage_options: Mapping[str, Any],
        fresh: Collection[str] | None = None,
    ) -> Iterator[str]:
        """See `logloom.io.formats.l5kit.assemble.problems`."""
        from logloom.io.formats.l5kit.assemble import problems

        return problems(folder, unit, storage_options, fresh)

    fresh_problems = assembled_problems


FORMAT = L5KitFormat()
"""The format of the output `l5kit`, for functions that take a format as an object."""
