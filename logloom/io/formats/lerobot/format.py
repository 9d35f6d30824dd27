"""The output `lerobot`: staged units, assembled into one dataset per split."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from logloom.io.arrow.files import text_problems
from logloom.io.formats.interface import AssemblyPlan, StagedUnit, UnitContext
from logloom.io.formats.lerobot.assemble import make_file, problems
from logloom.io.formats.lerobot.episodes import episodes_of_log, period_problem
from logloom.io.formats.lerobot.features import (
    TASK,
    FeatureMapping,
    mapping_of,
    plan_features,
    proposed_options,
)
from logloom.io.formats.lerobot.files import INFO
from logloom.io.formats.lerobot.options import LeRobotOptions
from logloom.io.formats.lerobot.plan import plan_assembly
from logloom.io.formats.lerobot.reader import LeRobotReader
from logloom.io.formats.lerobot.stage import LeRobotStageReader, LeRobotStageWriter
from logloom.io.formats.lerobot.video_encoder import encoder_digest
from logloom.io.formats.stages import StagedFormat
from logloom.io.rows.log_ranges import Stretches
from logloom.io.rows.sources import RowSource
from logloom.io.storage.store import Store
from logloom.schema import Schema


class LeRobotFormat(StagedFormat):
    """See `Format` and `AssembledFormat` in logloom.io.formats.interface."""

    name = "lerobot"
    semantics = 2  # 1: PNG of zlib's default level
    stage_reader = LeRobotStageReader
    last = (INFO,)
    Options = LeRobotOptions
    preference = 65
    keeps_columns = False
    has_stamps_at_hand = True
    reads_assembled = True
    sequence = "episode"

    def check_clock(self, options: LeRobotOptions, period: int | None) -> dict[str, str]:
        """A rate that isn't `fps`."""
        problem = period_problem(period, options)
        return {"fps": problem} if problem else {}

    def check(self, options: LeRobotOptions, schema: Schema) -> list[str]:
        """Columns that are missing or fill no feature, one line each."""
        return plan_features(options, schema)[1]

    def longest_gap(self, options: LeRobotOptions, period: int | None) -> int:
        """Return the longest time between two rows of an episode, ns."""
        return int(options.gap)

    def gap_line(self, options: LeRobotOptions, gap: str) -> str:
        """Return the line by which episodes go on over gaps."""
        return f"outputs: {{lerobot: {{episodes: {{gap: {gap}}}}}}}"

    def sequences(
        self, units: Sequence[Mapping[str, Any]], options: LeRobotOptions, period: int | None
    ) -> list[tuple[int, int, int]]:
        """List the episodes of a log."""
        return episodes_of_log(units, options)

    def decoded(self, options: LeRobotOptions, schema: Schema) -> set[str]:
        """Columns of pictures that are features."""
        images = (one.columns[0] for one in plan_features(options, schema)[0] if one.is_image)
        return {name for name in images if schema.columns[name].kind == "bytes"}

    def encoded(self, options: LeRobotOptions, schema: Schema) -> dict[str, str]:
        """List the columns of pixels that aren't video."""
        if options.video != "none":
            return {}
        images = (one.columns[0] for one in plan_features(options, schema)[0] if one.is_image)
        line = "outputs: {lerobot: {video: {codec: h264}}}"
        return {name: line for name in images if schema.columns[name].kind != "bytes"}

    def columns_of(self, options: LeRobotOptions, schema: Schema) -> Schema:
        """Features, `task`, and `split` where rows are split."""
        return mapping_of(options, schema).schema

    def check_log(self, options: LeRobotOptions, log_id: str, log_uri: str) -> list[str]:
        """Return the problem of a log_id that isn't UTF-8, if it is one."""
        return text_problems(log_id, log_uri)

    def staged(self, options: LeRobotOptions, schema: Schema) -> FeatureMapping:
        return mapping_of(options, schema)

    def writer(
        self, directory: pathlib.Path, schema: Schema, options: LeRobotOptions, context: UnitContext
    ) -> LeRobotStageWriter:
        """Stages one partition; see `LeRobotStageWriter`."""
        return LeRobotStageWriter(directory, schema, options, context)

    def recognises(self, store: Store) -> bool:
        """Whether a folder is a LeRobot dataset."""
        return "meta" in store.names() and store.exists(INFO)

    def again(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Its rows have the names of features."""
        features = {key: [key] for key in options["features"]}
        return {**options, "features": features, "task": {"column": TASK}}

    def proposed(self, schema: Schema, period: int | None) -> dict[str, Any]:
        """Return `fps`, and features of all columns that can be some."""
        return proposed_options(schema, period)

    def rows(
        self, store: Store, columns: Sequence[str] | None = None, known: Stretches | None = None
    ) -> RowSource:
        """Return the frames as rows."""
        return LeRobotReader(store.uri, store.options, known)

    def plan_stages(
        self, units: Sequence[StagedUnit], schema: Schema, options: LeRobotOptions, period: int | None
    ) -> AssemblyPlan:
        """See `logloom.io.formats.lerobot.plan.plan_assembly`."""
        return plan_assembly(units, mapping_of(options, schema), options)

    def pinned(self, options: LeRobotOptions, storage_options: Mapping[str, Any]) -> LeRobotOptions:
        """Return the options, which refer to no dataset."""
        return options

    def references_digest(self, options: LeRobotOptions, storage_options: Mapping[str, Any]) -> str:
        """Digest of the video encoder, so that units of different encoders have different identities."""
        return "" if isinstance(options.video, str) else encoder_digest(options.video.codec)

    make_chunk = staticmethod(make_file)
    assembled_problems = staticmethod(problems)


FORMAT = LeRobotFormat()
"""The format of the output `lerobot`, for functions that take a format as an object."""
